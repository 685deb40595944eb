/*
 * fake_world.h - just enough of an env for an arena: ordinary memory with a limit, and an executor
 * that runs a job when it is told to.
 */
#ifndef KVARVE_TESTS_FAKE_WORLD_H
#define KVARVE_TESTS_FAKE_WORLD_H

#include "env/env.h"

typedef struct fake_world {
    kvarve_env env;
    kvarve_memory memory;
    kvarve_executor executor;
    uint64_t limit;     /* bytes that may be populated in all */
    uint64_t populated; /* so far */
    uint64_t last_offset;
    int create_rc; /* what create answers */
    int mappings;  /* made and not destroyed */
    kvarve_list queued;
    size_t pending;
} fake_world;

/* All of `limit` bytes may be populated. */
void fake_world_init(fake_world *world, uint64_t limit);

/* Run the first job submitted and its done; false when there is none. */
bool fake_world_step(fake_world *world);

#endif
