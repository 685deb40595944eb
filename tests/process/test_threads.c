/*
 * test_threads.c - many threads use one real store at once: put, find, read, drop, look. Once in
 * this process, and once as the client of a daemon.
 *
 * Each thread works on conversations that others work on too, in three layouts, so that pages are
 * shared, waited for and taken over. Whatever is read back is compared byte for byte. The thread
 * sanitizer runs this as well (preset tsan); KVARVE_STEPS makes it longer.
 *
 * cmocka's assertions belong to the main thread: a thread notes its first failure, main reports it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "contract/door_daemon.h"
#include "contract/engine.h"
#include "kvarve/admin.h"
#include "simulate/world.h"
#include "support/scratch.h"

#define THREADS       6u
#define STEPS         60u
#define CONVERSATIONS 4u
#define TOKENS        160u

static const engine_layout *const layouts[] = {&engine_plain, &engine_hybrid, &engine_exact};
#define LAYOUTS 3u

typedef struct shared {
    kvarve_store *store;
    engine engines[LAYOUTS];
    kvarve_prefix
        *prefixes[CONVERSATIONS]; /* read only: calls that take them const may run at once */
    uint32_t steps;
    atomic_uint failures;
    atomic_uint counts[8];
} shared;

typedef struct worker {
    pthread_t thread;
    shared *with;
    uint64_t random;
    char failure[256];
} worker;

enum { COUNT_DURABLE, COUNT_PRESENT, COUNT_ABORTED, COUNT_HIT, COUNT_MISS, COUNT_DROPPED };

static uint32_t draw(worker *at, uint32_t below)
{
    return (uint32_t)(world_next_random(&at->random) % below);
}

static void note(worker *at, const char *what, kvarve_status status, const kvarve_error *err)
{
    if (at->failure[0] == '\0') {
        (void)snprintf(at->failure, sizeof at->failure, "%s: %s: %s", what,
                       kvarve_status_text(status), err->text);
    }
    atomic_fetch_add(&at->with->failures, 1);
}

static engine_state draw_state(worker *at)
{
    const uint32_t conversation = draw(at, CONVERSATIONS);

    return (engine_state){.prefix = at->with->prefixes[conversation],
                          .tokens = 1 + draw(at, TOKENS),
                          .kind = draw(at, 3)};
}

/* Answer what the put asks for until it is over; pages may be handed to it at any time. */
static void follow_put(worker *at, const engine *machine, kvarve_put *put,
                       const engine_state *state)
{
    kvarve_error err = {0};
    kvarve_status status = KVARVE_BUSY;

    while (status == KVARVE_BUSY) {
        const bool writes = draw(at, 2) == 0;

        (void)!kvarve_put_wait(put, KVARVE_PUT_STAGED, 1000, NULL);
        for (uint32_t rank = 0; rank < machine->layout->ranks; rank++) {
            status = writes ? engine_put_write(machine, put, state, rank, &err)
                            : engine_put_fill(machine, put, state, rank, NULL, &err);
            if (status == KVARVE_CORRUPT || status == KVARVE_INVALID) {
                note(at, "fill", status, &err);
            }
            if (status == KVARVE_OK) {
                (void)!kvarve_put_ack(put, rank, NULL, 0, NULL); /* a second one may be wrong */
            }
        }
        status = kvarve_put_wait(put, KVARVE_PUT_DURABLE, 20, NULL);
    }
}

static void step_put(worker *at)
{
    const engine *machine = &at->with->engines[draw(at, LAYOUTS)];
    const engine_state state = draw_state(at);
    kvarve_error err = {0};
    kvarve_put *put = NULL;
    const kvarve_status status = engine_put_begin(machine, &state, NULL, &put, &err);
    uint32_t ended;

    if (status != KVARVE_OK) {
        note(at, "begin", status, &err);
        return;
    }
    if (draw(at, 5) == 0) { /* some give up, and others take over */
        (void)!engine_put_fill(machine, put, &state, 0, NULL, NULL);
        kvarve_put_release(&put);
        return;
    }
    follow_put(at, machine, put, &state);
    ended = kvarve_put_status(put);
    atomic_fetch_add(&at->with->counts[ended == KVARVE_PUT_DURABLE   ? COUNT_DURABLE
                                       : ended == KVARVE_PUT_PRESENT ? COUNT_PRESENT
                                                                     : COUNT_ABORTED],
                     1);
    kvarve_put_release(&put);
}

static void step_read(worker *at)
{
    const engine *machine = &at->with->engines[draw(at, LAYOUTS)];
    const bool is_loaded = draw(at, 2) == 0;
    engine_state state = draw_state(at);
    kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
    kvarve_lease *lease = NULL;
    kvarve_boundary found;
    kvarve_error err = {0};
    kvarve_status status;

    options.max_tokens = state.tokens;
    options.lease = is_loaded ? KVARVE_LEASE_LOAD : KVARVE_LEASE_SOFT;
    status =
        kvarve_find(machine->space, state.prefix, &options, &found, 1, NULL, &lease, NULL, &err);
    atomic_fetch_add(&at->with->counts[status == KVARVE_OK ? COUNT_HIT : COUNT_MISS], 1);
    if (status != KVARVE_OK) {
        return;
    }
    state.tokens = found.tokens;
    state.kind = found.kind;
    if (is_loaded) {
        status = kvarve_lease_wait(lease, 20000, NULL, &err);
        status = status == KVARVE_OK ? engine_view(machine, lease, &state, false, &err) : status;
    }
    if (status == KVARVE_OK && draw(at, 4) > 0) {
        status = engine_read(machine, lease, &state, false, &err);
    }
    if (status != KVARVE_OK) {
        note(at, "read", status, &err);
    }
    kvarve_lease_release(&lease);
}

static void step_look(worker *at)
{
    const engine *machine = &at->with->engines[draw(at, LAYOUTS)];
    const engine_state state = draw_state(at);
    kvarve_statistics now = KVARVE_STATISTICS_INIT;
    uint8_t bitmap[TOKENS / 8 + 1];
    kvarve_error err = {0};
    kvarve_boundary found;
    kvarve_event event;
    kvarve_status status = kvarve_statistics_get(at->with->store, &now, &err);

    if (status == KVARVE_OK) {
        status = kvarve_find_all(machine->space, state.prefix, NULL, bitmap, sizeof bitmap, &err);
    }
    if (status != KVARVE_OK) {
        note(at, "look", status, &err);
    }
    (void)!kvarve_next_event(at->with->store, &event);
    if (draw(at, 3) == 0 && kvarve_find(machine->space, state.prefix, NULL, &found, 1, NULL, NULL,
                                        NULL, &err) == KVARVE_OK) {
        status = kvarve_drop(at->with->store, found.id, &err);
        atomic_fetch_add(&at->with->counts[COUNT_DROPPED], status == KVARVE_OK);
    }
}

static void *run_worker(void *argument)
{
    worker *at = argument;

    for (uint32_t i = 0; i < at->with->steps && atomic_load(&at->with->failures) == 0; i++) {
        const uint32_t dice = draw(at, 10);

        if (dice < 5) {
            step_put(at);
        } else if (dice < 8) {
            step_read(at);
        } else {
            step_look(at);
        }
    }
    return NULL;
}

/* --- the store --- */

static bool is_served; /* by a daemon, whose client this process is */
static pid_t server;

static kvarve_status open_one(const char *folder, const kvarve_store_options *options,
                              kvarve_store **out, kvarve_error *err)
{
    char socket[SCRATCH_PATH_MAX + 16];

    (void)snprintf(socket, sizeof socket, "%s.socket", folder);
    return is_served ? door_daemon_start(folder, socket, options, &server, out, err)
                     : kvarve_open(folder, options, out, err);
}

static void open_all(shared *with, const char *folder)
{
    kvarve_store_options options = KVARVE_STORE_OPTIONS_INIT;
    kvarve_error err = {0};

    options.arena_bytes = UINT64_C(2) << 20; /* small: others have the room now and then */
    options.flash_bytes_max = UINT64_C(16) << 20;
    options.segment_bytes = UINT64_C(1) << 20;
    options.pool_threads = 3;
    options.io_timeout_ms = 30000;
    if (open_one(folder, &options, &with->store, &err) != KVARVE_OK) {
        fail_msg("open: %s", err.text);
    }
    for (uint32_t i = 0; i < LAYOUTS; i++) {
        assert_int_equal(engine_open(&with->engines[i], with->store, layouts[i], &err), KVARVE_OK);
    }
}

static void close_all(shared *with)
{
    for (uint32_t i = 0; i < LAYOUTS; i++) {
        engine_close(&with->engines[i]);
    }
    kvarve_close(with->store);
    door_daemon_stop(server);
    server = 0;
}

static void check_all(shared *with)
{
    kvarve_verify_result result = {0};
    kvarve_statistics now = KVARVE_STATISTICS_INIT;
    kvarve_error err = {0};

    assert_int_equal(kvarve_verify(with->store, NULL, NULL, &result, &err), KVARVE_OK);
    assert_int_equal(kvarve_statistics_get(with->store, &now, &err), KVARVE_OK);
    assert_int_equal(now.leases_open, 0);
    assert_int_equal(now.puts_open, 0);
    assert_int_equal(now.is_failed, 0);
}

static void test_threads__put_find_and_read_one_store_at_once(void **state)
{
    static shared with;
    static worker workers[THREADS];
    char scratch[SCRATCH_PATH_MAX];
    char folder[SCRATCH_PATH_MAX + 8];
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): before the threads */
    const char *steps = getenv("KVARVE_STEPS");

    (void)state;
    scratch_make(scratch);
    (void)snprintf(folder, sizeof folder, "%s/store", scratch);
    with.steps = steps == NULL ? STEPS : (uint32_t)strtoul(steps, NULL, 10);
    for (uint64_t i = 0; i < CONVERSATIONS;
         i++) { /* in pairs, the second half as long a common start */
        with.prefixes[i] = engine_prefix(i / 2, i % 2 == 0 ? TOKENS : TOKENS / 2);
    }
    for (uint32_t i = 1; i < CONVERSATIONS; i += 2) {
        for (uint32_t j = TOKENS / 2; j < TOKENS; j++) {
            assert_int_equal(kvarve_prefix_append(with.prefixes[i], &j, 1, NULL), KVARVE_OK);
        }
    }
    open_all(&with, folder);
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.with = &with, .random = 77 + i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        if (workers[i].failure[0] != '\0') {
            fail_msg("thread %u: %s", i, workers[i].failure);
        }
    }
    print_message("%u durable, %u present, %u refused, %u hits, %u misses, %u dropped\n",
                  with.counts[COUNT_DURABLE], with.counts[COUNT_PRESENT],
                  with.counts[COUNT_ABORTED], with.counts[COUNT_HIT], with.counts[COUNT_MISS],
                  with.counts[COUNT_DROPPED]);
    check_all(&with);
    close_all(&with);
    open_all(&with, folder); /* and what is there is there after all that */
    check_all(&with);
    close_all(&with);
    for (uint32_t i = 0; i < CONVERSATIONS; i++) {
        kvarve_prefix_free(with.prefixes[i]);
    }
    assert_true(with.counts[COUNT_DURABLE] > 0 && with.counts[COUNT_HIT] > 0);
    assert_int_equal(kvarve_allocated_blocks(), 0);
    scratch_remove(scratch);
}

/* --- one put of several ranks, one lease of several ranks --- */

typedef struct rank_worker {
    pthread_t thread;
    const engine *machine;
    const engine_state *state;
    kvarve_put *put;
    kvarve_lease *lease;
    uint32_t rank;
    kvarve_status status;
    kvarve_error err;
} rank_worker;

static void *run_rank(void *argument)
{
    rank_worker *at = argument;
    const uint32_t ranks = at->machine->layout->ranks;

    if (at->put != NULL) {
        at->status =
            at->rank % 2 == 0
                ? engine_put_write(at->machine, at->put, at->state, at->rank, &at->err)
                : engine_put_fill(at->machine, at->put, at->state, at->rank, NULL, &at->err);
        if (at->status == KVARVE_OK) {
            at->status = kvarve_put_ack(at->put, at->rank, NULL, 0, &at->err);
        }
        return NULL;
    }
    /* All ranks read at once, and each also what others read. */
    at->status = KVARVE_OK;
    for (uint32_t i = 0; i < ranks && at->status == KVARVE_OK; i++) {
        at->status = engine_read(at->machine, at->lease, at->state, false, &at->err);
    }
    return NULL;
}

static void run_ranks(const engine *machine, const engine_state *state, kvarve_put *put,
                      kvarve_lease *lease)
{
    rank_worker workers[8];
    const uint32_t ranks = machine->layout->ranks;

    for (uint32_t i = 0; i < ranks; i++) {
        workers[i] = (rank_worker){
            .machine = machine, .state = state, .put = put, .lease = lease, .rank = i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, run_rank, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < ranks; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].status != KVARVE_OK) {
            fail_msg("rank %u: %s: %s", i, kvarve_status_text(workers[i].status),
                     workers[i].err.text);
        }
    }
}

static void test_threads__ranks_fill_and_read_one_checkpoint_at_once(void **state)
{
    static shared with;
    char scratch[SCRATCH_PATH_MAX];
    char folder[SCRATCH_PATH_MAX + 8];

    (void)state;
    scratch_make(scratch);
    (void)snprintf(folder, sizeof folder, "%s/store", scratch);
    open_all(&with, folder);
    for (uint64_t seed = 0; seed < 5; seed++) {
        const engine *machine = &with.engines[1];
        kvarve_prefix *prefix = engine_prefix(seed, 100);
        const engine_state here = {.prefix = prefix, .tokens = 100};
        kvarve_put *put = NULL;
        kvarve_lease *lease = NULL;
        kvarve_error err = {0};

        assert_int_equal(engine_put_begin(machine, &here, NULL, &put, &err), KVARVE_OK);
        assert_int_equal(kvarve_put_wait(put, KVARVE_PUT_STAGED, 20000, &err), KVARVE_OK);
        run_ranks(machine, &here, put, NULL);
        assert_int_equal(kvarve_put_wait(put, KVARVE_PUT_DURABLE, 20000, &err), KVARVE_OK);
        kvarve_put_release(&put);
        assert_int_equal(engine_find(machine, &here, KVARVE_LEASE_SOFT, NULL, &lease, NULL, &err),
                         KVARVE_OK);
        run_ranks(machine, &here, NULL, lease);
        kvarve_lease_release(&lease);
        kvarve_prefix_free(prefix);
    }
    close_all(&with);
    scratch_remove(scratch);
}

/* --- many at once, while another put has some of their pages --- */

typedef struct bulk_worker {
    const engine *machine;
    const engine_state *state;
    kvarve_bulk_item item;
    kvarve_status status;
    kvarve_error err;
} bulk_worker;

static void *run_bulk(void *argument)
{
    bulk_worker *at = argument;

    at->status = kvarve_put_many(at->machine->space, &at->item, 1, &at->err);
    return NULL;
}

static uint64_t open_puts(kvarve_store *store)
{
    kvarve_statistics now = KVARVE_STATISTICS_INIT;

    assert_int_equal(kvarve_statistics_get(store, &now, NULL), KVARVE_OK);
    return now.puts_open;
}

static void test_threads__put_many_takes_over_what_another_put_leaves(void **state)
{
    static shared with;
    static uint8_t rows[64 * 96];
    static uint8_t endpoint[9001];
    char scratch[SCRATCH_PATH_MAX];
    char folder[SCRATCH_PATH_MAX + 8];
    const engine *machine = &with.engines[0];
    kvarve_prefix *prefix = engine_prefix(5, 64);
    const engine_state here = {.prefix = prefix, .tokens = 64};
    kvarve_put_options options = KVARVE_PUT_OPTIONS_INIT;
    kvarve_section sections[2] = {{.bytes = rows, .size = sizeof rows},
                                  {.group = 1, .bytes = endpoint, .size = sizeof endpoint}};
    bulk_worker many = {.machine = machine, .state = &here};
    kvarve_put *owner = NULL;
    pthread_t thread;

    (void)state;
    scratch_make(scratch);
    (void)snprintf(folder, sizeof folder, "%s/store", scratch);
    open_all(&with, folder);
    for (uint64_t page = 0; page < 4; page++) {
        engine_fill(machine, &here, 0, 0, page, rows + page * 16 * 96);
    }
    engine_fill(machine, &here, 0, 1, 0, endpoint);
    options.tokens = 64;
    many.item = (kvarve_bulk_item){
        .prefix = prefix, .options = &options, .sections = sections, .section_count = 2};
    assert_int_equal(engine_put_begin(machine, &here, NULL, &owner, NULL), KVARVE_OK);
    assert_int_equal(pthread_create(&thread, NULL, run_bulk, &many), 0);
    while (open_puts(with.store) < 2) { /* it has begun, and waits for the owner's pages */
        (void)!kvarve_put_wait(owner, KVARVE_PUT_DURABLE, 1, NULL);
    }
    kvarve_put_release(&owner);
    pthread_join(thread, NULL);
    assert_int_equal(many.status, KVARVE_OK);
    assert_int_equal(many.item.out_state, KVARVE_PUT_DURABLE);
    assert_int_equal(engine_restore(machine, &here, true, NULL), KVARVE_OK);
    close_all(&with);
    kvarve_prefix_free(prefix);
    scratch_remove(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads__put_find_and_read_one_store_at_once),
        cmocka_unit_test(test_threads__ranks_fill_and_read_one_checkpoint_at_once),
        cmocka_unit_test(test_threads__put_many_takes_over_what_another_put_leaves),
    };
    int failed = cmocka_run_group_tests_name("threads", tests, NULL, NULL);

    is_served = true;
    failed += cmocka_run_group_tests_name("threads of a daemon's client", tests, NULL, NULL);
    return failed == 0 ? 0 : 1;
}
