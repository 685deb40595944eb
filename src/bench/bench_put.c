/*
 * bench_put.c - a durable put and a verified restore of 413 MB, beside plain direct I/O and memcpy
 * of the same bytes.
 *
 * The checkpoint is 60 pages of 6,893,568 bytes of one attention group, handed over in place: the
 * bytes are in the arena already, as a caller that writes in place leaves them, and the pool takes
 * the digests.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "bench/bench_private.h"
#include "env/thread.h"

#define PAGE_BYTES  6893568u
#define PAGES       60u
#define CHURN_PAGE  262144u
#define CHURN_CAP   (UINT64_C(2) << 30)
#define CHURN_TIMES 10u
#define CHURN_LEAST 16u /* pages of the smallest put */
#define PIECE       (UINT32_C(1) << 20)

typedef struct put_work {
    bench_context *bench;
    kvarve_store *store;
    kvarve_namespace *space;
    kvarve_prefix *prefix;
    uint32_t page_bytes;
    uint32_t pages;
    size_t bytes;
    void *buffer; /* what is stored */
    void *target; /* where it is restored to */
} put_work;

/* An engine's arena was allocated long before its first restore; what runs beside would be measured
 * too. */
static void wait_for_arena(kvarve_store *store)
{
    kvarve_statistics now;

    for (uint32_t i = 0; i < 6000; i++) {
        bench_statistics(store, &now);
        if (now.arena_bytes_populated >= now.arena_bytes) {
            return;
        }
        sleep_ms(10);
    }
}

static kvarve_status open_store(put_work *work, uint64_t cap, kvarve_error *err)
{
    kvarve_store_options options = KVARVE_STORE_OPTIONS_INIT;
    kvarve_namespace_options name = KVARVE_NAMESPACE_OPTIONS_INIT;
    /* Attention pages of 16 tokens; each run has tokens of its own, so none is shared. */
    const kvarve_group group = {
        .page_class = KVARVE_CLASS_PREFIX, .span_tokens = 16, .page_bytes = work->page_bytes};
    kvarve_status status;

    options.arena_bytes = work->bytes + work->bytes / 8 + (UINT64_C(16) << 20);
    options.flash_bytes_max = cap;
    options.io_timeout_ms = 120000;
    name.identity_json = "{\"model\":\"bench\"}";
    name.groups = &group;
    name.group_count = 1;
    status = kvarve_open(work->bench->store_path, &options, &work->store, err);
    if (status == KVARVE_OK) {
        wait_for_arena(work->store);
    }
    return status == KVARVE_OK ? kvarve_namespace_open(work->store, &name, &work->space, err)
                               : status;
}

static void close_store(put_work *work)
{
    kvarve_namespace_release(&work->space);
    kvarve_close(work->store);
    work->store = NULL;
}

/* A prefix of its own for run `seed`, long enough for all pages. */
static kvarve_status new_prefix(put_work *work, uint64_t seed, kvarve_error *err)
{
    uint32_t tokens[16];
    kvarve_status status;

    kvarve_prefix_free(work->prefix);
    work->prefix = NULL;
    status = kvarve_prefix_create(&work->prefix, err);
    for (uint32_t i = 0; i < work->pages && status == KVARVE_OK; i++) {
        bench_tokens(tokens, 16, seed * 100000 + i);
        status = kvarve_prefix_append(work->prefix, tokens, 16, err);
    }
    return status;
}

/* Fill the put's slots without counting the time, then time ack to durable. */
static kvarve_status timed_put(put_work *work, uint64_t seed, double *out_ns, kvarve_error *err)
{
    kvarve_put_options options = KVARVE_PUT_OPTIONS_INIT;
    kvarve_page_plan *plan = kvarve_allocate_array(work->pages, sizeof *plan);
    kvarve_put *put = NULL;
    size_t count = 0;
    uint64_t begin;
    kvarve_status status = plan == NULL ? KVARVE_NO_MEMORY : new_prefix(work, seed, err);

    options.tokens = (uint64_t)work->pages * 16;
    options.kind = KVARVE_KIND_PROMPT;
    if (status == KVARVE_OK) {
        status = kvarve_put_begin(work->space, work->prefix, &options, &put, err);
    }
    if (status == KVARVE_OK) {
        status = kvarve_put_wait(put, KVARVE_PUT_STAGED, 60000, err);
    }
    if (status == KVARVE_OK) {
        status = kvarve_put_plan(put, 0, plan, work->pages, &count, err);
    }
    for (size_t i = 0; i < count && status == KVARVE_OK; i++) {
        memcpy(plan[i].address, (char *)work->buffer + i * work->page_bytes, plan[i].size);
    }
    begin = bench_now_ns();
    if (status == KVARVE_OK) {
        status = kvarve_put_ack(put, 0, NULL, 0, err);
    }
    if (status == KVARVE_OK) {
        status = kvarve_put_wait(put, KVARVE_PUT_DURABLE, 120000, err);
    }
    *out_ns = (double)(bench_now_ns() - begin);
    if (status == KVARVE_MISS) {
        status = kvarve_fail(err, KVARVE_NO_SPACE, "bench put: %s",
                             kvarve_refusal_text(kvarve_put_refusal(put)));
    }
    kvarve_put_release(&put);
    kvarve_release(plan);
    return status;
}

static int first_id(void *context, const kvarve_checkpoint_info *info)
{
    memcpy(context, info->id, 32);
    return 0;
}

static kvarve_status drop_all(kvarve_store *store, kvarve_error *err)
{
    kvarve_status status = KVARVE_OK;

    while (status == KVARVE_OK) {
        static const uint8_t none[32];
        uint8_t id[32] = {0};

        status = kvarve_list_checkpoints(store, first_id, id, err);
        if (status != KVARVE_OK || memcmp(id, none, 32) == 0) {
            break;
        }
        status = kvarve_drop(store, id, err);
    }
    return status;
}

static kvarve_status prepare(put_work *work, bench_context *bench, uint32_t page_bytes)
{
    const uint64_t bytes =
        bench->options->bytes != 0 ? bench->options->bytes : (uint64_t)PAGE_BYTES * PAGES;

    *work = (put_work){.bench = bench, .page_bytes = page_bytes};
    if (page_bytes % KVARVE_IO_ALIGNMENT != 0) { /* the yardstick's direct I/O moves whole blocks */
        return kvarve_fail(bench->err, KVARVE_INVALID, "bench: --page-bytes %u: a multiple of 4096",
                           page_bytes);
    }
    work->pages = (uint32_t)(bytes / page_bytes);
    if (work->pages == 0 || bytes > (UINT64_C(8) << 30)) {
        return kvarve_fail(bench->err, KVARVE_INVALID, "bench: --bytes %llu: %u .. 8 GiB",
                           (unsigned long long)bytes, page_bytes);
    }
    work->bytes = (size_t)work->pages * page_bytes;
    work->buffer = bench_buffer(work->bytes, bench->err);
    work->target = bench_buffer(work->bytes, bench->err);
    return work->buffer == NULL || work->target == NULL ? KVARVE_NO_MEMORY : KVARVE_OK;
}

static void discard(put_work *work)
{
    kvarve_prefix_free(work->prefix);
    if (work->store != NULL) {
        close_store(work);
    }
    bench_free_buffer(work->buffer);
    bench_free_buffer(work->target);
}

static double megabytes_a_second(size_t bytes, double ns)
{
    return (double)bytes / ns * 1000;
}

/* Plain direct I/O by depth, MB/s of each run. */
typedef struct disk_yardstick {
    double runs[YARDSTICK_DEPTHS][BENCH_RUNS_MAX];
} disk_yardstick;

static kvarve_status measure_disk(const put_work *work, const disk_work *disk, uint32_t run,
                                  disk_yardstick *out)
{
    double ns[YARDSTICK_DEPTHS];
    const kvarve_status status = yardstick_disk(disk, ns, work->bench->err);

    for (size_t depth = 0; depth < YARDSTICK_DEPTHS && status == KVARVE_OK; depth++) {
        out->runs[depth][run] = megabytes_a_second(work->bytes, ns[depth]);
    }
    return status;
}

/* The runs of the best depth. */
static const double *best_depth(const disk_yardstick *all, uint32_t runs)
{
    size_t best = 0;

    for (size_t depth = 1; depth < YARDSTICK_DEPTHS; depth++) {
        if (bench_median(all->runs[depth], runs) > bench_median(all->runs[best], runs)) {
            best = depth;
        }
    }
    return all->runs[best];
}

static kvarve_status measure_puts(put_work *work, bool is_fresh)
{
    bench_context *bench = work->bench;
    double values[BENCH_RUNS_MAX];
    disk_yardstick yardstick;
    kvarve_status status = KVARVE_OK;

    for (uint32_t run = 0; run < bench->runs && status == KVARVE_OK; run++) {
        const disk_work disk = {.directory = bench->options->directory,
                                .buffer = work->buffer,
                                .size = work->bytes,
                                .piece = work->page_bytes,
                                .is_write = true,
                                .is_fresh = is_fresh};
        double ns = 0;

        if (is_fresh) {
            bench_remove_store(bench);
        }
        if (work->store == NULL) {
            status = open_store(work, UINT64_C(1) << 40, bench->err);
        } else {
            status = drop_all(work->store, bench->err);
        }
        if (status == KVARVE_OK && !is_fresh && run == 0) {
            status = timed_put(work, 999, &ns, bench->err); /* writes the space once */
            status = status == KVARVE_OK ? drop_all(work->store, bench->err) : status;
        }
        if (status == KVARVE_OK) {
            status = measure_disk(work, &disk, run, &yardstick);
        }
        if (status == KVARVE_OK) {
            status = timed_put(work, run, &ns, bench->err);
            values[run] = megabytes_a_second(work->bytes, ns);
        }
        if (is_fresh && work->store != NULL) {
            close_store(work);
        }
    }
    if (status == KVARVE_OK) {
        bench_figure(bench, &(bench_value){.name = is_fresh ? "durable put, fresh space"
                                                            : "durable put, reused space",
                                           .unit = "MB/s",
                                           .values = values,
                                           .yardsticks = best_depth(&yardstick, bench->runs),
                                           .reach = 0.90,
                                           .has_reach = true});
    }
    return status;
}

kvarve_status bench_put(bench_context *bench)
{
    put_work work;
    kvarve_status status = prepare(
        &work, bench,
        bench->options->page_bytes != 0 ? (uint32_t)bench->options->page_bytes : PAGE_BYTES);

    if (status == KVARVE_OK) {
        status = measure_puts(&work, true);
    }
    if (status == KVARVE_OK) {
        status = measure_puts(&work, false);
    }
    discard(&work);
    return status;
}

/* --- restore --- */

/* From a lease to the caller's memory, everything checked; ns. */
static kvarve_status timed_restore(put_work *work, double *out_ns, kvarve_error *err)
{
    kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
    kvarve_boundary boundary;
    kvarve_lease *lease = NULL;
    kvarve_miss miss = {0};
    size_t count = 0;
    kvarve_status status;
    uint64_t begin;

    options.lease = KVARVE_LEASE_SOFT;
    begin = bench_now_ns();
    status =
        kvarve_find(work->space, work->prefix, &options, &boundary, 1, &count, &lease, &miss, err);
    if (status == KVARVE_OK) {
        status = bench_read_all(lease, work->target, work->bytes, work->pages, err);
    }
    *out_ns = (double)(bench_now_ns() - begin);
    kvarve_lease_release(&lease);
    if (status == KVARVE_MISS) {
        return kvarve_fail(err, KVARVE_IO, "bench restore: a miss: %s",
                           kvarve_miss_text(miss.reason));
    }
    if (status == KVARVE_OK && memcmp(work->target, work->buffer, work->bytes) != 0) {
        return kvarve_fail(err, KVARVE_CORRUPT, "bench restore: other bytes than were stored");
    }
    return status;
}

/* Two threads read halves: as two ranks' processes would. */
typedef struct read_half {
    kvarve_lease *lease;
    char *bytes;
    size_t size;
    uint64_t position;
    kvarve_status status;
} read_half;

static void run_half(void *context)
{
    read_half *half = context;

    half->status =
        kvarve_lease_read_direct(half->lease, 0, 0, half->position, half->bytes, half->size, NULL);
}

kvarve_status bench_read_all(kvarve_lease *lease, void *target, size_t bytes, uint32_t pages,
                             kvarve_error *err)
{
    const uint32_t half_pages = pages / 2;
    const size_t half_bytes = bytes / pages * half_pages;
    read_half halves[2] = {
        {.lease = lease, .bytes = target, .size = half_bytes, .position = 0},
        {.lease = lease,
         .bytes = (char *)target + half_bytes,
         .size = bytes - half_bytes,
         .position = half_pages},
    };
    kvarve_thread thread;

    if (half_pages == 0 || thread_start(&thread, run_half, &halves[0]) != 0) {
        return kvarve_lease_read_direct(lease, 0, 0, 0, target, bytes, err);
    }
    run_half(&halves[1]);
    thread_join(&thread);
    return halves[0].status != KVARVE_OK ? halves[0].status : halves[1].status;
}

static kvarve_status measure_restores(put_work *work, const char *name, double reach)
{
    bench_context *bench = work->bench;
    double values[BENCH_RUNS_MAX];
    disk_yardstick yardstick;
    kvarve_status status = KVARVE_OK;

    for (uint32_t run = 0; run < bench->runs && status == KVARVE_OK; run++) {
        const disk_work disk = {.directory = bench->options->directory,
                                .buffer = work->target,
                                .size = work->bytes,
                                .piece = PIECE};
        double ns = 0;

        status = measure_disk(work, &disk, run, &yardstick);
        if (status == KVARVE_OK) { /* a new handle: nothing is in the arena */
            close_store(work);
            status = open_store(work, CHURN_CAP, bench->err);
        }
        if (status == KVARVE_OK) {
            status = timed_restore(work, &ns, bench->err);
            values[run] = megabytes_a_second(work->bytes, ns);
        }
    }
    if (status == KVARVE_OK) {
        bench_figure(bench, &(bench_value){.name = name,
                                           .unit = "MB/s",
                                           .values = values,
                                           .yardsticks = best_depth(&yardstick, bench->runs),
                                           .reach = reach,
                                           .has_reach = true});
    }
    return status;
}

/* The yardstick's file, written once so that there is something to read. */
static kvarve_status write_yardstick(const put_work *work)
{
    const disk_work disk = {.directory = work->bench->options->directory,
                            .buffer = work->buffer,
                            .size = work->bytes,
                            .piece = PIECE,
                            .is_write = true};
    double ns[YARDSTICK_DEPTHS];

    return yardstick_disk(&disk, ns, work->bench->err);
}

static kvarve_status restore_fresh(bench_context *bench)
{
    put_work work;
    double ns = 0;
    kvarve_status status = prepare(
        &work, bench,
        bench->options->page_bytes != 0 ? (uint32_t)bench->options->page_bytes : PAGE_BYTES);

    if (status == KVARVE_OK) {
        status = write_yardstick(&work);
    }
    if (status == KVARVE_OK) {
        status = open_store(&work, CHURN_CAP, bench->err);
    }
    if (status == KVARVE_OK) {
        status = timed_put(&work, 1, &ns, bench->err);
    }
    if (status == KVARVE_OK) {
        status = measure_restores(&work, "verified restore", 0.93);
    }
    discard(&work);
    return status;
}

/* Puts of various sizes until ten times the cap went through, so that free space lies in pieces. */
static kvarve_status churn(put_work *work)
{
    const uint32_t whole = work->pages;
    const uint32_t least = whole < CHURN_LEAST ? whole : CHURN_LEAST;
    const uint64_t cap = bench_churn_cap(work->bench);
    uint64_t written = 0;
    uint64_t seed = 1000;
    kvarve_status status = KVARVE_OK;
    double ns = 0;

    while (written < CHURN_TIMES * cap && status == KVARVE_OK) {
        seed++;
        work->pages = least + (uint32_t)(seed * 2654435761u % (whole - least + 1));
        status = timed_put(work, seed, &ns, work->bench->err);
        written += (uint64_t)work->pages * work->page_bytes;
    }
    work->pages = whole;
    return status;
}

static kvarve_status restore_churned(bench_context *bench)
{
    put_work work;
    double ns = 0;
    kvarve_status status = prepare(&work, bench, CHURN_PAGE);

    if (status == KVARVE_OK) {
        status = write_yardstick(&work);
    }
    if (status == KVARVE_OK) {
        status = open_store(&work, bench_churn_cap(bench), bench->err);
    }
    if (status == KVARVE_OK) {
        status = churn(&work);
    }
    if (status == KVARVE_OK) {
        status = timed_put(&work, 1, &ns, bench->err);
    }
    if (status == KVARVE_OK) {
        status = measure_restores(&work, "verified restore after churn", 0.80);
    }
    discard(&work);
    return status;
}

uint64_t bench_churn_cap(const bench_context *bench)
{
    return bench->options->bytes != 0 ? 5 * bench->options->bytes : CHURN_CAP;
}

kvarve_status bench_restore(bench_context *bench)
{
    kvarve_status status = restore_fresh(bench);

    if (status == KVARVE_OK) {
        status = bench_new_store(bench);
    }
    return status == KVARVE_OK ? restore_churned(bench) : status;
}

kvarve_status bench_restore_ram(bench_context *bench)
{
    put_work work;
    double values[BENCH_RUNS_MAX];
    double yardsticks[BENCH_RUNS_MAX];
    double ns = 0;
    kvarve_status status = prepare(
        &work, bench,
        bench->options->page_bytes != 0 ? (uint32_t)bench->options->page_bytes : PAGE_BYTES);

    if (status == KVARVE_OK) {
        status = open_store(&work, UINT64_C(1) << 40, bench->err);
    }
    if (status == KVARVE_OK) {
        status = timed_put(&work, 1, &ns, bench->err);
    }
    for (uint32_t run = 0; run < bench->runs && status == KVARVE_OK; run++) {
        yardsticks[run] =
            megabytes_a_second(work.bytes, yardstick_copy(work.target, work.buffer, work.bytes, 2));
        status = timed_restore(&work, &ns, bench->err);
        values[run] = megabytes_a_second(work.bytes, ns);
    }
    if (status == KVARVE_OK) {
        bench_figure(bench, &(bench_value){.name = "verified restore from the arena",
                                           .unit = "MB/s",
                                           .values = values,
                                           .yardsticks = yardsticks,
                                           .reach = 0.75,
                                           .has_reach = true,
                                           .note = "two threads on both sides"});
    }
    discard(&work);
    return status;
}
