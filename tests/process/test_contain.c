/*
 * test_contain.c - a failed assertion of ours fails the store, and its host process lives
 * (docs/design/0003).
 *
 * Each case is a host of its own: a child that opens a store and makes an assertion fail on one
 * kind of thread. It has other threads blocked in calls, and a parent that looks at the folder from
 * outside, while the host lives and after its end. The sweep then fails an assertion at each
 * allocation of a whole session, on whichever thread that is, opening and closing included.
 *
 * cmocka belongs to the parent: in a child CHECK says what is wrong and ends it. A waiter that is
 * not woken ends it as well, by its alarm.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/api_private.h"
#include "base/alloc.h"
#include "base/assert.h"
#include "contract/engine.h"
#include "embedded/embedded_private.h"
#include "support/scratch.h"

#define TOKENS          100u
#define HOST_S          60u /* a host that hangs is killed */
#define TOUCHED_BYTES   (UINT64_C(32) << 20)
#define SWEEP_DENSE     40u /* allocations that are all tried; then every SWEEP_STRIDE-th */
#define SWEEP_STRIDE    11u
#define SWEEP_ROUND_MAX 4000u

#define CHECK(claim)                                                                               \
    do {                                                                                           \
        if (!(claim)) {                                                                            \
            (void)fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__,                       \
                          #claim); /* style: printf, a child's last words */                       \
            _exit(2);                                                                              \
        }                                                                                          \
    } while (0)

typedef enum culprit {
    CALLER_WITH_LOCK,
    CALLER_WITHOUT_LOCK,
    STORE_THREAD,
    POOL_READ,
    POOL_WRITE,
    POOL_COPY,
    INDEX_THREAD,
    CULPRITS
} culprit;

static char scratch[SCRATCH_PATH_MAX];
static char folder[SCRATCH_PATH_MAX + 16];

static kvarve_status open_folder(const char *path, kvarve_store **out, kvarve_error *err)
{
    kvarve_store_options options = KVARVE_STORE_OPTIONS_INIT;

    options.arena_bytes = UINT64_C(4) << 20;
    options.flash_bytes_max = UINT64_C(1) << 30;
    options.segment_bytes = UINT64_C(1) << 20;
    options.pool_threads = 2;
    return kvarve_open(path, &options, out, err);
}

/* --- a host: the child --- */

typedef struct host {
    kvarve_store *store;
    engine machine;
    kvarve_prefix *known;    /* durable before anything fails */
    kvarve_prefix *unfilled; /* begun, and nobody fills it */
    engine_state known_state;
    engine_state unfilled_state;
    engine_state other_state;
    kvarve_put *put;   /* the unfilled one */
    kvarve_put *other; /* a part of it */
    kvarve_lease *lease;
} host;

static void visit_nothing_good(void)
{
    const int answer = 41;

    KVARVE_ASSERT(answer == 42);
}

static int visit_and_fail(void *context, const kvarve_checkpoint_info *info)
{
    (void)context;
    (void)info;
    visit_nothing_good();
    return 1;
}

static void progress_and_fail(void *context, uint64_t done, uint64_t total)
{
    (void)context;
    (void)done;
    (void)total;
    visit_nothing_good();
}

static void run_nothing(kvarve_job *job)
{
    (void)job;
}

static void run_and_fail(kvarve_job *job)
{
    (void)job;
    visit_nothing_good();
}

static kvarve_job job_to_fail;

static void submit(const host *at, kvarve_job *job)
{
    embedded *inside = (embedded *)(void *)at->store->door;
    kvarve_executor *executor = embedded_env(inside)->executor;

    mutex_lock(&inside->mutex);
    executor->submit(executor, job);
    mutex_unlock(&inside->mutex);
}

/* Make it fail; what the call said, KVARVE_UNAVAILABLE where it is not a call that fails. */
static kvarve_status fail_on(const host *at, culprit who, kvarve_error *err)
{
    static const kvarve_lane lanes[CULPRITS] = {[STORE_THREAD] = KVARVE_LANE_COPY,
                                                [POOL_READ] = KVARVE_LANE_READ,
                                                [POOL_WRITE] = KVARVE_LANE_WRITE,
                                                [POOL_COPY] = KVARVE_LANE_COPY,
                                                [INDEX_THREAD] = KVARVE_LANE_INDEX};

    if (who == CALLER_WITH_LOCK) {
        return kvarve_list_checkpoints(at->store, visit_and_fail, NULL, err);
    }
    if (who == CALLER_WITHOUT_LOCK) {
        return kvarve_verify(at->store, progress_and_fail, NULL, NULL, err);
    }
    job_to_fail = (kvarve_job){.lane = lanes[who],
                               .run = who == STORE_THREAD ? run_nothing : run_and_fail,
                               .done = who == STORE_THREAD ? run_and_fail : run_nothing};
    submit(at, &job_to_fail);
    return KVARVE_UNAVAILABLE;
}

static void *wait_for_put(void *context)
{
    const host *at = context;

    CHECK(kvarve_put_wait(at->put, KVARVE_PUT_DURABLE, KVARVE_NO_TIMEOUT, NULL) ==
          KVARVE_UNAVAILABLE);
    return NULL;
}

static void *wait_for_part(void *context)
{
    const host *at = context;

    CHECK(kvarve_put_wait(at->other, KVARVE_PUT_READY, HOST_S * 2000, NULL) == KVARVE_UNAVAILABLE);
    return NULL;
}

static void *wait_for_event(void *context)
{
    const host *at = context;
    struct pollfd one = {.fd = kvarve_event_fd(at->store), .events = POLLIN};
    kvarve_event event;
    kvarve_status status;

    do {
        CHECK(poll(&one, 1, -1) == 1);
        status = kvarve_next_event(at->store, &event);
    } while (status == KVARVE_OK || status == KVARVE_MISS);
    CHECK(status == KVARVE_UNAVAILABLE);
    return NULL;
}

static void await_waiters(const host *at, uint32_t count)
{
    embedded *inside = (embedded *)(void *)at->store->door;
    uint32_t waiters;

    do {
        (void)sched_yield();
        mutex_lock(&inside->mutex);
        waiters = inside->waiters;
        mutex_unlock(&inside->mutex);
    } while (waiters < count);
}

static host open_host(void)
{
    host at = {.known = engine_prefix(1, TOKENS), .unfilled = engine_prefix(2, TOKENS)};
    const engine_begin begin = {.cookie = 7, .timeout_ms = KVARVE_NO_TIMEOUT};
    uint32_t state = 0;

    (void)alarm(HOST_S);
    kvarve_assert_set_containing(true);
    at.known_state = (engine_state){.prefix = at.known, .tokens = TOKENS};
    at.unfilled_state = (engine_state){.prefix = at.unfilled, .tokens = TOKENS};
    at.other_state = (engine_state){.prefix = at.unfilled, .tokens = TOKENS / 2};
    CHECK(open_folder(folder, &at.store, NULL) == KVARVE_OK);
    CHECK(engine_open(&at.machine, at.store, &engine_plain, NULL) == KVARVE_OK);
    CHECK(engine_put(&at.machine, &at.known_state, &state, NULL) == KVARVE_OK);
    CHECK(state == KVARVE_PUT_DURABLE || state == KVARVE_PUT_PRESENT);
    CHECK(engine_find(&at.machine, &at.known_state, KVARVE_LEASE_LOAD, NULL, &at.lease, NULL,
                      NULL) == KVARVE_OK);
    CHECK(kvarve_lease_wait(at.lease, KVARVE_NO_TIMEOUT, NULL, NULL) == KVARVE_OK);
    CHECK(engine_put_begin(&at.machine, &at.unfilled_state, &begin, &at.put, NULL) == KVARVE_OK);
    CHECK(engine_put_begin(&at.machine, &at.other_state, &begin, &at.other, NULL) == KVARVE_OK);
    return at;
}

static void check_text(const kvarve_error *err)
{
    CHECK(err->status == KVARVE_UNAVAILABLE);
    CHECK(strstr(err->text, "tests/process/test_contain.c:") != NULL);
    CHECK(strstr(err->text, "assertion failed: answer == 42") != NULL);
}

static void check_store_calls(const host *at)
{
    kvarve_statistics numbers = KVARVE_STATISTICS_INIT;
    kvarve_namespace_options options = KVARVE_NAMESPACE_OPTIONS_INIT;
    kvarve_namespace *space = NULL;
    kvarve_event event;
    const uint8_t id[32] = {0};
    char text[8];
    kvarve_error err = {0};

    CHECK(kvarve_statistics_get(at->store, &numbers, &err) == KVARVE_UNAVAILABLE);
    check_text(&err);
    CHECK(kvarve_list_checkpoints(at->store, visit_and_fail, NULL, NULL) == KVARVE_UNAVAILABLE);
    CHECK(kvarve_drop(at->store, id, NULL) == KVARVE_UNAVAILABLE);
    CHECK(kvarve_verify(at->store, NULL, NULL, NULL, NULL) == KVARVE_UNAVAILABLE);
    CHECK(kvarve_trim(at->store, NULL, NULL) == KVARVE_UNAVAILABLE);
    CHECK(kvarve_namespace_document(at->store, "x", text, sizeof text, NULL, NULL) ==
          KVARVE_UNAVAILABLE);
    CHECK(kvarve_namespace_open(at->store, &options, &space, NULL) == KVARVE_UNAVAILABLE);
    CHECK(kvarve_namespace_text(at->machine.space)[0] == '\0');
    CHECK(kvarve_event_fd(at->store) >= 0);
    CHECK(kvarve_next_event(at->store, &event) == KVARVE_UNAVAILABLE);
}

static void check_put_calls(const host *at)
{
    kvarve_put_options options = KVARVE_PUT_OPTIONS_INIT;
    kvarve_bulk_item item = {.prefix = at->known, .options = &options};
    const uint32_t *const blocks[2] = {NULL, NULL};
    const size_t block_counts[2] = {0, 0};
    kvarve_put *put = NULL;
    uint8_t id[32];
    char byte = 0;
    size_t count = 0;

    options.tokens = TOKENS;
    CHECK(kvarve_put_begin(at->machine.space, at->known, &options, &put, NULL) ==
          KVARVE_UNAVAILABLE);
    CHECK(kvarve_put_status(at->put) == KVARVE_PUT_ABORTED);
    CHECK(kvarve_put_refusal(at->put) == KVARVE_REFUSED_FAILED);
    CHECK(kvarve_put_id(at->put, id, NULL) == KVARVE_UNAVAILABLE);
    CHECK(kvarve_put_wait(at->put, KVARVE_PUT_READY, 0, NULL) == KVARVE_UNAVAILABLE);
    CHECK(kvarve_put_plan(at->put, 0, NULL, 0, &count, NULL) == KVARVE_UNAVAILABLE);
    CHECK(kvarve_put_write(at->put, 0, 0, 0, &byte, 1, NULL) == KVARVE_UNAVAILABLE);
    CHECK(kvarve_put_copy(at->put, 0, blocks, block_counts, 0, NULL) == KVARVE_UNAVAILABLE);
    CHECK(kvarve_put_ack(at->put, 0, NULL, 0, NULL) == KVARVE_UNAVAILABLE);
    CHECK(kvarve_put_fail(at->put, 0, NULL) == KVARVE_UNAVAILABLE);
    CHECK(kvarve_put_extend(at->put, at->known, 1, NULL, 0, NULL) == KVARVE_UNAVAILABLE);
    CHECK(kvarve_put_close(at->put, at->known, &options, NULL) == KVARVE_UNAVAILABLE);
    CHECK(kvarve_put_many(at->machine.space, &item, 1, NULL) == KVARVE_UNAVAILABLE);
    CHECK(kvarve_regions_register(at->machine.space, 0, NULL, 0, NULL, NULL) == KVARVE_UNAVAILABLE);
    kvarve_put_abort(at->put);
}

static void check_lease_calls(const host *at)
{
    const kvarve_prefix_point point = {.tokens = TOKENS};
    const uint32_t *const blocks[2] = {NULL, NULL};
    const size_t block_counts[2] = {0, 0};
    kvarve_boundary boundary = {.tokens = 77};
    kvarve_page_view view;
    uint8_t bytes[64];
    uint64_t number[3];
    size_t count = 0;

    CHECK(kvarve_find(at->machine.space, at->known, NULL, &boundary, 1, &count, NULL, NULL, NULL) ==
          KVARVE_UNAVAILABLE);
    CHECK(kvarve_find_points(at->machine.space, &point, 1, NULL, &boundary, 1, &count, NULL, NULL,
                             NULL) == KVARVE_UNAVAILABLE);
    CHECK(kvarve_find_all(at->machine.space, at->known, NULL, bytes, sizeof bytes, NULL) ==
          KVARVE_UNAVAILABLE);
    kvarve_lease_boundary(at->lease, &boundary);
    CHECK(boundary.tokens == 77);
    CHECK(kvarve_lease_load(at->lease, 0, NULL) == KVARVE_UNAVAILABLE);
    CHECK(kvarve_lease_wait(at->lease, 0, NULL, NULL) == KVARVE_UNAVAILABLE);
    CHECK(kvarve_lease_extent(at->lease, 0, 0, &number[0], &number[1], &number[2], NULL) ==
          KVARVE_UNAVAILABLE);
    CHECK(kvarve_lease_pages(at->lease, 0, &view, 1, &count, NULL) == KVARVE_UNAVAILABLE);
    CHECK(kvarve_lease_read(at->lease, 0, 0, 0, bytes, sizeof bytes, NULL) == KVARVE_UNAVAILABLE);
    CHECK(kvarve_lease_read_direct(at->lease, 0, 0, 0, bytes, sizeof bytes, NULL) ==
          KVARVE_UNAVAILABLE);
    CHECK(kvarve_lease_copy(at->lease, 0, blocks, block_counts, 0, NULL) == KVARVE_UNAVAILABLE);
    CHECK(kvarve_lease_copy_wait(at->lease, 0, 0, NULL) == KVARVE_UNAVAILABLE);
}

static void check_end(host *at)
{
    kvarve_store *again = NULL;
    kvarve_error err = {0};

    kvarve_put_release(&at->put);
    kvarve_put_release(&at->other);
    kvarve_lease_release(&at->lease);
    kvarve_namespace_release(&at->machine.space);
    CHECK(at->put == NULL && at->other == NULL && at->lease == NULL && at->machine.space == NULL);
    kvarve_close(at->store);
    CHECK(open_folder(folder, &again, &err) == KVARVE_UNAVAILABLE);
    CHECK(strstr(err.text, "this process must end first") != NULL);
    CHECK(strstr(err.text, "tests/process/test_contain.c:") != NULL);
}

/* Another store of the same process knows nothing of it. */
static void check_another_store(const host *at)
{
    char path[sizeof folder + 8];
    kvarve_store *store = NULL;
    engine machine = {0};
    uint32_t state = 0;

    (void)snprintf(path, sizeof path, "%s-2", folder);
    CHECK(open_folder(path, &store, NULL) == KVARVE_OK);
    CHECK(engine_open(&machine, store, &engine_plain, NULL) == KVARVE_OK);
    CHECK(engine_put(&machine, &at->known_state, &state, NULL) == KVARVE_OK);
    CHECK(engine_restore(&machine, &at->known_state, true, NULL) == KVARVE_OK);
    engine_close(&machine);
    kvarve_close(store);
}

static uint8_t be_host(uint64_t who)
{
    host at = open_host();
    pthread_t threads[3];
    kvarve_error err = {0};

    CHECK(pthread_create(&threads[0], NULL, wait_for_put, &at) == 0);
    CHECK(pthread_create(&threads[1], NULL, wait_for_part, &at) == 0);
    CHECK(pthread_create(&threads[2], NULL, wait_for_event, &at) == 0);
    await_waiters(&at, 2);
    CHECK(fail_on(&at, (culprit)who, &err) == KVARVE_UNAVAILABLE);
    if (who <= CALLER_WITHOUT_LOCK) {
        check_text(&err);
    }
    for (size_t i = 0; i < 3; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    check_store_calls(&at);
    check_put_calls(&at);
    check_lease_calls(&at);
    check_end(&at);
    check_another_store(&at);
    return 0;
}

/* --- the parent --- */

/* A host that runs `main`, tells when that has returned, and ends when it is told to. */
typedef struct process {
    pid_t pid;
    int told; /* from it */
    int tell; /* to it */
} process;

static process start_process(uint8_t (*run)(uint64_t what), uint64_t what)
{
    int out[2];
    int in[2];
    process made;

    assert_int_equal(pipe(out), 0); /* NOLINT(android-cloexec-pipe): nothing is executed */
    assert_int_equal(pipe(in), 0);  /* NOLINT(android-cloexec-pipe): the same */
    made = (process){.pid = fork(), .told = out[0], .tell = in[1]};
    assert_true(made.pid >= 0);
    if (made.pid == 0) {
        uint8_t answer;

        close(in[1]);
        answer = run(what);
        CHECK(write(out[1], &answer, 1) == 1);
        CHECK(read(in[0], &answer, 1) == 0); /* the parent has closed its end */
        _exit(0);
    }
    close(out[1]);
    close(in[0]);
    return made;
}

/* Wait until `run` has returned, and what; -1: the process ended before. */
static int await_process(const process *at)
{
    uint8_t answer;

    return read(at->told, &answer, 1) == 1 ? answer : -1;
}

/* Its status as of waitpid. */
static int end_process(const process *at)
{
    int status = 0;

    close(at->tell);
    close(at->told);
    assert_int_equal(waitpid(at->pid, &status, 0), at->pid);
    return status;
}

static void restore_known(bool is_unfilled_there)
{
    kvarve_store *store = NULL;
    engine machine = {0};
    kvarve_prefix *prefixes[2] = {engine_prefix(1, TOKENS), engine_prefix(2, TOKENS)};
    kvarve_error err = {0};

    if (open_folder(folder, &store, &err) != KVARVE_OK) {
        fail_msg("open: %s", err.text);
    }
    assert_int_equal(engine_open(&machine, store, &engine_plain, &err), KVARVE_OK);
    for (size_t i = 0; i < 2; i++) {
        const engine_state state = {.prefix = prefixes[i], .tokens = TOKENS};

        assert_int_equal(engine_restore(&machine, &state, false, &err),
                         i == 0 || is_unfilled_there ? KVARVE_OK : KVARVE_MISS);
        kvarve_prefix_free(prefixes[i]);
    }
    assert_int_equal(kvarve_verify(store, NULL, NULL, NULL, &err), KVARVE_OK);
    engine_close(&machine);
    kvarve_close(store);
}

static void expect_contained(culprit who)
{
    const process child = start_process(be_host, who);
    kvarve_store *store = NULL;
    kvarve_error err = {0};

    assert_int_equal(await_process(&child), 0);
    assert_int_equal(open_folder(folder, &store, &err), KVARVE_BUSY); /* it is still the owner */
    assert_int_equal(end_process(&child), 0);
    restore_known(false);
}

static void test_contain__on_a_callers_thread_under_the_lock(void **state)
{
    (void)state;
    expect_contained(CALLER_WITH_LOCK);
}

static void test_contain__on_a_callers_thread_outside_the_lock(void **state)
{
    (void)state;
    expect_contained(CALLER_WITHOUT_LOCK);
}

static void test_contain__on_the_stores_thread(void **state)
{
    (void)state;
    expect_contained(STORE_THREAD);
}

static void test_contain__on_a_thread_of_the_pool(void **state)
{
    (void)state;
    expect_contained(POOL_READ);
    expect_contained(POOL_WRITE);
    expect_contained(POOL_COPY);
}

static void test_contain__on_the_thread_of_the_index(void **state)
{
    (void)state;
    expect_contained(INDEX_THREAD);
}

/* --- memory of the caller's --- */

typedef struct touching_job {
    kvarve_job job; /* first */
    const host *at;
    unsigned char *bytes;
    atomic_bool has_begun;
    atomic_bool has_ended;
} touching_job;

static touching_job touching[2];
static atomic_bool has_late_begun;

/* A copy into the caller's memory that goes on for a while after the store has failed. */
static void run_touching(kvarve_job *base)
{
    touching_job *job = (touching_job *)(void *)base;

    atomic_store(&job->has_begun, true);
    while (!host_is_failed((embedded *)(void *)job->at->store->door)) {
        (void)sched_yield();
    }
    memset(job->bytes, 1, TOUCHED_BYTES);
    atomic_store(&job->has_ended, true);
}

static void run_late(kvarve_job *job)
{
    (void)job;
    atomic_store(&has_late_begun, true);
}

/* Both threads of the pool copy, and more is queued. */
static uint8_t fail_while_copying(uint64_t who)
{
    static kvarve_job late = {.lane = KVARVE_LANE_COPY, .run = run_late, .done = run_nothing};
    const host at = open_host();
    kvarve_error err = {0};

    for (size_t i = 0; i < 2; i++) {
        touching[i] = (touching_job){
            .job = {.lane = (kvarve_lane)who, .run = run_touching, .done = run_nothing},
            .at = &at,
            .bytes = kvarve_allocate(TOUCHED_BYTES)};
        CHECK(touching[i].bytes != NULL);
        submit(&at, &touching[i].job);
        while (!atomic_load(&touching[i].has_begun)) {
            (void)sched_yield();
        }
    }
    submit(&at, &late);
    CHECK(fail_on(&at, CALLER_WITH_LOCK, &err) == KVARVE_UNAVAILABLE);
    CHECK(atomic_load(&touching[0].has_ended) && atomic_load(&touching[1].has_ended));
    CHECK(!atomic_load(&has_late_begun));
    return 0;
}

static void test_contain__a_call_returns_after_the_last_copy_into_its_memory(void **state)
{
    (void)state;
    const kvarve_lane lanes[] = {KVARVE_LANE_READ, KVARVE_LANE_COPY};

    for (size_t i = 0; i < 2; i++) {
        const process child = start_process(fail_while_copying, lanes[i]);

        assert_int_equal(await_process(&child), 0);
        assert_int_equal(end_process(&child), 0);
    }
}

/* --- where it is not wanted --- */

/* No failure: the handles live on for their release. */
static uint8_t close_too_early(uint64_t what)
{
    host at = open_host();

    (void)what;
    kvarve_close(at.store); /* with two puts, a lease and a namespace */
    kvarve_put_release(&at.put);
    kvarve_lease_release(&at.lease);
    CHECK(kvarve_put_wait(at.other, KVARVE_PUT_READY, 0, NULL) == KVARVE_UNAVAILABLE);
    CHECK(open_folder(folder, &at.store, NULL) == KVARVE_BUSY);
    return 0;
}

static void test_contain__closing_before_the_handles_fails_nothing(void **state)
{
    const process child = start_process(close_too_early, 0);

    (void)state;
    assert_int_equal(await_process(&child), 0);
    assert_int_equal(end_process(&child), 0);
    restore_known(false);
}

static uint8_t fail_as_a_test(uint64_t what)
{
    (void)what;
    (void)close(STDERR_FILENO);
    CHECK(!kvarve_assert_is_containing()); /* support/filter.c */
    visit_nothing_good();
    return 0;
}

static void test_contain__a_test_ends_at_the_first_failure(void **state)
{
    const process child = start_process(fail_as_a_test, 0);
    int status;

    (void)state;
    assert_int_equal(await_process(&child), -1);
    status = end_process(&child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* --- at every allocation of a session --- */

#define ROUND_PUTS 2u
#define HAS_FIRED  0x80u

typedef struct fault {
    uint64_t number;
    atomic_bool has_fired;
} fault;

/* Code of the test's own allocates too: it is passed over, to the next that is contained. */
static int fail_at(void *context, uint64_t number)
{
    fault *at = context;
    const kvarve_assert_handler handler = kvarve_assert_set_handler(NULL);

    (void)kvarve_assert_set_handler(handler);
    if (handler != NULL && number >= at->number && !atomic_exchange(&at->has_fired, true)) {
        visit_nothing_good();
    }
    return 1;
}

static uint64_t seed_of(uint64_t number, uint32_t put)
{
    return 1000 + number * ROUND_PUTS + put;
}

typedef struct session {
    kvarve_store *store;
    engine machine;
    engine_state states[ROUND_PUTS];
    bool is_over; /* a call said so */
} session;

/* Well, or over; and what is over stays so. */
static bool is_well(session *at, kvarve_status status)
{
    CHECK(status == KVARVE_UNAVAILABLE || (status == KVARVE_OK && !at->is_over));
    at->is_over = status == KVARVE_UNAVAILABLE;
    return !at->is_over;
}

/* A life of the store with one put; its bit, if it became durable. */
static uint8_t use_store(session *at, uint32_t put)
{
    kvarve_statistics numbers = KVARVE_STATISTICS_INIT;
    uint32_t state = KVARVE_PUT_ABORTED;
    uint8_t durable = 0;

    if (!is_well(at, engine_open(&at->machine, at->store, &engine_plain, NULL))) {
        return 0;
    }
    if (is_well(at, engine_put(&at->machine, &at->states[put], &state, NULL))) {
        durable = (uint8_t)(state == KVARVE_PUT_DURABLE ? 1u << put : 0);
    }
    (void)is_well(at, kvarve_statistics_get(at->store, &numbers, NULL));
    if ((durable & 1u) != 0) {
        (void)is_well(at, engine_restore(&at->machine, &at->states[0], true, NULL));
    }
    (void)is_well(at, kvarve_verify(at->store, NULL, NULL, NULL, NULL));
    (void)is_well(at, kvarve_trim(at->store, NULL, NULL));
    engine_close(&at->machine);
    return durable;
}

static uint8_t live_through(uint64_t number)
{
    static fault at_number;
    session at = {0};
    kvarve_store *again = NULL;
    kvarve_status status;
    uint8_t durable = 0;
    bool was_made; /* and no store came of it: the first opening failed inside the folder */

    (void)alarm(HOST_S);
    kvarve_assert_set_containing(true);
    for (uint32_t i = 0; i < ROUND_PUTS; i++) {
        at.states[i] =
            (engine_state){.prefix = engine_prefix(seed_of(number, i), TOKENS), .tokens = TOKENS};
    }
    at_number.number = number;
    kvarve_allocate_set_hook(fail_at, &at_number);
    for (uint32_t i = 0; i < ROUND_PUTS && !at.is_over; i++) { /* a new store, and an old one */
        if (is_well(&at, open_folder(folder, &at.store, NULL))) {
            durable |= use_store(&at, i);
            kvarve_close(at.store);
        }
    }
    kvarve_allocate_set_hook(NULL, NULL);
    was_made = access(folder, F_OK) == 0;
    status = open_folder(folder, &again, NULL); /* OK: it failed before it touched the folder */
    CHECK(status == KVARVE_UNAVAILABLE || (status == KVARVE_OK && !(was_made && at.store == NULL)));
    if (status == KVARVE_OK) {
        kvarve_close(again);
    }
    return durable | (uint8_t)(atomic_load(&at_number.has_fired) ? HAS_FIRED : 0);
}

static void restore_round(uint64_t number, int durable)
{
    kvarve_store *store = NULL;
    engine machine = {0};
    kvarve_error err = {0};

    if (open_folder(folder, &store, &err) != KVARVE_OK) {
        fail_msg("open after %llu: %s", (unsigned long long)number, err.text);
    }
    assert_int_equal(engine_open(&machine, store, &engine_plain, &err), KVARVE_OK);
    for (uint32_t i = 0; i < ROUND_PUTS; i++) {
        kvarve_prefix *prefix = engine_prefix(seed_of(number, i), TOKENS);
        const engine_state state = {.prefix = prefix, .tokens = TOKENS};

        if ((durable & (1 << i)) != 0) {
            assert_int_equal(engine_restore(&machine, &state, false, &err), KVARVE_OK);
        }
        kvarve_prefix_free(prefix);
    }
    engine_close(&machine);
    kvarve_close(store);
}

static void test_contain__at_any_allocation_of_a_session(void **state)
{
    uint64_t number = 0;
    uint32_t rounds = 0;
    int answer;

    (void)state;
    do {
        const process child = start_process(live_through, number);

        answer = await_process(&child);
        assert_int_equal(end_process(&child), 0);
        assert_true(answer >= 0);
        restore_round(number, answer);
        scratch_remove(folder);
        rounds++;
        number += number < SWEEP_DENSE ? 1 : SWEEP_STRIDE;
    } while ((answer & (int)HAS_FIRED) != 0 && rounds < SWEEP_ROUND_MAX);
    print_message("  %u sessions, up to allocation %llu\n", rounds, (unsigned long long)number);
    assert_true(rounds > SWEEP_DENSE); /* it bit */
}

static int make_folder(void **state)
{
    (void)state;
    scratch_make(scratch);
    (void)snprintf(folder, sizeof folder, "%s/store", scratch);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    scratch_remove(scratch);
    return 0;
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_contain__on_a_callers_thread_under_the_lock),
        TEST(test_contain__on_a_callers_thread_outside_the_lock),
        TEST(test_contain__on_the_stores_thread),
        TEST(test_contain__on_a_thread_of_the_pool),
        TEST(test_contain__on_the_thread_of_the_index),
        TEST(test_contain__a_call_returns_after_the_last_copy_into_its_memory),
        TEST(test_contain__closing_before_the_handles_fails_nothing),
        TEST(test_contain__a_test_ends_at_the_first_failure),
        TEST(test_contain__at_any_allocation_of_a_session),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
