"""pydotcompute's MemoryPool and UnifiedBuffer on Cistern."""

from .core.memory_pool import MemoryPool, PoolStatistics, configure_memory_pool, get_memory_pool
from .core.unified_buffer import BufferState, UnifiedBuffer

__all__ = [
    "BufferState",
    "MemoryPool",
    "PoolStatistics",
    "UnifiedBuffer",
    "configure_memory_pool",
    "get_memory_pool",
]
