/*
 * test_executor.c - the pool of threads: lanes, their order, and who calls what.
 *
 * Method  Jobs wait at gates that the test opens, so each order is forced by events and never by
 *         time. Runs under the thread sanitizer as well.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "env/env_posix.h"
#include "env/thread.h"

#define NOTES_MAX 64

static kvarve_mutex mutex;
static kvarve_condition changed;
static char notes[NOTES_MAX + 1]; /* names of jobs, in the order in which they ran */
static size_t note_count;
static unsigned waiting; /* jobs at a closed gate */
static bool is_open;
static env_posix *posix;
static int wake_fd;

typedef struct note_job {
    kvarve_job job;
    char name;
    bool is_gated;
    pthread_t done_by;
    unsigned done_count;
} note_job;

static void run_note(kvarve_job *base)
{
    note_job *job = (note_job *)(void *)base;

    mutex_lock(&mutex);
    notes[note_count++] = job->name;
    waiting += job->is_gated;
    condition_signal_all(&changed);
    while (job->is_gated && !is_open) {
        condition_wait(&changed, &mutex, KVARVE_NEVER);
    }
    waiting -= job->is_gated;
    mutex_unlock(&mutex);
}

static void done_note(kvarve_job *base)
{
    note_job *job = (note_job *)(void *)base;

    job->done_by = pthread_self();
    job->done_count++;
}

static void submit(note_job *job, kvarve_lane lane, char name, bool is_gated)
{
    kvarve_executor *executor = env_posix_env(posix)->executor;

    *job = (note_job){.job = {.lane = lane, .run = run_note, .done = done_note},
                      .name = name,
                      .is_gated = is_gated};
    executor->submit(executor, &job->job);
}

static void wait_for_notes(size_t count)
{
    mutex_lock(&mutex);
    while (note_count < count) {
        condition_wait(&changed, &mutex, KVARVE_NEVER);
    }
    mutex_unlock(&mutex);
}

static void open_gate(void)
{
    mutex_lock(&mutex);
    is_open = true;
    condition_signal_all(&changed);
    mutex_unlock(&mutex);
}

static void wake(void *context)
{
    event_set(*(int *)context);
}

/* Poll until nothing is pending, waiting for the pool's notice in between. */
static void poll_all(void)
{
    kvarve_executor *executor = env_posix_env(posix)->executor;

    while (executor->pending(executor) > 0) {
        assert_true(event_wait(wake_fd, UINT32_MAX));
        event_clear(wake_fd);
        (void)executor->poll(executor);
    }
}

static void start_pool(uint32_t threads)
{
    const env_posix_options options = {
        .pool_threads = threads, .notify = wake, .notify_context = &wake_fd};

    assert_int_equal(env_posix_start(&options, &posix, NULL), KVARVE_OK);
}

static int setup(void **state)
{
    (void)state;
    mutex_init(&mutex);
    condition_init(&changed);
    memset(notes, 0, sizeof notes);
    note_count = 0;
    waiting = 0;
    is_open = false;
    posix = NULL;
    wake_fd = event_open();
    return wake_fd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    open_gate();
    env_posix_stop(posix);
    event_close(wake_fd);
    condition_deinit(&changed);
    mutex_deinit(&mutex);
    return kvarve_allocated_blocks() == 0 ? 0 : -1;
}

static void test_executor__reads_go_before_copies_before_writes(void **state)
{
    note_job jobs[7];

    (void)state;
    start_pool(1);
    submit(&jobs[0], KVARVE_LANE_READ, 'g', true);
    wait_for_notes(1);
    submit(&jobs[1], KVARVE_LANE_WRITE, 'w', false);
    submit(&jobs[2], KVARVE_LANE_WRITE, 'W', false);
    submit(&jobs[3], KVARVE_LANE_COPY, 'c', false);
    submit(&jobs[4], KVARVE_LANE_READ, 'r', false);
    submit(&jobs[5], KVARVE_LANE_COPY, 'C', false);
    submit(&jobs[6], KVARVE_LANE_READ, 'R', false);
    open_gate();
    poll_all();
    assert_string_equal(notes, "grRcCwW");
}

static void test_executor__copies_do_not_keep_the_disk_idle(void **state)
{
    note_job jobs[6];
    const char *write;

    (void)state;
    start_pool(2);
    submit(&jobs[0], KVARVE_LANE_READ, 'g', true);
    submit(&jobs[1], KVARVE_LANE_READ, 'g', true);
    wait_for_notes(2);
    submit(&jobs[2], KVARVE_LANE_COPY, 'c', false);
    submit(&jobs[3], KVARVE_LANE_COPY, 'C', false);
    submit(&jobs[4], KVARVE_LANE_COPY, 'C', false);
    submit(&jobs[5], KVARVE_LANE_WRITE, 'w', false);
    open_gate();
    poll_all();
    write = strchr(notes, 'w');
    assert_non_null(write);
    assert_true(write - notes <= 3); /* one of the first two */
}

static void test_executor__writes_leave_one_thread_to_the_others(void **state)
{
    note_job writes[3];
    note_job read;
    note_job copy;

    (void)state;
    start_pool(3);
    for (int i = 0; i < 3; i++) {
        submit(&writes[i], KVARVE_LANE_WRITE, (char)('1' + i), true);
    }
    wait_for_notes(2);
    submit(&read, KVARVE_LANE_READ, 'r', false);
    submit(&copy, KVARVE_LANE_COPY, 'c', false);
    wait_for_notes(4); /* with the two writes still at the gate */
    assert_int_equal(waiting, 2);
    assert_null(strchr(notes, '3'));
    open_gate();
    poll_all();
    assert_int_equal(note_count, 5);
}

static void test_executor__a_pool_of_one_writes_too(void **state)
{
    note_job write;

    (void)state;
    start_pool(1);
    submit(&write, KVARVE_LANE_WRITE, 'w', false);
    poll_all();
    assert_string_equal(notes, "w");
}

static void test_executor__all_threads_read_at_once(void **state)
{
    note_job reads[4];

    (void)state;
    start_pool(4);
    for (int i = 0; i < 4; i++) {
        submit(&reads[i], KVARVE_LANE_READ, 'r', true);
    }
    wait_for_notes(4); /* comes only when none waits for another */
    open_gate();
    poll_all();
}

static void test_executor__index_keeps_its_order_and_waits_for_nobody(void **state)
{
    note_job blocked[2];
    note_job index[20];
    kvarve_executor *executor;

    (void)state;
    start_pool(2);
    executor = env_posix_env(posix)->executor;
    submit(&blocked[0], KVARVE_LANE_READ, 'r', true);
    submit(&blocked[1], KVARVE_LANE_READ, 'r', true);
    wait_for_notes(2);
    for (int i = 0; i < 20; i++) {
        submit(&index[i], KVARVE_LANE_INDEX, (char)('a' + i), false);
    }
    wait_for_notes(22); /* although the pool is taken */
    assert_string_equal(notes + 2, "abcdefghijklmnopqrst");
    assert_true(executor->pending(executor) >= 2);
    open_gate();
    poll_all();
    assert_int_equal(executor->pending(executor), 0);
    assert_false(executor->poll(executor));
}

static void test_executor__done_is_called_once_by_the_one_who_polls(void **state)
{
    note_job job;

    (void)state;
    start_pool(2);
    submit(&job, KVARVE_LANE_COPY, 'c', false);
    wait_for_notes(1);
    assert_int_equal(job.done_count, 0);
    poll_all();
    assert_int_equal(job.done_count, 1);
    assert_true(pthread_equal(job.done_by, pthread_self()));
}

static void test_executor__stop_runs_what_was_submitted(void **state)
{
    note_job jobs[30];

    (void)state;
    start_pool(2);
    submit(&jobs[0], KVARVE_LANE_WRITE, 'g', true);
    wait_for_notes(1);
    for (int i = 1; i < 30; i++) {
        submit(&jobs[i], (kvarve_lane)(i % KVARVE_LANE_COUNT), 'x', false);
    }
    open_gate();
    env_posix_stop(posix);
    posix = NULL;
    assert_int_equal(note_count, 30);
    for (int i = 0; i < 30; i++) {
        assert_int_equal(jobs[i].done_count, 0);
    }
}

/* A job that submits itself again from done, as the store does with the parts of a long read. */
typedef struct counting_job {
    kvarve_job job;
    atomic_uint *total;
    unsigned left;
} counting_job;

static void run_counting(kvarve_job *base)
{
    counting_job *job = (counting_job *)(void *)base;

    (void)atomic_fetch_add(job->total, 1);
    job->left--; /* only what the job owns: no lock */
}

static void done_counting(kvarve_job *base)
{
    counting_job *job = (counting_job *)(void *)base;
    kvarve_executor *executor = env_posix_env(posix)->executor;

    if (job->left > 0) {
        job->job.lane = (kvarve_lane)(job->left % KVARVE_LANE_COUNT);
        executor->submit(executor, &job->job);
    }
}

static void test_executor__many_jobs_come_and_go(void **state)
{
    static counting_job jobs[50];
    atomic_uint total = 0;
    kvarve_executor *executor;

    (void)state;
    start_pool(4);
    executor = env_posix_env(posix)->executor;
    for (int i = 0; i < 50; i++) {
        jobs[i] = (counting_job){.job = {.lane = (kvarve_lane)(i % KVARVE_LANE_COUNT),
                                         .run = run_counting,
                                         .done = done_counting},
                                 .total = &total,
                                 .left = 40};
        executor->submit(executor, &jobs[i].job);
    }
    poll_all();
    assert_int_equal(atomic_load(&total), 50 * 40);
}

typedef struct mask_job {
    kvarve_job job;
    sigset_t mask;
} mask_job;

static void run_mask(kvarve_job *base)
{
    (void)pthread_sigmask(SIG_SETMASK, NULL, &((mask_job *)(void *)base)->mask);
}

static void done_nothing(kvarve_job *job)
{
    (void)job;
}

static void test_executor__its_threads_take_no_signals(void **state)
{
    mask_job jobs[2];
    sigset_t mine;
    kvarve_executor *executor;

    (void)state;
    start_pool(1);
    executor = env_posix_env(posix)->executor;
    for (int i = 0; i < 2; i++) {
        jobs[i].job = (kvarve_job){.lane = i == 0 ? KVARVE_LANE_READ : KVARVE_LANE_INDEX,
                                   .run = run_mask,
                                   .done = done_nothing};
        executor->submit(executor, &jobs[i].job);
    }
    poll_all();
    for (int i = 0; i < 2; i++) {
        assert_true(sigismember(&jobs[i].mask, SIGTERM));
        assert_true(sigismember(&jobs[i].mask, SIGINT));
        assert_true(sigismember(&jobs[i].mask, SIGCHLD));
    }
    (void)pthread_sigmask(SIG_SETMASK, NULL, &mine);
    assert_false(sigismember(&mine, SIGTERM)); /* ours is as it was */
}

static int fail_at(void *context, uint64_t number)
{
    return number != *(const uint64_t *)context;
}

static void test_executor__a_failed_start_leaves_nothing(void **state)
{
    env_posix_options options = {.pool_threads = 0};
    kvarve_error err;
    uint64_t failing;

    (void)state;
    assert_int_equal(env_posix_start(&options, &posix, &err), KVARVE_INVALID);
    options.pool_threads = 65;
    assert_int_equal(env_posix_start(&options, &posix, &err), KVARVE_INVALID);
    options.pool_threads = 3;
    for (failing = 0; failing < 5; failing++) { /* the env, the index thread, three of the pool */
        kvarve_status status;

        kvarve_allocate_set_hook(fail_at, &failing);
        status = env_posix_start(&options, &posix, &err);
        kvarve_allocate_set_hook(NULL, NULL);
        assert_int_equal(status, failing == 0 ? KVARVE_NO_MEMORY : KVARVE_UNAVAILABLE);
        assert_int_equal(err.status, status);
        assert_null(posix);
        assert_int_equal(kvarve_allocated_blocks(), 0);
    }
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        CASE(test_executor__reads_go_before_copies_before_writes),
        CASE(test_executor__copies_do_not_keep_the_disk_idle),
        CASE(test_executor__writes_leave_one_thread_to_the_others),
        CASE(test_executor__a_pool_of_one_writes_too),
        CASE(test_executor__all_threads_read_at_once),
        CASE(test_executor__index_keeps_its_order_and_waits_for_nobody),
        CASE(test_executor__done_is_called_once_by_the_one_who_polls),
        CASE(test_executor__stop_runs_what_was_submitted),
        CASE(test_executor__many_jobs_come_and_go),
        CASE(test_executor__its_threads_take_no_signals),
        CASE(test_executor__a_failed_start_leaves_nothing),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
