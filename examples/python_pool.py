import numpy as np

import cistern

pool = cistern.Pool(name="solver", max_idle_bytes=1 << 30)
for step in range(100):
    shape = (500 + step % 7, 400)  # shapes change as the program runs
    u = pool.zeros(shape, dtype=np.float32)  # a plain numpy.ndarray, 64-byte aligned
    flux, scratch = pool.arrays(shape, (shape, "f4"))
    flux[...] = u + 1.0
    with pool.array(shape) as work:  # given back at the end of the block
        work[...] = flux

stats = pool.stats()
print(f"{stats.acquires} arrays: {stats.hits} from idle bytes, {stats.misses} from new ones")
