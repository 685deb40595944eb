/*
 * test_prefix.c - the digests of a prefix, however it came about.
 *
 * Oracle: naive_digest below, the chain as docs/format/identity.md says it, hashed from the start
 * each time.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "hash/hash.h"
#include "key/key.h"

#define TOKENS 13000u

static uint32_t tokens[TOKENS];

static void naive_digest(const uint32_t *from, uint64_t count, uint8_t out[KVARVE_DIGEST_SIZE])
{
    static const char domain[] = "lmcache-recurrent-token-roots-v1\0\0\x10\0";
    sha256_state state;

    sha256(domain, sizeof domain, out);
    for (uint64_t at = 0; at < count; at += 4096) {
        const uint64_t end = count - at < 4096 ? count : at + 4096;

        sha256_init(&state);
        sha256_update(&state, out, KVARVE_DIGEST_SIZE);
        for (uint64_t i = at; i < end; i++) {
            const uint8_t packed[4] = {(uint8_t)from[i], (uint8_t)(from[i] >> 8),
                                       (uint8_t)(from[i] >> 16), (uint8_t)(from[i] >> 24)};

            sha256_update(&state, packed, sizeof packed);
        }
        sha256_final(&state, out);
    }
}

static int fill_tokens(void **state)
{
    uint32_t value = 1;

    (void)state;
    for (size_t i = 0; i < TOKENS; i++) {
        value = value * 1664525u + 1013904223u;
        tokens[i] = value >> 1;
    }
    return 0;
}

static kvarve_prefix *make_prefix(const uint32_t *from, size_t count)
{
    kvarve_prefix *prefix = NULL;

    assert_int_equal(kvarve_prefix_create(&prefix, NULL), KVARVE_OK);
    assert_int_equal(kvarve_prefix_append(prefix, from, count, NULL), KVARVE_OK);
    return prefix;
}

static void assert_prefix_digest(const kvarve_prefix *prefix, uint64_t count,
                                 const uint8_t *expected)
{
    uint8_t digest[KVARVE_DIGEST_SIZE];

    assert_int_equal(kvarve_prefix_digest(prefix, count, digest, NULL), KVARVE_OK);
    if (memcmp(digest, expected, sizeof digest) != 0) {
        fail_msg("digest of %llu tokens differs", (unsigned long long)count);
    }
}

static void assert_is_prefix_of_tokens(const kvarve_prefix *prefix, uint64_t length)
{
    static const uint64_t checked[] = {1,    7,    8,    9,    255,   256,   257,   263,
                                       264,  265,  511,  512,  2048,  3839,  3840,  3841,
                                       4087, 4088, 4095, 4096, 4097,  4101,  4103,  4104,
                                       4105, 8191, 8192, 8193, 12287, 12288, 12289, TOKENS};
    uint8_t expected[KVARVE_DIGEST_SIZE];

    assert_int_equal(kvarve_prefix_length(prefix), length);
    if (length > 0) {
        assert_memory_equal(kvarve_prefix_tokens(prefix), tokens, length * sizeof *tokens);
        naive_digest(tokens, length, expected);
        assert_prefix_digest(prefix, length, expected);
    }
    for (size_t i = 0; i < sizeof checked / sizeof *checked && checked[i] <= length; i++) {
        naive_digest(tokens, checked[i], expected);
        assert_prefix_digest(prefix, checked[i], expected);
    }
}

static void test_prefix__digest_at_every_length_is_the_chain(void **state)
{
    const uint64_t length = 4096 + 4096 + 300;
    kvarve_prefix *prefix = make_prefix(tokens, TOKENS);

    (void)state;
    for (uint64_t count = 1; count <= length; count++) {
        uint8_t expected[KVARVE_DIGEST_SIZE];

        naive_digest(tokens, count, expected);
        assert_prefix_digest(prefix, count, expected);
    }
    kvarve_prefix_free(prefix);
}

static void test_prefix__odd_pieces_equal_one_append(void **state)
{
    static const size_t pieces[] = {1,   3,   7,   8,    9,    15,   16,   17,  100,
                                    255, 256, 257, 1000, 4095, 4096, 4097, 9001};

    (void)state;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        kvarve_prefix *prefix = make_prefix(NULL, 0);

        for (size_t at = 0; at < TOKENS; at += pieces[i]) {
            const size_t part = TOKENS - at < pieces[i] ? TOKENS - at : pieces[i];

            assert_int_equal(kvarve_prefix_append(prefix, tokens + at, part, NULL), KVARVE_OK);
        }
        assert_is_prefix_of_tokens(prefix, TOKENS);
        kvarve_prefix_free(prefix);
    }
}

static void test_prefix__a_growing_prefix_has_the_right_digest_at_each_length(void **state)
{
    kvarve_prefix *prefix = make_prefix(NULL, 0);

    (void)state;
    for (uint64_t count = 1; count <= 4096 + 600; count++) {
        uint8_t expected[KVARVE_DIGEST_SIZE];

        assert_int_equal(kvarve_prefix_append(prefix, tokens + count - 1, 1, NULL), KVARVE_OK);
        naive_digest(tokens, count, expected);
        assert_prefix_digest(prefix, count, expected);
    }
    kvarve_prefix_free(prefix);
}

static void test_prefix__truncated_then_other_tokens_is_that_sequence(void **state)
{
    static const uint64_t cuts[] = {0,    1,    8,    255,  256,  257,  3840,
                                    4095, 4096, 4097, 4352, 8191, 8192, 12999};
    static uint32_t other[TOKENS];

    (void)state;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        kvarve_prefix *prefix = make_prefix(tokens, TOKENS);
        uint8_t expected[KVARVE_DIGEST_SIZE];

        assert_int_equal(kvarve_prefix_truncate(prefix, cuts[i], NULL), KVARVE_OK);
        assert_is_prefix_of_tokens(prefix, cuts[i]);
        memcpy(other, tokens, sizeof other);
        for (size_t k = cuts[i]; k < TOKENS; k++) {
            other[k] ^= 1;
        }
        assert_int_equal(kvarve_prefix_append(prefix, other + cuts[i], TOKENS - cuts[i], NULL),
                         KVARVE_OK);
        for (uint64_t count = cuts[i] + 1; count <= TOKENS; count += 251) {
            naive_digest(other, count, expected);
            assert_prefix_digest(prefix, count, expected);
        }
        kvarve_prefix_free(prefix);
    }
}

static void assert_span(const kvarve_prefix *prefix, uint64_t first, uint64_t span)
{
    static uint8_t digests[TOKENS][KVARVE_DIGEST_SIZE];
    const size_t count = (size_t)((TOKENS - first) / span + 1);

    prefix_digests_of_span(prefix, first, span, count, digests);
    for (size_t i = 0; i < count; i++) {
        assert_prefix_digest(prefix, first + i * span, digests[i]);
    }
}

static void test_prefix__digests_of_a_span_are_those_asked_one_by_one(void **state)
{
    static const uint64_t spans[] = {1,   2,   5,    16,   17,   100,  255, 256,
                                     272, 300, 1000, 4095, 4096, 4097, 5000};
    kvarve_prefix *prefix = make_prefix(tokens, TOKENS);

    (void)state;
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++) {
        for (uint64_t first = 1; first < 400; first += 61) {
            assert_span(prefix, first, spans[i]);
        }
    }
    prefix_digests_of_span(prefix, 0, 0, 0, NULL);
    kvarve_prefix_free(prefix);
}

static void test_prefix__chunk_digests_are_those_of_whole_chunks(void **state)
{
    kvarve_prefix *prefix = make_prefix(tokens, TOKENS);
    uint8_t digest[KVARVE_DIGEST_SIZE];

    (void)state;
    for (uint64_t chunk = 1; chunk <= TOKENS / 4096; chunk++) {
        prefix_chunk_digest(prefix, chunk, digest);
        assert_prefix_digest(prefix, chunk * 4096, digest);
    }
    kvarve_prefix_free(prefix);
}

static void test_prefix__a_token_over_the_limit_is_refused_with_its_position(void **state)
{
    static const size_t positions[] = {0, 1, 7, 8, 9, 255, 256, 300, 4095, 4096, 9999};
    static uint32_t bad[10000];
    kvarve_prefix *prefix = make_prefix(tokens, 1000);

    (void)state;
    for (size_t i = 0; i < sizeof positions / sizeof *positions; i++) {
        char expected[32];
        kvarve_error err = {0};

        memcpy(bad, tokens + 1000, sizeof bad);
        bad[positions[i]] = i % 2 == 0 ? KVARVE_TOKEN_LIMIT : UINT32_MAX;
        bad[9999] = UINT32_MAX;
        assert_int_equal(kvarve_prefix_append(prefix, bad, 10000, &err), KVARVE_INVALID);
        (void)snprintf(expected, sizeof expected, "token %zu ", positions[i]);
        assert_non_null(strstr(err.text, expected));
        assert_is_prefix_of_tokens(prefix, 1000);
    }
    assert_int_equal(kvarve_prefix_append(prefix, tokens + 1000, TOKENS - 1000, NULL), KVARVE_OK);
    assert_is_prefix_of_tokens(prefix, TOKENS);
    kvarve_prefix_free(prefix);
}

static void test_prefix__the_largest_token_is_taken(void **state)
{
    const uint32_t largest = KVARVE_TOKEN_LIMIT - 1;
    kvarve_prefix *prefix = make_prefix(&largest, 1);

    (void)state;
    assert_int_equal(*kvarve_prefix_tokens(prefix), largest);
    kvarve_prefix_free(prefix);
}

static void test_prefix__more_tokens_than_the_limit_are_refused(void **state)
{
    static const size_t counts[] = {(size_t)KVARVE_PREFIX_TOKENS_MAX - 299,
                                    (size_t)KVARVE_PREFIX_TOKENS_MAX, SIZE_MAX};
    kvarve_prefix *prefix = make_prefix(tokens, 300);

    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        kvarve_error err = {0};

        assert_int_equal(kvarve_prefix_append(prefix, tokens, counts[i], &err), KVARVE_INVALID);
        assert_non_null(strstr(err.text, "a prefix holds at most 16777216"));
    }
    assert_is_prefix_of_tokens(prefix, 300);
    kvarve_prefix_free(prefix);
}

static void test_prefix__bad_arguments_are_refused(void **state)
{
    kvarve_prefix *prefix = make_prefix(tokens, 10);
    uint8_t digest[KVARVE_DIGEST_SIZE];

    (void)state;
    assert_int_equal(kvarve_prefix_create(NULL, NULL), KVARVE_INVALID);
    assert_int_equal(kvarve_prefix_append(NULL, tokens, 1, NULL), KVARVE_INVALID);
    assert_int_equal(kvarve_prefix_append(prefix, NULL, 1, NULL), KVARVE_INVALID);
    assert_int_equal(kvarve_prefix_append_media(prefix, tokens, 5, NULL, 1, NULL), KVARVE_INVALID);
    assert_int_equal(kvarve_prefix_append_media(NULL, tokens, 5, NULL, 0, NULL), KVARVE_INVALID);
    assert_int_equal(kvarve_prefix_append_media(prefix, NULL, 5, NULL, 0, NULL), KVARVE_INVALID);
    assert_int_equal(kvarve_prefix_truncate(prefix, 11, NULL), KVARVE_INVALID);
    assert_int_equal(kvarve_prefix_truncate(NULL, 0, NULL), KVARVE_INVALID);
    assert_int_equal(kvarve_prefix_digest(prefix, 0, digest, NULL), KVARVE_INVALID);
    assert_int_equal(kvarve_prefix_digest(prefix, 11, digest, NULL), KVARVE_INVALID);
    assert_int_equal(kvarve_prefix_digest(prefix, 1, NULL, NULL), KVARVE_INVALID);
    assert_int_equal(kvarve_prefix_digest(NULL, 1, digest, NULL), KVARVE_INVALID);
    assert_int_equal(kvarve_prefix_length(NULL), 0);
    assert_null(kvarve_prefix_tokens(NULL));
    kvarve_prefix_free(NULL);
    assert_is_prefix_of_tokens(prefix, 10);
    assert_int_equal(kvarve_prefix_truncate(prefix, 0, NULL), KVARVE_OK);
    assert_null(kvarve_prefix_tokens(prefix));
    kvarve_prefix_free(prefix);
}

static kvarve_media medium(uint64_t position, uint64_t count, uint8_t content)
{
    kvarve_media run = {.position = position, .count = count};

    memset(run.digest, content, sizeof run.digest);
    return run;
}

/* A prefix of `count` tokens with placeholders 7 in two runs, of which the second has this content.
 */
static kvarve_prefix *make_media_prefix(size_t count, uint8_t second_content)
{
    const kvarve_media media[] = {medium(500, 300, 1), medium(5000, 17, second_content)};
    static uint32_t with_placeholders[TOKENS];
    kvarve_prefix *prefix = make_prefix(NULL, 0);

    memcpy(with_placeholders, tokens, sizeof with_placeholders);
    for (size_t i = 0; i < 2; i++) {
        for (uint64_t k = 0; k < media[i].count; k++) {
            with_placeholders[media[i].position + k] = 7;
        }
    }
    assert_int_equal(kvarve_prefix_append_media(prefix, with_placeholders, count, media,
                                                count > 5000 ? 2 : 1, NULL),
                     KVARVE_OK);
    return prefix;
}

static void test_prefix__media_are_replaced_by_the_documented_values(void **state)
{
    kvarve_prefix *prefix = make_media_prefix(TOKENS, 2);
    const uint32_t *held = kvarve_prefix_tokens(prefix);
    uint8_t message[16 + KVARVE_DIGEST_SIZE + 4] = "kvarve-media-v1";
    uint8_t expected[KVARVE_DIGEST_SIZE];
    uint8_t digest[SHA256_SIZE];

    (void)state;
    memset(message + 16, 1, KVARVE_DIGEST_SIZE);
    message[16 + KVARVE_DIGEST_SIZE] = 299 / 8;
    sha256(message, sizeof message, digest);
    for (uint32_t i = 296; i < 300; i++) {
        const uint8_t *word = digest + (size_t)(i % 8) * 4;

        assert_int_equal(held[500 + i], (word[0] | (uint32_t)word[1] << 8 |
                                         (uint32_t)word[2] << 16 | (uint32_t)word[3] << 24) &
                                            0x7fffffff);
    }
    naive_digest(held, TOKENS, expected);
    assert_prefix_digest(prefix, TOKENS, expected);
    assert_memory_equal(held, tokens, 500 * sizeof *held);
    assert_memory_equal(held + 800, tokens + 800, 4200 * sizeof *held);
    assert_memory_equal(held + 5017, tokens + 5017, (TOKENS - 5017) * sizeof *held);
    kvarve_prefix_free(prefix);
}

static void test_prefix__text_before_the_first_medium_keeps_its_digests(void **state)
{
    kvarve_prefix *prefix = make_media_prefix(TOKENS, 2);
    uint8_t expected[KVARVE_DIGEST_SIZE];
    uint8_t digest[KVARVE_DIGEST_SIZE];

    (void)state;
    naive_digest(tokens, 500, expected);
    assert_prefix_digest(prefix, 500, expected);
    naive_digest(tokens, 501, expected);
    assert_int_equal(kvarve_prefix_digest(prefix, 501, digest, NULL), KVARVE_OK);
    assert_memory_not_equal(digest, expected, sizeof digest);
    kvarve_prefix_free(prefix);
}

static void test_prefix__a_later_medium_changes_no_earlier_prefix(void **state)
{
    kvarve_prefix *one = make_media_prefix(TOKENS, 2);
    kvarve_prefix *other = make_media_prefix(TOKENS, 3);
    kvarve_prefix *only_first = make_media_prefix(5000, 2);
    uint8_t digest[KVARVE_DIGEST_SIZE];
    uint8_t changed[KVARVE_DIGEST_SIZE];

    (void)state;
    assert_int_equal(kvarve_prefix_digest(one, 5000, digest, NULL), KVARVE_OK);
    assert_prefix_digest(other, 5000, digest);
    assert_prefix_digest(only_first, 5000, digest);
    for (uint64_t count = 5001; count < 5018; count++) {
        assert_int_equal(kvarve_prefix_digest(one, count, digest, NULL), KVARVE_OK);
        assert_int_equal(kvarve_prefix_digest(other, count, changed, NULL), KVARVE_OK);
        assert_memory_not_equal(digest, changed, sizeof digest);
    }
    kvarve_prefix_free(only_first);
    kvarve_prefix_free(other);
    kvarve_prefix_free(one);
}

static void test_prefix__ids_in_a_run_are_not_looked_at(void **state)
{
    const kvarve_media run = medium(1, 2, 9);
    const uint32_t negative[] = {5, UINT32_MAX, UINT32_MAX, 6};
    const uint32_t zero[] = {5, 0, 0, 6};
    kvarve_prefix *one = make_prefix(NULL, 0);
    kvarve_prefix *other = make_prefix(NULL, 0);

    (void)state;
    assert_int_equal(kvarve_prefix_append_media(one, negative, 4, &run, 1, NULL), KVARVE_OK);
    assert_int_equal(kvarve_prefix_append_media(other, zero, 4, &run, 1, NULL), KVARVE_OK);
    assert_memory_equal(kvarve_prefix_tokens(one), kvarve_prefix_tokens(other), sizeof zero);
    kvarve_prefix_free(other);
    kvarve_prefix_free(one);
}

static void test_prefix__bad_runs_and_bad_text_beside_runs_change_nothing(void **state)
{
    const kvarve_media bad[][2] = {
        {medium(10, 5, 1), medium(14, 2, 2)},          /* overlap */
        {medium(10, 5, 1), medium(3, 2, 2)},           /* out of order */
        {medium(10, 0, 1), medium(14, 2, 2)},          /* empty */
        {medium(10, 5, 1), medium(98, 3, 2)},          /* leaves the tokens */
        {medium(10, 5, 1), medium(100, 1, 2)},         /* starts behind them */
        {medium(10, 5, 1), medium(20, UINT64_MAX, 2)}, /* wraps around */
        {medium(UINT64_MAX, 5, 1), medium(20, 1, 2)},
    };
    const kvarve_media good[] = {medium(10, 5, 1), medium(98, 2, 2)};
    kvarve_prefix *prefix = make_prefix(tokens, 600);
    uint32_t text[100];
    kvarve_error err = {0};

    (void)state;
    memcpy(text, tokens, sizeof text);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(kvarve_prefix_append_media(prefix, text, 100, bad[i], 2, &err),
                         KVARVE_INVALID);
        assert_non_null(strstr(err.text, "append tokens: medium "));
        assert_is_prefix_of_tokens(prefix, 600);
    }
    text[50] = KVARVE_TOKEN_LIMIT;
    assert_int_equal(kvarve_prefix_append_media(prefix, text, 100, good, 2, &err), KVARVE_INVALID);
    assert_non_null(strstr(err.text, "token 50 "));
    assert_is_prefix_of_tokens(prefix, 600);
    text[50] = 0;
    assert_int_equal(kvarve_prefix_append_media(prefix, text, 100, good, 2, NULL), KVARVE_OK);
    assert_int_equal(kvarve_prefix_length(prefix), 700);
    kvarve_prefix_free(prefix);
}

static int fail_kth(void *context, uint64_t number)
{
    return number != *(const uint64_t *)context;
}

/* Create, and append by thousands. After a failure the prefix must be as it was, and go on. */
static kvarve_status build_with_failure(uint64_t failing)
{
    kvarve_prefix *prefix = NULL;
    kvarve_status status;
    uint64_t at = 0;

    kvarve_allocate_set_hook(fail_kth, &failing);
    status = kvarve_prefix_create(&prefix, NULL);
    while (status == KVARVE_OK && at < TOKENS) {
        status = kvarve_prefix_append(prefix, tokens + at, 1000, NULL);
        at += status == KVARVE_OK ? 1000 : 0;
    }
    kvarve_allocate_set_hook(NULL, NULL);
    if (prefix != NULL) {
        assert_is_prefix_of_tokens(prefix, at);
        assert_int_equal(kvarve_prefix_append(prefix, tokens + at, TOKENS - at, NULL), KVARVE_OK);
        assert_is_prefix_of_tokens(prefix, TOKENS);
        kvarve_prefix_free(prefix);
    }
    return status;
}

static void test_prefix__any_failed_allocation_changes_nothing(void **state)
{
    const uint64_t blocks = kvarve_allocated_blocks();
    kvarve_status status = KVARVE_NO_MEMORY;
    uint64_t failing = 0;

    (void)state;
    while (status != KVARVE_OK) {
        status = build_with_failure(failing);
        assert_true(status == KVARVE_OK || status == KVARVE_NO_MEMORY);
        assert_int_equal(kvarve_allocated_blocks(), blocks);
        failing++;
    }
    assert_true(failing > 6); /* two of create, at least four of growing */
}

/* A copy of its image, grown piece by piece as a client's is, answers as the prefix does. */
static void test_prefix__borrowed_as_an_image_has_the_same_digests(void **state)
{
    static uint32_t lent_tokens[TOKENS];
    static uint8_t lent_steps[TOKENS / PREFIX_STEP_TOKENS + 1][PREFIX_STEP_SIZE];
    kvarve_prefix *prefix = make_prefix(tokens, 100);
    prefix_image image = {.tokens = lent_tokens, .steps = lent_steps};
    uint64_t there = 0;

    (void)state;
    while (there < TOKENS) {
        const prefix_image whole = prefix_image_of(prefix);
        kvarve_prefix *borrowed = NULL;
        uint8_t expected[KVARVE_DIGEST_SIZE];
        uint8_t got[KVARVE_DIGEST_SIZE];
        const uint64_t first_step = there / PREFIX_STEP_TOKENS;

        memcpy(lent_tokens + there, whole.tokens + there, (whole.length - there) * 4);
        memcpy(lent_steps[first_step], (const uint8_t *)whole.steps + first_step * PREFIX_STEP_SIZE,
               (whole.length / PREFIX_STEP_TOKENS + 1 - first_step) * PREFIX_STEP_SIZE);
        there = whole.length;
        image.length = there;
        assert_int_equal(prefix_borrow(&image, &borrowed, NULL), KVARVE_OK);
        for (uint64_t count = 1; count <= there; count += 97) {
            assert_int_equal(kvarve_prefix_digest(prefix, count, expected, NULL), KVARVE_OK);
            assert_int_equal(kvarve_prefix_digest(borrowed, count, got, NULL), KVARVE_OK);
            assert_memory_equal(expected, got, sizeof got);
        }
        assert_int_equal(kvarve_prefix_append(borrowed, tokens, 1, NULL), KVARVE_INVALID);
        prefix_return(borrowed);
        if (there < TOKENS) {
            const size_t more = TOKENS - there < 1777 ? TOKENS - there : 1777;

            assert_int_equal(kvarve_prefix_append(prefix, tokens + there, more, NULL), KVARVE_OK);
        }
    }
    image.length = KVARVE_PREFIX_TOKENS_MAX + 1;
    assert_int_equal(prefix_borrow(&image, &prefix, NULL), KVARVE_INVALID);
    prefix_return(NULL);
    kvarve_prefix_free(prefix);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prefix__borrowed_as_an_image_has_the_same_digests),
        cmocka_unit_test(test_prefix__digest_at_every_length_is_the_chain),
        cmocka_unit_test(test_prefix__odd_pieces_equal_one_append),
        cmocka_unit_test(test_prefix__a_growing_prefix_has_the_right_digest_at_each_length),
        cmocka_unit_test(test_prefix__truncated_then_other_tokens_is_that_sequence),
        cmocka_unit_test(test_prefix__digests_of_a_span_are_those_asked_one_by_one),
        cmocka_unit_test(test_prefix__chunk_digests_are_those_of_whole_chunks),
        cmocka_unit_test(test_prefix__a_token_over_the_limit_is_refused_with_its_position),
        cmocka_unit_test(test_prefix__the_largest_token_is_taken),
        cmocka_unit_test(test_prefix__more_tokens_than_the_limit_are_refused),
        cmocka_unit_test(test_prefix__bad_arguments_are_refused),
        cmocka_unit_test(test_prefix__media_are_replaced_by_the_documented_values),
        cmocka_unit_test(test_prefix__text_before_the_first_medium_keeps_its_digests),
        cmocka_unit_test(test_prefix__a_later_medium_changes_no_earlier_prefix),
        cmocka_unit_test(test_prefix__ids_in_a_run_are_not_looked_at),
        cmocka_unit_test(test_prefix__bad_runs_and_bad_text_beside_runs_change_nothing),
        cmocka_unit_test(test_prefix__any_failed_allocation_changes_nothing),
    };

    return cmocka_run_group_tests(tests, fill_tokens, NULL);
}
