/*
 * memory.h - one rank's paged memory: for each layer of each group an array of blocks.
 *
 * A sequence's tokens lie in the blocks that its table of the group names, in order; a state lies
 * in one block. In a block: run after run, in each run a row for each token (docs/format/pages.md).
 *
 * Threads    One rank's memory is used by that rank; kvarve's threads copy to and from the blocks
 * that they were given. Ownership  memory_init allocates, memory_deinit frees.
 */
#ifndef KVARVE_STANDIN_MEMORY_H
#define KVARVE_STANDIN_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "standin/layout.h"

#define STANDIN_BLOCKS       400u /* of a group of tokens */
#define STANDIN_STATE_BLOCKS 64u  /* of a group of states */

uint32_t group_block_count(const standin_group *group);

/* Which blocks of a group are a sequence's. */
typedef struct standin_table {
    uint64_t first_token; /* of ids[0]: a multiple of block_tokens */
    uint32_t count;
    const uint32_t *ids; /* borrowed */
} standin_table;

typedef struct standin_memory {
    const standin_shape *shape; /* borrowed */
    uint32_t rank;
    uint8_t *layers[STANDIN_GROUPS_MAX][STANDIN_LAYERS_MAX]; /* owned */
} standin_memory;

/* False: no memory. Everything holds the garbage of `seed`. */
bool memory_init(standin_memory *out, const standin_shape *shape, uint32_t rank, uint64_t seed);
void memory_deinit(standin_memory *memory);

/* A block of one layer. */
uint8_t *memory_block(const standin_memory *memory, uint32_t group, uint32_t layer, uint32_t block);
/* Does this token lie on this rank? */
bool memory_has_row(const standin_memory *memory, uint32_t group, uint64_t token);
/* One row of a token. */
uint8_t *memory_row(const standin_memory *memory, uint32_t group, const standin_table *table,
                    uint32_t layer, uint32_t run, uint64_t token);

/* Fill a block of all layers with garbage. */
void memory_spoil(const standin_memory *memory, uint32_t group, uint32_t block, uint64_t seed);
/* Are the gaps between all blocks as they were made? */
bool memory_gaps_are_whole(const standin_memory *memory);

/* Tell the store where everything lies. */
kvarve_status memory_register(const standin_memory *memory, kvarve_namespace *space,
                              kvarve_error *err);

/* Zeroed memory; NULL when there is none. Given back by standin_release. */
void *standin_allocate(size_t count, size_t size);
void standin_release(void *memory);

#endif
