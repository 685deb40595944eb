/*
 * model.h - the model that a rank computes: every row and state is a digest, read from memory.
 *
 * A row follows from its token and from rows before it as they stand in memory: of a whole prefix
 * the last one and another one, of a window all; a state from the state before it and the token, so
 * that applying a token twice shows; an auxiliary likewise, and at a boundary it is mixed with kind
 * and draft length. The logits are a digest of all bytes that a sequence has: each valid row of
 * each layer, each state. So a wrong byte changes every output from then on, whichever it is, and
 * nothing depends on where blocks lie or where a computation was cut.
 *
 * Threads    of the rank whose memory it is.
 */
#ifndef KVARVE_STANDIN_MODEL_H
#define KVARVE_STANDIN_MODEL_H

#include <stdint.h>

#include "standin/memory.h"

#define STANDIN_VOCABULARY 30000u

/* What a rank is to compute, or has. Tables of state groups: ids[0] is the state before, ids[1] the
 * one after; they may be the same block. */
typedef struct model_step {
    const standin_table *tables;
    uint64_t from; /* tokens [from, to) of the model */
    uint64_t to;
    uint64_t draft_from; /* and of the drafter */
    uint64_t draft_to;
    const uint32_t *tokens; /* from token_first on */
    uint64_t token_first;
} model_step;

void model_compute_group(const standin_memory *memory, const model_step *step, uint32_t group);
void model_compute(const standin_memory *memory, const model_step *step);

/* A digest of all that the rank has at `tokens`, of which the drafter has `draft_tokens`. */
uint64_t model_read(const standin_memory *memory, const standin_table *tables, uint64_t tokens,
                    uint64_t draft_tokens);

/* The auxiliary of a boundary from the running one, and back: the two differ by what ties it. */
typedef struct model_tie {
    uint32_t kind;
    uint64_t draft_tokens;
} model_tie;
void model_tie_auxiliary(const standin_memory *memory, uint32_t group, uint32_t from, uint32_t to,
                         const model_tie *tie);

/* The token that follows by habit: what a drafter can guess. */
uint32_t model_guess(uint32_t token);
/* The next token: often the guess, else from the logits. */
uint32_t model_choose(uint64_t logits, uint32_t last);

#endif
