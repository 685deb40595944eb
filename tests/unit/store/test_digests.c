/*
 * test_digests.c - the page digests that a caller announces or acknowledges with.
 *
 * A store in the simulated host.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "hash/hash.h"
#include "unit/store/store_kit.h"

#define BYTES 6000u

static const engine_layout layout_exact = {
    .identity = "{\"model\":\"exact\"}",
    .is_exact = true,
    .ranks = 2,
    .group_count = 1,
    .groups = {{.page_class = KVARVE_CLASS_ENDPOINT, .page_bytes = BYTES}}};

static void fill_digests(const fixture *f, const engine_state *here, kvarve_page_digest out[3])
{
    uint8_t bytes[BYTES];

    for (uint32_t rank = 0; rank < 2; rank++) {
        page_digest digest;

        engine_fill(&f->at, here, rank, 0, 0, bytes);
        digest = page_digest_of(bytes, sizeof bytes);
        out[rank] = (kvarve_page_digest){.rank = rank};
        memcpy(out[rank].digest, digest.bytes, sizeof out[rank].digest);
    }
    out[2] = out[1];
}

static kvarve_status try_begin(const fixture *f, const kvarve_page_digest *digests, uint32_t count,
                               kvarve_put **out)
{
    kvarve_put_options options = KVARVE_PUT_OPTIONS_INIT;

    options.tokens = 100;
    options.digests = digests;
    options.digest_count = count;
    return kvarve_put_begin(f->at.space, f->prefix, &options, out, &err);
}

static void assert_invalid(kvarve_status status, const char *text)
{
    assert_int_equal(status, KVARVE_INVALID);
    if (strstr(err.text, text) == NULL) {
        print_error("%s: nothing of `%s`\n", err.text, text);
        fail();
    }
}

static void test_put__a_page_that_is_announced_twice_is_refused(void **state)
{
    fixture f;
    kvarve_page_digest digests[3];
    kvarve_put *made = NULL;

    (void)state;
    begin_test(&f, &layout_exact);
    const engine_state here = state_at(&f, 100);

    fill_digests(&f, &here, digests);
    assert_invalid(try_begin(&f, digests, 3, &made), "two digests of rank 1 group 0 position 0");
    digests[2].digest[0] ^= 1; /* and other bytes */
    assert_invalid(try_begin(&f, digests, 3, &made), "two digests");
    digests[2].position = 1; /* of no page */
    assert_invalid(try_begin(&f, digests, 3, &made), "3 digests for the 2 pages");
    assert_int_equal(statistics(&f).puts_open, 0);
    assert_ok(try_begin(&f, digests, 2, &made));
    assert_ok(kvarve_put_wait(made, KVARVE_PUT_STAGED, WAIT_MS, &err));
    assert_ok(engine_put_ranks(&f.at, made, &here, NULL, &err));
    assert_ok(kvarve_put_wait(made, KVARVE_PUT_DURABLE, WAIT_MS, &err));
    kvarve_put_release(&made);
    assert_int_equal(put(&f, &here), KVARVE_PUT_PRESENT);
    end_test(&f);
}

static void test_put__a_page_that_is_acknowledged_twice_is_refused(void **state)
{
    fixture f;
    kvarve_page_digest digests[3];
    kvarve_put *made;

    (void)state;
    begin_test(&f, &layout_exact);
    const engine_state here = state_at(&f, 100);

    fill_digests(&f, &here, digests);
    made = begin(&f, &here);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_ok(engine_put_fill(&f.at, made, &here, rank, NULL, &err));
    }
    assert_ok(kvarve_put_ack(made, 0, digests, 1, &err));
    assert_invalid(kvarve_put_ack(made, 1, &digests[1], 2, &err), "two digests");
    assert_ok(
        kvarve_put_ack(made, 1, &digests[1], 1, &err)); /* the refused one counted for nothing */
    assert_ok(kvarve_put_wait(made, KVARVE_PUT_DURABLE, WAIT_MS, &err));
    kvarve_put_release(&made);
    end_test(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put__a_page_that_is_announced_twice_is_refused),
        cmocka_unit_test(test_put__a_page_that_is_acknowledged_twice_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
