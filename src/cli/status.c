/* status.c - the subcommand `kvarve status`: how a running daemon is. Threads: one. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "daemon/ask.h"

#define MINUTE   UINT64_C(60)
#define HOUR     (60 * MINUTE)
#define DAY      (24 * HOUR)
#define AGE_TEXT 24

static const cli_usage usage = {
    .synopsis = "status --store unix:PATH [--timeout MS] [--json]",
    .about = "Ask the daemon (kvarve serve) at this socket how it is.",
    .below =
        "Example:\n"
        "  kvarve status --store unix:/run/kvarve/kvarve.sock\n\n"
        "With --json one object: pid, version, uptime_s, clients, quarantined, arena, and all\n"
        "statistics (docs/operations.md).\n\n"
        "Exit codes: 0 it answers, 1 it does not or its store failed, 2 an option is wrong or\n"
        "this user is not allowed, 3 nobody listens there, 4 it has no room for a client.",
};

static const char *age_text(uint64_t seconds, char out[AGE_TEXT])
{
    if (seconds < 2 * MINUTE) {
        (void)snprintf(out, AGE_TEXT, "%" PRIu64 " s", seconds);
    } else if (seconds < 2 * HOUR) {
        (void)snprintf(out, AGE_TEXT, "%" PRIu64 " min", seconds / MINUTE);
    } else if (seconds < 2 * DAY) {
        (void)snprintf(out, AGE_TEXT, "%" PRIu64 " h", seconds / HOUR);
    } else {
        (void)snprintf(out, AGE_TEXT, "%" PRIu64 " d", seconds / DAY);
    }
    return out;
}

static json_t *statistics_json(const kvarve_statistics *all)
{
    json_t *object = json_object();

#define STATISTIC_ROW(field, unit, text)                                                           \
    (void)json_object_set_new(object, #field, json_integer((json_int_t)all->field));
    KVARVE_STATISTIC_TABLE(STATISTIC_ROW)
#undef STATISTIC_ROW
    return object;
}

static int print_json(const daemon_answer *answer)
{
    const wire_status_is *at = &answer->status;

    return cli_json_print(json_pack(
        "{s:I,s:s,s:I,s:I,s:I,s:{s:I,s:I,s:b,s:b},s:o}", "pid", (json_int_t)at->pid, "version",
        at->version, "uptime_s", (json_int_t)at->uptime_s, "clients", (json_int_t)at->clients,
        "quarantined", (json_int_t)at->quarantined, "arena", "bytes", (json_int_t)at->arena_bytes,
        "bytes_populated", (json_int_t)at->arena_bytes_populated, "is_huge", at->is_huge != 0,
        "would_survive", at->would_survive != 0, "statistics",
        statistics_json(&answer->statistics)));
}

static void print_text(const daemon_answer *answer)
{
    const wire_status_is *at = &answer->status;
    const kvarve_statistics *all = &answer->statistics;
    char age[AGE_TEXT];
    char first[CLI_SIZE_TEXT];
    char second[CLI_SIZE_TEXT];

    (void)printf("daemon       pid %" PRIu32 ", kvarve %s, up %s\n", at->pid, at->version,
                 age_text(at->uptime_s, age));
    (void)printf("clients      %" PRIu32 " connected, %" PRIu32 " quarantined\n", at->clients,
                 at->quarantined);
    (void)printf("arena        %s, %s of it allocated, %s pages; %s a restart of the daemon\n",
                 cli_size_text(at->arena_bytes, first),
                 cli_size_text(at->arena_bytes_populated, second),
                 at->is_huge != 0 ? "huge" : "small",
                 at->would_survive != 0 ? "survives" : "does not survive");
    (void)printf("checkpoints  %" PRIu64 " in %" PRIu64 " namespaces, %s of at most %s on flash\n",
                 all->checkpoints, all->namespaces, cli_size_text(all->segment_bytes, first),
                 cli_size_text(all->flash_bytes_max, second));
    (void)printf("puts         %" PRIu64 ": %" PRIu64 " known already, %" PRIu64
                 " made durable, %" PRIu64 " not kept, %" PRIu64 " in flight\n",
                 all->puts, all->puts_present, all->puts_durable, all->puts_aborted,
                 all->puts_open);
    (void)printf("finds        %" PRIu64 ", %" PRIu64 " hits\n", all->finds, all->hits);
    if (all->is_failed != 0) {
        (void)puts("failed       a sync or commit failed: puts are refused; look at the disk, then "
                   "restart it");
    }
}

/* The path behind "unix:", or NULL after a message. */
static const char *socket_path(const char *store, bool is_json, int *out_code)
{
    if (strncmp(store, "unix:", 5) != 0 || store[5] == '\0') {
        *out_code = cli_fail_text(is_json, CLI_USAGE,
                                  "--store %s: it is unix:PATH, a daemon's socket (kvarve ls looks "
                                  "into a folder)",
                                  store);
        return NULL;
    }
    return store + 5;
}

int cli_status(int argument_count, char **arguments)
{
    const char *store = NULL;
    const char *path;
    uint64_t timeout_ms = 10000;
    bool is_json = false;
    const cli_option options[] = {
        {.name = "store",
         .value = "unix:PATH",
         .kind = CLI_TEXT,
         .target = &store,
         .is_required = true,
         .letter = 's',
         .help = "The daemon's socket."},
        {.name = "timeout",
         .value = "MS",
         .kind = CLI_COUNT,
         .target = &timeout_ms,
         .minimum = 1,
         .maximum = 86400000,
         .help = "Wait so long for its answer. Default: 10000."},
        {.name = "json", .kind = CLI_FLAG, .target = &is_json, .help = "Print one JSON object."},
        {0},
    };
    char **positional = NULL;
    size_t count = 0;
    int code = CLI_OK;
    kvarve_error err = {0};
    daemon_answer answer = {.statistics = KVARVE_STATISTICS_INIT};

    if (!cli_parse(&usage, options, argument_count, arguments, &positional, &count, &code)) {
        return code;
    }
    path = socket_path(store, is_json, &code);
    if (path == NULL) {
        return code;
    }
    const kvarve_status status = daemon_ask(path, (uint32_t)timeout_ms, &answer, &err);
    if (status != KVARVE_OK) {
        return cli_fail(is_json, status, &err);
    }
    code = CLI_OK;
    if (is_json) {
        code = print_json(&answer);
    } else {
        print_text(&answer);
    }
    return code == CLI_OK && answer.statistics.is_failed != 0 ? CLI_FAILED : code;
}
