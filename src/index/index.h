/*
 * index.h - the durable list of living batches, in SQLite. The only folder that knows SQL.
 *
 * Tables (docs/format/index.md): batch(sequence, body), dropped(sequence, checkpoint) by the batch
 * that holds the checkpoint, recency(checkpoint, used). Bodies are opaque here. Numbers are 1 ..
 * 2^63 - 1 (asserted on the way in, KVARVE_CORRUPT on the way out); `used` may be 0.
 *
 * SQLite runs on our io through a private VFS (no global configuration, no shared memory file):
 * WAL, synchronous=FULL, locking_mode=EXCLUSIVE, no checkpoint at close; a passive checkpoint after
 * a commit once the log has 256 frames.
 *
 * Threads  open, load and close block, and are called when no transaction is in flight. A
 * transaction runs as a job in the INDEX lane; its memory belongs to this folder from submit until
 * `done`, called from executor poll. Failure  NO_SPACE before anything was synced leaves the index
 * usable (the transaction did not happen). Any other failed commit makes the index failed: it
 * accepts no more transactions.
 */
#ifndef KVARVE_INDEX_INDEX_H
#define KVARVE_INDEX_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "env/env.h"
#include "kvarve/error.h"

typedef struct kvarve_index kvarve_index;

typedef struct index_options {
    uint64_t log_bytes_max; /* hard cap of the log, 1 MiB or more: at the cap a truncating
                               checkpoint is made before the next commit */
    bool is_expected;  /* there must be one: KVARVE_CORRUPT, and nothing is made, when it is gone */
    bool is_read_only; /* transactions are asserted not to come; no file is changed or made */
} index_options;

/*
 * Open or make DIRECTORY/index.db. KVARVE_CORRUPT: not a database or another application's;
 * KVARVE_UNSUPPORTED: written by a newer version (both named); KVARVE_MISS: absent, and
 * is_read_only.
 */
KVARVE_NODISCARD kvarve_status index_open(const kvarve_env *env, const char *directory,
                                          const index_options *options, kvarve_index **out,
                                          kvarve_error *err);

/* Close without a checkpoint. NULL is a no-op. */
void index_close(kvarve_index *index);

/* Make the database new and empty (rebuild): files are removed first, durably. The index is not
 * open. */
KVARVE_NODISCARD kvarve_status index_remove(const kvarve_env *env, const char *directory,
                                            kvarve_error *err);

typedef struct index_visitor {
    void *context;
    /* Every living batch by rising sequence. `body` is borrowed for the call. Anything but
     * KVARVE_OK ends the load with it. */
    kvarve_status (*batch)(void *context, uint64_t sequence, const void *body, size_t size,
                           kvarve_error *err);
    kvarve_status (*dropped)(void *context, uint64_t checkpoint, kvarve_error *err);
    kvarve_status (*recency)(void *context, uint64_t checkpoint, uint64_t used, kvarve_error *err);
} index_visitor;

/* Read everything: batches, then drops, then recency. KVARVE_CORRUPT when SQLite says so. */
KVARVE_NODISCARD kvarve_status index_load(kvarve_index *index, const index_visitor *visitor,
                                          kvarve_error *err);

typedef struct index_batch {
    uint64_t sequence;
    const void *body; /* borrowed until done */
    size_t size;
} index_batch;

typedef struct index_drop {
    uint64_t checkpoint;
    uint64_t sequence; /* of the batch that holds it: deleted with that batch's row */
} index_drop;

typedef struct index_recency {
    uint64_t checkpoint;
    uint64_t used;
} index_recency;

/* One transaction. Arrays are borrowed until done. */
typedef struct index_transaction index_transaction;
struct index_transaction {
    const index_batch *batches;
    size_t batch_count;
    const uint64_t *dead_batches; /* sequences whose rows go */
    size_t dead_batch_count;
    const index_drop *drops;
    size_t drop_count;
    const index_recency *recency; /* inserted or replaced */
    size_t recency_count;
    const uint64_t *dead_recency; /* checkpoints whose recency rows go */
    size_t dead_recency_count;
    void (*done)(index_transaction *transaction, void *context);
    void *context;
    /* ---- */
    kvarve_status status; /* out */
    kvarve_error error;   /* out */
    kvarve_job job;
    kvarve_index *index;
};

/* Run the transaction in the INDEX lane; done is called once. Asserts that it is not empty. */
void index_submit(kvarve_index *index, index_transaction *transaction);

typedef struct index_counters {
    uint64_t database_bytes;         /* size of index.db */
    uint64_t log_bytes;              /* size of the log now */
    uint64_t log_bytes_written;      /* since open */
    uint64_t database_bytes_written; /* by checkpoints, since open */
    uint64_t transactions;
    uint64_t checkpoints;
    uint64_t checkpoints_failed; /* the log still holds what they would have copied */
} index_counters;

/* Counters now; they stand still while no transaction is in flight. Threads: any. */
void index_count(const kvarve_index *index, index_counters *out);

/* A commit or sync has failed. Threads: any. */
bool index_is_failed(const kvarve_index *index);

/* Check the whole database (PRAGMA integrity_check). Blocks. KVARVE_CORRUPT with the first finding.
 */
KVARVE_NODISCARD kvarve_status index_verify(kvarve_index *index, kvarve_error *err);

#endif
