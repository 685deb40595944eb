/*
 * output.c - how subcommands talk: statuses as exit codes, messages, JSON, sizes, progress.
 *
 * Invariants
 *   I1  Messages go to stderr, one line each; stdout holds results alone.
 *   I2  Progress is not shown before a second has passed, and leaves no line on a terminal.
 *
 * Threads    One.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/cli.h"
#include "env/env_posix.h"
#include "env/terminal.h"
#include "hash/hash.h"

#define PROGRESS_FIRST_NS (UINT64_C(1000) * KVARVE_NS_PER_MS)
#define PROGRESS_NEXT_NS  (UINT64_C(250) * KVARVE_NS_PER_MS)

int cli_exit_of(kvarve_status status)
{
    switch (status) {
    case KVARVE_OK:
        return CLI_OK;
    case KVARVE_MISS:
        return CLI_MISS;
    case KVARVE_BUSY:
        return CLI_BUSY;
    case KVARVE_NO_SPACE:
    case KVARVE_NO_MEMORY:
        return CLI_NO_SPACE;
    case KVARVE_INVALID:
        return CLI_USAGE;
    case KVARVE_CORRUPT:
        return CLI_CORRUPT;
    case KVARVE_UNSUPPORTED:
        return CLI_UNSUPPORTED;
    case KVARVE_IO:
    case KVARVE_UNAVAILABLE:
        return CLI_FAILED;
    }
    return CLI_FAILED;
}

static void say(bool is_json, const char *status, const char *text)
{
    (void)fprintf(stderr, "kvarve: %s\n", text);
    if (is_json) {
        (void)cli_json_print(json_pack("{s:{s:s,s:s}}", "error", "status", status, "text", text));
    }
}

int cli_fail(bool is_json, kvarve_status status, const kvarve_error *err)
{
    char text[KVARVE_ERROR_TEXT_MAX + 80];
    const bool has_text = err != NULL && err->status == status && err->text[0] != '\0';
    const char *cause = has_text && err->os_errno > 0 ? strerrordesc_np(err->os_errno) : NULL;

    (void)snprintf(text, sizeof(text), "%s%s%.60s",
                   has_text ? err->text : kvarve_status_text(status), cause != NULL ? ": " : "",
                   cause != NULL ? cause : "");
    say(is_json, kvarve_status_text(status), text);
    return cli_exit_of(status);
}

int cli_fail_text(bool is_json, int exit_code, const char *format, ...)
{
    static const char *const exits[] = {
#define EXIT_ROW(name, text) text,
        CLI_EXIT_TABLE(EXIT_ROW)
#undef EXIT_ROW
    };
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    const size_t index = (size_t)exit_code;
    say(is_json, index < sizeof(exits) / sizeof(exits[0]) ? exits[index] : "", text);
    return exit_code;
}

int cli_json_print(json_t *object)
{
    if (object == NULL) {
        (void)fputs("kvarve: no memory for the answer\n", stderr);
        return CLI_FAILED;
    }
    const int result = json_dumpf(object, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
    json_decref(object);
    (void)putchar('\n');
    /* The answer is out before the store is closed, which may note what was used. */
    return result == 0 && fflush(stdout) == 0 && ferror(stdout) == 0 ? CLI_OK : CLI_FAILED;
}

json_t *cli_json_hex(const void *bytes, size_t size)
{
    char text[2 * 64 + 1];
    if (size > 64) {
        return NULL;
    }
    hex_encode(text, bytes, size);
    return json_string(text);
}

const char *cli_kind_text(uint32_t kind)
{
    static const char *const texts[] = {"instruction", "prompt", "response"};
    return kind < sizeof(texts) / sizeof(texts[0]) ? texts[kind] : "?";
}

const char *cli_state_text(uint32_t state)
{
    static const char *const texts[] = {"waiting", "staged",  "ready",
                                        "durable", "aborted", "present"};
    return state < sizeof(texts) / sizeof(texts[0]) ? texts[state] : "?";
}

const char *cli_size_text(uint64_t bytes, char out[CLI_SIZE_TEXT])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        (void)snprintf(out, CLI_SIZE_TEXT, "%" PRIu64 " B", bytes);
        return out;
    }
    size_t unit = 0;
    uint64_t value = bytes;
    while (value >= UINT64_C(1048576) && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1024;
        unit++;
    }
    (void)snprintf(out, CLI_SIZE_TEXT, "%" PRIu64 ".%" PRIu64 " %s", value / 1024,
                   value % 1024 * 10 / 1024, units[unit]);
    return out;
}

/* What a daemon's store is made of is settled where the daemon is started. */
static int check_daemon(const cli_common *common, uint32_t flags, uint64_t flash_bytes_max)
{
    if ((flags & KVARVE_OPEN_REBUILD) != 0) {
        return cli_fail_text(common->is_json, CLI_USAGE,
                             "%s: stop the daemon, and rebuild the folder", common->store);
    }
    if (flash_bytes_max != 0) {
        return cli_fail_text(common->is_json, CLI_USAGE,
                             "%s: its cap is the daemon's to have (kvarve serve --flash-max)",
                             common->store);
    }
    return CLI_OK;
}

int cli_store_open(const cli_common *common, uint32_t flags, uint64_t flash_bytes_max,
                   kvarve_store **out)
{
    const bool is_daemon = strncmp(common->store, "unix:", 5) == 0;
    kvarve_error err = {0};

    if (is_daemon && check_daemon(common, flags, flash_bytes_max) != CLI_OK) {
        return CLI_USAGE;
    }
    flags &= is_daemon ? ~KVARVE_OPEN_READ_ONLY : ~0u; /* who only looks needs not say so there */
    kvarve_store_options options = KVARVE_STORE_OPTIONS_INIT;
    options.arena_bytes = common->arena_bytes;
    options.flash_bytes_max = flash_bytes_max;
    options.wait_ms = (uint32_t)common->wait_ms;
    options.flags = flags;
    const kvarve_status status = kvarve_open(common->store, &options, out, &err);
    if (status == KVARVE_MISS) {
        return cli_fail_text(common->is_json, CLI_MISS, "there is no store in %s", common->store);
    }
    if (status == KVARVE_CORRUPT && strstr(err.text, "kvarve rebuild") == NULL) {
        return cli_fail_text(common->is_json, CLI_CORRUPT, "open store %s: %s (kvarve rebuild)",
                             common->store, err.text);
    }
    return status == KVARVE_OK ? CLI_OK : cli_fail(common->is_json, status, &err);
}

void cli_progress_begin(cli_progress *progress, const cli_common *common, const char *what)
{
    kvarve_clock *clock = clock_posix();
    progress->what = what;
    progress->begin_ns = clock->monotonic_ns(clock);
    progress->shown_ns = 0;
    progress->is_terminal = terminal_has_stderr();
    progress->is_shown = progress->is_terminal || common->wants_progress;
}

void cli_progress_update(void *context, uint64_t done, uint64_t total)
{
    cli_progress *progress = context;
    kvarve_clock *clock = clock_posix();
    if (!progress->is_shown) {
        return;
    }
    const uint64_t now = clock->monotonic_ns(clock);
    if (now - progress->begin_ns < PROGRESS_FIRST_NS ||
        (progress->shown_ns != 0 && now - progress->shown_ns < PROGRESS_NEXT_NS)) {
        return; /* I2 */
    }
    progress->shown_ns = now;
    (void)fprintf(stderr, progress->is_terminal ? "\r%s: " : "%s: ", progress->what);
    if (total > 0) {
        const double share = 100.0 * (double)done / (double)total;
        (void)fprintf(stderr, "%.0f %% (%" PRIu64 " of %" PRIu64 ")", share, done, total);
    } else {
        (void)fprintf(stderr, "%" PRIu64, done);
    }
    (void)fputs(progress->is_terminal ? "\033[K" : "\n", stderr);
    (void)fflush(stderr);
}

void cli_progress_end(cli_progress *progress)
{
    if (progress->shown_ns != 0 && progress->is_terminal) {
        (void)fputs("\r\033[K", stderr);
    }
    progress->shown_ns = 0;
}
