/*
 * bench.c - the subcommand `kvarve bench`: the figures of src/bench, one after another, in a folder
 * of their own.
 *
 * Invariants
 *   I1  What is removed afterwards is what the benches made, and the folder only where this command
 *       made it. A folder that is a store is refused.
 *   I2  The exit code says whether the benches ran, not how fast.
 *
 * Threads    One; a bench has its own.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "cli/cli.h"
#include "env/env_posix.h"
#include "env/io_all.h"
#include "env/terminal.h"

#define DEFAULT_FOLDER "kvarve-bench"
#define RUNS_MAX       64

typedef struct bench_command {
    bench_options options;
    uint64_t runs;
    bool wants_list;
    bool wants_progress;
} bench_command;

static const cli_usage usage = {
    .synopsis = "bench [NAME...] [--store DIR] [--json]",
    .about = "Measure kvarve here: each figure beside its yardstick (plain direct I/O, memcpy,\n"
             "plain SHA-256), which runs in the same process in turn with it. A figure is a ratio\n"
             "of medians; the single runs are printed too. Without a NAME all benches run: that\n"
             "takes minutes and about 6 GB of disk and 2 GB of RAM. Sizes can be lowered; the\n"
             "output then says so.",
    .below =
        "Examples:\n"
        "  kvarve bench --list\n"
        "  kvarve bench identity find\n"
        "  kvarve bench put restore --store /mnt/ssd/scratch --json\n"
        "  kvarve bench reference --page-bytes 65536\n\n"
        "With --json one object a line:\n"
        "  {\"bench\",\"figure\",\"unit\",\"value\",\"yardstick\",\"ratio\",\"reach\",\"ok\","
        "\"runs\"}\n"
        "value and yardstick are medians, null where there is none; reach is what is asked of\n"
        "the ratio, or of the value where there is no yardstick; ok says whether it was\n"
        "reached.\n\n"
        "Exit codes: 0 all benches ran (whatever ok says), 1 input or output failed, 2 no\n"
        "such bench or a size out of range, 7 no room.",
    .positional_max = SIZE_MAX,
};

static int list_benches(bool is_json)
{
    size_t count = 0;
    const bench_entry *entries = bench_list(&count);
    int code = CLI_OK;

    for (size_t i = 0; i < count && code == CLI_OK; i++) {
        if (is_json) {
            code = cli_json_print(
                json_pack("{s:s,s:s}", "bench", entries[i].name, "text", entries[i].text));
        } else {
            (void)printf("%-13s %s\n", entries[i].name, entries[i].text);
        }
    }
    return code;
}

static bool is_known(const char *name)
{
    size_t count = 0;
    const bench_entry *entries = bench_list(&count);

    for (size_t i = 0; i < count; i++) {
        if (strcmp(entries[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Make the folder, or take the one that is there. CLI_OK, or an exit code after a message. */
static int enter_folder(const bench_options *options, bool *out_is_made)
{
    kvarve_io *io = io_posix();
    char path[4096];
    kvarve_file_stat stat;
    const int rc = io->ops->make_directory(io, options->directory, 0700);

    *out_is_made = rc == 0;
    if (rc == 0) {
        return CLI_OK;
    }
    if (rc != -EEXIST) {
        return cli_fail_text(options->has_json, CLI_FAILED, "bench: the folder %s can not be made",
                             options->directory);
    }
    if (io->ops->stat(io, options->directory, &stat) != 0 || stat.kind != KVARVE_FILE_DIRECTORY) {
        return cli_fail_text(options->has_json, CLI_USAGE, "bench: %s is a file, not a folder",
                             options->directory);
    }
    if (io_join_path(path, sizeof(path), options->directory, "store") == 0 &&
        io->ops->stat(io, path, &stat) == 0) { /* I1 */
        return cli_fail_text(options->has_json, CLI_USAGE,
                             "bench: %s is a store; name a folder for scratch files",
                             options->directory);
    }
    return CLI_OK;
}

static int run_one(const bench_command *command, const char *name)
{
    kvarve_error err = {0};
    kvarve_status status;

    if (command->wants_progress || terminal_has_stderr()) {
        (void)fprintf(stderr, "kvarve: bench %s ...\n", name);
    }
    status = bench_run(name, &command->options, &err);
    return status == KVARVE_OK ? CLI_OK : cli_fail(command->options.has_json, status, &err);
}

static int run_all(const bench_command *command, char **names, size_t name_count)
{
    size_t count = 0;
    const bench_entry *entries = bench_list(&count);
    int code = CLI_OK;

    for (size_t i = 0; i < name_count && code == CLI_OK; i++) {
        code = run_one(command, names[i]);
    }
    for (size_t i = 0; name_count == 0 && i < count && code == CLI_OK; i++) {
        code = run_one(command, entries[i].name);
    }
    return code;
}

/* As cli_parse, into `command`. */
static bool parse(bench_command *command, int argument_count, char **arguments, char ***out_names,
                  size_t *out_count, int *out_code)
{
    const cli_option options[] = {
        {.name = "list",
         .kind = CLI_FLAG,
         .target = &command->wants_list,
         .help = "Say what each bench measures, and run none."},
        {.name = "store",
         .value = "DIR",
         .kind = CLI_TEXT,
         .target = &command->options.directory,
         .letter = 's',
         .help = "Where stores and yardstick files are made and removed again: its file system is "
                 "what is measured. Default: a new folder " DEFAULT_FOLDER " here."},
        {.name = "runs",
         .value = "N",
         .kind = CLI_COUNT,
         .target = &command->runs,
         .minimum = 1,
         .maximum = RUNS_MAX,
         .help = "Runs of each figure. Default: 5."},
        {.name = "page-bytes",
         .value = "BYTES",
         .kind = CLI_BYTES,
         .target = &command->options.page_bytes,
         .minimum = 4096,
         .maximum = UINT64_C(1) << 30,
         .help = "Bytes of a page (reference, replay, put, restore, restore-ram)."},
        {.name = "bytes",
         .value = "BYTES",
         .kind = CLI_BYTES,
         .target = &command->options.bytes,
         .minimum = 1,
         .maximum = UINT64_C(8) << 30,
         .help = "Payload of one run (put, restore, restore-ram)."},
        {.name = "count",
         .value = "N",
         .kind = CLI_COUNT,
         .target = &command->options.count,
         .minimum = 1,
         .help = "Checkpoints or tokens, as --list says (identity, find, "
                 "index-growth)."},
        {.name = "keep",
         .kind = CLI_FLAG,
         .target = &command->options.keeps_store,
         .help = "Leave the last bench's store in DIR/kvarve-bench-store."},
        {.name = "json",
         .kind = CLI_FLAG,
         .target = &command->options.has_json,
         .help = "Print one JSON object a figure."},
        {.name = "progress",
         .kind = CLI_FLAG,
         .target = &command->wants_progress,
         .help = "Show progress also when stderr is no terminal."},
        {0},
    };

    return cli_parse(&usage, options, argument_count, arguments, out_names, out_count, out_code);
}

static int check_names(const bench_command *command, char **names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!is_known(names[i])) {
            return cli_fail_text(command->options.has_json, CLI_USAGE,
                                 "bench: there is no \"%s\" (kvarve bench --list)", names[i]);
        }
    }
    return CLI_OK;
}

static int run_in_folder(const bench_command *command, char **names, size_t count)
{
    bool is_made = false;
    int code = enter_folder(&command->options, &is_made);

    if (code == CLI_OK) {
        code = run_all(command, names, count);
    }
    if (is_made) {
        (void)remove(command->options.directory); /* I1: it goes when it is empty */
    }
    return code;
}

int cli_bench(int argument_count, char **arguments)
{
    bench_command command = {.options = {.directory = DEFAULT_FOLDER, .out = stdout}};
    char **names = NULL;
    size_t count = 0;
    int code = CLI_OK;

    if (!parse(&command, argument_count, arguments, &names, &count, &code)) {
        return code;
    }
    if (command.wants_list) {
        return list_benches(command.options.has_json);
    }
    code = check_names(&command, names, count);
    if (code == CLI_OK) {
        command.options.runs = (uint32_t)command.runs;
        code = run_in_folder(&command, names, count);
    }
    return code;
}
