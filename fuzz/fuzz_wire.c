/*
 * fuzz_wire.c - messages from anybody: decoding never reads outside, and what it accepts encodes to
 * the same bytes.
 *
 * Nearly every input would fail at its size or count. So the first byte of an input says what is
 * made right before: bit 0 the head's size and flags, bit 1 the count of items, from the size.
 * Corpus files have that byte. The rest also goes to the decoder of each record, as the letter's
 * do.
 *
 * Links: base protocol
 */
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "protocol/schema_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Any record's struct. */
static _Alignas(8) uint8_t host[1024];

static void check_message(const uint8_t *bytes, size_t size)
{
    static uint8_t again[WIRE_MESSAGE_MAX];
    wire_message message;
    size_t used = 0;

    if (wire_decode(bytes, size, &message, NULL) != KVARVE_OK) {
        return;
    }
    for (uint32_t i = 0; i < message.count; i++) {
        wire_item(&message, i, host);
        KVARVE_ASSERT(wire_encode_item(message.type, i, host, again, sizeof again, NULL) ==
                      KVARVE_OK);
    }
    KVARVE_ASSERT(wire_encode(&message, again, sizeof again, &used, NULL) == KVARVE_OK);
    KVARVE_ASSERT(used == size && memcmp(bytes, again, size) == 0);
}

static void check_record(wire_record record, const uint8_t *bytes, size_t size)
{
    uint8_t again[256];

    if (size < wire_record_size(record) ||
        wire_record_decode(record, bytes, host, NULL) != KVARVE_OK) {
        return;
    }
    KVARVE_ASSERT(wire_record_size(record) <= sizeof again);
    KVARVE_ASSERT(wire_record_host_size(record) <= sizeof host);
    KVARVE_ASSERT(wire_record_encode(record, host, again, NULL) == KVARVE_OK);
    KVARVE_ASSERT(memcmp(bytes, again, wire_record_size(record)) == 0);
}

static void store_u32(uint8_t *at, size_t value)
{
    for (unsigned i = 0; i < 4; i++) {
        at[i] = (uint8_t)(value >> (8 * i));
    }
}

static void make_right(uint8_t *bytes, size_t size, uint8_t what)
{
    const wire_row *row;
    size_t at;

    if (size < WIRE_HEAD_SIZE) {
        return;
    }
    if ((what & 1) != 0) {
        memset(bytes + 2, 0, 2);
        store_u32(bytes + 4, size);
    }
    row = wire_row_of((uint32_t)bytes[0] | (uint32_t)bytes[1] << 8);
    if ((what & 2) == 0 || row == NULL || row->item == WIRE_RECORD_NONE) {
        return;
    }
    at = WIRE_HEAD_SIZE + row->layout()->size;
    if (size >= at + 4) {
        store_u32(bytes + at, (size - at - 4) / wire_record_size(row->item));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    uint8_t *copy;

    if (size < 2) {
        return 0;
    }
    copy = kvarve_allocate(size - 1);
    if (copy == NULL) {
        return 0;
    }
    memcpy(copy, bytes + 1, size - 1);
#define CHECK_RECORD(NAME, name, text) check_record(WIRE_RECORD_##NAME, copy, size - 1);
    WIRE_RECORD_TABLE(CHECK_RECORD)
    make_right(copy, size - 1, bytes[0]);
    check_message(copy, size - 1);
    kvarve_release(copy);
    return 0;
}
