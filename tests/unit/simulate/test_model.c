/*
 * test_model.c - random histories of one file against flat arrays.
 *
 * Goal    What is read is what was written; what was synced survives each cut, sector by sector.
 * Method  Random writes, holes, truncations, allocations, syncs, cuts and snapshots by seed.
 *         Beside the file: the bytes it should show, those it showed at the last sync, and which
 *         sectors changed since.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "simulate/world.h"
#include "support/world_files.h"

#define SIZE_MAX_HERE 60000
#define SECTORS       (SIZE_MAX_HERE / WORLD_SECTOR + 1)
#define HISTORIES     60
#define OPERATIONS    150

typedef struct model {
    uint8_t seen[SIZE_MAX_HERE];
    uint8_t synced[SIZE_MAX_HERE];
    uint64_t seen_size;
    uint64_t synced_size;
    bool is_written[SECTORS]; /* since the sync */
    bool is_punched[SECTORS];
    bool is_size_changed;
} model;

static model m;
static uint64_t state_of_dice;

static uint64_t draw(uint64_t below)
{
    return world_next_random(&state_of_dice) % below;
}

static void note_sync(void)
{
    memcpy(m.synced, m.seen, sizeof m.synced);
    memset(m.is_written, 0, sizeof m.is_written);
    memset(m.is_punched, 0, sizeof m.is_punched);
    m.synced_size = m.seen_size;
    m.is_size_changed = false;
}

static void change_file(sim_world *world, kvarve_fd fd)
{
    static uint8_t bytes[SIZE_MAX_HERE];
    kvarve_io *io = io_of(world);
    const uint64_t offset = draw(SIZE_MAX_HERE);
    const uint64_t size = 1 + draw(draw(2) == 0 ? 700 : SIZE_MAX_HERE - offset);
    const uint64_t end = offset + size < SIZE_MAX_HERE ? offset + size : SIZE_MAX_HERE;
    const uint64_t kind = draw(10);

    if (kind < 6) {
        memset(bytes, (int)(1 + draw(255)), end - offset);
        assert_int_equal(io_write_all(io, fd, bytes, end - offset, offset), 0);
        memcpy(m.seen + offset, bytes, end - offset);
    } else if (kind == 6) {
        assert_int_equal(io->ops->punch(io, fd, offset, end - offset), 0);
        memset(m.seen + offset, 0, end - offset);
    } else if (kind == 7) {
        assert_int_equal(io->ops->allocate(io, fd, offset, end - offset), 0);
    } else {
        assert_int_equal(io->ops->truncate(io, fd, offset), 0);
        memset(m.seen + offset, 0, SIZE_MAX_HERE - offset);
    }
    for (uint64_t at = offset / WORLD_SECTOR; at * WORLD_SECTOR < end; at++) {
        m.is_written[at] = m.is_written[at] || kind < 6 || kind == 6;
        m.is_punched[at] = m.is_punched[at] || kind == 6;
    }
    if (kind == 6) {
        return;
    }
    if (kind > 7) {
        for (uint64_t at = offset / WORLD_SECTOR; at < SECTORS; at++) {
            m.is_written[at] = true;
        }
    }
    m.is_size_changed = m.is_size_changed || kind > 7 || end > m.seen_size;
    m.seen_size = kind > 7 ? offset : end > m.seen_size ? end : m.seen_size;
}

static void expect_seen(sim_world *world)
{
    static uint8_t bytes[SIZE_MAX_HERE];

    assert_int_equal(file_size(world, "f"), m.seen_size);
    assert_int_equal(world_read(world, "f", 0, bytes, m.seen_size), 0);
    assert_memory_equal(bytes, m.seen, m.seen_size);
}

/* After a cut: sectors that nobody touched since the last sync are as they were then. */
static void expect_settled(sim_world *world)
{
    static uint8_t bytes[SIZE_MAX_HERE];
    const uint64_t size = file_size(world, "f");

    assert_true(m.is_size_changed || size == m.synced_size);
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(world_read(world, "f", 0, bytes, size), 0);
    for (uint64_t at = 0; at < SECTORS; at++) {
        const uint64_t begin = at * WORLD_SECTOR;
        const uint64_t whole = begin + WORLD_SECTOR;
        const uint64_t end = whole < m.synced_size ? whole : m.synced_size;

        if (!m.is_written[at] && begin < end && end <= size) {
            assert_memory_equal(bytes + begin, m.synced + begin, end - begin);
        }
    }
    memcpy(m.seen, bytes, sizeof m.seen);
    m.seen_size = size;
    note_sync();
}

static void cut(sim_world *world, uint64_t seed)
{
    world_plan plan = WORLD_PLAN_QUIET;

    plan.seed = seed;
    world_set_plan(world, &plan);
    world_restart(world, NULL);
}

static void run_history(sim_world *world)
{
    kvarve_fd fd = file_open(world, "f");
    unsigned cuts = 0;

    world_flush(world);
    memset(&m, 0, sizeof m);
    for (int i = 0; i < OPERATIONS; i++) {
        const uint64_t kind = draw(12);

        if (kind == 0) {
            assert_int_equal(file_try_sync(world, fd), 0);
            note_sync();
        } else if (kind == 1) {
            cut(world, draw(UINT64_MAX));
            expect_settled(world);
            fd = file_open(world, "f");
            cuts++;
        } else {
            change_file(world, fd);
        }
        expect_seen(world);
    }
    assert_true(cuts > 0);
    file_close(world, fd);
    assert_int_equal(world_remove(world, "f"), 0);
    assert_int_equal(world_used_bytes(world), 0);
}

static void test_model__random_histories_keep_what_was_synced(void **state)
{
    sim_world *world = world_create(7);

    (void)state;
    assert_non_null(world);
    for (uint64_t seed = 0; seed < HISTORIES; seed++) {
        state_of_dice = seed;
        run_history(world);
    }
    world_destroy(world);
}

/* Change and sync the file at random, cut, and look at what is left. */
static void change_and_cut(sim_world *world, uint64_t seed)
{
    const kvarve_fd fd = file_open(world, "f");

    for (int i = 0; i < 30; i++) {
        change_file(world, fd);
        if (draw(5) == 0) {
            assert_int_equal(file_try_sync(world, fd), 0);
            note_sync();
        }
    }
    cut(world, seed);
    expect_settled(world);
}

static void test_model__a_snapshot_stays_as_it_was_taken(void **state)
{
    static model taken;
    sim_world *world = world_create(7);
    world_snapshot *snapshot;
    kvarve_fd fd;

    (void)state;
    assert_non_null(world);
    state_of_dice = 5;
    memset(&m, 0, sizeof m);
    fd = file_open(world, "f");
    for (int i = 0; i < 20; i++) {
        change_file(world, fd);
    }
    world_flush(world);
    note_sync();
    taken = m;
    snapshot = world_take_snapshot(world);
    for (uint64_t seed = 0; seed < 30; seed++) {
        world_restore(world, snapshot, seed);
        m = taken;
        expect_seen(world);
        change_and_cut(world, seed);
    }
    world_release_snapshot(world, snapshot);
    world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_model__random_histories_keep_what_was_synced),
        cmocka_unit_test(test_model__a_snapshot_stays_as_it_was_taken),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
