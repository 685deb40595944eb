/*
 * world.h - a whole simulated host: disk with power cuts, clock, random, memory, executor.
 *
 * Use     world_create, world_set_plan, open the store on world_env, run the scenario,
 *         world_restart, open again, check. From a snapshot of a prepared store a plan costs what
 *         it touches, not what the store holds. world_reserve first, where a test counts
 *         allocations or makes them fail. tests/unit/simulate/test_sweep.c shows a whole sweep.
 * Steps   Each io call but close is a step. The steps that `fault_ops` and `fault_path` match are
 *         counted from 0; `fault_step` names the one that fails. Calls that change the disk are
 *         also counted as changes; `cut_change` names the one at which the power goes (a cut at
 *         any other call would be the same as one at the change after it). That call may still
 *         take effect, unsynced. From then on each io call returns -EIO, so the code under test
 *         unwinds by itself and its answers are to be ignored.
 * Cut     world_restart decides by the plan's seed which unsynced effects reached the disk:
 *           bytes  each unsynced written sector is old, new or garbage; for each file one of
 *                  four moods is drawn: any mixture, all new, all old, new with a few torn
 *           holes  each sector of an unsynced punch is old or zero
 *           sizes  the old one, the new one, or the smallest in between
 *           names  each unsynced create, unlink and make_directory happened or did not; a rename
 *                  happened for both of its names or for none
 *         Synced bytes, sizes and names always stay. sync makes bytes and size durable, never
 *         a name.
 * Faults  A failed sync drops what was unsynced: it stays visible until the restart, and no later
 *         sync brings it to the disk, unless it is written again. The same holds for
 *         sync_directory and names.
 * Paths   "a/b", "/a/b" and "/a//./b" are the same; ".." is refused. Only "/" exists at first. A
 *         directory cannot be renamed or removed.
 *
 * Threads    One thread at a time uses a world.
 * Ownership  world_create allocates, world_destroy frees all. A world without memory for its own
 *            state asserts: it is a test's tool.
 */
#ifndef KVARVE_SIMULATE_WORLD_H
#define KVARVE_SIMULATE_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "env/env.h"

#define WORLD_SECTOR ((size_t)512) /* bytes that the disk writes at once */
#define WORLD_NEVER  UINT64_MAX    /* a step or change that does not come */

typedef struct sim_world sim_world;

typedef enum world_fault {
    WORLD_FAULT_ERROR, /* return -fault_errno, nothing done; a sync drops what was unsynced */
    WORLD_FAULT_SHORT, /* a read or write moves half (direct: whole blocks of 4096, at least one) */
    WORLD_FAULT_TORN,  /* a write stores half, then returns -fault_errno */
    WORLD_FAULT_LOST_SYNC, /* sync and sync_directory return 0 and make nothing durable */
    WORLD_FAULT_BIT_FLIP,  /* one bit of what a read returns is wrong, once */
    WORLD_FAULT_SLOW,      /* the clock goes on by slow_ns, then the call is done */
} world_fault;

/* Bits for world_plan.fault_ops. */
#define WORLD_OP_OPEN           (1u << 0)
#define WORLD_OP_READ           (1u << 1)
#define WORLD_OP_WRITE          (1u << 2)
#define WORLD_OP_SYNC           (1u << 3)
#define WORLD_OP_TRUNCATE       (1u << 4)
#define WORLD_OP_ALLOCATE       (1u << 5)
#define WORLD_OP_PUNCH          (1u << 6)
#define WORLD_OP_RENAME         (1u << 7)
#define WORLD_OP_UNLINK         (1u << 8)
#define WORLD_OP_MAKE_DIRECTORY (1u << 9)
#define WORLD_OP_SYNC_DIRECTORY (1u << 10)
#define WORLD_OP_STAT           (1u << 11) /* also stat_fd */
#define WORLD_OP_LIST           (1u << 12)
#define WORLD_OP_SPACE          (1u << 13)
#define WORLD_OP_LOCK           (1u << 14)
#define WORLD_OP_ALL            0u /* no filter */

typedef struct world_plan {
    uint64_t fault_step;  /* 0-based among the matching steps, or WORLD_NEVER */
    uint64_t fault_count; /* how many matching steps in a row; 0 means 1 */
    uint32_t fault_ops;   /* WORLD_OP_..., or WORLD_OP_ALL */
    const char
        *fault_path; /* matches paths with this in them; NULL: every path. Borrowed while planned */
    world_fault fault;
    int fault_errno;     /* positive; 0 means EIO */
    uint64_t slow_ns;    /* for WORLD_FAULT_SLOW */
    uint64_t cut_change; /* 0-based change that ends the world, or WORLD_NEVER */
    uint64_t seed;       /* what survives the cut, which bit flips */
} world_plan;

/* No fault, no cut. */
#define WORLD_PLAN_QUIET {.fault_step = WORLD_NEVER, .cut_change = WORLD_NEVER}

/* What came of the plan so far. */
typedef struct world_report {
    uint64_t steps;     /* matching steps since the plan was set */
    uint64_t changes;   /* changing calls since then */
    bool fault_reached; /* the scenario came to fault_step: a sweep ends when it does not */
    bool fault_hit; /* the fault did something there: a sweep in which it never does proves nothing
                     */
    bool is_cut;    /* the power is off */
} world_report;

/* A new host with an empty, very large disk. `seed` drives random and the order of jobs. */
sim_world *world_create(uint64_t seed);

/* NULL is a no-op. */
void world_destroy(sim_world *world);

/* Take memory for `bytes` of simulated state now, so that later growth below it calls no allocator.
 */
void world_reserve(sim_world *world, size_t bytes);

/* Borrowed until world_destroy; the same across restarts. */
const kvarve_env *world_env(sim_world *world);

/* Start counting from 0 under this plan. NULL: quiet. */
void world_set_plan(sim_world *world, const world_plan *plan);

world_report world_observe(const sim_world *world);

/* The power goes now. */
void world_cut(sim_world *world);

/*
 * Cut the power if it is on, settle the disk by the seed of the plan in force, and boot under
 * `next` (NULL: quiet). The simulated process is gone: descriptors closed, locks released, memory
 * freed, jobs dropped without done. The clock goes on. May be called again and again.
 */
void world_restart(sim_world *world, const world_plan *next);

/* The process is killed, the host stays up: like world_restart, but everything seen stays as it is.
 */
void world_kill(sim_world *world);

/* All that is unsynced reaches the disk, as on a host left alone for a minute. */
void world_flush(sim_world *world);

/* The durable state of the disk, the capacity and the clock. Unsynced effects are not in it; see
 * world_flush. */
typedef struct world_snapshot world_snapshot;
world_snapshot *world_take_snapshot(sim_world *world);

/* Go back to it, as after world_restart, with `seed` as in world_create. The snapshot can be used
 * again. */
void world_restore(sim_world *world, const world_snapshot *snapshot, uint64_t seed);

/* Before world_destroy. NULL is a no-op. */
void world_release_snapshot(sim_world *world, world_snapshot *snapshot);

/* Clock: it stands still but for these and WORLD_FAULT_SLOW. */
void world_advance(sim_world *world, uint64_t nanoseconds); /* both clocks */
void world_set_wall(sim_world *world, int64_t seconds);     /* the wall clock jumps, also back */

/* Disk size: blocks of 4096 count when allocated. Over it, writes get short, then -ENOSPC. */
void world_set_capacity(sim_world *world, uint64_t bytes);
uint64_t world_used_bytes(const sim_world *world);

/* open answers -EMFILE from this many descriptors on; 1024 at first. */
void world_set_descriptors_max(sim_world *world, uint32_t count);
uint32_t world_open_descriptors(const sim_world *world); /* 0 after a clean close: nothing leaked */

/* populate answers -ENOMEM for more than this; unlimited at first. */
void world_set_headroom(sim_world *world, uint64_t bytes);
uint32_t world_mappings(const sim_world *world); /* memory created and not destroyed */

/* Locks: pretend that process `pid` holds the lock of `path` (0: that it let go). 0 or -ENOENT. */
int world_lock_as_other(sim_world *world, const char *path, int64_t pid);
bool world_holds_lock(sim_world *world, const char *path); /* our own process does */

/*
 * Executor. poll runs one job or more, drawn by the seed, then calls their done in that order.
 * INDEX jobs keep their order; all others may overtake each other. world_poll_all polls until
 * nothing is pending.
 */
void world_poll_all(sim_world *world);

/*
 * Damage and inspection: at once, seen and durable, no step counted, also while the power is off. 0
 * or -errno: -ENOENT no such file, -EINVAL outside of it.
 */
int world_flip(sim_world *world, const char *path, uint64_t offset,
               uint8_t mask); /* byte ^= mask */
int world_overwrite(sim_world *world, const char *path, uint64_t offset, const void *bytes,
                    size_t size); /* inside the file */
int world_truncate(sim_world *world, const char *path, uint64_t size);
int world_remove(sim_world *world, const char *path);
int world_put_file(sim_world *world, const char *path, const void *bytes, size_t size); /* whole */
int world_read(sim_world *world, const char *path, uint64_t offset, void *bytes, size_t size);
int world_size(sim_world *world, const char *path, uint64_t *out_size);
bool world_exists(sim_world *world, const char *path);

/* Each regular file, in order of creation, until visit returns false. Paths have no slash in front.
 */
typedef bool (*world_visit)(void *context, const char *path, uint64_t size);
void world_list_files(sim_world *world, world_visit visit, void *context);

/* Copy the folder `from` with all below it to `to`, which must not exist: same bytes, new inodes.
 */
int world_copy_folder(sim_world *world, const char *from, const char *to);

/* splitmix64: small, seeded, the same everywhere; for tests that draw their own scenarios. */
uint64_t world_next_random(uint64_t *state);

#endif
