/*
 * socket.c - see socket.h.
 *
 * Invariants:
 * S1  Nothing here blocks but socket_wait and poller_wait, and those end at their deadline.
 * S2  A descriptor that came with a message is either handed out or closed.
 *
 * Threads: stateless; any.
 */
#include "env/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/checked.h"
#include "env/clock.h"
#include "env/env_posix.h"

#define BACKLOG       128
#define PASSED_MAX    4 /* descriptors of one message that are looked at */
#define EVENTS_MAX    64
#define STAT_TEXT_MAX 1024
#define START_FIELD   22 /* of /proc/PID/stat: starttime */

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

static int fill_address(const char *path, struct sockaddr_un *out)
{
    const size_t length = strlen(path);

    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (length == 0 || length >= sizeof out->sun_path) {
        return -ENAMETOOLONG;
    }
    memcpy(out->sun_path, path, length + 1);
    return 0;
}

static int open_socket(void)
{
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    return fd < 0 ? -errno : fd;
}

static int connect_to(const struct sockaddr_un *address)
{
    const int fd = open_socket();

    if (fd < 0) {
        return fd;
    }
    if (connect(fd, (const struct sockaddr *)(const void *)address, sizeof *address) < 0) {
        const int rc = -errno;

        (void)close(fd);
        return rc;
    }
    return fd;
}

int socket_connect(const char *path)
{
    struct sockaddr_un address;
    const int rc = fill_address(path, &address);

    return rc < 0 ? rc : connect_to(&address);
}

/* Take a socket file away that nobody listens on. */
static int clear_path(const struct sockaddr_un *address)
{
    struct stat stat;
    int fd;

    if (lstat(address->sun_path, &stat) < 0) {
        return errno == ENOENT ? 0 : -errno;
    }
    if (!S_ISSOCK(stat.st_mode)) {
        return -EEXIST;
    }
    fd = connect_to(address);
    if (fd >= 0 || fd == -EAGAIN) {
        socket_close(fd);
        return -EADDRINUSE;
    }
    return fd == -ECONNREFUSED && unlink(address->sun_path) < 0 ? -errno : 0;
}

static int bind_with_mode(int fd, const struct sockaddr_un *address, uint32_t mode)
{
    /* Nobody can connect before listen, so the mode is in force from the first connection on. */
    if (bind(fd, (const struct sockaddr *)(const void *)address, sizeof *address) < 0) {
        return -errno;
    }
    if (chmod(address->sun_path, (mode_t)mode) < 0 || listen(fd, BACKLOG) < 0) {
        return -errno;
    }
    return 0;
}

int socket_listen(const char *path, uint32_t mode)
{
    struct sockaddr_un address;
    int rc = fill_address(path, &address);
    int fd;

    if (rc == 0) {
        rc = clear_path(&address);
    }
    if (rc < 0) {
        return rc;
    }
    fd = open_socket();
    if (fd < 0) {
        return fd;
    }
    rc = bind_with_mode(fd, &address, mode);
    if (rc < 0) {
        (void)close(fd);
        return rc;
    }
    return fd;
}

int socket_accept(int listener)
{
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    return fd < 0 ? -errno : fd;
}

int socket_pair(int out_ends[2])
{
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, out_ends) < 0
               ? -errno
               : 0;
}

void socket_close(int fd)
{
    if (fd >= 0) {
        (void)close(fd);
    }
}

void socket_stop_receiving(int fd)
{
    (void)shutdown(fd, SHUT_RD);
}

int socket_send(int fd, const void *bytes, size_t size, int passed)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec part = {.iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    memcpy(&part.iov_base, &bytes, sizeof bytes); /* sendmsg only reads there */
    if (passed >= 0) {
        struct cmsghdr *head;

        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        head = CMSG_FIRSTHDR(&message);
        *head = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof passed)};
        memcpy(CMSG_DATA(head), &passed, sizeof passed);
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* The first descriptor of one head, or -1; further ones are closed (S2). */
static int take_first(struct cmsghdr *head)
{
    const size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    int first = -1;

    for (size_t i = 0; i < count; i++) {
        int fd;

        memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
        if (first < 0) {
            first = fd;
        } else {
            (void)close(fd);
        }
    }
    return first;
}

/* A message has one head with descriptors at most: the kernel joins them. */
static int take_passed(struct msghdr *message)
{
    struct cmsghdr *head = CMSG_FIRSTHDR(message);

    while (head != NULL && head->cmsg_type != SCM_RIGHTS) {
        head = CMSG_NXTHDR(message, head);
    }
    return head == NULL ? -1 : take_first(head);
}

int64_t socket_receive(int fd, void *bytes, size_t room, int *out_passed)
{
    union {
        char bytes[CMSG_SPACE(PASSED_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {.iov_base = bytes, .iov_len = room};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    const ssize_t size = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

    *out_passed = -1;
    if (size < 0) {
        return -errno;
    }
    *out_passed = take_passed(&message);
    if ((message.msg_flags & MSG_TRUNC) != 0) {
        socket_close(*out_passed);
        *out_passed = -1;
        return -EMSGSIZE;
    }
    return size;
}

/* Milliseconds until then, for poll: rounded up, -1 without an end. */
static int milliseconds_until(uint64_t deadline_ns)
{
    kvarve_clock *clock = clock_posix();
    const uint64_t now = clock->monotonic_ns(clock);

    if (deadline_ns == KVARVE_NEVER) {
        return -1;
    }
    return deadline_ns <= now ? 0
                              : (int)kvarve_min_u64(
                                    kvarve_divide_up(deadline_ns - now, KVARVE_NS_PER_MS), INT_MAX);
}

bool socket_wait(int fd, bool wants_write, uint64_t deadline_ns)
{
    struct pollfd one = {.fd = fd, .events = wants_write ? POLLOUT : POLLIN};
    int rc;

    do {
        rc = poll(&one, 1, milliseconds_until(deadline_ns));
    } while (rc < 0 && errno == EINTR);
    return rc > 0;
}

/* --- processes --- */

uint64_t process_started_at(int64_t pid)
{
    char path[64];
    char text[STAT_TEXT_MAX];
    const char *at;
    ssize_t size;
    uint64_t started = 0;
    int fd;

    (void)snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    size = read(fd, text, sizeof text - 1);
    (void)close(fd);
    text[size < 0 ? 0 : size] = '\0';
    at = strrchr(text, ')'); /* the name before it may hold anything */
    for (int field = 3; at != NULL && field <= START_FIELD; field++) {
        at = strchr(at + 1, ' ');
    }
    for (; at != NULL && at[1] >= '0' && at[1] <= '9'; at++) {
        started = started * 10 + (uint64_t)(at[1] - '0');
    }
    return started;
}

int process_watch(int64_t pid)
{
    const long fd = syscall(SYS_pidfd_open, (pid_t)pid, 0); /* Debian 12 has no wrapper for it */

    return fd < 0 ? -errno : (int)fd;
}

/* The process that connected, not one that got its number later. */
static int watch_peer(int fd, int64_t pid)
{
    int watch = -1;
    socklen_t size = sizeof watch;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &watch, &size) == 0) {
        return watch;
    }
    return process_watch(pid);
}

int socket_identify(int fd, socket_peer *out)
{
    struct ucred credentials = {0};
    socklen_t size = sizeof credentials;
    int watch;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0) {
        return -errno;
    }
    watch = watch_peer(fd, credentials.pid);
    if (watch < 0) {
        return watch;
    }
    *out = (socket_peer){.pid = credentials.pid,
                         .uid = credentials.uid,
                         .gid = credentials.gid,
                         .process_fd = watch,
                         .started_at = process_started_at(credentials.pid)};
    return 0;
}

/* --- somebody else's memory --- */

int64_t memory_foreign_size(int fd)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    struct stat stat;

    if (seals < 0 || fstat(fd, &stat) < 0) {
        return -EINVAL;
    }
    if ((seals & F_SEAL_SHRINK) == 0 || (seals & F_SEAL_GROW) == 0) {
        return -EPERM;
    }
    return stat.st_size;
}

int memory_map_foreign(int fd, size_t size, bool is_writable, kvarve_mapping *out)
{
    const int64_t there = memory_foreign_size(fd);
    void *base;

    if (there < 0 || size == 0 || (uint64_t)there != size) {
        return there < 0 ? (int)there : -EINVAL;
    }
    base = mmap(NULL, size, is_writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        return -errno;
    }
    if (madvise(base, size, MADV_DONTFORK) < 0) {
        const int rc = -errno;

        (void)munmap(base, size);
        return rc;
    }
    *out = (kvarve_mapping){.base = base, .size = size, .fd = -1};
    return 0;
}

void memory_unmap_foreign(kvarve_mapping *mapping)
{
    if (mapping->base != NULL) {
        (void)munmap(mapping->base, mapping->size);
    }
    *mapping = (kvarve_mapping){.fd = -1};
}

/* --- many --- */

int poller_open(void)
{
    const int fd = epoll_create1(EPOLL_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

int poller_set(int poller, int fd, void *context, bool wants_write, bool is_known)
{
    struct epoll_event event = {.events = EPOLLIN | (wants_write ? (uint32_t)EPOLLOUT : 0),
                                .data.ptr = context};

    return epoll_ctl(poller, is_known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

void poller_remove(int poller, int fd)
{
    (void)epoll_ctl(poller, EPOLL_CTL_DEL, fd, NULL);
}

int poller_wait(int poller, poller_event *out, size_t room, uint64_t deadline_ns)
{
    struct epoll_event events[EVENTS_MAX];
    const size_t most = kvarve_min_u64(room, EVENTS_MAX);
    int count;

    KVARVE_ASSERT(room > 0);
    do {
        count = epoll_wait(poller, events, (int)most, milliseconds_until(deadline_ns));
    } while (count < 0 && errno == EINTR);
    for (int i = 0; i < count; i++) {
        out[i] = (poller_event){.context = events[i].data.ptr,
                                .can_read = (events[i].events & ~(uint32_t)EPOLLOUT) != 0,
                                .can_write = (events[i].events & EPOLLOUT) != 0};
    }
    return count < 0 ? -errno : count;
}

void poller_close(int poller)
{
    socket_close(poller);
}

int signals_open(const int *signals, size_t count)
{
    sigset_t set;
    int fd;

    (void)sigemptyset(&set);
    for (size_t i = 0; i < count; i++) {
        (void)sigaddset(&set, signals[i]);
    }
    fd = pthread_sigmask(SIG_BLOCK, &set, NULL) != 0
             ? -1
             : signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

int signals_take(int fd)
{
    struct signalfd_siginfo info;

    return read(fd, &info, sizeof info) == (ssize_t)sizeof info ? (int)info.ssi_signo : 0;
}
