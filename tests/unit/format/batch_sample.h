/*
 * batch_sample.h - batches made from a seed, for the tests of the format.
 *
 * Everything is within the limits, with small and large ids, old and new references. The arrays are
 * the caller's: batch_deinit.
 */
#ifndef KVARVE_TESTS_UNIT_FORMAT_BATCH_SAMPLE_H
#define KVARVE_TESTS_UNIT_FORMAT_BATCH_SAMPLE_H

#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "format/batch.h"

/* xorshift64*: enough for a test, and the same everywhere. `state` is not zero. */
static inline uint64_t sample_next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

/* 0 .. end - 1 */
static inline uint64_t sample_below(uint64_t *state, uint64_t end)
{
    return sample_next(state) % end;
}

static inline void sample_bytes(uint64_t *state, void *out, size_t size)
{
    uint8_t *bytes = out;

    for (size_t i = 0; i < size; i++) {
        bytes[i] = (uint8_t)(sample_next(state) >> 32);
    }
}

/* An id in 1 .. end - 1 or, now and then, none (0); most are near the end. */
static inline uint64_t sample_older(uint64_t *state, uint64_t end)
{
    const uint64_t near = kvarve_min_u64(end - 1, 300);

    if (end == 1 || sample_below(state, 5) == 0) {
        return 0;
    }
    return sample_below(state, 4) == 0 ? 1 + sample_below(state, end - 1)
                                       : end - 1 - sample_below(state, near);
}

static inline void sample_page(uint64_t *state, const batch *record, batch_page *page)
{
    sample_bytes(state, page->key, sizeof page->key);
    sample_bytes(state, page->digest, sizeof page->digest);
    page->place.segment = 1 + (uint32_t)sample_below(state, UINT32_MAX);
    page->place.slot = (uint32_t)sample_next(state);
    page->size = 1 + (uint32_t)sample_below(state, UINT64_C(1) << 30);
    page->tokens = (uint32_t)sample_next(state);
    page->rank = sample_below(state, 3) == 0 ? (uint16_t)RANK_ALL
                                             : (uint16_t)sample_below(state, FORMAT_RANKS_MAX);
    page->part = (uint16_t)sample_next(state);
    page->group = (uint8_t)sample_below(state, FORMAT_GROUPS_MAX);
    page->namespace_index = (uint8_t)sample_below(state, record->namespace_count);
    page->is_partial = (uint8_t)sample_below(state, 2);
    page->is_exact = (uint8_t)sample_below(state, 2);
}

/* Fill `count` references from *at on; returns where they begin. */
static inline uint32_t sample_references(uint64_t *state, batch *record, uint32_t count)
{
    const uint32_t at = record->reference_count;
    const uint64_t end = record->first_page + record->page_count;

    for (uint32_t i = 0; i < count; i++) {
        const uint64_t id = sample_older(state, end);

        record->references[record->reference_count++] = id == 0 ? 1 : id;
    }
    return at;
}

static inline void sample_span(uint64_t *state, batch *record, uint32_t i)
{
    batch_span *span = &record->spans[i];

    span->parent = sample_older(state, record->first_span + i);
    span->tokens = (uint32_t)sample_next(state);
    span->namespace_index = (uint8_t)sample_below(state, record->namespace_count);
    span->page_count = 1 + (uint32_t)sample_below(state, 8);
    span->pages_at = sample_references(state, record, span->page_count);
}

static inline void sample_checkpoint(uint64_t *state, batch *record, uint32_t i)
{
    batch_checkpoint *checkpoint = &record->checkpoints[i];
    const uint64_t end = record->first_checkpoint + record->checkpoint_count;

    sample_bytes(state, checkpoint->id, sizeof checkpoint->id);
    sample_bytes(state, checkpoint->token_digest, sizeof checkpoint->token_digest);
    checkpoint->bucket = sample_next(state);
    checkpoint->tail_hash = sample_next(state);
    checkpoint->span = sample_older(state, record->first_span + record->span_count);
    checkpoint->parent = sample_older(state, record->first_checkpoint + i);
    checkpoint->companion = sample_older(state, end);
    if (checkpoint->companion == record->first_checkpoint + i) {
        checkpoint->companion = 0;
    }
    checkpoint->created_s = (int64_t)sample_next(state) >> sample_below(state, 63);
    checkpoint->tokens = (uint32_t)sample_next(state);
    checkpoint->draft_tokens = (uint32_t)sample_below(state, (uint64_t)checkpoint->tokens + 1);
    checkpoint->kind = (uint8_t)sample_below(state, 3);
    checkpoint->namespace_index = (uint8_t)sample_below(state, record->namespace_count);
    checkpoint->page_count = (uint32_t)sample_below(state, 8);
    checkpoint->pages_at = sample_references(state, record, checkpoint->page_count);
}

static inline uint64_t sample_first_id(uint64_t *state)
{
    return 1 + (sample_next(state) >> (2 + sample_below(state, 62)));
}

static inline void *sample_array(size_t count, size_t size)
{
    return kvarve_allocate_array(count + 1, size);
}

/* A batch of at most `items` of everything; a few are empty altogether. */
static inline batch sample_batch(uint64_t *state, uint32_t items)
{
    batch record = {0};

    sample_bytes(state, record.store.bytes, sizeof record.store.bytes);
    record.sequence = 1 + (sample_next(state) >> 1);
    record.place.segment = 1 + (uint32_t)sample_below(state, UINT32_MAX);
    record.place.block = 1 + (uint32_t)sample_below(state, 65535);
    record.first_page = sample_first_id(state);
    record.first_span = sample_first_id(state);
    record.first_checkpoint = sample_first_id(state);
    record.namespace_count = 1 + (uint32_t)sample_below(state, 3);
    record.page_count = (uint32_t)sample_below(state, (uint64_t)items + 1);
    if (record.first_page == 1 && record.page_count == 0) {
        record.page_count = 1; /* There is always a page to refer to. */
    }
    record.span_count = (uint32_t)sample_below(state, (uint64_t)items + 1);
    record.checkpoint_count = (uint32_t)sample_below(state, (uint64_t)items + 1);
    record.drop_count = (uint32_t)sample_below(state, (uint64_t)items + 1);
    record.namespaces = sample_array(record.namespace_count, sizeof *record.namespaces);
    record.pages = sample_array(record.page_count, sizeof *record.pages);
    record.spans = sample_array(record.span_count, sizeof *record.spans);
    record.checkpoints = sample_array(record.checkpoint_count, sizeof *record.checkpoints);
    record.drops = sample_array(record.drop_count, sizeof *record.drops);
    record.references = sample_array((size_t)items * 16, sizeof *record.references);
    sample_bytes(state, record.namespaces, (size_t)record.namespace_count * 32);
    for (uint32_t i = 0; i < record.page_count; i++) {
        sample_page(state, &record, &record.pages[i]);
    }
    for (uint32_t i = 0; i < record.span_count; i++) {
        sample_span(state, &record, i);
    }
    for (uint32_t i = 0; i < record.checkpoint_count; i++) {
        sample_checkpoint(state, &record, i);
    }
    for (uint32_t i = 0; i < record.drop_count; i++) {
        const uint64_t end = record.first_checkpoint + record.checkpoint_count;
        const uint64_t number = sample_older(state, end);

        record.drops[i] = number == 0 ? end - 1 : number;
        if (record.drops[i] == 0) { /* There is no checkpoint that could be dropped. */
            record.drop_count = 0;
        }
    }
    record.place.blocks = (uint32_t)kvarve_divide_up(batch_encoded_size(&record), BATCH_BLOCK);
    return record;
}

#endif
