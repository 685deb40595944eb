"""An independent reader of llama-server's slot files (docs/format/llama-slot-file.md). Standard
library only.

parse(data) returns nested plain objects with the byte offset of every part, or raises FormatError.
Nothing may be left over: the layout is only known if it explains the file to its last byte.
"""

import struct
from types import SimpleNamespace as Part

FILE_MAGIC, FILE_VERSION = 0x67677371, 4
STATE_MAGIC = 0xAF143CD8
CHECKPOINTS_MAGIC, DRAFT_MAGIC = b"SCKP", b"SDFT"
TOKEN_NULL = -1
TYPE_BYTES = {0: (1, 4), 1: (1, 2), 2: (32, 18), 8: (32, 34), 30: (1, 2)}


class FormatError(Exception):
    pass


class Reader:
    def __init__(self, data, start=0, end=None):
        self.data, self.at, self.end = data, start, len(data) if end is None else end

    def take(self, form):
        size = struct.calcsize("<" + form)
        self.need(size)
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += size
        return values if len(values) > 1 else values[0]

    def need(self, size):
        if size < 0 or self.at + size > self.end:
            raise FormatError(f"{size} bytes wanted at {self.at}, the part ends at {self.end}")

    def skip(self, size):
        self.need(size)
        start = self.at
        self.at += size
        return start

    def expect(self, form, value, what):
        found = self.take(form)
        if found != value:
            raise FormatError(
                f"{what} at {self.at - struct.calcsize('<' + form)}: {found}, not {value}"
            )
        return found


class Shape:
    """What a file does not say about itself and a reader must know: it follows from the model and
    the server.

    attention: number of attention parts (1, 2 for sliding windows, 0 for a pure recurrent model)
    partial_attention: how many of them a PARTIAL_ONLY blob has (the sliding-window one)
    recurrent: rows of the recurrent part, R and S together: twice the recurrent layers
    extended: cells carry x, y and token (M-RoPE)
    """

    def __init__(
        self, attention=1, recurrent=False, extended=False, partial_attention=0, draft=None
    ):
        self.attention, self.recurrent, self.extended = attention, recurrent, extended
        self.partial_attention, self.draft = partial_attention, draft


def parse_attention(reader, shape):
    part = Part(start=reader.at, streams=[])
    part.n_stream = reader.take("I")
    for _ in range(part.n_stream):
        part.streams.append(parse_stream(reader, shape))
    part.end = reader.at
    return part


def parse_stream(reader, shape):
    stream = Part(start=reader.at, cells=[], keys=[], values=[])
    stream.cell_count = reader.take("I")
    if stream.cell_count == 0:
        return stream
    for _ in range(stream.cell_count):
        cell = Part(position=reader.take("i"), extra=None)
        count = reader.take("I")
        if shape.extended:
            cell.extra = reader.take("iii")
        cell.sequences = [reader.take("i") for _ in range(count)]
        stream.cells.append(cell)
    stream.is_transposed, stream.layer_count = reader.take("II")
    reader.expect("II", (0, 0), "two zero words")
    for _ in range(stream.layer_count):
        stream.keys.append(parse_rows(reader, stream.cell_count))
    for _ in range(stream.layer_count):
        if stream.is_transposed:
            stream.values.append(parse_transposed(reader, stream.cell_count))
        else:
            stream.values.append(parse_rows(reader, stream.cell_count))
    return stream


def parse_rows(reader, count):
    kind, row_bytes = reader.take("i"), reader.take("Q")
    if kind not in TYPE_BYTES:
        raise FormatError(f"ggml type {kind} at {reader.at - 12}")
    return Part(type=kind, row_bytes=row_bytes, offset=reader.skip(row_bytes * count))


def parse_transposed(reader, count):
    kind, element_bytes, elements = reader.take("iII")
    offset = reader.skip(elements * element_bytes * count)
    return Part(type=kind, element_bytes=element_bytes, elements=elements, offset=offset)


def parse_recurrent(reader):
    """The rows of layers without a state are absent; how many there are shows where R ends and S
    begins."""
    part = Part(start=reader.at, rows=[], cells=[])
    part.cell_count = reader.take("I")
    for _ in range(part.cell_count):
        position, count = reader.take("iI")
        part.cells.append(
            Part(position=position, sequences=[reader.take("i") for _ in range(count)])
        )
    part.is_transposed, part.layer_count = reader.take("II")
    return part


def parse_recurrent_rows(reader, part, row_count):
    for _ in range(row_count):
        part.rows.append(parse_rows(reader, part.cell_count))
    part.end = reader.at


def parse_state(reader, shape, is_partial=False):
    """A blob without its 8-byte head. shape.recurrent is the number of (type, row bytes, data)
    entries."""
    state = Part(start=reader.at, attention=[], recurrent=None)
    for _ in range(shape.partial_attention if is_partial else shape.attention):
        state.attention.append(parse_attention(reader, shape))
    if shape.recurrent:
        state.recurrent = parse_recurrent(reader)
        parse_recurrent_rows(reader, state.recurrent, shape.recurrent)
    state.end = reader.at
    return state


def parse_headed(data, start, end, shape, is_partial):
    reader = Reader(data, start, end)
    reader.expect("I", STATE_MAGIC, "state magic")
    sequence = reader.take("I")
    state = parse_state(reader, shape, is_partial)
    if reader.at != end:
        raise FormatError(f"{end - reader.at} bytes left of the blob at {start}..{end}")
    state.sequence = sequence
    return state


def parse_tokens(reader):
    count = reader.take("I")
    payload = [reader.take("i") for _ in range(count)]
    if (
        len(payload) < 4
        or payload[:2] != [TOKEN_NULL, 1]
        or len(payload) < 4 + payload[2]
        or payload[2] < 0
    ):
        raise FormatError(f"token payload begins {payload[:4]}")
    tokens = payload[3 : 3 + payload[2]]
    return Part(tokens=tokens, media_count=payload[3 + payload[2]], rest=payload[4 + payload[2] :])


def parse_checkpoints(reader, shape):
    reader.expect("I", 1, "SCKP version")
    checkpoints = []
    for _ in range(reader.take("I")):
        point = Part(start=reader.at)
        point.n_tokens, point.pos_min, point.pos_max = reader.take("qii")
        point.target = parse_blob(reader, shape, True)
        point.draft = parse_blob(reader, shape.draft, True)
        point.third = parse_opaque(reader)
        point.end = reader.at
        checkpoints.append(point)
    return checkpoints


def parse_opaque(reader):
    size = reader.take("Q")
    return Part(start=reader.skip(size), size=size)


def parse_blob(reader, shape, is_partial):
    size = reader.take("Q")
    start = reader.skip(size)
    blob = Part(start=start, size=size, state=None)
    if size and shape:
        blob.state = parse_headed(reader.data, start, start + size, shape, is_partial)
    return blob


def parse(data, shape):
    reader = Reader(data)
    reader.expect("I", FILE_MAGIC, "file magic")
    reader.expect("I", FILE_VERSION, "file version")
    slot = Part(head=parse_tokens(reader), checkpoints=None, draft=None)
    slot.state = parse_state(reader, shape)
    slot.state_end = reader.at
    while reader.at < reader.end:
        magic = reader.data[reader.skip(4) :][:4]
        if magic == CHECKPOINTS_MAGIC and slot.checkpoints is None and slot.draft is None:
            slot.checkpoints = parse_checkpoints(reader, shape)
        elif magic == DRAFT_MAGIC and slot.draft is None:
            reader.expect("I", 1, "SDFT version")
            slot.draft = parse_blob(reader, shape.draft, False)
            slot.draft.third = parse_opaque(reader)
        else:
            raise FormatError(f"{magic!r} at {reader.at - 4}")
    return slot


# Writing: a file for another boundary, out of the parts of one that was parsed -------------------


def pack_head(tokens):
    payload = [TOKEN_NULL, 1, len(tokens), *tokens, 0]
    return struct.pack(f"<III{len(payload)}i", FILE_MAGIC, FILE_VERSION, len(payload), *payload)


def pack_attention(data, part, keep, stream_count, stream_index, sequence):
    """The cells that keep(position) accepts, in the file's order, as stream_index of stream_count
    for sequence."""
    stream = next(one for one in part.streams if one.cell_count)
    chosen = [index for index, cell in enumerate(stream.cells) if keep(cell.position)]
    out = [struct.pack("<I", stream_count), bytes(4 * stream_index), struct.pack("<I", len(chosen))]
    for index in chosen:
        cell = stream.cells[index]
        out.append(struct.pack("<iI", cell.position, 1))
        out.append(struct.pack("<iii", *cell.extra) if cell.extra else b"")
        out.append(struct.pack("<i", sequence))
    out.append(struct.pack("<IIII", stream.is_transposed, stream.layer_count, 0, 0))
    for rows in stream.keys:
        out += pack_rows(data, rows, chosen)
    for rows in stream.values:
        out += (
            pack_elements(data, rows, chosen, stream)
            if stream.is_transposed
            else pack_rows(data, rows, chosen)
        )
    out.append(bytes(4 * (stream_count - stream_index - 1)))
    return b"".join(out)


def pack_rows(data, rows, chosen):
    yield struct.pack("<iQ", rows.type, rows.row_bytes)
    for index in chosen:
        start = rows.offset + index * rows.row_bytes
        yield data[start : start + rows.row_bytes]


def pack_elements(data, rows, chosen, stream):
    yield struct.pack("<iII", rows.type, rows.element_bytes, rows.elements)
    for element in range(rows.elements):
        for index in chosen:
            start = rows.offset + (element * stream.cell_count + index) * rows.element_bytes
            yield data[start : start + rows.element_bytes]


def pack_file(
    data,
    slot,
    boundary=None,
    checkpoints=None,
    draft=True,
    stream_count=1,
    stream_index=0,
    sequence=0,
):
    """The file of slot at boundary (all of it when None), with the checkpoints whose n_tokens are
    listed (None: all up to the boundary). A boundary before the end needs a checkpoint of its own
    where the model has a recurrent part.
    """
    end = len(slot.head.tokens) if boundary is None else boundary
    out = [pack_head(slot.head.tokens[:end])]
    for part in slot.state.attention:
        out.append(
            pack_attention(
                data, part, lambda position: position < end, stream_count, stream_index, sequence
            )
        )
    if slot.state.recurrent:
        part = slot.state.recurrent
        if boundary is not None:
            part = next(p for p in slot.checkpoints if p.n_tokens == end).target.state.recurrent
        out.append(data[part.start : part.end])
    kept = [
        p
        for p in slot.checkpoints or []
        if p.n_tokens <= end and (checkpoints is None or p.n_tokens in checkpoints)
    ]
    if kept:
        out.append(CHECKPOINTS_MAGIC + struct.pack("<II", 1, len(kept)))
        out += [data[point.start : point.end] for point in kept]
    if draft and slot.draft:
        out.append(DRAFT_MAGIC + struct.pack("<I", 1))
        blob = struct.pack("<II", STATE_MAGIC, sequence)
        for part in slot.draft.state.attention:
            blob += pack_attention(
                data, part, lambda position: position < end, stream_count, stream_index, sequence
            )
        out += [struct.pack("<Q", len(blob)), blob, bytes(8)]
    return b"".join(out)
