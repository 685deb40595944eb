/*
 * arena.c - zones of equal slots in one mapping, the table of slots and their states.
 *
 * Invariants
 *
 *   I1  A chunk is free, or belongs to one zone, or is not populated yet. A position of a zone is
 *       free or belongs to one slot. So no two slots overlap.
 *
 *   I2  A zone without a slot in use does not exist: its chunks are free again.
 *
 *   I3  A zone stands in the list of its class exactly while it has a free position; these are used
 *       before a new zone is made.
 *
 *   I4  In an empty arena every zone made is of the best shape, one behind the other from the first
 *       chunk on. arena_could_hold counts on that.
 *
 * Threads: one caller at a time (the store's lock). A populate job reads the mapping's description
 * and writes its own fields only.
 *
 * Ownership: the arena owns mapping and tables; the env is borrowed. Memory is never given back
 * before the close, and nothing is zeroed: whoever reserves a slot overwrites what it says.
 *
 * Absent on purpose: eviction, which is the store's, and adoption of an older arena.
 */
#include "arena/arena.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>

#include "arena/chunk_map_private.h"
#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/list.h"

#define MAGIC            UINT32_C(0x4b564152)
#define PIECE_BYTES      (UINT64_C(64) << 20) /* populated at once */
#define UNITS_A_CHUNK    (ARENA_CHUNK_BYTES / ARENA_UNIT)
#define ZONE_CHUNKS_MAX  16u /* of a zone with several slots */
#define ZONE_SLOTS_MAX   64u
#define ZONE_SHARE       16u /* a zone with several slots takes at most this part of the arena */
#define ZONE_LEFT_OVER   8u  /* and at most this part of it is left over, where that can be had */
#define SHARED_UNITS_MAX (ZONE_CHUNKS_MAX * UNITS_A_CHUNK / 2) /* larger slots are alone */
#define SLOTS_FIRST      1024u                                 /* of the table when it is made */

static_assert(ARENA_BYTES_MAX / ARENA_CHUNK_BYTES < CHUNK_NONE, "a chunk's number fits");
static_assert(ZONE_SLOTS_MAX <= 64, "positions of a zone are bits of one word");

/* How many chunks a zone takes and how many slots are in it. */
typedef struct zone_shape {
    uint32_t chunks;
    uint32_t slots;
} zone_shape;

typedef struct zone {
    kvarve_link link;        /* in the list of its class while a position is free */
    uint64_t free_positions; /* a bit a position */
    uint32_t units;          /* of a slot: its class; 0: no zone begins here */
    uint16_t chunks;
    uint16_t slots;
} zone;

typedef struct slot_entry {
    uint32_t chunk; /* its zone's first; of a free slot: the next free one's number */
    uint32_t size;
    uint32_t pins;
    uint8_t position; /* in its zone */
    uint8_t state;
} slot_entry;

struct kvarve_arena {
    uint32_t magic;
    uint32_t chunk_count;
    const kvarve_env *env;
    kvarve_mapping mapping;
    chunk_map chunks;
    zone *zones;                               /* by first chunk */
    kvarve_list classes[SHARED_UNITS_MAX + 1]; /* zones with a free position, by units */

    slot_entry *slots;
    uint32_t slots_made; /* numbers handed out at least once */
    uint32_t slots_room;
    uint32_t slots_max;
    arena_slot slots_free; /* head of the list of free numbers */

    uint32_t populated_chunks;
    bool is_populating;
    bool is_stopped;
    bool is_short;
    kvarve_job populate;
    uint64_t populate_offset; /* the job's from here on, while it is pending */
    uint64_t populate_size;
    int populate_rc;

    uint64_t used_bytes;
    uint64_t in_state[SLOT_STATE_COUNT];
};

/* The one table of moves: bit `to` of row `from`. */
#define TO(state) (1u << (state))
static const uint8_t moves[SLOT_STATE_COUNT] = {
    [SLOT_FREE] = TO(SLOT_RESERVED),
    [SLOT_RESERVED] = TO(SLOT_FILLED) | TO(SLOT_SEALED) | TO(SLOT_DRAINING) | TO(SLOT_FREE),
    [SLOT_FILLED] = TO(SLOT_SEALED) | TO(SLOT_DRAINING) | TO(SLOT_FREE),
    [SLOT_SEALED] = TO(SLOT_DRAINING) | TO(SLOT_FREE),
    [SLOT_DRAINING] = TO(SLOT_FREE),
};

static slot_entry *slot_at(const kvarve_arena *arena, arena_slot number)
{
    KVARVE_ASSERT(arena->magic == MAGIC);
    KVARVE_ASSERT(number < arena->slots_made);
    return &arena->slots[number];
}

static const slot_entry *used_slot_at(const kvarve_arena *arena, arena_slot number)
{
    const slot_entry *at = slot_at(arena, number);

    KVARVE_ASSERT(at->state != SLOT_FREE);
    return at;
}

static uint32_t units_of(uint32_t size)
{
    return (uint32_t)kvarve_divide_up(size, ARENA_UNIT);
}

static void move(kvarve_arena *arena, slot_entry *at, slot_state to)
{
    KVARVE_ASSERT((moves[at->state] & TO(to)) != 0);
    if (at->state != SLOT_FREE) {
        arena->in_state[at->state]--;
    }
    if (to != SLOT_FREE) {
        arena->in_state[to]++;
    }
    at->state = (uint8_t)to;
}

/* Populating */

static void run_populate(kvarve_job *job)
{
    kvarve_arena *arena = KVARVE_LIST_ITEM(job, kvarve_arena, populate);
    kvarve_memory *memory = arena->env->memory;

    arena->populate_rc = memory->populate(memory, &arena->mapping, (size_t)arena->populate_offset,
                                          (size_t)arena->populate_size);
}

/* What is populated next. The first piece has the head in it; chunks end where pieces end. */
static void choose_piece(kvarve_arena *arena)
{
    const uint64_t done = (uint64_t)arena->populated_chunks * ARENA_CHUNK_BYTES;
    const uint64_t all = (uint64_t)arena->chunk_count * ARENA_CHUNK_BYTES;

    arena->populate_offset = done == 0 ? 0 : done + ARENA_HEAD_SIZE;
    arena->populate_size =
        kvarve_min_u64(PIECE_BYTES, all - done) + (done == 0 ? ARENA_HEAD_SIZE : 0);
}

static void take_in_piece(kvarve_arena *arena)
{
    const uint32_t count = (uint32_t)(arena->populate_size / ARENA_CHUNK_BYTES);

    chunk_map_give(&arena->chunks, arena->populated_chunks, count);
    arena->populated_chunks += count;
}

static void submit_populate(kvarve_arena *arena)
{
    if (arena->is_stopped || arena->populated_chunks == arena->chunk_count) {
        return;
    }
    choose_piece(arena);
    arena->is_populating = true;
    arena->env->executor->submit(arena->env->executor, &arena->populate);
}

static void done_populate(kvarve_job *job)
{
    kvarve_arena *arena = KVARVE_LIST_ITEM(job, kvarve_arena, populate);

    arena->is_populating = false;
    if (arena->populate_rc < 0) {
        arena->is_short = true;
        return;
    }
    take_in_piece(arena);
    submit_populate(arena);
}

/* Opening and closing */

static kvarve_status make_mapping(kvarve_arena *arena, memory_sharing sharing, kvarve_error *err)
{
    kvarve_memory *memory = arena->env->memory;
    const uint64_t bytes = (uint64_t)arena->chunk_count * ARENA_CHUNK_BYTES;
    int rc = memory->create(memory, sharing, "kvarve-arena", (size_t)(bytes + ARENA_HEAD_SIZE),
                            &arena->mapping);

    if (rc < 0) {
        return kvarve_fail_io(err, rc, "arena: make %" PRIu64 " bytes of memory", bytes);
    }
    choose_piece(arena);
    run_populate(&arena->populate);
    rc = arena->populate_rc;
    if (rc == -ENOMEM) {
        return kvarve_fail(err, KVARVE_NO_MEMORY,
                           "arena of %" PRIu64 " bytes: its first %" PRIu64
                           " bytes do not go into the %" PRIu64
                           " that are 90 %% of free memory and of the control group's rest",
                           bytes, arena->populate_size, memory->headroom(memory));
    }
    if (rc < 0) {
        return kvarve_fail_io(err, rc, "arena: allocate the first %" PRIu64 " of %" PRIu64 " bytes",
                              arena->populate_size, bytes);
    }
    take_in_piece(arena);
    return KVARVE_OK;
}

static bool make_tables(kvarve_arena *arena)
{
    for (uint32_t units = 0; units <= SHARED_UNITS_MAX; units++) {
        kvarve_list_init(&arena->classes[units]);
    }
    arena->zones = kvarve_allocate_array(arena->chunk_count, sizeof *arena->zones);
    arena->slots = kvarve_allocate_array(SLOTS_FIRST, sizeof *arena->slots);
    return chunk_map_init(&arena->chunks, arena->chunk_count) && arena->zones != NULL &&
           arena->slots != NULL;
}

static kvarve_status open_arena(const kvarve_env *env, uint64_t bytes, memory_sharing sharing,
                                kvarve_arena **out, kvarve_error *err)
{
    const store_uuid nobody = {{0}};
    kvarve_arena *arena;
    kvarve_status status;

    if (bytes < ARENA_BYTES_MIN || bytes > ARENA_BYTES_MAX) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "arena of %" PRIu64 " bytes: it must be %" PRIu64 " to %" PRIu64, bytes,
                           ARENA_BYTES_MIN, ARENA_BYTES_MAX);
    }
    arena = kvarve_allocate(sizeof *arena);
    if (arena == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "arena: allocate its description");
    }
    arena->magic = MAGIC;
    arena->env = env;
    arena->mapping.fd = -1;
    arena->chunk_count = (uint32_t)kvarve_divide_up(bytes, ARENA_CHUNK_BYTES);
    arena->slots_room = SLOTS_FIRST;
    arena->slots_max =
        (uint32_t)kvarve_min_u64((uint64_t)arena->chunk_count * UNITS_A_CHUNK, ARENA_NONE);
    arena->slots_free = ARENA_NONE;
    arena->populate.lane = KVARVE_LANE_COPY;
    arena->populate.run = run_populate;
    arena->populate.done = done_populate;
    status = make_tables(arena)
                 ? make_mapping(arena, sharing, err)
                 : kvarve_fail(err, KVARVE_NO_MEMORY,
                               "arena of %" PRIu64 " bytes: allocate its tables", bytes);
    if (status != KVARVE_OK) {
        arena_close(arena);
        return status;
    }
    arena_set_owner(arena, &nobody, 1);
    submit_populate(arena);
    *out = arena;
    return KVARVE_OK;
}

kvarve_status arena_open(const kvarve_env *env, uint64_t bytes, kvarve_arena **out,
                         kvarve_error *err)
{
    return open_arena(env, bytes, MEMORY_PRIVATE, out, err);
}

kvarve_status arena_open_shared(const kvarve_env *env, uint64_t bytes, kvarve_arena **out,
                                kvarve_error *err)
{
    return open_arena(env, bytes, MEMORY_SHARED, out, err);
}

const kvarve_mapping *arena_mapping(const kvarve_arena *arena)
{
    return &arena->mapping;
}

void arena_set_owner(kvarve_arena *arena, const store_uuid *store, uint64_t epoch)
{
    const arena_head head = {
        .store = *store,
        .epoch = epoch,
        .bytes = (uint64_t)arena->chunk_count * ARENA_CHUNK_BYTES,
    };

    arena_head_encode(&head, arena->mapping.base);
}

void arena_stop_populating(kvarve_arena *arena)
{
    arena->is_stopped = true;
}

void arena_close(kvarve_arena *arena)
{
    if (arena == NULL) {
        return;
    }
    KVARVE_ASSERT(arena->magic == MAGIC);
    KVARVE_ASSERT(!arena->is_populating);
    if (arena->mapping.base != NULL) {
        arena->env->memory->destroy(arena->env->memory, &arena->mapping);
    }
    chunk_map_deinit(&arena->chunks);
    kvarve_release(arena->slots);
    kvarve_release(arena->zones);
    arena->magic = 0;
    kvarve_release(arena);
}

/* Zones */

/* The fewest chunks that hold a slot of `units`, with as many slots as go in. */
static zone_shape least_shape(uint32_t units)
{
    const uint32_t chunks = (uint32_t)kvarve_divide_up(units, UNITS_A_CHUNK);

    return (zone_shape){.chunks = chunks, .slots = chunks * UNITS_A_CHUNK / units};
}

static uint32_t left_over(zone_shape shape, uint32_t units)
{
    return shape.chunks * UNITS_A_CHUNK - shape.slots * units;
}

/*
 * The smallest zone of which at most an eighth is left over; where there is none, the one with the
 * smallest part left over. Without it a slot of 132 KiB would take 256.
 */
static zone_shape best_shape(const kvarve_arena *arena, uint32_t units)
{
    const uint64_t share = kvarve_min_u64(ZONE_CHUNKS_MAX, arena->chunk_count / ZONE_SHARE);
    zone_shape best = least_shape(units);

    for (uint32_t chunks = best.chunks; chunks <= share; chunks++) {
        const zone_shape shape = {
            .chunks = chunks,
            .slots = (uint32_t)kvarve_min_u64(chunks * UNITS_A_CHUNK / units, ZONE_SLOTS_MAX),
        };

        if (left_over(best, units) * ZONE_LEFT_OVER <= best.chunks * UNITS_A_CHUNK) {
            break;
        }
        if (left_over(shape, units) * best.chunks < left_over(best, units) * chunks) {
            best = shape;
        }
    }
    return best;
}

/* A new zone, in the list of its class; NULL when there is no room. */
static zone *make_zone(kvarve_arena *arena, uint32_t units)
{
    zone_shape shape = best_shape(arena, units);
    uint32_t first = chunk_map_take(&arena->chunks, shape.chunks);
    zone *made;

    if (first == CHUNK_NONE) {
        shape = least_shape(units);
        first = chunk_map_take(&arena->chunks, shape.chunks);
    }
    if (first == CHUNK_NONE) {
        return NULL;
    }
    made = &arena->zones[first];
    KVARVE_ASSERT(made->units == 0); /* I1 */
    made->units = units;
    made->chunks = (uint16_t)shape.chunks;
    made->slots = (uint16_t)shape.slots;
    made->free_positions = UINT64_MAX >> (64 - shape.slots);
    kvarve_list_init(&made->link);
    return made;
}

/* Take the lowest free position of a zone of this class. False when there is no room. */
static bool take_position(kvarve_arena *arena, uint32_t units, slot_entry *at)
{
    kvarve_list *partial = units <= SHARED_UNITS_MAX ? &arena->classes[units] : NULL;
    zone *from;

    if (partial != NULL && !kvarve_list_is_empty(partial)) { /* I3 */
        from = KVARVE_LIST_ITEM(partial->next, zone, link);
    } else {
        from = make_zone(arena, units);
    }
    if (from == NULL) {
        return false;
    }
    at->chunk = (uint32_t)(from - arena->zones);
    at->position = (uint8_t)__builtin_ctzll(from->free_positions);
    from->free_positions &= from->free_positions - 1;
    if (from->free_positions == 0) {
        kvarve_list_remove(&from->link);
    } else if (kvarve_list_is_empty(&from->link)) {
        KVARVE_ASSERT(partial != NULL);
        kvarve_list_append(partial, &from->link);
    }
    return true;
}

static void give_position(kvarve_arena *arena, const slot_entry *at)
{
    zone *to = &arena->zones[at->chunk];
    const uint64_t bit = UINT64_C(1) << at->position;

    KVARVE_ASSERT(to->units == units_of(at->size));
    KVARVE_ASSERT((to->free_positions & bit) == 0);
    to->free_positions |= bit;
    if (to->free_positions == UINT64_MAX >> (64 - to->slots)) { /* I2 */
        kvarve_list_remove(&to->link);
        to->units = 0;
        chunk_map_give(&arena->chunks, at->chunk, to->chunks);
    } else if (kvarve_list_is_empty(&to->link)) {
        kvarve_list_append(&arena->classes[to->units], &to->link);
    }
}

/* Slots */

/* Make place for one more number; false when memory or the limit is at its end. */
static kvarve_status grow_slots(kvarve_arena *arena)
{
    const uint64_t room = kvarve_min_u64((uint64_t)arena->slots_room * 2, arena->slots_max);
    size_t bytes;
    slot_entry *grown;

    if (arena->slots_made == arena->slots_max) {
        return KVARVE_BUSY;
    }
    if (arena->slots_made < arena->slots_room) {
        return KVARVE_OK;
    }
    if (KVARVE_MUL_OVERFLOWS((size_t)room, sizeof *grown, &bytes)) {
        return KVARVE_NO_MEMORY;
    }
    grown = kvarve_reallocate(arena->slots, bytes);
    if (grown == NULL) {
        return KVARVE_NO_MEMORY;
    }
    arena->slots = grown;
    arena->slots_room = (uint32_t)room;
    return KVARVE_OK;
}

/* Chunks that there are, or that there will be. */
static uint32_t chunks_to_expect(const kvarve_arena *arena)
{
    return arena->is_short ? arena->populated_chunks : arena->chunk_count;
}

kvarve_status arena_reserve(kvarve_arena *arena, uint32_t size, arena_slot *out)
{
    const uint32_t units = units_of(size);
    slot_entry fresh = {.size = size, .state = SLOT_FREE};
    arena_slot number = arena->slots_free;

    KVARVE_ASSERT(arena->magic == MAGIC);
    KVARVE_ASSERT(size > 0 && size <= ARENA_SLOT_MAX);
    if (least_shape(units).chunks > chunks_to_expect(arena)) {
        return KVARVE_NO_SPACE;
    }
    if (number == ARENA_NONE) {
        const kvarve_status status = grow_slots(arena);

        if (status != KVARVE_OK) {
            return status;
        }
    }
    if (!take_position(arena, units, &fresh)) {
        return KVARVE_BUSY;
    }
    if (number == ARENA_NONE) {
        number = arena->slots_made++;
    } else {
        arena->slots_free = arena->slots[number].chunk;
    }
    arena->slots[number] = fresh;
    move(arena, &arena->slots[number], SLOT_RESERVED);
    arena->used_bytes += (uint64_t)units * ARENA_UNIT;
    *out = number;
    return KVARVE_OK;
}

bool arena_could_hold(const kvarve_arena *arena, const uint32_t *sizes, size_t count)
{
    uint32_t shared[SHARED_UNITS_MAX + 1] = {0}; /* free positions of the last zone, by units */
    const uint64_t limit = chunks_to_expect(arena);
    uint64_t chunks = 0;

    for (size_t i = 0; i < count && chunks <= limit; i++) {
        const uint32_t units = units_of(sizes[i]);

        KVARVE_ASSERT(sizes[i] > 0 && sizes[i] <= ARENA_SLOT_MAX);
        if (units > SHARED_UNITS_MAX) {
            chunks += least_shape(units).chunks;
            continue;
        }
        if (shared[units] == 0) {
            const zone_shape shape = best_shape(arena, units); /* I4 */

            chunks += shape.chunks;
            shared[units] = shape.slots;
        }
        shared[units]--;
    }
    return chunks <= limit;
}

slot_state arena_state(const kvarve_arena *arena, arena_slot slot)
{
    return (slot_state)slot_at(arena, slot)->state;
}

uint32_t arena_pins(const kvarve_arena *arena, arena_slot slot)
{
    return slot_at(arena, slot)->pins;
}

uint64_t arena_offset(const kvarve_arena *arena, arena_slot slot)
{
    const slot_entry *at = used_slot_at(arena, slot);

    return ARENA_HEAD_SIZE + (uint64_t)at->chunk * ARENA_CHUNK_BYTES +
           (uint64_t)at->position * units_of(at->size) * ARENA_UNIT;
}

void *arena_address(const kvarve_arena *arena, arena_slot slot)
{
    return (uint8_t *)arena->mapping.base + arena_offset(arena, slot);
}

uint32_t arena_size(const kvarve_arena *arena, arena_slot slot)
{
    return used_slot_at(arena, slot)->size;
}

void arena_fill(kvarve_arena *arena, arena_slot slot)
{
    move(arena, slot_at(arena, slot), SLOT_FILLED);
}

void arena_seal(kvarve_arena *arena, arena_slot slot)
{
    move(arena, slot_at(arena, slot), SLOT_SEALED);
}

static void free_slot(kvarve_arena *arena, arena_slot number)
{
    slot_entry *at = slot_at(arena, number);

    KVARVE_ASSERT(at->pins == 0);
    move(arena, at, SLOT_FREE);
    arena->used_bytes -= (uint64_t)units_of(at->size) * ARENA_UNIT;
    give_position(arena, at);
    at->chunk = arena->slots_free;
    arena->slots_free = number;
}

void arena_pin(kvarve_arena *arena, arena_slot slot)
{
    slot_entry *at = slot_at(arena, slot);

    KVARVE_ASSERT(at->state != SLOT_FREE && at->state != SLOT_DRAINING);
    KVARVE_ASSERT(at->pins < UINT32_MAX);
    at->pins++;
}

bool arena_unpin(kvarve_arena *arena, arena_slot slot)
{
    slot_entry *at = slot_at(arena, slot);

    KVARVE_ASSERT(at->pins > 0);
    at->pins--;
    if (at->pins > 0 || at->state != SLOT_DRAINING) {
        return false;
    }
    free_slot(arena, slot);
    return true;
}

bool arena_drop(kvarve_arena *arena, arena_slot slot)
{
    slot_entry *at = slot_at(arena, slot);

    KVARVE_ASSERT(at->state != SLOT_DRAINING);
    if (at->pins > 0) {
        move(arena, at, SLOT_DRAINING);
        return false;
    }
    free_slot(arena, slot);
    return true;
}

void arena_count(const kvarve_arena *arena, arena_counters *out)
{
    *out = (arena_counters){
        .bytes = (uint64_t)arena->chunk_count * ARENA_CHUNK_BYTES,
        .populated_bytes = (uint64_t)arena->populated_chunks * ARENA_CHUNK_BYTES,
        .used_bytes = arena->used_bytes,
        .free_bytes = (uint64_t)arena->chunks.free_count * ARENA_CHUNK_BYTES,
        .is_huge = arena->mapping.is_huge,
        .is_populating = arena->is_populating,
        .is_short = arena->is_short,
    };
    for (size_t state = 0; state < SLOT_STATE_COUNT; state++) {
        out->slots_in_use[state] = arena->in_state[state];
    }
}
