#!/usr/bin/env python3
"""A conversation on the real server that lives in kvarve: after every turn the slot is ingested,
the server killed with kill -9 and started again, and the next turn goes on from what kvarve emits.

Against a run of the same server that nobody interrupted, with nothing of kvarve in it:

    turns      the same text, tokens and 20 best log-probabilities of each token; the server finds
               and reads as many tokens
    again      the last turn asked once more
    edited     the last turn with another ending of its message
    branch     another message after turn 3
    bytes      what each turn wrote, as kvarve counts it and as the kernel does

    end_to_end.py --kvarve PROGRAM --model NAME [--size small|full]
"""

import argparse
import os
import sys
import tempfile
from types import SimpleNamespace as Facts

from conversation import Conversation, Plan, print_turn
from environment import prepare
from kvarve import Kvarve, server_flags
from server import Server

PAGE_TOKENS = 64
PROBABILITIES = 20
SLACK = 1.05
ENDPOINTS_A_TURN = 2
BRANCH_AFTER = 4  # turns 0 to 3 are kept
# A prompt's state can be taken up so many tokens before its end: the server re-reads the last
# token, and a recurrent state cannot go back, so it is kept some tokens earlier.
BEHIND_DENSE, BEHIND_RECURRENT = 1, 4

# Of the tiny models: bytes a token in all attention layers, drafter's included; of one endpoint.
MODELS = {
    "llama": Facts(token_bytes=8 * 512, endpoint_bytes=0, behind=BEHIND_DENSE),
    "qwen35": Facts(token_bytes=2 * 512, endpoint_bytes=430252, behind=BEHIND_RECURRENT),
    "mamba2": Facts(token_bytes=0, endpoint_bytes=1110236, behind=BEHIND_RECURRENT),
    "qwen35mtp": Facts(token_bytes=3 * 512, endpoint_bytes=430252, behind=BEHIND_RECURRENT),
}
SIZES = {
    "small": {"start": 1200, "turns": 6, "turn": 160, "answer": 32},
    "full": {"start": 8000, "turns": 6, "turn": 960, "answer": 64},
}


class Checks:
    """What was found wrong, and how much was looked at."""

    def __init__(self, name):
        self.name, self.wrong, self.count = name, [], 0

    def that(self, claim, sentence):
        self.count += 1
        if not claim:
            self.wrong.append(f"{self.name}: {sentence}")
            print(f"  WRONG: {sentence}", flush=True)

    def equal(self, found, wanted, what):
        self.that(found == wanted, f"{what}: {found}, not {wanted}")

    def same_answer(self, turn, reference, what):
        self.that(
            turn.same_answer(reference),
            f"{what}: another answer: {turn.text!r}, uninterrupted {reference.text!r}"
            + ("" if turn.text != reference.text else " (the log-probabilities differ)"),
        )

    def summary(self):
        print(f"{self.name}: {self.count} checks, {len(self.wrong)} wrong", flush=True)
        return 1 if self.wrong else 0


def work_folder(paths):
    """A new folder beside the models: on a disk, not on tmpfs, where the kernel counts no bytes."""
    parent = os.path.dirname(os.path.dirname(next(iter(paths.values()))))
    return tempfile.TemporaryDirectory(prefix="run-", dir=parent)


# The uninterrupted run ----------------------------------------------------------------------------


def asked_again(conversation, count, edition=0):
    """Another question after count turns, in the server that runs."""
    other = conversation.copy()
    other.back(count)
    return other.ask(edition)


def uninterrupted(conversation, plan):
    """The rest of the plan, and then the questions that go back."""
    while len(conversation.turns) <= plan.turns:
        print_turn(conversation.ask())
    return Facts(
        turns=list(conversation.turns),
        again=asked_again(conversation, plan.turns),
        edited=asked_again(conversation, plan.turns, edition=1),
        branch=asked_again(conversation, BRANCH_AFTER, edition=2),
    )


# The run that dies --------------------------------------------------------------------------------


def live_on(conversation, plan, kvarve):
    """The rest of the plan; the server does not survive any turn."""
    while len(conversation.turns) <= plan.turns:
        came_back = conversation.revive(kvarve.emit)
        turn = conversation.ask()
        turn.restored, turn.emit = came_back["restored"], came_back["result"]
        print_turn(conversation.keep(kvarve.ingest))


def revived_again(conversation, kvarve, count, edition=0):
    """Another question after count turns, in a server that has just been born."""
    other = conversation.copy()
    other.back(count)
    came_back = other.revive(kvarve.emit, edition)
    turn = other.ask(edition)
    turn.restored, turn.emit = came_back["restored"], came_back["result"]
    return turn


# What must hold -----------------------------------------------------------------------------------


def check_turns(checks, turns, reference):
    for before, turn, plain in zip(turns, turns[1:], reference.turns[1:], strict=False):
        name = f"turn {turn.index}"
        checks.same_answer(turn, plain, name)
        checks.equal(turn.restored, len(before.slot_tokens), f"{name}, tokens restored")
        expected = (len(before.slot_tokens), len(turn.prompt) - len(before.slot_tokens))
        checks.equal((turn.cache_n, turn.prompt_n), expected, f"{name}, tokens found and read")
        checks.equal((plain.cache_n, plain.prompt_n), expected, f"{name}, uninterrupted")


def check_going_back(checks, name, turn, reference):
    """The server takes up all that kvarve gave it. Where the uninterrupted server goes on at the
    same token, both are equal to the last bit; elsewhere in text, since the batches differ."""
    checks.equal((turn.cache_n, turn.restored), (turn.restored, turn.emit.json["tokens"]), name)
    if (turn.cache_n, turn.prompt_n) == (reference.cache_n, reference.prompt_n):
        checks.same_answer(turn, reference, name)
    else:
        checks.equal(turn.text, reference.text, f"{name}, text")
    print(
        f"  {name}: {turn.cache_n} cached, {turn.prompt_n} read; uninterrupted: "
        f"{reference.cache_n}, {reference.prompt_n}",
        flush=True,
    )


def check_bytes(checks, model, turns):
    """One turn's bytes: new rows, at most two endpoints, and a last page in part for each
    boundary."""
    facts = MODELS[model]
    for before, turn in zip(turns, turns[1:], strict=False):
        new_tokens = len(turn.slot_tokens) - len(before.slot_tokens)
        boundaries = [b for b in turn.ingest.json["boundaries"] if b["state"] != "present"]
        endpoints = min(len(boundaries), ENDPOINTS_A_TURN) * facts.endpoint_bytes
        partial = sum(facts.token_bytes * PAGE_TOKENS for b in boundaries if b["tokens"] % 64)
        ideal = new_tokens * facts.token_bytes + endpoints + partial
        counted, kernel = turn.ingest.counted_bytes, turn.ingest.write_bytes
        print(
            f"  turn {turn.index}: {ideal} bytes are new, kvarve counts {counted}, "
            f"{counted / ideal:.3f}; the kernel {kernel}, {(kernel or 0) / ideal:.3f}",
            flush=True,
        )
        name = f"turn {turn.index}, bytes written"
        checks.that(counted <= SLACK * ideal, f"{name}: kvarve counts {counted}, {ideal} are new")
        if kernel is None:
            print("  SKIPPED: this kernel does not say what a process wrote")
            continue
        checks.that(kernel <= SLACK * ideal, f"{name}: the kernel counts {kernel}, {ideal} are new")
        checks.that(kernel >= counted, f"{name}: the kernel counts {kernel}, kvarve {counted}")
        if facts.endpoint_bytes:
            checks.that(len(boundaries) <= ENDPOINTS_A_TURN, f"{name}: {len(boundaries)} endpoints")


def live(model, size, program, server_program, paths):
    checks, plan = Checks(f"{model}, {size}"), Plan(**SIZES[size])
    with work_folder(paths) as folder:
        kvarve = Kvarve(program, os.path.join(folder, "store"))
        server = Server(server_program, paths[model], folder, server_flags(model))
        with server:
            plain = Conversation(server, plan, probabilities=PROBABILITIES)
            plain.ask()
            print_turn(plain.keep(kvarve.ingest))
            revived = plain.copy()
            print(f"{model}: not interrupted", flush=True)
            reference = uninterrupted(plain, plan)
            print(f"{model}: killed after every turn", flush=True)
            live_on(revived, plan, kvarve)
            again = revived_again(revived, kvarve, plan.turns)
            edited = revived_again(revived, kvarve, plan.turns, edition=1)
            branch = revived_again(revived, kvarve, BRANCH_AFTER, edition=2)
    turns = revived.turns
    check_turns(checks, turns, reference)
    check_going_back(checks, "the last turn again", again, reference.again)
    checks.equal(again.text, turns[-1].text, "the last turn again, text")
    checks.equal(again.prompt_n, MODELS[model].behind, "the last turn again, tokens read")
    check_going_back(checks, "an edited message", edited, reference.edited)
    checks.that(edited.cache_n >= len(turns[-2].slot_tokens), "an edited message: history re-read")
    check_going_back(checks, "a branch after turn 3", branch, reference.branch)
    kept = len(turns[BRANCH_AFTER - 1].slot_tokens)
    checks.that(branch.cache_n >= kept, "a branch after turn 3: history re-read")
    check_bytes(checks, model, turns)
    return checks.summary()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kvarve", required=True, metavar="PROGRAM")
    parser.add_argument("--model", required=True, choices=sorted(MODELS))
    parser.add_argument("--size", choices=sorted(SIZES), default="small")
    chosen = parser.parse_args()
    server_program, paths = prepare([chosen.model])
    return live(chosen.model, chosen.size, chosen.kvarve, server_program, paths)


if __name__ == "__main__":
    sys.exit(main())
