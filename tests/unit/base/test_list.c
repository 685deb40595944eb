/*
 * test_list.c - the list threaded through its items.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/list.h"

typedef struct item {
    int number;
    kvarve_link link;
} item;

/* The numbers on the list as decimal digits, first item first. */
static int digits(kvarve_list *list)
{
    kvarve_link *link;
    int value = 0;

    KVARVE_LIST_FOREACH (link, list) {
        value = 10 * value + KVARVE_LIST_ITEM(link, item, link)->number;
    }
    return value;
}

static void fill(kvarve_list *list, item items[3])
{
    int i;

    kvarve_list_init(list);
    for (i = 0; i < 3; i++) {
        items[i].number = i + 1;
        kvarve_list_append(list, &items[i].link);
    }
}

static void test_list__items_come_in_the_order_of_appending(void **state)
{
    kvarve_list list;
    item items[3];

    (void)state;
    fill(&list, items);
    assert_int_equal(digits(&list), 123);
    assert_false(kvarve_list_is_empty(&list));
}

static void test_list__removing_twice_is_harmless(void **state)
{
    kvarve_list list;
    item items[3];

    (void)state;
    fill(&list, items);
    kvarve_list_remove(&items[1].link);
    kvarve_list_remove(&items[1].link);
    assert_int_equal(digits(&list), 13);
    kvarve_list_append(&list, &items[1].link);
    assert_int_equal(digits(&list), 132);
}

static void test_list__taking_the_first_empties_it_in_order(void **state)
{
    kvarve_list list;
    item items[3];
    int i;

    (void)state;
    fill(&list, items);
    for (i = 0; i < 3; i++) {
        assert_ptr_equal(kvarve_list_take_first(&list), &items[i].link);
    }
    assert_true(kvarve_list_is_empty(&list));
    assert_null(kvarve_list_take_first(&list));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list__items_come_in_the_order_of_appending),
        cmocka_unit_test(test_list__removing_twice_is_harmless),
        cmocka_unit_test(test_list__taking_the_first_empties_it_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
