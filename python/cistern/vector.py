"""A vector that grows through its pool."""

import operator

import numpy as np

from . import _core


class Vector:
    """Elements in one contiguous piece of pooled memory, with room for more.

    Growing keeps the pages while nobody holds a view; a view that is held stays as it was.
    """

    __slots__ = ("_pool", "_dtype", "_box", "_size", "_items")

    def __init__(self, pool, capacity=0, dtype=None):
        self._pool = pool
        self._dtype = pool.empty(0, dtype).dtype  # refuses what the pool refuses
        self._box = [pool.empty(self._bytes(capacity), np.uint8)]
        self._size = 0
        self._items = None

    @property
    def dtype(self):
        return self._dtype

    @property
    def capacity(self):
        """How many elements there is room for."""
        return self._box[0].nbytes // self._dtype.itemsize

    def __len__(self):
        return self._size

    def _all(self):
        if self._items is None:
            self._items = _core.view(self._box[0], self.capacity, self._dtype)
        return self._items

    def _bytes(self, capacity):
        try:
            return _core.nbytes(operator.index(capacity), self._dtype)
        except TypeError:
            raise TypeError(f"capacity is an integer, not {capacity!r}") from None

    def reserve(self, capacity):
        """Makes room for at least so many elements."""
        nbytes = self._bytes(capacity)
        if capacity <= self.capacity:
            return
        self._items = None
        if self._box[0].nbytes and _core.grow(self._box, nbytes):
            return
        larger = self._pool.empty(nbytes, np.uint8)
        used = self._size * self._dtype.itemsize
        larger[:used] = self._box[0][:used]
        self._box = [larger]

    def _make_room(self, more):
        if self._size + more > self.capacity:
            self.reserve(max(self._size + more, self.capacity + self.capacity // 2, 8))

    def append(self, value):
        """Adds one element."""
        self._make_room(1)
        self._all()[self._size] = value
        self._size += 1

    def extend(self, values):
        """Adds all elements of an array or sequence."""
        values = np.asarray(values, dtype=self._dtype).reshape(-1)
        self._make_room(values.size)
        self._all()[self._size : self._size + values.size] = values
        self._size += values.size

    def clear(self):
        """Forgets the elements; the room stays."""
        self._size = 0

    def view(self):
        """Returns the elements as an array; it stays valid, not current, when the vector grows."""
        return self._all()[: self._size]

    def __array__(self, dtype=None, copy=None):
        view = self.view()
        if dtype is not None and np.dtype(dtype) != view.dtype:
            if copy is False:
                raise ValueError(f"cannot convert {view.dtype} to {dtype} without a copy")
            return view.astype(dtype)
        return view.copy() if copy else view

    def __getitem__(self, index):
        return self.view()[index]

    def __setitem__(self, index, value):
        self.view()[index] = value

    def __iter__(self):
        return iter(self.view())

    def __repr__(self):
        return f"<cistern.Vector of {self._size} x {self._dtype}, capacity {self.capacity}>"
