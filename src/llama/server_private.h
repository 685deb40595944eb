/* server_private.h - what server.c (asking), server_process.c (finding) and server_flags.c (the
 * command line) share. */
#ifndef KVARVE_LLAMA_SERVER_PRIVATE_H
#define KVARVE_LLAMA_SERVER_PRIVATE_H

#include <stdbool.h>

#include "llama/server.h"

#define SERVER_WORDS_MAX 4096

/* A list of NUL-terminated words: a command line, or an environment. */
typedef struct server_words {
    char *bytes; /* owned */
    const char *word[SERVER_WORDS_MAX];
    size_t count;
} server_words;

/* Cut `size` bytes of NUL-terminated words up; takes `bytes`. False: too many. */
bool server_words_cut(server_words *words, char *bytes, size_t size);
void server_words_free(server_words *words);

/*
 * Read a llama-server's command line and environment (either may be empty) into *facts. Paths are
 * taken as they are. KVARVE_UNSUPPORTED: state depends on more than tokens, or an option is not
 * understood that matters.
 */
KVARVE_NODISCARD kvarve_status server_flags_read(const server_words *arguments,
                                                 const server_words *environment,
                                                 llama_facts *facts, kvarve_error *err);

/* Find the process that listens at the address; KVARVE_UNSUPPORTED says what to do. */
KVARVE_NODISCARD kvarve_status server_process_find(const llama_server_options *options,
                                                   int64_t *out_pid, kvarve_error *err);
/* Its command line or environment: /proc/PID/NAME. */
KVARVE_NODISCARD kvarve_status server_process_words(kvarve_io *io, int64_t pid, const char *name,
                                                    server_words **out, kvarve_error *err);
/* Names of the mapped ggml backends, sorted, joined with commas; "" when none is mapped. */
KVARVE_NODISCARD kvarve_status server_process_backends(kvarve_io *io, int64_t pid, char *out,
                                                       size_t size, kvarve_error *err);
/* The same from the text of /proc/PID/maps. KVARVE_NO_SPACE. */
KVARVE_NODISCARD kvarve_status server_maps_read(const char *maps, char *out, size_t size,
                                                kvarve_error *err);
/* Make a path of the process one of ours, through /proc/PID/root or cwd. False: too long. */
bool server_process_path(kvarve_io *io, int64_t pid, char *path, size_t size);

#endif
