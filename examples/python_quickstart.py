# %% [markdown]
# # Cistern in five minutes
# Open this file as a notebook (Jupyter with jupytext, or any editor that knows `# %%`), or run it.

# %%
import numpy as np

import cistern

# %% [markdown]
# A pool lends plain NumPy arrays. When the last view of one dies, its memory waits for the next.

# %%
pool = cistern.Pool(name="quick start")
u = pool.zeros((1000, 1000))
print(type(u).__name__, u.shape, u.dtype, "64-byte aligned:", u.ctypes.data % 64 == 0)
del u
v = pool.empty((500, 2000), dtype=np.float64)  # another shape, the same bytes
print("hits:", pool.stats().hits)

# %% [markdown]
# In a loop, arrays for the length of a block, or of a call:

# %%
with pool.array((1000, 1000)) as work:
    work[...] = 2.0
    total = work.sum()
print("total:", total, "- and `work` is empty now:", work.shape)


def norm(squares, sums):
    np.multiply(v, v, out=squares)
    np.sum(squares, axis=0, out=sums)
    return float(np.sqrt(sums.sum()))


v.fill(0.5)
print("norm:", cistern.with_arrays(norm, pool, (500, 2000), 2000))

# %% [markdown]
# Or let NumPy itself allocate from the pool, temporaries included; nothing else changes.

# %%
with cistern.numpy_pool(pool):
    w = (v * 2.0 + 1.0) / (v + 3.0)
print("from the pool:", cistern.is_pooled(w), "- mean", round(float(w.mean()), 4))

# %% [markdown]
# One growing array per name, for loops whose sizes change:

# %%
keyed = cistern.KeyedPool(pool)
for rows in (100, 300, 200):
    coeff = keyed.get_or_create("coeff", (rows, 50))
    coeff.fill(1.0)
print(keyed.get_stats())

# %% [markdown]
# What it holds and why. In a notebook, `pool` and `pool.stats()` show themselves as tables.

# %%
print("arrays lent:", pool.stats().lent_buffers.now)
del v, w, coeff
keyed.clear()
pool.trim()
print("bytes held in the end:", pool.stats().held_bytes.now)
