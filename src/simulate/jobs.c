/*
 * jobs.c - the simulated executor: jobs run inside poll, one at a time, in an order drawn from the
 * seed.
 *
 * Invariant: among the jobs of INDEX the order of submission is kept; any other order is possible,
 * so that what passes here does not lean on the order in which threads happen to run.
 *
 * Threads: one at a time. Ownership: a job is ours between submit and done.
 */
#include "simulate/world_private.h"

static sim_world *world_of(kvarve_executor *executor)
{
    return KVARVE_LIST_ITEM(executor, sim_world, executor);
}

static kvarve_job *job_of(kvarve_link *link)
{
    return KVARVE_LIST_ITEM(link, kvarve_job, link);
}

static void sim_submit(kvarve_executor *executor, kvarve_job *job)
{
    sim_jobs *jobs = &world_of(executor)->jobs;

    kvarve_list_append(&jobs->queued, &job->link);
    jobs->queued_count++;
    jobs->pending++;
}

static kvarve_job *first_of_lane(sim_jobs *jobs, kvarve_lane lane)
{
    kvarve_link *link = jobs->queued.next;

    while (job_of(link)->lane != lane) {
        link = link->next;
    }
    return job_of(link);
}

static kvarve_job *draw_job(sim_jobs *jobs)
{
    uint64_t number = world_next_random(&jobs->random) % jobs->queued_count;
    kvarve_link *link = jobs->queued.next;

    while (number-- > 0) {
        link = link->next;
    }
    if (job_of(link)->lane == KVARVE_LANE_INDEX) {
        return first_of_lane(jobs, KVARVE_LANE_INDEX);
    }
    return job_of(link);
}

static bool sim_poll(kvarve_executor *executor)
{
    sim_jobs *jobs = &world_of(executor)->jobs;
    const bool is_single = world_next_random(&jobs->random) % 2 == 0;
    kvarve_link *link;
    uint64_t runs = 1;

    if (jobs->queued_count == 0) {
        return false;
    }
    if (!is_single) {
        runs += world_next_random(&jobs->random) % jobs->queued_count;
    }
    for (; runs > 0; runs--) {
        kvarve_job *job = draw_job(jobs);

        kvarve_list_remove(&job->link);
        jobs->queued_count--;
        job->run(job);
        kvarve_list_append(&jobs->finished, &job->link);
    }
    while ((link = kvarve_list_take_first(&jobs->finished)) != NULL) {
        jobs->pending--;
        job_of(link)->done(job_of(link));
    }
    return true;
}

static size_t sim_pending(kvarve_executor *executor)
{
    return world_of(executor)->jobs.pending;
}

void jobs_init(sim_world *world, uint64_t seed)
{
    world->executor = (kvarve_executor){
        .submit = sim_submit,
        .poll = sim_poll,
        .pending = sim_pending,
    };
    world->jobs = (sim_jobs){.random = seed};
    kvarve_list_init(&world->jobs.queued);
    kvarve_list_init(&world->jobs.finished);
}

void jobs_drop_all(sim_world *world)
{
    sim_jobs *jobs = &world->jobs;

    while (kvarve_list_take_first(&jobs->queued) != NULL) {
    }
    jobs->queued_count = 0;
    jobs->pending = 0;
}
