/*
 * put.c - one store transaction: from begin to durable.
 *
 *   begin -> PRESENT                                   known content
 *         -> WAITING -> STAGED -> READY -> DURABLE     WAITING: for room; STAGED: ranks copy and
 * ack
 *         -> ABORTED                                   from WAITING and STAGED, and from READY when
 * a write fails
 *
 * Invariants
 *   I1  Until STAGED nothing but claims on pages exists; room for all of them is reserved at once,
 * or not at all. I2  A put waits for pages of older puts only: a younger one is not given room
 * while an older one waits for it. I3  READY means: every page of every group and rank is sealed,
 * and the checkpoint is in the tables. I4  An aborted put holds nothing, but slots that a copy
 * outside the lock may still write into (orphans).
 */
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"
#include "store/put_private.h"

#define PUTS_MAX 4096u /* in flight at once */

uint32_t store_put_state(const store_put *put)
{
    return put->state;
}

uint32_t store_put_refusal(const store_put *put)
{
    return put->refusal;
}

void put_emit(store_put *put, uint32_t kind, uint32_t rank, kvarve_status status)
{
    store_emit(put->store, kind, put->cookie, rank, status, put->refusal);
}

/* --- the end of a put --- */

static void free_orphans(store_put *put)
{
    kvarve_link *link = put->orphans.next;

    while (put->copies == 0 && link != &put->orphans) {
        orphan_slot *orphan = KVARVE_LIST_ITEM(link, orphan_slot, link);

        link = link->next;
        if (orphan->is_exposed && !put->is_released) {
            continue;
        }
        kvarve_list_remove(&orphan->link);
        (void)arena_drop(put->store->arena, orphan->slot);
        kvarve_release(orphan);
    }
}

void put_rank_is_done(store_put *put, uint32_t rank)
{
    kvarve_link *link;

    for (size_t i = 0; i < put->page_count; i++) {
        put->pages[i]->is_exposed = put->pages[i]->is_exposed && put->pages[i]->copier != rank;
    }
    KVARVE_LIST_FOREACH (link, &put->orphans) {
        orphan_slot *orphan = KVARVE_LIST_ITEM(link, orphan_slot, link);

        orphan->is_exposed = orphan->is_exposed && orphan->copier != rank;
    }
    free_orphans(put);
}

static void let_go_of_pages(store_put *put)
{
    if (put->walking > 0) {
        return; /* whoever walks calls again */
    }
    for (size_t i = 0; i < put->page_count; i++) {
        put_page *item = put->pages[i];

        if (put->state == KVARVE_PUT_ABORTED) {
            put_abandon_page(item);
        }
        put_unwatch(item);
        page_unhold(item->page);
        kvarve_release(item);
    }
    put->page_count = 0;
    for (size_t i = 0; i < 2; i++) {
        if (put->parts[i].chain != NULL) {
            span_unhold(put->parts[i].chain);
            put->parts[i].chain = NULL;
        }
    }
    if (put->awaited != NULL) {
        checkpoint_unlease(put->store, put->awaited);
        put->awaited = NULL;
    }
    for (size_t i = 0; i < 2; i++) {
        if (put->parts[i].held != NULL) {
            checkpoint_unlease(put->store, put->parts[i].held);
            put->parts[i].held = NULL;
        }
    }
    free_orphans(put);
}

static void free_put(store_put *put)
{
    store_machine *store = put->store;

    KVARVE_ASSERT(put->page_count == 0);
    free_orphans(put);
    kvarve_list_remove(&put->link);
    kvarve_list_remove(&put->queue);
    store->put_count--;
    store_namespace_release(put->name);
    kvarve_release(put->pages);
    kvarve_release(put->ranks);
    kvarve_release(put->sizes);
    kvarve_release(put->digests);
    kvarve_release(put);
}

bool put_is_over(const store_put *put)
{
    return put->state == KVARVE_PUT_ABORTED || put->state == KVARVE_PUT_DURABLE ||
           put->state == KVARVE_PUT_PRESENT;
}

void put_end(store_put *put, uint8_t state, uint8_t refusal)
{
    store_machine *store = put->store;
    const bool is_good = state != KVARVE_PUT_ABORTED;

    KVARVE_ASSERT(!put_is_over(put));
    put->state = state;
    put->refusal = refusal;
    kvarve_list_remove(&put->queue);
    store->statistics.puts_durable += state == KVARVE_PUT_DURABLE;
    store->statistics.puts_present += state == KVARVE_PUT_PRESENT;
    if (!is_good) {
        store->statistics.puts_aborted++;
        store->statistics.refusals[refusal]++;
    }
    if (!put->has_told_end) {
        put->has_told_end = true;
        put_emit(put, is_good ? KVARVE_EVENT_DURABLE : KVARVE_EVENT_ABORTED, 0,
                 is_good ? KVARVE_OK : KVARVE_MISS);
    }
    let_go_of_pages(put);
    if (put->is_released && put->copies == 0 && put->walking == 0) {
        free_put(put);
    }
}

/* A published checkpoint whose bytes did not reach flash is taken back. */
void put_withdraw(store_put *put)
{
    for (size_t i = 0; i < 2; i++) {
        store_checkpoint *published = put->parts[i].checkpoint;

        put->parts[i].checkpoint = NULL;
        if (published == NULL || put->parts[i].is_present) {
            continue;
        }
        published->is_queued = false;
        if (published->companion != NULL) {
            published->companion->companion = NULL;
            published->companion = NULL;
        }
        if (published->leases == 0 && published->batch == NULL) {
            catalog_drop(put->store, published);
        }
    }
}

void put_abort(store_put *put, uint32_t refusal)
{
    if (put_is_over(put) || put->is_in_commit) {
        return;
    }
    if (put->state == KVARVE_PUT_READY && refusal != KVARVE_REFUSED_IO &&
        refusal != KVARVE_REFUSED_FAILED) {
        return; /* published: it goes its way */
    }
    put_withdraw(put);
    put_end(put, KVARVE_PUT_ABORTED, (uint8_t)refusal);
}

/* What it gave back may be what others wait for. */
void store_put_abort(store_put *put, uint32_t refusal)
{
    store_machine *store = put->store;

    put_abort(put, refusal);
    put_give_room(store);
}

void store_put_release(store_put *put)
{
    store_machine *store;

    if (put == NULL) {
        return;
    }
    store = put->store;
    put->is_released = true;
    put->cookie = 0;
    if (!put_is_over(put)) {
        put_abort(put, KVARVE_REFUSED_CALLER); /* not when READY; its end frees it */
        put_give_room(store);
    } else if (put->copies == 0 && put->page_count == 0) {
        free_put(put);
        put_give_room(store);
    }
}

void put_copies_ended(store_put *put)
{
    free_orphans(put);
    if (put->is_released && put_is_over(put) && put->copies == 0 && put->walking == 0) {
        free_put(put);
    }
}

void put_walk_ended(store_put *put)
{
    if (put->walking > 0) {
        return;
    }
    if (!put_is_over(put)) {
        put_advance(put);
        return;
    }
    let_go_of_pages(put);
    put_copies_ended(put);
}

void put_fail_commit(store_put *put, uint32_t refusal)
{
    put->is_in_commit = false;
    put_withdraw(put);
    put_end(put, KVARVE_PUT_ABORTED, (uint8_t)refusal);
}

void put_became_durable(store_put *put)
{
    put->is_in_commit = false;
    for (size_t i = 0; i < 2; i++) {
        if (put->parts[i].checkpoint != NULL && !put->parts[i].is_present) {
            put->parts[i].checkpoint->is_queued = false;
        }
    }
    if (put_is_spoilt(put)) {
        put_end(put, KVARVE_PUT_ABORTED, KVARVE_REFUSED_IO);
    } else {
        put_end(put, KVARVE_PUT_DURABLE, KVARVE_REFUSED_NOT);
    }
}

/* Go on, or end, as the checkpoint did that the put waits for. */
static void settle_awaited(store_put *put)
{
    store_machine *store = put->store;

    if (put->awaited->batch != NULL) {
        checkpoint_unlease(store, put->awaited);
        put->awaited = NULL;
        put_settle_present(put); /* the other half may be on its way still */
    } else if (store->is_failed) {
        put_end(put, KVARVE_PUT_ABORTED, KVARVE_REFUSED_FAILED);
    } else if (!put->awaited->is_queued) { /* taken back: its bytes were lost */
        put_end(put, KVARVE_PUT_ABORTED, KVARVE_REFUSED_IO);
    }
}

void put_settle_awaited(store_machine *store)
{
    kvarve_link *link = store->puts.next;

    while (link != &store->puts) {
        store_put *put = KVARVE_LIST_ITEM(link, store_put, link);

        link = link->next;
        if (put->awaited != NULL && !put_is_over(put)) {
            settle_awaited(put);
        } else if (put->awaited == NULL && put->state == KVARVE_PUT_READY) {
            put_advance(put); /* it may have waited for what it holds */
        }
    }
}

void put_settle_all(store_machine *store)
{
    const uint64_t now = store_now(store);
    bool has_ended = false;
    kvarve_link *link;

    put_settle_awaited(store);
    link = store->puts.next;
    while (link != &store->puts) {
        store_put *put = KVARVE_LIST_ITEM(link, store_put, link);

        link = link->next;
        if (put_is_over(put) || put->deadline_ns > now) {
            continue;
        }
        put->deadline_ns = KVARVE_NEVER;
        has_ended = true;
        if (put->state == KVARVE_PUT_READY && put->awaited == NULL) {
            /* The requester goes; the commit goes on (design section 7). */
            put->refusal = KVARVE_REFUSED_DEADLINE;
            put->has_told_end = true;
            put_emit(put, KVARVE_EVENT_ABORTED, 0, KVARVE_MISS);
        } else if (put->state == KVARVE_PUT_WAITING) {
            put_abort(put, KVARVE_REFUSED_NO_ROOM_RAM);
        } else if (put->awaited != NULL) {
            put_end(put, KVARVE_PUT_ABORTED, KVARVE_REFUSED_DEADLINE);
        } else {
            put_abort(put, KVARVE_REFUSED_DEADLINE);
        }
    }
    if (has_ended) {
        put_give_room(store);
    }
}

static void tell_sources(store_put *put)
{
    for (uint32_t rank = 0; rank < put->parts[0].space->rank_count; rank++) {
        rank_state *state = &put->ranks[rank];

        if (state->is_acked && state->unsealed == 0 && !state->is_told) {
            state->is_told = true;
            put_emit(put, KVARVE_EVENT_SOURCE_RELEASED, rank, KVARVE_OK);
        }
    }
}

static bool is_acked_by_all(const store_put *put)
{
    return put->acked_count == put->parts[0].space->rank_count;
}

/* Is known content that this put names still another put's to record? */
static bool is_held_by_another(const store_put *put)
{
    bool is_held = false;

    for (size_t i = 0; i < 2; i++) {
        const store_checkpoint *held = put->parts[i].held;

        is_held = is_held || (held != NULL && put->parts[i].is_present && held->batch == NULL &&
                              held->is_queued);
    }
    return is_held;
}

void put_advance(store_put *put)
{
    store_machine *store = put->store;

    if (put_is_over(put) || put->walking > 0) {
        return;
    }
    if (put->cookie != 0) {
        tell_sources(put);
    }
    if (put->state == KVARVE_PUT_STAGED && !put->is_open && put->unsealed == 0 &&
        is_acked_by_all(put)) {
        put_publish(put);
    }
    if (put->state == KVARVE_PUT_READY && put->awaited == NULL && put->unwritten == 0 &&
        !put->is_in_commit && put->queue.next == &put->queue && !is_held_by_another(put)) {
        kvarve_list_append(&store->commit_queue, &put->queue);
        commit_start(store);
    }
}

/* --- begin --- */

/*
 * A page with draft rows of which some are missing names how many are valid, and only the last page
 * can (docs/format/identity.md): were rows missing in an earlier one, it would be taken for whole
 * by whoever comes later.
 */
static kvarve_status check_draft_rows(const store_namespace *name,
                                      const kvarve_put_options *options, kvarve_error *err)
{
    const bool has_optional = (options->flags & KVARVE_PUT_NO_OPTIONAL) == 0;

    for (uint32_t i = 0; i < name->group_count; i++) {
        const kvarve_group *group = store_namespace_group(name, i);
        const bool is_put = has_optional || (group->flags & KVARVE_GROUP_OPTIONAL) == 0;
        uint64_t last;

        if (!is_put || (group->flags & KVARVE_GROUP_DRAFT_ROWS) == 0) {
            continue;
        }
        last = (options->tokens - 1) / group->span_tokens * group->span_tokens;
        if (options->draft_tokens < last) {
            return kvarve_fail(err, KVARVE_INVALID,
                               "put at token %llu with %llu draft tokens: group %u has draft rows, "
                               "and the last of its pages begins at %llu: %llu .. %llu",
                               (unsigned long long)options->tokens,
                               (unsigned long long)options->draft_tokens, i,
                               (unsigned long long)last, (unsigned long long)last,
                               (unsigned long long)options->tokens);
        }
    }
    return KVARVE_OK;
}

static kvarve_status check_boundary(const store_namespace *name, const kvarve_prefix *prefix,
                                    const kvarve_put_options *options, kvarve_error *err)
{
    const uint64_t length = kvarve_prefix_length(prefix);

    if (options->tokens == 0 || options->tokens > length) {
        return kvarve_fail(err, KVARVE_INVALID, "put at token %llu: 1 .. %llu",
                           (unsigned long long)options->tokens, (unsigned long long)length);
    }
    if (options->kind >= CHECKPOINT_KIND_COUNT) {
        return kvarve_fail(err, KVARVE_INVALID, "put of kind %u: 0 .. 2", options->kind);
    }
    if (options->draft_tokens > options->tokens) {
        return kvarve_fail(err, KVARVE_INVALID, "put with %llu draft tokens: 0 .. %llu",
                           (unsigned long long)options->draft_tokens,
                           (unsigned long long)options->tokens);
    }
    return check_draft_rows(name, options, err);
}

static kvarve_status copy_sizes(store_put *put, const uint64_t *sizes, kvarve_error *err)
{
    const size_t count = (size_t)put->name->group_count * put->parts[0].space->rank_count;

    kvarve_release(put->sizes);
    put->sizes = NULL;
    if (sizes == NULL) {
        return KVARVE_OK;
    }
    put->sizes = kvarve_allocate_array(count, sizeof *sizes);
    if (put->sizes == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "put: %zu sizes", count);
    }
    memcpy(put->sizes, sizes, count * sizeof *sizes);
    return KVARVE_OK;
}

static kvarve_status set_boundary(store_put *put, const kvarve_prefix *prefix,
                                  const kvarve_put_options *options, kvarve_error *err)
{
    const uint64_t chunk = (options->tokens - 1) / KEY_CHUNK_TOKENS;
    const uint32_t *tokens = kvarve_prefix_tokens(prefix);
    const store_checkpoint *parent;
    kvarve_status status = kvarve_prefix_digest(prefix, options->tokens, put->token_digest, err);

    if (status == KVARVE_OK) {
        status = put_set_digests(put, options->digests, options->digest_count, err);
    }
    if (status == KVARVE_OK) {
        status = copy_sizes(put, options->sizes, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    put->tokens = options->tokens;
    put->draft_tokens = options->draft_tokens;
    put->kind = (uint8_t)options->kind;
    prefix_chunk_digest(prefix, chunk, put->chain_digest);
    put->tail_hash = 0;
    for (uint64_t i = chunk * KEY_CHUNK_TOKENS; i < options->tokens; i++) {
        put->tail_hash = tail_hash_step(put->tail_hash, tokens[i]);
    }
    parent = find_longest(put->parts[0].space, prefix, options->tokens - 1);
    put->has_parent = parent != NULL;
    if (parent != NULL) {
        put->parent_id = parent->id;
    }
    return KVARVE_OK;
}

static store_put *make_put(store_namespace *name, const kvarve_put_options *options)
{
    store_machine *store = name->store;
    store_put *put = kvarve_allocate(sizeof *put);
    const uint32_t ranks = name->spaces[0]->rank_count;

    if (put == NULL) {
        return NULL;
    }
    put->ranks = kvarve_allocate_array(ranks, sizeof(rank_state));
    if (put->ranks == NULL) {
        kvarve_release(put);
        return NULL;
    }
    put->store = store;
    put->name = name;
    name->references++;
    put->number = ++store->next_put;
    put->cookie = options->cookie;
    put->deadline_ns = deadline_after(store, options->timeout_ms);
    put->drops_on_wait = (options->flags & KVARVE_PUT_DROP_ON_WAIT) != 0;
    put->parts[0].space = name->spaces[0];
    put->parts[1].space = (options->flags & KVARVE_PUT_NO_OPTIONAL) != 0 ? NULL : name->spaces[1];
    kvarve_list_init(&put->queue);
    kvarve_list_init(&put->orphans);
    kvarve_list_append(&store->puts, &put->link);
    store->put_count++;
    store->statistics.puts++;
    return put;
}

static uint8_t refusal_now(const store_machine *store)
{
    if (store->is_read_only) {
        return KVARVE_REFUSED_READ_ONLY;
    }
    if (store->is_failed) {
        return KVARVE_REFUSED_FAILED;
    }
    if (store->is_shutting_down) {
        return KVARVE_REFUSED_CLOSED;
    }
    return store->put_count > PUTS_MAX ? KVARVE_REFUSED_LIMIT : KVARVE_REFUSED_NOT;
}

/* Known in every part? Then nothing is reserved, copied or written. */
static bool is_present(store_put *put)
{
    for (uint8_t i = 0; i < 2; i++) {
        if (put->parts[i].space == NULL) {
            continue;
        }
        put->parts[i].checkpoint = put_find_present(put, i);
        if (put->parts[i].checkpoint == NULL) {
            put->parts[0].checkpoint = NULL;
            return false;
        }
    }
    for (uint8_t i = 0; i < 2; i++) {
        if (put->parts[i].checkpoint != NULL) {
            put->parts[i].is_present = true;
            catalog_touch(put->parts[i].checkpoint);
        }
    }
    return true;
}

static bool has_foreign_copy(const store_put *put)
{
    for (size_t i = 0; i < put->page_count; i++) {
        const store_page *page = put->pages[i]->page;

        if (page->owner != NULL && page->owner != put) {
            return true;
        }
    }
    return put->repairs > 0;
}

/* List the pages of every part after `from`, then stage. */
static kvarve_status list_and_stage(store_put *put, const kvarve_prefix *prefix, uint64_t from,
                                    uint64_t boundary, bool has_own, kvarve_error *err)
{
    kvarve_status status = KVARVE_OK;

    for (uint8_t i = 0; i < 2 && status == KVARVE_OK; i++) {
        if (put->parts[i].space != NULL) {
            status = put_list_pages(put, i, prefix, from, boundary, has_own, err);
        }
    }
    if (status != KVARVE_OK) {
        return status;
    }
    if (put->drops_on_wait && has_foreign_copy(put)) {
        put_abort(put, KVARVE_REFUSED_WAIT);
        return KVARVE_OK;
    }
    if (!put_could_be_recorded(put)) {
        put_abort(put, KVARVE_REFUSED_LIMIT);
        return KVARVE_OK;
    }
    for (uint32_t rank = 0; rank < store_namespace_ranks(put->name); rank++) {
        put->ranks[rank].is_acked = false;
        put->ranks[rank].is_told = false;
    }
    put->acked_count = 0;
    put_stage(put);
    return KVARVE_OK;
}

/* A call that failed for its arguments or for memory leaves no put behind. */
static kvarve_status discard(store_put *put, kvarve_status status)
{
    put->is_released = true;
    put->cookie = 0;
    put_end(put, KVARVE_PUT_ABORTED, KVARVE_REFUSED_CALLER);
    return status;
}

kvarve_status store_put_begin(store_namespace *name, const kvarve_prefix *prefix,
                              const kvarve_put_options *options, store_put **out, kvarve_error *err)
{
    store_machine *store = name->store;
    const bool is_open = options->tokens == 0;
    kvarve_status status = is_open ? KVARVE_OK : check_boundary(name, prefix, options, err);
    store_put *put;
    uint8_t refusal;

    if (status != KVARVE_OK) {
        return status;
    }
    put = make_put(name, options);
    if (put == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "put: its state");
    }
    refusal = refusal_now(store);
    put->is_open = is_open;
    put->state = KVARVE_PUT_STAGED;
    if (!is_open) {
        status = set_boundary(put, prefix, options, err);
        if (status != KVARVE_OK) {
            return discard(put, status);
        }
        if (is_present(put)) {
            put_settle_present(put);
            *out = put;
            return KVARVE_OK;
        }
    }
    if (refusal != KVARVE_REFUSED_NOT) {
        put_end(put, KVARVE_PUT_ABORTED, refusal);
    } else if (!is_open) {
        status = list_and_stage(put, prefix, 0, put->tokens, true, err);
        if (status != KVARVE_OK) {
            return discard(put, status);
        }
    }
    *out = put;
    return KVARVE_OK;
}

/* --- open puts --- */

bool store_put_is_settling(const store_put *put)
{
    return put->is_open && !put_is_over(put) && put->page_count > 0 && put->unsealed > 0 &&
           is_acked_by_all(put);
}

static kvarve_status check_open(const store_put *put, kvarve_error *err)
{
    if (put_is_over(put)) {
        return KVARVE_MISS;
    }
    if (!put->is_open) {
        return kvarve_fail(err, KVARVE_INVALID, "put: it is not open");
    }
    if (put->state == KVARVE_PUT_WAITING || put->unsealed > 0 ||
        (put->page_count > 0 && !is_acked_by_all(put))) {
        return KVARVE_BUSY;
    }
    return KVARVE_OK;
}

kvarve_status store_put_extend(store_put *put, const kvarve_prefix *prefix, uint64_t tokens,
                               const kvarve_page_digest *digests, size_t count, kvarve_error *err)
{
    kvarve_status status = check_open(put, err);

    if (status != KVARVE_OK) {
        return status;
    }
    if (tokens <= put->tokens || tokens > kvarve_prefix_length(prefix)) {
        return kvarve_fail(err, KVARVE_INVALID, "put extended to token %llu: %llu .. %llu",
                           (unsigned long long)tokens, (unsigned long long)put->tokens + 1,
                           (unsigned long long)kvarve_prefix_length(prefix));
    }
    status = put_set_digests(put, digests, count, err);
    if (status == KVARVE_OK) {
        status = list_and_stage(put, prefix, put->tokens, tokens, false, err);
    }
    if (status != KVARVE_OK) {
        store_put_abort(put, KVARVE_REFUSED_CALLER);
        return status;
    }
    put->tokens = tokens;
    return KVARVE_OK;
}

kvarve_status store_put_close(store_put *put, const kvarve_prefix *prefix,
                              const kvarve_put_options *options, kvarve_error *err)
{
    const uint64_t staged = put->tokens;
    kvarve_status status = check_open(put, err);

    if (status == KVARVE_OK) {
        status = check_boundary(put->name, prefix, options, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    if (options->tokens < staged) {
        return kvarve_fail(err, KVARVE_INVALID, "put closed at token %llu: %llu or more are staged",
                           (unsigned long long)options->tokens, (unsigned long long)staged);
    }
    put->is_open = false;
    status = set_boundary(put, prefix, options, err);
    if (status == KVARVE_OK) {
        status = list_and_stage(put, prefix, staged, options->tokens, true, err);
    }
    if (status != KVARVE_OK) {
        store_put_abort(put, KVARVE_REFUSED_CALLER);
    }
    return status;
}
