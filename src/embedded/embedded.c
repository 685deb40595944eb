/*
 * embedded.c - see embedded.h.
 *
 * Invariants
 *   I1  The store is touched under `mutex` only.
 *   I2  One process has a folder open once: POSIX record locks do not keep a second handle of the
 *       same process out, and closing that one would drop the lock, so a list of open folders
 *       (device and inode) does. A failed host stays on it.
 *   I3  In a forked child nothing is touched: the epoch differs.
 *
 * What a failed assertion does is contain.c's.
 *
 * Events wait in a ring that grows up to EVENTS_MAX; beyond that the oldest are lost, and the
 * caller has not looked for long.
 */
#include "embedded/embedded_private.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/fail.h"

#define EVENTS_MAX    65536u
#define LOCK_RETRY_MS 20u
#define OPEN_MAX      1024u /* stores of one process */

/* I2. The mutex is made once; it lives as long as the process. */
static kvarve_mutex open_mutex = KVARVE_MUTEX_INIT;
static kvarve_mutex opening_mutex = KVARVE_MUTEX_INIT; /* one attempt to open at a time; first */
static embedded *open_list;

bool embedded_is_here(const embedded *host)
{
    return host->epoch == fork_guard_epoch(); /* I3 */
}

store_machine *embedded_store(embedded *host)
{
    return host->store;
}

const kvarve_env *embedded_env(embedded *host)
{
    return &host->env;
}

void embedded_lock(embedded *host)
{
    call_set_host(host);
    mutex_lock(&host->mutex);
    call_set_lock(true);
    if (host_is_failed(host)) {
        call_leave(host);
    }
}

static void unlock(embedded *host)
{
    call_set_lock(false);
    mutex_unlock(&host->mutex);
}

void embedded_unlock(embedded *host)
{
    if (host_is_failed(host)) { /* by a job, in the meantime: what this call did stays done */
        unlock(host);
        return;
    }
    if (host->waiters > 0) {
        condition_signal_all(&host->changed);
    }
    if (host->is_sleeping && store_soonest_deadline(host->store) < host->sleeps_until_ns) {
        condition_signal_all(&host->work); /* a new deadline, before what the thread waits for */
    }
    unlock(host);
}

static uint64_t now(const embedded *host)
{
    return host->env.clock->monotonic_ns(host->env.clock);
}

uint64_t embedded_deadline(const embedded *host, uint32_t timeout_ms)
{
    return timeout_ms == KVARVE_NO_TIMEOUT ? KVARVE_NEVER
                                           : now(host) + timeout_ms * KVARVE_NS_PER_MS;
}

bool embedded_is_still(const embedded *host)
{
    return host->posix == NULL;
}

bool embedded_wait(embedded *host, uint64_t deadline_ns)
{
    if (host_is_failed(host)) {
        call_leave(host);
    }
    if (now(host) >= deadline_ns) {
        return false;
    }
    if (host->posix == NULL) {
        /* False: nothing is left to run, and nothing will change. */
        return store_poll(host->store) || host->env.executor->pending(host->env.executor) > 0;
    }
    host->waiters++;
    condition_wait(&host->changed, &host->mutex, deadline_ns);
    host->waiters--;
    if (host_is_failed(host)) {
        call_leave(host);
    }
    return true;
}

/* --- events --- */

static bool grow_events(embedded *host)
{
    const uint32_t room = host->event_room == 0 ? 64 : 2 * host->event_room;
    kvarve_event *larger = room > EVENTS_MAX ? NULL : kvarve_allocate_array(room, sizeof *larger);

    if (larger == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < host->event_count; i++) {
        larger[i] = host->events[(host->event_first + i) & (host->event_room - 1)];
    }
    kvarve_release(host->events);
    host->events = larger;
    host->event_room = room;
    host->event_first = 0;
    return true;
}

static void take_event_in(void *context, const kvarve_event *event)
{
    embedded *host = context;

    if (event->cookie == 0) {
        return;
    }
    if (host->event_count == host->event_room && !grow_events(host)) {
        if (host->event_room == 0) {
            return;
        }
        host->event_first = (host->event_first + 1) & (host->event_room - 1);
        host->event_count--;
    }
    host->events[(host->event_first + host->event_count) & (host->event_room - 1)] = *event;
    host->event_count++;
    event_set(host->event_fd);
}

void embedded_tell(embedded *host, const kvarve_event *event)
{
    take_event_in(host, event);
}

bool embedded_take_event(embedded *host, kvarve_event *out)
{
    if (host->event_count == 0) {
        return false;
    }
    *out = host->events[host->event_first];
    host->event_first = (host->event_first + 1) & (host->event_room - 1);
    host->event_count--;
    if (host->event_count == 0) {
        event_clear(host->event_fd);
    }
    return true;
}

int embedded_event_fd(const embedded *host)
{
    return host->event_fd;
}

/* --- the thread --- */

static void notify(void *context)
{
    embedded *host = context;

    mutex_lock(&host->mutex);
    if (!host_is_failed(host)) {
        host->has_work = true;
        condition_signal_all(&host->work);
    }
    mutex_unlock(&host->mutex);
}

static void run_thread(void *context)
{
    embedded *host = context;
    bool is_awaited;

    mutex_lock(&host->mutex);
    host_contain_thread(host);
    while (!host->is_stopping && !host_is_failed(host)) {
        host->has_work = false;
        while (store_poll(host->store)) {
        }
        if (host->waiters > 0) {
            condition_signal_all(&host->changed);
        }
        if (!host->has_work && !host->is_stopping && !host_is_failed(host)) {
            host->sleeps_until_ns = store_next_deadline(host->store);
            host->is_sleeping = true;
            condition_wait(&host->work, &host->mutex, host->sleeps_until_ns);
            host->is_sleeping = false;
        }
    }
    is_awaited = host->is_stopping;
    mutex_unlock(&host->mutex);
    if (!is_awaited) {
        thread_park(); /* the host has failed, and nobody joins this thread */
    }
}

/* --- open and close --- */

/* The host of this process that has this file open as its folder; with open_mutex. */
static const embedded *find_open(const kvarve_file_stat *stat)
{
    for (const embedded *at = open_list; at != NULL; at = at->next_open) {
        if (embedded_is_here(at) && at->device == stat->device && at->inode == stat->inode) {
            return at; /* I3: a parent's are not ours */
        }
    }
    return NULL;
}

/* Why `directory` can not be opened once more. */
static kvarve_status tell_open(const embedded *at, const char *directory, kvarve_error *err)
{
    if (host_is_failed(at)) {
        return kvarve_fail(err, KVARVE_UNAVAILABLE,
                           "store %.60s failed, and this process must end first: %s", directory,
                           host_failure(at));
    }
    return kvarve_fail(err, KVARVE_BUSY, "store %s is in use by process %lld (this one)", directory,
                       (long long)process_id());
}

static kvarve_status enter_open_list(embedded *host, const char *directory, kvarve_error *err)
{
    kvarve_io *io = io_posix();
    kvarve_status status = KVARVE_OK;
    kvarve_file_stat stat;
    const embedded *other;

    if (io->ops->stat(io, directory, &stat) != 0) {
        return KVARVE_OK; /* store_open says what is wrong, or makes it: see open_listed */
    }
    mutex_lock(&open_mutex);
    other = find_open(&stat);
    if (other != NULL) {
        status = tell_open(other, directory, err);
    } else {
        host->device = stat.device;
        host->inode = stat.inode;
        host->next_open = open_list;
        host->is_listed = true;
        open_list = host;
    }
    mutex_unlock(&open_mutex);
    return status;
}

static void leave_open_list(embedded *host)
{
    embedded **at = &open_list;

    mutex_lock(&open_mutex);
    while (*at != NULL && *at != host) {
        at = &(*at)->next_open;
    }
    if (*at != NULL) {
        *at = host->next_open;
        host->is_listed = false;
    }
    mutex_unlock(&open_mutex);
}

void host_leave_opening(embedded *host, const char *directory)
{
    if (!host->is_listed) {
        (void)enter_open_list(host, directory, NULL);
    }
    mutex_unlock(&opening_mutex);
}

static void free_host(embedded *host)
{
    call_set_host(NULL); /* what fails from here on has no store any more */
    leave_open_list(host);
    env_posix_stop(host->posix);
    if (host->event_fd >= 0) {
        event_close(host->event_fd);
    }
    condition_deinit(&host->changed);
    condition_deinit(&host->work);
    mutex_deinit(&host->mutex);
    kvarve_release(host->events);
    kvarve_release(host);
}

static kvarve_status start_env(embedded *host, const kvarve_store_options *options,
                               kvarve_error *err)
{
    const env_posix_options pool = {.pool_threads = options->pool_threads,
                                    .notify = notify,
                                    .failed = kvarve_assert_is_containing() ? host_fail : NULL,
                                    .notify_context = host};
    kvarve_status status;

    host->event_fd = event_open();
    if (host->event_fd < 0) {
        return kvarve_fail_io(err, host->event_fd, "make an event descriptor");
    }
    if (host->posix == NULL && host->env.io != NULL) {
        return KVARVE_OK; /* the caller's world */
    }
    status = env_posix_start(&pool, &host->posix, err);
    if (status == KVARVE_OK) {
        host->env = *env_posix_env(host->posix);
    }
    return status;
}

/* One attempt in the real host: I2 holds from before the folder is there until it is listed. */
static kvarve_status open_listed(embedded *host, const char *directory,
                                 const kvarve_store_options *options, const store_sink *sink,
                                 kvarve_error *err)
{
    kvarve_status status;

    mutex_lock(&opening_mutex);
    call_set_opening(directory);
    status = enter_open_list(host, directory, err);
    if (status == KVARVE_OK) {
        status = store_open(&host->env, directory, options, sink, &host->store, err);
        if (status != KVARVE_OK) {
            leave_open_list(host);
        } else if (!host->is_listed) {
            (void)enter_open_list(host, directory, NULL); /* it was made just now */
        }
    }
    call_set_opening(NULL);
    mutex_unlock(&opening_mutex);
    return status;
}

/* Open, and while somebody else has the folder, try again until wait_ms have passed. */
static kvarve_status open_store(embedded *host, const char *directory,
                                const kvarve_store_options *options, kvarve_error *err)
{
    const store_sink sink = {.context = host, .event = take_event_in};
    const uint64_t deadline = embedded_deadline(host, options->wait_ms);
    kvarve_clock *clock = clock_posix();
    kvarve_status status;

    for (;;) {
        status = host->posix == NULL
                     ? store_open(&host->env, directory, options, &sink, &host->store, err)
                     : open_listed(host, directory, options, &sink, err);
        if (status != KVARVE_BUSY || clock->monotonic_ns(clock) >= deadline) {
            return status;
        }
        sleep_ms(LOCK_RETRY_MS);
    }
}

/* A rebuild runs on: wait for it, telling how far it is. */
static kvarve_status finish_opening(embedded *host, kvarve_progress progress, void *context,
                                    kvarve_error *err)
{
    kvarve_status status = KVARVE_OK;

    embedded_lock(host);
    while (store_is_opening(host->store)) {
        kvarve_verify_result at = {0};

        if (progress != NULL && !store_verify_progress(host->store, &at)) {
            progress(context, at.pages_checked, at.pages_total);
        }
        if (!embedded_wait(host, embedded_deadline(host, 200)) && host->posix == NULL) {
            break;
        }
    }
    if (store_is_failed(host->store)) {
        status = kvarve_fail(err, KVARVE_IO, "rebuild: the new index could not be written");
    }
    embedded_unlock(host);
    return status;
}

static embedded *make_host(const kvarve_store_options *options, kvarve_error *err)
{
    embedded *host = kvarve_allocate(sizeof *host);

    if (host == NULL) {
        (void)kvarve_fail(err, KVARVE_NO_MEMORY, "the store's state");
        return NULL;
    }
    host->base.ops = &embedded_door_ops;
    fork_guard_arm();
    host->epoch = fork_guard_epoch();
    host->event_fd = -1;
    host->io_timeout_ms = options->io_timeout_ms;
    mutex_init(&host->mutex);
    condition_init(&host->changed);
    condition_init(&host->work);
    return host;
}

kvarve_status embedded_open_in(const kvarve_env *env, const char *directory,
                               const kvarve_store_options *options, embedded **out,
                               kvarve_error *err)
{
    embedded *host = make_host(options, err);
    kvarve_status status;

    if (host == NULL) {
        return KVARVE_NO_MEMORY;
    }
    call_set_host(host);
    host->env = *env;
    status = start_env(host, options, err);
    status = status == KVARVE_OK ? open_store(host, directory, options, err) : status;
    if (status != KVARVE_OK) {
        free_host(host);
        return status;
    }
    status = finish_opening(host, NULL, NULL, err);
    if (status != KVARVE_OK) {
        embedded_close(host);
        return status;
    }
    *out = host;
    return KVARVE_OK;
}

kvarve_status embedded_open(const char *directory, const kvarve_store_options *options,
                            kvarve_progress progress, void *context, embedded **out,
                            kvarve_error *err)
{
    embedded *host = make_host(options, err);
    kvarve_status status;
    int rc;

    if (host == NULL) {
        return KVARVE_NO_MEMORY;
    }
    call_set_host(host);
    status = start_env(host, options, err);
    status = status == KVARVE_OK ? open_store(host, directory, options, err) : status;
    if (status != KVARVE_OK) {
        free_host(host);
        return status;
    }
    rc = thread_start(&host->thread, run_thread, host);
    host->has_thread = rc == 0;
    status = rc == 0 ? finish_opening(host, progress, context, err)
                     : kvarve_fail_io(err, rc, "start the store's thread");
    if (status != KVARVE_OK) {
        embedded_close(host);
        return status;
    }
    *out = host;
    return KVARVE_OK;
}

static void stop_thread(embedded *host)
{
    const uint64_t deadline = embedded_deadline(host, host->io_timeout_ms);

    embedded_lock(host);
    store_shut_down(host->store);
    while ((host->has_thread || host->posix == NULL) && !store_is_idle(host->store) &&
           embedded_wait(host, deadline)) {
    }
    host->is_stopping = true;
    condition_signal_all(&host->work);
    embedded_unlock(host);
    if (host->has_thread) {
        thread_join(&host->thread);
    }
}

void embedded_close(embedded *host)
{
    if (host == NULL) {
        return;
    }
    if (!embedded_is_here(host)) {
        return; /* I3: the parent's threads and locks do not exist here */
    }
    stop_thread(host);
    while (!host->has_thread && store_poll(host->store)) {
    }
    if (host->env.executor->pending(host->env.executor) == 0) {
        store_close(host->store);
        free_host(host);
        return;
    }
    /* A disk that hangs: what its jobs use stays until the process ends, and so does the folder's
     * place in the list (I2): a late write would hit what another handle has put there since. */
}
