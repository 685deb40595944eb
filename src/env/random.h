/* random.h - bytes nobody can guess (getrandom), or seeded ones in the simulator. Threads: any. */
#ifndef KVARVE_ENV_RANDOM_H
#define KVARVE_ENV_RANDOM_H

#include <stddef.h>

typedef struct kvarve_random kvarve_random;

struct kvarve_random {
    int (*fill)(kvarve_random *random, void *bytes, size_t size); /* 0 or -errno */
};

#endif
