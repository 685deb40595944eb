/*
 * batch_encode.c - a batch as the bytes of one record.
 *
 * The head has fixed fields; entries of pages are fixed too, since most of their bytes are random.
 * Spans, checkpoints and drops are varints: each reference to a page is told as its difference from
 * the one before (the first from first_page), each parent as the distance down from its child, so
 * that what lies close together costs one byte each.
 *
 * Invariants
 *   I1  The bytes depend on nothing but the batch; equal batches give equal records.
 *   I2  Sizing and writing go through the same fields in the same order (each entry has one
 *       function that gives its numbers), and the end of the writing is compared with the size.
 *
 * Threads: any; nothing allocates.
 */
#include "format/batch_private.h"

#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "format/bytes_private.h"

/* The varints of one entry, in order, before its references. */
typedef struct number_list {
    uint64_t value[8];
    size_t count;
} number_list;

/* `id` seen from `end`, which is above it: 0 for no id, else how far down. */
static uint64_t distance_below(uint64_t end, uint64_t id)
{
    return id == 0 ? 0 : end - id;
}

static number_list span_numbers(const batch *record, uint32_t i)
{
    const batch_span *span = &record->spans[i];

    return (number_list){.value = {distance_below(record->first_span + i, span->parent),
                                   span->tokens, span->namespace_index, span->page_count},
                         .count = 4};
}

static number_list checkpoint_numbers(const batch *record, uint32_t i)
{
    const batch_checkpoint *checkpoint = &record->checkpoints[i];
    const uint64_t span_end = record->first_span + record->span_count;
    const uint64_t checkpoint_end = record->first_checkpoint + record->checkpoint_count;

    return (number_list){.value = {distance_below(span_end, checkpoint->span),
                                   distance_below(record->first_checkpoint + i, checkpoint->parent),
                                   distance_below(checkpoint_end, checkpoint->companion),
                                   zigzag(checkpoint->created_s), checkpoint->tokens,
                                   checkpoint->draft_tokens,
                                   checkpoint->kind | (uint64_t)checkpoint->namespace_index << 2,
                                   checkpoint->page_count},
                         .count = 8};
}

static uint64_t numbers_size(const number_list *numbers)
{
    uint64_t size = 0;

    for (size_t i = 0; i < numbers->count; i++) {
        size += varint_size(numbers->value[i]);
    }
    return size;
}

static uint8_t *store_numbers(uint8_t *at, const number_list *numbers)
{
    for (size_t i = 0; i < numbers->count; i++) {
        at = store_varint(at, numbers->value[i]);
    }
    return at;
}

/* Ids as differences, each from the one before it; *previous goes along. */
static uint64_t ids_size(const uint64_t *ids, uint32_t count, uint64_t *previous)
{
    uint64_t size = 0;

    for (uint32_t i = 0; i < count; i++) {
        size += varint_size(zigzag((int64_t)(ids[i] - *previous)));
        *previous = ids[i];
    }
    return size;
}

static uint8_t *store_ids(uint8_t *at, const uint64_t *ids, uint32_t count, uint64_t *previous)
{
    for (uint32_t i = 0; i < count; i++) {
        at = store_varint(at, zigzag((int64_t)(ids[i] - *previous)));
        *previous = ids[i];
    }
    return at;
}

/* Where an item's page ids stand; never NULL plus something when there are none. */
static const uint64_t *references_at(const batch *record, uint32_t at)
{
    return record->references == NULL ? NULL : record->references + at;
}

uint64_t batch_encoded_size(const batch *record)
{
    uint64_t size = BATCH_HEAD_SIZE;
    uint64_t previous = record->first_page;

    if (!batch_counts_fit(record)) {
        return UINT64_MAX;
    }
    size += (uint64_t)record->namespace_count * 32 + (uint64_t)record->page_count * BATCH_PAGE_SIZE;
    for (uint32_t i = 0; i < record->span_count; i++) {
        const batch_span *span = &record->spans[i];
        const number_list numbers = span_numbers(record, i);

        size += numbers_size(&numbers) +
                ids_size(references_at(record, span->pages_at), span->page_count, &previous);
    }
    for (uint32_t i = 0; i < record->checkpoint_count; i++) {
        const batch_checkpoint *checkpoint = &record->checkpoints[i];
        const number_list numbers = checkpoint_numbers(record, i);

        size += 80 + numbers_size(&numbers) +
                ids_size(references_at(record, checkpoint->pages_at), checkpoint->page_count,
                         &previous);
    }
    previous = record->first_checkpoint;
    return size + ids_size(record->drops, record->drop_count, &previous);
}

/* How many references the items name, which is what a decoder will find. */
static uint32_t references_named(const batch *record)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < record->span_count; i++) {
        count += record->spans[i].page_count;
    }
    for (uint32_t i = 0; i < record->checkpoint_count; i++) {
        count += record->checkpoints[i].page_count;
    }
    return (uint32_t)count; /* Each is a byte or more of a record of at most 1 MiB. */
}

static void store_head(uint8_t *out, const batch *record, uint32_t size)
{
    memcpy(out + AT_MAGIC, batch_magic, sizeof batch_magic);
    store_u32(out + AT_VERSION, BATCH_VERSION);
    store_u32(out + AT_SIZE, size);
    memcpy(out + AT_STORE, record->store.bytes, sizeof record->store.bytes);
    store_u64(out + AT_SEQUENCE, record->sequence);
    store_u32(out + AT_SEGMENT, record->place.segment);
    store_u32(out + AT_BLOCK, record->place.block);
    store_u32(out + AT_BLOCKS, record->place.blocks);
    store_u32(out + AT_REFERENCE_COUNT, references_named(record));
    store_u64(out + AT_FIRST_PAGE, record->first_page);
    store_u64(out + AT_FIRST_SPAN, record->first_span);
    store_u64(out + AT_FIRST_CHECKPOINT, record->first_checkpoint);
    store_u32(out + AT_NAMESPACE_COUNT, record->namespace_count);
    store_u32(out + AT_PAGE_COUNT, record->page_count);
    store_u32(out + AT_SPAN_COUNT, record->span_count);
    store_u32(out + AT_CHECKPOINT_COUNT, record->checkpoint_count);
    store_u32(out + AT_DROP_COUNT, record->drop_count);
}

static uint8_t *store_page(uint8_t *at, const batch_page *page)
{
    memcpy(at + PAGE_KEY, page->key, sizeof page->key);
    memcpy(at + PAGE_DIGEST, page->digest, sizeof page->digest);
    store_u32(at + PAGE_SEGMENT, page->place.segment);
    store_u32(at + PAGE_SLOT, page->place.slot);
    store_u32(at + PAGE_SIZE_FIELD, page->size);
    store_u32(at + PAGE_TOKENS, page->tokens);
    store_u16(at + PAGE_RANK, page->rank);
    store_u16(at + PAGE_PART, page->part);
    at[PAGE_GROUP] = page->group;
    at[PAGE_NAMESPACE] = page->namespace_index;
    at[PAGE_IS_PARTIAL] = page->is_partial;
    at[PAGE_EXACT] = page->is_exact;
    return at + BATCH_PAGE_SIZE;
}

static uint8_t *store_checkpoint(uint8_t *at, const batch *record, uint32_t i, uint64_t *previous)
{
    const batch_checkpoint *checkpoint = &record->checkpoints[i];
    const number_list numbers = checkpoint_numbers(record, i);

    memcpy(at, checkpoint->id, 32);
    memcpy(at + 32, checkpoint->token_digest, 32);
    store_u64(at + 64, checkpoint->bucket);
    store_u64(at + 72, checkpoint->tail_hash);
    at = store_numbers(at + 80, &numbers);
    return store_ids(at, references_at(record, checkpoint->pages_at), checkpoint->page_count,
                     previous);
}

static uint8_t *store_items(uint8_t *at, const batch *record)
{
    uint64_t previous = record->first_page;

    if (record->namespace_count > 0) {
        memcpy(at, record->namespaces, (size_t)record->namespace_count * 32);
        at += (size_t)record->namespace_count * 32;
    }
    for (uint32_t i = 0; i < record->page_count; i++) {
        at = store_page(at, &record->pages[i]);
    }
    for (uint32_t i = 0; i < record->span_count; i++) {
        const batch_span *span = &record->spans[i];
        const number_list numbers = span_numbers(record, i);

        at = store_numbers(at, &numbers);
        at = store_ids(at, references_at(record, span->pages_at), span->page_count, &previous);
    }
    for (uint32_t i = 0; i < record->checkpoint_count; i++) {
        at = store_checkpoint(at, record, i, &previous);
    }
    previous = record->first_checkpoint;
    return store_ids(at, record->drops, record->drop_count, &previous);
}

void batch_encode(const batch *record, void *out, size_t out_size, size_t *out_used)
{
    const uint64_t size = batch_encoded_size(record);
    uint8_t *bytes = out;
    const uint8_t *end;
    page_digest digest;

    KVARVE_ASSERT(batch_fault(record) == NULL);
    KVARVE_ASSERT(size <= BATCH_BYTES_MAX);
    KVARVE_ASSERT(kvarve_divide_up(size, BATCH_BLOCK) == record->place.blocks);
    KVARVE_ASSERT(out_size >= kvarve_round_up(size, BATCH_BLOCK));

    memset(bytes, 0, (size_t)kvarve_round_up(size, BATCH_BLOCK));
    store_head(bytes, record, (uint32_t)size);
    end = store_items(bytes + BATCH_HEAD_SIZE, record);
    KVARVE_ASSERT(end == bytes + size); /* I2 */
    digest = batch_digest(bytes, (size_t)size);
    memcpy(bytes + AT_DIGEST, digest.bytes, sizeof digest.bytes);
    *out_used = (size_t)size;
}
