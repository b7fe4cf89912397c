"""What a pool did and what it holds, as values that print themselves."""

import html
import json
from dataclasses import dataclass, field, fields


@dataclass(frozen=True)
class Gauge:
    """A value that rises and falls."""

    now: int = 0
    peak: int = 0


class _Report:
    """A report that prints the table of the C++ library."""

    def __str__(self):
        return self._text

    def __repr__(self):
        return self._text.rstrip("\n")

    def _repr_html_(self):
        return f"<pre>{html.escape(self._text)}</pre>"

    def json(self):
        """Returns the report as text in JSON."""
        return self._json

    def as_dict(self):
        """Returns the report as a dict of plain values."""
        return json.loads(self._json)


def _table(title, rows):
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        + "".join(
            f"<td style='text-align:right'>{html.escape(str(value))}</td>" for value in values
        )
        + "</tr>"
        for name, values in rows
    )
    return f"<table><caption>{html.escape(title)}</caption>{cells}</table>"


@dataclass(frozen=True, repr=False)
class PoolStats(_Report):
    """Counters that rise, and gauges. acquires = hits + misses; held = lent + idle."""

    acquires: int
    hits: int
    misses: int
    grows: int
    releases: int
    evictions: int
    failures: int
    missed_bytes: int
    moves: int
    moved_bytes: int
    lent_buffers: Gauge
    lent_bytes: Gauge
    idle_buffers: Gauge
    idle_bytes: Gauge
    held_bytes: Gauge
    waste_bytes: Gauge
    evictions_by_limit: dict = field(default_factory=dict)
    _json: str = field(default="", compare=False)
    _text: str = field(default="", compare=False)

    @property
    def hit_rate(self):
        """The share of requests that idle bytes served."""
        return self.hits / self.acquires if self.acquires else 0.0

    def _repr_html_(self):
        counters = [
            (f.name, (getattr(self, f.name), "")) for f in fields(self) if f.type in (int, "int")
        ]
        gauges = [
            (f.name, (getattr(self, f.name).now, f"peak {getattr(self, f.name).peak}"))
            for f in fields(self)
            if isinstance(getattr(self, f.name), Gauge)
        ]
        return _table(f"hit rate {self.hit_rate:.1%}", counters + gauges)


def read_stats(texts):
    values = json.loads(texts[0])
    known = {f.name for f in fields(PoolStats)}
    plain = {
        name: Gauge(**value) if isinstance(value, dict) and set(value) == {"now", "peak"} else value
        for name, value in values.items()
        if name in known
    }
    return PoolStats(**plain, _json=texts[0], _text=texts[1])


class Explanation(_Report):
    """What a pool holds, for whom and why; the fields are those of as_dict()."""

    def __init__(self, texts):
        self._json, self._text = texts
        self.__dict__.update(json.loads(texts[0]))
