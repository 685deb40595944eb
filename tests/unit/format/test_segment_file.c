/*
 * test_segment_file.c - the first block of a segment file: one form, and nothing else is accepted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "format/segment_file.h"
#include "hash/hash.h"

static const segment_head sample = {.store = {{1, 2, 3}},
                                    .number = 7,
                                    .slot_bytes = 65536,
                                    .slot_count = 1000,
                                    .header_blocks = 250};

/* Set the 32-bit field at `at` and make the digest right again. */
static void forge(uint8_t bytes[SEGMENT_HEAD_SIZE], size_t at, uint32_t value)
{
    page_digest digest;

    for (int i = 0; i < 4; i++) {
        bytes[at + (size_t)i] = (uint8_t)(value >> (8 * i));
    }
    memset(bytes + 8, 0, 16);
    digest = page_digest_of(bytes, SEGMENT_HEAD_SIZE);
    memcpy(bytes + 8, digest.bytes, 16);
}

static void test_segment_head__comes_back(void **unused)
{
    static const segment_head heads[] = {
        {.number = 1, .slot_bytes = 4096, .slot_count = 1, .header_blocks = 2},
        {.number = UINT32_MAX, .header_blocks = 65536},
        {.number = 3, .slot_bytes = 1u << 30, .slot_count = 64, .header_blocks = 4096},
    };

    (void)unused;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        uint8_t bytes[SEGMENT_HEAD_SIZE];
        segment_head out;

        segment_head_encode(&heads[i], bytes);
        assert_int_equal(segment_head_decode(bytes, &out, NULL), KVARVE_OK);
        assert_memory_equal(&out, &heads[i], sizeof out);
    }
}

static void test_segment_head__every_flipped_byte_is_refused(void **unused)
{
    uint8_t bytes[SEGMENT_HEAD_SIZE];
    segment_head out;

    (void)unused;
    segment_head_encode(&sample, bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] ^= (uint8_t)(1 + i % 255);
        assert_int_equal(segment_head_decode(bytes, &out, NULL), KVARVE_CORRUPT);
        bytes[i] ^= (uint8_t)(1 + i % 255);
    }
    assert_int_equal(segment_head_decode(bytes, &out, NULL), KVARVE_OK);
}

static void test_segment_head__fields_out_of_range_are_refused(void **unused)
{
    static const struct {
        size_t at;
        uint32_t value;
    } wrong[] = {
        {24, 0},              /* version */
        {28, 0},              /* number */
        {48, 4097},           /* slot bytes: not aligned */
        {48, 0},              /* slots of no size */
        {48, (1u << 30) * 2}, /* too large */
        {52, 0},              /* a size and no slots */
        {52, UINT32_MAX},     /* the file would be too large */
        {56, 1},              /* no room for a header */
        {56, 65537},
        {60, 1}, /* what must be zero */
        {4092, 1},
    };

    (void)unused;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        uint8_t bytes[SEGMENT_HEAD_SIZE];
        segment_head out;

        segment_head_encode(&sample, bytes);
        forge(bytes, wrong[i].at, wrong[i].value);
        assert_int_equal(segment_head_decode(bytes, &out, NULL), KVARVE_CORRUPT);
    }
}

static void test_segment_head__a_newer_version_is_named_as_such(void **unused)
{
    uint8_t bytes[SEGMENT_HEAD_SIZE];
    segment_head out;
    kvarve_error err;

    (void)unused;
    segment_head_encode(&sample, bytes);
    forge(bytes, 24, 2);
    assert_int_equal(segment_head_decode(bytes, &out, &err), KVARVE_UNSUPPORTED);
    assert_string_equal(err.text, "first block of a segment file: version 2, known up to 1");
}

static void test_segment_head__version_1_has_these_bytes(void **unused)
{
    uint8_t bytes[SEGMENT_HEAD_SIZE];
    page_digest digest;
    char text[33];

    (void)unused;
    segment_head_encode(&sample, bytes);
    digest = page_digest_of(bytes, sizeof bytes);
    hex_encode(text, digest.bytes, sizeof digest.bytes);
    assert_string_equal(text, "aaf49782a56455598537278141501cf3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_segment_head__comes_back),
        cmocka_unit_test(test_segment_head__every_flipped_byte_is_refused),
        cmocka_unit_test(test_segment_head__fields_out_of_range_are_refused),
        cmocka_unit_test(test_segment_head__a_newer_version_is_named_as_such),
        cmocka_unit_test(test_segment_head__version_1_has_these_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
