/* scratch.h - a temporary directory of a test's own, which leaves nothing behind. */
#ifndef KVARVE_TESTS_SCRATCH_H
#define KVARVE_TESTS_SCRATCH_H

#define SCRATCH_PATH_MAX 256

/* Make a new directory below $TMPDIR or /tmp; its path into `out`. Asserts when that fails. */
void scratch_make(char out[SCRATCH_PATH_MAX]);

/* Remove it with all that is in it. */
void scratch_remove(const char *path);

#endif
