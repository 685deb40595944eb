/*
 * bench.h - every figure of `kvarve bench`, beside its yardstick, measured in the same process.
 *
 * A figure is a ratio of medians of at least five runs; the runs are kept in the output. No timing
 * decides whether a test passes: `ok` says whether the figure reached what was asked, the exit code
 * does not.
 *
 * Threads: one caller; a bench starts its own.
 */
#ifndef KVARVE_BENCH_BENCH_H
#define KVARVE_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kvarve/error.h"

typedef struct bench_options {
    const char *directory; /* where stores and yardstick files are made; removed afterwards */
    uint64_t page_bytes;   /* 0: the bench's own */
    uint64_t bytes;        /* payload of one run; 0: the bench's own */
    uint64_t count;        /* checkpoints, puts or tokens, as the bench explains; 0: its own */
    uint32_t runs;         /* 0: five */
    bool has_json;         /* one JSON object a figure, else text */
    bool keeps_store;      /* the last bench's store stays below directory, as kvarve-bench-store */
    FILE *out;
} bench_options;

typedef struct bench_entry {
    const char *name;
    const char
        *text; /* one line: what is measured against what, and which sizes count and bytes are */
} bench_entry;

/* All benches; *out_count of them. Static. */
const bench_entry *bench_list(size_t *out_count);

/* Run one by name. KVARVE_INVALID: no such bench, or a size out of range. */
KVARVE_NODISCARD kvarve_status bench_run(const char *name, const bench_options *options,
                                         kvarve_error *err);

#endif
