/*
 * put_room.c - room for a put's pages in the arena and on flash: all of it, or none.
 *
 * Invariants
 *   I1  Until STAGED nothing but claims on pages exists; room for all of them is reserved at once,
 *       or not at all.
 *   I2  A put waits for pages of older puts only: a younger one is not given room while an older
 *       one waits for it.
 *
 * Threads: under the store's lock.
 */
#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "store/put_private.h"

static uint32_t slot_class(const store_page *page)
{
    const kvarve_group *group = &page->space->groups[page->group];
    const uint32_t whole = segment_slot_bytes(group->page_bytes);
    uint32_t bytes = KVARVE_IO_ALIGNMENT;

    if ((group->flags & KVARVE_GROUP_VARIABLE) == 0) {
        return whole;
    }
    while (bytes < page->size) {
        bytes *= 2;
    }
    return (uint32_t)kvarve_min_u64(bytes, whole);
}

static bool needs_room(const store_put *put, const put_page *item)
{
    return item->page->owner == put && item->page->state == PAGE_COPYING &&
           item->page->slot == ARENA_NONE;
}

static void give_room_back(store_put *put, size_t before)
{
    for (size_t i = 0; i < before; i++) {
        store_page *page = put->pages[i]->page;

        if (page->owner != put || page->state != PAGE_COPYING || !put->pages[i]->is_new_room) {
            continue;
        }
        put->pages[i]->is_new_room = false;
        if (page->slot != ARENA_NONE) {
            (void)arena_drop(put->store->arena, page->slot);
            page->slot = ARENA_NONE;
        }
        if (page->place.segment != 0) {
            segment_free(put->store->segments, page->place);
            page->place = (page_place){0};
        }
    }
}

static room_answer take_slots(store_put *put)
{
    store_machine *store = put->store;

    for (size_t i = 0; i < put->page_count; i++) {
        put_page *item = put->pages[i];
        kvarve_status status;

        if (!needs_room(put, item)) {
            continue;
        }
        do {
            status = arena_reserve(store->arena, item->page->size, &item->page->slot);
        } while (status == KVARVE_BUSY && room_evict_ram(store));
        if (status != KVARVE_OK) {
            item->page->slot = ARENA_NONE;
            return status == KVARVE_NO_SPACE ? ROOM_NEVER : ROOM_WAIT;
        }
        item->is_new_room = true;
    }
    return ROOM_YES;
}

static bool needs_place(const store_put *put, const put_page *item, uint32_t slot_bytes)
{
    return item->page->owner == put && item->page->state == PAGE_COPYING &&
           item->page->place.segment == 0 &&
           (slot_bytes == 0 || slot_class(item->page) == slot_bytes);
}

/* Places for all pages of one slot class. */
static room_answer take_class(store_put *put, uint32_t slot_bytes)
{
    size_t count = 0;
    size_t used = 0;
    page_place *places;
    room_answer answer;

    for (size_t i = 0; i < put->page_count; i++) {
        count += needs_place(put, put->pages[i], slot_bytes);
    }
    places = kvarve_allocate_array(count, sizeof *places);
    if (places == NULL) {
        return ROOM_WAIT;
    }
    answer = room_on_flash(put->store, slot_bytes, count, places);
    for (size_t i = 0; i < put->page_count && answer == ROOM_YES; i++) {
        if (needs_place(put, put->pages[i], slot_bytes)) {
            put->pages[i]->page->place = places[used++];
            put->pages[i]->page->id = 0;
            put->pages[i]->page->is_place_recorded = false;
            put->pages[i]->is_new_room = true;
        }
    }
    kvarve_release(places);
    return answer;
}

/* Could flash ever hold this put's pages, of all classes together? Asked before anything is
 * evicted for one of them. */
static bool could_fit_flash(const store_put *put)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < put->page_count; i++) {
        if (needs_place(put, put->pages[i], 0)) {
            bytes += slot_class(put->pages[i]->page);
        }
    }
    return bytes == 0 || room_could_hold(put->store, bytes);
}

static room_answer take_places(store_put *put)
{
    room_answer answer = could_fit_flash(put) ? ROOM_YES : ROOM_NEVER;

    for (size_t i = 0; i < put->page_count && answer == ROOM_YES; i++) {
        if (needs_place(put, put->pages[i], 0)) {
            answer = take_class(put, slot_class(put->pages[i]->page));
        }
    }
    return answer;
}

/* Could the arena ever hold what this put copies at once? */
static bool could_fit(const store_put *put)
{
    uint32_t *sizes =
        put->page_count == 0 ? NULL : kvarve_allocate_array(put->page_count, sizeof *sizes);
    size_t count = 0;
    bool fits;

    if (sizes == NULL) {
        return true; /* the reservation will tell */
    }
    for (size_t i = 0; i < put->page_count; i++) {
        if (needs_room(put, put->pages[i])) {
            sizes[count++] = put->pages[i]->page->size;
        }
    }
    fits = count == 0 || arena_could_hold(put->store->arena, sizes, count);
    kvarve_release(sizes);
    return fits;
}

static room_answer reserve_all(store_put *put, uint8_t *out_refusal)
{
    room_answer answer;

    *out_refusal = KVARVE_REFUSED_TOO_LARGE;
    if (!could_fit(put)) {
        return ROOM_NEVER;
    }
    answer = take_slots(put);
    if (answer == ROOM_YES) {
        *out_refusal = KVARVE_REFUSED_NO_ROOM_FLASH;
        answer = take_places(put);
    }
    if (answer == ROOM_FAILED) {
        *out_refusal = KVARVE_REFUSED_IO;
    }
    if (answer != ROOM_YES) {
        give_room_back(put, put->page_count);
    }
    for (size_t i = 0; i < put->page_count; i++) {
        put->pages[i]->is_new_room = false;
    }
    return answer;
}

/* One attempt. True when the put needs no (more) waiting: it is STAGED, or aborted. */
static bool try_room(store_put *put)
{
    uint8_t refusal;
    const room_answer answer = reserve_all(put, &refusal);

    if (answer == ROOM_WAIT) {
        return false;
    }
    kvarve_list_remove(&put->queue);
    if (answer != ROOM_YES) {
        put_abort(put, refusal);
        return true;
    }
    put->state = KVARVE_PUT_STAGED;
    return true;
}

/* I2: in order of age, and no further than the first that must wait. */
static void serve_waiting_room(store_machine *store)
{
    store->is_giving_room = true;
    while (!kvarve_list_is_empty(&store->waiting_room)) {
        store_put *put = KVARVE_LIST_ITEM(store->waiting_room.next, store_put, queue);

        if (!try_room(put)) {
            break;
        }
        if (put->state == KVARVE_PUT_STAGED) {
            put_emit(put, KVARVE_EVENT_STAGED, 0, KVARVE_OK);
            put_advance(put);
        }
    }
    store->is_giving_room = false;
}

/* Puts, then loads, which wait for room as well. */
void put_give_room(store_machine *store)
{
    if (store->is_giving_room) {
        return;
    }
    do {
        serve_waiting_room(store);
    } while (lease_settle_all(store));
}

static void enter_waiting_room(store_put *put)
{
    kvarve_link *at = put->store->waiting_room.previous;

    while (at != &put->store->waiting_room &&
           KVARVE_LIST_ITEM(at, store_put, queue)->number > put->number) {
        at = at->previous;
    }
    kvarve_list_remove(&put->queue);
    kvarve_list_append(at->next, &put->queue); /* after `at` */
    put->state = KVARVE_PUT_WAITING;
}

/* Stage what was listed, now or later. */
void put_stage(store_put *put)
{
    if (!kvarve_list_is_empty(&put->store->waiting_room) || !try_room(put)) {
        enter_waiting_room(put);
        commit_start(put->store); /* evictions want their transaction */
    }
}

void put_take_over(put_page *item)
{
    store_put *put = item->put;
    rank_state *rank = &put->ranks[item->copier];

    if (rank->is_acked) {
        rank->is_acked = false;
        put->acked_count--;
    }
    if (item->page->slot == ARENA_NONE && put->state == KVARVE_PUT_STAGED) {
        enter_waiting_room(put);
    }
    put_emit(put, KVARVE_EVENT_COPY_REQUESTED, item->copier, KVARVE_OK);
}
