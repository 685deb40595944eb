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
#include <stdio.h>

#include "api/api_private.h"
#include "store/store_private.h"
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

/* --- damaged pages --- */

/* The only page of this size. */
static store_page *page_of_size(fixture *f, uint32_t size)
{
    const kvarve_table *pages = &embedded_store((embedded *)(void *)f->store->door)->pages;
    store_page *found = NULL;

    for (size_t i = 0; i < pages->bucket_count; i++) {
        for (kvarve_table_link *link = pages->buckets[i]; link != NULL; link = link->next) {
            store_page *page = KVARVE_TABLE_ITEM(link, store_page, link);

            if (page->size == size) {
                assert_null(found);
                found = page;
            }
        }
    }
    assert_non_null(found);
    return found;
}

static void overwrite_place(fixture *f, const store_page *page)
{
    static const uint8_t noise[64] = {0xee};
    char path[64];
    segment_head head;
    uint8_t block[SEGMENT_HEAD_SIZE];

    (void)snprintf(path, sizeof path, "store/segments/%u-%u.seg", 12288u, page->place.segment);
    assert_int_equal(world_read(f->world, path, 0, block, sizeof block), 0);
    assert_int_equal(segment_head_decode(block, &head, NULL), KVARVE_OK);
    assert_int_equal(world_overwrite(f->world, path,
                                     (uint64_t)head.header_blocks * BATCH_BLOCK +
                                         (uint64_t)page->place.slot * head.slot_bytes,
                                     noise, sizeof noise),
                     0);
}

#define ENDPOINT_BYTES 9001u /* of engine_plain */

/* A lease reads the page when a put lists it: the put waits for the read, and writes it again. */
static void test_put__of_a_damaged_page_that_is_being_read_writes_it_again(void **state)
{
    fixture f;
    kvarve_lease *lease = NULL;
    kvarve_put *made = NULL;
    kvarve_page_plan plan[2];
    size_t count = 0;
    store_page *page;

    (void)state;
    begin_test(&f, &engine_plain);
    const engine_state here = state_at(&f, 70);

    assert_int_equal(put(&f, &here), KVARVE_PUT_DURABLE);
    close_store(&f);
    open_store(&f, &engine_plain);
    world_flush(f.world);
    page = page_of_size(&f, ENDPOINT_BYTES);
    overwrite_place(&f, page);
    assert_ok(engine_find(&f.at, &here, KVARVE_LEASE_LOAD, NULL, &lease, NULL, &err));
    assert_true(page->io_count > 0); /* nobody has waited: the read is not done */
    page_mark_damaged(page);
    assert_ok(engine_put_begin(&f.at, &here, NULL, &made, &err));
    assert_ok(kvarve_put_plan(made, 0, plan, 2, &count, &err));
    assert_int_equal(count, 2); /* the partial page of the rows, and the endpoint */
    assert_int_equal(plan[0].action, KVARVE_PAGE_HAVE);
    assert_int_equal(plan[1].action, KVARVE_PAGE_WAIT);
    while (kvarve_put_wait(made, KVARVE_PUT_DURABLE, 20, &err) == KVARVE_BUSY) {
        (void)!engine_put_ranks(&f.at, made, &here, NULL, &err);
    }
    assert_int_equal(kvarve_put_status(made), KVARVE_PUT_DURABLE);
    kvarve_put_release(&made);
    kvarve_lease_release(&lease);
    assert_ok(engine_restore(&f.at, &here, true, &err));
    assert_int_equal(put(&f, &here), KVARVE_PUT_PRESENT);
    close_store(&f);
    open_store(&f, &engine_plain);
    assert_ok(engine_restore(&f.at, &here, false, &err));
    end_test(&f);
}

/* The page is found damaged after the put has taken it for known: it is copied after all. */
static void test_put__of_a_page_that_turns_out_damaged_before_it_is_ready(void **state)
{
    fixture f;
    kvarve_put *made;

    (void)state;
    begin_test(&f, &engine_plain);
    const engine_state here = state_at(&f, 70);
    const engine_state other = {.prefix = f.prefix, .tokens = 70, .kind = KVARVE_KIND_PROMPT};

    assert_int_equal(put(&f, &here), KVARVE_PUT_DURABLE);
    made = begin(&f, &other); /* all of its pages are known */
    page_mark_damaged(page_of_size(&f, ENDPOINT_BYTES));
    while (kvarve_put_wait(made, KVARVE_PUT_DURABLE, 20, &err) == KVARVE_BUSY) {
        (void)!engine_put_ranks(&f.at, made, &other, NULL, &err);
    }
    assert_int_equal(kvarve_put_status(made), KVARVE_PUT_DURABLE);
    kvarve_put_release(&made);
    assert_ok(engine_restore(&f.at, &other, true, &err));
    assert_ok(engine_restore(&f.at, &here, true, &err));
    end_test(&f);
}

/* The put has no bytes for a page of the history: it says that it is not kept. */
static void
test_put__on_a_history_that_turns_out_damaged_is_refused_and_the_next_repairs(void **state)
{
    fixture f;
    kvarve_put *made;
    store_page *page;

    (void)state;
    begin_test(&f, &engine_dense);
    const engine_state here = state_at(&f, 8); /* one page, of 512 bytes */
    const engine_state longer = state_at(&f, 17);

    assert_int_equal(put(&f, &here), KVARVE_PUT_DURABLE);
    page = page_of_size(&f, 512); /* the only one there is now */
    made = begin(&f, &longer);
    page_mark_damaged(page);
    (void)!engine_put_ranks(&f.at, made, &longer, NULL, &err);
    assert_int_equal(kvarve_put_wait(made, KVARVE_PUT_DURABLE, WAIT_MS, &err), KVARVE_MISS);
    assert_int_equal(kvarve_put_refusal(made), KVARVE_REFUSED_IO);
    kvarve_put_release(&made);
    assert_int_equal(put(&f, &longer), KVARVE_PUT_DURABLE);
    assert_ok(engine_restore(&f.at, &longer, true, &err));
    assert_ok(engine_restore(&f.at, &here, true, &err));
    end_test(&f);
}

/* Not even when it was ready: what is told to be durable can be found. */
static void test_put__of_a_page_that_turns_out_damaged_before_it_is_durable(void **state)
{
    fixture f;
    kvarve_put *made;
    kvarve_miss miss;

    (void)state;
    begin_test(&f, &engine_plain);
    const engine_state here = state_at(&f, 70);
    const engine_state other = {.prefix = f.prefix, .tokens = 70, .kind = KVARVE_KIND_PROMPT};

    assert_int_equal(put(&f, &here), KVARVE_PUT_DURABLE);
    made = begin_ready(&f, &other);
    page_mark_damaged(page_of_size(&f, ENDPOINT_BYTES));
    assert_int_equal(kvarve_put_wait(made, KVARVE_PUT_DURABLE, WAIT_MS, &err), KVARVE_MISS);
    assert_int_equal(kvarve_put_refusal(made), KVARVE_REFUSED_IO);
    kvarve_put_release(&made);
    assert_int_equal(engine_find(&f.at, &other, KVARVE_LEASE_NONE, NULL, NULL, &miss, &err),
                     KVARVE_MISS);
    assert_int_equal(miss.reason, KVARVE_MISS_DAMAGED);
    assert_int_equal(put(&f, &other), KVARVE_PUT_DURABLE);
    assert_ok(engine_restore(&f.at, &other, true, &err));
    assert_ok(engine_restore(&f.at, &here, true, &err));
    end_test(&f);
}

/* --- aborted puts --- */

static void test_put__aborted_gives_its_room_back_but_what_a_rank_may_write_into(void **state)
{
    fixture f;
    kvarve_page_plan plan[2];
    uint64_t empty;
    uint64_t used;
    size_t count = 0;

    (void)state;
    begin_test(&f, &engine_plain);
    const engine_state here = state_at(&f, 70);
    kvarve_put *written = begin(&f, &here);

    assert_ok(
        engine_put_write(&f.at, written, &here, 0, &err)); /* copied by us: nobody writes on */
    used = statistics(&f).arena_bytes_used;
    kvarve_put_abort(written);
    empty = statistics(&f).arena_bytes_used;
    assert_true(empty < used);
    for (int i = 0; i < 2; i++) { /* the rank acks, or nobody does before the release */
        kvarve_put *planned = begin(&f, &here);

        assert_ok(kvarve_put_plan(planned, 0, plan, 2, &count, &err));
        kvarve_put_abort(planned);
        assert_true(statistics(&f).arena_bytes_used > empty);
        if (i == 0) {
            assert_int_equal(kvarve_put_ack(planned, 0, NULL, 0, &err), KVARVE_MISS);
            assert_int_equal(statistics(&f).arena_bytes_used, empty);
        }
        kvarve_put_release(&planned);
        assert_int_equal(statistics(&f).arena_bytes_used, empty);
    }
    kvarve_put_release(&written);
    end_test(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find__a_derived_boundary_is_ready_until_its_span_is_recorded),
        cmocka_unit_test(test_find__with_a_draft_half_that_is_not_recorded_is_ready),
        cmocka_unit_test(test_put__of_a_damaged_page_that_is_being_read_writes_it_again),
        cmocka_unit_test(test_put__of_a_page_that_turns_out_damaged_before_it_is_ready),
        cmocka_unit_test(test_put__of_a_page_that_turns_out_damaged_before_it_is_durable),
        cmocka_unit_test(test_put__aborted_gives_its_room_back_but_what_a_rank_may_write_into),
        cmocka_unit_test(
            test_put__on_a_history_that_turns_out_damaged_is_refused_and_the_next_repairs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
