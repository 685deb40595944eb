/*
 * codec_transfer.c - rows between a file, where a layer's rows of all tokens lie together, and
 * pages, where a token range's rows of all layers do.
 *
 * A run of neighbouring pages moves layer by layer through one scratch buffer, in steps as large as
 * the buffer, so that a step of the file is long however short the pages are. Transposed V lies
 * element by element in the file: a step takes some elements of a range of tokens.
 *
 * Invariants: no byte outside the given tokens' rows is touched; steps never exceed the scratch.
 * Threads and ownership: none, on the caller's memory.
 */
#include "llama/codec.h"

#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"
#include "llama/codec_private.h"

/* Tokens and elements of a tile: two sides of 32 cache lines each. */
#define TILE UINT64_C(32)

/* Put between the elements of a step, so that they do not compete for the same lines of the cache.
 */
#define GAP UINT64_C(64)

/* Most tokens of one step of transposed V: at 16 bytes each a quarter of the largest scratch. */
#define TRANSPOSED_TOKENS_MAX UINT64_C(65536)

uint64_t llama_scratch_size(uint64_t bytes)
{
    return kvarve_max_u64(kvarve_min_u64(bytes, LLAMA_SCRATCH), LLAMA_SCRATCH_MIN);
}

kvarve_status llama_file_read(const llama_file *file, void *bytes, size_t size, uint64_t offset,
                              kvarve_error *err)
{
    int result;

    if (size == 0) {
        return KVARVE_OK;
    }
    result = file->input->read(file->input->context, bytes, size, offset);
    if (result < 0) {
        return kvarve_fail_io(err, result, "read %zu bytes of the slot file at %" PRIu64, size,
                              offset);
    }
    return KVARVE_OK;
}

kvarve_status llama_file_write(const llama_file *file, const void *bytes, size_t size,
                               uint64_t offset, kvarve_error *err)
{
    int result;

    if (size == 0) {
        return KVARVE_OK;
    }
    result = file->output->write(file->output->context, bytes, size, offset);
    if (result < 0) {
        return kvarve_fail_io(err, result, "write %zu bytes of the slot file at %" PRIu64, size,
                              offset);
    }
    return KVARVE_OK;
}

bool llama_pages_are_valid(const llama_page *pages, size_t count, uint64_t tokens)
{
    uint64_t end = 0;

    for (size_t i = 0; i < count; i++) {
        if (pages[i].first < end || pages[i].count == 0 || pages[i].first > tokens ||
            pages[i].count > tokens - pages[i].first) {
            return false;
        }
        end = pages[i].first + pages[i].count;
    }
    return true;
}

/* A run of neighbouring pages, and the row that is being moved. */
typedef struct page_run {
    const llama_file *file;
    const llama_row *row;
    uint64_t cell_count; /* of the file */
    uint64_t row_at;     /* of the row's data in the file */
    const llama_page *pages;
    size_t count;
} page_run;

/* Tokens [first, first + tokens) of a run, and for transposed V its elements [element, + elements).
 */
typedef struct row_step {
    uint64_t first;
    uint64_t tokens;
    uint64_t element;
    uint64_t elements;
    uint64_t stretch; /* bytes from one element to the next in the scratch */
} row_step;

/* Tokens and elements of one page that are moved together; `rows` is the row of its first token. */
typedef struct row_tile {
    uint8_t *rows;
    uint64_t page_first;
    uint64_t end; /* of the page's tokens in this step */
    uint64_t token;
    uint64_t element; /* counted from the step's first */
} row_tile;

/* One element of `count` tokens: `page` and `scratch` are those of the first. */
static void move_element(const llama_row *row, uint8_t *page, uint8_t *scratch, uint64_t count,
                         bool to_page)
{
    uint32_t size = row->element_bytes;

    for (uint64_t i = 0; i < count; i++) {
        uint8_t *to = to_page ? page : scratch;
        const uint8_t *from = to_page ? scratch : page;

        if (size == 2) {
            memcpy(to, from, 2);
        } else {
            memcpy(to, from, size);
        }
        page += row->bytes;
        scratch += size;
    }
}

/* Both sides are walked within a tile: else every element would miss the cache on one of them. */
static void move_tile(const page_run *run, const row_step *step, const row_tile *tile, bool to_page)
{
    uint32_t size = run->row->element_bytes;
    uint64_t tokens = kvarve_min_u64(TILE, tile->end - tile->token);
    uint64_t end = kvarve_min_u64(tile->element + TILE, step->elements);
    uint8_t *page = tile->rows + (tile->token - tile->page_first) * run->row->bytes;
    uint8_t *scratch = run->file->scratch + (tile->token - step->first) * size;

    for (uint64_t element = tile->element; element < end; element++) {
        move_element(run->row, page + (step->element + element) * size,
                     scratch + element * step->stretch, tokens, to_page);
    }
}

static void move_transposed(const page_run *run, const row_step *step, row_tile tile, bool to_page)
{
    uint64_t first = tile.token;

    for (tile.element = 0; tile.element < step->elements; tile.element += TILE) {
        for (tile.token = first; tile.token < tile.end; tile.token += TILE) {
            move_tile(run, step, &tile, to_page);
        }
    }
}

/* Move the tokens of one page that belong to a step, between the page and the scratch. */
static void move_page(const page_run *run, const row_step *step, const llama_page *page,
                      bool to_page)
{
    uint64_t from = kvarve_max_u64(page->first, step->first);
    uint64_t to = kvarve_min_u64(page->first + page->count, step->first + step->tokens);
    uint8_t *rows = (uint8_t *)page->bytes + page->count * run->row->offset;
    uint64_t bytes = run->row->bytes;

    if (from >= to) {
        return;
    }
    if (run->row->element_bytes == 0) {
        uint8_t *in_page = rows + (from - page->first) * bytes;
        uint8_t *in_scratch = run->file->scratch + (from - step->first) * bytes;

        memcpy(to_page ? in_page : in_scratch, to_page ? in_scratch : in_page,
               (size_t)((to - from) * bytes));
        return;
    }
    move_transposed(run, step,
                    (row_tile){.rows = rows, .page_first = page->first, .end = to, .token = from},
                    to_page);
}

static void move_run(const page_run *run, const row_step *step, bool to_page)
{
    for (size_t i = 0; i < run->count; i++) {
        move_page(run, step, &run->pages[i], to_page);
    }
}

static kvarve_status move_bytes(const llama_file *file, uint8_t *bytes, uint64_t size,
                                uint64_t offset, kvarve_error *err)
{
    KVARVE_ASSERT(size <= file->scratch_size);
    return file->input != NULL ? llama_file_read(file, bytes, (size_t)size, offset, err)
                               : llama_file_write(file, bytes, (size_t)size, offset, err);
}

/* The file's side of a step: one stretch, or one for each element. */
static kvarve_status move_file(const page_run *run, const row_step *step, kvarve_error *err)
{
    uint32_t size = run->row->element_bytes;
    uint64_t bytes = step->tokens * size;
    kvarve_status status = KVARVE_OK;

    if (size == 0) {
        return move_bytes(run->file, run->file->scratch, step->tokens * run->row->bytes,
                          run->row_at + step->first * run->row->bytes, err);
    }
    if (step->tokens == run->cell_count) {
        return move_bytes(run->file, run->file->scratch, step->elements * bytes,
                          run->row_at + step->element * bytes, err);
    }
    for (uint64_t i = 0; i < step->elements && status == KVARVE_OK; i++) {
        status = move_bytes(
            run->file, run->file->scratch + i * step->stretch, bytes,
            run->row_at + ((step->element + i) * run->cell_count + step->first) * size, err);
    }
    return status;
}

static kvarve_status move_step(const page_run *run, const row_step *step, kvarve_error *err)
{
    kvarve_status status;

    if (run->file->input == NULL) {
        move_run(run, step, false);
        return move_file(run, step, err);
    }
    status = move_file(run, step, err);
    if (status == KVARVE_OK) {
        move_run(run, step, true);
    }
    return status;
}

/* All elements of tokens [first, first + tokens), as many at a time as the scratch holds. */
static kvarve_status move_elements(const page_run *run, uint64_t first, uint64_t tokens,
                                   kvarve_error *err)
{
    uint64_t size = run->row->element_bytes;
    uint64_t elements = run->row->bytes / size;
    uint64_t stretch = tokens * size;
    uint64_t most;
    kvarve_status status = KVARVE_OK;

    /* All tokens of the file lie together there, and do so here. */
    if (tokens != run->cell_count && stretch + GAP <= run->file->scratch_size) {
        stretch += GAP;
    }
    most = run->file->scratch_size / stretch;

    for (uint64_t i = 0; i < elements && status == KVARVE_OK; i += most) {
        row_step step = {first, tokens, i, kvarve_min_u64(most, elements - i), stretch};

        status = move_step(run, &step, err);
    }
    return status;
}

static kvarve_status move_row(const page_run *run, kvarve_error *err)
{
    const llama_page *last = &run->pages[run->count - 1];
    uint64_t end = last->first + last->count;
    bool is_transposed = run->row->element_bytes != 0;
    uint64_t most =
        is_transposed ? TRANSPOSED_TOKENS_MAX : run->file->scratch_size / run->row->bytes;
    kvarve_status status = KVARVE_OK;

    for (uint64_t first = run->pages[0].first; first < end && status == KVARVE_OK; first += most) {
        uint64_t tokens = kvarve_min_u64(most, end - first);

        if (is_transposed) {
            status = move_elements(run, first, tokens, err);
        } else {
            status = move_step(run, &(row_step){.first = first, .tokens = tokens}, err);
        }
    }
    return status;
}

/* How many pages from the first on follow each other without a gap. */
static size_t run_length(const llama_page *pages, size_t count)
{
    size_t length = 1;

    while (length < count &&
           pages[length].first == pages[length - 1].first + pages[length - 1].count) {
        length++;
    }
    return length;
}

/* All rows of a run, K and V of every layer. */
static kvarve_status move_rows(page_run *run, const llama_attention *attention,
                               const llama_attention_place *place, kvarve_error *err)
{
    kvarve_status status = KVARVE_OK;

    for (uint32_t i = 0; i < 2 * attention->layer_count && status == KVARVE_OK; i++) {
        run->row = &attention->rows[i];
        run->row_at = place->rest_at + LLAMA_ROWS_HEAD + LLAMA_ROW_HEAD * (uint64_t)(i + 1) +
                      place->cell_count * run->row->offset;
        status = run->row->bytes > 0 ? move_row(run, err) : KVARVE_OK;
    }
    return status;
}

kvarve_status llama_move_pages(const llama_file *file, const llama_attention *attention,
                               const llama_attention_place *place, const llama_page *pages,
                               size_t count, kvarve_error *err)
{
    page_run run = {.file = file, .cell_count = place->cell_count};
    kvarve_status status = KVARVE_OK;

    for (size_t i = 0; i < count && status == KVARVE_OK; i += run.count) {
        run.pages = pages + i;
        run.count = run_length(pages + i, count - i);
        status = move_rows(&run, attention, place, err);
    }
    return status;
}
