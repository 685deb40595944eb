/*
 * refill.c - requests that give hollow slots their space again.
 *
 * One job allocates run after run. What it got is free afterwards; from the run that failed on,
 * slots are hollow as before.
 *
 * Invariants
 *   I1  From submit on the slots count as space taken, so that two requests cannot spend the same
 *       bytes.
 *   I2  A slot that is being filled is nobody's: it is not free, and no longer hollow for others.
 *   I3  A file with a run in the job is neither removed nor closed.
 *
 * Nothing is synced: the space is durable with the first page that is.
 *
 * Threads: as segment_private.h.
 */
#include "segment/segment_private.h"

#include <errno.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fail.h"

typedef struct hollow_run {
    segment_file *file;
    bitmap_run slots;
} hollow_run;

typedef struct refill_operation {
    segment_operation base;
    segment_job job;
    size_t run_count;
    size_t filled; /* runs that were, before one failed */
    hollow_run runs[];
} refill_operation;

/* --- plan --- */

static bool next_hollow(const segment_file *file, uint32_t from, bitmap_run *out)
{
    const uint32_t end = file->head.slot_count;

    out->at = bitmap_next(file->hollow, NULL, 0, from, end);
    out->count = bitmap_next(file->hollow, NULL, UINT64_MAX, out->at, end) - out->at;
    return out->count > 0;
}

bool refill_is_possible(const segment_set *set, uint32_t slot_bytes)
{
    for (uint32_t i = 0; i < set->file_count; i++) {
        const segment_file *file = set->files[i];
        bitmap_run run;

        if (file->head.slot_bytes == slot_bytes && !file->is_leaving && file->slots_hollow > 0 &&
            next_hollow(file, 0, &run)) {
            return true;
        }
    }
    return false;
}

/* The hollow runs of a file to out[count] and on, unless `out` is NULL; the count with them. */
static size_t collect_file(segment_file *file, hollow_run *out, size_t count)
{
    bitmap_run run = {0, 0};

    while (next_hollow(file, run.at + run.count, &run)) {
        if (out != NULL) {
            out[count] = (hollow_run){.file = file, .slots = run};
        }
        count++;
    }
    return count;
}

/* All hollow runs of the class into `out`, unless that is NULL; their number. */
static size_t collect(const segment_set *set, uint32_t slot_bytes, hollow_run *out)
{
    size_t count = 0;

    for (uint32_t i = 0; i < set->file_count; i++) {
        segment_file *file = set->files[i];

        if (file->head.slot_bytes == slot_bytes && !file->is_leaving) {
            count = collect_file(file, out, count);
        }
    }
    return count;
}

/* Long runs first; then low files and slots, so that high files run empty. */
static int compare_runs(const void *a, const void *b)
{
    const hollow_run *x = a;
    const hollow_run *y = b;

    if (x->slots.count != y->slots.count) {
        return x->slots.count > y->slots.count ? -1 : 1;
    }
    if (x->file->head.number != y->file->head.number) {
        return x->file->head.number < y->file->head.number ? -1 : 1;
    }
    return x->slots.at < y->slots.at ? -1 : x->slots.at > y->slots.at;
}

/* Keep the first runs, `slots` slots in all. */
static void cut(refill_operation *refill, uint64_t slots)
{
    size_t kept = 0;

    for (; kept < refill->run_count && slots > 0; kept++) {
        bitmap_run *run = &refill->runs[kept].slots;

        run->count = (uint32_t)kvarve_min_u64(run->count, slots);
        slots -= run->count;
    }
    refill->run_count = kept;
}

static void claim(const hollow_run *run)
{
    segment_file *file = run->file;
    const uint64_t bytes = (uint64_t)run->slots.count * file->head.slot_bytes;

    bitmap_fill(file->hollow, run->slots.at, run->slots.count, false); /* I2 */
    file->slots_hollow -= run->slots.count;
    file->slots_busy += run->slots.count;
    file->jobs++; /* I3 */
    if (file->bytes_told > 0) {
        file->bytes_told =
            kvarve_min_u64(file->bytes_told + bytes, segment_file_size(&file->head)); /* I1 */
    }
}

/* --- the job --- */

static int fill_run(kvarve_io *io, const hollow_run *run)
{
    const segment_head *head = &run->file->head;
    const uint64_t offset = segment_slot_offset(head, run->slots.at);
    const uint64_t bytes = (uint64_t)run->slots.count * head->slot_bytes;
    int rc = -EINTR;

    for (int i = 0; i < INTERRUPTIONS_MAX && rc == -EINTR; i++) {
        rc = io->ops->allocate(io, run->file->fd, offset, bytes);
    }
    if (rc == -EOPNOTSUPP) {
        return 0; /* Space comes with the writing there; it is counted from now on. */
    }
    if (rc < 0) {
        (void)io->ops->punch(io, run->file->fd, offset, bytes); /* what a part of it got */
    }
    return rc;
}

static void run_refill(kvarve_job *job)
{
    segment_job *own = (segment_job *)job;
    refill_operation *refill = (refill_operation *)(void *)own->operation;
    kvarve_io *io = own->operation->set->env->io;

    while (refill->filled < refill->run_count) {
        own->result = fill_run(io, &refill->runs[refill->filled]);
        if (own->result < 0) {
            return;
        }
        refill->filled++;
    }
}

static void refill_done(kvarve_job *job)
{
    segment_job *own = (segment_job *)job;
    refill_operation *refill = (refill_operation *)(void *)own->operation;

    for (size_t i = 0; i < refill->run_count; i++) {
        segment_file *file = refill->runs[i].file;
        const bitmap_run *slots = &refill->runs[i].slots;

        file->jobs--;
        file->slots_busy -= slots->count;
        if (i < refill->filled) {
            slots_mark(file, slots->at, slots->count, false);
        } else {
            bitmap_fill(file->hollow, slots->at, slots->count, true);
            file->slots_hollow += slots->count;
        }
    }
    if (own->result < 0) {
        operation_fail(own->operation, own->result, "allocate slots in",
                       &refill->runs[refill->filled].file->head);
    }
    operation_end_job(own);
}

kvarve_status refill_submit(segment_set *set, uint32_t slot_bytes, uint64_t bytes_max,
                            segment_request *request, kvarve_error *err)
{
    const size_t count = collect(set, slot_bytes, NULL);
    refill_operation *refill =
        operation_create(set, request, sizeof(refill_operation) + count * sizeof(hollow_run), NULL);

    if (refill == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "memory to take %zu runs back", count);
    }
    refill->run_count = collect(set, slot_bytes, refill->runs);
    qsort(refill->runs, refill->run_count, sizeof *refill->runs, compare_runs);
    cut(refill, bytes_max / slot_bytes);
    for (size_t i = 0; i < refill->run_count; i++) {
        claim(&refill->runs[i]);
    }
    operation_add_job(&refill->base, &refill->job, NULL, KVARVE_LANE_WRITE, run_refill,
                      refill_done);
    operation_submit(&refill->job);
    return KVARVE_OK;
}
