/*
 * test_namespace.c - canonical JSON as Python writes it, and what a namespace refuses.
 *
 * Expected texts are the output of json.dumps(json.loads(document), sort_keys=True,
 * separators=(",", ":")).
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

static void test_canonical_json__is_what_python_writes(void **state)
{
    static const char *const pairs[][2] = {
        {" { } ", "{}"},
        {"[ ]", "[]"},
        {"{\"b\": 1, \"a\": [true, false, null, -0, -12, 9223372036854775807, "
         "-9223372036854775808]}",
         "{\"a\":[true,false,null,0,-12,9223372036854775807,-9223372036854775808],\"b\":1}"},
        {"{\"e\":\"a.b\\\"1e5\",\"1.5\":{\"2E2\":\"\\\\\"}}",
         "{\"1.5\":{\"2E2\":\"\\\\\"},\"e\":\"a.b\\\"1e5\"}"},
        /* Escapes: short ones, others with lower-case digits, DEL too, a slash not. */
        {"[\"\\b\\f\\n\\r\\t\\/\\u0001\\u001F\\u007f\x7f\"]",
         "[\"\\b\\f\\n\\r\\t/\\u0001\\u001f\\u007f\\u007f\"]"},
        {"[\"\xc3\xbc \\u00FC \xe2\x82\xac \xf0\x9f\x98\x80 \\uD83D\\uDE00 \\\\uABCD\"]",
         "[\"\\u00fc \\u00fc \\u20ac \\ud83d\\ude00 \\ud83d\\ude00 \\\\uABCD\"]"},
        /* Keys are in the order of code points, which is that of UTF-8 and not of UTF-16. */
        {"{\"\xf0\x9f\x98\x80\":1,\"\xef\xbf\xbd\":2,\"z\":3,\"\xc3\xbc\":4,\"Z\":5,\"za\":6,"
         "\"\":7,\"\x7f\":8}",
         "{\"\":7,\"Z\":5,\"z\":3,\"za\":6,\"\\u007f\":8,\"\\u00fc\":4,\"\\ufffd\":2,"
         "\"\\ud83d\\ude00\":1}"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char *text = NULL;
        char *again = NULL;

        assert_int_equal(canonical_json(pairs[i][0], &text, NULL), KVARVE_OK);
        assert_string_equal(text, pairs[i][1]);
        assert_int_equal(canonical_json(text, &again, NULL), KVARVE_OK);
        assert_string_equal(again, text);
        kvarve_release(again);
        kvarve_release(text);
    }
}

static const char *const refused[] = {
    "",
    "{",
    "{} {}",
    "1",
    "\"text\"",
    "{\"a\":1,\"a\":1}",
    "[{\"a\":{\"b\":1,\"b\":2}}]",
    "[NaN]",
    "[Infinity]",
    "[1.0]",
    "[0.5]",
    "[1e5]",
    "[1E5]",
    "[-1e-5]",
    "[9223372036854775808]",
    "[\"\\u0000\"]",
    "[\"\\ud800\"]",
    "[\"\xff\"]",
    "[\"\xc0\x80\"]",
    "[\"\xed\xa0\x80\"]",
    "{a:1}",
    "[1,]",
    "\xef\xbb\xbf{}",
};

static void assert_refused(const char *json)
{
    char *text = NULL;
    kvarve_error err = {0};

    if (canonical_json(json, &text, &err) != KVARVE_INVALID) {
        fail_msg("taken: %s", json);
    }
    assert_int_equal(err.status, KVARVE_INVALID);
    assert_null(text);
}

static void test_canonical_json__what_has_no_single_form_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_refused(refused[i]);
    }
}

static void test_canonical_json__deep_documents_are_answered(void **state)
{
    char deep[20001];
    char *text = NULL;

    (void)state;
    memset(deep, '[', 10000);
    memset(deep + 10000, ']', 10000);
    deep[20000] = '\0';
    assert_int_equal(canonical_json(deep, &text, NULL), KVARVE_INVALID);
    assert_int_equal(canonical_json(deep + 9000, &text, NULL), KVARVE_INVALID);
    deep[11000] = '\0';
    assert_int_equal(canonical_json(deep + 9000, &text, NULL), KVARVE_OK);
    assert_string_equal(text, deep + 9000);
    kvarve_release(text);
}

static void test_namespace__depends_on_values_and_not_on_spelling(void **state)
{
    namespace_key a;
    namespace_key b;

    (void)state;
    assert_int_equal(namespace_key_init(&a, "{\"x\":1,\"y\":\"\xc3\xbc\"}", "s", NULL), KVARVE_OK);
    assert_int_equal(namespace_key_init(&b, " { \"y\" : \"\\u00fc\", \"x\" : 1 } ", "s", NULL),
                     KVARVE_OK);
    assert_string_equal(a.text, b.text);
    assert_int_equal(strlen(a.text), NAMESPACE_TEXT_SIZE - 1);
    assert_int_equal(namespace_key_init(&b, "{\"x\":\"1\",\"y\":\"\xc3\xbc\"}", "s", NULL),
                     KVARVE_OK);
    assert_string_not_equal(a.text, b.text);
}

static void test_namespace__a_salt_separates_and_can_not_imitate_an_identity(void **state)
{
    namespace_key none;
    namespace_key salted;
    uint8_t digest[SHA256_SIZE];
    char expected[NAMESPACE_TEXT_SIZE] = "recurrent-sha256-v1:";
    static const char document[] =
        "{\"cache_salt\":\"\\\",\\\"identity\\\":{}\\u007f\",\"identity\":{},\"schema_version\":1}";

    (void)state;
    assert_int_equal(namespace_key_init(&none, "{}", "", NULL), KVARVE_OK);
    assert_int_equal(namespace_key_init(&salted, "{}", "\",\"identity\":{}\x7f", NULL), KVARVE_OK);
    assert_string_not_equal(none.text, salted.text);
    sha256(document, sizeof document - 1, digest);
    hex_encode(expected + strlen(expected), digest, sizeof digest);
    assert_string_equal(salted.text, expected);
}

static void test_namespace__bad_input_is_refused_and_nothing_written(void **state)
{
    static char long_salt[NAMESPACE_SALT_MAX + 2];
    static char long_identity[NAMESPACE_IDENTITY_MAX + 2];
    namespace_key out = {"untouched"};

    (void)state;
    memset(long_salt, 's', NAMESPACE_SALT_MAX + 1);
    memset(long_identity, ' ', NAMESPACE_IDENTITY_MAX + 1);
    memcpy(long_identity, "{}", 2);
    assert_int_equal(namespace_key_init(&out, NULL, "", NULL), KVARVE_INVALID);
    assert_int_equal(namespace_key_init(&out, "{}", NULL, NULL), KVARVE_INVALID);
    assert_int_equal(namespace_key_init(NULL, "{}", "", NULL), KVARVE_INVALID);
    assert_int_equal(namespace_key_init(&out, "[]", "", NULL), KVARVE_INVALID);
    assert_int_equal(namespace_key_init(&out, "{\"a\":0.5}", "", NULL), KVARVE_INVALID);
    assert_int_equal(namespace_key_init(&out, "{}", "\xff", NULL), KVARVE_INVALID);
    assert_int_equal(namespace_key_init(&out, "{}", long_salt, NULL), KVARVE_INVALID);
    assert_int_equal(namespace_key_init(&out, long_identity, "", NULL), KVARVE_INVALID);
    assert_string_equal(out.text, "untouched");
    long_salt[NAMESPACE_SALT_MAX] = '\0';
    long_identity[NAMESPACE_IDENTITY_MAX] = '\0';
    assert_int_equal(namespace_key_init(&out, long_identity, long_salt, NULL), KVARVE_OK);
}

static int fail_kth(void *context, uint64_t number)
{
    return number != *(const uint64_t *)context;
}

static void test_namespace__any_failed_allocation_is_answered(void **state)
{
    const uint64_t blocks = kvarve_allocated_blocks();
    kvarve_status status = KVARVE_NO_MEMORY;
    uint64_t failing = 0;

    (void)state;
    for (; status != KVARVE_OK; failing++) {
        namespace_key out = {"untouched"};

        kvarve_allocate_set_hook(fail_kth, &failing);
        status = namespace_key_init(&out, "{\"a\":\"\x7f\"}", "\x7f", NULL);
        kvarve_allocate_set_hook(NULL, NULL);
        assert_true(status == KVARVE_OK || status == KVARVE_NO_MEMORY);
        assert_true(status == KVARVE_OK || strcmp(out.text, "untouched") == 0);
        assert_int_equal(kvarve_allocated_blocks(), blocks);
    }
    assert_int_equal(failing,
                     5); /* text and its copy with escapes, of the identity and of the salt */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_canonical_json__is_what_python_writes),
        cmocka_unit_test(test_canonical_json__what_has_no_single_form_is_refused),
        cmocka_unit_test(test_canonical_json__deep_documents_are_answered),
        cmocka_unit_test(test_namespace__depends_on_values_and_not_on_spelling),
        cmocka_unit_test(test_namespace__a_salt_separates_and_can_not_imitate_an_identity),
        cmocka_unit_test(test_namespace__bad_input_is_refused_and_nothing_written),
        cmocka_unit_test(test_namespace__any_failed_allocation_is_answered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
