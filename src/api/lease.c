/*
 * lease.c - kvarve_find and kvarve_lease_*: decisions under the store's lock, bytes outside it.
 *
 * Every byte that leaves is checked against its page's digest, while it is copied or before its
 * address is given (P1).
 *
 * Threads: any; one rank of a lease is used by one thread at a time.
 */
#include "api/api_private.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"

static door *host_of(const kvarve_lease *lease)
{
    return lease->space->store->door;
}

/* --- find --- */

static kvarve_status take_find_options(kvarve_find_options *out, const kvarve_find_options *given,
                                       kvarve_error *err)
{
    const uint32_t flags = KVARVE_FIND_NEED_OPTIONAL | KVARVE_FIND_NO_DERIVED;

    if (given != NULL && !take_options(out, sizeof *out, given, given->struct_size)) {
        return kvarve_fail(err, KVARVE_INVALID, "find: struct_size %zu is not one of ours",
                           given->struct_size);
    }
    if ((out->flags & ~flags) != 0) {
        return kvarve_fail(err, KVARVE_INVALID, "find: flags %#x: only %#x are known", out->flags,
                           flags);
    }
    return KVARVE_OK;
}

/* A lease that the store knows nothing of yet; NULL: no memory. */
static kvarve_lease *make_lease(kvarve_namespace *space, uint64_t cookie)
{
    kvarve_lease *made = kvarve_allocate(sizeof *made);

    if (made == NULL) {
        return NULL;
    }
    made->copies = kvarve_allocate_array(layout_of(space)->ranks, sizeof(rank_copy));
    if (made->copies == NULL) {
        kvarve_release(made);
        return NULL;
    }
    made->magic = LEASE_MAGIC;
    made->space = space;
    made->cookie = cookie;
    return made;
}

/* Ask the store; `lease`, if there is one, becomes its lease on the longest boundary. */
static kvarve_status find_under_lock(kvarve_namespace *space, const store_query *query,
                                     const kvarve_find_options *options, const store_answer *out,
                                     kvarve_lease *lease, kvarve_error *err)
{
    kvarve_status status;

    door_lock(space->store->door);
    status = ops_of(space)->find(space->name, query, options, out,
                                 lease == NULL ? NULL : &lease->lease, err);
    if (status == KVARVE_OK && lease != NULL) {
        space->references++;
    }
    door_unlock(space->store->door);
    return status;
}

static kvarve_status find(kvarve_namespace *space, const store_query *query,
                          const kvarve_find_options *options, const store_answer *out,
                          kvarve_lease **out_lease, kvarve_error *err)
{
    kvarve_find_options complete = KVARVE_FIND_OPTIONS_INIT;
    kvarve_lease *lease = NULL;
    kvarve_status status = take_find_options(&complete, options, err);

    if (status == KVARVE_OK && out->max > 0) {
        status = check_pointer(out->boundaries, "kvarve_find", "out_boundaries", err);
    }
    if (status == KVARVE_OK && complete.lease != KVARVE_LEASE_NONE) {
        status = check_pointer(out_lease, "kvarve_find", "out_lease", err);
        lease = status == KVARVE_OK ? make_lease(space, complete.cookie) : NULL;
        if (status == KVARVE_OK && lease == NULL) {
            status = kvarve_fail(err, KVARVE_NO_MEMORY, "find: a lease");
        }
    }
    if (status != KVARVE_OK) {
        return status;
    }
    status = find_under_lock(space, query, &complete, out, lease, err);
    if (lease != NULL && status != KVARVE_OK) {
        kvarve_release(lease->copies);
        kvarve_release(lease);
    } else if (lease != NULL) {
        *out_lease = lease;
    }
    return status;
}

/* NOLINTNEXTLINE(readability-function-size): kvarve/checkpoint.h settles the parameters. */
kvarve_status kvarve_find(kvarve_namespace *space, const kvarve_prefix *prefix,
                          const kvarve_find_options *options, kvarve_boundary *out_boundaries,
                          size_t max, size_t *out_count, kvarve_lease **out_lease,
                          kvarve_miss *out_miss, kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    const store_query query = {.prefix = prefix};
    const store_answer out = {
        .boundaries = out_boundaries, .max = max, .count = out_count, .miss = out_miss};
    kvarve_status status = check_namespace(space, "kvarve_find", err);

    if (status == KVARVE_OK) {
        status = check_pointer(prefix, "kvarve_find", "prefix", err);
    }
    return status != KVARVE_OK ? status : find(space, &query, options, &out, out_lease, err);
}

/* NOLINTNEXTLINE(readability-function-size): kvarve/checkpoint.h settles the parameters. */
kvarve_status kvarve_find_points(kvarve_namespace *space, const kvarve_prefix_point *points,
                                 size_t point_count, const kvarve_find_options *options,
                                 kvarve_boundary *out_boundaries, size_t max, size_t *out_count,
                                 kvarve_lease **out_lease, kvarve_miss *out_miss, kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    const store_query query = {.points = points, .point_count = point_count};
    const store_answer out = {
        .boundaries = out_boundaries, .max = max, .count = out_count, .miss = out_miss};
    kvarve_status status = check_namespace(space, "kvarve_find_points", err);

    if (status == KVARVE_OK && (points == NULL || point_count == 0 || point_count > 65536)) {
        status = kvarve_fail(err, KVARVE_INVALID, "find: %zu points, 1 .. 65536", point_count);
    }
    return status != KVARVE_OK ? status : find(space, &query, options, &out, out_lease, err);
}

kvarve_status kvarve_find_all(kvarve_namespace *space, const kvarve_prefix *prefix,
                              const kvarve_find_options *options, uint8_t *bitmap,
                              size_t bitmap_bytes, kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    kvarve_find_options complete = KVARVE_FIND_OPTIONS_INIT;
    kvarve_status status = check_namespace(space, "kvarve_find_all", err);

    if (status == KVARVE_OK) {
        status = check_pointer(prefix, "kvarve_find_all", "prefix", err);
    }
    if (status == KVARVE_OK) {
        status = check_pointer(bitmap, "kvarve_find_all", "bitmap", err);
    }
    if (status == KVARVE_OK) {
        status = take_find_options(&complete, options, err);
    }
    if (status == KVARVE_OK) {
        door_lock(space->store->door);
        status = ops_of(space)->find_all(space->name, prefix, &complete, bitmap, bitmap_bytes, err);
        door_unlock(space->store->door);
    }
    return status;
}

/* --- lease --- */

void kvarve_lease_boundary(const kvarve_lease *lease, kvarve_boundary *out_boundary)
{
    EMBEDDED_CALL(return);
    if (check_lease(lease, "kvarve_lease_boundary", NULL) == KVARVE_OK && out_boundary != NULL) {
        door_lock(host_of(lease));
        ops_of(lease->space)->lease_boundary(lease->lease, out_boundary);
        door_unlock(host_of(lease));
    }
}

kvarve_status kvarve_lease_load(kvarve_lease *lease, uint32_t timeout_ms, kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    kvarve_status status = check_lease(lease, "kvarve_lease_load", err);

    if (status == KVARVE_OK) {
        door_lock(host_of(lease));
        status = ops_of(lease->space)->lease_load(lease->lease, timeout_ms, err);
        door_unlock(host_of(lease));
    }
    return status;
}

kvarve_status kvarve_lease_wait(kvarve_lease *lease, uint32_t timeout_ms, kvarve_miss *out_miss,
                                kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    store_lease_state state = LEASE_LOADING;
    kvarve_status status = check_lease(lease, "kvarve_lease_wait", err);
    uint64_t deadline;

    if (status != KVARVE_OK) {
        return status;
    }
    deadline = door_deadline(host_of(lease), timeout_ms);
    door_lock(host_of(lease));
    do {
        state = ops_of(lease->space)->lease_status(lease->lease, out_miss);
    } while (state == LEASE_LOADING && door_wait(host_of(lease), deadline));
    state = ops_of(lease->space)
                ->lease_status(lease->lease, out_miss); /* its own deadline may just have passed */
    door_unlock(host_of(lease));
    if (state == LEASE_SOFT) {
        return kvarve_fail(err, KVARVE_INVALID, "lease: no load was submitted");
    }
    if (state == LEASE_FAILED) {
        return unless_gone(lease->space->store, KVARVE_MISS, err);
    }
    return state == LEASE_LOADED ? KVARVE_OK : KVARVE_BUSY;
}

kvarve_status kvarve_lease_extent(const kvarve_lease *lease, uint32_t rank, uint32_t group,
                                  uint64_t *out_first, uint64_t *out_pages, uint64_t *out_bytes,
                                  kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    kvarve_status status = check_lease(lease, "kvarve_lease_extent", err);

    if (status == KVARVE_OK && (out_first == NULL || out_pages == NULL || out_bytes == NULL)) {
        status = kvarve_fail(err, KVARVE_INVALID, "lease: out parameters of extent are needed");
    }
    if (status == KVARVE_OK) {
        door_lock(host_of(lease));
        status =
            ops_of(lease->space)
                ->lease_extent(lease->lease, rank, group, out_first, out_pages, out_bytes, err);
        door_unlock(host_of(lease));
    }
    return status;
}

/* --- reading pages --- */

/* One page, waiting for its read for at most the io timeout. */
static kvarve_status begin_read(kvarve_lease *lease, uint32_t rank, uint32_t group,
                                uint64_t position, store_source *out, kvarve_error *err)
{
    const uint64_t deadline = door_deadline(host_of(lease), lease->space->store->io_timeout_ms);
    kvarve_status status;

    door_lock(host_of(lease));
    do {
        status =
            ops_of(lease->space)->lease_page_begin(lease->lease, rank, group, position, out, err);
    } while (status == KVARVE_BUSY && door_wait(host_of(lease), deadline));
    door_unlock(host_of(lease));
    return status == KVARVE_BUSY ? KVARVE_MISS : status;
}

static void end_read(kvarve_lease *lease, const store_source *source, bool is_right)
{
    door_lock(host_of(lease));
    ops_of(lease->space)->lease_page_end(lease->lease, source, true, is_right);
    door_unlock(host_of(lease));
}

/* Ask for the pages that come next, so that their reads run while this one is copied. */
static void read_ahead(kvarve_lease *lease, uint32_t rank, uint32_t group, uint64_t position,
                       uint64_t count)
{
    door_lock(host_of(lease));
    ops_of(lease->space)->lease_read_ahead(lease->lease, rank, group, position, count);
    door_unlock(host_of(lease));
}

kvarve_status lease_copy_page(lease_reader *at, kvarve_error *err)
{
    store_source source;
    bool is_right;
    const kvarve_status status =
        begin_read(at->lease, at->rank, at->group, at->position, &source, err);

    if (status != KVARVE_OK) {
        return status;
    }
    if (source.size > at->size) {
        end_read(at->lease, &source, true);
        return kvarve_fail(err, KVARVE_INVALID,
                           "lease: page %llu of group %u has %u bytes, there is room for %zu",
                           (unsigned long long)at->position, at->group, source.size, at->size);
    }
    is_right = transfer_copy_out(at->bytes, source.address, source.size, &source.digest);
    end_read(at->lease, &source, is_right);
    at->position++;
    at->bytes += source.size;
    at->size -= source.size;
    return is_right ? KVARVE_OK : KVARVE_MISS;
}

kvarve_status kvarve_lease_read(kvarve_lease *lease, uint32_t rank, uint32_t group,
                                uint64_t position, void *bytes, size_t size, kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    lease_reader at = {lease, rank, group, position, bytes, size};
    uint64_t ahead = 0;
    kvarve_status status = check_lease(lease, "kvarve_lease_read", err);

    if (status == KVARVE_OK && (bytes == NULL || size == 0)) {
        status = kvarve_fail(err, KVARVE_INVALID, "lease: no room to read group %u into", group);
    }
    while (status == KVARVE_OK && at.size > 0) {
        if (at.position >= ahead) {
            const uint32_t page = group < layout_of(lease->space)->group_count
                                      ? layout_of(lease->space)->groups[group].page_bytes
                                      : 1;
            const uint64_t count = kvarve_divide_up(
                kvarve_min_u64(at.size, lease->space->store->read_ahead_bytes), page);

            read_ahead(lease, rank, group, at.position, count);
            ahead = at.position + kvarve_max_u64(count / 2, 1);
        }
        status = lease_copy_page(&at, err);
    }
    return status;
}

/* Check one page in place; its slot stays pinned by the loaded lease. */
static kvarve_status view_page(kvarve_lease *lease, uint32_t rank, uint32_t group,
                               uint64_t position, kvarve_page_view *out, kvarve_error *err)
{
    store_source source;
    bool is_right;
    kvarve_status status = begin_read(lease, rank, group, position, &source, err);

    if (status != KVARVE_OK) {
        return status;
    }
    is_right = source.is_verified || transfer_verify(source.address, source.size, &source.digest);
    *out = (kvarve_page_view){.group = group,
                              .tokens = source.tokens,
                              .position = position,
                              .first_token = source.first_token,
                              .address = source.address,
                              .size = source.size};
    end_read(lease, &source, is_right);
    return is_right ? KVARVE_OK : KVARVE_MISS;
}

/* The pages of one group in place, as far as there is room for; `count` goes on either way. */
static kvarve_status view_group(kvarve_lease *lease, uint32_t rank, uint32_t group,
                                kvarve_page_view *out_pages, size_t max, size_t *count,
                                kvarve_error *err)
{
    uint64_t first = 0;
    uint64_t pages = 0;
    uint64_t bytes = 0;
    kvarve_status status = kvarve_lease_extent(lease, rank, group, &first, &pages, &bytes, err);

    for (uint64_t i = 0; i < pages && status == KVARVE_OK; i++, (*count)++) {
        if (*count < max && out_pages != NULL) {
            status = view_page(lease, rank, group, first + i, &out_pages[*count], err);
        }
    }
    return status;
}

kvarve_status kvarve_lease_pages(kvarve_lease *lease, uint32_t rank, kvarve_page_view *out_pages,
                                 size_t max, size_t *out_count, kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    size_t count = 0;
    uint32_t groups;
    kvarve_status status = check_lease(lease, "kvarve_lease_pages", err);

    if (status == KVARVE_OK) {
        status = check_pointer(out_count, "kvarve_lease_pages", "out_count", err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    status = kvarve_lease_wait(lease, 0, NULL, err);
    if (status != KVARVE_OK) {
        return status == KVARVE_UNAVAILABLE || status == KVARVE_MISS /* met damage */
                   ? status
                   : kvarve_fail(err, KVARVE_INVALID, "lease: pages in place need a loaded lease");
    }
    groups = layout_of(lease->space)->group_count;
    for (uint32_t group = 0; group < groups && status == KVARVE_OK; group++) {
        status = view_group(lease, rank, group, out_pages, max, &count, err);
    }
    if (status == KVARVE_OK) {
        *out_count = count;
    }
    return status;
}

/* --- into registered regions --- */

typedef struct scatter_run scatter_run;

typedef struct scatter_job {
    transfer_job job; /* first */
    scatter_run *run;
    store_source source;
} scatter_job;

struct scatter_run {
    kvarve_lease *lease;
    uint32_t rank;
    size_t pending;
    bool is_good;
    block_lists blocks;
    scatter_job jobs[];
};

static void free_scatter(scatter_run *run)
{
    kvarve_release(run->blocks.ids);
    kvarve_release(run);
}

static void end_scatter(scatter_run *run)
{
    kvarve_lease *lease = run->lease;

    lease->copies[run->rank].state = run->is_good ? COPY_GOOD : COPY_BAD;
    lease->runs--;
    door_tell(host_of(lease), &(kvarve_event){.kind = KVARVE_EVENT_COPIED,
                                              .rank = run->rank,
                                              .status = run->is_good ? KVARVE_OK : KVARVE_MISS,
                                              .cookie = lease->cookie});
    free_scatter(run);
}

static void scatter_done(kvarve_job *base)
{
    scatter_job *job = (scatter_job *)(void *)base;
    scatter_run *run = job->run;
    const bool is_right = job->job.status == KVARVE_OK;

    run->is_good = run->is_good && is_right;
    ops_of(run->lease->space)->lease_page_end(run->lease->lease, &job->source, true, is_right);
    if (--run->pending == 0) {
        end_scatter(run);
    }
}

static kvarve_status add_scatter(scatter_run *run, uint32_t group, uint64_t position,
                                 uint64_t first_token, const uint32_t *blocks, size_t block_count,
                                 kvarve_error *err)
{
    kvarve_lease *lease = run->lease;
    const kvarve_group *description = &layout_of(lease->space)->groups[group];
    const bool has_tokens = description->page_class <= KVARVE_CLASS_WINDOW;
    const transfer_group *regions = &lease->space->ranks[run->rank].groups[group];
    scatter_job *job = &run->jobs[run->pending];
    kvarve_status status;

    if (regions->layer_count == 0 || blocks == NULL || (!has_tokens && position > 0)) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "lease: group %u has no regions, no blocks, or parts", group);
    }
    status = ops_of(lease->space)
                 ->lease_page_begin(lease->lease, run->rank, group, position, &job->source, err);
    if (status != KVARVE_OK) {
        return status;
    }
    transfer_job_init(&job->job, TRANSFER_SCATTER, scatter_done);
    job->run = run;
    job->job.group = regions;
    job->job.page = (transfer_page){
        .block_ids = blocks,
        .block_count = block_count,
        .first_token = has_tokens ? (uint32_t)(job->source.first_token - first_token) : 0,
        .tokens = has_tokens ? job->source.tokens : 1};
    job->job.from = job->source.address;
    job->job.size = job->source.size;
    job->job.digest = job->source.digest;
    run->pending++;
    return transfer_check_page(regions, &job->job.page, err);
}

static kvarve_status prepare_scatter(scatter_run *run, kvarve_error *err)
{
    kvarve_lease *lease = run->lease;
    const uint32_t groups = layout_of(lease->space)->group_count;
    kvarve_status status = KVARVE_OK;

    for (uint32_t group = 0; group < groups && status == KVARVE_OK; group++) {
        const kvarve_group *description = &layout_of(lease->space)->groups[group];
        uint64_t first = 0;
        uint64_t pages = 0;
        uint64_t bytes = 0;
        uint64_t first_token;

        status = ops_of(lease->space)
                     ->lease_extent(lease->lease, run->rank, group, &first, &pages, &bytes, err);
        first_token =
            description->page_class == KVARVE_CLASS_WINDOW ? first * description->span_tokens : 0;
        for (uint64_t i = 0; i < pages && status == KVARVE_OK; i++) {
            status = add_scatter(run, group, first + i, first_token, run->blocks.of_group[group],
                                 run->blocks.counts[group], err);
        }
    }
    return status;
}

static kvarve_status count_pages(const kvarve_lease *lease, uint32_t rank, size_t *out,
                                 kvarve_error *err)
{
    const uint32_t groups = layout_of(lease->space)->group_count;
    kvarve_status status = KVARVE_OK;

    *out = 0;
    for (uint32_t group = 0; group < groups && status == KVARVE_OK; group++) {
        uint64_t first = 0;
        uint64_t pages = 0;
        uint64_t bytes = 0;

        status = ops_of(lease->space)
                     ->lease_extent(lease->lease, rank, group, &first, &pages, &bytes, err);
        *out += (size_t)pages;
    }
    return status;
}

/* Under the lock. All pages are checked before the first destination byte is touched. */
static kvarve_status submit_scatter(kvarve_lease *lease, uint32_t rank,
                                    const uint32_t *const *blocks, const size_t *block_counts,
                                    kvarve_error *err)
{
    kvarve_executor *executor = door_env(host_of(lease))->executor;
    scatter_run *run;
    size_t count = 0;
    kvarve_status status = count_pages(lease, rank, &count, err);

    if (status != KVARVE_OK) {
        return status;
    }
    run = kvarve_allocate(sizeof *run + count * sizeof(scatter_job));
    if (run == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "lease: copies of %zu pages", count);
    }
    run->lease = lease;
    run->rank = rank;
    run->is_good = true;
    status = blocks_keep(lease->space, blocks, block_counts, &run->blocks, err);
    if (status == KVARVE_OK) {
        status = prepare_scatter(run, err);
    }
    if (status != KVARVE_OK) {
        for (size_t i = 0; i < run->pending; i++) {
            ops_of(lease->space)->lease_page_end(lease->lease, &run->jobs[i].source, false, true);
        }
        free_scatter(run);
        return status == KVARVE_BUSY ? KVARVE_MISS : status;
    }
    lease->copies[rank].state = COPY_RUNNING;
    lease->runs++;
    count = run->pending;
    run->pending++;
    for (size_t i = 0; i < count; i++) {
        executor->submit(executor, &run->jobs[i].job.base);
    }
    if (--run->pending == 0) {
        end_scatter(run);
    }
    return KVARVE_OK;
}

kvarve_status lease_check_rank(const kvarve_lease *lease, uint32_t rank, kvarve_error *err)
{
    if (rank >= layout_of(lease->space)->ranks) {
        return kvarve_fail(err, KVARVE_INVALID, "lease: rank %u: 0 .. %u", rank,
                           layout_of(lease->space)->ranks - 1);
    }
    return KVARVE_OK;
}

static kvarve_status check_copy(const kvarve_lease *lease, uint32_t rank, kvarve_error *err)
{
    const kvarve_status status = lease_check_rank(lease, rank, err);

    if (status != KVARVE_OK) {
        return status;
    }
    if (lease->space->ranks[rank].groups == NULL) {
        return kvarve_fail(err, KVARVE_INVALID, "lease: rank %u has no registered regions", rank);
    }
    return KVARVE_OK;
}

kvarve_status kvarve_lease_copy(kvarve_lease *lease, uint32_t rank, const uint32_t *const *blocks,
                                const size_t *block_counts, uint64_t ready_event, kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    kvarve_status status = check_lease(lease, "kvarve_lease_copy", err);

    if (status == KVARVE_OK && (blocks == NULL || block_counts == NULL)) {
        status = kvarve_fail(err, KVARVE_INVALID, "lease: blocks and block_counts are needed");
    }
    if (status == KVARVE_OK && ready_event != 0) {
        status = kvarve_fail(err, KVARVE_UNSUPPORTED, "lease: ready events of devices, only 0");
    }
    if (status == KVARVE_OK) {
        status = check_copy(lease, rank, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    status = kvarve_lease_wait(lease, 0, NULL, err);
    if (status != KVARVE_OK) {
        return status == KVARVE_UNAVAILABLE || status == KVARVE_MISS /* met damage */
                   ? status
                   : kvarve_fail(err, KVARVE_INVALID, "lease: a copy needs a loaded lease");
    }
    door_lock(host_of(lease));
    if (lease->copies[rank].state == COPY_RUNNING) {
        status = kvarve_fail(err, KVARVE_INVALID, "lease: a copy of rank %u is running", rank);
    } else {
        status = submit_scatter(lease, rank, blocks, block_counts, err);
    }
    door_unlock(host_of(lease));
    return status;
}

kvarve_status kvarve_lease_copy_wait(kvarve_lease *lease, uint32_t rank, uint32_t timeout_ms,
                                     kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    copy_state state = COPY_RUNNING;
    uint64_t deadline;
    kvarve_status status = check_lease(lease, "kvarve_lease_copy_wait", err);

    if (status == KVARVE_OK) {
        status = lease_check_rank(lease, rank, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    deadline = door_deadline(host_of(lease), timeout_ms);
    door_lock(host_of(lease));
    do {
        state = lease->copies[rank].state;
    } while (state == COPY_RUNNING && door_wait(host_of(lease), deadline));
    door_unlock(host_of(lease));
    if (state == COPY_NONE) {
        return kvarve_fail(err, KVARVE_INVALID, "lease: no copy of rank %u was submitted", rank);
    }
    return state == COPY_GOOD ? KVARVE_OK : state == COPY_BAD ? KVARVE_MISS : KVARVE_BUSY;
}

void lease_free(kvarve_lease *lease)
{
    namespace_unreference(lease->space);
    kvarve_release(lease->copies);
    kvarve_release(lease);
}

void kvarve_lease_release(kvarve_lease **lease)
{
    EMBEDDED_CALL(return);
    kvarve_lease *gone;
    kvarve_status status;
    kvarve_store *store;
    bool is_left;

    if (lease == NULL) {
        return;
    }
    gone = *lease;
    status = gone == NULL || gone->magic != LEASE_MAGIC
                 ? KVARVE_INVALID
                 : check_release(gone->space, "kvarve_lease_release");
    if (status == KVARVE_OK || status == KVARVE_UNAVAILABLE) { /* it stays with a failed store */
        *lease = NULL;
    }
    if (status != KVARVE_OK) {
        return;
    }
    store = gone->space->store;
    door_lock(store->door);
    while (gone->runs > 0) { /* its copies write the caller's memory: they end soon, and first */
        (void)door_wait(store->door, KVARVE_NEVER);
    }
    gone->magic = 0;
    gone->is_released = true;
    ops_of(gone->space)->lease_release(gone->lease);
    if (gone->reads == 0) { /* else the last of them does it: the disk may hang */
        lease_free(gone);
    }
    is_left = store_is_left(store);
    door_unlock(store->door);
    if (is_left) {
        store_end(store);
    }
}
