/*
 * put_plan.c - what a rank is to copy, and the slots that it may be copying into.
 *
 * Invariants
 *   I1  A slot whose place was told is pinned until its rank acked or failed, or its handle ended;
 *       however often the plan is asked for, it is pinned once.
 *   I2  A pin ends after the store was told what became of the rank, so that the pin's end decides
 *       nothing any more.
 *
 * Threads: the daemon's one.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fail.h"
#include "session/session_private.h"

static uint64_t place_hash(uint32_t rank, uint32_t group, uint64_t position)
{
    return table_mix(table_mix(position) ^ ((uint64_t)rank << 32 | group));
}

static put_pin *find_pin(const session_handle *handle, uint32_t rank, const kvarve_page_plan *plan)
{
    kvarve_table_link *link = NULL;

    if (handle->has_by_place) {
        link = table_first(&handle->by_place, place_hash(rank, plan->group, plan->position));
    }
    for (; link != NULL; link = table_next(link)) {
        put_pin *pin = KVARVE_TABLE_ITEM(link, put_pin, link);

        if (pin->rank == rank && pin->target.group == plan->group &&
            pin->target.position == plan->position) {
            return pin;
        }
    }
    return NULL;
}

/* The pin of a COPY page; made when there is none. NULL in *out: it is not to be copied after all.
 */
static kvarve_status pin_page(session_handle *handle, uint32_t rank, const kvarve_page_plan *plan,
                              const put_pin **out, kvarve_error *err)
{
    put_pin *pin = find_pin(handle, rank, plan);
    kvarve_status status;

    *out = pin;
    if (pin != NULL) {
        return KVARVE_OK;
    }
    handle->has_by_place = handle->has_by_place || table_init(&handle->by_place);
    pin = handle->has_by_place ? kvarve_allocate(sizeof *pin) : NULL;
    if (pin == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "put: pin a page");
    }
    status = store_put_copy_begin(handle->shared->put, rank, plan->group, plan->position,
                                  &pin->target, err);
    if (status != KVARVE_OK || pin->target.page == NULL) {
        kvarve_release(pin);
        return status;
    }
    pin->rank = rank;
    table_add(&handle->by_place, &pin->link, place_hash(rank, plan->group, plan->position));
    kvarve_list_append(&handle->pins, &pin->in_handle);
    handle->of->put_pin_count++;
    handle->is_acked = false;
    *out = pin;
    return KVARVE_OK;
}

static wire_plan_entry entry_of(const session_host *host, const kvarve_page_plan *plan,
                                const put_pin *pin)
{
    wire_plan_entry entry = {.group = plan->group,
                             .action = plan->action,
                             .position = plan->position,
                             .first_token = plan->first_token,
                             .tokens = plan->tokens,
                             .size = plan->size};

    if (plan->address != NULL) {
        entry.offset = host_offset(host, plan->address);
    }
    if (pin != NULL && pin->target.has_expected) {
        entry.has_expected = 1;
        memcpy(entry.expected, pin->target.expected.bytes, sizeof entry.expected);
    }
    return entry;
}

/* Entries from, from + 1, ... of plan[count] into the reply. All COPY pages before are pinned too:
 * the store has counted them as told. */
static kvarve_status write_plan(session_handle *handle, uint32_t rank, const kvarve_page_plan *plan,
                                size_t count, size_t from, kvarve_error *err)
{
    session *at = handle->of;
    kvarve_status status = KVARVE_OK;

    for (size_t i = 0; i < count && status == KVARVE_OK; i++) {
        const put_pin *pin = NULL;
        wire_plan_entry entry;

        if (plan[i].action == KVARVE_PAGE_COPY) {
            status = pin_page(handle, rank, &plan[i], &pin, err);
        }
        if (status == KVARVE_OK && i >= from) {
            entry = entry_of(at->host, &plan[i], pin);
            status = reply_item(at, WIRE_PUT_PLANNED, (uint32_t)(i - from), &entry, err);
        }
    }
    if (status != KVARVE_OK) {
        handle->is_exposed = true; /* places may have been told that are not pinned */
    }
    return status;
}

/* Entries from, ..., from + count - 1 of the rank's plan into the reply. */
static kvarve_status write_part(session_handle *handle, uint32_t rank, size_t from, size_t count,
                                kvarve_error *err)
{
    kvarve_page_plan *plan = kvarve_allocate_array(from + count, sizeof *plan);
    size_t total = 0;
    kvarve_status status;

    if (plan == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "put: a plan of %zu", from + count);
    }
    status = store_put_plan(handle->shared->put, rank, plan, from + count, &total, err);
    if (status == KVARVE_OK) {
        status = write_plan(handle, rank, plan, from + count, from, err);
    }
    kvarve_release(plan);
    return status;
}

kvarve_status take_put_plan(session *at, const wire_message *request, kvarve_error *err)
{
    const wire_put_plan *from = &request->as.put_plan;
    const uint64_t most = kvarve_min_u64(from->max, WIRE_ITEMS_PUT_PLANNED);
    wire_message reply = {.type = WIRE_PUT_PLANNED, .id = request->id};
    size_t total = 0;
    session_handle *handle;
    kvarve_status status = handle_find_rank(at, HANDLE_PUT, from->put, from->rank, &handle, err);

    if (status == KVARVE_OK) {
        status = store_put_plan(handle->shared->put, from->rank, NULL, 0, &total, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    reply.count = from->from < total ? (uint32_t)kvarve_min_u64(total - from->from, most) : 0;
    if (reply.count > 0) {
        status = write_part(handle, from->rank, (size_t)from->from, reply.count, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    reply.as.put_planned.total = total;
    session_reply(at, &reply);
    return KVARVE_OK;
}

kvarve_status take_put_first_tokens(session *at, const wire_message *request, kvarve_error *err)
{
    wire_message reply = {.type = WIRE_PUT_FIRST_TOKENS_ARE, .id = request->id};
    wire_number firsts[KVARVE_GROUPS_MAX];
    session_handle *handle;
    const kvarve_status status =
        handle_find(at, HANDLE_PUT, request->as.put_first_tokens.put, &handle, err);

    if (status != KVARVE_OK) {
        return status;
    }
    reply.count = store_namespace_groups(handle->shared->name);
    reply.items = firsts;
    for (uint32_t group = 0; group < reply.count; group++) {
        firsts[group].value = store_put_first_token(handle->shared->put, group);
    }
    session_reply(at, &reply);
    return KVARVE_OK;
}

/* --- pins --- */

void put_pins_end(session_handle *handle, uint32_t rank)
{
    /* What was acked is the store's by now, and what was not is aborted: with no digest at all each
     * end would go through the put's pages once more, to take back an offer that is over (I2). */
    static const page_digest nothing = {{0}};
    kvarve_link *link = handle->pins.next;

    while (link != &handle->pins) {
        put_pin *pin = KVARVE_LIST_ITEM(link, put_pin, in_handle);

        link = link->next;
        if (rank != EVERY_RANK && pin->rank != rank) {
            continue;
        }
        table_remove(&handle->by_place, &pin->link);
        kvarve_list_remove(&pin->in_handle);
        handle->of->put_pin_count--;
        store_put_copy_end(handle->shared->put, &pin->target, &nothing);
        kvarve_release(pin);
    }
}

bool put_pins_have(const session_handle *handle, uint32_t rank)
{
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &handle->pins) {
        if (KVARVE_LIST_ITEM(link, put_pin, in_handle)->rank == rank) {
            return true;
        }
    }
    return false;
}
