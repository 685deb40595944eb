/*
 * vfs_private.h - SQLite's file layer over a kvarve_io, one per index.
 *
 * It knows three files of one directory: the database, its log (WAL) and the rollback journal that
 * SQLite uses once, when the database is made. Locks are no-ops: the store's lock file has one
 * owner and the connection is exclusive.
 *
 * Threads: one at a time, as the index; the counters are atomic and may be read from any thread.
 */
#ifndef KVARVE_INDEX_VFS_PRIVATE_H
#define KVARVE_INDEX_VFS_PRIVATE_H

#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "env/env.h"

#define INDEX_FILE_NAME    "index.db"
#define INDEX_LOG_NAME     "index.db-wal"
#define INDEX_JOURNAL_NAME "index.db-journal"

#define INDEX_PAGE_BYTES       4096
#define INDEX_LOG_HEADER_BYTES 32u
#define INDEX_FRAME_HEAD_BYTES 24u
#define INDEX_FRAME_BYTES      (INDEX_PAGE_BYTES + INDEX_FRAME_HEAD_BYTES)

typedef struct index_vfs {
    sqlite3_vfs base;
    const kvarve_env *env;
    bool is_read_only;
    bool has_failed_sync;      /* since init; never cleared */
    int os_errno;              /* of the last failed call, positive; 0: none since it was cleared */
    kvarve_fd log_fd;          /* borrowed from SQLite's open log file; -1 while there is none */
    uint64_t log_lowest_write; /* since index_vfs_mark_log; UINT64_MAX: nothing was written */
    bool is_log_end_known;     /* the log was written since it was opened, or was begun anew */
    bool wants_new_log;        /* a write was refused (V6): the log is to be emptied first */
    _Atomic uint64_t database_bytes;
    _Atomic uint64_t database_bytes_written;
    _Atomic uint64_t log_bytes;
    _Atomic uint64_t log_bytes_written;
    char name[32];
    char directory[KVARVE_PATH_MAX];
} index_vfs;

/* Fill and register under a name of its own, not as the default. SQLITE_OK or SQLITE_NOMEM. The
 * struct stays where it is until deinit. `directory` fits. */
int index_vfs_init(index_vfs *vfs, const kvarve_env *env, const char *directory, bool is_read_only);

/* Unregister. No file is open. */
void index_vfs_deinit(index_vfs *vfs);

/* Sync the log and the directory, so that all that can be read now is durable. 0 or -errno. */
int index_vfs_settle(index_vfs *vfs);

/* From here on the lowest offset written to the log is remembered. */
void index_vfs_mark_log(index_vfs *vfs);

/*
 * Cut the log off where it was first written since the mark, so that a transaction that SQLite has
 * rolled back is not found by the next recovery. With `is_durable` also sync it. 0 or -errno.
 */
int index_vfs_revert_log(index_vfs *vfs, bool is_durable);

#endif
