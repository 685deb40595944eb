/*
 * ask.c - see ask.h: a client without a letter, of three requests.
 *
 * Threads: any.
 */
#include "daemon/ask.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "env/env_posix.h"
#include "env/socket.h"
#include "env/thread.h"

#define REASONS ((size_t)32) /* of misses, and of refusals */

typedef struct asking {
    const char *path;
    int fd;
    uint64_t deadline_ns;
    uint8_t *bytes; /* WIRE_MESSAGE_MAX of them */
    kvarve_error *err;
} asking;

static kvarve_status send_request(const asking *at, const wire_message *request)
{
    size_t size = 0;
    kvarve_status status = wire_encode(request, at->bytes, WIRE_MESSAGE_MAX, &size, at->err);
    int rc = status == KVARVE_OK ? socket_send(at->fd, at->bytes, size, -1) : 0;

    while (rc == -EAGAIN && socket_wait(at->fd, true, at->deadline_ns)) {
        rc = socket_send(at->fd, at->bytes, size, -1);
    }
    /* One that closes has said why before. */
    return rc < 0 && rc != -EPIPE && rc != -ECONNRESET
               ? kvarve_fail_io(at->err, rc, "ask the daemon at %.100s", at->path)
               : status;
}

static kvarve_status receive(const asking *at, size_t *out_size)
{
    int passed = -1;
    int64_t size = socket_receive(at->fd, at->bytes, WIRE_MESSAGE_MAX, &passed);

    while (size == -EAGAIN && socket_wait(at->fd, false, at->deadline_ns)) {
        size = socket_receive(at->fd, at->bytes, WIRE_MESSAGE_MAX, &passed);
    }
    socket_close(passed);
    if (size == -EAGAIN) {
        return kvarve_fail(at->err, KVARVE_UNAVAILABLE, "the daemon at %.100s does not answer",
                           at->path);
    }
    if (size <= 0) {
        return kvarve_fail(at->err, KVARVE_UNAVAILABLE, "the daemon at %.100s closed", at->path);
    }
    *out_size = (size_t)size;
    return KVARVE_OK;
}

/* Ask, and wait for the reply of this type. */
static kvarve_status ask(const asking *at, const wire_message *request, wire_message *out)
{
    size_t size = 0;
    kvarve_status status = send_request(at, request);

    status = status == KVARVE_OK ? receive(at, &size) : status;
    status = status == KVARVE_OK ? wire_decode(at->bytes, size, out, at->err) : status;
    if (status != KVARVE_OK) {
        return status;
    }
    if (out->type == WIRE_ERROR) {
        return kvarve_fail(at->err, (kvarve_status)out->as.error.status, "%s", out->as.error.text);
    }
    return out->type == wire_type_reply(request->type)
               ? KVARVE_OK
               : kvarve_fail(at->err, KVARVE_UNAVAILABLE,
                             "the daemon at %.100s answers what was not asked", at->path);
}

/* Rows that are known on both sides: the table only grows. */
static void take_statistics(const wire_message *reply, kvarve_statistics *out)
{
    uint64_t *const rows[] = {
#define STATISTIC_ROW(field, unit, text) &out->field,
        KVARVE_STATISTIC_TABLE(STATISTIC_ROW)
#undef STATISTIC_ROW
    };
    const size_t known = 2 * REASONS + sizeof rows / sizeof rows[0];

    for (uint32_t i = 0; i < reply->count && i < known; i++) {
        wire_number number;

        wire_item(reply, i, &number);
        if (i < REASONS) {
            out->misses[i] = number.value;
        } else if (i < 2 * REASONS) {
            out->refusals[i - REASONS] = number.value;
        } else {
            *rows[i - 2 * REASONS] = number.value;
        }
    }
}

static kvarve_status ask_all(const asking *at, daemon_answer *out)
{
    wire_message request = {.type = WIRE_HELLO, .id = 1};
    wire_message reply;
    kvarve_status status;

    request.as.hello = (wire_hello){.magic = WIRE_MAGIC,
                                    .version_oldest = WIRE_VERSION_OLDEST,
                                    .version_newest = WIRE_VERSION,
                                    .pid = (uint32_t)process_id()};
    status = ask(at, &request, &reply);
    request = (wire_message){.type = WIRE_STATUS, .id = 2};
    status = status == KVARVE_OK ? ask(at, &request, &reply) : status;
    if (status == KVARVE_OK) {
        out->status = reply.as.status_is;
    }
    request = (wire_message){.type = WIRE_STATISTICS, .id = 3};
    status = status == KVARVE_OK ? ask(at, &request, &reply) : status;
    if (status == KVARVE_OK) {
        take_statistics(&reply, &out->statistics);
    }
    return status;
}

kvarve_status daemon_ask(const char *path, uint32_t timeout_ms, daemon_answer *out,
                         kvarve_error *err)
{
    kvarve_clock *clock = clock_posix();
    asking at = {.path = path,
                 .fd = socket_connect(path),
                 .deadline_ns = clock->monotonic_ns(clock) + timeout_ms * KVARVE_NS_PER_MS,
                 .err = err};
    kvarve_status status;

    if (at.fd == -ENOENT || at.fd == -ECONNREFUSED) {
        return kvarve_fail(err, KVARVE_MISS, "no daemon listens at %.120s", path);
    }
    if (at.fd < 0) {
        return kvarve_fail_io(err, at.fd, "connect to %.120s", path);
    }
    at.bytes = kvarve_allocate(WIRE_MESSAGE_MAX);
    status =
        at.bytes != NULL ? ask_all(&at, out) : kvarve_fail(err, KVARVE_NO_MEMORY, "ask the daemon");
    kvarve_release(at.bytes);
    socket_close(at.fd);
    return status;
}
