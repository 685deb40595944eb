/*
 * io.h - the boundary to files. Nothing outside src/env makes a file system call.
 *
 * Calls are shaped like system calls and one to one with them: 0 or a byte count on
 * success, -errno on failure. They may be short and are never retried here: io_posix.c
 * is trivially right, simulate/disk.c can fail each of them. io_all.h has the loops.
 *
 * Threads     All calls may be used from any thread, also on one descriptor.
 * Durability  write is durable after sync of its descriptor; a name made by open(CREATE), moved by
 *             rename, or removed by unlink is durable after sync_directory of its directory. A
 *             failed sync means that the data is lost: never sync again and hope.
 * Alignment   A descriptor opened with KVARVE_OPEN_DIRECT needs memory, offset and size in
 *             multiples of KVARVE_IO_ALIGNMENT.
 */
#ifndef KVARVE_ENV_IO_H
#define KVARVE_ENV_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#define KVARVE_IO_ALIGNMENT 4096
/* Bytes, NUL included; longer paths are refused with -ENAMETOOLONG. */
#define KVARVE_PATH_MAX 1024

typedef struct kvarve_io kvarve_io;
typedef int kvarve_fd;

/* Flags of open. Every descriptor is close-on-exec. */
#define KVARVE_OPEN_READ      1u /* read only; the default is read and write */
#define KVARVE_OPEN_CREATE    2u /* create with `mode` if absent */
#define KVARVE_OPEN_EXCLUSIVE 4u /* with CREATE: -EEXIST if present */
#define KVARVE_OPEN_DIRECT    8u /* bypass the page cache; -EINVAL where that is not to be had */
#define KVARVE_OPEN_TRUNCATE  16u

typedef enum kvarve_file_kind {
    KVARVE_FILE_REGULAR,
    KVARVE_FILE_DIRECTORY,
    KVARVE_FILE_OTHER,
} kvarve_file_kind;

typedef struct kvarve_file_stat {
    uint64_t size;            /* bytes */
    uint64_t allocated_bytes; /* st_blocks * 512 */
    uint64_t device;
    uint64_t inode;
    int64_t mtime_ns;
    int64_t ctime_ns;
    uint32_t mode; /* permission bits */
    uint32_t user; /* owner */
    kvarve_file_kind kind;
} kvarve_file_stat;

typedef struct kvarve_space {
    uint64_t total_bytes;
    uint64_t free_bytes; /* for unprivileged users */
} kvarve_space;

/* Called once a name, without "." and ".."; false ends the listing. `name` is borrowed for the
 * call. */
typedef bool (*kvarve_list_visit)(void *context, const char *name);

typedef struct kvarve_io_ops {
    int (*open)(kvarve_io *io, const char *path, uint32_t flags, uint32_t mode, kvarve_fd *out_fd);
    void (*close)(kvarve_io *io, kvarve_fd fd);
    /* preadv and pwritev: count 1 .. 1024 */
    ssize_t (*read)(kvarve_io *io, kvarve_fd fd, const struct iovec *parts, int count,
                    uint64_t offset);
    ssize_t (*write)(kvarve_io *io, kvarve_fd fd, const struct iovec *parts, int count,
                     uint64_t offset);
    int (*sync)(kvarve_io *io, kvarve_fd fd); /* fdatasync */
    int (*truncate)(kvarve_io *io, kvarve_fd fd, uint64_t size);
    int (*allocate)(kvarve_io *io, kvarve_fd fd, uint64_t offset,
                    uint64_t size); /* fallocate: zeroes, grows */
    int (*punch)(kvarve_io *io, kvarve_fd fd, uint64_t offset, uint64_t size); /* hole, size kept */
    int (*rename)(kvarve_io *io, const char *from, const char *to);            /* replaces `to` */
    int (*unlink)(kvarve_io *io, const char *path);
    int (*make_directory)(kvarve_io *io, const char *path, uint32_t mode);
    int (*sync_directory)(kvarve_io *io, const char *path);
    int (*stat)(kvarve_io *io, const char *path,
                kvarve_file_stat *out); /* follows links; -ENOENT */
    int (*stat_fd)(kvarve_io *io, kvarve_fd fd, kvarve_file_stat *out);
    int (*list)(kvarve_io *io, const char *path, kvarve_list_visit visit, void *context);
    int (*space)(kvarve_io *io, const char *path, kvarve_space *out);
    /*
     * POSIX record lock on the whole file, for writing, not waiting. -EAGAIN when another process
     * holds it; then *out_owner is its pid, or 0 when unknown. Released when the process closes ANY
     * descriptor of that file, so the lock file is opened once and nothing else opens it.
     */
    int (*lock)(kvarve_io *io, kvarve_fd fd, int64_t *out_owner);
} kvarve_io_ops;

/* Implementations put a kvarve_io first in their own struct. */
struct kvarve_io {
    const kvarve_io_ops *ops;
};

#endif
