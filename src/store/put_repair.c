/*
 * put_repair.c - damaged pages: the put that names one copies it and writes it again.
 *
 * Invariants
 *   I1  A put does not become READY while a page that it lists is damaged: it claims the page, or,
 *       while a read is in flight on the page's slot or place, waits for that and claims it then.
 *   I2  What it needs beyond that (the stored history, known content) it has no bytes for: when
 *       such a page turns out to be damaged meanwhile, the put is refused; the next one lists it.
 *
 * Threads: under the store's lock.
 */
#include "base/assert.h"
#include "store/put_private.h"

void put_claim_page(store_put *put, store_page *page)
{
    if (page->place.segment != 0) {
        limbo_add_place(put->store, page->place, page->is_place_recorded);
        page->place = (page_place){0};
    }
    page_drop_slot(page);
    page->state = PAGE_COPYING;
    page->flash = FLASH_NONE;
    page->is_verified = false;
    page->owner = put;
}

void put_claim_damaged(store_put *put, store_page *page)
{
    KVARVE_ASSERT(page->is_damaged && page->owner == NULL && page->io_count == 0);
    put_claim_page(put, page);
    page->has_digest = false;
    put->store->has_repaired = true;
}

void put_await_repair(put_page *item)
{
    store_put *put = item->put;

    KVARVE_ASSERT(item->is_sealed && !item->is_to_repair);
    item->is_to_repair = true;
    put->repairs++;
    item->is_sealed = false;
    put->unsealed++;
    put->ranks[item->copier].unsealed++;
    if (item->is_written) {
        item->is_written = false;
        put->unwritten++;
        kvarve_list_append(&item->page->watchers, &item->watch);
    }
    put->store->soonest_deadline_ns = 0; /* put_settle_repairs looks at once */
}

bool put_has_damaged(store_put *put)
{
    if (put->store->damaged_pages == 0) {
        return false;
    }
    for (size_t i = 0; i < put->page_count; i++) {
        put_page *item = put->pages[i];

        if (item->page->is_damaged && item->is_sealed && !put_page_is_replaced(item)) {
            put_await_repair(item);
        }
    }
    return put->unsealed > 0;
}

bool put_is_spoilt(const store_put *put)
{
    uint32_t group = 0;
    bool is_spoilt = false;

    for (size_t i = 0; i < 2; i++) {
        const store_checkpoint *here = put->parts[i].checkpoint;

        is_spoilt = is_spoilt || (here != NULL && checkpoint_is_damaged(here, &group));
    }
    return is_spoilt;
}

/* One page that may be claimed now, or that somebody else has seen to. */
static void settle_repair(put_page *item)
{
    store_page *page = item->page;

    if (!item->is_sealed && page->is_damaged && page->owner == NULL) {
        if (page->io_count > 0) {
            return;
        }
        put_claim_damaged(item->put, page);
        put_take_over(item);
    }
    item->is_to_repair = false;
    item->put->repairs--;
}

/* True: some of the put's repairs are settled. */
static bool settle_repairs_of(store_put *put)
{
    const size_t before = put->repairs;

    for (size_t i = 0; i < put->page_count && put->repairs > 0 && !put_is_over(put); i++) {
        if (put->pages[i]->is_to_repair) {
            settle_repair(put->pages[i]);
        }
    }
    return put->repairs < before;
}

bool put_settle_repairs(store_machine *store)
{
    bool has_any = false;
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &store->puts) {
        has_any = settle_repairs_of(KVARVE_LIST_ITEM(link, store_put, link)) || has_any;
    }
    return has_any;
}
