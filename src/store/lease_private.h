/* lease_private.h - what lease.c and lease_pages.c share: a lease, and the pages that it is on. */
#ifndef KVARVE_STORE_LEASE_PRIVATE_H
#define KVARVE_STORE_LEASE_PRIVATE_H

#include "store/store_private.h"

typedef struct lease_page {
    store_page *page;
    store_lease *lease;
    kvarve_link watch; /* page.loaders while its read is awaited */
    uint64_t position;
    uint32_t group;  /* as the caller numbers them */
    arena_slot slot; /* what is pinned, also when the page has another one by now */
    bool is_pinned;  /* for this lease */
    bool is_awaited;
} lease_page;

struct store_lease {
    kvarve_link link; /* store.leases */
    store_machine *store;
    store_namespace *name;
    store_checkpoint *checkpoint;
    store_checkpoint *companion;
    store_span *spans[2];
    kvarve_boundary boundary;
    uint64_t cookie;
    uint64_t deadline_ns;
    uint64_t started_ns;
    store_lease_state state;
    kvarve_miss miss;
    lease_page *pages; /* sorted by rank, group, position; made when first needed */
    size_t page_count;
    size_t next_read; /* pages before this one were submitted */
    size_t awaited;
    uint32_t restarts;
    size_t readers; /* store_lease_page_begin without end, and direct reads */
    bool is_released;
    bool is_listed;
};

/* lease.c */
KVARVE_NODISCARD kvarve_status lease_check_group(const store_lease *lease, uint32_t rank,
                                                 uint32_t group, kvarve_error *err);
/* Bytes that were read for it are not what they must be: it is over. */
void lease_fail(store_lease *lease, uint32_t reason, uint32_t group);
/* One reader less; the last one of a released lease frees it. */
void lease_reader_left(store_lease *lease);

/* lease_pages.c */
/* Make lease->pages, once. KVARVE_NO_MEMORY: it stays unlisted. */
kvarve_status lease_list_pages(store_lease *lease, kvarve_error *err);
/* A listed page, by group as the caller numbers it; NULL: there is none. */
lease_page *lease_find_page(const store_lease *lease, uint32_t rank, uint32_t group,
                            uint64_t position);

#endif
