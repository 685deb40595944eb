/*
 * link.c - requests and replies as messages of a SOCK_SEQPACKET pair.
 *
 * Threads: one at each end; no state of its own.
 */
#include "standin/link.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool link_make(int out[2])
{
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, out) == 0;
}

void link_close(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
    }
    *fd = -1;
}

static bool send_all(int fd, const void *bytes, size_t size)
{
    ssize_t sent;

    do {
        sent = send(fd, bytes, size, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent >= 0 && (size_t)sent == size;
}

static bool take(int fd, void *out, size_t size, size_t *out_size)
{
    ssize_t taken;

    do {
        taken = recv(fd, out, size, 0);
    } while (taken < 0 && errno == EINTR);
    *out_size = taken > 0 ? (size_t)taken : 0;
    return taken > 0;
}

static size_t count_ids(const link_request *request)
{
    size_t count = 0;

    for (uint32_t g = 0; g < STANDIN_GROUPS_MAX; g++) {
        count += request->id_counts[g];
    }
    return count;
}

bool link_send_request(int fd, const link_message *message)
{
    const size_t words = count_ids(&message->request) + message->request.token_count;

    return send_all(fd, message, sizeof message->request + words * sizeof message->words[0]);
}

bool link_take_request(int fd, link_message *out)
{
    size_t size;
    size_t words;

    if (!take(fd, out, sizeof *out, &size) || size < sizeof out->request) {
        return false;
    }
    words = count_ids(&out->request) + out->request.token_count;
    return size == sizeof out->request + words * sizeof out->words[0];
}

bool link_send_reply(int fd, const link_reply *reply)
{
    return send_all(fd, reply, sizeof *reply);
}

bool link_take_reply(int fd, link_reply *out)
{
    size_t size;

    return take(fd, out, sizeof *out, &size) && size == sizeof *out;
}

void link_tables(const link_message *message, uint32_t group_count, standin_table *out)
{
    const uint32_t *ids = message->words;

    for (uint32_t g = 0; g < group_count; g++) {
        out[g] = (standin_table){.first_token = message->request.first_tokens[g],
                                 .count = message->request.id_counts[g],
                                 .ids = ids};
        ids += message->request.id_counts[g];
    }
}

const uint32_t *link_tokens(const link_message *message)
{
    return message->words + count_ids(&message->request);
}
