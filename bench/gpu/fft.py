"""A CuPy program with changing shapes, on CuPy's own pool and on Cistern: results, memory, time.

    python bench/gpu/fft.py [--json FILE]

Filters random images of changing size in the frequency domain. Both allocators run the same program from
the same seed, in processes that take steps in turn; of every step the quickest counts. In the first epoch both
pools still grow; the last, with the same sizes, is timed by itself.
"""

import argparse
import json
import statistics
import sys

from turns import mean_of_quickest, run_in_turns, timed

ALLOCATORS = ("cupy", "cistern")
EPOCHS = ("first", "last")


def program(steps):
    import cupy
    import numpy

    sizes = numpy.random.default_rng(3)
    shapes = [(*map(int, sizes.integers(500, 3000, 2)), int(sizes.integers(1, 9))) for _ in range(steps)]
    source = cupy.random.default_rng(4)
    for n, m, batch in shapes * len(EPOCHS):
        image = source.random((batch, n, m), dtype=cupy.float32)
        spectrum = cupy.fft.rfft2(image)
        low = cupy.hypot(cupy.fft.fftfreq(n)[:, None], cupy.fft.rfftfreq(m)[None, :]) < 0.2
        smooth = cupy.fft.irfft2(spectrum * low, s=(n, m))
        yield float(cupy.square(image - smooth).mean())


def measure(allocator, steps, in_turns):
    import cupy

    if allocator == "cistern":
        import cistern.cupy
        cistern.cupy.enable()
    cupy.fft.config.get_plan_cache().set_size(0)  # plans would keep their memory
    results, times = timed(program(steps), steps * len(EPOCHS), in_turns)
    if allocator == "cistern":
        stats = cistern.cupy.stats()
        used, held = stats["lent_bytes"]["peak"], stats["held_bytes"]["peak"]
    else:
        pool = cupy.get_default_memory_pool()
        used, held = None, pool.total_bytes()
    return {"allocator": allocator, "results": results, "used_bytes": used, "held_bytes": held,
            "steps_ms": {"first": times[steps // 4:steps], "last": times[steps:]}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--allocator", choices=ALLOCATORS)
    parser.add_argument("--steps", type=int, default=120, help="in an epoch")
    parser.add_argument("--rounds", type=int, default=4, help="processes for each")
    parser.add_argument("--in-turns", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    if arguments.allocator:
        print(json.dumps(measure(arguments.allocator, arguments.steps, arguments.in_turns)))
        return
    commands = {allocator: [sys.executable, __file__, "--in-turns", "--allocator", allocator, "--steps",
                            str(arguments.steps)] for allocator in ALLOCATORS}
    rounds = run_in_turns(commands, arguments.steps * len(EPOCHS), arguments.rounds)
    runs = rounds[0]
    live = runs["cistern"]["used_bytes"]
    same = all(each[allocator]["results"] == runs["cupy"]["results"] for each in rounds for allocator in ALLOCATORS)
    for allocator, run in runs.items():
        print(f"{allocator:<8} held {run['held_bytes'] / 2**20:7.0f} MiB = {run['held_bytes'] / live:.3f} x live")
    print("results are", "equal" if same else "NOT equal")
    for epoch in EPOCHS:
        times = {allocator: [each[allocator]["steps_ms"][epoch] for each in rounds] for allocator in ALLOCATORS}
        quickest = {allocator: mean_of_quickest(steps) for allocator, steps in times.items()}
        for allocator, steps in times.items():
            of_each = [statistics.mean(each) for each in steps]
            runs[allocator][f"{epoch}_epoch"] = {"step_ms": quickest[allocator], "step_ms_of_each_process": of_each,
                                                 "steps_ms": steps}
            print(f"step in the {epoch:<5} epoch, {allocator:<8} {quickest[allocator]:.3f} ms = "
                  f"{quickest[allocator] / quickest['cupy']:.3f} x CuPy's "
                  f"(processes: {', '.join(f'{ms:.1f}' for ms in of_each)})")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(runs, file, indent=2)


if __name__ == "__main__":
    main()
