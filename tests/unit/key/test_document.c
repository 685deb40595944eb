/*
 * test_document.c - what an identity document is made of, its file, and how two differ.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>
#include <string.h>

#include "base/alloc.h"
#include "hash/hash.h"
#include "key/document.h"

#define LAYOUT "{\"version\":1,\"ranks\":2}"

static document_parts parts_of(const char *identity)
{
    return (document_parts){.identity_json = identity, .layout_json = LAYOUT};
}

static document built(const document_parts *parts)
{
    document made = {0};
    kvarve_error err = {0};

    if (document_build(parts, &made, &err) != KVARVE_OK) {
        fail_msg("%s", err.text);
    }
    return made;
}

/* Build, expect INVALID, and expect `text` in the message. */
static void assert_refused(const document_parts *parts, const char *text)
{
    document made = {0};
    kvarve_error err = {0};

    assert_int_equal(document_build(parts, &made, &err), KVARVE_INVALID);
    if (strstr(err.text, text) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", err.text, text);
    }
    assert_null(made.text);
}

static void test_document__is_canonical_with_all_parts(void **state)
{
    const document_parts parts = {.identity_json = "{ \"z\": 1, \"a\": [\"\xc3\xbc\"] }",
                                  .numerics_json = "{\"cpu\": \"avx2\"}",
                                  .draft_json = "{\"model\": \"d\"}",
                                  .layout_json = LAYOUT,
                                  .salt = "tenant"};
    document made = built(&parts);

    (void)state;
    assert_string_equal(made.text, "{\"a\":[\"\\u00fc\"],\"draft\":{\"model\":\"d\"},"
                                   "\"kvarve\":{\"ranks\":2,\"version\":1},"
                                   "\"numerics\":{\"cpu\":\"avx2\"},\"z\":1}");
    kvarve_release(made.text);
}

static void test_document__empty_parts_are_there(void **state)
{
    const document_parts parts = parts_of("{}");
    document made = built(&parts);

    (void)state;
    assert_string_equal(made.text, "{\"kvarve\":{\"ranks\":2,\"version\":1},\"numerics\":{}}");
    kvarve_release(made.text);
}

static void test_document__name_is_the_namespace_of_text_and_salt(void **state)
{
    document_parts parts = parts_of("{\"a\":1}");
    namespace_key name;
    char hex[2 * SHA256_SIZE + 1];
    document made;

    (void)state;
    parts.salt = "tenant";
    made = built(&parts);
    assert_int_equal(namespace_key_init(&name, made.text, "tenant", NULL), KVARVE_OK);
    assert_string_equal(made.name.text, name.text);
    hex_encode(hex, made.digest, sizeof made.digest);
    assert_string_equal(made.name.text + strlen("recurrent-sha256-v1:"), hex);
    kvarve_release(made.text);
}

/* The digests are part of the format: they are computed here from what document.h says. */
static void test_document__digests_are_those_of_the_format(void **state)
{
    static const char salted[] = "kvarve-salt-v1\0tenant";
    static const char meant[] =
        "kvarve-meaning-v1\0{\"a\":1,\"kvarve\":{\"ranks\":2,\"version\":1}}";
    document_parts parts = parts_of("{\"a\":1}");
    uint8_t message[sizeof meant + SHA256_SIZE];
    uint8_t digest[SHA256_SIZE];
    document made;

    (void)state;
    parts.salt = "tenant";
    parts.numerics_json = "{\"build\":7}";
    made = built(&parts);
    sha256(salted, sizeof salted - 1, digest);
    assert_memory_equal(made.salt_digest, digest, SHA256_SIZE);
    memcpy(message, meant, sizeof meant); /* with its NUL */
    memcpy(message + sizeof meant, digest, SHA256_SIZE);
    sha256(message, sizeof message, digest);
    assert_memory_equal(made.meaning, digest, SHA256_SIZE);
    kvarve_release(made.text);
}

static void test_document__numerics_change_the_name_and_not_the_meaning(void **state)
{
    document_parts parts = parts_of("{\"a\":1}");
    document plain = built(&parts);
    document other;

    (void)state;
    parts.numerics_json = "{\"build\":\"x\x7f\"}";
    other = built(&parts);
    assert_string_not_equal(plain.name.text, other.name.text);
    assert_memory_equal(plain.meaning, other.meaning, SHA256_SIZE);
    kvarve_release(other.text);
    kvarve_release(plain.text);
}

static void test_document__everything_else_changes_the_meaning(void **state)
{
    document_parts others[4];
    const document_parts parts = parts_of("{\"a\":1}");
    document plain = built(&parts);

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        others[i] = parts;
    }
    others[0].salt = "s";
    others[1].draft_json = "{}";
    others[2].layout_json = "{}";
    others[3].identity_json = "{\"a\":2}";
    for (size_t i = 0; i < 4; i++) {
        document other = built(&others[i]);

        assert_string_not_equal(plain.name.text, other.name.text);
        assert_memory_not_equal(plain.meaning, other.meaning, SHA256_SIZE);
        kvarve_release(other.text);
    }
    kvarve_release(plain.text);
}

static void test_document__taken_members_are_refused(void **state)
{
    static const char *const bad[] = {"{\"kvarve\":1}", "{\"numerics\":{}}", "{\"draft\":null}",
                                      "{\"\\u006bvarve\":1}"};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const document_parts parts = parts_of(bad[i]);

        assert_refused(&parts, "is taken");
    }
}

static void test_document__bad_parts_are_named(void **state)
{
    static const char *const bad[] = {"", "[]", "1", "{\"a\":1.5}", "{\"a\":1,\"a\":2}", "{"};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        document_parts parts = parts_of(bad[i]);

        assert_refused(&parts, "identity_json");
        parts = parts_of("{}");
        parts.numerics_json = bad[i];
        assert_refused(&parts, "numerics_json");
        parts = parts_of("{}");
        parts.draft_json = bad[i];
        assert_refused(&parts, "draft_identity_json");
    }
}

static void test_document__sizes_are_bounded(void **state)
{
    document_parts parts = parts_of("{}");
    char *long_text = kvarve_allocate(NAMESPACE_IDENTITY_MAX + 2);

    (void)state;
    assert_non_null(long_text);
    memset(long_text, ' ', NAMESPACE_IDENTITY_MAX + 1);
    memcpy(long_text, "{}", 2);
    parts.identity_json = long_text;
    assert_refused(&parts, "identity_json is over 65536 bytes");
    /* At the limit as it is given, over it with the other parts. */
    memset(long_text, 'x', NAMESPACE_IDENTITY_MAX);
    memcpy(long_text, "{\"a\":\"", 6);
    memcpy(long_text + NAMESPACE_IDENTITY_MAX - 2, "\"}", 3);
    assert_int_equal(strlen(long_text), NAMESPACE_IDENTITY_MAX);
    assert_refused(&parts, "over 65536 bytes");
    memset(long_text, 'x', NAMESPACE_SALT_MAX + 1);
    long_text[NAMESPACE_SALT_MAX + 1] = '\0';
    parts = parts_of("{}");
    parts.salt = long_text;
    assert_refused(&parts, "salt");
    kvarve_release(long_text);
}

/* --- file --- */

static char *file_of(const document *made)
{
    char *text = NULL;

    assert_int_equal(document_file_build(made, &text, NULL), KVARVE_OK);
    return text;
}

static document sample(void)
{
    const document_parts parts = {.identity_json = "{\"model\":\"m\",\"deep\":{\"x\":[1]}}",
                                  .numerics_json = "{\"cpu\":\"a\"}",
                                  .layout_json = LAYOUT,
                                  .salt = "very secret"};

    return built(&parts);
}

static void test_document_file__gives_everything_back_but_the_salt(void **state)
{
    document made = sample();
    document read = {0};
    char *text = file_of(&made);
    char *canonical = NULL;

    (void)state;
    assert_null(strstr(text, "secret"));
    assert_int_equal(canonical_json(text, &canonical, NULL), KVARVE_OK);
    assert_int_equal(strncmp(text, canonical, strlen(canonical)), 0);
    assert_string_equal(text + strlen(canonical), "\n");
    assert_int_equal(document_file_parse(text, strlen(text), &read, NULL), KVARVE_OK);
    assert_string_equal(read.text, made.text);
    assert_string_equal(read.name.text, made.name.text);
    assert_memory_equal(read.digest, made.digest, SHA256_SIZE);
    assert_memory_equal(read.meaning, made.meaning, SHA256_SIZE);
    assert_memory_equal(read.salt_digest, made.salt_digest, SHA256_SIZE);
    kvarve_release(read.text);
    kvarve_release(canonical);
    kvarve_release(text);
    kvarve_release(made.text);
}

static void test_document_file__every_shorter_text_is_corrupt(void **state)
{
    document made = sample();
    document read = {0};
    char *text = file_of(&made);

    (void)state;
    for (size_t size = 0; size < strlen(text); size++) {
        char *cut = size == 0 ? NULL : kvarve_allocate(size); /* exact, for the sanitizer */

        if (size > 0) {
            memcpy(cut, text, size);
        }
        assert_int_equal(document_file_parse(cut, size, &read, NULL), KVARVE_CORRUPT);
        kvarve_release(cut);
    }
    assert_null(read.text);
    kvarve_release(text);
    kvarve_release(made.text);
}

/* Where no digest covers the bytes (the name, and numerics) a change is accepted as another value,
 * never as the same one. */
static void test_document_file__a_changed_byte_is_corrupt_or_another_value(void **state)
{
    document made = sample();
    char *text = file_of(&made);
    const size_t size = strlen(text);
    size_t accepted = 0;

    (void)state;
    for (size_t i = 0; i < 8 * size; i++) {
        document read = {0};
        kvarve_status status;

        text[i / 8] = (char)(text[i / 8] ^ (1 << i % 8));
        status = document_file_parse(text, size, &read, NULL);
        if (status == KVARVE_OK) {
            accepted++;
            assert_true(strcmp(read.text, made.text) != 0 ||
                        memcmp(read.digest, made.digest, SHA256_SIZE) != 0);
            assert_memory_equal(read.meaning, made.meaning, SHA256_SIZE);
            kvarve_release(read.text);
        } else {
            assert_int_equal(status, KVARVE_CORRUPT);
        }
        text[i / 8] = (char)(text[i / 8] ^ (1 << i % 8));
    }
    assert_true(accepted > 0 && accepted < size);
    kvarve_release(text);
    kvarve_release(made.text);
}

/* Equal as JSON, with the right digests, and not what would be written. */
static void test_document_file__another_spelling_is_corrupt(void **state)
{
    document made = sample();
    document read = {0};
    char *text = file_of(&made);
    char *spaced = kvarve_allocate(strlen(text) + 2);
    const size_t at = strlen("{\"document\":{"); /* inside of the document */

    (void)state;
    assert_non_null(spaced);
    memcpy(spaced, text, at);
    spaced[at] = ' ';
    memcpy(spaced + at + 1, text + at, strlen(text + at) + 1);
    assert_int_equal(document_file_parse(spaced, strlen(spaced), &read, NULL), KVARVE_CORRUPT);
    kvarve_release(spaced);
    kvarve_release(text);
    kvarve_release(made.text);
}

/* --- difference --- */

static void test_document_difference__names_the_first_member(void **state)
{
    static const char *const rows[][3] = {
        {"{}", "{}", ""},
        {"{\"a\":1}", "{\"a\":1}", ""},
        {"{\"a\":1}", "{\"a\":2}", "a"},
        {"{\"a\":1}", "{}", "a"},
        {"{}", "{\"a\":1}", "a"},
        {"{\"b\":1,\"c\":1}", "{\"a\":1,\"b\":2,\"c\":1}", "a"},
        {"{\"a\":1,\"b\":1,\"c\":1}", "{\"a\":1,\"b\":2,\"c\":2}", "b"},
        {"{\"a\":{\"x\":1,\"y\":1}}", "{\"a\":{\"x\":1,\"y\":2}}", "a.y"},
        {"{\"a\":{\"x\":{\"z\":1}}}", "{\"a\":{\"x\":{}}}", "a.x.z"},
        {"{\"a\":{\"x\":1}}", "{\"a\":1}", "a"},
        {"{\"a\":[{\"x\":1}]}", "{\"a\":[{\"x\":2}]}", "a"},
        {"{\"numerics\":{\"cpu\":\"a\"}}", "{\"numerics\":{\"cpu\":\"b\"}}", "numerics.cpu"},
    };
    char path[64];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        document_difference(rows[i][0], rows[i][1], path, sizeof path);
        assert_string_equal(path, rows[i][2]);
        document_difference(rows[i][1], rows[i][0], path, sizeof path);
        assert_string_equal(path, rows[i][2]);
    }
}

static void test_document_difference__long_names_are_cut_between_characters(void **state)
{
    char path[8];

    (void)state;
    document_difference("{\"abc\":{\"defghi\":1}}", "{\"abc\":{}}", path, sizeof path);
    assert_string_equal(path, "abc.def");
    document_difference("{\"abcd\":{\"x\\u00fc\\u00fc\":1}}", "{\"abcd\":{}}", path, sizeof path);
    assert_string_equal(path, "abcd.x"); /* half of it would fit */
    document_difference("{\"abcdefgh\":{\"x\":1}}", "{\"abcdefgh\":{}}", path, sizeof path);
    assert_string_equal(path, "abcdefg");
    document_difference("{\"abcdefg\":{\"x\":1}}", "{\"abcdefg\":{}}", path, sizeof path);
    assert_string_equal(path, "abcdefg");
    document_difference("{\"a\":1}", "{}", path, 1);
    assert_string_equal(path, "");
}

/* --- memory --- */

static int is_not_number(void *context, uint64_t number)
{
    return number != *(const uint64_t *)context;
}

static void test_document__each_failed_allocation_is_no_memory(void **state)
{
    const document_parts parts = {
        .identity_json = "{\"a\":\"\x7f\"}", .draft_json = "{}", .layout_json = LAYOUT};
    const uint64_t before = kvarve_allocated_blocks();
    kvarve_status status = KVARVE_NO_MEMORY;
    uint64_t number = 0;

    (void)state;
    for (; status == KVARVE_NO_MEMORY; number++) {
        document made = {0};
        document read = {0};
        char *text = NULL;

        kvarve_allocate_set_hook(is_not_number, &number);
        status = document_build(&parts, &made, NULL);
        if (status == KVARVE_OK) {
            status = document_file_build(&made, &text, NULL);
        }
        if (status == KVARVE_OK) {
            status = document_file_parse(text, strlen(text), &read, NULL);
        }
        kvarve_allocate_set_hook(NULL, NULL);
        kvarve_release(read.text);
        kvarve_release(text);
        kvarve_release(made.text);
        assert_int_equal(kvarve_allocated_blocks(), before);
    }
    assert_int_equal(status, KVARVE_OK);
    assert_true(number > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_document__is_canonical_with_all_parts),
        cmocka_unit_test(test_document__empty_parts_are_there),
        cmocka_unit_test(test_document__name_is_the_namespace_of_text_and_salt),
        cmocka_unit_test(test_document__digests_are_those_of_the_format),
        cmocka_unit_test(test_document__numerics_change_the_name_and_not_the_meaning),
        cmocka_unit_test(test_document__everything_else_changes_the_meaning),
        cmocka_unit_test(test_document__taken_members_are_refused),
        cmocka_unit_test(test_document__bad_parts_are_named),
        cmocka_unit_test(test_document__sizes_are_bounded),
        cmocka_unit_test(test_document_file__gives_everything_back_but_the_salt),
        cmocka_unit_test(test_document_file__every_shorter_text_is_corrupt),
        cmocka_unit_test(test_document_file__a_changed_byte_is_corrupt_or_another_value),
        cmocka_unit_test(test_document_file__another_spelling_is_corrupt),
        cmocka_unit_test(test_document_difference__names_the_first_member),
        cmocka_unit_test(test_document_difference__long_names_are_cut_between_characters),
        cmocka_unit_test(test_document__each_failed_allocation_is_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
