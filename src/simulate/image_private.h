/*
 * image_private.h - the bytes of a simulated file: sparse, in blocks that images share until one of
 * them changes (copy on write). Threads: one at a time.
 */
#ifndef KVARVE_SIMULATE_IMAGE_PRIVATE_H
#define KVARVE_SIMULATE_IMAGE_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include "simulate/pool_private.h"

#define IMAGE_BLOCK        4096
#define IMAGE_CHUNK_BLOCKS 64

typedef struct sim_block {
    uint8_t bytes[IMAGE_BLOCK];
    uint32_t references;
} sim_block;

typedef struct sim_chunk {
    uint32_t references;
    sim_block *blocks[IMAGE_CHUNK_BLOCKS];
} sim_chunk;

/* All zero is an empty image. */
typedef struct sim_image {
    sim_chunk **chunks;
    uint64_t chunk_count;
    uint64_t block_count; /* blocks that are there */
} sim_image;

/* Block `index`, or NULL where there is a hole. Borrowed until the image changes. */
sim_block *image_block(const sim_image *image, uint64_t index);

/* Block `index`, the image's alone, to be changed; a hole becomes zeros. `keep`: the old bytes
 * matter. */
uint8_t *image_edit(sim_pool *pool, sim_image *image, uint64_t index, bool keep);

/* Let block `index` be `block`, shared with whoever else has it; NULL makes a hole. */
void image_share(sim_pool *pool, sim_image *image, uint64_t index, sim_block *block);

/* Zeros from byte `size` on; whole blocks become holes. */
void image_cut(sim_pool *pool, sim_image *image, uint64_t size);

/* The first block at `index` or after it, or UINT64_MAX. */
uint64_t image_next_block(const sim_image *image, uint64_t index);

sim_image image_clone(sim_pool *pool, const sim_image *image);
void image_deinit(sim_pool *pool, sim_image *image);

#endif
