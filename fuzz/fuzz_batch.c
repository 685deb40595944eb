/*
 * fuzz_batch.c - batch records from anybody: decoding never reads outside, and what it accepts
 * encodes to the same bytes.
 *
 * The digest would stop nearly every input at once. So the first byte of an input says whether the
 * rest is taken as it is or with its digest made right first; corpus files have that byte.
 */
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "format/batch.h"
#include "format/batch_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check(const uint8_t *bytes, size_t size)
{
    static uint8_t again[BATCH_BYTES_MAX];
    size_t used = 0;
    batch record;

    if (batch_decode(bytes, size, &record, NULL) != KVARVE_OK) {
        return;
    }
    batch_encode(&record, again, sizeof again, &used);
    KVARVE_ASSERT(used <= size && memcmp(bytes, again, used) == 0);
    batch_deinit(&record);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    uint8_t *copy;
    uint32_t claim;

    if (size < 2) {
        return 0;
    }
    copy = kvarve_allocate(size - 1);
    if (copy == NULL) {
        return 0;
    }
    memcpy(copy, bytes + 1, size - 1);
    claim = batch_claimed_size(copy, size - 1);
    if ((bytes[0] & 1) != 0 && claim != 0 && claim <= size - 1) {
        const page_digest digest = batch_digest(copy, claim);

        memcpy(copy + AT_DIGEST, digest.bytes, sizeof digest.bytes);
    }
    check(copy, size - 1);
    kvarve_release(copy);
    return 0;
}
