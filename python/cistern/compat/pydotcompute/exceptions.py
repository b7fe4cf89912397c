"""pydotcompute.exceptions: those that its buffers raise."""

from ... import errors

__all__ = ["BufferError", "BufferNotAllocatedError", "BufferSyncError", "PyDotComputeError"]


class PyDotComputeError(Exception):
    """The base of all."""


class BufferError(PyDotComputeError):
    """Something is wrong with a buffer."""


class BufferNotAllocatedError(errors.BufferNotAllocatedError, BufferError):
    """A buffer was used before it was allocated, or after it was freed."""

    def __init__(self, text="Buffer has not been allocated. Call allocate() first."):
        super().__init__(text)


class BufferSyncError(BufferError):
    """The two sides of a buffer could not be synchronised."""

    def __init__(self, direction, cause):
        self.direction = direction
        self.cause = cause
        super().__init__(f"Failed to sync buffer {direction}: {cause}")
