/*
 * wire_sample.h - messages made of the schema, whose fields stand at one end of their limits.
 */
#ifndef KVARVE_TESTS_UNIT_PROTOCOL_WIRE_SAMPLE_H
#define KVARVE_TESTS_UNIT_PROTOCOL_WIRE_SAMPLE_H

#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "protocol/schema_private.h"

typedef enum sample_end { SAMPLE_LOW, SAMPLE_HIGH } sample_end;

#define SAMPLE_ENDS 2

/* Host structs of items; octets are the most, checkpoints the largest. */
typedef union sample_items {
    _Alignas(8) uint8_t bytes[131072];
    wire_checkpoint checkpoints[WIRE_ITEMS_LISTED];
    wire_plan_entry entries[WIRE_ITEMS_PUT_PLANNED];
    wire_page_entry pages[WIRE_ITEMS_LEASE_PAGES_ARE];
    wire_boundary boundaries[WIRE_ITEMS_FOUND];
} sample_items;

/* What a number of this field's size can be at most. */
static inline uint64_t sample_largest(const wire_field *field)
{
    return UINT64_MAX >> (64 - 8 * field->size);
}

/* Write `value` as the host's own number of `size` bytes. */
static inline void sample_number(uint8_t *at, uint64_t value, size_t size)
{
    const uint8_t one = (uint8_t)value;
    const uint16_t two = (uint16_t)value;
    const uint32_t four = (uint32_t)value;

    memcpy(at,
           size == 1   ? (const void *)&one
           : size == 2 ? (const void *)&two
           : size == 4 ? (const void *)&four
                       : (const void *)&value,
           size);
}

static inline void sample_leaf(uint8_t *at, const wire_field *field, sample_end end)
{
    wire_letter range = {0};

    switch (field->kind) {
    case WIRE_KIND_BYTES:
        memset(at, end == SAMPLE_LOW ? 0 : 0xff, field->size);
        break;
    case WIRE_KIND_TEXT:
        memset(at, 0, field->size);
        memset(at, 'x', end == SAMPLE_LOW ? field->b : field->size - 1);
        break;
    case WIRE_KIND_LETTER:
        if (end == SAMPLE_HIGH) {
            range.size = field->b - field->b % field->a;
            range.offset = (WIRE_LETTER_MAX - range.size) / WIRE_LETTER_ALIGN * WIRE_LETTER_ALIGN;
        }
        memcpy(at, &range, sizeof range);
        break;
    case WIRE_KIND_U8:
    case WIRE_KIND_U16:
    case WIRE_KIND_U32:
    case WIRE_KIND_U64:
    case WIRE_KIND_I64:
        sample_number(at, end == SAMPLE_LOW ? field->a : field->b, field->size);
        break;
    case WIRE_KIND_RECORD:
        KVARVE_UNREACHABLE();
    }
}

static inline void sample_leaves(uint8_t *host, const wire_layout *layout, sample_end end)
{
    for (uint32_t i = 0; i < layout->field_count; i++) {
        sample_leaf(host + layout->fields[i].host, &layout->fields[i], end);
    }
}

static inline void sample_fields(uint8_t *host, const wire_layout *layout, sample_end end)
{
    for (uint32_t i = 0; i < layout->field_count; i++) {
        const wire_field *field = &layout->fields[i];

        if (field->kind == WIRE_KIND_RECORD) {
            sample_leaves(host + field->host, wire_record_layout(field->record), end);
        } else {
            sample_leaf(host + field->host, field, end);
        }
    }
}

/* A message of this row with `count` items, which are in `items`. */
static inline wire_message sample_message(const wire_row *row, sample_end end, uint32_t count,
                                          sample_items *items)
{
    wire_message message = {.type = (wire_type)row->type, .count = count};

    message.id = row->role == WIRE_ROLE_EVENT ? 0 : end == SAMPLE_LOW ? 1 : UINT64_MAX;
    sample_fields((uint8_t *)&message.as, row->layout(), end);
    if (count > 0) {
        const wire_layout *item = wire_record_layout(row->item);

        KVARVE_ASSERT((size_t)count * item->host_size <= sizeof *items);
        for (uint32_t i = 0; i < count; i++) {
            sample_leaves(items->bytes + (size_t)i * item->host_size, item, end);
        }
        message.items = items->bytes;
    }
    return message;
}

#endif
