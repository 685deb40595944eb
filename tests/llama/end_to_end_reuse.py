#!/usr/bin/env python3
"""What conversations have in common is stored once and found again.

Derived boundaries: a dense model can go on at the end of any page of common tokens. A hybrid one
needs an endpoint there.
"""

import os
import shutil

from conversation import Plan
from end_to_end import MODELS, PAGE_TOKENS
from end_to_end_case import EndToEnd, main

SYSTEM_TOKENS = 3000
USED_BYTES_MAX = 16384  # what a store that only was read may note when it is closed
PAGE_BYTES = {model: PAGE_TOKENS * facts.token_bytes for model, facts in MODELS.items()}


def common(one, other):
    """How many tokens two lists have in common at their beginning."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def whole_pages(tokens):
    return tokens // PAGE_TOKENS * PAGE_TOKENS


class Reuse(EndToEnd):
    MODELS = ("llama", "qwen35", "thinking")

    def test_thinking(self):
        """The template drops the reasoning of the last answer, so that the next prompt has less in
        common with the slot than a boundary: all common pages are taken up all the same."""
        self.start("thinking")
        plan = Plan(start=700, turns=3, turn=150, answer=96, chat=True, thinking=True)
        kvarve = self.store("store")
        plain = self.conversation(plan)
        plain.ask()
        plain.keep(kvarve.ingest)
        revived = plain.copy()
        for _ in range(plan.turns):
            plain.ask()
        derived = 0
        for reference in plain.turns[1:]:
            known = max(common(revived.prompt()[0], t.slot_tokens) for t in revived.turns)
            self.assertLess(known, len(revived.turns[-1].slot_tokens), "nothing was dropped")
            came_back = revived.revive(kvarve.emit)
            turn = revived.ask()
            revived.keep(kvarve.ingest)
            found = came_back["result"].json
            print(f"  {known} tokens are common, {found['tokens']} taken up, {found['kind']}")
            self.assertGreaterEqual(found["tokens"], whole_pages(known))
            self.assertEqual(turn.cache_n, found["tokens"])
            self.assertEqual(turn.text, reference.text)
            derived += found["derived"]
        self.assertGreater(derived, 0)

    def test_system_prompt(self):
        """A new conversation has only its system prompt in common with another one."""
        self.start("llama")
        kvarve = self.store("store")
        shared = {"system_tokens": 1000, "start": 1200, "turns": 1, "turn": 100, "answer": 16}
        first = self.conversation(Plan(label="first", **shared))
        first.ask()
        first.keep(kvarve.ingest)
        second = self.conversation(Plan(label="second", **shared))
        came_back = second.revive(kvarve.emit)
        turn = second.ask()
        second.keep(kvarve.ingest)
        pages = whole_pages(shared["system_tokens"])
        self.assertEqual((came_back["restored"], turn.cache_n), (pages, pages))
        self.assertTrue(came_back["result"].json["derived"])
        own = turn.ingest.json["slot_bytes"] - pages * MODELS["llama"].token_bytes
        partial = len(turn.ingest.json["boundaries"]) * PAGE_BYTES["llama"]
        self.assertLessEqual(turn.ingest.json["payload_bytes"], own + partial)
        self.server.erase()
        cold = self.conversation(Plan(label="second", **shared))
        self.assertEqual(cold.ask().text, turn.text)

    def check_shared_prompt(self, model):
        """Two conversations with one system prompt, each computed from nothing: each goes on with
        its own bytes."""
        kvarve, talks = self.store("store"), []
        self.start(model)
        for label in ("first", "second"):
            self.server.erase()
            plan = Plan(
                label=label,
                system_tokens=SYSTEM_TOKENS,
                start=SYSTEM_TOKENS + 150,
                turns=1,
                turn=100,
                answer=32,
            )
            talk = self.conversation(plan)
            self.assertEqual(talk.ask().cache_n, 0)
            ingested = talk.keep(kvarve.ingest).ingest.json
            talks.append((talk, talk.copy().ask(), ingested))
        for talk, reference, _ in talks:
            came_back = talk.revive(kvarve.emit)
            self.assertEqual(came_back["restored"], len(talk.turns[0].slot_tokens))
            turn = talk.ask()
            self.assert_same(turn, reference)
            self.assertEqual(turn.cache_n, reference.cache_n)
        saved = talks[0][2]["payload_bytes"] - talks[1][2]["payload_bytes"]
        return saved // PAGE_BYTES[model]

    def test_shared_prompt_dense(self):
        """Prompts are read in steps of whole pages here, so all shared pages have equal bytes."""
        pages = self.check_shared_prompt("llama")
        print(f"  {pages} of {SYSTEM_TOKENS // PAGE_TOKENS} pages of the prompt are stored once")
        self.assertGreaterEqual(pages, SYSTEM_TOKENS // PAGE_TOKENS - 1)

    def test_shared_prompt_hybrid(self):
        """The server cuts a prompt before its end to keep a state there: pages after the cut may
        have other bytes, and are kept apart."""
        pages = self.check_shared_prompt("qwen35")
        print(f"  {pages} of {SYSTEM_TOKENS // PAGE_TOKENS} pages of the prompt are stored once")

    def index_bytes(self):
        store = self.path("store")
        names = [name for name in os.listdir(store) if name.startswith("index")]
        return sum(os.path.getsize(os.path.join(store, name)) for name in names)

    def segments(self):
        store = self.path("store/segments")
        return {name: hash(self.read(os.path.join(store, name))) for name in os.listdir(store)}

    def test_ingest_again(self):
        """The same file again, in a new process: nothing is written, neither pages nor index. When
        the store is closed afterwards it notes in its index that they were used."""
        for model in ("llama", "qwen35"):
            with self.subTest(model):
                self.check_ingest_again(model)
                shutil.rmtree(self.path("store"))

    def check_ingest_again(self, model):
        self.start(model)
        kvarve = self.store("store", model)
        talk = self.conversation(Plan(start=500, turns=0, answer=16))
        turn = talk.ask()
        values = {"slot": self.saved("same.slot"), "prompt_at": len(turn.prompt)}
        first = kvarve.ingest(values).json
        self.assertFalse(first["present"])
        segments, index = self.segments(), self.index_bytes()
        for _ in range(2):
            again = kvarve.ingest(values)
            found = {name: again.json[name] for name in ("present", "payload_bytes", "index_bytes")}
            self.assertEqual(found, {"present": True, "payload_bytes": 0, "index_bytes": 0})
            self.assertEqual(
                [b["id"] for b in again.json["boundaries"]], [b["id"] for b in first["boundaries"]]
            )
            print(f"  {model}: the kernel counts {again.write_bytes} bytes for the same file again")
            grown, index = self.index_bytes() - index, self.index_bytes()
            self.assertLessEqual(grown, USED_BYTES_MAX)
            self.assertLessEqual(again.write_bytes or 0, 2 * USED_BYTES_MAX)
        self.assertEqual(self.segments(), segments)


if __name__ == "__main__":
    main(Reuse)
