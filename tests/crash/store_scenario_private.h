/*
 * store_scenario_private.h - a run of a scenario's steps, shared by the files that have the steps.
 */
#ifndef KVARVE_TESTS_STORE_SCENARIO_PRIVATE_H
#define KVARVE_TESTS_STORE_SCENARIO_PRIVATE_H

#include "crash/store_flight.h"
#include "crash/store_scenario.h"

/* A put in flight, and what the model said of its item before: where it leaves nothing, that holds
 * again. */
typedef struct run_lane {
    flight flight;
    uint8_t item;
    bool is_open; /* no boundary yet: nothing that the model knows */
    uint8_t state_before;
    bool was_put_before;
    bool was_buried_before;
    bool was_dropped_before;
    bool says[MODEL_ITEMS_MAX]; /* dropped before it began: its record says so */
} run_lane;

typedef struct run {
    const scenario *of;
    sim_world *world;
    session open;
    run_result *result;
    run_lane lanes[SCENARIO_LANES];
    uint64_t evictions; /* followed so far */
    bool is_quiet;
} run;

bool run_is_cut(const run *at);

/* Remember the first thing that is wrong; answers after a cut do not count. */
void run_expect(run *at, bool is_right, const char *broken);

/* In a quiet run every step succeeds. */
void run_expect_quiet(run *at, bool is_right, const char *broken);

/* A put of this item is about to begin. */
void run_before_put(run *at, size_t item);

/* It ended so. says: items that were dropped before its record was made; NULL: all that are. */
void run_after_put(run *at, size_t item, const put_outcome *outcome, const bool *says);

/* What a read answered. */
void run_see_read(run *at, read_answer answer);

/* A step of a put in flight. */
void run_flight_step(run *at, const scenario_step *step);

/* Let go of all that is in flight. */
void run_release_flights(run *at);

#endif
