/*
 * loop.c - what a daemon does while it serves: waits on everything at once, and answers signals.
 *
 * Invariants
 *   L1  Stopping ends: when the store is idle, at the deadline, or at a second signal, whichever
 *       comes first.
 *   L2  Before each wait the store has been polled until nothing happened, and every client has
 *       been asked whether it can be answered.
 *
 * Threads: the loop's.
 */
#include "daemon/daemon_private.h"

#include <signal.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fail.h"
#include "daemon/metrics.h"
#include "env/service.h"
#include "env/thread.h"

#define EVENTS_MAX 64u

void daemon_say(const daemon_state *at, log_level level, const char *event, const char *key,
                const char *value)
{
    log_line line;

    log_begin(&line, &at->log, level, "daemon", event);
    if (key != NULL) {
        log_text(&line, key, value);
    }
    log_end(&line);
}

uint64_t daemon_now(void)
{
    kvarve_clock *clock = clock_posix();

    return clock->monotonic_ns(clock);
}

/* --- configuration --- */

kvarve_status daemon_find_guests(const daemon_config *config, daemon_guests *out, kvarve_error *err)
{
    daemon_guests guests = {.user_count = config->users.count, .group_count = config->groups.count};

    for (size_t i = 0; i < guests.user_count; i++) {
        if (user_find(config->users.text[i], &guests.users[i]) < 0) {
            return kvarve_fail(err, KVARVE_INVALID, "allow-user: there is no user %s",
                               config->users.text[i]);
        }
    }
    for (size_t i = 0; i < guests.group_count; i++) {
        if (group_find(config->groups.text[i], &guests.groups[i]) < 0) {
            return kvarve_fail(err, KVARVE_INVALID, "allow-group: there is no group %s",
                               config->groups.text[i]);
        }
    }
    *out = guests;
    return KVARVE_OK;
}

static kvarve_status read_again(daemon_state *at, const daemon_options *options,
                                daemon_config *fresh, kvarve_error *err)
{
    kvarve_status status = options->reload(options->context, fresh, err);

    if (status == KVARVE_OK) {
        status = daemon_find_guests(fresh, &at->guests, err);
    }
    if (status == KVARVE_OK) {
        at->log.level = (log_level)fresh->log_level;
    }
    return status;
}

/* What is wrong with it is told, and everything stays as it was. */
static void reload(daemon_state *at, const daemon_options *options)
{
    daemon_config *fresh = kvarve_allocate(sizeof *fresh);
    kvarve_error err = {.text = "no memory"};
    kvarve_status status = KVARVE_NO_MEMORY;

    if (fresh != NULL && options->reload != NULL) {
        status = read_again(at, options, fresh, &err);
    }
    if (status == KVARVE_OK) {
        daemon_say(at, LOG_LEVEL_INFO, "reloaded", NULL, NULL);
    } else {
        daemon_say(at, LOG_LEVEL_ERROR, "not-reloaded", "why", err.text);
    }
    kvarve_release(fresh);
}

/* --- figures --- */

static void publish(daemon_state *at)
{
    kvarve_statistics store = KVARVE_STATISTICS_INIT;
    daemon_figures figures = {.uptime_s = (daemon_now() - at->began_ns) / KVARVE_NS_PER_S,
                              .is_stopping = at->is_stopping ? 1 : 0};
    char *text = kvarve_allocate(METRICS_ROOM);
    const char *wrong = NULL;

    if (text == NULL) {
        return; /* the listener says that there is no answer */
    }
    store_statistics(at->store, &store);
    clients_count(at, &figures);
    if (at->is_stopping) {
        wrong = "stopping";
    } else if (store_is_failed(at->store)) {
        wrong = "the store failed: puts are refused until it is opened again";
    }
    health_publish(at->health, text, metrics_write(&store, &figures, text), wrong);
    kvarve_release(text);
}

/* --- the loop --- */

static void begin_stop(daemon_state *at)
{
    if (at->is_stopping) {
        at->is_cut_short = true;
        return;
    }
    at->is_stopping = true;
    at->stop_deadline_ns = daemon_now() + at->config.shutdown_timeout_s * KVARVE_NS_PER_S;
    daemon_say(at, LOG_LEVEL_INFO, "stopping", NULL, NULL);
    (void)service_tell("STOPPING=1");
    daemon_unlisten(at);
    store_shut_down(at->store);
}

static void take_signals(daemon_state *at, const daemon_options *options)
{
    int signal = signals_take(at->signals);

    while (signal != 0) {
        if (signal == SIGHUP) {
            reload(at, options);
        } else {
            begin_stop(at);
        }
        signal = signals_take(at->signals);
    }
}

static void take_event(daemon_state *at, const daemon_options *options, const poller_event *event)
{
    const daemon_source *source = event->context;

    switch (source->kind) {
    case SOURCE_LISTENER:
        clients_accept(at);
        break;
    case SOURCE_SIGNALS:
        take_signals(at, options);
        break;
    case SOURCE_WORK:
        event_clear(
            at->work); /* before the store is polled: what is done meanwhile sets it again */
        break;
    case SOURCE_HEALTH:
        publish(at);
        break;
    case SOURCE_SOCKET:
        client_ready(at, source->client, event->can_read, event->can_write);
        break;
    case SOURCE_PROCESS:
        client_died(at, source->client);
        break;
    }
}

/* L2 */
static void settle(daemon_state *at)
{
    while (store_poll(at->store)) {
    }
    clients_poll(at);
    clients_sweep(at);
    if (store_is_failed(at->store) && !at->was_failed) {
        at->was_failed = true;
        daemon_say(at, LOG_LEVEL_ERROR, "store-failed", "why",
                   "a sync or commit failed; puts are refused until it is opened again");
    }
}

static uint64_t next_deadline(const daemon_state *at)
{
    uint64_t soonest = kvarve_min_u64(store_next_deadline(at->store), at->stop_deadline_ns);

    return kvarve_min_u64(soonest, clients_deadline(at));
}

kvarve_status daemon_loop_once(daemon_state *at, const daemon_options *options, kvarve_error *err)
{
    poller_event events[EVENTS_MAX];
    const int count = poller_wait(at->poller, events, EVENTS_MAX, next_deadline(at));

    if (count < 0) {
        return kvarve_fail_io(err, count, "wait for clients");
    }
    for (int i = 0; i < count; i++) {
        take_event(at, options, &events[i]);
    }
    settle(at);
    return KVARVE_OK;
}

/* L1 */
bool daemon_is_over(const daemon_state *at)
{
    return at->is_stopping &&
           (store_is_idle(at->store) || at->is_cut_short || daemon_now() >= at->stop_deadline_ns);
}
