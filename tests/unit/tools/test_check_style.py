#!/usr/bin/env python3
"""Each rule of tools/check_style.py bites, and a clean tree passes."""
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))
import check_style  # noqa: E402

HEADER = """/* box.h - a box. */
#ifndef KVARVE_ENV_BOX_H
#define KVARVE_ENV_BOX_H
#endif
"""
SOURCE = """/*
 * box.c - a box.
 */
int box(void);
"""
SLASH = "/"


class Tree(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        self.write("src/env/README.md", "# env\n")
        self.write("src/env/box.h", HEADER)
        self.write("src/env/box.c", SOURCE)
        self.write("src/store/README.md", "# store\n")
        self.write("docs/design/0007-later.md", "# 0007\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def problems(self):
        return check_style.check(self.root)[0]

    def rules(self):
        return sorted({problem.split(":")[2].strip() for problem in self.problems()})

    def c(self, code, name="src/store/thing.c"):
        """The rules that `code` breaks when it is the body of the C file `name`."""
        base = name.rsplit("/", 1)[1]
        self.write(name, f"/*\n * {base} - a thing.\n */\n{code}\n")
        return self.rules()


class Rules(Tree):
    def test_a_clean_tree_passes(self):
        self.assertEqual(self.problems(), [])

    def test_each_banned_call_is_found(self):
        for name in check_style.BANNED:
            with self.subTest(name):
                rule = "banned-sleep" if name.endswith("sleep") else "banned"
                self.assertEqual(self.c(f"int x = {name}(y);"), [rule])

    def test_banned_calls_are_found_in_tests_but_not_in_examples(self):
        self.assertEqual(self.c("int x = malloc(1);", "tests/unit/env/test_a.c"), ["banned"])
        self.assertEqual(self.c("int x = sleep(1);", "tests/unit/env/test_a.c"), ["banned-sleep"])
        (self.root / "tests/unit/env/test_a.c").unlink()
        self.assertEqual(self.c("int x = malloc(1);", "examples/a.c"), [])

    def test_names_that_only_look_like_banned_calls_pass(self):
        self.assertEqual(self.c("int x = a->free(b) + a.free(b) + kvarve_prefix_free(c);"), [])
        self.assertEqual(self.c('/* calls free(x) */ const char *a = "free(x)";'), [])

    def test_the_allocator_may_allocate_and_env_may_sleep(self):
        self.write("src/base/README.md", "# base\n")
        self.assertEqual(self.c("int x = malloc(1);", "src/base/alloc.c"), [])
        self.assertEqual(self.c("int x = nanosleep(1);", "src/env/thread.c"), [])
        self.assertEqual(self.c("int x = malloc(1);", "src/env/thread.c"), ["banned"])

    def test_a_line_is_excused_from_one_rule_with_a_reason(self):
        excuse = "/* style: banned, jansson frees with free */"
        self.assertEqual(self.c(f"int x = free(y); {excuse}"), [])
        self.assertEqual(self.c("int x = free(y); /* style: banned, */"), ["banned"])
        self.assertEqual(self.c(f"int x = errno; {excuse}"), ["errno"])

    def test_printing_is_for_programs(self):
        for name in check_style.PRINTS:
            with self.subTest(name):
                self.assertEqual(self.c(f"int x = {name}(y);"), ["printf"])
        self.assertEqual(self.c("int x = snprintf(y);"), [])
        for folder in ("cli", "bench"):
            self.write(f"src/{folder}/README.md", "# x\n")
            self.assertEqual(self.c("int x = printf(y);", f"src/{folder}/a.c"), [])

    def test_errno_lives_in_env(self):
        self.assertEqual(self.c("#include <errno.h>\nint x = -EIO;"), [])
        self.assertEqual(self.c("int x = errno;"), ["errno"])
        self.assertEqual(self.c("int x = os_errno + negative_errno;"), [])
        (self.root / "src/store/thing.c").unlink()
        self.assertEqual(self.c("int x = errno;", "src/env/io.c"), [])

    def test_unfinished_work_names_a_design_note(self):
        mark = "TO" + "DO"
        self.assertEqual(self.c(f"/* {mark} later */"), ["unfinished"])
        self.assertEqual(self.c("/* FIX" + "ME */"), ["unfinished"])
        self.assertEqual(self.c(f"/* {mark}(0007): then */"), [])
        self.assertEqual(self.c(f"/* {mark}(0008): then */"), ["unfinished"])

    def test_layout_of_text(self):
        self.assertEqual(self.c("\tint x;"), ["tab"])
        self.assertEqual(self.c("int x; "), ["trailing-space"])
        self.assertEqual(self.c("int x = " + "1" * 92 + ";"), ["columns"])
        self.assertEqual(self.c("int x = " + "1" * 91 + ";"), [])
        self.write("src/store/thing.c", SOURCE.replace("box.c", "thing.c").rstrip("\n"))
        self.assertEqual(self.rules(), ["newline"])

    def test_a_makefile_may_hold_tabs(self):
        self.write("Makefile", "all:\n\ttrue\n")
        self.assertEqual(self.rules(), [])
        self.write("cmake/a.cmake", "\tset(a)\n")
        self.assertEqual(self.rules(), ["tab"])

    def test_comments_are_of_one_kind(self):
        self.assertEqual(self.c("int x; // why"), ["comment"])
        self.assertEqual(self.c('const char *x = "http://";'), [])

    def test_a_file_begins_with_its_name(self):
        self.write("src/store/thing.c", "int x;\n")
        self.assertEqual(self.rules(), ["head"])
        self.write("src/store/thing.c", "/*\n * other.c - a thing.\n */\n")
        self.assertEqual(self.rules(), ["head"])
        self.write("src/store/thing.c", "/* thing.c - a thing. */\n")
        self.assertEqual(self.rules(), [])

    def test_include_guards_name_folder_and_file(self):
        self.write("src/env/box.h", HEADER.replace("ENV_BOX", "BOX"))
        self.assertEqual(self.rules(), ["guard"])
        self.write("src/env/box.h", HEADER)
        public = HEADER.replace("KVARVE_ENV_BOX_H", "KVARVE_BOX_H")
        self.write("include/kvarve/box.h", public)
        self.assertEqual(self.rules(), [])

    def test_each_folder_of_src_has_a_short_readme(self):
        (self.root / "src/env/README.md").unlink()
        self.assertEqual(self.rules(), ["readme"])
        self.write("src/env/README.md", "line\n" * 41)
        self.assertEqual(self.rules(), ["readme"])
        self.write("src/env/README.md", "line\n" * 40)
        self.assertEqual(self.rules(), [])

    def test_long_files_only_get_shorter(self):
        self.assertEqual(self.c("int x;\n" * 797), ["long"])
        self.write("tools/long_files.txt", "# why\nsrc/store/thing.c 801\n")
        self.assertEqual(self.rules(), [])
        self.c("int x;\n" * 796)
        self.assertEqual(self.rules(), ["long"])

    def test_places_on_one_machine_are_not_named(self):
        for place in ("wor" + "k", "hom" + "e", "roo" + "t", "tm" + "p"):
            with self.subTest(place):
                self.write("docs/a.md", f"see {SLASH}{place}{SLASH}x\n")
                self.assertEqual(self.rules(), ["machine-path"])
                self.write("docs/a.md", f"see a{SLASH}{place}{SLASH}x\n")
                self.assertEqual(self.rules(), [])

    def test_a_temporary_name_in_a_test_is_allowed(self):
        name = SLASH + "tm" + "p/kvarve-" + 6 * "X"
        self.assertEqual(self.c(f'const char *x = "{name}";', "tests/unit/env/test_a.c"), [])
        (self.root / "tests/unit/env/test_a.c").unlink()
        self.assertEqual(self.c(f'const char *x = "{name}";'), ["machine-path"])

    def test_the_project_stands_alone(self):
        self.write("docs/a.md", "see ../sha" + "red/x\n")
        self.assertEqual(self.rules(), ["outside"])

    def test_a_test_that_a_document_names_is_there(self):
        self.write("docs/a.md", "`test_box__opens`, `unit.env.box`, `process.cli`, `test_box.c`\n")
        self.assertEqual(self.rules(), ["named-test"])
        self.assertEqual(len(self.problems()), 3)
        self.write("tests/unit/env/test_box.c", "/*\n * test_box.c - a box.\n */\n"
                   "static void test_box__opens(void **state)\n")
        self.write("tests/unit/env/CMakeLists.txt", "kvarve_test(unit.env.box SOURCES a.c)\n")
        self.write("tests/process/CMakeLists.txt", "add_test(NAME process.${name}\n")
        self.assertEqual(self.rules(), [])
        self.write("docs/a.md", "`unit.env.bo`\n")
        self.assertEqual(self.rules(), ["named-test"])

    def test_data_is_left_alone(self):
        self.write("fuzz/corpus/a/b.txt", "\t \n")
        self.write("tests/golden/a.txt", "\t")
        self.assertEqual(self.rules(), [])

    def test_text_is_utf8(self):
        (self.root / "docs/a.md").write_bytes(b"\xff\n")
        self.assertEqual(self.rules(), ["encoding"])


if __name__ == "__main__":
    unittest.main()
