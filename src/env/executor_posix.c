/*
 * executor_posix.c - jobs on a pool of threads and one thread for the index.
 *
 * Invariants:
 * X1  A pool thread takes READ before COPY before WRITE: loads wait for nobody, copies are short.
 * But while fewer than writes_first WRITE jobs run, they go before COPY: digests of a put, all of
 *     them first, would leave the disk idle for a twentieth of the put.
 * X2  At most writes_max WRITE jobs run, one less than there are threads, so that a burst of writes
 *     leaves a thread to reads. A pool of one has no such thread to leave.
 * X3  submit wakes one thread, and a thread sleeps only when there is nothing that it may take.
 *     What X2 holds back is taken by the thread whose WRITE ends. So no job waits beside an idle
 *     thread that may run it.
 * X4  INDEX jobs are run by one thread, first in, first out.
 * X5  After executor_posix_halt no job begins. COPY and READ jobs may touch a caller's memory: each
 *     is counted before it looks whether it may begin, so whoever halts and then sees none counted
 *     has seen the last of them.
 *
 * Locks: `mutex` is the innermost lock; run, done, notify and failed are called without it.
 * Ownership: a job is the executor's between submit and done.
 */
#include "env/executor_posix_private.h"

#include "base/assert.h"
#include "env/clock.h"

#define WRITES_FIRST_MAX 2u

static bool may_take(const executor_posix *executor, kvarve_lane lane)
{
    if (kvarve_list_is_empty(&executor->queued[lane])) {
        return false;
    }
    return lane != KVARVE_LANE_WRITE || executor->writes_running < executor->writes_max; /* X2 */
}

/* Where the next job for the pool is: a lane, or KVARVE_LANE_INDEX for none. */
static kvarve_lane next_pool_lane(const executor_posix *executor)
{
    static const kvarve_lane order[] = {KVARVE_LANE_READ, KVARVE_LANE_COPY, KVARVE_LANE_WRITE};
    static const kvarve_lane idle[] = {KVARVE_LANE_READ, KVARVE_LANE_WRITE, KVARVE_LANE_COPY};
    const kvarve_lane *lanes = executor->writes_running < executor->writes_first ? idle : order;

    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) { /* X1 */
        if (may_take(executor, lanes[i])) {
            return lanes[i];
        }
    }
    return KVARVE_LANE_INDEX;
}

/* A thread of the pool, for its handler. */
typedef struct worker {
    executor_posix *executor;
    bool has_mutex;
    bool is_touching; /* counted in touching_count */
} worker;

static _Thread_local worker this_worker;

static void enter_mutex(executor_posix *executor)
{
    mutex_lock(&executor->mutex);
    this_worker.has_mutex = true;
}

static void leave_mutex(executor_posix *executor)
{
    this_worker.has_mutex = false;
    mutex_unlock(&executor->mutex);
}

static void end_touching(executor_posix *executor)
{
    this_worker.is_touching = false;
    if (atomic_fetch_sub(&executor->touching_count, 1) == 1 && atomic_load(&executor->is_halted)) {
        mutex_lock(&executor->quiet_mutex);
        condition_signal_all(&executor->quiet);
        mutex_unlock(&executor->quiet_mutex);
    }
}

/* Called with the mutex. False: halted (X5). */
static bool begin_job(executor_posix *executor, kvarve_lane lane)
{
    if (lane == KVARVE_LANE_COPY || lane == KVARVE_LANE_READ) {
        this_worker.is_touching = true;
        (void)atomic_fetch_add(&executor->touching_count, 1);
    }
    if (!atomic_load(&executor->is_halted)) {
        return true;
    }
    if (this_worker.is_touching) {
        end_touching(executor);
    }
    return false;
}

/* An assertion failed on this thread. Its own frames stay as they are; nobody waits for it. */
static void leave_worker(const char *text)
{
    executor_posix *executor = this_worker.executor;

    atomic_store(&executor->is_halted, true); /* before another thread can get at the queues */
    if (this_worker.has_mutex) {
        mutex_unlock(&executor->mutex);
    }
    executor->options.failed(executor->options.notify_context, text);
    if (this_worker.is_touching) {
        end_touching(executor);
    }
    thread_park();
}

static void enter_worker(executor_posix *executor)
{
    this_worker = (worker){.executor = executor};
    if (executor->options.failed != NULL) {
        (void)kvarve_assert_set_handler(leave_worker);
    }
    enter_mutex(executor);
}

/* Take the first job of `lane`, run it unlocked, and put it where poll finds it. Called with the
 * mutex. */
static void run_first(executor_posix *executor, kvarve_lane lane)
{
    kvarve_link *link = kvarve_list_take_first(&executor->queued[lane]);
    kvarve_job *job;

    KVARVE_ASSERT(link != NULL);
    job = KVARVE_LIST_ITEM(link, kvarve_job, link);
    executor->writes_running += lane == KVARVE_LANE_WRITE;
    if (!begin_job(executor, lane)) {
        leave_mutex(executor);
        thread_park();
    }
    leave_mutex(executor);
    job->run(job);
    if (this_worker.is_touching) {
        end_touching(executor);
    }
    enter_mutex(executor);
    executor->writes_running -= lane == KVARVE_LANE_WRITE;
    kvarve_list_append(&executor->finished, link);
    executor->finished_count++;
    if (executor->options.notify != NULL) {
        leave_mutex(executor);
        executor->options.notify(executor->options.notify_context);
        enter_mutex(executor);
    }
}

static void pool_main(void *context)
{
    executor_posix *executor = context;

    enter_worker(executor);
    for (;;) {
        const kvarve_lane lane = next_pool_lane(executor);

        if (lane != KVARVE_LANE_INDEX) {
            run_first(executor, lane);
        } else if (executor->is_stopping) {
            break; /* a WRITE held back by X2 is left to the threads that run WRITE now */
        } else {
            condition_wait(&executor->pool_work, &executor->mutex, KVARVE_NEVER);
        }
    }
    leave_mutex(executor);
}

static void index_main(void *context)
{
    executor_posix *executor = context;

    enter_worker(executor);
    for (;;) {
        if (!kvarve_list_is_empty(&executor->queued[KVARVE_LANE_INDEX])) {
            run_first(executor, KVARVE_LANE_INDEX); /* X4 */
        } else if (executor->is_stopping) {
            break;
        } else {
            condition_wait(&executor->index_work, &executor->mutex, KVARVE_NEVER);
        }
    }
    leave_mutex(executor);
}

static executor_posix *executor_of(kvarve_executor *base)
{
    return (executor_posix *)(void *)base; /* base is its first member */
}

static void posix_submit(kvarve_executor *base, kvarve_job *job)
{
    executor_posix *executor = executor_of(base);
    bool is_stopping;

    KVARVE_ASSERT((unsigned)job->lane < KVARVE_LANE_COUNT);
    if (atomic_load(&executor->is_halted)) {
        return; /* X5; whoever submits is on its way out of the store */
    }
    mutex_lock(&executor->mutex);
    is_stopping = executor->is_stopping;
    kvarve_list_append(&executor->queued[job->lane], &job->link);
    executor->pending++;
    condition_signal_one(job->lane == KVARVE_LANE_INDEX ? &executor->index_work
                                                        : &executor->pool_work); /* X3 */
    mutex_unlock(&executor->mutex);
    KVARVE_ASSERT(!is_stopping);
}

static size_t finished_count(executor_posix *executor)
{
    size_t count;

    mutex_lock(&executor->mutex);
    count = executor->finished_count;
    mutex_unlock(&executor->mutex);
    return count;
}

/* The finished job that waits longest, now its owner's again. There is one: only poll takes them
 * away. */
static kvarve_job *take_finished(executor_posix *executor)
{
    kvarve_link *link;

    mutex_lock(&executor->mutex);
    link = kvarve_list_take_first(&executor->finished);
    executor->finished_count--;
    executor->pending--;
    mutex_unlock(&executor->mutex);
    KVARVE_ASSERT(link != NULL);
    return KVARVE_LIST_ITEM(link, kvarve_job, link);
}

static bool posix_poll(kvarve_executor *base)
{
    executor_posix *executor = executor_of(base);
    const size_t count = finished_count(executor);

    /* Only what is there now: done may submit, and quick jobs must not keep the caller here. */
    for (size_t i = 0; i < count; i++) {
        kvarve_job *job = take_finished(executor);

        job->done(job);
    }
    return count > 0;
}

static size_t posix_pending(kvarve_executor *base)
{
    executor_posix *executor = executor_of(base);
    size_t pending;

    mutex_lock(&executor->mutex);
    pending = executor->pending;
    mutex_unlock(&executor->mutex);
    return pending;
}

int executor_posix_start(executor_posix *executor, const env_posix_options *options)
{
    const uint32_t pool_threads = options->pool_threads;
    int rc;

    KVARVE_ASSERT(pool_threads >= 1 && pool_threads <= EXECUTOR_POOL_MAX);
    *executor = (executor_posix){
        .base = {.submit = posix_submit, .poll = posix_poll, .pending = posix_pending},
        .options = *options,
        .writes_max = pool_threads == 1 ? 1 : pool_threads - 1,
        .writes_first = pool_threads > WRITES_FIRST_MAX ? WRITES_FIRST_MAX : pool_threads - 1,
    };
    mutex_init(&executor->quiet_mutex);
    condition_init(&executor->quiet);
    mutex_init(&executor->mutex);
    condition_init(&executor->pool_work);
    condition_init(&executor->index_work);
    kvarve_list_init(&executor->finished);
    for (int i = 0; i < KVARVE_LANE_COUNT; i++) {
        kvarve_list_init(&executor->queued[i]);
    }
    rc = thread_start(&executor->index, index_main, executor);
    executor->has_index = rc == 0;
    while (rc == 0 && executor->pool_count < pool_threads) {
        rc = thread_start(&executor->pool[executor->pool_count], pool_main, executor);
        executor->pool_count += rc == 0;
    }
    if (rc < 0) {
        executor_posix_stop(executor);
    }
    return rc;
}

void executor_posix_halt(executor_posix *executor)
{
    atomic_store(&executor->is_halted, true);
}

void executor_posix_wait_quiet(executor_posix *executor)
{
    KVARVE_ASSERT(atomic_load(&executor->is_halted));
    mutex_lock(&executor->quiet_mutex);
    while (atomic_load(&executor->touching_count) > 0) {
        condition_wait(&executor->quiet, &executor->quiet_mutex, KVARVE_NEVER);
    }
    mutex_unlock(&executor->quiet_mutex);
}

void executor_posix_stop(executor_posix *executor)
{
    mutex_lock(&executor->mutex);
    executor->is_stopping = true;
    condition_signal_all(&executor->pool_work);
    condition_signal_all(&executor->index_work);
    mutex_unlock(&executor->mutex);
    for (uint32_t i = 0; i < executor->pool_count; i++) {
        thread_join(&executor->pool[i]);
    }
    if (executor->has_index) {
        thread_join(&executor->index);
    }
    condition_deinit(&executor->index_work);
    condition_deinit(&executor->pool_work);
    mutex_deinit(&executor->mutex);
    condition_deinit(&executor->quiet);
    mutex_deinit(&executor->quiet_mutex);
}
