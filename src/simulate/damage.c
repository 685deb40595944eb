/*
 * damage.c - what tests do to a disk behind everybody's back, and how they look at it.
 *
 * Invariant: seen and durable are changed alike and no step is counted, so that damage is no event
 * of the plan and survives every cut.
 *
 * Threads: one at a time. Allocates from the world's pool only.
 */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "simulate/world_private.h"

/* The regular file at `path`; NULL when there is none. */
static sim_file *find_file(sim_world *world, const char *path)
{
    char canonical[KVARVE_PATH_MAX];
    sim_file *file;

    if (disk_canonical_path(path, canonical) < 0) {
        return NULL;
    }
    file = disk_file(world, canonical);
    return file != NULL && file->kind == KVARVE_FILE_REGULAR ? file : NULL;
}

static int check_inside(const sim_file *file, uint64_t offset, uint64_t size)
{
    if (file == NULL) {
        return -ENOENT;
    }
    return offset > file->seen_size || size > file->seen_size - offset ? -EINVAL : 0;
}

static void put_bytes(sim_pool *pool, sim_image *image, uint64_t offset, const uint8_t *bytes,
                      size_t size)
{
    while (size > 0) {
        const size_t begin = (size_t)(offset % IMAGE_BLOCK);
        const size_t step = (size_t)kvarve_min_u64(IMAGE_BLOCK - begin, size);

        memcpy(image_edit(pool, image, offset / IMAGE_BLOCK, true) + begin, bytes, step);
        offset += step;
        bytes += step;
        size -= step;
    }
}

/* Write into both images; the durable one only as far as it reaches. */
static void overwrite(sim_world *world, sim_file *file, uint64_t offset, const uint8_t *bytes,
                      size_t size)
{
    const uint64_t before = file->seen.block_count;
    const uint64_t durable_end = kvarve_min_u64(offset + size, file->durable_size);

    put_bytes(&world->pool, &file->seen, offset, bytes, size);
    world->disk.space.used += file->seen.block_count - before;
    if (durable_end > offset) {
        put_bytes(&world->pool, &file->durable, offset, bytes, (size_t)(durable_end - offset));
    }
}

int world_overwrite(sim_world *world, const char *path, uint64_t offset, const void *bytes,
                    size_t size)
{
    sim_file *file = find_file(world, path);
    const int rc = check_inside(file, offset, size);

    if (rc == 0) {
        overwrite(world, file, offset, bytes, size);
    }
    return rc;
}

int world_read(sim_world *world, const char *path, uint64_t offset, void *bytes, size_t size)
{
    const sim_file *file = find_file(world, path);
    const struct iovec part = {.iov_base = bytes, .iov_len = size};
    const int rc = check_inside(file, offset, size);

    if (rc == 0) {
        (void)file_read(file, &part, size, offset);
    }
    return rc;
}

int world_flip(sim_world *world, const char *path, uint64_t offset, uint8_t mask)
{
    uint8_t byte;
    const int rc = world_read(world, path, offset, &byte, 1);

    if (rc < 0) {
        return rc;
    }
    byte ^= mask;
    return world_overwrite(world, path, offset, &byte, 1);
}

int world_truncate(sim_world *world, const char *path, uint64_t size)
{
    sim_file *file = find_file(world, path);

    if (file == NULL) {
        return -ENOENT;
    }
    file_truncate(&world->pool, &world->disk.space, file, size);
    file_sync(&world->pool, file);
    file->durable_size = size; /* also when a failed sync had left it behind */
    image_cut(&world->pool, &file->durable, size);
    return 0;
}

static void settle_path(sim_world *world, const char *canonical)
{
    sim_name *name = disk_find(world, canonical);

    if (name != NULL) {
        disk_settle_name(world, name);
    }
}

int world_remove(sim_world *world, const char *path)
{
    char canonical[KVARVE_PATH_MAX];

    if (find_file(world, path) == NULL || disk_canonical_path(path, canonical) < 0) {
        return -ENOENT;
    }
    disk_set_seen(world, canonical, NULL, 0);
    settle_path(world, canonical);
    return 0;
}

int world_put_file(sim_world *world, const char *path, const void *bytes, size_t size)
{
    char canonical[KVARVE_PATH_MAX];
    const int rc = disk_canonical_path(path, canonical);
    /* iovec serves both directions and so is not const; file_write only reads. */
    union {
        const void *constant;
        void *plain;
    } source = {.constant = bytes};
    const struct iovec part = {.iov_base = source.plain, .iov_len = size};
    sim_file *file;

    if (rc < 0) {
        return rc;
    }
    file = disk_make_file(world, canonical, KVARVE_FILE_REGULAR, 0644);
    if (file == NULL) {
        return -ENOENT;
    }
    (void)file_write(&world->pool, &world->disk.space, file, &part, size, 0);
    file_sync(&world->pool, file);
    settle_path(world, canonical);
    return 0;
}

int world_size(sim_world *world, const char *path, uint64_t *out_size)
{
    const sim_file *file = find_file(world, path);

    if (file == NULL) {
        return -ENOENT;
    }
    *out_size = file->seen_size;
    return 0;
}

bool world_exists(sim_world *world, const char *path)
{
    char canonical[KVARVE_PATH_MAX];

    return disk_canonical_path(path, canonical) == 0 && disk_file(world, canonical) != NULL;
}

void world_list_files(sim_world *world, world_visit visit, void *context)
{
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &world->disk.names) {
        const sim_name *name = KVARVE_LIST_ITEM(link, sim_name, all);

        if (name->seen != NULL && name->seen->kind == KVARVE_FILE_REGULAR &&
            !visit(context, name->path, name->seen->seen_size)) {
            return;
        }
    }
}

static void copy_file(sim_world *world, const sim_file *from, const char *path)
{
    sim_file *file = disk_make_file(world, path, from->kind, from->mode);

    KVARVE_ASSERT(file != NULL);
    file->seen = image_clone(&world->pool, &from->seen);
    file->durable = image_clone(&world->pool, &from->seen);
    file->seen_size = from->seen_size;
    file->durable_size = from->seen_size;
    file->low_size = from->seen_size;
    world->disk.space.used += file->seen.block_count;
    settle_path(world, path);
}

int world_copy_folder(sim_world *world, const char *from, const char *to)
{
    char source[KVARVE_PATH_MAX];
    char target[KVARVE_PATH_MAX];
    kvarve_link *last = world->disk.names.previous; /* copies are appended after it */
    const sim_file *folder;
    size_t length;

    if (disk_canonical_path(from, source) < 0 || disk_canonical_path(to, target) < 0) {
        return -EINVAL;
    }
    folder = disk_file(world, source);
    if (folder == NULL || folder->kind != KVARVE_FILE_DIRECTORY || source[0] == '\0') {
        return -ENOENT;
    }
    if (disk_file(world, target) != NULL) {
        return -EEXIST;
    }
    length = strlen(source);
    for (kvarve_link *link = world->disk.names.next;; link = link->next) {
        const sim_name *name = KVARVE_LIST_ITEM(link, sim_name, all);
        const char *rest = name->path + length;
        char path[2 * KVARVE_PATH_MAX];

        if (name->seen != NULL && strncmp(name->path, source, length) == 0 &&
            (*rest == '\0' || *rest == '/')) {
            memcpy(path, target, strlen(target));
            memcpy(path + strlen(target), rest, strlen(rest) + 1);
            copy_file(world, name->seen, path);
        }
        if (link == last) {
            return 0;
        }
    }
}

int world_lock_as_other(sim_world *world, const char *path, int64_t pid)
{
    sim_file *file = find_file(world, path);

    if (file == NULL) {
        return -ENOENT;
    }
    file->other_owner = pid;
    return 0;
}

bool world_holds_lock(sim_world *world, const char *path)
{
    const sim_file *file = find_file(world, path);

    return file != NULL && file->is_locked;
}
