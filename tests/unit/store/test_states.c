/*
 * test_states.c - what is said of a checkpoint is so: READY while any of it is not recorded,
 * DURABLE only then; and a damaged page is never either.
 *
 * A store in the simulated host.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/store/store_kit.h"

/* The state that find tells of the longest boundary. */
static uint32_t found_state(fixture *f, uint64_t max_tokens, kvarve_boundary *out)
{
    kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
    size_t count = 0;

    options.max_tokens = max_tokens;
    assert_ok(kvarve_find(f->at.space, f->prefix, &options, out, 1, &count, NULL, NULL, &err));
    return out->state;
}

static kvarve_put *begin_ready(fixture *f, const engine_state *state)
{
    kvarve_put *made = begin(f, state);

    assert_ok(engine_put_ranks(&f->at, made, state, NULL, &err));
    assert_ok(kvarve_put_wait(made, KVARVE_PUT_READY, WAIT_MS, &err));
    assert_int_equal(kvarve_put_status(made), KVARVE_PUT_READY);
    return made;
}

static void make_durable(kvarve_put **ready)
{
    assert_ok(kvarve_put_wait(*ready, KVARVE_PUT_DURABLE, WAIT_MS, &err));
    kvarve_put_release(ready);
}

static void test_find__a_derived_boundary_is_ready_until_its_span_is_recorded(void **state)
{
    fixture f;
    kvarve_boundary found;
    kvarve_put *made;

    (void)state;
    begin_test(&f, &engine_dense);
    const engine_state here = state_at(&f, 70);

    made = begin_ready(&f, &here);
    assert_int_equal(found_state(&f, 69, &found), KVARVE_PUT_READY);
    assert_int_equal(found.flags, KVARVE_BOUNDARY_DERIVED);
    assert_int_equal(found.tokens, 64);
    make_durable(&made);
    assert_int_equal(found_state(&f, 69, &found), KVARVE_PUT_DURABLE);
    assert_int_equal(found.flags, KVARVE_BOUNDARY_DERIVED);
    end_test(&f);
}

static void test_find__with_a_draft_half_that_is_not_recorded_is_ready(void **state)
{
    fixture f;
    kvarve_boundary found;
    kvarve_put *made;

    (void)state;
    begin_test(&f, &engine_drafted);
    const engine_state here = state_at(&f, 70);
    const engine_state base = {.prefix = f.prefix, .tokens = 70, .has_no_optional = true};

    assert_int_equal(put(&f, &base), KVARVE_PUT_DURABLE);
    made = begin_ready(&f, &here);
    assert_int_equal(found_state(&f, 0, &found), KVARVE_PUT_READY);
    assert_int_equal(found.flags, KVARVE_BOUNDARY_DRAFT);
    make_durable(&made);
    assert_int_equal(found_state(&f, 0, &found), KVARVE_PUT_DURABLE);
    end_test(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find__a_derived_boundary_is_ready_until_its_span_is_recorded),
        cmocka_unit_test(test_find__with_a_draft_half_that_is_not_recorded_is_ready),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
