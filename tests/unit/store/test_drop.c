/*
 * test_drop.c - what a caller dropped does not come back, also when the index is made anew.
 *
 * A store in the simulated host.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/store/store_kit.h"

static void drop(fixture *f, const engine_state *state)
{
    kvarve_boundary found;

    assert_ok(engine_find(&f->at, state, KVARVE_LEASE_NONE, &found, NULL, NULL, &err));
    assert_ok(kvarve_drop(f->store, found.id, &err));
}

static void rebuild(fixture *f)
{
    close_store(f);
    f->options.flags = KVARVE_OPEN_REBUILD;
    open_store(f, &engine_plain);
    f->options.flags = 0;
}

static void assert_missed(fixture *f, const engine_state *state)
{
    assert_int_equal(engine_find(&f->at, state, KVARVE_LEASE_NONE, NULL, NULL, NULL, &err),
                     KVARVE_MISS);
}

/* It was alone in its record, whose blocks nobody has used since. */
static void test_drop__stays_dropped_when_its_record_died_with_it(void **state)
{
    fixture f;
    kvarve_prefix *others = engine_prefix(2, 200);

    (void)state;
    begin_test(&f, &engine_plain);
    const engine_state gone = {.prefix = others, .tokens = 70};
    const engine_state kept = state_at(&f, 70);

    assert_int_equal(put(&f, &gone), KVARVE_PUT_DURABLE);
    assert_int_equal(put(&f, &kept), KVARVE_PUT_DURABLE);
    drop(&f, &gone);
    rebuild(&f);
    assert_missed(&f, &gone);
    assert_ok(engine_restore(&f.at, &kept, true, &err));
    kvarve_prefix_free(others);
    end_test(&f);
}

/* Its record lives on for what others name, and no put has written one since. */
static void test_drop__stays_dropped_when_its_record_lives_on(void **state)
{
    fixture f;

    (void)state;
    begin_test(&f, &engine_plain);
    const engine_state gone = state_at(&f, 70);
    const engine_state longer = state_at(&f, 100);
    const engine_state longest = state_at(&f, 130);

    assert_int_equal(put(&f, &gone), KVARVE_PUT_DURABLE);
    assert_int_equal(put(&f, &longer), KVARVE_PUT_DURABLE); /* on the spans of that one */
    drop(&f, &gone);
    for (int i = 0; i < 2; i++) {
        rebuild(&f);
        assert_missed(&f, &gone);
        assert_ok(engine_restore(&f.at, &longer, false, &err));
    }
    assert_int_equal(put(&f, &longest), KVARVE_PUT_DURABLE);
    assert_int_equal(put(&f, &gone), KVARVE_PUT_DURABLE); /* it may come again */
    rebuild(&f);
    assert_ok(engine_restore(&f.at, &gone, false, &err));
    assert_ok(engine_restore(&f.at, &longest, false, &err));
    end_test(&f);
}

/* The index's log is lost, and with it what it knew of the drop. */
static void test_drop__stays_dropped_when_the_log_of_the_index_is_lost(void **state)
{
    fixture f;

    (void)state;
    begin_test(&f, &engine_plain);
    for (uint64_t tokens = 100; tokens < 180; tokens++) {
        const engine_state here = state_at(&f, tokens);

        assert_int_equal(put(&f, &here), KVARVE_PUT_DURABLE);
    }
    const engine_state first = state_at(&f, 100);
    const engine_state last = state_at(&f, 179);

    drop(&f, &first);
    drop(&f, &last);
    close_store(&f);
    assert_int_equal(world_remove(f.world, "store/index.db-wal"), 0);
    f.options.flags = KVARVE_OPEN_REBUILD;
    open_store(&f, &engine_plain);
    assert_missed(&f, &first);
    assert_missed(&f, &last);
    assert_int_equal(statistics(&f).checkpoints, 78);
    end_test(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drop__stays_dropped_when_its_record_died_with_it),
        cmocka_unit_test(test_drop__stays_dropped_when_its_record_lives_on),
        cmocka_unit_test(test_drop__stays_dropped_when_the_log_of_the_index_is_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
