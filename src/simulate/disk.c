/*
 * disk.c - the simulated disk: descriptors, and every call of io.h as one step of the plan.
 *
 * Invariant: each call counts its step before it looks at anything, so that a scenario reaches the
 * same steps under the same plan.
 *
 * Threads: one at a time. Ownership: a descriptor keeps its file alive; names.c does the rest.
 */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "simulate/world_private.h"

#define FIRST_DESCRIPTOR  1000000 /* far from real ones, so that a mix-up fails */
#define DESCRIPTORS_START 16
#define OFFSET_MAX        ((uint64_t)INT64_MAX)
#define PARTS_MAX         1024
#define DEVICE            1
#define USER              1000

static sim_world *world_of(kvarve_io *io)
{
    return KVARVE_LIST_ITEM(io, sim_world, io);
}

/* Steps */

/* What a call is to do: return rc if it is negative, after taking effect if does_apply. */
typedef struct sim_step {
    int rc;
    bool does_apply;
    bool is_faulty; /* plan.fault is to be done now */
} sim_step;

static bool is_planned(sim_world *world, uint32_t op, const char *path)
{
    const world_plan *plan = &world->plan;
    const uint64_t count = plan->fault_count == 0 ? 1 : plan->fault_count;
    uint64_t number;

    if (plan->fault_ops != WORLD_OP_ALL && (plan->fault_ops & op) == 0) {
        return false;
    }
    if (plan->fault_path != NULL && strstr(path, plan->fault_path) == NULL) {
        return false;
    }
    number = world->report.steps++;
    return number >= plan->fault_step && number - plan->fault_step < count;
}

static int planned_error(const sim_world *world)
{
    return world->plan.fault_errno == 0 ? -EIO : -world->plan.fault_errno;
}

static sim_step begin_step(sim_world *world, uint32_t op, const char *path, bool is_change)
{
    sim_step step = {.does_apply = true};

    if (world->report.is_cut) {
        return (sim_step){.rc = -EIO};
    }
    step.is_faulty = is_planned(world, op, path);
    world->report.fault_reached = world->report.fault_reached || step.is_faulty;
    if (is_change && world->report.changes++ == world->plan.cut_change) {
        world->report.is_cut = true;
        return (sim_step){.rc = -EIO, .does_apply = true};
    }
    if (step.is_faulty && world->plan.fault == WORLD_FAULT_ERROR) {
        world->report.fault_hit = true;
        step.rc = planned_error(world);
        step.does_apply = false;
    } else if (step.is_faulty && world->plan.fault == WORLD_FAULT_SLOW) {
        world->report.fault_hit = true;
        world->monotonic_ns += world->plan.slow_ns;
    }
    return step;
}

/* Whether the plan's fault is this one and to be done now. */
static bool is_fault(const sim_world *world, sim_step step, world_fault fault)
{
    return step.is_faulty && world->plan.fault == fault;
}

/* Descriptors */

static sim_descriptor *descriptor(sim_world *world, kvarve_fd fd)
{
    sim_disk *disk = &world->disk;
    const uint32_t number = (uint32_t)(fd - FIRST_DESCRIPTOR);

    if (fd < FIRST_DESCRIPTOR || number >= disk->descriptor_capacity ||
        disk->descriptors[number].file == NULL) {
        return NULL;
    }
    return &disk->descriptors[number];
}

static const char *path_of(sim_world *world, kvarve_fd fd)
{
    const sim_descriptor *found = descriptor(world, fd);

    return found == NULL ? "" : found->file->path;
}

static kvarve_fd take_descriptor(sim_world *world, sim_file *file, uint32_t flags)
{
    sim_disk *disk = &world->disk;
    const uint32_t old = disk->descriptor_capacity;
    uint32_t number = 0;

    KVARVE_ASSERT(file != NULL);
    if (disk->descriptor_count == old) {
        const uint32_t capacity = old == 0 ? DESCRIPTORS_START : 2 * old;
        sim_descriptor *grown = pool_take_zeroed(&world->pool, capacity * sizeof *grown);

        memcpy(grown, disk->descriptors == NULL ? grown : disk->descriptors, old * sizeof *grown);
        pool_give(&world->pool, disk->descriptors, old * sizeof *grown);
        disk->descriptors = grown;
        disk->descriptor_capacity = capacity;
    }
    while (disk->descriptors[number].file != NULL) {
        number++;
    }
    disk->descriptors[number] = (sim_descriptor){.file = file, .flags = flags};
    disk->descriptor_count++;
    disk_acquire(world, file);
    return (kvarve_fd)(FIRST_DESCRIPTOR + number);
}

static void give_descriptor(sim_world *world, sim_descriptor *descriptor)
{
    sim_file *file = descriptor->file;

    descriptor->file = NULL;
    world->disk.descriptor_count--;
    file->is_locked = false; /* POSIX: closing any descriptor of a file drops the process's lock */
    disk_release(world, file);
}

/* Calls */

/* Find or make the file that open is about. */
static int open_file(sim_world *world, const char *canonical, uint32_t flags, uint32_t mode,
                     sim_file **out)
{
    const int rc = canonical[0] == '\0' ? -EISDIR : disk_check_parent(world, canonical);
    sim_file *file;

    if (rc < 0) {
        return rc;
    }
    if (world->disk.descriptor_count >= world->disk.descriptors_max) {
        return -EMFILE;
    }
    file = disk_file(world, canonical);
    if (file == NULL && (flags & KVARVE_OPEN_CREATE) == 0) {
        return -ENOENT;
    }
    if (file != NULL && file->kind == KVARVE_FILE_DIRECTORY) {
        return -EISDIR;
    }
    if (file != NULL && (flags & KVARVE_OPEN_CREATE) != 0 && (flags & KVARVE_OPEN_EXCLUSIVE) != 0) {
        return -EEXIST;
    }
    if (file == NULL) {
        file = disk_make_file(world, canonical, KVARVE_FILE_REGULAR, mode);
    } else if ((flags & KVARVE_OPEN_TRUNCATE) != 0) {
        file_truncate(&world->pool, &world->disk.space, file, 0);
        disk_touch(world, file);
    }
    *out = file;
    return 0;
}

static int sim_open(kvarve_io *io, const char *path, uint32_t flags, uint32_t mode,
                    kvarve_fd *out_fd)
{
    sim_world *world = world_of(io);
    const bool is_change = (flags & (KVARVE_OPEN_CREATE | KVARVE_OPEN_TRUNCATE)) != 0;
    const sim_step step = begin_step(world, WORLD_OP_OPEN, path, is_change);
    char canonical[KVARVE_PATH_MAX];
    sim_file *file = NULL;
    int rc;

    if (!step.does_apply) {
        return step.rc;
    }
    rc = disk_canonical_path(path, canonical);
    if (rc == 0) {
        rc = open_file(world, canonical, flags, mode, &file);
    }
    if (rc < 0 || step.rc < 0) {
        return step.rc < 0 ? step.rc : rc;
    }
    *out_fd = take_descriptor(world, file, flags);
    return 0;
}

static void sim_close(kvarve_io *io, kvarve_fd fd)
{
    sim_world *world = world_of(io);
    sim_descriptor *found = descriptor(world, fd);

    KVARVE_ASSERT(found != NULL); /* closing twice is a bug of ours */
    give_descriptor(world, found);
}

/* The bytes that a transfer asks for, or -errno. */
static int64_t transfer_size(const sim_descriptor *found, const struct iovec *parts, int count,
                             uint64_t offset)
{
    const bool is_direct = found != NULL && (found->flags & KVARVE_OPEN_DIRECT) != 0;
    uint64_t size = 0;

    if (found == NULL) {
        return -EBADF;
    }
    if (count < 1 || count > PARTS_MAX || offset > OFFSET_MAX) {
        return -EINVAL;
    }
    for (int i = 0; i < count; i++) {
        size += parts[i].iov_len;
        if (is_direct &&
            ((uintptr_t)parts[i].iov_base | parts[i].iov_len) % KVARVE_IO_ALIGNMENT != 0) {
            return -EINVAL;
        }
    }
    if (size > OFFSET_MAX - offset || (is_direct && offset % KVARVE_IO_ALIGNMENT != 0)) {
        return -EINVAL;
    }
    return (int64_t)size;
}

/* About half of a transfer that goes short. The whole when it is too small to be halved. */
static uint64_t short_size(const sim_descriptor *found, uint64_t size)
{
    const bool is_direct = (found->flags & KVARVE_OPEN_DIRECT) != 0;
    const uint64_t unit = is_direct ? KVARVE_IO_ALIGNMENT : 1;
    const uint64_t half = size / 2 / unit * unit;

    return half == 0 ? kvarve_min_u64(size, unit) : half;
}

static void flip_bit(sim_world *world, const struct iovec *parts, uint64_t size)
{
    uint64_t random = world->plan.seed ^ world->report.steps;
    uint64_t bit = world_next_random(&random) % (size * 8);

    while (bit / 8 >= parts->iov_len) {
        bit -= (uint64_t)parts->iov_len * 8;
        parts++;
    }
    ((uint8_t *)parts->iov_base)[bit / 8] ^= (uint8_t)(1u << bit % 8);
    world->report.fault_hit = true;
}

static ssize_t sim_read(kvarve_io *io, kvarve_fd fd, const struct iovec *parts, int count,
                        uint64_t offset)
{
    sim_world *world = world_of(io);
    const sim_step step = begin_step(world, WORLD_OP_READ, path_of(world, fd), false);
    const sim_descriptor *found = descriptor(world, fd);
    int64_t asked;
    uint64_t size;

    if (step.rc < 0) {
        return step.rc;
    }
    asked = transfer_size(found, parts, count, offset);
    if (asked < 0) {
        return (ssize_t)asked;
    }
    size = (uint64_t)asked;
    if (is_fault(world, step, WORLD_FAULT_SHORT)) {
        size = short_size(found, size);
        world->report.fault_hit = world->report.fault_hit || size < (uint64_t)asked;
    }
    size = file_read(found->file, parts, size, offset);
    if (size > 0 && is_fault(world, step, WORLD_FAULT_BIT_FLIP)) {
        flip_bit(world, parts, size);
    }
    return (ssize_t)size;
}

static ssize_t sim_write(kvarve_io *io, kvarve_fd fd, const struct iovec *parts, int count,
                         uint64_t offset)
{
    sim_world *world = world_of(io);
    const sim_step step = begin_step(world, WORLD_OP_WRITE, path_of(world, fd), true);
    sim_descriptor *found = descriptor(world, fd);
    uint64_t stored;
    int64_t asked;
    uint64_t size;

    if (!step.does_apply) {
        return step.rc;
    }
    asked = transfer_size(found, parts, count, offset);
    if (asked >= 0 && (found->flags & KVARVE_OPEN_READ) != 0) {
        asked = -EBADF;
    }
    if (asked < 0) {
        return step.rc < 0 ? step.rc : (ssize_t)asked;
    }
    size = (uint64_t)asked;
    if (is_fault(world, step, WORLD_FAULT_SHORT)) {
        size = short_size(found, size);
        world->report.fault_hit = world->report.fault_hit || size < (uint64_t)asked;
    } else if (is_fault(world, step, WORLD_FAULT_TORN)) {
        size = size / 2;
        world->report.fault_hit = true;
    }
    stored = file_write(&world->pool, &world->disk.space, found->file, parts, size, offset);
    disk_touch(world, found->file);
    if (step.rc < 0) {
        return step.rc;
    }
    if (is_fault(world, step, WORLD_FAULT_TORN)) {
        return planned_error(world);
    }
    return stored == 0 && size > 0 ? -ENOSPC : (ssize_t)stored;
}

static int sim_sync(kvarve_io *io, kvarve_fd fd)
{
    sim_world *world = world_of(io);
    const sim_step step = begin_step(world, WORLD_OP_SYNC, path_of(world, fd), true);
    sim_descriptor *found = descriptor(world, fd);

    if (found == NULL) {
        return step.rc < 0 ? step.rc : -EBADF;
    }
    if (is_fault(world, step, WORLD_FAULT_LOST_SYNC) && step.rc == 0) {
        world->report.fault_hit = true;
    } else if (step.rc == 0) {
        file_sync(&world->pool, found->file);
    } else if (!world->report.is_cut) {
        file_drop(found->file);
    }
    return step.rc;
}

static int sim_truncate(kvarve_io *io, kvarve_fd fd, uint64_t size)
{
    sim_world *world = world_of(io);
    const sim_step step = begin_step(world, WORLD_OP_TRUNCATE, path_of(world, fd), true);
    sim_descriptor *found = descriptor(world, fd);

    if (!step.does_apply) {
        return step.rc;
    }
    if (found == NULL || (found->flags & KVARVE_OPEN_READ) != 0 || size > OFFSET_MAX) {
        return step.rc < 0 ? step.rc : -EINVAL;
    }
    file_truncate(&world->pool, &world->disk.space, found->file, size);
    disk_touch(world, found->file);
    return step.rc;
}

static int check_range(const sim_descriptor *found, uint64_t offset, uint64_t size)
{
    if (found == NULL || (found->flags & KVARVE_OPEN_READ) != 0) {
        return -EBADF;
    }
    return size == 0 || offset > OFFSET_MAX || size > OFFSET_MAX - offset ? -EINVAL : 0;
}

static int sim_allocate(kvarve_io *io, kvarve_fd fd, uint64_t offset, uint64_t size)
{
    sim_world *world = world_of(io);
    const sim_step step = begin_step(world, WORLD_OP_ALLOCATE, path_of(world, fd), true);
    sim_descriptor *found = descriptor(world, fd);
    int rc;

    if (!step.does_apply) {
        return step.rc;
    }
    rc = check_range(found, offset, size);
    if (rc == 0 && !file_allocate(&world->pool, &world->disk.space, found->file, offset, size)) {
        rc = -ENOSPC;
    }
    return step.rc < 0 ? step.rc : rc;
}

static int sim_punch(kvarve_io *io, kvarve_fd fd, uint64_t offset, uint64_t size)
{
    sim_world *world = world_of(io);
    const sim_step step = begin_step(world, WORLD_OP_PUNCH, path_of(world, fd), true);
    sim_descriptor *found = descriptor(world, fd);
    int rc;

    if (!step.does_apply) {
        return step.rc;
    }
    rc = check_range(found, offset, size);
    if (rc == 0) {
        file_punch(&world->pool, &world->disk.space, found->file, offset, size);
    }
    return step.rc < 0 ? step.rc : rc;
}

/* Both canonical paths of a rename, checked: 0 when there is a file to move. */
static int check_rename(sim_world *world, const char *from, const char *to)
{
    const sim_file *source = disk_file(world, from);
    const sim_file *target = disk_file(world, to);

    if (source == NULL) {
        return -ENOENT;
    }
    if (source->kind == KVARVE_FILE_DIRECTORY) {
        return -EINVAL; /* not simulated */
    }
    if (target != NULL && target->kind == KVARVE_FILE_DIRECTORY) {
        return -EISDIR;
    }
    return disk_check_parent(world, to);
}

static int sim_rename(kvarve_io *io, const char *from, const char *to)
{
    sim_world *world = world_of(io);
    const sim_step step = begin_step(world, WORLD_OP_RENAME, from, true);
    char source[KVARVE_PATH_MAX];
    char target[KVARVE_PATH_MAX];
    int rc;

    if (!step.does_apply) {
        return step.rc;
    }
    rc = disk_canonical_path(from, source);
    rc = rc < 0 ? rc : disk_canonical_path(to, target);
    rc = rc < 0 ? rc : check_rename(world, source, target);
    if (rc == 0 && strcmp(source, target) != 0) {
        const uint64_t change = world->disk.next_change++;

        disk_set_seen(world, target, disk_file(world, source), change);
        disk_set_seen(world, source, NULL, change);
    }
    return step.rc < 0 ? step.rc : rc;
}

static int sim_unlink(kvarve_io *io, const char *path)
{
    sim_world *world = world_of(io);
    const sim_step step = begin_step(world, WORLD_OP_UNLINK, path, true);
    char canonical[KVARVE_PATH_MAX];
    const sim_file *file = NULL;
    int rc;

    if (!step.does_apply) {
        return step.rc;
    }
    rc = disk_canonical_path(path, canonical);
    if (rc == 0) {
        file = disk_file(world, canonical);
        rc = file == NULL ? -ENOENT : 0;
    }
    if (rc == 0 && file->kind == KVARVE_FILE_DIRECTORY) {
        rc = -EISDIR;
    }
    if (rc == 0) {
        disk_set_seen(world, canonical, NULL, world->disk.next_change++);
    }
    return step.rc < 0 ? step.rc : rc;
}

static int sim_make_directory(kvarve_io *io, const char *path, uint32_t mode)
{
    sim_world *world = world_of(io);
    const sim_step step = begin_step(world, WORLD_OP_MAKE_DIRECTORY, path, true);
    char canonical[KVARVE_PATH_MAX];
    int rc;

    if (!step.does_apply) {
        return step.rc;
    }
    rc = disk_canonical_path(path, canonical);
    if (rc == 0 && disk_file(world, canonical) != NULL) {
        rc = -EEXIST;
    }
    rc = rc < 0 ? rc : disk_check_parent(world, canonical);
    if (rc == 0) {
        (void)disk_make_file(world, canonical, KVARVE_FILE_DIRECTORY, mode);
    }
    return step.rc < 0 ? step.rc : rc;
}

static int sim_sync_directory(kvarve_io *io, const char *path)
{
    sim_world *world = world_of(io);
    const sim_step step = begin_step(world, WORLD_OP_SYNC_DIRECTORY, path, true);
    char canonical[KVARVE_PATH_MAX];
    const int rc = disk_canonical_path(path, canonical);
    const sim_file *file = rc < 0 ? NULL : disk_file(world, canonical);

    if (world->report.is_cut) {
        return -EIO;
    }
    if (file == NULL || file->kind != KVARVE_FILE_DIRECTORY) {
        return rc < 0 ? rc : file == NULL ? -ENOENT : -ENOTDIR;
    }
    if (is_fault(world, step, WORLD_FAULT_LOST_SYNC)) {
        world->report.fault_hit = true;
    } else {
        disk_end_dirty_names(world, canonical, step.rc < 0);
    }
    return step.rc;
}

static void fill_stat(const sim_file *file, kvarve_file_stat *out)
{
    *out = (kvarve_file_stat){
        .size = file->seen_size,
        .allocated_bytes = file->seen.block_count * IMAGE_BLOCK,
        .device = DEVICE,
        .inode = file->inode,
        .mtime_ns = file->changed_ns,
        .ctime_ns = file->changed_ns,
        .mode = file->mode,
        .user = USER,
        .kind = file->kind,
    };
}

static int sim_stat(kvarve_io *io, const char *path, kvarve_file_stat *out)
{
    sim_world *world = world_of(io);
    const sim_step step = begin_step(world, WORLD_OP_STAT, path, false);
    char canonical[KVARVE_PATH_MAX];
    const sim_file *file;
    int rc;

    if (step.rc < 0) {
        return step.rc;
    }
    rc = disk_canonical_path(path, canonical);
    if (rc < 0) {
        return rc;
    }
    file = disk_file(world, canonical);
    if (file == NULL) {
        return -ENOENT;
    }
    fill_stat(file, out);
    return 0;
}

static int sim_stat_fd(kvarve_io *io, kvarve_fd fd, kvarve_file_stat *out)
{
    sim_world *world = world_of(io);
    const sim_step step = begin_step(world, WORLD_OP_STAT, path_of(world, fd), false);
    const sim_descriptor *found = descriptor(world, fd);

    if (step.rc < 0 || found == NULL) {
        return step.rc < 0 ? step.rc : -EBADF;
    }
    fill_stat(found->file, out);
    return 0;
}

static int sim_list(kvarve_io *io, const char *path, kvarve_list_visit visit, void *context)
{
    sim_world *world = world_of(io);
    const sim_step step = begin_step(world, WORLD_OP_LIST, path, false);
    char canonical[KVARVE_PATH_MAX];
    const sim_file *file;
    kvarve_link *link;
    size_t length;
    int rc = step.rc;

    rc = rc < 0 ? rc : disk_canonical_path(path, canonical);
    if (rc < 0) {
        return rc;
    }
    file = disk_file(world, canonical);
    if (file == NULL || file->kind != KVARVE_FILE_DIRECTORY) {
        return file == NULL ? -ENOENT : -ENOTDIR;
    }
    length = strlen(canonical);
    KVARVE_LIST_FOREACH (link, &world->disk.names) {
        const sim_name *name = KVARVE_LIST_ITEM(link, sim_name, all);
        const char *last = name->path + (length == 0 ? 0 : length + 1);

        if (name->seen != NULL && disk_is_in(name, canonical, length) && !visit(context, last)) {
            break;
        }
    }
    return 0;
}

static int sim_space_of(kvarve_io *io, const char *path, kvarve_space *out)
{
    sim_world *world = world_of(io);
    const sim_step step = begin_step(world, WORLD_OP_SPACE, path, false);
    const sim_space *space = &world->disk.space;
    char canonical[KVARVE_PATH_MAX];
    int rc = step.rc;

    rc = rc < 0 ? rc : disk_canonical_path(path, canonical);
    if (rc < 0) {
        return rc;
    }
    if (disk_file(world, canonical) == NULL) {
        return -ENOENT;
    }
    out->total_bytes = space->capacity * IMAGE_BLOCK;
    out->free_bytes =
        (space->capacity - kvarve_min_u64(space->used, space->capacity)) * IMAGE_BLOCK;
    return 0;
}

static int sim_lock(kvarve_io *io, kvarve_fd fd, int64_t *out_owner)
{
    sim_world *world = world_of(io);
    const sim_step step = begin_step(world, WORLD_OP_LOCK, path_of(world, fd), false);
    sim_descriptor *found = descriptor(world, fd);

    if (step.rc < 0 || found == NULL || (found->flags & KVARVE_OPEN_READ) != 0) {
        return step.rc < 0 ? step.rc : -EBADF;
    }
    if (found->file->other_owner != 0) {
        *out_owner = found->file->other_owner;
        return -EAGAIN;
    }
    found->file->is_locked = true;
    return 0;
}

void disk_close_all(sim_world *world)
{
    sim_disk *disk = &world->disk;

    for (uint32_t i = 0; i < disk->descriptor_capacity; i++) {
        if (disk->descriptors[i].file != NULL) {
            give_descriptor(world, &disk->descriptors[i]);
        }
    }
}

static const kvarve_io_ops sim_ops = {
    .open = sim_open,
    .close = sim_close,
    .read = sim_read,
    .write = sim_write,
    .sync = sim_sync,
    .truncate = sim_truncate,
    .allocate = sim_allocate,
    .punch = sim_punch,
    .rename = sim_rename,
    .unlink = sim_unlink,
    .make_directory = sim_make_directory,
    .sync_directory = sim_sync_directory,
    .stat = sim_stat,
    .stat_fd = sim_stat_fd,
    .list = sim_list,
    .space = sim_space_of,
    .lock = sim_lock,
};

void disk_init(sim_world *world)
{
    sim_disk *disk = &world->disk;

    world->io.ops = &sim_ops;
    kvarve_list_init(&disk->names);
    kvarve_list_init(&disk->dirty_names);
    disk->descriptors_max = 1024;
    disk->space.capacity = UINT64_C(1) << 40;
    disk->next_inode = 2;
    disk->root = file_create(&world->pool, 1, KVARVE_FILE_DIRECTORY, 0755);
    file_set_path(&world->pool, disk->root, "");
}
