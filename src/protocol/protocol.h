/*
 * protocol.h - messages between a daemon and its clients: encode and decode, nothing else.
 *
 * wire_schema.h says what there is: WIRE_PUT_BEGIN is a type, wire_put_begin its fields. Byte
 * tables: docs/format/wire.md. Pure: no allocation, no system call, no state. Threads: any.
 *
 *     wire_message request = {.type = WIRE_PUT_WAIT, .id = 7};
 *     request.as.put_wait = (wire_put_wait){.put = put, .state = KVARVE_PUT_READY};
 *     wire_encode(&request, buffer, sizeof buffer, &size, err);
 *
 * Some messages end in records ("items"): an array of the item's struct goes in, and comes out with
 * wire_item one by one, so nobody needs room for all of them.
 */
#ifndef KVARVE_PROTOCOL_PROTOCOL_H
#define KVARVE_PROTOCOL_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarve/error.h"
#include "protocol/wire_schema.h"

/* WIRE_ERROR, WIRE_DONE, ...: the numbers of the schema. */
typedef enum wire_type {
    WIRE_NONE = 0, /* no message; the reply to what is no request */
#define WIRE_TYPE_ENUM(number, NAME, ...) WIRE_##NAME = (number),
    WIRE_MESSAGE_TABLE(WIRE_TYPE_ENUM, WIRE_TYPE_ENUM)
#undef WIRE_TYPE_ENUM
} wire_type;

/* WIRE_RECORD_PREFIX, ... */
typedef enum wire_record {
    WIRE_RECORD_NONE,
#define WIRE_RECORD_ENUM(NAME, name, text) WIRE_RECORD_##NAME,
    WIRE_RECORD_TABLE(WIRE_RECORD_ENUM)
#undef WIRE_RECORD_ENUM
} wire_record;

/* A range of the client's letter. The codec checks it against the schema; that it lies in the
 * letter that there is, and what is in it, is the session's to check. */
typedef struct wire_letter {
    uint64_t offset; /* a multiple of WIRE_LETTER_ALIGN; 0 when the size is 0 */
    uint64_t size;
} wire_letter;

/* The structs: wire_NAME for each record and each message with fields. */
#define WIRE_MEMBER_U8(name, a, b)     uint8_t name;
#define WIRE_MEMBER_U16(name, a, b)    uint16_t name;
#define WIRE_MEMBER_U32(name, a, b)    uint32_t name;
#define WIRE_MEMBER_U64(name, a, b)    uint64_t name;
#define WIRE_MEMBER_I64(name, a, b)    int64_t name;
#define WIRE_MEMBER_BYTES(name, a, b)  uint8_t name[a];
#define WIRE_MEMBER_TEXT(name, a, b)   char name[a];
#define WIRE_MEMBER_LETTER(name, a, b) wire_letter name;
#define WIRE_MEMBER_RECORD(name, a, b) wire_##b name;

#define WIRE_MEMBER(kind, name, a, b, text) WIRE_MEMBER_##kind(name, a, b)
#define WIRE_RECORD_STRUCT(NAME, name, text)                                                       \
    typedef struct wire_##name {                                                                   \
        WIRE_FIELDS_##NAME(WIRE_MEMBER)                                                            \
    } wire_##name;
#define WIRE_MESSAGE_STRUCT(number, NAME, name, ...) WIRE_RECORD_STRUCT(NAME, name, "")
#define WIRE_NOTHING(...)
WIRE_RECORD_TABLE(WIRE_RECORD_STRUCT)
WIRE_MESSAGE_TABLE(WIRE_MESSAGE_STRUCT, WIRE_NOTHING)
#undef WIRE_RECORD_STRUCT
#undef WIRE_MESSAGE_STRUCT

/* Encoded sizes: WIRE_SIZE_PLAN_ENTRY of a record; of a message its fields, without head and items.
 */
#define WIRE_SIZE_OF_U8(a, b)     1
#define WIRE_SIZE_OF_U16(a, b)    2
#define WIRE_SIZE_OF_U32(a, b)    4
#define WIRE_SIZE_OF_U64(a, b)    8
#define WIRE_SIZE_OF_I64(a, b)    8
#define WIRE_SIZE_OF_BYTES(a, b)  (a)
#define WIRE_SIZE_OF_TEXT(a, b)   (a)
#define WIRE_SIZE_OF_LETTER(a, b) 16
#define WIRE_SIZE_OF_RECORD(a, b) WIRE_RECORD_SIZE_##a

/* NOLINTNEXTLINE(bugprone-macro-parentheses): terms of a sum that stands behind a 0. */
#define WIRE_SIZE_OF(kind, name, a, b, text) +WIRE_SIZE_OF_##kind(a, b)
enum {
#define WIRE_RECORD_SIZE(NAME, name, text)                                                         \
    WIRE_RECORD_SIZE_##NAME = 0 WIRE_FIELDS_##NAME(WIRE_SIZE_OF),
    WIRE_RECORD_TABLE(WIRE_RECORD_SIZE)
#undef WIRE_RECORD_SIZE
#define WIRE_FIELDS_SIZE(number, NAME, ...)                                                        \
    WIRE_FIELDS_SIZE_##NAME = 0 WIRE_FIELDS_##NAME(WIRE_SIZE_OF),
#define WIRE_NO_FIELDS_SIZE(number, NAME, ...) WIRE_FIELDS_SIZE_##NAME = 0,
        WIRE_MESSAGE_TABLE(WIRE_FIELDS_SIZE, WIRE_NO_FIELDS_SIZE)
#undef WIRE_FIELDS_SIZE
#undef WIRE_NO_FIELDS_SIZE
};

/* How many items one message can have at most: WIRE_ITEMS_PUT_PLANNED. */
#define WIRE_ITEMS_FIT(NAME, record)                                                               \
    ((WIRE_MESSAGE_MAX - WIRE_HEAD_SIZE - 4 - WIRE_FIELDS_SIZE_##NAME) / WIRE_RECORD_SIZE_##record)
#define WIRE_ITEMS_PUT_PLANNED     WIRE_ITEMS_FIT(PUT_PLANNED, PLAN_ENTRY)
#define WIRE_ITEMS_FOUND           WIRE_ITEMS_FIT(FOUND, BOUNDARY)
#define WIRE_ITEMS_FOUND_ALL       WIRE_ITEMS_FIT(FOUND_ALL, OCTET)
#define WIRE_ITEMS_LEASE_PAGES_ARE WIRE_ITEMS_FIT(LEASE_PAGES_ARE, PAGE_ENTRY)
#define WIRE_ITEMS_LISTED          WIRE_ITEMS_FIT(LISTED, CHECKPOINT)
#define WIRE_ITEMS_DOCUMENT_IS     WIRE_ITEMS_FIT(DOCUMENT_IS, OCTET)

typedef enum wire_role {
    WIRE_ROLE_REQUEST, /* from the client; id 1 or more */
    WIRE_ROLE_REPLY,   /* has the id of its request; an ERROR may have 0: about the connection */
    WIRE_ROLE_EVENT,   /* id 0 */
} wire_role;

typedef struct wire_head {
    uint16_t type;  /* any: wire_type_name says whether it is one of ours */
    uint16_t flags; /* 0 in version 1 */
    uint32_t size;  /* of the message, head included */
    uint64_t id;
} wire_head;

/* A message, whichever way it goes. */
typedef struct wire_message {
    wire_type type;
    uint32_t count; /* items */
    uint64_t id;
    const void *items;    /* to encode: an array of the item's struct; NULL: they are in place */
    const uint8_t *bytes; /* decoded: the items, in the message; wire_item reads them. Octets are
                             what they are and can be copied from here */
    union {
#define WIRE_UNION_MEMBER(number, NAME, name, ...) wire_##name name;
        WIRE_MESSAGE_TABLE(WIRE_UNION_MEMBER, WIRE_NOTHING)
#undef WIRE_UNION_MEMBER
    } as;
} wire_message;

/* --- what there is --- */

/* "put_begin"; NULL: no such type. */
const char *wire_type_name(uint32_t type);
/* Of a type that is one of ours (asserted), as below. */
wire_role wire_type_role(uint32_t type);
/* The reply to a request besides ERROR; WIRE_NONE when it is no request. */
uint32_t wire_type_reply(uint32_t type);
/* The record of its items; WIRE_RECORD_NONE. */
wire_record wire_type_item(uint32_t type);

/* --- messages --- */

/*
 * Write `message` to out[room]; *out_size is how long it is, at most WIRE_MESSAGE_MAX.
 *
 * KVARVE_INVALID: a field, the id or the count is out of its limits; err names message, field and
 * limits. KVARVE_NO_SPACE: `room` is too small.
 */
KVARVE_NODISCARD kvarve_status wire_encode(const wire_message *message, uint8_t *out, size_t room,
                                           size_t *out_size, kvarve_error *err);

/* Write item `index` of a message of this type to where wire_encode of it into the same out[room],
 * called afterwards with items NULL, has it. Statuses as above. */
KVARVE_NODISCARD kvarve_status wire_encode_item(wire_type type, uint32_t index, const void *item,
                                                uint8_t *out, size_t room, kvarve_error *err);

/* The head alone, of whatever type: who asked, when the rest is not understood. KVARVE_INVALID:
 * shorter than a head. */
KVARVE_NODISCARD kvarve_status wire_decode_head(const uint8_t *bytes, size_t size, wire_head *out,
                                                kvarve_error *err);

/*
 * Read one whole message. Nothing is accepted that wire_encode would not have written; all fields
 * of all items are checked too. out->bytes points into `bytes`.
 *
 * KVARVE_UNSUPPORTED: no such type, or flags; KVARVE_INVALID: err names message, field and limits.
 */
KVARVE_NODISCARD kvarve_status wire_decode(const uint8_t *bytes, size_t size, wire_message *out,
                                           kvarve_error *err);

/* Item `index` (below message->count, asserted) of a decoded message, into the item's struct. */
void wire_item(const wire_message *message, uint32_t index, void *out_item);

/* --- records in the letter --- */

/* Encoded size of a record: WIRE_RECORD_SIZE_... by number. */
size_t wire_record_size(wire_record record);
/* sizeof of its struct. */
size_t wire_record_host_size(wire_record record);

/* Write one record, wire_record_size bytes. KVARVE_INVALID as wire_encode. */
KVARVE_NODISCARD kvarve_status wire_record_encode(wire_record record, const void *from,
                                                  uint8_t *out, kvarve_error *err);

/* Read one record from memory that somebody may write at the same time: each byte is read once, and
 * what was read is checked. KVARVE_INVALID. */
KVARVE_NODISCARD kvarve_status wire_record_decode(wire_record record, const uint8_t *bytes,
                                                  void *out, kvarve_error *err);

/* --- texts --- */

/* Make a TEXT field of `text`: cut at a whole character so that it fits out[size], bytes that are
 * no UTF-8 replaced by '?', the rest zeros. */
void wire_text_set(char *out, size_t size, const char *text);

#endif
