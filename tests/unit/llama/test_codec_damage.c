/*
 * test_codec_damage.c - bad slot files: refused with a clear status, stored whole, or right.
 *
 * Fault model: a file cut off at any length; each of its numbers replaced by extreme ones; each of
 * its bytes changed; each read, write or allocation failing. Whatever is accepted after that was
 * verified byte for byte, so nothing wrong can come out of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "unit/llama/codec_kit.h"
#include "unit/llama/slot_builder.h"

static kvarve_status open_file(kit_bytes *file, llama_slot **out, kvarve_error *err)
{
    llama_input input = kit_input(file);

    return llama_slot_open(&input, out, err);
}

/* Open, and verify what can be; everything is given back. True: it was accepted as canonical. */
static bool is_accepted(kit_bytes *file)
{
    uint64_t before = kvarve_allocated_blocks();
    llama_slot *slot = NULL;
    kvarve_error err = {0};
    kvarve_status status = open_file(file, &slot, &err);
    bool accepted = false;

    if (status == KVARVE_OK) {
        status = llama_slot_verify(slot, 64, NULL, &err);
        accepted = status == KVARVE_OK;
        llama_slot_close(slot);
    } else {
        assert_true(status == KVARVE_CORRUPT || status == KVARVE_UNSUPPORTED ||
                    status == KVARVE_INVALID);
    }
    if (!accepted) {
        assert_true(status == KVARVE_CORRUPT || status == KVARVE_UNSUPPORTED ||
                    status == KVARVE_INVALID);
        assert_int_equal(err.status, status);
        assert_true(strlen(err.text) > 0);
    }
    assert_int_equal(kvarve_allocated_blocks(), before);
    return accepted;
}

static void assert_refused(kit_bytes *file, kvarve_status wanted, const char *text)
{
    llama_slot *slot = NULL;
    kvarve_error err = {0};
    kvarve_status status = open_file(file, &slot, &err);

    if (status != wanted || strstr(err.text, text) == NULL) {
        fail_msg("status %d, \"%s\"; wanted %d, \"%s\"", status, err.text, wanted, text);
    }
    assert_null(slot);
}

static bool is_end(const built_slot *built, uint64_t size)
{
    for (uint32_t i = 0; i < built->end_count; i++) {
        if (built->ends[i] == size) {
            return true;
        }
    }
    return false;
}

/* What a shorter file is, where it is one: another layout, or without its appendices. */
static void assert_is_another(kit_bytes *whole, kit_bytes *cut)
{
    llama_slot *a = NULL;
    llama_slot *b = NULL;

    assert_int_equal(open_file(whole, &a, NULL), KVARVE_OK);
    assert_int_equal(open_file(cut, &b, NULL), KVARVE_OK);
    assert_true(
        llama_slot_checkpoints(a) != llama_slot_checkpoints(b) ||
        llama_slot_layout(b, LLAMA_DRAFT) == NULL ||
        !llama_layout_is_equal(llama_slot_layout(a, LLAMA_MAIN), llama_slot_layout(b, LLAMA_MAIN)));
    llama_slot_close(a);
    llama_slot_close(b);
}

/* Every length of one file; returns how many of them are files themselves. */
static uint32_t cut_everywhere(built_slot *built)
{
    uint32_t ends = 0;

    for (uint64_t size = 0; size < built->file.size; size++) {
        /* A copy of its own size, so that the sanitizer sees a byte too many. */
        kit_bytes cut = {0};

        kit_append(&cut, built->file.bytes, (size_t)size);
        if (is_accepted(&cut)) {
            assert_true(is_end(built, size));
            assert_is_another(&built->file, &cut);
            ends++;
        }
        kit_free(&cut);
    }
    return ends;
}

static void test_codec__a_file_cut_off_anywhere_is_refused(void **state)
{
    const build_slot *example;
    const char *name;
    uint32_t ends = 0;

    (void)state;
    for (uint32_t i = 0; (example = build_example(i, &name)) != NULL; i++) {
        built_slot *built = build(example);

        print_message("%s: %zu bytes\n", name, built->file.size);
        ends += cut_everywhere(built);
        build_free(built);
    }
    assert_true(ends > 0);
}

static void test_codec__a_file_with_more_than_its_parts_is_refused(void **state)
{
    const build_slot *example;
    const char *name;

    (void)state;
    for (uint32_t i = 0; (example = build_example(i, &name)) != NULL; i++) {
        built_slot *built = build(example);

        print_message("%s\n", name);
        for (int more = 0; more < 40; more++) {
            kit_append(&built->file, &(uint8_t){(uint8_t)(more * 7)}, 1);
            assert_refused(&built->file, KVARVE_CORRUPT, "slot file");
        }
        build_free(built);
    }
}

static void put_number(kit_bytes *file, const build_mark *mark, uint64_t value)
{
    for (uint32_t i = 0; i < mark->size; i++) {
        file->bytes[mark->offset + i] = (uint8_t)(value >> (8 * i));
    }
}

static uint64_t get_number(const kit_bytes *file, const build_mark *mark)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i < mark->size; i++) {
        value |= (uint64_t)file->bytes[mark->offset + i] << (8 * i);
    }
    return value;
}

static const uint64_t extremes[] = {
    0,
    1,
    2,
    3,
    63,
    64,
    0x7fffffff,
    0x80000000,
    0xfffffffe,
    UINT32_MAX,
    0x1ffffffff,
    UINT64_C(1) << 44,
    UINT64_MAX / 12,
    INT64_MAX,
    (uint64_t)INT64_MAX + 1,
    UINT64_MAX - 7,
    UINT64_MAX,
};
#define EXTREMES (sizeof(extremes) / sizeof(extremes[0]))

/* One number of a file is replaced by each extreme, by one more and by one less. */
static void try_extremes(built_slot *built, const build_mark *mark)
{
    uint64_t own = get_number(&built->file, mark);

    for (size_t i = 0; i < EXTREMES; i++) {
        put_number(&built->file, mark, extremes[i]);
        (void)is_accepted(&built->file);
    }
    put_number(&built->file, mark, own + 1);
    (void)is_accepted(&built->file);
    put_number(&built->file, mark, own - 1);
    (void)is_accepted(&built->file);
    put_number(&built->file, mark, own);
}

static void test_codec__no_number_of_a_file_is_trusted(void **state)
{
    const build_slot *example;
    const char *name;
    uint32_t tried = 0;

    (void)state;
    for (uint32_t i = 0; (example = build_example(i, &name)) != NULL; i++) {
        built_slot *built = build(example);

        for (uint32_t k = 0; k < built->mark_count; k++) {
            try_extremes(built, &built->marks[k]);
        }
        tried += built->mark_count;
        assert_true(is_accepted(&built->file));
        build_free(built);
    }
    assert_true(tried > 300);
}

static void test_codec__any_changed_byte_is_refused_or_kept(void **state)
{
    const build_slot *example;
    const char *name;

    (void)state;
    for (uint32_t i = 0; (example = build_example(i, &name)) != NULL; i++) {
        built_slot *built = build(example);
        size_t stride = built->file.size / 400 + 1;

        for (size_t at = i % stride; at < built->file.size; at += stride) {
            built->file.bytes[at] ^= (uint8_t)(1U << (at % 8));
            (void)is_accepted(&built->file);
            built->file.bytes[at] ^= (uint8_t)(1U << (at % 8));
        }
        build_free(built);
    }
}

/* ---- Named refusals ---- */

static const build_slot hybrid = {
    .tokens = 70,
    .main = {.full = {.layers = 1,
                      .is_extended = true,
                      .key_type = 1,
                      .key_bytes = 4,
                      .value_type = 1,
                      .value_bytes = 4},
             .recurrent = {.layers = 1, .layers_total = 2, .r_bytes = 8, .s_bytes = 8}},
    .has_draft = true,
    .draft.full = {.layers = 1,
                   .is_extended = true,
                   .key_type = 1,
                   .key_bytes = 4,
                   .value_type = 1,
                   .value_bytes = 4},
    .checkpoint_count = 1,
    .checkpoint_at = {66}};

/* The offset of the four bytes `word`, which occur once from `from` on. */
static uint64_t find_word(const kit_bytes *file, const char *word, uint64_t from)
{
    for (uint64_t i = from; i + 4 <= file->size; i++) {
        if (memcmp(file->bytes + i, word, 4) == 0) {
            return i;
        }
    }
    fail_msg("no %s", word);
    return 0;
}

/* The hybrid file with one u32 replaced is refused. */
static void refuse(uint64_t offset, uint32_t value, kvarve_status wanted, const char *text)
{
    built_slot *built = build(&hybrid);
    build_mark mark = {offset, 4};

    put_number(&built->file, &mark, value);
    assert_refused(&built->file, wanted, text);
    build_free(built);
}

static void test_codec__other_versions_are_refused_by_name(void **state)
{
    built_slot *built = build(&hybrid);
    uint64_t checkpoints = find_word(&built->file, "SCKP", 0);
    uint64_t draft = find_word(&built->file, "SDFT", 0);

    (void)state;
    build_free(built);
    refuse(0, 0x67676d6c, KVARVE_UNSUPPORTED, "not a slot file");
    refuse(4, 3, KVARVE_UNSUPPORTED, "version 3");
    refuse(4, 5, KVARVE_UNSUPPORTED, "version 5");
    refuse(12, 17, KVARVE_UNSUPPORTED, "17 1");
    refuse(16, 2, KVARVE_UNSUPPORTED, "-1 2");
    refuse(checkpoints + 4, 2, KVARVE_UNSUPPORTED, "SCKP of version 2");
    refuse(draft + 4, 9, KVARVE_UNSUPPORTED, "SDFT of version 9");
    refuse(checkpoints + 8, 5000, KVARVE_UNSUPPORTED, "5000 checkpoints");
}

static void test_codec__lying_counts_are_refused(void **state)
{
    (void)state;
    refuse(8, UINT32_MAX, KVARVE_CORRUPT, "payload count");
    refuse(8, 3, KVARVE_CORRUPT, "payload count");
    refuse(8, 75, KVARVE_CORRUPT, "payload goes on");
    refuse(20, 71, KVARVE_CORRUPT, "more tokens");
    refuse(20, UINT32_MAX, KVARVE_CORRUPT, "more tokens");
    /* The sequence of the last of the cells, which begin after two words of the state. */
    refuse(24 + 70 * 4 + 4 + 8 + 69 * 24 + 20, 1, KVARVE_CORRUPT, "more than one sequence");
}

static void test_codec__more_layers_than_any_model_has_are_refused(void **state)
{
    const build_slot most = {
        .tokens = 1,
        .main.full = {.layers = LLAMA_LAYERS_MAX, .key_type = 1, .key_bytes = 2, .value_bytes = 2}};
    build_slot more = most;
    built_slot *built = build(&most);

    (void)state;
    assert_true(is_accepted(&built->file));
    build_free(built);
    more.main.full.layers++;
    built = build(&more);
    assert_refused(&built->file, KVARVE_CORRUPT, "head of an attention part");
    build_free(built);
}

static void test_codec__media_are_refused(void **state)
{
    (void)state;
    refuse(24 + 70 * 4, 1, KVARVE_UNSUPPORTED, "media (1 chunks)");
    refuse(24 + 33 * 4, UINT32_MAX, KVARVE_UNSUPPORTED, "token 33 is negative");
}

static void test_codec__an_empty_slot_is_refused(void **state)
{
    kit_bytes llama = kit_load("tests/llama/samples/llama-empty.slot");
    kit_bytes qwen = kit_load("tests/llama/samples/qwen35-empty.slot");
    kit_bytes nothing = {0};

    (void)state;
    assert_refused(&llama, KVARVE_INVALID, "without tokens");
    assert_refused(&qwen, KVARVE_INVALID, "without tokens");
    assert_refused(&nothing, KVARVE_CORRUPT, "only 0 are left");
    kit_free(&llama);
    kit_free(&qwen);
}

/* ---- Stored whole ---- */

static void assert_whole(kit_bytes *file, const char *reason)
{
    llama_slot *slot = NULL;
    kvarve_error err = {0};
    llama_endpoint endpoint;
    uint32_t token;
    uint8_t byte;

    assert_int_equal(open_file(file, &slot, &err), KVARVE_OK);
    assert_non_null(llama_slot_whole_reason(slot));
    if (strstr(llama_slot_whole_reason(slot), reason) == NULL) {
        fail_msg("\"%s\", wanted \"%s\"", llama_slot_whole_reason(slot), reason);
    }
    /* The tokens are there, nothing else is. */
    assert_int_equal(llama_slot_read_tokens(slot, 0, 1, &token, NULL), KVARVE_OK);
    assert_null(llama_slot_layout(slot, LLAMA_MAIN));
    assert_int_equal(llama_slot_checkpoints(slot), 0);
    assert_false(llama_slot_endpoint(slot, LLAMA_RESPONSE, LLAMA_MAIN, &endpoint));
    assert_int_equal(
        llama_slot_read_pages(slot, LLAMA_MAIN, &(llama_page){.count = 1, .bytes = &byte}, 1, NULL),
        KVARVE_INVALID);
    assert_int_equal(llama_slot_verify(slot, 64, NULL, &err), KVARVE_UNSUPPORTED);
    assert_non_null(strstr(err.text, reason));
    llama_slot_close(slot);
}

static void test_codec__what_pages_cannot_say_is_stored_whole(void **state)
{
    kit_bytes fragments = kit_load("tests/llama/samples/llama-fragments.slot");
    build_slot example = hybrid;
    built_slot *built;

    (void)state;
    assert_whole(&fragments, "order of their positions");
    kit_free(&fragments);

    example.is_out_of_order = true;
    built = build(&example);
    assert_whole(&built->file, "order of their positions");
    build_free(built);

    example = hybrid;
    example.is_media_like = true;
    built = build(&example);
    assert_whole(&built->file, "M-RoPE");
    build_free(built);

    example = hybrid;
    example.third_bytes = 5;
    built = build(&example);
    assert_whole(&built->file, "speculative");
    build_free(built);

    /* The token word of a cell is not the token of its position. */
    built = build(&hybrid);
    built->file.bytes[24 + 70 * 4 + 4 + 8 + 69 * 24 + 16] ^= 1;
    assert_whole(&built->file, "M-RoPE");
    build_free(built);

    example = hybrid;
    example.more_draft_streams = 1;
    built = build(&example);
    assert_whole(&built->file, "different streams");
    build_free(built);

    example = hybrid;
    example.missing_cells = 1;
    built = build(&example);
    assert_whole(&built->file, "one cell for each token");
    build_free(built);

    built = build(&hybrid);
    put_number(&built->file, &(build_mark){find_word(&built->file, "SCKP", 0) + 12, 8}, 71);
    assert_whole(&built->file, "outside the tokens");
    build_free(built);

    built = build(&hybrid);
    put_number(&built->file, &(build_mark){find_word(&built->file, "SDFT", 0) + 20, 4}, 1);
    assert_whole(&built->file, "different sequences");
    build_free(built);
}

static const build_slot window = {
    .tokens = 70,
    .main = {.full = {.layers = 1, .key_type = 1, .key_bytes = 4, .value_bytes = 4},
             .window = {.layers = 1, .key_type = 1, .key_bytes = 4, .value_bytes = 4},
             .window_tokens = 2},
    .checkpoint_count = 1,
    .checkpoint_at = {66}};

/* A file is stored whole when the byte `back` before its end is another. */
static void spoil_from_end(const build_slot *slot, size_t back, const char *reason)
{
    built_slot *built = build(slot);

    built->file.bytes[built->file.size - back] ^= 2;
    assert_whole(&built->file, reason);
    build_free(built);
}

static void test_codec__endpoints_that_do_not_fit_are_stored_whole(void **state)
{
    build_slot alone = hybrid;

    (void)state;
    alone.has_draft = false;
    alone.checkpoint_count = 0;
    /* Position of the recurrent part: 16 bytes before its two rows of 20. */
    spoil_from_end(&alone, 2 * 20 + 16, "not at the last token");
    alone.checkpoint_count = 1;
    /* Type of the checkpoint's last row, which two lengths follow; then of a window's V row. */
    spoil_from_end(&alone, 16 + 20, "another layout");
    spoil_from_end(&window, 16 + 12 + 2 * 4, "another layout");
}

static void test_codec__rows_of_no_bytes_are_refused(void **state)
{
    build_slot example = {.tokens = 5, .main.full = {.layers = 1, .value_bytes = 4}};
    built_slot *built = build(&example);

    (void)state;
    assert_refused(&built->file, KVARVE_CORRUPT, "slot file");
    build_free(built);
}

/* ---- The world fails ---- */

typedef struct failing {
    llama_input input;
    uint64_t calls;
    uint64_t fail_at;
} failing_input;

static int read_failing(void *context, void *bytes, size_t size, uint64_t offset)
{
    failing_input *failing = context;

    if (failing->calls++ == failing->fail_at) {
        return -EIO;
    }
    return failing->input.read(failing->input.context, bytes, size, offset);
}

/* Open and verify; every status ends in a clean state. */
static kvarve_status open_and_verify(const llama_input *input)
{
    uint64_t before = kvarve_allocated_blocks();
    llama_slot *slot = NULL;
    kvarve_status status = llama_slot_open(input, &slot, NULL);

    if (status == KVARVE_OK) {
        status = llama_slot_verify(slot, 64, NULL, NULL);
        llama_slot_close(slot);
    }
    assert_int_equal(kvarve_allocated_blocks(), before);
    return status;
}

static void test_codec__a_read_that_fails_ends_it(void **state)
{
    built_slot *built = build(&hybrid);
    failing_input failing = {.input = kit_input(&built->file)};
    llama_input input = {.context = &failing, .read = read_failing, .size = failing.input.size};
    uint64_t step = 0;

    (void)state;
    for (;; step++) {
        failing.calls = 0;
        failing.fail_at = step;
        if (open_and_verify(&input) == KVARVE_OK) {
            break;
        }
        failing.calls = 0;
        assert_int_equal(open_and_verify(&input), KVARVE_IO);
    }
    assert_int_equal(failing.calls, step);
    assert_true(step > 50);
    build_free(built);
}

/* The read with number `fail_at` gives one wrong byte. */
static int read_wrong(void *context, void *bytes, size_t size, uint64_t offset)
{
    failing_input *failing = context;
    int result = failing->input.read(failing->input.context, bytes, size, offset);

    if (failing->calls++ == failing->fail_at) {
        ((uint8_t *)bytes)[size / 2] ^= 1;
    }
    return result;
}

static void test_codec__every_byte_is_compared_once_more(void **state)
{
    built_slot *built = build(&hybrid);
    failing_input failing = {.input = kit_input(&built->file)};
    llama_input input = {.context = &failing, .read = read_wrong, .size = failing.input.size};
    llama_slot *slot = NULL;
    kvarve_error err = {0};
    uint64_t step = 0;

    (void)state;
    failing.fail_at = UINT64_MAX;
    assert_int_equal(llama_slot_open(&input, &slot, NULL), KVARVE_OK);
    for (;; step++) {
        failing.calls = 0;
        failing.fail_at = step;
        if (llama_slot_verify(slot, 64, NULL, &err) == KVARVE_OK) {
            break;
        }
        assert_int_equal(err.status, KVARVE_UNSUPPORTED);
        assert_non_null(strstr(err.text, "not the same"));
    }
    assert_int_equal(failing.calls, step);
    assert_true(step > 20);
    llama_slot_close(slot);
    build_free(built);
}

static int fail_allocation(void *context, uint64_t number)
{
    return number != *(const uint64_t *)context;
}

static void test_codec__an_allocation_that_fails_ends_it(void **state)
{
    built_slot *built = build(&hybrid);
    llama_input input = kit_input(&built->file);
    kvarve_status status = KVARVE_NO_MEMORY;
    uint64_t step = 0;

    (void)state;
    for (; status == KVARVE_NO_MEMORY; step++) {
        kvarve_allocate_set_hook(fail_allocation, &step);
        status = open_and_verify(&input);
        kvarve_allocate_set_hook(NULL, NULL);
    }
    assert_int_equal(status, KVARVE_OK);
    assert_true(step > 10);
    build_free(built);
}

typedef struct full_disk {
    uint64_t calls;
    uint64_t fail_at;
} full_disk;

static int write_failing(void *context, const void *bytes, size_t size, uint64_t offset)
{
    full_disk *disk = context;

    (void)bytes;
    (void)size;
    (void)offset;
    return disk->calls++ == disk->fail_at ? -ENOSPC : 0;
}

static kvarve_status write_file(const kit_pieces *pieces, const llama_output *output)
{
    llama_writer *writer = NULL;
    llama_page page = {.count = 64, .bytes = pieces->rows[LLAMA_MAIN]};
    llama_plan plan = {.layout = {pieces->layout[LLAMA_MAIN], NULL},
                       .tokens = pieces->tokens,
                       .token_count = 64,
                       .stream_count = 1};
    kvarve_status status = llama_writer_open(&plan, output, &writer, NULL);

    if (status == KVARVE_OK) {
        status = llama_writer_pages(writer, LLAMA_MAIN, &page, 1, NULL);
    }
    if (status == KVARVE_OK) {
        status = llama_writer_finish(writer, NULL);
    }
    llama_writer_close(writer);
    return status;
}

static void test_codec__a_write_that_fails_ends_it(void **state)
{
    const build_slot dense = {
        .tokens = 64,
        .main.full = {
            .layers = 2, .key_type = 1, .key_bytes = 4, .value_type = 1, .value_bytes = 4}};
    built_slot *built = build(&dense);
    llama_slot *slot = NULL;
    full_disk disk = {0};
    llama_output output = {.context = &disk, .write = write_failing};
    kvarve_status status = KVARVE_NO_SPACE;
    kit_pieces pieces;
    uint64_t step = 0;

    (void)state;
    assert_int_equal(open_file(&built->file, &slot, NULL), KVARVE_OK);
    pieces = kit_cut(slot, 64, 1, 100);
    for (; status == KVARVE_NO_SPACE; step++) {
        disk = (full_disk){.fail_at = step};
        status = write_file(&pieces, &output);
    }
    assert_int_equal(status, KVARVE_OK);
    assert_true(step > 7);
    kit_pieces_free(&pieces);
    llama_slot_close(slot);
    build_free(built);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codec__a_file_cut_off_anywhere_is_refused),
        cmocka_unit_test(test_codec__a_file_with_more_than_its_parts_is_refused),
        cmocka_unit_test(test_codec__no_number_of_a_file_is_trusted),
        cmocka_unit_test(test_codec__any_changed_byte_is_refused_or_kept),
        cmocka_unit_test(test_codec__other_versions_are_refused_by_name),
        cmocka_unit_test(test_codec__lying_counts_are_refused),
        cmocka_unit_test(test_codec__more_layers_than_any_model_has_are_refused),
        cmocka_unit_test(test_codec__media_are_refused),
        cmocka_unit_test(test_codec__an_empty_slot_is_refused),
        cmocka_unit_test(test_codec__what_pages_cannot_say_is_stored_whole),
        cmocka_unit_test(test_codec__endpoints_that_do_not_fit_are_stored_whole),
        cmocka_unit_test(test_codec__rows_of_no_bytes_are_refused),
        cmocka_unit_test(test_codec__a_read_that_fails_ends_it),
        cmocka_unit_test(test_codec__every_byte_is_compared_once_more),
        cmocka_unit_test(test_codec__an_allocation_that_fails_ends_it),
        cmocka_unit_test(test_codec__a_write_that_fails_ends_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
