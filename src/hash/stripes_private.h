/*
 * stripes_private.h - the inner loop of XXH3 on long inputs, joined with a copy; for page_digest.c.
 *
 * Threads: any; nothing is shared. The names are those of the XXH3 specification: a stripe is 64
 * bytes, a block 16 stripes, the accumulators are eight 64-bit words.
 */
#ifndef KVARVE_HASH_STRIPES_PRIVATE_H
#define KVARVE_HASH_STRIPES_PRIVATE_H

#include <stddef.h>
#include <stdint.h>

#define STRIPE_SIZE   64u
#define BLOCK_STRIPES 16u
#define SECRET_SIZE   192u

typedef struct stripes_state {
    _Alignas(64) uint64_t lanes[8];
    uint32_t in_block; /* stripes of the current block taken in, 0 .. 15 */
} stripes_state;

extern const uint8_t stripes_secret[SECRET_SIZE];

void stripes_init(stripes_state *state);

/*
 * Take in `count` stripes at `from`, and copy them to `to` unless it is NULL. More input follows
 * them: a block that they complete is scrambled. Each byte is read once, so what is digested is
 * what is copied.
 */
void stripes_take(stripes_state *state, uint8_t *to, const uint8_t *from, size_t count);

/* The same by plain words, which any processor has. */
void stripes_take_plain(stripes_state *state, uint8_t *to, const uint8_t *from, size_t count);

/* Take in the last 64 bytes of the input, which has its own part of the secret. */
void stripes_take_last(stripes_state *state, const uint8_t last[STRIPE_SIZE]);

#endif
