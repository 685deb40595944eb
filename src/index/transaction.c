/*
 * transaction.c - one transaction in the INDEX lane, and the checkpoint after it.
 *
 *          ┌──────────── begin, rows, commit ────────────┐
 *   idle ──┤ all OK                                      ├── done(OK), checkpoint if the log is
 * long │ full disk, rolled back, log cut back        ├── done(NO_SPACE), index stays usable └
 * anything else                               └── done(status), index is failed for good
 *
 * Invariants
 *   T1  KVARVE_OK means committed and synced.
 *   T2  After NO_SPACE no recovery finds the transaction: its frames are cut off the log, durably,
 *       because its commit record may already stand there.
 *   T3  The result of a commit is known before the checkpoint that follows it, and no checkpoint
 *       changes it. A failed sync in the checkpoint makes the index failed.
 *   T4  The log is below log_bytes_max after each transaction, but for one that alone is larger;
 *       then it is emptied at once.
 *
 * Threads: `run` on the INDEX thread; nothing else touches the connection meanwhile. Rows are bound
 * without a copy: the submitter keeps them until done.
 */
#include "base/assert.h"
#include "base/fail.h"
#include "index/index_private.h"

/* Pages that one row may touch beside its own overflow: leaf, two levels above it, their splits. */
#define FRAMES_PER_ROW    4u
#define FRAMES_PER_COMMIT 4u /* first page, list of free pages, padding */
#define OVERFLOW_BYTES    (INDEX_PAGE_BYTES - 4u)

/* Run a statement that returns no row. */
static int run_statement(sqlite3_stmt *statement)
{
    const int rc = sqlite3_step(statement);

    (void)sqlite3_reset(statement);
    if (rc == SQLITE_DONE) {
        return SQLITE_OK;
    }
    return rc == SQLITE_ROW ? SQLITE_CORRUPT : rc;
}

static int run_with(kvarve_index *index, index_statement which, uint64_t first)
{
    sqlite3_stmt *statement = index->statements[which];
    const int rc = sqlite3_bind_int64(statement, 1, (sqlite3_int64)first);

    KVARVE_ASSERT(first > 0 && first <= INT64_MAX);
    return rc == SQLITE_OK ? run_statement(statement) : rc;
}

static int run_with_two(kvarve_index *index, index_statement which, uint64_t first, uint64_t second)
{
    const int rc = sqlite3_bind_int64(index->statements[which], 2, (sqlite3_int64)second);

    KVARVE_ASSERT(second <= INT64_MAX);
    return rc == SQLITE_OK ? run_with(index, which, first) : rc;
}

static int insert_batch(kvarve_index *index, const index_batch *batch)
{
    sqlite3_stmt *statement = index->statements[INDEX_BATCH_INSERT];
    int rc;

    KVARVE_ASSERT(batch->size > 0 && batch->size <= INDEX_BODY_BYTES_MAX);
    rc = sqlite3_bind_blob64(statement, 2, batch->body, batch->size, SQLITE_STATIC);
    if (rc == SQLITE_OK) {
        rc = run_with(index, INDEX_BATCH_INSERT, batch->sequence);
    }
    (void)sqlite3_clear_bindings(statement); /* the body is the submitter's again */
    return rc;
}

static int write_batches(kvarve_index *index, const index_transaction *transaction)
{
    int rc = SQLITE_OK;

    for (size_t i = 0; i < transaction->batch_count && rc == SQLITE_OK; i++) {
        rc = insert_batch(index, &transaction->batches[i]);
    }
    for (size_t i = 0; i < transaction->drop_count && rc == SQLITE_OK; i++) {
        rc = run_with_two(index, INDEX_DROPPED_INSERT, transaction->drops[i].sequence,
                          transaction->drops[i].checkpoint);
    }
    /* Last: a drop of this transaction goes with its batch, too. */
    for (size_t i = 0; i < transaction->dead_batch_count && rc == SQLITE_OK; i++) {
        rc = run_with(index, INDEX_BATCH_DELETE, transaction->dead_batches[i]);
        if (rc == SQLITE_OK) {
            rc = run_with(index, INDEX_DROPPED_DELETE, transaction->dead_batches[i]);
        }
    }
    return rc;
}

static int write_recency(kvarve_index *index, const index_transaction *transaction)
{
    int rc = SQLITE_OK;

    for (size_t i = 0; i < transaction->recency_count && rc == SQLITE_OK; i++) {
        rc = run_with_two(index, INDEX_RECENCY_PUT, transaction->recency[i].checkpoint,
                          transaction->recency[i].used);
    }
    for (size_t i = 0; i < transaction->dead_recency_count && rc == SQLITE_OK; i++) {
        rc = run_with(index, INDEX_RECENCY_DELETE, transaction->dead_recency[i]);
    }
    return rc;
}

static int write_and_commit(kvarve_index *index, const index_transaction *transaction)
{
    int rc = run_statement(index->statements[INDEX_BEGIN]);

    if (rc == SQLITE_OK) {
        rc = write_batches(index, transaction);
    }
    if (rc == SQLITE_OK) {
        rc = write_recency(index, transaction);
    }
    if (rc == SQLITE_OK) {
        rc = run_statement(index->statements[INDEX_COMMIT]);
    }
    if (rc == SQLITE_OK && index->vfs.has_failed_sync) {
        rc = SQLITE_IOERR_FSYNC; /* T1, whatever SQLite made of it */
    }
    return rc;
}

/* Undo a transaction that did not commit. True when it is certain that it did not happen (T2). */
static bool undo(kvarve_index *index, int code)
{
    const bool is_full = (code & 0xff) == SQLITE_FULL && !index->vfs.has_failed_sync;
    int rc = SQLITE_OK;

    if (sqlite3_get_autocommit(index->database) == 0) {
        rc = run_statement(index->statements[INDEX_ROLLBACK]);
    }
    /* After a failed sync the log is cut as well, but a sync is not tried again. */
    return index_vfs_revert_log(&index->vfs, is_full) == 0 && rc == SQLITE_OK && is_full;
}

/* Copy the log into the database; truncate it when `mode` says so. */
static int checkpoint(kvarve_index *index, int mode)
{
    int in_log = 0;
    int copied = 0;
    const int rc = sqlite3_wal_checkpoint_v2(index->database, NULL, mode, &in_log, &copied);

    if (rc != SQLITE_OK) {
        atomic_fetch_add(&index->checkpoints_failed, 1);
        return rc;
    }
    atomic_fetch_add(&index->checkpoints, 1);
    if (in_log == copied) {
        index->frames = 0; /* the next commit starts the log from its beginning */
    }
    return SQLITE_OK;
}

static uint64_t log_end(uint64_t frames)
{
    return frames == 0 ? 0 : INDEX_LOG_HEADER_BYTES + frames * INDEX_FRAME_BYTES;
}

/* Frames that the transaction writes at most, in all but contrived trees. */
static uint64_t frames_of(const index_transaction *transaction)
{
    const uint64_t rows = (uint64_t)transaction->batch_count + transaction->drop_count +
                          2 * (uint64_t)transaction->dead_batch_count + transaction->recency_count +
                          transaction->dead_recency_count;
    uint64_t frames = FRAMES_PER_COMMIT + rows * FRAMES_PER_ROW;

    for (size_t i = 0; i < transaction->batch_count; i++) {
        frames += transaction->batches[i].size / OVERFLOW_BYTES;
    }
    return frames;
}

/* T4, first half: make room in the log. */
static int prepare_log(kvarve_index *index, const index_transaction *transaction)
{
    const uint64_t end = log_end(index->frames + frames_of(transaction));

    if (index->frames == 0 || end <= index->log_bytes_max) {
        return SQLITE_OK;
    }
    return checkpoint(index, SQLITE_CHECKPOINT_TRUNCATE);
}

/* T3 */
static void tend_log(kvarve_index *index)
{
    const bool is_over = atomic_load(&index->vfs.log_bytes) > index->log_bytes_max;

    if (!is_over && index->frames < index->checkpoint_frames) {
        return;
    }
    (void)checkpoint(index, is_over ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_PASSIVE);
    if (index->vfs.has_failed_sync) {
        atomic_store(&index->is_failed, true);
    }
}

/* The log's last commit lost its padding to a power cut (V6 of vfs.c): empty the log, begin again.
 */
static int begin_again(kvarve_index *index, const index_transaction *transaction, int code)
{
    int rc;

    if (!index->vfs.wants_new_log) {
        return code;
    }
    index->vfs.wants_new_log = false;
    if (!undo(index, code)) {
        return SQLITE_IOERR;
    }
    rc = checkpoint(index, SQLITE_CHECKPOINT_TRUNCATE);
    index_vfs_mark_log(&index->vfs);
    return rc == SQLITE_OK ? write_and_commit(index, transaction) : rc;
}

static void run_transaction(kvarve_job *job)
{
    index_transaction *transaction = KVARVE_LIST_ITEM(job, index_transaction, job);
    kvarve_index *index = transaction->index;
    int rc;

    if (atomic_load(&index->is_failed)) {
        transaction->status =
            kvarve_fail(&transaction->error, KVARVE_IO,
                        "the index in %s has failed and takes no writes", index->vfs.directory);
        return;
    }
    rc = prepare_log(index, transaction);
    index_vfs_mark_log(&index->vfs);
    if (rc == SQLITE_OK) {
        rc = begin_again(index, transaction, write_and_commit(index, transaction));
    }
    if (rc != SQLITE_OK) {
        transaction->status = index_fail(index, rc, "commit to", &transaction->error);
        if (!undo(index, rc)) {
            atomic_store(&index->is_failed, true);
        }
        return;
    }
    transaction->status = KVARVE_OK;
    atomic_fetch_add(&index->transactions, 1);
    tend_log(index);
}

static void finish_transaction(kvarve_job *job)
{
    index_transaction *transaction = KVARVE_LIST_ITEM(job, index_transaction, job);

    transaction->done(transaction, transaction->context);
}

void index_submit(kvarve_index *index, index_transaction *transaction)
{
    kvarve_executor *executor;

    index_check(index);
    KVARVE_ASSERT(!index->is_read_only);
    KVARVE_ASSERT(transaction->batch_count + transaction->dead_batch_count +
                      transaction->drop_count + transaction->recency_count +
                      transaction->dead_recency_count >
                  0);
    executor = index->vfs.env->executor;
    transaction->index = index;
    transaction->status = KVARVE_OK;
    transaction->error = (kvarve_error){.status = KVARVE_OK};
    transaction->job =
        (kvarve_job){.lane = KVARVE_LANE_INDEX, .run = run_transaction, .done = finish_transaction};
    kvarve_list_init(&transaction->job.link);
    executor->submit(executor, &transaction->job);
}
