/*
 * trim.c - requests that give free space back to the file system.
 *
 * A file without a taken slot or header block goes; in others, free slots that may have space on
 * the disk are punched, a run at a time.
 *
 * Invariants
 *   I1  A slot that is being punched is taken as far as others see, so nobody writes to it
 *       meanwhile; a file that is being removed is not found by anybody.
 *   I2  A file with a job in flight is neither removed nor closed.
 *   I3  What was punched is hollow until a refill gives it space again, so that a trim with
 *       nothing to do does nothing.
 *   I4  Slots that are hollow only as far as the file system's word goes (bytes_told) are punched
 *       once more, and stay hollow meanwhile; when all of a file were, they are known to be.
 *
 * Threads: as segment_private.h.
 */
#include "segment/segment_private.h"

#include <errno.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"

#define RUNS_PER_JOB 256u

typedef struct punch_run {
    bitmap_run slots;
    bool was_hollow; /* I4 */
} punch_run;

/* Punches runs of one file. */
typedef struct punch_job {
    segment_job base;
    punch_run *runs;
    uint32_t run_count;
    uint32_t punched; /* runs that were, before one failed */
} punch_job;

/* Removes one file. */
typedef struct removal {
    segment_file *file;
    uint64_t bytes; /* that it has on the disk, as far as known */
    bool is_removed;
} removal;

/* The job that removes files, then syncs the directory once. */
typedef struct remove_job {
    segment_job base;
    removal *removals;
    uint32_t removal_count;
    uint32_t failed; /* the one whose removal gave the result */
    bool sync_failed;
} remove_job;

typedef struct trim_operation {
    segment_operation base;
    uint64_t *out_bytes;
    uint64_t bytes;
    remove_job remove;
    punch_run *runs;
    removal *removals;
    punch_job jobs[];
} trim_operation;

/* What a trim will do, counted before memory is asked for. */
typedef struct trim_plan {
    size_t removals;
    size_t runs;
    size_t jobs; /* that punch */
} trim_plan;

static bool is_empty(const segment_file *file)
{
    return file->slots_free + file->slots_hollow == file->head.slot_count &&
           file->blocks_free == file->head.header_blocks - 1 && file->jobs == 0; /* I2 */
}

/* The next run of slots that nobody has and that may have space on the disk. */
static bool next_run(const segment_file *file, uint32_t from, punch_run *out)
{
    const uint32_t end = file->head.slot_count;
    const uint32_t hollow_at =
        file->bytes_told == 0 ? end : bitmap_next(file->hollow, NULL, 0, from, end);
    const bool is_free = bitmap_next_run(file->taken, NULL, from, end, &out->slots);

    out->was_hollow = hollow_at < end && (!is_free || hollow_at < out->slots.at);
    if (out->was_hollow) {
        out->slots.at = hollow_at;
        out->slots.count = bitmap_next(file->hollow, NULL, UINT64_MAX, hollow_at, end) - hollow_at;
    }
    return is_free || out->was_hollow;
}

static uint32_t end_of(const punch_run *run)
{
    return run->slots.at + run->slots.count;
}

static size_t count_runs(const segment_file *file)
{
    punch_run run = {0};
    size_t count = 0;

    while (next_run(file, end_of(&run), &run)) {
        count++;
    }
    return count;
}

static trim_plan make_plan(const segment_set *set)
{
    trim_plan plan = {0};

    for (uint32_t i = 0; i < set->file_count; i++) {
        const segment_file *file = set->files[i];

        if (file->is_leaving) {
            continue;
        }
        if (is_empty(file)) {
            plan.removals++;
        } else if (!set->cannot_punch) {
            const size_t runs = count_runs(file);

            plan.runs += runs;
            plan.jobs += (size_t)kvarve_divide_up(runs, RUNS_PER_JOB);
        }
    }
    return plan;
}

/* --- punching --- */

static void run_punch(kvarve_job *job)
{
    punch_job *own = (punch_job *)job;
    const segment_head *head = &own->base.file->head;
    kvarve_io *io = own->base.operation->set->env->io;

    for (; own->punched < own->run_count && own->base.result == 0; own->punched++) {
        const bitmap_run *run = &own->runs[own->punched].slots;
        int rc = -EINTR;

        for (int i = 0; i < INTERRUPTIONS_MAX && rc == -EINTR; i++) {
            rc = io->ops->punch(io, own->base.file->fd, segment_slot_offset(head, run->at),
                                (uint64_t)run->count * head->slot_bytes);
        }
        own->base.result = rc;
        if (rc < 0) {
            break;
        }
    }
}

/* Let go of a run of the file. */
static void settle_run(segment_file *file, const punch_run *run, bool is_punched)
{
    const bitmap_run *slots = &run->slots;

    if (!run->was_hollow) {
        file->slots_busy -= slots->count;
        file->slots_hollow += is_punched ? slots->count : 0;
    }
    if (run->was_hollow || is_punched) {
        bitmap_fill(file->hollow, slots->at, slots->count, true);
    } else {
        slots_mark(file, slots->at, slots->count, false);
    }
}

/* I4: with the last of the file's jobs. */
static void settle_punches(segment_file *file, bool has_failed)
{
    file->has_punch_failed = file->has_punch_failed || has_failed;
    if (--file->punches > 0) {
        return;
    }
    if (!file->has_punch_failed) {
        file->bytes_told = 0;
    }
    file->has_punch_failed = false;
}

static void punch_done(kvarve_job *job)
{
    punch_job *own = (punch_job *)job;
    trim_operation *trim = (trim_operation *)(void *)own->base.operation;
    segment_file *file = own->base.file;
    const uint64_t before = segment_file_bytes(file);

    for (uint32_t i = 0; i < own->run_count; i++) {
        settle_run(file, &own->runs[i], i < own->punched);
    }
    settle_punches(file, own->base.result < 0);
    trim->bytes += before - segment_file_bytes(file);
    if (own->base.result == -EOPNOTSUPP) {
        trim->base.set->cannot_punch = true;
    } else if (own->base.result < 0) {
        operation_fail(&trim->base, own->base.result, "punch holes into", &file->head);
    }
    operation_end_job(&own->base);
}

/* Jobs for one file's runs, from *jobs and *runs on, which go along. */
static void add_punches(trim_operation *trim, segment_file *file, punch_job **jobs,
                        punch_run **runs)
{
    punch_run run = {0};
    punch_job *job = NULL;

    while (next_run(file, end_of(&run), &run)) {
        if (job == NULL || job->run_count == RUNS_PER_JOB) {
            job = (*jobs)++;
            job->runs = *runs;
            operation_add_job(&trim->base, &job->base, file, KVARVE_LANE_WRITE, run_punch,
                              punch_done);
            file->punches++;
        }
        *(*runs)++ = run;
        job->run_count++;
        if (run.was_hollow) { /* I1: nor does anybody fill it */
            bitmap_fill(file->hollow, run.slots.at, run.slots.count, false);
        } else {
            slots_mark(file, run.slots.at, run.slots.count, true);
            file->slots_busy += run.slots.count;
        }
    }
}

/* --- removing --- */

static void run_remove(kvarve_job *job)
{
    remove_job *own = (remove_job *)job;
    const segment_set *set = own->base.operation->set;
    kvarve_io *io = set->env->io;
    int rc;

    for (uint32_t i = 0; i < own->removal_count; i++) {
        char path[KVARVE_PATH_MAX];

        segment_path(set, &own->removals[i].file->head, "", path);
        rc = io->ops->unlink(io, path);
        own->removals[i].is_removed = rc == 0 || rc == -ENOENT;
        if (own->base.result == 0 && !own->removals[i].is_removed) {
            own->base.result = rc;
            own->failed = i;
        }
    }
    rc = io->ops->sync_directory(io, set->directory);
    own->sync_failed = rc < 0;
    if (own->base.result == 0) {
        own->base.result = rc;
    }
}

/* All slots of a file in which none is anybody's. */
static void mark_unless_hollow(segment_file *file, bool is_taken)
{
    bitmap_run run = {0, 0};

    while (bitmap_next_run(file->hollow, NULL, run.at + run.count, file->head.slot_count, &run)) {
        slots_mark(file, run.at, run.count, is_taken);
    }
}

static void remove_done(kvarve_job *job)
{
    remove_job *own = (remove_job *)job;
    trim_operation *trim = (trim_operation *)(void *)own->base.operation;
    segment_set *set = trim->base.set;

    if (own->base.result < 0) {
        operation_fail(&trim->base, own->base.result, "remove",
                       &own->removals[own->failed].file->head);
    }
    set->is_failed = set->is_failed || own->sync_failed;
    for (uint32_t i = 0; i < own->removal_count; i++) {
        segment_file *file = own->removals[i].file;

        if (own->removals[i].is_removed) {
            trim->bytes += own->removals[i].bytes;
            set->env->io->ops->close(set->env->io, file->fd);
            segment_remove(set, file);
            continue;
        }
        file->is_leaving = false;
        mark_unless_hollow(file, false);
        file->slots_busy = 0;
    }
    operation_end_job(&own->base);
}

static void add_removal(trim_operation *trim, segment_file *file)
{
    removal *entry = &trim->removals[trim->remove.removal_count++];

    *entry = (removal){.file = file, .bytes = segment_file_bytes(file)};
    file->is_leaving = true; /* I1 */
    file->slots_busy = file->slots_free;
    mark_unless_hollow(file, true);
}

/* --- the request --- */

static void conclude_trim(segment_operation *operation)
{
    const trim_operation *trim = (const trim_operation *)(const void *)operation;

    *trim->out_bytes = trim->bytes;
}

/* The operation, with room for what is planned. */
static trim_operation *create_trim(segment_set *set, segment_request *request,
                                   const trim_plan *plan)
{
    const size_t size = sizeof(trim_operation) + plan->jobs * sizeof(punch_job) +
                        plan->removals * sizeof(removal) + plan->runs * sizeof(punch_run);
    trim_operation *trim = operation_create(set, request, size, conclude_trim);

    if (trim != NULL) {
        trim->removals = (removal *)(void *)&trim->jobs[plan->jobs];
        trim->runs = (punch_run *)(void *)&trim->removals[plan->removals];
        trim->remove.removals = trim->removals;
    }
    return trim;
}

static void add_work(segment_set *set, trim_operation *trim)
{
    punch_job *jobs = trim->jobs;
    punch_run *runs = trim->runs;

    for (uint32_t i = 0; i < set->file_count; i++) {
        segment_file *file = set->files[i];

        if (file->is_leaving) {
            continue;
        }
        if (is_empty(file)) {
            add_removal(trim, file);
        } else if (!set->cannot_punch) {
            add_punches(trim, file, &jobs, &runs);
        }
    }
    if (trim->remove.removal_count > 0) {
        operation_add_job(&trim->base, &trim->remove.base, NULL, KVARVE_LANE_WRITE, run_remove,
                          remove_done);
    }
}

kvarve_status segment_trim(segment_set *set, uint64_t *out_bytes, segment_request *request,
                           kvarve_error *err)
{
    const kvarve_status status = segment_check_writable(set, err);
    trim_operation *trim;
    trim_plan plan;

    if (status != KVARVE_OK) {
        return status;
    }
    plan = make_plan(set);
    if (plan.jobs + plan.removals == 0) {
        *out_bytes = 0;
        return operation_submit_nothing(set, request, KVARVE_OK, NULL, err);
    }
    trim = create_trim(set, request, &plan);
    if (trim == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "memory to trim %zu runs", plan.runs);
    }
    trim->out_bytes = out_bytes;
    add_work(set, trim);
    for (size_t i = 0; i < plan.jobs; i++) {
        operation_submit(&trim->jobs[i].base);
    }
    if (trim->remove.removal_count > 0) {
        operation_submit(&trim->remove.base);
    }
    return KVARVE_OK;
}
