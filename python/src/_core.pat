# Types for nanobind.stubgen of the functions that are plain CPython: it sees only their names.

_core.__prefix__$:
    \from typing import Any
    \from numpy.typing import DTypeLike, NDArray

_core.Pool.empty$:
    def empty(self, /, shape: Any, dtype: DTypeLike | None = None) -> NDArray[Any]: ...

_core.Pool.zeros$:
    def zeros(self, /, shape: Any, dtype: DTypeLike | None = None) -> NDArray[Any]: ...

_core.view$:
    def view(owner: NDArray[Any], shape: Any, dtype: DTypeLike | None = None, offset: int = 0) -> NDArray[Any] | None: ...

_core.nbytes$:
    def nbytes(shape: Any, dtype: DTypeLike | None = None) -> int: ...

_core.grow$:
    def grow(box: list[NDArray[Any]], nbytes: int, /) -> bool: ...

_core.let_go$:
    def let_go(box: list[NDArray[Any]], /) -> bool: ...

_core.is_pooled$:
    def is_pooled(array: object, /) -> bool: ...

_core.set_handler$:
    def set_handler(handler: object, /) -> object: ...

_core.get_handler$:
    def get_handler() -> object: ...

_core.cupy_uses$:
    def cupy_uses(unowned_memory: Any, memory_pointer: Any, device_id: Any, current_stream: Any, /) -> None: ...

_core.cupy_malloc$:
    def cupy_malloc(nbytes: int, /) -> Any: ...

_core.version$:
    version: str

_core.header_bytes$:
    header_bytes: int
