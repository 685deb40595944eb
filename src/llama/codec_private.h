/* codec_private.h - what the files of the codec share: shapes, places in a file, row transfer. */
#ifndef KVARVE_LLAMA_CODEC_PRIVATE_H
#define KVARVE_LLAMA_CODEC_PRIVATE_H

#include "llama/codec.h"

#define LLAMA_FILE_MAGIC       UINT32_C(0x67677371)
#define LLAMA_FILE_VERSION     4
#define LLAMA_CHECKPOINT_MAGIC UINT32_C(0x504b4353) /* "SCKP" */
#define LLAMA_DRAFT_MAGIC      UINT32_C(0x54464453) /* "SDFT" */
#define LLAMA_APPENDIX_VERSION 1
#define LLAMA_STATE_MAGIC      UINT32_C(0xaf143cd8)
#define LLAMA_TYPES_MAX        64 /* ggml types are below; no magic of an appendix is */
#define LLAMA_CELL             12 /* bytes of a cell */
#define LLAMA_CELL_EXTENDED    24 /* with the M-RoPE words */
#define LLAMA_ROWS_HEAD        16 /* v_trans, n_layer, 0, 0 */
#define LLAMA_ROW_HEAD         12 /* type and sizes of one layer's rows */
#define LLAMA_RECURRENT_HEAD   20 /* cell_count, pos, 0, s_trans, n_layer */
#define LLAMA_BLOB_HEAD        8  /* magic, sequence id */
#define LLAMA_FILE_HEAD        24 /* magic, version, count, -1, 1, n_tokens */
#define LLAMA_ELEMENT_MAX      16 /* bytes of one element of transposed V */

/* Bytes of the one buffer through which rows and cells move, at most and at least. */
#define LLAMA_SCRATCH     UINT64_C(4194304)
#define LLAMA_SCRATCH_MIN UINT64_C(65536)

/* One layer's K, V, R or S row. */
typedef struct llama_row {
    uint32_t type;
    uint32_t element_bytes; /* of transposed V; else 0 */
    uint64_t bytes;         /* of one token; recurrent: of the whole state */
    uint64_t offset;        /* sum of `bytes` of the rows before it */
} llama_row;

/* One attention part: a K row for each layer, then a V row for each. */
typedef struct llama_attention {
    bool is_present;
    bool is_extended;
    bool is_transposed;
    uint32_t layer_count;
    uint64_t token_bytes;
    llama_row *rows; /* owned; NULL when there are no layers */
} llama_attention;

/* All R rows, then all S rows. */
typedef struct llama_recurrent {
    bool is_present;
    uint32_t layers_total; /* as the file says it: of the model, not only recurrent ones */
    uint32_t row_count;    /* even */
    uint64_t state_bytes;
    llama_row *rows; /* owned */
} llama_recurrent;

struct llama_layout {
    llama_attention prefix; /* layers that see all tokens: pages */
    llama_attention window; /* layers that see the last ones: endpoint */
    llama_recurrent recurrent;
};

/* Where an attention part lies in a file: K row 0 begins at rest_at + 16 + 12. */
typedef struct llama_attention_place {
    uint64_t cells_at;
    uint64_t cell_count;
    uint64_t rest_at;
} llama_attention_place;

/* Where an endpoint's pieces lie in a file. */
typedef struct llama_endpoint_place {
    llama_endpoint endpoint;
    bool is_present; /* false: this context has no endpoint here */
    bool is_sound;   /* a checkpoint whose positions say what its boundary says */
    uint64_t cells_at;
    uint64_t rest_at;
    uint64_t recurrent_at;
} llama_endpoint_place;

typedef struct llama_checkpoint_place {
    llama_endpoint_place part[LLAMA_PARTS];
    uint64_t draft_at; /* the draft's blob in the file, head included */
    uint64_t draft_size;
} llama_checkpoint_place;

/* What a server takes any value of, and a file says everywhere the same. */
typedef struct llama_streams {
    bool is_known;
    uint32_t count;
    uint32_t index;
    bool is_sequence_known;
    uint32_t sequence;
} llama_streams;

struct llama_slot {
    llama_input input;
    uint64_t tokens;
    const char *whole_reason; /* static text */
    llama_streams streams;
    llama_layout *layout[LLAMA_PARTS]; /* owned */
    llama_attention_place prefix[LLAMA_PARTS];
    llama_endpoint_place response[LLAMA_PARTS];
    llama_checkpoint_place *checkpoints; /* owned */
    uint32_t checkpoint_count;
    uint32_t checkpoint_room;
    uint8_t *scratch; /* owned, scratch_size bytes */
    uint64_t scratch_size;
};

/* Bytes to or from a file: exactly one of the two is set. */
typedef struct llama_file {
    const llama_input *input;
    const llama_output *output;
    uint8_t *scratch;
    uint64_t scratch_size; /* see llama_scratch_size */
} llama_file;

/* ---- codec_layout.c ---- */

/* Release what `layout` owns and clear it. */
void llama_layout_clear(llama_layout *layout);
/* Fill in `offset` of each row; returns their sum. */
uint64_t llama_rows_sum(llama_row *rows, uint32_t count);
bool llama_attention_is_equal(const llama_attention *a, const llama_attention *b);
bool llama_recurrent_is_equal(const llama_recurrent *a, const llama_recurrent *b);
uint64_t llama_cell_bytes(const llama_attention *attention);
/* Bytes of an attention part behind its cells, and of a recurrent part. */
uint64_t llama_attention_rest(const llama_attention *attention, uint64_t cell_count);
uint64_t llama_recurrent_size(const llama_recurrent *recurrent);
/* The endpoint of `tokens` in this layout, with `window_cells` cells; no checkpoint. */
llama_endpoint llama_layout_endpoint(const llama_layout *layout, uint64_t tokens,
                                     uint32_t window_cells);

/* ---- codec_transfer.c ---- */

/*
 * A scratch that is large enough for a file whose largest part has `bytes`: one row of one token,
 * and 65536 elements of transposed V, always fit.
 */
uint64_t llama_scratch_size(uint64_t bytes);

KVARVE_NODISCARD kvarve_status llama_file_read(const llama_file *file, void *bytes, size_t size,
                                               uint64_t offset, kvarve_error *err);
KVARVE_NODISCARD kvarve_status llama_file_write(const llama_file *file, const void *bytes,
                                                size_t size, uint64_t offset, kvarve_error *err);
/* Whether pages ascend, do not overlap, and end at `tokens` or before. */
bool llama_pages_are_valid(const llama_page *pages, size_t count, uint64_t tokens);
/* Move the rows of pages between their bytes and the file. */
KVARVE_NODISCARD kvarve_status llama_move_pages(const llama_file *file,
                                                const llama_attention *attention,
                                                const llama_attention_place *place,
                                                const llama_page *pages, size_t count,
                                                kvarve_error *err);

/* ---- codec_endpoint.c ---- */

void llama_endpoint_encode(const llama_endpoint *endpoint, uint8_t out[LLAMA_ENDPOINT_HEAD]);
/* A piece of an endpoint as the caller sees it. */
typedef struct llama_piece {
    uint64_t offset;
    size_t size;
} llama_piece;
KVARVE_NODISCARD kvarve_status llama_endpoint_read(const llama_file *file,
                                                   const llama_endpoint_place *place,
                                                   llama_piece piece, uint8_t *out,
                                                   kvarve_error *err);
/* *written grows by what was written to the file (the head is not). */
KVARVE_NODISCARD kvarve_status llama_endpoint_write(const llama_file *file,
                                                    const llama_endpoint_place *place,
                                                    llama_piece piece, const uint8_t *bytes,
                                                    uint32_t sequence, uint64_t *written,
                                                    kvarve_error *err);

/* ---- codec_write.c ---- */

/* Where a writer's tokens come from when they are not in memory. */
typedef struct llama_token_source {
    void *context;
    kvarve_status (*read)(void *context, uint64_t first, size_t count, uint32_t *out,
                          kvarve_error *err);
} llama_token_source;
/* As llama_writer_open; `source` NULL: plan->tokens. */
KVARVE_NODISCARD kvarve_status llama_writer_open_from(const llama_plan *plan,
                                                      const llama_token_source *source,
                                                      const llama_output *output,
                                                      llama_writer **out, kvarve_error *err);

/* ---- Little-endian words ---- */

static inline uint32_t llama_load32(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

static inline uint64_t llama_load64(const uint8_t *bytes)
{
    return (uint64_t)llama_load32(bytes) | (uint64_t)llama_load32(bytes + 4) << 32;
}

static inline void llama_store32(uint8_t *bytes, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        bytes[i] = (uint8_t)(value >> (8 * i));
    }
}

static inline void llama_store64(uint8_t *bytes, uint64_t value)
{
    llama_store32(bytes, (uint32_t)value);
    llama_store32(bytes + 4, (uint32_t)(value >> 32));
}

#endif
