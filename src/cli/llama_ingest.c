/*
 * llama_ingest.c - the command kvarve llama ingest: store a slot file.
 *
 * Invariant: the file is verified before the store is opened, so the store is held only while bytes
 * go there. Threads: one.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/checked.h"
#include "cli/cli.h"
#include "cli/llama_identity.h"
#include "env/env_posix.h"
#include "llama/ingest.h"

#define PUT_TIMEOUT_MS 120000

typedef struct ingest_command {
    cli_common common;
    cli_identity identity_options;
    uint64_t prompt_at;
    uint64_t user_at;
    uint64_t cap_bytes;
    bool wants_whole;
    const char *path;
    llama_facts facts;
    llama_identity *identity;
    llama_ingest *ingest;
    kvarve_store *store;
    kvarve_statistics before;
    kvarve_statistics after;
    llama_ingest_result result;
    uint64_t at_ns[5]; /* begin, identity known, verified, store open, stored */
} ingest_command;

static const cli_usage usage = {
    .synopsis = "llama ingest SLOTFILE --store DIR (--server URL | --model FILE ...) [OPTION...]",
    .about =
        "Store a slot file that llama-server wrote with POST /slots/N?action=save.\n\n"
        "The file is cut into pages of 64 tokens and the states that exist only at one token\n"
        "(recurrent layers, sliding windows), put together again and compared; then what is not\n"
        "stored yet is stored, each byte once. Three boundaries are kept: the end of the answer,\n"
        "the last prompt, and with --user-at the last user message. Afterwards the file is not\n"
        "needed any more. What cannot be cut up is stored whole, and said.\n\n" CLI_IDENTITY_HELP,
    .below =
        "Exit codes: 0 stored, or known already; 2 no or an empty slot file; 4 the store is in\n"
        "use; 5 the file is damaged; 6 another version, or an identity that is refused; 7 no\n"
        "room.\n\n"
        "Example: curl -X POST 'localhost:8080/slots/0?action=save' -d "
        "'{\"filename\":\"a.slot\"}'\n"
        "         kvarve llama ingest slots/a.slot --store ~/kv --server "
        "http://127.0.0.1:8080",
    .positional_min = 1,
    .positional_max = 1,
};

static uint64_t now_ns(void)
{
    kvarve_clock *clock = clock_posix();
    return clock->monotonic_ns(clock);
}

static bool parse(ingest_command *command, int argument_count, char **arguments, int *out_exit)
{
    char **positional = NULL;
    size_t count = 0;
    const cli_option options[] = {
        CLI_COMMON_OPTIONS(&command->common),
        {.name = "prompt-at",
         .value = "N",
         .kind = CLI_COUNT,
         .target = &command->prompt_at,
         .maximum = LLAMA_TOKENS_MAX,
         .help = "Tokens of the last prompt. Kept is the largest boundary at or before it. "
                 "Default: the largest one below the answer's end."},
        {.name = "user-at",
         .value = "N",
         .kind = CLI_COUNT,
         .target = &command->user_at,
         .maximum = LLAMA_TOKENS_MAX,
         .help = "Tokens up to the end of the last user message; a boundary for edited answers."},
        {.name = "cap",
         .value = "BYTES",
         .kind = CLI_BYTES,
         .target = &command->cap_bytes,
         .help = "Most bytes of the store on disk. Default: a tenth of the disk."},
        {.name = "whole",
         .kind = CLI_FLAG,
         .target = &command->wants_whole,
         .help = "Store the file whole, without cutting it up."},
        CLI_IDENTITY_OPTIONS(&command->identity_options),
        {0},
    };

    command->prompt_at = LLAMA_NO_LIMIT;
    command->user_at = LLAMA_NO_LIMIT;
    if (!cli_parse(&usage, options, argument_count, arguments, &positional, &count, out_exit)) {
        return false;
    }
    command->path = positional[0];
    return true;
}

static int prepare(ingest_command *command)
{
    kvarve_error err = {0};
    cli_progress progress;
    kvarve_status status = llama_ingest_open(io_posix(), command->path, &command->ingest, &err);

    if (status != KVARVE_OK) {
        return cli_fail(command->common.is_json, status, &err);
    }
    const int code = cli_identity_make(&command->identity_options, &command->common,
                                       &command->facts, &command->identity);
    command->at_ns[1] = now_ns();
    if (code != CLI_OK) {
        return code;
    }
    cli_progress_begin(&progress, &command->common, "verify");
    const llama_ingest_options options = {
        .prompt_at = command->prompt_at,
        .user_at = command->user_at,
        .progress = cli_progress_update,
        .progress_context = &progress,
        .wants_whole = command->wants_whole,
    };
    status = llama_ingest_prepare(command->ingest, &options, &err);
    cli_progress_end(&progress);
    command->at_ns[2] = now_ns();
    return status == KVARVE_OK ? CLI_OK : cli_fail(command->common.is_json, status, &err);
}

static int store_it(ingest_command *command)
{
    kvarve_error err = {0};

    command->common.arena_bytes =
        kvarve_max_u64(command->common.arena_bytes, llama_ingest_arena_bytes(command->ingest));
    const int code = cli_store_open(&command->common, 0, command->cap_bytes, &command->store);
    command->at_ns[3] = now_ns();
    if (code != CLI_OK) {
        return code;
    }
    command->before.struct_size = sizeof(command->before);
    command->after.struct_size = sizeof(command->after);
    kvarve_status status = kvarve_statistics_get(command->store, &command->before, &err);
    if (status == KVARVE_OK) {
        status = llama_ingest_store(command->ingest, command->store, command->identity, NULL,
                                    PUT_TIMEOUT_MS, &command->result, &err);
    }
    if (status == KVARVE_OK) {
        status = kvarve_statistics_get(command->store, &command->after, &err);
    }
    command->at_ns[4] = now_ns();
    return status == KVARVE_OK ? CLI_OK : cli_fail(command->common.is_json, status, &err);
}

static bool is_present(const llama_ingest_result *result)
{
    for (uint32_t i = 0; i < result->count; i++) {
        if (result->boundaries[i].state != KVARVE_PUT_PRESENT) {
            return false;
        }
    }
    return true;
}

static double ms_between(const ingest_command *command, int from, int to)
{
    return (double)(command->at_ns[to] - command->at_ns[from]) / (double)KVARVE_NS_PER_MS;
}

static uint64_t index_bytes(const ingest_command *command)
{
    return command->after.index_log_bytes_written + command->after.index_database_bytes_written -
           command->before.index_log_bytes_written - command->before.index_database_bytes_written;
}

static json_t *boundaries_json(const llama_ingest_result *result)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < result->count; i++) {
        const llama_stored *stored = &result->boundaries[i];
        (void)json_array_append_new(
            array, json_pack("{s:I,s:s,s:s,s:o}", "tokens", (json_int_t)stored->tokens, "kind",
                             cli_kind_text(stored->kind), "state", cli_state_text(stored->state),
                             "id", cli_json_hex(stored->id, sizeof(stored->id))));
    }
    return array;
}

static int print_json(const ingest_command *command)
{
    const char *reason = llama_ingest_whole_reason(command->ingest);
    json_t *times = json_pack("{s:f,s:f,s:f,s:f}", "identity", ms_between(command, 0, 1), "verify",
                              ms_between(command, 1, 2), "open", ms_between(command, 2, 3), "put",
                              ms_between(command, 3, 4));
    const uint64_t payload =
        command->after.payload_bytes_written - command->before.payload_bytes_written;
    const uint64_t header =
        command->after.header_bytes_written - command->before.header_bytes_written;

    return cli_json_print(json_pack(
        "{s:o,s:I,s:I,s:I,s:I,s:I,s:b,s:b,s:s?,s:b,s:s,s:o,s:o}", "boundaries",
        boundaries_json(&command->result), "tokens",
        (json_int_t)llama_ingest_tokens(command->ingest), "slot_bytes",
        (json_int_t)llama_ingest_file_bytes(command->ingest), "payload_bytes", (json_int_t)payload,
        "index_bytes", (json_int_t)index_bytes(command), "header_bytes", (json_int_t)header,
        "present", is_present(&command->result), "opaque", reason != NULL, "stored_whole_reason",
        reason, "draft", llama_ingest_has_draft(command->ingest), "namespace",
        command->result.namespace_text, "identity", cli_identity_json(&command->facts), "ms",
        times));
}

static int print_text(const ingest_command *command)
{
    char file[CLI_SIZE_TEXT];
    char payload[CLI_SIZE_TEXT];
    const char *reason = llama_ingest_whole_reason(command->ingest);
    const uint64_t bytes =
        command->after.payload_bytes_written - command->before.payload_bytes_written;

    if (reason != NULL) {
        (void)printf("stored whole: %s\n", reason);
    }
    for (uint32_t i = 0; i < command->result.count; i++) {
        const llama_stored *stored = &command->result.boundaries[i];
        (void)printf("%-8s at token %" PRIu64 ": %s\n", cli_kind_text(stored->kind), stored->tokens,
                     cli_state_text(stored->state));
    }
    (void)printf("slot file %s, written %s and %" PRIu64 " bytes of index, verified in %.0f ms, "
                 "stored in %.0f ms\n",
                 cli_size_text(llama_ingest_file_bytes(command->ingest), file),
                 cli_size_text(bytes, payload), index_bytes(command), ms_between(command, 1, 2),
                 ms_between(command, 3, 4));
    return CLI_OK;
}

int cli_llama_ingest(int argument_count, char **arguments)
{
    ingest_command command = {.common = CLI_COMMON_INIT};
    int code = CLI_OK;

    if (!parse(&command, argument_count, arguments, &code)) {
        return code;
    }
    command.at_ns[0] = now_ns();
    code = prepare(&command);
    if (code == CLI_OK) {
        code = store_it(&command);
    }
    if (code == CLI_OK) {
        code = command.common.is_json ? print_json(&command) : print_text(&command);
    }
    llama_ingest_close(command.ingest);
    llama_identity_free(command.identity);
    kvarve_close(command.store);
    return code;
}
