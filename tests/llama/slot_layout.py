#!/usr/bin/env python3
"""The layout of slot files, checked on the real server: every sentence of
docs/format/llama-slot-file.md with a size in it.

When another version of the server writes other bytes, this says where; the codec's own tests use
recorded samples.
"""

import os
import tempfile
import unittest

import slot_file
from environment import prepare
from server import Server, ServerError
from slot_file import Shape

MODELS = ["llama", "qwen35", "mamba2", "lfm2", "gemma3", "qwen35mtp", "draft"]
DENSE = Shape()
HYBRID = Shape(attention=1, recurrent=12, extended=True)
MTP = Shape(attention=1, recurrent=12, extended=True, draft=Shape(extended=True))
DRAFTED = Shape(draft=Shape())
SHORTCONV = Shape(attention=1, recurrent=12)
RECURRENT = Shape(attention=0, recurrent=16)
WINDOWED = Shape(attention=2, partial_attention=1)
MTP_FLAGS = ["--spec-type", "draft-mtp", "--spec-draft-n-max", "2"]
FIRST, ANSWER, NEXT = 100, 8, 10


def text_tokens(count, seed=0):
    return [32 + (7 * i + i * i + seed) % 90 for i in range(count)]


class SlotLayout(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="kvarve-slots-")
        cls.slots = cls.temporary.name

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def server(self, model, flags=(), parallel=1):
        return Server(PROGRAM, FILES[model], self.slots, flags, context=4096, parallel=parallel)

    def read(self, name):
        with open(os.path.join(self.slots, name), "rb") as file:
            return file.read()

    def two_turns(self, model, shape, flags=(), parallel=1, slot=0):
        """The file after two turns; its parts must explain it to the last byte, and make it
        again."""
        with self.server(model, flags, parallel) as server:
            tokens = text_tokens(FIRST)
            tokens += server.complete(tokens, ANSWER, slot=slot).tokens + text_tokens(NEXT, 3)
            tokens += server.complete(tokens, ANSWER, slot=slot).tokens
            server.save("two", slot=slot)
        data = self.read("two")
        parsed = slot_file.parse(data, shape)
        self.assertEqual(parsed.head.tokens, tokens[:-1])
        self.assertEqual((parsed.head.media_count, parsed.head.rest), (0, []))
        again = slot_file.pack_file(
            data,
            parsed,
            stream_count=self.streams(parsed),
            stream_index=slot % self.streams(parsed),
            sequence=slot,
        )
        self.assertEqual(again, data)
        return data, parsed

    @staticmethod
    def streams(parsed):
        return parsed.state.attention[0].n_stream if parsed.state.attention else 1

    def check_attention(
        self, part, count, layers, extended=False, transposed=0, sequence=0, row=(1, 256)
    ):
        stream = next(one for one in part.streams if one.cell_count)
        self.assertEqual(
            (stream.cell_count, stream.layer_count, stream.is_transposed),
            (count, layers, transposed),
        )
        self.assertEqual([cell.sequences for cell in stream.cells], [[sequence]] * count)
        for cell in stream.cells:
            self.assertEqual(cell.extra is not None, extended)
            if extended:
                self.assertEqual(cell.extra[:2], (cell.position, cell.position))
        for rows in stream.keys:
            self.assertEqual((rows.type, rows.row_bytes), row)
        for rows in stream.values:
            found = (
                rows.type,
                rows.elements * rows.element_bytes if transposed else rows.row_bytes,
            )
            self.assertEqual(found, (1, 256) if transposed else row)
        return stream

    def check_recurrent(self, part, position, small, large, layers=8):
        half = len(part.rows) // 2
        self.assertEqual([(cell.position, cell.sequences) for cell in part.cells], [(position, [])])
        self.assertEqual((part.is_transposed, part.layer_count), (0, layers))
        self.assertEqual([rows.row_bytes for rows in part.rows], [small] * half + [large] * half)
        self.assertEqual({rows.type for rows in part.rows}, {0})

    def check_checkpoints(self, parsed, size, draft=0, sequence=0):
        """Prompt end less four, end of the first answer, prompt end less four."""
        boundaries = [FIRST - 4, FIRST + ANSWER - 1, FIRST + ANSWER + NEXT - 4]
        self.assertEqual([point.n_tokens for point in parsed.checkpoints], boundaries)
        for point in parsed.checkpoints:
            self.assertEqual(
                (point.pos_min, point.pos_max), (point.n_tokens - 1, point.n_tokens - 1)
            )
            self.assertEqual(
                (point.target.size, point.draft.size, point.third.size), (size, draft, 0)
            )
            self.assertEqual(point.target.state.sequence, sequence)
            self.assertEqual(point.target.state.recurrent.cells[0].position, point.pos_max)

    def test_dense(self):
        data, parsed = self.two_turns("llama", DENSE)
        stream = self.check_attention(parsed.state.attention[0], 125, 8)
        self.assertEqual([cell.position for cell in stream.cells], list(range(125)))
        self.assertEqual(parsed.state_end, len(data))
        self.assertEqual(len(data), 12 + 4 * 129 + 8 + 12 * 125 + 16 + 16 * 12 + 16 * 125 * 256)

    def test_dense_without_flash_attention(self):
        data, parsed = self.two_turns("llama", DENSE, ["-fa", "off"])
        self.check_attention(parsed.state.attention[0], 125, 8, transposed=1)

    def test_dense_with_quantised_rows(self):
        data, parsed = self.two_turns("llama", DENSE, ["-ctk", "q8_0", "-ctv", "q8_0"])
        self.check_attention(parsed.state.attention[0], 125, 8, row=(8, 136))

    def test_dense_with_four_streams(self):
        data, parsed = self.two_turns("llama", DENSE, parallel=4, slot=2)
        part = parsed.state.attention[0]
        self.assertEqual([stream.cell_count for stream in part.streams], [0, 0, 125, 0])
        self.check_attention(part, 125, 8, sequence=2)

    def test_dense_unified(self):
        data, parsed = self.two_turns("llama", DENSE, ["--kv-unified"], parallel=4, slot=2)
        self.assertEqual(parsed.state.attention[0].n_stream, 1)
        self.check_attention(parsed.state.attention[0], 125, 8, sequence=2)

    def test_hybrid(self):
        data, parsed = self.two_turns("qwen35", HYBRID)
        stream = self.check_attention(parsed.state.attention[0], 125, 2, extended=True)
        self.assertEqual([cell.extra[2] for cell in stream.cells], parsed.head.tokens)
        self.check_recurrent(parsed.state.recurrent, 124, 6144, 65536)
        self.check_checkpoints(parsed, 430252)

    def test_hybrid_without_flash_attention(self):
        data, parsed = self.two_turns("qwen35", HYBRID, ["-fa", "off"])
        self.check_attention(parsed.state.attention[0], 125, 2, extended=True, transposed=1)

    def test_hybrid_with_four_streams(self):
        data, parsed = self.two_turns("qwen35", HYBRID, parallel=4, slot=2)
        self.check_attention(parsed.state.attention[0], 125, 2, extended=True, sequence=2)
        self.check_recurrent(parsed.state.recurrent, 124, 6144, 65536)
        self.check_checkpoints(parsed, 430252, sequence=2)

    def test_hybrid_with_draft_layer(self):
        data, parsed = self.two_turns("qwen35mtp", MTP, MTP_FLAGS)
        self.check_recurrent(parsed.state.recurrent, 124, 6144, 65536)
        self.check_checkpoints(parsed, 430252, draft=8)
        self.check_attention(parsed.draft.state.attention[0], 125, 1, extended=True)
        self.assertEqual((parsed.draft.state.recurrent, parsed.draft.third.size), (None, 0))

    def test_hybrid_with_draft_layer_unused(self):
        data, parsed = self.two_turns("qwen35mtp", HYBRID)
        self.assertIsNone(parsed.draft)

    def test_dense_with_separate_drafter(self):
        flags = ["-md", FILES["draft"], "--spec-type", "draft-simple", "--spec-draft-n-max", "4"]
        data, parsed = self.two_turns("llama", DRAFTED, flags)
        self.assertIsNone(parsed.checkpoints)
        self.check_attention(parsed.draft.state.attention[0], 125, 2)
        self.assertEqual((parsed.draft.state.sequence, parsed.draft.third.size), (0, 0))

    def test_hybrid_with_rows_of_no_bytes(self):
        data, parsed = self.two_turns("lfm2", SHORTCONV)
        self.check_attention(parsed.state.attention[0], 125, 2)
        self.check_recurrent(parsed.state.recurrent, 124, 2048, 0)
        self.check_checkpoints(parsed, 12460)

    def test_recurrent(self):
        data, parsed = self.two_turns("mamba2", RECURRENT)
        self.check_recurrent(parsed.state.recurrent, 124, 7680, 131072)
        self.check_checkpoints(parsed, 1110236)

    def test_sliding_window(self):
        with self.server("gemma3") as server:
            server.complete(text_tokens(700), ANSWER)
            server.save("window")
        parsed = slot_file.parse(self.read("window"), WINDOWED)
        self.check_attention(parsed.state.attention[0], 707, 1)
        stream = self.check_attention(parsed.state.attention[1], 512, 5)
        self.assertEqual(sorted(cell.position for cell in stream.cells), list(range(195, 707)))
        self.assertEqual([point.n_tokens for point in parsed.checkpoints], [184, 696])
        last = parsed.checkpoints[-1]
        cells = last.target.state.attention[0].streams[0].cells
        self.assertEqual(sorted(cell.position for cell in cells), list(range(184, 696)))
        self.assertLess(last.pos_min, 184)

    def test_checkpoints_are_not_sorted(self):
        data, parsed = self.two_turns("gemma3", WINDOWED)
        self.assertEqual([point.n_tokens for point in parsed.checkpoints], [96, 95, 114])

    def test_empty_slot(self):
        for model, shape, size in (
            ("llama", DENSE, 36),
            ("gemma3", WINDOWED, 44),
            ("qwen35", HYBRID, 192),
            ("mamba2", RECURRENT, 232),
        ):
            with self.subTest(model), self.server(model) as server:
                self.assertEqual(server.save("empty")["n_saved"], 0)
                data = self.read("empty")
                self.assertEqual(len(data), size)
                self.assertEqual(slot_file.parse(data, shape).head.tokens, [])

    def test_freed_cells_are_used_out_of_order(self):
        with self.server("llama", ["--kv-unified", "-c", "2048"], parallel=4) as server:
            for slot in range(4):
                server.complete(text_tokens(300, slot), 5, slot=slot)
            server.erase(0)
            server.erase(2)
            server.complete(text_tokens(300, 1) + text_tokens(500, 9), 5, slot=1)
            server.save("fragments", slot=1)
            server.restore("fragments", slot=1)
            server.save("again", slot=1)
        parsed = slot_file.parse(self.read("fragments"), DENSE)
        positions = [cell.position for cell in parsed.state.attention[0].streams[0].cells]
        self.assertEqual(sorted(positions), list(range(804)))
        self.assertNotEqual(positions, sorted(positions))
        self.assertEqual(self.read("fragments"), self.read("again"))

    def restored(self, server, data, prompt, slot=0):
        with open(os.path.join(self.slots, "made"), "wb") as file:
            file.write(data)
        server.restore("made", slot=slot)
        answer = server.complete(prompt, 16, slot=slot)
        return answer.cache_n, answer.text

    def test_assembled_files_are_restored_exactly(self):
        for model, shape, flags in (
            ("qwen35", HYBRID, []),
            ("llama", DENSE, ["-fa", "off"]),
            ("qwen35mtp", MTP, MTP_FLAGS),
            ("mamba2", RECURRENT, []),
        ):
            with self.subTest(model):
                self.check_assembled(model, shape, flags)

    def check_assembled(self, model, shape, flags):
        data, parsed = self.two_turns(model, shape, flags)
        prompt = parsed.head.tokens + text_tokens(30, 5)
        whole = len(parsed.head.tokens)
        with self.server(model, flags) as server:
            cache_n, text = self.restored(server, data, prompt)
            self.assertEqual(cache_n, whole)
            for boundary in [point.n_tokens for point in parsed.checkpoints or []] or [64]:
                cut = slot_file.pack_file(data, parsed, boundary=boundary)
                self.assertEqual(self.restored(server, cut, prompt)[0], boundary)
            bare = slot_file.pack_file(data, parsed, checkpoints=[], draft=False)
            self.assertEqual(self.restored(server, bare, prompt), (whole, text))
        with self.server(model, flags, parallel=4) as server:
            if shape.attention:
                with self.assertRaises(ServerError):
                    self.restored(server, data, prompt, slot=2)
            moved = slot_file.pack_file(data, parsed, stream_count=4, stream_index=2, sequence=2)
            self.assertEqual(self.restored(server, moved, prompt, slot=2), (whole, text))


if __name__ == "__main__":
    PROGRAM, FILES = prepare(MODELS)
    unittest.main(verbosity=2)
