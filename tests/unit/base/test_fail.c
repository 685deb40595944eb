/*
 * test_fail.c - a status and its text are made together; an assertion calls its handler.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/fail.h"

static void test_fail__status_and_text_agree(void **state)
{
    kvarve_error err;

    (void)state;
    memset(&err, 0xa5, sizeof err);
    assert_int_equal(kvarve_fail(&err, KVARVE_CORRUPT, "page %d of %s", 7, "x"), KVARVE_CORRUPT);
    assert_int_equal(err.status, KVARVE_CORRUPT);
    assert_int_equal(err.os_errno, 0);
    assert_string_equal(err.text, "page 7 of x");
}

static void test_fail__nobody_has_to_listen(void **state)
{
    (void)state;
    assert_int_equal(kvarve_fail(NULL, KVARVE_BUSY, "%s", "busy"), KVARVE_BUSY);
    assert_int_equal(kvarve_fail_io(NULL, -EIO, "%s", "disk"), KVARVE_IO);
}

static void test_fail__long_text_is_cut_and_terminated(void **state)
{
    char text[2 * KVARVE_ERROR_TEXT_MAX];
    kvarve_error err;

    (void)state;
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    assert_int_equal(kvarve_fail(&err, KVARVE_INVALID, "%s", text), KVARVE_INVALID);
    assert_int_equal(strlen(err.text), KVARVE_ERROR_TEXT_MAX - 1);
}

static void test_fail__os_errors_become_statuses(void **state)
{
    static const struct {
        int negative_errno;
        kvarve_status status;
    } rows[] = {
        {-ENOSPC, KVARVE_NO_SPACE}, {-EDQUOT, KVARVE_NO_SPACE}, {-ENOMEM, KVARVE_NO_MEMORY},
        {-EIO, KVARVE_IO},          {-EACCES, KVARVE_IO},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kvarve_error err;

        assert_int_equal(kvarve_fail_io(&err, rows[i].negative_errno, "write"), rows[i].status);
        assert_int_equal(err.status, rows[i].status);
        assert_int_equal(err.os_errno, -rows[i].negative_errno);
    }
}

static void test_fail__every_status_has_its_own_text(void **state)
{
    static const kvarve_status all[] = {
#define ROW_STATUS(name, text) name,
        KVARVE_STATUS_TABLE(ROW_STATUS)
#undef ROW_STATUS
    };
    const size_t count = sizeof all / sizeof all[0];
    size_t i;
    size_t j;

    (void)state;
    for (i = 0; i < count; i++) {
        assert_int_equal(all[i], i);
        for (j = 0; j < i; j++) {
            assert_string_not_equal(kvarve_status_text(all[i]), kvarve_status_text(all[j]));
        }
    }
    assert_string_equal(kvarve_status_text((kvarve_status)count), "unknown status");
}

static jmp_buf after_assertion;
static char assertion_text[KVARVE_ERROR_TEXT_MAX];

static void catch (const char *text)
{
    (void)snprintf(assertion_text, sizeof assertion_text, "%s", text);
    longjmp(after_assertion, 1);
}

static void test_fail__a_failed_assertion_calls_the_handler(void **state)
{
    (void)state;
    kvarve_assert_set_handler(catch);
    if (setjmp(after_assertion) == 0) {
        KVARVE_ASSERT(1 + 1 == 3);
    }
    kvarve_assert_set_handler(NULL);
    assert_non_null(strstr(assertion_text, "assertion failed: 1 + 1 == 3"));
    assert_non_null(strstr(assertion_text, "test_fail.c:"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fail__status_and_text_agree),
        cmocka_unit_test(test_fail__nobody_has_to_listen),
        cmocka_unit_test(test_fail__long_text_is_cut_and_terminated),
        cmocka_unit_test(test_fail__os_errors_become_statuses),
        cmocka_unit_test(test_fail__every_status_has_its_own_text),
        cmocka_unit_test(test_fail__a_failed_assertion_calls_the_handler),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
