/*
 * test_letter.c - room in the letter, and images of prefixes that are kept for their next use.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/alloc.h"
#include "client/letter_private.h"
#include "key/key.h"
#include "simulate/world.h"

#define LETTER_BYTES ((uint64_t)1 << 20)

typedef struct bench {
    sim_world *world;
    client_letter letter;
    uint64_t blocks;
} bench;

static int setup(void **state)
{
    static bench at;

    at = (bench){.blocks = kvarve_allocated_blocks()};
    at.world = world_create(3);
    *state = &at;
    return client_letter_open(&at.letter, world_env(at.world), LETTER_BYTES, NULL) == KVARVE_OK
               ? 0
               : -1;
}

static int teardown(void **state)
{
    bench *at = *state;

    client_letter_close(&at->letter);
    world_destroy(at->world);
    return kvarve_allocated_blocks() == at->blocks ? 0 : -1;
}

static void append(kvarve_prefix *prefix, uint64_t seed, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t token = (uint32_t)(world_next_random(&seed) % KVARVE_TOKEN_LIMIT);

        assert_int_equal(kvarve_prefix_append(prefix, &token, 1, NULL), KVARVE_OK);
    }
}

static kvarve_prefix *make_prefix(uint64_t seed, size_t count)
{
    kvarve_prefix *prefix = NULL;

    assert_int_equal(kvarve_prefix_create(&prefix, NULL), KVARVE_OK);
    append(prefix, seed, count);
    return prefix;
}

/* What the daemon makes of the image has the digests of the prefix. */
static void assert_is_image(bench *at, const kvarve_prefix *prefix)
{
    const uint64_t length = kvarve_prefix_length(prefix);
    wire_prefix wire;
    client_letter_image *image = NULL;
    kvarve_prefix *borrowed = NULL;
    prefix_image there;

    assert_int_equal(client_letter_prefix(&at->letter, prefix, &wire, &image, NULL), KVARVE_OK);
    assert_int_equal(wire.tokens.size, length * WIRE_TOKEN_SIZE);
    there = (prefix_image){
        .tokens = (const uint32_t *)(const void *)client_letter_bytes(&at->letter, wire.tokens),
        .steps = client_letter_bytes(&at->letter, wire.steps),
        .length = length};
    assert_int_equal(prefix_borrow(&there, &borrowed, NULL), KVARVE_OK);
    for (uint64_t tokens = 1; tokens <= length; tokens += tokens < 40 ? 1 : 37) {
        uint8_t wanted[KVARVE_DIGEST_SIZE];
        uint8_t digest[KVARVE_DIGEST_SIZE];

        assert_int_equal(kvarve_prefix_digest(prefix, tokens, wanted, NULL), KVARVE_OK);
        assert_int_equal(kvarve_prefix_digest(borrowed, tokens, digest, NULL), KVARVE_OK);
        assert_memory_equal(digest, wanted, sizeof digest);
    }
    if (length > 0) {
        assert_memory_equal(there.tokens, kvarve_prefix_tokens(prefix), length * WIRE_TOKEN_SIZE);
    }
    prefix_return(borrowed);
    client_letter_done(image);
}

static void test_letter__ranges_do_not_overlap_and_come_back(void **state)
{
    bench *at = *state;
    wire_letter ranges[64];
    uint64_t random = 5;

    memset(ranges, 0, sizeof ranges);
    for (uint32_t round = 0; round < 2000; round++) {
        const size_t i = (size_t)(world_next_random(&random) % 64);

        client_letter_give(&at->letter, ranges[i]);
        if (client_letter_take(&at->letter, world_next_random(&random) % 20000, &ranges[i], NULL) !=
            KVARVE_OK) {
            ranges[i] = (wire_letter){0};
            continue;
        }
        assert_int_equal(ranges[i].offset % WIRE_LETTER_ALIGN, 0);
        assert_true(ranges[i].offset + ranges[i].size <= LETTER_BYTES);
        for (size_t k = 0; k < 64; k++) {
            assert_true(k == i || ranges[k].size == 0 || ranges[i].size == 0 ||
                        ranges[k].offset + ranges[k].size <= ranges[i].offset ||
                        ranges[i].offset + ranges[i].size <= ranges[k].offset);
        }
    }
    for (size_t i = 0; i < 64; i++) {
        client_letter_give(&at->letter, ranges[i]);
    }
    assert_int_equal(client_letter_take(&at->letter, LETTER_BYTES, &ranges[0], NULL), KVARVE_OK);
    client_letter_give(&at->letter, ranges[0]);
}

static void test_letter__what_does_not_fit_is_refused(void **state)
{
    bench *at = *state;
    wire_letter all;
    wire_letter more;
    kvarve_error err = {0};

    assert_int_equal(client_letter_take(&at->letter, LETTER_BYTES + 1, &more, &err),
                     KVARVE_NO_MEMORY);
    assert_int_equal(client_letter_take(&at->letter, LETTER_BYTES, &all, NULL), KVARVE_OK);
    assert_int_equal(client_letter_take(&at->letter, 1, &more, &err), KVARVE_NO_MEMORY);
    assert_non_null(strstr(err.text, "letter"));
    assert_int_equal(client_letter_take(&at->letter, 0, &more, NULL), KVARVE_OK);
    assert_int_equal(more.size, 0);
    client_letter_give(&at->letter, all);
}

static void test_letter__memory_that_is_short_is_an_answer(void **state)
{
    bench *at = *state;
    wire_letter range;

    world_set_headroom(at->world, 4096);
    assert_int_equal(client_letter_take(&at->letter, LETTER_BYTES / 2, &range, NULL),
                     KVARVE_NO_MEMORY);
    world_set_headroom(at->world, UINT64_MAX);
    assert_int_equal(client_letter_take(&at->letter, LETTER_BYTES / 2, &range, NULL), KVARVE_OK);
    client_letter_give(&at->letter, range);
}

/* All lengths around steps and chunks, grown from one another. */
static void test_image__follows_a_prefix_that_grows(void **state)
{
    bench *at = *state;
    kvarve_prefix *prefix = make_prefix(1, 0);
    static const size_t pieces[] = {0, 1, 254, 1, 1, 8, 247, 1, 3000, 700, 200, 4096, 5000, 1};

    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        append(prefix, i + 10, pieces[i]);
        assert_is_image(at, prefix);
    }
    kvarve_prefix_free(prefix);
}

/* Cut somewhere and gone on with other tokens, also by one alone, near the places of steps. */
static void test_image__follows_a_prefix_that_was_cut(void **state)
{
    bench *at = *state;
    static const uint64_t cuts[] = {0,   1,   247, 248, 249, 255,  256,  257,  504,
                                    511, 512, 513, 760, 767, 4087, 4088, 4096, 4103};

    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        for (size_t added = 0; added < 5000; added = added * 40 + 1) {
            kvarve_prefix *prefix = make_prefix(2, 4500);

            assert_is_image(at, prefix);
            assert_int_equal(kvarve_prefix_truncate(prefix, cuts[i], NULL), KVARVE_OK);
            append(prefix, 77, added);
            assert_is_image(at, prefix);
            kvarve_prefix_free(prefix);
        }
    }
}

/* Another prefix at the same address, with the same length and most of the same tokens. */
static void test_image__is_not_taken_for_that_of_another_prefix(void **state)
{
    bench *at = *state;
    kvarve_prefix *prefix = make_prefix(3, 3000);

    for (uint64_t differs = 0; differs < 3000; differs += 53) {
        uint32_t tokens[3000];

        assert_is_image(at, prefix);
        memcpy(tokens, kvarve_prefix_tokens(prefix), sizeof tokens);
        tokens[differs] ^= 1;
        assert_int_equal(kvarve_prefix_truncate(prefix, 0, NULL), KVARVE_OK);
        assert_int_equal(kvarve_prefix_append(prefix, tokens, 3000, NULL), KVARVE_OK);
        assert_is_image(at, prefix);
    }
    kvarve_prefix_free(prefix);
}

static void test_image__more_prefixes_than_places_are_kept_by_their_use(void **state)
{
    bench *at = *state;
    kvarve_prefix *prefixes[2 * LETTER_IMAGES];

    for (size_t i = 0; i < 2 * (size_t)LETTER_IMAGES; i++) {
        prefixes[i] = make_prefix(i, 300 + i);
        assert_is_image(at, prefixes[i]);
        assert_is_image(at, prefixes[0]);
    }
    for (size_t i = 0; i < 2 * (size_t)LETTER_IMAGES; i++) {
        assert_is_image(at, prefixes[i]);
        kvarve_prefix_free(prefixes[i]);
    }
}

/* Images give way to what needs room, but for those that a request still names. */
static void test_image__gives_way_when_room_is_needed(void **state)
{
    bench *at = *state;
    kvarve_prefix *kept = make_prefix(1, 1000);
    kvarve_prefix *used = make_prefix(2, 1000);
    client_letter_image *image = NULL;
    wire_prefix wire;
    wire_letter range;

    assert_is_image(at, kept);
    assert_int_equal(client_letter_prefix(&at->letter, used, &wire, &image, NULL), KVARVE_OK);
    assert_int_equal(client_letter_take(&at->letter, LETTER_BYTES, &range, NULL), KVARVE_NO_MEMORY);
    client_letter_done(image);
    assert_int_equal(client_letter_take(&at->letter, LETTER_BYTES, &range, NULL), KVARVE_OK);
    client_letter_give(&at->letter, range);
    assert_is_image(at, kept);
    assert_is_image(at, used);
    kvarve_prefix_free(kept);
    kvarve_prefix_free(used);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_letter__ranges_do_not_overlap_and_come_back, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_letter__what_does_not_fit_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_letter__memory_that_is_short_is_an_answer, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_image__follows_a_prefix_that_grows, setup, teardown),
        cmocka_unit_test_setup_teardown(test_image__follows_a_prefix_that_was_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(test_image__is_not_taken_for_that_of_another_prefix, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_image__more_prefixes_than_places_are_kept_by_their_use,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_image__gives_way_when_room_is_needed, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
