/*
 * engine.h - the stand-in engine: a scheduler over rank threads, with a store or without one.
 *
 * Calling sequence  engine_open -> engine_run -> engine_close. One run serves every turn of the
 * script, each as a request of its own: find and restore what is stored, compute the rest, put the
 * boundaries, choose the answer. Whatever the store does, the outputs of a seed are the same; a
 * store that hands out one wrong byte changes them.
 *
 * Threads    one engine is used by one thread; its ranks are threads of its own. Ownership
 * engine_open makes an engine that engine_close ends. Errors  what a store may answer (a miss, a
 * refusal) is counted; what it may not (faults) is counted and kept as a text.
 */
#ifndef KVARVE_STANDIN_ENGINE_H
#define KVARVE_STANDIN_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "kvarve/store.h"
#include "standin/layout.h"
#include "standin/rank.h"

typedef struct standin_options {
    const char *store; /* endpoint; NULL: none */
    const char *layout;
    uint32_t ranks;
    uint32_t drafter; /* 0: none */
    uint32_t turns;   /* of each conversation */
    uint32_t conversations;
    uint64_t seed;
    uint64_t arena_bytes; /* 0: the store's default */
    standin_transfer transfer;
    uint32_t abort_every; /* give up each so manieth put; 0: none */
    bool waits;           /* each turn ends when its puts have: hits do not depend on time */
    standin_break broken; /* the first restores are made wrong */
    uint32_t broken_group;
    uint64_t broken_where; /* chooses among its bytes */
} standin_options;

typedef struct standin_turn {
    uint32_t turn;
    uint32_t conversation;
    const char *what;  /* static */
    uint64_t tokens;   /* of the prompt */
    uint64_t restored; /* of them */
    uint64_t computed; /* of them */
    uint32_t answer;   /* tokens */
    uint32_t kind;     /* of the boundary that was restored */
    uint64_t output;   /* digest of the answer and of all that it was chosen from */
} standin_turn;

typedef struct standin_counts {
    uint64_t hits;
    uint64_t hits_without_draft; /* of these */
    uint64_t misses;
    uint64_t loads_failed; /* found, but not restored */
    uint64_t tokens_restored;
    uint64_t tokens_computed;
    uint64_t puts;
    uint64_t puts_durable;
    uint64_t puts_present;
    uint64_t puts_given_up;
    uint64_t puts_refused;
    uint64_t copies_asked; /* pages left by another put */
    uint64_t guesses_kept;
    uint64_t guesses_lost;
    uint64_t broken; /* restores made wrong */
    uint64_t faults;
} standin_counts;

typedef struct standin_engine standin_engine;
typedef void (*standin_visit)(void *context, const standin_turn *turn);

/* NULL: `out_text` says why. */
standin_engine *engine_open(const standin_options *options, char *out_text, size_t size);
/* Run all turns; `visit` (may be NULL) sees each. False: the engine itself could not go on. */
bool engine_run(standin_engine *engine, standin_visit visit, void *context);
uint64_t engine_output(const standin_engine *engine); /* over all turns */
void engine_counts(const standin_engine *engine, standin_counts *out);
const char *engine_fault(const standin_engine *engine); /* the first one; "" */
/* Wait for what is in flight and end. NULL is a no-op. False: a rank's memory was written to where
 * nobody may, or a block is still in use. */
bool engine_close(standin_engine *engine);

#endif
