/*
 * lease_pages.c - the pages that a lease is on, sorted so that a reader finds its own.
 *
 * Invariant: what is listed was fixed when the lease was made, so it is listed once, when it is
 * first needed, and never changes.
 *
 * Threads: under the store's lock.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/fail.h"
#include "store/lease_private.h"

static size_t count_pages(const store_checkpoint *checkpoint, const store_span *last)
{
    size_t count = checkpoint == NULL ? 0 : checkpoint->page_count;

    for (; last != NULL; last = last->parent) {
        count += last->page_count;
    }
    return count;
}

static uint64_t position_of(const store_page *page)
{
    const kvarve_group *group = &page->space->groups[page->group];

    return group->page_class <= KVARVE_CLASS_WINDOW ? (page->tokens - 1u) / group->span_tokens
                                                    : page->part;
}

static void list_page(store_lease *lease, store_page *page, uint32_t space_index)
{
    lease_page *item = &lease->pages[lease->page_count++];

    item->page = page;
    item->lease = lease;
    item->position = position_of(page);
    item->group = lease->name->public_of[space_index][page->group];
    kvarve_list_init(&item->watch);
}

static int compare_pages(const void *a, const void *b)
{
    const lease_page *x = a;
    const lease_page *y = b;

    if (x->page->rank != y->page->rank) {
        return x->page->rank < y->page->rank ? -1 : 1;
    }
    if (x->group != y->group) {
        return x->group < y->group ? -1 : 1;
    }
    return (x->position > y->position) - (x->position < y->position);
}

/* The pages of the checkpoint and spans of one space. */
static void list_half(store_lease *lease, uint32_t half)
{
    const store_checkpoint *checkpoint = half == 0 ? lease->checkpoint : lease->companion;

    for (const store_span *at = lease->spans[half]; at != NULL; at = at->parent) {
        for (uint32_t i = 0; i < at->page_count; i++) {
            list_page(lease, at->pages[i], half);
        }
    }
    for (uint32_t i = 0; checkpoint != NULL && i < checkpoint->page_count; i++) {
        list_page(lease, checkpoint->pages[i], half);
    }
}

kvarve_status lease_list_pages(store_lease *lease, kvarve_error *err)
{
    const size_t count = count_pages(lease->checkpoint, lease->spans[0]) +
                         count_pages(lease->companion, lease->spans[1]);

    if (lease->is_listed) {
        return KVARVE_OK;
    }
    lease->pages = kvarve_allocate_array(count + 1, sizeof *lease->pages);
    if (lease->pages == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "lease: a list of %zu pages", count);
    }
    list_half(lease, 0);
    list_half(lease, 1);
    KVARVE_ASSERT(lease->page_count == count);
    qsort(lease->pages, count, sizeof *lease->pages, compare_pages);
    for (size_t i = 0; i < count; i++) {
        kvarve_list_init(&lease->pages[i].watch); /* sorting moved the links */
    }
    lease->is_listed = true;
    return KVARVE_OK;
}

lease_page *lease_find_page(const store_lease *lease, uint32_t rank, uint32_t group,
                            uint64_t position)
{
    const uint32_t space_index = lease->name->space_of[group];
    const uint32_t local = lease->name->local_of[group];
    const bool is_replicated =
        (lease->name->spaces[space_index]->groups[local].flags & KVARVE_GROUP_REPLICATED) != 0;
    const uint16_t wanted = is_replicated ? RANK_ALL : (uint16_t)rank;
    size_t low = 0;
    size_t high = lease->page_count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const lease_page *item = &lease->pages[middle];
        const bool is_before = item->page->rank != wanted ? item->page->rank < wanted
                               : item->group != group     ? item->group < group
                                                          : item->position < position;

        if (is_before) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low < lease->page_count && lease->pages[low].page->rank == wanted &&
        lease->pages[low].group == group && lease->pages[low].position == position) {
        return &lease->pages[low];
    }
    return NULL;
}
