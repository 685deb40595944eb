/*
 * store_paged.c - see store_paged.h.
 *
 * Invariants
 *   I1  Blocks of a lane are overwritten only when no copy from them runs: a put that was submitted
 *       is waited for, or released, before its lane is used again.
 *   I2  Block ids are permuted, so that a walk that takes block after block is seen.
 *   I3  Lists of ids are overwritten when the call is back: it may not look at them later.
 */
#include "crash/store_paged.h"

#include <string.h>

#include "crash/store_items.h"

#define RANKS         2u
#define GROUPS        3u
#define LAYERS_MAX    2u
#define LANE_BLOCKS   16u
#define BLOCKS        (PAGED_LANES * LANE_BLOCKS)
#define BLOCK_MAX     1024u /* bytes of a block of one layer */
#define STRIDE        1088u /* between blocks lies what is nobody's */
#define NOBODYS_BYTES 0xa5

/* One layer of one group: `runs` runs of rows of row_bytes. */
typedef struct layer {
    uint32_t runs;
    uint32_t row_bytes;
} layer;

typedef struct paged_group {
    uint32_t block_tokens;
    uint32_t layer_count;
    layer layers[LAYERS_MAX];
} paged_group;

/* Of a page of 16 tokens half a block, and two pages of 8 a block; the state is one. */
static const paged_group groups[GROUPS] = {
    {8, 2, {{2, 16}, {1, 32}}},
    {16, 1, {{2, 32}}},
    {1, 1, {{1, 700}}},
};

static uint8_t memory[RANKS][GROUPS][LAYERS_MAX][BLOCKS][STRIDE];

kvarve_status paged_register(kvarve_namespace *space)
{
    kvarve_status status = KVARVE_OK;

    memset(memory, NOBODYS_BYTES, sizeof memory);
    for (uint32_t rank = 0; rank < RANKS && status == KVARVE_OK; rank++) {
        kvarve_region regions[GROUPS * LAYERS_MAX];
        uint32_t block_tokens[GROUPS];
        size_t count = 0;

        for (uint32_t g = 0; g < GROUPS; g++) {
            block_tokens[g] = groups[g].block_tokens;
            for (uint32_t l = 0; l < groups[g].layer_count; l++) {
                regions[count++] = (kvarve_region){.group = g,
                                                   .base = memory[rank][g][l],
                                                   .block_stride = STRIDE,
                                                   .row_bytes = groups[g].layers[l].row_bytes,
                                                   .run_count = groups[g].layers[l].runs,
                                                   .block_count = BLOCKS};
            }
        }
        status = kvarve_regions_register(space, rank, regions, count, block_tokens, NULL);
    }
    return status;
}

/* The n-th block of a sequence in this lane. (I2) */
static uint32_t block_of(uint32_t lane, uint32_t n)
{
    return lane * LANE_BLOCKS + (n * 7 + 3 + lane) % LANE_BLOCKS;
}

/* Where a row is: of token `token`, counted from the first token of the sequence's first block. */
static uint8_t *row_at(uint32_t rank, uint32_t group, uint32_t l, uint32_t run, uint32_t block,
                       uint32_t row)
{
    const paged_group *at = &groups[group];

    return memory[rank][group][l][block] +
           (size_t)(run * at->block_tokens + row) * at->layers[l].row_bytes;
}

/* A rank's page and its blocks: one of them is made to be what the other is. */
typedef struct placed_page {
    const model_page *page;
    uint32_t rank;
    uint32_t lane;
    uint32_t first_token; /* of its first block */
} placed_page;

static void move_page(const placed_page *placed, uint8_t *bytes, bool is_to_blocks)
{
    const paged_group *at = &groups[placed->page->group];
    const uint32_t tokens = placed->page->tokens == 0 ? 1 : placed->page->tokens;
    size_t done = 0;

    for (uint32_t l = 0; l < at->layer_count; l++) {
        for (uint32_t i = 0; i < at->layers[l].runs * tokens; i++) {
            const uint32_t token = placed->page->first_token - placed->first_token + i % tokens;
            uint8_t *row =
                row_at(placed->rank, placed->page->group, l, i / tokens,
                       block_of(placed->lane, token / at->block_tokens), token % at->block_tokens);

            memcpy(is_to_blocks ? row : bytes + done, is_to_blocks ? bytes + done : row,
                   at->layers[l].row_bytes);
            done += at->layers[l].row_bytes;
        }
    }
}

/* The caller's side of a copy: block ids of one rank, by group. */
typedef struct block_lists {
    uint32_t ids[GROUPS][LANE_BLOCKS];
    const uint32_t *of_group[GROUPS];
    size_t counts[GROUPS];
} block_lists;

/* Blocks from the first page's first token on. */
static void list_blocks(const model_item *item, uint32_t rank, uint32_t lane, block_lists *out)
{
    model_page pages[PAGES_MAX];

    for (uint32_t g = 0; g < GROUPS; g++) {
        const size_t count = item_group_pages(item, rank, g, pages);
        const uint32_t tokens =
            pages[count - 1].tokens == 0
                ? 1
                : pages[count - 1].first_token + pages[count - 1].tokens - pages[0].first_token;

        out->counts[g] = (tokens + groups[g].block_tokens - 1) / groups[g].block_tokens;
        out->of_group[g] = out->ids[g];
        for (uint32_t n = 0; n < out->counts[g]; n++) {
            out->ids[g][n] = block_of(lane, n);
        }
    }
}

kvarve_status paged_put(const model_item *item, kvarve_put *put, uint32_t rank, uint32_t lane)
{
    model_page pages[PAGES_MAX];
    uint8_t bytes[BLOCK_MAX];
    block_lists blocks;
    kvarve_status status;

    for (uint32_t g = 0; g < GROUPS; g++) {
        const size_t count = item_group_pages(item, rank, g, pages);

        for (size_t i = 0; i < count; i++) {
            const placed_page placed = {
                .page = &pages[i], .rank = rank, .lane = lane, .first_token = pages[0].first_token};

            item_fill_page(item, &pages[i], bytes);
            move_page(&placed, bytes, true);
        }
    }
    list_blocks(item, rank, lane, &blocks);
    status = kvarve_put_copy(put, rank, blocks.of_group, blocks.counts, 0, NULL);
    memset(&blocks, 0, sizeof blocks); /* I3 */
    return status;
}

static read_answer compare_rank(const model_item *item, uint32_t rank)
{
    model_page pages[PAGES_MAX];
    uint8_t expected[BLOCK_MAX];
    uint8_t bytes[BLOCK_MAX];

    for (uint32_t g = 0; g < GROUPS; g++) {
        const size_t count = item_group_pages(item, rank, g, pages);

        for (size_t i = 0; i < count; i++) {
            const placed_page placed = {.page = &pages[i],
                                        .rank = rank,
                                        .lane = PAGED_LANE_IN,
                                        .first_token = pages[0].first_token};

            item_fill_page(item, &pages[i], expected);
            move_page(&placed, bytes, false);
            if (memcmp(bytes, expected, pages[i].size) != 0) {
                return READ_WRONG;
            }
        }
    }
    return READ_RIGHT;
}

/* What lies between the blocks is nobody's to write. */
static bool is_clear_between(uint32_t rank)
{
    for (uint32_t g = 0; g < GROUPS; g++) {
        for (uint32_t l = 0; l < groups[g].layer_count; l++) {
            const layer *of = &groups[g].layers[l];
            const size_t used = (size_t)groups[g].block_tokens * of->runs * of->row_bytes;

            for (uint32_t b = 0; b < BLOCKS; b++) {
                const uint8_t *rest = memory[rank][g][l][b] + used;

                if (rest[0] != NOBODYS_BYTES || memcmp(rest, rest + 1, STRIDE - used - 1) != 0) {
                    return false;
                }
            }
        }
    }
    return true;
}

read_answer paged_restore(const model_item *item, kvarve_lease *lease)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        block_lists blocks;
        read_answer answer;
        kvarve_status status;

        list_blocks(item, rank, PAGED_LANE_IN, &blocks);
        for (uint32_t g = 0; g < GROUPS; g++) { /* lest an earlier copy is taken for this one */
            for (uint32_t l = 0; l < groups[g].layer_count; l++) {
                memset(memory[rank][g][l][PAGED_LANE_IN * LANE_BLOCKS], NOBODYS_BYTES,
                       sizeof memory[rank][g][l][0] * LANE_BLOCKS);
            }
        }
        status = kvarve_lease_copy(lease, rank, blocks.of_group, blocks.counts, 0, NULL);
        memset(&blocks, 0, sizeof blocks); /* I3 */
        if (status != KVARVE_OK ||
            kvarve_lease_copy_wait(lease, rank, KVARVE_NO_TIMEOUT, NULL) != KVARVE_OK) {
            return READ_MISS;
        }
        answer = compare_rank(item, rank);
        if (answer != READ_RIGHT || !is_clear_between(rank)) {
            return READ_WRONG;
        }
    }
    return READ_RIGHT;
}
