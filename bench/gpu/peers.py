"""Device memory beside PyTorch and CuPy: the host's cost of a pair.

    python bench/gpu/peers.py [--library libcistern.so] [--json FILE]

Everything runs in one process, in turn, and the best of many rounds counts; an allocator that is not
installed is left out.
"""

import argparse
import ctypes
import json
import time

SIZES = (1 << 10, 1 << 20, 64 << 20, 1 << 30)


def best_ns(step, count, rounds=15):
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(count):
            step()
        best = min(best, (time.perf_counter() - begin) / count * 1e9)
    return best


def torch_pairs():
    import torch

    stream = torch.cuda.current_stream().cuda_stream
    allocate = torch._C._cuda_cudaCachingAllocator_raw_alloc
    free = torch._C._cuda_cudaCachingAllocator_raw_delete
    rows = {}
    for size in SIZES:
        def pair(size=size):
            free(allocate(size, stream))
        rows[size] = best_ns(pair, 5000)
    torch.cuda.empty_cache()
    return rows


def torch_pinned_pairs():
    import torch

    rows = {}
    for size in SIZES:
        def pair(size=size):
            torch.empty(size, dtype=torch.uint8, pin_memory=True)
        pair()
        rows[size] = best_ns(pair, 1000)
    return rows


def cupy_pairs():
    import cupy

    pool = cupy.cuda.MemoryPool()
    rows = {}
    for size in SIZES:
        def pair(size=size):
            pool.malloc(size)
        pair()
        rows[size] = best_ns(pair, 5000)
    pool.free_all_blocks()
    return rows


def cistern_pairs(library):
    """The same pair through the C ABI, called from Python by ctypes: an upper bound."""
    loaded = ctypes.CDLL(library)
    loaded.cistern_cuda_malloc.restype = ctypes.c_void_p
    loaded.cistern_cuda_malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    loaded.cistern_cuda_free.restype = None
    loaded.cistern_cuda_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int,
                                         ctypes.c_void_p]
    rows = {}
    for size in SIZES:
        def pair(size=size):
            loaded.cistern_cuda_free(loaded.cistern_cuda_malloc(size, 0, None), size, 0, None)
        pair()
        rows[size] = best_ns(pair, 5000)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    measured = {}
    for name, measure in (("torch raw_alloc", torch_pairs), ("torch pinned", torch_pinned_pairs),
                          ("cupy pool", cupy_pairs)):
        try:
            measured[name] = measure()
        except ImportError as error:
            print(f"{name}: left out, {error}")
    if arguments.library:
        measured["cistern by ctypes"] = cistern_pairs(arguments.library)
    for name, rows in measured.items():
        print(f"{name:<18}", "  ".join(f"{size >> 10} KiB {ns:.0f} ns" for size, ns in rows.items()))
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(measured, file, indent=2)


if __name__ == "__main__":
    main()
