/*
 * test_store_regions.c - bytes from an engine's registered memory and back, through each door: the
 * copies run beside the caller, and events tell of them.
 *
 * tests/unit/api/test_regions.c has the geometry; here is one: blocks of half a page.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "contract/steps.h"
#include "env/thread.h"

#define SPAN         16u
#define BLOCK_TOKENS 8u
#define ROW_BYTES    96u
#define RUNS         2u
#define PAGE_BYTES   (SPAN * ROW_BYTES * RUNS)
#define BLOCK_BYTES  (BLOCK_TOKENS * ROW_BYTES * RUNS)
#define BLOCKS       16u
#define STATE_BYTES  700u
#define TOKENS       56u /* three pages and a half */
#define USED         (TOKENS / BLOCK_TOKENS)
#define COOKIE       4711u

typedef struct memory {
    uint8_t rows[BLOCKS][BLOCK_BYTES];
    uint8_t states[2][STATE_BYTES];
} memory;

/* One sequence in the first blocks, and where it is to be restored to. */
static const uint32_t stored_rows[USED] = {3, 0, 5, 1, 6, 2, 4};
static const uint32_t restored_rows[USED] = {15, 8, 14, 9, 13, 10, 12};
static const uint32_t stored_state[] = {0};
static const uint32_t restored_state[] = {1};
static const uint32_t *const stored[] = {stored_rows, stored_state};
static const uint32_t *const restored[] = {restored_rows, restored_state};
static const size_t counts[] = {USED, 1};

static const kvarve_group groups[] = {
    {.page_class = KVARVE_CLASS_PREFIX,
     .flags = KVARVE_GROUP_ROWS,
     .span_tokens = SPAN,
     .page_bytes = PAGE_BYTES},
    {.page_class = KVARVE_CLASS_ENDPOINT, .page_bytes = STATE_BYTES},
};

static kvarve_namespace *open_space(door *at, memory *of)
{
    const uint32_t block_tokens[] = {BLOCK_TOKENS, 1};
    kvarve_namespace_options options = KVARVE_NAMESPACE_OPTIONS_INIT;
    kvarve_namespace *space = NULL;
    const kvarve_region regions[] = {
        {.group = 0,
         .base = of->rows,
         .block_stride = BLOCK_BYTES,
         .row_bytes = ROW_BYTES,
         .run_count = RUNS,
         .block_count = BLOCKS},
        {.group = 1,
         .base = of->states,
         .block_stride = STATE_BYTES,
         .row_bytes = STATE_BYTES,
         .run_count = 1,
         .block_count = 2},
    };

    options.identity_json = "{\"model\":\"regions\"}";
    options.groups = groups;
    options.group_count = 2;
    assert_ok(kvarve_namespace_open(at->store, &options, &space, &err));
    assert_ok(kvarve_regions_register(space, 0, regions, 2, block_tokens, &err));
    return space;
}

static void fill(memory *of, uint64_t seed)
{
    uint8_t *bytes = (uint8_t *)of;

    for (size_t i = 0; i < sizeof *of; i++) {
        bytes[i] = (uint8_t)(world_next_random(&seed) >> 7);
    }
}

static void assert_restored(const memory *of)
{
    for (size_t i = 0; i < USED; i++) {
        assert_memory_equal(of->rows[restored_rows[i]], of->rows[stored_rows[i]], BLOCK_BYTES);
    }
    assert_memory_equal(of->states[1], of->states[0], STATE_BYTES);
}

/* The next event; whoever polls the descriptor is woken for it. */
static kvarve_event next_event(door *at)
{
    kvarve_event event = {0};

    for (int i = 0; i < 1000; i++) {
        const kvarve_status status = kvarve_next_event(at->store, &event);

        if (status == KVARVE_OK) {
            return event;
        }
        assert_int_equal(status, KVARVE_MISS);
        assert_true(event_wait(kvarve_event_fd(at->store), at->world == NULL ? 20000 : 0));
    }
    fail_msg("no event came");
    return event;
}

static void await_event(door *at, uint32_t kind)
{
    kvarve_event event;

    do {
        event = next_event(at);
        assert_int_equal(event.cookie, COOKIE);
        assert_int_not_equal(event.kind, KVARVE_EVENT_ABORTED);
        assert_int_not_equal(event.kind, KVARVE_EVENT_LOAD_FAILED);
    } while (event.kind != kind);
    assert_int_equal(event.status, KVARVE_OK);
}

/* Without threads something has to wait, or nothing goes on. */
static void put_from_blocks(door *at, kvarve_namespace *space, const kvarve_prefix *prefix)
{
    kvarve_put_options options = KVARVE_PUT_OPTIONS_INIT;
    kvarve_put *put = NULL;

    options.tokens = TOKENS;
    options.cookie = COOKIE;
    assert_ok(kvarve_put_begin(space, prefix, &options, &put, &err));
    assert_ok(kvarve_put_wait(put, KVARVE_PUT_STAGED, 20000, &err));
    assert_ok(kvarve_put_copy(put, 0, stored, counts, 0, &err));
    if (at->world != NULL) {
        assert_ok(kvarve_put_wait(put, KVARVE_PUT_DURABLE, 20000, &err));
    }
    await_event(at, KVARVE_EVENT_DURABLE); /* on its own, in a real host */
    assert_int_equal(kvarve_put_status(put), KVARVE_PUT_DURABLE);
    kvarve_put_release(&put);
}

static kvarve_lease *load(kvarve_namespace *space, const kvarve_prefix *prefix)
{
    kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
    kvarve_lease *lease = NULL;

    options.lease = KVARVE_LEASE_LOAD;
    options.cookie = COOKIE;
    assert_ok(kvarve_find(space, prefix, &options, NULL, 0, NULL, &lease, NULL, &err));
    assert_ok(kvarve_lease_wait(lease, 20000, NULL, &err));
    return lease;
}

static void test_regions__come_back_through_pages_into_other_blocks(void **state)
{
    door *at = *state;
    static memory of;
    kvarve_prefix *prefix = engine_prefix(1, TOKENS);
    kvarve_namespace *space = open_space(at, &of);
    kvarve_lease *lease;

    fill(&of, 1);
    put_from_blocks(at, space, prefix);
    for (int is_reopened = 0; is_reopened < 2; is_reopened++) {
        memset(of.rows[8], 0, sizeof of.rows / 2);
        memset(of.states[1], 0, STATE_BYTES);
        lease = load(space, prefix);
        await_event(at, KVARVE_EVENT_LOADED);
        assert_ok(kvarve_lease_copy(lease, 0, restored, counts, 0, &err));
        assert_ok(kvarve_lease_copy_wait(lease, 0, 20000, &err));
        await_event(at, KVARVE_EVENT_COPIED);
        assert_restored(&of);
        kvarve_lease_release(&lease);
        kvarve_namespace_release(&space);
        if (is_reopened == 0) {
            door_reopen(at);
            space = open_space(at, &of);
        }
    }
    kvarve_prefix_free(prefix);
}

static void test_regions__a_put_released_while_it_copies_is_aborted_after_it(void **state)
{
    door *at = *state;
    static memory of;
    kvarve_prefix *prefix = engine_prefix(2, TOKENS);
    kvarve_namespace *space = open_space(at, &of);

    fill(&of, 2);
    for (int i = 0; i < 5; i++) {
        kvarve_put_options options = KVARVE_PUT_OPTIONS_INIT;
        kvarve_put *put = NULL;

        options.tokens = TOKENS;
        assert_ok(kvarve_put_begin(space, prefix, &options, &put, &err));
        assert_ok(kvarve_put_wait(put, KVARVE_PUT_STAGED, 20000, &err));
        assert_ok(kvarve_put_copy(put, 0, stored, counts, 0, &err));
        kvarve_put_release(&put);
    }
    assert_int_equal(door_statistics(at).puts, 5);
    kvarve_namespace_release(&space);
    kvarve_prefix_free(prefix);
}

/* The page in the arena is what the disk had: damaged. The copy says so, and no find has it. */
static void test_regions__a_damaged_page_is_a_miss_and_is_not_found_again(void **state)
{
    door *at = *state;
    static memory of;
    kvarve_prefix *prefix = engine_prefix(3, TOKENS);
    kvarve_namespace *space = open_space(at, &of);
    kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
    kvarve_lease *lease = NULL;
    kvarve_miss miss = {0};
    kvarve_status status;

    fill(&of, 3);
    put_from_blocks(at, space, prefix);
    kvarve_namespace_release(&space);
    door_close(at);
    assert_int_equal(door_damage_page(at, of.states[0], STATE_BYTES), 1);
    door_open(at);
    space = open_space(at, &of);
    options.lease = KVARVE_LEASE_LOAD;
    options.kinds = 1u << KVARVE_KIND_INSTRUCTION;
    assert_ok(kvarve_find(space, prefix, &options, NULL, 0, NULL, &lease, NULL, &err));
    status = kvarve_lease_wait(lease, 20000, &miss, &err);
    if (status == KVARVE_OK) {
        assert_ok(kvarve_lease_copy(lease, 0, restored, counts, 0, &err));
        status = kvarve_lease_copy_wait(lease, 0, 20000, &err);
    }
    assert_int_equal(status, KVARVE_MISS);
    options.lease = KVARVE_LEASE_NONE;
    assert_int_equal(kvarve_find(space, prefix, &options, NULL, 0, NULL, NULL, &miss, &err),
                     KVARVE_MISS);
    assert_int_equal(miss.reason, KVARVE_MISS_DAMAGED);
    kvarve_lease_release(&lease);
    put_from_blocks(at, space, prefix); /* which repairs it */
    assert_ok(kvarve_find(space, prefix, &options, NULL, 0, NULL, NULL, NULL, &err));
    kvarve_namespace_release(&space);
    kvarve_prefix_free(prefix);
}

static const door_test tests[] = {
    DOOR_TEST(test_regions__come_back_through_pages_into_other_blocks),
    DOOR_TEST(test_regions__a_put_released_while_it_copies_is_aborted_after_it),
    DOOR_TEST(test_regions__a_damaged_page_is_a_miss_and_is_not_found_again),
};

int main(void)
{
    return door_run("regions", tests, sizeof tests / sizeof tests[0]);
}
