/*
 * codec_verify.c - cut a slot file up, put it together again, and compare every byte.
 *
 * A writer is opened with what was parsed, the streams and sequence id of the file included, and
 * with an output that compares with the file instead of writing. Pages and endpoints go through it
 * exactly as they would on a later restore, and on the way to a visitor.
 *
 * Invariant: OK is answered only if the writer's file has the size of the original and each of its
 * bytes was compared once.
 * Threads: one per slot. Ownership: everything is released before the answer.
 */
#include "llama/codec.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fail.h"
#include "llama/codec_private.h"

/* Pages of one batch; more only when a single page is larger. */
#define BATCH_BYTES UINT64_C(16777216)
#define BATCH_PAGES 512

typedef struct slot_verification {
    llama_slot *slot;
    const llama_visitor *visitor;
    uint32_t span;
    llama_writer *writer;
    llama_plan_checkpoint *checkpoints; /* owned */
    uint8_t *pages;                     /* owned; for pieces of endpoints as well */
    uint64_t pages_size;
    uint8_t *compared; /* owned, as large as the slot's scratch */
    bool is_different;
    uint64_t different_at;
    llama_page batch[BATCH_PAGES];
} slot_verification;

/* 0 when the file has these bytes at `offset`; `size` is at most the slot's scratch. */
static int compare_piece(slot_verification *verification, const uint8_t *bytes, size_t size,
                         uint64_t offset)
{
    const llama_input *input = &verification->slot->input;
    int result = -EILSEQ;

    if (offset <= input->size && size <= input->size - offset) {
        result = input->read(input->context, verification->compared, size, offset);
        if (result >= 0) {
            result = memcmp(verification->compared, bytes, size) == 0 ? 0 : -EILSEQ;
            verification->is_different = result != 0;
            verification->different_at = offset;
        }
    } else {
        verification->is_different = true;
        verification->different_at = offset;
    }
    return result;
}

/* An output that writes nothing: it compares. */
static int compare_write(void *context, const void *bytes, size_t size, uint64_t offset)
{
    slot_verification *verification = context;
    size_t many;
    int result = 0;

    for (size_t done = 0; done < size && result >= 0; done += many) {
        many = (size_t)kvarve_min_u64(size - done, verification->slot->scratch_size);
        result = compare_piece(verification, (const uint8_t *)bytes + done, many, offset + done);
    }
    return result;
}

static kvarve_status read_tokens(void *context, uint64_t first, size_t count, uint32_t *out,
                                 kvarve_error *err)
{
    return llama_slot_read_tokens(context, first, count, out, err);
}

/* ---- Pages ---- */

/* Fill `batch` with pages from token `first` on; returns how many. */
static size_t make_batch(slot_verification *verification, uint64_t first, uint64_t token_bytes)
{
    uint64_t page_bytes = verification->span * token_bytes;
    uint64_t most = kvarve_max_u64(verification->pages_size / page_bytes, 1);
    uint64_t tokens = verification->slot->tokens;
    size_t count = 0;

    while (first < tokens && count < most && count < BATCH_PAGES) {
        verification->batch[count] = (llama_page){
            .first = first,
            .count = (uint32_t)kvarve_min_u64(verification->span, tokens - first),
            .bytes = verification->pages + count * page_bytes,
        };
        first += verification->batch[count].count;
        count++;
    }
    return count;
}

static kvarve_status visit_pages(const slot_verification *verification, llama_part part,
                                 size_t count, uint64_t token_bytes, kvarve_error *err)
{
    const llama_visitor *visitor = verification->visitor;
    kvarve_status status = KVARVE_OK;

    if (visitor == NULL || visitor->page == NULL) {
        return KVARVE_OK;
    }
    for (size_t i = 0; i < count && status == KVARVE_OK; i++) {
        const llama_page *page = &verification->batch[i];

        status = visitor->page(visitor->context, part, page, page->count * token_bytes, err);
    }
    return status;
}

static kvarve_status verify_pages(slot_verification *verification, llama_part part,
                                  kvarve_error *err)
{
    const llama_layout *layout = llama_slot_layout(verification->slot, part);
    uint64_t token_bytes = layout == NULL ? 0 : layout->prefix.token_bytes;
    uint64_t first = 0;
    size_t count;
    kvarve_status status = KVARVE_OK;

    if (token_bytes == 0) {
        return KVARVE_OK;
    }
    while (first < verification->slot->tokens && status == KVARVE_OK) {
        count = make_batch(verification, first, token_bytes);
        status = llama_slot_read_pages(verification->slot, part, verification->batch, count, err);
        if (status == KVARVE_OK) {
            status =
                llama_writer_pages(verification->writer, part, verification->batch, count, err);
        }
        if (status == KVARVE_OK) {
            status = visit_pages(verification, part, count, token_bytes, err);
        }
        first = verification->batch[count - 1].first + verification->batch[count - 1].count;
    }
    return status;
}

/* ---- Endpoints ---- */

static kvarve_status verify_endpoint(slot_verification *verification, llama_endpoint_name name,
                                     kvarve_error *err)
{
    const llama_visitor *visitor = verification->visitor;
    llama_endpoint endpoint;
    uint64_t end, many;
    kvarve_status status = KVARVE_OK;

    if (!llama_slot_endpoint(verification->slot, name.index, name.part, &endpoint)) {
        return KVARVE_OK;
    }
    end = llama_endpoint_size(&endpoint);
    for (uint64_t offset = 0; offset < end && status == KVARVE_OK; offset += many) {
        uint8_t *bytes = verification->pages;

        many = kvarve_min_u64(end - offset, verification->pages_size);
        status =
            llama_slot_read_endpoint(verification->slot, name, offset, (size_t)many, bytes, err);
        if (status == KVARVE_OK) {
            status =
                llama_writer_endpoint(verification->writer, name, bytes, (size_t)many, offset, err);
        }
        if (status == KVARVE_OK && visitor != NULL && visitor->endpoint != NULL) {
            status = visitor->endpoint(visitor->context, name, bytes, (size_t)many, offset, err);
        }
    }
    return status;
}

/* The response first, then the checkpoints in the file's order. */
static kvarve_status verify_endpoints(slot_verification *verification, kvarve_error *err)
{
    uint32_t count = llama_slot_checkpoints(verification->slot);
    kvarve_status status = KVARVE_OK;

    for (uint64_t i = 0; i <= count && status == KVARVE_OK; i++) {
        uint32_t index = i == 0 ? LLAMA_RESPONSE : (uint32_t)(i - 1);

        status = verify_endpoint(verification, (llama_endpoint_name){index, LLAMA_MAIN}, err);
        if (status == KVARVE_OK) {
            status = verify_endpoint(verification, (llama_endpoint_name){index, LLAMA_DRAFT}, err);
        }
    }
    return status;
}

/* ---- The whole ---- */

static kvarve_status open_writer(slot_verification *verification, kvarve_error *err)
{
    llama_slot *slot = verification->slot;
    llama_token_source source = {.context = slot, .read = read_tokens};
    llama_output output = {.context = verification, .write = compare_write};
    llama_plan plan = {
        .layout = {slot->layout[LLAMA_MAIN], slot->layout[LLAMA_DRAFT]},
        .token_count = slot->tokens,
        .checkpoints = verification->checkpoints,
        .checkpoint_count = slot->checkpoint_count,
        .stream_count = slot->streams.is_known ? slot->streams.count : 1,
        .stream_index = slot->streams.index,
        .sequence = slot->streams.sequence,
    };

    for (int part = 0; part < LLAMA_PARTS; part++) {
        plan.endpoint[part] = slot->response[part].endpoint;
    }
    for (uint32_t i = 0; i < slot->checkpoint_count; i++) {
        verification->checkpoints[i] = (llama_plan_checkpoint){
            .main = slot->checkpoints[i].part[LLAMA_MAIN].endpoint,
            .draft = slot->checkpoints[i].part[LLAMA_DRAFT].endpoint,
        };
    }
    return llama_writer_open_from(&plan, &source, &output, &verification->writer, err);
}

/* Room for a batch of pages, or for a piece of an endpoint. */
static kvarve_status allocate_buffers(slot_verification *verification, kvarve_error *err)
{
    llama_slot *slot = verification->slot;
    uint64_t bytes = kvarve_min_u64(slot->input.size, BATCH_BYTES);

    for (int part = 0; part < LLAMA_PARTS; part++) {
        if (slot->layout[part] != NULL) {
            bytes =
                kvarve_max_u64(bytes, verification->span * slot->layout[part]->prefix.token_bytes);
        }
    }
    if (bytes > LLAMA_PAGE_BYTES_MAX) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED,
                           "slot file: a page of %" PRIu32 " tokens has %" PRIu64
                           " bytes, at most %" PRIu64,
                           verification->span, bytes, LLAMA_PAGE_BYTES_MAX);
    }
    verification->pages_size = bytes;
    verification->pages = kvarve_allocate((size_t)bytes);
    verification->compared = kvarve_allocate((size_t)slot->scratch_size);
    verification->checkpoints = kvarve_allocate_array((size_t)slot->checkpoint_count + 1,
                                                      sizeof(*verification->checkpoints));
    if (verification->pages == NULL || verification->compared == NULL ||
        verification->checkpoints == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "no memory to verify a slot file");
    }
    return KVARVE_OK;
}

static kvarve_status verify_all(slot_verification *verification, kvarve_error *err)
{
    kvarve_status status = allocate_buffers(verification, err);

    if (status == KVARVE_OK) {
        status = open_writer(verification, err);
    }
    if (status == KVARVE_OK &&
        llama_writer_size(verification->writer) != verification->slot->input.size) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED,
                           "slot file of %" PRIu64 " bytes has %" PRIu64
                           " when it is put together again",
                           verification->slot->input.size, llama_writer_size(verification->writer));
    }
    for (int part = 0; part < LLAMA_PARTS && status == KVARVE_OK; part++) {
        status = verify_pages(verification, (llama_part)part, err);
    }
    if (status == KVARVE_OK) {
        status = verify_endpoints(verification, err);
    }
    return status == KVARVE_OK ? llama_writer_finish(verification->writer, err) : status;
}

kvarve_status llama_slot_verify(llama_slot *slot, uint32_t span, const llama_visitor *visitor,
                                kvarve_error *err)
{
    slot_verification *verification;
    kvarve_status status;

    if (span == 0 || span % LLAMA_SPAN_UNIT != 0) {
        return kvarve_fail(err, KVARVE_INVALID, "span of %" PRIu32 " tokens, not a multiple of %d",
                           span, LLAMA_SPAN_UNIT);
    }
    if (slot->whole_reason != NULL) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED, "slot file: %s", slot->whole_reason);
    }
    verification = kvarve_allocate(sizeof(*verification));
    if (verification == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "no memory to verify a slot file");
    }
    verification->slot = slot;
    verification->visitor = visitor;
    verification->span = span;
    status = verify_all(verification, err);
    if (verification->is_different) {
        status = kvarve_fail(err, KVARVE_UNSUPPORTED,
                             "slot file is not the same when it is put together again, from byte "
                             "%" PRIu64 " on",
                             verification->different_at);
    }
    llama_writer_close(verification->writer);
    kvarve_release(verification->checkpoints);
    kvarve_release(verification->compared);
    kvarve_release(verification->pages);
    kvarve_release(verification);
    return status;
}
