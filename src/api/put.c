/*
 * put.c - kvarve_put_*: decisions under the store's lock, bytes outside it.
 *
 * Threads: any; one rank of a put is used by one thread at a time.
 */
#include "api/api_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"

static door *host_of(const kvarve_put *put)
{
    return put->space->store->door;
}

static kvarve_status take_put_options(kvarve_put_options *out, const kvarve_put_options *given,
                                      kvarve_error *err)
{
    const uint32_t flags = KVARVE_PUT_DROP_ON_WAIT | KVARVE_PUT_NO_OPTIONAL;

    if (given == NULL || !take_options(out, sizeof *out, given, given->struct_size)) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "put: options with a struct_size of ours are needed");
    }
    if ((out->flags & ~flags) != 0) {
        return kvarve_fail(err, KVARVE_INVALID, "put: flags %#x: only %#x are known", out->flags,
                           flags);
    }
    if (out->digest_count > 0 && out->digests == NULL) {
        return kvarve_fail(err, KVARVE_INVALID, "put: %u digests, but the pointer is NULL",
                           out->digest_count);
    }
    return KVARVE_OK;
}

kvarve_status kvarve_put_begin(kvarve_namespace *space, const kvarve_prefix *prefix,
                               const kvarve_put_options *options, kvarve_put **out_put,
                               kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    kvarve_put_options complete = KVARVE_PUT_OPTIONS_INIT;
    kvarve_put *put;
    kvarve_status status = check_namespace(space, "kvarve_put_begin", err);

    if (status == KVARVE_OK) {
        status = check_pointer(prefix, "kvarve_put_begin", "prefix", err);
    }
    if (status == KVARVE_OK) {
        status = check_pointer(out_put, "kvarve_put_begin", "out_put", err);
    }
    if (status == KVARVE_OK) {
        status = take_put_options(&complete, options, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    put = kvarve_allocate(sizeof *put);
    if (put == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "put: its handle");
    }
    door_lock(space->store->door);
    status = ops_of(space)->put_begin(space->name, prefix, &complete, &put->put, err);
    if (status == KVARVE_OK) {
        space->references++;
    }
    door_unlock(space->store->door);
    if (status != KVARVE_OK) {
        kvarve_release(put);
        return status;
    }
    put->magic = PUT_MAGIC;
    put->space = space;
    *out_put = put;
    return KVARVE_OK;
}

uint32_t kvarve_put_status(const kvarve_put *put)
{
    EMBEDDED_CALL(return KVARVE_PUT_ABORTED);
    uint32_t state = KVARVE_PUT_ABORTED;

    if (check_put(put, "kvarve_put_status", NULL) == KVARVE_OK) {
        door_lock(host_of(put));
        state = ops_of(put->space)->put_state(put->put);
        door_unlock(host_of(put));
    }
    return state;
}

uint32_t kvarve_put_refusal(const kvarve_put *put)
{
    EMBEDDED_CALL(return KVARVE_REFUSED_FAILED);
    const kvarve_status status = check_put(put, "kvarve_put_refusal", NULL);
    uint32_t refusal = status == KVARVE_UNAVAILABLE ? KVARVE_REFUSED_FAILED : KVARVE_REFUSED_CALLER;

    if (status == KVARVE_OK) {
        door_lock(host_of(put));
        refusal = ops_of(put->space)->put_refusal(put->put);
        door_unlock(host_of(put));
    }
    return refusal;
}

kvarve_status kvarve_put_id(const kvarve_put *put, uint8_t out_id[32], kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    kvarve_status status = check_put(put, "kvarve_put_id", err);

    if (status == KVARVE_OK) {
        status = check_pointer(out_id, "kvarve_put_id", "out_id", err);
    }
    if (status == KVARVE_OK) {
        door_lock(host_of(put));
        status = ops_of(put->space)->put_id(put->put, out_id, err);
        door_unlock(host_of(put));
    }
    return status;
}

/* Has the put come as far as `wanted`? KVARVE_BUSY: not yet. */
static kvarve_status has_reached(const kvarve_put *put, uint32_t wanted)
{
    const uint32_t state = ops_of(put->space)->put_state(put->put);

    if (state == KVARVE_PUT_ABORTED) {
        return KVARVE_MISS;
    }
    if (state == KVARVE_PUT_PRESENT || state == KVARVE_PUT_DURABLE) {
        return KVARVE_OK;
    }
    if (ops_of(put->space)->put_refusal(put->put) != KVARVE_REFUSED_NOT) {
        return KVARVE_MISS; /* its deadline passed; the commit goes on without us */
    }
    if (wanted == KVARVE_PUT_STAGED && ops_of(put->space)->put_is_settling(put->put)) {
        return KVARVE_BUSY; /* an open put: it can be extended when the pages before are sealed */
    }
    return state >= wanted ? KVARVE_OK : KVARVE_BUSY;
}

kvarve_status kvarve_put_wait(kvarve_put *put, uint32_t state, uint32_t timeout_ms,
                              kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    kvarve_status status = check_put(put, "kvarve_put_wait", err);
    uint64_t deadline;

    if (status != KVARVE_OK) {
        return status;
    }
    if (state < KVARVE_PUT_STAGED || state > KVARVE_PUT_DURABLE) {
        return kvarve_fail(err, KVARVE_INVALID, "put: wait for state %u: 1 .. 3", state);
    }
    deadline = door_deadline(host_of(put), timeout_ms);
    door_lock(host_of(put));
    for (;;) {
        status = has_reached(put, state);
        if (status != KVARVE_BUSY) {
            break;
        }
        if (!door_wait(host_of(put), deadline)) {
            status = has_reached(put, state); /* its own deadline may just have passed */
            break;
        }
    }
    door_unlock(host_of(put));
    return status == KVARVE_MISS ? unless_gone(put->space->store, status, err) : status;
}

static int compare_plans(const void *a, const void *b)
{
    const kvarve_page_plan *x = a;
    const kvarve_page_plan *y = b;

    if (x->group != y->group) {
        return x->group < y->group ? -1 : 1;
    }
    return (x->position > y->position) - (x->position < y->position);
}

/* All entries, sorted; *out is released by the caller. */
static kvarve_status take_plan(kvarve_put *put, uint32_t rank, kvarve_page_plan **out,
                               size_t *out_count, kvarve_error *err)
{
    kvarve_page_plan *plan = NULL;
    size_t count = 0;
    kvarve_status status;

    door_lock(host_of(put));
    status = ops_of(put->space)->put_plan(put->put, rank, NULL, 0, &count, err);
    if (status == KVARVE_OK) {
        plan = kvarve_allocate_array(count + 1, sizeof *plan);
        status = plan == NULL
                     ? kvarve_fail(err, KVARVE_NO_MEMORY, "put: a plan of %zu", count)
                     : ops_of(put->space)->put_plan(put->put, rank, plan, count, &count, err);
    }
    door_unlock(host_of(put));
    if (plan == NULL || status != KVARVE_OK) {
        kvarve_release(plan);
        return status;
    }
    qsort(plan, count, sizeof *plan, compare_plans);
    *out = plan;
    *out_count = count;
    return KVARVE_OK;
}

kvarve_status kvarve_put_plan(kvarve_put *put, uint32_t rank, kvarve_page_plan *out_pages,
                              size_t max, size_t *out_count, kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    kvarve_page_plan *plan = NULL;
    size_t count = 0;
    kvarve_status status = check_put(put, "kvarve_put_plan", err);

    if (status == KVARVE_OK) {
        status = check_pointer(out_count, "kvarve_put_plan", "out_count", err);
    }
    if (status == KVARVE_OK && max > 0) {
        status = check_pointer(out_pages, "kvarve_put_plan", "out_pages", err);
    }
    if (status == KVARVE_OK) {
        status = take_plan(put, rank, &plan, &count, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    if (max > 0 && count > 0) {
        memcpy(out_pages, plan, (count < max ? count : max) * sizeof *plan);
    }
    kvarve_release(plan);
    *out_count = count;
    return KVARVE_OK;
}

/* --- bytes from the caller --- */

/* Begin the copy of one page, waiting for room and for other puts until the put is over. */
static kvarve_status begin_copy(kvarve_put *put, uint32_t rank, uint32_t group, uint64_t position,
                                store_target *out, kvarve_error *err)
{
    kvarve_status status;

    door_lock(host_of(put));
    do {
        status = ops_of(put->space)->put_copy_begin(put->put, rank, group, position, out, err);
    } while (status == KVARVE_BUSY && door_wait(host_of(put), KVARVE_NEVER));
    door_unlock(host_of(put));
    return status;
}

static kvarve_status copy_page(kvarve_put *put, const store_target *target, const void *bytes,
                               kvarve_error *err)
{
    page_digest digest;
    bool is_right;

    if (target->page == NULL) {
        return KVARVE_OK;
    }
    digest = transfer_copy_in(target->address, bytes, target->size);
    is_right = !target->has_expected || page_digest_is_equal(&digest, &target->expected);
    door_lock(host_of(put));
    ops_of(put->space)->put_copy_end(put->put, target, is_right ? &digest : NULL);
    door_unlock(host_of(put));
    return is_right ? KVARVE_OK
                    : kvarve_fail(err, KVARVE_CORRUPT,
                                  "put: page %llu of group %u is not what its digest says",
                                  (unsigned long long)target->position, target->group);
}

static kvarve_status write_pages(kvarve_put *put, uint32_t rank, uint32_t group, uint64_t position,
                                 const void *bytes, size_t size, kvarve_error *err)
{
    const uint8_t *at = bytes;
    kvarve_status status = KVARVE_OK;

    while (status == KVARVE_OK && size > 0) {
        store_target target;

        status = begin_copy(put, rank, group, position, &target, err);
        if (status != KVARVE_OK) {
            break;
        }
        if (target.size > size) {
            door_lock(host_of(put));
            ops_of(put->space)->put_copy_end(put->put, &target, NULL);
            door_unlock(host_of(put));
            return kvarve_fail(err, KVARVE_INVALID,
                               "put: page %llu of group %u has %u bytes, %zu were given",
                               (unsigned long long)position, group, target.size, size);
        }
        status = copy_page(put, &target, at, err);
        at += target.size;
        size -= target.size;
        position++;
    }
    return status;
}

kvarve_status kvarve_put_write(kvarve_put *put, uint32_t rank, uint32_t group, uint64_t position,
                               const void *bytes, size_t size, kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    kvarve_status status = check_put(put, "kvarve_put_write", err);

    if (status == KVARVE_OK && (bytes == NULL || size == 0)) {
        status = kvarve_fail(err, KVARVE_INVALID, "put: no bytes for group %u", group);
    }
    return status == KVARVE_OK ? write_pages(put, rank, group, position, bytes, size, err) : status;
}

/* --- bytes from registered regions --- */

typedef struct gather_job {
    transfer_job job; /* first */
    copy_run *run;
    store_target target;
} gather_job;

struct copy_run {
    kvarve_put *put;
    uint32_t rank;
    size_t pending;
    bool is_good;
    block_lists blocks;
    gather_job jobs[];
};

static void free_run(copy_run *run)
{
    if (run != NULL) {
        kvarve_release(run->blocks.ids);
        kvarve_release(run);
    }
}

static void end_run(copy_run *run)
{
    kvarve_put *put = run->put;
    kvarve_status status = KVARVE_OK;

    if (run->is_good) {
        status = ops_of(put->space)->put_ack(put->put, run->rank, NULL, 0, NULL);
    } else {
        status = ops_of(put->space)->put_fail(put->put, run->rank, NULL);
    }
    (void)status; /* an aborted put is told by its state */
    put->runs--;
    free_run(run);
}

static void gather_done(kvarve_job *base)
{
    gather_job *job = (gather_job *)(void *)base;
    copy_run *run = job->run;
    const bool is_right = job->job.status == KVARVE_OK &&
                          (!job->target.has_expected ||
                           page_digest_is_equal(&job->job.digest, &job->target.expected));

    run->is_good = run->is_good && is_right;
    ops_of(run->put->space)
        ->put_copy_end(run->put->put, &job->target, is_right ? &job->job.digest : NULL);
    if (--run->pending == 0) {
        end_run(run);
    }
}

/* The caller's blocks of one group. */
typedef struct group_blocks {
    const uint32_t *ids;
    size_t count;
    uint64_t first_token; /* of the first one */
} group_blocks;

/* Which tokens of the caller's blocks a page is. */
static kvarve_status page_of_blocks(const kvarve_put *put, const kvarve_page_plan *plan,
                                    const transfer_group *group, const group_blocks *blocks,
                                    transfer_page *out, kvarve_error *err)
{
    const kvarve_group *description = &layout_of(put->space)->groups[plan->group];
    const bool has_tokens = description->page_class <= KVARVE_CLASS_WINDOW;

    if (group->layer_count == 0 || blocks->ids == NULL) {
        return kvarve_fail(err, KVARVE_INVALID, "put: group %u has no regions or no blocks",
                           plan->group);
    }
    if (!has_tokens && plan->position > 0) {
        return kvarve_fail(err, KVARVE_INVALID, "put: group %u is split into parts, a block is one",
                           plan->group);
    }
    *out = (transfer_page){.block_ids = blocks->ids,
                           .block_count = blocks->count,
                           .first_token =
                               has_tokens ? (uint32_t)(plan->first_token - blocks->first_token) : 0,
                           .tokens = has_tokens ? plan->tokens : 1};
    return transfer_check_page(group, out, err);
}

static kvarve_status prepare_run(kvarve_put *put, copy_run *run, const kvarve_page_plan *plan,
                                 size_t count, kvarve_error *err)
{
    const rank_regions *regions = &put->space->ranks[run->rank];
    uint64_t first[KVARVE_GROUPS_MAX] = {0};
    kvarve_status status = KVARVE_OK;

    /* A window's blocks begin at its first page, which may be another rank's to copy. */
    for (uint32_t g = 0; g < layout_of(put->space)->group_count; g++) {
        if (layout_of(put->space)->groups[g].page_class == KVARVE_CLASS_WINDOW) {
            first[g] = ops_of(put->space)->put_first_token(put->put, g);
        }
    }
    for (size_t i = 0; i < count && status == KVARVE_OK; i++) {
        gather_job *job = &run->jobs[run->pending];
        group_blocks of_group;

        if (plan[i].action != KVARVE_PAGE_COPY) {
            continue;
        }
        transfer_job_init(&job->job, TRANSFER_GATHER, gather_done);
        job->run = run;
        job->job.group = &regions->groups[plan[i].group];
        of_group = (group_blocks){.ids = run->blocks.of_group[plan[i].group],
                                  .count = run->blocks.counts[plan[i].group],
                                  .first_token = first[plan[i].group]};
        status = page_of_blocks(put, &plan[i], job->job.group, &of_group, &job->job.page, err);
        job->job.to = plan[i].address;
        job->job.size = plan[i].size;
        job->target.group = plan[i].group;
        job->target.position = plan[i].position;
        run->pending += status == KVARVE_OK;
    }
    return status;
}

/* All checks are made: from here on every page is copied. */
static void start_run(copy_run *run)
{
    kvarve_put *put = run->put;
    kvarve_executor *executor = door_env(host_of(put))->executor;
    const size_t count = run->pending;

    run->is_good = true;
    run->pending = count + 1; /* one for this loop */
    put->runs++;
    for (size_t i = 0; i < count; i++) {
        gather_job *job = &run->jobs[i];
        const kvarve_status status = ops_of(put->space)
                                         ->put_copy_begin(put->put, run->rank, job->target.group,
                                                          job->target.position, &job->target, NULL);

        if (status != KVARVE_OK || job->target.page == NULL) {
            run->is_good = run->is_good && status == KVARVE_OK;
            run->pending--;
            continue;
        }
        executor->submit(executor, &job->job.base);
    }
    if (--run->pending == 0) {
        end_run(run);
    }
}

/* Under the lock. */
static kvarve_status submit_copy(kvarve_put *put, uint32_t rank, const uint32_t *const *blocks,
                                 const size_t *block_counts, kvarve_error *err)
{
    kvarve_page_plan *plan;
    copy_run *run;
    size_t count = 0;
    kvarve_status status = ops_of(put->space)->put_plan(put->put, rank, NULL, 0, &count, err);

    if (status != KVARVE_OK) {
        return status;
    }
    plan = kvarve_allocate_array(count + 1, sizeof *plan);
    run = kvarve_allocate(sizeof *run + count * sizeof(gather_job));
    if (plan == NULL || run == NULL) {
        kvarve_release(plan);
        free_run(run);
        return kvarve_fail(err, KVARVE_NO_MEMORY, "put: copies of %zu pages", count);
    }
    run->put = put;
    run->rank = rank;
    status = blocks_keep(put->space, blocks, block_counts, &run->blocks, err);
    if (status == KVARVE_OK) {
        status = ops_of(put->space)->put_plan(put->put, rank, plan, count, &count, err);
    }
    if (status == KVARVE_OK) {
        status = prepare_run(put, run, plan, count, err);
    }
    kvarve_release(plan);
    if (status != KVARVE_OK) {
        free_run(run);
        return status;
    }
    start_run(run);
    return KVARVE_OK;
}

kvarve_status kvarve_put_copy(kvarve_put *put, uint32_t rank, const uint32_t *const *blocks,
                              const size_t *block_counts, uint64_t ready_event, kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    kvarve_status status = check_put(put, "kvarve_put_copy", err);

    if (status != KVARVE_OK) {
        return status;
    }
    if (blocks == NULL || block_counts == NULL) {
        return kvarve_fail(err, KVARVE_INVALID, "put: blocks and block_counts are needed");
    }
    if (ready_event != 0) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED, "put: ready events of devices, only 0");
    }
    if (rank >= layout_of(put->space)->ranks) {
        return kvarve_fail(err, KVARVE_INVALID, "put: rank %u: 0 .. %u", rank,
                           layout_of(put->space)->ranks - 1);
    }
    if (put->space->ranks[rank].groups == NULL) {
        return kvarve_fail(err, KVARVE_INVALID, "put: rank %u has no registered regions", rank);
    }
    door_lock(host_of(put));
    status = submit_copy(put, rank, blocks, block_counts, err);
    door_unlock(host_of(put));
    return status;
}

/* --- the rest --- */

kvarve_status kvarve_put_ack(kvarve_put *put, uint32_t rank, const kvarve_page_digest *digests,
                             size_t digest_count, kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    kvarve_status status = check_put(put, "kvarve_put_ack", err);

    if (status == KVARVE_OK && digest_count > 0) {
        status = check_pointer(digests, "kvarve_put_ack", "digests", err);
    }
    if (status == KVARVE_OK) {
        door_lock(host_of(put));
        status = ops_of(put->space)->put_ack(put->put, rank, digests, digest_count, err);
        door_unlock(host_of(put));
    }
    return status;
}

kvarve_status kvarve_put_fail(kvarve_put *put, uint32_t rank, kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    kvarve_status status = check_put(put, "kvarve_put_fail", err);

    if (status == KVARVE_OK) {
        door_lock(host_of(put));
        status = ops_of(put->space)->put_fail(put->put, rank, err);
        door_unlock(host_of(put));
    }
    return status;
}

kvarve_status kvarve_put_extend(kvarve_put *put, const kvarve_prefix *prefix, uint64_t tokens,
                                const kvarve_page_digest *digests, size_t digest_count,
                                kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    kvarve_status status = check_put(put, "kvarve_put_extend", err);

    if (status == KVARVE_OK) {
        status = check_pointer(prefix, "kvarve_put_extend", "prefix", err);
    }
    if (status == KVARVE_OK && digest_count > 0) {
        status = check_pointer(digests, "kvarve_put_extend", "digests", err);
    }
    if (status == KVARVE_OK) {
        door_lock(host_of(put));
        status =
            ops_of(put->space)->put_extend(put->put, prefix, tokens, digests, digest_count, err);
        door_unlock(host_of(put));
    }
    return status;
}

kvarve_status kvarve_put_close(kvarve_put *put, const kvarve_prefix *prefix,
                               const kvarve_put_options *options, kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    kvarve_put_options complete = KVARVE_PUT_OPTIONS_INIT;
    kvarve_status status = check_put(put, "kvarve_put_close", err);

    if (status == KVARVE_OK) {
        status = check_pointer(prefix, "kvarve_put_close", "prefix", err);
    }
    if (status == KVARVE_OK) {
        status = take_put_options(&complete, options, err);
    }
    if (status == KVARVE_OK) {
        door_lock(host_of(put));
        status = ops_of(put->space)->put_close(put->put, prefix, &complete, err);
        door_unlock(host_of(put));
    }
    return status;
}

void kvarve_put_abort(kvarve_put *put)
{
    EMBEDDED_CALL(return);
    if (check_put(put, "kvarve_put_abort", NULL) == KVARVE_OK) {
        door_lock(host_of(put));
        ops_of(put->space)->put_abort(put->put, KVARVE_REFUSED_CALLER);
        door_unlock(host_of(put));
    }
}

void kvarve_put_release(kvarve_put **put)
{
    EMBEDDED_CALL(return);
    kvarve_put *gone;
    kvarve_status status;
    kvarve_store *store;
    bool is_left;

    if (put == NULL) {
        return;
    }
    gone = *put;
    status = gone == NULL || gone->magic != PUT_MAGIC
                 ? KVARVE_INVALID
                 : check_release(gone->space, "kvarve_put_release");
    if (status == KVARVE_OK || status == KVARVE_UNAVAILABLE) { /* it stays with a failed store */
        *put = NULL;
    }
    if (status != KVARVE_OK) {
        return;
    }
    store = gone->space->store;
    door_lock(store->door);
    while (gone->runs > 0) { /* its copies read the caller's memory: they end soon, and first */
        (void)door_wait(store->door, KVARVE_NEVER);
    }
    ops_of(gone->space)->put_release(gone->put);
    namespace_unreference(gone->space);
    is_left = store_is_left(store);
    door_unlock(store->door);
    gone->magic = 0;
    kvarve_release(gone);
    if (is_left) {
        store_end(store);
    }
}

/* --- many at once --- */

/* Write all sections and acknowledge all ranks. What is known is skipped, so this may be repeated.
 */
static kvarve_status hand_over(const kvarve_bulk_item *item, kvarve_put *put, kvarve_error *err)
{
    const uint32_t ranks = layout_of(put->space)->ranks;
    kvarve_status status = KVARVE_OK;

    for (size_t i = 0; i < item->section_count && status == KVARVE_OK; i++) {
        const kvarve_section *section = &item->sections[i];

        status = kvarve_put_write(put, section->rank, section->group, section->position,
                                  section->bytes, section->size, err);
    }
    for (uint32_t rank = 0; rank < ranks && status == KVARVE_OK; rank++) {
        do {
            status = kvarve_put_ack(put, rank, NULL, 0, err);
        } while (status == KVARVE_BUSY &&
                 kvarve_put_wait(put, KVARVE_PUT_STAGED, KVARVE_NO_TIMEOUT, NULL) == KVARVE_OK);
    }
    return status == KVARVE_MISS ? KVARVE_OK : status; /* refused: its state says so */
}

#define LOOK_AGAIN_MS 20u

/* Wait for the end. A page that another put was copying may be left to this one: hand it over. */
static void settle_item(kvarve_bulk_item *item, kvarve_put **put)
{
    if (*put == NULL) {
        return;
    }
    while (kvarve_put_wait(*put, KVARVE_PUT_DURABLE, LOOK_AGAIN_MS, NULL) == KVARVE_BUSY &&
           !door_is_still(host_of(*put))) {
        (void)!hand_over(item, *put, NULL); /* a second ack with nothing asked is refused: well */
    }
    item->out_state = kvarve_put_status(*put);
    item->out_refusal = kvarve_put_refusal(*put);
    kvarve_put_release(put);
}

kvarve_status kvarve_put_many(kvarve_namespace *space, kvarve_bulk_item *items, size_t count,
                              kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    kvarve_put **puts;
    kvarve_status status = check_namespace(space, "kvarve_put_many", err);

    if (status != KVARVE_OK) {
        return status;
    }
    if (items == NULL || count == 0 || count > KVARVE_BULK_MAX) {
        return kvarve_fail(err, KVARVE_INVALID, "put_many: %zu items, 1 .. %u", count,
                           KVARVE_BULK_MAX);
    }
    puts = kvarve_allocate_array(count, sizeof(kvarve_put *));
    if (puts == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "put_many: %zu items", count);
    }
    for (size_t i = 0; i < count; i++) {
        items[i].out_state = KVARVE_PUT_ABORTED;
        items[i].out_refusal = KVARVE_REFUSED_CALLER;
    }
    for (size_t i = 0; i < count && status == KVARVE_OK; i++) {
        status = kvarve_put_begin(space, items[i].prefix, items[i].options, &puts[i], err);
        status = status == KVARVE_OK ? hand_over(&items[i], puts[i], err) : status;
        if (status != KVARVE_OK) {
            kvarve_put_abort(puts[i]); /* nobody will fill it */
        }
    }
    for (size_t i = 0; i < count; i++) {
        settle_item(&items[i], &puts[i]);
    }
    kvarve_release(puts);
    if (status == KVARVE_OK) {
        status = check_namespace(space, "kvarve_put_many", err); /* the store failed meanwhile? */
    }
    return status;
}
