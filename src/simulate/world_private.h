/*
 * world_private.h - the state behind world.h, shared by the files of this folder.
 *
 * Threads: one at a time. Everything is owned by the world and lives in its pool.
 */
#ifndef KVARVE_SIMULATE_WORLD_PRIVATE_H
#define KVARVE_SIMULATE_WORLD_PRIVATE_H

#include "base/list.h"
#include "simulate/file_private.h"
#include "simulate/pool_private.h"
#include "simulate/world.h"

#define NAME_BUCKETS 1024

/* A path that somebody uses or that a power cut may bring back. */
typedef struct sim_name {
    kvarve_link all; /* in order of creation: a directory stands before what is in it */
    kvarve_link dirty;
    struct sim_name *next; /* in its bucket */
    char *path;            /* canonical */
    size_t path_size;      /* NUL included */
    size_t parent_length;
    sim_file *seen;    /* NULL: not there */
    sim_file *durable; /* NULL: not there after a cut */
    uint64_t change;   /* names of one rename have the same */
    bool is_dropped;   /* by a failed sync_directory */
} sim_name;

typedef struct sim_descriptor {
    sim_file *file; /* NULL: free */
    uint32_t flags;
} sim_descriptor;

typedef struct sim_disk {
    sim_space space;
    sim_file *root;
    kvarve_list names;
    kvarve_list dirty_names;
    sim_name *buckets[NAME_BUCKETS];
    sim_descriptor *descriptors;
    uint32_t descriptor_capacity;
    uint32_t descriptor_count; /* in use */
    uint32_t descriptors_max;
    uint64_t next_inode;
    uint64_t next_change;
} sim_disk;

typedef struct sim_jobs {
    kvarve_list queued;
    kvarve_list finished;
    size_t queued_count;
    size_t pending;
    uint64_t random;
} sim_jobs;

struct sim_world {
    kvarve_io io;
    kvarve_clock clock;
    kvarve_random random;
    kvarve_memory memory;
    kvarve_executor executor;
    kvarve_env env;

    sim_pool pool;
    sim_disk disk;
    sim_jobs jobs;
    kvarve_list mappings;
    uint32_t mapping_count;
    uint64_t headroom;
    uint64_t random_state;
    uint64_t monotonic_ns;
    int64_t wall_offset_ns; /* wall - monotonic */

    world_plan plan;
    world_report report;
};

/* disk.c */
void disk_init(sim_world *world);
void disk_close_all(sim_world *world); /* descriptors and locks of a process that ended */

/* names.c */
void disk_settle(sim_world *world);     /* after a cut, by world->plan.seed */
void disk_flush(sim_world *world);      /* everything seen becomes durable */
void disk_forget_all(sim_world *world); /* no names and no files */

/* Settle the unsynced names of a directory, or drop them after a failed sync. */
void disk_end_dirty_names(sim_world *world, const char *directory, bool is_dropped);

/* A descriptor begins or ends to refer to a file; the last reference frees it. */
void disk_acquire(sim_world *world, sim_file *file);
void disk_release(sim_world *world, sim_file *file);

/* 0 when `canonical` could be made: its parent is a directory. -ENOENT, -ENOTDIR. */
int disk_check_parent(sim_world *world, const char *canonical);

/* Whether a name is directly in the directory of this path, `length` bytes long. */
bool disk_is_in(const sim_name *name, const char *directory, size_t length);
void disk_touch(const sim_world *world, sim_file *file); /* it changed now */

/* The canonical form of `path` into out[KVARVE_PATH_MAX]; "" is the root. 0, -ENAMETOOLONG,
 * -EINVAL. */
int disk_canonical_path(const char *path, char *out);
sim_name *disk_find(sim_world *world, const char *canonical); /* seen or durable, or NULL */
sim_file *disk_file(sim_world *world, const char *canonical); /* what is seen there, or NULL */

/* Let `canonical` name `file` (NULL: nothing), seen and not yet durable. */
void disk_set_seen(sim_world *world, const char *canonical, sim_file *file, uint64_t change);

/* A new file of that name, seen and not yet durable; NULL when its parent is no directory. */
sim_file *disk_make_file(sim_world *world, const char *canonical, kvarve_file_kind kind,
                         uint32_t mode);

/* Let what is seen under this name be durable, and forget the name when it is nothing. */
void disk_settle_name(sim_world *world, sim_name *name);

/* jobs.c */
void jobs_init(sim_world *world, uint64_t seed);
void jobs_drop_all(sim_world *world);

/* world.c */
int64_t world_wall_ns(const sim_world *world);

#endif
