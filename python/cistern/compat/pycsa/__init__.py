"""pycsa's BufferPool on Cistern."""

from .core.buffer_pool import BufferPool

__all__ = ["BufferPool"]
