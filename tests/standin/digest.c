/*
 * digest.c - digests of a multiplication and a shift a word. Pure; no state.
 *
 * Each step is a bijection of the state for a given word, and of the word for a given state: one
 * changed word can not be lost on the way.
 */
#include "standin/digest.h"

#include <string.h>

static uint64_t stir(uint64_t state)
{
    state ^= state >> 32;
    state *= UINT64_C(0xd6e8feb86659fd93);
    return state ^ (state >> 29);
}

uint64_t digest_two(uint64_t a, uint64_t b)
{
    return stir(stir(a + UINT64_C(0x9e3779b97f4a7c15)) ^ b);
}

uint64_t digest_bytes(uint64_t seed, const void *bytes, size_t size)
{
    const uint8_t *from = bytes;
    uint64_t state = digest_two(seed, size);
    uint64_t word;

    for (; size >= sizeof word; size -= sizeof word, from += sizeof word) {
        memcpy(&word, from, sizeof word);
        state = stir(state ^ word);
    }
    if (size > 0) {
        word = 0;
        memcpy(&word, from, size);
        state = stir(state ^ word);
    }
    return stir(state);
}

void digest_fill(void *out, size_t size, uint64_t seed)
{
    uint8_t *to = out;

    for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
        const uint64_t word = digest_two(seed, at);
        const size_t count = size - at < sizeof word ? size - at : sizeof word;

        memcpy(to + at, &word, count);
    }
}
