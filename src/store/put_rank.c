/*
 * put_rank.c - what one rank does with a put: ask what to copy, copy, acknowledge.
 *
 * Invariants
 *   I1  A slot that is being copied into outside the lock is counted in put.copies; it is not given
 * away until copy_end. I2  A rank acks once for what it was asked; a page that it is asked for
 * later takes its ack back (put_take_over). I3  An ack means the pages that the rank was told of:
 * one that became COPY after it had asked is not taken for filled. I4  A slot whose address a rank
 * was told is not given away before that rank acked or failed, or the caller let go of the put.
 *
 * Threads: under the store's lock.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"
#include "store/put_private.h"

static kvarve_status check_rank(const store_put *put, uint32_t rank, kvarve_error *err)
{
    const uint32_t ranks = put->parts[0].space->rank_count;

    if (rank >= ranks) {
        return kvarve_fail(err, KVARVE_INVALID, "put: rank %u: 0 .. %u", rank, ranks - 1);
    }
    return KVARVE_OK;
}

static uint32_t public_group(const put_page *item)
{
    return item->put->name->public_of[item->space_index][item->page->group];
}

bool put_page_is_replaced(const put_page *item)
{
    return item->is_span && put_page_is_variant(item);
}

/* Does this rank look at the page? A replicated one is its copier's. */
static bool concerns(const put_page *item, uint32_t rank)
{
    return item->copier == rank && !put_page_is_replaced(item);
}

static bool is_to_copy(const put_page *item)
{
    return item->page->owner == item->put && item->page->state == PAGE_COPYING;
}

static void describe(const store_put *put, put_page *item, kvarve_page_plan *out)
{
    const store_page *page = item->page;

    *out = (kvarve_page_plan){
        .group = public_group(item),
        .action = KVARVE_PAGE_HAVE,
        .position = item->position,
        .first_token = item->first_token,
        .tokens = item->tokens,
        .size = page->size,
    };
    if (is_to_copy(item)) {
        out->action = KVARVE_PAGE_COPY;
        out->address = arena_address(put->store->arena, page->slot);
        item->is_offered = true; /* I3 */
        item->is_exposed = true; /* I4 */
    } else if (page->state == PAGE_COPYING || item->is_to_repair) {
        out->action = KVARVE_PAGE_WAIT;
    }
}

kvarve_status store_put_plan(store_put *put, uint32_t rank, kvarve_page_plan *out_pages, size_t max,
                             size_t *out_count, kvarve_error *err)
{
    size_t count = 0;
    const kvarve_status status = check_rank(put, rank, err);

    if (status != KVARVE_OK) {
        return status;
    }
    if (put->state == KVARVE_PUT_WAITING) {
        return KVARVE_BUSY;
    }
    for (size_t i = 0; i < put->page_count; i++) {
        if (!concerns(put->pages[i], rank)) {
            continue;
        }
        if (count < max) {
            describe(put, put->pages[i], &out_pages[count]);
        }
        count++;
    }
    *out_count = count;
    return KVARVE_OK;
}

uint64_t store_put_first_token(const store_put *put, uint32_t group)
{
    uint64_t first = UINT64_MAX;

    for (size_t i = 0; i < put->page_count; i++) {
        if (public_group(put->pages[i]) == group) {
            first = kvarve_min_u64(first, put->pages[i]->first_token);
        }
    }
    return first;
}

/* --- one page --- */

static put_page *find_item(store_put *put, uint32_t rank, uint32_t group, uint64_t position)
{
    /* Callers go through pages in order: go on where the last one was found. */
    for (size_t i = 0; i < put->page_count; i++) {
        const size_t at = (put->cursor + i) % put->page_count;
        put_page *item = put->pages[at];
        const bool is_rank = item->page->rank == RANK_ALL || item->page->rank == rank;

        if (is_rank && item->position == position && public_group(item) == group &&
            !put_page_is_replaced(item)) {
            put->cursor = at;
            return item;
        }
    }
    return NULL;
}

/* A full page of the stored history is not listed: nothing is to be done for it. */
static bool is_in_chain(const store_put *put, uint32_t group, uint64_t position)
{
    const uint32_t space_index = put->name->space_of[group];
    const store_span *chain = put->parts[space_index].chain;
    const kvarve_group *description = &put->name->groups[group];

    return chain != NULL && description->page_class == KVARVE_CLASS_PREFIX &&
           (position + 1) * description->span_tokens <= chain->tokens;
}

/* Bytes of a state of any size that stand in this part; 0: it has no such part. */
static uint64_t part_size(const store_put *put, uint32_t rank, uint32_t group, uint64_t position)
{
    const kvarve_group *description = &put->name->groups[group];
    const uint64_t page = description->page_bytes;
    const bool is_variable = (description->flags & KVARVE_GROUP_VARIABLE) != 0;
    const bool is_replicated = (description->flags & KVARVE_GROUP_REPLICATED) != 0;
    const uint64_t size =
        !is_variable ? page
        : put->sizes == NULL
            ? 0
            : put->sizes[(is_replicated ? 0 : (uint64_t)rank) * put->name->group_count + group];

    return position < kvarve_divide_up(size, page) ? kvarve_min_u64(size - position * page, page)
                                                   : 0;
}

/* A page that is not listed, since it is known: what it would be. False: there is none. */
static bool describe_known(const store_put *put, uint32_t rank, uint32_t group, uint64_t position,
                           store_target *out)
{
    const kvarve_group *description = &put->name->groups[group];
    const uint64_t span = description->span_tokens;
    uint64_t size;
    uint64_t tokens = 0;

    if (description->page_class > KVARVE_CLASS_WINDOW) {
        size = part_size(put, rank, group, position);
    } else if (position >= kvarve_divide_up(put->tokens, span)) {
        size = 0;
    } else {
        tokens = kvarve_min_u64(put->tokens - position * span, span);
        size = (description->flags & KVARVE_GROUP_ROWS) != 0
                   ? tokens * (description->page_bytes / span)
                   : description->page_bytes;
    }
    *out = (store_target){
        .group = group,
        .position = position,
        .size = (uint32_t)size,
        .first_token = position * span,
        .tokens = (uint32_t)tokens,
    };
    return size > 0;
}

static kvarve_status no_page(uint32_t rank, uint32_t group, uint64_t position, kvarve_error *err)
{
    return kvarve_fail(err, KVARVE_INVALID, "put: rank %u group %u has no page %llu", rank, group,
                       (unsigned long long)position);
}

kvarve_status store_put_copy_begin(store_put *put, uint32_t rank, uint32_t group, uint64_t position,
                                   store_target *out, kvarve_error *err)
{
    const kvarve_status status = check_rank(put, rank, err);
    put_page *item;

    if (status != KVARVE_OK) {
        return status;
    }
    if (put->state == KVARVE_PUT_ABORTED) {
        return KVARVE_MISS;
    }
    if (group >= put->name->group_count) {
        return kvarve_fail(err, KVARVE_INVALID, "put: group %u: 0 .. %u", group,
                           put->name->group_count - 1);
    }
    if (put->state >= KVARVE_PUT_READY || is_in_chain(put, group, position)) {
        return describe_known(put, rank, group, position, out)
                   ? KVARVE_OK
                   : no_page(rank, group, position, err);
    }
    item = find_item(put, rank, group, position);
    if (item == NULL) {
        return no_page(rank, group, position, err);
    }
    if (put->state == KVARVE_PUT_WAITING) {
        return KVARVE_BUSY;
    }
    *out = (store_target){.group = group,
                          .position = position,
                          .size = item->page->size,
                          .first_token = item->first_token,
                          .tokens = item->tokens};
    if (!is_to_copy(item) || !concerns(item, rank)) {
        return KVARVE_OK; /* known, another put's or another rank's: nothing to copy */
    }
    item->is_offered = true; /* I3 */
    out->page = item->page;
    out->address = arena_address(put->store->arena, item->page->slot);
    out->has_expected = item->page->space->is_exact;
    out->expected = item->page->digest;
    put->copies++; /* I1 */
    return KVARVE_OK;
}

/* The page was offered, and did not come. */
static void take_offer_back(store_put *put, const store_page *page)
{
    for (size_t i = 0; i < put->page_count; i++) {
        if (put->pages[i]->page == page) {
            put->pages[i]->is_offered = false;
        }
    }
}

void store_put_copy_end(store_put *put, const store_target *target, const page_digest *digest)
{
    store_machine *store = put->store;
    store_page *page = target->page;
    const bool was_over = put_is_over(put);

    if (page == NULL) {
        return;
    }
    KVARVE_ASSERT(put->copies > 0);
    put->copies--;
    if (!put_is_over(put) && page->owner == put && page->state == PAGE_COPYING && digest != NULL) {
        if (!page->space->is_exact) {
            page->digest = *digest;
        }
        page->has_digest = true;
    } else if (digest == NULL) {
        take_offer_back(put, page);
    }
    put_copies_ended(put);
    if (was_over) { /* the slot it was copied into is free now */
        put_give_room(store);
    }
}

/* --- ack --- */

static int compare_digests(const void *a, const void *b)
{
    const kvarve_page_digest *x = a;
    const kvarve_page_digest *y = b;

    if (x->group != y->group) {
        return x->group < y->group ? -1 : 1;
    }
    return (x->position > y->position) - (x->position < y->position);
}

/* The rank's digests, sorted; NULL without. */
static kvarve_status sort_digests(const kvarve_page_digest *digests, size_t count,
                                  kvarve_page_digest **out, kvarve_error *err)
{
    *out = NULL;
    if (count == 0) {
        return KVARVE_OK;
    }
    *out = kvarve_allocate_array(count, sizeof **out);
    if (*out == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "put: %zu digests", count);
    }
    memcpy(*out, digests, count * sizeof **out);
    qsort(*out, count, sizeof **out, compare_digests);
    for (size_t i = 1; i < count; i++) {
        if (compare_digests(&(*out)[i - 1], &(*out)[i]) == 0) {
            const kvarve_status status = put_fail_twice(&(*out)[i], err);

            kvarve_release(*out);
            *out = NULL;
            return status;
        }
    }
    return KVARVE_OK;
}

static const page_digest *digest_for(const put_page *item, const kvarve_page_digest *sorted,
                                     size_t count)
{
    const kvarve_page_digest wanted = {.group = public_group(item), .position = item->position};
    const kvarve_page_digest *found =
        sorted == NULL ? NULL : bsearch(&wanted, sorted, count, sizeof wanted, compare_digests);

    if (item->page->has_digest) {
        return &item->page->digest; /* taken while the library copied */
    }
    return found == NULL ? NULL : (const page_digest *)(const void *)found->digest;
}

/* All pages that this rank was asked for are filled. False: there are some that it has not heard of
 * yet, which another put left to it after it had asked: it is to ask again. */
static bool fill_pages(store_put *put, uint32_t rank, const kvarve_page_digest *sorted,
                       size_t count)
{
    bool is_all = true;

    put->walking++;
    for (size_t i = 0; i < put->page_count && !put_is_over(put); i++) {
        put_page *item = put->pages[i];

        if (!concerns(item, rank) || !is_to_copy(item)) {
            continue;
        }
        is_all = is_all && item->is_offered; /* I3 */
        if (item->is_offered) {
            const page_digest *digest = digest_for(item, sorted, count);
            const page_digest copy = digest == NULL ? (page_digest){{0}} : *digest;

            page_filled(item->page, digest == NULL ? NULL : &copy);
        }
    }
    put->walking--;
    return is_all;
}

kvarve_status store_put_ack(store_put *put, uint32_t rank, const kvarve_page_digest *digests,
                            size_t count, kvarve_error *err)
{
    store_machine *store = put->store;
    kvarve_page_digest *sorted;
    bool is_all;
    kvarve_status status = check_rank(put, rank, err);

    if (status != KVARVE_OK) {
        return status;
    }
    if (put_is_over(put) || put->state == KVARVE_PUT_READY) {
        put_rank_is_done(put, rank); /* I4 */
        return put->state == KVARVE_PUT_ABORTED ? KVARVE_MISS : KVARVE_OK;
    }
    if (put->state == KVARVE_PUT_WAITING) {
        return KVARVE_BUSY;
    }
    if (put->ranks[rank].is_acked) { /* I2 */
        return kvarve_fail(err, KVARVE_INVALID, "put: rank %u acked before", rank);
    }
    status = sort_digests(digests, count, &sorted, err);
    if (status != KVARVE_OK) {
        return status;
    }
    is_all = fill_pages(put, rank, sorted, count);
    kvarve_release(sorted);
    if (!put_is_over(put) && is_all) {
        put->ranks[rank].is_acked = true;
        put->acked_count++;
    }
    put_walk_ended(put);
    put_flush(store);
    return KVARVE_OK;
}

kvarve_status store_put_fail(store_put *put, uint32_t rank, kvarve_error *err)
{
    const kvarve_status status = check_rank(put, rank, err);

    if (status == KVARVE_OK) {
        put_rank_is_done(put, rank); /* I4 */
        store_put_abort(put, KVARVE_REFUSED_RANK_FAILED);
    }
    return status;
}

kvarve_status store_put_id(const store_put *put, uint8_t out_id[32], kvarve_error *err)
{
    if (!put->has_id) {
        return kvarve_fail(err, KVARVE_INVALID, "put: it has no id before it is ready");
    }
    memcpy(out_id, put->id.bytes, 32);
    return KVARVE_OK;
}
