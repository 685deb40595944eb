/*
 * fake_world.c - see fake_world.h. Memory is reserved whole and is the system's on first touch, so
 * that large arenas cost only what a test writes.
 */
#include "unit/arena/fake_world.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"

static int fake_create(kvarve_memory *memory, memory_sharing sharing, const char *name, size_t size,
                       kvarve_mapping *out)
{
    fake_world *world = KVARVE_LIST_ITEM(memory, fake_world, memory);
    void *base;

    (void)sharing;
    (void)name;
    if (world->create_rc < 0) {
        return world->create_rc;
    }
    base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                0);
    if (base == MAP_FAILED) {
        return -ENOMEM;
    }
    world->mappings++;
    *out = (kvarve_mapping){.base = base, .size = size, .fd = -1};
    return 0;
}

static int fake_populate(kvarve_memory *memory, const kvarve_mapping *mapping, size_t offset,
                         size_t size)
{
    fake_world *world = KVARVE_LIST_ITEM(memory, fake_world, memory);

    KVARVE_ASSERT(offset % 4096 == 0 && size % 4096 == 0);
    KVARVE_ASSERT(offset + size <= mapping->size);
    KVARVE_ASSERT(offset == world->populated);
    if (world->populated + size > world->limit) {
        return -ENOMEM;
    }
    world->populated += size;
    world->last_offset = offset;
    return 0;
}

static void fake_destroy(kvarve_memory *memory, kvarve_mapping *mapping)
{
    fake_world *world = KVARVE_LIST_ITEM(memory, fake_world, memory);

    (void)munmap(mapping->base, mapping->size);
    *mapping = (kvarve_mapping){.fd = -1};
    world->mappings--;
}

static uint64_t fake_headroom(kvarve_memory *memory)
{
    const fake_world *world = KVARVE_LIST_ITEM(memory, fake_world, memory);

    return world->limit - world->populated;
}

static void fake_submit(kvarve_executor *executor, kvarve_job *job)
{
    fake_world *world = KVARVE_LIST_ITEM(executor, fake_world, executor);

    KVARVE_ASSERT(job->lane == KVARVE_LANE_COPY);
    kvarve_list_append(&world->queued, &job->link);
    world->pending++;
}

static bool fake_poll(kvarve_executor *executor)
{
    return fake_world_step(KVARVE_LIST_ITEM(executor, fake_world, executor));
}

static size_t fake_pending(kvarve_executor *executor)
{
    return KVARVE_LIST_ITEM(executor, fake_world, executor)->pending;
}

bool fake_world_step(fake_world *world)
{
    kvarve_link *link = kvarve_list_take_first(&world->queued);
    kvarve_job *job;

    if (link == NULL) {
        return false;
    }
    job = KVARVE_LIST_ITEM(link, kvarve_job, link);
    world->pending--;
    job->run(job);
    job->done(job);
    return true;
}

void fake_world_init(fake_world *world, uint64_t limit)
{
    memset(world, 0, sizeof *world);
    world->limit = limit;
    world->memory = (kvarve_memory){.create = fake_create,
                                    .populate = fake_populate,
                                    .destroy = fake_destroy,
                                    .headroom = fake_headroom};
    world->executor =
        (kvarve_executor){.submit = fake_submit, .poll = fake_poll, .pending = fake_pending};
    world->env.memory = &world->memory;
    world->env.executor = &world->executor;
    kvarve_list_init(&world->queued);
}
