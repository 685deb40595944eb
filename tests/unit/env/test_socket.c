/*
 * test_socket.c - messages and descriptors between processes, who the peer is, and its memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "env/clock.h"
#include "env/env_posix.h"
#include "env/socket.h"
#include "support/scratch.h"

#define SOON_MS 10000

static char folder[SCRATCH_PATH_MAX];
static char path[SCRATCH_PATH_MAX + 16];

static int setup(void **state)
{
    (void)state;
    scratch_make(folder);
    (void)snprintf(path, sizeof path, "%s/socket", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    scratch_remove(folder);
    return 0;
}

static uint64_t soon(void)
{
    return clock_posix()->monotonic_ns(clock_posix()) + SOON_MS * KVARVE_NS_PER_MS;
}

static void test_socket__carries_whole_messages_and_a_descriptor(void **state)
{
    int ends[2];
    char got[16];
    int passed = 7;
    int sent;

    (void)state;
    assert_int_equal(socket_pair(ends), 0);
    assert_int_equal(socket_receive(ends[1], got, sizeof got, &passed), -EAGAIN);
    sent = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(socket_send(ends[0], "first", 5, -1), 0);
    assert_int_equal(socket_send(ends[0], "second", 6, sent), 0);
    assert_true(socket_wait(ends[1], false, soon()));
    assert_int_equal(socket_receive(ends[1], got, sizeof got, &passed), 5);
    assert_int_equal(passed, -1);
    assert_int_equal(socket_receive(ends[1], got, sizeof got, &passed), 6);
    assert_memory_equal(got, "second", 6);
    assert_true(passed >= 0 && passed != sent);
    assert_int_equal(fcntl(passed, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    socket_close(passed);
    /* Longer than the room: told, and its descriptor does not stay open. */
    assert_int_equal(socket_send(ends[0], "more than three", 15, sent), 0);
    assert_int_equal(socket_receive(ends[1], got, 3, &passed), -EMSGSIZE);
    assert_int_equal(passed, -1);
    socket_close(sent);
    socket_close(ends[0]);
    assert_int_equal(socket_receive(ends[1], got, sizeof got, &passed), 0);
    assert_int_equal(socket_send(ends[1], "x", 1, -1), -EPIPE);
    socket_close(ends[1]);
}

static void test_socket__a_full_queue_is_an_answer(void **state)
{
    int ends[2];
    int rc = 0;

    (void)state;
    assert_int_equal(socket_pair(ends), 0);
    for (int i = 0; i < 100000 && rc == 0; i++) {
        rc = socket_send(ends[0], "some bytes", 10, -1);
    }
    assert_int_equal(rc, -EAGAIN);
    assert_false(socket_wait(ends[0], true, 0));
    socket_close(ends[0]);
    socket_close(ends[1]);
}

static void test_socket__listens_where_nobody_does(void **state)
{
    struct stat stat;
    char other[sizeof path + 8];
    int listener = socket_listen(path, 0600);
    int fd;

    (void)state;
    assert_true(listener >= 0);
    assert_int_equal(lstat(path, &stat), 0);
    assert_int_equal(stat.st_mode & 0777, 0600);
    assert_int_equal(socket_accept(listener), -EAGAIN);
    assert_int_equal(socket_listen(path, 0600), -EADDRINUSE);
    socket_close(listener);
    assert_int_equal(socket_connect(path), -ECONNREFUSED);
    listener = socket_listen(path, 0660); /* what a dead process left is replaced */
    assert_true(listener >= 0);
    fd = socket_connect(path);
    assert_true(fd >= 0);
    socket_close(fd);
    socket_close(listener);
    (void)snprintf(other, sizeof other, "%s/plain", folder);
    fd = open(other, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    socket_close(fd);
    assert_int_equal(socket_listen(other, 0600), -EEXIST);
    assert_int_equal(socket_connect("nowhere"), -ENOENT);
    memset(other, 'x', sizeof other - 1);
    other[sizeof other - 1] = '\0';
    assert_int_equal(socket_listen(other, 0600), strlen(other) < 108 ? -EACCES : -ENAMETOOLONG);
}

static void test_socket__tells_who_the_peer_is_and_when_it_is_gone(void **state)
{
    const int listener = socket_listen(path, 0600);
    socket_peer peer;
    pid_t child;
    int fd;

    (void)state;
    assert_true(listener >= 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)socket_connect(path);
        (void)pause();
        _exit(0);
    }
    assert_true(socket_wait(listener, false, soon()));
    fd = socket_accept(listener);
    assert_true(fd >= 0);
    assert_int_equal(socket_identify(fd, &peer), 0);
    assert_int_equal(peer.pid, child);
    assert_int_equal(peer.uid, getuid());
    assert_int_equal(peer.started_at, process_started_at(child));
    assert_true(peer.started_at > 0);
    assert_false(socket_wait(peer.process_fd, false, 0));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_true(socket_wait(peer.process_fd, false, soon()));
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(process_started_at(child), 0);
    assert_int_equal(process_watch(child), -ESRCH);
    socket_close(peer.process_fd);
    socket_close(fd);
    socket_close(listener);
}

static void test_memory__of_somebody_else_must_be_sealed(void **state)
{
    kvarve_memory *memory = memory_posix();
    kvarve_mapping own;
    kvarve_mapping seen = {0};
    FILE *file = tmpfile();
    int unsealed;

    (void)state;
    assert_int_equal(memory->create(memory, MEMORY_SHARED, "theirs", 8192, &own), 0);
    assert_int_equal(memory_foreign_size(own.fd), 8192);
    assert_int_equal(memory_map_foreign(own.fd, 4096, false, &seen), -EINVAL);
    assert_int_equal(memory_map_foreign(own.fd, 8192, false, &seen), 0);
    ((char *)own.base)[5000] = 'x';
    assert_int_equal(((const char *)seen.base)[5000], 'x');
    memory_unmap_foreign(&seen);
    assert_null(seen.base);
    memory->destroy(memory, &own);
    assert_non_null(file);
    assert_true(memory_foreign_size(fileno(file)) < 0);
    (void)fclose(file);
    unsealed = memfd_create("unsealed", MFD_CLOEXEC);
    assert_int_equal(ftruncate(unsealed, 4096), 0);
    assert_int_equal(memory_map_foreign(unsealed, 4096, false, &seen), -EPERM);
    socket_close(unsealed);
    assert_int_equal(memory_map_foreign(-1, 4096, false, &seen), -EINVAL);
}

static void test_poller__tells_which(void **state)
{
    int ends[2];
    poller_event events[4];
    const int poller = poller_open();
    int passed;
    char got[4];

    (void)state;
    assert_true(poller >= 0);
    assert_int_equal(socket_pair(ends), 0);
    assert_int_equal(poller_set(poller, ends[0], &ends[0], false, false), 0);
    assert_int_equal(poller_wait(poller, events, 4, 0), 0);
    assert_int_equal(socket_send(ends[1], "x", 1, -1), 0);
    assert_int_equal(poller_wait(poller, events, 4, soon()), 1);
    assert_ptr_equal(events[0].context, &ends[0]);
    assert_true(events[0].can_read);
    assert_false(events[0].can_write);
    assert_int_equal(socket_receive(ends[0], got, sizeof got, &passed), 1);
    assert_int_equal(poller_set(poller, ends[0], &ends[0], true, true), 0);
    assert_int_equal(poller_wait(poller, events, 4, soon()), 1);
    assert_true(events[0].can_write);
    poller_remove(poller, ends[0]);
    assert_int_equal(poller_wait(poller, events, 4, 0), 0);
    socket_close(ends[0]);
    socket_close(ends[1]);
    poller_close(poller);
}

static void test_signals__come_as_a_descriptor(void **state)
{
    const int wanted[] = {SIGUSR1};
    const int fd = signals_open(wanted, 1);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(signals_take(fd), 0);
    assert_int_equal(raise(SIGUSR1), 0);
    assert_true(socket_wait(fd, false, soon()));
    assert_int_equal(signals_take(fd), SIGUSR1);
    assert_int_equal(signals_take(fd), 0);
    socket_close(fd);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        CASE(test_socket__carries_whole_messages_and_a_descriptor),
        CASE(test_socket__a_full_queue_is_an_answer),
        CASE(test_socket__listens_where_nobody_does),
        CASE(test_socket__tells_who_the_peer_is_and_when_it_is_gone),
        CASE(test_memory__of_somebody_else_must_be_sealed),
        CASE(test_poller__tells_which),
        CASE(test_signals__come_as_a_descriptor),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
