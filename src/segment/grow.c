/*
 * grow.c - requests for more slots: one more segment file, where no hollow slots are left to be
 * taken back (refill.c).
 *
 * Steps: create DIR/NAME.seg.new, give it its blocks, write the first block, sync; rename it to
 * DIR/NAME.seg, sync the directory. Only then its slots are given out.
 *
 * Invariants
 *   I1  A final name has a whole and durable first block behind it: it is written and synced under
 *       the temporary name. Temporary names are removed at open.
 *   I2  Memory for the new file is had, and room for it promised, before the job starts, so that
 *       nothing can fail once the file is there.
 *   I3  After any failure neither name is left behind, as far as the disk still obeys.
 *
 * Threads: as segment_private.h; the new file belongs to the job until `done`.
 */
#include "segment/segment_private.h"

#include <errno.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fail.h"
#include "env/io_all.h"

#define LARGE_SLOT_BYTES   (UINT32_C(256) << 10)
#define SLOTS_WANTED_LEAST 8u
#define FILE_BYTES_LEAST   (UINT64_C(1) << 20)
#define FILE_BYTES_MOST    (UINT64_C(64) << 30)

typedef struct grow_operation {
    segment_operation base;
    segment_job job;
    segment_file *file; /* the new one */
    uint8_t *block;     /* its first block, aligned; in block_memory */
    void *block_memory;
    const char *failed_step;
    bool use_direct; /* in: to try; out: what it is */
    bool sync_failed;
} grow_operation;

/* --- shape --- */

/* Blocks of the header zone beside `slots` slots in a file of `budget` bytes. */
static uint64_t zone_blocks(uint32_t slot_bytes, uint64_t slots, uint64_t budget)
{
    uint64_t blocks = slots / 4;

    if (slot_bytes >= LARGE_SLOT_BYTES) {
        blocks = kvarve_min_u64(budget / 64 / BATCH_BLOCK, slots + 2);
    }
    return kvarve_min_u64(kvarve_max_u64(blocks, HEADER_BLOCKS_LEAST), SEGMENT_HEADER_BLOCKS_MAX);
}

/* As many slots as fit the budget, zone included; 0 when none does. */
static uint64_t slots_within(uint32_t slot_bytes, uint64_t budget)
{
    const uint64_t each =
        slot_bytes >= LARGE_SLOT_BYTES ? slot_bytes : slot_bytes + BATCH_BLOCK / 4;
    uint64_t slots = budget / each;

    while (slots > 0 &&
           slots * slot_bytes + zone_blocks(slot_bytes, slots, budget) * BATCH_BLOCK > budget) {
        slots--;
    }
    return slots;
}

/* What the new file looks like; false when bytes_max is too small for any. */
static bool shape_file(const segment_set *set, uint32_t slot_bytes, uint64_t bytes_max,
                       segment_head *out)
{
    const uint64_t wanted =
        kvarve_min_u64(kvarve_max_u64(set->file_bytes, FILE_BYTES_LEAST), FILE_BYTES_MOST);
    uint64_t slots;
    uint64_t budget;

    if (slot_bytes == 0) {
        out->header_blocks = (uint32_t)kvarve_min_u64(HEADER_FILE_BLOCKS, bytes_max / BATCH_BLOCK);
        return out->header_blocks >= HEADER_BLOCKS_LEAST;
    }
    budget = kvarve_min_u64(wanted, bytes_max);
    slots = slots_within(slot_bytes, budget);
    if (slots < SLOTS_WANTED_LEAST) {
        budget = (uint64_t)SLOTS_WANTED_LEAST * slot_bytes +
                 (uint64_t)(SLOTS_WANTED_LEAST + 2) * BATCH_BLOCK;
        budget = kvarve_min_u64(budget, bytes_max);
        slots = kvarve_min_u64(slots_within(slot_bytes, budget), SLOTS_WANTED_LEAST);
    }
    out->slot_bytes = slot_bytes;
    out->slot_count = (uint32_t)slots;
    out->header_blocks = (uint32_t)zone_blocks(slot_bytes, slots, budget);
    return slots > 0;
}

/* --- the job --- */

static int fail_step(grow_operation *grow, int rc, const char *step)
{
    if (rc < 0) {
        grow->failed_step = step;
    }
    return rc;
}

/* Blocks for the whole file; where they can not be had beforehand, its size at least: it counts in
 * full. */
static int allocate_blocks(kvarve_io *io, kvarve_fd fd, uint64_t size)
{
    int rc = -EINTR;

    for (int i = 0; i < INTERRUPTIONS_MAX && rc == -EINTR; i++) {
        rc = io->ops->allocate(io, fd, 0, size);
    }
    return rc == -EOPNOTSUPP ? io->ops->truncate(io, fd, size) : rc;
}

/* Create, allocate, write, sync under the temporary name. -EINVAL: not to be had in this mode. */
static int make_temporary(grow_operation *grow, const char *path)
{
    kvarve_io *io = grow->base.set->env->io;
    segment_file *file = grow->file;
    const uint32_t flags = KVARVE_OPEN_CREATE | KVARVE_OPEN_TRUNCATE;
    int rc = io->ops->open(io, path, flags | (grow->use_direct ? KVARVE_OPEN_DIRECT : 0),
                           SEGMENT_FILE_MODE, &file->fd);

    if (rc < 0) {
        file->fd = -1;
        return fail_step(grow, rc, "create");
    }
    rc = fail_step(grow, allocate_blocks(io, file->fd, segment_file_size(&file->head)), "allocate");
    if (rc < 0) {
        return rc;
    }
    rc = fail_step(grow, io_write_all(io, file->fd, grow->block, SEGMENT_HEAD_SIZE, 0),
                   "write the first block of");
    if (rc < 0) {
        return rc;
    }
    rc = fail_step(grow, io->ops->sync(io, file->fd), "sync");
    grow->sync_failed = rc < 0;
    return rc;
}

static void undo(grow_operation *grow, const char *path)
{
    kvarve_io *io = grow->base.set->env->io;

    if (grow->file->fd >= 0) {
        io->ops->close(io, grow->file->fd);
        grow->file->fd = -1;
    }
    (void)io->ops->unlink(io, path); /* The first failure is the one to tell. */
}

/* Give the file its name, durably. */
static int publish(grow_operation *grow, const char *temporary_path, const char *path)
{
    const segment_set *set = grow->base.set;
    kvarve_io *io = set->env->io;
    int rc = fail_step(grow, io->ops->rename(io, temporary_path, path), "rename");

    if (rc < 0) {
        undo(grow, temporary_path);
        return rc;
    }
    rc = fail_step(grow, io->ops->sync_directory(io, set->directory), "sync the directory of");
    if (rc < 0) {
        grow->sync_failed = true;
        undo(grow, path);
    }
    return rc;
}

static void run_grow(kvarve_job *job)
{
    segment_job *own = (segment_job *)job;
    grow_operation *grow = (grow_operation *)(void *)own->operation;
    char temporary_path[KVARVE_PATH_MAX];
    char path[KVARVE_PATH_MAX];
    int rc;

    segment_path(own->operation->set, &grow->file->head, TEMPORARY_SUFFIX, temporary_path);
    segment_path(own->operation->set, &grow->file->head, "", path);
    rc = make_temporary(grow, temporary_path);
    if (rc == -EINVAL && grow->use_direct) {
        undo(grow, temporary_path);
        grow->use_direct = false;
        rc = make_temporary(grow, temporary_path);
    }
    if (rc < 0) {
        undo(grow, temporary_path);
    } else {
        rc = publish(grow, temporary_path, path);
    }
    own->result = rc;
}

/* A sync for which there was no room has lost nothing but the new file. */
static bool is_no_space(int result)
{
    return result == -ENOSPC || result == -EDQUOT;
}

static void grow_done(kvarve_job *job)
{
    segment_job *own = (segment_job *)job;
    grow_operation *grow = (grow_operation *)(void *)own->operation;
    segment_set *set = own->operation->set;

    kvarve_release(grow->block_memory);
    set->use_direct = set->use_direct && grow->use_direct;
    if (own->result < 0) {
        operation_fail(own->operation, own->result, grow->failed_step, &grow->file->head);
        set->is_failed = set->is_failed || (grow->sync_failed && !is_no_space(own->result));
        segment_break_promise(set, grow->file);
        kvarve_release(grow->file);
    } else {
        segment_insert(set, grow->file);
    }
    operation_end_job(own);
}

static kvarve_status submit_grow(segment_set *set, const segment_head *head,
                                 segment_request *request, kvarve_error *err)
{
    segment_file *file = segment_file_create(head);
    void *block_memory = NULL;
    uint8_t *block = segment_allocate_aligned(SEGMENT_HEAD_SIZE, &block_memory);
    const bool is_promised = file != NULL && block != NULL && segment_promise(set, file); /* I2 */
    grow_operation *grow = is_promised ? operation_create(set, request, sizeof *grow, NULL) : NULL;

    if (grow == NULL) {
        if (is_promised) {
            segment_break_promise(set, file);
        }
        kvarve_release(block_memory);
        kvarve_release(file);
        return kvarve_fail(err, KVARVE_NO_MEMORY, "memory for a new segment file");
    }
    segment_head_encode(head, block);
    grow->file = file;
    grow->block = block;
    grow->block_memory = block_memory;
    grow->use_direct = set->use_direct;
    set->next_number = head->number == UINT32_MAX ? 0 : head->number + 1;
    operation_add_job(&grow->base, &grow->job, NULL, KVARVE_LANE_WRITE, run_grow, grow_done);
    operation_submit(&grow->job);
    return KVARVE_OK;
}

kvarve_status segment_grow(segment_set *set, uint32_t slot_bytes, uint64_t bytes_max,
                           segment_request *request, kvarve_error *err)
{
    segment_head head = {.store = set->store, .number = set->next_number};
    const kvarve_status status = segment_check_writable(set, err);

    if (status != KVARVE_OK) {
        return status;
    }
    if (slot_bytes > 0 && bytes_max >= slot_bytes && refill_is_possible(set, slot_bytes)) {
        return refill_submit(set, slot_bytes, bytes_max, request, err);
    }
    if (head.number == 0 || !shape_file(set, slot_bytes, bytes_max, &head)) {
        return operation_submit_nothing(set, request, KVARVE_NO_SPACE,
                                        "no room for another segment file", err);
    }
    return submit_grow(set, &head, request, err);
}
