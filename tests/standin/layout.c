/*
 * layout.c - the named layouts, and what follows from them.
 *
 * Small numbers with awkward relations: spans above, at and below the block, partial pages, states
 * whose size is no multiple of anything. Between two blocks of a layer lies a gap which nobody may
 * write to. Pure; no state.
 */
#include "standin/layout.h"

#include <stdio.h>
#include <string.h>

#define GAP_BYTES 32u

#define PREFIX    .page_class = KVARVE_CLASS_PREFIX
#define WINDOW    .page_class = KVARVE_CLASS_WINDOW
#define ENDPOINT  .page_class = KVARVE_CLASS_ENDPOINT
#define AUXILIARY .page_class = KVARVE_CLASS_AUXILIARY
#define DRAFT     (KVARVE_GROUP_OPTIONAL | KVARVE_GROUP_ROWS | KVARVE_GROUP_DRAFT_ROWS)

/* clang-format off */
const standin_layout standin_layouts[] = {
    {"dense", "attention alone, spans above and below the block", false, 2,
     {{PREFIX, .flags = KVARVE_GROUP_ROWS, .span_tokens = 32, .block_tokens = 16,
       .layers = 2, .runs = 2, .row_bytes = 32},
      {PREFIX, .flags = KVARVE_GROUP_ROWS, .span_tokens = 8, .block_tokens = 16,
       .layers = 1, .runs = 1, .row_bytes = 48}}},
    {"window", "attention and two sliding windows, one of opaque pages", false, 3,
     {{PREFIX, .flags = KVARVE_GROUP_ROWS, .span_tokens = 32, .block_tokens = 16,
       .layers = 1, .runs = 2, .row_bytes = 32},
      {WINDOW, .flags = KVARVE_GROUP_ROWS, .span_tokens = 32, .window_tokens = 40,
       .block_tokens = 16, .layers = 2, .runs = 2, .row_bytes = 32},
      {WINDOW, .span_tokens = 16, .window_tokens = 100, .block_tokens = 16,
       .layers = 2, .runs = 2, .row_bytes = 24}}},
    {"hybrid", "all four classes, some of them replicated", false, 6,
     {{PREFIX, .flags = KVARVE_GROUP_ROWS, .span_tokens = 64, .block_tokens = 16,
       .layers = 2, .runs = 2, .row_bytes = 32},
      {PREFIX, .flags = KVARVE_GROUP_ROWS | KVARVE_GROUP_REPLICATED, .span_tokens = 16,
       .block_tokens = 32, .layers = 1, .runs = 1, .row_bytes = 72},
      {WINDOW, .flags = KVARVE_GROUP_ROWS, .span_tokens = 16, .window_tokens = 48,
       .block_tokens = 16, .layers = 1, .runs = 2, .row_bytes = 32},
      {ENDPOINT, .layers = 2, .runs = 1, .row_bytes = 1500},
      {ENDPOINT, .flags = KVARVE_GROUP_REPLICATED, .layers = 1, .runs = 1, .row_bytes = 520},
      {AUXILIARY, .flags = KVARVE_GROUP_REPLICATED, .layers = 1, .runs = 1, .row_bytes = 200}}},
    {"rows", "pages that carry the drafter's rows, a state and an auxiliary", false, 4,
     {{PREFIX, .flags = KVARVE_GROUP_ROWS | KVARVE_GROUP_DRAFT_ROWS, .span_tokens = 32,
       .block_tokens = 16, .layers = 3, .runs = 2, .row_bytes = 32, .draft_layers = 1},
      {WINDOW, .flags = KVARVE_GROUP_ROWS | KVARVE_GROUP_DRAFT_ROWS, .span_tokens = 16,
       .window_tokens = 40, .block_tokens = 8, .layers = 2, .runs = 1, .row_bytes = 40,
       .draft_layers = 1},
      {ENDPOINT, .layers = 1, .runs = 1, .row_bytes = 1024},
      {AUXILIARY, .layers = 1, .runs = 1, .row_bytes = 96}}},
    {"drafted", "attention, a state, and a drafter's groups that may be missing", true, 5,
     {{PREFIX, .flags = KVARVE_GROUP_ROWS, .span_tokens = 32, .block_tokens = 16,
       .layers = 2, .runs = 2, .row_bytes = 32},
      {ENDPOINT, .layers = 1, .runs = 1, .row_bytes = 900},
      {AUXILIARY, .layers = 1, .runs = 1, .row_bytes = 64},
      {PREFIX, .flags = DRAFT, .span_tokens = 16, .block_tokens = 16,
       .layers = 1, .runs = 2, .row_bytes = 32, .draft_layers = 1},
      {AUXILIARY, .flags = KVARVE_GROUP_OPTIONAL, .layers = 1, .runs = 1, .row_bytes = 300,
       .draft_layers = 1}}},
    {"context", "a context that is spread over the ranks token by token, and a state", false, 3,
     {{PREFIX, .span_tokens = 8, .block_tokens = 8, .layers = 2, .runs = 2, .row_bytes = 32,
       .is_split = true},
      {WINDOW, .flags = KVARVE_GROUP_ROWS | KVARVE_GROUP_REPLICATED, .span_tokens = 16,
       .window_tokens = 32, .block_tokens = 16, .layers = 1, .runs = 2, .row_bytes = 32},
      {ENDPOINT, .layers = 2, .runs = 1, .row_bytes = 600}}},
};
/* clang-format on */
const size_t standin_layout_count = sizeof standin_layouts / sizeof *standin_layouts;

static bool is_power_of_two(uint32_t number)
{
    return (number & (number - 1)) == 0;
}

bool shape_make(standin_shape *out, const char *name, uint32_t ranks, uint32_t drafter)
{
    const standin_layout *layout = NULL;

    for (size_t i = 0; i < standin_layout_count; i++) {
        layout = strcmp(standin_layouts[i].name, name) == 0 ? &standin_layouts[i] : layout;
    }
    if (layout == NULL || ranks == 0 || ranks > STANDIN_RANKS_MAX ||
        (drafter == 0 && !layout->is_optional_drafter)) {
        return false;
    }
    *out = (standin_shape){.name = layout->name,
                           .ranks = ranks,
                           .drafter = drafter,
                           .group_count = layout->group_count};
    memcpy(out->groups, layout->groups, sizeof out->groups);
    while (drafter == 0 && group_is_optional(&out->groups[out->group_count - 1])) {
        out->group_count--; /* optional groups stand last: the others keep their numbers */
    }
    for (uint32_t g = 0; g < out->group_count; g++) {
        standin_group *group = &out->groups[g];

        if (group->is_split) {
            group->span_tokens *= ranks;
            group->block_tokens *= ranks;
        }
        if (group->is_split && !is_power_of_two(ranks)) {
            return false; /* a block's bytes can not be told as bytes a token */
        }
    }
    return true;
}

bool group_is_state(const standin_group *group)
{
    return group->page_class >= KVARVE_CLASS_ENDPOINT;
}

bool group_is_optional(const standin_group *group)
{
    return (group->flags & KVARVE_GROUP_OPTIONAL) != 0;
}

bool group_is_replicated(const standin_group *group)
{
    return (group->flags & KVARVE_GROUP_REPLICATED) != 0;
}

bool group_is_draft_layer(const standin_group *group, uint32_t layer)
{
    return layer + group->draft_layers >= group->layers;
}

bool group_is_written_behind(const standin_group *group)
{
    return !group_is_state(group) && ((group->flags & KVARVE_GROUP_ROWS) == 0 ||
                                      (group->flags & KVARVE_GROUP_DRAFT_ROWS) != 0);
}

bool shape_is_written_behind(const standin_shape *shape)
{
    bool is_written = false;

    for (uint32_t g = 0; g < shape->group_count; g++) {
        is_written = is_written || group_is_written_behind(&shape->groups[g]);
    }
    return is_written;
}

uint32_t group_block_rows(const standin_shape *shape, const standin_group *group)
{
    return group_is_state(group) ? 1 : group->block_tokens / (group->is_split ? shape->ranks : 1);
}

size_t group_block_bytes(const standin_shape *shape, const standin_group *group)
{
    return (size_t)group_block_rows(shape, group) * group->runs * group->row_bytes;
}

size_t group_block_stride(const standin_shape *shape, const standin_group *group)
{
    return group_block_bytes(shape, group) + GAP_BYTES;
}

size_t group_page_bytes(const standin_shape *shape, const standin_group *group)
{
    const size_t block = group_block_bytes(shape, group) * group->layers;

    return group_is_state(group) ? block : block * group->span_tokens / group->block_tokens;
}

uint64_t group_first_token(const standin_group *group, uint64_t tokens)
{
    if (group->page_class != KVARVE_CLASS_WINDOW || tokens <= group->window_tokens) {
        return 0;
    }
    return (tokens - group->window_tokens) / group->span_tokens * group->span_tokens;
}

uint64_t shape_draft_floor(const standin_shape *shape, uint64_t tokens)
{
    uint64_t most = 0;

    for (uint32_t g = 0; g < shape->group_count; g++) {
        const standin_group *group = &shape->groups[g];

        if (!group_is_state(group) && group->draft_layers > 0 && tokens > 0) {
            const uint64_t start = (tokens - 1) / group->span_tokens * group->span_tokens;

            most = start > most ? start : most;
        }
    }
    return most;
}

void shape_describe(const standin_shape *shape, kvarve_group *out_groups)
{
    for (uint32_t g = 0; g < shape->group_count; g++) {
        const standin_group *group = &shape->groups[g];

        out_groups[g] = (kvarve_group){.page_class = group->page_class,
                                       .flags = group->flags,
                                       .span_tokens = group->span_tokens,
                                       .window_tokens = group->window_tokens,
                                       .page_bytes = (uint32_t)group_page_bytes(shape, group)};
    }
}

bool shape_has_optional(const standin_shape *shape)
{
    bool has = false;

    for (uint32_t g = 0; g < shape->group_count; g++) {
        has = has || group_is_optional(&shape->groups[g]);
    }
    return has;
}

/* A drafter whose rows are in everybody's pages is part of what the bytes mean. */
void shape_identity(const standin_shape *shape, char out[STANDIN_IDENTITY_MAX])
{
    (void)snprintf(out, STANDIN_IDENTITY_MAX,
                   "{\"engine\":\"standin\",\"layout\":\"%s\",\"ranks\":%u,\"drafter\":%u}",
                   shape->name, shape->ranks, shape_has_optional(shape) ? 0 : shape->drafter);
}

void shape_draft_identity(const standin_shape *shape, char out[STANDIN_IDENTITY_MAX])
{
    (void)snprintf(out, STANDIN_IDENTITY_MAX, "{\"drafter\":%u}", shape->drafter);
}
