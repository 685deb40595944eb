#!/usr/bin/env python3
"""make_samples.py LLAMA_DIR MODEL_DIR OUT_DIR: the sample slot files in tests/llama/samples, from
the real server.

They are kept in the repository, so that the codec's unit tests need no server; this is how they
were made.
"""

import os
import sys

from server import Server

MTP = ["--spec-type", "draft-mtp", "--spec-draft-n-max", "2"]
# name: model, flags, slots, prompt tokens of each turn, saved slot
SAMPLES = {
    "llama": ("llama-micro", [], 1, [90], 0),
    "llama-long": ("llama-micro", [], 1, [120, 30], 0),
    "llama-fa-off": ("llama-micro", ["-fa", "off"], 1, [70], 0),
    "llama-q8": ("llama-micro", ["-ctk", "q8_0", "-ctv", "q8_0"], 1, [90], 0),
    "llama-q8-keys-fa-off": ("llama-micro", ["-fa", "off", "-ctk", "q8_0"], 1, [70], 0),
    "llama-np4": ("llama-micro", [], 4, [70], 2),
    "llama-draft": (
        "llama-micro",
        ["DRAFT", "--spec-type", "draft-simple", "--spec-draft-n-max", "4"],
        1,
        [50],
        0,
    ),
    "llama-empty": ("llama-micro", [], 1, [], 0),
    "qwen35": ("qwen35-micro", [], 1, [60], 0),
    "qwen35-two-turns": ("qwen35-micro", [], 1, [70, 20], 0),
    "qwen35-fa-off": ("qwen35-micro", ["-fa", "off"], 1, [70], 0),
    "qwen35-np4": ("qwen35-micro", [], 4, [70], 2),
    "qwen35-empty": ("qwen35-micro", [], 1, [], 0),
    "qwen35mtp": ("qwen35mtp-micro", MTP, 1, [70], 0),
    "mamba2": ("mamba2-micro", [], 1, [70], 0),
    "lfm2": ("lfm2-micro", [], 1, [70, 20], 0),
    "gemma3": ("gemma3-micro", [], 1, [70], 0),
}


def prompt_tokens(count, seed=0):
    return [32 + (7 * i + i * i + seed) % 90 for i in range(count)]


def make_sample(program, models, folder, name):
    model, flags, slots, turns, slot = SAMPLES[name]
    flags = [
        piece
        for flag in flags
        for piece in (["-md", f"{models}/draft-micro.gguf"] if flag == "DRAFT" else [flag])
    ]
    with Server(
        program, f"{models}/{model}.gguf", folder, flags, context=4096, parallel=slots
    ) as server:
        tokens = []
        for seed, count in enumerate(turns):
            tokens += prompt_tokens(count, seed)
            tokens += server.complete(tokens, 8, slot=slot).tokens
        server.save(f"{name}.slot", slot=slot)


def make_fragments(program, models, folder):
    """A unified cache whose freed cells are used again: cells of the file are not in the order of
    positions."""
    flags = ["--kv-unified"]
    with Server(
        program, f"{models}/llama-micro.gguf", folder, flags, context=512, parallel=4
    ) as server:
        for slot in range(3):
            server.complete(prompt_tokens(40, slot), 4, slot=slot)
        server.erase(0)
        server.erase(2)
        server.complete(prompt_tokens(40, 1) + prompt_tokens(60, 5), 4, slot=1)
        server.save("llama-fragments.slot", slot=1)


def make_ring(program, models, folder):
    """A sliding-window cache that has gone round once."""
    with Server(
        program, f"{models}/gemma3-micro.gguf", folder, ["-ub", "64", "-b", "64"], context=512
    ) as server:
        server.complete(prompt_tokens(250), 24)
        server.save("gemma3-ring.slot")


def main():
    program, models, out = (
        os.path.join(sys.argv[1], "llama-server"),
        sys.argv[2],
        os.path.abspath(sys.argv[3]),
    )
    for name in sys.argv[4:] or SAMPLES:
        make_sample(program, models, out, name)
    if not sys.argv[4:]:
        make_fragments(program, models, out)
        make_ring(program, models, out)


if __name__ == "__main__":
    main()
