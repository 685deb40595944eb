/*
 * io_all.c - the loops of io_all.h over one call at a time.
 *
 * Invariants:
 * I1  Each turn of a loop either moves at least one byte or counts an interruption; both are
 *     bounded, so no io can keep a caller here for ever.
 * I2  The first error is the one reported; clean-up after it is silent.
 *
 * Threads: stateless; any thread.
 */
#include "env/io_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/fail.h"

#define INTERRUPTIONS_MAX 100
#define PARTS_PER_CALL    1024 /* IOV_MAX of Linux */
#define TEMPORARY_SUFFIX  ".tmp"

typedef ssize_t (*transfer_call)(kvarve_io *io, kvarve_fd fd, const struct iovec *parts, int count,
                                 uint64_t offset);

/* Parts still to do: [parts, parts + count). */
typedef struct remainder {
    struct iovec *parts;
    size_t count;
} remainder;

static void skip_empty_parts(remainder *rest)
{
    while (rest->count > 0 && rest->parts->iov_len == 0) {
        rest->parts++;
        rest->count--;
    }
}

static void skip_bytes(remainder *rest, size_t done)
{
    while (done > 0) {
        struct iovec *part = rest->parts;
        const size_t step = done < part->iov_len ? done : part->iov_len;

        KVARVE_ASSERT(rest->count > 0);
        part->iov_base = (char *)part->iov_base + step;
        part->iov_len -= step;
        done -= step;
        skip_empty_parts(rest);
    }
}

/* One transfer, repeated while interrupted. A byte count or -errno. */
static ssize_t transfer_once(kvarve_io *io, transfer_call call, kvarve_fd fd, const remainder *rest,
                             uint64_t offset)
{
    const int count = (int)(rest->count < PARTS_PER_CALL ? rest->count : PARTS_PER_CALL);
    ssize_t done = -EINTR;

    for (int i = 0; i <= INTERRUPTIONS_MAX && done == -EINTR; i++) {
        done = call(io, fd, rest->parts, count, offset);
    }
    return done;
}

/* `at_end` is the answer to a call that moved nothing. */
static int transfer_all(kvarve_io *io, transfer_call call, kvarve_fd fd, remainder rest,
                        uint64_t offset, int at_end)
{
    skip_empty_parts(&rest);
    while (rest.count > 0) {
        const ssize_t done = transfer_once(io, call, fd, &rest, offset);

        if (done <= 0) {
            return done < 0 ? (int)done : at_end;
        }
        skip_bytes(&rest, (size_t)done);
        offset += (uint64_t)done;
    }
    return 0;
}

int io_read_parts(kvarve_io *io, kvarve_fd fd, struct iovec *parts, size_t count, uint64_t offset)
{
    const remainder rest = {.parts = parts, .count = count};

    return transfer_all(io, io->ops->read, fd, rest, offset, -ENODATA);
}

int io_write_parts(kvarve_io *io, kvarve_fd fd, struct iovec *parts, size_t count, uint64_t offset)
{
    const remainder rest = {.parts = parts, .count = count};

    return transfer_all(io, io->ops->write, fd, rest, offset, -EIO);
}

int io_read_all(kvarve_io *io, kvarve_fd fd, void *bytes, size_t size, uint64_t offset)
{
    struct iovec part = {.iov_base = bytes, .iov_len = size};

    return io_read_parts(io, fd, &part, 1, offset);
}

int io_write_all(kvarve_io *io, kvarve_fd fd, const void *bytes, size_t size, uint64_t offset)
{
    /* iovec serves both directions and so is not const; write does not change what it points to. */
    union {
        const void *constant;
        void *plain;
    } source = {.constant = bytes};
    struct iovec part = {.iov_base = source.plain, .iov_len = size};

    return io_write_parts(io, fd, &part, 1, offset);
}

/* Read all `size` bytes of `fd` into new memory. */
static kvarve_status read_open_file(kvarve_io *io, kvarve_fd fd, const char *path, size_t size,
                                    char **out_bytes, kvarve_error *err)
{
    char *bytes = kvarve_allocate(size + 1); /* zeroed, so the NUL is there */
    int rc;

    if (bytes == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "memory for %zu bytes of %s", size, path);
    }
    rc = io_read_all(io, fd, bytes, size, 0);
    if (rc < 0) {
        kvarve_release(bytes);
        return kvarve_fail_io(err, rc, "read %s", path);
    }
    *out_bytes = bytes;
    return KVARVE_OK;
}

static kvarve_status check_file(const kvarve_file_stat *stat, const char *path, size_t size_max,
                                kvarve_error *err)
{
    if (stat->kind != KVARVE_FILE_REGULAR) {
        return kvarve_fail(err, KVARVE_INVALID, "%s is not a regular file", path);
    }
    if (stat->size > size_max || stat->size >= SIZE_MAX) {
        return kvarve_fail(err, KVARVE_INVALID, "%s is larger than %zu bytes", path, size_max);
    }
    return KVARVE_OK;
}

kvarve_status io_read_file(kvarve_io *io, const char *path, size_t size_max, char **out_bytes,
                           size_t *out_size, kvarve_error *err)
{
    kvarve_file_stat stat;
    kvarve_status status;
    kvarve_fd fd;
    int rc = io->ops->stat(io, path, &stat);

    if (rc == -ENOENT) {
        return KVARVE_MISS;
    }
    if (rc < 0) {
        return kvarve_fail_io(err, rc, "look at %s", path);
    }
    status = check_file(&stat, path, size_max, err); /* before open, which waits on a pipe */
    if (status != KVARVE_OK) {
        return status;
    }
    rc = io->ops->open(io, path, KVARVE_OPEN_READ, 0, &fd);
    if (rc < 0) {
        return rc == -ENOENT ? KVARVE_MISS : kvarve_fail_io(err, rc, "open %s", path);
    }
    rc = io->ops->stat_fd(io, fd, &stat); /* again: it may be another file by now */
    status = rc < 0 ? kvarve_fail_io(err, rc, "look at %s", path)
                    : check_file(&stat, path, size_max, err);
    if (status == KVARVE_OK) {
        status = read_open_file(io, fd, path, (size_t)stat.size, out_bytes, err);
    }
    io->ops->close(io, fd);
    if (status == KVARVE_OK) {
        *out_size = (size_t)stat.size;
    }
    return status;
}

/* Write and sync the new file; it is not yet under its name. */
static int write_temporary(kvarve_io *io, const char *path, const void *bytes, size_t size,
                           uint32_t mode)
{
    kvarve_fd fd;
    int rc = io->ops->open(io, path, KVARVE_OPEN_CREATE | KVARVE_OPEN_TRUNCATE, mode, &fd);

    if (rc < 0) {
        return rc;
    }
    rc = io_write_all(io, fd, bytes, size, 0);
    if (rc == 0) {
        rc = io->ops->sync(io, fd);
    }
    io->ops->close(io, fd);
    return rc;
}

kvarve_status io_replace_file(kvarve_io *io, const char *directory, const char *path,
                              const void *bytes, size_t size, uint32_t mode, kvarve_error *err)
{
    char temporary[KVARVE_PATH_MAX];
    const int length = snprintf(temporary, sizeof temporary, "%s" TEMPORARY_SUFFIX, path);
    int rc;

    if (length < 0 || (size_t)length >= sizeof temporary) {
        return kvarve_fail_io(err, -ENAMETOOLONG, "write %s", path);
    }
    rc = write_temporary(io, temporary, bytes, size, mode);
    if (rc == 0) {
        rc = io->ops->rename(io, temporary, path);
    }
    if (rc < 0) {
        (void)io->ops->unlink(io, temporary); /* I2 */
        return kvarve_fail_io(err, rc, "write %s", path);
    }
    rc = io->ops->sync_directory(io, directory);
    return rc < 0 ? kvarve_fail_io(err, rc, "sync the directory of %s", path) : KVARVE_OK;
}

int io_join_path(char *out, size_t size, const char *directory, const char *name)
{
    const size_t directory_size = strlen(directory);
    const size_t name_size = strlen(name);
    const bool has_slash = directory_size > 0 && directory[directory_size - 1] == '/';
    const size_t slash_size = directory_size == 0 || has_slash ? 0 : 1;

    if (directory_size + slash_size + name_size + 1 > size) {
        return -ENAMETOOLONG;
    }
    memcpy(out, directory, directory_size);
    memcpy(out + directory_size, "/", slash_size);
    memcpy(out + directory_size + slash_size, name, name_size + 1);
    return 0;
}
