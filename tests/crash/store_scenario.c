/*
 * store_scenario.c - see store_scenario.h.
 *
 * The model moves in two steps: before a call what it may change becomes PERHAPS, after an answer
 * that counts (the power is on, the status is good) it becomes what the answer says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "crash/store_scenario.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const model_item first_items[] = {
    {.layout = LAYOUT_PLAIN, .conversation = 9, .kind = 2, .tokens = 20},
    {.layout = LAYOUT_PLAIN, .conversation = 0, .kind = 2, .tokens = 40},
};

/* A conversation of three turns, its branch, and other bytes for the same tokens. */
static const model_item turn_items[] = {
    {.layout = LAYOUT_PLAIN, .conversation = 9, .kind = 2, .tokens = 20},
    {.layout = LAYOUT_PLAIN, .conversation = 0, .kind = 2, .tokens = 40},
    {.layout = LAYOUT_PLAIN, .conversation = 0, .kind = 2, .tokens = 72},
    {.layout = LAYOUT_PLAIN, .conversation = 0, .kind = 1, .tokens = 72},
    {.layout = LAYOUT_PLAIN,
     .conversation = 1,
     .kind = 2,
     .tokens = 50,
     .variant = 3,
     .first_tokens = 32},
};

static const model_item exact_items[] = {
    {.layout = LAYOUT_EXACT, .conversation = 9, .kind = 2, .tokens = 20},
    {.layout = LAYOUT_EXACT, .conversation = 0, .kind = 2, .tokens = 40},
    {.layout = LAYOUT_EXACT, .conversation = 0, .kind = 1, .tokens = 40, .variant = 1},
    {.layout = LAYOUT_EXACT,
     .conversation = 0,
     .kind = 2,
     .tokens = 64,
     .variant = 2,
     .first_tokens = 32,
     .first_variant = 1},
};

static const model_item mixed_items[] = {
    {.layout = LAYOUT_MIXED, .conversation = 9, .kind = 2, .tokens = 20},
    {.layout = LAYOUT_MIXED, .conversation = 0, .kind = 2, .tokens = 40},
    {.layout = LAYOUT_MIXED, .conversation = 0, .kind = 2, .tokens = 60, .has_no_draft = true},
    {.layout = LAYOUT_MIXED, .conversation = 0, .kind = 2, .tokens = 72},
    {.layout = LAYOUT_PLAIN, .conversation = 3, .kind = 1, .tokens = 17},
};

static const model_item many_items[] = {
    {.layout = LAYOUT_PLAIN, .conversation = 9, .kind = 2, .tokens = 20},
    {.layout = LAYOUT_PLAIN, .conversation = 2, .kind = 2, .tokens = 33},
    {.layout = LAYOUT_PLAIN, .conversation = 3, .kind = 2, .tokens = 16},
    {.layout = LAYOUT_PLAIN, .conversation = 4, .kind = 0, .tokens = 20},
    {.layout = LAYOUT_PLAIN, .conversation = 5, .kind = 2, .tokens = 30},
    {.layout = LAYOUT_PLAIN, .conversation = 6, .kind = 2, .tokens = 48},
};

/* 256 KiB each: a file of 1 MiB holds three. */
static const model_item large_items[] = {
    {.layout = LAYOUT_LARGE, .conversation = 9, .kind = 2, .tokens = 20},
    {.layout = LAYOUT_LARGE, .conversation = 2, .kind = 2, .tokens = 64},
    {.layout = LAYOUT_LARGE, .conversation = 3, .kind = 2, .tokens = 64},
    {.layout = LAYOUT_LARGE, .conversation = 4, .kind = 2, .tokens = 60},
    {.layout = LAYOUT_LARGE, .conversation = 5, .kind = 2, .tokens = 64},
    {.layout = LAYOUT_LARGE, .conversation = 6, .kind = 2, .tokens = 64},
    {.layout = LAYOUT_LARGE, .conversation = 7, .kind = 2, .tokens = 50},
};

const scenario scenarios[] = {
    {.name = "first put",
     .items = first_items,
     .item_count = COUNT(first_items),
     .steps = {{STEP_PUT, 1, 0}, {STEP_LOAD, 1, 0}},
     .changes = 65,
     .calls = 85},
    {.name = "second turn, partial page, branch, replay",
     .items = turn_items,
     .item_count = COUNT(turn_items),
     .prepare = {{STEP_PUT, 1, 0}},
     .steps = {{STEP_READ, 1, 0},
               {STEP_PUT, 2, 0},
               {STEP_REPLAY, 1, 0},
               {STEP_PUT, 3, 0},
               {STEP_REOPEN, 0, 0},
               {STEP_REPLAY, 2, 0},
               {STEP_PUT, 4, 0},
               {STEP_LOAD, 4, 0}},
     .changes = 50,
     .calls = 150},
    {.name = "exact, two ranks, other bytes for the same tokens",
     .items = exact_items,
     .item_count = COUNT(exact_items),
     .prepare = {{STEP_PUT, 1, 0}},
     .steps = {{STEP_PUT, 2, 0}, {STEP_PUT, 3, 0}, {STEP_REPLAY, 1, 0}, {STEP_LOAD, 2, 0}},
     .changes = 29,
     .calls = 80},
    {.name = "all classes, with a drafter and without",
     .items = mixed_items,
     .item_count = COUNT(mixed_items),
     .prepare = {{STEP_PUT, 1, 0}},
     .steps = {{STEP_PUT, 2, 0}, {STEP_PUT, 3, 0}, {STEP_PUT, 4, 0}, {STEP_READ, 3, 0}},
     .changes = 47,
     .calls = 110},
    {.name = "many at once, drops, recency at close",
     .items = many_items,
     .item_count = COUNT(many_items),
     .prepare = {{STEP_PUT_MANY, 1, 3}},
     .steps = {{STEP_DROP, 2, 0},
               {STEP_LOAD, 1, 0},
               {STEP_PUT, 4, 0},
               {STEP_MINUTE, 0, 0},
               {STEP_LOAD, 3, 0},
               {STEP_PUT, 5, 0},
               {STEP_DROP, 4, 0},
               {STEP_LOAD, 1, 0},
               {STEP_VERIFY, 0, 0},
               {STEP_TRIM, 0, 0},
               {STEP_PUT, 2, 0}},
     .changes = 55,
     .calls = 115},
    {.name = "eviction under a small cap",
     .items = large_items,
     .item_count = COUNT(large_items),
     .prepare = {{STEP_PUT, 1, 0}, {STEP_PUT, 2, 0}},
     .steps = {{STEP_PUT, 3, 0}, {STEP_PUT, 4, 0}, {STEP_PUT, 5, 0}, {STEP_PUT, 6, 0}},
     .limits = {.flash_bytes_max = UINT64_C(2) << 20, .arena_bytes = UINT64_C(1) << 20},
     .evicts = true,
     .changes = 70,
     .calls = 130},
    {.name = "rebuild",
     .items = many_items,
     .item_count = COUNT(many_items),
     .prepare = {{STEP_PUT_MANY, 1, 3}, {STEP_DROP, 2, 0}, {STEP_PUT, 4, 0}},
     .steps = {{STEP_REBUILD, 0, 0}, {STEP_READ, 1, 0}, {STEP_PUT, 5, 0}},
     .changes = 63,
     .calls = 140},
};

const size_t scenario_count = COUNT(scenarios);

/* --- a run --- */

typedef struct run {
    const scenario *of;
    sim_world *world;
    session open;
    run_result *result;
    uint64_t evictions; /* before the put */
    bool is_quiet;
} run;

static bool is_cut(const run *at)
{
    return world_observe(at->world).is_cut;
}

/* Remember the first thing that is wrong; answers after a cut do not count. */
static void expect(run *at, bool is_right, const char *broken)
{
    if (!is_right && at->result->broken == NULL && !is_cut(at)) {
        at->result->broken = broken;
    }
}

/* In a quiet run every step succeeds. */
static void expect_quiet(run *at, bool is_right, const char *broken)
{
    if (at->is_quiet) {
        expect(at, is_right, broken);
    }
}

static uint64_t count_evictions(const session *open)
{
    kvarve_statistics statistics = KVARVE_STATISTICS_INIT;

    return kvarve_statistics_get(open->store, &statistics, NULL) == KVARVE_OK ? statistics.evictions
                                                                              : 0;
}

/* Anything may have gone to make room. */
static void doubt_all(model *known)
{
    for (size_t i = 0; i < known->count; i++) {
        known->states[i] = known->states[i] == ITEM_SURE ? ITEM_PERHAPS : known->states[i];
    }
}

static void before_put(run *at, size_t item)
{
    model *known = &at->result->known;

    at->evictions = count_evictions(&at->open);
    if (known->states[item] == ITEM_ABSENT) {
        known->states[item] = ITEM_PERHAPS;
    }
    known->was_put[item] = true;
    known->is_buried[item] = false;
    known->is_dropped[item] = false;
}

/* Whatever was dropped before is said by this put's record, or has no record any more. */
static void bury(model *known)
{
    for (size_t i = 0; i < known->count; i++) {
        known->is_buried[i] = known->is_buried[i] || known->is_dropped[i];
    }
}

static void see_evictions(run *at)
{
    model *known = &at->result->known;

    for (size_t i = 0; i < known->count; i++) {
        kvarve_boundary boundary = {0};

        if (known->states[i] == ITEM_PERHAPS &&
            item_find(&at->open, &known->items[i], KVARVE_LEASE_NONE, &boundary, NULL, NULL) ==
                KVARVE_OK &&
            boundary.state == KVARVE_PUT_DURABLE && !is_cut(at)) {
            known->states[i] = ITEM_SURE;
        }
    }
}

static void after_put(run *at, size_t item, const put_outcome *outcome)
{
    model *known = &at->result->known;
    const uint64_t evictions = count_evictions(&at->open) - at->evictions;

    if (evictions > 0) {
        doubt_all(known);
        at->result->evictions += evictions;
    }
    if (is_cut(at)) {
        return;
    }
    expect_quiet(at, outcome->state == KVARVE_PUT_DURABLE, "a put did not become durable");
    if (outcome->state == KVARVE_PUT_DURABLE || outcome->state == KVARVE_PUT_PRESENT) {
        known->states[item] = ITEM_SURE;
    } else {
        at->result->refused++;
    }
    if (outcome->state == KVARVE_PUT_DURABLE) {
        bury(known);
    }
    if (evictions > 0) {
        see_evictions(at);
    }
}

static void run_put(run *at, size_t item)
{
    put_outcome outcome;

    before_put(at, item);
    outcome = item_put(&at->open, &at->of->items[item]);
    after_put(at, item, &outcome);
}

static void run_replay(run *at, size_t item)
{
    const uint64_t changes = world_observe(at->world).changes;
    put_outcome outcome;

    if (at->result->known.states[item] != ITEM_SURE) { /* a fault kept it out before */
        run_put(at, item);
        return;
    }
    outcome = item_put(&at->open, &at->of->items[item]);
    expect_quiet(at, outcome.state == KVARVE_PUT_PRESENT, "known content is not present");
    expect(at, outcome.state != KVARVE_PUT_PRESENT || world_observe(at->world).changes == changes,
           "a replay changed the disk (P3, D4)");
}

static void run_put_many(run *at, size_t item, size_t count)
{
    put_outcome outcomes[4] = {0};
    kvarve_status status;

    for (size_t i = 0; i < count; i++) {
        before_put(at, item + i);
    }
    at->evictions = count_evictions(&at->open);
    status = items_put_many(&at->open, &at->of->items[item], count, outcomes);
    expect_quiet(at, status == KVARVE_OK, "put_many");
    for (size_t i = 0; i < count; i++) {
        after_put(at, item + i, &outcomes[i]);
    }
}

static void run_drop(run *at, size_t item)
{
    model *known = &at->result->known;
    kvarve_status status;

    known->states[item] = known->states[item] == ITEM_SURE ? ITEM_PERHAPS : known->states[item];
    status = item_drop(&at->open, &at->of->items[item]);
    if (!is_cut(at) && status == KVARVE_OK) {
        known->states[item] = ITEM_ABSENT;
        known->is_dropped[item] = true;
    }
    expect_quiet(at, status == KVARVE_OK, "drop");
}

static void run_read(run *at, size_t item, bool is_loaded)
{
    bool is_found = false;
    const read_answer answer = item_read(&at->open, &at->of->items[item], is_loaded, &is_found);

    /* What leaves is verified, also while the power goes. */
    if (answer == READ_WRONG && at->result->broken == NULL) {
        at->result->broken = "wrong bytes (P1)";
    }
    expect_quiet(at, answer == READ_RIGHT, "a durable checkpoint does not restore");
}

static bool run_reopen(run *at, uint32_t flags)
{
    model_limits limits = at->of->limits;
    kvarve_status status;

    limits.flags |= flags;
    session_close(&at->open);
    status = session_open(&at->open, at->world, MODEL_FOLDER, &limits, NULL);
    expect_quiet(at, status == KVARVE_OK, "it does not open again");
    return status == KVARVE_OK;
}

static void run_verify(run *at)
{
    kvarve_verify_result result;
    const kvarve_status status = kvarve_verify(at->open.store, NULL, NULL, &result, NULL);

    expect_quiet(at, status == KVARVE_OK, "verify");
}

static void run_trim(run *at)
{
    uint64_t bytes = 0;

    expect_quiet(at, kvarve_trim(at->open.store, &bytes, NULL) == KVARVE_OK, "trim");
}

/* False: the store is not open any more. */
static bool run_step(run *at, const scenario_step *step)
{
    switch ((step_kind)step->kind) {
    case STEP_PUT:
        run_put(at, step->at);
        return true;
    case STEP_REPLAY:
        run_replay(at, step->at);
        return true;
    case STEP_PUT_MANY:
        run_put_many(at, step->at, step->count);
        return true;
    case STEP_DROP:
        run_drop(at, step->at);
        return true;
    case STEP_LOAD:
    case STEP_READ:
        run_read(at, step->at, step->kind == STEP_LOAD);
        return true;
    case STEP_REOPEN:
    case STEP_REBUILD:
        return run_reopen(at, step->kind == STEP_REBUILD ? KVARVE_OPEN_REBUILD : 0);
    case STEP_MINUTE:
        world_advance(at->world, 61 * KVARVE_NS_PER_S);
        return true;
    case STEP_VERIFY:
        run_verify(at);
        return true;
    case STEP_TRIM:
        run_trim(at);
        return true;
    case STEP_END:
    default:
        return false;
    }
}

static void run_steps(run *at, const scenario_step *steps)
{
    const kvarve_status status =
        session_open(&at->open, at->world, MODEL_FOLDER, &at->of->limits, NULL);
    bool is_open = status == KVARVE_OK;

    expect_quiet(at, is_open, "it does not open");
    for (size_t i = 0; i < SCENARIO_STEPS_MAX && steps[i].kind != STEP_END && is_open; i++) {
        is_open = run_step(at, &steps[i]);
        at->result->steps_done += !is_cut(at);
    }
    session_close(&at->open);
}

static const char *find_leak(sim_world *world, uint64_t blocks_before)
{
    if (world_open_descriptors(world) != 0) {
        return "a descriptor was left open";
    }
    if (world_mappings(world) != 0) {
        return "a mapping was left";
    }
    return kvarve_allocated_blocks() == blocks_before ? NULL : "memory was left";
}

void stage_run(stage *of, const world_plan *plan, bool is_quiet, run_result *out)
{
    run at = {.of = of->of, .world = of->world, .result = out, .is_quiet = is_quiet};
    uint64_t blocks;

    *out = (run_result){.known = of->known};
    world_restore(of->world, of->prepared, plan->seed);
    world_set_plan(of->world, plan);
    world_reserve(of->world, UINT64_C(8) << 20);
    blocks = kvarve_allocated_blocks();
    kvarve_allocate_set_hook(of->hook, of->hook_context);
    run_steps(&at, of->of->steps);
    kvarve_allocate_set_hook(NULL, NULL);
    if (out->broken == NULL) {
        out->broken = find_leak(of->world, blocks);
    }
}

/* --- prepared stores --- */

void stage_begin(stage *out, const scenario *of)
{
    run_result result = {0};
    world_report report;
    const world_plan quiet = WORLD_PLAN_QUIET;
    run at;

    *out = (stage){.of = of, .world = world_create(7)};
    at = (run){.of = of, .world = out->world, .result = &result, .is_quiet = true};
    model_init(&result.known, of->items, of->item_count);
    if (of->prepare[0].kind != STEP_END) {
        run_steps(&at, of->prepare);
    }
    if (result.broken != NULL) {
        fail_msg("%s: prepare: %s", of->name, result.broken);
    }
    out->known = result.known;
    world_flush(out->world);
    out->prepared = world_take_snapshot(out->world);
    stage_run(out, &quiet, true, &result);
    report = world_observe(out->world);
    (void)printf("%s: %llu calls, %llu of them changes\n", of->name,
                 (unsigned long long)report.steps, (unsigned long long)report.changes);
    if (result.broken != NULL || (of->evicts && result.evictions == 0)) {
        fail_msg("%s: quiet run: %s", of->name,
                 result.broken != NULL ? result.broken : "nothing was evicted");
    }
    if (report.steps < of->calls || report.changes < of->changes) {
        fail_msg("%s reaches fewer steps than it did when it was written", of->name);
    }
}

void stage_end(stage *of)
{
    world_release_snapshot(of->world, of->prepared);
    world_destroy(of->world);
}

/* --- after the crash --- */

void stage_expect_probe(const stage *of, model *known)
{
    if (of->of->evicts) {
        doubt_all(known);
    }
    known->states[PROBE] = ITEM_PERHAPS;
    known->was_put[PROBE] = true;
}

static const char *put_probe(session *open, const stage *of, model *known)
{
    const put_outcome outcome = item_put(open, &of->of->items[PROBE]);

    stage_expect_probe(of, known);
    if (outcome.state != KVARVE_PUT_DURABLE && outcome.state != KVARVE_PUT_PRESENT) {
        return "after the recovery nothing can be put";
    }
    known->states[PROBE] = ITEM_SURE;
    bury(known);
    return NULL;
}

/* Open, compare, learn. */
static const char *look(stage *of, model *known, uint32_t flags, bool puts_probe)
{
    model_limits limits = of->of->limits;
    session open;
    model_view seen;
    const char *broken;

    limits.flags |= flags;
    if (session_open(&open, of->world, MODEL_FOLDER, &limits, NULL) != KVARVE_OK) {
        return "it does not open";
    }
    broken = model_check(&open, known, (flags & KVARVE_OPEN_REBUILD) != 0, &seen);
    if (broken == NULL) {
        model_learn(known, &seen);
        broken = puts_probe ? put_probe(&open, of, known) : NULL;
    }
    session_close(&open);
    return broken;
}

static const char *in_phase(const char *phase, const char *broken)
{
    static char text[160];

    if (broken == NULL) {
        return NULL;
    }
    (void)snprintf(text, sizeof text, "%s: %s", phase, broken);
    return text;
}

const char *stage_check(stage *of, model *known, uint64_t seed, bool is_rebuilt)
{
    const world_plan quiet = {
        .fault_step = WORLD_NEVER, .cut_change = WORLD_NEVER, .seed = seed + 1000};
    const char *broken = look(of, known, 0, true);

    if (broken != NULL) {
        return broken;
    }
    world_set_plan(of->world, &quiet);
    world_restart(of->world, &quiet);
    broken = look(of, known, 0, false);
    if (broken != NULL) {
        return in_phase("at the second open", broken);
    }
    if (is_rebuilt) {
        broken = look(of, known, KVARVE_OPEN_REBUILD, false);
        broken = broken == NULL ? look(of, known, 0, false) : broken;
    }
    return in_phase("after a rebuild", broken);
}

const char *stage_recover(stage *of)
{
    const char *broken = NULL;
    session open;

    if (session_open(&open, of->world, MODEL_FOLDER, &of->of->limits, NULL) != KVARVE_OK) {
        return NULL;
    }
    (void)item_put(&open, &of->of->items[PROBE]);
    for (size_t i = 0; i < of->of->item_count && broken == NULL; i++) {
        bool is_found = false;

        if (item_read(&open, &of->of->items[i], true, &is_found) == READ_WRONG) {
            broken = "wrong bytes (P1)";
        }
    }
    session_close(&open);
    return broken;
}
