from collections.abc import Sequence
from typing import Any

from numpy.typing import DTypeLike, NDArray



class Pool:
    def __init__(self, *, memory: str, huge_pages: bool, numa_node: int | None, device: int | None, name: str, fit: str, max_waste: float, block_bytes: int, alignment: int, max_bytes: int | None, max_idle_bytes: int | None, max_idle_buffers: int | None, max_buffer_bytes: int | None, max_idle_milliseconds: int | None, evict: str, separate_types: bool, wipe_on_release: bool) -> None: ...

    def _set_limits(self, *, max_bytes: int | None, max_idle_bytes: int | None, max_idle_buffers: int | None, max_buffer_bytes: int | None, max_idle_milliseconds: int | None) -> None: ...

    def _limits(self) -> dict[str, int]: ...

    def _stats(self) -> tuple[str, str]: ...

    def _explain(self, keys: Sequence[tuple[str, int, int]]) -> tuple[str, str]: ...

    def _trim(self, keep_idle_bytes: int) -> int: ...

    def _numpy_handler(self, min_bytes: int) -> object: ...

    @property
    def name(self) -> str: ...

    @property
    def memory(self) -> str: ...

    def empty(self, /, shape: Any, dtype: DTypeLike | None = None) -> NDArray[Any]: ...

    def zeros(self, /, shape: Any, dtype: DTypeLike | None = None) -> NDArray[Any]: ...

class Loan:
    """Bytes on loan from a pool; they return with the object."""

    @property
    def ptr(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def device(self) -> int: ...

    def also_used_on(self, stream: int) -> None:
        """Say that work on this stream uses the bytes too."""

    def hand_to(self, stream: int) -> None:
        """
        Say that from now on work on this stream uses the bytes: it waits for those before.
        """

    def copy_from(self, host: int, nbytes: int) -> None:
        """Copies from an address of the host."""

    def copy_to(self, host: int, nbytes: int) -> None:
        """Copies to an address of the host."""

    def share(self) -> Shared:
        """The bytes for other processes."""

    def release(self) -> None: ...

class Shared:
    """Device memory for other processes."""

    def __init__(self, parts: Sequence[tuple[int, int]], offset: int, nbytes: int, uuid: bytes) -> None: ...

    @property
    def parts(self) -> list[tuple[int, int]]: ...

    @property
    def offset(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def uuid(self) -> bytes: ...

class Opened:
    """Device memory of another process."""

    def __init__(self, shared: Shared) -> None: ...

    @property
    def ptr(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def device(self) -> int: ...

    def also_used_on(self, stream: int) -> None:
        """Nothing to do: its end waits for all streams."""

    def hand_to(self, stream: int) -> None:
        """Nothing to do either."""

def cuda_available() -> bool: ...

def lend(kind: str, device: int, nbytes: int, stream: object | None = None) -> Loan:
    """Bytes of the process's pool on this memory, in a stream's order."""

def as_dlpack(loan: object, shape: Sequence[int], code: int, bits: int) -> object: ...

def default_stats_json(kind: str, device: int = 0) -> str: ...

def default_explain(kind: str, device: int = 0) -> str: ...

def default_trim(kind: str, device: int = 0, keep_idle_bytes: int = 0) -> int: ...

def default_set_limits(kind: str, device: int, *, max_bytes: int | None, max_idle_bytes: int | None, max_idle_buffers: int | None, max_buffer_bytes: int | None, max_idle_milliseconds: int | None) -> None: ...

def torch_record_stream() -> int: ...

def view(owner: NDArray[Any], shape: Any, dtype: DTypeLike | None = None, offset: int = 0) -> NDArray[Any] | None: ...

def nbytes(shape: Any, dtype: DTypeLike | None = None) -> int: ...

def grow(box: list[NDArray[Any]], nbytes: int, /) -> bool: ...

def let_go(box: list[NDArray[Any]], /) -> bool: ...

def is_pooled(array: object, /) -> bool: ...

def set_handler(handler: object, /) -> object: ...

def get_handler() -> object: ...

def cupy_uses(unowned_memory: Any, memory_pointer: Any, device_id: Any, current_stream: Any, /) -> None: ...

def cupy_malloc(nbytes: int, /) -> Any: ...

version: str

header_bytes: int

def default_max_idle_bytes() -> int: ...

def process_memory_limit() -> int: ...
