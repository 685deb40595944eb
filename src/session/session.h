/*
 * session.h - the daemon's side of its clients: messages in, messages out, and the handles in
 * between.
 *
 * A session is one client process's connection. It decodes a request, asks the store
 * (store/store.h), and encodes the reply; what can not be answered yet is parked and tried again at
 * each poll. It makes no system call and never waits, so a whole host runs in the simulator.
 *
 *     opened -> greeted -> gone -> dead
 *
 *   greeted  HELLO was taken.
 *
 *   gone     its connection is closed. It keeps what its process may still be copying into or out
 *            of: pinned slots, and the puts and leases that they belong to.
 *
 *   dead     its process is proven gone, which alone ends that (docs/design/0004).
 *
 * A status of the store's besides OK comes as an ERROR with it, MISS and BUSY too; a find without a
 * hit is FOUND with its reason. Waiting requests are answered with how things stand when their time
 * is up, PAGE_BEGIN with BUSY.
 *
 * Threads    One: the daemon's. Ownership  as named. Failures  A request that is wrong gets an
 * ERROR reply where it can be understood; what can not be is answered with an ERROR of id 0, and
 * session_take says that the connection is to be closed after it.
 */
#ifndef KVARVE_SESSION_SESSION_H
#define KVARVE_SESSION_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarve/error.h"
#include "store/store.h"

typedef struct session session;
typedef struct session_host session_host;

/* Limits of one session; 0: the default. */
typedef struct session_limits {
    uint32_t handles;       /* namespaces, puts and leases together; default 4096 */
    uint32_t pages;         /* of leases, pinned one by one (PAGE_BEGIN); default 4096 */
    uint32_t parked;        /* requests that wait; default 256 */
    uint64_t backlog_bytes; /* of replies that the client does not take; default 4 MiB */
    uint32_t quarantined;   /* gone sessions of one user that are not dead; default 64 */
} session_limits;

typedef struct session_host_options {
    store_machine *store; /* borrowed; lives longer */
    const kvarve_env *env;
    uint64_t epoch; /* changes with each life of the daemon */
    uint32_t io_timeout_ms;
    session_limits limits;
    uint32_t pid;        /* for STATUS */
    const char *version; /* the same; copied. NULL: "unknown" */
} session_host_options;

/* What all sessions on one store share: it takes the store's events (session_host_sink before
 * store_open, session_host_create after it). */
KVARVE_NODISCARD kvarve_status session_host_create(const session_host_options *options,
                                                   session_host **out, kvarve_error *err);
void session_host_destroy(session_host *host); /* all sessions are destroyed. NULL: nothing */
/* To give to store_open: events of a store are told to the host that is set as its context. */
void session_host_event(session_host *host, const kvarve_event *event);

typedef struct session_peer {
    int64_t pid;
    uint64_t started_at;
    uint32_t uid;
} session_peer;

/* KVARVE_BUSY: this user has too many quarantined sessions. */
KVARVE_NODISCARD kvarve_status session_open(session_host *host, const session_peer *peer,
                                            session **out, kvarve_error *err);

/* The memory that came with HELLO, mapped read only for as long as the session lives; before the
 * HELLO itself is given to session_take. At most once. */
void session_lend_letter(session *at, const void *letter, uint64_t size);

/*
 * One message came. Replies are in the queue afterwards (session_next). KVARVE_OK: go on;
 * KVARVE_INVALID: close the connection after sending what is queued; err says why.
 */
KVARVE_NODISCARD kvarve_status session_take(session *at, const void *bytes, size_t size,
                                            kvarve_error *err);

/* The oldest message to be sent: borrowed until session_sent. False: there is none. *out_arena: the
 * arena's descriptor goes with it (WELCOME). */
bool session_next(const session *at, const void **out_bytes, size_t *out_size, bool *out_arena);
void session_sent(session *at);

/* After store_poll has done something, or a deadline of session_deadline has passed: try what is
 * parked. True: there is something to send. */
bool session_poll(session *at);
uint64_t session_deadline(const session *at); /* monotonic ns, or KVARVE_NEVER */
/* It takes its replies too slowly, or memory is short: something that it must know is lost. Send
 * what is queued, and close its connection. (session_take says the same with the next message.) */
bool session_is_broken(const session *at);

/* Its connection is closed: nothing is sent any more, parked requests are dropped, puts that are
 * not READY are aborted, leases without pages in use end. True: nothing is left that needs its
 * death. */
bool session_gone(session *at);
/* Its process is gone, or the daemon ends: everything is given back. Frees the session. */
void session_destroy(session *at);

typedef struct session_counters {
    uint32_t namespaces;
    uint32_t puts;
    uint32_t leases;
    uint32_t pinned_slots; /* that it may be copying into, or out of one by one (PAGE_BEGIN) */
    uint32_t parked;
    bool is_greeted;
    bool is_gone;
} session_counters;
void session_count(const session *at, session_counters *out);

#endif
