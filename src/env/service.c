/*
 * service.c - see service.h.
 *
 * The manager's protocol is three variables of the environment; no library of its is needed.
 *
 * Invariants:
 * V1  A descriptor is taken only when it was meant for this process: LISTEN_PID is our pid.
 *
 * Threads: as service.h.
 */
#include "env/service.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define FIRST_PASSED 3 /* where the manager puts descriptors */
#define NAMES_BYTES  16384
#define GROUPS_MAX   1024

static const char *variable(const char *name)
{
    return getenv(name); /* NOLINT(concurrency-mt-unsafe): before other threads are started */
}

/* The whole text is a decimal number. */
static bool read_number(const char *text, uint64_t *out)
{
    uint64_t value = 0;
    const size_t digits = text == NULL ? 0 : strspn(text, "0123456789");

    if (digits == 0 || digits > 18 || text[digits] != '\0') {
        return false;
    }
    for (size_t i = 0; i < digits; i++) {
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    *out = value;
    return true;
}

/* --- the manager --- */

static bool has_option(int fd, int option, int wanted)
{
    int value = -1;
    socklen_t size = sizeof value;

    return getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 && value == wanted;
}

int service_listener(void)
{
    uint64_t pid = 0;
    uint64_t count = 0;
    const int fd = FIRST_PASSED;
    int flags;

    if (!read_number(variable("LISTEN_PID"), &pid) || pid != (uint64_t)getpid() ||
        !read_number(variable("LISTEN_FDS"), &count) || count == 0) {
        return -ENOENT; /* V1 */
    }
    if (count != 1 || !has_option(fd, SO_DOMAIN, AF_UNIX) ||
        !has_option(fd, SO_TYPE, SOCK_SEQPACKET) || !has_option(fd, SO_ACCEPTCONN, 1)) {
        return -EINVAL;
    }
    flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
        return -errno;
    }
    return fd;
}

bool service_has_journal(void)
{
    const char *journal = variable("JOURNAL_STREAM");
    char ours[64];
    struct stat stat;

    if (journal == NULL || fstat(STDERR_FILENO, &stat) < 0) {
        return false;
    }
    (void)snprintf(ours, sizeof ours, "%llu:%llu", (unsigned long long)stat.st_dev,
                   (unsigned long long)stat.st_ino);
    return strcmp(journal, ours) == 0;
}

int service_tell(const char *state)
{
    const char *path = variable("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t length = path == NULL ? 0 : strlen(path);
    ssize_t sent;
    int fd;

    if (length == 0) {
        return 0;
    }
    if (length >= sizeof address.sun_path) {
        return -ENAMETOOLONG;
    }
    memcpy(address.sun_path, path, length);
    if (path[0] == '@') {
        address.sun_path[0] = '\0'; /* a name that is no file */
    }
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -errno;
    }
    sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const void *)&address,
                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
    const int rc = sent < 0 ? -errno : 0;
    (void)close(fd);
    return rc;
}

/* --- users --- */

uint32_t user_current(void)
{
    return geteuid();
}

int user_find(const char *name, uint32_t *out_id)
{
    char bytes[NAMES_BYTES];
    struct passwd entry;
    struct passwd *found = NULL;
    uint64_t number = 0;

    if (read_number(name, &number)) {
        *out_id = (uint32_t)number;
        return number < UINT32_MAX ? 0 : -ENOENT;
    }
    const int rc = getpwnam_r(name, &entry, bytes, sizeof bytes, &found);
    if (found == NULL) {
        return rc > 0 ? -rc : -ENOENT;
    }
    *out_id = found->pw_uid;
    return 0;
}

int group_find(const char *name, uint32_t *out_id)
{
    char bytes[NAMES_BYTES];
    struct group entry;
    struct group *found = NULL;
    uint64_t number = 0;

    if (read_number(name, &number)) {
        *out_id = (uint32_t)number;
        return number < UINT32_MAX ? 0 : -ENOENT;
    }
    const int rc = getgrnam_r(name, &entry, bytes, sizeof bytes, &found);
    if (found == NULL) {
        return rc > 0 ? -rc : -ENOENT;
    }
    *out_id = found->gr_gid;
    return 0;
}

bool socket_is_of_group(int fd, uint32_t group)
{
    struct ucred credentials = {0};
    gid_t further[GROUPS_MAX];
    socklen_t size = sizeof credentials;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 &&
        credentials.gid == group) {
        return true;
    }
    size = sizeof further; /* more groups than that: -ERANGE, and none is counted */
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, further, &size) < 0) {
        return false;
    }
    for (size_t i = 0; i < size / sizeof further[0]; i++) {
        if (further[i] == group) {
            return true;
        }
    }
    return false;
}
