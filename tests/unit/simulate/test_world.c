/*
 * test_world.c - the rest of the host: executor, clock, random, memory, snapshots, damage.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "base/alloc.h"
#include "simulate/world.h"
#include "support/world_files.h"

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
    return kvarve_allocated_blocks() == 0 ? 0 : -1;
}

#define JOBS 8

typedef struct note_job {
    kvarve_job job;
    char name;
} note_job;

static note_job jobs[JOBS];
static char ran[JOBS + 1];
static size_t ran_count;
static size_t done_count;

static void run_note(kvarve_job *job)
{
    ran[ran_count++] = ((note_job *)(void *)job)->name;
}

static void done_note(kvarve_job *job)
{
    (void)job;
    done_count++;
}

static void submit_notes(const char *lanes)
{
    kvarve_executor *executor = world_env(world)->executor;

    ran_count = 0;
    done_count = 0;
    memset(ran, 0, sizeof ran);
    for (size_t i = 0; lanes[i] != '\0'; i++) {
        const bool is_index = lanes[i] == 'i';

        jobs[i] = (note_job){.job = {.lane = is_index ? KVARVE_LANE_INDEX : KVARVE_LANE_READ,
                                     .run = run_note,
                                     .done = done_note},
                             .name = (char)(is_index ? '0' + i : 'a' + i)};
        executor->submit(executor, &jobs[i].job);
    }
}

static void test_world__jobs_run_inside_poll_and_index_keeps_its_order(void **state)
{
    kvarve_executor *executor = world_env(world)->executor;
    unsigned orders[2] = {0};

    (void)state;
    for (int turn = 0; turn < 100; turn++) {
        const char *last = ran;

        submit_notes("riririii");
        assert_int_equal(ran_count, 0);
        assert_int_equal(executor->pending(executor), JOBS);
        assert_true(executor->poll(executor));
        assert_int_equal(executor->pending(executor), JOBS - done_count);
        world_poll_all(world);
        assert_int_equal(done_count, JOBS);
        assert_false(executor->poll(executor));
        for (const char *name = "13567"; *name != '\0'; name++) {
            const char *place = strchr(ran, *name);

            assert_non_null(place);
            assert_true(place >= last);
            last = place;
        }
        orders[strchr(ran, 'a') < strchr(ran, 'c')]++;
    }
    assert_true(orders[0] > 20 && orders[1] > 20);
}

static void test_world__a_seed_gives_one_order_of_jobs(void **state)
{
    char first[JOBS + 1];
    sim_world *other;

    (void)state;
    submit_notes("rrrrrrrr");
    world_poll_all(world);
    memcpy(first, ran, sizeof first);
    other = world;
    world = world_create(1);
    submit_notes("rrrrrrrr");
    world_poll_all(world);
    assert_string_equal(ran, first);
    world_destroy(world);
    world = other;
}

static void test_world__a_restart_ends_the_process(void **state)
{
    const kvarve_env *env = world_env(world);
    kvarve_mapping mapping;

    (void)state;
    submit_notes("ri");
    assert_int_equal(env->memory->create(env->memory, MEMORY_PRIVATE, "arena", 8192, &mapping), 0);
    (void)file_open(world, "a");
    world_restart(world, NULL);
    assert_int_equal(env->executor->pending(env->executor), 0);
    world_poll_all(world);
    assert_int_equal(ran_count + done_count, 0);
    assert_int_equal(world_mappings(world), 0);
    assert_int_equal(world_open_descriptors(world), 0);
    assert_ptr_equal(world_env(world), env);
}

static void test_world__memory_is_aligned_zero_and_limited(void **state)
{
    kvarve_memory *memory = world_env(world)->memory;
    kvarve_mapping mapping;

    (void)state;
    assert_int_equal(memory->create(memory, MEMORY_PRIVATE, "arena", 100, &mapping), -EINVAL);
    assert_int_equal(memory->create(memory, MEMORY_PRIVATE, "arena", 3 * BLOCK, &mapping), 0);
    assert_int_equal((uintptr_t)mapping.base % BLOCK, 0);
    for (size_t i = 0; i < mapping.size; i++) {
        assert_int_equal(((char *)mapping.base)[i], 0);
    }
    world_set_headroom(world, 8192);
    assert_int_equal(memory->headroom(memory), 8192);
    assert_int_equal(memory->populate(memory, &mapping, 0, 3 * BLOCK), -ENOMEM);
    assert_int_equal(memory->populate(memory, &mapping, BLOCK, 2 * BLOCK), 0);
    assert_int_equal(world_mappings(world), 1);
    memory->destroy(memory, &mapping);
    assert_null(mapping.base);
    assert_int_equal(world_mappings(world), 0);
    memory->destroy(memory, &mapping);
}

static void test_world__clocks_stand_still_and_jump_when_told(void **state)
{
    kvarve_clock *clock = world_env(world)->clock;
    const uint64_t start = clock->monotonic_ns(clock);
    const int64_t wall = clock->wall_s(clock);

    (void)state;
    assert_int_equal(clock->monotonic_ns(clock), start);
    world_advance(world, 3 * KVARVE_NS_PER_S);
    assert_int_equal(clock->monotonic_ns(clock), start + 3 * KVARVE_NS_PER_S);
    assert_int_equal(clock->wall_s(clock), wall + 3);
    world_set_wall(world, 1000);
    assert_int_equal(clock->wall_s(clock), 1000);
    assert_int_equal(clock->monotonic_ns(clock), start + 3 * KVARVE_NS_PER_S);
}

static void test_world__random_comes_from_the_seed(void **state)
{
    kvarve_random *random = world_env(world)->random;
    world_snapshot *snapshot = world_take_snapshot(world);
    uint8_t first[13];
    uint8_t second[13];
    uint8_t again[13];

    (void)state;
    world_restore(world, snapshot, 9);
    assert_int_equal(random->fill(random, first, sizeof first), 0);
    assert_int_equal(random->fill(random, second, sizeof second), 0);
    world_restore(world, snapshot, 9);
    assert_int_equal(random->fill(random, again, sizeof again), 0);
    assert_memory_equal(first, again, sizeof first);
    assert_memory_not_equal(first, second, sizeof first);
    world_release_snapshot(world, snapshot);
}

static void test_world__a_snapshot_holds_the_durable_state(void **state)
{
    kvarve_io *io = io_of(world);
    world_snapshot *snapshot;
    kvarve_file_stat before;
    kvarve_file_stat after;

    (void)state;
    assert_int_equal(io->ops->make_directory(io, "d", 0700), 0);
    file_put(world, "d/a", 'a', 5000);
    (void)file_open(world, "d/unsynced");
    assert_int_equal(io->ops->stat(io, "d/a", &before), 0);
    world_set_capacity(world, 1 << 20);
    snapshot = world_take_snapshot(world);
    file_put(world, "d/b", 'b', 10000);
    assert_int_equal(world_remove(world, "d/a"), 0);
    world_set_capacity(world, 0);
    world_restore(world, snapshot, 1);
    assert_true(world_exists(world, "d/a"));
    assert_false(world_exists(world, "d/b"));
    assert_false(world_exists(world, "d/unsynced"));
    assert_int_equal(world_used_bytes(world), 8192);
    assert_int_equal(io->ops->stat(io, "d/a", &after), 0);
    assert_int_equal(before.inode, after.inode);
    world_release_snapshot(world, snapshot);
}

static bool count_file(void *context, const char *path, uint64_t size)
{
    (void)path;
    *(uint64_t *)context += size;
    return true;
}

static void test_world__damage_is_seen_at_once_and_survives(void **state)
{
    uint64_t total = 0;

    (void)state;
    file_put(world, "a", 'a', 5000);
    assert_int_equal(world_flip(world, "a", 4500, 1), 0);
    assert_int_equal(world_overwrite(world, "a", 4000, "xyz", 3), 0);
    assert_int_equal(world_flip(world, "a", 5000, 1), -EINVAL);
    assert_int_equal(world_flip(world, "none", 0, 1), -ENOENT);
    world_restart(world, NULL);
    assert_int_equal(file_byte(world, "a", 4500), 'a' ^ 1);
    assert_int_equal(file_byte(world, "a", 4002), 'z');
    assert_int_equal(world_put_file(world, "b", "12345", 5), 0);
    assert_int_equal(world_truncate(world, "a", 10), 0);
    world_restart(world, NULL);
    world_list_files(world, count_file, &total);
    assert_int_equal(total, 15);
    assert_int_equal(world_put_file(world, "b", "1", 1), 0);
    assert_int_equal(world_remove(world, "a"), 0);
    world_restart(world, NULL);
    assert_int_equal(file_size(world, "b"), 1);
    assert_false(world_exists(world, "a"));
    assert_int_equal(world_put_file(world, "none/b", "1", 1), -ENOENT);
    assert_int_equal(world_observe(world).steps, 0);
}

static void test_world__a_copied_folder_is_equal_but_other_files(void **state)
{
    kvarve_io *io = io_of(world);
    kvarve_file_stat from;
    kvarve_file_stat to;

    (void)state;
    assert_int_equal(io->ops->make_directory(io, "s", 0700), 0);
    assert_int_equal(io->ops->make_directory(io, "s/segments", 0700), 0);
    assert_int_equal(io->ops->make_directory(io, "st", 0700), 0);
    file_put(world, "s/segments/a", 'a', 9000);
    file_put(world, "st/b", 'b', 1);
    assert_int_equal(world_copy_folder(world, "s", "t"), 0);
    assert_int_equal(world_copy_folder(world, "s", "t"), -EEXIST);
    assert_int_equal(world_copy_folder(world, "none", "u"), -ENOENT);
    assert_true(world_exists(world, "t/segments/a"));
    assert_false(world_exists(world, "tt/b"));
    assert_int_equal(io->ops->stat(io, "s/segments/a", &from), 0);
    assert_int_equal(io->ops->stat(io, "t/segments/a", &to), 0);
    assert_int_not_equal(from.inode, to.inode);
    assert_int_equal(from.size, to.size);
    assert_int_equal(world_used_bytes(world), 7 * BLOCK);
    assert_int_equal(world_flip(world, "t/segments/a", 8999, 0xff), 0);
    world_restart(world, NULL);
    assert_int_equal(file_byte(world, "s/segments/a", 8999), 'a');
    assert_int_not_equal(file_byte(world, "t/segments/a", 8999), 'a');
}

static int refuse(void *context, uint64_t number)
{
    (void)context;
    (void)number;
    return 0;
}

static void test_world__its_memory_is_apart_from_the_allocator(void **state)
{
    uint64_t blocks;

    (void)state;
    world_reserve(world, 8 << 20);
    blocks = kvarve_allocated_blocks();
    kvarve_allocate_set_hook(refuse, NULL);
    file_put(world, "a", 'a', 4 << 20);
    kvarve_allocate_set_hook(NULL, NULL);
    assert_int_equal(kvarve_allocated_blocks(), blocks);
}

static void test_world__paths_have_one_form(void **state)
{
    kvarve_io *io = io_of(world);
    kvarve_file_stat stat;

    (void)state;
    assert_int_equal(io->ops->make_directory(io, "/d/", 0700), 0);
    file_put(world, "d//./a", 'a', 1);
    assert_int_equal(io->ops->stat(io, "/d/a", &stat), 0);
    assert_int_equal(io->ops->stat(io, "./d/a", &stat), 0);
    assert_int_equal(io->ops->stat(io, "d/../d/a", &stat), -EINVAL);
    assert_int_equal(io->ops->rename(io, "d", "e"), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        CASE(test_world__jobs_run_inside_poll_and_index_keeps_its_order),
        CASE(test_world__a_seed_gives_one_order_of_jobs),
        CASE(test_world__a_restart_ends_the_process),
        CASE(test_world__memory_is_aligned_zero_and_limited),
        CASE(test_world__clocks_stand_still_and_jump_when_told),
        CASE(test_world__random_comes_from_the_seed),
        CASE(test_world__a_snapshot_holds_the_durable_state),
        CASE(test_world__damage_is_seen_at_once_and_survives),
        CASE(test_world__a_copied_folder_is_equal_but_other_files),
        CASE(test_world__its_memory_is_apart_from_the_allocator),
        CASE(test_world__paths_have_one_form),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
