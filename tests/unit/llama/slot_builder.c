/*
 * slot_builder.c - slot files made up for tests.
 *
 * Invariant: rows are pseudo-random bytes of their place (seed, layer, token), never zeros, so that
 * a row in the wrong place is seen. Threads: one. Ownership: the test's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/llama/slot_builder.h"

#include "base/alloc.h"

typedef struct slot_builder {
    const build_slot *slot;
    built_slot *built;
    uint64_t state; /* of the generator */
    uint32_t more_streams;
} slot_builder;

static void put_bytes(slot_builder *builder, uint64_t value, uint32_t size)
{
    uint8_t bytes[8];

    for (uint32_t i = 0; i < size; i++) {
        bytes[i] = (uint8_t)(value >> (8 * i));
    }
    kit_append(&builder->built->file, bytes, size);
}

/* A number that says something about the file. */
static void put_field(slot_builder *builder, uint64_t value, uint32_t size)
{
    built_slot *built = builder->built;

    assert_true(built->mark_count < BUILD_MARKS);
    built->marks[built->mark_count++] = (build_mark){built->file.size, size};
    put_bytes(builder, value, size);
}

static void put_u32(slot_builder *builder, uint32_t value)
{
    put_field(builder, value, 4);
}

static void put_u64(slot_builder *builder, uint64_t value)
{
    put_field(builder, value, 8);
}

static void put_end(slot_builder *builder)
{
    built_slot *built = builder->built;

    assert_true(built->end_count < BUILD_MARKS);
    built->ends[built->end_count++] = built->file.size;
}

static void put_noise(slot_builder *builder, uint64_t size)
{
    for (uint64_t i = 0; i < size; i++) {
        builder->state ^= builder->state << 13;
        builder->state ^= builder->state >> 7;
        builder->state ^= builder->state << 17;
        put_bytes(builder, builder->state | 1, 1);
    }
}

static uint32_t token_of(uint32_t position)
{
    return (position * 2654435761U) >> 1;
}

/* Cells of positions [first, first + count). */
static void put_cells(slot_builder *builder, bool is_extended, uint32_t first, uint32_t count)
{
    const build_slot *slot = builder->slot;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t position = first + i;

        if (slot->is_out_of_order && first == 0) {
            position = (i + count / 2) % count;
        }
        put_bytes(builder, position, 4);
        put_bytes(builder, 1, 4);
        if (is_extended) {
            put_bytes(builder, position + (slot->is_media_like ? 1U : 0), 4);
            put_bytes(builder, position, 4);
            put_bytes(builder, token_of(position), 4);
        }
        put_bytes(builder, slot->sequence, 4);
    }
}

static void put_values(slot_builder *builder, const build_attention *attention, uint32_t count)
{
    for (uint32_t i = 0; i < attention->layers; i++) {
        put_u32(builder, attention->value_type);
        if (attention->is_transposed) {
            put_u32(builder, attention->element_bytes);
            put_u32(builder, (uint32_t)(attention->value_bytes / attention->element_bytes));
        } else {
            put_u64(builder, attention->value_bytes);
        }
        put_noise(builder, count * attention->value_bytes);
    }
}

static void put_attention(slot_builder *builder, const build_attention *attention, uint32_t first,
                          uint32_t count)
{
    uint32_t streams = builder->slot->stream_count == 0 ? 1 : builder->slot->stream_count;

    streams += builder->more_streams;

    put_u32(builder, streams);
    for (uint32_t stream = 0; stream < streams; stream++) {
        put_u32(builder, stream == builder->slot->stream_index ? count : 0);
        if (stream != builder->slot->stream_index) {
            continue;
        }
        put_cells(builder, attention->is_extended, first, count);
        put_u32(builder, attention->is_transposed);
        put_u32(builder, attention->layers);
        put_u32(builder, 0);
        put_u32(builder, 0);
        for (uint32_t i = 0; i < attention->layers; i++) {
            put_u32(builder, attention->key_type);
            put_u64(builder, attention->key_bytes);
            put_noise(builder, count * attention->key_bytes);
        }
        put_values(builder, attention, count);
    }
}

static void put_recurrent(slot_builder *builder, const build_recurrent *recurrent, uint32_t tokens)
{
    put_u32(builder, 1);
    put_u32(builder, tokens - 1);
    put_u32(builder, 0);
    put_u32(builder, 0);
    put_u32(builder, recurrent->layers_total);
    for (uint32_t i = 0; i < 2 * recurrent->layers; i++) {
        uint64_t bytes = i < recurrent->layers ? recurrent->r_bytes : recurrent->s_bytes;

        put_u32(builder, 0);
        put_u64(builder, bytes);
        put_noise(builder, bytes);
        if (i % 2 == 1) {
            put_end(builder);
        }
    }
}

static void put_partial(slot_builder *builder, const build_model *model, uint32_t tokens)
{
    if (model->window.layers > 0) {
        uint32_t cells = tokens < model->window_tokens ? tokens : model->window_tokens;

        put_attention(builder, &model->window, tokens - cells, cells);
        put_end(builder);
    }
    if (model->recurrent.layers > 0) {
        put_recurrent(builder, &model->recurrent, tokens);
    }
}

static void put_state(slot_builder *builder, const build_model *model)
{
    if (model->full.layers > 0) {
        put_attention(builder, &model->full, 0,
                      builder->slot->tokens - builder->slot->missing_cells);
        put_end(builder);
    }
    put_partial(builder, model, builder->slot->tokens);
}

/* A length and a blob; without `is_partial` the whole state. */
static void put_blob(slot_builder *builder, const build_model *model, uint32_t tokens,
                     bool is_partial)
{
    built_slot *built = builder->built;
    uint64_t length_at = built->file.size;
    uint32_t end_count = built->end_count;
    uint64_t size;

    put_u64(builder, 0);
    put_u32(builder, 0xaf143cd8);
    put_u32(builder, builder->slot->sequence);
    if (is_partial) {
        put_partial(builder, model, tokens);
    } else {
        put_state(builder, model);
    }
    size = built->file.size - length_at - 8;
    for (uint32_t i = 0; i < 8; i++) {
        built->file.bytes[length_at + i] = (uint8_t)(size >> (8 * i));
    }
    /* A blob's length says where it ends. */
    built->end_count = end_count;
}

static void put_checkpoints(slot_builder *builder)
{
    const build_slot *slot = builder->slot;

    put_u32(builder, 0x504b4353);
    put_u32(builder, 1);
    put_u32(builder, slot->checkpoint_count);
    for (uint32_t i = 0; i < slot->checkpoint_count; i++) {
        uint32_t tokens = slot->checkpoint_at[i];

        put_u64(builder, tokens);
        put_u32(builder, tokens - 1);
        put_u32(builder, tokens - 1);
        put_blob(builder, &slot->main, tokens, true);
        if (slot->has_draft) {
            put_blob(builder, &slot->draft, tokens, true);
        } else {
            put_u64(builder, 0);
        }
        put_u64(builder, 0);
    }
    put_end(builder);
}

static void put_payload(slot_builder *builder)
{
    uint32_t tokens = builder->slot->tokens;

    put_u32(builder, 0x67677371);
    put_u32(builder, 4);
    put_u32(builder, tokens + 4);
    put_u32(builder, UINT32_MAX);
    put_u32(builder, 1);
    put_u32(builder, tokens);
    for (uint32_t i = 0; i < tokens; i++) {
        put_bytes(builder, token_of(i), 4);
    }
    put_u32(builder, 0);
}

built_slot *build(const build_slot *slot)
{
    slot_builder builder = {.slot = slot, .state = slot->seed * 2 + 0x9e3779b97f4a7c15};

    builder.built = kvarve_allocate(sizeof(*builder.built));
    assert_non_null(builder.built);
    put_payload(&builder);
    put_state(&builder, &slot->main);
    if (slot->checkpoint_count > 0) {
        put_checkpoints(&builder);
    }
    if (slot->has_draft) {
        put_u32(&builder, 0x54464453);
        put_u32(&builder, 1);
        builder.more_streams = slot->more_draft_streams;
        put_blob(&builder, &slot->draft, slot->tokens, false);
        put_u64(&builder, slot->third_bytes);
        put_noise(&builder, slot->third_bytes);
    }
    return builder.built;
}

void build_free(built_slot *built)
{
    kit_free(&built->file);
    kvarve_release(built);
}

/* ---- Examples ---- */

#define F16(layers_, bytes_)                                                                       \
    {.layers = (layers_),                                                                          \
     .key_type = 1,                                                                                \
     .key_bytes = (bytes_),                                                                        \
     .value_type = 1,                                                                              \
     .value_bytes = (bytes_)}
#define F16_EXTENDED(layers_, bytes_)                                                              \
    {.layers = (layers_),                                                                          \
     .is_extended = true,                                                                          \
     .key_type = 1,                                                                                \
     .key_bytes = (bytes_),                                                                        \
     .value_type = 1,                                                                              \
     .value_bytes = (bytes_)}
#define F16_TRANSPOSED(layers_, bytes_)                                                            \
    {.layers = (layers_),                                                                          \
     .is_transposed = true,                                                                        \
     .element_bytes = 2,                                                                           \
     .key_type = 1,                                                                                \
     .key_bytes = (bytes_),                                                                        \
     .value_type = 1,                                                                              \
     .value_bytes = (bytes_)}
#define RECURRENT(layers_, total_, r_, s_)                                                         \
    {.layers = (layers_), .layers_total = (total_), .r_bytes = (r_), .s_bytes = (s_)}

static const struct {
    const char *name;
    build_slot slot;
} examples[] = {
    {"dense", {.tokens = 133, .main.full = F16(2, 16)}},
    {"dense, one token", {.tokens = 1, .main.full = F16(1, 2)}},
    {"dense, whole pages", {.tokens = 128, .main.full = F16(3, 4)}},
    {"dense, odd rows",
     {.tokens = 67,
      .main.full =
          {.layers = 2, .key_type = 8, .key_bytes = 34, .value_type = 2, .value_bytes = 18}}},
    {"transposed", {.tokens = 133, .main.full = F16_TRANSPOSED(2, 10)}},
    {"transposed, many elements", {.tokens = 133, .main.full = F16_TRANSPOSED(1, 140)}},
    {"transposed, whole pages", {.tokens = 192, .main.full = F16_TRANSPOSED(1, 6)}},
    {"quantised keys, transposed values",
     {.tokens = 65,
      .main.full = {.layers = 2,
                    .is_transposed = true,
                    .element_bytes = 4,
                    .key_type = 8,
                    .key_bytes = 34,
                    .value_type = 0,
                    .value_bytes = 12}}},
    {"elements of one byte",
     {.tokens = 70,
      .main.full = {.layers = 1,
                    .is_transposed = true,
                    .element_bytes = 1,
                    .key_type = 1,
                    .key_bytes = 2,
                    .value_type = 24,
                    .value_bytes = 3}}},
    {"M-RoPE", {.tokens = 130, .main.full = F16_EXTENDED(2, 8)}},
    {"four streams",
     {.tokens = 70, .main.full = F16(2, 8), .stream_count = 4, .stream_index = 2, .sequence = 2}},
    {"last of three streams",
     {.tokens = 70, .main.full = F16(1, 8), .stream_count = 3, .stream_index = 2, .sequence = 2}},
    {"hybrid",
     {.tokens = 90,
      .main = {.full = F16(2, 8), .recurrent = RECURRENT(3, 5, 24, 40)},
      .checkpoint_count = 3,
      .checkpoint_at = {64, 80, 86}}},
    {"hybrid, M-RoPE, transposed, streams",
     {.tokens = 90,
      .main = {.full = {.layers = 2,
                        .is_extended = true,
                        .is_transposed = true,
                        .element_bytes = 2,
                        .key_type = 1,
                        .key_bytes = 6,
                        .value_type = 1,
                        .value_bytes = 6},
               .recurrent = RECURRENT(2, 8, 24, 40)},
      .stream_count = 4,
      .stream_index = 1,
      .sequence = 1,
      .checkpoint_count = 1,
      .checkpoint_at = {86}}},
    {"recurrent alone",
     {.tokens = 77,
      .main.recurrent = RECURRENT(2, 2, 20, 36),
      .checkpoint_count = 2,
      .checkpoint_at = {73, 20}}},
    {"recurrent, one token", {.tokens = 1, .main.recurrent = RECURRENT(1, 1, 4, 4)}},
    {"recurrent, second rows empty",
     {.tokens = 70,
      .main = {.full = F16(1, 4), .recurrent = RECURRENT(2, 3, 12, 0)},
      .checkpoint_count = 1,
      .checkpoint_at = {66}}},
    {"window",
     {.tokens = 100,
      .main = {.full = F16(1, 8), .window = F16(2, 8), .window_tokens = 32},
      .checkpoint_count = 3,
      .checkpoint_at = {96, 12, 96}}},
    {"window, M-RoPE, transposed, streams",
     {.tokens = 70,
      .main = {.full = F16_EXTENDED(1, 8),
               .window = {.layers = 2,
                          .is_extended = true,
                          .is_transposed = true,
                          .element_bytes = 2,
                          .key_type = 1,
                          .key_bytes = 6,
                          .value_type = 1,
                          .value_bytes = 6},
               .window_tokens = 16},
      .stream_count = 3,
      .stream_index = 0,
      .checkpoint_count = 1,
      .checkpoint_at = {66}}},
    {"window and recurrent",
     {.tokens = 70,
      .main = {.full = F16(1, 4),
               .window = F16(1, 4),
               .window_tokens = 16,
               .recurrent = RECURRENT(1, 3, 8, 8)},
      .checkpoint_count = 1,
      .checkpoint_at = {66}}},
    {"draft of its own",
     {.tokens = 70, .main.full = F16(2, 8), .has_draft = true, .draft.full = F16(1, 4)}},
    {"draft layer",
     {.tokens = 90,
      .main = {.full = F16_EXTENDED(2, 8), .recurrent = RECURRENT(2, 4, 24, 40)},
      .has_draft = true,
      .draft.full = F16_EXTENDED(1, 8),
      .checkpoint_count = 2,
      .checkpoint_at = {60, 86}}},
    {"draft with a window",
     {.tokens = 90,
      .main = {.full = F16(1, 8), .recurrent = RECURRENT(1, 2, 12, 12)},
      .has_draft = true,
      .draft = {.full = F16(1, 4), .window = F16(1, 4), .window_tokens = 10},
      .stream_count = 2,
      .stream_index = 1,
      .sequence = 1,
      .checkpoint_count = 2,
      .checkpoint_at = {5, 86}}},
    {"eight checkpoints",
     {.tokens = 200,
      .main.recurrent = RECURRENT(1, 1, 8, 8),
      .checkpoint_count = 8,
      .checkpoint_at = {10, 20, 30, 30, 40, 196, 150, 160}}},
};

const build_slot *build_example(uint32_t index, const char **out_name)
{
    if (index >= sizeof(examples) / sizeof(examples[0])) {
        return NULL;
    }
    *out_name = examples[index].name;
    return &examples[index].slot;
}
