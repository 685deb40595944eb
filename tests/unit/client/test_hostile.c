/*
 * test_hostile.c - a daemon that says what no daemon says, at every place of a session.
 *
 * One scenario uses nearly every call. It is run again and again, each time with another answer of
 * the daemon's made wrong in another way, until it has no such answer any more. Whatever comes:
 * no call hangs or touches what is not the arena's, nothing stays allocated, and once the
 * connection is broken every call says so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "api/open_over.h"
#include "base/alloc.h"
#include "env/thread.h"
#include "fake_daemon.h"
#include "kvarve/admin.h"
#include "kvarve/checkpoint.h"

#define BLOCK_TOKENS 8u
#define BLOCKS       4u /* of group 0: 32 tokens */
#define ROW_BYTES    (FAKE_PAGE_BYTES / FAKE_SPAN)
#define SEEDS        24u
#define FAR          ((uint64_t)1 << 40)

/* What an engine has, and where it is with it. */
typedef struct scenario {
    kvarve_store *store;
    kvarve_namespace *space;
    kvarve_prefix *prefix;
    kvarve_put *put;
    kvarve_lease *lease;
    uint8_t rows[BLOCKS * BLOCK_TOKENS * ROW_BYTES];
    uint8_t state[FAKE_STATE_BYTES];
} scenario;

static const kvarve_group groups[] = {
    {.page_class = KVARVE_CLASS_PREFIX,
     .flags = KVARVE_GROUP_ROWS,
     .span_tokens = FAKE_SPAN,
     .page_bytes = FAKE_PAGE_BYTES},
    {.page_class = KVARVE_CLASS_ENDPOINT, .page_bytes = FAKE_STATE_BYTES},
};
static const uint32_t blocks_of_rows[BLOCKS] = {0, 1, 2, 3};
static const uint32_t blocks_of_state[1] = {0};
static const uint32_t *const blocks[] = {blocks_of_rows, blocks_of_state};
static const size_t block_counts[] = {BLOCKS, 1};

/* Go on only while all is well: a step that failed leaves the rest nothing to stand on. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        const kvarve_status tried = (call);                                                        \
        if (tried != KVARVE_OK) {                                                                  \
            return tried;                                                                          \
        }                                                                                          \
    } while (0)

static kvarve_status open_space(scenario *at)
{
    const uint32_t block_tokens[] = {BLOCK_TOKENS, 1};
    kvarve_namespace_options options = KVARVE_NAMESPACE_OPTIONS_INIT;
    const kvarve_region regions[] = {
        {.group = 0,
         .base = at->rows,
         .block_stride = (uint64_t)BLOCK_TOKENS * ROW_BYTES,
         .row_bytes = ROW_BYTES,
         .run_count = 1,
         .block_count = BLOCKS},
        {.group = 1,
         .base = at->state,
         .block_stride = FAKE_STATE_BYTES,
         .row_bytes = FAKE_STATE_BYTES,
         .run_count = 1,
         .block_count = 1},
    };

    options.identity_json = "{\"model\":\"none\"}";
    options.groups = groups;
    options.group_count = 2;
    TRY(kvarve_namespace_open(at->store, &options, &at->space, NULL));
    return kvarve_regions_register(at->space, 0, regions, 2, block_tokens, NULL);
}

static kvarve_status begin_put(scenario *at)
{
    kvarve_put_options options = KVARVE_PUT_OPTIONS_INIT;

    options.tokens = FAKE_TOKENS;
    options.cookie = 1;
    return kvarve_put_begin(at->space, at->prefix, &options, &at->put, NULL);
}

/* By write, by plan, and by copy. */
static kvarve_status run_puts(scenario *at)
{
    kvarve_page_plan plan[FAKE_PAGES];
    uint8_t id[32];
    size_t count = 0;

    TRY(begin_put(at));
    TRY(kvarve_put_write(at->put, 0, 0, 0, at->rows, sizeof at->rows, NULL));
    TRY(kvarve_put_write(at->put, 0, 1, 0, at->state, sizeof at->state, NULL));
    TRY(kvarve_put_ack(at->put, 0, NULL, 0, NULL));
    TRY(kvarve_put_wait(at->put, KVARVE_PUT_DURABLE, 1000, NULL));
    TRY(kvarve_put_id(at->put, id, NULL));
    kvarve_put_release(&at->put);
    TRY(begin_put(at));
    TRY(kvarve_put_plan(at->put, 0, plan, FAKE_PAGES, &count, NULL));
    for (size_t i = 0; i < count && i < FAKE_PAGES; i++) {
        if (plan[i].action == KVARVE_PAGE_COPY) {
            memset(plan[i].address, 1, plan[i].size);
        }
    }
    if (kvarve_put_wait(at->put, KVARVE_PUT_READY, 1000, NULL) == KVARVE_UNAVAILABLE) {
        return KVARVE_UNAVAILABLE; /* else it is not READY, and nothing will make it so */
    }
    kvarve_put_abort(at->put);
    kvarve_put_release(&at->put);
    TRY(begin_put(at));
    TRY(kvarve_put_copy(at->put, 0, blocks, block_counts, 0, NULL));
    TRY(kvarve_put_wait(at->put, KVARVE_PUT_READY, 1000, NULL));
    kvarve_put_release(&at->put);
    return KVARVE_OK;
}

static kvarve_status find(scenario *at, uint32_t mode)
{
    kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
    kvarve_boundary boundary;
    size_t count = 0;

    options.lease = mode;
    return kvarve_find(at->space, at->prefix, &options, &boundary, 1, &count, &at->lease, NULL,
                       NULL);
}

/* Page by page, and loaded: read, in place, and into blocks. */
static kvarve_status run_leases(scenario *at)
{
    static uint8_t room[2 * FAKE_PAGE_BYTES];
    kvarve_page_view views[FAKE_PAGES];
    size_t count = 0;
    uint64_t first;
    uint64_t pages;
    uint64_t bytes;

    TRY(find(at, KVARVE_LEASE_SOFT));
    TRY(kvarve_lease_extent(at->lease, 0, 0, &first, &pages, &bytes, NULL));
    TRY(kvarve_lease_read(at->lease, 0, 0, 0, room, sizeof room, NULL));
    kvarve_lease_release(&at->lease);
    TRY(find(at, KVARVE_LEASE_SOFT));
    TRY(kvarve_lease_load(at->lease, 0, NULL));
    TRY(kvarve_lease_wait(at->lease, 1000, NULL, NULL));
    kvarve_lease_release(&at->lease);
    TRY(find(at, KVARVE_LEASE_LOAD));
    TRY(kvarve_lease_wait(at->lease, 1000, NULL, NULL));
    TRY(kvarve_lease_read(at->lease, 0, 0, 0, room, sizeof room, NULL));
    TRY(kvarve_lease_pages(at->lease, 0, views, FAKE_PAGES, &count, NULL));
    TRY(kvarve_lease_copy(at->lease, 0, blocks, block_counts, 0, NULL));
    TRY(kvarve_lease_copy_wait(at->lease, 0, 1000, NULL));
    kvarve_lease_release(&at->lease);
    return KVARVE_OK;
}

static int visit(void *context, const kvarve_checkpoint_info *info)
{
    (void)info;
    ++*(int *)context;
    return 1;
}

static kvarve_status run_admin(scenario *at)
{
    kvarve_statistics statistics = KVARVE_STATISTICS_INIT;
    uint8_t bitmap[FAKE_TOKENS / 8 + 1];
    const uint8_t id[32] = {1};
    char document[64];
    uint64_t trimmed = 0;
    int visits = 0;

    TRY(kvarve_find_all(at->space, at->prefix, NULL, bitmap, sizeof bitmap, NULL));
    TRY(kvarve_statistics_get(at->store, &statistics, NULL));
    TRY(kvarve_list_checkpoints(at->store, visit, &visits, NULL));
    TRY(kvarve_namespace_document(at->store, "a namespace", document, sizeof document, NULL, NULL));
    TRY(kvarve_verify(at->store, NULL, NULL, NULL, NULL));
    TRY(kvarve_trim(at->store, &trimmed, NULL));
    return kvarve_drop(at->store, id, NULL);
}

static kvarve_status run_all(scenario *at)
{
    TRY(open_space(at));
    TRY(run_puts(at));
    TRY(run_leases(at));
    return run_admin(at);
}

/* After the break: every call says so, and whoever polls is woken. */
static void assert_gone(scenario *at)
{
    kvarve_statistics statistics = KVARVE_STATISTICS_INIT;
    kvarve_event event;
    kvarve_error err = {0};

    assert_int_equal(kvarve_statistics_get(at->store, &statistics, &err), KVARVE_UNAVAILABLE);
    assert_true(err.text[0] != '\0');
    assert_int_equal(kvarve_next_event(at->store, &event), KVARVE_UNAVAILABLE);
    assert_true(event_wait(kvarve_event_fd(at->store), 0));
    if (at->space != NULL) {
        assert_int_equal(find(at, KVARVE_LEASE_SOFT), KVARVE_UNAVAILABLE);
    }
    if (at->put != NULL) {
        assert_int_equal(kvarve_put_wait(at->put, KVARVE_PUT_DURABLE, KVARVE_NO_TIMEOUT, NULL),
                         KVARVE_UNAVAILABLE);
        assert_int_equal(kvarve_put_status(at->put), KVARVE_PUT_ABORTED);
    }
    if (at->lease != NULL) {
        assert_int_equal(kvarve_lease_wait(at->lease, KVARVE_NO_TIMEOUT, NULL, NULL),
                         KVARVE_UNAVAILABLE);
    }
}

static bool is_gone(const scenario *at)
{
    return kvarve_event_fd(at->store) >= 0 &&
           kvarve_next_event(at->store, &(kvarve_event){0}) == KVARVE_UNAVAILABLE;
}

/* How one run came out. */
typedef struct outcome {
    bool is_hit;
    bool is_connected; /* the client was opened */
    bool is_broken;
    kvarve_status status;
    uint64_t answers;
} outcome;

static outcome run_with(const fake_plan *plan)
{
    const uint64_t blocks_before = kvarve_allocated_blocks();
    static scenario at;
    sim_world *world = world_create(1);
    uint32_t tokens[FAKE_TOKENS];
    fake_daemon fake;
    outcome out = {0};
    door *opened = NULL;

    for (uint32_t i = 0; i < FAKE_TOKENS; i++) {
        tokens[i] = i;
    }
    at = (scenario){0};
    memset(at.rows, 5, sizeof at.rows);
    assert_int_equal(kvarve_prefix_create(&at.prefix, NULL), KVARVE_OK);
    assert_int_equal(kvarve_prefix_append(at.prefix, tokens, FAKE_TOKENS, NULL), KVARVE_OK);
    fake_begin(&fake, world, plan);
    out.status = fake_connect(&fake, &opened, NULL);
    out.is_connected = out.status == KVARVE_OK;
    if (out.is_connected) {
        assert_int_equal(api_open_over(opened, NULL, &at.store, NULL), KVARVE_OK);
        out.status = run_all(&at);
        out.is_broken = is_gone(&at);
        if (out.is_broken) {
            assert_gone(&at);
        }
        kvarve_put_release(&at.put);
        kvarve_lease_release(&at.lease);
        kvarve_namespace_release(&at.space);
        kvarve_close(at.store);
    }
    out.is_hit = fake.is_hit;
    out.answers = fake.answers;
    kvarve_prefix_free(at.prefix);
    fake_end(&fake);
    world_destroy(world);
    assert_int_equal(kvarve_allocated_blocks(), blocks_before);
    return out;
}

static void test_client__uses_an_honest_daemon_to_the_end(void **state)
{
    const fake_plan honest = {.fault = FAULT_NONE};
    const outcome out = run_with(&honest);

    (void)state;
    assert_true(out.is_connected);
    assert_int_equal(out.status, KVARVE_OK);
    assert_false(out.is_broken);
    assert_true(out.answers > 50);
}

/* Every answer, wrong in a way that leaves nothing to be believed. */
static void test_client__an_answer_that_is_none_breaks_the_connection(void **state)
{
    static const fake_fault faults[] = {FAULT_CLOSE,      FAULT_SILENCE,    FAULT_OTHER_ID,
                                        FAULT_OTHER_TYPE, FAULT_TWICE,      FAULT_SHORT,
                                        FAULT_LONG,       FAULT_ERROR_ZERO, FAULT_EMPTY};

    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        uint64_t broken = 0;
        uint64_t at = 0;

        for (;; at++) {
            const fake_plan plan = {.fault = faults[i], .at = at};
            const outcome out = run_with(&plan);

            if (!out.is_hit) {
                break;
            }
            broken += out.is_broken || !out.is_connected;
        }
        assert_true(at > 50);
        if (faults[i] == FAULT_SILENCE || faults[i] == FAULT_EMPTY) {
            assert_true(broken > at / 4); /* not all are waited for, not all have items */
        } else {
            assert_int_equal(broken, at - 1); /* the last one comes after the end */
        }
    }
}

/* Every answer an ERROR, of each status: the call says so, and the connection stays. */
static void test_client__an_error_is_the_calls_answer(void **state)
{
    (void)state;
    for (uint64_t status = KVARVE_MISS; status <= KVARVE_UNAVAILABLE; status++) {
        for (uint64_t at = 0;; at++) {
            const fake_plan plan = {.fault = FAULT_ERROR, .at = at, .value = status};
            const outcome out = run_with(&plan);

            if (!out.is_hit) {
                assert_true(at > 50);
                break;
            }
            assert_false(out.is_broken);
        }
    }
}

/* Pages at places that are none: nothing is touched there. */
static void test_client__a_page_outside_of_the_arena_is_never_touched(void **state)
{
    static const struct {
        fake_fault fault;
        uint64_t value;
    } faults[] = {
        {FAULT_OFFSET, 0}, /* its head */
        {FAULT_OFFSET, 1},
        {FAULT_OFFSET, 4097},
        {FAULT_OFFSET, FAKE_ARENA_BYTES},
        {FAULT_OFFSET, FAKE_ARENA_BYTES + 4096},
        {FAULT_OFFSET, FAR},
        {FAULT_OFFSET, UINT64_MAX - 4095},
        {FAULT_OFFSET, (uint64_t)INT64_MAX + 1},
        {FAULT_SIZE, FAKE_ARENA_BYTES},
        {FAULT_SIZE, KVARVE_PAGE_BYTES_MAX},
        {FAULT_GROUP, 2},
        {FAULT_GROUP, KVARVE_GROUPS_MAX - 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        uint64_t broken = 0;

        for (uint64_t at = 0;; at++) {
            const fake_plan plan = {.fault = faults[i].fault, .at = at, .value = faults[i].value};
            const outcome out = run_with(&plan);

            if (!out.is_hit) {
                break;
            }
            broken += out.is_broken;
        }
        assert_true(broken >= 6); /* plans, pages of a lease, pages one by one */
    }
}

static void test_client__counts_that_can_not_be_are_refused(void **state)
{
    static const uint64_t totals[] = {0, 1, 1000, FAR, UINT64_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof totals / sizeof *totals; i++) {
        for (uint64_t at = 0;; at++) {
            const fake_plan plan = {.fault = FAULT_TOTAL, .at = at, .value = totals[i]};

            if (!run_with(&plan).is_hit) {
                break;
            }
        }
    }
}

/* Or it would be asked again, at once, and again. */
static void test_client__a_wait_that_is_answered_before_its_time_breaks_the_connection(void **state)
{
    const fake_plan plan = {.fault = FAULT_EARLY, .at = UINT64_MAX};
    const outcome out = run_with(&plan);

    (void)state;
    assert_true(out.is_hit);
    assert_true(out.is_broken);
    assert_int_equal(out.status, KVARVE_UNAVAILABLE);
}

/* Bits of every answer, flipped by seed: whatever it says then, no harm is done. */
static void test_client__flipped_bits_do_no_harm(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        for (uint64_t at = 0;; at++) {
            const fake_plan plan = {.fault = FAULT_BITS, .at = at, .value = seed * 1000 + at};

            if (!run_with(&plan).is_hit) {
                break;
            }
        }
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_client__uses_an_honest_daemon_to_the_end),
        cmocka_unit_test(test_client__an_answer_that_is_none_breaks_the_connection),
        cmocka_unit_test(test_client__an_error_is_the_calls_answer),
        cmocka_unit_test(test_client__a_page_outside_of_the_arena_is_never_touched),
        cmocka_unit_test(test_client__counts_that_can_not_be_are_refused),
        cmocka_unit_test(
            test_client__a_wait_that_is_answered_before_its_time_breaks_the_connection),
        cmocka_unit_test(test_client__flipped_bits_do_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
