/*
 * index_fixture.h - what the unit tests of the index share: an index on a simulated disk, and the
 * model of what it holds. Include after cmocka.h.
 */
#ifndef KVARVE_TEST_INDEX_FIXTURE_H
#define KVARVE_TEST_INDEX_FIXTURE_H

#include <string.h>

#include "unit/index/index_kit.h"

typedef struct fixture {
    sim_world *world;
    kvarve_index *index;
    kit_content model;
    kvarve_error err;
} fixture;

static inline int set_up(void **state)
{
    static fixture storage;

    memset(&storage, 0, sizeof storage);
    storage.world = kit_world();
    *state = &storage;
    return 0;
}

static inline int tear_down(void **state)
{
    fixture *f = *state;

    index_close(f->index);
    assert_int_equal(world_open_descriptors(f->world), 0);
    world_destroy(f->world);
    return 0;
}

static inline void open_index(fixture *f)
{
    const kvarve_status status = kit_open(world_env(f->world), false, &f->index, &f->err);

    if (status != KVARVE_OK) {
        fail_msg("open: %s", f->err.text);
    }
}

static inline void close_index(fixture *f)
{
    index_close(f->index);
    f->index = NULL;
}

static inline void do_step(fixture *f, kit_step step)
{
    const kvarve_status status = kit_run_step(f->world, f->index, &step, &f->err);

    if (status != KVARVE_OK) {
        fail_msg("step: %s", f->err.text);
    }
    kit_apply(&f->model, &step);
}

static inline kvarve_status try_step(fixture *f, kit_step step)
{
    return kit_run_step(f->world, f->index, &step, &f->err);
}

static inline void assert_content(fixture *f)
{
    kit_content content;
    const kvarve_status status = kit_load(f->index, &content, &f->err);

    if (status != KVARVE_OK) {
        fail_msg("load: %s", f->err.text);
    }
    assert_true(kit_is_same(&content, &f->model));
    assert_int_equal(index_verify(f->index, &f->err), KVARVE_OK);
}

static inline void add_some(fixture *f)
{
    do_step(f, (kit_step){.add = 1, .add_size = 300});
    do_step(f, (kit_step){.add = 2, .add_size = 5000, .recency_checkpoint = 7, .used = 70});
    do_step(f, (kit_step){.add = 3, .add_size = 2500, .drop_checkpoint = 4, .drop_sequence = 1});
}

/* Everything into the database, the log empty: damage done to the database is then seen. */
static inline void empty_log(fixture *f)
{
    index_set_limits(f->index, 1, 1);
    do_step(f, (kit_step){.recency_checkpoint = 60, .used = 1});
    index_set_limits(f->index, INDEX_CHECKPOINT_FRAMES, INDEX_LOG_BYTES_LEAST);
}

static inline kvarve_status reopen(fixture *f)
{
    close_index(f);
    return kit_open(world_env(f->world), false, &f->index, &f->err);
}

#define WORLD_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
