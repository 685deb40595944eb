/*
 * slot_builder.h - slot files made up for tests: every layout, any size, and where each field lies.
 *
 * Written from docs/format/llama-slot-file.md alone, without a line of the codec, so that the two
 * can be compared.
 */
#ifndef KVARVE_TESTS_UNIT_LLAMA_SLOT_BUILDER_H
#define KVARVE_TESTS_UNIT_LLAMA_SLOT_BUILDER_H

#include <stdbool.h>
#include <stdint.h>

#include "unit/llama/codec_kit.h"

/* Attention layers of one kind. */
typedef struct build_attention {
    uint32_t layers; /* 0: this part is absent */
    bool is_extended;
    bool is_transposed;
    uint32_t key_type;
    uint64_t key_bytes;
    uint32_t value_type;
    uint64_t value_bytes;   /* of a token; transposed: a multiple of element_bytes */
    uint32_t element_bytes; /* transposed only */
} build_attention;

/* Recurrent layers. */
typedef struct build_recurrent {
    uint32_t layers; /* 0: absent */
    uint32_t layers_total;
    uint64_t r_bytes;
    uint64_t s_bytes;
} build_recurrent;

typedef struct build_model {
    build_attention full;
    build_attention window;
    uint32_t window_tokens;
    build_recurrent recurrent;
} build_model;

#define BUILD_CHECKPOINTS 8

typedef struct build_slot {
    uint32_t tokens;
    build_model main;
    bool has_draft;
    build_model draft;
    uint32_t stream_count; /* 0 is taken as 1 */
    uint32_t stream_index;
    uint32_t sequence;
    uint32_t checkpoint_count;
    uint32_t checkpoint_at[BUILD_CHECKPOINTS];
    uint32_t third_bytes;        /* of the speculative implementation, after the draft */
    uint32_t more_draft_streams; /* the draft context has so many more streams */
    uint32_t missing_cells;      /* at the end of the full attention */
    bool is_out_of_order;        /* two runs of cells */
    bool is_media_like;          /* M-RoPE words of an image */
    uint64_t seed;
} build_slot;

/* A field of the file that a reader must not trust. */
typedef struct build_mark {
    uint64_t offset;
    uint32_t size; /* 4 or 8 */
} build_mark;

#define BUILD_MARKS 8192

typedef struct built_slot {
    kit_bytes file;
    build_mark marks[BUILD_MARKS];
    uint32_t mark_count;
    /*
     * Lengths at which a shorter file is a file too: nothing in it says that more should come. They
     * lie between parts and between recurrent rows, and before an appendix.
     */
    uint64_t ends[BUILD_MARKS];
    uint32_t end_count;
} built_slot;

/* The result is the caller's: build_free. */
built_slot *build(const build_slot *slot);
void build_free(built_slot *built);

/* Named models, one for each layout; NULL beyond the last. */
const build_slot *build_example(uint32_t index, const char **out_name);

#endif
