/*
 * world.c - the simulated host as a whole: making it, its clock, random and memory, power,
 * snapshots.
 *
 * Invariant: everything that can differ between two runs comes from a seed, so a plan replays
 * exactly.
 *
 * Threads: one at a time. Ownership: the world owns its pool, in which its disk and its snapshots
 * live; mappings are the code under test's until a restart takes them away.
 */
#include "simulate/world.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "simulate/world_private.h"

#define PAGE_SIZE     4096
#define START_NS      UINT64_C(1000000000)
#define START_WALL_NS INT64_C(1767225600000000000) /* 2026-01-01 */

uint64_t world_next_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Clock and random */

static uint64_t sim_monotonic_ns(kvarve_clock *clock)
{
    return KVARVE_LIST_ITEM(clock, sim_world, clock)->monotonic_ns;
}

int64_t world_wall_ns(const sim_world *world)
{
    return (int64_t)world->monotonic_ns + world->wall_offset_ns;
}

static int64_t sim_wall_s(kvarve_clock *clock)
{
    return world_wall_ns(KVARVE_LIST_ITEM(clock, sim_world, clock)) / (int64_t)KVARVE_NS_PER_S;
}

void world_advance(sim_world *world, uint64_t nanoseconds)
{
    world->monotonic_ns += nanoseconds;
}

void world_set_wall(sim_world *world, int64_t seconds)
{
    world->wall_offset_ns = seconds * (int64_t)KVARVE_NS_PER_S - (int64_t)world->monotonic_ns;
}

static int sim_fill(kvarve_random *random, void *bytes, size_t size)
{
    sim_world *world = KVARVE_LIST_ITEM(random, sim_world, random);
    char *next = bytes;

    while (size > 0) {
        const uint64_t word = world_next_random(&world->random_state);
        const size_t step = size < sizeof word ? size : sizeof word;

        memcpy(next, &word, step);
        next += step;
        size -= step;
    }
    return 0;
}

/* Memory */

/* Stands in front of a mapping, in the same allocation. */
typedef struct sim_mapping {
    kvarve_link link;
    void *base;
} sim_mapping;

static int sim_create(kvarve_memory *memory, memory_sharing sharing, const char *name, size_t size,
                      kvarve_mapping *out)
{
    sim_world *world = KVARVE_LIST_ITEM(memory, sim_world, memory);
    sim_mapping *mapping;
    uintptr_t start;

    (void)sharing;
    (void)name;
    if (size == 0 || size % PAGE_SIZE != 0 || size > SIZE_MAX / 2) {
        return -EINVAL;
    }
    mapping = kvarve_allocate(sizeof *mapping + PAGE_SIZE + size);
    if (mapping == NULL) {
        return -ENOMEM;
    }
    start = (uintptr_t)(mapping + 1);
    mapping->base = (char *)(mapping + 1) + (PAGE_SIZE - start % PAGE_SIZE) % PAGE_SIZE;
    kvarve_list_append(&world->mappings, &mapping->link);
    world->mapping_count++;
    *out = (kvarve_mapping){.base = mapping->base, .size = size, .fd = -1};
    return 0;
}

static int sim_populate(kvarve_memory *memory, const kvarve_mapping *mapping, size_t offset,
                        size_t size)
{
    KVARVE_ASSERT(offset <= mapping->size && size <= mapping->size - offset);
    return size > memory->headroom(memory) ? -ENOMEM : 0;
}

static void sim_destroy(kvarve_memory *memory, kvarve_mapping *mapping)
{
    sim_world *world = KVARVE_LIST_ITEM(memory, sim_world, memory);
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &world->mappings) {
        sim_mapping *found = KVARVE_LIST_ITEM(link, sim_mapping, link);

        if (mapping->base != NULL && found->base == mapping->base) {
            kvarve_list_remove(link);
            kvarve_release(found);
            world->mapping_count--;
            break;
        }
    }
    *mapping = (kvarve_mapping){.fd = -1};
}

static uint64_t sim_headroom(kvarve_memory *memory)
{
    return KVARVE_LIST_ITEM(memory, sim_world, memory)->headroom;
}

static void free_mappings(sim_world *world)
{
    kvarve_link *link;

    while ((link = kvarve_list_take_first(&world->mappings)) != NULL) {
        kvarve_release(KVARVE_LIST_ITEM(link, sim_mapping, link));
    }
    world->mapping_count = 0;
}

void world_set_headroom(sim_world *world, uint64_t bytes)
{
    world->headroom = bytes;
}

uint32_t world_mappings(const sim_world *world)
{
    return world->mapping_count;
}

/* The host */

sim_world *world_create(uint64_t seed)
{
    sim_world *world = kvarve_allocate(sizeof *world);

    if (world == NULL) {
        return NULL;
    }
    pool_init(&world->pool);
    disk_init(world);
    jobs_init(world, seed);
    kvarve_list_init(&world->mappings);
    world->clock = (kvarve_clock){.monotonic_ns = sim_monotonic_ns, .wall_s = sim_wall_s};
    world->random = (kvarve_random){.fill = sim_fill};
    world->memory = (kvarve_memory){
        .create = sim_create,
        .populate = sim_populate,
        .destroy = sim_destroy,
        .headroom = sim_headroom,
    };
    world->env = (kvarve_env){
        .io = &world->io,
        .clock = &world->clock,
        .random = &world->random,
        .memory = &world->memory,
        .executor = &world->executor,
    };
    world->headroom = UINT64_MAX;
    world->random_state = ~seed;
    world->monotonic_ns = START_NS;
    world->wall_offset_ns = START_WALL_NS;
    world_set_plan(world, NULL);
    return world;
}

void world_destroy(sim_world *world)
{
    if (world == NULL) {
        return;
    }
    free_mappings(world);
    pool_deinit(&world->pool);
    kvarve_release(world);
}

void world_reserve(sim_world *world, size_t bytes)
{
    pool_reserve(&world->pool, bytes);
}

const kvarve_env *world_env(sim_world *world)
{
    return &world->env;
}

void world_set_plan(sim_world *world, const world_plan *plan)
{
    static const world_plan quiet = WORLD_PLAN_QUIET;
    const bool is_cut = world->report.is_cut;

    world->plan = plan == NULL ? quiet : *plan;
    world->report = (world_report){.is_cut = is_cut};
}

world_report world_observe(const sim_world *world)
{
    return world->report;
}

void world_cut(sim_world *world)
{
    world->report.is_cut = true;
}

static void end_process(sim_world *world)
{
    jobs_drop_all(world);
    free_mappings(world);
    disk_close_all(world);
}

void world_restart(sim_world *world, const world_plan *next)
{
    end_process(world);
    disk_settle(world);
    world->report.is_cut = false;
    world_set_plan(world, next);
}

void world_kill(sim_world *world)
{
    end_process(world);
}

void world_flush(sim_world *world)
{
    disk_flush(world);
}

void world_poll_all(sim_world *world)
{
    while (world->executor.poll(&world->executor)) {
    }
}

void world_set_capacity(sim_world *world, uint64_t bytes)
{
    world->disk.space.capacity = bytes / IMAGE_BLOCK;
}

uint64_t world_used_bytes(const sim_world *world)
{
    return world->disk.space.used * IMAGE_BLOCK;
}

void world_set_descriptors_max(sim_world *world, uint32_t count)
{
    world->disk.descriptors_max = count;
}

uint32_t world_open_descriptors(const sim_world *world)
{
    return world->disk.descriptor_count;
}

/* Snapshots */

typedef struct saved_file {
    char *path;
    size_t path_size;
    uint64_t inode;
    kvarve_file_kind kind;
    uint32_t mode;
    int64_t changed_ns;
    uint64_t size;
    sim_image image;
} saved_file;

struct world_snapshot {
    saved_file *files; /* parents before their children */
    size_t count;
    size_t capacity; /* of `files` */
    uint64_t disk_capacity;
    uint64_t next_inode;
    uint64_t next_change;
    uint64_t monotonic_ns;
    int64_t wall_offset_ns;
};

static void save_name(sim_world *world, const sim_name *name, saved_file *out)
{
    const sim_file *file = name->durable;

    *out = (saved_file){
        .path = pool_take(&world->pool, name->path_size),
        .path_size = name->path_size,
        .inode = file->inode,
        .kind = file->kind,
        .mode = file->mode,
        .changed_ns = file->changed_ns,
        .size = file->durable_size,
        .image = image_clone(&world->pool, &file->durable),
    };
    memcpy(out->path, name->path, name->path_size);
    image_cut(&world->pool, &out->image, out->size);
}

world_snapshot *world_take_snapshot(sim_world *world)
{
    world_snapshot *snapshot = pool_take_zeroed(&world->pool, sizeof *snapshot);
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &world->disk.names) {
        snapshot->capacity++;
    }
    if (snapshot->capacity > 0) {
        snapshot->files = pool_take(&world->pool, snapshot->capacity * sizeof *snapshot->files);
    }
    KVARVE_LIST_FOREACH (link, &world->disk.names) {
        const sim_name *name = KVARVE_LIST_ITEM(link, sim_name, all);

        if (name->durable != NULL) {
            save_name(world, name, &snapshot->files[snapshot->count++]);
        }
    }
    snapshot->disk_capacity = world->disk.space.capacity;
    snapshot->next_inode = world->disk.next_inode;
    snapshot->next_change = world->disk.next_change;
    snapshot->monotonic_ns = world->monotonic_ns;
    snapshot->wall_offset_ns = world->wall_offset_ns;
    return snapshot;
}

static void restore_file(sim_world *world, const saved_file *saved)
{
    sim_file *file = file_create(&world->pool, saved->inode, saved->kind, saved->mode);

    file->changed_ns = saved->changed_ns;
    file->seen = image_clone(&world->pool, &saved->image);
    file->durable = image_clone(&world->pool, &saved->image);
    file->seen_size = saved->size;
    file->durable_size = saved->size;
    file->low_size = saved->size;
    disk_set_seen(world, saved->path, file, 0);
    disk_settle_name(world, disk_find(world, saved->path));
}

void world_restore(sim_world *world, const world_snapshot *snapshot, uint64_t seed)
{
    end_process(world);
    disk_forget_all(world);
    for (size_t i = 0; i < snapshot->count; i++) {
        restore_file(world, &snapshot->files[i]);
    }
    world->disk.space.capacity = snapshot->disk_capacity;
    world->disk.next_inode = snapshot->next_inode;
    world->disk.next_change = snapshot->next_change;
    world->monotonic_ns = snapshot->monotonic_ns;
    world->wall_offset_ns = snapshot->wall_offset_ns;
    world->random_state = ~seed;
    jobs_init(world, seed);
    world->report.is_cut = false;
    world_set_plan(world, NULL);
}

void world_release_snapshot(sim_world *world, world_snapshot *snapshot)
{
    if (snapshot == NULL) {
        return;
    }
    for (size_t i = 0; i < snapshot->count; i++) {
        image_deinit(&world->pool, &snapshot->files[i].image);
        pool_give(&world->pool, snapshot->files[i].path, snapshot->files[i].path_size);
    }
    pool_give(&world->pool, snapshot->files, snapshot->capacity * sizeof *snapshot->files);
    pool_give(&world->pool, snapshot, sizeof *snapshot);
}
