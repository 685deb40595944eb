/*
 * test_io_simulated.c - the contract of io.h over the simulated disk.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "contract/io_contract.h"
#include "simulate/world.h"

static io_contract contract;
static sim_world *world;

static int setup(void **state)
{
    world = world_create(1);
    if (world == NULL) {
        return -1;
    }
    contract.io = world_env(world)->io;
    (void)snprintf(contract.root, sizeof contract.root, "/root");
    *state = &contract;
    return contract.io->ops->make_directory(contract.io, contract.root, 0700);
}

static int teardown(void **state)
{
    const uint32_t open_count = world_open_descriptors(world);

    (void)state;
    world_destroy(world);
    return open_count == 0 && kvarve_allocated_blocks() == 0 ? 0 : -1;
}

int main(void)
{
    return io_contract_run(setup, teardown);
}
