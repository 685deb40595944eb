/*
 * image.c - see image_private.h. Two levels: an array of chunks, each of 64 pointers to blocks.
 *
 * Invariant: whoever changes a chunk or a block holds its only reference; a clone copies the array
 * of chunks and nothing below it.
 */
#include "simulate/image_private.h"

#include <string.h>

#include "base/assert.h"
#include "base/checked.h"

#define FIRST_CHUNKS 8

sim_block *image_block(const sim_image *image, uint64_t index)
{
    const uint64_t chunk = index / IMAGE_CHUNK_BLOCKS;

    if (chunk >= image->chunk_count || image->chunks[chunk] == NULL) {
        return NULL;
    }
    return image->chunks[chunk]->blocks[index % IMAGE_CHUNK_BLOCKS];
}

static void drop_block(sim_pool *pool, sim_block *block)
{
    if (block != NULL && --block->references == 0) {
        pool_give(pool, block, sizeof *block);
    }
}

static void drop_chunk(sim_pool *pool, sim_chunk *chunk)
{
    if (chunk == NULL || --chunk->references > 0) {
        return;
    }
    for (int i = 0; i < IMAGE_CHUNK_BLOCKS; i++) {
        drop_block(pool, chunk->blocks[i]);
    }
    pool_give(pool, chunk, sizeof *chunk);
}

static void grow(sim_pool *pool, sim_image *image, uint64_t chunk)
{
    const uint64_t old_count = image->chunk_count;
    uint64_t count = kvarve_max_u64(old_count, FIRST_CHUNKS);
    sim_chunk **chunks;

    while (count <= chunk) {
        count *= 2;
    }
    if (count == old_count) {
        return;
    }
    chunks = pool_take_zeroed(pool, count * sizeof *chunks);
    if (old_count > 0) {
        memcpy(chunks, image->chunks, old_count * sizeof *chunks);
        pool_give(pool, image->chunks, old_count * sizeof *chunks);
    }
    image->chunks = chunks;
    image->chunk_count = count;
}

/* A chunk with one reference and the blocks of `old` (NULL: none), whose reference it takes over.
 */
static sim_chunk *unshare_chunk(sim_pool *pool, sim_chunk *old)
{
    sim_chunk *chunk = pool_take_zeroed(pool, sizeof *chunk);

    chunk->references = 1;
    if (old == NULL) {
        return chunk;
    }
    for (int i = 0; i < IMAGE_CHUNK_BLOCKS; i++) {
        chunk->blocks[i] = old->blocks[i];
        if (chunk->blocks[i] != NULL) {
            chunk->blocks[i]->references++;
        }
    }
    drop_chunk(pool, old);
    return chunk;
}

/* Where the pointer to block `index` is, in a chunk of this image alone. */
static sim_block **own_place(sim_pool *pool, sim_image *image, uint64_t index)
{
    const uint64_t number = index / IMAGE_CHUNK_BLOCKS;
    sim_chunk *chunk;

    grow(pool, image, number);
    chunk = image->chunks[number];
    if (chunk == NULL || chunk->references > 1) {
        chunk = unshare_chunk(pool, chunk);
        image->chunks[number] = chunk;
    }
    return &chunk->blocks[index % IMAGE_CHUNK_BLOCKS];
}

uint8_t *image_edit(sim_pool *pool, sim_image *image, uint64_t index, bool keep)
{
    sim_block **place = own_place(pool, image, index);
    sim_block *old = *place;
    sim_block *block;

    if (old != NULL && old->references == 1) {
        return old->bytes;
    }
    block = pool_take(pool, sizeof *block);
    block->references = 1;
    if (old != NULL && keep) {
        memcpy(block->bytes, old->bytes, sizeof block->bytes);
    } else if (keep) {
        memset(block->bytes, 0, sizeof block->bytes);
    }
    image->block_count += old == NULL;
    drop_block(pool, old);
    *place = block;
    return block->bytes;
}

void image_share(sim_pool *pool, sim_image *image, uint64_t index, sim_block *block)
{
    sim_block *old = image_block(image, index);
    sim_block **place;

    if (old == block) {
        return;
    }
    place = own_place(pool, image, index);
    if (block != NULL) {
        block->references++;
    }
    image->block_count += block != NULL;
    image->block_count -= old != NULL;
    *place = block;
    drop_block(pool, old);
}

uint64_t image_next_block(const sim_image *image, uint64_t index)
{
    while (index / IMAGE_CHUNK_BLOCKS < image->chunk_count) {
        const sim_chunk *chunk = image->chunks[index / IMAGE_CHUNK_BLOCKS];

        if (chunk == NULL) {
            index = (index / IMAGE_CHUNK_BLOCKS + 1) * IMAGE_CHUNK_BLOCKS;
        } else if (chunk->blocks[index % IMAGE_CHUNK_BLOCKS] == NULL) {
            index++;
        } else {
            return index;
        }
    }
    return UINT64_MAX;
}

static bool is_zero(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

void image_cut(sim_pool *pool, sim_image *image, uint64_t size)
{
    const uint64_t first = size / IMAGE_BLOCK;
    const size_t kept = (size_t)(size % IMAGE_BLOCK);
    const sim_block *partial = kept > 0 ? image_block(image, first) : NULL;
    uint64_t index;

    if (partial != NULL && !is_zero(partial->bytes + kept, IMAGE_BLOCK - kept)) {
        memset(image_edit(pool, image, first, true) + kept, 0, IMAGE_BLOCK - kept);
    }
    index = image_next_block(image, kept > 0 ? first + 1 : first);
    for (; index != UINT64_MAX; index = image_next_block(image, index + 1)) {
        image_share(pool, image, index, NULL);
    }
}

sim_image image_clone(sim_pool *pool, const sim_image *image)
{
    sim_image clone = *image;

    if (image->chunk_count == 0) {
        return clone;
    }
    clone.chunks = pool_take(pool, image->chunk_count * sizeof *clone.chunks);
    for (uint64_t i = 0; i < image->chunk_count; i++) {
        clone.chunks[i] = image->chunks[i];
        if (clone.chunks[i] != NULL) {
            clone.chunks[i]->references++;
        }
    }
    return clone;
}

void image_deinit(sim_pool *pool, sim_image *image)
{
    for (uint64_t i = 0; i < image->chunk_count; i++) {
        drop_chunk(pool, image->chunks[i]);
    }
    pool_give(pool, image->chunks, image->chunk_count * sizeof *image->chunks);
    *image = (sim_image){0};
}
