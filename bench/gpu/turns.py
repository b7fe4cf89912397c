"""Processes that take the same steps in turn: what a step takes for each, on the same machine in the same second."""

import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time


def wait_for_turn():
    """Tells the process that started this one that it is ready, and waits until it may go on."""
    print("ready", flush=True)
    if sys.stdin.readline() == "":
        sys.exit("the process that gives turns has ended")


def timed(steps, count, in_turns):
    """Takes `count` steps. Returns what each yielded and how many milliseconds it took."""
    results, times = [], []
    for _ in range(count):
        if in_turns:
            wait_for_turn()
        begin = time.perf_counter()
        results.append(next(steps))
        times.append((time.perf_counter() - begin) * 1e3)
    if in_turns:
        wait_for_turn()  # the others have a step to go
    return results, times


class Worker:
    """A process that takes a step whenever it is told to, and prints its figures as JSON at last."""

    def __init__(self, command):
        self.command = command
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True)

    def stay_on(self, core):
        """Has all threads that it has, and those that they start, run on one core."""
        seen = set()
        while new := self.threads() - seen:  # that others started meanwhile
            for thread in new:
                with contextlib.suppress(ProcessLookupError):  # it has ended
                    os.sched_setaffinity(int(thread), {core})
            seen |= new

    def threads(self):
        try:
            return set(os.listdir(f"/proc/{self.process.pid}/task"))
        except FileNotFoundError:
            self.fail()

    def fail(self):
        self.errors.seek(0)
        sys.exit(f"{' '.join(self.command)} failed:\n{self.errors.read()[-3000:]}")

    def wait(self):
        """Waits until it is ready for its next step."""
        for line in self.process.stdout:
            if line == "ready\n":
                return
        self.fail()

    def step(self):
        try:
            print(file=self.process.stdin, flush=True)
        except BrokenPipeError:
            self.fail()
        self.wait()

    def figures(self):
        lines = self.process.communicate("\n")[0].splitlines()
        if self.process.returncode != 0:
            self.fail()
        return json.loads(lines[-1])


def run_in_turns(commands, steps, rounds):
    """Runs all commands, given by name, at once, one step of each in turn, `rounds` times.

    In a round all of them share one core: what else the machine does there slows all alike, and none has to
    wait until a core wakes up. The next round has another one. Returns the figures of each, for every round.
    """
    cores = itertools.cycle(sorted(os.sched_getaffinity(0)))
    return [one_round(commands, steps, number, next(cores)) for number in range(rounds)]


def one_round(commands, steps, number, core):
    workers = {name: Worker(command) for name, command in commands.items()}
    try:
        for worker in workers.values():
            worker.wait()
        for worker in workers.values():
            worker.stay_on(core)
        names = list(workers)
        for step in range(steps):
            first = (step + number) % len(names)
            for name in names[first:] + names[:first]:
                workers[name].step()
        return {name: worker.figures() for name, worker in workers.items()}
    finally:
        for worker in workers.values():
            worker.process.kill()


def mean_of_medians(rounds):
    """What a step takes on average: of each the median of several rounds."""
    return statistics.mean(statistics.median(step) for step in zip(*rounds, strict=True))
