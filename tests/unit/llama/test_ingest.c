/*
 * test_ingest.c - slot files through a real store: what comes back, what is written, what is
 * refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "env/env_posix.h"
#include "env/io_all.h"
#include "unit/llama/ingest_kit.h"
#include "unit/llama/slot_builder.h"

#define ARENA (UINT64_C(8) << 20)

static int begin(void **state)
{
    static ingest_kit kit;

    kit_begin(&kit);
    kit.options.step_bytes = UINT64_C(1) << 20;
    *state = &kit;
    return 0;
}

static int end(void **state)
{
    kit_end(*state);
    return 0;
}

/* A dense model: 2 layers, rows of 64 bytes. */
static build_slot dense(uint32_t tokens)
{
    return (build_slot){
        .tokens = tokens,
        .main = {.full = {.layers = 2,
                          .key_type = 1,
                          .key_bytes = 64,
                          .value_type = 1,
                          .value_bytes = 64}},
        .seed = 7,
    };
}

/* A hybrid model with checkpoints. */
static build_slot hybrid(uint32_t tokens)
{
    build_slot slot = dense(tokens);
    slot.main.recurrent =
        (build_recurrent){.layers = 3, .layers_total = 5, .r_bytes = 100, .s_bytes = 700};
    return slot;
}

static void put_built(ingest_kit *kit, const build_slot *model)
{
    built_slot *built = build(model);

    if (kit_put(kit, &built->file, true) != KVARVE_OK) {
        fail_msg("put: %s", kit->err.text);
    }
    build_free(built);
}

/* Facts and files of its own, and the store of `home`: a build of its own keeps them apart there.
 */
static void begin_beside(ingest_kit *kit, const ingest_kit *home, size_t number)
{
    kit_begin(kit);
    (void)snprintf(kit->facts.build, sizeof(kit->facts.build), "b%zu", number);
    kit->store = home->store;
    kit->emit.store_path = home->store_path;
}

static void end_beside(ingest_kit *kit)
{
    kit->store = NULL;
    kit_end(kit);
}

/* What is emitted for all tokens of a file is that file. */
static void check_round_trip(ingest_kit *kit, const char *name, const kit_bytes *file)
{
    uint64_t count = 0;
    uint32_t *tokens = kit_tokens(file, &count);
    kit_bytes back;

    kit->emit.max_tokens = count;
    if (kit_emit(kit, tokens, count, &back) != KVARVE_OK) {
        fail_msg("%s: emit: %s, %s", name, kit->err.text,
                 kvarve_miss_text(kit->emitted.miss.reason));
    }
    kit_assert_equal(file, &back);
    kit_free(&back);
    kvarve_release(tokens);
}

static void test_ingest__samples_come_back_byte_for_byte(void **state)
{
    static const struct {
        const char *name;
        uint32_t streams;
        bool is_off;
    } samples[] = {{"llama", 1, false},       {"llama-long", 1, false},
                   {"llama-fa-off", 1, true}, {"llama-q8", 1, false},
                   {"llama-np4", 4, false},   {"llama-q8-keys-fa-off", 1, true},
                   {"llama-draft", 1, false}, {"llama-fragments", 1, false},
                   {"qwen35", 1, false},      {"qwen35-fa-off", 1, true},
                   {"qwen35-np4", 4, false},  {"qwen35mtp", 1, false},
                   {"mamba2", 1, false},      {"gemma3", 1, false}};
    ingest_kit *home = *state;

    kit_open(home, ARENA, 0);
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        ingest_kit kit;
        char path[256];
        begin_beside(&kit, home, i);
        (void)snprintf(path, sizeof(path), "tests/llama/samples/%s.slot", samples[i].name);
        kit_bytes file = kit_load(path);
        kit.facts.flash = samples[i].is_off ? LLAMA_FLASH_OFF : LLAMA_FLASH_ON;
        kit.emit.stream_count = samples[i].streams;
        kit.emit.stream_index = samples[i].streams == 1 ? 0 : 2;
        if (kit_put(&kit, &file, true) != KVARVE_OK) {
            fail_msg("%s: %s", samples[i].name, kit.err.text);
        }
        check_round_trip(&kit, samples[i].name, &file);
        kit_free(&file);
        end_beside(&kit);
    }
}

static void test_ingest__every_layout_comes_back(void **state)
{
    const char *name = NULL;
    const build_slot *model = NULL;
    ingest_kit *home = *state;

    kit_open(home, ARENA, 0);
    for (uint32_t i = 0; (model = build_example(i, &name)) != NULL; i++) {
        ingest_kit kit;
        begin_beside(&kit, home, i);
        /* All checkpoints are kept only where there is one at most. */
        build_slot slot = *model;
        slot.checkpoint_count = slot.checkpoint_count > 1 ? 1 : slot.checkpoint_count;
        built_slot *built = build(&slot);
        kit.emit.stream_count = slot.stream_count > 0 ? slot.stream_count : 1;
        kit.emit.stream_index = slot.stream_index;
        const kvarve_status status = kit_put(&kit, &built->file, true);
        if (status != KVARVE_OK) {
            fail_msg("%s: %s", name, kit.err.text);
        }
        if (slot.sequence == slot.stream_index) {
            check_round_trip(&kit, name, &built->file);
        }
        build_free(built);
        end_beside(&kit);
    }
}

static void test_ingest__again_writes_nothing(void **state)
{
    ingest_kit *kit = *state;
    build_slot model = hybrid(200);

    model.checkpoint_count = 2;
    model.checkpoint_at[0] = 130;
    model.checkpoint_at[1] = 190;
    kit_open(kit, ARENA, 0);
    kit->options.user_at = 140;
    put_built(kit, &model);
    assert_int_equal(kit->stored.count, 3);
    for (uint32_t restart = 0; restart < 2; restart++) {
        const kvarve_statistics before = kit_statistics(kit);
        put_built(kit, &model);
        const kvarve_statistics after = kit_statistics(kit);
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(kit->stored.boundaries[i].state, KVARVE_PUT_PRESENT);
        }
        assert_int_equal(after.payload_bytes_written, before.payload_bytes_written);
        assert_int_equal(after.header_bytes_written, before.header_bytes_written);
        assert_int_equal(after.index_log_bytes_written, before.index_log_bytes_written);
        assert_int_equal(after.index_database_bytes_written, before.index_database_bytes_written);
        kit_close(kit);
        kit_open(kit, ARENA, 0);
    }
}

static void test_ingest__keeps_user_prompt_and_response(void **state)
{
    ingest_kit *kit = *state;
    build_slot model = hybrid(300);

    model.checkpoint_count = 4;
    model.checkpoint_at[0] = 70;
    model.checkpoint_at[1] = 200;
    model.checkpoint_at[2] = 250;
    model.checkpoint_at[3] = 280;
    kit->options.prompt_at = 260;
    kit->options.user_at = 220;
    kit_open(kit, ARENA, 0);
    put_built(kit, &model);
    assert_int_equal(kit->stored.count, 3);
    assert_int_equal(kit->stored.boundaries[0].tokens, 200);
    assert_int_equal(kit->stored.boundaries[0].kind, KVARVE_KIND_PROMPT);
    assert_int_equal(kit->stored.boundaries[1].tokens, 250);
    assert_int_equal(kit->stored.boundaries[2].tokens, 300);
    assert_int_equal(kit->stored.boundaries[2].kind, KVARVE_KIND_RESPONSE);
}

static void test_ingest__dense_state_is_cut_where_the_prompt_is_read_again(void **state)
{
    ingest_kit *kit = *state;
    const build_slot model = dense(300);
    kit_bytes back;

    kit->options.prompt_at = 260;
    kit->options.user_at = 220;
    kit_open(kit, ARENA, 0);
    put_built(kit, &model);
    assert_int_equal(kit->stored.count, 3);
    assert_int_equal(kit->stored.boundaries[0].tokens, 220);
    assert_int_equal(kit->stored.boundaries[1].tokens, 259);

    /* The prompt alone, as if the turn were asked again. */
    built_slot *built = build(&model);
    uint64_t count = 0;
    uint32_t *tokens = kit_tokens(&built->file, &count);
    assert_int_equal(kit_emit(kit, tokens, 260, &back), KVARVE_OK);
    assert_int_equal(kit->emitted.tokens, 259);
    kit_free(&back);
    /* Tokens that only begin alike: the last common page's end. */
    tokens[150]++;
    assert_int_equal(kit_emit(kit, tokens, count, &back), KVARVE_OK);
    assert_int_equal(kit->emitted.tokens, 128);
    assert_true(kit->emitted.is_derived);
    kit_free(&back);
    kvarve_release(tokens);
    build_free(built);
}

static void test_ingest__passes_through_an_arena_that_is_smaller(void **state)
{
    ingest_kit *kit = *state;
    build_slot model = hybrid(40000);

    model.checkpoint_count = 1;
    model.checkpoint_at[0] = 39990;
    kit->options.step_bytes = 524288;
    kit_open(kit, UINT64_C(2) << 20, 0);
    built_slot *built = build(&model);
    assert_true(built->file.size > (size_t)4 << 20);
    if (kit_put(kit, &built->file, true) != KVARVE_OK) {
        fail_msg("%s", kit->err.text);
    }
    check_round_trip(kit, "large", &built->file);
    build_free(built);
}

static void test_ingest__file_that_cannot_be_cut_is_stored_whole(void **state)
{
    ingest_kit *kit = *state;
    build_slot model = hybrid(200);
    llama_ingest *ingest = NULL;

    model.is_out_of_order = true;
    kit_open(kit, ARENA, 0);
    built_slot *built = build(&model);
    assert_int_equal(kit_put(kit, &built->file, true), KVARVE_OK);
    assert_int_equal(kit->stored.count, 1);
    check_round_trip(kit, "whole", &built->file);
    assert_true(kit->emitted.is_whole);

    assert_int_equal(llama_ingest_open(io_posix(), kit->slot_path, &ingest, NULL), KVARVE_OK);
    assert_int_equal(llama_ingest_prepare(ingest, &kit->options, NULL), KVARVE_OK);
    assert_non_null(llama_ingest_whole_reason(ingest));
    llama_ingest_close(ingest);
    build_free(built);
}

static void test_ingest__file_that_changes_meanwhile_is_refused(void **state)
{
    ingest_kit *kit = *state;
    const build_slot model = dense(200);
    const model_digest_options digests = {.io = io_posix()};
    llama_ingest *ingest = NULL;
    llama_identity *identity = NULL;
    built_slot *built = build(&model);

    kit_open(kit, ARENA, 0);
    kit_write(kit->slot_path, built->file.bytes, built->file.size);
    assert_int_equal(llama_identity_create(&kit->facts, &digests, &identity, NULL), KVARVE_OK);
    assert_int_equal(llama_ingest_open(io_posix(), kit->slot_path, &ingest, NULL), KVARVE_OK);
    assert_int_equal(llama_ingest_prepare(ingest, &kit->options, NULL), KVARVE_OK);
    built->file.bytes[built->file.size - 100] ^= 1;
    kit_write(kit->slot_path, built->file.bytes, built->file.size);
    assert_int_equal(
        llama_ingest_store(ingest, kit->store, identity, NULL, 60000, &kit->stored, &kit->err),
        KVARVE_CORRUPT);
    assert_int_equal(kit_statistics(kit).checkpoints, 0);
    llama_ingest_close(ingest);
    llama_identity_free(identity);
    build_free(built);
}

static void test_ingest__full_store_says_so_and_keeps_what_it_has(void **state)
{
    ingest_kit *kit = *state;
    build_slot model = dense(64);

    kit_open(kit, ARENA, UINT64_C(20) << 20);
    put_built(kit, &model);
    model = dense(120000);
    model.seed = 8;
    built_slot *built = build(&model);
    assert_int_equal(kit_put(kit, &built->file, true), KVARVE_NO_SPACE);
    assert_non_null(strstr(kit->err.text, "not kept"));
    build_free(built);
}

static void test_ingest__empty_and_damaged_files_are_refused(void **state)
{
    ingest_kit *kit = *state;
    kit_bytes file = kit_load("tests/llama/samples/llama-empty.slot");

    kit_open(kit, ARENA, 0);
    assert_int_equal(kit_put(kit, &file, false), KVARVE_INVALID);
    kit_free(&file);
    file = kit_load("tests/llama/samples/llama.slot");
    file.size -= 1000;
    assert_int_equal(kit_put(kit, &file, false), KVARVE_CORRUPT);
    file.bytes[4] = 9;
    assert_int_equal(kit_put(kit, &file, false), KVARVE_UNSUPPORTED);
    assert_non_null(strstr(kit->err.text, "version 9"));
    kit_free(&file);
    assert_int_equal(kit_statistics(kit).checkpoints, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ingest__samples_come_back_byte_for_byte, begin, end),
        cmocka_unit_test_setup_teardown(test_ingest__every_layout_comes_back, begin, end),
        cmocka_unit_test_setup_teardown(test_ingest__again_writes_nothing, begin, end),
        cmocka_unit_test_setup_teardown(test_ingest__keeps_user_prompt_and_response, begin, end),
        cmocka_unit_test_setup_teardown(
            test_ingest__dense_state_is_cut_where_the_prompt_is_read_again, begin, end),
        cmocka_unit_test_setup_teardown(test_ingest__passes_through_an_arena_that_is_smaller, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_ingest__file_that_cannot_be_cut_is_stored_whole, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_ingest__file_that_changes_meanwhile_is_refused, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_ingest__full_store_says_so_and_keeps_what_it_has,
                                        begin, end),
        cmocka_unit_test_setup_teardown(test_ingest__empty_and_damaged_files_are_refused, begin,
                                        end),
    };

    return cmocka_run_group_tests_name("llama.ingest", tests, NULL, NULL);
}
