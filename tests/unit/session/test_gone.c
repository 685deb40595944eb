/*
 * test_gone.c - clients whose connection is closed, and clients that are dead.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "session_kit.h"

static void test_gone__slots_stay_until_death(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    uint64_t put;
    uint64_t used;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    put = kit_begin_put(client, 10);
    (void)kit_fill(client, put, 0);
    used = kit_statistics(&kit).arena_bytes_used;
    assert_true(used > 0);
    assert_false(session_gone(client->session));
    assert_true(kit_count(client).is_gone);
    kit_advance(&kit, 100000);                           /* no deadline ends it */
    assert_int_equal(kit_statistics(&kit).puts_open, 0); /* aborted */
    assert_int_equal(kit_statistics(&kit).arena_bytes_used, used);
    assert_int_equal(kit_count(client).pinned_slots, 4);
    kit_die(client);
    assert_int_equal(kit_statistics(&kit).arena_bytes_used, 0);
    kit_end(&kit);
}

static void test_gone__who_touches_nothing_leaves_nothing(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    session_counters left;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    kit_store(client, 10);
    (void)kit_begin_put(client, 20);
    (void)kit_lease(client, 10, KVARVE_LEASE_SOFT);
    assert_true(session_gone(client->session));
    left = kit_count(client);
    assert_int_equal(left.namespaces + left.puts + left.leases + left.parked, 0);
    assert_int_equal(kit_statistics(&kit).leases_open, 0);
    kit_run(&kit);
    assert_int_equal(kit_statistics(&kit).puts_open, 0);
    kit_end(&kit);
}

static void test_gone__a_put_that_is_ready_becomes_durable(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    uint64_t put;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    put = kit_begin_put(client, 10);
    (void)kit_fill(client, put, 0);
    kit_ack(client, put, 0);
    while (kit_put_state(client, put) == KVARVE_PUT_STAGED) {
        assert_true(store_poll(kit.store));
    }
    assert_int_equal(kit_put_state(client, put), KVARVE_PUT_READY);
    assert_true(session_gone(client->session));
    kit_run(&kit);
    assert_int_equal(kit_statistics(&kit).puts_durable, 1);
    assert_int_equal(kit_statistics(&kit).checkpoints, 1);
    kit_end(&kit);
}

static void test_gone__waits_and_replies_are_dropped(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request = {.type = WIRE_PUT_WAIT};
    const void *bytes;
    size_t size;
    bool has_arena;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    request.as.put_wait = (wire_put_wait){
        .put = kit_begin_put(client, 10), .state = KVARVE_PUT_READY, .timeout_ms = UINT32_MAX};
    kit_send(client, &request);
    request = (wire_message){.type = WIRE_STATISTICS};
    kit_send(client, &request);
    (void)session_gone(client->session);
    assert_false(session_next(client->session, &bytes, &size, &has_arena));
    assert_false(session_poll(client->session));
    assert_true(session_deadline(client->session) == UINT64_MAX);
    kit_send(client, &request);
    assert_true(client->is_closed);
    kit_end(&kit);
}

static void test_gone__a_lease_that_is_read_stays(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request = {.type = WIRE_LEASE_PAGES};

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    kit_store(client, 10);
    request.as.lease_pages =
        (wire_lease_pages){.lease = kit_lease(client, 10, KVARVE_LEASE_LOAD), .max = 1};
    kit_run(&kit);
    kit_ask(client, &request, WIRE_LEASE_PAGES_ARE);
    assert_false(session_gone(client->session));
    assert_int_equal(kit_statistics(&kit).leases_open, 1);
    kit_die(client);
    assert_int_equal(kit_statistics(&kit).leases_open, 0);
    kit_end(&kit);
}

static void test_gone__a_page_that_is_read_stays(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request = {.type = WIRE_PAGE_BEGIN};

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    kit_store(client, 10);
    request.as.page_begin.lease = kit_lease(client, 10, KVARVE_LEASE_SOFT);
    kit_ask(client, &request, WIRE_PAGE_BEGUN);
    assert_false(session_gone(client->session));
    assert_int_equal(kit_count(client).pinned_slots, 1);
    kit_die(client);
    assert_int_equal(kit_statistics(&kit).leases_open, 0);
    kit_end(&kit);
}

/* --- quarantine --- */

static void quarantine(session_kit *kit)
{
    kit_client *client = kit_connect(kit);

    (void)kit_fill(client, kit_begin_put(client, 10), 0);
    assert_false(session_gone(client->session));
}

static void test_quarantine__has_a_limit_for_each_user(void **unused)
{
    session_kit kit = {.limits = {.quarantined = 2}, .uid = 1000};
    session_peer peer = {.pid = 12, .uid = 1000};
    session *made = NULL;
    kvarve_error err = {0};

    (void)unused;
    kit_begin(&kit);
    quarantine(&kit);
    quarantine(&kit);
    assert_int_equal(session_open(kit.host, &peer, &made, &err), KVARVE_BUSY);
    assert_non_null(strstr(err.text, "2"));
    peer.uid = 1001; /* others are not held up */
    assert_int_equal(session_open(kit.host, &peer, &made, &err), KVARVE_OK);
    session_destroy(made);
    kit_die(kit.clients[0]);
    peer.uid = 1000;
    assert_int_equal(session_open(kit.host, &peer, &made, &err), KVARVE_OK);
    session_destroy(made);
    kit_end(&kit);
}

/* --- what is shared --- */

typedef struct pair {
    kit_client *first;
    kit_client *second;
    uint64_t put;
    uint64_t attached;
} pair;

/* Two ranks of one put in two processes, both copying. */
static pair begin_pair(session_kit *kit)
{
    pair made;
    uint8_t token[32];

    kit->ranks = 2;
    kit_begin(kit);
    made.first = kit_connect(kit);
    made.second = kit_connect(kit);
    made.put = kit_begin_put(made.first, 10);
    (void)kit_export(made.first, WIRE_HANDLE_PUT, made.put, token);
    made.attached = kit_attach(made.second, token, 1);
    (void)kit_fill(made.first, made.put, 0);
    (void)kit_fill(made.second, made.attached, 1);
    return made;
}

static void test_shared__a_dead_rank_aborts_and_the_others_slots_stay(void **unused)
{
    session_kit kit = {0};
    pair both = begin_pair(&kit);
    wire_message request = {.type = WIRE_PUT_ACK};

    (void)unused;
    kit_die(both.second);
    kit_run(&kit);
    assert_int_equal(kit_put_state(both.first, both.put), KVARVE_PUT_ABORTED);
    assert_int_equal(both.first->reply.as.put_state.status.refusal, KVARVE_REFUSED_RANK_FAILED);
    assert_true(kit_statistics(&kit).arena_bytes_used > 0);
    request.as.put_ack.put = both.put;
    kit_refused(both.first, &request, KVARVE_MISS);
    assert_int_equal(kit_statistics(&kit).arena_bytes_used, 0);
    kit_end(&kit);
}

static void test_shared__a_dead_scheduler_frees_no_slot_of_a_rank(void **unused)
{
    session_kit kit = {0};
    pair both = begin_pair(&kit);

    (void)unused;
    kit_die(both.first);
    kit_run(&kit);
    assert_int_equal(kit_put_state(both.second, both.attached), KVARVE_PUT_ABORTED);
    assert_true(kit_statistics(&kit).arena_bytes_used > 0);
    assert_int_equal(kit_count(both.second).pinned_slots, 4);
    kit_release_put(both.second, both.attached);
    assert_int_equal(kit_statistics(&kit).arena_bytes_used, 0);
    kit_end(&kit);
}

static void test_shared__a_rank_that_leaves_unfilled_pages_fails(void **unused)
{
    session_kit kit = {0};
    pair both = begin_pair(&kit);

    (void)unused;
    kit_release_put(both.second, both.attached);
    assert_int_equal(kit_put_state(both.first, both.put), KVARVE_PUT_ABORTED);
    kit_end(&kit);
}

static void test_shared__a_rank_that_leaves_before_its_turn_fails(void **unused)
{
    session_kit kit = {.ranks = 2};
    kit_client *first;
    kit_client *second;
    uint8_t token[32];
    uint64_t put;

    (void)unused;
    kit_begin(&kit);
    first = kit_connect(&kit);
    second = kit_connect(&kit);
    put = kit_begin_put(first, 10);
    (void)kit_export(first, WIRE_HANDLE_PUT, put, token);
    kit_release_put(second, kit_attach(second, token, 1)); /* it was not asked for a page yet */
    assert_int_equal(kit_put_state(first, put), KVARVE_PUT_ABORTED);
    assert_int_equal(first->reply.as.put_state.status.refusal, KVARVE_REFUSED_RANK_FAILED);
    kit_end(&kit);
}

static void test_shared__a_rank_that_is_gone_aborts(void **unused)
{
    session_kit kit = {0};
    pair both = begin_pair(&kit);

    (void)unused;
    assert_false(session_gone(both.second->session));
    assert_int_equal(kit_put_state(both.first, both.put), KVARVE_PUT_ABORTED);
    kit_release_put(both.first, both.put);
    assert_true(kit_statistics(&kit).arena_bytes_used > 0);
    kit_die(both.second);
    assert_int_equal(kit_statistics(&kit).arena_bytes_used, 0);
    kit_end(&kit);
}

static void test_shared__another_users_process_finds_no_token(void **unused)
{
    session_kit kit = {.ranks = 2, .uid = 1000};
    kit_client *first;
    kit_client *other;
    uint8_t token[32];
    wire_message request = {.type = WIRE_ATTACH};

    (void)unused;
    kit_begin(&kit);
    first = kit_connect(&kit);
    kit.uid = 1001;
    other = kit_connect(&kit);
    (void)kit_export(first, WIRE_HANDLE_PUT, kit_begin_put(first, 10), token);
    request.as.attach = (wire_attach){.space = other->space, .rank = 1};
    memcpy(request.as.attach.token, token, 32);
    kit_refused(other, &request, KVARVE_MISS);
    kit_end(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gone__slots_stay_until_death),
        cmocka_unit_test(test_gone__who_touches_nothing_leaves_nothing),
        cmocka_unit_test(test_gone__a_put_that_is_ready_becomes_durable),
        cmocka_unit_test(test_gone__waits_and_replies_are_dropped),
        cmocka_unit_test(test_gone__a_lease_that_is_read_stays),
        cmocka_unit_test(test_gone__a_page_that_is_read_stays),
        cmocka_unit_test(test_quarantine__has_a_limit_for_each_user),
        cmocka_unit_test(test_shared__a_dead_rank_aborts_and_the_others_slots_stay),
        cmocka_unit_test(test_shared__a_dead_scheduler_frees_no_slot_of_a_rank),
        cmocka_unit_test(test_shared__a_rank_that_leaves_unfilled_pages_fails),
        cmocka_unit_test(test_shared__a_rank_that_leaves_before_its_turn_fails),
        cmocka_unit_test(test_shared__a_rank_that_is_gone_aborts),
        cmocka_unit_test(test_shared__another_users_process_finds_no_token),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
