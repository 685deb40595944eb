/* test_arena.c - slots and their states, zones, populating in the background, and refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "arena/arena.h"
#include "base/alloc.h"
#include "base/assert.h"
#include "env/env_posix.h"
#include "unit/arena/fake_world.h"

#define MIB (UINT64_C(1) << 20)
#define KIB UINT32_C(1024)

static fake_world world;

static kvarve_arena *open_arena(uint64_t bytes)
{
    kvarve_arena *arena = NULL;
    kvarve_error err;

    fake_world_init(&world, UINT64_C(1) << 50);
    assert_int_equal(arena_open(&world.env, bytes, &arena, &err), KVARVE_OK);
    return arena;
}

static arena_slot reserve(kvarve_arena *arena, uint32_t size)
{
    arena_slot slot = ARENA_NONE;

    assert_int_equal(arena_reserve(arena, size, &slot), KVARVE_OK);
    return slot;
}

static arena_counters count(const kvarve_arena *arena)
{
    arena_counters counters;

    arena_count(arena, &counters);
    return counters;
}

static void test_arena__bytes_out_of_range_are_refused(void **state)
{
    kvarve_arena *arena = NULL;
    kvarve_error err;

    (void)state;
    fake_world_init(&world, UINT64_C(1) << 50);
    assert_int_equal(arena_open(&world.env, MIB - 1, &arena, &err), KVARVE_INVALID);
    assert_int_equal(arena_open(&world.env, (UINT64_C(1) << 44) + 1, &arena, &err), KVARVE_INVALID);
    assert_null(arena);
    arena_close(NULL);
}

static void test_arena__shared_one_has_a_descriptor_that_others_map(void **state)
{
    const kvarve_env env = {.memory = memory_posix()}; /* a small arena is allocated at once */
    kvarve_arena *arena = NULL;
    kvarve_error err;
    const kvarve_mapping *mapping;

    (void)state;
    assert_int_equal(arena_open_shared(&env, MIB, &arena, &err), KVARVE_OK);
    mapping = arena_mapping(arena);
    assert_true(mapping->fd >= 0);
    assert_int_equal(mapping->size, MIB + ARENA_HEAD_SIZE);
    assert_ptr_equal(arena_address(arena, reserve(arena, 100)),
                     (const char *)mapping->base + ARENA_HEAD_SIZE);
    arena_close(arena);
    assert_int_equal(arena_open(&env, MIB, &arena, &err), KVARVE_OK);
    assert_int_equal(arena_mapping(arena)->fd, -1);
    arena_close(arena);
}

static void test_arena__head_says_whose_it_is(void **state)
{
    const store_uuid store = {{1, 2, 3}};
    kvarve_arena *arena = open_arena(MIB + 1);
    const arena_slot slot = reserve(arena, 1);
    const uint8_t *base = (uint8_t *)arena_address(arena, slot) - arena_offset(arena, slot);
    arena_head head;

    (void)state;
    assert_int_equal(arena_head_decode(base, &head, NULL), KVARVE_OK);
    assert_int_equal(head.store.bytes[0], 0);
    assert_int_equal(head.bytes, 5 * ARENA_CHUNK_BYTES);
    arena_set_owner(arena, &store, 12);
    assert_int_equal(arena_head_decode(base, &head, NULL), KVARVE_OK);
    assert_memory_equal(head.store.bytes, store.bytes, sizeof store.bytes);
    assert_int_equal(head.epoch, 12);
    arena_close(arena);
    assert_int_equal(world.mappings, 0);
}

static void test_arena__slot_goes_its_way_and_keeps_its_number(void **state)
{
    kvarve_arena *arena = open_arena(MIB);
    const arena_slot slot = reserve(arena, 5000);
    arena_slot other;

    (void)state;
    assert_int_equal(arena_state(arena, slot), SLOT_RESERVED);
    assert_int_equal(arena_size(arena, slot), 5000);
    assert_int_equal((uintptr_t)arena_address(arena, slot) % 4096, 0);
    memset(arena_address(arena, slot), 0xee, 8192);
    arena_fill(arena, slot);
    assert_int_equal(arena_state(arena, slot), SLOT_FILLED);
    arena_seal(arena, slot);
    assert_int_equal(arena_state(arena, slot), SLOT_SEALED);
    assert_int_equal(count(arena).used_bytes, 8192);
    assert_int_equal(count(arena).slots_in_use[SLOT_SEALED], 1);
    assert_true(arena_drop(arena, slot));
    assert_int_equal(arena_state(arena, slot), SLOT_FREE);
    assert_int_equal(count(arena).used_bytes, 0);
    other = reserve(arena, 1);
    assert_int_equal(other, slot); /* numbers are used again */
    arena_seal(arena, other);      /* straight from reserved */
    assert_true(arena_drop(arena, other));
    arena_close(arena);
}

static void test_arena__dropped_slot_drains_until_the_last_unpin(void **state)
{
    kvarve_arena *arena = open_arena(MIB);
    const arena_slot slot = reserve(arena, 4096);
    const uint64_t offset = arena_offset(arena, slot);

    (void)state;
    arena_pin(arena, slot); /* a copy into it runs */
    arena_pin(arena, slot);
    assert_false(arena_drop(arena, slot)); /* its owner aborts */
    assert_int_equal(arena_state(arena, slot), SLOT_DRAINING);
    assert_int_not_equal(arena_offset(arena, reserve(arena, 4096)), offset);
    assert_false(arena_unpin(arena, slot));
    assert_int_equal(count(arena).slots_in_use[SLOT_DRAINING], 1);
    assert_int_equal(arena_pins(arena, slot), 1);
    assert_true(arena_unpin(arena, slot));
    assert_int_equal(arena_state(arena, slot), SLOT_FREE);
    assert_int_equal(arena_offset(arena, reserve(arena, 4096)), offset);
    arena_close(arena);
}

static void test_arena__unpin_of_a_sealed_slot_keeps_it(void **state)
{
    kvarve_arena *arena = open_arena(MIB);
    const arena_slot slot = reserve(arena, 4096);

    (void)state;
    arena_seal(arena, slot);
    arena_pin(arena, slot);
    assert_false(arena_unpin(arena, slot));
    assert_int_equal(arena_state(arena, slot), SLOT_SEALED);
    arena_close(arena);
}

static jmp_buf failed;

static void jump_out(const char *text)
{
    (void)text;
    longjmp(failed, 1);
}

/* True when `step` is stopped by an assertion. */
static bool is_stopped(void (*step)(kvarve_arena *, arena_slot), kvarve_arena *arena,
                       arena_slot slot)
{
    volatile bool is_caught = true;

    kvarve_assert_set_handler(jump_out);
    if (setjmp(failed) == 0) {
        step(arena, slot);
        is_caught = false;
    }
    kvarve_assert_set_handler(NULL);
    return is_caught;
}

static void drop(kvarve_arena *arena, arena_slot slot)
{
    (void)arena_drop(arena, slot);
}

static void unpin(kvarve_arena *arena, arena_slot slot)
{
    (void)arena_unpin(arena, slot);
}

static void ask_address(kvarve_arena *arena, arena_slot slot)
{
    (void)arena_address(arena, slot);
}

static void test_arena__moves_that_are_not_in_the_table_are_stopped(void **state)
{
    kvarve_arena *arena = open_arena(MIB);
    const arena_slot sealed = reserve(arena, 4096);
    const arena_slot draining = reserve(arena, 4096);
    const arena_slot gone = reserve(arena, 4096);

    (void)state;
    arena_seal(arena, sealed);
    arena_pin(arena, draining);
    assert_false(arena_drop(arena, draining));
    assert_true(arena_drop(arena, gone));
    assert_true(is_stopped(arena_fill, arena, sealed));
    assert_true(is_stopped(arena_seal, arena, sealed));
    assert_true(is_stopped(unpin, arena, sealed));
    assert_true(is_stopped(arena_fill, arena, draining));
    assert_true(is_stopped(arena_seal, arena, draining));
    assert_true(is_stopped(arena_pin, arena, draining));
    assert_true(is_stopped(drop, arena, draining));
    assert_true(is_stopped(arena_seal, arena, gone));
    assert_true(is_stopped(arena_pin, arena, gone));
    assert_true(is_stopped(drop, arena, gone));
    assert_true(is_stopped(ask_address, arena, gone));
    assert_true(is_stopped(ask_address, arena, 3)); /* never handed out */
    assert_false(is_stopped(drop, arena, sealed));
    arena_close(arena);
}

static void test_arena__full_is_busy_and_too_large_is_no_space(void **state)
{
    kvarve_arena *arena = open_arena(MIB);
    arena_slot slots[4], slot = 77;

    (void)state;
    assert_int_equal(arena_reserve(arena, (uint32_t)MIB + 1, &slot), KVARVE_NO_SPACE);
    for (int i = 0; i < 4; i++) {
        slots[i] = reserve(arena, 256 * KIB);
    }
    assert_int_equal(arena_reserve(arena, 1, &slot), KVARVE_BUSY);
    assert_int_equal(slot, 77); /* untouched */
    assert_true(arena_drop(arena, slots[1]));
    assert_true(arena_drop(arena, slots[2]));
    assert_int_equal(arena_reserve(arena, 768 * KIB, &slot), KVARVE_BUSY);
    assert_int_equal(arena_offset(arena, reserve(arena, 512 * KIB)), 4096 + 256 * KIB);
    arena_close(arena);
}

static void test_arena__small_slots_of_one_size_share_a_chunk(void **state)
{
    kvarve_arena *arena = open_arena(MIB);
    arena_slot first = reserve(arena, 4096);

    (void)state;
    for (int i = 1; i < 256; i++) {
        (void)reserve(arena, 4096);
    }
    assert_int_equal(count(arena).used_bytes, MIB);
    assert_int_equal(arena_reserve(arena, 4096, &first), KVARVE_BUSY);
    arena_close(arena);
}

static void test_arena__partly_used_zone_goes_first_and_empty_one_goes_back(void **state)
{
    kvarve_arena *arena = open_arena(MIB);
    arena_slot slots[128];

    (void)state;
    for (int i = 0; i < 128; i++) { /* two full chunks */
        slots[i] = reserve(arena, 4096);
    }
    assert_int_equal(count(arena).free_bytes, 512 * KIB);
    assert_true(arena_drop(arena, slots[100]));
    assert_int_equal(arena_offset(arena, reserve(arena, 4000)),
                     4096 + 256 * KIB + (100 - 64) * 4096);
    for (int i = 0; i < 64; i++) {
        assert_true(arena_drop(arena, slots[i]));
    }
    assert_int_equal(count(arena).free_bytes, 768 * KIB);
    assert_int_equal(arena_offset(arena, reserve(arena, 256 * KIB)), 4096);
    arena_close(arena);
}

/* A slot of 132 KiB would waste nearly half of a chunk of its own. */
static void test_arena__at_most_an_eighth_is_left_over_in_a_large_arena(void **state)
{
    kvarve_arena *arena = open_arena(64 * MIB);
    const uint32_t sizes[] = {132 * KIB, 300 * KIB, 1100 * KIB, 2100 * KIB, 6893568, 20 * KIB};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        arena_slot slot;
        arena_slot slots[4096];
        size_t held = 0;

        while (arena_reserve(arena, sizes[i], &slot) == KVARVE_OK) {
            slots[held++] = slot;
        }
        assert_true(count(arena).used_bytes > 64 * MIB * 7 / 8);
        while (held > 0) {
            assert_true(arena_drop(arena, slots[--held]));
        }
        assert_int_equal(count(arena).free_bytes, 64 * MIB);
    }
    arena_close(arena);
}

static void test_arena__smallest_zone_serves_where_the_best_one_does_not_fit(void **state)
{
    kvarve_arena *arena = open_arena(64 * MIB);
    arena_slot slots[256], slot;

    (void)state;
    for (int i = 0; i < 256; i++) {
        slots[i] = reserve(arena, 256 * KIB);
    }
    for (int i = 0; i < 256; i += 2) { /* no two neighbours are free */
        assert_true(arena_drop(arena, slots[i]));
    }
    assert_int_equal(arena_offset(arena, reserve(arena, 132 * KIB)), 4096);
    assert_int_equal(arena_reserve(arena, 300 * KIB, &slot), KVARVE_BUSY);
    arena_close(arena);
}

static void test_arena__could_hold_is_what_an_empty_arena_holds(void **state)
{
    static uint32_t sizes[4096];
    const uint32_t kinds[] = {4096, 132 * KIB, 2100 * KIB, 5000, 300 * KIB, 256 * KIB};
    kvarve_arena *arena = open_arena(16 * MIB);
    uint64_t seed = 5;
    int full = 0;

    (void)state;
    for (int round = 0; round < 50; round++) {
        arena_slot slots[4096];
        size_t held = 0;

        while (held < 4095) {
            seed = seed * UINT64_C(6364136223846793005) + 1;
            sizes[held] = kinds[(seed >> 40) % 6];
            if (!arena_could_hold(arena, sizes, held + 1)) {
                full++;
                break;
            }
            held++;
        }
        for (size_t i = 0; i < held; i++) {
            slots[i] = reserve(arena, sizes[held - 1 - i]); /* in another order */
        }
        for (size_t i = 0; i < held; i++) {
            assert_true(arena_drop(arena, slots[i]));
        }
    }
    assert_int_equal(full, 50);
    arena_close(arena);
}

static void test_arena__rest_is_room_when_it_is_populated(void **state)
{
    kvarve_arena *arena = open_arena(200 * MIB);
    arena_slot slot;

    (void)state;
    assert_int_equal(count(arena).populated_bytes, 64 * MIB);
    assert_int_equal(world.populated, 64 * MIB + 4096);
    assert_true(count(arena).is_populating);
    (void)reserve(arena, 64 * (uint32_t)MIB);
    assert_int_equal(arena_reserve(arena, 1, &slot), KVARVE_BUSY);
    assert_int_equal(arena_reserve(arena, 200 * (uint32_t)MIB, &slot), KVARVE_BUSY);
    assert_true(fake_world_step(&world));
    assert_int_equal(count(arena).populated_bytes, 128 * MIB);
    assert_int_equal(world.last_offset, 64 * MIB + 4096);
    (void)reserve(arena, 64 * (uint32_t)MIB);
    assert_true(fake_world_step(&world));
    assert_true(fake_world_step(&world)); /* the last piece is smaller */
    assert_false(fake_world_step(&world));
    assert_int_equal(count(arena).populated_bytes, 200 * MIB);
    assert_int_equal(world.populated, 200 * MIB + 4096);
    assert_false(count(arena).is_populating);
    assert_false(count(arena).is_short);
    arena_close(arena);
}

static void test_arena__short_memory_stops_populating_and_larger_slots_never_fit(void **state)
{
    const uint32_t size = 129 * (uint32_t)MIB;
    kvarve_arena *arena = open_arena(256 * MIB);
    arena_slot slot;

    (void)state;
    world.limit = 130 * MIB;
    assert_true(fake_world_step(&world));
    assert_true(arena_could_hold(arena, &size, 1));
    assert_true(fake_world_step(&world));
    assert_false(fake_world_step(&world));
    assert_true(count(arena).is_short);
    assert_int_equal(count(arena).populated_bytes, 128 * MIB);
    assert_false(arena_could_hold(arena, &size, 1));
    assert_int_equal(arena_reserve(arena, size, &slot), KVARVE_NO_SPACE);
    (void)reserve(arena, 128 * (uint32_t)MIB);
    assert_int_equal(arena_reserve(arena, 1, &slot), KVARVE_BUSY);
    arena_close(arena);
}

static void test_arena__stopped_populating_ends_after_the_job_that_runs(void **state)
{
    kvarve_arena *arena = open_arena(256 * MIB);

    (void)state;
    arena_stop_populating(arena);
    assert_true(fake_world_step(&world));
    assert_false(fake_world_step(&world));
    assert_int_equal(count(arena).populated_bytes, 128 * MIB);
    arena_close(arena);
}

static void test_arena__too_little_memory_is_refused_with_the_numbers(void **state)
{
    kvarve_arena *arena = NULL;
    kvarve_error err;

    (void)state;
    fake_world_init(&world, 10 * MIB);
    assert_int_equal(arena_open(&world.env, 100 * MIB, &arena, &err), KVARVE_NO_MEMORY);
    assert_non_null(strstr(err.text, "104857600"));
    assert_non_null(strstr(err.text, "10485760 "));
    assert_int_equal(world.mappings, 0);
    assert_int_equal(world.pending, 0);
    world.create_rc = -24; /* EMFILE */
    assert_int_equal(arena_open(&world.env, MIB, &arena, &err), KVARVE_IO);
    assert_null(arena);
}

static int fail_from(void *context, uint64_t number)
{
    return number < *(uint64_t *)context;
}

static void test_arena__every_failed_allocation_is_an_answer(void **state)
{
    const uint64_t blocks = kvarve_allocated_blocks();
    kvarve_arena *arena = NULL;
    uint64_t allowed = 0;

    (void)state;
    fake_world_init(&world, UINT64_C(1) << 50);
    for (;; allowed++) {
        kvarve_status status;

        world.populated = 0;
        kvarve_allocate_set_hook(fail_from, &allowed);
        status = arena_open(&world.env, 8 * MIB, &arena, NULL);
        kvarve_allocate_set_hook(NULL, NULL);
        if (status == KVARVE_OK) {
            break;
        }
        assert_int_equal(status, KVARVE_NO_MEMORY);
        assert_int_equal(kvarve_allocated_blocks(), blocks);
        assert_int_equal(world.mappings, 0);
    }
    assert_int_equal(allowed, 5);
    arena_close(arena);
    assert_int_equal(kvarve_allocated_blocks(), blocks);
}

static void test_arena__table_that_cannot_grow_is_an_answer(void **state)
{
    kvarve_arena *arena = open_arena(8 * MIB);
    uint64_t allowed = 0;
    arena_slot slot = 5;

    (void)state;
    for (int i = 0; i < 1024; i++) {
        (void)reserve(arena, 4096);
    }
    kvarve_allocate_set_hook(fail_from, &allowed);
    assert_int_equal(arena_reserve(arena, 4096, &slot), KVARVE_NO_MEMORY);
    kvarve_allocate_set_hook(NULL, NULL);
    assert_int_equal(slot, 5);
    assert_int_equal(count(arena).used_bytes, 4 * MIB);
    for (int i = 0; i < 1024; i++) {
        (void)reserve(arena, 4096);
    }
    assert_int_equal(arena_reserve(arena, 4096, &slot), KVARVE_BUSY);
    arena_close(arena);
}

static void test_arena__largest_arena_and_largest_slot(void **state)
{
    kvarve_arena *arena = open_arena(UINT64_C(1) << 32);
    arena_slot slot;

    (void)state;
    while (fake_world_step(&world)) {
    }
    for (uint64_t i = 0; i < 4; i++) {
        slot = reserve(arena, ARENA_SLOT_MAX);
        assert_int_equal(arena_offset(arena, slot), 4096 + (i << 30));
    }
    assert_int_equal(arena_reserve(arena, 1, &slot), KVARVE_BUSY);
    arena_close(arena);
}

static void test_arena__works_on_the_real_memory(void **state)
{
    kvarve_env env = {.memory = memory_posix(), .executor = &world.executor};
    kvarve_arena *arena = NULL;
    kvarve_error err;
    arena_slot slot;

    (void)state;
    fake_world_init(&world, 0);
    assert_int_equal(arena_open(&env, 4 * MIB, &arena, &err), KVARVE_OK);
    slot = reserve(arena, 4 * (uint32_t)MIB);
    memset(arena_address(arena, slot), 0x5a, 4 * MIB);
    assert_true(arena_drop(arena, slot));
    arena_close(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena__bytes_out_of_range_are_refused),
        cmocka_unit_test(test_arena__shared_one_has_a_descriptor_that_others_map),
        cmocka_unit_test(test_arena__head_says_whose_it_is),
        cmocka_unit_test(test_arena__slot_goes_its_way_and_keeps_its_number),
        cmocka_unit_test(test_arena__dropped_slot_drains_until_the_last_unpin),
        cmocka_unit_test(test_arena__unpin_of_a_sealed_slot_keeps_it),
        cmocka_unit_test(test_arena__moves_that_are_not_in_the_table_are_stopped),
        cmocka_unit_test(test_arena__full_is_busy_and_too_large_is_no_space),
        cmocka_unit_test(test_arena__small_slots_of_one_size_share_a_chunk),
        cmocka_unit_test(test_arena__partly_used_zone_goes_first_and_empty_one_goes_back),
        cmocka_unit_test(test_arena__at_most_an_eighth_is_left_over_in_a_large_arena),
        cmocka_unit_test(test_arena__smallest_zone_serves_where_the_best_one_does_not_fit),
        cmocka_unit_test(test_arena__could_hold_is_what_an_empty_arena_holds),
        cmocka_unit_test(test_arena__rest_is_room_when_it_is_populated),
        cmocka_unit_test(test_arena__short_memory_stops_populating_and_larger_slots_never_fit),
        cmocka_unit_test(test_arena__stopped_populating_ends_after_the_job_that_runs),
        cmocka_unit_test(test_arena__too_little_memory_is_refused_with_the_numbers),
        cmocka_unit_test(test_arena__every_failed_allocation_is_an_answer),
        cmocka_unit_test(test_arena__table_that_cannot_grow_is_an_answer),
        cmocka_unit_test(test_arena__largest_arena_and_largest_slot),
        cmocka_unit_test(test_arena__works_on_the_real_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
