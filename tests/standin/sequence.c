/*
 * sequence.c - the sequence that is served now: its blocks, and what is computed into them.
 *
 * Invariants
 *   I1  a state is never computed in place: a put may still read the one before;
 *   I2  of a window group only blocks of the last window are held;
 *   I3  what was guessed stands behind `computed`, in rows that are overwritten and in states that
 *       are dropped, unless the guess comes true.
 *
 * Threads: of the scheduler.
 */
#include <string.h>

#include "standin/digest.h"
#include "standin/engine_private.h"
#include "standin/model.h"

#define CHUNK_TOKENS 48u /* computed at once */
#define DRAFT_LAG    4u  /* tokens that the drafter is behind within a chunk */

static const standin_group *group_of(const standin_engine *engine, uint32_t group)
{
    return &engine->shape.groups[group];
}

/* Is a state group's range the drafter's? */
static bool is_drafters(const standin_engine *engine, uint32_t group)
{
    return group_of(engine, group)->draft_layers == group_of(engine, group)->layers;
}

void sequence_begin(standin_engine *engine, uint32_t *tokens)
{
    engine->sequence = (sequence){.computed = 0};
    engine->sequence.tokens = tokens;
}

void sequence_drop_guesses(standin_engine *engine)
{
    sequence *at = &engine->sequence;

    for (uint32_t i = 0; i < at->guesses; i++) {
        for (uint32_t g = 0; g < engine->shape.group_count; g++) {
            pool_drop(&engine->pools[g], at->guessed_states[i][g]);
        }
    }
    engine->counts.guesses_lost += at->guesses;
    at->guesses = 0;
}

void sequence_end(standin_engine *engine)
{
    sequence_drop_guesses(engine);
    for (uint32_t g = 0; g < engine->shape.group_count; g++) {
        sequence_table *table = &engine->sequence.tables[g];

        for (uint32_t i = 0; i < table->count; i++) {
            pool_drop(&engine->pools[g], table->ids[i]);
        }
        *table = (sequence_table){.count = 0};
    }
    engine->sequence.computed = 0;
    engine->sequence.drafted = 0;
}

uint32_t sequence_take(standin_engine *engine, uint32_t group)
{
    uint32_t id = pool_take(&engine->pools[group]);

    if (id == BLOCK_NONE) {
        flight_settle(engine, 0);
        id = pool_take(&engine->pools[group]);
    }
    engine->is_over = engine->is_over || id == BLOCK_NONE;
    return id;
}

bool sequence_reserve(standin_engine *engine, uint64_t to)
{
    for (uint32_t g = 0; g < engine->shape.group_count && !engine->is_over; g++) {
        const standin_group *group = group_of(engine, g);
        sequence_table *table = &engine->sequence.tables[g];

        if (group_is_state(group)) {
            continue;
        }
        while (table->first_token + (uint64_t)table->count * group->block_tokens < to &&
               !engine->is_over) {
            table->ids[table->count] = sequence_take(engine, g);
            table->count += !engine->is_over;
        }
    }
    return !engine->is_over;
}

/* I2 */
static void trim_windows(standin_engine *engine)
{
    for (uint32_t g = 0; g < engine->shape.group_count; g++) {
        const standin_group *group = group_of(engine, g);
        sequence_table *table = &engine->sequence.tables[g];
        uint64_t first;
        uint32_t gone;

        if (group->page_class != KVARVE_CLASS_WINDOW) {
            continue;
        }
        first = group_first_token(group, engine->sequence.computed);
        gone = (uint32_t)((first - table->first_token) / group->block_tokens);
        for (uint32_t i = 0; i < gone; i++) {
            pool_drop(&engine->pools[g], table->ids[i]);
        }
        memmove(table->ids, table->ids + gone, (table->count - gone) * sizeof table->ids[0]);
        table->count -= gone;
        table->first_token = first;
    }
}

void sequence_message(standin_engine *engine, link_kind kind)
{
    link_message *message = &engine->message;

    message_begin(message, kind);
    for (uint32_t g = 0; g < engine->shape.group_count; g++) {
        const sequence_table *table = &engine->sequence.tables[g];

        message_table(message, g, table->first_token, table->ids, table->count);
    }
    message->request.to = engine->sequence.computed;
    message->request.draft_to = engine->sequence.drafted;
}

/* --- computing --- */

/* A range of tokens, and by state group the blocks of the state before it and after it. */
typedef struct step {
    uint64_t from;
    uint64_t to;
    uint64_t draft_from;
    uint64_t draft_to;
    uint32_t before[STANDIN_GROUPS_MAX];
    uint32_t after[STANDIN_GROUPS_MAX];
} step;

/* I1: take a block for each state that the step changes. */
static bool take_states(standin_engine *engine, step *out)
{
    for (uint32_t g = 0; g < engine->shape.group_count; g++) {
        const bool is_draft = is_drafters(engine, g);

        out->after[g] = BLOCK_NONE;
        if (!group_is_state(group_of(engine, g)) ||
            (is_draft ? out->draft_from == out->draft_to : out->from == out->to)) {
            continue;
        }
        out->after[g] = sequence_take(engine, g);
        if (out->before[g] == BLOCK_NONE) {
            out->before[g] = out->after[g];
        }
    }
    return !engine->is_over;
}

static bool compute_step(standin_engine *engine, const step *at)
{
    link_message *message = &engine->message;
    const bool has_draft = at->draft_from < at->draft_to;
    const uint64_t first = has_draft && at->draft_from < at->from ? at->draft_from : at->from;
    const uint64_t end = has_draft && at->draft_to > at->to ? at->draft_to : at->to;

    message_begin(message, LINK_COMPUTE);
    message->request.from = at->from;
    message->request.to = at->to;
    message->request.draft_from = at->draft_from;
    message->request.draft_to = at->draft_to;
    for (uint32_t g = 0; g < engine->shape.group_count; g++) {
        const sequence_table *table = &engine->sequence.tables[g];
        const uint32_t states[2] = {at->before[g], at->after[g]};

        if (group_is_state(group_of(engine, g))) {
            message_table(message, g, 0, states, at->after[g] == BLOCK_NONE ? 0 : 2);
        } else {
            message_table(message, g, table->first_token, table->ids, table->count);
        }
    }
    message_tokens(message, first, engine->sequence.tokens + first, end - first);
    return engine_ask_all(engine, message);
}

/* The states after a step are the sequence's now. */
static void keep_states(standin_engine *engine, const uint32_t *after)
{
    for (uint32_t g = 0; g < engine->shape.group_count; g++) {
        sequence_table *table = &engine->sequence.tables[g];

        if (group_is_state(group_of(engine, g)) && after[g] != BLOCK_NONE) {
            if (table->count > 0) {
                pool_drop(&engine->pools[g], table->ids[0]);
            }
            table->ids[0] = after[g];
            table->count = 1;
        }
    }
}

static void states_now(const standin_engine *engine, uint32_t *out)
{
    for (uint32_t g = 0; g < engine->shape.group_count; g++) {
        const sequence_table *table = &engine->sequence.tables[g];

        out[g] =
            group_is_state(group_of(engine, g)) && table->count > 0 ? table->ids[0] : BLOCK_NONE;
    }
}

/* A put at `computed` may be reading what is written next. */
static void wait_behind(standin_engine *engine)
{
    if (engine->sequence.behind != 0) {
        flight_wait_sources(engine, engine->sequence.behind);
        engine->sequence.behind = 0;
    }
}

/* One chunk of both. */
static bool compute_chunk(standin_engine *engine, uint64_t to, uint64_t draft_to)
{
    sequence *at = &engine->sequence;
    step next = {.from = at->computed,
                 .to = to,
                 .draft_from = at->drafted,
                 .draft_to = draft_to > at->drafted ? draft_to : at->drafted};

    wait_behind(engine);
    states_now(engine, next.before);
    if (!sequence_reserve(engine, to) || !take_states(engine, &next) ||
        !compute_step(engine, &next)) {
        return false;
    }
    keep_states(engine, next.after);
    at->computed = next.to;
    at->drafted = next.draft_to;
    trim_windows(engine);
    return true;
}

bool sequence_compute(standin_engine *engine, uint64_t to, uint64_t draft_to)
{
    sequence *at = &engine->sequence;
    bool goes_on = true;

    sequence_drop_guesses(engine);
    while (goes_on && (at->computed < to || at->drafted < draft_to)) {
        const uint64_t end = to - at->computed > CHUNK_TOKENS ? at->computed + CHUNK_TOKENS : to;
        const uint64_t behind = end > DRAFT_LAG ? end - DRAFT_LAG : 0;

        goes_on = compute_chunk(engine, end, end < to && behind < draft_to ? behind : draft_to);
        (void)flight_pump(engine, false);
    }
    return goes_on;
}

/* --- guessing --- */

bool sequence_guess(standin_engine *engine)
{
    sequence *at = &engine->sequence;
    step next = {.from = at->computed};
    bool goes_on;

    wait_behind(engine);
    goes_on = sequence_reserve(engine, at->computed + GUESSES);
    states_now(engine, next.before);
    for (uint64_t i = at->computed; i < at->computed + GUESSES; i++) {
        at->tokens[i] = model_guess(at->tokens[i - 1]);
    }
    for (uint32_t i = 0; i < GUESSES && goes_on; i++) {
        next.from = at->computed + i;
        next.to = next.from + 1;
        goes_on = take_states(engine, &next) && compute_step(engine, &next);
        memcpy(at->guessed_states[i], next.after, sizeof next.after);
        at->guesses = i + 1;
        for (uint32_t g = 0; g < engine->shape.group_count; g++) {
            next.before[g] = next.after[g] == BLOCK_NONE ? next.before[g] : next.after[g];
        }
    }
    return goes_on;
}

bool sequence_accept(standin_engine *engine)
{
    sequence *at = &engine->sequence;
    const uint64_t draft_to = engine->shape.drafter == 0 ? 0 : at->computed;

    keep_states(engine, at->guessed_states[0]);
    at->computed++;
    at->guesses--;
    memmove(at->guessed_states[0], at->guessed_states[1],
            at->guesses * sizeof at->guessed_states[0]);
    engine->counts.guesses_kept++;
    /* The drafter follows, one token behind. */
    return draft_to <= at->drafted || compute_chunk(engine, at->computed, draft_to);
}

bool sequence_read(standin_engine *engine, uint64_t *out)
{
    sequence_message(engine, LINK_READ);
    if (!engine_ask_all(engine, &engine->message)) {
        return false;
    }
    *out = 0;
    for (uint32_t rank = 0; rank < engine->shape.ranks; rank++) {
        *out = digest_two(*out, engine->replies[rank].value);
    }
    return true;
}
