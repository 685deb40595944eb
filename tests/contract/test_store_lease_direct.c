/*
 * test_store_lease_direct.c - what reads into the caller's own memory promise, through each door.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdalign.h>
#include <string.h>

#include "contract/steps.h"

#define PAGE_BYTES  131072u
#define PAGES       40u
#define CANARY      0xa5
#define HOUR_NS     (UINT64_C(3600) * 1000000000)
#define PARTIAL     70u /* tokens: four pages and a part of the fifth */
#define PARTIAL_END (6u * (PAGE_BYTES / 16))

/* Attention pages of 16 tokens in 128 KiB, and a state that fills no whole number of blocks. */
static const engine_layout wide = {
    .identity = "{\"model\":\"wide\"}",
    .ranks = 1,
    .group_count = 2,
    .groups = {{.page_class = KVARVE_CLASS_PREFIX,
                .flags = KVARVE_GROUP_ROWS,
                .span_tokens = 16,
                .page_bytes = PAGE_BYTES},
               {.page_class = KVARVE_CLASS_ENDPOINT, .page_bytes = 200000}}};

static alignas(4096) uint8_t room[PAGES * PAGE_BYTES + 4096];

/* A state larger than the arena goes in as an open put, a part at a time. */
static void put_large(const engine *machine, const kvarve_prefix *prefix, uint64_t tokens)
{
    engine_state here = {.prefix = prefix};
    kvarve_put *open = begin(machine, &here, NULL);

    for (here.tokens = 160; here.tokens < tokens; here.tokens += 160) {
        assert_ok(engine_put_extend(machine, open, &here, &err));
        assert_ok(kvarve_put_wait(open, KVARVE_PUT_STAGED, 10000, &err));
        assert_ok(engine_put_ranks(machine, open, &here, NULL, &err));
        assert_ok(kvarve_put_wait(open, KVARVE_PUT_STAGED, 10000, &err));
    }
    here.tokens = tokens;
    assert_ok(engine_put_close(machine, open, &here, &err));
    assert_ok(kvarve_put_wait(open, KVARVE_PUT_STAGED, 10000, &err));
    assert_ok(engine_put_ranks(machine, open, &here, NULL, &err));
    assert_ok(kvarve_put_wait(open, KVARVE_PUT_DURABLE, 10000, &err));
    kvarve_put_release(&open);
}

static void assert_pages(const engine *machine, const engine_state *here, uint64_t first,
                         uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        assert_true(
            engine_is_right(machine, here, 0, 0, first + i, room + i * PAGE_BYTES, PAGE_BYTES));
    }
}

static void test_direct__reads_past_the_arena(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(1, 16 * PAGES);
    engine machine = open_engine(at, &wide);
    const engine_state here = {.prefix = prefix, .tokens = 16 * PAGES};
    kvarve_lease *lease = NULL;

    put_large(&machine, prefix, here.tokens);
    engine_close(&machine);
    door_reopen(at);
    machine = open_engine(at, &wide);
    memset(room, CANARY, sizeof room);
    assert_ok(engine_find(&machine, &here, KVARVE_LEASE_SOFT, NULL, &lease, NULL, &err));
    assert_ok(kvarve_lease_read_direct(lease, 0, 0, 0, room, PAGES * PAGE_BYTES, &err));
    assert_pages(&machine, &here, 0, PAGES);
    for (size_t i = PAGES * PAGE_BYTES; i < sizeof room; i++) {
        assert_int_equal(room[i], CANARY);
    }
    if (!at->is_client) { /* to which flash is closed */
        assert_int_equal(door_statistics(at).arena_bytes_used, 0);
    }
    kvarve_lease_release(&lease);
    assert_int_equal(door_statistics(at).leases_open, 0);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_direct__takes_from_the_arena_what_is_there(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(2, PARTIAL);
    engine machine = open_engine(at, &wide);
    const engine_state here = {.prefix = prefix, .tokens = PARTIAL};
    kvarve_lease *lease = NULL;
    static alignas(4096) uint8_t one[PAGE_BYTES];

    assert_int_equal(put(&machine, &here), KVARVE_PUT_DURABLE);
    engine_close(&machine);
    door_reopen(at);
    machine = open_engine(at, &wide);
    assert_ok(engine_find(&machine, &here, KVARVE_LEASE_SOFT, NULL, &lease, NULL, &err));
    assert_ok(kvarve_lease_read(lease, 0, 0, 2, one, sizeof one, &err)); /* into the arena */
    memset(room, CANARY, sizeof room);
    assert_ok(kvarve_lease_read_direct(lease, 0, 0, 0, room, 4 * PAGE_BYTES + PARTIAL_END, &err));
    assert_pages(&machine, &here, 0, 4);
    assert_true(
        engine_is_right(&machine, &here, 0, 0, 4, room + (size_t)4 * PAGE_BYTES, PARTIAL_END));
    assert_int_equal(room[4 * PAGE_BYTES + PARTIAL_END], CANARY);
    /* A page that ends inside a block is never read over the end of the room. */
    memset(room, CANARY, sizeof room);
    assert_ok(kvarve_lease_read_direct(lease, 0, 1, 0, room, 200000, &err));
    assert_true(engine_is_right(&machine, &here, 0, 1, 0, room, 200000));
    assert_int_equal(room[200000], CANARY);
    kvarve_lease_release(&lease);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_direct__says_what_is_wrong_with_a_call(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(3, 64);
    engine machine = open_engine(at, &wide);
    const engine_state here = {.prefix = prefix, .tokens = 64};
    kvarve_lease *lease = NULL;

    assert_int_equal(put(&machine, &here), KVARVE_PUT_DURABLE);
    engine_close(&machine);
    door_reopen(at);
    machine = open_engine(at, &wide);
    assert_ok(engine_find(&machine, &here, KVARVE_LEASE_SOFT, NULL, &lease, NULL, &err));
#define SAYS_INVALID(rank, group, position, bytes, size)                                           \
    assert_int_equal(kvarve_lease_read_direct(lease, rank, group, position, bytes, size, &err),    \
                     KVARVE_INVALID)
    SAYS_INVALID(0, 0, 0, room + 16, PAGE_BYTES);
    SAYS_INVALID(0, 0, 0, NULL, PAGE_BYTES);
    SAYS_INVALID(0, 0, 0, room, 0);
    SAYS_INVALID(0, 0, 0, room, PAGE_BYTES - 1);
    SAYS_INVALID(0, 0, 4, room, PAGE_BYTES);
    SAYS_INVALID(0, 0, UINT64_MAX, room, PAGE_BYTES);
    SAYS_INVALID(0, 2, 0, room, PAGE_BYTES);
    SAYS_INVALID(1, 0, 0, room, PAGE_BYTES);
    assert_int_equal(kvarve_lease_read_direct(NULL, 0, 0, 0, room, PAGE_BYTES, &err),
                     KVARVE_INVALID);
    assert_ok(kvarve_lease_read_direct(lease, 0, 0, 1, room, PAGE_BYTES, &err));
    assert_pages(&machine, &here, 1, 1);
    kvarve_lease_release(&lease);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_direct__wrong_bytes_are_a_miss_until_they_are_written_again(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(4, 64);
    engine machine = open_engine(at, &wide);
    const engine_state here = {.prefix = prefix, .tokens = 64};
    kvarve_lease *lease = NULL;
    kvarve_miss miss = {0};

    assert_int_equal(put(&machine, &here), KVARVE_PUT_DURABLE);
    engine_fill(&machine, &here, 0, 0, 2, room);
    engine_close(&machine);
    door_close(at);
    assert_int_equal(door_damage_page(at, room, PAGE_BYTES), 1);
    door_open(at);
    machine = open_engine(at, &wide);
    assert_ok(engine_find(&machine, &here, KVARVE_LEASE_SOFT, NULL, &lease, NULL, &err));
    assert_int_equal(kvarve_lease_read_direct(lease, 0, 0, 0, room, 4 * PAGE_BYTES, &err),
                     KVARVE_MISS);
    assert_int_equal(kvarve_lease_read_direct(lease, 0, 0, 0, room, 4 * PAGE_BYTES, &err),
                     KVARVE_MISS);
    kvarve_lease_release(&lease);
    assert_int_equal(engine_find(&machine, &here, KVARVE_LEASE_SOFT, NULL, &lease, &miss, &err),
                     KVARVE_MISS);
    assert_int_equal(miss.reason, KVARVE_MISS_DAMAGED);
    assert_int_equal(put(&machine, &here), KVARVE_PUT_DURABLE);
    engine_close(&machine);
    door_reopen(at);
    machine = open_engine(at, &wide);
    assert_ok(engine_find(&machine, &here, KVARVE_LEASE_SOFT, NULL, &lease, NULL, &err));
    assert_ok(kvarve_lease_read_direct(lease, 0, 0, 0, room, 4 * PAGE_BYTES, &err));
    assert_pages(&machine, &here, 0, 4);
    kvarve_lease_release(&lease);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

/* A loaded lease of which one reader found a page wrong is a miss for all of them. */
static void test_lease__damage_that_one_reader_meets_is_a_miss_for_the_next(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(6, 64);
    engine machine = open_engine(at, &wide);
    const engine_state here = {.prefix = prefix, .tokens = 64};
    kvarve_lease *lease = NULL;
    kvarve_page_view views[8];
    size_t count = 0;

    assert_int_equal(put(&machine, &here), KVARVE_PUT_DURABLE);
    engine_fill(&machine, &here, 0, 0, 2, room);
    engine_close(&machine);
    door_close(at);
    assert_int_equal(door_damage_page(at, room, PAGE_BYTES), 1);
    door_open(at);
    machine = open_engine(at, &wide);
    assert_ok(engine_find(&machine, &here, KVARVE_LEASE_LOAD, NULL, &lease, NULL, &err));
    assert_ok(kvarve_lease_wait(lease, 10000, NULL, &err));
    assert_int_equal(kvarve_lease_read(lease, 0, 0, 2, room, PAGE_BYTES, &err), KVARVE_MISS);
    assert_int_equal(kvarve_lease_pages(lease, 0, views, 8, &count, &err), KVARVE_MISS);
    kvarve_lease_release(&lease);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

/* The disk takes an hour: the call ends, the read goes on, and its end is told, whether the lease
 * is still there or not. */
static void test_direct__a_late_read_is_told_when_it_is_over(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(5, 16 * PAGES);
    engine machine = open_engine(at, &wide);
    const engine_state here = {.prefix = prefix, .tokens = 16 * PAGES};
    const world_plan slow = {.fault_step = 0,
                             .fault_ops = WORLD_OP_READ,
                             .fault_path = ".seg",
                             .fault = WORLD_FAULT_SLOW,
                             .slow_ns = HOUR_NS,
                             .cut_change = WORLD_NEVER};

    put_large(&machine, prefix, here.tokens);
    engine_close(&machine);
    for (int is_released = 0; is_released < 2 && at->world != NULL && !at->is_client;
         is_released++) {
        kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
        kvarve_lease *lease = NULL;
        kvarve_event event = {0};

        door_reopen(at);
        machine = open_engine(at, &wide);
        options.lease = KVARVE_LEASE_SOFT;
        options.cookie = 9;
        assert_ok(kvarve_find(machine.space, prefix, &options, NULL, 0, NULL, &lease, NULL, &err));
        world_set_plan(at->world, &slow);
        assert_int_equal(kvarve_lease_read_direct(lease, 0, 0, 0, room, PAGES * PAGE_BYTES, &err),
                         KVARVE_BUSY);
        world_set_plan(at->world, NULL);
        assert_int_equal(kvarve_next_event(at->store, &event), KVARVE_MISS);
        assert_int_equal(kvarve_lease_read_direct(lease, 0, 0, 0, room, PAGE_BYTES, &err),
                         KVARVE_INVALID);
        if (is_released != 0) {
            kvarve_lease_release(&lease);
            assert_ok(engine_restore(&machine, &here, false, &err)); /* the store goes on */
        } else {
            assert_int_equal(kvarve_lease_copy_wait(lease, 0, 10000, &err), KVARVE_MISS);
        }
        assert_ok(kvarve_next_event(at->store, &event));
        assert_int_equal(event.kind, KVARVE_EVENT_COPIED);
        assert_int_equal(event.status, KVARVE_MISS);
        assert_int_equal(event.cookie, 9);
        kvarve_lease_release(&lease);
        assert_int_equal(door_statistics(at).leases_open, 0);
        engine_close(&machine);
    }
    kvarve_prefix_free(prefix);
}

static const door_test tests[] = {
    DOOR_TEST(test_direct__reads_past_the_arena),
    DOOR_TEST(test_direct__takes_from_the_arena_what_is_there),
    DOOR_TEST(test_direct__says_what_is_wrong_with_a_call),
    DOOR_TEST(test_direct__wrong_bytes_are_a_miss_until_they_are_written_again),
    DOOR_TEST(test_lease__damage_that_one_reader_meets_is_a_miss_for_the_next),
    DOOR_TEST(test_direct__a_late_read_is_told_when_it_is_over),
};

int main(void)
{
    return door_run("lease_direct", tests, sizeof tests / sizeof tests[0]);
}
