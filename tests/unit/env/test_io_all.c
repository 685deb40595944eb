/*
 * test_io_all.c - the loops of io_all.h over an io that follows a script.
 *
 * Method  A fake io answers each call with the next entry of a script: a byte count, or -errno.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "env/env_posix.h"
#include "env/io_all.h"
#include "support/scratch.h"

#define FILE_MAX 8192

typedef struct script_io {
    kvarve_io base;
    uint8_t file[FILE_MAX];
    const ssize_t *answers; /* of reads and writes; after the last one everything is moved */
    size_t answer_count;
    size_t calls;
    int most_parts;
    int interruptions; /* this many -EINTR first */
    int rename_rc;
    int sync_rc;
    char log[64]; /* one letter for each other call */
} script_io;

static script_io script;

static void note(char letter)
{
    const size_t length = strlen(script.log);

    if (length + 1 < sizeof script.log) {
        script.log[length] = letter;
    }
}

static ssize_t next_answer(const struct iovec *parts, int count)
{
    ssize_t total = 0;

    script.most_parts = count > script.most_parts ? count : script.most_parts;
    if (script.interruptions > 0) {
        script.interruptions--;
        return -EINTR;
    }
    for (int i = 0; i < count; i++) {
        total += (ssize_t)parts[i].iov_len;
    }
    if (script.calls < script.answer_count && script.answers[script.calls] < total) {
        total = script.answers[script.calls];
    }
    script.calls++;
    return total;
}

static ssize_t move(const struct iovec *parts, int count, uint64_t offset, bool is_read)
{
    const ssize_t total = next_answer(parts, count);
    size_t left = total < 0 ? 0 : (size_t)total;

    for (int i = 0; left > 0; i++) {
        const size_t step = parts[i].iov_len < left ? parts[i].iov_len : left;

        assert_true(offset + step <= FILE_MAX);
        if (is_read && step > 0) {
            memcpy(parts[i].iov_base, script.file + offset, step);
        } else if (step > 0) {
            memcpy(script.file + offset, parts[i].iov_base, step);
        }
        offset += step;
        left -= step;
    }
    return total;
}

static ssize_t script_read(kvarve_io *io, kvarve_fd fd, const struct iovec *parts, int count,
                           uint64_t offset)
{
    (void)io;
    (void)fd;
    return move(parts, count, offset, true);
}

static ssize_t script_write(kvarve_io *io, kvarve_fd fd, const struct iovec *parts, int count,
                            uint64_t offset)
{
    (void)io;
    (void)fd;
    return move(parts, count, offset, false);
}

static int script_open(kvarve_io *io, const char *path, uint32_t flags, uint32_t mode,
                       kvarve_fd *out_fd)
{
    (void)io;
    (void)path;
    (void)flags;
    (void)mode;
    note('o');
    *out_fd = 3;
    return 0;
}

static void script_close(kvarve_io *io, kvarve_fd fd)
{
    (void)io;
    (void)fd;
    note('c');
}

static int script_sync(kvarve_io *io, kvarve_fd fd)
{
    (void)io;
    (void)fd;
    note('s');
    return script.sync_rc;
}

static int script_rename(kvarve_io *io, const char *from, const char *to)
{
    (void)io;
    (void)from;
    (void)to;
    note('r');
    return script.rename_rc;
}

static int script_unlink(kvarve_io *io, const char *path)
{
    (void)io;
    assert_string_equal(path, "d/f.tmp");
    note('u');
    return -EACCES; /* never shown: the first error is */
}

static int script_sync_directory(kvarve_io *io, const char *path)
{
    (void)io;
    assert_string_equal(path, "d");
    note('d');
    return 0;
}

static const kvarve_io_ops script_ops = {
    .open = script_open,
    .close = script_close,
    .read = script_read,
    .write = script_write,
    .sync = script_sync,
    .rename = script_rename,
    .unlink = script_unlink,
    .sync_directory = script_sync_directory,
};

static void answer(const ssize_t *answers, size_t count)
{
    memset(&script, 0, sizeof script);
    script.base.ops = &script_ops;
    script.answers = answers;
    script.answer_count = count;
}

static void test_io_all__short_calls_are_continued(void **state)
{
    static const ssize_t answers[] = {1, 3, 2};
    char bytes[10] = "";

    (void)state;
    answer(answers, 3);
    assert_int_equal(io_write_all(&script.base, 1, "abcdefghi", 10, 4), 0);
    assert_int_equal(script.calls, 4);
    assert_memory_equal(script.file + 4, "abcdefghi", 10);
    script.calls = 0;
    assert_int_equal(io_read_all(&script.base, 1, bytes, 10, 4), 0);
    assert_string_equal(bytes, "abcdefghi");
}

static void test_io_all__interruptions_are_repeated_a_hundred_times(void **state)
{
    char byte;

    (void)state;
    answer(NULL, 0);
    script.interruptions = 100;
    assert_int_equal(io_read_all(&script.base, 1, &byte, 1, 0), 0);
    script.interruptions = 101;
    assert_int_equal(io_read_all(&script.base, 1, &byte, 1, 0), -EINTR);
}

static void test_io_all__no_progress_and_errors_end_the_loop(void **state)
{
    static const ssize_t stuck[] = {2, 0};
    static const ssize_t broken[] = {2, -ENOSPC};
    char bytes[4];

    (void)state;
    answer(stuck, 2);
    assert_int_equal(io_write_all(&script.base, 1, "abcd", 4, 0), -EIO);
    answer(stuck, 2);
    assert_int_equal(io_read_all(&script.base, 1, bytes, 4, 0), -ENODATA);
    answer(broken, 2);
    assert_int_equal(io_write_all(&script.base, 1, "abcd", 4, 0), -ENOSPC);
    assert_int_equal(script.calls, 2);
    answer(NULL, 0);
    assert_int_equal(io_write_all(&script.base, 1, NULL, 0, 0), 0);
    assert_int_equal(script.calls, 0);
}

static void test_io_all__parts_are_split_into_calls_of_1024(void **state)
{
    static const ssize_t answers[] = {1000, 1};
    static uint8_t bytes[3000];
    static struct iovec parts[3002];

    (void)state;
    answer(answers, 2);
    for (size_t i = 0; i < 3000; i++) {
        bytes[i] = (uint8_t)(i * 31);
        parts[i + 1] = (struct iovec){.iov_base = &bytes[i], .iov_len = 1};
    }
    assert_int_equal(io_write_parts(&script.base, 1, parts, 3002, 7), 0); /* first, last empty */
    assert_int_equal(script.most_parts, 1024);
    assert_memory_equal(script.file + 7, bytes, sizeof bytes);
}

static void test_io_all__replace_syncs_before_it_renames(void **state)
{
    kvarve_error err;

    (void)state;
    answer(NULL, 0);
    assert_int_equal(io_replace_file(&script.base, "d", "d/f", "x", 1, 0600, &err), KVARVE_OK);
    assert_string_equal(script.log, "oscrd");
}

static void test_io_all__replace_gives_up_at_the_first_error(void **state)
{
    static const ssize_t full[] = {-ENOSPC};
    kvarve_error err;

    (void)state;
    answer(NULL, 0);
    script.sync_rc = -EIO;
    assert_int_equal(io_replace_file(&script.base, "d", "d/f", "x", 1, 0600, &err), KVARVE_IO);
    assert_int_equal(err.os_errno, EIO);
    assert_string_equal(script.log, "oscu"); /* one sync, no rename, the temporary file goes */
    answer(full, 1);
    assert_int_equal(io_replace_file(&script.base, "d", "d/f", "x", 1, 0600, &err),
                     KVARVE_NO_SPACE);
    assert_string_equal(script.log, "ocu");
    answer(NULL, 0);
    script.rename_rc = -EXDEV;
    assert_int_equal(io_replace_file(&script.base, "d", "d/f", "x", 1, 0600, &err), KVARVE_IO);
    assert_int_equal(err.os_errno, EXDEV);
    assert_string_equal(script.log, "oscru");
}

static void test_io_all__paths_are_joined_or_refused(void **state)
{
    char out[8] = "?";

    (void)state;
    assert_int_equal(io_join_path(out, sizeof out, "abc", "def"), 0);
    assert_string_equal(out, "abc/def");
    assert_int_equal(io_join_path(out, sizeof out, "abc/", "def"), 0);
    assert_string_equal(out, "abc/def");
    assert_int_equal(io_join_path(out, sizeof out, "", "def"), 0);
    assert_string_equal(out, "def");
    assert_int_equal(io_join_path(out, sizeof out, "/", "d"), 0);
    assert_string_equal(out, "/d");
    assert_int_equal(io_join_path(out, sizeof out, "abc", "defg"), -ENAMETOOLONG);
}

static void test_io_all__a_pipe_is_no_file(void **state)
{
    char root[SCRATCH_PATH_MAX];
    char path[KVARVE_PATH_MAX];
    char *bytes = NULL;
    size_t size;
    kvarve_error err;

    (void)state;
    scratch_make(root);
    assert_int_equal(io_join_path(path, sizeof path, root, "pipe"), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    /* Opening it would wait for a writer. */
    assert_int_equal(io_read_file(io_posix(), path, 10, &bytes, &size, &err), KVARVE_INVALID);
    scratch_remove(root);
}

static int refuse(void *context, uint64_t number)
{
    (void)context;
    (void)number;
    return 0;
}

static void test_io_all__no_memory_for_a_file_is_said(void **state)
{
    char root[SCRATCH_PATH_MAX];
    char path[KVARVE_PATH_MAX];
    char *bytes = NULL;
    size_t size;
    kvarve_error err;

    (void)state;
    scratch_make(root);
    assert_int_equal(io_join_path(path, sizeof path, root, "f"), 0);
    assert_int_equal(io_replace_file(io_posix(), root, path, "x", 1, 0600, &err), KVARVE_OK);
    kvarve_allocate_set_hook(refuse, NULL);
    assert_int_equal(io_read_file(io_posix(), path, 10, &bytes, &size, &err), KVARVE_NO_MEMORY);
    kvarve_allocate_set_hook(NULL, NULL);
    assert_null(bytes);
    scratch_remove(root);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_io_all__short_calls_are_continued),
        cmocka_unit_test(test_io_all__interruptions_are_repeated_a_hundred_times),
        cmocka_unit_test(test_io_all__no_progress_and_errors_end_the_loop),
        cmocka_unit_test(test_io_all__parts_are_split_into_calls_of_1024),
        cmocka_unit_test(test_io_all__replace_syncs_before_it_renames),
        cmocka_unit_test(test_io_all__replace_gives_up_at_the_first_error),
        cmocka_unit_test(test_io_all__paths_are_joined_or_refused),
        cmocka_unit_test(test_io_all__a_pipe_is_no_file),
        cmocka_unit_test(test_io_all__no_memory_for_a_file_is_said),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
