/*
 * blocks.c - a pool of block ids with a count of users for each.
 *
 * Invariant: a block is in the free list exactly when it has no user. Threads: as blocks.h.
 */
#include "standin/blocks.h"

#include "standin/digest.h"

#define RECENT 8u /* of the last freed ones, one is taken */

void pool_init(block_pool *out, uint32_t count, uint64_t seed)
{
    *out = (block_pool){.random = seed, .count = count, .free_count = count};
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t at = (uint32_t)(digest_two(seed, i) % (i + 1));

        out->free_ids[i] = out->free_ids[at];
        out->free_ids[at] = i;
    }
}

uint32_t pool_take(block_pool *pool)
{
    uint32_t reach = pool->free_count < RECENT ? pool->free_count : RECENT;
    uint32_t at;
    uint32_t id;

    if (reach == 0) {
        return BLOCK_NONE;
    }
    pool->random = digest_two(pool->random, pool->free_count);
    at = pool->free_count - 1 - (uint32_t)(pool->random % reach);
    id = pool->free_ids[at];
    pool->free_ids[at] = pool->free_ids[--pool->free_count];
    pool->users[id] = 1;
    return id;
}

void pool_hold(block_pool *pool, uint32_t id)
{
    pool->users[id]++;
}

void pool_drop(block_pool *pool, uint32_t id)
{
    if (id != BLOCK_NONE && --pool->users[id] == 0) {
        pool->free_ids[pool->free_count++] = id;
    }
}
