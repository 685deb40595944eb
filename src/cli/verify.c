/*
 * verify.c - the subcommand `kvarve verify`: read and check everything that is stored.
 *
 * Threads    One.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "cli/cli.h"
#include "cli/listing_private.h"

static const cli_usage usage = {
    .synopsis = "verify --store DIR [--json]",
    .about = "Read every page of a store and check its bytes, then the index. Nothing is changed:\n"
             "what is damaged is never handed out anyway, and a put of the same content repairs\n"
             "it. `kvarve rebuild` drops what can not be restored.",
    .below = "Example:\n"
             "  kvarve verify --store /var/lib/kvarve\n\n"
             "With --json one object: {\"is_whole\", \"pages_checked\", \"pages_total\",\n"
             "\"bytes_checked\", \"pages_damaged\", \"checkpoints_lost\", \"is_index_damaged\",\n"
             "\"damaged_files\", \"damaged\": [checkpoints as in kvarve ls]}.\n\n"
             "Exit codes: 0 all is whole, 1 not everything could be read, 2 the path is a file or\n"
             "an option is wrong, 3 no store there, 4 in use (the pid is named), 5 damage was\n"
             "found, 6 of a newer version.",
};

typedef struct scrub {
    const cli_common *common;
    kvarve_verify_result result;
    kvarve_statistics all;
    cli_listing listing;
} scrub;

static bool is_whole(const scrub *work)
{
    return work->result.pages_damaged == 0 && work->result.is_index_damaged == 0 &&
           work->all.damaged_files == 0;
}

static int print_json(const scrub *work)
{
    json_t *damaged = json_array();

    for (size_t i = 0; i < work->listing.count; i++) {
        if (work->listing.items[i].is_damaged != 0) {
            (void)json_array_append_new(damaged, cli_checkpoint_json(&work->listing.items[i]));
        }
    }
    return cli_json_print(json_pack(
        "{s:b,s:I,s:I,s:I,s:I,s:I,s:b,s:I,s:o}", "is_whole", is_whole(work), "pages_checked",
        (json_int_t)work->result.pages_checked, "pages_total", (json_int_t)work->result.pages_total,
        "bytes_checked", (json_int_t)work->result.bytes_checked, "pages_damaged",
        (json_int_t)work->result.pages_damaged, "checkpoints_lost",
        (json_int_t)work->result.checkpoints_lost, "is_index_damaged",
        work->result.is_index_damaged != 0, "damaged_files", (json_int_t)work->all.damaged_files,
        "damaged", damaged));
}

static void print_damage(const scrub *work)
{
    size_t shown = 0;

    if (work->result.is_index_damaged != 0) {
        (void)printf("the index is damaged: kvarve rebuild makes it anew from the segments\n");
    }
    if (work->all.damaged_files != 0) {
        (void)printf("%" PRIu64 " segment files are not read: their first block is damaged\n",
                     work->all.damaged_files);
    }
    for (size_t i = 0; i < work->listing.count; i++) {
        if (work->listing.items[i].is_damaged == 0) {
            continue;
        }
        if (shown++ == 0) {
            (void)printf("not found until a put repairs them:\n");
            cli_print_head();
        }
        cli_print_row(&work->listing.items[i]);
    }
}

static void print_text(const scrub *work)
{
    char bytes[CLI_SIZE_TEXT];

    (void)printf("checked %" PRIu64 " of %" PRIu64 " page%s, %s: %s\n", work->result.pages_checked,
                 work->result.pages_total, work->result.pages_total == 1 ? "" : "s",
                 cli_size_text(work->result.bytes_checked, bytes),
                 is_whole(work) ? "all is whole" : "damage was found");
    if (work->result.pages_damaged > 0) {
        (void)printf("%" PRIu64 " page%s damaged, %" PRIu64 " checkpoint%s lost by it\n",
                     work->result.pages_damaged, work->result.pages_damaged == 1 ? " is" : "s are",
                     work->result.checkpoints_lost,
                     work->result.checkpoints_lost == 1 ? " is" : "s are");
    }
    print_damage(work);
}

static int finish(scrub *work)
{
    int code = CLI_OK;

    if (work->common->is_json) {
        code = print_json(work);
    } else {
        print_text(work);
    }
    if (code == CLI_OK && !is_whole(work)) {
        return CLI_CORRUPT;
    }
    if (code == CLI_OK && work->result.pages_checked < work->result.pages_total) {
        const uint64_t unread = work->result.pages_total - work->result.pages_checked;

        (void)fprintf(stderr, "kvarve: verify: %" PRIu64 " page%s could not be read\n", unread,
                      unread == 1 ? "" : "s");
        return CLI_FAILED;
    }
    return code;
}

static int verify_store(scrub *work, kvarve_store *store)
{
    cli_progress progress;
    kvarve_error err = {0};
    kvarve_status status;
    int code;

    cli_progress_begin(&progress, work->common, "verify");
    status = kvarve_verify(store, cli_progress_update, &progress, &work->result, &err);
    cli_progress_end(&progress);
    if (status == KVARVE_OK || status == KVARVE_CORRUPT) {
        status = kvarve_statistics_get(store, &work->all, &err);
    }
    if (status != KVARVE_OK) {
        return cli_fail(work->common->is_json, status, &err);
    }
    code = cli_listing_read(store, work->common->is_json, &work->listing);
    if (code == CLI_OK) {
        code = finish(work);
    }
    cli_listing_free(&work->listing);
    return code;
}

int cli_verify(int argument_count, char **arguments)
{
    cli_common common = CLI_COMMON_INIT;
    scrub work = {.common = &common, .all = KVARVE_STATISTICS_INIT};
    const cli_option options[] = {CLI_COMMON_OPTIONS(&common), {0}};
    char **positional = NULL;
    size_t count = 0;
    kvarve_store *store = NULL;
    int code = CLI_OK;

    if (!cli_parse(&usage, options, argument_count, arguments, &positional, &count, &code)) {
        return code;
    }
    code = cli_store_open(&common, KVARVE_OPEN_READ_ONLY | KVARVE_OPEN_EXISTING, 0, &store);
    if (code == CLI_OK) {
        code = verify_store(&work, store);
        kvarve_close(store);
    }
    return code;
}
