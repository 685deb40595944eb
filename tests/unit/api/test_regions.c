/*
 * test_regions.c - bytes from an engine's registered memory and back, by block ids.
 *
 * Two ranks, a replicated window whose pages are divided among them, blocks smaller and larger than
 * pages (tests/crash/store_paged.c, which says by docs/format/pages.md where each byte lies).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "crash/store_flight.h"

static const model_limits usual = {.arena_bytes = 0};

static void assert_restores(session *open, const model_item *item)
{
    bool is_found = false;

    assert_int_equal(item_read(open, item, false, &is_found), READ_RIGHT);
    assert_int_equal(item_read(open, item, true, &is_found), READ_RIGHT);
    assert_int_equal(item_restore_paged(open, item, &is_found), READ_RIGHT);
}

static void put_from_regions(session *open, const model_item *item)
{
    flight one = {.lane = 0};

    assert_int_equal(flight_begin(open, &one, item, false), KVARVE_OK);
    flight_submit(&one);
    assert_int_equal(flight_settle(&one).state, KVARVE_PUT_DURABLE);
}

/* The window begins at 16, 24 and 40: the first of its pages is now the one rank's, now the
 * other's. */
static void test_regions__a_window_begins_at_its_first_page_for_every_rank(void **state)
{
    static const model_item items[] = {
        {.layout = LAYOUT_PAGED, .conversation = 2, .kind = 2, .tokens = 40},
        {.layout = LAYOUT_PAGED, .conversation = 3, .kind = 2, .tokens = 50},
        {.layout = LAYOUT_PAGED, .conversation = 2, .kind = 2, .tokens = 64},
    };
    sim_world *world = world_create(1);
    session open;

    (void)state;
    assert_int_equal(session_open(&open, world, MODEL_FOLDER, &usual, NULL), KVARVE_OK);
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
        put_from_regions(&open, &items[i]);
        assert_restores(&open, &items[i]);
    }
    session_close(&open);
    world_destroy(world);
}

/* store_paged.c overwrites its lists of ids as soon as the call is back. */
static void test_regions__block_ids_are_read_during_the_call_alone(void **state)
{
    static const model_item item = {
        .layout = LAYOUT_PAGED, .conversation = 4, .kind = 2, .tokens = 72};
    sim_world *world = world_create(2);
    session open;

    (void)state;
    assert_int_equal(session_open(&open, world, MODEL_FOLDER, &usual, NULL), KVARVE_OK);
    put_from_regions(&open, &item);
    assert_restores(&open, &item);
    session_close(&open);
    world_destroy(world);
    assert_int_equal(kvarve_allocated_blocks(), 0);
}

/* A put that is let go of waits for its copies: they read the caller's memory. */
static void test_regions__a_put_given_up_while_it_copies_leaves_nothing(void **state)
{
    static const model_item item = {
        .layout = LAYOUT_PAGED, .conversation = 5, .kind = 2, .tokens = 72};
    kvarve_statistics statistics = KVARVE_STATISTICS_INIT;
    sim_world *world = world_create(3);
    flight one = {.lane = 1};
    session open;

    (void)state;
    assert_int_equal(session_open(&open, world, MODEL_FOLDER, &usual, NULL), KVARVE_OK);
    assert_int_equal(flight_begin(&open, &one, &item, false), KVARVE_OK);
    flight_submit(&one);
    assert_int_equal(flight_stop(&one, FLIGHT_ABORT).state, KVARVE_PUT_ABORTED);
    assert_int_equal(kvarve_statistics_get(open.store, &statistics, NULL), KVARVE_OK);
    assert_int_equal(statistics.puts_open, 0);
    assert_int_equal(statistics.pages, 0);
    put_from_regions(&open, &item);
    assert_restores(&open, &item);
    session_close(&open);
    world_destroy(world);
    assert_int_equal(kvarve_allocated_blocks(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regions__a_window_begins_at_its_first_page_for_every_rank),
        cmocka_unit_test(test_regions__block_ids_are_read_during_the_call_alone),
        cmocka_unit_test(test_regions__a_put_given_up_while_it_copies_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
