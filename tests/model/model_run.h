/*
 * model_run.h - one random run against a store and what it knows, shared by the files of the model
 * test.
 *
 * Threads    One.
 */
#ifndef KVARVE_TESTS_MODEL_RUN_H
#define KVARVE_TESTS_MODEL_RUN_H

#include "contract/engine.h"
#include "kvarve/admin.h"
#include "simulate/world.h"

#define TOKENS_MAX 80u
#define STAGED_MAX 3u
#define LEASES_MAX 3u

#define LAYOUTS    4u
#define PLAIN      0u
#define EXACT      1u
#define DENSE      3u
#define DENSE_SPAN 16u /* every page end of all its groups */

typedef struct entry {
    uint8_t id[32];
    uint32_t tokens[TOKENS_MAX];
    uint32_t layout;
    engine_state state; /* prefix NULL: made of the tokens when needed */
    uint32_t leases;
    bool is_alive;
} entry;

/* How a rank's bytes get into the store. */
typedef enum put_way {
    WAY_IN_PLACE,
    WAY_WRITE,
    WAY_REGIONS, /* PLAIN alone */
} put_way;

typedef struct staged_put {
    kvarve_put *put; /* NULL: free */
    kvarve_prefix *prefix;
    entry what;
    put_way way;
    uint32_t lane; /* its blocks */
    bool is_open;
    uint64_t staged_tokens; /* open: up to here */
} staged_put;

typedef struct held_lease {
    kvarve_lease *lease;
    entry *of;
} held_lease;

typedef struct run {
    uint64_t random;
    sim_world *world;
    kvarve_store_options options;
    kvarve_store *store;
    engine engines[LAYOUTS];
    entry *entries;
    size_t entry_count;
    staged_put staged[STAGED_MAX];
    held_lease held[LEASES_MAX];
    uint64_t evictions;
    uint64_t puts;
    uint64_t present;
    uint64_t finds;
    uint64_t hits;
    uint64_t restores;
    uint64_t closed;
    uint64_t given_up;
    uint64_t many;
    uint64_t many_kept;
    uint64_t copied;
    uint64_t copied_back;
} run;

extern kvarve_error model_error;

void model_expect_ok(kvarve_status status, const char *call, const char *file, int line);

/* NOLINTNEXTLINE(readability-identifier-naming): it reads as those of cmocka. */
#define assert_ok(call) model_expect_ok((call), #call, __FILE__, __LINE__)

uint32_t model_draw(run *at, uint32_t below);
entry model_draw_entry(run *at);
kvarve_prefix *model_prefix(const uint32_t *tokens, uint64_t count);

/* This put's checkpoint is there now. */
void model_learn_put(run *at, kvarve_put *put, const entry *what);
void model_end_all_staged(run *at);

/* --- model_ways.c --- */

/* Register the regions of PLAIN; after each open of the store. */
void model_register(run *at);
void model_draw_way(run *at, staged_put *one);

/* One rank hands over what it is asked for now, and acknowledges. */
KVARVE_NODISCARD kvarve_status model_hand_over(run *at, staged_put *one, uint32_t rank);

void model_begin_open(run *at, staged_put *one);

/* Hand over what is staged, then extend it or close it. */
void model_advance_open(run *at, staged_put *one);

/* Abort, or a rank that fails. The handle stays. */
void model_give_up(run *at, staged_put *one);

/* Some entries in one kvarve_put_many. */
void model_put_many(run *at);

/* PLAIN: a loaded lease into the regions, compared; else nothing. */
void model_copy_back(run *at, kvarve_lease *lease, const entry *known, const engine_state *state);

#endif
