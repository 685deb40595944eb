/*
 * test_batch.c - batch records: what is encoded comes back, in the size that was promised.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "batch_sample.h"
#include "hash/hash.h"

static uint8_t record_bytes[BATCH_BYTES_MAX];
static uint8_t again_bytes[BATCH_BYTES_MAX];

static void assert_items_equal(const batch *a, const batch *b)
{
    for (uint32_t i = 0; i < a->page_count; i++) {
        assert_memory_equal(&a->pages[i], &b->pages[i], sizeof a->pages[i]);
    }
    for (uint32_t i = 0; i < a->span_count; i++) {
        const batch_span *x = &a->spans[i];
        const batch_span *y = &b->spans[i];

        assert_int_equal(x->parent, y->parent);
        assert_int_equal(x->tokens, y->tokens);
        assert_int_equal(x->namespace_index, y->namespace_index);
        assert_int_equal(x->page_count, y->page_count);
        assert_int_equal(x->pages_at, y->pages_at);
    }
    for (uint32_t i = 0; i < a->checkpoint_count; i++) {
        const batch_checkpoint *x = &a->checkpoints[i];
        const batch_checkpoint *y = &b->checkpoints[i];

        assert_memory_equal(x->id, y->id, sizeof x->id);
        assert_memory_equal(x->token_digest, y->token_digest, sizeof x->token_digest);
        assert_true(x->bucket == y->bucket && x->tail_hash == y->tail_hash);
        assert_true(x->span == y->span && x->parent == y->parent);
        assert_true(x->companion == y->companion && x->created_s == y->created_s);
        assert_true(x->tokens == y->tokens && x->draft_tokens == y->draft_tokens);
        assert_true(x->kind == y->kind && x->namespace_index == y->namespace_index);
        assert_true(x->page_count == y->page_count && x->pages_at == y->pages_at);
    }
}

static void assert_batches_equal(const batch *a, const batch *b)
{
    assert_memory_equal(&a->store, &b->store, sizeof a->store);
    assert_true(a->sequence == b->sequence);
    assert_memory_equal(&a->place, &b->place, sizeof a->place);
    assert_true(a->first_page == b->first_page && a->first_span == b->first_span);
    assert_true(a->first_checkpoint == b->first_checkpoint);
    assert_int_equal(a->namespace_count, b->namespace_count);
    assert_int_equal(a->page_count, b->page_count);
    assert_int_equal(a->span_count, b->span_count);
    assert_int_equal(a->checkpoint_count, b->checkpoint_count);
    assert_int_equal(a->drop_count, b->drop_count);
    assert_int_equal(a->reference_count, b->reference_count);
    if (a->namespace_count > 0) {
        assert_memory_equal(a->namespaces, b->namespaces, (size_t)a->namespace_count * 32);
    }
    assert_items_equal(a, b);
    if (a->drop_count > 0) {
        assert_memory_equal(a->drops, b->drops, a->drop_count * sizeof *a->drops);
    }
    if (a->reference_count > 0) {
        assert_memory_equal(a->references, b->references,
                            a->reference_count * sizeof *a->references);
    }
}

/* Encode, decode, compare, encode again, compare the bytes. */
static void check_round_trip(const batch *record)
{
    batch decoded;
    size_t used = 0;
    size_t used_again = 0;
    kvarve_error err;

    batch_encode(record, record_bytes, sizeof record_bytes, &used);
    assert_int_equal(used, batch_encoded_size(record));
    assert_int_equal(batch_claimed_size(record_bytes, 64), used);
    assert_int_equal(batch_decode(record_bytes, used, &decoded, &err), KVARVE_OK);
    assert_batches_equal(record, &decoded);
    batch_encode(&decoded, again_bytes, sizeof again_bytes, &used_again);
    assert_int_equal(used, used_again);
    assert_memory_equal(record_bytes, again_bytes, (size_t)record->place.blocks * BATCH_BLOCK);
    batch_deinit(&decoded);
    assert_int_equal(decoded.page_count, 0);
    assert_null(decoded.pages);
}

static void test_batch__what_is_encoded_comes_back(void **unused)
{
    (void)unused;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15);
        batch record = sample_batch(&state, (uint32_t)(seed % 40));

        check_round_trip(&record);
        batch_deinit(&record);
    }
    assert_int_equal(kvarve_allocated_blocks(), 0);
}

static void test_batch__padding_may_follow_or_not(void **unused)
{
    uint64_t state = 7;
    batch record = sample_batch(&state, 20);
    batch decoded;
    size_t used = 0;
    const size_t padded = (size_t)record.place.blocks * BATCH_BLOCK;

    (void)unused;
    batch_encode(&record, record_bytes, sizeof record_bytes, &used);
    assert_int_equal(batch_decode(record_bytes, padded, &decoded, NULL), KVARVE_OK);
    batch_deinit(&decoded);
    assert_int_equal(batch_decode(record_bytes, used + 1, &decoded, NULL), KVARVE_OK);
    batch_deinit(&decoded);
    batch_deinit(&record);
}

static void test_batch__an_empty_batch_is_a_head(void **unused)
{
    const batch record = {.sequence = 1,
                          .place = {.segment = 1, .block = 1, .blocks = 1},
                          .first_page = 1,
                          .first_span = 1,
                          .first_checkpoint = 1};

    (void)unused;
    assert_int_equal(batch_encoded_size(&record), 120);
    check_round_trip(&record);
}

/* One page, one span, one checkpoint: what a long-lived store adds for one page. */
static batch small_batch(uint64_t first_id, batch_page *page, batch_span *span,
                         batch_checkpoint *checkpoint, uint64_t references[2])
{
    references[0] = first_id;
    references[1] = first_id;
    page->place = (page_place){.segment = 1, .slot = 0};
    page->size = 65536;
    span->parent = first_id - 1;
    span->tokens = 200000;
    span->page_count = 1;
    checkpoint->span = first_id;
    checkpoint->parent = first_id - 1;
    checkpoint->created_s = 1900000000;
    checkpoint->tokens = 200000;
    checkpoint->draft_tokens = 200000;
    checkpoint->page_count = 1;
    checkpoint->pages_at = 1;
    return (batch){.sequence = 99,
                   .place = {.segment = 3, .block = 9, .blocks = 1},
                   .first_page = first_id,
                   .first_span = first_id,
                   .first_checkpoint = first_id,
                   .namespace_count = 1,
                   .page_count = 1,
                   .reference_count = 2,
                   .references = references,
                   .pages = page,
                   .spans = span,
                   .checkpoints = checkpoint};
}

static void test_batch__entries_are_small(void **unused)
{
    uint8_t namespaces[1][32] = {{0}};
    batch_page page = {0};
    batch_span span = {0};
    batch_checkpoint checkpoint = {0};
    uint64_t references[2];
    uint64_t size_before;
    batch record = small_batch(1000000, &page, &span, &checkpoint, references);

    (void)unused;
    record.namespaces = namespaces;
    size_before = batch_encoded_size(&record);
    assert_int_equal(size_before, 120 + 32 + 72);
    record.span_count = 1;
    assert_true(batch_encoded_size(&record) - size_before <= 12);
    size_before = batch_encoded_size(&record);
    record.checkpoint_count = 1;
    assert_true(batch_encoded_size(&record) - size_before <= 130);
}

static void test_batch__numbers_at_their_ends_come_back(void **unused)
{
    const uint64_t first_id = UINT64_C(1) << 62;
    uint8_t namespaces[1][32] = {{0}};
    uint64_t references[2];
    uint64_t drops[2] = {1, first_id};
    batch_page page = {.rank = RANK_ALL, .part = UINT16_MAX, .group = 63, .is_partial = 1};
    batch_span span = {0};
    batch_checkpoint checkpoint = {.kind = 2};
    batch record = small_batch(first_id, &page, &span, &checkpoint, references);

    (void)unused;
    record.namespaces = namespaces;
    record.drops = drops;
    record.drop_count = 2;
    record.span_count = 1;
    record.checkpoint_count = 1;
    record.sequence = UINT64_MAX;
    record.place.segment = UINT32_MAX;
    page.size = UINT32_C(1) << 30;
    page.place = (page_place){.segment = UINT32_MAX, .slot = UINT32_MAX};
    span.parent = 1;
    references[1] = 1;
    checkpoint.created_s = INT64_MIN;
    check_round_trip(&record);
    checkpoint.created_s = INT64_MAX;
    checkpoint.tokens = UINT32_MAX;
    check_round_trip(&record);
}

static void test_batch__too_many_items_are_said_to_be_too_large(void **unused)
{
    const batch record = {.first_page = 1, .page_count = BATCH_ITEMS_MAX + 1};
    const batch large = {.first_page = 1, .page_count = 14562}; /* 72 bytes each: over 1 MiB */

    (void)unused;
    assert_true(batch_encoded_size(&record) > BATCH_BYTES_MAX);
    assert_true(batch_encoded_size(&large) > BATCH_BYTES_MAX);
}

/* The bytes of version 1: a change here is a change of the format. */
static void test_batch__version_1_has_these_bytes(void **unused)
{
    uint64_t state = 20260101;
    batch record = sample_batch(&state, 30);
    size_t used = 0;
    page_digest digest;
    char text[33];

    (void)unused;
    batch_encode(&record, record_bytes, sizeof record_bytes, &used);
    digest = page_digest_of(record_bytes, used);
    hex_encode(text, digest.bytes, sizeof digest.bytes);
    assert_string_equal(text, "2d68275ae5e8e3fc36a819feb801cdda");
    batch_deinit(&record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch__what_is_encoded_comes_back),
        cmocka_unit_test(test_batch__padding_may_follow_or_not),
        cmocka_unit_test(test_batch__an_empty_batch_is_a_head),
        cmocka_unit_test(test_batch__entries_are_small),
        cmocka_unit_test(test_batch__numbers_at_their_ends_come_back),
        cmocka_unit_test(test_batch__too_many_items_are_said_to_be_too_large),
        cmocka_unit_test(test_batch__version_1_has_these_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
