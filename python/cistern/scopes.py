"""Arrays for the length of a call, in nests of any shape."""

import operator
from dataclasses import dataclass

import numpy as np

from . import _core
from .errors import InvalidArgument
from .pool import Pool

_ALIGNMENT = 64


@dataclass(frozen=True)
class Shape:
    """The shape and dtype of an array to be lent; what shape() returns."""

    extents: tuple
    dtype: object = None


def shape(*extents, dtype=None):
    """Describes an array: `shape(ny, nx, dtype="f4")`. An extent may be a range(lo, hi); then the
    array is a Ranged, indexed from lo."""
    return Shape(extents, dtype)


class Ranged:
    """An array indexed from the starts of ranges: with shape(range(-1, 5)), a[-1] is the first.

    `array` is the plain array under it, `starts` the first index of each dimension. Slices are in
    the same indices; what they give is a plain array.
    """

    __slots__ = ("array", "starts")

    def __init__(self, array, starts):
        self.array = array
        self.starts = tuple(starts)

    def _plain(self, index):
        index = index if isinstance(index, tuple) else (index,)
        if len(index) > len(self.starts):
            raise IndexError(f"too many indices for {len(self.starts)} dimensions: {index!r}")
        return tuple(self._along(axis, one) for axis, one in enumerate(index))

    def _along(self, axis, index):
        start, extent = self.starts[axis], self.array.shape[axis]
        if isinstance(index, slice):
            if index.step is not None and index.step <= 0:
                raise IndexError(f"a slice of a Ranged goes forward: {index!r}")
            ends = [
                otherwise if end is None else min(max(operator.index(end) - start, 0), extent)
                for end, otherwise in ((index.start, 0), (index.stop, extent))
            ]
            return slice(*ends, index.step)
        number = operator.index(index)
        if not start <= number < start + extent:
            raise IndexError(f"index {number} is outside range({start}, {start + extent})")
        return number - start

    def __getitem__(self, index):
        return self.array[self._plain(index)]

    def __setitem__(self, index, value):
        self.array[self._plain(index)] = value

    def __len__(self):
        return len(self.array)

    def __array__(self, dtype=None, copy=None):
        return (
            np.array(self.array, dtype=dtype, copy=True) if copy else np.asarray(self.array, dtype)
        )

    @property
    def shape(self):
        return self.array.shape

    @property
    def dtype(self):
        return self.array.dtype

    def fill(self, value):
        self.array.fill(value)

    def __repr__(self):
        ranges = ", ".join(f"range({s}, {s + n})" for s, n in zip(self.starts, self.array.shape))
        return f"<cistern.Ranged ({ranges}) of {self.array.dtype}>"


def _is_extent(value):
    return isinstance(value, range) or (
        hasattr(value, "__index__") and not isinstance(value, np.ndarray)
    )


def _read(spec, dtype):
    """Returns a Shape, or a list, tuple or dict of what this returns."""
    if isinstance(spec, Shape):
        return spec if spec.dtype is not None else Shape(spec.extents, dtype)
    if _is_extent(spec):
        return Shape((spec,), dtype)
    if isinstance(spec, dict):
        return {key: _read(item, dtype) for key, item in spec.items()}
    if isinstance(spec, tuple):
        if all(_is_extent(item) for item in spec):
            return Shape(spec, dtype)
        if len(spec) == 2 and _names_dtype(spec[1]):
            return _with_dtype(_read(spec[0], None), spec[1], spec)
        return tuple(_read(item, dtype) for item in spec)
    if isinstance(spec, list):
        return [_read(item, dtype) for item in spec]
    raise TypeError(
        f"a spec is a shape, a pair of shape and dtype, or a nest of them, not "
        f"{type(spec).__name__!r}: {spec!r}"
    )


def _names_dtype(value):
    return isinstance(value, (str, type, np.dtype)) or (
        isinstance(value, list)
        and bool(value)
        and isinstance(value[0], tuple)
        and bool(value[0])
        and isinstance(value[0][0], str)
    )


def _with_dtype(read, dtype, spec):
    if not isinstance(read, Shape):
        raise TypeError(f"a dtype belongs to one shape: {spec!r}")
    return Shape(read.extents, dtype)


def _like(value):
    """Returns the spec of arrays like the ones in a nest."""
    if isinstance(value, dict):
        return {key: _like(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_like, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(_like, value))
    if isinstance(value, Ranged):
        extents = tuple(range(s, s + n) for s, n in zip(value.starts, value.shape))
        return Shape(extents, value.dtype)
    array = np.asanyarray(value)
    return Shape(array.shape, array.dtype)


def _plain(spec):
    """Returns the shape without ranges, and where its indices start if it had any."""
    if not any(isinstance(extent, range) for extent in spec.extents):
        return spec.extents, None
    for extent in spec.extents:
        if isinstance(extent, range) and extent.step != 1:
            raise InvalidArgument(f"an index range goes in steps of 1: {extent!r}")
    starts = [e.start if isinstance(e, range) else 0 for e in spec.extents]
    return tuple(len(e) if isinstance(e, range) else e for e in spec.extents), starts


def _ranged(array, starts):
    return array if starts is None else Ranged(array, starts)


def _leaves(spec):
    if isinstance(spec, Shape):
        yield spec
    else:
        for item in spec.values() if isinstance(spec, dict) else spec:
            yield from _leaves(item)


def _rebuild(spec, arrays):
    if isinstance(spec, Shape):
        return next(arrays)
    if isinstance(spec, dict):
        return {key: _rebuild(item, arrays) for key, item in spec.items()}
    items = [_rebuild(item, arrays) for item in spec]
    return type(spec)(*items) if hasattr(spec, "_fields") else type(spec)(items)


def _lend(pool, spec):
    if isinstance(spec, Shape):
        extents, starts = _plain(spec)
        return _ranged(pool.empty(extents, spec.dtype), starts)
    # A nest is one block, packed, each array at a multiple of 64 bytes.
    parts = []
    total = 0
    for leaf in _leaves(spec):
        extents, starts = _plain(leaf)
        dtype = pool.empty(0, leaf.dtype).dtype
        parts.append((extents, starts, dtype, total))
        total += -(-_core.nbytes(extents, dtype) // _ALIGNMENT) * _ALIGNMENT
    block = pool.empty(total, np.uint8)
    arrays = (_ranged(_core.view(block, e, d, offset), s) for e, s, d, offset in parts)
    return _rebuild(spec, arrays)


def lend_specs(pool, specs, dtype=None):
    read = [_read(spec, dtype) for spec in specs]
    return tuple([_lend(pool, spec) for spec in read])


def _check(function, pool):
    if not callable(function):
        raise TypeError(f"the first argument is a function, not {function!r}")
    if not isinstance(pool, Pool):
        raise TypeError(f"the second argument is a cistern.Pool, not {pool!r}")


def with_arrays(function, pool, *specs, dtype=None):
    """Calls a function with arrays that are lent for the call, and returns its result.

    Each spec is what Pool.arrays() takes: with_arrays(f, pool, (ny, nx), [(n, "f4"), (n, "f4")]).
    Everything is given back also when the function raises, except what it keeps on purpose.
    """
    _check(function, pool)
    return function(*lend_specs(pool, specs, dtype))


def with_arrays_like(function, pool, *arrays):
    """The same, with arrays of the shapes and dtypes of the given ones, nests included."""
    _check(function, pool)
    return function(*[_lend(pool, _like(array)) for array in arrays])
