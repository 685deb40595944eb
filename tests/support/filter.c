/*
 * filter.c - run one case of a test program by name: KVARVE_TEST='*kth*' build/dev/.../test_x
 *
 * Linked into every test program (cmake/folders.cmake); runs before main. A failed assertion of the
 * library ends a test, whatever the build: contained, it could pass for an answer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "base/assert.h"

__attribute__((constructor)) static void choose_cases(void)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread runs before main. */
    const char *pattern = getenv("KVARVE_TEST");

    if (pattern != NULL) {
        cmocka_set_test_filter(pattern);
    }
    kvarve_assert_set_containing(false);
}
