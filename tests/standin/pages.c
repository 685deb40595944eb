/*
 * pages.c - gather and scatter, row by row or block by block.
 *
 * Written from docs/format/pages.md, apart from src/transfer: what one of them stores, the other
 * must be able to restore. No state.
 */
#include "standin/pages.h"

#include <string.h>

static bool has_rows(const standin_group *group)
{
    return (group->flags & KVARVE_GROUP_ROWS) != 0;
}

size_t page_bytes(const standin_memory *memory, const standin_page *page)
{
    const standin_group *group = &memory->shape->groups[page->group];
    const size_t full = group_page_bytes(memory->shape, group);

    return has_rows(group) ? full / group->span_tokens * page->tokens : full;
}

/* A page's bytes in one direction: written to `out`, or read from `in`. */
typedef struct page_cursor {
    uint8_t *out; /* NULL: scatter */
    const uint8_t *in;
} page_cursor;

static void move(page_cursor *at, uint8_t *memory, size_t size)
{
    if (at->out != NULL) {
        memcpy(at->out, memory, size);
        at->out += size;
    } else {
        memcpy(memory, at->in, size);
        at->in += size;
    }
}

static void move_rows(const standin_memory *memory, const standin_table *table,
                      const standin_page *page, page_cursor *at)
{
    const standin_group *group = &memory->shape->groups[page->group];
    const uint64_t end = page->first_token + page->tokens;

    for (uint32_t i = 0; i < group->layers * group->runs; i++) {
        for (uint64_t token = page->first_token; token < end; token++) {
            move(at,
                 memory_row(memory, page->group, table, i / group->runs, i % group->runs, token),
                 group->row_bytes);
        }
    }
}

static void move_block(const standin_memory *memory, const standin_table *table,
                       const standin_page *page, page_cursor *at)
{
    const standin_group *group = &memory->shape->groups[page->group];
    const size_t size = group_block_bytes(memory->shape, group);
    const uint64_t block =
        group_is_state(group) ? 0 : (page->first_token - table->first_token) / group->block_tokens;

    for (uint32_t layer = 0; layer < group->layers; layer++) {
        move(at, memory_block(memory, page->group, layer, table->ids[block]), size);
    }
}

static void move_page(const standin_memory *memory, const standin_table *table,
                      const standin_page *page, page_cursor at)
{
    if (has_rows(&memory->shape->groups[page->group])) {
        move_rows(memory, table, page, &at);
    } else {
        move_block(memory, table, page, &at);
    }
}

void page_gather(const standin_memory *memory, const standin_table *table, const standin_page *page,
                 void *out)
{
    move_page(memory, table, page, (page_cursor){.out = out});
}

void page_scatter(const standin_memory *memory, const standin_table *table,
                  const standin_page *page, const void *bytes)
{
    move_page(memory, table, page, (page_cursor){.in = bytes});
}
