/*
 * test_memory.c - large memory of the real machine: sealed, populated, not inherited by children.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "env/env_posix.h"

#define PAGE  ((size_t)4096)
#define PAGES ((size_t)64)

static kvarve_mapping mapping;

static int setup(void **state)
{
    kvarve_memory *memory = memory_posix();

    (void)state;
    return memory->create(memory, MEMORY_SHARED, "kvarve-test", PAGES * PAGE, &mapping);
}

static int teardown(void **state)
{
    kvarve_memory *memory = memory_posix();

    (void)state;
    memory->destroy(memory, &mapping);
    return 0;
}

/* Pages of the mapping that are really there, by blocks that its file takes. */
static size_t allocated_pages(void)
{
    struct stat stat;

    assert_int_equal(fstat(mapping.fd, &stat), 0);
    return (size_t)stat.st_blocks * 512 / PAGE;
}

static void test_memory__its_size_is_sealed(void **state)
{
    (void)state;
    assert_int_equal(mapping.size, PAGES * PAGE);
    assert_int_equal((uintptr_t)mapping.base % PAGE, 0);
    assert_int_equal(ftruncate(mapping.fd, PAGE), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(mapping.fd, (off_t)(2 * mapping.size)), -1);
    assert_int_equal(fcntl(mapping.fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    assert_int_equal(fcntl(mapping.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

static void test_memory__sizes_are_pages(void **state)
{
    kvarve_memory *memory = memory_posix();
    kvarve_mapping none = {.fd = -5};

    (void)state;
    assert_int_equal(memory->create(memory, MEMORY_SHARED, "x", 0, &none), -EINVAL);
    assert_int_equal(memory->create(memory, MEMORY_SHARED, "x", PAGE + 1, &none), -EINVAL);
    assert_int_equal(none.fd, -5);
}

static void test_memory__populate_takes_what_it_is_asked(void **state)
{
    kvarve_memory *memory = memory_posix();

    (void)state;
    assert_int_equal(allocated_pages(), 0);
    assert_int_equal(memory->populate(memory, &mapping, 8 * PAGE, 16 * PAGE), 0);
    assert_true(allocated_pages() >= 16);
    if (!mapping.is_huge) {
        assert_int_equal(allocated_pages(), 16);
    }
    memset(mapping.base, 'x', mapping.size);
    assert_int_equal(memory->populate(memory, &mapping, 0, mapping.size), 0);
    assert_int_equal(((char *)mapping.base)[PAGE], 'x'); /* bytes stay */
    assert_int_equal(memory->populate(memory, &mapping, 0, 0), 0);
}

static void test_memory__more_than_the_headroom_is_refused_untouched(void **state)
{
    kvarve_memory *memory = memory_posix();
    const uint64_t headroom = memory->headroom(memory);
    const size_t size = (size_t)(headroom / PAGE + 1) * 2 * PAGE;
    struct stat stat;
    kvarve_mapping large;

    (void)state;
    assert_true(headroom > 0);
    if (memory->create(memory, MEMORY_SHARED, "large", size, &large) < 0) {
        skip(); /* this machine does not even lend the addresses */
    }
    assert_int_equal(memory->populate(memory, &large, 0, size), -ENOMEM);
    assert_int_equal(fstat(large.fd, &stat), 0);
    assert_int_equal(stat.st_blocks, 0);
    memory->destroy(memory, &large);
}

static void test_memory__a_child_does_not_have_it(void **state)
{
    pid_t child;
    int status;

    (void)state;
    ((char *)mapping.base)[0] = 'x';
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        unsigned char residency;

        _exit(mincore(mapping.base, PAGE, &residency) < 0 && errno == ENOMEM ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_memory__destroy_clears_the_mapping(void **state)
{
    kvarve_memory *memory = memory_posix();
    const int fd = mapping.fd;

    (void)state;
    memory->destroy(memory, &mapping);
    assert_null(mapping.base);
    assert_int_equal(mapping.fd, -1);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    memory->destroy(memory, &mapping); /* and again, as tear-downs do */
}

static void test_memory__private_pages_are_populated_and_not_inherited(void **state)
{
    kvarve_memory *memory = memory_posix();
    kvarve_mapping own;
    unsigned char residency[PAGES];
    pid_t child;
    int status;

    (void)state;
    assert_int_equal(memory->create(memory, MEMORY_PRIVATE, "own", PAGES * PAGE, &own), 0);
    assert_int_equal(own.fd, -1);
    assert_int_equal((uintptr_t)own.base % PAGE, 0);
    assert_int_equal(memory->populate(memory, &own, 8 * PAGE, 16 * PAGE), 0);
    assert_int_equal(mincore(own.base, own.size, residency), 0);
    assert_int_equal(residency[8] & 1, 1);
    assert_int_equal(residency[23] & 1, 1);
    memset(own.base, 'x', own.size);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        /* A sanitizer may have put something of its own there. */
        _exit(mincore(own.base, PAGE, residency) < 0 || *(const char *)own.base != 'x' ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    memory->destroy(memory, &own);
    assert_null(own.base);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        CASE(test_memory__its_size_is_sealed),
        CASE(test_memory__sizes_are_pages),
        CASE(test_memory__populate_takes_what_it_is_asked),
        CASE(test_memory__more_than_the_headroom_is_refused_untouched),
        CASE(test_memory__a_child_does_not_have_it),
        CASE(test_memory__destroy_clears_the_mapping),
        cmocka_unit_test(test_memory__private_pages_are_populated_and_not_inherited),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
