/*
 * test_headroom.c - how much memory may be taken, read from texts as kernels write them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "env/headroom_private.h"

#define MIB (UINT64_C(1) << 20)

static void test_headroom__the_machine_says_what_is_available(void **state)
{
    uint64_t bytes = 7;

    (void)state;
    assert_true(headroom_of_machine("MemTotal:       24680000 kB\nMemFree:         1 kB\n"
                                    "MemAvailable:   1048576 kB\nBuffers: 3 kB\n",
                                    &bytes));
    assert_int_equal(bytes, 1024 * MIB);
    bytes = 7;
    assert_false(headroom_of_machine("MemTotal: 1 kB\n", &bytes));
    assert_false(headroom_of_machine("MemAvailable: lots\n", &bytes));
    assert_false(headroom_of_machine("MemAvailable: 99999999999999999999999 kB\n", &bytes));
    assert_false(headroom_of_machine("", &bytes));
    assert_false(headroom_of_machine(NULL, &bytes));
}

static void test_headroom__the_group_is_found_in_either_generation(void **state)
{
    static const char hybrid[] = "9:name=systemd:/\n4:cpu,memory:/docker/12ab\n0::/unified/x\n";
    char path[64] = "?";

    (void)state;
    assert_true(headroom_group_path(hybrid, &headroom_files_v1, path, sizeof path));
    assert_string_equal(path, "/docker/12ab");
    assert_true(headroom_group_path(hybrid, &headroom_files_v2, path, sizeof path));
    assert_string_equal(path, "/unified/x");
    assert_true(headroom_group_path("0::/\n", &headroom_files_v2, path, sizeof path));
    assert_string_equal(path, "");
    assert_false(headroom_group_path("0::/a\n", &headroom_files_v1, path, sizeof path));
    assert_false(headroom_group_path("4:memory2:/a\n", &headroom_files_v1, path, sizeof path));
    assert_false(headroom_group_path("", &headroom_files_v2, path, sizeof path));
    assert_false(headroom_group_path("garbage", &headroom_files_v2, path, sizeof path));
    assert_false(headroom_group_path("0::/long", &headroom_files_v2, path, 5));
    assert_true(headroom_group_path("0::/long", &headroom_files_v2, path, 6));
}

static void test_headroom__the_way_up_ends_at_the_root(void **state)
{
    char path[] = "/a.slice/b.scope";

    (void)state;
    assert_true(headroom_parent_path(path));
    assert_string_equal(path, "/a.slice");
    assert_true(headroom_parent_path(path));
    assert_string_equal(path, "");
    assert_false(headroom_parent_path(path));
}

static void test_headroom__a_group_has_its_limit_less_its_use(void **state)
{
    static const char stat[] = "anon 5\nfile 900\nactive_file 1\ninactive_file 300\n";

    (void)state;
    assert_int_equal(headroom_of_group("1000\n", "600\n", NULL, "inactive_file"), 400);
    assert_int_equal(headroom_of_group("1000\n", "600\n", stat, "inactive_file"), 700);
    assert_int_equal(headroom_of_group("1000\n", "200\n", stat, "inactive_file"), 1000);
    assert_int_equal(headroom_of_group("1000\n", "1000\n", NULL, "inactive_file"), 0);
    assert_int_equal(headroom_of_group("1000\n", "5000\n", NULL, "inactive_file"), 0);
    assert_int_equal(headroom_of_group("0\n", "0\n", NULL, "inactive_file"), 0);
    assert_int_equal(headroom_of_group("max\n", "600\n", stat, "inactive_file"),
                     HEADROOM_UNLIMITED);
    assert_int_equal(headroom_of_group(NULL, "600\n", stat, "inactive_file"), HEADROOM_UNLIMITED);
    assert_int_equal(headroom_of_group("1000\n", NULL, stat, "inactive_file"), HEADROOM_UNLIMITED);
}

static void test_headroom__nine_tenths_of_the_smaller_may_be_taken(void **state)
{
    (void)state;
    assert_int_equal(headroom_allowed(1000, HEADROOM_UNLIMITED), 900);
    assert_int_equal(headroom_allowed(1000, 500), 450);
    assert_int_equal(headroom_allowed(0, 500), 0);
    assert_true(headroom_allowed(UINT64_MAX, UINT64_MAX) > UINT64_MAX / 2);
}

static void test_headroom__huge_pages_need_permission(void **state)
{
    (void)state;
    assert_false(headroom_huge_is_allowed("always within_size advise [never] deny force\n"));
    assert_false(headroom_huge_is_allowed("always within_size advise never [deny] force\n"));
    assert_false(headroom_huge_is_allowed(NULL));
    assert_true(headroom_huge_is_allowed("always within_size [advise] never deny force\n"));
    assert_true(headroom_huge_is_allowed("always [madvise] never\n"));
    assert_true(headroom_huge_is_allowed("[always] within_size advise never deny force\n"));
    assert_true(headroom_huge_is_allowed("always [within_size] advise never deny force\n"));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_headroom__the_machine_says_what_is_available),
        cmocka_unit_test(test_headroom__the_group_is_found_in_either_generation),
        cmocka_unit_test(test_headroom__the_way_up_ends_at_the_root),
        cmocka_unit_test(test_headroom__a_group_has_its_limit_less_its_use),
        cmocka_unit_test(test_headroom__nine_tenths_of_the_smaller_may_be_taken),
        cmocka_unit_test(test_headroom__huge_pages_need_permission),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
