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
    door_lock(store->door);
    status = store->door->ops->statistics(store->door, &all, err);
    door_unlock(store->door);
    if (status != KVARVE_OK) {
        return status;
    }
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
        door_lock(store->door);
        status = store->door->ops->each(store->door, visit_one, &list, err);
        door_unlock(store->door);
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
    deadline = door_deadline(store->door, store->io_timeout_ms);
    door_lock(store->door);
    status = store->door->ops->drop(store->door, id, err);
    while (status == KVARVE_OK && !is_settled) {
        status = store->door->ops->drops_are_settled(store->door, &is_settled, err);
        if (status == KVARVE_OK && !is_settled && !door_wait(store->door, deadline)) {
            status = kvarve_fail(err, KVARVE_UNAVAILABLE, "drop: the disk did not answer in time");
        }
    }
    door_unlock(store->door);
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
    door_lock(store->door);
    status = store->door->ops->verify_begin(store->door, err);
    while (status == KVARVE_OK && !is_over) {
        is_over = store->door->ops->verify_progress(store->door, &result);
        if (is_over) {
            break;
        }
        if (progress != NULL) {
            door_unlock(store->door);
            progress(context, result.pages_checked, result.pages_total);
            door_lock(store->door);
        }
        (void)door_wait(store->door, door_deadline(store->door, PROGRESS_EVERY_MS));
    }
    door_unlock(store->door);
    status = status == KVARVE_OK ? unless_gone(store, status, err) : status;
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
    door_lock(store->door);
    do { /* the store may be at it by itself: then once more after that */
        status = store->door->ops->trim_begin(store->door, err);
    } while (status == KVARVE_BUSY && door_wait(store->door, KVARVE_NEVER));
    while (status == KVARVE_OK && !store->door->ops->trim_progress(store->door, &bytes, &result)) {
        (void)door_wait(store->door, KVARVE_NEVER);
    }
    door_unlock(store->door);
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
    door_lock(store->door);
    document = store->door->ops->document(store->door, namespace_text);
    if (document != NULL) {
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
    door_unlock(store->door);
    return document == NULL ? unless_gone(store, KVARVE_MISS, err) : status;
}
