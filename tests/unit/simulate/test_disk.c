/*
 * test_disk.c - the simulated disk bites: only what was synced is never lost.
 *
 * Method  Each case plays one small history under many seeds and counts the outcomes; it fails
 *         when an outcome that the fault model in world.h names never comes, or when one comes
 *         that it excludes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "simulate/world.h"
#include "support/world_files.h"

#define SEEDS 200
#define BLOCK ((size_t)4096)

static sim_world *world;

static int setup(void **state)
{
    (void)state;
    world = world_create(1);
    return world == NULL ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    world_destroy(world);
    return 0;
}

static void restart_with(uint64_t seed)
{
    world_plan plan = WORLD_PLAN_QUIET;

    plan.seed = seed;
    world_set_plan(world, &plan);
    world_restart(world, NULL);
}

static void sync_root(void)
{
    assert_int_equal(io_of(world)->ops->sync_directory(io_of(world), "/"), 0);
}

/* What became of a sector that was 'o' and was written with 'n'. */
typedef struct sector_fates {
    unsigned old;
    unsigned fresh;
    unsigned garbage;
    unsigned zero;
} sector_fates;

static void count_fate(sector_fates *fates, const char *path, uint64_t offset)
{
    char sector[WORLD_SECTOR];
    char whole[WORLD_SECTOR];

    assert_int_equal(world_read(world, path, offset, sector, sizeof sector), 0);
    memset(whole, sector[0], sizeof whole);
    if (memcmp(sector, whole, sizeof whole) != 0) {
        fates->garbage++;
    } else if (sector[0] == 'o') {
        fates->old++;
    } else if (sector[0] == 'n') {
        fates->fresh++;
    } else {
        assert_int_equal(sector[0], 0);
        fates->zero++;
    }
}

static void test_disk__an_unsynced_sector_is_old_new_or_garbage(void **state)
{
    sector_fates fates = {0};
    unsigned all_new = 0;
    unsigned all_old = 0;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        sector_fates here = {0};
        kvarve_fd fd;

        file_put(world, "a", 'o', 4 * WORLD_SECTOR);
        fd = file_open(world, "a");
        file_fill(world, fd, 'n', 2 * WORLD_SECTOR, WORLD_SECTOR);
        restart_with(seed);
        count_fate(&here, "a", WORLD_SECTOR);
        count_fate(&here, "a", 2 * WORLD_SECTOR);
        all_new += here.fresh == 2;
        all_old += here.old == 2;
        fates.old += here.old;
        fates.fresh += here.fresh;
        fates.garbage += here.garbage;
        assert_int_equal(here.zero, 0);
        assert_int_equal(file_byte(world, "a", WORLD_SECTOR - 1), 'o'); /* neighbours stay */
        assert_int_equal(file_byte(world, "a", 3 * WORLD_SECTOR), 'o');
    }
    assert_true(fates.old > SEEDS / 10 && fates.fresh > SEEDS / 10 && fates.garbage > SEEDS / 10);
    assert_true(all_new > SEEDS / 10 && all_old > SEEDS / 20);
}

static void test_disk__synced_bytes_and_sizes_always_stay(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        kvarve_fd fd;

        file_put(world, "a", 'o', 100);
        fd = file_open(world, "a");
        file_fill(world, fd, 'n', 5000, 0);
        assert_int_equal(file_try_sync(world, fd), 0);
        restart_with(seed);
        assert_int_equal(file_size(world, "a"), 5000);
        for (uint64_t at = 0; at < 5000; at++) {
            assert_int_equal(file_byte(world, "a", at), 'n');
        }
        assert_int_equal(world_remove(world, "a"), 0);
    }
}

static void test_disk__an_unsynced_size_is_old_or_new(void **state)
{
    unsigned old = 0;
    unsigned fresh = 0;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        kvarve_fd fd;

        file_put(world, "a", 'o', 1000);
        fd = file_open(world, "a");
        file_fill(world, fd, 'n', 4000, 1000);
        restart_with(seed);
        old += file_size(world, "a") == 1000;
        fresh += file_size(world, "a") == 5000;
        assert_int_equal(file_byte(world, "a", 0), 'o');
        assert_int_equal(world_remove(world, "a"), 0);
    }
    assert_true(old > SEEDS / 10 && fresh > SEEDS / 10);
    assert_int_equal(old + fresh, SEEDS);
}

static void test_disk__a_file_rewritten_in_place_can_be_found_empty(void **state)
{
    unsigned empty = 0;
    unsigned old = 0;
    unsigned fresh = 0;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        kvarve_fd fd;

        file_put(world, "a", 'o', 2000);
        fd = file_open(world, "a");
        assert_int_equal(io_of(world)->ops->truncate(io_of(world), fd, 0), 0);
        file_fill(world, fd, 'n', 600, 0);
        restart_with(seed);
        empty += file_size(world, "a") == 0;
        fresh += file_size(world, "a") == 600;
        if (file_size(world, "a") == 2000) {
            old++;
            assert_int_equal(file_byte(world, "a", 1999), 'o'); /* as if never cut */
        }
        assert_int_equal(world_remove(world, "a"), 0);
    }
    assert_true(empty > 0 && old > 0 && fresh > 0);
    assert_int_equal(empty + old + fresh, SEEDS);
}

static void test_disk__bytes_cut_off_do_not_come_back_with_the_size(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        kvarve_fd fd;

        file_put(world, "a", 'o', 9000);
        fd = file_open(world, "a");
        assert_int_equal(io_of(world)->ops->truncate(io_of(world), fd, 100), 0);
        assert_int_equal(io_of(world)->ops->truncate(io_of(world), fd, 10000), 0);
        restart_with(seed);
        if (file_size(world, "a") == 10000) {
            assert_int_equal(file_byte(world, "a", 99), 'o');
            assert_int_equal(file_byte(world, "a", 100), 0);
            assert_int_equal(file_byte(world, "a", 8999), 0);
        }
        assert_int_equal(world_remove(world, "a"), 0);
    }
}

static void test_disk__an_unsynced_hole_is_old_or_zero_and_never_garbage(void **state)
{
    sector_fates fates = {0};

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        kvarve_fd fd;

        file_put(world, "a", 'o', 8192);
        fd = file_open(world, "a");
        assert_int_equal(io_of(world)->ops->punch(io_of(world), fd, 0, BLOCK), 0);
        assert_int_equal(file_byte(world, "a", 0), 0);
        restart_with(seed);
        count_fate(&fates, "a", 0);
        count_fate(&fates, "a", 512);
        assert_int_equal(file_byte(world, "a", BLOCK), 'o');
    }
    assert_true(fates.old > SEEDS / 10 && fates.zero > SEEDS / 10);
    assert_int_equal(fates.garbage + fates.fresh, 0);
}

static void test_disk__a_failed_sync_drops_what_was_unsynced(void **state)
{
    world_plan plan = WORLD_PLAN_QUIET;
    kvarve_fd fd;

    (void)state;
    for (plan.seed = 0; plan.seed < SEEDS; plan.seed++) {
        file_put(world, "a", 'o', 2048);
        fd = file_open(world, "a");
        file_fill(world, fd, 'n', 4000, 512);
        plan.fault_step = 0;
        plan.fault_ops = WORLD_OP_SYNC;
        world_set_plan(world, &plan);
        assert_int_equal(file_try_sync(world, fd), -EIO);
        assert_true(world_observe(world).fault_hit);
        assert_int_equal(file_byte(world, "a", 512), 'n'); /* still seen */
        file_fill(world, fd, 'n', 512, 1024);              /* written again: this comes through */
        assert_int_equal(file_try_sync(world, fd), 0);     /* a lie, as Linux tells it */
        world_restart(world, NULL);
        assert_int_equal(file_size(world, "a"), 2048);
        assert_int_equal(file_byte(world, "a", 512), 'o');
        assert_int_equal(file_byte(world, "a", 1024), 'n');
        assert_int_equal(file_byte(world, "a", 1536), 'o');
        assert_int_equal(world_remove(world, "a"), 0);
    }
}

static void test_disk__names_come_and_go_until_their_directory_is_synced(void **state)
{
    kvarve_io *io = io_of(world);
    unsigned made = 0;
    unsigned removed = 0;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        kvarve_fd fd;

        file_put(world, "old", 'o', 10);
        fd = file_open(world, "new");
        file_fill(world, fd, 'n', 10, 0);
        assert_int_equal(file_try_sync(world, fd), 0); /* not enough for the name */
        assert_int_equal(io->ops->unlink(io, "old"), 0);
        restart_with(seed);
        made += world_exists(world, "new");
        removed += !world_exists(world, "old");
        if (world_exists(world, "new")) {
            assert_int_equal(file_size(world, "new"), 10);
            assert_int_equal(world_remove(world, "new"), 0);
        }
    }
    assert_true(made > SEEDS / 4 && made < SEEDS - SEEDS / 4);
    assert_true(removed > SEEDS / 4 && removed < SEEDS - SEEDS / 4);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        file_put(world, "old", 'o', 10);
        file_close(world, file_open(world, "new"));
        assert_int_equal(io->ops->unlink(io, "old"), 0);
        sync_root();
        restart_with(seed);
        assert_true(world_exists(world, "new") && !world_exists(world, "old"));
        assert_int_equal(world_remove(world, "new"), 0);
    }
}

static void test_disk__an_unsynced_rename_happened_whole_or_not_at_all(void **state)
{
    kvarve_io *io = io_of(world);
    unsigned undone = 0;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        file_put(world, "a", 'n', 10);
        file_put(world, "b", 'o', 10);
        assert_int_equal(io->ops->rename(io, "a", "b"), 0);
        restart_with(seed);
        assert_true(world_exists(world, "b"));
        if (world_exists(world, "a")) {
            assert_int_equal(file_byte(world, "a", 0), 'n');
            assert_int_equal(file_byte(world, "b", 0), 'o');
            undone++;
        } else {
            assert_int_equal(file_byte(world, "b", 0), 'n');
        }
    }
    assert_true(undone > SEEDS / 4 && undone < SEEDS - SEEDS / 4);
}

static void test_disk__a_lost_directory_takes_its_files_along(void **state)
{
    kvarve_io *io = io_of(world);
    unsigned lost = 0;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const bool was_there = world_exists(world, "d");

        if (!was_there) {
            assert_int_equal(io->ops->make_directory(io, "d", 0700), 0);
        }
        file_close(world, file_open(world, "d/a"));
        assert_int_equal(io->ops->sync_directory(io, "d"), 0);
        restart_with(seed);
        lost += !world_exists(world, "d");
        assert_true(world_exists(world, "d") == world_exists(world, "d/a"));
        assert_false(was_there && !world_exists(world, "d"));
    }
    assert_true(lost > 0);
}

static void test_disk__a_failed_directory_sync_drops_the_names(void **state)
{
    world_plan plan = WORLD_PLAN_QUIET;

    (void)state;
    for (plan.seed = 0; plan.seed < 20; plan.seed++) {
        kvarve_io *io = io_of(world);

        file_close(world, file_open(world, "a"));
        plan.fault_step = 0;
        plan.fault_ops = WORLD_OP_SYNC_DIRECTORY;
        world_set_plan(world, &plan);
        assert_int_equal(io->ops->sync_directory(io, "/"), -EIO);
        sync_root(); /* nothing is unsynced for it */
        assert_true(world_exists(world, "a"));
        world_restart(world, NULL);
        assert_false(world_exists(world, "a"));
    }
}

static void test_disk__a_restart_is_settled_and_can_be_repeated(void **state)
{
    kvarve_fd fd;
    char before[BLOCK];
    char after[BLOCK];

    (void)state;
    file_put(world, "a", 'o', BLOCK);
    fd = file_open(world, "a");
    file_fill(world, fd, 'n', BLOCK, 0);
    restart_with(3);
    assert_int_equal(world_read(world, "a", 0, before, sizeof before), 0);
    for (uint64_t seed = 4; seed < 50; seed++) {
        restart_with(seed);
        assert_int_equal(world_read(world, "a", 0, after, sizeof after), 0);
        assert_memory_equal(before, after, sizeof before);
    }
}

static void test_disk__a_killed_process_loses_nothing(void **state)
{
    kvarve_fd fd;

    (void)state;
    fd = file_open(world, "a");
    file_fill(world, fd, 'n', 5000, 0);
    world_kill(world);
    assert_int_equal(world_open_descriptors(world), 0);
    assert_int_equal(file_size(world, "a"), 5000);
    assert_int_equal(file_byte(world, "a", 4999), 'n');
}

static void test_disk__a_full_disk_writes_short_and_then_not_at_all(void **state)
{
    kvarve_io *io = io_of(world);
    const kvarve_fd fd = file_open(world, "a");
    static char bytes[3 * BLOCK];
    const struct iovec part = {.iov_base = bytes, .iov_len = sizeof bytes};
    kvarve_space space;

    (void)state;
    world_set_capacity(world, 5 * BLOCK);
    file_fill(world, fd, 'n', 3 * BLOCK, 0);
    assert_int_equal(io->ops->write(io, fd, &part, 1, 3 * BLOCK), 2 * BLOCK);
    assert_int_equal(io->ops->write(io, fd, &part, 1, 5 * BLOCK), -ENOSPC);
    assert_int_equal(io->ops->write(io, fd, &part, 1, 0), sizeof bytes); /* space it has */
    assert_int_equal(io->ops->allocate(io, fd, 0, 6 * BLOCK), -ENOSPC);
    assert_int_equal(file_size(world, "a"), 5 * BLOCK);
    assert_int_equal(io->ops->space(io, "/", &space), 0);
    assert_int_equal(space.total_bytes, 5 * BLOCK);
    assert_int_equal(space.free_bytes, 0);
    assert_int_equal(io->ops->punch(io, fd, BLOCK, 2 * BLOCK), 0);
    assert_int_equal(world_used_bytes(world), 3 * BLOCK);
    assert_int_equal(io->ops->truncate(io, fd, BLOCK), 0);
    assert_int_equal(world_used_bytes(world), BLOCK);
    assert_int_equal(io->ops->unlink(io, "a"), 0);
    assert_int_equal(world_used_bytes(world), BLOCK); /* a descriptor holds it */
    file_close(world, fd);
    assert_int_equal(world_used_bytes(world), 0);
}

static void test_disk__space_is_right_after_each_restart(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        kvarve_io *io = io_of(world);
        kvarve_file_stat stat;
        kvarve_fd fd;

        file_put(world, "a", 'o', 20000);
        fd = file_open(world, "a");
        assert_int_equal(io->ops->punch(io, fd, 0, 8192), 0);
        assert_int_equal(io->ops->allocate(io, fd, 20000, 100000), 0);
        assert_int_equal(io->ops->truncate(io, fd, 70000), 0);
        restart_with(seed);
        assert_int_equal(io->ops->stat(io, "a", &stat), 0);
        assert_int_equal(world_used_bytes(world), stat.allocated_bytes);
        assert_true(stat.allocated_bytes <= 120000 + BLOCK);
        assert_int_equal(world_remove(world, "a"), 0);
        assert_int_equal(world_used_bytes(world), 0);
    }
}

static void test_disk__one_lock_for_a_process(void **state)
{
    kvarve_io *io = io_of(world);
    kvarve_fd fd = file_open(world, "lock");
    int64_t owner = 0;

    (void)state;
    assert_int_equal(world_lock_as_other(world, "lock", 4711), 0);
    assert_int_equal(io->ops->lock(io, fd, &owner), -EAGAIN);
    assert_int_equal(owner, 4711);
    assert_int_equal(world_lock_as_other(world, "lock", 0), 0);
    assert_int_equal(io->ops->lock(io, fd, &owner), 0);
    assert_true(world_holds_lock(world, "lock"));
    file_close(world, file_open(world, "lock")); /* POSIX: any close lets it go */
    assert_false(world_holds_lock(world, "lock"));
    assert_int_equal(io->ops->lock(io, fd, &owner), 0);
    assert_int_equal(world_lock_as_other(world, "none", 1), -ENOENT);
    sync_root();
    world_restart(world, NULL);
    assert_false(world_holds_lock(world, "lock"));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        CASE(test_disk__an_unsynced_sector_is_old_new_or_garbage),
        CASE(test_disk__synced_bytes_and_sizes_always_stay),
        CASE(test_disk__an_unsynced_size_is_old_or_new),
        CASE(test_disk__a_file_rewritten_in_place_can_be_found_empty),
        CASE(test_disk__bytes_cut_off_do_not_come_back_with_the_size),
        CASE(test_disk__an_unsynced_hole_is_old_or_zero_and_never_garbage),
        CASE(test_disk__a_failed_sync_drops_what_was_unsynced),
        CASE(test_disk__names_come_and_go_until_their_directory_is_synced),
        CASE(test_disk__an_unsynced_rename_happened_whole_or_not_at_all),
        CASE(test_disk__a_lost_directory_takes_its_files_along),
        CASE(test_disk__a_failed_directory_sync_drops_the_names),
        CASE(test_disk__a_restart_is_settled_and_can_be_repeated),
        CASE(test_disk__a_killed_process_loses_nothing),
        CASE(test_disk__a_full_disk_writes_short_and_then_not_at_all),
        CASE(test_disk__space_is_right_after_each_restart),
        CASE(test_disk__one_lock_for_a_process),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
