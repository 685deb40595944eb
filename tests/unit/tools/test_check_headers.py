#!/usr/bin/env python3
"""Each thing that tools/check_headers.py looks for bites, and clean headers pass."""
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))
import check_headers  # noqa: E402


def guarded(body):
    return f"#ifndef A_H\n#define A_H\n{body}\n#endif\n"


class Rules(unittest.TestCase):
    def failures(self, name, text):
        """The compilers ("gcc c") that refuse the header `name` with this text."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True)
            path.write_text(text)
            failures, count = check_headers.check(pathlib.Path(folder))
        compilers = len(check_headers.compilers())
        self.assertEqual(count, compilers * (2 if name.startswith("include") else 1))
        return [text.split(":")[0].split(" as ")[1] for text in failures]

    def test_a_clean_header_passes(self):
        text = guarded("#include <stddef.h>\nsize_t a(size_t b);")
        self.assertEqual(self.failures("include/kvarve/a.h", text), [])
        self.assertEqual(self.failures("src/base/a.h", text), [])

    def test_a_missing_include_is_found(self):
        text = guarded("size_t a(size_t b);")
        self.assertIn("gcc c", self.failures("include/kvarve/a.h", text))
        self.assertIn("gcc c", self.failures("src/base/a.h", text))

    def test_a_missing_guard_is_found(self):
        self.assertIn("gcc c", self.failures("src/base/a.h", "struct a {\n    int b;\n};\n"))

    def test_public_headers_are_cxx_too(self):
        self.assertIn("g++ c++", self.failures("include/kvarve/a.h", guarded("int a(int class);")))
        implicit = "static inline int *a(void *b)\n{\n    return b;\n}"
        self.assertIn("g++ c++", self.failures("include/kvarve/a.h", guarded(implicit)))
        self.assertEqual(self.failures("src/base/a.h", guarded(implicit)), [])

    def test_public_headers_need_no_feature_macro(self):
        gnu = guarded("#ifndef _GNU_SOURCE\n#error no\n#endif\nint a(void);")
        self.assertIn("gcc c", self.failures("include/kvarve/a.h", gnu))
        self.assertEqual(self.failures("src/base/a.h", gnu), [])

    def test_narrowing_in_an_inline_function_is_found(self):
        narrow = "static inline char a(int b)\n{\n    return b;\n}"
        self.assertIn("gcc c", self.failures("src/base/a.h", guarded(narrow)))


if __name__ == "__main__":
    unittest.main()
