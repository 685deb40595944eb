/*
 * vfs.c - the SQLite VFS of one index, over the env's io.
 *
 * Invariants
 *   V1  One VFS call is one io call (or one loop of io_all.h): what the simulator can fail is all
 *       that can happen.
 *   V2  The first sync of a file also syncs the directory, since whoever made the name may not have
 *       done it: a synced file is there after a power cut.
 *   V3  A failed sync is never reported as a full disk, and is remembered for good.
 *   V4  Read only means that nothing is created, written, truncated or removed.
 *   V5  No device characteristic is promised. Above all not POWERSAFE_OVERWRITE: SQLite therefore
 *       pads each commit to a whole sector, and a sector torn later holds no older commit.
 *   V6  What follows a commit in its sector is that padding: where a power cut has destroyed the
 *       padding, nothing is written behind the commit; the log is emptied first.
 *
 * Threads and ownership: see vfs_private.h. Deliberately absent: shared memory (the connection is
 * exclusive), temporary files (temp_store is memory), loading of extensions.
 */
#include "index/vfs_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "env/io_all.h"

#define SECTOR_BYTES    4096
#define FILE_MODE       0600u
#define JULIAN_EPOCH_MS INT64_C(210866760000000) /* 1970 in SQLite's milliseconds */
#define MS_PER_S        1000
#define MS_PER_DAY      86400000.0
#define NO_FD           (-1)
#define WAL_PIECE       ((size_t)512)

typedef struct index_file {
    sqlite3_file base;
    index_vfs *vfs;
    kvarve_fd fd; /* NO_FD: a log that is absent and, read only, reads as empty */
    bool is_log;
    bool is_database;
    bool is_name_durable;
} index_file;

static index_file *file_of(sqlite3_file *file)
{
    return (index_file *)(void *)file;
}

static index_vfs *vfs_of(sqlite3_vfs *vfs)
{
    return (index_vfs *)(void *)vfs;
}

/* Remember why; `code` is what SQLite gets to know. */
static int refuse(index_vfs *vfs, int negative_errno, int code)
{
    vfs->os_errno = -negative_errno;
    return code;
}

static bool is_full(int negative_errno)
{
    return negative_errno == -ENOSPC || negative_errno == -EDQUOT;
}

static int refuse_sync(index_vfs *vfs, int negative_errno, int code)
{
    vfs->has_failed_sync = true; /* V3 */
    return refuse(vfs, negative_errno, code);
}

static void set_size(index_file *file, uint64_t size)
{
    if (file->is_log) {
        atomic_store(&file->vfs->log_bytes, size);
    } else if (file->is_database) {
        atomic_store(&file->vfs->database_bytes, size);
    }
}

static void note_write(index_file *file, uint64_t offset, uint64_t size)
{
    index_vfs *vfs = file->vfs;

    if (file->is_log) {
        atomic_fetch_add(&vfs->log_bytes_written, size);
        if (offset < vfs->log_lowest_write) {
            vfs->log_lowest_write = offset;
        }
        if (offset + size > atomic_load(&vfs->log_bytes)) {
            atomic_store(&vfs->log_bytes, offset + size);
        }
    } else if (file->is_database) {
        atomic_fetch_add(&vfs->database_bytes_written, size);
        if (offset + size > atomic_load(&vfs->database_bytes)) {
            atomic_store(&vfs->database_bytes, offset + size);
        }
    }
}

static int file_close(sqlite3_file *base)
{
    index_file *file = file_of(base);

    if (file->fd != NO_FD) {
        file->vfs->env->io->ops->close(file->vfs->env->io, file->fd);
    }
    if (file->is_log) {
        file->vfs->log_fd = NO_FD;
    }
    file->fd = NO_FD;
    file->base.pMethods = NULL;
    return SQLITE_OK;
}

static int file_read(sqlite3_file *base, void *bytes, int size, sqlite3_int64 offset)
{
    index_file *file = file_of(base);
    int rc = -ENODATA;

    KVARVE_ASSERT(size >= 0 && offset >= 0);
    memset(bytes, 0, (size_t)size); /* what lies behind the end reads as zeroes */
    if (file->fd != NO_FD) {
        rc = io_read_all(file->vfs->env->io, file->fd, bytes, (size_t)size, (uint64_t)offset);
    }
    if (rc == -ENODATA) {
        return SQLITE_IOERR_SHORT_READ;
    }
    return rc < 0 ? refuse(file->vfs, rc, SQLITE_IOERR_READ) : SQLITE_OK;
}

/* Does the frame before `end` repeat the one before that: page, size of the database, content?
 * 1, 0 or -errno. */
static int is_padding(const index_file *file, uint64_t end)
{
    kvarve_io *io = file->vfs->env->io;
    uint8_t last[WAL_PIECE];
    uint8_t before[WAL_PIECE];
    uint64_t at = end - INDEX_FRAME_BYTES;
    size_t size = INDEX_FRAME_HEAD_BYTES;
    int rc = 0;

    for (; at < end; at += size, size = WAL_PIECE) {
        const size_t compared = size == WAL_PIECE ? WAL_PIECE : 8; /* without salts and checksums */

        size = size < end - at ? size : (size_t)(end - at);
        rc = io_read_all(io, file->fd, last, size, at);
        if (rc == 0) {
            rc = io_read_all(io, file->fd, before, size, at - INDEX_FRAME_BYTES);
        }
        if (rc != 0 || memcmp(last, before, compared < size ? compared : size) != 0) {
            return rc;
        }
    }
    return 1;
}

/* V6, before the first write since the log was opened. */
static int check_log_end(index_file *file, uint64_t end)
{
    index_vfs *vfs = file->vfs;
    int rc = 1;

    if (end > INDEX_LOG_HEADER_BYTES && end % SECTOR_BYTES != 0) {
        rc = end < INDEX_LOG_HEADER_BYTES + 2 * INDEX_FRAME_BYTES ? 0 : is_padding(file, end);
    }
    if (rc < 0) {
        return refuse(vfs, rc, SQLITE_IOERR_READ);
    }
    vfs->wants_new_log = rc == 0;
    vfs->is_log_end_known = rc == 1;
    return rc == 1 ? SQLITE_OK : SQLITE_FULL;
}

static int file_write(sqlite3_file *base, const void *bytes, int size, sqlite3_int64 offset)
{
    index_file *file = file_of(base);
    int rc;

    KVARVE_ASSERT(size >= 0 && offset >= 0);
    if (file->vfs->is_read_only) {
        return SQLITE_READONLY; /* V4 */
    }
    if (file->is_log && !file->vfs->is_log_end_known) {
        rc = check_log_end(file, (uint64_t)offset);
        if (rc != SQLITE_OK) {
            return rc;
        }
    }
    /* Noted before the call: a failed write may have written a part. */
    note_write(file, (uint64_t)offset, (uint64_t)size);
    rc = io_write_all(file->vfs->env->io, file->fd, bytes, (size_t)size, (uint64_t)offset);
    if (rc < 0) {
        return refuse(file->vfs, rc, is_full(rc) ? SQLITE_FULL : SQLITE_IOERR_WRITE);
    }
    return SQLITE_OK;
}

static int file_truncate(sqlite3_file *base, sqlite3_int64 size)
{
    index_file *file = file_of(base);
    int rc;

    KVARVE_ASSERT(size >= 0);
    if (file->vfs->is_read_only) {
        return SQLITE_READONLY; /* V4 */
    }
    rc = file->vfs->env->io->ops->truncate(file->vfs->env->io, file->fd, (uint64_t)size);
    if (rc < 0) {
        return refuse(file->vfs, rc, SQLITE_IOERR_TRUNCATE);
    }
    set_size(file, (uint64_t)size);
    file->vfs->is_log_end_known = file->vfs->is_log_end_known || file->is_log;
    return SQLITE_OK;
}

static int file_sync(sqlite3_file *base, int flags)
{
    index_file *file = file_of(base);
    index_vfs *vfs = file->vfs;
    kvarve_io *io = vfs->env->io;
    int rc;

    (void)flags;
    if (vfs->is_read_only) {
        return SQLITE_OK; /* nothing was written */
    }
    rc = io->ops->sync(io, file->fd);
    if (rc < 0) {
        return refuse_sync(vfs, rc, SQLITE_IOERR_FSYNC);
    }
    if (!file->is_name_durable) {
        rc = io->ops->sync_directory(io, vfs->directory); /* V2 */
        if (rc < 0) {
            return refuse_sync(vfs, rc, SQLITE_IOERR_DIR_FSYNC);
        }
        file->is_name_durable = true;
    }
    return SQLITE_OK;
}

static int file_size(sqlite3_file *base, sqlite3_int64 *out_size)
{
    index_file *file = file_of(base);
    kvarve_file_stat stat = {.size = 0};
    int rc = 0;

    if (file->fd != NO_FD) {
        rc = file->vfs->env->io->ops->stat_fd(file->vfs->env->io, file->fd, &stat);
    }
    if (rc < 0 || stat.size > INT64_MAX) {
        return refuse(file->vfs, rc, SQLITE_IOERR_FSTAT);
    }
    *out_size = (sqlite3_int64)stat.size;
    return SQLITE_OK;
}

static int file_lock(sqlite3_file *base, int level)
{
    (void)base;
    (void)level;
    return SQLITE_OK;
}

static int file_check_reserved_lock(sqlite3_file *base, int *out_is_reserved)
{
    (void)base;
    *out_is_reserved = 0;
    return SQLITE_OK;
}

static int file_control(sqlite3_file *base, int operation, void *argument)
{
    (void)base;
    if (operation == SQLITE_FCNTL_PERSIST_WAL) {
        *(int *)argument = 1; /* closing removes no log */
        return SQLITE_OK;
    }
    return SQLITE_NOTFOUND;
}

static int file_sector_size(sqlite3_file *base)
{
    (void)base;
    return SECTOR_BYTES;
}

static int file_characteristics(sqlite3_file *base)
{
    (void)base;
    return 0; /* V5 */
}

/* Version 1: no shared memory and no mapped reads, so WAL works in exclusive mode alone. */
static const sqlite3_io_methods file_methods = {
    .iVersion = 1,
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xLock = file_lock,
    .xUnlock = file_lock,
    .xCheckReservedLock = file_check_reserved_lock,
    .xFileControl = file_control,
    .xSectorSize = file_sector_size,
    .xDeviceCharacteristics = file_characteristics,
};

static int open_fd(index_vfs *vfs, const char *path, bool is_log, kvarve_fd *out_fd)
{
    kvarve_io *io = vfs->env->io;
    int rc;

    rc = io->ops->open(io, path, vfs->is_read_only ? KVARVE_OPEN_READ : 0, 0, out_fd);
    if (rc != -ENOENT) {
        return rc;
    }
    if (!vfs->is_read_only) {
        return io->ops->open(io, path, KVARVE_OPEN_CREATE, FILE_MODE, out_fd);
    }
    if (is_log) {
        *out_fd = NO_FD; /* V4: it reads as empty and is not made */
        return 0;
    }
    return rc;
}

/* The counters know the sizes from the start. */
static int learn_size(index_file *file)
{
    sqlite3_int64 size = 0;
    const int rc = file_size(&file->base, &size);

    if (rc == SQLITE_OK) {
        set_size(file, (uint64_t)size);
    }
    return rc;
}

static int vfs_open(sqlite3_vfs *base, const char *path, sqlite3_file *out, int flags,
                    int *out_flags)
{
    index_vfs *vfs = vfs_of(base);
    index_file *file = file_of(out);
    const bool is_log = (flags & SQLITE_OPEN_WAL) != 0;
    const bool is_database = (flags & SQLITE_OPEN_MAIN_DB) != 0;
    int rc;

    memset(file, 0, sizeof *file); /* no methods: SQLite does not close what did not open */
    if (path == NULL || !(is_log || is_database || (flags & SQLITE_OPEN_MAIN_JOURNAL) != 0)) {
        return SQLITE_CANTOPEN; /* a temporary file */
    }
    file->vfs = vfs;
    file->is_log = is_log;
    file->is_database = is_database;
    rc = open_fd(vfs, path, is_log, &file->fd);
    if (rc < 0) {
        return refuse(vfs, rc, SQLITE_CANTOPEN);
    }
    rc = learn_size(file);
    if (rc != SQLITE_OK) {
        (void)file_close(&file->base);
        return rc;
    }
    if (is_log) {
        vfs->log_fd = file->fd;
    }
    if (out_flags != NULL) {
        *out_flags = vfs->is_read_only ? SQLITE_OPEN_READONLY : flags;
    }
    file->base.pMethods = &file_methods;
    return SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *base, const char *path, int is_durable)
{
    index_vfs *vfs = vfs_of(base);
    kvarve_io *io = vfs->env->io;
    int rc;

    if (vfs->is_read_only) {
        return SQLITE_READONLY; /* V4 */
    }
    rc = io->ops->unlink(io, path);
    if (rc == -ENOENT) {
        return SQLITE_IOERR_DELETE_NOENT;
    }
    if (rc < 0) {
        return refuse(vfs, rc, SQLITE_IOERR_DELETE);
    }
    rc = is_durable != 0 ? io->ops->sync_directory(io, vfs->directory) : 0;
    return rc < 0 ? refuse_sync(vfs, rc, SQLITE_IOERR_DIR_FSYNC) : SQLITE_OK;
}

/* As SQLite's own VFS, an empty file counts as absent: an empty journal is not hot. */
static int vfs_access(sqlite3_vfs *base, const char *path, int flags, int *out_answer)
{
    index_vfs *vfs = vfs_of(base);
    kvarve_io *io = vfs->env->io;
    kvarve_file_stat stat = {.size = 0};
    const int rc = io->ops->stat(io, path, &stat);

    (void)flags;
    if (rc < 0 && rc != -ENOENT) {
        return refuse(vfs, rc, SQLITE_IOERR_ACCESS);
    }
    *out_answer = rc == 0 && stat.size > 0;
    return SQLITE_OK;
}

static int vfs_full_path(sqlite3_vfs *base, const char *name, int size, char *out)
{
    index_vfs *vfs = vfs_of(base);

    if (io_join_path(out, (size_t)size, vfs->directory, name) < 0) {
        return SQLITE_CANTOPEN;
    }
    return SQLITE_OK;
}

static int vfs_randomness(sqlite3_vfs *base, int size, char *out)
{
    index_vfs *vfs = vfs_of(base);

    /* SQLite has no way to hear a failure; its salts then are less random, nothing else. */
    return vfs->env->random->fill(vfs->env->random, out, (size_t)size) == 0 ? size : 0;
}

static int vfs_sleep(sqlite3_vfs *base, int microseconds)
{
    (void)base;
    (void)microseconds;
    return 0;
}

static int vfs_current_time_ms(sqlite3_vfs *base, sqlite3_int64 *out)
{
    kvarve_clock *clock = vfs_of(base)->env->clock;

    *out = JULIAN_EPOCH_MS + clock->wall_s(clock) * MS_PER_S;
    return SQLITE_OK;
}

static int vfs_current_time(sqlite3_vfs *base, double *out_days)
{
    sqlite3_int64 milliseconds = 0;
    const int rc = vfs_current_time_ms(base, &milliseconds);

    *out_days = (double)milliseconds / MS_PER_DAY;
    return rc;
}

static int vfs_last_error(sqlite3_vfs *base, int size, char *out)
{
    if (size > 0) {
        out[0] = '\0';
    }
    return vfs_of(base)->os_errno;
}

int index_vfs_init(index_vfs *vfs, const kvarve_env *env, const char *directory, bool is_read_only)
{
    KVARVE_ASSERT(strlen(directory) < sizeof vfs->directory);

    memset(vfs, 0, sizeof *vfs);
    vfs->env = env;
    vfs->is_read_only = is_read_only;
    vfs->log_fd = NO_FD;
    vfs->log_lowest_write = UINT64_MAX;
    memcpy(vfs->directory, directory, strlen(directory) + 1);
    /* The address is this object's alone for as long as the name is registered. */
    (void)snprintf(vfs->name, sizeof vfs->name, "kvarve-%p", (void *)vfs);
    vfs->base = (sqlite3_vfs){
        .iVersion = 2,
        .szOsFile = sizeof(index_file),
        .mxPathname = KVARVE_PATH_MAX,
        .zName = vfs->name,
        .xOpen = vfs_open,
        .xDelete = vfs_delete,
        .xAccess = vfs_access,
        .xFullPathname = vfs_full_path,
        .xRandomness = vfs_randomness,
        .xSleep = vfs_sleep,
        .xCurrentTime = vfs_current_time,
        .xGetLastError = vfs_last_error,
        .xCurrentTimeInt64 = vfs_current_time_ms,
    };
    return sqlite3_vfs_register(&vfs->base, 0);
}

void index_vfs_deinit(index_vfs *vfs)
{
    (void)sqlite3_vfs_unregister(&vfs->base);
}

int index_vfs_settle(index_vfs *vfs)
{
    kvarve_io *io = vfs->env->io;
    int rc = 0;

    if (vfs->is_read_only) {
        return 0;
    }
    if (vfs->log_fd != NO_FD) {
        rc = io->ops->sync(io, vfs->log_fd);
    }
    if (rc == 0) {
        rc = io->ops->sync_directory(io, vfs->directory);
    }
    vfs->has_failed_sync = vfs->has_failed_sync || rc < 0;
    return rc;
}

void index_vfs_mark_log(index_vfs *vfs)
{
    vfs->log_lowest_write = UINT64_MAX;
}

int index_vfs_revert_log(index_vfs *vfs, bool is_durable)
{
    kvarve_io *io = vfs->env->io;
    int rc;

    if (vfs->log_fd == NO_FD || vfs->log_lowest_write == UINT64_MAX) {
        return 0;
    }
    rc = io->ops->truncate(io, vfs->log_fd, vfs->log_lowest_write);
    if (rc < 0) {
        return rc;
    }
    atomic_store(&vfs->log_bytes, vfs->log_lowest_write);
    rc = is_durable ? io->ops->sync(io, vfs->log_fd) : 0;
    vfs->has_failed_sync = vfs->has_failed_sync || rc < 0;
    return rc;
}
