/*
 * test_commit.c - which puts share a commit, and which of them are refused.
 *
 * A store in the simulated host. Records are made small, so that a put of some thousand pages needs
 * as many of them as one of millions.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/api_private.h"
#include "store/store_private.h"
#include "unit/store/store_kit.h"

#define RECORD_BYTES 4096u
#define MANY_TOKENS  3500u /* with a page each: more than 64 records */

static const engine_layout layout_pages = {
    .identity = "{\"model\":\"pages\"}",
    .ranks = 1,
    .group_count = 1,
    .groups = {{.page_class = KVARVE_CLASS_PREFIX, .span_tokens = 1, .page_bytes = 512}}};

/* All pages of a checkpoint are its own. */
static const engine_layout layout_window = {.identity = "{\"model\":\"window\"}",
                                            .ranks = 1,
                                            .group_count = 1,
                                            .groups = {{.page_class = KVARVE_CLASS_WINDOW,
                                                        .span_tokens = 1,
                                                        .window_tokens = 5000,
                                                        .page_bytes = 64}}};

static void begin_small_records(fixture *f, const engine_layout *layout)
{
    begin_test(f, layout);
    close_store(f);
    f->options.arena_bytes = 32 * MIB;
    open_store(f, layout);
    embedded_store((embedded *)(void *)f->store->door)->record_room = RECORD_BYTES;
}

static kvarve_put *begin_filled(fixture *f, const engine_state *state)
{
    kvarve_put *made = begin(f, state);

    assert_ok(engine_put_ranks(&f->at, made, state, NULL, &err));
    return made;
}

static void test_commit__a_put_of_more_records_than_others_share_is_durable(void **state)
{
    kvarve_prefix *prefix = engine_prefix(2, MANY_TOKENS);
    fixture f;
    kvarve_put *puts[3];

    (void)state;
    begin_small_records(&f, &layout_pages);
    const engine_state states[3] = {
        state_at(&f, 20), {.prefix = prefix, .tokens = MANY_TOKENS}, state_at(&f, 40)};

    for (size_t i = 0; i < 3; i++) {
        puts[i] = begin_filled(&f, &states[i]);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_ok(kvarve_put_wait(puts[i], KVARVE_PUT_DURABLE, WAIT_MS, &err));
        kvarve_put_release(&puts[i]);
    }
    assert_true(statistics(&f).batches > 64);
    close_store(&f);
    open_store(&f, &layout_pages);
    for (size_t i = 0; i < 3; i++) {
        assert_ok(engine_restore(&f.at, &states[i], false, &err));
    }
    kvarve_prefix_free(prefix);
    end_test(&f);
}

/* A checkpoint with its own pages stands in one record. */
static void test_commit__what_fits_no_record_is_refused_alone(void **state)
{
    kvarve_prefix *prefix = engine_prefix(2, 2000);
    kvarve_put *refused = NULL;
    kvarve_put *other;
    fixture f;

    (void)state;
    begin_small_records(&f, &layout_window);
    const engine_state here = state_at(&f, 20);
    const engine_state large = {.prefix = prefix, .tokens = 2000};

    other = begin_filled(&f, &here);
    assert_ok(engine_put_begin(&f.at, &large, NULL, &refused, &err));
    assert_int_equal(kvarve_put_status(refused), KVARVE_PUT_ABORTED);
    assert_int_equal(kvarve_put_refusal(refused), KVARVE_REFUSED_LIMIT);
    assert_ok(kvarve_put_wait(other, KVARVE_PUT_DURABLE, WAIT_MS, &err));
    kvarve_put_release(&refused);
    kvarve_put_release(&other);
    kvarve_prefix_free(prefix);
    end_test(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commit__a_put_of_more_records_than_others_share_is_durable),
        cmocka_unit_test(test_commit__what_fits_no_record_is_refused_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
