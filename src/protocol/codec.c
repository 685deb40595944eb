/*
 * codec.c - messages and records to bytes and back, by the schema's tables.
 *
 * Invariants
 *   I1  One message has one form: what decodes encodes to the same bytes.
 *   I2  No field leaves here, in either direction, without its limits having been checked.
 *   I3  Nothing is read behind the size that was given, and each byte of a record is read once.
 *
 * A record in a message has no records in it, so there are two levels and no recursion: fields,
 * and the leaves of a record.
 *
 * Threads: any; nothing allocates.
 */
#include "protocol/protocol.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/fail.h"
#include "protocol/schema_private.h"

#define COUNT_SIZE ((uint32_t)sizeof(uint32_t))

/* Room for any record, encoded or as a struct. */
typedef union any_record {
#define ANY_MEMBER(NAME, name, text)                                                               \
    wire_##name name;                                                                              \
    uint8_t name##_bytes[WIRE_RECORD_SIZE_##NAME];
    WIRE_RECORD_TABLE(ANY_MEMBER)
#undef ANY_MEMBER
} any_record;

/* Where in a message the codec is, to say so. */
typedef struct codec_place {
    const char *message;
    const char *parent; /* the field that is a record; or NULL */
    bool is_item;
    uint32_t item;
    kvarve_error *err;
} codec_place;

/* --- numbers --- */

/* Loops of a length that the compiler knows become one store or load. */
static void store_number(uint8_t *at, uint64_t value, size_t size)
{
    switch (size) {
    case 8:
        for (size_t i = 0; i < 8; i++) {
            at[i] = (uint8_t)(value >> (8 * i));
        }
        break;
    case 4:
        for (size_t i = 0; i < 4; i++) {
            at[i] = (uint8_t)(value >> (8 * i));
        }
        break;
    default:
        for (size_t i = 0; i < size; i++) {
            at[i] = (uint8_t)(value >> (8 * i));
        }
        break;
    }
}

static uint64_t load_number(const uint8_t *at, size_t size)
{
    uint64_t value = 0;

    switch (size) {
    case 8:
        for (size_t i = 0; i < 8; i++) {
            value |= (uint64_t)at[i] << (8 * i);
        }
        return value;
    case 4:
        for (size_t i = 0; i < 4; i++) {
            value |= (uint64_t)at[i] << (8 * i);
        }
        return value;
    default:
        for (size_t i = 0; i < size; i++) {
            value |= (uint64_t)at[i] << (8 * i);
        }
        return value;
    }
}

/* The host's own number of `size` bytes. */
static uint64_t host_number(const void *at, size_t size)
{
    uint16_t two;
    uint32_t four;
    uint64_t eight;

    switch (size) {
    case 1:
        return *(const uint8_t *)at;
    case 2:
        memcpy(&two, at, size);
        return two;
    case 4:
        memcpy(&four, at, size);
        return four;
    default:
        memcpy(&eight, at, sizeof eight);
        return eight;
    }
}

static void set_host_number(void *at, uint64_t value, size_t size)
{
    const uint8_t one = (uint8_t)value;
    const uint16_t two = (uint16_t)value;
    const uint32_t four = (uint32_t)value;

    switch (size) {
    case 1:
        memcpy(at, &one, size);
        break;
    case 2:
        memcpy(at, &two, size);
        break;
    case 4:
        memcpy(at, &four, size);
        break;
    default:
        memcpy(at, &value, sizeof value);
        break;
    }
}

/* --- limits --- */

/* "put_begin: options.kind is 7, allowed 0 .. 2", or "found: item 3: tokens is ..." */
__attribute__((format(printf, 3, 4))) static kvarve_status
fail_field(const codec_place *place, const wire_field *field, const char *format, ...)
{
    char where[96];
    char what[128];
    va_list arguments;

    if (place->is_item) {
        (void)snprintf(where, sizeof where, "item %" PRIu32 ": ", place->item);
    } else {
        (void)snprintf(where, sizeof where, "%s%s", place->parent == NULL ? "" : place->parent,
                       place->parent == NULL ? "" : ".");
    }
    va_start(arguments, format);
    (void)vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return kvarve_fail(place->err, KVARVE_INVALID, "%s: %s%s %s", place->message, where,
                       field->name, what);
}

static kvarve_status check_number(const codec_place *place, const wire_field *field, uint64_t value)
{
    if (field->kind == WIRE_KIND_I64) {
        return (int64_t)value >= (int64_t)field->a && (int64_t)value <= (int64_t)field->b
                   ? KVARVE_OK
                   : fail_field(place, field, "is %" PRId64 ", allowed %" PRId64 " .. %" PRId64,
                                (int64_t)value, (int64_t)field->a, (int64_t)field->b);
    }
    return value >= field->a && value <= field->b
               ? KVARVE_OK
               : fail_field(place, field, "is %" PRIu64 ", allowed %" PRIu64 " .. %" PRIu64, value,
                            field->a, field->b);
}

static kvarve_status check_letter(const codec_place *place, const wire_field *field,
                                  wire_letter range)
{
    if (range.size > field->b || range.size % field->a != 0) {
        return fail_field(place, field,
                          "has %" PRIu64 " bytes, allowed multiples of %" PRIu64 ", 0 .. %" PRIu64,
                          range.size, field->a, field->b);
    }
    if (range.offset % WIRE_LETTER_ALIGN != 0 || (range.size == 0 && range.offset != 0)) {
        return fail_field(place, field,
                          "is at %" PRIu64 ", allowed multiples of %u, and 0 for nothing",
                          range.offset, WIRE_LETTER_ALIGN);
    }
    if (range.offset > WIRE_LETTER_MAX - range.size) {
        return fail_field(place, field, "ends after %" PRIu64 ", the most that a letter has",
                          WIRE_LETTER_MAX);
    }
    return KVARVE_OK;
}

static kvarve_status check_text(const codec_place *place, const wire_field *field, const char *text)
{
    const size_t length = strnlen(text, field->size);

    if (length == field->size || length < field->b) {
        return fail_field(place, field, "has %zu characters, allowed %" PRIu64 " .. %u", length,
                          field->b, field->size - 1);
    }
    return wire_text_is_right(text, length) ? KVARVE_OK
                                            : fail_field(place, field, "is not one line of UTF-8");
}

/* --- leaves --- */

static kvarve_status encode_leaf(const codec_place *place, const wire_field *field,
                                 const uint8_t *host, uint8_t *out)
{
    kvarve_status status = KVARVE_OK;
    wire_letter range;
    uint64_t value;

    switch (field->kind) {
    case WIRE_KIND_BYTES:
        memcpy(out, host, field->size);
        break;
    case WIRE_KIND_TEXT:
        status = check_text(place, field, (const char *)host);
        if (status == KVARVE_OK) {
            /* What stands behind the NUL is not part of the text. */
            const size_t length = strlen((const char *)host);

            memcpy(out, host, length);
            memset(out + length, 0, field->size - length);
        }
        break;
    case WIRE_KIND_LETTER:
        memcpy(&range, host, sizeof range);
        status = check_letter(place, field, range);
        store_number(out, range.offset, 8);
        store_number(out + 8, range.size, 8);
        break;
    case WIRE_KIND_U8:
    case WIRE_KIND_U16:
    case WIRE_KIND_U32:
    case WIRE_KIND_U64:
    case WIRE_KIND_I64:
        value = host_number(host, field->size);
        status = check_number(place, field, value);
        store_number(out, value, field->size);
        break;
    case WIRE_KIND_RECORD:
        KVARVE_UNREACHABLE();
    }
    return status;
}

static kvarve_status decode_text(const codec_place *place, const wire_field *field,
                                 const uint8_t *bytes, char *host)
{
    kvarve_status status;

    memcpy(host, bytes, field->size);
    status = check_text(place, field, host);
    if (status != KVARVE_OK) {
        return status;
    }
    for (size_t i = strlen(host); i < field->size; i++) {
        if (host[i] != 0) {
            return fail_field(place, field, "does not end in zeros");
        }
    }
    return KVARVE_OK;
}

static kvarve_status decode_leaf(const codec_place *place, const wire_field *field,
                                 const uint8_t *bytes, uint8_t *host)
{
    wire_letter range;
    uint64_t value;

    switch (field->kind) {
    case WIRE_KIND_BYTES:
        memcpy(host, bytes, field->size);
        return KVARVE_OK;
    case WIRE_KIND_TEXT:
        return decode_text(place, field, bytes, (char *)host);
    case WIRE_KIND_LETTER:
        range.offset = load_number(bytes, 8);
        range.size = load_number(bytes + 8, 8);
        memcpy(host, &range, sizeof range);
        return check_letter(place, field, range);
    case WIRE_KIND_U8:
    case WIRE_KIND_U16:
    case WIRE_KIND_U32:
    case WIRE_KIND_U64:
    case WIRE_KIND_I64:
        value = load_number(bytes, field->size);
        set_host_number(host, value, field->size);
        return check_number(place, field, value);
    case WIRE_KIND_RECORD:
        break;
    }
    KVARVE_UNREACHABLE();
}

static kvarve_status encode_leaves(const codec_place *place, const wire_layout *layout,
                                   const uint8_t *host, uint8_t *out)
{
    kvarve_status status = KVARVE_OK;

    for (uint32_t i = 0; i < layout->field_count && status == KVARVE_OK; i++) {
        const wire_field *field = &layout->fields[i];

        status = encode_leaf(place, field, host + field->host, out);
        out += field->size;
    }
    return status;
}

static kvarve_status decode_leaves(const codec_place *place, const wire_layout *layout,
                                   const uint8_t *bytes, uint8_t *host)
{
    kvarve_status status = KVARVE_OK;

    for (uint32_t i = 0; i < layout->field_count && status == KVARVE_OK; i++) {
        const wire_field *field = &layout->fields[i];

        status = decode_leaf(place, field, bytes, host + field->host);
        bytes += field->size;
    }
    return status;
}

/* --- fields of a message --- */

static kvarve_status encode_fields(const wire_layout *layout, const uint8_t *host, uint8_t *out,
                                   kvarve_error *err)
{
    codec_place place = {.message = layout->name, .err = err};
    kvarve_status status = KVARVE_OK;

    for (uint32_t i = 0; i < layout->field_count && status == KVARVE_OK; i++) {
        const wire_field *field = &layout->fields[i];

        if (field->kind == WIRE_KIND_RECORD) {
            place.parent = field->name;
            status =
                encode_leaves(&place, wire_record_layout(field->record), host + field->host, out);
            place.parent = NULL;
        } else {
            status = encode_leaf(&place, field, host + field->host, out);
        }
        out += field->size;
    }
    return status;
}

static kvarve_status decode_fields(const wire_layout *layout, const uint8_t *bytes, uint8_t *host,
                                   kvarve_error *err)
{
    codec_place place = {.message = layout->name, .err = err};
    kvarve_status status = KVARVE_OK;

    for (uint32_t i = 0; i < layout->field_count && status == KVARVE_OK; i++) {
        const wire_field *field = &layout->fields[i];

        if (field->kind == WIRE_KIND_RECORD) {
            place.parent = field->name;
            status =
                decode_leaves(&place, wire_record_layout(field->record), bytes, host + field->host);
            place.parent = NULL;
        } else {
            status = decode_leaf(&place, field, bytes, host + field->host);
        }
        bytes += field->size;
    }
    return status;
}

/* --- frame --- */

static kvarve_status check_id(const wire_row *row, uint64_t id, kvarve_error *err)
{
    const char *name = row->layout()->name;

    if (row->role == WIRE_ROLE_EVENT && id != 0) {
        return kvarve_fail(err, KVARVE_INVALID, "%s: id is %" PRIu64 ", allowed 0 for an event",
                           name, id);
    }
    if (row->role != WIRE_ROLE_EVENT && row->type != WIRE_ERROR && id == 0) {
        return kvarve_fail(err, KVARVE_INVALID, "%s: id is 0, allowed 1 or more", name);
    }
    return KVARVE_OK;
}

static kvarve_status check_count(const wire_row *row, uint32_t count, kvarve_error *err)
{
    const uint32_t most = wire_row_most(row);

    return count >= row->least && count <= most
               ? KVARVE_OK
               : kvarve_fail(err, KVARVE_INVALID, "%s: %" PRIu32 " items, allowed %u .. %u",
                             row->layout()->name, count, row->least, most);
}

/* Where items begin: behind the fields and their count. */
static size_t items_at(const wire_row *row)
{
    return WIRE_HEAD_SIZE + row->layout()->size +
           (row->item == WIRE_RECORD_NONE ? 0 : (size_t)COUNT_SIZE);
}

/* `count` has been checked. */
static size_t message_size(const wire_row *row, uint32_t count)
{
    const size_t item = row->item == WIRE_RECORD_NONE ? 0 : wire_record_size(row->item);

    return items_at(row) + count * item;
}

static kvarve_status no_room(const wire_row *row, size_t size, size_t room, kvarve_error *err)
{
    return kvarve_fail(err, KVARVE_NO_SPACE, "%s: %zu bytes, the buffer has %zu",
                       row->layout()->name, size, room);
}

kvarve_status wire_encode_item(wire_type type, uint32_t index, const void *item, uint8_t *out,
                               size_t room, kvarve_error *err)
{
    const wire_row *row = wire_row_of(type);
    codec_place place = {.is_item = true, .item = index, .err = err};
    size_t at;

    KVARVE_ASSERT(row != NULL && row->item != WIRE_RECORD_NONE);
    if (index >= wire_row_most(row)) {
        return kvarve_fail(err, KVARVE_INVALID, "%s: item %" PRIu32 ", there are at most %u",
                           row->layout()->name, index, wire_row_most(row));
    }
    at = message_size(row, index);
    if (message_size(row, index + 1) > room) {
        return no_room(row, message_size(row, index + 1), room, err);
    }
    place.message = row->layout()->name;
    return encode_leaves(&place, wire_record_layout(row->item), item, out + at);
}

/* There is room for them. */
static kvarve_status encode_items(const wire_row *row, const wire_message *message, uint8_t *out,
                                  kvarve_error *err)
{
    codec_place place = {.message = row->layout()->name, .is_item = true, .err = err};
    const wire_layout *layout = wire_record_layout(row->item);
    const uint8_t *host = message->items;
    kvarve_status status = KVARVE_OK;

    if (host == NULL || message->count == 0) {
        return KVARVE_OK;
    }
    if (row->item == WIRE_RECORD_OCTET) { /* as they are, and there are many */
        memcpy(out, host, message->count);
        return KVARVE_OK;
    }
    for (uint32_t i = 0; i < message->count && status == KVARVE_OK; i++) {
        place.item = i;
        status = encode_leaves(&place, layout, host, out);
        host += layout->host_size;
        out += layout->size;
    }
    return status;
}

kvarve_status wire_encode(const wire_message *message, uint8_t *out, size_t room, size_t *out_size,
                          kvarve_error *err)
{
    const wire_row *row = wire_row_of(message->type);
    kvarve_status status;
    size_t size;

    KVARVE_ASSERT(row != NULL);
    status = check_id(row, message->id, err);
    if (status == KVARVE_OK) {
        status = check_count(row, message->count, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    size = message_size(row, message->count);
    if (size > room) {
        return no_room(row, size, room, err);
    }
    status = encode_fields(row->layout(), (const uint8_t *)&message->as, out + WIRE_HEAD_SIZE, err);
    if (status == KVARVE_OK && row->item != WIRE_RECORD_NONE) {
        store_number(out + items_at(row) - COUNT_SIZE, message->count, COUNT_SIZE);
        status = encode_items(row, message, out + items_at(row), err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    store_number(out, message->type, 2);
    store_number(out + 2, 0, 2);
    store_number(out + 4, size, 4);
    store_number(out + 8, message->id, 8);
    *out_size = size;
    return KVARVE_OK;
}

kvarve_status wire_decode_head(const uint8_t *bytes, size_t size, wire_head *out, kvarve_error *err)
{
    if (size < WIRE_HEAD_SIZE) {
        return kvarve_fail(err, KVARVE_INVALID, "message of %zu bytes, its head has %u", size,
                           WIRE_HEAD_SIZE);
    }
    out->type = (uint16_t)load_number(bytes, 2);
    out->flags = (uint16_t)load_number(bytes + 2, 2);
    out->size = (uint32_t)load_number(bytes + 4, 4);
    out->id = load_number(bytes + 8, 8);
    return KVARVE_OK;
}

/* That it is a message known here, and not of another length than it says. */
static kvarve_status check_frame(const uint8_t *bytes, size_t size, wire_head *out,
                                 kvarve_error *err)
{
    const kvarve_status status = wire_decode_head(bytes, size, out, err);

    if (status != KVARVE_OK) {
        return status;
    }
    if (wire_row_of(out->type) == NULL) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED, "message of type %u, which is not known",
                           out->type);
    }
    if (out->flags != 0) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED, "%s: flags %#x, none are known",
                           wire_type_name(out->type), out->flags);
    }
    if (out->size != size) {
        return kvarve_fail(err, KVARVE_INVALID, "%s: %zu bytes, it says %" PRIu32,
                           wire_type_name(out->type), size, out->size);
    }
    return check_id(wire_row_of(out->type), out->id, err);
}

/* How many items there are, once the message has exactly the size for them. */
static kvarve_status check_size(const wire_row *row, const uint8_t *bytes, size_t size,
                                uint32_t *out_count, kvarve_error *err)
{
    uint32_t count = 0;
    kvarve_status status = KVARVE_OK;

    if (row->item != WIRE_RECORD_NONE && size >= items_at(row)) {
        count = (uint32_t)load_number(bytes + items_at(row) - COUNT_SIZE, COUNT_SIZE);
        status = check_count(row, count, err);
    }
    if (status == KVARVE_OK && size != message_size(row, count)) {
        return kvarve_fail(err, KVARVE_INVALID, "%s: %zu bytes, it has %zu with %" PRIu32 " items",
                           row->layout()->name, size, message_size(row, count), count);
    }
    *out_count = count;
    return status;
}

static kvarve_status check_items(const wire_row *row, const uint8_t *bytes, uint32_t count,
                                 kvarve_error *err)
{
    codec_place place = {.message = row->layout()->name, .is_item = true, .err = err};
    const wire_layout *layout = wire_record_layout(row->item);
    kvarve_status status = KVARVE_OK;
    any_record room;

    if (row->item == WIRE_RECORD_OCTET) { /* any of them is right */
        return KVARVE_OK;
    }
    for (uint32_t i = 0; i < count && status == KVARVE_OK; i++) {
        place.item = i;
        status = decode_leaves(&place, layout, bytes, (uint8_t *)&room);
        bytes += layout->size;
    }
    return status;
}

kvarve_status wire_decode(const uint8_t *bytes, size_t size, wire_message *out, kvarve_error *err)
{
    wire_message message = {0};
    const wire_row *row;
    wire_head head = {0};
    kvarve_status status = check_frame(bytes, size, &head, err);

    if (status != KVARVE_OK) {
        return status;
    }
    row = wire_row_of(head.type);
    status = check_size(row, bytes, size, &message.count, err);
    if (status == KVARVE_OK) {
        status = decode_fields(row->layout(), bytes + WIRE_HEAD_SIZE, (uint8_t *)&message.as, err);
    }
    if (status == KVARVE_OK && message.count > 0) {
        message.bytes = bytes + items_at(row);
        status = check_items(row, message.bytes, message.count, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    message.type = (wire_type)row->type;
    message.id = head.id;
    *out = message;
    return KVARVE_OK;
}

void wire_item(const wire_message *message, uint32_t index, void *out_item)
{
    const wire_row *row = wire_row_of(message->type);
    codec_place place = {.is_item = true, .item = index};
    kvarve_status status;

    KVARVE_ASSERT(row != NULL && index < message->count && message->bytes != NULL);
    place.message = row->layout()->name;
    status = decode_leaves(&place, wire_record_layout(row->item),
                           message->bytes + index * wire_record_size(row->item), out_item);
    KVARVE_ASSERT(status == KVARVE_OK); /* wire_decode read the same bytes */
}

kvarve_status wire_record_encode(wire_record record, const void *from, uint8_t *out,
                                 kvarve_error *err)
{
    const wire_layout *layout = wire_record_layout(record);
    const codec_place place = {.message = layout->name, .err = err};

    return encode_leaves(&place, layout, from, out);
}

kvarve_status wire_record_decode(wire_record record, const uint8_t *bytes, void *out,
                                 kvarve_error *err)
{
    const wire_layout *layout = wire_record_layout(record);
    const codec_place place = {.message = layout->name, .err = err};
    const volatile uint8_t *shared = bytes;
    any_record encoded = {0};
    any_record host;
    kvarve_status status;

    /* volatile: the compiler may not read them again once they were checked. */
    for (size_t i = 0; i < layout->size; i++) {
        ((uint8_t *)&encoded)[i] = shared[i];
    }
    status = decode_leaves(&place, layout, (const uint8_t *)&encoded, (uint8_t *)&host);
    if (status == KVARVE_OK) {
        memcpy(out, &host, layout->host_size);
    }
    return status;
}
