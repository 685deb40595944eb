/*
 * llama_emit.c - the command kvarve llama emit: write a slot file that llama-server can restore.
 *
 * Invariant: the output is a whole file or is left alone. Threads: one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/cli.h"
#include "cli/llama_identity.h"
#include "cli/tokens.h"
#include "env/env_posix.h"
#include "llama/emit.h"

#define READ_TIMEOUT_MS     120000
#define DEFAULT_CHECKPOINTS 2

typedef struct emit_command {
    cli_common common;
    cli_identity identity_options;
    const char *tokens_path;
    const char *output;
    uint64_t min_tokens;
    uint64_t max_tokens;
    uint64_t streams;
    uint64_t slot;
    uint64_t checkpoints;
    bool needs_draft;
    uint32_t *tokens;
    size_t token_count;
    llama_facts facts;
    llama_identity *identity;
    kvarve_store *store;
    llama_emit_result result;
    uint64_t at_ns[4]; /* begin, identity known, store open, written */
} emit_command;

static const cli_usage usage = {
    .synopsis = "llama emit --tokens-file F -o SLOTFILE --store DIR (--server URL | --model FILE "
                "...) [OPTION...]",
    .about =
        "Write a slot file with the longest stored state that is a beginning of these tokens, for\n"
        "POST /slots/N?action=restore. Give the tokens of the prompt that comes next.\n\n"
        "The server always reads the last token of a prompt again, and a recurrent state cannot\n"
        "go back; so by default at most all tokens but the last are taken. (A saved slot holds\n"
        "the prompt and the answer without its last token; the next prompt has more, so all of\n"
        "it is used.) Shorter stored boundaries go along as the server's context checkpoints.\n"
        "\n" CLI_IDENTITY_HELP,
    .below =
        "Exit codes: 0 written; 2 the tokens are wrong; 3 a miss: the reason is on stderr, and\n"
        "there is no file; 4 the store is in use; 5 damaged; 6 the identity is refused.\n\n"
        "Example: kvarve llama emit --tokens-file next.tokens -o slots/a.slot --store ~/kv "
        "--server\n"
        "         http://127.0.0.1:8080\n"
        "         curl -X POST 'localhost:8080/slots/0?action=restore' -d "
        "'{\"filename\":\"a.slot\"}'",
};

static uint64_t now_ns(void)
{
    kvarve_clock *clock = clock_posix();
    return clock->monotonic_ns(clock);
}

static bool parse(emit_command *command, int argument_count, char **arguments, int *out_exit)
{
    char **positional = NULL;
    size_t count = 0;
    const cli_option options[] = {
        {.name = "tokens-file",
         .value = "F",
         .kind = CLI_TEXT,
         .target = &command->tokens_path,
         .is_required = true,
         .letter = 't',
         .help = "Token ids: decimal numbers between spaces, commas or lines, or a JSON array."},
        {.name = "output",
         .value = "SLOTFILE",
         .kind = CLI_TEXT,
         .target = &command->output,
         .is_required = true,
         .letter = 'o',
         .help = "The file to write; it is replaced as a whole."},
        CLI_COMMON_OPTIONS(&command->common),
        {.name = "max",
         .value = "N",
         .kind = CLI_COUNT,
         .target = &command->max_tokens,
         .minimum = 1,
         .maximum = LLAMA_TOKENS_MAX,
         .help = "Longest boundary of use. Default: all tokens but the last."},
        {.name = "min",
         .value = "N",
         .kind = CLI_COUNT,
         .target = &command->min_tokens,
         .maximum = LLAMA_TOKENS_MAX,
         .help = "Shortest boundary of use. Default: 1."},
        {.name = "streams",
         .value = "N",
         .kind = CLI_COUNT,
         .target = &command->streams,
         .minimum = 1,
         .maximum = LLAMA_STREAMS_MAX,
         .help = "Streams of the server's cache: N of its -np N, but 1 with a unified cache. "
                 "Default: as the server says, else 1."},
        {.name = "slot",
         .value = "I",
         .kind = CLI_COUNT,
         .target = &command->slot,
         .maximum = LLAMA_STREAMS_MAX - 1,
         .help = "The slot that will restore it. Default: 0."},
        {.name = "checkpoints",
         .value = "N",
         .kind = CLI_COUNT,
         .target = &command->checkpoints,
         .maximum = LLAMA_EMIT_CHECKPOINTS_MAX,
         .help = "Most context checkpoints in the file. Default: 2."},
        {.name = "need-draft",
         .kind = CLI_FLAG,
         .target = &command->needs_draft,
         .help = "Only a boundary whose drafter's state is stored as well."},
        CLI_IDENTITY_OPTIONS(&command->identity_options),
        {0},
    };

    command->checkpoints = DEFAULT_CHECKPOINTS;
    return cli_parse(&usage, options, argument_count, arguments, &positional, &count, out_exit);
}

static int prepare(emit_command *command)
{
    kvarve_error err = {0};
    const kvarve_status status = tokens_load(io_posix(), command->tokens_path, &command->tokens,
                                             &command->token_count, &err);

    if (status != KVARVE_OK) {
        return cli_fail(command->common.is_json, status, &err);
    }
    return cli_identity_make(&command->identity_options, &command->common, &command->facts,
                             &command->identity);
}

static json_t *miss_json(const kvarve_miss *miss)
{
    return json_pack("{s:s,s:s,s:I,s:I}", "reason", kvarve_miss_text(miss->reason), "field",
                     miss->field, "common_tokens", (json_int_t)miss->common_tokens,
                     "nearest_tokens", (json_int_t)miss->nearest_tokens);
}

static int report_miss(const emit_command *command)
{
    const kvarve_miss *miss = &command->result.miss;
    const bool has_field = miss->field[0] != '\0';

    (void)fprintf(stderr, "kvarve: miss: %s%s%s%s", kvarve_miss_text(miss->reason),
                  has_field ? " (" : "", miss->field, has_field ? " differs)" : "");
    if (miss->nearest_tokens > 0) {
        (void)fprintf(stderr, "; the nearest boundary has %" PRIu64 " tokens",
                      miss->nearest_tokens);
    } else if (miss->common_tokens > 0) {
        (void)fprintf(stderr, "; the first %" PRIu64 " tokens are known", miss->common_tokens);
    }
    (void)fputc('\n', stderr);
    if (command->common.is_json) {
        (void)cli_json_print(json_pack("{s:o}", "miss", miss_json(miss)));
    }
    return CLI_MISS;
}

/* Streams by flag, by server, or one. */
static uint32_t stream_count(const emit_command *command)
{
    if (command->streams != 0) {
        return (uint32_t)command->streams;
    }
    return command->facts.stream_count != 0 ? command->facts.stream_count : 1;
}

static int emit(emit_command *command)
{
    kvarve_error err = {0};
    cli_progress progress;
    const uint32_t streams = stream_count(command);

    cli_progress_begin(&progress, &command->common, "emit");
    const llama_emit_options options = {
        .io = io_posix(),
        .store_path = command->common.store,
        .output = command->output,
        .min_tokens = command->min_tokens,
        .max_tokens = command->max_tokens,
        .stream_count = streams,
        .stream_index = streams == 1 ? 0 : (uint32_t)command->slot,
        .checkpoints = (uint32_t)command->checkpoints,
        .timeout_ms = READ_TIMEOUT_MS,
        .needs_draft = command->needs_draft,
        .progress = cli_progress_update,
        .progress_context = &progress,
    };
    const kvarve_status status = llama_emit(command->store, command->identity, command->tokens,
                                            command->token_count, &options, &command->result, &err);
    cli_progress_end(&progress);
    command->at_ns[3] = now_ns();
    if (status == KVARVE_MISS) {
        return report_miss(command);
    }
    return status == KVARVE_OK ? CLI_OK : cli_fail(command->common.is_json, status, &err);
}

static double ms_between(const emit_command *command, int from, int to)
{
    return (double)(command->at_ns[to] - command->at_ns[from]) / (double)KVARVE_NS_PER_MS;
}

static int print_result(const emit_command *command)
{
    const llama_emit_result *result = &command->result;
    char size[CLI_SIZE_TEXT];

    if (command->common.is_json) {
        return cli_json_print(json_pack(
            "{s:I,s:s,s:b,s:I,s:o,s:b,s:b,s:i,s:o,s:{s:f,s:f,s:f}}", "tokens",
            (json_int_t)result->tokens, "kind", cli_kind_text(result->kind), "derived",
            result->is_derived, "bytes", (json_int_t)result->bytes, "id",
            cli_json_hex(result->id, sizeof(result->id)), "draft", result->has_draft, "opaque",
            result->is_whole, "checkpoints", (int)result->checkpoints, "identity",
            cli_identity_json(&command->facts), "ms", "identity", ms_between(command, 0, 1), "open",
            ms_between(command, 1, 2), "emit", ms_between(command, 2, 3)));
    }
    (void)printf("%" PRIu64 " of %zu tokens (%s), %s%s, %" PRIu32 " checkpoint%s, in %.0f ms\n",
                 result->tokens, command->token_count,
                 result->is_derived ? "a page's end" : cli_kind_text(result->kind),
                 cli_size_text(result->bytes, size), result->has_draft ? " with draft state" : "",
                 result->checkpoints, result->checkpoints == 1 ? "" : "s",
                 ms_between(command, 2, 3));
    return CLI_OK;
}

int cli_llama_emit(int argument_count, char **arguments)
{
    emit_command command = {.common = CLI_COMMON_INIT};
    int code = CLI_OK;

    if (!parse(&command, argument_count, arguments, &code)) {
        return code;
    }
    command.at_ns[0] = now_ns();
    code = prepare(&command);
    command.at_ns[1] = now_ns();
    if (code == CLI_OK) {
        code = cli_store_open(&command.common, KVARVE_OPEN_EXISTING, 0, &command.store);
        command.at_ns[2] = now_ns();
    }
    if (code == CLI_OK) {
        code = emit(&command);
    }
    if (code == CLI_OK) {
        code = print_result(&command);
    }
    llama_identity_free(command.identity);
    kvarve_release(command.tokens);
    kvarve_close(command.store);
    return code;
}
