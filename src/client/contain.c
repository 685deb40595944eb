/*
 * contain.c - a failed assertion of ours fails the client, and the host process lives
 * (docs/design/0003).
 *
 * Invariants
 *   C1  Between lock and unlock a thread has a handler that lets go of the mutex and leaves by the
 *       handler from before: that of the public call, or of the pool's thread.
 *   C2  A failed client is left as it is: nothing is sent, received, freed or given back any more.
 *   C3  A call on it returns when no job of ours is touching a caller's memory, and none will.
 *
 * Threads: any.
 */
#include <stdio.h>

#include "base/assert.h"
#include "client/client_private.h"

/* What this thread has entered; `at` NULL: nothing, or failures are not contained. */
typedef struct entered {
    client *at;
    kvarve_assert_handler before;
    bool has_mutex;
    bool is_worker; /* the pool's thread */
} entered;

static _Thread_local entered this_thread;

/* With the mutex. Whoever waits learns it. */
static void fail(client *at, const char *text)
{
    if (!at->is_failed) {
        at->is_failed = true;
        at->is_broken = true;
        (void)snprintf(at->failure, sizeof at->failure, "the client failed: %s", text);
        if (at->posix != NULL) {
            env_posix_halt(at->posix);
        }
    }
    if (at->event_fd >= 0) {
        event_set(at->event_fd);
    }
    condition_signal_all(&at->changed);
    client_changed(at);
}

static void leave(const char *text)
{
    const entered from = this_thread;

    this_thread.at = NULL;
    if (!from.has_mutex) {
        mutex_lock(&from.at->mutex);
    }
    fail(from.at, text);
    mutex_unlock(&from.at->mutex); /* C1 */
    if (!from.is_worker) {
        client_wait_quiet(from.at);
    }
    if (from.before != NULL) {
        from.before(text); /* does not come back */
    }
}

void client_contain_begin(client *at, bool is_worker)
{
    this_thread = (entered){.has_mutex = true, .is_worker = is_worker};
    if (!kvarve_assert_is_containing()) {
        return;
    }
    this_thread.at = at;
    this_thread.before = kvarve_assert_set_handler(leave);
    client_contain_check(at);
}

void client_contain_end(void)
{
    if (this_thread.at != NULL) {
        (void)kvarve_assert_set_handler(this_thread.before);
        this_thread.at = NULL;
    }
}

void client_contain_mutex(bool is_held)
{
    this_thread.has_mutex = is_held;
}

void client_contain_check(client *at)
{
    if (at->is_failed && this_thread.at == at) {
        (void)kvarve_assert_set_handler(this_thread.before);
        leave(at->failure);
    }
}

void client_contain_fail(client *at, const char *text)
{
    mutex_lock(&at->mutex);
    fail(at, text);
    mutex_unlock(&at->mutex);
}

void client_wait_quiet(client *at)
{
    if (at->posix != NULL) {
        env_posix_wait_quiet(at->posix); /* C3 */
    }
}
