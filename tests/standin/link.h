/*
 * link.h - what scheduler and ranks say to each other: one request, one reply, over a socket pair.
 *
 * A rank keeps no sequences: a request brings block ids and tokens, everything else is in the
 * rank's memory. A put or lease is named by a number. Today all ranks are threads of one process,
 * and the number leads to the scheduler's own handle; a rank in a process of its own will attach by
 * it. No pointer is ever sent.
 *
 * Threads    one at each end. Ownership  descriptors are the caller's.
 */
#ifndef KVARVE_STANDIN_LINK_H
#define KVARVE_STANDIN_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarve/error.h"
#include "standin/memory.h"

#define LINK_WORDS_MAX 8192u /* block ids and tokens of one request */

typedef enum link_kind {
    LINK_COMPUTE = 0,
    LINK_READ = 1,    /* the logits' part of this rank: reply.value */
    LINK_PUT = 2,     /* give put `handle` what this rank has of it */
    LINK_RESTORE = 3, /* fill the blocks from lease `handle` */
    LINK_BREAK = 4,   /* make the restored memory wrong, see standin_break */
    LINK_END = 5,     /* reply.value: the gaps between blocks are whole */
} link_kind;

typedef struct link_request {
    uint32_t kind; /* link_kind */
    uint32_t checkpoint_kind;
    uint64_t handle;
    uint64_t from; /* COMPUTE: tokens [from, to); others: to is the boundary */
    uint64_t to;
    uint64_t draft_from;
    uint64_t draft_to;
    uint64_t seed;
    uint32_t how;   /* standin_break */
    uint32_t group; /* BREAK */
    uint64_t where; /* BREAK: which of its bytes */
    uint64_t first_tokens[STANDIN_GROUPS_MAX];
    uint32_t id_counts[STANDIN_GROUPS_MAX]; /* in words: ids group after group, then tokens */
    uint32_t token_count;
    uint64_t token_first;
} link_request;

typedef struct link_reply {
    uint32_t status; /* kvarve_status */
    uint32_t reserved;
    uint64_t value;
    char text[KVARVE_ERROR_TEXT_MAX];
} link_reply;

typedef struct link_message {
    link_request request;
    uint32_t words[LINK_WORDS_MAX];
} link_message;

/* A pair of connected, close-on-exec descriptors. */
bool link_make(int out[2]);
void link_close(int *fd);

/* False: the other end is gone, or the message is not one. */
bool link_send_request(int fd, const link_message *message);
bool link_take_request(int fd, link_message *out);
bool link_send_reply(int fd, const link_reply *reply);
bool link_take_reply(int fd, link_reply *out);

/* The tables of a request; they borrow from it. */
void link_tables(const link_message *message, uint32_t group_count, standin_table *out);
/* Its tokens. */
const uint32_t *link_tokens(const link_message *message);

#endif
