/*
 * index.c - open, identify, make, verify, remove and close the database.
 *
 * Invariants
 *   O1  What index_load shows is durable: open syncs the log and the directory first. A process
 * that was killed may have left a commit in the page cache alone, and space that it freed must not
 *       be used again while a power cut could bring the old rows back.
 *   O2  A database is ours when its application_id, its version and its very schema are; anything
 *       else is refused untouched. One without any content is new.
 *   O3  The schema, the application_id and the version are written in one transaction.
 *   O4  Removing goes database first, durably: a log without its database is ignored, a database
 *       without its log would be an older truth.
 *   O5  A database that a checkpoint has written (only that brings the application_id into the
 * file) has its log beside it, if an empty one: without it, it is an older state, and is refused.
 *   O6  Nothing is configured for the whole process; the connection has its own VFS and no mutex.
 *
 * Threads and ownership: see index.h. SQLite's memory comes from its own allocator, since taking
 * that over would be a global setting; cache_size bounds it.
 */
#include "index/index_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/fail.h"
#include "env/io_all.h"

#define INDEX_MAGIC           UINT32_C(0x6b764958)
#define APPLICATION_ID        0x6b766172 /* "kvar" */
#define APPLICATION_ID_OFFSET 68u        /* in the file, big endian */
#define SCHEMA_VERSION        1
#define LENGTH_LIMIT          ((int)INDEX_BODY_BYTES_MAX + 4096)
#define NAME_BYTES_MAX        32 /* "/index.db-journal" and what SQLite may add */
#define STRINGIFY_VALUE(x)    #x
#define STRINGIFY(x)          STRINGIFY_VALUE(x)

typedef struct table {
    const char *name;
    const char *sql; /* as sqlite_schema keeps it */
} table;

/* By rising name, as check_schema reads them. */
static const table tables[] = {
    {"batch", "CREATE TABLE batch(sequence INTEGER PRIMARY KEY, body BLOB NOT NULL)"},
    {"dropped", "CREATE TABLE dropped(sequence INTEGER NOT NULL, checkpoint INTEGER NOT NULL, "
                "PRIMARY KEY(sequence, checkpoint)) WITHOUT ROWID"},
    {"recency", "CREATE TABLE recency(checkpoint INTEGER PRIMARY KEY, used INTEGER NOT NULL)"},
};

#define TABLE_COUNT (sizeof tables / sizeof tables[0])

static const char *const statement_texts[INDEX_STATEMENT_COUNT] = {
    [INDEX_BEGIN] = "BEGIN IMMEDIATE",
    [INDEX_COMMIT] = "COMMIT",
    [INDEX_ROLLBACK] = "ROLLBACK",
    [INDEX_BATCH_INSERT] = "INSERT INTO batch(sequence, body) VALUES(?1, ?2)",
    [INDEX_BATCH_DELETE] = "DELETE FROM batch WHERE sequence = ?1",
    [INDEX_DROPPED_INSERT] = "INSERT OR IGNORE INTO dropped(sequence, checkpoint) VALUES(?1, ?2)",
    [INDEX_DROPPED_DELETE] = "DELETE FROM dropped WHERE sequence = ?1",
    [INDEX_RECENCY_PUT] = "INSERT OR REPLACE INTO recency(checkpoint, used) VALUES(?1, ?2)",
    [INDEX_RECENCY_DELETE] = "DELETE FROM recency WHERE checkpoint = ?1",
    [INDEX_BATCH_SELECT] = "SELECT sequence, body FROM batch ORDER BY sequence",
    [INDEX_DROPPED_SELECT] = "SELECT checkpoint FROM dropped ORDER BY sequence, checkpoint",
    [INDEX_RECENCY_SELECT] = "SELECT checkpoint, used FROM recency ORDER BY checkpoint",
};

void index_check(const kvarve_index *index)
{
    KVARVE_ASSERT(index != NULL);
    KVARVE_ASSERT(index->magic == INDEX_MAGIC);
}

kvarve_status index_status_of(int code)
{
    switch (code & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
        return KVARVE_OK;
    case SQLITE_FULL:
        return KVARVE_NO_SPACE;
    case SQLITE_NOMEM:
        return KVARVE_NO_MEMORY;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_TOOBIG: /* a row that claims more than any row may have */
    case SQLITE_FORMAT:
        return KVARVE_CORRUPT;
    case SQLITE_CONSTRAINT:
    case SQLITE_MISUSE:
        return KVARVE_INVALID;
    default:
        return KVARVE_IO;
    }
}

kvarve_status index_fail(kvarve_index *index, int code, const char *attempt, kvarve_error *err)
{
    const kvarve_status status = index_status_of(code);

    KVARVE_ASSERT(status != KVARVE_OK);
    (void)kvarve_fail(err, status, "%s " INDEX_FILE_NAME " in %s: %s (SQLite code %d)", attempt,
                      index->vfs.directory, sqlite3_errstr(code), code);
    if (err != NULL && status == KVARVE_IO) {
        err->os_errno = index->vfs.os_errno;
    }
    return status;
}

static int execute(kvarve_index *index, const char *sql)
{
    return sqlite3_exec(index->database, sql, NULL, NULL, NULL);
}

/* The first column of the first row as a number; 0 when there is no row. */
static int query_number(kvarve_index *index, const char *sql, int64_t *out)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v3(index->database, sql, -1, 0, &statement, NULL);

    if (rc == SQLITE_OK) {
        rc = sqlite3_step(statement);
    }
    if (rc == SQLITE_ROW) {
        *out = sqlite3_column_int64(statement, 0);
        rc = sqlite3_step(statement);
    }
    (void)sqlite3_finalize(statement);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* What has to hold before the first byte of the file is read. */
static kvarve_status configure(kvarve_index *index, kvarve_error *err)
{
    /* locking_mode goes first: without it a log cannot be read at all with this VFS. */
    static const char pragmas[] =
        "PRAGMA locking_mode=EXCLUSIVE;"
        "PRAGMA page_size=" STRINGIFY(INDEX_PAGE_BYTES) ";"
                                                        "PRAGMA temp_store=MEMORY;"
                                                        "PRAGMA mmap_size=0;"
                                                        "PRAGMA cache_size=-4096;"
                                                        "PRAGMA trusted_schema=OFF;"
                                                        "PRAGMA cell_size_check=ON;"
                                                        "PRAGMA wal_autocheckpoint=0";
    sqlite3 *database = index->database;
    int rc;

    (void)sqlite3_extended_result_codes(database, 1);
    (void)sqlite3_limit(database, SQLITE_LIMIT_LENGTH, LENGTH_LIMIT);
    (void)sqlite3_limit(database, SQLITE_LIMIT_ATTACHED, 0);
    rc = sqlite3_db_config(database, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_db_config(database, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    }
    if (rc == SQLITE_OK) {
        rc = execute(index, pragmas);
    }
    return rc == SQLITE_OK ? KVARVE_OK : index_fail(index, rc, "configure", err);
}

/* Those that need the file: they come after it is known to be ours or new. */
static int configure_file(kvarve_index *index)
{
    /* Freed pages are not overwritten with zeroes (Debian's default): that would log each of them.
     */
    return execute(index, "PRAGMA synchronous=FULL; PRAGMA secure_delete=OFF");
}

static kvarve_status refuse_foreign(const kvarve_index *index, kvarve_error *err)
{
    return kvarve_fail(err, KVARVE_CORRUPT,
                       INDEX_FILE_NAME " in %s is a database of another application",
                       index->vfs.directory);
}

/* Whose database is it? *out_is_new when it holds nothing at all. */
static kvarve_status identify(kvarve_index *index, bool *out_is_new, kvarve_error *err)
{
    int64_t application = 0;
    int64_t version = 0;
    int64_t objects = 0;
    int rc = query_number(index, "SELECT count(*) FROM sqlite_schema", &objects);

    if (rc == SQLITE_OK) {
        rc = query_number(index, "PRAGMA application_id", &application);
    }
    if (rc == SQLITE_OK) {
        rc = query_number(index, "PRAGMA user_version", &version);
    }
    if (rc != SQLITE_OK) {
        return index_fail(index, rc, "read", err);
    }
    *out_is_new = objects == 0 && application == 0 && version == 0;
    if (*out_is_new) {
        return KVARVE_OK;
    }
    if (application != APPLICATION_ID) {
        return refuse_foreign(index, err);
    }
    if (version > SCHEMA_VERSION) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED,
                           INDEX_FILE_NAME " has version %lld, this program knows version %d",
                           (long long)version, SCHEMA_VERSION);
    }
    if (version != SCHEMA_VERSION) {
        return refuse_foreign(index, err);
    }
    return KVARVE_OK;
}

/* Turn the log on, where it is not on already, and see that it is. */
static kvarve_status enter_log_mode(kvarve_index *index, kvarve_error *err)
{
    sqlite3_stmt *statement = NULL;
    const char *answer;
    bool is_on = false;
    int rc = sqlite3_prepare_v3(
        index->database, index->is_read_only ? "PRAGMA journal_mode" : "PRAGMA journal_mode=WAL",
        -1, 0, &statement, NULL);

    if (rc == SQLITE_OK) {
        rc = sqlite3_step(statement);
    }
    if (rc == SQLITE_ROW) {
        answer = (const char *)sqlite3_column_text(statement, 0);
        is_on = answer != NULL && strcmp(answer, "wal") == 0;
        rc = sqlite3_step(statement); /* the change is committed only here, after the answer */
    }
    (void)sqlite3_finalize(statement);
    if (rc != SQLITE_DONE) {
        return index_fail(index, rc, "turn on the log of", err);
    }
    return is_on ? KVARVE_OK
                 : kvarve_fail(err, KVARVE_CORRUPT, INDEX_FILE_NAME " in %s has no log",
                               index->vfs.directory);
}

/* O3 */
static kvarve_status make_schema(kvarve_index *index, kvarve_error *err)
{
    int rc = execute(index, "BEGIN IMMEDIATE");

    for (size_t i = 0; i < TABLE_COUNT && rc == SQLITE_OK; i++) {
        rc = execute(index, tables[i].sql);
    }
    if (rc == SQLITE_OK) {
        rc = execute(index,
                     "PRAGMA application_id=" STRINGIFY(
                         APPLICATION_ID) ";"
                                         "PRAGMA user_version=" STRINGIFY(SCHEMA_VERSION) ";"
                                                                                          "COMMIT");
    }
    return rc == SQLITE_OK ? KVARVE_OK : index_fail(index, rc, "make", err);
}

/* The row at `statement` is table `at` of ours. */
static bool is_our_table(sqlite3_stmt *statement, size_t at)
{
    const char *name = (const char *)sqlite3_column_text(statement, 0);
    const char *sql = (const char *)sqlite3_column_text(statement, 1);

    return at < TABLE_COUNT && name != NULL && sql != NULL && strcmp(name, tables[at].name) == 0 &&
           strcmp(sql, tables[at].sql) == 0;
}

/* O2: no trigger, view or column that we did not write is ever run. */
static kvarve_status check_schema(kvarve_index *index, kvarve_error *err)
{
    sqlite3_stmt *statement = NULL;
    size_t count = 0;
    bool is_ours = true;
    int rc =
        sqlite3_prepare_v3(index->database, "SELECT name, sql FROM sqlite_schema ORDER BY name", -1,
                           0, &statement, NULL);

    if (rc == SQLITE_OK) {
        rc = sqlite3_step(statement);
    }
    while (rc == SQLITE_ROW && is_ours) {
        is_ours = is_our_table(statement, count);
        count++;
        rc = sqlite3_step(statement);
    }
    (void)sqlite3_finalize(statement);
    if (!is_ours || (rc == SQLITE_DONE && count != TABLE_COUNT)) {
        return refuse_foreign(index, err);
    }
    return rc == SQLITE_DONE ? KVARVE_OK : index_fail(index, rc, "read the schema of", err);
}

static kvarve_status prepare_statements(kvarve_index *index, kvarve_error *err)
{
    int rc = SQLITE_OK;

    for (size_t i = 0; i < INDEX_STATEMENT_COUNT && rc == SQLITE_OK; i++) {
        rc = sqlite3_prepare_v3(index->database, statement_texts[i], -1, SQLITE_PREPARE_PERSISTENT,
                                &index->statements[i], NULL);
    }
    return rc == SQLITE_OK ? KVARVE_OK : index_fail(index, rc, "prepare statements for", err);
}

/* O1 */
static kvarve_status settle(kvarve_index *index, kvarve_error *err)
{
    const int rc = index_vfs_settle(&index->vfs);

    if (rc < 0) {
        return kvarve_fail_io(err, rc, "sync " INDEX_LOG_NAME " in %s", index->vfs.directory);
    }
    return KVARVE_OK;
}

/* Read the file, or make it, up to the point where statements can run. */
static kvarve_status enter_database(kvarve_index *index, kvarve_error *err)
{
    bool is_new = false;
    kvarve_status status = configure(index, err);
    int rc;

    if (status == KVARVE_OK) {
        status = identify(index, &is_new, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    if (is_new && index->is_expected) {
        return kvarve_fail(err, KVARVE_CORRUPT, "the index in %s is lost (kvarve rebuild)",
                           index->vfs.directory);
    }
    if (is_new && index->is_read_only) {
        return KVARVE_MISS;
    }
    rc = configure_file(index);
    if (rc != SQLITE_OK) {
        return index_fail(index, rc, "configure", err);
    }
    status = is_new ? KVARVE_OK : check_schema(index, err);
    if (status == KVARVE_OK) {
        status = enter_log_mode(index, err);
    }
    if (status == KVARVE_OK && is_new) {
        status = make_schema(index, err);
    }
    if (status == KVARVE_OK) {
        status = prepare_statements(index, err);
    }
    return status == KVARVE_OK ? settle(index, err) : status;
}

/* SQLite tells after each commit how long the log is. */
static int on_commit(void *context, sqlite3 *database, const char *name, int frames)
{
    kvarve_index *index = context;

    (void)database;
    (void)name;
    index->frames = (uint64_t)frames;
    return SQLITE_OK;
}

static kvarve_status open_database(kvarve_index *index, kvarve_error *err)
{
    const int flags =
        SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE |
        (index->is_read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    const int rc = sqlite3_open_v2(INDEX_FILE_NAME, &index->database, flags, index->vfs.name);
    kvarve_status status;

    if (rc != SQLITE_OK) {
        return index_fail(index, rc, "open", err);
    }
    status = enter_database(index, err);
    if (status == KVARVE_OK && index->vfs.has_failed_sync) {
        /* SQLite passes over some failures of its clean-up; what they lost may be needed. */
        status = index_fail(index, SQLITE_IOERR_FSYNC, "sync", err);
    }
    (void)sqlite3_wal_hook(index->database, on_commit, index);
    index->frames = atomic_load(&index->vfs.log_bytes) / INDEX_FRAME_BYTES; /* at most */
    return status;
}

/* KVARVE_MISS when a reader finds no database. */
static kvarve_status check_present(const kvarve_env *env, const char *directory, kvarve_error *err)
{
    char path[KVARVE_PATH_MAX];
    kvarve_file_stat stat;
    int rc = io_join_path(path, sizeof path, directory, INDEX_FILE_NAME);

    if (rc == 0) {
        rc = env->io->ops->stat(env->io, path, &stat);
    }
    if (rc == -ENOENT) {
        return KVARVE_MISS;
    }
    return rc < 0 ? kvarve_fail_io(err, rc, "stat %s", path) : KVARVE_OK;
}

/* O5. SQLite would make a new log and say nothing. */
static kvarve_status check_log(const kvarve_env *env, const char *directory, kvarve_error *err)
{
    kvarve_io *io = env->io;
    char path[KVARVE_PATH_MAX];
    const uint8_t id[4] = {APPLICATION_ID >> 24 & 0xff, APPLICATION_ID >> 16 & 0xff,
                           APPLICATION_ID >> 8 & 0xff, APPLICATION_ID & 0xff};
    uint8_t application[4] = {0};
    kvarve_file_stat stat;
    kvarve_fd fd;
    int rc = io_join_path(path, sizeof path, directory, INDEX_LOG_NAME);

    rc = rc == 0 ? io->ops->stat(io, path, &stat) : rc;
    if (rc != -ENOENT) {
        return rc < 0 ? kvarve_fail_io(err, rc, "stat %s", path) : KVARVE_OK;
    }
    rc = io_join_path(path, sizeof path, directory, INDEX_FILE_NAME);
    rc = rc == 0 ? io->ops->open(io, path, KVARVE_OPEN_READ, 0, &fd) : rc;
    if (rc == 0) {
        rc = io_read_all(io, fd, application, sizeof application, APPLICATION_ID_OFFSET);
        io->ops->close(io, fd);
    }
    if (rc < 0) { /* no database, or one that is too short to be one */
        return rc == -ENOENT || rc == -ENODATA ? KVARVE_OK
                                               : kvarve_fail_io(err, rc, "read %s", path);
    }
    return memcmp(application, id, sizeof id) != 0
               ? KVARVE_OK
               : kvarve_fail(err, KVARVE_CORRUPT,
                             "the log " INDEX_LOG_NAME
                             " of the index in %s is lost (kvarve rebuild)",
                             directory);
}

kvarve_status index_open(const kvarve_env *env, const char *directory, const index_options *options,
                         kvarve_index **out, kvarve_error *err)
{
    kvarve_index *index;
    kvarve_status status = KVARVE_OK;

    KVARVE_ASSERT(options->log_bytes_max >= INDEX_LOG_BYTES_LEAST);
    if (strlen(directory) + NAME_BYTES_MAX > KVARVE_PATH_MAX) {
        return kvarve_fail(err, KVARVE_INVALID, "the path of the index's directory is too long");
    }
    if (sqlite3_threadsafe() == 0) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED, "this SQLite was built without threads");
    }
    if (options->is_read_only && !options->is_expected) {
        status = check_present(env, directory, err);
    }
    if (status == KVARVE_OK) {
        status = check_log(env, directory, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    index = kvarve_allocate(sizeof *index);
    if (index == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "memory for the index");
    }
    index->magic = INDEX_MAGIC;
    index->is_read_only = options->is_read_only;
    index->is_expected = options->is_expected;
    index_set_limits(index, INDEX_CHECKPOINT_FRAMES, options->log_bytes_max);
    if (index_vfs_init(&index->vfs, env, directory, options->is_read_only) != SQLITE_OK) {
        kvarve_release(index);
        return kvarve_fail(err, KVARVE_NO_MEMORY, "memory for the index");
    }
    status = open_database(index, err);
    if (status != KVARVE_OK) {
        index_close(index);
        return status;
    }
    *out = index;
    return KVARVE_OK;
}

void index_close(kvarve_index *index)
{
    int rc;

    if (index == NULL) {
        return;
    }
    index_check(index);
    for (size_t i = 0; i < INDEX_STATEMENT_COUNT; i++) {
        (void)sqlite3_finalize(index->statements[i]);
    }
    rc = sqlite3_close(index->database);
    KVARVE_ASSERT(rc != SQLITE_BUSY); /* a statement was left open */
    index_vfs_deinit(&index->vfs);
    index->magic = 0;
    kvarve_release(index);
}

void index_set_limits(kvarve_index *index, uint32_t checkpoint_frames, uint64_t log_bytes_max)
{
    index->checkpoint_frames = checkpoint_frames;
    index->log_bytes_max = log_bytes_max;
}

static kvarve_status remove_file(const kvarve_env *env, const char *directory, const char *name,
                                 kvarve_error *err)
{
    char path[KVARVE_PATH_MAX];
    int rc = io_join_path(path, sizeof path, directory, name);

    if (rc == 0) {
        rc = env->io->ops->unlink(env->io, path);
    }
    if (rc < 0 && rc != -ENOENT) {
        return kvarve_fail_io(err, rc, "remove %s in %s", name, directory);
    }
    return KVARVE_OK;
}

static kvarve_status sync_names(const kvarve_env *env, const char *directory, kvarve_error *err)
{
    const int rc = env->io->ops->sync_directory(env->io, directory);

    return rc < 0 ? kvarve_fail_io(err, rc, "sync directory %s", directory) : KVARVE_OK;
}

kvarve_status index_remove(const kvarve_env *env, const char *directory, kvarve_error *err)
{
    kvarve_status status = remove_file(env, directory, INDEX_FILE_NAME, err);

    if (status == KVARVE_OK) {
        status = sync_names(env, directory, err); /* O4 */
    }
    if (status == KVARVE_OK) {
        status = remove_file(env, directory, INDEX_LOG_NAME, err);
    }
    if (status == KVARVE_OK) {
        status = remove_file(env, directory, INDEX_JOURNAL_NAME, err);
    }
    return status == KVARVE_OK ? sync_names(env, directory, err) : status;
}

void index_count(const kvarve_index *index, index_counters *out)
{
    index_check(index);
    *out = (index_counters){
        .database_bytes = atomic_load(&index->vfs.database_bytes),
        .log_bytes = atomic_load(&index->vfs.log_bytes),
        .log_bytes_written = atomic_load(&index->vfs.log_bytes_written),
        .database_bytes_written = atomic_load(&index->vfs.database_bytes_written),
        .transactions = atomic_load(&index->transactions),
        .checkpoints = atomic_load(&index->checkpoints),
        .checkpoints_failed = atomic_load(&index->checkpoints_failed),
    };
}

bool index_is_failed(const kvarve_index *index)
{
    index_check(index);
    return atomic_load(&index->is_failed);
}
