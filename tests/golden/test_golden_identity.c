/*
 * test_golden_identity.c - the reference's identity formats, value by value.
 *
 * golden-vectors.json is the output of `reference_format.py vectors`. Object names, group
 * namespaces and CRC-32C in it belong to the import of reference stores.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/alloc.h"
#include "hash/hash.h"
#include "key/key.h"

#define VECTORS "tests/golden/golden-vectors.json"
#define TOKENS  9000u

static json_t *vectors;
static kvarve_prefix *prefix;
static namespace_key name;

static const char *string_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    assert_non_null(text);
    return text;
}

static void init_namespace(namespace_key *out, const char *salt)
{
    char identity[4096];
    const size_t size = json_dumpb(json_object_get(vectors, "identity"), identity,
                                   sizeof identity - 1, JSON_INDENT(3));

    assert_true(size > 0 && size < sizeof identity);
    identity[size] = '\0';
    assert_int_equal(namespace_key_init(out, identity, salt, NULL), KVARVE_OK);
}

static int load(void **state)
{
    uint32_t tokens[TOKENS];

    (void)state;
    for (uint32_t i = 0; i < TOKENS; i++) {
        tokens[i] = i + 1;
    }
    vectors = json_load_file(VECTORS, JSON_REJECT_DUPLICATES, NULL);
    if (vectors == NULL || kvarve_prefix_create(&prefix, NULL) != KVARVE_OK ||
        kvarve_prefix_append(prefix, tokens, TOKENS, NULL) != KVARVE_OK) {
        return 1;
    }
    init_namespace(&name, "");
    return 0;
}

static int unload(void **state)
{
    (void)state;
    kvarve_prefix_free(prefix);
    json_decref(vectors);
    return 0;
}

static void assert_hex(const void *bytes, size_t size, const char *expected)
{
    char text[2 * 64 + 1];

    assert_true(size <= 64);
    hex_encode(text, bytes, size);
    assert_string_equal(text, expected);
}

static void test_golden__namespaces(void **state)
{
    const json_t *salted = json_object_get(vectors, "namespace_with_salt");
    namespace_key with_salt;

    (void)state;
    assert_string_equal(name.text, string_at(vectors, "namespace"));
    init_namespace(&with_salt, string_at(salted, "cache_salt"));
    assert_string_equal(with_salt.text, string_at(salted, "namespace"));
}

static void test_golden__chain_start(void **state)
{
    uint8_t digest[KVARVE_DIGEST_SIZE];

    (void)state;
    assert_int_equal(json_integer_value(json_object_get(vectors, "chunk_tokens")),
                     KEY_CHUNK_TOKENS);
    prefix_chunk_digest(prefix, 0, digest);
    assert_hex(digest, sizeof digest, string_at(vectors, "chain_start"));
}

static void test_golden__token_digests(void **state)
{
    json_t *digests = json_object_get(vectors, "token_digest");
    const char *key;
    json_t *value;

    (void)state;
    assert_int_equal(json_object_size(digests), 10);
    json_object_foreach(digests, key, value)
    {
        uint8_t digest[KVARVE_DIGEST_SIZE];

        assert_int_equal(kvarve_prefix_digest(prefix, strtoull(key, NULL, 10), digest, NULL),
                         KVARVE_OK);
        assert_hex(digest, sizeof digest, json_string_value(value));
    }
}

/* The discriminator that has this text; the classes that the reference knows. */
static page_discriminator discriminator_of(const char *text)
{
    page_discriminator what = {0};
    const char *colon = strchr(text, ':');
    char *rest = NULL;
    unsigned long long number;

    assert_non_null(colon);
    number = strtoull(colon + 1, &rest, 10);
    if (strncmp(text, "auxiliary:", 10) == 0) {
        what.class = PAGE_AUXILIARY;
        what.draft_tokens = number;
        what.kind = strcmp(rest, ":prompt") == 0 ? KIND_PROMPT : KIND_RESPONSE;
        return what;
    }
    assert_string_equal(rest, "");
    what.class = strncmp(text, "recurrent:", 10) == 0 ? PAGE_ENDPOINT : PAGE_PREFIX;
    what.group = (uint32_t)number;
    return what;
}

static page_key key_at(uint64_t tokens, const char *discriminator)
{
    const page_discriminator what = discriminator_of(discriminator);
    uint8_t digest[KVARVE_DIGEST_SIZE];

    assert_int_equal(kvarve_prefix_digest(prefix, tokens, digest, NULL), KVARVE_OK);
    return page_key_of(&name, digest, tokens, &what);
}

static void test_golden__page_keys(void **state)
{
    const json_t *rows = json_object_get(vectors, "page_key");

    (void)state;
    assert_int_equal(json_array_size(rows), 6);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const uint64_t tokens = (uint64_t)json_integer_value(json_object_get(row, "tokens"));
        const page_key key = key_at(tokens, string_at(row, "discriminator"));
        page_key of_span;

        assert_hex(key.bytes, sizeof key.bytes, string_at(row, "key"));
        if (strcmp(string_at(row, "discriminator"), "attention:0") == 0) {
            page_keys_of_span(&name, prefix, tokens, 4096, 1, 0, &of_span);
            assert_memory_equal(of_span.bytes, key.bytes, sizeof key.bytes);
        }
    }
}

/* The manifest that the generator made, with our keys in it. */
static char *make_payload(void)
{
    static const char form[] =
        "{\"schema_version\":2,\"worker_layout\":{\"page_bytes\":6893568,\"schema_version\":1},\"page_groups\":["
        "{\"name\":\"engine-kv-group:0\",\"page_bytes\":6893568,\"positions\":[0,1,2],\"content_keys\":"
        "[\"%s\",\"%s\",\"%s\"]},"
        "{\"name\":\"engine-kv-group:1\",\"page_bytes\":6893568,\"positions\":[2],\"content_keys\":[\"%s\"]},"
        "{\"name\":\"target-draft-auxiliary\",\"page_bytes\":6893568,\"positions\":[0],\"content_keys\":[\"%s\"]}],"
        "\"draft_prefix_len\":8999,\"kind\":\"prompt\"}";
    static const struct {
        uint64_t tokens;
        const char *discriminator;
    } pages[5] = {{4096, "attention:0"},
                  {8192, "attention:0"},
                  {9000, "attention:0"},
                  {9000, "recurrent:1"},
                  {9000, "auxiliary:8999:prompt"}};
    char hex[5][2 * SHA256_SIZE + 1];
    char document[2048];
    char *payload = NULL;
    int size;

    for (size_t i = 0; i < 5; i++) {
        const page_key key = key_at(pages[i].tokens, pages[i].discriminator);

        hex_encode(hex[i], key.bytes, sizeof key.bytes);
    }
    size = snprintf(document, sizeof document, form, hex[0], hex[1], hex[2], hex[3], hex[4]);
    assert_true(size > 0 && (size_t)size < sizeof document);
    assert_int_equal(canonical_json(document, &payload, NULL), KVARVE_OK);
    return payload;
}

static void test_golden__manifest_and_its_id(void **state)
{
    char *payload = make_payload();
    char generation[GENERATION_TEXT_SIZE];
    uint8_t digest[SHA256_SIZE];

    (void)state;
    assert_int_equal(strlen(payload),
                     json_integer_value(json_object_get(vectors, "manifest_payload_bytes")));
    sha256(payload, strlen(payload), digest);
    assert_hex(digest, sizeof digest, string_at(vectors, "manifest_payload_sha256"));
    assert_int_equal(
        generation_of(&name, prefix, TOKENS, payload, strlen(payload), generation, NULL),
        KVARVE_OK);
    assert_string_equal(generation, string_at(vectors, "generation"));
    kvarve_release(payload);
}

static void test_golden__tail_hash(void **state)
{
    const json_t *hashes = json_object_get(vectors, "tail_hash");
    const uint64_t value = tail_hash_step(tail_hash_step(0, 5), 7);

    (void)state;
    assert_int_equal(value, json_integer_value(json_object_get(hashes, "5,7")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden__namespaces),
        cmocka_unit_test(test_golden__chain_start),
        cmocka_unit_test(test_golden__token_digests),
        cmocka_unit_test(test_golden__page_keys),
        cmocka_unit_test(test_golden__manifest_and_its_id),
        cmocka_unit_test(test_golden__tail_hash),
    };

    return cmocka_run_group_tests(tests, load, unload);
}
