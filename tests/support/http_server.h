/* http_server.h - an HTTP server of a test's own, on a thread, on a Unix socket. */
#ifndef KVARVE_TESTS_HTTP_SERVER_H
#define KVARVE_TESTS_HTTP_SERVER_H

#include <stddef.h>

/* What is answered to GET of a path; others get 404. */
typedef struct http_script {
    const char *path;
    int code;
    const char *body; /* NULL: the connection is closed without an answer */
} http_script;

typedef struct http_server http_server;

/* Listen at the socket `path` when it returns. The script is borrowed until stop. */
http_server *http_server_start(const char *path, const http_script *script, size_t count);
void http_server_stop(http_server *server);

#endif
