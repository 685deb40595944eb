/*
 * test_codec.c - every message comes back, in one form, and nothing but a whole one is taken.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "protocol/protocol.h"
#include "wire_sample.h"

static uint8_t bytes[WIRE_MESSAGE_MAX];
static uint8_t again[WIRE_MESSAGE_MAX];
static sample_items items;

static size_t encode(const wire_message *message)
{
    kvarve_error err = {0};
    size_t size = 0;

    if (wire_encode(message, bytes, sizeof bytes, &size, &err) != KVARVE_OK) {
        fail_msg("%s", err.text);
    }
    return size;
}

static wire_message decode(const uint8_t *from, size_t size)
{
    kvarve_error err = {0};
    wire_message message = {0};

    if (wire_decode(from, size, &message, &err) != KVARVE_OK) {
        fail_msg("%s", err.text);
    }
    return message;
}

/* Encode what was decoded, item by item; its size. */
static size_t encode_again(const wire_message *message)
{
    sample_items item;
    size_t size = 0;

    for (uint32_t i = 0; i < message->count; i++) {
        wire_item(message, i, &item);
        assert_int_equal(wire_encode_item(message->type, i, &item, again, sizeof again, NULL),
                         KVARVE_OK);
    }
    assert_int_equal(wire_encode(message, again, sizeof again, &size, NULL), KVARVE_OK);
    return size;
}

static void check_round_trip(const wire_row *row, sample_end end, uint32_t count)
{
    const wire_message message = sample_message(row, end, count, &items);
    const size_t size = encode(&message);
    const wire_message back = decode(bytes, size);

    assert_int_equal(back.type, message.type);
    assert_int_equal(back.id, message.id);
    assert_int_equal(back.count, count);
    assert_int_equal(encode_again(&back), size);
    assert_memory_equal(again, bytes, size);
}

static void test_wire__every_message_comes_back_at_its_limits(void **unused)
{
    const wire_row *row;

    (void)unused;
    for (uint32_t place = 0; (row = wire_row_at(place)) != NULL; place++) {
        check_round_trip(row, SAMPLE_LOW, row->least);
        check_round_trip(row, SAMPLE_HIGH, row->least);
        check_round_trip(row, SAMPLE_LOW, wire_row_most(row));
        check_round_trip(row, SAMPLE_HIGH, wire_row_most(row));
    }
}

static void test_wire__fields_come_back_in_their_struct(void **unused)
{
    const wire_plan_entry entries[2] = {
        {.group = 1, .action = KVARVE_PAGE_COPY, .position = 7, .offset = 4096, .size = 100},
        {.group = 2,
         .action = KVARVE_PAGE_WAIT,
         .position = 8,
         .first_token = 512,
         .tokens = 64,
         .size = 101,
         .has_expected = 1,
         .expected = {9, 8, 7}},
    };
    wire_message message = {.type = WIRE_PUT_PLANNED, .id = 12, .count = 2, .items = entries};
    wire_plan_entry entry;
    wire_message back;

    (void)unused;
    message.as.put_planned.total = 77;
    back = decode(bytes, encode(&message));
    assert_int_equal(back.as.put_planned.total, 77);
    assert_int_equal(back.count, 2);
    wire_item(&back, 1, &entry);
    assert_int_equal(entry.group, 2);
    assert_int_equal(entry.action, KVARVE_PAGE_WAIT);
    assert_int_equal(entry.position, 8);
    assert_int_equal(entry.first_token, 512);
    assert_int_equal(entry.tokens, 64);
    assert_int_equal(entry.size, 101);
    assert_int_equal(entry.has_expected, 1);
    assert_memory_equal(entry.expected, entries[1].expected, 16);
    wire_item(&back, 0, &entry);
    assert_int_equal(entry.offset, 4096);
}

/* A copy of exactly `size` bytes, whose head says so if told to. */
static kvarve_status decode_cut(size_t size, bool says_so)
{
    uint8_t *copy = kvarve_allocate(size > 0 ? size : 1);
    wire_message out;
    kvarve_status status;

    assert_non_null(copy);
    memcpy(copy, bytes, size);
    if (says_so && size >= 8) {
        const uint32_t claim = (uint32_t)size;

        for (unsigned i = 0; i < 4; i++) {
            copy[4 + i] = (uint8_t)(claim >> (8 * i));
        }
    }
    status = wire_decode(copy, size, &out, NULL);
    kvarve_release(copy);
    return status;
}

static void test_wire__every_truncation_is_refused(void **unused)
{
    const wire_row *row;

    (void)unused;
    for (uint32_t place = 0; (row = wire_row_at(place)) != NULL; place++) {
        const uint32_t most = wire_row_most(row);
        const uint32_t few = row->least > 2 ? row->least : 2;
        const uint32_t count = most < few ? most : few;
        const wire_message message = sample_message(row, SAMPLE_HIGH, count, &items);
        const size_t size = encode(&message);

        for (size_t cut = 0; cut < size; cut++) {
            assert_int_equal(decode_cut(cut, false), KVARVE_INVALID);
            assert_int_equal(decode_cut(cut, true), KVARVE_INVALID);
        }
        bytes[size] = 0;
        assert_int_equal(decode_cut(size + 1, false), KVARVE_INVALID);
        assert_int_equal(decode_cut(size + 1, true), KVARVE_INVALID);
        assert_int_equal(decode_cut(size, false), KVARVE_OK);
    }
}

static void check_refused(size_t at, uint8_t value, size_t size, kvarve_status expected,
                          const char *text)
{
    const uint8_t was = bytes[at];
    kvarve_error err = {0};
    wire_message out;

    bytes[at] = value;
    assert_int_equal(wire_decode(bytes, size, &out, &err), expected);
    assert_string_equal(err.text, text);
    bytes[at] = was;
}

static void test_wire__heads_that_do_not_fit_are_refused(void **unused)
{
    wire_message message = {.type = WIRE_DROP, .id = 3};
    wire_message event = {.type = WIRE_EVENT};
    size_t size;

    (void)unused;
    size = encode(&message);
    check_refused(2, 1, size, KVARVE_UNSUPPORTED, "drop: flags 0x1, none are known");
    check_refused(3, 0x80, size, KVARVE_UNSUPPORTED, "drop: flags 0x8000, none are known");
    check_refused(0, 0, size, KVARVE_UNSUPPORTED, "message of type 0, which is not known");
    check_refused(1, 0x10, size, KVARVE_UNSUPPORTED, "message of type 4145, which is not known");
    check_refused(4, 49, size, KVARVE_INVALID, "drop: 48 bytes, it says 49");
    check_refused(6, 1, size, KVARVE_INVALID, "drop: 48 bytes, it says 65584");
    check_refused(8, 0, size, KVARVE_INVALID, "drop: id is 0, allowed 1 or more");
    event.as.event = (wire_event){.kind = KVARVE_EVENT_READY, .cookie = 1};
    size = encode(&event);
    check_refused(15, 1, size, KVARVE_INVALID,
                  "event: id is 72057594037927936, allowed 0 for an event");
    message = (wire_message){.type = WIRE_ERROR, .as.error = {.status = KVARVE_IO}};
    assert_int_equal(decode(bytes, encode(&message)).id, 0);
    message = (wire_message){.type = WIRE_DONE};
    assert_int_equal(wire_encode(&message, bytes, sizeof bytes, &size, NULL), KVARVE_INVALID);
}

static void test_wire__a_head_is_read_whatever_follows(void **unused)
{
    static const uint8_t strange[WIRE_HEAD_SIZE] = {0xff, 0xee, 1, 0, 2, 0, 0, 0, 5};
    wire_head head;

    (void)unused;
    assert_int_equal(wire_decode_head(strange, sizeof strange, &head, NULL), KVARVE_OK);
    assert_int_equal(head.type, 0xeeff);
    assert_int_equal(head.flags, 1);
    assert_int_equal(head.size, 2);
    assert_int_equal(head.id, 5);
    assert_int_equal(wire_decode_head(strange, sizeof strange - 1, &head, NULL), KVARVE_INVALID);
}

static void test_wire__counts_beyond_the_message_are_refused(void **unused)
{
    wire_message message = {.type = WIRE_FOUND, .id = 1};
    const size_t at = WIRE_HEAD_SIZE + WIRE_FIELDS_SIZE_FOUND;
    kvarve_error err;
    size_t size;

    (void)unused;
    size = encode(&message);
    check_refused(at, 1, size, KVARVE_INVALID, "found: 204 bytes, it has 292 with 1 items");
    check_refused(at + 3, 0xff, size, KVARVE_INVALID, "found: 4278190080 items, allowed 0 .. 742");
    message.count = WIRE_ITEMS_FOUND + 1;
    assert_int_equal(wire_encode(&message, bytes, sizeof bytes, &size, &err), KVARVE_INVALID);
    message = (wire_message){
        .type = WIRE_NAMESPACE_OPEN, .id = 1, .as.namespace_open = {.rank_count = 1}};
    assert_int_equal(wire_encode(&message, bytes, sizeof bytes, &size, &err), KVARVE_INVALID);
    assert_string_equal(err.text, "namespace_open: 0 items, allowed 1 .. 64");
}

static void test_wire__a_small_buffer_is_not_written_past(void **unused)
{
    const wire_row *row;

    (void)unused;
    for (uint32_t place = 0; (row = wire_row_at(place)) != NULL; place++) {
        const uint32_t most = wire_row_most(row);
        const uint32_t count = most < row->least + 1 ? most : row->least + 1;
        const wire_message message = sample_message(row, SAMPLE_HIGH, count, &items);
        const size_t size = encode(&message);
        uint8_t *small = kvarve_allocate(size);
        size_t used = 0;

        assert_non_null(small);
        assert_int_equal(wire_encode(&message, small, size - 1, &used, NULL), KVARVE_NO_SPACE);
        assert_int_equal(used, 0);
        assert_int_equal(wire_encode(&message, small, size, &used, NULL), KVARVE_OK);
        assert_int_equal(used, size);
        kvarve_release(small);
    }
}

static void test_wire__items_beyond_the_buffer_are_refused(void **unused)
{
    const wire_octet octet = {1};
    uint8_t small[64];
    const uint32_t fits = sizeof small - WIRE_HEAD_SIZE - WIRE_FIELDS_SIZE_DOCUMENT_IS - 4;

    (void)unused;
    assert_int_equal(
        wire_encode_item(WIRE_DOCUMENT_IS, fits - 1, &octet, small, sizeof small, NULL), KVARVE_OK);
    assert_int_equal(wire_encode_item(WIRE_DOCUMENT_IS, fits, &octet, small, sizeof small, NULL),
                     KVARVE_NO_SPACE);
    assert_int_equal(
        wire_encode_item(WIRE_DOCUMENT_IS, UINT32_MAX, &octet, small, sizeof small, NULL),
        KVARVE_INVALID);
}

static void check_bytes(const wire_message *message, const char *expected)
{
    static const char digits[] = "0123456789abcdef";
    static char text[2 * WIRE_MESSAGE_MAX + 1];
    const size_t size = encode(message);

    for (size_t i = 0; i < size; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
    text[2 * size] = 0;
    assert_string_equal(text, expected);
}

static void test_wire__version_1_has_these_bytes(void **unused)
{
    const wire_page_entry page = {.group = 1,
                                  .tokens = 2,
                                  .position = 3,
                                  .first_token = 4,
                                  .offset = 0x5000,
                                  .size = 6,
                                  .is_verified = 1,
                                  .digest = "0123456789abcde"};
    wire_message message = {.type = WIRE_HELLO, .id = 1};

    (void)unused;
    message.as.hello = (wire_hello){.magic = WIRE_MAGIC,
                                    .version_oldest = WIRE_VERSION_OLDEST,
                                    .version_newest = WIRE_VERSION,
                                    .pid = 0x1234,
                                    .letter_bytes = 1 << 20};
    check_bytes(&message, "04000000"
                          "2c000000"
                          "0100000000000000"
                          "6b76776972653"
                          "10a"
                          "01000000"
                          "01000000"
                          "34120000"
                          "0000100000000000");
    message = (wire_message){.type = WIRE_ERROR, .id = 2};
    message.as.error = (wire_error){.status = KVARVE_BUSY};
    message = (wire_message){.type = WIRE_PUT_BEGIN, .id = 0x0807060504030201};
    message.as.put_begin.space = 5;
    message.as.put_begin.prefix.tokens = (wire_letter){8, 4096};
    message.as.put_begin.prefix.steps = (wire_letter){8192, 128};
    message.as.put_begin.options = (wire_put_options){.tokens = 1024,
                                                      .draft_tokens = 1000,
                                                      .cookie = 9,
                                                      .kind = KVARVE_KIND_RESPONSE,
                                                      .timeout_ms = 500,
                                                      .flags = KVARVE_PUT_DROP_ON_WAIT,
                                                      .sizes = {16384, 16}};
    check_bytes(&message, "09000000"
                          "7c000000"
                          "0102030405060708"
                          "0500000000000000"
                          "0800000000000000"
                          "0010000000000000"
                          "0020000000000000"
                          "8000000000000000"
                          "0004000000000000"
                          "e803000000000000"
                          "0900000000000000"
                          "02000000"
                          "f4010000"
                          "01000000"
                          "0000000000000000"
                          "0000000000000000"
                          "0040000000000000"
                          "1000000000000000");
    message = (wire_message){.type = WIRE_LEASE_PAGES_ARE, .id = 3, .count = 1, .items = &page};
    message.as.lease_pages_are.total = 40;
    check_bytes(&message, "22000000"
                          "51000000"
                          "0300000000000000"
                          "2800000000000000"
                          "01000000"
                          "01000000"
                          "02000000"
                          "0300000000000000"
                          "0400000000000000"
                          "0050000000000000"
                          "06000000"
                          "01"
                          "30313233343536373839616263646500");
}

static void test_wire__records_of_the_letter_are_packed(void **unused)
{
    const wire_page_digest digest = {
        .rank = KVARVE_RANK_ALL, .group = 1, .position = 2, .digest = {3}};
    uint8_t packed[WIRE_RECORD_SIZE_PAGE_DIGEST];
    wire_page_digest back;

    (void)unused;
    assert_int_equal(wire_record_size(WIRE_RECORD_PAGE_DIGEST), 32);
    assert_int_equal(wire_record_host_size(WIRE_RECORD_PAGE_DIGEST), sizeof digest);
    assert_int_equal(wire_record_size(WIRE_RECORD_POINT), 40);
    assert_int_equal(wire_record_size(WIRE_RECORD_NUMBER), 8);
    assert_int_equal(wire_record_encode(WIRE_RECORD_PAGE_DIGEST, &digest, packed, NULL), KVARVE_OK);
    assert_int_equal(packed[8], 2);
    assert_int_equal(wire_record_decode(WIRE_RECORD_PAGE_DIGEST, packed, &back, NULL), KVARVE_OK);
    assert_memory_equal(&back, &digest, sizeof back);
}

static void test_wire__a_wrong_record_leaves_the_struct_alone(void **unused)
{
    static const uint8_t wrong[WIRE_RECORD_SIZE_GROUP] = {9};
    wire_group group = {.page_class = 1, .page_bytes = 2};
    kvarve_error err;

    (void)unused;
    assert_int_equal(wire_record_decode(WIRE_RECORD_GROUP, wrong, &group, &err), KVARVE_INVALID);
    assert_string_equal(err.text, "group: page_class is 9, allowed 0 .. 3");
    assert_int_equal(group.page_class, 1);
    assert_int_equal(group.page_bytes, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wire__every_message_comes_back_at_its_limits),
        cmocka_unit_test(test_wire__fields_come_back_in_their_struct),
        cmocka_unit_test(test_wire__every_truncation_is_refused),
        cmocka_unit_test(test_wire__heads_that_do_not_fit_are_refused),
        cmocka_unit_test(test_wire__a_head_is_read_whatever_follows),
        cmocka_unit_test(test_wire__counts_beyond_the_message_are_refused),
        cmocka_unit_test(test_wire__a_small_buffer_is_not_written_past),
        cmocka_unit_test(test_wire__items_beyond_the_buffer_are_refused),
        cmocka_unit_test(test_wire__version_1_has_these_bytes),
        cmocka_unit_test(test_wire__records_of_the_letter_are_packed),
        cmocka_unit_test(test_wire__a_wrong_record_leaves_the_struct_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
