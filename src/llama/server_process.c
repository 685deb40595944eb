/*
 * server_process.c - the process behind an address, and what /proc says of it.
 *
 * A listening socket has an inode number; the process that holds it open is the server. Only
 * processes of this user can be looked at, and only addresses of this machine are looked for.
 *
 * Invariant: a process is never guessed: none, or more than one, is refused with what to do.
 * Threads: any. Ownership: words are given back with server_words_free.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "llama/server_private.h"

#define PROC_TEXT_MAX ((size_t)1 << 22)
#define PROC_CHUNK    ((size_t)65536)
#define INODES_MAX    16
#define BACKENDS_MAX  32
#define NAME_MAX_TEXT 128

/* ---- Files of /proc: they have no size, and are read until they end ---- */

/* Text that grows. */
typedef struct proc_text {
    char *bytes;
    size_t size;
    size_t room;
} proc_text;

/* Room for one more piece and a NUL. */
static bool make_room(proc_text *text)
{
    if (text->room - text->size > PROC_CHUNK) {
        return true;
    }
    const size_t room = text->size + 2 * PROC_CHUNK + 1;
    char *grown = room > PROC_TEXT_MAX ? NULL : kvarve_reallocate(text->bytes, room);
    if (grown == NULL) {
        return false;
    }
    text->bytes = grown;
    text->room = room;
    return true;
}

static kvarve_status read_open(kvarve_io *io, kvarve_fd fd, const char *path, char **out,
                               size_t *out_size, kvarve_error *err)
{
    proc_text text = {0};
    ssize_t got = 1;

    while (got > 0 || got == -EINTR) {
        if (!make_room(&text)) {
            kvarve_release(text.bytes);
            return kvarve_fail(err, KVARVE_NO_MEMORY, "%s is too large", path);
        }
        const struct iovec part = {.iov_base = text.bytes + text.size, .iov_len = PROC_CHUNK};
        got = io->ops->read(io, fd, &part, 1, text.size);
        text.size += got > 0 ? (size_t)got : 0;
    }
    if (got < 0) {
        kvarve_release(text.bytes);
        return kvarve_fail_io(err, (int)got, "read %s", path);
    }
    text.bytes[text.size] = '\0';
    *out = text.bytes;
    *out_size = text.size;
    return KVARVE_OK;
}

/* KVARVE_MISS: there is no such file. */
static kvarve_status read_proc(kvarve_io *io, const char *path, char **out, size_t *out_size,
                               kvarve_error *err)
{
    kvarve_fd fd;
    const int rc = io->ops->open(io, path, KVARVE_OPEN_READ, 0, &fd);

    if (rc < 0) {
        return rc == -ENOENT ? KVARVE_MISS : kvarve_fail_io(err, rc, "open %s", path);
    }
    const kvarve_status status = read_open(io, fd, path, out, out_size, err);
    io->ops->close(io, fd);
    return status;
}

/* ---- Words ---- */

bool server_words_cut(server_words *words, char *bytes, size_t size)
{
    words->bytes = bytes;
    words->count = 0;
    for (size_t at = 0; at < size;) {
        if (words->count == SERVER_WORDS_MAX) {
            return false;
        }
        words->word[words->count++] = bytes + at;
        at += strlen(bytes + at) + 1; /* a NUL stands behind the last byte */
    }
    return true;
}

void server_words_free(server_words *words)
{
    if (words != NULL) {
        kvarve_release(words->bytes);
        kvarve_release(words);
    }
}

kvarve_status server_process_words(kvarve_io *io, int64_t pid, const char *name, server_words **out,
                                   kvarve_error *err)
{
    char path[64];
    char *text = NULL;
    size_t size = 0;

    (void)snprintf(path, sizeof(path), "/proc/%" PRId64 "/%s", pid, name);
    const kvarve_status status = read_proc(io, path, &text, &size, err);
    if (status != KVARVE_OK) {
        return status == KVARVE_MISS
                   ? kvarve_fail(err, KVARVE_UNSUPPORTED, "there is no process %" PRId64, pid)
                   : status;
    }
    server_words *words = kvarve_allocate(sizeof(*words));
    if (words == NULL) {
        kvarve_release(text);
        return kvarve_fail(err, KVARVE_NO_MEMORY, "%s", path);
    }
    if (!server_words_cut(words, text, size)) {
        server_words_free(words);
        return kvarve_fail(err, KVARVE_UNSUPPORTED, "%s has over %d words", path, SERVER_WORDS_MAX);
    }
    *out = words;
    return KVARVE_OK;
}

/* ---- Mapped backends ---- */

static bool is_backend(const char *name, size_t length)
{
    static const char head[] = "libggml-";
    static const char base[] = "libggml-base.so";

    return length > sizeof(head) && strncmp(name, head, sizeof(head) - 1) == 0 &&
           strncmp(name, base, sizeof(base) - 1) != 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The name of the file that a line of maps is about; *out_length 0: none. */
static const char *mapped_name(const char *line, size_t length, size_t *out_length)
{
    const char *slash = NULL;

    for (size_t i = 0; i < length; i++) {
        slash = line[i] == '/' ? line + i : slash;
    }
    *out_length = slash == NULL ? 0 : (size_t)(line + length - slash - 1);
    return slash == NULL ? line : slash + 1;
}

typedef struct name_list {
    char names[BACKENDS_MAX][NAME_MAX_TEXT];
    size_t count;
} name_list;

static bool has_name(const name_list *list, const char *name, size_t length)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strlen(list->names[i]) == length && memcmp(list->names[i], name, length) == 0) {
            return true;
        }
    }
    return false;
}

/* Add the backend that a line of maps is about; false: there are too many. */
static bool add_backend(name_list *list, const char *line, size_t line_length)
{
    size_t length = 0;
    const char *name = mapped_name(line, line_length, &length);

    if (length >= NAME_MAX_TEXT || !is_backend(name, length) || has_name(list, name, length)) {
        return true;
    }
    if (list->count == BACKENDS_MAX) {
        return false;
    }
    memcpy(list->names[list->count], name, length);
    list->names[list->count++][length] = '\0';
    return true;
}

static kvarve_status join_names(const name_list *list, char *out, size_t size, kvarve_error *err)
{
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; i < list->count; i++) {
        const int length =
            snprintf(out + used, size - used, "%s%s", i > 0 ? "," : "", list->names[i]);
        if (length < 0 || (size_t)length >= size - used) {
            return kvarve_fail(err, KVARVE_NO_SPACE, "the names of %zu backends", list->count);
        }
        used += (size_t)length;
    }
    return KVARVE_OK;
}

kvarve_status server_maps_read(const char *maps, char *out, size_t size, kvarve_error *err)
{
    name_list list = {.count = 0};

    for (const char *line = maps; *line != '\0';) {
        const size_t length = strcspn(line, "\n");
        if (!add_backend(&list, line, length)) {
            return kvarve_fail(err, KVARVE_NO_SPACE, "over %d backends", BACKENDS_MAX);
        }
        line += length;
        line += *line == '\n';
    }
    qsort(list.names, list.count, sizeof(list.names[0]), compare_names);
    return join_names(&list, out, size, err);
}

kvarve_status server_process_backends(kvarve_io *io, int64_t pid, char *out, size_t size,
                                      kvarve_error *err)
{
    char path[64];
    char *text = NULL;
    size_t text_size = 0;

    (void)snprintf(path, sizeof(path), "/proc/%" PRId64 "/maps", pid);
    kvarve_status status = read_proc(io, path, &text, &text_size, err);
    if (status == KVARVE_OK && text != NULL) {
        status = server_maps_read(text, out, size, err);
    }
    kvarve_release(text);
    return status == KVARVE_MISS
               ? kvarve_fail(err, KVARVE_UNSUPPORTED, "there is no process %" PRId64, pid)
               : status;
}

/* ---- Sockets ---- */

typedef struct inode_list {
    uint64_t inode[INODES_MAX];
    size_t count;
} inode_list;

static void add_inode(inode_list *list, uint64_t inode)
{
    if (inode != 0 && list->count < INODES_MAX) {
        list->inode[list->count++] = inode;
    }
}

/* The word number `index` of a line; *out_length 0: it has fewer. */
static const char *line_word(const char *line, size_t length, size_t index, size_t *out_length)
{
    const char *end = line + length;

    for (size_t i = 0;; i++) {
        while (line < end && *line == ' ') {
            line++;
        }
        const char *begin = line;
        while (line < end && *line != ' ') {
            line++;
        }
        if (i == index || line == end) {
            *out_length = i == index ? (size_t)(line - begin) : 0;
            return begin;
        }
    }
}

/* Listening sockets at a port, from /proc/net/tcp: local address, state 0A, inode. */
static void add_tcp_line(const char *line, size_t length, uint64_t port, inode_list *list)
{
    size_t local_length = 0;
    size_t state_length = 0;
    size_t inode_length = 0;
    const char *local = line_word(line, length, 1, &local_length);
    const char *state = line_word(line, length, 3, &state_length);
    const char *inode = line_word(line, length, 9, &inode_length);
    const char *colon = local_length == 0 ? NULL : memchr(local, ':', local_length);

    if (colon != NULL && state_length == 2 && memcmp(state, "0A", 2) == 0 && inode_length > 0 &&
        strtoull(colon + 1, NULL, 16) == port) {
        add_inode(list, strtoull(inode, NULL, 10));
    }
}

/* Listening sockets at a path, from /proc/net/unix: flags 00010000, inode, path. */
static void add_unix_line(const char *line, size_t length, const char *path, inode_list *list)
{
    size_t flags_length = 0;
    size_t inode_length = 0;
    size_t path_length = 0;
    const char *flags = line_word(line, length, 3, &flags_length);
    const char *inode = line_word(line, length, 6, &inode_length);
    const char *found = line_word(line, length, 7, &path_length);

    if (path_length > 0) {
        path_length = (size_t)(line + length - found); /* a path may have spaces */
    }
    if (flags_length == 8 && memcmp(flags, "00010000", 8) == 0 && inode_length > 0 &&
        path_length == strlen(path) && memcmp(found, path, path_length) == 0) {
        add_inode(list, strtoull(inode, NULL, 10));
    }
}

static kvarve_status add_sockets(kvarve_io *io, const char *file, uint64_t port, const char *path,
                                 inode_list *list, kvarve_error *err)
{
    char *text = NULL;
    size_t size = 0;
    const kvarve_status status = read_proc(io, file, &text, &size, err);

    if (status != KVARVE_OK) {
        return status == KVARVE_MISS ? KVARVE_OK : status;
    }
    for (const char *line = text; line != NULL && *line != '\0';) {
        const size_t length = strcspn(line, "\n");
        if (path != NULL) {
            add_unix_line(line, length, path, list);
        } else {
            add_tcp_line(line, length, port, list);
        }
        line += length;
        line += *line == '\n';
    }
    kvarve_release(text);
    return KVARVE_OK;
}

/* The port of a URL of this machine; 0: it is of another one, or has none. */
static uint64_t local_port(const char *address)
{
    static const char *const hosts[] = {"http://127.0.0.1", "http://localhost", "http://[::1]"};

    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        const size_t length = strlen(hosts[i]);
        if (strncmp(address, hosts[i], length) == 0 && address[length] == ':') {
            char *end = NULL;
            const uint64_t port = strtoull(address + length + 1, &end, 10);
            return (*end == '\0' || *end == '/') && port < 65536 ? port : 0;
        }
    }
    return 0;
}

/* ---- Processes ---- */

typedef struct process_search {
    kvarve_io *io;
    const inode_list *sockets;
    char folder[64]; /* /proc/PID/fd of the process that is looked at */
    bool has_socket; /* it has one of them */
    int64_t pid;     /* found; 0: none yet */
    size_t found;
} process_search;

static bool visit_descriptor(void *context, const char *name)
{
    process_search *search = context;
    char path[128];
    kvarve_file_stat stat;

    (void)snprintf(path, sizeof(path), "%s/%.32s", search->folder, name);
    if (search->io->ops->stat(search->io, path, &stat) == 0 && stat.kind == KVARVE_FILE_OTHER) {
        for (size_t i = 0; i < search->sockets->count; i++) {
            search->has_socket = search->has_socket || stat.inode == search->sockets->inode[i];
        }
    }
    return !search->has_socket;
}

static bool visit_process(void *context, const char *name)
{
    process_search *search = context;

    if (name[strspn(name, "0123456789")] != '\0' || strlen(name) > 10) {
        return true;
    }
    (void)snprintf(search->folder, sizeof(search->folder), "/proc/%s/fd", name);
    search->has_socket = false;
    /* Those of other users cannot be listed. */
    (void)search->io->ops->list(search->io, search->folder, visit_descriptor, search);
    if (search->has_socket) {
        search->pid = strtoll(name, NULL, 10);
        search->found++;
    }
    return true;
}

kvarve_status server_process_find(const llama_server_options *options, int64_t *out_pid,
                                  kvarve_error *err)
{
    inode_list sockets = {0};
    const bool is_url = strncmp(options->address, "http://", 7) == 0;
    const uint64_t port = is_url ? local_port(options->address) : 0;
    process_search search = {.io = options->io, .sockets = &sockets};
    kvarve_status status = KVARVE_OK;

    if (is_url && port == 0) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED,
                           "%.60s is no port of this machine's loopback; name the server's "
                           "process with --server-pid",
                           options->address);
    }
    if (is_url) {
        status = add_sockets(options->io, "/proc/net/tcp", port, NULL, &sockets, err);
        if (status == KVARVE_OK) {
            status = add_sockets(options->io, "/proc/net/tcp6", port, NULL, &sockets, err);
        }
    } else {
        status = add_sockets(options->io, "/proc/net/unix", 0, options->address, &sockets, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    const int rc = options->io->ops->list(options->io, "/proc", visit_process, &search);
    if (rc < 0) {
        return kvarve_fail_io(err, rc, "list /proc");
    }
    if (search.found != 1) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED,
                           "%s process of this user listens at %.60s; name it with --server-pid",
                           search.found == 0 ? "no" : "more than one", options->address);
    }
    *out_pid = search.pid;
    return KVARVE_OK;
}

/* ---- Its paths ---- */

bool server_process_path(kvarve_io *io, int64_t pid, char *path, size_t size)
{
    char there[KVARVE_PATH_MAX];
    kvarve_file_stat ours;
    kvarve_file_stat its;
    const bool is_absolute = path[0] == '/';
    const int length = snprintf(there, sizeof(there), "/proc/%" PRId64 "/%s%s", pid,
                                is_absolute ? "root" : "cwd/", path);

    if (length < 0 || (size_t)length >= sizeof(there) || (size_t)length >= size) {
        return false;
    }
    if (is_absolute) {
        const int rc = io->ops->stat(io, there, &its);
        if (rc != 0 || (io->ops->stat(io, path, &ours) == 0 && ours.device == its.device &&
                        ours.inode == its.inode)) {
            return true; /* the same file, or it cannot be looked at in its own root */
        }
    }
    memcpy(path, there, (size_t)length + 1);
    return true;
}
