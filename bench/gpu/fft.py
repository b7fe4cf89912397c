"""A CuPy program with changing shapes, on CuPy's own pool and on Cistern: results, memory, time.

    python bench/gpu/fft.py [--json FILE] [--phases]

Filters random images of changing size in the frequency domain. Both allocators run the same program from
the same seed, in processes that take steps in turn; of every step the quickest counts. In the first epoch both
pools still grow; the last, with the same sizes, is timed by itself. --phases tells where a step's time goes, on the host
and on the device; events between the phases make the steps a little longer.
"""

import argparse
import itertools
import json
import statistics
import sys
import time

from turns import mean_of_quickest, run_in_turns, timed

ALLOCATORS = ("cupy", "cistern")
EPOCHS = ("first", "last")
PHASES = ("random", "rfft2", "filter", "irfft2", "mean")


class Phases:
    """How long each phase of each step takes: the host until it has asked for it, and the device, in ms."""

    def __init__(self):
        self.host, self.device = [], []

    def begin(self):
        self.marks = []
        self.end_of_phase()

    def end_of_phase(self):
        import cupy
        event = cupy.cuda.Event()
        event.record()
        self.marks.append((time.perf_counter(), event))

    def end(self):
        import cupy
        pairs = list(itertools.pairwise(self.marks))
        self.host.append([(last - first) * 1e3 for (first, _), (last, _) in pairs])
        self.device.append([cupy.cuda.get_elapsed_time(first, last) for (_, first), (_, last) in pairs])


class NoPhases:
    host, device = None, None

    def begin(self):
        pass

    end_of_phase = end = begin


def program(steps, phases):
    import cupy
    import numpy

    sizes = numpy.random.default_rng(3)
    shapes = [(*map(int, sizes.integers(500, 3000, 2)), int(sizes.integers(1, 9))) for _ in range(steps)]
    source = cupy.random.default_rng(4)
    for n, m, batch in shapes * len(EPOCHS):
        phases.begin()
        image = source.random((batch, n, m), dtype=cupy.float32)
        phases.end_of_phase()
        spectrum = cupy.fft.rfft2(image)
        phases.end_of_phase()
        low = cupy.hypot(cupy.fft.fftfreq(n)[:, None], cupy.fft.rfftfreq(m)[None, :]) < 0.2
        kept = spectrum * low
        phases.end_of_phase()
        smooth = cupy.fft.irfft2(kept, s=(n, m))
        del kept
        phases.end_of_phase()
        mean = cupy.square(image - smooth).mean()
        phases.end_of_phase()
        result = float(mean)
        phases.end()
        yield result


def measure(allocator, steps, in_turns, with_phases):
    import cupy

    if allocator == "cistern":
        import cistern.cupy
        cistern.cupy.enable()
    cupy.fft.config.get_plan_cache().set_size(0)  # plans would keep their memory
    phases = Phases() if with_phases else NoPhases()
    results, times = timed(program(steps, phases), steps * len(EPOCHS), in_turns)
    if allocator == "cistern":
        stats = cistern.cupy.stats()
        used, held = stats["lent_bytes"]["peak"], stats["held_bytes"]["peak"]
    else:
        pool = cupy.get_default_memory_pool()
        used, held = None, pool.total_bytes()
    return {"allocator": allocator, "results": results, "used_bytes": used, "held_bytes": held,
            "steps_ms": {"first": times[steps // 4:steps], "last": times[steps:]},
            "phases_ms": {"host": phases.host, "device": phases.device}}


def print_phases(rounds, steps):
    """What each phase takes on average, of every step the quickest of all rounds."""
    for epoch, part in zip(EPOCHS, (slice(steps // 4, steps), slice(steps, None))):
        for side in ("host", "device"):
            for phase, name in enumerate(PHASES):
                us = [mean_of_quickest([step[phase] for step in each[allocator]["phases_ms"][side][part]]
                                       for each in rounds) * 1e3 for allocator in ALLOCATORS]
                print(f"{epoch:<5} epoch, {side:<6} {name:<7} " +
                      ", ".join(f"{allocator} {one:7.1f} us" for allocator, one in zip(ALLOCATORS, us)) +
                      f": {us[-1] - us[0]:+6.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--allocator", choices=ALLOCATORS)
    parser.add_argument("--steps", type=int, default=120, help="in an epoch")
    parser.add_argument("--rounds", type=int, default=4, help="processes for each")
    parser.add_argument("--in-turns", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--phases", action="store_true", help="tell where a step's time goes")
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    if arguments.allocator:
        print(json.dumps(measure(arguments.allocator, arguments.steps, arguments.in_turns, arguments.phases)))
        return
    commands = {allocator: [sys.executable, __file__, "--in-turns", "--allocator", allocator, "--steps",
                            str(arguments.steps), *["--phases"] * arguments.phases] for allocator in ALLOCATORS}
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
    if arguments.phases:
        print_phases(rounds, arguments.steps)
    runs["equal"] = same
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(runs, file, indent=2)


if __name__ == "__main__":
    main()
