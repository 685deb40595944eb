/*
 * restore.c - find the longest stored boundary and have the ranks restore it.
 *
 * What does not come back whole is no hit: blocks go back, and the next shorter one is tried.
 * Threads: of the scheduler.
 */
#include "standin/digest.h"
#include "standin/engine_private.h"

#define LOAD_TIMEOUT_MS 30000u
#define TRIES_MAX       4u

/* Do the pages that come have the drafter's rows and states? */
static bool has_draft(const standin_engine *engine, const kvarve_boundary *found)
{
    return !shape_has_optional(&engine->shape) || (found->flags & KVARVE_BOUNDARY_DRAFT) != 0;
}

/* Blocks for all that a boundary has. */
static bool take_tables(standin_engine *engine, const kvarve_boundary *found)
{
    for (uint32_t g = 0; g < engine->shape.group_count && !engine->is_over; g++) {
        const standin_group *group = &engine->shape.groups[g];
        sequence_table *table = &engine->sequence.tables[g];
        uint64_t tokens = found->tokens;

        if (group_is_optional(group) && !has_draft(engine, found)) {
            continue;
        }
        table->first_token = group_is_state(group) ? 0 : group_first_token(group, tokens);
        tokens = group_is_state(group) ? 1 : tokens - table->first_token;
        while ((uint64_t)table->count * (group_is_state(group) ? 1 : group->block_tokens) <
                   tokens &&
               !engine->is_over) {
            table->ids[table->count] = sequence_take(engine, g);
            table->count += !engine->is_over;
        }
    }
    return !engine->is_over;
}

static void break_restore(standin_engine *engine, const kvarve_boundary *found)
{
    const uint64_t drafted = found->draft_tokens;
    const uint64_t last = (drafted > 0 ? drafted : found->tokens) - 1;
    link_message *message = &engine->message;
    const bool is_whole = engine->sequence.drafted > 0 || engine->shape.drafter == 0;

    if (engine->options.broken == STANDIN_BREAK_NONE || !is_whole) {
        return;
    }
    sequence_message(engine, LINK_BREAK);
    message->request.how = engine->options.broken;
    message->request.group = engine->options.broken_group;
    message->request.checkpoint_kind = found->kind;
    message->request.where = engine->options.broken_where;
    message->request.draft_from = drafted;
    message_tokens(message, last, engine->sequence.tokens + last, found->tokens - last);
    (void)engine_ask(engine, engine->shape.ranks - 1, message);
    engine->counts.broken++;
}

/* All ranks at once. KVARVE_MISS: one of them did not get all. */
static kvarve_status restore_ranks(standin_engine *engine, const kvarve_boundary *found)
{
    kvarve_status status = KVARVE_OK;

    if (!take_tables(engine, found)) {
        return KVARVE_NO_MEMORY;
    }
    sequence_message(engine, LINK_RESTORE);
    engine->message.request.to = found->tokens;
    engine->message.request.checkpoint_kind = found->kind;
    engine->message.request.draft_from = found->draft_tokens;
    engine->message.request.seed = digest_two(engine->options.seed, engine->counts.hits);
    if (!engine_ask_all(engine, &engine->message)) {
        return KVARVE_UNAVAILABLE;
    }
    for (uint32_t rank = 0; rank < engine->shape.ranks; rank++) {
        const link_reply *reply = &engine->replies[rank];

        if (reply->status != KVARVE_OK && reply->status != KVARVE_MISS) {
            engine_note_fault(engine, "restore of a rank", (kvarve_status)reply->status,
                              reply->text);
        }
        status = reply->status != KVARVE_OK ? KVARVE_MISS : status;
    }
    return status;
}

/* KVARVE_BUSY: a page is damaged, and a shorter boundary may do. KVARVE_MISS: there was no room, or
 * no answer in time; a shorter one would not do better. */
static kvarve_status restore_found(standin_engine *engine, const kvarve_boundary *found)
{
    kvarve_error err = {.status = KVARVE_OK};
    kvarve_miss miss = {.reason = KVARVE_MISS_NOT};
    kvarve_status status = kvarve_lease_wait(engine->handles.lease, LOAD_TIMEOUT_MS, &miss, &err);

    if (status == KVARVE_OK) {
        status = restore_ranks(engine, found);
        miss.reason = KVARVE_MISS_DAMAGED; /* what a copy that is no hit means */
    } else if (status != KVARVE_MISS && status != KVARVE_BUSY) {
        engine_note_fault(engine, "load", status, err.text);
    }
    if (status != KVARVE_OK) {
        const bool is_worth_another = status == KVARVE_MISS && miss.reason == KVARVE_MISS_DAMAGED;

        sequence_end(engine);
        return is_worth_another ? KVARVE_BUSY : KVARVE_MISS;
    }
    engine->sequence.computed = found->tokens;
    engine->sequence.drafted = has_draft(engine, found) ? found->draft_tokens : 0;
    return KVARVE_OK;
}

/* KVARVE_OK: restored; KVARVE_BUSY: worth another try; KVARVE_MISS: nothing is found or comes. */
static kvarve_status try_restore(standin_engine *engine, const kvarve_prefix *prefix,
                                 uint64_t length, kvarve_boundary *out)
{
    kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
    kvarve_error err = {.status = KVARVE_OK};
    kvarve_status status;
    size_t count = 0;

    options.max_tokens = length - 1; /* the last token is computed for its logits, and only once */
    options.preferred_kind = (uint32_t)(engine->turn_seed % 3);
    options.lease = KVARVE_LEASE_LOAD;
    status = kvarve_find(engine->handles.space, prefix, &options, out, 1, &count,
                         &engine->handles.lease, NULL, &err);
    if (status != KVARVE_OK) {
        if (status != KVARVE_MISS) {
            engine_note_fault(engine, "find", status, err.text);
        }
        return KVARVE_MISS;
    }
    status = restore_found(engine, out);
    kvarve_lease_release(&engine->handles.lease);
    engine->counts.loads_failed += status != KVARVE_OK;
    return status;
}

bool restore_longest(standin_engine *engine, const kvarve_prefix *prefix, uint64_t length,
                     uint32_t *out_kind)
{
    kvarve_boundary found = {.tokens = 0};
    kvarve_status status = KVARVE_BUSY;

    *out_kind = 0;
    if (engine->store == NULL || engine->counts.faults > 0 || length < 2) {
        return true;
    }
    for (uint32_t i = 0; i < TRIES_MAX && status == KVARVE_BUSY && !engine->is_over; i++) {
        status = try_restore(engine, prefix, length, &found);
    }
    if (status != KVARVE_OK) {
        engine->counts.misses++;
        return !engine->is_over;
    }
    engine->counts.hits++;
    engine->counts.hits_without_draft += !has_draft(engine, &found);
    *out_kind = found.kind;
    break_restore(engine, &found);
    return !engine->is_over;
}
