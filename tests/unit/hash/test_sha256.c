/*
 * test_sha256.c - SHA-256 against published vectors, its two forms against each other, and hex
 * text.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>
#include <string.h>

#include "hash/hash.h"

static void assert_digest(const uint8_t digest[SHA256_SIZE], const char *hex)
{
    char text[2 * SHA256_SIZE + 1];

    hex_encode(text, digest, SHA256_SIZE);
    assert_string_equal(text, hex);
}

static void test_sha256__published_vectors_match(void **state)
{
    uint8_t digest[SHA256_SIZE];

    (void)state;
    sha256("", 0, digest);
    assert_digest(digest, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    sha256("abc", 3, digest);
    assert_digest(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, digest);
    assert_digest(digest, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

static void test_sha256__a_copied_state_goes_on_alone(void **state)
{
    sha256_state first;
    sha256_state second;
    uint8_t digest[SHA256_SIZE];

    (void)state;
    sha256_init(&first);
    sha256_update(&first, "ab", 2);
    second = first;
    sha256_update(&first, "x", 1);
    sha256_final(&first, digest);
    sha256_update(&second, "c", 1);
    sha256_final(&second, digest);
    assert_digest(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void test_sha256__a_chain_with_padding_gives_the_digest_of_every_length(void **state)
{
    uint8_t message[300 + SHA256_PADDING_MAX];

    (void)state;
    for (size_t size = 0; size <= 300; size++) {
        uint8_t expected[SHA256_SIZE];
        uint8_t digest[SHA256_SIZE];
        sha256_chain chain;
        size_t total;

        for (size_t i = 0; i < size; i++) {
            message[i] = (uint8_t)(i * 7 + size);
        }
        sha256(message, size, expected);
        total = size + sha256_pad(message + size, size);
        assert_int_equal(total % SHA256_BLOCK, 0);
        assert_true(total <= size + SHA256_PADDING_MAX);
        sha256_chain_init(&chain);
        sha256_chain_blocks(&chain, message, 0);
        sha256_chain_blocks(&chain, message, 1);
        sha256_chain_blocks(&chain, message + SHA256_BLOCK, total / SHA256_BLOCK - 1);
        sha256_chain_digest(&chain, digest);
        assert_memory_equal(digest, expected, sizeof digest);
    }
}

static void test_hex__text_comes_back(void **state)
{
    uint8_t bytes[256];
    uint8_t back[256];
    char text[513];

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)i;
    }
    hex_encode(text, bytes, sizeof bytes);
    assert_int_equal(strlen(text), 512);
    assert_true(hex_decode(back, sizeof back, text));
    assert_memory_equal(back, bytes, sizeof bytes);
}

static void test_hex__anything_else_is_refused(void **state)
{
    static const char *const bad[] = {"",     "0",    "000",  "00g0", "000g", "00A0",   "000A",
                                      "0:00", "/000", "`000", " 000", "00 0", "00\3770"};
    uint8_t out[2];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(hex_decode(out, sizeof out, bad[i]));
    }
    assert_true(hex_decode(out, sizeof out, "00ff and more"));
    assert_int_equal(out[1], 0xff);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256__published_vectors_match),
        cmocka_unit_test(test_sha256__a_copied_state_goes_on_alone),
        cmocka_unit_test(test_sha256__a_chain_with_padding_gives_the_digest_of_every_length),
        cmocka_unit_test(test_hex__text_comes_back),
        cmocka_unit_test(test_hex__anything_else_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
