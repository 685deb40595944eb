/*
 * prefix.c - the tokens of one sequence, and the digest of any prefix of them.
 *
 * The digest chain (docs/format/identity.md) hashes chunk k as the message D(k), 32 bytes, then up
 * to 4096 packed tokens. Every 256 tokens one 32-byte step is kept. Since 32 bytes of D(k) come
 * first, a step ends in the middle of a SHA-256 block: the chaining value is saved as it was 8
 * tokens before, and those 8 tokens are hashed again.
 *
 *      chunk k:  D(k) t0..t7 | t8..t23 | ... | t232..t247 | t248..t263 | ...
 *                            ^block ends                  ^ step 1 keeps the chain of here
 *
 * Invariants
 *   I1  tokens[0, length) are below KVARVE_TOKEN_LIMIT, and they are packed as little-endian words.
 *   I2  steps[i] for i <= length / 256 belong to tokens[0, 256 i): where i is a multiple of 16 the
 * digest D(i / 16), else the chaining value after the whole blocks that end before token 256 i.
 *       What lies behind is left over from a truncation or a refused append and is written anew
 * before it counts. I3  length is set last: a call that fails leaves everything that counts as it
 * was.
 *
 * Threads: see kvarve/prefix.h; const calls write nothing. Ownership: a prefix owns both arrays.
 */
#include "kvarve/prefix.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"
#include "hash/hash.h"
#include "key/key.h"
#include "key/prefix_private.h"

#define STEP_TOKENS     PREFIX_STEP_TOKENS
#define CHUNK_STEPS     (KEY_CHUNK_TOKENS / STEP_TOKENS)
#define BLOCK_TOKENS    (SHA256_BLOCK / 4u)
#define PENDING_TOKENS  8u /* of a step, behind its last whole block */
#define PENDING_SIZE    ((size_t)PENDING_TOKENS * 4)
#define TOKENS_ROOM_MIN 1024u
#define MAGIC           UINT32_C(0x6b767078)
#define MEDIA_DOMAIN    "kvarve-media-v1"
#define ROOTS_DOMAIN    "lmcache-recurrent-token-roots-v1"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tokens are hashed as they lie in memory");
static_assert(KVARVE_DIGEST_SIZE == SHA256_SIZE, "digests are SHA-256");
static_assert((KVARVE_DIGEST_SIZE + PENDING_SIZE) % SHA256_BLOCK == 0,
              "head and 8 tokens are a block");
static_assert(KVARVE_PREFIX_TOKENS_MAX % STEP_TOKENS == 0, "the limit is a whole number of steps");

typedef union prefix_step {
    sha256_chain chain;
    uint8_t digest[KVARVE_DIGEST_SIZE];
} prefix_step;

static_assert(sizeof(prefix_step) == PREFIX_STEP_SIZE, "an image has steps of this size");
static_assert(_Alignof(prefix_step) <= 4, "an image is 4-byte aligned");

struct kvarve_prefix {
    uint32_t magic;
    uint64_t length;
    uint64_t tokens_room;
    uint64_t steps_room;
    uint32_t *tokens;   /* owned; NULL while tokens_room is 0 */
    prefix_step *steps; /* owned; at least one */
    bool is_borrowed;   /* both arrays are somebody else's, and nothing is ever added */
};

/* The start of the chain, D(0): the digest of the domain and the chunk's length. */
static void chain_start(uint8_t out[KVARVE_DIGEST_SIZE])
{
    uint8_t message[sizeof ROOTS_DOMAIN + 4] = ROOTS_DOMAIN;
    const uint32_t chunk = KEY_CHUNK_TOKENS;

    memcpy(message + sizeof ROOTS_DOMAIN, &chunk, sizeof chunk);
    sha256(message, sizeof message, out);
}

static bool is_prefix(const kvarve_prefix *prefix)
{
    return prefix != NULL && prefix->magic == MAGIC;
}

prefix_image prefix_image_of(const kvarve_prefix *prefix)
{
    return (prefix_image){
        .tokens = prefix->tokens, .steps = prefix->steps, .length = prefix->length};
}

/* The fields are not const, but const calls alone touch what is borrowed. */
static void *without_const(const void *lent)
{
    const union {
        const void *lent;
        void *kept;
    } same = {lent};

    return same.kept;
}

kvarve_status prefix_borrow(const prefix_image *image, kvarve_prefix **out, kvarve_error *err)
{
    kvarve_prefix *prefix;

    if (image->length > KVARVE_PREFIX_TOKENS_MAX || (uintptr_t)image->tokens % 4 != 0 ||
        (uintptr_t)image->steps % 4 != 0) {
        return kvarve_fail(err, KVARVE_INVALID, "borrow a prefix of %llu tokens: at most %llu",
                           (unsigned long long)image->length,
                           (unsigned long long)KVARVE_PREFIX_TOKENS_MAX);
    }
    prefix = kvarve_allocate(sizeof *prefix);
    if (prefix == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "borrow a prefix");
    }
    prefix->magic = MAGIC;
    prefix->length = image->length;
    prefix->is_borrowed = true;
    prefix->tokens = without_const(image->tokens);
    prefix->steps = without_const(image->steps);
    *out = prefix;
    return KVARVE_OK;
}

void prefix_return(kvarve_prefix *prefix)
{
    if (prefix != NULL) {
        KVARVE_ASSERT(prefix->is_borrowed);
        prefix->magic = 0;
        kvarve_release(prefix);
    }
}

kvarve_status kvarve_prefix_create(kvarve_prefix **out_prefix, kvarve_error *err)
{
    kvarve_prefix *prefix;

    if (out_prefix == NULL) {
        return kvarve_fail(err, KVARVE_INVALID, "create a prefix: no place for it");
    }
    prefix = kvarve_allocate(sizeof *prefix);
    if (prefix == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "create a prefix");
    }
    prefix->steps = kvarve_allocate_array(1, sizeof *prefix->steps);
    if (prefix->steps == NULL) {
        kvarve_release(prefix);
        return kvarve_fail(err, KVARVE_NO_MEMORY, "create a prefix");
    }
    prefix->magic = MAGIC;
    prefix->steps_room = 1;
    chain_start(prefix->steps[0].digest);
    *out_prefix = prefix;
    return KVARVE_OK;
}

void kvarve_prefix_free(kvarve_prefix *prefix)
{
    if (!is_prefix(prefix)) {
        return;
    }
    prefix->magic = 0;
    kvarve_release(prefix->tokens);
    kvarve_release(prefix->steps);
    kvarve_release(prefix);
}

/* Room for `length` tokens and their steps. What counts stays as it is, also on failure. */
static bool reserve(kvarve_prefix *prefix, uint64_t length)
{
    const uint64_t steps = length / STEP_TOKENS + 1;

    if (length > prefix->tokens_room) {
        /* Doubling keeps the cost of many small appends proportional to their tokens. */
        const uint64_t wanted =
            kvarve_max_u64(kvarve_max_u64(length, TOKENS_ROOM_MIN), 2 * prefix->tokens_room);
        const uint64_t room = kvarve_min_u64(wanted, KVARVE_PREFIX_TOKENS_MAX);
        uint32_t *tokens = kvarve_reallocate(prefix->tokens, (size_t)(room * sizeof *tokens));

        if (tokens == NULL) {
            return false;
        }
        prefix->tokens = tokens;
        prefix->tokens_room = room;
    }
    if (steps > prefix->steps_room) {
        const uint64_t room = prefix->tokens_room / STEP_TOKENS + 1;
        prefix_step *grown = kvarve_reallocate(prefix->steps, (size_t)(room * sizeof *grown));

        if (grown == NULL) {
            return false;
        }
        prefix->steps = grown;
        prefix->steps_room = room;
    }
    return true;
}

/* Compute steps[index] from the step before it and the 256 tokens between them. */
static void compute_step(kvarve_prefix *prefix, uint64_t index)
{
    const prefix_step *before = &prefix->steps[index - 1];
    const uint32_t *tokens = prefix->tokens + (index - 1) * STEP_TOKENS;
    size_t blocks = STEP_TOKENS / BLOCK_TOKENS;
    sha256_chain chain;

    if ((index - 1) % CHUNK_STEPS == 0) {
        uint8_t head[SHA256_BLOCK];

        memcpy(head, before->digest, sizeof before->digest);
        memcpy(head + sizeof before->digest, tokens, PENDING_SIZE);
        sha256_chain_init(&chain);
        sha256_chain_blocks(&chain, head, 1);
        blocks--;
        sha256_chain_blocks(&chain, tokens + PENDING_TOKENS, blocks);
    } else {
        chain = before->chain;
        sha256_chain_blocks(&chain, tokens - PENDING_TOKENS, blocks);
    }
    if (index % CHUNK_STEPS == 0) {
        uint8_t tail[PENDING_SIZE + SHA256_PADDING_MAX];
        const size_t padding =
            sha256_pad(tail + PENDING_SIZE, KVARVE_DIGEST_SIZE + UINT64_C(4) * KEY_CHUNK_TOKENS);

        memcpy(tail, tokens + STEP_TOKENS - PENDING_TOKENS, PENDING_SIZE);
        sha256_chain_blocks(&chain, tail, (PENDING_SIZE + padding) / SHA256_BLOCK);
        sha256_chain_digest(&chain, prefix->steps[index].digest);
    } else {
        prefix->steps[index].chain = chain;
    }
}

/* Four tokens in a vector register; both compilers build it from plain words where there is none.
 */
typedef uint32_t lanes __attribute__((vector_size(16)));

#define LANES (sizeof(lanes) / sizeof(uint32_t))

/* Copy, and say whether all tokens are below the limit: one pass, since both are bound by memory.
 */
static bool copy_tokens(uint32_t *restrict to, const uint32_t *restrict from, size_t count)
{
    lanes seen = {0};
    uint32_t all = 0;
    size_t i = 0;

    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        lanes first;
        lanes second;

        memcpy(&first, from + i, sizeof first);
        memcpy(&second, from + i + LANES, sizeof second);
        memcpy(to + i, &first, sizeof first);
        memcpy(to + i + LANES, &second, sizeof second);
        seen |= first | second;
    }
    for (; i < count; i++) {
        to[i] = from[i];
        all |= from[i];
    }
    for (size_t lane = 0; lane < LANES; lane++) {
        all |= seen[lane];
    }
    return all < KVARVE_TOKEN_LIMIT;
}

static size_t first_bad_token(const uint32_t *tokens, size_t count)
{
    size_t i = 0;

    while (i < count && tokens[i] < KVARVE_TOKEN_LIMIT) {
        i++;
    }
    return i;
}

/* An append in progress: the tokens that it has put behind `length`. I3: the prefix does not know
 * of them yet. */
typedef struct appending {
    kvarve_prefix *prefix;
    uint64_t length;
} appending;

/* Count `count` more tokens, which are in place, and hash the steps that they complete. */
static void take_in(appending *work, size_t count)
{
    const uint64_t length = work->length + count;

    for (uint64_t step = work->length / STEP_TOKENS + 1; step <= length / STEP_TOKENS; step++) {
        compute_step(work->prefix, step);
    }
    work->length = length;
}

/* Bring the next step's tokens, and the place they go to, into the cache while this step is hashed.
 */
static void prefetch_step(const uint32_t *to, const uint32_t *from, size_t count)
{
    const size_t ahead = count < STEP_TOKENS ? count : STEP_TOKENS;

    for (size_t i = 0; i < ahead; i += BLOCK_TOKENS) {
        __builtin_prefetch(from + i, 0);
        __builtin_prefetch(to + i, 1);
    }
}

/* Take in tokens a step at a time, so that copying waits for no memory: hashing takes longer than
 * fetching. */
static bool append_text(appending *work, const uint32_t *tokens, size_t count)
{
    while (count > 0) {
        const size_t missing = STEP_TOKENS - (size_t)(work->length % STEP_TOKENS);
        const size_t part = count < missing ? count : missing;
        uint32_t *to = work->prefix->tokens + work->length;

        if (!copy_tokens(to, tokens, part)) {
            return false;
        }
        tokens += part;
        count -= part;
        prefetch_step(to + part, tokens, count);
        take_in(work, part);
    }
    return true;
}

/* Eight placeholders at a time: 31 bits each of SHA-256(domain 0 digest, number of the eight). */
static void append_medium(appending *work, const kvarve_media *medium)
{
    uint8_t message[sizeof MEDIA_DOMAIN + KVARVE_DIGEST_SIZE + 4] = MEDIA_DOMAIN;
    uint32_t *to = work->prefix->tokens + work->length;

    memcpy(message + sizeof MEDIA_DOMAIN, medium->digest, KVARVE_DIGEST_SIZE);
    for (uint64_t at = 0; at < medium->count; at += 8) {
        const uint32_t number = (uint32_t)(at / 8);
        uint8_t digest[SHA256_SIZE];
        uint32_t words[8];

        memcpy(message + sizeof message - sizeof number, &number, sizeof number);
        sha256(message, sizeof message, digest);
        memcpy(words, digest, sizeof words);
        for (uint64_t i = at; i < at + 8 && i < medium->count; i++) {
            to[i] = words[i - at] & (KVARVE_TOKEN_LIMIT - 1);
        }
    }
    take_in(work, (size_t)medium->count);
}

/* What every append checks first; then there is room for `count` more tokens. */
static kvarve_status begin_append(kvarve_prefix *prefix, const uint32_t *tokens, size_t count,
                                  kvarve_error *err)
{
    if (!is_prefix(prefix) || prefix->is_borrowed) {
        return kvarve_fail(err, KVARVE_INVALID, "append tokens: no prefix");
    }
    if (tokens == NULL && count > 0) {
        return kvarve_fail(err, KVARVE_INVALID, "append %zu tokens: no tokens", count);
    }
    if (count > KVARVE_PREFIX_TOKENS_MAX - prefix->length) {
        return kvarve_fail(
            err, KVARVE_INVALID, "append %zu tokens to %llu: a prefix holds at most %llu", count,
            (unsigned long long)prefix->length, (unsigned long long)KVARVE_PREFIX_TOKENS_MAX);
    }
    if (!reserve(prefix, prefix->length + count)) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "append %zu tokens", count);
    }
    return KVARVE_OK;
}

static kvarve_status fail_token(size_t position, kvarve_error *err)
{
    return kvarve_fail(err, KVARVE_INVALID, "append tokens: token %zu is not below %u", position,
                       (unsigned)KVARVE_TOKEN_LIMIT);
}

kvarve_status kvarve_prefix_append(kvarve_prefix *prefix, const uint32_t *tokens, size_t count,
                                   kvarve_error *err)
{
    const kvarve_status status = begin_append(prefix, tokens, count, err);
    appending work;

    if (status != KVARVE_OK) {
        return status;
    }
    work = (appending){.prefix = prefix, .length = prefix->length};
    if (!append_text(&work, tokens, count)) {
        return fail_token(first_bad_token(tokens, count), err);
    }
    prefix->length = work.length;
    return KVARVE_OK;
}

/* Runs are in order, do not overlap, are not empty and lie within `count` tokens. */
static kvarve_status check_media(const kvarve_media *media, size_t media_count, size_t count,
                                 kvarve_error *err)
{
    uint64_t end = 0;

    if (media == NULL && media_count > 0) {
        return kvarve_fail(err, KVARVE_INVALID, "append tokens with %zu media: no media",
                           media_count);
    }
    for (size_t i = 0; i < media_count; i++) {
        if (media[i].position < end) {
            return kvarve_fail(err, KVARVE_INVALID,
                               "append tokens: medium %zu starts before the end of another", i);
        }
        if (media[i].count == 0 || media[i].position > count ||
            media[i].count > count - media[i].position) {
            return kvarve_fail(err, KVARVE_INVALID,
                               "append tokens: medium %zu is not within the %zu tokens", i, count);
        }
        end = media[i].position + media[i].count;
    }
    return KVARVE_OK;
}

kvarve_status kvarve_prefix_append_media(kvarve_prefix *prefix, const uint32_t *tokens,
                                         size_t count, const kvarve_media *media,
                                         size_t media_count, kvarve_error *err)
{
    kvarve_status status = check_media(media, media_count, count, err);
    appending work;
    size_t at = 0;

    if (status == KVARVE_OK) {
        status = begin_append(prefix, tokens, count, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    work = (appending){.prefix = prefix, .length = prefix->length};
    for (size_t i = 0; i <= media_count; i++) {
        const size_t text_end = i < media_count ? (size_t)media[i].position : count;

        if (!append_text(&work, tokens + at, text_end - at)) {
            return fail_token(at + first_bad_token(tokens + at, text_end - at), err);
        }
        if (i < media_count) {
            append_medium(&work, &media[i]);
            at = text_end + (size_t)media[i].count;
        }
    }
    prefix->length = work.length;
    return KVARVE_OK;
}

kvarve_status kvarve_prefix_truncate(kvarve_prefix *prefix, uint64_t count, kvarve_error *err)
{
    if (!is_prefix(prefix)) {
        return kvarve_fail(err, KVARVE_INVALID, "truncate: no prefix");
    }
    if (count > prefix->length) {
        return kvarve_fail(err, KVARVE_INVALID, "truncate a prefix of %llu tokens to %llu",
                           (unsigned long long)prefix->length, (unsigned long long)count);
    }
    prefix->length = count; /* I2 */
    return KVARVE_OK;
}

uint64_t kvarve_prefix_length(const kvarve_prefix *prefix)
{
    return is_prefix(prefix) ? prefix->length : 0;
}

const uint32_t *kvarve_prefix_tokens(const kvarve_prefix *prefix)
{
    return kvarve_prefix_length(prefix) > 0 ? prefix->tokens : NULL;
}

kvarve_status kvarve_prefix_digest(const kvarve_prefix *prefix, uint64_t count,
                                   uint8_t out_digest[KVARVE_DIGEST_SIZE], kvarve_error *err)
{
    prefix_cursor cursor;

    if (!is_prefix(prefix) || out_digest == NULL) {
        return kvarve_fail(err, KVARVE_INVALID, "digest of a prefix: no prefix or no place for it");
    }
    if (count == 0 || count > prefix->length) {
        return kvarve_fail(err, KVARVE_INVALID, "digest of %llu tokens of a prefix of %llu",
                           (unsigned long long)count, (unsigned long long)prefix->length);
    }
    prefix_cursor_init(&cursor, prefix);
    prefix_cursor_digest(&cursor, count, out_digest);
    return KVARVE_OK;
}

void prefix_chunk_digest(const kvarve_prefix *prefix, uint64_t chunk,
                         uint8_t out[KVARVE_DIGEST_SIZE])
{
    KVARVE_ASSERT(chunk <= prefix->length / KEY_CHUNK_TOKENS);
    memcpy(out, prefix->steps[chunk * CHUNK_STEPS].digest, KVARVE_DIGEST_SIZE);
}

void prefix_cursor_init(prefix_cursor *cursor, const kvarve_prefix *prefix)
{
    cursor->prefix = prefix;
    cursor->place = 0;
}

/* Bring the cursor to the last whole block before token `count` of the chunk that starts at
 * `start`. */
static void cursor_advance(prefix_cursor *cursor, uint64_t start, uint64_t count)
{
    const kvarve_prefix *prefix = cursor->prefix;
    const uint64_t step = count / STEP_TOKENS;
    const uint64_t saved = step * STEP_TOKENS > start ? step * STEP_TOKENS - PENDING_TOKENS : start;
    size_t blocks;

    if (cursor->place <= saved) {
        if (saved > start) {
            cursor->place = saved;
            cursor->chain = prefix->steps[step].chain;
        } else {
            uint8_t head[SHA256_BLOCK];

            memcpy(head, prefix->steps[step].digest, KVARVE_DIGEST_SIZE);
            memcpy(head + KVARVE_DIGEST_SIZE, prefix->tokens + start, PENDING_SIZE);
            sha256_chain_init(&cursor->chain);
            sha256_chain_blocks(&cursor->chain, head, 1);
            cursor->place = start + PENDING_TOKENS;
        }
    }
    blocks = (size_t)((count - cursor->place) / BLOCK_TOKENS);
    sha256_chain_blocks(&cursor->chain, prefix->tokens + cursor->place, blocks);
    cursor->place += blocks * BLOCK_TOKENS;
}

void prefix_cursor_digest(prefix_cursor *cursor, uint64_t count, uint8_t out[KVARVE_DIGEST_SIZE])
{
    const kvarve_prefix *prefix = cursor->prefix;
    const uint64_t start = (count - 1) / KEY_CHUNK_TOKENS * KEY_CHUNK_TOKENS;
    uint8_t tail[SHA256_BLOCK + SHA256_PADDING_MAX];
    sha256_chain chain;
    size_t size = 0;

    KVARVE_ASSERT(count > 0 && count <= prefix->length);
    if (count % KEY_CHUNK_TOKENS == 0) {
        memcpy(out, prefix->steps[count / STEP_TOKENS].digest, KVARVE_DIGEST_SIZE);
        return;
    }
    if (count - start >= PENDING_TOKENS) {
        cursor_advance(cursor, start, count);
        chain = cursor->chain;
        size = (size_t)(count - cursor->place) * 4;
        memcpy(tail, prefix->tokens + cursor->place, size);
    } else {
        sha256_chain_init(&chain);
        memcpy(tail, prefix->steps[start / STEP_TOKENS].digest, KVARVE_DIGEST_SIZE);
        memcpy(tail + KVARVE_DIGEST_SIZE, prefix->tokens + start, (size_t)(count - start) * 4);
        size = KVARVE_DIGEST_SIZE + (size_t)(count - start) * 4;
    }
    size += sha256_pad(tail + size, KVARVE_DIGEST_SIZE + (count - start) * 4);
    sha256_chain_blocks(&chain, tail, size / SHA256_BLOCK);
    sha256_chain_digest(&chain, out);
}
