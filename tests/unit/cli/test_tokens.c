/* test_tokens.c - lists of token ids, and where a bad one is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/alloc.h"
#include "cli/tokens.h"

static void check_list(const char *text, const uint32_t *wanted, size_t count)
{
    uint32_t *tokens = NULL;
    size_t found = 0;
    kvarve_error err = {0};

    if (tokens_parse(text, strlen(text), &tokens, &found, &err) != KVARVE_OK) {
        fail_msg("\"%s\": %s", text, err.text);
    }
    assert_int_equal(found, count);
    assert_memory_equal(tokens, wanted, count * sizeof(*wanted));
    kvarve_release(tokens);
}

static void test_tokens__words_commas_lines_and_arrays(void **state)
{
    static const uint32_t wanted[] = {1, 0, 2147483647};

    (void)state;
    check_list("1 0 2147483647", wanted, 3);
    check_list("1\n0\r\n2147483647\n", wanted, 3);
    check_list("1,0,,2147483647,", wanted, 3);
    check_list("\t[1, 0,\n2147483647 ]\n", wanted, 3);
    check_list("[1]", wanted, 1);
    check_list("0000001", wanted, 1);
}

static void check_wrong(const char *text, const char *place)
{
    uint32_t *tokens = NULL;
    size_t count = 0;
    kvarve_error err = {0};

    assert_int_equal(tokens_parse(text, strlen(text), &tokens, &count, &err), KVARVE_INVALID);
    assert_null(tokens);
    if (strstr(err.text, place) == NULL) {
        fail_msg("\"%s\": %s", text, err.text);
    }
}

static void test_tokens__errors_name_line_and_column(void **state)
{
    (void)state;
    check_wrong("", "line 1, column 1: no token");
    check_wrong(" ,\n, ", "no token");
    check_wrong("1 2147483648", "line 1, column 3: a token id of 2147483648");
    check_wrong("1\n22 99999999999999999999999999", "line 2, column 4");
    check_wrong("1 -2", "line 1, column 3: a negative");
    check_wrong("1 x", "line 1, column 3: no token id");
    check_wrong("1.5", "line 1, column 2: a token id with something behind it");
    check_wrong("0x10", "line 1, column 2");
    check_wrong("[1 2]", "no comma");
    check_wrong("[1,,2]", "no token id");
    check_wrong("[1,]", "no token id");
    check_wrong("[", "does not end");
    check_wrong("[1", "does not end");
    check_wrong("[1,", "does not end");
    check_wrong("[]", "empty");
    check_wrong("[[1]]", "no token id");
    check_wrong("[1] 2", "behind the array");
    check_wrong("1]", "something behind it");
}

static void test_tokens__more_than_a_prefix_holds_are_refused(void **state)
{
    const size_t count = (size_t)KVARVE_PREFIX_TOKENS_MAX + 1;
    char *text = kvarve_allocate(2 * count);
    uint32_t *tokens = NULL;
    size_t found = 0;

    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < count; i++) {
        memcpy(text + 2 * i, "7 ", 2);
    }
    assert_int_equal(tokens_parse(text, 2 * count, &tokens, &found, NULL), KVARVE_INVALID);
    assert_int_equal(tokens_parse(text, 2 * (count - 1), &tokens, &found, NULL), KVARVE_OK);
    assert_int_equal(found, count - 1);
    kvarve_release(tokens);
    kvarve_release(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens__words_commas_lines_and_arrays),
        cmocka_unit_test(test_tokens__errors_name_line_and_column),
        cmocka_unit_test(test_tokens__more_than_a_prefix_holds_are_refused),
    };

    return cmocka_run_group_tests_name("cli.tokens", tests, NULL, NULL);
}
