/*
 * test_index.c - what the index keeps, refuses and promises, on the simulated disk.
 *
 * Damaged and foreign databases stand in test_index_damage.c, the sweeps over every step of a
 * scenario in tests/crash/test_index_crash.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "unit/index/index_fixture.h"

static void test_index__what_was_committed_is_there_after_reopen(void **state)
{
    fixture *f = *state;

    open_index(f);
    assert_content(f);
    add_some(f);
    assert_content(f);
    assert_int_equal(reopen(f), KVARVE_OK);
    assert_content(f);
    empty_log(f);
    assert_int_equal(reopen(f), KVARVE_OK);
    assert_content(f);
    do_step(f, (kit_step){.add = 10, .add_size = 900});
    assert_int_equal(reopen(f), KVARVE_OK);
    assert_content(f);
}

static void test_index__committed_rows_survive_a_power_cut(void **state)
{
    fixture *f = *state;

    open_index(f);
    add_some(f);
    world_cut(f->world);
    close_index(f);
    world_restart(f->world, NULL);
    open_index(f);
    assert_content(f);
}

static void test_index__dead_batch_takes_its_drops_along(void **state)
{
    fixture *f = *state;

    open_index(f);
    add_some(f);
    do_step(f, (kit_step){.drop_checkpoint = 5, .drop_sequence = 2});
    do_step(f, (kit_step){.dead = 1, .drop_checkpoint = 6, .drop_sequence = 1});
    assert_int_equal(f->model.dropped_sequence[4], 0);
    assert_int_equal(f->model.dropped_sequence[6], 0);
    assert_int_equal(f->model.dropped_sequence[5], 2);
    assert_content(f);
}

static void test_index__recency_is_replaced_and_removed(void **state)
{
    fixture *f = *state;

    open_index(f);
    do_step(f, (kit_step){.recency_checkpoint = 3, .used = 10});
    do_step(f, (kit_step){.recency_checkpoint = 3, .used = 11});
    do_step(f, (kit_step){.recency_checkpoint = 4, .used = 12});
    assert_content(f);
    do_step(f, (kit_step){.dead_recency = 3});
    assert_content(f);
}

static void test_index__close_writes_nothing(void **state)
{
    fixture *f = *state;

    open_index(f);
    add_some(f);
    world_set_plan(f->world, NULL);
    close_index(f);
    assert_int_equal(world_observe(f->world).changes, 0);
    assert_true(world_exists(f->world, KIT_LOG));
}

static void test_index__read_only_changes_nothing(void **state)
{
    fixture *f = *state;

    assert_int_equal(kit_open(world_env(f->world), true, &f->index, &f->err), KVARVE_MISS);
    assert_false(world_exists(f->world, KIT_DATABASE));
    open_index(f);
    add_some(f);
    close_index(f);
    for (int has_log = 1; has_log >= 0; has_log--) {
        world_set_plan(f->world, NULL);
        assert_int_equal(kit_open(world_env(f->world), true, &f->index, &f->err), KVARVE_OK);
        assert_content(f);
        close_index(f);
        assert_int_equal(world_observe(f->world).changes, 0);
        open_index(f);
        empty_log(f);
        close_index(f);
        assert_int_equal(world_truncate(f->world, KIT_LOG, 0), 0);
    }
}

static void test_index__log_is_copied_and_used_again(void **state)
{
    fixture *f = *state;
    index_counters counters;

    open_index(f);
    for (uint64_t i = 1; i <= 2000; i++) {
        do_step(f, (kit_step){.recency_checkpoint = 1 + i % 60, .used = i});
        index_count(f->index, &counters);
        assert_true(counters.log_bytes <= INDEX_LOG_BYTES_LEAST);
    }
    assert_int_equal(counters.transactions, 2000);
    assert_true(counters.checkpoints > 5);
    assert_int_equal(counters.checkpoints_failed, 0);
    assert_true(counters.database_bytes >= 4 * (uint64_t)INDEX_PAGE_BYTES);
    assert_true(counters.database_bytes_written > 0);
    assert_true(counters.log_bytes_written > 2000 * (uint64_t)INDEX_PAGE_BYTES);
    assert_content(f);
    assert_int_equal(reopen(f), KVARVE_OK);
    assert_content(f);
}

static void test_index__log_is_emptied_after_a_transaction_over_the_cap(void **state)
{
    fixture *f = *state;
    index_counters counters;
    index_batch batches[3];
    uint8_t *body = kvarve_allocate(INDEX_BODY_BYTES_MAX);
    index_transaction transaction = {.batches = batches, .batch_count = 3};

    open_index(f);
    for (uint64_t i = 0; i < 3; i++) {
        batches[i] = (index_batch){.sequence = i + 1, .body = body, .size = INDEX_BODY_BYTES_MAX};
    }
    assert_int_equal(kit_run(f->world, f->index, &transaction), KVARVE_OK);
    index_count(f->index, &counters);
    assert_int_equal(counters.log_bytes, 0);
    assert_int_equal(world_size(f->world, KIT_LOG, &counters.log_bytes), 0);
    assert_int_equal(counters.log_bytes, 0);
    kvarve_release(body);
}

/* Room is made before a commit, so that the log never grows over the cap: it holds that commit. */
static void test_index__log_is_emptied_before_a_commit_that_would_pass_the_cap(void **state)
{
    const uint64_t log_bytes_max = UINT64_C(40) * INDEX_FRAME_BYTES;
    fixture *f = *state;
    index_counters counters;

    open_index(f);
    index_set_limits(f->index, UINT32_MAX, log_bytes_max);
    for (uint64_t i = 1; i <= 300; i++) {
        do_step(f, (kit_step){.recency_checkpoint = 1 + i % 60, .used = i});
        index_count(f->index, &counters);
        assert_in_range(counters.log_bytes, INDEX_FRAME_BYTES, log_bytes_max);
    }
    assert_true(counters.checkpoints > 5);
    assert_content(f);
}

static void test_index__full_disk_is_no_space_and_the_index_goes_on(void **state)
{
    fixture *f = *state;

    open_index(f);
    add_some(f);
    world_set_capacity(f->world, world_used_bytes(f->world) + 8192);
    assert_int_equal(try_step(f, (kit_step){.add = 5, .add_size = 8000}), KVARVE_NO_SPACE);
    assert_int_equal(f->err.status, KVARVE_NO_SPACE);
    assert_false(index_is_failed(f->index));
    assert_content(f);
    world_set_capacity(f->world, UINT64_C(1) << 40);
    do_step(f, (kit_step){.add = 5, .add_size = 7000});
    assert_int_equal(reopen(f), KVARVE_OK);
    assert_content(f);
}

/* The write that fails may be the padding behind a commit record that is already in the file. */
static void test_index__refused_transaction_is_not_found_by_recovery(void **state)
{
    fixture *f = *state;
    bool is_reached = true;
    unsigned refused = 0;

    open_index(f);
    add_some(f);
    for (uint64_t step = 0; is_reached; step++) {
        const world_plan plan = {.fault_step = step,
                                 .fault_ops = WORLD_OP_WRITE,
                                 .fault_path = INDEX_LOG_NAME,
                                 .fault_errno = ENOSPC,
                                 .cut_change = WORLD_NEVER};
        kvarve_status status;

        world_set_plan(f->world, &plan);
        status = try_step(f, (kit_step){.add = 20, .add_size = 6000});
        is_reached = world_observe(f->world).fault_reached;
        world_set_plan(f->world, NULL);
        if (is_reached) {
            assert_int_equal(status, KVARVE_NO_SPACE);
            refused++;
            assert_int_equal(reopen(f), KVARVE_OK);
            assert_content(f);
        }
    }
    assert_true(refused >= 4);
}

static void test_index__failed_sync_fails_the_index(void **state)
{
    static const int errors[] = {EIO, ENOSPC};
    fixture *f = *state;

    open_index(f);
    for (size_t i = 0; i < 2; i++) {
        const world_plan plan = {
            .fault_ops = WORLD_OP_SYNC, .fault_errno = errors[i], .cut_change = WORLD_NEVER};

        do_step(f, (kit_step){.add = i + 1, .add_size = 700});
        world_set_plan(f->world, &plan);
        assert_int_equal(try_step(f, (kit_step){.add = 9, .add_size = 500}), KVARVE_IO);
        assert_int_equal(f->err.os_errno, errors[i]);
        world_set_plan(f->world, NULL);
        assert_true(index_is_failed(f->index));
        assert_int_equal(try_step(f, (kit_step){.add = 10, .add_size = 500}), KVARVE_IO);
        assert_int_equal(world_observe(f->world).changes, 0);
        assert_int_equal(reopen(f), KVARVE_OK);
        assert_false(index_is_failed(f->index));
        assert_content(f);
    }
}

/* What a reader sees after a failed sync and a reopen is what a power cut then leaves. */
static void test_index__unsynced_commit_is_not_seen_after_a_failed_sync(void **state)
{
    fixture *f = *state;
    const world_plan plan = {.fault_ops = WORLD_OP_SYNC, .cut_change = WORLD_NEVER};

    open_index(f);
    add_some(f);
    world_set_plan(f->world, &plan);
    assert_int_equal(try_step(f, (kit_step){.add = 9, .add_size = 500}), KVARVE_IO);
    world_set_plan(f->world, NULL);
    assert_int_equal(reopen(f), KVARVE_OK);
    assert_content(f);
    close_index(f);
    world_restart(f->world, NULL);
    open_index(f);
    assert_content(f);
}

/* A killed process left its commit in the page cache; what the next one loads must stay. */
static void test_index__what_load_shows_is_durable(void **state)
{
    fixture *f = *state;

    for (uint64_t seed = 0; seed < 8; seed++) {
        const world_plan lost = {.fault = WORLD_FAULT_LOST_SYNC,
                                 .fault_count = 1000,
                                 .fault_ops = WORLD_OP_SYNC | WORLD_OP_SYNC_DIRECTORY,
                                 .cut_change = WORLD_NEVER};
        const world_plan cut = {.fault_step = WORLD_NEVER, .cut_change = WORLD_NEVER, .seed = seed};

        world_set_plan(f->world, &lost);
        open_index(f);
        do_step(f, (kit_step){.add = seed + 1, .add_size = 5000});
        close_index(f);
        world_kill(f->world);
        world_set_plan(f->world, &cut);
        open_index(f);
        assert_content(f);
        close_index(f);
        world_restart(f->world, NULL);
        open_index(f);
        assert_content(f);
        close_index(f);
    }
}

static void test_index__failed_checkpoint_leaves_the_commit(void **state)
{
    fixture *f = *state;
    const world_plan plan = {.fault_ops = WORLD_OP_WRITE,
                             .fault_path = KIT_DATABASE,
                             .fault_errno = ENOSPC,
                             .cut_change = WORLD_NEVER};
    index_counters counters;

    open_index(f);
    add_some(f);
    index_set_limits(f->index, 1, INDEX_LOG_BYTES_LEAST);
    /* The log's path has the database's in it: let its own writes pass. */
    for (uint64_t step = 0;; step++) {
        world_plan one = plan;

        one.fault_step = step;
        world_set_plan(f->world, &one);
        if (try_step(f, (kit_step){.add = 4, .add_size = 900}) == KVARVE_OK) {
            break;
        }
    }
    assert_true(world_observe(f->world).fault_hit);
    kit_apply(&f->model, &(kit_step){.add = 4, .add_size = 900});
    index_count(f->index, &counters);
    assert_int_equal(counters.checkpoints_failed, 1);
    assert_false(index_is_failed(f->index));
    do_step(f, (kit_step){.add = 5, .add_size = 900});
    assert_content(f);
}

static void test_index__failed_sync_in_a_checkpoint_fails_the_index(void **state)
{
    fixture *f = *state;
    kit_step step = {.add = 4, .add_size = 900};
    world_plan plan = {.fault_ops = WORLD_OP_SYNC, .cut_change = WORLD_NEVER};

    open_index(f);
    add_some(f);
    index_set_limits(f->index, 1, INDEX_LOG_BYTES_LEAST);
    /* The first sync is the commit's. */
    plan.fault_step = 1;
    world_set_plan(f->world, &plan);
    do_step(f, step);
    assert_true(world_observe(f->world).fault_hit);
    assert_true(index_is_failed(f->index));
    world_set_plan(f->world, NULL);
    assert_int_equal(reopen(f), KVARVE_OK);
    assert_content(f);
}

static kvarve_status refuse_batch(void *context, uint64_t sequence, const void *body, size_t size,
                                  kvarve_error *err)
{
    (void)context;
    (void)body;
    (void)size;
    return kvarve_fail(err, KVARVE_UNSUPPORTED, "batch %llu", (unsigned long long)sequence);
}

static void test_index__load_ends_with_the_visitors_answer(void **state)
{
    fixture *f = *state;
    const index_visitor visitor = {
        .batch = refuse_batch, .dropped = kit_see_dropped, .recency = kit_see_recency};

    open_index(f);
    add_some(f);
    assert_int_equal(index_load(f->index, &visitor, &f->err), KVARVE_UNSUPPORTED);
    assert_content(f);
}

static void test_index__remove_leaves_a_new_one(void **state)
{
    fixture *f = *state;

    assert_int_equal(index_remove(world_env(f->world), KIT_DIRECTORY, &f->err), KVARVE_OK);
    open_index(f);
    add_some(f);
    close_index(f);
    assert_int_equal(index_remove(world_env(f->world), KIT_DIRECTORY, &f->err), KVARVE_OK);
    assert_false(world_exists(f->world, KIT_DATABASE));
    assert_false(world_exists(f->world, KIT_LOG));
    memset(&f->model, 0, sizeof f->model);
    open_index(f);
    assert_content(f);
}

/* Two indexes and the host's own SQLite side by side: names, default VFS and settings are apart. */
static void test_index__host_and_two_indexes_do_not_meet(void **state)
{
    fixture *f = *state;
    fixture other = {.world = kit_world()};
    sqlite3_vfs *before = sqlite3_vfs_find(NULL);
    sqlite3 *host = NULL;

    open_index(f);
    open_index(&other);
    assert_ptr_equal(sqlite3_vfs_find(NULL), before);
    assert_int_equal(sqlite3_open(":memory:", &host), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(host, "CREATE TABLE t(a); INSERT INTO t VALUES(1)", NULL, NULL, NULL),
        SQLITE_OK);
    add_some(f);
    do_step(&other, (kit_step){.add = 50, .add_size = 50});
    assert_content(f);
    assert_content(&other);
    index_close(other.index);
    world_destroy(other.world);
    do_step(f, (kit_step){.add = 30, .add_size = 30});
    assert_int_equal(sqlite3_exec(host, "INSERT INTO t VALUES(2)", NULL, NULL, NULL), SQLITE_OK);
    close_index(f);
    assert_ptr_equal(sqlite3_vfs_find(NULL), before);
    assert_int_equal(sqlite3_close(host), SQLITE_OK);
}

static int fail_allocation(void *context, uint64_t number)
{
    (void)context;
    (void)number;
    return 0;
}

static void test_index__failed_allocation_is_no_memory(void **state)
{
    fixture *f = *state;
    kvarve_status status;

    world_reserve(f->world, 1u << 20);
    kvarve_allocate_set_hook(fail_allocation, NULL);
    status = kit_open(world_env(f->world), false, &f->index, &f->err);
    kvarve_allocate_set_hook(NULL, NULL);
    assert_int_equal(status, KVARVE_NO_MEMORY);
    open_index(f);
}

/* One batch of a few kilobytes at the end of a long table: log and database grow by little. */
static void test_index__a_put_costs_few_frames(void **state)
{
    enum { ROWS = 20000, PUTS = 1000, BODY = 3000 };
    fixture *f = *state;
    static uint8_t body[BODY];
    index_counters before;
    index_counters after;
    uint64_t sequence = 1;

    open_index(f);
    while (sequence <= ROWS) {
        index_batch batches[100];
        index_transaction transaction = {.batches = batches, .batch_count = 100};

        for (size_t i = 0; i < 100; i++) {
            batches[i] = (index_batch){.sequence = sequence++, .body = body, .size = BODY};
        }
        assert_int_equal(kit_run(f->world, f->index, &transaction), KVARVE_OK);
    }
    empty_log(f); /* the database has its size only then */
    index_count(f->index, &before);
    for (size_t i = 0; i < PUTS; i++) {
        const index_batch batch = {.sequence = sequence++, .body = body, .size = BODY};
        index_transaction transaction = {.batches = &batch, .batch_count = 1};

        assert_int_equal(kit_run(f->world, f->index, &transaction), KVARVE_OK);
    }
    empty_log(f);
    index_count(f->index, &after);
    assert_true((after.log_bytes_written - before.log_bytes_written) / PUTS <=
                UINT64_C(5) * INDEX_FRAME_BYTES);
    assert_true((after.database_bytes - before.database_bytes) / PUTS <= BODY + 1200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_index__what_was_committed_is_there_after_reopen),
        WORLD_TEST(test_index__committed_rows_survive_a_power_cut),
        WORLD_TEST(test_index__dead_batch_takes_its_drops_along),
        WORLD_TEST(test_index__recency_is_replaced_and_removed),
        WORLD_TEST(test_index__close_writes_nothing),
        WORLD_TEST(test_index__read_only_changes_nothing),
        WORLD_TEST(test_index__log_is_copied_and_used_again),
        WORLD_TEST(test_index__log_is_emptied_after_a_transaction_over_the_cap),
        WORLD_TEST(test_index__log_is_emptied_before_a_commit_that_would_pass_the_cap),
        WORLD_TEST(test_index__full_disk_is_no_space_and_the_index_goes_on),
        WORLD_TEST(test_index__refused_transaction_is_not_found_by_recovery),
        WORLD_TEST(test_index__failed_sync_fails_the_index),
        WORLD_TEST(test_index__unsynced_commit_is_not_seen_after_a_failed_sync),
        WORLD_TEST(test_index__what_load_shows_is_durable),
        WORLD_TEST(test_index__failed_checkpoint_leaves_the_commit),
        WORLD_TEST(test_index__failed_sync_in_a_checkpoint_fails_the_index),
        WORLD_TEST(test_index__load_ends_with_the_visitors_answer),
        WORLD_TEST(test_index__remove_leaves_a_new_one),
        WORLD_TEST(test_index__host_and_two_indexes_do_not_meet),
        WORLD_TEST(test_index__failed_allocation_is_no_memory),
        WORLD_TEST(test_index__a_put_costs_few_frames),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
