/* bench_private.h - what the benches share: figures, time, buffers, stores, the disk's yardstick.
 */
#ifndef KVARVE_BENCH_BENCH_PRIVATE_H
#define KVARVE_BENCH_BENCH_PRIVATE_H

#include "bench/bench.h"
#include "env/env.h"
#include "kvarve/admin.h"
#include "kvarve/checkpoint.h"

#define BENCH_RUNS_MAX 64u

typedef struct bench_context {
    const char *name;
    const bench_options *options;
    uint32_t runs;
    bool is_lowered; /* sizes were given on the command line: said in the output */
    char store_path[1024];
    kvarve_error *err;
} bench_context;

typedef struct bench_value {
    const char *name;
    const char *unit;
    const double *values;     /* one a run */
    const double *yardsticks; /* NULL: none */
    double reach;
    bool is_at_most; /* reach is an upper bound, else a lower one; of the ratio, or of the value
                        without a yardstick */
    bool has_reach;
    const char *note; /* NULL: none */
} bench_value;

/* Print one figure: medians, ratio, raw runs. */
void bench_figure(const bench_context *bench, const bench_value *figure);
/* A figure of one exact number (counts and bytes). */
void bench_count(const bench_context *bench, const char *name, const char *unit, uint64_t value,
                 uint64_t reach, bool is_at_most);
double bench_median(const double *values, uint32_t count);

uint64_t bench_now_ns(void);
/* Populated, 4096-aligned memory with pseudo-random bytes, four at a time; NULL: none. */
void *bench_buffer(size_t size, kvarve_error *err);
void bench_free_buffer(void *buffer);

/* A fresh, empty folder for a store; removed with all below it by bench_remove_store. */
KVARVE_NODISCARD kvarve_status bench_new_store(bench_context *bench);
void bench_remove_store(const bench_context *bench);
void bench_statistics(kvarve_store *store, kvarve_statistics *out);

/* Tokens that differ by `seed`, below 2^31. */
void bench_tokens(uint32_t *tokens, size_t count, uint64_t seed);

/*
 * Plain direct I/O of `size` bytes at `pieces` of `piece` bytes. `is_write`: to a preallocated file
 * (fresh each time, or written before), one fdatasync at the end.
 */
typedef struct disk_work {
    const char *directory;
    void *buffer;
    size_t size;
    size_t piece;
    bool is_write;
    bool is_fresh; /* write: into space never written before */
} disk_work;
#define YARDSTICK_DEPTHS 3 /* of plain direct I/O: 1, 4 and 8 at once */

/* One pass at each depth, ns. The best depth is that with the best median: the best of three passes
 * of each run would be compared with one of ours. */
KVARVE_NODISCARD kvarve_status yardstick_disk(const disk_work *work,
                                              double out_ns[YARDSTICK_DEPTHS], kvarve_error *err);
void yardstick_remove(const char *directory);
/* memcpy of `size` bytes with `threads` threads, ns. */
double yardstick_copy(void *to, const void *from, size_t size, uint32_t threads);

/* Read `pages` pages of group 0 of rank 0 with two threads. */
kvarve_status bench_read_all(kvarve_lease *lease, void *target, size_t bytes, uint32_t pages,
                             kvarve_error *err);
uint64_t bench_churn_cap(const bench_context *bench);

kvarve_status bench_identity(bench_context *bench);
kvarve_status bench_find(bench_context *bench);
kvarve_status bench_growth(bench_context *bench);
kvarve_status bench_put(bench_context *bench);
kvarve_status bench_restore(bench_context *bench);
kvarve_status bench_restore_ram(bench_context *bench);
kvarve_status bench_reference(bench_context *bench);
kvarve_status bench_replay(bench_context *bench);

#endif
