#!/usr/bin/env python3
"""The program kvarve, run as people and scripts run it, over stores made by make_store.

Usage: test_cli.py KVARVE MAKE_STORE [unittest options]

Bad input is really made: other processes hold locks, files are cut, flipped and sealed anew.
Nothing waits for time to pass.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

OK, FAILED, USAGE, MISS, BUSY, CORRUPT, UNSUPPORTED, NO_SPACE = range(8)
COMMANDS = ["ls", "show", "why", "verify", "rebuild", "gc", "rm", "status", "bench",
            "llama ingest", "llama emit"]
NOBODY = 65534

KVARVE = None
MAKE_STORE = None

HOLDER = """
import fcntl, sys
with open(sys.argv[1], "r+") as lock:
    fcntl.lockf(lock, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


def kvarve(*arguments, **options):
    """Run it; stdout, stderr and exit code."""
    return subprocess.run([KVARVE, *map(str, arguments)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=120, check=False, **options)


class CommandTest(unittest.TestCase):
    """A folder with a store of five checkpoints."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.store = self.folder / "store"
        self.ids = self.make_store().split()

    def make_store(self, *what, store=None):
        made = subprocess.run([MAKE_STORE, str(store or self.store), *what], check=True,
                              stdout=subprocess.PIPE, text=True, timeout=120)
        return made.stdout

    def run_kvarve(self, exit_code, *arguments, **options):
        result = kvarve(*arguments, "--store", self.store, **options)
        self.assertEqual(result.returncode, exit_code, result.stdout + result.stderr)
        return result

    def text(self, *arguments):
        return self.run_kvarve(OK, *arguments).stdout

    def json(self, *arguments, exit_code=OK):
        return json.loads(self.run_kvarve(exit_code, *arguments, "--json").stdout)

    def refused(self, exit_code, *arguments, says, **options):
        """Refused with this exit code and a message of one line; the same with --json."""
        result = self.run_kvarve(exit_code, *arguments, **options)
        self.assertEqual(result.stdout, "")
        self.assertRegex(result.stderr, f"^kvarve: .*{says}")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        result = self.run_kvarve(exit_code, *arguments, "--json", **options)
        self.assertRegex(json.loads(result.stdout)["error"]["text"], says)

    def checkpoints(self):
        return self.json("ls")["checkpoints"]

    def tokens_file(self, text):
        path = self.folder / "tokens"
        path.write_text(text)
        return path

    def start(self, command):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait, 60)
        self.addCleanup(process.stdin.close)
        self.assertNotEqual(process.stdout.readline(), "")
        return process

    def find_page(self, byte):
        """The file of a page that make_store filled with `byte`, and its place in it."""
        for path in sorted((self.store / "segments").iterdir()):
            at = path.read_bytes().find(bytes([byte]) * 8192)
            if at >= 0:
                return path, at
        self.fail(f"no page of {byte}")

    def write_page(self, path, at, content):
        with path.open("r+b") as file:
            file.seek(at)
            file.write(content)

    def damage_page(self, byte):
        """Flip a bit of that page."""
        path, at = self.find_page(byte)
        self.write_page(path, at + 100, bytes([byte ^ 1]))

    def swap_pages(self, byte, other):
        first, second = self.find_page(byte), self.find_page(other)
        self.write_page(*first, bytes([other]) * 8192)
        self.write_page(*second, bytes([byte]) * 8192)


class LookTest(CommandTest):
    """ls, show and why change nothing and tell what is there."""

    def test_ls_lists_everything_newest_first(self):
        found = self.json("ls")
        self.assertEqual([row["id"] for row in found["checkpoints"]], self.ids)
        self.assertEqual([row["tokens"] for row in found["checkpoints"]], [100, 150, 150, 128, 64])
        self.assertEqual([row["is_draft"] for row in found["checkpoints"]],
                         [False, True, False, False, False])
        self.assertEqual({row["state"] for row in found["checkpoints"]}, {"durable"})
        self.assertEqual(found["totals"]["checkpoints"], 5)
        self.assertEqual(found["totals"]["pages"], 10)
        self.assertEqual(found["totals"]["payload_bytes"], 10 * 8192)
        self.assertEqual(found["totals"]["namespaces"], 3)

    def test_ls_prints_a_table_for_people(self):
        lines = self.text("ls").splitlines()
        self.assertRegex(lines[0], "^ID +NAMESPACE +TOKENS +KIND +SIZE +OWN +STATE +AGE +RAM$")
        self.assertTrue(lines[1].startswith(self.ids[0][:12]))
        self.assertRegex(lines[3], "150  response +32.0 KiB +16.0 KiB  durable")
        self.assertIn("5 checkpoints in 3 namespaces: 10 pages, 80.0 KiB", lines[7])

    def test_ls_shows_one_namespace(self):
        name = self.checkpoints()[0]["namespace"]
        for prefix in (name, name.split(":")[1], name.split(":")[1][:8]):
            self.assertEqual(len(self.json("ls", "--namespace", prefix)["checkpoints"]), 1)
        self.assertEqual(self.json("ls", "--namespace", "xyz")["checkpoints"], [])
        self.assertIn("no checkpoint is in a namespace", self.text("ls", "--namespace", "xyz"))

    def test_looking_changes_no_byte(self):
        def content():
            return {path: path.read_bytes() for path in self.store.rglob("*") if path.is_file()}
        before = content()
        self.text("ls")
        self.text("show", self.ids[0])
        self.text("verify")
        self.run_kvarve(MISS, "why", "--tokens-file", self.tokens_file("1 2 3"))
        self.assertEqual(content(), before)

    def test_show_tells_lineage_draft_and_identity(self):
        shown = self.json("show", self.ids[2][:9])
        self.assertEqual(shown["id"], self.ids[2])
        self.assertEqual([row["tokens"] for row in shown["lineage"]], [128, 64])
        self.assertEqual(shown["draft"]["id"], self.ids[1])
        self.assertEqual(shown["identity"]["model"], "one")
        self.assertEqual(shown["identity"]["numerics"], {"build": "b1"})
        self.assertEqual((shown["bytes"], shown["bytes_own"]), (4 * 8192, 2 * 8192))
        self.assertEqual(self.json("show", self.ids[3])["children"], 1)
        text = self.text("show", self.ids[2])
        self.assertRegex(text, r"own +16\.0 KiB \(16384 bytes\)")
        self.assertRegex(text, "draft half +" + self.ids[1])

    def test_show_wants_one_checkpoint(self):
        self.refused(MISS, "show", "0000", says="there is no checkpoint 0000")
        self.refused(USAGE, "show", "../x", says="is no id")
        self.refused(USAGE, "show", "a" * 65, says="is no id")

    def test_a_prefix_of_several_ids_is_refused(self):
        many = self.folder / "many"
        ids = self.make_store("many", store=many).split()
        self.store = many
        digit = next(c for c in "0123456789abcdef" if sum(i.startswith(c) for i in ids) > 1)
        self.refused(USAGE, "show", digit, says=f"checkpoints begin with {digit}: give more")

    def test_why_explains_a_hit(self):
        path = self.tokens_file(" ".join(str(7 + i) for i in range(170)))
        answer = self.json("why", "--tokens-file", path)
        self.assertEqual((answer["tokens"], answer["longest"]), (170, 150))
        found = next(row for row in answer["namespaces"] if row["boundaries"])
        self.assertEqual([row["tokens"] for row in found["boundaries"]], [150, 128, 64])
        self.assertEqual(found["longer"], 0)
        self.assertIn("none longer: nothing longer is stored",
                      self.text("why", "--tokens-file", path))

    def test_why_says_that_longer_ones_differ(self):
        path = self.tokens_file(json.dumps([7 + i for i in range(120)] + [5] * 100))
        answer = self.json("why", "--tokens-file", path)
        self.assertEqual(answer["longest"], 64)
        found = next(row for row in answer["namespaces"] if row["boundaries"])
        self.assertEqual(found["longer"], 2)

    def test_why_explains_a_miss(self):
        path = self.tokens_file("8 9 10")
        answer = self.json("why", "--tokens-file", path, exit_code=MISS)
        self.assertEqual(answer["longest"], 0)
        reasons = {row["reason"] for row in answer["namespaces"]}
        self.assertIn("no stored boundary is a prefix of these tokens", reasons)
        text = self.run_kvarve(MISS, "why", "--tokens-file", path).stdout
        self.assertIn("a miss: no stored boundary is a prefix of these tokens", text)

    def test_why_names_the_limit_that_kept_boundaries_out(self):
        path = self.tokens_file(" ".join(str(7 + i) for i in range(170)))
        answer = self.json("why", "--tokens-file", path, "--max-tokens", "60", exit_code=MISS)
        found = next(row for row in answer["namespaces"] if row["reason"])
        self.assertEqual(found["nearest_tokens"], 150)
        self.assertIn("none between min and max", found["reason"])

    def test_why_asks_a_salted_namespace_only_with_its_salt(self):
        path = self.tokens_file(" ".join(str(1000 + i) for i in range(120)))
        text = self.run_kvarve(MISS, "why", "--tokens-file", path).stdout
        self.assertIn("not asked: it has a salt", text)
        answer = self.json("why", "--tokens-file", path, "--salt", "secret")
        self.assertEqual(answer["longest"], 100)
        self.assertNotIn("secret", json.dumps(answer))
        self.run_kvarve(MISS, "why", "--tokens-file", path, "--salt", "wrong")

    def test_why_asks_the_namespace_that_is_named(self):
        path = self.tokens_file("8 9 10")
        name = self.checkpoints()[2]["namespace"]
        answer = self.json("why", "--tokens-file", path, "--namespace", name, exit_code=MISS)
        self.assertEqual([row["namespace"] for row in answer["namespaces"]], [name])

    def test_why_refuses_what_is_no_list_of_tokens(self):
        for content in ("", "x", "1 2 -3", "2147483648", "[1, 2", "99999999999999999999"):
            self.refused(USAGE, "why", "--tokens-file", self.tokens_file(content), says="tokens: ")
        self.refused(USAGE, "why", "--tokens-file", self.folder / "none", says="tokens: ")


class CareTest(CommandTest):
    """verify, rebuild, gc and rm."""

    def test_verify_of_a_whole_store(self):
        answer = self.json("verify")
        self.assertTrue(answer["is_whole"])
        self.assertEqual((answer["pages_checked"], answer["pages_total"]), (10, 10))
        self.assertIn("checked 10 of 10 pages, 80.0 KiB: all is whole", self.text("verify"))

    def test_verify_finds_a_damaged_page_and_names_its_checkpoints(self):
        self.damage_page(64)  # the first page of "one": three checkpoints begin with it
        answer = self.json("verify", exit_code=CORRUPT)
        self.assertFalse(answer["is_whole"])
        self.assertEqual((answer["pages_damaged"], answer["checkpoints_lost"]), (1, 3))
        self.assertEqual(sorted(row["id"] for row in answer["damaged"]), sorted(self.ids[2:5]))
        text = self.run_kvarve(CORRUPT, "verify").stdout
        self.assertIn("1 page is damaged, 3 checkpoints are lost by it", text)

    def test_verify_finds_two_pages_that_changed_places(self):
        self.swap_pages(64, 100)  # the first ones of "one" and "two"
        answer = self.json("verify", exit_code=CORRUPT)
        self.assertEqual((answer["pages_damaged"], answer["checkpoints_lost"]), (2, 4))

    def test_rebuild_drops_what_is_damaged(self):
        self.damage_page(100)  # the first page of "two"
        answer = self.json("rebuild")
        self.assertEqual((answer["checkpoints_before"], answer["checkpoints"]), (5, 4))
        self.assertTrue(self.json("verify")["is_whole"])

    def test_rebuild_makes_a_damaged_index_anew(self):
        (self.store / "index.db").write_bytes(b"no database at all" * 1000)
        (self.store / "index.db-wal").unlink()  # else it has all that the database lost
        for command in ("ls", "verify", "gc"):
            self.refused(CORRUPT, command, says="kvarve rebuild")
        self.refused(CORRUPT, "show", self.ids[0], says="kvarve rebuild")
        self.refused(CORRUPT, "rm", self.ids[0], says="kvarve rebuild")
        answer = self.json("rebuild")
        self.assertEqual((answer["checkpoints_before"], answer["checkpoints"]), (None, 5))
        self.assertEqual(sorted(row["id"] for row in self.checkpoints()), sorted(self.ids))

    def test_rebuild_without_the_store_file(self):
        (self.store / "store").unlink()
        self.refused(CORRUPT, "ls", says="kvarve rebuild")
        self.assertEqual(self.json("rebuild")["checkpoints"], 5)
        self.assertEqual(len(self.checkpoints()), 5)

    def test_a_damaged_store_file_is_named(self):
        path = self.store / "store"
        path.write_text(path.read_text().replace("uuid ", "uuid 0", 1))
        self.refused(CORRUPT, "ls", says="kvarve rebuild")
        self.assertEqual(self.json("rebuild")["checkpoints"], 5)

    def test_rm_drops_a_checkpoint_and_its_draft_half(self):
        answer = self.json("rm", self.ids[2][:8])
        self.assertEqual(answer["dropped"], [self.ids[2]])
        self.assertEqual(sorted(row["id"] for row in self.checkpoints()),
                         sorted([self.ids[0], self.ids[3], self.ids[4]]))

    def test_rm_takes_several_in_any_order(self):
        self.text("rm", self.ids[2], self.ids[1], self.ids[0])
        self.assertEqual(sorted(row["id"] for row in self.checkpoints()), sorted(self.ids[3:]))

    def test_rm_with_a_wrong_id_drops_none(self):
        self.refused(MISS, "rm", self.ids[0], "00000000", says="there is no checkpoint 00000000")
        self.refused(USAGE, "rm", self.ids[0], "zzzz", says="is no id")
        self.refused(USAGE, "rm", self.ids[0], self.ids[1][:3], says="4 digits at least")
        self.assertEqual(len(self.checkpoints()), 5)

    def test_gc_gives_space_back_and_keeps_everything(self):
        before = sum(path.stat().st_blocks for path in (self.store / "segments").iterdir())
        answer = self.json("gc")
        after = sum(path.stat().st_blocks for path in (self.store / "segments").iterdir())
        self.assertEqual(answer["dropped"], 0)
        self.assertGreater(answer["bytes_returned"], 0)
        self.assertLess(after, before)
        self.assertTrue(self.json("verify")["is_whole"])
        self.assertEqual(len(self.checkpoints()), 5)

    def test_gc_under_the_cap_drops_nothing(self):
        self.assertEqual(self.json("gc", "--cap", "10M")["dropped"], 0)

    def test_gc_over_the_cap_drops_the_least_recently_used(self):
        store = self.folder / "large"
        self.make_store("large", store=store)
        self.store = store
        before = [row["id"] for row in self.checkpoints()]
        answer = self.json("gc", "--cap", "1M")
        self.assertLessEqual(answer["bytes_used"], 1 << 20)
        left = [row["id"] for row in self.checkpoints()]
        self.assertEqual(answer["dropped"], len(before) - len(left))
        self.assertGreater(answer["dropped"], 0)
        self.assertGreater(len(left), 0)
        self.assertEqual(left, before[:len(left)])


class BadInputTest(CommandTest):
    """Each a clear message and an exit code, and nothing lost."""

    def test_a_path_that_is_a_file(self):
        path = self.folder / "file"
        path.write_text("mine")
        self.store = path
        for command in ("ls", "verify", "gc", "rebuild"):
            self.refused(USAGE, command, says="it is a file")
        self.assertEqual(path.read_text(), "mine")

    def test_a_path_that_is_absent(self):
        self.store = self.folder / "none"
        for command in ("ls", "verify", "gc", "rebuild"):
            self.refused(MISS, command, says="there is no store in ")
        self.refused(MISS, "show", "abcd", says="there is no store in ")
        self.refused(MISS, "rm", "abcd", says="there is no store in ")
        self.assertFalse(self.store.exists())

    def test_a_folder_that_is_no_store(self):
        self.store = self.folder / "other"
        self.store.mkdir()
        (self.store / "letter").write_text("mine")
        tokens = self.tokens_file("1 2 3")
        for command in (["ls"], ["show", "abcd"], ["why", "--tokens-file", tokens], ["verify"],
                        ["gc"], ["rebuild"], ["rm", "abcd"]):
            self.refused(MISS, *command, says="there is no store in ")
        self.assertEqual([path.name for path in self.store.iterdir()], ["letter"])
        self.assertEqual((self.store / "letter").read_text(), "mine")

    def test_a_store_that_another_process_has_open(self):
        holder = self.start([MAKE_STORE, str(self.store), "hold"])
        for command in ("ls", "verify", "gc", "rebuild"):
            self.refused(BUSY, command, says=f"in use by process {holder.pid}$")
        self.refused(BUSY, "rm", self.ids[0], says=f"in use by process {holder.pid}$")
        self.refused(BUSY, "ls", "--wait", "30", says=f"in use by process {holder.pid}$")
        holder.stdin.close()
        holder.wait(60)
        self.assertEqual(len(self.checkpoints()), 5)

    def test_a_lock_that_another_program_holds(self):
        holder = self.start([sys.executable, "-c", HOLDER, str(self.store / "lock")])
        self.refused(BUSY, "ls", says=f"in use by process {holder.pid}$")

    def test_wait_takes_the_store_when_it_is_free(self):
        holder = self.start([MAKE_STORE, str(self.store), "hold"])
        waiting = subprocess.Popen([KVARVE, "ls", "--store", str(self.store), "--wait", "60000",
                                    "--json"], stdout=subprocess.PIPE, text=True)
        holder.stdin.close()
        output, _ = waiting.communicate(timeout=100)
        self.assertEqual(waiting.returncode, OK)
        self.assertEqual(len(json.loads(output)["checkpoints"]), 5)

    def test_a_store_of_a_newer_version(self):
        self.make_store("newer")
        before = (self.store / "store").read_bytes()
        for command in ("ls", "verify", "gc", "rebuild"):
            self.refused(UNSUPPORTED, command, says="format 2, known up to 1")
        self.assertEqual((self.store / "store").read_bytes(), before)

    def run_as_nobody(self):
        """Options that make a process one that permissions bind; skips where there are none."""
        if os.geteuid() != 0:
            return {}
        shutil.chown(self.folder, NOBODY, NOBODY)
        for path in self.folder.rglob("*"):
            shutil.chown(path, NOBODY, NOBODY)
        try:
            subprocess.run([KVARVE, "--version"], check=True, stdout=subprocess.DEVNULL,
                           user=NOBODY, group=NOBODY, extra_groups=[])
        except (OSError, subprocess.CalledProcessError):
            self.skipTest("the program can not be run as another user here")
        return {"user": NOBODY, "group": NOBODY, "extra_groups": []}

    def test_a_read_only_folder(self):
        options = self.run_as_nobody()
        for path in [*self.store.rglob("*"), self.store]:
            path.chmod(0o500 if path.is_dir() else 0o400)
        self.addCleanup(lambda: [path.chmod(0o700) for path in
                                 [self.store, self.store / "segments", self.store / "namespaces"]])
        for command in ("ls", "gc", "rebuild"):
            self.refused(FAILED, command, says="Permission denied",
                         **options)

    def test_a_folder_that_can_not_be_made(self):
        options = self.run_as_nobody()
        place = self.folder / "closed"
        place.mkdir(mode=0o500)
        result = kvarve("bench", "identity", "--store", place / "new", **options)
        if os.geteuid() == 0:
            place.chmod(0o500)
        self.assertEqual(result.returncode, FAILED, result.stderr)
        self.assertIn("can not be made", result.stderr)

    def test_stdout_that_is_full(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            for arguments in (["ls"], ["ls", "--json"], ["show", self.ids[0]]):
                result = subprocess.run([KVARVE, *arguments, "--store", str(self.store)],
                                        stdout=full, stderr=subprocess.PIPE, check=False)
                self.assertEqual(result.returncode, FAILED, arguments)


class CommandLineTest(unittest.TestCase):
    """What is common to all subcommands."""

    def test_help_teaches(self):
        for command in COMMANDS:
            result = kvarve(*command.split(), "--help")
            self.assertEqual(result.returncode, OK)
            self.assertTrue(result.stdout.startswith(f"Usage: kvarve {command}"), result.stdout)
            self.assertRegex(result.stdout, "Examples?:")
            self.assertIn("Exit codes:", result.stdout)
            self.assertIn("--json", result.stdout)
            self.assertEqual(result.stderr, "")

    def test_help_lists_all_commands(self):
        result = kvarve("--help")
        self.assertEqual(result.returncode, OK)
        for command in COMMANDS:
            self.assertRegex(result.stdout, rf"(?m)^  {re.escape(command)} ")

    def test_wrong_command_lines_are_refused(self):
        for arguments in ([], ["fly"], ["ls"], ["ls", "--stor"], ["show", "--store", "x"],
                          ["ls", "x", "--store", "y"], ["rm", "--store", "x"],
                          ["why", "--store", "x"], ["ls", "--store", "x", "--wait", "soon"],
                          ["gc", "--store", "x", "--cap", "12"],
                          ["ls", "--store", "x", "--arena", "1"], ["bench", "--runs", "0"],
                          ["bench", "--runs", "65"], ["bench", "nothing"], ["status"],
                          ["status", "--store", "x"], ["status", "--store", "unix:"]):
            result = kvarve(*arguments)
            self.assertEqual(result.returncode, USAGE, arguments)
            self.assertNotEqual(result.stderr, "")
            self.assertEqual(result.stdout, "")

    def test_status_of_nobody_is_a_miss(self):
        with tempfile.TemporaryDirectory() as folder:
            result = kvarve("status", "--store", f"unix:{folder}/none")
        self.assertEqual(result.returncode, MISS)
        self.assertRegex(result.stderr, "^kvarve: no daemon listens at .*/none\n$")


if __name__ == "__main__":
    KVARVE, MAKE_STORE = (os.path.abspath(path) for path in sys.argv[1:3])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
