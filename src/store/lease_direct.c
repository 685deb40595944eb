/*
 * lease_direct.c - reads from flash straight into the caller's memory.
 *
 * Invariants
 *   I1  A read in flight counts in its pages' io_count and holds them: their places stay theirs.
 *   I2  It is a reader of its lease, which lives until the last one has ended.
 *   I3  Bytes count only after the job that read them found their digest right (P1).
 *
 * Threads: under the store's lock.
 */
#include <errno.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fail.h"
#include "store/lease_private.h"

#define RUN_BYTES (UINT64_C(32) << 20) /* of one call: others' reads come in between */

typedef struct direct_run {
    segment_request request;
    store_lease *lease;
    uint32_t group; /* as the caller numbers them */
    store_direct_read read;
    segment_part parts[]; /* context: the page */
} direct_run;

/* On flash alone, and as long on flash as in memory. */
static bool is_direct(const store_page *page)
{
    return page->flash == FLASH_WRITTEN && page->slot == ARENA_NONE && !page->is_loading &&
           !page->is_damaged && page->size % KVARVE_IO_ALIGNMENT == 0;
}

/* How many pages from `position` on go into `size` bytes and into one run; their bytes. */
static size_t count_direct(const store_lease *lease, uint32_t rank, uint32_t group,
                           uint64_t position, size_t size, size_t *out_bytes)
{
    const uint64_t most = kvarve_max_u64(kvarve_min_u64(size, RUN_BYTES), 1);
    size_t bytes = 0;
    size_t count = 0;

    for (;;) {
        const lease_page *item = lease_find_page(lease, rank, group, position + count);

        if (item == NULL || !is_direct(item->page) || bytes + item->page->size > size ||
            (count > 0 && bytes + item->page->size > most)) {
            break;
        }
        bytes += item->page->size;
        count++;
    }
    *out_bytes = bytes;
    return count;
}

/* Its bytes on flash are wrong, or could not be read. */
static void refuse_page(direct_run *run, store_page *page, int result)
{
    page_mark_damaged(page);
    lease_fail(run->lease, result == -EBADMSG ? KVARVE_MISS_DAMAGED : KVARVE_MISS_IO, run->group);
}

/* `has_run`: false: it could not be submitted. */
static void end_run(direct_run *run, bool has_run)
{
    const store_direct_read read = run->read;
    bool is_right = has_run;

    for (size_t i = 0; i < run->request.part_count; i++) {
        store_page *page = run->parts[i].context;

        page->io_count--;
        if (has_run && run->parts[i].result != 0) {
            refuse_page(run, page, run->parts[i].result);
            is_right = false;
        }
        page_unhold(page);
    }
    lease_reader_left(run->lease);
    kvarve_release(run);
    if (has_run) {
        read.done(read.context, is_right);
    }
}

static void run_done(segment_request *request, void *context)
{
    (void)request;
    end_run(context, true);
}

static void add_part(direct_run *run, store_page *page, size_t at)
{
    page->io_count++; /* I1 */
    page_hold(page);
    run->parts[run->request.part_count++] = (segment_part){.place = page->place,
                                                           .bytes = (char *)run->read.bytes + at,
                                                           .size = page->size,
                                                           .digest = &page->digest,
                                                           .context = page};
}

kvarve_status store_lease_read_direct(store_lease *lease, uint32_t rank, uint32_t group,
                                      uint64_t position, store_direct_read *read, kvarve_error *err)
{
    kvarve_status status = lease_check_group(lease, rank, group, err);
    direct_run *run;
    size_t count;
    size_t at = 0;

    if (status == KVARVE_OK) {
        status = lease_list_pages(lease, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    read->taken = 0;
    count = lease->state == LEASE_FAILED
                ? 0
                : count_direct(lease, rank, group, position, read->size, &read->taken);
    read->pages = count;
    if (count == 0) {
        return KVARVE_OK;
    }
    run = kvarve_allocate(sizeof *run + count * sizeof run->parts[0]);
    if (run == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "lease: a read of %zu pages", count);
    }
    run->lease = lease;
    run->group = group;
    run->read = *read;
    run->request = (segment_request){.parts = run->parts, .done = run_done, .context = run};
    for (size_t i = 0; i < count; i++) {
        store_page *page = lease_find_page(lease, rank, group, position + i)->page;

        add_part(run, page, at);
        at += page->size;
    }
    lease->readers++; /* I2 */
    status = segment_read(lease->store->segments, &run->request, err);
    if (status != KVARVE_OK) {
        end_run(run, false);
    }
    return status;
}
