"""The rules that say which idle bytes may serve a request."""

from dataclasses import dataclass

from .errors import InvalidArgument


@dataclass(frozen=True)
class Elastic:
    """Split and coalesce: the default."""


@dataclass(frozen=True)
class ExactFit:
    """Only a block of exactly these bytes."""


@dataclass(frozen=True)
class BestFit:
    """The smallest idle block that leaves at most this share of itself unused; 1 means any."""

    max_waste: float = 0.25


@dataclass(frozen=True)
class FixedBlock:
    """Every block has this size; a larger request is an error."""

    bytes: int


_FITS = (Elastic, ExactFit, BestFit, FixedBlock)


def read_fit(fit):
    """Returns one of the classes above, from one of them or from its name as in "best:0.1"."""
    if isinstance(fit, _FITS):
        return fit
    if not isinstance(fit, str):
        raise TypeError(f"fit is a name or a fit, not {type(fit).__name__!r}: {fit!r}")
    name, _, value = fit.partition(":")
    try:
        if name == "elastic" and not value:
            return Elastic()
        if name == "exact" and not value:
            return ExactFit()
        if name == "best":
            return BestFit(float(value)) if value else BestFit()
        if name == "fixed" and value:
            return FixedBlock(int(value))
    except ValueError:
        pass
    raise InvalidArgument(
        f"fit is 'elastic', 'exact', 'best', 'best:SHARE' or 'fixed:BYTES', not {fit!r}"
    )
