/*
 * test_posix.c - segment files in the real world: a temporary folder and a pool of threads, many
 * requests at once. The thread sanitizer watches it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "env/env_posix.h"
#include "env/thread.h"
#include "segment/segment.h"

#define SLOT     UINT32_C(65536)
#define PAGES    24
#define REQUESTS 6
#define ROUNDS   20

static _Alignas(4096) uint8_t written[REQUESTS][PAGES][SLOT];
static _Alignas(4096) uint8_t read_back[REQUESTS][PAGES][SLOT];

typedef struct fixture {
    char folder[64];
    char path[80];
    int event;
    env_posix *posix;
    segment_set *set;
} fixture;

static void notify(void *context)
{
    event_set(*(const int *)context);
}

static void done(segment_request *request, void *context)
{
    (void)request;
    ++*(int *)context;
}

static void begin(fixture *f, bool use_direct)
{
    const env_posix_options threads = {
        .pool_threads = 3, .notify = notify, .notify_context = &f->event};
    const segment_options options = {
        .store = {{7}}, .file_bytes = 4 << 20, .use_direct = use_direct};

    (void)snprintf(f->folder, sizeof f->folder, "/tmp/kvarve-segment-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    (void)snprintf(f->path, sizeof f->path, "%s/segments", f->folder);
    f->event = event_open();
    assert_true(f->event >= 0);
    assert_int_equal(env_posix_start(&threads, &f->posix, NULL), KVARVE_OK);
    assert_int_equal(segment_open(env_posix_env(f->posix), f->path, &options, &f->set, NULL),
                     KVARVE_OK);
}

static bool remove_name(void *context, const char *name)
{
    char path[512];

    (void)snprintf(path, sizeof path, "%s/%s", (const char *)context, name);
    (void)unlink(path);
    return true;
}

static void end(fixture *f)
{
    kvarve_io *io = io_posix();

    segment_close(f->set);
    env_posix_stop(f->posix);
    event_close(f->event);
    (void)io->ops->list(io, f->path, remove_name, f->path);
    assert_int_equal(rmdir(f->path), 0);
    assert_int_equal(rmdir(f->folder), 0);
    assert_int_equal(kvarve_allocated_blocks(), 0);
}

/* Poll until *count has come to `wanted`. */
static void await(const fixture *f, const int *count, int wanted)
{
    kvarve_executor *executor = env_posix_env(f->posix)->executor;

    while (*count < wanted) {
        event_clear(f->event);
        if (!executor->poll(executor)) {
            (void)event_wait(f->event, 10000);
        }
    }
}

static void grow(const fixture *f)
{
    int count = 0;
    segment_request request = {.done = done, .context = &count};

    assert_int_equal(segment_grow(f->set, SLOT, UINT64_MAX, &request, NULL), KVARVE_OK);
    await(f, &count, 1);
    assert_int_equal(request.status, KVARVE_OK);
}

/* Write or read all requests' pages at once. */
static void transfer_all(const fixture *f, segment_part (*parts)[PAGES], bool is_write)
{
    segment_request requests[REQUESTS];
    int count = 0;

    for (int i = 0; i < REQUESTS; i++) {
        requests[i] = (segment_request){
            .parts = parts[i], .part_count = PAGES, .done = done, .context = &count};
        assert_int_equal(is_write ? segment_write(f->set, &requests[i], NULL)
                                  : segment_read(f->set, &requests[i], NULL),
                         KVARVE_OK);
    }
    await(f, &count, REQUESTS);
    for (int i = 0; i < REQUESTS; i++) {
        assert_int_equal(requests[i].status, KVARVE_OK);
    }
}

/* Three syncs of the same files at once, and a trim beside them. */
static void sync_and_trim(const fixture *f)
{
    static const uint32_t files[] = {1, 2, 3};
    segment_request requests[4];
    uint64_t bytes = 0;
    int count = 0;

    for (int i = 0; i < 4; i++) {
        requests[i] = (segment_request){.done = done, .context = &count};
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(segment_sync(f->set, files, 3, &requests[i], NULL), KVARVE_OK);
    }
    assert_int_equal(segment_trim(f->set, &bytes, &requests[3], NULL), KVARVE_OK);
    await(f, &count, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(requests[i].status, KVARVE_OK);
    }
}

static void run_round(const fixture *f, int round)
{
    static segment_part parts[REQUESTS][PAGES];
    page_place places[PAGES];

    for (int i = 0; i < REQUESTS; i++) {
        assert_int_equal(segment_reserve(f->set, SLOT, PAGES, places), KVARVE_OK);
        for (int j = 0; j < PAGES; j++) {
            memset(written[i][j], round * 7 + i * 31 + j, SLOT);
            parts[i][j] = (segment_part){.place = places[j], .bytes = written[i][j], .size = SLOT};
        }
    }
    transfer_all(f, parts, true);
    sync_and_trim(f);
    memset(read_back, 0, sizeof read_back);
    for (int i = 0; i < REQUESTS; i++) {
        for (int j = 0; j < PAGES; j++) {
            parts[i][j].bytes = read_back[i][j];
        }
    }
    transfer_all(f, parts, false);
    assert_memory_equal(written, read_back, sizeof written);
    for (int i = 0; i < REQUESTS; i++) {
        for (int j = 0; j < PAGES; j++) {
            segment_free(f->set, parts[i][j].place);
        }
    }
}

static void run_all(bool use_direct)
{
    fixture f;
    page_place kept[3];
    segment_counters counters;

    begin(&f, use_direct);
    for (int i = 0; i < 3; i++) {
        grow(&f);
        /* One slot of each stays taken, or trim would remove the file. */
        kept[i] = (page_place){.segment = (uint32_t)i + 1, .slot = (uint32_t)(i * 20)};
        assert_true(segment_take(f.set, kept[i]));
    }
    for (int round = 0; round < ROUNDS; round++) {
        run_round(&f, round);
    }
    segment_count(f.set, &counters);
    assert_int_equal(counters.payload_bytes_written, (uint64_t)ROUNDS * sizeof written);
    assert_true(use_direct || !counters.is_direct);
    end(&f);
}

static void test_posix__direct_io_gives_back_what_was_written(void **unused)
{
    (void)unused;
    run_all(true);
}

static void test_posix__buffered_io_gives_back_what_was_written(void **unused)
{
    (void)unused;
    run_all(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_posix__direct_io_gives_back_what_was_written),
        cmocka_unit_test(test_posix__buffered_io_gives_back_what_was_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
