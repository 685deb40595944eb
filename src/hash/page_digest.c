/*
 * page_digest.c - XXH3-128 of pages, taken beside the copy.
 *
 * Invariants
 *   I1  The digest is that of the bytes at the destination: they are digested after the step was
 * copied, while the cache holds them. Whoever compares digests has compared what was delivered. I2
 * The dispatched functions and the plain ones share one state and give one result.
 *
 * Threads: any; one state is used by one thread at a time. Nothing allocates.
 */
#include "hash/hash.h"

#include <assert.h>
#include <string.h>

/* Shows the size of the state, so that it may lie on the stack. */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>
#if defined(KVARVE_XXHASH_DISPATCH)
#define XXH_DISPATCH_DISABLE_REPLACE
#include <xxh_x86dispatch.h>
#define DIGEST_AT_ONCE XXH3_128bits_dispatch
#define DIGEST_UPDATE  XXH3_128bits_update_dispatch
#else
#define DIGEST_AT_ONCE XXH3_128bits
#define DIGEST_UPDATE  XXH3_128bits_update
#endif

#define STEP ((size_t)16 << 10)

static_assert(sizeof(XXH3_state_t) <= sizeof(((page_digest_state *)NULL)->storage), "a state fits");
static_assert(_Alignof(XXH3_state_t) <= _Alignof(page_digest_state), "a state is aligned");
static_assert(sizeof(XXH128_canonical_t) == sizeof(page_digest), "a digest is its canonical form");

static XXH3_state_t *xxh_of(page_digest_state *state)
{
    return (XXH3_state_t *)(void *)state->storage;
}

static page_digest canonical(XXH128_hash_t hash)
{
    XXH128_canonical_t form;
    page_digest digest;

    XXH128_canonicalFromHash(&form, hash);
    memcpy(digest.bytes, form.digest, sizeof digest.bytes);
    return digest;
}

page_digest page_digest_of(const void *bytes, size_t size)
{
    return canonical(DIGEST_AT_ONCE(size == 0 ? "" : bytes, size));
}

page_digest page_digest_copy(void *to, const void *from, size_t size)
{
    page_digest_state state;

    page_digest_begin(&state);
    page_digest_update_copy(&state, to, from, size);
    return page_digest_end(&state);
}

/* XXH3_* answer an error for a NULL state or NULL bytes only. */
void page_digest_begin(page_digest_state *state)
{
    (void)XXH3_128bits_reset(xxh_of(state));
}

void page_digest_update(page_digest_state *state, const void *bytes, size_t size)
{
    if (size > 0) {
        (void)DIGEST_UPDATE(xxh_of(state), bytes, size);
    }
}

void page_digest_update_copy(page_digest_state *state, void *to, const void *from, size_t size)
{
    const uint8_t *source = from;
    uint8_t *target = to;
    size_t left = size;

    while (left > 0) {
        const size_t step = left < STEP ? left : STEP;

        memcpy(target, source, step);
        (void)DIGEST_UPDATE(xxh_of(state), target, step); /* I1 */
        source += step;
        target += step;
        left -= step;
    }
}

page_digest page_digest_end(page_digest_state *state)
{
    return canonical(XXH3_128bits_digest(xxh_of(state)));
}

bool page_digest_is_equal(const page_digest *a, const page_digest *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}
