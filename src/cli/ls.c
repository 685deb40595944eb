/* ls.c - the subcommand `kvarve ls`: what a store holds. Threads: one. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/cli.h"
#include "cli/listing_private.h"

static const cli_usage usage = {
    .synopsis = "ls --store DIR [--namespace PREFIX] [--json]",
    .about = "List the checkpoints of a store, most recently used first, and its totals. Nothing\n"
             "in the store is changed.",
    .below =
        "Example:\n"
        "  kvarve ls --store /var/lib/kvarve\n\n"
        "  ID         first digits of its id; `show` and `rm` take these\n"
        "  NAMESPACE  first digits of the model, engine and layout it belongs to\n"
        "  SIZE       of all its pages\n"
        "  OWN        of the pages that no other checkpoint has: what dropping it frees\n"
        "  STATE      durable: survives loss of power; damaged: not found until a put repairs it\n"
        "  RAM        whether its pages are in the RAM of the process that answers\n\n"
        "With --json one object: {\"store\", \"checkpoints\": [...], \"totals\": {...}}\n"
        "(docs/cli.md).\n\n"
        "Exit codes: 0 done, 2 the path is a file or an option is wrong, 3 no store there, 4\n"
        "in use (the pid is named), 5 damaged (kvarve rebuild), 6 of a newer version.",
};

static json_t *totals_json(const kvarve_statistics *all)
{
    const uint64_t index_bytes = all->index_database_bytes + all->index_log_bytes;

    return json_pack(
        "{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "checkpoints", (json_int_t)all->checkpoints,
        "namespaces", (json_int_t)all->namespaces, "pages", (json_int_t)all->pages, "payload_bytes",
        (json_int_t)all->payload_bytes_taken, "segment_bytes", (json_int_t)all->segment_bytes,
        "segment_files", (json_int_t)all->segment_files, "index_bytes", (json_int_t)index_bytes,
        "damaged_files", (json_int_t)all->damaged_files, "flash_bytes_max",
        (json_int_t)all->flash_bytes_max);
}

static int print_json(const cli_common *common, const cli_listing *listing, const char *prefix,
                      const kvarve_statistics *all)
{
    json_t *rows = json_array();

    for (size_t i = 0; i < listing->count; i++) {
        if (cli_namespace_matches(listing->items[i].namespace_text, prefix)) {
            (void)json_array_append_new(rows, cli_checkpoint_json(&listing->items[i]));
        }
    }
    return cli_json_print(json_pack("{s:s,s:o,s:o}", "store", common->store, "checkpoints", rows,
                                    "totals", totals_json(all)));
}

static void print_totals(const kvarve_statistics *all)
{
    char payload[CLI_SIZE_TEXT];
    char files[CLI_SIZE_TEXT];
    char index[CLI_SIZE_TEXT];
    char cap[CLI_SIZE_TEXT];

    (void)printf("%" PRIu64 " checkpoint%s in %" PRIu64 " namespace%s: %" PRIu64 " page%s, %s\n",
                 all->checkpoints, all->checkpoints == 1 ? "" : "s", all->namespaces,
                 all->namespaces == 1 ? "" : "s", all->pages, all->pages == 1 ? "" : "s",
                 cli_size_text(all->payload_bytes_taken, payload));
    (void)printf("on flash: segment files %s, index %s; the cap is %s unless an opener says "
                 "otherwise\n",
                 cli_size_text(all->segment_bytes, files),
                 cli_size_text(all->index_database_bytes + all->index_log_bytes, index),
                 cli_size_text(all->flash_bytes_max, cap));
    if (all->damaged_files > 0) {
        (void)printf("%" PRIu64 " segment file%s left alone: the first block is damaged\n",
                     all->damaged_files, all->damaged_files == 1 ? " is" : "s are");
    }
}

static void print_text(const cli_listing *listing, const char *prefix, const kvarve_statistics *all)
{
    size_t shown = 0;

    for (size_t i = 0; i < listing->count; i++) {
        if (!cli_namespace_matches(listing->items[i].namespace_text, prefix)) {
            continue;
        }
        if (shown++ == 0) {
            cli_print_head();
        }
        cli_print_row(&listing->items[i]);
    }
    if (shown > 0) {
        (void)putchar('\n');
    } else if (listing->count > 0) {
        (void)printf("no checkpoint is in a namespace that begins with %s\n", prefix);
    }
    print_totals(all);
}

static int list_store(const cli_common *common, const char *prefix, kvarve_store *store)
{
    kvarve_statistics all = KVARVE_STATISTICS_INIT;
    kvarve_error err = {0};
    cli_listing listing;
    int code = cli_listing_read(store, common->is_json, &listing);

    if (code == CLI_OK) {
        const kvarve_status status = kvarve_statistics_get(store, &all, &err);

        code = status == KVARVE_OK ? CLI_OK : cli_fail(common->is_json, status, &err);
    }
    if (code == CLI_OK && common->is_json) {
        code = print_json(common, &listing, prefix, &all);
    } else if (code == CLI_OK) {
        print_text(&listing, prefix, &all);
    }
    cli_listing_free(&listing);
    return code;
}

int cli_ls(int argument_count, char **arguments)
{
    cli_common common = CLI_COMMON_INIT;
    const char *prefix = "";
    const cli_option options[] = {
        CLI_COMMON_OPTIONS(&common),
        {.name = "namespace",
         .value = "PREFIX",
         .kind = CLI_TEXT,
         .target = &prefix,
         .help = "Only namespaces that begin with these digits."},
        {0},
    };
    char **positional = NULL;
    size_t count = 0;
    kvarve_store *store = NULL;
    int code = CLI_OK;

    if (!cli_parse(&usage, options, argument_count, arguments, &positional, &count, &code)) {
        return code;
    }
    code = cli_store_open(&common, KVARVE_OPEN_READ_ONLY | KVARVE_OPEN_EXISTING, 0, &store);
    if (code == CLI_OK) {
        code = list_store(&common, prefix, store);
        kvarve_close(store);
    }
    return code;
}
