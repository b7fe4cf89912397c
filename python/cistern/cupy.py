"""CuPy on Cistern: every CuPy array from the process's pool, and with `pinned=True` its page-locked memory too.

    import cistern.cupy
    cistern.cupy.enable()

    with cistern.cupy.using():      # or for a part of a program
        x = cupy.zeros((1024, 1024))
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator

import cupy  # type: ignore

from . import _core, cuda
from .cuda import explain, set_limits, stats, trim

__all__ = ["malloc", "malloc_pinned", "enable", "disable", "using", "stats", "explain", "trim", "set_limits"]

_lend = _core.lend

# An allocator for `cupy.cuda.set_allocator`, in the order of CuPy's current stream.
malloc: Callable[[int], Any] = _core.cupy_malloc
_core.cupy_uses(cupy.cuda.UnownedMemory, cupy.cuda.MemoryPointer, cupy.cuda.runtime.getDevice,
                cupy.cuda.get_current_stream)


class _PinnedMemory(cupy.cuda.PinnedMemory):
    """Page-locked bytes that return to the pool with the object."""

    def __init__(self, nbytes: int) -> None:
        # Not the base's __init__, which would allocate.
        self._loan: _core.Loan | None = _lend("pinned", 0, nbytes or 1)
        self.ptr = self._loan.ptr
        self.size = nbytes

    def __del__(self) -> None:
        self._loan = None


def malloc_pinned(nbytes: int) -> Any:
    """An allocator for `cupy.cuda.set_pinned_memory_allocator`.

    CuPy says nothing of the streams that copy from it, so these bytes are lent again at once; where copies
    may still run, keep CuPy's own.
    """
    return cupy.cuda.PinnedMemoryPointer(_PinnedMemory(nbytes), 0)


def enable(pinned: bool = False) -> None:
    """Has CuPy allocate from Cistern; `pinned` its page-locked memory too."""
    cuda._require()
    cupy.cuda.set_allocator(malloc)
    if pinned:
        cupy.cuda.set_pinned_memory_allocator(malloc_pinned)


def disable() -> None:
    """Has CuPy allocate from its own default pools again."""
    cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
    cupy.cuda.set_pinned_memory_allocator(cupy.get_default_pinned_memory_pool().malloc)


@contextlib.contextmanager
def using() -> Iterator[None]:
    """Has CuPy allocate from Cistern in this block, on this thread. Arrays may outlive it."""
    cuda._require()
    with cupy.cuda.using_allocator(malloc):
        yield
