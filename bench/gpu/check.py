"""Checks and measures on a GPU what docs/gpu.md says, in one run, and says which limits hold.

    ./dev gpu [PYTHON]                    # builds into build/gpu; that machine needs no GPU
    python3 bench/gpu/check.py [PART...]  # on the machine with the GPU, beside that folder

Exits with 1 if a limit does not hold. What is not installed there is left out, and said. All of it takes eight to ten
minutes; nothing else should run on the machine. FILE of --json is written anew after each part, so that what was
measured is there also if the run is ended.
"""

import argparse
import concurrent.futures
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TREE = HERE.parents[1]


class Check:
    """The folder with the programs, and the rows of the table so far."""

    def __init__(self, folder, json_file):
        self.folder, self.json_file = folder, json_file
        self.rows, self.figures = [], {}

        def first(variable, path):
            return os.pathsep.join([str(path), *filter(None, [os.environ.get(variable)])])

        self.environment = {**os.environ, "PYTHONUNBUFFERED": "1", "LD_LIBRARY_PATH": first("LD_LIBRARY_PATH", folder),
                            "PYTHONPATH": first("PYTHONPATH", folder / "python")}

    def start(self, command, **options):
        return subprocess.Popen([str(part) for part in command], env=self.environment, cwd=TREE, text=True,
                                start_new_session=True, stdout=subprocess.PIPE, **options)

    def run(self, *command, seconds=600):
        """Runs a command. Returns its exit status and its output. What takes longer is ended with all it started."""
        process = self.start(command, stderr=subprocess.STDOUT)
        try:
            output, _ = process.communicate(timeout=seconds)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return 124, process.communicate()[0] + f"\nno end after {seconds} s"

    def run_for_json(self, *command, seconds=400):
        """Runs a program of the folder that prints JSON."""
        process = self.start(command)
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        if process.returncode != 0:
            raise RuntimeError(f"{Path(command[0]).name} ended with {process.returncode}")
        return json.loads(output)

    def run_script(self, name, *options):
        """Runs a script of this folder that writes JSON to a file."""
        file = self.folder / f"{name}.json"
        status, output = self.run(sys.executable, HERE / f"{name}.py", *options, "--json", file)
        print(output, end="")
        if status != 0:
            raise RuntimeError(f"{name}.py ended with {status}")
        return json.loads(file.read_text(encoding="utf-8"))

    def row(self, what, figure, limit="", holds=None):
        mark = {True: "holds", False: "DOES NOT HOLD", None: ""}[holds]
        self.rows.append({"what": what, "figure": figure, "limit": limit, "holds": holds})
        print(f"  {what:<52} {figure:<34} {limit:<26} {mark}".rstrip(), flush=True)

    def at_most(self, what, value, limit, form="{:.2f}", note=""):
        self.row(what, form.format(value) + note, "<= " + form.format(limit), value <= limit)

    def left_out(self, what, why):
        self.row(what, f"left out: {why}")

    def save(self):
        if self.json_file:
            text = json.dumps({"rows": self.rows, "figures": self.figures}, indent=2)
            Path(self.json_file).write_text(text, encoding="utf-8")


def tests(check):
    """The tests, on the real driver, and under compute-sanitizer; all at once, since they mostly wait."""
    cuda = check.folder / "cistern_cuda"
    passed = r"PASSED\s+\] ([1-9]\d* tests?)"
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    brief = "--gtest_brief=1"
    runs = {
        "cistern_cuda": ([cuda, brief], passed),
        "contract on device, pinned, managed": (
            [check.folder / "cistern_contract", brief, "--gtest_filter=*/Device_*:*/Pinned_*:*/Managed_*"],
            passed),
    }
    if (check.folder / "thrust").exists():
        runs["examples/cuda/thrust.cu"] = ([check.folder / "thrust"], r"(sorted: yes.*)")
    if Path(sanitizer).exists():
        runs["memcheck"] = ([sanitizer, "--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", "9",
                             cuda, brief], passed + r"[\s\S]*ERROR SUMMARY: 0 errors")
        # The stress tests that are left out did not end within 110 s there.
        runs["racecheck"] = ([sanitizer, "--tool", "racecheck", "--error-exitcode", "9", cuda, brief,
                              "--gtest_filter=-*OthersGoOnWith*"],
                             passed + r"[\s\S]*RACECHECK SUMMARY: 0 hazards")
    else:
        check.left_out("memcheck, racecheck", "no compute-sanitizer")
    if (check.folder / "python").exists() and importlib.util.find_spec("pytest"):
        runs["test_cuda*.py, test_unified.py"] = (
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
             *sorted((TREE / "python/tests").glob("test_cuda*.py")), "python/tests/test_unified.py"], r"([1-9]\d* passed(?:, \d+ skipped)?)")
    else:
        check.left_out("test_cuda*.py, test_unified.py", "no build/gpu/python or no pytest")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        ended = {name: pool.submit(check.run, *command, seconds=400) for name, (command, _) in runs.items()}
    for name, (_, wanted) in runs.items():
        status, output = ended[name].result()
        found = re.search(wanted, output)
        ended_well = status == 0 and found is not None
        check.row(name, found[1] if found else f"exit status {status}", "no failure", ended_well)
        if not ended_well:
            print(output[-3000:])


def pairs(check):
    rows = check.figures["pairs"] = check.run_for_json(check.folder / "cistern_bench_gpu", "pairs")["pairs"]
    for one in rows:
        check.at_most(f"device pair x floor, {one['bytes'] >> 10} KiB", one["cistern_over_floor"], 3,
                      note=f" ({one['cistern_ns']:.1f} ns; async {one['cuMemAllocAsync_ns']:.0f})")
        check.row("  through the hook, ns", f"{one['cistern_hook_ns']:.0f}")


def pinned(check):
    found = check.figures["pinned"] = check.run_for_json(check.folder / "cistern_bench_gpu", "pinned")["pinned"]
    for one in found["pairs"]:
        check.at_most(f"pinned pair x floor, {one['bytes'] >> 10} KiB", one["cistern_over_floor"], 3,
                      note=f" ({one['cistern_ns']:.1f} ns)")
    for one in found["held"]:
        check.at_most(f"waste of {one['bytes'] / 2**20:.1f} MiB pinned", one["waste"], 0.125, "{:.4f}")
    first = found["first_gib"]
    check.at_most("first pinned GiB, ms", first["cistern_ms"], first["cuMemHostAlloc_ms"], "{:.0f}")


def streams(check):
    found = check.figures["streams"] = check.run_for_json(check.folder / "cistern_bench_gpu", "streams")["streams"]
    for one in found["throughput"]:
        if one["kernels_per_step"] == 0:
            check.row(f"million pairs per s, {one['streams']}, {one['largest_bytes'] >> 10} KiB",
                      f"{one['cistern_steps_per_s'] / 1e6:.1f} (async {one['cuMemAllocAsync_steps_per_s'] / 1e6:.2f})")
            continue
        alone = one["kernels_alone_steps_per_s"] / one["cuMemAllocAsync_steps_per_s"]
        what = f"{one['streams']}, {one['buffers_per_step']} of {one['largest_bytes'] >> 10} KiB"
        figure = f"{one['ratio']:.2f} (kernels alone {alone:.2f})"
        if one["largest_bytes"] > 1 << 20 or one["streams"] == "four shared by all":
            check.row(f"steps x cuMemAllocAsync, {what}", figure)  # bound by the pool's lock, or by launches
            continue
        check.row(f"steps x cuMemAllocAsync, {what}", figure, ">= 5", one["ratio"] >= 5)
    check.row("words corrupted", str(found["words_corrupted"]), "0", found["words_corrupted"] == 0)


def crossing(check):
    found = check.figures["crossing"] = check.run_for_json(check.folder / "cistern_bench_gpu", "crossing")["crossing"]
    check.row("a block that crosses, us (one event)",
              f"{found['cistern_ns'] / 1e3:.2f} ({found['one_event_ns'] / 1e3:.2f})")


def traces(check):
    files = sorted((check.folder / "traces").glob("gpu_*"))
    if not files:
        return check.left_out("traces", "none in build/gpu/traces")
    for cap in ("", "1.1x"):
        command = [check.folder / "cistern", "replay", "--memory", "device", "--json", *files]
        found = check.run_for_json(*command, *(["--max-bytes", cap] if cap else []))
        check.figures[f"traces {cap}".strip()] = found
        for one in found if isinstance(found, list) else [found]:
            check.row(Path(one["file"]).name.split(".")[0] + (f", cap {cap} peak live" if cap else ""),
                      f"{one['failures']} failures, held {one['held_over_live']:.3f} x", "no failure",
                      one["failures"] == 0)


def needs(check, part, *modules):
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        check.left_out(part, f"no {', '.join(missing)}")
    return not missing


def fft(check):
    if not (check.folder / "python").exists():
        return check.left_out("fft", "no build/gpu/python")
    if not needs(check, "fft", "cupy"):
        return None
    found = check.figures["fft"] = check.run_script("fft")
    for epoch in ("first_epoch", "last_epoch"):
        check.row(f"  {epoch.replace('_', ' ')}: step x CuPy's", f"{found[epoch]['over_cupy']:.3f}")
    check.at_most("fft: step x CuPy's", found["all_epochs"]["over_cupy"], 1.02, "{:.3f}")
    held = found["held_over_live"]
    check.at_most("fft: held / live", held["cistern"], held["cupy"], "{:.3f}")
    check.row("fft: results", "compared", "equal to CuPy's", found["equal"])


def training(check, model):
    if not needs(check, model, "torch", *(["torchvision"] if model == "resnet" else [])):
        return
    found = check.figures[model] = check.run_script("train", "--model", model, "--library",
                                                    check.folder / "libcistern.so")
    ours, expandable = (next(row for row in found if row["allocator"] == name) for name in ("cistern", "expandable"))
    check.row("  first epoch: step x expandable", f"{ours['first_epoch']['over_expandable']:.3f}")
    for part in ("later_epochs", "all_epochs"):
        check.at_most(f"{model}, {part.replace('_', ' ')}: step x expandable", ours[part]["over_expandable"], 1.02,
                      "{:.3f}")
    check.at_most(f"{model}: reserved / allocated", ours["reserved_over_allocated"],
                  expandable["reserved_over_allocated"], "{:.3f}")
    difference = ours["largest_difference_of_losses"]
    check.row(f"{model}: losses beside PyTorch's own",
              f"{ours['equal_losses']} equal, differ by {difference:.1e}", "equal", difference == 0)


def peers(check):
    found = check.figures["peers"] = check.run_script("peers")
    for name, rows in found.items():
        check.row(f"{name}, ns", " ".join(f"{ns:.0f}" for ns in rows.values()))


PARTS = {"tests": tests, "pairs": pairs, "pinned": pinned, "streams": streams, "crossing": crossing, "traces": traces,
         "fft": fft, "transformer": lambda check: training(check, "transformer"),
         "resnet": lambda check: training(check, "resnet"), "peers": peers}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", metavar="PART", nargs="*",
                        help=f"those to run (default all): {', '.join(PARTS)}")
    parser.add_argument("--folder", type=Path, default=TREE / "build/gpu", help="made by ./dev gpu (default build/gpu)")
    parser.add_argument("--json", help="write all figures to this file")
    arguments = parser.parse_args()
    unknown = [part for part in arguments.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]!r}; there are: {', '.join(PARTS)}")
    if not (arguments.folder / "cistern_cuda").exists():
        parser.error(f"{arguments.folder} has no programs: run ./dev gpu first")
    check = Check(arguments.folder.resolve(), arguments.json)
    if stand_in := os.environ.get("CISTERN_CUDA_DRIVER"):
        check.row("CISTERN_CUDA_DRIVER", stand_in, "the device's own driver", False)
    for part in arguments.parts or PARTS:
        begin = time.monotonic()
        print(f"{part} ...", flush=True)
        try:
            PARTS[part](check)
        except Exception as error:  # the other parts count all the same
            check.row(part, f"{type(error).__name__}: {error}", "to end", False)
        print(f"  {time.monotonic() - begin:.0f} s")
        check.save()
    broken = [row["what"] for row in check.rows if row["holds"] is False]
    held = sum(row["holds"] is True for row in check.rows)
    print(f"{held} limits hold" + (f", {len(broken)} DO NOT: {'; '.join(broken)}" if broken else ""))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
