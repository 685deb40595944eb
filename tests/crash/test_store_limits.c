/*
 * test_store_limits.c - memory, room, time and place run out while a store works.
 *
 * Goal    Whichever allocation fails: a status, no crash, no leak, nothing lost. A full disk
 * refuses a put and keeps what is stored; evictions still commit, thanks to the reserve. A deadline
 *         abandons the caller, never the job. A copied folder becomes a store of its own; a newer
 *         version is left alone; a lock that another process holds is said with its pid; a clock
 *         that jumps changes nothing.
 * Method  The scenarios of store_scenario.c once for every k-th allocation; the rest by itself.
 * Faults  As named above; SQLite's own memory is not among them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "crash/crash_effort.h"
#include "crash/store_scenario.h"
#include "hash/hash.h"

#define MIB (UINT64_C(1) << 20)

static const model_limits usual = {.flash_bytes_max = 16 * MIB};

static const model_item items[] = {
    {.layout = LAYOUT_PLAIN, .conversation = 9, .kind = 2, .tokens = 20},
    {.layout = LAYOUT_PLAIN, .conversation = 0, .kind = 2, .tokens = 40},
    {.layout = LAYOUT_PLAIN, .conversation = 2, .kind = 2, .tokens = 40},
    {.layout = LAYOUT_LARGE, .conversation = 3, .kind = 2, .tokens = 64},
    {.layout = LAYOUT_LARGE, .conversation = 4, .kind = 2, .tokens = 64},
    {.layout = LAYOUT_LARGE, .conversation = 5, .kind = 2, .tokens = 64},
    {.layout = LAYOUT_LARGE, .conversation = 6, .kind = 2, .tokens = 64},
};

static void open_usual(session *open, sim_world *world)
{
    assert_int_equal(session_open(open, world, MODEL_FOLDER, &usual, NULL), KVARVE_OK);
}

static void assert_right(session *open, size_t item)
{
    bool is_found = false;

    assert_int_equal(item_read(open, &items[item], true, &is_found), READ_RIGHT);
}

static kvarve_statistics statistics_of(session *open)
{
    kvarve_statistics out = KVARVE_STATISTICS_INIT;

    assert_int_equal(kvarve_statistics_get(open->store, &out, NULL), KVARVE_OK);
    return out;
}

/* --- memory --- */

typedef struct failing {
    uint64_t number; /* of the allocation that fails */
    uint64_t count;  /* from there on; 1 or all */
    bool is_hit;
} failing;

static int fail_chosen(void *context, uint64_t number)
{
    failing *chosen = context;
    const bool fails = number >= chosen->number && number - chosen->number < chosen->count;

    chosen->is_hit = chosen->is_hit || fails;
    return !fails;
}

static bool run_without(stage *at, uint64_t number, uint64_t count, uint64_t *failed)
{
    const world_plan quiet = {.fault_step = WORLD_NEVER, .cut_change = WORLD_NEVER, .seed = number};
    failing chosen = {.number = number, .count = count};
    static run_result result;

    at->hook = fail_chosen;
    at->hook_context = &chosen;
    stage_run(at, &quiet, false, &result);
    if (number % 2 == 0) {
        world_kill(at->world);
        world_set_plan(at->world, &quiet);
    } else {
        world_restart(at->world, &quiet);
    }
    if (result.broken == NULL) {
        result.broken = stage_check(at, &result.known, number, number % 5 == 0);
    }
    if (result.broken != NULL && (*failed)++ < 10) {
        (void)printf("%s: %s: allocation %llu, %s\n", at->of->name, result.broken,
                     (unsigned long long)number, count == 1 ? "once" : "and all after it");
    }
    return chosen.is_hit;
}

static void test_store_limits__each_allocation_fails(void **state)
{
    uint64_t plans = 0;
    uint64_t failed = 0;

    (void)state;
    for (size_t i = 0; i < scenario_count; i++) {
        stage at;
        bool is_hit = true;

        stage_begin(&at, &scenarios[i]);
        for (uint64_t k = i % crash_stride(); is_hit; k += crash_stride()) {
            is_hit = run_without(&at, k, 1, &failed);
            plans++;
            if (k % 7 == 0) {
                (void)run_without(&at, k, UINT64_MAX, &failed);
                plans++;
            }
        }
        stage_end(&at);
    }
    (void)printf("%llu plans\n", (unsigned long long)plans);
    assert_true(plans > 1000 / crash_stride());
    assert_int_equal(failed, 0);
    assert_int_equal(kvarve_allocated_blocks(), 0);
}

/* --- room --- */

static void test_store_limits__a_full_disk_refuses_and_keeps(void **state)
{
    sim_world *world = world_create(11);
    session open;
    put_outcome outcome;

    (void)state;
    open_usual(&open, world);
    assert_int_equal(item_put(&open, &items[1]).state, KVARVE_PUT_DURABLE);
    assert_int_equal(item_put(&open, &items[2]).state, KVARVE_PUT_DURABLE);
    world_set_capacity(world, world_used_bytes(world) + 8192);
    outcome =
        item_put(&open, &items[3]); /* its class has no file, and two small pages do not help */
    assert_int_equal(outcome.state, KVARVE_PUT_ABORTED);
    assert_int_equal(outcome.refusal, KVARVE_REFUSED_NO_ROOM_FLASH);
    world_set_capacity(world, 1024 * MIB);
    world_advance(world, 60 * KVARVE_NS_PER_S);
    assert_int_equal(item_put(&open, &items[3]).state, KVARVE_PUT_DURABLE);
    assert_right(&open, 3);
    session_close(&open);
    world_restart(world, NULL);
    open_usual(&open, world);
    assert_right(&open, 3);
    session_close(&open);
    world_destroy(world);
}

/* The disk is as full as can be: no block for the log, and a put that needs an eviction first. */
static void test_store_limits__an_eviction_commits_on_a_full_disk(void **state)
{
    const model_limits small = {.flash_bytes_max = 2 * MIB};
    sim_world *world = world_create(12);
    session open;
    uint64_t evictions;

    (void)state;
    assert_int_equal(session_open(&open, world, MODEL_FOLDER, &small, NULL), KVARVE_OK);
    for (size_t i = 3; i < 6; i++) {
        assert_int_equal(item_put(&open, &items[i]).state, KVARVE_PUT_DURABLE);
    }
    evictions = statistics_of(&open).evictions;
    world_set_capacity(world, world_used_bytes(world));
    for (size_t i = 6; i >= 3; i--) { /* the same conversations push each other out */
        const put_outcome outcome = item_put(&open, &items[i]);

        assert_true(outcome.state == KVARVE_PUT_DURABLE || outcome.state == KVARVE_PUT_PRESENT);
        assert_right(&open, i);
    }
    assert_true(statistics_of(&open).evictions > evictions);
    session_close(&open);
    world_restart(world, NULL);
    assert_int_equal(session_open(&open, world, MODEL_FOLDER, &small, NULL), KVARVE_OK);
    assert_right(&open, 3);
    session_close(&open);
    world_destroy(world);
}

/* --- time --- */

static void test_store_limits__a_put_past_its_deadline_is_aborted(void **state)
{
    const world_plan slow = {.fault = WORLD_FAULT_SLOW,
                             .fault_ops = WORLD_OP_WRITE,
                             .fault_path = ".seg",
                             .slow_ns = 5 * KVARVE_NS_PER_S,
                             .cut_change = WORLD_NEVER};
    sim_world *world = world_create(13);
    kvarve_put *put = NULL;
    put_outcome outcome;
    session open;

    (void)state;
    open_usual(&open, world);
    assert_int_equal(item_put(&open, &items[1]).state, KVARVE_PUT_DURABLE);
    assert_int_equal(item_stage(&open, &items[2], 1000, &put, NULL), KVARVE_OK);
    assert_true(statistics_of(&open).puts_open == 1);
    world_set_plan(world, &slow);
    assert_int_equal(kvarve_put_ack(put, 0, NULL, 0, NULL), KVARVE_OK);
    assert_int_equal(kvarve_put_wait(put, KVARVE_PUT_DURABLE, KVARVE_NO_TIMEOUT, NULL),
                     KVARVE_MISS);
    assert_int_equal(kvarve_put_refusal(put), KVARVE_REFUSED_DEADLINE);
    assert_true(world_observe(world).fault_hit);
    kvarve_put_release(&put);
    world_poll_all(world);                /* the write comes back; what it used is free then */
    outcome = item_put(&open, &items[2]); /* where its commit had begun, it went on without us */
    assert_true(outcome.state == KVARVE_PUT_DURABLE || outcome.state == KVARVE_PUT_PRESENT);
    assert_right(&open, 1);
    assert_right(&open, 2);
    assert_int_equal(statistics_of(&open).puts_open, 0);
    session_close(&open);
    assert_int_equal(world_mappings(world), 0);
    world_destroy(world);
}

static void test_store_limits__a_put_that_nobody_fills_is_aborted(void **state)
{
    sim_world *world = world_create(14);
    kvarve_put *put = NULL;
    session open;
    uint64_t used;

    (void)state;
    open_usual(&open, world);
    used = statistics_of(&open).arena_bytes_used;
    assert_int_equal(item_stage(&open, &items[1], 1000, &put, NULL), KVARVE_OK);
    assert_true(statistics_of(&open).arena_bytes_used > used);
    world_advance(world, 2 * KVARVE_NS_PER_S);
    assert_int_equal(kvarve_put_wait(put, KVARVE_PUT_READY, 10, NULL), KVARVE_MISS);
    assert_int_equal(kvarve_put_refusal(put), KVARVE_REFUSED_DEADLINE);
    kvarve_put_release(&put);
    assert_int_equal(statistics_of(&open).arena_bytes_used, used);
    session_close(&open);
    world_destroy(world);
}

static void test_store_limits__a_load_past_its_deadline_fails(void **state)
{
    const world_plan slow = {.fault = WORLD_FAULT_SLOW,
                             .fault_ops = WORLD_OP_READ,
                             .fault_path = ".seg",
                             .slow_ns = 100 * KVARVE_NS_PER_S,
                             .cut_change = WORLD_NEVER};
    sim_world *world = world_create(15);
    kvarve_boundary boundary = {0};
    kvarve_lease *lease = NULL;
    kvarve_miss miss = {0};
    session open;

    (void)state;
    open_usual(&open, world);
    assert_int_equal(item_put(&open, &items[1]).state, KVARVE_PUT_DURABLE);
    session_close(&open);
    open_usual(&open, world);
    world_set_plan(world, &slow);
    assert_int_equal(item_find(&open, &items[1], KVARVE_LEASE_LOAD, &boundary, &lease, NULL),
                     KVARVE_OK);
    assert_int_equal(kvarve_lease_wait(lease, KVARVE_NO_TIMEOUT, &miss, NULL), KVARVE_MISS);
    assert_int_equal(miss.reason, KVARVE_MISS_DEADLINE);
    kvarve_lease_release(&lease);
    world_poll_all(world);
    assert_right(&open, 1);
    assert_int_equal(statistics_of(&open).leases_open, 0);
    session_close(&open);
    world_destroy(world);
}

static void test_store_limits__a_clock_that_jumps_changes_nothing(void **state)
{
    static const int64_t jumps[] = {0, 2000000000, 1, -5, 4102444800};
    sim_world *world = world_create(16);
    session open;

    (void)state;
    open_usual(&open, world);
    for (size_t i = 0; i < 5; i++) {
        world_set_wall(world, jumps[i]);
        assert_true(item_put(&open, &items[1 + i % 2]).state >= KVARVE_PUT_DURABLE);
        assert_right(&open, 1);
        session_close(&open);
        open_usual(&open, world);
    }
    assert_right(&open, 2);
    session_close(&open);
    world_destroy(world);
}

/* --- place --- */

static void test_store_limits__a_copied_folder_is_a_store_of_its_own(void **state)
{
    sim_world *world = world_create(17);
    session first;
    session second;

    (void)state;
    open_usual(&first, world);
    assert_int_equal(item_put(&first, &items[1]).state, KVARVE_PUT_DURABLE);
    session_close(&first);
    assert_int_equal(world_copy_folder(world, "s", "copy"), 0);
    open_usual(&first, world);
    assert_int_equal(session_open(&second, world, "/copy", &usual, NULL), KVARVE_OK);
    assert_right(&second, 1);
    assert_int_equal(item_put(&first, &items[2]).state, KVARVE_PUT_DURABLE);
    assert_int_equal(item_put(&second, &items[0]).state, KVARVE_PUT_DURABLE);
    session_close(&first);
    session_close(&second);
    world_restart(world, NULL);
    for (uint32_t flags = 0; flags <= KVARVE_OPEN_REBUILD; flags += KVARVE_OPEN_REBUILD) {
        model_limits limits = usual;
        bool is_found = true;

        limits.flags = flags;
        assert_int_equal(session_open(&first, world, MODEL_FOLDER, &limits, NULL), KVARVE_OK);
        assert_int_equal(session_open(&second, world, "/copy", &limits, NULL), KVARVE_OK);
        assert_right(&first, 1);
        assert_right(&first, 2);
        assert_right(&second, 0);
        assert_right(&second, 1);
        (void)item_read(&second, &items[2], false, &is_found);
        assert_false(is_found);
        session_close(&first);
        session_close(&second);
    }
    world_destroy(world);
}

static void test_store_limits__a_newer_version_is_left_alone(void **state)
{
    static const char newer[] = "kvarve-store 9999\nsomething new\ndigest ";
    char text[256];
    char before[256] = {0};
    char after[256] = {0};
    uint64_t changes;
    sim_world *world = world_create(18);
    kvarve_error err = {0};
    session open;
    page_digest digest;

    (void)state;
    open_usual(&open, world);
    assert_int_equal(item_put(&open, &items[1]).state, KVARVE_PUT_DURABLE);
    session_close(&open);
    digest = page_digest_of(newer, strlen(newer) - strlen("digest "));
    memcpy(text, newer, sizeof newer);
    hex_encode(text + strlen(newer), digest.bytes, sizeof digest.bytes);
    memcpy(text + strlen(newer) + 2 * sizeof digest.bytes, "\n", 2);
    assert_int_equal(world_put_file(world, "s/store", text, strlen(text)), 0);
    assert_int_equal(world_read(world, "s/store", 0, before, strlen(text)), 0);
    for (uint32_t flags = 0; flags <= KVARVE_OPEN_REBUILD; flags += KVARVE_OPEN_REBUILD) {
        model_limits limits = usual;

        limits.flags = flags;
        world_set_plan(world, NULL);
        assert_int_equal(session_open(&open, world, MODEL_FOLDER, &limits, &err),
                         KVARVE_UNSUPPORTED);
        changes = world_observe(world).changes;
        assert_true(changes <= 1); /* the lock file is opened */
        assert_non_null(strstr(err.text, "9999"));
    }
    assert_int_equal(world_read(world, "s/store", 0, after, strlen(text)), 0);
    assert_memory_equal(before, after, strlen(text));
    world_destroy(world);
}

static void test_store_limits__a_held_lock_names_its_owner(void **state)
{
    sim_world *world = world_create(19);
    kvarve_error err = {0};
    session open;

    (void)state;
    open_usual(&open, world);
    session_close(&open);
    assert_int_equal(world_lock_as_other(world, "s/lock", 4711), 0);
    assert_int_equal(session_open(&open, world, MODEL_FOLDER, &usual, &err), KVARVE_BUSY);
    assert_non_null(strstr(err.text, "4711"));
    assert_int_equal(world_open_descriptors(world), 0);
    assert_int_equal(world_lock_as_other(world, "s/lock", 0), 0);
    open_usual(&open, world);
    session_close(&open);
    world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_limits__each_allocation_fails),
        cmocka_unit_test(test_store_limits__a_full_disk_refuses_and_keeps),
        cmocka_unit_test(test_store_limits__an_eviction_commits_on_a_full_disk),
        cmocka_unit_test(test_store_limits__a_put_past_its_deadline_is_aborted),
        cmocka_unit_test(test_store_limits__a_put_that_nobody_fills_is_aborted),
        cmocka_unit_test(test_store_limits__a_load_past_its_deadline_fails),
        cmocka_unit_test(test_store_limits__a_clock_that_jumps_changes_nothing),
        cmocka_unit_test(test_store_limits__a_copied_folder_is_a_store_of_its_own),
        cmocka_unit_test(test_store_limits__a_newer_version_is_left_alone),
        cmocka_unit_test(test_store_limits__a_held_lock_names_its_owner),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
