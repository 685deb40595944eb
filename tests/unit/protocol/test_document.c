/*
 * test_document.c - the tables of docs/format/wire.md are what the schema says.
 *
 * With KVARVE_WRITE=1 in the environment the page's tables are written anew instead, between its
 * two marks: that is how they are made.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/schema_private.h"
#include "wire_sample.h"

#define PAGE      "docs/format/wire.md"
#define BEGIN     "<!-- made of src/protocol/wire_schema.h by unit.protocol.document -->\n"
#define END       "<!-- end of what is made -->\n"
#define PAGE_SIZE 131072

static char page[PAGE_SIZE];
static char made[PAGE_SIZE];
static size_t made_size;

__attribute__((format(printf, 1, 2))) static void put(const char *format, ...)
{
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(made + made_size, sizeof made - made_size, format, arguments);
    va_end(arguments);
    assert_true(length >= 0 && (size_t)length < sizeof made - made_size);
    made_size += (size_t)length;
}

static void put_limits(const wire_field *field)
{
    switch (field->kind) {
    case WIRE_KIND_BYTES:
        put("bytes");
        break;
    case WIRE_KIND_TEXT:
        put("text, %" PRIu64 " .. %u", field->b, field->size - 1);
        break;
    case WIRE_KIND_LETTER:
        put("letter, %" PRIu64 " × 0 .. %" PRIu64, field->a, field->b / field->a);
        break;
    case WIRE_KIND_RECORD:
        put("record %s", wire_record_layout(field->record)->name);
        break;
    case WIRE_KIND_I64:
        put("i64");
        break;
    case WIRE_KIND_U8:
    case WIRE_KIND_U16:
    case WIRE_KIND_U32:
    case WIRE_KIND_U64:
        put("u%u", 8 * field->size);
        if (field->a != 0 || field->b != sample_largest(field)) {
            put(", %" PRIu64, field->a);
            if (field->a != field->b) {
                put(field->b == sample_largest(field) ? " .." : " .. %" PRIu64, field->b);
            }
        }
        break;
    }
}

static void put_fields(const wire_layout *layout, size_t offset)
{
    if (layout->field_count == 0) {
        return;
    }
    put("\n| offset | bytes | field | kind | |\n| --- | --- | --- | --- | --- |\n");
    for (uint32_t i = 0; i < layout->field_count; i++) {
        const wire_field *field = &layout->fields[i];

        put("| %zu | %u | %s | ", offset, field->size, field->name);
        put_limits(field);
        put(" | %s |\n", field->text);
        offset += field->size;
    }
}

static void put_record(const wire_layout *layout)
{
    put("\n### Record %s, %u bytes\n\n%s\n", layout->name, layout->size, layout->text);
    put_fields(layout, 0);
}

static void put_capitals(const char *name)
{
    for (; *name != 0; name++) {
        put("%c", toupper((unsigned char)*name));
    }
}

static void put_message(const wire_row *row)
{
    static const char *const roles[] = {"request", "reply", "event"};

    put("\n### %u ", row->type);
    put_capitals(row->layout()->name);
    put("\n\n%s", roles[row->role]);
    if (row->reply != 0) {
        put(", answered by ");
        put_capitals(wire_type_name(row->reply));
    }
    put(". %s\n", row->layout()->text);
    put_fields(row->layout(), WIRE_HEAD_SIZE);
    if (row->item != WIRE_RECORD_NONE) {
        put("\nAt %u: u32, how many follow, %u .. %u; then as many records %s of %zu bytes.\n",
            WIRE_HEAD_SIZE + row->layout()->size, row->least, wire_row_most(row),
            wire_record_layout(row->item)->name, wire_record_size(row->item));
    }
}

static void make_tables(void)
{
    const wire_row *row;

    made_size = 0;
    put("\n## Records\n");
#define PUT_RECORD(NAME, name, text) put_record(wire_record_layout(WIRE_RECORD_##NAME));
    WIRE_RECORD_TABLE(PUT_RECORD)
#undef PUT_RECORD
    put("\n## Messages\n");
    for (uint32_t place = 0; (row = wire_row_at(place)) != NULL; place++) {
        put_message(row);
    }
    put("\n");
}

static void read_page(void)
{
    FILE *file = fopen(PAGE, "rbe");
    size_t size;

    assert_non_null(file);
    size = fread(page, 1, sizeof page - 1, file);
    page[size] = 0;
    assert_int_equal(fclose(file), 0);
}

/* Replace what lies between `begin` and `end`, which point into `page`. */
static void write_page(const char *begin, const char *end)
{
    FILE *file = fopen(PAGE, "wbe");

    assert_non_null(file);
    assert_int_equal(fwrite(page, 1, (size_t)(begin - page), file), begin - page);
    assert_int_equal(fwrite(made, 1, made_size, file), made_size);
    assert_int_equal(fwrite(end, 1, strlen(end), file), strlen(end));
    assert_int_equal(fclose(file), 0);
}

static bool is_writing(void)
{
    const char *value = getenv("KVARVE_WRITE"); /* NOLINT(concurrency-mt-unsafe): one thread */

    return value != NULL && strcmp(value, "1") == 0;
}

static void test_document__tables_are_the_schema(void **unused)
{
    const char *begin;
    const char *end;

    (void)unused;
    make_tables();
    read_page();
    begin = strstr(page, BEGIN);
    end = strstr(page, END);
    assert_non_null(begin);
    assert_non_null(end);
    begin += sizeof BEGIN - 1;
    if (is_writing()) {
        write_page(begin, end);
        return;
    }
    assert_int_equal(end - begin, made_size);
    assert_memory_equal(begin, made, made_size);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_document__tables_are_the_schema),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
