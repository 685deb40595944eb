/*
 * random_posix.c - bytes from the kernel's generator. Stateless; any thread.
 */
#include "env/env_posix.h"

#include <errno.h>
#include <sys/random.h>

static int posix_fill(kvarve_random *random, void *bytes, size_t size)
{
    char *next = bytes;

    (void)random;
    while (size > 0) {
        const ssize_t got = getrandom(next, size, 0);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got < 0 ? -errno : -EIO;
        }
        next += got;
        size -= (size_t)got;
    }
    return 0;
}

kvarve_random *random_posix(void)
{
    static kvarve_random posix_random = {.fill = posix_fill};

    return &posix_random;
}
