/*
 * chunk_map_private.h - which chunks of an arena are free, and where a run of them is.
 *
 * A bit a chunk, and above them a bit a word that says whether the word has any, so that a search
 * steps over what is full. Threads: one caller at a time.
 */
#ifndef KVARVE_ARENA_CHUNK_MAP_PRIVATE_H
#define KVARVE_ARENA_CHUNK_MAP_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#define CHUNK_NONE UINT32_MAX

typedef struct chunk_map {
    uint64_t *words;   /* a set bit: this chunk is free */
    uint64_t *summary; /* a set bit: this word is not zero */
    uint32_t count;
    uint32_t free_count;
    uint32_t refused; /* no run of this many is free; UINT32_MAX: not known */
} chunk_map;

/* `count` chunks (1 .. 2^31), none of them free. False when there is no memory. */
bool chunk_map_init(chunk_map *map, uint32_t count);
void chunk_map_deinit(chunk_map *map); /* also of a zeroed or half-made one */

/* Take the lowest run of `length` (1 or more) free chunks; its first, or CHUNK_NONE. */
uint32_t chunk_map_take(chunk_map *map, uint32_t length);

/* These `length` chunks, none of them free, are free from now on. */
void chunk_map_give(chunk_map *map, uint32_t first, uint32_t length);

#endif
