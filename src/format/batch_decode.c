/*
 * batch_decode.c - a batch record back from bytes that nobody vouches for.
 *
 * Invariants
 *   I1  Nothing behind the head is looked at before the digest holds, and nothing is believed
 *       because it holds: whoever can write the disk can write digests.
 *   I2  Memory is asked for only after the counts are shown to fit the record's own size, so it is
 *       at most 8 times that (a drop or a reference is a byte of record and 8 of memory).
 *   I3  Numbers have one form (shortest varints, no spare entries, zero padding), so what decodes
 *       encodes to the same bytes.
 *
 * Threads: any. Ownership: the arrays are the caller's on KVARVE_OK, else given back here.
 */
#include "format/batch_private.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fail.h"
#include "format/bytes_private.h"

/* Least bytes of record that one entry takes. */
#define SPAN_SIZE_MIN       5u
#define CHECKPOINT_SIZE_MIN 88u

static bool has_magic(const uint8_t *bytes, size_t size)
{
    return size >= sizeof batch_magic && memcmp(bytes, batch_magic, sizeof batch_magic) == 0;
}

uint32_t batch_claimed_size(const void *first_bytes, size_t size)
{
    const uint8_t *bytes = first_bytes;
    uint32_t claim;

    if (size < 64 || !has_magic(bytes, size)) {
        return 0;
    }
    claim = load_u32(bytes + AT_SIZE);
    return claim >= BATCH_HEAD_SIZE && claim <= BATCH_BYTES_MAX ? claim : 0;
}

static kvarve_status corrupt(kvarve_error *err, const char *what)
{
    return kvarve_fail(err, KVARVE_CORRUPT, "batch record: %s", what);
}

static bool is_zero(const uint8_t *bytes, size_t size)
{
    return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

/* Everything that can be said of the record as a whole; *out_size: its own bytes. */
static kvarve_status check_frame(const uint8_t *bytes, size_t size, uint32_t *out_size,
                                 kvarve_error *err)
{
    const uint32_t claim = batch_claimed_size(bytes, size);
    page_digest digest;
    uint32_t version;

    if (claim == 0 || claim > size) {
        return corrupt(err, "its size is wrong, or it is cut short");
    }
    digest = batch_digest(bytes, claim);
    if (memcmp(digest.bytes, bytes + AT_DIGEST, sizeof digest.bytes) != 0) {
        return corrupt(err, "the digest is wrong");
    }
    version = load_u32(bytes + AT_VERSION);
    if (version > BATCH_VERSION) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED,
                           "batch record: version %" PRIu32 ", known up to %u", version,
                           BATCH_VERSION);
    }
    if (version == 0) {
        return corrupt(err, "the version is zero");
    }
    if (!is_zero(bytes + claim, size - claim)) {
        return corrupt(err, "something follows it");
    }
    *out_size = claim;
    return KVARVE_OK;
}

static void load_head(const uint8_t *bytes, batch *out)
{
    memcpy(out->store.bytes, bytes + AT_STORE, sizeof out->store.bytes);
    out->sequence = load_u64(bytes + AT_SEQUENCE);
    out->place.segment = load_u32(bytes + AT_SEGMENT);
    out->place.block = load_u32(bytes + AT_BLOCK);
    out->place.blocks = load_u32(bytes + AT_BLOCKS);
    out->reference_count = load_u32(bytes + AT_REFERENCE_COUNT);
    out->first_page = load_u64(bytes + AT_FIRST_PAGE);
    out->first_span = load_u64(bytes + AT_FIRST_SPAN);
    out->first_checkpoint = load_u64(bytes + AT_FIRST_CHECKPOINT);
    out->namespace_count = load_u32(bytes + AT_NAMESPACE_COUNT);
    out->page_count = load_u32(bytes + AT_PAGE_COUNT);
    out->span_count = load_u32(bytes + AT_SPAN_COUNT);
    out->checkpoint_count = load_u32(bytes + AT_CHECKPOINT_COUNT);
    out->drop_count = load_u32(bytes + AT_DROP_COUNT);
}

/* The least size that these counts need; no sum here can overflow. */
static uint64_t size_needed(const batch *record)
{
    return BATCH_HEAD_SIZE + UINT64_C(32) * record->namespace_count +
           (uint64_t)BATCH_PAGE_SIZE * record->page_count +
           (uint64_t)(SPAN_SIZE_MIN - 1) * record->span_count +
           (uint64_t)CHECKPOINT_SIZE_MIN * record->checkpoint_count + record->drop_count +
           record->reference_count;
}

/* An array of `count` entries, or NULL for none; *is_short when there is no memory for it. */
static void *array_of(size_t count, size_t size, bool *is_short)
{
    void *array = count == 0 ? NULL : kvarve_allocate_array(count, size);

    *is_short = *is_short || (count > 0 && array == NULL);
    return array;
}

static bool allocate_items(batch *out)
{
    bool is_short = false;

    out->namespaces = array_of(out->namespace_count, sizeof *out->namespaces, &is_short);
    out->pages = array_of(out->page_count, sizeof *out->pages, &is_short);
    out->spans = array_of(out->span_count, sizeof *out->spans, &is_short);
    out->checkpoints = array_of(out->checkpoint_count, sizeof *out->checkpoints, &is_short);
    out->drops = array_of(out->drop_count, sizeof *out->drops, &is_short);
    out->references = array_of(out->reference_count, sizeof *out->references, &is_short);
    return !is_short;
}

static void read_page(reader *in, batch_page *page)
{
    uint8_t at[BATCH_PAGE_SIZE];

    read_copy(in, at, sizeof at);
    memcpy(page->key, at + PAGE_KEY, sizeof page->key);
    memcpy(page->digest, at + PAGE_DIGEST, sizeof page->digest);
    page->place.segment = load_u32(at + PAGE_SEGMENT);
    page->place.slot = load_u32(at + PAGE_SLOT);
    page->size = load_u32(at + PAGE_SIZE_FIELD);
    page->tokens = load_u32(at + PAGE_TOKENS);
    page->rank = load_u16(at + PAGE_RANK);
    page->part = load_u16(at + PAGE_PART);
    page->group = at[PAGE_GROUP];
    page->namespace_index = at[PAGE_NAMESPACE];
    page->is_partial = at[PAGE_IS_PARTIAL];
    page->is_exact = at[PAGE_EXACT];
}

/* An id told as the distance down from `end`; 0 stays 0. */
static uint64_t read_below(reader *in, uint64_t end)
{
    const uint64_t distance = read_varint(in);

    if (distance >= end) { /* It would be zero, which has a form of its own, or less. */
        in->is_bad = true;
        return 0;
    }
    return distance == 0 ? 0 : end - distance;
}

/* Ids told as differences, each from the one before it. */
static void read_ids(reader *in, uint64_t *ids, uint32_t count, uint64_t *previous)
{
    for (uint32_t i = 0; i < count && !in->is_bad; i++) {
        const int64_t difference = unzigzag(read_varint(in));
        int64_t id = 0;

        if (KVARVE_ADD_OVERFLOWS((int64_t)*previous, difference, &id) || id < 1) {
            in->is_bad = true;
            return;
        }
        ids[i] = (uint64_t)id;
        *previous = ids[i];
    }
}

/* The next `count` references, if there are so many left; *at: where the next ones go. */
static void read_references(reader *in, batch *out, uint32_t count, uint32_t *at,
                            uint64_t *previous)
{
    if (count > out->reference_count - *at) {
        in->is_bad = true;
        return;
    }
    if (count > 0) {
        read_ids(in, out->references + *at, count, previous);
        *at += count;
    }
}

static void read_span_numbers(reader *in, batch_span *span, uint64_t id)
{
    uint32_t namespace_index;

    span->parent = read_below(in, id);
    span->tokens = read_varint_u32(in);
    namespace_index = read_varint_u32(in);
    span->page_count = read_varint_u32(in);
    in->is_bad |= namespace_index >= BATCH_NAMESPACES_MAX;
    span->namespace_index = (uint8_t)namespace_index;
}

static void read_checkpoint_numbers(reader *in, const batch *record, batch_checkpoint *checkpoint,
                                    uint64_t id)
{
    uint32_t kind;

    read_copy(in, checkpoint->id, sizeof checkpoint->id);
    read_copy(in, checkpoint->token_digest, sizeof checkpoint->token_digest);
    checkpoint->bucket = read_u64(in);
    checkpoint->tail_hash = read_u64(in);
    checkpoint->span = read_below(in, record->first_span + record->span_count);
    checkpoint->parent = read_below(in, id);
    checkpoint->companion = read_below(in, record->first_checkpoint + record->checkpoint_count);
    checkpoint->created_s = unzigzag(read_varint(in));
    checkpoint->tokens = read_varint_u32(in);
    checkpoint->draft_tokens = read_varint_u32(in);
    kind = read_varint_u32(in);
    checkpoint->page_count = read_varint_u32(in);
    in->is_bad |= kind >> 2 >= BATCH_NAMESPACES_MAX;
    checkpoint->kind = kind & 3;
    checkpoint->namespace_index = (uint8_t)(kind >> 2);
}

static void read_items(reader *in, batch *out)
{
    uint64_t previous = out->first_page;
    uint32_t at = 0;

    if (out->namespace_count > 0) {
        read_copy(in, out->namespaces, (size_t)out->namespace_count * 32);
    }
    for (uint32_t i = 0; i < out->page_count; i++) {
        read_page(in, &out->pages[i]);
    }
    for (uint32_t i = 0; i < out->span_count && !in->is_bad; i++) {
        batch_span *span = &out->spans[i];

        read_span_numbers(in, span, out->first_span + i);
        span->pages_at = at;
        read_references(in, out, span->page_count, &at, &previous);
    }
    for (uint32_t i = 0; i < out->checkpoint_count && !in->is_bad; i++) {
        batch_checkpoint *checkpoint = &out->checkpoints[i];

        read_checkpoint_numbers(in, out, checkpoint, out->first_checkpoint + i);
        checkpoint->pages_at = at;
        read_references(in, out, checkpoint->page_count, &at, &previous);
    }
    previous = out->first_checkpoint;
    read_ids(in, out->drops, out->drop_count, &previous);
    in->is_bad |= at != out->reference_count || reader_left(in) != 0;
}

/* The counts and ids of the head, before anything is allocated by them (I2). */
static const char *head_fault(const uint8_t *bytes, uint32_t size, const batch *head)
{
    if (!batch_counts_fit(head) || size_needed(head) > size) {
        return "a count is over its limit";
    }
    if (head->first_page > BATCH_ID_MAX || head->first_span > BATCH_ID_MAX ||
        head->first_checkpoint > BATCH_ID_MAX) {
        return "a first id is out of range";
    }
    if (head->place.blocks != kvarve_divide_up(size, BATCH_BLOCK)) {
        return "its blocks are not those of its size";
    }
    return load_u32(bytes + AT_RESERVED) != 0 ? "its reserved field is not zero" : NULL;
}

kvarve_status batch_decode(const void *bytes, size_t size, batch *out, kvarve_error *err)
{
    const uint8_t *record = bytes;
    uint32_t record_size = 0;
    kvarve_status status;
    const char *fault;
    batch decoded = {0};

    if (!has_magic(record, size)) {
        return KVARVE_MISS;
    }
    status = check_frame(record, size, &record_size, err);
    if (status != KVARVE_OK) {
        return status;
    }
    load_head(record, &decoded);
    fault = head_fault(record, record_size, &decoded);
    if (fault != NULL) {
        return corrupt(err, fault);
    }
    if (!allocate_items(&decoded)) {
        status = kvarve_fail(err, KVARVE_NO_MEMORY, "decode a batch record of %" PRIu32 " bytes",
                             record_size);
    } else {
        reader in = {.at = record + BATCH_HEAD_SIZE, .end = record + record_size};

        read_items(&in, &decoded);
        fault = in.is_bad ? "an entry is malformed" : batch_fault(&decoded);
        status = fault == NULL ? KVARVE_OK : corrupt(err, fault);
    }
    if (status != KVARVE_OK) {
        batch_deinit(&decoded);
        return status;
    }
    *out = decoded;
    return KVARVE_OK;
}
