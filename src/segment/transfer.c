/*
 * transfer.c - requests that write or read pages, and the one that writes a record.
 *
 * The parts are sorted by place. Neighbouring slots that their pages fill make one call, up to
 * 4 MiB: an extent. Each extent is a job, so that the pool works on several at once.
 *
 * Invariants
 *   I1  One allocation a request: an operation, its jobs, the vectors of all parts.
 *   I2  Each part gets the result of a call that covered it alone or together with parts that have
 *       the same result. A read of an extent that fails is repeated part by part, so that one bad
 *       sector costs one page. A write is not: the caller has other slots.
 *   I3  Memory, offsets and sizes are multiples of 4096, direct or not.
 *
 * Threads: as segment_private.h; parts of an extent are touched by its job alone until `done`.
 */
#include "segment/segment_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"
#include "env/io_all.h"
#include "hash/hash.h"

#define EXTENT_BYTES_MAX (UINT64_C(4) << 20)

typedef struct extent_job {
    segment_job base;
    segment_part *parts;
    size_t part_count;
    struct iovec *vectors; /* one a part */
    uint64_t offset;
    uint64_t moved_bytes; /* given to calls */
} extent_job;

typedef struct transfer_operation {
    segment_operation base;
    bool is_write;
    extent_job jobs[];
} transfer_operation;

static uint64_t padded_size(const segment_part *part)
{
    return kvarve_round_up(part->size, BATCH_BLOCK);
}

static int compare_parts(const void *a, const void *b)
{
    const segment_part *x = a;
    const segment_part *y = b;

    if (x->place.segment != y->place.segment) {
        return x->place.segment < y->place.segment ? -1 : 1;
    }
    return x->place.slot < y->place.slot ? -1 : x->place.slot > y->place.slot;
}

static void sort_parts(segment_part *parts, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (compare_parts(&parts[i - 1], &parts[i]) > 0) {
            qsort(parts, count, sizeof *parts, compare_parts);
            return;
        }
    }
}

/* How many of the `count` sorted parts, at least one, make one extent. */
static size_t extent_length(const segment_part *parts, size_t count, uint32_t slot_bytes)
{
    uint64_t bytes = padded_size(&parts[0]);
    size_t length = 1;

    while (length < count) {
        const segment_part *before = &parts[length - 1];
        const segment_part *part = &parts[length];

        bytes += padded_size(part);
        if (part->place.segment != before->place.segment ||
            part->place.slot != before->place.slot + 1 || padded_size(before) != slot_bytes ||
            bytes > EXTENT_BYTES_MAX) {
            break;
        }
        length++;
    }
    return length;
}

static size_t count_extents(const segment_set *set, const segment_request *request)
{
    size_t count = 0;
    size_t at = 0;

    while (at < request->part_count) {
        const segment_part *part = &request->parts[at];
        const segment_file *file = segment_find(set, part->place.segment);

        KVARVE_ASSERT(file != NULL);
        at += extent_length(part, request->part_count - at, file->head.slot_bytes);
        count++;
    }
    return count;
}

static void set_results(extent_job *extent, int result)
{
    for (size_t i = 0; i < extent->part_count; i++) {
        extent->parts[i].result = result;
    }
}

/* The bytes that the extent covers, with its vectors made for a call. */
static uint64_t prepare_vectors(extent_job *extent)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < extent->part_count; i++) {
        const uint64_t size = padded_size(&extent->parts[i]);

        extent->vectors[i] =
            (struct iovec){.iov_base = extent->parts[i].bytes, .iov_len = (size_t)size};
        bytes += size;
    }
    return bytes;
}

static void run_write(kvarve_job *job)
{
    extent_job *extent = (extent_job *)job;
    kvarve_io *io = extent->base.operation->set->env->io;

    extent->moved_bytes = prepare_vectors(extent);
    extent->base.result = io_write_parts(io, extent->base.file->fd, extent->vectors,
                                         extent->part_count, extent->offset);
    set_results(extent, extent->base.result);
}

/* Each part alone; the result is that of the first one that fails. */
static int read_apart(kvarve_io *io, extent_job *extent)
{
    uint64_t offset = extent->offset;
    int result = 0;

    for (size_t i = 0; i < extent->part_count; i++) {
        segment_part *part = &extent->parts[i];
        const uint64_t size = padded_size(part);

        part->result = io_read_all(io, extent->base.file->fd, part->bytes, (size_t)size, offset);
        if (result == 0) {
            result = part->result;
        }
        offset += size; /* All parts but the last fill their slots. */
    }
    return result;
}

/* The digests that were asked for. 0, or the result of the first part that is wrong. */
static int verify_parts(const extent_job *extent)
{
    int result = 0;

    for (size_t i = 0; i < extent->part_count; i++) {
        segment_part *part = &extent->parts[i];

        if (part->result == 0 && part->digest != NULL) {
            const page_digest digest = page_digest_of(part->bytes, part->size);

            part->result =
                memcmp(digest.bytes, part->digest->bytes, sizeof digest.bytes) == 0 ? 0 : -EBADMSG;
        }
        if (result == 0) {
            result = part->result;
        }
    }
    return result;
}

static void run_read(kvarve_job *job)
{
    extent_job *extent = (extent_job *)job;
    kvarve_io *io = extent->base.operation->set->env->io;

    extent->moved_bytes = prepare_vectors(extent);
    extent->base.result = io_read_parts(io, extent->base.file->fd, extent->vectors,
                                        extent->part_count, extent->offset);
    set_results(extent, extent->base.result);
    if (extent->base.result < 0 && extent->part_count > 1) { /* I2 */
        extent->base.result = read_apart(io, extent);
    }
    extent->base.result = verify_parts(extent);
}

static void extent_done(kvarve_job *job)
{
    extent_job *extent = (extent_job *)job;
    const transfer_operation *operation =
        (const transfer_operation *)(const void *)extent->base.operation;
    segment_counters *counters = &extent->base.operation->set->counters;

    if (operation->is_write) {
        counters->payload_bytes_written += extent->moved_bytes;
    } else {
        counters->bytes_read += extent->moved_bytes;
    }
    operation_end_job(&extent->base);
}

/* The request's status is that of the first part that failed. */
static void conclude_transfer(segment_operation *base)
{
    const transfer_operation *operation = (const transfer_operation *)(const void *)base;
    const segment_request *request = base->request;

    for (size_t i = 0; i < request->part_count; i++) {
        const segment_part *part = &request->parts[i];

        if (part->result < 0) {
            const segment_file *file = segment_find(base->set, part->place.segment);

            operation_fail(base, part->result,
                           operation->is_write ? "write pages to" : "read pages of", &file->head);
            return;
        }
    }
}

/* Fill the jobs in; all parts have their places checked. */
static void add_extents(transfer_operation *operation, struct iovec *vectors)
{
    segment_set *set = operation->base.set;
    segment_request *request = operation->base.request;
    extent_job *extent = operation->jobs;
    size_t at = 0;

    while (at < request->part_count) {
        segment_part *part = &request->parts[at];
        segment_file *file = segment_find(set, part->place.segment);

        extent->parts = part;
        extent->part_count = extent_length(part, request->part_count - at, file->head.slot_bytes);
        extent->vectors = vectors + at;
        extent->offset = segment_slot_offset(&file->head, part->place.slot);
        operation_add_job(&operation->base, &extent->base, file,
                          operation->is_write ? KVARVE_LANE_WRITE : KVARVE_LANE_READ,
                          operation->is_write ? run_write : run_read, extent_done);
        at += extent->part_count;
        extent++;
    }
}

static kvarve_status transfer(segment_set *set, segment_request *request, bool is_write,
                              kvarve_error *err)
{
    transfer_operation *operation;
    struct iovec *vectors;
    size_t job_count;
    size_t size;

    if (request->part_count == 0) {
        return operation_submit_nothing(set, request, KVARVE_OK, NULL, err);
    }
    for (size_t i = 0; i < request->part_count; i++) {
        const segment_part *part = &request->parts[i];

        KVARVE_ASSERT(segment_place_is_valid(set, part->place, part->size));
        KVARVE_ASSERT((uintptr_t)part->bytes % KVARVE_IO_ALIGNMENT == 0); /* I3 */
    }
    sort_parts(request->parts, request->part_count);
    job_count = count_extents(set, request);
    size = sizeof *operation + job_count * sizeof operation->jobs[0];
    operation = operation_create(set, request, size + request->part_count * sizeof *vectors,
                                 conclude_transfer);
    if (operation == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "memory for a request of %zu pages",
                           request->part_count);
    }
    vectors = (struct iovec *)(void *)&operation->jobs[job_count];
    operation->is_write = is_write;
    add_extents(operation, vectors);
    for (size_t i = 0; i < job_count; i++) {
        operation_submit(&operation->jobs[i].base);
    }
    return KVARVE_OK;
}

kvarve_status segment_write(segment_set *set, segment_request *request, kvarve_error *err)
{
    const kvarve_status status = segment_check_writable(set, err);

    return status != KVARVE_OK ? status : transfer(set, request, true, err);
}

kvarve_status segment_read(segment_set *set, segment_request *request, kvarve_error *err)
{
    return transfer(set, request, false, err);
}

/* --- one record --- */

typedef struct header_operation {
    segment_operation base;
    segment_job job;
    const void *bytes;
    header_place place;
} header_operation;

static void run_header(kvarve_job *job)
{
    segment_job *own = (segment_job *)job;
    const header_operation *operation = (const header_operation *)(const void *)own->operation;

    own->result = io_write_all(operation->base.set->env->io, own->file->fd, operation->bytes,
                               (size_t)operation->place.blocks * BATCH_BLOCK,
                               (uint64_t)operation->place.block * BATCH_BLOCK);
}

static void header_done(kvarve_job *job)
{
    segment_job *own = (segment_job *)job;
    const header_operation *operation = (const header_operation *)(const void *)own->operation;

    own->operation->set->counters.header_bytes_written +=
        (uint64_t)operation->place.blocks * BATCH_BLOCK;
    if (own->result < 0) {
        operation_fail(own->operation, own->result, "write a record to", &own->file->head);
    }
    operation_end_job(own);
}

kvarve_status segment_write_header(segment_set *set, header_place place, const void *bytes,
                                   segment_request *request, kvarve_error *err)
{
    const kvarve_status status = segment_check_writable(set, err);
    header_operation *operation;

    if (status != KVARVE_OK) {
        return status;
    }
    KVARVE_ASSERT(segment_header_is_valid(set, place));
    KVARVE_ASSERT((uintptr_t)bytes % KVARVE_IO_ALIGNMENT == 0);
    operation = operation_create(set, request, sizeof *operation, NULL);
    if (operation == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "memory to write a record");
    }
    operation->bytes = bytes;
    operation->place = place;
    operation_add_job(&operation->base, &operation->job, segment_find(set, place.segment),
                      KVARVE_LANE_WRITE, run_header, header_done);
    operation_submit(&operation->job);
    return KVARVE_OK;
}
