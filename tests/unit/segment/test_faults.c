/*
 * test_faults.c - segment files on a disk that fails and loses power.
 *
 * Fault model  One failing call (EIO, ENOSPC, EINTR, a short or torn transfer), enumerated over all
 *              steps of a scenario; a power cut at each change, settled by several seeds; each
 *              allocation failing once. Each sweep asserts that it reached the end of the scenario
 *              and that its faults bit.
 * Oracle       What was synced and acknowledged is read back. A grown file that was acknowledged is
 *              there. Nothing that was not acknowledged makes a later open fail, and no temporary
 *              name is left after it. Slots stay accounted for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>

#include "base/alloc.h"
#include "segment_sample.h"

#define PAGES 4
#define SEEDS 6

static _Alignas(4096) uint8_t written[PAGES][SAMPLE_SLOT];
static _Alignas(4096) uint8_t read_back[PAGES][SAMPLE_SLOT];

/* What was acknowledged. */
typedef struct ledger {
    uint32_t grown; /* files */
    page_place places[PAGES];
    bool are_durable;
    page_place later[PAGES]; /* written after a trim, in what it punched */
    bool are_later_durable;
    bool was_trimmed;
    bool is_failed;
} ledger;

static void make_parts(segment_part *parts, const page_place *places, uint8_t (*bytes)[SAMPLE_SLOT])
{
    for (size_t i = 0; i < PAGES; i++) {
        parts[i] =
            (segment_part){.place = places[i], .bytes = bytes[i], .size = SAMPLE_SLOT, .result = 1};
    }
}

/* Open, grow twice, write and sync pages in the first, trim, give what was punched its space
 * again and write there too. Faults end it early. */
static ledger run_scenario(sim_world *world)
{
    const segment_options options = sample_options();
    const uint32_t file = 1;
    ledger done = {0};
    segment_part parts[PAGES];
    segment_set *set = NULL;
    uint64_t bytes = 0;

    if (segment_open(world_env(world), SAMPLE_FOLDER, &options, &set, NULL) != KVARVE_OK) {
        return done;
    }
    done.grown += sample_grow(world, set, SAMPLE_SLOT, UINT64_MAX) == KVARVE_OK;
    done.grown += sample_grow(world, set, SAMPLE_SLOT, UINT64_MAX) == KVARVE_OK;
    if (done.grown == 2 && segment_reserve(set, SAMPLE_SLOT, PAGES, done.places) == KVARVE_OK) {
        make_parts(parts, done.places, written);
        done.are_durable = sample_write(world, set, parts, PAGES) == KVARVE_OK &&
                           sample_sync(world, set, &file, 1) == KVARVE_OK;
        done.was_trimmed = sample_trim(world, set, &bytes) == KVARVE_OK;
        if (sample_grow(world, set, SAMPLE_SLOT, PAGES * SAMPLE_SLOT) == KVARVE_OK &&
            segment_reserve(set, SAMPLE_SLOT, PAGES, done.later) == KVARVE_OK) {
            make_parts(parts, done.later, written);
            done.are_later_durable =
                sample_write(world, set, parts, PAGES) == KVARVE_OK &&
                sample_sync(world, set, &done.later[0].segment, 1) == KVARVE_OK;
        }
    }
    done.is_failed = segment_is_failed(set);
    assert_int_equal(segment_free_slots(set, SAMPLE_SLOT) * SAMPLE_SLOT,
                     sample_count(set).slot_bytes_free);
    segment_close(set);
    return done;
}

static bool fail_on_temporary(void *context, const char *path, uint64_t size)
{
    (void)context;
    (void)size;
    assert_null(strstr(path, ".new"));
    return true;
}

static void check_pages(sim_world *world, segment_set *set, const page_place *places)
{
    segment_part parts[PAGES];

    for (size_t i = 0; i < PAGES; i++) {
        assert_true(segment_place_is_valid(set, places[i], SAMPLE_SLOT));
        assert_true(segment_take(set, places[i]));
    }
    memset(read_back, 0, sizeof read_back);
    make_parts(parts, places, read_back);
    assert_int_equal(sample_read(world, set, parts, PAGES), KVARVE_OK);
    assert_memory_equal(written, read_back, sizeof written);
}

/* Open again on a quiet disk: it opens, and what was acknowledged is there. */
static void check(sim_world *world, const ledger *done)
{
    segment_set *set = sample_open(world);

    world_list_files(world, fail_on_temporary, NULL);
    assert_int_equal(sample_count(set).damaged_files, 0);
    assert_true(sample_count(set).file_bytes >= world_used_bytes(world));
    if (done->are_durable) {
        check_pages(world, set, done->places);
    }
    if (done->are_later_durable) {
        check_pages(world, set, done->later);
    }
    segment_close(set);
}

static void prepare_pages(void)
{
    for (uint64_t i = 0; i < PAGES; i++) {
        sample_fill(written[i], SAMPLE_SLOT, i + 1);
    }
}

static void test_faults__a_power_cut_at_any_change_loses_nothing_acknowledged(void **unused)
{
    uint64_t cuts = 0;
    uint64_t durable = 0;
    uint64_t later = 0;

    (void)unused;
    prepare_pages();
    for (uint64_t change = 0, is_over = 0; !is_over; change++) {
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            const world_plan plan = {.fault_step = WORLD_NEVER, .cut_change = change, .seed = seed};
            sim_world *world = sample_world(seed);
            ledger done;

            world_set_plan(world, &plan);
            done = run_scenario(world);
            is_over = !world_observe(world).is_cut;
            cuts += world_observe(world).is_cut;
            durable += done.are_durable && !is_over;
            later += done.are_later_durable;
            world_restart(world, NULL);
            check(world, &done);
            /* Opening again what was just opened, cut at its first change, is no worse. */
            world_restart(world, NULL);
            check(world, &done);
            world_destroy(world);
        }
    }
    assert_true(cuts > 100 && durable > 10 && later > 0);
}

/* A process that dies between a rename and the sync of the directory, or between making the folder
 * and the sync of its parent, is the same as one whose sync did nothing: the next one must make up
 * for it before it counts on the name. */
static void test_faults__names_of_a_process_that_died_are_made_durable(void **unused)
{
    const world_plan lost = {.fault_step = 0,
                             .fault_count = UINT32_MAX,
                             .cut_change = WORLD_NEVER,
                             .fault_ops = WORLD_OP_SYNC_DIRECTORY,
                             .fault = WORLD_FAULT_LOST_SYNC};

    (void)unused;
    prepare_pages();
    for (uint64_t seed = 1; seed <= 20; seed++) {
        const world_plan quiet = {
            .fault_step = WORLD_NEVER, .cut_change = WORLD_NEVER, .seed = seed};
        const uint32_t file = 1;
        sim_world *world = sample_world(seed);
        segment_set *set;
        segment_part parts[PAGES];
        ledger done = {.are_durable = true};

        world_set_plan(world, &lost);
        set = sample_open(world);
        assert_int_equal(sample_grow(world, set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
        assert_true(world_observe(world).fault_hit);
        segment_close(set);
        world_kill(world);
        world_set_plan(world, &quiet);
        set = sample_open(world);
        assert_int_equal(segment_reserve(set, SAMPLE_SLOT, PAGES, done.places), KVARVE_OK);
        make_parts(parts, done.places, written);
        assert_int_equal(sample_write(world, set, parts, PAGES), KVARVE_OK);
        assert_int_equal(sample_sync(world, set, &file, 1), KVARVE_OK);
        segment_close(set);
        world_restart(world, NULL);
        check(world, &done);
        world_destroy(world);
    }
}

static const struct {
    const char *name;
    world_fault fault;
    int error;
} kinds[] = {
    {"EIO", WORLD_FAULT_ERROR, EIO},     {"ENOSPC", WORLD_FAULT_ERROR, ENOSPC},
    {"EINTR", WORLD_FAULT_ERROR, EINTR}, {"EMFILE", WORLD_FAULT_ERROR, EMFILE},
    {"short", WORLD_FAULT_SHORT, 0},     {"torn write", WORLD_FAULT_TORN, EIO},
};

/* One fault at `step`; false when the scenario does not come so far. */
static bool run_with_fault(size_t kind, uint64_t step, uint64_t *hits)
{
    const world_plan plan = {.fault_step = step,
                             .cut_change = WORLD_NEVER,
                             .fault = kinds[kind].fault,
                             .fault_errno = kinds[kind].error};
    sim_world *world = sample_world(step + 1);
    bool was_reached;
    ledger done;

    world_set_plan(world, &plan);
    done = run_scenario(world);
    was_reached = world_observe(world).fault_reached;
    *hits += world_observe(world).fault_hit;
    assert_int_equal(world_open_descriptors(world), 0);
    world_set_plan(world, NULL);
    world_kill(world);
    check(world, &done);
    world_restart(world, NULL); /* And what was acknowledged survives a cut too. */
    check(world, &done);
    world_destroy(world);
    return was_reached;
}

static void test_faults__any_single_fault_is_a_status(void **unused)
{
    (void)unused;
    prepare_pages();
    for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++) {
        uint64_t hits = 0;
        uint64_t step = 0;

        while (run_with_fault(kind, step, &hits)) {
            step++;
        }
        print_message("%s: %llu steps, %llu hits\n", kinds[kind].name, (unsigned long long)step,
                      (unsigned long long)hits);
        assert_true(step > 20 && hits > 0);
        assert_int_equal(kvarve_allocated_blocks(), 0);
    }
}

/* The host with one grown file and pages in it. */
static segment_set *open_with_pages(sim_world *world, page_place *places)
{
    segment_set *set = sample_open(world);
    segment_part parts[PAGES];

    prepare_pages();
    assert_int_equal(sample_grow(world, set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    assert_int_equal(segment_reserve(set, SAMPLE_SLOT, PAGES, places), KVARVE_OK);
    make_parts(parts, places, written);
    assert_int_equal(sample_write(world, set, parts, PAGES), KVARVE_OK);
    return set;
}

static void test_faults__a_bad_page_fails_alone(void **unused)
{
    /* The read of all four fails, then the read of the second one alone. */
    const world_plan plans[2] = {
        {.fault_step = 0, .cut_change = WORLD_NEVER, .fault_ops = WORLD_OP_READ},
        {.fault_step = 0, .fault_count = 2, .cut_change = WORLD_NEVER, .fault_ops = WORLD_OP_READ}};
    sim_world *world = sample_world(1);
    page_place places[PAGES];
    segment_part parts[PAGES];
    segment_set *set = open_with_pages(world, places);
    sample_request request;

    (void)unused;
    world_set_plan(world, &plans[0]);
    make_parts(parts, places, read_back);
    assert_int_equal(sample_read(world, set, parts, PAGES), KVARVE_OK);
    assert_true(world_observe(world).fault_hit);

    world_set_plan(world, &plans[1]);
    make_parts(parts, places, read_back);
    sample_prepare(&request, parts, PAGES);
    assert_int_equal(sample_finish(world, &request, segment_read(set, &request.base, NULL)),
                     KVARVE_IO);
    assert_int_equal(parts[0].result, -EIO);
    for (size_t i = 1; i < PAGES; i++) {
        assert_int_equal(parts[i].result, 0);
        assert_memory_equal(read_back[i], written[i], SAMPLE_SLOT);
    }
    assert_int_equal(request.base.error.os_errno, EIO);
    assert_string_equal(request.base.error.text, "read pages of store/segments/16384-1.seg");
    segment_close(set);
    world_destroy(world);
}

static void test_faults__a_truncated_file_loses_only_what_is_cut(void **unused)
{
    sim_world *world = sample_world(1);
    page_place places[PAGES];
    segment_part parts[PAGES];
    segment_set *set = open_with_pages(world, places);
    uint64_t size = 0;

    (void)unused;
    segment_close(set);
    assert_int_equal(world_size(world, SAMPLE_FOLDER "/16384-1.seg", &size), 0);
    set = sample_open(world);
    /* Slots begin behind the zone; the third page is cut in its middle. */
    size -= sample_count(set).slot_bytes_free;
    assert_int_equal(world_truncate(world, SAMPLE_FOLDER "/16384-1.seg",
                                    size + UINT64_C(2) * SAMPLE_SLOT + 4096),
                     0);
    segment_close(set);
    set = sample_open(world);
    make_parts(parts, places, read_back);
    assert_int_equal(sample_read(world, set, parts, PAGES), KVARVE_IO);
    assert_int_equal(parts[0].result, 0);
    assert_int_equal(parts[1].result, 0);
    assert_int_equal(parts[2].result, -ENODATA);
    assert_int_equal(parts[3].result, -ENODATA);
    segment_close(set);
    world_destroy(world);
}

static void test_faults__a_failed_write_is_of_its_parts_alone(void **unused)
{
    const world_plan plan = {
        .fault_step = 0, .cut_change = WORLD_NEVER, .fault_ops = WORLD_OP_WRITE};
    sim_world *world = sample_world(1);
    page_place places[PAGES];
    segment_part parts[PAGES];
    segment_set *set = open_with_pages(world, places);
    size_t failed = 0;
    const uint32_t file = 1;

    (void)unused;
    make_parts(parts, places, written);
    parts[1].size = 4096; /* Two calls. */
    world_set_plan(world, &plan);
    assert_int_equal(sample_write(world, set, parts, PAGES), KVARVE_IO);
    for (size_t i = 0; i < PAGES; i++) {
        failed += parts[i].result == -EIO;
    }
    assert_int_equal(failed, 2);
    assert_false(segment_is_failed(set));
    assert_int_equal(sample_sync(world, set, &file, 1), KVARVE_OK);
    segment_close(set);
    world_destroy(world);
}

static void test_faults__a_failed_sync_is_final(void **unused)
{
    const world_plan plan = {
        .fault_step = 0, .cut_change = WORLD_NEVER, .fault_ops = WORLD_OP_SYNC};
    static const uint32_t file = 1;
    sim_world *world = sample_world(1);
    page_place places[PAGES];
    segment_part parts[PAGES];
    segment_set *set = open_with_pages(world, places);
    const header_place header = {.segment = 1, .block = 1, .blocks = 1};
    uint64_t bytes = 0;

    (void)unused;
    world_set_plan(world, &plan);
    assert_int_equal(sample_sync(world, set, &file, 1), KVARVE_IO);
    assert_true(segment_is_failed(set));
    assert_int_equal(sample_sync(world, set, &file, 1), KVARVE_IO);
    make_parts(parts, places, written);
    assert_int_equal(sample_write(world, set, parts, PAGES), KVARVE_IO);
    assert_int_equal(sample_write_header(world, set, header, written), KVARVE_IO);
    assert_int_equal(sample_grow(world, set, SAMPLE_SLOT, UINT64_MAX), KVARVE_IO);
    assert_int_equal(sample_trim(world, set, &bytes), KVARVE_IO);
    assert_int_equal(world_observe(world).steps, 1); /* No second sync. */
    make_parts(parts, places, read_back);
    assert_int_equal(sample_read(world, set, parts, PAGES), KVARVE_OK);
    assert_memory_equal(written, read_back, sizeof written);
    segment_close(set);
    world_destroy(world);
}

static void test_faults__a_sync_that_fails_while_a_file_is_made_is_final_too(void **unused)
{
    static const uint32_t ops[] = {WORLD_OP_SYNC, WORLD_OP_SYNC_DIRECTORY};

    (void)unused;
    for (size_t i = 0; i < 2; i++) {
        world_plan plan = {.fault_step = 0, .cut_change = WORLD_NEVER, .fault_ops = ops[i]};
        sim_world *world = sample_world(1);
        segment_set *set = sample_open(world);

        plan.fault_errno = ENOSPC; /* But for want of space, which costs only the new file. */
        world_set_plan(world, &plan);
        assert_int_equal(sample_grow(world, set, SAMPLE_SLOT, UINT64_MAX), KVARVE_NO_SPACE);
        assert_false(segment_is_failed(set));
        plan.fault_errno = EIO;
        world_set_plan(world, &plan);
        assert_int_equal(sample_grow(world, set, SAMPLE_SLOT, UINT64_MAX), KVARVE_IO);
        assert_true(segment_is_failed(set));
        segment_close(set);
        world_destroy(world);
    }
}

static void test_faults__a_sync_that_waits_for_a_failed_one_fails_too(void **unused)
{
    const world_plan plan = {
        .fault_step = 0, .cut_change = WORLD_NEVER, .fault_ops = WORLD_OP_SYNC};
    static const uint32_t file = 1;

    (void)unused;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        sim_world *world = sample_world(seed);
        page_place places[PAGES];
        segment_set *set = open_with_pages(world, places);
        sample_request requests[3];

        world_set_plan(world, &plan);
        for (int i = 0; i < 3; i++) {
            sample_prepare(&requests[i], NULL, 0);
            assert_int_equal(segment_sync(set, &file, 1, &requests[i].base, NULL), KVARVE_OK);
        }
        world_poll_all(world);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(requests[i].done_count, 1);
            assert_int_equal(requests[i].base.status, KVARVE_IO);
        }
        assert_int_equal(world_observe(world).steps, 1);
        segment_close(set);
        world_destroy(world);
    }
}

static void test_faults__syncs_that_wait_are_run(void **unused)
{
    const world_plan plan = {
        .fault_step = WORLD_NEVER, .cut_change = WORLD_NEVER, .fault_ops = WORLD_OP_SYNC};
    static const uint32_t file = 1;
    sim_world *world = sample_world(3);
    page_place places[PAGES];
    segment_set *set = open_with_pages(world, places);
    sample_request requests[3];

    (void)unused;
    world_set_plan(world, &plan);
    for (int i = 0; i < 3; i++) {
        sample_prepare(&requests[i], NULL, 0);
        assert_int_equal(segment_sync(set, &file, 1, &requests[i].base, NULL), KVARVE_OK);
    }
    world_poll_all(world);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(requests[i].done_count, 1);
        assert_int_equal(requests[i].base.status, KVARVE_OK);
    }
    assert_int_equal(world_observe(world).steps, 3);
    segment_close(set);
    world_destroy(world);
}

static void test_faults__a_file_that_cannot_be_removed_stays_usable(void **unused)
{
    const world_plan plan = {
        .fault_step = 0, .cut_change = WORLD_NEVER, .fault_ops = WORLD_OP_UNLINK};
    sim_world *world = sample_world(1);
    page_place places[PAGES];
    segment_set *set = open_with_pages(world, places);
    uint64_t hollow_slots;
    uint64_t free_slots;
    uint64_t bytes = 1;
    page_place place;

    (void)unused;
    assert_int_equal(sample_trim(world, set, &bytes), KVARVE_OK);
    hollow_slots = segment_hollow_slots(set, SAMPLE_SLOT);
    assert_true(hollow_slots > 0);
    for (size_t i = 0; i < PAGES; i++) {
        segment_free(set, places[i]);
    }
    free_slots = segment_free_slots(set, SAMPLE_SLOT);
    world_set_plan(world, &plan);
    assert_int_equal(sample_trim(world, set, &bytes), KVARVE_IO);
    assert_int_equal(bytes, 0);
    assert_int_equal(segment_free_slots(set, SAMPLE_SLOT), free_slots);
    assert_int_equal(segment_hollow_slots(set, SAMPLE_SLOT), hollow_slots);
    assert_int_equal(segment_reserve(set, SAMPLE_SLOT, 1, &place), KVARVE_OK);
    segment_free(set, place);
    assert_int_equal(sample_trim(world, set, &bytes), KVARVE_OK);
    assert_int_equal(sample_count(set).file_count, 0);
    segment_close(set);
    world_destroy(world);
}

static void test_faults__where_nothing_can_be_punched_trim_says_so_by_zero(void **unused)
{
    const world_plan plan = {.fault_step = 0,
                             .fault_count = UINT32_MAX,
                             .cut_change = WORLD_NEVER,
                             .fault_ops = WORLD_OP_PUNCH,
                             .fault_errno = EOPNOTSUPP};
    sim_world *world = sample_world(1);
    page_place places[PAGES];
    segment_set *set = open_with_pages(world, places);
    uint64_t bytes = 1;

    (void)unused;
    world_set_plan(world, &plan);
    assert_int_equal(sample_trim(world, set, &bytes), KVARVE_OK);
    assert_int_equal(bytes, 0);
    assert_int_equal(sample_trim(world, set, &bytes), KVARVE_OK);
    assert_int_equal(world_observe(world).steps, 1); /* It is not asked again. */
    segment_close(set);
    world_destroy(world);
}

/* --- memory --- */

typedef struct failing {
    uint64_t fails;
    bool was_reached;
} failing;

static int fail_at(void *context, uint64_t number)
{
    failing *plan = context;

    plan->was_reached = plan->was_reached || number == plan->fails;
    return number != plan->fails;
}

static void test_faults__each_allocation_may_fail(void **unused)
{
    failing plan = {.fails = 0, .was_reached = true};
    uint64_t sweeps = 0;

    (void)unused;
    prepare_pages();
    for (; plan.was_reached; plan.fails++, sweeps++) {
        sim_world *world = sample_world(1);
        uint64_t blocks;
        ledger done;

        world_reserve(world, 16 << 20);
        blocks = kvarve_allocated_blocks();
        plan.was_reached = false;
        kvarve_allocate_set_hook(fail_at, &plan);
        done = run_scenario(world);
        kvarve_allocate_set_hook(NULL, NULL);
        assert_int_equal(kvarve_allocated_blocks(), blocks);
        assert_int_equal(world_open_descriptors(world), 0);
        assert_false(done.is_failed);
        check(world, &done);
        world_destroy(world);
    }
    assert_true(sweeps > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults__a_power_cut_at_any_change_loses_nothing_acknowledged),
        cmocka_unit_test(test_faults__names_of_a_process_that_died_are_made_durable),
        cmocka_unit_test(test_faults__any_single_fault_is_a_status),
        cmocka_unit_test(test_faults__a_bad_page_fails_alone),
        cmocka_unit_test(test_faults__a_truncated_file_loses_only_what_is_cut),
        cmocka_unit_test(test_faults__a_failed_write_is_of_its_parts_alone),
        cmocka_unit_test(test_faults__a_failed_sync_is_final),
        cmocka_unit_test(test_faults__a_sync_that_fails_while_a_file_is_made_is_final_too),
        cmocka_unit_test(test_faults__a_sync_that_waits_for_a_failed_one_fails_too),
        cmocka_unit_test(test_faults__syncs_that_wait_are_run),
        cmocka_unit_test(test_faults__a_file_that_cannot_be_removed_stays_usable),
        cmocka_unit_test(test_faults__where_nothing_can_be_punched_trim_says_so_by_zero),
        cmocka_unit_test(test_faults__each_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
