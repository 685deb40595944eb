/*
 * memory.c - blocks, rows and gaps of one rank.
 *
 * Invariant: what lies between two blocks never changes; a copy that goes too far shows there.
 * Threads: as memory.h.
 */
#include "standin/memory.h"

#include <stdlib.h>
#include <string.h>

#include "standin/digest.h"

#define GAP_BYTE 0xa5

/* A program of a user's has its own memory: the stand-in links the public library alone. */
void *standin_allocate(size_t count, size_t size)
{
    return calloc(count, size); /* style: banned, outside of the library there is no other */
}

void standin_release(void *memory)
{
    free(memory); /* style: banned, outside of the library there is no other */
}

uint32_t group_block_count(const standin_group *group)
{
    return group_is_state(group) ? STANDIN_STATE_BLOCKS : STANDIN_BLOCKS;
}

bool memory_init(standin_memory *out, const standin_shape *shape, uint32_t rank, uint64_t seed)
{
    *out = (standin_memory){.shape = shape, .rank = rank};
    for (uint32_t g = 0; g < shape->group_count; g++) {
        const standin_group *group = &shape->groups[g];
        const size_t size = group_block_stride(shape, group) * group_block_count(group);

        for (uint32_t layer = 0; layer < group->layers; layer++) {
            out->layers[g][layer] = standin_allocate(1, size);
            if (out->layers[g][layer] == NULL) {
                memory_deinit(out);
                return false;
            }
            memset(out->layers[g][layer], GAP_BYTE, size);
        }
        for (uint32_t block = 0; block < group_block_count(group); block++) {
            memory_spoil(out, g, block, digest_two(seed, block));
        }
    }
    return true;
}

void memory_deinit(standin_memory *memory)
{
    for (uint32_t g = 0; g < STANDIN_GROUPS_MAX; g++) {
        for (uint32_t layer = 0; layer < STANDIN_LAYERS_MAX; layer++) {
            standin_release(memory->layers[g][layer]);
            memory->layers[g][layer] = NULL;
        }
    }
}

uint8_t *memory_block(const standin_memory *memory, uint32_t group, uint32_t layer, uint32_t block)
{
    return memory->layers[group][layer] +
           block * group_block_stride(memory->shape, &memory->shape->groups[group]);
}

bool memory_has_row(const standin_memory *memory, uint32_t group, uint64_t token)
{
    return !memory->shape->groups[group].is_split || token % memory->shape->ranks == memory->rank;
}

uint8_t *memory_row(const standin_memory *memory, uint32_t group, const standin_table *table,
                    uint32_t layer, uint32_t run, uint64_t token)
{
    const standin_group *of = &memory->shape->groups[group];
    const uint64_t at = token - table->first_token;
    const uint32_t block = table->ids[at / of->block_tokens];
    const uint64_t slot = at % of->block_tokens / (of->is_split ? memory->shape->ranks : 1);

    return memory_block(memory, group, layer, block) +
           (run * group_block_rows(memory->shape, of) + slot) * of->row_bytes;
}

void memory_spoil(const standin_memory *memory, uint32_t group, uint32_t block, uint64_t seed)
{
    const standin_group *of = &memory->shape->groups[group];

    for (uint32_t layer = 0; layer < of->layers; layer++) {
        digest_fill(memory_block(memory, group, layer, block), group_block_bytes(memory->shape, of),
                    digest_two(seed, layer));
    }
}

static bool gaps_of_layer(const standin_memory *memory, uint32_t group, uint32_t layer)
{
    const standin_group *of = &memory->shape->groups[group];
    const size_t size = group_block_bytes(memory->shape, of);
    const size_t gap = group_block_stride(memory->shape, of) - size;

    for (uint32_t block = 0; block < group_block_count(of); block++) {
        const uint8_t *from = memory_block(memory, group, layer, block) + size;

        for (size_t i = 0; i < gap; i++) {
            if (from[i] != GAP_BYTE) {
                return false;
            }
        }
    }
    return true;
}

bool memory_gaps_are_whole(const standin_memory *memory)
{
    bool is_whole = true;

    for (uint32_t g = 0; g < memory->shape->group_count; g++) {
        for (uint32_t layer = 0; layer < memory->shape->groups[g].layers; layer++) {
            is_whole = is_whole && gaps_of_layer(memory, g, layer);
        }
    }
    return is_whole;
}

kvarve_status memory_register(const standin_memory *memory, kvarve_namespace *space,
                              kvarve_error *err)
{
    kvarve_region regions[STANDIN_GROUPS_MAX * STANDIN_LAYERS_MAX];
    uint32_t block_tokens[STANDIN_GROUPS_MAX];
    size_t count = 0;

    for (uint32_t g = 0; g < memory->shape->group_count; g++) {
        const standin_group *group = &memory->shape->groups[g];
        const bool has_rows = (group->flags & KVARVE_GROUP_ROWS) != 0;
        const size_t block = group_block_bytes(memory->shape, group);

        block_tokens[g] = group_is_state(group) ? 1 : group->block_tokens;
        for (uint32_t layer = 0; layer < group->layers; layer++) {
            regions[count++] = (kvarve_region){
                .group = g,
                .base = memory->layers[g][layer],
                .block_stride = group_block_stride(memory->shape, group),
                .row_bytes = has_rows ? group->row_bytes : block / block_tokens[g],
                .run_count = has_rows ? group->runs : 1,
                .block_count = group_block_count(group),
            };
        }
    }
    return kvarve_regions_register(space, memory->rank, regions, count, block_tokens, err);
}
