/*
 * socket_transport.c - a client's messages over a SOCK_SEQPACKET socket.
 *
 * Threads: as client/transport.h. Ownership: the transport owns its socket, and a descriptor that
 * came with a message until the next one.
 */
#include <errno.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "client/client.h"
#include "env/socket.h"

typedef struct socket_transport {
    client_transport base; /* first */
    int fd;
    int passed; /* with the last message that had one; -1: none */
} socket_transport;

static socket_transport *transport_of(client_transport *at)
{
    return (socket_transport *)(void *)at;
}

static int send_message(client_transport *base, const void *bytes, size_t size,
                        const kvarve_mapping *letter, uint64_t deadline_ns)
{
    const socket_transport *at = transport_of(base);
    int rc = socket_send(at->fd, bytes, size, letter == NULL ? -1 : letter->fd);

    while (rc == -EAGAIN) {
        if (!socket_wait(at->fd, true, deadline_ns)) {
            return -ETIMEDOUT;
        }
        rc = socket_send(at->fd, bytes, size, letter == NULL ? -1 : letter->fd);
    }
    return rc < 0 ? rc : 0;
}

static void close_passed(socket_transport *at)
{
    if (at->passed >= 0) {
        socket_close(at->passed);
        at->passed = -1;
    }
}

static int64_t receive_message(client_transport *base, void *bytes, size_t room,
                               uint64_t deadline_ns)
{
    socket_transport *at = transport_of(base);
    int passed = -1;
    int64_t size = socket_receive(at->fd, bytes, room, &passed);

    while (size == -EAGAIN) {
        if (deadline_ns == 0 || !socket_wait(at->fd, false, deadline_ns)) {
            return -ETIMEDOUT;
        }
        size = socket_receive(at->fd, bytes, room, &passed);
    }
    if (passed >= 0) {
        close_passed(at); /* one that nobody asked for is not kept */
        at->passed = passed;
    }
    return size == 0 ? -ECONNRESET : size;
}

static int map_arena(client_transport *base, size_t size, kvarve_mapping *out)
{
    socket_transport *at = transport_of(base);
    const int rc = at->passed < 0 ? -EBADF : memory_map_foreign(at->passed, size, true, out);

    close_passed(at);
    return rc;
}

static void unmap_arena(client_transport *base, kvarve_mapping *arena)
{
    (void)base;
    memory_unmap_foreign(arena);
}

static int descriptor_of(const client_transport *base)
{
    return ((const socket_transport *)(const void *)base)->fd;
}

static void close_transport(client_transport *base)
{
    socket_transport *at = transport_of(base);

    close_passed(at);
    socket_close(at->fd);
    kvarve_release(at);
}

kvarve_status client_socket_transport(int fd, client_transport **out, kvarve_error *err)
{
    socket_transport *made = kvarve_allocate(sizeof *made);

    if (made == NULL) {
        socket_close(fd);
        return kvarve_fail(err, KVARVE_NO_MEMORY, "connect: a connection");
    }
    *made = (socket_transport){.base = {.send = send_message,
                                        .receive = receive_message,
                                        .map_arena = map_arena,
                                        .unmap_arena = unmap_arena,
                                        .descriptor = descriptor_of,
                                        .close = close_transport},
                               .fd = fd,
                               .passed = -1};
    *out = &made->base;
    return KVARVE_OK;
}
