"""PyTorch on Cistern: every CUDA tensor from the process's pool.

    import cistern.torch
    cistern.torch.enable()          # before the first CUDA tensor

What PyTorch caches no longer, Cistern keeps: `cistern.torch.stats()` shows it, `torch.cuda.memory_reserved()`
and its kin do not know. `mem_pool()` serves only what is allocated under `torch.cuda.use_mem_pool`.
"""

from __future__ import annotations

from typing import Any

import torch  # type: ignore

from . import _core, cuda
from .cuda import explain, set_limits, stats, trim

__all__ = ["allocator", "enable", "mem_pool", "stats", "explain", "trim", "set_limits"]

_allocator: Any = None


def allocator() -> Any:
    """The `torch.cuda.memory.CUDAPluggableAllocator` that lends from Cistern."""
    global _allocator
    cuda._require()
    if _allocator is None:
        made = torch.cuda.memory.CUDAPluggableAllocator(
            _core.__file__, "cistern_torch_malloc", "cistern_torch_free")
        # A tensor that another stream uses (Tensor.record_stream) is lent again only after it.
        made.allocator().set_record_stream_fn(_core.torch_record_stream())
        _allocator = made
    return _allocator


def enable() -> None:
    """Has PyTorch allocate all CUDA memory from Cistern. Call it before the first CUDA tensor."""
    torch.cuda.memory.change_current_allocator(allocator())


def mem_pool() -> Any:
    """A `torch.cuda.MemPool` for `torch.cuda.use_mem_pool`: PyTorch's cache, on Cistern's bytes."""
    return torch.cuda.MemPool(allocator().allocator())
