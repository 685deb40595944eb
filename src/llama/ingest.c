/*
 * ingest.c - read a slot file: boundaries, verification, digests.
 *
 * One pass of llama_slot_verify gives the digests of full pages and of the endpoints that are kept;
 * only the partial last page of each boundary is read apart, because its bytes are not the
 * beginning of a full page's (rows lie layer by layer).
 *
 * Invariants
 *   I1  Digests are of bytes that were verified: what is stored can be put together again.
 *   I2  What a digest was taken of is read again when it is stored, and compared there: a file that
 *       changes meanwhile is refused.
 *
 * Threads    One. Ownership: close frees everything, also what a failed prepare left.
 */
#include "llama/ingest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fail.h"
#include "env/io_all.h"
#include "llama/ingest_private.h"

/* ---- The file ---- */

static int read_file(void *context, void *bytes, size_t size, uint64_t offset)
{
    llama_ingest *ingest = context;
    return io_read_all(ingest->io, ingest->fd, bytes, size, offset);
}

static kvarve_status open_file(llama_ingest *ingest, const char *path, kvarve_error *err)
{
    kvarve_file_stat stat;
    int rc = ingest->io->ops->open(ingest->io, path, KVARVE_OPEN_READ, 0, &ingest->fd);

    if (rc < 0) {
        ingest->fd = -1;
        return rc == -ENOENT ? kvarve_fail(err, KVARVE_INVALID, "there is no slot file %s", path)
                             : kvarve_fail_io(err, rc, "open slot file %s", path);
    }
    rc = ingest->io->ops->stat_fd(ingest->io, ingest->fd, &stat);
    if (rc < 0) {
        return kvarve_fail_io(err, rc, "look at slot file %s", path);
    }
    if (stat.kind != KVARVE_FILE_REGULAR) {
        return kvarve_fail(err, KVARVE_INVALID, "slot file %s is no regular file", path);
    }
    ingest->size = stat.size;
    const llama_input input = {.context = ingest, .read = read_file, .size = stat.size};
    return llama_slot_open(&input, &ingest->slot, err);
}

kvarve_status llama_ingest_open(kvarve_io *io, const char *path, llama_ingest **out,
                                kvarve_error *err)
{
    llama_ingest *ingest = kvarve_allocate(sizeof(*ingest));

    if (ingest == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "ingest");
    }
    ingest->io = io;
    ingest->fd = -1;
    const kvarve_status status = open_file(ingest, path, err);
    if (status != KVARVE_OK) {
        llama_ingest_close(ingest);
        return status;
    }
    *out = ingest;
    return KVARVE_OK;
}

void llama_ingest_close(llama_ingest *ingest)
{
    if (ingest == NULL) {
        return;
    }
    for (int part = 0; part < LLAMA_PARTS; part++) {
        kvarve_release(ingest->pages[part]);
        for (uint32_t i = 0; i < LLAMA_BOUNDARIES_MAX; i++) {
            kvarve_release(ingest->boundaries[i].parts[part]);
        }
    }
    kvarve_release(ingest->step);
    llama_slot_close(ingest->slot);
    if (ingest->fd >= 0) {
        ingest->io->ops->close(ingest->io, ingest->fd);
    }
    kvarve_release(ingest);
}

/* ---- Boundaries ---- */

static void add_boundary(llama_ingest *ingest, uint64_t tokens, uint32_t kind, uint32_t index)
{
    uint32_t at = ingest->boundary_count;

    for (uint32_t i = 0; i < ingest->boundary_count; i++) {
        if (ingest->boundaries[i].tokens == tokens) {
            return;
        }
    }
    while (at > 0 && ingest->boundaries[at - 1].tokens > tokens) {
        ingest->boundaries[at] = ingest->boundaries[at - 1];
        at--;
    }
    ingest->boundaries[at] = (ingest_boundary){.tokens = tokens, .kind = kind, .index = index};
    ingest->boundary_count++;
}

static void add_checkpoint(llama_ingest *ingest, uint32_t index)
{
    llama_endpoint endpoint;

    if (index != LLAMA_RESPONSE &&
        llama_slot_endpoint(ingest->slot, index, LLAMA_MAIN, &endpoint)) {
        add_boundary(ingest, endpoint.tokens, KVARVE_KIND_PROMPT, index);
    }
}

/* Where state has no endpoints it can be cut anywhere below its end. */
static void add_cut(llama_ingest *ingest, uint64_t tokens)
{
    if (tokens != LLAMA_NO_LIMIT && tokens > 0 && tokens < llama_slot_tokens(ingest->slot)) {
        add_boundary(ingest, tokens, KVARVE_KIND_PROMPT, LLAMA_RESPONSE);
    }
}

static void choose_boundaries(llama_ingest *ingest)
{
    const llama_ingest_options *options = &ingest->options;

    add_boundary(ingest, llama_slot_tokens(ingest->slot), KVARVE_KIND_RESPONSE, LLAMA_RESPONSE);
    if (ingest->whole_reason != NULL) {
        return;
    }
    if (llama_layout_has_endpoint(llama_slot_layout(ingest->slot, LLAMA_MAIN))) {
        const llama_choice choice =
            llama_slot_choose(ingest->slot, options->prompt_at, options->user_at);
        add_checkpoint(ingest, choice.prompt);
        add_checkpoint(ingest, choice.user);
        return;
    }
    add_cut(ingest, options->prompt_at == LLAMA_NO_LIMIT || options->prompt_at == 0
                        ? LLAMA_NO_LIMIT
                        : options->prompt_at - 1);
    add_cut(ingest, options->user_at);
}

uint64_t ingest_part_count(const llama_ingest *ingest, const ingest_boundary *boundary,
                           llama_part part)
{
    const uint32_t group = ingest->groups.endpoint[part];
    return group == LLAMA_GROUP_NONE ? 0
                                     : kvarve_divide_up(boundary->endpoint_bytes[part],
                                                        ingest->groups.group[group].page_bytes);
}

/* Sizes of a boundary's endpoints, whether its draft half is there, room for the digests. */
static kvarve_status measure_boundary(llama_ingest *ingest, ingest_boundary *boundary,
                                      kvarve_error *err)
{
    llama_endpoint endpoint;

    boundary->has_draft = llama_slot_layout(ingest->slot, LLAMA_DRAFT) != NULL;
    for (int part = 0; part < LLAMA_PARTS; part++) {
        if (ingest->groups.endpoint[part] == LLAMA_GROUP_NONE) {
            continue;
        }
        if (!llama_slot_endpoint(ingest->slot, boundary->index, (llama_part)part, &endpoint) ||
            endpoint.tokens != boundary->tokens) {
            boundary->has_draft =
                false; /* a checkpoint that was kept without its draft, or a cut */
            continue;
        }
        boundary->endpoint_bytes[part] = llama_endpoint_size(&endpoint);
        const uint64_t count = ingest_part_count(ingest, boundary, (llama_part)part);
        if (count > KVARVE_PARTS_MAX) {
            return kvarve_fail(err, KVARVE_UNSUPPORTED,
                               "the endpoint at token %" PRIu64 " has %" PRIu64
                               " bytes, more than %" PRIu64,
                               boundary->tokens, boundary->endpoint_bytes[part],
                               (uint64_t)KVARVE_PARTS_MAX * LLAMA_PART_BYTES);
        }
        boundary->parts[part] = kvarve_allocate_array((size_t)count, sizeof(page_digest));
        if (boundary->parts[part] == NULL) {
            return kvarve_fail(err, KVARVE_NO_MEMORY, "digests of an endpoint");
        }
    }
    return KVARVE_OK;
}

/* ---- Digests of what is cut up ---- */

static void report(llama_ingest *ingest, uint64_t bytes)
{
    ingest->done += bytes;
    if (ingest->options.progress != NULL) {
        ingest->options.progress(ingest->options.progress_context,
                                 kvarve_min_u64(ingest->done, ingest->size), ingest->size);
    }
}

static kvarve_status visit_page(void *context, llama_part part, const llama_page *page,
                                uint64_t size, kvarve_error *err)
{
    llama_ingest *ingest = context;

    (void)err;
    report(ingest, size);
    if (page->count == LLAMA_SPAN) {
        ingest->pages[part][page->first / LLAMA_SPAN] = page_digest_of(page->bytes, (size_t)size);
    }
    return KVARVE_OK;
}

/* Digest the parts of one kept endpoint as its bytes pass by. */
static void digest_parts(llama_ingest *ingest, ingest_boundary *boundary, llama_part part,
                         const uint8_t *bytes, size_t size, uint64_t offset)
{
    const uint64_t part_bytes = LLAMA_PART_BYTES;

    while (size > 0) {
        const uint64_t inside = offset % part_bytes;
        const size_t many = (size_t)kvarve_min_u64(size, part_bytes - inside);
        if (inside == 0) {
            page_digest_begin(ingest->part_state);
        }
        page_digest_update(ingest->part_state, bytes, many);
        offset += many;
        bytes += many;
        size -= many;
        if (offset % part_bytes == 0 || offset == boundary->endpoint_bytes[part]) {
            boundary->parts[part][(offset - 1) / part_bytes] = page_digest_end(ingest->part_state);
        }
    }
}

static kvarve_status visit_endpoint(void *context, llama_endpoint_name name, const void *bytes,
                                    size_t size, uint64_t offset, kvarve_error *err)
{
    llama_ingest *ingest = context;

    (void)err;
    report(ingest, size);
    for (uint32_t i = 0; i < ingest->boundary_count; i++) {
        ingest_boundary *boundary = &ingest->boundaries[i];
        if (boundary->index == name.index && boundary->parts[name.part] != NULL) {
            digest_parts(ingest, boundary, name.part, bytes, size, offset);
        }
    }
    return KVARVE_OK;
}

kvarve_status ingest_read_pages(llama_ingest *ingest, llama_part part, uint64_t first_page,
                                uint64_t count, uint64_t end, kvarve_error *err)
{
    const uint64_t page_bytes = ingest->groups.token_bytes[part] * LLAMA_SPAN;
    llama_page *pages = kvarve_allocate_array((size_t)count, sizeof(*pages));

    if (pages == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "a step of %" PRIu64 " pages", count);
    }
    for (uint64_t i = 0; i < count; i++) {
        pages[i].first = (first_page + i) * LLAMA_SPAN;
        pages[i].count = (uint32_t)kvarve_min_u64(LLAMA_SPAN, end - pages[i].first);
        pages[i].bytes = ingest->step + i * page_bytes;
    }
    const kvarve_status status =
        llama_slot_read_pages(ingest->slot, part, pages, (size_t)count, err);
    kvarve_release(pages);
    return status;
}

static kvarve_status digest_last_pages(llama_ingest *ingest, ingest_boundary *boundary,
                                       kvarve_error *err)
{
    const uint64_t rest = boundary->tokens % LLAMA_SPAN;
    kvarve_status status = KVARVE_OK;

    for (int part = 0; part < LLAMA_PARTS && rest > 0 && status == KVARVE_OK; part++) {
        if (ingest->groups.prefix[part] == LLAMA_GROUP_NONE) {
            continue;
        }
        status = ingest_read_pages(ingest, (llama_part)part, boundary->tokens / LLAMA_SPAN, 1,
                                   boundary->tokens, err);
        boundary->last_page[part] =
            page_digest_of(ingest->step, (size_t)(rest * ingest->groups.token_bytes[part]));
    }
    return status;
}

static kvarve_status make_step(llama_ingest *ingest, kvarve_error *err)
{
    const uint64_t wanted = ingest->options.step_bytes;
    uint64_t size = wanted != 0 ? wanted : LLAMA_STEP_BYTES;

    for (uint32_t i = 0; i < ingest->groups.count; i++) {
        size = kvarve_max_u64(size, ingest->groups.group[i].page_bytes);
    }
    if (ingest->step_size < size) {
        kvarve_release(ingest->step);
        ingest->step_size = (size_t)size;
        ingest->step = kvarve_allocate(ingest->step_size);
    }
    return ingest->step != NULL
               ? KVARVE_OK
               : kvarve_fail(err, KVARVE_NO_MEMORY, "a step of %" PRIu64 " bytes", size);
}

static kvarve_status prepare_cut(llama_ingest *ingest, kvarve_error *err)
{
    static const llama_visitor visits = {.page = visit_page, .endpoint = visit_endpoint};
    llama_visitor visitor = visits;
    page_digest_state part_state;
    kvarve_status status =
        llama_groups_of(llama_slot_layout(ingest->slot, LLAMA_MAIN),
                        llama_slot_layout(ingest->slot, LLAMA_DRAFT), &ingest->groups, err);

    visitor.context = ingest;
    ingest->part_state = &part_state;
    ingest->page_count = llama_slot_tokens(ingest->slot) / LLAMA_SPAN;
    if (status == KVARVE_OK) {
        status = make_step(ingest, err);
    }
    for (int part = 0; part < LLAMA_PARTS && status == KVARVE_OK; part++) {
        ingest->pages[part] =
            kvarve_allocate_array((size_t)ingest->page_count + 1, sizeof(page_digest));
        if (ingest->pages[part] == NULL) {
            status = kvarve_fail(err, KVARVE_NO_MEMORY, "digests of pages");
        }
    }
    for (uint32_t i = 0; i < ingest->boundary_count && status == KVARVE_OK; i++) {
        status = measure_boundary(ingest, &ingest->boundaries[i], err);
    }
    if (status == KVARVE_OK) {
        status = llama_slot_verify(ingest->slot, LLAMA_SPAN, &visitor, err); /* I1 */
    }
    for (uint32_t i = 0; i < ingest->boundary_count && status == KVARVE_OK; i++) {
        status = digest_last_pages(ingest, &ingest->boundaries[i], err);
    }
    ingest->part_state = NULL;
    return status;
}

/* ---- Digests of what is stored whole ---- */

kvarve_status ingest_read_endpoint(llama_ingest *ingest, const ingest_boundary *boundary,
                                   llama_part part, uint64_t offset, size_t size, kvarve_error *err)
{
    if (ingest->whole_reason == NULL) {
        const llama_endpoint_name name = {.index = boundary->index, .part = part};
        return llama_slot_read_endpoint(ingest->slot, name, offset, size, ingest->step, err);
    }
    const int rc = read_file(ingest, ingest->step, size, offset);
    return rc < 0 ? kvarve_fail_io(err, rc, "read the slot file") : KVARVE_OK;
}

static kvarve_status prepare_whole(llama_ingest *ingest, kvarve_error *err)
{
    ingest_boundary *boundary = &ingest->boundaries[0];
    const uint64_t count = llama_whole_count(ingest->size);

    llama_groups_whole(&ingest->groups);
    if (count > KVARVE_PARTS_MAX) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED,
                           "%" PRIu64 " bytes would be stored whole; at most %" PRIu64 " can be",
                           ingest->size, KVARVE_PARTS_MAX * LLAMA_WHOLE_PIECE);
    }
    boundary->endpoint_bytes[LLAMA_MAIN] = ingest->size;
    boundary->parts[LLAMA_MAIN] = kvarve_allocate_array((size_t)count, sizeof(page_digest));
    if (boundary->parts[LLAMA_MAIN] == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "digests of a file");
    }
    kvarve_status status = make_step(ingest, err);
    for (uint64_t i = 0; i < count && status == KVARVE_OK; i++) {
        const uint32_t size = llama_whole_piece(ingest->size, i);
        status =
            ingest_read_endpoint(ingest, boundary, LLAMA_MAIN, i * LLAMA_WHOLE_PIECE, size, err);
        boundary->parts[LLAMA_MAIN][i] = page_digest_of(ingest->step, size);
        report(ingest, size);
    }
    return status;
}

/* Forget what an attempt to cut it up left behind. */
static void become_whole(llama_ingest *ingest, const char *reason)
{
    (void)snprintf(ingest->whole_text, sizeof(ingest->whole_text), "%s", reason);
    ingest->whole_reason = ingest->whole_text;
    ingest->done = 0;
    for (int part = 0; part < LLAMA_PARTS; part++) {
        kvarve_release(ingest->pages[part]);
        ingest->pages[part] = NULL;
        for (uint32_t i = 0; i < ingest->boundary_count; i++) {
            kvarve_release(ingest->boundaries[i].parts[part]);
        }
    }
    memset(ingest->boundaries, 0, sizeof(ingest->boundaries));
    ingest->boundary_count = 0;
    choose_boundaries(ingest);
}

kvarve_status llama_ingest_prepare(llama_ingest *ingest, const llama_ingest_options *options,
                                   kvarve_error *err)
{
    kvarve_error refused = {0};
    const char *reason = llama_slot_whole_reason(ingest->slot);

    ingest->options = *options;
    if (reason != NULL || options->wants_whole) {
        become_whole(ingest, reason != NULL ? reason : "asked for");
        return prepare_whole(ingest, err);
    }
    choose_boundaries(ingest);
    const kvarve_status status = prepare_cut(ingest, &refused);
    if (status == KVARVE_OK) {
        return KVARVE_OK;
    }
    if (status != KVARVE_UNSUPPORTED) {
        return kvarve_fail(err, status, "%s", refused.text);
    }
    become_whole(ingest, refused.text);
    return prepare_whole(ingest, err);
}

/* ---- What is known of it ---- */

uint64_t llama_ingest_arena_bytes(const llama_ingest *ingest)
{
    uint64_t largest = 0;

    for (uint32_t i = 0; i < ingest->boundary_count; i++) {
        uint64_t bytes = 0;
        for (int part = 0; part < LLAMA_PARTS; part++) {
            bytes += ingest_part_count(ingest, &ingest->boundaries[i], (llama_part)part) *
                     LLAMA_PART_BYTES;
        }
        largest = kvarve_max_u64(largest, bytes);
    }
    /* A step of pages of each context beside the endpoints, and as much again in flight. */
    return largest + (uint64_t)3 * ingest->step_size;
}

const char *llama_ingest_whole_reason(const llama_ingest *ingest)
{
    return ingest->whole_reason;
}

uint64_t llama_ingest_tokens(const llama_ingest *ingest)
{
    return llama_slot_tokens(ingest->slot);
}

uint64_t llama_ingest_file_bytes(const llama_ingest *ingest)
{
    return ingest->size;
}

bool llama_ingest_has_draft(const llama_ingest *ingest)
{
    return llama_slot_layout(ingest->slot, LLAMA_DRAFT) != NULL;
}
