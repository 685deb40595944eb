/*
 * fuzz_arena_file.c - the decoder of an arena's head: what it accepts, encode gives back byte for
 * byte.
 *
 * The input is the start of a block, the rest is zeroes. It is decoded as it is, and once more with
 * its digest put right, so that the fields behind the digest are reached.
 *
 * Links: base hash format
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/arena_file.h"
#include "hash/hash.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check(const uint8_t *block)
{
    uint8_t again[ARENA_HEAD_SIZE];
    arena_head head;

    if (arena_head_decode(block, &head, NULL) != KVARVE_OK) {
        return;
    }
    arena_head_encode(&head, again);
    if (memcmp(block, again, sizeof again) != 0) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    uint8_t block[ARENA_HEAD_SIZE] = {0};
    page_digest digest;

    memcpy(block, bytes, size < sizeof block ? size : sizeof block);
    check(block);
    digest = page_digest_of(block, sizeof block - sizeof digest);
    memcpy(block + sizeof block - sizeof digest, digest.bytes, sizeof digest.bytes);
    check(block);
    return 0;
}
