/*
 * fuzz_segment_head.c - first blocks of segment files from anybody: what decodes encodes to the
 * same bytes. Inputs are shorter than a block; the rest is zero, as in a real one. An odd first
 * byte has the digest made right before.
 */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "format/segment_file.h"
#include "hash/hash.h"

#define AT_DIGEST 8

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    uint8_t block[SEGMENT_HEAD_SIZE] = {0};
    uint8_t again[SEGMENT_HEAD_SIZE];
    segment_head head;

    if (size < 1 || size > 1 + sizeof block) {
        return 0;
    }
    memcpy(block, bytes + 1, size - 1);
    if ((bytes[0] & 1) != 0) {
        page_digest digest;

        memset(block + AT_DIGEST, 0, sizeof digest.bytes);
        digest = page_digest_of(block, sizeof block);
        memcpy(block + AT_DIGEST, digest.bytes, sizeof digest.bytes);
    }
    if (segment_head_decode(block, &head, NULL) == KVARVE_OK) {
        segment_head_encode(&head, again);
        KVARVE_ASSERT(memcmp(block, again, sizeof block) == 0);
    }
    return 0;
}
