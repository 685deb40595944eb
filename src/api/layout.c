/*
 * layout.c - namespaces and the memory of a paged engine.
 *
 * Threads: any; a rank's regions are registered before they are used, by one thread.
 */
#include "api/api_private.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fail.h"

static void free_regions(rank_regions *regions)
{
    kvarve_release(regions->layers);
    kvarve_release(regions->groups);
    *regions = (rank_regions){0};
}

void namespace_unreference(kvarve_namespace *space)
{
    if (--space->references > 0) {
        return;
    }
    for (uint32_t i = 0; i < layout_of(space)->ranks; i++) {
        free_regions(&space->ranks[i]);
    }
    ops_of(space)->namespace_release(space->name);
    space->store->namespaces--;
    space->magic = 0;
    kvarve_release(space->ranks);
    kvarve_release(space);
}

kvarve_status kvarve_namespace_open(kvarve_store *store, const kvarve_namespace_options *options,
                                    kvarve_namespace **out_namespace, kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    kvarve_namespace_options complete = KVARVE_NAMESPACE_OPTIONS_INIT;
    kvarve_namespace *space;
    kvarve_status status = check_store(store, "kvarve_namespace_open", err);

    if (status == KVARVE_OK) {
        status = check_pointer(options, "kvarve_namespace_open", "options", err);
    }
    if (status == KVARVE_OK) {
        status = check_pointer(out_namespace, "kvarve_namespace_open", "out_namespace", err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    if (!take_options(&complete, sizeof complete, options, options->struct_size)) {
        return kvarve_fail(err, KVARVE_INVALID, "namespace: struct_size %zu is not one of ours",
                           options->struct_size);
    }
    complete.struct_size = sizeof complete;
    space = kvarve_allocate(sizeof *space);
    if (space == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "namespace: its handle");
    }
    space->store = store;
    door_lock(store->door);
    status = store->door->ops->namespace_open(store->door, &complete, &space->name, err);
    if (status == KVARVE_OK) {
        space->ranks = kvarve_allocate_array(layout_of(space)->ranks, sizeof(rank_regions));
        if (space->ranks == NULL) {
            ops_of(space)->namespace_release(space->name);
            status = kvarve_fail(err, KVARVE_NO_MEMORY, "namespace: its ranks");
        }
    }
    store->namespaces += status == KVARVE_OK;
    door_unlock(store->door);
    if (status != KVARVE_OK) {
        kvarve_release(space);
        return status;
    }
    space->magic = NAMESPACE_MAGIC;
    space->references = 1;
    *out_namespace = space;
    return KVARVE_OK;
}

void kvarve_namespace_release(kvarve_namespace **space)
{
    EMBEDDED_CALL(return);
    kvarve_namespace *gone;
    kvarve_status status;

    if (space == NULL) {
        return;
    }
    gone = *space;
    status = check_release(gone, "kvarve_namespace_release");
    if (status == KVARVE_OK || status == KVARVE_UNAVAILABLE) { /* it stays with a failed store */
        *space = NULL;
    }
    if (status == KVARVE_OK) {
        kvarve_store *store = gone->store;
        bool is_left;

        door_lock(store->door);
        namespace_unreference(gone);
        is_left = store_is_left(store);
        door_unlock(store->door);
        if (is_left) {
            store_end(store);
        }
    }
}

const char *kvarve_namespace_text(const kvarve_namespace *space)
{
    EMBEDDED_CALL(return "");
    return check_namespace(space, "kvarve_namespace_text", NULL) == KVARVE_OK
               ? layout_of(space)->text
               : "";
}

/* --- regions --- */

static bool has_rows(const kvarve_group *group)
{
    return group->page_class <= KVARVE_CLASS_WINDOW && (group->flags & KVARVE_GROUP_ROWS) != 0;
}

static kvarve_status check_region(const kvarve_namespace *space, const kvarve_region *region,
                                  size_t at, kvarve_error *err)
{
    if (region->group >= layout_of(space)->group_count) {
        return kvarve_fail(err, KVARVE_INVALID, "region %zu: group %u: 0 .. %u", at, region->group,
                           layout_of(space)->group_count - 1);
    }
    if (region->device != TRANSFER_DEVICE_HOST) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED, "region %zu: device %u: only 0 (host memory)",
                           at, region->device);
    }
    if (region->base == NULL || region->row_bytes == 0 ||
        region->row_bytes > KVARVE_PAGE_BYTES_MAX || region->run_count == 0 ||
        region->run_count > TRANSFER_RUNS_MAX || region->block_count == 0) {
        return kvarve_fail(
            err, KVARVE_INVALID,
            "region %zu: base, row_bytes 1 .. 2^30, run_count 1 .. %u and block_count are needed",
            at, TRANSFER_RUNS_MAX);
    }
    return KVARVE_OK;
}

static kvarve_status fill_layer(const kvarve_region *region, uint32_t block_tokens, bool is_rows,
                                transfer_region *out, kvarve_error *err)
{
    uint64_t run;
    uint64_t block;
    uint64_t size;

    if (KVARVE_MUL_OVERFLOWS(region->row_bytes, (uint64_t)block_tokens, &run) ||
        KVARVE_MUL_OVERFLOWS(run, (uint64_t)region->run_count, &block) ||
        (region->block_count > 1 && region->block_stride < block) ||
        KVARVE_MUL_OVERFLOWS(region->block_stride, (uint64_t)region->block_count - 1, &size) ||
        KVARVE_ADD_OVERFLOWS(size, block, &size)) {
        return kvarve_fail(
            err, KVARVE_INVALID,
            "region of group %u: %u runs of %llu bytes a row do not fit its stride %llu",
            region->group, region->run_count, (unsigned long long)region->row_bytes,
            (unsigned long long)region->block_stride);
    }
    *out = (transfer_region){.base = region->base,
                             .size = size,
                             .block_stride = region->block_stride,
                             .device = region->device};
    if (is_rows) {
        out->run_stride = run;
        out->row_stride = region->row_bytes;
        out->run_count = region->run_count;
        out->row_bytes = (uint32_t)region->row_bytes;
    } else {
        out->block_bytes = block;
    }
    return KVARVE_OK;
}

/* What a rank registers, and where the layers go that it makes. */
typedef struct registration {
    const kvarve_namespace *space;
    const kvarve_region *regions;
    size_t region_count;
    transfer_region *layers; /* of all groups, group after group */
    size_t used;             /* of these */
} registration;

/* All layers of one group, and whether they make its page. */
static kvarve_status fill_group(registration *from, uint32_t group_index, uint32_t block_tokens,
                                transfer_group *out, kvarve_error *err)
{
    const kvarve_namespace *space = from->space;
    const kvarve_region *regions = from->regions;
    const kvarve_group *group = &layout_of(space)->groups[group_index];
    const bool is_token_group = group->page_class <= KVARVE_CLASS_WINDOW;
    const uint32_t tokens = is_token_group ? block_tokens : 1;
    kvarve_status status = KVARVE_OK;

    *out = (transfer_group){.layers = &from->layers[from->used],
                            .group = group_index,
                            .block_count = UINT32_MAX,
                            .block_tokens = tokens,
                            .span = is_token_group ? group->span_tokens : 1};
    if (tokens == 0) {
        return kvarve_fail(err, KVARVE_INVALID, "regions of group %u: block_tokens is 0",
                           group_index);
    }
    if (is_token_group && !has_rows(group) && tokens != group->span_tokens) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "regions of group %u: blocks of %u tokens: a group without rows needs "
                           "its span, %u",
                           group_index, tokens, group->span_tokens);
    }
    for (size_t i = 0; i < from->region_count && status == KVARVE_OK; i++) {
        if (regions[i].group == group_index) {
            status =
                fill_layer(&regions[i], tokens, has_rows(group), &from->layers[from->used++], err);
            out->layer_count++;
            out->block_count = regions[i].block_count < out->block_count ? regions[i].block_count
                                                                         : out->block_count;
        }
    }
    if (status != KVARVE_OK || out->layer_count == 0) {
        return status;
    }
    status = transfer_check_group(out, err);
    if (status == KVARVE_OK && transfer_page_bytes(out, out->span) != group->page_bytes) {
        status = kvarve_fail(err, KVARVE_INVALID,
                             "regions of group %u make a page of %u bytes, the group has %u",
                             group_index, transfer_page_bytes(out, out->span), group->page_bytes);
    }
    return status;
}

kvarve_status kvarve_regions_register(kvarve_namespace *space, uint32_t rank,
                                      const kvarve_region *regions, size_t region_count,
                                      const uint32_t *block_tokens, kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    rank_regions made = {0};
    registration from = {.space = space, .regions = regions, .region_count = region_count};
    uint32_t groups;
    kvarve_status status = check_namespace(space, "kvarve_regions_register", err);

    if (status == KVARVE_OK && (regions == NULL || block_tokens == NULL || region_count == 0 ||
                                region_count > TRANSFER_LAYERS_MAX)) {
        status = kvarve_fail(err, KVARVE_INVALID, "regions: %zu of them, 1 .. %u are needed",
                             region_count, TRANSFER_LAYERS_MAX);
    }
    if (status == KVARVE_OK && rank >= layout_of(space)->ranks) {
        status = kvarve_fail(err, KVARVE_INVALID, "regions: rank %u: 0 .. %u", rank,
                             layout_of(space)->ranks - 1);
    }
    for (size_t i = 0; i < region_count && status == KVARVE_OK; i++) {
        status = check_region(space, &regions[i], i, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    groups = layout_of(space)->group_count;
    made.layers = kvarve_allocate_array(region_count, sizeof(transfer_region));
    made.groups = kvarve_allocate_array(groups, sizeof(transfer_group));
    if (made.layers == NULL || made.groups == NULL) {
        free_regions(&made);
        return kvarve_fail(err, KVARVE_NO_MEMORY, "regions of rank %u", rank);
    }
    from.layers = made.layers;
    for (uint32_t g = 0; g < groups && status == KVARVE_OK; g++) {
        status = fill_group(&from, g, block_tokens[g], &made.groups[g], err);
    }
    if (status != KVARVE_OK) {
        free_regions(&made);
        return status;
    }
    door_lock(space->store->door);
    free_regions(&space->ranks[rank]);
    space->ranks[rank] = made;
    door_unlock(space->store->door);
    return KVARVE_OK;
}

/* --- block ids of a copy --- */

kvarve_status blocks_keep(const kvarve_namespace *space, const uint32_t *const *blocks,
                          const size_t *block_counts, block_lists *out, kvarve_error *err)
{
    const uint32_t groups = layout_of(space)->group_count;
    size_t total = 1; /* of no ids there is an array, too */
    size_t used = 0;

    *out = (block_lists){.ids = NULL};
    for (uint32_t g = 0; g < groups; g++) {
        if (blocks[g] != NULL && KVARVE_ADD_OVERFLOWS(total, block_counts[g], &total)) {
            return kvarve_fail(err, KVARVE_INVALID, "group %u has %zu blocks", g, block_counts[g]);
        }
    }
    out->ids = kvarve_allocate_array(total, sizeof *out->ids);
    if (out->ids == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "a copy of %zu block ids", total);
    }
    for (uint32_t g = 0; g < groups; g++) {
        if (blocks[g] != NULL) {
            memcpy(out->ids + used, blocks[g], block_counts[g] * sizeof *out->ids);
            out->of_group[g] = out->ids + used;
            out->counts[g] = block_counts[g];
            used += block_counts[g];
        }
    }
    return KVARVE_OK;
}
