/*
 * lease_direct.c - kvarve_lease_read_direct: from flash into the caller's memory, past the arena.
 *
 * Two runs of reads are in flight, so that the disk has work while the first one's end is noticed.
 * What is in the arena already is copied from there by kvarve_lease_read, a page at a time.
 *
 * Threads: any; one rank of a lease is used by one thread at a time.
 */
#include "api/api_private.h"

#include "base/alloc.h"
#include "base/fail.h"

#define RUNS_MAX 2u

typedef struct direct_run {
    kvarve_lease *lease;
    uint32_t rank;
} direct_run;

static void end_late(kvarve_lease *lease, uint32_t rank)
{
    lease->copies[rank].state = COPY_BAD;
    lease->copies[rank].is_late = false;
    door_tell(lease->space->store->door, &(kvarve_event){.kind = KVARVE_EVENT_COPIED,
                                                         .rank = rank,
                                                         .status = KVARVE_MISS,
                                                         .cookie = lease->cookie});
}

static void run_done(void *context, bool is_right)
{
    direct_run *run = context;
    kvarve_lease *lease = run->lease;
    rank_copy *copy = &lease->copies[run->rank];

    copy->has_failed = copy->has_failed || !is_right;
    copy->reads--;
    lease->reads--;
    if (copy->reads == 0 && copy->is_late) {
        end_late(lease, run->rank);
    }
    if (lease->reads == 0 && lease->is_released) {
        lease_free(lease);
    }
    kvarve_release(run);
}

/* Submit the next run; *out_pages 0: the next page is not on flash alone. */
static kvarve_status submit_run(lease_reader *call, uint64_t *out_pages, kvarve_error *err)
{
    direct_run *run = kvarve_allocate(sizeof *run);
    store_direct_read read = {
        .bytes = call->bytes, .size = call->size, .done = run_done, .context = run};
    kvarve_status status;

    if (run == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "lease: a read");
    }
    *run = (direct_run){.lease = call->lease, .rank = call->rank};
    status = ops_of(call->lease->space)
                 ->lease_read_direct(call->lease->lease, call->rank, call->group, call->position,
                                     &read, err);
    if (status != KVARVE_OK || read.pages == 0) {
        kvarve_release(run);
        return status;
    }
    call->lease->copies[call->rank].reads++;
    call->lease->reads++;
    call->position += read.pages;
    call->bytes += read.taken;
    call->size -= read.taken;
    *out_pages = read.pages;
    return KVARVE_OK;
}

/* Wait for a run to end; false: the deadline came first, and the reads are on their own now. */
static bool await_run(const lease_reader *call, uint64_t deadline)
{
    rank_copy *copy = &call->lease->copies[call->rank];
    const uint32_t reads = copy->reads;

    while (copy->reads == reads) {
        if (!door_wait(call->lease->space->store->door, deadline)) {
            copy->is_late = true;
            copy->state = COPY_RUNNING;
            return false;
        }
    }
    return true;
}

/* Submit runs as they fit, until a page comes that is in the arena or all is read. Under the lock.
 */
static kvarve_status read_runs(lease_reader *call, kvarve_error *err)
{
    door *host = call->lease->space->store->door;
    const uint32_t timeout_ms = call->lease->space->store->io_timeout_ms;
    rank_copy *copy = &call->lease->copies[call->rank];
    bool has_more = true;
    kvarve_status status = KVARVE_OK;

    while (copy->reads > 0 || (has_more && call->size > 0)) {
        uint64_t pages = 0;

        if (has_more && call->size > 0 && copy->reads < RUNS_MAX && !copy->has_failed) {
            status = submit_run(call, &pages, err);
            has_more = status == KVARVE_OK && pages > 0;
        } else if (copy->reads == 0) {
            break;
        } else if (!await_run(call, door_deadline(host, timeout_ms))) {
            return KVARVE_BUSY;
        }
    }
    return status == KVARVE_OK && copy->has_failed ? KVARVE_MISS : status;
}

static kvarve_status check_call(const lease_reader *call, kvarve_error *err)
{
    kvarve_status status = check_lease(call->lease, "kvarve_lease_read_direct", err);

    if (status == KVARVE_OK) {
        status = lease_check_rank(call->lease, call->rank, err);
    }
    if (status == KVARVE_OK && (call->bytes == NULL || call->size == 0 ||
                                (uintptr_t)call->bytes % KVARVE_IO_ALIGNMENT != 0)) {
        status = kvarve_fail(err, KVARVE_INVALID,
                             "lease: a direct read needs room that starts at a multiple of %u",
                             (unsigned)KVARVE_IO_ALIGNMENT);
    }
    return status;
}

kvarve_status kvarve_lease_read_direct(kvarve_lease *lease, uint32_t rank, uint32_t group,
                                       uint64_t position, void *bytes, size_t size,
                                       kvarve_error *err)
{
    EMBEDDED_CALL(return embedded_call_failed(err));
    lease_reader call = {lease, rank, group, position, bytes, size};
    kvarve_status status = check_call(&call, err);

    while (status == KVARVE_OK && call.size > 0) {
        door_lock(lease->space->store->door);
        if (lease->copies[rank].state == COPY_RUNNING) {
            status = kvarve_fail(err, KVARVE_INVALID, "lease: rank %u is being written", rank);
        } else {
            lease->copies[rank].has_failed = false;
            status = read_runs(&call, err);
        }
        door_unlock(lease->space->store->door);
        if (status == KVARVE_OK && call.size > 0) {
            status = lease_copy_page(&call, err);
        }
    }
    return status;
}
