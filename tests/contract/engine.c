/*
 * engine.c - see engine.h.
 *
 * What a checkpoint consists of is computed here from the public header alone, not from the store's
 * code: the two must agree.
 *
 * Threads: see engine.h; every call has its own buffers.
 */
#include "contract/engine.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "hash/hash.h"

#define PREFIX   KVARVE_CLASS_PREFIX
#define WINDOW   KVARVE_CLASS_WINDOW
#define ENDPOINT KVARVE_CLASS_ENDPOINT

const engine_layout engine_plain = {.identity = "{\"model\":\"plain\"}",
                                    .ranks = 1,
                                    .group_count = 2,
                                    .groups = {{.page_class = PREFIX,
                                                .flags = KVARVE_GROUP_ROWS,
                                                .span_tokens = 16,
                                                .page_bytes = 16 * 96},
                                               {.page_class = ENDPOINT, .page_bytes = 9001}}};

#define HYBRID_GROUPS                                                                              \
    {                                                                                              \
        {.page_class = PREFIX,                                                                     \
         .flags = KVARVE_GROUP_ROWS,                                                               \
         .span_tokens = 16,                                                                        \
         .page_bytes = 16 * 256},                                                                  \
        {.page_class = PREFIX,                                                                     \
         .flags = KVARVE_GROUP_REPLICATED,                                                         \
         .span_tokens = 24,                                                                        \
         .page_bytes = 5000},                                                                      \
        {.page_class = WINDOW,                                                                     \
         .flags = KVARVE_GROUP_ROWS,                                                               \
         .span_tokens = 8,                                                                         \
         .window_tokens = 20,                                                                      \
         .page_bytes = 8 * 130},                                                                   \
        {.page_class = ENDPOINT, .page_bytes = 12345},                                             \
        {.page_class = ENDPOINT, .flags = KVARVE_GROUP_VARIABLE, .page_bytes = 4096},              \
        {.page_class = KVARVE_CLASS_AUXILIARY,                                                     \
         .flags = KVARVE_GROUP_REPLICATED,                                                         \
         .page_bytes = 777},                                                                       \
    }

const engine_layout engine_hybrid = {
    .identity = "{\"model\":\"hybrid\"}", .ranks = 4, .group_count = 6, .groups = HYBRID_GROUPS};

const engine_layout engine_exact = {.identity = "{\"model\":\"exact\"}",
                                    .is_exact = true,
                                    .ranks = 2,
                                    .group_count = 6,
                                    .groups = HYBRID_GROUPS};

const engine_layout engine_drafted = {
    .identity = "{\"model\":\"drafted\"}",
    .drafter = "{\"model\":\"drafter\"}",
    .ranks = 2,
    .group_count = 4,
    .groups = {{.page_class = PREFIX,
                .flags = KVARVE_GROUP_ROWS | KVARVE_GROUP_OPTIONAL,
                .span_tokens = 32,
                .page_bytes = 32 * 64},
               {.page_class = PREFIX,
                .flags = KVARVE_GROUP_ROWS,
                .span_tokens = 16,
                .page_bytes = 16 * 256},
               {.page_class = ENDPOINT, .page_bytes = 7000},
               {.page_class = ENDPOINT, .flags = KVARVE_GROUP_OPTIONAL, .page_bytes = 300}}};

const engine_layout engine_rows = {
    .identity = "{\"model\":\"rows\"}",
    .ranks = 1,
    .group_count = 4,
    .groups = {{.page_class = PREFIX, .span_tokens = 16, .page_bytes = 1000},
               {.page_class = PREFIX,
                .flags = KVARVE_GROUP_DRAFT_ROWS,
                .span_tokens = 16,
                .page_bytes = 2000},
               {.page_class = WINDOW,
                .flags = KVARVE_GROUP_DRAFT_ROWS | KVARVE_GROUP_ROWS,
                .span_tokens = 8,
                .window_tokens = 12,
                .page_bytes = 8 * 50},
               {.page_class = ENDPOINT, .page_bytes = 64}}};

const engine_layout engine_dense = {
    .identity = "{\"model\":\"dense\"}",
    .ranks = 1,
    .group_count = 2,
    .groups = {
        {.page_class = PREFIX, .flags = KVARVE_GROUP_ROWS, .span_tokens = 8, .page_bytes = 8 * 64},
        {.page_class = PREFIX,
         .flags = KVARVE_GROUP_ROWS,
         .span_tokens = 16,
         .page_bytes = 16 * 32}}};

const engine_layout *const engine_layouts[] = {&engine_plain,   &engine_hybrid, &engine_exact,
                                               &engine_drafted, &engine_rows,   &engine_dense};
const size_t engine_layout_count = sizeof engine_layouts / sizeof engine_layouts[0];

kvarve_status engine_open(engine *out, kvarve_store *store, const engine_layout *layout,
                          kvarve_error *err)
{
    kvarve_namespace_options options = KVARVE_NAMESPACE_OPTIONS_INIT;

    options.identity_json = layout->identity;
    options.numerics_json = layout->numerics;
    options.salt = layout->salt;
    options.draft_identity_json = layout->drafter;
    options.groups = layout->groups;
    options.group_count = layout->group_count;
    options.rank_count = layout->ranks;
    options.flags = layout->is_exact ? KVARVE_NAMESPACE_EXACT : 0;
    out->layout = layout;
    return kvarve_namespace_open(store, &options, &out->space, err);
}

void engine_close(engine *at)
{
    kvarve_namespace_release(&at->space);
}

/* --- what a state consists of --- */

static bool has_tokens(const kvarve_group *group)
{
    return group->page_class == PREFIX || group->page_class == WINDOW;
}

static bool is_replicated(const kvarve_group *group)
{
    return (group->flags & KVARVE_GROUP_REPLICATED) != 0;
}

static bool is_optional(const kvarve_group *group)
{
    return (group->flags & KVARVE_GROUP_OPTIONAL) != 0;
}

/* Any size will do; a replicated state has one. */
static uint64_t state_bytes(const engine *at, const engine_state *state, uint32_t rank,
                            uint32_t group)
{
    const kvarve_group *description = &at->layout->groups[group];

    if ((description->flags & KVARVE_GROUP_VARIABLE) == 0) {
        return description->page_bytes;
    }
    return 2u * description->page_bytes + 100 + state->tokens % 50 +
           (is_replicated(description) ? 0 : rank * 7u);
}

static uint64_t parts(const engine *at, const engine_state *state, uint32_t rank, uint32_t group)
{
    const uint64_t page = at->layout->groups[group].page_bytes;

    return (state_bytes(at, state, rank, group) + page - 1) / page;
}

uint64_t engine_extent(const engine *at, const engine_state *state, uint32_t group,
                       uint64_t *out_first)
{
    const kvarve_group *description = &at->layout->groups[group];
    const uint64_t span = description->span_tokens;

    *out_first = 0;
    if (!has_tokens(description)) {
        return parts(at, state, 0, group);
    }
    if (description->page_class == WINDOW && state->tokens > description->window_tokens) {
        *out_first = (state->tokens - description->window_tokens) / span;
    }
    return (state->tokens + span - 1) / span - *out_first;
}

/* Tokens up to which a page's bytes are decided, and how many it holds. */
static uint64_t page_end(const engine *at, const engine_state *state, uint32_t group,
                         uint64_t position, uint64_t *out_tokens)
{
    const kvarve_group *description = &at->layout->groups[group];
    const uint64_t span = description->span_tokens;
    uint64_t end = (position + 1) * span;

    if (!has_tokens(description)) {
        *out_tokens = 0;
        return state->tokens;
    }
    end = end < state->tokens ? end : state->tokens;
    *out_tokens = end - position * span;
    return end;
}

size_t engine_page_size(const engine *at, const engine_state *state, uint32_t rank, uint32_t group,
                        uint64_t position)
{
    const kvarve_group *description = &at->layout->groups[group];
    const uint64_t page = description->page_bytes;
    uint64_t tokens;

    if (!has_tokens(description)) {
        const uint64_t left = state_bytes(at, state, rank, group) - position * page;

        return (size_t)(left < page ? left : page);
    }
    (void)page_end(at, state, group, position, &tokens);
    return (size_t)((description->flags & KVARVE_GROUP_ROWS) != 0
                        ? tokens * (page / description->span_tokens)
                        : page);
}

engine_total engine_count(const engine *at, const engine_state *state)
{
    engine_total total = {0};

    for (uint32_t group = 0; group < at->layout->group_count; group++) {
        const kvarve_group *description = &at->layout->groups[group];
        const uint32_t ranks = is_replicated(description) ? 1 : at->layout->ranks;
        uint64_t first;
        const uint64_t count = engine_extent(at, state, group, &first);

        for (uint32_t rank = 0; rank < ranks; rank++) {
            for (uint64_t i = 0; i < count; i++) {
                const size_t size = engine_page_size(at, state, rank, group, first + i);

                *(is_optional(description) ? &total.draft_pages : &total.pages) += 1;
                *(is_optional(description) ? &total.draft_bytes : &total.bytes) += size;
            }
        }
    }
    return total;
}

/* --- its bytes --- */

static uint64_t mix(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

static uint64_t page_seed(const engine *at, const engine_state *state, uint32_t rank,
                          uint32_t group, uint64_t position)
{
    const kvarve_group *description = &at->layout->groups[group];
    uint8_t digest[KVARVE_DIGEST_SIZE] = {0};
    uint64_t tokens;
    uint64_t seed;
    const uint64_t end = page_end(at, state, group, position, &tokens);

    if (kvarve_prefix_digest(state->prefix, end, digest, NULL) != KVARVE_OK) {
        return 0;
    }
    memcpy(&seed, digest, sizeof seed);
    seed = mix(seed + group + 1);
    seed = mix(seed + (is_replicated(description) ? 99 : rank));
    seed = mix(seed + position);
    if (description->page_class == KVARVE_CLASS_AUXILIARY) {
        seed = mix(mix(seed + state->kind) + state->draft_tokens);
    }
    if ((description->flags & KVARVE_GROUP_DRAFT_ROWS) != 0 && end == state->tokens &&
        state->draft_tokens < end) {
        seed = mix(seed + 1000 + state->draft_tokens);
    }
    return mix(seed + state->variant);
}

void engine_fill(const engine *at, const engine_state *state, uint32_t rank, uint32_t group,
                 uint64_t position, void *bytes)
{
    const size_t size = engine_page_size(at, state, rank, group, position);
    uint64_t word = page_seed(at, state, rank, group, position);
    uint8_t *to = bytes;

    for (size_t i = 0; i < size; i += sizeof word) {
        const size_t left = size - i;

        word = word * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memcpy(to + i, &word, left < sizeof word ? left : sizeof word);
    }
}

bool engine_is_right(const engine *at, const engine_state *state, uint32_t rank, uint32_t group,
                     uint64_t position, const void *bytes, size_t size)
{
    uint8_t *wanted = kvarve_allocate(ENGINE_PAGE_MAX);
    bool is_right = wanted != NULL && size == engine_page_size(at, state, rank, group, position);

    if (is_right) {
        engine_fill(at, state, rank, group, position, wanted);
        is_right = memcmp(wanted, bytes, size) == 0;
    }
    kvarve_release(wanted);
    return is_right;
}

/* --- puts --- */

/* Options with what they point to. */
typedef struct prepared {
    kvarve_put_options options;
    kvarve_page_digest *digests;
    uint64_t *sizes;
} prepared;

static void discard(prepared *gone)
{
    kvarve_release(gone->digests);
    kvarve_release(gone->sizes);
}

static bool add_digests(const engine *at, const engine_state *state, uint32_t group, prepared *out,
                        uint8_t *scratch)
{
    const kvarve_group *description = &at->layout->groups[group];
    const uint32_t ranks = is_replicated(description) ? 1 : at->layout->ranks;
    uint64_t first;
    const uint64_t count = engine_extent(at, state, group, &first);

    for (uint32_t rank = 0; rank < ranks; rank++) {
        for (uint64_t i = 0; i < count; i++) {
            kvarve_page_digest *to = &out->digests[out->options.digest_count++];
            const size_t size = engine_page_size(at, state, rank, group, first + i);
            page_digest digest;

            engine_fill(at, state, rank, group, first + i, scratch);
            digest = page_digest_of(scratch, size);
            *to = (kvarve_page_digest){.rank = is_replicated(description) ? KVARVE_RANK_ALL : rank,
                                       .group = group,
                                       .position = first + i};
            memcpy(to->digest, digest.bytes, sizeof to->digest);
        }
    }
    return true;
}

static bool add_all_digests(const engine *at, const engine_state *state, prepared *out)
{
    const engine_total total = engine_count(at, state);
    uint8_t *scratch = kvarve_allocate(ENGINE_PAGE_MAX);

    out->digests =
        kvarve_allocate_array((size_t)(total.pages + total.draft_pages) + 1, sizeof *out->digests);
    for (uint32_t group = 0;
         group < at->layout->group_count && scratch != NULL && out->digests != NULL; group++) {
        add_digests(at, state, group, out, scratch);
    }
    kvarve_release(scratch);
    out->options.digests = out->digests;
    return scratch != NULL && out->digests != NULL;
}

static kvarve_status prepare(const engine *at, const engine_state *state, prepared *out,
                             kvarve_error *err)
{
    const uint32_t groups = at->layout->group_count;

    *out = (prepared){.options = KVARVE_PUT_OPTIONS_INIT};
    out->options.tokens = state->tokens;
    out->options.draft_tokens = state->draft_tokens;
    out->options.kind = state->kind;
    out->options.flags = state->has_no_optional ? KVARVE_PUT_NO_OPTIONAL : 0;
    out->sizes = kvarve_allocate_array((size_t)groups * at->layout->ranks, sizeof *out->sizes);
    if (out->sizes == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "engine: sizes");
    }
    for (uint32_t rank = 0; rank < at->layout->ranks; rank++) {
        for (uint32_t group = 0; group < groups; group++) {
            out->sizes[rank * groups + group] = state_bytes(at, state, rank, group);
        }
    }
    out->options.sizes = out->sizes;
    if (at->layout->is_exact && state->tokens > 0 && !add_all_digests(at, state, out)) {
        discard(out);
        return kvarve_fail(err, KVARVE_NO_MEMORY, "engine: digests");
    }
    return KVARVE_OK;
}

kvarve_status engine_put_begin(const engine *at, const engine_state *state,
                               const engine_begin *more, kvarve_put **out, kvarve_error *err)
{
    prepared ready;
    kvarve_status status = prepare(at, state, &ready, err);

    if (status != KVARVE_OK) {
        return status;
    }
    if (more != NULL) {
        ready.options.cookie = more->cookie;
        ready.options.timeout_ms = more->timeout_ms;
        ready.options.flags |= more->flags;
    }
    status = kvarve_put_begin(at->space, state->prefix, &ready.options, out, err);
    discard(&ready);
    return status;
}

kvarve_status engine_put_extend(const engine *at, kvarve_put *put, const engine_state *state,
                                kvarve_error *err)
{
    prepared ready;
    kvarve_status status = prepare(at, state, &ready, err);

    if (status == KVARVE_OK) {
        status = kvarve_put_extend(put, state->prefix, state->tokens, ready.options.digests,
                                   ready.options.digest_count, err);
        discard(&ready);
    }
    return status;
}

kvarve_status engine_put_close(const engine *at, kvarve_put *put, const engine_state *state,
                               kvarve_error *err)
{
    prepared ready;
    kvarve_status status = prepare(at, state, &ready, err);

    if (status == KVARVE_OK) {
        status = kvarve_put_close(put, state->prefix, &ready.options, err);
        discard(&ready);
    }
    return status;
}

/* The plan of one rank; *out is released by the caller. */
static kvarve_status take_plan(kvarve_put *put, uint32_t rank, kvarve_page_plan **out,
                               size_t *out_count, kvarve_error *err)
{
    size_t count = 0;
    kvarve_status status = kvarve_put_plan(put, rank, NULL, 0, &count, err);

    if (status != KVARVE_OK) {
        return status;
    }
    *out = kvarve_allocate_array(count + 1, sizeof **out);
    if (*out == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "engine: a plan");
    }
    status = kvarve_put_plan(put, rank, *out, count, out_count, err);
    if (status != KVARVE_OK) {
        kvarve_release(*out);
    }
    return status;
}

kvarve_status engine_put_fill(const engine *at, kvarve_put *put, const engine_state *state,
                              uint32_t rank, engine_work *out, kvarve_error *err)
{
    kvarve_page_plan *plan = NULL;
    size_t count = 0;
    kvarve_status status = take_plan(put, rank, &plan, &count, err);

    if (status != KVARVE_OK) {
        return status;
    }
    for (size_t i = 0; i < count && status == KVARVE_OK; i++) {
        const kvarve_page_plan *page = &plan[i];

        if (page->size != engine_page_size(at, state, rank, page->group, page->position)) {
            status = kvarve_fail(err, KVARVE_CORRUPT, "engine: group %u page %llu has %u bytes",
                                 page->group, (unsigned long long)page->position, page->size);
        } else if (page->action == KVARVE_PAGE_COPY) {
            engine_fill(at, state, rank, page->group, page->position, page->address);
        }
        if (out != NULL) {
            out->copied += page->action == KVARVE_PAGE_COPY;
            out->have += page->action == KVARVE_PAGE_HAVE;
            out->waiting += page->action == KVARVE_PAGE_WAIT;
        }
    }
    kvarve_release(plan);
    return status;
}

/* One group of one rank, back to back. *out_bytes is released by the caller. */
static kvarve_status lay_out(const engine *at, const engine_state *state, uint32_t rank,
                             uint32_t group, uint8_t **out_bytes, size_t *out_size,
                             kvarve_error *err)
{
    uint64_t first;
    const uint64_t count = engine_extent(at, state, group, &first);
    size_t size = 0;

    *out_bytes = kvarve_allocate((size_t)count * at->layout->groups[group].page_bytes);
    if (*out_bytes == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "engine: a section");
    }
    for (uint64_t i = 0; i < count; i++) {
        engine_fill(at, state, rank, group, first + i, *out_bytes + size);
        size += engine_page_size(at, state, rank, group, first + i);
    }
    *out_size = size;
    return KVARVE_OK;
}

kvarve_status engine_put_write(const engine *at, kvarve_put *put, const engine_state *state,
                               uint32_t rank, kvarve_error *err)
{
    kvarve_status status = KVARVE_OK;

    for (uint32_t group = 0; group < at->layout->group_count && status == KVARVE_OK; group++) {
        uint8_t *bytes = NULL;
        size_t size = 0;
        uint64_t first;

        if (is_optional(&at->layout->groups[group]) && state->has_no_optional) {
            continue;
        }
        (void)engine_extent(at, state, group, &first);
        status = lay_out(at, state, rank, group, &bytes, &size, err);
        if (status == KVARVE_OK) {
            status = kvarve_put_write(put, rank, group, first, bytes, size, err);
        }
        kvarve_release(bytes);
    }
    return status;
}

kvarve_status engine_put_ranks(const engine *at, kvarve_put *put, const engine_state *state,
                               engine_work *out, kvarve_error *err)
{
    kvarve_status status = KVARVE_OK;

    for (uint32_t rank = 0; rank < at->layout->ranks && status == KVARVE_OK; rank++) {
        status = engine_put_fill(at, put, state, rank, out, err);
        if (status == KVARVE_OK) {
            status = kvarve_put_ack(put, rank, NULL, 0, err);
        }
    }
    return status;
}

kvarve_status engine_put(const engine *at, const engine_state *state, uint32_t *out_state,
                         kvarve_error *err)
{
    kvarve_put *put = NULL;
    kvarve_status status = engine_put_begin(at, state, NULL, &put, err);

    if (status != KVARVE_OK) {
        return status;
    }
    status = kvarve_put_wait(put, KVARVE_PUT_STAGED, 20000, err);
    if (status == KVARVE_OK && kvarve_put_status(put) == KVARVE_PUT_STAGED) {
        status = engine_put_ranks(at, put, state, NULL, err);
    }
    if (status == KVARVE_OK) {
        status = kvarve_put_wait(put, KVARVE_PUT_DURABLE, 20000, err);
    }
    if (out_state != NULL) {
        *out_state = kvarve_put_status(put);
    }
    kvarve_put_release(&put);
    return status;
}

/* --- leases --- */

static kvarve_status read_group(const engine *at, kvarve_lease *lease, const engine_state *state,
                                uint32_t rank, uint32_t group, kvarve_error *err)
{
    uint64_t wanted_first;
    uint64_t wanted_pages = engine_extent(at, state, group, &wanted_first);
    uint64_t first = 0;
    uint64_t pages = 0;
    uint64_t size = 0;
    uint8_t *wanted = NULL;
    size_t wanted_size = 0;
    uint8_t *got;
    kvarve_status status = kvarve_lease_extent(lease, rank, group, &first, &pages, &size, err);

    if (!has_tokens(&at->layout->groups[group])) {
        wanted_pages = parts(at, state, rank, group);
    }
    if (status == KVARVE_OK) {
        status = lay_out(at, state, rank, group, &wanted, &wanted_size, err);
    }
    if (status == KVARVE_OK &&
        (first != wanted_first || pages != wanted_pages || size != wanted_size)) {
        status = kvarve_fail(err, KVARVE_CORRUPT,
                             "engine: rank %u group %u has %llu pages from %llu, %llu bytes", rank,
                             group, (unsigned long long)pages, (unsigned long long)first,
                             (unsigned long long)size);
    }
    got = status == KVARVE_OK ? kvarve_allocate((size_t)size) : NULL;
    if (got != NULL) {
        status = kvarve_lease_read(lease, rank, group, first, got, (size_t)size, err);
        if (status == KVARVE_OK && memcmp(got, wanted, wanted_size) != 0) {
            status = kvarve_fail(err, KVARVE_CORRUPT, "engine: rank %u group %u: wrong bytes", rank,
                                 group);
        }
    }
    kvarve_release(got);
    kvarve_release(wanted);
    return status;
}

kvarve_status engine_read(const engine *at, kvarve_lease *lease, const engine_state *state,
                          bool has_draft, kvarve_error *err)
{
    kvarve_status status = KVARVE_OK;

    for (uint32_t rank = 0; rank < at->layout->ranks && status == KVARVE_OK; rank++) {
        for (uint32_t group = 0; group < at->layout->group_count && status == KVARVE_OK; group++) {
            if (has_draft || !is_optional(&at->layout->groups[group])) {
                status = read_group(at, lease, state, rank, group, err);
            }
        }
    }
    return status;
}

/* How many pages one rank sees. */
static size_t count_rank(const engine *at, const engine_state *state, uint32_t rank, bool has_draft)
{
    size_t count = 0;

    for (uint32_t group = 0; group < at->layout->group_count; group++) {
        const kvarve_group *description = &at->layout->groups[group];
        uint64_t first;

        if (has_draft || !is_optional(description)) {
            count += (size_t)(has_tokens(description) ? engine_extent(at, state, group, &first)
                                                      : parts(at, state, rank, group));
        }
    }
    return count;
}

static kvarve_status view_rank(const engine *at, kvarve_lease *lease, const engine_state *state,
                               uint32_t rank, bool has_draft, kvarve_error *err)
{
    const size_t wanted = count_rank(at, state, rank, has_draft);
    kvarve_page_view *views = kvarve_allocate_array(wanted + 1, sizeof *views);
    size_t count = 0;
    kvarve_status status = views == NULL
                               ? kvarve_fail(err, KVARVE_NO_MEMORY, "engine: views")
                               : kvarve_lease_pages(lease, rank, views, wanted, &count, err);

    if (status == KVARVE_OK && count != wanted) {
        status = kvarve_fail(err, KVARVE_CORRUPT, "engine: rank %u sees %zu pages, not %zu", rank,
                             count, wanted);
    }
    for (size_t i = 0; i < count && status == KVARVE_OK; i++) {
        if (!engine_is_right(at, state, rank, views[i].group, views[i].position, views[i].address,
                             views[i].size)) {
            status = kvarve_fail(err, KVARVE_CORRUPT,
                                 "engine: rank %u group %u page %llu: wrong bytes in place", rank,
                                 views[i].group, (unsigned long long)views[i].position);
        }
    }
    kvarve_release(views);
    return status;
}

kvarve_status engine_view(const engine *at, kvarve_lease *lease, const engine_state *state,
                          bool has_draft, kvarve_error *err)
{
    kvarve_status status = KVARVE_OK;

    for (uint32_t rank = 0; rank < at->layout->ranks && status == KVARVE_OK; rank++) {
        status = view_rank(at, lease, state, rank, has_draft, err);
    }
    return status;
}

kvarve_status engine_find(const engine *at, const engine_state *state, uint32_t mode,
                          kvarve_boundary *out, kvarve_lease **out_lease, kvarve_miss *out_miss,
                          kvarve_error *err)
{
    kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
    kvarve_boundary found = {0};
    size_t count = 0;
    kvarve_status status;

    options.min_tokens = state->tokens;
    options.max_tokens = state->tokens;
    options.kinds = 1u << state->kind;
    options.flags = KVARVE_FIND_NO_DERIVED;
    options.lease = mode;
    status = kvarve_find(at->space, state->prefix, &options, &found, 1, &count, out_lease, out_miss,
                         err);
    if (status == KVARVE_OK && out != NULL) {
        *out = found;
    }
    return status;
}

kvarve_status engine_restore(const engine *at, const engine_state *state, bool is_loaded,
                             kvarve_error *err)
{
    const uint32_t mode = is_loaded ? KVARVE_LEASE_LOAD : KVARVE_LEASE_SOFT;
    kvarve_lease *lease = NULL;
    kvarve_boundary found;
    kvarve_status status = engine_find(at, state, mode, &found, &lease, NULL, err);
    bool has_draft;

    if (status != KVARVE_OK) {
        return status;
    }
    has_draft = (found.flags & KVARVE_BOUNDARY_DRAFT) != 0;
    if (is_loaded) {
        status = kvarve_lease_wait(lease, 20000, NULL, err);
    }
    if (status == KVARVE_OK && is_loaded) {
        status = engine_view(at, lease, state, has_draft, err);
    }
    if (status == KVARVE_OK) {
        status = engine_read(at, lease, state, has_draft, err);
    }
    kvarve_lease_release(&lease);
    return status;
}

kvarve_prefix *engine_prefix(uint64_t seed, uint64_t count)
{
    kvarve_prefix *prefix = NULL;

    if (kvarve_prefix_create(&prefix, NULL) != KVARVE_OK) {
        return NULL;
    }
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t token = (uint32_t)(mix(seed * 1000003 + i) % 50000);

        if (kvarve_prefix_append(prefix, &token, 1, NULL) != KVARVE_OK) {
            kvarve_prefix_free(prefix);
            return NULL;
        }
    }
    return prefix;
}
