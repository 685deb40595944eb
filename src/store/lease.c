/*
 * lease.c - the right to read a boundary's pages, and bringing them to the arena.
 *
 *   SOFT -> LOADING -> LOADED
 *                   -> FAILED     a page is damaged, no room before the deadline, a read failed
 *
 * Invariants
 *   I1  A lease holds its checkpoint (leases), its last span and its own pages: none of them is
 * dropped. I2  A loaded lease pins every page's slot until it is released. I3  A page is handed out
 * sealed. Whether its bytes are right is decided by its digest, by whoever reads it, before they
 * count. I4  A deadline ends the lease's wait, never the read: the slot stays taken until the job
 * is done. I5  A page that a reader of a soft lease waits for is pinned when it comes, until it was
 * read: else whoever waits for room would take it away again, and again.
 */
#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"
#include "store/find_private.h"
#include "store/lease_private.h"

#define READS_IN_FLIGHT_BYTES                                                                      \
    (UINT64_C(64) << 20) /* of one lease: further reads wait for earlier ones */

#define RESTARTS_MAX 3u /* of one load */

#define NOT_SUBMITTED 1 /* a part's result: no read was tried */

/* --- life --- */

kvarve_status lease_create(store_namespace *name, const find_hit *hit,
                           const kvarve_find_options *options, store_lease **out, kvarve_error *err)
{
    store_machine *store = name->store;
    store_lease *lease = kvarve_allocate(sizeof *lease);
    kvarve_status status = KVARVE_OK;

    if (lease == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "a lease");
    }
    lease->store = store;
    lease->name = name;
    name->references++;
    lease->checkpoint = hit->checkpoint;
    lease->companion = hit->companion;
    lease->spans[0] = hit->checkpoint != NULL ? hit->checkpoint->span : hit->span;
    lease->spans[1] = hit->companion != NULL ? hit->companion->span : NULL;
    lease->cookie = options->cookie;
    lease->deadline_ns = KVARVE_NEVER;
    find_describe(store, hit, &lease->boundary);
    for (size_t i = 0; i < 2; i++) {
        if (lease->spans[i] != NULL) {
            span_hold(lease->spans[i]);
        }
    }
    if (lease->checkpoint != NULL) {
        lease->checkpoint->leases++;
    }
    if (lease->companion != NULL) {
        lease->companion->leases++;
    }
    kvarve_list_append(&store->leases, &lease->link);
    store->lease_count++;
    if (options->lease == KVARVE_LEASE_LOAD) {
        status = store_lease_load(lease, options->timeout_ms, err);
    }
    if (status != KVARVE_OK) {
        store_lease_release(lease);
        return status;
    }
    *out = lease;
    return KVARVE_OK;
}

void store_lease_boundary(const store_lease *lease, kvarve_boundary *out)
{
    *out = lease->boundary;
}

static void unpin(lease_page *item)
{
    if (item->is_pinned) {
        item->is_pinned = false;
        (void)arena_unpin(item->lease->store->arena, item->slot);
        room_page_resident(item->page);
    }
}

static void stop_waiting(store_lease *lease)
{
    for (size_t i = 0; i < lease->page_count; i++) {
        if (lease->pages[i].is_awaited) {
            lease->pages[i].is_awaited = false;
            kvarve_list_remove(&lease->pages[i].watch);
        }
    }
    lease->awaited = 0;
}

static void free_lease(store_lease *lease)
{
    store_machine *store = lease->store;

    stop_waiting(lease);
    for (size_t i = 0; i < lease->page_count; i++) {
        unpin(&lease->pages[i]);
    }
    if (lease->companion != NULL) {
        checkpoint_unlease(store, lease->companion);
    }
    if (lease->checkpoint != NULL) {
        checkpoint_unlease(store, lease->checkpoint);
    }
    for (size_t i = 0; i < 2; i++) {
        if (lease->spans[i] != NULL) {
            span_unhold(lease->spans[i]);
        }
    }
    kvarve_list_remove(&lease->link);
    store->lease_count--;
    store_namespace_release(lease->name);
    kvarve_release(lease->pages);
    kvarve_release(lease);
    put_give_room(store);
}

void store_lease_release(store_lease *lease)
{
    if (lease == NULL) {
        return;
    }
    lease->is_released = true;
    lease->cookie = 0;
    if (lease->readers == 0) {
        free_lease(lease);
    }
}

/* --- loading --- */

static void end_load(store_lease *lease, uint32_t reason, uint32_t group)
{
    store_machine *store = lease->store;
    const bool is_good = reason == KVARVE_MISS_NOT;

    stop_waiting(lease);
    lease->deadline_ns = KVARVE_NEVER;
    lease->state = is_good ? LEASE_LOADED : LEASE_FAILED;
    lease->miss = (kvarve_miss){.reason = reason, .group = group};
    if (is_good && lease->boundary.bytes_to_read > (UINT64_C(1) << 20)) {
        store->read_bytes = store->read_bytes / 2 + lease->boundary.bytes_to_read;
        store->read_ns = store->read_ns / 2 + (store_now(store) - lease->started_ns);
    }
    if (!is_good) {
        store->statistics.misses[reason]++;
        for (size_t i = 0; i < lease->page_count; i++) {
            unpin(&lease->pages[i]);
        }
    }
    store_emit(store, is_good ? KVARVE_EVENT_LOADED : KVARVE_EVENT_LOAD_FAILED, lease->cookie, 0,
               is_good ? KVARVE_OK : KVARVE_MISS, reason);
}

static void pin(lease_page *item)
{
    KVARVE_ASSERT(!item->is_pinned);
    item->is_pinned = true;
    item->slot = item->page->slot;
    arena_pin(item->lease->store->arena, item->slot);
    room_page_resident(item->page);
}

typedef struct read_run {
    segment_request request;
    store_machine *store;
    segment_part *parts; /* context: the page */
} read_run;

static void finish_read(store_page *page, int result)
{
    store_machine *store = page->space->store;

    KVARVE_ASSERT(page->io_count > 0);
    page->io_count--;
    page->is_loading = false;
    if (result == 0) {
        arena_seal(store->arena, page->slot);
        page->is_verified = false;
    } else {
        page_drop_slot(page);
        if (result != NOT_SUBMITTED) {
            page_mark_damaged(page);
        }
    }
    lease_page_loaded(page, result == 0);
    room_page_resident(page);
    page_unhold(page);
}

static void finish_run(read_run *run)
{
    for (size_t i = 0; i < run->request.part_count; i++) {
        finish_read(run->parts[i].context, run->parts[i].result);
    }
    kvarve_release(run->parts);
    kvarve_release(run);
}

/* Slots are free again: loads come first, then puts. */
static void share_room(store_machine *store)
{
    (void)lease_settle_all(store);
    put_give_room(store);
}

static void read_done(segment_request *request, void *context)
{
    read_run *run = context;
    store_machine *store = run->store;

    (void)request;
    finish_run(run);
    share_room(store);
}

static read_run *make_run(store_machine *store, size_t parts_max)
{
    read_run *run = kvarve_allocate(sizeof *run);

    if (run != NULL) {
        run->store = store;
        run->parts = kvarve_allocate_array(parts_max, sizeof(segment_part));
        run->request.done = read_done;
        run->request.context = run;
    }
    if (run != NULL && run->parts == NULL) {
        kvarve_release(run);
        return NULL;
    }
    return run;
}

/* A slot for a page that is on flash. KVARVE_BUSY: no room now. */
static kvarve_status take_slot(store_machine *store, store_page *page)
{
    kvarve_status status;

    do {
        status = arena_reserve(store->arena, page->size, &page->slot);
    } while (status == KVARVE_BUSY && room_evict_ram(store));
    if (status != KVARVE_OK) {
        page->slot = ARENA_NONE;
    }
    return status;
}

static void add_part(read_run *run, store_page *page)
{
    page->io_count++; /* I4 */
    page->is_loading = true;
    page_hold(page);
    run->parts[run->request.part_count++] =
        (segment_part){.place = page->place,
                       .bytes = arena_address(run->store->arena, page->slot),
                       .size = page->size,
                       .context = page};
}

/* True: it could not be submitted and is over; the caller shares the room that this leaves. */
static bool submit_run(read_run *run)
{
    const bool is_empty = run->request.part_count == 0;

    run->request.parts = run->parts;
    if (!is_empty && segment_read(run->store->segments, &run->request, NULL) == KVARVE_OK) {
        return false;
    }
    for (size_t i = 0; i < run->request.part_count; i++) {
        run->parts[i].result = NOT_SUBMITTED;
    }
    finish_run(run);
    return !is_empty;
}

static void await_page(lease_page *item)
{
    item->is_awaited = true;
    item->lease->awaited++;
    kvarve_list_append(&item->page->loaders, &item->watch);
}

/*
 * One page on its way: pinned when it is there, awaited when its read runs, added to the run when
 * it has to be read. KVARVE_BUSY: no room now. KVARVE_MISS: it is damaged.
 */
static kvarve_status advance_page(lease_page *item, read_run *run)
{
    store_page *page = item->page;
    kvarve_status status;

    if (item->is_pinned || item->is_awaited) {
        return KVARVE_OK;
    }
    if (page->is_damaged) {
        return KVARVE_MISS;
    }
    if (page->is_loading) {
        await_page(item);
        return KVARVE_OK;
    }
    if (page->slot != ARENA_NONE) {
        pin(item);
        return KVARVE_OK;
    }
    status = take_slot(item->lease->store, page);
    if (status != KVARVE_OK) {
        return status == KVARVE_NO_SPACE ? KVARVE_NO_SPACE : KVARVE_BUSY;
    }
    add_part(run, page);
    await_page(item);
    return KVARVE_OK;
}

/*
 * There is no room for the next page, and no read in flight that would bring any. Pages that were
 * in the arena already may lie so far apart that nothing fits between them: let go of all, and read
 * them again side by side. A few times only, since it may be others who have the room.
 */
static bool start_over(store_lease *lease)
{
    if (lease->awaited > 0 || lease->readers > 0 || lease->next_read == 0 ||
        lease->restarts == RESTARTS_MAX) {
        return false;
    }
    lease->restarts++;
    for (size_t i = 0; i < lease->page_count; i++) {
        unpin(&lease->pages[i]);
        room_drop_resident(lease->pages[i].page);
    }
    lease->next_read = 0;
    return true;
}

/* Submit what can be read now; end the load when all is there. True: as of submit_run. */
static bool advance_load(store_lease *lease)
{
    read_run *run;
    kvarve_status status = KVARVE_OK;
    uint64_t bytes = 0;
    uint32_t group = 0;

    if (lease->awaited == 0 && lease->next_read == lease->page_count) {
        end_load(lease, KVARVE_MISS_NOT, 0);
        return false;
    }
    run = make_run(lease->store, lease->page_count + 1);
    if (run == NULL) {
        end_load(lease, KVARVE_MISS_NO_ROOM, 0);
        return false;
    }
    while (lease->next_read < lease->page_count && bytes < READS_IN_FLIGHT_BYTES) {
        lease_page *item = &lease->pages[lease->next_read];

        status = advance_page(item, run);
        if (status == KVARVE_BUSY && run->request.part_count == 0 && start_over(lease)) {
            status = KVARVE_OK;
            continue;
        }
        if (status != KVARVE_OK) {
            group = item->group;
            break;
        }
        bytes += item->is_awaited ? item->page->size : 0;
        lease->next_read++;
    }
    if (status == KVARVE_MISS || status == KVARVE_NO_SPACE) {
        end_load(lease, status == KVARVE_MISS ? KVARVE_MISS_DAMAGED : KVARVE_MISS_NO_ROOM, group);
    } else if (lease->awaited == 0 && lease->next_read == lease->page_count) {
        end_load(lease, KVARVE_MISS_NOT, 0);
    }
    return submit_run(run);
}

kvarve_status store_lease_load(store_lease *lease, uint32_t timeout_ms, kvarve_error *err)
{
    kvarve_status status;

    if (lease->state != LEASE_SOFT) {
        return kvarve_fail(err, KVARVE_INVALID, "lease: it was loaded before");
    }
    status = lease_list_pages(lease, err);
    if (status != KVARVE_OK) {
        return status;
    }
    lease->state = LEASE_LOADING;
    lease->deadline_ns = deadline_after(lease->store, timeout_ms);
    lease->started_ns = store_now(lease->store);
    if (advance_load(lease)) {
        share_room(lease->store);
    }
    return KVARVE_OK;
}

store_lease_state store_lease_status(const store_lease *lease, kvarve_miss *out_miss)
{
    if (out_miss != NULL) {
        *out_miss = lease->miss;
    }
    return lease->state;
}

/* A read of this page is done: everybody who waits for it. */
void lease_page_loaded(store_page *page, bool is_good)
{
    kvarve_link *link;

    while ((link = kvarve_list_take_first(&page->loaders)) != NULL) {
        lease_page *item = KVARVE_LIST_ITEM(link, lease_page, watch);
        store_lease *lease = item->lease;

        item->is_awaited = false;
        lease->awaited--;
        if (is_good && (lease->state == LEASE_LOADING || lease->state == LEASE_SOFT)) {
            pin(item); /* SOFT: somebody waits for it in store_lease_page_begin */
        } else if (!is_good && lease->state == LEASE_LOADING) {
            end_load(lease, KVARVE_MISS_IO, item->group);
        }
    }
}

bool lease_settle_all(store_machine *store)
{
    const uint64_t now = store_now(store);
    bool has_freed = false;
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &store->leases) {
        store_lease *lease = KVARVE_LIST_ITEM(link, store_lease, link);

        if (lease->state != LEASE_LOADING) {
            continue;
        }
        if (store->is_shutting_down) {
            end_load(lease, KVARVE_MISS_CLOSED, 0);
        } else if (lease->deadline_ns <= now) {
            const bool waits_for_room = lease->awaited == 0 && lease->next_read < lease->page_count;

            end_load(lease, waits_for_room ? KVARVE_MISS_NO_ROOM : KVARVE_MISS_DEADLINE, 0);
        } else if (lease->awaited == 0 || lease->next_read < lease->page_count) {
            has_freed = advance_load(lease) || has_freed;
        }
    }
    return has_freed;
}

uint64_t lease_next_deadline(const store_machine *store)
{
    uint64_t next = KVARVE_NEVER;
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &store->leases) {
        const store_lease *lease = KVARVE_LIST_ITEM(link, store_lease, link);

        next = kvarve_min_u64(next, lease->deadline_ns);
    }
    return next;
}

/* --- reading --- */

kvarve_status lease_check_group(const store_lease *lease, uint32_t rank, uint32_t group,
                                kvarve_error *err)
{
    const uint32_t ranks = lease->name->spaces[0]->rank_count;

    if (rank >= ranks || group >= lease->name->group_count) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "lease: rank %u group %u: ranks 0 .. %u, groups 0 .. %u", rank, group,
                           ranks - 1, lease->name->group_count - 1);
    }
    return KVARVE_OK;
}

static void describe_source(const lease_page *item, store_source *out)
{
    const store_page *page = item->page;
    const kvarve_group *group = &page->space->groups[page->group];
    const bool has_span = group->page_class <= KVARVE_CLASS_WINDOW;

    *out = (store_source){
        .page = item->page,
        .digest = page->digest,
        .size = page->size,
        .group = item->group,
        .position = item->position,
        .first_token = has_span ? item->position * group->span_tokens : 0,
        .tokens = has_span ? (uint32_t)(page->tokens - item->position * group->span_tokens) : 0,
        .is_verified = page->is_verified,
    };
}

kvarve_status store_lease_page_begin(store_lease *lease, uint32_t rank, uint32_t group,
                                     uint64_t position, store_source *out, kvarve_error *err)
{
    kvarve_status status = lease_check_group(lease, rank, group, err);
    lease_page *item;

    if (status == KVARVE_OK) {
        status = lease_list_pages(lease, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    item = lease_find_page(lease, rank, group, position);
    if (item == NULL) {
        return kvarve_fail(err, KVARVE_INVALID, "lease: rank %u group %u has no page %llu", rank,
                           group, (unsigned long long)position);
    }
    if (item->page->is_damaged || lease->state == LEASE_FAILED ||
        (item->is_pinned &&
         item->slot != item->page->slot)) { /* written again since it was loaded */
        return KVARVE_MISS;
    }
    if (item->page->slot == ARENA_NONE || item->page->is_loading) {
        read_run *run = make_run(lease->store, 1);

        if (run == NULL) {
            return kvarve_fail(err, KVARVE_NO_MEMORY, "lease: a read");
        }
        if (!item->page->is_loading && take_slot(lease->store, item->page) == KVARVE_OK) {
            add_part(run, item->page);
        }
        if (item->page->is_loading && !item->is_awaited) { /* I5 */
            await_page(item);
        }
        if (submit_run(run)) {
            share_room(lease->store);
        }
        return item->page->is_damaged ? KVARVE_MISS : KVARVE_BUSY;
    }
    describe_source(item, out);
    out->address = arena_address(lease->store->arena, item->page->slot);
    out->slot = item->page->slot;
    arena_pin(lease->store->arena, item->page->slot);
    room_page_resident(item->page);
    page_hold(item->page);
    lease->readers++;
    return KVARVE_OK;
}

/* Add a page that is not in the arena. False: it is damaged, or has no room. */
static bool add_if_absent(read_run *run, store_page *page)
{
    if (page->is_damaged) {
        return false;
    }
    if (page->slot != ARENA_NONE) {
        return true;
    }
    if (take_slot(run->store, page) != KVARVE_OK) {
        return false;
    }
    add_part(run, page);
    return true;
}

void store_lease_read_ahead(store_lease *lease, uint32_t rank, uint32_t group, uint64_t position,
                            uint64_t count)
{
    read_run *run;

    if (lease_check_group(lease, rank, group, NULL) != KVARVE_OK ||
        lease_list_pages(lease, NULL) != KVARVE_OK || count == 0) {
        return;
    }
    count = kvarve_min_u64(count, lease->page_count);
    run = make_run(lease->store, (size_t)count + 1);
    if (run == NULL) {
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        const lease_page *item = lease_find_page(lease, rank, group, position + i);

        if (item == NULL || !add_if_absent(run, item->page)) {
            break;
        }
    }
    if (submit_run(run)) {
        share_room(lease->store);
    }
}

void lease_fail(store_lease *lease, uint32_t reason, uint32_t group)
{
    lease->store->statistics.misses[reason]++;
    lease->state = LEASE_FAILED;
    lease->deadline_ns = KVARVE_NEVER;
    lease->miss = (kvarve_miss){.reason = reason, .group = group};
}

void lease_reader_left(store_lease *lease)
{
    KVARVE_ASSERT(lease->readers > 0);
    lease->readers--;
    if (lease->is_released && lease->readers == 0) {
        free_lease(lease);
    }
}

void store_lease_page_end(store_lease *lease, const store_source *source, bool was_verified,
                          bool is_right)
{
    store_page *page = source->page;
    store_machine *store = lease->store;
    const bool is_same = page->slot == source->slot; /* else it was written again meanwhile */

    (void)arena_unpin(store->arena, source->slot);
    if (was_verified && is_right) {
        page->is_verified = page->is_verified || is_same;
    } else if (was_verified) {
        /* What stood in the arena was wrong. Its copy on flash, if it was not the source, decides
         * next time. */
        if (is_same && (!page->is_verified || page->flash != FLASH_WRITTEN)) {
            page_mark_damaged(page);
        }
        page->is_verified = page->is_verified && !is_same;
        lease_fail(lease, KVARVE_MISS_DAMAGED, source->group);
    }
    if (lease->state == LEASE_SOFT || lease->state == LEASE_FAILED) { /* I5 */
        unpin(lease_find_page(lease, page->rank, source->group, source->position));
    }
    room_page_resident(page);
    if (page->is_damaged && page->flash == FLASH_WRITTEN && page->io_count == 0 &&
        page->slot != ARENA_NONE && arena_pins(store->arena, page->slot) == 0) {
        page_drop_slot(page);
    }
    page_unhold(page);
    lease_reader_left(lease);
}

kvarve_status store_lease_extent(store_lease *lease, uint32_t rank, uint32_t group,
                                 uint64_t *out_first, uint64_t *out_pages, uint64_t *out_bytes,
                                 kvarve_error *err)
{
    kvarve_status status = lease_check_group(lease, rank, group, err);
    uint64_t first = UINT64_MAX;
    uint64_t pages = 0;
    uint64_t bytes = 0;

    if (status == KVARVE_OK) {
        status = lease_list_pages(lease, err); /* what it lists was fixed at find */
    }
    if (status != KVARVE_OK) {
        return status;
    }
    for (size_t i = 0; i < lease->page_count; i++) {
        const lease_page *item = &lease->pages[i];

        if (item->group == group && (item->page->rank == rank || item->page->rank == RANK_ALL)) {
            first = kvarve_min_u64(first, item->position);
            bytes += item->page->size;
            pages++;
        }
    }
    *out_first = pages == 0 ? 0 : first;
    *out_pages = pages;
    *out_bytes = bytes;
    return KVARVE_OK;
}
