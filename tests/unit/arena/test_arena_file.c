/* test_arena_file.c - the head of an arena: each block has one meaning, every flipped bit is seen.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "format/arena_file.h"
#include "hash/hash.h"

static arena_head example(void)
{
    arena_head head = {.epoch = 7, .bytes = UINT64_C(1) << 30};

    for (size_t i = 0; i < sizeof head.store.bytes; i++) {
        head.store.bytes[i] = (uint8_t)(0xa0 + i);
    }
    return head;
}

static void seal(uint8_t *block)
{
    const page_digest digest = page_digest_of(block, ARENA_HEAD_SIZE - sizeof digest);

    memcpy(block + ARENA_HEAD_SIZE - sizeof digest, digest.bytes, sizeof digest.bytes);
}

static void test_arena_file__decode_gives_back_what_was_encoded(void **state)
{
    static uint8_t block[ARENA_HEAD_SIZE];
    const arena_head head = example();
    arena_head again;

    (void)state;
    arena_head_encode(&head, block);
    assert_int_equal(arena_head_decode(block, &again, NULL), KVARVE_OK);
    assert_memory_equal(again.store.bytes, head.store.bytes, sizeof head.store.bytes);
    assert_int_equal(again.epoch, 7);
    assert_int_equal(again.bytes, head.bytes);
}

static void test_arena_file__places_are_those_of_the_byte_table(void **state)
{
    static const uint8_t start[16] = {'k', 'v', 'a', 'r', 'e', 'n', 'a', '\n', 1, 0, 0, 0, 0, 0, 4};
    static const uint8_t numbers[16] = {7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40};
    static uint8_t block[ARENA_HEAD_SIZE];
    const arena_head head = example();

    (void)state;
    arena_head_encode(&head, block);
    assert_memory_equal(block, start, sizeof start);
    assert_memory_equal(block + 32, head.store.bytes, 16);
    assert_memory_equal(block + 48, numbers, sizeof numbers);
}

static void test_arena_file__every_flipped_bit_is_seen(void **state)
{
    static uint8_t block[ARENA_HEAD_SIZE];
    const arena_head head = example();
    arena_head again;

    (void)state;
    arena_head_encode(&head, block);
    for (uint32_t bit = 0; bit < ARENA_HEAD_SIZE * 8; bit++) {
        block[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(arena_head_decode(block, &again, NULL), KVARVE_OK);
        block[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

static void test_arena_file__newer_version_is_named(void **state)
{
    static uint8_t block[ARENA_HEAD_SIZE];
    const arena_head head = example();
    arena_head again;
    kvarve_error err;

    (void)state;
    arena_head_encode(&head, block);
    block[8] = 9; /* the digest is wrong too: the version goes first */
    assert_int_equal(arena_head_decode(block, &again, &err), KVARVE_UNSUPPORTED);
    assert_non_null(strstr(err.text, "version 9"));
    assert_non_null(strstr(err.text, "knows 1"));
}

static void test_arena_file__other_layout_is_unsupported(void **state)
{
    static uint8_t block[ARENA_HEAD_SIZE];
    const arena_head head = example();
    arena_head again;

    (void)state;
    arena_head_encode(&head, block);
    block[16] ^= 1;
    seal(block);
    assert_int_equal(arena_head_decode(block, &again, NULL), KVARVE_UNSUPPORTED);
}

/* Blocks with a good digest that encode would not have written. */
static void test_arena_file__fields_out_of_range_are_refused(void **state)
{
    static const struct {
        uint16_t at;
        uint8_t value;
    } edits[] = {
        {8, 0},    /* version 0 */
        {14, 5},   /* chunk bytes */
        {48, 0},   /* epoch 0 */
        {56, 1},   /* bytes no multiple of a chunk */
        {59, 0},   /* bytes 0 */
        {63, 1},   /* bytes above the most */
        {64, 1},   /* a zero that is none */
        {4079, 1}, /* the last one */
    };
    static uint8_t block[ARENA_HEAD_SIZE];
    const arena_head head = example();
    arena_head again = {.epoch = 99};

    (void)state;
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        arena_head_encode(&head, block);
        block[edits[i].at] = edits[i].value;
        seal(block);
        assert_int_equal(arena_head_decode(block, &again, NULL), KVARVE_CORRUPT);
    }
    assert_int_equal(again.epoch, 99); /* untouched */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena_file__decode_gives_back_what_was_encoded),
        cmocka_unit_test(test_arena_file__places_are_those_of_the_byte_table),
        cmocka_unit_test(test_arena_file__every_flipped_bit_is_seen),
        cmocka_unit_test(test_arena_file__newer_version_is_named),
        cmocka_unit_test(test_arena_file__other_layout_is_unsupported),
        cmocka_unit_test(test_arena_file__fields_out_of_range_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
