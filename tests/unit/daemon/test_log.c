/* test_log.c - lines of the daemon's log: levels, quoting, length. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "daemon/log.h"

typedef struct written {
    char text[2 * LOG_LINE_MAX];
    size_t lines;
} written;

static void keep(void *context, const char *line, size_t size)
{
    written *out = context;

    assert_true(size < sizeof out->text);
    memcpy(out->text, line, size);
    out->text[size] = '\0';
    out->lines++;
}

static int64_t wall_s; /* what the clock below says */

static int64_t read_wall(kvarve_clock *clock)
{
    (void)clock;
    return wall_s;
}

static void write_text(written *out, bool is_journal, const char *value)
{
    const daemon_log log = {
        .level = LOG_LEVEL_INFO, .is_journal = is_journal, .write = keep, .context = out};
    log_line line;

    log_begin(&line, &log, LOG_LEVEL_WARNING, "client", "dropped");
    log_number(&line, "pid", 7);
    log_text(&line, "why", value);
    log_end(&line);
}

static void test_log__a_line_is_level_component_event_and_keys(void **state)
{
    written out = {0};

    (void)state;
    write_text(&out, false, "plain-word");
    assert_string_equal(out.text, "warning client dropped pid=7 why=plain-word\n");
    write_text(&out, true, "two words");
    assert_string_equal(out.text, "<4>warning client dropped pid=7 why=\"two words\"\n");
}

static void test_log__what_is_below_the_level_is_not_written(void **state)
{
    written out = {0};
    const daemon_log log = {.level = LOG_LEVEL_INFO, .write = keep, .context = &out};
    log_line line;

    (void)state;
    log_begin(&line, &log, LOG_LEVEL_DEBUG, "daemon", "nothing");
    log_text(&line, "key", "value");
    log_number(&line, "n", 1);
    log_end(&line);
    assert_int_equal(out.lines, 0);
}

static void test_log__a_text_can_not_forge_a_line(void **state)
{
    written out = {0};

    (void)state;
    write_text(&out, false, "a\nerror daemon forged x=\"\\\x1b\xff");
    assert_string_equal(out.text, "warning client dropped pid=7 "
                                  "why=\"a\\x0aerror daemon forged x=\\\"\\\\\\x1b\\xff\"\n");
    write_text(&out, false, "");
    assert_string_equal(out.text, "warning client dropped pid=7 why=\"\"\n");
}

static void test_log__a_long_line_is_cut_and_ends(void **state)
{
    char text[3 * LOG_LINE_MAX];
    written out = {0};

    (void)state;
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    write_text(&out, false, text);
    assert_true(strlen(out.text) <= LOG_LINE_MAX);
    assert_int_equal(out.text[strlen(out.text) - 1], '\n');
    memset(text, '\n', sizeof text - 1);
    write_text(&out, false, text);
    assert_true(strlen(out.text) <= LOG_LINE_MAX);
    assert_ptr_equal(strchr(out.text, '\n'), out.text + strlen(out.text) - 1);
}

static void test_log__the_time_is_in_front(void **state)
{
    static const struct {
        int64_t wall_s;
        const char *text;
    } times[] = {
        {0, "1970-01-01T00:00:00Z info a b\n"},
        {951782399, "2000-02-28T23:59:59Z info a b\n"},
        {951782400, "2000-02-29T00:00:00Z info a b\n"},
        {951868800, "2000-03-01T00:00:00Z info a b\n"},
        {1735689599, "2024-12-31T23:59:59Z info a b\n"},
        {4107542400, "2100-03-01T00:00:00Z info a b\n"},
    };
    kvarve_clock clock = {.wall_s = read_wall};
    written out = {0};
    const daemon_log log = {
        .level = LOG_LEVEL_INFO, .clock = &clock, .write = keep, .context = &out};
    log_line line;

    (void)state;
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        wall_s = times[i].wall_s;
        log_begin(&line, &log, LOG_LEVEL_INFO, "a", "b");
        log_end(&line);
        assert_string_equal(out.text, times[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log__a_line_is_level_component_event_and_keys),
        cmocka_unit_test(test_log__what_is_below_the_level_is_not_written),
        cmocka_unit_test(test_log__a_text_can_not_forge_a_line),
        cmocka_unit_test(test_log__a_long_line_is_cut_and_ends),
        cmocka_unit_test(test_log__the_time_is_in_front),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
