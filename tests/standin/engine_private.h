/*
 * engine_private.h - what engine.c, flight.c, restore.c and sequence.c share: the engine's state
 * and the sequence that is served now.
 *
 * Threads    of the scheduler.
 */
#ifndef KVARVE_STANDIN_ENGINE_PRIVATE_H
#define KVARVE_STANDIN_ENGINE_PRIVATE_H

#include <pthread.h>

#include "kvarve/checkpoint.h"
#include "standin/blocks.h"
#include "standin/engine.h"
#include "standin/link.h"
#include "standin/script.h"

#define SEQUENCE_BLOCKS_MAX 192u
#define GUESSES             2u /* tokens that the drafter is ahead */

/* --- the sequence that is served now --- */

typedef struct sequence_table {
    uint64_t first_token;
    uint32_t count;
    uint32_t ids[SEQUENCE_BLOCKS_MAX]; /* of a state group: ids[0], the state at `computed` */
} sequence_table;

typedef struct sequence {
    uint32_t *tokens;  /* borrowed: those of the conversation, and guesses behind them */
    uint64_t computed; /* tokens whose rows and states are there */
    uint64_t drafted;  /* and the drafter's */
    uint64_t behind;   /* cookie of a put that may still read what is written next; 0: none */
    sequence_table tables[STANDIN_GROUPS_MAX];
    uint32_t guesses; /* computed beyond `computed`: rows in place, states here */
    uint32_t guessed_states[GUESSES][STANDIN_GROUPS_MAX];
} sequence;

/* --- puts in flight --- */

typedef struct flight {
    uint64_t cookie;        /* 0: free */
    uint32_t ranks_done;    /* bits: SOURCE_RELEASED came */
    uint32_t ranks_waiting; /* bits: asked to copy, but there was no room */
    bool has_sources;       /* its blocks are held */
    bool is_given_up;
    link_message request; /* what the ranks are asked; its ids are the held blocks */
} flight;

struct standin_engine {
    standin_options options;
    standin_shape shape;
    kvarve_store *store;
    standin_handles handles;
    block_pool pools[STANDIN_GROUPS_MAX];
    int links[STANDIN_RANKS_MAX]; /* the scheduler's ends */
    int rank_links[STANDIN_RANKS_MAX];
    pthread_t threads[STANDIN_RANKS_MAX];
    standin_rank ranks[STANDIN_RANKS_MAX];
    uint32_t ranks_started;
    bool is_over; /* a rank is gone, or there are no blocks */
    flight flights[STANDIN_FLIGHTS_MAX];
    uint64_t cookie; /* of the last put */
    link_message message;
    link_reply replies[STANDIN_RANKS_MAX];
    sequence sequence;
    conversation *conversations;
    uint64_t turn_seed; /* of what the turn chooses beside its prompt */
    uint64_t output;
    standin_counts counts;
    char fault[KVARVE_ERROR_TEXT_MAX + 64];
};

/* --- engine.c --- */

/* Count what a store may not answer. */
void engine_note_fault(standin_engine *engine, const char *what, kvarve_status status,
                       const char *text);
void message_begin(link_message *out, link_kind kind);
/* Group after group: each is named, if only with no ids. */
void message_table(link_message *message, uint32_t group, uint64_t first_token, const uint32_t *ids,
                   uint32_t count);
void message_tokens(link_message *message, uint64_t first, const uint32_t *tokens, uint64_t count);
/* Ask one rank, or all at once; replies are in engine->replies. False: the engine is over. */
bool engine_ask(standin_engine *engine, uint32_t rank, const link_message *message);
bool engine_ask_all(standin_engine *engine, const link_message *message);

/* --- sequence.c --- */

void sequence_begin(standin_engine *engine, uint32_t *tokens);
void sequence_end(standin_engine *engine);
/* A block of a group; waits for flights when there is none. BLOCK_NONE: the engine is over. */
uint32_t sequence_take(standin_engine *engine, uint32_t group);
/* Blocks for all tokens up to `to`. */
bool sequence_reserve(standin_engine *engine, uint64_t to);
/* Compute the model up to `to`, the drafter up to `draft_to`. */
bool sequence_compute(standin_engine *engine, uint64_t to, uint64_t draft_to);
/* The drafter guesses the next tokens and the model computes them, behind what is certain. */
bool sequence_guess(standin_engine *engine);
void sequence_drop_guesses(standin_engine *engine);
/* The first guess came true: take what was computed for it. */
bool sequence_accept(standin_engine *engine);
/* A message with all tables as they are now. */
void sequence_message(standin_engine *engine, link_kind kind);
/* The digest of all that all ranks have. */
bool sequence_read(standin_engine *engine, uint64_t *out);

/* --- flight.c --- */

/* Put the sequence's state at `computed`. A refusal is no failure. */
bool flight_begin(standin_engine *engine, const kvarve_prefix *prefix, uint32_t kind);
/* Take the events that are there; with `waits`, at least one. False: none came. */
bool flight_pump(standin_engine *engine, bool waits);
/* Wait until the put of this cookie reads no block any more. */
void flight_wait_sources(standin_engine *engine, uint64_t cookie);
/* Wait until at most `count` are left. */
void flight_settle(standin_engine *engine, uint32_t count);

/* --- restore.c --- */

/* Find and restore the longest boundary below `length` tokens; *out_kind of it. What it got stands
 * in the sequence: `computed`, 0 on a miss. */
bool restore_longest(standin_engine *engine, const kvarve_prefix *prefix, uint64_t length,
                     uint32_t *out_kind);

#endif
