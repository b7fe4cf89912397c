"""What the Python package costs and saves, beside NumPy in the same run.

    python bench/python/bench_numpy.py             # all of it, about a minute
    python bench/python/bench_numpy.py --quick     # rougher
    python bench/python/bench_numpy.py --check     # exits with 1 if a budget does not hold

Each line is a ratio of two loops that take turns, a few milliseconds at a time; the figure is the
best turn of each, since whatever disturbs a turn makes it slower.
"""

import argparse
import contextvars
import ctypes
import os
import subprocess
import sys
import time

import numpy as np

import cistern

KIB, MIB = 1024, 1024 * 1024


def best_of(contestants, turns, seconds):
    """Returns the seconds per call of each function in its best turn."""
    calls, best = {}, {}
    for name, function in contestants.items():
        function()
        start = time.perf_counter()
        function()
        calls[name] = max(1, int(seconds / max(time.perf_counter() - start, 1e-8)))
        best[name] = float("inf")
    names = list(contestants)
    for turn in range(turns):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            function, count = contestants[name], calls[name]
            start = time.perf_counter()
            for _ in range(count):
                function()
            best[name] = min(best[name], (time.perf_counter() - start) / count)
    return best


class Report:
    def __init__(self):
        self.failed = []

    def line(self, what, ours, theirs, budget=None):
        ratio = ours / theirs
        verdict = ""
        if budget is not None:
            holds = ratio <= budget
            if not holds:
                self.failed.append(what)
            verdict = f" <= {budget:<5g} {'holds' if holds else 'FAILS'}"
        print(f"{what:<52} {text(ours):>10} {text(theirs):>10} {ratio:7.3f}{verdict}", flush=True)


def text(seconds):
    for unit, size in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)):
        if seconds < 1000 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.2f} s"


# ---- empty and its release ---------------------------------------------------------------------


def measure_empty(report, options):
    pool = cistern.Pool()
    for size in (1 * KIB, 64 * KIB, 1 * MIB):
        shape = (size // 8,)
        pooled, plain = pool.empty, np.empty
        best = best_of(
            {"ours": lambda: pooled(shape), "numpy": lambda: plain(shape)},
            options.turns,
            options.seconds,
        )
        report.line(f"empty + release, {size // KIB} KiB", best["ours"], best["numpy"], 1.0)


def measure_keyed(report, options):
    keyed = cistern.KeyedPool()
    get, plain = keyed.get_or_create, np.empty
    get("coeff", (1000, 200))
    best = best_of(
        {"ours": lambda: get("coeff", (400, 200)), "numpy": lambda: plain((400, 200))},
        options.turns,
        options.seconds,
    )
    report.line("KeyedPool, a hit; numpy.empty", best["ours"], best["numpy"])


# ---- every page touched: NumPy's pages are chosen when it is imported --------------------------

TOUCH = """
import sys, time
import numpy as np
lend = np.empty
if sys.argv[1] == "ours":
    import cistern
    lend = cistern.Pool().empty
n = 64 * 1024 * 1024
best = float("inf")
for _ in range(int(sys.argv[2])):
    start = time.perf_counter()
    array = lend(n, np.uint8)
    array[::4096] = 1
    del array
    best = min(best, time.perf_counter() - start)
print(best)
"""


def measure_touch(report, options):
    def run(who, huge):
        environment = {**os.environ, "NUMPY_MADVISE_HUGEPAGE": huge}
        command = [sys.executable, "-c", TOUCH, who, str(options.touches)]
        return float(
            subprocess.run(
                command, env=environment, check=True, capture_output=True, text=True
            ).stdout
        )

    runs = {
        key: min(run(*key) for _ in range(options.starts))
        for key in (("ours", "1"), ("numpy", "0"), ("numpy", "1"))
    }
    ours = runs["ours", "1"]
    report.line("64 MiB, every page touched; NumPy on 4 KiB pages", ours, runs["numpy", "0"], 0.1)
    report.line("64 MiB, every page touched; NumPy on huge pages", ours, runs["numpy", "1"], 1.0)


# ---- ordinary programs with the handler on and off -----------------------------------------------


def programs():
    rng = np.random.default_rng(1)
    large = rng.random(1_000_000)
    other = rng.random(1_000_000)
    huge = rng.random(8_000_000)
    small = rng.random(200)
    image = rng.random((1000, 1000)).astype("f4")
    matrix = rng.random((200, 200))
    grid = rng.random((1200, 1200))

    def expression_chain():
        return np.sqrt(large * large + other * other) / (1.0 + large) - other

    def large_expression():
        return (huge * 2.0 + 1.0) / (huge + 3.0)

    def small_arrays():
        total = small
        for _ in range(200):
            total = total * 0.5 + small
        return total

    def fft_filter():
        spectrum = np.fft.rfft(large)
        spectrum[1000:] = 0
        return np.fft.irfft(spectrum)

    def stencil():
        u = grid.copy()
        for _ in range(3):
            u[1:-1, 1:-1] = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2])
        return u

    def svd():
        return np.linalg.svd(matrix)

    def sort():
        return np.sort(large)[::1000], np.argsort(other[:200_000])

    def image_filters():
        blurred = (image[2:] + 2 * image[1:-1] + image[:-2]) / 4
        edges = np.abs(np.diff(blurred, axis=1))
        return np.clip(edges * 3, 0, 1) > 0.5

    def zeros_and_sums():
        table = np.zeros((1000, 1000))
        table += 1.0
        return table.sum(axis=0), table.mean(), np.concatenate([table, table])

    return [
        expression_chain,
        large_expression,
        small_arrays,
        fft_filter,
        stencil,
        svd,
        sort,
        image_filters,
        zeros_and_sums,
    ]


def measure_programs(report, options):
    pool = cistern.Pool(name="numpy")
    serving = cistern.numpy_pool(pool)
    for program in programs():

        def on(program=program):
            with serving:
                program()

        best = best_of({"on": on, "off": program}, options.program_turns, 4 * options.seconds)
        name = program.__name__.replace("_", " ")
        report.line(f"NumPy with the handler: {name}", best["on"], best["off"], 1.02)


# ---- arrays too small for the pool ---------------------------------------------------------------


class Forwarding:
    """A handler that is NumPy's own allocator under another name: what any handler costs."""

    def __init__(self):
        api = ctypes.pythonapi
        api.PyCapsule_GetPointer.restype = ctypes.c_void_p
        api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
        api.PyCapsule_New.restype = ctypes.py_object
        api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        own = api.PyCapsule_GetPointer(cistern._core.get_handler(), b"mem_handler")
        self.name = ctypes.create_string_buffer(b"mem_handler")
        self.copy = ctypes.create_string_buffer(ctypes.string_at(own, 128 + 5 * 8))
        address = ctypes.addressof(self.copy)
        self.capsule = api.PyCapsule_New(address, ctypes.addressof(self.name), None)


def measure_tiny(report, options):
    tiny = np.random.default_rng(1).random(10)
    forwarding = Forwarding()  # outlives the contexts below

    def tiny_arrays():
        total = tiny
        for _ in range(1000):
            total = total * 0.5 + tiny

    def in_context(handler=None):
        context = contextvars.copy_context()
        if handler is not None:
            context.run(cistern._core.set_handler, handler)
        return lambda: context.run(tiny_arrays)

    best = best_of(
        {
            "ours": in_context(cistern.Pool()._numpy_handler(1024)),
            "forwarding": in_context(forwarding.capsule),
            "numpy": in_context(),
        },
        8 * options.program_turns,
        options.seconds,
    )
    report.line("tiny arrays; a handler that only forwards", best["ours"], best["forwarding"], 1.02)
    report.line("tiny arrays; no handler", best["ours"], best["numpy"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 if a budget does not hold"
    )
    options = parser.parse_args()
    options.turns = 15 if options.quick else 60
    options.program_turns = 5 if options.quick else 25
    options.seconds = 0.005
    options.touches = 10 if options.quick else 30
    options.starts = 1 if options.quick else 3
    print(f"{'':<52} {'cistern':>10} {'numpy':>10} {'ratio':>7}    budget")
    report = Report()
    measure_empty(report, options)
    measure_keyed(report, options)
    measure_touch(report, options)
    measure_programs(report, options)
    measure_tiny(report, options)
    if report.failed:
        print(f"{len(report.failed)} of the budgets do not hold: {'; '.join(report.failed)}")
        if options.check:
            sys.exit(1)


if __name__ == "__main__":
    main()
