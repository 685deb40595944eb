/*
 * stripes.c - the inner loop of XXH3 on long inputs, joined with a copy.
 *
 * The library digests what is in memory. A copy and then the digest read memory, write it, and read
 * the cache again, one after the other: half of memcpy's speed on large pages. Here a register is
 * loaded, stored past the cache and digested, so that only the memory is waited for: 0.77 to 0.86
 * of memcpy. XXH3 is a frozen format, and test_page_digest compares with the library at every turn.
 *
 * Invariants
 *   I1  What is digested is what was stored: `from` is read once, whoever else may write to it.
 *   I2  All variants give one result, whatever the processor and the alignment.
 *
 * Threads: any. Nothing allocates. Absent: an AVX-512 variant, since AVX2 waits for memory already.
 */
#include "hash/stripes_private.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define PRIME32_1 UINT64_C(0x9e3779b1)
#define PRIME32_2 UINT64_C(0x85ebca77)
#define PRIME32_3 UINT64_C(0xc2b2ae3d)
#define PRIME64_1 UINT64_C(0x9e3779b185ebca87)
#define PRIME64_2 UINT64_C(0xc2b2ae3d27d4eb4f)
#define PRIME64_3 UINT64_C(0x165667b19e3779f9)
#define PRIME64_4 UINT64_C(0x85ebca77c2b2ae63)
#define PRIME64_5 UINT64_C(0x27d4eb2f165667c5)

#define SCRAMBLE_AT    (SECRET_SIZE - STRIPE_SIZE)
#define LAST_STRIPE_AT (SECRET_SIZE - STRIPE_SIZE - 7)

/* Fewer bytes than this are better left in the cache: waiting for stores past it costs more. */
#define STREAM_SIZE_MIN ((size_t)4096)

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are read as they lie in memory");

/* clang-format off */
const uint8_t stripes_secret[SECRET_SIZE] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};
/* clang-format on */

void stripes_init(stripes_state *state)
{
    static const uint64_t start[8] = {PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3,
                                      PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1};

    memcpy(state->lanes, start, sizeof state->lanes);
    state->in_block = 0;
}

static uint64_t read_word(const uint8_t *at)
{
    uint64_t word;

    memcpy(&word, at, sizeof word);
    return word;
}

static void accumulate(uint64_t lanes[8], const uint8_t stripe[STRIPE_SIZE], const uint8_t *secret)
{
    for (size_t i = 0; i < 8; i++) {
        const uint64_t word = read_word(stripe + 8 * i);
        const uint64_t mixed = word ^ read_word(secret + 8 * i);

        lanes[i ^ 1] += word;
        lanes[i] += (mixed & UINT32_MAX) * (mixed >> 32);
    }
}

static void scramble(uint64_t lanes[8])
{
    for (size_t i = 0; i < 8; i++) {
        lanes[i] = (lanes[i] ^ lanes[i] >> 47 ^ read_word(stripes_secret + SCRAMBLE_AT + 8 * i)) *
                   PRIME32_1;
    }
}

/* How many of `count` stripes belong to the current block. */
static size_t part_of_block(const stripes_state *state, size_t count)
{
    const size_t left = BLOCK_STRIPES - state->in_block;

    return count < left ? count : left;
}

void stripes_take_plain(stripes_state *state, uint8_t *to, const uint8_t *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint8_t stripe[STRIPE_SIZE];

        memcpy(stripe, from + i * STRIPE_SIZE, sizeof stripe);
        if (to != NULL) {
            memcpy(to + i * STRIPE_SIZE, stripe, sizeof stripe);
        }
        accumulate(state->lanes, stripe, stripes_secret + 8u * (size_t)state->in_block);
        state->in_block = (state->in_block + 1) % BLOCK_STRIPES;
        if (state->in_block == 0) {
            scramble(state->lanes);
        }
    }
}

#if defined(__x86_64__)

#define FOR_AVX2 __attribute__((target("avx2"), always_inline)) static inline

/* STREAM goes past the cache, in 32 bytes where `to` is so aligned, or in 16. */
typedef enum store_kind { STORE_NOTHING, STORE, STREAM_16, STREAM_32 } store_kind;

FOR_AVX2 void store(uint8_t *to, size_t at, __m256i words, store_kind kind)
{
    if (kind == STREAM_32) {
        _mm256_stream_si256((__m256i *)(void *)(to + at), words);
    } else if (kind == STREAM_16) {
        _mm_stream_si128((__m128i *)(void *)(to + at), _mm256_castsi256_si128(words));
        _mm_stream_si128((__m128i *)(void *)(to + at + 16), _mm256_extracti128_si256(words, 1));
    } else if (kind == STORE) {
        _mm256_storeu_si256((__m256i *)(void *)(to + at), words);
    }
}

FOR_AVX2 __m256i load(const uint8_t *at)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)at);
}

/* Digest half a stripe. */
FOR_AVX2 __m256i mix(__m256i sums, __m256i words, const uint8_t *secret)
{
    const __m256i mixed = _mm256_xor_si256(words, load(secret));
    const __m256i product = _mm256_mul_epu32(mixed, _mm256_srli_epi64(mixed, 32));
    const __m256i crossed = _mm256_shuffle_epi32(words, _MM_SHUFFLE(1, 0, 3, 2));

    return _mm256_add_epi64(_mm256_add_epi64(sums, crossed), product);
}

FOR_AVX2 __m256i scramble_half(__m256i sums, const uint8_t *secret)
{
    const __m256i prime = _mm256_set1_epi64x((long long)PRIME32_1);
    const __m256i shifted = _mm256_xor_si256(sums, _mm256_srli_epi64(sums, 47));
    const __m256i mixed = _mm256_xor_si256(shifted, load(secret));
    const __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(mixed, 32), prime);

    return _mm256_add_epi64(_mm256_mul_epu32(mixed, prime), _mm256_slli_epi64(high, 32));
}

FOR_AVX2 void take_vectors(stripes_state *state, uint8_t *to, const uint8_t *from, size_t count,
                           store_kind kind)
{
    __m256i *lanes = (__m256i *)(void *)state->lanes;
    __m256i low = _mm256_load_si256(lanes);
    __m256i high = _mm256_load_si256(lanes + 1);
    size_t at = 0;

    while (count > 0) {
        const uint8_t *secret = stripes_secret + 8u * (size_t)state->in_block;
        const size_t part = part_of_block(state, count);

        for (const size_t end = at + part * STRIPE_SIZE; at < end; at += STRIPE_SIZE) {
            __m256i first = load(from + at);
            __m256i second = load(from + at + 32);

            __asm__("" : "+x"(first), "+x"(second)); /* I1: `from` can not be read again. */
            store(to, at, first, kind);
            store(to, at + 32, second, kind);
            low = mix(low, first, secret);
            high = mix(high, second, secret + 32);
            secret += 8;
        }
        state->in_block = (uint32_t)((state->in_block + part) % BLOCK_STRIPES);
        if (state->in_block == 0) {
            low = scramble_half(low, stripes_secret + SCRAMBLE_AT);
            high = scramble_half(high, stripes_secret + SCRAMBLE_AT + 32);
        }
        count -= part;
    }
    _mm256_store_si256(lanes, low);
    _mm256_store_si256(lanes + 1, high);
}

__attribute__((target("avx2"))) static void take_avx2(stripes_state *state, uint8_t *to,
                                                      const uint8_t *from, size_t count)
{
    if (to == NULL) {
        take_vectors(state, NULL, from, count, STORE_NOTHING);
        return;
    }
    if (count * STRIPE_SIZE < STREAM_SIZE_MIN || (uintptr_t)to % 16 != 0) {
        take_vectors(state, to, from, count, STORE);
        return;
    }
    if ((uintptr_t)to % 32 == 0) {
        take_vectors(state, to, from, count, STREAM_32);
    } else {
        take_vectors(state, to, from, count, STREAM_16);
    }
    _mm_sfence(); /* Whoever is told that the copy is done sees it. */
}

#endif

void stripes_take(stripes_state *state, uint8_t *to, const uint8_t *from, size_t count)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        take_avx2(state, to, from, count);
        return;
    }
#endif
    stripes_take_plain(state, to, from, count);
}

void stripes_take_last(stripes_state *state, const uint8_t last[STRIPE_SIZE])
{
    accumulate(state->lanes, last, stripes_secret + LAST_STRIPE_AT);
}
