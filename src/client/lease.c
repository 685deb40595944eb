/*
 * lease.c - leases through the client door.
 *
 * The pages of a loaded lease are asked for once a rank; its pins hold them until the release, so
 * reading them needs no message. Of a lease that is not loaded each page is asked for, and given
 * back, by itself.
 *
 * Invariants
 *   I1  No address is given out that client_address did not find in the arena.
 *   I2  That a page is damaged reaches the daemon before the next find does.
 *
 * Threads: under the client's lock. Ownership: a released lease stays until what it has parked is
 * answered.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"
#include "client/client_private.h"

#define PAGES_MAX (UINT64_C(1) << 22) /* of one lease */
#define NO_PIN    UINT32_MAX          /* as store_source.slot: the lease's own */

/* --- where it stands --- */

static void free_lease(client_lease *lease)
{
    for (uint32_t rank = 0; rank < lease->space->layout.ranks && !lease->is_released; rank++) {
        kvarve_release(lease->ranks[rank].pages);
    }
    kvarve_release(lease->pins);
    kvarve_release(lease);
}

static void take_state(client_lease *lease, const wire_lease_state *state)
{
    if (lease->state != LEASE_FAILED) {
        lease->state = (store_lease_state)state->state;
        client_miss_of(&state->miss, &lease->miss);
    }
    lease->turn = lease->at->turn;
    client_changed(lease->at);
}

static bool take_wait(client *at, client_pending *pending, const wire_message *answer)
{
    client_lease *lease = KVARVE_LIST_ITEM(pending, client_lease, pending);

    at->parked--;
    lease->is_out = false;
    lease->answers--;
    if (lease->is_released) {
        if (lease->answers == 0) {
            free_lease(lease);
        }
        return true;
    }
    if (answer != NULL && answer->type == WIRE_LEASE_STATE) {
        take_state(lease, &answer->as.lease_state);
        return answer->as.lease_state.state != LEASE_LOADING; /* a wait without an end */
    }
    return true;
}

/* As client_watch.park. */
static void park(client *at, client_watch *watch)
{
    client_lease *lease = KVARVE_LIST_ITEM(watch, client_lease, watch);
    wire_message request = {.type = WIRE_LEASE_WAIT};

    if (lease->state != LEASE_LOADING || lease->is_out || !client_may_park(at)) {
        return;
    }
    request.as.lease_wait = (wire_lease_wait){.lease = lease->id, .timeout_ms = KVARVE_NO_TIMEOUT};
    lease->pending.take = take_wait;
    if (client_send(at, &lease->pending, &request, NULL) == KVARVE_OK) {
        lease->is_out = true;
        lease->answers++;
        at->parked++;
    }
}

static void fail_lease(client_lease *lease, uint32_t reason, uint32_t group)
{
    lease->state = LEASE_FAILED;
    lease->miss = (kvarve_miss){.reason = reason, .group = group};
}

static void look(client_lease *lease)
{
    client *at = lease->at;
    client_exchange what = {.request.type = WIRE_LEASE_WAIT};

    if (lease->state != LEASE_LOADING) {
        return;
    }
    if (!at->is_broken && lease->turn != at->turn && !(client_has_waited() && lease->is_out)) {
        what.request.as.lease_wait = (wire_lease_wait){.lease = lease->id};
        if (client_ask(at, &what, NULL) == KVARVE_OK) {
            take_state(lease, &what.reply.as.lease_state);
        }
    }
    if (at->is_broken && lease->state == LEASE_LOADING) {
        fail_lease(lease, KVARVE_MISS_IO, 0);
    }
    if (lease->state == LEASE_LOADING) {
        client_watch_add(at, &lease->watch);
    }
}

store_lease_state client_lease_status(const door_lease *base, kvarve_miss *out_miss)
{
    client_lease *lease = client_const_lease_of(base)->self;

    look(lease);
    if (out_miss != NULL) {
        *out_miss = lease->miss;
    }
    return lease->state;
}

/* --- begin --- */

client_lease *client_lease_make(client_namespace *space)
{
    client_lease *lease =
        kvarve_allocate(sizeof *lease + (size_t)space->layout.ranks * sizeof lease->ranks[0]);

    if (lease != NULL) {
        lease->self = lease;
        lease->at = space->at;
        lease->space = space;
        lease->watch.park = park;
        kvarve_list_init(&lease->watch.link);
        kvarve_list_init(&lease->link);
    }
    return lease;
}

void client_lease_begin(client_lease *lease, const wire_found *found, uint32_t mode)
{
    lease->id = found->lease;
    client_boundary_of(&found->leased, &lease->boundary);
    lease->state = mode == KVARVE_LEASE_LOAD ? LEASE_LOADING : LEASE_SOFT;
    lease->arena = client_hold_arena(lease->at);
    kvarve_list_append(&lease->at->leases, &lease->link);
}

void client_lease_drop(client_lease *lease)
{
    free_lease(lease);
}

void client_lease_boundary(const door_lease *base, kvarve_boundary *out)
{
    *out = client_const_lease_of(base)->boundary;
}

kvarve_status client_lease_load(door_lease *base, uint32_t timeout_ms, kvarve_error *err)
{
    client_lease *lease = client_lease_of(base);
    client_exchange what = {.request.type = WIRE_LEASE_LOAD};
    kvarve_status status;

    what.request.as.lease_load = (wire_lease_load){.lease = lease->id, .timeout_ms = timeout_ms};
    status = client_ask(lease->at, &what, err);
    if (status == KVARVE_OK) {
        take_state(lease, &what.reply.as.lease_state);
    }
    return status;
}

/* --- pages of a loaded lease --- */

static bool source_of(const client_lease *lease, const wire_page_entry *from, store_source *out)
{
    *out = (store_source){.size = from->size,
                          .group = from->group,
                          .position = from->position,
                          .first_token = from->first_token,
                          .tokens = from->tokens,
                          .is_verified = from->is_verified != 0,
                          .slot = NO_PIN};
    memcpy(out->digest.bytes, from->digest, sizeof out->digest.bytes);
    out->address = client_address(lease->arena, from->offset, from->size); /* I1 */
    return out->address != NULL && from->group < lease->space->layout.group_count;
}

typedef struct page_reader {
    const client_lease *lease;
    client_lease_page *pages;
    size_t count;
    uint64_t total;
} page_reader;

static bool read_pages(void *context, const wire_message *reply)
{
    page_reader *reader = context;
    const uint64_t total = reply->as.lease_pages_are.total;
    client_lease_page *larger;

    if (total > PAGES_MAX || reader->count + reply->count > total ||
        (reply->count == 0 && reader->count < total)) {
        return false;
    }
    reader->total = total;
    if (reply->count == 0) {
        return true;
    }
    larger = kvarve_reallocate(reader->pages, (reader->count + reply->count) * sizeof *larger);
    if (larger == NULL) {
        return false;
    }
    reader->pages = larger;
    for (uint32_t i = 0; i < reply->count; i++) {
        wire_page_entry entry;

        wire_item(reply, i, &entry);
        if (!source_of(reader->lease, &entry, &larger[reader->count].source)) {
            return false;
        }
        reader->count++;
    }
    return true;
}

static int compare_pages(const void *a, const void *b)
{
    const store_source *x = &((const client_lease_page *)a)->source;
    const store_source *y = &((const client_lease_page *)b)->source;

    if (x->group != y->group) {
        return x->group < y->group ? -1 : 1;
    }
    return (x->position > y->position) - (x->position < y->position);
}

/* The rank's pages, asked for if need be. The lease is loaded. */
static kvarve_status know_pages(client_lease *lease, uint32_t rank, kvarve_error *err)
{
    page_reader reader = {.lease = lease};
    client_lease_rank *known = &lease->ranks[rank];
    kvarve_status status = KVARVE_OK;

    if (known->is_known) {
        return KVARVE_OK;
    }
    do {
        client_exchange what = {
            .request.type = WIRE_LEASE_PAGES, .read = read_pages, .context = &reader};

        what.request.as.lease_pages = (wire_lease_pages){
            .lease = lease->id, .rank = rank, .max = UINT32_MAX, .from = reader.count};
        status = client_ask(lease->at, &what, err);
    } while (status == KVARVE_OK && reader.count < reader.total);
    if (status != KVARVE_OK || known->is_known) { /* another thread was first */
        kvarve_release(reader.pages);
        return status;
    }
    if (reader.count > 0) {
        qsort(reader.pages, reader.count, sizeof *reader.pages, compare_pages);
    }
    *known = (client_lease_rank){.pages = reader.pages, .count = reader.count, .is_known = true};
    return KVARVE_OK;
}

static client_lease_page *find_page(client_lease_rank *known, uint32_t group, uint64_t position)
{
    client_lease_page wanted = {.source = {.group = group, .position = position}};
    client_lease_page *found;

    if (known->cursor < known->count && compare_pages(&known->pages[known->cursor], &wanted) == 0) {
        return &known->pages[known->cursor++];
    }
    found = known->count == 0
                ? NULL
                : bsearch(&wanted, known->pages, known->count, sizeof wanted, compare_pages);
    if (found != NULL) {
        known->cursor = (size_t)(found - known->pages) + 1;
    }
    return found;
}

static kvarve_status check_group(const client_lease *lease, uint32_t rank, uint32_t group,
                                 kvarve_error *err)
{
    const door_layout *layout = &lease->space->layout;

    if (rank >= layout->ranks || group >= layout->group_count) {
        return kvarve_fail(err, KVARVE_INVALID, "lease: rank %u: 0 .. %u; group %u: 0 .. %u", rank,
                           layout->ranks - 1, group, layout->group_count - 1);
    }
    return KVARVE_OK;
}

static void measure(const client_lease_rank *known, uint32_t group, uint64_t *out_first,
                    uint64_t *out_pages, uint64_t *out_bytes)
{
    *out_first = 0;
    *out_pages = 0;
    *out_bytes = 0;
    for (size_t i = 0; i < known->count; i++) {
        const store_source *page = &known->pages[i].source;

        if (page->group == group) {
            *out_first = *out_pages == 0 ? page->position : *out_first;
            *out_bytes += page->size;
            (*out_pages)++;
        }
    }
}

kvarve_status client_lease_extent(door_lease *base, uint32_t rank, uint32_t group,
                                  uint64_t *out_first, uint64_t *out_pages, uint64_t *out_bytes,
                                  kvarve_error *err)
{
    client_lease *lease = client_lease_of(base);
    client_exchange what = {.request.type = WIRE_LEASE_EXTENT};
    kvarve_status status = check_group(lease, rank, group, err);

    if (status != KVARVE_OK) {
        return status;
    }
    if (lease->state == LEASE_LOADED && know_pages(lease, rank, NULL) == KVARVE_OK) {
        measure(&lease->ranks[rank], group, out_first, out_pages, out_bytes);
        return KVARVE_OK;
    }
    what.request.as.lease_extent =
        (wire_lease_extent){.lease = lease->id, .rank = rank, .group = group};
    status = client_ask(lease->at, &what, err);
    if (status == KVARVE_OK) {
        *out_first = what.reply.as.lease_extent_is.first;
        *out_pages = what.reply.as.lease_extent_is.pages;
        *out_bytes = what.reply.as.lease_extent_is.bytes;
    }
    return status;
}

/* --- pages that are pinned one by one --- */

/* A place for one more pin; NO_PIN: no memory. */
static uint32_t free_pin(client_lease *lease)
{
    const uint32_t room = lease->pin_room == 0 ? 8 : 2 * lease->pin_room;
    uint64_t *larger;
    uint32_t index;

    for (index = 0; index < lease->pin_room; index++) {
        if (lease->pins[index] == 0) {
            return index;
        }
    }
    larger = kvarve_reallocate(lease->pins, room * sizeof *larger);
    if (larger == NULL) {
        return NO_PIN;
    }
    memset(larger + lease->pin_room, 0, (room - lease->pin_room) * sizeof *larger);
    lease->pins = larger;
    lease->pin_room = room;
    return index;
}

static void send_page_end(client *at, const wire_page_end *end)
{
    wire_message request = {.type = WIRE_PAGE_END, .as.page_end = *end};

    client_notify(at, &request, (wire_letter){0});
}

/* Nobody wants the page any more that is pinned now. */
static bool take_late_page(client *at, client_pending *pending, const wire_message *answer)
{
    const uint64_t lease = ((client_notice *)(void *)pending)->subject;

    client_notice_end(at, pending);
    if (answer != NULL && answer->type == WIRE_PAGE_BEGUN) {
        send_page_end(
            at, &(wire_page_end){.lease = lease, .pin = answer->as.page_begun.pin, .is_right = 1});
    }
    return true;
}

static kvarve_status begin_page(client_lease *lease, uint32_t rank, uint32_t group,
                                uint64_t position, store_source *out, kvarve_error *err)
{
    client *at = lease->at;
    /* Without threads the caller's wait is what makes the read come to its end. */
    const uint32_t wait_ms = at->is_still ? 0 : at->io_timeout_ms;
    client_exchange what = {.request.type = WIRE_PAGE_BEGIN,
                            .is_parked = true,
                            .wait_ms = wait_ms,
                            .late = take_late_page,
                            .subject = lease->id};
    uint32_t pin;
    kvarve_status status;

    what.request.as.page_begin = (wire_page_begin){.lease = lease->id,
                                                   .rank = rank,
                                                   .group = group,
                                                   .position = position,
                                                   .timeout_ms = wait_ms};
    status = client_ask(at, &what, err);
    if (status != KVARVE_OK) {
        return status;
    }
    pin = free_pin(lease);
    if (!source_of(lease, &what.reply.as.page_begun.page, out) || out->group != group ||
        out->position != position) {
        client_break(at, "the daemon's page is not in the arena");
        return client_gone(at, err);
    }
    if (pin == NO_PIN) {
        send_page_end(at, &(wire_page_end){.lease = lease->id,
                                           .pin = what.reply.as.page_begun.pin,
                                           .is_right = 1});
        return kvarve_fail(err, KVARVE_NO_MEMORY, "lease: a page in use");
    }
    lease->pins[pin] = what.reply.as.page_begun.pin;
    out->slot = pin;
    out->page = lease;
    return KVARVE_OK;
}

kvarve_status client_lease_page_begin(door_lease *base, uint32_t rank, uint32_t group,
                                      uint64_t position, store_source *out, kvarve_error *err)
{
    client_lease *lease = client_lease_of(base);
    client_lease_page *page;
    kvarve_status status = check_group(lease, rank, group, err);

    if (status != KVARVE_OK) {
        return status;
    }
    if (lease->at->is_broken) {
        return client_gone(lease->at, err);
    }
    if (lease->state != LEASE_LOADED) {
        return lease->state == LEASE_FAILED ? KVARVE_MISS
                                            : begin_page(lease, rank, group, position, out, err);
    }
    status = know_pages(lease, rank, err);
    if (status != KVARVE_OK) {
        return status;
    }
    page = find_page(&lease->ranks[rank], group, position);
    if (page == NULL) {
        return kvarve_fail(err, KVARVE_INVALID, "lease: rank %u group %u has no page %llu", rank,
                           group, (unsigned long long)position);
    }
    *out = page->source;
    out->page = &lease->ranks[rank];
    return KVARVE_OK;
}

/* --- the end of a page --- */

static bool take_damaged_page(client *at, client_pending *pending, const wire_message *answer)
{
    const uint64_t lease = ((client_notice *)(void *)pending)->subject;

    client_notice_end(at, pending);
    at->reports--;
    if (answer != NULL && answer->type == WIRE_PAGE_BEGUN) {
        send_page_end(at, &(wire_page_end){
                              .lease = lease, .pin = answer->as.page_begun.pin, .was_verified = 1});
    }
    return true;
}

/* A page of a loaded lease is wrong: pin it for itself, to say so (I2: see find.c). */
static void report_damage(client_lease *lease, uint32_t rank, const store_source *source)
{
    wire_message request = {.type = WIRE_PAGE_BEGIN};

    request.as.page_begin = (wire_page_begin){
        .lease = lease->id, .rank = rank, .group = source->group, .position = source->position};
    lease->at->reports++;
    client_notify_for(lease->at, &request, take_damaged_page, lease->id);
}

void client_lease_page_end(door_lease *base, const store_source *source, bool was_verified,
                           bool is_right)
{
    client_lease *lease = client_lease_of(base);
    const bool is_damaged = was_verified && !is_right;

    if (source->slot == NO_PIN) {
        client_lease_rank *known = source->page;
        client_lease_page *page = find_page(known, source->group, source->position);

        if (page != NULL) {
            page->source.is_verified = was_verified ? is_right : page->source.is_verified;
        }
        if (is_damaged) {
            report_damage(lease, (uint32_t)(known - lease->ranks), source);
        }
    } else {
        send_page_end(lease->at, &(wire_page_end){.lease = lease->id,
                                                  .pin = lease->pins[source->slot],
                                                  .was_verified = was_verified,
                                                  .is_right = is_right});
        lease->pins[source->slot] = 0;
    }
    if (is_damaged) {
        fail_lease(lease, KVARVE_MISS_DAMAGED, source->group);
    }
}

void client_lease_read_ahead(door_lease *base, uint32_t rank, uint32_t group, uint64_t position,
                             uint64_t count)
{
    client_lease *lease = client_lease_of(base);
    wire_message request = {.type = WIRE_READ_AHEAD};

    if (lease->state != LEASE_SOFT || check_group(lease, rank, group, NULL) != KVARVE_OK) {
        return;
    }
    request.as.read_ahead = (wire_read_ahead){
        .lease = lease->id, .rank = rank, .group = group, .position = position, .count = count};
    client_notify(lease->at, &request, (wire_letter){0});
}

kvarve_status client_lease_read_direct(door_lease *base, uint32_t rank, uint32_t group,
                                       uint64_t position, store_direct_read *read,
                                       kvarve_error *err)
{
    (void)base;
    (void)rank;
    (void)group;
    (void)position;
    (void)err;
    read->pages = 0; /* flash is the daemon's: pages go by way of the arena */
    read->taken = 0;
    return KVARVE_OK;
}

void client_lease_release(door_lease *base)
{
    client_lease *lease = client_lease_of(base);
    wire_message request = {.type = WIRE_LEASE_RELEASE, .as.lease_release = {.lease = lease->id}};

    for (uint32_t rank = 0; rank < lease->space->layout.ranks; rank++) {
        kvarve_release(lease->ranks[rank].pages);
    }
    kvarve_list_remove(&lease->watch.link);
    kvarve_list_remove(&lease->link);
    lease->is_released = true;
    client_let_arena(lease->at, lease->arena);
    lease->answers++; /* this call's: a break would free it */
    client_notify(lease->at, &request, (wire_letter){0});
    lease->answers--;
    if (lease->answers == 0) {
        free_lease(lease);
    }
}
