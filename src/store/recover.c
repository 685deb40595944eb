/*
 * recover.c - from a folder to a store: lock, identity, index, segments, arena; and the rebuild of
 * the index.
 *
 * DIR/lock        POSIX record lock of the one process that has it open
 * DIR/store       identity and version (format/store_file.h)
 * DIR/index.db    living batches (index/index.h)
 * DIR/segments/   pages and records (segment/segment.h)
 * DIR/namespaces/ identity documents, one file each
 * DIR/rebuild     a rebuild of the index has not ended (rebuild_mark.c)
 * DIR/reserve     room that evictions may use on a full disk
 *
 * Invariants
 *   I1  Nothing in the folder is changed before the lock is held, nor when a newer version wrote
 * it. I2  Ids and sequences begin, at each open, after those of all records before, also of such
 * whose commit never finished (epoch.c), so that a rebuild knows what is later.
 *
 * Blocks: called at open, before anything else runs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"
#include "env/io_all.h"
#include "format/store_file.h"
#include "store/recover_private.h"

#define RESERVE_BYTES      (UINT64_C(64) << 20)
#define DOCUMENT_BYTES_MAX (UINT32_C(1) << 18)
#define DOCUMENTS_MAX      65536u

kvarve_status recover_path(const store_machine *store, const char *name, char out[KVARVE_PATH_MAX],
                           kvarve_error *err)
{
    if (io_join_path(out, KVARVE_PATH_MAX, store->directory, name) != 0) {
        return kvarve_fail(err, KVARVE_INVALID, "store %s: the path is too long", store->directory);
    }
    return KVARVE_OK;
}

bool recover_has_flag(const store_machine *store, uint32_t flag)
{
    return (store->options.flags & flag) != 0;
}

/* --- folder and lock --- */

static void parent_directory(const char *path, char out[KVARVE_PATH_MAX])
{
    size_t length = strlen(path);

    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    while (length > 0 && path[length - 1] != '/') {
        length--;
    }
    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    memcpy(out, path, length);
    out[length] = '\0';
    if (length == 0) {
        memcpy(out, ".", 2);
    }
}

static kvarve_status open_folder(store_machine *store, kvarve_error *err)
{
    kvarve_io *io = store->env.io;
    kvarve_file_stat stat;
    char parent[KVARVE_PATH_MAX];
    int rc = io->ops->stat(io, store->directory, &stat);

    if (rc == 0 && stat.kind != KVARVE_FILE_DIRECTORY) {
        return kvarve_fail(err, KVARVE_INVALID, "open store %s: it is a file, not a folder",
                           store->directory);
    }
    if (rc == 0) {
        return KVARVE_OK;
    }
    if (rc != -ENOENT) {
        return kvarve_fail_io(err, rc, "open store %s", store->directory);
    }
    if (recover_has_flag(store,
                         KVARVE_OPEN_EXISTING | KVARVE_OPEN_READ_ONLY | KVARVE_OPEN_REBUILD)) {
        (void)kvarve_fail(err, KVARVE_MISS, "open store %s: there is none", store->directory);
        return KVARVE_MISS;
    }
    rc = io->ops->make_directory(io, store->directory, 0700);
    if (rc == 0) {
        parent_directory(store->directory, parent);
        rc = io->ops->sync_directory(io, parent);
    }
    return rc == 0 ? KVARVE_OK : kvarve_fail_io(err, rc, "make store %s", store->directory);
}

static kvarve_status take_lock(store_machine *store, kvarve_error *err)
{
    kvarve_io *io = store->env.io;
    char path[KVARVE_PATH_MAX];
    int64_t owner = 0;
    kvarve_status status = recover_path(store, "lock", path, err);
    int rc;

    if (status != KVARVE_OK) {
        return status;
    }
    rc = io->ops->open(io, path, KVARVE_OPEN_CREATE, 0600, &store->lock_fd);
    if (rc < 0) {
        store->lock_fd = -1;
        return kvarve_fail_io(err, rc, "open the lock %s", path);
    }
    rc = io->ops->lock(io, store->lock_fd, &owner);
    if (rc == -EAGAIN || rc == -EACCES) {
        return kvarve_fail(err, KVARVE_BUSY, "store %s is in use by process %lld", store->directory,
                           (long long)owner);
    }
    return rc == 0 ? KVARVE_OK : kvarve_fail_io(err, rc, "lock %s", path);
}

/* --- identity documents --- */

typedef struct document_search {
    store_machine *store;
    const char *directory;
    uint32_t count;
} document_search;

static bool load_document(void *context, const char *name)
{
    document_search *search = context;
    char path[KVARVE_PATH_MAX];
    char hex[2 * SHA256_SIZE + 1];
    char *text = NULL;
    size_t size = 0;
    document kept = {0};
    store_space *space;

    if (search->count++ >= DOCUMENTS_MAX) {
        return false;
    }
    if (strlen(name) != 69 || strcmp(name + 64, ".json") != 0 ||
        io_join_path(path, sizeof path, search->directory, name) != 0 ||
        io_read_file(search->store->env.io, path, DOCUMENT_BYTES_MAX, &text, &size, NULL) !=
            KVARVE_OK) {
        return true;
    }
    if (document_file_parse(text, size, &kept, NULL) == KVARVE_OK) {
        hex_encode(hex, kept.digest, sizeof kept.digest);
        if (memcmp(hex, name, 64) != 0) {
            kvarve_release(kept.text); /* another space's: damage */
            kvarve_release(text);
            return true;
        }
        space = catalog_space(search->store, kept.digest);
        if (space != NULL && space->document == NULL) {
            space->document = kept.text;
            kept.text = NULL;
            memcpy(space->meaning, kept.meaning, sizeof space->meaning);
            memcpy(space->salt_digest, kept.salt_digest, sizeof space->salt_digest);
            space->is_document_kept = true;
        }
        kvarve_release(kept.text);
    }
    kvarve_release(text);
    return true;
}

static kvarve_status open_documents(store_machine *store, kvarve_error *err)
{
    kvarve_io *io = store->env.io;
    char directory[KVARVE_PATH_MAX];
    document_search search = {.store = store, .directory = directory};
    kvarve_status status = recover_path(store, "namespaces", directory, err);
    kvarve_file_stat stat;
    int rc;

    if (status != KVARVE_OK) {
        return status;
    }
    rc = io->ops->stat(io, directory, &stat);
    if (rc == -ENOENT && store->is_read_only) {
        return KVARVE_OK;
    }
    if (rc == -ENOENT) {
        rc = io->ops->make_directory(io, directory, 0700);
        rc = rc == 0 ? io->ops->sync_directory(io, store->directory) : rc;
        return rc == 0 ? KVARVE_OK : kvarve_fail_io(err, rc, "make %s", directory);
    }
    (void)io->ops->list(io, directory, load_document, &search); /* only messages need them */
    return KVARVE_OK;
}

/* --- index --- */

static bool is_own_record(const store_machine *store, const store_file *file, const batch *record)
{
    bool is_own = memcmp(&record->store, &store->uuid, sizeof store->uuid) == 0;

    for (uint32_t i = 0; i < file->former_count; i++) {
        is_own = is_own || memcmp(&record->store, &file->formers[i], sizeof record->store) == 0;
    }
    return is_own;
}

typedef struct index_reader {
    store_machine *store;
    const store_file *file;
    catalog_loader *loader;
} index_reader;

static kvarve_status read_row(void *context, uint64_t sequence, const void *body, size_t size,
                              kvarve_error *err)
{
    index_reader *reader = context;
    batch record;
    kvarve_status status = batch_decode(body, size, &record, err);

    if (status == KVARVE_MISS) {
        return kvarve_fail(err, KVARVE_CORRUPT, "index row %llu is no batch record",
                           (unsigned long long)sequence);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    if (record.sequence != sequence || !is_own_record(reader->store, reader->file, &record)) {
        status = kvarve_fail(err, KVARVE_CORRUPT, "index row %llu is another store's",
                             (unsigned long long)sequence);
    } else {
        status = loader_add(reader->loader, &record, err);
    }
    batch_deinit(&record);
    return status;
}

static kvarve_status read_drop(void *context, uint64_t checkpoint, kvarve_error *err)
{
    index_reader *reader = context;

    return loader_drop(reader->loader, checkpoint) == KVARVE_OK
               ? KVARVE_OK
               : kvarve_fail(err, KVARVE_NO_MEMORY, "tables of the index");
}

static kvarve_status read_recency(void *context, uint64_t checkpoint, uint64_t used,
                                  kvarve_error *err)
{
    (void)err;
    loader_recency(((index_reader *)context)->loader, checkpoint, used);
    return KVARVE_OK;
}

/* `is_expected`: segments are there, so an index must be, or what they hold would be written over.
 */
static kvarve_status open_index(store_machine *store, bool is_expected, kvarve_error *err)
{
    const index_options options = {.log_bytes_max = room_log_bytes_max(store),
                                   .is_expected = is_expected,
                                   .is_read_only = store->is_read_only};
    kvarve_status status = index_open(&store->env, store->directory, &options, &store->index, err);

    return status == KVARVE_MISS ? KVARVE_OK : status; /* read only, and nothing was stored yet */
}

static kvarve_status load_index(store_machine *store, const store_file *file, kvarve_error *err)
{
    index_reader reader = {.store = store, .file = file, .loader = loader_create(store)};
    const index_visitor visitor = {
        .context = &reader, .batch = read_row, .dropped = read_drop, .recency = read_recency};
    index_counters counters;
    kvarve_status status = KVARVE_OK;

    if (reader.loader == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "tables of the index");
    }
    if (store->index != NULL) {
        index_count(store->index, &counters);
        loader_expect(reader.loader, counters.database_bytes);
        status = index_load(store->index, &visitor, err);
    }
    if (status == KVARVE_OK) {
        status = loader_finish(reader.loader, err);
    }
    loader_destroy(reader.loader);
    return status;
}

/* --- rebuild --- */

typedef struct found_record {
    uint64_t sequence;
    header_place place;
    uint8_t *bytes;
    size_t size;
    bool is_kept;
} found_record;

typedef struct rebuild {
    store_machine *store;
    const store_file *file;
    found_record *records;
    size_t count;
    size_t room;
    size_t next; /* to be put into the index */
    index_batch *rows;
    index_transaction transaction;
} rebuild;

static kvarve_status keep_record(void *context, header_place place, const void *bytes, size_t size)
{
    rebuild *all = context;
    batch record;
    found_record *found;
    bool is_own;
    const kvarve_status status = batch_decode(bytes, size, &record, NULL);

    if (status != KVARVE_OK) { /* torn, or the rest of an older one */
        return status == KVARVE_NO_MEMORY ? status : KVARVE_OK;
    }
    is_own = is_own_record(all->store, all->file, &record) &&
             memcmp(&record.place, &place, sizeof place) == 0;
    if (is_own && all->count == all->room) {
        const size_t room = all->room == 0 ? 256 : 2 * all->room;
        found_record *larger = kvarve_reallocate(all->records, room * sizeof *larger);

        if (larger == NULL) {
            batch_deinit(&record);
            return KVARVE_NO_MEMORY;
        }
        all->records = larger;
        all->room = room;
    }
    if (is_own) {
        const uint32_t used = batch_claimed_size(bytes, size);

        found = &all->records[all->count];
        *found = (found_record){.sequence = record.sequence, .place = place, .size = used};
        found->bytes = kvarve_allocate(used);
        if (found->bytes == NULL) {
            batch_deinit(&record);
            return KVARVE_NO_MEMORY;
        }
        memcpy(found->bytes, bytes, used);
        all->count++;
    }
    batch_deinit(&record);
    return KVARVE_OK;
}

static int compare_records(const void *a, const void *b)
{
    const found_record *x = a;
    const found_record *y = b;

    return (x->sequence > y->sequence) - (x->sequence < y->sequence);
}

static void free_rebuild(rebuild *all)
{
    for (size_t i = 0; i < all->count; i++) {
        kvarve_release(all->records[i].bytes);
    }
    kvarve_release(all->records);
    kvarve_release(all->rows);
    kvarve_release(all);
}

#define ROWS_AT_ONCE 256u

static void rebuild_rows(rebuild *all);

static void rows_done(index_transaction *transaction, void *context)
{
    rebuild *all = context;

    if (transaction->status != KVARVE_OK) {
        store_fail(all->store);
        all->store->is_opening = false;
        free_rebuild(all);
        return;
    }
    rebuild_rows(all);
}

/* Put the next records into the index; after the last, check every page. */
static void rebuild_rows(rebuild *all)
{
    store_machine *store = all->store;
    size_t count = 0;

    for (; all->next < all->count && count < ROWS_AT_ONCE; all->next++) {
        const found_record *found = &all->records[all->next];

        if (found->is_kept) {
            all->rows[count++] = (index_batch){
                .sequence = found->sequence, .body = found->bytes, .size = found->size};
        }
    }
    if (count == 0) {
        free_rebuild(all);
        if (store_verify_begin(store, NULL) != KVARVE_OK) {
            store_fail(store);
            store->is_opening = false;
        }
        return;
    }
    all->transaction = (index_transaction){
        .batches = all->rows, .batch_count = count, .done = rows_done, .context = all};
    index_submit(store->index, &all->transaction);
}

/* Apply all records in order; one that contradicts an earlier one is left out. */
static kvarve_status apply_records(rebuild *all, kvarve_error *err)
{
    catalog_loader *loader = loader_create(all->store);
    kvarve_status status = KVARVE_OK;

    if (loader == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "tables of the index");
    }
    for (size_t i = 0; i < all->count && status == KVARVE_OK; i++) {
        batch record;

        status = batch_decode(all->records[i].bytes, all->records[i].size, &record, err);
        if (status == KVARVE_OK) {
            status = loader_add(loader, &record, err);
            batch_deinit(&record);
        }
        all->records[i].is_kept = status == KVARVE_OK;
        status = status == KVARVE_CORRUPT ? KVARVE_OK : status;
    }
    if (status == KVARVE_OK) {
        status = loader_finish(loader, err);
    }
    loader_destroy(loader);
    return status;
}

/* Up to where the new index is open and empty; `*out` fills it. */
static kvarve_status rebuild_index(store_machine *store, const store_file *file, rebuild **out,
                                   kvarve_error *err)
{
    rebuild *all = kvarve_allocate(sizeof *all);
    kvarve_status status;

    if (all == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "rebuild of store %s", store->directory);
    }
    all->store = store;
    all->file = file;
    all->rows = kvarve_allocate_array(ROWS_AT_ONCE, sizeof(index_batch));
    status =
        all->rows == NULL ? KVARVE_NO_MEMORY : segment_scan(store->segments, keep_record, all, err);
    if (status == KVARVE_OK && all->count > 0) {
        qsort(all->records, all->count, sizeof(found_record), compare_records);
    }
    if (status == KVARVE_OK) {
        status = apply_records(all, err);
    }
    if (status == KVARVE_OK) {
        status = rebuild_mark_set(store, err);
    }
    if (status == KVARVE_OK) {
        status = index_remove(&store->env, store->directory, err);
    }
    if (status == KVARVE_OK) {
        status = open_index(store, false, err);
    }
    if (status != KVARVE_OK) {
        free_rebuild(all);
        return status == KVARVE_NO_MEMORY
                   ? kvarve_fail(err, status, "rebuild of store %s", store->directory)
                   : status;
    }
    all->file = NULL;
    *out = all;
    return KVARVE_OK;
}

/* --- open and close --- */

static kvarve_status open_segments(store_machine *store, const store_file *file, kvarve_error *err)
{
    const segment_options options = {
        .store = store->uuid,
        .formers = file->formers,
        .former_count = file->former_count,
        .file_bytes = store->options.segment_bytes,
        .use_direct = !recover_has_flag(store, KVARVE_OPEN_BUFFERED),
        .is_read_only = store->is_read_only,
    };
    char directory[KVARVE_PATH_MAX];
    kvarve_status status = recover_path(store, "segments", directory, err);

    return status == KVARVE_OK
               ? segment_open(&store->env, directory, &options, &store->segments, err)
               : status;
}

/* The cap, and a tenth of the disk stays free whatever it says. */
static void limit_flash(store_machine *store)
{
    kvarve_space space = {0};
    const uint64_t used = room_flash_used(store);
    uint64_t most = UINT64_MAX;

    if (store->env.io->ops->space(store->env.io, store->directory, &space) == 0) {
        const uint64_t keep = space.total_bytes / 10;

        most = used + (space.free_bytes > keep ? space.free_bytes - keep : 0);
        if (store->options.flash_bytes_max == 0) {
            store->options.flash_bytes_max = keep;
        }
    }
    store->options.flash_bytes_max = kvarve_min_u64(store->options.flash_bytes_max, most);
    store->options.segment_bytes =
        room_file_bytes(store->options.segment_bytes, store->options.flash_bytes_max);
    segment_set_file_bytes(store->segments, store->options.segment_bytes);
    store->is_over_cap = used > store->options.flash_bytes_max && !store->is_read_only;
}

static void make_reserve(store_machine *store)
{
    kvarve_io *io = store->env.io;
    const uint64_t bytes = kvarve_min_u64(
        RESERVE_BYTES, kvarve_round_up(store->options.flash_bytes_max / 16, KVARVE_IO_ALIGNMENT));
    char path[KVARVE_PATH_MAX];
    kvarve_file_stat stat;
    kvarve_fd fd;

    if (recover_path(store, "reserve", path, NULL) != KVARVE_OK || bytes == 0) {
        return;
    }
    if (io->ops->stat(io, path, &stat) == 0 && stat.size > 0) {
        store->has_reserve = true;
        return;
    }
    if (io->ops->open(io, path, KVARVE_OPEN_CREATE, 0600, &fd) != 0) {
        return;
    }
    if (io->ops->allocate(io, fd, 0, bytes) == 0 && io->ops->sync(io, fd) == 0) {
        store->has_reserve = true;
    }
    io->ops->close(io, fd);
    if (!store->has_reserve) {
        (void)io->ops->unlink(io, path); /* it is tried again at the next open */
    }
}

static kvarve_status open_parts(store_machine *store, store_file *file, rebuild **out,
                                kvarve_error *err)
{
    segment_counters segments = {0};
    kvarve_status status = open_segments(store, file, err);

    if (status == KVARVE_OK) {
        status = open_documents(store, err);
    }
    if (status == KVARVE_OK && !recover_has_flag(store, KVARVE_OPEN_REBUILD)) {
        segment_count(store->segments, &segments);
        status = open_index(store, segments.file_count > 0, err);
        status = status == KVARVE_OK ? load_index(store, file, err) : status;
    }
    if (status == KVARVE_OK) {
        status = (recover_has_flag(store, STORE_OPEN_SHARED) ? arena_open_shared : arena_open)(
            &store->env, store->options.arena_bytes, &store->arena, err);
    }
    if (status == KVARVE_OK && recover_has_flag(store, KVARVE_OPEN_REBUILD)) {
        status = rebuild_index(store, file, out, err);
    }
    return status;
}

kvarve_status recover_open(store_machine *store, kvarve_error *err)
{
    store_file file = {0};
    rebuild *all = NULL;
    kvarve_status status = open_folder(store, err);

    if (status == KVARVE_OK) {
        status = identity_seek(store, err);
    }
    if (status == KVARVE_OK) {
        status = take_lock(store, err); /* I1 */
    }
    if (status == KVARVE_OK) {
        status = rebuild_mark_find(store, err);
    }
    if (status == KVARVE_OK) {
        status = identity_open(store, &file, err);
    }
    if (status == KVARVE_OK) {
        status = open_parts(store, &file, &all, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    limit_flash(store);
    if (store->is_read_only) {
        return KVARVE_OK;
    }
    make_reserve(store);
    status = epoch_begin(store, err);
    if (all == NULL) {
        return status;
    }
    if (status != KVARVE_OK) {
        free_rebuild(all);
        return status;
    }
    store->is_opening = true;
    rebuild_rows(all); /* last: from here on jobs run */
    return KVARVE_OK;
}

void recover_close(store_machine *store)
{
    arena_close(store->arena);
    index_close(store->index);
    segment_close(store->segments);
    if (store->lock_fd >= 0) {
        store->env.io->ops->close(store->env.io, store->lock_fd);
    }
}
