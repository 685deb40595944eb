/*
 * handle.c - what a session has open, by number, and how each comes to its end.
 *
 * Invariants
 *   I1  A client reaches what its own session opened or attached, and nothing else: numbers are
 *       looked up in the session's table alone, and are never used twice.
 *   I2  Of a shared put a rank is one handle's: the one that attached as it, else that of whoever
 *       began the put.
 *   I3  A slot that a client may be touching stays taken until that client said that it is done, or
 *       is dead. A put that lost an owner is aborted before its slots are free.
 *
 * Threads: the daemon's one.
 */
#include <inttypes.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/fail.h"
#include "session/session_private.h"

static const char *kind_text(handle_kind kind)
{
    static const char *const texts[] = {"namespace", "put", "lease"};

    return texts[kind];
}

static uint32_t count_all(const session *at)
{
    return at->counts[HANDLE_SPACE] + at->counts[HANDLE_PUT] + at->counts[HANDLE_LEASE];
}

kvarve_status handle_make(session *at, handle_kind kind, uint64_t cookie, session_handle **out,
                          kvarve_error *err)
{
    session_handle *made;

    if (count_all(at) >= at->host->limits.handles) {
        return kvarve_fail(err, KVARVE_NO_SPACE, "%s: %u handles are open, at most %u",
                           kind_text(kind), count_all(at), at->host->limits.handles);
    }
    made = kvarve_allocate(sizeof *made);
    if (made == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "%s: its handle", kind_text(kind));
    }
    made->of = at;
    made->kind = kind;
    made->rank = EVERY_RANK;
    kvarve_list_init(&made->in_session);
    kvarve_list_init(&made->in_shared);
    kvarve_list_init(&made->pins);
    host_add_cookie(&made->cookie, at, cookie);
    *out = made;
    return KVARVE_OK;
}

kvarve_status handle_make_shared(session *at, handle_kind kind, uint64_t cookie,
                                 session_handle **out, kvarve_error *err)
{
    session_handle *made = NULL;
    const kvarve_status status = handle_make(at, kind, cookie, &made, err);

    if (status != KVARVE_OK || made == NULL) {
        return status;
    }
    made->shared = kvarve_allocate(sizeof *made->shared);
    if (made->shared == NULL) {
        handle_discard(made);
        return kvarve_fail(err, KVARVE_NO_MEMORY, "%s: its state", kind_text(kind));
    }
    made->shared->kind = kind;
    made->shared->uid = at->peer.uid;
    kvarve_list_init(&made->shared->handles);
    kvarve_list_append(&made->shared->handles, &made->in_shared);
    *out = made;
    return KVARVE_OK;
}

static void free_handle(session_handle *handle)
{
    KVARVE_ASSERT(kvarve_list_is_empty(&handle->pins));
    host_remove_cookie(&handle->cookie);
    if (handle->has_by_place) {
        table_deinit(&handle->by_place);
    }
    kvarve_release(handle);
}

void handle_discard(session_handle *handle)
{
    kvarve_list_remove(&handle->in_shared);
    if (handle->shared != NULL && kvarve_list_is_empty(&handle->shared->handles)) {
        kvarve_release(handle->shared);
    }
    free_handle(handle);
}

void handle_add(session_handle *handle)
{
    session *at = handle->of;

    handle->number = ++at->next_number;
    table_add(&at->handles, &handle->link, table_mix(handle->number));
    kvarve_list_append(&at->in_order, &handle->in_session);
    at->counts[handle->kind]++;
}

kvarve_status handle_find(const session *at, handle_kind kind, uint64_t number,
                          session_handle **out, kvarve_error *err)
{
    kvarve_table_link *link = table_first(&at->handles, table_mix(number));

    while (link != NULL && KVARVE_TABLE_ITEM(link, session_handle, link)->number != number) {
        link = table_next(link);
    }
    if (link == NULL || KVARVE_TABLE_ITEM(link, session_handle, link)->kind != kind) { /* I1 */
        return kvarve_fail(err, KVARVE_INVALID, "%s: this client has none of number %" PRIu64,
                           kind_text(kind), number);
    }
    *out = KVARVE_TABLE_ITEM(link, session_handle, link);
    return KVARVE_OK;
}

bool handle_has_rank(const session_handle *handle, uint32_t rank)
{
    kvarve_link *link;

    if (handle->rank != EVERY_RANK) {
        return handle->rank == rank;
    }
    if (handle->kind == HANDLE_LEASE) {
        return true; /* whoever reads beside others disturbs nobody */
    }
    KVARVE_LIST_FOREACH (link, &handle->shared->handles) { /* I2 */
        if (KVARVE_LIST_ITEM(link, session_handle, in_shared)->rank == rank) {
            return false;
        }
    }
    return true;
}

kvarve_status handle_find_rank(const session *at, handle_kind kind, uint64_t number, uint32_t rank,
                               session_handle **out, kvarve_error *err)
{
    session_handle *found = NULL;
    const kvarve_status status = handle_find(at, kind, number, &found, err);

    if (status != KVARVE_OK || found == NULL) {
        return status;
    }
    if (!handle_has_rank(found, rank)) {
        return kvarve_fail(err, KVARVE_INVALID, "%s %" PRIu64 ": rank %u is another client's",
                           kind_text(kind), number, rank);
    }
    *out = found;
    return KVARVE_OK;
}

kvarve_status handle_find_owner(const session *at, handle_kind kind, uint64_t number,
                                session_handle **out, kvarve_error *err)
{
    session_handle *found = NULL;
    const kvarve_status status = handle_find(at, kind, number, &found, err);

    if (status != KVARVE_OK || found == NULL) {
        return status;
    }
    if (found->rank != EVERY_RANK) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "%s %" PRIu64 ": attached as rank %u; that is for whoever began it",
                           kind_text(kind), number, found->rank);
    }
    *out = found;
    return KVARVE_OK;
}

/* --- the end --- */

static bool is_alone(const session_handle *handle)
{
    return handle->shared->handles.next == &handle->in_shared &&
           handle->shared->handles.previous == &handle->in_shared;
}

static void fail_rank(store_put *put, uint32_t rank)
{
    const kvarve_status status = store_put_fail(put, rank, NULL);

    (void)status; /* an aborted put is told by its state */
}

/* What it began to copy does not come, whoever else has the put. */
static void give_up_ranks(session_handle *handle)
{
    store_put *put = handle->shared->put;

    if (is_alone(handle)) {
        store_put_abort(put, KVARVE_REFUSED_CALLER); /* not when it is READY */
        put_pins_end(handle, EVERY_RANK);
        return;
    }
    while (!kvarve_list_is_empty(&handle->pins)) {
        const uint32_t rank = KVARVE_LIST_ITEM(handle->pins.next, put_pin, in_handle)->rank;

        fail_rank(put, rank);
        put_pins_end(handle, rank);
    }
    if (handle->rank != EVERY_RANK && !handle->is_acked &&
        store_put_state(put) < KVARVE_PUT_READY) {
        fail_rank(put, handle->rank);
    }
}

static void leave_shared(session_handle *handle)
{
    shared_object *shared = handle->shared;

    kvarve_list_remove(&handle->in_shared);
    if (!kvarve_list_is_empty(&shared->handles)) {
        return;
    }
    host_remove_token(handle->of->host, shared);
    if (shared->kind == HANDLE_PUT) {
        store_put_release(shared->put);
    } else {
        store_lease_release(shared->lease);
    }
    kvarve_release(shared);
}

void handle_end(session_handle *handle)
{
    session *at = handle->of;

    table_remove(&at->handles, &handle->link);
    kvarve_list_remove(&handle->in_session);
    at->counts[handle->kind]--;
    host_remove_cookie(&handle->cookie);
    switch (handle->kind) {
    case HANDLE_SPACE:
        store_namespace_release(handle->name);
        break;
    case HANDLE_PUT:
        give_up_ranks(handle);
        leave_shared(handle);
        break;
    case HANDLE_LEASE:
        page_pins_end(handle);
        leave_shared(handle);
        break;
    }
    free_handle(handle);
}

void handle_leave(session_handle *handle)
{
    if (handle->kind == HANDLE_PUT) { /* I3: pins stay, also those of the aborted put */
        store_put_abort(handle->shared->put, handle->rank == EVERY_RANK
                                                 ? KVARVE_REFUSED_CALLER
                                                 : KVARVE_REFUSED_RANK_FAILED);
    }
    if (kvarve_list_is_empty(&handle->pins) && !handle->is_exposed) {
        handle_end(handle);
    }
}
