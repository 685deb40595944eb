/*
 * serve.c - the subcommand `kvarve serve`: a store for several processes (src/daemon).
 *
 * Options are the daemon's own table; the file is read first, flags overrule it. Threads: one.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/cli.h"
#include "daemon/daemon.h"

#define OPTIONS_MAX 32

static const cli_usage usage = {
    .synopsis = "serve --store DIR --socket PATH [--config FILE] [OPTION...]",
    .about =
        "Serve a store to the processes of this machine, until SIGTERM or SIGINT. Clients open\n"
        "\"unix:PATH\" instead of a folder and share everything that is stored.",
    .below =
        "Every option may stand in a file as well, one `name = value` a line, and --config names\n"
        "it. A flag overrules the file; a list of flags takes the place of the file's list.\n\n"
        "  [serve]\n"
        "  store = /var/lib/kvarve\n"
        "  socket = /run/kvarve/kvarve.sock\n"
        "  arena = 16G\n"
        "  allow-group = llm\n\n"
        "Example:\n"
        "  kvarve serve --store kv --socket kv.sock &\n"
        "  kvarve status --store unix:kv.sock\n\n"
        "Signals: SIGTERM and SIGINT end it in order: what is ready becomes durable, what is not\n"
        "is given up; a second one ends it at once. SIGHUP reads log-level, allow-user and\n"
        "allow-group of the file again. The log is on stderr, a line of key=value each.\n\n"
        "Exit codes: 0 ended in order, all that was ready is durable; 1 it did not; 2 an option\n"
        "is wrong; 4 store or socket are in use (the pid is named); 5 damaged (kvarve rebuild);\n"
        "6 of a newer version; 7 no room for the arena or on the disk.",
};

/* What the command line said: kept for SIGHUP. */
typedef struct serve_flags {
    cli_texts values[OPTIONS_MAX];
    const char *file;
} serve_flags;

/* File, then flags. */
static kvarve_status read_config(void *context, daemon_config *out, kvarve_error *err)
{
    const serve_flags *flags = context;
    kvarve_status status = KVARVE_OK;

    config_begin(out);
    if (flags->file != NULL) {
        status = config_read(out, flags->file, err);
    }
    config_begin_flags(out);
    for (size_t i = 0; config_option_at(i) != NULL; i++) {
        const cli_texts *given = &flags->values[i];
        char where[64];

        (void)snprintf(where, sizeof where, "--%s", config_option_at(i)->name);
        /* Of what is no list the last one counts, as everywhere. */
        const bool is_list = config_option_at(i)->kind == CONFIG_NAMES;
        for (size_t j = is_list || given->count == 0 ? 0 : given->count - 1;
             j < given->count && status == KVARVE_OK; j++) {
            status = config_set(out, config_option_at(i)->name, given->text[j], where, err);
        }
    }
    return status;
}

/* The daemon's table as the command line's. */
static void fill_options(serve_flags *flags, cli_option out[OPTIONS_MAX + 2])
{
    size_t count = 0;

    out[count++] = (cli_option){.name = "config",
                                .value = "FILE",
                                .kind = CLI_TEXT,
                                .target = &flags->file,
                                .letter = 'c',
                                .help = "Read options from this file first."};
    for (size_t i = 0; i < OPTIONS_MAX && config_option_at(i) != NULL; i++) {
        const config_option *option = config_option_at(i);

        out[count++] = (cli_option){.name = option->name,
                                    .value = option->value,
                                    .kind = CLI_LIST,
                                    .target = &flags->values[i],
                                    .letter = strcmp(option->name, "store") == 0 ? 's' : '\0',
                                    .help = option->text};
    }
    out[count] = (cli_option){0};
}

int cli_serve(int argument_count, char **arguments)
{
    static serve_flags flags;
    static daemon_options options;
    cli_option table[OPTIONS_MAX + 2];
    char **positional = NULL;
    size_t count = 0;
    kvarve_error err = {0};
    kvarve_status status;
    int code = CLI_OK;

    fill_options(&flags, table);
    if (!cli_parse(&usage, table, argument_count, arguments, &positional, &count, &code)) {
        return code;
    }
    options.reload = read_config;
    options.context = &flags;
    status = read_config(&flags, &options.config, &err);
    if (status == KVARVE_OK) {
        status = daemon_run(&options, &err);
    }
    return status == KVARVE_OK ? CLI_OK : cli_fail(false, status, &err);
}
