/*
 * batch_private.h - where the fields of a batch record's head and of its page entries stand, for
 * the encoder and the decoder. Byte table: docs/format/batch.md.
 */
#ifndef KVARVE_FORMAT_BATCH_PRIVATE_H
#define KVARVE_FORMAT_BATCH_PRIVATE_H

#include <stdbool.h>

#include "format/batch.h"
#include "hash/hash.h"

#define BATCH_VERSION    1u
#define BATCH_ID_MAX     (UINT64_C(1) << 62) /* so that a difference of two ids fits an int64 */
#define BATCH_PAGE_SIZE  72u
#define BATCH_PAGE_BYTES (UINT32_C(1) << 30) /* most valid bytes of a page */

/* The first five fields and what the digest covers stay as they are in every version. */
enum {
    AT_MAGIC = 0,
    AT_DIGEST = 8,
    AT_VERSION = 24,
    AT_SIZE = 28,
    AT_STORE = 32,
    AT_SEQUENCE = 48,
    AT_SEGMENT = 56,
    AT_BLOCK = 60,
    AT_BLOCKS = 64,
    AT_REFERENCE_COUNT = 68,
    AT_FIRST_PAGE = 72,
    AT_FIRST_SPAN = 80,
    AT_FIRST_CHECKPOINT = 88,
    AT_NAMESPACE_COUNT = 96,
    AT_PAGE_COUNT = 100,
    AT_SPAN_COUNT = 104,
    AT_CHECKPOINT_COUNT = 108,
    AT_DROP_COUNT = 112,
    AT_RESERVED = 116,
    BATCH_HEAD_SIZE = 120,
};

enum {
    PAGE_KEY = 0,
    PAGE_DIGEST = 32,
    PAGE_SEGMENT = 48,
    PAGE_SLOT = 52,
    PAGE_SIZE_FIELD = 56,
    PAGE_TOKENS = 60,
    PAGE_RANK = 64,
    PAGE_PART = 66,
    PAGE_GROUP = 68,
    PAGE_NAMESPACE = 69,
    PAGE_IS_PARTIAL = 70,
    PAGE_EXACT = 71,
};

extern const uint8_t batch_magic[8];

/* What the digest field of a record of `size` bytes (at least the head) must hold. */
page_digest batch_digest(const uint8_t *record, size_t size);

/* No count is over its limit. */
bool batch_counts_fit(const batch *record);

/* The facts that hold of every batch, checked before encoding (ours) and after decoding (not
 * ours). NULL when all hold, else what does not. */
const char *batch_fault(const batch *record);

#endif
