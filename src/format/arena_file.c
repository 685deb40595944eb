/*
 * arena_file.c - encode and decode the first block of an arena.
 *
 * Invariants
 *
 *   I1  Each block has one meaning and each head one block: what decode accepts, encode gives back
 *       byte for byte.
 *
 *   I2  The version is looked at before the digest, so that a newer block is called newer and not
 *       damaged.
 *
 * Threads: any; nothing allocates.
 */
#include "format/arena_file.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
#include "base/fail.h"
#include "format/bytes_private.h"
#include "hash/hash.h"

#define VERSION 1u

/* Places in the block; docs/format/arena.md. */
enum {
    AT_MAGIC = 0,
    AT_VERSION = 8,
    AT_CHUNK_BYTES = 12,
    AT_FINGERPRINT = 16,
    AT_STORE = 32,
    AT_EPOCH = 48,
    AT_BYTES = 56,
    AT_ZEROES = 64,
    AT_DIGEST = ARENA_HEAD_SIZE - (int)sizeof(page_digest),
};

static const uint8_t magic[8] = {'k', 'v', 'a', 'r', 'e', 'n', 'a', '\n'};

/*
 * What a reader must agree with before it touches a chunk. Its digest is the fingerprint; whoever
 * changes how an arena is cut changes this text.
 */
static const char layout_text[] = "head 4096, chunk 262144, unit 4096, little endian";

static page_digest fingerprint(void)
{
    return page_digest_of(layout_text, sizeof layout_text - 1);
}

static bool is_within_limits(const arena_head *head)
{
    return head->epoch > 0 && head->bytes >= ARENA_BYTES_MIN && head->bytes <= ARENA_BYTES_MAX &&
           head->bytes % ARENA_CHUNK_BYTES == 0;
}

void arena_head_encode(const arena_head *head, uint8_t out[ARENA_HEAD_SIZE])
{
    const page_digest layout = fingerprint();
    page_digest digest;

    KVARVE_ASSERT(is_within_limits(head));
    memset(out, 0, ARENA_HEAD_SIZE);
    memcpy(out + AT_MAGIC, magic, sizeof magic);
    store_u32(out + AT_VERSION, VERSION);
    store_u32(out + AT_CHUNK_BYTES, ARENA_CHUNK_BYTES);
    memcpy(out + AT_FINGERPRINT, layout.bytes, sizeof layout.bytes);
    memcpy(out + AT_STORE, head->store.bytes, sizeof head->store.bytes);
    store_u64(out + AT_EPOCH, head->epoch);
    store_u64(out + AT_BYTES, head->bytes);
    digest = page_digest_of(out, AT_DIGEST);
    memcpy(out + AT_DIGEST, digest.bytes, sizeof digest.bytes);
}

static bool is_zero(const uint8_t *bytes, size_t size)
{
    uint8_t any = 0;

    for (size_t i = 0; i < size; i++) {
        any |= bytes[i];
    }
    return any == 0;
}

kvarve_status arena_head_decode(const uint8_t bytes[ARENA_HEAD_SIZE], arena_head *out,
                                kvarve_error *err)
{
    const page_digest layout = fingerprint();
    const page_digest digest = page_digest_of(bytes, AT_DIGEST);
    const uint32_t version = load_u32(bytes + AT_VERSION);
    arena_head head;

    if (memcmp(bytes + AT_MAGIC, magic, sizeof magic) != 0) {
        return kvarve_fail(err, KVARVE_CORRUPT, "arena head: no arena starts here");
    }
    if (version > VERSION) { /* I2 */
        return kvarve_fail(err, KVARVE_UNSUPPORTED,
                           "arena head: version %" PRIu32 ", this program knows %u", version,
                           VERSION);
    }
    if (memcmp(bytes + AT_DIGEST, digest.bytes, sizeof digest.bytes) != 0) {
        return kvarve_fail(err, KVARVE_CORRUPT, "arena head: its bytes do not match its digest");
    }
    if (memcmp(bytes + AT_FINGERPRINT, layout.bytes, sizeof layout.bytes) != 0) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED, "arena head: the arena is cut in another way");
    }
    memcpy(head.store.bytes, bytes + AT_STORE, sizeof head.store.bytes);
    head.epoch = load_u64(bytes + AT_EPOCH);
    head.bytes = load_u64(bytes + AT_BYTES);
    if (version != VERSION || load_u32(bytes + AT_CHUNK_BYTES) != ARENA_CHUNK_BYTES ||
        !is_within_limits(&head) || !is_zero(bytes + AT_ZEROES, AT_DIGEST - AT_ZEROES)) {
        return kvarve_fail(err, KVARVE_CORRUPT,
                           "arena head: a field is out of its range (version %" PRIu32
                           ", epoch %" PRIu64 ", %" PRIu64 " bytes)",
                           version, head.epoch, head.bytes);
    }
    *out = head; /* I1 */
    return KVARVE_OK;
}
