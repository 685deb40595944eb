/*
 * test_close.c - a store that is closed while handles are open: it ends, and they harm nothing.
 *
 * In the simulated host, and once in the real one with its threads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "support/scratch.h"
#include "unit/store/store_kit.h"

#define PAGES 16u

/* One handle of each kind, and what they gave. */
typedef struct handles {
    engine other; /* a second namespace */
    kvarve_put *staged;
    kvarve_put *ready;
    kvarve_lease *lease;
    kvarve_page_plan plan[PAGES];
    kvarve_page_view views[PAGES];
    size_t plan_count;
    size_t view_count;
} handles;

static void take_handles(fixture *f, handles *h)
{
    const engine_state first = state_at(f, 70);
    const engine_state second = state_at(f, 100);
    const engine_state third = state_at(f, 120);

    assert_ok(engine_open(&h->other, f->store, &engine_dense, &err));
    assert_int_equal(put(f, &first), KVARVE_PUT_DURABLE);
    assert_ok(engine_find(&f->at, &first, KVARVE_LEASE_LOAD, NULL, &h->lease, NULL, &err));
    assert_ok(kvarve_lease_wait(h->lease, WAIT_MS, NULL, &err));
    assert_ok(kvarve_lease_pages(h->lease, 0, h->views, PAGES, &h->view_count, &err));
    h->ready = begin(f, &second);
    assert_ok(engine_put_ranks(&f->at, h->ready, &second, NULL, &err));
    h->staged = begin(f, &third);
    assert_ok(kvarve_put_plan(h->staged, 0, h->plan, PAGES, &h->plan_count, &err));
    assert_ok(kvarve_put_wait(h->ready, KVARVE_PUT_READY, WAIT_MS, &err));
}

static void assert_closed(fixture *f, handles *h)
{
    kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
    kvarve_statistics now = KVARVE_STATISTICS_INIT;
    const engine_state here = state_at(f, 70);
    kvarve_put *made = NULL;
    kvarve_event event;
    size_t count = 0;

    assert_int_equal(kvarve_put_wait(h->staged, KVARVE_PUT_READY, 10, &err), KVARVE_UNAVAILABLE);
    assert_int_equal(kvarve_put_ack(h->staged, 0, NULL, 0, &err), KVARVE_UNAVAILABLE);
    assert_non_null(strstr(err.text, "the store was closed"));
    assert_int_equal(kvarve_lease_pages(h->lease, 0, h->views, PAGES, &count, &err),
                     KVARVE_UNAVAILABLE);
    assert_int_equal(
        kvarve_find(f->at.space, f->prefix, &options, NULL, 0, &count, NULL, NULL, &err),
        KVARVE_UNAVAILABLE);
    assert_int_equal(engine_put_begin(&f->at, &here, NULL, &made, &err), KVARVE_UNAVAILABLE);
    assert_int_equal(kvarve_statistics_get(f->store, &now, &err), KVARVE_UNAVAILABLE);
    assert_int_equal(kvarve_next_event(f->store, &event), KVARVE_UNAVAILABLE);
    kvarve_put_abort(h->staged);
    kvarve_close(f->store); /* once more */
}

/* What the caller was given may still be read and written. */
static void use_addresses(fixture *f, handles *h)
{
    const engine_state first = state_at(f, 70);

    for (size_t i = 0; i < h->view_count; i++) {
        assert_true(engine_is_right(&f->at, &first, 0, h->views[i].group, h->views[i].position,
                                    h->views[i].address, h->views[i].size));
    }
    for (size_t i = 0; i < h->plan_count; i++) {
        if (h->plan[i].action == KVARVE_PAGE_COPY) {
            memset(h->plan[i].address, 0xee, h->plan[i].size);
        }
    }
}

/* In another order each time; the last of them ends the store. */
static void release(fixture *f, handles *h, size_t order)
{
    for (size_t i = 0; i < 5; i++) {
        switch ((i + order) % 5) {
        case 0:
            kvarve_put_release(&h->staged);
            assert_null(h->staged);
            break;
        case 1:
            kvarve_lease_release(&h->lease);
            assert_null(h->lease);
            break;
        case 2:
            engine_close(&f->at);
            break;
        case 3:
            kvarve_put_release(&h->ready);
            assert_null(h->ready);
            break;
        default:
            engine_close(&h->other);
        }
    }
}

static void test_close__with_open_handles_ends_when_the_last_one_goes(void **state)
{
    (void)state;
    for (size_t order = 0; order < 5; order++) {
        handles h = {0};
        fixture f;

        begin_test(&f, &engine_plain);
        take_handles(&f, &h);
        kvarve_close(f.store);
        assert_closed(&f, &h);
        use_addresses(&f, &h);
        release(&f, &h, order);
        assert_int_equal(world_open_descriptors(f.world), 0);
        assert_int_equal(world_mappings(f.world), 0);
        open_store(&f, &engine_plain);
        const engine_state first = state_at(&f, 70);
        const engine_state ready = state_at(&f, 100);
        const engine_state staged = state_at(&f, 120);

        assert_ok(engine_restore(&f.at, &first, false, &err));
        assert_ok(engine_restore(&f.at, &ready, false, &err)); /* it was brought to flash */
        assert_int_equal(engine_find(&f.at, &staged, KVARVE_LEASE_NONE, NULL, NULL, NULL, &err),
                         KVARVE_MISS);
        end_test(&f);
    }
}

static void test_close__with_open_handles_in_the_real_host(void **state)
{
    fixture f = {.options = KVARVE_STORE_OPTIONS_INIT, .prefix = engine_prefix(1, 200)};
    char folder[SCRATCH_PATH_MAX];
    char path[SCRATCH_PATH_MAX + 8];
    handles h = {0};
    kvarve_store *second = NULL;

    (void)state;
    scratch_make(folder);
    (void)snprintf(path, sizeof path, "%s/store", folder);
    f.options.arena_bytes = 4 * MIB;
    f.options.flash_bytes_max = 64 * MIB;
    assert_ok(kvarve_open(path, &f.options, &f.store, &err));
    assert_ok(engine_open(&f.at, f.store, &engine_plain, &err));
    take_handles(&f, &h);
    kvarve_close(f.store);
    assert_closed(&f, &h);
    use_addresses(&f, &h);
    assert_int_equal(kvarve_open(path, &f.options, &second, &err), KVARVE_BUSY);
    release(&f, &h, 2);
    assert_ok(kvarve_open(path, &f.options, &second, &err));
    kvarve_close(second);
    kvarve_prefix_free(f.prefix);
    scratch_remove(folder);
    assert_int_equal(kvarve_allocated_blocks(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_close__with_open_handles_ends_when_the_last_one_goes),
        cmocka_unit_test(test_close__with_open_handles_in_the_real_host),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
