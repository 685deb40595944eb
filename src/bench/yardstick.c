/*
 * yardstick.c - what the machine gives without kvarve: plain direct I/O and memcpy.
 *
 * Plain I/O is done with 1, 4 and 8 threads (their number is the queue depth); the best depth
 * counts.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/fail.h"
#include "bench/bench_private.h"
#include "env/env_posix.h"
#include "env/io_all.h"
#include "env/thread.h"

#define THREADS_MAX 8u

typedef struct disk_run {
    const disk_work *work;
    kvarve_fd fd;
    atomic_size_t next;
    atomic_int result;
} disk_run;

static void move_pieces(void *context)
{
    disk_run *run = context;
    const disk_work *work = run->work;
    size_t at;

    while ((at = atomic_fetch_add(&run->next, work->piece)) < work->size) {
        const size_t size = work->size - at < work->piece ? work->size - at : work->piece;
        char *bytes = (char *)work->buffer + at;
        const int rc = work->is_write ? io_write_all(io_posix(), run->fd, bytes, size, at)
                                      : io_read_all(io_posix(), run->fd, bytes, size, at);

        if (rc != 0) {
            atomic_store(&run->result, rc);
        }
    }
}

/* One pass with `threads` threads; ns. */
static double one_pass(const disk_work *work, kvarve_fd fd, uint32_t threads, int *out_rc)
{
    disk_run run = {.work = work, .fd = fd};
    kvarve_thread thread[THREADS_MAX];
    uint32_t started = 0;
    const uint64_t begin = bench_now_ns();

    while (started + 1 < threads && thread_start(&thread[started], move_pieces, &run) == 0) {
        started++;
    }
    move_pieces(&run);
    for (uint32_t i = 0; i < started; i++) {
        thread_join(&thread[i]);
    }
    if (work->is_write) {
        const int rc = io_posix()->ops->sync(io_posix(), fd);

        if (rc != 0) {
            atomic_store(&run.result, rc);
        }
    }
    *out_rc = atomic_load(&run.result);
    return (double)(bench_now_ns() - begin);
}

static int open_file(const disk_work *work, const char *path, kvarve_fd *out_fd)
{
    kvarve_io *io = io_posix();
    int rc;

    if (work->is_write && work->is_fresh) {
        (void)io->ops->unlink(io, path);
    }
    rc = io->ops->open(io, path, KVARVE_OPEN_CREATE | KVARVE_OPEN_DIRECT, 0600, out_fd);
    if (rc == -22 /* EINVAL: no direct I/O here */) {
        rc = io->ops->open(io, path, KVARVE_OPEN_CREATE, 0600, out_fd);
    }
    if (rc == 0) {
        rc = io->ops->allocate(io, *out_fd, 0, work->size);
        rc = rc == 0 ? io->ops->sync(io, *out_fd) : rc;
    }
    return rc;
}

static int yardstick_path(char *path, const char *directory)
{
    return io_join_path(path, KVARVE_PATH_MAX, directory, "kvarve-bench-yardstick");
}

void yardstick_remove(const char *directory)
{
    char path[KVARVE_PATH_MAX];

    if (yardstick_path(path, directory) == 0) {
        (void)io_posix()->ops->unlink(io_posix(), path);
    }
}

kvarve_status yardstick_disk(const disk_work *work, double out_ns[YARDSTICK_DEPTHS],
                             kvarve_error *err)
{
    static const uint32_t depths[YARDSTICK_DEPTHS] = {1, 4, 8};
    char path[KVARVE_PATH_MAX];

    if (yardstick_path(path, work->directory) != 0) {
        return kvarve_fail(err, KVARVE_INVALID, "bench: the path is too long");
    }
    for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
        kvarve_fd fd;
        int rc = open_file(work, path, &fd);

        if (rc != 0) {
            return kvarve_fail_io(err, rc, "make %s", path);
        }
        out_ns[i] = one_pass(work, fd, depths[i], &rc);
        io_posix()->ops->close(io_posix(), fd);
        if (rc != 0) {
            return kvarve_fail_io(err, rc, "plain direct I/O on %s", path);
        }
    }
    return KVARVE_OK;
}

typedef struct copy_part {
    void *to;
    const void *from;
    size_t size;
} copy_part;

static void copy_one(void *context)
{
    const copy_part *part = context;

    memcpy(part->to, part->from, part->size);
}

double yardstick_copy(void *to, const void *from, size_t size, uint32_t threads)
{
    kvarve_thread thread[THREADS_MAX];
    copy_part part[THREADS_MAX];
    const size_t share = size / threads;
    uint32_t started = 0;
    const uint64_t begin = bench_now_ns();

    for (uint32_t i = 0; i < threads; i++) {
        part[i] = (copy_part){.to = (char *)to + i * share,
                              .from = (const char *)from + i * share,
                              .size = i + 1 == threads ? size - i * share : share};
    }
    while (started + 1 < threads && thread_start(&thread[started], copy_one, &part[started]) == 0) {
        started++;
    }
    for (uint32_t i = started; i < threads; i++) {
        copy_one(&part[i]);
    }
    for (uint32_t i = 0; i < started; i++) {
        thread_join(&thread[i]);
    }
    return (double)(bench_now_ns() - begin);
}
