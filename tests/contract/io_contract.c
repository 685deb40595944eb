/*
 * io_contract.c - see io_contract.h.
 *
 * Goal    The simulated disk answers as the real one: what passes over it holds on a machine.
 * Method  Each case uses only io.h and the loops of io_all.h, in a directory of its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "contract/io_contract.h"
#include "env/io_all.h"

#define BLOCK  ((size_t)KVARVE_IO_ALIGNMENT)
#define CREATE KVARVE_OPEN_CREATE

static alignas(BLOCK) uint8_t aligned[4 * BLOCK];

/* The path of `name` in the case's directory; valid for two calls. */
static const char *at(const io_contract *c, const char *name)
{
    static char paths[2][KVARVE_PATH_MAX];
    static unsigned turn;
    char *path = paths[turn++ % 2];

    assert_int_equal(io_join_path(path, KVARVE_PATH_MAX, c->root, name), 0);
    return path;
}

static kvarve_fd open_new(const io_contract *c, const char *name)
{
    kvarve_fd fd = -1;

    assert_int_equal(c->io->ops->open(c->io, at(c, name), CREATE, 0640, &fd), 0);
    return fd;
}

static void put_text(const io_contract *c, const char *name, const char *text)
{
    const kvarve_fd fd = open_new(c, name);

    assert_int_equal(io_write_all(c->io, fd, text, strlen(text), 0), 0);
    c->io->ops->close(c->io, fd);
}

static void expect_text(const io_contract *c, const char *name, const char *text)
{
    char *bytes = NULL;
    size_t size = 0;

    assert_int_equal(io_read_file(c->io, at(c, name), 100, &bytes, &size, NULL), KVARVE_OK);
    assert_int_equal(size, strlen(text));
    assert_string_equal(bytes, text);
    kvarve_release(bytes);
}

static kvarve_file_stat stat_of(const io_contract *c, kvarve_fd fd)
{
    kvarve_file_stat stat;

    assert_int_equal(c->io->ops->stat_fd(c->io, fd, &stat), 0);
    return stat;
}

static ssize_t read_one(const io_contract *c, kvarve_fd fd, void *bytes, size_t size,
                        uint64_t offset)
{
    const struct iovec part = {.iov_base = bytes, .iov_len = size};

    return c->io->ops->read(c->io, fd, &part, 1, offset);
}

static ssize_t write_one(const io_contract *c, kvarve_fd fd, void *bytes, size_t size,
                         uint64_t offset)
{
    const struct iovec part = {.iov_base = bytes, .iov_len = size};

    return c->io->ops->write(c->io, fd, &part, 1, offset);
}

static void test_io__open_finds_creates_and_refuses(void **state)
{
    const io_contract *c = *state;
    const kvarve_io_ops *ops = c->io->ops;
    char long_path[KVARVE_PATH_MAX + 1];
    kvarve_fd fd = -7;

    assert_int_equal(ops->open(c->io, at(c, "a"), 0, 0, &fd), -ENOENT);
    assert_int_equal(ops->open(c->io, at(c, "b/a"), CREATE, 0600, &fd), -ENOENT);
    assert_int_equal(fd, -7);
    put_text(c, "a", "text");
    assert_int_equal(ops->open(c->io, at(c, "a/b"), CREATE, 0600, &fd), -ENOTDIR);
    assert_int_equal(ops->open(c->io, at(c, "a"), CREATE | KVARVE_OPEN_EXCLUSIVE, 0600, &fd),
                     -EEXIST);
    assert_int_equal(ops->open(c->io, c->root, 0, 0, &fd), -EISDIR);
    memset(long_path, 'x', KVARVE_PATH_MAX);
    long_path[KVARVE_PATH_MAX] = '\0';
    assert_int_equal(ops->open(c->io, long_path, CREATE, 0600, &fd), -ENAMETOOLONG);
    assert_int_equal(ops->open(c->io, at(c, "a"), KVARVE_OPEN_TRUNCATE, 0, &fd), 0);
    assert_int_equal(stat_of(c, fd).size, 0);
    ops->close(c->io, fd);
}

static void test_io__a_read_only_descriptor_does_not_write(void **state)
{
    const io_contract *c = *state;
    char byte = 'x';
    kvarve_fd fd;

    put_text(c, "a", "text");
    assert_int_equal(c->io->ops->open(c->io, at(c, "a"), KVARVE_OPEN_READ, 0, &fd), 0);
    assert_int_equal(write_one(c, fd, &byte, 1, 0), -EBADF);
    assert_int_equal(read_one(c, fd, &byte, 1, 3), 1);
    assert_int_equal(byte, 't');
    assert_int_equal(c->io->ops->truncate(c->io, fd, 0), -EINVAL);
    assert_int_equal(c->io->ops->allocate(c->io, fd, 0, 10), -EBADF);
    c->io->ops->close(c->io, fd);
    expect_text(c, "a", "text");
}

static void test_io__parts_are_gathered_and_scattered_in_order(void **state)
{
    const io_contract *c = *state;
    const kvarve_fd fd = open_new(c, "a");
    char first[] = "abc";
    char second[] = "defgh";
    char one[2];
    char two[6];
    const struct iovec from[] = {{first, 3}, {NULL, 0}, {second, 5}};
    const struct iovec to[] = {{one, 2}, {two, 6}};

    assert_int_equal(c->io->ops->write(c->io, fd, from, 3, 10), 8);
    assert_int_equal(stat_of(c, fd).size, 18);
    assert_int_equal(c->io->ops->read(c->io, fd, to, 2, 10), 8);
    assert_memory_equal(one, "ab", 2);
    assert_memory_equal(two, "cdefgh", 6);
    assert_int_equal(c->io->ops->read(c->io, fd, to, 1025, 0), -EINVAL);
    c->io->ops->close(c->io, fd);
}

static void test_io__a_read_ends_with_the_file_and_holes_are_zeros(void **state)
{
    const io_contract *c = *state;
    const kvarve_fd fd = open_new(c, "a");
    char bytes[8] = "????????";

    assert_int_equal(write_one(c, fd, bytes, 1, 9000), 1);
    assert_int_equal(read_one(c, fd, bytes, 8, 8996), 5);
    assert_memory_equal(bytes, "\0\0\0\0????", 8);
    assert_int_equal(read_one(c, fd, bytes, 8, 9001), 0);
    assert_int_equal(read_one(c, fd, bytes, 8, 1 << 20), 0);
    c->io->ops->close(c->io, fd);
}

static void test_io__truncate_forgets_what_it_cuts(void **state)
{
    const io_contract *c = *state;
    const kvarve_fd fd = open_new(c, "a");
    char bytes[6];

    assert_int_equal(io_write_all(c->io, fd, "abcdef", 6, 0), 0);
    assert_int_equal(c->io->ops->truncate(c->io, fd, 2), 0);
    assert_int_equal(c->io->ops->truncate(c->io, fd, 6), 0);
    assert_int_equal(io_read_all(c->io, fd, bytes, 6, 0), 0);
    assert_memory_equal(bytes, "ab\0\0\0\0", 6);
    c->io->ops->close(c->io, fd);
}

static void test_io__allocate_grows_and_keeps_bytes(void **state)
{
    const io_contract *c = *state;
    const kvarve_fd fd = open_new(c, "a");
    const uint64_t size = 16 * BLOCK;
    char bytes[8];

    assert_int_equal(io_write_all(c->io, fd, "abcd", 4, 0), 0);
    assert_int_equal(c->io->ops->allocate(c->io, fd, 0, size), 0);
    assert_int_equal(stat_of(c, fd).size, size);
    assert_true(stat_of(c, fd).allocated_bytes >= size);
    assert_int_equal(io_read_all(c->io, fd, bytes, 8, 0), 0);
    assert_memory_equal(bytes, "abcd\0\0\0\0", 8);
    assert_int_equal(c->io->ops->allocate(c->io, fd, 0, 0), -EINVAL);
    c->io->ops->close(c->io, fd);
}

static void test_io__punch_gives_space_back_and_keeps_the_size(void **state)
{
    const io_contract *c = *state;
    const kvarve_fd fd = open_new(c, "a");
    uint64_t before;

    memset(aligned, 'x', sizeof aligned);
    assert_int_equal(io_write_all(c->io, fd, aligned, sizeof aligned, 0), 0);
    assert_int_equal(c->io->ops->sync(c->io, fd), 0);
    before = stat_of(c, fd).allocated_bytes;
    assert_int_equal(c->io->ops->punch(c->io, fd, BLOCK - 100, BLOCK + 200), 0);
    assert_int_equal(stat_of(c, fd).size, sizeof aligned);
    assert_true(stat_of(c, fd).allocated_bytes <= before - BLOCK);
    assert_int_equal(io_read_all(c->io, fd, aligned, sizeof aligned, 0), 0);
    assert_int_equal(aligned[BLOCK - 101], 'x');
    for (size_t i = BLOCK - 100; i < 2 * BLOCK + 100; i++) {
        assert_int_equal(aligned[i], 0);
    }
    assert_int_equal(aligned[2 * BLOCK + 100], 'x');
    c->io->ops->close(c->io, fd);
}

static void test_io__rename_replaces_and_open_files_live_on(void **state)
{
    const io_contract *c = *state;
    char byte = 0;
    kvarve_fd old;

    put_text(c, "a", "new");
    put_text(c, "b", "old");
    assert_int_equal(c->io->ops->open(c->io, at(c, "b"), 0, 0, &old), 0);
    assert_int_equal(c->io->ops->rename(c->io, at(c, "a"), at(c, "b")), 0);
    expect_text(c, "b", "new");
    assert_int_equal(read_one(c, old, &byte, 1, 0), 1);
    assert_int_equal(byte, 'o');
    c->io->ops->close(c->io, old);
    assert_int_equal(c->io->ops->rename(c->io, at(c, "a"), at(c, "b")), -ENOENT);
    assert_int_equal(c->io->ops->rename(c->io, at(c, "b"), at(c, "b")), 0);
    assert_int_equal(c->io->ops->rename(c->io, at(c, "b"), at(c, "none/b")), -ENOENT);
    expect_text(c, "b", "new");
}

static void test_io__unlink_takes_the_name_only(void **state)
{
    const io_contract *c = *state;
    const kvarve_fd fd = open_new(c, "a");
    kvarve_file_stat stat;

    assert_int_equal(io_write_all(c->io, fd, "abcd", 4, 0), 0);
    assert_int_equal(c->io->ops->unlink(c->io, at(c, "a")), 0);
    assert_int_equal(c->io->ops->unlink(c->io, at(c, "a")), -ENOENT);
    assert_int_equal(c->io->ops->stat(c->io, at(c, "a"), &stat), -ENOENT);
    assert_int_equal(stat_of(c, fd).size, 4);
    assert_int_equal(c->io->ops->unlink(c->io, c->root), -EISDIR);
    c->io->ops->close(c->io, fd);
}

typedef struct seen_names {
    unsigned count;
    unsigned most;
    unsigned letters; /* bit i: a name that begins with 'a' + i */
} seen_names;

static bool see_name(void *context, const char *name)
{
    seen_names *seen = context;

    assert_true(strlen(name) == 1);
    seen->letters |= 1u << (name[0] - 'a');
    return ++seen->count < seen->most;
}

static void test_io__list_names_each_entry_once(void **state)
{
    const io_contract *c = *state;
    const kvarve_io_ops *ops = c->io->ops;
    seen_names seen = {.most = 100};
    seen_names few = {.most = 2};

    put_text(c, "a", "");
    put_text(c, "b", "");
    assert_int_equal(ops->make_directory(c->io, at(c, "c"), 0700), 0);
    put_text(c, "c/d", "");
    assert_int_equal(ops->list(c->io, c->root, see_name, &seen), 0);
    assert_int_equal(seen.count, 3);
    assert_int_equal(seen.letters, 7);
    assert_int_equal(ops->list(c->io, c->root, see_name, &few), 0);
    assert_int_equal(few.count, 2);
    assert_int_equal(ops->list(c->io, at(c, "e"), see_name, &seen), -ENOENT);
    assert_int_equal(ops->list(c->io, at(c, "a"), see_name, &seen), -ENOTDIR);
}

static void test_io__directories_are_made_once_in_directories(void **state)
{
    const io_contract *c = *state;
    const kvarve_io_ops *ops = c->io->ops;
    kvarve_file_stat stat;

    assert_int_equal(ops->make_directory(c->io, at(c, "d/e"), 0700), -ENOENT);
    assert_int_equal(ops->make_directory(c->io, at(c, "d"), 0700), 0);
    assert_int_equal(ops->make_directory(c->io, at(c, "d"), 0700), -EEXIST);
    assert_int_equal(ops->make_directory(c->io, at(c, "d/e"), 0700), 0);
    assert_int_equal(ops->stat(c->io, at(c, "d/e"), &stat), 0);
    assert_int_equal(stat.kind, KVARVE_FILE_DIRECTORY);
    assert_int_equal(ops->sync_directory(c->io, at(c, "d")), 0);
    assert_int_equal(ops->sync_directory(c->io, at(c, "f")), -ENOENT);
    put_text(c, "g", "");
    assert_int_equal(ops->sync_directory(c->io, at(c, "g")), -ENOTDIR);
}

static void test_io__stat_tells_files_apart(void **state)
{
    const io_contract *c = *state;
    const kvarve_fd fd = open_new(c, "a");
    kvarve_file_stat a;
    kvarve_file_stat b;

    put_text(c, "b", "four");
    assert_int_equal(c->io->ops->stat(c->io, at(c, "a"), &a), 0);
    assert_int_equal(c->io->ops->stat(c->io, at(c, "b"), &b), 0);
    assert_int_equal(a.kind, KVARVE_FILE_REGULAR);
    assert_int_equal(a.mode, 0640);
    assert_int_equal(a.size, 0);
    assert_int_equal(b.size, 4);
    assert_int_equal(a.inode, stat_of(c, fd).inode);
    assert_int_equal(a.device, b.device);
    assert_int_not_equal(a.inode, b.inode);
    assert_true(b.mtime_ns > 0);
    c->io->ops->close(c->io, fd);
}

static void test_io__space_and_lock_answer(void **state)
{
    const io_contract *c = *state;
    const kvarve_fd fd = open_new(c, "lock");
    kvarve_space space;
    int64_t owner = -1;

    assert_int_equal(c->io->ops->space(c->io, c->root, &space), 0);
    assert_true(space.free_bytes > 0 && space.free_bytes <= space.total_bytes);
    assert_int_equal(c->io->ops->space(c->io, at(c, "none"), &space), -ENOENT);
    assert_int_equal(c->io->ops->lock(c->io, fd, &owner), 0);
    assert_int_equal(c->io->ops->lock(c->io, fd, &owner), 0); /* it is ours already */
    assert_int_equal(owner, -1);
    c->io->ops->close(c->io, fd);
}

static void test_io__direct_needs_alignment(void **state)
{
    const io_contract *c = *state;
    kvarve_fd fd;
    const int rc = c->io->ops->open(c->io, at(c, "a"), CREATE | KVARVE_OPEN_DIRECT, 0600, &fd);

    if (rc == -EINVAL) {
        print_message("no direct I/O here: open says -EINVAL, callers go buffered\n");
        return;
    }
    assert_int_equal(rc, 0);
    memset(aligned, 'y', sizeof aligned);
    assert_int_equal(write_one(c, fd, aligned, 2 * BLOCK, 0), 2 * BLOCK);
    assert_int_equal(read_one(c, fd, aligned + 2 * BLOCK, BLOCK, BLOCK), BLOCK);
    assert_memory_equal(aligned + 2 * BLOCK, aligned, BLOCK);
    assert_int_equal(write_one(c, fd, aligned, BLOCK, 1), -EINVAL);
    assert_int_equal(write_one(c, fd, aligned, 100, 0), -EINVAL);
    assert_int_equal(write_one(c, fd, aligned + 1, BLOCK, 0), -EINVAL);
    assert_int_equal(read_one(c, fd, aligned + 1, BLOCK, 0), -EINVAL);
    assert_int_equal(stat_of(c, fd).size, 2 * BLOCK);
    c->io->ops->close(c->io, fd);
}

static void test_io__the_loops_move_all_or_say_where_it_ended(void **state)
{
    const io_contract *c = *state;
    const kvarve_fd fd = open_new(c, "a");
    static uint8_t bytes[3000];
    static struct iovec parts[3000];

    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(i * 7);
        parts[i] = (struct iovec){.iov_base = &bytes[i], .iov_len = 1};
    }
    assert_int_equal(io_write_parts(c->io, fd, parts, 3000, 5), 0);
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(io_read_all(c->io, fd, bytes, sizeof bytes, 5), 0);
    for (size_t i = 0; i < sizeof bytes; i++) {
        assert_int_equal(bytes[i], (uint8_t)(i * 7));
    }
    assert_int_equal(io_read_all(c->io, fd, bytes, sizeof bytes, 6), -ENODATA);
    c->io->ops->close(c->io, fd);
}

static void test_io__whole_files_are_read_and_replaced(void **state)
{
    const io_contract *c = *state;
    char *bytes = NULL;
    size_t size = 77;
    kvarve_error err;

    assert_int_equal(io_read_file(c->io, at(c, "a"), 10, &bytes, &size, &err), KVARVE_MISS);
    assert_int_equal(io_replace_file(c->io, c->root, at(c, "a"), "first", 5, 0600, &err),
                     KVARVE_OK);
    expect_text(c, "a", "first");
    assert_int_equal(io_replace_file(c->io, c->root, at(c, "a"), "2nd", 3, 0600, &err), KVARVE_OK);
    expect_text(c, "a", "2nd");
    assert_int_equal(io_read_file(c->io, at(c, "a"), 2, &bytes, &size, &err), KVARVE_INVALID);
    assert_int_equal(io_read_file(c->io, c->root, 10, &bytes, &size, &err), KVARVE_INVALID);
    assert_null(bytes);
    assert_int_equal(size, 77);
    assert_int_equal(io_replace_file(c->io, at(c, "x"), at(c, "x/y"), "z", 1, 0600, &err),
                     KVARVE_IO);
    assert_int_equal(err.os_errno, ENOENT);
}

#define CASE(name) {#name, name, setup, teardown, NULL}

int io_contract_run(int (*setup)(void **state), int (*teardown)(void **state))
{
    const struct CMUnitTest cases[] = {
        CASE(test_io__open_finds_creates_and_refuses),
        CASE(test_io__a_read_only_descriptor_does_not_write),
        CASE(test_io__parts_are_gathered_and_scattered_in_order),
        CASE(test_io__a_read_ends_with_the_file_and_holes_are_zeros),
        CASE(test_io__truncate_forgets_what_it_cuts),
        CASE(test_io__allocate_grows_and_keeps_bytes),
        CASE(test_io__punch_gives_space_back_and_keeps_the_size),
        CASE(test_io__rename_replaces_and_open_files_live_on),
        CASE(test_io__unlink_takes_the_name_only),
        CASE(test_io__list_names_each_entry_once),
        CASE(test_io__directories_are_made_once_in_directories),
        CASE(test_io__stat_tells_files_apart),
        CASE(test_io__space_and_lock_answer),
        CASE(test_io__direct_needs_alignment),
        CASE(test_io__the_loops_move_all_or_say_where_it_ended),
        CASE(test_io__whole_files_are_read_and_replaced),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
