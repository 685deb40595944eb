/*
 * crash_effort.h - how many times the usual number of seeds a sweep runs: KVARVE_CRASH_EFFORT, 1 by
 * default; and how many steps a sweep goes at once: 1, but 6 in a build with sanitizers, which runs
 * a sixth of the plans unless an effort is asked for.
 *
 * Threads: before others are made.
 */
#ifndef KVARVE_TESTS_CRASH_EFFORT_H
#define KVARVE_TESTS_CRASH_EFFORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static inline uint64_t crash_effort(void)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): these tests have one thread. */
    const char *text = getenv("KVARVE_CRASH_EFFORT");
    const unsigned long times = text == NULL ? 1 : strtoul(text, NULL, 10);

    return times == 0 ? 1 : times;
}

/* KVARVE_CRASH_FIRST: a sweep ends at the first plan that breaks a promise. */
static inline bool crash_ends_at_first(void)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): these tests have one thread. */
    return getenv("KVARVE_CRASH_FIRST") != NULL;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CRASH_IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CRASH_IS_SANITIZED 1
#endif
#endif

static inline uint64_t crash_stride(void)
{
#ifdef CRASH_IS_SANITIZED
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): these tests have one thread. */
    return getenv("KVARVE_CRASH_EFFORT") == NULL ? 6 : 1;
#else
    return 1;
#endif
}

#endif
