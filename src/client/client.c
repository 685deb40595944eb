/*
 * client.c - see client.h.
 *
 * Invariants
 *   I1  Every field but `in` is touched under `mutex` only; `in` is the receiving thread's
 * (link.c). I2  An address is given out only after client_address has found all of it in the
 * mapping. I3  In a forked child nothing is touched: the epoch differs. I4  The arena stays mapped
 * while a put or lease of it is there, whatever became of the daemon.
 *
 * Events wait in a ring that grows up to EVENTS_MAX; beyond that the oldest are lost, and the
 * caller has not looked for long.
 */
#include "client/client.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"
#include "client/client_private.h"
#include "env/socket.h"
#include "format/arena_file.h"

#define EVENTS_MAX       65536u
#define POOL_THREADS     2u
#define IO_TIMEOUT_MS    30000u
#define CONNECT_RETRY_MS 20u

static bool is_here(const door *at)
{
    return const_client_of(at)->epoch == fork_guard_epoch(); /* I3 */
}

static kvarve_status enter(door *base, kvarve_error *err)
{
    client *at = client_of(base);
    kvarve_status status = KVARVE_OK;
    bool is_failed;

    mutex_lock(&at->mutex);
    if (at->is_broken) {
        status = client_gone(at, err);
    }
    is_failed = at->is_failed;
    mutex_unlock(&at->mutex);
    if (is_failed) {
        client_wait_quiet(at);
    }
    return status;
}

static bool lets_go(const door *base)
{
    const client *at = const_client_of(base);

    return !at->is_failed; /* of one that is broken only, what is left is memory of ours */
}

static bool is_still(const door *base)
{
    return const_client_of(base)->is_still;
}

static const kvarve_env *env_of(door *base)
{
    return &client_of(base)->env;
}

/* --- events --- */

static bool grow_events(client *at)
{
    const uint32_t room = at->event_room == 0 ? 64 : 2 * at->event_room;
    kvarve_event *larger = room > EVENTS_MAX ? NULL : kvarve_allocate_array(room, sizeof *larger);

    if (larger == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < at->event_count; i++) {
        larger[i] = at->events[(at->event_first + i) & (at->event_room - 1)];
    }
    kvarve_release(at->events);
    at->events = larger;
    at->event_room = room;
    at->event_first = 0;
    return true;
}

void client_take_event_in(client *at, const kvarve_event *event)
{
    if (event->cookie == 0) {
        return;
    }
    if (at->event_count == at->event_room && !grow_events(at)) {
        if (at->event_room == 0) {
            return;
        }
        at->event_first = (at->event_first + 1) & (at->event_room - 1);
        at->event_count--;
    }
    at->events[(at->event_first + at->event_count) & (at->event_room - 1)] = *event;
    at->event_count++;
    event_set(at->event_fd);
}

static void tell(door *base, const kvarve_event *event)
{
    client_take_event_in(client_of(base), event);
}

static bool take_event(door *base, kvarve_event *out)
{
    client *at = client_of(base);

    client_drain(at);
    if (at->event_count == 0) {
        return false;
    }
    *out = at->events[at->event_first];
    at->event_first = (at->event_first + 1) & (at->event_room - 1);
    at->event_count--;
    if (at->event_count == 0 && !at->is_broken) {
        event_clear(at->event_fd);
    }
    return true;
}

static int event_fd(const door *base)
{
    return const_client_of(base)->event_poller;
}

/* --- jobs --- */

/* A job of the pool is done. Its end is taken here, on the pool's thread: nobody else may come. */
static void notify(void *context)
{
    client *at = context;

    mutex_lock(&at->mutex);
    if (!at->is_failed) {
        client_contain_begin(at, true);
        while (client_poll_jobs(at)) {
        }
        client_changed(at);
        client_contain_end();
    }
    mutex_unlock(&at->mutex);
}

static void job_failed(void *context, const char *text)
{
    client_contain_fail(context, text);
}

/* --- the arena --- */

void *client_address(const client_arena *arena, uint64_t offset, uint64_t size)
{
    if (arena == NULL || offset % ARENA_UNIT != 0 || offset < ARENA_HEAD_SIZE ||
        offset > arena->mapping.size || size > arena->mapping.size - offset) {
        return NULL;
    }
    return (uint8_t *)arena->mapping.base + offset; /* I2 */
}

client_arena *client_hold_arena(client *at)
{
    if (at->arena != NULL) {
        at->arena->references++;
    }
    return at->arena;
}

void client_let_arena(client *at, client_arena *arena)
{
    if (arena != NULL && --arena->references == 0) { /* I4 */
        at->transport->unmap_arena(at->transport, &arena->mapping);
        kvarve_release(arena);
    }
}

/* --- open --- */

static kvarve_status map_arena(client *at, const wire_welcome *welcome, kvarve_error *err)
{
    client_arena *arena;
    page_digest fingerprint;
    page_digest expected;
    int rc;

    if (welcome->arena_bytes < ARENA_HEAD_SIZE || welcome->arena_bytes > SIZE_MAX) {
        return kvarve_fail(err, KVARVE_UNAVAILABLE, "connect: an arena of %llu bytes",
                           (unsigned long long)welcome->arena_bytes);
    }
    arena = kvarve_allocate(sizeof *arena);
    if (arena == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "connect: the arena");
    }
    rc = at->transport->map_arena(at->transport, (size_t)welcome->arena_bytes, &arena->mapping);
    if (rc < 0) {
        kvarve_release(arena);
        return kvarve_fail(err, rc == -ENOMEM ? KVARVE_NO_MEMORY : KVARVE_UNAVAILABLE,
                           "connect: map the daemon's arena of %llu bytes: error %d",
                           (unsigned long long)welcome->arena_bytes, -rc);
    }
    arena->references = 1;
    at->arena = arena;
    fingerprint = page_digest_of(arena->mapping.base, ARENA_HEAD_SIZE);
    static_assert(sizeof expected == sizeof welcome->fingerprint, "an XXH3-128");
    memcpy(&expected, welcome->fingerprint, sizeof expected);
    if (!page_digest_is_equal(&fingerprint, &expected)) {
        return kvarve_fail(err, KVARVE_UNAVAILABLE,
                           "connect: the arena is not the one that the daemon says");
    }
    return KVARVE_OK;
}

static kvarve_status say_hello(client *at, kvarve_error *err)
{
    client_exchange what = {.request.type = WIRE_HELLO};
    kvarve_status status;

    what.request.as.hello = (wire_hello){.magic = WIRE_MAGIC,
                                         .version_oldest = WIRE_VERSION_OLDEST,
                                         .version_newest = WIRE_VERSION,
                                         .pid = (uint32_t)process_id(),
                                         .letter_bytes = at->letter.mapping.size};
    status = client_ask(at, &what, err);
    if (status != KVARVE_OK) {
        return status;
    }
    if (what.reply.as.welcome.version < WIRE_VERSION_OLDEST ||
        what.reply.as.welcome.version > WIRE_VERSION) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED, "connect: the daemon speaks version %u",
                           what.reply.as.welcome.version);
    }
    at->daemon_epoch = what.reply.as.welcome.epoch;
    return map_arena(at, &what.reply.as.welcome, err);
}

static kvarve_status watch_descriptors(client *at, kvarve_error *err)
{
    const int fd = at->transport->descriptor(at->transport);
    int rc = 0;

    at->is_still = fd < 0;
    at->event_fd = event_open();
    at->event_poller = poller_open();
    at->waker = at->is_still ? -1 : event_open();
    at->poller = at->is_still ? -1 : poller_open();
    if (at->event_fd < 0 || at->event_poller < 0 ||
        (!at->is_still && (at->waker < 0 || at->poller < 0))) {
        return kvarve_fail_io(err, -EMFILE, "connect: make event descriptors");
    }
    rc = poller_set(at->event_poller, at->event_fd, &at->event_fd, false, false);
    if (rc == 0 && !at->is_still) {
        rc = poller_set(at->event_poller, fd, at, false, false);
    }
    if (rc == 0 && !at->is_still) {
        rc = poller_set(at->poller, fd, at, false, false);
    }
    if (rc == 0 && !at->is_still) {
        rc = poller_set(at->poller, at->waker, &at->waker, false, false);
    }
    return rc < 0 ? kvarve_fail_io(err, rc, "connect: watch the connection") : KVARVE_OK;
}

static kvarve_status start(client *at, const client_options *options, kvarve_error *err)
{
    const env_posix_options pool = {
        .pool_threads = options->pool_threads == 0 ? POOL_THREADS : options->pool_threads,
        .notify = notify,
        .failed = kvarve_assert_is_containing() ? job_failed : NULL,
        .notify_context = at};
    kvarve_status status = KVARVE_OK;

    if (!table_init(&at->by_id)) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "connect: a table");
    }
    if (options->env != NULL) {
        at->env = *options->env;
    } else {
        status = env_posix_start(&pool, &at->posix, err);
        if (status != KVARVE_OK) {
            return status;
        }
        at->env = *env_posix_env(at->posix);
    }
    status = watch_descriptors(at, err);
    return status == KVARVE_OK
               ? client_letter_open(&at->letter, &at->env, options->letter_bytes, err)
               : status;
}

static void close_descriptor(int fd)
{
    if (fd >= 0) {
        event_close(fd);
    }
}

static void release_spares(client *at)
{
    while (at->spare != NULL) {
        client_notice *spare = at->spare;

        at->spare = spare->next_spare;
        kvarve_release(spare);
    }
}

/* Nothing is left that was given out; without the lock. */
static void free_client(client *at)
{
    env_posix_stop(at->posix);
    if (at->by_id.buckets != NULL) {
        client_break(at, "the store was closed"); /* what waits for answers ends */
    }
    client_let_arena(at, at->arena);
    at->transport->close(at->transport);
    client_letter_close(&at->letter);
    close_descriptor(at->poller);
    close_descriptor(at->waker);
    close_descriptor(at->event_poller);
    close_descriptor(at->event_fd);
    release_spares(at);
    table_deinit(&at->by_id);
    condition_deinit(&at->changed);
    mutex_deinit(&at->mutex);
    kvarve_release(at->document);
    kvarve_release(at->events);
    kvarve_release(at);
}

static client *make_client(client_transport *transport, const client_options *options)
{
    client *at = kvarve_allocate(sizeof *at);

    if (at == NULL) {
        return NULL;
    }
    at->base.ops = &client_door_ops;
    at->transport = transport;
    fork_guard_arm();
    at->epoch = fork_guard_epoch();
    at->io_timeout_ms = options->io_timeout_ms == 0 ? IO_TIMEOUT_MS : options->io_timeout_ms;
    at->event_fd = -1;
    at->event_poller = -1;
    at->waker = -1;
    at->poller = -1;
    at->letter.mapping.fd = -1;
    kvarve_list_init(&at->pending);
    kvarve_list_init(&at->watched);
    kvarve_list_init(&at->puts);
    kvarve_list_init(&at->leases);
    mutex_init(&at->mutex);
    condition_init(&at->changed);
    client_admin_init(at);
    return at;
}

kvarve_status client_open(client_transport *transport, const client_options *options, door **out,
                          kvarve_error *err)
{
    client *at = make_client(transport, options);
    kvarve_status status;

    if (at == NULL) {
        transport->close(transport);
        return kvarve_fail(err, KVARVE_NO_MEMORY, "connect: the door");
    }
    status = start(at, options, err);
    if (status == KVARVE_OK) {
        client_lock(&at->base);
        status = say_hello(at, err);
        client_unlock(&at->base);
    }
    if (status != KVARVE_OK) {
        free_client(at);
        return status;
    }
    *out = &at->base;
    return KVARVE_OK;
}

kvarve_status client_connect(const char *path, uint32_t wait_ms, const client_options *options,
                             door **out, kvarve_error *err)
{
    kvarve_clock *clock = clock_posix();
    const uint64_t deadline = wait_ms == KVARVE_NO_TIMEOUT
                                  ? KVARVE_NEVER
                                  : clock->monotonic_ns(clock) + wait_ms * KVARVE_NS_PER_MS;
    client_transport *transport = NULL;
    int fd = socket_connect(path);
    kvarve_status status;

    while (fd < 0 && (fd == -ENOENT || fd == -ECONNREFUSED || fd == -EAGAIN) &&
           clock->monotonic_ns(clock) < deadline) {
        sleep_ms(CONNECT_RETRY_MS);
        fd = socket_connect(path);
    }
    if (fd < 0) {
        return fd == -ENAMETOOLONG
                   ? kvarve_fail(err, KVARVE_INVALID, "connect to %.100s: the path is too long",
                                 path)
                   : kvarve_fail(err, KVARVE_UNAVAILABLE,
                                 "connect to %.100s: no daemon listens there (error %d)", path,
                                 -fd);
    }
    status = client_socket_transport(fd, &transport, err);
    return status == KVARVE_OK ? client_open(transport, options, out, err) : status;
}

/* --- close --- */

static void close_door(door *base)
{
    if (is_here(base)) { /* I3 */
        free_client(client_of(base));
    }
}

static void shut_down(door *base)
{
    client *at = client_of(base);

    at->is_shutting_down = true;
    client_put_abort_all(at);
}

static bool is_idle(const door *base)
{
    const client *at = const_client_of(base);

    return at->is_broken ||
           (client_puts_are_over(at) && at->env.executor->pending(at->env.executor) == 0);
}

const door_ops client_door_ops = {
    .close = close_door,
    .shut_down = shut_down,
    .is_idle = is_idle,
    .is_here = is_here,
    .enter = enter,
    .lets_go = lets_go,
    .lock = client_lock,
    .unlock = client_unlock,
    .deadline = client_deadline,
    .wait = client_wait,
    .is_still = is_still,
    .env = env_of,
    .take_event = take_event,
    .tell = tell,
    .event_fd = event_fd,
    .namespace_open = client_namespace_open,
    .namespace_release = client_namespace_release,
    .namespace_layout = client_namespace_layout,
    .put_begin = client_put_begin,
    .put_state = client_put_state,
    .put_refusal = client_put_refusal,
    .put_is_settling = client_put_is_settling,
    .put_id = client_put_id,
    .put_plan = client_put_plan,
    .put_first_token = client_put_first_token,
    .put_copy_begin = client_put_copy_begin,
    .put_copy_end = client_put_copy_end,
    .put_ack = client_put_ack,
    .put_fail = client_put_fail,
    .put_extend = client_put_extend,
    .put_close = client_put_close,
    .put_abort = client_put_abort,
    .put_release = client_put_release,
    .find = client_find,
    .find_all = client_find_all,
    .lease_boundary = client_lease_boundary,
    .lease_load = client_lease_load,
    .lease_status = client_lease_status,
    .lease_extent = client_lease_extent,
    .lease_page_begin = client_lease_page_begin,
    .lease_page_end = client_lease_page_end,
    .lease_read_ahead = client_lease_read_ahead,
    .lease_read_direct = client_lease_read_direct,
    .lease_release = client_lease_release,
    .statistics = client_statistics,
    .each = client_each,
    .drop = client_drop,
    .drops_are_settled = client_drops_are_settled,
    .document = client_document,
    .verify_begin = client_verify_begin,
    .verify_progress = client_verify_progress,
    .trim_begin = client_trim_begin,
    .trim_progress = client_trim_progress,
};
