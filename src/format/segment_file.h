/*
 * segment_file.h - the first block of a segment file. Byte table: docs/format/segment.md. Pure.
 */
#ifndef KVARVE_FORMAT_SEGMENT_FILE_H
#define KVARVE_FORMAT_SEGMENT_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "format/batch.h"
#include "kvarve/error.h"

#define SEGMENT_HEAD_SIZE         4096u
#define SEGMENT_HEADER_BLOCKS_MAX 65536u
#define SEGMENT_SLOT_BYTES_MAX    (UINT32_C(1) << 30)
#define SEGMENT_FILE_BYTES_MAX    (UINT64_C(1) << 37) /* 64 GiB wanted, and what its zone adds */

typedef struct segment_head {
    store_uuid store;
    uint32_t number;        /* as in the file's name, 1 or more */
    uint32_t slot_bytes;    /* a multiple of 4096, up to 2^30; 0 in a file of headers only */
    uint32_t slot_count;    /* 0 in a file of headers only */
    uint32_t header_blocks; /* 4 KiB blocks of the header zone, this one included: 2 .. 65536 */
} segment_head;

/* Bytes of the whole file: the zone, then the slots. Fits for any values of the fields. */
static inline uint64_t segment_file_size(const segment_head *head)
{
    return (uint64_t)head->header_blocks * SEGMENT_HEAD_SIZE +
           (uint64_t)head->slot_count * head->slot_bytes;
}

/* `head` is within the limits (asserted). */
void segment_head_encode(const segment_head *head, uint8_t out[SEGMENT_HEAD_SIZE]);

/* KVARVE_CORRUPT, KVARVE_UNSUPPORTED (newer version, both named). */
KVARVE_NODISCARD kvarve_status segment_head_decode(const uint8_t bytes[SEGMENT_HEAD_SIZE],
                                                   segment_head *out, kvarve_error *err);

#endif
