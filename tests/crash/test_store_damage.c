/*
 * test_store_damage.c - a small store whose files are damaged, byte by byte.
 *
 * Goal    Every byte flipped in turn, every file truncated and deleted in turn: the store opens or
 *         says what is wrong; what is found restores byte for byte or is a miss (P1), never wrong
 *         bytes, never a crash, never a leak; and a new put works or is refused. Where only the
 *         index, the identity or the documents are damaged, a rebuild brings every checkpoint back.
 * Method  The store is made once; each damage starts from its snapshot. Sectors of zeroes count as
 *         one byte. Truncations: every length of a short file, of a longer one the lengths around
 *         each multiple of 256; KVARVE_CRASH_EFFORT=2 takes every length, and every bit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "crash/crash_effort.h"
#include "crash/store_model.h"

#define FILES_MAX  16u
#define PATH_BYTES 128u
#define SHORT_FILE UINT64_C(2048)

static const model_item items[] = {
    {.layout = LAYOUT_PLAIN, .conversation = 9, .kind = 2, .tokens = 20},
    {.layout = LAYOUT_PLAIN, .conversation = 0, .kind = 2, .tokens = 18},
    {.layout = LAYOUT_PLAIN, .conversation = 0, .kind = 1, .tokens = 24},
};

#define ITEM_COUNT (sizeof items / sizeof *items)

typedef struct damaged_file {
    char path[PATH_BYTES];
    uint64_t size;
} damaged_file;

typedef enum damage_kind { DAMAGE_FLIP, DAMAGE_TRUNCATE, DAMAGE_DELETE } damage_kind;

typedef struct damage {
    damage_kind kind;
    const char *path;
    const char *other; /* deleted, too; NULL: none */
    uint64_t at;
    uint8_t mask;
} damage;

typedef struct golden {
    sim_world *world;
    world_snapshot *whole;
    damaged_file files[FILES_MAX];
    size_t file_count;
    uint64_t plans;
    uint64_t misses;
    uint64_t refused; /* opens that said what is wrong */
    uint64_t rebuilt;
    uint64_t failed;
    uint64_t blocks; /* of memory, at the last restore */
} golden;

static const model_limits limits = {.flash_bytes_max = UINT64_C(16) << 20};

static bool note_file(void *context, const char *path, uint64_t size)
{
    golden *store = context;
    damaged_file *file = &store->files[store->file_count];

    assert_true(store->file_count < FILES_MAX && strlen(path) < PATH_BYTES);
    memcpy(file->path, path, strlen(path) + 1);
    file->size = size;
    store->file_count++;
    return true;
}

static void make_golden(golden *out)
{
    session open;

    memset(out, 0, sizeof *out);
    out->world = world_create(3);
    assert_int_equal(session_open(&open, out->world, MODEL_FOLDER, &limits, NULL), KVARVE_OK);
    for (size_t i = 1; i < ITEM_COUNT; i++) {
        assert_int_equal(item_put(&open, &items[i]).state, KVARVE_PUT_DURABLE);
    }
    session_close(&open);
    world_flush(out->world);
    out->whole = world_take_snapshot(out->world);
    world_list_files(out->world, note_file, out);
    assert_true(out->file_count >= 5);
}

static void drop_golden(golden *store)
{
    (void)printf("%llu damages, %llu opens refused, %llu rebuilds, %llu misses\n",
                 (unsigned long long)store->plans, (unsigned long long)store->refused,
                 (unsigned long long)store->rebuilt, (unsigned long long)store->misses);
    world_release_snapshot(store->world, store->whole);
    world_destroy(store->world);
    assert_int_equal(store->failed, 0);
    assert_int_equal(kvarve_allocated_blocks(), 0);
}

/* --- one damage --- */

static bool is_segment(const char *path)
{
    return strstr(path, ".seg") != NULL;
}

/* Read all; NULL, or what is wrong. *out_right: how many were there. */
static const char *read_items(golden *store, session *open, size_t *out_right)
{
    *out_right = 0;
    for (size_t i = 1; i < ITEM_COUNT; i++) {
        bool is_found = false;
        const read_answer answer = item_read(open, &items[i], i % 2 == 0, &is_found);

        if (answer == READ_WRONG) {
            return "wrong bytes (P1)";
        }
        *out_right += answer == READ_RIGHT;
        store->misses += answer == READ_MISS;
    }
    return NULL;
}

static const char *look(golden *store, uint32_t flags, kvarve_status *out_status, size_t *out_right)
{
    model_limits with_flags = limits;
    kvarve_verify_result verified;
    const char *broken;
    session open;

    with_flags.flags = flags;
    *out_right = 0;
    *out_status = session_open(&open, store->world, MODEL_FOLDER, &with_flags, NULL);
    if (*out_status != KVARVE_OK) {
        return NULL;
    }
    broken = read_items(store, &open, out_right);
    if (store->plans % 4 == 0) {
        (void)!kvarve_verify(open.store, NULL, NULL, &verified, NULL);
        (void)item_put(&open, &items[0]);
    }
    session_close(&open);
    return broken;
}

static void restore(golden *store)
{
    world_restore(store->world, store->whole, 5);
    world_reserve(store->world, UINT64_C(4) << 20);
    store->blocks = kvarve_allocated_blocks();
}

/* Once, or a second time after a restore. */
static void apply(golden *store, const damage *what)
{
    int rc = 0;

    switch (what->kind) {
    case DAMAGE_FLIP:
        rc = world_flip(store->world, what->path, what->at, what->mask);
        break;
    case DAMAGE_TRUNCATE:
        rc = world_truncate(store->world, what->path, what->at);
        break;
    case DAMAGE_DELETE:
    default:
        rc = world_remove(store->world, what->path);
        if (what->other != NULL && rc == 0) {
            rc = world_remove(store->world, what->other);
        }
        break;
    }
    assert_int_equal(rc, 0);
}

/* From whole segments a rebuild brings everything back. */
static const char *check_rebuild(golden *store, const damage *what)
{
    const bool is_whole =
        !is_segment(what->path) && (what->other == NULL || !is_segment(what->other));
    size_t right = 0;
    kvarve_status status;
    const char *broken;

    if (is_whole) {
        restore(store);
        apply(store, what);
    }
    store->rebuilt++;
    broken = look(store, KVARVE_OPEN_REBUILD, &status, &right);
    if (broken != NULL || !is_whole || status == KVARVE_UNSUPPORTED) {
        return broken;
    }
    if (status != KVARVE_OK) {
        return "a rebuild from whole segments fails";
    }
    return right < ITEM_COUNT - 1 ? "a rebuild from whole segments loses a checkpoint" : NULL;
}

static const char *check(golden *store, const damage *what)
{
    size_t right = 0;
    kvarve_status status;
    const char *broken = look(store, 0, &status, &right);

    if (broken != NULL) {
        return broken;
    }
    store->refused += status != KVARVE_OK;
    if (status != KVARVE_OK && status != KVARVE_CORRUPT && status != KVARVE_UNSUPPORTED &&
        status != KVARVE_IO) {
        return "the open fails with a status that does not say damage";
    }
    return status == KVARVE_OK && right == ITEM_COUNT - 1 ? NULL : check_rebuild(store, what);
}

static void run_plan(golden *store, const damage *what)
{
    const char *broken;

    restore(store);
    apply(store, what);
    broken = check(store, what);
    if (broken == NULL && world_open_descriptors(store->world) != 0) {
        broken = "a descriptor was left open";
    }
    if (broken == NULL && kvarve_allocated_blocks() != store->blocks) {
        broken = "memory was left";
    }
    store->plans++;
    if (broken != NULL && store->failed++ < 10) {
        (void)printf("%s: damage %d of %s and %s at %llu, mask %u\n", broken, (int)what->kind,
                     what->path, what->other == NULL ? "no other" : what->other,
                     (unsigned long long)what->at, what->mask);
    }
    if (broken != NULL && crash_ends_at_first()) {
        fail();
    }
}

/* --- sweeps --- */

static void flip(golden *store, const damaged_file *file, uint64_t at, uint8_t mask)
{
    run_plan(store, &(damage){.kind = DAMAGE_FLIP, .path = file->path, .at = at, .mask = mask});
}

static void flip_sector(golden *store, const damaged_file *file, uint64_t sector)
{
    static const uint8_t zeroes[WORLD_SECTOR];
    uint8_t bytes[WORLD_SECTOR];
    const size_t size =
        file->size - sector < WORLD_SECTOR ? (size_t)(file->size - sector) : WORLD_SECTOR;
    const bool is_thorough = crash_effort() > 1;
    const size_t stride = (size_t)crash_stride();
    bool is_zero;

    restore(store);
    assert_int_equal(world_read(store->world, file->path, sector, bytes, size), 0);
    is_zero = memcmp(bytes, zeroes, size) == 0;
    for (size_t i = is_zero ? 0 : sector / WORLD_SECTOR % stride; i < (is_zero ? 1 : size);
         i += stride) {
        if (!is_thorough) {
            flip(store, file, sector + i, (uint8_t)(1u << ((sector / 7 + i) % 8)));
        }
        for (unsigned bit = 0; bit < 8 && is_thorough; bit++) {
            flip(store, file, sector + i, (uint8_t)(1u << bit));
        }
    }
}

static void test_store_damage__every_byte_flipped(void **state)
{
    golden store;

    (void)state;
    make_golden(&store);
    for (size_t i = 0; i < store.file_count; i++) {
        const uint64_t before = store.plans;

        if (strcmp(store.files[i].path, "s/reserve") == 0) {
            continue; /* nothing is ever read from it */
        }
        for (uint64_t sector = 0; sector < store.files[i].size; sector += WORLD_SECTOR) {
            flip_sector(&store, &store.files[i], sector);
        }
        (void)printf("%s: %llu flips\n", store.files[i].path,
                     (unsigned long long)(store.plans - before));
    }
    assert_true(store.plans > 6000 / crash_stride() && store.refused > 20 && store.rebuilt > 20);
    drop_golden(&store);
}

static bool is_length_tried(const damaged_file *file, uint64_t length)
{
    const uint64_t part = length % 256;

    if (strcmp(file->path, "s/reserve") == 0) {
        return length % 65536 == 1;
    }
    if (length % crash_stride() != 0) {
        return false;
    }
    if (is_segment(file->path) && length > 65536) {
        return length % 16384 <= 1;
    }
    return crash_effort() > 1 || file->size <= SHORT_FILE || part <= 1 || part == 255;
}

static void test_store_damage__every_file_truncated(void **state)
{
    golden store;

    (void)state;
    make_golden(&store);
    for (size_t i = 0; i < store.file_count; i++) {
        const damaged_file *file = &store.files[i];

        for (uint64_t length = 0; length < file->size; length++) {
            if (is_length_tried(file, length)) {
                run_plan(&store,
                         &(damage){.kind = DAMAGE_TRUNCATE, .path = file->path, .at = length});
            }
        }
    }
    assert_true(store.plans > 1000 / crash_stride());
    drop_golden(&store);
}

static void test_store_damage__every_file_deleted(void **state)
{
    golden store;

    (void)state;
    make_golden(&store);
    for (size_t i = 0; i < store.file_count; i++) {
        for (size_t k = i; k < store.file_count; k++) { /* one, and two */
            run_plan(&store, &(damage){.kind = DAMAGE_DELETE,
                                       .path = store.files[i].path,
                                       .other = k == i ? NULL : store.files[k].path});
        }
    }
    drop_golden(&store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_damage__every_byte_flipped),
        cmocka_unit_test(test_store_damage__every_file_truncated),
        cmocka_unit_test(test_store_damage__every_file_deleted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
