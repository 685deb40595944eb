/*
 * store_scenario.h - fixed sequences of public calls, run on a model's store, and the check after a
 * crash.
 *
 * A scenario has a prepared store (a snapshot, made once) and steps that run under a plan. What its
 * steps acknowledge goes into the model; what a fault or a cut left open is "perhaps" there.
 *
 * Threads    One.
 */
#ifndef KVARVE_TESTS_STORE_SCENARIO_H
#define KVARVE_TESTS_STORE_SCENARIO_H

#include "base/alloc.h"
#include "crash/store_model.h"

typedef enum step_kind {
    STEP_END,
    STEP_PUT,
    STEP_REPLAY,   /* a put of what is durable: PRESENT, and the disk is not touched (P3, D4) */
    STEP_PUT_MANY, /* items at .. at + count in one call */
    STEP_DROP,
    STEP_LOAD, /* find, load into the arena, compare */
    STEP_READ, /* find, read from flash, compare */
    STEP_REOPEN,
    STEP_REBUILD, /* close, open with KVARVE_OPEN_REBUILD */
    STEP_MINUTE,  /* the clock goes on, so that recency may be written */
    STEP_VERIFY,
    STEP_TRIM,
    STEP_DERIVED, /* every page end of an item of LAYOUT_DENSE */
    STEP_COPY,    /* find, load, copy into registered regions, compare */
    /* Puts in flight; `count` is the lane, `at` as said. */
    STEP_BEGIN,  /* item */
    STEP_OPEN,   /* item: an open put, of its tokens */
    STEP_EXTEND, /* tokens */
    STEP_CLOSE,  /* item */
    STEP_FILL,   /* this many ranks hand over and acknowledge, 0: all */
    STEP_SUBMIT, /* all ranks, from registered regions; not waited for */
    STEP_READY,  /* until its pages are sealed; they are not on flash yet */
    STEP_SETTLE, /* until it is over */
    STEP_ABORT,
    STEP_FAIL,
    STEP_LEAVE,
} step_kind;

typedef struct scenario_step {
    uint8_t kind;
    uint8_t at;    /* item, unless its kind says what */
    uint8_t count; /* items, or the lane of a put in flight */
} scenario_step;

#define SCENARIO_STEPS_MAX 20u
#define SCENARIO_LANES     3u
#define PROBE              0u /* the first item of every scenario is what is put after a recovery */

typedef struct scenario {
    const char *name;
    const model_item *items;
    uint32_t item_count;
    scenario_step prepare[SCENARIO_STEPS_MAX];
    scenario_step steps[SCENARIO_STEPS_MAX];
    model_limits limits;
    bool evicts; /* puts may push others out */
    uint32_t
        changes; /* at least so many in a quiet run: checked in, so that a sweep can not shrink */
    uint32_t calls; /* at least so many io calls */
} scenario;

extern const scenario scenarios[];
extern const size_t scenario_count;

/* One scenario, prepared: restore, run, check, again and again. */
typedef struct stage {
    const scenario *of;
    sim_world *world;
    world_snapshot *prepared;
    model known;               /* what the prepared store holds */
    kvarve_allocate_hook hook; /* while a run runs; NULL: none */
    void *hook_context;
} stage;

/* Fails the test when the quiet run does not do what it should. */
void stage_begin(stage *out, const scenario *of);
void stage_end(stage *of);

/* What a run left. */
typedef struct run_result {
    model known;
    const char *broken; /* wrong already while it ran */
    uint64_t refused;   /* puts that did not become durable */
    uint64_t evictions;
    uint64_t steps_done;
} run_result;

/*
 * Restore the prepared store, set the plan, open, run all steps, close. With `is_quiet` every step
 * must succeed. Leaks of descriptors, mappings and memory are looked for.
 */
void stage_run(stage *of, const world_plan *plan, bool is_quiet, run_result *out);

/*
 * The power is back: open, compare with the model, put something new, close; cut again; and the
 * same is there. NULL, or what is wrong. `is_rebuilt`: rebuild the index at the end, too.
 */
const char *stage_check(stage *of, model *known, uint64_t seed, bool is_rebuilt);

/* A recovery and a new put under the plan that is set, whatever comes of it: NULL, or what was seen
 * that must never be seen. */
const char *stage_recover(stage *of);

/* A new put was tried, and what it may have pushed out. */
void stage_expect_probe(const stage *of, model *known);

#endif
