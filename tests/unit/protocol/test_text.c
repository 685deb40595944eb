/*
 * test_text.c - texts in messages are whole characters of UTF-8, on one line.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "protocol/schema_private.h"

static void test_text__characters_of_every_length_are_right(void **unused)
{
    static const char *const right[] = {
        "",
        "a",
        "~ ",
        "\xc3\xa9",
        "\xc2\xa0",
        "\xe0\xa0\x80",
        "\xed\x9f\xbf",
        "\xee\x80\x80",
        "\xf0\x90\x80\x80",
        "\xf4\x8f\xbf\xbf",
    };

    (void)unused;
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        assert_true(wire_text_is_right(right[i], strlen(right[i])));
    }
}

static void test_text__what_is_no_line_of_characters_is_wrong(void **unused)
{
    static const char *const wrong[] = {
        "\n",
        "a\x1b[2J",
        "\x7f",
        "\x80",
        "\xc0\x80",
        "\xc1\xbf",
        "\xc3",
        "\xc3(",
        "\xc2\x9f",
        "\xe0\x9f\xbf",
        "\xed\xa0\x80",
        "\xe2\x82",
        "\xe2(\x82",
        "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80",
        "\xff",
    };

    (void)unused;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_false(wire_text_is_right(wrong[i], strlen(wrong[i])));
    }
    assert_false(wire_text_is_right("a\0b", 3));
}

static void check_set(const char *text, const char *expected)
{
    static const char zeros[8];
    char out[8];

    memset(out, 'z', sizeof out);
    wire_text_set(out, sizeof out, text);
    assert_string_equal(out, expected);
    assert_memory_equal(out + strlen(expected), zeros, sizeof out - strlen(expected));
}

static void test_text__is_cut_at_a_whole_character(void **unused)
{
    (void)unused;
    check_set("short", "short");
    check_set("1234567", "1234567");
    check_set("12345678", "1234567");
    check_set("123456\xc3\xa9", "123456");
    check_set("12345\xc3\xa9", "12345\xc3\xa9");
    check_set(NULL, "");
}

static void test_text__wrong_bytes_become_question_marks(void **unused)
{
    (void)unused;
    check_set("a\nb\xff\xc3", "a?b??");
    check_set("\xe2\x82", "??");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text__characters_of_every_length_are_right),
        cmocka_unit_test(test_text__what_is_no_line_of_characters_is_wrong),
        cmocka_unit_test(test_text__is_cut_at_a_whole_character),
        cmocka_unit_test(test_text__wrong_bytes_become_question_marks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
