/*
 * operation.c - a request under way: its jobs, and the end that comes once.
 *
 *   create ── add jobs ── submit each ──► run (executor) ──► done (poll) ──► last one: conclude,
 *                                                            free, request->done
 *
 * Invariants
 *   I1  jobs_left is complete before the first job is submitted, so no end comes early.
 *   I2  A file with a job is not removed or closed: trim looks at file->jobs.
 *   I3  The operation is freed before request->done is called, which may submit the request again.
 *
 * Threads: as segment_private.h. Ownership: an operation owns itself from the first submit on.
 */
#include "segment/segment_private.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/fail.h"

kvarve_status segment_check_writable(const segment_set *set, kvarve_error *err)
{
    if (set->is_read_only) {
        return kvarve_fail(err, KVARVE_INVALID, "segment files in %s are open for reading only",
                           set->directory);
    }
    if (set->is_failed) {
        return kvarve_fail(err, KVARVE_IO, "segment files in %s take no writes: a sync has failed",
                           set->directory);
    }
    return KVARVE_OK;
}

void *operation_create(segment_set *set, segment_request *request, size_t size,
                       void (*conclude)(segment_operation *operation))
{
    segment_operation *operation = kvarve_allocate(size);

    if (operation == NULL) {
        return NULL;
    }
    operation->set = set;
    operation->request = request;
    operation->conclude = conclude;
    set->operations++;
    request->status = KVARVE_OK;
    memset(&request->error, 0, sizeof request->error);
    request->private_state = operation;
    return operation;
}

void operation_add_job(segment_operation *operation, segment_job *job, segment_file *file,
                       kvarve_lane lane, void (*run)(kvarve_job *job),
                       void (*done)(kvarve_job *job))
{
    kvarve_list_init(&job->base.link);
    job->base.lane = lane;
    job->base.run = run;
    job->base.done = done;
    job->operation = operation;
    job->file = file;
    if (file != NULL) {
        file->jobs++;
    }
    operation->jobs_left++;
}

void operation_submit(segment_job *job)
{
    kvarve_executor *executor = job->operation->set->env->executor;

    executor->submit(executor, &job->base);
}

static void operation_end(segment_operation *operation)
{
    segment_request *request = operation->request;

    if (operation->conclude != NULL) {
        operation->conclude(operation);
    }
    operation->set->operations--;
    request->private_state = NULL;
    kvarve_release(operation);
    request->done(request, request->context); /* I3 */
}

void operation_end_job(segment_job *job)
{
    segment_operation *operation = job->operation;

    if (job->file != NULL) {
        job->file->jobs--;
        job->file = NULL;
    }
    KVARVE_ASSERT(operation->jobs_left > 0);
    if (--operation->jobs_left == 0) {
        operation_end(operation);
    }
}

void operation_fail(segment_operation *operation, int result, const char *what,
                    const segment_head *head)
{
    segment_request *request = operation->request;

    if (request->status == KVARVE_OK) {
        request->status =
            kvarve_fail_io(&request->error, result, "%s %s/%" PRIu32 "-%" PRIu32 ".seg", what,
                           operation->set->directory, head->slot_bytes, head->number);
    }
}

/* A request that has nothing to do ends like any other, from poll. */
typedef struct empty_operation {
    segment_operation base;
    segment_job job;
    kvarve_status status;
    const char *text;
} empty_operation;

static void empty_run(kvarve_job *job)
{
    (void)job;
}

static void empty_done(kvarve_job *job)
{
    operation_end_job((segment_job *)job);
}

static void empty_conclude(segment_operation *operation)
{
    const empty_operation *empty = (const empty_operation *)operation;

    if (empty->status != KVARVE_OK) {
        operation->request->status =
            kvarve_fail(&operation->request->error, empty->status, "%s", empty->text);
    }
}

kvarve_status operation_submit_nothing(segment_set *set, segment_request *request,
                                       kvarve_status status, const char *text, kvarve_error *err)
{
    empty_operation *operation = operation_create(set, request, sizeof *operation, empty_conclude);

    if (operation == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "memory for a request");
    }
    operation->status = status;
    operation->text = text;
    operation_add_job(&operation->base, &operation->job, NULL, KVARVE_LANE_WRITE, empty_run,
                      empty_done);
    operation_submit(&operation->job);
    return KVARVE_OK;
}
