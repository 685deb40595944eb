/*
 * commit.c - from written pages to durable checkpoints: records, syncs, one index transaction.
 *
 *   IDLE -> DOCUMENTS -> HEADERS -> SYNC -> INDEX -> IDLE      (steps without work are passed over)
 *
 * Everything that waits goes into one commit. The order is the promise (P4, D1):
 *   I1  Payload and records are synced before the index transaction begins.
 *   I2  Space is given back (limbo) only after the transaction that freed it is durable.
 *   I3  A failed sync or transaction makes the store failed; nothing is tried again. One exception:
 * a transaction that had no room did not happen; the reserve file is given up and it is tried once
 * more. I4  Objects enter their batch_row only when the transaction is durable; until then the
 * commit holds them.
 *
 * Threads: under the store's lock; the steps run as jobs.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "env/io_all.h"
#include "store/put_private.h"

#define COMMIT_PUTS_MAX    4096u
#define COMMIT_RECORDS_MAX 64u
#define RECORD_ROOM        (BATCH_BYTES_MAX - 2 * BATCH_BLOCK)
#define PAGE_COST          80u  /* bound of a page record's bytes */
#define SPAN_COST          24u  /* of a span, pages apart */
#define CHECKPOINT_COST    192u /* of a checkpoint, pages apart */
#define REFERENCE_COST     10u
#define DROPS_MAX          4096u /* carried by one new_record */
#define RECENCY_EVERY_NS   (60 * KVARVE_NS_PER_S)
#define RECENCY_MAX        16384u

/* One record under construction: arrays that grow together with what they came from. */
typedef struct new_record {
    batch batch;
    uint8_t (*namespaces)[32];
    store_page **pages;
    store_span **spans;
    store_checkpoint **checkpoints;
    size_t page_room;
    size_t span_room;
    size_t checkpoint_room;
    size_t reference_room;
    size_t cost;
    batch_row *row;
    void *memory; /* of bytes */
    uint8_t *bytes;
    size_t used;
    uint32_t blocks;
    segment_request request;
} new_record;

typedef struct document_job {
    kvarve_job job;
    store_commit *commit;
    int result;
} document_job;

typedef struct reserve_job {
    kvarve_job job;
    store_commit *commit;
} reserve_job;

struct store_commit {
    store_machine *store;
    uint64_t generation;
    kvarve_list puts;
    kvarve_list dead_rows; /* batch_row.link */
    new_record records[COMMIT_RECORDS_MAX];
    uint32_t record_count;
    uint32_t headers_pending;
    uint32_t *files; /* to sync */
    size_t file_count;
    size_t file_room;
    segment_request sync_request;
    index_batch batches[COMMIT_RECORDS_MAX];
    index_drop *drops;
    size_t drop_count;
    uint64_t *dead_recency;
    size_t dead_recency_count;
    uint64_t *dead_batches;
    index_recency *recency;
    size_t recency_count;
    index_transaction transaction;
    document_job documents;
    reserve_job reserve;
    bool has_used_reserve;
    uint64_t log_before;
    uint8_t refusal; /* why it failed */
};

bool commit_is_idle(const store_machine *store)
{
    return store->commit == NULL;
}

/* --- building --- */

static bool grow(void *array_pointer, size_t *room, size_t count, size_t size)
{
    void **array = array_pointer;
    const size_t wanted = *room == 0 ? 64 : 2 * *room;
    void *larger;

    if (count < *room) {
        return true;
    }
    larger = kvarve_reallocate(*array, wanted * size);
    if (larger == NULL) {
        return false;
    }
    *array = larger;
    *room = wanted;
    return true;
}

static new_record *current(store_commit *commit)
{
    return &commit->records[commit->record_count - 1];
}

static bool open_record(store_commit *commit)
{
    store_machine *store = commit->store;
    new_record *record;

    if (commit->record_count == COMMIT_RECORDS_MAX) {
        return false;
    }
    record = &commit->records[commit->record_count];
    record->batch.store = store->uuid;
    record->batch.sequence = store->next_sequence++;
    record->batch.first_page = store->next_page;
    record->batch.first_span = store->next_span;
    record->batch.first_checkpoint = store->next_commit_checkpoint;
    record->namespaces = kvarve_allocate_array(BATCH_NAMESPACES_MAX, 32);
    record->row = catalog_add_batch(store, record->batch.sequence, (header_place){.segment = 0});
    if (record->row != NULL) {
        record->row->live = 1; /* the commit's */
    }
    commit->record_count++;
    return record->namespaces != NULL && record->row != NULL;
}

/* The record that has room for `cost` more bytes; NULL: no memory, or too much for one commit. */
static new_record *record_with_room(store_commit *commit, size_t cost)
{
    if (commit->record_count == 0 || current(commit)->cost + cost > RECORD_ROOM ||
        current(commit)->batch.page_count + 2 > BATCH_ITEMS_MAX ||
        current(commit)->batch.namespace_count + 2 > BATCH_NAMESPACES_MAX) {
        if (!open_record(commit)) {
            return NULL;
        }
        current(commit)->cost = 256;
    }
    current(commit)->cost += cost;
    return current(commit);
}

static uint8_t namespace_index(new_record *record, const store_space *space)
{
    uint32_t at = record->batch.namespace_count;

    for (uint32_t i = 0; i < at; i++) {
        if (memcmp(record->namespaces[i], space->digest, 32) == 0) {
            return (uint8_t)i;
        }
    }
    memcpy(record->namespaces[at], space->digest, 32);
    record->batch.namespace_count++;
    record->cost += 32;
    return (uint8_t)at;
}

static bool add_file(store_commit *commit, uint32_t segment)
{
    for (size_t i = commit->file_count; i-- > 0;) {
        if (commit->files[i] == segment) {
            return true;
        }
    }
    if (!grow(&commit->files, &commit->file_room, commit->file_count, sizeof(uint32_t))) {
        return false;
    }
    commit->files[commit->file_count++] = segment;
    return true;
}

static bool is_recorded(const store_page *page)
{
    return page->id != 0 && page->batch != NULL;
}

static bool add_page(store_commit *commit, store_page *page)
{
    new_record *record;
    batch_page *entry;
    size_t room;

    if (is_recorded(page) || page->pending_row != NULL) {
        return true;
    }
    record = record_with_room(commit, PAGE_COST);
    if (record == NULL || !add_file(commit, page->place.segment)) {
        return false;
    }
    room = record->page_room;
    if (!grow(&record->pages, &room, record->batch.page_count, sizeof *record->pages) ||
        !grow(&record->batch.pages, &record->page_room, record->batch.page_count,
              sizeof(batch_page))) {
        return false;
    }
    KVARVE_ASSERT(page->state == PAGE_SEALED && page->flash == FLASH_WRITTEN);
    page->id = commit->store->next_page++;
    page->pending_row = record->row;
    page_hold(page);
    record->pages[record->batch.page_count] = page;
    entry = &record->batch.pages[record->batch.page_count++];
    *entry = (batch_page){
        .place = page->place,
        .size = page->size,
        .tokens = page->tokens,
        .rank = page->rank,
        .part = page->part,
        .group = page->group,
        .namespace_index = namespace_index(record, page->space),
        .is_partial = page->is_partial,
        .is_exact = page->space->is_exact,
    };
    memcpy(entry->key, page->key.bytes, sizeof entry->key);
    memcpy(entry->digest, page->digest.bytes, sizeof entry->digest);
    return true;
}

/* Append page ids to the record's references; UINT32_MAX: no memory. */
static uint32_t add_references(new_record *record, store_page *const *pages, uint32_t count)
{
    const uint32_t at = record->batch.reference_count;

    for (uint32_t i = 0; i < count; i++) {
        if (!grow(&record->batch.references, &record->reference_room, at + i, sizeof(uint64_t))) {
            return UINT32_MAX;
        }
        record->batch.references[at + i] = pages[i]->id;
    }
    record->batch.reference_count += count;
    return at;
}

static bool add_span(store_commit *commit, store_span *span)
{
    new_record *record;
    size_t room;
    uint32_t at;

    for (uint32_t i = 0; i < span->page_count; i++) {
        if (!add_page(commit, span->pages[i])) {
            return false;
        }
    }
    record = record_with_room(commit, SPAN_COST + (size_t)span->page_count * REFERENCE_COST);
    if (record == NULL) {
        return false;
    }
    room = record->span_room;
    at = add_references(record, span->pages, span->page_count);
    if (at == UINT32_MAX ||
        !grow(&record->spans, &room, record->batch.span_count, sizeof *record->spans) ||
        !grow(&record->batch.spans, &record->span_room, record->batch.span_count,
              sizeof(batch_span))) {
        return false;
    }
    span->id = commit->store->next_span++;
    span->pending_row = record->row;
    span_hold(span);
    record->spans[record->batch.span_count] = span;
    record->batch.spans[record->batch.span_count++] = (batch_span){
        .parent = span->parent == NULL ? 0 : span->parent->id,
        .tokens = span->tokens,
        .namespace_index = namespace_index(record, span->space),
        .page_count = span->page_count,
        .pages_at = at,
    };
    return true;
}

/* The spans of a chain that no record has yet, from the first to the last. */
static bool add_chain(store_commit *commit, store_span *last)
{
    size_t count = 0;
    store_span **chain;
    bool is_good = true;

    for (store_span *at = last; at != NULL && at->batch == NULL && at->pending_row == NULL;
         at = at->parent) {
        count++;
    }
    if (count == 0) {
        return true;
    }
    chain = kvarve_allocate_array(count, sizeof(store_span *));
    if (chain == NULL) {
        return false;
    }
    for (size_t i = count; i-- > 0; last = last->parent) {
        chain[i] = last;
    }
    for (size_t i = 0; i < count && is_good; i++) {
        is_good = add_span(commit, chain[i]);
    }
    kvarve_release(chain);
    return is_good;
}

static bool add_checkpoint(store_commit *commit, store_checkpoint *checkpoint)
{
    new_record *record;
    size_t room;
    uint32_t at;

    if (!add_chain(commit, checkpoint->span)) {
        return false;
    }
    for (uint32_t i = 0; i < checkpoint->page_count; i++) {
        if (!add_page(commit, checkpoint->pages[i])) {
            return false;
        }
    }
    record =
        record_with_room(commit, CHECKPOINT_COST + (size_t)checkpoint->page_count * REFERENCE_COST);
    if (record == NULL) {
        return false;
    }
    room = record->checkpoint_room;
    at = add_references(record, checkpoint->pages, checkpoint->page_count);
    if (at == UINT32_MAX ||
        !grow(&record->checkpoints, &room, record->batch.checkpoint_count,
              sizeof *record->checkpoints) ||
        !grow(&record->batch.checkpoints, &record->checkpoint_room, record->batch.checkpoint_count,
              sizeof(batch_checkpoint))) {
        return false;
    }
    checkpoint->number = commit->store->next_commit_checkpoint++;
    record->checkpoints[record->batch.checkpoint_count] = checkpoint;
    record->batch.checkpoints[record->batch.checkpoint_count++] = (batch_checkpoint){
        .bucket = checkpoint->bucket->chain,
        .tail_hash = checkpoint->tail_hash,
        .span = checkpoint->span == NULL ? 0 : checkpoint->span->id,
        .parent = checkpoint->parent,
        .created_s = checkpoint->created_s,
        .tokens = checkpoint->tokens,
        .draft_tokens = checkpoint->draft_tokens,
        .kind = checkpoint->kind,
        .namespace_index = namespace_index(record, checkpoint->space),
        .page_count = checkpoint->page_count,
        .pages_at = at,
    };
    memcpy(record->batch.checkpoints[record->batch.checkpoint_count - 1].id, checkpoint->id.bytes,
           32);
    memcpy(record->batch.checkpoints[record->batch.checkpoint_count - 1].token_digest,
           checkpoint->token_digest, 32);
    return true;
}

/* Numbers are known when both are added: the draft half names the other one. */
static void name_companion(store_commit *commit, const store_checkpoint *base, const store_checkpoint *draft)
{
    batch *last = &current(commit)->batch;

    if (base != NULL && draft != NULL && base->companion == draft) {
        last->checkpoints[last->checkpoint_count - 1].companion = base->number;
    }
}

/* The checkpoint it grew from, if that has a number by now. */
static uint64_t parent_number(const store_put *put)
{
    const store_checkpoint *parent =
        put->has_parent ? catalog_by_id(put->store, put->parent_id.bytes) : NULL;

    return parent == NULL ? 0 : parent->number;
}

static bool add_put(store_commit *commit, store_put *put)
{
    for (size_t i = 0; i < 2; i++) {
        put_part *part = &put->parts[i];

        if (part->checkpoint != NULL && !part->is_present) {
            part->checkpoint->parent = i == 0 ? parent_number(put) : 0;
            if (!add_checkpoint(commit, part->checkpoint)) {
                return false;
            }
            if (i == 1) {
                name_companion(commit, put->parts[0].checkpoint, part->checkpoint);
            }
        }
    }
    for (size_t i = 0; i < put->page_count; i++) { /* repaired pages of a known checkpoint */
        if (put->pages[i]->page->references > 0 && !add_page(commit, put->pages[i]->page)) {
            return false;
        }
    }
    return true;
}

/* Drops that no record carries yet ride in the last one. */
static bool add_drops(store_commit *commit)
{
    new_record *record = current(commit);
    kvarve_link *link;
    uint32_t count = 0;

    KVARVE_LIST_FOREACH (link, &commit->store->tombstones_pending) {
        count += count < DROPS_MAX;
    }
    if (count == 0) {
        return true;
    }
    record->batch.drops = kvarve_allocate_array(count, sizeof(uint64_t));
    if (record->batch.drops == NULL) {
        return false;
    }
    KVARVE_LIST_FOREACH (link, &commit->store->tombstones_pending) {
        tombstone *grave = KVARVE_LIST_ITEM(link, tombstone, pending_link);

        if (record->batch.drop_count < count &&
            batch_encoded_size(&record->batch) + 16 < BATCH_BYTES_MAX) {
            record->batch.drops[record->batch.drop_count++] = grave->checkpoint;
            grave->is_in_commit = true;
        }
    }
    return true;
}

static bool encode_record(store_commit *commit, new_record *record)
{
    uint64_t size;

    record->batch.namespaces = record->namespaces;
    size = batch_encoded_size(&record->batch);
    KVARVE_ASSERT(size <= BATCH_BYTES_MAX);
    record->blocks = (uint32_t)kvarve_divide_up(size, BATCH_BLOCK);
    record->memory = kvarve_allocate((size_t)(record->blocks + 1) * BATCH_BLOCK);
    if (record->memory == NULL) {
        return false;
    }
    record->bytes = (uint8_t *)record->memory +
                    (BATCH_BLOCK - (uintptr_t)record->memory % BATCH_BLOCK) % BATCH_BLOCK;
    (void)commit;
    return true;
}

/* KVARVE_BUSY: a file for headers is being made. */
static kvarve_status place_record(store_commit *commit, new_record *record)
{
    store_machine *store = commit->store;
    const uint32_t preferred = record->batch.page_count > 0 ? record->batch.pages[0].place.segment
                               : commit->file_count > 0     ? commit->files[0]
                                                            : 0;
    const kvarve_status status =
        segment_reserve_header(store->segments, preferred, record->blocks, &record->batch.place);

    if (status == KVARVE_BUSY) {
        return room_grow(store, 0, 0) ? KVARVE_BUSY : KVARVE_NO_SPACE;
    }
    if (status != KVARVE_OK) {
        return status;
    }
    record->row->place = record->batch.place;
    batch_encode(&record->batch, record->bytes, (size_t)record->blocks * BATCH_BLOCK,
                 &record->used);
    return add_file(commit, record->batch.place.segment) ? KVARVE_OK : KVARVE_NO_MEMORY;
}

static bool take_drops(store_commit *commit)
{
    store_machine *store = commit->store;
    size_t dead = 0;
    size_t kept = 0;
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &store->dead_batches) {
        dead++;
    }
    commit->dead_batches = kvarve_allocate_array(dead + 1, sizeof(uint64_t));
    if (commit->dead_batches == NULL) {
        return false;
    }
    while ((link = kvarve_list_take_first(&store->dead_batches)) != NULL) {
        batch_row *row = KVARVE_LIST_ITEM(link, batch_row, link);

        commit->dead_batches[commit->transaction.dead_batch_count++] = row->sequence;
        kvarve_list_append(&commit->dead_rows, &row->link);
    }
    commit->drops = store->drops;
    commit->dead_recency = store->dead_recency;
    commit->dead_recency_count = store->dead_recency_count;
    for (size_t i = 0; i < store->drop_count; i++) { /* rows that go take their drops along */
        bool is_dead = false;

        KVARVE_LIST_FOREACH (link, &commit->dead_rows) {
            is_dead = is_dead || KVARVE_LIST_ITEM(link, batch_row, link)->sequence ==
                                     commit->drops[i].sequence;
        }
        if (!is_dead) {
            commit->drops[kept++] = commit->drops[i];
        }
    }
    commit->drop_count = kept;
    store->drops = NULL;
    store->drop_count = 0;
    store->drop_room = 0;
    store->dead_recency = NULL;
    store->dead_recency_count = 0;
    store->dead_recency_room = 0;
    return true;
}

static void take_recency(store_commit *commit)
{
    store_machine *store = commit->store;
    const uint64_t now = store_now(store);
    kvarve_link *link;

    if (store->recency_dirty == 0 ||
        (!store->is_shutting_down &&
         (now < store->recency_written_ns + RECENCY_EVERY_NS || commit->record_count == 0))) {
        return;
    }
    commit->recency = kvarve_allocate_array(kvarve_min_u64(store->recency_dirty, RECENCY_MAX),
                                            sizeof(index_recency));
    if (commit->recency == NULL) {
        return; /* next time */
    }
    for (link = store->recency.previous;
         link != &store->recency && store->recency_dirty > 0 && commit->recency_count < RECENCY_MAX;
         link = link->previous) {
        store_checkpoint *used = KVARVE_LIST_ITEM(link, store_checkpoint, lru);

        if (used->is_recency_dirty && used->batch != NULL) {
            used->is_recency_dirty = false;
            store->recency_dirty--;
            commit->recency[commit->recency_count++] =
                (index_recency){.checkpoint = used->number, .used = used->used};
        } else if (used->is_recency_dirty && store->is_shutting_down) {
            used->is_recency_dirty = false;
            store->recency_dirty--;
        }
    }
    store->recency_written_ns = now;
}

/* --- ending --- */

static void let_go_of_record(store_commit *commit, new_record *record, bool is_durable)
{
    for (uint32_t i = 0; i < record->batch.page_count; i++) {
        store_page *page = record->pages[i];

        page->pending_row = NULL;
        if (is_durable && page->references > 0) {
            page_set_batch(page, record->row);
        }
        page_unhold(page);
    }
    for (uint32_t i = 0; i < record->batch.span_count; i++) {
        store_span *span = record->spans[i];

        span->pending_row = NULL;
        if (is_durable && span->references > 0) {
            span_set_batch(span, record->row);
        }
        span_unhold(span);
    }
    for (uint32_t i = 0; i < record->batch.checkpoint_count && is_durable; i++) {
        checkpoint_set_batch(record->checkpoints[i], record->row);
    }
    if (record->row != NULL) {
        batch_release(commit->store, record->row);
    }
    kvarve_release(record->namespaces);
    kvarve_release(record->pages);
    kvarve_release(record->spans);
    kvarve_release(record->checkpoints);
    kvarve_release(record->batch.pages);
    kvarve_release(record->batch.spans);
    kvarve_release(record->batch.checkpoints);
    kvarve_release(record->batch.references);
    kvarve_release(record->batch.drops);
    kvarve_release(record->memory);
}

static void settle_tombstones(store_machine *store, const store_commit *commit, bool is_durable)
{
    kvarve_link *link = store->tombstones_pending.next;

    while (link != &store->tombstones_pending) {
        tombstone *grave = KVARVE_LIST_ITEM(link, tombstone, pending_link);

        link = link->next;
        if (!grave->is_in_commit) {
            continue;
        }
        grave->is_in_commit = false;
        if (is_durable) {
            tombstone_set_carrier(grave, commit->records[commit->record_count - 1].row);
        }
    }
}

static void free_dead_rows(store_commit *commit, bool is_durable)
{
    kvarve_link *link;

    while ((link = kvarve_list_take_first(&commit->dead_rows)) != NULL) {
        batch_row *row = KVARVE_LIST_ITEM(link, batch_row, link);

        if (!is_durable) {
            kvarve_list_append(&commit->store->dead_batches, &row->link); /* next time, if ever */
            continue;
        }
        if (row->place.segment != 0) {
            segment_free_header(commit->store->segments, row->place);
        }
        kvarve_release(row);
    }
}

/* The transaction did not happen: its drops are still to be told, before their space is given back.
 */
static void give_drops_back(store_commit *commit)
{
    store_machine *store = commit->store;
    const size_t drops = commit->drop_count + store->drop_count;
    const size_t dead = commit->dead_recency_count + store->dead_recency_count;
    index_drop *all = kvarve_reallocate(store->drops, (drops + 1) * sizeof *all);
    uint64_t *all_dead;

    store->drops = all != NULL ? all : store->drops;
    all_dead = kvarve_reallocate(store->dead_recency, (dead + 1) * sizeof *all_dead);
    store->dead_recency = all_dead != NULL ? all_dead : store->dead_recency;
    if (all == NULL || all_dead == NULL) {
        store_fail(store);
        return;
    }
    if (commit->drop_count > 0) {
        memcpy(all + store->drop_count, commit->drops, commit->drop_count * sizeof *all);
    }
    if (commit->dead_recency_count > 0) {
        memcpy(all_dead + store->dead_recency_count, commit->dead_recency,
               commit->dead_recency_count * sizeof *all_dead);
    }
    store->drop_count = drops;
    store->drop_room = drops + 1;
    store->dead_recency_count = dead;
    store->dead_recency_room = dead + 1;
}

static void count_recency(const store_commit *commit)
{
    store_machine *store = commit->store;
    index_counters counters;

    index_count(store->index, &counters);
    if (commit->recency_count > 0 && commit->record_count == 0) {
        store->statistics.recency_commits++;
        store->statistics.recency_bytes_written += counters.log_bytes_written - commit->log_before;
    }
}

static void finish_commit(store_commit *commit, bool is_durable)
{
    store_machine *store = commit->store;
    kvarve_list puts;
    kvarve_link *link;

    if (is_durable) {
        store->generation_done = commit->generation;
        count_recency(commit);
    } else {
        give_drops_back(commit);
    }
    if (commit->record_count > 0) {
        settle_tombstones(store, commit, is_durable);
    }
    for (uint32_t i = 0; i < commit->record_count; i++) {
        let_go_of_record(commit, &commit->records[i], is_durable);
    }
    free_dead_rows(commit, is_durable);
    limbo_settle(store);
    kvarve_list_init(&puts);
    while ((link = kvarve_list_take_first(&commit->puts)) != NULL) {
        kvarve_list_append(&puts, link);
    }
    store->commit = NULL;
    while ((link = kvarve_list_take_first(&puts)) != NULL) {
        store_put *put = KVARVE_LIST_ITEM(link, store_put, queue);

        if (is_durable) {
            put_became_durable(put);
        } else {
            put_fail_commit(put, commit->refusal);
        }
    }
    kvarve_release(commit->files);
    kvarve_release(commit->drops);
    kvarve_release(commit->dead_recency);
    kvarve_release(commit->dead_batches);
    kvarve_release(commit->recency);
    kvarve_release(commit);
    put_settle_awaited(store);
    room_limit_checkpoints(store);
    put_give_room(store);
    commit_start(store);
}

/* Before anything was submitted: as if it had not begun; the puts queue again. */
static void undo_commit(store_commit *commit)
{
    store_machine *store = commit->store;
    kvarve_link *link;

    while ((link = commit->puts.previous) != &commit->puts) {
        store_put *put = KVARVE_LIST_ITEM(link, store_put, queue);

        kvarve_list_remove(link);
        put->is_in_commit = false;
        kvarve_list_append(store->commit_queue.next, link); /* first again */
    }
    settle_tombstones(store, commit, false);
    for (uint32_t i = 0; i < commit->record_count; i++) {
        let_go_of_record(commit, &commit->records[i], false);
    }
    kvarve_release(commit->files);
    kvarve_release(commit);
}

static void fail_commit(store_commit *commit, uint8_t refusal)
{
    commit->refusal = refusal;
    finish_commit(commit, false);
}

/* --- steps --- */

static void submit_index(store_commit *commit);

static void give_up_reserve(kvarve_job *job)
{
    reserve_job *reserve = KVARVE_LIST_ITEM(job, reserve_job, job);
    store_machine *store = reserve->commit->store;
    char path[KVARVE_PATH_MAX];

    if (io_join_path(path, sizeof path, store->directory, "reserve") == 0) {
        (void)store->env.io->ops->unlink(store->env.io, path);
        (void)store->env.io->ops->sync_directory(store->env.io, store->directory);
    }
}

static void reserve_given_up(kvarve_job *job)
{
    submit_index(KVARVE_LIST_ITEM(job, reserve_job, job)->commit);
}

static void index_done(index_transaction *transaction, void *context)
{
    store_commit *commit = context;
    store_machine *store = commit->store;

    if (transaction->status == KVARVE_OK) {
        finish_commit(commit, true);
        return;
    }
    if (transaction->status == KVARVE_NO_SPACE && store->has_reserve) { /* I3 */
        store->has_reserve = false;
        commit->reserve.commit = commit;
        commit->reserve.job.lane = KVARVE_LANE_WRITE;
        commit->reserve.job.run = give_up_reserve;
        commit->reserve.job.done = reserve_given_up;
        store->env.executor->submit(store->env.executor, &commit->reserve.job);
        return;
    }
    if (transaction->status != KVARVE_NO_SPACE) {
        store_fail(store);
    }
    fail_commit(commit, transaction->status == KVARVE_NO_SPACE ? KVARVE_REFUSED_NO_ROOM_FLASH
                                                               : KVARVE_REFUSED_FAILED);
}

static void submit_index(store_commit *commit)
{
    index_transaction *transaction = &commit->transaction;
    index_counters counters;

    index_count(commit->store->index, &counters);
    commit->log_before = counters.log_bytes_written;
    for (uint32_t i = 0; i < commit->record_count; i++) {
        commit->batches[i] = (index_batch){.sequence = commit->records[i].batch.sequence,
                                           .body = commit->records[i].bytes,
                                           .size = commit->records[i].used};
    }
    transaction->batches = commit->batches;
    transaction->batch_count = commit->record_count;
    transaction->dead_batches = commit->dead_batches;
    transaction->drops = commit->drops;
    transaction->drop_count = commit->drop_count;
    transaction->recency = commit->recency;
    transaction->recency_count = commit->recency_count;
    transaction->dead_recency = commit->dead_recency;
    transaction->dead_recency_count = commit->dead_recency_count;
    transaction->done = index_done;
    transaction->context = commit;
    index_submit(commit->store->index, transaction);
}

static void sync_done(segment_request *request, void *context)
{
    store_commit *commit = context;

    if (request->status != KVARVE_OK) {
        store_fail(commit->store); /* I3 */
        fail_commit(commit, KVARVE_REFUSED_FAILED);
        return;
    }
    submit_index(commit); /* I1 */
}

static void submit_sync(store_commit *commit)
{
    if (commit->file_count == 0) {
        submit_index(commit);
        return;
    }
    commit->sync_request = (segment_request){.done = sync_done, .context = commit};
    if (segment_sync(commit->store->segments, commit->files, commit->file_count,
                     &commit->sync_request, NULL) != KVARVE_OK) {
        fail_commit(commit, KVARVE_REFUSED_LIMIT);
    }
}

static void header_done(segment_request *request, void *context)
{
    store_commit *commit = context;

    if (request->status != KVARVE_OK) {
        commit->refusal = KVARVE_REFUSED_IO;
    }
    if (--commit->headers_pending > 0) {
        return;
    }
    if (commit->refusal != KVARVE_REFUSED_NOT) {
        finish_commit(commit, false);
    } else {
        submit_sync(commit);
    }
}

static void submit_headers(store_commit *commit)
{
    commit->headers_pending = commit->record_count + 1; /* one for this loop */
    for (uint32_t i = 0; i < commit->record_count; i++) {
        new_record *record = &commit->records[i];

        record->request = (segment_request){.done = header_done, .context = commit};
        if (segment_write_header(commit->store->segments, record->batch.place, record->bytes,
                                 &record->request, NULL) != KVARVE_OK) {
            commit->refusal = KVARVE_REFUSED_LIMIT;
            commit->headers_pending--;
        }
    }
    if (commit->record_count == 0) {
        submit_sync(commit);
        return;
    }
    if (--commit->headers_pending == 0) { /* none was accepted */
        finish_commit(commit, false);
    }
}

/* --- identity documents --- */

static int write_document(const store_machine *store, const store_space *space)
{
    document kept = {.text = space->document, .name = space->name};
    char directory[KVARVE_PATH_MAX];
    char name[80];
    char path[KVARVE_PATH_MAX];
    char *text = NULL;
    kvarve_status status;

    memcpy(kept.digest, space->digest, sizeof kept.digest);
    memcpy(kept.meaning, space->meaning, sizeof kept.meaning);
    memcpy(kept.salt_digest, space->salt_digest, sizeof kept.salt_digest);
    hex_encode(name, space->digest, 32);
    memcpy(name + 64, ".json", 6);
    if (io_join_path(directory, sizeof directory, store->directory, "namespaces") != 0 ||
        io_join_path(path, sizeof path, directory, name) != 0 ||
        document_file_build(&kept, &text, NULL) != KVARVE_OK) {
        return -1;
    }
    status = io_replace_file(store->env.io, directory, path, text, strlen(text), 0600, NULL);
    kvarve_release(text);
    return status == KVARVE_OK ? 0 : -1;
}

static bool lacks_document(const put_part *part)
{
    return part->space != NULL && !part->space->is_document_kept && part->space->document != NULL;
}

static void run_documents(kvarve_job *job)
{
    document_job *documents = KVARVE_LIST_ITEM(job, document_job, job);
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &documents->commit->puts) {
        store_put *put = KVARVE_LIST_ITEM(link, store_put, queue);

        for (size_t i = 0; i < 2 && documents->result == 0; i++) {
            if (lacks_document(&put->parts[i])) {
                documents->result = write_document(documents->commit->store, put->parts[i].space);
            }
        }
    }
}

static void documents_done(kvarve_job *job)
{
    store_commit *commit = KVARVE_LIST_ITEM(job, document_job, job)->commit;
    kvarve_link *link;

    if (commit->documents.result != 0) {
        fail_commit(commit, KVARVE_REFUSED_IO);
        return;
    }
    KVARVE_LIST_FOREACH (link, &commit->puts) {
        store_put *put = KVARVE_LIST_ITEM(link, store_put, queue);

        for (size_t i = 0; i < 2; i++) {
            if (lacks_document(&put->parts[i])) {
                put->parts[i].space->is_document_kept = true;
            }
        }
    }
    submit_headers(commit);
}

static bool needs_documents(const store_commit *commit)
{
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &commit->puts) {
        const store_put *put = KVARVE_LIST_ITEM(link, store_put, queue);

        if (lacks_document(&put->parts[0]) || lacks_document(&put->parts[1])) {
            return true;
        }
    }
    return false;
}

static void submit_documents(store_commit *commit)
{
    if (!needs_documents(commit)) {
        submit_headers(commit);
        return;
    }
    commit->documents = (document_job){.commit = commit};
    commit->documents.job.lane = KVARVE_LANE_WRITE;
    commit->documents.job.run = run_documents;
    commit->documents.job.done = documents_done;
    commit->store->env.executor->submit(commit->store->env.executor, &commit->documents.job);
}

/* --- start --- */

static bool take_puts(store_commit *commit)
{
    store_machine *store = commit->store;
    uint32_t count = 0;
    kvarve_link *link;

    while (count++ < COMMIT_PUTS_MAX && commit->record_count < COMMIT_RECORDS_MAX / 2 &&
           (link = kvarve_list_take_first(&store->commit_queue)) != NULL) {
        store_put *put = KVARVE_LIST_ITEM(link, store_put, queue);

        put->is_in_commit = true;
        kvarve_list_append(&commit->puts, link);
        if (!add_put(commit, put)) {
            return false;
        }
    }
    return true;
}

/* Build and place the records. Anything but KVARVE_OK: undo. */
static kvarve_status build(store_commit *commit)
{
    kvarve_status status = KVARVE_OK;

    if (!take_puts(commit) || (commit->record_count > 0 && !add_drops(commit))) {
        return KVARVE_NO_MEMORY;
    }
    for (uint32_t i = 0; i < commit->record_count && status == KVARVE_OK; i++) {
        status = encode_record(commit, &commit->records[i])
                     ? place_record(commit, &commit->records[i])
                     : KVARVE_NO_MEMORY;
    }
    return status;
}

static bool has_work(const store_machine *store)
{
    const bool has_drops = store->drop_count > 0 || !kvarve_list_is_empty(&store->dead_batches) ||
                           store->limbo_count > 0;

    return !kvarve_list_is_empty(&store->commit_queue) || (has_drops && store->wants_transaction) ||
           (store->is_shutting_down && store->recency_dirty > 0);
}

static void refuse_queue(store_machine *store, uint8_t refusal)
{
    kvarve_link *link;

    while ((link = kvarve_list_take_first(&store->commit_queue)) != NULL) {
        put_fail_commit(KVARVE_LIST_ITEM(link, store_put, queue), refusal);
    }
}

static bool is_empty(const store_commit *commit)
{
    return commit->record_count == 0 && commit->transaction.dead_batch_count == 0 &&
           commit->drop_count == 0 && commit->recency_count == 0 && commit->dead_recency_count == 0;
}

void commit_start(store_machine *store)
{
    store_commit *commit;
    kvarve_status status;

    if (store->commit != NULL || store->is_read_only || !has_work(store)) {
        return;
    }
    if (store->is_failed) {
        refuse_queue(store, KVARVE_REFUSED_FAILED);
        return;
    }
    commit = kvarve_allocate(sizeof *commit);
    if (commit == NULL) {
        refuse_queue(store, KVARVE_REFUSED_LIMIT);
        return;
    }
    commit->store = store;
    kvarve_list_init(&commit->puts);
    kvarve_list_init(&commit->dead_rows);
    status = build(commit);
    if (status == KVARVE_OK && !take_drops(commit)) {
        status = KVARVE_NO_MEMORY;
    }
    if (status != KVARVE_OK) {
        undo_commit(commit);
        if (status != KVARVE_BUSY) { /* BUSY: grow_done calls again */
            refuse_queue(store, status == KVARVE_NO_SPACE ? KVARVE_REFUSED_NO_ROOM_FLASH
                                                          : KVARVE_REFUSED_LIMIT);
        }
        return;
    }
    take_recency(commit);
    store->wants_transaction = false;
    commit->generation = store->generation++;
    store->commit = commit;
    if (is_empty(commit)) { /* nothing is on flash that would have to go first */
        finish_commit(commit, true);
        return;
    }
    submit_documents(commit);
}
