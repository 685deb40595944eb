/*
 * test_lock.c - the lock of a file between two real processes.
 *
 * Method  A child takes the lock and says so through a pipe; it ends when its other pipe closes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "env/env_posix.h"
#include "env/io_all.h"
#include "env/thread.h"
#include "support/scratch.h"

static int open_and_lock(const char *path, kvarve_fd *out_fd, int64_t *out_owner)
{
    kvarve_io *io = io_posix();
    const int rc = io->ops->open(io, path, KVARVE_OPEN_CREATE, 0600, out_fd);

    return rc < 0 ? rc : io->ops->lock(io, *out_fd, out_owner);
}

static void hold_lock(const char *path, int ready, int until)
{
    kvarve_fd fd;
    int64_t owner;
    char byte = open_and_lock(path, &fd, &owner) == 0 ? 'y' : 'n';

    if (write(ready, &byte, 1) == 1) {
        (void)!read(until, &byte, 1);
    }
    _exit(0);
}

static void test_lock__the_second_process_learns_who_holds_it(void **state)
{
    kvarve_io *io = io_posix();
    char root[SCRATCH_PATH_MAX];
    char path[KVARVE_PATH_MAX];
    int ready[2];
    int until[2];
    int64_t owner = -1;
    kvarve_fd fd;
    char byte = 0;
    pid_t child;

    (void)state;
    scratch_make(root);
    assert_int_equal(io_join_path(path, sizeof path, root, "lock"), 0);
    assert_int_equal(pipe2(ready, O_CLOEXEC) + pipe2(until, O_CLOEXEC), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)close(until[1]);
        hold_lock(path, ready[1], until[0]);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    assert_int_equal(open_and_lock(path, &fd, &owner), -EAGAIN);
    assert_int_equal(owner, child);
    (void)close(until[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(io->ops->lock(io, fd, &owner), 0); /* the dead hold no locks */
    io->ops->close(io, fd);
    (void)close(ready[0]);
    (void)close(ready[1]);
    (void)close(until[0]);
    scratch_remove(root);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_lock__the_second_process_learns_who_holds_it),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
