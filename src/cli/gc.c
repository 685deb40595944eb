/*
 * gc.c - the subcommand `kvarve gc`: give space back to the disk.
 *
 * With --cap the least recently used checkpoints go first, until what is stored fits. Counted is
 * what is in use: pages and the index, not the holes in segment files, which the disk has back.
 *
 * Threads    One.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "cli/cli.h"
#include "cli/listing_private.h"

static const cli_usage usage = {
    .synopsis = "gc --store DIR [--cap BYTES] [--json]",
    .about = "Give unused space back to the file system: holes in segment files, and files that\n"
             "hold nothing. With --cap, first drop the least recently used checkpoints, whole\n"
             "ones, until pages and index take at most so much.",
    .below = "Example:\n"
             "  kvarve gc --store /var/lib/kvarve --cap 20G\n\n"
             "With --json one object: {\"dropped\", \"bytes_returned\", \"bytes_used\"}.\n\n"
             "Exit codes: 0 done, 1 input or output failed, 2 the path is a file or an option is\n"
             "wrong, 3 no store there, 4 in use (the pid is named), 5 damaged (kvarve rebuild), 6\n"
             "of a newer version, 7 the cap can not be reached: what is left is in use, or the\n"
             "index alone is more.",
};

typedef struct collection {
    const cli_common *common;
    kvarve_store *store;
    uint64_t cap;
    uint64_t dropped;
    uint64_t returned;
} collection;

static int count_used(const collection *work, uint64_t *out)
{
    kvarve_statistics all = KVARVE_STATISTICS_INIT;
    kvarve_error err = {0};
    const kvarve_status status = kvarve_statistics_get(work->store, &all, &err);

    if (status != KVARVE_OK) {
        return cli_fail(work->common->is_json, status, &err);
    }
    *out = all.payload_bytes_taken + all.index_database_bytes + all.index_log_bytes;
    return CLI_OK;
}

/* Drop from the end of the listing, the least recently used, until what is used fits. */
static int drop_down(collection *work, const cli_listing *listing)
{
    cli_progress progress;
    uint64_t used = 0;
    int code = count_used(work, &used);

    cli_progress_begin(&progress, work->common, "gc");
    for (size_t i = listing->count; i > 0 && used > work->cap && code == CLI_OK; i--) {
        kvarve_error err = {0};
        const kvarve_status status = kvarve_drop(work->store, listing->items[i - 1].id, &err);

        if (status == KVARVE_OK) {
            work->dropped++;
            code = count_used(work, &used);
        } else if (status != KVARVE_MISS && status != KVARVE_BUSY) { /* gone, or in use: the next */
            code = cli_fail(work->common->is_json, status, &err);
        }
        cli_progress_update(&progress, listing->count - i + 1, listing->count);
    }
    cli_progress_end(&progress);
    return code;
}

static int drop_to_cap(collection *work)
{
    cli_listing listing;
    int code = cli_listing_read(work->store, work->common->is_json, &listing);

    if (code == CLI_OK) {
        code = drop_down(work, &listing);
    }
    cli_listing_free(&listing);
    return code;
}

static int print_result(const collection *work, uint64_t used)
{
    char returned[CLI_SIZE_TEXT];
    char text[CLI_SIZE_TEXT];

    if (work->common->is_json) {
        return cli_json_print(json_pack("{s:I,s:I,s:I}", "dropped", (json_int_t)work->dropped,
                                        "bytes_returned", (json_int_t)work->returned, "bytes_used",
                                        (json_int_t)used));
    }
    if (work->cap != 0) {
        (void)printf("dropped %" PRIu64 " checkpoint%s\n", work->dropped,
                     work->dropped == 1 ? "" : "s");
    }
    (void)printf("gave %s back to the disk; %s are in use\n",
                 cli_size_text(work->returned, returned), cli_size_text(used, text));
    return CLI_OK;
}

static int collect(collection *work)
{
    kvarve_error err = {0};
    uint64_t used = 0;
    char text[CLI_SIZE_TEXT];
    int code = work->cap == 0 ? CLI_OK : drop_to_cap(work);

    if (code == CLI_OK) {
        const kvarve_status status = kvarve_trim(work->store, &work->returned, &err);

        code = status == KVARVE_OK ? CLI_OK : cli_fail(work->common->is_json, status, &err);
    }
    if (code == CLI_OK) {
        code = count_used(work, &used);
    }
    if (code == CLI_OK && work->cap != 0 && used > work->cap) {
        return cli_fail_text(work->common->is_json, CLI_NO_SPACE,
                             "gc: %s are in use after dropping all that may go",
                             cli_size_text(used, text));
    }
    return code == CLI_OK ? print_result(work, used) : code;
}

int cli_gc(int argument_count, char **arguments)
{
    cli_common common = CLI_COMMON_INIT;
    collection work = {.common = &common};
    const cli_option options[] = {
        CLI_COMMON_OPTIONS(&common),
        {.name = "cap",
         .value = "BYTES",
         .kind = CLI_BYTES,
         .target = &work.cap,
         .minimum = UINT64_C(1) << 20,
         .help = "Drop the least recently used until at most so much is in use, as 500M or 20G."},
        {0},
    };
    char **positional = NULL;
    size_t count = 0;
    int code = CLI_OK;

    if (!cli_parse(&usage, options, argument_count, arguments, &positional, &count, &code)) {
        return code;
    }
    code = cli_store_open(&common, KVARVE_OPEN_EXISTING, 0, &work.store);
    if (code == CLI_OK) {
        code = collect(&work);
        kvarve_close(work.store);
    }
    return code;
}
