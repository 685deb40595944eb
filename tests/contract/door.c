/*
 * door.c - see door.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/open_in.h"
#include "base/alloc.h"
#include "base/assert.h"
#include "contract/door.h"

#define TESTS_MAX 128

kvarve_store_options door_options(void)
{
    kvarve_store_options options = KVARVE_STORE_OPTIONS_INIT;

    options.arena_bytes = UINT64_C(4) << 20;
    options.flash_bytes_max = UINT64_C(64) << 20;
    options.segment_bytes = UINT64_C(1) << 20;
    options.pool_threads = 2;
    options.io_timeout_ms = 10000;
    return options;
}

kvarve_status door_try_open(door *at, kvarve_error *err)
{
    if (door_is_daemon(at)) {
        char socket[SCRATCH_PATH_MAX + 16];

        (void)snprintf(socket, sizeof socket, "%s/socket", at->scratch);
        return door_daemon_start(at->folder, socket, &at->options, &at->daemon, &at->store, err);
    }
    if (at->is_client) {
        return door_server_start(world_env(at->world), at->folder, &at->options, &at->server,
                                 &at->store, err);
    }
    return at->world != NULL
               ? api_open_in(world_env(at->world), at->folder, &at->options, &at->store, err)
               : kvarve_open(at->folder, &at->options, &at->store, err);
}

void door_open(door *at)
{
    kvarve_error err = {0};

    if (door_try_open(at, &err) != KVARVE_OK) {
        fail_msg("open %s: %s", at->folder, err.text);
    }
}

void door_close(door *at)
{
    kvarve_close(at->store);
    at->store = NULL;
    door_server_stop(at->server);
    at->server = NULL;
    door_daemon_stop(at->daemon);
    at->daemon = 0;
}

void door_reopen(door *at)
{
    door_close(at);
    door_open(at);
}

void door_pass_ms(door *at, uint32_t milliseconds)
{
    if (at->world != NULL) {
        world_advance(at->world, milliseconds * UINT64_C(1000000));
    }
}

kvarve_statistics door_statistics(door *at)
{
    kvarve_statistics out = KVARVE_STATISTICS_INIT;

    assert_int_equal(kvarve_statistics_get(at->store, &out, NULL), KVARVE_OK);
    return out;
}

/* --- damage --- */

#define BLOCK      4096u
#define COMPARED   64u
#define DAMAGED_AT 7u

typedef struct damage {
    door *at;
    uint8_t head[COMPARED];
    size_t size; /* of the head */
    size_t changed;
} damage;

static bool damage_simulated(void *context, const char *path, uint64_t size)
{
    damage *to = context;
    uint8_t block[COMPARED];

    for (uint64_t offset = 0; strstr(path, ".seg") != NULL && offset + BLOCK <= size;
         offset += BLOCK) {
        assert_int_equal(world_read(to->at->world, path, offset, block, to->size), 0);
        if (memcmp(block, to->head, to->size) == 0) {
            assert_int_equal(world_flip(to->at->world, path, offset + DAMAGED_AT, 0x40), 0);
            to->changed++;
        }
    }
    return true;
}

static void damage_file(damage *to, const char *path)
{
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    uint8_t block[COMPARED];

    assert_true(fd >= 0);
    for (off_t offset = 0; pread(fd, block, to->size, offset) == (ssize_t)to->size;
         offset += BLOCK) {
        if (memcmp(block, to->head, to->size) == 0) {
            block[DAMAGED_AT] ^= 0x40;
            assert_int_equal(pwrite(fd, &block[DAMAGED_AT], 1, offset + DAMAGED_AT), 1);
            to->changed++;
        }
    }
    close(fd);
}

static void damage_real(damage *to)
{
    char folder[SCRATCH_PATH_MAX + 32];
    DIR *listing;
    const struct dirent *entry;

    (void)snprintf(folder, sizeof folder, "%s/segments", to->at->folder);
    listing = opendir(folder);
    assert_non_null(listing);
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): one listing, one thread. */
    while ((entry = readdir(listing)) != NULL) {
        char path[sizeof folder + 300];

        if (strstr(entry->d_name, ".seg") != NULL) {
            (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            damage_file(to, path);
        }
    }
    closedir(listing);
}

size_t door_damage_page(door *at, const void *page, size_t size)
{
    damage to = {.at = at, .size = size < COMPARED ? size : COMPARED};

    memcpy(to.head, page, to.size);
    if (at->world != NULL) {
        world_list_files(at->world, damage_simulated, &to);
    } else {
        damage_real(&to);
    }
    return to.changed;
}

/* --- the suite --- */

static door the_door;
static uint64_t blocks_before; /* what a test that failed left behind is not held against others */

static int setup_simulated(void **state)
{
    blocks_before = kvarve_allocated_blocks();
    the_door = (door){.world = world_create(7), .options = door_options()};
    if (the_door.world == NULL) {
        return -1;
    }
    (void)snprintf(the_door.folder, sizeof the_door.folder, "/store");
    *state = &the_door;
    door_open(&the_door);
    return 0;
}

static int setup_client(void **state)
{
    blocks_before = kvarve_allocated_blocks();
    the_door = (door){.world = world_create(7), .is_client = true, .options = door_options()};
    if (the_door.world == NULL) {
        return -1;
    }
    (void)snprintf(the_door.folder, sizeof the_door.folder, "/store");
    *state = &the_door;
    door_open(&the_door);
    return 0;
}

static int setup_folder(void **state, bool is_client)
{
    blocks_before = kvarve_allocated_blocks();
    the_door = (door){.is_client = is_client, .options = door_options()};
    scratch_make(the_door.scratch);
    (void)snprintf(the_door.folder, sizeof the_door.folder, "%s/store", the_door.scratch);
    *state = &the_door;
    door_open(&the_door);
    return 0;
}

static int setup_real(void **state)
{
    return setup_folder(state, false);
}

static int setup_daemon(void **state)
{
    return setup_folder(state, true);
}

/* A test that failed left handles open, which kvarve_close does not forgive. */
static jmp_buf out_of_close;

static void leave_close(const char *text)
{
    print_error("close: %s\n", text);
    longjmp(out_of_close, 1);
}

static bool try_close(door *at)
{
    volatile bool is_closed = false;

    kvarve_assert_set_handler(leave_close);
    if (setjmp(out_of_close) == 0) { /* NOLINT(cert-err52-cpp): the only way back from there */
        door_close(at);
        is_closed = true;
    }
    kvarve_assert_set_handler(NULL);
    return is_closed;
}

static int teardown(void **state)
{
    door *at = *state;
    uint32_t open_count = 0;

    if (!try_close(at)) {
        return -1;
    }
    if (at->world != NULL) {
        open_count = world_open_descriptors(at->world);
        world_destroy(at->world);
    } else {
        scratch_remove(at->scratch);
    }
    if (open_count > 0 || kvarve_allocated_blocks() != blocks_before) {
        print_error("left behind: %u descriptors, %zu blocks of memory\n", open_count,
                    (size_t)(kvarve_allocated_blocks() - blocks_before));
        return -1;
    }
    return 0;
}

static int run_through(const char *suite, const char *door_name, CMFixtureFunction setup,
                       const door_test *tests, size_t count)
{
    struct CMUnitTest table[TESTS_MAX];
    char name[128];

    for (size_t i = 0; i < count; i++) {
        table[i] = (struct CMUnitTest){.name = tests[i].name,
                                       .test_func = tests[i].run,
                                       .setup_func = setup,
                                       .teardown_func = teardown};
    }
    (void)snprintf(name, sizeof name, "%s through the %s door", suite, door_name);
    return _cmocka_run_group_tests(name, table, count, NULL, NULL);
}

int door_run(const char *suite, const door_test *tests, size_t count)
{
    int failed;

    assert_true(count <= TESTS_MAX);
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* what a test said is seen though it aborts */
    failed = run_through(suite, "simulated", setup_simulated, tests, count);
    failed += run_through(suite, "client", setup_client, tests, count);
    failed += run_through(suite, "real", setup_real, tests, count);
    failed += run_through(suite, "daemon", setup_daemon, tests, count);
    return failed == 0 ? 0 : 1;
}
