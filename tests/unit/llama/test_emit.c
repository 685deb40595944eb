/*
 * test_emit.c - which boundary is found, what a miss says, what a damaged page costs.
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

typedef struct emit_fixture {
    ingest_kit kit;
    kit_bytes file;
    uint32_t *tokens; /* of the file, and one more */
    uint64_t count;
} emit_fixture;

/* qwen35-two-turns: boundaries 94 (prompt) and 105 (response). */
static int begin(void **state)
{
    static emit_fixture fixture;

    kit_begin(&fixture.kit);
    kit_open(&fixture.kit, ARENA, 0);
    fixture.file = kit_load("tests/llama/samples/qwen35-two-turns.slot");
    fixture.tokens = kit_tokens(&fixture.file, &fixture.count);
    assert_int_equal(kit_put(&fixture.kit, &fixture.file, true), KVARVE_OK);
    *state = &fixture;
    return 0;
}

static int end(void **state)
{
    emit_fixture *fixture = *state;

    kvarve_release(fixture->tokens);
    kit_free(&fixture->file);
    kit_end(&fixture->kit);
    return 0;
}

/* Emit for `count` tokens; the miss, or a hit's tokens, is in fixture->kit.emitted. */
static kvarve_status emit(emit_fixture *fixture, uint64_t count)
{
    kit_bytes back;
    const kvarve_status status = kit_emit(&fixture->kit, fixture->tokens, count, &back);

    kit_free(&back);
    return status;
}

static void check_miss(emit_fixture *fixture, uint64_t count, kvarve_miss_reason reason,
                       const char *field)
{
    assert_int_equal(emit(fixture, count), KVARVE_MISS);
    assert_int_equal(fixture->kit.emitted.miss.reason, reason);
    assert_string_equal(fixture->kit.emitted.miss.field, field);
    assert_false(kit_exists(fixture->kit.output_path));
}

static void test_emit__the_last_token_is_left_to_the_server(void **state)
{
    emit_fixture *fixture = *state;

    assert_int_equal(emit(fixture, fixture->count + 1), KVARVE_OK);
    assert_int_equal(fixture->kit.emitted.tokens, 105);
    assert_int_equal(fixture->kit.emitted.kind, KVARVE_KIND_RESPONSE);
    /* With exactly these tokens the response would cover the one that is read again. */
    assert_int_equal(emit(fixture, fixture->count), KVARVE_OK);
    assert_int_equal(fixture->kit.emitted.tokens, 94);
    assert_int_equal(fixture->kit.emitted.kind, KVARVE_KIND_PROMPT);
    fixture->kit.emit.max_tokens = fixture->count;
    assert_int_equal(emit(fixture, fixture->count), KVARVE_OK);
    assert_int_equal(fixture->kit.emitted.tokens, 105);
}

static void test_emit__shorter_boundaries_go_along_as_checkpoints(void **state)
{
    emit_fixture *fixture = *state;
    llama_endpoint endpoint;
    llama_slot *slot = NULL;
    kit_bytes back;

    assert_int_equal(kit_emit(&fixture->kit, fixture->tokens, fixture->count + 1, &back),
                     KVARVE_OK);
    const llama_input input = kit_input(&back);
    assert_int_equal(llama_slot_open(&input, &slot, NULL), KVARVE_OK);
    assert_int_equal(llama_slot_checkpoints(slot), 1);
    assert_true(llama_slot_endpoint(slot, 0, LLAMA_MAIN, &endpoint));
    assert_int_equal(endpoint.tokens, 94);
    assert_true(endpoint.is_checkpoint);
    assert_int_equal(llama_slot_verify(slot, 64, NULL, NULL), KVARVE_OK);
    llama_slot_close(slot);
    kit_free(&back);

    fixture->kit.emit.checkpoints = 0;
    assert_int_equal(emit(fixture, fixture->count + 1), KVARVE_OK);
    assert_int_equal(fixture->kit.emitted.checkpoints, 0);
}

static void test_emit__what_was_emitted_is_known_content(void **state)
{
    emit_fixture *fixture = *state;
    kit_bytes back;

    assert_int_equal(kit_emit(&fixture->kit, fixture->tokens, fixture->count + 1, &back),
                     KVARVE_OK);
    assert_int_equal(kit_put(&fixture->kit, &back, true), KVARVE_OK);
    for (uint32_t i = 0; i < fixture->kit.stored.count; i++) {
        assert_int_equal(fixture->kit.stored.boundaries[i].state, KVARVE_PUT_PRESENT);
    }
    kit_free(&back);
}

static void test_emit__a_miss_names_what_differs(void **state)
{
    emit_fixture *fixture = *state;
    llama_facts *facts = &fixture->kit.facts;
    const llama_facts right = *facts;

    (void)snprintf(facts->build, sizeof(facts->build), "b2");
    check_miss(fixture, fixture->count + 1, KVARVE_MISS_NUMERICS, "numerics.build");
    assert_int_equal(fixture->kit.emitted.miss.nearest_tokens, 105);
    *facts = right;
    (void)snprintf(facts->model, sizeof(facts->model), "%s/other.gguf", fixture->kit.folder);
    kit_bytes model = kit_load(right.model);
    kit_append(&model, "x", 1);
    kit_write(facts->model, model.bytes, model.size);
    kit_free(&model);
    check_miss(fixture, fixture->count + 1, KVARVE_MISS_NAMESPACE, "model");
    *facts = right;
    (void)snprintf(facts->rope, sizeof(facts->rope), "rope-scale=2");
    check_miss(fixture, fixture->count + 1, KVARVE_MISS_NAMESPACE, "rope");
    *facts = right;
    (void)snprintf(facts->kv_type_k, sizeof(facts->kv_type_k), "q8_0");
    check_miss(fixture, fixture->count + 1, KVARVE_MISS_NAMESPACE, "kv_type_k");
    *facts = right;
    facts->flash = LLAMA_FLASH_OFF;
    check_miss(fixture, fixture->count + 1, KVARVE_MISS_NAMESPACE, "flash attention");
    *facts = right;
    fixture->kit.emit.min_tokens = 106;
    check_miss(fixture, fixture->count + 1, KVARVE_MISS_LIMITS, "");
    fixture->kit.emit.min_tokens = 0;
    fixture->tokens[3]++;
    check_miss(fixture, fixture->count + 1, KVARVE_MISS_TOKENS, "");
}

static void test_emit__an_empty_store_is_a_miss(void **state)
{
    ingest_kit kit;
    const uint32_t tokens[] = {1, 2, 3};
    kit_bytes back;

    (void)state;
    kit_begin(&kit);
    kit_open(&kit, ARENA, 0);
    assert_int_equal(kit_emit(&kit, tokens, 3, &back), KVARVE_MISS);
    assert_int_equal(kit.emitted.miss.reason, KVARVE_MISS_EMPTY);
    kit_end(&kit);
}

static void test_emit__two_layouts_are_not_guessed(void **state)
{
    ingest_kit kit;
    kit_bytes on = kit_load("tests/llama/samples/qwen35-np4.slot");
    kit_bytes off = kit_load("tests/llama/samples/qwen35-fa-off.slot");
    uint64_t count = 0;
    uint32_t *tokens = kit_tokens(&on, &count);
    kit_bytes back;

    (void)state;
    kit_begin(&kit);
    kit_open(&kit, ARENA, 0);
    assert_int_equal(kit_put(&kit, &on, true), KVARVE_OK);
    assert_int_equal(kit_put(&kit, &off, true), KVARVE_OK);
    kit.emit.max_tokens = count;
    assert_int_equal(kit_emit(&kit, tokens, count, &back), KVARVE_UNSUPPORTED);
    assert_non_null(strstr(kit.err.text, "--flash-attn"));
    kit.facts.flash = LLAMA_FLASH_OFF;
    assert_int_equal(kit_emit(&kit, tokens, count, &back), KVARVE_OK);
    kit_assert_equal(&off, &back);
    kit_free(&back);
    kvarve_release(tokens);
    kit_free(&on);
    kit_free(&off);
    kit_end(&kit);
}

static void test_emit__another_drafter_loses_the_draft_alone(void **state)
{
    ingest_kit kit;
    kit_bytes file = kit_load("tests/llama/samples/qwen35mtp.slot");
    uint64_t count = 0;
    uint32_t *tokens = kit_tokens(&file, &count);
    kit_bytes back;

    (void)state;
    kit_begin(&kit);
    kit_open(&kit, ARENA, 0);
    assert_int_equal(kit_put(&kit, &file, true), KVARVE_OK);
    kit.emit.max_tokens = count;
    assert_int_equal(kit_emit(&kit, tokens, count, &back), KVARVE_OK);
    assert_true(kit.emitted.has_draft);
    kit_free(&back);

    (void)snprintf(kit.facts.draft_type, sizeof(kit.facts.draft_type), "draft-other");
    assert_int_equal(kit_emit(&kit, tokens, count, &back), KVARVE_OK);
    assert_false(kit.emitted.has_draft);
    assert_int_equal(kit.emitted.tokens, count);
    kit_free(&back);
    (void)snprintf(kit.facts.draft_type, sizeof(kit.facts.draft_type), "none");
    assert_int_equal(kit_emit(&kit, tokens, count, &back), KVARVE_OK);
    assert_false(kit.emitted.has_draft);
    kit_free(&back);
    kvarve_release(tokens);
    kit_free(&file);
    kit_end(&kit);
}

typedef struct segment_damage {
    const ingest_kit *kit;
    const uint8_t *pattern;
    size_t size;
    int hits;
} segment_damage;

/* Change a byte of `pattern` wherever a segment holds it. */
static bool damage_segment(void *context, const char *name)
{
    segment_damage *wanted = context;
    kvarve_io *io = io_posix();
    char path[KVARVE_PATH_MAX];
    kvarve_file_stat stat;
    kvarve_fd fd = -1;

    (void)snprintf(path, sizeof(path), "%s/segments/%s", wanted->kit->store_path, name);
    assert_int_equal(io->ops->open(io, path, 0, 0, &fd), 0);
    assert_int_equal(io->ops->stat_fd(io, fd, &stat), 0);
    uint8_t *bytes = kvarve_allocate((size_t)stat.size + 1);
    assert_int_equal(io_read_all(io, fd, bytes, (size_t)stat.size, 0), 0);
    const uint8_t *found = memmem(bytes, (size_t)stat.size, wanted->pattern, wanted->size);
    if (found != NULL) {
        const uint8_t wrong = (uint8_t)(*found ^ 1);
        assert_int_equal(io_write_all(io, fd, &wrong, 1, (uint64_t)(found - bytes)), 0);
        wanted->hits++;
    }
    kvarve_release(bytes);
    io->ops->close(io, fd);
    return true;
}

static void test_emit__a_damaged_page_costs_its_boundary_alone(void **state)
{
    emit_fixture *fixture = *state;
    kvarve_io *io = io_posix();
    char folder[KVARVE_PATH_MAX];
    llama_endpoint endpoint;
    llama_slot *slot = NULL;
    uint8_t pattern[256];
    const llama_endpoint_name name = {.index = LLAMA_RESPONSE, .part = LLAMA_MAIN};
    const llama_input input = kit_input(&fixture->file);

    assert_int_equal(llama_slot_open(&input, &slot, NULL), KVARVE_OK);
    assert_true(llama_slot_endpoint(slot, LLAMA_RESPONSE, LLAMA_MAIN, &endpoint));
    assert_int_equal(llama_slot_read_endpoint(slot, name, llama_endpoint_size(&endpoint) / 2,
                                              sizeof(pattern), pattern, NULL),
                     KVARVE_OK);
    llama_slot_close(slot);
    kit_close(&fixture->kit);
    segment_damage damage = {.kit = &fixture->kit, .pattern = pattern, .size = sizeof(pattern)};
    (void)snprintf(folder, sizeof(folder), "%s/segments", fixture->kit.store_path);
    assert_int_equal(io->ops->list(io, folder, damage_segment, &damage), 0);
    assert_int_equal(damage.hits, 1);

    kit_open(&fixture->kit, ARENA, 0);
    assert_int_equal(emit(fixture, fixture->count + 1), KVARVE_OK);
    assert_int_equal(fixture->kit.emitted.tokens, 94);
    /* Storing it again repairs it. */
    assert_int_equal(kit_put(&fixture->kit, &fixture->file, true), KVARVE_OK);
    assert_int_equal(emit(fixture, fixture->count + 1), KVARVE_OK);
    assert_int_equal(fixture->kit.emitted.tokens, 105);
}

static void test_emit__wrong_calls_are_refused(void **state)
{
    emit_fixture *fixture = *state;

    assert_int_equal(emit(fixture, 1), KVARVE_INVALID);
    fixture->kit.emit.max_tokens = 1000;
    assert_int_equal(emit(fixture, 20), KVARVE_INVALID);
    fixture->kit.emit.max_tokens = 0;
    fixture->kit.emit.stream_index = 1;
    assert_int_equal(emit(fixture, 20), KVARVE_INVALID);
    fixture->kit.emit.stream_index = 0;
    fixture->kit.emit.output = "no/such/folder/out.slot";
    assert_int_equal(emit(fixture, fixture->count + 1), KVARVE_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_emit__the_last_token_is_left_to_the_server, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_emit__shorter_boundaries_go_along_as_checkpoints,
                                        begin, end),
        cmocka_unit_test_setup_teardown(test_emit__what_was_emitted_is_known_content, begin, end),
        cmocka_unit_test_setup_teardown(test_emit__a_miss_names_what_differs, begin, end),
        cmocka_unit_test(test_emit__an_empty_store_is_a_miss),
        cmocka_unit_test(test_emit__two_layouts_are_not_guessed),
        cmocka_unit_test(test_emit__another_drafter_loses_the_draft_alone),
        cmocka_unit_test_setup_teardown(test_emit__a_damaged_page_costs_its_boundary_alone, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_emit__wrong_calls_are_refused, begin, end),
    };

    return cmocka_run_group_tests_name("llama.emit", tests, NULL, NULL);
}
