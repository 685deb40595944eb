/*
 * key.h - identities: namespaces, page keys, checkpoint ids. Pure.
 *
 * Formats are those of the reference system, bit for bit (docs/format/identity.md, tests/golden);
 * what kvarve adds are new discriminators only. The prefix object of kvarve/prefix.h lives here
 * too.
 *
 * Threads    Any; a namespace_key is read-only after init.
 */
#ifndef KVARVE_KEY_KEY_H
#define KVARVE_KEY_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hash/hash.h"
#include "kvarve/error.h"
#include "kvarve/prefix.h"

#define KEY_CHUNK_TOKENS       4096u
#define NAMESPACE_TEXT_SIZE    85    /* "recurrent-sha256-v1:" + 64 hex + NUL */
#define NAMESPACE_IDENTITY_MAX 65536 /* bytes of an identity document */
#define NAMESPACE_SALT_MAX     1024  /* bytes */
#define GENERATION_TEXT_SIZE   86    /* "recurrent-content-v1:" + 64 hex + NUL */

typedef struct page_key {
    uint8_t bytes[SHA256_SIZE];
} page_key;

#define PREFIX_STEP_TOKENS 256u
#define PREFIX_STEP_SIZE   32u

/*
 * What a prefix consists of, for whoever hands it to another process: `length` tokens, and
 * length / PREFIX_STEP_TOKENS + 1 steps of PREFIX_STEP_SIZE bytes, the hash states at those places.
 * An append adds to both and changes nothing before. Borrowed like the tokens.
 */
typedef struct prefix_image {
    const uint32_t *tokens;
    const void *steps;
    uint64_t length;
} prefix_image;

KVARVE_NODISCARD prefix_image prefix_image_of(const kvarve_prefix *prefix);

/*
 * A prefix over an image that stays the lender's (4-byte aligned, at most KVARVE_PREFIX_TOKENS_MAX
 * tokens), for const calls only; ended by prefix_return. Whatever stands in the image, digests of
 * it are digests of something: nothing in it is an address or a count. KVARVE_INVALID,
 * KVARVE_NO_MEMORY.
 */
KVARVE_NODISCARD kvarve_status prefix_borrow(const prefix_image *image, kvarve_prefix **out,
                                             kvarve_error *err);
void prefix_return(kvarve_prefix *prefix); /* NULL is a no-op */

/* A namespace's text: ASCII without a character that JSON escapes. */
typedef struct namespace_key {
    char text[NAMESPACE_TEXT_SIZE];
} namespace_key;

/*
 * The namespace of an identity document (a JSON object) and a salt ("" is a value of its own).
 * KVARVE_INVALID: no JSON object, duplicate keys, NaN, a number that is no 64-bit integer, too
 * long, salt no UTF-8. KVARVE_NO_MEMORY.
 */
KVARVE_NODISCARD kvarve_status namespace_key_init(namespace_key *out, const char *identity_json,
                                                  const char *salt, kvarve_error *err);

/*
 * The canonical form of a JSON object or array: keys sorted, no spaces, all but printable ASCII
 * escaped; ended by kvarve_release. KVARVE_INVALID as for namespace_key_init; KVARVE_NO_MEMORY.
 */
KVARVE_NODISCARD kvarve_status canonical_json(const char *json, char **out_text, kvarve_error *err);

typedef enum page_class {
    PAGE_PREFIX = 0,
    PAGE_WINDOW = 1,
    PAGE_ENDPOINT = 2,
    PAGE_AUXILIARY = 3,
} page_class;

typedef enum checkpoint_kind {
    KIND_INSTRUCTION = 0,
    KIND_PROMPT = 1,
    KIND_RESPONSE = 2,
} checkpoint_kind;

#define CHECKPOINT_KIND_COUNT 3

/* "instruction", "prompt", "response" */
const char *checkpoint_kind_text(checkpoint_kind kind);

/* What a page is, besides its tokens. Unused fields are 0. */
typedef struct page_discriminator {
    page_class class;
    uint32_t group;        /* prefix, window, endpoint */
    uint64_t draft_tokens; /* auxiliary; prefix and window with has_draft_rows: draft rows valid in
                              this page's prefix */
    checkpoint_kind kind;  /* auxiliary */
    bool has_draft_rows;   /* the group carries draft rows: the last page names their validity */
    uint32_t part; /* endpoint and auxiliary split over several pages: 0-based; 0 adds nothing to
                      the key */
    uint64_t
        state_bytes; /* endpoint, auxiliary of any size: all bytes of the state; 0: fixed size */
    const page_digest *exact; /* exact namespaces: the page's digest; else NULL */
} page_discriminator;

/* Longest discriminator text, NUL included. */
#define DISCRIMINATOR_TEXT_SIZE 160

/*
 * The discriminator's text:
 *   attention:G                     prefix and window
 *   attention:G:draft:D             the same where has_draft_rows and D is less than the page's
 * tokens recurrent:G                     endpoint auxiliary:D:KIND                auxiliary
 *   ...:bytes:S                     of a state of any size: all its bytes
 *   ...:part:P                      part P > 0 of an endpoint or auxiliary
 *   ...:x:HEX32                     exact namespaces
 */
void page_discriminator_text(const page_discriminator *what, uint64_t tokens,
                             char out[DISCRIMINATOR_TEXT_SIZE]);

/*
 * The key of the page that ends at `tokens` (its boundary n), whose token digest is `digest`:
 * SHA-256(domain 0 digest 0 JSON[namespace, n, discriminator]).
 */
page_key page_key_of(const namespace_key *name, const uint8_t digest[KVARVE_DIGEST_SIZE],
                     uint64_t tokens, const page_discriminator *what);

/*
 * Keys of `count` pages at once, at page ends first_tokens, first_tokens + span, ...: what.group's
 * pages of a prefix or window group without draft rows and not exact. Digests come from one pass
 * over the tokens; nothing is hashed twice. The last end may not exceed the prefix's length.
 */
void page_keys_of_span(const namespace_key *name, const kvarve_prefix *prefix,
                       uint64_t first_tokens, uint64_t span, size_t count, uint32_t group,
                       page_key *out_keys);

/* Digests at first_tokens, first_tokens + span, ...: one pass. Same limits. */
void prefix_digests_of_span(const kvarve_prefix *prefix, uint64_t first_tokens, uint64_t span,
                            size_t count, uint8_t (*out_digests)[KVARVE_DIGEST_SIZE]);

/*
 * The identity of a checkpoint: tokens, namespace, kind and draft-prefix length, so that a prompt
 * and a response at one N never replace each other. For an exact namespace `page_keys` are all its
 * keys in manifest order and are part of the id; else count is 0.
 */
page_key checkpoint_id_of(const namespace_key *name, const uint8_t digest[KVARVE_DIGEST_SIZE],
                          uint64_t tokens, checkpoint_kind kind, uint64_t draft_tokens,
                          const page_key *page_keys, size_t count);

/* The reference's manifest id of the first `tokens` tokens with this payload (golden vectors;
 * import). */
KVARVE_NODISCARD kvarve_status generation_of(const namespace_key *name, const kvarve_prefix *prefix,
                                             uint64_t tokens, const void *payload,
                                             size_t payload_size, char out[GENERATION_TEXT_SIZE],
                                             kvarve_error *err);

/* The rolling tail hash of the reference: v = 0; for each token v = (v * 1000003 + token + 1) mod
 * (2^61 - 1). */
uint64_t tail_hash_step(uint64_t value, uint32_t token);

/* The tail hashes of the first 0, 1, ... count tokens: out[count + 1]. */
void tail_hash_run(const uint32_t *tokens, size_t count, uint64_t *out);

/* The chain digest before chunk `chunk` (0: the chain's start). chunk * 4096 <= length. */
void prefix_chunk_digest(const kvarve_prefix *prefix, uint64_t chunk,
                         uint8_t out[KVARVE_DIGEST_SIZE]);

#endif
