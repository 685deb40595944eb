/*
 * bench_find.c - find among many checkpoints, and what a put adds to the index.
 *
 * The checkpoints come in through kvarve_put_many with tiny pages. A hundredth of them share one
 * 4096-token chunk and differ after it, by length and by tokens: the worst place to look in. CI
 * runs 10^4, `make stress` 10^6.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "bench/bench_private.h"

#define COUNT       10000u
#define BULK        1000u
#define QUERY       200000u
#define PROBES      2000u
#define STATE_BYTES 64u
#define CHUNK       4096u
#define GROWTH_PUTS 1000u

typedef struct filling {
    bench_context *bench;
    kvarve_store *store;
    kvarve_namespace *space;
    kvarve_prefix *shared; /* the chunk that a hundredth share, and query tokens after it */
    uint64_t put_ns;       /* spent in kvarve_put_many */
} filling;

static kvarve_status open_filling(filling *fill, const kvarve_group *groups, uint32_t group_count)
{
    kvarve_store_options options = KVARVE_STORE_OPTIONS_INIT;
    kvarve_namespace_options name = KVARVE_NAMESPACE_OPTIONS_INIT;
    kvarve_status status;

    options.arena_bytes = UINT64_C(64) << 20;
    options.flash_bytes_max = UINT64_C(1) << 40;
    options.io_timeout_ms = 120000;
    name.identity_json = "{\"model\":\"bench\"}";
    name.groups = groups;
    name.group_count = group_count;
    status = kvarve_open(fill->bench->store_path, &options, &fill->store, fill->bench->err);
    return status == KVARVE_OK
               ? kvarve_namespace_open(fill->store, &name, &fill->space, fill->bench->err)
               : status;
}

static void close_filling(filling *fill)
{
    kvarve_namespace_release(&fill->space);
    kvarve_close(fill->store);
    fill->store = NULL;
}

typedef struct bulk {
    kvarve_prefix *prefixes[BULK];
    kvarve_put_options options[BULK];
    kvarve_section sections[BULK];
    kvarve_bulk_item items[BULK];
    uint8_t state[STATE_BYTES];
} bulk;

/* The tokens of checkpoint `number`: one in a hundred begins with the shared chunk. */
static kvarve_status make_prefix(const filling *fill, uint64_t number, kvarve_prefix **out)
{
    uint32_t tokens[CHUNK];
    const bool is_shared = number % 100 == 0;
    const size_t count = 64 + (size_t)(number * 7919 % (is_shared ? CHUNK - 64 : 512));
    kvarve_status status = kvarve_prefix_create(out, fill->bench->err);

    if (status == KVARVE_OK && is_shared) {
        status =
            kvarve_prefix_append(*out, kvarve_prefix_tokens(fill->shared), CHUNK, fill->bench->err);
    }
    bench_tokens(tokens, count, number + 17);
    return status == KVARVE_OK ? kvarve_prefix_append(*out, tokens, count, fill->bench->err)
                               : status;
}

static kvarve_status fill_bulk(filling *fill, bulk *all, uint64_t first, size_t count)
{
    kvarve_status status = KVARVE_OK;
    uint64_t begin;

    for (size_t i = 0; i < count && status == KVARVE_OK; i++) {
        status = make_prefix(fill, first + i, &all->prefixes[i]);
        all->options[i] = (kvarve_put_options)KVARVE_PUT_OPTIONS_INIT;
        all->options[i].kind = KVARVE_KIND_PROMPT;
        all->options[i].timeout_ms = 120000;
        all->options[i].tokens = status == KVARVE_OK ? kvarve_prefix_length(all->prefixes[i]) : 1;
        all->sections[i] = (kvarve_section){.bytes = all->state, .size = STATE_BYTES};
        all->items[i] = (kvarve_bulk_item){.prefix = all->prefixes[i],
                                           .options = &all->options[i],
                                           .sections = &all->sections[i],
                                           .section_count = 1};
    }
    begin = bench_now_ns();
    if (status == KVARVE_OK) {
        status = kvarve_put_many(fill->space, all->items, count, fill->bench->err);
    }
    fill->put_ns += bench_now_ns() - begin;
    for (size_t i = 0; i < count; i++) {
        kvarve_prefix_free(all->prefixes[i]);
        all->prefixes[i] = NULL;
        if (status == KVARVE_OK && all->items[i].out_state == KVARVE_PUT_ABORTED) {
            status = kvarve_fail(fill->bench->err, KVARVE_NO_SPACE, "bench: put refused: %s",
                                 kvarve_refusal_text(all->items[i].out_refusal));
        }
    }
    return status;
}

static kvarve_status fill_store(filling *fill, uint64_t count)
{
    bulk *all = kvarve_allocate(sizeof *all);
    kvarve_status status = KVARVE_OK;

    if (all == NULL) {
        return kvarve_fail(fill->bench->err, KVARVE_NO_MEMORY, "bench: puts");
    }
    for (uint64_t at = 0; at < count && status == KVARVE_OK; at += BULK) {
        status = fill_bulk(fill, all, at, count - at < BULK ? (size_t)(count - at) : BULK);
    }
    kvarve_release(all);
    return status;
}

static kvarve_status make_query(filling *fill)
{
    uint32_t *tokens = kvarve_allocate_array(QUERY, sizeof *tokens);
    kvarve_status status =
        tokens == NULL ? KVARVE_NO_MEMORY : kvarve_prefix_create(&fill->shared, fill->bench->err);

    if (status == KVARVE_OK) {
        bench_tokens(tokens, QUERY, 5);
        status = kvarve_prefix_append(fill->shared, tokens, QUERY, fill->bench->err);
    }
    kvarve_release(tokens);
    return status;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* One probe: a stored prefix with more tokens after it, or (hit false) the query that shares the
 * chunk alone. */
static kvarve_status probe(const filling *fill, uint64_t number, bool is_hit, double *out_us)
{
    kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
    kvarve_boundary boundary;
    kvarve_prefix *prefix = NULL;
    size_t count = 0;
    uint64_t begin;
    kvarve_status status = KVARVE_OK;
    kvarve_status found;

    if (is_hit) {
        status = make_prefix(fill, number, &prefix);
        if (status == KVARVE_OK) {
            status = kvarve_prefix_append(prefix, kvarve_prefix_tokens(fill->shared), 500,
                                          fill->bench->err);
        }
    }
    if (status != KVARVE_OK) {
        kvarve_prefix_free(prefix);
        return status;
    }
    begin = bench_now_ns();
    found = kvarve_find(fill->space, is_hit ? prefix : fill->shared, &options, &boundary, 1, &count,
                        NULL, NULL, fill->bench->err);
    *out_us = (double)(bench_now_ns() - begin) / 1000;
    kvarve_prefix_free(prefix);
    if (found == KVARVE_OK ? !is_hit : found != KVARVE_MISS || is_hit) {
        return kvarve_fail(fill->bench->err, KVARVE_CORRUPT,
                           "bench find: %s where a %s was expected",
                           found == KVARVE_OK ? "a hit" : "a miss", is_hit ? "hit" : "miss");
    }
    return KVARVE_OK;
}

static kvarve_status measure_p99(const filling *fill, uint64_t count, bool is_hit, bool is_shared)
{
    double values[BENCH_RUNS_MAX];
    double *times = kvarve_allocate_array(PROBES, sizeof *times);
    kvarve_status status = times == NULL ? KVARVE_NO_MEMORY : KVARVE_OK;

    for (uint32_t run = 0; run < fill->bench->runs && status == KVARVE_OK; run++) {
        for (uint32_t i = 0; i < PROBES && status == KVARVE_OK; i++) {
            const uint64_t number = (uint64_t)i * 104729 % count;

            status = probe(fill, is_shared ? number / 100 * 100 : number, is_hit, &times[i]);
        }
        if (status == KVARVE_OK) {
            qsort(times, PROBES, sizeof *times, compare_doubles);
            values[run] = times[PROBES * 99 / 100];
        }
    }
    if (status == KVARVE_OK) {
        bench_figure(fill->bench,
                     &(bench_value){.name = !is_hit     ? "p99, miss of 200000 tokens in the chunk"
                                            : is_shared ? "p99, hit in the shared chunk"
                                                        : "p99, hit",
                                    .unit = "us",
                                    .values = values,
                                    .reach = 100,
                                    .is_at_most = true,
                                    .has_reach = true});
    }
    kvarve_release(times);
    return status;
}

/* From 200,000 raw tokens to the answer. */
static kvarve_status measure_raw(const filling *fill)
{
    bench_context *bench = fill->bench;
    double raw[BENCH_RUNS_MAX];
    kvarve_status status = KVARVE_OK;

    for (uint32_t run = 0; run < bench->runs && status == KVARVE_OK; run++) {
        kvarve_prefix *prefix = NULL;
        const uint64_t begin = bench_now_ns();

        status = kvarve_prefix_create(&prefix, bench->err);
        if (status == KVARVE_OK) {
            status =
                kvarve_prefix_append(prefix, kvarve_prefix_tokens(fill->shared), QUERY, bench->err);
        }
        if (status == KVARVE_OK) {
            kvarve_boundary boundary;
            size_t count;

            (void)!kvarve_find(fill->space, prefix, NULL, &boundary, 1, &count, NULL, NULL, NULL);
        }
        raw[run] = (double)(bench_now_ns() - begin) / 1000;
        kvarve_prefix_free(prefix);
    }
    if (status == KVARVE_OK) {
        bench_figure(
            bench,
            &(bench_value){.name = "200000 raw tokens to the answer", .unit = "us", .values = raw});
    }
    return status;
}

/* The store closed and opened again, from the page cache: what each checkpoint costs in time, and
 * in memory beside the arena. */
static kvarve_status measure_open(filling *fill, const kvarve_group *group, uint64_t count)
{
    bench_context *bench = fill->bench;
    double opened[BENCH_RUNS_MAX];
    double closed[BENCH_RUNS_MAX];
    uint64_t before = 0;
    kvarve_status status = KVARVE_OK;

    for (uint32_t run = 0; run < bench->runs && status == KVARVE_OK; run++) {
        uint64_t begin = bench_now_ns();

        close_filling(fill);
        closed[run] = (double)(bench_now_ns() - begin) / 1000000;
        before = kvarve_allocated_bytes();
        begin = bench_now_ns();
        status = open_filling(fill, group, 1);
        opened[run] = (double)(bench_now_ns() - begin) / 1000000;
    }
    if (status == KVARVE_OK) {
        bench_figure(bench,
                     &(bench_value){.name = "open of that store", .unit = "ms", .values = opened});
        bench_figure(bench,
                     &(bench_value){.name = "close of that store", .unit = "ms", .values = closed});
        bench_count(bench, "memory a checkpoint with one page", "bytes",
                    (kvarve_allocated_bytes() - before) / count, UINT64_MAX, false);
    }
    return status;
}

/* What came in, how fast, and what it takes on disk. */
static void state_filling(const filling *fill, uint64_t count)
{
    const double each[1] = {(double)fill->put_ns / 1000 / (double)count};
    bench_context one = *fill->bench;
    kvarve_statistics now;

    one.runs = 1;
    bench_count(&one, "checkpoints", "count", count, UINT64_MAX, false);
    bench_figure(&one, &(bench_value){.name = "a put, 1000 at once", .unit = "us", .values = each});
    bench_statistics(fill->store, &now);
    bench_count(&one, "index a checkpoint", "bytes",
                (now.index_database_bytes + now.index_log_bytes) / count, UINT64_MAX, false);
    bench_count(&one, "segment files", "bytes", now.segment_bytes, UINT64_MAX, false);
}

kvarve_status bench_find(bench_context *bench)
{
    const uint64_t count = bench->options->count != 0 ? bench->options->count : COUNT;
    const kvarve_group group = {.page_class = KVARVE_CLASS_ENDPOINT, .page_bytes = STATE_BYTES};
    filling fill = {.bench = bench};
    kvarve_status status = make_query(&fill);

    if (count < 1000 || count > 4000000) {
        kvarve_prefix_free(fill.shared);
        return kvarve_fail(bench->err, KVARVE_INVALID, "bench find: --count %llu: 1000 .. 4000000",
                           (unsigned long long)count);
    }
    if (status == KVARVE_OK) {
        status = open_filling(&fill, &group, 1);
    }
    if (status == KVARVE_OK) {
        status = fill_store(&fill, count);
    }
    bench->is_lowered = count < COUNT;
    if (status == KVARVE_OK) {
        state_filling(&fill, count);
        status = measure_p99(&fill, count, true, false);
    }
    if (status == KVARVE_OK) {
        status = measure_p99(&fill, count, true, true);
    }
    if (status == KVARVE_OK) {
        status = measure_p99(&fill, count, false, true);
    }
    if (status == KVARVE_OK) {
        status = measure_raw(&fill);
    }
    if (status == KVARVE_OK) {
        status = measure_open(&fill, &group, count);
    }
    if (fill.store != NULL) {
        close_filling(&fill);
    }
    kvarve_prefix_free(fill.shared);
    return status;
}

/* --- index growth --- */

typedef struct growth {
    uint64_t database;
    uint64_t log;
} growth;

static growth growth_now(const filling *fill)
{
    kvarve_statistics now;

    bench_statistics(fill->store, &now);
    return (growth){.database = now.index_database_bytes + now.index_log_bytes,
                    .log = now.index_log_bytes_written};
}

/* Turns of one conversation: each adds `pages` pages of the tree and two own ones. */
static kvarve_status grow_by_turns(const filling *fill, uint64_t seed, uint32_t turns,
                                   uint32_t pages)
{
    kvarve_prefix *prefix = NULL;
    uint8_t *state = kvarve_allocate(16 * (size_t)pages * 8);
    kvarve_status status =
        state == NULL ? KVARVE_NO_MEMORY : kvarve_prefix_create(&prefix, fill->bench->err);

    for (uint32_t turn = 0; turn < turns && status == KVARVE_OK; turn++) {
        kvarve_put_options options = KVARVE_PUT_OPTIONS_INIT;
        kvarve_section sections[2];
        kvarve_bulk_item item = {
            .prefix = prefix, .options = &options, .sections = sections, .section_count = 2};
        uint32_t tokens[16 * 64];

        bench_tokens(tokens, 16 * (size_t)pages, seed * 1000000 + turn);
        status = kvarve_prefix_append(prefix, tokens, 16 * (size_t)pages, fill->bench->err);
        options.tokens = status == KVARVE_OK ? kvarve_prefix_length(prefix) : 1;
        options.kind = KVARVE_KIND_RESPONSE;
        sections[0] = (kvarve_section){.group = 0,
                                       .position = (uint64_t)turn * pages,
                                       .bytes = state,
                                       .size = 16 * (size_t)pages * 8};
        sections[1] = (kvarve_section){.group = 1, .bytes = state, .size = STATE_BYTES};
        if (status == KVARVE_OK) {
            status = kvarve_put_many(fill->space, &item, 1, fill->bench->err);
        }
        if (status == KVARVE_OK && item.out_state == KVARVE_PUT_ABORTED) {
            status = kvarve_fail(fill->bench->err, KVARVE_NO_SPACE, "bench: put refused: %s",
                                 kvarve_refusal_text(item.out_refusal));
        }
    }
    kvarve_prefix_free(prefix);
    kvarve_release(state);
    return status;
}

static kvarve_status measure_growth(const filling *fill, uint64_t seed, uint32_t pages,
                                    const char *name)
{
    const growth before = growth_now(fill);
    const uint64_t limit = 512 + UINT64_C(96) * (pages + 1);
    growth after;
    char text[64];
    kvarve_status status = grow_by_turns(fill, seed, GROWTH_PUTS, pages);

    if (status != KVARVE_OK) {
        return status;
    }
    after = growth_now(fill);
    (void)snprintf(text, sizeof text, "%s, database a put (%u pages)", name, pages + 1);
    bench_count(fill->bench, text, "bytes", (after.database - before.database) / GROWTH_PUTS, limit,
                true);
    (void)snprintf(text, sizeof text, "%s, log a put (%u pages)", name, pages + 1);
    bench_count(fill->bench, text, "bytes", (after.log - before.log) / GROWTH_PUTS, 32768, true);
    return KVARVE_OK;
}

kvarve_status bench_growth(bench_context *bench)
{
    const uint64_t count = bench->options->count != 0 ? bench->options->count : COUNT;
    const kvarve_group groups[2] = {
        {.page_class = KVARVE_CLASS_PREFIX, .span_tokens = 16, .page_bytes = 128},
        {.page_class = KVARVE_CLASS_ENDPOINT, .page_bytes = STATE_BYTES}};
    filling fill = {.bench = bench};
    uint64_t turns = 0;
    kvarve_status status = open_filling(&fill, groups, 2);

    if (status == KVARVE_OK) { /* until the log, which is used over again, has its size */
        status = grow_by_turns(&fill, 99, 500, 4);
    }
    if (status == KVARVE_OK) {
        status = measure_growth(&fill, 1, 16, "early");
    }
    if (status == KVARVE_OK) {
        status = measure_growth(&fill, 2, 59, "early");
    }
    while (turns < count && status == KVARVE_OK) { /* history */
        status = grow_by_turns(&fill, 100 + turns, 500, 4);
        turns += 500;
    }
    if (status == KVARVE_OK) {
        status = measure_growth(&fill, 3, 16, "late");
    }
    if (status == KVARVE_OK) {
        status = measure_growth(&fill, 4, 59, "late");
    }
    if (fill.store != NULL) {
        close_filling(&fill);
    }
    return status;
}
