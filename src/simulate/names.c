/*
 * names.c - the simulated directories: which path names which file, seen and durable.
 *
 * Invariants:
 * N1  A name is dirty when what is seen under it is not what is durable; it is then in dirty_names.
 * N2  A name that is neither seen nor durable does not exist.
 * N3  space.used is the sum of the seen blocks of all files with a seen reference.
 * N4  A directory stands in `names` before what is in it.
 *
 * Threads: one at a time. Ownership: a file lives while a name or a descriptor refers to it.
 */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "simulate/world_private.h"

/* Whether the next part of a path, of this length, says nothing: "" or ".". */
static bool is_empty_part(const char *part, size_t length)
{
    return length == 0 || (length == 1 && *part == '.');
}

int disk_canonical_path(const char *path, char *out)
{
    size_t size = 0;

    if (strnlen(path, KVARVE_PATH_MAX) == KVARVE_PATH_MAX) {
        return -ENAMETOOLONG;
    }
    while (*path != '\0') {
        const size_t length = strcspn(path, "/");

        if (length == 2 && memcmp(path, "..", 2) == 0) {
            return -EINVAL;
        }
        if (!is_empty_part(path, length)) {
            out[size] = '/';
            size += size > 0; /* none in front */
            memcpy(out + size, path, length);
            size += length;
        }
        path += length;
        path += *path == '/';
    }
    out[size] = '\0';
    return 0;
}

static sim_name **bucket_of(sim_disk *disk, const char *path)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

    for (; *path != '\0'; path++) {
        hash = (hash ^ (uint8_t)*path) * UINT64_C(0x100000001b3);
    }
    return &disk->buckets[hash % NAME_BUCKETS];
}

sim_name *disk_find(sim_world *world, const char *canonical)
{
    sim_name *name = *bucket_of(&world->disk, canonical);

    while (name != NULL && strcmp(name->path, canonical) != 0) {
        name = name->next;
    }
    return name;
}

sim_file *disk_file(sim_world *world, const char *canonical)
{
    const sim_name *name;

    if (canonical[0] == '\0') {
        return world->disk.root;
    }
    name = disk_find(world, canonical);
    return name == NULL ? NULL : name->seen;
}

static size_t parent_length(const char *canonical)
{
    const char *slash = strrchr(canonical, '/');

    return slash == NULL ? 0 : (size_t)(slash - canonical);
}

static sim_name *add_name(sim_world *world, const char *canonical)
{
    sim_name *name = pool_take_zeroed(&world->pool, sizeof *name);
    sim_name **bucket = bucket_of(&world->disk, canonical);

    name->path_size = strlen(canonical) + 1;
    name->path = memcpy(pool_take(&world->pool, name->path_size), canonical, name->path_size);
    name->parent_length = parent_length(canonical);
    name->next = *bucket;
    *bucket = name;
    kvarve_list_init(&name->dirty);
    kvarve_list_append(&world->disk.names, &name->all);
    return name;
}

static void remove_name(sim_world *world, sim_name *name)
{
    sim_name **place = bucket_of(&world->disk, name->path);

    KVARVE_ASSERT(name->seen == NULL && name->durable == NULL);
    while (*place != name) {
        place = &(*place)->next;
    }
    *place = name->next;
    kvarve_list_remove(&name->all);
    kvarve_list_remove(&name->dirty);
    pool_give(&world->pool, name->path, name->path_size);
    pool_give(&world->pool, name, sizeof *name);
}

static void destroy_if_unused(sim_world *world, sim_file *file)
{
    if (file->seen_references == 0 && file->durable_references == 0) {
        file_destroy(&world->pool, file);
    }
}

void disk_acquire(sim_world *world, sim_file *file)
{
    if (file->seen_references++ == 0) {
        world->disk.space.used += file->seen.block_count; /* N3 */
    }
}

void disk_release(sim_world *world, sim_file *file)
{
    if (--file->seen_references == 0) {
        world->disk.space.used -= file->seen.block_count; /* N3 */
        destroy_if_unused(world, file);
    }
}

static void point_seen(sim_world *world, sim_name *name, sim_file *file)
{
    sim_file *old = name->seen;

    name->seen = file;
    if (file != NULL) {
        disk_acquire(world, file);
    }
    if (old != NULL) {
        disk_release(world, old);
    }
}

static void point_durable(sim_world *world, sim_name *name, sim_file *file)
{
    sim_file *old = name->durable;

    name->durable = file;
    if (file != NULL) {
        file->durable_references++;
    }
    if (old != NULL) {
        old->durable_references--;
        destroy_if_unused(world, old);
    }
}

static void remove_if_nothing(sim_world *world, sim_name *name)
{
    if (name->seen == NULL && name->durable == NULL) { /* N2 */
        remove_name(world, name);
    }
}

void disk_set_seen(sim_world *world, const char *canonical, sim_file *file, uint64_t change)
{
    sim_name *name = disk_find(world, canonical);

    if (name == NULL) {
        name = add_name(world, canonical);
    }
    point_seen(world, name, file);
    name->change = change;
    name->is_dropped = false;
    kvarve_list_remove(&name->dirty);
    if (name->seen != name->durable) { /* N1 */
        kvarve_list_append(&world->disk.dirty_names, &name->dirty);
    }
    if (file != NULL) {
        file_set_path(&world->pool, file, canonical);
    }
    remove_if_nothing(world, name);
}

void disk_settle_name(sim_world *world, sim_name *name)
{
    point_durable(world, name, name->seen);
    kvarve_list_remove(&name->dirty);
    remove_if_nothing(world, name);
}

/* 0 when `canonical` could be made: its parent is a directory. */
int disk_check_parent(sim_world *world, const char *canonical)
{
    char parent[KVARVE_PATH_MAX];
    const size_t length = parent_length(canonical);
    const sim_file *file;

    memcpy(parent, canonical, length);
    parent[length] = '\0';
    file = disk_file(world, parent);
    if (file == NULL) {
        return -ENOENT;
    }
    return file->kind == KVARVE_FILE_DIRECTORY ? 0 : -ENOTDIR;
}

void disk_touch(const sim_world *world, sim_file *file)
{
    file->changed_ns = world_wall_ns(world);
}

sim_file *disk_make_file(sim_world *world, const char *canonical, kvarve_file_kind kind,
                         uint32_t mode)
{
    sim_disk *disk = &world->disk;
    sim_file *file;

    if (disk_check_parent(world, canonical) < 0) {
        return NULL;
    }
    file = file_create(&world->pool, disk->next_inode++, kind, mode);
    disk_touch(world, file);
    disk_set_seen(world, canonical, file, disk->next_change++);
    return file;
}

bool disk_is_in(const sim_name *name, const char *directory, size_t length)
{
    return name->parent_length == length && memcmp(name->path, directory, length) == 0;
}

/* Settle or drop the unsynced names of a directory. */
void disk_end_dirty_names(sim_world *world, const char *directory, bool is_dropped)
{
    const size_t length = strlen(directory);
    kvarve_list *dirty = &world->disk.dirty_names;
    kvarve_link *next;

    for (kvarve_link *link = dirty->next; link != dirty; link = next) {
        sim_name *name = KVARVE_LIST_ITEM(link, sim_name, dirty);

        next = link->next;
        if (!disk_is_in(name, directory, length)) {
            continue;
        }
        if (is_dropped) {
            name->is_dropped = true;
        } else if (!name->is_dropped) {
            disk_settle_name(world, name);
        }
    }
}

/* Whether an unsynced change of a name reached the disk: the same answer for all names of one
 * change. */
static bool did_happen(const sim_world *world, const sim_name *name)
{
    uint64_t random = world->plan.seed * 31 + name->change;

    return !name->is_dropped && world_next_random(&random) % 2 == 0;
}

static void settle_names(sim_world *world)
{
    kvarve_list *dirty = &world->disk.dirty_names;
    kvarve_link *next;

    for (kvarve_link *link = dirty->next; link != dirty; link = next) {
        sim_name *name = KVARVE_LIST_ITEM(link, sim_name, dirty);

        next = link->next;
        if (!did_happen(world, name)) {
            point_seen(world, name, name->durable);
        }
        disk_settle_name(world, name);
    }
}

/* Names below a directory that is not there any more go with it. Parents stand before their
 * children. */
static void drop_orphans(sim_world *world)
{
    kvarve_list *names = &world->disk.names;
    kvarve_link *next;

    for (kvarve_link *link = names->next; link != names; link = next) {
        sim_name *name = KVARVE_LIST_ITEM(link, sim_name, all);

        next = link->next;
        if (disk_check_parent(world, name->path) < 0) {
            point_seen(world, name, NULL);
            disk_settle_name(world, name);
        }
    }
}

/* Settle the bytes of all files that are left, and forget the locks. */
static void settle_files(sim_world *world)
{
    uint64_t random = world->plan.seed ^ UINT64_C(0x6b76617276650001);
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &world->disk.names) {
        sim_file *file = KVARVE_LIST_ITEM(link, sim_name, all)->seen;
        const uint64_t before = file->seen.block_count;

        file_settle(&world->pool, file, &random);
        world->disk.space.used += file->seen.block_count - before; /* N3 */
        file->other_owner = 0;
        file->is_locked = false;
    }
}

void disk_settle(sim_world *world)
{
    disk_close_all(world);
    settle_names(world);
    drop_orphans(world);
    settle_files(world);
}

void disk_flush(sim_world *world)
{
    kvarve_list *dirty = &world->disk.dirty_names;
    kvarve_link *link;

    while (!kvarve_list_is_empty(dirty)) {
        disk_settle_name(world, KVARVE_LIST_ITEM(dirty->next, sim_name, dirty));
    }
    KVARVE_LIST_FOREACH (link, &world->disk.names) {
        file_sync(&world->pool, KVARVE_LIST_ITEM(link, sim_name, all)->seen);
    }
}

void disk_forget_all(sim_world *world)
{
    kvarve_list *names = &world->disk.names;

    disk_close_all(world);
    while (!kvarve_list_is_empty(names)) {
        sim_name *name = KVARVE_LIST_ITEM(names->next, sim_name, all);

        point_seen(world, name, NULL);
        disk_settle_name(world, name);
    }
}
