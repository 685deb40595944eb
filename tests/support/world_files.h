/*
 * world_files.h - short ways to use the files of a simulated host in tests.
 *
 * All but file_try_* assert on failure. Include after cmocka.h.
 */
#ifndef KVARVE_TESTS_WORLD_FILES_H
#define KVARVE_TESTS_WORLD_FILES_H

#include <string.h>

#include "env/io_all.h"
#include "simulate/world.h"

static inline kvarve_io *io_of(sim_world *world)
{
    return world_env(world)->io;
}

/* Open for reading and writing, made if it is not there. */
static inline kvarve_fd file_open(sim_world *world, const char *path)
{
    kvarve_io *io = io_of(world);
    kvarve_fd fd = -1;

    assert_int_equal(io->ops->open(io, path, KVARVE_OPEN_CREATE, 0600, &fd), 0);
    return fd;
}

static inline void file_close(sim_world *world, kvarve_fd fd)
{
    io_of(world)->ops->close(io_of(world), fd);
}

static inline int file_try_write(sim_world *world, kvarve_fd fd, const void *bytes, size_t size,
                                 uint64_t offset)
{
    return io_write_all(io_of(world), fd, bytes, size, offset);
}

static inline int file_try_sync(sim_world *world, kvarve_fd fd)
{
    return io_of(world)->ops->sync(io_of(world), fd);
}

/* `size` times `value` from `offset` on. */
static inline void file_fill(sim_world *world, kvarve_fd fd, char value, size_t size,
                             uint64_t offset)
{
    char bytes[4096];

    memset(bytes, value, sizeof bytes);
    while (size > 0) {
        const size_t step = size < sizeof bytes ? size : sizeof bytes;

        assert_int_equal(file_try_write(world, fd, bytes, step, offset), 0);
        size -= step;
        offset += step;
    }
}

/* A durable file of `size` times `value`, with its name. */
static inline void file_put(sim_world *world, const char *path, char value, size_t size)
{
    const kvarve_fd fd = file_open(world, path);

    file_fill(world, fd, value, size, 0);
    file_close(world, fd);
    world_flush(world);
}

static inline uint64_t file_size(sim_world *world, const char *path)
{
    uint64_t size = 0;

    assert_int_equal(world_size(world, path, &size), 0);
    return size;
}

static inline char file_byte(sim_world *world, const char *path, uint64_t offset)
{
    char byte = 0;

    assert_int_equal(world_read(world, path, offset, &byte, 1), 0);
    return byte;
}

#endif
