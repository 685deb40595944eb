/*
 * test_client.c - a client whose daemon is killed, stops, or was never there; and several clients
 * of one.
 *
 * Whatever waits then is told KVARVE_UNAVAILABLE, in every thread, and nothing is left behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "client/client.h"
#include "contract/door_daemon.h"
#include "contract/engine.h"
#include "env/env_posix.h"
#include "env/socket.h"
#include "env/thread.h"
#include "kvarve/admin.h"
#include "protocol/protocol.h"
#include "support/scratch.h"

#define WAITERS  4u
#define TOKENS   100u
#define SHORT_MS 200u

typedef struct served {
    char scratch[SCRATCH_PATH_MAX];
    char folder[SCRATCH_PATH_MAX + 16];
    char socket[SCRATCH_PATH_MAX + 16];
    kvarve_store_options options;
    kvarve_store *store;
    pid_t daemon;
    uint64_t blocks;
} served;

static kvarve_error err;

static int setup(void **state)
{
    static served at;

    at = (served){.options = KVARVE_STORE_OPTIONS_INIT, .blocks = kvarve_allocated_blocks()};
    at.options.arena_bytes = UINT64_C(4) << 20;
    at.options.flash_bytes_max = UINT64_C(64) << 20;
    at.options.segment_bytes = UINT64_C(1) << 20;
    at.options.pool_threads = 2;
    at.options.io_timeout_ms = 30000;
    scratch_make(at.scratch);
    (void)snprintf(at.folder, sizeof at.folder, "%s/store", at.scratch);
    (void)snprintf(at.socket, sizeof at.socket, "%s/socket", at.scratch);
    *state = &at;
    return door_daemon_start(at.folder, at.socket, &at.options, &at.daemon, &at.store, &err) ==
                   KVARVE_OK
               ? 0
               : -1;
}

static int teardown(void **state)
{
    served *at = *state;

    kvarve_close(at->store);
    door_daemon_stop(at->daemon);
    scratch_remove(at->scratch);
    if (kvarve_allocated_blocks() != at->blocks) {
        print_error("left behind: %zu blocks\n", (size_t)(kvarve_allocated_blocks() - at->blocks));
        return -1;
    }
    return 0;
}

static void kill_daemon(served *at)
{
    assert_int_equal(kill(at->daemon, SIGKILL), 0);
    assert_int_equal(waitpid(at->daemon, NULL, 0), at->daemon);
    at->daemon = 0;
}

/* --- who waits --- */

typedef struct waiter {
    pthread_t thread;
    kvarve_put *put; /* or: its store's events are polled */
    kvarve_store *store;
    atomic_bool is_over; /* nothing more is going to be told */
    kvarve_status status;
} waiter;

static void *run_waiter(void *argument)
{
    waiter *at = argument;
    kvarve_event event;

    if (at->put != NULL) {
        at->status = kvarve_put_wait(at->put, KVARVE_PUT_READY, KVARVE_NO_TIMEOUT, NULL);
        return NULL;
    }
    do {
        (void)event_wait(kvarve_event_fd(at->store), 100);
        at->status = kvarve_next_event(at->store, &event);
    } while (at->status != KVARVE_UNAVAILABLE && !atomic_load(&at->is_over));
    return NULL;
}

/* A put that nobody fills, with threads that wait for it, and one for events. */
typedef struct scene {
    engine machine;
    kvarve_prefix *prefix;
    kvarve_put *put;
    waiter waiters[WAITERS];
} scene;

static void begin_scene(kvarve_store *store, scene *of)
{
    const engine_begin more = {.cookie = 1, .timeout_ms = 600000};
    engine_state here = {.tokens = TOKENS};

    *of = (scene){.prefix = engine_prefix(1, TOKENS)};
    here.prefix = of->prefix;
    assert_int_equal(engine_open(&of->machine, store, &engine_plain, &err), KVARVE_OK);
    assert_int_equal(engine_put_begin(&of->machine, &here, &more, &of->put, &err), KVARVE_OK);
    assert_int_equal(kvarve_put_wait(of->put, KVARVE_PUT_STAGED, 20000, &err), KVARVE_OK);
    for (uint32_t i = 0; i < WAITERS; i++) {
        of->waiters[i] = (waiter){.put = i == 0 ? NULL : of->put, .store = store};
        assert_int_equal(pthread_create(&of->waiters[i].thread, NULL, run_waiter, &of->waiters[i]),
                         0);
    }
    /* They are waiting when the daemon has been asked something by this thread meanwhile. */
    assert_int_equal(kvarve_put_wait(of->put, KVARVE_PUT_READY, 50, &err), KVARVE_BUSY);
}

static void end_scene(kvarve_store *store, scene *of)
{
    kvarve_statistics statistics = KVARVE_STATISTICS_INIT;
    kvarve_lease *lease = NULL;
    kvarve_namespace *space = of->machine.space;

    for (uint32_t i = 0; i < WAITERS; i++) {
        assert_int_equal(pthread_join(of->waiters[i].thread, NULL), 0);
        assert_int_equal(of->waiters[i].status, KVARVE_UNAVAILABLE);
    }
    assert_int_equal(kvarve_statistics_get(store, &statistics, &err), KVARVE_UNAVAILABLE);
    assert_int_equal(kvarve_find(space, of->prefix, NULL, NULL, 0, NULL, &lease, NULL, &err),
                     KVARVE_UNAVAILABLE);
    assert_int_equal(kvarve_put_status(of->put), KVARVE_PUT_ABORTED);
    assert_int_equal(kvarve_put_refusal(of->put), KVARVE_REFUSED_FAILED);
    kvarve_put_release(&of->put);
    engine_close(&of->machine);
    kvarve_prefix_free(of->prefix);
}

static void test_client__all_threads_are_told_that_the_daemon_was_killed(void **state)
{
    served *at = *state;
    scene of;

    begin_scene(at->store, &of);
    kill_daemon(at);
    end_scene(at->store, &of);
    assert_non_null(strstr(err.text, "gone"));
}

static kvarve_status open_another(const served *at, uint32_t io_timeout_ms, kvarve_store **out)
{
    kvarve_store_options options = KVARVE_STORE_OPTIONS_INIT;
    char endpoint[sizeof at->socket + 8];

    (void)snprintf(endpoint, sizeof endpoint, "unix:%s", at->socket);
    options.io_timeout_ms = io_timeout_ms;
    return kvarve_open(endpoint, &options, out, &err);
}

/* Alive, but it does nothing any more. */
static void test_client__a_daemon_that_stopped_is_given_up_after_the_timeout(void **state)
{
    served *at = *state;
    kvarve_store *impatient = NULL;
    scene of;

    assert_int_equal(open_another(at, SHORT_MS, &impatient), KVARVE_OK);
    begin_scene(impatient, &of);
    assert_int_equal(kill(at->daemon, SIGSTOP), 0);
    for (uint32_t i = 1; i < WAITERS; i++) {
        assert_int_equal(pthread_join(of.waiters[i].thread, NULL), 0);
        assert_int_equal(of.waiters[i].status, KVARVE_UNAVAILABLE);
        assert_int_equal(pthread_create(&of.waiters[i].thread, NULL, run_waiter, &of.waiters[i]),
                         0);
    }
    end_scene(impatient, &of);
    kvarve_close(impatient);
    kill_daemon(at);
}

/* What was durable is there for another client, and what an engine had open is over. */
static void test_client__another_client_goes_on_with_the_next_daemon(void **state)
{
    served *at = *state;
    kvarve_prefix *prefix = engine_prefix(2, TOKENS);
    const engine_state here = {.prefix = prefix, .tokens = TOKENS};
    uint32_t ended = 0;
    engine machine;
    scene of;

    assert_int_equal(engine_open(&machine, at->store, &engine_plain, &err), KVARVE_OK);
    assert_int_equal(engine_put(&machine, &here, &ended, &err), KVARVE_OK);
    assert_int_equal(ended, KVARVE_PUT_DURABLE);
    begin_scene(at->store, &of);
    kill_daemon(at);
    end_scene(at->store, &of);
    engine_close(&machine);
    kvarve_close(at->store);
    at->store = NULL;
    assert_int_equal(
        door_daemon_start(at->folder, at->socket, &at->options, &at->daemon, &at->store, &err),
        KVARVE_OK);
    assert_int_equal(engine_open(&machine, at->store, &engine_plain, &err), KVARVE_OK);
    assert_int_equal(engine_restore(&machine, &here, true, &err), KVARVE_OK);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

/* Addresses that were given out stay readable, whatever became of the daemon. */
static void test_client__pages_in_place_outlive_the_daemon(void **state)
{
    served *at = *state;
    kvarve_prefix *prefix = engine_prefix(3, TOKENS);
    const engine_state here = {.prefix = prefix, .tokens = TOKENS};
    kvarve_page_view views[64];
    kvarve_lease *lease = NULL;
    uint32_t ended = 0;
    size_t count = 0;
    engine machine;

    assert_int_equal(engine_open(&machine, at->store, &engine_plain, &err), KVARVE_OK);
    assert_int_equal(engine_put(&machine, &here, &ended, &err), KVARVE_OK);
    assert_int_equal(engine_find(&machine, &here, KVARVE_LEASE_LOAD, NULL, &lease, NULL, &err),
                     KVARVE_OK);
    assert_int_equal(kvarve_lease_wait(lease, 20000, NULL, &err), KVARVE_OK);
    assert_int_equal(kvarve_lease_pages(lease, 0, views, 64, &count, &err), KVARVE_OK);
    assert_true(count > 1 && count <= 64);
    kill_daemon(at);
    assert_int_equal(kvarve_lease_load(lease, 0, &err), KVARVE_UNAVAILABLE);
    assert_int_equal(kvarve_lease_pages(lease, 0, views, 64, &count, &err), KVARVE_UNAVAILABLE);
    for (size_t i = 0; i < count; i++) {
        assert_true(engine_is_right(&machine, &here, 0, views[i].group, views[i].position,
                                    views[i].address, views[i].size));
    }
    kvarve_lease_release(&lease);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

/* One that waits for nothing but a copy of its own is woken by its end. */
static void test_client__the_end_of_a_copy_wakes_whoever_receives(void **state)
{
    enum { PAGE = 1 << 20, PAGES = 3 };
    served *at = *state;
    kvarve_prefix *prefix = engine_prefix(6, 16u * PAGES);
    static uint8_t memory[PAGES][PAGE];
    static const uint32_t order[PAGES] = {0, 1, 2};
    const uint32_t *const blocks[] = {order};
    const size_t counts[] = {PAGES};
    const uint32_t block_tokens[] = {16};
    const kvarve_group group = {.span_tokens = 16, .page_bytes = PAGE};
    const kvarve_region region = {.base = memory,
                                  .block_stride = PAGE,
                                  .row_bytes = PAGE / 16,
                                  .run_count = 1,
                                  .block_count = PAGES};
    kvarve_namespace_options options = KVARVE_NAMESPACE_OPTIONS_INIT;
    kvarve_find_options wanted = KVARVE_FIND_OPTIONS_INIT;
    kvarve_put_options whole = KVARVE_PUT_OPTIONS_INIT;
    kvarve_store *patient = NULL;
    kvarve_namespace *space = NULL;
    kvarve_put *put = NULL;
    kvarve_lease *lease = NULL;

    assert_int_equal(open_another(at, 3600000, &patient), KVARVE_OK);
    options.identity_json = "{}";
    options.groups = &group;
    options.group_count = 1;
    assert_int_equal(kvarve_namespace_open(patient, &options, &space, &err), KVARVE_OK);
    assert_int_equal(kvarve_regions_register(space, 0, &region, 1, block_tokens, &err), KVARVE_OK);
    whole.tokens = 16u * PAGES;
    assert_int_equal(kvarve_put_begin(space, prefix, &whole, &put, &err), KVARVE_OK);
    assert_int_equal(kvarve_put_wait(put, KVARVE_PUT_STAGED, 20000, &err), KVARVE_OK);
    assert_int_equal(kvarve_put_copy(put, 0, blocks, counts, 0, &err), KVARVE_OK);
    assert_int_equal(kvarve_put_wait(put, KVARVE_PUT_DURABLE, 20000, &err), KVARVE_OK);
    kvarve_put_release(&put);
    wanted.lease = KVARVE_LEASE_LOAD;
    assert_int_equal(kvarve_find(space, prefix, &wanted, NULL, 0, NULL, &lease, NULL, &err),
                     KVARVE_OK);
    assert_int_equal(kvarve_lease_wait(lease, 20000, NULL, &err), KVARVE_OK);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(kvarve_lease_copy(lease, 0, blocks, counts, 0, &err), KVARVE_OK);
        assert_int_equal(kvarve_lease_copy_wait(lease, 0, KVARVE_NO_TIMEOUT, &err), KVARVE_OK);
    }
    kvarve_lease_release(&lease);
    kvarve_namespace_release(&space);
    kvarve_close(patient);
    kvarve_prefix_free(prefix);
}

/* A daemon parks so many requests of a client; those that it must not do without are not the ones
 * that are refused. */
static void test_client__many_waits_leave_room_for_other_requests(void **state)
{
    enum { PUTS = 300 };
    served *at = *state;
    const engine_begin more = {.timeout_ms = 600000};
    static kvarve_put *puts[PUTS];
    kvarve_prefix *prefix = engine_prefix(7, TOKENS);
    kvarve_prefix *stored = engine_prefix(8, TOKENS);
    engine_state here = {.prefix = prefix};
    const engine_state kept = {.prefix = stored, .tokens = TOKENS};
    uint32_t ended = 0;
    kvarve_boundary boundary = {0};
    engine machine;

    assert_int_equal(engine_open(&machine, at->store, &engine_plain, &err), KVARVE_OK);
    assert_int_equal(engine_put(&machine, &kept, &ended, &err), KVARVE_OK);
    assert_int_equal(engine_find(&machine, &kept, KVARVE_LEASE_NONE, &boundary, NULL, NULL, &err),
                     KVARVE_OK);
    for (uint32_t i = 0; i < PUTS; i++) {
        here.kind = i % 3;
        here.tokens = 1 + i / 3; /* all of one prefix: they wait for each other's pages */
        assert_int_equal(engine_put_begin(&machine, &here, &more, &puts[i], &err), KVARVE_OK);
        assert_int_equal(kvarve_put_wait(puts[i], KVARVE_PUT_READY, 1, &err), KVARVE_BUSY);
    }
    assert_int_equal(kvarve_drop(at->store, boundary.id, &err), KVARVE_OK);
    for (uint32_t i = 0; i < PUTS; i++) {
        kvarve_put_release(&puts[i]);
    }
    engine_close(&machine);
    kvarve_prefix_free(stored);
    kvarve_prefix_free(prefix);
}

/* Two clients: what one puts the other finds, and waits for what the other copies. */
static void test_client__two_of_one_daemon_share_a_store(void **state)
{
    served *at = *state;
    kvarve_prefix *prefix = engine_prefix(4, TOKENS);
    const engine_state here = {.prefix = prefix, .tokens = TOKENS};
    kvarve_store *other = NULL;
    kvarve_put *put = NULL;
    kvarve_put *same = NULL;
    engine_work work = {0};
    engine machine;
    engine second;

    assert_int_equal(open_another(at, 30000, &other), KVARVE_OK);
    assert_int_equal(engine_open(&machine, at->store, &engine_hybrid, &err), KVARVE_OK);
    assert_int_equal(engine_open(&second, other, &engine_hybrid, &err), KVARVE_OK);
    assert_string_equal(kvarve_namespace_text(machine.space), kvarve_namespace_text(second.space));
    assert_int_equal(engine_put_begin(&machine, &here, NULL, &put, &err), KVARVE_OK);
    assert_int_equal(kvarve_put_wait(put, KVARVE_PUT_STAGED, 20000, &err), KVARVE_OK);
    assert_int_equal(engine_put_begin(&second, &here, NULL, &same, &err), KVARVE_OK);
    assert_int_equal(kvarve_put_wait(same, KVARVE_PUT_STAGED, 20000, &err), KVARVE_OK);
    assert_int_equal(engine_put_ranks(&second, same, &here, &work, &err), KVARVE_OK);
    assert_true(work.waiting > 0 && work.copied == 0);
    assert_int_equal(engine_put_ranks(&machine, put, &here, NULL, &err), KVARVE_OK);
    assert_int_equal(kvarve_put_wait(same, KVARVE_PUT_DURABLE, 20000, &err), KVARVE_OK);
    assert_int_equal(kvarve_put_status(same), KVARVE_PUT_PRESENT);
    assert_int_equal(engine_restore(&second, &here, true, &err), KVARVE_OK);
    assert_int_equal(engine_restore(&second, &here, false, &err), KVARVE_OK);
    kvarve_put_release(&same);
    kvarve_put_release(&put);
    engine_close(&second);
    engine_close(&machine);
    kvarve_close(other);
    kvarve_prefix_free(prefix);
}

/* --- a failed assertion of ours, in a process of its own --- */

#define HOST_S 60u /* one that hangs is killed */

typedef struct culprit {
    atomic_uint_fast64_t allocations;
    uint64_t at;
    atomic_bool is_hit;
} culprit;

static int fail_at(void *context, uint64_t number)
{
    culprit *of = context;
    const kvarve_assert_handler handler = kvarve_assert_set_handler(NULL);

    (void)number;
    (void)kvarve_assert_set_handler(handler);
    if (handler == NULL) {
        return 1; /* not inside of a call of the library's */
    }
    if (atomic_fetch_add(&of->allocations, 1) == of->at) {
        atomic_store(&of->is_hit, true);
        KVARVE_ASSERT(of == NULL);
    }
    return 1;
}

/* All that an engine does, whatever comes of it. */
static void use_store(kvarve_store *store)
{
    kvarve_prefix *prefix = engine_prefix(5, TOKENS);
    const engine_state here = {.prefix = prefix, .tokens = TOKENS};
    kvarve_statistics statistics = KVARVE_STATISTICS_INIT;
    engine machine = {0};

    if (engine_open(&machine, store, &engine_plain, NULL) == KVARVE_OK) {
        (void)!engine_put(&machine, &here, NULL, NULL);
        (void)!engine_restore(&machine, &here, true, NULL);
        (void)!engine_restore(&machine, &here, false, NULL);
        (void)!kvarve_statistics_get(store, &statistics, NULL);
        engine_close(&machine);
    }
    kvarve_prefix_free(prefix);
}

/* How that process ends; more: something is not as it should be. */
enum { CLIENT_FAILED, CALL_FAILED, NOTHING_FAILED };

static int live_with_a_failure(const served *at, uint64_t number)
{
    static culprit of;
    kvarve_statistics statistics = KVARVE_STATISTICS_INIT;
    waiter polling = {0};
    kvarve_store *store = NULL;

    (void)alarm(HOST_S);
    kvarve_assert_set_containing(true);
    if (open_another(at, 30000, &store) != KVARVE_OK) {
        return 10;
    }
    polling.store = store;
    if (pthread_create(&polling.thread, NULL, run_waiter, &polling) != 0) {
        return 11;
    }
    of.at = number;
    kvarve_allocate_set_hook(fail_at, &of);
    use_store(store);
    kvarve_allocate_set_hook(NULL, NULL);
    if (kvarve_statistics_get(store, &statistics, NULL) == KVARVE_OK) {
        use_store(store); /* the client had no part in it, and goes on */
        atomic_store(&polling.is_over, true);
        (void)pthread_join(polling.thread, NULL);
        return atomic_load(&of.is_hit) ? CALL_FAILED : NOTHING_FAILED;
    }
    (void)pthread_join(polling.thread, NULL);
    kvarve_close(store);
    return polling.status == KVARVE_UNAVAILABLE ? CLIENT_FAILED : 12;
}

static void test_contain__a_failed_assertion_fails_the_client_and_the_host_lives(void **state)
{
    served *at = *state;
    uint64_t number = 0;
    uint32_t clients = 0;
    int how = CLIENT_FAILED;

    kvarve_close(at->store); /* no threads where it forks */
    at->store = NULL;
    for (; how != NOTHING_FAILED; number++) {
        const pid_t child = fork();

        if (child == 0) {
            _exit(live_with_a_failure(at, number));
        }
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFEXITED(how));
        how = WEXITSTATUS(how);
        assert_in_range(how, CLIENT_FAILED, NOTHING_FAILED);
        clients += how == CLIENT_FAILED;
    }
    print_message("%zu assertions, %u clients failed\n", (size_t)number, clients);
    assert_true(clients > 5);
}

/* --- what answers is no daemon --- */

static kvarve_status connect_to(int peer[2], door **out)
{
    const client_options options = {
        .io_timeout_ms = 20, .letter_bytes = UINT64_C(1) << 20, .pool_threads = 1};
    client_transport *transport = NULL;

    assert_int_equal(client_socket_transport(peer[0], &transport, &err), KVARVE_OK);
    return client_open(transport, &options, out, &err);
}

static wire_message welcome(uint64_t arena_bytes)
{
    wire_message message = {.type = WIRE_WELCOME, .id = 1};

    message.as.welcome =
        (wire_welcome){.version = 1, .io_timeout_ms = 20, .epoch = 1, .arena_bytes = arena_bytes};
    return message;
}

static void say(int peer, const wire_message *message, int passed)
{
    uint8_t bytes[WIRE_MESSAGE_MAX];
    size_t size = 0;

    assert_int_equal(wire_encode(message, bytes, sizeof bytes, &size, &err), KVARVE_OK);
    assert_int_equal(socket_send(peer, bytes, size, passed), 0);
}

/* What it says is in the socket before it is asked. */
static void assert_no_daemon(const wire_message *message, int passed)
{
    door *opened = NULL;
    int peer[2];

    assert_int_equal(socket_pair(peer), 0);
    if (message != NULL) {
        say(peer[1], message, passed);
    }
    assert_int_equal(connect_to(peer, &opened), KVARVE_UNAVAILABLE);
    assert_true(err.text[0] != '\0');
    socket_close(peer[1]);
}

static void test_connect__what_is_no_daemon_is_not_believed(void **state)
{
    const uint64_t blocks = kvarve_allocated_blocks();
    kvarve_memory *memory = memory_posix();
    wire_message message = welcome(1 << 20);
    kvarve_mapping arena;
    int peer[2];
    door *opened = NULL;

    (void)state;
    assert_no_daemon(NULL, -1);     /* it says nothing */
    assert_no_daemon(&message, -1); /* no arena comes with it */
    assert_int_equal(memory->create(memory, MEMORY_SHARED, "arena", 1 << 20, &arena), 0);
    assert_no_daemon(&message, arena.fd); /* another arena than it says: the fingerprint */
    message = welcome((1 << 20) + 4096);
    assert_no_daemon(&message, arena.fd); /* of another size */
    message = welcome(0);
    assert_no_daemon(&message, arena.fd);
    message = welcome(1 << 20);
    message.id = 2;
    assert_no_daemon(&message, arena.fd);
    message = (wire_message){.type = WIRE_DONE, .id = 1};
    assert_no_daemon(&message, -1);
    memory->destroy(memory, &arena);
    assert_int_equal(socket_pair(peer), 0);
    socket_close(peer[1]);
    assert_int_equal(connect_to(peer, &opened), KVARVE_UNAVAILABLE);
    assert_int_equal(kvarve_allocated_blocks(), blocks);
}

static void test_connect__the_daemons_refusal_is_the_answer(void **state)
{
    wire_message message = {.type = WIRE_ERROR, .id = 1};
    door *opened = NULL;
    int peer[2];

    (void)state;
    message.as.error = (wire_error){.status = KVARVE_UNSUPPORTED, .text = "versions 5 .. 6"};
    assert_int_equal(socket_pair(peer), 0);
    say(peer[1], &message, -1);
    assert_int_equal(connect_to(peer, &opened), KVARVE_UNSUPPORTED);
    assert_non_null(strstr(err.text, "5 .. 6"));
    socket_close(peer[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_client__all_threads_are_told_that_the_daemon_was_killed, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_client__a_daemon_that_stopped_is_given_up_after_the_timeout, setup, teardown),
        cmocka_unit_test_setup_teardown(test_client__another_client_goes_on_with_the_next_daemon,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_client__pages_in_place_outlive_the_daemon, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_client__the_end_of_a_copy_wakes_whoever_receives,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_client__many_waits_leave_room_for_other_requests,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_client__two_of_one_daemon_share_a_store, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_contain__a_failed_assertion_fails_the_client_and_the_host_lives, setup, teardown),
        cmocka_unit_test(test_connect__what_is_no_daemon_is_not_believed),
        cmocka_unit_test(test_connect__the_daemons_refusal_is_the_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
