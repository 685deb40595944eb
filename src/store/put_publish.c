/*
 * put_publish.c - from sealed pages to a checkpoint that is found.
 *
 * Invariant: a put is READY when every page of every group and rank is sealed and the checkpoint is
 * in the tables. Content that turns out to be known (an equal put was faster) makes the put PRESENT
 * instead.
 *
 * Threads: under the store's lock.
 */
#include <string.h>

#include "base/alloc.h"
#include "store/put_private.h"

/* The span of the pages [from, to) of put->pages under part->chain: found or made. */
static bool extend_chain(put_part *part, store_page **pages, uint32_t count, uint32_t tokens)
{
    store_span *found = NULL;

    do {
        found = catalog_find_span(part->space, &pages[0]->key, found);
    } while (found != NULL && (found->parent != part->chain || found->page_count != count ||
                               memcmp(found->pages, pages, count * sizeof(store_page *)) != 0));
    if (found == NULL) {
        found = catalog_add_span(part->space, part->chain, tokens, pages, count);
    }
    if (found == NULL) {
        return false;
    }
    span_hold(found);
    if (part->chain != NULL) {
        span_unhold(part->chain);
    }
    part->chain = found;
    return true;
}

/* The pages of the tree from put->pages[*at] on that end where that one does. A variant was staged
 * before the boundary was known, and is not of the tree. */
static uint32_t collect_span(const store_put *put, size_t *at, store_page **scratch)
{
    const put_page *first = put->pages[*at];
    uint32_t count = 0;

    for (; *at < put->page_count; (*at)++) {
        const put_page *item = put->pages[*at];

        if (item->space_index != first->space_index || !item->is_span || item->end != first->end) {
            break;
        }
        if (!put_page_is_variant(item)) {
            scratch[count++] = item->page;
        }
    }
    return count;
}

static bool publish_spans(store_put *put, uint8_t space_index, store_page **scratch)
{
    put_part *part = &put->parts[space_index];
    size_t i = 0;

    while (i < put->page_count) {
        const put_page *first = put->pages[i];
        uint32_t count;

        if (first->space_index != space_index || !first->is_span) {
            i++;
            continue;
        }
        count = collect_span(put, &i, scratch);
        if (count > 0 && !extend_chain(part, scratch, count, first->end)) {
            return false;
        }
    }
    return true;
}

static uint32_t collect_own(const store_put *put, uint8_t space_index, store_page **scratch)
{
    uint32_t count = 0;

    for (size_t i = 0; i < put->page_count; i++) {
        if (put->pages[i]->space_index == space_index && !put->pages[i]->is_span) {
            scratch[count++] = put->pages[i]->page;
        }
    }
    return count;
}

/* An exact checkpoint's id is made of its pages' identities: own ones, then spans from the last to
 * the first. */
static void exact_id(const checkpoint_facts *facts, page_key *out)
{
    sha256_state state;

    sha256_init(&state);
    sha256_update(&state, "kvarve-exact-checkpoint-v1", 27);
    sha256_update(&state, out->bytes, sizeof out->bytes);
    for (uint32_t i = 0; i < facts->page_count; i++) {
        sha256_update(&state, facts->pages[i]->key.bytes, sizeof(page_key));
        sha256_update(&state, facts->pages[i]->digest.bytes, sizeof(page_digest));
    }
    for (const store_span *at = facts->span; at != NULL; at = at->parent) {
        for (uint32_t i = 0; i < at->page_count; i++) {
            sha256_update(&state, at->pages[i]->key.bytes, sizeof(page_key));
            sha256_update(&state, at->pages[i]->digest.bytes, sizeof(page_digest));
        }
    }
    sha256_final(&state, out->bytes);
}

static bool is_same_checkpoint(const store_checkpoint *stored, const checkpoint_facts *facts)
{
    return stored->kind == facts->kind && stored->draft_tokens == facts->draft_tokens &&
           stored->span == facts->span && stored->page_count == facts->page_count &&
           (facts->page_count == 0 ||
            memcmp(stored->pages, facts->pages, facts->page_count * sizeof(store_page *)) == 0);
}

/* Known content stays until the put ends. */
static void hold_present(put_part *part)
{
    if (part->held == NULL) {
        part->held = part->checkpoint;
        part->held->leases++;
    }
}

static bool publish_checkpoint(store_put *put, uint8_t space_index, store_page **scratch)
{
    put_part *part = &put->parts[space_index];
    checkpoint_facts facts = {
        .space = part->space,
        .tail_hash = put->tail_hash,
        .span = part->chain,
        .created_s = put->store->env.clock->wall_s(put->store->env.clock),
        .tokens = (uint32_t)put->tokens,
        .draft_tokens = (uint32_t)put->draft_tokens,
        .kind = put->kind,
        .pages = scratch,
        .page_count = collect_own(put, space_index, scratch),
    };
    store_checkpoint *stored = catalog_first_at(part->space, put->token_digest);

    while (stored != NULL && !is_same_checkpoint(stored, &facts)) {
        stored = catalog_next_at(stored);
    }
    if (stored != NULL) {
        catalog_touch(stored);
        part->checkpoint = stored;
        part->is_present = !checkpoint_is_lost(stored);
        stored->is_queued = stored->is_queued || !part->is_present;
        hold_present(part);
        return true;
    }
    memcpy(facts.token_digest, put->token_digest, sizeof facts.token_digest);
    memcpy(&facts.chain, put->chain_digest, sizeof facts.chain);
    facts.id = checkpoint_id_of(&part->space->name, put->token_digest, put->tokens,
                                (checkpoint_kind)put->kind, put->draft_tokens, NULL, 0);
    if (part->space->is_exact) {
        exact_id(&facts, &facts.id);
    }
    part->checkpoint = catalog_add_checkpoint(put->store, &facts);
    if (part->checkpoint != NULL) {
        part->checkpoint->is_queued = true;
    }
    return part->checkpoint != NULL;
}

static void pair_companions(store_put *put)
{
    store_checkpoint *base = put->parts[0].checkpoint;
    store_checkpoint *draft = put->parts[1].checkpoint;

    if (base != NULL && draft != NULL && base->companion == NULL && draft->companion == NULL) {
        base->companion = draft;
        draft->companion = base;
        draft->is_companion = true;
    }
}

/* Known content after all: does any part wait for a commit? */
static void remember_id(store_put *put)
{
    if (put->parts[0].checkpoint != NULL) {
        put->id = put->parts[0].checkpoint->id;
        put->has_id = true;
    }
}

void put_settle_present(store_put *put)
{
    remember_id(put);
    for (size_t i = 0; i < 2; i++) {
        if (put->parts[i].checkpoint != NULL) {
            hold_present(&put->parts[i]);
        }
    }
    for (size_t i = 0; i < 2; i++) {
        store_checkpoint *stored = put->parts[i].checkpoint;

        if (stored != NULL && stored->batch == NULL) {
            put->awaited = stored;
            stored->leases++;
            put->state = KVARVE_PUT_READY;
            return;
        }
    }
    if (put_is_spoilt(put)) {
        put_end(put, KVARVE_PUT_ABORTED, KVARVE_REFUSED_IO);
    } else {
        put_end(put, KVARVE_PUT_PRESENT, KVARVE_REFUSED_NOT);
    }
}

/* Anything that a commit has to record: a new checkpoint, or repaired pages of a known one. The
 * pages of one that is on its way are recorded with it. */
static bool has_work_for_commit(const store_put *put)
{
    for (size_t i = 0; i < put->page_count; i++) {
        const store_page *page = put->pages[i]->page;
        const store_checkpoint *stored = put->parts[put->pages[i]->space_index].checkpoint;

        if (stored != NULL && stored->batch == NULL && stored->is_queued) {
            continue;
        }
        if ((page->batch == NULL || page->id == 0 || page->pending_row != NULL) &&
            page->references > 0) {
            return true;
        }
    }
    return (put->parts[0].checkpoint != NULL && !put->parts[0].is_present) ||
           (put->parts[1].checkpoint != NULL && !put->parts[1].is_present);
}

void put_publish(store_put *put)
{
    store_page **scratch;
    bool is_done;

    if (put_has_damaged(put)) {
        return; /* it comes again when they are sealed */
    }
    scratch = kvarve_allocate_array(put->page_count + 1, sizeof(store_page *));
    is_done = scratch != NULL;
    for (uint8_t i = 0; i < 2 && is_done; i++) {
        if (put->parts[i].space != NULL) {
            is_done = publish_spans(put, i, scratch) && publish_checkpoint(put, i, scratch);
        }
    }
    kvarve_release(scratch);
    if (!is_done) {
        put_withdraw(put);
        put_end(put, KVARVE_PUT_ABORTED, KVARVE_REFUSED_LIMIT);
        return;
    }
    pair_companions(put);
    if (put_is_spoilt(put)) {
        put_withdraw(put);
        put_end(put, KVARVE_PUT_ABORTED, KVARVE_REFUSED_IO);
        return;
    }
    if (!has_work_for_commit(put)) {
        put_settle_present(put);
        return;
    }
    remember_id(put);
    put->state = KVARVE_PUT_READY; /* I3 */
    put_emit(put, KVARVE_EVENT_READY, 0, KVARVE_OK);
}
