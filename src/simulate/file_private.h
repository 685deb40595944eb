/*
 * file_private.h - one simulated file: what a process sees, what a power cut leaves, what is
 * between.
 *
 * Threads: one at a time. Ownership: whoever takes it from file_create ends it with file_destroy.
 */
#ifndef KVARVE_SIMULATE_FILE_PRIVATE_H
#define KVARVE_SIMULATE_FILE_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include "env/io.h"
#include "simulate/image_private.h"

/* Space on the disk, in blocks. */
typedef struct sim_space {
    uint64_t capacity;
    uint64_t used;
} sim_space;

/* A block whose seen and durable content may differ. Masks have one bit a sector. */
typedef struct sim_dirty {
    uint64_t index;
    uint32_t slot;   /* in the file's hash table */
    uint8_t written; /* since the last sync */
    uint8_t punched;
    uint8_t dropped; /* lost by a failed sync: seen, but not to become durable */
    bool is_allocated;
} sim_dirty;

typedef struct sim_file {
    uint64_t inode;
    kvarve_file_kind kind;
    uint32_t mode;
    int64_t changed_ns; /* mtime and ctime */
    char *path;         /* by which it was last known; the file's own */

    sim_image seen;
    sim_image durable;
    uint64_t seen_size;
    uint64_t durable_size;
    uint64_t low_size; /* the smallest seen_size since the last sync */
    bool size_is_dirty;

    sim_dirty *dirty;
    uint32_t dirty_count;
    uint32_t dirty_capacity; /* a power of two */
    uint32_t *slots;         /* 2 * dirty_capacity: number in `dirty` + 1, or 0 */

    uint32_t seen_references;    /* names seen, and descriptors */
    uint32_t durable_references; /* durable names */
    bool is_locked;              /* by the simulated process */
    int64_t other_owner;         /* pid of another process that holds the lock, or 0 */
} sim_file;

sim_file *file_create(sim_pool *pool, uint64_t inode, kvarve_file_kind kind, uint32_t mode);
void file_destroy(sim_pool *pool, sim_file *file);
void file_set_path(sim_pool *pool, sim_file *file, const char *path);

/* At most `size` bytes of the parts; how many. */
uint64_t file_read(const sim_file *file, const struct iovec *parts, uint64_t size, uint64_t offset);

/* The same for writing; less when the disk is full. */
uint64_t file_write(sim_pool *pool, sim_space *space, sim_file *file, const struct iovec *parts,
                    uint64_t size, uint64_t offset);
void file_truncate(sim_pool *pool, sim_space *space, sim_file *file, uint64_t size);
bool file_allocate(sim_pool *pool, sim_space *space, sim_file *file, uint64_t offset,
                   uint64_t size); /* false: no room, nothing done */
void file_punch(sim_pool *pool, sim_space *space, sim_file *file, uint64_t offset, uint64_t size);

void file_sync(sim_pool *pool, sim_file *file);
void file_drop(sim_file *file); /* a sync that failed */

/* The power went: decide what is unsynced by *random, and see what is durable from then on. */
void file_settle(sim_pool *pool, sim_file *file, uint64_t *random);

#endif
