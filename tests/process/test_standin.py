#!/usr/bin/env python3
"""The stand-in engine over a real store: equal outputs whatever is restored, and other ones when a
restore is wrong.

Usage: test_standin.py KVARVE_STANDIN KVARVE [unittest options]
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

STANDIN = None
KVARVE = None
# By layout: its groups; which of them are states, and which auxiliaries.
LAYOUTS = {
    "dense": (2, [], []),
    "window": (3, [], []),
    "hybrid": (6, [3, 4, 5], [5]),
    "rows": (4, [2, 3], [3]),
    "drafted": (5, [1, 2, 4], [2, 4]),
    "context": (3, [2], []),
}
BLOCK_FAULTS = ["stale", "foreign", "half"]


class Run:
    """What one run said."""

    def __init__(self, result):
        self.code, self.text = result.returncode, result.stdout + result.stderr
        output = re.search(r"^output ([0-9a-f]{16})$", result.stdout, re.M)
        self.output = output.group(1) if output else None

    def count(self, pattern):
        """The number in front of these words."""
        found = re.search(rf"(\d+) {pattern}", self.text)
        return int(found.group(1)) if found else None

    @property
    def restored(self):
        found = re.search(r"^restored (\d+) tokens", self.text, re.M)
        return int(found.group(1)) if found else None


class StandinTest(unittest.TestCase):
    """Each test has a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="kvarve-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.store = self.folder / "store"

    def run_it(self, *arguments, store=None):
        command = [STANDIN, "--store", str(store or self.store), "--arena", "2", *arguments]
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                timeout=120, check=False)
        return Run(result)

    def assert_right(self, run):
        """It ended well; with --check: its output is right."""
        self.assertEqual(run.code, 0, run.text)
        self.assertIsNotNone(run.output, run.text)

    def warm(self, *arguments):
        """A store that has been run over once."""
        run = self.run_it("--check", *arguments)
        self.assert_right(run)
        return run

    # --- right outputs ---

    def test_an_empty_and_a_warm_store_give_the_output_of_none(self):
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                arguments = ["--layout", layout, "--turns", "5", "--conversations", "6"]
                store = self.folder / layout
                none = self.run_it(*arguments, store="none")
                empty = self.run_it(*arguments, store=store)
                warm = self.run_it(*arguments, "--expect-hits", store=store)
                for run in (none, empty, warm):
                    self.assert_right(run)
                    self.assertEqual(run.output, none.output)
                self.assertEqual(none.restored, 0)
                self.assertGreater(warm.restored, empty.restored)
                self.assertLess(warm.count("misses"), empty.count("misses"))

    def test_each_number_of_ranks_is_restored(self):
        for ranks in ("1", "2", "4"):
            with self.subTest(ranks=ranks):
                arguments = ["--ranks", ranks, "--layout", "context", "--turns", "2"]
                self.warm(*arguments)
                self.assert_right(self.run_it("--check", "--expect-hits", *arguments))

    def test_what_one_way_of_copying_stored_another_restores(self):
        ways = ["copy", "place", "write"]
        arguments = ["--turns", "2", "--conversations", "2"]
        for way, other in zip(ways, ways[1:] + ways[:1]):
            with self.subTest(stored=way, restored=other):
                store = self.folder / way
                first = self.run_it("--check", "--transfer", way, *arguments, store=store)
                second = self.run_it("--check", "--expect-hits", "--transfer", other, *arguments,
                                     store=store)
                self.assert_right(first)
                self.assert_right(second)

    def test_puts_that_are_given_up_leave_their_pages_to_others(self):
        run = self.run_it("--check", "--abort-every", "2", "--turns", "3")
        self.assert_right(run)
        self.assertGreater(run.count("given up"), 0, run.text)
        self.assertGreater(run.count("durable"), 0, run.text)

    def test_hits_do_not_depend_on_time_where_each_turn_waits(self):
        restored = set()
        for number in range(2):
            run = self.run_it("--check", "--wait", "--turns", "3", store=self.folder / str(number))
            self.assert_right(run)
            restored.add(run.restored)
        self.assertEqual(len(restored), 1)

    def test_another_drafter_loses_the_drafters_half_alone(self):
        arguments = ["--layout", "drafted", "--turns", "2"]
        self.warm("--drafter", "1", *arguments)
        first = self.run_it("--check", "--expect-hits", "--drafter", "2", *arguments)
        second = self.run_it("--check", "--expect-hits", "--drafter", "0", *arguments)
        for run in (first, second):
            self.assert_right(run)
        self.assertGreater(first.count(r"without the drafter's half"), 0, first.text)
        self.assertGreater(second.restored, 0)

    # --- accidents ---

    def damage(self):
        """Flip a bit in many blocks of all segment files, behind their headers."""
        count = 0
        for path in sorted((self.store / "segments").iterdir()):
            content = bytearray(path.read_bytes())
            for at in range(len(content) // 2 // 4096 * 4096, len(content), 2 * 4096):
                count += any(content[at:at + 64])
                content[at + 17] ^= 4
            path.write_bytes(content)
        return count

    def test_damaged_pages_are_missed_and_repaired(self):
        arguments = ["--turns", "3", "--conversations", "4", "--wait"]
        self.warm(*arguments)
        whole = self.run_it("--check", *arguments)
        self.assertGreater(self.damage(), 0)
        damaged = self.run_it("--check", *arguments)
        repaired = self.run_it("--check", *arguments)
        for run in (whole, damaged, repaired):
            self.assert_right(run)
        self.assertGreater(damaged.count("loads failed"), 0, damaged.text)
        self.assertLess(damaged.restored, whole.restored)
        self.assertGreater(repaired.restored, damaged.restored)

    def test_a_killed_engine_goes_on_over_what_it_left(self):
        arguments = [STANDIN, "--store", str(self.store), "--arena", "2", "--turns", "6"]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
            for _ in range(7):
                self.assertIn("turn", process.stdout.readline())
            process.send_signal(signal.SIGKILL)
        self.assert_right(self.run_it("--check", "--turns", "6"))

    # --- through a daemon ---

    def serve(self):
        """A daemon over the store; returns what to open."""
        place = self.folder / "socket"
        command = [KVARVE, "serve", "--store", str(self.store), "--socket", str(place),
                   "--arena", "4M"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        reader = threading.Thread(target=process.stderr.read)  # or its log would fill the pipe
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        self.assertIn("serving", process.stderr.readline())
        reader.start()
        self.addCleanup(reader.join)
        self.addCleanup(process.terminate)
        return f"unix:{place}"

    def test_engines_share_a_daemons_store(self):
        place = self.serve()
        command = [STANDIN, "--store", place, "--turns", "3", "--check", "--abort-every", "3"]
        engines = [subprocess.Popen([*command, "--layout", layout], stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True)
                   for layout in ("hybrid", "hybrid", "drafted")]
        for engine in engines:
            text, _ = engine.communicate(timeout=120)
            self.assertEqual(engine.returncode, 0, text)
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                arguments = ["--layout", layout, "--turns", "2", "--check"]
                self.assert_right(self.run_it(*arguments, store=place))
                self.assert_right(self.run_it(*arguments, "--expect-hits", store=place))

    # --- the engine sees what is wrong ---

    def faults(self, layout):
        groups, states, auxiliaries = LAYOUTS[layout]
        for group in range(groups):
            yield f"byte:{group}:{group}"
            yield f"byte:{group}:{group + 7}"
            yield f"{BLOCK_FAULTS[group % 3]}:{group}"
        yield from (f"twice:{group}" for group in states)
        yield from (f"tie:{group}" for group in auxiliaries)

    def test_a_wrong_restore_changes_the_output(self):
        for layout in LAYOUTS:
            arguments = ["--layout", layout, "--turns", "2", "--conversations", "1", "--quiet"]
            store = self.folder / layout
            right = self.run_it(*arguments, store=store)
            self.assert_right(right)
            # What a broken run puts under right tokens is known already: it leaves no trace there.
            for fault in self.faults(layout):
                with self.subTest(layout=layout, fault=fault):
                    run = self.run_it("--break", fault, *arguments, store=store)
                    self.assert_right(run)
                    self.assertNotEqual(run.output, right.output)
            again = self.run_it("--check", *arguments, store=store)
            self.assert_right(again)
            self.assertEqual(again.output, right.output)

    def test_check_says_that_an_output_is_wrong(self):
        self.warm()
        run = self.run_it("--check", "--break", "byte:3")
        self.assertEqual(run.code, 1, run.text)
        self.assertIn("the output is wrong", run.text)

    # --- the command line ---

    def test_wrong_lines_are_refused(self):
        for line in (["--ranks", "9"], ["--turns", "x"], ["--break", "nothing"], ["more"],
                     ["--transfer", "fax"], ["--no-such-flag"]):
            with self.subTest(line=line):
                self.assertEqual(self.run_it(*line).code, 2)
        for line in (["--ranks", "0"], ["--layout", "none"], ["--drafter", "0"],
                     ["--break", "twice:0"], ["--ranks", "3", "--layout", "context"]):
            with self.subTest(line=line):
                self.assertEqual(self.run_it(*line).code, 3)
        self.assertFalse(self.store.exists())

    def test_no_hits_where_they_are_expected(self):
        self.assertEqual(self.run_it("--expect-hits", "--turns", "1", store="none").code, 4)

    def test_a_place_that_is_no_store_is_named(self):
        place = self.folder / "file"
        place.write_text("mine\n")
        run = self.run_it(store=place)
        self.assertEqual(run.code, 3)
        self.assertIn(str(place), run.text)


if __name__ == "__main__":
    STANDIN, KVARVE = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    unittest.main()
