/*
 * space.c - the greeting, and namespaces.
 *
 * Threads: the daemon's one.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fail.h"
#include "session/session_private.h"

static kvarve_status check_hello(const session *at, const wire_hello *hello, kvarve_error *err)
{
    if (hello->version_newest < WIRE_VERSION_OLDEST || hello->version_oldest > WIRE_VERSION ||
        hello->version_oldest > hello->version_newest) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED,
                           "hello: the client speaks versions %u .. %u, the daemon %u .. %u",
                           hello->version_oldest, hello->version_newest, WIRE_VERSION_OLDEST,
                           WIRE_VERSION);
    }
    if (hello->letter_bytes > at->letter_bytes) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "hello: a letter of %" PRIu64 " bytes, %" PRIu64 " came with it",
                           hello->letter_bytes, at->letter_bytes);
    }
    return KVARVE_OK;
}

kvarve_status take_hello(session *at, const wire_message *request, kvarve_error *err)
{
    const wire_hello *hello = &request->as.hello;
    const session_host *host = at->host;
    wire_message reply = {.type = WIRE_WELCOME, .id = request->id};
    const kvarve_status status = check_hello(at, hello, err);

    if (status != KVARVE_OK) {
        return status;
    }
    at->is_greeted = true;
    at->letter_used = hello->letter_bytes;
    reply.as.welcome = (wire_welcome){
        .version = (uint32_t)kvarve_min_u64(hello->version_newest, WIRE_VERSION),
        .io_timeout_ms = host->io_timeout_ms,
        .epoch = host->epoch,
        .arena_bytes = host->arena_bytes,
    };
    memcpy(reply.as.welcome.store, host->uuid.bytes, sizeof reply.as.welcome.store);
    memcpy(reply.as.welcome.fingerprint, host->fingerprint.bytes,
           sizeof reply.as.welcome.fingerprint);
    session_reply(at, &reply);
    return KVARVE_OK;
}

/* The documents of a namespace, copied out of the letter. */
typedef struct space_texts {
    char *identity;
    char *numerics;
    char *salt;
    char *draft_identity;
} space_texts;

static kvarve_status take_texts(const session *at, const wire_namespace_open *open,
                                space_texts *out, kvarve_error *err)
{
    kvarve_status status = letter_text(at, open->identity, &out->identity, err);

    if (status == KVARVE_OK) {
        status = letter_text(at, open->numerics, &out->numerics, err);
    }
    if (status == KVARVE_OK) {
        status = letter_text(at, open->salt, &out->salt, err);
    }
    if (status == KVARVE_OK) {
        status = letter_text(at, open->draft_identity, &out->draft_identity, err);
    }
    if (status == KVARVE_OK && out->identity == NULL) {
        status = kvarve_fail(err, KVARVE_INVALID, "namespace: no identity");
    }
    return status;
}

static void release_texts(space_texts *texts)
{
    kvarve_release(texts->identity);
    kvarve_release(texts->numerics);
    kvarve_release(texts->salt);
    kvarve_release(texts->draft_identity);
}

static void take_groups(const wire_message *request, kvarve_group out[KVARVE_GROUPS_MAX])
{
    for (uint32_t i = 0; i < request->count; i++) {
        wire_group group;

        wire_item(request, i, &group);
        out[i] = (kvarve_group){.page_class = group.page_class,
                                .flags = group.flags,
                                .span_tokens = group.span_tokens,
                                .window_tokens = group.window_tokens,
                                .page_bytes = group.page_bytes};
    }
}

static kvarve_status open_space(session *at, const wire_message *request, const space_texts *texts,
                                session_handle **out, kvarve_error *err)
{
    kvarve_group groups[KVARVE_GROUPS_MAX];
    const kvarve_namespace_options options = {.struct_size = sizeof options,
                                              .identity_json = texts->identity,
                                              .numerics_json = texts->numerics,
                                              .salt = texts->salt,
                                              .draft_identity_json = texts->draft_identity,
                                              .groups = groups,
                                              .group_count = request->count,
                                              .rank_count = request->as.namespace_open.rank_count,
                                              .flags = request->as.namespace_open.flags};
    session_handle *handle = NULL;
    kvarve_status status = handle_make(at, HANDLE_SPACE, 0, &handle, err);

    if (status != KVARVE_OK) {
        return status;
    }
    take_groups(request, groups);
    status = store_namespace_open(at->host->store, &options, &handle->name, err);
    if (status != KVARVE_OK) {
        handle_discard(handle);
        return status;
    }
    handle_add(handle);
    *out = handle;
    return KVARVE_OK;
}

kvarve_status take_namespace_open(session *at, const wire_message *request, kvarve_error *err)
{
    wire_message reply = {.type = WIRE_NAMESPACE_OPENED, .id = request->id};
    session_handle *handle = NULL;
    space_texts texts = {0};
    kvarve_status status = take_texts(at, &request->as.namespace_open, &texts, err);

    if (status == KVARVE_OK) {
        status = open_space(at, request, &texts, &handle, err);
    }
    release_texts(&texts);
    if (status != KVARVE_OK) {
        return status;
    }
    reply.as.namespace_opened.space = handle->number;
    wire_text_set(reply.as.namespace_opened.text, sizeof reply.as.namespace_opened.text,
                  store_namespace_text(handle->name));
    session_reply(at, &reply);
    return KVARVE_OK;
}

kvarve_status take_namespace_release(session *at, const wire_message *request, kvarve_error *err)
{
    session_handle *handle;
    const kvarve_status status =
        handle_find(at, HANDLE_SPACE, request->as.namespace_release.space, &handle, err);

    if (status == KVARVE_OK) {
        handle_end(handle);
        session_reply_done(at, request->id);
    }
    return status;
}
