"""pydotcompute.core.memory_pool: the MemoryPool that exists once, and the functions around it."""

from ....unified import MemoryPool as _MemoryPool
from ....unified import PoolStatistics, _configure
from .unified_buffer import UnifiedBuffer

__all__ = ["MemoryPool", "PoolStatistics", "configure_memory_pool", "get_memory_pool"]


class MemoryPool(_MemoryPool):
    """The process's pool: every call returns the same object, until `_instance` is set to None."""

    _instance = None
    _initialized = False
    _buffer_class = UnifiedBuffer

    def __new__(cls, *args, **kwargs):
        if cls._instance is None:
            cls._instance = super().__new__(cls)
            cls._instance._initialized = False
        return cls._instance

    def __init__(self, initial_size_mb=0, max_size_mb=None, **kwargs):
        if self._initialized:
            return
        super().__init__(**kwargs)
        self._initial_size_mb = initial_size_mb
        if max_size_mb is not None:
            self.set_limit(max_size_mb)
        self._initialized = True

    def __reduce__(self):
        return get_memory_pool, ()


def get_memory_pool():
    """Returns the process's pool."""
    return MemoryPool()


def configure_memory_pool(initial_size_mb=0, max_size_mb=None, enable=True):
    """Sets the limit of the process's pool and enables it. Returns it."""
    return _configure(MemoryPool(initial_size_mb), max_size_mb, enable)
