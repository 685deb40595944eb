/*
 * bytes_private.h - fixed little-endian integers and LEB128 varints, written and read.
 *
 * A reader never goes past its end: the first read that does not fit, or a varint that is not the
 * shortest one, marks it bad; from then on it yields zeros, so that a decoder checks once at the
 * end of a loop whose length it has bounded. Pure; no allocation. Threads: any.
 */
#ifndef KVARVE_FORMAT_BYTES_PRIVATE_H
#define KVARVE_FORMAT_BYTES_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VARINT_SIZE_MAX 10u /* bytes of a u64 */

static inline void store_u16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static inline void store_u32(uint8_t *at, uint32_t value)
{
    store_u16(at, (uint16_t)value);
    store_u16(at + 2, (uint16_t)(value >> 16));
}

static inline void store_u64(uint8_t *at, uint64_t value)
{
    store_u32(at, (uint32_t)value);
    store_u32(at + 4, (uint32_t)(value >> 32));
}

static inline uint16_t load_u16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static inline uint32_t load_u32(const uint8_t *at)
{
    return (uint32_t)load_u16(at) | (uint32_t)load_u16(at + 2) << 16;
}

static inline uint64_t load_u64(const uint8_t *at)
{
    return (uint64_t)load_u32(at) | (uint64_t)load_u32(at + 4) << 32;
}

/* Small numbers of either sign as small unsigned ones: 0, -1, 1, -2 become 0, 1, 2, 3. */
static inline uint64_t zigzag(int64_t value)
{
    return ((uint64_t)value << 1) ^ (value < 0 ? UINT64_MAX : 0);
}

static inline int64_t unzigzag(uint64_t value)
{
    const uint64_t magnitude = value >> 1;

    return (value & 1) != 0 ? -(int64_t)magnitude - 1 : (int64_t)magnitude;
}

static inline size_t varint_size(uint64_t value)
{
    size_t size = 1;

    while (value >= 0x80) {
        value >>= 7;
        size++;
    }
    return size;
}

/* Write `value` at `at`; returns the byte after it. */
static inline uint8_t *store_varint(uint8_t *at, uint64_t value)
{
    while (value >= 0x80) {
        *at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

typedef struct reader {
    const uint8_t *at;
    const uint8_t *end;
    bool is_bad;
} reader;

static inline size_t reader_left(const reader *in)
{
    return (size_t)(in->end - in->at);
}

/* `size` bytes, or NULL when there are fewer. */
static inline const uint8_t *read_bytes(reader *in, size_t size)
{
    const uint8_t *at = in->at;

    if (in->is_bad || size > reader_left(in)) {
        in->is_bad = true;
        return NULL;
    }
    in->at += size;
    return at;
}

/* Copy `size` bytes out; zeros when there are fewer. */
static inline void read_copy(reader *in, void *out, size_t size)
{
    const uint8_t *at = read_bytes(in, size);

    if (at == NULL) {
        memset(out, 0, size);
    } else {
        memcpy(out, at, size);
    }
}

static inline uint8_t read_u8(reader *in)
{
    const uint8_t *at = read_bytes(in, 1);

    return at == NULL ? 0 : *at;
}

static inline uint64_t read_u64(reader *in)
{
    const uint8_t *at = read_bytes(in, 8);

    return at == NULL ? 0 : load_u64(at);
}

/* One varint in its shortest form. */
static inline uint64_t read_varint(reader *in)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < VARINT_SIZE_MAX; i++) {
        const uint8_t byte = read_u8(in);

        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte >= 0x80) {
            continue;
        }
        /* The tenth byte holds one bit, and a last byte of zero could have been left out. */
        if ((i == VARINT_SIZE_MAX - 1 && byte > 1) || (i > 0 && byte == 0)) {
            break;
        }
        return in->is_bad ? 0 : value;
    }
    in->is_bad = true;
    return 0;
}

/* The same for a number that must fit 32 bits. */
static inline uint32_t read_varint_u32(reader *in)
{
    const uint64_t value = read_varint(in);

    if (value > UINT32_MAX) {
        in->is_bad = true;
        return 0;
    }
    return (uint32_t)value;
}

#endif
