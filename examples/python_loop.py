"""Is it memory? The same loop on NumPy's allocator and on a pool."""

import time

import numpy as np

import cistern


# [loop
def step(u):
    return np.sqrt(u * u + 1.0) / (u + 2.0)


def seconds(u, steps=10):
    start = time.perf_counter()
    for _ in range(steps):
        step(u)
    return (time.perf_counter() - start) / steps


u = np.linspace(0.0, 1.0, 4_000_000)
plain = min(seconds(u) for _ in range(3))
with cistern.numpy_pool() as pool:  # NumPy's arrays now come from a pool
    pooled = min(seconds(u) for _ in range(3))
print("faster with a pool:", pooled < 0.95 * plain)
print(f"served from idle bytes: {pool.stats().hit_rate:.0%}")
# ]
