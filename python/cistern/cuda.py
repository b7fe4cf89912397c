"""CUDA memory: arrays on a device, and what the pools behind PyTorch, CuPy and Numba hold.

    import cistern.cuda

    x = cistern.cuda.empty((1024, 1024), "float32")     # any library that knows DLPack or the
    t = torch.from_dlpack(x)                            # __cuda_array_interface__ can use it

One pool per device serves the whole process; its bytes return when the last array that uses them is gone.

Another process can use the same bytes:

    queue.put(cistern.cuda.share(x))                    # of multiprocessing, started by "spawn"
    x = cistern.cuda.open(queue.get())                  # in the other process
"""

import json
import math
import os
from multiprocessing import reduction

import numpy

from . import _core
from .errors import Unavailable

__all__ = ["available", "empty", "DeviceArray", "share", "open", "SharedArray", "stats", "explain", "trim"]

_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}  # of DLPack


def available():
    """Whether there is a CUDA driver with a device."""
    return _core.cuda_available()


class DeviceArray:
    """Bytes on a device with a shape and a dtype: no arithmetic, for other libraries to use in place."""

    __slots__ = ("_loan", "shape", "dtype", "stream", "__weakref__")

    def __init__(self, loan, shape, dtype, stream):
        self._loan = loan
        self.shape = shape
        self.dtype = dtype
        self.stream = stream

    @property
    def ptr(self):
        """The address on the device."""
        return self._loan.ptr

    @property
    def nbytes(self):
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def device(self):
        return self._loan.device

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.ptr, False),
                "version": 3, "strides": None, "stream": self.stream or 1}

    def __dlpack_device__(self):
        return (2, self.device)

    def __dlpack__(self, **options):
        code = _CODES.get(self.dtype.kind)
        if code is None:
            raise BufferError(f"DLPack has no such dtype: {self.dtype}")
        array = _core.as_dlpack(self._loan, list(self.shape), code, 8 * self.dtype.itemsize)
        # Some versions of nanobind hand out the capsule itself.
        return array.__dlpack__(**options) if hasattr(array, "__dlpack__") else array

    def also_used_on(self, stream):
        """Say that work on another stream uses these bytes too: they are lent again only after it."""
        self._loan.also_used_on(stream)

    def __repr__(self):
        return f"cistern.cuda.DeviceArray(shape={self.shape}, dtype={self.dtype}, device={self.device})"


def empty(shape, dtype="float64", *, device=0, stream=0):
    """An array on a device, with whatever the last user left in it.

    `stream` is a CUDA stream's handle as a number (0: the default stream); the bytes may be given back
    while work on that stream still uses them.
    """
    dtype = numpy.dtype(dtype)
    if dtype.hasobject:
        raise TypeError(f"a device cannot hold Python objects: {dtype}")
    shape = tuple(int(n) for n in (shape if hasattr(shape, "__iter__") else (shape,)))
    if any(n < 0 for n in shape):
        raise ValueError(f"an extent is negative: {shape}")
    nbytes = math.prod(shape) * dtype.itemsize
    return DeviceArray(_core.lend("device", device, max(nbytes, 1), stream), shape, dtype, stream)


class SharedArray:
    """An array's bytes on their way to another process. Pickle it there with multiprocessing: as an argument
    of a process, or through a queue or a pipe. Each pickle is for one process, and the one that shares has to
    live until it has arrived."""

    __slots__ = ("_shared", "_array", "shape", "dtype")

    def __init__(self, shared, shape, dtype, array=None):
        self._shared = shared
        self._array = array  # stays lent
        self.shape = shape
        self.dtype = dtype

    def __reduce__(self):
        shared = self._shared
        parts = [(reduction.DupFd(file), nbytes) for file, nbytes in shared.parts]
        return _arrive, (parts, shared.offset, shared.nbytes, shared.uuid, self.shape, self.dtype)

    def __repr__(self):
        return f"cistern.cuda.SharedArray(shape={self.shape}, dtype={self.dtype})"


def _arrive(parts, offset, nbytes, uuid, shape, dtype):
    files = []
    try:
        for file, _ in parts:
            files.append(file.detach())
    except BaseException:
        for file in files:
            os.close(file)
        raise
    sizes = [size for _, size in parts]
    return SharedArray(_core.Shared(list(zip(files, sizes)), offset, nbytes, uuid), shape, dtype)


def share(array):
    """The bytes of an array, for another process to open().

    Keep the array, or what this returns, while others use the bytes: afterwards they are lent again. Streams
    of two processes are not ordered: synchronise before you send it.
    """
    if not isinstance(array, DeviceArray) or not isinstance(array._loan, _core.Loan):
        raise TypeError(f"only what cistern.cuda.empty() made can be shared: {array!r}")
    return SharedArray(array._loan.share(), array.shape, array.dtype, array)


def open(shared, *, stream=0):
    """The array that another process shared: the same bytes, which stay valid whatever becomes of it.

    They are unmapped with the last array that uses them, once the device's work is done.
    """
    if not isinstance(shared, SharedArray):
        raise TypeError(f"only what cistern.cuda.share() made can be opened: {shared!r}")
    return DeviceArray(_core.Opened(shared._shared), shared.shape, shared.dtype, stream)


def stats(device=0, memory="device"):
    """What the process's pool counts: the names of `cistern.Pool.stats()`, as a dict."""
    return json.loads(_core.default_stats_json(memory, device))


def explain(device=0, memory="device"):
    """What the process's pool holds, and why, as a text."""
    return _core.default_explain(memory, device)


def trim(device=0, memory="device", keep_idle_bytes=0):
    """Gives idle bytes back to the driver. Returns how many."""
    return _core.default_trim(memory, device, keep_idle_bytes)


def _require():
    if not available():
        _core.lend("device", 0, 1)  # raises Unavailable, saying why
        raise Unavailable("there is no CUDA device")
