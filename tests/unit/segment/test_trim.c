/*
 * test_trim.c - space that goes back to the file system, and comes again.
 *
 * Trim punches what is free and removes what is empty; hollow slots are taken back before a file is
 * made.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "base/alloc.h"
#include "segment_sample.h"

#define PAGES 8

static _Alignas(4096) uint8_t written[PAGES][SAMPLE_SLOT];
static _Alignas(4096) uint8_t read_back[PAGES][SAMPLE_SLOT];

typedef struct fixture {
    sim_world *world;
    segment_set *set;
} fixture;

static fixture begin(void)
{
    fixture f = {.world = sample_world(1)};

    f.set = sample_open(f.world);
    for (uint64_t i = 0; i < PAGES; i++) {
        sample_fill(written[i], SAMPLE_SLOT, i + 1);
    }
    memset(read_back, 0, sizeof read_back);
    return f;
}

static void end(fixture *f)
{
    segment_close(f->set);
    assert_int_equal(world_open_descriptors(f->world), 0);
    world_destroy(f->world);
    assert_int_equal(kvarve_allocated_blocks(), 0);
}

/* Parts for `count` pages of `size` bytes at these places. */
static void make_parts(segment_part *parts, const page_place *places, size_t count, uint32_t size,
                       uint8_t (*bytes)[SAMPLE_SLOT])
{
    for (size_t i = 0; i < count; i++) {
        parts[i] = (segment_part){.place = places[i], .bytes = bytes[i], .size = size, .result = 1};
    }
}

static void write_pages(fixture *f, const page_place *places, size_t count)
{
    segment_part parts[PAGES];

    make_parts(parts, places, count, SAMPLE_SLOT, written);
    assert_int_equal(sample_write(f->world, f->set, parts, count), KVARVE_OK);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(parts[i].result, 0);
    }
}

/* --- trim --- */

static void test_segment__trim_punches_what_is_free_once(void **unused)
{
    fixture f = begin();
    page_place places[PAGES];
    segment_part parts[PAGES];
    uint64_t used;
    uint64_t bytes = 0;
    uint64_t free_bytes;

    (void)unused;
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    assert_int_equal(segment_reserve(f.set, SAMPLE_SLOT, PAGES, places), KVARVE_OK);
    write_pages(&f, places, PAGES);
    for (size_t i = 0; i < PAGES; i += 2) {
        segment_free(f.set, places[i]);
    }
    used = world_used_bytes(f.world);
    free_bytes = sample_count(f.set).slot_bytes_free;
    assert_int_equal(sample_trim(f.world, f.set, &bytes), KVARVE_OK);
    assert_int_equal(bytes, free_bytes);
    assert_int_equal(world_used_bytes(f.world), used - bytes);
    assert_int_equal(sample_count(f.set).slot_bytes_free, 0);
    assert_int_equal(sample_count(f.set).slot_bytes_taken, PAGES / 2 * SAMPLE_SLOT);
    assert_int_equal(segment_free_slots(f.set, SAMPLE_SLOT), 0);

    world_set_plan(f.world, NULL);
    assert_int_equal(sample_trim(f.world, f.set, &bytes), KVARVE_OK);
    assert_int_equal(bytes, 0);
    assert_int_equal(world_observe(f.world).changes, 0);

    /* What stays taken is still there. */
    make_parts(parts, places, PAGES, SAMPLE_SLOT, read_back);
    assert_int_equal(sample_read(f.world, f.set, parts, PAGES), KVARVE_OK);
    for (size_t i = 1; i < PAGES; i += 2) {
        assert_memory_equal(read_back[i], written[i], SAMPLE_SLOT);
    }

    /* A slot that was written again has space on the disk again. */
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, SAMPLE_SLOT), KVARVE_OK);
    assert_int_equal(segment_reserve(f.set, SAMPLE_SLOT, 1, places), KVARVE_OK);
    write_pages(&f, places, 1);
    segment_free(f.set, places[0]);
    assert_int_equal(sample_trim(f.world, f.set, &bytes), KVARVE_OK);
    assert_int_equal(bytes, SAMPLE_SLOT);
    end(&f);
}

static void test_segment__slots_are_not_given_out_while_they_are_punched(void **unused)
{
    fixture f = begin();
    sample_request request;
    page_place kept;
    page_place place;
    uint64_t bytes = 0;

    (void)unused;
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    assert_int_equal(segment_reserve(f.set, SAMPLE_SLOT, 1, &kept), KVARVE_OK);
    sample_prepare(&request, NULL, 0);
    assert_int_equal(segment_trim(f.set, &bytes, &request.base, NULL), KVARVE_OK);
    assert_int_equal(segment_free_slots(f.set, SAMPLE_SLOT), 0);
    assert_int_equal(segment_reserve(f.set, SAMPLE_SLOT, 1, &place), KVARVE_BUSY);
    world_poll_all(f.world);
    assert_int_equal(request.done_count, 1);
    assert_int_equal(segment_reserve(f.set, SAMPLE_SLOT, 1, &place), KVARVE_BUSY); /* hollow */
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    assert_int_equal(segment_reserve(f.set, SAMPLE_SLOT, 1, &place), KVARVE_OK);
    assert_int_equal(sample_count(f.set).file_count, 1);
    end(&f);
}

static void test_segment__trim_removes_files_that_are_empty(void **unused)
{
    fixture f = begin();
    page_place place;
    header_place header;
    uint64_t bytes = 0;

    (void)unused;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    }
    assert_int_equal(sample_grow(f.world, f.set, 0, UINT64_MAX), KVARVE_OK);
    assert_int_equal(segment_reserve(f.set, SAMPLE_SLOT, 1, &place), KVARVE_OK);
    assert_int_equal(place.segment, 1);
    assert_int_equal(segment_reserve_header(f.set, 2, 1, &header), KVARVE_OK);
    assert_int_equal(header.segment, 2);
    assert_int_equal(sample_trim(f.world, f.set, &bytes), KVARVE_OK);
    assert_int_equal(sample_count(f.set).file_count, 2);
    assert_int_equal(segment_free_slots(f.set, SAMPLE_SLOT), 0);
    assert_int_equal(segment_hollow_slots(f.set, SAMPLE_SLOT),
                     sample_count(f.set).slot_bytes_hollow / SAMPLE_SLOT);
    assert_true(segment_hollow_slots(f.set, SAMPLE_SLOT) > PAGES);
    segment_close(f.set);
    f.set = NULL;
    world_restart(f.world, NULL);
    assert_true(world_exists(f.world, SAMPLE_FOLDER "/16384-1.seg"));
    assert_true(world_exists(f.world, SAMPLE_FOLDER "/16384-2.seg"));
    assert_false(world_exists(f.world, SAMPLE_FOLDER "/16384-3.seg"));
    assert_false(world_exists(f.world, SAMPLE_FOLDER "/0-4.seg"));
    end(&f);
}

static void test_segment__numbers_are_not_used_again_after_a_trim(void **unused)
{
    fixture f = begin();
    uint64_t bytes = 0;

    (void)unused;
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    assert_int_equal(sample_trim(f.world, f.set, &bytes), KVARVE_OK);
    assert_int_equal(sample_count(f.set).file_count, 0);
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    assert_true(world_exists(f.world, SAMPLE_FOLDER "/16384-2.seg"));
    end(&f);
}

static void test_segment__a_file_in_use_is_not_removed(void **unused)
{
    const uint32_t file = 1;
    fixture f = begin();
    sample_request sync;
    sample_request trim;
    uint64_t bytes = 1;

    (void)unused;
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    sample_prepare(&sync, NULL, 0);
    sample_prepare(&trim, NULL, 0);
    assert_int_equal(segment_sync(f.set, &file, 1, &sync.base, NULL), KVARVE_OK);
    assert_int_equal(segment_trim(f.set, &bytes, &trim.base, NULL), KVARVE_OK);
    world_poll_all(f.world);
    assert_int_equal(sync.base.status, KVARVE_OK);
    assert_int_equal(trim.base.status, KVARVE_OK);
    assert_int_equal(sample_count(f.set).file_count, 1);
    end(&f);
}

/* --- hollow slots --- */

/* One file of pages, whole but for the runs [10, 14), [20, 21) and [30, 32), which are hollow. */
static fixture begin_hollow(void)
{
    static const uint32_t gaps[] = {10, 11, 12, 13, 20, 30, 31};
    static page_place places[64];
    fixture f = begin();
    uint64_t bytes = 0;
    size_t count;

    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    count = (size_t)segment_free_slots(f.set, SAMPLE_SLOT);
    assert_true(count > 32 && count <= 64);
    assert_int_equal(segment_reserve(f.set, SAMPLE_SLOT, count, places), KVARVE_OK);
    for (size_t i = 0; i < sizeof gaps / sizeof gaps[0]; i++) {
        segment_free(f.set, (page_place){.segment = 1, .slot = gaps[i]});
    }
    assert_int_equal(sample_trim(f.world, f.set, &bytes), KVARVE_OK);
    assert_int_equal(bytes, 7 * SAMPLE_SLOT);
    assert_int_equal(segment_hollow_slots(f.set, SAMPLE_SLOT), 7);
    return f;
}

/* What the set counts is what the files take. */
static void assert_bytes_are_right(const fixture *f)
{
    const segment_counters counters = sample_count(f->set);

    assert_int_equal(counters.file_bytes, world_used_bytes(f->world));
    assert_int_equal(
        counters.slot_bytes_free + counters.slot_bytes_taken + counters.slot_bytes_hollow,
        segment_free_slots(f->set, SAMPLE_SLOT) * SAMPLE_SLOT +
            segment_hollow_slots(f->set, SAMPLE_SLOT) * SAMPLE_SLOT + counters.slot_bytes_taken);
}

static void test_segment__hollow_slots_come_back_before_a_file_is_made(void **unused)
{
    fixture f = begin_hollow();
    page_place places[PAGES];

    (void)unused;
    assert_bytes_are_right(&f);
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, SAMPLE_SLOT - 1), KVARVE_NO_SPACE);
    assert_int_equal(segment_hollow_slots(f.set, SAMPLE_SLOT), 7);

    /* The longest run first, and what is left of the limit from the next one. */
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, 6 * SAMPLE_SLOT - 1), KVARVE_OK);
    assert_int_equal(segment_hollow_slots(f.set, SAMPLE_SLOT), 2);
    assert_int_equal(segment_free_slots(f.set, SAMPLE_SLOT), 5);
    assert_bytes_are_right(&f);
    assert_int_equal(segment_reserve(f.set, SAMPLE_SLOT, 5, places), KVARVE_OK);
    assert_int_equal(places[0].slot, 10);
    assert_int_equal(places[3].slot, 13);
    assert_int_equal(places[4].slot, 30);

    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    assert_int_equal(segment_hollow_slots(f.set, SAMPLE_SLOT), 0);
    assert_int_equal(sample_count(f.set).file_count, 1);
    assert_bytes_are_right(&f);
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    assert_int_equal(sample_count(f.set).file_count, 2);
    assert_bytes_are_right(&f);
    end(&f);
}

static void test_segment__hollow_slots_are_of_their_class(void **unused)
{
    fixture f = begin_hollow();

    (void)unused;
    assert_int_equal(segment_hollow_slots(f.set, 2 * SAMPLE_SLOT), 0);
    assert_int_equal(sample_grow(f.world, f.set, 2 * SAMPLE_SLOT, 1 << 20), KVARVE_OK);
    assert_int_equal(sample_grow(f.world, f.set, 0, 1 << 20), KVARVE_OK);
    assert_int_equal(sample_count(f.set).file_count, 3);
    assert_int_equal(segment_hollow_slots(f.set, SAMPLE_SLOT), 7);
    end(&f);
}

static void test_segment__space_is_counted_as_soon_as_it_is_asked_for(void **unused)
{
    fixture f = begin_hollow();
    const uint64_t before = sample_count(f.set).file_bytes;
    const uint64_t taken = sample_count(f.set).slot_bytes_taken;
    sample_request first;
    sample_request second;
    uint64_t bytes = 1;

    (void)unused;
    sample_prepare(&first, NULL, 0);
    sample_prepare(&second, NULL, 0);
    assert_int_equal(segment_grow(f.set, SAMPLE_SLOT, 3 * SAMPLE_SLOT, &first.base, NULL),
                     KVARVE_OK);
    assert_int_equal(sample_count(f.set).file_bytes, before + 3 * SAMPLE_SLOT);
    assert_int_equal(sample_count(f.set).slot_bytes_taken, taken);
    assert_int_equal(segment_free_slots(f.set, SAMPLE_SLOT), 0);
    assert_int_equal(segment_grow(f.set, SAMPLE_SLOT, UINT64_MAX, &second.base, NULL), KVARVE_OK);
    assert_int_equal(sample_count(f.set).file_bytes, before + 7 * SAMPLE_SLOT);
    world_poll_all(f.world);
    assert_int_equal(first.base.status, KVARVE_OK);
    assert_int_equal(second.base.status, KVARVE_OK);
    assert_int_equal(segment_free_slots(f.set, SAMPLE_SLOT), 7);
    assert_bytes_are_right(&f);
    assert_int_equal(sample_trim(f.world, f.set, &bytes), KVARVE_OK);
    assert_int_equal(bytes, 7 * SAMPLE_SLOT);
    end(&f);
}

static void test_segment__a_file_is_not_removed_while_it_gets_its_space_again(void **unused)
{
    fixture f = begin_hollow();
    sample_request grow;
    sample_request trim;
    uint64_t bytes = 1;

    (void)unused;
    for (uint32_t slot = 0; slot < 64; slot++) {
        const page_place place = {.segment = 1, .slot = slot};
        const bool is_hollow = (slot >= 10 && slot < 14) || slot == 20 || slot == 30 || slot == 31;

        if (segment_place_is_valid(f.set, place, 1) && !is_hollow) {
            segment_free(f.set, place);
        }
    }
    sample_prepare(&grow, NULL, 0);
    sample_prepare(&trim, NULL, 0);
    assert_int_equal(segment_grow(f.set, SAMPLE_SLOT, UINT64_MAX, &grow.base, NULL), KVARVE_OK);
    assert_int_equal(segment_trim(f.set, &bytes, &trim.base, NULL), KVARVE_OK);
    world_poll_all(f.world);
    assert_int_equal(sample_count(f.set).file_count, 1);
    assert_int_equal(segment_free_slots(f.set, SAMPLE_SLOT), 7);
    assert_bytes_are_right(&f);
    assert_int_equal(sample_trim(f.world, f.set, &bytes), KVARVE_OK);
    assert_int_equal(sample_count(f.set).file_count, 0); /* Hollow and free slots: nobody's. */
    assert_int_equal(world_used_bytes(f.world), 0);
    end(&f);
}

static void test_segment__a_full_disk_leaves_slots_hollow(void **unused)
{
    const world_plan watch = {
        .fault_step = WORLD_NEVER, .cut_change = WORLD_NEVER, .fault_ops = WORLD_OP_PUNCH};
    fixture f = begin_hollow();

    (void)unused;
    world_set_plan(f.world, &watch);
    world_set_capacity(f.world, world_used_bytes(f.world) + 5 * SAMPLE_SLOT);
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_NO_SPACE);
    assert_int_equal(segment_free_slots(f.set, SAMPLE_SLOT), 4); /* the run that had room */
    assert_int_equal(segment_hollow_slots(f.set, SAMPLE_SLOT), 3);
    assert_int_equal(world_observe(f.world).steps, 1); /* A part of a run is given back. */
    assert_bytes_are_right(&f);
    world_set_capacity(f.world, UINT64_MAX);
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    assert_int_equal(segment_free_slots(f.set, SAMPLE_SLOT), 7);
    assert_bytes_are_right(&f);
    end(&f);
}

/* Close, open, take all slots of the file but the free ones. */
static void reopen_and_take(fixture *f, const bool *is_free, uint32_t count)
{
    segment_close(f->set);
    world_flush(f->world);
    world_restart(f->world, NULL);
    f->set = sample_open(f->world);
    for (uint32_t slot = 0; slot < count; slot++) {
        const page_place place = {.segment = 1, .slot = slot};

        if (!is_free[slot]) {
            assert_true(segment_take(f->set, place));
            assert_false(segment_take(f->set, place));
        }
    }
}

static void test_segment__what_is_hollow_is_learned_at_open(void **unused)
{
    fixture f = begin_hollow();
    const uint32_t count = (uint32_t)(sample_count(f.set).slot_bytes_taken / SAMPLE_SLOT) + 7;
    bool is_free[64] = {0};
    uint64_t bytes = 1;
    uint64_t used;

    (void)unused;
    for (uint32_t slot = 0; slot < 7; slot++) {
        is_free[10 + slot % 4] = true;
        is_free[30 + slot % 2] = true;
    }
    is_free[20] = true;
    is_free[0] = true;
    is_free[2] = true; /* These two have their space. */
    reopen_and_take(&f, is_free, count);
    used = world_used_bytes(f.world);
    assert_int_equal(sample_count(f.set).file_bytes, used);
    assert_int_equal(segment_free_slots(f.set, SAMPLE_SLOT), 0);
    assert_int_equal(segment_hollow_slots(f.set, SAMPLE_SLOT), 9);

    /* Taking some back never counts too little. */
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, SAMPLE_SLOT), KVARVE_OK);
    assert_true(sample_count(f.set).file_bytes >= world_used_bytes(f.world));
    assert_int_equal(sample_count(f.set).file_bytes, used + SAMPLE_SLOT);

    /* A trim proves it. */
    assert_int_equal(sample_trim(f.world, f.set, &bytes), KVARVE_OK);
    assert_int_equal(bytes, 3 * SAMPLE_SLOT);
    assert_int_equal(segment_hollow_slots(f.set, SAMPLE_SLOT), 9);
    assert_bytes_are_right(&f);
    world_set_plan(f.world, NULL);
    assert_int_equal(sample_trim(f.world, f.set, &bytes), KVARVE_OK);
    assert_int_equal(bytes, 0);
    assert_int_equal(world_observe(f.world).changes, 0);
    end(&f);
}

static void test_segment__a_trim_that_fails_proves_nothing(void **unused)
{
    const world_plan plan = {
        .fault_step = 1, .cut_change = WORLD_NEVER, .fault_ops = WORLD_OP_PUNCH};
    fixture f = begin_hollow();
    const uint32_t count = (uint32_t)(sample_count(f.set).slot_bytes_taken / SAMPLE_SLOT) + 7;
    bool is_free[64] = {0};
    uint64_t bytes = 1;
    uint64_t used;

    (void)unused;
    is_free[0] = true;
    for (uint32_t slot = 10; slot < 32; slot++) {
        is_free[slot] = slot < 14 || slot == 20 || slot >= 30;
    }
    reopen_and_take(&f, is_free, count);
    used = world_used_bytes(f.world);
    world_set_plan(f.world, &plan);
    assert_int_equal(sample_trim(f.world, f.set, &bytes), KVARVE_IO);
    assert_true(world_observe(f.world).fault_hit);
    assert_int_equal(sample_count(f.set).file_bytes, used);
    assert_true(sample_count(f.set).file_bytes >= world_used_bytes(f.world));
    assert_int_equal(segment_free_slots(f.set, SAMPLE_SLOT), 0);
    world_set_plan(f.world, NULL);
    assert_int_equal(sample_trim(f.world, f.set, &bytes), KVARVE_OK);
    assert_bytes_are_right(&f);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_segment__trim_punches_what_is_free_once),
        cmocka_unit_test(test_segment__slots_are_not_given_out_while_they_are_punched),
        cmocka_unit_test(test_segment__trim_removes_files_that_are_empty),
        cmocka_unit_test(test_segment__numbers_are_not_used_again_after_a_trim),
        cmocka_unit_test(test_segment__a_file_in_use_is_not_removed),
        cmocka_unit_test(test_segment__hollow_slots_come_back_before_a_file_is_made),
        cmocka_unit_test(test_segment__hollow_slots_are_of_their_class),
        cmocka_unit_test(test_segment__space_is_counted_as_soon_as_it_is_asked_for),
        cmocka_unit_test(test_segment__a_file_is_not_removed_while_it_gets_its_space_again),
        cmocka_unit_test(test_segment__a_full_disk_leaves_slots_hollow),
        cmocka_unit_test(test_segment__what_is_hollow_is_learned_at_open),
        cmocka_unit_test(test_segment__a_trim_that_fails_proves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
