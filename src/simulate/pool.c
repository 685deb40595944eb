/*
 * pool.c - see pool_private.h. Bump allocation from slabs, a list of free pieces for each size.
 *
 * Invariant: a piece is always used for the same rounded size, so nothing ever has to be merged.
 */
#include "simulate/pool_private.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"

#define SLAB_SIZE          ((size_t)1 << 20)
#define TRIES              64 /* a test's hook may fail some; ours are not what it is after */
#define SMALL_MAX          ((size_t)POOL_SMALL_UNIT * POOL_SMALL_COUNT)
#define SLAB_HEAD          64 /* keeps pieces aligned */
#define PIECE_ALIGN        POOL_SMALL_UNIT
#define LARGE_EXPONENT_MAX 40

typedef struct pool_slab {
    struct pool_slab *next;
} pool_slab;

typedef struct pool_free {
    struct pool_free *next;
} pool_free;

void pool_init(sim_pool *pool)
{
    memset(pool, 0, sizeof *pool);
}

void pool_deinit(sim_pool *pool)
{
    pool_slab *slab = pool->slabs;

    while (slab != NULL) {
        pool_slab *next = slab->next;

        kvarve_release(slab);
        slab = next;
    }
    memset(pool, 0, sizeof *pool);
}

void pool_reserve(sim_pool *pool, size_t bytes)
{
    pool_slab *slab = NULL;

    if (pool->left >= bytes) {
        return;
    }
    for (int i = 0; i < TRIES && slab == NULL; i++) {
        slab = kvarve_allocate(bytes + SLAB_HEAD);
    }
    KVARVE_ASSERT(slab != NULL);
    slab->next = pool->slabs;
    pool->slabs = slab;
    pool->next = (char *)slab + SLAB_HEAD;
    pool->left = bytes;
}

static unsigned large_exponent(size_t size)
{
    const unsigned exponent = 64u - (unsigned)__builtin_clzll((unsigned long long)size - 1);

    KVARVE_ASSERT(exponent <= LARGE_EXPONENT_MAX);
    return exponent;
}

static pool_free **free_list(sim_pool *pool, size_t size)
{
    if (size <= SMALL_MAX) {
        return &pool->small_free[(size + POOL_SMALL_UNIT - 1) / POOL_SMALL_UNIT];
    }
    return &pool->large_free[large_exponent(size)];
}

static size_t rounded_size(size_t size)
{
    if (size <= SMALL_MAX) {
        return (size + PIECE_ALIGN - 1) / PIECE_ALIGN * PIECE_ALIGN;
    }
    return (size_t)1 << large_exponent(size);
}

void *pool_take(sim_pool *pool, size_t size)
{
    pool_free **list = free_list(pool, size);
    const size_t rounded = rounded_size(size);
    void *memory = *list;

    KVARVE_ASSERT(size > 0);
    if (memory != NULL) {
        *list = (*list)->next;
        return memory;
    }
    if (pool->left < rounded) {
        pool_reserve(pool, rounded > SLAB_SIZE ? rounded : SLAB_SIZE);
    }
    memory = pool->next;
    pool->next += rounded;
    pool->left -= rounded;
    return memory;
}

void *pool_take_zeroed(sim_pool *pool, size_t size)
{
    return memset(pool_take(pool, size), 0, size);
}

void pool_give(sim_pool *pool, void *memory, size_t size)
{
    pool_free **list;
    pool_free *piece = memory;

    if (memory == NULL) {
        return;
    }
    list = free_list(pool, size);
    piece->next = *list;
    *list = piece;
}
