/*
 * chunk_map.c - runs of free chunks, lowest first.
 *
 * Lowest first keeps the upper end of an arena in one piece and gives the same answers in each run
 * of a test.
 *
 * Invariants
 *
 *   I1  A bit of the summary is set exactly when its word is not zero.
 *
 *   I2  Bits at and above `count` are never set, so a run ends there by itself.
 *
 *   I3  `refused` is forgotten whenever a chunk becomes free: a full arena answers the same
 *       question twice without a search.
 *
 * Threads: one caller at a time.
 */
#include "arena/chunk_map_private.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"

#define WORD_BITS 64u

bool chunk_map_init(chunk_map *map, uint32_t count)
{
    const size_t words = (size_t)kvarve_divide_up(count, WORD_BITS);

    *map = (chunk_map){.count = count, .refused = UINT32_MAX};
    map->words = kvarve_allocate_array(words, sizeof *map->words);
    map->summary =
        kvarve_allocate_array((size_t)kvarve_divide_up(words, WORD_BITS), sizeof *map->summary);
    return map->words != NULL && map->summary != NULL;
}

void chunk_map_deinit(chunk_map *map)
{
    kvarve_release(map->summary);
    kvarve_release(map->words);
    *map = (chunk_map){0};
}

/* The first set bit at or after `from` in `words` of `bits` bits; `bits` when there is none. */
static uint32_t next_set(const uint64_t *words, uint32_t bits, uint32_t from)
{
    const uint32_t word_count = (uint32_t)kvarve_divide_up(bits, WORD_BITS);
    uint32_t word = from / WORD_BITS;
    uint64_t left;

    if (from >= bits) {
        return bits;
    }
    left = words[word] & (UINT64_MAX << from % WORD_BITS);
    while (left == 0) {
        word++;
        if (word == word_count) {
            return bits;
        }
        left = words[word];
    }
    return word * WORD_BITS + (uint32_t)__builtin_ctzll(left);
}

/* The first free chunk at or after `from`; `count` when there is none. */
static uint32_t next_free(const chunk_map *map, uint32_t from)
{
    const uint32_t word_count = (uint32_t)kvarve_divide_up(map->count, WORD_BITS);
    uint32_t word = from / WORD_BITS;
    uint64_t left;

    if (from >= map->count) {
        return map->count;
    }
    left = map->words[word] & (UINT64_MAX << from % WORD_BITS);
    if (left == 0) {
        word = next_set(map->summary, word_count, word + 1); /* I1 */
        if (word == word_count) {
            return map->count;
        }
        left = map->words[word];
        KVARVE_ASSERT(left != 0); /* I1 */
    }
    return word * WORD_BITS + (uint32_t)__builtin_ctzll(left);
}

/* How many chunks from `first` on are free, at most `most`. */
static uint32_t run_length(const chunk_map *map, uint32_t first, uint32_t most)
{
    uint32_t length = 0;

    while (length < most && first + length < map->count) {
        const uint32_t at = first + length;
        const uint64_t used = ~map->words[at / WORD_BITS] >> at % WORD_BITS;

        if (used != 0) {
            length += (uint32_t)__builtin_ctzll(used);
            break;
        }
        length += WORD_BITS - at % WORD_BITS;
    }
    return length < most ? length : most;
}

/* Set or clear `length` bits, all of which were the other way round. */
static void turn(chunk_map *map, uint32_t first, uint32_t length, bool is_free)
{
    uint32_t done = 0;

    while (done < length) {
        const uint32_t at = first + done;
        const uint32_t shift = at % WORD_BITS;
        const uint32_t room = WORD_BITS - shift;
        const uint32_t step = length - done < room ? length - done : room;
        const uint64_t mask = UINT64_MAX >> (WORD_BITS - step) << shift;
        const uint32_t word = at / WORD_BITS;
        const uint64_t bit = UINT64_C(1) << word % WORD_BITS;

        KVARVE_ASSERT((map->words[word] & mask) == (is_free ? 0 : mask));
        map->words[word] ^= mask;
        if (map->words[word] != 0) { /* I1 */
            map->summary[word / WORD_BITS] |= bit;
        } else {
            map->summary[word / WORD_BITS] &= ~bit;
        }
        done += step;
    }
}

uint32_t chunk_map_take(chunk_map *map, uint32_t length)
{
    uint32_t first;

    KVARVE_ASSERT(length > 0);
    if (length > map->free_count || length >= map->refused) {
        return CHUNK_NONE;
    }
    first = next_free(map, 0);
    while (first < map->count) {
        const uint32_t found = run_length(map, first, length);

        if (found == length) {
            turn(map, first, length, false);
            map->free_count -= length;
            return first;
        }
        first = next_free(map, first + found);
    }
    map->refused = length;
    return CHUNK_NONE;
}

void chunk_map_give(chunk_map *map, uint32_t first, uint32_t length)
{
    KVARVE_ASSERT(first <= map->count && length <= map->count - first); /* I2 */
    turn(map, first, length, true);
    map->free_count += length;
    map->refused = UINT32_MAX; /* I3 */
}
