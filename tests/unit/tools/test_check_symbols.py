#!/usr/bin/env python3
"""tools/check_symbols.py sees a symbol too many and one too few, in either library."""
import contextlib
import io
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))
import check_symbols  # noqa: E402


class Symbols(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.build = pathlib.Path(self.folder.name)
        self.list = self.build / "symbols.txt"

    def make(self, shared, static):
        """The two libraries, with these functions exported."""
        for name, functions in (("so", shared), ("a", static)):
            source = self.build / f"{name}.c"
            source.write_text("".join(f"int {function};\n" for function in functions))
            if name == "so":
                command = ["gcc", "-shared", "-fPIC", str(source), "-o", "libkvarve.so"]
                subprocess.run(command, cwd=self.build, check=True)
                continue
            subprocess.run(["gcc", "-c", str(source), "-o", "a.o"], cwd=self.build, check=True)
            subprocess.run(["ar", "rcs", "libkvarve.a", "a.o"], cwd=self.build, check=True)

    def check(self, update=False):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            status = check_symbols.check(self.build, self.list, update)
        return status, text.getvalue()

    def test_equal_lists_pass(self):
        self.make(["a", "b"], ["a", "b"])
        self.assertEqual(self.check(update=True)[0], 0)
        self.assertEqual(self.check()[0], 0)
        self.assertEqual(self.list.read_text().splitlines()[1:], ["a", "b"])

    def test_a_symbol_too_many_fails(self):
        self.list.write_text("a\n")
        self.make(["a", "b"], ["a"])
        self.assertEqual(self.check()[0], 1)
        self.make(["a"], ["a", "b"])
        status, text = self.check()
        self.assertEqual(status, 1)
        self.assertIn("libkvarve.a: exports b", text)

    def test_a_symbol_too_few_fails(self):
        self.list.write_text("a\nb\n")
        self.make(["a"], ["a", "b"])
        status, text = self.check()
        self.assertEqual(status, 1)
        self.assertIn("libkvarve.so: lacks b", text)

    def test_an_empty_list_fails(self):
        self.make([], [])
        self.assertEqual(self.check()[0], 1)

    def test_without_libraries_it_is_a_counted_skip(self):
        status, text = self.check()
        self.assertEqual(status, 0)
        self.assertIn("1 skipped", text)


if __name__ == "__main__":
    unittest.main()
