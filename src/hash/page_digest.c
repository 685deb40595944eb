/*
 * page_digest.c - XXH3-128 of pages, taken in the copy.
 *
 * Bytes that lie in memory are digested by the library. A digest in pieces, with or without
 * copying, is computed here over the inner loop of stripes.c: XXH3 takes in stripes of 64 bytes,
 * and treats the last one apart, so a stripe is taken in when a byte behind it is known, and the
 * last 64 bytes are kept.
 *
 *      tail:  [ the stripe taken in last | pending, 1 .. 64 bytes ]
 *
 * Invariants
 *   I1  The digest is that of the bytes at the destination: each byte is read once, then stored and
 * digested. Whoever compares digests has compared what was delivered. I2  Pieces, alignment and
 * processor do not change the result; it is the library's.
 *
 * Threads: any; one state is used by one thread at a time. Nothing allocates.
 */
#include "hash/hash.h"

#include <assert.h>
#include <string.h>

#include <xxhash.h>
#if defined(KVARVE_XXHASH_DISPATCH)
#define XXH_DISPATCH_DISABLE_REPLACE
#include <xxh_x86dispatch.h>
#define DIGEST_AT_ONCE XXH3_128bits_dispatch
#else
#define DIGEST_AT_ONCE XXH3_128bits
#endif

#include "hash/stripes_private.h"

#define SHORT_MAX  240u /* bytes; XXH3 has other rules for inputs up to this */
#define PRIME64_1  UINT64_C(0x9e3779b185ebca87)
#define PRIME64_2  UINT64_C(0xc2b2ae3d27d4eb4f)
#define AVALANCHE  UINT64_C(0x165667919e3779f9)
#define MERGE_LOW  11u
#define MERGE_HIGH (SECRET_SIZE - STRIPE_SIZE - 11)

typedef struct digest_work {
    stripes_state stripes;
    uint64_t total;   /* bytes */
    uint32_t pending; /* bytes in the second half of tail */
    uint8_t tail[2 * STRIPE_SIZE];
    uint8_t head[SHORT_MAX]; /* all of the input while it is no longer than this */
} digest_work;

static_assert(sizeof(digest_work) <= sizeof(((page_digest_state *)NULL)->storage), "a state fits");
static_assert(_Alignof(digest_work) <= _Alignof(page_digest_state), "a state is aligned");
static_assert(sizeof(XXH128_canonical_t) == sizeof(page_digest), "a digest is its canonical form");

static digest_work *work_of(page_digest_state *state)
{
    return (digest_work *)(void *)state->storage;
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

void page_digest_begin(page_digest_state *state)
{
    digest_work *work = work_of(state);

    stripes_init(&work->stripes);
    work->total = 0;
    work->pending = 0;
}

/* Keep bytes in `kept`, and copy them on from there (I1). */
static void keep(uint8_t *kept, uint8_t *to, const uint8_t *from, size_t size)
{
    memcpy(kept, from, size);
    if (to != NULL) {
        memcpy(to, kept, size);
    }
}

/* Where the destination goes on. */
static uint8_t *behind(uint8_t *to, size_t size)
{
    return to == NULL ? NULL : to + size;
}

/* Take `size` bytes in, and copy them unless `to` is NULL. size > 0. */
static void take(digest_work *work, uint8_t *to, const uint8_t *from, size_t size)
{
    uint8_t *taken = work->tail;
    uint8_t *pending = work->tail + STRIPE_SIZE;
    const size_t room = STRIPE_SIZE - work->pending;
    const size_t first = size < room ? size : room;
    size_t stripes;

    work->total += size;
    keep(pending + work->pending, to, from, first);
    work->pending += (uint32_t)first;
    if (size == first) {
        return;
    }
    memcpy(taken, pending, STRIPE_SIZE);
    stripes_take(&work->stripes, NULL, taken, 1);
    from += first;
    to = behind(to, first);
    size -= first;

    stripes = (size - 1) / STRIPE_SIZE;
    if (stripes > 0) {
        const size_t bulk = (stripes - 1) * STRIPE_SIZE;

        stripes_take(&work->stripes, to, from, stripes - 1);
        keep(taken, behind(to, bulk), from + bulk, STRIPE_SIZE);
        stripes_take(&work->stripes, NULL, taken, 1);
        from += bulk + STRIPE_SIZE;
        to = behind(to, bulk + STRIPE_SIZE);
        size -= bulk + STRIPE_SIZE;
    }
    keep(pending, to, from, size);
    work->pending = (uint32_t)size;
}

static void update(digest_work *work, uint8_t *to, const uint8_t *from, size_t size)
{
    if (size == 0) {
        return;
    }
    if (size <= SHORT_MAX && work->total + size <= SHORT_MAX) {
        uint8_t *kept = work->head + work->total;

        keep(kept, to, from, size);
        take(work, NULL, kept, size);
    } else {
        take(work, to, from, size);
    }
}

void page_digest_update(page_digest_state *state, const void *bytes, size_t size)
{
    update(work_of(state), NULL, bytes, size);
}

void page_digest_update_copy(page_digest_state *state, void *to, const void *from, size_t size)
{
    update(work_of(state), to, from, size);
}

__extension__ typedef unsigned __int128 wide;

static uint64_t merge(const uint64_t lanes[8], const uint8_t *secret, uint64_t start)
{
    uint64_t sum = start;

    for (size_t i = 0; i < 8; i += 2) {
        uint64_t words[2];
        wide product;

        memcpy(words, secret + 8 * i, sizeof words);
        product = (wide)(lanes[i] ^ words[0]) * (lanes[i + 1] ^ words[1]);
        sum += (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    sum = (sum ^ sum >> 37) * AVALANCHE;
    return sum ^ sum >> 32;
}

page_digest page_digest_end(page_digest_state *state)
{
    digest_work *work = work_of(state);
    XXH128_hash_t hash;

    if (work->total <= SHORT_MAX) {
        return page_digest_of(work->head, (size_t)work->total);
    }
    stripes_take_last(&work->stripes, work->tail + work->pending);
    hash.low64 = merge(work->stripes.lanes, stripes_secret + MERGE_LOW, work->total * PRIME64_1);
    hash.high64 =
        merge(work->stripes.lanes, stripes_secret + MERGE_HIGH, ~(work->total * PRIME64_2));
    return canonical(hash);
}

bool page_digest_is_equal(const page_digest *a, const page_digest *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}
