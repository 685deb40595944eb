/*
 * blocks.h - the scheduler's block pool: which blocks of a group are in use, by how many.
 *
 * Ids come in random order, and a block that was given back comes again soon: what a store restores
 * into, or copies from too late, has been somebody else's. All ranks share one numbering.
 *
 * Threads    of the scheduler.
 */
#ifndef KVARVE_STANDIN_BLOCKS_H
#define KVARVE_STANDIN_BLOCKS_H

#include <stdint.h>

#include "standin/memory.h"

#define BLOCK_NONE UINT32_MAX

typedef struct block_pool {
    uint64_t random;
    uint32_t count;
    uint32_t free_count;
    uint32_t free_ids[STANDIN_BLOCKS];
    uint32_t users[STANDIN_BLOCKS];
} block_pool;

void pool_init(block_pool *out, uint32_t count, uint64_t seed);
/* A block with one user; BLOCK_NONE: all are in use. */
uint32_t pool_take(block_pool *pool);
void pool_hold(block_pool *pool, uint32_t id);
/* BLOCK_NONE is a no-op. */
void pool_drop(block_pool *pool, uint32_t id);

#endif
