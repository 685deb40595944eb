/*
 * codec_kit.c - slot files in memory, and a whole trip through pages and endpoints.
 *
 * Invariant: everything goes through the door of the codec, as ingest and emit use it; layouts and
 * endpoints pass through their stored form. Threads: one. Ownership: the test's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "unit/llama/codec_kit.h"

void kit_free(kit_bytes *bytes)
{
    kvarve_release(bytes->bytes);
    *bytes = (kit_bytes){0};
}

static void reserve(kit_bytes *bytes, size_t size)
{
    size_t room = bytes->room;

    if (size <= room) {
        return;
    }
    while (room < size) {
        room = room < 4096 ? 4096 : room * 2;
    }
    bytes->bytes = kvarve_reallocate(bytes->bytes, room);
    assert_non_null(bytes->bytes);
    memset(bytes->bytes + bytes->room, 0xee, room - bytes->room);
    bytes->room = room;
}

void kit_append(kit_bytes *bytes, const void *more, size_t size)
{
    reserve(bytes, bytes->size + size);
    if (size > 0) {
        memcpy(bytes->bytes + bytes->size, more, size);
    }
    bytes->size += size;
}

kit_bytes kit_load(const char *path)
{
    kit_bytes bytes = {0};
    uint8_t piece[65536];
    size_t size;
    FILE *file = fopen(path, "rbe");

    assert_non_null(file);
    while ((size = fread(piece, 1, sizeof(piece), file)) > 0) {
        kit_append(&bytes, piece, size);
    }
    assert_int_equal(fclose(file), 0);
    return bytes;
}

static int read_bytes(void *context, void *bytes, size_t size, uint64_t offset)
{
    const kit_bytes *from = context;

    if (offset > from->size || size > from->size - offset) {
        return -EIO;
    }
    memcpy(bytes, from->bytes + offset, size);
    return 0;
}

static int write_bytes(void *context, const void *bytes, size_t size, uint64_t offset)
{
    kit_bytes *to = context;

    reserve(to, (size_t)offset + size);
    memcpy(to->bytes + offset, bytes, size);
    if (offset + size > to->size) {
        to->size = (size_t)offset + size;
    }
    return 0;
}

llama_input kit_input(kit_bytes *bytes)
{
    return (llama_input){.context = bytes, .read = read_bytes, .size = bytes->size};
}

llama_output kit_output(kit_bytes *bytes)
{
    return (llama_output){.context = bytes, .write = write_bytes};
}

/* ---- Cutting ---- */

static llama_layout *layout_through_text(const llama_layout *layout)
{
    char *text = kvarve_allocate(LLAMA_LAYOUT_TEXT_MAX);
    llama_layout *again;
    size_t size;

    assert_non_null(text);
    assert_int_equal(llama_layout_encode(layout, text, LLAMA_LAYOUT_TEXT_MAX, &size, NULL),
                     KVARVE_OK);
    assert_int_equal(llama_layout_decode(text, size, &again, NULL), KVARVE_OK);
    assert_true(llama_layout_is_equal(layout, again));
    kvarve_release(text);
    return again;
}

/* Pages of [0, tokens) in `rows`; returns how many. The array is the caller's. */
static size_t make_pages(void *rows, uint64_t tokens, uint32_t span, uint64_t token_bytes,
                         llama_page **out)
{
    size_t count = (size_t)((tokens + span - 1) / span);
    llama_page *pages = kvarve_allocate_array(count, sizeof(*pages));
    uint8_t *page = rows;

    assert_non_null(pages);
    for (size_t i = 0; i < count; i++) {
        uint64_t first = i * span;

        pages[i] = (llama_page){.first = first, .bytes = page + first * token_bytes};
        pages[i].count = (uint32_t)(tokens - first < span ? tokens - first : span);
    }
    *out = pages;
    return count;
}

static uint8_t *cut_pages(llama_slot *slot, llama_part part, uint32_t span, size_t batch)
{
    uint64_t token_bytes = llama_layout_token_bytes(llama_slot_layout(slot, part));
    uint64_t tokens = llama_slot_tokens(slot);
    uint8_t *rows;
    llama_page *pages;
    size_t count;

    if (token_bytes == 0) {
        return NULL;
    }
    rows = kvarve_allocate((size_t)(tokens * token_bytes));
    assert_non_null(rows);
    count = make_pages(rows, tokens, span, token_bytes, &pages);
    for (size_t i = 0; i < count; i += batch) {
        size_t many = count - i < batch ? count - i : batch;

        assert_int_equal(llama_slot_read_pages(slot, part, pages + i, many, NULL), KVARVE_OK);
    }
    kvarve_release(pages);
    return rows;
}

static kit_bytes cut_endpoint(llama_slot *slot, llama_endpoint_name name, size_t step)
{
    llama_endpoint endpoint;
    kit_bytes bytes = {0};
    size_t size;

    if (!llama_slot_endpoint(slot, name.index, name.part, &endpoint)) {
        return bytes;
    }
    size = (size_t)llama_endpoint_size(&endpoint);
    reserve(&bytes, size);
    bytes.size = size;
    for (size_t offset = 0; offset < size; offset += step) {
        size_t many = size - offset < step ? size - offset : step;

        assert_int_equal(
            llama_slot_read_endpoint(slot, name, offset, many, bytes.bytes + offset, NULL),
            KVARVE_OK);
    }
    return bytes;
}

kit_pieces kit_cut(llama_slot *slot, uint32_t span, size_t batch, size_t step)
{
    kit_pieces pieces = {.span = span, .token_count = llama_slot_tokens(slot)};

    pieces.checkpoint_count = llama_slot_checkpoints(slot);
    pieces.tokens = kvarve_allocate_array((size_t)pieces.token_count, sizeof(uint32_t));
    assert_non_null(pieces.tokens);
    assert_int_equal(
        llama_slot_read_tokens(slot, 0, (size_t)pieces.token_count, pieces.tokens, NULL),
        KVARVE_OK);
    for (int i = 0; i < LLAMA_PARTS; i++) {
        llama_part part = (llama_part)i;

        if (llama_slot_layout(slot, part) == NULL) {
            continue;
        }
        pieces.layout[i] = layout_through_text(llama_slot_layout(slot, part));
        pieces.rows[i] = cut_pages(slot, part, span, batch);
        pieces.response[i] = cut_endpoint(slot, (llama_endpoint_name){LLAMA_RESPONSE, part}, step);
        pieces.checkpoint[i] =
            kvarve_allocate_array((size_t)pieces.checkpoint_count + 1, sizeof(kit_bytes));
        assert_non_null(pieces.checkpoint[i]);
        for (uint32_t k = 0; k < pieces.checkpoint_count; k++) {
            pieces.checkpoint[i][k] = cut_endpoint(slot, (llama_endpoint_name){k, part}, step);
        }
    }
    return pieces;
}

void kit_pieces_free(kit_pieces *pieces)
{
    for (int i = 0; i < LLAMA_PARTS; i++) {
        llama_layout_free(pieces->layout[i]);
        kvarve_release(pieces->rows[i]);
        kit_free(&pieces->response[i]);
        for (uint32_t k = 0; k < pieces->checkpoint_count && pieces->checkpoint[i] != NULL; k++) {
            kit_free(&pieces->checkpoint[i][k]);
        }
        kvarve_release(pieces->checkpoint[i]);
    }
    kvarve_release(pieces->tokens);
    *pieces = (kit_pieces){0};
}

/* ---- Joining ---- */

static llama_endpoint head_of(const kit_bytes *endpoint)
{
    llama_endpoint head = {0};

    if (endpoint->size > 0) {
        assert_int_equal(llama_endpoint_decode(endpoint->bytes, &head, NULL), KVARVE_OK);
        assert_int_equal(llama_endpoint_size(&head), endpoint->size);
    }
    return head;
}

static void join_endpoint(llama_writer *writer, llama_endpoint_name name, const kit_bytes *endpoint,
                          size_t step)
{
    for (size_t offset = 0; offset < endpoint->size; offset += step) {
        size_t many = endpoint->size - offset < step ? endpoint->size - offset : step;

        assert_int_equal(
            llama_writer_endpoint(writer, name, endpoint->bytes + offset, many, offset, NULL),
            KVARVE_OK);
    }
}

/* Pages from the last batch to the first: their order does not matter. A page that the boundary
 * cuts is cut here, as a partial page would be. */
static void join_pages(llama_writer *writer, llama_part part, const kit_pieces *pieces,
                       const kit_target *target, uint64_t boundary)
{
    uint64_t token_bytes = llama_layout_token_bytes(pieces->layout[part]);
    size_t count = (size_t)(boundary / pieces->span);
    llama_page *pages;

    if (token_bytes == 0) {
        return;
    }
    (void)make_pages(pieces->rows[part], pieces->token_count, pieces->span, token_bytes, &pages);
    if (boundary == pieces->token_count && boundary % pieces->span != 0) {
        count++;
    }
    for (size_t end = count; end > 0;) {
        size_t first = end > target->batch ? end - target->batch : 0;

        assert_int_equal(llama_writer_pages(writer, part, pages + first, end - first, NULL),
                         KVARVE_OK);
        end = first;
    }
    kvarve_release(pages);
}

/* The endpoints that a file of this boundary takes. */
typedef struct joined {
    llama_plan_checkpoint *checkpoints;
    uint32_t *index; /* of each in the pieces */
    uint32_t count;
    const kit_bytes *response[LLAMA_PARTS];
} joined;

/* The checkpoint's endpoints are those of the boundary. */
static void take_as_response(const kit_pieces *pieces, uint32_t index, joined *out)
{
    for (int part = 0; part < LLAMA_PARTS; part++) {
        if (pieces->layout[part] != NULL) {
            out->response[part] = &pieces->checkpoint[part][index];
        }
    }
}

static void add_checkpoint(const kit_pieces *pieces, uint32_t index, joined *out)
{
    out->checkpoints[out->count].main = head_of(&pieces->checkpoint[LLAMA_MAIN][index]);
    if (pieces->layout[LLAMA_DRAFT] != NULL) {
        out->checkpoints[out->count].draft = head_of(&pieces->checkpoint[LLAMA_DRAFT][index]);
    }
    out->index[out->count++] = index;
}

static joined choose(const kit_pieces *pieces, uint64_t boundary)
{
    joined out = {.response = {&pieces->response[LLAMA_MAIN], &pieces->response[LLAMA_DRAFT]}};

    out.checkpoints =
        kvarve_allocate_array((size_t)pieces->checkpoint_count + 1, sizeof(*out.checkpoints));
    out.index = kvarve_allocate_array((size_t)pieces->checkpoint_count + 1, sizeof(*out.index));
    assert_non_null(out.checkpoints);
    assert_non_null(out.index);
    for (uint32_t i = 0; i < pieces->checkpoint_count; i++) {
        llama_endpoint main = head_of(&pieces->checkpoint[LLAMA_MAIN][i]);

        if (boundary != pieces->token_count && main.tokens == boundary) {
            take_as_response(pieces, i, &out);
        }
        if (main.tokens <= boundary) {
            add_checkpoint(pieces, i, &out);
        }
    }
    return out;
}

static void join_parts(llama_writer *writer, const kit_pieces *pieces, const joined *endpoints,
                       const kit_target *target, uint64_t boundary)
{
    for (int i = 0; i < LLAMA_PARTS; i++) {
        llama_part part = (llama_part)i;

        if (pieces->layout[i] == NULL || (part == LLAMA_DRAFT && target->drop_draft)) {
            continue;
        }
        for (uint32_t k = 0; k < endpoints->count; k++) {
            join_endpoint(writer, (llama_endpoint_name){k, part},
                          &pieces->checkpoint[i][endpoints->index[k]], target->step);
        }
        join_pages(writer, part, pieces, target, boundary);
        join_endpoint(writer, (llama_endpoint_name){LLAMA_RESPONSE, part}, endpoints->response[i],
                      target->step);
    }
}

kit_bytes kit_join(const kit_pieces *pieces, const kit_target *target)
{
    uint64_t boundary = target->boundary == 0 ? pieces->token_count : target->boundary;
    joined endpoints = choose(pieces, boundary);
    kit_bytes file = {0};
    llama_output output = kit_output(&file);
    llama_writer *writer;
    llama_plan plan = {
        .layout = {pieces->layout[LLAMA_MAIN],
                   target->drop_draft ? NULL : pieces->layout[LLAMA_DRAFT]},
        .tokens = pieces->tokens,
        .token_count = boundary,
        .endpoint = {head_of(endpoints.response[LLAMA_MAIN]),
                     head_of(endpoints.response[LLAMA_DRAFT])},
        .checkpoints = endpoints.checkpoints,
        .checkpoint_count = endpoints.count,
        .stream_count = target->stream_count,
        .stream_index = target->stream_index,
        .sequence = target->sequence,
    };

    assert_int_equal(llama_writer_open(&plan, &output, &writer, NULL), KVARVE_OK);
    join_parts(writer, pieces, &endpoints, target, boundary);
    assert_int_equal(llama_writer_finish(writer, NULL), KVARVE_OK);
    assert_int_equal(llama_writer_size(writer), file.size);
    llama_writer_close(writer);
    kvarve_release(endpoints.checkpoints);
    kvarve_release(endpoints.index);
    return file;
}

void kit_assert_equal(const kit_bytes *a, const kit_bytes *b)
{
    size_t i = 0;

    while (i < a->size && i < b->size && a->bytes[i] == b->bytes[i]) {
        i++;
    }
    if (i < a->size || i < b->size) {
        fail_msg("different at byte %zu of %zu and %zu", i, a->size, b->size);
    }
}
