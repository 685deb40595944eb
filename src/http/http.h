/*
 * http.h - one HTTP GET, over TCP or a Unix socket.
 *
 * A thin front of libcurl. No redirects are followed, no proxy is used, no TLS is spoken: what is
 * asked runs on this machine.
 *
 * Threads    Any; the first call of a process initialises libcurl and is made by one thread.
 * Ownership  The body is the caller's (kvarve_release).
 */
#ifndef KVARVE_HTTP_HTTP_H
#define KVARVE_HTTP_HTTP_H

#include <stddef.h>
#include <stdint.h>

#include "kvarve/error.h"

typedef struct http_request {
    const char *address; /* "http://HOST:PORT", or the path of a Unix socket */
    const char *path;    /* "/props" */
    uint32_t timeout_ms; /* of all of it */
    size_t body_max;     /* bytes of the answer */
    const char *bearer;  /* an API key, or NULL */
} http_request;

typedef struct http_answer {
    long code;  /* 200 ... */
    char *body; /* NUL-terminated, never NULL after KVARVE_OK */
    size_t size;
} http_answer;

/*
 * KVARVE_OK: there is an answer, whatever its code. KVARVE_UNAVAILABLE: nobody answers, or not in
 * time; KVARVE_NO_SPACE: the answer is larger than body_max; KVARVE_INVALID: no such address.
 */
KVARVE_NODISCARD kvarve_status http_get(const http_request *request, http_answer *out,
                                        kvarve_error *err);

#endif
