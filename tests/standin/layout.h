/*
 * layout.h - what the stand-in engine's state consists of: groups, by named layouts.
 *
 * A shape is a layout for a number of ranks and a drafter. It says what the store is told
 * (kvarve_group, identity) and how a rank's memory is cut into layers, blocks, runs and rows.
 *
 * Threads    A shape is constant once it is made. Ownership  plain data.
 */
#ifndef KVARVE_STANDIN_LAYOUT_H
#define KVARVE_STANDIN_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarve/layout.h"

#define STANDIN_GROUPS_MAX 6u
#define STANDIN_LAYERS_MAX 3u
#define STANDIN_RANKS_MAX  8u

typedef struct standin_group {
    uint32_t page_class; /* kvarve_class */
    uint32_t flags;      /* KVARVE_GROUP_... */
    uint32_t span_tokens;
    uint32_t window_tokens;
    uint32_t block_tokens; /* tokens a block of the engine holds, over all ranks; 0: a state */
    uint32_t layers;
    uint32_t runs;         /* K and V: 2 */
    uint32_t row_bytes;    /* of one token in one run; of a state: its bytes in one layer */
    uint32_t draft_layers; /* the last ones, which the drafter fills */
    bool is_split;         /* token i lies on rank i % ranks alone; span and block are of a rank */
} standin_group;

typedef struct standin_layout {
    const char *name;
    const char *about;
    bool is_optional_drafter; /* can run without a drafter */
    uint32_t group_count;
    standin_group groups[STANDIN_GROUPS_MAX];
} standin_layout;

extern const standin_layout standin_layouts[];
extern const size_t standin_layout_count;

typedef struct standin_shape {
    const char *name;
    uint32_t ranks;
    uint32_t drafter; /* 0: none */
    uint32_t group_count;
    standin_group groups[STANDIN_GROUPS_MAX];
} standin_shape;

/* False: no such layout, or not for so many ranks, or not without (or with) a drafter. */
bool shape_make(standin_shape *out, const char *name, uint32_t ranks, uint32_t drafter);

bool group_is_state(const standin_group *group);
bool group_is_optional(const standin_group *group);
bool group_is_replicated(const standin_group *group);
/* Does the drafter fill this layer? */
bool group_is_draft_layer(const standin_group *group, uint32_t layer);
/* Can a put at N still be reading bytes that the engine writes when it goes on after N? */
bool group_is_written_behind(const standin_group *group);
bool shape_is_written_behind(const standin_shape *shape);

/* Bytes of one rank: of a block in one layer, from one block to the next, of a full page. */
size_t group_block_bytes(const standin_shape *shape, const standin_group *group);
size_t group_block_stride(const standin_shape *shape, const standin_group *group);
size_t group_page_bytes(const standin_shape *shape, const standin_group *group);
/* Rows that one run of a block has on one rank. */
uint32_t group_block_rows(const standin_shape *shape, const standin_group *group);

/* First token of the pages of a boundary: 0, or where the window's first page begins. */
uint64_t group_first_token(const standin_group *group, uint64_t tokens);

/* The fewest draft tokens that a put at `tokens` may name: the drafter's rows may be missing in the
 * last page of a group alone, since only that one's key says how many are valid. */
uint64_t shape_draft_floor(const standin_shape *shape, uint64_t tokens);

/* What the store is told: groups[shape->group_count], and the identity documents. */
void shape_describe(const standin_shape *shape, kvarve_group *out_groups);
#define STANDIN_IDENTITY_MAX 160u
void shape_identity(const standin_shape *shape, char out[STANDIN_IDENTITY_MAX]);
void shape_draft_identity(const standin_shape *shape, char out[STANDIN_IDENTITY_MAX]);
bool shape_has_optional(const standin_shape *shape);

#endif
