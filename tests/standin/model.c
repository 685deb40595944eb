/*
 * model.c - rows, states, logits.
 *
 * Invariants
 *   I1  what is computed for a token depends on tokens up to it alone, never on where a
 *       computation began or ended: a restored sequence goes on as one computed from nothing;
 *   I2  what is computed is read from memory, never from a copy of the engine's: a wrong byte
 *       goes on into what follows;
 *   I3  a replicated group's bytes do not depend on the rank.
 *
 * No state of its own.
 */
#include "standin/model.h"

#include <string.h>

#include "standin/digest.h"

#define MODEL_SEED UINT64_C(0x7374616e64696e31)
#define STATE_MAX  4096u

/* What makes a group's numbers its own: place, rank and drafter, as far as it has them. */
static uint64_t seed_of(const standin_memory *memory, uint32_t group, uint32_t layer)
{
    const standin_group *of = &memory->shape->groups[group];
    uint64_t seed = digest_two(MODEL_SEED, (uint64_t)group << 32 | layer);

    if (!group_is_replicated(of)) {
        seed = digest_two(seed, memory->rank + 1u);
    }
    if (group_is_draft_layer(of, layer)) {
        seed = digest_two(seed, memory->shape->drafter);
    }
    return seed;
}

/* --- rows --- */

/* How many of the last tokens a layer looks at. The drafter is some tokens behind, and finds rows
 * of the model's window only: its own is half as long. */
static uint64_t window_of(const standin_group *group, uint32_t layer)
{
    if (group->page_class != KVARVE_CLASS_WINDOW) {
        return UINT64_MAX;
    }
    return group_is_draft_layer(group, layer) ? group->window_tokens / 2 : group->window_tokens;
}

/* All rows of a layer for tokens [from, to), as far as the rank has them. */
static uint64_t read_rows(const standin_memory *memory, uint32_t group, const standin_table *table,
                          uint32_t layer, uint64_t from, uint64_t to)
{
    const standin_group *of = &memory->shape->groups[group];
    uint64_t value = to;

    while (from < to) {
        const uint64_t left = of->is_split ? 1 : of->block_tokens - from % of->block_tokens;
        const uint64_t count = left < to - from ? left : to - from;

        for (uint32_t run = 0; run < of->runs && memory_has_row(memory, group, from); run++) {
            value = digest_bytes(value, memory_row(memory, group, table, layer, run, from),
                                 count * of->row_bytes);
        }
        from += count;
    }
    return value;
}

/* What a token of a whole prefix looks at: the row before, and any earlier one. */
static uint64_t look_back(const standin_memory *memory, uint32_t group, const standin_table *table,
                          uint32_t layer, uint64_t token)
{
    const uint64_t stride = memory->shape->groups[group].is_split ? memory->shape->ranks : 1;
    const uint64_t before = token - stride;
    const uint64_t value = read_rows(memory, group, table, layer, before, before + 1);
    const uint64_t other = before - value % (token / stride) * stride;

    return digest_two(value, read_rows(memory, group, table, layer, other, other + 1));
}

/* A window is looked at whole, since what leaves it is never seen again. */
static void compute_row(const standin_memory *memory, uint32_t group, const standin_table *table,
                        uint32_t layer, uint64_t token, uint64_t seed)
{
    const standin_group *of = &memory->shape->groups[group];
    const uint64_t stride = of->is_split ? memory->shape->ranks : 1;
    const uint64_t window = window_of(of, layer);
    const uint64_t first = token < window ? 0 : token - window + 1;
    uint64_t value = seed;

    if (of->page_class == KVARVE_CLASS_WINDOW) {
        value = digest_two(seed, read_rows(memory, group, table, layer, first, token));
    } else if (token >= stride) {
        value = digest_two(seed, look_back(memory, group, table, layer, token));
    }
    for (uint32_t run = 0; run < of->runs; run++) {
        digest_fill(memory_row(memory, group, table, layer, run, token), of->row_bytes,
                    digest_two(value, run));
    }
}

static void compute_layer(const standin_memory *memory, const model_step *step, uint32_t group,
                          uint32_t layer)
{
    const bool is_draft = group_is_draft_layer(&memory->shape->groups[group], layer);
    const uint64_t seed = seed_of(memory, group, layer);
    const uint64_t from = is_draft ? step->draft_from : step->from;
    const uint64_t to = is_draft ? step->draft_to : step->to;

    for (uint64_t token = from; token < to; token++) {
        if (memory_has_row(memory, group, token)) {
            const uint64_t word = digest_two(token, step->tokens[token - step->token_first]);

            compute_row(memory, group, &step->tables[group], layer, token, digest_two(seed, word));
        }
    }
}

/* --- states --- */

static void compute_state(const standin_memory *memory, const model_step *step, uint32_t group,
                          uint32_t layer)
{
    const standin_group *of = &memory->shape->groups[group];
    const bool is_draft = group_is_draft_layer(of, layer);
    const uint64_t seed = seed_of(memory, group, layer);
    const uint64_t from = is_draft ? step->draft_from : step->from;
    const uint64_t to = is_draft ? step->draft_to : step->to;
    const uint32_t *ids = step->tables[group].ids;

    for (uint64_t token = from; token < to; token++) {
        const uint8_t *before = memory_block(memory, group, layer, ids[token == from ? 0 : 1]);
        const uint64_t state = token == 0 ? seed : digest_bytes(seed, before, of->row_bytes);

        digest_fill(memory_block(memory, group, layer, ids[1]), of->row_bytes,
                    digest_two(state, step->tokens[token - step->token_first]));
    }
}

void model_compute_group(const standin_memory *memory, const model_step *step, uint32_t group)
{
    const standin_group *of = &memory->shape->groups[group];

    for (uint32_t layer = 0; layer < of->layers; layer++) {
        if (group_is_state(of)) {
            compute_state(memory, step, group, layer);
        } else {
            compute_layer(memory, step, group, layer);
        }
    }
}

void model_compute(const standin_memory *memory, const model_step *step)
{
    for (uint32_t g = 0; g < memory->shape->group_count; g++) {
        model_compute_group(memory, step, g);
    }
}

void model_tie_auxiliary(const standin_memory *memory, uint32_t group, uint32_t from, uint32_t to,
                         const model_tie *tie)
{
    const standin_group *of = &memory->shape->groups[group];
    uint8_t mask[STATE_MAX];

    for (uint32_t layer = 0; layer < of->layers; layer++) {
        const uint8_t *source = memory_block(memory, group, layer, from);
        uint8_t *target = memory_block(memory, group, layer, to);

        digest_fill(mask, of->row_bytes, digest_two(tie->draft_tokens << 2 | tie->kind, layer));
        for (uint32_t i = 0; i < of->row_bytes; i++) {
            target[i] = source[i] ^ mask[i];
        }
    }
}

/* --- logits --- */

static uint64_t read_layer(const standin_memory *memory, uint32_t group, const standin_table *table,
                           uint32_t layer, uint64_t tokens)
{
    const uint64_t window = window_of(&memory->shape->groups[group], layer);

    return read_rows(memory, group, table, layer, tokens > window ? tokens - window : 0, tokens);
}

uint64_t model_read(const standin_memory *memory, const standin_table *tables, uint64_t tokens,
                    uint64_t draft_tokens)
{
    uint64_t value = digest_two(memory->rank, tokens);

    for (uint32_t g = 0; g < memory->shape->group_count; g++) {
        const standin_group *group = &memory->shape->groups[g];

        for (uint32_t layer = 0; layer < group->layers; layer++) {
            const uint64_t count = group_is_draft_layer(group, layer) ? draft_tokens : tokens;

            if (count == 0) {
                continue;
            }
            value = group_is_state(group)
                        ? digest_bytes(value, memory_block(memory, g, layer, tables[g].ids[0]),
                                       group->row_bytes)
                        : digest_two(value, read_layer(memory, g, &tables[g], layer, count));
        }
    }
    return value;
}

/* --- tokens --- */

uint32_t model_guess(uint32_t token)
{
    return (uint32_t)(digest_two(MODEL_SEED, token) % STANDIN_VOCABULARY);
}

uint32_t model_choose(uint64_t logits, uint32_t last)
{
    const bool is_habit = logits >> 63 != 0;

    return is_habit ? model_guess(last) : (uint32_t)(logits % STANDIN_VOCABULARY);
}
