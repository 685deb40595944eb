/*
 * ingest.h - store a slot file: cut it up, check that it can be put together again, put its
 * boundaries.
 *
 *   llama_ingest_open -> llama_ingest_prepare (the store is not needed yet, and not held up)
 *   -> llama_ingest_store -> llama_ingest_close
 *
 * Up to three boundaries are stored, each as a checkpoint of its own: the user message's, the
 * prompt's, the response's. State without endpoints (dense models) can be cut anywhere: there the
 * prompt's boundary is one token before its end, because a server reads the last token again.
 *
 * Threads    One ingest is used by one thread at a time.
 * Ownership  open allocates, close frees and accepts NULL.
 * Errors     Those of codec.h, and of the store.
 */
#ifndef KVARVE_LLAMA_INGEST_H
#define KVARVE_LLAMA_INGEST_H

#include <stdbool.h>
#include <stdint.h>

#include "env/io.h"
#include "kvarve/admin.h"
#include "kvarve/checkpoint.h"
#include "llama/codec.h"
#include "llama/identity.h"

#define LLAMA_BOUNDARIES_MAX 3

typedef struct llama_ingest llama_ingest;

typedef struct llama_ingest_options {
    uint64_t prompt_at;       /* where the last prompt ends; LLAMA_NO_LIMIT: not known */
    uint64_t user_at;         /* where the last user message ends; LLAMA_NO_LIMIT: not known */
    kvarve_progress progress; /* in bytes of the file; NULL: none */
    void *progress_context;
    uint64_t step_bytes; /* moved at a time, at least a page; 0: LLAMA_STEP_BYTES */
    bool wants_whole;    /* store the file whole, as if it could not be cut up */
} llama_ingest_options;

/* Open and parse. `io` is borrowed until close. */
KVARVE_NODISCARD kvarve_status llama_ingest_open(kvarve_io *io, const char *path,
                                                 llama_ingest **out, kvarve_error *err);
void llama_ingest_close(llama_ingest *ingest);

/* One pass over the file: verify it and take the digests of everything that is stored. */
KVARVE_NODISCARD kvarve_status llama_ingest_prepare(llama_ingest *ingest,
                                                    const llama_ingest_options *options,
                                                    kvarve_error *err);

/* The smallest arena through which it passes; after prepare. */
uint64_t llama_ingest_arena_bytes(const llama_ingest *ingest);
/* Why it is stored whole; NULL: it is not. Borrowed; after prepare. */
const char *llama_ingest_whole_reason(const llama_ingest *ingest);
uint64_t llama_ingest_tokens(const llama_ingest *ingest);
uint64_t llama_ingest_file_bytes(const llama_ingest *ingest);
bool llama_ingest_has_draft(const llama_ingest *ingest);

typedef struct llama_stored {
    uint64_t tokens;
    uint32_t kind;    /* kvarve_kind */
    uint32_t state;   /* kvarve_put_state: DURABLE, PRESENT or ABORTED */
    uint32_t refusal; /* kvarve_refusal */
    uint8_t id[32];   /* not of an aborted one */
} llama_stored;

typedef struct llama_ingest_result {
    llama_stored boundaries[LLAMA_BOUNDARIES_MAX]; /* ascending */
    uint32_t count;
    char namespace_text[96];
} llama_ingest_result;

/*
 * Put the boundaries, each durable before the next begins. A refused put ends it: KVARVE_NO_SPACE
 * with the reason (those before it are stored). timeout_ms: of one put.
 */
KVARVE_NODISCARD kvarve_status llama_ingest_store(llama_ingest *ingest, kvarve_store *store,
                                                  const llama_identity *identity, const char *salt,
                                                  uint32_t timeout_ms, llama_ingest_result *out,
                                                  kvarve_error *err);

#endif
