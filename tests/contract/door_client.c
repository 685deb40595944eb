/*
 * door_client.c - see door_client.h.
 *
 * There is no other process and no thread: whoever waits for a message makes the store and the
 * session go on, a step at a time, as embedded_wait does.
 */
#include "contract/door_client.h"

#include <errno.h>
#include <string.h>

#include "api/open_over.h"
#include "base/alloc.h"
#include "base/assert.h"
#include "client/client.h"
#include "session/session.h"
#include "store/store.h"

#define LETTER_BYTES (UINT64_C(8) << 20)

struct door_server {
    const kvarve_env *env;
    store_machine *store;
    session_host *host;
    bool has_client;
    bool is_stopped;
};

typedef struct direct_transport {
    client_transport base; /* first */
    door_server *server;
    session *session;
    bool is_closed; /* by the session */
} direct_transport;

static void event(void *context, const kvarve_event *told)
{
    door_server *server = context;

    if (server->host != NULL) {
        session_host_event(server->host, told);
    }
}

static void end_server(door_server *server)
{
    session_host_destroy(server->host);
    server->host = NULL;
    if (server->store != NULL) {
        store_shut_down(server->store);
        while (!store_is_idle(server->store) && store_poll(server->store)) {
        }
        while (store_poll(server->store)) {
        }
        store_close(server->store);
    }
    kvarve_release(server);
}

/* --- the transport --- */

static direct_transport *transport_of(client_transport *at)
{
    return (direct_transport *)(void *)at;
}

static int send_message(client_transport *base, const void *bytes, size_t size,
                        const kvarve_mapping *letter, uint64_t deadline_ns)
{
    direct_transport *at = transport_of(base);

    (void)deadline_ns;
    if (at->is_closed) {
        return -EPIPE;
    }
    if (letter != NULL) {
        session_lend_letter(at->session, letter->base, letter->size);
    }
    at->is_closed = session_take(at->session, bytes, size, NULL) != KVARVE_OK;
    return 0;
}

/* A message that is there: its size, or 0. */
static int64_t take_first(direct_transport *at, void *bytes, size_t room)
{
    const void *message;
    size_t size;
    bool has_arena;

    if (!session_next(at->session, &message, &size, &has_arena)) {
        return 0;
    }
    KVARVE_ASSERT(size <= room);
    memcpy(bytes, message, size);
    session_sent(at->session);
    return (int64_t)size;
}

static int64_t receive_message(client_transport *base, void *bytes, size_t room,
                               uint64_t deadline_ns)
{
    direct_transport *at = transport_of(base);
    kvarve_executor *executor = at->server->env->executor;
    int64_t size = take_first(at, bytes, room);
    bool is_moving;

    if (size > 0) {
        return size;
    }
    if (at->is_closed) {
        return -ECONNRESET;
    }
    if (deadline_ns == 0) {
        return -ETIMEDOUT;
    }
    is_moving = store_poll(at->server->store);
    (void)session_poll(at->session);
    size = take_first(at, bytes, room);
    if (size > 0) {
        return size;
    }
    return is_moving || executor->pending(executor) > 0 ? 0 : -ETIMEDOUT;
}

static int map_arena(client_transport *base, size_t size, kvarve_mapping *out)
{
    const void *memory = NULL;
    uint64_t there = 0;
    uintptr_t address;

    store_arena(transport_of(base)->server->store, &memory, &there, NULL);
    if (there != size) {
        return -EINVAL;
    }
    address = (uintptr_t)memory;
    *out = (kvarve_mapping){.size = size, .fd = -1};
    memcpy(&out->base, &address, sizeof address);
    return 0;
}

static void unmap_arena(client_transport *base, kvarve_mapping *arena)
{
    (void)base;
    *arena = (kvarve_mapping){.fd = -1};
}

static int descriptor_of(const client_transport *base)
{
    (void)base;
    return -1;
}

static void close_transport(client_transport *base)
{
    direct_transport *at = transport_of(base);
    door_server *server = at->server;

    session_destroy(at->session);
    kvarve_release(at);
    server->has_client = false;
    if (server->is_stopped) {
        end_server(server);
    }
}

static client_transport *make_transport(door_server *server, kvarve_error *err)
{
    const session_peer peer = {.pid = 1, .started_at = 1, .uid = 1};
    direct_transport *at = kvarve_allocate(sizeof *at);

    KVARVE_ASSERT(at != NULL);
    at->base = (client_transport){.send = send_message,
                                  .receive = receive_message,
                                  .map_arena = map_arena,
                                  .unmap_arena = unmap_arena,
                                  .descriptor = descriptor_of,
                                  .close = close_transport};
    at->server = server;
    if (session_open(server->host, &peer, &at->session, err) != KVARVE_OK) {
        kvarve_release(at);
        return NULL;
    }
    server->has_client = true;
    return &at->base;
}

/* --- the server --- */

static kvarve_status open_server(door_server *server, const char *directory,
                                 const kvarve_store_options *options, kvarve_error *err)
{
    const store_sink sink = {.context = server, .event = event};
    session_host_options host = {
        .env = server->env, .epoch = 1, .io_timeout_ms = options->io_timeout_ms};
    kvarve_status status = store_open(server->env, directory, options, &sink, &server->store, err);

    if (status != KVARVE_OK) {
        return status;
    }
    while (store_is_opening(server->store) && store_poll(server->store)) {
    }
    host.store = server->store;
    return session_host_create(&host, &server->host, err);
}

kvarve_status door_server_start(const kvarve_env *env, const char *directory,
                                const kvarve_store_options *options, door_server **out,
                                kvarve_store **out_store, kvarve_error *err)
{
    kvarve_store_options complete = *options;
    const client_options client = {
        .env = env, .letter_bytes = LETTER_BYTES, .io_timeout_ms = options->io_timeout_ms};
    door_server *server = kvarve_allocate(sizeof *server);
    client_transport *transport = NULL;
    door *opened = NULL;
    kvarve_status status;

    KVARVE_ASSERT(server != NULL);
    complete.checkpoints_max =
        complete.checkpoints_max == 0 ? UINT64_C(1) << 22 : complete.checkpoints_max;
    server->env = env;
    status = open_server(server, directory, &complete, err);
    if (status == KVARVE_OK) {
        transport = make_transport(server, err);
        status = transport == NULL ? KVARVE_BUSY : client_open(transport, &client, &opened, err);
    }
    if (status == KVARVE_OK) {
        status = api_open_over(opened, options, out_store, err);
    }
    if (status != KVARVE_OK) {
        door_server_stop(server);
        return status;
    }
    *out = server;
    return KVARVE_OK;
}

void door_server_stop(door_server *server)
{
    if (server == NULL) {
        return;
    }
    server->is_stopped = true;
    if (!server->has_client) {
        end_server(server);
    }
}
