/*
 * pages.h - the engine's own copies between its blocks and pages, for a store that is used without
 * registered regions: the same bytes as kvarve_put_copy makes (docs/format/pages.md).
 *
 * Threads    of the rank whose memory it is.
 */
#ifndef KVARVE_STANDIN_PAGES_H
#define KVARVE_STANDIN_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "standin/memory.h"

/* A page of a group: tokens [first_token, first_token + tokens); a state's has none. */
typedef struct standin_page {
    uint32_t group;
    uint64_t first_token;
    uint32_t tokens;
} standin_page;

size_t page_bytes(const standin_memory *memory, const standin_page *page);
void page_gather(const standin_memory *memory, const standin_table *table, const standin_page *page,
                 void *out);
void page_scatter(const standin_memory *memory, const standin_table *table,
                  const standin_page *page, const void *bytes);

#endif
