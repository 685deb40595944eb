/*
 * test_recency.c - the order of last use survives closing and opening.
 *
 * A store in the simulated host.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/store/store_kit.h"

#define COUNT 5u

static const uint64_t boundaries[COUNT] = {40, 60, 80, 100, 120};

typedef struct listing {
    uint64_t tokens[COUNT];
    size_t count;
} listing;

static int note(void *context, const kvarve_checkpoint_info *info)
{
    listing *all = context;

    assert_true(all->count < COUNT);
    all->tokens[all->count++] = info->tokens;
    return 1;
}

/* Most recently used first. */
static void assert_order(const fixture *f, const uint64_t expected[COUNT])
{
    listing all = {.count = 0};

    assert_ok(kvarve_list_checkpoints(f->store, note, &all, &err));
    assert_int_equal(all.count, COUNT);
    assert_memory_equal(all.tokens, expected, sizeof all.tokens);
}

static void use(fixture *f, uint64_t tokens)
{
    kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
    kvarve_boundary found;
    size_t count = 0;

    options.max_tokens = tokens;
    assert_ok(kvarve_find(f->at.space, f->prefix, &options, &found, 1, &count, NULL, NULL, &err));
    assert_int_equal(found.tokens, tokens);
}

static void test_open__keeps_the_order_of_last_use(void **state)
{
    static const uint64_t as_put[COUNT] = {120, 100, 80, 60, 40};
    static const uint64_t as_used[COUNT] = {60, 100, 120, 80, 40};
    fixture f;

    (void)state;
    begin_test(&f, &engine_plain);
    for (size_t i = 0; i < COUNT; i++) {
        const engine_state here = state_at(&f, boundaries[i]);

        assert_int_equal(put(&f, &here), KVARVE_PUT_DURABLE);
    }
    assert_order(&f, as_put);
    close_store(&f);
    open_store(&f, &engine_plain);
    assert_order(&f, as_put);
    use(&f, 100);
    use(&f, 60);
    assert_order(&f, as_used);
    close_store(&f);
    open_store(&f, &engine_plain);
    assert_order(&f, as_used);
    end_test(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open__keeps_the_order_of_last_use),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
