"""Is it memory? The same loop on NumPy's allocator and on a pool."""

import resource
import time

import numpy as np

import cistern


# [loop
def step(u):
    return np.sqrt(u * u + 1.0) / (u + 2.0)


def measure(u, steps=10):
    """Returns the milliseconds and the page faults of a step."""
    best = float("inf")
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(steps):
        start = time.perf_counter()
        step(u)
        best = min(best, time.perf_counter() - start)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    return f"{1000 * best:.1f} ms and {faults // steps} page faults a step"


u = np.linspace(0.0, 1.0, 4_000_000)
print("NumPy as it is:", measure(u))
with cistern.numpy_pool() as pool:  # NumPy's arrays now come from a pool
    step(u)  # the first one fetches the memory
    print("on a pool:     ", measure(u))
print(f"served from idle bytes: {pool.stats().hit_rate:.0%}")
# ]
