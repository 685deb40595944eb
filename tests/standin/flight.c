/*
 * flight.c - puts in flight: begun by the scheduler, filled by the ranks, ended by events.
 *
 *     begin -> PRESENT                                            over at once
 *           -> WAITING -> (STAGED) -> ranks asked -> SOURCE_RELEASED by rank -> DURABLE | ABORTED
 *
 * Invariants
 *   I1  a block that a put may still read has a user more: the put's;
 *   I2  a rank is asked only while there is room: one that found none is asked again when STAGED
 *       comes.
 *
 * Threads: of the scheduler. Ownership: a flight's handle is in engine->handles.puts, at its place.
 */
#include <poll.h>

#include "standin/engine_private.h"

#define EVENT_TIMEOUT_MS 60000

static bool is_open(const flight *at)
{
    return at->cookie != 0;
}

static uint32_t count_open(const standin_engine *engine)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < STANDIN_FLIGHTS_MAX; i++) {
        count += is_open(&engine->flights[i]);
    }
    return count;
}

static flight *find_flight(standin_engine *engine, uint64_t cookie)
{
    flight *found = NULL;

    for (uint32_t i = 0; i < STANDIN_FLIGHTS_MAX; i++) {
        if (engine->flights[i].cookie == cookie && cookie != 0) {
            found = &engine->flights[i];
        }
    }
    return found;
}

static kvarve_put **put_of(standin_engine *engine, const flight *at)
{
    return &engine->handles.puts[at - engine->flights];
}

/* --- sources --- */

/* I1: one user more, or one less, for each block that the request names. */
static void visit_sources(standin_engine *engine, const flight *at,
                          void (*visit)(block_pool *pool, uint32_t id))
{
    const uint32_t *ids = at->request.words;

    for (uint32_t g = 0; g < engine->shape.group_count; g++) {
        for (uint32_t i = 0; i < at->request.request.id_counts[g]; i++) {
            visit(&engine->pools[g], ids[i]);
        }
        ids += at->request.request.id_counts[g];
    }
}

static void let_go_of_sources(standin_engine *engine, flight *at)
{
    if (at->has_sources) {
        visit_sources(engine, at, pool_drop);
    }
    at->has_sources = false;
}

static void end_flight(standin_engine *engine, flight *at)
{
    kvarve_put_release(put_of(engine, at)); /* when it is back no copy reads a source any more */
    *put_of(engine, at) = NULL;
    let_go_of_sources(engine, at);
    at->cookie = 0;
}

/* --- ranks --- */

/* What a rank answered to being asked for its part. */
static void take_answer(standin_engine *engine, flight *at, uint32_t rank)
{
    const link_reply *reply = &engine->replies[rank];

    if (reply->status == KVARVE_BUSY) {
        at->ranks_waiting |= 1u << rank; /* I2 */
    } else if (reply->status != KVARVE_OK && reply->status != KVARVE_MISS) {
        if (!at->is_given_up) {
            engine_note_fault(engine, "put of a rank", (kvarve_status)reply->status, reply->text);
        }
        kvarve_put_abort(*put_of(engine, at));
    }
}

static void ask_rank(standin_engine *engine, flight *at, uint32_t rank)
{
    engine->counts.copies_asked++;
    at->ranks_waiting &= ~(1u << rank);
    if (engine_ask(engine, rank, &at->request)) {
        take_answer(engine, at, rank);
    }
}

static void ask_all_ranks(standin_engine *engine, flight *at)
{
    if (!engine_ask_all(engine, &at->request)) {
        return;
    }
    for (uint32_t rank = 0; rank < engine->shape.ranks; rank++) {
        take_answer(engine, at, rank);
    }
}

/* --- events --- */

static void take_end(standin_engine *engine, flight *at, const kvarve_event *event)
{
    if (event->kind == KVARVE_EVENT_DURABLE) {
        engine->counts.puts_durable++;
    } else if (at->is_given_up) {
        engine->counts.puts_given_up++;
    } else {
        engine->counts.puts_refused++;
    }
    end_flight(engine, at);
}

static void take_event(standin_engine *engine, const kvarve_event *event)
{
    flight *at = find_flight(engine, event->cookie);
    const uint32_t all = (1u << engine->shape.ranks) - 1;

    if (at == NULL) {
        return; /* of a put that was known already: it ended when it began */
    }
    if (event->kind == KVARVE_EVENT_SOURCE_RELEASED) {
        at->ranks_done |= 1u << event->rank;
        if (at->ranks_done == all) {
            let_go_of_sources(engine, at);
        }
    } else if (event->kind == KVARVE_EVENT_COPY_REQUESTED) {
        if ((at->ranks_done & 1u << event->rank) != 0) {
            engine_note_fault(engine, "copy requested", KVARVE_INVALID, "its source was released");
        }
        ask_rank(engine, at, event->rank);
    } else if (event->kind == KVARVE_EVENT_STAGED) {
        for (uint32_t rank = 0; rank < engine->shape.ranks; rank++) {
            if ((at->ranks_waiting & 1u << rank) != 0) {
                ask_rank(engine, at, rank);
            }
        }
    } else if (event->kind == KVARVE_EVENT_DURABLE || event->kind == KVARVE_EVENT_ABORTED) {
        take_end(engine, at, event);
    }
}

bool flight_pump(standin_engine *engine, bool waits)
{
    struct pollfd one = {.events = POLLIN};
    kvarve_event event;
    kvarve_status status;
    bool has_any = false;

    if (engine->store == NULL) {
        return false;
    }
    one.fd = kvarve_event_fd(engine->store);
    for (;;) {
        while ((status = kvarve_next_event(engine->store, &event)) == KVARVE_OK) {
            take_event(engine, &event);
            has_any = true;
        }
        if (status != KVARVE_MISS) {
            engine_note_fault(engine, "events", status, "");
            return false;
        }
        if (has_any || !waits || poll(&one, 1, EVENT_TIMEOUT_MS) != 1) {
            return has_any;
        }
    }
}

/* No event came: what is in flight will not end. */
static void give_up_waiting(standin_engine *engine)
{
    engine_note_fault(engine, "waiting for events", KVARVE_BUSY, "none came");
    for (uint32_t i = 0; i < STANDIN_FLIGHTS_MAX; i++) {
        if (is_open(&engine->flights[i])) {
            end_flight(engine, &engine->flights[i]);
        }
    }
}

void flight_wait_sources(standin_engine *engine, uint64_t cookie)
{
    const flight *at = find_flight(engine, cookie);

    while (at != NULL && at->cookie == cookie && at->has_sources) {
        if (!flight_pump(engine, true)) {
            give_up_waiting(engine);
        }
    }
}

void flight_settle(standin_engine *engine, uint32_t count)
{
    while (count_open(engine) > count) {
        if (!flight_pump(engine, true)) {
            give_up_waiting(engine);
        }
    }
}

/* --- begin --- */

/* The request to the ranks: of a token group the blocks from the boundary's first page on, of a
 * state the block at `computed`; of an auxiliary another one, in which it is tied to its kind. */
static bool make_request(standin_engine *engine, uint32_t kind, uint64_t draft_tokens,
                         link_message *out)
{
    const sequence *of = &engine->sequence;

    message_begin(out, LINK_PUT);
    out->request.to = of->computed;
    out->request.draft_to = draft_tokens;
    out->request.checkpoint_kind = kind;
    for (uint32_t g = 0; g < engine->shape.group_count; g++) {
        const standin_group *group = &engine->shape.groups[g];
        const sequence_table *table = &of->tables[g];
        const uint64_t first = group_first_token(group, of->computed);
        const uint64_t skipped =
            group_is_state(group) ? 0 : (first - table->first_token) / group->block_tokens;
        uint32_t tied[2];

        if (group->page_class != KVARVE_CLASS_AUXILIARY) {
            message_table(out, g, first, table->ids + skipped, table->count - (uint32_t)skipped);
            continue;
        }
        tied[0] = table->ids[0];
        tied[1] = table->count > 0 ? sequence_take(engine, g) : BLOCK_NONE;
        message_table(out, g, 0, tied, table->count > 0 ? 2 : 0);
    }
    return !engine->is_over;
}

/* The flight has its blocks now; the request's own, of auxiliaries, are given over to it. */
static void hold_sources(standin_engine *engine, flight *at)
{
    const uint32_t *ids = at->request.words;

    visit_sources(engine, at, pool_hold);
    at->has_sources = true;
    for (uint32_t g = 0; g < engine->shape.group_count; g++) {
        const uint32_t count = at->request.request.id_counts[g];

        if (engine->shape.groups[g].page_class == KVARVE_CLASS_AUXILIARY && count == 2) {
            pool_drop(&engine->pools[g], ids[1]);
        }
        ids += count;
    }
}

static kvarve_status begin_put(standin_engine *engine, const kvarve_prefix *prefix, uint32_t kind,
                               flight *at)
{
    kvarve_put_options options = KVARVE_PUT_OPTIONS_INIT;
    kvarve_error err = {.status = KVARVE_OK};
    kvarve_status status;
    /* Nobody drafts within instructions: their checkpoints go without the drafter's half. */
    const bool has_half = shape_has_optional(&engine->shape) && kind != KVARVE_KIND_INSTRUCTION;
    const bool is_bare = shape_has_optional(&engine->shape) && !has_half;

    options.tokens = engine->sequence.computed;
    options.draft_tokens = is_bare ? 0 : engine->sequence.drafted;
    options.kind = kind;
    options.flags = is_bare ? KVARVE_PUT_NO_OPTIONAL : 0;
    options.cookie = ++engine->cookie;
    if (!make_request(engine, kind, options.draft_tokens, &at->request)) {
        return KVARVE_NO_MEMORY;
    }
    at->request.request.handle = (uint64_t)(at - engine->flights);
    at->cookie = options.cookie;
    at->ranks_done = 0;
    at->ranks_waiting = 0;
    at->is_given_up = false;
    hold_sources(engine, at);
    status = kvarve_put_begin(engine->handles.space, prefix, &options, put_of(engine, at), &err);
    if (status != KVARVE_OK) {
        engine_note_fault(engine, "begin of a put", status, err.text);
    }
    return status;
}

bool flight_begin(standin_engine *engine, const kvarve_prefix *prefix, uint32_t kind)
{
    flight *at = NULL;
    uint32_t state;

    if (engine->store == NULL || engine->counts.faults > 0) {
        return true;
    }
    flight_settle(engine, STANDIN_FLIGHTS_MAX - 1);
    for (uint32_t i = 0; i < STANDIN_FLIGHTS_MAX; i++) {
        at = is_open(&engine->flights[i]) ? at : &engine->flights[i];
    }
    engine->counts.puts++;
    if (at == NULL || begin_put(engine, prefix, kind, at) != KVARVE_OK) {
        if (at != NULL && is_open(at)) {
            end_flight(engine, at);
        }
        return !engine->is_over;
    }
    state = kvarve_put_status(*put_of(engine, at));
    if (state == KVARVE_PUT_PRESENT || state == KVARVE_PUT_ABORTED) {
        engine->counts.puts_present += state == KVARVE_PUT_PRESENT;
        engine->counts.puts_refused += state == KVARVE_PUT_ABORTED;
        end_flight(engine, at);
        return true;
    }
    if (shape_is_written_behind(&engine->shape)) {
        engine->sequence.behind = at->cookie;
    }
    ask_all_ranks(engine, at); /* without room they say so, and are asked again */
    at->is_given_up =
        engine->options.abort_every != 0 && engine->counts.puts % engine->options.abort_every == 0;
    if (at->is_given_up) {
        kvarve_put_abort(*put_of(engine, at));
    }
    return !engine->is_over;
}
