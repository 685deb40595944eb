/*
 * cli.h - the program `kvarve`: its subcommands, their options, and how they talk.
 *
 * A subcommand is one file with one function, one row in CLI_COMMAND_TABLE and one line in
 * CMakeLists.txt. It declares its options in a table, from which cli_parse reads the command line
 * and prints --help. It prints its result to stdout, as text for people or with --json as one JSON
 * object, everything else to stderr, and returns a cli_exit.
 *
 * Threads    One.
 * Ownership  Texts that options point to are the command line's.
 */
#ifndef KVARVE_CLI_CLI_H
#define KVARVE_CLI_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarve/admin.h"
#include "kvarve/error.h"
#include "kvarve/store.h"

/* ---- Subcommands ---- */

/* One row per subcommand: group ("" for none), name, function, one line for `kvarve --help`. */
#define CLI_COMMAND_TABLE(ROW)                                                                     \
    ROW("llama", "ingest", cli_llama_ingest, "store a llama-server slot file")                     \
    ROW("llama", "emit", cli_llama_emit, "write a slot file that llama-server can restore")        \
    ROW("", "ls", cli_ls, "list the checkpoints of a store")                                       \
    ROW("", "show", cli_show, "show everything of one checkpoint")                                 \
    ROW("", "why", cli_why, "explain why given tokens hit or miss")                                \
    ROW("", "verify", cli_verify, "read and check every page")                                     \
    ROW("", "rebuild", cli_rebuild, "make the index anew from the segments")                       \
    ROW("", "gc", cli_gc, "give space back to the disk")                                           \
    ROW("", "rm", cli_rm, "drop checkpoints")                                                      \
    ROW("", "serve", cli_serve, "serve a store to several processes")                              \
    ROW("", "status", cli_status, "how a running daemon is")                                       \
    ROW("", "bench", cli_bench, "measure kvarve here, each figure beside its yardstick")

/* Each gets its own part of the command line: arguments[0] is its name, for example "ingest". */
#define CLI_COMMAND_PROTOTYPE(group, name, function, line)                                         \
    int function(int argument_count, char **arguments);
CLI_COMMAND_TABLE(CLI_COMMAND_PROTOTYPE)
#undef CLI_COMMAND_PROTOTYPE

/* ---- Exit codes ---- */

/* One row per exit code: name, what it means. The numbers are what scripts rely on: append only. */
#define CLI_EXIT_TABLE(ROW)                                                                        \
    ROW(CLI_OK, "done")                                                                            \
    ROW(CLI_FAILED, "it failed inside or on input and output")                                     \
    ROW(CLI_USAGE, "the command line or its input is wrong")                                       \
    ROW(CLI_MISS, "nothing that serves is stored here")                                            \
    ROW(CLI_BUSY, "another process has the store open (its pid is named)")                         \
    ROW(CLI_CORRUPT, "bytes are damaged")                                                          \
    ROW(CLI_UNSUPPORTED, "another version, or an identity that is not known or refused")           \
    ROW(CLI_NO_SPACE, "no room: disk, cap, arena or memory")

typedef enum cli_exit {
#define CLI_EXIT_ENUM(name, text) name,
    CLI_EXIT_TABLE(CLI_EXIT_ENUM)
#undef CLI_EXIT_ENUM
} cli_exit;

/* ---- Options ---- */

/* A list that an option may be repeated for. */
#define CLI_TEXTS_MAX 16
typedef struct cli_texts {
    const char *text[CLI_TEXTS_MAX];
    size_t count;
} cli_texts;

typedef enum cli_option_kind {
    CLI_FLAG,  /* bool: given or not */
    CLI_TEXT,  /* const char *: the last one counts */
    CLI_LIST,  /* cli_texts: may be repeated */
    CLI_COUNT, /* uint64_t: decimal, minimum .. maximum */
    CLI_BYTES, /* uint64_t: decimal with K, M, G or T (powers of 1024), minimum .. maximum */
} cli_option_kind;

/* One option. A table of them ends with an entry without a name. */
typedef struct cli_option {
    const char *name;     /* long, without dashes */
    const char *value;    /* what --help calls its value; NULL for a flag */
    const char *help;     /* one sentence or more; --help wraps it */
    void *target;         /* of the kind's type; untouched when the option is not given */
    cli_option_kind kind; /* how the value is read */
    bool is_required;     /* refused when it is not given */
    char letter;          /* short form, or 0 */
    uint64_t minimum;     /* CLI_COUNT, CLI_BYTES */
    uint64_t maximum;     /* the same; 0: no limit */
} cli_option;

/* What a subcommand says about itself. */
typedef struct cli_usage {
    const char *synopsis;  /* behind "kvarve ", for example "llama ingest SLOTFILE --store DIR" */
    const char *about;     /* paragraphs above the options, ready to print */
    const char *below;     /* the same, below the options; NULL: nothing */
    size_t positional_min; /* arguments that are no options */
    size_t positional_max;
} cli_usage;

/*
 * Read the command line into the options' targets; *out_positional gets the other arguments, a list
 * of *out_count that is borrowed from `arguments`.
 *
 * True: go on. False: *out_exit is what to return: CLI_OK after --help, CLI_USAGE after a message.
 */
bool cli_parse(const cli_usage *usage, const cli_option *options, int argument_count,
               char **arguments, char ***out_positional, size_t *out_count, int *out_exit);

/* What most subcommands take. Begin with CLI_COMMON_INIT; CLI_COMMON_OPTIONS are its rows. */
typedef struct cli_common {
    const char *store;    /* the store's folder */
    uint64_t wait_ms;     /* for a store that another process has open */
    uint64_t arena_bytes; /* RAM for pages */
    bool is_json;
    bool wants_progress; /* also when stderr is no terminal */
} cli_common;

#define CLI_ARENA_BYTES (UINT64_C(64) << 20)
#define CLI_COMMON_INIT {.arena_bytes = CLI_ARENA_BYTES}
#define CLI_COMMON_OPTIONS(common)                                                                 \
    {.name = "store",                                                                              \
     .value = "DIR",                                                                               \
     .kind = CLI_TEXT,                                                                             \
     .target = &(common)->store,                                                                   \
     .is_required = true,                                                                          \
     .letter = 's',                                                                                \
     .help = "The store's folder, or unix:PATH: a daemon (kvarve serve)."},                        \
        {.name = "wait",                                                                           \
         .value = "MS",                                                                            \
         .kind = CLI_COUNT,                                                                        \
         .target = &(common)->wait_ms,                                                             \
         .maximum = 86400000,                                                                      \
         .help = "Wait so long for a store that another process has open, then name its pid. "     \
                 "Default: 0."},                                                                   \
        {.name = "arena",                                                                          \
         .value = "BYTES",                                                                         \
         .kind = CLI_BYTES,                                                                        \
         .target = &(common)->arena_bytes,                                                         \
         .minimum = UINT64_C(1) << 20,                                                             \
         .maximum = UINT64_C(1) << 40,                                                             \
         .help = "RAM for pages while the command runs, as 64M or 2G. Default: 64M."},             \
        {.name = "json",                                                                           \
         .kind = CLI_FLAG,                                                                         \
         .target = &(common)->is_json,                                                             \
         .help = "Print one JSON object."},                                                        \
        {.name = "progress",                                                                       \
         .kind = CLI_FLAG,                                                                         \
         .target = &(common)->wants_progress,                                                      \
         .help = "Show progress also when stderr is no terminal."}

/*
 * Open the common store: flags are kvarve_store_options.flags, flash_bytes_max 0 the default.
 * CLI_OK, or an exit code after a message.
 */
int cli_store_open(const cli_common *common, uint32_t flags, uint64_t flash_bytes_max,
                   kvarve_store **out);

/* ---- Talking ---- */

/* What a status means as an exit code. */
int cli_exit_of(kvarve_status status);

/*
 * Say on stderr what went wrong ("kvarve: " and err's text, or the status' own where it has none);
 * with is_json also {"error": {"status", "text"}} on stdout. Returns the exit code.
 */
int cli_fail(bool is_json, kvarve_status status, const kvarve_error *err);

/* The same with a text of one's own. */
__attribute__((format(printf, 3, 4))) int cli_fail_text(bool is_json, int exit_code,
                                                        const char *format, ...);

/* Print one object as a line on stdout and release it. CLI_OK, or CLI_FAILED when it is NULL (no
 * memory) or stdout cannot be written. */
int cli_json_print(json_t *object);

/* json_string with lower-case hex digits; NULL: no memory. */
json_t *cli_json_hex(const void *bytes, size_t size);

/* "instruction", "prompt", "response"; "?" for any other. */
const char *cli_kind_text(uint32_t kind);
/* "waiting", "staged", "ready", "durable", "aborted", "present"; "?" for any other. */
const char *cli_state_text(uint32_t state);

/* A size for people: "512 B", "1.5 MiB". Returns `out`. */
#define CLI_SIZE_TEXT 24
const char *cli_size_text(uint64_t bytes, char out[CLI_SIZE_TEXT]);

/* ---- Progress ---- */

/* A line on stderr about work that lasts over a second. */
typedef struct cli_progress {
    const char *what; /* "ingest" */
    uint64_t begin_ns;
    uint64_t shown_ns; /* when the line was last written; 0: never */
    bool is_shown;     /* stderr is a terminal, or --progress */
    bool is_terminal;  /* the line is written over again */
} cli_progress;

void cli_progress_begin(cli_progress *progress, const cli_common *common, const char *what);
/* A kvarve_progress: `context` is the cli_progress. total 0: not known. */
void cli_progress_update(void *context, uint64_t done, uint64_t total);
void cli_progress_end(cli_progress *progress);

#endif
