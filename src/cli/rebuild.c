/*
 * rebuild.c - the subcommand `kvarve rebuild`: make the index anew from the segments.
 *
 * Threads    One.
 */
#include <inttypes.h>
#include <stdio.h>

#include "cli/cli.h"
#include "env/terminal.h"

static const cli_usage usage = {
    .synopsis = "rebuild --store DIR [--json]",
    .about = "Throw the index of a store away and make it anew from the records in its segments.\n"
             "Every page is read and checked; checkpoints that can not be restored are dropped.\n"
             "This is what to do when a store does not open because its index or its file `store`\n"
             "is damaged. Order of last use is lost.",
    .below = "Example:\n"
             "  kvarve rebuild --store /var/lib/kvarve\n\n"
             "With --json one object: {\"checkpoints_before\", \"checkpoints\", \"pages\",\n"
             "\"damaged_files\"}; checkpoints_before is null when the store could not be read\n"
             "before.\n\n"
             "Exit codes: 0 done, 1 input or output failed, 2 the path is a file or an option is\n"
             "wrong, 3 no store there, 4 in use (the pid is named), 5 damaged beyond this, 6 of a\n"
             "newer version, 7 no room.",
};

#define NOT_KNOWN UINT64_MAX

/* How many there are now; NOT_KNOWN when it does not open. */
static uint64_t count_before(const cli_common *common)
{
    kvarve_statistics all = KVARVE_STATISTICS_INIT;
    kvarve_store_options options = KVARVE_STORE_OPTIONS_INIT;
    kvarve_store *store = NULL;
    uint64_t count = NOT_KNOWN;

    options.arena_bytes = common->arena_bytes;
    options.wait_ms = (uint32_t)common->wait_ms;
    options.flags = KVARVE_OPEN_READ_ONLY | KVARVE_OPEN_EXISTING;
    if (kvarve_open(common->store, &options, &store, NULL) != KVARVE_OK) {
        return NOT_KNOWN;
    }
    if (kvarve_statistics_get(store, &all, NULL) == KVARVE_OK) {
        count = all.checkpoints;
    }
    kvarve_close(store);
    return count;
}

static int print_result(const cli_common *common, uint64_t before, const kvarve_statistics *after)
{
    if (common->is_json) {
        return cli_json_print(
            json_pack("{s:o,s:I,s:I,s:I}", "checkpoints_before",
                      before == NOT_KNOWN ? json_null() : json_integer((json_int_t)before),
                      "checkpoints", (json_int_t)after->checkpoints, "pages",
                      (json_int_t)after->pages, "damaged_files", (json_int_t)after->damaged_files));
    }
    if (before == NOT_KNOWN) {
        (void)printf("before: could not be read\n");
    } else {
        (void)printf("before: %" PRIu64 " checkpoint%s\n", before, before == 1 ? "" : "s");
    }
    (void)printf("now:    %" PRIu64 " checkpoint%s, %" PRIu64 " page%s, each read and checked\n",
                 after->checkpoints, after->checkpoints == 1 ? "" : "s", after->pages,
                 after->pages == 1 ? "" : "s");
    if (after->damaged_files != 0) {
        (void)printf("%" PRIu64 " segment file%s left alone: the first block is damaged\n",
                     after->damaged_files, after->damaged_files == 1 ? " is" : "s are");
    }
    return CLI_OK;
}

int cli_rebuild(int argument_count, char **arguments)
{
    cli_common common = CLI_COMMON_INIT;
    const cli_option options[] = {CLI_COMMON_OPTIONS(&common), {0}};
    kvarve_statistics after = KVARVE_STATISTICS_INIT;
    kvarve_error err = {0};
    kvarve_status status;
    kvarve_store *store = NULL;
    char **positional = NULL;
    size_t count = 0;
    uint64_t before;
    int code = CLI_OK;

    if (!cli_parse(&usage, options, argument_count, arguments, &positional, &count, &code)) {
        return code;
    }
    before = count_before(&common);
    if (common.wants_progress || terminal_has_stderr()) {
        (void)fprintf(stderr, "kvarve: rebuild: reading the segments ...\n");
    }
    code = cli_store_open(&common, KVARVE_OPEN_REBUILD | KVARVE_OPEN_EXISTING, 0, &store);
    if (code != CLI_OK) {
        return code;
    }
    status = kvarve_statistics_get(store, &after, &err);
    code = status == KVARVE_OK ? print_result(&common, before, &after)
                               : cli_fail(common.is_json, status, &err);
    kvarve_close(store);
    return code;
}
