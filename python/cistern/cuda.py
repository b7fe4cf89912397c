"""CUDA memory: arrays on a device, and what the pools behind PyTorch, CuPy and Numba hold.

    import cistern.cuda

    x = cistern.cuda.empty((1024, 1024), "float32")     # any library that knows DLPack or the
    t = torch.from_dlpack(x)                            # __cuda_array_interface__ can use it

One pool per device serves the whole process; its bytes return when the last array that uses them is gone.

Another process can use the same bytes:

    queue.put(cistern.cuda.share(x))                    # of multiprocessing, started by "spawn"
    x = cistern.cuda.open(queue.get())                  # in the other process
"""

from __future__ import annotations

import json
import math
import os
from multiprocessing import reduction
from typing import Any, Iterable, SupportsIndex

import numpy
from numpy.typing import DTypeLike

from . import _core
from .errors import InvalidArgument, Unavailable
from .pool import _count, _extents, _limits_for_core

__all__ = ["available", "empty", "DeviceArray", "share", "open", "SharedArray", "stats", "explain", "trim",
           "set_limits"]

_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}  # of DLPack


def _device(value: SupportsIndex) -> int:
    number: int = _count("device", value)
    if number > 2**31 - 1:
        raise InvalidArgument(f"device is out of range: {number}")
    return number


def _memory(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"memory is text, not {type(name).__name__!r}: {name!r}")
    return name


def available() -> bool:
    """Whether there is a CUDA driver with a device."""
    return _core.cuda_available()


class DeviceArray:
    """Bytes on a device with a shape and a dtype: no arithmetic, for other libraries to use in place."""

    __slots__ = ("_loan", "shape", "dtype", "stream", "__weakref__")

    def __init__(self, loan: _core.Loan | _core.Opened, shape: tuple[int, ...], dtype: numpy.dtype[Any],
                 stream: int) -> None:
        self._loan = loan
        self.shape = shape
        self.dtype = dtype
        self.stream = stream

    @property
    def ptr(self) -> int:
        """The address on the device."""
        return self._loan.ptr

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def device(self) -> int:
        return self._loan.device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.ptr, False),
                "version": 3, "strides": None, "stream": self.stream or 1}

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.device)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
                   copy: bool | None = None) -> Any:
        code = _CODES.get(self.dtype.kind)
        if code is None or not self.dtype.isnative:
            raise BufferError(f"DLPack has no such dtype: {self.dtype.str}")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"these bytes are on device {self.__dlpack_device__()}, not on {tuple(dl_device)}")
        if copy:
            raise BufferError("an array of cistern.cuda is not copied: copy what you take from it")
        # `stream` is of the one who takes it; -1: it wants no order
        same = stream == self.stream != 2 or (stream, self.stream) == (1, 0)  # 2: each thread has its own
        if stream not in (None, -1) and not same:
            self._loan.hand_to(_count("stream", stream))
        array = _core.as_dlpack(self._loan, list(self.shape), code, 8 * self.dtype.itemsize)
        if not hasattr(array, "__dlpack__"):  # some versions of nanobind hand out the capsule itself
            return array
        return array.__dlpack__() if max_version is None else array.__dlpack__(max_version=max_version)

    def also_used_on(self, stream: SupportsIndex) -> None:
        """Say that work on another stream uses these bytes too: they are lent again only after it."""
        self._loan.also_used_on(_count("stream", stream))

    def __copy__(self) -> DeviceArray:
        return DeviceArray(self._loan, self.shape, self.dtype, self.stream)

    def __reduce__(self) -> Any:
        raise TypeError("a device array cannot be pickled: send cistern.cuda.share(array) to another process")

    def __repr__(self) -> str:
        return f"cistern.cuda.DeviceArray(shape={self.shape}, dtype={self.dtype}, device={self.device})"


def empty(shape: SupportsIndex | Iterable[SupportsIndex], dtype: DTypeLike = "float64", *,
          device: SupportsIndex = 0, stream: SupportsIndex = 0) -> DeviceArray:
    """An array on a device, with whatever the last user left in it.

    `stream` is a CUDA stream's handle as a number (0: the default stream); the bytes may be given back
    while work on that stream still uses them.
    """
    kind = numpy.dtype(dtype)
    if kind.hasobject:
        raise TypeError(f"a device cannot hold Python objects: {kind}")
    nbytes = _core.nbytes(shape, kind)
    handle = _count("stream", stream)
    loan = _core.lend("device", _device(device), max(nbytes, 1), handle)
    return DeviceArray(loan, _extents(shape), kind, handle)


class SharedArray:
    """An array's bytes on their way to another process. Pickle it there with multiprocessing: as an argument
    of a process, or through a queue or a pipe. Each pickle is for one process, and the one that shares has to
    live until it has arrived."""

    __slots__ = ("_shared", "_array", "shape", "dtype")

    def __init__(self, shared: _core.Shared, shape: tuple[int, ...], dtype: numpy.dtype[Any],
                 array: DeviceArray | None = None) -> None:
        self._shared = shared
        self._array = array  # stays lent
        self.shape = shape
        self.dtype = dtype

    def __reduce__(self) -> tuple[Any, ...]:
        shared = self._shared
        parts = [(reduction.DupFd(file), nbytes) for file, nbytes in shared.parts]
        return _arrive, (parts, shared.offset, shared.nbytes, shared.uuid, self.shape, self.dtype)

    def __repr__(self) -> str:
        return f"cistern.cuda.SharedArray(shape={self.shape}, dtype={self.dtype})"


def _arrive(parts: Any, offset: int, nbytes: int, uuid: bytes, shape: tuple[int, ...],
            dtype: numpy.dtype[Any]) -> SharedArray:
    files: list[int] = []
    try:
        for file, _ in parts:
            files.append(file.detach())
    except BaseException:
        for file in files:
            os.close(file)
        raise
    sizes = [size for _, size in parts]
    return SharedArray(_core.Shared(list(zip(files, sizes)), offset, nbytes, uuid), shape, dtype)


def share(array: DeviceArray) -> SharedArray:
    """The bytes of an array, for another process to open().

    Keep the array, or what this returns, while others use the bytes: afterwards they are lent again. Streams
    of two processes are not ordered: synchronise before you send it.
    """
    if not isinstance(array, DeviceArray) or not isinstance(array._loan, _core.Loan):
        raise TypeError(f"only what cistern.cuda.empty() made can be shared: {array!r}")
    return SharedArray(array._loan.share(), array.shape, array.dtype, array)


def open(shared: SharedArray, *, stream: SupportsIndex = 0) -> DeviceArray:
    """The array that another process shared: the same bytes, which stay valid whatever becomes of it.

    They are unmapped with the last array that uses them, once the device's work is done.
    """
    if not isinstance(shared, SharedArray):
        raise TypeError(f"only what cistern.cuda.share() made can be opened: {shared!r}")
    handle = _count("stream", stream)
    return DeviceArray(_core.Opened(shared._shared), shared.shape, shared.dtype, handle)


def stats(device: SupportsIndex = 0, memory: str = "device") -> dict[str, Any]:
    """What the process's pool counts: the names of `cistern.Pool.stats()`, as a dict."""
    counted: dict[str, Any] = json.loads(_core.default_stats_json(_memory(memory), _device(device)))
    return counted


def explain(device: SupportsIndex = 0, memory: str = "device") -> str:
    """What the process's pool holds, and why, as a text."""
    return _core.default_explain(_memory(memory), _device(device))


def trim(device: SupportsIndex = 0, memory: str = "device", keep_idle_bytes: SupportsIndex = 0) -> int:
    """Gives idle bytes back to the driver. Returns how many."""
    keep = _count("keep_idle_bytes", keep_idle_bytes)
    return _core.default_trim(_memory(memory), _device(device), keep)


def set_limits(device: SupportsIndex = 0, memory: str = "device", *, max_bytes: int | float | None = None,
               max_idle_bytes: int | float | None = None, max_idle_buffers: int | float | None = None,
               max_buffer_bytes: int | float | None = None, max_idle_age: float | None = None) -> None:
    """Changes those limits of the process's pool that are given, at once: evicts what is above.

    The names of `cistern.Pool`: `set_limits(max_bytes=20 << 30)` caps what PyTorch, CuPy and Numba get here.
    """
    limits = {"max_bytes": max_bytes, "max_idle_bytes": max_idle_bytes, "max_idle_buffers": max_idle_buffers,
              "max_buffer_bytes": max_buffer_bytes, "max_idle_age": max_idle_age}
    _core.default_set_limits(_memory(memory), _device(device), **_limits_for_core(limits))


def _require() -> None:
    if not available():
        _core.lend("device", 0, 1)  # raises Unavailable, saying why
        raise Unavailable("there is no CUDA device")
