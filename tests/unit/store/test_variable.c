/*
 * test_variable.c - states of any size: what is stored at one boundary in two sizes is stored
 * twice.
 *
 * A store in the simulated host. Byte i of a state follows from its size, as two engines'
 * compressions of one state would.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/store/store_kit.h"

#define TOKENS     100u
#define STATE_MOST 20000u

static const engine_layout layout_variable = {
    .identity = "{\"model\":\"variable\"}",
    .ranks = 1,
    .group_count = 1,
    .groups = {
        {.page_class = KVARVE_CLASS_ENDPOINT, .flags = KVARVE_GROUP_VARIABLE, .page_bytes = 4096}}};

static void fill_state(uint64_t size, uint8_t *out)
{
    for (uint64_t i = 0; i < size; i++) {
        out[i] = (uint8_t)(i * 31 + size);
    }
}

/* How it ended. */
static uint32_t put_size(fixture *f, uint32_t kind, uint64_t size)
{
    uint8_t *bytes = kvarve_allocate(STATE_MOST);
    kvarve_put_options options = KVARVE_PUT_OPTIONS_INIT;
    kvarve_put *made = NULL;
    uint32_t ended;

    fill_state(size, bytes);
    options.tokens = TOKENS;
    options.kind = kind;
    options.sizes = &size;
    assert_ok(kvarve_put_begin(f->at.space, f->prefix, &options, &made, &err));
    assert_ok(kvarve_put_wait(made, KVARVE_PUT_STAGED, WAIT_MS, &err));
    if (kvarve_put_status(made) == KVARVE_PUT_STAGED) {
        assert_ok(kvarve_put_write(made, 0, 0, 0, bytes, size, &err));
        assert_ok(kvarve_put_ack(made, 0, NULL, 0, &err));
    }
    assert_ok(kvarve_put_wait(made, KVARVE_PUT_DURABLE, WAIT_MS, &err));
    ended = kvarve_put_status(made);
    kvarve_put_release(&made);
    kvarve_release(bytes);
    return ended;
}

static void assert_restores(fixture *f, uint32_t kind, uint64_t size)
{
    uint8_t *bytes = kvarve_allocate(STATE_MOST);
    uint8_t *expected = kvarve_allocate(STATE_MOST);
    kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
    kvarve_lease *lease = NULL;
    uint64_t first;
    uint64_t pages;
    uint64_t stored;

    options.kinds = 1u << kind;
    options.lease = KVARVE_LEASE_SOFT;
    assert_ok(kvarve_find(f->at.space, f->prefix, &options, NULL, 0, NULL, &lease, NULL, &err));
    assert_ok(kvarve_lease_extent(lease, 0, 0, &first, &pages, &stored, &err));
    assert_int_equal(stored, size);
    assert_ok(kvarve_lease_read(lease, 0, 0, 0, bytes, size, &err));
    fill_state(size, expected);
    assert_memory_equal(bytes, expected, size);
    kvarve_lease_release(&lease);
    kvarve_release(bytes);
    kvarve_release(expected);
}

/* Kinds of one boundary have their endpoint's name in common, and here not its size. The first has
 * more parts, less, or as many; the last part is whole or not. */
static void test_put__two_sizes_at_one_boundary_share_no_part(void **state)
{
    static const uint64_t sizes[][2] = {{10000, 5000}, {5000, 10000}, {8192, 4096},
                                        {4096, 8192},  {5000, 5001},  {100, 20000}};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        fixture f;

        begin_test(&f, &layout_variable);
        assert_int_equal(put_size(&f, KVARVE_KIND_PROMPT, sizes[i][0]), KVARVE_PUT_DURABLE);
        assert_int_equal(put_size(&f, KVARVE_KIND_RESPONSE, sizes[i][1]), KVARVE_PUT_DURABLE);
        assert_restores(&f, KVARVE_KIND_PROMPT, sizes[i][0]);
        assert_restores(&f, KVARVE_KIND_RESPONSE, sizes[i][1]);
        close_store(&f);
        open_store(&f, &layout_variable);
        assert_restores(&f, KVARVE_KIND_PROMPT, sizes[i][0]);
        assert_restores(&f, KVARVE_KIND_RESPONSE, sizes[i][1]);
        assert_int_equal(put_size(&f, KVARVE_KIND_PROMPT, sizes[i][0]), KVARVE_PUT_PRESENT);
        end_test(&f);
    }
}

/* One state under two kinds is stored once. */
static void test_put__one_size_at_one_boundary_is_shared(void **state)
{
    fixture f;
    uint64_t before;

    (void)state;
    begin_test(&f, &layout_variable);
    assert_int_equal(put_size(&f, KVARVE_KIND_PROMPT, 10000), KVARVE_PUT_DURABLE);
    before = statistics(&f).payload_bytes_written;
    assert_int_equal(put_size(&f, KVARVE_KIND_RESPONSE, 10000), KVARVE_PUT_DURABLE);
    assert_int_equal(statistics(&f).payload_bytes_written, before);
    assert_restores(&f, KVARVE_KIND_RESPONSE, 10000);
    end_test(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put__two_sizes_at_one_boundary_share_no_part),
        cmocka_unit_test(test_put__one_size_at_one_boundary_is_shared),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
