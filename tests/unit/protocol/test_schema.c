/*
 * test_schema.c - the schema as such: what was released stays, and its parts fit together.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "protocol/schema_private.h"
#include "wire_sample.h"

/* Every message that there ever was: append only, and no size ever changes. */
static const struct {
    const char *name;
    uint32_t type;
    uint32_t size; /* of its fields */
} released[] = {
    {"error", 1, 200},
    {"done", 2, 0},
    {"event", 3, 24},
    {"hello", 4, 28},
    {"welcome", 5, 56},
    {"namespace_open", 6, 72},
    {"namespace_opened", 7, 104},
    {"namespace_release", 8, 8},
    {"put_begin", 9, 108},
    {"put_begun", 10, 50},
    {"put_wait", 11, 16},
    {"put_state", 12, 42},
    {"put_plan", 13, 24},
    {"put_planned", 14, 8},
    {"put_first_tokens", 15, 8},
    {"put_first_tokens_are", 16, 0},
    {"put_ack", 17, 28},
    {"put_fail", 18, 12},
    {"put_extend", 19, 64},
    {"put_close", 20, 108},
    {"put_abort", 21, 12},
    {"put_release", 22, 8},
    {"find", 23, 100},
    {"find_points", 24, 84},
    {"found", 25, 184},
    {"find_all", 26, 100},
    {"found_all", 27, 8},
    {"lease_load", 28, 12},
    {"lease_wait", 29, 12},
    {"lease_state", 30, 92},
    {"lease_extent", 31, 16},
    {"lease_extent_is", 32, 24},
    {"lease_pages", 33, 24},
    {"lease_pages_are", 34, 8},
    {"page_begin", 35, 28},
    {"page_begun", 36, 61},
    {"page_end", 37, 18},
    {"read_ahead", 38, 32},
    {"lease_release", 39, 8},
    {"export", 40, 12},
    {"exported", 41, 32},
    {"attach", 42, 44},
    {"attached", 43, 142},
    {"fence", 44, 36},
    {"statistics", 45, 0},
    {"statistics_are", 46, 0},
    {"list", 47, 8},
    {"listed", 48, 8},
    {"drop", 49, 32},
    {"verify", 50, 5},
    {"verified", 51, 42},
    {"trim", 52, 5},
    {"trimmed", 53, 13},
    {"document", 54, 104},
    {"document_is", 55, 8},
    {"status", 56, 0},
    {"status_is", 57, 70},
};

static const wire_record records[] = {
#define RECORD_ITSELF(NAME, name, text) WIRE_RECORD_##NAME,
    WIRE_RECORD_TABLE(RECORD_ITSELF)
#undef RECORD_ITSELF
};

#define RECORD_COUNT (sizeof records / sizeof records[0])

static void test_schema__released_messages_keep_number_and_size(void **unused)
{
    size_t count = 0;

    (void)unused;
    while (wire_row_at((uint32_t)count) != NULL) {
        const wire_row *row = wire_row_at((uint32_t)count);

        assert_true(count < sizeof released / sizeof released[0]);
        assert_string_equal(row->layout()->name, released[count].name);
        assert_int_equal(row->type, released[count].type);
        assert_int_equal(row->layout()->size, released[count].size);
        count++;
    }
    assert_int_equal(count, sizeof released / sizeof released[0]);
}

static void test_schema__a_type_is_found_by_its_number(void **unused)
{
    const wire_row *row;

    (void)unused;
    for (uint32_t place = 0; (row = wire_row_at(place)) != NULL; place++) {
        assert_int_equal(row->type, place + 1);
        assert_ptr_equal(wire_row_of(row->type), row);
        assert_ptr_equal(wire_type_name(row->type), row->layout()->name);
    }
    assert_null(wire_row_of(0));
    assert_null(wire_type_name(0));
    assert_null(wire_type_name(UINT16_MAX));
    assert_null(wire_type_name(UINT32_MAX));
}

static void test_schema__every_request_has_a_reply(void **unused)
{
    const wire_row *row;

    (void)unused;
    for (uint32_t place = 0; (row = wire_row_at(place)) != NULL; place++) {
        const uint32_t reply = wire_type_reply(row->type);

        if (wire_type_role(row->type) == WIRE_ROLE_REQUEST) {
            assert_int_equal(wire_type_role(reply), WIRE_ROLE_REPLY);
        } else {
            assert_int_equal(reply, 0);
        }
    }
}

static void check_limits(const wire_field *field)
{
    switch (field->kind) {
    case WIRE_KIND_BYTES:
        assert_int_equal(field->size, field->a);
        break;
    case WIRE_KIND_TEXT:
        assert_int_equal(field->size, field->a);
        assert_true(field->b < field->size);
        break;
    case WIRE_KIND_LETTER:
        assert_true(field->a > 0 && field->a <= field->b && field->b <= WIRE_LETTER_MAX);
        break;
    case WIRE_KIND_I64:
        assert_true((int64_t)field->a <= (int64_t)field->b);
        break;
    case WIRE_KIND_RECORD:
        assert_int_equal(field->size, wire_record_size(field->record));
        break;
    case WIRE_KIND_U8:
    case WIRE_KIND_U16:
    case WIRE_KIND_U32:
    case WIRE_KIND_U64:
        assert_true(field->a <= field->b && field->b <= sample_largest(field));
        break;
    }
}

static size_t host_size_of(const wire_field *field)
{
    return field->kind == WIRE_KIND_RECORD ? wire_record_host_size(field->record) : field->size;
}

/* Sizes add up, and no member of the struct lies over another one. */
static void check_layout(const wire_layout *layout)
{
    size_t size = 0;
    size_t host = 0;

    for (uint32_t i = 0; i < layout->field_count; i++) {
        const wire_field *field = &layout->fields[i];

        assert_true(field->host >= host);
        host = field->host + host_size_of(field);
        size += field->size;
        check_limits(field);
        for (uint32_t j = 0; j < i; j++) {
            assert_string_not_equal(field->name, layout->fields[j].name);
        }
    }
    assert_int_equal(size, layout->size);
    assert_true(host <= layout->host_size);
}

static void test_schema__layouts_have_no_overlap_and_limits_that_fit(void **unused)
{
    const wire_row *row;

    (void)unused;
    for (uint32_t place = 0; (row = wire_row_at(place)) != NULL; place++) {
        check_layout(row->layout());
    }
    for (size_t i = 0; i < RECORD_COUNT; i++) {
        check_layout(wire_record_layout(records[i]));
    }
}

static void test_schema__records_have_no_records_in_them(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < RECORD_COUNT; i++) {
        const wire_layout *layout = wire_record_layout(records[i]);

        for (uint32_t j = 0; j < layout->field_count; j++) {
            assert_int_not_equal(layout->fields[j].kind, WIRE_KIND_RECORD);
        }
    }
}

/* The codec copies them without a look at each. */
static void test_schema__an_octet_is_any_byte(void **unused)
{
    const wire_layout *layout = wire_record_layout(WIRE_RECORD_OCTET);

    (void)unused;
    assert_int_equal(layout->size, 1);
    assert_int_equal(layout->host_size, 1);
    assert_int_equal(layout->fields[0].a, 0);
    assert_int_equal(layout->fields[0].b, UINT8_MAX);
}

static void test_schema__every_message_fits(void **unused)
{
    const wire_row *row;

    (void)unused;
    for (uint32_t place = 0; (row = wire_row_at(place)) != NULL; place++) {
        const uint32_t most = wire_row_most(row);
        size_t size = WIRE_HEAD_SIZE + row->layout()->size;

        assert_true(row->least <= most);
        if (row->item != WIRE_RECORD_NONE) {
            size += 4 + most * wire_record_size(row->item);
            assert_true(most > 0);
        }
        assert_true(size <= WIRE_MESSAGE_MAX);
    }
    assert_int_equal(wire_row_most(wire_row_of(WIRE_PUT_PLANNED)), WIRE_ITEMS_PUT_PLANNED);
    assert_int_equal(wire_row_most(wire_row_of(WIRE_FOUND)), WIRE_ITEMS_FOUND);
    assert_int_equal(wire_row_most(wire_row_of(WIRE_FOUND_ALL)), WIRE_ITEMS_FOUND_ALL);
    assert_int_equal(wire_row_most(wire_row_of(WIRE_LEASE_PAGES_ARE)), WIRE_ITEMS_LEASE_PAGES_ARE);
    assert_int_equal(wire_row_most(wire_row_of(WIRE_LISTED)), WIRE_ITEMS_LISTED);
    assert_int_equal(wire_row_most(wire_row_of(WIRE_DOCUMENT_IS)), WIRE_ITEMS_DOCUMENT_IS);
}

/* The public structs hold what the fields can, so that field by field nothing is cut. */
static void test_schema__texts_and_digests_are_as_long_as_the_public_ones(void **unused)
{
    (void)unused;
    assert_int_equal(sizeof((wire_error *)0)->text, sizeof((kvarve_error *)0)->text);
    assert_int_equal(sizeof((wire_miss *)0)->field, sizeof((kvarve_miss *)0)->field);
    assert_int_equal(sizeof((wire_checkpoint *)0)->namespace_text,
                     sizeof((kvarve_checkpoint_info *)0)->namespace_text);
    assert_int_equal(sizeof((wire_boundary *)0)->id, sizeof((kvarve_boundary *)0)->id);
    assert_int_equal(sizeof((wire_page_digest *)0)->digest, KVARVE_PAGE_DIGEST_SIZE);
    assert_int_equal(sizeof((wire_point *)0)->digest, KVARVE_DIGEST_SIZE);
    assert_int_equal(WIRE_TOKENS_MAX % WIRE_STEP_TOKENS, 0);
}

static void test_schema__statistics_have_room_for_every_row(void **unused)
{
    const size_t count = (sizeof(kvarve_statistics) - sizeof(size_t)) / sizeof(uint64_t);
    const wire_row *row = wire_row_of(WIRE_STATISTICS_ARE);

    (void)unused;
    assert_int_equal(row->item, WIRE_RECORD_NUMBER);
    assert_true(count >= row->least && count <= wire_row_most(row));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schema__released_messages_keep_number_and_size),
        cmocka_unit_test(test_schema__a_type_is_found_by_its_number),
        cmocka_unit_test(test_schema__every_request_has_a_reply),
        cmocka_unit_test(test_schema__layouts_have_no_overlap_and_limits_that_fit),
        cmocka_unit_test(test_schema__records_have_no_records_in_them),
        cmocka_unit_test(test_schema__an_octet_is_any_byte),
        cmocka_unit_test(test_schema__every_message_fits),
        cmocka_unit_test(test_schema__texts_and_digests_are_as_long_as_the_public_ones),
        cmocka_unit_test(test_schema__statistics_have_room_for_every_row),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
