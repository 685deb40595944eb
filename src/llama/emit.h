/*
 * emit.h - write a slot file from the longest stored boundary of a token list.
 *
 * Threads    One.
 * Ownership  Everything is borrowed for the call.
 */
#ifndef KVARVE_LLAMA_EMIT_H
#define KVARVE_LLAMA_EMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "env/io.h"
#include "kvarve/admin.h"
#include "kvarve/checkpoint.h"
#include "llama/identity.h"

#define LLAMA_EMIT_CHECKPOINTS_MAX 32

typedef struct llama_emit_options {
    kvarve_io *io;
    const char *store_path;   /* of the store that is open */
    const char *output;       /* path of the slot file; replaced as a whole */
    const char *salt;         /* or NULL */
    uint64_t min_tokens;      /* 0: 1 */
    uint64_t max_tokens;      /* 0: one less than there are tokens */
    uint32_t stream_count;    /* of the server's cache; 1 for -np 1 and for a unified one */
    uint32_t stream_index;    /* the slot's number; below stream_count */
    uint32_t checkpoints;     /* how many shorter boundaries go along as context checkpoints */
    uint32_t timeout_ms;      /* of one read */
    bool needs_draft;         /* only a boundary whose draft state is there */
    kvarve_progress progress; /* in bytes; NULL: none */
    void *progress_context;
} llama_emit_options;

typedef struct llama_emit_result {
    uint64_t tokens;
    uint64_t bytes; /* of the file */
    uint32_t kind;  /* kvarve_kind; a derived boundary: instruction */
    uint32_t checkpoints;
    bool has_draft;
    bool is_derived;
    bool is_whole;
    uint8_t id[32]; /* zero for a derived one */
    kvarve_miss miss;
} llama_emit_result;

/*
 * KVARVE_MISS: nothing serves, out->miss says why, and there is no file. KVARVE_UNSUPPORTED: state
 * of several layouts is stored and the identity does not say which (flash attention).
 */
KVARVE_NODISCARD kvarve_status llama_emit(kvarve_store *store, const llama_identity *identity,
                                          const uint32_t *tokens, uint64_t token_count,
                                          const llama_emit_options *options, llama_emit_result *out,
                                          kvarve_error *err);

#endif
