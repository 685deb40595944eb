/*
 * test_room.c - the cap on flash: never passed, and no more evicted for it than is needed, also
 * when pages of another size want the room.
 *
 * A store in the simulated host, one page a checkpoint; after each step of each put what the store
 * counts is compared with the cap and with what its files take on the disk.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "api/open_in.h"
#include "base/alloc.h"
#include "contract/engine.h"
#include "kvarve/admin.h"
#include "kvarve/store.h"
#include "simulate/world.h"

#define MIB      (UINT64_C(1) << 20)
#define CAP      (16 * MIB)
#define WAIT_MS  20000u
#define OVERHEAD (64u << 10) /* of a small disk: store file, lock, documents */

#define ONE_PAGE(name, bytes)                                                                      \
    {                                                                                              \
        .identity = "{\"model\":\"" name "\"}", .ranks = 1, .group_count = 1, .groups = {          \
            {.page_class = KVARVE_CLASS_ENDPOINT, .page_bytes = (bytes)}                           \
        }                                                                                          \
    }

static const engine_layout layout_a = ONE_PAGE("a", 64 << 10);
static const engine_layout layout_b = ONE_PAGE("b", 20 << 10);
static const engine_layout layout_tiny = ONE_PAGE("tiny", 4 << 10);
static const engine_layout layout_parts = {
    .identity = "{\"model\":\"parts\"}",
    .ranks = 1,
    .group_count = 2,
    .groups = {{.page_class = KVARVE_CLASS_PREFIX, .span_tokens = 1, .page_bytes = 200 << 10},
               {.page_class = KVARVE_CLASS_ENDPOINT, .page_bytes = 1 << 20}}};

static const engine_layout layout_prefix = {
    .identity = "{\"model\":\"prefix\"}",
    .ranks = 1,
    .group_count = 1,
    .groups = {{.page_class = KVARVE_CLASS_PREFIX, .span_tokens = 1, .page_bytes = 4096}}};

typedef struct fixture {
    sim_world *world;
    kvarve_store_options options;
    kvarve_store *store;
    engine a;
    engine b;
    engine tiny;
    engine parts;
    engine prefix;
    uint64_t last; /* seed of the latest put */
} fixture;

static void open_all(fixture *f)
{
    kvarve_error err = {0};

    if (api_open_in(world_env(f->world), "store", &f->options, &f->store, &err) != KVARVE_OK ||
        engine_open(&f->a, f->store, &layout_a, &err) != KVARVE_OK ||
        engine_open(&f->b, f->store, &layout_b, &err) != KVARVE_OK ||
        engine_open(&f->tiny, f->store, &layout_tiny, &err) != KVARVE_OK ||
        engine_open(&f->parts, f->store, &layout_parts, &err) != KVARVE_OK ||
        engine_open(&f->prefix, f->store, &layout_prefix, &err) != KVARVE_OK) {
        fail_msg("%s", err.text);
    }
}

static void close_all(fixture *f)
{
    engine_close(&f->a);
    engine_close(&f->b);
    engine_close(&f->tiny);
    engine_close(&f->parts);
    engine_close(&f->prefix);
    kvarve_close(f->store);
    f->store = NULL;
}

static int set_up(void **state)
{
    fixture *f = kvarve_allocate(sizeof *f);

    f->world = world_create(7);
    f->options = (kvarve_store_options)KVARVE_STORE_OPTIONS_INIT;
    f->options.arena_bytes = 48 * MIB;
    f->options.flash_bytes_max = CAP;
    open_all(f);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;

    close_all(f);
    world_destroy(f->world);
    kvarve_release(f);
    assert_int_equal(kvarve_allocated_blocks(), 0);
    return 0;
}

static kvarve_statistics statistics(const fixture *f)
{
    kvarve_statistics now = KVARVE_STATISTICS_INIT;

    assert_int_equal(kvarve_statistics_get(f->store, &now, NULL), KVARVE_OK);
    return now;
}

static bool add_size(void *context, const char *path, uint64_t size)
{
    if (strstr(path, "store/reserve") != NULL) {
        *(uint64_t *)context += size;
    }
    return true;
}

/* The cap holds, in what is counted and on the disk. */
static void check_cap(const fixture *f)
{
    const kvarve_statistics now = statistics(f);
    const uint64_t counted = now.segment_bytes + now.index_database_bytes + now.index_log_bytes;
    uint64_t reserve = 0;

    if (counted > now.flash_bytes_max) {
        fail_msg("cap %llu, segments %llu, database %llu, log %llu",
                 (unsigned long long)now.flash_bytes_max, (unsigned long long)now.segment_bytes,
                 (unsigned long long)now.index_database_bytes,
                 (unsigned long long)now.index_log_bytes);
    }
    world_list_files(f->world, add_size, &reserve);
    assert_true(world_used_bytes(f->world) <= counted + reserve + OVERHEAD);
}

/* One put of `tokens` tokens under `seed`, watched; how it ended. */
static uint32_t put_tokens(fixture *f, const engine *at, uint64_t seed, uint64_t tokens)
{
    kvarve_prefix *prefix = engine_prefix(seed, tokens);
    const engine_state state = {.prefix = prefix, .tokens = tokens};
    kvarve_put *put = NULL;
    kvarve_error err = {0};
    uint32_t ended;

    assert_non_null(prefix);
    if (engine_put_begin(at, &state, NULL, &put, &err) != KVARVE_OK) {
        fail_msg("%s", err.text);
    }
    check_cap(f);
    (void)!kvarve_put_wait(put, KVARVE_PUT_STAGED, WAIT_MS, &err);
    check_cap(f);
    if (kvarve_put_status(put) == KVARVE_PUT_STAGED) {
        assert_int_equal(engine_put_ranks(at, put, &state, NULL, &err), KVARVE_OK);
        check_cap(f);
        (void)!kvarve_put_wait(put, KVARVE_PUT_DURABLE, WAIT_MS, &err);
    }
    ended = kvarve_put_status(put);
    kvarve_put_release(&put);
    kvarve_prefix_free(prefix);
    check_cap(f);
    return ended;
}

static void put_many(fixture *f, const engine *at, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(put_tokens(f, at, ++f->last, 3), KVARVE_PUT_DURABLE);
    }
}

/* What was put last is there, byte by byte. */
static void restore(const fixture *f, const engine *at, uint64_t seed)
{
    kvarve_prefix *prefix = engine_prefix(seed, 3);
    const engine_state state = {.prefix = prefix, .tokens = 3};

    (void)f;
    assert_int_equal(engine_restore(at, &state, true, NULL), KVARVE_OK);
    kvarve_prefix_free(prefix);
}

/* Put until something is evicted; how many checkpoints there are then. */
static uint64_t fill(fixture *f, const engine *at)
{
    const uint64_t before = statistics(f).evictions;

    while (statistics(f).evictions == before) {
        put_many(f, at, 1);
        assert_true(statistics(f).puts < 20000);
    }
    return statistics(f).checkpoints;
}

static void test_room__the_cap_is_used_and_never_passed(void **state)
{
    fixture *f = *state;
    kvarve_statistics full;

    (void)fill(f, &f->a);
    full = statistics(f);
    assert_true(full.payload_bytes_taken >= CAP * 2 / 3);
    put_many(f, &f->a, 400); /* twice over */
    restore(f, &f->a, f->last);
    assert_true(statistics(f).payload_bytes_taken >= full.payload_bytes_taken - 2 * MIB);
    assert_true(statistics(f).evictions <= full.evictions + 420);
}

static void test_room__other_sizes_get_room_without_emptying_the_store(void **state)
{
    fixture *f = *state;
    uint64_t evictions;
    uint64_t checkpoints = fill(f, &f->a);

    put_many(f, &f->a, 50);
    evictions = statistics(f).evictions;
    put_many(f, &f->b, 1);
    /* Half a segment file of 1 MiB, and what it takes around it. */
    assert_in_range(statistics(f).evictions - evictions, 1, 12);
    put_many(f, &f->b, 99); /* 2 MiB in pages of 20 KiB, 31 of 64 KiB */
    assert_in_range(statistics(f).evictions - evictions, 31, 60);
    restore(f, &f->b, f->last);
    restore(f, &f->a, f->last - 100);
    assert_true(statistics(f).checkpoints > checkpoints);

    /* All A is gone when B has filled the cap; then A again. */
    for (int round = 0; round < 2; round++) {
        put_many(f, &f->b, 800);
        assert_true(statistics(f).payload_bytes_taken >= CAP * 5 / 8);
        evictions = statistics(f).evictions;
        put_many(f, &f->a, 1);
        assert_true(statistics(f).evictions - evictions <= 50);
        put_many(f, &f->a, 250);
        restore(f, &f->a, f->last);
        assert_true(statistics(f).payload_bytes_taken >= CAP * 2 / 3);
    }
}

static void test_room__sizes_may_take_turns(void **state)
{
    fixture *f = *state;
    uint64_t evictions;

    (void)fill(f, &f->a);
    put_many(f, &f->b, 400);
    evictions = statistics(f).evictions;
    for (int i = 0; i < 100; i++) {
        put_many(f, &f->a, 1);
        put_many(f, &f->b, 3);
    }
    assert_true(statistics(f).evictions - evictions <= 600);
    assert_true(statistics(f).payload_bytes_taken >= CAP / 2);
    assert_true(statistics(f).segment_files <= 64);
}

static void test_room__records_of_small_pages_get_room_too(void **state)
{
    fixture *f = *state;

    (void)fill(f, &f->tiny);
    put_many(f, &f->tiny, 1000);
    restore(f, &f->tiny, f->last);
    put_many(f, &f->a, 20);
    restore(f, &f->a, f->last);
    put_many(f, &f->tiny, 200);
    assert_true(statistics(f).payload_bytes_taken >= CAP / 4);
}

/* Boundaries of known pages take records alone: those fill the cap here. */
static void test_room__records_alone_may_fill_the_cap(void **state)
{
    fixture *f = *state;
    uint64_t tokens = 350;
    uint64_t evictions;

    close_all(f);
    f->options.flash_bytes_max = 4 * MIB;
    open_all(f);
    assert_int_equal(put_tokens(f, &f->prefix, 1, tokens), KVARVE_PUT_DURABLE);
    while (statistics(f).evictions == 0) {
        assert_int_equal(put_tokens(f, &f->prefix, 1, --tokens), KVARVE_PUT_DURABLE);
        assert_true(tokens > 1);
    }
    assert_true(statistics(f).checkpoints > 100);
    put_many(f, &f->tiny, 50);
    restore(f, &f->tiny, f->last);
    evictions = statistics(f).evictions;
    assert_true(evictions < 100);
}

static void test_room__caps_of_all_sizes_hold(void **state)
{
    fixture *f = *state;

    for (uint64_t cap = 4 * MIB; cap <= 12 * MIB; cap += 3 * MIB / 2) {
        close_all(f);
        world_destroy(f->world);
        f->world = world_create(cap);
        f->options.flash_bytes_max = cap;
        open_all(f);
        (void)fill(f, cap % MIB == 0 ? &f->tiny : &f->b);
        put_many(f, &f->tiny, 300);
        put_many(f, &f->a, 20);
        restore(f, &f->a, f->last);
        put_many(f, &f->tiny, 300);
        restore(f, &f->tiny, f->last);
    }
}

static void test_room__the_cap_holds_after_opening_again(void **state)
{
    fixture *f = *state;

    (void)fill(f, &f->a);
    put_many(f, &f->b, 60);
    for (int i = 0; i < 4; i++) {
        close_all(f);
        if (i % 2 == 1) {
            world_cut(f->world);
            world_restart(f->world, NULL);
        }
        open_all(f);
        check_cap(f);
        restore(f, &f->b, f->last);
        put_many(f, &f->a, 30);
        put_many(f, &f->b, 60);
        restore(f, &f->b, f->last);
    }
    assert_true(statistics(f).payload_bytes_taken >= CAP / 2);
}

static void test_room__what_can_never_fit_evicts_nothing(void **state)
{
    fixture *f = *state;
    kvarve_statistics before;

    (void)fill(f, &f->a);
    before = statistics(f);
    assert_int_equal(put_tokens(f, &f->parts, ++f->last, 82), KVARVE_PUT_ABORTED);
    /* 12.9 MiB of one size fit, and 1 MiB of another does, but not both. */
    assert_int_equal(put_tokens(f, &f->parts, ++f->last, 66), KVARVE_PUT_ABORTED);
    assert_int_equal(statistics(f).evictions, before.evictions);
    assert_int_equal(statistics(f).checkpoints, before.checkpoints);
    assert_int_equal(statistics(f).refusals[KVARVE_REFUSED_NO_ROOM_FLASH] +
                         statistics(f).refusals[KVARVE_REFUSED_TOO_LARGE],
                     before.puts_aborted + 2);
    put_many(f, &f->a, 10);
    assert_int_equal(put_tokens(f, &f->parts, ++f->last, 60), KVARVE_PUT_DURABLE);
}

static void test_room__a_large_put_that_fits_makes_its_room(void **state)
{
    fixture *f = *state;

    (void)fill(f, &f->b);
    assert_int_equal(put_tokens(f, &f->parts, ++f->last, 40), KVARVE_PUT_DURABLE); /* 8 MiB */
    put_many(f, &f->b, 40);
}

static void test_room__a_full_disk_is_lived_with(void **state)
{
    fixture *f = *state;
    uint64_t evictions;

    put_many(f, &f->a, 40);
    world_set_capacity(f->world, world_used_bytes(f->world) + MIB);
    evictions = statistics(f).evictions;
    put_many(f, &f->a, 60);
    assert_true(statistics(f).evictions > evictions);
    restore(f, &f->a, f->last);
    put_many(f, &f->b, 60);
    restore(f, &f->b, f->last);
    assert_false(statistics(f).is_failed);

    world_set_capacity(f->world, UINT64_C(1) << 40);
    world_advance(f->world, 60 * KVARVE_NS_PER_S);
    evictions = statistics(f).evictions;
    put_many(f, &f->a, 40);
    assert_int_equal(statistics(f).evictions, evictions);
}

static void test_room__a_put_refused_on_a_full_disk_succeeds_later(void **state)
{
    fixture *f = *state;

    world_set_capacity(f->world, world_used_bytes(f->world));
    assert_int_equal(put_tokens(f, &f->a, ++f->last, 3), KVARVE_PUT_ABORTED);
    assert_int_equal(statistics(f).refusals[KVARVE_REFUSED_NO_ROOM_FLASH], 1);
    assert_false(statistics(f).is_failed);
    world_set_capacity(f->world, UINT64_C(1) << 40);
    world_advance(f->world, 60 * KVARVE_NS_PER_S);
    put_many(f, &f->a, 1);
    restore(f, &f->a, f->last);
}

static void test_room__files_are_few_under_a_large_cap(void **state)
{
    fixture *f = *state;

    close_all(f);
    f->options.segment_bytes = MIB;
    f->options.flash_bytes_max = UINT64_C(8) << 30; /* 256 files of 32 MiB */
    open_all(f);
    put_many(f, &f->a, 200);
    assert_int_equal(statistics(f).segment_files, 2); /* one of headers */
    assert_in_range(statistics(f).segment_bytes, 47 * MIB, 49 * MIB);
}

static void fail_growth(fixture *f, int number)
{
    const world_plan plan = {.fault_step = 0,
                             .fault_count = 1000000,
                             .fault_ops = WORLD_OP_ALLOCATE,
                             .fault_path = ".seg",
                             .fault_errno = number,
                             .cut_change = WORLD_NEVER};

    world_set_plan(f->world, &plan);
}

/* Only a disk that is full is told to be, and only for that something goes. */
static void test_room__a_disk_that_fails_is_no_full_one(void **state)
{
    fixture *f = *state;

    put_many(f, &f->a, 3);
    fail_growth(f, EIO);
    for (int i = 0; i < 2; i++) { /* the second one without another attempt */
        assert_int_equal(put_tokens(f, &f->b, ++f->last, 3), KVARVE_PUT_ABORTED);
        assert_int_equal(statistics(f).refusals[KVARVE_REFUSED_IO], i + 1);
    }
    assert_int_equal(statistics(f).evictions, 0);
    put_many(f, &f->a, 1); /* there are slots for it */
    world_set_plan(f->world, NULL);
    world_advance(f->world, 11 * KVARVE_NS_PER_S);
    put_many(f, &f->b, 1);
    fail_growth(f, EDQUOT);
    assert_int_equal(put_tokens(f, &f->tiny, ++f->last, 3), KVARVE_PUT_ABORTED);
    assert_int_equal(statistics(f).refusals[KVARVE_REFUSED_IO], 2);
    assert_int_equal(statistics(f).refusals[KVARVE_REFUSED_NO_ROOM_FLASH], 1);
    assert_true(statistics(f).evictions > 0);
    world_set_plan(f->world, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
        TEST(test_room__the_cap_is_used_and_never_passed),
        TEST(test_room__other_sizes_get_room_without_emptying_the_store),
        TEST(test_room__sizes_may_take_turns),
        TEST(test_room__records_of_small_pages_get_room_too),
        TEST(test_room__records_alone_may_fill_the_cap),
        TEST(test_room__caps_of_all_sizes_hold),
        TEST(test_room__the_cap_holds_after_opening_again),
        TEST(test_room__what_can_never_fit_evicts_nothing),
        TEST(test_room__a_large_put_that_fits_makes_its_room),
        TEST(test_room__a_full_disk_is_lived_with),
        TEST(test_room__a_put_refused_on_a_full_disk_succeeds_later),
        TEST(test_room__a_disk_that_fails_is_no_full_one),
        TEST(test_room__files_are_few_under_a_large_cap),
#undef TEST
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
