/*
 * test_segment.c - segment files: made, written, read, synced, found again, told from damaged ones.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "base/alloc.h"
#include "segment_sample.h"

#define PAGES 8

static _Alignas(4096) uint8_t written[PAGES][SAMPLE_SLOT];
static _Alignas(4096) uint8_t read_back[PAGES][SAMPLE_SLOT];

typedef struct fixture {
    sim_world *world;
    segment_set *set;
} fixture;

static fixture begin(void)
{
    fixture f = {.world = sample_world(1)};

    f.set = sample_open(f.world);
    for (uint64_t i = 0; i < PAGES; i++) {
        sample_fill(written[i], SAMPLE_SLOT, i + 1);
    }
    memset(read_back, 0, sizeof read_back);
    return f;
}

static void end(fixture *f)
{
    segment_close(f->set);
    assert_int_equal(world_open_descriptors(f->world), 0);
    world_destroy(f->world);
    assert_int_equal(kvarve_allocated_blocks(), 0);
}

static void reopen(fixture *f)
{
    segment_close(f->set);
    f->set = sample_open(f->world);
}

/* Parts for `count` pages of `size` bytes at these places. */
static void make_parts(segment_part *parts, const page_place *places, size_t count, uint32_t size,
                       uint8_t (*bytes)[SAMPLE_SLOT])
{
    for (size_t i = 0; i < count; i++) {
        parts[i] = (segment_part){.place = places[i], .bytes = bytes[i], .size = size, .result = 1};
    }
}

static void write_pages(fixture *f, const page_place *places, size_t count)
{
    segment_part parts[PAGES];

    make_parts(parts, places, count, SAMPLE_SLOT, written);
    assert_int_equal(sample_write(f->world, f->set, parts, count), KVARVE_OK);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(parts[i].result, 0);
    }
}

static void test_segment__a_new_folder_is_made_and_empty(void **unused)
{
    fixture f = begin();
    kvarve_io *io = world_env(f.world)->io;
    kvarve_file_stat stat;
    page_place place;

    (void)unused;
    assert_int_equal(sample_count(f.set).file_count, 0);
    assert_int_equal(segment_reserve(f.set, SAMPLE_SLOT, 1, &place), KVARVE_BUSY);
    segment_close(f.set);
    f.set = NULL;
    world_restart(f.world, NULL); /* The folder's name is durable. */
    assert_int_equal(io->ops->stat(io, SAMPLE_FOLDER, &stat), 0);
    end(&f);
}

static void test_segment__a_grown_file_has_free_slots_and_header_blocks(void **unused)
{
    fixture f = begin();
    segment_counters counters;
    uint64_t size = 0;

    (void)unused;
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    counters = sample_count(f.set);
    assert_int_equal(counters.file_count, 1);
    assert_true(counters.is_direct);
    assert_true(counters.file_bytes <= 1 << 20);
    assert_true(counters.file_bytes > (1 << 20) - 2 * SAMPLE_SLOT);
    assert_int_equal(counters.slot_bytes_free,
                     segment_free_slots(f.set, SAMPLE_SLOT) * SAMPLE_SLOT);
    assert_int_equal(counters.slot_bytes_taken, 0);
    assert_int_equal(world_size(f.world, SAMPLE_FOLDER "/16384-1.seg", &size), 0);
    assert_int_equal(size, counters.file_bytes);
    assert_true(world_used_bytes(f.world) >= size); /* preallocated */
    assert_false(world_exists(f.world, SAMPLE_FOLDER "/16384-1.seg.new"));
    end(&f);
}

static void test_segment__what_is_written_is_read_after_a_power_cut(void **unused)
{
    fixture f = begin();
    page_place places[PAGES];
    segment_part parts[PAGES];
    const uint32_t file = 1;

    (void)unused;
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    assert_int_equal(segment_reserve(f.set, SAMPLE_SLOT, PAGES, places), KVARVE_OK);
    write_pages(&f, places, PAGES);
    assert_int_equal(sample_sync(f.world, f.set, &file, 1), KVARVE_OK);
    assert_int_equal(sample_count(f.set).payload_bytes_written, sizeof written);
    assert_int_equal(sample_count(f.set).sync_count, 1);

    world_cut(f.world);
    segment_close(f.set);
    world_restart(f.world, NULL);
    f.set = sample_open(f.world);
    for (size_t i = 0; i < PAGES; i++) {
        assert_true(segment_place_is_valid(f.set, places[i], SAMPLE_SLOT));
        assert_true(segment_take(f.set, places[i]));
        assert_false(segment_take(f.set, places[i]));
    }
    make_parts(parts, places, PAGES, SAMPLE_SLOT, read_back);
    assert_int_equal(sample_read(f.world, f.set, parts, PAGES), KVARVE_OK);
    assert_memory_equal(written, read_back, sizeof written);
    assert_int_equal(sample_count(f.set).slot_bytes_taken, sizeof written);
    end(&f);
}

static void test_segment__parts_come_in_any_order_and_any_size(void **unused)
{
    fixture f = begin();
    page_place places[PAGES];
    segment_part parts[PAGES];

    (void)unused;
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    assert_int_equal(segment_reserve(f.set, SAMPLE_SLOT, PAGES, places), KVARVE_OK);
    for (size_t i = 0; i < PAGES; i++) {
        const size_t at = (i * 5 + 3) % PAGES;

        parts[i] = (segment_part){.place = places[at],
                                  .bytes = written[at],
                                  .size = (uint32_t)(1 + at * (SAMPLE_SLOT - 1) / (PAGES - 1))};
    }
    assert_int_equal(sample_write(f.world, f.set, parts, PAGES), KVARVE_OK);
    for (size_t i = 0; i < PAGES; i++) {
        assert_int_equal(parts[i].place.slot, places[i].slot); /* reordered by place */
        parts[i].bytes = read_back[i];
    }
    assert_int_equal(sample_read(f.world, f.set, parts, PAGES), KVARVE_OK);
    for (size_t i = 0; i < PAGES; i++) {
        assert_memory_equal(read_back[i], written[i], parts[i].size);
    }
    end(&f);
}

/* How many steps of this kind a call takes is how many system calls. */
static uint64_t count_steps(fixture *f, uint32_t ops, segment_part *parts, size_t count,
                            bool is_write)
{
    const world_plan plan = {
        .fault_step = WORLD_NEVER, .cut_change = WORLD_NEVER, .fault_ops = ops};

    world_set_plan(f->world, &plan);
    assert_int_equal(is_write ? sample_write(f->world, f->set, parts, count)
                              : sample_read(f->world, f->set, parts, count),
                     KVARVE_OK);
    return world_observe(f->world).steps;
}

static void test_segment__neighbours_go_in_one_call(void **unused)
{
    fixture f = begin();
    page_place places[PAGES];
    segment_part parts[PAGES];

    (void)unused;
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    assert_int_equal(segment_reserve(f.set, SAMPLE_SLOT, PAGES, places), KVARVE_OK);
    make_parts(parts, places, PAGES, SAMPLE_SLOT, written);
    assert_int_equal(count_steps(&f, WORLD_OP_WRITE, parts, PAGES, true), 1);
    assert_int_equal(count_steps(&f, WORLD_OP_READ, parts, PAGES, false), 1);
    parts[3].size = 4096; /* A gap after it: two calls. */
    assert_int_equal(count_steps(&f, WORLD_OP_WRITE, parts, PAGES, true), 2);
    parts[3].size = SAMPLE_SLOT;
    parts[PAGES - 1].size = 1; /* No gap: nothing comes after it. */
    assert_int_equal(count_steps(&f, WORLD_OP_READ, parts, PAGES, false), 1);
    for (size_t i = 0; i < PAGES / 2; i++) { /* Every second slot. */
        parts[i] = (segment_part){
            .place = places[2 * i], .bytes = read_back[i], .size = SAMPLE_SLOT, .result = 1};
    }
    assert_int_equal(count_steps(&f, WORLD_OP_READ, parts, PAGES / 2, false), PAGES / 2);
    for (size_t i = 0; i < PAGES / 2; i++) {
        assert_memory_equal(read_back[i], written[2 * i], SAMPLE_SLOT);
    }
    end(&f);
}

static void test_segment__work_is_split_at_4_mib(void **unused)
{
    static _Alignas(4096) uint8_t page[1 << 20];
    fixture f = begin();
    segment_options options = sample_options();
    page_place places[9];
    segment_part parts[9];

    (void)unused;
    segment_close(f.set);
    options.file_bytes = 16 << 20;
    assert_int_equal(segment_open(world_env(f.world), SAMPLE_FOLDER, &options, &f.set, NULL),
                     KVARVE_OK);
    assert_int_equal(sample_grow(f.world, f.set, 1 << 20, UINT64_MAX), KVARVE_OK);
    assert_int_equal(segment_reserve(f.set, 1 << 20, 9, places), KVARVE_OK);
    for (size_t i = 0; i < 9; i++) {
        parts[i] = (segment_part){.place = places[i], .bytes = page, .size = sizeof page};
    }
    assert_int_equal(count_steps(&f, WORLD_OP_WRITE, parts, 9, true), 3);
    end(&f);
}

static void test_segment__a_request_without_parts_ends_too(void **unused)
{
    fixture f = begin();

    (void)unused;
    assert_int_equal(sample_write(f.world, f.set, NULL, 0), KVARVE_OK);
    assert_int_equal(sample_read(f.world, f.set, NULL, 0), KVARVE_OK);
    assert_int_equal(sample_sync(f.world, f.set, NULL, 0), KVARVE_OK);
    end(&f);
}

static void test_segment__each_file_is_synced_once(void **unused)
{
    static const uint32_t files[] = {2, 1, 2, 1, 1};
    const world_plan plan = {
        .fault_step = WORLD_NEVER, .cut_change = WORLD_NEVER, .fault_ops = WORLD_OP_SYNC};
    fixture f = begin();

    (void)unused;
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    world_set_plan(f.world, &plan);
    assert_int_equal(sample_sync(f.world, f.set, files, 5), KVARVE_OK);
    assert_int_equal(world_observe(f.world).steps, 2);
    end(&f);
}

/* --- shape --- */

typedef struct shape {
    segment_head head;
} shape;

static void keep_head(void *context, const segment_head *head)
{
    ((shape *)context)->head = *head;
}

static void check_shape(uint32_t slot_bytes, uint64_t file_bytes)
{
    fixture f = begin();
    segment_options options = sample_options();
    shape kept = {0};
    const segment_head *head = &kept.head;
    uint64_t size;

    segment_close(f.set);
    options.file_bytes = file_bytes;
    assert_int_equal(segment_open(world_env(f.world), SAMPLE_FOLDER, &options, &f.set, NULL),
                     KVARVE_OK);
    assert_int_equal(sample_grow(f.world, f.set, slot_bytes, UINT64_MAX), KVARVE_OK);
    segment_each(f.set, keep_head, &kept);
    size = segment_file_size(head);
    assert_true(head->slot_count >= 8 && head->header_blocks >= 8);
    assert_true(head->slot_count == 8 ||
                (size <= file_bytes && size > file_bytes - 2 * (uint64_t)slot_bytes));
    assert_true(slot_bytes >= 262144 ? head->header_blocks <= head->slot_count + 2
                                     : head->header_blocks >= head->slot_count / 4);
    end(&f);
}

static void test_segment__a_file_keeps_within_its_bytes(void **unused)
{
    static const uint32_t sizes[] = {4096, 65536, 262144, 1 << 20, 24 << 20};
    static const uint64_t wanted[] = {1 << 20, 64 << 20, UINT64_C(1) << 30};

    (void)unused;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (size_t j = 0; j < sizeof wanted / sizeof wanted[0]; j++) {
            check_shape(sizes[i], wanted[j]);
        }
    }
}

static void test_segment__a_small_limit_gives_fewer_slots_or_none(void **unused)
{
    fixture f = begin();

    (void)unused;
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, 8 * 4096 + 3 * SAMPLE_SLOT),
                     KVARVE_OK);
    assert_int_equal(segment_free_slots(f.set, SAMPLE_SLOT), 3);
    assert_int_equal(sample_count(f.set).file_bytes, 8 * 4096 + 3 * SAMPLE_SLOT);
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, 8 * 4096 + SAMPLE_SLOT - 1),
                     KVARVE_NO_SPACE);
    assert_int_equal(sample_grow(f.world, f.set, 0, 8 * 4096 - 1), KVARVE_NO_SPACE);
    assert_int_equal(sample_count(f.set).file_count, 1);
    end(&f);
}

static void test_segment__a_full_disk_is_said_and_nothing_is_left(void **unused)
{
    fixture f = begin();
    uint64_t used;

    (void)unused;
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    used = world_used_bytes(f.world);
    world_set_capacity(f.world, used + 4096);
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_NO_SPACE);
    assert_int_equal(world_used_bytes(f.world), used);
    assert_false(segment_is_failed(f.set));
    assert_false(world_exists(f.world, SAMPLE_FOLDER "/16384-2.seg"));
    assert_false(world_exists(f.world, SAMPLE_FOLDER "/16384-2.seg.new"));
    end(&f);
}

/* --- what is found at open --- */

static void test_segment__numbers_go_on_after_those_of_all_names(void **unused)
{
    fixture f = begin();

    (void)unused;
    assert_int_equal(world_put_file(f.world, SAMPLE_FOLDER "/4096-41.seg.new", "x", 1), 0);
    assert_int_equal(world_put_file(f.world, SAMPLE_FOLDER "/4096-40.seg", "x", 1), 0);
    assert_int_equal(world_put_file(f.world, SAMPLE_FOLDER "/4096-099.seg", "x", 1), 0);
    assert_int_equal(world_put_file(f.world, SAMPLE_FOLDER "/notes.txt", "x", 1), 0);
    reopen(&f);
    assert_false(world_exists(f.world, SAMPLE_FOLDER "/4096-41.seg.new"));
    assert_true(world_exists(f.world, SAMPLE_FOLDER "/4096-40.seg"));
    assert_true(world_exists(f.world, SAMPLE_FOLDER "/notes.txt"));
    assert_int_equal(sample_count(f.set).damaged_files, 1);
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    assert_true(world_exists(f.world, SAMPLE_FOLDER "/16384-42.seg"));
    end(&f);
}

static void test_segment__a_damaged_first_block_makes_a_file_unusable(void **unused)
{
    fixture f = begin();

    (void)unused;
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    for (uint64_t at = 0; at < 4096; at += 97) {
        const page_place place = {.segment = 1, .slot = 0};
        uint64_t free_slots;

        assert_int_equal(world_flip(f.world, SAMPLE_FOLDER "/16384-1.seg", at, 0x10), 0);
        reopen(&f);
        free_slots = segment_free_slots(f.set, SAMPLE_SLOT);
        assert_int_equal(sample_count(f.set).damaged_files, 1);
        assert_int_equal(sample_count(f.set).file_count, 1);
        assert_false(segment_place_is_valid(f.set, place, 1));
        assert_int_equal(world_flip(f.world, SAMPLE_FOLDER "/16384-1.seg", at, 0x10), 0);
        reopen(&f);
        assert_int_equal(segment_free_slots(f.set, SAMPLE_SLOT), 2 * free_slots);
    }
    end(&f);
}

static void test_segment__files_of_other_stores_are_left_alone(void **unused)
{
    fixture f = begin();
    const store_uuid former = sample_store;
    segment_options options = sample_options();
    segment_set *set = NULL;

    (void)unused;
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    options.store = (store_uuid){{9}};
    assert_int_equal(segment_open(world_env(f.world), SAMPLE_FOLDER, &options, &set, NULL),
                     KVARVE_OK);
    assert_int_equal(sample_count(set).file_count, 0);
    assert_int_equal(sample_count(set).damaged_files, 1);
    segment_close(set);
    options.formers = &former;
    options.former_count = 1;
    assert_int_equal(segment_open(world_env(f.world), SAMPLE_FOLDER, &options, &set, NULL),
                     KVARVE_OK);
    assert_int_equal(sample_count(set).file_count, 1);
    segment_close(set);
    end(&f);
}

static void test_segment__a_renamed_file_is_not_believed(void **unused)
{
    static uint8_t bytes[1 << 20];
    fixture f = begin();
    uint64_t size = 0;

    (void)unused;
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    assert_int_equal(world_size(f.world, SAMPLE_FOLDER "/16384-1.seg", &size), 0);
    assert_int_equal(world_read(f.world, SAMPLE_FOLDER "/16384-1.seg", 0, bytes, (size_t)size), 0);
    assert_int_equal(world_put_file(f.world, SAMPLE_FOLDER "/16384-2.seg", bytes, (size_t)size), 0);
    assert_int_equal(world_put_file(f.world, SAMPLE_FOLDER "/4096-1.seg", bytes, (size_t)size), 0);
    reopen(&f);
    assert_int_equal(sample_count(f.set).file_count, 1);
    assert_int_equal(sample_count(f.set).damaged_files, 2);

    assert_int_equal(world_remove(f.world, SAMPLE_FOLDER "/16384-1.seg"), 0);
    reopen(&f);
    assert_int_equal(sample_count(f.set).file_count, 0);
    assert_int_equal(sample_count(f.set).damaged_files, 2);
    end(&f);
}

static void test_segment__read_only_changes_nothing(void **unused)
{
    fixture f = begin();
    segment_options options = sample_options();
    sample_request request;
    segment_set *set = NULL;
    page_place places[PAGES];
    segment_part parts[PAGES];
    uint64_t bytes = 0;

    (void)unused;
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    assert_int_equal(segment_reserve(f.set, SAMPLE_SLOT, PAGES, places), KVARVE_OK);
    write_pages(&f, places, PAGES);
    assert_int_equal(world_put_file(f.world, SAMPLE_FOLDER "/4096-9.seg.new", "x", 1), 0);
    world_set_plan(f.world, NULL);
    options.is_read_only = true;
    assert_int_equal(segment_open(world_env(f.world), SAMPLE_FOLDER, &options, &set, NULL),
                     KVARVE_OK);
    sample_prepare(&request, parts, PAGES);
    make_parts(parts, places, PAGES, SAMPLE_SLOT, read_back);
    assert_int_equal(segment_write(set, &request.base, NULL), KVARVE_INVALID);
    assert_int_equal(segment_grow(set, SAMPLE_SLOT, UINT64_MAX, &request.base, NULL),
                     KVARVE_INVALID);
    assert_int_equal(segment_sync(set, &places[0].segment, 1, &request.base, NULL), KVARVE_INVALID);
    assert_int_equal(segment_trim(set, &bytes, &request.base, NULL), KVARVE_INVALID);
    assert_int_equal(sample_read(f.world, set, parts, PAGES), KVARVE_OK);
    assert_memory_equal(written, read_back, sizeof written);
    segment_close(set);
    assert_int_equal(world_observe(f.world).changes, 0);
    assert_true(world_exists(f.world, SAMPLE_FOLDER "/4096-9.seg.new"));

    assert_int_equal(segment_open(world_env(f.world), "store/absent", &options, &set, NULL),
                     KVARVE_OK);
    segment_close(set);
    end(&f);
}

static void test_segment__buffered_io_serves_where_direct_does_not(void **unused)
{
    const world_plan no_direct = {.fault_step = 0,
                                  .cut_change = WORLD_NEVER,
                                  .fault_ops = WORLD_OP_OPEN,
                                  .fault_path = ".seg",
                                  .fault_errno = EINVAL};
    fixture f = begin();

    (void)unused;
    world_set_plan(f.world, &no_direct);
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    assert_true(world_observe(f.world).fault_hit);
    assert_false(sample_count(f.set).is_direct);

    world_set_plan(f.world, &no_direct);
    reopen(&f);
    assert_true(world_observe(f.world).fault_hit);
    assert_false(sample_count(f.set).is_direct);
    assert_int_equal(sample_count(f.set).file_count, 1);

    world_set_plan(f.world, NULL);
    reopen(&f);
    assert_true(sample_count(f.set).is_direct);
    end(&f);
}

static void test_segment__space_that_cannot_be_allocated_is_at_least_sized(void **unused)
{
    const world_plan plan = {.fault_step = 0,
                             .cut_change = WORLD_NEVER,
                             .fault_ops = WORLD_OP_ALLOCATE,
                             .fault_errno = EOPNOTSUPP};
    fixture f = begin();
    page_place places[PAGES];
    uint64_t size = 0;
    uint64_t bytes = 1;

    (void)unused;
    world_set_plan(f.world, &plan);
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    assert_int_equal(world_size(f.world, SAMPLE_FOLDER "/16384-1.seg", &size), 0);
    assert_int_equal(size, sample_count(f.set).file_bytes);
    assert_true(world_used_bytes(f.world) <= 8192);
    assert_int_equal(segment_reserve(f.set, SAMPLE_SLOT, PAGES, places), KVARVE_OK);
    write_pages(&f, places, PAGES);
    /* Free slots that were never written count all the same: they may be at any time. */
    assert_int_equal(size, sample_count(f.set).file_bytes);
    assert_int_equal(sample_trim(f.world, f.set, &bytes), KVARVE_OK);
    assert_int_equal(bytes, sample_count(f.set).slot_bytes_hollow);
    assert_int_equal(size - bytes, sample_count(f.set).file_bytes);

    /* And they come back without having been allocated. */
    world_set_plan(f.world, &plan);
    assert_int_equal(sample_grow(f.world, f.set, SAMPLE_SLOT, UINT64_MAX), KVARVE_OK);
    assert_int_equal(size, sample_count(f.set).file_bytes);
    assert_int_equal(segment_free_slots(f.set, SAMPLE_SLOT), bytes / SAMPLE_SLOT);
    end(&f);
}

static void test_segment__slot_sizes_are_rounded_up(void **unused)
{
    (void)unused;
    assert_int_equal(segment_slot_bytes(1), 4096);
    assert_int_equal(segment_slot_bytes(4096), 4096);
    assert_int_equal(segment_slot_bytes(4097), 8192);
    assert_int_equal(segment_slot_bytes(UINT64_C(1) << 30), UINT32_C(1) << 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_segment__a_new_folder_is_made_and_empty),
        cmocka_unit_test(test_segment__a_grown_file_has_free_slots_and_header_blocks),
        cmocka_unit_test(test_segment__what_is_written_is_read_after_a_power_cut),
        cmocka_unit_test(test_segment__parts_come_in_any_order_and_any_size),
        cmocka_unit_test(test_segment__neighbours_go_in_one_call),
        cmocka_unit_test(test_segment__work_is_split_at_4_mib),
        cmocka_unit_test(test_segment__a_request_without_parts_ends_too),
        cmocka_unit_test(test_segment__each_file_is_synced_once),
        cmocka_unit_test(test_segment__a_file_keeps_within_its_bytes),
        cmocka_unit_test(test_segment__a_small_limit_gives_fewer_slots_or_none),
        cmocka_unit_test(test_segment__a_full_disk_is_said_and_nothing_is_left),
        cmocka_unit_test(test_segment__numbers_go_on_after_those_of_all_names),
        cmocka_unit_test(test_segment__a_damaged_first_block_makes_a_file_unusable),
        cmocka_unit_test(test_segment__files_of_other_stores_are_left_alone),
        cmocka_unit_test(test_segment__a_renamed_file_is_not_believed),
        cmocka_unit_test(test_segment__read_only_changes_nothing),
        cmocka_unit_test(test_segment__buffered_io_serves_where_direct_does_not),
        cmocka_unit_test(test_segment__space_that_cannot_be_allocated_is_at_least_sized),
        cmocka_unit_test(test_segment__slot_sizes_are_rounded_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
