/*
 * embedded.h - a store inside the caller's process: its lock, its thread, its pool, its events.
 *
 * Threads  Any. Calls of the store are made between embedded_lock and embedded_unlock; a thread of
 * its own takes completions and timers under the same lock. No call of this folder blocks longer
 * than it says.
 *
 * Failures  Every public call begins with EMBEDDED_CALL. A failed assertion of ours inside of it,
 * or in a thread of the store's, fails the host (contain.c): from then on embedded_enter says
 * UNAVAILABLE, and embedded_lock and embedded_wait do not return but leave the call.
 */
#ifndef KVARVE_EMBEDDED_EMBEDDED_H
#define KVARVE_EMBEDDED_EMBEDDED_H

#include <setjmp.h>

#include "base/assert.h"
#include "door/door.h"
#include "env/env_posix.h"

typedef struct embedded embedded;

/* A public call under way on this thread; in the frame of its function, made by EMBEDDED_CALL. */
typedef struct embedded_call {
    jmp_buf out;
    struct embedded_call *outer;
    embedded *host;      /* NULL: not known yet */
    const char *opening; /* the directory, while the call has the mutex of openings */
    kvarve_assert_handler handler_before;
    bool is_contained;
    bool has_lock; /* of `host` */
} embedded_call;

/*
 * First in a public function: where a failed assertion comes out. `leave` is a return; what the
 * call had is left as it is, so nothing but parameters that nobody assigns may stand in it.
 */
#define EMBEDDED_CALL(leave)                                                                       \
    __attribute__((cleanup(embedded_call_end))) embedded_call public_call;                         \
    if (setjmp(*embedded_call_begin(&public_call)) != 0) { /* NOLINT(cert-err52-cpp) */            \
        leave;                                                                                     \
    }                                                                                              \
    (void)0

jmp_buf *embedded_call_begin(embedded_call *call);
/* If the host has failed, wait until no job touches a caller's memory: none will any more. */
void embedded_call_end(embedded_call *call);

/* In `leave`: KVARVE_UNAVAILABLE, with what failed. */
KVARVE_NODISCARD kvarve_status embedded_call_failed(kvarve_error *err);

/* The call is about this host. KVARVE_UNAVAILABLE as above: it has failed. */
KVARVE_NODISCARD kvarve_status embedded_enter(embedded *host, kvarve_error *err);

/*
 * Open the store in `directory` with complete options, waiting up to options->wait_ms for another
 * process to leave it. Blocks, also for a rebuild; `progress` (may be NULL) is called during one.
 * Statuses as kvarve_open.
 */
KVARVE_NODISCARD kvarve_status embedded_open(const char *directory,
                                             const kvarve_store_options *options,
                                             kvarve_progress progress, void *context,
                                             embedded **out, kvarve_error *err);

/*
 * The same in a world of the caller's, without any thread: jobs run when somebody waits. For tests
 * in the simulated host; one thread only. The world outlives the host. `env` is borrowed.
 */
KVARVE_NODISCARD kvarve_status embedded_open_in(const kvarve_env *env, const char *directory,
                                                const kvarve_store_options *options, embedded **out,
                                                kvarve_error *err);

/* The same as doors. */
KVARVE_NODISCARD kvarve_status embedded_door_open(const char *directory,
                                                  const kvarve_store_options *options, door **out,
                                                  kvarve_error *err);
KVARVE_NODISCARD kvarve_status embedded_door_open_in(const kvarve_env *env, const char *directory,
                                                     const kvarve_store_options *options,
                                                     door **out, kvarve_error *err);

/* Shut down and free; waits at most the io timeout for what is in flight. NULL is a no-op. In a
 * forked child it forgets the handle. */
void embedded_close(embedded *host);

/* True in the process that opened it. */
bool embedded_is_here(const embedded *host);

store_machine *embedded_store(embedded *host);
const kvarve_env *embedded_env(embedded *host);

void embedded_lock(embedded *host);
void embedded_unlock(embedded *host);

/* No thread of its own: when a wait ends, nothing will change by itself. */
bool embedded_is_still(const embedded *host);

/* Under the lock: wait until something changed or the monotonic deadline passed. False: it passed.
 */
bool embedded_wait(embedded *host, uint64_t deadline_ns);
uint64_t embedded_deadline(const embedded *host, uint32_t timeout_ms);

/* Under the lock: the oldest event; false: none. */
bool embedded_take_event(embedded *host, kvarve_event *out);
/* Under the lock: one more event. */
void embedded_tell(embedded *host, const kvarve_event *event);
int embedded_event_fd(const embedded *host);

#endif
