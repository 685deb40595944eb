/*
 * test_codec_text.c - layouts as text, heads of endpoints, plans that contradict themselves.
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

/* Sliding window, recurrent rows and transposed V of two types. */
static const char *const full_text = "llama-state 4\n"
                                     "prefix 1 1 2\n"
                                     "row 8 0 272 2\n"
                                     "row 1 2 512 2\n"
                                     "window 1 0 1\n"
                                     "row 1 0 512 2\n"
                                     "recurrent 8 4\n"
                                     "row 0 0 6144 2\n"
                                     "row 0 0 65536 2\n";

static llama_layout *decode(const char *text)
{
    llama_layout *layout = NULL;
    kvarve_error err = {0};

    if (llama_layout_decode(text, strlen(text), &layout, &err) != KVARVE_OK) {
        fail_msg("%s", err.text);
    }
    return layout;
}

static void refuse(const char *text, kvarve_status wanted)
{
    llama_layout *layout = NULL;
    uint64_t before = kvarve_allocated_blocks();

    if (llama_layout_decode(text, strlen(text), &layout, NULL) != wanted) {
        fail_msg("%s", text);
    }
    assert_null(layout);
    assert_int_equal(kvarve_allocated_blocks(), before);
}

static void test_layout__text_says_everything(void **state)
{
    llama_layout *layout = decode(full_text);
    char text[512];
    size_t size;

    (void)state;
    assert_int_equal(llama_layout_token_bytes(layout), 2 * 272 + 2 * 512);
    assert_true(llama_layout_has_endpoint(layout));
    assert_int_equal(llama_layout_encode(layout, text, sizeof(text), &size, NULL), KVARVE_OK);
    assert_int_equal(size, strlen(full_text));
    assert_string_equal(text, full_text);
    assert_int_equal(llama_layout_encode(layout, text, size, &size, NULL), KVARVE_NO_SPACE);
    llama_layout_free(layout);
    llama_layout_free(NULL);
}

static void test_layout__every_line_makes_a_difference(void **state)
{
    static const char *const others[] = {
        "llama-state 4\nprefix 1 0 1\nrow 1 0 512 2\n",
        "llama-state 4\nprefix 0 0 1\nrow 1 0 512 2\n",
        "llama-state 4\nprefix 0 0 2\nrow 1 0 512 4\n",
        "llama-state 4\nprefix 0 0 1\nrow 1 0 512 1\nrow 8 0 512 1\n",
        "llama-state 4\nprefix 0 0 1\nrow 1 0 512 1\nrow 1 0 256 1\n",
        "llama-state 4\nprefix 0 1 1\nrow 1 0 512 1\nrow 1 2 512 1\n",
        "llama-state 4\nprefix 0 1 1\nrow 1 0 512 1\nrow 1 4 512 1\n",
        "llama-state 4\nwindow 0 0 1\nrow 1 0 512 2\n",
        "llama-state 4\nrecurrent 1 2\nrow 1 0 512 2\n",
        "llama-state 4\nrecurrent 2 2\nrow 1 0 512 2\n",
        "llama-state 4\n",
    };
    size_t count = sizeof(others) / sizeof(others[0]);

    (void)state;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < count; k++) {
            llama_layout *a = decode(others[i]);
            llama_layout *b = decode(others[k]);

            assert_int_equal(llama_layout_is_equal(a, b), i == k);
            llama_layout_free(a);
            llama_layout_free(b);
        }
    }
}

static void test_layout__another_spelling_is_refused(void **state)
{
    (void)state;
    refuse("", KVARVE_CORRUPT);
    refuse("llama-state 5\n", KVARVE_UNSUPPORTED);
    refuse("llama-state 4", KVARVE_CORRUPT);
    refuse("llama-state 04\n", KVARVE_CORRUPT);
    refuse("llama-state 4\n\n", KVARVE_CORRUPT);
    refuse("llama-state 4\nprefix 0 0 1\nrow 1 0 512 1\nrow 1 0 512 1\n", KVARVE_CORRUPT);
    refuse("llama-state 4\nprefix 0 0 1\nrow 1 0 0512 2\n", KVARVE_CORRUPT);
    refuse("llama-state 4\nprefix 0 0 1\nrow 1 0 512 3\n", KVARVE_CORRUPT);
    refuse("llama-state 4\nprefix 0 0 1\nrow 1 0 512 1\n", KVARVE_CORRUPT);
    refuse("llama-state 4\nprefix 0 0 1\nrow 64 0 512 2\n", KVARVE_CORRUPT);
    refuse("llama-state 4\nprefix 0 0 1\nrow 1 2 512 2\n", KVARVE_CORRUPT);
    refuse("llama-state 4\nprefix 0 1 1\nrow 1 0 512 2\n", KVARVE_CORRUPT);
    refuse("llama-state 4\nprefix 0 0 1\nrow 1 0 1048577 2\n", KVARVE_CORRUPT);
    refuse("llama-state 4\nprefix 0 0 1025\nrow 1 0 2 2050\n", KVARVE_CORRUPT);
    refuse("llama-state 4\nprefix 2 0 1\nrow 1 0 512 2\n", KVARVE_CORRUPT);
    refuse("llama-state 4\nprefix 0 0 1\nrow 1 0 512 99999999999999999999\n", KVARVE_CORRUPT);
    refuse("llama-state 4\nrecurrent 1 3\nrow 1 0 512 3\n", KVARVE_CORRUPT);
    refuse("llama-state 4\nrecurrent 1 0\nprefix 0 0 0\n", KVARVE_CORRUPT);
}

static void test_layout__a_text_cut_off_or_changed_is_refused_or_another(void **state)
{
    char text[512];
    size_t length = strlen(full_text);
    llama_layout *own = decode(full_text);

    (void)state;
    for (size_t size = 0; size < length; size++) {
        llama_layout *layout = NULL;

        if (llama_layout_decode(full_text, size, &layout, NULL) == KVARVE_OK) {
            assert_false(llama_layout_is_equal(own, layout));
        }
        llama_layout_free(layout);
    }
    for (size_t i = 0; i < length * 8; i++) {
        llama_layout *layout = NULL;

        memcpy(text, full_text, length);
        text[i / 8] = (char)(text[i / 8] ^ (1 << (i % 8)));
        if (llama_layout_decode(text, length, &layout, NULL) == KVARVE_OK) {
            assert_false(llama_layout_is_equal(own, layout));
        }
        llama_layout_free(layout);
    }
    llama_layout_free(own);
}

/* ---- Endpoints ---- */

static const uint8_t window_head[LLAMA_ENDPOINT_HEAD] = {
    'K', 'V', 'E', 'P', 1, 0, 0, 0, 0x0d, 0, 0, 0, 5, 0, 0, 0, 99, 0, 0, 0, 32, 0, 0, 0,
    100, 0,   0,   0,   0, 0, 0, 0, 0,    4, 0, 0, 0, 0, 0, 0, 7,  0, 0, 0, 0,  0, 0, 0};

static void test_endpoint__head_is_read(void **state)
{
    llama_endpoint endpoint;

    (void)state;
    assert_int_equal(llama_endpoint_decode(window_head, &endpoint, NULL), KVARVE_OK);
    assert_true(endpoint.is_checkpoint);
    assert_false(endpoint.has_draft);
    assert_true(endpoint.has_window);
    assert_true(endpoint.is_extended);
    assert_int_equal(endpoint.position_min, 5);
    assert_int_equal(endpoint.position_max, 99);
    assert_int_equal(endpoint.window_cells, 32);
    assert_int_equal(endpoint.tokens, 100);
    assert_int_equal(endpoint.window_bytes, 1024);
    assert_int_equal(endpoint.recurrent_size, 7);
    assert_int_equal(llama_endpoint_size(&endpoint), 48 + 32 * 24 + 1024 + 7);
}

static void test_endpoint__a_bad_head_is_refused(void **state)
{
    static const struct {
        int byte;
        uint8_t value;
        kvarve_status wanted;
    } cases[] = {
        {0, 'X', KVARVE_CORRUPT},  {4, 2, KVARVE_UNSUPPORTED}, {8, 0x1d, KVARVE_UNSUPPORTED},
        {8, 0x0c, KVARVE_CORRUPT}, {8, 0x09, KVARVE_CORRUPT},  {24, 0, KVARVE_CORRUPT},
        {28, 1, KVARVE_CORRUPT},   {39, 1, KVARVE_CORRUPT},    {47, 0x80, KVARVE_CORRUPT},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t head[LLAMA_ENDPOINT_HEAD];
        llama_endpoint endpoint;

        memcpy(head, window_head, sizeof(head));
        head[cases[i].byte] = cases[i].value;
        assert_int_equal(llama_endpoint_decode(head, &endpoint, NULL), cases[i].wanted);
    }
}

/* ---- Plans ---- */

static int write_nothing(void *context, const void *bytes, size_t size, uint64_t offset)
{
    (void)context;
    (void)bytes;
    (void)size;
    (void)offset;
    return 0;
}

static const llama_output nowhere = {.write = write_nothing};

/* A hybrid of 64 tokens whose every part fits. */
typedef struct plan_kit {
    llama_layout *layout;
    uint32_t tokens[64];
    llama_plan_checkpoint checkpoint;
    llama_plan plan;
} plan_kit;

static plan_kit *make_plan(void)
{
    plan_kit *kit = kvarve_allocate(sizeof(*kit));

    assert_non_null(kit);
    kit->layout = decode("llama-state 4\n"
                         "prefix 0 0 1\nrow 1 0 4 2\n"
                         "window 0 0 1\nrow 1 0 4 2\n"
                         "recurrent 2 2\nrow 0 0 8 2\n");
    kit->plan.layout[LLAMA_MAIN] = kit->layout;
    kit->plan.tokens = kit->tokens;
    kit->plan.token_count = 64;
    kit->plan.stream_count = 1;
    kit->plan.endpoint[LLAMA_MAIN] = (llama_endpoint){.tokens = 64,
                                                      .has_window = true,
                                                      .window_cells = 3,
                                                      .window_bytes = 16 + 2 * 12 + 3 * 8,
                                                      .recurrent_size = 20 + 2 * 20};
    kit->checkpoint.main = kit->plan.endpoint[LLAMA_MAIN];
    kit->checkpoint.main.is_checkpoint = true;
    kit->checkpoint.main.tokens = 60;
    kit->plan.checkpoints = &kit->checkpoint;
    kit->plan.checkpoint_count = 1;
    return kit;
}

/* Gives the kit back; whether the plan was taken. */
static bool plan_is_taken(plan_kit *kit)
{
    llama_writer *writer = NULL;
    kvarve_status status = llama_writer_open(&kit->plan, &nowhere, &writer, NULL);

    assert_true(status == KVARVE_OK || status == KVARVE_INVALID);
    llama_writer_close(writer);
    llama_layout_free(kit->layout);
    kvarve_release(kit);
    return status == KVARVE_OK;
}

/* Ways to spoil a plan, each alone. */
#define SPOILT_PLANS(SPOIL)                                                                        \
    SPOIL(no_layout, kit->plan.layout[LLAMA_MAIN] = NULL)                                          \
    SPOIL(no_tokens, kit->plan.tokens = NULL)                                                      \
    SPOIL(zero_tokens, kit->plan.token_count = 0)                                                  \
    SPOIL(too_many_tokens, kit->plan.token_count = LLAMA_TOKENS_MAX + 1)                           \
    SPOIL(zero_streams, kit->plan.stream_count = 0)                                                \
    SPOIL(too_many_streams, kit->plan.stream_count = LLAMA_STREAMS_MAX + 1)                        \
    SPOIL(stream_beyond, kit->plan.stream_index = 1)                                               \
    SPOIL(other_boundary, kit->plan.endpoint[LLAMA_MAIN].tokens = 63)                              \
    SPOIL(other_cells, kit->plan.endpoint[LLAMA_MAIN].window_cells = 4)                            \
    SPOIL(other_window, kit->plan.endpoint[LLAMA_MAIN].window_bytes++)                             \
    SPOIL(other_recurrent, kit->plan.endpoint[LLAMA_MAIN].recurrent_size--)                        \
    SPOIL(other_stride, kit->plan.endpoint[LLAMA_MAIN].is_extended = true)                         \
    SPOIL(no_checkpoint, kit->checkpoint.main.is_checkpoint = false)                               \
    SPOIL(checkpoint_beyond, kit->checkpoint.main.tokens = 65)                                     \
    SPOIL(checkpoint_shape, kit->checkpoint.main.recurrent_size--)                                 \
    SPOIL(many_checkpoints, kit->plan.checkpoint_count = LLAMA_CHECKPOINTS_MAX + 1)                \
    SPOIL(token_beyond, kit->tokens[5] = UINT32_C(0x80000000))

#define SPOIL_FUNCTION(name, change)                                                               \
    static void spoil_##name(plan_kit *kit)                                                        \
    {                                                                                              \
        change;                                                                                    \
    }
SPOILT_PLANS(SPOIL_FUNCTION)

static void test_writer__a_plan_that_contradicts_itself_is_refused(void **state)
{
#define SPOIL_ENTRY(name, change) {#name, spoil_##name},
    static const struct {
        const char *name;
        void (*spoil)(plan_kit *kit);
    } entries[] = {SPOILT_PLANS(SPOIL_ENTRY)};

    (void)state;
    assert_true(plan_is_taken(make_plan()));
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        plan_kit *kit = make_plan();

        print_message("%s\n", entries[i].name);
        entries[i].spoil(kit);
        assert_false(plan_is_taken(kit));
    }
}

static void test_writer__what_is_not_in_the_plan_is_refused(void **state)
{
    plan_kit *kit = make_plan();
    uint8_t bytes[4096] = {0};
    llama_page pages[2] = {{.first = 0, .count = 32, .bytes = bytes},
                           {.first = 32, .count = 32, .bytes = bytes}};
    llama_endpoint_name own = {LLAMA_RESPONSE, LLAMA_MAIN};
    llama_endpoint_name other = {1, LLAMA_MAIN};
    llama_writer *writer;

    (void)state;
    assert_int_equal(llama_writer_open(&kit->plan, &nowhere, &writer, NULL), KVARVE_OK);
    assert_int_equal(llama_writer_pages(writer, LLAMA_DRAFT, pages, 1, NULL), KVARVE_INVALID);
    pages[1].first = 31;
    assert_int_equal(llama_writer_pages(writer, LLAMA_MAIN, pages, 2, NULL), KVARVE_INVALID);
    pages[1].first = 33;
    assert_int_equal(llama_writer_pages(writer, LLAMA_MAIN, pages, 2, NULL), KVARVE_INVALID);
    pages[1].first = UINT64_MAX;
    assert_int_equal(llama_writer_pages(writer, LLAMA_MAIN, pages, 2, NULL), KVARVE_INVALID);
    /* Another endpoint's head, a foreign name, and bytes beyond its end. */
    assert_int_equal(llama_writer_endpoint(writer, own, bytes, 48, 0, NULL), KVARVE_INVALID);
    assert_int_equal(llama_writer_endpoint(writer, other, bytes, 8, 48, NULL), KVARVE_INVALID);
    assert_int_equal(llama_writer_endpoint(writer, own, bytes, 8, 4000, NULL), KVARVE_INVALID);
    assert_int_equal(llama_writer_endpoint(writer, own, bytes, 8, UINT64_MAX, NULL),
                     KVARVE_INVALID);
    assert_int_equal(llama_writer_finish(writer, NULL), KVARVE_INVALID);
    llama_writer_close(writer);
    (void)plan_is_taken(kit);
}

static void test_slot__calls_against_their_contract_are_refused(void **state)
{
    const char *name;
    built_slot *built = build(build_example(0, &name));
    llama_input input = kit_input(&built->file);
    uint32_t tokens[2];
    llama_page page = {.first = 133, .count = 1, .bytes = tokens};
    llama_slot *slot;

    (void)state;
    assert_int_equal(llama_slot_open(&input, &slot, NULL), KVARVE_OK);
    assert_int_equal(llama_slot_read_tokens(slot, 132, 2, tokens, NULL), KVARVE_INVALID);
    assert_int_equal(llama_slot_read_tokens(slot, UINT64_MAX, 2, tokens, NULL), KVARVE_INVALID);
    assert_int_equal(llama_slot_read_tokens(slot, 133, 0, tokens, NULL), KVARVE_OK);
    assert_int_equal(llama_slot_read_pages(slot, LLAMA_MAIN, &page, 1, NULL), KVARVE_INVALID);
    assert_int_equal(llama_slot_read_pages(slot, LLAMA_DRAFT, &page, 1, NULL), KVARVE_INVALID);
    assert_int_equal(llama_slot_read_endpoint(slot, (llama_endpoint_name){LLAMA_RESPONSE, 0}, 0, 1,
                                              tokens, NULL),
                     KVARVE_INVALID);
    assert_int_equal(llama_slot_verify(slot, 0, NULL, NULL), KVARVE_INVALID);
    assert_int_equal(llama_slot_verify(slot, 100, NULL, NULL), KVARVE_INVALID);
    llama_slot_close(slot);
    llama_slot_close(NULL);
    build_free(built);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout__text_says_everything),
        cmocka_unit_test(test_layout__every_line_makes_a_difference),
        cmocka_unit_test(test_layout__another_spelling_is_refused),
        cmocka_unit_test(test_layout__a_text_cut_off_or_changed_is_refused_or_another),
        cmocka_unit_test(test_endpoint__head_is_read),
        cmocka_unit_test(test_endpoint__a_bad_head_is_refused),
        cmocka_unit_test(test_writer__a_plan_that_contradicts_itself_is_refused),
        cmocka_unit_test(test_writer__what_is_not_in_the_plan_is_refused),
        cmocka_unit_test(test_slot__calls_against_their_contract_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
