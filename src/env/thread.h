/*
 * thread.h - mutexes, conditions, threads, event descriptors and processes for the folders above
 * env that own threads (embedded, bench, cli). Thin names for the system's; a failed start is
 * -errno, everything else asserts.
 */
#ifndef KVARVE_ENV_THREAD_H
#define KVARVE_ENV_THREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kvarve_mutex {
    _Alignas(16) unsigned char storage[64];
} kvarve_mutex;

/* An initialised mutex, for objects that live as long as the process. */
#define KVARVE_MUTEX_INIT {.storage = {0}}

typedef struct kvarve_condition {
    _Alignas(16) unsigned char storage[64];
} kvarve_condition;

typedef struct kvarve_thread {
    _Alignas(16) unsigned char storage[16];
} kvarve_thread;

void mutex_init(kvarve_mutex *mutex);
void mutex_deinit(kvarve_mutex *mutex);
void mutex_lock(kvarve_mutex *mutex);
void mutex_unlock(kvarve_mutex *mutex);

void condition_init(kvarve_condition *condition); /* on the monotonic clock */
void condition_deinit(kvarve_condition *condition);
void condition_signal_all(kvarve_condition *condition);
void condition_signal_one(kvarve_condition *condition); /* at least one waiter, if there is one */
/* Wait until signalled, spuriously woken, or the monotonic clock passes deadline_ns (KVARVE_NEVER:
 * no end). */
void condition_wait(kvarve_condition *condition, kvarve_mutex *mutex, uint64_t deadline_ns);

/* Start `main(context)` on a thread with every signal blocked. 0 or -errno. */
int thread_start(kvarve_thread *thread, void (*main)(void *context), void *context);
void thread_join(kvarve_thread *thread);
/* Sleep until the process ends. For a thread of ours: T2 keeps signals off it. */
_Noreturn void thread_park(void);

/* An eventfd, non-blocking and close-on-exec: >= 0 or -errno. */
int event_open(void);
void event_set(int fd);   /* makes it readable */
void event_clear(int fd); /* makes it unreadable */
void event_close(int fd);
/* Poll one descriptor for reading: true when readable before timeout_ms (UINT32_MAX: no end). */
bool event_wait(int fd, uint32_t timeout_ms);

/*
 * A number that differs in a forked child: handles remember it at open and compare at each call, so
 * that a child's calls can be refused. Costs one relaxed load. fork_guard_arm must have been called
 * once before.
 */
void fork_guard_arm(void);
uint64_t fork_guard_epoch(void);

/* This process, and how many processors it may run on. */
int64_t process_id(void);
uint32_t processor_count(void);
void sleep_ms(
    uint32_t milliseconds); /* for tools that wait for another process; never in library code */

#endif
