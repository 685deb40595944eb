"""One llama-server on a loopback port, for tests and the demo. Standard library only.

The process is the caller's own child and is stopped by its pid alone. It runs with one compute
thread: with two on a busy machine decode falls to a few tokens a second, and one thread gives the
same logits every time.
"""

import ctypes
import http.client
import json
import os
import signal
import socket
import subprocess
import time

READY_SECONDS = 60
REQUEST_SECONDS = 600
POLL_SECONDS = 0.02


PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent():
    """Also when a test is ended from outside, no server is left behind."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class ServerError(Exception):
    """The server answered with an error; .status and .body say which."""

    def __init__(self, path, status, body):
        super().__init__(f"{path}: HTTP {status}: {body[:300]}")
        self.status, self.body = status, body


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """program: the wrapper from tools/fetch_llama; slots: a folder for slot files; flags: more of
    the command line."""

    def __init__(
        self, program, model, slots, flags=(), context=16384, parallel=1, log=None, environment=None
    ):
        self.program, self.model, self.slots, self.log = program, model, slots, log
        self.context, self.parallel, self.flags = context, parallel, list(flags)
        self.environment = environment
        self.process, self.port = None, None

    # Life ----------------------------------------------------------------------------------------

    def command(self):
        command = [self.program, "-m", self.model, "--host", "127.0.0.1", "--port", str(self.port)]
        command += [
            "-t",
            "1",
            "-c",
            str(self.context),
            "-np",
            str(self.parallel),
            "--no-ui",
            "--metrics",
        ]
        command += ["--slot-save-path", self.slots, "--temp", "0", "--cache-ram", "0"]
        return command + self.flags

    def start(self):
        """Starts it and waits until it is ready. Another program may take the port meanwhile: then
        once more."""
        for attempt in range(3):
            self.port = free_port()
            with open(self.log or os.devnull, "ab") as log:
                environment = {**os.environ, **(self.environment or {})}
                self.process = subprocess.Popen(
                    self.command(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    preexec_fn=die_with_parent,
                )
            if self._wait_until_ready():
                return self
        raise RuntimeError(f"llama-server does not start: see {self.log}")

    def _wait_until_ready(self):
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                self.request("GET", "/health", timeout=5)
                return True
            except (OSError, ServerError, http.client.HTTPException):
                time.sleep(POLL_SECONDS)
        self.kill()
        return False

    def kill(self):
        """kill -9: what it had in memory is gone."""
        self._end(signal.SIGKILL)

    def stop(self):
        self._end(signal.SIGTERM)

    def _end(self, number):
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def __enter__(self):
        return self if self.process else self.start()

    def __exit__(self, *_):
        self.stop()

    @property
    def pid(self):
        return self.process.pid

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    # Requests ------------------------------------------------------------------------------------

    def request(self, method, path, body=None, timeout=REQUEST_SECONDS):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read().decode("utf-8", "replace")
        finally:
            connection.close()
        if response.status != 200:
            raise ServerError(path, response.status, text)
        return json.loads(text) if text[:1] in ("{", "[") else text

    def properties(self):
        return self.request("GET", "/props")

    def tokenize(self, text):
        """Token ids of templated text: special tokens are recognised, none is added."""
        body = {"content": text, "add_special": False, "parse_special": True}
        return self.request("POST", "/tokenize", body)["tokens"]

    def detokenize(self, tokens):
        return self.request("POST", "/detokenize", {"tokens": tokens})["content"]

    def apply_template(self, messages):
        return self.request("POST", "/apply-template", {"messages": messages})["prompt"]

    def complete(self, prompt, count, slot=0, probabilities=0, **more):
        """prompt: text or token ids. Returns an Answer; probabilities: so many log-probabilities a
        token."""
        body = {
            "prompt": prompt,
            "n_predict": count,
            "id_slot": slot,
            "cache_prompt": True,
            "temperature": 0,
        }
        body.update(samplers=["temperature"], return_tokens=True, n_probs=probabilities, **more)
        return Answer(self.request("POST", "/completion", body))

    def chat(self, messages, count, slot=0, **more):
        """The chat door; the answer's tokens are those that the server reports with
        return_tokens."""
        body = {"messages": messages, "max_tokens": count, "id_slot": slot, "cache_prompt": True}
        body.update(temperature=0, verbose=True, return_tokens=True, **more)
        return self.request("POST", "/v1/chat/completions", body)

    def save(self, name, slot=0):
        """Into slots/name; returns the server's answer (n_saved, n_written, timings.save_ms)."""
        return self.request("POST", f"/slots/{slot}?action=save", {"filename": name})

    def restore(self, name, slot=0):
        return self.request("POST", f"/slots/{slot}?action=restore", {"filename": name})

    def erase(self, slot=0):
        return self.request("POST", f"/slots/{slot}?action=erase", {})


class Answer:
    """What a completion said, and what it cost: cache_n tokens were there, prompt_n were read."""

    def __init__(self, body):
        self.body = body
        self.text, self.tokens = body["content"], body.get("tokens", [])
        self.cache_n, self.prompt_n = body["timings"]["cache_n"], body["timings"]["prompt_n"]
        self.prompt_ms = body["timings"]["prompt_ms"]

    @property
    def probabilities(self):
        """Per token: the list of (token id, log-probability), most likely first."""
        steps = self.body.get("completion_probabilities", [])
        return [[(top["id"], top["logprob"]) for top in step["top_logprobs"]] for step in steps]
