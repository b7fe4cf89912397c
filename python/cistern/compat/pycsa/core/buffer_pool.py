"""pycsa.core.buffer_pool: BufferPool, a KeyedPool with the attributes that pycsa's has."""

from threading import get_ident

from ....keyed import KeyedPool

__all__ = ["BufferPool"]


class BufferPool(KeyedPool):
    """One growing buffer per key. Each thread has its own, as pycsa promises nothing across threads."""

    def __init__(self, pool=None, *, same_key="own_buffer"):
        super().__init__(pool, same_key=same_key)

    @property
    def stats(self):
        """{key: {"hits", "misses", "grows"}}."""
        return self.get_stats()

    @property
    def buffers(self):
        """{key: (shape, array)}: the bytes that the calling thread's keys have."""
        with self._lock:
            own = {
                key: one.box[0] for (ident, key), one in self._own.items() if ident == get_ident()
            }
        return {key: (array.shape, array) for key, array in own.items()}
