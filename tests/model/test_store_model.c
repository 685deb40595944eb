/*
 * test_store_model.c - random calls against a store in the simulated host, and a model of what it
 * must hold: a list of checkpoints, searched by brute force.
 *
 * Tokens are ones and twos and boundaries are short, so that prefixes overlap all the time. Calls:
 * put (at once, or staged and gone on with later, or given up; from regions, in pieces or in place;
 * open, and many at once: model_ways.c), replay, find, find_all, restore, lease and hold, drop,
 * trim, verify, reopen. With a small cap the store also evicts; then what is gone must have been
 * counted as evicted and must not have been leased.
 *
 * Seeds are fixed and printed; KVARVE_SEED runs one other, KVARVE_STEPS so many steps.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/open_in.h"
#include "base/alloc.h"
#include "model/model_run.h"

#define ENTRIES_MAX 4096u
#define FOUND_MAX   256u
#if defined(KVARVE_CHECKED) && KVARVE_CHECKED
#define STEPS 500u /* with sanitizers and expensive assertions */
#else
#define STEPS 2000u
#endif

kvarve_error model_error;

void model_expect_ok(kvarve_status status, const char *call, const char *file, int line)
{
    if (status != KVARVE_OK) {
        print_error("%s: %s: %s\n", call, kvarve_status_text(status), model_error.text);
        _fail(file, line);
    }
}

static const engine_layout *const layouts[] = {&engine_plain, &engine_exact, &engine_rows,
                                               &engine_dense};

uint32_t model_draw(run *at, uint32_t below)
{
    return (uint32_t)(world_next_random(&at->random) % below);
}

/* --- the store --- */

static void open_store(run *at)
{
    assert_ok(api_open_in(world_env(at->world), "/s", &at->options, &at->store, &model_error));
    for (uint32_t i = 0; i < LAYOUTS; i++) {
        assert_ok(engine_open(&at->engines[i], at->store, layouts[i], &model_error));
    }
    model_register(at);
    at->evictions = 0;
}

static void close_store(run *at)
{
    for (uint32_t i = 0; i < LAYOUTS; i++) {
        engine_close(&at->engines[i]);
    }
    kvarve_close(at->store);
}

kvarve_prefix *model_prefix(const uint32_t *tokens, uint64_t count)
{
    kvarve_prefix *prefix = NULL;

    assert_ok(kvarve_prefix_create(&prefix, &model_error));
    assert_ok(kvarve_prefix_append(prefix, tokens, (size_t)count, &model_error));
    return prefix;
}

/* --- the model --- */

static entry *find_entry(run *at, const uint8_t id[32])
{
    for (size_t i = 0; i < at->entry_count; i++) {
        if (memcmp(at->entries[i].id, id, 32) == 0) {
            return &at->entries[i];
        }
    }
    return NULL;
}

void model_learn_put(run *at, kvarve_put *put, const entry *what)
{
    uint8_t id[32];
    entry *known;

    assert_ok(kvarve_put_id(put, id, &model_error));
    known = find_entry(at, id);
    if (known == NULL) {
        assert_true(at->entry_count < ENTRIES_MAX);
        known = &at->entries[at->entry_count++];
        *known = *what;
        memcpy(known->id, id, 32);
        known->leases = 0;
    }
    known->is_alive = true;
    known->state.prefix = NULL;
}

typedef struct listing {
    run *at;
    bool *is_listed;
} listing;

static int list_one(void *context, const kvarve_checkpoint_info *info)
{
    listing *list = context;
    const entry *known = find_entry(list->at, info->id);

    if (known != NULL) {
        list->is_listed[known - list->at->entries] = true;
    } /* else a staged put's that has become READY, and is learned when it is looked at */
    return 1;
}

/* What the cap took is counted, and was not leased. */
static void follow_evictions(run *at)
{
    kvarve_statistics now = KVARVE_STATISTICS_INIT;
    bool *is_listed = kvarve_allocate_array(ENTRIES_MAX, sizeof *is_listed);
    listing list = {.at = at, .is_listed = is_listed};
    uint64_t gone = 0;

    assert_non_null(is_listed);
    assert_ok(kvarve_list_checkpoints(at->store, list_one, &list, &model_error));
    assert_ok(kvarve_statistics_get(at->store, &now, &model_error));
    for (size_t i = 0; i < at->entry_count; i++) {
        entry *known = &at->entries[i];

        if (known->is_alive && !is_listed[i]) {
            assert_int_equal(known->leases, 0);
            known->is_alive = false;
            gone++;
        } else if (!known->is_alive && is_listed[i]) {
            fail_msg("a dropped checkpoint is listed");
        }
    }
    assert_true(gone <= now.evictions - at->evictions);
    at->evictions = now.evictions;
    kvarve_release(is_listed);
}

/* --- puts --- */

/* A conversation's tokens: often those of an earlier one, up to somewhere. */
static void draw_tokens(run *at, uint32_t tokens[TOKENS_MAX])
{
    uint32_t kept = 0;

    if (at->entry_count > 0 && model_draw(at, 4) > 0) {
        kept = model_draw(at, TOKENS_MAX + 1);
        memcpy(tokens, at->entries[model_draw(at, (uint32_t)at->entry_count)].tokens,
               kept * sizeof *tokens);
    }
    for (uint32_t i = kept; i < TOKENS_MAX; i++) {
        tokens[i] = 1 + model_draw(at, 2) % (model_draw(at, 3) + 1);
    }
}

entry model_draw_entry(run *at)
{
    entry what = {.layout = model_draw(at, LAYOUTS)};

    if (at->entry_count > 0 && model_draw(at, 4) == 0) {
        what = at->entries[model_draw(at, (uint32_t)at->entry_count)]; /* a replay */
        return what;
    }
    draw_tokens(at, what.tokens);
    what.state.tokens = 1 + model_draw(at, TOKENS_MAX);
    what.state.kind = model_draw(at, 3);
    if (what.layout == 2) {
        what.state.draft_tokens =
            what.state.tokens -
            model_draw(at, 2) * model_draw(at, (uint32_t)(what.state.tokens - 1) % 8 + 1);
    }
    if (what.layout == 1) {
        what.state.variant = model_draw(at, 2);
    }
    return what;
}

static void end_staged(run *at, staged_put *one)
{
    const uint32_t state = kvarve_put_status(one->put);

    if (state == KVARVE_PUT_DURABLE || state == KVARVE_PUT_PRESENT || state == KVARVE_PUT_READY) {
        model_learn_put(at, one->put, &one->what);
    }
    at->present += state == KVARVE_PUT_PRESENT;
    kvarve_put_release(&one->put);
    kvarve_prefix_free(one->prefix);
}

/* Fill what it is asked for now, ack. True: it is over. */
static bool advance(run *at, staged_put *one)
{
    const engine *machine = &at->engines[one->what.layout];
    kvarve_status status = kvarve_put_wait(one->put, KVARVE_PUT_STAGED, 10, &model_error);

    if (status == KVARVE_BUSY) {
        return false; /* there is no room yet */
    }
    if (one->is_open) {
        model_advance_open(at, one);
        return kvarve_put_status(one->put) == KVARVE_PUT_ABORTED;
    }
    for (uint32_t rank = 0; rank < machine->layout->ranks && status == KVARVE_OK; rank++) {
        status = model_hand_over(at, one, rank);
    }
    assert_true(status == KVARVE_OK || status == KVARVE_MISS || status == KVARVE_BUSY);
    return kvarve_put_wait(one->put, KVARVE_PUT_DURABLE, 10, &model_error) != KVARVE_BUSY;
}

static void begin_staged(run *at, staged_put *one)
{
    one->what = model_draw_entry(at);
    if (one->what.layout == DENSE) {
        one->what.layout = 0; /* what a staged put holds would be boundaries that no entry has */
    }
    model_draw_way(at, one);
    one->prefix = model_prefix(one->what.tokens, TOKENS_MAX);
    one->what.state.prefix = one->prefix;
    if (model_draw(at, 3) == 0) {
        model_begin_open(at, one);
    } else {
        assert_ok(engine_put_begin(&at->engines[one->what.layout], &one->what.state, NULL,
                                   &one->put, &model_error));
    }
    at->puts++;
}

static void step_staged(run *at)
{
    staged_put *one = &at->staged[model_draw(at, STAGED_MAX)];

    if (one->put == NULL) {
        begin_staged(at, one);
        return;
    }
    if (model_draw(at, 6) == 0) {
        model_give_up(at, one);
        end_staged(at, one);
        return;
    }
    if (advance(at, one)) {
        end_staged(at, one);
    }
}

/* Waiters wait for older puts only, so going round ends them all. */
void model_end_all_staged(run *at)
{
    for (uint32_t round = 0; round < 1000; round++) {
        bool has_more = false;

        for (uint32_t i = 0; i < STAGED_MAX; i++) {
            staged_put *one = &at->staged[i];

            if (one->put != NULL && advance(at, one)) {
                end_staged(at, one);
            }
            has_more = has_more || one->put != NULL;
        }
        if (!has_more) {
            return;
        }
    }
    fail_msg("staged puts wait for each other");
}

static void step_put(run *at)
{
    staged_put one = {.what = model_draw_entry(at)};

    one.lane = STAGED_MAX;
    model_draw_way(at, &one);
    one.prefix = model_prefix(one.what.tokens, TOKENS_MAX);
    one.what.state.prefix = one.prefix;
    assert_ok(engine_put_begin(&at->engines[one.what.layout], &one.what.state, NULL, &one.put,
                               &model_error));
    at->puts++;
    for (uint32_t i = 0; !advance(at, &one); i++) {
        model_end_all_staged(at); /* it waits for one of these, or for the room they have */
        assert_true(i < 100);
    }
    assert_true(kvarve_put_status(one.put) == KVARVE_PUT_DURABLE ||
                kvarve_put_status(one.put) == KVARVE_PUT_PRESENT);
    end_staged(at, &one);
}

/* --- finds --- */

typedef struct question {
    uint32_t layout;
    uint32_t tokens[TOKENS_MAX];
    uint64_t length;
    kvarve_find_options options;
} question;

static question draw_question(run *at)
{
    question ask = {.layout = model_draw(at, LAYOUTS), .options = KVARVE_FIND_OPTIONS_INIT};

    draw_tokens(at, ask.tokens);
    ask.length = 1 + model_draw(at, TOKENS_MAX);
    if (model_draw(at, 2) == 0) {
        ask.options.max_tokens = model_draw(at, TOKENS_MAX + 20);
        ask.options.min_tokens = model_draw(at, 30);
        ask.options.multiple_of = model_draw(at, 6);
    }
    ask.options.kinds = model_draw(at, 2) * model_draw(at, 8);
    ask.options.preferred_kind = model_draw(at, 3);
    ask.options.flags = model_draw(at, 3) == 0 ? KVARVE_FIND_NO_DERIVED : 0;
    return ask;
}

static bool is_in_limits(const question *ask, uint64_t tokens, uint32_t kind)
{
    const kvarve_find_options *options = &ask->options;

    return tokens <= ask->length && tokens >= options->min_tokens &&
           (options->max_tokens == 0 || tokens <= options->max_tokens) &&
           (options->multiple_of <= 1 || tokens % options->multiple_of == 0) &&
           (options->kinds == 0 || (options->kinds >> kind & 1) != 0);
}

static bool is_prefix_of(const entry *known, const question *ask, uint64_t count)
{
    return memcmp(known->tokens, ask->tokens, count * sizeof *ask->tokens) == 0;
}

static bool is_hit(const entry *known, const question *ask)
{
    return known->is_alive && known->layout == ask->layout &&
           is_in_limits(ask, known->state.tokens, known->state.kind) &&
           is_prefix_of(known, ask, known->state.tokens);
}

static bool is_derived(run *at, const question *ask, uint64_t length)
{
    if (ask->layout != DENSE || (ask->options.flags & KVARVE_FIND_NO_DERIVED) != 0 ||
        length % DENSE_SPAN != 0 || length == 0 ||
        !is_in_limits(ask, length, KVARVE_KIND_INSTRUCTION)) {
        return false;
    }
    for (size_t i = 0; i < at->entry_count; i++) {
        const entry *known = &at->entries[i];

        if (known->is_alive && known->layout == DENSE && known->state.tokens >= length &&
            is_prefix_of(known, ask, length)) {
            return true;
        }
    }
    return false;
}

static size_t count_expected(run *at, const question *ask)
{
    size_t count = 0;

    for (size_t i = 0; i < at->entry_count; i++) {
        count += is_hit(&at->entries[i], ask);
    }
    for (uint64_t length = 1; length <= ask->length; length++) {
        count += is_derived(at, ask, length);
    }
    return count;
}

/* READY puts are found before they are durable: they are known now, and can not be dropped. Those
 * that are over are let go, lest they are learned again after a drop. */
static void learn_ready(run *at)
{
    for (uint32_t i = 0; i < STAGED_MAX; i++) {
        staged_put *one = &at->staged[i];
        const uint32_t state = one->put == NULL ? KVARVE_PUT_WAITING : kvarve_put_status(one->put);

        if (state == KVARVE_PUT_READY) {
            model_learn_put(at, one->put, &one->what);
        } else if (state == KVARVE_PUT_DURABLE || state == KVARVE_PUT_PRESENT) {
            end_staged(at, one);
        }
    }
}

static void check_order(const question *ask, const kvarve_boundary *found, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        const kvarve_boundary *a = &found[i - 1];
        const kvarve_boundary *b = &found[i];

        assert_true(a->tokens > b->tokens ||
                    (a->tokens == b->tokens && (a->kind == ask->options.preferred_kind ||
                                                b->kind != ask->options.preferred_kind)));
    }
}

static void step_find(run *at)
{
    static kvarve_boundary found[FOUND_MAX];
    const question ask = draw_question(at);
    kvarve_prefix *prefix = model_prefix(ask.tokens, ask.length);
    size_t count = 0;
    size_t expected;
    kvarve_status status;

    learn_ready(at);
    expected = count_expected(at, &ask);
    assert_true(expected < FOUND_MAX);
    status = kvarve_find(at->engines[ask.layout].space, prefix, &ask.options, found, FOUND_MAX,
                         &count, NULL, NULL, &model_error);
    assert_int_equal(status, expected > 0 ? KVARVE_OK : KVARVE_MISS);
    assert_int_equal(count, expected);
    check_order(&ask, found, count);
    for (size_t i = 0; i < count; i++) {
        const entry *known = find_entry(at, found[i].id);

        assert_true((found[i].flags & KVARVE_BOUNDARY_DERIVED) != 0
                        ? is_derived(at, &ask, found[i].tokens)
                        : known != NULL && is_hit(known, &ask));
    }
    at->finds++;
    at->hits += expected > 0;
    kvarve_prefix_free(prefix);
}

static void step_find_all(run *at)
{
    const question ask = draw_question(at);
    kvarve_prefix *prefix = model_prefix(ask.tokens, ask.length);
    uint8_t bitmap[TOKENS_MAX / 8 + 1];

    learn_ready(at);
    assert_ok(kvarve_find_all(at->engines[ask.layout].space, prefix, &ask.options, bitmap,
                              sizeof bitmap, &model_error));
    for (uint64_t length = 0; length <= ask.length; length++) {
        bool is_expected = is_derived(at, &ask, length);

        for (size_t i = 0; i < at->entry_count && !is_expected; i++) {
            is_expected = at->entries[i].state.tokens == length && is_hit(&at->entries[i], &ask);
        }
        assert_int_equal((bitmap[length / 8] >> (length % 8) & 1) != 0, is_expected);
    }
    kvarve_prefix_free(prefix);
}

/* --- leases --- */

static entry *draw_alive(run *at)
{
    for (uint32_t i = 0; i < 20 && at->entry_count > 0; i++) {
        entry *known = &at->entries[model_draw(at, (uint32_t)at->entry_count)];

        if (known->is_alive) {
            return known;
        }
    }
    return NULL;
}

/* A lease on whatever the store prefers at this boundary; which one it is, its id says. */
static entry *take_lease(run *at, uint32_t mode, kvarve_lease **out)
{
    entry *wanted = draw_alive(at);
    entry *known;
    kvarve_status status;
    kvarve_miss miss = {0};
    kvarve_boundary found;
    kvarve_prefix *prefix;

    if (wanted == NULL) {
        return NULL;
    }
    learn_ready(at);
    prefix = model_prefix(wanted->tokens, wanted->state.tokens);
    wanted->state.prefix = prefix;
    status = engine_find(&at->engines[wanted->layout], &wanted->state, mode, &found, out, &miss,
                         &model_error);
    if (status != KVARVE_OK) {
        fail_msg("layout %u, %llu tokens, kind %u: %s", wanted->layout,
                 (unsigned long long)wanted->state.tokens, wanted->state.kind,
                 kvarve_miss_text(miss.reason));
    }
    wanted->state.prefix = NULL;
    kvarve_prefix_free(prefix);
    known = find_entry(at, found.id);
    if (known == NULL) {
        fail_msg("a checkpoint is found that nobody stored");
        return NULL;
    }
    assert_true(known->is_alive);
    assert_int_equal(known->state.tokens, wanted->state.tokens);
    return known;
}

static void check_lease(run *at, kvarve_lease *lease, const entry *known, bool is_loaded)
{
    const engine *machine = &at->engines[known->layout];
    engine_state state = known->state;
    kvarve_prefix *prefix = model_prefix(known->tokens, known->state.tokens);

    state.prefix = prefix;
    if (is_loaded) {
        if (kvarve_lease_wait(lease, 10000, NULL, &model_error) == KVARVE_BUSY) {
            model_end_all_staged(at); /* they have the arena */
        }
        assert_ok(kvarve_lease_wait(lease, 10000, NULL, &model_error));
        assert_ok(engine_view(machine, lease, &state, false, &model_error));
        model_copy_back(at, lease, known, &state);
    }
    if (engine_read(machine, lease, &state, false, &model_error) == KVARVE_MISS) {
        model_end_all_staged(at);
        assert_ok(engine_read(machine, lease, &state, false, &model_error));
    }
    kvarve_prefix_free(prefix);
    at->restores++;
}

static void step_restore(run *at)
{
    const bool is_loaded = model_draw(at, 2) == 0;
    kvarve_lease *lease = NULL;
    const entry *known = take_lease(at, is_loaded ? KVARVE_LEASE_LOAD : KVARVE_LEASE_SOFT, &lease);

    if (known != NULL) {
        check_lease(at, lease, known, is_loaded);
        kvarve_lease_release(&lease);
    }
}

static void let_go(run *at, held_lease *one)
{
    if (one->lease != NULL) {
        check_lease(at, one->lease, one->of, false);
        kvarve_lease_release(&one->lease);
        one->of->leases--;
    }
}

static void step_hold(run *at)
{
    held_lease *one = &at->held[model_draw(at, LEASES_MAX)];

    if (one->lease != NULL) {
        let_go(at, one);
        return;
    }
    one->of = take_lease(at, KVARVE_LEASE_SOFT, &one->lease);
    if (one->of == NULL) {
        return;
    }
    one->of->leases++;
    if (one->of->layout == DENSE) { /* what it holds would be boundaries that no entry has */
        let_go(at, one);
    }
}

/* --- the rest --- */

static void step_drop(run *at)
{
    entry *known = draw_alive(at);
    kvarve_status status;

    if (known == NULL) {
        return;
    }
    learn_ready(at);
    status = kvarve_drop(at->store, known->id, &model_error);
    if (status == KVARVE_BUSY) { /* leased, or a staged put of the same is on its way */
        return;
    }
    assert_ok(status);
    assert_int_equal(known->leases, 0);
    known->is_alive = false;
}

static void step_verify(run *at)
{
    kvarve_verify_result result;

    assert_ok(kvarve_verify(at->store, NULL, NULL, &result, &model_error));
    assert_int_equal(result.pages_damaged, 0);
    assert_ok(kvarve_trim(at->store, NULL, &model_error));
}

static void step_reopen(run *at)
{
    for (uint32_t i = 0; i < LEASES_MAX; i++) {
        let_go(at, &at->held[i]);
    }
    model_end_all_staged(at);
    follow_evictions(at);
    close_store(at);
    open_store(at);
    follow_evictions(at); /* nothing is gone, nothing is back */
}

static void take_step(run *at)
{
    const uint32_t dice = model_draw(at, 100);

    if (dice < 22) {
        step_put(at);
    } else if (dice < 25) {
        model_put_many(at);
    } else if (dice < 45) {
        step_staged(at);
    } else if (dice < 65) {
        step_find(at);
    } else if (dice < 72) {
        step_find_all(at);
    } else if (dice < 84) {
        step_restore(at);
    } else if (dice < 91) {
        step_hold(at);
    } else if (dice < 98) {
        step_drop(at);
    } else if (dice < 99) {
        step_verify(at);
    } else {
        step_reopen(at);
    }
    learn_ready(at);
    follow_evictions(at);
}

static void run_seed(uint64_t seed, uint64_t flash_bytes_max, uint64_t steps)
{
    static run at;

    print_message("seed %llu, cap %llu KiB, %llu steps\n", (unsigned long long)seed,
                  (unsigned long long)flash_bytes_max >> 10, (unsigned long long)steps);
    at = (run){.random = seed, .world = world_create(seed)};
    at.options = (kvarve_store_options)KVARVE_STORE_OPTIONS_INIT;
    at.options.arena_bytes = UINT64_C(1) << 20;
    at.options.segment_bytes = UINT64_C(1) << 20;
    at.options.flash_bytes_max = flash_bytes_max;
    for (uint32_t i = 0; i < STAGED_MAX; i++) {
        at.staged[i].lane = i;
    }
    at.entries = kvarve_allocate_array(ENTRIES_MAX, sizeof(entry));
    assert_non_null(at.entries);
    open_store(&at);
    for (uint64_t i = 0; i < steps; i++) {
        take_step(&at);
    }
    step_reopen(&at);
    for (size_t i = 0; i < at.entry_count; i++) {
        step_restore(&at);
    }
    close_store(&at);
    print_message("  %zu checkpoints, %llu puts (%llu present), %llu finds (%llu hits), "
                  "%llu restores\n",
                  at.entry_count, (unsigned long long)at.puts, (unsigned long long)at.present,
                  (unsigned long long)at.finds, (unsigned long long)at.hits,
                  (unsigned long long)at.restores);
    print_message("  %llu puts were open, %llu of %llu at once, %llu given up; %llu copies from "
                  "regions, %llu back\n",
                  (unsigned long long)at.closed, (unsigned long long)at.many_kept,
                  (unsigned long long)at.many, (unsigned long long)at.given_up,
                  (unsigned long long)at.copied, (unsigned long long)at.copied_back);
    assert_true(at.hits > at.finds / 10 && at.present > 0); /* or it proves little */
    assert_true(at.closed > steps / 200 && at.many_kept > steps / 100 && at.copied > steps / 100 &&
                at.copied_back > 0 && at.given_up > steps / 200);
    kvarve_release(at.entries);
    assert_int_equal(world_open_descriptors(at.world), 0);
    world_destroy(at.world);
    assert_int_equal(kvarve_allocated_blocks(), 0);
}

/* NOLINTBEGIN(concurrency-mt-unsafe): one thread */
static uint64_t from_environment(const char *name, uint64_t standard)
{
    const char *text = getenv(name);

    return text == NULL ? standard : strtoull(text, NULL, 10);
}
/* NOLINTEND(concurrency-mt-unsafe) */

static void test_model__every_call_answers_as_a_list_would(void **state)
{
    const uint64_t steps = from_environment("KVARVE_STEPS", STEPS);
    const uint64_t seed = from_environment("KVARVE_SEED", 0);

    (void)state;
    for (uint64_t i = 1; i <= (seed == 0 ? 3u : 1u); i++) {
        run_seed(seed == 0 ? i : seed, UINT64_C(256) << 20, steps);
    }
}

static void test_model__also_when_the_cap_evicts(void **state)
{
    const uint64_t steps = from_environment("KVARVE_STEPS", STEPS);
    const uint64_t seed = from_environment("KVARVE_SEED", 0);

    (void)state;
    for (uint64_t i = 1; i <= (seed == 0 ? 3u : 1u); i++) {
        run_seed(seed == 0 ? 10 + i : seed, UINT64_C(8) << 20, steps);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model__every_call_answers_as_a_list_would),
        cmocka_unit_test(test_model__also_when_the_cap_evicts),
    };

    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* what a test said is seen though it aborts */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
