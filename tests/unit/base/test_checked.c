/*
 * test_checked.c - arithmetic on sizes at the edges where it could wrap.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/checked.h"

static void test_checked__sums_and_products_say_when_they_do_not_fit(void **state)
{
    size_t size;
    uint32_t small;

    (void)state;
    assert_false(KVARVE_ADD_OVERFLOWS(SIZE_MAX - 1, (size_t)1, &size));
    assert_int_equal(size, SIZE_MAX);
    assert_true(KVARVE_ADD_OVERFLOWS(SIZE_MAX, (size_t)1, &size));
    assert_true(KVARVE_MUL_OVERFLOWS(SIZE_MAX / 2 + 1, (size_t)2, &size));
    assert_true(KVARVE_ADD_OVERFLOWS(UINT64_C(0xffffffff), UINT64_C(1), &small));
    assert_false(KVARVE_MUL_OVERFLOWS(UINT64_C(65535), UINT64_C(65537), &small));
    assert_int_equal(small, UINT32_MAX);
}

static void test_checked__rounding_up_reaches_the_next_unit(void **state)
{
    (void)state;
    assert_int_equal(kvarve_round_up(0, 4096), 0);
    assert_int_equal(kvarve_round_up(1, 4096), 4096);
    assert_int_equal(kvarve_round_up(4096, 4096), 4096);
    assert_int_equal(kvarve_round_up(4097, 4096), 8192);
    assert_int_equal(kvarve_round_up(UINT64_MAX - 4095, 4096), UINT64_MAX - 4095);
}

static void test_checked__dividing_up_does_not_wrap(void **state)
{
    (void)state;
    assert_int_equal(kvarve_divide_up(0, 64), 0);
    assert_int_equal(kvarve_divide_up(1, 64), 1);
    assert_int_equal(kvarve_divide_up(64, 64), 1);
    assert_int_equal(kvarve_divide_up(65, 64), 2);
    assert_int_equal(kvarve_divide_up(UINT64_MAX, UINT64_MAX), 1);
    assert_int_equal(kvarve_divide_up(UINT64_MAX, 2), UINT64_C(1) << 63);
}

static void test_checked__smaller_and_larger(void **state)
{
    (void)state;
    assert_int_equal(kvarve_min_u64(3, UINT64_MAX), 3);
    assert_int_equal(kvarve_min_u64(UINT64_MAX, 3), 3);
    assert_int_equal(kvarve_max_u64(3, 4), 4);
    assert_int_equal(kvarve_max_u64(4, 3), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checked__sums_and_products_say_when_they_do_not_fit),
        cmocka_unit_test(test_checked__rounding_up_reaches_the_next_unit),
        cmocka_unit_test(test_checked__dividing_up_does_not_wrap),
        cmocka_unit_test(test_checked__smaller_and_larger),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
