/*
 * bitmap_private.h - rows of bits in 64-bit words, looked through a word at a time.
 *
 * Bits at and after `end` may hold anything. Pure. Threads: the caller's.
 */
#ifndef KVARVE_SEGMENT_BITMAP_PRIVATE_H
#define KVARVE_SEGMENT_BITMAP_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BITMAP_BITS 64u

static inline size_t bitmap_words(uint32_t bits)
{
    return ((size_t)bits + BITMAP_BITS - 1) / BITMAP_BITS;
}

static inline bool bitmap_get(const uint64_t *words, uint32_t bit)
{
    return (words[bit / BITMAP_BITS] >> (bit % BITMAP_BITS) & 1) != 0;
}

/* Set or clear `count` bits from `from` on. */
static inline void bitmap_fill(uint64_t *words, uint32_t from, uint32_t count, bool value)
{
    while (count > 0) {
        const uint32_t at = from % BITMAP_BITS;
        const uint32_t step = count < BITMAP_BITS - at ? count : BITMAP_BITS - at;
        const uint64_t mask = (step == BITMAP_BITS ? UINT64_MAX : (UINT64_C(1) << step) - 1) << at;
        uint64_t *word = &words[from / BITMAP_BITS];

        *word = value ? *word | mask : *word & ~mask;
        from += step;
        count -= step;
    }
}

/*
 * The first bit at `from` or after it which is set in (a | b) ^ flip, or `end`. `b` may be NULL.
 * flip 0 looks for a set bit, flip UINT64_MAX for a clear one.
 */
static inline uint32_t bitmap_next(const uint64_t *a, const uint64_t *b, uint64_t flip,
                                   uint32_t from, uint32_t end)
{
    uint64_t keep = UINT64_MAX << (from % BITMAP_BITS);

    while (from < end) {
        const uint32_t index = from / BITMAP_BITS;
        const uint64_t word = ((a[index] | (b == NULL ? 0 : b[index])) ^ flip) & keep;

        if (word != 0) {
            const uint32_t bit = index * BITMAP_BITS + (uint32_t)__builtin_ctzll(word);

            return bit < end ? bit : end;
        }
        from = (index + 1) * BITMAP_BITS;
        keep = UINT64_MAX;
    }
    return end;
}

/* A run of neighbouring bits. */
typedef struct bitmap_run {
    uint32_t at;
    uint32_t count;
} bitmap_run;

/* The next run, at or after `from`, of bits that are clear in both; false when there is none. */
static inline bool bitmap_next_run(const uint64_t *a, const uint64_t *b, uint32_t from,
                                   uint32_t end, bitmap_run *out)
{
    out->at = bitmap_next(a, b, UINT64_MAX, from, end);
    out->count = bitmap_next(a, b, 0, out->at, end) - out->at;
    return out->count > 0;
}

#endif
