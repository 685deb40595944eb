/*
 * schema.c - the tables that wire_schema.h stands for.
 *
 * Each layout is made inside a function of its own, since a row of the schema does not say of which
 * struct it is a member: `here` does.
 *
 * Threads: any; everything is constant.
 */
#include "protocol/schema_private.h"

#include "base/assert.h"

#define LIMITS_U8(low, high)      .a = (uint64_t)(low), .b = (uint64_t)(high)
#define LIMITS_U16(low, high)     LIMITS_U8(low, high)
#define LIMITS_U32(low, high)     LIMITS_U8(low, high)
#define LIMITS_U64(low, high)     LIMITS_U8(low, high)
#define LIMITS_I64(low, high)     LIMITS_U8(low, high)
#define LIMITS_BYTES(low, high)   LIMITS_U8(low, high)
#define LIMITS_TEXT(low, high)    LIMITS_U8(low, high)
#define LIMITS_LETTER(low, high)  LIMITS_U8(low, high)
#define LIMITS_RECORD(NAME, name) .record = WIRE_RECORD_##NAME

#define FIELD_ROW(field_kind, field, low, high, sentence)                                          \
    {                                                                                              \
        .name = #field,                                                                            \
        .text = (sentence),                                                                        \
        .kind = WIRE_KIND_##field_kind,                                                            \
        .size = WIRE_SIZE_OF_##field_kind(low, high),                                              \
        .host = offsetof(here, field),                                                             \
        LIMITS_##field_kind(low, high),                                                            \
    },

#define LAYOUT(NAME, thing, bytes, sentence)                                                       \
    static const wire_layout *layout_##thing(void)                                                 \
    {                                                                                              \
        typedef wire_##thing here;                                                                 \
        static const wire_field fields[] = {WIRE_FIELDS_##NAME(FIELD_ROW)};                        \
        static const wire_layout layout = {                                                        \
            .name = #thing,                                                                        \
            .text = (sentence),                                                                    \
            .fields = fields,                                                                      \
            .field_count = sizeof fields / sizeof fields[0],                                       \
            .size = (bytes),                                                                       \
            .host_size = sizeof(here),                                                             \
        };                                                                                         \
                                                                                                   \
        return &layout;                                                                            \
    }

#define RECORD_LAYOUT(NAME, thing, sentence) LAYOUT(NAME, thing, WIRE_RECORD_SIZE_##NAME, sentence)
#define MESSAGE_LAYOUT(number, NAME, thing, role, answer, item, least, most, sentence)             \
    LAYOUT(NAME, thing, WIRE_FIELDS_SIZE_##NAME, sentence)
#define EMPTY_LAYOUT(number, NAME, thing, role, answer, item, least, most, sentence)               \
    static const wire_layout *layout_##thing(void)                                                 \
    {                                                                                              \
        static const wire_layout layout = {.name = #thing, .text = (sentence)};                    \
                                                                                                   \
        return &layout;                                                                            \
    }

/* clang-format off */
WIRE_RECORD_TABLE(RECORD_LAYOUT)
WIRE_MESSAGE_TABLE(MESSAGE_LAYOUT, EMPTY_LAYOUT)

static const wire_row rows[] = {
#define MESSAGE_ROW(number, NAME, thing, who, answer, record, fewest, highest, sentence)           \
    {.layout = layout_##thing,                                                                     \
     .type = (number),                                                                             \
     .reply = WIRE_##answer,                                                                       \
     .role = WIRE_ROLE_##who,                                                                      \
     .item = WIRE_RECORD_##record,                                                                 \
     .least = (fewest),                                                                            \
     .most = (highest)},
    WIRE_MESSAGE_TABLE(MESSAGE_ROW, MESSAGE_ROW)
};
/* clang-format on */

#define ROW_COUNT (sizeof rows / sizeof rows[0])

const wire_row *wire_row_at(uint32_t place)
{
    return place < ROW_COUNT ? &rows[place] : NULL;
}

const wire_row *wire_row_of(uint32_t type)
{
    /* Numbers are handed out in order from 1 on (test_schema.c), so that a type is a place. */
    return type == 0 ? NULL : wire_row_at(type - 1);
}

uint32_t wire_row_most(const wire_row *row)
{
    uint32_t fits;

    if (row->item == WIRE_RECORD_NONE) {
        return 0;
    }
    fits = (WIRE_MESSAGE_MAX - WIRE_HEAD_SIZE - (uint32_t)sizeof(uint32_t) - row->layout()->size) /
           wire_record_layout(row->item)->size;
    return row->most < fits ? row->most : fits;
}

const wire_layout *wire_record_layout(wire_record record)
{
    switch (record) {
#define RECORD_CASE(NAME, thing, sentence)                                                         \
    case WIRE_RECORD_##NAME:                                                                       \
        return layout_##thing();
        WIRE_RECORD_TABLE(RECORD_CASE)
#undef RECORD_CASE
    case WIRE_RECORD_NONE:
        break;
    }
    KVARVE_UNREACHABLE();
}

const char *wire_type_name(uint32_t type)
{
    const wire_row *row = wire_row_of(type);

    return row == NULL ? NULL : row->layout()->name;
}

wire_role wire_type_role(uint32_t type)
{
    KVARVE_ASSERT(wire_row_of(type) != NULL);
    return wire_row_of(type)->role;
}

uint32_t wire_type_reply(uint32_t type)
{
    KVARVE_ASSERT(wire_row_of(type) != NULL);
    return wire_row_of(type)->reply;
}

wire_record wire_type_item(uint32_t type)
{
    KVARVE_ASSERT(wire_row_of(type) != NULL);
    return wire_row_of(type)->item;
}

size_t wire_record_size(wire_record record)
{
    return wire_record_layout(record)->size;
}

size_t wire_record_host_size(wire_record record)
{
    return wire_record_layout(record)->host_size;
}
