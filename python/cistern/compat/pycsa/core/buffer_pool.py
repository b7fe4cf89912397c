"""pycsa.core.buffer_pool: BufferPool, a KeyedPool with the attributes that pycsa's has."""

from ....keyed import KeyedPool

__all__ = ["BufferPool"]


class BufferPool(KeyedPool):
    """One growing buffer per key. Each thread has its own, as pycsa promises nothing across threads."""

    def __init__(self, pool=None, *, same_key="own_buffer"):
        super().__init__(pool, same_key=same_key)

    @property
    def stats(self):
        """{key: {"hits", "misses", "grows"}}."""
        return self._stats

    @property
    def buffers(self):
        """{key: (shape, array)}: the bytes that the calling thread's keys have."""
        with self._lock:
            own = {key: self._own(entries) for key, entries in self._entries.items()}
        return {key: (array.shape, array) for key, array in own.items() if array is not None}

    def _own(self, entries):
        from threading import get_ident

        return next((entry.box[0] for entry in entries if entry.ident == get_ident()), None)
