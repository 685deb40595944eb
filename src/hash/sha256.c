/*
 * sha256.c - SHA-256 by libcrypto's low-level contexts.
 *
 * The low-level functions are marked deprecated in OpenSSL 3, but nothing else there can be copied
 * by assignment or resumed from a chaining value, and a copy through EVP allocates. They are used
 * in this file alone, so replacing them is a change of one file.
 *
 * Invariant: a sha256_chain and a sha256_state compute the same function; the chain leaves cutting
 * and padding to its user. Threads: any, there is no shared state. Nothing allocates.
 */
#include "hash/hash.h"

#include <assert.h>
#include <string.h>

/* The only way to save and resume a computation cheaply; see above. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <openssl/sha.h>

static_assert(sizeof(SHA256_CTX) <= sizeof(((sha256_state *)NULL)->storage),
              "a state holds a context");
static_assert(_Alignof(SHA256_CTX) <= _Alignof(sha256_state), "a state is aligned for a context");
static_assert(sizeof(SHA_LONG) == sizeof(uint32_t), "chaining words are 32 bits");

static SHA256_CTX *context_of(sha256_state *state)
{
    return (SHA256_CTX *)(void *)state->storage;
}

/* SHA256_* answer 1 always; there is nothing to check. */
void sha256_init(sha256_state *state)
{
    (void)SHA256_Init(context_of(state));
}

void sha256_update(sha256_state *state, const void *bytes, size_t size)
{
    if (size > 0) {
        (void)SHA256_Update(context_of(state), bytes, size);
    }
}

void sha256_final(sha256_state *state, uint8_t out[SHA256_SIZE])
{
    (void)SHA256_Final(out, context_of(state));
}

void sha256(const void *bytes, size_t size, uint8_t out[SHA256_SIZE])
{
    sha256_state state;

    sha256_init(&state);
    sha256_update(&state, bytes, size);
    sha256_final(&state, out);
}

void sha256_chain_init(sha256_chain *chain)
{
    static const sha256_chain start = {{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                                        0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};

    *chain = start;
}

void sha256_chain_blocks(sha256_chain *chain, const void *blocks, size_t count)
{
    SHA256_CTX context;

    if (count == 0) {
        return;
    }
    /* With no byte pending, an update of whole blocks reads nothing of the context but these. */
    memcpy(context.h, chain->words, sizeof chain->words);
    context.Nl = 0;
    context.Nh = 0;
    context.num = 0;
    context.md_len = SHA256_SIZE;
    (void)SHA256_Update(&context, blocks, count * SHA256_BLOCK);
    memcpy(chain->words, context.h, sizeof chain->words);
}

void sha256_chain_digest(const sha256_chain *chain, uint8_t out[SHA256_SIZE])
{
    for (size_t i = 0; i < 8; i++) {
        const uint32_t word = __builtin_bswap32(chain->words[i]);

        memcpy(out + 4 * i, &word, sizeof word);
    }
}

size_t sha256_pad(uint8_t *end, uint64_t message_size)
{
    const size_t pending = (size_t)(message_size % SHA256_BLOCK);
    const size_t zeros = (pending < 56 ? 55 : 119) - pending;
    const uint64_t bits = __builtin_bswap64(message_size * 8);

    end[0] = 0x80;
    memset(end + 1, 0, zeros);
    memcpy(end + 1 + zeros, &bits, sizeof bits);
    return 1 + zeros + sizeof bits;
}
