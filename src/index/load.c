/*
 * load.c - read the whole index, and check it.
 *
 * Invariants
 *   L1  A row is handed on only when its types, its range and its order are what a transaction of
 *       ours writes. What the body says is the visitor's to check.
 *   L2  Whatever ends a load, no statement stays open.
 *
 * Threads: as index.h; no transaction is in flight.
 */
#include <string.h>

#include "base/assert.h"
#include "base/fail.h"
#include "index/index_private.h"

/* A number of ours: above 0, which is what uint64 ids look like in SQLite's signed columns. */
static bool read_id(sqlite3_stmt *row, int column, uint64_t *out)
{
    const sqlite3_int64 value = sqlite3_column_int64(row, column);

    *out = (uint64_t)value;
    return sqlite3_column_type(row, column) == SQLITE_INTEGER && value > 0;
}

static kvarve_status refuse_row(const char *table, kvarve_error *err)
{
    return kvarve_fail(err, KVARVE_CORRUPT, INDEX_FILE_NAME " has a row in %s that is not ours",
                       table);
}

typedef struct loader {
    kvarve_index *index;
    const index_visitor *visitor;
    uint64_t last_sequence;
} loader;

typedef kvarve_status (*visit_row)(loader *self, sqlite3_stmt *row, kvarve_error *err);

static kvarve_status visit_batch(loader *self, sqlite3_stmt *row, kvarve_error *err)
{
    const index_visitor *visitor = self->visitor;
    uint64_t sequence = 0;
    const void *body;
    int size;

    if (!read_id(row, 0, &sequence) || sequence <= self->last_sequence ||
        sqlite3_column_type(row, 1) != SQLITE_BLOB) {
        return refuse_row("batch", err);
    }
    self->last_sequence = sequence;
    body = sqlite3_column_blob(row, 1);
    size = sqlite3_column_bytes(row, 1);
    if (body == NULL && size > 0) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "memory for a row of %d bytes", size);
    }
    if (size < 1 || (uint32_t)size > INDEX_BODY_BYTES_MAX) {
        return refuse_row("batch", err);
    }
    return visitor->batch(visitor->context, sequence, body, (size_t)size, err);
}

static kvarve_status visit_dropped(loader *self, sqlite3_stmt *row, kvarve_error *err)
{
    const index_visitor *visitor = self->visitor;
    uint64_t checkpoint = 0;

    if (!read_id(row, 0, &checkpoint)) {
        return refuse_row("dropped", err);
    }
    return visitor->dropped(visitor->context, checkpoint, err);
}

static kvarve_status visit_recency(loader *self, sqlite3_stmt *row, kvarve_error *err)
{
    const index_visitor *visitor = self->visitor;
    const sqlite3_int64 used = sqlite3_column_int64(row, 1);
    uint64_t checkpoint = 0;

    if (!read_id(row, 0, &checkpoint) || sqlite3_column_type(row, 1) != SQLITE_INTEGER ||
        used < 0) {
        return refuse_row("recency", err);
    }
    return visitor->recency(visitor->context, checkpoint, (uint64_t)used, err);
}

static kvarve_status load_table(loader *self, index_statement which, visit_row visit,
                                kvarve_error *err)
{
    sqlite3_stmt *statement = self->index->statements[which];
    kvarve_status status = KVARVE_OK;
    int rc = sqlite3_step(statement);

    while (rc == SQLITE_ROW && status == KVARVE_OK) {
        status = visit(self, statement, err);
        if (status == KVARVE_OK) {
            rc = sqlite3_step(statement);
        }
    }
    if (status == KVARVE_OK && rc != SQLITE_DONE) {
        status = index_fail(self->index, rc, "read", err);
    }
    (void)sqlite3_reset(statement); /* L2 */
    return status;
}

kvarve_status index_load(kvarve_index *index, const index_visitor *visitor, kvarve_error *err)
{
    loader self = {.index = index, .visitor = visitor};
    kvarve_status status;

    index_check(index);
    status = load_table(&self, INDEX_BATCH_SELECT, visit_batch, err);
    if (status == KVARVE_OK) {
        status = load_table(&self, INDEX_DROPPED_SELECT, visit_dropped, err);
    }
    if (status == KVARVE_OK) {
        status = load_table(&self, INDEX_RECENCY_SELECT, visit_recency, err);
    }
    return status;
}

kvarve_status index_verify(kvarve_index *index, kvarve_error *err)
{
    sqlite3_stmt *statement = NULL;
    kvarve_status status = KVARVE_OK;
    int rc;

    index_check(index);
    rc = sqlite3_prepare_v3(index->database, "PRAGMA integrity_check(1)", -1, 0, &statement, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(statement);
    }
    if (rc == SQLITE_ROW) {
        const char *finding = (const char *)sqlite3_column_text(statement, 0);

        if (finding == NULL || strcmp(finding, "ok") != 0) {
            status = kvarve_fail(err, KVARVE_CORRUPT, INDEX_FILE_NAME ": %s",
                                 finding == NULL ? "no answer" : finding);
        }
    } else {
        status = index_fail(index, rc == SQLITE_DONE ? SQLITE_CORRUPT : rc, "check", err);
    }
    (void)sqlite3_finalize(statement);
    return status;
}
