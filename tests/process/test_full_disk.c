/*
 * test_full_disk.c - a real file system of its own that runs full in the middle of a put.
 *
 * A small ext4 is made in a file and mounted by a loop device; that needs root, and where it can
 * not be had the test is skipped, and counted as such (exit code 77). Another program's file then
 * takes all the space. Whatever the put under way answers, what was durable before is restored byte
 * for byte, the store goes on when space is there again, and nothing is left behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "contract/engine.h"
#include "kvarve/admin.h"
#include "support/scratch.h"

#define DISK_BYTES   (192u << 20)
#define SKIPPED      77
#define BEFORE       6u
#define PUTS_TO_FILL 60u

/* 6 MB a checkpoint. */
static const engine_layout bulky = {
    .identity = "{\"model\":\"bulky\"}",
    .ranks = 2,
    .group_count = 2,
    .groups = {{.page_class = KVARVE_CLASS_PREFIX, .span_tokens = 16, .page_bytes = 1u << 19},
               {.page_class = KVARVE_CLASS_ENDPOINT, .page_bytes = 100000}}};

static char scratch[SCRATCH_PATH_MAX];
static char image[SCRATCH_PATH_MAX + 16];
static char disk[SCRATCH_PATH_MAX + 16];
static char folder[SCRATCH_PATH_MAX + 32];
static char ballast[SCRATCH_PATH_MAX + 32];

/* Run a command of the shell quietly, with the image and the folder as $1 and $2. True: it said 0.
 */
static bool run(const char *command)
{
    const pid_t child = fork();
    int status = 0;

    if (child == 0) {
        const int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        (void)dup2(null, STDOUT_FILENO);
        (void)dup2(null, STDERR_FILENO);
        (void)execl("/bin/sh", "sh", "-c", command, "sh", image, disk, (char *)NULL);
        _exit(127);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static bool make_disk(void)
{
    const int fd = open(image, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const bool is_sized = fd >= 0 && ftruncate(fd, DISK_BYTES) == 0;

    if (fd >= 0) {
        close(fd);
    }
    return is_sized && geteuid() == 0 &&
           run("PATH=$PATH:/usr/sbin:/sbin; mkdir \"$2\" && mkfs.ext4 -q -F -m 0 \"$1\" && "
               "mount -o loop \"$1\" \"$2\"");
}

static void remove_disk(void)
{
    (void)run("umount \"$2\"");
    scratch_remove(scratch);
}

/* Another program's file takes what is left. */
static void fill_disk(void)
{
    static char block[1 << 16];
    const int fd = open(ballast, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    size_t step = sizeof block;

    assert_true(fd >= 0);
    while (step > 0) {
        if (write(fd, block, step) != (ssize_t)step) {
            step /= 2; /* the last bytes too */
        }
    }
    (void)fsync(fd);
    close(fd);
}

static kvarve_store *open_store(engine *out)
{
    kvarve_store_options options = KVARVE_STORE_OPTIONS_INIT;
    kvarve_store *store = NULL;
    kvarve_error err = {0};

    options.arena_bytes = UINT64_C(32) << 20;
    options.flash_bytes_max = UINT64_C(120) << 20;
    options.segment_bytes = UINT64_C(8) << 20;
    options.io_timeout_ms = 3000;
    if (kvarve_open(folder, &options, &store, &err) != KVARVE_OK ||
        engine_open(out, store, &bulky, &err) != KVARVE_OK) {
        fail_msg("open: %s", err.text);
    }
    return store;
}

static engine_state state_of(uint64_t number, kvarve_prefix **out_prefix)
{
    *out_prefix = engine_prefix(number, 96);
    return (engine_state){.prefix = *out_prefix, .tokens = 96};
}

/* How the put ended: KVARVE_PUT_DURABLE or KVARVE_PUT_ABORTED. */
static uint32_t try_put(const engine *machine, uint64_t number, bool fills)
{
    kvarve_prefix *prefix;
    const engine_state state = state_of(number, &prefix);
    kvarve_put *put = NULL;
    kvarve_error err = {0};
    uint32_t ended;

    assert_int_equal(engine_put_begin(machine, &state, NULL, &put, &err), KVARVE_OK);
    if (kvarve_put_wait(put, KVARVE_PUT_STAGED, 10000, NULL) == KVARVE_OK) {
        assert_int_equal(engine_put_fill(machine, put, &state, 0, NULL, &err), KVARVE_OK);
        if (fills) {
            fill_disk();
        }
        assert_int_equal(engine_put_ranks(machine, put, &state, NULL, &err), KVARVE_OK);
        (void)!kvarve_put_wait(put, KVARVE_PUT_DURABLE, 10000, NULL);
    }
    ended = kvarve_put_status(put);
    if (ended == KVARVE_PUT_ABORTED) {
        print_message("  put %llu refused: %s\n", (unsigned long long)number,
                      kvarve_refusal_text(kvarve_put_refusal(put)));
    }
    assert_true(ended == KVARVE_PUT_DURABLE || ended == KVARVE_PUT_ABORTED);
    kvarve_put_release(&put);
    kvarve_prefix_free(prefix);
    return ended;
}

static kvarve_status restore(const engine *machine, uint64_t number)
{
    kvarve_prefix *prefix;
    const engine_state state = state_of(number, &prefix);
    kvarve_error err = {0};
    const kvarve_status status = engine_restore(machine, &state, false, &err);

    if (status != KVARVE_OK && status != KVARVE_MISS) {
        fail_msg("restore %llu: %s", (unsigned long long)number, err.text);
    }
    kvarve_prefix_free(prefix);
    return status;
}

static void test_full_disk__in_the_middle_of_a_put_loses_nothing(void **state)
{
    engine machine = {0};
    kvarve_store *store = open_store(&machine);
    kvarve_statistics now = KVARVE_STATISTICS_INIT;
    kvarve_verify_result result;
    bool is_there[PUTS_TO_FILL] = {false};
    uint64_t number;

    (void)state;
    for (number = 0; number < BEFORE; number++) {
        assert_int_equal(try_put(&machine, number, false), KVARVE_PUT_DURABLE);
        is_there[number] = true;
    }
    is_there[number] = try_put(&machine, number, true) == KVARVE_PUT_DURABLE;
    /* Nothing is left on the disk: space comes from evictions, or the answer is no, soon. */
    for (number++; number < BEFORE + 6; number++) {
        is_there[number] = try_put(&machine, number, false) == KVARVE_PUT_DURABLE;
    }
    assert_int_equal(kvarve_statistics_get(store, &now, NULL), KVARVE_OK);
    print_message("  full: %llu checkpoints, %llu evicted, %llu refused, failed %llu\n",
                  (unsigned long long)now.checkpoints, (unsigned long long)now.evictions,
                  (unsigned long long)now.puts_aborted, (unsigned long long)now.is_failed);
    for (uint64_t i = 0, missing = 0; i < number; i++) {
        missing += is_there[i] && restore(&machine, i) != KVARVE_OK;
        assert_true(missing <= now.evictions);
    }
    engine_close(&machine);
    kvarve_close(store);
    store = open_store(&machine); /* still full */
    for (uint64_t i = 0, missing = 0; i < number; i++) {
        missing += is_there[i] && restore(&machine, i) != KVARVE_OK;
        assert_true(missing <= now.evictions);
    }
    assert_int_equal(unlink(ballast), 0);
    engine_close(&machine);
    kvarve_close(store);
    store = open_store(&machine); /* and there is room again */
    assert_int_equal(try_put(&machine, number, false), KVARVE_PUT_DURABLE);
    assert_int_equal(restore(&machine, number), KVARVE_OK);
    assert_int_equal(kvarve_verify(store, NULL, NULL, &result, NULL), KVARVE_OK);
    engine_close(&machine);
    kvarve_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_disk__in_the_middle_of_a_put_loses_nothing),
    };
    int failed;

    scratch_make(scratch);
    (void)snprintf(image, sizeof image, "%s/image", scratch);
    (void)snprintf(disk, sizeof disk, "%s/disk", scratch);
    (void)snprintf(folder, sizeof folder, "%s/store", disk);
    (void)snprintf(ballast, sizeof ballast, "%s/ballast", disk);
    if (!make_disk()) {
        print_message("skipped: no file system of our own (root, mkfs.ext4 and a loop device)\n");
        remove_disk();
        return SKIPPED;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_disk();
    return failed == 0 ? 0 : 1;
}
