/* test_service.c - sockets from a service manager, words to it, users and groups. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "env/service.h"
#include "env/socket.h"
#include "support/scratch.h"

static char folder[SCRATCH_PATH_MAX];
static struct sockaddr_un address = {.sun_family = AF_UNIX};

static int begin(void **state)
{
    (void)state;
    scratch_make(folder);
    assert_true(strlen(folder) + 8 < sizeof address.sun_path);
    memcpy(address.sun_path, folder, strlen(folder));
    memcpy(address.sun_path + strlen(folder), "/socket", 8);
    return 0;
}

static int end(void **state)
{
    (void)state;
    scratch_remove(folder);
    return 0;
}

static void set_number(const char *name, long value)
{
    char text[32];

    (void)snprintf(text, sizeof text, "%ld", value);
    assert_int_equal(setenv(name, text, 1), 0); /* NOLINT(concurrency-mt-unsafe): one thread */
}

static int listen_as(int type)
{
    const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    (void)unlink(address.sun_path);
    assert_int_equal(bind(fd, (const struct sockaddr *)(const void *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

/* In a child that was given `given` as descriptor 3 by a manager that names `pid_offset` from its
 * pid: what service_listener says, negated if it is an error. */
static int asked_in_child(int given, int count, int pid_offset)
{
    int status = 0;
    const pid_t child = fork();

    if (child == 0) {
        set_number("LISTEN_PID", getpid() + pid_offset);
        set_number("LISTEN_FDS", count);
        if (given != 3 && dup2(given, 3) != 3) {
            _exit(99);
        }
        const int fd = service_listener();
        if (fd == 3 &&
            ((fcntl(3, F_GETFL) & O_NONBLOCK) == 0 || (fcntl(3, F_GETFD) & FD_CLOEXEC) == 0)) {
            _exit(98);
        }
        _exit(fd < 0 ? -fd : fd);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_service__a_socket_that_is_handed_over_is_taken(void **state)
{
    const int fd = listen_as(SOCK_SEQPACKET);

    (void)state;
    assert_int_equal(asked_in_child(fd, 1, 0), 3);
    assert_int_equal(asked_in_child(fd, 1, 1), ENOENT); /* meant for another process */
    assert_int_equal(asked_in_child(fd, 0, 0), ENOENT);
    assert_int_equal(asked_in_child(fd, 2, 0), EINVAL);
    (void)close(fd);
    assert_int_equal(service_listener(), -ENOENT);
}

static void test_service__another_kind_of_socket_is_refused(void **state)
{
    const int fd = listen_as(SOCK_STREAM);

    (void)state;
    assert_int_equal(asked_in_child(fd, 1, 0), EINVAL);
    (void)close(fd);
}

static void test_service__the_manager_is_told(void **state)
{
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    char text[64] = {0};

    (void)state;
    assert_int_equal(service_tell("READY=1"), 0); /* nobody wants to know */
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)(const void *)&address, sizeof address), 0);
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
    assert_int_equal(setenv("NOTIFY_SOCKET", address.sun_path, 1), 0);
    assert_int_equal(service_tell("READY=1"), 0);
    assert_int_equal(recv(fd, text, sizeof text - 1, MSG_DONTWAIT), 7);
    assert_string_equal(text, "READY=1");
    (void)close(fd);
    assert_int_equal(service_tell("READY=1"), -ECONNREFUSED);
    (void)unsetenv("NOTIFY_SOCKET"); /* NOLINT(concurrency-mt-unsafe): one thread */
}

static void test_service__the_journal_is_known_by_its_file(void **state)
{
    (void)state;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
    assert_int_equal(setenv("JOURNAL_STREAM", "1:1", 1), 0);
    assert_false(service_has_journal());
    (void)unsetenv("JOURNAL_STREAM"); /* NOLINT(concurrency-mt-unsafe): one thread */
    assert_false(service_has_journal());
}

static void test_users__names_and_numbers_are_found(void **state)
{
    uint32_t id = 77;

    (void)state;
    assert_int_equal(user_current(), geteuid());
    assert_int_equal(user_find("root", &id), 0);
    assert_int_equal(id, 0);
    assert_int_equal(user_find("4000000000", &id), 0);
    assert_int_equal(id, 4000000000u);
    assert_int_equal(user_find("4294967295", &(uint32_t){0}), -ENOENT); /* nobody at all */
    assert_int_equal(user_find("no such user", &id), -ENOENT);
    assert_int_equal(group_find("root", &id), 0);
    assert_int_equal(id, 0);
    assert_int_equal(group_find("no such group", &id), -ENOENT);
}

static void test_users__the_group_of_a_peer_is_known(void **state)
{
    int ends[2];

    (void)state;
    assert_int_equal(socket_pair(ends), 0);
    assert_true(socket_is_of_group(ends[0], getegid()));
    assert_false(socket_is_of_group(ends[0], 3999999999u));
    socket_close(ends[0]);
    socket_close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_service__a_socket_that_is_handed_over_is_taken, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_service__another_kind_of_socket_is_refused, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_service__the_manager_is_told, begin, end),
        cmocka_unit_test(test_service__the_journal_is_known_by_its_file),
        cmocka_unit_test(test_users__names_and_numbers_are_found),
        cmocka_unit_test(test_users__the_group_of_a_peer_is_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
