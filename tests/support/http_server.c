/* http_server.c - see http_server.h. One request a connection, one connection at a time. */
#include "support/http_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"

#define REQUEST_MAX 4096

struct http_server {
    int listener;
    const http_script *script;
    size_t count;
    pthread_t thread;
};

/* Read until the empty line behind the request's head. */
static size_t read_head(int fd, char *head)
{
    size_t size = 0;

    while (size + 1 < REQUEST_MAX) {
        const ssize_t got = read(fd, head + size, REQUEST_MAX - 1 - size);
        if (got <= 0) {
            break;
        }
        size += (size_t)got;
        head[size] = '\0';
        if (strstr(head, "\r\n\r\n") != NULL) {
            break;
        }
    }
    head[size] = '\0';
    return size;
}

static const http_script *find_script(const http_server *server, const char *head)
{
    for (size_t i = 0; i < server->count; i++) {
        const size_t length = strlen(server->script[i].path);
        if (strncmp(head, "GET ", 4) == 0 &&
            strncmp(head + 4, server->script[i].path, length) == 0 && head[4 + length] == ' ') {
            return &server->script[i];
        }
    }
    return NULL;
}

static void write_all(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        const ssize_t put = send(fd, bytes, size, MSG_NOSIGNAL);
        if (put <= 0) {
            return; /* the client went away */
        }
        bytes += put;
        size -= (size_t)put;
    }
}

static void answer(const http_server *server, int fd)
{
    char head[REQUEST_MAX];
    char line[160];

    if (read_head(fd, head) == 0) {
        return;
    }
    const http_script *script = find_script(server, head);
    const char *body = script == NULL ? "" : script->body;
    if (body == NULL) {
        return;
    }
    (void)snprintf(line, sizeof(line),
                   "HTTP/1.1 %d Test\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                   script == NULL ? 404 : script->code, strlen(body));
    write_all(fd, line, strlen(line));
    write_all(fd, body, strlen(body));
}

static void *serve(void *context)
{
    const http_server *server = context;

    for (;;) {
        const int fd = accept(server->listener, NULL, NULL); /* ends when it is shut down */
        if (fd < 0) {
            return NULL;
        }
        answer(server, fd);
        (void)close(fd);
    }
}

http_server *http_server_start(const char *path, const http_script *script, size_t count)
{
    http_server *server = kvarve_allocate(sizeof(*server));
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    assert_non_null(server);
    server->script = script;
    server->count = count;
    assert_true(strlen(path) < sizeof(address.sun_path));
    memcpy(address.sun_path, path, strlen(path) + 1);
    server->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(server->listener >= 0);
    assert_int_equal(
        bind(server->listener, (const struct sockaddr *)(const void *)&address, sizeof(address)),
        0);
    assert_int_equal(listen(server->listener, 8), 0);
    assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
    return server;
}

void http_server_stop(http_server *server)
{
    (void)shutdown(server->listener, SHUT_RDWR);
    (void)pthread_join(server->thread, NULL);
    (void)close(server->listener);
    kvarve_release(server);
}
