#!/usr/bin/env python3
"""Rules of style that no compiler knows (CONTRIBUTING.md), over all files of the project.

Usage: tools/check_style.py [repository root]

A line is excused from one rule by a comment on it:  /* style: RULE, reason */
"""
import pathlib
import re
import subprocess
import sys

# Banned calls, and what to use instead. Examples are programs of users and may do as they like.
CODE = ("src", "include", "tests", "fuzz")
BANNED = {
    "strcpy": "memcpy with a checked size, or snprintf",
    "strcat": "snprintf",
    "strncpy": "memcpy with a checked size, or snprintf",
    "sprintf": "snprintf",
    "vsprintf": "vsnprintf",
    "gets": "fgets",
    "strtok": "strtok_r, or a loop over strcspn",
    "gmtime": "gmtime_r",
    "localtime": "localtime_r",
    "ctime": "strftime",
    "asctime": "strftime",
    "strerror": "kvarve_fail_io, or strerror_r",
    "atoi": "strtol with a checked end",
    "atol": "strtol with a checked end",
    "atof": "strtod with a checked end",
    "rand": "kvarve_random, or a generator with a printed seed",
    "srand": "kvarve_random, or a generator with a printed seed",
    "alloca": "kvarve_allocate",
    "system": "the processes of env",
    "tmpnam": "mkdtemp",
    "mktemp": "mkdtemp",
    "malloc": "kvarve_allocate (base/alloc.h)",
    "calloc": "kvarve_allocate_array (base/alloc.h)",
    "realloc": "kvarve_reallocate (base/alloc.h)",
    "free": "kvarve_release (base/alloc.h)",
    "strdup": "kvarve_duplicate (base/alloc.h)",
    "strndup": "kvarve_duplicate (base/alloc.h)",
    "asprintf": "snprintf",
    "sleep": "an event, or the simulated clock",
    "usleep": "an event, or the simulated clock",
    "nanosleep": "an event, or the simulated clock",
}
PRINTS = "printf fprintf vprintf vfprintf dprintf puts fputs putchar putc fputc perror".split()

# (file or folder, rule): exceptions that are part of the design, with the reason.
EXCEPTIONS = {
    ("src/base/alloc.c", "banned"): "it is the allocator",
    ("src/base/base.c", "printf"): "the last words of a failed assertion",
    ("src/env/", "errno"): "system calls are made here",
    ("src/env/", "banned-sleep"): "sleep_ms is made here",
    ("src/cli/", "printf"): "it talks to people",
    ("src/bench/", "printf"): "it prints figures",
}

LINES_MAX = 800
COLUMNS_MAX = 100
README_LINES_MAX = 40
C_SUFFIXES = (".c", ".h")
TEXT_SUFFIXES = C_SUFFIXES + (".py", ".sh", ".cmake", ".txt", ".md", ".in", ".json", ".yml", "")
# Data, where bytes are what they are, and the licence.
DATA = ("fuzz/corpus/", "tests/golden/", "LICENSE")

# Written in pieces, so that this file passes its own rules.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b(?!\(\d{4}\))")
MACHINE_PATH = re.compile(r"(?<![\w./}>)*-])/(wor" r"k|hom" r"e|roo" r"t|tm" r"p)/")
TEMPORARY = re.compile(r"/tm" r"p/[\w.-]*X{6}")
OUTSIDE = re.compile(r"\.\./sha" r"red")
EXCUSE = re.compile(r"/\* style: ([\w-]+), [^*]{8,}\*/")
NAMED_TEST = re.compile(r"`(test_[a-z0-9_]+|(?:unit|contract|crash|model|process)\.[a-z0-9_.]+)`")
IDENTIFIER_CALL = re.compile(r"(?<![\w.>])([A-Za-z_]\w*)\s*\(")
TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)


def project_files(root):
    """Every file of the project, as a relative path: what git knows or would add."""
    if (root / ".git").exists():
        command = "ls-files -z --cached --others --exclude-standard".split()
        result = subprocess.run(["git", "-C", str(root), *command], check=True,
                                stdout=subprocess.PIPE)
        names = {name for name in result.stdout.decode().split("\0") if name}
        return sorted(name for name in names if (root / name).is_file())
    paths = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return sorted(str(path) for path in paths if path.parts[0] not in (".git", "build"))


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def split_c(text):
    """`text` without comments and literals, and the line numbers of // comments. No line moves."""
    slashes = []

    def replace(match):
        if match.group().startswith("//"):
            slashes.append(text.count("\n", 0, match.start()) + 1)
        return blank(match)

    return TOKEN.sub(replace, text), slashes


def is_excepted(name, rule):
    for place, wanted in EXCEPTIONS:
        inside = place.endswith("/") and name.startswith(place)
        if rule == wanted and (name == place or inside):
            return True
    return False


class File:
    """One file and the problems found in it."""

    def __init__(self, root, name, text):
        self.root, self.name, self.text = root, name, text
        self.lines = text.split("\n")
        self.problems = []

    def report(self, line, rule, text):
        excuse = EXCUSE.search(self.lines[line - 1]) if line <= len(self.lines) else None
        if not (excuse and excuse.group(1) == rule) and not is_excepted(self.name, rule):
            self.problems.append(f"{self.name}:{line}: {rule}: {text}")


def check_any_text(file):
    """Rules for every text file."""
    is_test = file.name.startswith("tests/")
    may_tab = pathlib.Path(file.name).name in ("Makefile", ".gitmodules")
    for number, line in enumerate(file.lines, 1):
        if "\t" in line and not may_tab:
            file.report(number, "tab", "spaces only")
        if line != line.rstrip():
            file.report(number, "trailing-space", "blank at the end of the line")
        if OUTSIDE.search(line):
            file.report(number, "outside", "the project stands alone; copy what it needs")
        found = MACHINE_PATH.search(line)
        if found and not (is_test and TEMPORARY.search(line)):
            file.report(number, "machine-path", f"{found.group()} is a place on one machine")
    if file.text and not file.text.endswith("\n"):
        file.report(len(file.lines), "newline", "no newline at the end of the file")


def check_code(file, design_notes):
    """Rules for whatever is edited as code."""
    for number, line in enumerate(file.lines, 1):
        if len(line) > COLUMNS_MAX:
            file.report(number, "columns", f"{len(line)} columns, {COLUMNS_MAX} are allowed")
        if UNFINISHED.search(line):
            file.report(number, "unfinished", "name the design note that will do it, as in (0007)")
        for note in re.findall(r"\bTO" r"DO\((\d{4})\)", line):
            if note not in design_notes:
                file.report(number, "unfinished", f"there is no docs/design/{note}-*.md")


def check_c_calls(file, code):
    top = file.name.split("/")[0]
    is_test = top in ("tests", "fuzz")
    for match in IDENTIFIER_CALL.finditer(code):
        name = match.group(1)
        line = code.count("\n", 0, match.start()) + 1
        if top in CODE and name in BANNED:
            rule = "banned-sleep" if name.endswith("sleep") else "banned"
            file.report(line, rule, f"{name}: use {BANNED[name]}")
        if top == "src" and not is_test and name in PRINTS:
            file.report(line, "printf", f"{name}: a library returns a status and text")


def check_c(file):
    """Rules for C files."""
    path = pathlib.Path(file.name)
    code, slashes = split_c(file.text)
    for line in slashes:
        file.report(line, "comment", "/* */ comments only")
    if not re.match(r"/\*\s*(\* )?" + re.escape(path.name) + r" - \w", file.text):
        file.report(1, "head", f"the file begins with a comment: {path.name} - what it is")
    without_includes = re.sub(r"^[ \t]*#[ \t]*include[^\n]*", blank, code, flags=re.M)
    check_c_calls(file, without_includes)
    if file.name.startswith("src/"):
        for match in re.finditer(r"\berrno\b", without_includes):
            line = without_includes.count("\n", 0, match.start()) + 1
            file.report(line, "errno", "the variable is for src/env; calls there return -errno")
    if path.suffix == ".h" and path.parts[0] in ("src", "include"):
        parts = list(path.parts[1:]) if path.parts[0] == "src" else ["kvarve", path.name]
        words = [*([] if parts[0] == "kvarve" else ["kvarve"]), *parts]
        guard = re.sub(r"[^A-Z0-9]", "_", "_".join(words).upper())
        if not re.search(rf"^#ifndef {guard}\n#define {guard}$", file.text, re.M):
            file.report(1, "guard", f"the include guard is {guard}")


def check_length(file, ratchet):
    """Long files may only get shorter: tools/long_files.txt has the length of each."""
    count = len(file.text.splitlines())
    allowed = ratchet.get(file.name, LINES_MAX)
    if count > allowed:
        file.report(1, "long", f"{count} lines, {allowed} are allowed: split it by concern")
    elif file.name in ratchet and count < allowed:
        file.report(1, "long", f"now {count} lines: put that into tools/long_files.txt")


def known_tests(root, names):
    """What a document may name as a test: functions, and a pattern for what CMake registers."""
    functions, patterns = set(), []
    for name in names:
        if not name.startswith("tests/"):
            continue
        if name.endswith((".c", ".py")):
            text = (root / name).read_text(errors="replace")
            functions.update(re.findall(r"\b(test_\w+)\s*\(", text))
        elif name.endswith("CMakeLists.txt"):
            calls = r"\b(?:kvarve_test\(|add_test\(NAME )([\w.${}]+)"
            patterns += re.findall(calls, (root / name).read_text())
    registered = (re.sub(r"\\\$\\{\w+\\}", "[a-z0-9_]+", re.escape(text)) for text in patterns)
    return functions, re.compile("|".join(registered) or "(?!)")


def check_named_tests(file, tests):
    """A test that a document names is there."""
    functions, registered = tests
    for number, line in enumerate(file.lines, 1):
        for name in NAMED_TEST.findall(line):
            if name not in functions and not registered.fullmatch(name):
                file.report(number, "named-test", f"there is no {name} in tests/")


def check_readmes(root, names):
    problems = []
    folders = sorted({"/".join(name.split("/")[:2]) for name in names
                      if name.startswith("src/") and name.count("/") >= 2})
    for folder in folders:
        readme = root / folder / "README.md"
        if not readme.is_file():
            problems.append(f"{folder}:1: readme: a folder of src has a README.md")
        elif len(readme.read_text().splitlines()) > README_LINES_MAX:
            problems.append(f"{folder}/README.md:1: readme: more than {README_LINES_MAX} lines")
    return problems


def read_ratchet(root):
    path = root / "tools/long_files.txt"
    lines = path.read_text().splitlines() if path.is_file() else []
    pairs = (line.split() for line in lines if line.strip() and not line.startswith("#"))
    return {name: int(count) for name, count in pairs}


def is_code(name):
    path = pathlib.Path(name)
    scripts = (".ci/run", "tools/setup", "tools/demo", "tools/stress", "tools/hooks/pre-commit")
    return path.suffix in C_SUFFIXES + (".py", ".sh") or name in scripts


def check(root):
    """All problems of the tree at `root`, as lines of text, and the number of files read."""
    names = project_files(root)
    design_notes = {path.name[:4] for path in (root / "docs/design").glob("[0-9]*.md")}
    ratchet = read_ratchet(root)
    tests = known_tests(root, names)
    problems, seen = check_readmes(root, names), 0
    for name in names:
        if name.startswith(DATA) or pathlib.Path(name).suffix not in TEXT_SUFFIXES:
            continue
        raw = (root / name).read_bytes()
        if b"\0" in raw:
            continue
        seen += 1
        try:
            file = File(root, name, raw.decode())
        except UnicodeDecodeError:
            problems.append(f"{name}:1: encoding: not UTF-8")
            continue
        check_any_text(file)
        if is_code(name):
            check_code(file, design_notes)
            check_length(file, ratchet)
        if name.endswith(C_SUFFIXES):
            check_c(file)
        if name.startswith("docs/") and name.endswith(".md"):
            check_named_tests(file, tests)
        problems += file.problems
    return problems, seen


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent
    problems, seen = check(root)
    for problem in problems:
        print(problem)
    print(f"check_style: {seen} files, {len(problems)} problems")
    return 1 if problems or seen == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
