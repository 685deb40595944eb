/*
 * codec.h - llama.cpp's slot files to canonical pages and endpoints, and back. Bytes only, no
 * store.
 *
 * A slot file (docs/format/llama-slot-file.md) is a token list, the state of one sequence, and the
 * appendices SCKP (context checkpoints) and SDFT (the draft context). Canonical form:
 *
 * - A page is for tokens [t, t + n) of one context: per layer the K rows, then per layer the V
 * rows, V never transposed. No positions, no sequence ids: rows alone.
 * - An endpoint is what exists only at one boundary of one context: the sliding-window cells and
 * the recurrent rows, behind a head of LLAMA_ENDPOINT_HEAD bytes that describes them. A context
 *   without either (dense models, draft layers) has no endpoints at all.
 * - A layout is what is constant for a model and its settings, as a text: types, row sizes, order,
 *   transposition. It belongs to the identity, and is needed to write a file.
 *
 * Canonicalised, because a server takes any: the number of streams, which of them, the sequence id;
 * and checkpoints that are not kept. Everything else is reproduced byte for byte or the file is not
 * canonical: llama_slot_whole_reason and llama_slot_verify say why, and it is stored whole.
 *
 * - Reading: llama_slot_open, llama_slot_verify (with a visitor that takes digests),
 *   llama_slot_choose, llama_slot_read_tokens, _read_pages, _read_endpoint, llama_slot_close.
 * - Writing: llama_layout_decode, llama_endpoint_decode, llama_writer_open, _pages, _endpoint,
 *   _finish, _close.
 *
 * Threads: one slot or writer is used by one thread at a time; a layout that is not freed by any.
 *
 * Memory: a slot with its verification, and a writer, hold at most LLAMA_MEMORY_MAX each, at any
 * file size; pages of the caller are not counted.
 *
 * Ownership: open and decode allocate, close and free end; both accept NULL. Everything else is
 * borrowed for the call, if nothing else is said.
 *
 * Errors: KVARVE_CORRUPT, truncated, or lengths and counts that contradict each other.
 * KVARVE_UNSUPPORTED, another version or a feature that is not known, named in the text.
 * KVARVE_INVALID, a file without tokens, or a call against its contract. KVARVE_IO,
 * KVARVE_NO_MEMORY.
 */
#ifndef KVARVE_LLAMA_CODEC_H
#define KVARVE_LLAMA_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarve/error.h"

#define LLAMA_MEMORY_MAX      UINT64_C(67108864)   /* bytes held by one slot or writer */
#define LLAMA_TOKENS_MAX      UINT64_C(16777216)   /* tokens of one file */
#define LLAMA_CHECKPOINTS_MAX 4096                 /* checkpoints of one file */
#define LLAMA_LAYERS_MAX      1024                 /* layers of one part */
#define LLAMA_ROW_BYTES_MAX   UINT64_C(1048576)    /* bytes of one token in one K or V row */
#define LLAMA_STATE_BYTES_MAX UINT64_C(4294967296) /* bytes of one recurrent row */
#define LLAMA_STREAMS_MAX     4096                 /* streams of one cache */
#define LLAMA_SPAN_UNIT       64                   /* spans are multiples of this many tokens */
#define LLAMA_PAGE_BYTES_MAX  UINT64_C(33554432)   /* bytes of one page */
#define LLAMA_ENDPOINT_HEAD   48                   /* bytes before an endpoint's payload */

/* Where bytes come from. `read` fills all of `bytes` or returns a negative errno. */
typedef struct llama_input {
    void *context;
    int (*read)(void *context, void *bytes, size_t size, uint64_t offset);
    uint64_t size; /* of the whole file */
} llama_input;

/*
 * Where bytes go: 0 or a negative errno. Every byte of the file is written exactly once, in no
 * particular order (a page's rows lie far apart).
 */
typedef struct llama_output {
    void *context;
    int (*write)(void *context, const void *bytes, size_t size, uint64_t offset);
} llama_output;

/* Which model's context: the one that answers, or the one that drafts. */
typedef enum llama_part {
    LLAMA_MAIN,
    LLAMA_DRAFT,
    LLAMA_PARTS,
} llama_part;

/* ---- Layout ---- */

/* The constant shape of one context. */
typedef struct llama_layout llama_layout;

/*
 * Write the layout as NUL-terminated text, one "key value..." line each, and set *out_size to its
 * length without NUL. Equal layouts have equal texts. KVARVE_NO_SPACE: `size` is too small;
 * LLAMA_LAYOUT_TEXT_MAX never is.
 */
#define LLAMA_LAYOUT_TEXT_MAX 262144
KVARVE_NODISCARD kvarve_status llama_layout_encode(const llama_layout *layout, char *text,
                                                   size_t size, size_t *out_size,
                                                   kvarve_error *err);
/* Read `size` bytes of such a text. KVARVE_CORRUPT names the line; KVARVE_UNSUPPORTED a version. */
KVARVE_NODISCARD kvarve_status llama_layout_decode(const char *text, size_t size,
                                                   llama_layout **out, kvarve_error *err);
void llama_layout_free(llama_layout *layout);

bool llama_layout_is_equal(const llama_layout *a, const llama_layout *b);
/* Bytes that one token adds to the pages; 0 when the context has no pages (recurrent alone). */
uint64_t llama_layout_token_bytes(const llama_layout *layout);
/* Whether boundaries of this context have endpoints; without, every boundary follows from pages. */
bool llama_layout_has_endpoint(const llama_layout *layout);

/* ---- Endpoints ---- */

/* What an endpoint's head says. Its payload is the window cells, their rows, the recurrent part. */
typedef struct llama_endpoint {
    uint64_t tokens;         /* its boundary */
    bool is_checkpoint;      /* from SCKP: positions below are known, and it can be written there */
    bool has_draft;          /* a checkpoint that the server kept for the draft context as well */
    int32_t position_min;    /* as the server noted them; 0 when it is no checkpoint */
    int32_t position_max;    /* the same */
    bool has_window;         /* sliding-window attention is part of the payload */
    bool is_extended;        /* its cells have the M-RoPE words */
    uint32_t window_cells;   /* cells of the window */
    uint64_t window_bytes;   /* their rows with all headers, cells not included */
    uint64_t recurrent_size; /* bytes of the recurrent part; 0: none */
} llama_endpoint;

/* Bytes of the whole endpoint, head included. */
uint64_t llama_endpoint_size(const llama_endpoint *endpoint);
/* Read a head: KVARVE_CORRUPT or KVARVE_UNSUPPORTED when it is none. */
KVARVE_NODISCARD kvarve_status llama_endpoint_decode(const uint8_t head[LLAMA_ENDPOINT_HEAD],
                                                     llama_endpoint *out, kvarve_error *err);

/* ---- Reading ---- */

typedef struct llama_slot llama_slot;

/* The boundary at the end of the file, among the indices of checkpoints. */
#define LLAMA_RESPONSE UINT32_MAX

/*
 * Parse a slot file. `input` is copied; what it points to stays until llama_slot_close.
 *
 * After KVARVE_OK the tokens are readable, even when llama_slot_whole_reason is not NULL; then
 * nothing of the state is, but through the input itself.
 */
KVARVE_NODISCARD kvarve_status llama_slot_open(const llama_input *input, llama_slot **out,
                                               kvarve_error *err);
void llama_slot_close(llama_slot *slot);

uint64_t llama_slot_size(const llama_slot *slot);
/* Tokens in the file: 1 .. LLAMA_TOKENS_MAX. It is the response boundary. */
uint64_t llama_slot_tokens(const llama_slot *slot);
/* NULL, or why the file can not be cut into pages and is to be stored whole. Borrowed from the
 * slot.
 */
const char *llama_slot_whole_reason(const llama_slot *slot);
/* Tokens [first, first + count), each below 2^31. */
KVARVE_NODISCARD kvarve_status llama_slot_read_tokens(llama_slot *slot, uint64_t first,
                                                      size_t count, uint32_t *out,
                                                      kvarve_error *err);

/* Borrowed from the slot; NULL for LLAMA_DRAFT of a file without draft, and for a file to be stored
 * whole. */
const llama_layout *llama_slot_layout(const llama_slot *slot, llama_part part);
/* Checkpoints, in the file's order, which need not ascend; boundaries may repeat. */
uint32_t llama_slot_checkpoints(const llama_slot *slot);
/*
 * The endpoint of a boundary: `index` below llama_slot_checkpoints, or LLAMA_RESPONSE. False when
 * that context has none there: a layout without endpoints, or a checkpoint without draft.
 */
bool llama_slot_endpoint(const llama_slot *slot, uint32_t index, llama_part part,
                         llama_endpoint *out);

/* Which endpoints of a file are kept: the response, the last prompt, the last user message. */
typedef struct llama_choice {
    uint32_t prompt; /* index of a checkpoint, or LLAMA_RESPONSE: there is none */
    uint32_t user;   /* the same; never the one that `prompt` names */
} llama_choice;
#define LLAMA_NO_LIMIT UINT64_MAX
/*
 * The largest checkpoint at or before `prompt_at` and, if `user_at` is not LLAMA_NO_LIMIT, the
 * largest at or before `user_at`; both below the response boundary. Of equal ones the last.
 */
llama_choice llama_slot_choose(const llama_slot *slot, uint64_t prompt_at, uint64_t user_at);

/* Rows of tokens [first, first + count): count * llama_layout_token_bytes bytes, of the caller. */
typedef struct llama_page {
    uint64_t first;
    uint32_t count;
    void *bytes;
} llama_page;

/*
 * Fill pages, in ascending order. Neighbouring pages in one call are read together, which is much
 * faster: give as many at a time as there is room for.
 */
KVARVE_NODISCARD kvarve_status llama_slot_read_pages(llama_slot *slot, llama_part part,
                                                     const llama_page *pages, size_t count,
                                                     kvarve_error *err);

/* Names an endpoint of a slot or of a plan. */
typedef struct llama_endpoint_name {
    uint32_t index; /* of a checkpoint, or LLAMA_RESPONSE */
    llama_part part;
} llama_endpoint_name;

/* `size` bytes of an endpoint (head included) from `offset` on. KVARVE_INVALID beyond its end. */
KVARVE_NODISCARD kvarve_status llama_slot_read_endpoint(llama_slot *slot, llama_endpoint_name name,
                                                        uint64_t offset, size_t size, void *out,
                                                        kvarve_error *err);

/*
 * Called by llama_slot_verify for everything that it cuts the file into, so that one pass can
 * verify and take digests: all pages of a context in ascending order, then endpoints in pieces in
 * ascending order. A status but KVARVE_OK ends the pass and is returned.
 */
typedef struct llama_visitor {
    void *context;
    kvarve_status (*page)(void *context, llama_part part, const llama_page *page, uint64_t size,
                          kvarve_error *err);
    kvarve_status (*endpoint)(void *context, llama_endpoint_name name, const void *bytes,
                              size_t size, uint64_t offset, kvarve_error *err);
} llama_visitor;

/*
 * Cut the file into pages of `span` tokens (a multiple of LLAMA_SPAN_UNIT; the last page holds the
 * rest) and all endpoints, write a file from them as llama_writer does, with the streams and
 * sequence id of this file, and compare every byte. KVARVE_UNSUPPORTED: not equal, or a reason of
 * llama_slot_whole_reason, or a page of more than LLAMA_PAGE_BYTES_MAX; store it whole.
 * `visitor` NULL: only verify. A member of it may be NULL.
 */
KVARVE_NODISCARD kvarve_status llama_slot_verify(llama_slot *slot, uint32_t span,
                                                 const llama_visitor *visitor, kvarve_error *err);

/* ---- Storing whole ---- */

#define LLAMA_WHOLE_PIECE UINT64_C(1048576)

/* How many pieces a file of `size` bytes has when it is stored whole. */
uint64_t llama_whole_count(uint64_t size);
/* Bytes of piece `index`, which begins at index * LLAMA_WHOLE_PIECE; 0 beyond the last. */
uint32_t llama_whole_piece(uint64_t size, uint64_t index);

/* ---- Writing ---- */

/* An endpoint to be written as a checkpoint of a file. */
typedef struct llama_plan_checkpoint {
    llama_endpoint main;  /* with is_checkpoint */
    llama_endpoint draft; /* looked at only if the draft layout has endpoints */
} llama_plan_checkpoint;

/* What a file shall hold. All pointers are borrowed until llama_writer_close. */
typedef struct llama_plan {
    const llama_layout *layout[LLAMA_PARTS]; /* of LLAMA_DRAFT: NULL for a file without draft */
    const uint32_t *tokens;
    uint64_t token_count;
    /*
     * The endpoint of this boundary for each layout that has endpoints: that of a response or of a
     * checkpoint; else not looked at.
     */
    llama_endpoint endpoint[LLAMA_PARTS];
    const llama_plan_checkpoint *checkpoints; /* at or before the boundary; ascending, at best */
    uint32_t checkpoint_count;
    uint32_t stream_count; /* 1 for a server with -np 1 or a unified cache, else its -np */
    uint32_t stream_index; /* below stream_count */
    uint32_t sequence;     /* the slot's number; servers take any */
} llama_plan;

typedef struct llama_writer llama_writer;

/*
 * Begin a file: everything that follows from the plan is written. KVARVE_INVALID when the plan
 * contradicts itself (an endpoint of another boundary or of another shape, no tokens).
 */
KVARVE_NODISCARD kvarve_status llama_writer_open(const llama_plan *plan, const llama_output *output,
                                                 llama_writer **out, kvarve_error *err);
/* Bytes of the whole file. */
uint64_t llama_writer_size(const llama_writer *writer);
/* As llama_slot_read_pages, the other way. Each token's rows once; any order between calls. */
KVARVE_NODISCARD kvarve_status llama_writer_pages(llama_writer *writer, llama_part part,
                                                  const llama_page *pages, size_t count,
                                                  kvarve_error *err);
/* `size` bytes of an endpoint (head included) from `offset` on. Each byte once; any order. */
KVARVE_NODISCARD kvarve_status llama_writer_endpoint(llama_writer *writer, llama_endpoint_name name,
                                                     const void *bytes, size_t size,
                                                     uint64_t offset, kvarve_error *err);
/* KVARVE_INVALID when pages or endpoints are missing; the file is worthless then. */
KVARVE_NODISCARD kvarve_status llama_writer_finish(llama_writer *writer, kvarve_error *err);
void llama_writer_close(llama_writer *writer);

#endif
