/*
 * env.h - the world that a store lives in, handed to it at open. The real one is env_posix.h, the
 * simulated one simulate/world.h; nothing else differs between a server and a test.
 */
#ifndef KVARVE_ENV_ENV_H
#define KVARVE_ENV_ENV_H

#include "env/clock.h"
#include "env/executor.h"
#include "env/io.h"
#include "env/memory.h"
#include "env/random.h"

/* Borrowed by whoever is given it; outlives them. */
typedef struct kvarve_env {
    kvarve_io *io;
    kvarve_clock *clock;
    kvarve_random *random;
    kvarve_memory *memory;
    kvarve_executor *executor;
} kvarve_env;

#endif
