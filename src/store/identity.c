/*
 * identity.c - which store a folder is: the file DIR/store, its uuid, and those it had before.
 *
 * Invariants
 *   I1  A folder that holds anything of a store but not its file `store` is no new store: what its
 *       files hold would be written over.
 *   I2  A folder that is no store, and is to become none, stays as it is: not even a lock is made.
 *
 * Blocks: called at open, under the folder's lock, before anything else runs; identity_seek before
 * the lock.
 */
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "env/io_all.h"
#include "format/segment_file.h"
#include "format/store_file.h"
#include "store/recover_private.h"

static kvarve_status write_store_file(store_machine *store, const store_file *file,
                                      const char *path, kvarve_error *err)
{
    char text[STORE_FILE_SIZE_MAX];
    const size_t size = store_file_encode(file, text);

    return io_replace_file(store->env.io, store->directory, path, text, size, 0600, err);
}

static bool has_file(const store_machine *store, const char *name)
{
    kvarve_file_stat stat;
    char path[KVARVE_PATH_MAX];

    return recover_path(store, name, path, NULL) == KVARVE_OK &&
           store->env.io->ops->stat(store->env.io, path, &stat) == 0;
}

typedef struct uuid_search {
    store_machine *store;
    char *directory;
    store_file *file;
} uuid_search;

/* A segment file's first block says which store it belongs to. */
static bool learn_uuid(void *context, const char *name)
{
    uuid_search *search = context;
    kvarve_io *io = search->store->env.io;
    char path[KVARVE_PATH_MAX];
    uint8_t *block = kvarve_allocate(SEGMENT_HEAD_SIZE);
    segment_head head;
    kvarve_fd fd;

    if (block == NULL || io_join_path(path, sizeof path, search->directory, name) != 0 ||
        io->ops->open(io, path, KVARVE_OPEN_READ, 0, &fd) != 0) {
        kvarve_release(block);
        return true;
    }
    if (io_read_all(io, fd, block, SEGMENT_HEAD_SIZE, 0) == 0 &&
        segment_head_decode(block, &head, NULL) == KVARVE_OK &&
        search->file->former_count < STORE_FORMERS_MAX) {
        bool is_known = false;

        for (uint32_t i = 0; i < search->file->former_count; i++) {
            is_known =
                is_known || memcmp(&search->file->formers[i], &head.store, sizeof head.store) == 0;
        }
        if (!is_known) {
            search->file->formers[search->file->former_count++] = head.store;
        }
    }
    io->ops->close(io, fd);
    kvarve_release(block);
    return true;
}

/* The store file is lost: rebuild takes what its segments say as the folder's former identity. */
static void learn_formers(store_machine *store, store_file *file)
{
    char directory[KVARVE_PATH_MAX];
    uuid_search search = {.store = store, .directory = directory, .file = file};

    if (recover_path(store, "segments", directory, NULL) == KVARVE_OK) {
        (void)store->env.io->ops->list(store->env.io, directory, learn_uuid, &search);
    }
}

static kvarve_status new_identity(store_machine *store, store_file *file, kvarve_error *err)
{
    const int rc =
        store->env.random->fill(store->env.random, file->uuid.bytes, sizeof file->uuid.bytes);

    return rc == 0 ? KVARVE_OK
                   : kvarve_fail_io(err, rc, "draw an identity for store %s", store->directory);
}

/* The folder was copied: it becomes a store of its own that owns the records of the one before. */
static kvarve_status adopt_copy(store_machine *store, store_file *file, kvarve_error *err)
{
    if (file->former_count == STORE_FORMERS_MAX) {
        memmove(&file->formers[0], &file->formers[1],
                (STORE_FORMERS_MAX - 1) * sizeof file->formers[0]);
        file->former_count--;
    }
    file->formers[file->former_count++] = file->uuid;
    return new_identity(store, file, err);
}

/* --- no file `store` --- */

static bool is_segment(void *context, const char *name)
{
    const size_t length = strlen(name);
    bool *found = context;

    *found = length > 4 && strcmp(name + length - 4, ".seg") == 0;
    return !*found;
}

static bool is_document(void *context, const char *name)
{
    bool *found = context;

    *found = strlen(name) == 69 && strcmp(name + 64, ".json") == 0;
    return !*found;
}

/* Does the folder DIR/name hold a file that `visit` takes for one of ours? */
static kvarve_status look_into(const store_machine *store, const char *name,
                               kvarve_list_visit visit, bool *out_found, kvarve_error *err)
{
    kvarve_io *io = store->env.io;
    char directory[KVARVE_PATH_MAX];
    kvarve_status status = recover_path(store, name, directory, err);
    int rc;

    if (status != KVARVE_OK) {
        return status;
    }
    *out_found = false;
    rc = io->ops->list(io, directory, visit, out_found);
    return rc == 0 || rc == -ENOENT || rc == -ENOTDIR
               ? KVARVE_OK
               : kvarve_fail_io(err, rc, "list %s", directory);
}

/* The name of a file that only a store has written, which wrote `store` first; NULL: none. */
static const char *find_remains(const store_machine *store)
{
    static const char *const names[] = {"index.db", "index.db-wal", "rebuild", "reserve"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (has_file(store, names[i])) {
            return names[i];
        }
    }
    return NULL;
}

static bool makes_none(const store_machine *store)
{
    return recover_has_flag(store,
                            KVARVE_OPEN_EXISTING | KVARVE_OPEN_READ_ONLY | KVARVE_OPEN_REBUILD);
}

static kvarve_status refuse_new(const store_machine *store, kvarve_error *err)
{
    if (makes_none(store)) {
        (void)kvarve_fail(err, KVARVE_MISS, "open store %s: there is none", store->directory);
        return KVARVE_MISS;
    }
    if (epoch_is_foreign(store)) {
        return kvarve_fail(err, KVARVE_CORRUPT,
                           "open store %s: its file `lock` is another application's",
                           store->directory);
    }
    return KVARVE_OK;
}

/* There is no file `store`: may this folder become one (I1)? What else is in it, of other names, is
 * somebody's own and stays as it is. */
static kvarve_status check_new(const store_machine *store, kvarve_error *err)
{
    bool has_segments = false;
    bool has_documents = false;
    const char *remains;
    kvarve_status status = look_into(store, "segments", is_segment, &has_segments, err);

    if (status == KVARVE_OK) {
        status = look_into(store, "namespaces", is_document, &has_documents, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    remains = has_documents ? "namespaces" : find_remains(store);
    if (!has_segments && remains == NULL) {
        return refuse_new(store, err);
    }
    if (recover_has_flag(store, KVARVE_OPEN_REBUILD)) {
        return KVARVE_OK;
    }
    return has_segments
               ? kvarve_fail(err, KVARVE_CORRUPT,
                             "open store %s: its file `store` is missing, its segments are there "
                             "(kvarve rebuild)",
                             store->directory)
               : kvarve_fail(err, KVARVE_CORRUPT,
                             "open store %s: its file `store` is missing, and all segments: of a "
                             "store that was here only `%s` is left (empty the folder)",
                             store->directory, remains);
}

static bool is_missing(const store_machine *store, const char *name)
{
    kvarve_file_stat stat;
    char path[KVARVE_PATH_MAX];

    return recover_path(store, name, path, NULL) == KVARVE_OK &&
           store->env.io->ops->stat(store->env.io, path, &stat) == -ENOENT;
}

kvarve_status identity_seek(const store_machine *store, kvarve_error *err)
{
    if (makes_none(store) && is_missing(store, "lock") && is_missing(store, "store")) {
        return check_new(store, err); /* I2 */
    }
    return KVARVE_OK;
}

static kvarve_status read_store_file(store_machine *store, const char *path, store_file *file,
                                     bool *out_is_new, kvarve_error *err)
{
    char *text = NULL;
    size_t size = 0;
    bool is_replaced = false; /* damaged, and whatever else is left is taken */
    kvarve_status status =
        io_read_file(store->env.io, path, STORE_FILE_SIZE_MAX, &text, &size, err);

    if (status == KVARVE_OK) {
        status = store_file_decode(text, size, file, err);
        kvarve_release(text);
        is_replaced = status == KVARVE_CORRUPT && recover_has_flag(store, KVARVE_OPEN_REBUILD);
    } else if (status == KVARVE_INVALID) {
        status = kvarve_fail(err, KVARVE_CORRUPT, "read %s: not a store file", path);
    }
    if (status != KVARVE_MISS && !is_replaced) {
        *out_is_new = false;
        return status;
    }
    status = is_replaced ? KVARVE_OK : check_new(store, err);
    if (status != KVARVE_OK) {
        return status;
    }
    *out_is_new = true;
    *file = (store_file){.format = STORE_FORMAT};
    if (recover_has_flag(store, KVARVE_OPEN_REBUILD)) {
        learn_formers(store, file);
    }
    return new_identity(store, file, err);
}

kvarve_status identity_open(store_machine *store, store_file *file, kvarve_error *err)
{
    char path[KVARVE_PATH_MAX];
    kvarve_file_stat lock;
    bool is_new = false;
    kvarve_status status = recover_path(store, "store", path, err);
    int rc;

    if (status == KVARVE_OK) {
        status = read_store_file(store, path, file, &is_new, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    rc = store->env.io->ops->stat_fd(store->env.io, store->lock_fd, &lock);
    if (rc < 0) {
        return kvarve_fail_io(err, rc, "look at the lock of store %s", store->directory);
    }
    if (!is_new && file->lock_inode != lock.inode && !store->is_read_only) {
        status = adopt_copy(store, file, err);
        is_new = true;
    }
    if (status == KVARVE_OK && is_new) {
        file->lock_inode = lock.inode;
        status = write_store_file(store, file, path, err);
    }
    store->uuid = file->uuid;
    return status;
}
