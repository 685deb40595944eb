/*
 * env_posix.c - the real world put together: the plain parts and an executor of its own.
 *
 * Threads: start and stop from one thread. Ownership: env_posix owns the executor; the other parts
 * are static.
 */
#include "env/env_posix.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "env/executor_posix_private.h"

struct env_posix {
    kvarve_env env;
    executor_posix executor;
};

kvarve_status env_posix_start(const env_posix_options *options, env_posix **out, kvarve_error *err)
{
    env_posix *posix;
    int rc;

    if (options->pool_threads < 1 || options->pool_threads > EXECUTOR_POOL_MAX) {
        return kvarve_fail(err, KVARVE_INVALID, "pool of %u threads, allowed are 1 to %d",
                           options->pool_threads, EXECUTOR_POOL_MAX);
    }
    posix = kvarve_allocate(sizeof *posix);
    if (posix == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "memory for the pool of threads");
    }
    rc = executor_posix_start(&posix->executor, options);
    if (rc < 0) {
        kvarve_release(posix);
        (void)kvarve_fail_io(err, rc, "start of %u threads", options->pool_threads);
        if (err != NULL) {
            err->status = KVARVE_UNAVAILABLE;
        }
        return KVARVE_UNAVAILABLE;
    }
    posix->env = (kvarve_env){
        .io = io_posix(),
        .clock = clock_posix(),
        .random = random_posix(),
        .memory = memory_posix(),
        .executor = &posix->executor.base,
    };
    *out = posix;
    return KVARVE_OK;
}

const kvarve_env *env_posix_env(env_posix *posix)
{
    return &posix->env;
}

void env_posix_halt(env_posix *posix)
{
    executor_posix_halt(&posix->executor);
}

void env_posix_wait_quiet(env_posix *posix)
{
    executor_posix_wait_quiet(&posix->executor);
}

void env_posix_stop(env_posix *posix)
{
    if (posix == NULL) {
        return;
    }
    executor_posix_stop(&posix->executor);
    kvarve_release(posix);
}
