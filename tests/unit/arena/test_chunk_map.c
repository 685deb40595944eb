/* test_chunk_map.c - runs of free chunks: lowest first, across words, against a plain array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "arena/chunk_map_private.h"

#define CHUNKS 5000u /* more than one word of the summary covers */

static void test_chunk_map__nothing_is_free_at_first(void **state)
{
    chunk_map map;

    (void)state;
    assert_true(chunk_map_init(&map, 70));
    assert_int_equal(chunk_map_take(&map, 1), CHUNK_NONE);
    chunk_map_give(&map, 0, 70);
    assert_int_equal(chunk_map_take(&map, 71), CHUNK_NONE);
    assert_int_equal(chunk_map_take(&map, 70), 0);
    chunk_map_deinit(&map);
}

static void test_chunk_map__lowest_run_that_fits_is_taken(void **state)
{
    chunk_map map;

    (void)state;
    assert_true(chunk_map_init(&map, CHUNKS));
    chunk_map_give(&map, 3, 2);
    chunk_map_give(&map, 60, 70); /* over two ends of words */
    chunk_map_give(&map, 4200, 800);
    assert_int_equal(chunk_map_take(&map, 3), 60);
    assert_int_equal(chunk_map_take(&map, 2), 3);
    assert_int_equal(chunk_map_take(&map, 67), 63);
    assert_int_equal(chunk_map_take(&map, 1), 4200);
    assert_int_equal(chunk_map_take(&map, 799), 4201);
    assert_int_equal(map.free_count, 0);
    chunk_map_deinit(&map);
}

static void test_chunk_map__refusal_is_forgotten_when_a_chunk_comes_back(void **state)
{
    chunk_map map;

    (void)state;
    assert_true(chunk_map_init(&map, 128));
    chunk_map_give(&map, 0, 5);
    chunk_map_give(&map, 6, 5);
    assert_int_equal(chunk_map_take(&map, 6), CHUNK_NONE);
    assert_int_equal(chunk_map_take(&map, 7), CHUNK_NONE);
    chunk_map_give(&map, 5, 1);
    assert_int_equal(chunk_map_take(&map, 11), 0);
    chunk_map_deinit(&map);
}

/* The lowest run of `length` in `is_free`, the slow way. */
static uint32_t slow_run(const uint8_t *is_free, uint32_t length)
{
    uint32_t run = 0;

    for (uint32_t i = 0; i < CHUNKS; i++) {
        run = is_free[i] ? run + 1 : 0;
        if (run == length) {
            return i + 1 - length;
        }
    }
    return CHUNK_NONE;
}

static void mark(uint8_t *is_free, uint32_t first, uint32_t length, uint8_t value)
{
    for (uint32_t i = first; i < first + length; i++) {
        assert_int_not_equal(is_free[i], value);
        is_free[i] = value;
    }
}

static void test_chunk_map__equals_a_plain_array(void **state)
{
    static uint8_t is_free[CHUNKS];
    static uint32_t firsts[4000], lengths[4000];
    uint32_t held = 0, refusals = 0;
    uint64_t seed = 0x9e3779b97f4a7c15;
    chunk_map map;

    (void)state;
    assert_true(chunk_map_init(&map, CHUNKS));
    chunk_map_give(&map, 0, CHUNKS);
    mark(is_free, 0, CHUNKS, 1);
    for (int i = 0; i < 20000; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        const uint32_t draw = (uint32_t)(seed >> 33);

        if (held > 0 && (draw % 5 < 2 || held == 4000)) {
            const uint32_t pick = draw / 8 % held;

            chunk_map_give(&map, firsts[pick], lengths[pick]);
            mark(is_free, firsts[pick], lengths[pick], 1);
            held--;
            firsts[pick] = firsts[held];
            lengths[pick] = lengths[held];
        } else {
            const uint32_t length = 1 + draw / 8 % (draw % 64 == 0 ? 300 : 6);
            const uint32_t first = chunk_map_take(&map, length);

            assert_int_equal(first, slow_run(is_free, length));
            if (first == CHUNK_NONE) {
                refusals++;
                continue;
            }
            mark(is_free, first, length, 0);
            firsts[held] = first;
            lengths[held++] = length;
        }
    }
    assert_true(refusals > 100);
    chunk_map_deinit(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunk_map__nothing_is_free_at_first),
        cmocka_unit_test(test_chunk_map__lowest_run_that_fits_is_taken),
        cmocka_unit_test(test_chunk_map__refusal_is_forgotten_when_a_chunk_comes_back),
        cmocka_unit_test(test_chunk_map__equals_a_plain_array),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
