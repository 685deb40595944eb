/*
 * index_private.h - what the files of this folder share: the index object and its statements.
 *
 * Threads: as index.h.
 */
#ifndef KVARVE_INDEX_INDEX_PRIVATE_H
#define KVARVE_INDEX_INDEX_PRIVATE_H

#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "index/index.h"
#include "index/vfs_private.h"

#define INDEX_CHECKPOINT_FRAMES 256u
#define INDEX_BODY_BYTES_MAX    (UINT32_C(1) << 20)
#define INDEX_LOG_BYTES_LEAST   (UINT64_C(1) << 20)

typedef enum index_statement {
    INDEX_BEGIN,
    INDEX_COMMIT,
    INDEX_ROLLBACK,
    INDEX_BATCH_INSERT,
    INDEX_BATCH_DELETE,
    INDEX_DROPPED_INSERT,
    INDEX_DROPPED_DELETE,
    INDEX_RECENCY_PUT,
    INDEX_RECENCY_DELETE,
    INDEX_BATCH_SELECT,
    INDEX_DROPPED_SELECT,
    INDEX_RECENCY_SELECT,
    INDEX_STATEMENT_COUNT,
} index_statement;

struct kvarve_index {
    uint32_t magic;
    index_vfs vfs;
    sqlite3 *database;
    sqlite3_stmt *statements[INDEX_STATEMENT_COUNT];
    bool is_read_only;
    bool is_expected;
    uint64_t log_bytes_max;
    uint32_t checkpoint_frames; /* a log of this many is copied into the database */
    uint64_t frames;            /* in the log and perhaps not yet in the database */
    atomic_bool is_failed;
    _Atomic uint64_t transactions;
    _Atomic uint64_t checkpoints;
    _Atomic uint64_t checkpoints_failed;
};

/* The index, when the handle is one that is open (asserted). */
void index_check(const kvarve_index *index);

/* The status of a result code of SQLite. */
kvarve_status index_status_of(int code);

/* kvarve_fail with what SQLite and the io say about `code`, which is not SQLITE_OK. */
kvarve_status index_fail(kvarve_index *index, int code, const char *attempt, kvarve_error *err);

/* Limits below those that index_open takes, for tests that want many checkpoints. */
void index_set_limits(kvarve_index *index, uint32_t checkpoint_frames, uint64_t log_bytes_max);

#endif
