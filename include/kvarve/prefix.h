/*
 * prefix.h - tokens, and the digests that name every prefix of them.
 *
 * A kvarve_prefix holds the tokens of one sequence and answers the digest of any of its
 * prefixes. It is incremental: appending costs the new tokens only. Digests are those of the
 * reference system (docs/format/identity.md): a SHA-256 chain over chunks of 4096 tokens.
 *
 * Threads    One prefix is used by one thread at a time; calls that take it const may run at once.
 * Ownership  kvarve_prefix_create allocates, kvarve_prefix_free ends it. Tokens passed in are
 * copied.
 */
#ifndef KVARVE_PREFIX_H
#define KVARVE_PREFIX_H

#include <stddef.h>
#include <stdint.h>

#include "kvarve/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVARVE_DIGEST_SIZE       32                   /* bytes of a token digest */
#define KVARVE_TOKEN_LIMIT       UINT32_C(0x80000000) /* tokens are below this */
#define KVARVE_PREFIX_TOKENS_MAX UINT64_C(16777216)   /* most tokens of one prefix: 2^24 */

typedef struct kvarve_prefix kvarve_prefix;

/* An empty prefix. KVARVE_NO_MEMORY. */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_prefix_create(kvarve_prefix **out_prefix,
                                                               kvarve_error *err);

/* NULL is a no-op. */
KVARVE_API void kvarve_prefix_free(kvarve_prefix *prefix);

/*
 * Append `count` tokens.
 *
 * tokens  Each below KVARVE_TOKEN_LIMIT. Borrowed for the call.
 *
 * On anything but KVARVE_OK the prefix is unchanged. KVARVE_INVALID names the first bad token's
 * position, or the limit KVARVE_PREFIX_TOKENS_MAX; KVARVE_NO_MEMORY.
 */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_prefix_append(kvarve_prefix *prefix,
                                                               const uint32_t *tokens, size_t count,
                                                               kvarve_error *err);

/* A run of placeholder tokens that stands for one image, sound or other medium. */
typedef struct kvarve_media {
    uint64_t position; /* of its first placeholder, counted in the tokens of this append */
    uint64_t count;    /* placeholders, 1 or more; runs do not overlap and come in order */
    uint8_t digest[KVARVE_DIGEST_SIZE]; /* of the content and of all that decides its encoding */
} kvarve_media;

/*
 * Append tokens of which some are media placeholders. Placeholder ids are equal for all media, so
 * each is replaced by 31 bits derived from the medium's digest and its place in the run; text
 * before the first medium keeps its digests. Ids within a run are not looked at: they may be
 * anything. Otherwise as kvarve_prefix_append; KVARVE_INVALID also for runs that overlap, come out
 * of order, are empty or leave the tokens.
 */
KVARVE_API KVARVE_NODISCARD kvarve_status
kvarve_prefix_append_media(kvarve_prefix *prefix, const uint32_t *tokens, size_t count,
                           const kvarve_media *media, size_t media_count, kvarve_error *err);

/* Shorten to the first `count` tokens. KVARVE_INVALID when it has fewer. Hashes nothing. */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_prefix_truncate(kvarve_prefix *prefix,
                                                                 uint64_t count, kvarve_error *err);

/* How many tokens it holds. */
KVARVE_API uint64_t kvarve_prefix_length(const kvarve_prefix *prefix);

/*
 * Its tokens, after media replacement; NULL when empty. Borrowed until the next append, truncate
 * or free.
 */
KVARVE_API const uint32_t *kvarve_prefix_tokens(const kvarve_prefix *prefix);

/*
 * The digest of the first `count` tokens, 1 .. length. Costs at most 256 tokens of hashing.
 * KVARVE_INVALID when count is 0 or too large.
 */
KVARVE_API KVARVE_NODISCARD kvarve_status
kvarve_prefix_digest(const kvarve_prefix *prefix, uint64_t count,
                     uint8_t out_digest[KVARVE_DIGEST_SIZE], kvarve_error *err);

#ifdef __cplusplus
}
#endif

#endif
