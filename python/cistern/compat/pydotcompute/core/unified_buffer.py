"""pydotcompute.core.unified_buffer: UnifiedBuffer with pydotcompute's states and errors."""

from ....unified import _T, BufferState
from ....unified import UnifiedBuffer as _UnifiedBuffer
from ..exceptions import BufferNotAllocatedError

__all__ = ["BufferState", "UnifiedBuffer"]


class UnifiedBuffer(_UnifiedBuffer[_T]):
    """An array with a host and a device side. Without a device, a dirty state stays until the next
    write, as there is nothing to synchronise with."""

    @property
    def _not_allocated(self):
        # The package's own error, where the package is installed.
        import sys

        theirs = sys.modules.get("pydotcompute.exceptions")
        kind = getattr(theirs, "BufferNotAllocatedError", BufferNotAllocatedError)
        return kind if issubclass(kind, BufferNotAllocatedError) else lambda text: kind()

    def _synchronized(self):
        return self._current() if self._cuda_available else self._state
