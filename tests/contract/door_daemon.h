/*
 * door_daemon.h - a real daemon for the suites: a child process that serves a store at a socket.
 *
 * Threads: one, and the test has no other while it starts a daemon: it forks.
 */
#ifndef KVARVE_TESTS_CONTRACT_DOOR_DAEMON_H
#define KVARVE_TESTS_CONTRACT_DOOR_DAEMON_H

#include <sys/types.h>

#include "kvarve/store.h"

/* Serve `folder` at `socket` as options say, and open a client of it with them. On failure there is
 * no daemon; the status is its own, or that of the client. */
KVARVE_NODISCARD kvarve_status door_daemon_start(const char *folder, const char *socket,
                                                 const kvarve_store_options *options,
                                                 pid_t *out_pid, kvarve_store **out_store,
                                                 kvarve_error *err);
/* Wait for its orderly end. 0: nothing. */
void door_daemon_stop(pid_t pid);

#endif
