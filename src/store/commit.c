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
#include "store/commit_private.h"

#define COMMIT_PUTS_MAX  4096u
#define COMMIT_RETRY_NS  (10 * KVARVE_NS_PER_S)
#define RECENCY_EVERY_NS (60 * KVARVE_NS_PER_S)
#define RECENCY_MAX      16384u

bool commit_is_idle(const store_machine *store)
{
    return store->commit == NULL;
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
        if (!is_durable) {
            page->id = 0; /* no record that counts has it: the next commit makes one */
        }
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
            kvarve_list_append(&commit->store->unwiped, &row->link);
        } else {
            kvarve_release(row);
        }
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
        store->is_commit_blocked = false;
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
    wipe_start(store);
    limbo_settle(store);
    kvarve_list_init(&puts);
    while ((link = kvarve_list_take_first(&commit->puts)) != NULL) {
        kvarve_list_append(&puts, link);
    }
    store->commit = NULL;
    store->wants_drop_record =
        store->wants_drop_record && !kvarve_list_is_empty(&store->tombstones_pending);
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
    kvarve_release(commit->batches);
    kvarve_release(commit->records);
    kvarve_release(commit);
    put_settle_awaited(store);
    room_limit_checkpoints(store);
    put_give_room(store);
    store->wants_commit = true; /* for commit_start: it called this, or store_poll calls it next */
}

/* The record was not written: its row is in no index, and its header blocks are free at once. */
static void discard_row(store_machine *store, new_record *record)
{
    if (record->row == NULL) {
        return;
    }
    kvarve_list_remove(&record->row->link);
    if (record->row->place.segment != 0) {
        segment_free_header(store->segments, record->row->place);
    }
    kvarve_release(record->row);
    record->row = NULL;
}

static record_numbers next_numbers(const store_machine *store)
{
    return (record_numbers){.sequence = store->next_sequence,
                            .page = store->next_page,
                            .span = store->next_span,
                            .checkpoint = store->next_commit_checkpoint};
}

/* No record has them: a large put that is built again and again does not use an epoch's up. */
static void give_numbers_back(const store_commit *commit)
{
    store_machine *store = commit->store;

    store->next_sequence = commit->before.sequence;
    store->next_page = commit->before.page;
    store->next_span = commit->before.span;
    store->next_commit_checkpoint = commit->before.checkpoint;
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
        new_record *record = &commit->records[i];

        for (uint32_t k = 0; k < record->batch.checkpoint_count; k++) {
            record->checkpoints[k]->number = 0; /* given again, to whomever */
        }
        discard_row(store, record);
        let_go_of_record(commit, record, false);
    }
    give_numbers_back(commit);
    kvarve_release(commit->files);
    kvarve_release(commit->batches);
    kvarve_release(commit->records);
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
    } else {
        store->is_commit_blocked = true;
        store->commit_retry_ns = store_now(store) + COMMIT_RETRY_NS;
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

/* --- identity documents, and the epoch --- */

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

static int write_documents_of(const store_put *put)
{
    int result = 0;

    for (size_t i = 0; i < 2 && result == 0; i++) {
        if (lacks_document(&put->parts[i])) {
            result = write_document(put->store, put->parts[i].space);
        }
    }
    return result;
}

static void run_documents(kvarve_job *job)
{
    document_job *documents = KVARVE_LIST_ITEM(job, document_job, job);
    const store_commit *commit = documents->commit;
    kvarve_link *link;

    if (commit->record_count > 0 && !commit->store->is_epoch_kept) {
        documents->result = epoch_keep(commit->store);
    }
    KVARVE_LIST_FOREACH (link, &commit->puts) {
        if (documents->result == 0) {
            documents->result = write_documents_of(KVARVE_LIST_ITEM(link, store_put, queue));
        }
    }
}

static void note_documents_of(const store_put *put)
{
    for (size_t i = 0; i < 2; i++) {
        if (lacks_document(&put->parts[i])) {
            put->parts[i].space->is_document_kept = true;
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
    commit->store->is_epoch_kept = commit->store->is_epoch_kept || commit->record_count > 0;
    KVARVE_LIST_FOREACH (link, &commit->puts) {
        note_documents_of(KVARVE_LIST_ITEM(link, store_put, queue));
    }
    submit_headers(commit);
}

static bool needs_documents(const store_commit *commit)
{
    kvarve_link *link;

    if (commit->record_count > 0 && !commit->store->is_epoch_kept) {
        return true;
    }
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

    while (count++ < COMMIT_PUTS_MAX && commit->record_count < COMMIT_RECORDS_AIM &&
           (link = kvarve_list_take_first(&store->commit_queue)) != NULL) {
        store_put *put = KVARVE_LIST_ITEM(link, store_put, queue);

        put->is_in_commit = true;
        kvarve_list_append(&commit->puts, link);
        if (!build_add_put(commit, put)) {
            return false;
        }
    }
    return true;
}

/* Build and place the records. Anything but KVARVE_OK: undo. */
static kvarve_status build(store_commit *commit, bool has_puts)
{
    kvarve_status status = KVARVE_OK;

    if ((has_puts && !take_puts(commit)) || !build_add_drops(commit, has_puts)) {
        return KVARVE_NO_MEMORY;
    }
    for (uint32_t i = 0; i < commit->record_count && status == KVARVE_OK; i++) {
        status = build_encode(commit, &commit->records[i])
                     ? build_place(commit, &commit->records[i])
                     : KVARVE_NO_MEMORY;
    }
    commit->batches = kvarve_allocate_array(commit->record_count + 1, sizeof(index_batch));
    return commit->batches == NULL ? KVARVE_NO_MEMORY : status;
}

static bool has_tombstone(const store_machine *store, bool is_due)
{
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &store->tombstones_pending) {
        if (tombstone_is_due(store, KVARVE_LIST_ITEM(link, tombstone, pending_link)) == is_due) {
            return true;
        }
    }
    return false;
}

static bool wants_drop_record(const store_machine *store)
{
    return store->wants_drop_record && has_tombstone(store, true);
}

static bool has_work(const store_machine *store)
{
    const bool has_drops = store->drop_count > 0 || !kvarve_list_is_empty(&store->dead_batches) ||
                           store->limbo_count > 0;

    return !kvarve_list_is_empty(&store->commit_queue) || (has_drops && store->wants_transaction) ||
           wants_drop_record(store) || (store->is_shutting_down && store->recency_dirty > 0);
}

static void refuse_queue(store_machine *store, uint8_t refusal)
{
    kvarve_link *link;

    while ((link = kvarve_list_take_first(&store->commit_queue)) != NULL) {
        put_fail_commit(KVARVE_LIST_ITEM(link, store_put, queue), refusal);
    }
}

/* Without a record for the drops alone: a later one carries them. */
static void give_up_drop_record(store_machine *store)
{
    store->wants_drop_record = false;
    store->wants_commit = true;
}

static bool is_empty(const store_commit *commit)
{
    return commit->record_count == 0 && commit->transaction.dead_batch_count == 0 &&
           commit->drop_count == 0 && commit->recency_count == 0 && commit->dead_recency_count == 0;
}

/* One commit, with the puts that wait or of drops alone. Anything but KVARVE_OK: it did not begin.
 */
static kvarve_status begin_commit(store_machine *store, bool has_puts)
{
    store_commit *commit = kvarve_allocate(sizeof *commit);
    kvarve_status status;

    if (commit == NULL) {
        return KVARVE_NO_MEMORY;
    }
    commit->store = store;
    commit->before = next_numbers(store);
    kvarve_list_init(&commit->puts);
    kvarve_list_init(&commit->dead_rows);
    status = build(commit, has_puts);
    if (status == KVARVE_OK && !take_drops(commit)) {
        status = KVARVE_NO_MEMORY;
    }
    if (status != KVARVE_OK) {
        undo_commit(commit);
        return status;
    }
    take_recency(commit);
    store->wants_transaction = false;
    if (commit->record_count > 0) { /* should it fail, a later record carries them */
        store->wants_drop_record = store->wants_drop_record && has_tombstone(store, false);
    }
    commit->generation = store->generation++;
    store->commit = commit;
    if (is_empty(commit)) { /* nothing is on flash that would have to go first */
        finish_commit(commit, true);
    } else {
        submit_documents(commit);
    }
    return KVARVE_OK;
}

static void start_one(store_machine *store)
{
    kvarve_status status;

    if (store->is_failed) {
        refuse_queue(store, KVARVE_REFUSED_FAILED);
        return;
    }
    status = begin_commit(store, true);
    if (status == KVARVE_NO_SPACE && wipe_is_due(store)) {
        return; /* blocks are about to be free: wipe_done calls again */
    }
    if (status == KVARVE_NO_SPACE && kvarve_list_is_empty(&store->commit_queue)) {
        give_up_drop_record(store);
        return;
    }
    if (status == KVARVE_NO_SPACE && room_evict_record(store)) {
        status = begin_commit(store, false); /* its end asks for the next */
    }
    if (status != KVARVE_OK && status != KVARVE_BUSY) { /* BUSY: grow_done calls again */
        refuse_queue(store, status == KVARVE_NO_SPACE ? KVARVE_REFUSED_NO_ROOM_FLASH
                            : status == KVARVE_IO     ? KVARVE_REFUSED_IO
                                                      : KVARVE_REFUSED_LIMIT);
    }
}

/* A commit may end while it is begun, and its end calls here through the puts: then the call that
 * runs already goes on, and no stack grows. */
void commit_start(store_machine *store)
{
    store->wants_commit = true;
    if (store->is_starting_commit) {
        return;
    }
    store->is_starting_commit = true;
    while (store->wants_commit && store->commit == NULL && !store->is_read_only &&
           has_work(store)) {
        store->wants_commit = false;
        start_one(store);
    }
    store->is_starting_commit = false;
}
