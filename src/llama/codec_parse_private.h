/* codec_parse_private.h - parsing of slot files: what codec_parse.c and codec_state.c share. */
#ifndef KVARVE_LLAMA_CODEC_PARSE_PRIVATE_H
#define KVARVE_LLAMA_CODEC_PARSE_PRIVATE_H

#include "llama/codec_private.h"

/* Where in the file parsing stands, and where its part ends. */
typedef struct slot_parser {
    llama_slot *slot;
    llama_file file;
    uint64_t at;
    uint64_t end;
    kvarve_error *err;
} slot_parser;

typedef struct attention_found {
    llama_attention_place place;
    llama_streams streams;
    bool is_ordered; /* the position of each cell is its index */
    bool is_text;    /* M-RoPE words are those of text */
} attention_found;

typedef struct state_found {
    attention_found prefix;
    attention_found window;
    uint64_t recurrent_at;
    int32_t recurrent_position;
} state_found;

/* How a state stands in the file: with an end of its own, or up to an appendix; whole or partial.
 */
typedef struct state_kind {
    bool is_blob;
    bool is_partial;
    bool is_extended; /* its cells have the M-RoPE words, which the file does not say */
} state_kind;

/* KVARVE_CORRUPT: `what`, and where. */
kvarve_status parser_corrupt(const slot_parser *parser, const char *what);
/* The file is to be stored whole; the first reason stays. `reason` is static. */
void parser_set_whole(llama_slot *slot, const char *reason);
/* Bytes up to the end of the part. */
uint64_t parser_left(const slot_parser *parser);
/* Pass over, or read, what `what` names; KVARVE_CORRUPT when less is left. */
KVARVE_NODISCARD kvarve_status parser_skip(slot_parser *parser, uint64_t size, const char *what);
KVARVE_NODISCARD kvarve_status parser_take(slot_parser *parser, uint8_t *bytes, size_t size,
                                           const char *what);
KVARVE_NODISCARD kvarve_status parser_take_u32(slot_parser *parser, uint32_t *out,
                                               const char *what);
KVARVE_NODISCARD kvarve_status parser_take_u64(slot_parser *parser, uint64_t *out,
                                               const char *what);
/*
 * One state, up to its end. In a partial one the only attention part is the window's.
 * `layout` is zeroed before; its rows are the caller's afterwards, whatever the answer.
 */
KVARVE_NODISCARD kvarve_status parser_state(slot_parser *parser, state_kind kind,
                                            llama_layout *layout, state_found *found);
/* A flags-0 state of which it is not known whether its cells have the M-RoPE words. *out_layout is
 * the caller's. */
KVARVE_NODISCARD kvarve_status parser_unknown_state(slot_parser *parser, bool is_blob,
                                                    llama_layout **out_layout,
                                                    state_found *out_found);

#endif
