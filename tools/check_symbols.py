#!/usr/bin/env python3
"""Compare what the built libraries export with tools/symbols.txt.

Usage: tools/check_symbols.py BUILD_FOLDER [--update]

The shared library's dynamic symbols and the static library's global symbols are both exactly the
list: src/ marks them KVARVE_API, everything else is hidden, and cmake/library.cmake makes hidden
symbols local in the archive. Builds with a sanitizer export what it adds and are not checked.

--update rewrites the list. A symbol that goes away, or changes its meaning, breaks programs: from
ABI version 1 on lines are only added.
"""
import pathlib
import subprocess
import sys

LIST = pathlib.Path(__file__).resolve().parent / "symbols.txt"
HEADER = "# What libkvarve exports, sorted. tools/check_symbols.py build/release --update\n"


def defined(library, *options):
    result = subprocess.run(["nm", "--defined-only", "--format=posix", *options, str(library)],
                            check=True, stdout=subprocess.PIPE)
    lines = result.stdout.decode().splitlines()
    return {line.split()[0] for line in lines if line.strip() and not line.endswith(":")}


def compare(name, found, listed):
    for symbol in sorted(found - listed):
        print(f"{name}: exports {symbol}, which is not in tools/symbols.txt")
    for symbol in sorted(listed - found):
        print(f"{name}: lacks {symbol}, which is in tools/symbols.txt")
    return len(found ^ listed)


def check(build, symbols, update):
    """The exit status for the libraries in `build` against the list in the file `symbols`."""
    shared, static = build / "libkvarve.so", build / "libkvarve.a"
    if not shared.exists() or not static.exists():
        print(f"check_symbols: {build} holds no libkvarve.so and libkvarve.a\n"
              "check_symbols: 0 passed, 0 failed, 1 skipped")
        return 0
    exported = defined(shared, "-D")
    if update:
        symbols.write_text(HEADER + "".join(f"{symbol}\n" for symbol in sorted(exported)))
    lines = symbols.read_text().splitlines() if symbols.exists() else []
    listed = {line for line in lines if line and not line.startswith("#")}
    wrong = compare("libkvarve.so", exported, listed)
    wrong += compare("libkvarve.a", defined(static, "-g"), listed)
    print(f"check_symbols: {len(listed)} symbols listed, {wrong} differences")
    return 1 if wrong or not listed else 0


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--update"]
    if len(arguments) != 1:
        sys.exit(__doc__)
    return check(pathlib.Path(arguments[0]), LIST, "--update" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
