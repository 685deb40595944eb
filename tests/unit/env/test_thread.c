/*
 * test_thread.c - thread.h, the clock and the random bytes of the real machine.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "env/env_posix.h"
#include "env/thread.h"

typedef struct turn {
    kvarve_mutex mutex;
    kvarve_condition changed;
    unsigned count;
} turn;

static void take_turns(void *context)
{
    turn *shared = context;

    for (int i = 0; i < 1000; i++) {
        mutex_lock(&shared->mutex);
        shared->count++;
        condition_signal_one(&shared->changed);
        mutex_unlock(&shared->mutex);
    }
}

static void test_thread__threads_share_a_counter_under_a_mutex(void **state)
{
    turn shared = {.count = 0};
    kvarve_thread threads[2];

    (void)state;
    mutex_init(&shared.mutex);
    condition_init(&shared.changed);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(thread_start(&threads[i], take_turns, &shared), 0);
    }
    mutex_lock(&shared.mutex);
    while (shared.count < 2000) {
        condition_wait(&shared.changed, &shared.mutex, KVARVE_NEVER);
    }
    mutex_unlock(&shared.mutex);
    for (int i = 0; i < 2; i++) {
        thread_join(&threads[i]);
    }
    condition_deinit(&shared.changed);
    mutex_deinit(&shared.mutex);
    assert_int_equal(kvarve_allocated_blocks(), 0);
}

static void test_thread__a_wait_ends_at_its_deadline(void **state)
{
    kvarve_clock *clock = clock_posix();
    turn shared;
    uint64_t deadline;

    (void)state;
    mutex_init(&shared.mutex);
    condition_init(&shared.changed);
    mutex_lock(&shared.mutex);
    condition_wait(&shared.changed, &shared.mutex, 1); /* long past */
    deadline = clock->monotonic_ns(clock) + KVARVE_NS_PER_MS;
    while (clock->monotonic_ns(clock) < deadline) {
        condition_wait(&shared.changed, &shared.mutex, deadline);
    }
    mutex_unlock(&shared.mutex);
    condition_deinit(&shared.changed);
    mutex_deinit(&shared.mutex);
}

static void test_thread__an_event_stays_set_until_it_is_cleared(void **state)
{
    const int fd = event_open();

    (void)state;
    assert_true(fd >= 0);
    assert_false(event_wait(fd, 0));
    event_clear(fd); /* of a clear one: nothing */
    event_set(fd);
    event_set(fd);
    assert_true(event_wait(fd, UINT32_MAX));
    assert_true(event_wait(fd, 0));
    event_clear(fd);
    assert_false(event_wait(fd, 0));
    event_close(fd);
}

static void test_thread__a_child_has_another_epoch(void **state)
{
    uint64_t epoch;
    pid_t child;
    int status;

    (void)state;
    fork_guard_arm();
    fork_guard_arm();
    epoch = fork_guard_epoch();
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(fork_guard_epoch() != epoch ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(fork_guard_epoch(), epoch);
}

static void test_thread__the_process_knows_itself(void **state)
{
    (void)state;
    assert_int_equal(process_id(), getpid());
    assert_true(processor_count() >= 1);
}

static void test_thread__the_clock_does_not_go_back(void **state)
{
    kvarve_clock *clock = clock_posix();
    uint64_t last = 0;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        const uint64_t now = clock->monotonic_ns(clock);

        assert_true(now >= last);
        last = now;
    }
    assert_true(clock->wall_s(clock) > 1700000000);
}

static void test_thread__random_bytes_differ(void **state)
{
    static uint8_t first[1000];
    static uint8_t second[1000];
    kvarve_random *random = random_posix();

    (void)state;
    assert_int_equal(random->fill(random, first, sizeof first), 0);
    assert_int_equal(random->fill(random, second, sizeof second), 0);
    assert_memory_not_equal(first, second, sizeof first);
    assert_memory_not_equal(first + 900, second + 900, 100); /* filled to the end */
    assert_int_equal(random->fill(random, first, 0), 0);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_thread__threads_share_a_counter_under_a_mutex),
        cmocka_unit_test(test_thread__a_wait_ends_at_its_deadline),
        cmocka_unit_test(test_thread__an_event_stays_set_until_it_is_cleared),
        cmocka_unit_test(test_thread__a_child_has_another_epoch),
        cmocka_unit_test(test_thread__the_process_knows_itself),
        cmocka_unit_test(test_thread__the_clock_does_not_go_back),
        cmocka_unit_test(test_thread__random_bytes_differ),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
