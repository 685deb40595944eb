#!/usr/bin/env python3
"""kvarve serve, run as a service manager runs it, and clients that speak its protocol by hand.

Usage: test_daemon.py KVARVE MAKE_STORE [unittest options]

What the protocol allows is tested with the session; here it is the process: sockets, signals,
users, the log, and what a client that is wrong costs the others. Nothing waits for time to pass.
"""
import fcntl
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

OK, FAILED, USAGE, MISS, BUSY, CORRUPT, UNSUPPORTED, NO_SPACE = range(8)
ERROR, HELLO, WELCOME, STATISTICS, STATISTICS_ARE = 1, 4, 5, 45, 46
MESSAGE_MAX = 65536
MAGIC = b"kvwire1\n"
NOBODY = 65534
WAIT_S = 60  # for what comes: a test that waits so long has failed

KVARVE = None
MAKE_STORE = None

# Becomes argv[2:] with descriptor argv[1] handed over as a service manager does.
HAND_OVER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.argv[2], sys.argv[2:])
"""


def message(kind, number, body=b""):
    return struct.pack("<HHIQ", kind, 0, 16 + len(body), number) + body


def hello(letter_size=0, oldest=1, newest=1, magic=MAGIC):
    return message(HELLO, 1, struct.pack("<8sIIIQ", magic, oldest, newest, 0, letter_size))


class Client:
    """A connection; messages as bytes."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(WAIT_S)
        self.socket.connect(str(path))

    def send(self, content, descriptors=()):
        socket.send_fds(self.socket, [content], descriptors)

    def receive(self):
        """Type, id and body; None when it is closed."""
        try:
            content, descriptors, _, _ = socket.recv_fds(self.socket, MESSAGE_MAX, 4)
        except ConnectionResetError:
            return None
        for descriptor in descriptors:
            os.close(descriptor)
        if not content:
            return None
        kind, _, _, number = struct.unpack_from("<HHIQ", content)
        return kind, number, content[16:]

    def greet(self):
        self.send(hello())
        return self.receive()[0]

    def is_served(self):
        self.send(message(STATISTICS, 7))
        return self.receive()[:2] == (STATISTICS_ARE, 7)

    def close(self):
        self.socket.close()


class DaemonTest(unittest.TestCase):
    """A folder, and daemons that end with the test."""

    def setUp(self):
        signal.signal(signal.SIGALRM, self.too_long)
        signal.alarm(WAIT_S)
        self.addCleanup(signal.alarm, 0)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.store = self.folder / "store"
        self.socket = self.folder / "socket"

    def too_long(self, *_):
        self.fail(f"it has not ended after {WAIT_S} s")

    def command(self, *options):
        return [KVARVE, "serve", "--store", str(self.store), "--socket", str(self.socket),
                "--arena", "8M", *map(str, options)]

    def watch(self, process):
        def end():
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stderr.close()
        self.addCleanup(end)
        process.log = []
        return process

    def start(self, *options, **how):
        process = self.watch(subprocess.Popen(self.command(*options), stderr=subprocess.PIPE,
                                              text=True, **how))
        self.await_log(process, " daemon serving ")
        return process

    def await_log(self, process, pattern):
        """The next line of the log that this matches."""
        for line in process.stderr:
            process.log.append(line)
            if re.search(pattern, line):
                return line
        self.fail(f"no \"{pattern}\" in {process.log}")

    def end(self, process, number=signal.SIGTERM, code=OK):
        process.send_signal(number)
        process.log += process.stderr.readlines()
        self.assertEqual(process.wait(WAIT_S), code, process.log)

    def refused(self, code, says, *options):
        result = subprocess.run(self.command(*options), stderr=subprocess.PIPE, text=True,
                                timeout=WAIT_S, check=False)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertRegex(result.stderr, says)

    def client(self, greet=True):
        made = Client(self.socket)
        self.addCleanup(made.close)
        if greet:
            self.assertEqual(made.greet(), WELCOME)
        return made

    def status(self, code=OK):
        result = subprocess.run([KVARVE, "status", "--store", f"unix:{self.socket}", "--json"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                timeout=WAIT_S, check=False)
        self.assertEqual(result.returncode, code, result.stderr)
        return json.loads(result.stdout)


class LifeTest(DaemonTest):
    """Beginning and end."""

    def test_status_tells_how_it_is(self):
        process = self.start()
        self.client()
        self.client()
        status = self.status()
        self.assertEqual(status["pid"], process.pid)
        self.assertEqual(status["clients"], 3)
        self.assertGreaterEqual(status["arena"]["bytes"], 8 << 20)
        self.assertFalse(status["arena"]["would_survive"])
        self.assertEqual(status["statistics"]["checkpoints"], 0)
        text = subprocess.run([KVARVE, "status", "--store", f"unix:{self.socket}"],
                              stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertIn(f"pid {process.pid}", text)
        self.end(process)

    def test_signals_end_it_in_order(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            process = self.start()
            client = self.client()
            self.end(process, number)
            self.assertFalse(self.socket.exists())
            self.assertIsNone(client.receive())
            self.assertIn("stopped why=\"as asked\"", process.log[-1])

    def test_a_second_one_is_refused_and_told_the_pid(self):
        process = self.start()
        client = self.client()
        for options in ([], ["--store", self.folder / "other"],
                        ["--socket", self.folder / "other.socket"]):
            self.refused(BUSY, f"in use by process {process.pid}$", *options)
        self.assertFalse((self.folder / "other").exists())
        self.assertFalse((self.folder / "other.socket").exists())
        self.assertTrue(client.is_served())
        self.end(process)

    def test_one_that_was_killed_is_followed_by_the_next(self):
        process = self.start()
        self.end(process, signal.SIGKILL, -signal.SIGKILL)
        self.assertTrue(self.socket.exists())
        self.end(self.start())

    def test_the_file_of_somebody_else_is_left_alone(self):
        self.socket.write_text("mine")
        self.refused(FAILED, "listen at .*/socket")
        self.assertEqual(self.socket.read_text(), "mine")

    def test_a_socket_that_somebody_put_in_its_place_is_left(self):
        process = self.start()
        self.socket.unlink()
        self.socket.write_text("mine")
        self.end(process)
        self.assertEqual(self.socket.read_text(), "mine")

    def test_a_socket_handed_over_is_used_and_left(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(self.socket))
            listener.listen(8)
            early = self.client(greet=False)  # waits for the daemon to be started
            early.send(hello())
            command = [sys.executable, "-c", HAND_OVER, str(listener.fileno())]
            process = self.watch(subprocess.Popen(
                command + self.command("--socket", "unused"), stderr=subprocess.PIPE, text=True,
                pass_fds=[listener.fileno()]))
            self.await_log(process, "serving .* socket=handed-over")
            self.assertEqual(early.receive()[0], WELCOME)
            self.end(process)
        self.assertTrue(self.socket.exists())

    def test_the_manager_is_told_and_the_journal_gets_levels(self):
        told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(told.close)
        told.bind(str(self.folder / "notify"))
        told.settimeout(WAIT_S)
        with open(self.folder / "log", "w", encoding="ascii") as log:
            stat = os.fstat(log.fileno())
            environment = dict(os.environ, NOTIFY_SOCKET=str(self.folder / "notify"),
                               JOURNAL_STREAM=f"{stat.st_dev}:{stat.st_ino}")
            process = subprocess.Popen(self.command(), stderr=log, env=environment)
        self.addCleanup(process.kill)
        self.assertEqual(told.recv(64), b"READY=1")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(told.recv(64), b"STOPPING=1")
        self.assertEqual(process.wait(WAIT_S), OK)
        for line in (self.folder / "log").read_text().splitlines():
            self.assertRegex(line, "^<6>info daemon [a-z]+")


class ClientTest(DaemonTest):
    """What a client that is wrong costs: itself."""

    def setUp(self):
        super().setUp()
        self.daemon = self.start()
        self.other = self.client()

    def tearDown(self):
        self.assertTrue(self.other.is_served())
        self.end(self.daemon)

    def dropped(self, client, says):
        """It is told why, closed, and the log says so."""
        kind, number, body = client.receive()
        self.assertEqual((kind, number), (ERROR, 0))
        self.assertRegex(body[8:].rstrip(b"\0").decode(), says)
        self.assertIsNone(client.receive())
        self.await_log(self.daemon, f"client dropped pid={os.getpid()} uid={os.getuid()} why=")

    def test_garbage(self):
        for content in (b"x", b"garbage" * 9, b"\0" * MESSAGE_MAX, message(HELLO, 1, b"short"),
                        hello(magic=b"kvwire9\n"), message(STATISTICS, 1), message(999, 1)):
            client = self.client(greet=False)
            client.send(content)
            self.dropped(client, ".")

    def test_a_message_that_is_too_long(self):
        client = self.client()
        client.send(b"\0" * (MESSAGE_MAX + 1))
        self.assertIsNone(client.receive())
        self.await_log(self.daemon, "dropped .*64 KiB")

    def test_a_version_of_the_future(self):
        client = self.client(greet=False)
        client.send(hello(oldest=1000, newest=1001))
        self.dropped(client, "version")

    def test_hello_twice(self):
        client = self.client()
        client.send(hello())
        self.dropped(client, "HELLO")

    def letter(self, size, seals):
        memory = os.memfd_create("letter", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        self.addCleanup(os.close, memory)
        os.ftruncate(memory, size)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, seals)
        return memory

    def test_a_letter_that_could_shrink(self):
        client = self.client(greet=False)
        client.send(hello(4096), [self.letter(4096, fcntl.F_SEAL_GROW)])
        self.dropped(client, "letter")

    def test_a_letter_of_another_size(self):
        client = self.client(greet=False)
        seals = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK
        client.send(hello(8192), [self.letter(4096, seals)])
        self.dropped(client, "letter")

    def test_descriptors_that_nobody_asked_for(self):
        client = self.client()
        seals = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK
        for _ in range(50):
            client.send(message(STATISTICS, 9), [self.letter(4096, seals)] * 3)
            self.assertEqual(client.receive()[0], STATISTICS_ARE)
        held = os.listdir(f"/proc/{self.daemon.pid}/fd")
        self.assertLess(len(held), 40)

    def test_one_that_does_not_read(self):
        client = self.client()
        client.socket.setblocking(False)
        asked = 0
        while asked < 100000:
            try:
                client.send(message(STATISTICS, 9))
                asked += 1
            except BlockingIOError:
                self.assertTrue(self.other.is_served())
            except (BrokenPipeError, ConnectionResetError):
                break
        self.assertLess(asked, 100000)
        self.await_log(self.daemon, "client dropped")

    def test_one_that_goes_is_forgotten(self):
        for _ in range(20):
            self.client().close()
        while self.status()["clients"] > 2:
            pass
        self.assertEqual(self.status()["quarantined"], 0)


class UserTest(DaemonTest):
    """Who may connect."""

    def mode(self):
        return self.socket.stat().st_mode & 0o777

    def hello_as(self, user, group=NOBODY, groups=()):
        """The type of the answer to this user's HELLO, and its text; 0: no connection."""
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setgroups(groups)
                os.setgid(group)
                os.setuid(user)
                client = Client(self.socket)
                try:
                    client.send(hello())
                except BrokenPipeError:
                    pass
                kind, _, body = client.receive()
                os.write(theirs, f"{kind} ".encode() + body[8:])
            finally:
                os._exit(0)
        os.close(theirs)
        with open(ours, "rb") as answer:
            kind, _, text = answer.read().partition(b" ")
        os.waitpid(child, 0)
        return int(kind or 0), text.rstrip(b"\0").decode(errors="replace")

    def test_the_socket_has_its_mode(self):
        for options, mode in (([], 0o600), (["--socket-mode", "640"], 0o640),
                              (["--allow-user", str(NOBODY)], 0o666),
                              (["--allow-user", "0", "--socket-mode", "0600"], 0o600)):
            process = self.start(*options)
            self.assertEqual(self.mode(), mode)
            self.end(process)
        self.assertEqual(self.store.stat().st_mode & 0o777, 0o700)

    def test_users_that_do_not_exist_are_refused(self):
        self.refused(USAGE, "no user nobody-at-all", "--allow-user", "nobody-at-all")
        self.refused(USAGE, "no group nobody-at-all", "--allow-group", "nobody-at-all")

    @unittest.skipIf(os.geteuid() != 0, "needs several users")
    def test_others_are_told_that_they_are_not_allowed(self):
        self.folder.chmod(0o755)
        process = self.start("--socket-mode", "666")
        kind, text = self.hello_as(NOBODY)
        self.assertEqual(kind, ERROR)
        self.assertRegex(text, f"user {NOBODY} is not allowed")
        self.await_log(process, f"client refused pid=[0-9]+ uid={NOBODY} ")
        self.assertTrue(self.client().is_served())
        self.end(process)

    @unittest.skipIf(os.geteuid() != 0, "needs several users")
    def test_users_and_groups_that_are_named_are_allowed(self):
        self.folder.chmod(0o755)
        process = self.start("--allow-user", NOBODY, "--allow-group", 4242)
        self.assertEqual(self.hello_as(NOBODY)[0], WELCOME)
        self.assertEqual(self.hello_as(1234, group=4242)[0], WELCOME)
        self.assertEqual(self.hello_as(1234, groups=[17, 4242])[0], WELCOME)
        self.assertEqual(self.hello_as(1234, groups=[17])[0], ERROR)
        self.end(process)

    @unittest.skipIf(os.geteuid() != 0, "needs several users")
    def test_a_reload_changes_who_is_allowed(self):
        self.folder.chmod(0o755)
        config = self.folder / "kvarve.conf"
        config.write_text("socket-mode = 666\n")
        process = self.start("--config", config)
        self.assertEqual(self.hello_as(NOBODY)[0], ERROR)
        config.write_text(f"[serve]\nallow-user = {NOBODY}\n")
        process.send_signal(signal.SIGHUP)
        self.await_log(process, "daemon reloaded")
        self.assertEqual(self.hello_as(NOBODY)[0], WELCOME)
        config.write_text("nonsense = 1\n")
        process.send_signal(signal.SIGHUP)
        self.await_log(process, "not-reloaded .*kvarve.conf:1")
        self.assertEqual(self.hello_as(NOBODY)[0], WELCOME)
        self.end(process)

    def test_clients_have_a_limit(self):
        process = self.start("--clients-max", "2")
        first, second = self.client(), self.client()
        third = self.client(greet=False)
        kind, number, body = third.receive()
        self.assertEqual((kind, number), (ERROR, 0))
        self.assertIn(b"2 clients", body)
        second.close()
        self.await_log(process, "client gone")
        self.client()
        self.assertTrue(first.is_served())
        self.end(process)


class ConfigTest(DaemonTest):
    """Options."""

    def test_a_bad_value_names_its_place_and_range(self):
        config = self.folder / "kvarve.conf"
        config.write_text("\n[serve]\narena = 5\n")
        self.refused(USAGE, r"kvarve.conf:3: arena \"5\".*1M \.\. 16T", "--config", config)
        self.refused(USAGE, r"--clients-max: .*1 \.\. 4096", "--clients-max", "0")
        self.refused(USAGE, "there is no .*none.conf", "--config", self.folder / "none.conf")
        self.assertFalse(self.store.exists())

    def test_flags_overrule_the_file(self):
        config = self.folder / "kvarve.conf"
        config.write_text(f"socket = {self.folder}/wrong\nlog-level = error\n")
        process = self.start("--config", config, "--log-level", "info")
        self.assertTrue(self.socket.exists())
        self.end(process)

    def test_a_store_is_no_socket_and_both_are_needed(self):
        self.refused(USAGE, "no folder", "--store", "unix:x")
        for missing in (["--store", str(self.store)], ["--socket", str(self.socket)]):
            result = subprocess.run([KVARVE, "serve", *missing], stderr=subprocess.PIPE, text=True,
                                    check=False)
            self.assertEqual(result.returncode, USAGE)
            self.assertRegex(result.stderr, "^kvarve: no (store|socket) is named")

    def get(self, port, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=WAIT_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def test_health_and_metrics(self):
        process = self.watch(subprocess.Popen(self.command("--metrics-port", "0"),
                                              stderr=subprocess.PIPE, text=True))
        port = re.search(r"port=(\d+)", self.await_log(process, "daemon metrics port="))[1]
        self.await_log(process, "serving")
        self.client()
        self.assertEqual(self.get(port, "/healthz"), (200, "ok\n"))
        code, text = self.get(port, "/metrics")
        self.assertEqual(code, 200)
        figures = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
        self.assertEqual(figures["kvarve_daemon_clients"], "1")
        self.assertEqual(figures["kvarve_puts_total"], "0")
        self.assertIn('kvarve_misses_total{reason="tokens"}', figures)
        self.assertEqual(self.get(port, "/")[0], 404)
        self.end(process)

    def test_help_teaches(self):
        text = subprocess.run([KVARVE, "serve", "--help"], stdout=subprocess.PIPE, text=True,
                              check=True).stdout
        for word in ("Example", "Exit codes", "SIGTERM", "--metrics-port", "--allow-user"):
            self.assertIn(word, text)


class StoreTest(DaemonTest):
    """A store behind a daemon, through the public calls, from several processes."""

    def setUp(self):
        super().setUp()
        self.endpoint = f"unix:{self.socket}"

    def make_store(self, *what):
        made = subprocess.run([MAKE_STORE, self.endpoint, *what], check=True, text=True,
                              stdout=subprocess.PIPE, timeout=WAIT_S)
        return made.stdout.split()

    def kvarve(self, *arguments, store=None, code=OK):
        result = subprocess.run([KVARVE, *arguments, "--json", "--store",
                                 str(store or self.endpoint)],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                timeout=WAIT_S, check=False)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return json.loads(result.stdout)

    def ids(self, store=None):
        return [one["id"] for one in self.kvarve("ls", store=store)["checkpoints"]]

    def hold(self, what):
        """A client in the middle of a put."""
        process = subprocess.Popen([MAKE_STORE, self.endpoint, what], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait, WAIT_S)
        self.addCleanup(process.stdin.close)
        self.assertEqual(process.stdout.readline(), "open\n")
        return process

    def open_puts(self):
        return self.status()["statistics"]["puts_open"]

    def test_what_one_process_puts_another_one_finds(self):
        process = self.start()
        ids = self.make_store()
        self.assertEqual(self.ids(), ids)
        tokens = self.folder / "tokens"
        tokens.write_text(" ".join(str(7 + i) for i in range(140)))
        space = self.kvarve("show", ids[2])["namespace"]
        answer = self.kvarve("why", "--tokens-file", str(tokens), "--namespace", space)
        self.assertIn("128", json.dumps(answer))
        written = self.status()["statistics"]["payload_bytes_written"]
        self.assertEqual(self.make_store(), ids)
        self.assertEqual(self.status()["statistics"]["payload_bytes_written"], written)
        self.kvarve("verify")
        self.end(process)

    def test_what_is_durable_stays_when_it_ends_or_is_killed(self):
        for number, code in ((signal.SIGTERM, OK), (signal.SIGKILL, -signal.SIGKILL)):
            process = self.start()
            ids = self.make_store()
            self.end(process, number, code)
            self.assertEqual(sorted(self.ids(store=self.store)), sorted(ids))
            self.kvarve("verify", store=self.store)

    def test_killed_in_the_middle_it_loses_nothing_that_was_durable(self):
        process = self.start()
        client = subprocess.Popen([MAKE_STORE, self.endpoint, "large"], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        durable = 0
        while durable < 10:
            durable = self.status()["statistics"]["puts_durable"]
        self.end(process, signal.SIGKILL, -signal.SIGKILL)
        _, says = client.communicate(timeout=WAIT_S)
        if client.returncode != OK:  # it was not done yet, and is told
            self.assertRegex(says, "^make_store: .*daemon")
        process = self.start()
        self.assertGreaterEqual(len(self.ids()), durable)
        self.kvarve("verify")
        self.make_store("large")
        self.assertEqual(len(self.ids()), 60)
        self.end(process)

    def test_many_processes_at_once(self):
        process = self.start()
        what = ["", "many", "large"] * 2
        running = [subprocess.Popen([MAKE_STORE, self.endpoint, one], stdout=subprocess.PIPE)
                   for one in what]
        garbage = self.client(greet=False)
        garbage.send(b"garbage")
        for one in running:
            one.communicate(timeout=WAIT_S)
            self.assertEqual(one.returncode, OK)
        self.assertEqual(len(self.ids()), 5 + 20 + 60)
        self.end(process)
        self.kvarve("verify", store=self.store)

    def test_a_client_that_is_killed_gives_its_put_back(self):
        process = self.start()
        client = self.hold("stage")
        self.assertEqual(self.open_puts(), 1)
        client.kill()
        self.await_log(process, f"client died pid={client.pid} ")
        self.assertEqual(self.open_puts(), 0)
        self.make_store()
        self.end(process)

    def test_a_client_without_connection_is_quarantined_until_it_is_dead(self):
        process = self.start()
        client = self.hold("vanish")
        self.await_log(process, f"client quarantined pid={client.pid} ")
        self.assertEqual(self.status()["quarantined"], 1)
        self.make_store()  # others go on
        client.kill()
        self.await_log(process, f"client died pid={client.pid} ")
        self.assertEqual(self.status()["quarantined"], 0)
        self.end(process)

    def test_a_put_in_the_middle_does_not_hold_up_the_end(self):
        process = self.start()
        self.hold("stage")
        self.hold("vanish")
        ids = self.make_store()
        self.end(process)
        self.assertEqual(sorted(self.ids(store=self.store)), sorted(ids))

    def test_the_log_knows_nothing_of_what_is_stored(self):
        process = self.start("--log-level", "debug")
        self.make_store()
        self.end(process)
        log = "".join(process.log)
        self.assertIn("client connected", log)
        for word in ("secret", "model", "drafter", "recurrent-sha256"):
            self.assertNotIn(word, log)

    def test_what_is_the_daemons_to_have_is_refused(self):
        process = self.start()
        answer = self.kvarve("rebuild", code=USAGE)
        self.assertIn("stop the daemon", answer["error"]["text"])
        self.end(process)

    def test_gc_drops_down_to_a_cap_through_the_daemon(self):
        process = self.start()
        self.make_store()
        answer = self.kvarve("gc", "--cap", "1G")
        self.assertEqual(answer["dropped"], 0)
        self.end(process)


if __name__ == "__main__":
    KVARVE, MAKE_STORE = (os.path.abspath(path) for path in sys.argv[1:3])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
