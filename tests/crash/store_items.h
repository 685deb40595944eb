/*
 * store_items.h - what an item of the oracle consists of: its tokens, its pages, their bytes.
 *
 * Pure: of the store it knows the structs of include/kvarve alone. Shared by the files of the
 * oracle; tests use store_model.h.
 *
 * Threads: any.
 */
#ifndef KVARVE_TESTS_STORE_ITEMS_H
#define KVARVE_TESTS_STORE_ITEMS_H

#include "crash/store_model.h"

#define TOKENS_MAX 128u
#define PAGES_MAX  64u
#define GROUPS_MAX 8u
#define PAGE_MAX   65536u /* bytes of a page */
#define REPLICATED KVARVE_RANK_ALL

/* A page of an item, as the oracle sees it. */
typedef struct model_page {
    uint32_t rank;
    uint32_t group;
    uint64_t position;
    uint32_t first_token;
    uint32_t tokens; /* prefix and window */
    uint32_t size;
} model_page;

typedef struct model_shape {
    const kvarve_group *groups;
    uint32_t group_count;
    uint32_t rank_count;
    uint32_t flags;
    const char *identity;
    const char *draft;
} model_shape;

extern const model_shape model_shapes[LAYOUT_COUNT];

/* Its tokens, item->tokens of them. */
void item_tokens(const model_item *item, uint32_t out[TOKENS_MAX]);

/* Are the first `end` tokens of both the same? */
bool item_has_same_start(const model_item *a, const model_item *b, uint32_t end);

/* Leading tokens for which its drafter's state is valid: all, or 0 without one. */
uint32_t item_draft_tokens(const model_item *item);

/* Bytes of a rank's VARIABLE state. */
uint32_t item_state_bytes(uint32_t rank);

/* All pages of one rank in one group; replicated ones with rank REPLICATED. How many. */
size_t item_group_pages(const model_item *item, uint32_t rank, uint32_t group, model_page *out);

/* All pages of all ranks, a replicated one once. */
size_t item_pages(const model_item *item, model_page *out);

/* What a page is, to the store: the same number, the same page. */
uint64_t item_page_identity(const model_item *item, const model_page *page);

/* Its bytes, page->size of them. */
void item_fill_page(const model_item *item, const model_page *page, uint8_t *to);

#endif
