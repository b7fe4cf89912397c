"""Buffers with a host and a device side, kept by exact shape and dtype.

Without a CUDA device the device side is the host side, and the states say so.
"""

import enum
import threading
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from . import _core
from .errors import BufferNotAllocatedError, InvalidArgument
from .locks import give_lock
from .pool import FOREVER, NO_LIMIT, Pool, _extents

_GIBIBYTE = 1024**3
_MEBIBYTE = 1024**2

_said_pinned = False


def cuda_available():
    """Returns whether there is a CUDA driver with a device."""
    return _core.cuda_available()


def _say_pinned_once():
    global _said_pinned
    if not _said_pinned:
        _said_pinned = True
        warnings.warn(
            "there is no page-locked memory here: pinned buffers are in ordinary memory",
            RuntimeWarning,
            stacklevel=4,
        )


class BufferState(enum.Enum):
    """Which side of a unified buffer is current."""

    UNINITIALIZED = 1
    HOST_ONLY = 2
    DEVICE_ONLY = 3
    SYNCHRONIZED = 4
    HOST_DIRTY = 5
    DEVICE_DIRTY = 6


_unified_pools: dict[str, Pool] = {}
_unified_lock = threading.Lock()


def _buffers(memory="host"):
    """Returns the pool that buffers without a pool of their own have their bytes from."""
    with _unified_lock:
        if memory not in _unified_pools:
            _unified_pools[memory] = Pool(memory, name="unified" if memory == "host" else f"unified {memory}")
        return _unified_pools[memory]


def _on_device(shape, dtype):
    """Lends an array on the first device. Returns its bytes, and the array as programs want it."""
    from .cuda import empty

    lent = empty(shape, dtype)
    try:
        import cupy  # type: ignore
    except ImportError:
        return lent, lent
    return lent, cupy.asarray(lent)


def _check_broadcast(source, target):
    try:
        fits = np.broadcast_shapes(source, target) == tuple(target)
    except ValueError:
        fits = False
    if not fits:
        raise InvalidArgument(f"cannot copy shape {source} into shape {target}")


_T = TypeVar("_T")


class UnifiedBuffer(Generic[_T]):
    """An array with a host and a device side, each synchronised when read if the other is newer.

    `host` gives the array; writing through it alone does not mark the host side newer: index the
    buffer, use host_writable(), or call mark_host_dirty(). `device` gives a CuPy array if CuPy is
    installed, else a cistern.cuda.DeviceArray; call mark_device_dirty() when kernels wrote to it.
    Copies between the sides run on the default stream, and are done when the call returns.
    """

    _not_allocated: type[Exception] = BufferNotAllocatedError

    def __init__(self, shape, dtype=np.float32, *, pinned=False, _pool=None):
        nbytes = _core.nbytes(shape, dtype)
        self._shape = _extents(shape)
        self._dtype = np.dtype(dtype)
        self._nbytes = nbytes
        self._pinned = bool(pinned)
        self._cuda_available = cuda_available() and not self._dtype.hasobject
        self._bytes_from = _pool
        self._host_data = None
        self._device_data = None
        self._device_bytes = None
        self._state = BufferState.UNINITIALIZED
        self._lender = None  # the MemoryPool that lends it now
        if self._pinned and not self._cuda_available:
            _say_pinned_once()

    @property
    def shape(self):
        return self._shape

    @property
    def dtype(self):
        return self._dtype

    @property
    def size(self):
        """The number of elements."""
        size = 1
        for extent in self._shape:
            size *= extent
        return size

    @property
    def nbytes(self):
        return self._nbytes

    @property
    def ndim(self):
        return len(self._shape)

    @property
    def pinned(self):
        return self._pinned

    @property
    def state(self):
        return self._state

    @property
    def is_allocated(self):
        return self._state is not BufferState.UNINITIALIZED

    def _need(self):
        if not self.is_allocated:
            raise self._not_allocated(
                f"Buffer has not been allocated. Call allocate() first: {self!r}"
            )

    def _current(self):
        return BufferState.SYNCHRONIZED if self._cuda_available else BufferState.HOST_ONLY

    def _have_host(self):
        if self._host_data is None:
            if self._pinned and self._cuda_available:
                pool = _buffers("pinned")
            else:
                pool = _buffers() if self._bytes_from is None else self._bytes_from
            self._host_data = pool.empty(self._shape, self._dtype)
        return self._host_data

    def _have_device(self):
        if self._device_data is None:
            self._device_bytes, self._device_data = _on_device(self._shape, self._dtype)

    def allocate(self, *, host=True, device=True):
        """Gets the memory of the sides asked for, if there is none yet. Returns the buffer.

        What was written stays; in a new buffer both sides count as current. Without a device there is
        one side, whatever is asked for."""
        if not self._cuda_available:
            self._have_host()
            self._state = BufferState.HOST_ONLY
            return self
        if self.is_allocated:
            if device and self._device_data is None:
                self.sync_to_device()
            if host and self._host_data is None:
                self.sync_to_host()
            return self
        host = host or not device
        try:
            if host:
                self._have_host()
            if device:
                self._have_device()
        except BaseException:
            self.free()
            raise
        if host and device:
            self._state = BufferState.SYNCHRONIZED
        else:
            self._state = BufferState.HOST_ONLY if host else BufferState.DEVICE_ONLY
        return self

    def free(self):
        """Gives the memory back; arrays handed out stay valid for as long as they live."""
        self._host_data = self._device_data = self._device_bytes = None
        self._state = BufferState.UNINITIALIZED

    def zeros(self):
        """Sets every element to zero, allocating if needed. Returns the buffer."""
        return self.fill(0)

    def fill(self, value):
        """Sets every element, allocating if needed. Returns the buffer."""
        if not self.is_allocated:
            self.allocate()
        self._have_host().fill(value)
        self.mark_host_dirty()
        return self

    @property
    def host(self):
        """The host side, current."""
        self._need()
        if self._state in (BufferState.DEVICE_DIRTY, BufferState.DEVICE_ONLY):
            self.sync_to_host()
        return self._host_data

    @property
    def device(self):
        """The device side, current; without CUDA the host side."""
        self._need()
        if self._state is BufferState.HOST_DIRTY or (self._cuda_available and self._device_data is None):
            self.sync_to_device()
        return self._device_data if self._cuda_available else self._host_data

    def host_writable(self):
        """Returns the host side, current, and marks it newer."""
        array = self.host
        self.mark_host_dirty()
        return array

    def mark_host_dirty(self):
        """Says that the host side was written."""
        self._need()
        if self._host_data is None:
            self.sync_to_host()
        self._state = BufferState.HOST_DIRTY

    def mark_device_dirty(self):
        """Says that the device side was written."""
        self._need()
        if self._cuda_available and self._device_data is None:
            self.sync_to_device()
        self._state = BufferState.DEVICE_DIRTY

    def synchronize(self):
        """Makes both sides current; does nothing to a buffer that is not allocated."""
        if self._state is BufferState.HOST_DIRTY:
            self.sync_to_device()
        elif self._state is BufferState.DEVICE_DIRTY:
            self.sync_to_host()

    def sync_to_device(self):
        """Makes the device side current."""
        self._need()
        if self._cuda_available:
            if self._state not in (BufferState.HOST_ONLY, BufferState.HOST_DIRTY):
                return
            self._have_device()
            self._device_bytes._loan.copy_from(self._host_address(), self._nbytes)
        self._state = self._synchronized()

    def sync_to_host(self):
        """Makes the host side current."""
        self._need()
        if self._cuda_available:
            if self._state not in (BufferState.DEVICE_ONLY, BufferState.DEVICE_DIRTY):
                return
            self._have_host()
            self._device_bytes._loan.copy_to(self._host_address(), self._nbytes)
        self._state = self._synchronized()

    def _host_address(self):
        return self._host_data.__array_interface__["data"][0]

    def _synchronized(self):
        return self._current()

    async def ensure_on_device(self):
        """Returns the device side, current."""
        return self.device

    async def ensure_on_host(self):
        """Returns the host side, current."""
        return self.host

    def copy_from(self, source):
        """Copies an array in, allocating if needed; broadcasts and converts as numpy.copyto."""
        array = source.host if isinstance(source, UnifiedBuffer) else np.asarray(source)
        _check_broadcast(array.shape, self._shape)
        if not self.is_allocated:
            self.allocate()
        np.copyto(self._have_host(), array)
        self.mark_host_dirty()

    def copy_to(self, target):
        """Copies the contents into an array or another buffer."""
        array = self.host
        if isinstance(target, UnifiedBuffer):
            target.copy_from(array)
            return
        if not isinstance(target, np.ndarray):
            raise TypeError(f"copy_to() fills an array, not {type(target).__name__!r}")
        _check_broadcast(array.shape, target.shape)
        np.copyto(target, array)

    def to_numpy(self):
        """Returns a copy of the contents."""
        return self.host.copy()

    def __array__(self, dtype=None, copy=None):
        array = self.host if dtype is None else self.host.astype(dtype, copy=False)
        return array.copy() if copy else array

    def __len__(self):
        if not self._shape:
            raise TypeError("len() of a 0-d buffer")
        return self._shape[0]

    def __getitem__(self, index):
        return self.host[index]

    def __setitem__(self, index, value):
        self.host[index] = value
        self.mark_host_dirty()

    def __repr__(self):
        return (
            f"UnifiedBuffer(shape={self._shape}, dtype={self._dtype}, "
            f"state={self._state.name}, cuda={self._cuda_available})"
        )


@dataclass
class PoolStatistics:
    """Bytes lent and held by a memory pool."""

    used_bytes: int
    total_bytes: int
    n_free_blocks: int

    @property
    def free_bytes(self):
        return self.total_bytes - self.used_bytes

    @property
    def utilization(self):
        """The share of the bytes that is lent."""
        return self.used_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def used_mb(self):
        return self.used_bytes / _MEBIBYTE

    @property
    def total_mb(self):
        return self.total_bytes / _MEBIBYTE


class MemoryPool:
    """Keeps unified buffers for reuse by exact shape, dtype and pinned-ness.

    The very same buffer object comes back, its contents not cleared. At most `max_pool_size`
    buffers are kept, the oldest going first; one above `max_buffer_size` bytes never is.
    Thread-safe.
    """

    _buffer_class = UnifiedBuffer

    def __init__(self, max_pool_size=100, max_buffer_size=_GIBIBYTE, *, pool=None):
        for name, value in (("max_pool_size", max_pool_size), ("max_buffer_size", max_buffer_size)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise TypeError(f"{name} is an integer, not {type(value).__name__!r}: {value!r}")
            if value < 0:
                raise InvalidArgument(f"{name} is negative: {value}")
        if pool is not None and not isinstance(pool, Pool):
            raise TypeError(f"pool is a cistern.Pool, not {type(pool).__name__!r}: {pool!r}")
        self._max_pool_size = int(max_pool_size)
        self._max_buffer_size = int(max_buffer_size)
        self._bytes_from = Pool(name="unified") if pool is None else pool
        self._cached = []  # oldest first
        give_lock(self)
        self._enabled = False
        self._initial_size_mb = 0
        self._max_size_mb = None
        self._cuda_available = cuda_available()
        self._total_acquired = self._total_released = 0
        self._cache_hits = self._cache_misses = 0

    def acquire(self, shape, dtype=np.float32, *, pinned=False):
        """Lends an allocated buffer: a kept one of this shape, dtype and pinned-ness, or new."""
        new = self._buffer_class(shape, dtype, pinned=pinned, _pool=self._bytes_from)
        wanted = (new.shape, new.dtype, new.pinned)
        with self._lock:
            for place in range(len(self._cached) - 1, -1, -1):
                kept = self._cached[place]
                if (kept.shape, kept.dtype, kept.pinned) == wanted:
                    del self._cached[place]
                    buffer, hit = kept, True
                    break
            else:
                buffer, hit = new, False
            buffer.allocate()
            buffer.synchronize()
            buffer._state = buffer._current()
            buffer._lender = self
            self._total_acquired += 1
            if hit:
                self._cache_hits += 1
            else:
                self._cache_misses += 1
        return buffer

    def release(self, buffer):
        """Takes a buffer back. One that was released, or that another pool lent, is an error."""
        if not isinstance(buffer, UnifiedBuffer):
            raise TypeError(f"release() takes a UnifiedBuffer, not {type(buffer).__name__!r}")
        with self._lock:
            if buffer._lender is not self:
                why = (
                    "was released already"
                    if buffer._lender is None and any(kept is buffer for kept in self._cached)
                    else "is not lent by this pool"
                )
                raise InvalidArgument(f"the buffer {why}: {buffer!r}")
            buffer._lender = None
            self._total_released += 1
            if buffer.nbytes > self._max_buffer_size or self._max_pool_size == 0:
                buffer.free()
                return
            self._cached.append(buffer)
            while len(self._cached) > self._max_pool_size:
                self._cached.pop(0).free()

    @contextmanager
    def buffer(self, shape, dtype=np.float32, *, pinned=False):
        """Lends a buffer for the length of a block; releases it also when the block raises."""
        lent = self.acquire(shape, dtype, pinned=pinned)
        try:
            yield lent
        finally:
            if lent._lender is self:
                self.release(lent)

    def clear(self):
        """Drops the kept buffers; the counters stay."""
        with self._lock:
            cached, self._cached = self._cached, []
        for buffer in cached:
            buffer.free()

    @property
    def pool_size(self):
        """The number of kept buffers."""
        return len(self._cached)

    @property
    def total_bytes(self):
        """The bytes of the kept buffers."""
        with self._lock:
            return sum(buffer.nbytes for buffer in self._cached)

    def stats(self):
        """Returns {pool_size, total_acquired, total_released, cache_hits, cache_misses}."""
        with self._lock:
            return {
                "pool_size": len(self._cached),
                "total_acquired": self._total_acquired,
                "total_released": self._total_released,
                "cache_hits": self._cache_hits,
                "cache_misses": self._cache_misses,
            }

    # The older surface. Enabling changes nothing: there is always a pool.

    def enable(self):
        self._enabled = True

    def disable(self):
        self._enabled = False

    @property
    def enabled(self):
        return self._enabled

    def get_stats(self):
        """Returns the bytes that the buffers of this pool have."""
        stats = self._bytes_from.stats()
        return PoolStatistics(stats.lent_bytes.now, stats.held_bytes.now, stats.idle_buffers.now)

    def get_pinned_stats(self):
        """Returns the same for page-locked memory, which all such pools share."""
        with _unified_lock:
            pinned = _unified_pools.get("pinned")
        if pinned is None:
            return PoolStatistics(0, 0, 0)
        stats = pinned.stats()
        return PoolStatistics(stats.lent_bytes.now, stats.held_bytes.now, stats.idle_buffers.now)

    def free_all_blocks(self):
        """Drops the kept buffers and gives their memory back to the system."""
        self.clear()
        self._bytes_from.trim()

    def free_all_free(self):
        """The same."""
        self.free_all_blocks()

    def set_limit(self, size_mb=None):
        """Limits the mebibytes of all buffers together; None lifts the limit."""
        if size_mb is None or size_mb == FOREVER:
            self._bytes_from.set_limits(max_bytes=NO_LIMIT)
        else:
            if isinstance(size_mb, bool) or not isinstance(size_mb, (int, float, np.number)):
                raise TypeError(f"size_mb is a number, not {type(size_mb).__name__!r}: {size_mb!r}")
            if not size_mb >= 0:
                raise InvalidArgument(f"size_mb is no size: {size_mb}")
            self._bytes_from.set_limits(max_bytes=int(size_mb * _MEBIBYTE))
        self._max_size_mb = size_mb

    def __reduce__(self):
        return _from_options, (self._max_pool_size, self._max_buffer_size, self._bytes_from)

    def __repr__(self):
        stats = self.get_stats()
        return (
            f"MemoryPool(enabled={self._enabled}, used={stats.used_mb:.2f}MB, "
            f"total={stats.total_mb:.2f}MB, cuda={self._cuda_available})"
        )

    def _repr_html_(self):
        from .stats import _table

        return _table("MemoryPool", [(name, (value,)) for name, value in self.stats().items()])


def _from_options(max_pool_size, max_buffer_size, pool):
    return MemoryPool(max_pool_size, max_buffer_size, pool=pool)


_process_pool = None


def get_memory_pool():
    """Returns the process-wide MemoryPool."""
    global _process_pool
    with _unified_lock:
        if _process_pool is None:
            _process_pool = MemoryPool()
        return _process_pool


def configure_memory_pool(initial_size_mb=0, max_size_mb=None, enable=True):
    """Sets the limit of the process-wide MemoryPool and enables it. Returns it."""
    return _configure(get_memory_pool(), max_size_mb, enable)


def _configure(pool, max_size_mb, enable):
    if max_size_mb is not None:
        pool.set_limit(max_size_mb)
    if enable:
        pool.enable()
    return pool
