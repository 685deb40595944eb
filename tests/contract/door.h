/*
 * door.h - the ways into a store, for suites that are written once and run over each.
 *
 * Doors: a real store in a folder of its own, the same calls in the simulated host, there again as
 * the client of a session (door_client.h), and a real folder as the client of a daemon
 * (door_daemon.h). What only one of them can do (time that passes, a second process) asks which one
 * it is.
 *
 * Include after cmocka.h: failing to open is a failed assertion of the test.
 *
 * Ownership  The suite makes and removes the door around each test; a test may close and reopen.
 */
#ifndef KVARVE_TESTS_CONTRACT_DOOR_H
#define KVARVE_TESTS_CONTRACT_DOOR_H

#include <stdbool.h>
#include <stddef.h>

#include "contract/door_client.h"
#include "contract/door_daemon.h"
#include "kvarve/admin.h"
#include "kvarve/store.h"
#include "simulate/world.h"
#include "support/scratch.h"

typedef struct door {
    sim_world *world;               /* NULL: the real one */
    bool is_client;                 /* of a session in that world, or of a daemon */
    door_server *server;            /* that one, while it is open */
    pid_t daemon;                   /* likewise; 0: none */
    char scratch[SCRATCH_PATH_MAX]; /* the real door's folder */
    char folder[SCRATCH_PATH_MAX + 16];
    kvarve_store_options options; /* used by the next open */
    kvarve_store *store;          /* NULL: closed */
} door;

typedef struct door_test {
    const char *name;
    void (*run)(void **state); /* *state: the door, its store open with door_options */
} door_test;

#define DOOR_TEST(function) {#function, function}

/* The store is opened by another process, from its command line. */
static inline bool door_is_daemon(const door *at)
{
    return at->is_client && at->world == NULL;
}

/* Small: an arena of 4 MiB, segments of 1 MiB, 64 MiB on flash. */
kvarve_store_options door_options(void);

/* Run all tests through each door. The exit status of the program. */
int door_run(const char *suite, const door_test *tests, size_t count);

/* Open with at->options; the answer. */
KVARVE_NODISCARD kvarve_status door_try_open(door *at, kvarve_error *err);
void door_open(door *at);
void door_close(door *at);
void door_reopen(door *at);

/* Let this much time pass: in the simulated host at once; a real clock goes by itself. */
void door_pass_ms(door *at, uint32_t milliseconds);

kvarve_statistics door_statistics(door *at);

/* Change one byte of this page wherever it stands in the segment files. How many places that were.
 */
size_t door_damage_page(door *at, const void *page, size_t size);

#endif
