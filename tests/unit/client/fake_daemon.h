/*
 * fake_daemon.h - a daemon that is not one: it answers each request with what an honest daemon with
 * one checkpoint would say, but for one answer, which is made wrong.
 *
 * It is a client_transport without a descriptor, so all runs on one thread, and its arena is a
 * block of memory of its own: what is read or written beside it is found by a sanitizer.
 */
#ifndef KVARVE_TESTS_FAKE_DAEMON_H
#define KVARVE_TESTS_FAKE_DAEMON_H

#include "client/client.h"
#include "protocol/protocol.h"
#include "simulate/world.h"

#define FAKE_ARENA_BYTES ((size_t)64 << 10)
#define FAKE_PAGES       3u /* of the put and of the lease: two of group 0, one of group 1 */
#define FAKE_TOKENS      32u
#define FAKE_SPAN        16u
#define FAKE_PAGE_BYTES  2048u /* of group 0 */
#define FAKE_STATE_BYTES 500u  /* of group 1 */

typedef enum fake_fault {
    FAULT_NONE,
    FAULT_CLOSE,      /* the connection ends instead */
    FAULT_SILENCE,    /* nothing comes */
    FAULT_OTHER_ID,   /* it has the number of no request */
    FAULT_OTHER_TYPE, /* an answer to something else */
    FAULT_TWICE,
    FAULT_SHORT,      /* the last byte is missing */
    FAULT_LONG,       /* there is one more */
    FAULT_ERROR_ZERO, /* the daemon ends the connection, and says so */
    FAULT_ERROR,      /* ERROR with the status `value` */
    FAULT_BITS,       /* some bits of it are others, by `value` */
    FAULT_OFFSET,     /* pages lie at `value` */
    FAULT_SIZE,       /* pages have `value` bytes */
    FAULT_TOTAL,      /* there are `value` items, it says */
    FAULT_EMPTY,      /* no items */
    FAULT_GROUP,      /* pages are of group `value` */
    FAULT_EARLY,      /* a wait without an end is answered before its time */
    FAULT_COUNT,
} fake_fault;

typedef struct fake_plan {
    fake_fault fault;
    uint64_t at; /* the number of the answer that is wrong, from 0 */
    uint64_t value;
} fake_plan;

#define FAKE_QUEUE_MAX 16u

typedef struct fake_message {
    size_t size;
    uint8_t bytes[WIRE_MESSAGE_MAX];
} fake_message;

typedef struct fake_daemon {
    client_transport base; /* first */
    sim_world *world;
    fake_plan plan;
    uint64_t answers; /* so far */
    bool is_hit;      /* the wrong one was given */
    bool is_closed;
    bool is_acked;
    bool is_aborted;
    uint8_t *arena;
    fake_message *queue; /* FAKE_QUEUE_MAX of them */
    size_t queued;
    uint64_t parked;      /* the number of a PUT_WAIT that is answered with the ack; 0: none */
    uint64_t ended_pages; /* PAGE_END that came */
    uint64_t wrong_pages; /* of these, that say that it was wrong */
} fake_daemon;

/* In `world`. Lives longer than the client; its transport's close frees nothing. */
void fake_begin(fake_daemon *fake, sim_world *world, const fake_plan *plan);
void fake_end(fake_daemon *fake);

/* A client of it. */
KVARVE_NODISCARD kvarve_status fake_connect(fake_daemon *fake, door **out, kvarve_error *err);

#endif
