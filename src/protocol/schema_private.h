/*
 * schema_private.h - the schema as data: what the codec walks and docs/format/wire.md is made of.
 */
#ifndef KVARVE_PROTOCOL_SCHEMA_PRIVATE_H
#define KVARVE_PROTOCOL_SCHEMA_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/protocol.h"

typedef enum wire_kind {
    WIRE_KIND_U8,
    WIRE_KIND_U16,
    WIRE_KIND_U32,
    WIRE_KIND_U64,
    WIRE_KIND_I64,
    WIRE_KIND_BYTES,
    WIRE_KIND_TEXT,
    WIRE_KIND_LETTER,
    WIRE_KIND_RECORD,
} wire_kind;

typedef struct wire_field {
    const char *name;
    const char *text;
    uint64_t a; /* by kind, as wire_schema.h says; 0 for records */
    uint64_t b;
    wire_kind kind;
    wire_record record; /* RECORD: which */
    uint32_t size;      /* encoded */
    uint32_t host;      /* offset in the struct */
} wire_field;

typedef struct wire_layout {
    const char *name;
    const char *text;
    const wire_field *fields;
    uint32_t field_count;
    uint32_t size;      /* encoded */
    uint32_t host_size; /* of the struct; 0: there is none */
} wire_layout;

typedef struct wire_row {
    const wire_layout *(*layout)(void);
    uint32_t type;
    uint32_t reply;
    wire_role role;
    wire_record item;
    uint32_t least;
    uint32_t most; /* that the schema names; what fits may be less */
} wire_row;

/* Rows by place, in the order of the table; NULL: there is no such place. */
const wire_row *wire_row_at(uint32_t place);
/* NULL: no such type. */
const wire_row *wire_row_of(uint32_t type);
/* The most items that a message of this row can have. */
uint32_t wire_row_most(const wire_row *row);

/* Of a record besides NONE (asserted). */
const wire_layout *wire_record_layout(wire_record record);

/* Is this one line of UTF-8, without control characters? */
bool wire_text_is_right(const char *text, size_t length);

#endif
