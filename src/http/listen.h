/*
 * listen.h - answer GETs on the loopback interface: for health and figures, not for clients.
 *
 * Threads    http_listen and http_listener_stop: one. The responder runs on a thread of the
 *            listener's, one request at a time; signals are blocked there as they were for the
 *            caller of http_listen.
 * Ownership  As said below.
 */
#ifndef KVARVE_HTTP_LISTEN_H
#define KVARVE_HTTP_LISTEN_H

#include <stddef.h>
#include <stdint.h>

#include "kvarve/error.h"

typedef struct http_listener http_listener;

typedef struct http_reply {
    unsigned code;    /* 200, ... */
    const char *type; /* "text/plain", static */
    char *body;       /* kvarve_allocate: the listener's afterwards; NULL: none */
    size_t size;
} http_reply;

/* `out` comes as 404 without a body. */
typedef void (*http_responder)(void *context, const char *path, http_reply *out);

/* Listen at 127.0.0.1:port; 0: any that is free. KVARVE_UNAVAILABLE: the port is taken, or no
 * thread could be made. */
KVARVE_NODISCARD kvarve_status http_listen(uint16_t port, http_responder responder, void *context,
                                           http_listener **out, kvarve_error *err);
uint16_t http_listener_port(const http_listener *listener);
/* Ends what goes on, joins the thread, frees. NULL is a no-op. */
void http_listener_stop(http_listener *listener);

#endif
