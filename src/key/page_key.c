/*
 * page_key.c - the names of pages and checkpoints.
 *
 * A key is SHA-256 over domain, token digest and a small JSON array. The array is written by hand:
 * it has three fields, all of them ASCII, and it is hashed once a page. For the pages of a span
 * only the digest and the number change, so message and padding are made once and patched.
 *
 * Invariant: bytes that are hashed are those of docs/format/identity.md, whatever way they were put
 * together. Threads: any. Nothing allocates.
 */
#include "key/key.h"

#include <assert.h>
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"
#include "key/prefix_private.h"

#define PAGE_DOMAIN       "lmcache-recurrent-page-v1"
#define CHECKPOINT_DOMAIN "kvarve-checkpoint-v1"
#define CONTENT_DOMAIN    "lmcache-recurrent-content-v1\0manifest"
#define GENERATION_DOMAIN "lmcache-recurrent-generation-v1"
#define GENERATION_HEAD   "recurrent-content-v1:"
#define DECIMAL_MAX       20 /* digits of a 64-bit number */

/* domain 0 digest 0 ["namespace",number,"discriminator"] and padding */
#define KEY_MESSAGE_SIZE                                                                           \
    (sizeof PAGE_DOMAIN + SHA256_SIZE + 1 + NAMESPACE_TEXT_SIZE + DECIMAL_MAX +                    \
     DISCRIMINATOR_TEXT_SIZE + 8 + SHA256_PADDING_MAX)

static_assert(sizeof GENERATION_HEAD - 1 + 64 + 1 <= GENERATION_TEXT_SIZE, "a generation fits");

/* Text that grows at its end; whoever owns the bytes has made sure that they suffice. */
typedef struct text {
    char *end;
} text;

static void add_bytes(text *to, const void *bytes, size_t size)
{
    memcpy(to->end, bytes, size);
    to->end += size;
}

static void add(text *to, const char *string)
{
    add_bytes(to, string, strlen(string));
}

static void add_number(text *to, uint64_t value)
{
    char digits[DECIMAL_MAX];
    size_t at = sizeof digits;

    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    add_bytes(to, digits + at, sizeof digits - at);
}

const char *checkpoint_kind_text(checkpoint_kind kind)
{
    switch (kind) {
    case KIND_INSTRUCTION:
        return "instruction";
    case KIND_PROMPT:
        return "prompt";
    case KIND_RESPONSE:
        return "response";
    }
    KVARVE_UNREACHABLE();
}

void page_discriminator_text(const page_discriminator *what, uint64_t tokens,
                             char out[DISCRIMINATOR_TEXT_SIZE])
{
    text to = {out};

    switch (what->class) {
    case PAGE_PREFIX:
    case PAGE_WINDOW:
        KVARVE_ASSERT(what->part == 0);
        add(&to, "attention:");
        add_number(&to, what->group);
        if (what->has_draft_rows && what->draft_tokens < tokens) {
            add(&to, ":draft:");
            add_number(&to, what->draft_tokens);
        }
        break;
    case PAGE_ENDPOINT:
        add(&to, "recurrent:");
        add_number(&to, what->group);
        break;
    case PAGE_AUXILIARY:
        add(&to, "auxiliary:");
        add_number(&to, what->draft_tokens);
        add(&to, ":");
        add(&to, checkpoint_kind_text(what->kind));
        break;
    }
    if (what->state_bytes > 0) {
        add(&to, ":bytes:");
        add_number(&to, what->state_bytes);
    }
    if (what->part > 0) {
        add(&to, ":part:");
        add_number(&to, what->part);
    }
    if (what->exact != NULL) {
        add(&to, ":x:");
        hex_encode(to.end, what->exact->bytes, sizeof what->exact->bytes);
        to.end += 2 * sizeof what->exact->bytes;
    }
    *to.end = '\0';
    KVARVE_ASSERT(to.end < out + DISCRIMINATOR_TEXT_SIZE);
}

/* The message of a page's key. All but digest and number stays while pages of one group are named.
 */
typedef struct key_message {
    char bytes[KEY_MESSAGE_SIZE];
    char *digest;
    char *number;
    char *number_end; /* NULL: what follows the number is not written yet */
    size_t blocks;
    char discriminator[DISCRIMINATOR_TEXT_SIZE];
} key_message;

static void message_init(key_message *message, const namespace_key *name)
{
    text to = {message->bytes};

    add_bytes(&to, PAGE_DOMAIN, sizeof PAGE_DOMAIN);
    message->digest = to.end;
    to.end += SHA256_SIZE;
    add_bytes(&to, "\0[\"", 3);
    add(&to, name->text);
    add(&to, "\",");
    message->number = to.end;
    message->number_end = NULL;
}

/* The key of the page at `tokens`; digest and discriminator are in the message. */
static void message_key(key_message *message, uint64_t tokens, page_key *out)
{
    text to = {message->number};
    sha256_chain chain;

    add_number(&to, tokens);
    if (to.end != message->number_end) {
        size_t size;

        message->number_end = to.end;
        add(&to, ",\"");
        add(&to, message->discriminator);
        add(&to, "\"]");
        size = (size_t)(to.end - message->bytes);
        size += sha256_pad((uint8_t *)to.end, size);
        KVARVE_ASSERT(size <= sizeof message->bytes && size % SHA256_BLOCK == 0);
        message->blocks = size / SHA256_BLOCK;
    }
    sha256_chain_init(&chain);
    sha256_chain_blocks(&chain, message->bytes, message->blocks);
    sha256_chain_digest(&chain, out->bytes);
}

page_key page_key_of(const namespace_key *name, const uint8_t digest[KVARVE_DIGEST_SIZE],
                     uint64_t tokens, const page_discriminator *what)
{
    key_message message;
    page_key key;

    message_init(&message, name);
    memcpy(message.digest, digest, KVARVE_DIGEST_SIZE);
    page_discriminator_text(what, tokens, message.discriminator);
    message_key(&message, tokens, &key);
    return key;
}

/* The last of `count` ends is within the prefix, and none is 0. */
static bool span_is_within(const kvarve_prefix *prefix, uint64_t first_tokens, uint64_t span,
                           size_t count)
{
    uint64_t last;

    return first_tokens > 0 && (span > 0 || count == 1) &&
           !KVARVE_MUL_OVERFLOWS(span, count - 1, &last) &&
           !KVARVE_ADD_OVERFLOWS(last, first_tokens, &last) && last <= kvarve_prefix_length(prefix);
}

void page_keys_of_span(const namespace_key *name, const kvarve_prefix *prefix,
                       uint64_t first_tokens, uint64_t span, size_t count, uint32_t group,
                       page_key *out_keys)
{
    const page_discriminator what = {.class = PAGE_PREFIX, .group = group};
    key_message message;
    prefix_cursor cursor;

    KVARVE_ASSERT(count == 0 || span_is_within(prefix, first_tokens, span, count));
    message_init(&message, name);
    page_discriminator_text(&what, first_tokens, message.discriminator);
    prefix_cursor_init(&cursor, prefix);
    for (size_t i = 0; i < count; i++) {
        const uint64_t tokens = first_tokens + i * span;

        prefix_cursor_digest(&cursor, tokens, (uint8_t *)message.digest);
        message_key(&message, tokens, &out_keys[i]);
    }
}

void prefix_digests_of_span(const kvarve_prefix *prefix, uint64_t first_tokens, uint64_t span,
                            size_t count, uint8_t (*out_digests)[KVARVE_DIGEST_SIZE])
{
    prefix_cursor cursor;

    KVARVE_ASSERT(count == 0 || span_is_within(prefix, first_tokens, span, count));
    prefix_cursor_init(&cursor, prefix);
    for (size_t i = 0; i < count; i++) {
        prefix_cursor_digest(&cursor, first_tokens + i * span, out_digests[i]);
    }
}

page_key checkpoint_id_of(const namespace_key *name, const uint8_t digest[KVARVE_DIGEST_SIZE],
                          uint64_t tokens, checkpoint_kind kind, uint64_t draft_tokens,
                          const page_key *page_keys, size_t count)
{
    char json[NAMESPACE_TEXT_SIZE + 3 * DECIMAL_MAX + 32];
    text to = {json};
    sha256_state state;
    page_key id;

    add(&to, "[\"");
    add(&to, name->text);
    add(&to, "\",");
    add_number(&to, tokens);
    add(&to, ",\"");
    add(&to, checkpoint_kind_text(kind));
    add(&to, "\",");
    add_number(&to, draft_tokens);
    add(&to, ",");
    add_number(&to, count);
    add(&to, "]");
    sha256_init(&state);
    sha256_update(&state, CHECKPOINT_DOMAIN, sizeof CHECKPOINT_DOMAIN);
    sha256_update(&state, digest, KVARVE_DIGEST_SIZE);
    sha256_update(&state, "", 1);
    sha256_update(&state, json, (size_t)(to.end - json));
    for (size_t i = 0; i < count; i++) {
        sha256_update(&state, page_keys[i].bytes, sizeof page_keys[i].bytes);
    }
    sha256_final(&state, id.bytes);
    return id;
}

/* SHA-256 over the reference's description of a boundary: the digest before its last chunk, and
 * that chunk's tokens. */
static void boundary_digest(const namespace_key *name, const kvarve_prefix *prefix, uint64_t tokens,
                            uint8_t out[SHA256_SIZE])
{
    const uint64_t start = (tokens - 1) / KEY_CHUNK_TOKENS * KEY_CHUNK_TOKENS;
    const uint32_t *all = kvarve_prefix_tokens(prefix);
    uint8_t before[KVARVE_DIGEST_SIZE];
    char buffer[NAMESPACE_TEXT_SIZE + 2 * KVARVE_DIGEST_SIZE + DECIMAL_MAX + 96];
    text to = {buffer};
    sha256_state state;

    prefix_chunk_digest(prefix, start / KEY_CHUNK_TOKENS, before);
    add(&to, "{\"namespace\":\"");
    add(&to, name->text);
    add(&to, "\",\"prefix_hash\":\"");
    hex_encode(to.end, before, sizeof before);
    to.end += 2 * sizeof before;
    add(&to, "\",\"start_tokens\":");
    add_number(&to, start);
    add(&to, ",\"tail_tokens\":[");
    sha256_init(&state);
    sha256_update(&state, CONTENT_DOMAIN, sizeof CONTENT_DOMAIN);
    for (uint64_t i = start; i < tokens; i++) {
        add_number(&to, all[i]);
        add(&to, i + 1 < tokens ? "," : "]}");
        sha256_update(&state, buffer, (size_t)(to.end - buffer));
        to.end = buffer;
    }
    sha256_final(&state, out);
}

kvarve_status generation_of(const namespace_key *name, const kvarve_prefix *prefix, uint64_t tokens,
                            const void *payload, size_t payload_size,
                            char out[GENERATION_TEXT_SIZE], kvarve_error *err)
{
    uint8_t digest[SHA256_SIZE];
    sha256_state state;

    if (tokens == 0 || tokens > kvarve_prefix_length(prefix)) {
        return kvarve_fail(err, KVARVE_INVALID, "manifest id of %llu tokens of a prefix of %llu",
                           (unsigned long long)tokens,
                           (unsigned long long)kvarve_prefix_length(prefix));
    }
    boundary_digest(name, prefix, tokens, digest);
    sha256_init(&state);
    sha256_update(&state, GENERATION_DOMAIN, sizeof GENERATION_DOMAIN);
    sha256_update(&state, digest, sizeof digest);
    sha256_update(&state, "", 1);
    sha256_update(&state, payload, payload_size);
    sha256_final(&state, digest);
    memcpy(out, GENERATION_HEAD, sizeof GENERATION_HEAD);
    hex_encode(out + sizeof GENERATION_HEAD - 1, digest, sizeof digest);
    return KVARVE_OK;
}

__extension__ typedef unsigned __int128 wide;

/* The remainder by folding: 2^61 is 1 modulo 2^61 - 1. A division takes ten times as long. */
static inline uint64_t tail_step(uint64_t value, uint32_t token)
{
    const uint64_t modulus = (UINT64_C(1) << 61) - 1;
    const wide sum = (wide)value * 1000003 + token + 1;
    const uint64_t folded = (uint64_t)(sum & modulus) + (uint64_t)(sum >> 61);

    return folded >= modulus ? folded - modulus : folded;
}

uint64_t tail_hash_step(uint64_t value, uint32_t token)
{
    return tail_step(value, token);
}

void tail_hash_run(const uint32_t *tokens, size_t count, uint64_t *out)
{
    uint64_t value = 0;

    out[0] = 0;
    for (size_t i = 0; i < count; i++) {
        value = tail_step(value, tokens[i]);
        out[i + 1] = value;
    }
}
