/*
 * store_kit.h - a store in the simulated host, opened through the public calls, and short ways to
 * use it. Include after cmocka.h.
 *
 * A call that answers anything but KVARVE_OK where it may not fails the test with its text.
 */
#ifndef KVARVE_TESTS_STORE_KIT_H
#define KVARVE_TESTS_STORE_KIT_H

#include <string.h>

#include "api/open_in.h"
#include "base/alloc.h"
#include "contract/engine.h"
#include "kvarve/admin.h"
#include "kvarve/store.h"
#include "simulate/world.h"

#define MIB     (UINT64_C(1) << 20)
#define WAIT_MS 20000u

typedef struct fixture {
    sim_world *world;
    kvarve_store_options options;
    kvarve_store *store;
    engine at;
    kvarve_prefix *prefix; /* of 200 tokens */
} fixture;

static kvarve_error err;

static inline void expect_ok(kvarve_status status, const char *call, const char *file, int line)
{
    if (status != KVARVE_OK) {
        print_error("%s: %s: %s\n", call, kvarve_status_text(status), err.text);
        _fail(file, line);
    }
}

/* NOLINTNEXTLINE(readability-identifier-naming): it reads as those of cmocka. */
#define assert_ok(call) expect_ok((call), #call, __FILE__, __LINE__)

static inline kvarve_status try_open(fixture *f)
{
    return api_open_in(world_env(f->world), "store", &f->options, &f->store, &err);
}

static inline void open_store(fixture *f, const engine_layout *layout)
{
    assert_ok(try_open(f));
    assert_ok(engine_open(&f->at, f->store, layout, &err));
}

static inline void close_store(fixture *f)
{
    engine_close(&f->at);
    kvarve_close(f->store);
    f->store = NULL;
}

static inline void begin_test(fixture *f, const engine_layout *layout)
{
    *f = (fixture){.world = world_create(7), .options = KVARVE_STORE_OPTIONS_INIT};
    f->options.arena_bytes = 4 * MIB;
    f->options.segment_bytes = MIB;
    f->options.flash_bytes_max = 64 * MIB;
    f->prefix = engine_prefix(1, 200);
    open_store(f, layout);
}

/* The store is closed already. */
static inline void end_world(fixture *f)
{
    kvarve_prefix_free(f->prefix);
    assert_int_equal(world_open_descriptors(f->world), 0);
    world_destroy(f->world);
    assert_int_equal(kvarve_allocated_blocks(), 0);
}

static inline void end_test(fixture *f)
{
    close_store(f);
    end_world(f);
}

static inline kvarve_statistics statistics(const fixture *f)
{
    kvarve_statistics now = KVARVE_STATISTICS_INIT;

    assert_int_equal(kvarve_statistics_get(f->store, &now, NULL), KVARVE_OK);
    return now;
}

static inline engine_state state_at(const fixture *f, uint64_t tokens)
{
    return (engine_state){.prefix = f->prefix, .tokens = tokens};
}

/* How it ended. */
static inline uint32_t put(fixture *f, const engine_state *state)
{
    uint32_t ended = 0;

    if (engine_put(&f->at, state, &ended, &err) == KVARVE_MISS) {
        return KVARVE_PUT_ABORTED;
    }
    return ended;
}

static inline kvarve_put *begin(fixture *f, const engine_state *state)
{
    kvarve_put *made = NULL;

    assert_ok(engine_put_begin(&f->at, state, NULL, &made, &err));
    assert_ok(kvarve_put_wait(made, KVARVE_PUT_STAGED, WAIT_MS, &err));
    return made;
}

#endif
