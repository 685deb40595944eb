/*
 * test_faults.c - each fault of a plan does what world.h says, at the step that it names.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "simulate/world.h"
#include "support/world_files.h"

static sim_world *world;
static kvarve_io *io;
static kvarve_fd fd;

static int setup(void **state)
{
    (void)state;
    world = world_create(1);
    if (world == NULL) {
        return -1;
    }
    io = io_of(world);
    file_put(world, "a", 'o', 100);
    fd = file_open(world, "a");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_destroy(world);
    return 0;
}

/* Let the next call of `ops` have this fault. */
static void plan_fault(world_fault fault, uint32_t ops, int fault_errno)
{
    world_plan plan = WORLD_PLAN_QUIET;

    plan.fault = fault;
    plan.fault_step = 0;
    plan.fault_ops = ops;
    plan.fault_errno = fault_errno;
    plan.slow_ns = 5;
    world_set_plan(world, &plan);
}

static ssize_t write_text(const char *text, uint64_t offset)
{
    char bytes[16];
    const struct iovec part = {.iov_base = bytes, .iov_len = strlen(text)};

    assert_true(part.iov_len <= sizeof bytes);
    memcpy(bytes, text, part.iov_len);
    return io->ops->write(io, fd, &part, 1, offset);
}

static ssize_t read_text(char *out, size_t size, uint64_t offset)
{
    const struct iovec part = {.iov_base = out, .iov_len = size};

    return io->ops->read(io, fd, &part, 1, offset);
}

static void test_faults__an_error_is_returned_once_and_nothing_is_done(void **state)
{
    (void)state;
    plan_fault(WORLD_FAULT_ERROR, WORLD_OP_WRITE, EDQUOT);
    assert_int_equal(write_text("nnnn", 0), -EDQUOT);
    assert_int_equal(file_byte(world, "a", 0), 'o');
    assert_true(world_observe(world).fault_hit);
    assert_int_equal(write_text("nnnn", 0), 4);
    plan_fault(WORLD_FAULT_ERROR, WORLD_OP_OPEN, EMFILE);
    assert_int_equal(io->ops->open(io, "b", KVARVE_OPEN_CREATE, 0600, &fd), -EMFILE);
    assert_false(world_exists(world, "b"));
    plan_fault(WORLD_FAULT_ERROR, WORLD_OP_UNLINK, 0);
    assert_int_equal(io->ops->unlink(io, "a"), -EIO);
    assert_true(world_exists(world, "a"));
    plan_fault(WORLD_FAULT_ERROR, WORLD_OP_RENAME, EACCES);
    assert_int_equal(io->ops->rename(io, "a", "b"), -EACCES);
    assert_true(world_exists(world, "a"));
}

static void test_faults__an_error_can_last(void **state)
{
    world_plan plan = WORLD_PLAN_QUIET;

    (void)state;
    plan.fault_step = 1;
    plan.fault_count = 2;
    plan.fault_errno = EINTR;
    world_set_plan(world, &plan);
    assert_int_equal(write_text("n", 0), 1);
    assert_int_equal(write_text("n", 0), -EINTR);
    assert_int_equal(file_try_sync(world, fd), -EINTR);
    assert_int_equal(write_text("n", 0), 1);
    assert_int_equal(world_observe(world).steps, 4);
    assert_int_equal(world_observe(world).changes, 4);
}

static void test_faults__paths_and_calls_are_filtered(void **state)
{
    world_plan plan = WORLD_PLAN_QUIET;
    const kvarve_fd other = file_open(world, "segments.seg");

    (void)state;
    plan.fault_step = 0;
    plan.fault_path = ".seg";
    plan.fault_ops = WORLD_OP_SYNC | WORLD_OP_WRITE;
    world_set_plan(world, &plan);
    assert_int_equal(write_text("n", 0), 1);
    assert_int_equal(file_try_sync(world, fd), 0);
    assert_int_equal(world_observe(world).steps, 0);
    assert_false(world_observe(world).fault_reached);
    assert_int_equal(file_try_write(world, other, "n", 1, 0), -EIO);
    assert_true(world_observe(world).fault_reached);
}

static void test_faults__short_calls_move_about_half(void **state)
{
    char bytes[10];

    (void)state;
    plan_fault(WORLD_FAULT_SHORT, WORLD_OP_WRITE, 0);
    assert_int_equal(write_text("nnnnnnnn", 0), 4);
    assert_int_equal(file_byte(world, "a", 3), 'n');
    assert_int_equal(file_byte(world, "a", 4), 'o');
    plan_fault(WORLD_FAULT_SHORT, WORLD_OP_READ, 0);
    assert_int_equal(read_text(bytes, 9, 0), 4);
    assert_true(world_observe(world).fault_hit);
    plan_fault(WORLD_FAULT_SHORT, WORLD_OP_READ, 0);
    assert_int_equal(read_text(bytes, 1, 0), 1);
    assert_true(world_observe(world).fault_reached); /* but a byte has no half */
    assert_false(world_observe(world).fault_hit);
}

static void test_faults__a_short_direct_write_keeps_alignment(void **state)
{
    static _Alignas(4096) char bytes[3 * 4096];
    const struct iovec part = {.iov_base = bytes, .iov_len = sizeof bytes};
    kvarve_fd direct;

    (void)state;
    assert_int_equal(io->ops->open(io, "d", KVARVE_OPEN_CREATE | KVARVE_OPEN_DIRECT, 0600, &direct),
                     0);
    plan_fault(WORLD_FAULT_SHORT, WORLD_OP_WRITE, 0);
    assert_int_equal(io->ops->write(io, direct, &part, 1, 0), 4096);
    plan_fault(WORLD_FAULT_SHORT, WORLD_OP_WRITE, 0);
    assert_int_equal(io_write_all(io, direct, bytes, sizeof bytes, 0), 0); /* the loop goes on */
}

static void test_faults__a_torn_write_stores_half_and_fails(void **state)
{
    (void)state;
    plan_fault(WORLD_FAULT_TORN, WORLD_OP_WRITE, 0);
    assert_int_equal(write_text("nnnnnnnn", 0), -EIO);
    assert_int_equal(file_byte(world, "a", 3), 'n');
    assert_int_equal(file_byte(world, "a", 4), 'o');
}

static void test_faults__a_lost_sync_lies(void **state)
{
    unsigned lost = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        world_plan plan = {.fault = WORLD_FAULT_LOST_SYNC,
                           .fault_ops = WORLD_OP_SYNC,
                           .cut_change = WORLD_NEVER,
                           .seed = seed};

        file_put(world, "a", 'o', 100);
        world_set_plan(world, &plan);
        fd = file_open(world, "a");
        assert_int_equal(write_text("n", 0), 1);
        assert_int_equal(file_try_sync(world, fd), 0);
        assert_true(world_observe(world).fault_hit);
        if (seed % 2 == 0) {
            assert_int_equal(file_try_sync(world, fd), 0); /* the next one is honest */
        }
        world_restart(world, NULL);
        assert_false(seed % 2 == 0 && file_byte(world, "a", 0) != 'n');
        lost += file_byte(world, "a", 0) != 'n';
    }
    assert_true(lost > 5);
}

static void test_faults__a_bit_flips_in_what_is_read_only(void **state)
{
    char bytes[100];
    unsigned wrong_bits = 0;

    (void)state;
    plan_fault(WORLD_FAULT_BIT_FLIP, WORLD_OP_READ, 0);
    assert_int_equal(read_text(bytes, sizeof bytes, 0), 100);
    for (size_t i = 0; i < sizeof bytes; i++) {
        wrong_bits += (unsigned)__builtin_popcount((unsigned char)(bytes[i] ^ 'o'));
    }
    assert_int_equal(wrong_bits, 1);
    assert_int_equal(read_text(bytes, sizeof bytes, 0), 100);
    for (size_t i = 0; i < sizeof bytes; i++) {
        assert_int_equal(bytes[i], 'o');
    }
}

static void test_faults__a_slow_call_takes_time(void **state)
{
    kvarve_clock *clock = world_env(world)->clock;
    const uint64_t before = clock->monotonic_ns(clock);

    (void)state;
    plan_fault(WORLD_FAULT_SLOW, WORLD_OP_SYNC, 0);
    assert_int_equal(file_try_sync(world, fd), 0);
    assert_int_equal(clock->monotonic_ns(clock), before + 5);
}

static void test_faults__after_the_cut_everything_fails_until_the_restart(void **state)
{
    world_plan plan = WORLD_PLAN_QUIET;
    kvarve_file_stat stat;
    char byte;

    (void)state;
    plan.cut_change = 1;
    world_set_plan(world, &plan);
    assert_int_equal(write_text("n", 0), 1);
    assert_int_equal(read_text(&byte, 1, 0), 1); /* no change: not counted */
    assert_int_equal(write_text("m", 1), -EIO);
    assert_true(world_observe(world).is_cut);
    assert_int_equal(read_text(&byte, 1, 0), -EIO);
    assert_int_equal(io->ops->stat(io, "a", &stat), -EIO);
    assert_int_equal(file_try_sync(world, fd), -EIO);
    assert_int_equal(io->ops->sync_directory(io, "/"), -EIO);
    file_close(world, fd);
    world_restart(world, NULL);
    assert_false(world_observe(world).is_cut);
    assert_int_equal(io->ops->stat(io, "a", &stat), 0);
}

static void test_faults__a_call_that_meets_the_cut_may_have_happened(void **state)
{
    unsigned written = 0;
    unsigned made = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        world_plan plan = {.fault_step = WORLD_NEVER, .cut_change = 0, .seed = seed};
        kvarve_fd never;

        file_put(world, "a", 'o', 100);
        fd = file_open(world, "a");
        world_set_plan(world, &plan);
        assert_int_equal(write_text("n", 0), -EIO);
        world_restart(world, &plan);
        written += file_byte(world, "a", 0) == 'n';
        assert_int_equal(io->ops->open(io, "b", KVARVE_OPEN_CREATE, 0600, &never), -EIO);
        world_restart(world, NULL);
        made += world_exists(world, "b");
        (void)world_remove(world, "b");
    }
    assert_true(written > 10 && written < 90);
    assert_true(made > 10 && made < 90);
}

static void test_faults__descriptors_run_out(void **state)
{
    kvarve_fd more;

    (void)state;
    world_set_descriptors_max(world, 2);
    assert_int_equal(world_open_descriptors(world), 1);
    assert_int_equal(io->ops->open(io, "a", 0, 0, &more), 0);
    assert_int_equal(io->ops->open(io, "a", 0, 0, &fd), -EMFILE);
    file_close(world, more);
    assert_int_equal(io->ops->open(io, "a", 0, 0, &more), 0);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        CASE(test_faults__an_error_is_returned_once_and_nothing_is_done),
        CASE(test_faults__an_error_can_last),
        CASE(test_faults__paths_and_calls_are_filtered),
        CASE(test_faults__short_calls_move_about_half),
        CASE(test_faults__a_short_direct_write_keeps_alignment),
        CASE(test_faults__a_torn_write_stores_half_and_fails),
        CASE(test_faults__a_lost_sync_lies),
        CASE(test_faults__a_bit_flips_in_what_is_read_only),
        CASE(test_faults__a_slow_call_takes_time),
        CASE(test_faults__after_the_cut_everything_fails_until_the_restart),
        CASE(test_faults__a_call_that_meets_the_cut_may_have_happened),
        CASE(test_faults__descriptors_run_out),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
