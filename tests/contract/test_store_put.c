/*
 * test_store_put.c - what a put promises, through each door.
 *
 * Every class of page, ranks, exactness, drafts, replay, single flight of pages, ranks that fail.
 * What comes back is compared byte for byte (engine.h). Open puts: test_store_put_open.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/alloc.h"
#include "contract/steps.h"

/* --- all layouts --- */

/* Boundaries around page ends of every span of the layouts, and one far on. */
static const uint64_t boundaries[] = {1, 7, 8, 16, 17, 24, 47, 48, 49, 100, 300};

static void test_put__every_layout_comes_back_byte_for_byte_also_after_reopen(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(1, 300);

    for (size_t l = 0; l < engine_layout_count; l++) {
        engine machine = open_engine(at, engine_layouts[l]);

        for (size_t i = 0; i < sizeof boundaries / sizeof boundaries[0]; i++) {
            engine_state here = {.prefix = prefix,
                                 .tokens = boundaries[i],
                                 .draft_tokens = boundaries[i] - (boundaries[i] - 1) % 8 % 5,
                                 .kind = (uint32_t)i % 3};

            assert_int_equal(put(&machine, &here), KVARVE_PUT_DURABLE);
            assert_ok(engine_restore(&machine, &here, false, &err));
            assert_ok(engine_restore(&machine, &here, true, &err));
        }
        engine_close(&machine);
    }
    door_reopen(at);
    for (size_t l = 0; l < engine_layout_count; l++) {
        engine machine = open_engine(at, engine_layouts[l]);

        for (size_t i = 0; i < sizeof boundaries / sizeof boundaries[0]; i++) {
            engine_state here = {.prefix = prefix,
                                 .tokens = boundaries[i],
                                 .draft_tokens = boundaries[i] - (boundaries[i] - 1) % 8 % 5,
                                 .kind = (uint32_t)i % 3};

            assert_ok(engine_restore(&machine, &here, i % 2 == 0, &err));
        }
        engine_close(&machine);
    }
    kvarve_prefix_free(prefix);
}

static void test_put__whole_sections_of_all_ranks_are_the_same_as_pages_in_place(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(2, 101);

    for (size_t l = 0; l < engine_layout_count; l++) {
        engine machine = open_engine(at, engine_layouts[l]);
        engine_state here = {.prefix = prefix, .tokens = 101, .draft_tokens = 101};
        kvarve_put *one = NULL;

        one = begin(&machine, &here, NULL);
        for (uint32_t rank = 0; rank < machine.layout->ranks; rank++) {
            assert_ok(engine_put_write(&machine, one, &here, rank, &err));
            assert_ok(kvarve_put_ack(one, rank, NULL, 0, &err));
        }
        assert_ok(kvarve_put_wait(one, KVARVE_PUT_DURABLE, 10000, &err));
        kvarve_put_release(&one);
        assert_ok(engine_restore(&machine, &here, true, &err));
        engine_close(&machine);
    }
    kvarve_prefix_free(prefix);
}

static void test_put__only_new_pages_are_asked_for_and_counted(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(3, 200);
    engine machine = open_engine(at, &engine_plain);
    engine_state first = {.prefix = prefix, .tokens = 100};
    engine_state second = {.prefix = prefix, .tokens = 150};
    engine_work work = {0};
    kvarve_put *one = NULL;

    assert_int_equal(put(&machine, &first), KVARVE_PUT_DURABLE);
    one = begin(&machine, &second, NULL);
    assert_ok(engine_put_ranks(&machine, one, &second, &work, &err));
    assert_ok(kvarve_put_wait(one, KVARVE_PUT_DURABLE, 10000, &err));
    kvarve_put_release(&one);
    /* Pages that end at 112, 128, 144, the partial one at 150, and the endpoint. */
    assert_int_equal(work.copied, 5);
    assert_int_equal(work.waiting, 0);
    /* 7 + endpoint of the first, 5 of the second: 4 KiB a page, an endpoint of 9001 bytes 12 KiB.
     */
    assert_int_equal(door_statistics(at).payload_bytes_written, (7 + 4) * 4096 + 2 * 12288);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_put__rows_make_a_partial_page_short_and_others_stay_whole(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(4, 20);
    engine machine = open_engine(at, &engine_rows);
    engine_state here = {.prefix = prefix, .tokens = 19, .draft_tokens = 19};
    kvarve_page_plan plan[16];
    kvarve_put *one = NULL;
    size_t count = 0;

    one = begin(&machine, &here, NULL);
    assert_ok(kvarve_put_plan(one, 0, plan, 16, &count, &err));
    /* Two pages of each prefix group, three that the window's 12 tokens touch, the endpoint. */
    assert_int_equal(count, 2 + 2 + 3 + 1);
    for (size_t i = 0; i < count; i++) {
        if (plan[i].group == 0) {
            assert_int_equal(plan[i].size, 1000);
        }
        if (plan[i].group == 2 && plan[i].first_token == 16) {
            assert_int_equal(plan[i].tokens, 3);
            assert_int_equal(plan[i].size, 150);
        }
        assert_int_equal((uintptr_t)plan[i].address % 4096, 0);
        assert_true(
            i == 0 || plan[i].group > plan[i - 1].group ||
            (plan[i].group == plan[i - 1].group && plan[i].position > plan[i - 1].position));
    }
    kvarve_put_release(&one);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

/* --- known content --- */

static void test_put__replay_is_present_and_writes_nothing_also_after_reopen(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(5, 77);

    for (size_t l = 0; l < engine_layout_count; l++) {
        engine machine = open_engine(at, engine_layouts[l]);
        engine_state here = {.prefix = prefix, .tokens = 77, .draft_tokens = 74, .kind = 1};

        assert_int_equal(put(&machine, &here), KVARVE_PUT_DURABLE);
        assert_costs_nothing(at, &machine, &here);
        engine_close(&machine);
        door_reopen(at);
        machine = open_engine(at, engine_layouts[l]);
        assert_costs_nothing(at, &machine, &here);
        assert_ok(engine_restore(&machine, &here, false, &err));
        engine_close(&machine);
    }
    kvarve_prefix_free(prefix);
}

static void test_put__replay_of_an_equal_one_in_flight_becomes_present_with_it(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(6, 60);
    engine machine = open_engine(at, &engine_hybrid);
    engine_state here = {.prefix = prefix, .tokens = 60};
    kvarve_put *first = NULL;
    kvarve_put *second = NULL;
    engine_work work = {0};
    uint8_t ids[2][32];

    first = begin(&machine, &here, NULL);
    second = begin(&machine, &here, NULL);
    assert_ok(engine_put_ranks(&machine, second, &here, &work, &err));
    assert_int_equal(work.copied, 0);
    assert_true(work.waiting > 0);
    assert_ok(engine_put_ranks(&machine, first, &here, NULL, &err));
    assert_ok(kvarve_put_wait(first, KVARVE_PUT_DURABLE, 10000, &err));
    assert_ok(kvarve_put_wait(second, KVARVE_PUT_DURABLE, 10000, &err));
    assert_int_equal(kvarve_put_status(second), KVARVE_PUT_PRESENT);
    assert_ok(kvarve_put_id(first, ids[0], &err));
    assert_ok(kvarve_put_id(second, ids[1], &err));
    assert_memory_equal(ids[0], ids[1], 32);
    kvarve_put_release(&first);
    kvarve_put_release(&second);
    assert_int_equal(door_statistics(at).checkpoints, 1);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_put__sections_of_an_equal_one_that_is_ready_are_skipped(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(31, 60);

    for (size_t l = 0; l < engine_layout_count; l++) {
        engine machine = open_engine(at, engine_layouts[l]);
        engine_state here = {.prefix = prefix, .tokens = 60, .draft_tokens = 60};
        kvarve_put *puts[2] = {NULL, NULL};

        for (size_t i = 0; i < 2; i++) { /* the second one begins before the first is durable */
            puts[i] = begin(&machine, &here, NULL);
            for (uint32_t rank = 0; rank < machine.layout->ranks; rank++) {
                assert_ok(engine_put_write(&machine, puts[i], &here, rank, &err));
                assert_ok(kvarve_put_ack(puts[i], rank, NULL, 0, &err));
            }
        }
        for (size_t i = 0; i < 2; i++) {
            assert_ok(kvarve_put_wait(puts[i], KVARVE_PUT_DURABLE, 10000, &err));
            assert_int_equal(kvarve_put_status(puts[i]),
                             i == 0 ? KVARVE_PUT_DURABLE : KVARVE_PUT_PRESENT);
            kvarve_put_release(&puts[i]);
        }
        assert_ok(engine_restore(&machine, &here, true, &err));
        engine_close(&machine);
    }
    kvarve_prefix_free(prefix);
}

static void test_put__first_writer_wins_unless_the_namespace_is_exact(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(7, 40);
    engine plain = open_engine(at, &engine_plain);
    engine exact = open_engine(at, &engine_exact);
    engine_state one = {.prefix = prefix, .tokens = 40, .variant = 1};
    engine_state two = {.prefix = prefix, .tokens = 40, .variant = 2};

    assert_int_equal(put(&plain, &one), KVARVE_PUT_DURABLE);
    assert_int_equal(put(&plain, &two), KVARVE_PUT_PRESENT);
    assert_ok(engine_restore(&plain, &one, true, &err));
    assert_int_equal(put(&exact, &one), KVARVE_PUT_DURABLE);
    assert_int_equal(put(&exact, &two), KVARVE_PUT_DURABLE);
    assert_ok(engine_restore(&exact, &two, true, &err)); /* the newest */
    assert_true(door_statistics(at).exact_variants > 0);
    assert_int_equal(put(&exact, &one), KVARVE_PUT_PRESENT); /* the newest again */
    assert_ok(engine_restore(&exact, &one, true, &err));
    engine_close(&plain);
    engine_close(&exact);
    kvarve_prefix_free(prefix);
}

static void test_put__prompt_and_response_at_one_boundary_are_two_checkpoints(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(8, 55);
    engine machine = open_engine(at, &engine_hybrid);
    engine_state prompt = {.prefix = prefix, .tokens = 55, .kind = KVARVE_KIND_PROMPT};
    engine_state response = {.prefix = prefix, .tokens = 55, .kind = KVARVE_KIND_RESPONSE};

    assert_int_equal(put(&machine, &prompt), KVARVE_PUT_DURABLE);
    assert_int_equal(put(&machine, &response), KVARVE_PUT_DURABLE);
    assert_ok(engine_restore(&machine, &prompt, true, &err));
    assert_ok(engine_restore(&machine, &response, true, &err));
    assert_int_equal(door_statistics(at).checkpoints, 2);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

/* --- single flight --- */

static void test_put__a_waiting_page_is_had_when_its_owner_seals(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(9, 90);
    engine machine = open_engine(at, &engine_plain);
    engine_state shorter = {.prefix = prefix, .tokens = 64};
    engine_state longer = {.prefix = prefix, .tokens = 90};
    kvarve_put *first = NULL;
    kvarve_put *second = NULL;
    engine_work work = {0};

    first = begin(&machine, &shorter, NULL);
    second = begin(&machine, &longer, NULL);
    assert_ok(engine_put_ranks(&machine, second, &longer, &work, &err));
    assert_int_equal(work.waiting, 4);
    assert_int_equal(kvarve_put_wait(second, KVARVE_PUT_READY, 0, &err), KVARVE_BUSY);
    assert_ok(engine_put_ranks(&machine, first, &shorter, NULL, &err));
    assert_ok(kvarve_put_wait(second, KVARVE_PUT_DURABLE, 10000, &err));
    assert_int_equal(kvarve_put_status(second), KVARVE_PUT_DURABLE);
    kvarve_put_release(&first);
    kvarve_put_release(&second);
    assert_ok(engine_restore(&machine, &shorter, true, &err));
    assert_ok(engine_restore(&machine, &longer, true, &err));
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_put__pages_sealed_by_another_and_not_on_flash_yet_are_waited_for(void **state)
{
    door *at = *state;
    engine machine = open_engine(at, &engine_hybrid);

    for (uint64_t seed = 0; seed < 10; seed++) { /* jobs end in an order of their own */
        kvarve_prefix *prefix = engine_prefix(200 + seed, 120);
        engine_state here[3];
        kvarve_put *puts[3];

        for (uint64_t i = 0; i < 3; i++) {
            here[i] = (engine_state){.prefix = prefix, .tokens = 24 + 48 * i};
            puts[i] = begin(&machine, &here[i], NULL);
            for (uint32_t rank = 0; rank < 4; rank++) {
                assert_ok(engine_put_write(&machine, puts[i], &here[i], rank, &err));
                assert_ok(kvarve_put_ack(puts[i], rank, NULL, 0, &err));
            }
        }
        for (size_t i = 3; i-- > 0;) {
            assert_ok(kvarve_put_wait(puts[i], KVARVE_PUT_DURABLE, 10000, &err));
            kvarve_put_release(&puts[i]);
            assert_ok(engine_restore(&machine, &here[i], false, &err));
        }
        kvarve_prefix_free(prefix);
    }
    engine_close(&machine);
}

static uint32_t count_events(door *at, uint64_t cookie, uint32_t kind, uint32_t *out_all)
{
    kvarve_event event;
    uint32_t count = 0;

    while (kvarve_next_event(at->store, &event) == KVARVE_OK) {
        if (event.cookie == cookie) {
            count += event.kind == kind;
            *out_all += 1;
        }
    }
    return count;
}

static void test_put__the_oldest_waiter_takes_over_what_an_aborted_owner_leaves(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(10, 90);
    engine machine = open_engine(at, &engine_plain);
    engine_state here = {.prefix = prefix, .tokens = 64};
    engine_state longer = {.prefix = prefix, .tokens = 90};
    const engine_begin cookies[2] = {{.cookie = 11}, {.cookie = 12}};
    kvarve_put *owner = NULL;
    kvarve_put *waiters[2] = {NULL, NULL};
    engine_work work = {0};
    uint32_t all = 0;

    owner = begin(&machine, &here, NULL);
    for (size_t i = 0; i < 2; i++) {
        waiters[i] = begin(&machine, &longer, &cookies[i]);
        assert_ok(engine_put_ranks(&machine, waiters[i], &longer, NULL, &err));
    }
    kvarve_put_abort(owner);
    assert_int_equal(kvarve_put_refusal(owner), KVARVE_REFUSED_CALLER);
    assert_int_equal(count_events(at, 11, KVARVE_EVENT_COPY_REQUESTED, &all), 4);
    assert_ok(kvarve_put_wait(waiters[0], KVARVE_PUT_STAGED, 10000, &err));
    assert_ok(engine_put_ranks(&machine, waiters[0], &longer, &work, &err)); /* acks again */
    assert_int_equal(work.copied, 4);
    assert_ok(kvarve_put_wait(waiters[0], KVARVE_PUT_DURABLE, 10000, &err));
    assert_ok(kvarve_put_wait(waiters[1], KVARVE_PUT_DURABLE, 10000, &err));
    assert_int_equal(kvarve_put_status(waiters[1]), KVARVE_PUT_PRESENT);
    assert_ok(engine_restore(&machine, &longer, true, &err));
    assert_int_equal(engine_restore(&machine, &here, true, &err), KVARVE_MISS);
    kvarve_put_release(&owner);
    kvarve_put_release(&waiters[0]);
    kvarve_put_release(&waiters[1]);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

/* Between asking and acknowledging, a page that was another put's becomes this one's: the ack does
 * not mean it, since nobody has filled it. */
static void test_put__an_ack_does_not_mean_pages_that_the_rank_was_never_told_of(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(30, 90);
    engine machine = open_engine(at, &engine_hybrid);
    engine_state here = {.prefix = prefix, .tokens = 64};
    engine_state longer = {.prefix = prefix, .tokens = 90};
    kvarve_put *owner = begin(&machine, &here, NULL);
    kvarve_put *other = begin(&machine, &longer, NULL);

    for (uint32_t rank = 0; rank < 4; rank++) {
        assert_ok(engine_put_fill(&machine, other, &longer, rank, NULL, &err));
    }
    kvarve_put_release(&owner);
    for (uint32_t rank = 0; rank < 4; rank++) {
        kvarve_status status = kvarve_put_ack(other, rank, NULL, 0, &err);

        assert_true(status == KVARVE_OK || status == KVARVE_BUSY);
    }
    assert_int_equal(kvarve_put_wait(other, KVARVE_PUT_READY, 20, &err), KVARVE_BUSY);
    assert_ok(kvarve_put_wait(other, KVARVE_PUT_STAGED, 10000, &err));
    assert_ok(engine_put_ranks(&machine, other, &longer, NULL, &err));
    assert_ok(kvarve_put_wait(other, KVARVE_PUT_DURABLE, 10000, &err));
    kvarve_put_release(&other);
    assert_ok(engine_restore(&machine, &longer, true, &err));
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

/* Its digests may name pages that were handed over: what was taken while they were copied counts.
 */
static void test_put__a_rank_that_acks_before_all_is_there_acks_again(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(31, 64);
    engine machine = open_engine(at, &engine_plain);
    engine_state here = {.prefix = prefix, .tokens = 64};
    kvarve_put *put = begin(&machine, &here, NULL);
    const size_t size = engine_page_size(&machine, &here, 0, 0, 0);
    static uint8_t page[ENGINE_PAGE_MAX];
    kvarve_page_digest digest = {.digest = {7}};

    assert_true(size <= sizeof page);
    engine_fill(&machine, &here, 0, 0, 0, page);
    assert_ok(kvarve_put_write(put, 0, 0, 0, page, size, &err));
    assert_ok(kvarve_put_ack(put, 0, NULL, 0, &err));
    assert_int_equal(kvarve_put_wait(put, KVARVE_PUT_READY, 1, &err), KVARVE_BUSY);
    assert_int_equal(kvarve_put_status(put), KVARVE_PUT_STAGED);
    assert_ok(engine_put_write(&machine, put, &here, 0, &err));
    assert_ok(kvarve_put_ack(put, 0, &digest, 1, &err));
    assert_ok(kvarve_put_wait(put, KVARVE_PUT_DURABLE, 10000, &err));
    kvarve_put_release(&put);
    assert_ok(engine_restore(&machine, &here, true, &err));
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_put__a_caller_that_can_not_wait_is_refused(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(11, 64);
    engine machine = open_engine(at, &engine_plain);
    engine_state here = {.prefix = prefix, .tokens = 64};
    const engine_begin impatient = {.flags = KVARVE_PUT_DROP_ON_WAIT};
    kvarve_put *owner = NULL;
    kvarve_put *other = NULL;

    owner = begin(&machine, &here, NULL);
    here.kind = KVARVE_KIND_RESPONSE;
    other = begin(&machine, &here, &impatient);
    assert_int_equal(kvarve_put_status(other), KVARVE_PUT_ABORTED);
    assert_int_equal(kvarve_put_refusal(other), KVARVE_REFUSED_WAIT);
    assert_int_equal(door_statistics(at).refusals[KVARVE_REFUSED_WAIT], 1);
    kvarve_put_release(&other);
    kvarve_put_release(&owner);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

/* --- ranks --- */

static void test_put__a_rank_that_fails_aborts_it_and_leaves_nothing(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(12, 50);
    engine machine = open_engine(at, &engine_hybrid);
    engine_state here = {.prefix = prefix, .tokens = 50};
    kvarve_put *one = NULL;

    one = begin(&machine, &here, NULL);
    assert_ok(engine_put_fill(&machine, one, &here, 0, NULL, &err));
    assert_ok(kvarve_put_ack(one, 0, NULL, 0, &err));
    assert_ok(kvarve_put_fail(one, 2, &err));
    assert_int_equal(kvarve_put_status(one), KVARVE_PUT_ABORTED);
    assert_int_equal(kvarve_put_refusal(one), KVARVE_REFUSED_RANK_FAILED);
    assert_int_equal(kvarve_put_ack(one, 1, NULL, 0, &err), KVARVE_MISS);
    assert_int_equal(kvarve_put_wait(one, KVARVE_PUT_DURABLE, 10000, &err), KVARVE_MISS);
    kvarve_put_release(&one);
    assert_int_equal(engine_restore(&machine, &here, false, &err), KVARVE_MISS);
    assert_int_equal(put(&machine, &here), KVARVE_PUT_DURABLE);
    assert_int_equal(door_statistics(at).puts_aborted, 1);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_put__a_second_ack_and_an_unknown_rank_are_errors_of_that_call_alone(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(13, 50);
    engine machine = open_engine(at, &engine_hybrid);
    engine_state here = {.prefix = prefix, .tokens = 50};
    kvarve_put *one = NULL;
    kvarve_page_plan plan;
    size_t count;

    one = begin(&machine, &here, NULL);
    assert_int_equal(kvarve_put_ack(one, 4, NULL, 0, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_put_fail(one, 4, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_put_plan(one, 4, &plan, 1, &count, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_put_write(one, 4, 0, 0, "x", 1, &err), KVARVE_INVALID);
    assert_ok(engine_put_fill(&machine, one, &here, 1, NULL, &err));
    assert_ok(kvarve_put_ack(one, 1, NULL, 0, &err));
    assert_int_equal(kvarve_put_ack(one, 1, NULL, 0, &err), KVARVE_INVALID);
    assert_non_null(strstr(err.text, "rank 1"));
    for (uint32_t rank = 0; rank < 4; rank++) {
        if (rank != 1) {
            assert_ok(engine_put_fill(&machine, one, &here, rank, NULL, &err));
            assert_ok(kvarve_put_ack(one, rank, NULL, 0, &err));
        }
    }
    assert_ok(kvarve_put_wait(one, KVARVE_PUT_DURABLE, 10000, &err));
    kvarve_put_release(&one);
    assert_ok(engine_restore(&machine, &here, true, &err));
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_put__bytes_that_differ_from_their_announced_digest_are_refused(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(14, 16);
    engine machine = open_engine(at, &engine_exact);
    engine_state here = {.prefix = prefix, .tokens = 16};
    uint8_t page[4096];
    kvarve_put *one = NULL;

    one = begin(&machine, &here, NULL);
    engine_fill(&machine, &here, 0, 0, 0, page);
    page[100] ^= 1;
    assert_int_equal(kvarve_put_write(one, 0, 0, 0, page, sizeof page, &err), KVARVE_CORRUPT);
    page[100] ^= 1;
    assert_ok(kvarve_put_write(one, 0, 0, 0, page, sizeof page, &err));
    assert_ok(engine_put_ranks(&machine, one, &here, NULL, &err));
    assert_ok(kvarve_put_wait(one, KVARVE_PUT_DURABLE, 10000, &err));
    kvarve_put_release(&one);
    assert_ok(engine_restore(&machine, &here, true, &err));
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_put__in_place_bytes_that_differ_from_their_digest_are_never_found(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(15, 16);
    engine machine = open_engine(at, &engine_exact);
    engine_state said = {.prefix = prefix, .tokens = 16, .variant = 1};
    engine_state done = {.prefix = prefix, .tokens = 16, .variant = 2};
    kvarve_put *one = NULL;
    kvarve_put *other = NULL;

    one = begin(&machine, &said, NULL);
    assert_ok(engine_put_fill(&machine, one, &done, 0, NULL, &err));
    assert_ok(kvarve_put_ack(one, 0, NULL, 0, &err));
    assert_int_equal(kvarve_put_wait(one, KVARVE_PUT_DURABLE, 10000, &err), KVARVE_MISS);
    assert_int_equal(kvarve_put_refusal(one), KVARVE_REFUSED_RANK_FAILED);
    kvarve_put_release(&one);
    assert_int_equal(engine_restore(&machine, &said, false, &err), KVARVE_MISS);
    /* The same, and the put is gone before its digests are taken; another one waits for a page. */
    one = begin(&machine, &said, NULL);
    other = begin(&machine, &said, NULL);
    assert_ok(engine_put_fill(&machine, one, &done, 0, NULL, &err));
    assert_ok(kvarve_put_ack(one, 0, NULL, 0, &err));
    kvarve_put_release(&one);
    for (uint32_t i = 0; kvarve_put_status(other) != KVARVE_PUT_READY; i++) {
        /* Which pages the other is asked for, and when, depends on when digests are known. */
        assert_true(i < 100000);
        for (uint32_t rank = 0; rank < 2; rank++) {
            if (engine_put_fill(&machine, other, &said, rank, NULL, &err) == KVARVE_OK) {
                (void)!kvarve_put_ack(other, rank, NULL, 0, &err);
            }
        }
        if (kvarve_put_wait(other, KVARVE_PUT_READY, 1, &err) == KVARVE_OK) {
            break;
        }
    }
    assert_ok(kvarve_put_wait(other, KVARVE_PUT_DURABLE, 10000, &err));
    kvarve_put_release(&other);
    assert_ok(engine_restore(&machine, &said, true, &err));
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

/* --- drafts --- */

static void test_put__the_drafter_is_toggled_off_and_on_and_loses_its_groups_alone(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(16, 120);
    engine machine = open_engine(at, &engine_drafted);
    engine_state without = {.prefix = prefix, .tokens = 70, .has_no_optional = true};
    engine_state with = {.prefix = prefix, .tokens = 100, .draft_tokens = 100};
    kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
    kvarve_boundary found[4];
    kvarve_miss miss;
    size_t count = 0;

    assert_int_equal(put(&machine, &without), KVARVE_PUT_DURABLE);
    options.flags = KVARVE_FIND_NEED_OPTIONAL;
    assert_int_equal(
        kvarve_find(machine.space, prefix, &options, found, 4, &count, NULL, &miss, &err),
        KVARVE_MISS);
    assert_int_equal(miss.reason, KVARVE_MISS_DRAFT);
    assert_int_equal(put(&machine, &with), KVARVE_PUT_DURABLE);
    assert_ok(kvarve_find(machine.space, prefix, &options, found, 4, &count, NULL, &miss, &err));
    assert_int_equal(count, 1);
    assert_int_equal(found[0].tokens, 100);
    assert_int_equal(found[0].flags, KVARVE_BOUNDARY_DRAFT);
    options.flags = 0;
    assert_ok(kvarve_find(machine.space, prefix, &options, found, 4, &count, NULL, &miss, &err));
    assert_int_equal(count, 2);
    assert_int_equal(found[1].tokens, 70);
    assert_int_equal(found[1].flags, 0);
    /* Now its optional half too: the drafter's pages are all that is new. */
    without.has_no_optional = false;
    without.draft_tokens = 70;
    assert_int_equal(put(&machine, &with), KVARVE_PUT_PRESENT);
    assert_ok(engine_restore(&machine, &with, true, &err));
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_put__the_optional_half_can_follow_later(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(17, 100);
    engine machine = open_engine(at, &engine_drafted);
    engine_state here = {
        .prefix = prefix, .tokens = 70, .draft_tokens = 70, .has_no_optional = true};
    kvarve_boundary found;
    kvarve_lease *lease = NULL;

    assert_int_equal(put(&machine, &here), KVARVE_PUT_DURABLE);
    here.has_no_optional = false;
    assert_int_equal(put(&machine, &here), KVARVE_PUT_DURABLE);
    for (int i = 0; i < 2; i++) {
        assert_ok(engine_find(&machine, &here, KVARVE_LEASE_LOAD, &found, &lease, NULL, &err));
        assert_int_equal(found.flags, KVARVE_BOUNDARY_DRAFT);
        assert_ok(kvarve_lease_wait(lease, 10000, NULL, &err));
        assert_ok(engine_view(&machine, lease, &here, true, &err));
        kvarve_lease_release(&lease);
        engine_close(&machine);
        door_reopen(at);
        machine = open_engine(at, &engine_drafted);
    }
    assert_costs_nothing(at, &machine, &here);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_put__another_drafter_finds_the_rest(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(18, 64);
    engine_layout changed = engine_drafted;
    engine machine = open_engine(at, &engine_drafted);
    engine_state here = {.prefix = prefix, .tokens = 64, .draft_tokens = 64};
    kvarve_boundary found;
    engine other;

    changed.drafter = "{\"model\":\"another drafter\"}";
    other = open_engine(at, &changed);
    assert_int_equal(put(&machine, &here), KVARVE_PUT_DURABLE);
    assert_ok(engine_find(&other, &here, KVARVE_LEASE_NONE, &found, NULL, NULL, &err));
    assert_int_equal(found.flags, 0);
    assert_ok(engine_restore(&other, &here, true, &err));
    engine_close(&machine);
    engine_close(&other);
    kvarve_prefix_free(prefix);
}

/* The last page of a group with draft rows names how many are valid; two such boundaries at one
 * length, and what grows from them, do not mix. */
static void test_put__draft_rows_of_one_boundary_are_kept_apart(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(19, 200);
    engine machine = open_engine(at, &engine_rows);
    static const uint64_t valid[] = {57, 64, 56, 63}; /* within the last page */
    engine_state here = {.prefix = prefix, .tokens = 64};
    engine_state longer = {.prefix = prefix, .tokens = 128, .draft_tokens = 128};
    kvarve_put *refused = NULL;

    here.draft_tokens = 55; /* the page before would lack a row and not say so */
    assert_int_equal(engine_put_begin(&machine, &here, NULL, &refused, &err), KVARVE_INVALID);
    for (size_t i = 0; i < 4; i++) {
        here.draft_tokens = valid[i];
        here.kind = (uint32_t)i % 3;
        assert_int_equal(put(&machine, &here), KVARVE_PUT_DURABLE);
        assert_ok(engine_restore(&machine, &here, true, &err));
        if (i == 0) { /* grows from a boundary whose last page is not the tree's */
            assert_int_equal(put(&machine, &longer), KVARVE_PUT_DURABLE);
            assert_ok(engine_restore(&machine, &longer, true, &err));
        }
    }
    here.kind = 1;
    here.draft_tokens = 64;
    engine_close(&machine);
    door_reopen(at);
    machine = open_engine(at, &engine_rows);
    assert_ok(engine_restore(&machine, &here, false, &err));
    assert_ok(engine_restore(&machine, &longer, false, &err));
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static const door_test tests[] = {
    DOOR_TEST(test_put__every_layout_comes_back_byte_for_byte_also_after_reopen),
    DOOR_TEST(test_put__whole_sections_of_all_ranks_are_the_same_as_pages_in_place),
    DOOR_TEST(test_put__only_new_pages_are_asked_for_and_counted),
    DOOR_TEST(test_put__rows_make_a_partial_page_short_and_others_stay_whole),
    DOOR_TEST(test_put__replay_is_present_and_writes_nothing_also_after_reopen),
    DOOR_TEST(test_put__replay_of_an_equal_one_in_flight_becomes_present_with_it),
    DOOR_TEST(test_put__sections_of_an_equal_one_that_is_ready_are_skipped),
    DOOR_TEST(test_put__first_writer_wins_unless_the_namespace_is_exact),
    DOOR_TEST(test_put__prompt_and_response_at_one_boundary_are_two_checkpoints),
    DOOR_TEST(test_put__a_waiting_page_is_had_when_its_owner_seals),
    DOOR_TEST(test_put__pages_sealed_by_another_and_not_on_flash_yet_are_waited_for),
    DOOR_TEST(test_put__the_oldest_waiter_takes_over_what_an_aborted_owner_leaves),
    DOOR_TEST(test_put__an_ack_does_not_mean_pages_that_the_rank_was_never_told_of),
    DOOR_TEST(test_put__a_rank_that_acks_before_all_is_there_acks_again),
    DOOR_TEST(test_put__a_caller_that_can_not_wait_is_refused),
    DOOR_TEST(test_put__a_rank_that_fails_aborts_it_and_leaves_nothing),
    DOOR_TEST(test_put__a_second_ack_and_an_unknown_rank_are_errors_of_that_call_alone),
    DOOR_TEST(test_put__bytes_that_differ_from_their_announced_digest_are_refused),
    DOOR_TEST(test_put__in_place_bytes_that_differ_from_their_digest_are_never_found),
    DOOR_TEST(test_put__the_drafter_is_toggled_off_and_on_and_loses_its_groups_alone),
    DOOR_TEST(test_put__the_optional_half_can_follow_later),
    DOOR_TEST(test_put__another_drafter_finds_the_rest),
    DOOR_TEST(test_put__draft_rows_of_one_boundary_are_kept_apart),
};

int main(void)
{
    return door_run("put", tests, sizeof tests / sizeof tests[0]);
}
