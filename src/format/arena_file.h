/*
 * arena_file.h - the first block of an arena: what the mapping is, whose, and how it is cut. Byte
 * table: docs/format/arena.md.
 *
 * A successor of a dead server, or a client, reads it as untrusted input: it copies the block out
 * of the mapping first, decodes the copy, and uses nothing else before that. Pure. Threads: any.
 */
#ifndef KVARVE_FORMAT_ARENA_FILE_H
#define KVARVE_FORMAT_ARENA_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "format/batch.h"
#include "kvarve/error.h"

#define ARENA_HEAD_SIZE   4096u
#define ARENA_UNIT        4096u               /* slots begin and end on multiples of it */
#define ARENA_CHUNK_BYTES (UINT32_C(1) << 18) /* chunks follow the head without a gap */
#define ARENA_BYTES_MIN   (UINT64_C(1) << 20)
#define ARENA_BYTES_MAX   (UINT64_C(1) << 44)

typedef struct arena_head {
    store_uuid store; /* whose pages these are; all zero: nobody's yet */
    uint64_t epoch;   /* 1 or more; another one after each change of the serving process */
    uint64_t bytes;   /* of all chunks: a multiple of ARENA_CHUNK_BYTES within the limits above */
} arena_head;

/* `head` must be within its limits (asserted). */
void arena_head_encode(const arena_head *head, uint8_t out[ARENA_HEAD_SIZE]);

/*
 * Nothing is accepted that encode would not have written. KVARVE_CORRUPT; KVARVE_UNSUPPORTED for a
 * newer version, both named, and for another layout of what follows the head.
 */
KVARVE_NODISCARD kvarve_status arena_head_decode(const uint8_t bytes[ARENA_HEAD_SIZE],
                                                 arena_head *out, kvarve_error *err);

#endif
