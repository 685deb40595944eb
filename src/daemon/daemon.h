/*
 * daemon.h - one store for many processes: listens, and drives a session (session/session.h) for
 * each client.
 *
 * One thread and one poller: listener, clients, their processes, the pool's completions, signals.
 * docs/design/0004 says who stands where; docs/operations.md what an operator sees. A keeper that
 * holds socket and arena while the serving process is started again will stand between this and the
 * command line; today the arena ends with the process.
 *
 * Threads    daemon_run: one, the process's first, before others are started (it blocks signals).
 */
#ifndef KVARVE_DAEMON_DAEMON_H
#define KVARVE_DAEMON_DAEMON_H

#include "daemon/config.h"
#include "kvarve/error.h"

typedef struct daemon_options {
    daemon_config config;
    /* SIGHUP: the configuration again, whole; what can be changed is taken from it (log-level,
     * allow-user, allow-group). NULL: nothing is read again. */
    kvarve_status (*reload)(void *context, daemon_config *out, kvarve_error *err);
    void *context;
} daemon_options;

/*
 * Serve until SIGTERM or SIGINT. Blocks. KVARVE_OK: all that was ready is durable.
 *
 * KVARVE_BUSY: another process has the store or the socket (err names its pid); KVARVE_INVALID: an
 * option, or a user that does not exist; KVARVE_UNAVAILABLE: the orderly end took longer than
 * shutdown-timeout, or was cut short by a second signal: err says what was left; others as
 * kvarve_open.
 */
KVARVE_NODISCARD kvarve_status daemon_run(const daemon_options *options, kvarve_error *err);

#endif
