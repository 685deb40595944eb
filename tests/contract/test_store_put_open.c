/*
 * test_store_put_open.c - puts that begin before their boundary is known, through each door.
 *
 * They pass through an arena that is smaller than their state, and end as a put that knew its
 * boundary from the beginning does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "contract/steps.h"

static void fill_stage(const engine *machine, kvarve_put *open, const engine_state *stage)
{
    assert_ok(kvarve_put_wait(open, KVARVE_PUT_STAGED, 10000, &err));
    assert_ok(engine_put_ranks(machine, open, stage, NULL, &err));
}

/* Extend, waiting for the pages before to make room. */
static void extend(const engine *machine, kvarve_put *open, const engine_state *stage)
{
    kvarve_status status = engine_put_extend(machine, open, stage, &err);

    for (int i = 0; i < 10000 && status == KVARVE_BUSY; i++) {
        assert_ok(kvarve_put_wait(open, KVARVE_PUT_STAGED, 1000, &err));
        status = engine_put_extend(machine, open, stage, &err);
    }
    assert_ok(status);
}

static void close_put(const engine *machine, kvarve_put *open, const engine_state *whole)
{
    kvarve_status status = engine_put_close(machine, open, whole, &err);

    for (int i = 0; i < 10000 && status == KVARVE_BUSY; i++) {
        assert_ok(kvarve_put_wait(open, KVARVE_PUT_STAGED, 1000, &err));
        status = engine_put_close(machine, open, whole, &err);
    }
    assert_ok(status);
}

static void test_put__an_open_one_passes_through_an_arena_smaller_than_the_state(void **state)
{
    static const engine_layout large = {
        .identity = "{\"model\":\"large\"}",
        .ranks = 2,
        .group_count = 2,
        .groups = {{.page_class = KVARVE_CLASS_PREFIX,
                    .flags = KVARVE_GROUP_ROWS,
                    .span_tokens = 16,
                    .page_bytes = 16 * 16384},
                   {.page_class = KVARVE_CLASS_ENDPOINT, .page_bytes = 100000}}};
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(20, 300);
    engine machine = open_engine(at, &large);
    engine_state whole = {.prefix = prefix, .tokens = 300, .kind = KVARVE_KIND_PROMPT};
    kvarve_put *open = NULL;

    /* 300 tokens of 32 KiB are 9.6 MB, the arena has 4 MiB. */
    open = begin(&machine, &whole, NULL);
    assert_int_equal(kvarve_put_status(open), KVARVE_PUT_ABORTED);
    assert_int_equal(kvarve_put_refusal(open), KVARVE_REFUSED_TOO_LARGE);
    kvarve_put_release(&open);
    {
        engine_state stage = whole;

        stage.tokens = 0;
        open = begin(&machine, &stage, NULL);
        for (stage.tokens = 48; stage.tokens < 300; stage.tokens += 48) {
            extend(&machine, open, &stage);
            fill_stage(&machine, open, &stage);
        }
    }
    close_put(&machine, open, &whole);
    fill_stage(&machine, open, &whole);
    assert_ok(kvarve_put_wait(open, KVARVE_PUT_DURABLE, 10000, &err));
    kvarve_put_release(&open);
    assert_ok(engine_restore(&machine, &whole, false, &err)); /* read in pieces: SOFT */
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_put__an_open_one_closes_like_one_that_knew_its_boundary(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(21, 128);

    for (size_t l = 0; l < engine_layout_count; l++) {
        for (uint64_t extra = 0; extra < 32; extra += 13) {
            engine machine = open_engine(at, engine_layouts[l]);
            engine_state whole = {.prefix = prefix,
                                  .tokens = 64 + extra,
                                  .draft_tokens = 62 + extra,
                                  .kind = (uint32_t)extra % 3};
            engine_state stage = whole;
            kvarve_put *open = NULL;

            stage.tokens = 0;
            open = begin(&machine, &stage, NULL);
            stage.tokens = 48;
            stage.draft_tokens = 48; /* what is staged is full pages, valid to their end */
            extend(&machine, open, &stage);
            if (extra == 0) { /* pages to copy, and no ack yet */
                assert_int_equal(engine_put_extend(&machine, open, &whole, &err), KVARVE_BUSY);
            }
            fill_stage(&machine, open, &stage);
            stage.tokens = 64;
            stage.draft_tokens = 64;
            extend(&machine, open, &stage);
            fill_stage(&machine, open, &stage);
            close_put(&machine, open, &whole);
            fill_stage(&machine, open, &whole);
            assert_ok(kvarve_put_wait(open, KVARVE_PUT_DURABLE, 10000, &err));
            kvarve_put_release(&open);
            assert_ok(engine_restore(&machine, &whole, true, &err));
            assert_costs_nothing(at, &machine, &whole);
            engine_close(&machine);
        }
    }
    kvarve_prefix_free(prefix);
}

static const door_test tests[] = {
    DOOR_TEST(test_put__an_open_one_passes_through_an_arena_smaller_than_the_state),
    DOOR_TEST(test_put__an_open_one_closes_like_one_that_knew_its_boundary),
};

int main(void)
{
    return door_run("put_open", tests, sizeof tests / sizeof tests[0]);
}
