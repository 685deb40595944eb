/*
 * store.c - kvarve_open and kvarve_close, events, and the checks that every call makes.
 *
 * Threads: any.
 */
#include "api/api_private.h"

#include <string.h>

#include "api/open_in.h"
#include "api/open_over.h"
#include "base/alloc.h"
#include "base/checked.h"
#include "base/fail.h"
#include "client/client.h"
#include "env/thread.h"

#define READ_AHEAD_BYTES_MAX (UINT64_C(32) << 20)

uint32_t kvarve_abi_version(void)
{
    return KVARVE_ABI_VERSION;
}

const char *kvarve_refusal_text(uint32_t reason)
{
    static const char *const texts[] = {
#define REFUSAL_TEXT(name, text) text,
        KVARVE_REFUSAL_TABLE(REFUSAL_TEXT)
#undef REFUSAL_TEXT
    };

    return reason < sizeof texts / sizeof texts[0] ? texts[reason] : "unknown reason";
}

const char *kvarve_miss_text(uint32_t reason)
{
    static const char *const texts[] = {
#define MISS_TEXT(name, text) text,
        KVARVE_MISS_TABLE(MISS_TEXT)
#undef MISS_TEXT
    };

    return reason < sizeof texts / sizeof texts[0] ? texts[reason] : "unknown reason";
}

/* --- checks --- */

kvarve_status check_pointer(const void *pointer, const char *call, const char *name,
                            kvarve_error *err)
{
    return pointer != NULL ? KVARVE_OK
                           : kvarve_fail(err, KVARVE_INVALID, "%s: %s is NULL", call, name);
}

kvarve_status check_store(const kvarve_store *store, const char *call, kvarve_error *err)
{
    if (store == NULL || store->magic != STORE_MAGIC) {
        return kvarve_fail(err, KVARVE_INVALID, "%s: no open store", call);
    }
    if (!door_is_here(store->door)) {
        return kvarve_fail(err, KVARVE_INVALID, "%s: the store was opened by the parent process",
                           call);
    }
    if (atomic_load(&store->is_closed)) {
        return kvarve_fail(err, KVARVE_UNAVAILABLE, "%s: the store was closed", call);
    }
    return door_enter(store->door, err);
}

kvarve_status check_release(const kvarve_namespace *space, const char *call)
{
    if (space == NULL || space->magic != NAMESPACE_MAGIC || space->store->magic != STORE_MAGIC ||
        !door_is_here(space->store->door)) {
        return kvarve_fail(NULL, KVARVE_INVALID, "%s: no open handle", call);
    }
    return door_enter_to_end(space->store->door);
}

kvarve_status check_namespace(const kvarve_namespace *space, const char *call, kvarve_error *err)
{
    if (space == NULL || space->magic != NAMESPACE_MAGIC) {
        return kvarve_fail(err, KVARVE_INVALID, "%s: no open namespace", call);
    }
    return check_store(space->store, call, err);
}

kvarve_status check_put(const kvarve_put *put, const char *call, kvarve_error *err)
{
    if (put == NULL || put->magic != PUT_MAGIC) {
        return kvarve_fail(err, KVARVE_INVALID, "%s: no put", call);
    }
    return check_namespace(put->space, call, err);
}

kvarve_status check_lease(const kvarve_lease *lease, const char *call, kvarve_error *err)
{
    if (lease == NULL || lease->magic != LEASE_MAGIC) {
        return kvarve_fail(err, KVARVE_INVALID, "%s: no lease", call);
    }
    return check_namespace(lease->space, call, err);
}

kvarve_status unless_gone(kvarve_store *store, kvarve_status status, kvarve_error *err)
{
    const kvarve_status there = door_enter(store->door, err);

    return there == KVARVE_OK ? status : there;
}

bool take_options(void *out, size_t size, const void *given, size_t given_size)
{
    if (given_size < sizeof(size_t) || given_size > 4096) {
        return false;
    }
    memcpy(out, given, given_size < size ? given_size : size);
    return true;
}

/* --- open --- */

static void set_default(uint64_t *value, uint64_t standard)
{
    if (*value == 0) {
        *value = standard;
    }
}

static kvarve_status check_range(const char *name, uint64_t value, uint64_t least, uint64_t most,
                                 kvarve_error *err)
{
    if (value < least || value > most) {
        return kvarve_fail(err, KVARVE_INVALID, "open store: %s %llu: %llu .. %llu", name,
                           (unsigned long long)value, (unsigned long long)least,
                           (unsigned long long)most);
    }
    return KVARVE_OK;
}

static kvarve_status complete_options(kvarve_store_options *options, kvarve_error *err)
{
    const uint32_t flags =
        KVARVE_OPEN_EXISTING | KVARVE_OPEN_READ_ONLY | KVARVE_OPEN_REBUILD | KVARVE_OPEN_BUFFERED;
    kvarve_status status;

    set_default(&options->arena_bytes, UINT64_C(256) << 20);
    set_default(&options->segment_bytes, UINT64_C(64) << 20);
    set_default(&options->checkpoints_max, UINT64_C(1) << 22);
    options->pool_threads = options->pool_threads == 0 ? 4 : options->pool_threads;
    options->io_timeout_ms = options->io_timeout_ms == 0 ? 30000 : options->io_timeout_ms;
    status =
        check_range("arena_bytes", options->arena_bytes, UINT64_C(1) << 20, UINT64_C(1) << 44, err);
    if (status == KVARVE_OK) {
        status = check_range("segment_bytes", options->segment_bytes, UINT64_C(1) << 20,
                             UINT64_C(64) << 30, err);
    }
    if (status == KVARVE_OK && options->flash_bytes_max != 0) {
        status = check_range("flash_bytes_max", options->flash_bytes_max, UINT64_C(1) << 20,
                             UINT64_C(1) << 50, err);
    }
    if (status == KVARVE_OK) {
        status = check_range("pool_threads", options->pool_threads, 1, 64, err);
    }
    if (status == KVARVE_OK) {
        status =
            check_range("checkpoints_max", options->checkpoints_max, 1, UINT64_C(1) << 32, err);
    }
    if (status == KVARVE_OK && (options->flags & ~flags) != 0) {
        status = kvarve_fail(err, KVARVE_INVALID, "open store: flags %#x: only %#x are known",
                             options->flags, flags);
    }
    if (status == KVARVE_OK && (options->flags & KVARVE_OPEN_READ_ONLY) != 0 &&
        (options->flags & KVARVE_OPEN_REBUILD) != 0) {
        status =
            kvarve_fail(err, KVARVE_INVALID, "open store: a rebuild writes, read only does not");
    }
    return status;
}

static kvarve_status take_store_options(kvarve_store_options *out,
                                        const kvarve_store_options *given, kvarve_error *err)
{
    if (given != NULL && !take_options(out, sizeof *out, given, given->struct_size)) {
        return kvarve_fail(err, KVARVE_INVALID, "open store: struct_size %zu is not one of ours",
                           given->struct_size);
    }
    return complete_options(out, err);
}

#define DAEMON_PREFIX "unix:"

static bool is_daemon(const char *endpoint)
{
    return strncmp(endpoint, DAEMON_PREFIX, sizeof DAEMON_PREFIX - 1) == 0;
}

/* What the store is made of is settled where the daemon is started. */
static kvarve_status connect_daemon(const char *path, const kvarve_store_options *options,
                                    door **out, kvarve_error *err)
{
    const client_options client = {.pool_threads = options->pool_threads,
                                   .io_timeout_ms = options->io_timeout_ms};

    if ((options->flags & ~KVARVE_OPEN_EXISTING) != 0) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "open " DAEMON_PREFIX "%.80s: flags %#x are the daemon's to have", path,
                           options->flags);
    }
    return client_connect(path, options->wait_ms, &client, out, err);
}

static kvarve_status open_door(const kvarve_env *env, const char *endpoint,
                               const kvarve_store_options *options, door **out, kvarve_error *err)
{
    if (env != NULL) {
        return embedded_door_open_in(env, endpoint, options, out, err);
    }
    return is_daemon(endpoint)
               ? connect_daemon(endpoint + sizeof DAEMON_PREFIX - 1, options, out, err)
               : embedded_door_open(endpoint, options, out, err);
}

/* A handle without a door yet; NULL: no memory. */
static kvarve_store *make_store(const kvarve_store_options *complete, kvarve_error *err)
{
    kvarve_store *store = kvarve_allocate(sizeof *store);

    if (store == NULL) {
        (void)kvarve_fail(err, KVARVE_NO_MEMORY, "open store: its handle");
        return NULL;
    }
    store->magic = STORE_MAGIC;
    store->io_timeout_ms = complete->io_timeout_ms;
    store->read_ahead_bytes = kvarve_min_u64(READ_AHEAD_BYTES_MAX, complete->arena_bytes / 4);
    return store;
}

static kvarve_status open_store(const kvarve_env *env, const char *endpoint,
                                const kvarve_store_options *options, kvarve_store **out_store,
                                kvarve_error *err)
{
    kvarve_store_options complete = KVARVE_STORE_OPTIONS_INIT;
    kvarve_store *store;
    kvarve_status status = take_store_options(&complete, options, err);

    if (status != KVARVE_OK) {
        return status;
    }
    store = make_store(&complete, err);
    if (store == NULL) {
        return KVARVE_NO_MEMORY;
    }
    status = open_door(env, endpoint, &complete, &store->door, err);
    if (status != KVARVE_OK) {
        kvarve_release(store);
        return status;
    }
    *out_store = store;
    return KVARVE_OK;
}

kvarve_status api_open_over(door *over, const kvarve_store_options *options,
                            kvarve_store **out_store, kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    kvarve_store_options complete = KVARVE_STORE_OPTIONS_INIT;
    kvarve_store *store = NULL;
    kvarve_status status = take_store_options(&complete, options, err);

    if (status == KVARVE_OK) {
        store = make_store(&complete, err);
        status = store == NULL ? KVARVE_NO_MEMORY : KVARVE_OK;
    }
    if (store == NULL) {
        over->ops->close(over);
        return status;
    }
    store->door = over;
    *out_store = store;
    return KVARVE_OK;
}

kvarve_status api_open_in(const kvarve_env *env, const char *endpoint,
                          const kvarve_store_options *options, kvarve_store **out_store,
                          kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    return open_store(env, endpoint, options, out_store, err);
}

kvarve_status kvarve_open(const char *endpoint, const kvarve_store_options *options,
                          kvarve_store **out_store, kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    kvarve_status status = check_pointer(endpoint, "kvarve_open", "endpoint", err);

    if (status == KVARVE_OK) {
        status = check_pointer(out_store, "kvarve_open", "out_store", err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    if (endpoint[0] == '\0') {
        return kvarve_fail(err, KVARVE_INVALID, "open store: the path is empty");
    }
    return open_store(NULL, endpoint, options, out_store, err);
}

bool store_is_left(const kvarve_store *store)
{
    return atomic_load(&store->is_closed) && store->namespaces == 0;
}

void store_end(kvarve_store *store)
{
    store->magic = 0;
    store->door->ops->close(
        store->door); /* a failed one leaves the call here: handles may still be alive */
    kvarve_release(store);
}

/* Handles are left: bring to an end what goes on. What they point to stays until they go. */
static void shut_down(kvarve_store *store)
{
    door *host = store->door;
    const uint64_t deadline = door_deadline(host, store->io_timeout_ms);

    host->ops->shut_down(host);
    while (!host->ops->is_idle(host) && door_wait(host, deadline)) {
    }
}

void kvarve_close(kvarve_store *store)
{
    EMBEDDED_CALL(return);
    bool is_left;

    if (store == NULL || store->magic != STORE_MAGIC || atomic_load(&store->is_closed)) {
        return;
    }
    if (!door_is_here(store->door)) {
        store_end(store);
        return;
    }
    if (door_enter_to_end(store->door) != KVARVE_OK) {
        return;
    }
    door_lock(store->door);
    atomic_store(&store->is_closed, true);
    if (store->namespaces > 0) {
        store->namespaces++; /* this call's, so that none of the others ends it meanwhile */
        shut_down(store);
        store->namespaces--;
    }
    is_left = store_is_left(store);
    door_unlock(store->door);
    if (is_left) {
        store_end(store);
    }
}

int kvarve_event_fd(const kvarve_store *store)
{
    EMBEDDED_CALL(return -1);
    const kvarve_status status = check_store(store, "kvarve_event_fd", NULL);

    /* That of a failed store is readable, so that whoever polls asks for an event and is told. */
    return status == KVARVE_OK || status == KVARVE_UNAVAILABLE ? door_event_fd(store->door) : -1;
}

kvarve_status kvarve_next_event(kvarve_store *store, kvarve_event *out_event)
{
    EMBEDDED_CALL(return KVARVE_UNAVAILABLE);
    kvarve_status status = check_store(store, "kvarve_next_event", NULL);

    if (status != KVARVE_OK) {
        return status;
    }
    if (out_event == NULL) {
        return KVARVE_INVALID;
    }
    door_lock(store->door);
    status = door_take_event(store->door, out_event) ? KVARVE_OK : KVARVE_MISS;
    door_unlock(store->door);
    return status;
}
