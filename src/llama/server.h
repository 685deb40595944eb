/*
 * server.h - facts for an identity from a running llama-server: its /props, its command line and
 * environment, and the libraries that it has mapped.
 *
 * Threads    Any. Blocks for the answers.
 * Ownership  Nothing is kept.
 */
#ifndef KVARVE_LLAMA_SERVER_H
#define KVARVE_LLAMA_SERVER_H

#include <stdint.h>

#include "env/io.h"
#include "kvarve/error.h"
#include "llama/identity.h"

typedef struct llama_server_options {
    kvarve_io *io;
    const char *address; /* "http://127.0.0.1:8080", or the path of a Unix socket */
    int64_t pid;         /* 0: it is looked for by the address, among this user's processes */
    uint32_t timeout_ms; /* of one request */
    const char *key;     /* the server's API key, or NULL */
} llama_server_options;

/*
 * Fill what the server tells into *facts, which was initialised.
 *
 * KVARVE_UNSUPPORTED: its state depends on more than its tokens (the text says on what), or it is
 * no llama-server that is known. KVARVE_UNAVAILABLE: it does not answer. KVARVE_MISS does not
 * occur: a process that cannot be found is KVARVE_UNSUPPORTED, and says what to do.
 */
KVARVE_NODISCARD kvarve_status llama_server_facts(const llama_server_options *options,
                                                  llama_facts *facts, kvarve_error *err);

#endif
