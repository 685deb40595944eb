/*
 * index_kit.h - what the tests of the index share: a model of what it holds, and steps over it.
 *
 * A step is one transaction in small. The same step is given to the index and to the model; content
 * read back from the index is compared with the model. Bodies follow from their sequence number.
 *
 * Not a test: no assertion of cmocka, so that sweeps can print their plan first.
 */
#ifndef KVARVE_TEST_INDEX_KIT_H
#define KVARVE_TEST_INDEX_KIT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "index/index_private.h"
#include "simulate/world.h"

#define KIT_DIRECTORY  "store"
#define KIT_DATABASE   KIT_DIRECTORY "/" INDEX_FILE_NAME
#define KIT_LOG        KIT_DIRECTORY "/" INDEX_LOG_NAME
#define KIT_NUMBERS    64u /* sequences and checkpoints are below this */
#define KIT_BODY_BYTES 8192u

typedef struct kit_step {
    uint64_t add; /* sequence, 0: none; the same for the rest */
    uint32_t add_size;
    uint64_t dead;
    uint64_t drop_checkpoint;
    uint64_t drop_sequence;
    uint64_t recency_checkpoint;
    uint64_t used;
    uint64_t dead_recency;
} kit_step;

typedef struct kit_content {
    uint32_t body_size[KIT_NUMBERS];        /* 0: no such batch */
    uint64_t dropped_sequence[KIT_NUMBERS]; /* by checkpoint; read back: 1 for any */
    uint64_t used[KIT_NUMBERS];             /* by checkpoint; 0: none */
    uint64_t last_sequence;                 /* while reading */
} kit_content;

static inline void kit_fill_body(uint64_t sequence, uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (uint8_t)(sequence * 31 + i + (i >> 8));
    }
}

static inline void kit_apply(kit_content *content, const kit_step *step)
{
    if (step->add != 0) {
        content->body_size[step->add] = step->add_size;
    }
    if (step->drop_checkpoint != 0) {
        content->dropped_sequence[step->drop_checkpoint] = step->drop_sequence;
    }
    for (size_t i = 0; step->dead != 0 && i < KIT_NUMBERS; i++) {
        if (content->dropped_sequence[i] == step->dead) {
            content->dropped_sequence[i] = 0;
        }
    }
    if (step->dead != 0) {
        content->body_size[step->dead] = 0;
    }
    if (step->recency_checkpoint != 0) {
        content->used[step->recency_checkpoint] = step->used;
    }
    if (step->dead_recency != 0) {
        content->used[step->dead_recency] = 0;
    }
}

static inline bool kit_is_same(const kit_content *read, const kit_content *model)
{
    for (size_t i = 0; i < KIT_NUMBERS; i++) {
        if (read->body_size[i] != model->body_size[i] || read->used[i] != model->used[i] ||
            (read->dropped_sequence[i] != 0) != (model->dropped_sequence[i] != 0)) {
            return false;
        }
    }
    return true;
}

static inline kvarve_status kit_see_batch(void *context, uint64_t sequence, const void *body,
                                          size_t size, kvarve_error *err)
{
    static uint8_t expected[KIT_BODY_BYTES];
    kit_content *content = context;

    if (sequence >= KIT_NUMBERS || size > KIT_BODY_BYTES || sequence <= content->last_sequence) {
        return kvarve_fail(err, KVARVE_INVALID, "batch %llu", (unsigned long long)sequence);
    }
    kit_fill_body(sequence, expected, size);
    if (memcmp(body, expected, size) != 0) {
        return kvarve_fail(err, KVARVE_INVALID, "body %llu", (unsigned long long)sequence);
    }
    content->last_sequence = sequence;
    content->body_size[sequence] = (uint32_t)size;
    return KVARVE_OK;
}

static inline kvarve_status kit_see_dropped(void *context, uint64_t checkpoint, kvarve_error *err)
{
    kit_content *content = context;

    if (checkpoint >= KIT_NUMBERS || content->dropped_sequence[checkpoint] != 0) {
        return kvarve_fail(err, KVARVE_INVALID, "dropped %llu", (unsigned long long)checkpoint);
    }
    content->dropped_sequence[checkpoint] = 1;
    return KVARVE_OK;
}

static inline kvarve_status kit_see_recency(void *context, uint64_t checkpoint, uint64_t used,
                                            kvarve_error *err)
{
    kit_content *content = context;

    if (checkpoint >= KIT_NUMBERS) {
        return kvarve_fail(err, KVARVE_INVALID, "recency %llu", (unsigned long long)checkpoint);
    }
    content->used[checkpoint] = used;
    return KVARVE_OK;
}

static inline kvarve_status kit_load(kvarve_index *index, kit_content *out, kvarve_error *err)
{
    const index_visitor visitor = {.context = out,
                                   .batch = kit_see_batch,
                                   .dropped = kit_see_dropped,
                                   .recency = kit_see_recency};

    memset(out, 0, sizeof *out);
    return index_load(index, &visitor, err);
}

static inline kvarve_status kit_open(const kvarve_env *env, bool is_read_only, kvarve_index **out,
                                     kvarve_error *err)
{
    const index_options options = {.log_bytes_max = UINT64_C(1) << 20,
                                   .is_read_only = is_read_only};

    return index_open(env, KIT_DIRECTORY, &options, out, err);
}

static inline void kit_note_done(index_transaction *transaction, void *context)
{
    (void)transaction;
    *(bool *)context = true;
}

/* Submit and wait for it. */
static inline kvarve_status kit_run(sim_world *world, kvarve_index *index,
                                    index_transaction *transaction)
{
    bool is_done = false;

    transaction->done = kit_note_done;
    transaction->context = &is_done;
    index_submit(index, transaction);
    world_poll_all(world);
    return is_done ? transaction->status : KVARVE_UNAVAILABLE;
}

static inline kvarve_status kit_run_step(sim_world *world, kvarve_index *index,
                                         const kit_step *step, kvarve_error *err)
{
    static uint8_t body[KIT_BODY_BYTES];
    const index_batch batch = {.sequence = step->add, .body = body, .size = step->add_size};
    const index_drop drop = {.checkpoint = step->drop_checkpoint, .sequence = step->drop_sequence};
    const index_recency recency = {.checkpoint = step->recency_checkpoint, .used = step->used};
    index_transaction transaction = {
        .batches = &batch,
        .batch_count = step->add != 0,
        .dead_batches = &step->dead,
        .dead_batch_count = step->dead != 0,
        .drops = &drop,
        .drop_count = step->drop_checkpoint != 0,
        .recency = &recency,
        .recency_count = step->recency_checkpoint != 0,
        .dead_recency = &step->dead_recency,
        .dead_recency_count = step->dead_recency != 0,
    };
    kvarve_status status;

    kit_fill_body(step->add, body, step->add_size);
    status = kit_run(world, index, &transaction);
    if (err != NULL) {
        *err = transaction.error;
    }
    return status;
}

/* A host with the directory of a store. */
static inline sim_world *kit_world(void)
{
    sim_world *world = world_create(1);
    const kvarve_env *env = world_env(world);

    if (env->io->ops->make_directory(env->io, KIT_DIRECTORY, 0700) < 0 ||
        env->io->ops->sync_directory(env->io, "/") < 0) {
        (void)printf("the simulated disk refuses a directory\n");
    }
    return world;
}

#endif
