/*
 * executor_posix_private.h - the pool of threads behind executor.h in the real world.
 *
 * Threads  start and stop from one thread. submit and poll as executor.h says.
 */
#ifndef KVARVE_ENV_EXECUTOR_POSIX_PRIVATE_H
#define KVARVE_ENV_EXECUTOR_POSIX_PRIVATE_H

#include <stdatomic.h>

#include "env/env_posix.h"
#include "env/executor.h"
#include "env/thread.h"

#define EXECUTOR_POOL_MAX 64

typedef struct executor_posix {
    kvarve_executor base; /* first: it is a kvarve_executor */
    env_posix_options options;
    uint32_t writes_max;   /* WRITE jobs that may run at once */
    uint32_t writes_first; /* of them, before COPY */

    atomic_bool is_halted;
    atomic_uint touching_count; /* COPY and READ jobs between take and end */
    kvarve_mutex quiet_mutex;   /* taken while halted only, for the condition */
    kvarve_condition quiet;     /* halted, and no such job runs */

    kvarve_mutex mutex; /* guards all below up to the threads */
    kvarve_condition pool_work;
    kvarve_condition index_work;
    kvarve_list queued[KVARVE_LANE_COUNT];
    kvarve_list finished;
    size_t finished_count;
    size_t pending;
    uint32_t writes_running;
    bool is_stopping;

    kvarve_thread pool[EXECUTOR_POOL_MAX];
    uint32_t pool_count; /* threads started */
    kvarve_thread index;
    bool has_index;
} executor_posix;

/* Start 1 .. EXECUTOR_POOL_MAX threads and the index thread. 0, or -errno and nothing runs. */
int executor_posix_start(executor_posix *executor, const env_posix_options *options);

/* As env_posix_halt and env_posix_wait_quiet. */
void executor_posix_halt(executor_posix *executor);
void executor_posix_wait_quiet(executor_posix *executor);

/* Run what was submitted, then join the threads. Finished jobs stay undone. */
void executor_posix_stop(executor_posix *executor);

#endif
