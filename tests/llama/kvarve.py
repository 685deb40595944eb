"""kvarve's command line for the end-to-end tests and the demo: run it, read its JSON, count what
its process wrote.

The counting asks the kernel, not kvarve: /proc/PID/io of the ended process, before it is reaped.
write_bytes there is what went to a disk; on tmpfs it stays 0, so stores of tests lie below build.
"""

import json
import os
import subprocess
import tempfile
import time

from conversation import MODEL_FLAGS

OK, FAILED, USAGE, MISS, BUSY, CORRUPT, UNSUPPORTED, NO_SPACE = range(8)
DRAFT_FLAGS = {
    "qwen35mtp": "--draft-type draft-mtp --draft-kv-type-k f16 --draft-kv-type-v f16".split()
}


class Result:
    """What one call came to. json is {} where it printed none; write_bytes None where the kernel
    does not tell."""

    def __init__(self, words, code, output, errors, seconds, write_bytes):
        self.words, self.code, self.errors, self.seconds = words, code, errors, seconds
        self.write_bytes = write_bytes
        self.json = json.loads(output) if output.startswith("{") else {}

    @property
    def counted_bytes(self):
        """What kvarve says that an ingest wrote: pages, index, batch headers."""
        return sum(self.json[f"{part}_bytes"] for part in ("payload", "index", "header"))

    def __str__(self):
        return f"{' '.join(self.words)}: exit {self.code}: {self.errors}{self.json}"


def written_by(pid):
    """Bytes that the process sent to a disk in its life. It must be a zombie: then all its threads
    count."""
    try:
        with open(f"/proc/{pid}/io") as file:
            fields = dict(line.split(": ") for line in file)
        return int(fields["write_bytes"])
    except OSError:
        return None


def run_counted(words):
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        with process:
            output = process.stdout.read()
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            seconds, write_bytes = time.monotonic() - begin, written_by(process.pid)
        errors.seek(0)
        return Result(words, process.returncode, output, errors.read(), seconds, write_bytes)


def flags_of(model, path, numerics="test test"):
    """An identity by flags alone, as for a slot file whose server has ended."""
    flags = ["--model", path, "--kv-type-k", "f16", "--kv-type-v", "f16", "--numerics", numerics]
    return flags + DRAFT_FLAGS.get(model, [])


class Kvarve:
    """One store. ingest and emit are hooks for Conversation: they take its values and raise when
    the exit code is not among those accepted."""

    def __init__(self, program, store, identity=None, more=()):
        self.program, self.store, self.identity, self.more = program, store, identity, list(more)
        self.results = []

    def call(self, *words, accept=(OK,)):
        result = run_counted([self.program, *words, "--store", self.store, "--json"])
        if result.code not in accept:
            raise RuntimeError(str(result))
        self.results.append(result)
        return result

    def identify(self, values):
        """By flags where this store was made with them, else by asking the running server."""
        if self.identity:
            return self.identity
        return ["--server", values["url"]]

    def ingest(self, values, accept=(OK,)):
        words = ["llama", "ingest", values["slot"], *self.identify(values), *self.more]
        for place in ("prompt_at", "user_at"):
            if place in values:
                words += [f"--{place.replace('_', '-')}", str(values[place])]
        return self.call(*words, accept=accept)

    def emit(self, values, accept=(OK,)):
        words = ["llama", "emit", "--tokens-file", values["tokens"], "--output", values["slot"]]
        return self.call(*words, *self.identify(values), *self.more, accept=accept)

    def emit_or_miss(self, values):
        return self.emit(values, accept=(OK, MISS))

    def checkpoints(self):
        return self.call("ls").json


def server_flags(model):
    return MODEL_FLAGS.get(model, [])
