/*
 * put_list.c - which pages a boundary consists of, and which of them are stored already.
 *
 * For one space of a put: the longest chain of spans that is stored, then a put_page for each page
 * after it, and for the checkpoint's own pages. Looking a page up decides its fate: known (held),
 * being copied by another put (watched), or to be copied by this one.
 *
 * Order of put_pages: by end, group, rank for the tree; then own pages by group, position, rank.
 * publish relies on it.
 */
#include "store/put_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"

#define PUT_PAGES_MAX (UINT32_C(1) << 22)

typedef struct listing {
    store_put *put;
    put_part *part;
    const kvarve_prefix *prefix;
    uint8_t space_index;
    uint64_t from;     /* ends up to this one are listed already (open puts) */
    uint64_t boundary; /* N; ends up to here */
    bool has_own;      /* the checkpoint's own pages too */
    kvarve_error *err;
    uint64_t state_bytes; /* of the VARIABLE state listed now */
} listing;

static uint32_t public_rank(uint16_t rank)
{
    return rank == RANK_ALL ? KVARVE_RANK_ALL : rank;
}

/* --- keys --- */

/* Does the page of this group that ends at `end` name how many draft rows are valid? Then it is the
 * checkpoint's own, and no part of the tree. */
static bool has_draft_variant(const kvarve_group *group, const store_put *put, uint64_t end,
                              uint64_t boundary)
{
    return (group->flags & KVARVE_GROUP_DRAFT_ROWS) != 0 && end == boundary &&
           put->draft_tokens < end && !put->is_open;
}

static kvarve_status key_at(const listing *list, uint64_t end, uint32_t group, uint32_t part,
                            page_key *out)
{
    const kvarve_group *description = &list->part->space->groups[group];
    uint8_t digest[KVARVE_DIGEST_SIZE];
    page_discriminator what = {.class = (page_class)description->page_class,
                               .group = group,
                               .part = part,
                               .state_bytes = list->state_bytes};
    kvarve_status status = kvarve_prefix_digest(list->prefix, end, digest, list->err);

    if (status != KVARVE_OK) {
        return status;
    }
    if (description->page_class == KVARVE_CLASS_AUXILIARY) {
        what.draft_tokens = list->put->draft_tokens;
        what.kind = (checkpoint_kind)list->put->kind;
    } else if (has_draft_variant(description, list->put, end, list->boundary)) {
        what.has_draft_rows = true;
        what.draft_tokens = list->put->draft_tokens;
    }
    *out = page_key_of(&list->part->space->name, digest, end, &what);
    return KVARVE_OK;
}

/* --- page ends --- */

static bool is_prefix(const kvarve_group *group)
{
    return group->page_class == KVARVE_CLASS_PREFIX;
}

/* The next page end after `at` of any prefix group, or UINT64_MAX. */
uint64_t space_next_end(const store_space *space, uint64_t at)
{
    uint64_t next = UINT64_MAX;

    for (uint32_t g = 0; g < space->group_count; g++) {
        if (is_prefix(&space->groups[g])) {
            const uint64_t span = space->groups[g].span_tokens;

            next = kvarve_min_u64(next, (at / span + 1) * span);
        }
    }
    return next;
}

/* The last page end at or before `at` of any prefix group; 0: none. */
uint64_t space_last_end(const store_space *space, uint64_t at)
{
    uint64_t last = 0;

    for (uint32_t g = 0; g < space->group_count; g++) {
        if (is_prefix(&space->groups[g])) {
            const uint64_t span = space->groups[g].span_tokens;

            last = kvarve_max_u64(last, at / span * span);
        }
    }
    return last;
}

/* The group whose page names the span that ends at `end`: the first prefix group with a page end
 * there. */
uint32_t space_naming_group(const store_space *space, uint64_t end)
{
    for (uint32_t g = 0; g < space->group_count; g++) {
        if (is_prefix(&space->groups[g]) && end % space->groups[g].span_tokens == 0) {
            return g;
        }
    }
    KVARVE_UNREACHABLE();
}

bool span_is_whole(const store_span *span)
{
    const store_space *space = span->space;
    uint32_t count = 0;

    for (uint32_t g = 0; g < space->group_count; g++) {
        if (is_prefix(&space->groups[g]) && span->tokens % space->groups[g].span_tokens == 0) {
            count +=
                (space->groups[g].flags & KVARVE_GROUP_REPLICATED) != 0 ? 1 : space->rank_count;
        }
    }
    return span->page_count == count;
}

store_span *span_find_whole(const store_space *space, const page_key *first_key)
{
    store_span *found = NULL;

    do {
        found = catalog_find_span(space, first_key, found);
    } while (found != NULL && !span_is_whole(found));
    return found;
}

bool put_page_is_variant(const put_page *item)
{
    const store_put *put = item->put;

    return has_draft_variant(&item->page->space->groups[item->page->group], put, item->end,
                             put->tokens);
}

/* --- the stored chain --- */

/* Ends of the chain are up to this one: at a boundary that names its draft rows the tree goes on
 * without those pages, and what is stored there may have them. */
static uint64_t chain_limit(const listing *list)
{
    const store_space *space = list->part->space;

    for (uint32_t g = 0; g < space->group_count; g++) {
        if (is_prefix(&space->groups[g]) && list->boundary % space->groups[g].span_tokens == 0 &&
            has_draft_variant(&space->groups[g], list->put, list->boundary, list->boundary)) {
            return list->boundary - 1;
        }
    }
    return list->boundary;
}

static bool span_matches(const store_put *put, uint8_t space_index, const store_span *candidate)
{
    for (uint32_t i = 0; i < candidate->page_count; i++) {
        const store_page *page = candidate->pages[i];
        const kvarve_group *group = &put->parts[space_index].space->groups[page->group];
        const uint32_t public_group = put->name->public_of[space_index][page->group];
        const page_digest *announced = put_find_digest(put, public_rank(page->rank), public_group,
                                                       page->tokens / group->span_tokens - 1);

        if (announced == NULL || !page_digest_is_equal(announced, &page->digest)) {
            return false;
        }
    }
    return true;
}

/* Exact: from the root on, the child whose bytes are the announced ones. */
static kvarve_status walk_chain(listing *list)
{
    const store_space *space = list->part->space;
    const uint64_t limit = chain_limit(list);
    uint64_t end = list->part->chain == NULL ? 0 : list->part->chain->tokens;

    for (end = space_next_end(space, end); end <= limit; end = space_next_end(space, end)) {
        page_key key;
        store_span *candidate = NULL;
        const kvarve_status status = key_at(list, end, space_naming_group(space, end), 0, &key);

        if (status != KVARVE_OK) {
            return status;
        }
        do {
            candidate = catalog_find_span(space, &key, candidate);
        } while (candidate != NULL &&
                 (candidate->parent != list->part->chain || !span_is_whole(candidate) ||
                  !span_matches(list->put, list->space_index, candidate)));
        if (candidate == NULL) {
            return KVARVE_OK;
        }
        list->part->chain = candidate;
    }
    return KVARVE_OK;
}

/* Not exact: a stored span implies those before it, so halve. `from` is the last known end. */
static kvarve_status search_chain(listing *list)
{
    const store_space *space = list->part->space;
    uint64_t low = 0;                      /* an end that is stored, or 0 */
    uint64_t high = chain_limit(list) + 1; /* nothing stored at or after */

    for (;;) {
        uint64_t middle = space_last_end(space, low + (high - low) / 2);
        page_key key;
        store_span *found;
        kvarve_status status;

        if (middle <= low) {
            middle = space_next_end(space, low);
        }
        if (middle >= high) {
            return KVARVE_OK;
        }
        status = key_at(list, middle, space_naming_group(space, middle), 0, &key);
        if (status != KVARVE_OK) {
            return status;
        }
        found = span_find_whole(space, &key);
        if (found != NULL) {
            list->part->chain = found;
            low = middle;
        } else {
            high = middle;
        }
    }
}

/* The history that an open put found before its boundary was known may go too far, as chain_limit
 * says: its end is listed again. True: *from is where the list begins now. */
static bool shorten_beyond_limit(const listing *list, uint64_t *from)
{
    put_part *part = list->part;
    store_span *shorter = part->chain;
    const uint64_t limit = chain_limit(list);

    while (shorter != NULL && shorter->tokens > limit) {
        shorter = shorter->parent;
    }
    if (shorter == part->chain) {
        return false;
    }
    if (shorter != NULL) {
        span_hold(shorter);
    }
    span_unhold(part->chain);
    part->chain = shorter;
    *from = shorter == NULL ? 0 : shorter->tokens;
    return true;
}

/* A damaged page in the chain has to be written again: the chain ends before it. */
static void shorten_damaged(put_part *part)
{
    uint32_t group = 0;

    while (part->chain != NULL && span_is_damaged(part->chain, &group)) {
        part->chain = part->chain->parent;
    }
}

/* Does a commit that names this span's pages have to wait for one of them? */
static bool has_unsettled_page(const store_span *span)
{
    for (uint32_t i = 0; i < span->page_count; i++) {
        const store_page *page = span->pages[i];

        if (page->flash != FLASH_WRITTEN ||
            (span->batch != NULL &&
             (page->batch == NULL || page->id == 0 || page->pending_row != NULL))) {
            return true;
        }
    }
    return false;
}

/* Pages that another put has sealed and that are not on flash yet are this put's to wait for, too:
 * the chain ends before them, they are listed, and found. Spans that are recorded have none, unless
 * a page was repaired. */
static void shorten_unsettled(const store_machine *store, put_part *part)
{
    store_span *first = NULL;

    for (store_span *at = part->chain; at != NULL && (at->batch == NULL || store->has_repaired);
         at = at->parent) {
        if (has_unsettled_page(at)) {
            first = at;
        }
    }
    if (first != NULL) {
        part->chain = first->parent;
    }
}

/* --- put_pages --- */

static put_page *new_item(store_put *put, kvarve_error *err)
{
    put_page *item;

    if (put->page_count == put->page_room) {
        const size_t room = put->page_room == 0 ? 64 : 2 * put->page_room;
        put_page **larger =
            room > PUT_PAGES_MAX ? NULL : kvarve_reallocate(put->pages, room * sizeof *larger);

        if (larger == NULL) {
            (void)kvarve_fail(err, KVARVE_NO_MEMORY, "put: a list of %zu pages", room);
            return NULL;
        }
        put->pages = larger;
        put->page_room = room;
    }
    item = kvarve_allocate(sizeof *item);
    if (item == NULL) {
        (void)kvarve_fail(err, KVARVE_NO_MEMORY, "put: page %zu", put->page_count);
        return NULL;
    }
    item->put = put;
    kvarve_list_init(&item->watch);
    put->pages[put->page_count++] = item;
    return item;
}

/* What is to be listed: one page, for each rank. */
typedef struct wanted_page {
    uint32_t group;
    uint32_t part;
    uint64_t position;
    uint64_t first_token;
    uint64_t end;
    uint32_t tokens;
    uint32_t size;
    bool is_span;
    bool is_partial;
    const page_key *key;
} wanted_page;

/* What a new page is. */
static void set_shape(store_page *page, const wanted_page *wanted)
{
    page->size = wanted->size;
    page->tokens = (uint32_t)wanted->end;
    page->part = (uint16_t)wanted->part;
    page->group = (uint8_t)wanted->group;
    page->is_partial = wanted->is_partial;
}

static kvarve_status list_for_rank(listing *list, const wanted_page *wanted, uint16_t rank)
{
    store_put *put = list->put;
    store_space *space = list->part->space;
    const uint32_t public_group = put->name->public_of[list->space_index][wanted->group];
    const page_digest *exact = NULL;
    put_page *item;
    store_page *page;

    if (space->is_exact) {
        exact = put_find_digest(put, public_rank(rank), public_group, wanted->position);
        if (exact == NULL) {
            return kvarve_fail(
                list->err, KVARVE_INVALID,
                "put: no digest for rank %d group %u position %llu of an exact namespace",
                rank == RANK_ALL ? -1 : (int)rank, public_group,
                (unsigned long long)wanted->position);
        }
    }
    item = new_item(put, list->err);
    if (item == NULL) {
        return KVARVE_NO_MEMORY;
    }
    page = catalog_find_page(space, wanted->key, rank, exact);
    if (page == NULL) {
        if (exact != NULL && catalog_find_page(space, wanted->key, rank, NULL) != NULL) {
            put->store->statistics.exact_variants++;
        }
        page = catalog_add_page(space, wanted->key, rank);
        if (page == NULL) {
            put->page_count--;
            kvarve_release(item);
            return kvarve_fail(list->err, KVARVE_NO_MEMORY, "put: a page");
        }
        set_shape(page, wanted);
        put_claim_page(put, page);
        if (exact != NULL) {
            page->digest = *exact; /* part of its identity from now on; checked when it is filled */
        }
    } else if (page->is_damaged && page->owner == NULL && page->io_count == 0) {
        put_claim_damaged(put, page);
    }
    page_hold(page);
    item->page = page;
    item->space_index = list->space_index;
    item->position = wanted->position;
    item->first_token = wanted->first_token;
    item->tokens = wanted->tokens;
    item->end = (uint32_t)wanted->end;
    item->is_span = wanted->is_span;
    item->copier = rank == RANK_ALL ? (uint32_t)(wanted->position % space->rank_count) : rank;
    put_watch(item);
    if (item->is_sealed && page->is_damaged) { /* it is being read */
        put_await_repair(item);
    }
    return KVARVE_OK;
}

static kvarve_status list_page(listing *list, const wanted_page *wanted)
{
    const store_space *space = list->part->space;
    const bool is_replicated = (space->groups[wanted->group].flags & KVARVE_GROUP_REPLICATED) != 0;
    kvarve_status status = KVARVE_OK;

    if (is_replicated) {
        return list_for_rank(list, wanted, RANK_ALL);
    }
    for (uint32_t rank = 0; rank < space->rank_count && status == KVARVE_OK; rank++) {
        status = list_for_rank(list, wanted, (uint16_t)rank);
    }
    return status;
}

/* The page of a token group that ends at `end`, which began at a multiple of its span. */
static wanted_page token_page(const kvarve_group *description, uint32_t group, uint64_t end)
{
    const uint64_t span = description->span_tokens;
    const uint64_t position = (end - 1) / span;
    const uint32_t tokens = (uint32_t)(end - position * span);
    const bool is_short = tokens < span && (description->flags & KVARVE_GROUP_ROWS) != 0;

    return (wanted_page){
        .group = group,
        .position = position,
        .first_token = position * span,
        .end = end,
        .tokens = tokens,
        .is_partial = tokens < span,
        .size = is_short ? (uint32_t)((uint64_t)tokens * (description->page_bytes / span))
                         : description->page_bytes,
    };
}

static kvarve_status list_token_page(listing *list, uint32_t group, uint64_t end, bool is_span)
{
    wanted_page wanted = token_page(&list->part->space->groups[group], group, end);
    page_key key;
    kvarve_status status = key_at(list, end, group, 0, &key);

    wanted.is_span = is_span;
    wanted.key = &key;
    return status == KVARVE_OK ? list_page(list, &wanted) : status;
}

/* The pages of the tree that end at `end`. */
static kvarve_status list_end(listing *list, uint64_t end)
{
    const store_space *space = list->part->space;
    kvarve_status status = KVARVE_OK;

    for (uint32_t g = 0; g < space->group_count && status == KVARVE_OK; g++) {
        const kvarve_group *group = &space->groups[g];

        if (is_prefix(group) && end % group->span_tokens == 0 &&
            !has_draft_variant(group, list->put, end, list->boundary)) {
            status = list_token_page(list, g, end, true);
        }
    }
    return status;
}

/* Prefix groups after the chain: every page end up to the boundary. */
static kvarve_status list_tree(listing *list)
{
    const store_space *space = list->part->space;
    uint64_t end =
        kvarve_max_u64(list->from, list->part->chain == NULL ? 0 : list->part->chain->tokens);
    kvarve_status status = KVARVE_OK;

    for (end = space_next_end(space, end); end <= list->boundary && status == KVARVE_OK;
         end = space_next_end(space, end)) {
        status = list_end(list, end);
    }
    return status;
}

static kvarve_status list_window(listing *list, uint32_t group)
{
    const kvarve_group *description = &list->part->space->groups[group];
    const uint64_t span = description->span_tokens;
    const uint64_t boundary = list->boundary;
    const uint64_t window = description->window_tokens;
    uint64_t position = boundary > window ? (boundary - window) / span : 0;
    kvarve_status status = KVARVE_OK;

    for (; position * span < boundary && status == KVARVE_OK; position++) {
        status =
            list_token_page(list, group, kvarve_min_u64((position + 1) * span, boundary), false);
    }
    return status;
}

/* Bytes of one rank's state of an endpoint or auxiliary group; 0: out of range. */
static uint64_t state_size(const listing *list, uint32_t group, uint32_t rank)
{
    const store_put *put = list->put;
    const kvarve_group *description = &list->part->space->groups[group];
    const uint32_t public_group = put->name->public_of[list->space_index][group];
    uint64_t size = description->page_bytes;

    if ((description->flags & KVARVE_GROUP_VARIABLE) != 0) {
        size = put->sizes == NULL
                   ? 0
                   : put->sizes[(uint64_t)rank * put->name->group_count + public_group];
    }
    return size > (uint64_t)description->page_bytes * KVARVE_PARTS_MAX ? 0 : size;
}

static kvarve_status list_state_of_rank(listing *list, uint32_t group, uint16_t rank, uint64_t size)
{
    const uint32_t page_bytes = list->part->space->groups[group].page_bytes;
    kvarve_status status = KVARVE_OK;

    if (size == 0) {
        return kvarve_fail(list->err, KVARVE_INVALID,
                           "put: the size of group %u must be 1 .. %llu bytes",
                           list->put->name->public_of[list->space_index][group],
                           (unsigned long long)page_bytes * KVARVE_PARTS_MAX);
    }
    if ((list->part->space->groups[group].flags & KVARVE_GROUP_VARIABLE) != 0) {
        list->state_bytes = size;
    }
    for (uint64_t at = 0; at < size && status == KVARVE_OK; at += page_bytes) {
        const wanted_page base = {
            .group = group,
            .part = (uint32_t)(at / page_bytes),
            .position = at / page_bytes,
            .end = list->boundary,
            .size = (uint32_t)kvarve_min_u64(size - at, page_bytes),
        };
        wanted_page wanted = base;
        page_key key;

        status = key_at(list, list->boundary, group, wanted.part, &key);
        wanted.key = &key;
        status = status == KVARVE_OK ? list_for_rank(list, &wanted, rank) : status;
    }
    list->state_bytes = 0;
    return status;
}

static kvarve_status list_state(listing *list, uint32_t group)
{
    const store_space *space = list->part->space;
    kvarve_status status = KVARVE_OK;

    if ((space->groups[group].flags & KVARVE_GROUP_REPLICATED) != 0) {
        return list_state_of_rank(list, group, RANK_ALL, state_size(list, group, 0));
    }
    for (uint32_t rank = 0; rank < space->rank_count && status == KVARVE_OK; rank++) {
        status = list_state_of_rank(list, group, (uint16_t)rank, state_size(list, group, rank));
    }
    return status;
}

static kvarve_status list_own(listing *list)
{
    const store_space *space = list->part->space;
    kvarve_status status = KVARVE_OK;

    for (uint32_t g = 0; g < space->group_count && status == KVARVE_OK; g++) {
        const kvarve_group *group = &space->groups[g];

        if (group->page_class == KVARVE_CLASS_WINDOW) {
            status = list_window(list, g);
        } else if (!is_prefix(group)) {
            status = list_state(list, g);
        } else if (list->boundary % group->span_tokens != 0 ||
                   has_draft_variant(group, list->put, list->boundary, list->boundary)) {
            status = list_token_page(list, g, list->boundary, false);
        }
    }
    return status;
}

static bool has_prefix_group(const store_space *space)
{
    for (uint32_t g = 0; g < space->group_count; g++) {
        if (is_prefix(&space->groups[g])) {
            return true;
        }
    }
    return false;
}

/* The stored spans that the put's tokens begin with; held. */
static kvarve_status find_chain(listing *list)
{
    const kvarve_status status =
        list->part->space->is_exact ? walk_chain(list) : search_chain(list);

    shorten_damaged(list->part);
    shorten_unsettled(list->put->store, list->part);
    if (list->part->chain != NULL) {
        span_hold(list->part->chain);
    }
    return status;
}

static uint64_t count_tree_pages(const store_span *last)
{
    uint64_t count = 0;

    for (; last != NULL; last = last->parent) {
        count += last->page_count;
    }
    return count;
}

/* How many digests were announced for pages of this space. */
static uint64_t count_digests(const store_put *put, uint8_t space_index)
{
    uint64_t count = 0;

    for (size_t i = 0; i < put->digest_count; i++) {
        const uint32_t group = put->digests[i].group;

        count += group < put->name->group_count && put->name->space_of[group] == space_index;
    }
    return count;
}

/* Exact: a digest was announced for each page; any more are of pages that are none. */
static kvarve_status check_announced(const listing *list)
{
    const store_put *put = list->put;
    const uint64_t announced = count_digests(put, list->space_index);
    uint64_t pages = count_tree_pages(list->part->chain);

    for (size_t i = 0; i < put->page_count; i++) {
        pages += put->pages[i]->space_index == list->space_index;
    }
    return announced == pages
               ? KVARVE_OK
               : kvarve_fail(list->err, KVARVE_INVALID,
                             "put: %llu digests for the %llu pages of an exact namespace",
                             (unsigned long long)announced, (unsigned long long)pages);
}

kvarve_status put_list_pages(store_put *put, uint8_t space_index, const kvarve_prefix *prefix,
                             uint64_t from, uint64_t boundary, bool has_own, kvarve_error *err)
{
    listing list = {.put = put,
                    .part = &put->parts[space_index],
                    .prefix = prefix,
                    .space_index = space_index,
                    .from = from,
                    .boundary = boundary,
                    .has_own = has_own,
                    .err = err};
    kvarve_status status = KVARVE_OK;

    if (has_prefix_group(list.part->space)) {
        status = from == 0 ? find_chain(&list) : KVARVE_OK;
        if (from != 0 && has_own) {
            (void)shorten_beyond_limit(&list, &list.from);
        }
        status = status == KVARVE_OK ? list_tree(&list) : status;
    }
    if (status == KVARVE_OK && has_own) {
        status = list_own(&list);
    }
    if (status == KVARVE_OK && has_own && from == 0 && list.part->space->is_exact) {
        status = check_announced(&list);
    }
    return status;
}

bool checkpoint_is_lost(const store_checkpoint *checkpoint)
{
    return checkpoint->batch == NULL && !checkpoint->is_queued;
}

bool span_is_unsettled(const store_span *span)
{
    bool has_any = false;

    for (; span != NULL && !has_any; span = span->parent) {
        has_any = has_unsettled_page(span);
    }
    return has_any;
}

bool checkpoint_has_repair(const store_checkpoint *checkpoint)
{
    bool has_any = false;

    if (checkpoint->batch == NULL || !checkpoint->space->store->has_repaired) {
        return false;
    }
    for (uint32_t i = 0; i < checkpoint->page_count; i++) {
        has_any = has_any || checkpoint->pages[i]->id == 0 || checkpoint->pages[i]->batch == NULL ||
                  checkpoint->pages[i]->pending_row != NULL;
    }
    return has_any || span_is_unsettled(checkpoint->span);
}

/* Is this checkpoint, stored under the put's tokens, what the put is about to store? */
static bool is_same_content(const store_put *put, uint8_t space_index,
                            const store_checkpoint *candidate)
{
    uint32_t group = 0;

    if (candidate->kind != put->kind || candidate->draft_tokens != put->draft_tokens ||
        checkpoint_is_damaged(candidate, &group) || checkpoint_is_lost(candidate) ||
        checkpoint_has_repair(candidate)) {
        return false;
    }
    if (!candidate->space->is_exact) {
        return true;
    }
    if (candidate->page_count + count_tree_pages(candidate->span) !=
        count_digests(put, space_index)) {
        return false; /* a state of another size */
    }
    for (uint32_t i = 0; i < candidate->page_count; i++) {
        const store_page *page = candidate->pages[i];
        const kvarve_group *description = &candidate->space->groups[page->group];
        const uint64_t position = description->page_class <= KVARVE_CLASS_WINDOW
                                      ? (page->tokens - 1u) / description->span_tokens
                                      : page->part;
        const page_digest *announced = put_find_digest(
            put, public_rank(page->rank), put->name->public_of[space_index][page->group], position);

        if (announced == NULL || !page_digest_is_equal(announced, &page->digest)) {
            return false;
        }
    }
    for (const store_span *at = candidate->span; at != NULL; at = at->parent) {
        if (!span_matches(put, space_index, at)) {
            return false;
        }
    }
    return true;
}

store_checkpoint *put_find_present(const store_put *put, uint8_t space_index)
{
    store_checkpoint *candidate =
        catalog_first_at(put->parts[space_index].space, put->token_digest);

    while (candidate != NULL && !is_same_content(put, space_index, candidate)) {
        candidate = catalog_next_at(candidate);
    }
    return candidate;
}
