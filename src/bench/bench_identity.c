/*
 * bench_identity.c - token digests and page keys against one plain SHA-256 pass over the same
 * bytes.
 *
 * Both run in turn; each run takes the median of many passes, since one takes less than a
 * millisecond.
 */
#include "base/alloc.h"
#include "base/fail.h"
#include "bench/bench_private.h"
#include "hash/hash.h"
#include "key/key.h"

#define SPAN        256u
#define PASSES      15u
#define TOKENS      200000u
#define TOKENS_MORE 1000u
#define GROUPS_MOST 3u

typedef struct identity_work {
    const uint32_t *tokens;
    size_t count;
    namespace_key name;
    page_key *keys;
} identity_work;

static double plain_pass(const identity_work *work)
{
    uint8_t digest[SHA256_SIZE];
    const uint64_t begin = bench_now_ns();

    sha256(work->tokens, work->count * sizeof(uint32_t), digest);
    return (double)(bench_now_ns() - begin);
}

/* Append all tokens and name all pages of `groups` groups; ns. */
static double key_pass(const identity_work *work, uint32_t groups)
{
    const size_t pages = work->count / SPAN;
    kvarve_prefix *prefix = NULL;
    const uint64_t begin = bench_now_ns();
    uint64_t end;

    if (kvarve_prefix_create(&prefix, NULL) != KVARVE_OK ||
        kvarve_prefix_append(prefix, work->tokens, work->count, NULL) != KVARVE_OK) {
        kvarve_prefix_free(prefix);
        return 0;
    }
    for (uint32_t group = 0; group < groups; group++) {
        page_keys_of_span(&work->name, prefix, SPAN, SPAN, pages, group, work->keys);
    }
    end = bench_now_ns();
    kvarve_prefix_free(prefix);
    return (double)(end - begin);
}

static double append_pass(kvarve_prefix *prefix, const identity_work *work)
{
    const uint64_t before = kvarve_prefix_length(prefix);
    const uint64_t begin = bench_now_ns();
    double ns;

    if (kvarve_prefix_append(prefix, work->tokens, TOKENS_MORE, NULL) != KVARVE_OK) {
        return 0;
    }
    ns = (double)(bench_now_ns() - begin);
    (void)!kvarve_prefix_truncate(prefix, before, NULL);
    return ns;
}

/* Medians in microseconds: [0] of the yardstick, [g] of keys for g groups. */
static void run_keys(const identity_work *work, double medians[GROUPS_MOST + 1])
{
    double passes[GROUPS_MOST + 1][PASSES];

    for (uint32_t i = 0; i < PASSES; i++) {
        passes[0][i] = plain_pass(work);
        for (uint32_t g = 1; g <= GROUPS_MOST; g++) {
            passes[g][i] = key_pass(work, g);
        }
    }
    for (uint32_t g = 0; g <= GROUPS_MOST; g++) {
        medians[g] = bench_median(passes[g], PASSES) / 1000;
    }
}

static void measure_keys(const bench_context *bench, const identity_work *work)
{
    double plain[BENCH_RUNS_MAX];
    double one[BENCH_RUNS_MAX];
    double further[BENCH_RUNS_MAX];

    for (uint32_t run = 0; run < bench->runs; run++) {
        double medians[GROUPS_MOST + 1];

        run_keys(work, medians);
        plain[run] = medians[0];
        one[run] = medians[1];
        further[run] = (medians[GROUPS_MOST] - medians[1]) / (GROUPS_MOST - 1);
    }
    bench_figure(bench, &(bench_value){.name = "one group",
                                       .unit = "us",
                                       .values = one,
                                       .yardsticks = plain,
                                       .reach = 1.5,
                                       .is_at_most = true,
                                       .has_reach = true});
    bench_figure(bench, &(bench_value){.name = "each further group",
                                       .unit = "us",
                                       .values = further,
                                       .yardsticks = plain,
                                       .reach = 0.4,
                                       .is_at_most = true,
                                       .has_reach = true});
}

/* What 1000 tokens cost at the end of many, against the same on a short prefix. */
static kvarve_status measure_append(const bench_context *bench, const identity_work *work)
{
    double values[BENCH_RUNS_MAX];
    double yardsticks[BENCH_RUNS_MAX];
    kvarve_prefix *full = NULL;
    kvarve_prefix *small = NULL;
    kvarve_status status = kvarve_prefix_create(&full, bench->err);

    if (status == KVARVE_OK) {
        status = kvarve_prefix_create(&small, bench->err);
    }
    if (status == KVARVE_OK) {
        status = kvarve_prefix_append(full, work->tokens, work->count, bench->err);
    }
    for (uint32_t run = 0; run < bench->runs && status == KVARVE_OK; run++) {
        double passes[2][PASSES];

        for (uint32_t i = 0; i < PASSES; i++) {
            passes[0][i] = append_pass(full, work);
            passes[1][i] = append_pass(small, work);
        }
        values[run] = bench_median(passes[0], PASSES) / 1000;
        yardsticks[run] = bench_median(passes[1], PASSES) / 1000;
    }
    if (status == KVARVE_OK) {
        bench_figure(bench,
                     &(bench_value){.name = "1000 tokens appended",
                                    .unit = "us",
                                    .values = values,
                                    .yardsticks = yardsticks,
                                    .reach = 1.5,
                                    .is_at_most = true,
                                    .has_reach = true,
                                    .note = "yardstick: the same appended to an empty prefix"});
    }
    kvarve_prefix_free(full);
    kvarve_prefix_free(small);
    return status;
}

kvarve_status bench_identity(bench_context *bench)
{
    const size_t count = bench->options->count != 0 ? bench->options->count : TOKENS;
    uint32_t *tokens;
    identity_work work = {.count = count};
    kvarve_status status;

    if (count < 4096 || count > KVARVE_PREFIX_TOKENS_MAX - TOKENS_MORE) {
        return kvarve_fail(bench->err, KVARVE_INVALID, "bench identity: --count %zu: 4096 .. %llu",
                           count, (unsigned long long)KVARVE_PREFIX_TOKENS_MAX - TOKENS_MORE);
    }
    tokens = kvarve_allocate_array(count, sizeof *tokens);
    work.keys = kvarve_allocate_array(count / SPAN, sizeof(page_key));
    if (tokens == NULL || work.keys == NULL) {
        kvarve_release(tokens);
        kvarve_release(work.keys);
        return kvarve_fail(bench->err, KVARVE_NO_MEMORY, "bench identity: %zu tokens", count);
    }
    bench_tokens(tokens, count, 1);
    work.tokens = tokens;
    status = namespace_key_init(&work.name, "{\"model\":\"bench\"}", "", bench->err);
    if (status == KVARVE_OK) {
        measure_keys(bench, &work);
        status = measure_append(bench, &work);
    }
    kvarve_release(tokens);
    kvarve_release(work.keys);
    return status;
}
