#!/usr/bin/env python3
"""A conversation with llama-server that survives the server, for the end-to-end tests and the demo.

A Plan says what is asked: a long start, then turns; all text follows from the plan. A Conversation
asks it, one turn at a time. Between turns it can do what a user of kvarve does:

    keep     save the slot to a file, hand the file to the ingest hook, delete it
    revive   kill -9 the server, start it again, let the emit hook write a slot file for the next
             prompt, restore it

A hook is a callable that takes a dict of values, or a Command with places for them:

    slot      the slot file: to be read by ingest, to be written by emit
    tokens    a file of token ids, decimal, one a line; ingest: what the slot holds; emit: the
              next prompt
    count     how many tokens that is
    prompt_at, user_at    where the last prompt and the last user message end (ingest)
    pid, url, model       the running server and its model file

With the stock hooks, which keep a copy of the file, everything here works without kvarve; running
this file does that:

    conversation.py [--model NAME] [--turns N] [--start N] [--turn N] [--chat]
                    [--ingest COMMAND] [--emit COMMAND]
"""

import argparse
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

from environment import prepare
from server import Server

# No letter pair here is a merge of the tiny models' tokenizer: a byte is a token, in templates too.
LETTERS = "abcdefgjklmopqsuvwxyz"
MODEL_FLAGS = {"qwen35mtp": ["--spec-type", "draft-mtp", "--spec-draft-n-max", "2"]}
PROBABILITIES = 20


def pseudo_text(label, count):
    """count ASCII characters that follow from the label: words and spaces."""
    stream = hashlib.shake_128(label.encode()).digest(count)
    text = "".join(" " if byte % 7 == 0 else LETTERS[byte % len(LETTERS)] for byte in stream[:-1])
    return (text + ".")[:count]


class Plan:
    """What is asked, and how much: token counts, which are the characters of the pseudo-text.

    system_tokens of the start are text under system_label alone, so that plans can share them.
    chat: through the model's chat template instead of raw tokens. thinking: an answer is kept as
    reasoning and result, of which the template drops the first.
    """

    def __init__(
        self,
        label="main",
        start=8000,
        turns=6,
        turn=960,
        answer=64,
        system_tokens=0,
        system_label="system",
        chat=False,
        thinking=False,
    ):
        self.label, self.start, self.turns, self.turn, self.answer = (
            label,
            start,
            turns,
            turn,
            answer,
        )
        self.system_tokens, self.system_label = system_tokens, system_label
        self.chat, self.thinking = chat, thinking

    def system_text(self):
        return (
            pseudo_text(f"system {self.system_label}", self.system_tokens)
            if self.system_tokens
            else ""
        )

    def user_text(self, index, edition=0):
        """Message of turn index; turn 0 is the start. Another edition differs in its last
        quarter."""
        count = self.turn if index else self.start - self.system_tokens
        text = pseudo_text(f"{self.label} {index}", count)
        if edition:
            tail = count // 4
            text = text[: count - tail] + pseudo_text(f"{self.label} {index} {edition}", tail)
        return text

    def answer_text(self, text):
        middle = len(text) // 2
        return f"<think>\n{text[:middle]}</think>{text[middle:]}" if self.thinking else text


class Turn:
    """One question and its answer. prompt and tokens are token ids; slot_tokens is what the slot
    holds then."""

    def __init__(self, index, prompt, answer, user_at, seconds):
        self.index, self.prompt, self.user_at, self.seconds = index, prompt, user_at, seconds
        self.text, self.tokens, self.probabilities = (
            answer.text,
            answer.tokens,
            answer.probabilities,
        )
        self.cache_n, self.prompt_n, self.prompt_ms = (
            answer.cache_n,
            answer.prompt_n,
            answer.prompt_ms,
        )
        self.slot_tokens = (prompt + answer.tokens)[:-1]
        self.slot_bytes, self.save_seconds, self.save_ms, self.restored = 0, 0.0, 0.0, 0
        self.ingest, self.emit = None, None

    def same_answer(self, other):
        """Text, tokens and log-probabilities: bit for bit."""
        return (self.tokens, self.text, self.probabilities) == (
            other.tokens,
            other.text,
            other.probabilities,
        )


class Command:
    """A hook that runs a command line. {slot}, {tokens} … are replaced; its result has code,
    seconds, output and errors."""

    def __init__(self, line, accept=(0,)):
        self.words = shlex.split(line) if isinstance(line, str) else list(line)
        self.accept = accept

    def __call__(self, values):
        words = [word.format(**values) for word in self.words]
        begin = time.monotonic()
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode not in self.accept:
            raise RuntimeError(
                f"{shlex.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
            )
        seconds = time.monotonic() - begin
        return {
            "code": done.returncode,
            "seconds": seconds,
            "output": done.stdout,
            "errors": done.stderr,
        }


class StockStore:
    """What one can do without kvarve: keep the newest slot file whole."""

    def __init__(self, folder):
        self.path, self.bytes_written = os.path.join(folder, "kept.slot"), 0

    def ingest(self, values):
        shutil.copyfile(values["slot"], self.path)
        self.bytes_written += os.path.getsize(self.path)
        return {"code": 0}

    def emit(self, values):
        shutil.copyfile(self.path, values["slot"])
        return {"code": 0}


class Conversation:
    """server may be running or not yet; a conversation has one slot of it. The turns so far are in
    .turns."""

    def __init__(self, server, plan, slot=0, probabilities=0):
        self.server, self.plan, self.slot, self.probabilities = server, plan, slot, probabilities
        self.turns, self.messages, self.history = [], [], []
        if plan.chat and plan.system_tokens:
            self.messages.append({"role": "system", "content": plan.system_text()})

    # Asking --------------------------------------------------------------------------------------

    def prompt(self, edition=0):
        """The next prompt's tokens, and where its user message ends."""
        text = self.plan.user_text(len(self.turns), edition)
        if not self.plan.chat:
            system = "" if self.turns else self.plan.system_text()
            tokens = self.history + list((system + text).encode())
            return tokens, len(tokens)
        messages = self.messages + [{"role": "user", "content": text}]
        templated = self.server.apply_template(messages)
        end = templated.rindex(text) + len(text)
        return self.server.tokenize(templated), len(self.server.tokenize(templated[:end]))

    def ask(self, edition=0, count=None):
        """The next turn's question; the answer becomes the last of .turns. edition: another last
        message."""
        prompt, user_at = self.prompt(edition)
        begin = time.monotonic()
        answer = self.server.complete(
            prompt, count or self.plan.answer, self.slot, self.probabilities, ignore_eos=True
        )
        turn = Turn(len(self.turns), prompt, answer, user_at, time.monotonic() - begin)
        text = self.plan.user_text(turn.index, edition)
        self.messages += [
            {"role": "user", "content": text},
            {"role": "assistant", "content": self.plan.answer_text(turn.text)},
        ]
        self.history = prompt + turn.tokens
        self.turns.append(turn)
        return turn

    def copy(self):
        """The same conversation so far, to be continued in another way."""
        other = Conversation(self.server, self.plan, self.slot, self.probabilities)
        other.turns, other.messages, other.history = (
            list(self.turns),
            list(self.messages),
            list(self.history),
        )
        return other

    def back(self, count):
        """The conversation as it was after count turns: the next question is a branch, or the same
        turn again."""
        del self.turns[count:]
        head = 1 if self.plan.chat and self.plan.system_tokens else 0
        del self.messages[head + 2 * count :]
        self.history = self.turns[-1].prompt + self.turns[-1].tokens if self.turns else []

    # Surviving -----------------------------------------------------------------------------------

    def values(self, name, tokens, **more):
        path = os.path.join(self.server.slots, f"{name}-{self.slot}.tokens")
        with open(path, "w") as file:
            file.write("".join(f"{token}\n" for token in tokens))
        slot = os.path.join(self.server.slots, f"{name}-{self.slot}.slot")
        return {
            "slot": slot,
            "tokens": path,
            "count": len(tokens),
            "pid": self.server.pid,
            "url": self.server.url,
            "model": self.server.model,
            **more,
        }

    def keep(self, ingest):
        """Saves the slot after the last turn and hands it to the hook."""
        turn = self.turns[-1]
        values = self.values(
            "keep", turn.slot_tokens, prompt_at=len(turn.prompt), user_at=turn.user_at
        )
        begin = time.monotonic()
        saved = self.server.save(os.path.basename(values["slot"]), self.slot)
        turn.save_seconds = time.monotonic() - begin
        turn.slot_bytes, turn.save_ms = saved["n_written"], saved["timings"]["save_ms"]
        try:
            turn.ingest = ingest(values)
        finally:
            os.unlink(values["slot"])
            os.unlink(values["tokens"])
        return turn

    def resume(self, emit, edition=0):
        """Lets the hook write a slot file for the next prompt and restores it, or does nothing on a
        miss (no file)."""
        values = self.values("emit", self.prompt(edition)[0])
        result = emit(values)
        restored, seconds = 0, 0.0
        if os.path.exists(values["slot"]):
            begin = time.monotonic()
            restored = self.server.restore(os.path.basename(values["slot"]), self.slot)[
                "n_restored"
            ]
            seconds = time.monotonic() - begin
            os.unlink(values["slot"])
        os.unlink(values["tokens"])
        return {"result": result, "restored": restored, "restore_seconds": seconds}

    def revive(self, emit, edition=0):
        self.server.kill()
        self.server.start()
        return self.resume(emit, edition)


def run(server, plan, probabilities=0, each=None):
    """The whole plan, uninterrupted: start and turns. each(turn) is called as they come."""
    conversation = Conversation(server, plan, probabilities=probabilities)
    for _ in range(plan.turns + 1):
        turn = conversation.ask()
        if each:
            each(turn)
    return conversation


def run_twice(server, plan, ingest, emit, probabilities=0, each=None):
    """The plan uninterrupted, and the plan with a server that dies after every turn; the start is
    computed once, for both. Returns both conversations. The server runs at the end, with the last
    turn in its slot and kept by ingest.
    """
    plain = Conversation(server, plan, probabilities=probabilities)
    plain.ask()
    plain.keep(ingest)
    revived = plain.copy()
    for conversation in (plain, revived):
        while len(conversation.turns) <= plan.turns:
            came_back = conversation.revive(emit) if conversation is revived else None
            turn = conversation.ask()
            if came_back:
                turn.emit, turn.restored = came_back, came_back["restored"]
                conversation.keep(ingest)
            if each:
                each(turn)
    return plain, revived


def compare(plain, revived):
    """What differs between an uninterrupted conversation and one that was revived: a list of
    sentences."""
    wrong = []
    for one, other in zip(plain.turns, revived.turns, strict=True):
        if not one.same_answer(other):
            wrong.append(f"turn {one.index}: another answer: {one.text!r} and {other.text!r}")
        if (one.cache_n, one.prompt_n) != (other.cache_n, other.prompt_n):
            wrong.append(
                f"turn {one.index}: cached {one.cache_n}, read {one.prompt_n}, "
                f"revived: {other.cache_n}, {other.prompt_n}"
            )
    return wrong


def print_turn(turn):
    print(
        f"  turn {turn.index}: {len(turn.prompt)} tokens, {turn.cache_n} cached, "
        f"{turn.prompt_n} read in {turn.prompt_ms / 1000:.2f} s, slot file {turn.slot_bytes} bytes "
        f"in {turn.save_seconds * 1000:.0f} ms, {turn.text[:24]!r}",
        flush=True,
    )


def options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", action="append", help="of tools/tiny_models.py; may be repeated")
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--start", type=int, default=8000)
    parser.add_argument("--turn", type=int, default=960)
    parser.add_argument("--chat", action="store_true", help="through the chat template")
    parser.add_argument(
        "--ingest", type=Command, help="command line with {slot} and others; a copy when left out"
    )
    parser.add_argument("--emit", type=Command)
    return parser.parse_args()


def check(program, model, path, chosen, folder):
    plan = Plan(
        start=chosen.start,
        turns=chosen.turns,
        turn=chosen.turn,
        chat=chosen.chat or model == "thinking",
        thinking=model == "thinking",
    )
    stock = StockStore(folder)
    ingest, emit = chosen.ingest or stock.ingest, chosen.emit or stock.emit
    print(f"{model}: first not interrupted, then killed after every turn")
    begin = time.monotonic()
    with Server(program, path, folder, MODEL_FLAGS.get(model, [])) as server:
        plain, revived = run_twice(server, plan, ingest, emit, PROBABILITIES, print_turn)
    print(f"  {time.monotonic() - begin:.1f} s", flush=True)
    return [f"{model}: {sentence}" for sentence in compare(plain, revived)]


def main():
    chosen = options()
    models = chosen.model or ["llama", "qwen35", "mamba2", "qwen35mtp"]
    program, paths = prepare(models)
    wrong = []
    for model in models:
        with tempfile.TemporaryDirectory(prefix="kvarve-llama-") as folder:
            wrong += check(program, model, paths[model], chosen, folder)
    print("\n".join(wrong) or "every answer is the same")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
