/*
 * hash.h - digests and nothing else: SHA-256 for identities, XXH3-128 for bytes.
 *
 * SHA-256 comes from OpenSSL's libcrypto (low-level contexts: they use the CPU's SHA instructions
 * and copy by assignment), XXH3 from libxxhash and, joined with a copy, from here. Pure: no
 * allocation, no global state that a caller could see. Threads: any; one state is used by one
 * thread at a time.
 */
#ifndef KVARVE_HASH_HASH_H
#define KVARVE_HASH_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHA256_SIZE 32 /* bytes */

/* A SHA-256 in progress. Copy it by assignment to fork the computation. */
typedef struct sha256_state {
    _Alignas(8) uint8_t storage[112];
} sha256_state;

void sha256_init(sha256_state *state);
void sha256_update(sha256_state *state, const void *bytes, size_t size);
/* Finish; the state is used up. */
void sha256_final(sha256_state *state, uint8_t out[SHA256_SIZE]);
/* One call for init, update, final. */
void sha256(const void *bytes, size_t size, uint8_t out[SHA256_SIZE]);

#define SHA256_BLOCK 64 /* bytes */

/*
 * A SHA-256 after whole blocks only: the chaining value and nothing else, 32 bytes. The caller cuts
 * blocks, counts bytes and pads; it is what remains of a state when the message can be read again.
 */
typedef struct sha256_chain {
    uint32_t words[8];
} sha256_chain;

void sha256_chain_init(sha256_chain *chain);
/* Take in `count` blocks of SHA256_BLOCK bytes each. */
void sha256_chain_blocks(sha256_chain *chain, const void *blocks, size_t count);
/* The digest of a message whose last block, padding included, has been taken in. */
void sha256_chain_digest(const sha256_chain *chain, uint8_t out[SHA256_SIZE]);

/* The most bytes that sha256_pad adds. */
#define SHA256_PADDING_MAX 72
/*
 * Write the padding of a message of `message_size` bytes to `end`, where the message ends. Returns
 * how many bytes that is; with them the message is a whole number of blocks.
 */
size_t sha256_pad(uint8_t *end, uint64_t message_size);

/*
 * The XXH3-128 of bytes (seed 0). Stored and printed as the 16 bytes of its canonical (big-endian)
 * form.
 */
typedef struct page_digest {
    uint8_t bytes[16];
} page_digest;

page_digest page_digest_of(const void *bytes, size_t size);

/*
 * Copy `size` bytes from `from` to `to` and digest what arrived in `to`: each byte is read once, so
 * a source that changes meanwhile is noticed. No overlap. Large copies go past the cache; they are
 * fastest where `to` is 32-byte aligned, then 16-byte aligned.
 */
page_digest page_digest_copy(void *to, const void *from, size_t size);

/* The same in pieces: begin, then any number of update or copy, then end. */
typedef struct page_digest_state {
    _Alignas(64) uint8_t storage[640];
} page_digest_state;

void page_digest_begin(page_digest_state *state);
void page_digest_update(page_digest_state *state, const void *bytes, size_t size);
void page_digest_update_copy(page_digest_state *state, void *to, const void *from, size_t size);
page_digest page_digest_end(page_digest_state *state);

bool page_digest_is_equal(const page_digest *a, const page_digest *b);

/* Write 2 * size lower-case hex digits and a NUL to `out`. */
void hex_encode(char *out, const void *bytes, size_t size);
/* Read exactly 2 * size lower-case hex digits; false when `text` is anything else (it may go on
 * after them). */
bool hex_decode(void *out, size_t size, const char *text);

#endif
