/*
 * store.c - the life of a store: open, poll, shut down, close.
 *
 * Threads: store_open before anything is shared, the rest under the caller's lock.
 */
#include "store/store.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"
#include "store/put_private.h"

uint64_t store_now(const store_machine *store)
{
    return store->env.clock->monotonic_ns(store->env.clock);
}

uint64_t deadline_after(store_machine *store, uint32_t timeout_ms)
{
    const uint32_t wait = timeout_ms == 0 ? store->options.io_timeout_ms : timeout_ms;
    const uint64_t at =
        wait == KVARVE_NO_TIMEOUT ? KVARVE_NEVER : store_now(store) + wait * KVARVE_NS_PER_MS;

    store->soonest_deadline_ns = kvarve_min_u64(store->soonest_deadline_ns, at);
    return at;
}

uint64_t store_soonest_deadline(const store_machine *store)
{
    return store->soonest_deadline_ns;
}

void store_emit(store_machine *store, uint32_t kind, uint64_t cookie, uint32_t rank,
                kvarve_status status, uint32_t reason)
{
    const kvarve_event event = {
        .kind = kind, .rank = rank, .status = status, .reason = reason, .cookie = cookie};

    if (store->sink.event != NULL) {
        store->sink.event(store->sink.context, &event);
    }
}

void store_fail(store_machine *store)
{
    store->is_failed = true;
}

bool store_is_failed(const store_machine *store)
{
    return store->is_failed;
}

bool store_is_opening(const store_machine *store)
{
    return store->is_opening;
}

void store_arena(const store_machine *store, const void **out_base, uint64_t *out_size, int *out_fd)
{
    const kvarve_mapping *mapping = arena_mapping(store->arena);

    if (out_base != NULL) {
        *out_base = mapping->base;
    }
    if (out_size != NULL) {
        *out_size = mapping->size;
    }
    if (out_fd != NULL) {
        *out_fd = mapping->fd;
    }
}

void store_own_arena(store_machine *store, uint64_t epoch)
{
    arena_set_owner(store->arena, &store->uuid, epoch);
}

static kvarve_status init(store_machine *store, kvarve_error *err)
{
    kvarve_list_init(&store->puts);
    kvarve_list_init(&store->waiting_room);
    kvarve_list_init(&store->commit_queue);
    kvarve_list_init(&store->unflushed);
    kvarve_list_init(&store->leases);
    store->generation = 1;
    store->record_room = BATCH_BYTES_MAX - 2 * BATCH_BLOCK;
    store->next_sequence = 1;
    store->soonest_deadline_ns = KVARVE_NEVER;
    store->next_page = 1;
    store->next_span = 1;
    store->next_commit_checkpoint = 1;
    store->tail_scratch = kvarve_allocate_array(KEY_CHUNK_TOKENS + 1, sizeof(uint64_t));
    if (store->tail_scratch == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "the store's state");
    }
    return catalog_init(store, err);
}

static void free_store(store_machine *store)
{
    recover_close(store);
    catalog_deinit(store);
    kvarve_release(store->tail_scratch);
    kvarve_release(store);
}

kvarve_status store_open(const kvarve_env *env, const char *directory,
                         const kvarve_store_options *options, const store_sink *sink,
                         store_machine **out, kvarve_error *err)
{
    store_machine *made = kvarve_allocate(sizeof *made);
    kvarve_status status;

    if (made == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "the store's state");
    }
    made->env = *env;
    made->options = *options;
    made->lock_fd = -1;
    made->is_read_only = (options->flags & KVARVE_OPEN_READ_ONLY) != 0;
    if (sink != NULL) {
        made->sink = *sink;
    }
    status = init(made, err);
    if (status == KVARVE_OK && strlen(directory) >= sizeof made->directory) {
        status = kvarve_fail(err, KVARVE_INVALID, "store: a path of %zu bytes, at most %zu",
                             strlen(directory), sizeof made->directory - 1);
    }
    if (status == KVARVE_OK) {
        memcpy(made->directory, directory, strlen(directory) + 1);
        status = recover_open(made, err);
    }
    if (status != KVARVE_OK) {
        free_store(made);
        return status;
    }
    *out = made;
    return KVARVE_OK;
}

bool store_poll(store_machine *store)
{
    const bool has_done = store->env.executor->poll(store->env.executor);
    bool has_freed;
    bool has_claimed;

    if (segment_is_failed(store->segments) ||
        (store->index != NULL && index_is_failed(store->index))) {
        store_fail(store);
    }
    put_settle_all(store);
    has_freed = lease_settle_all(store);
    has_claimed = put_settle_repairs(store);
    if (has_done || has_freed || has_claimed) {
        put_give_room(store); /* also when the arena has grown into its memory */
    }
    verify_poll(store);
    wipe_start(store);
    room_shrink(store);
    commit_start(store);
    rebuild_mark_settle(store);
    return has_done;
}

uint64_t store_next_deadline(store_machine *store)
{
    uint64_t next = lease_next_deadline(store);
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &store->puts) {
        const store_put *put = KVARVE_LIST_ITEM(link, store_put, link);

        if (put->state <= KVARVE_PUT_READY) {
            next = kvarve_min_u64(next, put->deadline_ns);
        }
    }
    store->soonest_deadline_ns = next;
    return next;
}

static bool has_running_put(const store_machine *store)
{
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &store->puts) {
        if (KVARVE_LIST_ITEM(link, store_put, link)->state <= KVARVE_PUT_READY) {
            return true;
        }
    }
    return false;
}

void store_shut_down(store_machine *store)
{
    kvarve_link *link = store->puts.next;

    store->is_shutting_down = true;
    arena_stop_populating(store->arena);
    while (link != &store->puts) {
        store_put *put = KVARVE_LIST_ITEM(link, store_put, link);

        link = link->next;
        put_abort(put, KVARVE_REFUSED_CLOSED); /* not what is READY */
    }
    (void)lease_settle_all(store);
    commit_start(store);
}

bool store_is_settled(const store_machine *store)
{
    return store->is_failed ||
           (store->commit == NULL && store->drop_count == 0 &&
            kvarve_list_is_empty(&store->dead_batches) && !wipe_is_due(store) &&
            !(store->wants_drop_record && !kvarve_list_is_empty(&store->tombstones_pending)));
}

const char *store_document(const store_machine *store, const char *namespace_text)
{
    uint8_t digest[32];
    const store_space *space;

    if (strncmp(namespace_text, "recurrent-sha256-v1:", 20) != 0 ||
        !hex_decode(digest, sizeof digest, namespace_text + 20)) {
        return NULL;
    }
    space = catalog_find_space(store, digest);
    return space == NULL ? NULL : space->document;
}

bool store_is_idle(const store_machine *store)
{
    return store->commit == NULL && !has_running_put(store) &&
           store->env.executor->pending(store->env.executor) == 0 &&
           ((store->recency_dirty == 0 && kvarve_list_is_empty(&store->unwiped)) ||
            store->is_failed || store->is_read_only);
}

void store_close(store_machine *store)
{
    if (store == NULL) {
        return;
    }
    KVARVE_ASSERT(store->env.executor->pending(store->env.executor) == 0);
    KVARVE_ASSERT(kvarve_list_is_empty(&store->puts));
    KVARVE_ASSERT(kvarve_list_is_empty(&store->leases));
    verify_abandon(store);
    free_store(store);
}
