/* clock.h - time, real or simulated. Threads: any. */
#ifndef KVARVE_ENV_CLOCK_H
#define KVARVE_ENV_CLOCK_H

#include <stdint.h>

typedef struct kvarve_clock kvarve_clock;

struct kvarve_clock {
    uint64_t (*monotonic_ns)(kvarve_clock *clock); /* never goes back; deadlines use this alone */
    int64_t (*wall_s)(kvarve_clock *clock);        /* seconds since 1970, may jump; for people */
};

#define KVARVE_NS_PER_MS UINT64_C(1000000)
#define KVARVE_NS_PER_S  UINT64_C(1000000000)
#define KVARVE_NEVER     UINT64_MAX /* a deadline that does not come */

#endif
