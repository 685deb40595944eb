/*
 * test_alloc.c - the allocator: zeroed, aligned, counted, and failing when a test says so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdalign.h>
#include <string.h>

#include "base/alloc.h"

static uint64_t bytes_before;
static uint64_t blocks_before;

static int remember(void **state)
{
    (void)state;
    bytes_before = kvarve_allocated_bytes();
    blocks_before = kvarve_allocated_blocks();
    return 0;
}

/* Whatever a test does, it gives everything back and takes its hook away. */
static int compare(void **state)
{
    (void)state;
    kvarve_allocate_set_hook(NULL, NULL);
    assert_int_equal(kvarve_allocated_bytes(), bytes_before);
    assert_int_equal(kvarve_allocated_blocks(), blocks_before);
    return 0;
}

static void test_alloc__memory_is_zeroed_and_aligned(void **state)
{
    static const unsigned char zeros[257];
    size_t size;

    (void)state;
    for (size = 1; size <= sizeof zeros; size++) {
        unsigned char *memory = kvarve_allocate(size);

        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % alignof(max_align_t), 0);
        assert_memory_equal(memory, zeros, size);
        memset(memory, 0xa5, size);
        kvarve_release(memory);
    }
}

static void test_alloc__accounting_is_exact(void **state)
{
    void *first = kvarve_allocate(100);
    void *second = kvarve_allocate_array(3, 7);

    (void)state;
    assert_non_null(first);
    assert_non_null(second);
    assert_int_equal(kvarve_allocated_bytes() - bytes_before, 121);
    assert_int_equal(kvarve_allocated_blocks() - blocks_before, 2);
    first = kvarve_reallocate(first, 40);
    assert_non_null(first);
    assert_int_equal(kvarve_allocated_bytes() - bytes_before, 61);
    assert_int_equal(kvarve_allocated_blocks() - blocks_before, 2);
    kvarve_release(first);
    kvarve_release(second);
}

static void test_alloc__releasing_nothing_is_harmless(void **state)
{
    (void)state;
    kvarve_release(NULL);
}

static void test_alloc__growing_keeps_the_bytes(void **state)
{
    unsigned char *memory = kvarve_reallocate(NULL, 64);
    size_t i;

    (void)state;
    assert_non_null(memory);
    for (i = 0; i < 64; i++) {
        memory[i] = (unsigned char)i;
    }
    memory = kvarve_reallocate(memory, 100000);
    assert_non_null(memory);
    for (i = 0; i < 64; i++) {
        assert_int_equal(memory[i], i);
    }
    kvarve_release(memory);
}

static void test_alloc__a_product_that_overflows_is_refused(void **state)
{
    (void)state;
    assert_null(kvarve_allocate_array(SIZE_MAX / 2, 3));
    assert_null(kvarve_allocate_array(SIZE_MAX, 1));
    assert_null(kvarve_allocate(SIZE_MAX));
}

static void test_alloc__a_copy_of_text_is_its_own(void **state)
{
    char text[] = "kvarve";
    char *copy = kvarve_duplicate(text);

    (void)state;
    assert_non_null(copy);
    text[0] = 'K';
    assert_string_equal(copy, "kvarve");
    kvarve_release(copy);
}

typedef struct plan {
    uint64_t fail_at;
    uint64_t calls;
} plan;

static int fail_at(void *context, uint64_t number)
{
    plan *this = context;

    this->calls++;
    return number != this->fail_at;
}

/* Three allocations of different kinds: how many came before the first that failed, 3 when none
 * did. */
static uint64_t three_allocations(void)
{
    void *block = kvarve_allocate(10);
    char *text = block == NULL ? NULL : kvarve_duplicate("text");
    char *longer = text == NULL ? NULL : kvarve_reallocate(text, 100);
    const uint64_t done = (uint64_t)(block != NULL) + (text != NULL) + (longer != NULL);

    kvarve_release(longer == NULL ? text : longer);
    kvarve_release(block);
    return done;
}

static void test_alloc__the_hook_fails_exactly_the_kth_allocation(void **state)
{
    uint64_t k;

    (void)state;
    for (k = 0; k < 4; k++) {
        plan this = {.fail_at = k};

        kvarve_allocate_set_hook(fail_at, &this);
        assert_int_equal(three_allocations(), k);
        assert_int_equal(this.calls, k < 3 ? k + 1 : 3);
        assert_int_equal(kvarve_allocated_bytes(), bytes_before);
    }
    kvarve_allocate_set_hook(NULL, NULL);
    assert_int_equal(three_allocations(), 3);
}

static void test_alloc__a_failed_growth_keeps_the_old_memory(void **state)
{
    plan this = {.fail_at = 0};
    char *text = kvarve_duplicate("kept");

    (void)state;
    assert_non_null(text);
    kvarve_allocate_set_hook(fail_at, &this);
    assert_null(kvarve_reallocate(text, 1000));
    assert_string_equal(text, "kept");
    assert_int_equal(kvarve_allocated_bytes() - bytes_before, sizeof "kept");
    kvarve_release(text);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, remember, compare)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_alloc__memory_is_zeroed_and_aligned),
        CASE(test_alloc__accounting_is_exact),
        CASE(test_alloc__releasing_nothing_is_harmless),
        CASE(test_alloc__growing_keeps_the_bytes),
        CASE(test_alloc__a_product_that_overflows_is_refused),
        CASE(test_alloc__a_copy_of_text_is_its_own),
        CASE(test_alloc__the_hook_fails_exactly_the_kth_allocation),
        CASE(test_alloc__a_failed_growth_keeps_the_old_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
