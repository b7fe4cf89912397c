"""A CuPy program with changing shapes, on CuPy's own pool and on Cistern: results, memory, time.

    python bench/gpu/fft.py [--rounds N] [--json FILE]

Filters random images of changing size in the frequency domain. A process takes each step with one allocator and then
with the other, in turn who is first, because two processes differ by several per cent for reasons of their own. The
libraries have seen all sizes before the clock runs; the pools begin empty. In the last epoch the sizes are those of the
first. Each round is a process of its own, on one core; of every step the median of all rounds counts.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time

ALLOCATORS = ("cupy", "cistern")
EPOCHS = ("first", "last")


def sizes(steps):
    import numpy
    random = numpy.random.default_rng(3)
    return [(*map(int, random.integers(500, 3000, 2)), int(random.integers(1, 9))) for _ in range(steps)]


def step(source, n, m, batch):
    import cupy
    image = source.random((batch, n, m), dtype=cupy.float32)
    spectrum = cupy.fft.rfft2(image)
    low = cupy.hypot(cupy.fft.fftfreq(n)[:, None], cupy.fft.rfftfreq(m)[None, :]) < 0.2
    kept = spectrum * low
    smooth = cupy.fft.irfft2(kept, s=(n, m))
    del kept
    return float(cupy.square(image - smooth).mean())


def warm_up(shapes):
    """Has the libraries load what these sizes need, from a pool that ends here."""
    import cupy
    pool = cupy.cuda.MemoryPool()
    with cupy.cuda.using_allocator(pool.malloc):
        source = cupy.random.default_rng(4)
        for shape in shapes:
            step(source, *shape)
        del source
    pool.free_all_blocks()


def one_round(number, steps):
    import cupy

    import cistern.cupy

    cupy.fft.config.get_plan_cache().set_size(0)  # plans would keep their memory
    shapes = sizes(steps)
    warm_up(shapes)
    pool = cupy.cuda.MemoryPool()
    malloc = {"cupy": pool.malloc, "cistern": cistern.cupy.malloc}
    sources = {}
    for allocator in ALLOCATORS:
        with cupy.cuda.using_allocator(malloc[allocator]):
            sources[allocator] = cupy.random.default_rng(4)
    times = {allocator: [] for allocator in ALLOCATORS}
    results = {allocator: [] for allocator in ALLOCATORS}
    for index, shape in enumerate(shapes * len(EPOCHS)):
        first = (index + number) % len(ALLOCATORS)
        for allocator in ALLOCATORS[first:] + ALLOCATORS[:first]:
            with cupy.cuda.using_allocator(malloc[allocator]):
                begin = time.perf_counter()
                results[allocator].append(step(sources[allocator], *shape))
                times[allocator].append((time.perf_counter() - begin) * 1e3)
    stats = cistern.cupy.stats()
    return {"times_ms": times, "equal": results["cupy"] == results["cistern"], "moves": stats["moves"],
            "live_bytes": stats["lent_bytes"]["peak"],
            "held_bytes": {"cupy": pool.total_bytes(), "cistern": stats["held_bytes"]["peak"]}}


def run_round(number, steps, core):
    """Runs a round in a process of its own, which stays on one core."""
    command = [sys.executable, __file__, "--steps", str(steps), "--only-round", str(number)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False,
                           preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{ended.stderr[-3000:]}")
    return json.loads(ended.stdout.splitlines()[-1])


def compare(rounds, steps):
    """What a step takes, on average, in each epoch and in both: of every one the median of all rounds."""
    parts = {"first_epoch": slice(steps), "last_epoch": slice(steps, None), "all_epochs": slice(None)}
    found = {}
    for name, part in parts.items():
        ms = {allocator: statistics.mean(map(statistics.median, zip(*(each["times_ms"][allocator][part]
                                                                       for each in rounds))))
              for allocator in ALLOCATORS}
        of_each = [sum(each["times_ms"]["cistern"][part]) / sum(each["times_ms"]["cupy"][part]) for each in rounds]
        found[name] = {"step_ms": ms, "over_cupy": ms["cistern"] / ms["cupy"], "over_cupy_of_each_round": of_each}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=120, help="in an epoch")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only-round", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    if arguments.steps < 1 or arguments.rounds < 1:
        parser.error(f"--steps {arguments.steps} --rounds {arguments.rounds}: at least 1 of each")
    if arguments.only_round is not None:
        print(json.dumps(one_round(arguments.only_round, arguments.steps)))
        return
    cores = itertools.cycle(sorted(os.sched_getaffinity(0)))
    rounds = [run_round(number, arguments.steps, next(cores)) for number in range(arguments.rounds)]
    found = {"equal": all(each["equal"] for each in rounds), "live_bytes": rounds[0]["live_bytes"],
             "held_over_live": {allocator: max(each["held_bytes"][allocator] / each["live_bytes"] for each in rounds)
                                for allocator in ALLOCATORS},
             **compare(rounds, arguments.steps), "rounds": rounds}
    for allocator, held in found["held_over_live"].items():
        print(f"{allocator:<8} held {held:.3f} x live")
    print("results are", "equal" if found["equal"] else "NOT equal")
    for epochs in ("first_epoch", "last_epoch", "all_epochs"):
        part = found[epochs]
        print(f"step in {epochs.replace('_', ' '):<11}: cupy {part['step_ms']['cupy']:.3f} ms, cistern "
              f"{part['step_ms']['cistern']:.3f} ms = {part['over_cupy']:.4f} x "
              f"(rounds: {', '.join(f'{ratio:.3f}' for ratio in part['over_cupy_of_each_round'])})")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=2)


if __name__ == "__main__":
    main()
