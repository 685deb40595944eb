/*
 * test_codec_layouts.c - made-up files of every layout through pages, endpoints, and back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/alloc.h"
#include "unit/llama/codec_kit.h"
#include "unit/llama/slot_builder.h"

static llama_slot *open_file(kit_bytes *file)
{
    llama_input input = kit_input(file);
    llama_slot *slot = NULL;
    kvarve_error err = {0};

    if (llama_slot_open(&input, &slot, &err) != KVARVE_OK) {
        fail_msg("%s", err.text);
    }
    return slot;
}

static void verify(llama_slot *slot, uint32_t span)
{
    kvarve_error err = {0};

    if (llama_slot_verify(slot, span, NULL, &err) != KVARVE_OK) {
        fail_msg("%s", err.text);
    }
}

static kit_target own_target(const build_slot *example)
{
    return (kit_target){.stream_count = example->stream_count == 0 ? 1 : example->stream_count,
                        .stream_index = example->stream_index,
                        .sequence = example->sequence,
                        .batch = 3,
                        .step = 1000};
}

/* Cut and join with these sizes; the result is the file again. */
static void round_trip(kit_bytes *file, const build_slot *example, uint32_t span, size_t batch,
                       size_t step)
{
    llama_slot *slot = open_file(file);
    kit_target target = own_target(example);
    kit_pieces pieces = kit_cut(slot, span, batch, step);
    kit_bytes again;

    target.batch = batch;
    target.step = step;
    again = kit_join(&pieces, &target);
    kit_assert_equal(file, &again);
    kit_free(&again);
    kit_pieces_free(&pieces);
    llama_slot_close(slot);
}

static void test_codec__every_layout_comes_back_byte_for_byte(void **state)
{
    const build_slot *example;
    const char *name;

    (void)state;
    for (uint32_t i = 0; (example = build_example(i, &name)) != NULL; i++) {
        built_slot *built = build(example);
        llama_slot *slot = open_file(&built->file);

        print_message("%s\n", name);
        assert_null(llama_slot_whole_reason(slot));
        verify(slot, 64);
        verify(slot, 128);
        llama_slot_close(slot);
        round_trip(&built->file, example, 64, 1, 1);
        round_trip(&built->file, example, 64, 100, 7);
        round_trip(&built->file, example, 128, 2, 100000);
        build_free(built);
    }
}

/* What a file of another server, slot or sequence would be: the same, built that way. */
static void test_codec__streams_and_sequences_are_chosen_when_writing(void **state)
{
    const build_slot *example;
    const char *name;

    (void)state;
    for (uint32_t i = 0; (example = build_example(i, &name)) != NULL; i++) {
        build_slot other = *example;
        built_slot *built = build(example);
        built_slot *wanted;
        llama_slot *slot = open_file(&built->file);
        kit_pieces pieces = kit_cut(slot, 64, 10, 1000);
        kit_target target;
        kit_bytes again;

        other.stream_count = 5;
        other.stream_index = 3;
        other.sequence = 7;
        wanted = build(&other);
        target = own_target(&other);
        again = kit_join(&pieces, &target);
        kit_assert_equal(&wanted->file, &again);
        kit_free(&again);
        kit_pieces_free(&pieces);
        llama_slot_close(slot);
        build_free(built);
        build_free(wanted);
    }
}

static void test_codec__pages_of_a_dense_model_do_not_change_when_it_grows(void **state)
{
    /* Rows of 4 bytes, 8 a token. */
    const build_slot small = {
        .tokens = 130,
        .main.full = {
            .layers = 1, .key_type = 1, .key_bytes = 4, .value_type = 1, .value_bytes = 4}};
    const size_t row = 4, second = 64, last = 128;
    built_slot *built = build(&small);
    llama_slot *slot = open_file(&built->file);
    kit_pieces pieces = kit_cut(slot, 64, 10, 1000);
    const uint8_t *pages = pieces.rows[LLAMA_MAIN];
    const uint8_t *keys = built->file.bytes + (24 + row * 130 + 4 + 8 + 3 * row * 130 + 16 + 12);
    const uint8_t *values = keys + row * 130 + 12;

    (void)state;
    /* The second page: its K rows, then its V rows. */
    assert_memory_equal(pages + second * 2 * row, keys + second * row, 64 * row);
    assert_memory_equal(pages + second * 2 * row + 64 * row, values + second * row, 64 * row);
    /* The last, partial one has valid rows only. */
    assert_memory_equal(pages + last * 2 * row, keys + last * row, 2 * row);
    assert_memory_equal(pages + last * 2 * row + 2 * row, values + last * row, 2 * row);
    kit_pieces_free(&pieces);
    llama_slot_close(slot);
    build_free(built);
}

static void test_codec__transposed_values_are_turned(void **state)
{
    const build_slot example = {.tokens = 3,
                                .main.full = {.layers = 1,
                                              .is_transposed = true,
                                              .element_bytes = 2,
                                              .key_type = 1,
                                              .key_bytes = 2,
                                              .value_type = 1,
                                              .value_bytes = 4}};
    built_slot *built = build(&example);
    llama_slot *slot = open_file(&built->file);
    kit_pieces pieces = kit_cut(slot, 64, 1, 1000);
    const uint8_t *values = built->file.bytes + built->file.size - 12;
    const uint8_t *page = pieces.rows[LLAMA_MAIN] + 6;

    (void)state;
    for (size_t token = 0; token < 3; token++) {
        for (size_t element = 0; element < 2; element++) {
            assert_memory_equal(page + token * 4 + element * 2, values + (element * 3 + token) * 2,
                                2);
        }
    }
    kit_pieces_free(&pieces);
    llama_slot_close(slot);
    build_free(built);
}

/* A page in a span of 64 cut at 64: the file of the boundary is the one that a server would write.
 */
static void test_codec__an_older_boundary_is_written_with_its_own_endpoint(void **state)
{
    const build_slot example = {
        .tokens = 90,
        .main = {.full = {.layers = 2,
                          .key_type = 1,
                          .key_bytes = 8,
                          .value_type = 1,
                          .value_bytes = 8},
                 .recurrent = {.layers = 1, .layers_total = 3, .r_bytes = 24, .s_bytes = 40}},
        .checkpoint_count = 3,
        .checkpoint_at = {32, 64, 86}};
    built_slot *built = build(&example);
    llama_slot *slot = open_file(&built->file);
    kit_pieces pieces = kit_cut(slot, 64, 10, 1000);
    kit_target target = {.stream_count = 1, .boundary = 64, .batch = 1, .step = 50};
    kit_bytes cut = kit_join(&pieces, &target);
    llama_slot *again = open_file(&cut);
    kit_pieces pieces_again = kit_cut(again, 64, 10, 1000);

    (void)state;
    verify(again, 64);
    assert_int_equal(llama_slot_tokens(again), 64);
    assert_int_equal(llama_slot_checkpoints(again), 2);
    assert_memory_equal(pieces_again.rows[LLAMA_MAIN], pieces.rows[LLAMA_MAIN], (size_t)64 * 32);
    /* The payload of the endpoint is that of the checkpoint; the head differs in what it is. */
    assert_int_equal(pieces_again.response[LLAMA_MAIN].size, pieces.checkpoint[LLAMA_MAIN][1].size);
    assert_memory_equal(pieces_again.response[LLAMA_MAIN].bytes + LLAMA_ENDPOINT_HEAD,
                        pieces.checkpoint[LLAMA_MAIN][1].bytes + LLAMA_ENDPOINT_HEAD,
                        pieces.checkpoint[LLAMA_MAIN][1].size - LLAMA_ENDPOINT_HEAD);
    kit_pieces_free(&pieces_again);
    llama_slot_close(again);
    kit_free(&cut);
    kit_pieces_free(&pieces);
    llama_slot_close(slot);
    build_free(built);
}

static void test_codec__a_draft_can_be_left_out(void **state)
{
    build_slot example = {
        .tokens = 70,
        .main
            .full = {.layers = 2, .key_type = 1, .key_bytes = 8, .value_type = 1, .value_bytes = 8},
        .has_draft = true,
        .draft.full = {
            .layers = 1, .key_type = 1, .key_bytes = 4, .value_type = 1, .value_bytes = 4}};
    built_slot *built = build(&example);
    llama_slot *slot = open_file(&built->file);
    kit_pieces pieces = kit_cut(slot, 64, 10, 1000);
    kit_target target = {.stream_count = 1, .drop_draft = true, .batch = 1, .step = 50};
    kit_bytes file = kit_join(&pieces, &target);
    built_slot *wanted;

    (void)state;
    example.has_draft = false;
    wanted = build(&example);
    kit_assert_equal(&wanted->file, &file);
    kit_free(&file);
    kit_pieces_free(&pieces);
    llama_slot_close(slot);
    build_free(built);
    build_free(wanted);
}

static void test_codec__last_prompt_and_last_user_message_are_chosen(void **state)
{
    const build_slot example = {
        .tokens = 200,
        .main.recurrent = {.layers = 1, .layers_total = 1, .r_bytes = 8, .s_bytes = 8},
        .checkpoint_count = 7,
        .checkpoint_at = {10, 30, 30, 196, 150, 160, 200}};
    built_slot *built = build(&example);
    llama_slot *slot = open_file(&built->file);
    llama_choice choice = llama_slot_choose(slot, LLAMA_NO_LIMIT, LLAMA_NO_LIMIT);

    (void)state;
    /* 200 is the response itself; of the two at 30 the later one. */
    assert_int_equal(choice.prompt, 3);
    assert_int_equal(choice.user, LLAMA_RESPONSE);
    choice = llama_slot_choose(slot, 155, 40);
    assert_int_equal(choice.prompt, 4);
    assert_int_equal(choice.user, 2);
    choice = llama_slot_choose(slot, 12, 29);
    assert_int_equal(choice.prompt, 0);
    assert_int_equal(choice.user, LLAMA_RESPONSE);
    choice = llama_slot_choose(slot, 9, 10);
    assert_int_equal(choice.prompt, LLAMA_RESPONSE);
    assert_int_equal(choice.user, 0);
    llama_slot_close(slot);
    build_free(built);
}

/* Positions that do not say what the boundary says: not at one of them could a server resume. */
static void test_codec__a_checkpoint_that_contradicts_itself_is_not_chosen(void **state)
{
    const build_slot example = {
        .tokens = 70,
        .main.recurrent = {.layers = 1, .layers_total = 1, .r_bytes = 8, .s_bytes = 8},
        .checkpoint_count = 3,
        .checkpoint_at = {10, 20, 30}};
    built_slot *built = build(&example);
    /* Head, length, blob of 8 + 20 + 2 rows of 20, two lengths. */
    const size_t each = 16 + 8 + 68 + 16;
    uint8_t *checkpoints = built->file.bytes + built->file.size - 3 * each;
    llama_slot *slot;

    (void)state;
    /* position_max of the last, and the recurrent part's position of the second. */
    checkpoints[2 * each + 12]++;
    checkpoints[each + 16 + 8 + 8 + 4]++;
    slot = open_file(&built->file);
    verify(slot, 64);
    assert_int_equal(llama_slot_choose(slot, LLAMA_NO_LIMIT, LLAMA_NO_LIMIT).prompt, 0);
    llama_slot_close(slot);
    build_free(built);
}

/* ---- Pieces ---- */

static void assert_equal_pieces(const kit_pieces *a, const kit_pieces *b)
{
    for (int part = 0; part < LLAMA_PARTS; part++) {
        if (a->layout[part] == NULL) {
            assert_null(b->layout[part]);
            continue;
        }
        assert_true(llama_layout_is_equal(a->layout[part], b->layout[part]));
        assert_memory_equal(a->rows[part], b->rows[part],
                            a->token_count * llama_layout_token_bytes(a->layout[part]));
        kit_assert_equal(&a->response[part], &b->response[part]);
        for (uint32_t i = 0; i < a->checkpoint_count; i++) {
            kit_assert_equal(&a->checkpoint[part][i], &b->checkpoint[part][i]);
        }
    }
}

static void test_codec__pieces_do_not_know_stream_and_sequence(void **state)
{
    const build_slot *example;
    const char *name;

    (void)state;
    for (uint32_t i = 0; (example = build_example(i, &name)) != NULL; i++) {
        build_slot other = *example;
        built_slot *built[2];
        llama_slot *slot[2];
        kit_pieces pieces[2];

        other.stream_count = 5;
        other.stream_index = 3;
        other.sequence = 0x01020304;
        built[0] = build(example);
        built[1] = build(&other);
        for (int k = 0; k < 2; k++) {
            slot[k] = open_file(&built[k]->file);
            pieces[k] = kit_cut(slot[k], 64, 10, 10);
        }
        assert_equal_pieces(&pieces[0], &pieces[1]);
        for (int k = 0; k < 2; k++) {
            kit_pieces_free(&pieces[k]);
            llama_slot_close(slot[k]);
            build_free(built[k]);
        }
    }
}

/* ---- Visitor ---- */

typedef struct seen_pieces {
    kit_bytes rows[LLAMA_PARTS];
    kit_bytes response[LLAMA_PARTS];
    kit_bytes checkpoints;
    kvarve_status answer;
} seen_pieces;

static kvarve_status visit_page(void *context, llama_part part, const llama_page *page,
                                uint64_t size, kvarve_error *err)
{
    seen_pieces *visited = context;

    (void)err;
    assert_true(page->first % 64 == 0);
    kit_append(&visited->rows[part], page->bytes, (size_t)size);
    return visited->answer;
}

static kvarve_status visit_endpoint(void *context, llama_endpoint_name name, const void *bytes,
                                    size_t size, uint64_t offset, kvarve_error *err)
{
    seen_pieces *visited = context;
    kit_bytes *to =
        name.index == LLAMA_RESPONSE ? &visited->response[name.part] : &visited->checkpoints;

    (void)err;
    if (name.index == LLAMA_RESPONSE) {
        assert_int_equal(offset, to->size);
    }
    kit_append(to, bytes, size);
    return KVARVE_OK;
}

static void test_codec__verification_shows_all_pages_and_endpoints(void **state)
{
    const build_slot example = {
        .tokens = 150,
        .main = {.full = {.layers = 2,
                          .key_type = 1,
                          .key_bytes = 8,
                          .value_type = 1,
                          .value_bytes = 8},
                 .recurrent = {.layers = 1, .layers_total = 3, .r_bytes = 24, .s_bytes = 40}},
        .has_draft = true,
        .draft
            .full = {.layers = 1, .key_type = 1, .key_bytes = 4, .value_type = 1, .value_bytes = 4},
        .checkpoint_count = 1,
        .checkpoint_at = {86}};
    built_slot *built = build(&example);
    llama_slot *slot = open_file(&built->file);
    kit_pieces pieces = kit_cut(slot, 64, 10, 1000);
    seen_pieces visited = {.answer = KVARVE_OK};
    llama_visitor visitor = {.context = &visited, .page = visit_page, .endpoint = visit_endpoint};

    (void)state;
    assert_int_equal(llama_slot_verify(slot, 64, &visitor, NULL), KVARVE_OK);
    assert_int_equal(visited.rows[LLAMA_MAIN].size, 150 * 32);
    assert_memory_equal(visited.rows[LLAMA_MAIN].bytes, pieces.rows[LLAMA_MAIN], (size_t)150 * 32);
    assert_memory_equal(visited.rows[LLAMA_DRAFT].bytes, pieces.rows[LLAMA_DRAFT], (size_t)150 * 8);
    kit_assert_equal(&visited.response[LLAMA_MAIN], &pieces.response[LLAMA_MAIN]);
    kit_assert_equal(&visited.checkpoints, &pieces.checkpoint[LLAMA_MAIN][0]);
    assert_int_equal(visited.response[LLAMA_DRAFT].size, 0);

    visited.answer = KVARVE_NO_SPACE;
    assert_int_equal(llama_slot_verify(slot, 64, &visitor, NULL), KVARVE_NO_SPACE);
    kit_free(&visited.rows[LLAMA_MAIN]);
    kit_free(&visited.rows[LLAMA_DRAFT]);
    kit_free(&visited.response[LLAMA_MAIN]);
    kit_free(&visited.checkpoints);
    kit_pieces_free(&pieces);
    llama_slot_close(slot);
    build_free(built);
}

static void test_codec__a_file_stored_whole_has_pieces_of_one_size(void **state)
{
    (void)state;
    assert_int_equal(llama_whole_count(0), 0);
    assert_int_equal(llama_whole_piece(0, 0), 0);
    assert_int_equal(llama_whole_count(1), 1);
    assert_int_equal(llama_whole_piece(1, 0), 1);
    assert_int_equal(llama_whole_count(LLAMA_WHOLE_PIECE), 1);
    assert_int_equal(llama_whole_piece(LLAMA_WHOLE_PIECE, 0), LLAMA_WHOLE_PIECE);
    assert_int_equal(llama_whole_count(2 * LLAMA_WHOLE_PIECE + 5), 3);
    assert_int_equal(llama_whole_piece(2 * LLAMA_WHOLE_PIECE + 5, 2), 5);
    assert_int_equal(llama_whole_piece(2 * LLAMA_WHOLE_PIECE + 5, 3), 0);
    assert_int_equal(llama_whole_piece(UINT64_MAX, UINT64_MAX), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codec__every_layout_comes_back_byte_for_byte),
        cmocka_unit_test(test_codec__streams_and_sequences_are_chosen_when_writing),
        cmocka_unit_test(test_codec__pages_of_a_dense_model_do_not_change_when_it_grows),
        cmocka_unit_test(test_codec__transposed_values_are_turned),
        cmocka_unit_test(test_codec__an_older_boundary_is_written_with_its_own_endpoint),
        cmocka_unit_test(test_codec__a_draft_can_be_left_out),
        cmocka_unit_test(test_codec__last_prompt_and_last_user_message_are_chosen),
        cmocka_unit_test(test_codec__a_checkpoint_that_contradicts_itself_is_not_chosen),
        cmocka_unit_test(test_codec__pieces_do_not_know_stream_and_sequence),
        cmocka_unit_test(test_codec__verification_shows_all_pages_and_endpoints),
        cmocka_unit_test(test_codec__a_file_stored_whole_has_pieces_of_one_size),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
