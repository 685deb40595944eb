/*
 * daemon.c - see daemon.h: what begins before the loop, and what ends after it.
 *
 *     opening -> serving -> stopping (SIGTERM: nobody is taken, the store shuts down) -> ended
 *
 * Invariants
 *   D1  Store and sessions are touched by this thread alone. The pool tells it by an event
 *       descriptor, the HTTP thread asks by another.
 *   D2  Clients are listened for only once the store is open and its folder locked, so a daemon
 *       that loses the race for a store never touches the winner's socket.
 *   D3  What a job that hangs uses is not freed: then the process ends without closing the store,
 *       as if killed, and the next one recovers.
 *
 * Threads: as daemon.h.
 */
#include "daemon/daemon.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "daemon/daemon_private.h"
#include "env/service.h"
#include "env/thread.h"

#define LOCK_RETRY_MS 50u
#define MODE_OWN      0600u
#define MODE_GUESTS   0666u

/* --- the socket --- */

/* KVARVE_BUSY: somebody listens there already. */
static kvarve_status check_unused(const char *path, kvarve_error *err)
{
    const int fd = socket_connect(path);
    socket_peer holder = {.process_fd = -1};
    kvarve_status status;

    if (fd < 0 && fd != -EAGAIN) {
        return KVARVE_OK; /* nobody, or socket_listen says what is wrong */
    }
    if (fd >= 0 && socket_identify(fd, &holder) == 0) {
        status = kvarve_fail(err, KVARVE_BUSY, "socket %.100s is in use by process %lld", path,
                             (long long)holder.pid);
        socket_close(holder.process_fd);
    } else {
        status = kvarve_fail(err, KVARVE_BUSY, "socket %.100s is in use by another process", path);
    }
    socket_close(fd);
    return status;
}

static uint32_t socket_mode(const daemon_state *at)
{
    if (at->config.socket_mode != CONFIG_OFF) {
        return (uint32_t)at->config.socket_mode;
    }
    /* Who connects is looked at; the file's mode only says who may try. */
    return at->guests.user_count + at->guests.group_count > 0 ? MODE_GUESTS : MODE_OWN;
}

/* The file behind a path, so that at the end none is removed but ours. */
static bool identify_file(const daemon_state *at, uint64_t *out_device, uint64_t *out_inode)
{
    kvarve_file_stat stat;

    if (at->env.io->ops->stat(at->env.io, at->config.socket, &stat) < 0) {
        return false;
    }
    *out_device = stat.device;
    *out_inode = stat.inode;
    return true;
}

static kvarve_status listen_for_clients(daemon_state *at, kvarve_error *err)
{
    kvarve_status status;

    if (!at->is_activated) {
        at->listener = socket_listen(at->config.socket, socket_mode(at));
        if (at->listener == -EADDRINUSE) {
            status = check_unused(at->config.socket, err);
            return status != KVARVE_OK ? status
                                       : kvarve_fail(err, KVARVE_BUSY, "socket %.100s is in use",
                                                     at->config.socket);
        }
        if (at->listener < 0) {
            return kvarve_fail_io(err, at->listener, "listen at %.120s", at->config.socket);
        }
        (void)identify_file(at, &at->socket_device, &at->socket_inode);
    }
    const int rc = poller_set(at->poller, at->listener, &at->listener_source, false, false);
    return rc < 0 ? kvarve_fail_io(err, rc, "wait for clients") : KVARVE_OK;
}

void daemon_unlisten(daemon_state *at)
{
    uint64_t device = 0;
    uint64_t inode = 0;

    if (at->listener < 0) {
        return;
    }
    poller_remove(at->poller, at->listener);
    socket_close(at->listener);
    at->listener = -1;
    if (!at->is_activated && identify_file(at, &device, &inode) && device == at->socket_device &&
        inode == at->socket_inode) {
        (void)at->env.io->ops->unlink(at->env.io, at->config.socket);
    }
}

/* --- the store --- */

static void notify(void *context)
{
    const daemon_state *at = context;

    event_set(at->work);
}

static void take_store_event(void *context, const kvarve_event *event)
{
    const daemon_state *at = context;

    if (at->host != NULL) {
        session_host_event(at->host, event);
    }
}

static kvarve_status start_pool(daemon_state *at, kvarve_error *err)
{
    const env_posix_options pool = {
        .pool_threads = (uint32_t)at->config.pool_threads, .notify = notify, .notify_context = at};
    const kvarve_status status = env_posix_start(&pool, &at->posix, err);

    if (status == KVARVE_OK) {
        at->env = *env_posix_env(at->posix);
    }
    return status;
}

/* Before there is a loop. */
static bool has_stop_signal(const daemon_state *at)
{
    int signal = signals_take(at->signals);

    while (signal == SIGHUP) {
        signal = signals_take(at->signals);
    }
    return signal != 0;
}

/* While another process has the folder: again, until wait_ms have passed. */
static kvarve_status open_store(daemon_state *at, kvarve_error *err)
{
    const uint64_t deadline = daemon_now() + at->config.wait_ms * KVARVE_NS_PER_MS;
    const store_sink sink = {.context = at, .event = take_store_event};
    kvarve_store_options options;
    kvarve_status status;

    config_store_options(&at->config, &options);
    options.flags |= STORE_OPEN_SHARED;
    for (;;) {
        status = store_open(&at->env, at->config.store, &options, &sink, &at->store, err);
        if (status != KVARVE_BUSY || daemon_now() >= deadline || has_stop_signal(at)) {
            return status;
        }
        sleep_ms(LOCK_RETRY_MS);
    }
}

/* A rebuild that did not end before runs anew, and nothing is found until it has ended. */
static kvarve_status finish_opening(daemon_state *at, kvarve_error *err)
{
    while (store_is_opening(at->store)) {
        poller_event event;

        if (has_stop_signal(at)) {
            return kvarve_fail(err, KVARVE_UNAVAILABLE,
                               "stopped while the index was made anew; it begins again");
        }
        event_clear(at->work);
        if (!store_poll(at->store)) {
            (void)poller_wait(at->poller, &event, 1, store_next_deadline(at->store));
        }
    }
    return store_is_failed(at->store)
               ? kvarve_fail(err, KVARVE_IO, "rebuild: the new index could not be written")
               : KVARVE_OK;
}

static kvarve_status make_host(daemon_state *at, kvarve_error *err)
{
    session_host_options options = {.store = at->store,
                                    .env = &at->env,
                                    .io_timeout_ms = (uint32_t)at->config.io_timeout_ms,
                                    .pid = (uint32_t)process_id(),
                                    .version = KVARVE_VERSION_TEXT};
    const int rc = at->env.random->fill(at->env.random, &options.epoch, sizeof options.epoch);

    if (rc < 0) {
        return kvarve_fail_io(err, rc, "draw the number of this life");
    }
    options.epoch |= 1; /* 0 is nobody's */
    store_arena(at->store, NULL, NULL, &at->arena_fd);
    return session_host_create(&options, &at->host, err);
}

/* --- beginning --- */

static kvarve_status watch(daemon_state *at, int fd, daemon_source *source, source_kind kind,
                           kvarve_error *err)
{
    int rc = fd;

    source->kind = kind;
    if (fd >= 0) {
        rc = poller_set(at->poller, fd, source, false, false);
    }
    return rc < 0 ? kvarve_fail_io(err, rc, "wait on a descriptor") : KVARVE_OK;
}

static kvarve_status open_descriptors(daemon_state *at, kvarve_error *err)
{
    static const int ours[] = {SIGTERM, SIGINT, SIGHUP};
    kvarve_status status;

    at->poller = poller_open();
    if (at->poller < 0) {
        return kvarve_fail_io(err, at->poller, "wait on descriptors");
    }
    at->signals = signals_open(ours, sizeof ours / sizeof ours[0]);
    at->work = event_open();
    at->spare = event_open();
    status = watch(at, at->signals, &at->signals_source, SOURCE_SIGNALS, err);
    return status == KVARVE_OK ? watch(at, at->work, &at->work_source, SOURCE_WORK, err) : status;
}

/* A socket that was handed over, or a path that nobody listens at. */
static kvarve_status find_socket(daemon_state *at, kvarve_error *err)
{
    const int given = service_listener();

    if (given >= 0) {
        at->listener = given;
        at->is_activated = true;
        return KVARVE_OK;
    }
    if (given != -ENOENT) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "the service manager handed over no single SOCK_SEQPACKET socket");
    }
    return at->config.socket[0] == '\0'
               ? kvarve_fail(err, KVARVE_INVALID, "no socket is named (--socket PATH)")
               : check_unused(at->config.socket, err);
}

static kvarve_status start_health(daemon_state *at, kvarve_error *err)
{
    log_line line;
    kvarve_status status;

    if (at->config.metrics_port == CONFIG_OFF) {
        return KVARVE_OK;
    }
    status = health_start((uint16_t)at->config.metrics_port, &at->health, err);
    if (status != KVARVE_OK) {
        return status;
    }
    log_begin(&line, &at->log, LOG_LEVEL_INFO, "daemon", "metrics");
    log_number(&line, "port", health_port(at->health));
    log_end(&line);
    return watch(at, health_descriptor(at->health), &at->health_source, SOURCE_HEALTH, err);
}

static kvarve_status begin(daemon_state *at, kvarve_error *err)
{
    kvarve_status status = daemon_find_guests(&at->config, &at->guests, err);

    if (status == KVARVE_OK && at->config.store[0] == '\0') {
        status = kvarve_fail(err, KVARVE_INVALID, "no store is named (--store DIR)");
    }
    if (status == KVARVE_OK && strncmp(at->config.store, "unix:", 5) == 0) {
        status = kvarve_fail(err, KVARVE_INVALID, "store %.100s is a daemon's socket, no folder",
                             at->config.store);
    }
    status = status == KVARVE_OK ? find_socket(at, err) : status;
    status = status == KVARVE_OK ? open_descriptors(at, err) : status;
    status = status == KVARVE_OK ? start_pool(at, err) : status;
    status = status == KVARVE_OK ? open_store(at, err) : status;
    status = status == KVARVE_OK ? finish_opening(at, err) : status;
    status = status == KVARVE_OK ? make_host(at, err) : status;
    status = status == KVARVE_OK ? start_health(at, err) : status;
    return status == KVARVE_OK ? listen_for_clients(at, err) : status; /* D2 */
}

/* --- the end --- */

static void close_descriptors(daemon_state *at)
{
    daemon_unlisten(at);
    health_stop(at->health);
    socket_close(at->signals);
    socket_close(at->work);
    socket_close(at->spare);
    poller_close(at->poller);
}

/* False: a job hangs (D3). */
static bool close_store(daemon_state *at)
{
    if (at->store != NULL) {
        clients_end(at);
        session_host_destroy(at->host);
        at->host = NULL;
        while (store_poll(at->store)) {
        }
        if (at->env.executor->pending(at->env.executor) > 0) {
            return false;
        }
        store_close(at->store);
    }
    env_posix_stop(at->posix);
    return true;
}

static kvarve_status serve(daemon_state *at, const daemon_options *options, kvarve_error *err)
{
    kvarve_status status = KVARVE_OK;
    log_line line;

    log_begin(&line, &at->log, LOG_LEVEL_INFO, "daemon", "serving");
    log_number(&line, "pid", (uint64_t)process_id());
    log_text(&line, "store", at->config.store);
    log_text(&line, "socket", at->is_activated ? "handed-over" : at->config.socket);
    log_end(&line);
    (void)service_tell("READY=1");
    while (status == KVARVE_OK && !daemon_is_over(at)) {
        status = daemon_loop_once(at, options, err);
    }
    if (status == KVARVE_OK && !store_is_idle(at->store)) {
        kvarve_statistics left = KVARVE_STATISTICS_INIT;

        store_statistics(at->store, &left);
        status = kvarve_fail(
            err, KVARVE_UNAVAILABLE, "%s with %llu puts not settled; what was durable stays",
            at->is_cut_short ? "a second signal ended it" : "it did not end in time",
            (unsigned long long)left.puts_open);
    }
    if (status == KVARVE_OK && store_is_failed(at->store)) {
        status =
            kvarve_fail(err, KVARVE_IO, "a sync or commit failed; what was durable before stays");
    }
    return status;
}

static daemon_state *make(const daemon_options *options)
{
    daemon_state *at = kvarve_allocate(sizeof *at);

    if (at == NULL) {
        return NULL;
    }
    at->config = options->config;
    at->log = (daemon_log){.level = (log_level)at->config.log_level,
                           .is_journal = service_has_journal(),
                           .clock = clock_posix()};
    at->user = user_current();
    at->arena_fd = -1;
    at->poller = -1;
    at->signals = -1;
    at->work = -1;
    at->spare = -1;
    at->listener = -1;
    at->stop_deadline_ns = KVARVE_NEVER;
    at->began_ns = daemon_now();
    kvarve_list_init(&at->clients);
    kvarve_list_init(&at->ended);
    return at;
}

kvarve_status daemon_run(const daemon_options *options, kvarve_error *err)
{
    daemon_state *at = make(options);
    kvarve_status status;

    if (at == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "the daemon's state");
    }
    status = begin(at, err);
    if (status == KVARVE_OK) {
        status = serve(at, options, err);
        daemon_say(at, status == KVARVE_OK ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR, "stopped", "why",
                   status == KVARVE_OK ? "as asked" : err->text);
    }
    if (!close_store(at)) {
        return status; /* D3 */
    }
    close_descriptors(at);
    kvarve_release(at);
    return status;
}
