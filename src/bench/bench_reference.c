/*
 * bench_reference.c - the reference geometry through real puts on the real file system.
 *
 * 4 ranks, one attention group of span 4096, six recurrent groups and one auxiliary: 7 fixed pages
 * a rank; pages of 6,893,568 bytes. Counted from store counters, from file sizes and from
 * st_blocks. The reference's published figures stand in the notes.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fail.h"
#include "bench/bench_private.h"
#include "env/env_posix.h"
#include "env/io_all.h"

#define RANKS       4u
#define SPAN        4096u
#define FIXED       7u
#define PAGE_BYTES  6893568u
#define TOKENS_MAX  (197000u + 8u * 1024u)
#define FLASH_BYTES UINT64_C(5000000000)
#define ARENA_BYTES (UINT64_C(1536) << 20)

typedef struct reference {
    bench_context *bench;
    kvarve_store *store;
    kvarve_namespace *space;
    uint32_t page_bytes;
    void *page; /* filled differently for every page */
    kvarve_statistics last;
} reference;

static kvarve_status open_reference(reference *work)
{
    kvarve_store_options options = KVARVE_STORE_OPTIONS_INIT;
    kvarve_namespace_options name = KVARVE_NAMESPACE_OPTIONS_INIT;
    kvarve_group groups[1 + FIXED] = {{.page_class = KVARVE_CLASS_PREFIX, .span_tokens = SPAN}};
    const uint64_t scale = kvarve_divide_up(PAGE_BYTES, work->page_bytes);
    kvarve_status status;

    for (uint32_t i = 0; i <= FIXED; i++) {
        groups[i].page_bytes = work->page_bytes;
        if (i > 0) {
            groups[i].page_class = i == FIXED ? KVARVE_CLASS_AUXILIARY : KVARVE_CLASS_ENDPOINT;
        }
    }
    options.flash_bytes_max = FLASH_BYTES / scale + (UINT64_C(64) << 20);
    options.arena_bytes = ARENA_BYTES / scale + (UINT64_C(32) << 20);
    options.io_timeout_ms = 300000;
    name.identity_json = "{\"model\":\"reference geometry\",\"parallel\":{\"dcp\":4,\"tp\":4}}";
    name.groups = groups;
    name.group_count = 1 + FIXED;
    name.rank_count = RANKS;
    status = kvarve_open(work->bench->store_path, &options, &work->store, work->bench->err);
    return status == KVARVE_OK
               ? kvarve_namespace_open(work->store, &name, &work->space, work->bench->err)
               : status;
}

static void close_reference(reference *work)
{
    kvarve_namespace_release(&work->space);
    kvarve_close(work->store);
    work->store = NULL;
}

/* Fill what the rank has to copy; every page gets other bytes. */
static kvarve_status fill_rank(reference *work, kvarve_put *put, uint32_t rank, uint64_t seed)
{
    kvarve_page_plan plan[128];
    size_t count = 0;
    kvarve_status status = kvarve_put_plan(put, rank, plan, 128, &count, work->bench->err);

    for (size_t i = 0; i < count && status == KVARVE_OK; i++) {
        if (plan[i].action == KVARVE_PAGE_COPY) {
            memcpy(plan[i].address, work->page, plan[i].size);
            ((uint64_t *)plan[i].address)[0] = seed * 1000003 + (uint64_t)rank * 4096 + i;
        }
    }
    return status == KVARVE_OK ? kvarve_put_ack(put, rank, NULL, 0, work->bench->err) : status;
}

static kvarve_status put_at(reference *work, const kvarve_prefix *prefix, uint64_t tokens)
{
    kvarve_put_options options = KVARVE_PUT_OPTIONS_INIT;
    kvarve_put *put = NULL;
    kvarve_status status;

    options.tokens = tokens;
    options.kind = KVARVE_KIND_PROMPT;
    options.draft_tokens = tokens - 1;
    status = kvarve_put_begin(work->space, prefix, &options, &put, work->bench->err);
    if (status == KVARVE_OK) {
        status = kvarve_put_wait(put, KVARVE_PUT_STAGED, 300000, work->bench->err);
    }
    if (status == KVARVE_OK && kvarve_put_status(put) != KVARVE_PUT_PRESENT) {
        for (uint32_t rank = 0; rank < RANKS && status == KVARVE_OK; rank++) {
            status = fill_rank(work, put, rank, tokens);
        }
    }
    if (status == KVARVE_OK) {
        status = kvarve_put_wait(put, KVARVE_PUT_DURABLE, 300000, work->bench->err);
    }
    if (status == KVARVE_MISS) {
        status = kvarve_fail(work->bench->err, KVARVE_NO_SPACE, "bench reference: %s",
                             kvarve_refusal_text(kvarve_put_refusal(put)));
    }
    kvarve_put_release(&put);
    return status;
}

typedef struct written {
    uint64_t pages;
    uint64_t payload;
    uint64_t header;
    uint64_t index;
} written;

/* What was written since the last call. */
static written since_last(reference *work)
{
    kvarve_statistics now;
    written delta;

    bench_statistics(work->store, &now);
    delta = (written){
        .payload = now.payload_bytes_written - work->last.payload_bytes_written,
        .header = now.header_bytes_written - work->last.header_bytes_written,
        .index = now.index_log_bytes_written - work->last.index_log_bytes_written +
                 now.index_database_bytes_written - work->last.index_database_bytes_written,
    };
    delta.pages = delta.payload / kvarve_round_up(work->page_bytes, 4096);
    work->last = now;
    return delta;
}

static kvarve_prefix *conversation(const reference *work, uint64_t seed)
{
    uint32_t *tokens = kvarve_allocate_array(TOKENS_MAX, sizeof *tokens);
    kvarve_prefix *prefix = NULL;

    if (tokens != NULL && kvarve_prefix_create(&prefix, work->bench->err) == KVARVE_OK) {
        bench_tokens(tokens, TOKENS_MAX, seed);
        if (kvarve_prefix_append(prefix, tokens, TOKENS_MAX, work->bench->err) != KVARVE_OK) {
            kvarve_prefix_free(prefix);
            prefix = NULL;
        }
    }
    kvarve_release(tokens);
    return prefix;
}

static void report(const reference *work, const char *what, uint64_t tokens, const written *delta,
                   uint64_t pages_expected)
{
    char name[96];

    (void)snprintf(name, sizeof name, "%s N=%llu pages", what, (unsigned long long)tokens);
    bench_count(work->bench, name, "pages", delta->pages, pages_expected, true);
    (void)snprintf(name, sizeof name, "%s N=%llu payload", what, (unsigned long long)tokens);
    bench_count(work->bench, name, "bytes", delta->payload,
                pages_expected * kvarve_round_up(work->page_bytes, 4096), true);
    (void)snprintf(name, sizeof name, "%s N=%llu index and records", what,
                   (unsigned long long)tokens);
    bench_count(work->bench, name, "bytes", delta->index + delta->header,
                pages_expected == 0 ? 0 : UINT64_MAX, true);
}

static uint64_t expected_pages(uint64_t tokens)
{
    return RANKS * (FIXED + kvarve_divide_up(tokens, SPAN));
}

static kvarve_status one_length(reference *work, uint64_t tokens)
{
    kvarve_prefix *prefix = conversation(work, tokens);
    written delta;
    kvarve_status status = prefix == NULL ? KVARVE_NO_MEMORY : put_at(work, prefix, tokens);

    delta = since_last(work);
    if (status == KVARVE_OK) {
        report(work, "first put", tokens, &delta, expected_pages(tokens));
        status = put_at(work, prefix, tokens);
        delta = since_last(work);
    }
    if (status == KVARVE_OK) {
        report(work, "exact replay", tokens, &delta, 0);
        close_reference(work);
        status = open_reference(work);
    }
    if (status == KVARVE_OK) {
        bench_statistics(work->store, &work->last);
        status = put_at(work, prefix, tokens);
        delta = since_last(work);
    }
    if (status == KVARVE_OK) {
        report(work, "replay after restart", tokens, &delta, 0);
    }
    kvarve_prefix_free(prefix);
    return status;
}

/* Six turns of 1024 tokens after 31,900: a checkpoint each. */
static kvarve_status turns(reference *work)
{
    kvarve_prefix *prefix = conversation(work, 31900);
    kvarve_status status = prefix == NULL ? KVARVE_NO_MEMORY : KVARVE_OK;

    for (uint64_t turn = 1; turn <= 6 && status == KVARVE_OK; turn++) {
        const uint64_t tokens = 31900 + turn * 1024;
        const uint64_t before = (tokens - 1024) / SPAN;
        const uint64_t full = tokens / SPAN - before;
        const uint64_t partial = tokens % SPAN != 0;
        written delta;

        status = put_at(work, prefix, tokens);
        delta = since_last(work);
        if (status == KVARVE_OK) {
            report(work, "turn", tokens, &delta, RANKS * (FIXED + full + partial));
        }
    }
    kvarve_prefix_free(prefix);
    return status;
}

typedef struct folder_sizes {
    const char *directory;
    uint64_t size;
    uint64_t allocated;
} folder_sizes;

static bool add_size(void *context, const char *name)
{
    folder_sizes *sizes = context;
    kvarve_file_stat stat;
    char path[KVARVE_PATH_MAX];

    if (io_join_path(path, sizeof path, sizes->directory, name) == 0 &&
        io_posix()->ops->stat(io_posix(), path, &stat) == 0 && stat.kind == KVARVE_FILE_REGULAR) {
        sizes->size += stat.size;
        sizes->allocated += stat.allocated_bytes;
    }
    return true;
}

static void report_disk(const reference *work)
{
    char segments[KVARVE_PATH_MAX];
    folder_sizes sizes = {.directory = segments};

    if (io_join_path(segments, sizeof segments, work->bench->store_path, "segments") != 0) {
        return;
    }
    (void)io_posix()->ops->list(io_posix(), segments, add_size, &sizes);
    bench_count(work->bench, "segment files, sizes", "bytes", sizes.size, UINT64_MAX, true);
    bench_count(work->bench, "segment files, st_blocks", "bytes", sizes.allocated, UINT64_MAX,
                true);
}

static kvarve_status run_reference(bench_context *bench, const uint64_t *lengths, size_t count,
                                   bool has_turns)
{
    reference work = {.bench = bench,
                      .page_bytes = bench->options->page_bytes != 0
                                        ? (uint32_t)bench->options->page_bytes
                                        : PAGE_BYTES};
    kvarve_status status;

    if (bench->options->page_bytes != 0 &&
        (bench->options->page_bytes < 4096 || bench->options->page_bytes > PAGE_BYTES)) {
        return kvarve_fail(bench->err, KVARVE_INVALID, "bench %s: --page-bytes %llu: 4096 .. %u",
                           bench->name, (unsigned long long)bench->options->page_bytes, PAGE_BYTES);
    }
    work.page = bench_buffer(kvarve_round_up(work.page_bytes, 4096), bench->err);
    status = work.page == NULL ? KVARVE_NO_MEMORY : open_reference(&work);
    if (status == KVARVE_OK) {
        bench_statistics(work.store, &work.last);
    }
    for (size_t i = 0; i < count && status == KVARVE_OK; i++) {
        status = one_length(&work, lengths[i]);
        if (status == KVARVE_OK && has_turns && lengths[i] == 31900) {
            status = turns(&work);
        }
    }
    if (status == KVARVE_OK) {
        report_disk(&work);
    }
    if (work.store != NULL) {
        close_reference(&work);
    }
    bench_free_buffer(work.page);
    return status;
}

kvarve_status bench_reference(bench_context *bench)
{
    static const uint64_t lengths[] = {1000, 8000, 31900, 197000};

    if (!bench->options->has_json) {
        (void)fprintf(
            bench->options->out,
            "the reference, published: 32/36/60/224 files and 220.7/248.3/413.7/1544 MB a "
            "checkpoint; replay 0 files, after a restart 4120 index bytes; a 1K turn 303 to 441 "
            "MB (two boundaries)\n");
    }
    return run_reference(bench, lengths, sizeof lengths / sizeof lengths[0], true);
}

kvarve_status bench_replay(bench_context *bench)
{
    static const uint64_t lengths[] = {31900};

    return run_reference(bench, lengths, 1, false);
}
