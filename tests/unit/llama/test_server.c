/*
 * test_server.c - what a server's command line, environment and maps say; a server of this process
 * that answers over a Unix socket.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "env/env_posix.h"
#include "llama/server_private.h"
#include "support/http_server.h"
#include "support/scratch.h"

/* Words from a text with spaces. */
static void set_words(server_words *words, const char *text)
{
    char *bytes = kvarve_duplicate(text);
    const size_t size = strlen(text);

    for (size_t i = 0; i < size; i++) {
        if (bytes[i] == ' ') {
            bytes[i] = '\0';
        }
    }
    assert_true(server_words_cut(words, bytes, size));
}

static kvarve_status read_flags(const char *arguments, const char *environment, llama_facts *facts,
                                kvarve_error *err)
{
    static server_words words[2];

    llama_facts_init(facts);
    set_words(&words[0], arguments);
    set_words(&words[1], environment);
    const kvarve_status status = server_flags_read(&words[0], &words[1], facts, err);
    kvarve_release(words[0].bytes);
    kvarve_release(words[1].bytes);
    return status;
}

static void test_flags__defaults_are_llama_servers(void **state)
{
    llama_facts facts;

    (void)state;
    assert_int_equal(
        read_flags("ld.so --library-path x llama-server -m a.gguf", "HOME=/x", &facts, NULL),
        KVARVE_OK);
    assert_string_equal(facts.kv_type_k, "f16");
    assert_string_equal(facts.kv_type_v, "f16");
    assert_string_equal(facts.rope, "model");
    assert_string_equal(facts.draft_type, "none");
    assert_string_equal(facts.overrides, "none");
    assert_int_equal(facts.flash, LLAMA_FLASH_UNKNOWN);
    assert_int_equal(facts.stream_count, 1);
    assert_int_equal(facts.adapter_count, 0);
}

static void test_flags__the_command_line_wins_over_the_environment(void **state)
{
    llama_facts facts;

    (void)state;
    assert_int_equal(read_flags("s -ctk q8_0 -fa off",
                                "LLAMA_ARG_CACHE_TYPE_K=q4_0 "
                                "LLAMA_ARG_CACHE_TYPE_V=q5_1 "
                                "LLAMA_ARG_FLASH_ATTN=on",
                                &facts, NULL),
                     KVARVE_OK);
    assert_string_equal(facts.kv_type_k, "q8_0");
    assert_string_equal(facts.kv_type_v, "q5_1");
    assert_int_equal(facts.flash, LLAMA_FLASH_OFF);
    assert_int_equal(read_flags("s --context-shift --no-context-shift", "LLAMA_ARG_CONTEXT_SHIFT=1",
                                &facts, NULL),
                     KVARVE_OK);
}

static void test_flags__state_beyond_the_tokens_is_refused(void **state)
{
    static const struct {
        const char *arguments;
        const char *environment;
        const char *reason;
    } refused[] = {
        {"s --context-shift", "", "--context-shift"},
        {"s", "LLAMA_ARG_CONTEXT_SHIFT=true", "--context-shift"},
        {"s --cache-reuse 256", "", "--cache-reuse"},
        {"s", "LLAMA_ARG_CACHE_REUSE=1", "--cache-reuse"},
        {"s -gan 4", "", "self-extend"},
        {"s --lora a.gguf --lora-init-without-apply", "", "adapter scales"},
        {"s --mmproj m.gguf", "", "media"},
        {"s", "LLAMA_ARG_MMPROJ_URL=x", "media"},
        {"s --models-dir d", "", "router"},
        {"s --cache-type-k", "", "has no value"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        llama_facts facts;
        kvarve_error err = {0};
        assert_int_equal(read_flags(refused[i].arguments, refused[i].environment, &facts, &err),
                         KVARVE_UNSUPPORTED);
        if (strstr(err.text, refused[i].reason) == NULL) {
            fail_msg("%s: %s", refused[i].arguments, err.text);
        }
    }
}

static void test_flags__harmless_values_are_not_refused(void **state)
{
    llama_facts facts;

    (void)state;
    assert_int_equal(
        read_flags("s --cache-reuse 0 -gan 1", "LLAMA_ARG_CONTEXT_SHIFT=0", &facts, NULL),
        KVARVE_OK);
}

static void test_flags__streams_follow_slots_and_unification(void **state)
{
    static const struct {
        const char *arguments;
        uint32_t streams;
    } cases[] = {{"s -np 4", 4},       {"s -np 1", 1},   {"s", 1},
                 {"s -np 4 -kvu", 1},  {"s -np -1", 1},  {"s -np 4 -no-kvu", 4},
                 {"s -np 2 -np 3", 3}, {"s -no-kvu", 1}, {"s -np 4 --kv-unified-per-slot 9", 1}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        llama_facts facts;
        assert_int_equal(read_flags(cases[i].arguments, "", &facts, NULL), KVARVE_OK);
        assert_int_equal(facts.stream_count, cases[i].streams);
    }
}

static void test_flags__lists_rope_and_drafters(void **state)
{
    llama_facts facts;

    (void)state;
    assert_int_equal(
        read_flags("s --lora a,b --lora-scaled c:0.250 --control-vector-scaled v:2 "
                   "--control-vector-layer-range 3 9 --override-kv x=int:1 --override-kv y=int:2 "
                   "--rope-freq-base 10000.0 --yarn-beta-fast 32 --rope-scaling yarn "
                   "--spec-type ngram-simple,draft-simple -md d.gguf -ctkd q8_0",
                   "", &facts, NULL),
        KVARVE_OK);
    assert_int_equal(facts.adapter_count, 3);
    assert_string_equal(facts.adapters[1].path, "b");
    assert_string_equal(facts.adapters[2].scale, "0.25");
    assert_int_equal(facts.vector_count, 1);
    assert_string_equal(facts.vector_layers, "3..9");
    assert_string_equal(facts.overrides, "x=int:1,y=int:2");
    assert_string_equal(facts.rope, "rope-scaling=yarn,rope-freq-base=10000,yarn-beta-fast=32");
    assert_string_equal(facts.draft_type, "draft-simple");
    assert_string_equal(facts.draft_model, "d.gguf");
    assert_string_equal(facts.draft_type_k, "q8_0");
    assert_int_equal(read_flags("s --spec-default", "", &facts, NULL), KVARVE_OK);
    assert_string_equal(facts.draft_type, ""); /* not known: refused later, by name */
}

static void test_maps__backends_are_named_once_and_sorted(void **state)
{
    char out[256];

    (void)state;
    assert_int_equal(server_maps_read("7f00 r-xp 0 08:01 1  /usr/lib/libggml-base.so.0\n"
                                      "7f01 r-xp 0 08:01 2  /usr/lib/ggml/libggml-cpu-haswell.so\n"
                                      "7f02 rw-p 0 08:01 2  /usr/lib/ggml/libggml-cpu-haswell.so\n"
                                      "7f03 r-xp 0 08:01 3  /usr/lib/ggml/libggml-blas.so\n"
                                      "7f04 r-xp 0 08:01 4  /usr/lib/libggml.so.0\n"
                                      "7f05 rw-p 0 00:00 0  [heap]",
                                      out, sizeof(out), NULL),
                     KVARVE_OK);
    assert_string_equal(out, "libggml-blas.so,libggml-cpu-haswell.so");
    assert_int_equal(server_maps_read("", out, sizeof(out), NULL), KVARVE_OK);
    assert_string_equal(out, "");
    assert_int_equal(server_maps_read("/libggml-cpu-haswell.so", out, 8, NULL), KVARVE_NO_SPACE);
}

/* ---- Asking ---- */

static const char *const properties =
    "{\"model_path\":\"/models/m.gguf\",\"build_info\":\"b1-test\",\"modalities\":{\"vision\":"
    "false}}";

static kvarve_status ask(const http_script *script, size_t count, llama_facts *facts,
                         kvarve_error *err)
{
    char folder[SCRATCH_PATH_MAX];
    char path[SCRATCH_PATH_MAX + 16];
    http_server *server;

    scratch_make(folder);
    (void)snprintf(path, sizeof(path), "%s/s.sock", folder);
    server = http_server_start(path, script, count);
    const llama_server_options options = {.io = io_posix(), .address = path, .timeout_ms = 20000};
    llama_facts_init(facts);
    const kvarve_status status = llama_server_facts(&options, facts, err);
    http_server_stop(server);
    scratch_remove(folder);
    return status;
}

static void test_server__the_process_behind_a_socket_is_found_and_read(void **state)
{
    const http_script script[] = {{"/props", 200, properties}, {"/lora-adapters", 200, "[]"}};
    llama_facts facts;
    kvarve_error err = {0};

    (void)state;
    if (ask(script, 2, &facts, &err) != KVARVE_OK) {
        fail_msg("%s", err.text);
    }
    assert_string_equal(facts.model, "/models/m.gguf");
    assert_string_equal(facts.build, "b1-test");
    assert_string_equal(facts.backend, ""); /* this process maps none: refused later, by name */
    assert_string_equal(facts.kv_type_k, "f16");
}

static void test_server__odd_answers_are_refused(void **state)
{
    const http_script media[] = {
        {"/props", 200,
         "{\"model_path\":\"/m\",\"build_info\":\"b\",\"modalities\":{\"vision\":true}}"}};
    const http_script empty[] = {{"/props", 200, "{}"}};
    const http_script nonsense[] = {{"/props", 200, "no json"}};
    const http_script loading[] = {{"/props", 503, "{}"}};
    const http_script locked[] = {{"/props", 401, "{}"}};
    const http_script changed[] = {{"/props", 200, properties},
                                   {"/lora-adapters", 200, "[{\"id\":0,\"scale\":1.0}]"}};
    llama_facts facts;
    kvarve_error err = {0};

    (void)state;
    assert_int_equal(ask(media, 1, &facts, &err), KVARVE_UNSUPPORTED);
    assert_non_null(strstr(err.text, "media"));
    assert_int_equal(ask(empty, 1, &facts, &err), KVARVE_UNSUPPORTED);
    assert_int_equal(ask(nonsense, 1, &facts, &err), KVARVE_UNSUPPORTED);
    assert_int_equal(ask(loading, 1, &facts, &err), KVARVE_UNAVAILABLE);
    assert_int_equal(ask(locked, 1, &facts, &err), KVARVE_UNSUPPORTED);
    assert_non_null(strstr(err.text, "LLAMA_API_KEY"));
    assert_int_equal(ask(changed, 2, &facts, &err), KVARVE_UNSUPPORTED);
    assert_non_null(strstr(err.text, "adapters"));
}

static void test_server__addresses_of_others_are_refused(void **state)
{
    static const char *const addresses[] = {"http://192.0.2.1:8080", "http://127.0.0.1",
                                            "http://127.0.0.1:99999", "no/such/socket"};

    (void)state;
    for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
        const llama_server_options options = {
            .io = io_posix(), .address = addresses[i], .timeout_ms = 1000};
        llama_facts facts;
        kvarve_error err = {0};
        llama_facts_init(&facts);
        assert_int_equal(llama_server_facts(&options, &facts, &err), KVARVE_UNSUPPORTED);
        assert_non_null(strstr(err.text, "--server-pid"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flags__defaults_are_llama_servers),
        cmocka_unit_test(test_flags__the_command_line_wins_over_the_environment),
        cmocka_unit_test(test_flags__state_beyond_the_tokens_is_refused),
        cmocka_unit_test(test_flags__harmless_values_are_not_refused),
        cmocka_unit_test(test_flags__streams_follow_slots_and_unification),
        cmocka_unit_test(test_flags__lists_rope_and_drafters),
        cmocka_unit_test(test_maps__backends_are_named_once_and_sorted),
        cmocka_unit_test(test_server__the_process_behind_a_socket_is_found_and_read),
        cmocka_unit_test(test_server__odd_answers_are_refused),
        cmocka_unit_test(test_server__addresses_of_others_are_refused),
    };

    return cmocka_run_group_tests_name("llama.server", tests, NULL, NULL);
}
