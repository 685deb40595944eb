/*
 * codec_parse.c - find every part of a slot file, trusting none of its numbers.
 *
 * The token payload, then the state (codec_state.c), whose end is not said, then the appendices.
 *
 * Invariants
 *   I1  Nothing is read beyond `end` of the part that is being parsed, and a length is compared
 *       with what is left before it is added to anything. Files are below 2^44 bytes, so sums of
 *       offsets inside a file do not wrap.
 *   I2  What is allocated is bounded by limits of codec.h, never by a number of the file alone.
 *   I3  What parses but can not be derived from pages and endpoints sets whole_reason; what does
 *       not parse is an error.
 *
 * Threads: one per slot. Ownership: a slot owns its layouts; attempts own theirs until taken.
 */
#include "llama/codec.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fail.h"
#include "llama/codec_parse_private.h"
#include "llama/codec_private.h"

#define FILE_BYTES_MAX (UINT64_C(1) << 44)

/* ---- Token payload ---- */

static kvarve_status check_head(slot_parser *parser, const uint8_t head[LLAMA_FILE_HEAD])
{
    if (llama_load32(head) != LLAMA_FILE_MAGIC) {
        return kvarve_fail(parser->err, KVARVE_UNSUPPORTED,
                           "not a slot file: begins with %08" PRIx32, llama_load32(head));
    }
    if (llama_load32(head + 4) != LLAMA_FILE_VERSION) {
        return kvarve_fail(parser->err, KVARVE_UNSUPPORTED,
                           "slot file of version %" PRIu32 ", known is %d", llama_load32(head + 4),
                           LLAMA_FILE_VERSION);
    }
    if (llama_load32(head + 12) != UINT32_MAX || llama_load32(head + 16) != 1) {
        return kvarve_fail(parser->err, KVARVE_UNSUPPORTED,
                           "slot file: token payload begins with %" PRId32 " %" PRId32
                           ", known is the server's -1 1",
                           (int32_t)llama_load32(head + 12), (int32_t)llama_load32(head + 16));
    }
    return KVARVE_OK;
}

/* A negative token stands for media. `bytes` holds tokens from number `first` on. */
static kvarve_status check_some_tokens(const slot_parser *parser, const uint8_t *bytes,
                                       uint64_t first, uint64_t many)
{
    for (uint64_t i = 0; i < many; i++) {
        if ((bytes[4 * i + 3] & 0x80) != 0) {
            return kvarve_fail(parser->err, KVARVE_UNSUPPORTED,
                               "slot file: token %" PRIu64
                               " is negative; files with media are not known",
                               first + i);
        }
    }
    return KVARVE_OK;
}

static kvarve_status check_tokens(slot_parser *parser)
{
    uint8_t *bytes = parser->slot->scratch;
    uint64_t many;
    kvarve_status status = KVARVE_OK;

    for (uint64_t first = 0; first < parser->slot->tokens && status == KVARVE_OK; first += many) {
        many = kvarve_min_u64(parser->slot->tokens - first, parser->file.scratch_size / 4);
        status = parser_take(parser, bytes, (size_t)(many * 4), "tokens");
        if (status == KVARVE_OK) {
            status = check_some_tokens(parser, bytes, first, many);
        }
    }
    return status;
}

/* The payload's count against the tokens it says it holds. */
static kvarve_status check_count(slot_parser *parser, uint32_t count, uint32_t tokens)
{
    uint8_t media[4];
    kvarve_status status;

    if (count < 4 || (uint64_t)count * 4 > parser_left(parser) + 12) {
        return parser_corrupt(parser, "the payload count is beyond the file");
    }
    if (tokens > count - 4) {
        return parser_corrupt(parser, "more tokens than the payload has");
    }
    status = llama_file_read(&parser->file, media, sizeof(media),
                             LLAMA_FILE_HEAD + (uint64_t)tokens * 4, parser->err);
    if (status != KVARVE_OK) {
        return status;
    }
    if (llama_load32(media) != 0) {
        return kvarve_fail(parser->err, KVARVE_UNSUPPORTED,
                           "slot file with media (%" PRIu32 " chunks): their content is not known",
                           llama_load32(media));
    }
    if (count != tokens + 4) {
        return parser_corrupt(parser, "the payload goes on after its tokens");
    }
    if (tokens == 0) {
        return kvarve_fail(parser->err, KVARVE_INVALID, "slot file without tokens: an empty slot");
    }
    if (tokens > LLAMA_TOKENS_MAX) {
        return kvarve_fail(parser->err, KVARVE_UNSUPPORTED,
                           "slot file of %" PRIu32 " tokens, at most %" PRIu64, tokens,
                           LLAMA_TOKENS_MAX);
    }
    return KVARVE_OK;
}

static kvarve_status parse_payload(slot_parser *parser)
{
    uint8_t head[LLAMA_FILE_HEAD];
    uint32_t media;
    kvarve_status status = parser_take(parser, head, sizeof(head), "the file's head");

    if (status == KVARVE_OK) {
        status = check_head(parser, head);
    }
    if (status == KVARVE_OK) {
        status = check_count(parser, llama_load32(head + 8), llama_load32(head + 20));
    }
    if (status != KVARVE_OK) {
        return status;
    }
    parser->slot->tokens = llama_load32(head + 20);
    status = check_tokens(parser);
    return status == KVARVE_OK ? parser_take_u32(parser, &media, "the media count") : status;
}

/* ---- What a state means for its slot ---- */

static void merge_sequence(llama_slot *slot, uint32_t sequence)
{
    if (!slot->streams.is_sequence_known) {
        slot->streams.is_sequence_known = true;
        slot->streams.sequence = sequence;
    }
    if (slot->streams.sequence != sequence) {
        parser_set_whole(slot, "parts of the file name different sequences");
    }
}

static void merge_streams(llama_slot *slot, const llama_attention *attention,
                          const attention_found *found)
{
    if (!attention->is_present || found->place.cell_count == 0) {
        return;
    }
    if (!slot->streams.is_known) {
        slot->streams.is_known = true;
        slot->streams.count = found->streams.count;
        slot->streams.index = found->streams.index;
    }
    if (slot->streams.count != found->streams.count ||
        slot->streams.index != found->streams.index) {
        parser_set_whole(slot, "parts of the file lie in different streams");
    }
    merge_sequence(slot, found->streams.sequence);
}

/* Fill in where an endpoint's pieces lie. */
static void place_endpoint(const llama_layout *layout, const state_found *found, uint64_t tokens,
                           llama_endpoint_place *out)
{
    out->is_present = llama_layout_has_endpoint(layout);
    out->endpoint = llama_layout_endpoint(layout, tokens, (uint32_t)found->window.place.cell_count);
    out->cells_at = found->window.place.cells_at;
    out->rest_at = found->window.place.rest_at;
    out->recurrent_at = found->recurrent_at;
}

static void take_state(llama_slot *slot, llama_part part, llama_layout *layout,
                       const state_found *found)
{
    slot->layout[part] = layout;
    slot->prefix[part] = found->prefix.place;
    merge_streams(slot, &layout->prefix, &found->prefix);
    merge_streams(slot, &layout->window, &found->window);
    place_endpoint(layout, found, slot->tokens, &slot->response[part]);
    if (layout->prefix.is_present && found->prefix.place.cell_count != slot->tokens) {
        parser_set_whole(slot, "the cache does not hold one cell for each token");
    } else if (layout->prefix.is_present && !found->prefix.is_ordered) {
        parser_set_whole(slot, "cells are not in the order of their positions");
    } else if (layout->prefix.is_present && !found->prefix.is_text) {
        parser_set_whole(slot, "cells have M-RoPE words that text does not have");
    }
    if (layout->window.is_present && found->window.place.cell_count == 0) {
        parser_set_whole(slot, "the sliding window holds no cells");
    }
    if (layout->recurrent.is_present && (uint32_t)found->recurrent_position != slot->tokens - 1) {
        parser_set_whole(slot, "the recurrent state is not at the last token");
    }
}

/* ---- Appendices ---- */

/* Magic and sequence id; the parser then ends with the blob. */
static kvarve_status enter_blob(slot_parser *parser, uint64_t size, slot_parser *out)
{
    uint8_t head[LLAMA_BLOB_HEAD];
    kvarve_status status;

    *out = *parser;
    status = parser_skip(parser, size, "a blob");
    if (status != KVARVE_OK) {
        return status;
    }
    out->end = parser->at;
    status = parser_take(out, head, sizeof(head), "a blob's head");
    if (status != KVARVE_OK) {
        return status;
    }
    if (llama_load32(head) != LLAMA_STATE_MAGIC) {
        return parser_corrupt(out, "a blob without its magic");
    }
    merge_sequence(parser->slot, llama_load32(head + 4));
    return KVARVE_OK;
}

/* A length and as many bytes of which nothing is known. */
static kvarve_status parse_third(slot_parser *parser)
{
    uint64_t size = 0;
    kvarve_status status = parser_take_u64(parser, &size, "a length");

    if (status == KVARVE_OK && size != 0) {
        parser_set_whole(parser->slot, "the file holds state of a speculative implementation");
        status = parser_skip(parser, size, "speculative state");
    }
    return status;
}

/* A partial state, whose layout the slot knows already. `place` knows its boundary. */
static kvarve_status parse_partial(slot_parser *parser, llama_part part,
                                   llama_endpoint_place *place)
{
    llama_slot *slot = parser->slot;
    const llama_layout *known = slot->layout[part];
    llama_layout own = {0};
    state_found found;
    state_kind kind = {
        .is_blob = true, .is_partial = true, .is_extended = known->window.is_extended};
    uint64_t tokens = place->endpoint.tokens;
    kvarve_status status = parser_state(parser, kind, &own, &found);

    if (status != KVARVE_OK) {
        llama_layout_clear(&own);
        return status;
    }
    if (!llama_attention_is_equal(&own.window, &known->window) ||
        !llama_recurrent_is_equal(&own.recurrent, &known->recurrent)) {
        parser_set_whole(slot, "a checkpoint has another layout than the state");
    }
    merge_streams(slot, &own.window, &found.window);
    place_endpoint(&own, &found, tokens, place);
    place->is_sound = !own.recurrent.is_present || (uint64_t)found.recurrent_position + 1 == tokens;
    llama_layout_clear(&own);
    return KVARVE_OK;
}

static kvarve_status grow_checkpoints(slot_parser *parser)
{
    llama_slot *slot = parser->slot;
    uint32_t room = slot->checkpoint_room == 0 ? 32 : slot->checkpoint_room * 2;
    llama_checkpoint_place *grown;

    if (slot->checkpoint_count < slot->checkpoint_room) {
        return KVARVE_OK;
    }
    grown = kvarve_reallocate(slot->checkpoints, room * sizeof(*grown));
    if (grown == NULL) {
        return kvarve_fail(parser->err, KVARVE_NO_MEMORY, "no memory for %" PRIu32 " checkpoints",
                           room);
    }
    slot->checkpoints = grown;
    slot->checkpoint_room = room;
    return KVARVE_OK;
}

/* Boundary and positions of a checkpoint. */
static kvarve_status parse_checkpoint_head(slot_parser *parser, llama_endpoint *out)
{
    uint8_t head[16];
    kvarve_status status = parser_take(parser, head, sizeof(head), "a checkpoint's head");

    if (status != KVARVE_OK) {
        return status;
    }
    out->tokens = llama_load64(head);
    out->position_min = (int32_t)llama_load32(head + 8);
    out->position_max = (int32_t)llama_load32(head + 12);
    if (out->tokens < 1 || out->tokens > parser->slot->tokens) {
        parser_set_whole(parser->slot, "a checkpoint lies outside the tokens");
    }
    return KVARVE_OK;
}

/* The main blob is parsed now; the draft's when its layout is known, so its place is noted. */
static kvarve_status parse_checkpoint(slot_parser *parser, llama_checkpoint_place *out)
{
    llama_endpoint_place *main = &out->part[LLAMA_MAIN];
    llama_endpoint head = {0};
    slot_parser blob;
    uint64_t size = 0;
    kvarve_status status = parse_checkpoint_head(parser, &head);

    *out = (llama_checkpoint_place){0};
    main->endpoint.tokens = head.tokens;
    if (status == KVARVE_OK) {
        status = parser_take_u64(parser, &size, "a checkpoint's length");
    }
    if (status == KVARVE_OK) {
        status = enter_blob(parser, size, &blob);
    }
    if (status == KVARVE_OK) {
        status = parse_partial(&blob, LLAMA_MAIN, main);
    }
    if (status == KVARVE_OK) {
        status = parser_take_u64(parser, &out->draft_size, "a draft checkpoint's length");
    }
    if (status != KVARVE_OK) {
        return status;
    }
    main->endpoint.is_checkpoint = true;
    main->endpoint.has_draft = out->draft_size != 0;
    main->endpoint.position_min = head.position_min;
    main->endpoint.position_max = head.position_max;
    main->is_sound = main->is_sound && (uint64_t)head.position_max + 1 == head.tokens;
    out->draft_at = parser->at;
    status = parser_skip(parser, out->draft_size, "a draft checkpoint");
    return status == KVARVE_OK ? parse_third(parser) : status;
}

static kvarve_status parse_checkpoints(slot_parser *parser)
{
    llama_slot *slot = parser->slot;
    uint32_t count = 0;
    kvarve_status status = parser_take_u32(parser, &count, "the checkpoint count");

    if (status != KVARVE_OK) {
        return status;
    }
    if (count > LLAMA_CHECKPOINTS_MAX) {
        return kvarve_fail(parser->err, KVARVE_UNSUPPORTED,
                           "slot file of %" PRIu32 " checkpoints, at most %d", count,
                           LLAMA_CHECKPOINTS_MAX);
    }
    if (count == 0 || !llama_layout_has_endpoint(slot->layout[LLAMA_MAIN])) {
        parser_set_whole(slot, "an appendix of checkpoints that hold nothing");
    }
    for (uint32_t i = 0; i < count; i++) {
        status = grow_checkpoints(parser);
        if (status == KVARVE_OK) {
            status = parse_checkpoint(parser, &slot->checkpoints[i]);
        }
        if (status != KVARVE_OK) {
            return status;
        }
        slot->checkpoint_count++;
    }
    return KVARVE_OK;
}

/* The draft's share of a checkpoint. */
static kvarve_status parse_draft_checkpoint(slot_parser *parser, llama_checkpoint_place *checkpoint)
{
    llama_slot *slot = parser->slot;
    llama_endpoint_place *place = &checkpoint->part[LLAMA_DRAFT];
    slot_parser whole = *parser;
    slot_parser blob;
    kvarve_status status;

    if (checkpoint->draft_size == 0) {
        return KVARVE_OK;
    }
    if (slot->layout[LLAMA_DRAFT] == NULL) {
        parser_set_whole(slot, "checkpoints of a draft context that is not in the file");
        return KVARVE_OK;
    }
    whole.at = checkpoint->draft_at;
    status = enter_blob(&whole, checkpoint->draft_size, &blob);
    if (status != KVARVE_OK) {
        return status;
    }
    place->endpoint.tokens = checkpoint->part[LLAMA_MAIN].endpoint.tokens;
    status = parse_partial(&blob, LLAMA_DRAFT, place);
    place->endpoint.is_checkpoint = true;
    place->endpoint.position_min = checkpoint->part[LLAMA_MAIN].endpoint.position_min;
    place->endpoint.position_max = checkpoint->part[LLAMA_MAIN].endpoint.position_max;
    return status;
}

static kvarve_status parse_draft(slot_parser *parser)
{
    llama_layout *layout;
    state_found found;
    slot_parser blob;
    uint64_t size = 0;
    kvarve_status status = parser_take_u64(parser, &size, "the draft context's length");

    if (status == KVARVE_OK) {
        status = enter_blob(parser, size, &blob);
    }
    if (status == KVARVE_OK) {
        status = parser_unknown_state(&blob, true, &layout, &found);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    take_state(parser->slot, LLAMA_DRAFT, layout, &found);
    return parse_third(parser);
}

/* Magic and version of an appendix, if the next word is `magic`. */
static kvarve_status enter_appendix(slot_parser *parser, uint32_t magic, const char *name,
                                    bool *out)
{
    uint8_t word[4];
    uint32_t version = 0;
    kvarve_status status;

    *out = false;
    if (parser_left(parser) < sizeof(word)) {
        return KVARVE_OK;
    }
    status = llama_file_read(&parser->file, word, sizeof(word), parser->at, parser->err);
    if (status != KVARVE_OK || llama_load32(word) != magic) {
        return status;
    }
    parser->at += sizeof(word);
    status = parser_take_u32(parser, &version, "an appendix's version");
    if (status == KVARVE_OK && version != LLAMA_APPENDIX_VERSION) {
        return kvarve_fail(parser->err, KVARVE_UNSUPPORTED,
                           "slot file: appendix %s of version %" PRIu32 ", known is %d", name,
                           version, LLAMA_APPENDIX_VERSION);
    }
    *out = true;
    return status;
}

static kvarve_status parse_appendices(slot_parser *parser)
{
    llama_slot *slot = parser->slot;
    bool is_there = false;
    kvarve_status status = enter_appendix(parser, LLAMA_CHECKPOINT_MAGIC, "SCKP", &is_there);

    if (status == KVARVE_OK && is_there) {
        status = parse_checkpoints(parser);
    }
    if (status == KVARVE_OK) {
        status = enter_appendix(parser, LLAMA_DRAFT_MAGIC, "SDFT", &is_there);
    }
    if (status == KVARVE_OK && is_there) {
        status = parse_draft(parser);
    }
    for (uint32_t i = 0; i < slot->checkpoint_count && status == KVARVE_OK; i++) {
        status = parse_draft_checkpoint(parser, &slot->checkpoints[i]);
    }
    if (status == KVARVE_OK && parser_left(parser) > 0) {
        status = parser_corrupt(parser, "bytes follow that belong to nothing");
    }
    return status;
}

static kvarve_status parse_file(llama_slot *slot, kvarve_error *err)
{
    slot_parser parser = {.slot = slot, .end = slot->input.size, .err = err};
    llama_layout *layout;
    state_found found;
    kvarve_status status;

    parser.file = (llama_file){
        .input = &slot->input, .scratch = slot->scratch, .scratch_size = slot->scratch_size};
    if (slot->input.size > FILE_BYTES_MAX) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED,
                           "slot file of %" PRIu64 " bytes, at most %" PRIu64, slot->input.size,
                           FILE_BYTES_MAX);
    }
    status = parse_payload(&parser);
    if (status == KVARVE_OK) {
        status = parser_unknown_state(&parser, false, &layout, &found);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    take_state(slot, LLAMA_MAIN, layout, &found);
    return parse_appendices(&parser);
}

kvarve_status llama_slot_open(const llama_input *input, llama_slot **out, kvarve_error *err)
{
    llama_slot *slot = kvarve_allocate(sizeof(*slot));
    kvarve_status status;

    if (slot == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "no memory for a slot file");
    }
    slot->input = *input;
    slot->scratch_size = llama_scratch_size(input->size);
    slot->scratch = kvarve_allocate((size_t)slot->scratch_size);
    if (slot->scratch == NULL) {
        llama_slot_close(slot);
        return kvarve_fail(err, KVARVE_NO_MEMORY, "no memory to read a slot file");
    }
    status = parse_file(slot, err);
    if (status != KVARVE_OK) {
        llama_slot_close(slot);
        return status;
    }
    *out = slot;
    return KVARVE_OK;
}

void llama_slot_close(llama_slot *slot)
{
    if (slot == NULL) {
        return;
    }
    for (int i = 0; i < LLAMA_PARTS; i++) {
        llama_layout_free(slot->layout[i]);
    }
    kvarve_release(slot->checkpoints);
    kvarve_release(slot->scratch);
    kvarve_release(slot);
}
