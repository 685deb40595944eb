/*
 * test_store_open.c - opening, and what a caller may get wrong, through each door: each a status
 * and a text that names what was wrong, and nothing is lost by it.
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

#include "contract/steps.h"

/* What a call is to answer, and a word that its text is to have. */
typedef struct refusal {
    kvarve_status status;
    const char *word;
} refusal;

static void expect_refused(const refusal *wanted, kvarve_status status, const char *call,
                           const char *file, int line)
{
    if (status != wanted->status || strstr(err.text, wanted->word) == NULL) {
        print_error("%s: %s: \"%s\", expected %s with %s in it\n", call, kvarve_status_text(status),
                    err.text, kvarve_status_text(wanted->status), wanted->word);
        _fail(file, line);
    }
}

/* NOLINTNEXTLINE(readability-identifier-naming): it reads as those of cmocka. */
#define assert_refused(status, call, word)                                                         \
    do {                                                                                           \
        err.text[0] = '\0';                                                                        \
        expect_refused(&(refusal){(status), (word)}, (call), #call, __FILE__, __LINE__);           \
    } while (0)

/* --- layouts --- */

typedef struct bad_group {
    kvarve_group group;
    const char *field;
} bad_group;

static void test_namespace__absurd_groups_are_refused_with_the_field_named(void **state)
{
    static const bad_group bad[] = {
        {{.page_class = 4, .span_tokens = 1, .page_bytes = 1}, "page_class"},
        {{.page_class = 0, .span_tokens = 0, .page_bytes = 1}, "span_tokens"},
        {{.page_class = 0, .span_tokens = 65537, .page_bytes = 1}, "span_tokens"},
        {{.page_class = 0, .span_tokens = UINT32_MAX, .page_bytes = 1}, "span_tokens"},
        {{.page_class = 0, .span_tokens = 1, .page_bytes = 0}, "page_bytes"},
        {{.page_class = 0, .span_tokens = 1, .page_bytes = (1u << 30) + 1}, "page_bytes"},
        {{.page_class = 0, .span_tokens = 1, .page_bytes = 1, .window_tokens = 1}, "window_tokens"},
        {{.page_class = 1, .span_tokens = 1, .page_bytes = 1}, "window_tokens"},
        {{.page_class = 2, .span_tokens = 1, .page_bytes = 1}, "span_tokens"},
        {{.page_class = 2, .page_bytes = 1, .flags = KVARVE_GROUP_ROWS}, "flags"},
        {{.page_class = 0, .span_tokens = 1, .page_bytes = 1, .flags = KVARVE_GROUP_VARIABLE},
         "flags"},
        {{.page_class = 0, .span_tokens = 1, .page_bytes = 1, .flags = 64}, "flags"},
        {{.page_class = 0, .span_tokens = 3, .page_bytes = 7, .flags = KVARVE_GROUP_ROWS},
         "page_bytes"},
        {{.page_class = 0, .span_tokens = 1, .page_bytes = 1, .flags = KVARVE_GROUP_OPTIONAL},
         "OPTIONAL"},
        {{.page_class = 0, .span_tokens = 1, .page_bytes = 1, .reserved = {0, 1, 0}}, "reserved"},
    };
    door *at = *state;
    kvarve_namespace *space = NULL;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        kvarve_namespace_options options = KVARVE_NAMESPACE_OPTIONS_INIT;

        options.identity_json = "{}";
        options.groups = &bad[i].group;
        options.group_count = 1;
        assert_refused(KVARVE_INVALID, kvarve_namespace_open(at->store, &options, &space, &err),
                       bad[i].field);
    }
    assert_null(space);
}

static void test_namespace__absurd_counts_and_documents_are_refused(void **state)
{
    static const kvarve_group group = {.page_class = 2, .page_bytes = 1};
    static const char *const documents[] = {
        "",  "{", "[]", "1", "{\"a\":1.5}", "{\"a\":1}x", "{\"a\":1,\"a\":2}", "{\"kvarve\":1}",
        NULL};
    door *at = *state;
    kvarve_namespace *space = NULL;
    kvarve_namespace_options options = KVARVE_NAMESPACE_OPTIONS_INIT;

    options.groups = &group;
    options.group_count = 1;
    for (size_t i = 0; i < sizeof documents / sizeof documents[0]; i++) {
        options.identity_json = documents[i];
        assert_int_equal(kvarve_namespace_open(at->store, &options, &space, &err), KVARVE_INVALID);
        assert_true(err.text[0] != '\0');
    }
    options.identity_json = "{}";
    options.rank_count = 0;
    assert_refused(KVARVE_INVALID, kvarve_namespace_open(at->store, &options, &space, &err),
                   "rank_count");
    options.rank_count = 1025;
    assert_refused(KVARVE_INVALID, kvarve_namespace_open(at->store, &options, &space, &err),
                   "rank_count");
    options.rank_count = 1;
    options.group_count = 0;
    assert_refused(KVARVE_INVALID, kvarve_namespace_open(at->store, &options, &space, &err),
                   "groups");
    options.group_count = 65;
    assert_refused(KVARVE_INVALID, kvarve_namespace_open(at->store, &options, &space, &err),
                   "groups");
    options.group_count = 1;
    options.flags = 2;
    assert_refused(KVARVE_INVALID, kvarve_namespace_open(at->store, &options, &space, &err),
                   "flags");
    options.flags = 0;
    options.struct_size = 3;
    assert_refused(KVARVE_INVALID, kvarve_namespace_open(at->store, &options, &space, &err),
                   "struct_size");
    assert_int_equal(kvarve_namespace_open(at->store, NULL, &space, &err), KVARVE_INVALID);
    assert_null(space);
}

/* --- puts --- */

static void test_put__absurd_boundaries_are_refused(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(1, 50);
    engine machine = open_engine(at, &engine_hybrid);
    kvarve_put_options options = KVARVE_PUT_OPTIONS_INIT;
    uint64_t sizes[4 * 6];
    kvarve_put *one = NULL;

    options.tokens = 51;
    assert_refused(KVARVE_INVALID, kvarve_put_begin(machine.space, prefix, &options, &one, &err),
                   "51");
    options.tokens = UINT64_MAX;
    assert_int_equal(kvarve_put_begin(machine.space, prefix, &options, &one, &err), KVARVE_INVALID);
    options.tokens = 50;
    options.kind = 3;
    assert_refused(KVARVE_INVALID, kvarve_put_begin(machine.space, prefix, &options, &one, &err),
                   "kind");
    options.kind = 0;
    options.draft_tokens = 51;
    assert_refused(KVARVE_INVALID, kvarve_put_begin(machine.space, prefix, &options, &one, &err),
                   "draft");
    options.draft_tokens = 0;
    options.flags = 4;
    assert_refused(KVARVE_INVALID, kvarve_put_begin(machine.space, prefix, &options, &one, &err),
                   "flags");
    options.flags = 0;
    /* The variable group has no size, then an absurd one. */
    assert_refused(KVARVE_INVALID, kvarve_put_begin(machine.space, prefix, &options, &one, &err),
                   "group 4");
    for (size_t i = 0; i < 24; i++) {
        sizes[i] = UINT64_MAX;
    }
    options.sizes = sizes;
    assert_refused(KVARVE_INVALID, kvarve_put_begin(machine.space, prefix, &options, &one, &err),
                   "group 4");
    options.digest_count = 1;
    assert_refused(KVARVE_INVALID, kvarve_put_begin(machine.space, prefix, &options, &one, &err),
                   "digest");
    options.struct_size = 0;
    assert_refused(KVARVE_INVALID, kvarve_put_begin(machine.space, prefix, &options, &one, &err),
                   "struct_size");
    assert_int_equal(kvarve_put_begin(machine.space, prefix, NULL, &one, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_put_begin(machine.space, NULL, &options, &one, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_put_begin(NULL, prefix, &options, &one, &err), KVARVE_INVALID);
    assert_null(one);
    assert_int_equal(door_statistics(at).pages, 0);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_put__an_exact_one_needs_all_digests(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(2, 16);
    engine machine = open_engine(at, &engine_exact);
    engine_state here = {.prefix = prefix, .tokens = 16};
    kvarve_page_digest digest = {.rank = 0, .group = 0, .position = 0};
    kvarve_put_options options = KVARVE_PUT_OPTIONS_INIT;
    uint64_t sizes[2 * 6];
    kvarve_put *one = NULL;

    for (size_t i = 0; i < 12; i++) {
        sizes[i] = 100;
    }
    options.tokens = 16;
    options.sizes = sizes;
    options.digests = &digest;
    options.digest_count = 1;
    assert_refused(KVARVE_INVALID, kvarve_put_begin(machine.space, prefix, &options, &one, &err),
                   "digest");
    assert_int_equal(put(&machine, &here), KVARVE_PUT_DURABLE);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_put__bytes_that_end_inside_a_page_are_refused(void **state)
{
    static uint8_t bytes[40000];
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(3, 40);
    engine machine = open_engine(at, &engine_plain);
    engine_state here = {.prefix = prefix, .tokens = 40};
    kvarve_put *one = begin(&machine, &here, NULL);

    assert_int_equal(kvarve_put_write(one, 0, 0, 0, bytes, 1535, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_put_write(one, 0, 0, 0, bytes, 40 * 96 + 1, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_put_write(one, 0, 0, 3, bytes, 1536, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_put_write(one, 0, 2, 0, bytes, 1536, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_put_write(one, 0, 1, 1, bytes, 9001, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_put_write(one, 0, 1, 0, NULL, 9001, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_put_write(one, 0, 1, 0, bytes, 0, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_put_wait(one, 0, 0, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_put_wait(one, 4, 0, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_put_extend(one, prefix, 40, NULL, 0, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_put_copy(one, 0, NULL, NULL, 0, &err), KVARVE_INVALID);
    assert_ok(engine_put_write(&machine, one, &here, 0, &err));
    assert_ok(kvarve_put_ack(one, 0, NULL, 0, &err));
    assert_ok(kvarve_put_wait(one, KVARVE_PUT_DURABLE, 10000, &err));
    kvarve_put_release(&one);
    assert_null(one);
    kvarve_put_release(&one);
    assert_ok(engine_restore(&machine, &here, true, &err));
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_prefix__tokens_of_31_bits_only(void **state)
{
    static const uint32_t bad[] = {5, 0x80000000u, 7};
    kvarve_prefix *prefix = engine_prefix(4, 3);

    (void)state;
    assert_refused(KVARVE_INVALID, kvarve_prefix_append(prefix, bad, 3, &err), "1");
    assert_int_equal(kvarve_prefix_length(prefix), 3);
    kvarve_prefix_free(prefix);
}

static void test_handles__null_and_unknown_ones_are_refused(void **state)
{
    door *at = *state;
    kvarve_statistics small = {.struct_size = 3};
    kvarve_event event;
    size_t count;
    uint8_t id[32] = {0};

    assert_int_equal(kvarve_put_status(NULL), KVARVE_PUT_ABORTED);
    assert_int_equal(kvarve_put_wait(NULL, 1, 0, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_put_plan(NULL, 0, NULL, 0, &count, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_lease_wait(NULL, 0, NULL, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_lease_load(NULL, 0, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_next_event(NULL, &event), KVARVE_INVALID);
    assert_int_equal(kvarve_next_event(at->store, NULL), KVARVE_INVALID);
    assert_int_equal(kvarve_event_fd(NULL), -1);
    assert_int_equal(kvarve_statistics_get(at->store, &small, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_statistics_get(at->store, NULL, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_drop(at->store, id, &err), KVARVE_MISS);
    assert_string_equal(kvarve_namespace_text(NULL), "");
    assert_string_equal(kvarve_miss_text(1000), "unknown reason");
    assert_string_equal(kvarve_refusal_text(1000), "unknown reason");
    kvarve_namespace_release(NULL);
    kvarve_put_release(NULL);
    kvarve_close(NULL);
}

/* --- open --- */

static void test_open__options_out_of_range_are_refused_with_their_name(void **state)
{
    door *at = *state;
    const kvarve_store_options good = at->options;

    if (at->is_client) {
        skip(); /* they are the daemon's */
    }
    door_close(at);
    at->options.arena_bytes = 1000;
    assert_refused(KVARVE_INVALID, door_try_open(at, &err), "arena_bytes");
    at->options = good;
    at->options.segment_bytes = 1000;
    assert_refused(KVARVE_INVALID, door_try_open(at, &err), "segment_bytes");
    at->options = good;
    at->options.flash_bytes_max = 1000;
    assert_refused(KVARVE_INVALID, door_try_open(at, &err), "flash_bytes_max");
    at->options = good;
    at->options.pool_threads = 65;
    assert_refused(KVARVE_INVALID, door_try_open(at, &err), "pool_threads");
    at->options = good;
    at->options.flags = 1024;
    assert_refused(KVARVE_INVALID, door_try_open(at, &err), "flags");
    at->options.flags = KVARVE_OPEN_READ_ONLY | KVARVE_OPEN_REBUILD;
    assert_int_equal(door_try_open(at, &err), KVARVE_INVALID);
    at->options = good;
    at->options.struct_size = 2;
    assert_refused(KVARVE_INVALID, door_try_open(at, &err), "struct_size");
    at->options = good;
    assert_null(at->store);
    door_open(at);
}

static void test_open__an_absent_store_is_missed_when_it_must_exist(void **state)
{
    door *at = *state;
    const size_t length = strlen(at->folder);

    if (door_is_daemon(at)) {
        skip(); /* it has no such flags */
    }
    door_close(at);
    (void)snprintf(at->folder + length, sizeof at->folder - length, "-other");
    at->options.flags = KVARVE_OPEN_EXISTING;
    assert_int_equal(door_try_open(at, &err), KVARVE_MISS);
    at->options.flags = KVARVE_OPEN_READ_ONLY;
    assert_int_equal(door_try_open(at, &err), KVARVE_MISS);
    at->options.flags = KVARVE_OPEN_REBUILD;
    assert_int_equal(door_try_open(at, &err), KVARVE_MISS);
    at->folder[length] = '\0';
    at->options.flags = 0;
    door_open(at);
}

static void use_read_only(door *at)
{
    kvarve_prefix *prefix = engine_prefix(5, 60);
    engine machine = open_engine(at, &engine_plain);
    engine_state here = {.prefix = prefix, .tokens = 40};
    engine_state other = {.prefix = prefix, .tokens = 50};
    kvarve_put *one = NULL;
    uint8_t id[32];

    assert_int_equal(put(&machine, &here), KVARVE_PUT_DURABLE);
    engine_close(&machine);
    door_close(at);
    at->options.flags = KVARVE_OPEN_READ_ONLY;
    door_open(at);
    machine = open_engine(at, &engine_plain);
    assert_ok(engine_restore(&machine, &here, true, &err));
    assert_ok(engine_put_begin(&machine, &other, NULL, &one, &err));
    assert_int_equal(kvarve_put_status(one), KVARVE_PUT_ABORTED);
    assert_int_equal(kvarve_put_refusal(one), KVARVE_REFUSED_READ_ONLY);
    kvarve_put_release(&one);
    assert_int_equal(put(&machine, &here), KVARVE_PUT_PRESENT);
    {
        kvarve_boundary found;

        assert_ok(engine_find(&machine, &here, KVARVE_LEASE_NONE, &found, NULL, NULL, &err));
        memcpy(id, found.id, sizeof id);
    }
    assert_true(kvarve_drop(at->store, id, &err) != KVARVE_OK);
    engine_close(&machine);
    door_close(at);
    at->options.flags = 0;
    door_open(at);
    machine = open_engine(at, &engine_plain);
    assert_ok(engine_restore(&machine, &here, true, &err));
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_open__read_only_finds_and_refuses_puts(void **state)
{
    door *at = *state;

    if (door_is_daemon(at)) {
        skip(); /* it has no such flag */
    }
    use_read_only(at);
}

/* The process that has it open. */
static pid_t pid_of_store(const door *at)
{
    return door_is_daemon(at) ? at->daemon : getpid();
}

static void test_open__a_second_one_in_the_same_process_is_busy_and_names_it(void **state)
{
    door *at = *state;
    kvarve_store *second = NULL;
    char pid[32];
    char other_name[sizeof at->folder + 8];

    if (at->world != NULL) {
        skip(); /* the list of open folders is the real host's */
    }
    (void)snprintf(pid, sizeof pid, "%d", (int)pid_of_store(at));
    assert_refused(KVARVE_BUSY, kvarve_open(at->folder, &at->options, &second, &err), pid);
    (void)snprintf(other_name, sizeof other_name, "%s/.", at->folder);
    assert_refused(KVARVE_BUSY, kvarve_open(other_name, &at->options, &second, &err), pid);
    assert_null(second);
    /* And the first goes on, with its lock. */
    door_reopen(at);
}

/* What the second process does: this program again, with the folder and the first one's pid. */
static int open_as_second(const char *folder, const char *first)
{
    kvarve_store *second = NULL;
    kvarve_error said = {0};

    if (kvarve_open(folder, NULL, &second, &said) != KVARVE_BUSY) {
        return 1;
    }
    return strstr(said.text, first) != NULL ? 0 : 2;
}

static void test_open__a_second_process_is_busy_and_is_told_the_first_ones_pid(void **state)
{
    door *at = *state;
    char pid[32];
    pid_t child;
    int status = 0;

    if (at->world != NULL) {
        assert_int_equal(door_statistics(at).is_failed, 0);
        door_close(at);
        assert_int_equal(world_lock_as_other(at->world, "/store/lock", 4711), 0);
        assert_refused(KVARVE_BUSY, door_try_open(at, &err), "4711");
        assert_int_equal(world_lock_as_other(at->world, "/store/lock", 0), 0);
        door_open(at);
        return;
    }
    (void)snprintf(pid, sizeof pid, "%d", (int)pid_of_store(at));
    child = fork();
    if (child == 0) {
        (void)execl("/proc/self/exe", "second", at->folder, pid, (char *)NULL);
        _exit(3);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* --- fork --- */

static int use_in_child(door *at, engine *machine, kvarve_put *open, kvarve_lease *lease,
                        const engine_state *here)
{
    kvarve_put *one = NULL;
    kvarve_event event;
    kvarve_page_plan plan;
    size_t count = 0;
    uint8_t byte;
    int bad = 0;
    kvarve_statistics now = KVARVE_STATISTICS_INIT;

    bad += engine_put_begin(machine, here, NULL, &one, NULL) != KVARVE_INVALID;
    bad += kvarve_put_plan(open, 0, &plan, 1, &count, NULL) != KVARVE_INVALID;
    bad += kvarve_put_ack(open, 0, NULL, 0, NULL) != KVARVE_INVALID;
    bad += kvarve_put_wait(open, KVARVE_PUT_READY, 1000, NULL) != KVARVE_INVALID;
    bad += kvarve_lease_read(lease, 0, 0, 0, &byte, 1, NULL) != KVARVE_INVALID;
    bad += kvarve_lease_wait(lease, 1000, NULL, NULL) != KVARVE_INVALID;
    bad += kvarve_find(machine->space, here->prefix, NULL, NULL, 0, NULL, NULL, NULL, NULL) !=
           KVARVE_INVALID;
    bad += kvarve_statistics_get(at->store, &now, NULL) != KVARVE_INVALID;
    bad += kvarve_next_event(at->store, &event) != KVARVE_INVALID;
    bad += kvarve_trim(at->store, NULL, NULL) != KVARVE_INVALID;
    bad += kvarve_event_fd(at->store) != -1;
    kvarve_put_release(&open);
    kvarve_lease_release(&lease);
    kvarve_namespace_release(&machine->space);
    kvarve_close(at->store);
    return bad;
}

static void test_fork__the_childs_calls_are_refused_and_the_parent_goes_on(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(6, 60);
    engine machine = open_engine(at, &engine_plain);
    engine_state stored = {.prefix = prefix, .tokens = 40};
    engine_state here = {.prefix = prefix, .tokens = 60};
    kvarve_put *open = NULL;
    kvarve_lease *lease = NULL;
    pid_t child;
    int status = 0;

    assert_int_equal(put(&machine, &stored), KVARVE_PUT_DURABLE);
    open = begin(&machine, &here, NULL);
    assert_ok(engine_find(&machine, &stored, KVARVE_LEASE_LOAD, NULL, &lease, NULL, &err));
    assert_ok(kvarve_lease_wait(lease, 10000, NULL, &err));
    child = fork();
    if (child == 0) {
        _exit(use_in_child(at, &machine, open, lease, &here));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_ok(engine_view(&machine, lease, &stored, false, &err));
    assert_ok(engine_put_ranks(&machine, open, &here, NULL, &err));
    assert_ok(kvarve_put_wait(open, KVARVE_PUT_DURABLE, 10000, &err));
    kvarve_put_release(&open);
    kvarve_lease_release(&lease);
    assert_ok(engine_restore(&machine, &here, true, &err));
    engine_close(&machine);
    door_reopen(at); /* the lock is still ours to give back */
    kvarve_prefix_free(prefix);
}

/* --- paths --- */

static void test_open__a_path_that_is_a_file_or_goes_nowhere_is_refused(void **state)
{
    door *at = *state;
    kvarve_store *other = NULL;
    char path[sizeof at->folder + 32];
    int fd;

    if (at->world != NULL) {
        skip();
    }
    (void)snprintf(path, sizeof path, "%s/file", at->scratch);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_refused(KVARVE_INVALID, kvarve_open(path, &at->options, &other, &err), "file");
    (void)snprintf(path, sizeof path, "%s/none/store", at->scratch);
    assert_true(kvarve_open(path, &at->options, &other, &err) != KVARVE_OK);
    assert_true(err.text[0] != '\0');
    assert_refused(KVARVE_UNAVAILABLE, kvarve_open("unix:/x", &at->options, &other, &err),
                   "no daemon");
    at->options.flags = KVARVE_OPEN_READ_ONLY;
    assert_refused(KVARVE_INVALID, kvarve_open("unix:/x", &at->options, &other, &err), "flags");
    at->options.flags = 0;
    assert_int_equal(kvarve_open(NULL, NULL, &other, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_open("", &at->options, &other, &err), KVARVE_INVALID);
    assert_null(other);
}

static const door_test tests[] = {
    DOOR_TEST(test_namespace__absurd_groups_are_refused_with_the_field_named),
    DOOR_TEST(test_namespace__absurd_counts_and_documents_are_refused),
    DOOR_TEST(test_put__absurd_boundaries_are_refused),
    DOOR_TEST(test_put__an_exact_one_needs_all_digests),
    DOOR_TEST(test_put__bytes_that_end_inside_a_page_are_refused),
    DOOR_TEST(test_prefix__tokens_of_31_bits_only),
    DOOR_TEST(test_handles__null_and_unknown_ones_are_refused),
    DOOR_TEST(test_open__options_out_of_range_are_refused_with_their_name),
    DOOR_TEST(test_open__an_absent_store_is_missed_when_it_must_exist),
    DOOR_TEST(test_open__read_only_finds_and_refuses_puts),
    DOOR_TEST(test_open__a_second_one_in_the_same_process_is_busy_and_names_it),
    DOOR_TEST(test_open__a_second_process_is_busy_and_is_told_the_first_ones_pid),
    DOOR_TEST(test_fork__the_childs_calls_are_refused_and_the_parent_goes_on),
    DOOR_TEST(test_open__a_path_that_is_a_file_or_goes_nowhere_is_refused),
};

int main(int argc, char **argv)
{
    if (argc == 3) {
        return open_as_second(argv[1], argv[2]);
    }
    return door_run("open", tests, sizeof tests / sizeof tests[0]);
}
