/*
 * io_all.h - loops over short and interrupted calls of an io.
 *
 * EINTR is repeated (at most 100 times in a row, then -EINTR), short counts are continued, a call
 * that makes no progress gives -EIO. A failed sync is never repeated.
 */
#ifndef KVARVE_ENV_IO_ALL_H
#define KVARVE_ENV_IO_ALL_H

#include "env/io.h"
#include "kvarve/error.h"

/* Read exactly `size` bytes. 0, -errno, or -ENODATA when the file ends first. */
int io_read_all(kvarve_io *io, kvarve_fd fd, void *bytes, size_t size, uint64_t offset);

/* Write exactly `size` bytes. 0 or -errno. */
int io_write_all(kvarve_io *io, kvarve_fd fd, const void *bytes, size_t size, uint64_t offset);

/*
 * The same over `count` parts of any number (split into system calls of at most 1024 parts).
 * `parts` is used up: its contents are undefined afterwards.
 */
int io_read_parts(kvarve_io *io, kvarve_fd fd, struct iovec *parts, size_t count, uint64_t offset);
int io_write_parts(kvarve_io *io, kvarve_fd fd, struct iovec *parts, size_t count, uint64_t offset);

/*
 * Read the whole file `path` of at most `size_max` bytes into memory of the caller's
 * (kvarve_release). One NUL, not counted, follows the bytes.
 * KVARVE_MISS when there is no such file, KVARVE_INVALID when it is larger or no regular file.
 */
KVARVE_NODISCARD kvarve_status io_read_file(kvarve_io *io, const char *path, size_t size_max,
                                            char **out_bytes, size_t *out_size, kvarve_error *err);

/*
 * Replace the file `path` by these bytes, whole or not at all, and durably: temporary name beside
 * it, sync, rename, sync of `directory`, which holds it.
 */
KVARVE_NODISCARD kvarve_status io_replace_file(kvarve_io *io, const char *directory,
                                               const char *path, const void *bytes, size_t size,
                                               uint32_t mode, kvarve_error *err);

/* Join `directory` and `name` into out[size]; -ENAMETOOLONG when it does not fit. */
int io_join_path(char *out, size_t size, const char *directory, const char *name);

#endif
