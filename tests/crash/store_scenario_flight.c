/*
 * store_scenario_flight.c - the steps of puts in flight, and what they mean to the model.
 *
 * Invariant
 *   I1  A put that ended before it was READY has left nothing: its item is to the model what it was
 *       before, unless another put of it is in flight.
 */
#include "crash/store_scenario_private.h"

#include <string.h>

/* From here on the put may be published as this item. */
static void know_item(run *at, run_lane *lane, uint8_t item)
{
    const model *known = &at->result->known;

    lane->item = item;
    lane->is_open = false;
    lane->state_before = known->states[item];
    lane->was_put_before = known->was_put[item];
    lane->was_buried_before = known->is_buried[item];
    lane->was_dropped_before = known->is_dropped[item];
    memcpy(lane->says, known->is_dropped, sizeof lane->says);
    run_before_put(at, item);
}

static void begin(run *at, run_lane *lane, const scenario_step *step)
{
    const bool is_open = step->kind == STEP_OPEN;
    kvarve_status status;

    if (!is_open) {
        know_item(at, lane, step->at);
    }
    lane->is_open = is_open;
    lane->flight.lane = step->count;
    status = flight_begin(&at->open, &lane->flight, &at->of->items[step->at], is_open);
    run_expect_quiet(at, status == KVARVE_OK, "a put does not begin");
}

static void close_boundary(run *at, run_lane *lane, uint8_t item)
{
    kvarve_status status;

    if (lane->flight.put == NULL) {
        return;
    }
    know_item(at, lane, item);
    status = flight_close(&lane->flight, &at->of->items[item]);
    run_expect_quiet(at, status == KVARVE_OK, "an open put does not close");
}

static bool is_also_in_flight(const run *at, const run_lane *lane)
{
    for (size_t i = 0; i < SCENARIO_LANES; i++) {
        const run_lane *other = &at->lanes[i];

        if (other != lane && other->flight.put != NULL && !other->is_open &&
            other->item == lane->item) {
            return true;
        }
    }
    return false;
}

static void settle(run *at, run_lane *lane)
{
    put_outcome outcome;

    if (lane->flight.put == NULL) {
        return;
    }
    outcome = flight_settle(&lane->flight);
    run_expect_quiet(at, outcome.state == KVARVE_PUT_DURABLE || outcome.state == KVARVE_PUT_PRESENT,
                     "a put in flight did not become durable");
    run_after_put(at, lane->item, &outcome, lane->says);
}

/* It was given up before anything of it could be found. */
static bool has_left_nothing(const put_outcome *outcome)
{
    return outcome->state < KVARVE_PUT_READY || (outcome->state == KVARVE_PUT_ABORTED &&
                                                 (outcome->refusal == KVARVE_REFUSED_CALLER ||
                                                  outcome->refusal == KVARVE_REFUSED_RANK_FAILED));
}

static void stop(run *at, run_lane *lane, flight_end how)
{
    model *known = &at->result->known;
    put_outcome outcome;
    bool is_gone;

    if (lane->flight.put == NULL) {
        return;
    }
    outcome = flight_stop(&lane->flight, how);
    is_gone = has_left_nothing(&outcome);
    run_expect_quiet(at, is_gone, "a put can not be given up");
    if (!is_gone || lane->is_open || run_is_cut(at) || is_also_in_flight(at, lane)) {
        return;
    }
    known->states[lane->item] = lane->state_before; /* I1 */
    known->was_put[lane->item] = lane->was_put_before;
    known->is_buried[lane->item] = lane->was_buried_before;
    known->is_dropped[lane->item] = lane->was_dropped_before;
}

static void extend(run *at, run_lane *lane, uint32_t tokens)
{
    if (lane->flight.put != NULL) {
        const kvarve_status status = flight_extend(&lane->flight, tokens);

        run_expect_quiet(at, status == KVARVE_OK, "an open put is not extended");
    }
}

void run_flight_step(run *at, const scenario_step *step)
{
    run_lane *lane = &at->lanes[step->count];

    if (step->kind == STEP_BEGIN || step->kind == STEP_OPEN) {
        begin(at, lane, step);
    } else if (step->kind == STEP_EXTEND) {
        extend(at, lane, step->at);
    } else if (step->kind == STEP_CLOSE) {
        close_boundary(at, lane, step->at);
    } else if (step->kind == STEP_FILL) {
        flight_fill(&lane->flight, step->at);
    } else if (step->kind == STEP_SUBMIT) {
        flight_submit(&lane->flight);
    } else if (step->kind == STEP_READY) {
        flight_wait_ready(&lane->flight);
    } else if (step->kind == STEP_SETTLE) {
        settle(at, lane);
    } else {
        stop(at, lane,
             step->kind == STEP_ABORT  ? FLIGHT_ABORT
             : step->kind == STEP_FAIL ? FLIGHT_FAIL
                                       : FLIGHT_LEAVE);
    }
}

void run_release_flights(run *at)
{
    for (size_t i = 0; i < SCENARIO_LANES; i++) {
        flight_release(&at->lanes[i].flight);
    }
}
