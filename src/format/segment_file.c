/*
 * segment_file.c - the first block of a segment file.
 *
 * Invariant
 *   I1  One head has one form: what decodes encodes to the same 4096 bytes.
 *
 * Threads: any; nothing allocates.
 */
#include "format/segment_file.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
#include "base/fail.h"
#include "format/bytes_private.h"
#include "hash/hash.h"

#define SEGMENT_VERSION 1u

/* The first three fields and what the digest covers stay as they are in every version. */
enum {
    AT_MAGIC = 0,
    AT_DIGEST = 8,
    AT_VERSION = 24,
    AT_NUMBER = 28,
    AT_STORE = 32,
    AT_SLOT_BYTES = 48,
    AT_SLOT_COUNT = 52,
    AT_HEADER_BLOCKS = 56,
    AT_ZEROES = 60,
};

static const uint8_t magic[8] = {'k', 'v', 's', 'l', 'o', 't', 's', '\n'};

static page_digest digest_of(const uint8_t bytes[SEGMENT_HEAD_SIZE])
{
    static const uint8_t zeroes[sizeof(page_digest)];
    page_digest_state state;

    page_digest_begin(&state);
    page_digest_update(&state, bytes, AT_DIGEST);
    page_digest_update(&state, zeroes, sizeof zeroes);
    page_digest_update(&state, bytes + AT_VERSION, SEGMENT_HEAD_SIZE - AT_VERSION);
    return page_digest_end(&state);
}

/* What cannot be true of a segment file, or NULL. */
static const char *head_fault(const segment_head *head)
{
    const uint64_t bytes = segment_file_size(head);

    if (head->number == 0) {
        return "the number is zero";
    }
    if (head->slot_bytes % BATCH_BLOCK != 0 || head->slot_bytes > SEGMENT_SLOT_BYTES_MAX) {
        return "the slot size is out of range";
    }
    if ((head->slot_bytes == 0) != (head->slot_count == 0)) {
        return "it has slots of no size, or a size and no slots";
    }
    if (head->header_blocks < 2 || head->header_blocks > SEGMENT_HEADER_BLOCKS_MAX) {
        return "the header zone's size is out of range";
    }
    return bytes > SEGMENT_FILE_BYTES_MAX ? "it is too large" : NULL;
}

void segment_head_encode(const segment_head *head, uint8_t out[SEGMENT_HEAD_SIZE])
{
    page_digest digest;

    KVARVE_ASSERT(head_fault(head) == NULL);

    memset(out, 0, SEGMENT_HEAD_SIZE);
    memcpy(out + AT_MAGIC, magic, sizeof magic);
    store_u32(out + AT_VERSION, SEGMENT_VERSION);
    store_u32(out + AT_NUMBER, head->number);
    memcpy(out + AT_STORE, head->store.bytes, sizeof head->store.bytes);
    store_u32(out + AT_SLOT_BYTES, head->slot_bytes);
    store_u32(out + AT_SLOT_COUNT, head->slot_count);
    store_u32(out + AT_HEADER_BLOCKS, head->header_blocks);
    digest = digest_of(out);
    memcpy(out + AT_DIGEST, digest.bytes, sizeof digest.bytes);
}

static kvarve_status corrupt(kvarve_error *err, const char *what)
{
    return kvarve_fail(err, KVARVE_CORRUPT, "first block of a segment file: %s", what);
}

static bool ends_in_zeroes(const uint8_t bytes[SEGMENT_HEAD_SIZE])
{
    for (size_t i = AT_ZEROES; i < SEGMENT_HEAD_SIZE; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

/* That these bytes are such a block, whole, and of a version known here. */
static kvarve_status check_frame(const uint8_t bytes[SEGMENT_HEAD_SIZE], kvarve_error *err)
{
    const uint32_t version = load_u32(bytes + AT_VERSION);
    page_digest digest;

    if (memcmp(bytes + AT_MAGIC, magic, sizeof magic) != 0) {
        return corrupt(err, "the magic is wrong");
    }
    digest = digest_of(bytes);
    if (memcmp(bytes + AT_DIGEST, digest.bytes, sizeof digest.bytes) != 0) {
        return corrupt(err, "the digest is wrong");
    }
    if (version > SEGMENT_VERSION) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED,
                           "first block of a segment file: version %" PRIu32 ", known up to %u",
                           version, SEGMENT_VERSION);
    }
    return version == 0 ? corrupt(err, "the version is zero") : KVARVE_OK;
}

kvarve_status segment_head_decode(const uint8_t bytes[SEGMENT_HEAD_SIZE], segment_head *out,
                                  kvarve_error *err)
{
    const kvarve_status status = check_frame(bytes, err);
    segment_head head = {0};
    const char *fault;

    if (status != KVARVE_OK) {
        return status;
    }
    memcpy(head.store.bytes, bytes + AT_STORE, sizeof head.store.bytes);
    head.number = load_u32(bytes + AT_NUMBER);
    head.slot_bytes = load_u32(bytes + AT_SLOT_BYTES);
    head.slot_count = load_u32(bytes + AT_SLOT_COUNT);
    head.header_blocks = load_u32(bytes + AT_HEADER_BLOCKS);
    fault = ends_in_zeroes(bytes) ? head_fault(&head) : "the rest is not zero";
    if (fault != NULL) {
        return corrupt(err, fault);
    }
    *out = head;
    return KVARVE_OK;
}
