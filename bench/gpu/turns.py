"""Processes that take the same steps in turn: what a step takes for each, on the same machine in the same second."""

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

    def __init__(self, command, cores):
        self.command = command
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True,
                                        preexec_fn=lambda: os.sched_setaffinity(0, cores))

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


CORES = 4  # for a process; those that wait for their turn need none


def run_in_turns(commands, steps, rounds):
    """Runs all commands, given by name, at once, one step of each in turn, `rounds` times.

    In a round all of them share the same few cores, so that what others do there slows all alike; the next
    round has others. Returns the figures of each, for every round.
    """
    cores = itertools.cycle(sorted(os.sched_getaffinity(0)))
    return [one_round(commands, steps, set(itertools.islice(cores, CORES))) for _ in range(rounds)]


def one_round(commands, steps, cores):
    workers = {name: Worker(command, cores) for name, command in commands.items()}
    try:
        for worker in workers.values():
            worker.wait()
        names = list(workers)
        for step in range(steps):
            first = step % len(names)
            for name in names[first:] + names[:first]:
                workers[name].step()
        return {name: worker.figures() for name, worker in workers.items()}
    finally:
        for worker in workers.values():
            worker.process.kill()


def mean_of_quickest(rounds):
    """Each step's quickest of several rounds, on average: what else the machine did is not in it."""
    return statistics.mean(min(step) for step in zip(*rounds))
