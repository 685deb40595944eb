#!/usr/bin/env python3
"""`kvarve bench` with small sizes: every bench runs, every line has the agreed form, and what is
counted comes out exactly. No timing decides.

Usage: test_bench.py KVARVE MAKE_STORE [unittest options]
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

KEYS = ["bench", "figure", "unit", "value", "yardstick", "ratio", "reach", "ok", "runs"]
SIZES = {
    "reference": ["--page-bytes", "16384"],
    "replay": ["--page-bytes", "16384"],
    "identity": ["--count", "8192"],
    "find": ["--count", "1000"],
    "index-growth": ["--count", "500"],
    "put": ["--bytes", "4000000", "--page-bytes", "65536"],
    "restore": ["--bytes", "4000000", "--page-bytes", "65536"],
    "restore-ram": ["--bytes", "4000000", "--page-bytes", "65536"],
}
# Pages a checkpoint: 4 ranks x (7 fixed + ceil(N / 4096)).
PAGES = {1000: 32, 8000: 36, 31900: 60, 197000: 224}
TURNS = {32924: 36, 33948: 32, 34972: 32, 35996: 32, 37020: 36, 38044: 32}

KVARVE = None
MAKE_STORE = None


class BenchTest(unittest.TestCase):
    """One test a bench."""

    def setUp(self):
        # Where the program is built: its file system takes direct I/O more often than others.
        folder = tempfile.TemporaryDirectory(dir=os.path.dirname(KVARVE))
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def kvarve(self, *arguments):
        return subprocess.run([KVARVE, *map(str, arguments)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=200, check=False,
                              cwd=self.folder)

    def figures(self, name, runs=2):
        """Run it; its lines by figure, each checked for its form."""
        result = self.kvarve("bench", name, "--json", "--runs", runs, *SIZES[name])
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        found = {}
        for line in result.stdout.splitlines():
            figure = json.loads(line)
            self.check_form(name, figure)
            found[figure["figure"]] = figure
        self.assertEqual(list(self.folder.iterdir()), [])
        return found

    def check_form(self, name, figure):
        self.assertEqual([key for key in figure if key in KEYS], KEYS)
        self.assertEqual(figure["bench"], name)
        self.assertIs(type(figure["ok"]), bool)
        self.assertEqual(figure["yardstick"] is None, figure["ratio"] is None)
        self.assertEqual("yardstick_runs" in figure, figure["yardstick"] is not None)
        self.assertEqual(figure["sizes"], "lowered by flags")
        self.assertGreater(len(figure["runs"]), 0)
        if len(figure["runs"]) % 2 == 1:
            self.assertIn(figure["value"], figure["runs"])

    def check_counts(self, figures, what, tokens, pages):
        figure = figures[f"{what} N={tokens} pages"]
        self.assertEqual((figure["value"], figure["ok"], figure["reach"]),
                         (pages, True, f"<= {pages}"))
        figure = figures[f"{what} N={tokens} payload"]
        self.assertEqual((figure["value"], figure["ok"]), (pages * 16384, True))
        other = figures[f"{what} N={tokens} index and records"]["value"]
        if pages == 0:
            self.assertEqual(other, 0)
        else:
            self.assertGreater(other, 0)

    def test_reference(self):
        figures = self.figures("reference")
        for tokens, pages in PAGES.items():
            self.check_counts(figures, "first put", tokens, pages)
            self.check_counts(figures, "exact replay", tokens, 0)
            self.check_counts(figures, "replay after restart", tokens, 0)
        for tokens, pages in TURNS.items():
            self.check_counts(figures, "turn", tokens, pages)
        self.assertGreater(figures["segment files, st_blocks"]["value"], 0)
        self.assertEqual(len(figures), 3 * (3 * len(PAGES) + len(TURNS)) + 2)

    def test_replay(self):
        figures = self.figures("replay")
        self.check_counts(figures, "first put", 31900, PAGES[31900])
        self.check_counts(figures, "exact replay", 31900, 0)
        self.check_counts(figures, "replay after restart", 31900, 0)

    def test_identity(self):
        figures = self.figures("identity", runs=3)
        self.assertEqual(set(figures), {"one group", "each further group", "1000 tokens appended"})
        for figure in figures.values():
            self.assertEqual(len(figure["runs"]), 3)
            self.assertEqual(len(figure["yardstick_runs"]), 3)

    def test_find(self):
        figures = self.figures("find")
        self.assertEqual(figures["checkpoints"]["value"], 1000)
        self.assertEqual(len(figures), 11)
        for name in ("index a checkpoint", "memory a checkpoint with one page"):
            self.assertIn(figures[name]["value"], range(100, 1000))

    def test_index_growth(self):
        figures = self.figures("index-growth")
        self.assertEqual(len(figures), 8)
        for name, figure in figures.items():
            self.assertTrue(figure["ok"], name)  # counted, not timed

    def test_put(self):
        self.assertEqual(set(self.figures("put")),
                         {"durable put, fresh space", "durable put, reused space"})

    def test_restore(self):
        self.assertEqual(set(self.figures("restore")),
                         {"verified restore", "verified restore after churn"})

    def test_restore_ram(self):
        self.assertEqual(set(self.figures("restore-ram")), {"verified restore from the arena"})

    def test_list_explains_each(self):
        result = self.kvarve("bench", "--list", "--json")
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual([row["bench"] for row in rows], list(SIZES))
        self.assertTrue(all(len(row["text"]) > 20 for row in rows))
        text = self.kvarve("bench", "--list").stdout
        self.assertEqual([line.split()[0] for line in text.splitlines()], list(SIZES))

    def test_text_for_people_says_that_sizes_are_lowered(self):
        result = self.kvarve("bench", "identity", "--count", "8192", "--runs", "1")
        self.assertEqual(result.returncode, 0)
        self.assertEqual(result.stdout.count("[sizes lowered by flags]"), 3)

    def test_a_folder_of_the_callers_is_kept(self):
        place = self.folder / "scratch"
        place.mkdir()
        (place / "letter").write_text("mine")
        result = self.kvarve("bench", "replay", *SIZES["replay"], "--store", place)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([path.name for path in place.iterdir()], ["letter"])

    def test_keep_leaves_the_store(self):
        place = self.folder / "scratch"
        result = self.kvarve("bench", "find", *SIZES["find"], "--runs", 1, "--store", place,
                             "--keep")
        self.assertEqual(result.returncode, 0, result.stderr)
        listing = self.kvarve("ls", "--store", place / "kvarve-bench-store", "--json")
        self.assertEqual(json.loads(listing.stdout)["totals"]["checkpoints"], 1000)

    def test_a_store_and_a_file_are_refused(self):
        subprocess.run([MAKE_STORE, str(self.folder / "store")], check=True,
                       stdout=subprocess.DEVNULL, timeout=60)
        (self.folder / "file").write_text("mine")
        for place, says in (("store", "is a store"), ("file", "is a file")):
            result = self.kvarve("bench", "identity", "--store", place)
            self.assertEqual(result.returncode, 2)
            self.assertIn(says, result.stderr)

    def test_sizes_out_of_range_are_refused(self):
        for arguments in (["find", "--count", "999"], ["identity", "--count", "4095"],
                          ["put", "--page-bytes", "65000"], ["reference", "--page-bytes", "8M"],
                          ["restore", "--bytes", "4096"]):
            result = self.kvarve("bench", *arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertNotEqual(result.stderr, "")


if __name__ == "__main__":
    KVARVE, MAKE_STORE = (os.path.abspath(path) for path in sys.argv[1:3])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
