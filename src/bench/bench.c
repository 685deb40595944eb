/*
 * bench.c - the table of benches, and how a figure is printed.
 *
 * Output with --json: {"bench","figure","value","yardstick","ratio","reach","ok","runs"} a line.
 * value and yardstick are medians; reach bounds the ratio, or the value where there is no
 * yardstick.
 */
#include "bench/bench.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"
#include "bench/bench_private.h"
#include "env/env_posix.h"
#include "env/io_all.h"

#define NUMBER_TEXT 32

typedef struct bench_row {
    bench_entry entry;
    kvarve_status (*run)(bench_context *bench);
} bench_row;

static const bench_row rows[] = {
    {{"reference",
      "pages and bytes of the reference geometry (4 ranks, span 4096, 7 fixed pages a rank) at "
      "N = 1000, 8000, 31900, 197000, replays and six 1K turns; --page-bytes"},
     bench_reference},
    {{"replay", "bytes written by storing known content again, also after a restart; --page-bytes"},
     bench_replay},
    {{"identity",
      "token digests and page keys at span 256 against one plain SHA-256 pass; --count tokens"},
     bench_identity},
    {{"find",
      "find among --count checkpoints (10000) that came in through puts, a hundredth of them in "
      "one chunk; a million: two minutes, 6 GB of disk, 1 GB of RAM"},
     bench_find},
    {{"index-growth",
      "database and log bytes a put, mean of 1000 puts, early and late; --count checkpoints "
      "before"},
     bench_growth},
    {{"put", "a durable put of --bytes against plain direct writes and one fdatasync"}, bench_put},
    {{"restore",
      "a verified restore of --bytes from flash against the best plain direct read, fresh and "
      "after churn"},
     bench_restore},
    {{"restore-ram", "a verified restore of --bytes from the arena against memcpy"},
     bench_restore_ram},
};

#define ROW_COUNT (sizeof rows / sizeof rows[0])

const bench_entry *bench_list(size_t *out_count)
{
    static bench_entry entries[ROW_COUNT];

    for (size_t i = 0; i < ROW_COUNT; i++) {
        entries[i] = rows[i].entry;
    }
    *out_count = ROW_COUNT;
    return entries;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_median(const double *values, uint32_t count)
{
    double sorted[BENCH_RUNS_MAX];

    memcpy(sorted, values, count * sizeof(double));
    qsort(sorted, count, sizeof(double), compare_doubles);
    return count % 2 == 1 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

/* A count to its last digit, a measurement to six of them. */
static const char *number_text(double value, char out[NUMBER_TEXT])
{
    const bool is_whole = value >= 0 && value < 1e15 && value == (double)(uint64_t)value;

    (void)snprintf(out, NUMBER_TEXT, is_whole ? "%.0f" : "%.6g", value);
    return out;
}

static void print_runs(FILE *out, const char *name, const double *values, uint32_t count)
{
    char text[NUMBER_TEXT];

    if (values == NULL) {
        return;
    }
    (void)fprintf(out, ",\"%s\":[", name);
    for (uint32_t i = 0; i < count; i++) {
        (void)fprintf(out, "%s%s", i == 0 ? "" : ",", number_text(values[i], text));
    }
    (void)fputc(']', out);
}

static bool is_reached(const bench_value *figure, double measured)
{
    return !figure->has_reach ||
           (figure->is_at_most ? measured <= figure->reach : measured >= figure->reach);
}

static void print_json(const bench_context *bench, const bench_value *figure, double value,
                       double yardstick, double measured)
{
    FILE *out = bench->options->out;
    char text[NUMBER_TEXT];

    (void)fprintf(out, "{\"bench\":\"%s\",\"figure\":\"%s\",\"unit\":\"%s\",\"value\":%s",
                  bench->name, figure->name, figure->unit, number_text(value, text));
    if (figure->yardsticks != NULL) {
        (void)fprintf(out, ",\"yardstick\":%s,\"ratio\":%.4g", number_text(yardstick, text),
                      measured);
    } else {
        (void)fputs(",\"yardstick\":null,\"ratio\":null", out);
    }
    if (figure->has_reach) {
        (void)fprintf(out, ",\"reach\":\"%s %s\"",
                      figure->is_at_most ? "<=" : ">=", number_text(figure->reach, text));
    } else {
        (void)fputs(",\"reach\":null", out);
    }
    (void)fprintf(out, ",\"ok\":%s", is_reached(figure, measured) ? "true" : "false");
    print_runs(out, "runs", figure->values, bench->runs);
    print_runs(out, "yardstick_runs", figure->yardsticks, bench->runs);
    if (bench->is_lowered) {
        (void)fputs(",\"sizes\":\"lowered by flags\"", out);
    }
    if (figure->note != NULL) {
        (void)fprintf(out, ",\"note\":\"%s\"", figure->note);
    }
    (void)fputs("}\n", out);
}

static void print_text(const bench_context *bench, const bench_value *figure, double value,
                       double yardstick, double measured)
{
    FILE *out = bench->options->out;
    char text[NUMBER_TEXT];

    (void)fprintf(out, "%-13s %-42s %12s %s", bench->name, figure->name, number_text(value, text),
                  figure->unit);
    if (figure->yardsticks != NULL) {
        (void)fprintf(out, "  yardstick %s  ratio %.3f", number_text(yardstick, text), measured);
    }
    if (figure->has_reach) {
        (void)fprintf(out, "  (%s %s: %s)",
                      figure->is_at_most ? "<=" : ">=", number_text(figure->reach, text),
                      is_reached(figure, measured) ? "ok" : "NOT REACHED");
    }
    (void)fprintf(out, "%s%s%s\n", bench->is_lowered ? "  [sizes lowered by flags]" : "",
                  figure->note == NULL ? "" : "  ", figure->note == NULL ? "" : figure->note);
}

void bench_figure(const bench_context *bench, const bench_value *figure)
{
    const double value = bench_median(figure->values, bench->runs);
    const double yardstick =
        figure->yardsticks == NULL ? 0 : bench_median(figure->yardsticks, bench->runs);
    const double measured = figure->yardsticks == NULL ? value : value / yardstick;

    if (bench->options->has_json) {
        print_json(bench, figure, value, yardstick, measured);
    } else {
        print_text(bench, figure, value, yardstick, measured);
    }
    (void)fflush(bench->options->out);
}

void bench_count(const bench_context *bench, const char *name, const char *unit, uint64_t value,
                 uint64_t reach, bool is_at_most)
{
    double values[BENCH_RUNS_MAX];
    const bench_value figure = {.name = name,
                                .unit = unit,
                                .values = values,
                                .reach = (double)reach,
                                .is_at_most = is_at_most,
                                .has_reach = reach != UINT64_MAX};
    bench_context one = *bench;

    values[0] = (double)value;
    one.runs = 1;
    bench_figure(&one, &figure);
}

uint64_t bench_now_ns(void)
{
    kvarve_clock *clock = clock_posix();

    return clock->monotonic_ns(clock);
}

/* --- buffers --- */

/* The mappings behind the buffers that are out. */
#define BUFFERS_MAX 4u
static kvarve_mapping mappings[BUFFERS_MAX];

static kvarve_mapping *find_mapping(const void *base)
{
    for (size_t i = 0; i < BUFFERS_MAX; i++) {
        if (mappings[i].base == base) {
            return &mappings[i];
        }
    }
    return NULL;
}

static void fill(void *bytes, size_t size)
{
    uint64_t *words = bytes;
    uint64_t state = 88172645463325252;

    for (size_t i = 0; i < size / sizeof *words; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        words[i] = state;
    }
}

void *bench_buffer(size_t size, kvarve_error *err)
{
    kvarve_memory *memory = memory_posix();
    kvarve_mapping *mapping = find_mapping(NULL);
    const size_t whole = kvarve_round_up(size, KVARVE_IO_ALIGNMENT);
    int rc;

    KVARVE_ASSERT(mapping != NULL);
    rc = memory->create(memory, MEMORY_PRIVATE, "kvarve-bench", whole, mapping);
    if (rc == 0) {
        rc = memory->populate(memory, mapping, 0, whole);
        if (rc < 0) {
            memory->destroy(memory, mapping);
        }
    }
    if (rc < 0) {
        (void)kvarve_fail_io(err, rc, "a buffer of %zu bytes", size);
        return NULL;
    }
    fill(mapping->base, whole);
    return mapping->base;
}

void bench_free_buffer(void *buffer)
{
    kvarve_memory *memory = memory_posix();

    if (buffer != NULL) {
        memory->destroy(memory, find_mapping(buffer));
    }
}

void bench_tokens(uint32_t *tokens, size_t count, uint64_t seed)
{
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;

    for (size_t i = 0; i < count; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        tokens[i] = (uint32_t)(state % 151936);
    }
}

/* --- stores --- */

typedef struct remover {
    kvarve_io *io;
    const char *directory;
    char (*names)[256];
    size_t count;
} remover;

#define REMOVE_NAMES_MAX 4096u

static bool collect_name(void *context, const char *name)
{
    remover *all = context;

    if (all->count < REMOVE_NAMES_MAX && strlen(name) < sizeof all->names[0]) {
        memcpy(all->names[all->count++], name, strlen(name) + 1);
    }
    return true;
}

static void empty_folder(const char *directory)
{
    kvarve_io *io = io_posix();
    remover all = {.io = io,
                   .directory = directory,
                   .names = kvarve_allocate_array(REMOVE_NAMES_MAX, sizeof all.names[0])};
    char path[KVARVE_PATH_MAX];

    if (all.names == NULL || io->ops->list(io, directory, collect_name, &all) != 0) {
        kvarve_release(all.names);
        return;
    }
    for (size_t i = 0; i < all.count; i++) {
        if (io_join_path(path, sizeof path, directory, all.names[i]) == 0) {
            (void)io->ops->unlink(io, path);
        }
    }
    kvarve_release(all.names);
}

void bench_remove_store(const bench_context *bench)
{
    static const char *const folders[] = {"segments", "namespaces"};
    char path[KVARVE_PATH_MAX];

    for (size_t i = 0; i < 2; i++) {
        if (io_join_path(path, sizeof path, bench->store_path, folders[i]) == 0) {
            empty_folder(path);
            (void)remove(path);
        }
    }
    empty_folder(bench->store_path);
    (void)remove(bench->store_path);
}

kvarve_status bench_new_store(bench_context *bench)
{
    if (io_join_path(bench->store_path, sizeof bench->store_path, bench->options->directory,
                     "kvarve-bench-store") != 0) {
        return kvarve_fail(bench->err, KVARVE_INVALID, "bench: the path is too long");
    }
    bench_remove_store(bench);
    return KVARVE_OK;
}

void bench_statistics(kvarve_store *store, kvarve_statistics *out)
{
    *out = (kvarve_statistics)KVARVE_STATISTICS_INIT;
    (void)!kvarve_statistics_get(store, out, NULL);
}

/* --- run --- */

static kvarve_status run_row(const bench_row *row, bench_context *bench)
{
    const bench_options *options = bench->options;
    kvarve_status status;

    bench->name = row->entry.name;
    status = bench_new_store(bench);
    status = status == KVARVE_OK ? row->run(bench) : status;
    if (!options->keeps_store) {
        bench_remove_store(bench);
    }
    yardstick_remove(options->directory);
    return status;
}

kvarve_status bench_run(const char *name, const bench_options *options, kvarve_error *err)
{
    bench_context bench = {.options = options,
                           .runs = options->runs == 0 ? 5 : options->runs,
                           .is_lowered = options->page_bytes != 0 || options->bytes != 0 ||
                                         options->count != 0,
                           .err = err};

    if (bench.runs > BENCH_RUNS_MAX) {
        return kvarve_fail(err, KVARVE_INVALID, "bench: %u runs: 1 .. %u", bench.runs,
                           BENCH_RUNS_MAX);
    }
    for (size_t i = 0; i < ROW_COUNT; i++) {
        if (strcmp(rows[i].entry.name, name) == 0) {
            return run_row(&rows[i], &bench);
        }
    }
    return kvarve_fail(err, KVARVE_INVALID, "bench %s: there is none (kvarve bench --list)", name);
}
