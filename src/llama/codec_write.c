/*
 * codec_write.c - a slot file from tokens, layouts, pages and endpoints.
 *
 * Opening walks the file once in its order: what follows from the plan (heads, tokens, cells, the
 * rows' heads) is written, what pages and endpoints will bring is passed over, and the place of
 * each is noted. Pages and endpoints then come in any order.
 *
 * Invariants
 *   I1  Every byte is written once: derived bytes by the walk, the rest by the caller's contract;
 *       `written` equals `size` exactly when all has come.
 *   I2  Nothing is written from a plan whose parts contradict each other.
 *
 * Threads: one per writer. Ownership: layouts, tokens and checkpoints are borrowed from the plan.
 */
#include "llama/codec.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fail.h"
#include "llama/codec_private.h"

/* Derived bytes gather here before they are written. */
#define GATHER UINT64_C(65536)

/* Cells or tokens made at a time: 24 bytes each stay below GATHER. */
#define TOKENS_AT_ONCE 2048

struct llama_writer {
    llama_plan plan;
    llama_token_source source;
    llama_output output;
    llama_file file;
    uint64_t at;       /* where the walk stands; the gathered bytes are included */
    uint64_t gathered; /* bytes in `gather`, which end at `at` */
    uint64_t written;
    uint64_t size; /* set when the walk is done */
    llama_attention_place prefix[LLAMA_PARTS];
    llama_endpoint_place response[LLAMA_PARTS];
    llama_checkpoint_place *checkpoints; /* owned */
    uint32_t token_buffer[TOKENS_AT_ONCE];
    uint8_t gather[GATHER];
};

/* ---- Plans ---- */

static kvarve_status invalid(kvarve_error *err, const char *what)
{
    return kvarve_fail(err, KVARVE_INVALID, "plan of a slot file: %s", what);
}

/* Whether an endpoint has the shape that the layout gives it, at `tokens`. */
static bool endpoint_fits(const llama_layout *layout, const llama_endpoint *endpoint)
{
    llama_endpoint wanted;

    if (endpoint->tokens < 1 || endpoint->tokens > LLAMA_TOKENS_MAX) {
        return false;
    }
    wanted = llama_layout_endpoint(layout, endpoint->tokens, endpoint->window_cells);
    return endpoint->has_window == wanted.has_window &&
           endpoint->is_extended == wanted.is_extended &&
           endpoint->window_cells == wanted.window_cells &&
           endpoint->window_bytes == wanted.window_bytes &&
           endpoint->recurrent_size == wanted.recurrent_size;
}

static kvarve_status check_checkpoint(const llama_plan *plan, const llama_plan_checkpoint *item,
                                      kvarve_error *err)
{
    const llama_layout *draft = plan->layout[LLAMA_DRAFT];

    if (!item->main.is_checkpoint || item->main.tokens > plan->token_count ||
        !endpoint_fits(plan->layout[LLAMA_MAIN], &item->main)) {
        return invalid(err, "a checkpoint of another shape, or beyond the boundary");
    }
    if (item->main.has_draft && draft != NULL && llama_layout_has_endpoint(draft) &&
        (item->draft.tokens != item->main.tokens || !endpoint_fits(draft, &item->draft))) {
        return invalid(err, "a draft checkpoint of another shape or boundary");
    }
    return KVARVE_OK;
}

static kvarve_status check_plan(const llama_plan *plan, kvarve_error *err)
{
    if (plan->layout[LLAMA_MAIN] == NULL) {
        return invalid(err, "no layout");
    }
    if (plan->token_count < 1 || plan->token_count > LLAMA_TOKENS_MAX) {
        return invalid(err, "no tokens, or too many");
    }
    if (plan->stream_count < 1 || plan->stream_count > LLAMA_STREAMS_MAX ||
        plan->stream_index >= plan->stream_count) {
        return invalid(err, "no such stream");
    }
    for (int part = 0; part < LLAMA_PARTS; part++) {
        const llama_layout *layout = plan->layout[part];

        if (layout != NULL && llama_layout_has_endpoint(layout) &&
            (plan->endpoint[part].tokens != plan->token_count ||
             !endpoint_fits(layout, &plan->endpoint[part]))) {
            return invalid(err, "an endpoint of another shape or boundary");
        }
    }
    if (plan->checkpoint_count > LLAMA_CHECKPOINTS_MAX ||
        (plan->checkpoint_count > 0 && !llama_layout_has_endpoint(plan->layout[LLAMA_MAIN]))) {
        return invalid(err, "too many checkpoints, or of a layout without endpoints");
    }
    for (uint32_t i = 0; i < plan->checkpoint_count; i++) {
        kvarve_status status = check_checkpoint(plan, &plan->checkpoints[i], err);

        if (status != KVARVE_OK) {
            return status;
        }
    }
    return KVARVE_OK;
}

/* ---- Derived bytes ---- */

static kvarve_status flush(llama_writer *writer, kvarve_error *err)
{
    kvarve_status status = llama_file_write(&writer->file, writer->gather, (size_t)writer->gathered,
                                            writer->at - writer->gathered, err);

    if (status == KVARVE_OK) {
        writer->written += writer->gathered;
        writer->gathered = 0;
    }
    return status;
}

static kvarve_status add(llama_writer *writer, const uint8_t *bytes, size_t size, kvarve_error *err)
{
    kvarve_status status = KVARVE_OK;

    if (writer->gathered + size > GATHER) {
        status = flush(writer, err);
    }
    if (status == KVARVE_OK) {
        memcpy(writer->gather + writer->gathered, bytes, size);
        writer->gathered += size;
        writer->at += size;
    }
    return status;
}

/* Leave room for bytes that come later. */
static kvarve_status pass(llama_writer *writer, uint64_t size, kvarve_error *err)
{
    kvarve_status status = size > 0 ? flush(writer, err) : KVARVE_OK;

    if (status == KVARVE_OK) {
        writer->at += size;
    }
    return status;
}

static kvarve_status add_u32(llama_writer *writer, uint32_t value, kvarve_error *err)
{
    uint8_t bytes[4];

    llama_store32(bytes, value);
    return add(writer, bytes, sizeof(bytes), err);
}

static kvarve_status add_u64(llama_writer *writer, uint64_t value, kvarve_error *err)
{
    uint8_t bytes[8];

    llama_store64(bytes, value);
    return add(writer, bytes, sizeof(bytes), err);
}

static kvarve_status get_tokens(llama_writer *writer, uint64_t first, uint64_t count,
                                kvarve_error *err)
{
    if (writer->source.read != NULL) {
        return writer->source.read(writer->source.context, first, (size_t)count,
                                   writer->token_buffer, err);
    }
    memcpy(writer->token_buffer, writer->plan.tokens + first, (size_t)count * sizeof(uint32_t));
    return KVARVE_OK;
}

/* The tokens that are in the buffer. */
static kvarve_status add_tokens(llama_writer *writer, uint64_t count, kvarve_error *err)
{
    kvarve_status status = KVARVE_OK;

    for (uint64_t i = 0; i < count && status == KVARVE_OK; i++) {
        status = writer->token_buffer[i] > INT32_MAX
                     ? invalid(err, "a token of 2^31 or more")
                     : add_u32(writer, writer->token_buffer[i], err);
    }
    return status;
}

static kvarve_status add_payload(llama_writer *writer, kvarve_error *err)
{
    uint64_t tokens = writer->plan.token_count;
    uint8_t head[LLAMA_FILE_HEAD];
    uint64_t many;
    kvarve_status status;

    llama_store32(head, LLAMA_FILE_MAGIC);
    llama_store32(head + 4, LLAMA_FILE_VERSION);
    llama_store32(head + 8, (uint32_t)(tokens + 4));
    llama_store32(head + 12, UINT32_MAX);
    llama_store32(head + 16, 1);
    llama_store32(head + 20, (uint32_t)tokens);
    status = add(writer, head, sizeof(head), err);
    for (uint64_t first = 0; first < tokens && status == KVARVE_OK; first += many) {
        many = kvarve_min_u64(tokens - first, TOKENS_AT_ONCE);
        status = get_tokens(writer, first, many, err);
        if (status == KVARVE_OK) {
            status = add_tokens(writer, many, err);
        }
    }
    return status == KVARVE_OK ? add_u32(writer, 0, err) : status;
}

/* One cell of text at `position`. */
static size_t make_cell(const llama_writer *writer, bool is_extended, uint32_t position,
                        uint32_t token, uint8_t out[LLAMA_CELL_EXTENDED])
{
    size_t size = is_extended ? LLAMA_CELL_EXTENDED : LLAMA_CELL;

    llama_store32(out, position);
    llama_store32(out + 4, 1);
    if (is_extended) {
        llama_store32(out + 8, position);
        llama_store32(out + 12, position);
        llama_store32(out + 16, token);
    }
    llama_store32(out + size - 4, writer->plan.sequence);
    return size;
}

static kvarve_status add_cells(llama_writer *writer, bool is_extended, kvarve_error *err)
{
    uint64_t tokens = writer->plan.token_count;
    uint8_t cell[LLAMA_CELL_EXTENDED];
    uint64_t many;
    kvarve_status status = KVARVE_OK;

    for (uint64_t first = 0; first < tokens && status == KVARVE_OK; first += many) {
        many = kvarve_min_u64(tokens - first, TOKENS_AT_ONCE);
        status = get_tokens(writer, first, many, err);
        for (uint64_t i = 0; i < many && status == KVARVE_OK; i++) {
            size_t size = make_cell(writer, is_extended, (uint32_t)(first + i),
                                    writer->token_buffer[i], cell);

            status = add(writer, cell, size, err);
        }
    }
    return status;
}

static kvarve_status add_zeros(llama_writer *writer, uint32_t words, kvarve_error *err)
{
    kvarve_status status = KVARVE_OK;

    for (uint32_t i = 0; i < words && status == KVARVE_OK; i++) {
        status = add_u32(writer, 0, err);
    }
    return status;
}

/* Stream count, the empty streams before ours, and our cell count. */
static kvarve_status add_stream_head(llama_writer *writer, uint32_t cells, kvarve_error *err)
{
    kvarve_status status = add_u32(writer, writer->plan.stream_count, err);

    if (status == KVARVE_OK) {
        status = add_zeros(writer, writer->plan.stream_index, err);
    }
    return status == KVARVE_OK ? add_u32(writer, cells, err) : status;
}

static kvarve_status add_stream_tail(llama_writer *writer, kvarve_error *err)
{
    return add_zeros(writer, writer->plan.stream_count - writer->plan.stream_index - 1, err);
}

/* One row's head, and room for its data. */
static kvarve_status add_row(llama_writer *writer, const llama_row *row, kvarve_error *err)
{
    uint8_t head[LLAMA_ROW_HEAD];
    kvarve_status status;

    llama_store32(head, row->type);
    if (row->element_bytes == 0) {
        llama_store64(head + 4, row->bytes);
    } else {
        llama_store32(head + 4, row->element_bytes);
        llama_store32(head + 8, (uint32_t)(row->bytes / row->element_bytes));
    }
    status = add(writer, head, sizeof(head), err);
    return status == KVARVE_OK ? pass(writer, writer->plan.token_count * row->bytes, err) : status;
}

static kvarve_status add_prefix(llama_writer *writer, llama_part part, kvarve_error *err)
{
    const llama_attention *attention = &writer->plan.layout[part]->prefix;
    uint8_t head[LLAMA_ROWS_HEAD] = {0};
    kvarve_status status;

    if (!attention->is_present) {
        return KVARVE_OK;
    }
    status = add_stream_head(writer, (uint32_t)writer->plan.token_count, err);
    writer->prefix[part].cells_at = writer->at;
    writer->prefix[part].cell_count = writer->plan.token_count;
    if (status == KVARVE_OK) {
        status = add_cells(writer, attention->is_extended, err);
    }
    writer->prefix[part].rest_at = writer->at;
    llama_store32(head, attention->is_transposed);
    llama_store32(head + 4, attention->layer_count);
    if (status == KVARVE_OK) {
        status = add(writer, head, sizeof(head), err);
    }
    for (uint32_t i = 0; i < 2 * attention->layer_count; i++) {
        if (status == KVARVE_OK) {
            status = add_row(writer, &attention->rows[i], err);
        }
    }
    return status == KVARVE_OK ? add_stream_tail(writer, err) : status;
}

/* Room for an endpoint, and around its window what depends on the stream. */
static kvarve_status add_endpoint(llama_writer *writer, const llama_layout *layout,
                                  const llama_endpoint *endpoint, llama_endpoint_place *place,
                                  kvarve_error *err)
{
    kvarve_status status = KVARVE_OK;

    if (!llama_layout_has_endpoint(layout)) {
        return KVARVE_OK;
    }
    place->is_present = true;
    place->endpoint = *endpoint;
    if (endpoint->has_window) {
        status = add_stream_head(writer, endpoint->window_cells, err);
        place->cells_at = writer->at;
        place->rest_at = writer->at + endpoint->window_cells * llama_cell_bytes(&layout->window);
        if (status == KVARVE_OK) {
            status = pass(writer, place->rest_at - writer->at + endpoint->window_bytes, err);
        }
        if (status == KVARVE_OK) {
            status = add_stream_tail(writer, err);
        }
    }
    place->recurrent_at = writer->at;
    return status == KVARVE_OK ? pass(writer, endpoint->recurrent_size, err) : status;
}

/* Bytes of a partial state: what add_endpoint adds. */
static uint64_t partial_size(const llama_writer *writer, const llama_layout *layout,
                             const llama_endpoint *endpoint)
{
    uint64_t size = 0;

    if (!llama_layout_has_endpoint(layout)) {
        return 0;
    }
    if (endpoint->has_window) {
        size = 4 + 4 * (uint64_t)writer->plan.stream_count +
               endpoint->window_cells * llama_cell_bytes(&layout->window) + endpoint->window_bytes;
    }
    return size + endpoint->recurrent_size;
}

static uint64_t prefix_size(const llama_writer *writer, const llama_attention *prefix)
{
    uint64_t tokens = writer->plan.token_count;

    if (!prefix->is_present) {
        return 0;
    }
    return 4 + 4 * (uint64_t)writer->plan.stream_count + tokens * llama_cell_bytes(prefix) +
           llama_attention_rest(prefix, tokens);
}

static kvarve_status add_blob_head(llama_writer *writer, uint64_t size, kvarve_error *err)
{
    kvarve_status status = add_u64(writer, LLAMA_BLOB_HEAD + size, err);

    if (status == KVARVE_OK) {
        status = add_u32(writer, LLAMA_STATE_MAGIC, err);
    }
    return status == KVARVE_OK ? add_u32(writer, writer->plan.sequence, err) : status;
}

/* A length, a blob's head, and a partial state. */
static kvarve_status add_partial(llama_writer *writer, const llama_layout *layout,
                                 const llama_endpoint *endpoint, llama_endpoint_place *place,
                                 kvarve_error *err)
{
    kvarve_status status = add_blob_head(writer, partial_size(writer, layout, endpoint), err);

    return status == KVARVE_OK ? add_endpoint(writer, layout, endpoint, place, err) : status;
}

static kvarve_status add_checkpoint(llama_writer *writer, const llama_plan_checkpoint *item,
                                    llama_checkpoint_place *place, kvarve_error *err)
{
    const llama_layout *draft = writer->plan.layout[LLAMA_DRAFT];
    uint8_t head[16];
    kvarve_status status;

    llama_store64(head, item->main.tokens);
    llama_store32(head + 8, (uint32_t)item->main.position_min);
    llama_store32(head + 12, (uint32_t)item->main.position_max);
    status = add(writer, head, sizeof(head), err);
    if (status == KVARVE_OK) {
        status = add_partial(writer, writer->plan.layout[LLAMA_MAIN], &item->main,
                             &place->part[LLAMA_MAIN], err);
    }
    if (status == KVARVE_OK) {
        status = item->main.has_draft && draft != NULL
                     ? add_partial(writer, draft, &item->draft, &place->part[LLAMA_DRAFT], err)
                     : add_u64(writer, 0, err);
    }
    return status == KVARVE_OK ? add_u64(writer, 0, err) : status;
}

static kvarve_status add_checkpoints(llama_writer *writer, kvarve_error *err)
{
    uint32_t count = writer->plan.checkpoint_count;
    kvarve_status status;

    if (count == 0) {
        return KVARVE_OK;
    }
    status = add_u32(writer, LLAMA_CHECKPOINT_MAGIC, err);
    if (status == KVARVE_OK) {
        status = add_u32(writer, LLAMA_APPENDIX_VERSION, err);
    }
    if (status == KVARVE_OK) {
        status = add_u32(writer, count, err);
    }
    for (uint32_t i = 0; i < count && status == KVARVE_OK; i++) {
        status = add_checkpoint(writer, &writer->plan.checkpoints[i], &writer->checkpoints[i], err);
    }
    return status;
}

static kvarve_status add_state(llama_writer *writer, llama_part part, kvarve_error *err)
{
    kvarve_status status = add_prefix(writer, part, err);

    return status == KVARVE_OK
               ? add_endpoint(writer, writer->plan.layout[part], &writer->plan.endpoint[part],
                              &writer->response[part], err)
               : status;
}

static kvarve_status add_draft(llama_writer *writer, kvarve_error *err)
{
    const llama_layout *layout = writer->plan.layout[LLAMA_DRAFT];
    kvarve_status status;

    if (layout == NULL) {
        return KVARVE_OK;
    }
    status = add_u32(writer, LLAMA_DRAFT_MAGIC, err);
    if (status == KVARVE_OK) {
        status = add_u32(writer, LLAMA_APPENDIX_VERSION, err);
    }
    if (status == KVARVE_OK) {
        status =
            add_blob_head(writer,
                          prefix_size(writer, &layout->prefix) +
                              partial_size(writer, layout, &writer->plan.endpoint[LLAMA_DRAFT]),
                          err);
    }
    if (status == KVARVE_OK) {
        status = add_state(writer, LLAMA_DRAFT, err);
    }
    return status == KVARVE_OK ? add_u64(writer, 0, err) : status;
}

/* The whole file in its order. */
static kvarve_status walk(llama_writer *writer, kvarve_error *err)
{
    kvarve_status status = add_payload(writer, err);

    if (status == KVARVE_OK) {
        status = add_state(writer, LLAMA_MAIN, err);
    }
    if (status == KVARVE_OK) {
        status = add_checkpoints(writer, err);
    }
    if (status == KVARVE_OK) {
        status = add_draft(writer, err);
    }
    if (status == KVARVE_OK) {
        status = flush(writer, err);
    }
    writer->size = writer->at;
    return status;
}

/* ---- The door ---- */

static kvarve_status allocate_parts(llama_writer *writer)
{
    uint64_t largest = 0;

    for (int part = 0; part < LLAMA_PARTS; part++) {
        const llama_layout *layout = writer->plan.layout[part];

        if (layout != NULL) {
            largest =
                kvarve_max_u64(largest, writer->plan.token_count * layout->prefix.token_bytes);
        }
    }
    writer->file.scratch_size = llama_scratch_size(largest);
    writer->file.scratch = kvarve_allocate((size_t)writer->file.scratch_size);
    if (writer->file.scratch == NULL) {
        return KVARVE_NO_MEMORY;
    }
    if (writer->plan.checkpoint_count > 0) {
        writer->checkpoints =
            kvarve_allocate_array(writer->plan.checkpoint_count, sizeof(*writer->checkpoints));
        if (writer->checkpoints == NULL) {
            return KVARVE_NO_MEMORY;
        }
    }
    return KVARVE_OK;
}

kvarve_status llama_writer_open_from(const llama_plan *plan, const llama_token_source *source,
                                     const llama_output *output, llama_writer **out,
                                     kvarve_error *err)
{
    llama_writer *writer;
    kvarve_status status = check_plan(plan, err);

    if (status != KVARVE_OK) {
        return status;
    }
    writer = kvarve_allocate(sizeof(*writer));
    if (writer == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "no memory for a slot file");
    }
    writer->plan = *plan;
    writer->output = *output;
    writer->file.output = &writer->output;
    if (source != NULL) {
        writer->source = *source;
    }
    status = allocate_parts(writer);
    if (status != KVARVE_OK) {
        llama_writer_close(writer);
        return kvarve_fail(err, status, "no memory to write a slot file");
    }
    status = walk(writer, err);
    if (status != KVARVE_OK) {
        llama_writer_close(writer);
        return status;
    }
    *out = writer;
    return KVARVE_OK;
}

kvarve_status llama_writer_open(const llama_plan *plan, const llama_output *output,
                                llama_writer **out, kvarve_error *err)
{
    if (plan->tokens == NULL) {
        return invalid(err, "no tokens");
    }
    return llama_writer_open_from(plan, NULL, output, out, err);
}

uint64_t llama_writer_size(const llama_writer *writer)
{
    return writer->size;
}

kvarve_status llama_writer_pages(llama_writer *writer, llama_part part, const llama_page *pages,
                                 size_t count, kvarve_error *err)
{
    const llama_layout *layout = part < LLAMA_PARTS ? writer->plan.layout[part] : NULL;
    kvarve_status status;

    if (layout == NULL || layout->prefix.token_bytes == 0) {
        return invalid(err, "this context has no pages");
    }
    if (!llama_pages_are_valid(pages, count, writer->plan.token_count)) {
        return invalid(err, "pages do not ascend or leave its tokens");
    }
    status =
        llama_move_pages(&writer->file, &layout->prefix, &writer->prefix[part], pages, count, err);
    for (size_t i = 0; i < count && status == KVARVE_OK; i++) {
        writer->written += pages[i].count * layout->prefix.token_bytes;
    }
    return status;
}

kvarve_status llama_writer_endpoint(llama_writer *writer, llama_endpoint_name name,
                                    const void *bytes, size_t size, uint64_t offset,
                                    kvarve_error *err)
{
    const llama_endpoint_place *place = NULL;
    uint64_t end;

    if (name.part < LLAMA_PARTS && name.index == LLAMA_RESPONSE) {
        place = &writer->response[name.part];
    } else if (name.part < LLAMA_PARTS && name.index < writer->plan.checkpoint_count) {
        place = &writer->checkpoints[name.index].part[name.part];
    }
    if (place == NULL || !place->is_present) {
        return invalid(err, "no such endpoint");
    }
    end = llama_endpoint_size(&place->endpoint);
    if (offset > end || size > end - offset) {
        return invalid(err, "bytes beyond an endpoint");
    }
    return llama_endpoint_write(&writer->file, place, (llama_piece){offset, size}, bytes,
                                writer->plan.sequence, &writer->written, err);
}

kvarve_status llama_writer_finish(llama_writer *writer, kvarve_error *err)
{
    if (writer->written != writer->size) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "slot file: %" PRIu64 " of %" PRIu64 " bytes have come", writer->written,
                           writer->size);
    }
    return KVARVE_OK;
}

void llama_writer_close(llama_writer *writer)
{
    if (writer == NULL) {
        return;
    }
    kvarve_release(writer->checkpoints);
    kvarve_release(writer->file.scratch);
    kvarve_release(writer);
}
