/*
 * listen.c - see listen.h; in front of libmicrohttpd.
 *
 * Invariants
 *   L1  Nobody but this machine is answered: the socket is bound to the loopback address.
 *   L2  A peer that sends slowly, much or never is dropped: connections, bytes and seconds are
 * bounded.
 *
 * Threads: as listen.h.
 */
#include "http/listen.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"

#define CONNECTIONS_MAX  16u
#define CONNECTION_BYTES ((size_t)16384)
#define TIMEOUT_S        5u

struct http_listener {
    struct MHD_Daemon *server;
    http_responder responder;
    void *context;
    uint16_t port;
};

static enum MHD_Result queue(struct MHD_Connection *connection, const http_reply *reply)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(reply->size, reply->body, MHD_RESPMEM_MUST_COPY);
    enum MHD_Result result;

    if (response == NULL) {
        return MHD_NO;
    }
    result = MHD_YES;
    if (reply->type != NULL) {
        result = MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, reply->type);
    }
    if (result == MHD_YES) {
        result = MHD_queue_response(connection, reply->code, response);
    }
    MHD_destroy_response(response);
    return result;
}

/* Called once for the head of a request, then for its end. */
/* NOLINTNEXTLINE(readability-function-size): the library's signature */
static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_size, /* NOLINT(readability-non-const-parameter) */
                              void **request)
{
    static char seen;
    const http_listener *listener = context;
    http_reply reply = {.code = MHD_HTTP_NOT_FOUND};
    enum MHD_Result result;

    (void)version;
    (void)upload;
    if (*request == NULL) {
        *request = &seen;
        return MHD_YES;
    }
    if (*upload_size != 0) {
        return MHD_NO; /* nobody has a reason to send a body */
    }
    if (strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0) {
        listener->responder(listener->context, url, &reply);
    } else {
        reply.code = MHD_HTTP_METHOD_NOT_ALLOWED;
    }
    result = queue(connection, &reply);
    kvarve_release(reply.body);
    return result;
}

static struct MHD_Daemon *start(http_listener *listener, uint16_t port)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons(port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}; /* L1 */
    const unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL;

    return MHD_start_daemon(flags, port, NULL, NULL, answer, listener,            /* */
                            MHD_OPTION_SOCK_ADDR, &address,                       /* */
                            MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX,         /* L2 */
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_BYTES, /* L2 */
                            MHD_OPTION_CONNECTION_TIMEOUT, TIMEOUT_S,             /* L2 */
                            MHD_OPTION_END);
}

kvarve_status http_listen(uint16_t port, http_responder responder, void *context,
                          http_listener **out, kvarve_error *err)
{
    http_listener *listener = kvarve_allocate(sizeof *listener);
    const union MHD_DaemonInfo *info;

    if (listener == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "listen for HTTP");
    }
    listener->responder = responder;
    listener->context = context;
    listener->server = start(listener, port);
    info = listener->server == NULL
               ? NULL
               : MHD_get_daemon_info(listener->server, MHD_DAEMON_INFO_BIND_PORT);
    if (info == NULL) {
        http_listener_stop(listener);
        return kvarve_fail(err, KVARVE_UNAVAILABLE,
                           "listen for HTTP at 127.0.0.1:%u: the port is taken or not allowed",
                           port);
    }
    listener->port = info->port;
    *out = listener;
    return KVARVE_OK;
}

uint16_t http_listener_port(const http_listener *listener)
{
    return listener->port;
}

void http_listener_stop(http_listener *listener)
{
    if (listener == NULL) {
        return;
    }
    if (listener->server != NULL) {
        MHD_stop_daemon(listener->server);
    }
    kvarve_release(listener);
}
