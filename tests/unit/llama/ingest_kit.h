/*
 * ingest_kit.h - slot files into a real store and out again, in a folder of the test's own.
 *
 * Everything asserts when it fails, but what returns a status. Include after cmocka.h.
 */
#ifndef KVARVE_TESTS_UNIT_LLAMA_INGEST_KIT_H
#define KVARVE_TESTS_UNIT_LLAMA_INGEST_KIT_H

#include "llama/emit.h"
#include "llama/identity.h"
#include "llama/ingest.h"
#include "support/scratch.h"
#include "unit/llama/codec_kit.h"

typedef struct ingest_kit {
    char folder[SCRATCH_PATH_MAX];
    char store_path[SCRATCH_PATH_MAX + 16];
    char slot_path[SCRATCH_PATH_MAX + 16];   /* what kit_put stores */
    char output_path[SCRATCH_PATH_MAX + 16]; /* what kit_emit writes */
    llama_facts facts;
    kvarve_store *store;
    llama_ingest_options options;
    llama_emit_options emit;
    llama_ingest_result stored;
    llama_emit_result emitted;
    kvarve_error err;
} ingest_kit;

/* A folder with model files; no store is open. */
void kit_begin(ingest_kit *kit);
void kit_end(ingest_kit *kit);

/* A store with an arena of so many bytes, and a cap (0: 1 GiB). */
void kit_open(ingest_kit *kit, uint64_t arena_bytes, uint64_t cap_bytes);
void kit_close(ingest_kit *kit);

/* Facts that fit a layout: KV types and a drafter where there is one. */
void kit_fit_facts(ingest_kit *kit, const llama_slot *slot);

/* Store these bytes as a slot file under kit->options; facts are made to fit when `fits` is set. */
kvarve_status kit_put(ingest_kit *kit, const kit_bytes *file, bool fits);
/* The file of the longest boundary of these tokens into *out (kit_free), under kit->emit. */
kvarve_status kit_emit(ingest_kit *kit, const uint32_t *tokens, uint64_t count, kit_bytes *out);

/* All tokens of a slot file; kvarve_release. */
uint32_t *kit_tokens(const kit_bytes *file, uint64_t *out_count);

/* Write a file. */
void kit_write(const char *path, const void *bytes, size_t size);
bool kit_exists(const char *path);
kvarve_statistics kit_statistics(ingest_kit *kit);

#endif
