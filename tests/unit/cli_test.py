#!/usr/bin/env python3
"""Runs the command `cistern` as a user would.

    cli_test.py CISTERN [TEST...]     CISTERN is the executable
"""

import gzip
import json
import os
import pty
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CISTERN = ""
TRACES = Path(__file__).resolve().parents[3] / "shared/traces"
HEADER = "event,pool,id,bytes,stream\n"
ROWS = "a,p,0,640,0\nr,p,0,640,0\na,p,1,640,0\na,p,2,128,0\n"  # exact fit: 1 hit, 2 misses
PROMISED_KEYS = {"acquires", "hits", "misses", "evictions", "peak_live_bytes", "peak_held_bytes",
                 "waste_bytes", "moves"}


def cistern(*arguments):
    return subprocess.run([CISTERN, *map(str, arguments)], capture_output=True, text=True, timeout=200)


class CommandLine(unittest.TestCase):
    def test_prints_its_version(self):
        run = cistern("--version")
        self.assertEqual(run.returncode, 0)
        self.assertRegex(run.stdout, r"^cistern \d+\.\d+\.\d+\n$")

    def test_helps_with_examples(self):
        for arguments in [["--help"], ["replay", "--help"], ["demo", "--help"]]:
            with self.subTest(arguments):
                run = cistern(*arguments)
                self.assertEqual(run.returncode, 0)
                self.assertIn("Examples:", run.stdout)
                self.assertEqual(run.stderr, "")

    def test_hides_the_command_that_only_the_demo_runs(self):
        self.assertNotIn("demo-run", cistern("--help").stdout)

    def test_shows_the_help_as_an_error_when_no_command_is_given(self):
        run = cistern()
        self.assertEqual(run.returncode, 2)
        self.assertEqual(run.stdout, "")
        self.assertIn("Usage: cistern", run.stderr)

    def test_names_an_unknown_command_and_those_there_are(self):
        run = cistern("repaly", "trace.csv")
        self.assertEqual(run.returncode, 2)
        self.assertEqual(run.stderr,
                         "cistern: unknown command 'repaly'; the commands are: demo, replay\n")

    def test_names_an_unknown_option(self):
        for arguments in [["--fast"], ["replay", "--fast", "trace.csv"], ["demo", "--fast"]]:
            with self.subTest(arguments):
                run = cistern(*arguments)
                self.assertEqual(run.returncode, 2)
                self.assertIn("--fast", run.stderr)


    def test_fails_when_its_output_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            run = subprocess.run([CISTERN, "--version"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(run.returncode, 1)
        self.assertEqual(run.stderr, "cistern: cannot write the output\n")


class Replay(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, name, text):
        path = Path(self.folder.name) / name
        if name.endswith(".gz"):
            path.write_bytes(gzip.compress(text.encode()))
        else:
            path.write_text(text)
        return path

    def replay_json(self, *arguments):
        run = cistern("replay", "--json", *arguments)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stderr, "")
        return json.loads(run.stdout)

    def assert_refused(self, run, *parts):
        self.assertEqual(run.returncode, 2)
        self.assertEqual(run.stdout, "")
        self.assertTrue(run.stderr.startswith("cistern: "), run.stderr)
        for part in parts:
            self.assertIn(part, run.stderr)

    def test_counts_what_one_can_count_by_hand(self):
        result = self.replay_json("--fit", "exact", self.file("t.csv", HEADER + ROWS))
        self.assertLessEqual(PROMISED_KEYS, result.keys())
        self.assertEqual(result["acquires"], 3)
        self.assertEqual(result["hits"], 1)
        self.assertEqual(result["misses"], 2)
        self.assertEqual(result["evictions"], 0)
        self.assertEqual(result["peak_live_bytes"], 640 + 128)
        self.assertEqual(result["peak_held_bytes"], 640 + 128)
        self.assertEqual(result["waste_bytes"], 0)
        self.assertEqual(result["moves"], 0)

    def test_reads_gzip_and_plain_alike(self):
        plain, zipped = self.replay_json(self.file("t.csv", HEADER + ROWS),
                                         self.file("t.csv.gz", HEADER + ROWS))
        for key in PROMISED_KEYS:
            self.assertEqual(plain[key], zipped[key], key)

    def test_prints_an_array_with_names_for_several_files(self):
        files = [self.file("one.csv", HEADER + ROWS), self.file("two.csv", HEADER)]
        results = self.replay_json(*files)
        self.assertEqual([result["file"] for result in results], [str(file) for file in files])
        self.assertEqual([result["acquires"] for result in results], [3, 0])

    def test_prints_a_table_without_json(self):
        run = cistern("replay", self.file("steps.csv", HEADER + ROWS))
        self.assertEqual(run.returncode, 0)
        header, row = run.stdout.splitlines()
        self.assertIn("peak held", header)
        self.assertTrue(row.startswith("steps "), row)

    def test_accepts_every_option_together(self):
        result = self.replay_json("--fit", "best:0.5", "--max-bytes", "1MiB", "--max-idle-bytes", "64 KiB",
                                  "--max-idle-buffers", "4", "--evict", "largest", "--repeat", "5",
                                  self.file("t.csv", HEADER + ROWS))
        self.assertEqual(result["acquires"], 15)

    def test_obeys_limits_given_with_a_unit(self):
        trace = self.file("t.csv", HEADER + "a,p,0,2048,0\nr,p,0,2048,0\na,p,1,2048,0\n")
        self.assertEqual(self.replay_json("--fit", "exact", "--max-idle-bytes", "2KiB", trace)["hits"], 1)
        dropped = self.replay_json("--fit", "exact", "--max-idle-bytes", "1KiB", trace)
        self.assertEqual(dropped["hits"], 0)
        self.assertEqual(dropped["evictions"], 1)

    def test_reports_what_does_not_fit_under_max_bytes(self):
        trace = self.file("t.csv", HEADER + ROWS)
        self.assertEqual(self.replay_json("--fit", "exact", "--max-bytes", "640", trace)["failures"], 1)
        self.assertIn("1 acquires failed", cistern("replay", "--fit", "exact", "--max-bytes", "640", trace).stdout)

    def test_takes_a_huge_multiple_of_the_peak_for_no_limit(self):
        trace = self.file("t.csv", HEADER + ROWS)
        self.assertEqual(self.replay_json("--max-bytes", "1e300x", trace)["failures"], 0)

    def test_blames_a_limit_only_if_there_is_one(self):
        trace = self.file("t.csv", HEADER + "a,p,0,18446744073709551615,0\n")
        run = cistern("replay", trace)
        self.assertIn("1 acquires failed: the memory has no room", run.stdout)

    def test_names_the_option_and_the_value_it_refuses(self):
        for option, value in [("--fit", "tight"), ("--fit", "best:2"), ("--fit", "best:x"), ("--fit", "fixed"),
                              ("--fit", "fixed:12MB"), ("--fit", "elastic:1"), ("--max-bytes", "-5"),
                              ("--max-bytes", "infx"), ("--max-bytes", "nanx"), ("--memory", "device:4294967296"),
                              ("--max-bytes", "1e9"), ("--max-idle-bytes", "99999999999GiB"),
                              ("--max-idle-bytes", "12 "), ("--max-idle-buffers", "2KiB"),
                              ("--evict", "newest"), ("--repeat", "0"), ("--repeat", "-1")]:
            with self.subTest(option=option, value=value):
                run = cistern("replay", option, value, "trace.csv")
                self.assert_refused(run, option, value.split(":")[-1])

    def test_names_file_and_line_of_a_bad_row(self):
        trace = self.file("t.csv", HEADER + "a,p,0,64,0\nx,p,0,64,0\n")
        self.assert_refused(cistern("replay", trace), f"{trace}:3: ", "'x'")

    def test_names_a_file_that_it_cannot_read(self):
        truncated = self.file("t.csv.gz", HEADER + ROWS)
        truncated.write_bytes(truncated.read_bytes()[:-6])
        for path, reason in [("/nowhere.csv", "No such file"), (self.folder.name, "Is a directory"),
                             (self.file("empty.csv", ""), "empty"), (truncated, "truncated")]:
            with self.subTest(path=path):
                self.assert_refused(cistern("replay", path), str(path), reason)

    def test_names_the_request_that_is_larger_than_a_fixed_block(self):
        trace = self.file("t.csv", HEADER + ROWS)
        self.assert_refused(cistern("replay", "--fit", "fixed:256", trace), f"{trace}:2: ", "640")

    def test_asks_for_a_file(self):
        self.assert_refused(cistern("replay"), "FILE is required")

    def test_shows_progress_on_a_terminal_only(self):
        trace = self.file("t.csv", HEADER + ROWS)
        arguments = [CISTERN, "replay", "--repeat", "20000", str(trace)]
        self.assertEqual(cistern(*arguments[1:]).stderr, "")
        try:
            leader, follower = pty.openpty()
        except OSError as error:
            self.skipTest(str(error))
        subprocess.run(arguments, stdout=subprocess.DEVNULL, stderr=follower, check=True)
        os.close(follower)
        self.assertIn(b"replaying t", os.read(leader, 100_000))
        os.close(leader)

    def test_replays_every_recorded_trace(self):
        if not TRACES.is_dir():
            self.skipTest(f"no recorded traces in {TRACES}")
        for result in self.replay_json(*sorted(TRACES.glob("*.gz"))):
            with self.subTest(result["file"]):
                self.assertEqual(result["acquires"], result["hits"] + result["misses"])
                self.assertGreaterEqual(result["peak_held_bytes"], result["peak_live_bytes"])


class Demo(unittest.TestCase):
    def test_compares_three_stores_and_checks_that_results_agree(self):
        run = cistern("demo", "--seconds", "1", "--scale", "small", "--json")
        self.assertEqual(run.returncode, 0, run.stderr)
        result = json.loads(run.stdout)
        self.assertTrue(result["same_result"])
        self.assertEqual([workload["name"] for workload in result["workloads"]],
                         ["cells", "fluid", "einsum", "actors"])
        for workload in result["workloads"]:
            self.assertGreater(workload["steps"], 0)
            for store in ["cistern", "malloc", "seed"]:
                for key in ["seconds", "page_faults", "peak_held_bytes", "peak_live_bytes"]:
                    self.assertGreater(workload[store][key], 0, (workload["name"], store, key))
            self.assertGreater(workload["cistern"]["hit_rate"], 0)
            self.assertIsNone(workload["malloc"]["hit_rate"])

    def test_runs_one_workload_and_prints_a_row_for_each_store(self):
        run = cistern("demo", "--only", "fluid", "--scale", "small", "--seconds", "1")
        self.assertEqual(run.returncode, 0, run.stderr)
        rows = run.stdout.splitlines()
        self.assertEqual([row[10:23].strip() for row in rows[1:4]],
                         ["Cistern", "malloc", "seed's rule"])
        self.assertEqual(rows[4], "")
        self.assertEqual(run.stderr, "")

    def test_lists_the_workloads(self):
        run = cistern("demo", "--list")
        self.assertEqual(run.returncode, 0, run.stderr)
        for name in ["cells", "fluid", "einsum", "actors"]:
            self.assertRegex(run.stdout, f"(?m)^{name} ")

    def test_refuses_a_workload_that_does_not_exist(self):
        run = cistern("demo", "--only", "weather")
        self.assertEqual(run.returncode, 2)
        self.assertIn("'weather'", run.stderr)

    def test_refuses_a_time_that_is_none(self):
        for seconds in ["0", "-3", "soon"]:
            with self.subTest(seconds):
                run = cistern("demo", "--seconds", seconds)
                self.assertEqual(run.returncode, 2)
                self.assertIn(f"'{seconds}'", run.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    CISTERN = str(Path(sys.argv.pop(1)).resolve())
    unittest.main()
