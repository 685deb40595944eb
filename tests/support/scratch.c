/*
 * scratch.c - see scratch.h. Threads: one at a time; allocates nothing.
 */
#include "support/scratch.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"

void scratch_make(char out[SCRATCH_PATH_MAX])
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): tests change no environment. */
    const char *base = getenv("TMPDIR");
    const int length =
        snprintf(out, SCRATCH_PATH_MAX, "%s/kvarve-test-XXXXXX", base == NULL ? "/tmp" : base);
    const char *made;

    KVARVE_ASSERT(length > 0 && length < SCRATCH_PATH_MAX);
    made = mkdtemp(out);
    KVARVE_ASSERT(made != NULL);
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *place)
{
    (void)stat;
    (void)type;
    (void)place;
    return remove(path);
}

void scratch_remove(const char *path)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): tear-down has one thread. */
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
