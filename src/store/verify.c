/*
 * verify.c - the scrub: every page on flash is read and checked, then the index.
 *
 *   NEXT -> READING -> DIGESTING -> NEXT ...        one window of pages at a time
 *   NEXT -> INDEX -> OVER        when no page is left
 *   NEXT -> OVER                 when the store shuts down
 *
 * A run notes hash and place of each page and no more, so that what is dropped meanwhile gives its
 * space back; only the pages of the window that is being read are held.
 *
 * Invariants
 *   I1  A page is judged only by bytes that were its own for the whole read: it still has the place
 *       and the id that it had when the read began. Else a put has written it again.
 *   I2  A page that is damaged already is not read, and counts as damaged.
 *   I3  The jobs of a run touch its buffer, its slots and nothing else.
 *   I4  After a rebuild no damaged checkpoint is left when the store stops opening, unless it is in
 *       use.
 *
 * Threads: under the store's lock; the jobs as I3. Ownership: store.verify is the run, freed after
 * its result was taken or by verify_abandon. A page larger than the window has a buffer of its
 * size. Absent: repair from the arena; a put of the same content repairs.
 */
#include "store/admin_private.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"

#define WINDOW_BYTES (UINT64_C(8) << 20)
#define WINDOW_PAGES (WINDOW_BYTES / KVARVE_IO_ALIGNMENT)

typedef enum verify_phase {
    VERIFY_NEXT,
    VERIFY_READING,
    VERIFY_DIGESTING,
    VERIFY_INDEX,
    VERIFY_OVER,
} verify_phase;

/* A page that is to be checked; found again by these. */
typedef struct verify_item {
    uint64_t hash; /* page.link's */
    page_place place;
} verify_item;

/* A page of the window that is being read. */
typedef struct verify_slot {
    store_page *page; /* held */
    page_place place;
    uint64_t id;
    page_digest digest; /* what the bytes must have */
    bool is_right;      /* the digest job's answer */
} verify_slot;

struct verify_run {
    store_machine *store;
    verify_phase phase;
    bool is_taken; /* its result was asked for when it was over */
    kvarve_verify_result result;
    verify_item *items; /* sorted by place */
    size_t item_count;
    size_t next;
    char *memory; /* the buffer and what aligns it */
    char *buffer;
    uint64_t buffer_bytes;
    verify_slot *slots;
    segment_part *parts; /* context: the slot */
    segment_request request;
    kvarve_job job; /* digests, then the index */
    kvarve_status index_status;
};

static bool is_on_flash(const store_page *page)
{
    return page->state == PAGE_SEALED && page->flash == FLASH_WRITTEN && page->place.segment != 0;
}

static bool is_same_place(page_place a, page_place b)
{
    return a.segment == b.segment && a.slot == b.slot;
}

static uint64_t room_of(const store_page *page)
{
    return kvarve_round_up(page->size, KVARVE_IO_ALIGNMENT);
}

/* --- begin and end --- */

static void release_work(verify_run *run)
{
    kvarve_release(run->items);
    kvarve_release(run->memory);
    kvarve_release(run->slots);
    kvarve_release(run->parts);
    run->items = NULL;
    run->memory = NULL;
    run->slots = NULL;
    run->parts = NULL;
}

void verify_abandon(store_machine *store)
{
    if (store->verify != NULL) {
        release_work(store->verify);
        kvarve_release(store->verify);
        store->verify = NULL;
    }
}

static int compare_places(const void *a, const void *b)
{
    const page_place x = ((const verify_item *)a)->place;
    const page_place y = ((const verify_item *)b)->place;

    if (x.segment != y.segment) {
        return x.segment < y.segment ? -1 : 1;
    }
    return (x.slot > y.slot) - (x.slot < y.slot);
}

/* The pages on flash. */
typedef struct collection {
    verify_item *items; /* NULL: they are counted only */
    size_t count;
    uint64_t largest; /* room of one */
    uint64_t bytes;   /* of all */
} collection;

static void collect_page(collection *all, const store_page *found)
{
    uint64_t room; /* also of what may come into its slot meanwhile */

    if (!is_on_flash(found)) {
        return;
    }
    if (all->items != NULL) {
        all->items[all->count] = (verify_item){.hash = found->link.hash, .place = found->place};
    }
    room = segment_slot_bytes_of(found->space->store->segments, found->place);
    all->largest = kvarve_max_u64(all->largest, room);
    all->bytes += room;
    all->count++;
}

static collection collect(const store_machine *store, verify_item *items)
{
    collection all = {.items = items};

    for (size_t i = 0; i < store->pages.bucket_count; i++) {
        for (kvarve_table_link *link = store->pages.buckets[i]; link != NULL; link = link->next) {
            collect_page(&all, KVARVE_TABLE_ITEM(link, store_page, link));
        }
    }
    return all;
}

static bool take_memory(verify_run *run)
{
    const collection counted = collect(run->store, NULL);

    run->item_count = counted.count;
    run->buffer_bytes =
        kvarve_max_u64(counted.largest, kvarve_min_u64(WINDOW_BYTES, counted.bytes));
    run->items = kvarve_allocate_array(run->item_count + 1, sizeof *run->items);
    run->memory = kvarve_allocate(run->buffer_bytes + KVARVE_IO_ALIGNMENT);
    run->slots = kvarve_allocate_array(WINDOW_PAGES, sizeof *run->slots);
    run->parts = kvarve_allocate_array(WINDOW_PAGES, sizeof *run->parts);
    if (run->items == NULL || run->memory == NULL || run->slots == NULL || run->parts == NULL) {
        return false;
    }
    run->buffer =
        run->memory + (KVARVE_IO_ALIGNMENT - (uintptr_t)run->memory % KVARVE_IO_ALIGNMENT);
    (void)collect(run->store, run->items);
    qsort(run->items, run->item_count, sizeof *run->items, compare_places);
    run->result.pages_total = run->item_count;
    return true;
}

/* --- a window --- */

/* The page that was noted, if it still is where it was. */
static store_page *find_item(const store_machine *store, const verify_item *item)
{
    kvarve_table_link *link = table_first(&store->pages, item->hash);

    for (; link != NULL; link = table_next(link)) {
        store_page *found = KVARVE_TABLE_ITEM(link, store_page, link);

        if (is_on_flash(found) && is_same_place(found->place, item->place)) {
            return found;
        }
    }
    return NULL;
}

static void add_slot(verify_run *run, store_page *page, uint64_t offset)
{
    verify_slot *slot = &run->slots[run->request.part_count];

    *slot =
        (verify_slot){.page = page, .place = page->place, .id = page->id, .digest = page->digest};
    page_hold(page);
    run->parts[run->request.part_count++] = (segment_part){
        .place = page->place, .bytes = run->buffer + offset, .size = page->size, .context = slot};
}

/* Fill the window with the next pages. */
static void fill_window(verify_run *run)
{
    uint64_t used = 0;

    run->request.part_count = 0;
    for (; run->next < run->item_count && run->request.part_count < WINDOW_PAGES; run->next++) {
        store_page *page = find_item(run->store, &run->items[run->next]);

        if (page == NULL) {
            run->result.pages_total--; /* gone, or written anew since */
        } else if (page->is_damaged) { /* I2 */
            run->result.pages_checked++;
            run->result.pages_damaged++;
        } else if (used > 0 && used + room_of(page) > run->buffer_bytes) {
            return;
        } else {
            add_slot(run, page, used);
            used += room_of(page);
        }
    }
}

/* Like everybody who finds a page damaged: what the arena has of it is not to be trusted either. */
static void mark_damaged(store_machine *store, store_page *page)
{
    page_mark_damaged(page);
    if (page->slot != ARENA_NONE && page->io_count == 0 &&
        arena_pins(store->arena, page->slot) == 0) {
        page_drop_slot(page);
    }
}

static void settle_slot(verify_run *run, const verify_slot *slot)
{
    store_page *page = slot->page;
    const bool is_same = is_on_flash(page) && is_same_place(page->place, slot->place) &&
                         page->id == slot->id; /* I1 */

    if (!slot->is_right && !is_same) {
        run->result.pages_total--;
    } else {
        run->result.pages_checked++;
        run->result.bytes_checked += page->size;
    }
    if (!slot->is_right && is_same) {
        run->result.pages_damaged++;
        mark_damaged(run->store, page);
    }
}

/* Let go of the window's pages, judged or not. What was dropped meanwhile goes now. */
static void empty_window(verify_run *run, bool is_judged)
{
    const size_t before = run->store->limbo_count;

    for (size_t i = 0; i < run->request.part_count; i++) {
        verify_slot *slot = &run->slots[i];

        if (is_judged) {
            settle_slot(run, slot);
        }
        page_unhold(slot->page);
    }
    run->request.part_count = 0;
    run->phase = VERIFY_NEXT;
    if (run->store->limbo_count > before) {
        run->store->wants_transaction = true;
    }
}

/* --- jobs --- */

static void submit(verify_run *run, kvarve_lane lane, void (*work)(kvarve_job *job),
                   void (*done)(kvarve_job *job))
{
    kvarve_executor *executor = run->store->env.executor;

    run->job = (kvarve_job){.lane = lane, .run = work, .done = done};
    executor->submit(executor, &run->job);
}

static void digest_window(kvarve_job *job)
{
    verify_run *run = KVARVE_LIST_ITEM(job, verify_run, job);

    for (size_t i = 0; i < run->request.part_count; i++) {
        const segment_part *part = &run->parts[i];
        verify_slot *slot = part->context;
        page_digest digest;

        if (part->result == 0) {
            digest = page_digest_of(part->bytes, part->size);
            slot->is_right = page_digest_is_equal(&digest, &slot->digest);
        }
    }
}

static void check_index(kvarve_job *job)
{
    verify_run *run = KVARVE_LIST_ITEM(job, verify_run, job);

    run->index_status = index_verify(run->store->index, NULL);
}

static void advance(verify_run *run);

static void digest_done(kvarve_job *job)
{
    verify_run *run = KVARVE_LIST_ITEM(job, verify_run, job);

    empty_window(run, true);
    advance(run);
}

static void read_done(segment_request *request, void *context)
{
    verify_run *run = context;

    (void)request; /* each part has its result */
    run->phase = VERIFY_DIGESTING;
    submit(run, KVARVE_LANE_COPY, digest_window, digest_done);
}

/* Drop what can not be restored, after a rebuild. */
static void drop_damaged(store_machine *store)
{
    kvarve_link *link = store->recency.next;

    while (link != &store->recency) {
        store_checkpoint *found = KVARVE_LIST_ITEM(link, store_checkpoint, lru);
        uint32_t group = 0;

        link = link->next;
        if (!checkpoint_is_damaged(found, &group) || !checkpoint_may_go(found)) {
            continue;
        }
        if (!found->is_companion && found->companion != NULL && link == &found->companion->lru) {
            link = link->next; /* it goes along */
        }
        (void)checkpoint_let_go(store, found); /* without memory it stays, damaged and not found */
        store->wants_transaction = true;
    }
}

static uint64_t count_lost(const store_machine *store)
{
    kvarve_link *link;
    uint64_t count = 0;
    uint32_t group = 0;

    if (store->damaged_pages == 0) {
        return 0;
    }
    KVARVE_LIST_FOREACH (link, &store->recency) {
        count += checkpoint_is_damaged(KVARVE_LIST_ITEM(link, const store_checkpoint, lru), &group);
    }
    return count;
}

static void finish(verify_run *run)
{
    store_machine *store = run->store;

    run->result.checkpoints_lost = count_lost(store);
    run->phase = VERIFY_OVER;
    release_work(run);
    if (store->is_opening) { /* I4 */
        drop_damaged(store);
        store->wants_transaction = true;
        store->is_rebuilt = true; /* rebuild_mark.c goes on */
        commit_start(store);
    }
}

static void index_done(kvarve_job *job)
{
    verify_run *run = KVARVE_LIST_ITEM(job, verify_run, job);

    run->result.is_index_damaged = run->index_status != KVARVE_OK;
    finish(run);
}

/* Submit what comes next. */
static void advance(verify_run *run)
{
    store_machine *store = run->store;

    while (run->phase == VERIFY_NEXT && !store->is_shutting_down && run->next < run->item_count) {
        fill_window(run);
        if (run->request.part_count == 0) {
            continue;
        }
        run->phase = VERIFY_READING;
        if (segment_read(store->segments, &run->request, NULL) != KVARVE_OK) {
            empty_window(run, false); /* no memory: pages_checked stays below pages_total */
        }
    }
    if (run->phase != VERIFY_NEXT) {
        return;
    }
    if (store->is_shutting_down || store->index == NULL) {
        finish(run);
        return;
    }
    run->phase = VERIFY_INDEX;
    submit(run, KVARVE_LANE_INDEX, check_index, index_done);
}

kvarve_status store_verify_begin(store_machine *store, kvarve_error *err)
{
    verify_run *run;

    if (store->verify != NULL && store->verify->phase != VERIFY_OVER) {
        return KVARVE_BUSY;
    }
    verify_abandon(store);
    run = kvarve_allocate(sizeof *run);
    if (run == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "verify");
    }
    store->verify = run;
    run->store = store;
    if (!take_memory(run)) {
        kvarve_status status = kvarve_fail(err, KVARVE_NO_MEMORY, "verify: %zu pages, %llu bytes",
                                           run->item_count, (unsigned long long)run->buffer_bytes);

        verify_abandon(store);
        return status;
    }
    run->request = (segment_request){.parts = run->parts, .done = read_done, .context = run};
    advance(run);
    return KVARVE_OK;
}

bool store_verify_progress(const store_machine *store, kvarve_verify_result *out)
{
    verify_run *run = store->verify;

    if (run == NULL || run->is_taken) {
        *out = (kvarve_verify_result){0};
        return true;
    }
    *out = run->result;
    run->is_taken = run->phase == VERIFY_OVER;
    return run->is_taken;
}

/* A run goes on by its own completions; what is left is to clear away what was asked for. */
void verify_poll(store_machine *store)
{
    if (store->verify != NULL && store->verify->is_taken) {
        verify_abandon(store);
    }
}
