/*
 * arena.h - pages in RAM: slots in one shared mapping, and their states.
 *
 * The mapping is cut into chunks of 256 KiB after a first block that describes it
 * (format/arena_file.h). Slots of one size share a zone, a run of neighbouring chunks of which at
 * most an eighth is left over where the arena is large enough; the largest have a zone of their
 * own. A slot's size is the page's, rounded up to 4096: nothing is padded to the widest group.
 *
 *   free -> reserved -> filled -> sealed
 *   reserved -> sealed            the writer's digest came with the bytes
 *   reserved, filled, sealed -> free        given back, nobody in it
 *   reserved, filled, sealed -> draining -> free        given back, free at the last unpin
 *
 *   free      nobody's.
 *
 *   reserved  one writer copies into it; its owner's abort or death frees it once no copy is
 *             running (each running copy holds a pin).
 *
 *   filled    the writer is done, the digest is being taken; as reserved.
 *
 *   sealed    immutable and readable; evicted at the store's wish when nobody pins it.
 *
 *   draining  to be freed when the last pin goes; nobody new may pin it.
 *
 * Threads  One caller at a time (the store's lock) for everything but the bytes themselves.
 */
#ifndef KVARVE_ARENA_ARENA_H
#define KVARVE_ARENA_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "env/env.h"
#include "format/arena_file.h"
#include "kvarve/error.h"

#define ARENA_SLOT_MAX (UINT32_C(1) << 30) /* bytes of the largest slot */

typedef struct kvarve_arena kvarve_arena;

/* A slot's number; ARENA_NONE: none. Stays the same while the slot is not free. */
typedef uint32_t arena_slot;
#define ARENA_NONE UINT32_MAX

typedef enum slot_state {
    SLOT_FREE,
    SLOT_RESERVED,
    SLOT_FILLED,
    SLOT_SEALED,
    SLOT_DRAINING,
} slot_state;

#define SLOT_STATE_COUNT 5

/*
 * Make an arena of `bytes` (rounded up to whole chunks; 1 MiB .. 2^44) and really allocate its
 * first 64 MiB; the rest is allocated by jobs in the COPY lane, 64 MiB each and one at a time, and
 * counts as room when it is there. KVARVE_NO_MEMORY, with the numbers in the text, when memory
 * would go above 90 % of what is free; KVARVE_INVALID for bytes out of range.
 */
KVARVE_NODISCARD kvarve_status arena_open(const kvarve_env *env, uint64_t bytes, kvarve_arena **out,
                                          kvarve_error *err);
/* The same in memory that other processes can map: arena_mapping has its descriptor. */
KVARVE_NODISCARD kvarve_status arena_open_shared(const kvarve_env *env, uint64_t bytes,
                                                 kvarve_arena **out, kvarve_error *err);

/* All of it, head included; borrowed until the close. */
const kvarve_mapping *arena_mapping(const kvarve_arena *arena);

/* Write into the head whose pages these are, before anybody else maps the arena; epoch 1 or more.
 * Until then it is nobody's. */
void arena_set_owner(kvarve_arena *arena, const store_uuid *store, uint64_t epoch);

/* Submit no further job. One that was submitted still runs: poll the executor before the close. */
void arena_stop_populating(kvarve_arena *arena);

/* No slot may be in use by a copy, and no job pending. NULL is a no-op. */
void arena_close(kvarve_arena *arena);

/*
 * A reserved slot for `size` bytes (1 .. 2^30), or KVARVE_BUSY when there is no room now (so far
 * populated, and not in use). KVARVE_NO_SPACE: it will never fit. KVARVE_NO_MEMORY: the table of
 * slots could not grow; evicting does not help.
 */
KVARVE_NODISCARD kvarve_status arena_reserve(kvarve_arena *arena, uint32_t size, arena_slot *out);

/* Whether slots of these sizes could all be had if the arena were empty and populated: for refusing
 * what can never fit. Where it says yes to an empty arena, arena_reserve keeps that, in any order.
 */
bool arena_could_hold(const kvarve_arena *arena, const uint32_t *sizes, size_t count);

slot_state arena_state(const kvarve_arena *arena, arena_slot slot);
uint32_t arena_pins(const kvarve_arena *arena, arena_slot slot);

/* Its bytes, 4096-aligned; the slot's room is its size rounded up to 4096. Not of a free slot. */
void *arena_address(const kvarve_arena *arena, arena_slot slot);
/* The same, counted from the start of the mapping. */
uint64_t arena_offset(const kvarve_arena *arena, arena_slot slot);
uint32_t arena_size(const kvarve_arena *arena, arena_slot slot);

void arena_fill(kvarve_arena *arena, arena_slot slot); /* reserved -> filled */
void arena_seal(kvarve_arena *arena, arena_slot slot); /* reserved or filled -> sealed */
/* One more user of a reserved, filled or sealed slot. */
void arena_pin(kvarve_arena *arena, arena_slot slot);
/* One user less; frees a draining slot at the last. True when it is free now. */
bool arena_unpin(kvarve_arena *arena, arena_slot slot);
/* Give the slot back (not a draining one): free at once without pins, else draining until the last
 * one goes. True when it is free now. */
bool arena_drop(kvarve_arena *arena, arena_slot slot);

typedef struct arena_counters {
    uint64_t bytes;                          /* of all chunks: the mapping without its head */
    uint64_t populated_bytes;                /* of them, really allocated by now */
    uint64_t used_bytes;                     /* room of slots that are not free */
    uint64_t free_bytes;                     /* of populated chunks without any slot in use */
    uint64_t slots_in_use[SLOT_STATE_COUNT]; /* by slot_state; of SLOT_FREE always 0 */
    bool is_huge;
    bool is_populating; /* a job is pending */
    bool is_short;      /* populating stopped early: memory would have gone above the limit */
} arena_counters;

void arena_count(const kvarve_arena *arena, arena_counters *out);

#endif
