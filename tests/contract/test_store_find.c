/*
 * test_store_find.c - what find promises, through each door: which boundaries, in which order, and
 * why there is none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/alloc.h"
#include "contract/steps.h"

#define TOKENS 200u

/* Put boundaries of one prefix; kinds by turns unless given. */
static void put_all(const engine *at, const kvarve_prefix *prefix, const uint64_t *tokens,
                    size_t count, int kind)
{
    for (size_t i = 0; i < count; i++) {
        const engine_state here = {.prefix = prefix,
                                   .tokens = tokens[i],
                                   .kind = kind < 0 ? (uint32_t)i % 3 : (uint32_t)kind};

        assert_int_equal(put(at, &here), KVARVE_PUT_DURABLE);
    }
}

typedef struct answer {
    kvarve_status status;
    size_t count;
    kvarve_boundary found[16];
    kvarve_miss miss;
} answer;

static answer ask(const engine *at, const kvarve_prefix *prefix, const kvarve_find_options *options)
{
    answer out = {0};

    out.status =
        kvarve_find(at->space, prefix, options, out.found, 16, &out.count, NULL, &out.miss, &err);
    return out;
}

static void test_find__longest_first_between_the_limits(void **state)
{
    static const uint64_t stored[] = {10, 48, 64, 100, 101, 150};
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(1, TOKENS);
    engine machine = open_engine(at, &engine_plain);
    kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
    answer got;

    put_all(&machine, prefix, stored, 6, 1);
    got = ask(&machine, prefix, NULL);
    assert_int_equal(got.count, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(got.found[i].tokens, stored[5 - i]);
        assert_int_equal(got.found[i].state, KVARVE_PUT_DURABLE);
    }
    options.max_tokens = 149;
    options.min_tokens = 48;
    got = ask(&machine, prefix, &options);
    assert_int_equal(got.count, 4);
    assert_int_equal(got.found[0].tokens, 101);
    assert_int_equal(got.found[3].tokens, 48);
    options.multiple_of = 16;
    got = ask(&machine, prefix, &options);
    assert_int_equal(got.count, 2);
    assert_int_equal(got.found[0].tokens, 64);
    options.min_tokens = 65;
    got = ask(&machine, prefix, &options);
    assert_int_equal(got.status, KVARVE_MISS);
    assert_int_equal(got.miss.reason, KVARVE_MISS_LIMITS);
    /* Fewer places than boundaries: the longest ones. */
    options = (kvarve_find_options)KVARVE_FIND_OPTIONS_INIT;
    assert_ok(
        kvarve_find(machine.space, prefix, &options, got.found, 2, &got.count, NULL, NULL, &err));
    assert_int_equal(got.count, 2);
    assert_int_equal(got.found[1].tokens, 101);
    assert_ok(kvarve_find(machine.space, prefix, &options, NULL, 0, NULL, NULL, NULL, &err));
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_find__at_one_length_the_preferred_kind_then_the_newest(void **state)
{
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(2, 50);
    engine machine = open_engine(at, &engine_hybrid);
    kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
    engine_state here = {.prefix = prefix, .tokens = 50};

    for (here.kind = 0; here.kind < 3; here.kind++) {
        assert_int_equal(put(&machine, &here), KVARVE_PUT_DURABLE);
    }
    for (uint32_t kind = 0; kind < 3; kind++) {
        answer got;

        options.preferred_kind = kind;
        options.kinds = 0;
        got = ask(&machine, prefix, &options);
        assert_int_equal(got.count, 3);
        assert_int_equal(got.found[0].kind, kind);
        options.kinds = 1u << kind;
        got = ask(&machine, prefix, &options);
        assert_int_equal(got.count, 1);
        assert_int_equal(got.found[0].kind, kind);
    }
    options.kinds = 3;
    options.preferred_kind =
        KVARVE_KIND_RESPONSE; /* not asked for: the one found last comes first */
    assert_int_equal(ask(&machine, prefix, &options).found[0].kind, KVARVE_KIND_PROMPT);
    options.kinds = 8;
    assert_int_equal(ask(&machine, prefix, &options).status, KVARVE_INVALID);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_find__other_tokens_and_longer_checkpoints_do_not_match(void **state)
{
    static const uint64_t stored[] = {64, 128};
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(3, TOKENS);
    kvarve_prefix *branch = NULL;
    const uint32_t other = 99999;
    engine machine = open_engine(at, &engine_plain);
    answer got;

    put_all(&machine, prefix, stored, 2, 1);
    assert_ok(kvarve_prefix_create(&branch, &err));
    assert_ok(kvarve_prefix_append(branch, kvarve_prefix_tokens(prefix), 127, &err));
    got = ask(&machine, branch, NULL);
    assert_int_equal(got.count, 1);
    assert_int_equal(got.found[0].tokens, 64);
    assert_ok(kvarve_prefix_append(branch, &other, 1, &err));
    got = ask(&machine, branch, NULL);
    assert_int_equal(got.count, 1);
    assert_ok(kvarve_prefix_truncate(branch, 63, &err));
    assert_ok(kvarve_prefix_append(branch, &other, 1, &err));
    got = ask(&machine, branch, NULL);
    assert_int_equal(got.status, KVARVE_MISS);
    assert_int_equal(got.miss.reason, KVARVE_MISS_TOKENS);
    assert_int_equal(got.miss.common_tokens, 48); /* in whole pages of 16 */
    kvarve_prefix_free(branch);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

/* --- derived boundaries --- */

static void test_find__page_ends_of_an_all_prefix_layout_are_boundaries(void **state)
{
    static const uint64_t stored[] = {100};
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(4, TOKENS);
    kvarve_prefix *branch = NULL;
    const uint32_t other = 99999;
    engine machine = open_engine(at, &engine_dense);
    kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
    kvarve_lease *lease = NULL;
    engine_state here = {.prefix = prefix, .tokens = 64};
    answer got;

    put_all(&machine, prefix, stored, 1, KVARVE_KIND_RESPONSE);
    assert_ok(kvarve_prefix_create(&branch, &err));
    assert_ok(kvarve_prefix_append(branch, kvarve_prefix_tokens(prefix), 70, &err));
    assert_ok(kvarve_prefix_append(branch, &other, 1, &err));
    got = ask(&machine, branch, &options);
    assert_int_equal(got.count, 4); /* 64, 48, 32, 16: ends of both groups' pages */
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(got.found[i].tokens, 64 - 16 * i);
        assert_int_equal(got.found[i].flags, KVARVE_BOUNDARY_DERIVED);
        assert_int_equal(got.found[i].kind, KVARVE_KIND_INSTRUCTION);
    }
    options.lease = KVARVE_LEASE_LOAD;
    assert_ok(kvarve_find(machine.space, branch, &options, NULL, 0, NULL, &lease, NULL, &err));
    assert_ok(kvarve_lease_wait(lease, 10000, NULL, &err));
    assert_ok(engine_view(&machine, lease, &here, false, &err));
    assert_ok(engine_read(&machine, lease, &here, false, &err));
    kvarve_lease_release(&lease);
    options.lease = KVARVE_LEASE_NONE;
    options.kinds = 1u << KVARVE_KIND_RESPONSE;
    assert_int_equal(ask(&machine, branch, &options).status, KVARVE_MISS);
    options.kinds = 0;
    options.flags = KVARVE_FIND_NO_DERIVED;
    assert_int_equal(ask(&machine, branch, &options).status, KVARVE_MISS);
    assert_int_equal(ask(&machine, prefix, &options).count, 1);
    options.flags = 0;
    options.multiple_of = 32;
    options.max_tokens = 63;
    got = ask(&machine, branch, &options);
    assert_int_equal(got.count, 1);
    assert_int_equal(got.found[0].tokens, 32);
    kvarve_prefix_free(branch);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

/* --- points and bitmap --- */

static bool is_equal_boundary(const kvarve_boundary *a, const kvarve_boundary *b)
{
    return a->tokens == b->tokens && a->kind == b->kind && a->flags == b->flags &&
           a->bytes == b->bytes && memcmp(a->id, b->id, 32) == 0;
}

static void compare_points(const engine *at, const kvarve_prefix *prefix,
                           const kvarve_find_options *options)
{
    static kvarve_prefix_point points[TOKENS];
    const uint64_t length = kvarve_prefix_length(prefix);
    answer got = ask(at, prefix, options);
    answer by_points = {0};

    for (uint64_t i = 0; i < length; i++) {
        points[i].tokens = i + 1;
        assert_ok(kvarve_prefix_digest(prefix, i + 1, points[i].digest, &err));
    }
    by_points.status = kvarve_find_points(at->space, points, length, options, by_points.found, 16,
                                          &by_points.count, NULL, &by_points.miss, &err);
    assert_int_equal(got.status, by_points.status);
    assert_int_equal(got.count, by_points.count);
    for (size_t i = 0; i < got.count; i++) {
        assert_true(is_equal_boundary(&got.found[i], &by_points.found[i]));
    }
}

static void test_find__by_points_is_the_same_as_by_tokens(void **state)
{
    static const uint64_t stored[] = {10, 48, 64, 100, 101, 150};
    static const engine_layout *const layouts[] = {&engine_plain, &engine_dense, &engine_exact};
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(5, TOKENS);

    for (size_t l = 0; l < 3; l++) {
        engine machine = open_engine(at, layouts[l]);
        kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;

        compare_points(&machine, prefix, &options); /* a miss, both */
        put_all(&machine, prefix, stored, 6, -1);
        compare_points(&machine, prefix, &options);
        options.max_tokens = 99;
        compare_points(&machine, prefix, &options);
        options.multiple_of = 16;
        compare_points(&machine, prefix, &options);
        options.kinds = 1;
        compare_points(&machine, prefix, &options);
        options.min_tokens = 90;
        compare_points(&machine, prefix, &options);
        engine_close(&machine);
    }
    kvarve_prefix_free(prefix);
}

static void test_find__by_points_looks_at_those_lengths_only(void **state)
{
    static const uint64_t stored[] = {100};
    static const uint64_t lengths[] = {16, 40, 48, 90};
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(6, TOKENS);
    engine machine = open_engine(at, &engine_dense);
    kvarve_prefix_point points[4];
    answer got = {0};

    put_all(&machine, prefix, stored, 1, 1);
    for (size_t i = 0; i < 4; i++) {
        points[i].tokens = lengths[i];
        assert_ok(kvarve_prefix_digest(prefix, lengths[i], points[i].digest, &err));
    }
    assert_ok(kvarve_find_points(machine.space, points, 4, NULL, got.found, 16, &got.count, NULL,
                                 NULL, &err));
    assert_int_equal(got.count, 2);
    assert_int_equal(got.found[0].tokens, 48);
    assert_int_equal(got.found[1].tokens, 16);
    points[3].tokens = 48;
    assert_int_equal(
        kvarve_find_points(machine.space, points, 4, NULL, NULL, 0, NULL, NULL, NULL, &err),
        KVARVE_INVALID);
    assert_int_equal(
        kvarve_find_points(machine.space, points, 0, NULL, NULL, 0, NULL, NULL, NULL, &err),
        KVARVE_INVALID);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static bool has_bit(const uint8_t *bitmap, uint64_t at)
{
    return (bitmap[at / 8] >> (at % 8) & 1) != 0;
}

/* Brute force: is length n restorable, with these stored by kinds by turns? */
static bool is_expected(const uint64_t *stored, size_t count, uint64_t n, uint64_t end_of_pages,
                        const kvarve_find_options *options)
{
    const bool is_any = options->kinds == 0;

    if (n < options->min_tokens || n > options->max_tokens ||
        (options->multiple_of > 1 && n % options->multiple_of != 0)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (stored[i] == n && (is_any || (options->kinds >> (i % 3) & 1) != 0)) {
            return true;
        }
    }
    return end_of_pages != 0 && n <= stored[count - 1] && n % end_of_pages == 0 &&
           (is_any || (options->kinds & 1) != 0) && (options->flags & KVARVE_FIND_NO_DERIVED) == 0;
}

static void test_find__the_bitmap_is_what_brute_force_says(void **state)
{
    static const uint64_t stored[] = {3, 10, 48, 64, 100, 101, 150};
    static const engine_layout *const layouts[] = {&engine_plain, &engine_dense};
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(7, TOKENS);
    uint8_t bitmap[TOKENS / 8 + 1];

    for (size_t l = 0; l < 2; l++) {
        engine machine = open_engine(at, layouts[l]);

        put_all(&machine, prefix, stored, 7, -1);
        for (uint32_t i = 0; i < 64; i++) {
            kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;

            options.kinds = i % 8;
            options.flags = i % 16 < 8 ? 0 : KVARVE_FIND_NO_DERIVED;
            options.min_tokens = i < 32 ? 0 : 11;
            options.max_tokens = i < 32 ? TOKENS : 100;
            options.multiple_of = i % 32 < 16 ? 0 : 4;
            memset(bitmap, 0xff, sizeof bitmap);
            assert_ok(
                kvarve_find_all(machine.space, prefix, &options, bitmap, sizeof bitmap, &err));
            for (uint64_t n = 0; n <= TOKENS; n++) {
                assert_int_equal(has_bit(bitmap, n),
                                 n > 0 && is_expected(stored, 7, n, l == 0 ? 0 : 16, &options));
            }
        }
        assert_int_equal(kvarve_find_all(machine.space, prefix, NULL, bitmap, TOKENS / 8, &err),
                         KVARVE_INVALID);
        engine_close(&machine);
    }
    kvarve_prefix_free(prefix);
}

/* --- misses --- */

static void test_find__a_miss_says_why(void **state)
{
    static const uint64_t stored[] = {64, 100};
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(8, TOKENS);
    kvarve_prefix *other = engine_prefix(9, TOKENS);
    engine machine = open_engine(at, &engine_plain);
    kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
    answer got = ask(&machine, prefix, NULL);

    assert_int_equal(got.miss.reason, KVARVE_MISS_EMPTY);
    put_all(&machine, prefix, stored, 2, 1);
    got = ask(&machine, other, NULL);
    assert_int_equal(got.miss.reason, KVARVE_MISS_TOKENS);
    assert_int_equal(got.miss.common_tokens, 0);
    options.max_tokens = 63;
    got = ask(&machine, prefix, &options);
    assert_int_equal(got.miss.reason, KVARVE_MISS_LIMITS);
    assert_int_equal(got.miss.nearest_tokens, 100);
    options.max_tokens = 0;
    options.kinds = 1u << KVARVE_KIND_RESPONSE;
    got = ask(&machine, prefix, &options);
    assert_int_equal(got.miss.reason, KVARVE_MISS_LIMITS);
    assert_int_equal(got.miss.nearest_tokens, 100);
    assert_int_equal(door_statistics(at).misses[KVARVE_MISS_LIMITS], 2);
    assert_int_equal(door_statistics(at).misses[KVARVE_MISS_TOKENS], 1);
    assert_int_equal(door_statistics(at).misses[KVARVE_MISS_EMPTY], 1);
    engine_close(&machine);
    kvarve_prefix_free(prefix);
    kvarve_prefix_free(other);
}

static void test_find__another_identity_is_named_by_the_field_that_differs(void **state)
{
    static const uint64_t stored[] = {64};
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(10, TOKENS);
    engine_layout layout = engine_plain;
    engine machine;
    engine other;
    answer got;

    layout.identity = "{\"model\":\"m\",\"weights\":\"aa\"}";
    layout.numerics = "{\"build\":\"b1\"}";
    machine = open_engine(at, &layout);
    put_all(&machine, prefix, stored, 1, 1);
    layout.numerics = "{\"build\":\"b2\"}";
    other = open_engine(at, &layout);
    for (int i = 0; i < 2; i++) {
        got = ask(&other, prefix, NULL);
        assert_int_equal(got.miss.reason, KVARVE_MISS_NUMERICS);
        assert_int_equal(got.miss.nearest_tokens, 64);
        assert_non_null(strstr(got.miss.field, "build"));
        engine_close(&other);
        engine_close(&machine);
        door_reopen(at); /* documents are kept beside the store */
        other = open_engine(at, &layout);
        machine = open_engine(at, &layout);
    }
    engine_close(&machine);
    engine_close(&other);
    layout.identity = "{\"model\":\"m\",\"weights\":\"bb\"}";
    other = open_engine(at, &layout);
    got = ask(&other, prefix, NULL);
    assert_int_equal(got.miss.reason, KVARVE_MISS_NAMESPACE);
    assert_non_null(strstr(got.miss.field, "weights"));
    engine_close(&other);
    /* Another tenant is told nothing. */
    layout.salt = "tenant";
    other = open_engine(at, &layout);
    got = ask(&other, prefix, NULL);
    assert_int_equal(got.miss.reason, KVARVE_MISS_EMPTY);
    assert_int_equal(got.miss.nearest_tokens, 0);
    assert_string_equal(got.miss.field, "");
    engine_close(&other);
    kvarve_prefix_free(prefix);
}

static void test_find__a_damaged_page_is_missed_and_the_next_put_repairs_it(void **state)
{
    static const uint64_t stored[] = {64, 100};
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(11, TOKENS);
    engine machine = open_engine(at, &engine_plain);
    engine_state longer = {.prefix = prefix, .tokens = 100, .kind = 1};
    engine_state shorter = {.prefix = prefix, .tokens = 64, .kind = 1};
    uint8_t page[16 * 96];
    answer got;

    put_all(&machine, prefix, stored, 2, 1);
    engine_close(&machine);
    door_close(at);
    engine_fill(&(engine){.layout = &engine_plain}, &longer, 0, 0, 5, page); /* tokens 80 .. 95 */
    assert_int_equal(door_damage_page(at, page, sizeof page), 1);
    door_open(at);
    machine = open_engine(at, &engine_plain);
    /* It is found, since nobody has looked at its bytes; the restore is a miss, never wrong bytes.
     */
    assert_int_equal(engine_restore(&machine, &longer, false, &err), KVARVE_MISS);
    got = ask(&machine, prefix, NULL);
    assert_int_equal(got.count, 1);
    assert_int_equal(got.found[0].tokens, 64);
    assert_ok(engine_restore(&machine, &shorter, true, &err));
    {
        kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;

        options.min_tokens = 65;
        got = ask(&machine, prefix, &options);
        assert_int_equal(got.miss.reason, KVARVE_MISS_DAMAGED);
        assert_int_equal(got.miss.group, 0);
    }
    assert_int_equal(door_statistics(at).pages_damaged, 1);
    assert_int_equal(put(&machine, &longer), KVARVE_PUT_DURABLE);
    assert_int_equal(door_statistics(at).pages_damaged, 0);
    assert_ok(engine_restore(&machine, &longer, true, &err));
    engine_close(&machine);
    door_reopen(at);
    machine = open_engine(at, &engine_plain);
    assert_ok(engine_restore(&machine, &longer, true, &err));
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static void test_find__what_is_dropped_is_not_found_any_more(void **state)
{
    static const uint64_t stored[] = {64, 100};
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(12, TOKENS);
    engine machine = open_engine(at, &engine_plain);
    answer got;
    uint8_t id[32];

    put_all(&machine, prefix, stored, 2, 1);
    got = ask(&machine, prefix, NULL);
    memcpy(id, got.found[0].id, sizeof id);
    assert_ok(kvarve_drop(at->store, id, &err));
    assert_int_equal(kvarve_drop(at->store, id, &err), KVARVE_MISS);
    for (int i = 0; i < 2; i++) {
        got = ask(&machine, prefix, NULL);
        assert_int_equal(got.count, 1);
        assert_int_equal(got.found[0].tokens, 64);
        engine_close(&machine);
        door_reopen(at);
        machine = open_engine(at, &engine_plain);
    }
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

/* --- the longest prefixes --- */

static void test_find__boundaries_in_several_chunks_of_4096_tokens(void **state)
{
    static const uint64_t stored[] = {4000, 4095, 4096, 4097, 8192, 9000};
    door *at = *state;
    kvarve_prefix *prefix = engine_prefix(13, 9100);
    engine machine = open_engine(at, &engine_plain);
    answer got;

    put_all(&machine, prefix, stored, 6, 1);
    got = ask(&machine, prefix, NULL);
    assert_int_equal(got.count, 6);
    for (size_t i = 0; i < 6; i++) {
        const engine_state here = {.prefix = prefix, .tokens = stored[i], .kind = 1};

        assert_int_equal(got.found[i].tokens, stored[5 - i]);
        assert_ok(engine_restore(&machine, &here, i % 2 == 0, &err));
    }
    engine_close(&machine);
    kvarve_prefix_free(prefix);
}

static const door_test tests[] = {
    DOOR_TEST(test_find__longest_first_between_the_limits),
    DOOR_TEST(test_find__at_one_length_the_preferred_kind_then_the_newest),
    DOOR_TEST(test_find__other_tokens_and_longer_checkpoints_do_not_match),
    DOOR_TEST(test_find__page_ends_of_an_all_prefix_layout_are_boundaries),
    DOOR_TEST(test_find__by_points_is_the_same_as_by_tokens),
    DOOR_TEST(test_find__by_points_looks_at_those_lengths_only),
    DOOR_TEST(test_find__the_bitmap_is_what_brute_force_says),
    DOOR_TEST(test_find__a_miss_says_why),
    DOOR_TEST(test_find__another_identity_is_named_by_the_field_that_differs),
    DOOR_TEST(test_find__a_damaged_page_is_missed_and_the_next_put_repairs_it),
    DOOR_TEST(test_find__what_is_dropped_is_not_found_any_more),
    DOOR_TEST(test_find__boundaries_in_several_chunks_of_4096_tokens),
};

int main(void)
{
    return door_run("find", tests, sizeof tests / sizeof tests[0]);
}
