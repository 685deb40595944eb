/*
 * test_batch_damage.c - batch records that are damaged or made by somebody else are refused, in
 * bounded memory.
 *
 * Method  Damage: every byte of a record flipped in turn, and every length it could be cut to.
 *         Malice: a field is set to a wrong value and the digest made right again, so that only the
 *         check of that field can refuse it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/assert.h"
#include "batch_sample.h"
#include "format/batch_private.h"
#include "format/bytes_private.h"

static uint8_t record_bytes[BATCH_BYTES_MAX];
static uint8_t exact_bytes[BATCH_BYTES_MAX];

/* Decode from a heap block of exactly `size` bytes, so that a read past its end is seen. */
static kvarve_status decode_exactly(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = kvarve_allocate(size + 1);
    uint8_t *end;
    batch decoded;
    kvarve_status status;

    assert_non_null(copy);
    end = kvarve_reallocate(copy, size == 0 ? 1 : size);
    assert_non_null(end);
    if (size > 0) {
        memcpy(end, bytes, size);
    }
    status = batch_decode(end, size, &decoded, NULL);
    if (status == KVARVE_OK) {
        batch_deinit(&decoded);
    }
    kvarve_release(end);
    return status;
}

static size_t encode_sample(uint64_t seed, uint32_t items)
{
    uint64_t state = seed;
    batch record = sample_batch(&state, items);
    size_t used = 0;

    batch_encode(&record, record_bytes, sizeof record_bytes, &used);
    batch_deinit(&record);
    return used;
}

static void test_damage__every_flipped_byte_is_refused(void **unused)
{
    const size_t used = encode_sample(42, 12);
    const size_t padded = (size_t)kvarve_round_up(used, BATCH_BLOCK);

    (void)unused;
    assert_int_equal(decode_exactly(record_bytes, padded), KVARVE_OK);
    for (size_t i = 0; i < padded; i++) {
        const kvarve_status wanted = i < 8 ? KVARVE_MISS : KVARVE_CORRUPT;

        record_bytes[i] ^= (uint8_t)(1 + i % 255);
        assert_int_equal(decode_exactly(record_bytes, padded), wanted);
        record_bytes[i] ^= (uint8_t)(1 + i % 255);
    }
}

static void test_damage__every_truncation_is_refused(void **unused)
{
    const size_t used = encode_sample(43, 12);

    (void)unused;
    for (size_t size = 0; size < used; size++) {
        const kvarve_status wanted = size < 8 ? KVARVE_MISS : KVARVE_CORRUPT;

        assert_int_equal(decode_exactly(record_bytes, size), wanted);
    }
    assert_int_equal(decode_exactly(record_bytes, used), KVARVE_OK);
}

/* Make the digest right again, of a record of `size` bytes. */
static void seal(uint8_t *bytes, size_t size)
{
    const page_digest digest = batch_digest(bytes, size);

    memcpy(bytes + AT_DIGEST, digest.bytes, sizeof digest.bytes);
}

static kvarve_status decode_sealed(uint8_t *bytes, size_t size)
{
    seal(bytes, size);
    return decode_exactly(bytes, size);
}

/* Each 32-bit field of the head set to values that it cannot have. */
static void test_damage__head_fields_out_of_range_are_refused(void **unused)
{
    static const struct {
        int at;
        uint32_t value;
    } wrong[] = {
        {AT_VERSION, 0},
        {AT_SEGMENT, 0},
        {AT_BLOCK, 0},
        {AT_BLOCKS, 0},
        {AT_BLOCKS, 257},
        {AT_NAMESPACE_COUNT, 256},
        {AT_NAMESPACE_COUNT, UINT32_MAX},
        {AT_PAGE_COUNT, UINT32_MAX},
        {AT_SPAN_COUNT, UINT32_MAX},
        {AT_CHECKPOINT_COUNT, UINT32_MAX},
        {AT_DROP_COUNT, UINT32_MAX},
        {AT_REFERENCE_COUNT, UINT32_MAX},
        {AT_RESERVED, 1},
        {AT_FIRST_PAGE + 4, UINT32_MAX},
        {AT_FIRST_SPAN + 4, UINT32_MAX},
        {AT_FIRST_CHECKPOINT + 4, UINT32_MAX},
    };
    const size_t used = encode_sample(44, 12);

    (void)unused;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        memcpy(exact_bytes, record_bytes, used);
        store_u32(exact_bytes + wrong[i].at, wrong[i].value);
        assert_int_equal(decode_sealed(exact_bytes, used), KVARVE_CORRUPT);
    }
    for (int at = AT_SEQUENCE; at <= AT_FIRST_CHECKPOINT; at += 8) {
        if (at == AT_SEQUENCE || at >= AT_FIRST_PAGE) {
            memcpy(exact_bytes, record_bytes, used);
            store_u64(exact_bytes + at, 0);
            assert_int_equal(decode_sealed(exact_bytes, used), KVARVE_CORRUPT);
        }
    }
}

/* How often the record of `used` bytes is refused with this count one less and one more. */
static uint64_t count_refusals(size_t used, int count_at)
{
    const uint32_t count = load_u32(record_bytes + count_at);
    uint64_t refused = 0;

    for (uint32_t i = 0; i < 2; i++) {
        memcpy(exact_bytes, record_bytes, used);
        store_u32(exact_bytes + count_at, count - 1 + 2 * i);
        refused += decode_sealed(exact_bytes, used) == KVARVE_CORRUPT;
    }
    return refused;
}

static void test_damage__every_count_off_by_one_is_refused(void **unused)
{
    static const int counts[] = {AT_NAMESPACE_COUNT,  AT_PAGE_COUNT, AT_SPAN_COUNT,
                                 AT_CHECKPOINT_COUNT, AT_DROP_COUNT, AT_REFERENCE_COUNT};
    uint64_t refused = 0;

    (void)unused;
    for (uint64_t seed = 1; seed < 200; seed++) {
        const size_t used = encode_sample(seed * 77, 12);

        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            refused += count_refusals(used, counts[i]);
        }
    }
    /* A shifted reading may make sense by chance, but not more than now and then. */
    assert_true(refused >= 199 * 12 - 8);
}

static void test_damage__a_newer_version_is_named_as_such(void **unused)
{
    const size_t used = encode_sample(45, 3);
    batch decoded;
    kvarve_error err;

    (void)unused;
    store_u32(record_bytes + AT_VERSION, 2);
    assert_int_equal(decode_exactly(record_bytes, used), KVARVE_CORRUPT);
    seal(record_bytes, used);
    assert_int_equal(batch_decode(record_bytes, used, &decoded, &err), KVARVE_UNSUPPORTED);
    assert_string_equal(err.text, "batch record: version 2, known up to 1");
}

/* One batch with one of everything, whose items a test breaks. */
typedef struct one_each {
    batch record;
    uint8_t namespaces[2][32];
    batch_page page;
    batch_span spans[2];
    batch_checkpoint checkpoints[2];
    uint64_t drops[1];
    uint64_t references[4];
} one_each;

static void one_each_init(one_each *sample)
{
    memset(sample, 0, sizeof *sample);
    sample->page = (batch_page){.place = {.segment = 1}, .size = 4096};
    for (uint32_t i = 0; i < 2; i++) {
        sample->spans[i] = (batch_span){.parent = 9 + i, .page_count = 1, .pages_at = i};
        sample->checkpoints[i] =
            (batch_checkpoint){.span = 11, .parent = 9, .page_count = 1, .pages_at = 2 + i};
    }
    for (int i = 0; i < 4; i++) {
        sample->references[i] = 10;
    }
    sample->drops[0] = 3;
    sample->record = (batch){.sequence = 1,
                             .place = {.segment = 1, .block = 1, .blocks = 1},
                             .first_page = 10,
                             .first_span = 10,
                             .first_checkpoint = 10,
                             .namespace_count = 2,
                             .page_count = 1,
                             .span_count = 2,
                             .checkpoint_count = 2,
                             .drop_count = 1,
                             .reference_count = 4,
                             .namespaces = sample->namespaces,
                             .pages = &sample->page,
                             .spans = sample->spans,
                             .checkpoints = sample->checkpoints,
                             .drops = sample->drops,
                             .references = sample->references};
}

/* What the entries are told as when nobody checks them: see batch_fault, which both sides ask. */
static void expect_fault(const one_each *sample, const char *fault)
{
    const char *found = batch_fault(&sample->record);

    if (fault == NULL) {
        assert_null(found);
    } else {
        assert_non_null(found);
        assert_string_equal(found, fault);
    }
}

#define EXPECT_FAULT(change, fault) (one_each_init(&sample), (change), expect_fault(&sample, fault))

static void test_damage__facts_that_do_not_hold_are_named(void **unused)
{
    one_each sample;

    (void)unused;
    EXPECT_FAULT((void)0, NULL);
    EXPECT_FAULT(sample.page.place.segment = 0, "a page lies in no segment");
    EXPECT_FAULT(sample.page.size = 0, "a page's size is out of range");
    EXPECT_FAULT(sample.page.size = (1u << 30) + 1, "a page's size is out of range");
    EXPECT_FAULT(sample.page.rank = 1024, "a page's rank is out of range");
    EXPECT_FAULT(sample.page.rank = 1023, NULL);
    EXPECT_FAULT(sample.page.rank = RANK_ALL, NULL);
    EXPECT_FAULT(sample.page.group = 64, "a page's group is out of range");
    EXPECT_FAULT(sample.page.namespace_index = 2, "a page's namespace is not named");
    EXPECT_FAULT(sample.page.is_partial = 2, "a page's flags are out of range");
    EXPECT_FAULT(sample.page.is_exact = 2, "a page's flags are out of range");
    EXPECT_FAULT(sample.spans[1].parent = 11, "a span's parent is not below it");
    EXPECT_FAULT(sample.spans[1].page_count = 0, "a span is without a page");
    EXPECT_FAULT(sample.spans[0].namespace_index = 2, "a span's namespace is not named");
    EXPECT_FAULT(sample.spans[1].pages_at = 4, "a span's pages are not among the references");
    EXPECT_FAULT(sample.checkpoints[0].span = 12, "a checkpoint's span does not exist");
    EXPECT_FAULT(sample.checkpoints[0].parent = 10, "a checkpoint's parent is not older");
    EXPECT_FAULT(sample.checkpoints[1].parent = 10, NULL);
    EXPECT_FAULT(sample.checkpoints[0].companion = 10, "a checkpoint's companion does not exist");
    EXPECT_FAULT(sample.checkpoints[0].companion = 12, "a checkpoint's companion does not exist");
    EXPECT_FAULT(sample.checkpoints[0].companion = 11, NULL);
    EXPECT_FAULT(sample.checkpoints[0].kind = 3, "a checkpoint's kind is unknown");
    EXPECT_FAULT(sample.checkpoints[1].namespace_index = 2,
                 "a checkpoint's namespace is not named");
    EXPECT_FAULT(sample.checkpoints[1].page_count = 2,
                 "a checkpoint's pages are not among the references");
    EXPECT_FAULT(sample.references[3] = 0, "a page that is referred to does not exist");
    EXPECT_FAULT(sample.references[3] = 11, "a page that is referred to does not exist");
    EXPECT_FAULT(sample.drops[0] = 0, "a checkpoint that is dropped does not exist");
    EXPECT_FAULT(sample.drops[0] = 12, "a checkpoint that is dropped does not exist");
}

/* Random edits under a right digest: whatever is accepted encodes to the very same bytes. */
static void test_damage__what_is_accepted_is_what_encode_writes(void **unused)
{
    uint64_t state = 99;
    uint64_t accepted = 0;
    uint64_t refused = 0;

    (void)unused;
    for (uint64_t round = 0; round < 40000; round++) {
        const size_t used = encode_sample(1 + round % 50, 6);
        const size_t at = BATCH_HEAD_SIZE + sample_below(&state, used - BATCH_HEAD_SIZE);
        size_t used_again = 0;
        batch decoded;

        record_bytes[at] = (uint8_t)sample_next(&state);
        seal(record_bytes, used);
        if (batch_decode(record_bytes, used, &decoded, NULL) != KVARVE_OK) {
            refused++;
            continue;
        }
        accepted++;
        batch_encode(&decoded, exact_bytes, sizeof exact_bytes, &used_again);
        assert_int_equal(used, used_again);
        assert_memory_equal(record_bytes, exact_bytes, used);
        batch_deinit(&decoded);
    }
    assert_true(accepted > 1000 && refused > 1000);
}

static void test_damage__varints_have_one_form(void **unused)
{
    static const struct {
        uint8_t bytes[11];
        size_t size;
        bool is_good;
        uint64_t value;
    } forms[] = {
        {{0x00}, 1, true, 0},
        {{0x7f}, 1, true, 127},
        {{0x80, 0x01}, 2, true, 128},
        {{0x80, 0x00}, 2, false, 0},
        {{0xff, 0x80, 0x00}, 3, false, 0},
        {{0x80}, 1, false, 0},
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 10, true, UINT64_MAX},
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}, 10, false, 0},
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x81, 0x00}, 11, false, 0},
    };

    (void)unused;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        reader in = {.at = forms[i].bytes, .end = forms[i].bytes + forms[i].size};
        const uint64_t value = read_varint(&in);

        assert_int_equal(in.is_bad, !forms[i].is_good);
        assert_true(value == forms[i].value);
    }
    for (int i = 0; i < 64; i++) {
        const int64_t value = (int64_t)(UINT64_C(0x9e3779b97f4a7c15) >> i);

        assert_true(unzigzag(zigzag(value)) == value && unzigzag(zigzag(-value)) == -value);
    }
    assert_true(unzigzag(zigzag(INT64_MIN)) == INT64_MIN);
}

/* Counts the largest single request and fails the one numbered `fails`. */
typedef struct failing {
    uint64_t fails;
    uint64_t seen;
} failing;

static int fail_at(void *context, uint64_t number)
{
    failing *plan = context;

    plan->seen = number + 1;
    return number != plan->fails;
}

static void test_damage__no_memory_is_said_and_nothing_leaks(void **unused)
{
    const size_t used = encode_sample(51, 12);
    failing plan = {.fails = 0, .seen = 0};
    uint64_t refused = 0;

    (void)unused;
    for (;; plan.fails++) {
        const uint64_t blocks = kvarve_allocated_blocks();
        batch decoded;
        kvarve_status status;

        kvarve_allocate_set_hook(fail_at, &plan);
        status = batch_decode(record_bytes, used, &decoded, NULL);
        kvarve_allocate_set_hook(NULL, NULL);
        if (status == KVARVE_OK) {
            batch_deinit(&decoded);
            break;
        }
        assert_int_equal(status, KVARVE_NO_MEMORY);
        assert_int_equal(kvarve_allocated_blocks(), blocks);
        refused++;
    }
    assert_int_equal(refused, 6);
}

static void test_damage__a_claim_is_believed_only_within_the_limits(void **unused)
{
    const size_t used = encode_sample(52, 3);

    (void)unused;
    assert_int_equal(batch_claimed_size(record_bytes, 64), used);
    assert_int_equal(batch_claimed_size(record_bytes, 63), 0);
    store_u32(record_bytes + AT_SIZE, BATCH_BYTES_MAX + 1);
    assert_int_equal(batch_claimed_size(record_bytes, 64), 0);
    store_u32(record_bytes + AT_SIZE, BATCH_HEAD_SIZE - 1);
    assert_int_equal(batch_claimed_size(record_bytes, 64), 0);
    store_u32(record_bytes + AT_SIZE, BATCH_BYTES_MAX);
    assert_int_equal(batch_claimed_size(record_bytes, 64), BATCH_BYTES_MAX);
    record_bytes[0] ^= 1;
    assert_int_equal(batch_claimed_size(record_bytes, 64), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damage__every_flipped_byte_is_refused),
        cmocka_unit_test(test_damage__every_truncation_is_refused),
        cmocka_unit_test(test_damage__head_fields_out_of_range_are_refused),
        cmocka_unit_test(test_damage__every_count_off_by_one_is_refused),
        cmocka_unit_test(test_damage__a_newer_version_is_named_as_such),
        cmocka_unit_test(test_damage__facts_that_do_not_hold_are_named),
        cmocka_unit_test(test_damage__what_is_accepted_is_what_encode_writes),
        cmocka_unit_test(test_damage__varints_have_one_form),
        cmocka_unit_test(test_damage__no_memory_is_said_and_nothing_leaks),
        cmocka_unit_test(test_damage__a_claim_is_believed_only_within_the_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
