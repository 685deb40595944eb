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

#include "crash/store_scenario_private.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

/* --- a run --- */

bool run_is_cut(const run *at)
{
    return world_observe(at->world).is_cut;
}

void run_expect(run *at, bool is_right, const char *broken)
{
    if (!is_right && at->result->broken == NULL && !run_is_cut(at)) {
        at->result->broken = broken;
    }
}

void run_expect_quiet(run *at, bool is_right, const char *broken)
{
    if (at->is_quiet) {
        run_expect(at, is_right, broken);
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

static void see_evictions(run *at)
{
    model *known = &at->result->known;

    for (size_t i = 0; i < known->count; i++) {
        kvarve_boundary boundary = {0};

        if (known->states[i] == ITEM_PERHAPS &&
            item_find(&at->open, &known->items[i], KVARVE_LEASE_NONE, &boundary, NULL, NULL) ==
                KVARVE_OK &&
            boundary.state == KVARVE_PUT_DURABLE && !run_is_cut(at)) {
            known->states[i] = ITEM_SURE;
        }
    }
}

/* Take notice of what was pushed out since the last look. */
static void follow_evictions(run *at)
{
    const uint64_t evictions = count_evictions(&at->open);

    if (evictions > at->evictions) {
        doubt_all(&at->result->known);
        at->result->evictions += evictions - at->evictions;
        at->evictions = evictions;
        see_evictions(at);
    }
}

void run_before_put(run *at, size_t item)
{
    model *known = &at->result->known;

    follow_evictions(at);
    if (known->states[item] == ITEM_ABSENT) {
        known->states[item] = ITEM_PERHAPS;
    }
    known->was_put[item] = true;
    known->is_buried[item] = false;
    known->is_dropped[item] = false;
    for (size_t i = 0; i < SCENARIO_LANES; i++) {
        at->lanes[i].says[item] = false;
    }
}

/* What was dropped is said by a record now, or has no record any more. */
static void bury(model *known, const bool *says)
{
    for (size_t i = 0; i < known->count; i++) {
        known->is_buried[i] =
            known->is_buried[i] || (known->is_dropped[i] && (says == NULL || says[i]));
    }
}

void run_after_put(run *at, size_t item, const put_outcome *outcome, const bool *says)
{
    model *known = &at->result->known;

    follow_evictions(at);
    if (run_is_cut(at)) {
        return;
    }
    if (outcome->state == KVARVE_PUT_DURABLE || outcome->state == KVARVE_PUT_PRESENT) {
        known->states[item] = ITEM_SURE;
    } else {
        at->result->refused++;
    }
    if (outcome->state == KVARVE_PUT_DURABLE) {
        bury(known, says);
    }
}

static void run_put(run *at, size_t item)
{
    put_outcome outcome;

    run_before_put(at, item);
    outcome = item_put(&at->open, &at->of->items[item]);
    run_expect_quiet(at, outcome.state == KVARVE_PUT_DURABLE, "a put did not become durable");
    run_after_put(at, item, &outcome, NULL);
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
    run_expect_quiet(at, outcome.state == KVARVE_PUT_PRESENT, "known content is not present");
    run_expect(at,
               outcome.state != KVARVE_PUT_PRESENT || world_observe(at->world).changes == changes,
               "a replay changed the disk (P3, D4)");
}

static void run_put_many(run *at, size_t item, size_t count)
{
    put_outcome outcomes[4] = {0};
    kvarve_status status;

    for (size_t i = 0; i < count; i++) {
        run_before_put(at, item + i);
    }
    status = items_put_many(&at->open, &at->of->items[item], count, outcomes);
    run_expect_quiet(at, status == KVARVE_OK, "put_many");
    for (size_t i = 0; i < count; i++) {
        run_expect_quiet(
            at, outcomes[i].state >= KVARVE_PUT_DURABLE && outcomes[i].state != KVARVE_PUT_ABORTED,
            "one of many did not become durable");
        run_after_put(at, item + i, &outcomes[i], NULL);
    }
}

static void run_drop(run *at, size_t item)
{
    model *known = &at->result->known;
    kvarve_status status;

    known->states[item] = known->states[item] == ITEM_SURE ? ITEM_PERHAPS : known->states[item];
    status = item_drop(&at->open, &at->of->items[item]);
    if (!run_is_cut(at) && status == KVARVE_OK) {
        known->states[item] = ITEM_ABSENT;
        known->is_dropped[item] = true;
    }
    run_expect_quiet(at, status == KVARVE_OK, "drop");
}

void run_see_read(run *at, read_answer answer)
{
    /* What leaves is verified, also while the power goes. */
    if (answer == READ_WRONG && at->result->broken == NULL) {
        at->result->broken = "wrong bytes (P1)";
    }
    run_expect_quiet(at, answer == READ_RIGHT, "a durable checkpoint does not restore");
}

static void run_read(run *at, size_t item, bool is_loaded)
{
    bool is_found = false;

    run_see_read(at, item_read(&at->open, &at->of->items[item], is_loaded, &is_found));
}

static void run_copy(run *at, size_t item)
{
    bool is_found = false;

    run_see_read(at, item_restore_paged(&at->open, &at->of->items[item], &is_found));
}

static void run_derived(run *at, size_t item)
{
    const model_item *of = &at->of->items[item];

    for (uint32_t end = MODEL_DERIVED_SPAN; end <= of->tokens; end += MODEL_DERIVED_SPAN) {
        bool is_found = false;

        run_see_read(at, item_read_derived(&at->open, of, end, end / MODEL_DERIVED_SPAN % 2 == 0,
                                           &is_found));
    }
}

static bool run_reopen(run *at, uint32_t flags)
{
    model_limits limits = at->of->limits;
    kvarve_status status;

    limits.flags |= flags;
    run_release_flights(at);
    session_close(&at->open);
    at->evictions = 0;
    status = session_open(&at->open, at->world, MODEL_FOLDER, &limits, NULL);
    run_expect_quiet(at, status == KVARVE_OK, "it does not open again");
    return status == KVARVE_OK;
}

static void run_verify(run *at)
{
    kvarve_verify_result result;
    const kvarve_status status = kvarve_verify(at->open.store, NULL, NULL, &result, NULL);

    run_expect_quiet(at, status == KVARVE_OK, "verify");
}

static void run_trim(run *at)
{
    uint64_t bytes = 0;

    run_expect_quiet(at, kvarve_trim(at->open.store, &bytes, NULL) == KVARVE_OK, "trim");
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
    case STEP_DERIVED:
        run_derived(at, step->at);
        return true;
    case STEP_COPY:
        run_copy(at, step->at);
        return true;
    case STEP_BEGIN:
    case STEP_OPEN:
    case STEP_EXTEND:
    case STEP_CLOSE:
    case STEP_FILL:
    case STEP_SUBMIT:
    case STEP_READY:
    case STEP_SETTLE:
    case STEP_ABORT:
    case STEP_FAIL:
    case STEP_LEAVE:
        run_flight_step(at, step);
        return true;
    case STEP_END:
    default:
        return false;
    }
}

/* Of puts and leases that are over nothing is left (P5). */
static void expect_nothing_held(run *at)
{
    kvarve_statistics statistics = KVARVE_STATISTICS_INIT;
    const bool is_known = kvarve_statistics_get(at->open.store, &statistics, NULL) == KVARVE_OK;

    run_expect_quiet(at, is_known && statistics.puts_open == 0, "a put is left (P5)");
    run_expect_quiet(at, is_known && statistics.leases_open == 0, "a lease is left (P5)");
}

/* In a quiet run the open store is as the model says, not only the one that is opened again. */
static void expect_model(run *at)
{
    model_view seen;
    const char *broken =
        at->is_quiet ? model_check(&at->open, &at->result->known, false, &seen) : NULL;

    run_expect(at, broken == NULL, broken);
}

static void run_steps(run *at, const scenario_step *steps)
{
    const kvarve_status status =
        session_open(&at->open, at->world, MODEL_FOLDER, &at->of->limits, NULL);
    bool is_open = status == KVARVE_OK;

    run_expect_quiet(at, is_open, "it does not open");
    for (size_t i = 0; i < SCENARIO_STEPS_MAX && steps[i].kind != STEP_END && is_open; i++) {
        is_open = run_step(at, &steps[i]);
        at->result->steps_done += !run_is_cut(at);
    }
    run_release_flights(at);
    if (is_open) {
        expect_nothing_held(at);
        expect_model(at);
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
    bury(known, NULL);
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
