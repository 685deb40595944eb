/*
 * ingest_put.c - put the boundaries of a prepared slot file.
 *
 * A boundary is first put in one piece: known content is answered PRESENT and costs nothing. What
 * does not fit the arena at once goes through an open put, extended a step at a time.
 *
 * Invariants
 *   I1  Only pages that the store asks for are read again and copied (kvarve_put_plan).
 *   I2  A put that was begun is released on every path; the store aborts what is not durable.
 *
 * Threads    One. Ownership: a puts object lives on the stack of llama_ingest_store.
 */
#include "llama/ingest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fail.h"
#include "kvarve/admin.h"
#include "llama/ingest_private.h"

typedef struct putting {
    llama_ingest *ingest;
    const ingest_boundary *boundary;
    kvarve_namespace *space;
    kvarve_prefix *prefix;
    uint32_t timeout_ms;
    kvarve_page_digest *digests; /* room for all of a boundary */
    kvarve_page_plan *plan;      /* room for all of a boundary */
    size_t plan_room;
    uint64_t sizes[4];
    kvarve_put *put;
} putting;

/* ---- Digests ---- */

static void add_digest(putting *to, uint32_t *count, uint32_t group, uint64_t position,
                       const page_digest *digest)
{
    kvarve_page_digest *entry = &to->digests[(*count)++];

    *entry = (kvarve_page_digest){.rank = 0, .group = group, .position = position};
    memcpy(entry->digest, digest->bytes, sizeof(entry->digest));
}

static bool has_part(const putting *to, llama_part part)
{
    return part == LLAMA_MAIN || to->boundary->has_draft;
}

/* Digests of full pages [first, end) of each context. */
static uint32_t add_pages(putting *to, uint32_t count, uint64_t first, uint64_t end)
{
    const llama_ingest *ingest = to->ingest;

    for (int part = 0; part < LLAMA_PARTS; part++) {
        if (ingest->groups.prefix[part] == LLAMA_GROUP_NONE || !has_part(to, (llama_part)part)) {
            continue;
        }
        for (uint64_t page = first; page < end; page++) {
            add_digest(to, &count, ingest->groups.prefix[part], page, &ingest->pages[part][page]);
        }
    }
    return count;
}

/* Those of the boundary itself: partial last pages and endpoints. */
static uint32_t add_own(putting *to, uint32_t count)
{
    const llama_ingest *ingest = to->ingest;
    const ingest_boundary *boundary = to->boundary;

    for (int part = 0; part < LLAMA_PARTS; part++) {
        if (!has_part(to, (llama_part)part)) {
            continue;
        }
        if (ingest->groups.prefix[part] != LLAMA_GROUP_NONE && boundary->tokens % LLAMA_SPAN > 0) {
            add_digest(to, &count, ingest->groups.prefix[part], boundary->tokens / LLAMA_SPAN,
                       &boundary->last_page[part]);
        }
        const uint64_t parts = ingest_part_count(ingest, boundary, (llama_part)part);
        for (uint64_t i = 0; i < parts; i++) {
            add_digest(to, &count, ingest->groups.endpoint[part], i, &boundary->parts[part][i]);
        }
    }
    return count;
}

/* ---- Bytes ---- */

static llama_part part_of_group(const llama_groups *groups, uint32_t group, bool *out_is_prefix)
{
    for (int part = 0; part < LLAMA_PARTS; part++) {
        *out_is_prefix = groups->prefix[part] == group;
        if (*out_is_prefix || groups->endpoint[part] == group) {
            return (llama_part)part;
        }
    }
    return LLAMA_MAIN;
}

/* Read and hand over `count` planned pages that follow each other in one group. */
static kvarve_status copy_run(putting *to, const kvarve_page_plan *run, size_t count,
                              kvarve_error *err)
{
    llama_ingest *ingest = to->ingest;
    bool is_prefix = false;
    const llama_part part = part_of_group(&ingest->groups, run->group, &is_prefix);
    const kvarve_page_plan *last = &run[count - 1];
    uint64_t size = 0;
    kvarve_status status;

    for (size_t i = 0; i < count; i++) {
        size += run[i].size;
    }
    if (is_prefix) {
        status = ingest_read_pages(ingest, part, run->position, count,
                                   last->first_token + last->tokens, err);
    } else {
        const uint64_t page_bytes = ingest->groups.group[run->group].page_bytes;
        status = ingest_read_endpoint(ingest, to->boundary, part, run->position * page_bytes,
                                      (size_t)size, err);
    }
    return status == KVARVE_OK ? kvarve_put_write(to->put, 0, run->group, run->position,
                                                  ingest->step, (size_t)size, err)
                               : status;
}

/* How many of the planned pages from `first` on are to be copied in one step. */
static size_t run_length(const putting *to, size_t first, size_t count)
{
    uint64_t size = 0;
    size_t length = 0;

    while (first + length < count) {
        const kvarve_page_plan *page = &to->plan[first + length];
        if (page->action != KVARVE_PAGE_COPY || page->group != to->plan[first].group ||
            page->position != to->plan[first].position + length ||
            size + page->size > to->ingest->step_size) {
            break;
        }
        size += page->size;
        length++;
    }
    return length;
}

static kvarve_status refused(const putting *to, kvarve_error *err)
{
    const uint32_t refusal = kvarve_put_refusal(to->put);
    const bool is_room = refusal == KVARVE_REFUSED_NO_ROOM_FLASH ||
                         refusal == KVARVE_REFUSED_NO_ROOM_RAM ||
                         refusal == KVARVE_REFUSED_TOO_LARGE || refusal == KVARVE_REFUSED_LIMIT;

    return kvarve_fail(err, is_room ? KVARVE_NO_SPACE : KVARVE_IO,
                       "the boundary at token %" PRIu64 " was not kept: %s", to->boundary->tokens,
                       kvarve_refusal_text(refusal));
}

/* Wait for a state; KVARVE_OK also when the put is over in another way, which the caller sees. */
static kvarve_status wait_for(putting *to, uint32_t state, kvarve_error *err)
{
    const kvarve_status status = kvarve_put_wait(to->put, state, to->timeout_ms, err);

    if (status == KVARVE_BUSY) {
        return kvarve_fail(err, KVARVE_IO,
                           "the boundary at token %" PRIu64 " was not kept: %u ms were not enough",
                           to->boundary->tokens, to->timeout_ms);
    }
    return status == KVARVE_MISS ? refused(to, err) : status;
}

/* Copy what the store asks for (I1) and acknowledge it. */
static kvarve_status fill(putting *to, kvarve_error *err)
{
    size_t count = 0;
    kvarve_status status = wait_for(to, KVARVE_PUT_STAGED, err);

    if (status == KVARVE_OK) {
        status = kvarve_put_plan(to->put, 0, to->plan, to->plan_room, &count, err);
    }
    count = count < to->plan_room ? count : to->plan_room;
    for (size_t i = 0; i < count && status == KVARVE_OK;) {
        const size_t length = run_length(to, i, count);
        if (length > 0) {
            status = copy_run(to, &to->plan[i], length, err);
        }
        i += length > 0 ? length : 1;
    }
    if (status == KVARVE_OK) {
        status = kvarve_put_ack(to->put, 0, NULL, 0, err);
    }
    return status == KVARVE_MISS ? refused(to, err) : status;
}

/* ---- Puts ---- */

static kvarve_put_options options_of(putting *to, uint32_t digest_count)
{
    kvarve_put_options options = KVARVE_PUT_OPTIONS_INIT;

    options.tokens = to->boundary->tokens;
    options.kind = to->boundary->kind;
    options.timeout_ms = to->timeout_ms;
    options.flags = to->boundary->has_draft ? 0 : KVARVE_PUT_NO_OPTIONAL;
    options.digests = to->digests;
    options.digest_count = digest_count;
    options.sizes = to->sizes;
    return options;
}

/* The rest of an open put that was begun: its full pages a step at a time, then its end. */
static kvarve_status extend_and_close(putting *to, kvarve_error *err)
{
    const llama_groups *groups = &to->ingest->groups;
    const uint64_t pages = to->boundary->tokens / LLAMA_SPAN;
    const uint64_t token_bytes = groups->token_bytes[LLAMA_MAIN] +
                                 (to->boundary->has_draft ? groups->token_bytes[LLAMA_DRAFT] : 0);
    const uint64_t most =
        kvarve_max_u64(1, to->ingest->step_size / kvarve_max_u64(1, token_bytes * LLAMA_SPAN));
    kvarve_status status = KVARVE_OK;

    for (uint64_t first = 0; token_bytes > 0 && first < pages && status == KVARVE_OK;) {
        const uint64_t end = kvarve_min_u64(pages, first + most);
        const uint32_t count = add_pages(to, 0, first, end);
        status = kvarve_put_extend(to->put, to->prefix, end * LLAMA_SPAN, to->digests, count, err);
        if (status == KVARVE_BUSY) {
            status = wait_for(to, KVARVE_PUT_STAGED, err);
            continue;
        }
        if (status == KVARVE_OK) {
            status = fill(to, err);
        }
        first = end;
    }
    if (status != KVARVE_OK) {
        return status;
    }
    const kvarve_put_options options = options_of(to, add_own(to, add_pages(to, 0, 0, pages)));
    do {
        status = kvarve_put_close(to->put, to->prefix, &options, err);
    } while (status == KVARVE_BUSY && wait_for(to, KVARVE_PUT_STAGED, err) == KVARVE_OK);
    return status;
}

static kvarve_status begin_open(putting *to, kvarve_error *err)
{
    kvarve_put_options options = options_of(to, 0);

    kvarve_put_release(&to->put);
    options.tokens = 0;
    options.digests = NULL;
    options.sizes = NULL;
    const kvarve_status status = kvarve_put_begin(to->space, to->prefix, &options, &to->put, err);
    return status == KVARVE_OK ? extend_and_close(to, err) : status;
}

/* Begin in one piece, or in steps where that does not fit; known content is over then. */
static kvarve_status begin(putting *to, kvarve_error *err)
{
    const uint64_t pages = to->boundary->tokens / LLAMA_SPAN;
    const kvarve_put_options options = options_of(to, add_own(to, add_pages(to, 0, 0, pages)));
    const kvarve_status status = kvarve_put_begin(to->space, to->prefix, &options, &to->put, err);

    if (status != KVARVE_OK || kvarve_put_status(to->put) != KVARVE_PUT_ABORTED) {
        return status;
    }
    return kvarve_put_refusal(to->put) == KVARVE_REFUSED_TOO_LARGE ? begin_open(to, err)
                                                                   : refused(to, err);
}

/* What can never fit the cap is not begun: an open put would fill it first, and wait. */
static kvarve_status check_cap(const putting *to, kvarve_store *store, kvarve_error *err)
{
    const llama_groups *groups = &to->ingest->groups;
    kvarve_statistics statistics = KVARVE_STATISTICS_INIT;
    uint64_t bytes = 0;

    for (int part = 0; part < LLAMA_PARTS; part++) {
        if (has_part(to, (llama_part)part)) {
            bytes += to->boundary->tokens * groups->token_bytes[part] +
                     to->boundary->endpoint_bytes[part];
        }
    }
    const kvarve_status status = kvarve_statistics_get(store, &statistics, err);
    if (status == KVARVE_OK && bytes > statistics.flash_bytes_max) {
        return kvarve_fail(err, KVARVE_NO_SPACE,
                           "the boundary at token %" PRIu64 " was not kept: it has %" PRIu64
                           " bytes, the store's cap is %" PRIu64,
                           to->boundary->tokens, bytes, statistics.flash_bytes_max);
    }
    return status;
}

static kvarve_status store_boundary(putting *to, llama_stored *out, kvarve_error *err)
{
    memset(to->sizes, 0, sizeof(to->sizes));
    for (int part = 0; part < LLAMA_PARTS; part++) {
        if (to->ingest->groups.endpoint[part] != LLAMA_GROUP_NONE) {
            to->sizes[to->ingest->groups.endpoint[part]] = to->boundary->endpoint_bytes[part];
        }
    }
    out->tokens = to->boundary->tokens;
    out->kind = to->boundary->kind;
    kvarve_status status = begin(to, err);
    if (status == KVARVE_OK && kvarve_put_status(to->put) != KVARVE_PUT_PRESENT) {
        status = fill(to, err);
        if (status == KVARVE_OK) {
            status = wait_for(to, KVARVE_PUT_DURABLE, err);
        }
    }
    if (status == KVARVE_OK) {
        status = kvarve_put_id(to->put, out->id, err);
    }
    if (to->put != NULL) {
        out->state = kvarve_put_status(to->put);
        out->refusal = kvarve_put_refusal(to->put);
    }
    kvarve_put_release(&to->put); /* I2 */
    return status;
}

/* ---- All of them ---- */

static kvarve_status make_prefix(putting *to, kvarve_error *err)
{
    const uint64_t total = llama_slot_tokens(to->ingest->slot);
    const size_t room = to->ingest->step_size / sizeof(uint32_t);
    uint32_t *tokens = kvarve_allocate_array(room, sizeof(uint32_t));
    kvarve_status status = tokens == NULL ? kvarve_fail(err, KVARVE_NO_MEMORY, "tokens")
                                          : kvarve_prefix_create(&to->prefix, err);

    for (uint64_t at = 0; at < total && status == KVARVE_OK;) {
        const size_t many = (size_t)kvarve_min_u64(room, total - at);
        status = llama_slot_read_tokens(to->ingest->slot, at, many, tokens, err);
        if (status == KVARVE_OK) {
            status = kvarve_prefix_append(to->prefix, tokens, many, err);
        }
        at += many;
    }
    kvarve_release(tokens);
    return status;
}

static kvarve_status open_space(putting *to, kvarve_store *store, const llama_identity *identity,
                                const char *salt, kvarve_error *err)
{
    llama_slot *slot = to->ingest->slot;
    llama_documents documents = {0};
    kvarve_status status =
        to->ingest->whole_reason != NULL
            ? llama_identity_whole(identity, &documents, err)
            : llama_identity_documents(identity, llama_slot_layout(slot, LLAMA_MAIN),
                                       llama_slot_layout(slot, LLAMA_DRAFT), &documents, err);
    if (status == KVARVE_OK) {
        status =
            llama_namespace_open(store, &documents, &to->ingest->groups, salt, &to->space, err);
    }
    llama_documents_free(&documents);
    return status;
}

static kvarve_status make_room(putting *to, kvarve_error *err)
{
    const llama_ingest *ingest = to->ingest;
    size_t room = 2 * ((size_t)ingest->page_count + 1);

    for (uint32_t i = 0; i < ingest->boundary_count; i++) {
        size_t parts = 0;
        for (int part = 0; part < LLAMA_PARTS; part++) {
            parts += (size_t)ingest_part_count(ingest, &ingest->boundaries[i], (llama_part)part);
        }
        room = room > parts + 2 * ((size_t)ingest->page_count + 1)
                   ? room
                   : parts + 2 * ((size_t)ingest->page_count + 1);
    }
    to->plan_room = room;
    to->digests = kvarve_allocate_array(room, sizeof(*to->digests));
    to->plan = kvarve_allocate_array(room, sizeof(*to->plan));
    return to->digests != NULL && to->plan != NULL
               ? KVARVE_OK
               : kvarve_fail(err, KVARVE_NO_MEMORY, "a plan of %zu pages", room);
}

kvarve_status llama_ingest_store(llama_ingest *ingest, kvarve_store *store,
                                 const llama_identity *identity, const char *salt,
                                 uint32_t timeout_ms, llama_ingest_result *out, kvarve_error *err)
{
    putting to = {.ingest = ingest, .timeout_ms = timeout_ms};
    kvarve_status status = make_room(&to, err);

    *out = (llama_ingest_result){0};
    if (status == KVARVE_OK) {
        status = make_prefix(&to, err);
    }
    if (status == KVARVE_OK) {
        status = open_space(&to, store, identity, salt, err);
    }
    if (status == KVARVE_OK) {
        (void)snprintf(out->namespace_text, sizeof(out->namespace_text), "%s",
                       kvarve_namespace_text(to.space));
    }
    for (uint32_t i = 0; i < ingest->boundary_count && status == KVARVE_OK; i++) {
        to.boundary = &ingest->boundaries[i];
        status = check_cap(&to, store, err);
        if (status == KVARVE_OK) {
            status = store_boundary(&to, &out->boundaries[i], err);
            out->count = i + 1;
        }
    }
    kvarve_namespace_release(&to.space);
    kvarve_prefix_free(to.prefix);
    kvarve_release(to.plan);
    kvarve_release(to.digests);
    return status;
}
