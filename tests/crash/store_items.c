/*
 * store_items.c - see store_items.h.
 *
 * Invariant
 *   I1  Two pages that the store may take for one have the same bytes here, and no others have.
 */
#include "crash/store_items.h"

#include <string.h>

#include "simulate/world.h"

#define SHARED_TOKENS 32u

static const kvarve_group plain_groups[] = {
    {.page_class = KVARVE_CLASS_PREFIX,
     .flags = KVARVE_GROUP_ROWS,
     .span_tokens = 16,
     .page_bytes = 1024},
    {.page_class = KVARVE_CLASS_ENDPOINT, .page_bytes = 700},
};

static const kvarve_group mixed_groups[] = {
    {.page_class = KVARVE_CLASS_PREFIX,
     .flags = KVARVE_GROUP_ROWS,
     .span_tokens = 16,
     .page_bytes = 1024},
    {.page_class = KVARVE_CLASS_WINDOW,
     .flags = KVARVE_GROUP_REPLICATED,
     .span_tokens = 8,
     .window_tokens = 20,
     .page_bytes = 512},
    {.page_class = KVARVE_CLASS_ENDPOINT, .page_bytes = 700},
    {.page_class = KVARVE_CLASS_AUXILIARY, .flags = KVARVE_GROUP_VARIABLE, .page_bytes = 512},
    {.page_class = KVARVE_CLASS_PREFIX,
     .flags = KVARVE_GROUP_ROWS | KVARVE_GROUP_OPTIONAL,
     .span_tokens = 16,
     .page_bytes = 512},
};

static const kvarve_group large_groups[] = {
    {.page_class = KVARVE_CLASS_PREFIX,
     .flags = KVARVE_GROUP_ROWS,
     .span_tokens = 16,
     .page_bytes = 65536},
    {.page_class = KVARVE_CLASS_ENDPOINT, .page_bytes = 700},
};

static const kvarve_group paged_groups[] = {
    {.page_class = KVARVE_CLASS_PREFIX,
     .flags = KVARVE_GROUP_ROWS,
     .span_tokens = 16,
     .page_bytes = 1024},
    {.page_class = KVARVE_CLASS_WINDOW,
     .flags = KVARVE_GROUP_ROWS | KVARVE_GROUP_REPLICATED,
     .span_tokens = 8,
     .window_tokens = 20,
     .page_bytes = 512},
    {.page_class = KVARVE_CLASS_ENDPOINT, .page_bytes = 700},
};

static const kvarve_group dense_groups[] = {
    {.page_class = KVARVE_CLASS_PREFIX,
     .flags = KVARVE_GROUP_ROWS,
     .span_tokens = 8,
     .page_bytes = 512},
    {.page_class = KVARVE_CLASS_PREFIX,
     .flags = KVARVE_GROUP_ROWS,
     .span_tokens = MODEL_DERIVED_SPAN,
     .page_bytes = 512},
};

const model_shape model_shapes[LAYOUT_COUNT] = {
    [LAYOUT_PLAIN] = {plain_groups, 2, 1, 0, "{\"model\":\"plain\"}", NULL},
    [LAYOUT_EXACT] = {plain_groups, 2, 2, KVARVE_NAMESPACE_EXACT, "{\"model\":\"exact\"}", NULL},
    [LAYOUT_MIXED] = {mixed_groups, 5, 2, 0, "{\"model\":\"mixed\"}", "{\"drafter\":\"d\"}"},
    [LAYOUT_LARGE] = {large_groups, 2, 1, 0, "{\"model\":\"large\"}", NULL},
    [LAYOUT_PAGED] = {paged_groups, 3, 2, 0, "{\"model\":\"paged\"}", NULL},
    [LAYOUT_DENSE] = {dense_groups, 2, 1, 0, "{\"model\":\"dense\"}", NULL},
};

/* --- what an item consists of --- */

static uint64_t mix(uint64_t state, uint64_t value)
{
    uint64_t seed = state * UINT64_C(0x9e3779b97f4a7c15) + value;

    return world_next_random(&seed);
}

/* Whose tokens the first `end` tokens are. */
static uint32_t origin_of(const model_item *item, uint32_t end)
{
    return item->conversation == 1 && end <= SHARED_TOKENS ? 0 : item->conversation;
}

bool item_has_same_start(const model_item *a, const model_item *b, uint32_t end)
{
    return a->tokens >= end && b->tokens >= end && origin_of(a, end) == origin_of(b, end);
}

void item_tokens(const model_item *item, uint32_t out[TOKENS_MAX])
{
    for (uint32_t i = 0; i < item->tokens; i++) {
        out[i] = (uint32_t)(mix(origin_of(item, i + 1) + 1, i) % 50000);
    }
}

uint32_t item_state_bytes(uint32_t rank)
{
    return rank == 0 ? 900 : 700;
}

static bool is_stored(const model_item *item, const kvarve_group *group)
{
    return (group->flags & KVARVE_GROUP_OPTIONAL) == 0 || !item->has_no_draft;
}

static size_t list_token_pages(const model_item *item, model_page like, model_page *out)
{
    const kvarve_group *group = &model_shapes[item->layout].groups[like.group];
    const uint32_t span = group->span_tokens;
    uint32_t at = 0;
    size_t count = 0;

    if (group->page_class == KVARVE_CLASS_WINDOW && item->tokens > group->window_tokens) {
        at = (item->tokens - group->window_tokens) / span * span;
    }
    for (; at < item->tokens; at += span) {
        like.position = at / span;
        like.first_token = at;
        like.tokens = item->tokens - at < span ? item->tokens - at : span;
        like.size = (group->flags & KVARVE_GROUP_ROWS) != 0 ? like.tokens * group->page_bytes / span
                                                            : group->page_bytes;
        out[count++] = like;
    }
    return count;
}

static size_t list_parts(const model_item *item, model_page like, model_page *out)
{
    const kvarve_group *group = &model_shapes[item->layout].groups[like.group];
    uint32_t left = (group->flags & KVARVE_GROUP_VARIABLE) != 0 ? item_state_bytes(like.rank)
                                                                : group->page_bytes;
    size_t count = 0;

    while (left > 0) {
        like.position = count;
        like.size = left < group->page_bytes ? left : group->page_bytes;
        left -= like.size;
        out[count++] = like;
    }
    return count;
}

size_t item_group_pages(const model_item *item, uint32_t rank, uint32_t group, model_page *out)
{
    const kvarve_group *described = &model_shapes[item->layout].groups[group];
    const model_page like = {.rank = (described->flags & KVARVE_GROUP_REPLICATED) != 0 ? REPLICATED
                                                                                       : rank,
                             .group = group};

    if (!is_stored(item, described)) {
        return 0;
    }
    return described->page_class <= KVARVE_CLASS_WINDOW ? list_token_pages(item, like, out)
                                                        : list_parts(item, like, out);
}

size_t item_pages(const model_item *item, model_page *out)
{
    const model_shape *shape = &model_shapes[item->layout];
    size_t count = 0;

    for (uint32_t rank = 0; rank < shape->rank_count; rank++) {
        for (uint32_t group = 0; group < shape->group_count; group++) {
            if (rank == 0 || (shape->groups[group].flags & KVARVE_GROUP_REPLICATED) == 0) {
                count += item_group_pages(item, rank, group, out + count);
            }
        }
    }
    return count;
}

uint32_t item_draft_tokens(const model_item *item)
{
    return model_shapes[item->layout].draft == NULL || item->has_no_draft ? 0 : item->tokens;
}

static uint32_t variant_of(const model_item *item, const model_page *page)
{
    const kvarve_group *group = &model_shapes[item->layout].groups[page->group];
    const bool is_full = page->tokens == group->span_tokens;

    return group->page_class == KVARVE_CLASS_PREFIX && is_full &&
                   page->first_token + page->tokens <= item->first_tokens
               ? item->first_variant
               : item->variant;
}

/* I1 */
uint64_t item_page_identity(const model_item *item, const model_page *page)
{
    const model_shape *shape = &model_shapes[item->layout];
    const kvarve_group *group = &shape->groups[page->group];
    const bool has_tokens = group->page_class <= KVARVE_CLASS_WINDOW;
    const uint32_t end = has_tokens ? page->first_token + page->tokens : item->tokens;
    uint64_t state = mix(item->layout, page->group);

    state = mix(mix(state, page->rank), origin_of(item, end));
    state = mix(mix(state, end), page->position);
    if (group->page_class == KVARVE_CLASS_AUXILIARY) {
        state = mix(mix(state, item->kind), item_draft_tokens(item));
    }
    if ((shape->flags & KVARVE_NAMESPACE_EXACT) != 0) {
        state = mix(state, variant_of(item, page));
    }
    return state;
}

static void fill_run(uint8_t *to, size_t size, uint64_t seed)
{
    size_t at = 0;

    for (; at + 8 <= size; at += 8) {
        const uint64_t word = seed * (2 * at + 1) + (seed >> 29);

        memcpy(to + at, &word, 8);
    }
    for (; at < size; at++) {
        to[at] = (uint8_t)(seed >> (at % 8));
    }
}

void item_fill_page(const model_item *item, const model_page *page, uint8_t *to)
{
    const kvarve_group *group = &model_shapes[item->layout].groups[page->group];
    const uint32_t variant = variant_of(item, page);
    uint32_t row_bytes;

    if ((group->flags & KVARVE_GROUP_ROWS) == 0) {
        fill_run(to, page->size, mix(item_page_identity(item, page), variant));
        return;
    }
    row_bytes = group->page_bytes / group->span_tokens;
    for (uint32_t i = 0; i < page->tokens; i++) {
        const uint32_t end = page->first_token + i + 1;
        const uint64_t row = mix(mix(item->layout * 64u + page->group, page->rank), end);

        fill_run(to + (size_t)i * row_bytes, row_bytes,
                 mix(mix(row, origin_of(item, end)), variant));
    }
}
