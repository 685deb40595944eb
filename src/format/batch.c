/*
 * batch.c - what the encoder and the decoder of batch records share: the digest, and the facts that
 * hold of every batch.
 *
 * Invariant
 *   I1  Both sides ask the same batch_fault, so the decoder accepts nothing that the encoder would
 *       not have written.
 *
 * Threads: any; nothing allocates.
 */
#include "format/batch_private.h"

#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"

const uint8_t batch_magic[8] = {'k', 'v', 'b', 'a', 't', 'c', 'h', '\n'};

page_digest batch_digest(const uint8_t *record, size_t size)
{
    static const uint8_t zeroes[sizeof(page_digest)];
    page_digest_state state;

    page_digest_begin(&state);
    page_digest_update(&state, record, AT_DIGEST);
    page_digest_update(&state, zeroes, sizeof zeroes);
    page_digest_update(&state, record + AT_VERSION, size - AT_VERSION);
    return page_digest_end(&state);
}

static const char *page_fault(const batch *record, const batch_page *page)
{
    if (page->place.segment == 0) {
        return "a page lies in no segment";
    }
    if (page->size == 0 || page->size > BATCH_PAGE_BYTES) {
        return "a page's size is out of range";
    }
    if (page->rank >= FORMAT_RANKS_MAX && page->rank != RANK_ALL) {
        return "a page's rank is out of range";
    }
    if (page->group >= FORMAT_GROUPS_MAX) {
        return "a page's group is out of range";
    }
    if (page->namespace_index >= record->namespace_count) {
        return "a page's namespace is not named";
    }
    if (page->is_partial > 1 || page->is_exact > 1) {
        return "a page's flags are out of range";
    }
    return NULL;
}

static const char *span_fault(const batch *record, const batch_span *span, uint64_t id)
{
    if (span->parent >= id) {
        return "a span's parent is not below it";
    }
    if (span->page_count == 0) {
        return "a span is without a page";
    }
    if (span->namespace_index >= record->namespace_count) {
        return "a span's namespace is not named";
    }
    return NULL;
}

static const char *checkpoint_fault(const batch *record, const batch_checkpoint *checkpoint,
                                    uint64_t id)
{
    if (checkpoint->span >= record->first_span + record->span_count) {
        return "a checkpoint's span does not exist";
    }
    if (checkpoint->parent >= id) {
        return "a checkpoint's parent is not older";
    }
    if (checkpoint->companion == id ||
        checkpoint->companion >= record->first_checkpoint + record->checkpoint_count) {
        return "a checkpoint's companion does not exist";
    }
    if (checkpoint->kind > 2) {
        return "a checkpoint's kind is unknown";
    }
    if (checkpoint->namespace_index >= record->namespace_count) {
        return "a checkpoint's namespace is not named";
    }
    return NULL;
}

/* The pages named by an item are within the references. */
static bool references_fit(const batch *record, uint32_t pages_at, uint32_t page_count)
{
    return (uint64_t)pages_at + page_count <= record->reference_count;
}

static const char *items_fault(const batch *record)
{
    const char *fault = NULL;

    for (uint32_t i = 0; i < record->page_count && fault == NULL; i++) {
        fault = page_fault(record, &record->pages[i]);
    }
    for (uint32_t i = 0; i < record->span_count && fault == NULL; i++) {
        const batch_span *span = &record->spans[i];

        fault = references_fit(record, span->pages_at, span->page_count)
                    ? span_fault(record, span, record->first_span + i)
                    : "a span's pages are not among the references";
    }
    for (uint32_t i = 0; i < record->checkpoint_count && fault == NULL; i++) {
        const batch_checkpoint *checkpoint = &record->checkpoints[i];

        fault = references_fit(record, checkpoint->pages_at, checkpoint->page_count)
                    ? checkpoint_fault(record, checkpoint, record->first_checkpoint + i)
                    : "a checkpoint's pages are not among the references";
    }
    return fault;
}

static const char *numbers_fault(const batch *record)
{
    for (uint32_t i = 0; i < record->reference_count; i++) {
        if (record->references[i] == 0 ||
            record->references[i] >= record->first_page + record->page_count) {
            return "a page that is referred to does not exist";
        }
    }
    for (uint32_t i = 0; i < record->drop_count; i++) {
        if (record->drops[i] == 0 ||
            record->drops[i] >= record->first_checkpoint + record->checkpoint_count) {
            return "a checkpoint that is dropped does not exist";
        }
    }
    return NULL;
}

static bool is_id(uint64_t id)
{
    return id >= 1 && id <= BATCH_ID_MAX;
}

bool batch_counts_fit(const batch *record)
{
    return record->namespace_count <= BATCH_NAMESPACES_MAX &&
           record->page_count <= BATCH_ITEMS_MAX && record->span_count <= BATCH_ITEMS_MAX &&
           record->checkpoint_count <= BATCH_ITEMS_MAX && record->drop_count <= BATCH_ITEMS_MAX &&
           record->reference_count <= BATCH_BYTES_MAX;
}

const char *batch_fault(const batch *record)
{
    const char *fault = NULL;

    if (record->sequence == 0) {
        return "the sequence is zero";
    }
    if (record->place.segment == 0 || record->place.block == 0 || record->place.blocks == 0 ||
        record->place.blocks > BATCH_BYTES_MAX / BATCH_BLOCK) {
        return "its own place is out of range";
    }
    if (!is_id(record->first_page) || !is_id(record->first_span) ||
        !is_id(record->first_checkpoint)) {
        return "a first id is out of range";
    }
    if (!batch_counts_fit(record)) {
        return "a count is over its limit";
    }
    fault = items_fault(record);
    return fault != NULL ? fault : numbers_fault(record);
}

void batch_deinit(batch *record)
{
    kvarve_release(record->namespaces);
    kvarve_release(record->pages);
    kvarve_release(record->spans);
    kvarve_release(record->checkpoints);
    kvarve_release(record->drops);
    kvarve_release(record->references);
    memset(record, 0, sizeof *record);
}
