"""A program that mypy --strict accepts, with the types that it finds; test_stubs.py has it checked."""

import numpy as np
from numpy.typing import NDArray

import cistern
import cistern.cuda
import cistern.dask

pool = cistern.Pool(fit=cistern.BestFit(0.1), max_idle_bytes=1 << 30)
u: NDArray[np.float64] = pool.zeros((3, 4))
with pool.array((3, 4), "f4") as work:
    reveal_type(work)  # N: ndarray
with cistern.numpy_pool(pool, min_bytes=4096) as serving:
    reveal_type(serving)  # N: cistern.Pool
hits: int = pool.stats().hits
keyed = cistern.KeyedPool(pool, same_key="own_buffer")
coeff: NDArray[np.float64] = keyed.get_or_create("coeff", (3, 4))
buffer: cistern.UnifiedBuffer[np.float32] = cistern.get_memory_pool().acquire(10)
reveal_type(buffer.allocate().state)  # N: BufferState


@cistern.pooled(min_bytes=4096)
def step(values: NDArray[np.float64]) -> float:
    return float(values.sum())


reveal_type(step(u))  # N: float
reveal_type(cistern.with_arrays(lambda a: 3, pool, 10))  # N: int
reveal_type(cistern.dask.keyed_pool())  # N: KeyedPool
cistern.dask.PoolPlugin(max_bytes=1 << 30, fit="best")
on_device = cistern.cuda.empty((3, 4), "f4", stream=0)
reveal_type(on_device.shape)  # N: tuple
reveal_type(cistern.cuda.share(on_device))  # N: SharedArray
reveal_type(cistern.cuda.trim())  # N: int
reveal_type(pool.explain().keys)  # N: list
cistern.Pool(fit=3)  # E: Argument "fit"
pool.empty("ten")  # E: Argument 1 to "empty"
