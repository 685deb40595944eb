/*
 * put_page.c - the life of a page from a rank's copy to flash, and who follows it.
 *
 *   COPYING -> HASHING -> SEALED        in the arena; HASHING is skipped when the digest is known
 *   NONE -> WRITING -> WRITTEN          on flash; begins when the page is sealed
 *
 * Invariants
 *   I1  A page has at most one owner, the put whose ranks copy it; it loses the owner when it is
 * sealed. I2  While a put follows a page (watch), put.unsealed and put.unwritten count what the
 * page still owes it. I3  A job in flight holds its page and counts in io_count: neither slot nor
 * place is given away under it. A deadline abandons the put, never the job. I4  A page whose write
 * failed is damaged: it is not found until a put copies it again.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "store/put_private.h"

/* Sealed pages wait for this much company while digests are being taken, or while so many writes
 * are in flight: a thousand small puts at once are some ten writes, not a thousand. */
#define FLUSH_BYTES    (UINT64_C(4) << 20)
#define WRITES_AT_ONCE 4u

void put_watch(put_page *item)
{
    const store_page *page = item->page;

    item->is_sealed = page->state == PAGE_SEALED;
    item->is_written = item->is_sealed && page->flash == FLASH_WRITTEN;
    item->put->unsealed += !item->is_sealed;
    item->put->ranks[item->copier].unsealed += !item->is_sealed;
    item->put->unwritten += !item->is_written;
    if (!item->is_written) {
        kvarve_list_append(&item->page->watchers, &item->watch);
    }
}

void put_unwatch(put_page *item)
{
    kvarve_list_remove(&item->watch);
    item->put->unsealed -= !item->is_sealed;
    item->put->ranks[item->copier].unsealed -= !item->is_sealed;
    item->put->unwritten -= !item->is_written;
    item->is_sealed = true;
    item->is_written = true;
}

/* Tell everybody who follows the page; puts may advance, so the list is walked one step at a time.
 */
void put_page_changed(store_page *page)
{
    kvarve_list told;
    kvarve_link *link;

    page_hold(page);
    kvarve_list_init(&told);
    while ((link = kvarve_list_take_first(&page->watchers)) != NULL) {
        kvarve_list_append(&told, link);
    }
    while ((link = kvarve_list_take_first(&told)) != NULL) {
        put_page *item = KVARVE_LIST_ITEM(link, put_page, watch);
        store_put *put = item->put;

        if (!item->is_sealed && page->state == PAGE_SEALED) {
            item->is_sealed = true;
            put->unsealed--;
            put->ranks[item->copier].unsealed--;
        }
        if (item->is_sealed && page->flash == FLASH_WRITTEN) {
            item->is_written = true;
            put->unwritten--;
        } else {
            kvarve_list_append(&page->watchers, link);
        }
        if (page->is_damaged) {
            put_abort(put, KVARVE_REFUSED_IO);
        } else {
            put_advance(put);
        }
    }
    page_unhold(page);
}

/* --- writing --- */

typedef struct write_run {
    segment_request request;
    store_machine *store;
    segment_part *parts; /* context: the page */
} write_run;

static void finish_write(store_page *page, int result)
{
    KVARVE_ASSERT(page->io_count > 0);
    page->io_count--;
    if (result == 0) {
        page->flash = FLASH_WRITTEN;
    } else {
        page->flash = FLASH_NONE;
        page_mark_damaged(page); /* I4 */
    }
    room_page_resident(page);
    put_page_changed(page);
    page_unhold(page);
}

static void end_run(write_run *run)
{
    store_machine *store = run->store;

    store->writing--;
    for (size_t i = 0; i < run->request.part_count; i++) {
        finish_write(run->parts[i].context, run->parts[i].result);
    }
    kvarve_release(run->parts);
    kvarve_release(run);
    put_give_room(store);
    commit_start(store);
}

static void write_done(segment_request *request, void *context)
{
    write_run *run = context;
    store_machine *store = run->store;

    (void)request;
    end_run(run);
    put_flush(store);
}

static write_run *make_run(store_machine *store, size_t count)
{
    write_run *run = kvarve_allocate(sizeof *run);

    if (run == NULL) {
        return NULL;
    }
    run->store = store;
    run->parts = kvarve_allocate_array(count, sizeof(segment_part));
    if (run->parts == NULL) {
        kvarve_release(run);
        return NULL;
    }
    return run;
}

/* What the last 4 KiB block holds after the page's bytes would be another page's: clear it. */
static void clear_padding(const store_machine *store, const store_page *page)
{
    const uint64_t room = kvarve_round_up(page->size, KVARVE_IO_ALIGNMENT);

    memset((char *)arena_address(store->arena, page->slot) + page->size, 0, room - page->size);
}

static void fail_unflushed(store_machine *store)
{
    kvarve_link *link;

    while ((link = kvarve_list_take_first(&store->unflushed)) != NULL) {
        store_page *page = KVARVE_LIST_ITEM(link, store_page, lru);

        page->io_count++; /* finish_write's */
        finish_write(page, -1);
    }
    store->unflushed_bytes = 0;
}

/* Write all sealed pages that wait; not yet when there are few and more may come. */
void put_flush(store_machine *store)
{
    size_t count = 0;
    kvarve_link *link;
    write_run *run;

    if (kvarve_list_is_empty(&store->unflushed) ||
        ((store->hashing > 0 || store->writing >= WRITES_AT_ONCE) &&
         store->unflushed_bytes < FLUSH_BYTES)) {
        return;
    }
    KVARVE_LIST_FOREACH (link, &store->unflushed) {
        count++;
    }
    run = store->is_failed ? NULL : make_run(store, count);
    if (run == NULL) {
        fail_unflushed(store);
        return;
    }
    while ((link = kvarve_list_take_first(&store->unflushed)) != NULL) {
        store_page *page = KVARVE_LIST_ITEM(link, store_page, lru);

        clear_padding(store, page);
        run->parts[run->request.part_count++] =
            (segment_part){.place = page->place,
                           .bytes = arena_address(store->arena, page->slot),
                           .size = page->size,
                           .context = page};
        page->flash = FLASH_WRITING;
        page->io_count++; /* I3; the hold is page_seal's */
    }
    store->unflushed_bytes = 0;
    store->writing++;
    run->request.parts = run->parts;
    run->request.done = write_done;
    run->request.context = run;
    if (segment_write(store->segments, &run->request, NULL) != KVARVE_OK) {
        for (size_t i = 0; i < run->request.part_count; i++) {
            run->parts[i].result = -1;
        }
        end_run(run);
    }
}

/* --- sealing --- */

static void page_seal(store_page *page)
{
    store_machine *store = page->space->store;

    page->state = PAGE_SEALED;
    page->has_digest = true;
    page->is_verified = true;
    page->owner = NULL; /* I1 */
    page_clear_damaged(page);
    arena_seal(store->arena, page->slot);
    page_hold(page); /* until finish_write */
    kvarve_list_append(&store->unflushed, &page->lru);
    store->unflushed_bytes += page->size;
    put_page_changed(page);
}

typedef struct hash_job {
    kvarve_job job;
    store_page *page;
    const void *bytes;
    uint32_t size;
    page_digest digest;
} hash_job;

static void run_hash(kvarve_job *job)
{
    hash_job *hash = KVARVE_LIST_ITEM(job, hash_job, job);

    hash->digest = page_digest_of(hash->bytes, hash->size);
}

static void hand_over(store_page *page, const store_put *not_this);

/* The filled bytes are not those that were announced: the put that copied them can not be trusted.
 */
static void reject_page(store_page *page)
{
    store_put *owner = page->owner;

    page->state = PAGE_COPYING;
    if (owner != NULL) {
        put_abort(owner, KVARVE_REFUSED_RANK_FAILED);
    } else { /* it is gone already */
        hand_over(page, NULL);
    }
}

static void accept_digest(store_page *page, const page_digest *digest)
{
    if (page->space->is_exact && !page_digest_is_equal(&page->digest, digest)) {
        reject_page(page);
        return;
    }
    page->digest = *digest;
    page_seal(page);
}

static void hash_done(kvarve_job *job)
{
    hash_job *hash = KVARVE_LIST_ITEM(job, hash_job, job);
    store_page *page = hash->page;
    store_machine *store = page->space->store;

    KVARVE_ASSERT(page->state == PAGE_HASHING);
    page->io_count--;
    store->hashing--;
    accept_digest(page, &hash->digest);
    page_unhold(page);
    kvarve_release(hash);
    put_flush(store);
    put_give_room(store);
}

void page_filled(store_page *page, const page_digest *digest)
{
    store_machine *store = page->space->store;
    hash_job *hash;

    KVARVE_ASSERT(page->state == PAGE_COPYING && page->slot != ARENA_NONE);
    if (digest != NULL) {
        accept_digest(page, digest);
        return;
    }
    hash = kvarve_allocate(sizeof *hash);
    if (hash == NULL) {
        reject_page(page);
        return;
    }
    if (arena_state(store->arena, page->slot) == SLOT_RESERVED) {
        arena_fill(store->arena, page->slot);
    }
    page->state = PAGE_HASHING;
    page->io_count++;
    page_hold(page);
    store->hashing++;
    hash->page = page;
    hash->bytes = arena_address(store->arena, page->slot);
    hash->size = page->size;
    hash->job.lane = KVARVE_LANE_COPY;
    hash->job.run = run_hash;
    hash->job.done = hash_done;
    store->env.executor->submit(store->env.executor, &hash->job);
}

/* --- giving up --- */

/* A slot that a rank of `put` may still be copying into: kept until no copy runs, and until a rank
 * that was given its address is done. */
static void keep_orphan(store_put *put, const put_page *item)
{
    orphan_slot *orphan = kvarve_allocate(sizeof *orphan);

    if (orphan != NULL) {
        orphan->slot = item->page->slot;
        orphan->copier = item->copier;
        orphan->is_exposed = item->is_exposed;
        kvarve_list_append(&put->orphans, &orphan->link);
    } /* without memory the slot stays reserved until the store is closed: safe */
}

static put_page *next_waiter(const store_page *page, const store_put *not_this)
{
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &page->watchers) {
        put_page *item = KVARVE_LIST_ITEM(link, put_page, watch);

        if (item->put != not_this && item->put->state != KVARVE_PUT_ABORTED) {
            return item;
        }
    }
    return NULL;
}

/* The oldest put that waits for the page copies it from now on; without one nobody does. */
static void hand_over(store_page *page, const store_put *not_this)
{
    put_page *waiter = next_waiter(page, not_this);

    page->owner = waiter == NULL ? NULL : waiter->put;
    page->has_digest = false;
    if (waiter != NULL) {
        put_take_over(waiter);
        return;
    }
    page_drop_slot(page); /* a page that others name stays, damaged, but keeps no room */
    if (page->place.segment != 0 && !page->is_place_recorded) {
        limbo_add_place(page->space->store, page->place, false);
        page->place = (page_place){0};
    }
}

void put_abandon_page(put_page *item)
{
    store_page *page = item->page;
    store_put *put = item->put;

    if (page->owner != put) {
        return;
    }
    if (page->state == PAGE_HASHING) {
        page->owner = NULL; /* its bytes are complete: the digest decides, without this put */
        return;
    }
    if (page->state != PAGE_COPYING) {
        return;
    }
    if ((put->copies > 0 || (item->is_exposed && !put->is_released)) && page->slot != ARENA_NONE) {
        keep_orphan(put, item);
        page->slot = ARENA_NONE;
    }
    hand_over(page, put);
}
