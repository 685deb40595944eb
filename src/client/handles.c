/*
 * handles.c - namespaces through the client door, and records that several calls have.
 *
 * Threads: under the client's lock.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "client/client_private.h"

/* --- records --- */

kvarve_status client_put_digests(client *at, const kvarve_page_digest *digests, size_t count,
                                 wire_letter *out, kvarve_error *err)
{
    kvarve_status status;
    uint8_t *bytes;

    if (count > WIRE_LETTER_MAX / WIRE_RECORD_SIZE_PAGE_DIGEST) {
        return kvarve_fail(err, KVARVE_INVALID, "put: %zu digests", count);
    }
    status = client_letter_take(&at->letter, count * WIRE_RECORD_SIZE_PAGE_DIGEST, out, err);
    if (status != KVARVE_OK) {
        return status;
    }
    bytes = client_letter_bytes(&at->letter, *out);
    for (size_t i = 0; i < count && status == KVARVE_OK; i++) {
        wire_page_digest one = {
            .rank = digests[i].rank, .group = digests[i].group, .position = digests[i].position};

        memcpy(one.digest, digests[i].digest, sizeof one.digest);
        status = wire_record_encode(WIRE_RECORD_PAGE_DIGEST, &one,
                                    bytes + i * WIRE_RECORD_SIZE_PAGE_DIGEST, err);
    }
    if (status != KVARVE_OK) {
        client_letter_give(&at->letter, *out);
    }
    return status;
}

void client_boundary_of(const wire_boundary *from, kvarve_boundary *out)
{
    *out = (kvarve_boundary){.tokens = from->tokens,
                             .bytes = from->bytes,
                             .bytes_to_read = from->bytes_to_read,
                             .expected_ns = from->expected_ns,
                             .draft_tokens = from->draft_tokens,
                             .kind = from->kind,
                             .tier = from->tier,
                             .state = from->state,
                             .flags = from->flags};
    memcpy(out->id, from->id, sizeof out->id);
}

void client_miss_of(const wire_miss *from, kvarve_miss *out)
{
    *out = (kvarve_miss){.reason = from->reason,
                         .group = from->group,
                         .common_tokens = from->common_tokens,
                         .nearest_tokens = from->nearest_tokens};
    memcpy(out->field, from->field, sizeof out->field);
}

/* --- namespaces --- */

static kvarve_status check_groups(const kvarve_namespace_options *options, kvarve_error *err)
{
    if (options->groups == NULL || options->group_count == 0 ||
        options->group_count > KVARVE_GROUPS_MAX) {
        return kvarve_fail(err, KVARVE_INVALID, "namespace: %u groups, 1 .. %u",
                           options->group_count, KVARVE_GROUPS_MAX);
    }
    for (uint32_t i = 0; i < options->group_count; i++) {
        const kvarve_group *group = &options->groups[i];

        if (group->reserved[0] != 0 || group->reserved[1] != 0 || group->reserved[2] != 0) {
            return kvarve_fail(err, KVARVE_INVALID, "group %u: reserved is not 0", i);
        }
    }
    if (options->identity_json == NULL) {
        return kvarve_fail(err, KVARVE_INVALID, "namespace: identity_json is NULL");
    }
    return KVARVE_OK;
}

static kvarve_status put_text(client *at, const char *text, wire_letter *out, kvarve_error *err)
{
    return client_letter_put(&at->letter, text, text == NULL ? 0 : strlen(text), out, err);
}

/* The documents into the letter; what is there on failure is given back by the caller. */
static kvarve_status put_documents(client *at, const kvarve_namespace_options *options,
                                   wire_namespace_open *out, kvarve_error *err)
{
    kvarve_status status = put_text(at, options->identity_json, &out->identity, err);

    if (status == KVARVE_OK) {
        status = put_text(at, options->numerics_json, &out->numerics, err);
    }
    if (status == KVARVE_OK) {
        status = put_text(at, options->salt, &out->salt, err);
    }
    if (status == KVARVE_OK) {
        status = put_text(at, options->draft_identity_json, &out->draft_identity, err);
    }
    return status;
}

static void give_documents(client *at, const wire_namespace_open *documents)
{
    client_letter_give(&at->letter, documents->identity);
    client_letter_give(&at->letter, documents->numerics);
    client_letter_give(&at->letter, documents->salt);
    client_letter_give(&at->letter, documents->draft_identity);
}

static kvarve_status ask_open(client_namespace *made, const kvarve_namespace_options *options,
                              kvarve_error *err)
{
    client_exchange what = {
        .request = {.type = WIRE_NAMESPACE_OPEN, .count = options->group_count}};
    wire_namespace_open *request = &what.request.as.namespace_open;
    wire_group groups[KVARVE_GROUPS_MAX];
    kvarve_status status;

    *request = (wire_namespace_open){.rank_count = options->rank_count, .flags = options->flags};
    for (uint32_t i = 0; i < options->group_count; i++) {
        const kvarve_group *group = &options->groups[i];

        groups[i] = (wire_group){.page_class = group->page_class,
                                 .flags = group->flags,
                                 .span_tokens = group->span_tokens,
                                 .window_tokens = group->window_tokens,
                                 .page_bytes = group->page_bytes};
        made->groups[i] = *group;
    }
    what.request.items = groups;
    status = put_documents(made->at, options, request, err);
    if (status == KVARVE_OK) {
        status = client_ask(made->at, &what, err);
    }
    give_documents(made->at, request);
    if (status == KVARVE_OK) {
        made->id = what.reply.as.namespace_opened.space;
        memcpy(made->text, what.reply.as.namespace_opened.text, sizeof made->text);
    }
    return status;
}

kvarve_status client_namespace_open(door *at, const kvarve_namespace_options *options,
                                    door_namespace **out, kvarve_error *err)
{
    client_namespace *made;
    kvarve_status status = check_groups(options, err);

    if (status != KVARVE_OK) {
        return status;
    }
    made = kvarve_allocate(sizeof *made);
    if (made == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "namespace: its description");
    }
    made->at = client_of(at);
    status = ask_open(made, options, err);
    if (status != KVARVE_OK) {
        kvarve_release(made);
        return status;
    }
    made->layout = (door_layout){.text = made->text,
                                 .groups = made->groups,
                                 .group_count = options->group_count,
                                 .ranks = options->rank_count,
                                 .is_exact = (options->flags & KVARVE_NAMESPACE_EXACT) != 0};
    *out = (door_namespace *)(void *)made;
    return KVARVE_OK;
}

void client_namespace_release(door_namespace *name)
{
    client_namespace *gone = client_namespace_of(name);
    wire_message request = {.type = WIRE_NAMESPACE_RELEASE,
                            .as.namespace_release = {.space = gone->id}};

    client_notify(gone->at, &request, (wire_letter){0});
    kvarve_release(gone);
}

const door_layout *client_namespace_layout(const door_namespace *name)
{
    return &((const client_namespace *)(const void *)name)->layout;
}
