/*
 * rank.h - one rank: its memory, and a loop that does what the scheduler asks.
 *
 * The loop sees the store through an attachment alone: what a rank needs of kvarve in order to fill
 * or read its part of a put or lease that the scheduler began. Embedded, that is the scheduler's
 * own handles, shared by threads. Where a daemon serves, a rank will be this same program in a
 * process of its own (README.md): its attachment then holds a store handle of its own, and
 * rank_put and rank_lease attach by the number that came in the request.
 *
 * Threads    rank_run is the body of the rank's thread.
 */
#ifndef KVARVE_STANDIN_RANK_H
#define KVARVE_STANDIN_RANK_H

#include <stdint.h>

#include "kvarve/checkpoint.h"
#include "standin/layout.h"

/* How a rank moves bytes. */
typedef enum standin_transfer {
    STANDIN_COPY = 0,  /* kvarve_put_copy, kvarve_lease_copy: registered regions and block ids */
    STANDIN_PLACE = 1, /* kvarve_put_plan and _ack, kvarve_lease_pages: in place */
    STANDIN_WRITE = 2, /* kvarve_put_write and _ack, kvarve_lease_read: pieces of bytes */
} standin_transfer;

/* Faults of a restore, made on purpose: each must change the output. */
#define STANDIN_BREAK_TABLE(ROW)                                                                   \
    ROW(NONE, "none", "nothing is wrong")                                                          \
    ROW(BYTE, "byte", "one bit of one valid byte is flipped")                                      \
    ROW(STALE, "stale", "a block is not restored")                                                 \
    ROW(FOREIGN, "foreign", "a block is the one of other tokens")                                  \
    ROW(HALF, "half", "the second half of a block is not restored")                                \
    ROW(TWICE, "twice", "the last token is applied twice")                                         \
    ROW(TIE, "tie", "the auxiliary of another kind is taken")

typedef enum standin_break {
#define STANDIN_BREAK_ENUM(name, word, text) STANDIN_BREAK_##name,
    STANDIN_BREAK_TABLE(STANDIN_BREAK_ENUM)
#undef STANDIN_BREAK_ENUM
        STANDIN_BREAK_COUNT
} standin_break;

#define STANDIN_FLIGHTS_MAX 16u

/* The scheduler's open handles, by the number that requests name them with. A request is sent after
 * the entry is written, and the entry stays until its reply is there. */
typedef struct standin_handles {
    kvarve_namespace *space; /* NULL: no store */
    kvarve_put *puts[STANDIN_FLIGHTS_MAX];
    kvarve_lease *lease;
} standin_handles;

typedef struct standin_rank {
    const standin_shape *shape; /* borrowed */
    uint32_t rank;
    standin_transfer transfer;
    int link; /* borrowed: the rank's end */
    uint64_t seed;
    standin_handles *handles; /* borrowed */
} standin_rank;

/* Serve requests until LINK_END or the scheduler is gone. `argument` is a standin_rank. */
void *rank_run(void *argument);

#endif
