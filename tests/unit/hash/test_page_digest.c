/*
 * test_page_digest.c - XXH3-128 of pages: known values, pieces, copies, and the processor's own
 * code against the plain functions compiled in here.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>
#include <string.h>

/* The plain functions for the baseline processor, as the yardstick. */
#define XXH_INLINE_ALL
#define XXH_VECTOR 0
#include <xxhash.h>

#include "base/alloc.h"
#include "hash/hash.h"
#include "hash/stripes_private.h"

#define SIZE_MAX_TESTED ((size_t)200000)

static uint8_t *make_bytes(size_t size)
{
    uint8_t *bytes = kvarve_allocate(size);
    uint64_t value = 88172645463325252U;

    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++) {
        value ^= value << 13;
        value ^= value >> 7;
        value ^= value << 17;
        bytes[i] = (uint8_t)value;
    }
    return bytes;
}

static page_digest plain_digest(const void *bytes, size_t size)
{
    XXH128_canonical_t form;
    page_digest digest;

    XXH128_canonicalFromHash(&form, XXH3_128bits(bytes, size));
    memcpy(digest.bytes, form.digest, sizeof digest.bytes);
    return digest;
}

static void test_page_digest__published_value_of_nothing_matches(void **state)
{
    const page_digest digest = page_digest_of(NULL, 0);
    char text[33];

    (void)state;
    hex_encode(text, digest.bytes, sizeof digest.bytes);
    assert_string_equal(text, "99aa06d3014798d86001c324468d497f");
}

/* Sizes around every place where the algorithm or the step changes. */
static const size_t sizes[] = {0,     1,     3,     4,      8,      9,     16,    17,
                               128,   129,   240,   241,    256,    257,   512,   1023,
                               1024,  1025,  4096,  16383,  16384,  16385, 17408, 32768,
                               33000, 65536, 65537, 131072, 199999, 200000};

#define MANY ((size_t)1000) /* stripes */

#define SIZES (sizeof sizes / sizeof *sizes)

static void test_page_digest__equals_the_plain_functions_whole_and_copied(void **state)
{
    static const size_t places[] = {0, 16, 32, 48, 1, 8, 63}; /* of the destination in a line */
    uint8_t *bytes = make_bytes(SIZE_MAX_TESTED + 64);
    uint8_t *copy = kvarve_allocate(SIZE_MAX_TESTED + 256);
    uint8_t *line = copy + 64 - (uintptr_t)copy % 64;

    (void)state;
    assert_non_null(copy);
    for (size_t i = 0; i < SIZES; i++) {
        for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
            const uint8_t *from = bytes + 5 * k;
            uint8_t *to = line + places[k];
            const page_digest expected = plain_digest(from, sizes[i]);
            const page_digest whole = page_digest_of(from, sizes[i]);
            page_digest copied;

            memset(to, 0, sizes[i]);
            to[sizes[i]] = 0xa5;
            copied = page_digest_copy(to, from, sizes[i]);
            assert_true(page_digest_is_equal(&whole, &expected));
            assert_true(page_digest_is_equal(&copied, &expected));
            assert_memory_equal(to, from, sizes[i]);
            assert_int_equal(to[sizes[i]], 0xa5);
        }
    }
    kvarve_release(copy);
    kvarve_release(bytes);
}

static void test_stripes__plain_words_and_vectors_agree(void **state)
{
    static const size_t counts[] = {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 100, 1000};
    uint8_t *bytes = make_bytes(MANY * STRIPE_SIZE + 1);
    uint8_t *copy = kvarve_allocate(MANY * STRIPE_SIZE + 1);
    stripes_state plain;
    stripes_state chosen;

    (void)state;
    assert_non_null(copy);
    stripes_init(&plain);
    stripes_init(&chosen);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        memset(copy, 0, MANY * STRIPE_SIZE);
        stripes_take_plain(&plain, copy, bytes + 1, counts[i]);
        assert_memory_equal(copy, bytes + 1, counts[i] * 64);
        stripes_take(&chosen, i % 2 == 0 ? copy : NULL, bytes + 1, counts[i]);
        assert_memory_equal(plain.lanes, chosen.lanes, sizeof plain.lanes);
        assert_int_equal(plain.in_block, chosen.in_block);
        stripes_take_plain(&plain, NULL, bytes, counts[i]);
        stripes_take(&chosen, copy, bytes, counts[i]);
        assert_memory_equal(copy, bytes, counts[i] * 64);
    }
    assert_memory_equal(plain.lanes, chosen.lanes, sizeof plain.lanes);
    kvarve_release(copy);
    kvarve_release(bytes);
}

static void test_page_digest__every_length_up_to_some_blocks_in_two_pieces(void **state)
{
    uint8_t *bytes = make_bytes(2600);
    uint8_t copy[2600];

    (void)state;
    for (size_t size = 0; size <= 2600; size++) {
        const size_t cut = size * 7 % (size + 1);
        const page_digest expected = plain_digest(bytes, size);
        page_digest_state work;
        page_digest digest;

        page_digest_begin(&work);
        page_digest_update_copy(&work, copy, bytes, cut);
        page_digest_update(&work, bytes + cut, size - cut);
        digest = page_digest_end(&work);
        assert_true(page_digest_is_equal(&digest, &expected));
    }
    kvarve_release(bytes);
}

/* The digest in pieces, of which every other one is copied. */
static page_digest digest_in_pieces(uint8_t *copy, const uint8_t *bytes, size_t size, size_t piece)
{
    page_digest_state work;
    bool is_copied = false;

    page_digest_begin(&work);
    for (size_t at = 0; at < size; at += piece) {
        const size_t part = size - at < piece ? size - at : piece;

        if (is_copied) {
            page_digest_update_copy(&work, copy + at, bytes + at, part);
            assert_memory_equal(copy + at, bytes + at, part);
        } else {
            page_digest_update(&work, bytes + at, part);
        }
        is_copied = !is_copied;
    }
    page_digest_update(&work, NULL, 0);
    page_digest_update_copy(&work, NULL, NULL, 0);
    return page_digest_end(&work);
}

static void test_page_digest__pieces_give_the_digest_of_the_whole(void **state)
{
    static const size_t pieces[] = {1,    63,   64,   255,   256,   257,
                                    1000, 1024, 4096, 16384, 20000, 50001};
    const size_t size = 150001;
    uint8_t *bytes = make_bytes(size);
    uint8_t *copy = kvarve_allocate(size);
    const page_digest expected = plain_digest(bytes, size);

    (void)state;
    assert_non_null(copy);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        page_digest digest;

        memset(copy, 0, size);
        digest = digest_in_pieces(copy, bytes, size, pieces[i]);
        assert_true(page_digest_is_equal(&digest, &expected));
    }
    kvarve_release(copy);
    kvarve_release(bytes);
}

static void test_page_digest__one_bit_changes_it(void **state)
{
    uint8_t *bytes = make_bytes(5000);
    const page_digest before = page_digest_of(bytes, 5000);
    page_digest after;

    (void)state;
    bytes[4999] ^= 1;
    after = page_digest_of(bytes, 5000);
    assert_false(page_digest_is_equal(&before, &after));
    kvarve_release(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page_digest__published_value_of_nothing_matches),
        cmocka_unit_test(test_page_digest__equals_the_plain_functions_whole_and_copied),
        cmocka_unit_test(test_stripes__plain_words_and_vectors_agree),
        cmocka_unit_test(test_page_digest__every_length_up_to_some_blocks_in_two_pieces),
        cmocka_unit_test(test_page_digest__pieces_give_the_digest_of_the_whole),
        cmocka_unit_test(test_page_digest__one_bit_changes_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
