/*
 * contain.c - a failed assertion of ours fails the store, and the host process lives.
 *
 * Invariants
 *   C1  A failed host is never entered again: embedded_lock and embedded_wait leave the call, no
 *       job begins, the thread of the store sleeps.
 *   C2  Nothing of it is freed or changed any more; its folder stays locked and listed.
 *   C3  A call on it returns when no job of ours is touching a caller's memory, and none will.
 *   C4  No lock that anybody still asks for stays with a thread that failed.
 *
 * A caller's thread leaves its call by longjmp, to the frame of the public function, which returns
 * at once. Threads of our own never leave the failed frame: they sleep there.
 *
 * Threads: any. Ownership: an embedded_call is in the public function's frame.
 */
#include "embedded/embedded_private.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/fail.h"

static _Thread_local embedded_call *this_call; /* the innermost */
static _Thread_local embedded *own_host;       /* of a store's own thread */
static _Thread_local char last_failure[KVARVE_ERROR_TEXT_MAX];

bool host_is_failed(const embedded *host)
{
    return atomic_load_explicit(&host->state, memory_order_acquire) != HOST_SOUND;
}

const char *host_failure(const embedded *host)
{
    return atomic_load_explicit(&host->state, memory_order_acquire) == HOST_FAILED
               ? host->failure
               : "an assertion failed";
}

/* Takes no lock: whatever this thread holds, the others learn it. */
static void record(embedded *host, const char *text)
{
    int sound = HOST_SOUND;

    if (!atomic_compare_exchange_strong(&host->state, &sound, HOST_FAILING)) {
        return;
    }
    if (host->posix != NULL) {
        env_posix_halt(host->posix);
    }
    (void)snprintf(host->failure, sizeof host->failure, "%s", text);
    atomic_store_explicit(&host->state, HOST_FAILED, memory_order_release);
}

/* With the lock, which is let go: whoever waits learns it. */
static void wake_all(embedded *host)
{
    if (host->event_fd >= 0) {
        event_set(host->event_fd);
    }
    condition_signal_all(&host->changed);
    condition_signal_all(&host->work);
    mutex_unlock(&host->mutex);
}

void host_fail(void *context, const char *text)
{
    embedded *host = context;

    record(host, text);
    mutex_lock(&host->mutex);
    wake_all(host);
}

/* --- the store's own thread --- */

static void leave_own_thread(const char *text)
{
    record(own_host, text);
    wake_all(own_host);
    thread_park();
}

void host_contain_thread(embedded *host)
{
    own_host = host;
    if (kvarve_assert_is_containing()) {
        (void)kvarve_assert_set_handler(leave_own_thread);
    }
}

/* --- calls --- */

static void leave_call(const char *text)
{
    embedded_call *call = this_call;
    embedded *host = call->host;

    (void)snprintf(last_failure, sizeof last_failure, "%s", text);
    if (host == NULL) {
        longjmp(call->out, 1);
    }
    record(host, text);
    if (call->opening != NULL) {
        host_leave_opening(host, call->opening);
    }
    if (!call->has_lock) {
        mutex_lock(&host->mutex);
    }
    call->has_lock = false; /* C4 */
    wake_all(host);
    longjmp(call->out, 1);
}

jmp_buf *embedded_call_begin(embedded_call *call)
{
    call->is_contained = kvarve_assert_is_containing();
    if (call->is_contained) {
        call->outer = this_call;
        call->host = NULL;
        call->opening = NULL;
        call->has_lock = false;
        call->handler_before = kvarve_assert_set_handler(leave_call);
        this_call = call;
    }
    return &call->out;
}

void embedded_call_end(embedded_call *call)
{
    if (!call->is_contained) {
        return;
    }
    this_call = call->outer;
    (void)kvarve_assert_set_handler(call->handler_before);
    if (call->host != NULL && host_is_failed(call->host) && call->host->posix != NULL) { /* C3 */
        env_posix_halt(call->host->posix);
        env_posix_wait_quiet(call->host->posix);
    }
}

static kvarve_status tell_failure(const embedded *host, kvarve_error *err)
{
    return kvarve_fail(err, KVARVE_UNAVAILABLE, "the store failed: %s", host_failure(host));
}

kvarve_status embedded_call_failed(kvarve_error *err)
{
    return this_call->host != NULL
               ? tell_failure(this_call->host, err)
               : kvarve_fail(err, KVARVE_UNAVAILABLE, "the call failed: %s", last_failure);
}

kvarve_status embedded_enter(embedded *host, kvarve_error *err)
{
    call_set_host(host);
    return host_is_failed(host) ? tell_failure(host, err) : KVARVE_OK;
}

void call_set_host(embedded *host)
{
    if (this_call != NULL) {
        this_call->host = host;
    }
}

void call_set_lock(bool has_lock)
{
    if (this_call != NULL) {
        this_call->has_lock = has_lock;
    }
}

void call_set_opening(const char *directory)
{
    if (this_call != NULL) {
        this_call->opening = directory;
    }
}

_Noreturn void call_leave(embedded *host)
{
    KVARVE_ASSERT(this_call != NULL && this_call->host == host);
    this_call->has_lock = false;
    mutex_unlock(&host->mutex);
    longjmp(this_call->out, 1);
}
