/*
 * test_admin.c - statistics, listing, drop, verify, trim, documents, status, fence.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "session_kit.h"

static void test_statistics__are_all_there_in_order(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request = {.type = WIRE_STATISTICS};
    kvarve_statistics now;
    wire_number number;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    kit_store(client, 10);
    now = kit_statistics(&kit);
    kit_ask(client, &request, WIRE_STATISTICS_ARE);
    wire_item(&client->reply, 64, &number); /* the first row: checkpoints */
    assert_int_equal(number.value, 1);
    wire_item(&client->reply, client->reply.count - 1, &number);
    assert_int_equal(number.value, now.damaged_files);
    wire_item(&client->reply, 64 + 6, &number);
    assert_int_equal(number.value, now.puts);
    kit_end(&kit);
}

static void test_list__and_drop(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request = {.type = WIRE_LIST};
    wire_message drop = {.type = WIRE_DROP};
    wire_checkpoint listed;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    kit_store(client, 10);
    kit_store(client, 20);
    request.as.list.from = 1;
    kit_ask(client, &request, WIRE_LISTED);
    assert_int_equal(client->reply.as.listed.total, 2);
    assert_int_equal(client->reply.count, 1);
    wire_item(&client->reply, 0, &listed);
    assert_int_equal(listed.tokens, 10);
    memcpy(drop.as.drop.id, listed.id, sizeof drop.as.drop.id);
    kit_send(client, &drop);
    assert_false(kit_has_reply(client)); /* parked until it is durable */
    kit_run(&kit);
    kit_answered(client, WIRE_DONE);
    kit_refused(client, &drop, KVARVE_MISS);
    request.as.list.from = 0;
    kit_ask(client, &request, WIRE_LISTED);
    assert_int_equal(client->reply.count, 1);
    request.as.list.from = 5;
    kit_ask(client, &request, WIRE_LISTED);
    assert_int_equal(client->reply.count, 0);
    kit_end(&kit);
}

static void test_drop__of_what_is_leased_is_busy(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message drop = {.type = WIRE_DROP};

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    kit_store(client, 10);
    (void)kit_lease(client, 10, KVARVE_LEASE_SOFT);
    memcpy(drop.as.drop.id, client->reply.as.found.leased.id, sizeof drop.as.drop.id);
    kit_refused(client, &drop, KVARVE_BUSY);
    kit_end(&kit);
}

static void test_verify__is_followed_to_its_end(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    kit_client *other;
    wire_message request = {.type = WIRE_VERIFY};

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    other = kit_connect(&kit);
    kit_store(client, 10);
    request.as.verify = (wire_verify){.is_begin = 1, .timeout_ms = KIT_WAIT_MS};
    kit_send(client, &request);
    assert_false(kit_has_reply(client));
    kit_refused(other, &request, KVARVE_BUSY); /* one runs */
    kit_run(&kit);
    kit_answered(client, WIRE_VERIFIED);
    assert_int_equal(client->reply.as.verified.is_over, 1);
    assert_int_equal(client->reply.as.verified.result.pages_checked, 4);
    assert_int_equal(client->reply.as.verified.result.pages_damaged, 0);
    request.as.verify.timeout_ms = 0;
    kit_ask(client, &request, WIRE_VERIFIED);
    assert_int_equal(client->reply.as.verified.is_over, 0);
    kit_run(&kit);
    kit_end(&kit);
}

static void test_trim__is_followed_to_its_end(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request = {.type = WIRE_TRIM};

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    kit_store(client, 10);
    request.as.trim = (wire_trim){.is_begin = 1, .timeout_ms = KIT_WAIT_MS};
    kit_send(client, &request);
    kit_run(&kit);
    kit_answered(client, WIRE_TRIMMED);
    assert_int_equal(client->reply.as.trimmed.is_over, 1);
    kit_end(&kit);
}

static void test_document__is_read_in_parts(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request = {.type = WIRE_DOCUMENT};
    uint64_t total;
    wire_octet octet;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    memcpy(request.as.document.namespace_text, client->reply.as.namespace_opened.text,
           sizeof request.as.document.namespace_text);
    kit_ask(client, &request, WIRE_DOCUMENT_IS);
    total = client->reply.as.document_is.total;
    assert_int_equal(client->reply.count, total);
    wire_item(&client->reply, 0, &octet);
    assert_int_equal(octet.value, '{');
    request.as.document.from = total - 1;
    kit_ask(client, &request, WIRE_DOCUMENT_IS);
    assert_int_equal(client->reply.count, 1);
    wire_item(&client->reply, 0, &octet);
    assert_int_equal(octet.value, '}');
    request.as.document.namespace_text[30] ^= 1;
    kit_refused(client, &request, KVARVE_MISS);
    kit_end(&kit);
}

static void test_status__tells_of_the_daemon(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request = {.type = WIRE_STATUS};
    const wire_status_is *status;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    (void)session_gone(kit_connect(&kit)->session);
    kit_advance(&kit, 5000);
    kit_ask(client, &request, WIRE_STATUS_IS);
    status = &client->reply.as.status_is;
    assert_int_equal(status->pid, 4711);
    assert_string_equal(status->version, "0.1.0");
    assert_int_equal(status->uptime_s, 5);
    assert_int_equal(status->clients, 1);
    assert_int_equal(status->quarantined, 1);
    assert_int_equal(status->arena_bytes, 4 << 20);
    kit_end(&kit);
}

static void test_fence__is_checked_and_done(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request = {.type = WIRE_FENCE};

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    request.as.fence = (wire_fence){.space = client->space, .blocks = kit_lay(client, "1234", 4)};
    kit_ask(client, &request, WIRE_DONE);
    request.as.fence.rank = 1;
    kit_refused(client, &request, KVARVE_INVALID);
    request.as.fence.rank = 0;
    request.as.fence.group = 2;
    kit_refused(client, &request, KVARVE_INVALID);
    kit_end(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statistics__are_all_there_in_order),
        cmocka_unit_test(test_list__and_drop),
        cmocka_unit_test(test_drop__of_what_is_leased_is_busy),
        cmocka_unit_test(test_verify__is_followed_to_its_end),
        cmocka_unit_test(test_trim__is_followed_to_its_end),
        cmocka_unit_test(test_document__is_read_in_parts),
        cmocka_unit_test(test_status__tells_of_the_daemon),
        cmocka_unit_test(test_fence__is_checked_and_done),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
