/*
 * lease.c - requests about leases: load, wait, and where the pages lie.
 *
 * Invariants
 *   I1  A page whose place was told stays pinned: by the loaded lease until its release, or by a
 *       page_pin until PAGE_END.
 *
 * Threads: the daemon's one.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fail.h"
#include "session/session_private.h"

static void reply_state(session *at, uint64_t id, const store_lease *lease)
{
    wire_message reply = {.type = WIRE_LEASE_STATE, .id = id};
    kvarve_miss miss;

    reply.as.lease_state.state = store_lease_status(lease, &miss);
    reply.as.lease_state.miss = miss_of(&miss);
    session_reply(at, &reply);
}

kvarve_status take_lease_load(session *at, const wire_message *request, kvarve_error *err)
{
    session_handle *handle;
    kvarve_status status =
        handle_find(at, HANDLE_LEASE, request->as.lease_load.lease, &handle, err);

    if (status == KVARVE_OK) {
        status = store_lease_load(handle->shared->lease, request->as.lease_load.timeout_ms, err);
    }
    if (status == KVARVE_OK) {
        reply_state(at, request->id, handle->shared->lease);
    }
    return status;
}

static kvarve_status try_lease_wait(session *at, const wire_message *request, bool is_last,
                                    kvarve_error *err)
{
    session_handle *handle;
    const kvarve_status status =
        handle_find(at, HANDLE_LEASE, request->as.lease_wait.lease, &handle, err);

    if (status != KVARVE_OK) {
        return status;
    }
    if (!is_last && store_lease_status(handle->shared->lease, NULL) == LEASE_LOADING) {
        return KVARVE_BUSY;
    }
    reply_state(at, request->id, handle->shared->lease);
    return KVARVE_OK;
}

kvarve_status take_lease_wait(session *at, const wire_message *request, kvarve_error *err)
{
    return parked_try(at, request, try_lease_wait, request->as.lease_wait.timeout_ms, err);
}

kvarve_status take_lease_extent(session *at, const wire_message *request, kvarve_error *err)
{
    const wire_lease_extent *from = &request->as.lease_extent;
    wire_message reply = {.type = WIRE_LEASE_EXTENT_IS, .id = request->id};
    wire_lease_extent_is *out = &reply.as.lease_extent_is;
    session_handle *handle;
    kvarve_status status =
        handle_find_rank(at, HANDLE_LEASE, from->lease, from->rank, &handle, err);

    if (status == KVARVE_OK) {
        status = store_lease_extent(handle->shared->lease, from->rank, from->group, &out->first,
                                    &out->pages, &out->bytes, err);
    }
    if (status == KVARVE_OK) {
        session_reply(at, &reply);
    }
    return status;
}

kvarve_status take_lease_release(session *at, const wire_message *request, kvarve_error *err)
{
    session_handle *handle;
    const kvarve_status status =
        handle_find(at, HANDLE_LEASE, request->as.lease_release.lease, &handle, err);

    if (status == KVARVE_OK) {
        handle_end(handle);
        session_reply_done(at, request->id);
    }
    return status;
}

kvarve_status take_read_ahead(session *at, const wire_message *request, kvarve_error *err)
{
    const wire_read_ahead *from = &request->as.read_ahead;
    session_handle *handle;
    const kvarve_status status =
        handle_find_rank(at, HANDLE_LEASE, from->lease, from->rank, &handle, err);

    if (status == KVARVE_OK) {
        store_lease_read_ahead(handle->shared->lease, from->rank, from->group, from->position,
                               from->count);
        session_reply_done(at, request->id);
    }
    return status;
}

static wire_page_entry entry_of(const session_host *host, const store_source *source)
{
    wire_page_entry entry = {.group = source->group,
                             .tokens = source->tokens,
                             .position = source->position,
                             .first_token = source->first_token,
                             .offset = host_offset(host, source->address),
                             .size = source->size,
                             .is_verified = source->is_verified};

    memcpy(entry.digest, source->digest.bytes, sizeof entry.digest);
    return entry;
}

/* --- all pages of a rank --- */

typedef struct page_walk {
    session_handle *handle;
    uint32_t rank;
    uint64_t from;  /* entries before are passed over */
    uint64_t until; /* and these ones too */
    uint64_t total;
    uint32_t written;
} page_walk;

static kvarve_status write_page(page_walk *walk, uint32_t group, uint64_t position,
                                kvarve_error *err)
{
    store_lease *lease = walk->handle->shared->lease;
    session *at = walk->handle->of;
    store_source source;
    wire_page_entry entry;
    const kvarve_status status =
        store_lease_page_begin(lease, walk->rank, group, position, &source, err);

    if (status != KVARVE_OK) {
        return status == KVARVE_BUSY ? KVARVE_MISS : status; /* loaded, so it is not there */
    }
    entry = entry_of(at->host, &source);
    store_lease_page_end(lease, &source, false, true); /* the load's pin stays (I1) */
    walk->handle->is_exposed = true;
    return reply_item(at, WIRE_LEASE_PAGES_ARE, walk->written++, &entry, err);
}

static kvarve_status walk_group(page_walk *walk, uint32_t group, kvarve_error *err)
{
    uint64_t first = 0;
    uint64_t pages = 0;
    uint64_t bytes = 0;
    kvarve_status status = store_lease_extent(walk->handle->shared->lease, walk->rank, group,
                                              &first, &pages, &bytes, err);

    for (uint64_t i = 0; i < pages && status == KVARVE_OK; i++, walk->total++) {
        if (walk->total >= walk->from && walk->total < walk->until) {
            status = write_page(walk, group, first + i, err);
        }
    }
    return status;
}

kvarve_status take_lease_pages(session *at, const wire_message *request, kvarve_error *err)
{
    const wire_lease_pages *from = &request->as.lease_pages;
    const uint64_t most = kvarve_min_u64(from->max, WIRE_ITEMS_LEASE_PAGES_ARE);
    wire_message reply = {.type = WIRE_LEASE_PAGES_ARE, .id = request->id};
    page_walk walk = {.rank = from->rank, .from = from->from};
    kvarve_status status =
        handle_find_rank(at, HANDLE_LEASE, from->lease, from->rank, &walk.handle, err);

    if (status != KVARVE_OK) {
        return status;
    }
    if (store_lease_status(walk.handle->shared->lease, NULL) != LEASE_LOADED) {
        return kvarve_fail(err, KVARVE_INVALID, "lease %" PRIu64 ": it is not loaded", from->lease);
    }
    walk.until = from->from > UINT64_MAX - most ? UINT64_MAX : from->from + most;
    for (uint32_t group = 0;
         group < store_namespace_groups(walk.handle->shared->name) && status == KVARVE_OK;
         group++) {
        status = walk_group(&walk, group, err);
    }
    if (status == KVARVE_OK) {
        reply.count = walk.written;
        reply.as.lease_pages_are.total = walk.total;
        session_reply(at, &reply);
    }
    return status;
}

/* --- one page --- */

static kvarve_status check_pins(const session *at, kvarve_error *err)
{
    return at->page_pin_count < at->host->limits.pages
               ? KVARVE_OK
               : kvarve_fail(err, KVARVE_NO_SPACE, "%u pages are pinned already, at most %u",
                             at->page_pin_count, at->host->limits.pages);
}

static void add_pin(session_handle *handle, page_pin *pin)
{
    session *at = handle->of;

    pin->handle = handle;
    pin->number = ++at->next_number;
    table_add(&at->page_pins, &pin->link, table_mix(pin->number));
    kvarve_list_append(&handle->pins, &pin->in_handle);
    at->page_pin_count++;
}

static kvarve_status try_page_begin(session *at, const wire_message *request, bool is_last,
                                    kvarve_error *err)
{
    const wire_page_begin *from = &request->as.page_begin;
    wire_message reply = {.type = WIRE_PAGE_BEGUN, .id = request->id};
    page_pin *pin;
    session_handle *handle;
    kvarve_status status =
        handle_find_rank(at, HANDLE_LEASE, from->lease, from->rank, &handle, err);

    (void)is_last;
    if (status == KVARVE_OK) {
        status = check_pins(at, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    pin = kvarve_allocate(sizeof *pin);
    if (pin == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "lease: pin a page");
    }
    status = store_lease_page_begin(handle->shared->lease, from->rank, from->group, from->position,
                                    &pin->source, err);
    if (status != KVARVE_OK) {
        kvarve_release(pin);
        return status;
    }
    add_pin(handle, pin);
    reply.as.page_begun.pin = pin->number;
    reply.as.page_begun.page = entry_of(at->host, &pin->source);
    session_reply(at, &reply);
    return KVARVE_OK;
}

kvarve_status take_page_begin(session *at, const wire_message *request, kvarve_error *err)
{
    return parked_try(at, request, try_page_begin, request->as.page_begin.timeout_ms, err);
}

static void end_pin(page_pin *pin, bool was_verified, bool is_right)
{
    session *at = pin->handle->of;

    table_remove(&at->page_pins, &pin->link);
    kvarve_list_remove(&pin->in_handle);
    at->page_pin_count--;
    store_lease_page_end(pin->handle->shared->lease, &pin->source, was_verified, is_right);
    kvarve_release(pin);
}

kvarve_status take_page_end(session *at, const wire_message *request, kvarve_error *err)
{
    const wire_page_end *from = &request->as.page_end;
    kvarve_table_link *link = table_first(&at->page_pins, table_mix(from->pin));
    page_pin *pin = NULL;

    for (; link != NULL && pin == NULL; link = table_next(link)) {
        pin = KVARVE_TABLE_ITEM(link, page_pin, link);
        pin = pin->number == from->pin && pin->handle->number == from->lease ? pin : NULL;
    }
    if (pin == NULL) {
        return kvarve_fail(err, KVARVE_INVALID, "lease %" PRIu64 ": no page is pinned as %" PRIu64,
                           from->lease, from->pin);
    }
    end_pin(pin, from->was_verified != 0, from->is_right != 0);
    session_reply_done(at, request->id);
    return KVARVE_OK;
}

void page_pins_end(session_handle *handle)
{
    while (!kvarve_list_is_empty(&handle->pins)) {
        end_pin(KVARVE_LIST_ITEM(handle->pins.next, page_pin, in_handle), false, true);
    }
}
