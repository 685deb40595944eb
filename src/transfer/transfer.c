/*
 * transfer.c - walk the pieces of a page through an engine's regions, copying and digesting each.
 *
 * Invariants
 *
 *   I1  Nothing is touched before group, page and size have been checked; afterwards no address can
 *       leave its region, and no sum can overflow.
 *
 *   I2  One walk serves both directions, so that scatter is the inverse of gather by construction.
 *
 *   I3  The digest is that of the bytes at the destination (hash.h): a page that changes under the
 *       copy is seen too.
 *
 * Threads: any; all state is on the stack. Absent on purpose: devices other than the host.
 */
#include "transfer/transfer.h"

#include <assert.h>
#include <inttypes.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"

static_assert(sizeof(size_t) == sizeof(uint64_t), "a size of a region is a size in memory");

static bool has_rows(const transfer_group *group)
{
    return group->layers[0].row_bytes > 0;
}

/* Checking */

/* One way in which pieces repeat in a region. */
typedef struct repeat {
    uint64_t stride;
    uint32_t count;
} repeat;

/*
 * Widen `extent`, the bytes of what repeats. False when the repeats lie over each other, which
 * would overwrite bytes that have been verified already, or when the sum overflows.
 */
static bool widen(const repeat *by, uint64_t *extent)
{
    uint64_t last;

    if (by->count == 1) {
        return true;
    }
    return by->stride >= *extent && !KVARVE_MUL_OVERFLOWS(by->stride, by->count - 1, &last) &&
           !KVARVE_ADD_OVERFLOWS(last, *extent, extent);
}

static void put_in_order(repeat *a, repeat *b)
{
    if (a->stride > b->stride) {
        const repeat larger = *a;

        *a = *b;
        *b = larger;
    }
}

/*
 * Bytes from the base to the end of the last piece. Engines nest blocks, runs and rows in any
 * order: the smallest stride is the innermost. False as in widen.
 */
static bool region_extent(const transfer_group *group, const transfer_region *region, uint64_t *out)
{
    repeat block = {region->block_stride, group->block_count};
    repeat run = {region->run_stride, region->run_count};
    repeat row = {region->row_stride, group->block_tokens};

    if (region->row_bytes == 0) {
        *out = region->block_bytes;
        return widen(&block, out);
    }
    *out = region->row_bytes;
    put_in_order(&row, &run);
    put_in_order(&run, &block);
    put_in_order(&row, &run);
    return widen(&row, out) && widen(&run, out) && widen(&block, out);
}

static kvarve_status check_shape(const transfer_group *group, uint32_t layer, kvarve_error *err)
{
    const transfer_region *region = &group->layers[layer];
    const bool is_opaque = region->row_bytes == 0;

    if (region->device != TRANSFER_DEVICE_HOST) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED,
                           "group %" PRIu32 " layer %" PRIu32 ": memory of device %" PRIu32
                           ", only the host's (0) can be copied",
                           group->group, layer, region->device);
    }
    if (is_opaque == has_rows(group)) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "group %" PRIu32 " layer %" PRIu32
                           ": opaque blocks and rows do not go together in a group",
                           group->group, layer);
    }
    if (is_opaque && (region->block_bytes == 0 || region->block_bytes > TRANSFER_PAGE_MAX ||
                      region->run_count > 0)) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "group %" PRIu32 " layer %" PRIu32 ": %" PRIu64
                           " bytes a block and %" PRIu32 " runs of no rows",
                           group->group, layer, region->block_bytes, region->run_count);
    }
    if (!is_opaque && (region->run_count == 0 || region->run_count > TRANSFER_RUNS_MAX)) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "group %" PRIu32 " layer %" PRIu32 ": %" PRIu32
                           " runs of rows of %" PRIu32 " bytes, %" PRIu64 " apart",
                           group->group, layer, region->run_count, region->row_bytes,
                           region->row_stride);
    }
    return KVARVE_OK;
}

static kvarve_status check_layer(const transfer_group *group, uint32_t layer, kvarve_error *err)
{
    const transfer_region *region = &group->layers[layer];
    const kvarve_status status = check_shape(group, layer, err);
    uint64_t extent;

    if (status != KVARVE_OK) {
        return status;
    }
    if (region->base == NULL || !region_extent(group, region, &extent) || extent > region->size) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "group %" PRIu32 " layer %" PRIu32 ": %" PRIu32 " blocks, %" PRIu64
                           " bytes apart, do not lie in its %" PRIu64 " bytes",
                           group->group, layer, group->block_count, region->block_stride,
                           region->size);
    }
    return KVARVE_OK;
}

/* Bytes of one token (with rows) or of one block (opaque), over all layers. At most 2^60. */
static uint64_t unit_bytes(const transfer_group *group)
{
    uint64_t bytes = 0;

    for (uint32_t layer = 0; layer < group->layer_count; layer++) {
        const transfer_region *region = &group->layers[layer];

        bytes += region->row_bytes > 0 ? (uint64_t)region->run_count * region->row_bytes
                                       : region->block_bytes;
    }
    return bytes;
}

/* Bytes of a page of this many tokens; UINT64_MAX when that overflows. */
static uint64_t page_bytes(const transfer_group *group, uint32_t tokens)
{
    const uint64_t units = has_rows(group) ? tokens : kvarve_divide_up(tokens, group->block_tokens);
    uint64_t bytes;

    return KVARVE_MUL_OVERFLOWS(unit_bytes(group), units, &bytes) ? UINT64_MAX : bytes;
}

static bool is_span_possible(const transfer_group *group)
{
    const bool is_slice = has_rows(group) && group->span < group->block_tokens;

    return is_slice ? group->block_tokens % group->span == 0
                    : group->span % group->block_tokens == 0;
}

kvarve_status transfer_check_group(const transfer_group *group, kvarve_error *err)
{
    if (group->layers == NULL || group->layer_count == 0 ||
        group->layer_count > TRANSFER_LAYERS_MAX || group->block_count == 0) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "group %" PRIu32 ": %" PRIu32 " layers (1 .. %u) of %" PRIu32 " blocks",
                           group->group, group->layer_count, TRANSFER_LAYERS_MAX,
                           group->block_count);
    }
    if (group->block_tokens == 0 || group->span == 0 || !is_span_possible(group)) {
        return kvarve_fail(
            err, KVARVE_INVALID,
            "group %" PRIu32 ": pages of %" PRIu32 " tokens of blocks of %" PRIu32 "%s",
            group->group, group->span, group->block_tokens, has_rows(group) ? "" : " without rows");
    }
    for (uint32_t layer = 0; layer < group->layer_count; layer++) {
        const kvarve_status status = check_layer(group, layer, err);

        if (status != KVARVE_OK) {
            return status;
        }
    }
    if (page_bytes(group, group->span) > TRANSFER_PAGE_MAX) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "group %" PRIu32 ": a page of %" PRIu32 " tokens has more than %" PRIu32
                           " bytes",
                           group->group, group->span, TRANSFER_PAGE_MAX);
    }
    return KVARVE_OK;
}

kvarve_status transfer_check_page(const transfer_group *group, const transfer_page *page,
                                  kvarve_error *err)
{
    const uint64_t first = page->first_token / group->block_tokens;
    const uint64_t end =
        kvarve_divide_up((uint64_t)page->first_token + page->tokens, group->block_tokens);

    if (page->tokens == 0 || page->tokens > group->span ||
        (!has_rows(group) && page->first_token % group->block_tokens != 0)) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "group %" PRIu32 ": no page of %" PRIu32 " tokens from token %" PRIu32
                           " on (span %" PRIu32 ", blocks of %" PRIu32 "%s)",
                           group->group, page->tokens, page->first_token, group->span,
                           group->block_tokens, has_rows(group) ? "" : " without rows");
    }
    if (page->block_ids == NULL || end > page->block_count) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "group %" PRIu32 ": tokens %" PRIu32 " to %" PRIu64 " need %" PRIu64
                           " blocks, %zu are named",
                           group->group, page->first_token,
                           (uint64_t)page->first_token + page->tokens, end,
                           page->block_ids == NULL ? 0 : page->block_count);
    }
    for (uint64_t i = first; i < end; i++) {
        if (page->block_ids[i] >= group->block_count) {
            return kvarve_fail(err, KVARVE_INVALID,
                               "group %" PRIu32 ": block id %" PRIu32 " at place %" PRIu64
                               " is out of range 0 .. %" PRIu32,
                               group->group, page->block_ids[i], i, group->block_count - 1);
        }
    }
    return KVARVE_OK;
}

uint32_t transfer_page_bytes(const transfer_group *group, uint32_t tokens)
{
    KVARVE_ASSERT(tokens > 0 && tokens <= group->span);
    return (uint32_t)page_bytes(group, tokens);
}

static kvarve_status check_all(const transfer_group *group, const transfer_page *page, size_t size,
                               kvarve_error *err)
{
    kvarve_status status = transfer_check_group(group, err);

    if (status == KVARVE_OK) {
        status = transfer_check_page(group, page, err);
    }
    if (status == KVARVE_OK && size != page_bytes(group, page->tokens)) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "group %" PRIu32 ": a page of %" PRIu32 " tokens has %" PRIu64
                           " bytes, not %zu",
                           group->group, page->tokens, page_bytes(group, page->tokens), size);
    }
    return status;
}

/* Copying */

/* A page under way. One of `to` and `from` is set: the page's bytes, advanced by each piece. */
typedef struct page_walk {
    page_digest_state digest;
    uint8_t *to;
    const uint8_t *from;
} page_walk;

/* The next piece of the page lies at `at` in a region. */
static void copy_piece(page_walk *walk, uint8_t *at, size_t size)
{
    if (walk->to != NULL) {
        page_digest_update_copy(&walk->digest, walk->to, at, size);
        walk->to += size;
    } else {
        page_digest_update_copy(&walk->digest, at, walk->from, size);
        walk->from += size;
    }
}

/* Rows `first` to `first + count` of the run that begins at `run`. */
static void copy_rows(page_walk *walk, const transfer_region *region, uint8_t *run, uint32_t first,
                      uint32_t count)
{
    uint8_t *row = run + first * region->row_stride;

    if (region->row_stride == region->row_bytes) {
        copy_piece(walk, row, (size_t)count * region->row_bytes);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        copy_piece(walk, row + i * region->row_stride, region->row_bytes);
    }
}

/* All rows of the page in one run of one layer, block by block. */
static void walk_run(page_walk *walk, const transfer_group *group, const transfer_page *page,
                     const transfer_region *region, uint32_t run)
{
    uint64_t token = page->first_token;
    const uint64_t end = token + page->tokens;

    while (token < end) {
        const uint32_t row = (uint32_t)(token % group->block_tokens);
        const uint32_t block = page->block_ids[token / group->block_tokens];
        const uint32_t count = (uint32_t)kvarve_min_u64(group->block_tokens - row, end - token);
        uint8_t *base = (uint8_t *)region->base + block * region->block_stride;

        copy_rows(walk, region, base + run * region->run_stride, row, count);
        token += count;
    }
}

static void walk_rows(page_walk *walk, const transfer_group *group, const transfer_page *page)
{
    for (uint32_t layer = 0; layer < group->layer_count; layer++) {
        const transfer_region *region = &group->layers[layer];

        for (uint32_t run = 0; run < region->run_count; run++) {
            walk_run(walk, group, page, region, run);
        }
    }
}

static void walk_blocks(page_walk *walk, const transfer_group *group, const transfer_page *page)
{
    const uint64_t first = page->first_token / group->block_tokens;
    const uint64_t count = kvarve_divide_up(page->tokens, group->block_tokens);

    for (uint64_t i = first; i < first + count; i++) {
        for (uint32_t layer = 0; layer < group->layer_count; layer++) {
            const transfer_region *region = &group->layers[layer];

            copy_piece(walk, (uint8_t *)region->base + page->block_ids[i] * region->block_stride,
                       (size_t)region->block_bytes);
        }
    }
}

static page_digest walk_page(page_walk *walk, const transfer_group *group,
                             const transfer_page *page)
{
    page_digest_begin(&walk->digest);
    if (has_rows(group)) {
        walk_rows(walk, group, page);
    } else {
        walk_blocks(walk, group, page);
    }
    return page_digest_end(&walk->digest);
}

kvarve_status transfer_gather(const transfer_group *group, const transfer_page *page, void *out,
                              size_t size, page_digest *out_digest, kvarve_error *err)
{
    const kvarve_status status = check_all(group, page, size, err); /* I1 */
    page_walk walk;

    if (status != KVARVE_OK) {
        return status;
    }
    walk.to = out;
    walk.from = NULL;
    *out_digest = walk_page(&walk, group, page);
    return KVARVE_OK;
}

kvarve_status transfer_scatter_verified(const transfer_group *group, const transfer_page *page,
                                        const void *bytes, size_t size, const page_digest *expected,
                                        kvarve_error *err)
{
    const kvarve_status status = check_all(group, page, size, err); /* I1 */
    page_digest arrived;
    page_walk walk;

    if (status != KVARVE_OK) {
        return status;
    }
    walk.to = NULL;
    walk.from = bytes;
    arrived = walk_page(&walk, group, page);
    if (!page_digest_is_equal(&arrived, expected)) {
        return kvarve_fail(err, KVARVE_CORRUPT,
                           "group %" PRIu32 ": page of tokens %" PRIu32 " to %" PRIu64
                           " does not match its digest",
                           group->group, page->first_token,
                           (uint64_t)page->first_token + page->tokens);
    }
    return KVARVE_OK;
}

page_digest transfer_copy_in(void *to, const void *from, size_t size)
{
    return page_digest_copy(to, from, size);
}

bool transfer_copy_out(void *to, const void *from, size_t size, const page_digest *expected)
{
    const page_digest arrived = page_digest_copy(to, from, size);

    return page_digest_is_equal(&arrived, expected);
}

bool transfer_verify(const void *bytes, size_t size, const page_digest *expected)
{
    const page_digest digest = page_digest_of(bytes, size);

    return page_digest_is_equal(&digest, expected);
}

page_digest transfer_digest(const void *bytes, size_t size)
{
    return page_digest_of(bytes, size);
}
