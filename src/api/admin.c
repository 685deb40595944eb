/*
 * admin.c - kvarve_statistics_get, listing, verify, drop, trim, documents.
 *
 * Threads: any. What blocks lets go of the store's lock while it waits.
 */
#include "kvarve/admin.h"

#include <string.h>

#include "api/api_private.h"
#include "base/alloc.h"
#include "base/fail.h"

#define PROGRESS_EVERY_MS 200u

kvarve_status kvarve_statistics_get(kvarve_store *store, kvarve_statistics *out, kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    kvarve_statistics all = KVARVE_STATISTICS_INIT;
    kvarve_status status = check_store(store, "kvarve_statistics_get", err);

    size_t size;

    if (status != KVARVE_OK) {
        return status;
    }
    if (out == NULL || out->struct_size < sizeof(size_t) || out->struct_size > sizeof all) {
        return kvarve_fail(err, KVARVE_INVALID, "statistics: struct_size is not one of ours");
    }
    size = out->struct_size;
    embedded_lock(store->host);
    store_statistics(embedded_store(store->host), &all);
    embedded_unlock(store->host);
    memcpy(out, &all, size);
    out->struct_size = size;
    return KVARVE_OK;
}

typedef struct listing {
    kvarve_checkpoint_visit visit;
    void *context;
} listing;

static bool visit_one(void *context, const kvarve_checkpoint_info *info)
{
    const listing *list = context;

    return list->visit(list->context, info) != 0;
}

kvarve_status kvarve_list_checkpoints(kvarve_store *store, kvarve_checkpoint_visit visit,
                                      void *context, kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    listing list = {.visit = visit, .context = context};
    kvarve_status status = check_store(store, "kvarve_list_checkpoints", err);

    if (status == KVARVE_OK && visit == NULL) {
        status = kvarve_fail(err, KVARVE_INVALID, "list: visit is NULL");
    }
    if (status == KVARVE_OK) {
        embedded_lock(store->host);
        store_each(embedded_store(store->host), visit_one, &list);
        embedded_unlock(store->host);
    }
    return status;
}

kvarve_status kvarve_drop(kvarve_store *store, const uint8_t id[32], kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    kvarve_status status = check_store(store, "kvarve_drop", err);
    uint64_t deadline;
    bool is_settled = false;

    if (status == KVARVE_OK) {
        status = check_pointer(id, "kvarve_drop", "id", err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    deadline = embedded_deadline(store->host, store->io_timeout_ms);
    embedded_lock(store->host);
    status = store_drop(embedded_store(store->host), id, err);
    while (status == KVARVE_OK && !is_settled) {
        is_settled = store_is_settled(embedded_store(store->host));
        if (!is_settled && !embedded_wait(store->host, deadline)) {
            status = kvarve_fail(err, KVARVE_UNAVAILABLE, "drop: the disk did not answer in time");
        }
    }
    if (status == KVARVE_OK && store_is_failed(embedded_store(store->host))) {
        status = kvarve_fail(err, KVARVE_IO, "drop: a sync or commit failed");
    }
    embedded_unlock(store->host);
    return status;
}

kvarve_status kvarve_verify(kvarve_store *store, kvarve_progress progress, void *context,
                            kvarve_verify_result *out_result, kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    kvarve_verify_result result = {0};
    bool is_over = false;
    kvarve_status status = check_store(store, "kvarve_verify", err);

    if (status != KVARVE_OK) {
        return status;
    }
    embedded_lock(store->host);
    status = store_verify_begin(embedded_store(store->host), err);
    while (status == KVARVE_OK && !is_over) {
        is_over = store_verify_progress(embedded_store(store->host), &result);
        if (is_over) {
            break;
        }
        if (progress != NULL) {
            embedded_unlock(store->host);
            progress(context, result.pages_checked, result.pages_total);
            embedded_lock(store->host);
        }
        (void)embedded_wait(store->host, embedded_deadline(store->host, PROGRESS_EVERY_MS));
    }
    embedded_unlock(store->host);
    if (status != KVARVE_OK) {
        return status;
    }
    if (out_result != NULL) {
        *out_result = result;
    }
    if (result.pages_damaged > 0 || result.is_index_damaged != 0) {
        return kvarve_fail(err, KVARVE_CORRUPT, "verify: %llu of %llu pages are damaged%s",
                           (unsigned long long)result.pages_damaged,
                           (unsigned long long)result.pages_total,
                           result.is_index_damaged != 0 ? ", and so is the index" : "");
    }
    return KVARVE_OK;
}

kvarve_status kvarve_trim(kvarve_store *store, uint64_t *out_bytes, kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    uint64_t bytes = 0;
    kvarve_status result = KVARVE_OK;
    kvarve_status status = check_store(store, "kvarve_trim", err);

    if (status != KVARVE_OK) {
        return status;
    }
    embedded_lock(store->host);
    do { /* the store may be at it by itself: then once more after that */
        status = store_trim_begin(embedded_store(store->host), err);
    } while (status == KVARVE_BUSY && embedded_wait(store->host, KVARVE_NEVER));
    while (status == KVARVE_OK &&
           !store_trim_progress(embedded_store(store->host), &bytes, &result)) {
        (void)embedded_wait(store->host, KVARVE_NEVER);
    }
    embedded_unlock(store->host);
    if (status == KVARVE_OK && result != KVARVE_OK) {
        status = kvarve_fail(err, result, "trim: space could not be given back");
    }
    if (status == KVARVE_OK && out_bytes != NULL) {
        *out_bytes = bytes;
    }
    return status;
}

kvarve_status kvarve_namespace_document(kvarve_store *store, const char *namespace_text, char *out,
                                        size_t size, size_t *out_size, kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    const char *document;
    kvarve_status status = check_store(store, "kvarve_namespace_document", err);

    if (status == KVARVE_OK) {
        status = check_pointer(namespace_text, "kvarve_namespace_document", "namespace_text", err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    embedded_lock(store->host);
    document = store_document(embedded_store(store->host), namespace_text);
    if (document == NULL) {
        status = KVARVE_MISS;
    } else {
        const size_t needed = strlen(document) + 1;

        if (out_size != NULL) {
            *out_size = needed;
        }
        if (out == NULL || size < needed) {
            status = kvarve_fail(err, KVARVE_NO_SPACE, "document: %zu bytes are needed", needed);
        } else {
            memcpy(out, document, needed);
        }
    }
    embedded_unlock(store->host);
    return status;
}
