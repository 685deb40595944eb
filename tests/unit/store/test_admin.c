/*
 * test_admin.c - listing, drop, trim, statistics and scrub of a store in a simulated host.
 *
 * The layout has a prefix group of 4 tokens a page and an endpoint. The conversation is of tokens
 * 1, 2, 3 ...; a page's bytes say which page it is.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "simulate/world.h"
#include "store/store_private.h"

#define SPAN       4u
#define PAGE_BYTES 5000u
#define TOKENS_MAX 64u
#define INFOS_MAX  16u

typedef struct admin_kit {
    sim_world *world;
    store_machine *store;
    store_namespace *name;
    kvarve_prefix *prefix;
    kvarve_checkpoint_info infos[INFOS_MAX];
    size_t info_count;
    size_t infos_wanted;
} admin_kit;

static store_machine *try_open(admin_kit *kit, uint32_t flags)
{
    const kvarve_store_options options = {.struct_size = sizeof options,
                                          .arena_bytes = 4u << 20,
                                          .flash_bytes_max = 256u << 20,
                                          .segment_bytes = 1u << 20,
                                          .checkpoints_max = 1000,
                                          .pool_threads = 1,
                                          .io_timeout_ms = 30000,
                                          .flags = flags};
    store_machine *made = NULL;
    kvarve_error err = {0};

    if (store_open(world_env(kit->world), "store", &options, NULL, &made, &err) != KVARVE_OK) {
        fail_msg("%s", err.text);
    }
    return made;
}

static void poll_all(admin_kit *kit)
{
    while (store_poll(kit->store)) {
    }
}

static void open_namespace(admin_kit *kit)
{
    const kvarve_group groups[] = {
        {.page_class = KVARVE_CLASS_PREFIX, .span_tokens = SPAN, .page_bytes = PAGE_BYTES},
        {.page_class = KVARVE_CLASS_ENDPOINT, .page_bytes = PAGE_BYTES},
        {.page_class = KVARVE_CLASS_ENDPOINT,
         .flags = KVARVE_GROUP_OPTIONAL,
         .page_bytes = PAGE_BYTES},
    };
    kvarve_namespace_options options = KVARVE_NAMESPACE_OPTIONS_INIT;

    options.identity_json = "{\"model\":\"m\"}";
    options.draft_identity_json = "{\"model\":\"d\"}";
    options.groups = groups;
    options.group_count = 3;
    assert_int_equal(store_namespace_open(kit->store, &options, &kit->name, NULL), KVARVE_OK);
}

static int set_up(void **state)
{
    admin_kit *made = kvarve_allocate(sizeof *made);

    assert_non_null(made);
    made->world = world_create(1);
    made->store = try_open(made, 0);
    open_namespace(made);
    assert_int_equal(kvarve_prefix_create(&made->prefix, NULL), KVARVE_OK);
    for (uint32_t token = 1; token <= TOKENS_MAX; token++) {
        assert_int_equal(kvarve_prefix_append(made->prefix, &token, 1, NULL), KVARVE_OK);
    }
    *state = made;
    return 0;
}

static void close_store(admin_kit *kit)
{
    store_namespace_release(kit->name);
    kit->name = NULL;
    store_shut_down(kit->store);
    while (!store_is_idle(kit->store)) {
        (void)store_poll(kit->store);
    }
    store_close(kit->store);
    kit->store = NULL;
}

static int tear_down(void **state)
{
    admin_kit *kit = *state;

    close_store(kit);
    kvarve_prefix_free(kit->prefix);
    world_destroy(kit->world);
    kvarve_release(kit);
    assert_int_equal(kvarve_allocated_blocks(), 0);
    return 0;
}

/* Store the state at `tokens`, durably. Returns the put's last state. */
static uint32_t put_kind_at(admin_kit *kit, uint32_t kind, uint64_t tokens, uint32_t flags)
{
    const kvarve_put_options options = {
        .struct_size = sizeof options, .tokens = tokens, .kind = kind, .flags = flags};
    kvarve_page_plan plan[2 * TOKENS_MAX];
    size_t count = 0;
    store_put *put = NULL;
    uint32_t state;

    assert_int_equal(store_put_begin(kit->name, kit->prefix, &options, &put, NULL), KVARVE_OK);
    poll_all(kit);
    if (store_put_state(put) == KVARVE_PUT_STAGED) {
        assert_int_equal(store_put_plan(put, 0, plan, 2 * TOKENS_MAX, &count, NULL), KVARVE_OK);
        for (size_t i = 0; i < count; i++) {
            if (plan[i].action == KVARVE_PAGE_COPY) {
                memset(plan[i].address, (int)(plan[i].group * 100 + plan[i].position + tokens),
                       plan[i].size);
            }
        }
        assert_int_equal(store_put_ack(put, 0, NULL, 0, NULL), KVARVE_OK);
        poll_all(kit);
    }
    state = store_put_state(put);
    store_put_release(put);
    return state;
}

static uint32_t put_at(admin_kit *kit, uint64_t tokens, uint32_t flags)
{
    return put_kind_at(kit, KVARVE_KIND_RESPONSE, tokens, flags);
}

static bool keep_info(void *context, const kvarve_checkpoint_info *info)
{
    admin_kit *kit = context;

    assert_true(kit->info_count < INFOS_MAX);
    kit->infos[kit->info_count++] = *info;
    return kit->info_count < kit->infos_wanted;
}

static void list(admin_kit *kit)
{
    kit->info_count = 0;
    kit->infos_wanted = INFOS_MAX;
    store_each(kit->store, keep_info, kit);
}

static kvarve_statistics statistics_of(const admin_kit *kit)
{
    kvarve_statistics statistics;

    store_statistics(kit->store, &statistics);
    assert_int_equal(statistics.struct_size, sizeof statistics);
    return statistics;
}

static kvarve_verify_result verify(admin_kit *kit)
{
    kvarve_verify_result result = {0};
    kvarve_error err = {0};

    if (store_verify_begin(kit->store, &err) != KVARVE_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(store_verify_begin(kit->store, NULL), KVARVE_BUSY);
    while (!store_verify_progress(kit->store, &result)) {
        assert_true(result.pages_checked <= result.pages_total);
        (void)store_poll(kit->store);
    }
    return result;
}

/* The page of a stored checkpoint, own or of its last span. */
static store_page *page_of(const admin_kit *kit, const uint8_t id[32], bool is_own)
{
    const store_checkpoint *found = catalog_by_id(kit->store, id);

    assert_non_null(found);
    return is_own ? found->pages[0] : found->span->pages[0];
}

/* Damage the copy of `page` on flash: it is where the bytes have its digest. */
static void flip(admin_kit *kit, const store_page *page)
{
    char path[64];
    char bytes[PAGE_BYTES];
    uint64_t size;

    (void)snprintf(path, sizeof path, "store/segments/%u-%u.seg", segment_slot_bytes(page->size),
                   page->place.segment);
    assert_int_equal(world_size(kit->world, path, &size), 0);
    for (uint64_t at = 4096; at + PAGE_BYTES <= size; at += 4096) {
        page_digest found;

        assert_int_equal(world_read(kit->world, path, at, bytes, sizeof bytes), 0);
        found = page_digest_of(bytes, sizeof bytes);
        if (page_digest_is_equal(&found, &page->digest)) {
            assert_int_equal(world_flip(kit->world, path, at + 1234, 4), 0);
            return;
        }
    }
    fail_msg("the page is not in %s", path);
}

/* --- listing and statistics --- */

static void test_list__tells_what_each_checkpoint_has_and_owns(void **state)
{
    admin_kit *kit = *state;

    assert_int_equal(put_at(kit, 8, KVARVE_PUT_NO_OPTIONAL), KVARVE_PUT_DURABLE);
    assert_int_equal(put_at(kit, 12, KVARVE_PUT_NO_OPTIONAL), KVARVE_PUT_DURABLE);
    list(kit);
    assert_int_equal(kit->info_count, 2);
    assert_int_equal(kit->infos[0].tokens, 12);
    assert_int_equal(kit->infos[1].tokens, 8);
    assert_string_equal(kit->infos[0].namespace_text, store_namespace_text(kit->name));
    assert_memory_equal(kit->infos[0].parent_id, kit->infos[1].id, 32);
    assert_int_equal(kit->infos[0].pages, 4);
    assert_int_equal(kit->infos[0].bytes, 4 * PAGE_BYTES);
    assert_int_equal(kit->infos[0].bytes_own, 2 * PAGE_BYTES); /* endpoint, last span */
    assert_int_equal(kit->infos[0].bytes_in_ram, 4 * PAGE_BYTES);
    assert_int_equal(kit->infos[0].state, KVARVE_PUT_DURABLE);
    assert_int_equal(kit->infos[1].pages, 3);
    assert_int_equal(kit->infos[1].bytes_own, PAGE_BYTES); /* its spans are below the other's */
    assert_true(kit->infos[0].used > kit->infos[1].used);
    assert_int_equal(put_at(kit, 8, KVARVE_PUT_NO_OPTIONAL), KVARVE_PUT_PRESENT);
    list(kit);
    assert_int_equal(kit->infos[0].tokens, 8);
    kit->info_count = 0;
    kit->infos_wanted = 1;
    store_each(kit->store, keep_info, kit);
    assert_int_equal(kit->info_count, 1);
}

static void test_list__what_two_checkpoints_name_is_of_neither(void **state)
{
    admin_kit *kit = *state;

    assert_int_equal(put_kind_at(kit, KVARVE_KIND_PROMPT, 8, KVARVE_PUT_NO_OPTIONAL),
                     KVARVE_PUT_DURABLE);
    assert_int_equal(put_kind_at(kit, KVARVE_KIND_RESPONSE, 8, KVARVE_PUT_NO_OPTIONAL),
                     KVARVE_PUT_DURABLE);
    list(kit);
    assert_int_equal(kit->info_count, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(kit->infos[i].bytes, 3 * PAGE_BYTES);
        assert_int_equal(kit->infos[i].bytes_own, 0);
    }
}

static void test_statistics__count_what_there_is(void **state)
{
    admin_kit *kit = *state;
    kvarve_statistics statistics;

    assert_int_equal(put_at(kit, 8, 0), KVARVE_PUT_DURABLE);
    statistics = statistics_of(kit);
    assert_int_equal(statistics.checkpoints, 2);
    assert_int_equal(statistics.spans, 2);
    assert_int_equal(statistics.pages, 4);
    assert_int_equal(statistics.namespaces, 2);
    assert_int_equal(statistics.batches, 1);
    assert_int_equal(statistics.puts, 1);
    assert_int_equal(statistics.puts_durable, 1);
    assert_int_equal(statistics.puts_open, 0);
    assert_int_equal(statistics.payload_bytes_written, 4 * 8192);
    assert_int_equal(statistics.payload_bytes_taken, 4 * 8192);
    assert_true(statistics.index_log_bytes_written > 0);
    assert_true(statistics.arena_bytes_used >= UINT64_C(4) * 8192);
    assert_int_equal(statistics.flash_bytes_max, 256u << 20);
    assert_int_equal(statistics.is_failed, 0);
}

/* --- drop and trim --- */

static void test_drop__gives_back_what_only_it_needs(void **state)
{
    admin_kit *kit = *state;

    assert_int_equal(put_at(kit, 8, KVARVE_PUT_NO_OPTIONAL), KVARVE_PUT_DURABLE);
    assert_int_equal(put_at(kit, 12, KVARVE_PUT_NO_OPTIONAL), KVARVE_PUT_DURABLE);
    list(kit);
    assert_int_equal(store_drop(kit->store, kit->infos[0].id, NULL), KVARVE_OK);
    assert_int_equal(store_drop(kit->store, kit->infos[0].id, NULL), KVARVE_MISS);
    poll_all(kit);
    assert_int_equal(statistics_of(kit).checkpoints, 1);
    assert_int_equal(statistics_of(kit).payload_bytes_taken, 3 * 8192);
    close_store(kit);
    kit->store = try_open(kit, 0);
    open_namespace(kit);
    list(kit);
    assert_int_equal(kit->info_count, 1);
    assert_int_equal(kit->infos[0].tokens, 8);
}

static void test_drop__a_leased_checkpoint_is_busy(void **state)
{
    admin_kit *kit = *state;
    store_checkpoint *found;

    assert_int_equal(put_at(kit, 8, 0), KVARVE_PUT_DURABLE);
    list(kit);
    assert_int_equal(kit->info_count, 2);
    found = catalog_by_id(kit->store, kit->infos[0].id);
    found = found->is_companion ? found->companion : found;
    found->leases++;
    assert_int_equal(store_drop(kit->store, found->id.bytes, NULL), KVARVE_BUSY);
    found->leases--;
    found->companion->leases++; /* it would go along */
    assert_int_equal(store_drop(kit->store, found->id.bytes, NULL), KVARVE_BUSY);
    found->companion->leases--;
    assert_int_equal(store_drop(kit->store, found->id.bytes, NULL), KVARVE_OK);
    assert_int_equal(statistics_of(kit).checkpoints, 0);
}

static void test_drop__a_draft_half_goes_alone(void **state)
{
    admin_kit *kit = *state;
    size_t draft;

    assert_int_equal(put_at(kit, 8, 0), KVARVE_PUT_DURABLE);
    list(kit);
    draft = kit->infos[0].is_draft ? 0 : 1;
    assert_int_equal(kit->infos[draft].is_draft, 1);
    assert_int_equal(kit->infos[1 - draft].is_draft, 0);
    assert_int_equal(store_drop(kit->store, kit->infos[draft].id, NULL), KVARVE_OK);
    list(kit);
    assert_int_equal(kit->info_count, 1);
    assert_int_equal(kit->infos[0].is_draft, 0);
    poll_all(kit);
}

static void test_drop__not_in_a_store_that_is_only_read(void **state)
{
    admin_kit *kit = *state;

    assert_int_equal(put_at(kit, 8, 0), KVARVE_PUT_DURABLE);
    list(kit);
    close_store(kit);
    kit->store = try_open(kit, KVARVE_OPEN_READ_ONLY);
    assert_int_equal(store_drop(kit->store, kit->infos[0].id, NULL), KVARVE_INVALID);
    assert_int_equal(store_trim_begin(kit->store, NULL), KVARVE_INVALID);
    assert_int_equal(verify(kit).pages_checked, 4);
}

static void test_trim__gives_dropped_bytes_to_the_disk(void **state)
{
    admin_kit *kit = *state;
    uint64_t bytes = 1;
    kvarve_status status = KVARVE_OK;

    assert_int_equal(put_at(kit, 60, KVARVE_PUT_NO_OPTIONAL), KVARVE_PUT_DURABLE);
    list(kit);
    assert_int_equal(store_drop(kit->store, kit->infos[0].id, NULL), KVARVE_OK);
    poll_all(kit);
    assert_int_equal(store_trim_begin(kit->store, NULL), KVARVE_OK);
    assert_int_equal(store_trim_begin(kit->store, NULL), KVARVE_BUSY);
    assert_false(store_trim_progress(kit->store, &bytes, &status));
    assert_int_equal(status, KVARVE_BUSY);
    poll_all(kit);
    assert_true(store_trim_progress(kit->store, &bytes, &status));
    assert_int_equal(status, KVARVE_OK);
    assert_true(bytes >= UINT64_C(16) * 8192);
}

/* --- scrub --- */

static void test_verify__a_sound_store_is_sound(void **state)
{
    admin_kit *kit = *state;
    kvarve_verify_result result;

    assert_int_equal(verify(kit).pages_total, 0);
    assert_int_equal(put_at(kit, 13, 0), KVARVE_PUT_DURABLE);
    result = verify(kit);
    assert_int_equal(result.pages_total, 6); /* 3 full, 1 partial, 2 endpoints */
    assert_int_equal(result.pages_checked, 6);
    assert_int_equal(result.bytes_checked, 6 * PAGE_BYTES);
    assert_int_equal(result.pages_damaged, 0);
    assert_int_equal(result.checkpoints_lost, 0);
    assert_int_equal(result.is_index_damaged, 0);
    assert_true(store_verify_progress(kit->store, &result)); /* it was told already */
    assert_int_equal(result.pages_total, 0);
}

static void test_verify__a_flipped_bit_loses_who_names_the_page_until_it_is_put_again(void **state)
{
    admin_kit *kit = *state;
    kvarve_verify_result result;

    assert_int_equal(put_at(kit, 8, KVARVE_PUT_NO_OPTIONAL), KVARVE_PUT_DURABLE);
    assert_int_equal(put_at(kit, 12, KVARVE_PUT_NO_OPTIONAL), KVARVE_PUT_DURABLE);
    list(kit);
    flip(kit, page_of(kit, kit->infos[0].id, false)); /* the last span of 12 tokens */
    result = verify(kit);
    assert_int_equal(result.pages_checked, 6 - 1);
    assert_int_equal(result.pages_damaged, 1);
    assert_int_equal(result.checkpoints_lost, 1);
    list(kit);
    assert_int_equal(kit->infos[0].is_damaged, 1);
    assert_int_equal(kit->infos[1].is_damaged, 0);
    flip(kit, page_of(kit, kit->infos[1].id, false)); /* shared by both */
    result = verify(kit);
    assert_int_equal(result.pages_damaged, 2); /* the one that was known counts on */
    assert_int_equal(result.checkpoints_lost, 2);
    assert_int_equal(put_at(kit, 12, KVARVE_PUT_NO_OPTIONAL), KVARVE_PUT_DURABLE);
    assert_int_equal(verify(kit).pages_damaged, 0);
}

static void test_verify__a_page_that_can_not_be_read_is_damaged(void **state)
{
    admin_kit *kit = *state;
    world_plan plan = WORLD_PLAN_QUIET;

    assert_int_equal(put_at(kit, 8, KVARVE_PUT_NO_OPTIONAL), KVARVE_PUT_DURABLE);
    plan.fault_step = 0;
    plan.fault_count = 100;
    plan.fault_ops = WORLD_OP_READ;
    plan.fault_path = ".seg";
    world_set_plan(kit->world, &plan);
    assert_int_equal(verify(kit).pages_damaged, 3);
    world_set_plan(kit->world, NULL);
}

static void test_verify__what_is_dropped_meanwhile_is_let_go(void **state)
{
    admin_kit *kit = *state;
    kvarve_verify_result result;

    assert_int_equal(put_at(kit, 40, KVARVE_PUT_NO_OPTIONAL), KVARVE_PUT_DURABLE);
    list(kit);
    assert_int_equal(store_verify_begin(kit->store, NULL), KVARVE_OK); /* reads all of it */
    assert_int_equal(store_drop(kit->store, kit->infos[0].id, NULL), KVARVE_OK);
    poll_all(kit);
    assert_true(store_verify_progress(kit->store, &result));
    assert_int_equal(result.pages_damaged, 0);
    assert_int_equal(result.pages_checked, result.pages_total);
    assert_int_equal(statistics_of(kit).pages, 0);
    assert_int_equal(statistics_of(kit).payload_bytes_taken, 0);
}

static void test_verify__ends_early_when_the_store_shuts_down(void **state)
{
    admin_kit *kit = *state;
    kvarve_verify_result result;

    assert_int_equal(put_at(kit, 8, KVARVE_PUT_NO_OPTIONAL), KVARVE_PUT_DURABLE);
    assert_int_equal(store_verify_begin(kit->store, NULL), KVARVE_OK);
    store_shut_down(kit->store);
    poll_all(kit);
    assert_true(store_verify_progress(kit->store, &result));
    assert_int_equal(result.pages_damaged, 0);
}

static void test_rebuild__drops_what_is_damaged_when_it_opens(void **state)
{
    admin_kit *kit = *state;

    assert_int_equal(put_at(kit, 8, 0), KVARVE_PUT_DURABLE);
    assert_int_equal(put_at(kit, 12, 0), KVARVE_PUT_DURABLE);
    list(kit);
    assert_int_equal(kit->info_count, 4);
    for (size_t i = 0; i < 4; i++) {
        if (kit->infos[i].tokens == 12) { /* its endpoint; its draft half's as well */
            flip(kit, page_of(kit, kit->infos[i].id, true));
        }
    }
    close_store(kit);
    kit->store = try_open(kit, KVARVE_OPEN_REBUILD);
    assert_true(store_is_opening(kit->store));
    poll_all(kit);
    assert_false(store_is_opening(kit->store));
    open_namespace(kit);
    list(kit);
    assert_int_equal(kit->info_count, 2);
    assert_int_equal(kit->infos[0].tokens, 8);
    assert_int_equal(kit->infos[1].tokens, 8);
    assert_int_equal(statistics_of(kit).pages_damaged, 0);
    assert_int_equal(verify(kit).pages_damaged, 0);
}

#define ADMIN_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ADMIN_TEST(test_list__tells_what_each_checkpoint_has_and_owns),
        ADMIN_TEST(test_list__what_two_checkpoints_name_is_of_neither),
        ADMIN_TEST(test_statistics__count_what_there_is),
        ADMIN_TEST(test_drop__gives_back_what_only_it_needs),
        ADMIN_TEST(test_drop__a_leased_checkpoint_is_busy),
        ADMIN_TEST(test_drop__a_draft_half_goes_alone),
        ADMIN_TEST(test_drop__not_in_a_store_that_is_only_read),
        ADMIN_TEST(test_trim__gives_dropped_bytes_to_the_disk),
        ADMIN_TEST(test_verify__a_sound_store_is_sound),
        ADMIN_TEST(test_verify__a_flipped_bit_loses_who_names_the_page_until_it_is_put_again),
        ADMIN_TEST(test_verify__a_page_that_can_not_be_read_is_damaged),
        ADMIN_TEST(test_verify__what_is_dropped_meanwhile_is_let_go),
        ADMIN_TEST(test_verify__ends_early_when_the_store_shuts_down),
        ADMIN_TEST(test_rebuild__drops_what_is_damaged_when_it_opens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
