/*
 * put.c - requests about puts, but for their plans (put_plan.c).
 *
 * Threads: the daemon's one.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "key/key.h"
#include "session/session_private.h"

wire_put_status put_status_of(const store_put *put)
{
    wire_put_status status = {.state = store_put_state(put),
                              .refusal = store_put_refusal(put),
                              .is_settling = store_put_is_settling(put)};

    status.has_id = store_put_id(put, status.id, NULL) == KVARVE_OK;
    return status;
}

static void reply_state(session *at, uint64_t id, const store_put *put)
{
    wire_message reply = {.type = WIRE_PUT_STATE, .id = id};

    reply.as.put_state.status = put_status_of(put);
    session_reply(at, &reply);
}

/* --- arguments --- */

/* What begin, extend and close bring along. */
typedef struct put_arguments {
    kvarve_prefix *prefix;
    kvarve_page_digest *digests;
    size_t digest_count;
    uint64_t *sizes;
    kvarve_put_options options;
} put_arguments;

static void release_arguments(put_arguments *arguments)
{
    prefix_return(arguments->prefix);
    kvarve_release(arguments->digests);
    kvarve_release(arguments->sizes);
}

static kvarve_status take_options(const session *at, const wire_put_options *from,
                                  const store_namespace *name, put_arguments *out,
                                  kvarve_error *err)
{
    const size_t sizes = (size_t)store_namespace_ranks(name) * store_namespace_groups(name);
    kvarve_status status =
        letter_digests(at, from->digests, &out->digests, &out->digest_count, err);

    if (status == KVARVE_OK) {
        status = letter_numbers(at, from->sizes, sizes, &out->sizes, err);
    }
    out->options = (kvarve_put_options){.struct_size = sizeof out->options,
                                        .tokens = from->tokens,
                                        .draft_tokens = from->draft_tokens,
                                        .kind = from->kind,
                                        .timeout_ms = from->timeout_ms,
                                        .flags = from->flags,
                                        .digest_count = (uint32_t)out->digest_count,
                                        .digests = out->digests,
                                        .sizes = out->sizes};
    return status;
}

/* --- begin --- */

static kvarve_status begin(session *at, const wire_message *request, store_namespace *name,
                           put_arguments *arguments, session_handle **out, kvarve_error *err)
{
    session_handle *handle = NULL;
    kvarve_status status =
        handle_make_shared(at, HANDLE_PUT, request->as.put_begin.options.cookie, &handle, err);

    if (status != KVARVE_OK) {
        return status;
    }
    arguments->options.cookie = handle->cookie.number;
    status =
        store_put_begin(name, arguments->prefix, &arguments->options, &handle->shared->put, err);
    if (status != KVARVE_OK) {
        handle_discard(handle);
        return status;
    }
    handle->shared->name = name;
    handle_add(handle);
    *out = handle;
    return KVARVE_OK;
}

kvarve_status take_put_begin(session *at, const wire_message *request, kvarve_error *err)
{
    const wire_put_begin *from = &request->as.put_begin;
    wire_message reply = {.type = WIRE_PUT_BEGUN, .id = request->id};
    put_arguments arguments = {0};
    session_handle *space;
    session_handle *handle = NULL;
    kvarve_status status = handle_find(at, HANDLE_SPACE, from->space, &space, err);

    if (status != KVARVE_OK) {
        return status;
    }
    status = letter_prefix(at, &from->prefix, &arguments.prefix, err);
    if (status == KVARVE_OK) {
        status = take_options(at, &from->options, space->name, &arguments, err);
    }
    if (status == KVARVE_OK) {
        status = begin(at, request, space->name, &arguments, &handle, err);
    }
    release_arguments(&arguments);
    if (status != KVARVE_OK) {
        return status;
    }
    reply.as.put_begun.put = handle->number;
    reply.as.put_begun.status = put_status_of(handle->shared->put);
    session_reply(at, &reply);
    return KVARVE_OK;
}

/* --- waiting --- */

static bool has_reached(const store_put *put, uint32_t wanted)
{
    const uint32_t state = store_put_state(put);

    if (state == KVARVE_PUT_ABORTED || state == KVARVE_PUT_PRESENT || state == KVARVE_PUT_DURABLE ||
        store_put_refusal(put) != KVARVE_REFUSED_NOT) {
        return true; /* a refusal of a READY put: its deadline passed, the commit goes on */
    }
    if (wanted == KVARVE_PUT_STAGED && store_put_is_settling(put)) {
        return false;
    }
    return state >= wanted;
}

static kvarve_status try_put_wait(session *at, const wire_message *request, bool is_last,
                                  kvarve_error *err)
{
    session_handle *handle;
    const kvarve_status status =
        handle_find(at, HANDLE_PUT, request->as.put_wait.put, &handle, err);

    if (status != KVARVE_OK) {
        return status;
    }
    if (!is_last && !has_reached(handle->shared->put, request->as.put_wait.state)) {
        return KVARVE_BUSY;
    }
    reply_state(at, request->id, handle->shared->put);
    return KVARVE_OK;
}

kvarve_status take_put_wait(session *at, const wire_message *request, kvarve_error *err)
{
    return parked_try(at, request, try_put_wait, request->as.put_wait.timeout_ms, err);
}

/* --- ranks --- */

kvarve_status take_put_ack(session *at, const wire_message *request, kvarve_error *err)
{
    const wire_put_ack *from = &request->as.put_ack;
    kvarve_page_digest *digests = NULL;
    size_t count = 0;
    session_handle *handle;
    kvarve_status status = handle_find_rank(at, HANDLE_PUT, from->put, from->rank, &handle, err);

    if (status != KVARVE_OK) {
        return status;
    }
    status = letter_digests(at, from->digests, &digests, &count, err);
    if (status != KVARVE_OK) {
        return status;
    }
    status = store_put_ack(handle->shared->put, from->rank, digests, count, err);
    kvarve_release(digests);
    if (status == KVARVE_OK || status == KVARVE_MISS) { /* MISS: it was over, and is drained now */
        put_pins_end(handle, from->rank);
        handle->is_acked = true;
    }
    if (status == KVARVE_OK) {
        reply_state(at, request->id, handle->shared->put);
    }
    return status;
}

kvarve_status take_put_fail(session *at, const wire_message *request, kvarve_error *err)
{
    const wire_put_fail *from = &request->as.put_fail;
    session_handle *handle;
    kvarve_status status = handle_find_rank(at, HANDLE_PUT, from->put, from->rank, &handle, err);

    if (status == KVARVE_OK) {
        status = store_put_fail(handle->shared->put, from->rank, err);
    }
    if (status == KVARVE_OK) {
        put_pins_end(handle, from->rank);
        reply_state(at, request->id, handle->shared->put);
    }
    return status;
}

/* --- open puts --- */

/* Every rank is asked anew. */
static void forget_acks(const shared_object *shared)
{
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &shared->handles) {
        KVARVE_LIST_ITEM(link, session_handle, in_shared)->is_acked = false;
    }
}

kvarve_status take_put_extend(session *at, const wire_message *request, kvarve_error *err)
{
    const wire_put_extend *from = &request->as.put_extend;
    put_arguments arguments = {0};
    session_handle *handle;
    kvarve_status status = handle_find_owner(at, HANDLE_PUT, from->put, &handle, err);

    if (status != KVARVE_OK) {
        return status;
    }
    status = letter_prefix(at, &from->prefix, &arguments.prefix, err);
    if (status == KVARVE_OK) {
        status =
            letter_digests(at, from->digests, &arguments.digests, &arguments.digest_count, err);
    }
    if (status == KVARVE_OK) {
        status = store_put_extend(handle->shared->put, arguments.prefix, from->tokens,
                                  arguments.digests, arguments.digest_count, err);
    }
    release_arguments(&arguments);
    if (status == KVARVE_OK) {
        forget_acks(handle->shared);
        reply_state(at, request->id, handle->shared->put);
    }
    return status;
}

kvarve_status take_put_close(session *at, const wire_message *request, kvarve_error *err)
{
    const wire_put_close *from = &request->as.put_close;
    put_arguments arguments = {0};
    session_handle *handle;
    kvarve_status status = handle_find_owner(at, HANDLE_PUT, from->put, &handle, err);

    if (status != KVARVE_OK) {
        return status;
    }
    status = letter_prefix(at, &from->prefix, &arguments.prefix, err);
    if (status == KVARVE_OK) {
        status = take_options(at, &from->options, handle->shared->name, &arguments, err);
    }
    if (status == KVARVE_OK) {
        status = store_put_close(handle->shared->put, arguments.prefix, &arguments.options, err);
    }
    release_arguments(&arguments);
    if (status == KVARVE_OK) {
        forget_acks(handle->shared);
        reply_state(at, request->id, handle->shared->put);
    }
    return status;
}

/* --- the end --- */

kvarve_status take_put_abort(session *at, const wire_message *request, kvarve_error *err)
{
    const wire_put_abort *from = &request->as.put_abort;
    session_handle *handle;
    kvarve_status status = handle_find_owner(at, HANDLE_PUT, from->put, &handle, err);

    if (status != KVARVE_OK) {
        return status;
    }
    if (from->refusal == KVARVE_REFUSED_IO || from->refusal == KVARVE_REFUSED_FAILED) {
        /* They take back what others may have found already; the store alone knows of such. */
        return kvarve_fail(err, KVARVE_INVALID, "put: refusal %u is not a caller's", from->refusal);
    }
    store_put_abort(handle->shared->put, from->refusal);
    reply_state(at, request->id, handle->shared->put);
    return KVARVE_OK;
}

kvarve_status take_put_release(session *at, const wire_message *request, kvarve_error *err)
{
    session_handle *handle;
    const kvarve_status status =
        handle_find(at, HANDLE_PUT, request->as.put_release.put, &handle, err);

    if (status == KVARVE_OK) {
        handle_end(handle);
        session_reply_done(at, request->id);
    }
    return status;
}
