/*
 * test_store_lease.c - what leases, events and room promise, through each door.
 *
 * The arena has 4 MiB and flash has what a test gives it, so that both run full.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <string.h>

#include "base/alloc.h"
#include "contract/steps.h"

/* Large pages: 128 KiB for 16 tokens and an endpoint of 200 KB. */
static const engine_layout wide = {
    .identity = "{\"model\":\"wide\"}",
    .ranks = 1,
    .group_count = 2,
    .groups = {{.page_class = KVARVE_CLASS_PREFIX,
                .flags = KVARVE_GROUP_ROWS,
                .span_tokens = 16,
                .page_bytes = 131072},
               {.page_class = KVARVE_CLASS_ENDPOINT, .page_bytes = 200000}}};

/* --- reading --- */

static void test_lease__is_read_in_pieces_of_whole_pages(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(1, 100);
    engine machine = open_engine(at, &engine_plain);
    engine_state here = {.prefix = prefix, .tokens = 100};
    kvarve_lease *lease = NULL;
    uint64_t first;
    uint64_t pages;
    uint64_t bytes;
    uint8_t got[3 * 1536];

    assert_int_equal(put(&machine, &here), KVARVE_PUT_DURABLE);
    engine_close(&machine);
    door_reopen(at);
    machine = open_engine(at, &engine_plain);
    assert_ok(engine_find(&machine, &here, KVARVE_LEASE_SOFT, NULL, &lease, NULL, &err));
    assert_ok(kvarve_lease_extent(lease, 0, 0, &first, &pages, &bytes, &err));
    assert_int_equal(first, 0);
    assert_int_equal(pages, 7);
    assert_int_equal(bytes, 100 * 96);
    for (uint64_t i = 0; i < 6; i += 3) {
        assert_ok(kvarve_lease_read(lease, 0, 0, i, got, sizeof got, &err));
        for (uint64_t j = 0; j < 3; j++) {
            assert_true(engine_is_right(&machine, &here, 0, 0, i + j, got + j * 1536, 1536));
        }
    }
    assert_ok(kvarve_lease_read(lease, 0, 0, 6, got, 4 * 96, &err));
    assert_true(engine_is_right(&machine, &here, 0, 0, 6, got, 4 * 96));
    assert_int_equal(kvarve_lease_read(lease, 0, 0, 0, got, 1535, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_lease_read(lease, 0, 0, 7, got, 10, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_lease_read(lease, 0, 2, 0, got, 10, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_lease_read(lease, 1, 0, 0, got, 1536, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_lease_read(lease, 0, 0, 0, NULL, 1536, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_lease_extent(lease, 0, 9, &first, &pages, &bytes, &err),
                     KVARVE_INVALID);
    kvarve_lease_release(&lease);
    assert_null(lease);
    kvarve_lease_release(&lease);
    kvarve_lease_release(NULL);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_lease__pages_in_place_need_a_load_and_stay_until_release(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(2, 1000);
    engine machine = open_engine(at, &wide);
    engine_state here = {.prefix = prefix, .tokens = 100};
    engine_state other = {.prefix = prefix, .tokens = 120};
    kvarve_lease *lease = NULL;
    kvarve_boundary found;
    kvarve_page_view views[8];
    size_t count = 0;

    assert_int_equal(put(&machine, &here), KVARVE_PUT_DURABLE);
    engine_close(&machine);
    door_reopen(at);
    machine = open_engine(at, &wide);
    assert_ok(engine_find(&machine, &here, KVARVE_LEASE_SOFT, &found, &lease, NULL, &err));
    assert_int_equal(found.tier, KVARVE_TIER_FLASH);
    assert_int_equal(found.bytes_to_read, found.bytes);
    assert_int_equal(kvarve_lease_pages(lease, 0, views, 8, &count, &err), KVARVE_INVALID);
    assert_ok(kvarve_lease_load(lease, 0, &err));
    assert_int_equal(kvarve_lease_load(lease, 0, &err), KVARVE_INVALID);
    assert_ok(kvarve_lease_wait(lease, 10000, NULL, &err));
    assert_ok(kvarve_lease_pages(lease, 0, views, 8, &count, &err));
    assert_int_equal(count, 8);
    /* Others come and go through an arena of 4 MiB; these bytes stay where they are. */
    for (other.tokens = 120; other.tokens < 1000; other.tokens += 40) {
        assert_int_equal(put(&machine, &other), KVARVE_PUT_DURABLE);
    }
    for (size_t i = 0; i < count; i++) {
        assert_true(engine_is_right(&machine, &here, 0, views[i].group, views[i].position,
                                    views[i].address, views[i].size));
    }
    assert_ok(engine_find(&machine, &here, KVARVE_LEASE_NONE, &found, NULL, NULL, &err));
    assert_int_equal(found.tier, KVARVE_TIER_RAM);
    assert_int_equal(found.bytes_to_read, 0);
    assert_true(door_statistics(at).arena_bytes_used <= (UINT64_C(4) << 20));
    kvarve_lease_release(&lease);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_lease__a_load_larger_than_the_arena_ends_at_its_deadline(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(3, 1000);
    engine machine = open_engine(at, &wide);
    engine_state here = {.prefix = prefix, .tokens = 0};
    engine_state whole = {.prefix = prefix, .tokens = 640};
    kvarve_put *open = NULL;
    kvarve_lease *lease = NULL;
    kvarve_miss miss = {0};

    open = begin(&machine, &here, NULL);
    for (here.tokens = 160; here.tokens <= 640; here.tokens += 160) {
        assert_ok(engine_put_extend(&machine, open, &here, &err));
        assert_ok(kvarve_put_wait(open, KVARVE_PUT_STAGED, 10000, &err));
        assert_ok(engine_put_ranks(&machine, open, &here, NULL, &err));
        assert_ok(kvarve_put_wait(open, KVARVE_PUT_STAGED, 10000, &err));
    }
    assert_ok(engine_put_close(&machine, open, &whole, &err));
    assert_ok(kvarve_put_wait(open, KVARVE_PUT_STAGED, 10000, &err));
    assert_ok(engine_put_ranks(&machine, open, &whole, NULL, &err));
    assert_ok(kvarve_put_wait(open, KVARVE_PUT_DURABLE, 10000, &err));
    kvarve_put_release(&open);
    assert_ok(engine_find(&machine, &whole, KVARVE_LEASE_SOFT, NULL, &lease, NULL, &err));
    assert_ok(kvarve_lease_load(lease, 100, &err));
    while (at->world != NULL && kvarve_lease_wait(lease, 1, NULL, &err) == KVARVE_BUSY &&
           door_statistics(at).bytes_read == 0) {
    }
    door_pass_ms(at, 200);
    assert_int_equal(kvarve_lease_wait(lease, 10000, &miss, &err), KVARVE_MISS);
    assert_true(miss.reason == KVARVE_MISS_NO_ROOM || miss.reason == KVARVE_MISS_DEADLINE);
    kvarve_lease_release(&lease);
    /* SOFT it can be read all the same, and the arena is free again. */
    assert_ok(engine_restore(&machine, &whole, false, &err));
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_lease__released_while_it_loads_drains(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(4, 320);
    engine machine = open_engine(at, &wide);
    engine_state here = {.prefix = prefix, .tokens = 320};
    kvarve_lease *lease = NULL;

    assert_int_equal(put(&machine, &here), KVARVE_PUT_DURABLE);
    engine_close(&machine);
    for (int i = 0; i < 4; i++) {
        door_reopen(at);
        machine = open_engine(at, &wide);
        assert_ok(engine_find(&machine, &here, KVARVE_LEASE_LOAD, NULL, &lease, NULL, &err));
        kvarve_lease_release(&lease);
        if (i % 2 == 0) {
            assert_ok(engine_restore(&machine, &here, true, &err));
        }
        engine_close(&machine); /* and the store is closed with reads in flight */
    }
    kvarve_prefix_free(prefix);
}

/* --- room --- */

static void test_room__flash_stays_below_its_cap_and_the_oldest_goes(void **state)
{
    door *at = *state;
    engine machine;
    kvarve_prefix *prefixes[40];
    engine_state states[40];
    kvarve_lease *held = NULL;
    uint64_t evicted;

    door_close(at);
    at->options.flash_bytes_max = UINT64_C(12) << 20;
    door_open(at);
    machine = open_engine(at, &wide);
    for (uint64_t i = 0; i < 40; i++) {
        const kvarve_statistics now = door_statistics(at);

        prefixes[i] = engine_prefix(100 + i, 64);
        states[i] = (engine_state){.prefix = prefixes[i], .tokens = 64};
        assert_int_equal(put(&machine, &states[i]), KVARVE_PUT_DURABLE);
        assert_true(now.segment_bytes + now.index_log_bytes + now.index_database_bytes <=
                    at->options.flash_bytes_max);
        if (i == 1) { /* leased: it stays */
            assert_ok(
                engine_find(&machine, &states[1], KVARVE_LEASE_SOFT, NULL, &held, NULL, &err));
        }
        if (i > 2) { /* used all the time: it stays too */
            assert_ok(engine_restore(&machine, &states[2], false, &err));
        }
    }
    evicted = door_statistics(at).evictions;
    assert_true(evicted > 10);
    assert_int_equal(door_statistics(at).checkpoints, 40 - evicted);
    assert_int_equal(engine_restore(&machine, &states[0], false, &err), KVARVE_MISS);
    assert_ok(engine_read(&machine, held, &states[1], false, &err));
    assert_ok(engine_restore(&machine, &states[1], true, &err));
    assert_ok(engine_restore(&machine, &states[2], true, &err));
    for (uint64_t i = 36; i < 40; i++) {
        assert_ok(engine_restore(&machine, &states[i], true, &err));
    }
    kvarve_lease_release(&held);
    engine_close(&machine);
    door_reopen(at);
    machine = open_engine(at, &wide);
    assert_int_equal(door_statistics(at).checkpoints, 40 - evicted);
    assert_ok(engine_restore(&machine, &states[2], true, &err));
    engine_close(&machine);
    for (uint64_t i = 0; i < 40; i++) {
        kvarve_prefix_free(prefixes[i]);
    }
}

static void test_room__no_room_is_waited_for_then_refused(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(5, 400);
    kvarve_prefix *another = engine_prefix(6, 400);
    engine machine = open_engine(at, &wide);
    engine_state here = {.prefix = prefix, .tokens = 320};
    engine_state second = {.prefix = another, .tokens = 320};
    const engine_begin soon = {.timeout_ms = 100, .cookie = 5};
    kvarve_put *owner = begin(&machine, &here, NULL); /* 2.8 MB of 4 MiB */
    kvarve_put *waiting = NULL;
    kvarve_page_plan plan;
    kvarve_event event;
    size_t count;

    assert_ok(engine_put_begin(&machine, &second, &soon, &waiting, &err));
    assert_int_equal(kvarve_put_status(waiting), KVARVE_PUT_WAITING);
    assert_int_equal(kvarve_put_plan(waiting, 0, &plan, 1, &count, &err), KVARVE_BUSY);
    assert_int_equal(kvarve_put_ack(waiting, 0, NULL, 0, &err), KVARVE_BUSY);
    door_pass_ms(at, 200);
    assert_int_equal(kvarve_put_wait(waiting, KVARVE_PUT_STAGED, 10000, &err), KVARVE_MISS);
    assert_int_equal(kvarve_put_refusal(waiting), KVARVE_REFUSED_NO_ROOM_RAM);
    assert_ok(kvarve_next_event(at->store, &event));
    assert_int_equal(event.kind, KVARVE_EVENT_ABORTED);
    assert_int_equal(event.reason, KVARVE_REFUSED_NO_ROOM_RAM);
    kvarve_put_release(&waiting);
    /* With time it waits until the first is on flash. */
    assert_ok(engine_put_begin(&machine, &second, NULL, &waiting, &err));
    assert_int_equal(kvarve_put_status(waiting), KVARVE_PUT_WAITING);
    assert_ok(engine_put_ranks(&machine, owner, &here, NULL, &err));
    assert_ok(kvarve_put_wait(waiting, KVARVE_PUT_STAGED, 10000, &err));
    assert_ok(engine_put_ranks(&machine, waiting, &second, NULL, &err));
    assert_ok(kvarve_put_wait(waiting, KVARVE_PUT_DURABLE, 10000, &err));
    kvarve_put_release(&owner);
    kvarve_put_release(&waiting);
    assert_ok(engine_restore(&machine, &here, true, &err));
    assert_ok(engine_restore(&machine, &second, true, &err));
    engine_close(&machine);
    kvarve_prefix_free(prefix);
    kvarve_prefix_free(another);
}

static void test_room__what_can_never_fit_is_refused_at_once(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(7, 1000);
    engine machine = open_engine(at, &wide);
    engine_state here = {.prefix = prefix, .tokens = 1000};
    kvarve_put *one = NULL;

    assert_ok(engine_put_begin(&machine, &here, NULL, &one, &err));
    assert_int_equal(kvarve_put_status(one), KVARVE_PUT_ABORTED);
    assert_int_equal(kvarve_put_refusal(one), KVARVE_REFUSED_TOO_LARGE);
    kvarve_put_release(&one);
    assert_int_equal(door_statistics(at).refusals[KVARVE_REFUSED_TOO_LARGE], 1);
    engine_close(&machine);
    door_close(at);
    /* Larger than the cap. */
    at->options.flash_bytes_max = UINT64_C(2) << 20;
    door_open(at);
    machine = open_engine(at, &wide);
    here.tokens = 400;
    assert_ok(engine_put_begin(&machine, &here, NULL, &one, &err));
    (void)!kvarve_put_wait(one, KVARVE_PUT_STAGED, 10000, &err);
    assert_int_equal(kvarve_put_status(one), KVARVE_PUT_ABORTED);
    assert_true(kvarve_put_refusal(one) == KVARVE_REFUSED_NO_ROOM_FLASH ||
                kvarve_put_refusal(one) == KVARVE_REFUSED_TOO_LARGE);
    kvarve_put_release(&one);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_room__a_put_that_nobody_fills_ends_at_its_deadline(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(8, 64);
    engine machine = open_engine(at, &engine_hybrid);
    engine_state here = {.prefix = prefix, .tokens = 64};
    const engine_begin soon = {.timeout_ms = 150, .cookie = 77};
    engine_state first = {.prefix = prefix, .tokens = 48};
    kvarve_put *one;
    kvarve_event event;

    assert_int_equal(put(&machine, &first), KVARVE_PUT_DURABLE); /* the files are there now */
    one = begin(&machine, &here, &soon);
    assert_ok(kvarve_put_ack(one, 0, NULL, 0, &err));
    door_pass_ms(at, 300);
    assert_int_equal(kvarve_put_wait(one, KVARVE_PUT_DURABLE, 10000, &err), KVARVE_MISS);
    assert_int_equal(kvarve_put_refusal(one), KVARVE_REFUSED_DEADLINE);
    while (kvarve_next_event(at->store, &event) == KVARVE_OK &&
           event.kind != KVARVE_EVENT_ABORTED) {
    }
    assert_int_equal(event.kind, KVARVE_EVENT_ABORTED);
    assert_int_equal(event.cookie, 77);
    kvarve_put_release(&one);
    assert_int_equal(put(&machine, &here), KVARVE_PUT_DURABLE);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_room__the_most_checkpoints_are_kept_to(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(9, 64);
    engine machine;
    engine_state here = {.prefix = prefix};

    door_close(at);
    at->options.checkpoints_max = 5;
    door_open(at);
    machine = open_engine(at, &engine_plain);
    for (here.tokens = 1; here.tokens <= 20; here.tokens++) {
        assert_int_equal(put(&machine, &here), KVARVE_PUT_DURABLE);
        assert_true(door_statistics(at).checkpoints <= 6);
    }
    here.tokens = 20;
    assert_ok(engine_restore(&machine, &here, true, &err));
    here.tokens = 10;
    assert_int_equal(engine_restore(&machine, &here, true, &err), KVARVE_MISS);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

/* --- events --- */

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};

    return poll(&one, 1, timeout_ms) == 1;
}

/* Take events until one of this kind; counts all of it by kind. */
static void take_until(door *at, uint32_t kind, uint32_t counts[16])
{
    kvarve_event event = {0};

    do {
        kvarve_status status = kvarve_next_event(at->store, &event);

        if (status == KVARVE_MISS && at->world == NULL) {
            assert_true(is_readable(kvarve_event_fd(at->store), 10000));
            continue;
        }
        assert_int_equal(status, KVARVE_OK);
        counts[event.kind]++;
    } while (event.kind != kind);
}

static void test_events__each_cookie_ends_exactly_once(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(10, 90);
    engine machine = open_engine(at, &engine_hybrid);
    engine_state here = {.prefix = prefix, .tokens = 90};
    const engine_begin told = {.cookie = 42};
    uint32_t counts[16] = {0};
    kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
    kvarve_lease *lease = NULL;
    kvarve_event event;
    kvarve_put *one = NULL;

    assert_true(kvarve_event_fd(at->store) >= 0);
    assert_false(is_readable(kvarve_event_fd(at->store), 0));
    assert_int_equal(kvarve_next_event(at->store, &event), KVARVE_MISS);
    one = begin(&machine, &here, &told);
    assert_ok(engine_put_ranks(&machine, one, &here, NULL, &err));
    assert_ok(kvarve_put_wait(one, KVARVE_PUT_DURABLE, 10000, &err));
    take_until(at, KVARVE_EVENT_DURABLE, counts);
    kvarve_put_release(&one);
    assert_int_equal(counts[KVARVE_EVENT_READY], 1);
    assert_int_equal(counts[KVARVE_EVENT_SOURCE_RELEASED], 4);
    assert_true(counts[KVARVE_EVENT_STAGED] <= 1);
    /* A replay: one end, at once. */
    assert_ok(engine_put_begin(&machine, &here, &told, &one, &err));
    memset(counts, 0, sizeof counts);
    take_until(at, KVARVE_EVENT_DURABLE, counts);
    assert_int_equal(kvarve_put_status(one), KVARVE_PUT_PRESENT);
    kvarve_put_release(&one);
    /* A load, and one more on another lease without a cookie. */
    options.lease = KVARVE_LEASE_LOAD;
    options.cookie = 43;
    assert_ok(kvarve_find(machine.space, prefix, &options, NULL, 0, NULL, &lease, NULL, &err));
    assert_ok(kvarve_lease_wait(lease, 10000, NULL, &err));
    kvarve_lease_release(&lease);
    options.cookie = 0;
    assert_ok(kvarve_find(machine.space, prefix, &options, NULL, 0, NULL, &lease, NULL, &err));
    assert_ok(kvarve_lease_wait(lease, 10000, NULL, &err));
    kvarve_lease_release(&lease);
    assert_ok(kvarve_next_event(at->store, &event));
    assert_int_equal(event.kind, KVARVE_EVENT_LOADED);
    assert_int_equal(event.cookie, 43);
    assert_int_equal(kvarve_next_event(at->store, &event), KVARVE_MISS);
    assert_false(is_readable(kvarve_event_fd(at->store), 0));
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

/* --- many at once --- */

typedef struct bulk {
    kvarve_bulk_item items[20];
    kvarve_put_options options[20];
    kvarve_section sections[20][2];
    uint8_t *bytes[20][2];
} bulk;

static void fill_bulk(bulk *out, const engine *machine, const engine_state *states)
{
    for (size_t i = 0; i < 20; i++) {
        const engine_state *here = &states[i];
        size_t size = 0;

        out->options[i] = (kvarve_put_options)KVARVE_PUT_OPTIONS_INIT;
        out->options[i].tokens = here->tokens;
        out->bytes[i][0] = kvarve_allocate(here->tokens * 96);
        out->bytes[i][1] = kvarve_allocate(9001);
        for (uint64_t page = 0; page * 16 < here->tokens; page++) {
            engine_fill(machine, here, 0, 0, page, out->bytes[i][0] + size);
            size += engine_page_size(machine, here, 0, 0, page);
        }
        engine_fill(machine, here, 0, 1, 0, out->bytes[i][1]);
        out->sections[i][0] = (kvarve_section){.group = 0, .bytes = out->bytes[i][0], .size = size};
        out->sections[i][1] = (kvarve_section){.group = 1, .bytes = out->bytes[i][1], .size = 9001};
        out->items[i] = (kvarve_bulk_item){.prefix = here->prefix,
                                           .options = &out->options[i],
                                           .sections = out->sections[i],
                                           .section_count = 2};
    }
}

static void test_put_many__shares_syncs_and_says_how_each_ended(void **state)
{
    static bulk all;
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(11, 200);
    engine machine = open_engine(at, &engine_plain);
    engine_state states[20];
    kvarve_statistics before;
    kvarve_statistics after;

    for (size_t i = 0; i < 20; i++) {
        states[i] = (engine_state){.prefix = prefix, .tokens = 5 + 10 * (uint64_t)i};
    }
    assert_int_equal(put(&machine, &states[3]), KVARVE_PUT_DURABLE);
    before = door_statistics(at);
    fill_bulk(&all, &machine, states);
    assert_ok(kvarve_put_many(machine.space, all.items, 20, &err));
    after = door_statistics(at);
    for (size_t i = 0; i < 20; i++) {
        assert_int_equal(all.items[i].out_state, i == 3 ? KVARVE_PUT_PRESENT : KVARVE_PUT_DURABLE);
        assert_ok(engine_restore(&machine, &states[i], true, &err));
    }
    assert_true(after.syncs - before.syncs <= 20); /* far fewer than two files by 19 puts */
    /* A bad argument stops it there; what came before is stored. */
    all.options[5].tokens = 1000;
    assert_int_equal(kvarve_put_many(machine.space, all.items, 20, &err), KVARVE_INVALID);
    assert_int_equal(all.items[4].out_state, KVARVE_PUT_PRESENT);
    assert_int_equal(all.items[5].out_state, KVARVE_PUT_ABORTED);
    assert_int_equal(kvarve_put_many(machine.space, all.items, 0, &err), KVARVE_INVALID);
    assert_int_equal(kvarve_put_many(machine.space, all.items, 4097, &err), KVARVE_INVALID);
    for (size_t i = 0; i < 20; i++) {
        kvarve_release(all.bytes[i][0]);
        kvarve_release(all.bytes[i][1]);
    }
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

/* --- statistics --- */

static void test_statistics__add_up(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(12, 100);
    engine machine = open_engine(at, &engine_hybrid);
    engine_state here = {.prefix = prefix, .tokens = 77, .kind = 1};
    engine_total total;
    kvarve_statistics now;
    kvarve_verify_result checked;
    kvarve_put *one;

    assert_int_equal(put(&machine, &here), KVARVE_PUT_DURABLE);
    assert_int_equal(put(&machine, &here), KVARVE_PUT_PRESENT);
    here.tokens = 99;
    one = begin(&machine, &here, NULL);
    now = door_statistics(at);
    assert_int_equal(now.puts, 3);
    assert_int_equal(now.puts_open, 1);
    kvarve_put_release(&one);
    here.tokens = 77;
    assert_ok(engine_restore(&machine, &here, true, &err));
    total = engine_count(&machine, &here);
    now = door_statistics(at);
    assert_int_equal(now.checkpoints, 1);
    assert_int_equal(now.pages, total.pages);
    assert_int_equal(now.puts,
                     now.puts_present + now.puts_durable + now.puts_aborted + now.puts_open);
    assert_int_equal(now.puts_open, 0);
    assert_int_equal(now.puts_aborted, 1);
    assert_int_equal(now.refusals[KVARVE_REFUSED_CALLER], 1);
    assert_int_equal(now.finds, 1);
    assert_int_equal(now.hits, 1);
    assert_int_equal(now.leases_open, 0);
    assert_true(now.payload_bytes_written >= total.bytes);
    assert_true(now.payload_bytes_written <= total.bytes + total.pages * 4095);
    assert_true(now.payload_bytes_taken >= now.payload_bytes_written);
    assert_true(now.segment_bytes >= now.payload_bytes_taken);
    assert_int_equal(now.bytes_read, 0);
    assert_int_equal(now.flash_bytes_max, at->options.flash_bytes_max);
    assert_int_equal(now.arena_bytes, at->options.arena_bytes);
    assert_ok(kvarve_verify(at->store, NULL, NULL, &checked, &err));
    assert_int_equal(checked.pages_checked, total.pages);
    assert_int_equal(checked.pages_damaged, 0);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static const door_test tests[] = {
    DOOR_TEST(test_lease__is_read_in_pieces_of_whole_pages),
    DOOR_TEST(test_lease__pages_in_place_need_a_load_and_stay_until_release),
    DOOR_TEST(test_lease__a_load_larger_than_the_arena_ends_at_its_deadline),
    DOOR_TEST(test_lease__released_while_it_loads_drains),
    DOOR_TEST(test_room__flash_stays_below_its_cap_and_the_oldest_goes),
    DOOR_TEST(test_room__no_room_is_waited_for_then_refused),
    DOOR_TEST(test_room__what_can_never_fit_is_refused_at_once),
    DOOR_TEST(test_room__a_put_that_nobody_fills_ends_at_its_deadline),
    DOOR_TEST(test_room__the_most_checkpoints_are_kept_to),
    DOOR_TEST(test_events__each_cookie_ends_exactly_once),
    DOOR_TEST(test_put_many__shares_syncs_and_says_how_each_ended),
    DOOR_TEST(test_statistics__add_up),
};

int main(void)
{
    return door_run("lease", tests, sizeof tests / sizeof tests[0]);
}
