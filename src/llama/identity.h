/*
 * identity.h - what a llama-server's state depends on beside its tokens, as identity documents.
 *
 * Slot files name no model. Facts come from the command line of kvarve or from the running server
 * (server.h); what is not known is refused with the field's name and how to give it. Fields:
 *
 *   meaning   engine, architecture, model (digest of its parts), kv_type_k, kv_type_v, rope,
 *             adapters and control vectors with their scales, overrides, layout (codec.h's text;
 *             it says whether V is transposed)
 *   draft     the drafter's model, kind, KV types and layout: of the draft groups alone
 *   numerics  build and backend, which change last bits only
 *
 * Threads    Any; one facts object by one thread at a time.
 * Ownership  llama_facts is plain memory of the caller; documents are its own until freed.
 */
#ifndef KVARVE_LLAMA_IDENTITY_H
#define KVARVE_LLAMA_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "env/io.h"
#include "kvarve/error.h"
#include "llama/codec.h"
#include "llama/model_digest.h"

#define LLAMA_ADAPTERS_MAX 16
#define LLAMA_FACT_TEXT    512

/* Flash attention, as far as it is known; it decides whether V is transposed. */
typedef enum llama_flash {
    LLAMA_FLASH_UNKNOWN,
    LLAMA_FLASH_ON,
    LLAMA_FLASH_OFF,
} llama_flash;

/* A file that is applied to the weights or activations, and how strongly. */
typedef struct llama_adapter {
    char path[KVARVE_PATH_MAX];
    char scale[32]; /* canonical: as %.9g writes it */
} llama_adapter;

/* What is known. An empty text is not known; where "none" is possible it says so. */
typedef struct llama_facts {
    char model[KVARVE_PATH_MAX];
    char kv_type_k[16];
    char kv_type_v[16];
    char rope[LLAMA_FACT_TEXT]; /* chosen factors; "model": those of the model file */
    llama_adapter adapters[LLAMA_ADAPTERS_MAX];
    uint32_t adapter_count;
    llama_adapter vectors[LLAMA_ADAPTERS_MAX]; /* control vectors */
    uint32_t vector_count;
    char vector_layers[64];          /* their range; "all" */
    char overrides[LLAMA_FACT_TEXT]; /* of model metadata; "none" */
    char build[LLAMA_FACT_TEXT / 4];
    char backend[LLAMA_FACT_TEXT];
    char draft_model[KVARVE_PATH_MAX]; /* "": there is no drafter, or it is part of the model */
    char draft_type[128];              /* "none", "draft-mtp", "draft-simple"; "": not known */
    char draft_type_k[16];
    char draft_type_v[16];
    llama_flash flash;
    uint32_t stream_count; /* of the server's cache; 0: not known */
} llama_facts;

/* Everything "none" or as the model says, models and types not known. */
void llama_facts_init(llama_facts *facts);

/* Add "FILE:SCALE" or "FILE" (scale 1) to a list. KVARVE_INVALID says what is wrong with it. */
KVARVE_NODISCARD kvarve_status llama_adapter_parse(const char *text, llama_adapter *list,
                                                   uint32_t *count, kvarve_error *err);

/* The facts with files replaced by digests. */
typedef struct llama_identity llama_identity;

/*
 * Read the models (or their cached digests) and make an identity. KVARVE_UNSUPPORTED: a field is
 * not known; the text says which and how to give it.
 */
KVARVE_NODISCARD kvarve_status llama_identity_create(const llama_facts *facts,
                                                     const model_digest_options *digests,
                                                     llama_identity **out, kvarve_error *err);
void llama_identity_free(llama_identity *identity);

bool llama_identity_has_draft(const llama_identity *identity);
llama_flash llama_identity_flash(const llama_identity *identity);
/* Borrowed from the identity. */
const char *llama_identity_architecture(const llama_identity *identity);

/* JSON for kvarve_namespace_open; kvarve_release each. `draft` is NULL without draft groups. */
typedef struct llama_documents {
    char *identity;
    char *numerics;
    char *draft;
} llama_documents;

/*
 * The documents for state of these layouts. `draft` NULL: without draft groups.
 *
 * KVARVE_INVALID: the layout has other KV types or another flash attention than the identity;
 * KVARVE_UNSUPPORTED: it has draft state and the identity knows no drafter.
 */
KVARVE_NODISCARD kvarve_status llama_identity_documents(const llama_identity *identity,
                                                        const llama_layout *main,
                                                        const llama_layout *draft,
                                                        llama_documents *out, kvarve_error *err);
/* The documents of files that are stored whole: no layout is known of them. */
KVARVE_NODISCARD kvarve_status llama_identity_whole(const llama_identity *identity,
                                                    llama_documents *out, kvarve_error *err);
void llama_documents_free(llama_documents *documents);

/* The field in which a layout contradicts the identity; NULL: it does not. Static. */
const char *llama_identity_difference(const llama_identity *identity, const llama_layout *main);

/* How well a namespace's kept document (kvarve_namespace_document) fits an identity. */
typedef enum llama_fit {
    LLAMA_FIT_FOREIGN,  /* not llama.cpp's */
    LLAMA_FIT_OTHER,    /* llama.cpp's, of another identity */
    LLAMA_FIT_NUMERICS, /* of this identity, in another numerics class */
    LLAMA_FIT_SAME,
} llama_fit;

/* What a kept document says. */
typedef struct llama_found {
    llama_fit fit;
    bool is_whole;        /* of files that were stored whole */
    bool is_draft;        /* it is the companion of a namespace: the draft groups */
    llama_layout *layout; /* owned by the caller; NULL for whole files and foreign ones */
    llama_layout *draft;  /* the same, of the draft groups; NULL without */
} llama_found;

void llama_found_clear(llama_found *found);

/* Compare; a document that cannot be read is foreign. KVARVE_NO_MEMORY. */
KVARVE_NODISCARD kvarve_status llama_identity_compare(const llama_identity *identity,
                                                      const char *document, llama_found *out,
                                                      kvarve_error *err);

#endif
