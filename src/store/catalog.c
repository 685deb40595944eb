/*
 * catalog.c - the objects of the store in RAM: tables, counts, and what goes when nothing needs it.
 *
 * Invariants
 *   I1  What has references or holds is in its table and is not freed.
 *   I2  A page or span without references stands in no batch_row: it is recorded anew if it is
 * named again. I3  batch_row.live counts exactly what set_batch functions, aliases and carried
 * tombstones say; at 0 the row moves to store.dead_batches. I4  Space on flash leaves a page only
 * through limbo.
 *
 * Threads: under the store's lock. Nothing here submits work or waits.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/fail.h"
#include "store/store_private.h"

#define USED_BITS   16  /* of a recency value, below the checkpoint number */
#define FILTER_FROM 32u /* checkpoints in a bucket from which on it has a filter */

static uint64_t first_8(const uint8_t *bytes)
{
    uint64_t value;

    memcpy(&value, bytes, sizeof value);
    return value;
}

static uint64_t page_hash(const page_key *key, uint16_t rank)
{
    return table_mix(first_8(key->bytes) + rank);
}

static uint64_t digest_hash(const store_space *space, const uint8_t digest[32])
{
    return table_mix(first_8(digest) ^ first_8(space->digest));
}

static uint64_t bucket_hash(const store_space *space, uint64_t chain)
{
    return table_mix(chain ^ first_8(space->digest) ^ 1);
}

kvarve_status catalog_init(store_machine *store, kvarve_error *err)
{
    kvarve_list_init(&store->recency);
    kvarve_list_init(&store->resident);
    kvarve_list_init(&store->batches);
    kvarve_list_init(&store->dead_batches);
    kvarve_list_init(&store->unwiped);
    kvarve_list_init(&store->wiping);
    kvarve_list_init(&store->tombstones_pending);
    if (!table_init(&store->spaces) || !table_init(&store->pages) || !table_init(&store->spans) ||
        !table_init(&store->buckets) || !table_init(&store->by_id) ||
        !table_init(&store->by_digest)) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "tables of the store");
    }
    return KVARVE_OK;
}

/* Free every item of a table through `release`, which gets its link. */
static void empty_table(kvarve_table *table, void (*release)(kvarve_table_link *link))
{
    for (size_t i = 0; i < table->bucket_count; i++) {
        while (table->buckets[i] != NULL) {
            kvarve_table_link *link = table->buckets[i];

            table->buckets[i] = link->next;
            release(link);
        }
    }
    table_deinit(table);
}

static void release_page(kvarve_table_link *link)
{
    kvarve_release(KVARVE_TABLE_ITEM(link, store_page, link));
}

static void release_span(kvarve_table_link *link)
{
    kvarve_release(KVARVE_TABLE_ITEM(link, store_span, link));
}

/* In the order of recency, which is near that of memory: in the order of a table each free of a
 * million would miss the cache. */
static void release_checkpoints(kvarve_list *recency)
{
    kvarve_link *link;

    while (recency->next != NULL && (link = kvarve_list_take_first(recency)) != NULL) {
        kvarve_release(KVARVE_LIST_ITEM(link, store_checkpoint, lru));
    }
}

static void release_bucket(kvarve_table_link *link)
{
    chunk_bucket *bucket = KVARVE_TABLE_ITEM(link, chunk_bucket, link);

    kvarve_release(bucket->filter);
    kvarve_release(bucket);
}

static void release_space(kvarve_table_link *link)
{
    store_space *space = KVARVE_TABLE_ITEM(link, store_space, link);

    kvarve_release(space->document);
    kvarve_release(space);
}

static void release_rows(kvarve_list *rows)
{
    kvarve_link *link;

    while (rows->next != NULL && (link = kvarve_list_take_first(rows)) != NULL) {
        batch_row *row = KVARVE_LIST_ITEM(link, batch_row, link);
        kvarve_link *grave;

        while ((grave = kvarve_list_take_first(&row->tombstones)) != NULL) {
            kvarve_release(KVARVE_LIST_ITEM(grave, tombstone, link));
        }
        kvarve_release(row);
    }
}

void catalog_deinit(store_machine *store)
{
    release_checkpoints(&store->recency);
    table_deinit(&store->by_id);
    table_deinit(&store->by_digest);
    empty_table(&store->buckets, release_bucket);
    empty_table(&store->spans, release_span);
    empty_table(&store->pages, release_page);
    empty_table(&store->spaces, release_space);
    release_rows(&store->batches);
    release_rows(&store->dead_batches);
    release_rows(&store->unwiped);
    release_rows(&store->wiping);
    kvarve_release(store->limbo);
    kvarve_release(store->limbo_headers);
    kvarve_release(store->drops);
    kvarve_release(store->dead_recency);
}

/* --- spaces --- */

store_space *catalog_find_space(const store_machine *store, const uint8_t digest[32])
{
    kvarve_table_link *link = table_first(&store->spaces, table_mix(first_8(digest)));

    for (; link != NULL; link = table_next(link)) {
        store_space *found = KVARVE_TABLE_ITEM(link, store_space, link);

        if (memcmp(found->digest, digest, 32) == 0) {
            return found;
        }
    }
    return NULL;
}

store_space *catalog_space(store_machine *store, const uint8_t digest[32])
{
    store_space *made = catalog_find_space(store, digest);

    if (made != NULL) {
        return made;
    }
    made = kvarve_allocate(sizeof *made);
    if (made == NULL) {
        return NULL;
    }
    made->store = store;
    memcpy(made->digest, digest, 32);
    memcpy(made->name.text, "recurrent-sha256-v1:", 20);
    hex_encode(made->name.text + 20, digest, 32);
    table_add(&store->spaces, &made->link, table_mix(first_8(digest)));
    return made;
}

/* --- pages --- */

store_page *catalog_find_page(const store_space *space, const page_key *key, uint16_t rank,
                              const page_digest *exact)
{
    kvarve_table_link *link = table_first(&space->store->pages, page_hash(key, rank));

    for (; link != NULL; link = table_next(link)) {
        store_page *found = KVARVE_TABLE_ITEM(link, store_page, link);

        if (found->rank == rank && memcmp(&found->key, key, sizeof *key) == 0 &&
            (exact == NULL || page_digest_is_equal(&found->digest, exact))) {
            return found;
        }
    }
    return NULL;
}

void catalog_prefetch_page(const store_machine *store, const page_key *key, uint16_t rank,
                           bool is_near)
{
    const uint64_t hash = page_hash(key, rank);

    if (is_near) {
        table_prefetch_chain(&store->pages, hash);
    } else {
        table_prefetch_bucket(&store->pages, hash);
    }
}

store_page *catalog_add_page(store_space *space, const page_key *key, uint16_t rank)
{
    store_page *made = kvarve_allocate(sizeof *made);

    if (made == NULL) {
        return NULL;
    }
    made->space = space;
    made->key = *key;
    made->rank = rank;
    made->slot = ARENA_NONE;
    kvarve_list_init(&made->lru);
    kvarve_list_init(&made->watchers);
    kvarve_list_init(&made->loaders);
    table_add(&space->store->pages, &made->link, page_hash(key, rank));
    return made;
}

void page_set_batch(store_page *page, batch_row *row)
{
    batch_row *old = page->batch;

    page->batch = row;
    if (row != NULL) {
        row->live++;
    }
    if (old == NULL) {
        return;
    }
    if (row == NULL || page->references == 0) {
        batch_release(page->space->store, old);
        return;
    }
    /* Older references may name the older record: its row stays as long as the page does. */
    for (size_t i = 0; i < 2; i++) {
        if (page->aliases[i] == NULL) {
            page->aliases[i] = old;
            return;
        }
    }
    /* A third repair: that row stays until the store is opened again. */
}

static void page_forget_batches(store_page *page)
{
    store_machine *store = page->space->store;

    page_set_batch(page, NULL);
    for (size_t i = 0; i < 2; i++) {
        if (page->aliases[i] != NULL) {
            batch_release(store, page->aliases[i]);
            page->aliases[i] = NULL;
        }
    }
}

static void page_free_if_unused(store_page *page)
{
    store_machine *store = page->space->store;

    if (page->references > 0 || page->holds > 0 || page->io_count > 0 || page->owner != NULL) {
        return;
    }
    page_clear_damaged(page);
    page_drop_slot(page);
    kvarve_list_remove(&page->lru);
    if (page->place.segment != 0) {
        limbo_add_place(store, page->place, page->is_place_recorded);
    }
    table_remove(&store->pages, &page->link);
    kvarve_release(page);
}

void page_hold(store_page *page)
{
    page->holds++;
}

void page_unhold(store_page *page)
{
    KVARVE_ASSERT(page->holds > 0);
    page->holds--;
    page_free_if_unused(page);
}

static void page_dereference(store_page *page)
{
    KVARVE_ASSERT(page->references > 0);
    page->references--;
    if (page->references == 0) {
        page_forget_batches(page); /* I2 */
        page_free_if_unused(page);
    }
}

void page_mark_damaged(store_page *page)
{
    if (!page->is_damaged) {
        page->is_damaged = true;
        page->space->store->damaged_pages++;
    }
}

void page_clear_damaged(store_page *page)
{
    if (page->is_damaged) {
        page->is_damaged = false;
        page->space->store->damaged_pages--;
    }
}

/* --- spans --- */

store_span *catalog_find_span(const store_space *space, const page_key *first_key,
                              const store_span *last)
{
    kvarve_table_link *link =
        last == NULL ? table_first(&space->store->spans, table_mix(first_8(first_key->bytes)))
                     : table_next(&last->link);

    for (; link != NULL; link = table_next(link)) {
        store_span *found = KVARVE_TABLE_ITEM(link, store_span, link);

        if (found->space == space &&
            memcmp(&found->pages[0]->key, first_key, sizeof *first_key) == 0) {
            return found;
        }
    }
    return NULL;
}

store_span *catalog_add_span(store_space *space, store_span *parent, uint32_t tokens,
                             store_page *const *pages, uint32_t count)
{
    store_span *made = kvarve_allocate(sizeof *made + count * sizeof(store_page *));

    KVARVE_ASSERT(count > 0);
    if (made == NULL) {
        return NULL;
    }
    made->space = space;
    made->parent = parent;
    made->tokens = tokens;
    made->page_count = count;
    made->depth = 1;
    if (parent != NULL) {
        parent->references++;
        made->depth += parent->depth;
        made->bytes = parent->bytes;
    }
    for (uint32_t i = 0; i < count; i++) {
        made->pages[i] = pages[i];
        pages[i]->references++;
        made->bytes += pages[i]->size;
    }
    table_add(&space->store->spans, &made->link, table_mix(first_8(pages[0]->key.bytes)));
    return made;
}

void span_set_batch(store_span *span, batch_row *row)
{
    batch_row *old = span->batch;

    span->batch = row;
    if (row != NULL) {
        row->live++;
    }
    if (old != NULL) {
        batch_release(span->space->store, old);
    }
}

static void lose_reference(store_span *span)
{
    KVARVE_ASSERT(span->references > 0);
    span->references--;
    if (span->references == 0) {
        span_set_batch(span, NULL); /* I2 */
    }
}

/* Free this span, and those below that nothing else needs. */
static void span_free_if_unused(store_span *at)
{
    while (at != NULL && at->references == 0 && at->holds == 0) {
        store_span *parent = at->parent;

        span_set_batch(at, NULL);
        for (uint32_t i = 0; i < at->page_count; i++) {
            page_dereference(at->pages[i]);
        }
        table_remove(&at->space->store->spans, &at->link);
        kvarve_release(at);
        if (parent != NULL) {
            lose_reference(parent);
        }
        at = parent;
    }
}

void span_hold(store_span *span)
{
    span->holds++;
}

void span_unhold(store_span *span)
{
    KVARVE_ASSERT(span->holds > 0);
    span->holds--;
    span_free_if_unused(span);
}

static void span_dereference(store_span *span)
{
    lose_reference(span);
    span_free_if_unused(span);
}

static const store_page *first_damaged(store_page *const *pages, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (pages[i]->is_damaged) {
            return pages[i];
        }
    }
    return NULL;
}

bool span_is_damaged(const store_span *span, uint32_t *out_group)
{
    const store_page *found = NULL;

    if (span == NULL || span->space->store->damaged_pages == 0) {
        return false;
    }
    for (; span != NULL && found == NULL; span = span->parent) {
        found = first_damaged(span->pages, span->page_count);
    }
    if (found != NULL) {
        *out_group = found->group;
    }
    return found != NULL;
}

/* --- buckets --- */

chunk_bucket *catalog_bucket(const store_space *space, uint64_t chain)
{
    kvarve_table_link *link = table_first(&space->store->buckets, bucket_hash(space, chain));

    for (; link != NULL; link = table_next(link)) {
        chunk_bucket *found = KVARVE_TABLE_ITEM(link, chunk_bucket, link);

        if (found->space == space && found->chain == chain) {
            return found;
        }
    }
    return NULL;
}

static chunk_bucket *add_bucket(store_space *space, uint64_t chain)
{
    chunk_bucket *made = catalog_bucket(space, chain);

    if (made != NULL) {
        return made;
    }
    made = kvarve_allocate(sizeof *made);
    if (made != NULL) {
        made->space = space;
        made->chain = chain;
        kvarve_list_init(&made->checkpoints);
        table_add(&space->store->buckets, &made->link, bucket_hash(space, chain));
    }
    return made;
}

static uint32_t chunk_length(uint32_t tokens)
{
    return (tokens - 1) % KEY_CHUNK_TOKENS + 1;
}

static uint32_t fingerprint(uint32_t length, uint64_t tail_hash)
{
    return (uint32_t)(table_mix(tail_hash + length) >> 32) | 1u;
}

static void filter_add(chunk_bucket *bucket, const store_checkpoint *checkpoint)
{
    const uint32_t print = fingerprint(chunk_length(checkpoint->tokens), checkpoint->tail_hash);
    uint32_t at = print & (bucket->filter_size - 1);

    while (bucket->filter[at] != 0 && bucket->filter[at] != print) {
        at = (at + 1) & (bucket->filter_size - 1);
    }
    if (bucket->filter[at] == 0) {
        bucket->filter[at] = print;
        bucket->filter_used++;
    }
}

/* Make the filter anew for all checkpoints of the bucket. Without memory there is none: every
 * candidate is looked at. */
static void filter_rebuild(chunk_bucket *bucket)
{
    uint32_t size = 4 * FILTER_FROM;
    kvarve_link *link;

    while (size < 4 * bucket->count) {
        size *= 2;
    }
    kvarve_release(bucket->filter);
    bucket->filter = kvarve_allocate_array(size, sizeof(uint32_t));
    bucket->filter_size = size;
    bucket->filter_used = 0;
    if (bucket->filter == NULL) {
        return;
    }
    KVARVE_LIST_FOREACH (link, &bucket->checkpoints) {
        filter_add(bucket, KVARVE_LIST_ITEM(link, store_checkpoint, bucket_link));
    }
}

static void bucket_insert(chunk_bucket *bucket, store_checkpoint *checkpoint)
{
    const uint32_t bit = chunk_length(checkpoint->tokens) - 1;

    checkpoint->bucket = bucket;
    kvarve_list_append(&bucket->checkpoints, &checkpoint->bucket_link);
    bucket->count++;
    bucket->lengths[bit / 64] |= UINT64_C(1) << (bit % 64);
    if (bucket->filter != NULL && 2 * (bucket->filter_used + 1) <= bucket->filter_size) {
        filter_add(bucket, checkpoint);
    } else if (bucket->filter != NULL || bucket->count >= FILTER_FROM) {
        filter_rebuild(bucket); /* also of few: those that went fill it */
    }
}

bool bucket_may_hold(const chunk_bucket *bucket, uint32_t length, uint64_t tail_hash)
{
    uint32_t print;
    uint32_t at;

    if ((bucket->lengths[(length - 1) / 64] >> ((length - 1) % 64) & 1) == 0) {
        return false;
    }
    if (bucket->filter == NULL) {
        return true;
    }
    print = fingerprint(length, tail_hash);
    at = print & (bucket->filter_size - 1);
    while (bucket->filter[at] != 0 && bucket->filter[at] != print) {
        at = (at + 1) & (bucket->filter_size - 1);
    }
    return bucket->filter[at] == print;
}

static void bucket_remove(store_checkpoint *checkpoint)
{
    chunk_bucket *bucket = checkpoint->bucket;

    kvarve_list_remove(&checkpoint->bucket_link);
    bucket->count--;
    if (bucket->count == 0) {
        table_remove(&bucket->space->store->buckets, &bucket->link);
        release_bucket(&bucket->link);
    }
}

/* --- checkpoints --- */

/*
 * Recency is told in checkpoint numbers, which only grow: later than every checkpoint that exists,
 * and among uses at one number in their order. A checkpoint that was never used again is as recent
 * as its number.
 */
static uint64_t use_now(store_machine *store)
{
    return (store->next_commit_checkpoint << USED_BITS) +
           (store->use_clock++ & ((1u << USED_BITS) - 1));
}

store_checkpoint *catalog_add_checkpoint(store_machine *store, const checkpoint_facts *facts)
{
    store_checkpoint *made =
        kvarve_allocate(sizeof *made + facts->page_count * sizeof(store_page *));
    chunk_bucket *bucket = add_bucket(facts->space, facts->chain);

    if (made == NULL || bucket == NULL) {
        kvarve_release(made);
        return NULL; /* an empty bucket is harmless */
    }
    made->space = facts->space;
    made->id = facts->id;
    memcpy(made->token_digest, facts->token_digest, 32);
    made->tail_hash = facts->tail_hash;
    made->number = facts->number;
    made->span = facts->span;
    made->parent = facts->parent;
    made->created_s = facts->created_s;
    made->tokens = facts->tokens;
    made->draft_tokens = facts->draft_tokens;
    made->kind = facts->kind;
    made->page_count = facts->page_count;
    if (made->span != NULL) {
        made->span->references++;
    }
    for (uint32_t i = 0; i < facts->page_count; i++) {
        made->pages[i] = facts->pages[i];
        facts->pages[i]->references++;
    }
    kvarve_list_init(&made->bucket_link);
    kvarve_list_init(&made->lru);
    table_add(&store->by_id, &made->id_link, first_8(made->id.bytes));
    table_add(&store->by_digest, &made->digest_link, digest_hash(made->space, made->token_digest));
    bucket_insert(bucket, made);
    kvarve_list_append(&store->recency, &made->lru);
    made->used = facts->number != 0 ? facts->number << USED_BITS : use_now(store);
    made->space->checkpoint_count++;
    return made;
}

void catalog_prefetch_checkpoint(const store_space *space, const uint8_t id[32],
                                 const uint8_t token_digest[32])
{
    table_prefetch_bucket(&space->store->by_id, first_8(id));
    table_prefetch_bucket(&space->store->by_digest, digest_hash(space, token_digest));
}

static store_checkpoint *same_digest(const store_space *space, kvarve_table_link *link,
                                     const uint8_t token_digest[32])
{
    for (; link != NULL; link = table_next(link)) {
        store_checkpoint *found = KVARVE_TABLE_ITEM(link, store_checkpoint, digest_link);

        if (found->space == space && memcmp(found->token_digest, token_digest, 32) == 0) {
            return found;
        }
    }
    return NULL;
}

store_checkpoint *catalog_first_at(const store_space *space, const uint8_t token_digest[32])
{
    return same_digest(space,
                       table_first(&space->store->by_digest, digest_hash(space, token_digest)),
                       token_digest);
}

store_checkpoint *catalog_next_at(const store_checkpoint *at)
{
    return same_digest(at->space, table_next(&at->digest_link), at->token_digest);
}

store_checkpoint *catalog_by_id(const store_machine *store, const uint8_t id[32])
{
    kvarve_table_link *link = table_first(&store->by_id, first_8(id));

    for (; link != NULL; link = table_next(link)) {
        store_checkpoint *found = KVARVE_TABLE_ITEM(link, store_checkpoint, id_link);

        if (memcmp(found->id.bytes, id, 32) == 0) {
            return found;
        }
    }
    return NULL;
}

void catalog_touch(store_checkpoint *checkpoint)
{
    store_machine *store = checkpoint->space->store;

    checkpoint->used = use_now(store);
    kvarve_list_remove(&checkpoint->lru);
    kvarve_list_append(&store->recency, &checkpoint->lru);
    if (!checkpoint->is_recency_dirty && !store->is_read_only) {
        checkpoint->is_recency_dirty = true;
        store->recency_dirty++;
    }
}

bool checkpoint_is_damaged(const store_checkpoint *checkpoint, uint32_t *out_group)
{
    const store_page *found;

    if (checkpoint->space->store->damaged_pages == 0) {
        return false;
    }
    found = first_damaged(checkpoint->pages, checkpoint->page_count);
    if (found != NULL) {
        *out_group = found->group;
        return true;
    }
    return span_is_damaged(checkpoint->span, out_group);
}

uint64_t checkpoint_bytes(const store_checkpoint *checkpoint)
{
    uint64_t bytes = checkpoint->span == NULL ? 0 : checkpoint->span->bytes;

    for (uint32_t i = 0; i < checkpoint->page_count; i++) {
        bytes += checkpoint->pages[i]->size;
    }
    return bytes;
}

void checkpoint_set_batch(store_checkpoint *checkpoint, batch_row *row)
{
    batch_row *old = checkpoint->batch;

    checkpoint->batch = row;
    if (row != NULL) {
        row->live++;
    }
    if (old != NULL) {
        batch_release(checkpoint->space->store, old);
    }
}

/* Note for the index and for later records that this checkpoint is gone. False: no memory, nothing
 * was noted. */
static bool note_drop(store_machine *store, const store_checkpoint *checkpoint)
{
    if (!catalog_grow(&store->drops, &store->drop_room, store->drop_count, sizeof(index_drop)) ||
        !catalog_grow(&store->dead_recency, &store->dead_recency_room, store->dead_recency_count,
                      sizeof(uint64_t)) ||
        catalog_add_tombstone(store, checkpoint->number, checkpoint->batch) == NULL) {
        return false;
    }
    store->drops[store->drop_count++] =
        (index_drop){.checkpoint = checkpoint->number, .sequence = checkpoint->batch->sequence};
    store->dead_recency[store->dead_recency_count++] = checkpoint->number;
    return true;
}

static void drop_one(store_machine *store, store_checkpoint *checkpoint)
{
    if (checkpoint->batch != NULL && !note_drop(store, checkpoint)) {
        return; /* no memory: it stays for now */
    }
    if (checkpoint->companion != NULL) {
        checkpoint->companion->companion = NULL;
    }
    if (checkpoint->is_recency_dirty) {
        store->recency_dirty--;
    }
    table_remove(&store->by_id, &checkpoint->id_link);
    table_remove(&store->by_digest, &checkpoint->digest_link);
    bucket_remove(checkpoint);
    kvarve_list_remove(&checkpoint->lru);
    checkpoint->space->checkpoint_count--;
    checkpoint_set_batch(checkpoint, NULL);
    for (uint32_t i = 0; i < checkpoint->page_count; i++) {
        page_dereference(checkpoint->pages[i]);
    }
    if (checkpoint->span != NULL) {
        span_dereference(checkpoint->span);
    }
    kvarve_release(checkpoint);
}

void catalog_drop(store_machine *store, store_checkpoint *checkpoint)
{
    store_checkpoint *companion = checkpoint->companion;

    KVARVE_ASSERT(checkpoint->leases == 0 && !checkpoint->is_queued);
    if (companion != NULL && !checkpoint->is_companion && companion->leases == 0 &&
        !companion->is_queued) {
        drop_one(store, companion);
    }
    drop_one(store, checkpoint);
}

void checkpoint_unlease(store_machine *store, store_checkpoint *checkpoint)
{
    KVARVE_ASSERT(checkpoint->leases > 0);
    checkpoint->leases--;
    if (checkpoint->leases == 0 && !checkpoint->is_queued && checkpoint->batch == NULL) {
        catalog_drop(store, checkpoint);
    }
}
