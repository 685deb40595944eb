/*
 * letter_private.h - the memory in which a client's long arguments go to the daemon: room in it,
 * and the images of prefixes.
 *
 * Threads: under the client's lock. Ownership: the letter owns its mapping; ranges are the
 * caller's until they are given back, which is when the daemon has answered.
 */
#ifndef KVARVE_CLIENT_LETTER_PRIVATE_H
#define KVARVE_CLIENT_LETTER_PRIVATE_H

#include "env/env.h"
#include "kvarve/error.h"
#include "kvarve/prefix.h"
#include "protocol/protocol.h"

#define LETTER_IMAGES 16u /* prefixes that are kept for their next use */

/* The image of a prefix as it was at its last use. */
typedef struct client_letter_image {
    const kvarve_prefix *prefix; /* NULL: free. Only compared: it may be gone */
    wire_letter range;
    uint64_t token_room; /* tokens first, then the steps of as many */
    uint64_t length;     /* tokens that stand there */
    uint32_t users;      /* requests that are not answered yet */
    uint64_t used;       /* when, for choosing whom to forget */
} client_letter_image;

typedef struct client_letter {
    const kvarve_env *env;
    kvarve_mapping mapping;
    uint64_t populated; /* bytes from the start that were really allocated */
    wire_letter *used;  /* taken ranges, by offset */
    size_t used_count;
    size_t used_room;
    client_letter_image images[LETTER_IMAGES];
    uint64_t clock;
} client_letter;

/* Make one of `bytes`; 0: as large as can be had. KVARVE_NO_MEMORY. */
KVARVE_NODISCARD kvarve_status client_letter_open(client_letter *at, const kvarve_env *env,
                                                  uint64_t bytes, kvarve_error *err);
void client_letter_close(client_letter *at); /* also one that was not opened */

/* Room for `size` bytes; of none an empty range. KVARVE_NO_MEMORY: there is none. */
KVARVE_NODISCARD kvarve_status client_letter_take(client_letter *at, uint64_t size,
                                                  wire_letter *out, kvarve_error *err);
void client_letter_give(client_letter *at, wire_letter range); /* an empty one: nothing */
uint8_t *client_letter_bytes(const client_letter *at, wire_letter range);

/* A copy of `size` bytes. */
KVARVE_NODISCARD kvarve_status client_letter_put(client_letter *at, const void *bytes,
                                                 uint64_t size, wire_letter *out,
                                                 kvarve_error *err);

/* Have the image of `prefix` there; client_letter_done when the request that names it was answered.
 */
KVARVE_NODISCARD kvarve_status client_letter_prefix(client_letter *at, const kvarve_prefix *prefix,
                                                    wire_prefix *out,
                                                    client_letter_image **out_image,
                                                    kvarve_error *err);
void client_letter_done(client_letter_image *image); /* NULL: nothing */

#endif
