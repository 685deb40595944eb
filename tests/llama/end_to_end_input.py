#!/usr/bin/env python3
"""Altered bytes change the answer, so the other tests can see; and wrong input is refused by name,
with nothing lost."""

import struct
import sys

import slot_file
from conversation import Plan
from end_to_end_case import EndToEnd, main
from kvarve import CORRUPT, MISS, OK, UNSUPPORTED, USAGE, Kvarve
from server import Server
from slot_file import Shape

SHAPES = {"llama": Shape(), "qwen35": Shape(attention=1, recurrent=12, extended=True)}
HUGE = 0xFFFFFFFFFFFFFFFF


def flipped(data, at, bits):
    return data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :]


def patched(data, at, form, value):
    packed = struct.pack("<" + form, value)
    return data[:at] + packed + data[at + len(packed) :]


class Altered(EndToEnd):
    """One byte of a slot file is another one, and kvarve's digests fit it, since they are made when
    it is ingested."""

    MODELS = ("llama", "qwen35")

    def begin(self, model):
        self.model = model
        self.start(model)
        self.plan = Plan(start=700, turns=1, turn=100, answer=16)
        self.talk = self.conversation(self.plan)
        self.talk.ask()
        self.slot = self.saved("plain.slot")
        self.reference = self.talk.copy().ask()
        with open(self.slot, "rb") as file:
            self.data = file.read()
        self.parts = slot_file.parse(self.data, SHAPES[model])

    def next_answer(self, name, data):
        """The next turn, after this file went through a store of its own."""
        kvarve = self.store(name, self.model)
        kvarve.ingest({"slot": self.write(f"{name}.slot", data)})
        talk = self.talk.copy()
        talk.revive(kvarve.emit)
        turn = talk.ask()
        self.assertEqual(turn.cache_n, len(self.talk.turns[0].slot_tokens))
        return turn

    def check(self, name, at, bits):
        turn = self.next_answer(name, flipped(self.data, at, bits))
        self.assertNotEqual(turn.probabilities, self.reference.probabilities)

    def check_attention(self):
        """A factor of 256 in one number of f16: the key and the value of token 40 in layer 0."""
        stream = self.parts.state.attention[0].streams[0]
        for name, rows in (("key", stream.keys[0]), ("value", stream.values[0])):
            self.check(name, rows.offset + 40 * rows.row_bytes + 101, 0x20)

    def test_altered_dense(self):
        self.begin("llama")
        self.assert_same(self.next_answer("same", self.data), self.reference)
        self.check_attention()

    def test_altered_hybrid(self):
        self.begin("qwen35")
        self.assert_same(self.next_answer("same", self.data), self.reference)
        self.check_attention()
        rows = self.parts.state.recurrent.rows[-1]
        numbers = struct.unpack_from("<4096f", self.data, rows.offset)
        largest = max(range(len(numbers)), key=lambda index: abs(numbers[index]))
        self.check("endpoint", rows.offset + 4 * largest + 3, 0x80)  # its sign


class WrongInput(EndToEnd):
    MODELS = ("llama", "qwen35")

    def setUp(self):
        super().setUp()
        self.start("qwen35")
        talk = self.conversation(Plan(start=300, turns=0, answer=16))
        self.turn = talk.ask()
        self.tokens = self.turn.slot_tokens + [65, 66]
        with open(self.saved("good.slot"), "rb") as file:
            self.data = file.read()
        self.kvarve = self.store("store", "qwen35")
        self.kvarve.ingest({"slot": self.path("good.slot")})
        self.listed = self.kvarve.call("ls").json["checkpoints"]

    def tearDown(self):
        """Whatever was refused, what is stored stays, and is found."""
        self.assertEqual(len(self.kvarve.call("ls").json["checkpoints"]), len(self.listed))
        values = {"slot": self.path("out.slot"), "tokens": self.write_tokens(self.tokens)}
        self.assertEqual(self.kvarve.emit(values).json["tokens"], len(self.turn.slot_tokens))
        self.kvarve.call("verify")

    def refuse(self, data, codes, text=None):
        result = self.kvarve.ingest({"slot": self.write("wrong.slot", data)}, accept=range(256))
        self.assertIn(result.code, codes, result)
        self.assertIn("kvarve: ", result.errors)
        if text:
            self.assertIn(text, result.errors)
        return result

    def test_truncated(self):
        sizes = [1, 4, 11, 12, 40, len(self.data) // 3, len(self.data) // 2, len(self.data) - 1]
        for size in sizes:
            with self.subTest(size):
                self.refuse(self.data[:size], (CORRUPT, UNSUPPORTED, USAGE))
        self.refuse(b"", (CORRUPT, USAGE))

    def test_other_version(self):
        self.refuse(patched(self.data, 4, "I", 5), (UNSUPPORTED,), "5")
        self.refuse(patched(self.data, 4, "I", 3), (UNSUPPORTED,), "3")
        appendix = self.data.index(b"SCKP") + 4
        self.refuse(patched(self.data, appendix, "I", 2), (UNSUPPORTED,), "2")

    def test_lying_counts(self):
        parts = slot_file.parse(self.data, SHAPES["qwen35"])
        stream, point = parts.state.attention[0].streams[0], parts.checkpoints[0]
        places = {
            "tokens in the file": (8, "I", 0xFFFFFFFF),
            "tokens in the slot": (20, "i", 0x7FFFFFFF),
            "streams": (parts.state.start, "I", 0xFFFFFFFF),
            "cells": (stream.start, "I", 0xFFFFFFFF),
            "bytes of a row": (stream.keys[0].offset - 8, "Q", HUGE),
            "checkpoints": (self.data.index(b"SCKP") + 8, "I", 0xFFFFFFFF),
            "bytes of a checkpoint": (point.target.start - 8, "Q", HUGE),
        }
        for name, (at, form, value) in places.items():
            with self.subTest(name):
                self.refuse(patched(self.data, at, form, value), (CORRUPT, UNSUPPORTED, USAGE))

    def test_no_tokens(self):
        self.server.erase()
        with open(self.saved("empty.slot"), "rb") as file:
            self.refuse(file.read(), (USAGE,))

    def test_no_slot_file(self):
        self.refuse(b"GGUF" + bytes(4096), (CORRUPT, USAGE, UNSUPPORTED))
        missing = self.kvarve.ingest({"slot": self.path("none.slot")}, accept=range(256))
        self.assertNotEqual(missing.code, OK)
        self.assertIn("none.slot", missing.errors)

    def miss(self, kvarve):
        values = {"slot": self.path("miss.slot"), "tokens": self.write_tokens(self.tokens)}
        return kvarve.emit(values, accept=(MISS,))

    def test_other_model(self):
        """State of one model is never given to another one, and the miss says which field it is."""
        missed = self.miss(self.store("store", "llama"))
        print(f"  {missed.errors.strip()}")
        self.assertIn("another identity", missed.json["miss"]["reason"])
        self.assertEqual(missed.json["miss"]["field"], "architecture")
        missed = self.miss(self.store("store", "qwen35", numerics="another build"))
        print(f"  {missed.errors.strip()}")
        self.assertIn("another build", missed.json["miss"]["reason"])

    def test_other_tokens(self):
        self.tokens, kept = [7] + self.tokens[1:], self.tokens
        missed = self.miss(self.kvarve)
        self.tokens = kept
        print(f"  {missed.errors.strip()}")

    def test_wrong_tokens(self):
        for text in (b"", b"12 -1\n", b"2147483648\n", b"twelve\n", b"[1, 2"):
            with self.subTest(text):
                values = {"slot": self.path("w.slot"), "tokens": self.write("wrong", text)}
                result = self.kvarve.emit(values, accept=range(256))
                self.assertEqual(result.code, USAGE, result)

    def test_unknown_identity(self):
        """What is not known is refused, never guessed."""
        identity = self.kvarve.identity
        self.kvarve.identity = identity[:2]
        self.refuse(self.data, (UNSUPPORTED,), "--")
        self.kvarve.identity = identity

    def test_refused_servers(self):
        """Whose state depends on more than its tokens."""
        self.server.stop()
        for flags in (["--context-shift"], ["--cache-reuse", "64"]):
            with self.subTest(flags[0]), Server(
                self.SERVER, self.PATHS["qwen35"], self.folder, flags
            ) as server:
                asking = Kvarve(self.PROGRAM, self.path("store"))
                values = {"slot": self.path("good.slot"), "url": server.url, "pid": server.pid}
                result = asking.ingest(values, accept=(UNSUPPORTED,))
                self.assertIn(flags[0].strip("-"), result.errors)


if __name__ == "__main__":
    main(Altered if any("altered" in word for word in sys.argv) else WrongInput)
