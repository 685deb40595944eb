/*
 * client.h - the door to a store of another process: a daemon's, over a connection.
 *
 * Threads   Any, as door/door.h says. The client has no thread of its own for messages: whoever
 * waits receives, for all. A small pool copies bytes.
 *
 * Failures  When the daemon is gone, or answers what no daemon answers, the connection is broken:
 * what is under way and every later call is KVARVE_UNAVAILABLE at once, and the event descriptor
 * is readable. Handles can still be released, and the door be closed. Nothing that the daemon says
 * makes the client touch memory outside of the arena.
 */
#ifndef KVARVE_CLIENT_CLIENT_H
#define KVARVE_CLIENT_CLIENT_H

#include "client/transport.h"
#include "door/door.h"
#include "env/env.h"

typedef struct client_options {
    /* A world of the caller's, without threads: jobs run while the transport receives. One thread
     * only; it outlives the client. NULL: the real one. */
    const kvarve_env *env;
    uint32_t pool_threads;  /* 0: 2 */
    uint32_t io_timeout_ms; /* until an answer is missed; 0: 30,000 */
    uint64_t letter_bytes;  /* 0: 1 GiB of address space, less where that can not be had */
} client_options;

/*
 * Open a door over `transport`, which is the client's from here on, also when this fails. Blocks
 * for at most the io timeout.
 *
 * KVARVE_UNAVAILABLE: no daemon answers, or not as one does; KVARVE_UNSUPPORTED: it speaks other
 * versions; KVARVE_BUSY: it takes no more clients of this user.
 */
KVARVE_NODISCARD kvarve_status client_open(client_transport *transport,
                                           const client_options *options, door **out,
                                           kvarve_error *err);

/*
 * Connect to the daemon at the socket `path`, waiting up to wait_ms for one to be there, and open.
 * KVARVE_UNAVAILABLE: nobody listens there.
 */
KVARVE_NODISCARD kvarve_status client_connect(const char *path, uint32_t wait_ms,
                                              const client_options *options, door **out,
                                              kvarve_error *err);

/* A transport over a connected socket, which is the transport's from here on, also when this
 * fails. KVARVE_NO_MEMORY. */
KVARVE_NODISCARD kvarve_status client_socket_transport(int fd, client_transport **out,
                                                       kvarve_error *err);

extern const door_ops client_door_ops;

#endif
