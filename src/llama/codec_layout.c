/*
 * codec_layout.c - the constant shape of one context, in memory and as text.
 *
 * The text has one line for each part and one for each run of equal rows, numbers in decimal:
 *
 *   llama-state 4
 *   prefix EXTENDED TRANSPOSED LAYERS      then `row TYPE ELEMENT BYTES REPEAT` lines: K, then V
 *   window EXTENDED TRANSPOSED LAYERS      the same
 *   recurrent LAYERS_TOTAL ROWS            the same: R, then S
 *
 * Invariant: a layout has exactly one text. Decoding encodes again and compares, so no second
 * spelling (order of lines, leading zeros, runs cut in two) is ever an identity.
 * Threads: pure. Ownership: a layout owns its rows.
 */
#include "llama/codec.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/fail.h"
#include "llama/codec_private.h"

static void attention_clear(llama_attention *attention)
{
    kvarve_release(attention->rows);
    *attention = (llama_attention){0};
}

void llama_layout_clear(llama_layout *layout)
{
    attention_clear(&layout->prefix);
    attention_clear(&layout->window);
    kvarve_release(layout->recurrent.rows);
    layout->recurrent = (llama_recurrent){0};
}

void llama_layout_free(llama_layout *layout)
{
    if (layout == NULL) {
        return;
    }
    llama_layout_clear(layout);
    kvarve_release(layout);
}

uint64_t llama_rows_sum(llama_row *rows, uint32_t count)
{
    uint64_t sum = 0;

    /* Counts and bytes are limited: 2048 rows of at most 2^32 bytes. */
    for (uint32_t i = 0; i < count; i++) {
        rows[i].offset = sum;
        sum += rows[i].bytes;
    }
    return sum;
}

static bool rows_are_equal(const llama_row *a, const llama_row *b, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (a[i].type != b[i].type || a[i].element_bytes != b[i].element_bytes ||
            a[i].bytes != b[i].bytes) {
            return false;
        }
    }
    return true;
}

bool llama_attention_is_equal(const llama_attention *a, const llama_attention *b)
{
    return a->is_present == b->is_present && a->is_extended == b->is_extended &&
           a->is_transposed == b->is_transposed && a->layer_count == b->layer_count &&
           rows_are_equal(a->rows, b->rows, 2 * a->layer_count);
}

bool llama_recurrent_is_equal(const llama_recurrent *a, const llama_recurrent *b)
{
    return a->is_present == b->is_present && a->layers_total == b->layers_total &&
           a->row_count == b->row_count && rows_are_equal(a->rows, b->rows, a->row_count);
}

bool llama_layout_is_equal(const llama_layout *a, const llama_layout *b)
{
    return llama_attention_is_equal(&a->prefix, &b->prefix) &&
           llama_attention_is_equal(&a->window, &b->window) &&
           llama_recurrent_is_equal(&a->recurrent, &b->recurrent);
}

uint64_t llama_layout_token_bytes(const llama_layout *layout)
{
    return layout->prefix.token_bytes;
}

bool llama_layout_has_endpoint(const llama_layout *layout)
{
    return layout->window.is_present || layout->recurrent.is_present;
}

uint64_t llama_cell_bytes(const llama_attention *attention)
{
    return attention->is_extended ? LLAMA_CELL_EXTENDED : LLAMA_CELL;
}

uint64_t llama_attention_rest(const llama_attention *attention, uint64_t cell_count)
{
    return LLAMA_ROWS_HEAD + LLAMA_ROW_HEAD * ((uint64_t)2 * attention->layer_count) +
           cell_count * attention->token_bytes;
}

uint64_t llama_recurrent_size(const llama_recurrent *recurrent)
{
    return LLAMA_RECURRENT_HEAD + (uint64_t)LLAMA_ROW_HEAD * recurrent->row_count +
           recurrent->state_bytes;
}

llama_endpoint llama_layout_endpoint(const llama_layout *layout, uint64_t tokens,
                                     uint32_t window_cells)
{
    llama_endpoint endpoint = {.tokens = tokens};

    if (layout->window.is_present) {
        endpoint.has_window = true;
        endpoint.is_extended = layout->window.is_extended;
        endpoint.window_cells = window_cells;
        endpoint.window_bytes = llama_attention_rest(&layout->window, window_cells);
    }
    if (layout->recurrent.is_present) {
        endpoint.recurrent_size = llama_recurrent_size(&layout->recurrent);
    }
    return endpoint;
}

/* ---- Encoding ---- */

typedef struct text_out {
    char *text;
    size_t size;
    size_t used; /* goes on counting when the text is full */
} text_out;

__attribute__((format(printf, 2, 3))) static void text_add(text_out *out, const char *format, ...)
{
    va_list arguments;
    size_t room = out->used < out->size ? out->size - out->used : 0;
    int length;

    va_start(arguments, format);
    length = vsnprintf(room > 0 ? out->text + out->used : NULL, room, format, arguments);
    va_end(arguments);
    KVARVE_ASSERT(length >= 0);
    out->used += (size_t)length;
}

static void text_add_rows(text_out *out, const llama_row *rows, uint32_t count)
{
    uint32_t repeat;

    for (uint32_t i = 0; i < count; i += repeat) {
        repeat = 1;
        while (i + repeat < count && rows_are_equal(&rows[i], &rows[i + repeat], 1)) {
            repeat++;
        }
        text_add(out, "row %" PRIu32 " %" PRIu32 " %" PRIu64 " %" PRIu32 "\n", rows[i].type,
                 rows[i].element_bytes, rows[i].bytes, repeat);
    }
}

static void text_add_attention(text_out *out, const char *name, const llama_attention *attention)
{
    if (!attention->is_present) {
        return;
    }
    text_add(out, "%s %d %d %" PRIu32 "\n", name, attention->is_extended, attention->is_transposed,
             attention->layer_count);
    text_add_rows(out, attention->rows, 2 * attention->layer_count);
}

static void layout_text(const llama_layout *layout, text_out *out)
{
    text_add(out, "llama-state %d\n", LLAMA_FILE_VERSION);
    text_add_attention(out, "prefix", &layout->prefix);
    text_add_attention(out, "window", &layout->window);
    if (layout->recurrent.is_present) {
        text_add(out, "recurrent %" PRIu32 " %" PRIu32 "\n", layout->recurrent.layers_total,
                 layout->recurrent.row_count);
        text_add_rows(out, layout->recurrent.rows, layout->recurrent.row_count);
    }
}

kvarve_status llama_layout_encode(const llama_layout *layout, char *text, size_t size,
                                  size_t *out_size, kvarve_error *err)
{
    text_out out = {.text = text, .size = size};

    layout_text(layout, &out);
    if (out.used >= size) {
        return kvarve_fail(err, KVARVE_NO_SPACE, "layout text needs %zu bytes, room for %zu",
                           out.used + 1, size);
    }
    *out_size = out.used;
    return KVARVE_OK;
}

/* ---- Decoding ---- */

typedef struct text_in {
    const char *text;
    size_t size;
    size_t at;
    unsigned line;
    kvarve_error *err;
} text_in;

static kvarve_status text_bad(const text_in *in)
{
    return kvarve_fail(in->err, KVARVE_CORRUPT, "layout text, line %u: not understood", in->line);
}

/* Whether the next line begins with `word` and a blank; then the word is taken. */
static bool text_take_word(text_in *in, const char *word)
{
    size_t length = strlen(word);

    if (in->size - in->at <= length || memcmp(in->text + in->at, word, length) != 0 ||
        in->text[in->at + length] != ' ') {
        return false;
    }
    in->at += length;
    in->line++;
    return true;
}

/* A blank and a number of at most ten digits and at most `max`. */
static bool text_take_number(text_in *in, uint64_t max, uint64_t *out)
{
    uint64_t value = 0;
    int digits = 0;

    if (in->at >= in->size || in->text[in->at] != ' ') {
        return false;
    }
    in->at++;
    while (in->at < in->size && in->text[in->at] >= '0' && in->text[in->at] <= '9' && digits < 11) {
        value = value * 10 + (uint64_t)(in->text[in->at] - '0');
        in->at++;
        digits++;
    }
    if (digits < 1 || digits > 10 || value > max) {
        return false;
    }
    *out = value;
    return true;
}

static bool text_take_end(text_in *in)
{
    if (in->at >= in->size || in->text[in->at] != '\n') {
        return false;
    }
    in->at++;
    return true;
}

/* `row` lines for `count` rows, each of at most `bytes_max` bytes; *out is owned by the caller. */
static kvarve_status text_take_rows(text_in *in, uint32_t count, uint64_t bytes_max,
                                    llama_row **out)
{
    llama_row *rows;
    uint32_t have = 0;
    uint64_t type, element, bytes, repeat;

    if (count == 0) {
        *out = NULL;
        return KVARVE_OK;
    }
    rows = kvarve_allocate_array(count, sizeof(*rows));
    if (rows == NULL) {
        return kvarve_fail(in->err, KVARVE_NO_MEMORY, "no memory for a layout of %" PRIu32 " rows",
                           count);
    }
    while (have < count) {
        if (!text_take_word(in, "row") || !text_take_number(in, LLAMA_TYPES_MAX - 1, &type) ||
            !text_take_number(in, LLAMA_ELEMENT_MAX, &element) ||
            !text_take_number(in, bytes_max, &bytes) ||
            !text_take_number(in, count - have, &repeat) || !text_take_end(in) || repeat == 0 ||
            (element != 0 && bytes % element != 0)) {
            kvarve_release(rows);
            return text_bad(in);
        }
        for (uint64_t i = 0; i < repeat; i++) {
            rows[have++] = (llama_row){
                .type = (uint32_t)type, .element_bytes = (uint32_t)element, .bytes = bytes};
        }
    }
    *out = rows;
    return KVARVE_OK;
}

/* Elements have a size in transposed V alone, and there they must. */
static bool elements_are_valid(const llama_attention *attention)
{
    uint32_t count = 2 * attention->layer_count;

    for (uint32_t i = 0; i < count; i++) {
        bool is_transposed = attention->is_transposed && i >= attention->layer_count;

        if (is_transposed != (attention->rows[i].element_bytes != 0)) {
            return false;
        }
    }
    return true;
}

static kvarve_status text_take_attention(text_in *in, const char *name, llama_attention *attention)
{
    uint64_t extended, transposed, layers;
    kvarve_status status;

    if (!text_take_word(in, name)) {
        return KVARVE_OK;
    }
    if (!text_take_number(in, 1, &extended) || !text_take_number(in, 1, &transposed) ||
        !text_take_number(in, LLAMA_LAYERS_MAX, &layers) || !text_take_end(in)) {
        return text_bad(in);
    }
    status = text_take_rows(in, (uint32_t)(2 * layers), LLAMA_ROW_BYTES_MAX, &attention->rows);
    if (status != KVARVE_OK) {
        return status;
    }
    attention->is_present = true;
    attention->is_extended = extended != 0;
    attention->is_transposed = transposed != 0;
    attention->layer_count = (uint32_t)layers;
    attention->token_bytes = llama_rows_sum(attention->rows, (uint32_t)(2 * layers));
    return elements_are_valid(attention) ? KVARVE_OK : text_bad(in);
}

static kvarve_status text_take_recurrent(text_in *in, llama_recurrent *recurrent)
{
    uint64_t total, count;
    kvarve_status status;

    if (!text_take_word(in, "recurrent")) {
        return KVARVE_OK;
    }
    if (!text_take_number(in, UINT32_MAX, &total) ||
        !text_take_number(in, 2 * (uint64_t)LLAMA_LAYERS_MAX, &count) || !text_take_end(in) ||
        count % 2 != 0) {
        return text_bad(in);
    }
    status = text_take_rows(in, (uint32_t)count, LLAMA_STATE_BYTES_MAX, &recurrent->rows);
    if (status != KVARVE_OK) {
        return status;
    }
    recurrent->is_present = true;
    recurrent->layers_total = (uint32_t)total;
    recurrent->row_count = (uint32_t)count;
    recurrent->state_bytes = llama_rows_sum(recurrent->rows, (uint32_t)count);
    return KVARVE_OK;
}

/* The one spelling of a layout is the one that encoding gives. */
static kvarve_status check_spelling(const llama_layout *layout, const text_in *in)
{
    text_out out = {0};
    char *text = kvarve_allocate(in->size + 1);
    kvarve_status status = KVARVE_OK;

    if (text == NULL) {
        return kvarve_fail(in->err, KVARVE_NO_MEMORY, "no memory for a layout text of %zu bytes",
                           in->size);
    }
    out.text = text;
    out.size = in->size + 1;
    layout_text(layout, &out);
    if (out.used != in->size || memcmp(text, in->text, in->size) != 0) {
        status = kvarve_fail(in->err, KVARVE_CORRUPT, "layout text is not in its one form");
    }
    kvarve_release(text);
    return status;
}

static kvarve_status text_take_layout(text_in *in, llama_layout *layout)
{
    uint64_t version;
    kvarve_status status;

    if (!text_take_word(in, "llama-state") || !text_take_number(in, UINT32_MAX, &version) ||
        !text_take_end(in)) {
        return text_bad(in);
    }
    if (version != LLAMA_FILE_VERSION) {
        return kvarve_fail(in->err, KVARVE_UNSUPPORTED,
                           "layout text of state version %" PRIu64 ", known is %d", version,
                           LLAMA_FILE_VERSION);
    }
    status = text_take_attention(in, "prefix", &layout->prefix);
    if (status == KVARVE_OK) {
        status = text_take_attention(in, "window", &layout->window);
    }
    if (status == KVARVE_OK) {
        status = text_take_recurrent(in, &layout->recurrent);
    }
    if (status == KVARVE_OK && in->at != in->size) {
        in->line++;
        status = text_bad(in);
    }
    return status == KVARVE_OK ? check_spelling(layout, in) : status;
}

kvarve_status llama_layout_decode(const char *text, size_t size, llama_layout **out,
                                  kvarve_error *err)
{
    text_in in = {.text = text, .size = size, .err = err};
    llama_layout *layout;
    kvarve_status status;

    if (size > LLAMA_LAYOUT_TEXT_MAX) {
        return kvarve_fail(err, KVARVE_CORRUPT, "layout text of %zu bytes, at most %d", size,
                           LLAMA_LAYOUT_TEXT_MAX);
    }
    layout = kvarve_allocate(sizeof(*layout));
    if (layout == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "no memory for a layout");
    }
    status = text_take_layout(&in, layout);
    if (status != KVARVE_OK) {
        llama_layout_free(layout);
        return status;
    }
    *out = layout;
    return KVARVE_OK;
}
