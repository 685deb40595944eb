/*
 * test_limits.c - every field of every message beyond its limits is refused, in both directions,
 * and the text names message, field and limits.
 *
 * The cases come from the schema: each field is set to what lies just beyond each end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "protocol/protocol.h"
#include "wire_sample.h"

static uint8_t bytes[WIRE_MESSAGE_MAX];
static sample_items items;

/* One field of one message, and where it is. */
typedef struct target {
    const wire_row *row;
    const wire_field *field;
    const char *path; /* in the text: "options.kind" */
    size_t at;        /* in the message */
    uint8_t *host;    /* in the struct, or the first item */
    wire_message *message;
} target;

static unsigned cases;

/* The message with this field wrong: neither encoded nor decoded. `text`: how the complaint goes
 * on after message and field. */
static void check_both(const target *at, const uint8_t *wrong_host, size_t host_size,
                       const uint8_t *wrong_bytes, const char *text)
{
    uint8_t was[256];
    char expected[KVARVE_ERROR_TEXT_MAX];
    kvarve_error err = {0};
    wire_message out;
    size_t size = 0;

    assert_true(host_size <= sizeof was);
    (void)snprintf(expected, sizeof expected, "%s: %s %s", at->row->layout()->name, at->path, text);
    memcpy(was, at->host, host_size);
    memcpy(at->host, wrong_host, host_size);
    assert_int_equal(wire_encode(at->message, bytes, sizeof bytes, &size, &err), KVARVE_INVALID);
    assert_string_equal(err.text, expected);
    memcpy(at->host, was, host_size);

    assert_int_equal(wire_encode(at->message, bytes, sizeof bytes, &size, &err), KVARVE_OK);
    memcpy(bytes + at->at, wrong_bytes, at->field->size);
    assert_int_equal(wire_decode(bytes, size, &out, &err), KVARVE_INVALID);
    assert_string_equal(err.text, expected);
    cases++;
}

static void little_endian(uint8_t *out, uint64_t value, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        out[i] = (uint8_t)(value >> (8 * i));
    }
}

static void check_number(const target *at, uint64_t value)
{
    uint8_t encoded[8];
    uint8_t host[8];
    char text[128];

    (void)snprintf(text, sizeof text, "is %" PRIu64 ", allowed %" PRIu64 " .. %" PRIu64, value,
                   at->field->a, at->field->b);
    little_endian(encoded, value, at->field->size);
    sample_number(host, value, at->field->size);
    check_both(at, host, at->field->size, encoded, text);
}

static void check_range(const target *at, uint64_t offset, uint64_t size, const char *text)
{
    const wire_letter range = {offset, size};
    uint8_t encoded[16];

    little_endian(encoded, offset, 8);
    little_endian(encoded + 8, size, 8);
    check_both(at, (const uint8_t *)&range, sizeof range, encoded, text);
}

static void check_letter(const target *at)
{
    const uint64_t unit = at->field->a;
    const uint64_t over = at->field->b - at->field->b % unit + unit;
    char text[128];

    (void)snprintf(text, sizeof text,
                   "has %" PRIu64 " bytes, allowed multiples of %" PRIu64 ", 0 .. %" PRIu64, over,
                   unit, at->field->b);
    check_range(at, 0, over, text);
    if (unit > 1) {
        (void)snprintf(text, sizeof text,
                       "has %" PRIu64 " bytes, allowed multiples of %" PRIu64 ", 0 .. %" PRIu64,
                       unit + 1, unit, at->field->b);
        check_range(at, 0, unit + 1, text);
    }
    check_range(at, 12, unit, "is at 12, allowed multiples of 8, and 0 for nothing");
    check_range(at, 8, 0, "is at 8, allowed multiples of 8, and 0 for nothing");
    check_range(at, WIRE_LETTER_MAX, unit, "ends after 4294967296, the most that a letter has");
    check_range(at, UINT64_MAX - 7, unit, "ends after 4294967296, the most that a letter has");
}

static void check_text(const target *at)
{
    uint8_t text[256];
    char complaint[128];

    memset(text, 'x', sizeof text);
    (void)snprintf(complaint, sizeof complaint, "has %u characters, allowed %" PRIu64 " .. %u",
                   at->field->size, at->field->b, at->field->size - 1);
    check_both(at, text, at->field->size, text, complaint);
    memset(text, 0, sizeof text);
    if (at->field->b > 0) {
        (void)snprintf(complaint, sizeof complaint, "has 0 characters, allowed %" PRIu64 " .. %u",
                       at->field->b, at->field->size - 1);
        check_both(at, text, at->field->size, text, complaint);
    }
    text[0] = 0xff;
    check_both(at, text, at->field->size, text, "is not one line of UTF-8");
}

static void check_leaf(const target *at)
{
    const wire_kind kind = at->field->kind;
    uint64_t largest;

    if (kind == WIRE_KIND_LETTER) {
        check_letter(at);
        return;
    }
    if (kind == WIRE_KIND_TEXT) {
        check_text(at);
        return;
    }
    if (kind == WIRE_KIND_BYTES || kind == WIRE_KIND_I64) {
        return; /* whatever they hold is within limits */
    }
    largest = sample_largest(at->field);
    if (at->field->a > 0) {
        check_number(at, at->field->a - 1);
    }
    if (at->field->b < largest) {
        check_number(at, at->field->b + 1);
        check_number(at, largest);
    }
}

static void check_leaves(target *at, const wire_layout *layout, const char *before)
{
    uint8_t *host = at->host;

    for (uint32_t i = 0; i < layout->field_count; i++) {
        char path[80];

        (void)snprintf(path, sizeof path, "%s%s", before, layout->fields[i].name);
        at->path = path;
        at->field = &layout->fields[i];
        at->host = host + layout->fields[i].host;
        check_leaf(at);
        at->at += layout->fields[i].size;
    }
}

static void check_fields(target *at)
{
    const wire_layout *layout = at->row->layout();
    size_t offset = WIRE_HEAD_SIZE;

    for (uint32_t i = 0; i < layout->field_count; i++) {
        const wire_field *field = &layout->fields[i];
        char before[40];

        at->at = offset;
        at->path = field->name;
        at->field = field;
        at->host = (uint8_t *)&at->message->as + field->host;
        if (field->kind == WIRE_KIND_RECORD) {
            (void)snprintf(before, sizeof before, "%s.", field->name);
            check_leaves(at, wire_record_layout(field->record), before);
        } else {
            check_leaf(at);
        }
        offset += field->size;
    }
}

static void test_limits__every_field_beyond_them_is_refused_and_named(void **unused)
{
    const wire_row *row;

    (void)unused;
    for (uint32_t place = 0; (row = wire_row_at(place)) != NULL; place++) {
        const uint32_t most = wire_row_most(row);
        const uint32_t count = most < row->least + 2 ? most : row->least + 2;
        wire_message message = sample_message(row, SAMPLE_LOW, count, &items);
        target at = {.row = row, .message = &message};

        check_fields(&at);
        if (count > 0) {
            at.at = WIRE_HEAD_SIZE + row->layout()->size + 4;
            at.host = items.bytes;
            check_leaves(&at, wire_record_layout(row->item), "item 0: ");
        }
    }
    assert_true(cases > 300);
}

static void test_limits__a_wrong_item_is_named_by_its_number(void **unused)
{
    wire_boundary boundaries[4] = {{0}};
    const wire_message message = {.type = WIRE_FOUND, .id = 1, .count = 4, .items = boundaries};
    kvarve_error err = {0};
    size_t size;

    (void)unused;
    boundaries[3].tier = 2;
    assert_int_equal(wire_encode(&message, bytes, sizeof bytes, &size, &err), KVARVE_INVALID);
    assert_string_equal(err.text, "found: item 3: tier is 2, allowed 0 .. 1");
}

static void test_limits__what_follows_a_text_is_zeros(void **unused)
{
    wire_message message = {.type = WIRE_DOCUMENT, .id = 1};
    kvarve_error err = {0};
    wire_message out;
    size_t size = 0;

    (void)unused;
    /* What a buffer held before does not travel. */
    memcpy(message.as.document.namespace_text, "name\0secret", sizeof "name\0secret");
    assert_int_equal(wire_encode(&message, bytes, sizeof bytes, &size, &err), KVARVE_OK);
    for (size_t i = WIRE_HEAD_SIZE + 4; i < size; i++) {
        assert_int_equal(bytes[i], 0);
    }
    bytes[WIRE_HEAD_SIZE + 95] = 'x';
    assert_int_equal(wire_decode(bytes, size, &out, &err), KVARVE_INVALID);
    assert_string_equal(err.text, "document: namespace_text does not end in zeros");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits__every_field_beyond_them_is_refused_and_named),
        cmocka_unit_test(test_limits__a_wrong_item_is_named_by_its_number),
        cmocka_unit_test(test_limits__what_follows_a_text_is_zeros),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
