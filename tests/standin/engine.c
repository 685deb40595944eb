/*
 * engine.c - the scheduler's turns, and its ranks.
 *
 * Invariants
 *   I1  an answer is chosen from what the ranks read in their memory, and from nothing else;
 *   I2  a fault of the store's ends its use, never the engine: what follows is computed.
 *
 * Threads: the caller's is the scheduler; one a rank. Ownership: as engine.h.
 */
#include "standin/engine.h"

#include <stdio.h>
#include <string.h>

#include "standin/digest.h"
#include "standin/engine_private.h"
#include "standin/model.h"

/* --- messages --- */

void engine_note_fault(standin_engine *engine, const char *what, kvarve_status status,
                       const char *text)
{
    if (engine->counts.faults++ == 0) {
        (void)snprintf(engine->fault, sizeof engine->fault, "%s: %s: %s", what,
                       kvarve_status_text(status), text);
    }
}

void message_begin(link_message *out, link_kind kind)
{
    out->request = (link_request){.kind = kind};
}

static uint32_t words_used(const link_message *message)
{
    uint32_t count = message->request.token_count;

    for (uint32_t g = 0; g < STANDIN_GROUPS_MAX; g++) {
        count += message->request.id_counts[g];
    }
    return count;
}

void message_table(link_message *message, uint32_t group, uint64_t first_token, const uint32_t *ids,
                   uint32_t count)
{
    memcpy(message->words + words_used(message), ids, count * sizeof *ids);
    message->request.first_tokens[group] = first_token;
    message->request.id_counts[group] = count;
}

void message_tokens(link_message *message, uint64_t first, const uint32_t *tokens, uint64_t count)
{
    memcpy(message->words + words_used(message), tokens, count * sizeof *tokens);
    message->request.token_first = first;
    message->request.token_count = (uint32_t)count;
}

bool engine_ask(standin_engine *engine, uint32_t rank, const link_message *message)
{
    const bool is_there = link_send_request(engine->links[rank], message) &&
                          link_take_reply(engine->links[rank], &engine->replies[rank]);

    engine->is_over = engine->is_over || !is_there;
    return is_there;
}

bool engine_ask_all(standin_engine *engine, const link_message *message)
{
    bool is_there = true;

    for (uint32_t rank = 0; rank < engine->shape.ranks; rank++) {
        is_there = link_send_request(engine->links[rank], message) && is_there;
    }
    for (uint32_t rank = 0; rank < engine->shape.ranks && is_there; rank++) {
        is_there = link_take_reply(engine->links[rank], &engine->replies[rank]);
    }
    engine->is_over = engine->is_over || !is_there;
    return is_there;
}

/* --- open --- */

static kvarve_status open_space(standin_engine *engine, kvarve_error *err)
{
    kvarve_namespace_options options = KVARVE_NAMESPACE_OPTIONS_INIT;
    kvarve_group groups[STANDIN_GROUPS_MAX];
    char identity[STANDIN_IDENTITY_MAX];
    char draft[STANDIN_IDENTITY_MAX];

    shape_describe(&engine->shape, groups);
    shape_identity(&engine->shape, identity);
    shape_draft_identity(&engine->shape, draft);
    options.identity_json = identity;
    options.draft_identity_json = shape_has_optional(&engine->shape) ? draft : NULL;
    options.groups = groups;
    options.group_count = engine->shape.group_count;
    options.rank_count = engine->shape.ranks;
    return kvarve_namespace_open(engine->store, &options, &engine->handles.space, err);
}

static kvarve_status open_store(standin_engine *engine, kvarve_error *err)
{
    kvarve_store_options options = KVARVE_STORE_OPTIONS_INIT;
    kvarve_status status;

    options.arena_bytes = engine->options.arena_bytes;
    options.segment_bytes = UINT64_C(1) << 20; /* several files, as a large store has */
    status = kvarve_open(engine->options.store, &options, &engine->store, err);
    return status == KVARVE_OK ? open_space(engine, err) : status;
}

static bool start_rank(standin_engine *engine, uint32_t rank, kvarve_error *err)
{
    int pair[2];
    standin_rank *of = &engine->ranks[rank];
    link_reply *reply = &engine->replies[rank];

    if (!link_make(pair)) {
        return false;
    }
    engine->links[rank] = pair[0];
    engine->rank_links[rank] = pair[1];
    *of = (standin_rank){.shape = &engine->shape,
                         .rank = rank,
                         .transfer = engine->options.transfer,
                         .link = pair[1],
                         .seed = digest_two(engine->options.seed, rank),
                         .handles = &engine->handles};
    if (pthread_create(&engine->threads[rank], NULL, rank_run, of) != 0) {
        return false;
    }
    engine->ranks_started++;
    if (!link_take_reply(pair[0], reply) || reply->status != KVARVE_OK) {
        memcpy(err->text, reply->text, sizeof err->text);
        return false;
    }
    return true;
}

/* Some faults are of states alone, one of auxiliaries. */
static bool can_break(const standin_engine *engine)
{
    const uint32_t group = engine->options.broken_group;
    const standin_break how = engine->options.broken;
    const uint32_t page_class = engine->shape.groups[group].page_class;

    return how == STANDIN_BREAK_NONE ||
           (group < engine->shape.group_count &&
            (how != STANDIN_BREAK_TWICE || page_class >= KVARVE_CLASS_ENDPOINT) &&
            (how != STANDIN_BREAK_TIE || page_class == KVARVE_CLASS_AUXILIARY));
}

static bool open_all(standin_engine *engine, kvarve_error *err)
{
    const standin_options *options = &engine->options;

    if (!shape_make(&engine->shape, options->layout, options->ranks, options->drafter)) {
        (void)snprintf(err->text, sizeof err->text,
                       "layout %s does not go with %u ranks and drafter %u", options->layout,
                       options->ranks, options->drafter);
        return false;
    }
    if (!can_break(engine)) {
        (void)snprintf(err->text, sizeof err->text, "group %u can not be broken in this way",
                       options->broken_group);
        return false;
    }
    for (uint32_t g = 0; g < engine->shape.group_count; g++) {
        pool_init(&engine->pools[g], group_block_count(&engine->shape.groups[g]),
                  digest_two(options->seed, g));
    }
    if (options->store != NULL && open_store(engine, err) != KVARVE_OK) {
        return false;
    }
    for (uint32_t rank = 0; rank < engine->shape.ranks; rank++) {
        if (!start_rank(engine, rank, err)) {
            return false;
        }
    }
    return true;
}

standin_engine *engine_open(const standin_options *options, char *out_text, size_t size)
{
    standin_engine *engine = standin_allocate(1, sizeof *engine);
    kvarve_error err = {.text = "no memory"};

    if (engine != NULL) {
        engine->options = *options;
        for (uint32_t rank = 0; rank < STANDIN_RANKS_MAX; rank++) {
            engine->links[rank] = -1;
            engine->rank_links[rank] = -1;
        }
        engine->conversations = standin_allocate(options->conversations, sizeof(conversation));
        if (engine->conversations != NULL && open_all(engine, &err)) {
            return engine;
        }
        (void)engine_close(engine);
    }
    (void)snprintf(out_text, size, "%s", err.text);
    return NULL;
}

/* --- a turn --- */

/* How far the drafter is when a boundary at `tokens` is put: some tokens behind, as it may be, and
 * not always as many: the same prompt comes with another draft length. */
static uint64_t drafted_at(const standin_engine *engine, uint64_t tokens)
{
    const uint64_t lag = 1 + digest_two(engine->turn_seed, tokens) % 2 * 3;
    const uint64_t floor = shape_draft_floor(&engine->shape, tokens);
    uint64_t drafted = tokens > lag ? tokens - lag : 0;

    if (engine->shape.drafter == 0) {
        return 0;
    }
    drafted = drafted > floor ? drafted : floor;
    return drafted > engine->sequence.drafted ? drafted : engine->sequence.drafted;
}

/* Compute up to a boundary and put it there. */
static bool reach(standin_engine *engine, const kvarve_prefix *prefix, uint64_t tokens,
                  uint32_t kind)
{
    return sequence_compute(engine, tokens, drafted_at(engine, tokens)) &&
           flight_begin(engine, prefix, kind);
}

/* The next token, and the drafter one behind. I1 */
static bool choose(standin_engine *engine, standin_turn *turn)
{
    sequence *at = &engine->sequence;
    const uint64_t draft_to = engine->shape.drafter == 0 ? 0 : at->computed - 1;
    uint32_t token;
    uint64_t logits = 0;

    if (at->guesses == 0 &&
        (!sequence_compute(engine, at->computed, draft_to) || !sequence_guess(engine))) {
        return false;
    }
    if (!sequence_read(engine, &logits)) {
        return false;
    }
    token = model_choose(logits, at->tokens[at->computed - 1]);
    turn->output = digest_two(digest_two(turn->output, logits), token);
    if (token == at->tokens[at->computed]) {
        return true;
    }
    at->tokens[at->computed] = token;
    sequence_drop_guesses(engine);
    return true;
}

/* Choose the answer. Its last token is never computed: nothing follows it. */
static bool answer(standin_engine *engine, standin_turn *turn)
{
    sequence *at = &engine->sequence;
    bool goes_on = true;

    for (uint32_t i = 0; i < turn->answer && goes_on; i++) {
        goes_on = choose(engine, turn);
        if (i + 1 == turn->answer || !goes_on) {
            continue;
        }
        if (at->guesses > 0) {
            goes_on = sequence_accept(engine);
        } else {
            goes_on = sequence_compute(engine, at->computed + 1,
                                       engine->shape.drafter == 0 ? 0 : at->computed);
        }
        (void)flight_pump(engine, false);
    }
    return goes_on;
}

static bool prepare(standin_engine *engine, const kvarve_prefix *prefix, conversation *of,
                    standin_turn *turn)
{
    sequence_begin(engine, of->tokens);
    if (!restore_longest(engine, prefix, of->length, &turn->kind)) {
        return false;
    }
    turn->restored = engine->sequence.computed;
    turn->computed = of->length - turn->restored;
    engine->counts.tokens_restored += turn->restored;
    engine->counts.tokens_computed += turn->computed;
    if (engine->sequence.computed < of->instruction &&
        !reach(engine, prefix, of->instruction, KVARVE_KIND_INSTRUCTION)) {
        return false;
    }
    return reach(engine, prefix, of->length, KVARVE_KIND_PROMPT);
}

static bool serve_turn(standin_engine *engine, kvarve_prefix *prefix, conversation *of,
                       standin_turn *turn)
{
    kvarve_error err = {.status = KVARVE_OK};
    kvarve_status status = kvarve_prefix_append(prefix, of->tokens, of->length, &err);
    bool goes_on = status == KVARVE_OK && prepare(engine, prefix, of, turn);

    goes_on = goes_on && answer(engine, turn);
    if (goes_on) {
        status = kvarve_prefix_append(prefix, of->tokens + of->length, turn->answer, &err);
        of->length += turn->answer;
        goes_on = flight_begin(engine, prefix, KVARVE_KIND_RESPONSE);
    }
    if (status != KVARVE_OK) {
        engine_note_fault(engine, "prefix", status, err.text);
    }
    sequence_end(engine);
    flight_settle(engine, engine->options.waits ? 0 : STANDIN_FLIGHTS_MAX / 2);
    return goes_on && status == KVARVE_OK;
}

static bool run_turn(standin_engine *engine, uint32_t index, uint32_t number, standin_turn *out)
{
    conversation *of = &engine->conversations[index];
    kvarve_prefix *prefix = NULL;
    bool is_good;

    *out = (standin_turn){.turn = number, .conversation = index};
    engine->turn_seed = digest_two(engine->options.seed, (uint64_t)number << 32 | index);
    out->what = script_ask(engine->options.seed, engine->conversations,
                           engine->options.conversations, index, number);
    out->tokens = of->length;
    out->answer = script_answer_length(engine->options.seed, index, number);
    if (kvarve_prefix_create(&prefix, NULL) != KVARVE_OK) {
        return false;
    }
    is_good = serve_turn(engine, prefix, of, out);
    kvarve_prefix_free(prefix);
    engine->output = digest_two(engine->output, out->output);
    return is_good;
}

bool engine_run(standin_engine *engine, standin_visit visit, void *context)
{
    standin_turn turn;
    bool goes_on = true;

    for (uint32_t number = 0; number < engine->options.turns; number++) {
        for (uint32_t i = 0; i < engine->options.conversations && goes_on; i++) {
            goes_on = run_turn(engine, i, number, &turn);
            if (visit != NULL && goes_on) {
                visit(context, &turn);
            }
        }
    }
    flight_settle(engine, 0);
    return goes_on;
}

/* --- what came of it --- */

uint64_t engine_output(const standin_engine *engine)
{
    return engine->output;
}

void engine_counts(const standin_engine *engine, standin_counts *out)
{
    *out = engine->counts;
}

const char *engine_fault(const standin_engine *engine)
{
    return engine->fault;
}

static bool end_rank(standin_engine *engine, uint32_t rank)
{
    bool is_whole = true;

    if (rank < engine->ranks_started) {
        message_begin(&engine->message, LINK_END);
        is_whole = engine_ask(engine, rank, &engine->message) && engine->replies[rank].value != 0;
        link_close(&engine->links[rank]);
        (void)pthread_join(engine->threads[rank], NULL);
    }
    link_close(&engine->links[rank]);
    link_close(&engine->rank_links[rank]);
    return is_whole;
}

/* Every block was given back: else the engine, or an event that did not come, has kept one. */
static bool all_blocks_are_free(const standin_engine *engine)
{
    bool are_free = true;

    for (uint32_t g = 0; g < engine->shape.group_count; g++) {
        are_free = are_free && engine->pools[g].free_count == engine->pools[g].count;
    }
    return are_free;
}

bool engine_close(standin_engine *engine)
{
    bool is_whole;

    if (engine == NULL) {
        return true;
    }
    flight_settle(engine, 0);
    is_whole = all_blocks_are_free(engine);
    for (uint32_t rank = 0; rank < STANDIN_RANKS_MAX; rank++) {
        is_whole = end_rank(engine, rank) && is_whole;
    }
    kvarve_namespace_release(&engine->handles.space);
    kvarve_close(engine->store);
    standin_release(engine->conversations);
    standin_release(engine);
    return is_whole;
}
