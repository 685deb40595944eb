/*
 * test_scan.c - the scan of a rebuild finds every record that was written, and survives zones that
 * cannot be read.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "segment_sample.h"

#define RECORDS_MAX 2000

static _Alignas(4096) uint8_t record_bytes[BATCH_BYTES_MAX];

/* What the scan showed. */
typedef struct found {
    uint64_t sequences[RECORDS_MAX];
    size_t count;
    size_t torn;
    kvarve_status answer;
} found;

static kvarve_status keep_record(void *context, header_place place, const void *bytes, size_t size)
{
    found *seen = context;
    batch record;

    assert_int_equal(size, (size_t)place.blocks * BATCH_BLOCK);
    if (batch_decode(bytes, size, &record, NULL) != KVARVE_OK) {
        seen->torn++;
        return seen->answer;
    }
    assert_memory_equal(&record.place, &place, sizeof place);
    assert_true(seen->count < RECORDS_MAX);
    seen->sequences[seen->count++] = record.sequence;
    batch_deinit(&record);
    return seen->answer;
}

/* A record that fills its blocks with pages, up to 1 MiB. */
static void write_record(sim_world *world, segment_set *set, header_place place, uint64_t sequence)
{
    uint8_t namespaces[1][32] = {{0}};
    const uint32_t page_count = (place.blocks * BATCH_BLOCK - 120 - 32) / 72;
    batch_page *pages = kvarve_allocate_array(page_count, sizeof *pages);
    size_t used = 0;
    const batch record = {.store = sample_store,
                          .sequence = sequence,
                          .place = place,
                          .first_page = 1,
                          .first_span = 1,
                          .first_checkpoint = 1,
                          .namespace_count = 1,
                          .namespaces = namespaces,
                          .page_count = page_count,
                          .pages = pages};

    assert_non_null(pages);
    for (uint32_t i = 0; i < page_count; i++) {
        pages[i].place.segment = 1;
        pages[i].size = 1;
    }
    batch_encode(&record, record_bytes, sizeof record_bytes, &used);
    kvarve_release(pages);
    assert_int_equal(sample_write_header(world, set, place, record_bytes), KVARVE_OK);
}

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static found scan(segment_set *set)
{
    found seen = {.answer = KVARVE_OK};

    assert_int_equal(segment_scan(set, keep_record, &seen, NULL), KVARVE_OK);
    qsort(seen.sequences, seen.count, sizeof seen.sequences[0], compare);
    return seen;
}

/* Records of all sizes up to 16 blocks, over two files; how many. */
static uint64_t write_many(sim_world *world, segment_set *set, uint64_t first, uint64_t count)
{
    uint64_t random = 5;

    for (uint64_t i = 0; i < count; i++) {
        const uint32_t blocks = 1 + (uint32_t)(world_next_random(&random) % 16);
        header_place place;

        assert_int_equal(segment_reserve_header(set, 0, blocks, &place), KVARVE_OK);
        write_record(world, set, place, first + i);
    }
    return count;
}

static void test_scan__finds_every_record(void **unused)
{
    sim_world *world = sample_world(1);
    segment_set *set = sample_open(world);
    uint64_t count;
    found seen;

    (void)unused;
    assert_int_equal(sample_grow(world, set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    assert_int_equal(sample_grow(world, set, 0, UINT64_MAX), KVARVE_OK);
    assert_int_equal(scan(set).count, 0);
    count = write_many(world, set, 1, 400);
    segment_close(set);
    set = sample_open(world);
    seen = scan(set);
    assert_int_equal(seen.count, count);
    assert_int_equal(seen.torn, 0);
    for (uint64_t i = 0; i < count; i++) {
        assert_int_equal(seen.sequences[i], i + 1);
    }
    assert_int_equal(sample_count(set).damaged_files, 0);
    segment_close(set);
    world_destroy(world);
}

static void test_scan__the_longest_records_are_found_wherever_they_begin(void **unused)
{
    (void)unused;
    for (uint32_t block = 1; block <= 4097 - 3 * 256; block += 251) {
        sim_world *world = sample_world(1);
        segment_set *set = sample_open(world);
        found seen;

        assert_int_equal(sample_grow(world, set, 0, UINT64_MAX), KVARVE_OK);
        for (uint32_t i = 0; i < 3; i++) {
            write_record(world, set,
                         (header_place){.segment = 1, .block = block + i * 256, .blocks = 256},
                         i + 1);
        }
        seen = scan(set);
        assert_int_equal(seen.count, 3);
        segment_close(set);
        world_destroy(world);
    }
}

static void test_scan__a_record_may_end_the_zone_but_not_pass_it(void **unused)
{
    sim_world *world = sample_world(1);
    segment_set *set = sample_open(world);
    found seen;

    (void)unused;
    assert_int_equal(sample_grow(world, set, 0, UINT64_MAX), KVARVE_OK);
    write_record(world, set, (header_place){.segment = 1, .block = 4097 - 256, .blocks = 256}, 1);
    seen = scan(set);
    assert_int_equal(seen.count, 1);
    /* The beginning of the same record, one block later. */
    assert_int_equal(world_overwrite(world, SAMPLE_FOLDER "/0-1.seg", (UINT64_C(4097) - 255) * 4096,
                                     record_bytes, 4096),
                     0);
    seen = scan(set);
    assert_int_equal(seen.count, 0);
    assert_int_equal(seen.torn, 1);
    segment_close(set);
    world_destroy(world);
}

static void test_scan__records_inside_the_rest_of_older_ones_are_found(void **unused)
{
    sim_world *world = sample_world(1);
    segment_set *set = sample_open(world);
    found seen;

    (void)unused;
    assert_int_equal(sample_grow(world, set, 0, UINT64_MAX), KVARVE_OK);
    write_record(world, set, (header_place){.segment = 1, .block = 10, .blocks = 12}, 1);
    write_record(world, set, (header_place){.segment = 1, .block = 15, .blocks = 1}, 2);
    seen = scan(set);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.torn, 1);
    assert_int_equal(seen.sequences[0], 2);
    segment_close(set);
    world_destroy(world);
}

static void test_scan__the_visitor_can_end_it(void **unused)
{
    sim_world *world = sample_world(1);
    segment_set *set = sample_open(world);
    found seen = {.answer = KVARVE_NO_MEMORY};

    (void)unused;
    assert_int_equal(sample_grow(world, set, 0, UINT64_MAX), KVARVE_OK);
    (void)write_many(world, set, 1, 5);
    assert_int_equal(segment_scan(set, keep_record, &seen, NULL), KVARVE_NO_MEMORY);
    assert_int_equal(seen.count, 1);
    segment_close(set);
    world_destroy(world);
}

static void test_scan__a_block_that_cannot_be_read_costs_its_record(void **unused)
{
    /* The read of 1 MiB fails, then its blocks are read one by one, of which the first three fail
     * too. */
    world_plan plan = {.fault_step = 0,
                       .fault_count = 4,
                       .cut_change = WORLD_NEVER,
                       .fault_ops = WORLD_OP_READ,
                       .fault_path = ".seg"};
    sim_world *world = sample_world(1);
    segment_set *set = sample_open(world);
    found seen;

    (void)unused;
    assert_int_equal(sample_grow(world, set, 0, UINT64_MAX), KVARVE_OK);
    for (uint32_t block = 1; block <= 9; block++) {
        write_record(world, set, (header_place){.segment = 1, .block = block, .blocks = 1}, block);
    }
    world_set_plan(world, &plan);
    seen = scan(set);
    assert_int_equal(seen.count, 6); /* Blocks 1, 2 and 3 could not be read. */
    assert_int_equal(seen.sequences[0], 4);
    assert_int_equal(sample_count(set).damaged_files, 1);
    segment_close(set);
    world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scan__finds_every_record),
        cmocka_unit_test(test_scan__the_longest_records_are_found_wherever_they_begin),
        cmocka_unit_test(test_scan__a_record_may_end_the_zone_but_not_pass_it),
        cmocka_unit_test(test_scan__records_inside_the_rest_of_older_ones_are_found),
        cmocka_unit_test(test_scan__the_visitor_can_end_it),
        cmocka_unit_test(test_scan__a_block_that_cannot_be_read_costs_its_record),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
