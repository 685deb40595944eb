/*
 * codec_state.c - parse one sequence state: attention parts, a recurrent part, and their shapes.
 *
 * A state does not say whether its cells have the M-RoPE words, nor how many recurrent rows there
 * are. Both kinds of cells are tried, and the one that explains the state is taken; two that do
 * would be an unknown layout. Rows go on while the next word is a type.
 *
 * Invariants: I1 to I3 of codec_parse.c.
 * Threads: one per slot. Ownership: attempts own their layouts until one is taken.
 */
#include "llama/codec.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fail.h"
#include "llama/codec_parse_private.h"
#include "llama/codec_private.h"

/* ---- Bytes ---- */

kvarve_status parser_corrupt(const slot_parser *parser, const char *what)
{
    return kvarve_fail(parser->err, KVARVE_CORRUPT, "slot file: %s, before byte %" PRIu64, what,
                       parser->at);
}

/* The first reason stays. */
void parser_set_whole(llama_slot *slot, const char *reason)
{
    if (slot->whole_reason == NULL) {
        slot->whole_reason = reason;
    }
}

uint64_t parser_left(const slot_parser *parser)
{
    return parser->end - parser->at;
}

kvarve_status parser_skip(slot_parser *parser, uint64_t size, const char *what)
{
    if (size > parser_left(parser)) {
        return kvarve_fail(parser->err, KVARVE_CORRUPT,
                           "slot file: %" PRIu64 " bytes of %s at %" PRIu64 ", only %" PRIu64
                           " are left",
                           size, what, parser->at, parser_left(parser));
    }
    parser->at += size;
    return KVARVE_OK;
}

kvarve_status parser_take(slot_parser *parser, uint8_t *bytes, size_t size, const char *what)
{
    uint64_t at = parser->at;
    kvarve_status status = parser_skip(parser, size, what);

    return status == KVARVE_OK ? llama_file_read(&parser->file, bytes, size, at, parser->err)
                               : status;
}

kvarve_status parser_take_u32(slot_parser *parser, uint32_t *out, const char *what)
{
    uint8_t bytes[4];
    kvarve_status status = parser_take(parser, bytes, sizeof(bytes), what);

    if (status == KVARVE_OK) {
        *out = llama_load32(bytes);
    }
    return status;
}

kvarve_status parser_take_u64(slot_parser *parser, uint64_t *out, const char *what)
{
    uint8_t bytes[8];
    kvarve_status status = parser_take(parser, bytes, sizeof(bytes), what);

    if (status == KVARVE_OK) {
        *out = llama_load64(bytes);
    }
    return status;
}

/* ---- Cells ---- */

/* One batch of cells, of which the first has number `first`; `tokens` are those of their numbers.
 */
static bool cells_are_valid(const uint8_t *cells, uint64_t many, uint64_t stride, uint64_t first,
                            attention_found *found)
{
    for (uint64_t i = 0; i < many; i++) {
        const uint8_t *cell = cells + i * stride;
        uint32_t sequence = llama_load32(cell + stride - 4);

        if (llama_load32(cell + 4) != 1) {
            return false;
        }
        if (!found->streams.is_sequence_known) {
            found->streams.is_sequence_known = true;
            found->streams.sequence = sequence;
        }
        if (sequence != found->streams.sequence) {
            return false;
        }
        if (llama_load32(cell) != first + i) {
            found->is_ordered = false;
        }
        if (stride == LLAMA_CELL_EXTENDED && (llama_load32(cell + 8) != llama_load32(cell) ||
                                              llama_load32(cell + 12) != llama_load32(cell))) {
            found->is_text = false;
        }
    }
    return true;
}

/* Whether the token words of cells with numbers from `first` on are the file's tokens. */
static kvarve_status compare_tokens(slot_parser *parser, const uint8_t *cells, uint64_t many,
                                    uint64_t first, attention_found *found)
{
    uint8_t *tokens = parser->slot->scratch + parser->slot->scratch_size / 2;
    kvarve_status status;

    if (first >= parser->slot->tokens || many > parser->slot->tokens - first) {
        found->is_text = false;
        return KVARVE_OK;
    }
    status = llama_file_read(&parser->file, tokens, (size_t)(many * 4), LLAMA_FILE_HEAD + first * 4,
                             parser->err);
    for (uint64_t i = 0; i < many && status == KVARVE_OK; i++) {
        if (memcmp(tokens + 4 * i, cells + i * LLAMA_CELL_EXTENDED + 16, 4) != 0) {
            found->is_text = false;
        }
    }
    return status;
}

static kvarve_status parse_cells(slot_parser *parser, bool is_extended, uint64_t count,
                                 attention_found *found)
{
    uint8_t *cells = parser->slot->scratch;
    uint64_t stride = is_extended ? LLAMA_CELL_EXTENDED : LLAMA_CELL;
    uint64_t many;
    kvarve_status status = KVARVE_OK;

    found->place.cells_at = parser->at;
    found->place.cell_count = count;
    found->is_ordered = true;
    found->is_text = true;
    if (count * stride > parser_left(parser)) {
        return parser_skip(parser, count * stride, "cells");
    }
    for (uint64_t first = 0; first < count && status == KVARVE_OK; first += many) {
        many = kvarve_min_u64(count - first, parser->slot->scratch_size / 2 / stride);
        status = parser_take(parser, cells, (size_t)(many * stride), "cells");
        if (status == KVARVE_OK && !cells_are_valid(cells, many, stride, first, found)) {
            return parser_corrupt(parser, "cells of more than one sequence");
        }
        if (status == KVARVE_OK && is_extended) {
            status = compare_tokens(parser, cells, many, first, found);
        }
    }
    return status;
}

/* ---- Rows ---- */

/* Type and row bytes of one layer, as keys, untransposed values and recurrent rows have them. */
static kvarve_status take_row(slot_parser *parser, uint64_t bytes_max, llama_row *row)
{
    uint8_t head[LLAMA_ROW_HEAD];
    kvarve_status status = parser_take(parser, head, sizeof(head), "a row's head");

    if (status != KVARVE_OK) {
        return status;
    }
    *row = (llama_row){.type = llama_load32(head), .bytes = llama_load64(head + 4)};
    if (row->type >= LLAMA_TYPES_MAX || row->bytes > bytes_max) {
        return parser_corrupt(parser, "a row has a type or a size that is none");
    }
    return KVARVE_OK;
}

static kvarve_status take_transposed(slot_parser *parser, llama_row *row)
{
    uint8_t head[LLAMA_ROW_HEAD];
    kvarve_status status = parser_take(parser, head, sizeof(head), "a row's head");

    if (status != KVARVE_OK) {
        return status;
    }
    *row = (llama_row){.type = llama_load32(head),
                       .element_bytes = llama_load32(head + 4),
                       .bytes = (uint64_t)llama_load32(head + 4) * llama_load32(head + 8)};
    if (row->type >= LLAMA_TYPES_MAX || row->element_bytes < 1 ||
        row->element_bytes > LLAMA_ELEMENT_MAX || row->bytes > LLAMA_ROW_BYTES_MAX) {
        return parser_corrupt(parser, "a transposed row has a type or a size that is none");
    }
    return KVARVE_OK;
}

static kvarve_status parse_rows(slot_parser *parser, uint64_t cell_count,
                                llama_attention *attention)
{
    kvarve_status status = KVARVE_OK;

    for (uint32_t i = 0; i < 2 * attention->layer_count; i++) {
        llama_row *row = &attention->rows[i];

        status = attention->is_transposed && i >= attention->layer_count
                     ? take_transposed(parser, row)
                     : take_row(parser, LLAMA_ROW_BYTES_MAX, row);
        if (status == KVARVE_OK && row->bytes == 0) {
            return parser_corrupt(parser, "an attention row of no bytes");
        }
        if (status == KVARVE_OK) {
            status = parser_skip(parser, cell_count * row->bytes, "rows");
        }
        if (status != KVARVE_OK) {
            return status;
        }
    }
    attention->token_bytes = llama_rows_sum(attention->rows, 2 * attention->layer_count);
    return KVARVE_OK;
}

static kvarve_status parse_attention_rest(slot_parser *parser, bool is_extended,
                                          attention_found *found, llama_attention *attention)
{
    uint8_t head[LLAMA_ROWS_HEAD];
    uint32_t layers;
    kvarve_status status;

    found->place.rest_at = parser->at;
    status = parser_take(parser, head, sizeof(head), "the layer count");
    if (status != KVARVE_OK) {
        return status;
    }
    layers = llama_load32(head + 4);
    if (llama_load32(head) > 1 || layers > LLAMA_LAYERS_MAX || llama_load64(head + 8) != 0 ||
        (uint64_t)layers * LLAMA_ROW_HEAD > parser_left(parser)) {
        return parser_corrupt(parser, "no known head of an attention part");
    }
    attention->is_extended = is_extended;
    attention->is_transposed = llama_load32(head) == 1;
    attention->layer_count = layers;
    if (layers > 0) {
        attention->rows = kvarve_allocate_array((size_t)layers * 2, sizeof(llama_row));
        if (attention->rows == NULL) {
            return kvarve_fail(parser->err, KVARVE_NO_MEMORY, "no memory for %" PRIu32 " layers",
                               layers);
        }
    }
    return parse_rows(parser, found->place.cell_count, attention);
}

static kvarve_status parse_attention(slot_parser *parser, bool is_extended, attention_found *found,
                                     llama_attention *attention)
{
    uint32_t streams;
    uint32_t cells;
    bool has_cells = false;
    kvarve_status status = parser_take_u32(parser, &streams, "the stream count");

    if (status != KVARVE_OK) {
        return status;
    }
    if (streams < 1 || streams > LLAMA_STREAMS_MAX) {
        return parser_corrupt(parser, "no known stream count");
    }
    *found = (attention_found){.streams = {.is_known = true, .count = streams}};
    attention->is_present = true;
    for (uint32_t i = 0; i < streams; i++) {
        status = parser_take_u32(parser, &cells, "a cell count");
        if (status != KVARVE_OK) {
            return status;
        }
        if (cells == 0) {
            continue;
        }
        if (has_cells) {
            return parser_corrupt(parser, "a sequence in two streams");
        }
        has_cells = true;
        found->streams.index = i;
        status = parse_cells(parser, is_extended, cells, found);
        if (status == KVARVE_OK) {
            status = parse_attention_rest(parser, is_extended, found, attention);
        }
        if (status != KVARVE_OK) {
            return status;
        }
    }
    return KVARVE_OK;
}

/* ---- Recurrent part ---- */

/* Whether rows go on: the next word is a type, not the magic of an appendix. */
static kvarve_status next_is_row(const slot_parser *parser, bool *out)
{
    uint8_t word[4];
    kvarve_status status;

    *out = false;
    if (parser_left(parser) < sizeof(word)) {
        return KVARVE_OK;
    }
    status = llama_file_read(&parser->file, word, sizeof(word), parser->at, parser->err);
    if (status == KVARVE_OK) {
        *out = llama_load32(word) < LLAMA_TYPES_MAX;
    }
    return status;
}

static kvarve_status parse_recurrent_rows(slot_parser *parser, llama_recurrent *recurrent)
{
    bool goes_on = true;
    uint64_t most = kvarve_min_u64(recurrent->layers_total, LLAMA_LAYERS_MAX) * 2;
    kvarve_status status;

    most = kvarve_min_u64(most, parser_left(parser) / LLAMA_ROW_HEAD);
    if (most > 0) {
        recurrent->rows = kvarve_allocate_array((size_t)most, sizeof(llama_row));
        if (recurrent->rows == NULL) {
            return kvarve_fail(parser->err, KVARVE_NO_MEMORY, "no memory for %" PRIu64 " rows",
                               most);
        }
    }
    for (;;) {
        llama_row *row;

        status = next_is_row(parser, &goes_on);
        if (status != KVARVE_OK || !goes_on) {
            break;
        }
        if (recurrent->row_count == most) {
            return parser_corrupt(parser, "more recurrent rows than layers");
        }
        row = &recurrent->rows[recurrent->row_count];
        status = take_row(parser, LLAMA_STATE_BYTES_MAX, row);
        if (status == KVARVE_OK) {
            status = parser_skip(parser, row->bytes, "a recurrent row");
        }
        if (status != KVARVE_OK) {
            return status;
        }
        recurrent->row_count++;
    }
    recurrent->state_bytes = llama_rows_sum(recurrent->rows, recurrent->row_count);
    return status;
}

static kvarve_status parse_recurrent(slot_parser *parser, state_found *found,
                                     llama_recurrent *recurrent)
{
    uint8_t head[LLAMA_RECURRENT_HEAD];
    kvarve_status status;

    found->recurrent_at = parser->at;
    status = parser_take(parser, head, sizeof(head), "a recurrent part");
    if (status != KVARVE_OK) {
        return status;
    }
    found->recurrent_position = (int32_t)llama_load32(head + 4);
    recurrent->is_present = true;
    recurrent->layers_total = llama_load32(head + 16);
    status = parse_recurrent_rows(parser, recurrent);
    if (status == KVARVE_OK && (recurrent->row_count == 0 || recurrent->row_count % 2 != 0)) {
        return parser_corrupt(parser, "recurrent rows that are not as many R as S");
    }
    return status;
}

/* ---- States ---- */

/*
 * What comes next: a recurrent part begins with 1 cell, its position, and two zeros; an attention
 * part that begins alike would have a cell of no sequence, which it never has.
 */
typedef enum next_part {
    NEXT_END,
    NEXT_ATTENTION,
    NEXT_RECURRENT,
} next_part;

static kvarve_status peek_part(const slot_parser *parser, bool is_blob, next_part *out)
{
    uint8_t words[16];
    uint32_t first;
    size_t size = (size_t)kvarve_min_u64(parser_left(parser), sizeof(words));
    kvarve_status status;

    memset(words, 0xff, sizeof(words));
    status = llama_file_read(&parser->file, words, size, parser->at, parser->err);
    if (status != KVARVE_OK) {
        return status;
    }
    first = llama_load32(words);
    if (size == 0 ||
        (!is_blob && (first == LLAMA_CHECKPOINT_MAGIC || first == LLAMA_DRAFT_MAGIC))) {
        *out = NEXT_END;
    } else if (size == sizeof(words) && first == 1 && llama_load64(words + 8) == 0) {
        *out = NEXT_RECURRENT;
    } else {
        *out = NEXT_ATTENTION;
    }
    return KVARVE_OK;
}

static kvarve_status parse_state_part(slot_parser *parser, next_part next, bool is_extended,
                                      llama_layout *layout, state_found *found)
{
    if (layout->recurrent.is_present) {
        return parser_corrupt(parser, "bytes after the recurrent part");
    }
    if (next == NEXT_RECURRENT) {
        return parse_recurrent(parser, found, &layout->recurrent);
    }
    if (!layout->prefix.is_present) {
        return parse_attention(parser, is_extended, &found->prefix, &layout->prefix);
    }
    if (!layout->window.is_present) {
        return parse_attention(parser, is_extended, &found->window, &layout->window);
    }
    return parser_corrupt(parser, "bytes after the state");
}

/* In a partial state the only attention part is the window's. */
kvarve_status parser_state(slot_parser *parser, state_kind kind, llama_layout *layout,
                           state_found *found)
{
    next_part next = NEXT_END;
    kvarve_status status;

    *found = (state_found){0};
    layout->prefix.is_present = kind.is_partial;
    do {
        status = peek_part(parser, kind.is_blob, &next);
        if (status == KVARVE_OK && next != NEXT_END) {
            status = parse_state_part(parser, next, kind.is_extended, layout, found);
        }
    } while (status == KVARVE_OK && next != NEXT_END);
    if (kind.is_partial) {
        layout->prefix.is_present = false;
    } else if (status == KVARVE_OK && !layout->prefix.is_present && !layout->recurrent.is_present) {
        status = parser_corrupt(parser, "no state");
    }
    return status;
}

/* An attempt at one kind of cells. */
typedef struct state_attempt {
    llama_layout layout; /* its rows are owned; none after a failure */
    state_found found;
    uint64_t end;
    kvarve_status status;
    kvarve_error err;
} state_attempt;

static void attempt(const slot_parser *parser, state_kind kind, state_attempt *out)
{
    slot_parser own = *parser;

    own.err = &out->err;
    out->status = parser_state(&own, kind, &out->layout, &out->found);
    out->end = own.at;
    if (out->status != KVARVE_OK) {
        llama_layout_clear(&out->layout);
    }
}

/* The one that explains the state; of two that fail, the one that got furthest. */
static int better(const state_attempt attempts[2])
{
    if (attempts[0].status == KVARVE_OK || attempts[1].status == KVARVE_OK) {
        return attempts[0].status == KVARVE_OK ? 0 : 1;
    }
    return attempts[0].end >= attempts[1].end ? 0 : 1;
}

static kvarve_status take_attempt(slot_parser *parser, state_attempt *chosen,
                                  llama_layout **out_layout, state_found *out_found)
{
    llama_layout *layout;

    if (chosen->status != KVARVE_OK) {
        if (parser->err != NULL) {
            *parser->err = chosen->err;
        }
        return chosen->status;
    }
    layout = kvarve_allocate(sizeof(*layout));
    if (layout == NULL) {
        llama_layout_clear(&chosen->layout);
        return kvarve_fail(parser->err, KVARVE_NO_MEMORY, "no memory for a layout");
    }
    *layout = chosen->layout;
    *out_layout = layout;
    *out_found = chosen->found;
    parser->at = chosen->end;
    return KVARVE_OK;
}

kvarve_status parser_unknown_state(slot_parser *parser, bool is_blob, llama_layout **out_layout,
                                   state_found *out_found)
{
    state_attempt attempts[2];
    int chosen;

    memset(attempts, 0, sizeof(attempts));
    attempt(parser, (state_kind){.is_blob = is_blob}, &attempts[0]);
    attempt(parser, (state_kind){.is_blob = is_blob, .is_extended = true}, &attempts[1]);
    chosen = better(attempts);
    for (int i = 0; i < 2; i++) {
        /* That one of them could not be tried is not an answer about the file. */
        if (attempts[i].status == KVARVE_IO || attempts[i].status == KVARVE_NO_MEMORY) {
            llama_layout_clear(&attempts[1 - i].layout);
            chosen = i;
            break;
        }
    }
    if (attempts[0].status == KVARVE_OK && attempts[1].status == KVARVE_OK &&
        !llama_layout_is_equal(&attempts[0].layout, &attempts[1].layout)) {
        parser_set_whole(parser->slot, "more than one layout explains the state");
    }
    llama_layout_clear(&attempts[1 - chosen].layout);
    return take_attempt(parser, &attempts[chosen], out_layout, out_found);
}
