"""A pool lends NumPy arrays and keeps their memory warm for the next borrower."""

import operator
import threading

import numpy as np

from . import _core
from .errors import InvalidArgument
from .fits import BestFit, Elastic, ExactFit, FixedBlock, read_fit
from .stats import Explanation, read_stats
from .vector import Vector

NO_LIMIT = 2**64 - 1
FOREVER = float("inf")
_FOREVER_MILLISECONDS = 2**63 - 1


def _limit(name, value):
    """Returns a limit as the C++ library takes it: None stays, for the default."""
    return None if value is None else _count(name, value)


def _count(name, value):
    try:
        number = operator.index(value)
    except TypeError:
        if value == FOREVER:
            return NO_LIMIT
        raise TypeError(f"{name} is an integer, not {type(value).__name__!r}: {value!r}") from None
    if not 0 <= number <= NO_LIMIT:
        raise InvalidArgument(f"{name} is out of range: {number}")
    return number


def _extents(shape):
    """Returns a shape, which _core.nbytes() has accepted, as a tuple."""
    extents = shape if isinstance(shape, tuple) else np.atleast_1d(np.asarray(shape))
    return tuple(int(extent) for extent in extents)


def _milliseconds(name, seconds):
    if seconds is None:
        return None
    try:
        number = float(seconds)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is a number of seconds, not {seconds!r}") from None
    if number != number or number < 0:
        raise InvalidArgument(f"{name} is not a length of time: {seconds!r}")
    return (
        min(_FOREVER_MILLISECONDS, int(number * 1000)) if number < 1e15 else _FOREVER_MILLISECONDS
    )


def _limits_for_core(limits):
    age = limits.pop("max_idle_age")
    core = {name: _limit(name, value) for name, value in limits.items()}
    return {**core, "max_idle_milliseconds": _milliseconds("max_idle_age", age)}


_FIT_NAMES = {Elastic: "elastic", ExactFit: "exact", BestFit: "best", FixedBlock: "fixed"}


class Pool(_core.Pool):
    """Lends NumPy arrays: C order, 64-byte aligned, their memory back when the last view dies.

    memory: "host", "pinned" or "managed". fit: "elastic" (splits and coalesces), "exact", "best", "best:0.1",
    "fixed:BYTES", or one of the classes Elastic, ExactFit, BestFit, FixedBlock. Limits are bytes,
    counts and seconds; None is the default. numa_node: where host pages are placed. device: whose pinned or
    managed memory it is, the first one's by default. Thread-safe.
    Arrays may outlive the pool. Pickling a pool keeps the options it was given, not its memory.
    """

    __slots__ = ("_options", "_given", "__weakref__")

    def __init__(
        self,
        memory="host",
        fit="elastic",
        *,
        name="",
        alignment=64,
        max_bytes=None,
        max_idle_bytes=None,
        max_idle_buffers=None,
        max_buffer_bytes=None,
        max_idle_age=None,
        evict="oldest",
        separate_types=False,
        wipe_on_release=False,
        huge_pages=True,
        numa_node=None,
        device=None,
    ):
        fit = read_fit(fit)
        for argument, value in (("memory", memory), ("name", name), ("evict", evict)):
            if not isinstance(value, str):
                raise TypeError(f"{argument} is text, not {type(value).__name__!r}: {value!r}")
        # Defaults depend on the machine, so only what was given is pickled.
        self._given = {
            "max_bytes": max_bytes,
            "max_idle_bytes": max_idle_bytes,
            "max_idle_buffers": max_idle_buffers,
            "max_buffer_bytes": max_buffer_bytes,
            "max_idle_age": max_idle_age,
        }
        super().__init__(
            memory=memory,
            huge_pages=bool(huge_pages),
            numa_node=_limit("numa_node", numa_node),
            device=_limit("device", device),
            name=name,
            fit=_FIT_NAMES[type(fit)],
            max_waste=float(fit.max_waste) if isinstance(fit, BestFit) else 0.0,
            block_bytes=_count("bytes", fit.bytes) if isinstance(fit, FixedBlock) else 0,
            alignment=_count("alignment", alignment),
            evict=evict,
            separate_types=bool(separate_types),
            wipe_on_release=bool(wipe_on_release),
            **_limits_for_core(dict(self._given)),
        )
        self._options = {
            "memory": memory,
            "fit": fit,
            "name": name,
            "alignment": alignment,
            "evict": evict,
            "separate_types": bool(separate_types),
            "wipe_on_release": bool(wipe_on_release),
            "huge_pages": bool(huge_pages),
            "numa_node": numa_node,
            "device": device,
        }

    # empty(shape, dtype=None) and zeros(shape, dtype=None) are in the extension.

    def full(self, shape, fill_value, dtype=None):
        """Lends an array filled with a value; the dtype is the value's unless given."""
        if dtype is None:
            dtype = np.asarray(fill_value).dtype
        result = self.empty(shape, dtype)
        result[...] = fill_value
        return result

    def empty_like(self, prototype, dtype=None, shape=None):
        """Lends an array of the shape and dtype of another, in C order."""
        prototype = np.asanyarray(prototype)
        return self.empty(
            prototype.shape if shape is None else shape, prototype.dtype if dtype is None else dtype
        )

    def zeros_like(self, prototype, dtype=None, shape=None):
        """Lends an array of zeros of the shape and dtype of another, in C order."""
        prototype = np.asanyarray(prototype)
        return self.zeros(
            prototype.shape if shape is None else shape, prototype.dtype if dtype is None else dtype
        )

    def copy(self, array):
        """Lends a copy of an array."""
        array = np.asanyarray(array)
        result = self.empty(array.shape, array.dtype)
        result[...] = array
        return result

    def array(self, shape, dtype=None, *, zeroed=False):
        """Lends an array for the length of a block: `with pool.array((n, m)) as a:`.

        At the end its memory goes back at once and `a` has no elements left, unless somebody else
        holds it or a view of it by then: such an array stays as it is while it lives.
        """
        return Lent(self, shape, dtype, zeroed)

    def arrays(self, *specs, dtype=None):
        """Lends several arrays at once: `u, v = pool.arrays((ny, nx), ((ny, nx), "f4"))`.

        Each spec is a shape, a pair of shape and dtype, a cistern.shape(), or a nest of them in
        lists, tuples and dicts, which gives the same nest of arrays in one block. If one cannot be
        had, none is.
        """
        from .scopes import lend_specs

        return lend_specs(self, specs, dtype)

    def vector(self, capacity=0, dtype=None):
        """Lends an empty vector with room for `capacity` elements; it grows through the pool."""
        return Vector(self, capacity, dtype)

    def trim(self, keep_idle_bytes=0):
        """Gives idle bytes back to the memory. Returns how many."""
        return self._trim(_count("keep_idle_bytes", keep_idle_bytes))

    def set_limits(
        self,
        *,
        max_bytes=None,
        max_idle_bytes=None,
        max_idle_buffers=None,
        max_buffer_bytes=None,
        max_idle_age=None,
    ):
        """Changes the limits that are given, at once: evicts what is above."""
        limits = {
            "max_bytes": max_bytes,
            "max_idle_bytes": max_idle_bytes,
            "max_idle_buffers": max_idle_buffers,
            "max_buffer_bytes": max_buffer_bytes,
            "max_idle_age": max_idle_age,
        }
        self._set_limits(**_limits_for_core(dict(limits)))
        self._given.update((name, limit) for name, limit in limits.items() if limit is not None)

    def stats(self):
        """Returns what the pool did and what it holds."""
        return read_stats(self._stats())

    def explain(self):
        """Returns what is held, by size and age, and why."""
        return Explanation(self._explain([]))

    @property
    def options(self):
        """The arguments that make such a pool, with the limits now in force."""
        limits = self._limits()
        milliseconds = limits.pop("max_idle_milliseconds")
        age = FOREVER if milliseconds == _FOREVER_MILLISECONDS else milliseconds / 1000
        return {**self._options, **limits, "max_idle_age": age}

    def __reduce__(self):
        if self is _default:
            return default_pool, ()
        return _from_options, ({**self._options, **self._given},)

    def __repr__(self):
        stats = self.stats()
        return (
            f"<cistern.Pool {self.name!r} on {self.memory}, fit {self._options['fit']!r}: "
            f"{stats.lent_bytes.now} B lent, {stats.idle_bytes.now} B idle, "
            f"hit rate {stats.hit_rate:.1%}>"
        )

    def _repr_html_(self):
        return self.stats()._repr_html_()


def _from_options(options):
    return Pool(**options)


class Lent:
    """An array for the length of a block; what Pool.array() returns."""

    __slots__ = ("_pool", "_request", "_boxes")

    def __init__(self, pool, shape, dtype, zeroed):
        self._pool = pool
        self._request = (shape, dtype, zeroed)
        self._boxes = []

    def __enter__(self):
        shape, dtype, zeroed = self._request
        array = self._pool.zeros(shape, dtype) if zeroed else self._pool.empty(shape, dtype)
        self._boxes.append([array])
        return array

    def __exit__(self, *error):
        _core.let_go(self._boxes.pop())


_default = None
_default_lock = threading.Lock()


def default_pool():
    """Returns the process's pool on host memory."""
    global _default
    if _default is None:
        with _default_lock:
            if _default is None:
                _default = Pool(name="default")
    return _default
