/*
 * test_space.c - what a namespace may consist of, and which spaces of the catalog it becomes.
 *
 * The store is its catalog only: nothing here reaches the disk or the arena.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>
#include <string.h>

#include "base/alloc.h"
#include "store/store_private.h"

static kvarve_group prefix_group(uint32_t span)
{
    return (kvarve_group){
        .page_class = KVARVE_CLASS_PREFIX, .span_tokens = span, .page_bytes = 64 * span};
}

static kvarve_group window_group(void)
{
    return (kvarve_group){.page_class = KVARVE_CLASS_WINDOW,
                          .span_tokens = 16,
                          .window_tokens = 100,
                          .page_bytes = 4096};
}

static kvarve_group state_group(uint32_t number)
{
    return (kvarve_group){.page_class = number, .page_bytes = 100};
}

static kvarve_group optional(kvarve_group group)
{
    group.flags |= KVARVE_GROUP_OPTIONAL;
    return group;
}

static kvarve_namespace_options options_of(const kvarve_group *groups, uint32_t count)
{
    kvarve_namespace_options options = KVARVE_NAMESPACE_OPTIONS_INIT;

    options.identity_json = "{\"model\":\"m\"}";
    options.groups = groups;
    options.group_count = count;
    return options;
}

static int set_up(void **state)
{
    store_machine *made = kvarve_allocate(sizeof *made);

    assert_non_null(made);
    assert_int_equal(catalog_init(made, NULL), KVARVE_OK);
    *state = made;
    return 0;
}

static int tear_down(void **state)
{
    store_machine *made = *state;

    catalog_deinit(made);
    kvarve_release(made);
    assert_int_equal(kvarve_allocated_blocks(), 0);
    return 0;
}

static store_namespace *opened(store_machine *store, const kvarve_namespace_options *options)
{
    store_namespace *name = NULL;
    kvarve_error err = {0};

    if (store_namespace_open(store, options, &name, &err) != KVARVE_OK) {
        fail_msg("%s", err.text);
    }
    return name;
}

/* Opening is refused, the message has both texts, and no space was made. */
static void assert_refused(store_machine *store, const kvarve_namespace_options *options,
                           const char *where, const char *what)
{
    store_namespace *name = NULL;
    kvarve_error err = {0};

    assert_int_equal(store_namespace_open(store, options, &name, &err), KVARVE_INVALID);
    assert_null(name);
    assert_int_equal(store->spaces.count, 0);
    if (strstr(err.text, where) == NULL || strstr(err.text, what) == NULL) {
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", err.text, where, what);
    }
}

/* --- validation --- */

static void test_namespace__each_bad_field_of_a_group_is_named(void **state)
{
    const kvarve_group prefix = prefix_group(16);
    const kvarve_group endpoint = state_group(KVARVE_CLASS_ENDPOINT);
    kvarve_group bad[18];
    static const char *const fields[18] = {
        "page_class is 4, not in 0 .. 3",
        "flags is 0x20",
        "span_tokens is 0, not in 1 .. 65536",
        "span_tokens is 65537",
        "window_tokens is 1, not in 0 .. 0",
        "window_tokens is 0, not in 1 ..",
        "page_bytes is 0, not in 1 .. 1073741824",
        "page_bytes is 1073741825",
        "page_bytes is 100, not a multiple of its 16",
        "reserved is 1",
        "reserved is 1",
        "reserved is 1",
        "span_tokens is 1, not in 0 .. 0",
        "window_tokens is 1, not in 0 .. 0",
        "flags has ROWS",
        "flags has DRAFT_ROWS",
        "flags has VARIABLE",
        "span_tokens is 1, not in 0 .. 0",
    };

    for (size_t i = 0; i < 18; i++) {
        bad[i] = i < 12 ? prefix : endpoint;
    }
    bad[0].page_class = 4;
    bad[1].flags = 32;
    bad[2].span_tokens = 0;
    bad[3].span_tokens = 65537;
    bad[4].window_tokens = 1;
    bad[5] = window_group();
    bad[5].window_tokens = 0;
    bad[6].page_bytes = 0;
    bad[7].page_bytes = KVARVE_PAGE_BYTES_MAX + 1;
    bad[8].page_bytes = 100;
    bad[8].flags = KVARVE_GROUP_ROWS;
    bad[9].reserved[0] = 1;
    bad[10].reserved[1] = 1;
    bad[11].reserved[2] = 1;
    bad[12].span_tokens = 1;
    bad[13].window_tokens = 1;
    bad[14].flags = KVARVE_GROUP_ROWS;
    bad[15].flags = KVARVE_GROUP_DRAFT_ROWS;
    bad[16] = window_group();
    bad[16].flags = KVARVE_GROUP_VARIABLE;
    bad[17] = state_group(KVARVE_CLASS_AUXILIARY);
    bad[17].span_tokens = 1;
    for (size_t i = 0; i < 18; i++) {
        const kvarve_group groups[] = {prefix, bad[i]};
        const kvarve_namespace_options options = options_of(groups, 2);

        assert_refused(*state, &options, "group 1: ", fields[i]);
    }
}

static void test_namespace__bad_counts_and_parts_are_named(void **state)
{
    const kvarve_group groups[] = {prefix_group(16)};
    const kvarve_namespace_options good = options_of(groups, 1);
    kvarve_namespace_options options = good;

    options.struct_size--;
    assert_refused(*state, &options, "struct_size", "not");
    options = good;
    options.flags = 2;
    assert_refused(*state, &options, "flags is 0x2", "0x1");
    options = good;
    options.rank_count = 0;
    assert_refused(*state, &options, "rank_count is 0", "1 .. 1024");
    options.rank_count = 1025;
    assert_refused(*state, &options, "rank_count is 1025", "1 .. 1024");
    options = good;
    options.group_count = 0;
    assert_refused(*state, &options, "0 groups", "1 .. 64");
    options.group_count = 65;
    assert_refused(*state, &options, "65 groups", "1 .. 64");
    options = good;
    options.groups = NULL;
    assert_refused(*state, &options, "1 groups", "NULL");
    options = good;
    options.identity_json = NULL;
    assert_refused(*state, &options, "identity_json", "no");
    options = good;
    options.numerics_json = "[]";
    assert_refused(*state, &options, "numerics_json", "object");
}

static void test_namespace__groups_must_fit_together(void **state)
{
    const kvarve_group auxiliary = state_group(KVARVE_CLASS_AUXILIARY);
    const kvarve_group two[] = {auxiliary, auxiliary};
    const kvarve_group drafts[] = {optional(auxiliary), optional(prefix_group(16))};
    const kvarve_group mixed[] = {prefix_group(16), optional(prefix_group(16))};
    kvarve_namespace_options options = options_of(two, 2);

    assert_refused(*state, &options, "group 1", "auxiliary");
    options = options_of(drafts, 2);
    options.draft_identity_json = "{}";
    assert_refused(*state, &options, "all 2 groups", "OPTIONAL");
    options = options_of(mixed, 2);
    assert_refused(*state, &options, "draft_identity_json is NULL", "1 groups");
    options = options_of(mixed, 1);
    options.draft_identity_json = "{}";
    assert_refused(*state, &options, "draft_identity_json is given", "no group");
}

static void test_namespace__limits_are_within(void **state)
{
    kvarve_group groups[KVARVE_GROUPS_MAX];
    kvarve_namespace_options options = options_of(groups, KVARVE_GROUPS_MAX);
    store_namespace *name;

    /* The longest text that a layout can have. */
    for (size_t i = 0; i < KVARVE_GROUPS_MAX; i++) {
        groups[i] = (kvarve_group){.page_class = KVARVE_CLASS_WINDOW,
                                   .flags = KVARVE_GROUP_REPLICATED | KVARVE_GROUP_ROWS |
                                            KVARVE_GROUP_DRAFT_ROWS,
                                   .span_tokens = KVARVE_SPAN_MAX,
                                   .window_tokens = UINT32_MAX,
                                   .page_bytes = KVARVE_PAGE_BYTES_MAX};
    }
    groups[63] = state_group(KVARVE_CLASS_AUXILIARY);
    groups[63].flags = KVARVE_GROUP_VARIABLE | KVARVE_GROUP_REPLICATED;
    options.rank_count = KVARVE_RANKS_MAX;
    name = opened(*state, &options);
    assert_int_equal(store_namespace_ranks(name), KVARVE_RANKS_MAX);
    assert_int_equal(store_namespace_groups(name), KVARVE_GROUPS_MAX);
    store_namespace_release(name);
}

/* --- spaces --- */

/* The text is part of every name: a change of it would lose every store. */
static void test_namespace__document_is_that_of_the_format(void **state)
{
    const kvarve_group groups[] = {prefix_group(16), optional(window_group()),
                                   state_group(KVARVE_CLASS_ENDPOINT)};
    kvarve_namespace_options options = options_of(groups, 3);
    store_namespace *name;

    options.rank_count = 2;
    options.draft_identity_json = "{\"drafter\":1}";
    options.numerics_json = "{\"cpu\":\"x\"}";
    options.flags = KVARVE_NAMESPACE_EXACT;
    name = opened(*state, &options);
    assert_string_equal(
        name->spaces[0]->document,
        "{\"kvarve\":{\"exact\":1,\"groups\":["
        "{\"bytes\":1024,\"class\":\"prefix\",\"flags\":0,\"span\":16,\"window\":0},"
        "{\"bytes\":100,\"class\":\"endpoint\",\"flags\":0,\"span\":0,\"window\":0}],"
        "\"ranks\":2,\"version\":1},\"model\":\"m\",\"numerics\":{\"cpu\":\"x\"}}");
    assert_string_equal(
        name->spaces[1]->document,
        "{\"draft\":{\"drafter\":1},\"kvarve\":{\"exact\":1,\"groups\":["
        "{\"bytes\":4096,\"class\":\"window\",\"flags\":0,\"span\":16,\"window\":100}],"
        "\"ranks\":2,\"version\":1},\"model\":\"m\",\"numerics\":{\"cpu\":\"x\"}}");
    assert_true(store_namespace_is_exact(name));
    assert_true(name->spaces[1]->is_exact);
    assert_string_equal(store_namespace_text(name), name->spaces[0]->name.text);
    store_namespace_release(name);
}

static void test_namespace__groups_are_numbered_by_space(void **state)
{
    const kvarve_group groups[] = {optional(prefix_group(8)), prefix_group(16),
                                   optional(state_group(KVARVE_CLASS_AUXILIARY)),
                                   state_group(KVARVE_CLASS_AUXILIARY)};
    static const uint8_t space_of[] = {1, 0, 1, 0};
    static const uint8_t local_of[] = {0, 0, 1, 1};
    kvarve_namespace_options options = options_of(groups, 4);
    store_namespace *name;

    options.draft_identity_json = "{}";
    name = opened(*state, &options);
    assert_memory_equal(name->space_of, space_of, 4);
    assert_memory_equal(name->local_of, local_of, 4);
    for (uint32_t i = 0; i < 4; i++) {
        const store_space *space = name->spaces[space_of[i]];
        kvarve_group wanted = groups[i];

        assert_int_equal(name->public_of[space_of[i]][local_of[i]], i);
        assert_memory_equal(store_namespace_group(name, i), &groups[i], sizeof groups[i]);
        wanted.flags = 0;
        assert_memory_equal(&space->groups[local_of[i]], &wanted, sizeof wanted);
        assert_int_equal(space->group_count, 2);
    }
    store_namespace_release(name);
}

static void test_namespace__another_drafter_loses_the_companion_alone(void **state)
{
    const kvarve_group groups[] = {prefix_group(16), optional(prefix_group(16))};
    kvarve_namespace_options options = options_of(groups, 2);
    store_namespace *names[3];

    options.draft_identity_json = "{\"drafter\":1}";
    names[0] = opened(*state, &options);
    options.draft_identity_json = "{\"drafter\":2}";
    names[1] = opened(*state, &options);
    options.draft_identity_json = NULL;
    options.group_count = 1;
    names[2] = opened(*state, &options);
    assert_ptr_equal(names[0]->spaces[0], names[1]->spaces[0]);
    assert_ptr_equal(names[0]->spaces[0], names[2]->spaces[0]);
    assert_ptr_not_equal(names[0]->spaces[1], names[1]->spaces[1]);
    assert_null(names[2]->spaces[1]);
    assert_int_equal(names[0]->spaces[0]->handles, 3);
    for (size_t i = 0; i < 3; i++) {
        store_namespace_release(names[i]);
    }
}

static void test_namespace__layout_ranks_salt_and_exactness_separate(void **state)
{
    const kvarve_group groups[] = {prefix_group(16), prefix_group(32)};
    kvarve_namespace_options options[6];
    store_namespace *names[6];

    for (size_t i = 0; i < 6; i++) {
        options[i] = options_of(groups, 1);
    }
    options[1].group_count = 2;
    options[2].groups = groups + 1;
    options[3].rank_count = 2;
    options[4].flags = KVARVE_NAMESPACE_EXACT;
    options[5].salt = "tenant";
    for (size_t i = 0; i < 6; i++) {
        names[i] = opened(*state, &options[i]);
        for (size_t j = 0; j < i; j++) {
            assert_ptr_not_equal(names[i]->spaces[0], names[j]->spaces[0]);
        }
    }
    for (size_t i = 0; i < 6; i++) {
        store_namespace_release(names[i]);
    }
}

static void test_namespace__derived_boundaries_are_where_all_pages_end(void **state)
{
    const kvarve_group groups[] = {prefix_group(16), prefix_group(24), prefix_group(65536),
                                   window_group()};
    const kvarve_group odd[] = {prefix_group(65535), prefix_group(65536)};
    static const uint64_t spans[] = {16, 48, 196608, 0};

    for (uint32_t i = 0; i < 4; i++) {
        const kvarve_namespace_options options = options_of(groups, i + 1);
        store_namespace *name = opened(*state, &options);

        assert_int_equal(name->spaces[0]->is_all_prefix, i < 3);
        assert_int_equal(name->spaces[0]->derived_span, spans[i]);
        store_namespace_release(name);
    }
    {
        const kvarve_namespace_options options = options_of(odd, 2);
        store_namespace *name = opened(*state, &options);

        assert_true(name->spaces[0]->is_all_prefix);
        assert_int_equal(name->spaces[0]->derived_span, 0);
        store_namespace_release(name);
    }
}

/* A space that came from records gets its layout; a document that is right stays kept, another one
 * is written anew. */
static void test_namespace__a_known_space_gets_its_layout(void **state)
{
    const kvarve_group groups[] = {prefix_group(16)};
    const kvarve_namespace_options options = options_of(groups, 1);
    store_namespace *name = opened(*state, &options);
    store_space *space = name->spaces[0];

    assert_false(space->is_document_kept);
    for (size_t i = 0; i < 2; i++) {
        if (i == 1) {
            space->document[2] = 'X';
        }
        space->has_layout = false;
        space->is_document_kept = true;
        memset(space->groups, 0, sizeof space->groups);
        store_namespace_release(name);
        assert_int_equal(space->handles, 0);
        name = opened(*state, &options);
        assert_ptr_equal(name->spaces[0], space);
        assert_true(space->has_layout);
        assert_int_equal(space->groups[0].span_tokens, 16);
        assert_int_equal(space->is_document_kept, i == 0);
        assert_int_equal(space->document[2], 'k');
    }
    store_namespace_release(name);
}

static void test_namespace__lives_until_its_last_release(void **state)
{
    const kvarve_group groups[] = {prefix_group(16)};
    const kvarve_namespace_options options = options_of(groups, 1);
    store_namespace *name = opened(*state, &options);
    const store_space *space = name->spaces[0];

    name->references++; /* as a put does */
    store_namespace_release(name);
    assert_int_equal(space->handles, 1);
    assert_int_equal(store_namespace_ranks(name), 1);
    store_namespace_release(name);
    assert_int_equal(space->handles, 0);
    store_namespace_release(NULL);
}

static void test_namespace__too_many_are_no_space(void **state)
{
    store_machine *store = *state;
    const kvarve_group groups[] = {prefix_group(16), optional(prefix_group(16))};
    kvarve_namespace_options options = options_of(groups, 1);
    store_namespace *first = opened(store, &options);
    store_namespace *name = NULL;
    const size_t real = store->spaces.count;

    store->spaces.count = 65535; /* as if there were as many */
    options.group_count = 2;
    options.draft_identity_json = "{}";
    name = opened(store, &options); /* the base is known: one more */
    assert_int_equal(store->spaces.count, 65536);
    store_namespace_release(name);
    options.draft_identity_json = "{\"another\":1}";
    name = NULL;
    assert_int_equal(store_namespace_open(store, &options, &name, NULL), KVARVE_NO_SPACE);
    assert_null(name);
    assert_int_equal(store->spaces.count, 65536);
    options.draft_identity_json = "{}";
    name = opened(store, &options); /* both are known */
    store_namespace_release(name);
    store_namespace_release(first);
    store->spaces.count = real + 1;
}

static int is_not_number(void *context, uint64_t number)
{
    return number != *(const uint64_t *)context;
}

static void test_namespace__each_failed_allocation_is_no_memory(void **state)
{
    const kvarve_group groups[] = {prefix_group(16), optional(prefix_group(16))};
    kvarve_namespace_options options = options_of(groups, 2);
    kvarve_status status = KVARVE_NO_MEMORY;
    uint64_t number = 0;

    options.draft_identity_json = "{}";
    for (; status != KVARVE_OK; number++) {
        store_namespace *name = NULL;

        kvarve_allocate_set_hook(is_not_number, &number);
        status = store_namespace_open(*state, &options, &name, NULL);
        kvarve_allocate_set_hook(NULL, NULL);
        if (status != KVARVE_OK) {
            assert_int_equal(status, KVARVE_NO_MEMORY);
            assert_null(name);
        }
        store_namespace_release(name);
    }
    assert_true(number > 10);
}

#define SPACE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SPACE_TEST(test_namespace__each_bad_field_of_a_group_is_named),
        SPACE_TEST(test_namespace__bad_counts_and_parts_are_named),
        SPACE_TEST(test_namespace__groups_must_fit_together),
        SPACE_TEST(test_namespace__limits_are_within),
        SPACE_TEST(test_namespace__document_is_that_of_the_format),
        SPACE_TEST(test_namespace__groups_are_numbered_by_space),
        SPACE_TEST(test_namespace__another_drafter_loses_the_companion_alone),
        SPACE_TEST(test_namespace__layout_ranks_salt_and_exactness_separate),
        SPACE_TEST(test_namespace__derived_boundaries_are_where_all_pages_end),
        SPACE_TEST(test_namespace__a_known_space_gets_its_layout),
        SPACE_TEST(test_namespace__lives_until_its_last_release),
        SPACE_TEST(test_namespace__too_many_are_no_space),
        SPACE_TEST(test_namespace__each_failed_allocation_is_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
