"""Cistern lends array memory and keeps it warm for the next borrower.

pool = cistern.Pool()
u = pool.empty((ny, nx))          # a plain numpy.ndarray; returns to the pool when it dies
with cistern.numpy_pool():        # or: everything that NumPy allocates comes from a pool
    v = np.sqrt(u * u + 1.0)
print(pool.stats())
"""

from .errors import (  # isort: skip  (the extension looks them up)
    BufferNotAllocatedError,
    DeviceError,
    Error,
    InvalidArgument,
    OutOfMemory,
    Unavailable,
)
from ._core import is_pooled  # isort: skip  (before NumPy: says it if this interpreter will not do)
from ._core import version as __version__  # isort: skip
from . import compat
from .fits import BestFit, Elastic, ExactFit, FixedBlock
from .interchange import from_dlpack
from .keyed import KeyedPool
from .pool import FOREVER, NO_LIMIT, Pool, default_pool
from .scopes import Ranged, Shape, shape, with_arrays, with_arrays_like
from .serve import disable_numpy, enable_numpy, numpy_pool, pooled
from .stats import Explanation, Gauge, PoolStats
from .unified import (
    BufferState,
    MemoryPool,
    PoolStatistics,
    UnifiedBuffer,
    configure_memory_pool,
    cuda_available,
    get_memory_pool,
)
from .vector import Vector

__all__ = [
    "BestFit",
    "BufferNotAllocatedError",
    "BufferState",
    "DeviceError",
    "Elastic",
    "Error",
    "ExactFit",
    "Explanation",
    "FOREVER",
    "FixedBlock",
    "Gauge",
    "InvalidArgument",
    "KeyedPool",
    "MemoryPool",
    "NO_LIMIT",
    "OutOfMemory",
    "Pool",
    "PoolStatistics",
    "PoolStats",
    "Ranged",
    "Shape",
    "Unavailable",
    "UnifiedBuffer",
    "Vector",
    "compat",
    "configure_memory_pool",
    "cuda_available",
    "default_pool",
    "disable_numpy",
    "enable_numpy",
    "from_dlpack",
    "get_memory_pool",
    "is_pooled",
    "numpy_pool",
    "pooled",
    "shape",
    "with_arrays",
    "with_arrays_like",
]
