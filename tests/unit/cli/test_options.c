/* test_options.c - command lines, numbers with units, exit codes, sizes for people. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/options_private.h"

typedef struct options_case {
    bool flag;
    const char *text;
    cli_texts list;
    uint64_t count;
    uint64_t bytes;
    char **positional;
    size_t positional_count;
    int code;
} options_case;

/* `line` is cut at its spaces. */
static bool parse(options_case *found, const char *line)
{
    static char text[512];
    static char *arguments[32];
    int count = 0;

    static const cli_usage usage = {
        .synopsis = "test", .about = "About.", .positional_min = 1, .positional_max = 2};
    const cli_option options[] = {
        {.name = "flag",
         .kind = CLI_FLAG,
         .target = &found->flag,
         .help = "A flag.",
         .letter = 'f'},
        {.name = "text",
         .value = "T",
         .kind = CLI_TEXT,
         .target = &found->text,
         .help = "A text.",
         .is_required = true,
         .letter = 't'},
        {.name = "list", .value = "T", .kind = CLI_LIST, .target = &found->list, .help = "Many."},
        {.name = "count",
         .value = "N",
         .kind = CLI_COUNT,
         .target = &found->count,
         .minimum = 2,
         .maximum = 9,
         .help = "A count."},
        {.name = "bytes",
         .value = "B",
         .kind = CLI_BYTES,
         .target = &found->bytes,
         .help = "A size."},
        {0},
    };

    (void)snprintf(text, sizeof(text), "test %s", line);
    for (char *at = text; at != NULL && *at != '\0';) {
        arguments[count++] = at;
        at = strchr(at, ' ');
        if (at != NULL) {
            *at++ = '\0';
        }
    }
    arguments[count] = NULL;
    *found = (options_case){0};
    return cli_parse(&usage, options, count, arguments, &found->positional,
                     &found->positional_count, &found->code);
}

static void test_options__values_reach_their_targets(void **state)
{
    options_case found;

    (void)state;
    assert_true(parse(&found, "-f --text a x --list 1 --list=2 --count 9 --bytes 3K y"));
    assert_true(found.flag);
    assert_string_equal(found.text, "a");
    assert_int_equal(found.list.count, 2);
    assert_string_equal(found.list.text[1], "2");
    assert_int_equal(found.count, 9);
    assert_int_equal(found.bytes, 3072);
    assert_int_equal(found.positional_count, 2);
    assert_string_equal(found.positional[1], "y");
    assert_true(parse(&found, "-tb x"));
    assert_string_equal(found.text, "b");
}

static void test_options__mistakes_are_usage_errors(void **state)
{
    options_case found;

    (void)state;
    assert_false(parse(&found, "x"));
    assert_int_equal(found.code, CLI_USAGE);
    assert_false(parse(&found, "-t a"));
    assert_int_equal(found.code, CLI_USAGE);
    assert_false(parse(&found, "-t a x y z"));
    assert_false(parse(&found, "-t a x --count 1"));
    assert_false(parse(&found, "-t a x --count 10"));
    assert_false(parse(&found, "-t a x --count 3x"));
    assert_false(parse(&found, "-t a x --bytes 3Q"));
    assert_false(parse(&found, "-t a x --nothing"));
    assert_int_equal(found.code, CLI_USAGE);
    assert_false(parse(&found, "--help"));
    assert_int_equal(found.code, CLI_OK);
}

static void test_options__numbers_do_not_wrap(void **state)
{
    uint64_t value = 0;

    (void)state;
    assert_true(option_read_number("18446744073709551615", false, &value));
    assert_int_equal(value, UINT64_MAX);
    assert_false(option_read_number("18446744073709551616", false, &value));
    assert_true(option_read_number("16777215T", true, &value));
    assert_false(option_read_number("16777216T", true, &value));
    assert_true(option_read_number("2GiB", true, &value));
    assert_int_equal(value, UINT64_C(2) << 30);
    assert_false(option_read_number("", true, &value));
    assert_false(option_read_number("-1", true, &value));
    assert_false(option_read_number("1.5G", true, &value));
    assert_false(option_read_number("1K", false, &value));
}

static void test_output__statuses_have_exit_codes(void **state)
{
    (void)state;
    assert_int_equal(cli_exit_of(KVARVE_OK), 0);
    assert_int_equal(cli_exit_of(KVARVE_IO), 1);
    assert_int_equal(cli_exit_of(KVARVE_UNAVAILABLE), 1);
    assert_int_equal(cli_exit_of(KVARVE_INVALID), 2);
    assert_int_equal(cli_exit_of(KVARVE_MISS), 3);
    assert_int_equal(cli_exit_of(KVARVE_BUSY), 4);
    assert_int_equal(cli_exit_of(KVARVE_CORRUPT), 5);
    assert_int_equal(cli_exit_of(KVARVE_UNSUPPORTED), 6);
    assert_int_equal(cli_exit_of(KVARVE_NO_SPACE), 7);
    assert_int_equal(cli_exit_of(KVARVE_NO_MEMORY), 7);
}

static void test_output__sizes_for_people(void **state)
{
    char text[CLI_SIZE_TEXT];

    (void)state;
    assert_string_equal(cli_size_text(0, text), "0 B");
    assert_string_equal(cli_size_text(1023, text), "1023 B");
    assert_string_equal(cli_size_text(1536, text), "1.5 KiB");
    assert_string_equal(cli_size_text(UINT64_C(1) << 20, text), "1.0 MiB");
    assert_string_equal(cli_size_text(UINT64_MAX, text), "15.9 EiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options__values_reach_their_targets),
        cmocka_unit_test(test_options__mistakes_are_usage_errors),
        cmocka_unit_test(test_options__numbers_do_not_wrap),
        cmocka_unit_test(test_output__statuses_have_exit_codes),
        cmocka_unit_test(test_output__sizes_for_people),
    };

    return cmocka_run_group_tests_name("cli.options", tests, NULL, NULL);
}
