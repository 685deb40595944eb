/*
 * attach.c - puts and leases that several processes of one engine hold together.
 *
 * Whoever began one exports it: a random token. The process of a rank attaches with it and gets a
 * handle of its own, for that rank alone. The put or lease ends with its last handle.
 *
 * Threads: the daemon's one.
 */
#include <string.h>

#include "base/fail.h"
#include "session/session_private.h"

static handle_kind kind_of(uint32_t wire_kind)
{
    return wire_kind == WIRE_HANDLE_PUT ? HANDLE_PUT : HANDLE_LEASE;
}

kvarve_status take_export(session *at, const wire_message *request, kvarve_error *err)
{
    const wire_export *from = &request->as.export;
    wire_message reply = {.type = WIRE_EXPORTED, .id = request->id};
    kvarve_random *random = at->host->env->random;
    session_handle *handle;
    shared_object *shared;
    kvarve_status status = handle_find_owner(at, kind_of(from->kind), from->handle, &handle, err);
    int rc;

    if (status != KVARVE_OK) {
        return status;
    }
    shared = handle->shared;
    if (!shared->is_exported) {
        rc = random->fill(random, shared->token, sizeof shared->token);
        if (rc != 0) {
            return kvarve_fail_io(err, rc, "export: draw a token");
        }
        host_add_token(at->host, shared);
    }
    memcpy(reply.as.exported.token, shared->token, sizeof shared->token);
    session_reply(at, &reply);
    return KVARVE_OK;
}

/* May this session be `rank` of it? */
static kvarve_status check_attach(const session *at, const session_handle *space,
                                  const shared_object *shared, uint32_t rank, kvarve_error *err)
{
    kvarve_link *link;

    if (shared->uid != at->peer.uid) {
        return KVARVE_MISS; /* as if there were no such token */
    }
    if (strcmp(store_namespace_text(space->name), store_namespace_text(shared->name)) != 0) {
        return kvarve_fail(err, KVARVE_INVALID, "attach: it is of another namespace");
    }
    if (rank >= store_namespace_ranks(shared->name)) {
        return kvarve_fail(err, KVARVE_INVALID, "attach as rank %u: 0 .. %u", rank,
                           store_namespace_ranks(shared->name) - 1);
    }
    KVARVE_LIST_FOREACH (link, &shared->handles) {
        const session_handle *other = KVARVE_LIST_ITEM(link, session_handle, in_shared);

        if (other->rank == rank || (shared->kind == HANDLE_PUT && put_pins_have(other, rank))) {
            return kvarve_fail(err, KVARVE_INVALID, "attach as rank %u: it is somebody's already",
                               rank);
        }
    }
    return KVARVE_OK;
}

static void reply_attached(session *at, uint64_t id, const session_handle *handle)
{
    wire_message reply = {.type = WIRE_ATTACHED, .id = id};
    wire_attached *out = &reply.as.attached;
    kvarve_boundary leased;

    out->handle = handle->number;
    if (handle->kind == HANDLE_PUT) {
        out->kind = WIRE_HANDLE_PUT;
        out->status = put_status_of(handle->shared->put);
    } else {
        out->kind = WIRE_HANDLE_LEASE;
        store_lease_boundary(handle->shared->lease, &leased);
        out->leased = boundary_of(&leased);
    }
    session_reply(at, &reply);
}

kvarve_status take_attach(session *at, const wire_message *request, kvarve_error *err)
{
    const wire_attach *from = &request->as.attach;
    shared_object *shared = host_find_token(at->host, from->token);
    session_handle *space;
    session_handle *handle = NULL;
    kvarve_status status = handle_find(at, HANDLE_SPACE, from->space, &space, err);

    if (status == KVARVE_OK) {
        status = shared == NULL ? KVARVE_MISS : check_attach(at, space, shared, from->rank, err);
    }
    if (status == KVARVE_OK) {
        status = handle_make(at, shared->kind, 0, &handle, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    handle->shared = shared;
    handle->rank = from->rank;
    kvarve_list_append(&shared->handles, &handle->in_shared);
    handle_add(handle);
    reply_attached(at, request->id, handle);
    return KVARVE_OK;
}

/* Blocks of an engine are read and written by its own processes alone, never from here: what is
 * asked is always so. A client with copies of its own in flight waits for those itself. */
kvarve_status take_fence(session *at, const wire_message *request, kvarve_error *err)
{
    const wire_fence *from = &request->as.fence;
    const uint8_t *blocks;
    session_handle *space;
    kvarve_status status = handle_find(at, HANDLE_SPACE, from->space, &space, err);

    if (status == KVARVE_OK) {
        status = letter_find(at, from->blocks, &blocks, err);
    }
    if (status == KVARVE_OK && (from->rank >= store_namespace_ranks(space->name) ||
                                from->group >= store_namespace_groups(space->name))) {
        status = kvarve_fail(err, KVARVE_INVALID, "fence: rank %u group %u: 0 .. %u, 0 .. %u",
                             from->rank, from->group, store_namespace_ranks(space->name) - 1,
                             store_namespace_groups(space->name) - 1);
    }
    if (status == KVARVE_OK) {
        session_reply_done(at, request->id);
    }
    return status;
}
