/*
 * store_model.c - see store_model.h.
 *
 * The oracle knows layouts, tokens and bytes by itself (store_items.h); of the store it uses the
 * public calls alone.
 *
 * Invariant
 *   I1  Nothing is asserted: what is wrong is returned, so that a sweep can name its plan.
 */
#include "crash/store_model.h"

#include <stdio.h>
#include <string.h>

#include "api/open_in.h"
#include "base/checked.h"
#include "crash/store_model_private.h"
#include "crash/store_paged.h"
#include "hash/hash.h"

#define READ_MAX      (UINT64_C(1) << 20)
#define SECTION_BYTES 8192u
#define ALL_PAGES_MAX (MODEL_ITEMS_MAX * PAGES_MAX)

/* --- session --- */

kvarve_status session_open(session *out, sim_world *world, const char *folder,
                           const model_limits *limits, kvarve_error *err)
{
    kvarve_store_options options = KVARVE_STORE_OPTIONS_INIT;

    memset(out, 0, sizeof *out);
    out->world = world;
    options.arena_bytes = limits->arena_bytes == 0 ? UINT64_C(1) << 20 : limits->arena_bytes;
    options.flash_bytes_max =
        limits->flash_bytes_max == 0 ? UINT64_C(64) << 20 : limits->flash_bytes_max;
    options.segment_bytes = UINT64_C(1) << 20;
    options.flags = limits->flags;
    options.io_timeout_ms = limits->io_timeout_ms;
    return api_open_in(world_env(world), folder, &options, &out->store, err);
}

void session_close(session *open)
{
    for (size_t i = 0; i < LAYOUT_COUNT; i++) {
        kvarve_namespace_release(&open->names[i]);
    }
    kvarve_close(open->store);
    open->store = NULL;
}

kvarve_status session_name(session *open, uint32_t layout)
{
    const model_shape *shape = &model_shapes[layout];
    kvarve_namespace_options options = KVARVE_NAMESPACE_OPTIONS_INIT;
    kvarve_status status;

    if (open->names[layout] != NULL) {
        return KVARVE_OK;
    }
    options.identity_json = shape->identity;
    options.draft_identity_json = shape->draft;
    options.groups = shape->groups;
    options.group_count = shape->group_count;
    options.rank_count = shape->rank_count;
    options.flags = shape->flags;
    status = kvarve_namespace_open(open->store, &options, &open->names[layout], NULL);
    if (status == KVARVE_OK && layout == LAYOUT_PAGED) {
        status = paged_register(open->names[layout]);
        if (status != KVARVE_OK) {
            kvarve_namespace_release(&open->names[layout]);
        }
    }
    return status;
}

kvarve_status item_prefix(const model_item *item, kvarve_prefix **out)
{
    uint32_t tokens[TOKENS_MAX];
    kvarve_prefix *prefix = NULL;
    kvarve_status status;

    item_tokens(item, tokens);
    status = kvarve_prefix_create(&prefix, NULL);
    if (status == KVARVE_OK) {
        status = kvarve_prefix_append(prefix, tokens, item->tokens, NULL);
    }
    if (status != KVARVE_OK) {
        kvarve_prefix_free(prefix);
        return status;
    }
    *out = prefix;
    return KVARVE_OK;
}

/* --- put --- */

void item_options(const model_item *item, put_kit *kit)
{
    const model_shape *shape = &model_shapes[item->layout];
    model_page pages[PAGES_MAX];

    kit->options = (kvarve_put_options)KVARVE_PUT_OPTIONS_INIT;
    kit->options.tokens = item->tokens;
    kit->options.draft_tokens = item_draft_tokens(item);
    kit->options.kind = item->kind;
    kit->options.flags = shape->draft != NULL && item->has_no_draft ? KVARVE_PUT_NO_OPTIONAL : 0;
    for (uint32_t rank = 0; rank < shape->rank_count; rank++) {
        for (uint32_t group = 0; group < shape->group_count; group++) {
            kit->sizes[rank * shape->group_count + group] = item_state_bytes(rank);
        }
    }
    kit->options.sizes = kit->sizes;
    if ((shape->flags & KVARVE_NAMESPACE_EXACT) == 0) {
        return;
    }
    kit->options.digests = kit->digests;
    kit->options.digest_count = (uint32_t)item_pages(item, pages);
    for (uint32_t i = 0; i < kit->options.digest_count; i++) {
        page_digest digest;

        item_fill_page(item, &pages[i], kit->page);
        digest = page_digest_of(kit->page, pages[i].size);
        kit->digests[i] = (kvarve_page_digest){
            .rank = pages[i].rank, .group = pages[i].group, .position = pages[i].position};
        memcpy(kit->digests[i].digest, digest.bytes, sizeof digest.bytes);
    }
}

kvarve_status item_fill_rank(const model_item *item, kvarve_put *put, uint32_t rank,
                             size_t *out_asked)
{
    const model_shape *shape = &model_shapes[item->layout];
    kvarve_page_plan plan[PAGES_MAX];
    size_t count = 0;
    size_t asked = 0;
    kvarve_status status;

    do {
        status = kvarve_put_plan(put, rank, plan, PAGES_MAX, &count, NULL);
    } while (status == KVARVE_BUSY &&
             (status = kvarve_put_wait(put, KVARVE_PUT_STAGED, KVARVE_NO_TIMEOUT, NULL)) ==
                 KVARVE_OK);
    for (size_t i = 0; i < count && status == KVARVE_OK; i++) {
        const bool is_replicated =
            (shape->groups[plan[i].group].flags & KVARVE_GROUP_REPLICATED) != 0;
        const model_page page = {.rank = is_replicated ? REPLICATED : rank,
                                 .group = plan[i].group,
                                 .position = plan[i].position,
                                 .first_token = (uint32_t)plan[i].first_token,
                                 .tokens = plan[i].tokens,
                                 .size = plan[i].size};

        if (plan[i].action == KVARVE_PAGE_COPY) {
            item_fill_page(item, &page, plan[i].address);
            asked++;
        }
    }
    *out_asked = asked;
    return status;
}

static bool is_over(const kvarve_put *put)
{
    return kvarve_put_status(put) >= KVARVE_PUT_DURABLE;
}

static kvarve_status fill_ranks(const model_item *item, kvarve_put *put, bool is_acked)
{
    kvarve_status status = KVARVE_OK;

    for (uint32_t rank = 0; rank < model_shapes[item->layout].rank_count && !is_over(put); rank++) {
        size_t asked = 0;

        status = item_fill_rank(item, put, rank, &asked);
        if (status == KVARVE_OK && is_acked && !is_over(put)) {
            status = kvarve_put_ack(put, rank, NULL, 0, NULL);
        }
        if (status != KVARVE_OK) {
            break;
        }
    }
    return status;
}

kvarve_status item_begin(session *open, const model_item *item, bool is_open, uint32_t timeout_ms,
                         kvarve_put **out, kvarve_error *err)
{
    static put_kit kit;
    kvarve_prefix *prefix = NULL;
    kvarve_status status = session_name(open, item->layout);

    if (status == KVARVE_OK) {
        status = item_prefix(item, &prefix);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    item_options(item, &kit);
    kit.options.tokens = is_open ? 0 : item->tokens;
    kit.options.timeout_ms = timeout_ms;
    status = kvarve_put_begin(open->names[item->layout], prefix, &kit.options, out, err);
    kvarve_prefix_free(prefix);
    return status;
}

kvarve_status item_stage(session *open, const model_item *item, uint32_t timeout_ms,
                         kvarve_put **out_put, kvarve_error *err)
{
    kvarve_status status = item_begin(open, item, false, timeout_ms, out_put, err);

    if (status == KVARVE_OK) {
        status = fill_ranks(item, *out_put, false);
        if (status != KVARVE_OK) {
            kvarve_put_release(out_put);
        }
    }
    return status;
}

put_outcome item_put(session *open, const model_item *item)
{
    put_outcome out = {.state = KVARVE_PUT_ABORTED};
    kvarve_put *put = NULL;

    out.status = item_begin(open, item, false, 0, &put, NULL);
    if (out.status != KVARVE_OK) {
        return out;
    }
    out.status = fill_ranks(item, put, true);
    if (out.status == KVARVE_OK) {
        out.status = kvarve_put_wait(put, KVARVE_PUT_DURABLE, KVARVE_NO_TIMEOUT, NULL);
    }
    out.state = kvarve_put_status(put);
    out.refusal = kvarve_put_refusal(put);
    kvarve_put_release(&put);
    return out;
}

/* One item of a bulk put. */
typedef struct bulk_kit {
    kvarve_prefix *prefix;
    put_kit put;
    kvarve_section sections[2];
    uint8_t bytes[2][SECTION_BYTES];
} bulk_kit;

static kvarve_status make_bulk(const model_item *item, bulk_kit *kit, kvarve_bulk_item *out)
{
    model_page pages[PAGES_MAX];
    kvarve_status status = item_prefix(item, &kit->prefix);

    if (status != KVARVE_OK) {
        return status;
    }
    item_options(item, &kit->put);
    for (uint32_t group = 0; group < 2; group++) {
        const size_t count = item_group_pages(item, 0, group, pages);
        size_t size = 0;

        for (size_t i = 0; i < count; i++) {
            item_fill_page(item, &pages[i], kit->bytes[group] + size);
            size += pages[i].size;
        }
        kit->sections[group] =
            (kvarve_section){.group = group, .bytes = kit->bytes[group], .size = size};
    }
    *out = (kvarve_bulk_item){.prefix = kit->prefix,
                              .options = &kit->put.options,
                              .sections = kit->sections,
                              .section_count = 2};
    return KVARVE_OK;
}

kvarve_status items_put_many(session *open, const model_item *items, size_t count, put_outcome *out)
{
    static bulk_kit kits[4];
    kvarve_bulk_item bulk[4] = {0};
    kvarve_status status = session_name(open, LAYOUT_PLAIN);

    for (size_t i = 0; i < count && status == KVARVE_OK; i++) {
        kits[i].prefix = NULL;
        status = make_bulk(&items[i], &kits[i], &bulk[i]);
        bulk[i].out_state = KVARVE_PUT_ABORTED;
    }
    if (status == KVARVE_OK) {
        status = kvarve_put_many(open->names[LAYOUT_PLAIN], bulk, count, NULL);
    }
    for (size_t i = 0; i < count; i++) {
        out[i] = (put_outcome){.status = status,
                               .state = bulk[i].prefix == NULL ? (uint32_t)KVARVE_PUT_ABORTED
                                                               : bulk[i].out_state,
                               .refusal = bulk[i].out_refusal};
        if (bulk[i].prefix != NULL) {
            kvarve_prefix_free(kits[i].prefix);
        }
    }
    return status;
}

/* --- find and read --- */

kvarve_status item_find(session *open, const model_item *item, uint32_t lease_mode,
                        kvarve_boundary *out, kvarve_lease **out_lease, kvarve_miss *out_miss)
{
    kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
    kvarve_prefix *prefix = NULL;
    size_t count = 0;
    kvarve_status status = session_name(open, item->layout);

    if (status == KVARVE_OK) {
        status = item_prefix(item, &prefix);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    options.min_tokens = item->tokens;
    options.kinds = 1u << item->kind;
    options.flags = KVARVE_FIND_NO_DERIVED;
    options.lease = lease_mode;
    status = kvarve_find(open->names[item->layout], prefix, &options, out, 1, &count, out_lease,
                         out_miss, NULL);
    kvarve_prefix_free(prefix);
    return status;
}

static read_answer compare_group(const model_item *item, kvarve_lease *lease, uint32_t rank,
                                 uint32_t group)
{
    static uint8_t bytes[READ_MAX];
    static uint8_t expected[PAGE_MAX];
    model_page pages[PAGES_MAX];
    const size_t count = item_group_pages(item, rank, group, pages);
    uint64_t first = 0;
    uint64_t listed = 0;
    uint64_t size = 0;
    size_t at = 0;
    kvarve_status status;

    if (count == 0) {
        return READ_RIGHT;
    }
    status = kvarve_lease_extent(lease, rank, group, &first, &listed, &size, NULL);
    if (status != KVARVE_OK) {
        return READ_MISS;
    }
    if (listed != count || first != pages[0].position || size > sizeof bytes) {
        return READ_WRONG;
    }
    memset(bytes, 0, (size_t)size);
    if (kvarve_lease_read(lease, rank, group, first, bytes, (size_t)size, NULL) != KVARVE_OK) {
        return READ_MISS;
    }
    for (size_t i = 0; i < count; i++) {
        item_fill_page(item, &pages[i], expected);
        if (at + pages[i].size > size || memcmp(bytes + at, expected, pages[i].size) != 0) {
            return READ_WRONG;
        }
        at += pages[i].size;
    }
    return at == size ? READ_RIGHT : READ_WRONG;
}

read_answer lease_compare(session *open, const model_item *item, kvarve_lease *lease)
{
    const model_shape *shape = &model_shapes[item->layout];
    read_answer worst = READ_RIGHT;

    (void)open;
    for (uint32_t rank = 0; rank < shape->rank_count; rank++) {
        for (uint32_t group = 0; group < shape->group_count; group++) {
            const read_answer answer = compare_group(item, lease, rank, group);

            worst = answer > worst ? answer : worst;
        }
    }
    return worst;
}

read_answer item_read(session *open, const model_item *item, bool is_loaded, bool *out_is_found)
{
    kvarve_boundary boundary = {0};
    kvarve_lease *lease = NULL;
    read_answer answer = READ_RIGHT;
    const bool has_draft = item_draft_tokens(item) > 0;

    *out_is_found = item_find(open, item, is_loaded ? KVARVE_LEASE_LOAD : KVARVE_LEASE_SOFT,
                              &boundary, &lease, NULL) == KVARVE_OK;
    if (!*out_is_found) {
        return READ_MISS;
    }
    if (boundary.tokens != item->tokens || boundary.kind != item->kind ||
        ((boundary.flags & KVARVE_BOUNDARY_DRAFT) != 0) != has_draft) {
        answer = READ_WRONG;
    } else if (is_loaded && kvarve_lease_wait(lease, KVARVE_NO_TIMEOUT, NULL, NULL) != KVARVE_OK) {
        answer = READ_MISS;
    } else {
        answer = lease_compare(open, item, lease);
    }
    kvarve_lease_release(&lease);
    return answer;
}

read_answer item_restore_paged(session *open, const model_item *item, bool *out_is_found)
{
    kvarve_boundary boundary = {0};
    kvarve_lease *lease = NULL;
    read_answer answer = READ_MISS;

    *out_is_found = item_find(open, item, KVARVE_LEASE_LOAD, &boundary, &lease, NULL) == KVARVE_OK;
    if (*out_is_found && kvarve_lease_wait(lease, KVARVE_NO_TIMEOUT, NULL, NULL) == KVARVE_OK) {
        answer = paged_restore(item, lease);
    }
    kvarve_lease_release(&lease);
    return answer;
}

kvarve_status item_drop(session *open, const model_item *item)
{
    kvarve_boundary boundary = {0};
    kvarve_status status = item_find(open, item, KVARVE_LEASE_NONE, &boundary, NULL, NULL);

    return status == KVARVE_OK ? kvarve_drop(open->store, boundary.id, NULL) : status;
}

/* --- the whole --- */

void model_init(model *out, const model_item *items, size_t count)
{
    memset(out, 0, sizeof *out);
    out->items = items;
    out->count = count;
}

/* Pages of all found items, each once; and what their slots take. */
static size_t count_pages(const model *known, const model_view *seen, uint64_t *out_bytes)
{
    static uint64_t identities[ALL_PAGES_MAX];
    size_t count = 0;

    *out_bytes = 0;
    for (size_t i = 0; i < known->count; i++) {
        const model_item *item = &known->items[i];
        model_page pages[PAGES_MAX];
        const size_t own = seen->is_found[i] ? item_pages(item, pages) : 0;

        for (size_t p = 0; p < own; p++) {
            const uint64_t identity = item_page_identity(item, &pages[p]);
            bool is_known = false;

            for (size_t k = 0; k < count; k++) {
                is_known = is_known || identities[k] == identity;
            }
            if (!is_known) {
                identities[count++] = identity;
                *out_bytes += kvarve_round_up(
                    model_shapes[item->layout].groups[pages[p].group].page_bytes, 4096);
            }
        }
    }
    return count;
}

static const char *check_space(session *open, const model *known, const model_view *seen)
{
    kvarve_statistics statistics = KVARVE_STATISTICS_INIT;
    uint64_t bytes = 0;
    const size_t pages = count_pages(known, seen, &bytes);
    size_t checkpoints = 0;

    for (size_t i = 0; i < known->count; i++) {
        checkpoints += seen->is_found[i] ? 1u + (item_draft_tokens(&known->items[i]) > 0) : 0;
    }
    if (kvarve_statistics_get(open->store, &statistics, NULL) != KVARVE_OK) {
        return "no statistics";
    }
    if (statistics.checkpoints != checkpoints) {
        return "there are checkpoints that no item is";
    }
    if (statistics.pages != pages) {
        return "there are pages that no found checkpoint names (D2)";
    }
    if (statistics.payload_bytes_taken != bytes) {
        return "space is taken that no found checkpoint needs (D2)";
    }
    return NULL;
}

static const char *check_item(const model *known, size_t at, bool is_rebuilt, read_answer answer,
                              bool is_found)
{
    const bool may_be_back = is_rebuilt && known->was_put[at] && !known->is_buried[at];

    if (answer == READ_WRONG) {
        return "wrong bytes (P1)";
    }
    if (is_found && answer == READ_MISS) {
        return "found, but not readable (P2, D1)";
    }
    if (!is_found && known->states[at] == ITEM_SURE) {
        return "a durable checkpoint is lost (P4)";
    }
    if (is_found && known->states[at] == ITEM_ABSENT && !may_be_back) {
        return "a checkpoint is found that is not there";
    }
    return NULL;
}

const char *model_check(session *open, const model *known, bool is_rebuilt, model_view *out)
{
    static char text[96]; /* one test thread */
    model_view seen = {.found = 0};
    const char *derived;

    for (size_t i = 0; i < known->count; i++) {
        const read_answer answer = item_read(open, &known->items[i], i % 2 == 1, &seen.is_found[i]);
        const char *broken = check_item(known, i, is_rebuilt, answer, seen.is_found[i]);

        if (broken != NULL) {
            (void)snprintf(text, sizeof text, "item %zu: %s", i, broken);
            return text;
        }
        seen.found += seen.is_found[i];
    }
    *out = seen;
    derived = model_check_derived(open, known, &seen);
    return derived == NULL ? check_space(open, known, &seen) : derived;
}

void model_learn(model *known, const model_view *seen)
{
    for (size_t i = 0; i < known->count; i++) {
        known->states[i] = seen->is_found[i] ? ITEM_SURE : ITEM_ABSENT;
        known->was_put[i] = known->was_put[i] || seen->is_found[i];
        known->is_buried[i] = known->is_buried[i] && !seen->is_found[i];
    }
}
