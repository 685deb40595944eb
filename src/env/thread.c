/*
 * thread.c - thread.h over pthreads, eventfd and the like.
 *
 * Invariants:
 * T1  The opaque storages hold the system's objects; checked at compile time.
 * T2  A thread begins with every signal blocked: signals belong to the process that embeds us.
 *
 * Threads: as their names say. Only thread_start allocates.
 */
#include "env/thread.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "env/clock.h"
#include "env/env_posix.h"

static_assert(sizeof(pthread_mutex_t) <= sizeof(kvarve_mutex), "T1");
static_assert(sizeof(pthread_cond_t) <= sizeof(kvarve_condition), "T1");
static_assert(sizeof(pthread_t) <= sizeof(kvarve_thread), "T1");

static pthread_mutex_t *mutex_of(kvarve_mutex *mutex)
{
    return (pthread_mutex_t *)(void *)mutex->storage;
}

static pthread_cond_t *condition_of(kvarve_condition *condition)
{
    return (pthread_cond_t *)(void *)condition->storage;
}

void mutex_init(kvarve_mutex *mutex)
{
    const int rc = pthread_mutex_init(mutex_of(mutex), NULL);

    KVARVE_ASSERT(rc == 0);
}

void mutex_deinit(kvarve_mutex *mutex)
{
    const int rc = pthread_mutex_destroy(mutex_of(mutex));

    KVARVE_ASSERT(rc == 0);
}

void mutex_lock(kvarve_mutex *mutex)
{
    const int rc = pthread_mutex_lock(mutex_of(mutex));

    KVARVE_ASSERT(rc == 0);
}

void mutex_unlock(kvarve_mutex *mutex)
{
    const int rc = pthread_mutex_unlock(mutex_of(mutex));

    KVARVE_ASSERT(rc == 0);
}

void condition_init(kvarve_condition *condition)
{
    pthread_condattr_t attributes;
    int rc = pthread_condattr_init(&attributes);

    KVARVE_ASSERT(rc == 0);
    rc = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    KVARVE_ASSERT(rc == 0);
    rc = pthread_cond_init(condition_of(condition), &attributes);
    KVARVE_ASSERT(rc == 0);
    (void)pthread_condattr_destroy(&attributes);
}

void condition_deinit(kvarve_condition *condition)
{
    const int rc = pthread_cond_destroy(condition_of(condition));

    KVARVE_ASSERT(rc == 0);
}

void condition_signal_all(kvarve_condition *condition)
{
    const int rc = pthread_cond_broadcast(condition_of(condition));

    KVARVE_ASSERT(rc == 0);
}

void condition_signal_one(kvarve_condition *condition)
{
    const int rc = pthread_cond_signal(condition_of(condition));

    KVARVE_ASSERT(rc == 0);
}

void condition_wait(kvarve_condition *condition, kvarve_mutex *mutex, uint64_t deadline_ns)
{
    struct timespec deadline;
    int rc;

    if (deadline_ns == KVARVE_NEVER) {
        rc = pthread_cond_wait(condition_of(condition), mutex_of(mutex));
        KVARVE_ASSERT(rc == 0);
        return;
    }
    deadline.tv_sec = (time_t)(deadline_ns / KVARVE_NS_PER_S);
    deadline.tv_nsec = (long)(deadline_ns % KVARVE_NS_PER_S);
    rc = pthread_cond_timedwait(condition_of(condition), mutex_of(mutex), &deadline);
    KVARVE_ASSERT(rc == 0 || rc == ETIMEDOUT);
}

typedef struct thread_begin {
    void (*main)(void *context);
    void *context;
} thread_begin;

static void *thread_main(void *argument)
{
    const thread_begin begin = *(const thread_begin *)argument;

    kvarve_release(argument);
    begin.main(begin.context);
    return NULL;
}

int thread_start(kvarve_thread *thread, void (*main)(void *context), void *context)
{
    thread_begin *begin = kvarve_allocate(sizeof *begin);
    sigset_t all;
    sigset_t before;
    int rc;

    if (begin == NULL) {
        return -ENOMEM;
    }
    *begin = (thread_begin){.main = main, .context = context};
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* T2: the new thread inherits it */
    rc = pthread_create((pthread_t *)(void *)thread->storage, NULL, thread_main, begin);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        kvarve_release(begin);
    }
    return -rc;
}

void thread_join(kvarve_thread *thread)
{
    const int rc = pthread_join(*(pthread_t *)(void *)thread->storage, NULL);

    KVARVE_ASSERT(rc == 0);
}

_Noreturn void thread_park(void)
{
    for (;;) {
        (void)pause();
    }
}

int event_open(void)
{
    const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

void event_set(int fd)
{
    const uint64_t one = 1;
    ssize_t rc;

    do {
        rc = write(fd, &one, sizeof one);
    } while (rc < 0 && errno == EINTR);
    KVARVE_ASSERT(rc == (ssize_t)sizeof one || errno == EAGAIN); /* full is readable too */
}

void event_clear(int fd)
{
    uint64_t count;
    ssize_t rc;

    do {
        rc = read(fd, &count, sizeof count);
    } while (rc < 0 && errno == EINTR);
    KVARVE_ASSERT(rc == (ssize_t)sizeof count || errno == EAGAIN); /* it was clear */
}

void event_close(int fd)
{
    (void)close(fd);
}

static int milliseconds_until(uint64_t deadline_ns)
{
    kvarve_clock *clock = clock_posix();
    const uint64_t now_ns = clock->monotonic_ns(clock);
    uint64_t left_ms;

    if (deadline_ns == KVARVE_NEVER) {
        return -1;
    }
    if (now_ns >= deadline_ns) {
        return 0;
    }
    left_ms = (deadline_ns - now_ns + KVARVE_NS_PER_MS - 1) / KVARVE_NS_PER_MS;
    return left_ms > INT32_MAX ? INT32_MAX : (int)left_ms;
}

bool event_wait(int fd, uint32_t timeout_ms)
{
    kvarve_clock *clock = clock_posix();
    const uint64_t deadline_ns = timeout_ms == UINT32_MAX
                                     ? KVARVE_NEVER
                                     : clock->monotonic_ns(clock) + timeout_ms * KVARVE_NS_PER_MS;
    struct pollfd asked = {.fd = fd, .events = POLLIN};
    int rc;

    do {
        rc = poll(&asked, 1, milliseconds_until(deadline_ns));
    } while (rc < 0 && errno == EINTR);
    return rc > 0 && (asked.revents & POLLIN) != 0;
}

static _Atomic uint64_t fork_epoch = 1;

static void count_fork(void)
{
    (void)atomic_fetch_add_explicit(&fork_epoch, 1, memory_order_relaxed);
}

static void arm_once(void)
{
    const int rc = pthread_atfork(NULL, NULL, count_fork);

    KVARVE_ASSERT(rc == 0);
}

void fork_guard_arm(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const int rc = pthread_once(&once, arm_once);

    KVARVE_ASSERT(rc == 0);
}

uint64_t fork_guard_epoch(void)
{
    return atomic_load_explicit(&fork_epoch, memory_order_relaxed);
}

int64_t process_id(void)
{
    return getpid();
}

uint32_t processor_count(void)
{
    cpu_set_t set;
    long count;

    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        return (uint32_t)CPU_COUNT(&set);
    }
    count = sysconf(_SC_NPROCESSORS_ONLN); /* more processors than the set has bits */
    return count > 0 ? (uint32_t)count : 1;
}

void sleep_ms(uint32_t milliseconds)
{
    struct timespec left = {
        .tv_sec = (time_t)(milliseconds / 1000),
        .tv_nsec = (long)(milliseconds % 1000) * (long)KVARVE_NS_PER_MS,
    };

    while (nanosleep(&left, &left) < 0 && errno == EINTR) {
    }
}
