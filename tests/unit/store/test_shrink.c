/*
 * test_shrink.c - a store that is opened with a smaller cap than before gets down to it by itself.
 *
 * A store in the simulated host.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "api/api_private.h"
#include "embedded/embedded.h"
#include "unit/store/store_kit.h"

#define STATES 30u /* of a megabyte each */

static const engine_layout layout_large = {
    .identity = "{\"model\":\"large\"}",
    .ranks = 1,
    .group_count = 1,
    .groups = {{.page_class = KVARVE_CLASS_ENDPOINT, .page_bytes = 1 << 20}}};

static uint64_t used(const fixture *f)
{
    const kvarve_statistics now = statistics(f);

    return now.segment_bytes + now.index_database_bytes + now.index_log_bytes;
}

static void begin_full(fixture *f)
{
    begin_test(f, &layout_large);
    for (uint64_t i = 0; i < STATES; i++) {
        const engine_state here = state_at(f, 100 + i);

        assert_int_equal(put(f, &here), KVARVE_PUT_DURABLE);
    }
    assert_true(used(f) > STATES * MIB);
    close_store(f);
    f->options.flash_bytes_max = 16 * MIB;
}

/* As the store's thread does. */
static void poll_all(fixture *f)
{
    kvarve_executor *executor = world_env(f->world)->executor;
    embedded *host = (embedded *)(void *)f->store->door;

    while (store_poll(embedded_store(host)) || executor->pending(executor) > 0) {
    }
}

static void test_open__with_a_smaller_cap_evicts_down_to_it(void **state)
{
    fixture f;

    (void)state;
    begin_full(&f);
    open_store(&f, &layout_large);
    const engine_state oldest = state_at(&f, 100);
    const engine_state newest = state_at(&f, 100 + STATES - 1);
    const engine_state another = state_at(&f, 50);

    poll_all(&f);
    assert_true(used(&f) <= 16 * MIB);
    assert_true(world_used_bytes(f.world) <= 22 * MIB); /* with the reserve of the old cap */
    assert_true(statistics(&f).checkpoints >= 8);       /* and not more than it takes */
    assert_int_equal(engine_find(&f.at, &oldest, KVARVE_LEASE_NONE, NULL, NULL, NULL, &err),
                     KVARVE_MISS);
    assert_ok(engine_restore(&f.at, &newest, true, &err));
    assert_int_equal(put(&f, &another), KVARVE_PUT_DURABLE);
    assert_true(used(&f) <= 16 * MIB);
    end_test(&f);
}

/* What is leased stays, and goes when it no longer is. */
static void test_open__with_a_smaller_cap_keeps_what_is_leased(void **state)
{
    kvarve_lease *leases[STATES] = {NULL};
    fixture f;

    (void)state;
    begin_full(&f);
    open_store(&f, &layout_large);
    for (uint64_t i = 0; i < STATES; i++) {
        const engine_state here = state_at(&f, 100 + i);

        assert_ok(engine_find(&f.at, &here, KVARVE_LEASE_SOFT, NULL, &leases[i], NULL, &err));
    }
    poll_all(&f);
    assert_int_equal(statistics(&f).checkpoints, STATES);
    for (uint64_t i = 0; i < STATES; i++) {
        kvarve_lease_release(&leases[i]);
    }
    world_advance(f.world, 11 * KVARVE_NS_PER_S);
    poll_all(&f);
    assert_true(used(&f) <= 16 * MIB);
    end_test(&f);
}

/* Where no holes can be made, dropping more and more would not help. */
static void test_open__with_a_smaller_cap_stops_where_space_does_not_come_back(void **state)
{
    const world_plan plan = {.fault_step = 0,
                             .fault_count = 1000000,
                             .fault_ops = WORLD_OP_PUNCH | WORLD_OP_UNLINK,
                             .fault_path = ".seg",
                             .fault_errno = EOPNOTSUPP,
                             .cut_change = WORLD_NEVER};
    fixture f;

    (void)state;
    begin_full(&f);
    world_set_plan(f.world, &plan);
    open_store(&f, &layout_large);
    poll_all(&f);
    assert_true(statistics(&f).checkpoints >= 8);
    assert_true(statistics(&f).evictions > 0);
    world_set_plan(f.world, NULL);
    end_test(&f);
}

static void test_open__for_reading_with_a_smaller_cap_changes_nothing(void **state)
{
    fixture f;

    (void)state;
    begin_full(&f);
    f.options.flags = KVARVE_OPEN_READ_ONLY;
    open_store(&f, &layout_large);
    poll_all(&f);
    assert_int_equal(statistics(&f).checkpoints, STATES);
    end_test(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open__with_a_smaller_cap_evicts_down_to_it),
        cmocka_unit_test(test_open__with_a_smaller_cap_keeps_what_is_leased),
        cmocka_unit_test(test_open__with_a_smaller_cap_stops_where_space_does_not_come_back),
        cmocka_unit_test(test_open__for_reading_with_a_smaller_cap_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
