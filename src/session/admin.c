/*
 * admin.c - requests of a person who looks into the store, and takes care of it.
 *
 * Threads: the daemon's one.
 */
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "session/session_private.h"

/* --- statistics --- */

kvarve_status take_statistics(session *at, const wire_message *request, kvarve_error *err)
{
    wire_message reply = {.type = WIRE_STATISTICS_ARE, .id = request->id};
    kvarve_statistics now = {0};
    const uint64_t rows[] = {
#define ROW_OFFSET(field, unit, text) offsetof(kvarve_statistics, field),
        KVARVE_STATISTIC_TABLE(ROW_OFFSET)
#undef ROW_OFFSET
    };
    kvarve_status status = KVARVE_OK;
    const uint32_t reasons = sizeof now.misses / sizeof now.misses[0];
    wire_number number;

    store_statistics(at->host->store, &now);
    for (uint32_t i = 0; i < 2 * reasons && status == KVARVE_OK; i++) {
        number.value = i < reasons ? now.misses[i] : now.refusals[i - reasons];
        status = reply_item(at, WIRE_STATISTICS_ARE, reply.count++, &number, err);
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && status == KVARVE_OK; i++) {
        memcpy(&number.value, (const uint8_t *)&now + rows[i], sizeof number.value);
        status = reply_item(at, WIRE_STATISTICS_ARE, reply.count++, &number, err);
    }
    if (status == KVARVE_OK) {
        session_reply(at, &reply);
    }
    return status;
}

kvarve_status take_status(session *at, const wire_message *request, kvarve_error *err)
{
    const session_host *host = at->host;
    wire_message reply = {.type = WIRE_STATUS_IS, .id = request->id};
    wire_status_is *out = &reply.as.status_is;
    kvarve_statistics now = {0};
    kvarve_link *link;

    (void)err;
    store_statistics(host->store, &now);
    KVARVE_LIST_FOREACH (link, &host->sessions) {
        const bool is_gone = KVARVE_LIST_ITEM(link, session, link)->is_gone;

        out->clients += !is_gone;
        out->quarantined += is_gone;
    }
    out->pid = host->pid;
    memcpy(out->version, host->version, sizeof out->version);
    out->uptime_s = (host_now(host) - host->started_ns) / KVARVE_NS_PER_S;
    out->arena_bytes = now.arena_bytes;
    out->arena_bytes_populated = now.arena_bytes_populated;
    out->is_huge = now.arena_is_huge != 0;
    session_reply(at, &reply);
    return KVARVE_OK;
}

/* --- listing --- */

typedef struct listing {
    session *at;
    uint32_t count;
    kvarve_status status;
    kvarve_error *err;
} listing;

static wire_checkpoint checkpoint_of(const kvarve_checkpoint_info *info)
{
    wire_checkpoint made = {.tokens = info->tokens,
                            .draft_tokens = info->draft_tokens,
                            .bytes = info->bytes,
                            .bytes_own = info->bytes_own,
                            .bytes_in_ram = info->bytes_in_ram,
                            .created_s = info->created_s,
                            .used = info->used,
                            .kind = info->kind,
                            .state = info->state,
                            .pages = info->pages,
                            .leases = info->leases,
                            .is_damaged = info->is_damaged != 0,
                            .is_draft = info->is_draft != 0};

    memcpy(made.id, info->id, sizeof made.id);
    memcpy(made.parent_id, info->parent_id, sizeof made.parent_id);
    wire_text_set(made.namespace_text, sizeof made.namespace_text, info->namespace_text);
    return made;
}

static bool list_one(void *context, const kvarve_checkpoint_info *info)
{
    listing *list = context;
    const wire_checkpoint item = checkpoint_of(info);

    list->status = reply_item(list->at, WIRE_LISTED, list->count, &item, list->err);
    if (list->status != KVARVE_OK) {
        return false;
    }
    list->count++;
    return list->count < WIRE_ITEMS_LISTED;
}

kvarve_status take_list(session *at, const wire_message *request, kvarve_error *err)
{
    wire_message reply = {.type = WIRE_LISTED, .id = request->id};
    listing list = {.at = at, .err = err};
    kvarve_statistics now = {0};

    store_statistics(at->host->store, &now);
    if (request->as.list.from < now.checkpoints) {
        store_each_from(at->host->store, request->as.list.from, list_one, &list);
    }
    if (list.status != KVARVE_OK) {
        return list.status;
    }
    reply.count = list.count;
    reply.as.listed.total = now.checkpoints;
    session_reply(at, &reply);
    return KVARVE_OK;
}

/* --- drop --- */

static kvarve_status try_drop(session *at, const wire_message *request, bool is_last,
                              kvarve_error *err)
{
    if (!store_is_settled(at->host->store)) {
        return is_last
                   ? kvarve_fail(err, KVARVE_UNAVAILABLE, "drop: the disk did not answer in time")
                   : KVARVE_BUSY;
    }
    if (store_is_failed(at->host->store)) {
        return kvarve_fail(err, KVARVE_IO, "drop: a sync or commit failed");
    }
    session_reply_done(at, request->id);
    return KVARVE_OK;
}

kvarve_status take_drop(session *at, const wire_message *request, kvarve_error *err)
{
    const kvarve_status status = store_drop(at->host->store, request->as.drop.id, err);

    return status == KVARVE_OK ? parked_try(at, request, try_drop, at->host->io_timeout_ms, err)
                               : status;
}

/* --- verify, trim --- */

static kvarve_status try_verify(session *at, const wire_message *request, bool is_last,
                                kvarve_error *err)
{
    wire_message reply = {.type = WIRE_VERIFIED, .id = request->id};
    kvarve_verify_result result = {0};
    const bool is_over = store_verify_progress(at->host->store, &result);

    (void)err;
    if (!is_over && !is_last) {
        return KVARVE_BUSY;
    }
    reply.as.verified.is_over = is_over;
    reply.as.verified.result =
        (wire_verify_result){.pages_checked = result.pages_checked,
                             .pages_total = result.pages_total,
                             .bytes_checked = result.bytes_checked,
                             .pages_damaged = result.pages_damaged,
                             .checkpoints_lost = result.checkpoints_lost,
                             .is_index_damaged = result.is_index_damaged != 0};
    session_reply(at, &reply);
    return KVARVE_OK;
}

kvarve_status take_verify(session *at, const wire_message *request, kvarve_error *err)
{
    const wire_verify *from = &request->as.verify;
    const kvarve_status status =
        from->is_begin != 0 ? store_verify_begin(at->host->store, err) : KVARVE_OK;

    return status == KVARVE_OK ? parked_try(at, request, try_verify, from->timeout_ms, err)
                               : status;
}

static kvarve_status try_trim(session *at, const wire_message *request, bool is_last,
                              kvarve_error *err)
{
    wire_message reply = {.type = WIRE_TRIMMED, .id = request->id};
    uint64_t bytes = 0;
    kvarve_status result = KVARVE_OK;
    const bool is_over = store_trim_progress(at->host->store, &bytes, &result);

    (void)err;
    if (!is_over && !is_last) {
        return KVARVE_BUSY;
    }
    reply.as.trimmed =
        (wire_trimmed){.is_over = is_over, .bytes = bytes, .status = (uint32_t)result};
    session_reply(at, &reply);
    return KVARVE_OK;
}

kvarve_status take_trim(session *at, const wire_message *request, kvarve_error *err)
{
    const wire_trim *from = &request->as.trim;
    const kvarve_status status =
        from->is_begin != 0 ? store_trim_begin(at->host->store, err) : KVARVE_OK;

    return status == KVARVE_OK ? parked_try(at, request, try_trim, from->timeout_ms, err) : status;
}

/* --- documents --- */

kvarve_status take_document(session *at, const wire_message *request, kvarve_error *err)
{
    const wire_document *from = &request->as.document;
    const char *text = store_document(at->host->store, from->namespace_text);
    wire_message reply = {.type = WIRE_DOCUMENT_IS, .id = request->id};
    kvarve_status status = KVARVE_OK;
    uint64_t total;

    if (text == NULL) {
        return KVARVE_MISS;
    }
    total = strlen(text);
    if (from->from < total) {
        reply.count = (uint32_t)kvarve_min_u64(total - from->from, WIRE_ITEMS_DOCUMENT_IS);
    }
    for (uint32_t i = 0; i < reply.count && status == KVARVE_OK; i++) {
        const wire_octet octet = {.value = (uint8_t)text[from->from + i]};

        status = reply_item(at, WIRE_DOCUMENT_IS, i, &octet, err);
    }
    if (status == KVARVE_OK) {
        reply.as.document_is.total = total;
        session_reply(at, &reply);
    }
    return status;
}
