/*
 * test_arena_model.c - random use of an arena against a plain model: a map of who owns each 4 KiB
 * of the mapping, and the sums that follow from it. The seed is printed; KVARVE_SEED sets another.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arena/arena.h"
#include "unit/arena/fake_world.h"

#define BYTES      (UINT64_C(40) << 20)
#define UNITS      (BYTES / ARENA_UNIT)
#define SLOTS_HELD 3000
#define STEPS      60000

typedef struct held {
    arena_slot slot;
    uint32_t size;
    uint32_t pins;
    slot_state state;
    uint64_t offset;
} held;

static uint16_t owner[UNITS]; /* 0: nobody's, else the number of the holder plus 1 */
static held holders[SLOTS_HELD];
static uint64_t seed;

static uint32_t draw(uint32_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((seed >> 33) % below);
}

/* Mark the units of one slot, all of which were `from`'s, as `to`'s. */
static void own(const held *holder, uint16_t from, uint16_t to)
{
    const uint64_t first = (holder->offset - ARENA_HEAD_SIZE) / ARENA_UNIT;
    const uint64_t count = (holder->size + ARENA_UNIT - 1) / ARENA_UNIT;

    assert_true(first + count <= UNITS);
    for (uint64_t i = first; i < first + count; i++) {
        assert_int_equal(owner[i], from);
        owner[i] = to;
    }
}

static void check_sums(const kvarve_arena *arena)
{
    uint64_t in_state[SLOT_STATE_COUNT] = {0};
    uint64_t used = 0;
    arena_counters counters;

    for (uint32_t i = 0; i < SLOTS_HELD; i++) {
        const held *holder = &holders[i];

        if (holder->state == SLOT_FREE) {
            continue;
        }
        in_state[holder->state]++;
        used += (holder->size + 4095) / 4096 * 4096;
        assert_int_equal(arena_state(arena, holder->slot), holder->state);
        assert_int_equal(arena_pins(arena, holder->slot), holder->pins);
        assert_int_equal(arena_offset(arena, holder->slot), holder->offset);
        assert_int_equal(arena_size(arena, holder->slot), holder->size);
    }
    arena_count(arena, &counters);
    assert_int_equal(counters.used_bytes, used);
    assert_true(counters.free_bytes + counters.used_bytes <= counters.bytes);
    assert_memory_equal(counters.slots_in_use, in_state, sizeof in_state);
}

static uint32_t draw_size(void)
{
    static const uint32_t classes[] = {1, 4096, 4097, 60000, 135168, 262144, 307200, 1126400};

    switch (draw(8)) {
    case 0:
        return 1 + draw(1u << 21);
    case 1:
        return 1 + draw(1u << 16);
    default:
        return classes[draw(sizeof classes / sizeof classes[0])];
    }
}

static void reserve_one(kvarve_arena *arena, uint32_t index, uint32_t *busy)
{
    held *holder = &holders[index];
    const uint32_t size = draw_size();
    const kvarve_status status = arena_reserve(arena, size, &holder->slot);

    if (status == KVARVE_BUSY) {
        ++*busy;
        return;
    }
    assert_int_equal(status, KVARVE_OK);
    holder->size = size;
    holder->pins = 0;
    holder->state = SLOT_RESERVED;
    holder->offset = arena_offset(arena, holder->slot);
    assert_int_equal(holder->offset % ARENA_UNIT, 0);
    own(holder, 0, (uint16_t)(index + 1));
}

static void change_one(kvarve_arena *arena, uint32_t index)
{
    held *holder = &holders[index];
    const uint32_t action = draw(8);
    bool is_free = false;

    if (action == 0 && holder->state == SLOT_RESERVED) {
        arena_fill(arena, holder->slot);
        holder->state = SLOT_FILLED;
    } else if (action <= 2 && (holder->state == SLOT_RESERVED || holder->state == SLOT_FILLED)) {
        arena_seal(arena, holder->slot);
        holder->state = SLOT_SEALED;
    } else if (action <= 4 && holder->pins > 0) {
        is_free = arena_unpin(arena, holder->slot);
        holder->pins--;
        assert_int_equal(is_free, holder->pins == 0 && holder->state == SLOT_DRAINING);
    } else if (action == 5 && holder->state != SLOT_DRAINING) {
        arena_pin(arena, holder->slot);
        holder->pins++;
    } else if (holder->state != SLOT_DRAINING) {
        is_free = arena_drop(arena, holder->slot);
        assert_int_equal(is_free, holder->pins == 0);
        holder->state = SLOT_DRAINING;
    }
    if (is_free) {
        own(holder, (uint16_t)(index + 1), 0);
        holder->state = SLOT_FREE;
        assert_int_equal(arena_state(arena, holder->slot), SLOT_FREE);
    }
}

static void release_all(kvarve_arena *arena)
{
    for (uint32_t i = 0; i < SLOTS_HELD; i++) {
        if (holders[i].state == SLOT_FREE) {
            continue;
        }
        if (holders[i].state != SLOT_DRAINING) {
            (void)arena_drop(arena, holders[i].slot);
        }
        for (; holders[i].pins > 0; holders[i].pins--) {
            (void)arena_unpin(arena, holders[i].slot);
        }
        own(&holders[i], (uint16_t)(i + 1), 0);
        holders[i].state = SLOT_FREE;
    }
}

static void test_arena__random_use_equals_the_model(void **state)
{
    const char *wanted = getenv("KVARVE_SEED"); /* NOLINT(concurrency-mt-unsafe): one thread */
    static fake_world world;
    kvarve_arena *arena = NULL;
    arena_counters counters;
    uint32_t busy = 0;

    (void)state;
    seed = wanted != NULL ? strtoull(wanted, NULL, 0) : 20240607;
    print_message("seed %llu\n", (unsigned long long)seed);
    fake_world_init(&world, UINT64_C(1) << 40);
    assert_int_equal(arena_open(&world.env, BYTES, &arena, NULL), KVARVE_OK);
    for (uint32_t step = 0; step < STEPS; step++) {
        const uint32_t index = draw(SLOTS_HELD);

        if (holders[index].state == SLOT_FREE) {
            reserve_one(arena, index, &busy);
        } else {
            change_one(arena, index);
        }
        if (step % 256 == 0) {
            check_sums(arena);
        }
    }
    assert_true(busy > STEPS / 100); /* it was full now and then */
    check_sums(arena);
    release_all(arena);
    check_sums(arena);
    arena_count(arena, &counters);
    assert_int_equal(counters.free_bytes, BYTES);
    arena_close(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena__random_use_equals_the_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
