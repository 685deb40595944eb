/*
 * daemon_private.h - the state of a daemon, shared by its loop (daemon.c) and its clients
 * (clients.c). Threads: the loop's.
 */
#ifndef KVARVE_DAEMON_DAEMON_PRIVATE_H
#define KVARVE_DAEMON_DAEMON_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/daemon.h"
#include "daemon/health.h"
#include "daemon/log.h"
#include "daemon/metrics.h"
#include "env/env_posix.h"
#include "env/socket.h"
#include "session/session.h"
#include "store/store.h"

typedef struct daemon_client daemon_client;

typedef enum source_kind {
    SOURCE_LISTENER,
    SOURCE_SIGNALS,
    SOURCE_WORK,    /* a job of the pool is done */
    SOURCE_HEALTH,  /* somebody asks by HTTP */
    SOURCE_SOCKET,  /* a client's connection */
    SOURCE_PROCESS, /* a client's process is gone */
} source_kind;

/* What a descriptor in the poller means. */
typedef struct daemon_source {
    source_kind kind;
    daemon_client *client; /* of the last two */
} daemon_source;

/* Users and groups that may connect besides our own, as numbers. */
typedef struct daemon_guests {
    uint32_t users[CONFIG_NAMES_MAX];
    uint32_t groups[CONFIG_NAMES_MAX];
    size_t user_count;
    size_t group_count;
} daemon_guests;

typedef struct daemon_state {
    daemon_config config;
    daemon_log log;
    daemon_guests guests;
    uint32_t user; /* ours */

    env_posix *posix;
    kvarve_env env;
    store_machine *store;
    session_host *host;
    int arena_fd;

    int poller;
    int signals;
    int work;
    int listener; /* -1: nobody is taken any more */
    int spare;    /* a descriptor to let go of when there are no more: see clients_accept */
    bool is_activated;
    uint64_t socket_device; /* of the socket's file, if we made it */
    uint64_t socket_inode;
    daemon_source listener_source;
    daemon_source signals_source;
    daemon_source work_source;
    daemon_source health_source;
    daemon_health *health;

    kvarve_list clients;
    kvarve_list ended; /* not freed before all events of one wait have been looked at */
    uint32_t client_count;
    uint64_t accepted;
    uint64_t refused;
    uint64_t dropped;

    uint64_t began_ns;
    uint64_t stop_deadline_ns; /* KVARVE_NEVER: it does not stop */
    bool is_stopping;
    bool is_cut_short; /* a second signal */
    bool was_failed;   /* the store's failure was told */
} daemon_state;

/* --- daemon.c --- */

/* Nobody is taken any more; the socket's file goes if it is ours. */
void daemon_unlisten(daemon_state *at);

/* --- loop.c --- */

uint64_t daemon_now(void); /* monotonic ns */
void daemon_say(const daemon_state *at, log_level level, const char *event, const char *key,
                const char *value); /* key NULL: no value */
kvarve_status daemon_find_guests(const daemon_config *config, daemon_guests *out,
                                 kvarve_error *err);
/* Wait for what comes first, and do all that it asks for. */
kvarve_status daemon_loop_once(daemon_state *at, const daemon_options *options, kvarve_error *err);
bool daemon_is_over(const daemon_state *at);

/* --- clients.c --- */

/* Take, or turn away, whoever waits at the listener. */
void clients_accept(daemon_state *at);
/* A client's connection can be read or written. */
void client_ready(daemon_state *at, daemon_client *client, bool can_read, bool can_write);
/* Its process is gone. */
void client_died(daemon_state *at, daemon_client *client);
/* The store did something, or a deadline passed: answer what waits, send what is queued. */
void clients_poll(daemon_state *at);
uint64_t clients_deadline(const daemon_state *at);
void clients_count(const daemon_state *at, daemon_figures *out);
/* Free what has ended. */
void clients_sweep(daemon_state *at);
/* The daemon ends: everything is given back. */
void clients_end(daemon_state *at);

#endif
