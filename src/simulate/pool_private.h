/*
 * pool_private.h - the simulator's own memory, apart from that of the code under test.
 *
 * It comes in slabs and is given back as a whole, so that tests which count allocations or make the
 * k-th one fail see the store's alone. Threads: one at a time. Lack of memory asserts.
 */
#ifndef KVARVE_SIMULATE_POOL_PRIVATE_H
#define KVARVE_SIMULATE_POOL_PRIVATE_H

#include <stddef.h>
#include <stdint.h>

#define POOL_SMALL_UNIT  64
#define POOL_SMALL_COUNT 80 /* sizes up to 80 * 64 have a list for each multiple of 64 */
#define POOL_LARGE_COUNT 64 /* above: one for each power of two */

typedef struct sim_pool {
    struct pool_slab *slabs;
    char *next; /* unused rest of the newest slab */
    size_t left;
    struct pool_free *small_free[POOL_SMALL_COUNT + 1];
    struct pool_free *large_free[POOL_LARGE_COUNT];
} sim_pool;

void pool_init(sim_pool *pool);
void pool_deinit(sim_pool *pool);

/* `size` bytes, not zeroed, aligned for any type. */
void *pool_take(sim_pool *pool, size_t size);
void *pool_take_zeroed(sim_pool *pool, size_t size);

/* Give back what pool_take gave for the same `size`. NULL is a no-op. */
void pool_give(sim_pool *pool, void *memory, size_t size);

/* Have `bytes` at hand, so that takes below that allocate nothing. */
void pool_reserve(sim_pool *pool, size_t bytes);

#endif
