#!/usr/bin/env python3
"""Fail when a header does not compile alone, with stricter flags than the library.

Usage: tools/check_headers.py [repository root]

Headers of include/kvarve as C17 and as C++17, those of src/ as C17; each twice in one file, so that
its guard is seen to work. Uses gcc and g++, and clang-19 when it is there.
"""
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys

BOTH = """-fsyntax-only -Werror -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion
    -Wundef -Wcast-qual -Wcast-align -Wwrite-strings -Wformat=2 -Wdouble-promotion -Wswitch-enum
    -Wpointer-arith -Wredundant-decls""".split()
C = """-std=c17 -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wvla
    -Wc++-compat""".split()
CXX = "-std=c++17 -Wold-style-cast -Wzero-as-null-pointer-constant -Wnon-virtual-dtor".split()
# Inside src/ the library's own flags hold; nobody includes these from C++.
INSIDE = [flag for flag in C if flag != "-Wc++-compat"]


def compilers():
    found = [("gcc", "g++")]
    if shutil.which("clang-19") and shutil.which("clang++-19"):
        found.append(("clang-19", "clang++-19"))
    return found


def jobs(root):
    for c, cxx in compilers():
        for path in sorted((root / "include/kvarve").glob("*.h")):
            name = str(path.relative_to(root / "include"))
            include = ["-I", str(root / "include")]
            # Without _GNU_SOURCE: a user's program may not define it.
            yield name, [c, "-x", "c", *BOTH, *C, *include]
            yield name, [cxx, "-x", "c++", *BOTH, *CXX, *include]
        for path in sorted((root / "src").rglob("*.h")):
            name = str(path.relative_to(root / "src"))
            include = ["-I", str(root / "include"), "-I", str(root / "src")]
            yield name, [c, "-x", "c", "-D_GNU_SOURCE", *BOTH, *INSIDE, *include]


def compile_alone(job):
    """None, or what the compiler said."""
    name, command = job
    text = f'#include "{name}"\n#include "{name}"\nextern int not_empty;\n'
    result = subprocess.run([*command, "-"], input=text.encode(), stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, check=False)
    if result.returncode == 0:
        return None
    return f"{name} as {command[0]} {command[2]}:\n{result.stdout.decode(errors='replace')}"


def check(root):
    """What the compilers said, one text a failed compilation, and the number of compilations."""
    work = list(jobs(root.resolve()))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return [text for text in pool.map(compile_alone, work) if text], len(work)


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent
    failures, count = check(root)
    for text in failures:
        print(text)
    print(f"check_headers: {count} compilations, {len(failures)} failed")
    return 1 if failures or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
