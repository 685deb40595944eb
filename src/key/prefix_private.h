/*
 * prefix_private.h - digests of several prefixes in one pass, for prefix.c and page_key.c.
 *
 * Threads: a cursor is used by one thread; any number of cursors may walk one prefix that nobody
 * changes.
 */
#ifndef KVARVE_KEY_PREFIX_PRIVATE_H
#define KVARVE_KEY_PREFIX_PRIVATE_H

#include <stdint.h>

#include "hash/hash.h"
#include "kvarve/prefix.h"

/* How far hashing has come: `chain` has taken in what the chunk holds before token `place`. */
typedef struct prefix_cursor {
    const kvarve_prefix *prefix;
    uint64_t place; /* 0: nowhere yet */
    sha256_chain chain;
} prefix_cursor;

void prefix_cursor_init(prefix_cursor *cursor, const kvarve_prefix *prefix);

/*
 * The digest of the first `count` tokens, 1 .. length. Counts asked of one cursor do not fall; then
 * no token is hashed twice, whatever lies between them.
 */
void prefix_cursor_digest(prefix_cursor *cursor, uint64_t count, uint8_t out[KVARVE_DIGEST_SIZE]);

#endif
