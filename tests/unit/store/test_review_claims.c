/*
 * test_review_claims.c - who may hold what, and what counts as recorded, when things go wrong in
 * the middle.
 *
 * A store in the simulated host. Each test is one sequence that once broke a promise: wrong bytes,
 * a durable checkpoint that is not there after the next open, or a checkpoint that is there and is
 * not found.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "api/open_in.h"
#include "base/alloc.h"
#include "contract/engine.h"
#include "kvarve/admin.h"
#include "kvarve/store.h"
#include "simulate/world.h"

#define MIB   (UINT64_C(1) << 20)
#define PAGES 64u

static const engine_layout layout_ranks = {
    .identity = "{\"model\":\"ranks\"}",
    .ranks = 2,
    .group_count = 1,
    .groups = {{.page_class = KVARVE_CLASS_ENDPOINT, .page_bytes = 8192}}};

typedef struct fixture {
    sim_world *world;
    kvarve_store_options options;
    kvarve_store *store;
    engine at;
    kvarve_prefix *prefix;
} fixture;

static kvarve_error err;

static void expect_ok(kvarve_status status, const char *call, const char *file, int line)
{
    if (status != KVARVE_OK) {
        print_error("%s: %s: %s\n", call, kvarve_status_text(status), err.text);
        _fail(file, line);
    }
}

/* NOLINTNEXTLINE(readability-identifier-naming): it reads as those of cmocka. */
#define assert_ok(call) expect_ok((call), #call, __FILE__, __LINE__)

static void open_store(fixture *f, const engine_layout *layout)
{
    assert_ok(api_open_in(world_env(f->world), "store", &f->options, &f->store, &err));
    assert_ok(engine_open(&f->at, f->store, layout, &err));
}

static void close_store(fixture *f)
{
    engine_close(&f->at);
    kvarve_close(f->store);
    f->store = NULL;
}

static void begin_test(fixture *f, const engine_layout *layout)
{
    *f = (fixture){.world = world_create(7), .options = KVARVE_STORE_OPTIONS_INIT};
    f->options.arena_bytes = 4 * MIB;
    f->options.segment_bytes = MIB;
    f->options.flash_bytes_max = 64 * MIB;
    f->prefix = engine_prefix(1, 200);
    open_store(f, layout);
}

static void end_test(fixture *f)
{
    close_store(f);
    kvarve_prefix_free(f->prefix);
    world_destroy(f->world);
    assert_int_equal(kvarve_allocated_blocks(), 0);
}

static kvarve_statistics statistics(const fixture *f)
{
    kvarve_statistics now = KVARVE_STATISTICS_INIT;

    assert_int_equal(kvarve_statistics_get(f->store, &now, NULL), KVARVE_OK);
    return now;
}

static uint32_t put(fixture *f, const engine_state *state)
{
    uint32_t ended = 0;

    if (engine_put(&f->at, state, &ended, &err) == KVARVE_MISS) {
        return KVARVE_PUT_ABORTED;
    }
    return ended;
}

static kvarve_put *begin(fixture *f, const engine_state *state)
{
    kvarve_put *made = NULL;

    assert_ok(engine_put_begin(&f->at, state, NULL, &made, &err));
    assert_ok(kvarve_put_wait(made, KVARVE_PUT_STAGED, 1000, &err));
    return made;
}

/* Commits can not be: the first one of a life writes the lock file, which fails now. */
static void refuse_commits(fixture *f)
{
    const world_plan plan = {.fault_step = 0,
                             .fault_count = 1000000,
                             .fault_ops = WORLD_OP_WRITE,
                             .fault_path = "lock",
                             .cut_change = WORLD_NEVER};

    world_set_plan(f->world, &plan);
}

/* They succeed again. */
static void allow_commits(fixture *f)
{
    assert_true(world_observe(f->world).fault_hit);
    world_set_plan(f->world, NULL);
}

/* --- a page's bytes on flash --- */

typedef struct damage {
    fixture *f;
    const uint8_t *bytes;
    size_t size;
    size_t count;
} damage;

static bool damage_file(void *context, const char *path, uint64_t size)
{
    damage *what = context;
    uint8_t *all;

    if (strstr(path, ".seg") == NULL) {
        return true;
    }
    all = kvarve_allocate((size_t)size);
    assert_int_equal(world_read(what->f->world, path, 0, all, (size_t)size), 0);
    for (uint64_t at = 0; at + what->size <= size; at += 4096) {
        if (memcmp(all + at, what->bytes, what->size) == 0) {
            assert_int_equal(world_flip(what->f->world, path, at + what->size / 2, 1), 0);
            what->count++;
        }
    }
    kvarve_release(all);
    return true;
}

static void damage_page(fixture *f, const engine_state *state, uint32_t rank, uint32_t group,
                        uint64_t position)
{
    uint8_t *bytes = kvarve_allocate(ENGINE_PAGE_MAX);
    damage what = {
        .f = f, .bytes = bytes, .size = engine_page_size(&f->at, state, rank, group, position)};

    engine_fill(&f->at, state, rank, group, position, bytes);
    world_list_files(f->world, damage_file, &what);
    assert_int_equal(what.count, 1);
    kvarve_release(bytes);
}

/* --- tests --- */

static void test_put__a_rank_that_copies_on_after_an_abort_harms_no_other_put(void **state)
{
    fixture f;
    kvarve_page_plan plan[2][PAGES];
    kvarve_put *first;
    kvarve_put *second;
    size_t count = 0;

    (void)state;
    begin_test(&f, &layout_ranks);
    const engine_state a = {.prefix = f.prefix, .tokens = 100};
    const engine_state b = {.prefix = f.prefix, .tokens = 101};

    first = begin(&f, &a);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_ok(kvarve_put_plan(first, rank, plan[rank], PAGES, &count, &err));
        assert_int_equal(count, 1);
        assert_int_equal(plan[rank][0].action, KVARVE_PAGE_COPY);
    }
    assert_ok(kvarve_put_fail(first, 0, &err)); /* rank 1 does not know yet */
    second = begin(&f, &b);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_ok(engine_put_fill(&f.at, second, &b, rank, NULL, &err));
    }
    memset(plan[1][0].address, 0xee, plan[1][0].size); /* rank 1 is late */
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_ok(kvarve_put_ack(second, rank, NULL, 0, &err));
    }
    assert_ok(kvarve_put_wait(second, KVARVE_PUT_DURABLE, 1000, &err));
    kvarve_put_release(&second);
    kvarve_put_release(&first);
    assert_ok(engine_restore(&f.at, &b, true, &err));
    assert_int_equal(statistics(&f).puts_open, 0);
    end_test(&f);
}

static void test_put__a_late_rank_does_not_write_into_what_a_waiter_took_over(void **state)
{
    fixture f;
    kvarve_page_plan plan[PAGES];
    kvarve_put *first;
    kvarve_put *second;
    size_t count = 0;

    (void)state;
    begin_test(&f, &layout_ranks);
    const engine_state a = {.prefix = f.prefix, .tokens = 100};

    first = begin(&f, &a);
    assert_ok(kvarve_put_plan(first, 1, plan, PAGES, &count, &err));
    second = begin(&f, &a); /* the same pages: it waits for them */
    assert_ok(kvarve_put_fail(first, 0, &err));
    assert_ok(kvarve_put_wait(second, KVARVE_PUT_STAGED, 1000, &err));
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_ok(engine_put_fill(&f.at, second, &a, rank, NULL, &err));
    }
    memset(plan[0].address, 0xee, plan[0].size);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_ok(kvarve_put_ack(second, rank, NULL, 0, &err));
    }
    assert_ok(kvarve_put_wait(second, KVARVE_PUT_DURABLE, 1000, &err));
    kvarve_put_release(&second);
    kvarve_put_release(&first);
    assert_ok(engine_restore(&f.at, &a, true, &err));
    end_test(&f);
}

static void test_put__what_nobody_filled_is_not_stored(void **state)
{
    fixture f;
    kvarve_put *made;

    (void)state;
    begin_test(&f, &layout_ranks);
    const engine_state a = {.prefix = f.prefix, .tokens = 100};

    made = begin(&f, &a);
    assert_ok(engine_put_write(&f.at, made, &a, 0, &err));
    assert_ok(kvarve_put_ack(made, 0, NULL, 0, &err));
    assert_ok(kvarve_put_ack(made, 1, NULL, 0, &err)); /* of nothing */
    assert_int_equal(kvarve_put_wait(made, KVARVE_PUT_READY, 100, &err), KVARVE_BUSY);
    assert_ok(engine_put_write(&f.at, made, &a, 1, &err));
    assert_ok(kvarve_put_ack(made, 1, NULL, 0, &err));
    assert_ok(kvarve_put_wait(made, KVARVE_PUT_DURABLE, 1000, &err));
    kvarve_put_release(&made);
    assert_ok(engine_restore(&f.at, &a, true, &err));
    end_test(&f);
}

/* An open put whose last page is in the stored history closes where that page names draft rows. */
static void test_put__an_open_one_in_stored_history_closes_with_draft_rows(void **state)
{
    fixture f;
    kvarve_put *made = NULL;

    (void)state;
    begin_test(&f, &engine_rows);
    const engine_state whole = {.prefix = f.prefix, .tokens = 32, .draft_tokens = 32};
    const engine_state some = {.prefix = f.prefix, .tokens = 32, .draft_tokens = 26, .kind = 1};
    const engine_state open = {.prefix = f.prefix};

    assert_int_equal(put(&f, &whole), KVARVE_PUT_DURABLE);
    assert_ok(engine_put_begin(&f.at, &open, NULL, &made, &err));
    assert_ok(engine_put_extend(&f.at, made, &whole, &err));
    assert_ok(kvarve_put_wait(made, KVARVE_PUT_STAGED, 1000, &err));
    assert_ok(kvarve_put_ack(made, 0, NULL, 0, &err));
    assert_ok(kvarve_put_wait(made, KVARVE_PUT_STAGED, 1000, &err));
    assert_ok(engine_put_close(&f.at, made, &some, &err));
    assert_ok(kvarve_put_wait(made, KVARVE_PUT_STAGED, 1000, &err));
    assert_ok(engine_put_write(&f.at, made, &some, 0, &err));
    assert_ok(kvarve_put_ack(made, 0, NULL, 0, &err));
    assert_ok(kvarve_put_wait(made, KVARVE_PUT_DURABLE, 1000, &err));
    kvarve_put_release(&made);
    assert_ok(engine_restore(&f.at, &some, true, &err));
    assert_ok(engine_restore(&f.at, &whole, true, &err));
    close_store(&f);
    open_store(&f, &engine_rows);
    assert_ok(engine_restore(&f.at, &some, false, &err));
    assert_ok(engine_restore(&f.at, &whole, false, &err));
    end_test(&f);
}

/* The same where the open put itself staged that page. */
static void test_put__an_open_one_closes_with_draft_rows_in_what_it_staged(void **state)
{
    fixture f;
    kvarve_put *made = NULL;

    (void)state;
    begin_test(&f, &engine_rows);
    const engine_state whole = {.prefix = f.prefix, .tokens = 32, .draft_tokens = 32};
    const engine_state some = {.prefix = f.prefix, .tokens = 32, .draft_tokens = 26, .kind = 1};
    const engine_state open = {.prefix = f.prefix};

    assert_ok(engine_put_begin(&f.at, &open, NULL, &made, &err));
    assert_ok(engine_put_extend(&f.at, made, &whole, &err));
    assert_ok(kvarve_put_wait(made, KVARVE_PUT_STAGED, 1000, &err));
    assert_ok(engine_put_fill(&f.at, made, &whole, 0, NULL, &err));
    assert_ok(kvarve_put_ack(made, 0, NULL, 0, &err));
    assert_ok(kvarve_put_wait(made, KVARVE_PUT_STAGED, 1000, &err));
    assert_ok(engine_put_close(&f.at, made, &some, &err));
    assert_ok(kvarve_put_wait(made, KVARVE_PUT_STAGED, 1000, &err));
    assert_ok(engine_put_write(&f.at, made, &some, 0, &err));
    assert_ok(kvarve_put_ack(made, 0, NULL, 0, &err));
    assert_ok(kvarve_put_wait(made, KVARVE_PUT_DURABLE, 1000, &err));
    kvarve_put_release(&made);
    assert_ok(engine_restore(&f.at, &some, true, &err));
    close_store(&f);
    open_store(&f, &engine_rows);
    assert_ok(engine_restore(&f.at, &some, false, &err));
    end_test(&f);
}

static void test_repair__of_a_page_that_a_loaded_lease_pins(void **state)
{
    fixture f;
    kvarve_lease *lease = NULL;
    kvarve_boundary boundary;
    kvarve_page_view view[PAGES];
    size_t count = 0;

    (void)state;
    begin_test(&f, &layout_ranks);
    const engine_state a = {.prefix = f.prefix, .tokens = 100};

    assert_int_equal(put(&f, &a), KVARVE_PUT_DURABLE);
    assert_ok(engine_find(&f.at, &a, KVARVE_LEASE_LOAD, &boundary, &lease, NULL, &err));
    assert_ok(kvarve_lease_wait(lease, 1000, NULL, &err));
    assert_ok(kvarve_lease_pages(lease, 0, view, PAGES, &count, &err));
    world_flush(f.world);
    damage_page(&f, &a, 0, 0, 0);
    assert_int_equal(kvarve_verify(f.store, NULL, NULL, NULL, &err), KVARVE_CORRUPT);
    assert_int_equal(put(&f, &a), KVARVE_PUT_DURABLE); /* repairs it */
    assert_true(engine_is_right(&f.at, &a, 0, 0, 0, view[0].address, view[0].size));
    kvarve_lease_release(&lease);
    assert_ok(engine_restore(&f.at, &a, true, &err));
    close_store(&f);
    open_store(&f, &layout_ranks);
    assert_ok(engine_restore(&f.at, &a, false, &err));
    end_test(&f);
}

/* The commit of a repair fails, that of the next put does not. */
static void test_repair__whose_commit_was_refused_is_recorded_by_the_next_put(void **state)
{
    fixture f;
    kvarve_prefix *others = engine_prefix(2, 200);

    (void)state;
    begin_test(&f, &layout_ranks);
    const engine_state a = {.prefix = f.prefix, .tokens = 100};

    assert_int_equal(put(&f, &a), KVARVE_PUT_DURABLE);
    close_store(&f);
    open_store(&f, &layout_ranks);
    world_flush(f.world);
    damage_page(&f, &a, 0, 0, 0);
    assert_int_equal(kvarve_verify(f.store, NULL, NULL, NULL, &err), KVARVE_CORRUPT);
    refuse_commits(&f);
    assert_int_equal(put(&f, &a), KVARVE_PUT_ABORTED);
    allow_commits(&f);
    assert_true(put(&f, &a) >= KVARVE_PUT_DURABLE);
    for (uint64_t tokens = 50; tokens < 60; tokens++) { /* take the old place */
        const engine_state other = {.prefix = others, .tokens = tokens};

        assert_int_equal(put(&f, &other), KVARVE_PUT_DURABLE);
    }
    close_store(&f);
    open_store(&f, &layout_ranks);
    assert_ok(engine_restore(&f.at, &a, false, &err));
    kvarve_prefix_free(others);
    end_test(&f);
}

/* A checkpoint that was ready and leased when its commit failed is in nobody's hands. */
static void test_put__of_what_another_put_lost_while_it_was_leased(void **state)
{
    fixture f;
    kvarve_lease *lease = NULL;
    kvarve_boundary boundary;
    kvarve_put *made;

    (void)state;
    begin_test(&f, &layout_ranks);
    const engine_state a = {.prefix = f.prefix, .tokens = 100};

    made = begin(&f, &a);
    assert_ok(engine_put_ranks(&f.at, made, &a, NULL, &err));
    assert_ok(kvarve_put_wait(made, KVARVE_PUT_READY, 1000, &err));
    assert_ok(engine_find(&f.at, &a, KVARVE_LEASE_SOFT, &boundary, &lease, NULL, &err));
    assert_int_equal(boundary.state, KVARVE_PUT_READY);
    refuse_commits(&f);
    assert_int_equal(kvarve_put_wait(made, KVARVE_PUT_DURABLE, 1000, &err), KVARVE_MISS);
    kvarve_put_release(&made);
    allow_commits(&f);
    assert_int_equal(put(&f, &a), KVARVE_PUT_DURABLE);
    kvarve_lease_release(&lease);
    assert_ok(engine_restore(&f.at, &a, true, &err));
    close_store(&f);
    open_store(&f, &layout_ranks);
    assert_ok(engine_restore(&f.at, &a, false, &err));
    end_test(&f);
}

/* The draft half of a base that another put publishes, and loses. */
static void test_put__of_a_draft_half_whose_base_another_put_loses(void **state)
{
    fixture f;
    kvarve_put *base;
    kvarve_put *both;

    (void)state;
    begin_test(&f, &engine_drafted);
    const engine_state half = {
        .prefix = f.prefix, .tokens = 100, .draft_tokens = 100, .has_no_optional = true};
    const engine_state whole = {.prefix = f.prefix, .tokens = 100, .draft_tokens = 100};

    base = begin(&f, &half);
    assert_ok(engine_put_ranks(&f.at, base, &half, NULL, &err));
    assert_ok(kvarve_put_wait(base, KVARVE_PUT_READY, 1000, &err));
    both = begin(&f, &whole);
    refuse_commits(&f);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_ok(engine_put_fill(&f.at, both, &whole, rank, NULL, &err));
        assert_ok(kvarve_put_ack(both, rank, NULL, 0, &err));
    }
    (void)!kvarve_put_wait(base, KVARVE_PUT_DURABLE, 1000, &err);
    allow_commits(&f);
    (void)!kvarve_put_wait(both, KVARVE_PUT_DURABLE, 1000, &err);
    if (kvarve_put_status(both) == KVARVE_PUT_DURABLE) {
        kvarve_put_release(&base);
        kvarve_put_release(&both);
        close_store(&f);
        open_store(&f, &engine_drafted);
        assert_ok(engine_restore(&f.at, &whole, true, &err));
    }
    kvarve_put_release(&base);
    kvarve_put_release(&both);
    end_test(&f);
}

static void test_find__short_checkpoints_stay_found_when_many_came_and_went(void **state)
{
    fixture f;
    kvarve_put *made;
    uint8_t id[200][32];
    uint64_t oldest = 1;

    (void)state;
    begin_test(&f, &layout_ranks);
    for (uint64_t tokens = 1; tokens < 200; tokens++) {
        const engine_state here = {.prefix = f.prefix, .tokens = tokens};

        made = begin(&f, &here);
        assert_ok(engine_put_ranks(&f.at, made, &here, NULL, &err));
        assert_ok(kvarve_put_wait(made, KVARVE_PUT_DURABLE, 1000, &err));
        assert_ok(kvarve_put_id(made, id[tokens], &err));
        kvarve_put_release(&made);
        for (; tokens >= 33 && tokens - oldest > 20; oldest++) {
            assert_ok(kvarve_drop(f.store, id[oldest], &err));
        }
        assert_ok(engine_restore(&f.at, &here, false, &err));
    }
    end_test(&f);
}

static void test_room__a_base_that_is_used_does_not_go_with_its_old_draft_half(void **state)
{
    fixture f;

    (void)state;
    begin_test(&f, &engine_drafted);
    close_store(&f);
    f.options.checkpoints_max = 4;
    open_store(&f, &engine_drafted);
    const engine_state used = {.prefix = f.prefix, .tokens = 100, .draft_tokens = 100};

    assert_int_equal(put(&f, &used), KVARVE_PUT_DURABLE);
    for (uint64_t tokens = 10; tokens < 20; tokens++) {
        const engine_state other = {.prefix = f.prefix, .tokens = tokens, .has_no_optional = true};

        assert_int_equal(put(&f, &other), KVARVE_PUT_DURABLE);
        assert_ok(engine_restore(&f.at, &used, false, &err));
    }
    end_test(&f);
}

static void test_put_many__ends_at_once_when_one_is_invalid(void **state)
{
    fixture f;
    uint8_t bytes[100] = {0};
    const kvarve_section section = {.bytes = bytes, .size = sizeof bytes};
    kvarve_put_options options = KVARVE_PUT_OPTIONS_INIT;
    kvarve_bulk_item item = {.options = &options, .sections = &section, .section_count = 1};
    uint64_t before;

    (void)state;
    begin_test(&f, &layout_ranks);
    options.tokens = 100;
    options.timeout_ms = KVARVE_NO_TIMEOUT;
    item.prefix = f.prefix;
    before = statistics(&f).puts_aborted;
    assert_int_equal(kvarve_put_many(f.at.space, &item, 1, &err), KVARVE_INVALID);
    assert_int_equal(item.out_state, KVARVE_PUT_ABORTED);
    assert_int_equal(statistics(&f).puts_aborted, before + 1);
    end_test(&f);
}

static void test_room__records_of_one_page_puts_never_fill_the_store_for_good(void **state)
{
    fixture f;

    (void)state;
    begin_test(&f, &layout_ranks);
    close_store(&f);
    f.options.flash_bytes_max = 8 * MIB;
    open_store(&f, &layout_ranks);
    for (uint64_t seed = 10; seed < 2500; seed++) {
        kvarve_prefix *prefix = engine_prefix(seed, 3);
        const engine_state here = {.prefix = prefix, .tokens = 3};

        assert_int_equal(put(&f, &here), KVARVE_PUT_DURABLE);
        kvarve_prefix_free(prefix);
    }
    end_test(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put__a_rank_that_copies_on_after_an_abort_harms_no_other_put),
        cmocka_unit_test(test_put__a_late_rank_does_not_write_into_what_a_waiter_took_over),
        cmocka_unit_test(test_put__what_nobody_filled_is_not_stored),
        cmocka_unit_test(test_put__an_open_one_in_stored_history_closes_with_draft_rows),
        cmocka_unit_test(test_put__an_open_one_closes_with_draft_rows_in_what_it_staged),
        cmocka_unit_test(test_repair__of_a_page_that_a_loaded_lease_pins),
        cmocka_unit_test(test_repair__whose_commit_was_refused_is_recorded_by_the_next_put),
        cmocka_unit_test(test_put__of_what_another_put_lost_while_it_was_leased),
        cmocka_unit_test(test_put__of_a_draft_half_whose_base_another_put_loses),
        cmocka_unit_test(test_find__short_checkpoints_stay_found_when_many_came_and_went),
        cmocka_unit_test(test_room__a_base_that_is_used_does_not_go_with_its_old_draft_half),
        cmocka_unit_test(test_put_many__ends_at_once_when_one_is_invalid),
        cmocka_unit_test(test_room__records_of_one_page_puts_never_fill_the_store_for_good),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
