/*
 * test_codec_samples.c - files that llama-server wrote: cut, compared, put together again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "unit/llama/codec_kit.h"

typedef struct sample_facts {
    const char *name;
    uint64_t tokens;
    uint32_t checkpoints;
    uint32_t stream_count;
    uint32_t stream_index;
    uint32_t sequence;
} sample_facts;

static const sample_facts samples[] = {
    {"llama", 97, 0, 1, 0, 0},
    {"llama-long", 165, 0, 1, 0, 0},
    {"llama-fa-off", 77, 0, 1, 0, 0},
    {"llama-q8", 97, 0, 1, 0, 0},
    {"llama-q8-keys-fa-off", 77, 0, 1, 0, 0},
    {"llama-np4", 77, 0, 4, 2, 2},
    {"llama-draft", 57, 0, 1, 0, 0},
    {"qwen35", 67, 1, 1, 0, 0},
    {"qwen35-two-turns", 105, 3, 1, 0, 0},
    {"qwen35-fa-off", 77, 1, 1, 0, 0},
    {"qwen35-np4", 77, 1, 4, 2, 2},
    {"qwen35mtp", 77, 1, 1, 0, 0},
    {"mamba2", 77, 1, 1, 0, 0},
    {"lfm2", 105, 3, 1, 0, 0},
    {"gemma3", 77, 1, 1, 0, 0},
    {"gemma3-ring", 273, 2, 1, 0, 0},
};

static kit_bytes load_sample(const char *name)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "tests/llama/samples/%s.slot", name);
    return kit_load(path);
}

static llama_slot *open_sample(kit_bytes *file)
{
    llama_input input = kit_input(file);
    llama_slot *slot = NULL;
    kvarve_error err = {0};

    if (llama_slot_open(&input, &slot, &err) != KVARVE_OK) {
        fail_msg("%s", err.text);
    }
    return slot;
}

static void verify_sample(const sample_facts *sample)
{
    kit_bytes file = load_sample(sample->name);
    llama_slot *slot = open_sample(&file);
    kvarve_error err = {0};

    print_message("%s\n", sample->name);
    assert_int_equal(llama_slot_tokens(slot), sample->tokens);
    assert_null(llama_slot_whole_reason(slot));
    assert_int_equal(llama_slot_checkpoints(slot), sample->checkpoints);
    if (llama_slot_verify(slot, 64, NULL, &err) != KVARVE_OK) {
        fail_msg("%s", err.text);
    }
    llama_slot_close(slot);
    kit_free(&file);
}

static void test_codec__samples_are_verified(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        verify_sample(&samples[i]);
    }
}

static void test_codec__samples_are_put_together_again(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        kit_bytes file = load_sample(samples[i].name);
        llama_slot *slot = open_sample(&file);
        kit_pieces pieces = kit_cut(slot, 64, 1, 100);
        kit_target target = {.stream_count = samples[i].stream_count,
                             .stream_index = samples[i].stream_index,
                             .sequence = samples[i].sequence,
                             .batch = 2,
                             .step = 77};
        kit_bytes again = kit_join(&pieces, &target);

        print_message("%s\n", samples[i].name);
        kit_assert_equal(&file, &again);
        kit_free(&again);
        kit_pieces_free(&pieces);
        llama_slot_close(slot);
        kit_free(&file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codec__samples_are_verified),
        cmocka_unit_test(test_codec__samples_are_put_together_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
