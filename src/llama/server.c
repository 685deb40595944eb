/*
 * server.c - facts of a running llama-server.
 *
 * /props says which model file, which build, whether media are taken. What it does not
 * say is read from the process: its command line, its environment, its libraries.
 *
 * Invariant: an answer that lacks a field leaves the fact empty, so that it is refused later by
 * name; nothing is filled with a likely value. Threads: any.
 */
#include "llama/server.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "http/http.h"
#include "llama/server_private.h"

#define ANSWER_MAX ((size_t)1 << 20)

/* GET a JSON document; NULL in *out when the server has no such path. */
static kvarve_status ask(const llama_server_options *options, const char *path, json_t **out,
                         kvarve_error *err)
{
    const http_request request = {
        .address = options->address,
        .path = path,
        .timeout_ms = options->timeout_ms,
        .body_max = ANSWER_MAX,
        .bearer = options->key,
    };
    http_answer answer = {0};
    const kvarve_status status = http_get(&request, &answer, err);

    *out = NULL;
    if (status != KVARVE_OK) {
        return status;
    }
    *out = answer.code == 200 ? json_loadb(answer.body, answer.size, 0, NULL) : NULL;
    kvarve_release(answer.body);
    if (answer.code == 401 || answer.code == 403) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED,
                           "%.80s wants its API key: set the environment variable LLAMA_API_KEY",
                           options->address);
    }
    if (answer.code == 503) {
        return kvarve_fail(err, KVARVE_UNAVAILABLE, "%.80s is still loading its model",
                           options->address);
    }
    return KVARVE_OK;
}

static const char *text_of(json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static bool takes_media(json_t *properties)
{
    json_t *modalities = json_object_get(properties, "modalities");
    const char *key = NULL;
    json_t *value = NULL;

    json_object_foreach(modalities, key, value)
    {
        if (json_is_true(value)) {
            return true;
        }
    }
    return false;
}

static kvarve_status read_properties(json_t *properties, const llama_server_options *options,
                                     llama_facts *facts, kvarve_error *err)
{
    const char *model = text_of(properties, "model_path");
    const char *build = text_of(properties, "build_info");

    if (model[0] == '\0' || build[0] == '\0') {
        return kvarve_fail(err, KVARVE_UNSUPPORTED,
                           "%.80s has no model_path and build_info in /props: no llama-server "
                           "that is known",
                           options->address);
    }
    if (takes_media(properties)) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED,
                           "the server is refused: it takes media, whose tokens do not say what "
                           "they stand for");
    }
    if (strlen(model) >= sizeof(facts->model) || strlen(build) >= sizeof(facts->build)) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED, "the server's model path or build is too long");
    }
    (void)snprintf(facts->model, sizeof(facts->model), "%s", model);
    (void)snprintf(facts->build, sizeof(facts->build), "%s", build);
    return KVARVE_OK;
}

/* Adapters that are applied now are those of the command line, with the same scales. */
static kvarve_status check_adapters(json_t *adapters, const llama_facts *facts, kvarve_error *err)
{
    size_t index = 0;
    json_t *adapter = NULL;

    if (!json_is_array(adapters)) {
        return facts->adapter_count == 0
                   ? KVARVE_OK
                   : kvarve_fail(err, KVARVE_UNSUPPORTED,
                                 "the server does not tell the scales of its adapters");
    }
    if (json_array_size(adapters) != facts->adapter_count) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED,
                           "the server has %zu adapters, its command line names %" PRIu32,
                           json_array_size(adapters), facts->adapter_count);
    }
    json_array_foreach(adapters, index, adapter)
    {
        char scale[32];
        (void)snprintf(scale, sizeof(scale), "%.9g",
                       (double)(float)json_number_value(json_object_get(adapter, "scale")));
        char started[32];
        const double value = strtod(facts->adapters[index].scale, NULL);
        (void)snprintf(started, sizeof(started), "%.9g", (double)(float)value);
        if (strcmp(scale, started) != 0) {
            return kvarve_fail(err, KVARVE_UNSUPPORTED,
                               "the server is refused: the scale of adapter %zu was changed to "
                               "%s while it runs",
                               index, scale);
        }
    }
    return KVARVE_OK;
}

static kvarve_status read_process(const llama_server_options *options, int64_t pid,
                                  llama_facts *facts, kvarve_error *err)
{
    server_words *arguments = NULL;
    server_words *environment = NULL;
    kvarve_status status = server_process_words(options->io, pid, "cmdline", &arguments, err);

    if (status == KVARVE_OK) {
        status = server_process_words(options->io, pid, "environ", &environment, err);
    }
    if (status == KVARVE_OK) {
        status = server_flags_read(arguments, environment, facts, err);
    }
    if (status == KVARVE_OK) {
        status =
            server_process_backends(options->io, pid, facts->backend, sizeof(facts->backend), err);
    }
    server_words_free(arguments);
    server_words_free(environment);
    return status;
}

static kvarve_status set_paths(const llama_server_options *options, int64_t pid, llama_facts *facts,
                               kvarve_error *err)
{
    bool fits = server_process_path(options->io, pid, facts->model, sizeof(facts->model));

    if (facts->draft_model[0] != '\0') {
        fits = fits && server_process_path(options->io, pid, facts->draft_model,
                                           sizeof(facts->draft_model));
    }
    for (uint32_t i = 0; i < facts->adapter_count && fits; i++) {
        llama_adapter *adapter = &facts->adapters[i];
        fits = server_process_path(options->io, pid, adapter->path, sizeof(adapter->path));
    }
    for (uint32_t i = 0; i < facts->vector_count && fits; i++) {
        llama_adapter *vector = &facts->vectors[i];
        fits = server_process_path(options->io, pid, vector->path, sizeof(vector->path));
    }
    return fits ? KVARVE_OK
                : kvarve_fail(err, KVARVE_UNSUPPORTED, "a path of the server is too long");
}

/* A drafter that came from a repository: its file is not on the command line. */
static kvarve_status check_drafter(llama_facts *facts, kvarve_error *err)
{
    const bool is_separate = strstr(facts->draft_type, "draft-mtp") == NULL;

    if (strcmp(facts->draft_type, "none") == 0) {
        facts->draft_model[0] = '\0';
        return KVARVE_OK;
    }
    if (strcmp(facts->draft_model, "?") == 0 || (facts->draft_model[0] == '\0' && is_separate)) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED,
                           "identity: the drafter's model file is not on the server's command "
                           "line; start it with --spec-draft-model FILE");
    }
    return KVARVE_OK;
}

static kvarve_status ask_all(const llama_server_options *options, int64_t pid, llama_facts *facts,
                             kvarve_error *err)
{
    json_t *properties = NULL;
    json_t *adapters = NULL;
    kvarve_status status = ask(options, "/props", &properties, err);

    if (status == KVARVE_OK) {
        status = read_properties(properties, options, facts, err);
    }
    if (status == KVARVE_OK) {
        status = read_process(options, pid, facts, err);
    }
    if (status == KVARVE_OK) {
        status = ask(options, "/lora-adapters", &adapters, err);
    }
    if (status == KVARVE_OK) {
        status = check_adapters(adapters, facts, err);
    }
    if (status == KVARVE_OK) {
        status = check_drafter(facts, err);
    }
    if (status == KVARVE_OK) {
        status = set_paths(options, pid, facts, err);
    }
    json_decref(properties);
    json_decref(adapters);
    return status;
}

kvarve_status llama_server_facts(const llama_server_options *options, llama_facts *facts,
                                 kvarve_error *err)
{
    int64_t pid = options->pid;
    const kvarve_status status = pid != 0 ? KVARVE_OK : server_process_find(options, &pid, err);

    return status == KVARVE_OK ? ask_all(options, pid, facts, err) : status;
}
