/* llama_identity.h - the options with which `kvarve llama` commands say whose state it is. */
#ifndef KVARVE_CLI_LLAMA_IDENTITY_H
#define KVARVE_CLI_LLAMA_IDENTITY_H

#include "cli/cli.h"
#include "llama/identity.h"

typedef struct cli_identity {
    const char *server;
    uint64_t server_pid;
    const char *model;
    const char *kv_type_k;
    const char *kv_type_v;
    const char *flash;
    const char *rope;
    const char *numerics;
    cli_texts adapters;
    cli_texts vectors;
    const char *draft_type;
    const char *draft_model;
    const char *draft_type_k;
    const char *draft_type_v;
    const char *digest_cache;
} cli_identity;

#define CLI_IDENTITY_OPTIONS(identity)                                                             \
    {.name = "server",                                                                             \
     .value = "URL",                                                                               \
     .kind = CLI_TEXT,                                                                             \
     .target = &(identity)->server,                                                                \
     .help = "Ask the running llama-server what its state depends on: http://127.0.0.1:8080 or "   \
             "the path of its Unix socket. It must run on this machine, as this user. An API key " \
             "is taken from the environment, LLAMA_API_KEY."},                                     \
        {.name = "server-pid",                                                                     \
         .value = "PID",                                                                           \
         .kind = CLI_COUNT,                                                                        \
         .target = &(identity)->server_pid,                                                        \
         .minimum = 1,                                                                             \
         .maximum = 4194304,                                                                       \
         .help = "Its process, where that cannot be found by the address."},                       \
        {.name = "model",                                                                          \
         .value = "FILE",                                                                          \
         .kind = CLI_TEXT,                                                                         \
         .target = &(identity)->model,                                                             \
         .help = "The model file; of a split model its first part."},                              \
        {.name = "kv-type-k",                                                                      \
         .value = "TYPE",                                                                          \
         .kind = CLI_TEXT,                                                                         \
         .target = &(identity)->kv_type_k,                                                         \
         .help = "The server's --cache-type-k, for example f16 (its default)."},                   \
        {.name = "kv-type-v",                                                                      \
         .value = "TYPE",                                                                          \
         .kind = CLI_TEXT,                                                                         \
         .target = &(identity)->kv_type_v,                                                         \
         .help = "The server's --cache-type-v."},                                                  \
        {.name = "flash-attn",                                                                     \
         .value = "on|off",                                                                        \
         .kind = CLI_TEXT,                                                                         \
         .target = &(identity)->flash,                                                             \
         .help = "Whether the server uses flash attention; needed only where state of both is "    \
                 "stored."},                                                                       \
        {.name = "rope",                                                                           \
         .value = "TEXT",                                                                          \
         .kind = CLI_TEXT,                                                                         \
         .target = &(identity)->rope,                                                              \
         .help = "Rope factors given to the server, in any fixed spelling, for example "           \
                 "rope-freq-base=10000. Default: those of the model."},                            \
        {.name = "lora",                                                                           \
         .value = "FILE[:SCALE]",                                                                  \
         .kind = CLI_LIST,                                                                         \
         .target = &(identity)->adapters,                                                          \
         .help = "A LoRA adapter of the server; may be repeated."},                                \
        {.name = "control-vector",                                                                 \
         .value = "FILE[:SCALE]",                                                                  \
         .kind = CLI_LIST,                                                                         \
         .target = &(identity)->vectors,                                                           \
         .help = "A control vector of the server; may be repeated."},                              \
        {.name = "numerics",                                                                       \
         .value = "BUILD BACKEND",                                                                 \
         .kind = CLI_TEXT,                                                                         \
         .target = &(identity)->numerics,                                                          \
         .help = "What changes last bits only: the server's build and its backend, for example "   \
                 "\"b11669-Debian libggml-cpu-haswell.so\". --server finds them; --json shows "    \
                 "them."},                                                                         \
        {.name = "draft-type",                                                                     \
         .value = "TYPE",                                                                          \
         .kind = CLI_TEXT,                                                                         \
         .target = &(identity)->draft_type,                                                        \
         .help = "The server's --spec-type, for example draft-mtp. Default: none."},               \
        {.name = "draft-model",                                                                    \
         .value = "FILE",                                                                          \
         .kind = CLI_TEXT,                                                                         \
         .target = &(identity)->draft_model,                                                       \
         .help = "The drafter's model file, where it is not part of the model."},                  \
        {.name = "draft-kv-type-k",                                                                \
         .value = "TYPE",                                                                          \
         .kind = CLI_TEXT,                                                                         \
         .target = &(identity)->draft_type_k,                                                      \
         .help = "The server's --cache-type-k-draft."},                                            \
        {.name = "draft-kv-type-v",                                                                \
         .value = "TYPE",                                                                          \
         .kind = CLI_TEXT,                                                                         \
         .target = &(identity)->draft_type_v,                                                      \
         .help = "The server's --cache-type-v-draft."},                                            \
        {.name = "digest-cache",                                                                   \
         .value = "FILE",                                                                          \
         .kind = CLI_TEXT,                                                                         \
         .target = &(identity)->digest_cache,                                                      \
         .help = "Known digests of model files. Default: kvarve/models in $XDG_CACHE_HOME or "     \
                 "~/.cache; \"\" for none."}

/* Prints what `out` is made of: how to say it again with flags. */
#define CLI_IDENTITY_HELP                                                                          \
    "A slot file does not say which model wrote it. kvarve learns it from the running server\n"    \
    "(--server), or from flags (--model, --kv-type-k, --kv-type-v, --numerics and what else\n"     \
    "differs from the server's defaults); flags win over the server. What is not known is\n"       \
    "refused, never guessed. Servers whose state depends on more than its tokens are refused:\n"   \
    "--context-shift, --cache-reuse, self-extend, per-request adapter scales, media."

/*
 * Make an identity of the options; *facts are what it was made of. CLI_OK, or an exit code after a
 * message.
 */
int cli_identity_make(const cli_identity *options, const cli_common *common, llama_facts *facts,
                      llama_identity **out);

/* {"build", "backend", "model", ...} for the answer; NULL: no memory. */
json_t *cli_identity_json(const llama_facts *facts);

#endif
