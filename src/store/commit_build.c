/*
 * commit_build.c - the records of a commit: pages, spans and checkpoints that no record has yet, in
 * the order that references need.
 *
 * Invariants
 *   I1  Ids are given in the order of appearance; a record's own are consecutive.
 *   I2  What is added is held until the commit ends, and enters its batch_row only when that is
 * durable.
 *
 * Threads: under the store's lock.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "store/commit_private.h"

#define HEAD_COST       512u /* of a record's head and of what rides in it, at least */
#define PAGE_COST       80u  /* bound of a page record's bytes */
#define SPAN_COST       24u  /* of a span, pages apart */
#define CHECKPOINT_COST 192u /* of a checkpoint, pages apart */
#define REFERENCE_COST  10u
#define DROPS_MAX       4096u /* carried by one new_record */

static new_record *current(store_commit *commit)
{
    return &commit->records[commit->record_count - 1];
}

static bool open_record(store_commit *commit)
{
    store_machine *store = commit->store;
    new_record *record;

    if (commit->record_count == COMMIT_RECORDS_MAX ||
        !catalog_grow(&commit->records, &commit->record_room, commit->record_count,
                      sizeof *record)) {
        return false;
    }
    record = &commit->records[commit->record_count];
    memset(record, 0, sizeof *record);
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
    const uint32_t room = commit->store->record_room;

    if (cost + HEAD_COST > room) {
        return NULL; /* one item alone would not fit */
    }
    if (commit->record_count == 0 || current(commit)->cost + cost > room ||
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
    if (!catalog_grow(&commit->files, &commit->file_room, commit->file_count, sizeof(uint32_t))) {
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
    if (!catalog_grow(&record->pages, &room, record->batch.page_count, sizeof *record->pages) ||
        !catalog_grow(&record->batch.pages, &record->page_room, record->batch.page_count,
                      sizeof(batch_page))) {
        return false;
    }
    KVARVE_ASSERT(page->state == PAGE_SEALED && page->flash == FLASH_WRITTEN);
    page->id = commit->store->next_page++;
    page->is_place_recorded = true;
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
        if (!catalog_grow(&record->batch.references, &record->reference_room, at + i,
                          sizeof(uint64_t))) {
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
        !catalog_grow(&record->spans, &room, record->batch.span_count, sizeof *record->spans) ||
        !catalog_grow(&record->batch.spans, &record->span_room, record->batch.span_count,
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
        !catalog_grow(&record->checkpoints, &room, record->batch.checkpoint_count,
                      sizeof *record->checkpoints) ||
        !catalog_grow(&record->batch.checkpoints, &record->checkpoint_room,
                      record->batch.checkpoint_count, sizeof(batch_checkpoint))) {
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
static void name_companion(store_commit *commit, const store_checkpoint *base,
                           const store_checkpoint *draft)
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

/* Known content that its own put took back meanwhile is this put's to record. */
static void claim_lost(put_part *part)
{
    if (part->checkpoint != NULL && part->is_present && checkpoint_is_lost(part->checkpoint)) {
        part->is_present = false;
        part->checkpoint->is_queued = true;
    }
}

/* What the put adds in one space, if that is not there already. */
static bool add_part(store_commit *commit, put_part *part, uint64_t parent)
{
    claim_lost(part);
    if (part->checkpoint == NULL || part->is_present) {
        return true;
    }
    part->checkpoint->parent = parent;
    return add_checkpoint(commit, part->checkpoint);
}

bool put_could_be_recorded(const store_put *put)
{
    size_t own[2] = {0, 0};

    for (size_t i = 0; i < put->page_count; i++) {
        own[put->pages[i]->space_index] += !put->pages[i]->is_span;
    }
    return CHECKPOINT_COST + kvarve_max_u64(own[0], own[1]) * REFERENCE_COST + HEAD_COST <=
           put->store->record_room;
}

bool build_add_put(store_commit *commit, store_put *put)
{
    put_part *parts = put->parts;

    if (!add_part(commit, &parts[0], parent_number(put)) || !add_part(commit, &parts[1], 0)) {
        return false;
    }
    if (parts[1].checkpoint != NULL && !parts[1].is_present) {
        name_companion(commit, parts[0].checkpoint, parts[1].checkpoint);
    }
    for (size_t i = 0; i < put->page_count; i++) { /* repaired pages of a known checkpoint */
        if (put->pages[i]->page->references > 0 && !add_page(commit, put->pages[i]->page)) {
            return false;
        }
    }
    return true;
}

bool build_add_drops(store_commit *commit, bool may_open)
{
    store_machine *store = commit->store;
    const bool opens = may_open && store->wants_drop_record;
    new_record *record;
    kvarve_link *link;
    uint32_t count = 0;

    KVARVE_LIST_FOREACH (link, &store->tombstones_pending) {
        count += count < DROPS_MAX &&
                 tombstone_is_due(store, KVARVE_LIST_ITEM(link, tombstone, pending_link));
    }
    if (count == 0 || (commit->record_count == 0 && !opens)) {
        return true;
    }
    if (commit->record_count == 0 && !open_record(commit)) {
        return false;
    }
    record = current(commit);
    record->batch.drops = kvarve_allocate_array(count, sizeof(uint64_t));
    if (record->batch.drops == NULL) {
        return false;
    }
    KVARVE_LIST_FOREACH (link, &commit->store->tombstones_pending) {
        tombstone *grave = KVARVE_LIST_ITEM(link, tombstone, pending_link);

        if (record->batch.drop_count < count && tombstone_is_due(store, grave) &&
            batch_encoded_size(&record->batch) + 16 < BATCH_BYTES_MAX) {
            record->batch.drops[record->batch.drop_count++] = grave->checkpoint;
            grave->is_in_commit = true;
        }
    }
    return true;
}

bool build_encode(store_commit *commit, new_record *record)
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

/* KVARVE_BUSY: a file for headers is being made; KVARVE_IO: that failed. */
kvarve_status build_place(store_commit *commit, new_record *record)
{
    store_machine *store = commit->store;
    const uint32_t preferred = record->batch.page_count > 0 ? record->batch.pages[0].place.segment
                               : commit->file_count > 0     ? commit->files[0]
                                                            : 0;
    const kvarve_status status =
        segment_reserve_header(store->segments, preferred, record->blocks, &record->batch.place);

    if (status == KVARVE_BUSY) {
        if (room_grow(store, 0, record->blocks)) {
            return KVARVE_BUSY;
        }
        return room_has_failed(store) ? KVARVE_IO : KVARVE_NO_SPACE;
    }
    if (status != KVARVE_OK) {
        return status;
    }
    record->row->place = record->batch.place;
    batch_encode(&record->batch, record->bytes, (size_t)record->blocks * BATCH_BLOCK,
                 &record->used);
    return add_file(commit, record->batch.place.segment) ? KVARVE_OK : KVARVE_NO_MEMORY;
}
