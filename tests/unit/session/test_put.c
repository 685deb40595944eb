/*
 * test_put.c - puts of one client, and of several that share one or wait for each other.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "session_kit.h"

static wire_message ack_of(uint64_t put, uint32_t rank)
{
    wire_message request = {.type = WIRE_PUT_ACK};

    request.as.put_ack = (wire_put_ack){.put = put, .rank = rank};
    return request;
}

static wire_message abort_of(uint64_t put, uint32_t refusal)
{
    wire_message request = {.type = WIRE_PUT_ABORT};

    request.as.put_abort = (wire_put_abort){.put = put, .refusal = refusal};
    return request;
}

static wire_message wait_of(uint64_t put, uint32_t state, uint32_t timeout_ms)
{
    wire_message request = {.type = WIRE_PUT_WAIT};

    request.as.put_wait = (wire_put_wait){.put = put, .state = state, .timeout_ms = timeout_ms};
    return request;
}

/* --- one client --- */

static void test_put__goes_from_begin_to_durable(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    uint64_t put;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    put = kit_begin_put(client, 10);
    assert_int_equal(client->reply.as.put_begun.status.has_id, 0);
    assert_int_equal(kit_put_state(client, put), KVARVE_PUT_STAGED);
    assert_int_equal(kit_fill(client, put, 0), 4); /* 3 pages of tokens and the endpoint */
    assert_int_equal(kit_count(client).pinned_slots, 4);
    kit_ack(client, put, 0);
    assert_int_equal(kit_count(client).pinned_slots, 0);
    assert_int_equal(kit_put_wait(client, put, KVARVE_PUT_DURABLE), KVARVE_PUT_DURABLE);
    assert_int_equal(client->reply.as.put_state.status.has_id, 1);
    kit_release_put(client, put);
    (void)kit_begin_put(client, 10);
    assert_int_equal(client->reply.as.put_begun.status.state, KVARVE_PUT_PRESENT);
    kit_end(&kit);
}

static void test_put__a_plan_in_parts_pins_each_page_once(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request = {.type = WIRE_PUT_PLAN};
    wire_plan_entry entry;
    uint64_t put;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    put = kit_begin_put(client, 10);
    request.as.put_plan = (wire_put_plan){.put = put};
    kit_ask(client, &request, WIRE_PUT_PLANNED); /* the total alone */
    assert_int_equal(client->reply.as.put_planned.total, 4);
    assert_int_equal(client->reply.count, 0);
    assert_int_equal(kit_count(client).pinned_slots, 0);
    request.as.put_plan.max = 3;
    kit_ask(client, &request, WIRE_PUT_PLANNED);
    assert_int_equal(client->reply.count, 3);
    assert_int_equal(kit_count(client).pinned_slots, 3);
    request.as.put_plan.from = 3;
    kit_ask(client, &request, WIRE_PUT_PLANNED);
    assert_int_equal(client->reply.count, 1);
    wire_item(&client->reply, 0, &entry);
    assert_int_equal(entry.group, 1);
    assert_int_equal(kit_count(client).pinned_slots, 4);
    request.as.put_plan.from = 4;
    kit_ask(client, &request, WIRE_PUT_PLANNED);
    assert_int_equal(client->reply.count, 0);
    request.as.put_plan.from = UINT64_MAX;
    kit_ask(client, &request, WIRE_PUT_PLANNED);
    assert_int_equal(client->reply.count, 0);
    assert_int_equal(kit_fill(client, put, 0), 4);
    assert_int_equal(kit_count(client).pinned_slots, 4);
    kit_end(&kit);
}

static void test_put__events_come_with_the_clients_cookie(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    kit_client *other;
    wire_message request;
    uint64_t put;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    other = kit_connect(&kit);
    request = kit_put_begin(client, 10);
    request.as.put_begin.options.cookie = 77;
    kit_ask(client, &request, WIRE_PUT_BEGUN);
    put = client->reply.as.put_begun.put;
    kit_run(&kit);
    (void)kit_fill(client, put, 0);
    kit_ack(client, put, 0);
    assert_int_equal(kit_put_wait(client, put, KVARVE_PUT_DURABLE), KVARVE_PUT_DURABLE);
    assert_true(kit_has_event(client, KVARVE_EVENT_READY, 77));
    assert_true(kit_has_event(client, KVARVE_EVENT_DURABLE, 77));
    assert_false(kit_has_reply(other));
    assert_int_equal(other->event_count, 0);
    kit_end(&kit);
}

static void test_put__a_wait_is_answered_by_its_deadline(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request;
    uint64_t put;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    put = kit_begin_put(client, 10);
    request = wait_of(put, KVARVE_PUT_READY, 50);
    kit_send(client, &request);
    kit_run(&kit);
    assert_false(kit_has_reply(client));
    assert_int_equal(kit_count(client).parked, 1);
    assert_true(session_deadline(client->session) != UINT64_MAX);
    kit_advance(&kit, 49);
    assert_false(kit_has_reply(client));
    kit_advance(&kit, 1);
    kit_answered(client, WIRE_PUT_STATE);
    assert_int_equal(client->reply.as.put_state.status.state, KVARVE_PUT_STAGED);
    assert_int_equal(kit_count(client).parked, 0);
    assert_true(session_deadline(client->session) == UINT64_MAX);
    kit_end(&kit);
}

static void test_put__a_wait_for_what_is_released_is_refused(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request;
    uint64_t put;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    put = kit_begin_put(client, 10);
    request = wait_of(put, KVARVE_PUT_READY, UINT32_MAX);
    kit_send(client, &request);
    kit_release_put(client, put);
    client->id--; /* the wait's */
    kit_run(&kit);
    kit_answered_error(client, KVARVE_INVALID);
    kit_end(&kit);
}

static void test_put__waits_have_a_limit(void **unused)
{
    session_kit kit = {.limits = {.parked = 2}};
    kit_client *client;
    wire_message request;
    uint64_t put;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    put = kit_begin_put(client, 10);
    request = wait_of(put, KVARVE_PUT_READY, 50);
    kit_send(client, &request);
    kit_send(client, &request);
    kit_refused(client, &request, KVARVE_NO_SPACE);
    assert_int_equal(kit_count(client).parked, 2);
    kit_end(&kit);
}

static void test_put__second_acks_and_unknown_ranks_are_the_clients_errors(void **unused)
{
    session_kit kit = {.ranks = 2};
    kit_client *client;
    wire_message request;
    uint64_t put;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    put = kit_begin_put(client, 10);
    (void)kit_fill(client, put, 0);
    kit_ack(client, put, 0);
    request = ack_of(put, 0);
    kit_refused(client, &request, KVARVE_INVALID);
    request = ack_of(put, 2);
    kit_refused(client, &request, KVARVE_INVALID);
    (void)kit_fill(client, put, 1);
    kit_ack(client, put, 1);
    assert_int_equal(kit_put_wait(client, put, KVARVE_PUT_DURABLE), KVARVE_PUT_DURABLE);
    kit_end(&kit);
}

static void test_put__an_aborted_puts_slots_drain_until_the_rank_speaks(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request;
    uint64_t put;
    uint64_t used;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    put = kit_begin_put(client, 10);
    (void)kit_fill(client, put, 0);
    used = kit_statistics(&kit).arena_bytes_used;
    request = abort_of(put, KVARVE_REFUSED_CALLER);
    kit_ask(client, &request, WIRE_PUT_STATE);
    assert_int_equal(client->reply.as.put_state.status.state, KVARVE_PUT_ABORTED);
    kit_run(&kit);
    assert_int_equal(kit_statistics(&kit).arena_bytes_used, used);
    request = ack_of(put, 0);
    kit_refused(client, &request, KVARVE_MISS);
    assert_int_equal(kit_statistics(&kit).arena_bytes_used, 0);
    assert_int_equal(kit_count(client).pinned_slots, 0);
    kit_end(&kit);
}

static void test_put__a_deadline_leaves_the_slots_to_the_rank(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request;
    uint64_t put;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    request = kit_put_begin(client, 10);
    request.as.put_begin.options.timeout_ms = 20;
    kit_ask(client, &request, WIRE_PUT_BEGUN);
    put = client->reply.as.put_begun.put;
    kit_run(&kit);
    (void)kit_fill(client, put, 0);
    kit_advance(&kit, 20);
    assert_int_equal(kit_put_state(client, put), KVARVE_PUT_ABORTED);
    assert_int_equal(client->reply.as.put_state.status.refusal, KVARVE_REFUSED_DEADLINE);
    assert_true(kit_statistics(&kit).arena_bytes_used > 0);
    kit_release_put(client, put);
    assert_int_equal(kit_statistics(&kit).arena_bytes_used, 0);
    kit_end(&kit);
}

static void test_put__a_failed_rank_aborts_and_gives_back(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request = {.type = WIRE_PUT_FAIL};
    uint64_t put;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    put = kit_begin_put(client, 10);
    (void)kit_fill(client, put, 0);
    request.as.put_fail.put = put;
    kit_ask(client, &request, WIRE_PUT_STATE);
    assert_int_equal(client->reply.as.put_state.status.refusal, KVARVE_REFUSED_RANK_FAILED);
    assert_int_equal(kit_count(client).pinned_slots, 0);
    assert_int_equal(kit_statistics(&kit).arena_bytes_used, 0);
    kit_end(&kit);
}

static void test_put__refusals_that_are_the_stores_can_not_be_given(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request;
    uint64_t put;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    put = kit_begin_put(client, 10);
    (void)kit_fill(client, put, 0);
    kit_ack(client, put, 0);
    request = abort_of(put, KVARVE_REFUSED_IO);
    kit_refused(client, &request, KVARVE_INVALID);
    assert_int_equal(kit_put_wait(client, put, KVARVE_PUT_DURABLE), KVARVE_PUT_DURABLE);
    kit_end(&kit);
}

static void test_put__open_puts_are_extended_and_closed(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request = {.type = WIRE_PUT_EXTEND};
    wire_message close = {.type = WIRE_PUT_CLOSE};
    uint64_t put;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    put = kit_begin_put(client, 0);
    request.as.put_extend =
        (wire_put_extend){.put = put, .prefix = kit_lay_prefix(client, kit.prefix), .tokens = 8};
    kit_ask(client, &request, WIRE_PUT_STATE);
    kit_run(&kit);
    assert_int_equal(kit_fill(client, put, 0), 2);
    kit_refused(client, &request, KVARVE_BUSY); /* not acked */
    kit_ack(client, put, 0);
    assert_int_equal(kit_put_wait(client, put, KVARVE_PUT_STAGED), KVARVE_PUT_STAGED);
    assert_int_equal(client->reply.as.put_state.status.is_settling, 0);
    close.as.put_close = (wire_put_close){.put = put,
                                          .prefix = kit_lay_prefix(client, kit.prefix),
                                          .options = {.tokens = 10, .kind = KVARVE_KIND_PROMPT}};
    kit_ask(client, &close, WIRE_PUT_STATE);
    kit_run(&kit);
    assert_int_equal(kit_fill(client, put, 0), 2);
    kit_ack(client, put, 0);
    assert_int_equal(kit_put_wait(client, put, KVARVE_PUT_DURABLE), KVARVE_PUT_DURABLE);
    kit_end(&kit);
}

static void test_put__first_tokens_are_told_by_group(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request = {.type = WIRE_PUT_FIRST_TOKENS};
    wire_number first;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    request.as.put_first_tokens.put = kit_begin_put(client, 10);
    kit_ask(client, &request, WIRE_PUT_FIRST_TOKENS_ARE);
    assert_int_equal(client->reply.count, 2);
    wire_item(&client->reply, 0, &first);
    assert_int_equal(first.value, 0);
    kit_end(&kit);
}

/* --- exact namespaces --- */

static void test_exact__acked_digests_must_be_the_announced_ones(void **unused)
{
    session_kit kit = {.is_exact = true};
    kit_client *client;
    wire_message request;
    uint64_t put;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    put = kit_begin_put(client, 10);
    (void)kit_fill(client, put, 0);
    request = ack_of(put, 0);
    request.as.put_ack.digests = kit_lay_digests(client, 0, 10, 1);
    kit_ask(client, &request, WIRE_PUT_STATE);
    assert_int_equal(client->reply.as.put_state.status.state, KVARVE_PUT_ABORTED);
    assert_int_equal(kit_count(client).pinned_slots, 0);
    kit_release_put(client, put);
    put = kit_begin_put(client, 10);
    (void)kit_fill(client, put, 0);
    request.as.put_ack.put = put;
    request.as.put_ack.digests = kit_lay_digests(client, 0, 10, 0);
    kit_ask(client, &request, WIRE_PUT_STATE);
    assert_int_equal(kit_put_wait(client, put, KVARVE_PUT_DURABLE), KVARVE_PUT_DURABLE);
    kit_end(&kit);
}

static void test_exact__digests_are_counted_and_lie_in_the_letter(void **unused)
{
    session_kit kit = {.is_exact = true};
    kit_client *client;
    wire_message request;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    request = kit_put_begin(client, 10);
    request.as.put_begin.options.digests.size -= 32; /* one page has none */
    kit_refused(client, &request, KVARVE_INVALID);
    request.as.put_begin.options.digests =
        (wire_letter){.offset = KIT_LETTER_BYTES - 32, .size = 64};
    kit_refused(client, &request, KVARVE_INVALID);
    request.as.put_begin.options.digests = (wire_letter){.offset = UINT64_C(1) << 31, .size = 32};
    kit_refused(client, &request, KVARVE_INVALID);
    assert_int_equal(kit_count(client).puts, 0);
    kit_end(&kit);
}

/* --- several clients --- */

static void test_shared__ranks_of_several_clients_make_one_put(void **unused)
{
    session_kit kit = {.ranks = 2};
    kit_client *first;
    kit_client *second;
    uint8_t token[32];
    uint64_t put;
    uint64_t attached;

    (void)unused;
    kit_begin(&kit);
    first = kit_connect(&kit);
    second = kit_connect(&kit);
    put = kit_begin_put(first, 10);
    (void)kit_export(first, WIRE_HANDLE_PUT, put, token);
    attached = kit_attach(second, token, 1);
    assert_int_equal(second->reply.as.attached.status.state, KVARVE_PUT_STAGED);
    (void)kit_fill(first, put, 0);
    (void)kit_fill(second, attached, 1);
    kit_ack(first, put, 0);
    kit_release_put(first, put); /* the put lives until its last owner is done */
    assert_int_equal(kit_put_state(second, attached), KVARVE_PUT_STAGED);
    kit_ack(second, attached, 1);
    assert_int_equal(kit_put_wait(second, attached, KVARVE_PUT_DURABLE), KVARVE_PUT_DURABLE);
    kit_release_put(second, attached);
    kit_end(&kit);
}

static void test_shared__a_rank_is_of_one_client_alone(void **unused)
{
    session_kit kit = {.ranks = 2};
    kit_client *first;
    kit_client *second;
    uint8_t token[32];
    uint64_t put;
    uint64_t attached;
    wire_message request;
    wire_message again = {.type = WIRE_ATTACH};

    (void)unused;
    kit_begin(&kit);
    first = kit_connect(&kit);
    second = kit_connect(&kit);
    put = kit_begin_put(first, 10);
    (void)kit_export(first, WIRE_HANDLE_PUT, put, token);
    attached = kit_attach(second, token, 1);
    request = ack_of(put, 1); /* attached elsewhere */
    kit_refused(first, &request, KVARVE_INVALID);
    request = ack_of(attached, 0); /* not its rank */
    kit_refused(second, &request, KVARVE_INVALID);
    request = abort_of(attached, KVARVE_REFUSED_CALLER);
    kit_refused(second, &request, KVARVE_INVALID);
    again.as.attach = (wire_attach){.space = second->space, .rank = 1};
    memcpy(again.as.attach.token, token, 32);
    kit_refused(second, &again, KVARVE_INVALID);
    again.as.attach.rank = 2;
    kit_refused(second, &again, KVARVE_INVALID);
    (void)kit_fill(first, put, 0);
    again.as.attach.rank = 0; /* the first one copies already */
    kit_refused(second, &again, KVARVE_INVALID);
    again.as.attach.token[5] ^= 1;
    kit_refused(second, &again, KVARVE_MISS);
    kit_end(&kit);
}

static void test_shared__a_token_ends_with_its_put(void **unused)
{
    session_kit kit = {.ranks = 2};
    kit_client *first;
    kit_client *second;
    uint8_t token[32];
    uint64_t put;
    wire_message request = {.type = WIRE_ATTACH};

    (void)unused;
    kit_begin(&kit);
    first = kit_connect(&kit);
    second = kit_connect(&kit);
    put = kit_begin_put(first, 10);
    (void)kit_export(first, WIRE_HANDLE_PUT, put, token);
    kit_release_put(first, put);
    request.as.attach = (wire_attach){.space = second->space, .rank = 1};
    memcpy(request.as.attach.token, token, 32);
    kit_refused(second, &request, KVARVE_MISS);
    kit_end(&kit);
}

static void test_shared__handles_of_others_do_not_exist(void **unused)
{
    session_kit kit = {0};
    kit_client *first;
    kit_client *second;
    uint64_t put;
    wire_message request;

    (void)unused;
    kit_begin(&kit);
    first = kit_connect(&kit);
    second = kit_connect(&kit);
    put = kit_begin_put(first, 10);
    request = ack_of(put, 0);
    kit_refused(second, &request, KVARVE_INVALID);
    request = abort_of(put, KVARVE_REFUSED_CALLER);
    kit_refused(second, &request, KVARVE_INVALID);
    request = ack_of(first->space, 0); /* a namespace is no put */
    kit_refused(first, &request, KVARVE_INVALID);
    assert_int_equal(kit_put_state(first, put), KVARVE_PUT_STAGED);
    kit_end(&kit);
}

/* A put of what another client copies already: its pages wait. */
static void begin_second_flight(session_kit *kit, kit_client **first, kit_client **second,
                                uint64_t puts[2])
{
    wire_message request;

    kit_begin(kit);
    *first = kit_connect(kit);
    *second = kit_connect(kit);
    puts[0] = kit_begin_put(*first, 10);
    assert_int_equal(kit_fill(*first, puts[0], 0), 4);
    request = kit_put_begin(*second, 10);
    request.as.put_begin.options.cookie = 9;
    kit_ask(*second, &request, WIRE_PUT_BEGUN);
    puts[1] = (*second)->reply.as.put_begun.put;
    assert_int_equal(kit_fill(*second, puts[1], 0), 0);
    kit_ack(*second, puts[1], 0);
}

static void test_flight__a_second_put_follows_the_first(void **unused)
{
    session_kit kit = {0};
    kit_client *first;
    kit_client *second;
    uint64_t puts[2];

    (void)unused;
    begin_second_flight(&kit, &first, &second, puts);
    kit_ack(first, puts[0], 0);
    assert_int_not_equal(kit_put_wait(second, puts[1], KVARVE_PUT_DURABLE), KVARVE_PUT_ABORTED);
    assert_int_equal(second->reply.as.put_state.status.has_id, 1);
    kit_end(&kit);
}

static void take_over(kit_client *client, uint64_t put)
{
    kit_run(client->kit);
    assert_false(kit_has_reply(client));
    assert_true(kit_has_event(client, KVARVE_EVENT_COPY_REQUESTED, 9));
    assert_int_equal(kit_fill(client, put, 0), 4);
    kit_ack(client, put, 0);
    assert_int_equal(kit_put_wait(client, put, KVARVE_PUT_DURABLE), KVARVE_PUT_DURABLE);
}

static void test_flight__an_owner_that_aborts_hands_over(void **unused)
{
    session_kit kit = {0};
    kit_client *first;
    kit_client *second;
    uint64_t puts[2];
    wire_message request;

    (void)unused;
    begin_second_flight(&kit, &first, &second, puts);
    request = abort_of(puts[0], KVARVE_REFUSED_CALLER);
    kit_ask(first, &request, WIRE_PUT_STATE);
    take_over(second, puts[1]);
    kit_end(&kit);
}

static void test_flight__an_owner_that_dies_hands_over(void **unused)
{
    session_kit kit = {0};
    kit_client *first;
    kit_client *second;
    uint64_t puts[2];

    (void)unused;
    begin_second_flight(&kit, &first, &second, puts);
    kit_die(first);
    take_over(second, puts[1]);
    kit_end(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put__goes_from_begin_to_durable),
        cmocka_unit_test(test_put__a_plan_in_parts_pins_each_page_once),
        cmocka_unit_test(test_put__events_come_with_the_clients_cookie),
        cmocka_unit_test(test_put__a_wait_is_answered_by_its_deadline),
        cmocka_unit_test(test_put__a_wait_for_what_is_released_is_refused),
        cmocka_unit_test(test_put__waits_have_a_limit),
        cmocka_unit_test(test_put__second_acks_and_unknown_ranks_are_the_clients_errors),
        cmocka_unit_test(test_put__an_aborted_puts_slots_drain_until_the_rank_speaks),
        cmocka_unit_test(test_put__a_deadline_leaves_the_slots_to_the_rank),
        cmocka_unit_test(test_put__a_failed_rank_aborts_and_gives_back),
        cmocka_unit_test(test_put__refusals_that_are_the_stores_can_not_be_given),
        cmocka_unit_test(test_put__open_puts_are_extended_and_closed),
        cmocka_unit_test(test_put__first_tokens_are_told_by_group),
        cmocka_unit_test(test_exact__acked_digests_must_be_the_announced_ones),
        cmocka_unit_test(test_exact__digests_are_counted_and_lie_in_the_letter),
        cmocka_unit_test(test_shared__ranks_of_several_clients_make_one_put),
        cmocka_unit_test(test_shared__a_rank_is_of_one_client_alone),
        cmocka_unit_test(test_shared__a_token_ends_with_its_put),
        cmocka_unit_test(test_shared__handles_of_others_do_not_exist),
        cmocka_unit_test(test_flight__a_second_put_follows_the_first),
        cmocka_unit_test(test_flight__an_owner_that_aborts_hands_over),
        cmocka_unit_test(test_flight__an_owner_that_dies_hands_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
