/* codec_kit.h - slot files in memory, and a whole trip through pages and endpoints, for tests. */
#ifndef KVARVE_TESTS_UNIT_LLAMA_CODEC_KIT_H
#define KVARVE_TESTS_UNIT_LLAMA_CODEC_KIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llama/codec.h"

/* Bytes that grow; owned by the test, given back with kit_free. */
typedef struct kit_bytes {
    uint8_t *bytes;
    size_t size;
    size_t room;
} kit_bytes;

void kit_free(kit_bytes *bytes);
void kit_append(kit_bytes *bytes, const void *more, size_t size);
/* Read a whole file; the test fails when it cannot. */
kit_bytes kit_load(const char *path);

/* Bytes as an input and as an output (which grows as it is written). */
llama_input kit_input(kit_bytes *bytes);
llama_output kit_output(kit_bytes *bytes);

/* Everything a slot file was cut into. */
typedef struct kit_pieces {
    llama_layout *layout[LLAMA_PARTS]; /* decoded again from their text */
    uint32_t *tokens;
    uint64_t token_count;
    uint8_t *rows[LLAMA_PARTS]; /* all pages of a part, one after the other, `span` tokens each */
    uint32_t span;
    kit_bytes response[LLAMA_PARTS]; /* endpoints; empty: none */
    kit_bytes *checkpoint[LLAMA_PARTS];
    uint32_t checkpoint_count;
} kit_pieces;

/* Cut a file, pages in batches of `batch` pages, endpoints in steps of `step` bytes. */
kit_pieces kit_cut(llama_slot *slot, uint32_t span, size_t batch, size_t step);
void kit_pieces_free(kit_pieces *pieces);

/* How a file is put together. */
typedef struct kit_target {
    uint32_t stream_count;
    uint32_t stream_index;
    uint32_t sequence;
    uint64_t boundary; /* 0: the response; else a checkpoint's, whose endpoint is then used */
    bool drop_draft;
    size_t batch;
    size_t step;
} kit_target;

/* Write a file with all checkpoints at or before the boundary. */
kit_bytes kit_join(const kit_pieces *pieces, const kit_target *target);

/* Fails the test unless a and b are equal; says where they differ. */
void kit_assert_equal(const kit_bytes *a, const kit_bytes *b);

#endif
