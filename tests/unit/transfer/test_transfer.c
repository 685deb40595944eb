/*
 * test_transfer.c - pages of paged engines: canonical order in every nesting of memory, partial
 * pages, slices, damage, and refusals before a byte is touched.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "transfer/transfer.h"

#define BLOCKS       6u
#define BLOCK_TOKENS 4u
#define LAYERS       3u
#define RUNS         2u
#define ROW          24u
#define REGION       4096u

static uint8_t memory[LAYERS][REGION];
static transfer_region regions[LAYERS];
static transfer_group group;
static const uint32_t ids[] = {5, 0, 3, 2};

/* How blocks, runs and rows nest in the memory of a layer. */
typedef struct nesting {
    const char *name;
    uint64_t block_stride;
    uint64_t run_stride;
    uint64_t row_stride;
} nesting;

static const nesting nestings[] = {
    {"block, run, row", RUNS *BLOCK_TOKENS *ROW, BLOCK_TOKENS *ROW, ROW},
    {"run, block, row", BLOCK_TOKENS *ROW, BLOCKS *BLOCK_TOKENS *ROW, ROW},
    {"block, row, run", RUNS *BLOCK_TOKENS *ROW, ROW, RUNS *ROW},
    {"padded everywhere", 500, 200, 40},
};

static void lay_out(const nesting *how)
{
    memset(memory, 0xcc, sizeof memory);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        regions[layer] = (transfer_region){
            .base = memory[layer],
            .size = REGION,
            .block_stride = how->block_stride,
            .run_stride = how->run_stride,
            .row_stride = how->row_stride,
            .run_count = RUNS,
            .row_bytes = ROW,
        };
    }
    group = (transfer_group){
        .layers = regions,
        .layer_count = LAYERS,
        .group = 7,
        .block_count = BLOCKS,
        .block_tokens = BLOCK_TOKENS,
        .span = 8,
    };
}

static uint8_t *row_at(uint32_t layer, uint32_t run, uint32_t token)
{
    const transfer_region *region = &regions[layer];

    return memory[layer] + ids[token / BLOCK_TOKENS] * region->block_stride +
           run * region->run_stride + token % BLOCK_TOKENS * region->row_stride;
}

/* What stands in a row, so that each byte of a page has one right place. */
static uint8_t byte_of(uint32_t layer, uint32_t run, uint32_t token, uint32_t at)
{
    return (uint8_t)(layer * 89 + run * 53 + token * 7 + at);
}

static void fill_rows(void)
{
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        for (uint32_t run = 0; run < RUNS; run++) {
            for (uint32_t token = 0; token < 16; token++) {
                for (uint32_t at = 0; at < ROW; at++) {
                    row_at(layer, run, token)[at] = byte_of(layer, run, token, at);
                }
            }
        }
    }
}

/* The canonical page, made row by row. */
static size_t expected_page(uint8_t *out, uint32_t first, uint32_t tokens)
{
    size_t size = 0;

    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        for (uint32_t run = 0; run < RUNS; run++) {
            for (uint32_t token = first; token < first + tokens; token++) {
                for (uint32_t at = 0; at < ROW; at++) {
                    out[size++] = byte_of(layer, run, token, at);
                }
            }
        }
    }
    return size;
}

static transfer_page page_of(uint32_t first, uint32_t tokens)
{
    return (transfer_page){
        .block_ids = ids, .block_count = 4, .first_token = first, .tokens = tokens};
}

/* Gather is the canonical page, and scatter puts its rows back and touches nothing else. */
static void check_round_trip(const nesting *how, uint32_t first, uint32_t tokens)
{
    static uint8_t page_bytes[4096], wanted[4096], before[LAYERS][REGION];
    const transfer_page page = page_of(first, tokens);
    const size_t size = expected_page(wanted, first, tokens);
    page_digest digest, wanted_digest = page_digest_of(wanted, size);
    kvarve_error err;

    lay_out(how);
    fill_rows();
    assert_int_equal(transfer_page_bytes(&group, tokens), size);
    assert_int_equal(transfer_gather(&group, &page, page_bytes, size, &digest, &err), KVARVE_OK);
    assert_memory_equal(page_bytes, wanted, size);
    assert_true(page_digest_is_equal(&digest, &wanted_digest));

    memcpy(before, memory, sizeof memory);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        for (uint32_t run = 0; run < RUNS; run++) {
            for (uint32_t token = first; token < first + tokens; token++) {
                memset(row_at(layer, run, token), 0, ROW);
            }
        }
    }
    assert_memory_not_equal(memory, before, sizeof memory);
    assert_int_equal(transfer_scatter_verified(&group, &page, page_bytes, size, &digest, &err),
                     KVARVE_OK);
    assert_memory_equal(memory, before, sizeof memory);
}

static void test_transfer__page_is_the_same_in_every_nesting(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof nestings / sizeof nestings[0]; i++) {
        check_round_trip(&nestings[i], 0, 8); /* full */
        check_round_trip(&nestings[i], 8, 8);
        check_round_trip(&nestings[i], 8, 5); /* partial: the second block is not full */
        check_round_trip(&nestings[i], 0, 1);
        check_round_trip(&nestings[i], 2, 7); /* over the ends of blocks */
    }
}

static void test_transfer__page_may_be_a_slice_of_a_block(void **state)
{
    static uint8_t bytes[4096], wanted[4096];
    const transfer_page page = page_of(6, 2);
    page_digest digest;
    kvarve_error err;

    (void)state;
    lay_out(&nestings[0]);
    fill_rows();
    group.span = 2;
    assert_int_equal(expected_page(wanted, 6, 2), 2 * LAYERS * RUNS * ROW);
    assert_int_equal(transfer_gather(&group, &page, bytes, 2 * LAYERS * RUNS * ROW, &digest, &err),
                     KVARVE_OK);
    assert_memory_equal(bytes, wanted, 2 * LAYERS * RUNS * ROW);
    group.span = 3;
    assert_int_equal(transfer_check_group(&group, &err), KVARVE_INVALID);
}

static void lay_out_opaque(void)
{
    lay_out(&nestings[0]);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        regions[layer] = (transfer_region){
            .base = memory[layer],
            .size = REGION,
            .block_stride = 600,
            .block_bytes = 100 + layer, /* layers may differ, and be padded */
        };
        for (uint32_t at = 0; at < REGION; at++) {
            memory[layer][at] = (uint8_t)(layer * 31 + at * 7 + at / 256);
        }
    }
}

static void test_transfer__opaque_page_is_whole_blocks(void **state)
{
    static uint8_t bytes[4096], wanted[4096], before[LAYERS][REGION];
    const transfer_page page = page_of(4, 7); /* blocks 0 and 3; the second is not full */
    page_digest digest;
    kvarve_error err;
    size_t size = 0;

    (void)state;
    lay_out_opaque();
    for (uint32_t i = 1; i <= 2; i++) {
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            memcpy(wanted + size, memory[layer] + ids[i] * 600u, 100 + layer);
            size += 100 + layer;
        }
    }
    assert_int_equal(size, 2 * 303);
    assert_int_equal(transfer_page_bytes(&group, 7), size);
    assert_int_equal(transfer_page_bytes(&group, 4), 303);
    assert_int_equal(transfer_gather(&group, &page, bytes, size, &digest, &err), KVARVE_OK);
    assert_memory_equal(bytes, wanted, size);

    memcpy(before, memory, sizeof memory);
    memset(memory[1] + ids[1] * 600u, 0, 101);
    memset(memory[2] + ids[2] * 600u, 0, 102);
    assert_int_equal(transfer_scatter_verified(&group, &page, bytes, size, &digest, &err),
                     KVARVE_OK);
    assert_memory_equal(memory, before, sizeof memory);
}

static void test_transfer__opaque_page_cannot_start_or_be_cut_inside_a_block(void **state)
{
    transfer_page page = page_of(2, 4);
    kvarve_error err;

    (void)state;
    lay_out_opaque();
    assert_int_equal(transfer_check_page(&group, &page, &err), KVARVE_INVALID);
    group.span = 2;
    assert_int_equal(transfer_check_group(&group, &err), KVARVE_INVALID);
    assert_non_null(strstr(err.text, "without rows"));
}

static void test_transfer__damaged_page_is_corrupt(void **state)
{
    static uint8_t bytes[4096];
    const transfer_page page = page_of(0, 8);
    page_digest digest;
    kvarve_error err;

    (void)state;
    lay_out(&nestings[2]);
    fill_rows();
    const size_t size = transfer_page_bytes(&group, 8);
    assert_int_equal(transfer_gather(&group, &page, bytes, size, &digest, &err), KVARVE_OK);
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= 0x10;
        assert_int_equal(transfer_scatter_verified(&group, &page, bytes, size, &digest, &err),
                         KVARVE_CORRUPT);
        bytes[i] ^= 0x10;
    }
    assert_non_null(strstr(err.text, "group 7"));
    assert_int_equal(transfer_scatter_verified(&group, &page, bytes, size, &digest, &err),
                     KVARVE_OK);
}

/* A page that must be refused in both directions, with nothing touched. */
static void check_refused(const transfer_page *page, size_t size, const char *text)
{
    static uint8_t bytes[4096], before[LAYERS][REGION];
    page_digest digest = {{0}};
    kvarve_error err;

    memset(bytes, 0xab, sizeof bytes);
    memcpy(before, memory, sizeof memory);
    assert_int_equal(transfer_scatter_verified(&group, page, bytes, size, &digest, &err),
                     KVARVE_INVALID);
    assert_non_null(strstr(err.text, text));
    assert_memory_equal(memory, before, sizeof memory);
    assert_int_equal(transfer_gather(&group, page, bytes, size, &digest, &err), KVARVE_INVALID);
    for (size_t i = 0; i < sizeof bytes; i++) {
        assert_int_equal(bytes[i], 0xab);
    }
}

static void test_transfer__bad_pages_are_refused_before_a_byte_is_touched(void **state)
{
    const uint32_t bad_ids[] = {1, 2, BLOCKS, UINT32_MAX};
    transfer_page page = page_of(0, 8);
    size_t size;

    (void)state;
    lay_out(&nestings[1]);
    fill_rows();
    size = transfer_page_bytes(&group, 8);
    check_refused(&page, size - 1, "not 1151");
    check_refused(&page, size + 1, "not 1153");
    page.tokens = 9;
    check_refused(&page, size, "9 tokens");
    assert_int_equal(transfer_check_page(&group, &page, NULL), KVARVE_INVALID);
    page.tokens = 0;
    check_refused(&page, 0, "0 tokens");
    page = page_of(9, 8);
    check_refused(&page, size, "need 5 blocks, 4 are named");
    page = page_of(UINT32_MAX, 8);
    check_refused(&page, size, "4 are named");
    page.block_ids = NULL;
    check_refused(&page, size, "0 are named");
    page = page_of(4, 8);
    page.block_ids = bad_ids; /* the second block of the page */
    check_refused(&page, size, "block id 6 at place 2 is out of range 0 .. 5");
    page.first_token = 8;
    check_refused(&page, size, "block id 6");
    page.first_token = 0; /* a bad id that the page does not need is not its business */
    assert_int_equal(transfer_check_page(&group, &page, NULL), KVARVE_OK);
}

static void check_bad_group(kvarve_status wanted, const char *text)
{
    kvarve_error err;

    assert_int_equal(transfer_check_group(&group, &err), wanted);
    assert_non_null(strstr(err.text, text));
    lay_out(&nestings[0]);
    assert_int_equal(transfer_check_group(&group, &err), KVARVE_OK);
}

static void test_transfer__bad_geometry_is_refused(void **state)
{
    (void)state;
    lay_out(&nestings[0]);
    regions[1].device = 2;
    check_bad_group(KVARVE_UNSUPPORTED, "device 2");
    regions[2].row_bytes = 0;
    check_bad_group(KVARVE_INVALID, "layer 2");
    regions[0].run_count = 0;
    check_bad_group(KVARVE_INVALID, "0 runs");
    regions[0].base = NULL;
    check_bad_group(KVARVE_INVALID, "layer 0");
    regions[0].size = BLOCKS * RUNS * BLOCK_TOKENS * ROW - 1; /* the last row ends beyond */
    check_bad_group(KVARVE_INVALID, "do not lie in");
    regions[0].block_stride -= 1; /* blocks lie over each other */
    check_bad_group(KVARVE_INVALID, "do not lie in");
    regions[0].row_stride = ROW - 1;
    check_bad_group(KVARVE_INVALID, "do not lie in");
    regions[0].run_stride = ROW;
    check_bad_group(KVARVE_INVALID, "do not lie in");
    regions[0].block_stride = UINT64_MAX / 4;
    check_bad_group(KVARVE_INVALID, "do not lie in");
    regions[0].run_stride = UINT64_MAX;
    regions[0].size = UINT64_MAX;
    check_bad_group(KVARVE_INVALID, "do not lie in");
    group.layer_count = 0;
    check_bad_group(KVARVE_INVALID, "0 layers");
    group.block_count = 0;
    check_bad_group(KVARVE_INVALID, "0 blocks");
    group.span = 0;
    check_bad_group(KVARVE_INVALID, "0 tokens");
    group.span = 6;
    check_bad_group(KVARVE_INVALID, "6 tokens");
    group.block_tokens = 0;
    check_bad_group(KVARVE_INVALID, "blocks of 0");
    group.span = UINT32_C(1) << 30;
    check_bad_group(KVARVE_INVALID, "more than 1073741824 bytes");
    lay_out_opaque();
    regions[1].block_bytes = 0;
    check_bad_group(KVARVE_INVALID, "0 bytes a block");
    lay_out_opaque();
    regions[1].block_bytes = 601; /* into the next block */
    check_bad_group(KVARVE_INVALID, "do not lie in");
}

static void test_transfer__region_that_ends_with_its_last_row_is_enough(void **state)
{
    (void)state;
    lay_out(&nestings[3]);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        regions[layer].size = 5 * 500 + 200 + 3 * 40 + ROW;
    }
    assert_int_equal(transfer_check_group(&group, NULL), KVARVE_OK);
    regions[2].size--;
    assert_int_equal(transfer_check_group(&group, NULL), KVARVE_INVALID);
}

static void test_transfer__plain_pages_are_verified(void **state)
{
    static uint8_t from[40000], to[40000];
    page_digest digest;

    (void)state;
    for (size_t i = 0; i < sizeof from; i++) {
        from[i] = (uint8_t)(i * i >> 3);
    }
    digest = transfer_copy_in(to, from, sizeof from);
    assert_memory_equal(to, from, sizeof from);
    assert_true(transfer_verify(to, sizeof to, &digest));
    memset(to, 0, sizeof to);
    assert_true(transfer_copy_out(to, from, sizeof from, &digest));
    assert_memory_equal(to, from, sizeof from);
    from[39999] ^= 1;
    assert_false(transfer_copy_out(to, from, sizeof from, &digest));
    assert_false(transfer_verify(from, sizeof from, &digest));
}

static int done_calls;

static void count_done(kvarve_job *base)
{
    (void)base;
    done_calls++;
}

static void run_job(transfer_job *job)
{
    assert_int_equal(job->base.lane, KVARVE_LANE_COPY);
    job->base.run(&job->base);
    job->base.done(&job->base);
}

static void test_transfer__jobs_do_what_the_calls_do(void **state)
{
    static uint8_t bytes[4096], copy[4096];
    transfer_job job, next;
    size_t size;

    (void)state;
    done_calls = 0;
    lay_out(&nestings[0]);
    fill_rows();
    size = transfer_page_bytes(&group, 8);
    transfer_job_init(&job, TRANSFER_GATHER, count_done);
    job.group = &group;
    job.page = page_of(0, 8);
    job.to = bytes;
    job.size = size;
    run_job(&job);
    assert_int_equal(job.status, KVARVE_OK);

    for (int work = TRANSFER_SCATTER; work <= TRANSFER_DIGEST; work++) {
        transfer_job_init(&next, (transfer_work)work, count_done);
        next.group = &group;
        next.page = job.page;
        next.from = bytes;
        next.to = copy;
        next.size = size;
        next.digest = job.digest;
        run_job(&next);
        assert_int_equal(next.status, KVARVE_OK);
        assert_true(page_digest_is_equal(&next.digest, &job.digest));
    }
    assert_memory_equal(copy, bytes, size);

    bytes[17] ^= 1;
    for (int work = TRANSFER_SCATTER; work <= TRANSFER_DIGEST; work++) {
        const bool is_result = work == TRANSFER_COPY_IN || work == TRANSFER_DIGEST;

        transfer_job_init(&next, (transfer_work)work, count_done);
        next.group = &group;
        next.page = job.page;
        next.from = bytes;
        next.to = copy;
        next.size = size;
        next.digest = job.digest;
        run_job(&next);
        assert_int_equal(next.status, is_result ? KVARVE_OK : KVARVE_CORRUPT);
        assert_int_equal(page_digest_is_equal(&next.digest, &job.digest), !is_result);
        if (!is_result) {
            assert_non_null(strstr(next.err.text, "does not match its digest"));
        }
    }
    assert_int_equal(done_calls, 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer__page_is_the_same_in_every_nesting),
        cmocka_unit_test(test_transfer__page_may_be_a_slice_of_a_block),
        cmocka_unit_test(test_transfer__opaque_page_is_whole_blocks),
        cmocka_unit_test(test_transfer__opaque_page_cannot_start_or_be_cut_inside_a_block),
        cmocka_unit_test(test_transfer__damaged_page_is_corrupt),
        cmocka_unit_test(test_transfer__bad_pages_are_refused_before_a_byte_is_touched),
        cmocka_unit_test(test_transfer__bad_geometry_is_refused),
        cmocka_unit_test(test_transfer__region_that_ends_with_its_last_row_is_enough),
        cmocka_unit_test(test_transfer__plain_pages_are_verified),
        cmocka_unit_test(test_transfer__jobs_do_what_the_calls_do),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
