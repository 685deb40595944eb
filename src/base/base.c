/*
 * base.c - definitions behind error.h, fail.h and assert.h.
 *
 * Threads: everything here may be called from any thread. Nothing allocates.
 */
#include "base/assert.h"
#include "base/fail.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *kvarve_status_text(kvarve_status status)
{
    switch (status) {
#define KVARVE_STATUS_CASE(name, text)                                                             \
    case name:                                                                                     \
        return text;
        KVARVE_STATUS_TABLE(KVARVE_STATUS_CASE)
#undef KVARVE_STATUS_CASE
    }
    return "unknown status";
}

__attribute__((format(printf, 4, 0))) static void
fill(kvarve_error *err, kvarve_status status, int os_errno, const char *format, va_list args)
{
    KVARVE_ASSERT(status != KVARVE_OK);
    if (err == NULL) {
        return;
    }
    err->status = status;
    err->os_errno = os_errno;
    (void)vsnprintf(err->text, sizeof err->text, format, args);
}

kvarve_status kvarve_fail(kvarve_error *err, kvarve_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fill(err, status, 0, format, args);
    va_end(args);
    return status;
}

static kvarve_status status_of_errno(int os_errno)
{
    if (os_errno == ENOSPC || os_errno == EDQUOT) {
        return KVARVE_NO_SPACE;
    }
    return os_errno == ENOMEM ? KVARVE_NO_MEMORY : KVARVE_IO;
}

kvarve_status kvarve_fail_io(kvarve_error *err, int negative_errno, const char *format, ...)
{
    const kvarve_status status = status_of_errno(-negative_errno);
    va_list args;

    KVARVE_ASSERT(negative_errno < 0);
    va_start(args, format);
    fill(err, status, -negative_errno, format, args);
    va_end(args);
    return status;
}

static _Thread_local kvarve_assert_handler assert_handler;

kvarve_assert_handler kvarve_assert_set_handler(kvarve_assert_handler handler)
{
    const kvarve_assert_handler before = assert_handler;

    assert_handler = handler;
    return before;
}

#if defined(KVARVE_CHECKED) && KVARVE_CHECKED
static atomic_bool is_containing_failures = false;
#else
static atomic_bool is_containing_failures = true;
#endif

void kvarve_assert_set_containing(bool is_containing)
{
    atomic_store_explicit(&is_containing_failures, is_containing, memory_order_relaxed);
}

bool kvarve_assert_is_containing(void)
{
    return atomic_load_explicit(&is_containing_failures, memory_order_relaxed);
}

/* The path from the project's folder on: where it was built says nothing to a reader. */
static const char *path_in_project(const char *file)
{
    static const char *const tops[] = {"/src/", "/tests/"};

    for (size_t i = 0; i < sizeof tops / sizeof tops[0]; i++) {
        for (const char *at = strstr(file, tops[i]); at != NULL; at = strstr(at + 1, tops[i])) {
            file = at + 1;
        }
    }
    return file;
}

_Noreturn void kvarve_assert_fail(const char *expression, const char *file, int line)
{
    const kvarve_assert_handler handler = kvarve_assert_set_handler(NULL);
    char text[KVARVE_ERROR_TEXT_MAX];

    (void)snprintf(text, sizeof text, "%s:%d: assertion failed: %s", path_in_project(file), line,
                   expression);
    if (handler != NULL) {
        handler(text);
    }
    (void)fprintf(stderr, "%s\n", text);
    abort();
}
