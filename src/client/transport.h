/*
 * transport.h - how a client's messages travel: over a socket, or in a test straight to a session.
 *
 * Threads    One thread sends and one receives at a time; these may be two. Ownership  Descriptors
 * that are received are the transport's.
 */
#ifndef KVARVE_CLIENT_TRANSPORT_H
#define KVARVE_CLIENT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "env/memory.h"

typedef struct client_transport client_transport;

struct client_transport {
    /* Send one message; `letter` (NULL: none) is the memory whose descriptor goes with it. Waits
     * until deadline_ns for room. 0, -ETIMEDOUT, or -errno: the connection is broken. */
    int (*send)(client_transport *at, const void *bytes, size_t size, const kvarve_mapping *letter,
                uint64_t deadline_ns);
    /*
     * Receive one message, waiting until deadline_ns: its size, -ETIMEDOUT, or -errno: the
     * connection is broken (-ECONNRESET: the daemon closed).
     *
     * A transport without a descriptor has no other thread that could work meanwhile: here it does
     * the next piece of what is to be done. 0: something was done, but no message came of it;
     * -ETIMEDOUT: nothing is left to do.
     */
    int64_t (*receive)(client_transport *at, void *bytes, size_t room, uint64_t deadline_ns);
    /* The arena whose descriptor came with the last message, mapped: once, after WELCOME. `size` is
     * what WELCOME said. 0 or -errno. */
    int (*map_arena)(client_transport *at, size_t size, kvarve_mapping *out);
    void (*unmap_arena)(client_transport *at, kvarve_mapping *arena);
    /* Readable when a message can be received; -1: none. */
    int (*descriptor)(const client_transport *at);
    void (*close)(client_transport *at); /* frees it */
};

#endif
