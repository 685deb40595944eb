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
 *   I3  What was punched is remembered (hollow) until the slot is freed again, so that a trim with
 *       nothing to do does nothing.
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

/* Punches runs of one file. */
typedef struct punch_job {
    segment_job base;
    bitmap_run *runs;
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
    bitmap_run *runs;
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
    return file->slots_free == file->head.slot_count &&
           file->blocks_free == file->head.header_blocks - 1 && file->jobs == 0; /* I2 */
}

/* The next run of free slots that may have space on the disk. */
static bool next_run(const segment_file *file, uint32_t from, bitmap_run *out)
{
    return bitmap_next_run(file->taken, file->hollow, from, file->head.slot_count, out);
}

static size_t count_runs(const segment_file *file)
{
    bitmap_run run = {0, 0};
    size_t count = 0;

    while (next_run(file, run.at + run.count, &run)) {
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
        const bitmap_run *run = &own->runs[own->punched];
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

static void punch_done(kvarve_job *job)
{
    punch_job *own = (punch_job *)job;
    trim_operation *trim = (trim_operation *)(void *)own->base.operation;
    segment_file *file = own->base.file;

    for (uint32_t i = 0; i < own->run_count; i++) {
        const bitmap_run *run = &own->runs[i];

        if (i < own->punched) {
            bitmap_fill(file->hollow, run->at, run->count, true);
            trim->bytes += (uint64_t)run->count * file->head.slot_bytes;
        }
        file->slots_busy -= run->count;
        slots_mark(file, run->at, run->count, false);
    }
    if (own->base.result == -EOPNOTSUPP) {
        trim->base.set->cannot_punch = true;
    } else if (own->base.result < 0) {
        operation_fail(&trim->base, own->base.result, "punch holes into", &file->head);
    }
    operation_end_job(&own->base);
}

/* Jobs for one file's runs, from *jobs and *runs on, which go along. */
static void add_punches(trim_operation *trim, segment_file *file, punch_job **jobs,
                        bitmap_run **runs)
{
    bitmap_run run = {0, 0};
    punch_job *job = NULL;

    while (next_run(file, run.at + run.count, &run)) {
        if (job == NULL || job->run_count == RUNS_PER_JOB) {
            job = (*jobs)++;
            job->runs = *runs;
            operation_add_job(&trim->base, &job->base, file, KVARVE_LANE_WRITE, run_punch,
                              punch_done);
        }
        *(*runs)++ = run;
        job->run_count++;
        slots_mark(file, run.at, run.count, true); /* I1 */
        file->slots_busy += run.count;
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
        if (file->class != NULL) {
            file->slots_busy = 0;
            slots_mark(file, 0, file->head.slot_count, false);
        }
    }
    operation_end_job(&own->base);
}

/* What the file has on the disk: all but what was punched. */
static uint64_t bytes_of(const segment_file *file)
{
    uint64_t bytes = segment_file_size(&file->head);

    for (size_t i = 0; i < bitmap_words(file->head.slot_count); i++) {
        bytes -= (uint64_t)__builtin_popcountll(file->hollow[i]) * file->head.slot_bytes;
    }
    return bytes;
}

static void add_removal(trim_operation *trim, segment_file *file)
{
    removal *entry = &trim->removals[trim->remove.removal_count++];

    *entry = (removal){.file = file, .bytes = bytes_of(file)};
    file->is_leaving = true; /* I1 */
    if (file->class != NULL) {
        slots_mark(file, 0, file->head.slot_count, true);
        file->slots_busy = file->head.slot_count;
    }
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
                        plan->removals * sizeof(removal) + plan->runs * sizeof(bitmap_run);
    trim_operation *trim = operation_create(set, request, size, conclude_trim);

    if (trim != NULL) {
        trim->removals = (removal *)(void *)&trim->jobs[plan->jobs];
        trim->runs = (bitmap_run *)(void *)&trim->removals[plan->removals];
        trim->remove.removals = trim->removals;
    }
    return trim;
}

static void add_work(segment_set *set, trim_operation *trim)
{
    punch_job *jobs = trim->jobs;
    bitmap_run *runs = trim->runs;

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
