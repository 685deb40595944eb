/*
 * test_hello.c - the greeting, namespaces, and messages that are not what they should be.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "session_kit.h"

static wire_message hello(void)
{
    wire_message request = {.type = WIRE_HELLO};

    request.as.hello = (wire_hello){.magic = WIRE_MAGIC, .version_oldest = 1, .version_newest = 9};
    return request;
}

/* The connection is over, and the client is told why with id 0. */
static void assert_closed(kit_client *client, kvarve_status status)
{
    assert_true(client->is_closed);
    assert_true(kit_has_reply(client));
    assert_int_equal(client->reply.type, WIRE_ERROR);
    assert_int_equal(client->reply.id, 0);
    assert_int_equal(client->reply.as.error.status, status);
    assert_true(client->err.text[0] != 0);
}

static void test_hello__the_client_learns_what_it_maps(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request = hello();
    const wire_welcome *welcome;
    uint64_t size = 0;
    const void *base = NULL;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect_silent(&kit);
    assert_false(kit_count(client).is_greeted);
    kit_ask(client, &request, WIRE_WELCOME);
    welcome = &client->reply.as.welcome;
    store_arena(kit.store, &base, &size, NULL);
    assert_int_equal(welcome->version, 1);
    assert_int_equal(welcome->epoch, 7);
    assert_int_equal(welcome->io_timeout_ms, 30000);
    assert_int_equal(welcome->arena_bytes, size);
    assert_memory_not_equal(welcome->store, (uint8_t[16]){0}, 16);
    assert_memory_not_equal(welcome->fingerprint, (uint8_t[16]){0}, 16);
    assert_true(kit_count(client).is_greeted);
    kit_end(&kit);
}

static void test_hello__a_second_one_ends_the_connection(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request = hello();

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    kit_send(client, &request);
    assert_closed(client, KVARVE_INVALID);
    kit_end(&kit);
}

static void test_hello__nothing_is_taken_before_it(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request = {.type = WIRE_STATISTICS};

    (void)unused;
    kit_begin(&kit);
    client = kit_connect_silent(&kit);
    kit_send(client, &request);
    assert_closed(client, KVARVE_INVALID);
    kit_end(&kit);
}

static void test_hello__other_versions_are_refused_by_number(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request = hello();

    (void)unused;
    kit_begin(&kit);
    client = kit_connect_silent(&kit);
    request.as.hello.version_oldest = 2;
    kit_send(client, &request);
    assert_closed(client, KVARVE_UNSUPPORTED);
    assert_non_null(strstr(client->reply.as.error.text, "2 .. 9"));
    assert_non_null(strstr(client->reply.as.error.text, "1 .. 1"));
    kit_end(&kit);
}

static void test_hello__a_letter_is_not_larger_than_what_was_lent(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request = hello();

    (void)unused;
    kit_begin(&kit);
    client = kit_connect_silent(&kit);
    request.as.hello.letter_bytes = KIT_LETTER_BYTES + 1;
    kit_send(client, &request);
    assert_closed(client, KVARVE_INVALID);
    kit_end(&kit);
}

static void test_hello__only_what_hello_said_of_the_letter_is_read(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request = hello();
    const wire_group group = {
        .page_class = KVARVE_CLASS_PREFIX, .span_tokens = 4, .page_bytes = 64};

    (void)unused;
    kit_begin(&kit);
    client = kit_connect_silent(&kit);
    request.as.hello.letter_bytes = 8;
    kit_ask(client, &request, WIRE_WELCOME);
    request = (wire_message){.type = WIRE_NAMESPACE_OPEN, .count = 1, .items = &group};
    request.as.namespace_open.rank_count = 1;
    request.as.namespace_open.identity = kit_lay(client, "{\"a\":10}", 8);
    kit_ask(client, &request, WIRE_NAMESPACE_OPENED);
    request.as.namespace_open.identity = kit_lay(client, "{\"a\":10}", 8);
    kit_refused(client, &request, KVARVE_INVALID);
    kit_end(&kit);
}

static void send_bytes(kit_client *client, const uint8_t *bytes, size_t size)
{
    client->is_closed = session_take(client->session, bytes, size, &client->err) != KVARVE_OK;
}

static void test_garbage__who_asked_is_answered_where_that_is_known(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    uint8_t bytes[WIRE_HEAD_SIZE] = {0xff, 0x7f, 0, 0, WIRE_HEAD_SIZE, 0, 0, 0, 9};

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    client->id = 9;
    send_bytes(client, bytes, sizeof bytes); /* a type of a later version */
    assert_false(client->is_closed);
    kit_answered_error(client, KVARVE_UNSUPPORTED);
    bytes[0] = WIRE_PUT_WAIT; /* its fields are not there */
    bytes[1] = 0;
    send_bytes(client, bytes, sizeof bytes);
    assert_false(client->is_closed);
    kit_answered_error(client, KVARVE_INVALID);
    send_bytes(client, bytes, 7);
    assert_closed(client, KVARVE_INVALID);
    kit_end(&kit);
}

static void test_garbage__of_nobody_ends_the_connection(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    const uint8_t bytes[WIRE_HEAD_SIZE] = {WIRE_STATUS, 0, 0, 0, WIRE_HEAD_SIZE}; /* id 0 */

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    send_bytes(client, bytes, sizeof bytes);
    assert_closed(client, KVARVE_INVALID);
    kit_end(&kit);
}

static void test_garbage__a_reply_is_no_request(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request = {.type = WIRE_DONE};

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    kit_send(client, &request);
    assert_closed(client, KVARVE_INVALID);
    kit_end(&kit);
}

static void test_namespace__lives_until_it_is_released(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    wire_message request = {.type = WIRE_NAMESPACE_RELEASE};

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    assert_int_equal(kit_count(client).namespaces, 1);
    assert_int_equal(strncmp(client->reply.as.namespace_opened.text, "recurrent-sha256-v1:", 20),
                     0);
    request.as.namespace_release.space = client->space;
    kit_ask(client, &request, WIRE_DONE);
    assert_int_equal(kit_count(client).namespaces, 0);
    kit_refused(client, &request, KVARVE_INVALID);
    kit_end(&kit);
}

static void test_namespace__texts_with_a_nul_and_bad_documents_are_refused(void **unused)
{
    session_kit kit = {0};
    kit_client *client;
    const wire_group group = {
        .page_class = KVARVE_CLASS_PREFIX, .span_tokens = 4, .page_bytes = 64};
    wire_message request = {.type = WIRE_NAMESPACE_OPEN, .count = 1, .items = &group};

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    request.as.namespace_open.rank_count = 1;
    request.as.namespace_open.identity = kit_lay(client, "{}\0{}", 5);
    kit_refused(client, &request, KVARVE_INVALID);
    request.as.namespace_open.identity = kit_lay(client, "{\"a\":", 5);
    kit_refused(client, &request, KVARVE_INVALID);
    request.as.namespace_open.identity = (wire_letter){0};
    kit_refused(client, &request, KVARVE_INVALID);
    request.as.namespace_open.identity = (wire_letter){.offset = KIT_LETTER_BYTES - 8, .size = 9};
    kit_refused(client, &request, KVARVE_INVALID);
    assert_int_equal(kit_count(client).namespaces, 1);
    kit_end(&kit);
}

static void test_limits__handles_have_a_limit_that_is_named(void **unused)
{
    session_kit kit = {.limits = {.handles = 2}};
    kit_client *client;
    wire_message request;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    (void)kit_begin_put(client, 8);
    request = kit_put_begin(client, 12);
    kit_refused(client, &request, KVARVE_NO_SPACE);
    assert_non_null(strstr(client->reply.as.error.text, "2"));
    kit_end(&kit);
}

static void test_limits__who_takes_no_replies_loses_the_connection(void **unused)
{
    session_kit kit = {.limits = {.backlog_bytes = 4096}};
    kit_client *client;
    wire_message request = {.type = WIRE_STATISTICS};
    uint32_t sent = 0;

    (void)unused;
    kit_begin(&kit);
    client = kit_connect(&kit);
    do {
        kit_send(client, &request);
        sent++;
    } while (!client->is_closed);
    assert_in_range(sent, 2, 10);
    assert_true(session_is_broken(client->session));
    assert_non_null(strstr(client->err.text, "4096"));
    while (kit_has_reply(client)) { /* what was queued can still be sent */
        sent--;
    }
    assert_int_equal(sent, 1);
    kit_end(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hello__the_client_learns_what_it_maps),
        cmocka_unit_test(test_hello__a_second_one_ends_the_connection),
        cmocka_unit_test(test_hello__nothing_is_taken_before_it),
        cmocka_unit_test(test_hello__other_versions_are_refused_by_number),
        cmocka_unit_test(test_hello__a_letter_is_not_larger_than_what_was_lent),
        cmocka_unit_test(test_hello__only_what_hello_said_of_the_letter_is_read),
        cmocka_unit_test(test_garbage__who_asked_is_answered_where_that_is_known),
        cmocka_unit_test(test_garbage__of_nobody_ends_the_connection),
        cmocka_unit_test(test_garbage__a_reply_is_no_request),
        cmocka_unit_test(test_namespace__lives_until_it_is_released),
        cmocka_unit_test(test_namespace__texts_with_a_nul_and_bad_documents_are_refused),
        cmocka_unit_test(test_limits__handles_have_a_limit_that_is_named),
        cmocka_unit_test(test_limits__who_takes_no_replies_loses_the_connection),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
