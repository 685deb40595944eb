/*
 * transfer_job.c - the calls of transfer.h as jobs of the COPY lane.
 *
 * Invariant: run touches its own job and what that names, nothing else, so that any number of jobs
 * may run at once. Ownership: the job is the executor's between submit and done. Nothing allocates.
 */
#include "transfer/transfer.h"

#include <string.h>

#include "base/assert.h"
#include "base/fail.h"

static kvarve_status verdict(transfer_job *job, bool is_equal)
{
    return is_equal ? KVARVE_OK
                    : kvarve_fail(&job->err, KVARVE_CORRUPT,
                                  "page of %zu bytes does not match its digest", job->size);
}

static void run(kvarve_job *base)
{
    transfer_job *job = (transfer_job *)base;

    job->status = KVARVE_OK;
    switch (job->work) {
    case TRANSFER_GATHER:
        job->status =
            transfer_gather(job->group, &job->page, job->to, job->size, &job->digest, &job->err);
        return;
    case TRANSFER_SCATTER:
        job->status = transfer_scatter_verified(job->group, &job->page, job->from, job->size,
                                                &job->digest, &job->err);
        return;
    case TRANSFER_COPY_IN:
        job->digest = transfer_copy_in(job->to, job->from, job->size);
        return;
    case TRANSFER_COPY_OUT:
        job->status = verdict(job, transfer_copy_out(job->to, job->from, job->size, &job->digest));
        return;
    case TRANSFER_VERIFY:
        job->status = verdict(job, transfer_verify(job->from, job->size, &job->digest));
        return;
    case TRANSFER_DIGEST:
        job->digest = transfer_digest(job->from, job->size);
        return;
    }
    KVARVE_UNREACHABLE();
}

void transfer_job_init(transfer_job *job, transfer_work work, void (*done)(kvarve_job *base))
{
    memset(job, 0, sizeof *job);
    job->base.lane = KVARVE_LANE_COPY;
    job->base.run = run;
    job->base.done = done;
    job->work = work;
}
