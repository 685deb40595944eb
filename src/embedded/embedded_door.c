/*
 * embedded_door.c - the door to a store in this process: each call goes to the store as it is.
 *
 * Handles of the door are those of the store. Threads: as door/door.h.
 */
#include "embedded/embedded.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "embedded/embedded_private.h"

/* What a door says of a namespace, kept beside the store's own. */
typedef struct embedded_namespace {
    store_namespace *name;
    store_machine *store;
    kvarve_group groups[KVARVE_GROUPS_MAX];
    door_layout layout;
} embedded_namespace;

static embedded *host_of(door *at)
{
    return (embedded *)(void *)at; /* its first member */
}

static const embedded *const_host_of(const door *at)
{
    return (const embedded *)(const void *)at;
}

static store_namespace *name_of(door_namespace *name)
{
    return ((embedded_namespace *)(void *)name)->name;
}

static store_put *put_of(door_put *put)
{
    return (store_put *)(void *)put;
}

static const store_put *const_put_of(const door_put *put)
{
    return (const store_put *)(const void *)put;
}

static store_lease *lease_of(door_lease *lease)
{
    return (store_lease *)(void *)lease;
}

static const store_lease *const_lease_of(const door_lease *lease)
{
    return (const store_lease *)(const void *)lease;
}

/* --- the door itself --- */

static void in_close(door *at)
{
    embedded_close(host_of(at));
}

static void in_shut_down(door *at)
{
    store_shut_down(embedded_store(host_of(at)));
}

static bool in_is_idle(const door *at)
{
    return store_is_idle(const_host_of(at)->store);
}

static bool in_is_here(const door *at)
{
    return embedded_is_here(const_host_of(at));
}

static kvarve_status in_enter(door *at, kvarve_error *err)
{
    return embedded_enter(host_of(at), err);
}

static bool in_lets_go(const door *at)
{
    (void)at;
    return false; /* nothing of a failed store is touched again */
}

static void in_lock(door *at)
{
    embedded_lock(host_of(at));
}

static void in_unlock(door *at)
{
    embedded_unlock(host_of(at));
}

static uint64_t in_deadline(const door *at, uint32_t timeout_ms)
{
    return embedded_deadline(const_host_of(at), timeout_ms);
}

static bool in_wait(door *at, uint64_t deadline_ns)
{
    return embedded_wait(host_of(at), deadline_ns);
}

static bool in_is_still(const door *at)
{
    return embedded_is_still(const_host_of(at));
}

static const kvarve_env *in_env(door *at)
{
    return embedded_env(host_of(at));
}

static bool in_take_event(door *at, kvarve_event *out)
{
    return embedded_take_event(host_of(at), out);
}

static void in_tell(door *at, const kvarve_event *event)
{
    embedded_tell(host_of(at), event);
}

static int in_event_fd(const door *at)
{
    return embedded_event_fd(const_host_of(at));
}

/* --- namespaces --- */

static kvarve_status in_namespace_open(door *at, const kvarve_namespace_options *options,
                                       door_namespace **out, kvarve_error *err)
{
    store_machine *store = embedded_store(host_of(at));
    embedded_namespace *made = kvarve_allocate(sizeof *made);
    kvarve_status status;

    if (made == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "namespace: its description");
    }
    status = store_namespace_open(store, options, &made->name, err);
    if (status != KVARVE_OK) {
        kvarve_release(made);
        return status;
    }
    made->layout = (door_layout){.text = store_namespace_text(made->name),
                                 .groups = made->groups,
                                 .group_count = store_namespace_groups(made->name),
                                 .ranks = store_namespace_ranks(made->name),
                                 .is_exact = store_namespace_is_exact(made->name)};
    for (uint32_t i = 0; i < made->layout.group_count; i++) {
        made->groups[i] = *store_namespace_group(made->name, i);
    }
    *out = (door_namespace *)(void *)made;
    return KVARVE_OK;
}

static void in_namespace_release(door_namespace *name)
{
    store_namespace_release(name_of(name));
    kvarve_release(name);
}

static const door_layout *in_namespace_layout(const door_namespace *name)
{
    return &((const embedded_namespace *)(const void *)name)->layout;
}

/* --- puts --- */

static kvarve_status in_put_begin(door_namespace *name, const kvarve_prefix *prefix,
                                  const kvarve_put_options *options, door_put **out,
                                  kvarve_error *err)
{
    store_put *put = NULL;
    const kvarve_status status = store_put_begin(name_of(name), prefix, options, &put, err);

    if (status == KVARVE_OK) {
        *out = (door_put *)(void *)put;
    }
    return status;
}

static uint32_t in_put_state(const door_put *put)
{
    return store_put_state(const_put_of(put));
}

static uint32_t in_put_refusal(const door_put *put)
{
    return store_put_refusal(const_put_of(put));
}

static bool in_put_is_settling(const door_put *put)
{
    return store_put_is_settling(const_put_of(put));
}

static kvarve_status in_put_id(const door_put *put, uint8_t out_id[32], kvarve_error *err)
{
    return store_put_id(const_put_of(put), out_id, err);
}

static kvarve_status in_put_plan(door_put *put, uint32_t rank, kvarve_page_plan *out_pages,
                                 size_t max, size_t *out_count, kvarve_error *err)
{
    return store_put_plan(put_of(put), rank, out_pages, max, out_count, err);
}

static uint64_t in_put_first_token(const door_put *put, uint32_t group)
{
    return store_put_first_token(const_put_of(put), group);
}

static kvarve_status in_put_copy_begin(door_put *put, uint32_t rank, uint32_t group,
                                       uint64_t position, store_target *out, kvarve_error *err)
{
    return store_put_copy_begin(put_of(put), rank, group, position, out, err);
}

static void in_put_copy_end(door_put *put, const store_target *target, const page_digest *digest)
{
    store_put_copy_end(put_of(put), target, digest);
}

static kvarve_status in_put_ack(door_put *put, uint32_t rank, const kvarve_page_digest *digests,
                                size_t count, kvarve_error *err)
{
    return store_put_ack(put_of(put), rank, digests, count, err);
}

static kvarve_status in_put_fail(door_put *put, uint32_t rank, kvarve_error *err)
{
    return store_put_fail(put_of(put), rank, err);
}

static kvarve_status in_put_extend(door_put *put, const kvarve_prefix *prefix, uint64_t tokens,
                                   const kvarve_page_digest *digests, size_t count,
                                   kvarve_error *err)
{
    return store_put_extend(put_of(put), prefix, tokens, digests, count, err);
}

static kvarve_status in_put_close(door_put *put, const kvarve_prefix *prefix,
                                  const kvarve_put_options *options, kvarve_error *err)
{
    return store_put_close(put_of(put), prefix, options, err);
}

static void in_put_abort(door_put *put, uint32_t refusal)
{
    store_put_abort(put_of(put), refusal);
}

static void in_put_release(door_put *put)
{
    store_put_release(put_of(put));
}

/* --- find and lease --- */

static kvarve_status in_find(door_namespace *name, const store_query *query,
                             const kvarve_find_options *options, const store_answer *out,
                             door_lease **out_lease, kvarve_error *err)
{
    store_answer answer = *out;
    store_lease *lease = NULL;
    kvarve_status status;

    answer.lease = out_lease == NULL ? NULL : &lease;
    status = store_find(name_of(name), query, options, &answer, err);
    if (status == KVARVE_OK && out_lease != NULL) {
        *out_lease = (door_lease *)(void *)lease;
    }
    return status;
}

static kvarve_status in_find_all(door_namespace *name, const kvarve_prefix *prefix,
                                 const kvarve_find_options *options, uint8_t *bitmap,
                                 size_t bitmap_bytes, kvarve_error *err)
{
    return store_find_all(name_of(name), prefix, options, bitmap, bitmap_bytes, err);
}

static void in_lease_boundary(const door_lease *lease, kvarve_boundary *out)
{
    store_lease_boundary(const_lease_of(lease), out);
}

static kvarve_status in_lease_load(door_lease *lease, uint32_t timeout_ms, kvarve_error *err)
{
    return store_lease_load(lease_of(lease), timeout_ms, err);
}

static store_lease_state in_lease_status(const door_lease *lease, kvarve_miss *out_miss)
{
    return store_lease_status(const_lease_of(lease), out_miss);
}

static kvarve_status in_lease_extent(door_lease *lease, uint32_t rank, uint32_t group,
                                     uint64_t *out_first, uint64_t *out_pages, uint64_t *out_bytes,
                                     kvarve_error *err)
{
    return store_lease_extent(lease_of(lease), rank, group, out_first, out_pages, out_bytes, err);
}

static kvarve_status in_lease_page_begin(door_lease *lease, uint32_t rank, uint32_t group,
                                         uint64_t position, store_source *out, kvarve_error *err)
{
    return store_lease_page_begin(lease_of(lease), rank, group, position, out, err);
}

static void in_lease_page_end(door_lease *lease, const store_source *source, bool was_verified,
                              bool is_right)
{
    store_lease_page_end(lease_of(lease), source, was_verified, is_right);
}

static void in_lease_read_ahead(door_lease *lease, uint32_t rank, uint32_t group, uint64_t position,
                                uint64_t count)
{
    store_lease_read_ahead(lease_of(lease), rank, group, position, count);
}

static kvarve_status in_lease_read_direct(door_lease *lease, uint32_t rank, uint32_t group,
                                          uint64_t position, store_direct_read *read,
                                          kvarve_error *err)
{
    return store_lease_read_direct(lease_of(lease), rank, group, position, read, err);
}

static void in_lease_release(door_lease *lease)
{
    store_lease_release(lease_of(lease));
}

/* --- administration --- */

static kvarve_status in_statistics(door *at, kvarve_statistics *out, kvarve_error *err)
{
    (void)err;
    store_statistics(embedded_store(host_of(at)), out);
    return KVARVE_OK;
}

static kvarve_status in_each(door *at, store_visit visit, void *context, kvarve_error *err)
{
    (void)err;
    store_each(embedded_store(host_of(at)), visit, context);
    return KVARVE_OK;
}

static kvarve_status in_drop(door *at, const uint8_t id[32], kvarve_error *err)
{
    return store_drop(embedded_store(host_of(at)), id, err);
}

static kvarve_status in_drops_are_settled(door *at, bool *out, kvarve_error *err)
{
    *out = store_is_settled(embedded_store(host_of(at)));
    if (*out && store_is_failed(embedded_store(host_of(at)))) {
        return kvarve_fail(err, KVARVE_IO, "drop: a sync or commit failed");
    }
    return KVARVE_OK;
}

static const char *in_document(door *at, const char *namespace_text)
{
    return store_document(embedded_store(host_of(at)), namespace_text);
}

static kvarve_status in_verify_begin(door *at, kvarve_error *err)
{
    return store_verify_begin(embedded_store(host_of(at)), err);
}

static bool in_verify_progress(door *at, kvarve_verify_result *out)
{
    return store_verify_progress(embedded_store(host_of(at)), out);
}

static kvarve_status in_trim_begin(door *at, kvarve_error *err)
{
    return store_trim_begin(embedded_store(host_of(at)), err);
}

static bool in_trim_progress(door *at, uint64_t *out_bytes, kvarve_status *out_status)
{
    return store_trim_progress(embedded_store(host_of(at)), out_bytes, out_status);
}

const door_ops embedded_door_ops = {
    .close = in_close,
    .shut_down = in_shut_down,
    .is_idle = in_is_idle,
    .is_here = in_is_here,
    .enter = in_enter,
    .lets_go = in_lets_go,
    .lock = in_lock,
    .unlock = in_unlock,
    .deadline = in_deadline,
    .wait = in_wait,
    .is_still = in_is_still,
    .env = in_env,
    .take_event = in_take_event,
    .tell = in_tell,
    .event_fd = in_event_fd,
    .namespace_open = in_namespace_open,
    .namespace_release = in_namespace_release,
    .namespace_layout = in_namespace_layout,
    .put_begin = in_put_begin,
    .put_state = in_put_state,
    .put_refusal = in_put_refusal,
    .put_is_settling = in_put_is_settling,
    .put_id = in_put_id,
    .put_plan = in_put_plan,
    .put_first_token = in_put_first_token,
    .put_copy_begin = in_put_copy_begin,
    .put_copy_end = in_put_copy_end,
    .put_ack = in_put_ack,
    .put_fail = in_put_fail,
    .put_extend = in_put_extend,
    .put_close = in_put_close,
    .put_abort = in_put_abort,
    .put_release = in_put_release,
    .find = in_find,
    .find_all = in_find_all,
    .lease_boundary = in_lease_boundary,
    .lease_load = in_lease_load,
    .lease_status = in_lease_status,
    .lease_extent = in_lease_extent,
    .lease_page_begin = in_lease_page_begin,
    .lease_page_end = in_lease_page_end,
    .lease_read_ahead = in_lease_read_ahead,
    .lease_read_direct = in_lease_read_direct,
    .lease_release = in_lease_release,
    .statistics = in_statistics,
    .each = in_each,
    .drop = in_drop,
    .drops_are_settled = in_drops_are_settled,
    .document = in_document,
    .verify_begin = in_verify_begin,
    .verify_progress = in_verify_progress,
    .trim_begin = in_trim_begin,
    .trim_progress = in_trim_progress,
};

kvarve_status embedded_door_open(const char *directory, const kvarve_store_options *options,
                                 door **out, kvarve_error *err)
{
    embedded *host = NULL;
    const kvarve_status status = embedded_open(directory, options, NULL, NULL, &host, err);

    if (status == KVARVE_OK) {
        *out = &host->base;
    }
    return status;
}

kvarve_status embedded_door_open_in(const kvarve_env *env, const char *directory,
                                    const kvarve_store_options *options, door **out,
                                    kvarve_error *err)
{
    embedded *host = NULL;
    const kvarve_status status = embedded_open_in(env, directory, options, &host, err);

    if (status == KVARVE_OK) {
        *out = &host->base;
    }
    return status;
}
