/*
 * env_posix.h - the real world: one pool of threads and the plain system calls.
 *
 * Threads  start and stop from one thread; the env itself as its parts say. All threads of the pool
 *          block every signal.
 */
#ifndef KVARVE_ENV_ENV_POSIX_H
#define KVARVE_ENV_ENV_POSIX_H

#include "env/env.h"
#include "kvarve/error.h"

typedef struct env_posix env_posix;

typedef struct env_posix_options {
    uint32_t pool_threads; /* 1 .. 64: READ, WRITE and COPY; the INDEX thread is one more */
    /* Called on a pool thread after a job has run, so that somebody polls. NULL: nobody. */
    void (*notify)(void *context);
    /* Called on the thread whose job (or queue) failed an assertion, with no lock of ours held; it
     * returns, and the thread sleeps until the process ends. NULL: the process ends there. */
    void (*failed)(void *context, const char *text);
    void *notify_context; /* of both */
} env_posix_options;

/* Start the threads. KVARVE_NO_MEMORY, KVARVE_UNAVAILABLE when a thread could not be made. */
KVARVE_NODISCARD kvarve_status env_posix_start(const env_posix_options *options, env_posix **out,
                                               kvarve_error *err);

/* The world; borrowed until stop. */
const kvarve_env *env_posix_env(env_posix *posix);

/*
 * For a store that failed: no job begins any more, what is submitted is forgotten, the threads
 * sleep until the process ends, and stop may not be called. Takes no lock. What runs, runs on; wait
 * until no COPY or READ job does: the others touch no memory of a caller's.
 */
void env_posix_halt(env_posix *posix);
void env_posix_wait_quiet(env_posix *posix);

/*
 * Run what was submitted, join the threads, free. Jobs not yet polled never get their done.
 * NULL is a no-op.
 */
void env_posix_stop(env_posix *posix);

/* Parts that need no thread, for tools. Static, never NULL. */
kvarve_io *io_posix(void);
kvarve_clock *clock_posix(void);
kvarve_random *random_posix(void);
kvarve_memory *memory_posix(void);

#endif
