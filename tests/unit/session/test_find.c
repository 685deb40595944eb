/*
 * test_find.c - finding, leases, and reading their pages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/alloc.h"
#include "session_kit.h"

static wire_message find_of(kit_client *client)
{
    wire_message request = {.type = WIRE_FIND};

    request.as.find = (wire_find){
        .space = client->space, .prefix = kit_lay_prefix(client, client->kit->prefix), .max = 10};
    return request;
}

static void test_find__says_the_boundaries_in_parts(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request;
    wire_boundary boundary;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    kit_store(client, 10);
    kit_store(client, 20);
    kit_store(client, 30);
    request = find_of(client);
    kit_ask(client, &request, WIRE_FOUND);
    assert_int_equal(client->reply.count, 3);
    wire_item(&client->reply, 0, &boundary);
    assert_int_equal(boundary.tokens, 30);
    assert_int_equal(client->reply.as.found.lease, 0);
    request.as.find.from = 1;
    request.as.find.max = 1;
    kit_ask(client, &request, WIRE_FOUND);
    assert_int_equal(client->reply.count, 1);
    wire_item(&client->reply, 0, &boundary);
    assert_int_equal(boundary.tokens, 20);
    request.as.find.from = 3;
    kit_ask(client, &request, WIRE_FOUND);
    assert_int_equal(client->reply.count, 0);
    kit_end(&kit);
}

static void test_find__a_miss_is_an_answer_with_a_reason(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    request = find_of(client);
    request.as.find.options.lease = KVARVE_LEASE_SOFT;
    request.as.find.options.cookie = 3;
    kit_ask(client, &request, WIRE_FOUND);
    assert_int_equal(client->reply.count, 0);
    assert_int_equal(client->reply.as.found.miss.reason, KVARVE_MISS_EMPTY);
    assert_int_equal(client->reply.as.found.lease, 0);
    assert_int_equal(kit_count(client).leases, 0);
    kit_end(&kit);
}

static void test_find__a_prefix_that_does_not_fit_together_is_refused(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    request = find_of(client);
    request.as.find.prefix.steps.size += 32;
    kit_refused(client, &request, KVARVE_INVALID);
    request = find_of(client);
    request.as.find.prefix.tokens.size = 1024; /* 256 tokens have two steps */
    kit_refused(client, &request, KVARVE_INVALID);
    request = find_of(client);
    request.as.find.prefix.tokens.offset = KIT_LETTER_BYTES - 8;
    kit_refused(client, &request, KVARVE_INVALID);
    request = find_of(client);
    request.as.find.prefix = (wire_prefix){0};
    kit_ask(client, &request, WIRE_FOUND); /* of nothing, nothing is found */
    assert_int_equal(client->reply.count, 0);
    kit_end(&kit);
}

static void test_find__by_points(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request = {.type = WIRE_FIND_POINTS};
    wire_point point = {.tokens = 10};
    uint8_t bytes[80];

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    kit_store(client, 10);
    assert_int_equal(kvarve_prefix_digest(kit.prefix, 10, point.digest, NULL), KVARVE_OK);
    assert_int_equal(wire_record_encode(WIRE_RECORD_POINT, &point, bytes, NULL), KVARVE_OK);
    memcpy(bytes + 40, bytes, 40);
    request.as.find_points =
        (wire_find_points){.space = client->space, .points = kit_lay(client, bytes, 40), .max = 2};
    kit_ask(client, &request, WIRE_FOUND);
    assert_int_equal(client->reply.count, 1);
    request.as.find_points.points = kit_lay(client, bytes, 80); /* lengths must rise */
    kit_refused(client, &request, KVARVE_INVALID);
    request.as.find_points.points = (wire_letter){0};
    kit_refused(client, &request, KVARVE_INVALID);
    kit_end(&kit);
}

static void test_find__all_as_a_bitmap(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request = {.type = WIRE_FIND_ALL};
    wire_octet octet;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    kit_store(client, 10);
    request.as.find_all =
        (wire_find_all){.space = client->space, .prefix = kit_lay_prefix(client, kit.prefix)};
    kit_ask(client, &request, WIRE_FOUND_ALL);
    assert_int_equal(client->reply.as.found_all.total, KIT_TOKENS / 8 + 1);
    assert_int_equal(client->reply.count, KIT_TOKENS / 8 + 1);
    wire_item(&client->reply, 1, &octet);
    assert_int_equal(octet.value, 4);
    request.as.find_all.from = 5;
    kit_ask(client, &request, WIRE_FOUND_ALL);
    assert_int_equal(client->reply.count, 1);
    kit_end(&kit);
}

/* --- leases --- */

static wire_message lease_wait_of(uint64_t lease, uint32_t timeout_ms)
{
    wire_message request = {.type = WIRE_LEASE_WAIT};

    request.as.lease_wait = (wire_lease_wait){.lease = lease, .timeout_ms = timeout_ms};
    return request;
}

static wire_message pages_of(uint64_t lease, uint32_t rank)
{
    wire_message request = {.type = WIRE_LEASE_PAGES};

    request.as.lease_pages = (wire_lease_pages){.lease = lease, .rank = rank, .max = UINT32_MAX};
    return request;
}

static wire_message page_begin_of(uint64_t lease, uint32_t group, uint64_t position)
{
    wire_message request = {.type = WIRE_PAGE_BEGIN};

    request.as.page_begin = (wire_page_begin){
        .lease = lease, .group = group, .position = position, .timeout_ms = KIT_WAIT_MS};
    return request;
}

static wire_message page_end_of(uint64_t lease, uint64_t pin)
{
    wire_message request = {.type = WIRE_PAGE_END};

    request.as.page_end =
        (wire_page_end){.lease = lease, .pin = pin, .was_verified = 1, .is_right = 1};
    return request;
}

static void release_lease(kit_client *client, uint64_t lease)
{
    wire_message request = {.type = WIRE_LEASE_RELEASE};

    request.as.lease_release.lease = lease;
    kit_ask(client, &request, WIRE_DONE);
}

/* Fill the arena with other states, so that what was stored before is on flash alone. */
static void push_out(kit_client *client)
{
    session_kit *kit = client->kit;
    kvarve_prefix *kept = kit->prefix;
    uint32_t tokens[KIT_TOKENS];

    for (uint32_t turn = 0; turn < 40; turn++) {
        for (uint32_t i = 0; i < KIT_TOKENS; i++) {
            tokens[i] = 1000 * (turn + 1) + i;
        }
        assert_int_equal(kvarve_prefix_create(&kit->prefix, NULL), KVARVE_OK);
        assert_int_equal(kvarve_prefix_append(kit->prefix, tokens, KIT_TOKENS, NULL), KVARVE_OK);
        kit_store(client, KIT_TOKENS);
        kvarve_prefix_free(kit->prefix);
    }
    kit->prefix = kept;
}

static void check_pages(kit_client *client, uint64_t lease, uint32_t rank, uint32_t count)
{
    wire_message request = pages_of(lease, rank);
    wire_page_entry page;

    kit_ask(client, &request, WIRE_LEASE_PAGES_ARE);
    assert_int_equal(client->reply.as.lease_pages_are.total, count);
    assert_int_equal(client->reply.count, count);
    for (uint32_t i = 0; i < count; i++) {
        wire_item(&client->reply, i, &page);
        assert_true(kit_is_right(client->kit, &page, rank));
    }
}

static void test_lease__is_loaded_waited_for_and_read(void **unused)
{
    session_kit kit = {.ranks = 2, .arena_mib = 1};
    kit_client *client;
    wire_message request = {.type = WIRE_LEASE_LOAD};
    uint64_t lease;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    kit_store(client, 10);
    push_out(client);
    lease = kit_lease(client, 10, KVARVE_LEASE_SOFT);
    assert_true(client->reply.as.found.leased.bytes_to_read > 0);
    request.as.lease_load.lease = lease;
    kit_ask(client, &request, WIRE_LEASE_STATE);
    assert_int_equal(client->reply.as.lease_state.state, LEASE_LOADING);
    kit_refused(client, &request, KVARVE_INVALID); /* asked before */
    request = pages_of(lease, 0);
    kit_refused(client, &request, KVARVE_INVALID); /* not loaded */
    request = lease_wait_of(lease, KIT_WAIT_MS);
    kit_send(client, &request);
    assert_false(kit_has_reply(client));
    kit_run(&kit);
    kit_answered(client, WIRE_LEASE_STATE);
    assert_int_equal(client->reply.as.lease_state.state, LEASE_LOADED);
    assert_true(kit_has_event(client, KVARVE_EVENT_LOADED, 5));
    check_pages(client, lease, 0, 4);
    check_pages(client, lease, 1, 4);
    release_lease(client, lease);
    kit_refused(client, &request, KVARVE_INVALID);
    kit_end(&kit);
}

static void test_lease__pages_come_in_parts(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request;
    wire_page_entry page;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    kit_store(client, 10);
    request = pages_of(kit_lease(client, 10, KVARVE_LEASE_LOAD), 0);
    kit_run(&kit);
    request.as.lease_pages.max = 0;
    kit_ask(client, &request, WIRE_LEASE_PAGES_ARE);
    assert_int_equal(client->reply.as.lease_pages_are.total, 4);
    request.as.lease_pages.from = 2;
    request.as.lease_pages.max = 1;
    kit_ask(client, &request, WIRE_LEASE_PAGES_ARE);
    assert_int_equal(client->reply.count, 1);
    wire_item(&client->reply, 0, &page);
    assert_int_equal(page.position, 2);
    assert_int_equal(page.first_token, 8);
    assert_int_equal(page.tokens, 2);
    request.as.lease_pages.from = UINT64_MAX;
    kit_ask(client, &request, WIRE_LEASE_PAGES_ARE);
    assert_int_equal(client->reply.count, 0);
    kit_end(&kit);
}

static void test_lease__extent_and_read_ahead(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request = {.type = WIRE_LEASE_EXTENT};
    wire_message ahead = {.type = WIRE_READ_AHEAD};
    uint64_t lease;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    kit_store(client, 10);
    lease = kit_lease(client, 10, KVARVE_LEASE_SOFT);
    request.as.lease_extent.lease = lease;
    kit_ask(client, &request, WIRE_LEASE_EXTENT_IS);
    assert_int_equal(client->reply.as.lease_extent_is.pages, 3);
    request.as.lease_extent.group = 2;
    kit_refused(client, &request, KVARVE_INVALID);
    ahead.as.read_ahead =
        (wire_read_ahead){.lease = lease, .position = UINT64_MAX - 1, .count = UINT64_MAX};
    kit_ask(client, &ahead, WIRE_DONE);
    kit_end(&kit);
}

static void test_page__is_read_from_flash_pinned_and_given_back(void **unused)
{
    session_kit kit = {.arena_mib = 1};
    kit_client *client;
    wire_message request;
    uint64_t lease;
    uint64_t pin;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    kit_store(client, 10);
    push_out(client);
    lease = kit_lease(client, 10, KVARVE_LEASE_SOFT);
    request = page_begin_of(lease, 0, 1);
    kit_send(client, &request);
    assert_false(kit_has_reply(client));
    assert_int_equal(kit_count(client).parked, 1);
    kit_run(&kit);
    kit_answered(client, WIRE_PAGE_BEGUN);
    assert_true(kit_is_right(&kit, &client->reply.as.page_begun.page, 0));
    pin = client->reply.as.page_begun.pin;
    assert_int_equal(kit_count(client).pinned_slots, 1);
    request = page_end_of(lease, pin + 1);
    kit_refused(client, &request, KVARVE_INVALID);
    request = page_end_of(kit_lease(client, 10, KVARVE_LEASE_SOFT), pin); /* of another lease */
    kit_refused(client, &request, KVARVE_INVALID);
    request = page_end_of(lease, pin);
    kit_ask(client, &request, WIRE_DONE);
    kit_refused(client, &request, KVARVE_INVALID);
    assert_int_equal(kit_count(client).pinned_slots, 0);
    request = page_begin_of(lease, 0, 3);
    kit_refused(client, &request, KVARVE_INVALID);
    kit_end(&kit);
}

static void test_page__a_read_that_takes_too_long_is_busy(void **unused)
{
    session_kit kit = {.arena_mib = 1};
    kit_client *client;
    wire_message request;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    kit_store(client, 10);
    push_out(client);
    request = page_begin_of(kit_lease(client, 10, KVARVE_LEASE_SOFT), 0, 1);
    kit_send(client, &request);
    world_advance(kit.world, KIT_WAIT_MS * KIT_MS);
    assert_true(session_poll(client->session)); /* nobody polled the store meanwhile */
    kit_answered_error(client, KVARVE_BUSY);
    request.as.page_begin.timeout_ms = 0;
    kit_refused(client, &request, KVARVE_BUSY);
    kit_end(&kit);
}

static void test_page__pins_have_a_limit_and_end_with_the_lease(void **unused)
{
    session_kit kit = {.limits = {.pages = 2}};
    kit_client *client;
    wire_message request;
    uint64_t lease;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    kit_store(client, 10);
    lease = kit_lease(client, 10, KVARVE_LEASE_SOFT);
    request = page_begin_of(lease, 0, 0);
    kit_ask(client, &request, WIRE_PAGE_BEGUN);
    kit_ask(client, &request, WIRE_PAGE_BEGUN);
    kit_refused(client, &request, KVARVE_NO_SPACE);
    release_lease(client, lease);
    assert_int_equal(kit_count(client).pinned_slots, 0);
    assert_int_equal(kit_statistics(&kit).leases_open, 0);
    kit_end(&kit);
}

static void test_page__a_wrong_one_fails_the_lease(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request;
    wire_message wait;
    uint64_t lease;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    kit_store(client, 10);
    lease = kit_lease(client, 10, KVARVE_LEASE_SOFT);
    request = page_begin_of(lease, 0, 0);
    kit_ask(client, &request, WIRE_PAGE_BEGUN);
    request = page_end_of(lease, client->reply.as.page_begun.pin);
    request.as.page_end.is_right = 0;
    kit_ask(client, &request, WIRE_DONE);
    wait = lease_wait_of(lease, 0);
    kit_ask(client, &wait, WIRE_LEASE_STATE);
    assert_int_equal(client->reply.as.lease_state.state, LEASE_FAILED);
    assert_int_equal(client->reply.as.lease_state.miss.reason, KVARVE_MISS_DAMAGED);
    kit_end(&kit);
}

static void test_shared__a_lease_is_read_by_the_process_of_each_rank(void **unused)
{
    session_kit kit = {.ranks = 2};
    kit_client *first;
    kit_client *second;
    wire_message request;
    uint8_t token[32];
    uint64_t lease;
    uint64_t attached;

    (void)unused;
    kit_begin(&kit);
    first = kit_connect(&kit);
    second = kit_connect(&kit);
    kit_store(first, 10);
    lease = kit_lease(first, 10, KVARVE_LEASE_LOAD);
    (void)kit_export(first, WIRE_HANDLE_LEASE, lease, token);
    attached = kit_attach(second, token, 1);
    assert_int_equal(second->reply.as.attached.leased.tokens, 10);
    kit_run(&kit);
    request = pages_of(attached, 0);
    kit_refused(second, &request, KVARVE_INVALID);
    release_lease(first, lease); /* lives on */
    check_pages(second, attached, 1, 4);
    release_lease(second, attached);
    assert_int_equal(kit_statistics(&kit).leases_open, 0);
    kit_end(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find__says_the_boundaries_in_parts),
        cmocka_unit_test(test_find__a_miss_is_an_answer_with_a_reason),
        cmocka_unit_test(test_find__a_prefix_that_does_not_fit_together_is_refused),
        cmocka_unit_test(test_find__by_points),
        cmocka_unit_test(test_find__all_as_a_bitmap),
        cmocka_unit_test(test_lease__is_loaded_waited_for_and_read),
        cmocka_unit_test(test_lease__pages_come_in_parts),
        cmocka_unit_test(test_lease__extent_and_read_ahead),
        cmocka_unit_test(test_page__is_read_from_flash_pinned_and_given_back),
        cmocka_unit_test(test_page__a_read_that_takes_too_long_is_busy),
        cmocka_unit_test(test_page__pins_have_a_limit_and_end_with_the_lease),
        cmocka_unit_test(test_page__a_wrong_one_fails_the_lease),
        cmocka_unit_test(test_shared__a_lease_is_read_by_the_process_of_each_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
