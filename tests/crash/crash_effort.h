/*
 * crash_effort.h - how many times the usual number of seeds a sweep runs: KVARVE_CRASH_EFFORT, 1 by
 * default.
 *
 * Threads: before others are made.
 */
#ifndef KVARVE_TESTS_CRASH_EFFORT_H
#define KVARVE_TESTS_CRASH_EFFORT_H

#include <stdint.h>
#include <stdlib.h>

static inline uint64_t crash_effort(void)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): these tests have one thread. */
    const char *text = getenv("KVARVE_CRASH_EFFORT");
    const unsigned long times = text == NULL ? 1 : strtoul(text, NULL, 10);

    return times == 0 ? 1 : times;
}

#endif
