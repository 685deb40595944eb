/*
 * put_digests.c - the page digests that a caller announces with a put, sorted for looking them up.
 *
 * Threads: under the store's lock.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "store/put_private.h"

#define DIGESTS_MAX (UINT32_C(1) << 22)

static int compare_digests(const void *a, const void *b)
{
    const kvarve_page_digest *x = a;
    const kvarve_page_digest *y = b;

    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    if (x->group != y->group) {
        return x->group < y->group ? -1 : 1;
    }
    return (x->position > y->position) - (x->position < y->position);
}

kvarve_status put_fail_twice(const kvarve_page_digest *digest, kvarve_error *err)
{
    return kvarve_fail(err, KVARVE_INVALID, "put: two digests of rank %d group %u position %llu",
                       digest->rank == KVARVE_RANK_ALL ? -1 : (int)digest->rank, digest->group,
                       (unsigned long long)digest->position);
}

kvarve_status put_set_digests(store_put *put, const kvarve_page_digest *digests, size_t count,
                              kvarve_error *err)
{
    kvarve_release(put->digests);
    put->digests = NULL;
    put->digest_count = 0;
    if (count == 0) {
        return KVARVE_OK;
    }
    if (digests == NULL || count > DIGESTS_MAX) {
        return kvarve_fail(err, KVARVE_INVALID, "put: %zu page digests, at most %u", count,
                           DIGESTS_MAX);
    }
    put->digests = kvarve_allocate_array(count, sizeof *digests);
    if (put->digests == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "put: %zu page digests", count);
    }
    memcpy(put->digests, digests, count * sizeof *digests);
    qsort(put->digests, count, sizeof *digests, compare_digests);
    put->digest_count = count;
    for (size_t i = 1; i < count; i++) {
        if (compare_digests(&put->digests[i - 1], &put->digests[i]) == 0) {
            return put_fail_twice(&put->digests[i], err);
        }
    }
    return KVARVE_OK;
}

const page_digest *put_find_digest(const store_put *put, uint32_t rank, uint32_t group,
                                   uint64_t position)
{
    const kvarve_page_digest wanted = {.rank = rank, .group = group, .position = position};
    const kvarve_page_digest *found =
        put->digest_count == 0
            ? NULL
            : bsearch(&wanted, put->digests, put->digest_count, sizeof wanted, compare_digests);

    return found == NULL ? NULL : (const page_digest *)(const void *)found->digest;
}
