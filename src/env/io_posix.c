/*
 * io_posix.c - the real files: one system call for each call, nothing more.
 *
 * Invariant: no policy. No call is repeated, shortened or replaced by another one here, so that
 * what the simulator can do is all that can happen. Exceptions: sync_directory and list need a
 * descriptor of their own, and a refused lock asks once who holds it.
 *
 * Threads: stateless; any thread.
 */
#include "env/env_posix.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define BLOCK_OF_STAT 512 /* st_blocks counts these, whatever the file system's blocks are */

static int result_of(int rc)
{
    return rc < 0 ? -errno : 0;
}

static bool is_too_long(const char *path)
{
    return strnlen(path, KVARVE_PATH_MAX) == KVARVE_PATH_MAX;
}

static int system_flags(uint32_t flags)
{
    int system = O_CLOEXEC;

    system |= (flags & KVARVE_OPEN_READ) != 0 ? O_RDONLY : O_RDWR;
    system |= (flags & KVARVE_OPEN_CREATE) != 0 ? O_CREAT : 0;
    system |= (flags & KVARVE_OPEN_EXCLUSIVE) != 0 ? O_EXCL : 0;
    system |= (flags & KVARVE_OPEN_DIRECT) != 0 ? O_DIRECT : 0;
    system |= (flags & KVARVE_OPEN_TRUNCATE) != 0 ? O_TRUNC : 0;
    return system;
}

static int posix_open(kvarve_io *io, const char *path, uint32_t flags, uint32_t mode,
                      kvarve_fd *out_fd)
{
    int fd;

    (void)io;
    if (is_too_long(path)) {
        return -ENAMETOOLONG;
    }
    fd = open(path, system_flags(flags) | O_CLOEXEC, (mode_t)mode);
    if (fd < 0) {
        return -errno;
    }
    *out_fd = fd;
    return 0;
}

static void posix_close(kvarve_io *io, kvarve_fd fd)
{
    (void)io;
    /* Linux has given the descriptor back whatever close answers, and what counts was synced
     * before. */
    (void)close(fd);
}

static ssize_t posix_read(kvarve_io *io, kvarve_fd fd, const struct iovec *parts, int count,
                          uint64_t offset)
{
    const ssize_t got = preadv(fd, parts, count, (off_t)offset);

    (void)io;
    return got < 0 ? -errno : got;
}

static ssize_t posix_write(kvarve_io *io, kvarve_fd fd, const struct iovec *parts, int count,
                           uint64_t offset)
{
    const ssize_t put = pwritev(fd, parts, count, (off_t)offset);

    (void)io;
    return put < 0 ? -errno : put;
}

static int posix_sync(kvarve_io *io, kvarve_fd fd)
{
    (void)io;
    return result_of(fdatasync(fd));
}

static int posix_truncate(kvarve_io *io, kvarve_fd fd, uint64_t size)
{
    (void)io;
    return result_of(ftruncate(fd, (off_t)size));
}

static int posix_allocate(kvarve_io *io, kvarve_fd fd, uint64_t offset, uint64_t size)
{
    (void)io;
    return result_of(fallocate(fd, 0, (off_t)offset, (off_t)size));
}

static int posix_punch(kvarve_io *io, kvarve_fd fd, uint64_t offset, uint64_t size)
{
    (void)io;
    return result_of(
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size));
}

static int posix_rename(kvarve_io *io, const char *from, const char *to)
{
    (void)io;
    if (is_too_long(from) || is_too_long(to)) {
        return -ENAMETOOLONG;
    }
    return result_of(rename(from, to));
}

static int posix_unlink(kvarve_io *io, const char *path)
{
    (void)io;
    return is_too_long(path) ? -ENAMETOOLONG : result_of(unlink(path));
}

static int posix_make_directory(kvarve_io *io, const char *path, uint32_t mode)
{
    (void)io;
    return is_too_long(path) ? -ENAMETOOLONG : result_of(mkdir(path, (mode_t)mode));
}

static int open_directory(const char *path)
{
    int fd;

    if (is_too_long(path)) {
        return -ENAMETOOLONG;
    }
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int posix_sync_directory(kvarve_io *io, const char *path)
{
    const int fd = open_directory(path);
    int rc;

    (void)io;
    if (fd < 0) {
        return fd;
    }
    rc = result_of(fsync(fd));
    (void)close(fd);
    return rc;
}

static kvarve_file_kind kind_of(mode_t mode)
{
    if (S_ISREG(mode)) {
        return KVARVE_FILE_REGULAR;
    }
    return S_ISDIR(mode) ? KVARVE_FILE_DIRECTORY : KVARVE_FILE_OTHER;
}

static int64_t nanoseconds_of(struct timespec time)
{
    return (int64_t)time.tv_sec * (int64_t)KVARVE_NS_PER_S + (int64_t)time.tv_nsec;
}

static void translate_stat(const struct stat *from, kvarve_file_stat *out)
{
    *out = (kvarve_file_stat){
        .size = (uint64_t)from->st_size,
        .allocated_bytes = (uint64_t)from->st_blocks * BLOCK_OF_STAT,
        .device = from->st_dev,
        .inode = from->st_ino,
        .mtime_ns = nanoseconds_of(from->st_mtim),
        .ctime_ns = nanoseconds_of(from->st_ctim),
        .mode = from->st_mode & 07777u,
        .user = from->st_uid,
        .kind = kind_of(from->st_mode),
    };
}

static int posix_stat(kvarve_io *io, const char *path, kvarve_file_stat *out)
{
    struct stat found;

    (void)io;
    if (is_too_long(path)) {
        return -ENAMETOOLONG;
    }
    if (stat(path, &found) < 0) {
        return -errno;
    }
    translate_stat(&found, out);
    return 0;
}

static int posix_stat_fd(kvarve_io *io, kvarve_fd fd, kvarve_file_stat *out)
{
    struct stat found;

    (void)io;
    if (fstat(fd, &found) < 0) {
        return -errno;
    }
    translate_stat(&found, out);
    return 0;
}

/* Visit the names of an open directory; 0 or -errno. */
static int visit_names(DIR *directory, kvarve_list_visit visit, void *context)
{
    for (;;) {
        const struct dirent *entry;

        errno = 0;
        entry = readdir(directory); /* NOLINT(concurrency-mt-unsafe): this stream is ours alone */
        if (entry == NULL) {
            return -errno;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        if (!visit(context, entry->d_name)) {
            return 0;
        }
    }
}

static int posix_list(kvarve_io *io, const char *path, kvarve_list_visit visit, void *context)
{
    const int fd = open_directory(path);
    DIR *directory;
    int rc;

    (void)io;
    if (fd < 0) {
        return fd;
    }
    directory = fdopendir(fd);
    if (directory == NULL) {
        rc = -errno;
        (void)close(fd);
        return rc;
    }
    rc = visit_names(directory, visit, context);
    (void)closedir(directory);
    return rc;
}

static int posix_space(kvarve_io *io, const char *path, kvarve_space *out)
{
    struct statvfs found;

    (void)io;
    if (is_too_long(path)) {
        return -ENAMETOOLONG;
    }
    if (statvfs(path, &found) < 0) {
        return -errno;
    }
    out->total_bytes = (uint64_t)found.f_blocks * found.f_frsize;
    out->free_bytes = (uint64_t)found.f_bavail * found.f_frsize;
    return 0;
}

/* The pid of who holds a lock on `fd`, 0 when it is gone by now or not told. */
static int64_t lock_owner(kvarve_fd fd)
{
    struct flock asked = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    if (fcntl(fd, F_GETLK, &asked) < 0 || asked.l_type == F_UNLCK || asked.l_pid < 0) {
        return 0;
    }
    return asked.l_pid;
}

static int posix_lock(kvarve_io *io, kvarve_fd fd, int64_t *out_owner)
{
    struct flock wanted = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int rc;

    (void)io;
    if (fcntl(fd, F_SETLK, &wanted) == 0) {
        return 0;
    }
    rc = -errno;
    if (rc == -EACCES || rc == -EAGAIN) { /* POSIX lets a system answer either */
        *out_owner = lock_owner(fd);
        return -EAGAIN;
    }
    return rc;
}

kvarve_io *io_posix(void)
{
    static const kvarve_io_ops posix_ops = {
        .open = posix_open,
        .close = posix_close,
        .read = posix_read,
        .write = posix_write,
        .sync = posix_sync,
        .truncate = posix_truncate,
        .allocate = posix_allocate,
        .punch = posix_punch,
        .rename = posix_rename,
        .unlink = posix_unlink,
        .make_directory = posix_make_directory,
        .sync_directory = posix_sync_directory,
        .stat = posix_stat,
        .stat_fd = posix_stat_fd,
        .list = posix_list,
        .space = posix_space,
        .lock = posix_lock,
    };
    static kvarve_io posix_io = {.ops = &posix_ops};

    return &posix_io;
}
