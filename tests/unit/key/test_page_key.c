/*
 * test_page_key.c - discriminators, page keys and checkpoint ids.
 *
 * Oracle: the message written out with snprintf and hashed whole. The reference's own values are in
 * tests/golden.
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

#define TOKENS 120000u

static namespace_key name;
static kvarve_prefix *prefix;

static int make_prefix(void **state)
{
    uint32_t *tokens = kvarve_allocate_array(TOKENS, sizeof *tokens);
    int failures;

    (void)state;
    if (tokens == NULL) {
        return 1;
    }
    for (uint32_t i = 0; i < TOKENS; i++) {
        tokens[i] = i * 7919u % 151936u;
    }
    failures = namespace_key_init(&name, "{\"model\":\"m\"}", "", NULL) != KVARVE_OK ||
               kvarve_prefix_create(&prefix, NULL) != KVARVE_OK ||
               kvarve_prefix_append(prefix, tokens, TOKENS, NULL) != KVARVE_OK;
    kvarve_release(tokens);
    return failures;
}

static int free_prefix(void **state)
{
    (void)state;
    kvarve_prefix_free(prefix);
    return 0;
}

static page_key naive_key(const uint8_t digest[KVARVE_DIGEST_SIZE], uint64_t tokens,
                          const char *discriminator)
{
    static const char domain[] = "lmcache-recurrent-page-v1";
    char json[512];
    const int size = snprintf(json, sizeof json, "[\"%s\",%llu,\"%s\"]", name.text,
                              (unsigned long long)tokens, discriminator);
    sha256_state state;
    page_key key;

    sha256_init(&state);
    sha256_update(&state, domain, sizeof domain);
    sha256_update(&state, digest, KVARVE_DIGEST_SIZE);
    sha256_update(&state, "", 1);
    sha256_update(&state, json, (size_t)size);
    sha256_final(&state, key.bytes);
    return key;
}

static void assert_discriminator(const page_discriminator *what, uint64_t tokens,
                                 const char *expected)
{
    const uint8_t digest[KVARVE_DIGEST_SIZE] = {1, 2, 3};
    char text[DISCRIMINATOR_TEXT_SIZE];
    page_key key;
    page_key naive;

    page_discriminator_text(what, tokens, text);
    assert_string_equal(text, expected);
    key = page_key_of(&name, digest, tokens, what);
    naive = naive_key(digest, tokens, expected);
    assert_memory_equal(key.bytes, naive.bytes, sizeof key.bytes);
}

static void test_discriminator__each_class_has_its_text(void **state)
{
    (void)state;
    assert_discriminator(&(page_discriminator){.class = PAGE_PREFIX}, 1, "attention:0");
    assert_discriminator(&(page_discriminator){.class = PAGE_WINDOW, .group = UINT32_MAX},
                         UINT64_MAX, "attention:4294967295");
    assert_discriminator(&(page_discriminator){.class = PAGE_ENDPOINT, .group = 12}, 10,
                         "recurrent:12");
    assert_discriminator(
        &(page_discriminator){.class = PAGE_AUXILIARY, .draft_tokens = 8999, .kind = KIND_PROMPT},
        9000, "auxiliary:8999:prompt");
    assert_discriminator(&(page_discriminator){.class = PAGE_AUXILIARY, .kind = KIND_RESPONSE}, 9,
                         "auxiliary:0:response");
    assert_discriminator(&(page_discriminator){.class = PAGE_AUXILIARY, .kind = KIND_INSTRUCTION},
                         9, "auxiliary:0:instruction");
}

static void
test_discriminator__draft_rows_name_their_validity_only_where_they_are_fewer(void **state)
{
    page_discriminator what = {
        .class = PAGE_PREFIX, .group = 3, .draft_tokens = 99, .has_draft_rows = true};

    (void)state;
    assert_discriminator(&what, 100, "attention:3:draft:99");
    what.draft_tokens = 100;
    assert_discriminator(&what, 100, "attention:3");
    what.draft_tokens = 101;
    assert_discriminator(&what, 100, "attention:3");
    what = (page_discriminator){.class = PAGE_WINDOW, .group = 3, .draft_tokens = 99};
    assert_discriminator(&what, 100, "attention:3");
}

static void test_discriminator__parts_and_exact_digests_come_last(void **state)
{
    const page_digest exact = {
        {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0, 0, 0, 0, 0, 0, 0, 0xff}};
    page_discriminator what = {.class = PAGE_ENDPOINT, .group = 1};

    (void)state;
    what.part = 1;
    assert_discriminator(&what, 5, "recurrent:1:part:1");
    what.exact = &exact;
    assert_discriminator(&what, 5, "recurrent:1:part:1:x:0123456789abcdef00000000000000ff");
    what = (page_discriminator){.class = PAGE_AUXILIARY,
                                .draft_tokens = UINT64_MAX,
                                .kind = KIND_INSTRUCTION,
                                .part = UINT32_MAX,
                                .exact = &exact};
    assert_discriminator(&what, UINT64_MAX,
                         "auxiliary:18446744073709551615:instruction:part:4294967295:x:"
                         "0123456789abcdef00000000000000ff");
    what = (page_discriminator){
        .class = PAGE_PREFIX, .draft_tokens = 4, .has_draft_rows = true, .exact = &exact};
    assert_discriminator(&what, 5, "attention:0:draft:4:x:0123456789abcdef00000000000000ff");
}

static void test_page_key__keys_of_a_span_are_those_asked_one_by_one(void **state)
{
    static const uint64_t spans[] = {1, 16, 100, 256, 300, 4096, 5000, 99990};
    page_key keys[1200];
    page_key below[8];

    (void)state;
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++) {
        const uint64_t possible = (TOKENS - 5) / spans[i] + 1;
        const size_t count = (size_t)(possible < 1200 ? possible : 1200);
        const page_discriminator what = {.class = PAGE_WINDOW, .group = 7};

        page_keys_of_span(&name, prefix, 5, spans[i], count, 7, keys);
        for (size_t k = 0; k < count; k++) {
            const uint64_t tokens = 5 + k * spans[i];
            uint8_t digest[KVARVE_DIGEST_SIZE];
            page_key key;

            assert_int_equal(kvarve_prefix_digest(prefix, tokens, digest, NULL), KVARVE_OK);
            key = page_key_of(&name, digest, tokens, &what);
            assert_memory_equal(key.bytes, keys[k].bytes, sizeof key.bytes);
        }
    }
    page_keys_of_span(&name, prefix, 256, 0, 1, 7, below);
    page_keys_of_span(&name, prefix, 0, 0, 0, 7, below);
}

static void assert_ids_differ(page_key a, page_key b)
{
    assert_memory_not_equal(a.bytes, b.bytes, sizeof a.bytes);
}

static void test_checkpoint_id__is_the_documented_message(void **state)
{
    static const char domain[] = "kvarve-checkpoint-v1";
    const uint8_t digest[KVARVE_DIGEST_SIZE] = {9};
    const page_key keys[2] = {{{1}}, {{2}}};
    const page_key id = checkpoint_id_of(&name, digest, 1234, KIND_PROMPT, 1233, keys, 2);
    char json[256];
    const int size = snprintf(json, sizeof json, "[\"%s\",1234,\"prompt\",1233,2]", name.text);
    sha256_state hash;
    page_key expected;

    (void)state;
    sha256_init(&hash);
    sha256_update(&hash, domain, sizeof domain);
    sha256_update(&hash, digest, sizeof digest);
    sha256_update(&hash, "", 1);
    sha256_update(&hash, json, (size_t)size);
    sha256_update(&hash, keys, sizeof keys);
    sha256_final(&hash, expected.bytes);
    assert_memory_equal(id.bytes, expected.bytes, sizeof id.bytes);
}

static void test_checkpoint_id__everything_that_names_it_changes_it(void **state)
{
    const uint8_t digest[KVARVE_DIGEST_SIZE] = {9};
    const uint8_t other_digest[KVARVE_DIGEST_SIZE] = {8};
    const page_key keys[2] = {{{1}}, {{2}}};
    const page_key swapped[2] = {{{2}}, {{1}}};
    const page_key prompt = checkpoint_id_of(&name, digest, 100, KIND_PROMPT, 99, NULL, 0);
    const page_key exact = checkpoint_id_of(&name, digest, 100, KIND_PROMPT, 99, keys, 2);
    namespace_key other_name;

    (void)state;
    assert_int_equal(namespace_key_init(&other_name, "{\"model\":\"n\"}", "", NULL), KVARVE_OK);
    assert_ids_differ(prompt, checkpoint_id_of(&name, digest, 100, KIND_RESPONSE, 99, NULL, 0));
    assert_ids_differ(prompt, checkpoint_id_of(&name, digest, 100, KIND_INSTRUCTION, 99, NULL, 0));
    assert_ids_differ(prompt, checkpoint_id_of(&name, digest, 100, KIND_PROMPT, 100, NULL, 0));
    assert_ids_differ(prompt, checkpoint_id_of(&name, digest, 101, KIND_PROMPT, 99, NULL, 0));
    assert_ids_differ(prompt, checkpoint_id_of(&name, other_digest, 100, KIND_PROMPT, 99, NULL, 0));
    assert_ids_differ(prompt, checkpoint_id_of(&other_name, digest, 100, KIND_PROMPT, 99, NULL, 0));
    assert_ids_differ(prompt, exact);
    assert_ids_differ(exact, checkpoint_id_of(&name, digest, 100, KIND_PROMPT, 99, swapped, 2));
    assert_ids_differ(exact, checkpoint_id_of(&name, digest, 100, KIND_PROMPT, 99, keys, 1));
}

static void test_generation__lengths_outside_of_the_prefix_are_refused(void **state)
{
    char out[GENERATION_TEXT_SIZE] = "untouched";

    (void)state;
    assert_int_equal(generation_of(&name, prefix, 0, "{}", 2, out, NULL), KVARVE_INVALID);
    assert_int_equal(generation_of(&name, prefix, TOKENS + 1, "{}", 2, out, NULL), KVARVE_INVALID);
    assert_string_equal(out, "untouched");
    assert_int_equal(generation_of(&name, prefix, 4096, "{}", 2, out, NULL), KVARVE_OK);
    assert_int_equal(strlen(out), GENERATION_TEXT_SIZE - 1);
}

static void test_tail_hash__wraps_at_its_modulus(void **state)
{
    const uint64_t modulus = (UINT64_C(1) << 61) - 1;

    (void)state;
    assert_int_equal(tail_hash_step(0, 0), 1);
    /* (modulus - 1) * 1000003 is -1000003 modulo the modulus. */
    assert_true(tail_hash_step(modulus - 1, 5) == modulus - 1000003 + 6);
    assert_true(tail_hash_step(modulus - 1, 1000002) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_discriminator__each_class_has_its_text),
        cmocka_unit_test(
            test_discriminator__draft_rows_name_their_validity_only_where_they_are_fewer),
        cmocka_unit_test(test_discriminator__parts_and_exact_digests_come_last),
        cmocka_unit_test(test_page_key__keys_of_a_span_are_those_asked_one_by_one),
        cmocka_unit_test(test_checkpoint_id__is_the_documented_message),
        cmocka_unit_test(test_checkpoint_id__everything_that_names_it_changes_it),
        cmocka_unit_test(test_generation__lengths_outside_of_the_prefix_are_refused),
        cmocka_unit_test(test_tail_hash__wraps_at_its_modulus),
    };

    return cmocka_run_group_tests(tests, make_prefix, free_prefix);
}
