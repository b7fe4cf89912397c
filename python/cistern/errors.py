"""Every exception that Cistern raises is a cistern.Error, and also what a NumPy user expects."""


class Error(Exception):
    """The base of all."""


class InvalidArgument(Error, ValueError):
    """A value that makes no sense; the text names it. Nothing was changed."""


class OutOfMemory(MemoryError, Error):  # MemoryError makes its own instances, so it comes first
    """The memory, or a limit of the pool, has no room left. The text says who holds what."""


class Unavailable(Error, RuntimeError):
    """What was asked for does not exist here (no driver, no device); the text says why."""


class DeviceError(Error, RuntimeError):
    """A device reported a failure."""


class BufferNotAllocatedError(InvalidArgument):
    """A unified buffer was used before it was allocated, or after it was freed."""


for _class in (
    Error,
    InvalidArgument,
    OutOfMemory,
    Unavailable,
    DeviceError,
    BufferNotAllocatedError,
):
    _class.__module__ = "cistern"
del _class
