#!/usr/bin/env python3
"""Each rule of tools/check_layers.py bites, and a clean tree passes."""
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))
import check_layers  # noqa: E402

LAYERS = """# comment
base:
env:   base
store: base env
!<sqlite3.h>: store
!<fcntl.h>: env
"""


class Rules(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        self.write("tools/layers.txt", LAYERS)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def problems(self, name, *includes):
        """What is wrong when the file `name` has these includes."""
        path = self.write(name, "".join(f"#include {include}\n" for include in includes))
        problems, seen = check_layers.check(self.root)
        path.unlink()
        self.assertEqual(seen, len(includes))
        return problems

    def passes(self, name, *includes):
        self.assertEqual(self.problems(name, *includes), [])

    def fails(self, name, include, text):
        problems = self.problems(name, include)
        self.assertEqual(len(problems), 1)
        self.assertIn(text, problems[0])
        self.assertTrue(problems[0].startswith(f"{name}:1: "), problems[0])

    def test_downwards_itself_and_public_headers_pass(self):
        self.passes("src/store/a.c", '"base/a.h"', '"env/a.h"', '"store/a.h"', '"kvarve/a.h"')

    def test_upwards_fails(self):
        self.fails("src/env/a.c", '"store/a.h"', "env may not include store")

    def test_a_folder_that_nobody_listed_fails(self):
        self.fails("src/other/a.c", '"base/a.h"', "not in tools/layers.txt")

    def test_a_header_without_its_folder_fails(self):
        self.fails("src/env/a.c", '"a.h"', "name the folder")
        self.fails("src/env/a.c", '"../base/a.h"', "name the folder")

    def test_foreign_private_headers_fail(self):
        self.passes("src/store/a.c", '"store/a_private.h"')
        self.fails("src/store/a.c", '"env/a_private.h"', "private to env")

    def test_a_system_header_has_a_home(self):
        self.passes("src/store/a.c", "<sqlite3.h>")
        self.fails("src/env/a.c", "<sqlite3.h>", "belongs to store")
        self.passes("src/env/a.c", "<fcntl.h>")
        self.fails("src/store/a.c", "<fcntl.h>", "belongs to env")

    def test_plain_c_passes_and_an_unknown_system_header_fails(self):
        self.passes("src/base/a.c", "<string.h>", "<stdint.h>")
        self.fails("src/env/a.c", "<sys/statvfs.h>", "give it a home")
        self.fails("src/base/a.c", "<surprise.h>", "give it a home")

    def test_public_headers_include_only_public_ones(self):
        self.passes("include/kvarve/a.h", "<stdint.h>", '"kvarve/b.h"')
        self.fails("include/kvarve/a.h", '"base/a.h"', "only kvarve/")
        self.fails("include/kvarve/a.h", "<fcntl.h>", "not plain C")

    def test_examples_use_what_users_have(self):
        self.passes("examples/a.c", "<stdio.h>", "<fcntl.h>", '"kvarve/a.h"', "<pthread.h>")
        self.fails("examples/a.c", '"base/a.h"', "only kvarve/")
        self.fails("examples/a.c", "<sqlite3.h>", "not plain C or POSIX")

    def test_tests_may_include_everything_by_full_path(self):
        self.passes("tests/unit/env/a.c", '"env/a_private.h"', "<cmocka.h>", '"support/a.h"')
        self.fails("tests/unit/env/a.c", '"a.h"', "name the folder")
        self.write("tests/unit/env/beside.h", "int a;\n")
        self.passes("tests/unit/env/a.c", '"beside.h"')
        self.fails("tests/unit/env/a.c", '"../env/beside.h"', "name the folder")

    def test_an_include_in_a_comment_does_not_count(self):
        self.write("src/env/a.c", '/* like\n#include "store/a.h"\n*/\n')
        self.assertEqual(check_layers.check(self.root), ([], 0))

    def test_layers_in_the_wrong_order_are_refused(self):
        self.write("tools/layers.txt", "env: base\nbase:\n")
        with self.assertRaises(SystemExit):
            check_layers.check(self.root)
        self.write("tools/layers.txt", "env:\n!<fcntl.h>: nowhere\n")
        with self.assertRaises(SystemExit):
            check_layers.check(self.root)


if __name__ == "__main__":
    unittest.main()
