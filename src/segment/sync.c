/*
 * sync.c - requests that make what was written durable.
 *
 * Invariants
 *   I1  A failed sync is final: the set turns failed and no sync is begun after it. The kernel
 *       reports an error once for a descriptor and may then say that all is well, although the
 *       bytes are lost.
 *   I2  So no two syncs of one file run at once, or the one that hears nothing would be believed.
 *       The later one waits, and is not run when the earlier one has failed.
 *
 * Threads: as segment_private.h.
 */
#include "segment/segment_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/fail.h"

typedef struct sync_job {
    segment_job base;
    kvarve_link waiting; /* segment_file.syncs_waiting */
} sync_job;

typedef struct sync_operation {
    segment_operation base;
    sync_job jobs[];
} sync_operation;

static void run_sync(kvarve_job *job)
{
    segment_job *own = (segment_job *)job;
    kvarve_io *io = own->operation->set->env->io;

    own->result = io->ops->sync(io, own->file->fd);
}

static void begin_or_wait(sync_job *job)
{
    segment_file *file = job->base.file;

    if (file->is_syncing) { /* I2 */
        kvarve_list_append(&file->syncs_waiting, &job->waiting);
        return;
    }
    file->is_syncing = true;
    operation_submit(&job->base);
}

static void end_sync(sync_job *job)
{
    if (job->base.result < 0) {
        operation_fail(job->base.operation, job->base.result, "sync", &job->base.file->head);
    }
    operation_end_job(&job->base);
}

/* What waited for this sync runs next, or, after a failure, not at all (I1). */
static void wake_waiting(segment_set *set, segment_file *file)
{
    kvarve_link *link;

    while (!file->is_syncing && (link = kvarve_list_take_first(&file->syncs_waiting)) != NULL) {
        sync_job *job = KVARVE_LIST_ITEM(link, sync_job, waiting);

        if (set->is_failed) {
            job->base.result = -EIO;
            end_sync(job);
        } else {
            begin_or_wait(job);
        }
    }
}

static void sync_done(kvarve_job *job)
{
    sync_job *own = (sync_job *)job;
    segment_file *file = own->base.file;
    segment_set *set = own->base.operation->set;

    set->counters.sync_count++;
    file->is_syncing = false;
    set->is_failed = set->is_failed || own->base.result < 0;
    wake_waiting(set, file);
    end_sync(own);
}

static int compare_numbers(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a;
    const uint32_t y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

/* Sort, and leave each number once; how many there are. */
static size_t distinct(uint32_t *numbers, size_t count)
{
    size_t kept = 1;

    qsort(numbers, count, sizeof *numbers, compare_numbers);
    for (size_t i = 1; i < count; i++) {
        if (numbers[i] != numbers[kept - 1]) {
            numbers[kept++] = numbers[i];
        }
    }
    return kept;
}

kvarve_status segment_sync(segment_set *set, const uint32_t *files, size_t count,
                           segment_request *request, kvarve_error *err)
{
    const kvarve_status status = segment_check_writable(set, err);
    sync_operation *operation;
    uint32_t *numbers;
    size_t job_count;

    if (status != KVARVE_OK) {
        return status;
    }
    if (count == 0) {
        return operation_submit_nothing(set, request, KVARVE_OK, NULL, err);
    }
    operation = operation_create(
        set, request, sizeof *operation + count * (sizeof operation->jobs[0] + sizeof *numbers),
        NULL);
    if (operation == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "memory to sync %zu files", count);
    }
    numbers = (uint32_t *)(void *)&operation->jobs[count];
    memcpy(numbers, files, count * sizeof *numbers);
    job_count = distinct(numbers, count);
    for (size_t i = 0; i < job_count; i++) {
        segment_file *file = segment_find(set, numbers[i]);

        KVARVE_ASSERT(file != NULL);
        kvarve_list_init(&operation->jobs[i].waiting);
        operation_add_job(&operation->base, &operation->jobs[i].base, file, KVARVE_LANE_WRITE,
                          run_sync, sync_done);
    }
    for (size_t i = 0; i < job_count; i++) {
        begin_or_wait(&operation->jobs[i]);
    }
    return KVARVE_OK;
}
