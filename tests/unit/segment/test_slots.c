/*
 * test_slots.c - slots and header blocks: never given out twice, in few runs, and quickly found.
 *
 * Method  Random reserves, frees, takes and growths beside a simple model (one byte a slot), for
 *         many seeds; a failure prints the seed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "segment/bitmap_private.h"
#include "segment_sample.h"

#define FILES_MAX   6
#define SLOTS_MAX   10000
#define RESERVE_MAX 6000

/* What the set should hold. */
typedef struct model {
    uint32_t slots[FILES_MAX + 1];           /* by file number */
    uint8_t taken[FILES_MAX + 1][SLOTS_MAX]; /* FREE, TAKEN or HOLLOW */
    uint32_t file_count;
    uint64_t free;
    uint64_t hollow; /* nobody's and punched: not to be given out */
} model;

#define FREE   0
#define TAKEN  1
#define HOLLOW 2

static model truth;
static page_place places[RESERVE_MAX];

static void learn_head(void *context, const segment_head *head)
{
    model *known = context;

    if (head->number > known->file_count) {
        assert_true(head->slot_count <= SLOTS_MAX);
        known->file_count = head->number;
        known->slots[head->number] = head->slot_count;
        known->free += head->slot_count;
    }
}

static segment_set *open_with_file_bytes(sim_world *world, uint64_t file_bytes)
{
    segment_options options = sample_options();
    segment_set *set = NULL;

    options.file_bytes = file_bytes;
    assert_int_equal(segment_open(world_env(world), SAMPLE_FOLDER, &options, &set, NULL),
                     KVARVE_OK);
    memset(&truth, 0, sizeof truth);
    return set;
}

static void grow(sim_world *world, segment_set *set, uint32_t slot_bytes)
{
    assert_int_equal(sample_grow(world, set, slot_bytes, UINT64_MAX), KVARVE_OK);
    segment_each(set, learn_head, &truth);
}

/* Longest free run that does not cross a multiple of 4096, as the set counts. */
static uint32_t longest_run(void)
{
    uint32_t longest = 0;

    for (uint32_t file = 1; file <= truth.file_count; file++) {
        uint32_t run = 0;

        for (uint32_t slot = 0; slot < truth.slots[file]; slot++) {
            run = slot % 4096 == 0 ? 0 : run;
            run = truth.taken[file][slot] != FREE ? 0 : run + 1;
            longest = run > longest ? run : longest;
        }
    }
    return longest;
}

static size_t count_runs(size_t count)
{
    size_t runs = 1;

    for (size_t i = 1; i < count; i++) {
        runs +=
            places[i].segment != places[i - 1].segment || places[i].slot != places[i - 1].slot + 1;
    }
    return runs;
}

/* Reserve and check against the model; false when there was no room, which must then be true. */
static bool reserve(segment_set *set, uint32_t slot_bytes, size_t count, bool check_runs)
{
    const uint32_t longest = check_runs ? longest_run() : 0;
    const kvarve_status status = segment_reserve(set, slot_bytes, count, places);

    if (status == KVARVE_BUSY) {
        assert_true(truth.free < count);
        return false;
    }
    assert_int_equal(status, KVARVE_OK);
    for (size_t i = 0; i < count; i++) {
        const page_place *place = &places[i];

        assert_true(place->segment >= 1 && place->segment <= truth.file_count);
        assert_true(place->slot < truth.slots[place->segment]);
        assert_int_equal(truth.taken[place->segment][place->slot], 0);
        truth.taken[place->segment][place->slot] = 1;
        if (i > 0) {
            assert_true(
                place->segment > places[i - 1].segment ||
                (place->segment == places[i - 1].segment && place->slot > places[i - 1].slot));
        }
    }
    truth.free -= count;
    if (longest >= count) {
        assert_int_equal(count_runs(count), 1);
    }
    return true;
}

static void free_slot(segment_set *set, uint32_t file, uint32_t slot)
{
    assert_int_equal(truth.taken[file][slot], TAKEN);
    truth.taken[file][slot] = 0;
    truth.free++;
    segment_free(set, (page_place){.segment = file, .slot = slot});
}

/* Free about one in `one_in` of the taken slots of a file. */
static void free_some_of(segment_set *set, uint32_t file, uint64_t *random, uint64_t one_in)
{
    for (uint32_t slot = 0; slot < truth.slots[file]; slot++) {
        if (truth.taken[file][slot] == TAKEN && world_next_random(random) % one_in == 0) {
            free_slot(set, file, slot);
        }
    }
}

static void free_some(segment_set *set, uint64_t *random, uint64_t one_in)
{
    for (uint32_t file = 1; file <= truth.file_count; file++) {
        free_some_of(set, file, random, one_in);
    }
}

static void take_some(segment_set *set, uint64_t *random)
{
    for (int i = 0; i < 20 && truth.file_count > 0; i++) {
        const uint32_t file = 1 + (uint32_t)(world_next_random(random) % truth.file_count);
        const uint32_t slot = (uint32_t)(world_next_random(random) % truth.slots[file]);
        const uint8_t was = truth.taken[file][slot];

        if (was == HOLLOW) {
            continue; /* It has no space. */
        }
        assert_int_equal(segment_take(set, (page_place){.segment = file, .slot = slot}),
                         was == FREE);
        truth.taken[file][slot] = TAKEN;
        truth.free -= was == FREE;
    }
}

/* All that is free becomes hollow. A header block of each file is taken, or it would go. */
static void trim(sim_world *world, segment_set *set)
{
    uint64_t bytes;

    for (uint32_t file = 1; file <= truth.file_count; file++) {
        (void)segment_take_header(set, (header_place){.segment = file, .block = 1, .blocks = 1});
        for (uint32_t slot = 0; slot < truth.slots[file]; slot++) {
            if (truth.taken[file][slot] == FREE) {
                truth.taken[file][slot] = HOLLOW;
            }
        }
    }
    truth.hollow += truth.free;
    truth.free = 0;
    assert_int_equal(sample_trim(world, set, &bytes), KVARVE_OK);
}

/* The length of the longest hollow run; where the first of them is. */
static uint32_t longest_hollow(uint32_t *out_file, uint32_t *out_slot)
{
    uint32_t longest = 0;

    for (uint32_t file = 1; file <= truth.file_count; file++) {
        uint32_t run = 0;

        for (uint32_t slot = 0; slot < truth.slots[file]; slot++) {
            run = truth.taken[file][slot] == HOLLOW ? run + 1 : 0;
            if (run > longest) {
                longest = run;
                *out_file = file;
                *out_slot = slot + 1 - run;
            }
        }
    }
    return longest;
}

/* `count` slots get their space again, those of long runs first. */
static void refill(sim_world *world, segment_set *set, uint32_t slot_bytes, uint64_t count)
{
    const uint32_t files = truth.file_count;

    assert_int_equal(sample_grow(world, set, slot_bytes, count * slot_bytes), KVARVE_OK);
    segment_each(set, learn_head, &truth);
    assert_int_equal(truth.file_count, files);
    while (count > 0 && truth.hollow > 0) {
        uint32_t file = 0;
        uint32_t slot = 0;
        uint32_t run = longest_hollow(&file, &slot);

        for (; run > 0 && count > 0; run--, count--) {
            truth.taken[file][slot++] = FREE;
            truth.hollow--;
            truth.free++;
        }
    }
}

static void check_counts(sim_world *world, const segment_set *set, uint32_t slot_bytes)
{
    const segment_counters counters = sample_count(set);

    assert_int_equal(segment_free_slots(set, slot_bytes), truth.free);
    assert_int_equal(segment_hollow_slots(set, slot_bytes), truth.hollow);
    assert_int_equal(counters.slot_bytes_free, truth.free * slot_bytes);
    assert_int_equal(counters.slot_bytes_hollow, truth.hollow * slot_bytes);
    assert_int_equal(counters.file_bytes, world_used_bytes(world));
}

static void churn(uint64_t seed)
{
    const uint32_t slot_bytes = seed % 2 == 0 ? 4096 : 262144;
    const uint64_t file_bytes = slot_bytes == 4096 ? 32 << 20 : 64 << 20;
    uint64_t random = seed;
    sim_world *world = sample_world(seed);
    segment_set *set = open_with_file_bytes(world, file_bytes);

    for (int step = 0; step < 60; step++) {
        const uint64_t draw = world_next_random(&random);
        const size_t most = draw % 7 == 0 ? RESERVE_MAX : draw % 3 == 0 ? 300 : 20;

        if (reserve(set, slot_bytes, 1 + (size_t)(draw >> 8) % most, step % 8 == 0)) {
            /* There was room. */
        } else if (truth.hollow > 0) {
            refill(world, set, slot_bytes, 1 + (draw >> 16) % (2 * most));
        } else if (truth.file_count < FILES_MAX) {
            grow(world, set, slot_bytes);
        }
        if (draw % 5 == 0) {
            free_some(set, &random, 1 + draw % 11);
        }
        if (draw % 11 == 0) {
            take_some(set, &random);
        }
        if (draw % 13 == 0) {
            trim(world, set);
        }
        check_counts(world, set, slot_bytes);
    }
    segment_close(set);
    world_destroy(world);
}

static void test_slots__no_slot_is_given_out_twice(void **unused)
{
    (void)unused;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        const uint64_t blocks = kvarve_allocated_blocks();

        print_message("seed %llu\n", (unsigned long long)seed);
        churn(seed);
        assert_int_equal(kvarve_allocated_blocks(), blocks);
    }
}

/* One file, all taken but the runs that a test frees. */
static segment_set *full_file(sim_world *world)
{
    segment_set *set = open_with_file_bytes(world, 32 << 20);

    grow(world, set, 4096);
    assert_true(truth.slots[1] > 6000);
    while (truth.free > 0) {
        const size_t count = truth.free < RESERVE_MAX ? (size_t)truth.free : RESERVE_MAX;

        assert_true(reserve(set, 4096, count, false));
    }
    return set;
}

static void free_run(segment_set *set, uint32_t at, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        free_slot(set, 1, at + i);
    }
}

static void test_slots__the_shortest_run_that_fits_is_taken(void **unused)
{
    sim_world *world = sample_world(1);
    segment_set *set = full_file(world);

    (void)unused;
    free_run(set, 100, 40);
    free_run(set, 200, 17);
    free_run(set, 300, 16);
    free_run(set, 5000, 60);
    assert_true(reserve(set, 4096, 16, true));
    assert_int_equal(places[0].slot, 300);
    assert_true(reserve(set, 4096, 16, true));
    assert_int_equal(places[0].slot, 200);
    assert_true(reserve(set, 4096, 50, true));
    assert_int_equal(places[0].slot, 5000);
    segment_close(set);
    world_destroy(world);
}

static void test_slots__the_longest_runs_come_first_when_none_fits(void **unused)
{
    sim_world *world = sample_world(1);
    segment_set *set = full_file(world);

    (void)unused;
    free_run(set, 10, 2);
    free_run(set, 20, 30);
    free_run(set, 100, 40);
    free_run(set, 5000, 20);
    assert_true(reserve(set, 4096, 70, true));
    assert_true(count_runs(70) <= 2);
    assert_int_equal(places[0].slot, 20);
    segment_close(set);
    world_destroy(world);
}

static void test_slots__one_file_is_preferred_to_two(void **unused)
{
    sim_world *world = sample_world(1);
    segment_set *set = full_file(world);

    (void)unused;
    grow(world, set, 4096);
    assert_true(reserve(set, 4096, 4096, true));
    assert_true(reserve(set, 4096, (size_t)truth.free, true));
    for (uint32_t i = 0; i < 10; i++) {
        free_slot(set, 1, 2 * i);
        free_slot(set, 2, 2 * i);
        free_slot(set, 2, 100 + 2 * i);
    }
    assert_true(reserve(set, 4096, 15, false));
    for (size_t i = 0; i < 15; i++) {
        assert_int_equal(places[i].segment, 2);
    }
    assert_true(reserve(set, 4096, 15, false)); /* Neither has enough now. */
    assert_int_equal(places[0].segment, 1);
    assert_int_equal(places[14].segment, 2);
    assert_int_equal(truth.free, 0);
    segment_close(set);
    world_destroy(world);
}

static void test_slots__all_or_nothing(void **unused)
{
    sim_world *world = sample_world(1);
    segment_set *set = full_file(world);

    (void)unused;
    free_run(set, 10, 5);
    free_run(set, 20, 5);
    assert_false(reserve(set, 4096, 11, false));
    assert_int_equal(segment_free_slots(set, 4096), 10);
    assert_true(reserve(set, 4096, 10, false));
    assert_int_equal(segment_reserve(set, 8192, 1, places), KVARVE_BUSY);
    segment_close(set);
    world_destroy(world);
}

/* --- header blocks --- */

#define BLOCKS_MAX 4097

static uint8_t block_owner[3][BLOCKS_MAX];

static void mark_blocks(header_place place, uint8_t value)
{
    for (uint32_t i = 0; i < place.blocks; i++) {
        uint8_t *owner = &block_owner[place.segment][place.block + i];

        assert_int_equal(*owner != 0, value == 0);
        *owner = value;
    }
}

/* Whether the file has a run of `blocks` free blocks among its `count`. */
static bool has_blocks(uint32_t file, uint32_t count, uint32_t blocks)
{
    uint32_t run = 0;

    for (uint32_t block = 1; block < count && run < blocks; block++) {
        run = block_owner[file][block] != 0 ? 0 : run + 1;
    }
    return run == blocks;
}

static void learn_blocks(void *context, const segment_head *head)
{
    ((uint32_t *)context)[head->number] = head->header_blocks;
}

static void churn_blocks(uint64_t seed)
{
    static header_place held[BLOCKS_MAX];
    size_t held_count = 0;
    uint64_t random = seed;
    uint64_t busy = 0;
    uint32_t block_counts[3] = {0};
    sim_world *world = sample_world(seed);
    segment_set *set = sample_open(world);

    memset(block_owner, 0, sizeof block_owner);
    assert_int_equal(sample_grow(world, set, 4096, UINT64_MAX), KVARVE_OK);
    assert_int_equal(sample_grow(world, set, 0, 1 << 20), KVARVE_OK);
    segment_each(set, learn_blocks, block_counts);
    for (int step = 0; step < 3000; step++) {
        const uint64_t draw = world_next_random(&random);
        const uint32_t blocks = 1 + (uint32_t)((draw >> 8) % 12);
        header_place place;

        if (draw % 2 == 0 &&
            segment_reserve_header(set, (uint32_t)(draw >> 32) % 3, blocks, &place) == KVARVE_OK) {
            assert_true(segment_header_is_valid(set, place));
            assert_int_equal(place.blocks, blocks);
            assert_true(place.block >= 1);
            mark_blocks(place, 1);
            held[held_count++] = place;
        } else if (draw % 2 == 0) {
            assert_false(has_blocks(1, block_counts[1], blocks));
            assert_false(has_blocks(2, block_counts[2], blocks));
            busy++;
        } else if (held_count > 0 && draw % 5 != 0) {
            const size_t at = (size_t)(draw >> 16) % held_count;

            mark_blocks(held[at], 0);
            segment_free_header(set, held[at]);
            held[at] = held[--held_count];
        }
    }
    assert_true(busy > 0);
    for (size_t i = 0; i < held_count; i++) {
        assert_false(segment_take_header(set, held[i]));
        segment_free_header(set, held[i]);
        assert_true(segment_take_header(set, held[i]));
    }
    segment_close(set);
    world_destroy(world);
}

static void test_headers__no_block_is_given_out_twice(void **unused)
{
    (void)unused;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        churn_blocks(seed);
    }
}

static void test_headers__the_preferred_file_comes_first_then_files_of_headers(void **unused)
{
    sim_world *world = sample_world(1);
    segment_set *set = sample_open(world);
    header_place place;

    (void)unused;
    assert_int_equal(segment_reserve_header(set, 0, 1, &place), KVARVE_BUSY);
    assert_int_equal(sample_grow(world, set, 262144, UINT64_MAX), KVARVE_OK); /* 8 blocks or so */
    assert_int_equal(sample_grow(world, set, 262144, UINT64_MAX), KVARVE_OK);
    assert_int_equal(sample_grow(world, set, 0, UINT64_MAX), KVARVE_OK);
    assert_int_equal(segment_reserve_header(set, 2, 5, &place), KVARVE_OK);
    assert_int_equal(place.segment, 2);
    assert_int_equal(segment_reserve_header(set, 2, 5, &place), KVARVE_OK);
    assert_int_equal(place.segment, 3);
    assert_int_equal(segment_reserve_header(set, 99, 256, &place), KVARVE_OK);
    assert_int_equal(place.segment, 3);
    segment_close(set);
    world_destroy(world);
}

static void test_headers__places_outside_are_not_valid(void **unused)
{
    static const header_place wrong[] = {
        {.segment = 0, .block = 1, .blocks = 1},
        {.segment = 2, .block = 1, .blocks = 1},
        {.segment = 1, .block = 0, .blocks = 1},
        {.segment = 1, .block = 1, .blocks = 0},
        {.segment = 1, .block = 1, .blocks = 257},
        {.segment = 1, .block = 4096, .blocks = 2},
        {.segment = 1, .block = UINT32_MAX, .blocks = 2},
    };
    sim_world *world = sample_world(1);
    segment_set *set = sample_open(world);

    (void)unused;
    assert_int_equal(sample_grow(world, set, 0, UINT64_MAX), KVARVE_OK);
    assert_true(
        segment_header_is_valid(set, (header_place){.segment = 1, .block = 4096, .blocks = 1}));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_false(segment_header_is_valid(set, wrong[i]));
    }
    assert_false(segment_place_is_valid(set, (page_place){.segment = 1, .slot = 0}, 1));
    segment_close(set);
    world_destroy(world);
}

/* --- bits --- */

/* The end of the bits at `at` and after it that are `value`. */
static uint32_t end_of_bits(const uint8_t *bits, uint32_t at, uint32_t end, uint8_t value)
{
    while (at < end && bits[at] == value) {
        at++;
    }
    return at;
}

static void check_runs(const uint64_t *words, const uint8_t *bits, uint32_t end)
{
    bitmap_run run = {0, 0};

    for (uint32_t at = 0; at < end;) {
        const uint32_t first = end_of_bits(bits, at, end, 1);

        at = end_of_bits(bits, first, end, 0);
        assert_int_equal(bitmap_next_run(words, NULL, run.at + run.count, end, &run), at > first);
        assert_int_equal(run.count, at - first);
        assert_true(at == first || run.at == first);
    }
}

static void test_bitmap__runs_are_those_of_a_simple_loop(void **unused)
{
    (void)unused;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        uint64_t random = seed;
        uint64_t words[4] = {0};
        uint8_t bits[256] = {0};

        for (int i = 0; i < 12; i++) {
            const uint32_t at = (uint32_t)(world_next_random(&random) % 256);
            const uint32_t count = (uint32_t)(world_next_random(&random) % (257 - at));
            const bool value = world_next_random(&random) % 2 == 0;

            bitmap_fill(words, at, count, value);
            memset(bits + at, value, count);
        }
        check_runs(words, bits, 1 + (uint32_t)(world_next_random(&random) % 256));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots__no_slot_is_given_out_twice),
        cmocka_unit_test(test_slots__the_shortest_run_that_fits_is_taken),
        cmocka_unit_test(test_slots__the_longest_runs_come_first_when_none_fits),
        cmocka_unit_test(test_slots__one_file_is_preferred_to_two),
        cmocka_unit_test(test_slots__all_or_nothing),
        cmocka_unit_test(test_headers__no_block_is_given_out_twice),
        cmocka_unit_test(test_headers__the_preferred_file_comes_first_then_files_of_headers),
        cmocka_unit_test(test_headers__places_outside_are_not_valid),
        cmocka_unit_test(test_bitmap__runs_are_those_of_a_simple_loop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
