/*
 * llama_identity.c - facts from flags and from the server, flags last.
 *
 * Invariant: a flag is taken as it is given; where neither says a field, llama_identity_create
 * refuses it. Threads: one.
 */
#include "cli/llama_identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env/env_posix.h"
#include "llama/server.h"

#define SERVER_TIMEOUT_MS 10000

static bool set_text(char *to, size_t size, const char *from)
{
    return from == NULL || (size_t)snprintf(to, size, "%s", from) < size;
}

/* "BUILD BACKEND" */
static bool set_numerics(llama_facts *facts, const char *text)
{
    if (text == NULL) {
        return true;
    }
    const char *space = strchr(text, ' ');
    if (space == NULL || space == text || space[1] == '\0' ||
        (size_t)(space - text) >= sizeof(facts->build)) {
        return false;
    }
    memcpy(facts->build, text, (size_t)(space - text));
    facts->build[space - text] = '\0';
    return set_text(facts->backend, sizeof(facts->backend), space + 1);
}

static bool set_flash(llama_facts *facts, const char *text)
{
    if (text == NULL) {
        return true;
    }
    const bool is_on = strcmp(text, "on") == 0;
    facts->flash = is_on ? LLAMA_FLASH_ON : LLAMA_FLASH_OFF;
    return is_on || strcmp(text, "off") == 0;
}

static bool set_texts(llama_facts *facts, const cli_identity *options)
{
    return set_text(facts->model, sizeof(facts->model), options->model) &&
           set_text(facts->kv_type_k, sizeof(facts->kv_type_k), options->kv_type_k) &&
           set_text(facts->kv_type_v, sizeof(facts->kv_type_v), options->kv_type_v) &&
           set_text(facts->rope, sizeof(facts->rope), options->rope) &&
           set_text(facts->draft_type, sizeof(facts->draft_type), options->draft_type) &&
           set_text(facts->draft_model, sizeof(facts->draft_model), options->draft_model) &&
           set_text(facts->draft_type_k, sizeof(facts->draft_type_k), options->draft_type_k) &&
           set_text(facts->draft_type_v, sizeof(facts->draft_type_v), options->draft_type_v);
}

static kvarve_status set_lists(llama_facts *facts, const cli_identity *options, kvarve_error *err)
{
    kvarve_status status = KVARVE_OK;

    facts->adapter_count = options->adapters.count > 0 ? 0 : facts->adapter_count;
    facts->vector_count = options->vectors.count > 0 ? 0 : facts->vector_count;
    for (size_t i = 0; i < options->adapters.count && status == KVARVE_OK; i++) {
        status = llama_adapter_parse(options->adapters.text[i], facts->adapters,
                                     &facts->adapter_count, err);
    }
    for (size_t i = 0; i < options->vectors.count && status == KVARVE_OK; i++) {
        status = llama_adapter_parse(options->vectors.text[i], facts->vectors, &facts->vector_count,
                                     err);
    }
    return status;
}

/* Where digests are cached; NULL: nowhere. */
static const char *cache_path(const cli_identity *options, char out[KVARVE_PATH_MAX])
{
    const char *folder = getenv("XDG_CACHE_HOME"); /* NOLINT(concurrency-mt-unsafe): one thread */
    const char *home = getenv("HOME");             /* NOLINT(concurrency-mt-unsafe): one thread */
    int length = 0;

    if (options->digest_cache != NULL) {
        return options->digest_cache[0] == '\0' ? NULL : options->digest_cache;
    }
    if (folder != NULL && folder[0] == '/') {
        length = snprintf(out, KVARVE_PATH_MAX, "%s/kvarve/models", folder);
    } else if (home != NULL && home[0] == '/') {
        length = snprintf(out, KVARVE_PATH_MAX, "%s/.cache/kvarve/models", home);
    }
    return length > 0 && length < KVARVE_PATH_MAX ? out : NULL;
}

static int gather(const cli_identity *options, const cli_common *common, llama_facts *facts)
{
    kvarve_error err = {0};
    kvarve_status status = KVARVE_OK;

    llama_facts_init(facts);
    if (options->server != NULL) {
        const llama_server_options server = {
            .io = io_posix(),
            .address = options->server,
            .pid = (int64_t)options->server_pid,
            .timeout_ms = SERVER_TIMEOUT_MS,
            .key = getenv("LLAMA_API_KEY"), /* NOLINT(concurrency-mt-unsafe): one thread */
        };
        status = llama_server_facts(&server, facts, &err);
    }
    if (status == KVARVE_OK) {
        status = set_lists(facts, options, &err);
    }
    if (status != KVARVE_OK) {
        return cli_fail(common->is_json, status, &err);
    }
    if (!set_numerics(facts, options->numerics)) {
        return cli_fail_text(common->is_json, CLI_USAGE,
                             "--numerics: \"BUILD BACKEND\", two words at least");
    }
    if (!set_flash(facts, options->flash)) {
        return cli_fail_text(common->is_json, CLI_USAGE, "--flash-attn: on or off");
    }
    if (!set_texts(facts, options)) {
        return cli_fail_text(common->is_json, CLI_USAGE, "a text of the identity is too long");
    }
    return CLI_OK;
}

int cli_identity_make(const cli_identity *options, const cli_common *common, llama_facts *facts,
                      llama_identity **out)
{
    char cache[KVARVE_PATH_MAX];
    kvarve_error err = {0};
    cli_progress progress;
    const int code = gather(options, common, facts);

    if (code != CLI_OK) {
        return code;
    }
    cli_progress_begin(&progress, common, "digest of the model");
    const model_digest_options digests = {
        .io = io_posix(),
        .cache = cache_path(options, cache),
        .progress = cli_progress_update,
        .progress_context = &progress,
    };
    const kvarve_status status = llama_identity_create(facts, &digests, out, &err);
    cli_progress_end(&progress);
    if (status == KVARVE_MISS) { /* a file that is not there is no miss of the store */
        return cli_fail_text(common->is_json, CLI_USAGE, "%s",
                             err.text[0] != '\0' ? err.text : "a model file is not there");
    }
    return status == KVARVE_OK ? CLI_OK : cli_fail(common->is_json, status, &err);
}

json_t *cli_identity_json(const llama_facts *facts)
{
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:s}", "model", facts->model, "kv_type_k",
                     facts->kv_type_k, "kv_type_v", facts->kv_type_v, "rope", facts->rope, "build",
                     facts->build, "backend", facts->backend, "draft_type", facts->draft_type);
}
