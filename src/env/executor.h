/*
 * executor.h - work that runs beside the store: disk calls, digests, copies, SQLite.
 *
 * A job is owned by whoever embeds it. submit hands it over; `run` is called on some thread of
 * the executor, once; afterwards `done` is called, once, from poll on the caller's thread, and
 * from then on the job is its owner's again. The store only submits and polls; it never waits. In
 * the simulator the same jobs run one at a time, in an order drawn from the seed, inside poll.
 *
 * Lanes    READ goes before COPY before WRITE in the pool, and WRITE never takes the last thread
 *          of a pool of two or more; there the first one or two WRITE jobs go before COPY, so that
 *          the disk is never idle while digests are taken. COPY is short work of the processor.
 * INDEX runs on one thread of its own, strictly in order of submission. Threads  submit and poll
 * are called under the store's lock (one caller at a time), `run` of several jobs at once. Nothing
 * is cancelled: a job that was submitted is run.
 */
#ifndef KVARVE_ENV_EXECUTOR_H
#define KVARVE_ENV_EXECUTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

typedef enum kvarve_lane {
    KVARVE_LANE_READ,
    KVARVE_LANE_WRITE,
    KVARVE_LANE_COPY,
    KVARVE_LANE_INDEX,
} kvarve_lane;

#define KVARVE_LANE_COUNT 4

typedef struct kvarve_job {
    kvarve_link link; /* the executor's while submitted */
    kvarve_lane lane;
    /* No store lock is held; touches only what the job owns. */
    void (*run)(struct kvarve_job *job);
    /* In poll, under the store's lock; may submit and may free the job. */
    void (*done)(struct kvarve_job *job);
} kvarve_job;

typedef struct kvarve_executor kvarve_executor;

struct kvarve_executor {
    void (*submit)(kvarve_executor *executor, kvarve_job *job);
    /* Call done of every job that has run; true when there was one. Does not wait. */
    bool (*poll)(kvarve_executor *executor);
    /* Jobs submitted whose done was not called yet. */
    size_t (*pending)(kvarve_executor *executor);
};

#endif
