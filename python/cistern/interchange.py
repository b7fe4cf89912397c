"""Arrays from and to other libraries, by DLPack."""

import numpy as np

from .pool import Pool


def from_dlpack(x, pool=None):
    """Returns a NumPy array over the memory of another library's array, without a copy.

    With a pool, returns a copy lent by it instead. The other way, every array of a pool is a
    numpy.ndarray: pass it to the other library's from_dlpack.
    """
    if not hasattr(x, "__dlpack__"):
        raise TypeError(f"from_dlpack() takes an array with __dlpack__, not {type(x).__name__!r}")
    if pool is not None and not isinstance(pool, Pool):
        raise TypeError(f"pool is a cistern.Pool, not {type(pool).__name__!r}: {pool!r}")
    array = np.from_dlpack(x)
    return array if pool is None else pool.copy(array)
