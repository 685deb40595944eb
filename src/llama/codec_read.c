/*
 * codec_read.c - what a parsed slot file gives: tokens, pages, endpoints, and which to keep.
 *
 * Invariant: pages and endpoints are given only of a file that is not to be stored whole.
 * Threads: one per slot. Ownership: results are the caller's memory, layouts the slot's.
 */
#include "llama/codec.h"

#include <inttypes.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"
#include "llama/codec_private.h"

static llama_file slot_file(const llama_slot *slot)
{
    return (llama_file){
        .input = &slot->input, .scratch = slot->scratch, .scratch_size = slot->scratch_size};
}

uint64_t llama_slot_size(const llama_slot *slot)
{
    return slot->input.size;
}

uint64_t llama_slot_tokens(const llama_slot *slot)
{
    return slot->tokens;
}

const char *llama_slot_whole_reason(const llama_slot *slot)
{
    return slot->whole_reason;
}

kvarve_status llama_slot_read_tokens(llama_slot *slot, uint64_t first, size_t count, uint32_t *out,
                                     kvarve_error *err)
{
    llama_file file = slot_file(slot);
    uint64_t many;
    kvarve_status status;

    if (first > slot->tokens || count > slot->tokens - first) {
        return kvarve_fail(err, KVARVE_INVALID, "tokens %" PRIu64 " + %zu of %" PRIu64, first,
                           count, slot->tokens);
    }
    for (uint64_t done = 0; done < count; done += many) {
        many = kvarve_min_u64(count - done, slot->scratch_size / 4);
        status = llama_file_read(&file, slot->scratch, (size_t)(many * 4),
                                 LLAMA_FILE_HEAD + (first + done) * 4, err);
        if (status != KVARVE_OK) {
            return status;
        }
        for (uint64_t i = 0; i < many; i++) {
            out[done + i] = llama_load32(slot->scratch + 4 * i);
        }
    }
    return KVARVE_OK;
}

const llama_layout *llama_slot_layout(const llama_slot *slot, llama_part part)
{
    KVARVE_ASSERT(part < LLAMA_PARTS);
    return slot->whole_reason == NULL ? slot->layout[part] : NULL;
}

uint32_t llama_slot_checkpoints(const llama_slot *slot)
{
    return slot->whole_reason == NULL ? slot->checkpoint_count : 0;
}

/* NULL when the slot has no such endpoint. */
static const llama_endpoint_place *find_endpoint(const llama_slot *slot, llama_endpoint_name name)
{
    const llama_endpoint_place *place;

    if (slot->whole_reason != NULL || name.part >= LLAMA_PARTS) {
        return NULL;
    }
    if (name.index == LLAMA_RESPONSE) {
        place = &slot->response[name.part];
    } else if (name.index < slot->checkpoint_count) {
        place = &slot->checkpoints[name.index].part[name.part];
    } else {
        return NULL;
    }
    return place->is_present ? place : NULL;
}

bool llama_slot_endpoint(const llama_slot *slot, uint32_t index, llama_part part,
                         llama_endpoint *out)
{
    const llama_endpoint_place *place =
        find_endpoint(slot, (llama_endpoint_name){.index = index, .part = part});

    if (place == NULL) {
        return false;
    }
    *out = place->endpoint;
    return true;
}

/* The largest sound checkpoint at or before `limit` and below the response boundary. */
static uint32_t largest_checkpoint(const llama_slot *slot, uint64_t limit)
{
    uint32_t best = LLAMA_RESPONSE;
    uint64_t best_tokens = 0;

    for (uint32_t i = 0; i < llama_slot_checkpoints(slot); i++) {
        const llama_endpoint_place *place = &slot->checkpoints[i].part[LLAMA_MAIN];
        uint64_t tokens = place->endpoint.tokens;

        if (place->is_sound && tokens <= limit && tokens < slot->tokens && tokens >= best_tokens) {
            best = i;
            best_tokens = tokens;
        }
    }
    return best;
}

llama_choice llama_slot_choose(const llama_slot *slot, uint64_t prompt_at, uint64_t user_at)
{
    llama_choice choice = {.prompt = largest_checkpoint(slot, prompt_at), .user = LLAMA_RESPONSE};

    if (user_at != LLAMA_NO_LIMIT) {
        choice.user = largest_checkpoint(slot, user_at);
    }
    if (choice.user == choice.prompt) {
        choice.user = LLAMA_RESPONSE;
    }
    return choice;
}

kvarve_status llama_slot_read_pages(llama_slot *slot, llama_part part, const llama_page *pages,
                                    size_t count, kvarve_error *err)
{
    const llama_layout *layout = llama_slot_layout(slot, part);
    llama_file file = slot_file(slot);

    if (layout == NULL || layout->prefix.token_bytes == 0) {
        return kvarve_fail(err, KVARVE_INVALID, "slot file: this context has no pages");
    }
    if (!llama_pages_are_valid(pages, count, slot->tokens)) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "slot file: pages do not ascend or leave its %" PRIu64 " tokens",
                           slot->tokens);
    }
    return llama_move_pages(&file, &layout->prefix, &slot->prefix[part], pages, count, err);
}

kvarve_status llama_slot_read_endpoint(llama_slot *slot, llama_endpoint_name name, uint64_t offset,
                                       size_t size, void *out, kvarve_error *err)
{
    const llama_endpoint_place *place = find_endpoint(slot, name);
    llama_file file = slot_file(slot);
    uint64_t end;

    if (place == NULL) {
        return kvarve_fail(err, KVARVE_INVALID, "slot file: no endpoint %" PRIu32, name.index);
    }
    end = llama_endpoint_size(&place->endpoint);
    if (offset > end || size > end - offset) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "endpoint of boundary %" PRIu64 ": bytes %" PRIu64 " + %zu of %" PRIu64,
                           place->endpoint.tokens, offset, size, end);
    }
    return llama_endpoint_read(&file, place, (llama_piece){offset, size}, out, err);
}

uint64_t llama_whole_count(uint64_t size)
{
    return kvarve_divide_up(size, LLAMA_WHOLE_PIECE);
}

uint32_t llama_whole_piece(uint64_t size, uint64_t index)
{
    if (index >= llama_whole_count(size)) {
        return 0;
    }
    return (uint32_t)kvarve_min_u64(size - index * LLAMA_WHOLE_PIECE, LLAMA_WHOLE_PIECE);
}
