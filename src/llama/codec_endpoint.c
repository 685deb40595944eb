/*
 * codec_endpoint.c - endpoints: their head, and their bytes to and from a file.
 *
 * Head, little endian: u32 magic "KVEP", u32 version 1, u32 flags, i32 position_min,
 * i32 position_max, u32 window_cells, u64 tokens, u64 window_bytes, u64 recurrent_size. Then the
 * window's cells with sequence id 0, the window from its v_trans word on, the recurrent part.
 *
 * Invariant: one endpoint has one head; bits and fields that mean nothing are 0 or refused.
 * Threads and ownership: none, pure on the caller's memory.
 */
#include "llama/codec.h"

#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"
#include "llama/codec_private.h"

#define ENDPOINT_MAGIC   UINT32_C(0x5045564b) /* "KVEP" */
#define ENDPOINT_VERSION 1

#define FLAG_CHECKPOINT UINT32_C(1)
#define FLAG_DRAFT      UINT32_C(2)
#define FLAG_WINDOW     UINT32_C(4)
#define FLAG_EXTENDED   UINT32_C(8)
#define FLAGS_KNOWN     UINT32_C(15)

/* Large enough for any real model, small enough that sums of all endpoints of a file never wrap. */
#define PIECE_BYTES_MAX (UINT64_C(1) << 44)

static uint64_t cells_size(const llama_endpoint *endpoint)
{
    return (uint64_t)endpoint->window_cells *
           (endpoint->is_extended ? LLAMA_CELL_EXTENDED : LLAMA_CELL);
}

uint64_t llama_endpoint_size(const llama_endpoint *endpoint)
{
    return LLAMA_ENDPOINT_HEAD + cells_size(endpoint) + endpoint->window_bytes +
           endpoint->recurrent_size;
}

void llama_endpoint_encode(const llama_endpoint *endpoint, uint8_t out[LLAMA_ENDPOINT_HEAD])
{
    uint32_t flags =
        (endpoint->is_checkpoint ? FLAG_CHECKPOINT : 0) | (endpoint->has_draft ? FLAG_DRAFT : 0) |
        (endpoint->has_window ? FLAG_WINDOW : 0) | (endpoint->is_extended ? FLAG_EXTENDED : 0);

    llama_store32(out, ENDPOINT_MAGIC);
    llama_store32(out + 4, ENDPOINT_VERSION);
    llama_store32(out + 8, flags);
    llama_store32(out + 12, (uint32_t)endpoint->position_min);
    llama_store32(out + 16, (uint32_t)endpoint->position_max);
    llama_store32(out + 20, endpoint->window_cells);
    llama_store64(out + 24, endpoint->tokens);
    llama_store64(out + 32, endpoint->window_bytes);
    llama_store64(out + 40, endpoint->recurrent_size);
}

/* Fields that contradict the flags, or are beyond any limit. */
static bool head_is_valid(const llama_endpoint *endpoint)
{
    if (endpoint->tokens < 1 || endpoint->tokens > LLAMA_TOKENS_MAX ||
        endpoint->window_bytes > PIECE_BYTES_MAX || endpoint->recurrent_size > PIECE_BYTES_MAX) {
        return false;
    }
    if (!endpoint->is_checkpoint &&
        (endpoint->has_draft || endpoint->position_min != 0 || endpoint->position_max != 0)) {
        return false;
    }
    return endpoint->has_window ? endpoint->window_bytes >= LLAMA_ROWS_HEAD
                                : endpoint->window_bytes == 0 && endpoint->window_cells == 0 &&
                                      !endpoint->is_extended;
}

kvarve_status llama_endpoint_decode(const uint8_t head[LLAMA_ENDPOINT_HEAD], llama_endpoint *out,
                                    kvarve_error *err)
{
    uint32_t flags = llama_load32(head + 8);
    llama_endpoint endpoint = {
        .is_checkpoint = (flags & FLAG_CHECKPOINT) != 0,
        .has_draft = (flags & FLAG_DRAFT) != 0,
        .position_min = (int32_t)llama_load32(head + 12),
        .position_max = (int32_t)llama_load32(head + 16),
        .has_window = (flags & FLAG_WINDOW) != 0,
        .is_extended = (flags & FLAG_EXTENDED) != 0,
        .window_cells = llama_load32(head + 20),
        .tokens = llama_load64(head + 24),
        .window_bytes = llama_load64(head + 32),
        .recurrent_size = llama_load64(head + 40),
    };

    if (llama_load32(head) != ENDPOINT_MAGIC) {
        return kvarve_fail(err, KVARVE_CORRUPT, "endpoint: begins with %08" PRIx32 ", not KVEP",
                           llama_load32(head));
    }
    if (llama_load32(head + 4) != ENDPOINT_VERSION || (flags & ~FLAGS_KNOWN) != 0) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED,
                           "endpoint of version %" PRIu32 " with flags %" PRIx32 ", known is %d",
                           llama_load32(head + 4), flags, ENDPOINT_VERSION);
    }
    if (!head_is_valid(&endpoint)) {
        return kvarve_fail(err, KVARVE_CORRUPT, "endpoint: its head contradicts itself");
    }
    *out = endpoint;
    return KVARVE_OK;
}

/* Set the sequence ids in a piece of the cells that begins `offset` bytes into them. */
static void set_sequence(uint8_t *bytes, llama_piece piece, uint64_t cell_bytes, uint32_t sequence)
{
    uint64_t place;

    for (size_t i = 0; i < piece.size; i++) {
        place = (piece.offset + i) % cell_bytes;
        if (place >= cell_bytes - 4) {
            bytes[i] = (uint8_t)(sequence >> (8 * (place - (cell_bytes - 4))));
        }
    }
}

/* The part of `piece` that lies in [start, start + size), its offset counted from `start`. */
static llama_piece piece_within(llama_piece piece, uint64_t start, uint64_t size)
{
    uint64_t from = kvarve_max_u64(piece.offset, start);
    uint64_t to = kvarve_min_u64(piece.offset + piece.size, start + size);

    if (from >= to) {
        return (llama_piece){0};
    }
    return (llama_piece){.offset = from - start, .size = (size_t)(to - from)};
}

/* The stretches of an endpoint and where each lies in the file. */
typedef struct file_stretch {
    uint64_t start;
    uint64_t size;
    uint64_t file_at;
} file_stretch;

enum { CELLS, WINDOW, RECURRENT, STRETCHES };

static void stretches_of(const llama_endpoint_place *place, file_stretch out[STRETCHES])
{
    out[CELLS] = (file_stretch){LLAMA_ENDPOINT_HEAD, cells_size(&place->endpoint), place->cells_at};
    out[WINDOW] = (file_stretch){out[CELLS].start + out[CELLS].size, place->endpoint.window_bytes,
                                 place->rest_at};
    out[RECURRENT] = (file_stretch){out[WINDOW].start + out[WINDOW].size,
                                    place->endpoint.recurrent_size, place->recurrent_at};
}

kvarve_status llama_endpoint_read(const llama_file *file, const llama_endpoint_place *place,
                                  llama_piece piece, uint8_t *out, kvarve_error *err)
{
    file_stretch stretches[STRETCHES];
    uint8_t head[LLAMA_ENDPOINT_HEAD];
    llama_piece part = piece_within(piece, 0, LLAMA_ENDPOINT_HEAD);
    uint64_t cell_bytes = place->endpoint.is_extended ? LLAMA_CELL_EXTENDED : LLAMA_CELL;
    kvarve_status status;

    if (part.size > 0) {
        llama_endpoint_encode(&place->endpoint, head);
        memcpy(out, head + part.offset, part.size);
    }
    stretches_of(place, stretches);
    for (int i = 0; i < STRETCHES; i++) {
        uint8_t *to;

        part = piece_within(piece, stretches[i].start, stretches[i].size);
        if (part.size == 0) {
            continue;
        }
        to = out + (stretches[i].start + part.offset - piece.offset);
        status = llama_file_read(file, to, part.size, stretches[i].file_at + part.offset, err);
        if (status != KVARVE_OK) {
            return status;
        }
        if (i == CELLS) {
            set_sequence(to, part, cell_bytes, 0);
        }
    }
    return KVARVE_OK;
}

/* Cells go through the scratch, where they get the sequence id of the file. */
static kvarve_status write_cells(const llama_file *file, llama_piece part, const uint8_t *from,
                                 const llama_endpoint_place *place, uint32_t sequence,
                                 kvarve_error *err)
{
    uint64_t cell_bytes = place->endpoint.is_extended ? LLAMA_CELL_EXTENDED : LLAMA_CELL;
    kvarve_status status;

    while (part.size > 0) {
        llama_piece step = {.offset = part.offset,
                            .size = (size_t)kvarve_min_u64(part.size, file->scratch_size)};

        memcpy(file->scratch, from, step.size);
        set_sequence(file->scratch, step, cell_bytes, sequence);
        status =
            llama_file_write(file, file->scratch, step.size, place->cells_at + step.offset, err);
        if (status != KVARVE_OK) {
            return status;
        }
        from += step.size;
        part.offset += step.size;
        part.size -= step.size;
    }
    return KVARVE_OK;
}

kvarve_status llama_endpoint_write(const llama_file *file, const llama_endpoint_place *place,
                                   llama_piece piece, const uint8_t *bytes, uint32_t sequence,
                                   uint64_t *written, kvarve_error *err)
{
    file_stretch stretches[STRETCHES];
    uint8_t head[LLAMA_ENDPOINT_HEAD];
    llama_piece part = piece_within(piece, 0, LLAMA_ENDPOINT_HEAD);
    kvarve_status status;

    llama_endpoint_encode(&place->endpoint, head);
    if (part.size > 0 && memcmp(bytes, head + part.offset, part.size) != 0) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "endpoint of boundary %" PRIu64 ": its head is not the one of the plan",
                           place->endpoint.tokens);
    }
    stretches_of(place, stretches);
    for (int i = 0; i < STRETCHES; i++) {
        const uint8_t *from;

        part = piece_within(piece, stretches[i].start, stretches[i].size);
        if (part.size == 0) {
            continue;
        }
        from = bytes + (stretches[i].start + part.offset - piece.offset);
        status = i == CELLS ? write_cells(file, part, from, place, sequence, err)
                            : llama_file_write(file, from, part.size,
                                               stretches[i].file_at + part.offset, err);
        if (status != KVARVE_OK) {
            return status;
        }
        *written += part.size;
    }
    return KVARVE_OK;
}
