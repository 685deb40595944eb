/*
 * test_bulk.c - many small puts at once are few writes, and each of them still ends.
 *
 * A store in the simulated host.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/store/store_kit.h"

#define PUTS        150u
#define STATE_BYTES 64u

static const engine_layout tiny = {
    .identity = "{\"model\":\"tiny\"}",
    .ranks = 1,
    .group_count = 1,
    .groups = {{.page_class = KVARVE_CLASS_ENDPOINT, .page_bytes = STATE_BYTES}},
};

/* A plan that changes nothing and counts writes to segment files. */
static void count_writes(sim_world *world)
{
    world_plan plan = WORLD_PLAN_QUIET;

    plan.fault_ops = WORLD_OP_WRITE;
    plan.fault_path = "segments";
    world_set_plan(world, &plan);
}

/* One checkpoint after each of the first tokens. */
static void put_many(fixture *f)
{
    static const uint8_t bytes[STATE_BYTES] = {1};
    const kvarve_section section = {.bytes = bytes, .size = sizeof bytes};
    kvarve_put_options options[PUTS];
    kvarve_bulk_item items[PUTS];

    for (uint32_t i = 0; i < PUTS; i++) {
        options[i] = (kvarve_put_options)KVARVE_PUT_OPTIONS_INIT;
        options[i].tokens = i + 1;
        options[i].timeout_ms = WAIT_MS;
        items[i] = (kvarve_bulk_item){
            .prefix = f->prefix, .options = &options[i], .sections = &section, .section_count = 1};
    }
    assert_ok(kvarve_put_many(f->at.space, items, PUTS, &err));
    for (uint32_t i = 0; i < PUTS; i++) {
        assert_int_equal(items[i].out_state, KVARVE_PUT_DURABLE);
    }
}

static void test_put_many__of_small_pages_writes_a_few_times(void **state)
{
    fixture f;

    (void)state;
    begin_test(&f, &tiny);
    count_writes(f.world);
    put_many(&f);
    assert_int_equal(statistics(&f).checkpoints, PUTS);
    assert_in_range(world_observe(f.world).steps, 2, PUTS / 5);
    end_test(&f);
}

/* Pages that wait for company while writes are in flight are not forgotten when those fail. */
static void test_put_many__ends_when_writes_fail(void **state)
{
    static const uint8_t bytes[STATE_BYTES] = {1};
    fixture f;
    world_plan plan = WORLD_PLAN_QUIET;
    kvarve_put *puts[16] = {NULL};

    (void)state;
    begin_test(&f, &tiny);
    const engine_state first = state_at(&f, 200); /* makes the segment file */

    assert_int_equal(put(&f, &first), KVARVE_PUT_DURABLE);
    plan.fault = WORLD_FAULT_ERROR;
    plan.fault_ops = WORLD_OP_WRITE;
    plan.fault_path = "segments";
    plan.fault_step = 0;
    plan.fault_count = 4;
    world_set_plan(f.world, &plan);
    for (uint32_t i = 0; i < 16; i++) {
        const engine_state here = state_at(&f, i + 1);

        puts[i] = begin(&f, &here);
        assert_ok(kvarve_put_write(puts[i], 0, 0, 0, bytes, sizeof bytes, &err));
        assert_ok(kvarve_put_ack(puts[i], 0, NULL, 0, &err));
    }
    for (uint32_t i = 0; i < 16; i++) {
        (void)!kvarve_put_wait(puts[i], KVARVE_PUT_DURABLE, WAIT_MS, NULL);
        assert_in_set(kvarve_put_status(puts[i]),
                      ((const uintmax_t[]){KVARVE_PUT_DURABLE, KVARVE_PUT_ABORTED}), 2);
        kvarve_put_release(&puts[i]);
    }
    assert_true(world_observe(f.world).fault_hit);
    assert_int_equal(statistics(&f).puts_open, 0);
    end_test(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put_many__of_small_pages_writes_a_few_times),
        cmocka_unit_test(test_put_many__ends_when_writes_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
