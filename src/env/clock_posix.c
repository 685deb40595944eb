/*
 * clock_posix.c - the machine's clocks. Stateless; any thread.
 */
#include "env/env_posix.h"

#include <time.h>

#include "base/assert.h"

static uint64_t posix_monotonic_ns(kvarve_clock *clock)
{
    struct timespec now;
    const int rc = clock_gettime(CLOCK_MONOTONIC, &now);

    (void)clock;
    KVARVE_ASSERT(rc == 0); /* fails only for a clock that Linux does not have */
    return (uint64_t)now.tv_sec * KVARVE_NS_PER_S + (uint64_t)now.tv_nsec;
}

static int64_t posix_wall_s(kvarve_clock *clock)
{
    struct timespec now;
    const int rc = clock_gettime(CLOCK_REALTIME, &now);

    (void)clock;
    KVARVE_ASSERT(rc == 0);
    return (int64_t)now.tv_sec;
}

kvarve_clock *clock_posix(void)
{
    static kvarve_clock posix_clock = {
        .monotonic_ns = posix_monotonic_ns,
        .wall_s = posix_wall_s,
    };

    return &posix_clock;
}
