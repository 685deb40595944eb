/*
 * emit_write.c - the slot file of a leased boundary.
 *
 * The file's plan needs the heads of all endpoints first; then pages and endpoints are read from
 * the store in steps, verified there, and written to their places.
 *
 * Invariants
 *   I1  Of a context checkpoint only a boundary that was one can be made (the server noted its
 *       positions): others are passed over.
 *   I2  A shorter boundary that turns out to be damaged is left out; the file stays right.
 *
 * Threads: one. Ownership: a writing object lives on the stack of emit_write.
 */
#include "llama/emit_private.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fail.h"
#include "env/io_all.h"

/* One endpoint: where it is read, and its head. */
typedef struct stored_endpoint {
    kvarve_lease *lease; /* borrowed */
    llama_endpoint head;
    uint64_t size;
} stored_endpoint;

typedef struct writing {
    emit_run *emission;
    const llama_layout *layout[LLAMA_PARTS]; /* of the parts that are written */
    stored_endpoint end[LLAMA_PARTS];        /* of the boundary */
    stored_endpoint shorter[LLAMA_EMIT_CHECKPOINTS_MAX][LLAMA_PARTS];
    kvarve_lease *leases[LLAMA_EMIT_CHECKPOINTS_MAX]; /* owned; NULL: the boundary's own */
    llama_plan_checkpoint checkpoints[LLAMA_EMIT_CHECKPOINTS_MAX];
    uint32_t checkpoint_count;
    llama_writer *writer;
    kvarve_fd fd;
    uint8_t *step;
    size_t step_size;
    uint64_t done;
    uint64_t total;
} writing;

static int write_output(void *context, const void *bytes, size_t size, uint64_t offset)
{
    writing *to = context;
    const llama_emit_options *options = to->emission->options;

    to->done += size;
    if (options->progress != NULL) {
        options->progress(options->progress_context, to->done, to->total);
    }
    return io_write_all(options->io, to->fd, bytes, size, offset);
}

/* ---- Endpoints ---- */

/* Look at an endpoint: its size and head. KVARVE_MISS: it is not there, or damaged. */
static kvarve_status look_at(writing *to, kvarve_lease *lease, llama_part part,
                             stored_endpoint *out, kvarve_error *err)
{
    const llama_groups *groups = &to->emission->source.groups;
    const uint32_t group = groups->endpoint[part];
    uint64_t first = 0;
    uint64_t pages = 0;
    kvarve_status status = kvarve_lease_extent(lease, 0, group, &first, &pages, &out->size, err);

    if (status != KVARVE_OK) {
        return status;
    }
    if (out->size < LLAMA_ENDPOINT_HEAD) {
        return kvarve_fail(err, KVARVE_CORRUPT, "a stored endpoint has only %llu bytes",
                           (unsigned long long)out->size);
    }
    status = kvarve_lease_read(lease, 0, group, 0, to->step,
                               (size_t)kvarve_min_u64(out->size, LLAMA_PART_BYTES), err);
    if (status == KVARVE_OK) {
        status = llama_endpoint_decode(to->step, &out->head, err);
    }
    out->lease = lease;
    return status;
}

static kvarve_status look_at_end(writing *to, kvarve_error *err)
{
    kvarve_status status = KVARVE_OK;

    for (int part = 0; part < LLAMA_PARTS && status == KVARVE_OK; part++) {
        if (to->layout[part] != NULL && llama_layout_has_endpoint(to->layout[part])) {
            status = look_at(to, to->emission->source.lease, (llama_part)part, &to->end[part], err);
        }
    }
    return status;
}

static bool has_draft_endpoint(const writing *to)
{
    return to->layout[LLAMA_DRAFT] != NULL && llama_layout_has_endpoint(to->layout[LLAMA_DRAFT]);
}

/* A lease on a shorter boundary; NULL: it is gone by now. */
static kvarve_lease *lease_shorter(const writing *to, const kvarve_boundary *boundary)
{
    emit_run *emission = to->emission;
    kvarve_find_options find = emit_find_options(emission);
    kvarve_lease *lease = NULL;
    size_t count = 0;

    find.min_tokens = boundary->tokens;
    find.max_tokens = boundary->tokens;
    find.preferred_kind = boundary->kind;
    find.flags = KVARVE_FIND_NO_DERIVED | (has_draft_endpoint(to) ? KVARVE_FIND_NEED_OPTIONAL : 0);
    const kvarve_status status = kvarve_find(emission->source.space, emission->prefix, &find, NULL,
                                             0, &count, &lease, NULL, NULL);
    return status == KVARVE_OK ? lease : NULL;
}

/* Add a boundary as context checkpoint, if it was one. (I1, I2) True: the lease is used. */
static bool add_checkpoint(writing *to, kvarve_lease *lease)
{
    stored_endpoint *shorter = to->shorter[to->checkpoint_count];

    if (look_at(to, lease, LLAMA_MAIN, &shorter[LLAMA_MAIN], NULL) != KVARVE_OK ||
        !shorter[LLAMA_MAIN].head.is_checkpoint) {
        return false;
    }
    if (has_draft_endpoint(to) &&
        (!shorter[LLAMA_MAIN].head.has_draft ||
         look_at(to, lease, LLAMA_DRAFT, &shorter[LLAMA_DRAFT], NULL) != KVARVE_OK)) {
        return false;
    }
    to->checkpoints[to->checkpoint_count].main = shorter[LLAMA_MAIN].head;
    to->checkpoints[to->checkpoint_count].draft = shorter[LLAMA_DRAFT].head;
    to->checkpoint_count++;
    return true;
}

/* From the longest on: the boundary itself, then those below it. */
static void choose_checkpoints(writing *to)
{
    const emit_source *source = &to->emission->source;
    const uint32_t most =
        (uint32_t)kvarve_min_u64(to->emission->options->checkpoints, LLAMA_EMIT_CHECKPOINTS_MAX);
    uint64_t last = 0;

    if (!llama_layout_has_endpoint(to->layout[LLAMA_MAIN])) {
        return;
    }
    for (size_t i = 0; i < source->boundary_count && to->checkpoint_count < most; i++) {
        const kvarve_boundary *boundary = &source->boundaries[i];
        if (boundary->tokens == last || (boundary->flags & KVARVE_BOUNDARY_DERIVED) != 0) {
            continue;
        }
        kvarve_lease *own = i == 0 ? NULL : lease_shorter(to, boundary);
        if (i > 0 && own == NULL) {
            continue;
        }
        if (add_checkpoint(to, own == NULL ? source->lease : own)) {
            to->leases[to->checkpoint_count - 1] = own;
            last = boundary->tokens;
        } else {
            kvarve_lease_release(&own);
        }
    }
}

/* The plan wants them ascending. */
static void reverse_checkpoints(writing *to)
{
    for (uint32_t i = 0; i < to->checkpoint_count / 2; i++) {
        const uint32_t other = to->checkpoint_count - 1 - i;
        const llama_plan_checkpoint plan = to->checkpoints[i];
        kvarve_lease *lease = to->leases[i];
        stored_endpoint kept[LLAMA_PARTS];
        memcpy(kept, to->shorter[i], sizeof(kept));
        to->checkpoints[i] = to->checkpoints[other];
        to->leases[i] = to->leases[other];
        memcpy(to->shorter[i], to->shorter[other], sizeof(kept));
        to->checkpoints[other] = plan;
        to->leases[other] = lease;
        memcpy(to->shorter[other], kept, sizeof(kept));
    }
}

static kvarve_status write_endpoint(writing *to, const stored_endpoint *from,
                                    llama_endpoint_name name, kvarve_error *err)
{
    const uint32_t group = to->emission->source.groups.endpoint[name.part];
    const uint64_t most = to->step_size / LLAMA_PART_BYTES * LLAMA_PART_BYTES;
    kvarve_status status = KVARVE_OK;

    for (uint64_t at = 0; at < from->size && status == KVARVE_OK;) {
        const size_t many = (size_t)kvarve_min_u64(most, from->size - at);
        status =
            kvarve_lease_read(from->lease, 0, group, at / LLAMA_PART_BYTES, to->step, many, err);
        if (status == KVARVE_OK) {
            status = llama_writer_endpoint(to->writer, name, to->step, many, at, err);
        }
        at += many;
    }
    return status;
}

static kvarve_status write_endpoints(writing *to, llama_part part, kvarve_error *err)
{
    llama_endpoint_name name = {.index = LLAMA_RESPONSE, .part = part};
    kvarve_status status = KVARVE_OK;

    if (to->end[part].lease != NULL) {
        status = write_endpoint(to, &to->end[part], name, err);
    }
    for (uint32_t i = 0; i < to->checkpoint_count && status == KVARVE_OK; i++) {
        name.index = i;
        if (to->shorter[i][part].lease != NULL) {
            status = write_endpoint(to, &to->shorter[i][part], name, err);
        }
    }
    return status;
}

/* ---- Pages ---- */

/* Pages [first, first + count) of one context, of a boundary at `end`. */
static kvarve_status write_some_pages(writing *to, llama_part part, uint64_t first, uint64_t count,
                                      kvarve_error *err)
{
    const emit_source *source = &to->emission->source;
    const uint64_t token_bytes = source->groups.token_bytes[part];
    const uint64_t end = source->boundaries[0].tokens;
    llama_page *pages = kvarve_allocate_array((size_t)count, sizeof(*pages));
    uint64_t size = 0;

    if (pages == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "pages of a step");
    }
    for (uint64_t i = 0; i < count; i++) {
        pages[i].first = (first + i) * LLAMA_SPAN;
        pages[i].count = (uint32_t)kvarve_min_u64(LLAMA_SPAN, end - pages[i].first);
        pages[i].bytes = to->step + size;
        size += pages[i].count * token_bytes;
    }
    kvarve_status status = kvarve_lease_read(source->lease, 0, source->groups.prefix[part], first,
                                             to->step, (size_t)size, err);
    if (status == KVARVE_OK) {
        status = llama_writer_pages(to->writer, part, pages, (size_t)count, err);
    }
    kvarve_release(pages);
    return status;
}

static kvarve_status write_pages(writing *to, llama_part part, kvarve_error *err)
{
    const emit_source *source = &to->emission->source;
    const uint64_t pages = kvarve_divide_up(source->boundaries[0].tokens, LLAMA_SPAN);
    const uint64_t page_bytes = source->groups.token_bytes[part] * LLAMA_SPAN;
    kvarve_status status = KVARVE_OK;

    if (to->layout[part] == NULL || page_bytes == 0) {
        return KVARVE_OK;
    }
    const uint64_t most = to->step_size / page_bytes;
    for (uint64_t first = 0; first < pages && status == KVARVE_OK; first += most) {
        status = write_some_pages(to, part, first, kvarve_min_u64(most, pages - first), err);
    }
    return status;
}

/* ---- Files ---- */

static kvarve_status open_writer(writing *to, kvarve_error *err)
{
    const emit_run *emission = to->emission;
    const llama_output output = {.context = to, .write = write_output};
    const llama_plan plan = {
        .layout = {to->layout[LLAMA_MAIN], to->layout[LLAMA_DRAFT]},
        .tokens = kvarve_prefix_tokens(emission->prefix),
        .token_count = emission->source.boundaries[0].tokens,
        .endpoint = {to->end[LLAMA_MAIN].head, to->end[LLAMA_DRAFT].head},
        .checkpoints = to->checkpoints,
        .checkpoint_count = to->checkpoint_count,
        .stream_count = emission->options->stream_count,
        .stream_index = emission->options->stream_index,
        .sequence = emission->options->stream_index,
    };

    return llama_writer_open(&plan, &output, &to->writer, err);
}

static kvarve_status write_cut(writing *to, kvarve_error *err)
{
    const emit_source *source = &to->emission->source;
    const bool has_draft = source->layout[LLAMA_DRAFT] != NULL &&
                           (source->boundaries[0].flags & KVARVE_BOUNDARY_DRAFT) != 0;

    to->layout[LLAMA_MAIN] = source->layout[LLAMA_MAIN];
    to->layout[LLAMA_DRAFT] = has_draft ? source->layout[LLAMA_DRAFT] : NULL;
    kvarve_status status = look_at_end(to, err);
    if (status == KVARVE_OK) {
        choose_checkpoints(to);
        reverse_checkpoints(to);
        status = open_writer(to, err);
    }
    to->total = status == KVARVE_OK ? llama_writer_size(to->writer) : 0;
    for (int part = 0; part < LLAMA_PARTS && status == KVARVE_OK; part++) {
        status = write_endpoints(to, (llama_part)part, err);
        status = status == KVARVE_OK ? write_pages(to, (llama_part)part, err) : status;
    }
    if (status == KVARVE_OK) {
        status = llama_writer_finish(to->writer, err);
    }
    to->emission->result->bytes = to->total;
    to->emission->result->has_draft = has_draft;
    to->emission->result->checkpoints = to->checkpoint_count;
    return status;
}

/* A file that was stored whole comes back as it was. */
static kvarve_status write_whole(writing *to, kvarve_error *err)
{
    const emit_source *source = &to->emission->source;
    const uint64_t most = to->step_size / LLAMA_WHOLE_PIECE * LLAMA_WHOLE_PIECE;
    uint64_t first = 0;
    uint64_t pages = 0;
    kvarve_status status =
        kvarve_lease_extent(source->lease, 0, 0, &first, &pages, &to->total, err);

    for (uint64_t at = 0; at < to->total && status == KVARVE_OK;) {
        const size_t many = (size_t)kvarve_min_u64(most, to->total - at);
        status =
            kvarve_lease_read(source->lease, 0, 0, at / LLAMA_WHOLE_PIECE, to->step, many, err);
        if (status == KVARVE_OK) {
            const int rc = write_output(to, to->step, many, at);
            status = rc < 0 ? kvarve_fail_io(err, rc, "write the slot file") : KVARVE_OK;
        }
        at += many;
    }
    to->emission->result->bytes = to->total;
    return status;
}

static void end_writing(writing *to)
{
    llama_writer_close(to->writer);
    for (uint32_t i = 0; i < to->checkpoint_count; i++) {
        kvarve_lease_release(&to->leases[i]);
    }
    kvarve_release(to->step);
}

kvarve_status emit_write(emit_run *emission, kvarve_fd fd, kvarve_error *err)
{
    writing to = {.emission = emission, .fd = fd, .step_size = (size_t)LLAMA_STEP_BYTES};
    kvarve_status status;

    for (uint32_t i = 0; i < emission->source.groups.count; i++) {
        const size_t page = emission->source.groups.group[i].page_bytes;
        to.step_size = to.step_size > page ? to.step_size : page;
    }
    to.step = kvarve_allocate(to.step_size);
    if (to.step == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "a step of %zu bytes", to.step_size);
    }
    status = emission->source.is_whole ? write_whole(&to, err) : write_cut(&to, err);
    end_writing(&to);
    return status;
}
