/*
 * door_client.h - the client door for the suites: a store in the simulated host, a session on it,
 * and a client whose messages go straight there.
 *
 * Threads: one. Ownership: the world outlives the server; a server is freed when it was stopped and
 * its client's last handle is gone.
 */
#ifndef KVARVE_TESTS_CONTRACT_DOOR_CLIENT_H
#define KVARVE_TESTS_CONTRACT_DOOR_CLIENT_H

#include "env/env.h"
#include "kvarve/store.h"

typedef struct door_server door_server;

/* Open the store in `directory` as a daemon would, and a client of it. */
KVARVE_NODISCARD kvarve_status door_server_start(const kvarve_env *env, const char *directory,
                                                 const kvarve_store_options *options,
                                                 door_server **out, kvarve_store **out_store,
                                                 kvarve_error *err);
/* After kvarve_close. NULL: nothing. */
void door_server_stop(door_server *server);

#endif
