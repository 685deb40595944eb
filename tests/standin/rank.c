/*
 * rank.c - what a rank does for each request.
 *
 * Invariant: a rank knows nothing of a sequence but what the request brings and its memory holds.
 * Threads: one a rank. Of the store it calls what is for ranks only: regions_register, put_plan,
 * put_write, put_copy, put_ack, put_fail; lease_pages, lease_extent, lease_read, lease_copy and
 * its wait.
 */
#include "standin/rank.h"

#include <string.h>

#include "standin/digest.h"
#include "standin/link.h"
#include "standin/model.h"
#include "standin/pages.h"

#define COPY_TIMEOUT_MS 30000u

typedef struct rank_work {
    const standin_rank *of;
    standin_memory memory;
    link_message *request; /* the one that is served now */
    standin_table tables[STANDIN_GROUPS_MAX];
    kvarve_error err;
} rank_work;

/* --- the attachment: what changes when ranks are processes --- */

static kvarve_put *rank_put(const rank_work *work)
{
    return work->of->handles->puts[work->request->request.handle];
}

static kvarve_lease *rank_lease(const rank_work *work)
{
    return work->of->handles->lease;
}

/* --- put --- */

/* A put's auxiliary is one that is tied to its kind; ids[1] is the block for it. */
static void tie_auxiliaries(rank_work *work)
{
    const link_request *request = &work->request->request;
    const model_tie tie = {.kind = request->checkpoint_kind, .draft_tokens = request->draft_to};

    for (uint32_t g = 0; g < work->of->shape->group_count; g++) {
        standin_table *table = &work->tables[g];

        if (work->of->shape->groups[g].page_class == KVARVE_CLASS_AUXILIARY && table->count == 2) {
            model_tie_auxiliary(&work->memory, g, table->ids[0], table->ids[1], &tie);
            table->ids++;
            table->count--;
        }
    }
}

static void block_lists(const rank_work *work, const uint32_t **out_ids, size_t *out_counts)
{
    for (uint32_t g = 0; g < work->of->shape->group_count; g++) {
        out_ids[g] = work->tables[g].ids;
        out_counts[g] = work->tables[g].count;
    }
}

static kvarve_status hand_page(rank_work *work, const kvarve_page_plan *plan)
{
    const standin_page page = {plan->group, plan->first_token, plan->tokens};
    kvarve_status status = KVARVE_OK;
    uint8_t *bytes;

    if (plan->action != KVARVE_PAGE_COPY) {
        return KVARVE_OK;
    }
    if (plan->size != page_bytes(&work->memory, &page)) {
        return KVARVE_INVALID;
    }
    if (work->of->transfer == STANDIN_PLACE) {
        page_gather(&work->memory, &work->tables[plan->group], &page, plan->address);
        return KVARVE_OK;
    }
    bytes = standin_allocate(1, plan->size);
    if (bytes == NULL) {
        return KVARVE_NO_MEMORY;
    }
    page_gather(&work->memory, &work->tables[plan->group], &page, bytes);
    status = kvarve_put_write(rank_put(work), work->of->rank, plan->group, plan->position, bytes,
                              plan->size, &work->err);
    standin_release(bytes);
    return status;
}

/* In place or in pieces, page by page of the plan. */
static kvarve_status hand_pages(rank_work *work)
{
    kvarve_put *put = rank_put(work);
    kvarve_page_plan *plan;
    size_t count = 0;
    kvarve_status status = kvarve_put_plan(put, work->of->rank, NULL, 0, &count, &work->err);

    plan = status == KVARVE_OK ? standin_allocate(count + 1, sizeof *plan) : NULL;
    if (plan == NULL) {
        return status == KVARVE_OK ? KVARVE_NO_MEMORY : status;
    }
    status = kvarve_put_plan(put, work->of->rank, plan, count, &count, &work->err);
    for (size_t i = 0; i < count && status == KVARVE_OK; i++) {
        status = hand_page(work, &plan[i]);
    }
    standin_release(plan);
    return status == KVARVE_OK ? kvarve_put_ack(put, work->of->rank, NULL, 0, &work->err) : status;
}

static kvarve_status serve_put(rank_work *work)
{
    const uint32_t *ids[STANDIN_GROUPS_MAX];
    size_t counts[STANDIN_GROUPS_MAX];

    tie_auxiliaries(work);
    if (work->of->transfer != STANDIN_COPY) {
        return hand_pages(work);
    }
    block_lists(work, ids, counts);
    return kvarve_put_copy(rank_put(work), work->of->rank, ids, counts, 0, &work->err);
}

/* --- restore --- */

/* Whatever was in the blocks must not be what makes a restore right. */
static void spoil_targets(const rank_work *work)
{
    for (uint32_t g = 0; g < work->of->shape->group_count; g++) {
        for (uint32_t i = 0; i < work->tables[g].count; i++) {
            memory_spoil(&work->memory, g, work->tables[g].ids[i],
                         digest_two(work->request->request.seed, i));
        }
    }
}

static void scatter_view(const rank_work *work, const kvarve_page_view *view)
{
    const standin_page page = {view->group, view->first_token, view->tokens};

    page_scatter(&work->memory, &work->tables[view->group], &page, view->address);
}

static kvarve_status take_views(rank_work *work)
{
    kvarve_lease *lease = rank_lease(work);
    kvarve_page_view *views;
    size_t count = 0;
    size_t max = 0;
    kvarve_status status = KVARVE_OK;

    for (uint32_t g = 0; g < work->of->shape->group_count && status == KVARVE_OK; g++) {
        uint64_t first;
        uint64_t pages = 0;
        uint64_t bytes;

        status = kvarve_lease_extent(lease, work->of->rank, g, &first, &pages, &bytes, &work->err);
        max += (size_t)pages;
    }
    views = status == KVARVE_OK ? standin_allocate(max + 1, sizeof *views) : NULL;
    if (views == NULL) {
        return status == KVARVE_OK ? KVARVE_NO_MEMORY : status;
    }
    status = kvarve_lease_pages(lease, work->of->rank, views, max, &count, &work->err);
    for (size_t i = 0; i < count && status == KVARVE_OK; i++) {
        scatter_view(work, &views[i]);
    }
    standin_release(views);
    return status;
}

/* Cut a group's bytes into its pages again. */
static void scatter_group(const rank_work *work, uint32_t group, uint64_t first, uint64_t pages,
                          const uint8_t *bytes)
{
    const standin_group *of = &work->of->shape->groups[group];
    const uint64_t tokens = work->request->request.to;

    for (uint64_t i = 0; i < pages; i++) {
        standin_page page = {.group = group};

        if (!group_is_state(of)) {
            const uint64_t left = tokens - (first + i) * of->span_tokens;

            page.first_token = (first + i) * of->span_tokens;
            page.tokens = left < of->span_tokens ? (uint32_t)left : of->span_tokens;
        }
        page_scatter(&work->memory, &work->tables[group], &page, bytes);
        bytes += page_bytes(&work->memory, &page);
    }
}

static kvarve_status read_group(rank_work *work, uint32_t group)
{
    kvarve_lease *lease = rank_lease(work);
    uint64_t first = 0;
    uint64_t pages = 0;
    uint64_t size = 0;
    uint8_t *bytes;
    kvarve_status status =
        kvarve_lease_extent(lease, work->of->rank, group, &first, &pages, &size, &work->err);

    if (status != KVARVE_OK || pages == 0) {
        return status;
    }
    bytes = standin_allocate(1, (size_t)size);
    if (bytes == NULL) {
        return KVARVE_NO_MEMORY;
    }
    status =
        kvarve_lease_read(lease, work->of->rank, group, first, bytes, (size_t)size, &work->err);
    if (status == KVARVE_OK) {
        scatter_group(work, group, first, pages, bytes);
    }
    standin_release(bytes);
    return status;
}

static kvarve_status copy_out(rank_work *work)
{
    const uint32_t *ids[STANDIN_GROUPS_MAX];
    size_t counts[STANDIN_GROUPS_MAX];
    kvarve_status status;

    block_lists(work, ids, counts);
    status = kvarve_lease_copy(rank_lease(work), work->of->rank, ids, counts, 0, &work->err);
    if (status == KVARVE_OK) {
        status =
            kvarve_lease_copy_wait(rank_lease(work), work->of->rank, COPY_TIMEOUT_MS, &work->err);
    }
    return status;
}

/* A page that another rank found damaged fails the lease for all: a call that finds it so says
 * INVALID, as for a lease that was never loaded, and only the lease tells which it was. */
static kvarve_status judge_restore(rank_work *work, kvarve_status status)
{
    const bool is_lost = status == KVARVE_INVALID &&
                         kvarve_lease_wait(rank_lease(work), 0, NULL, NULL) == KVARVE_MISS;

    return is_lost ? KVARVE_MISS : status;
}

static kvarve_status serve_restore(rank_work *work)
{
    const link_request *request = &work->request->request;
    const model_tie tie = {.kind = request->checkpoint_kind, .draft_tokens = request->draft_from};
    kvarve_status status = KVARVE_OK;

    spoil_targets(work);
    if (work->of->transfer == STANDIN_COPY) {
        status = copy_out(work);
    } else if (work->of->transfer == STANDIN_PLACE) {
        status = take_views(work);
    } else {
        for (uint32_t g = 0; g < work->of->shape->group_count && status == KVARVE_OK; g++) {
            status = read_group(work, g);
        }
    }
    for (uint32_t g = 0; g < work->of->shape->group_count && status == KVARVE_OK; g++) {
        if (work->of->shape->groups[g].page_class == KVARVE_CLASS_AUXILIARY &&
            work->tables[g].count > 0) {
            model_tie_auxiliary(&work->memory, g, work->tables[g].ids[0], work->tables[g].ids[0],
                                &tie);
        }
    }
    return judge_restore(work, status);
}

/* --- faults made on purpose --- */

/* A token whose row the next token or the next logits read, of drafter and model alike; any one by
 * request.where, in a whole prefix, among the last ones in a window. */
static uint64_t some_token(const rank_work *work, uint32_t group)
{
    const standin_group *of = &work->of->shape->groups[group];
    const link_request *request = &work->request->request;
    const uint64_t end = request->draft_from > 0 ? request->draft_from : request->to;
    const uint64_t half = of->window_tokens / 2 - 1;
    const uint64_t reach = of->page_class == KVARVE_CLASS_WINDOW && end > half ? half : end;
    uint64_t token = end - 1 - digest_two(request->where, 0) % reach;

    while (!memory_has_row(&work->memory, group, token)) {
        token = token == 0 ? end - 1 : token - 1;
    }
    return token;
}

/* Any byte of it. */
static uint8_t *some_byte(const rank_work *work, uint32_t group)
{
    const standin_group *of = &work->of->shape->groups[group];
    const uint64_t where = work->request->request.where;
    const uint32_t layer = (uint32_t)(digest_two(where, 1) % of->layers);
    const uint64_t byte = digest_two(where, 2) % of->row_bytes;

    if (group_is_state(of)) {
        return memory_block(&work->memory, group, layer, work->tables[group].ids[0]) + byte;
    }
    return memory_row(&work->memory, group, &work->tables[group], layer,
                      (uint32_t)(digest_two(where, 3) % of->runs), some_token(work, group)) +
           byte;
}

/* The state's block, or the last one in which each row is valid. */
static uint32_t some_block(const rank_work *work, uint32_t group)
{
    const standin_group *of = &work->of->shape->groups[group];
    const standin_table *table = &work->tables[group];
    const link_request *request = &work->request->request;
    const uint64_t end = request->draft_from > 0 ? request->draft_from : request->to;

    return group_is_state(of) ? table->ids[0]
                              : table->ids[(end - table->first_token) / of->block_tokens - 1];
}

/* A block with other bytes than this one. */
static uint32_t other_block(const rank_work *work, uint32_t group, uint32_t block)
{
    const standin_group *of = &work->of->shape->groups[group];
    const uint8_t *bytes = memory_block(&work->memory, group, 0, block);
    const size_t size = group_block_bytes(work->of->shape, of);
    uint32_t other = block;

    do {
        other = (other + 1) % group_block_count(of);
    } while (memcmp(memory_block(&work->memory, group, 0, other), bytes, size) == 0);
    return other;
}

static void break_block(const rank_work *work, uint32_t group, uint32_t how)
{
    const standin_group *of = &work->of->shape->groups[group];
    const size_t size = group_block_bytes(work->of->shape, of);
    const size_t kept = how == STANDIN_BREAK_HALF ? size / 2 : 0;
    const uint32_t block = some_block(work, group);
    const uint32_t other = other_block(work, group, block);

    for (uint32_t layer = 0; layer < of->layers; layer++) {
        uint8_t *bytes = memory_block(&work->memory, group, layer, block);

        if (how == STANDIN_BREAK_FOREIGN) {
            memcpy(bytes, memory_block(&work->memory, group, layer, other), size);
        } else {
            digest_fill(bytes + kept, size - kept, block);
        }
    }
}

/* Apply the last token to the state that already has it. */
static void apply_twice(rank_work *work, uint32_t group)
{
    const link_request *request = &work->request->request;
    standin_table tables[STANDIN_GROUPS_MAX];
    const uint32_t ids[2] = {work->tables[group].ids[0], work->tables[group].ids[0]};
    const model_step step = {.tables = tables,
                             .from = request->to - 1,
                             .to = request->to,
                             .draft_from = request->draft_from - (request->draft_from > 0),
                             .draft_to = request->draft_from,
                             .tokens = link_tokens(work->request),
                             .token_first = request->token_first};

    memcpy(tables, work->tables, sizeof tables);
    tables[group].ids = ids;
    model_compute_group(&work->memory, &step, group);
}

static void tie_wrongly(rank_work *work, uint32_t group)
{
    const link_request *request = &work->request->request;
    const uint32_t block = work->tables[group].ids[0];
    const model_tie right = {.kind = request->checkpoint_kind, .draft_tokens = request->draft_from};
    const model_tie wrong = {.kind = right.kind ^ 1u, .draft_tokens = right.draft_tokens};

    model_tie_auxiliary(&work->memory, group, block, block, &right);
    model_tie_auxiliary(&work->memory, group, block, block, &wrong);
}

static void serve_break(rank_work *work)
{
    const link_request *request = &work->request->request;

    switch ((standin_break)request->how) {
    case STANDIN_BREAK_BYTE:
        *some_byte(work, request->group) ^= 0x10;
        break;
    case STANDIN_BREAK_TWICE:
        apply_twice(work, request->group);
        break;
    case STANDIN_BREAK_TIE:
        tie_wrongly(work, request->group);
        break;
    case STANDIN_BREAK_STALE:
    case STANDIN_BREAK_FOREIGN:
    case STANDIN_BREAK_HALF:
        break_block(work, request->group, request->how);
        break;
    case STANDIN_BREAK_NONE:
    case STANDIN_BREAK_COUNT:
        break;
    }
}

/* --- the loop --- */

static void serve_compute(rank_work *work)
{
    const link_request *request = &work->request->request;
    const model_step step = {.tables = work->tables,
                             .from = request->from,
                             .to = request->to,
                             .draft_from = request->draft_from,
                             .draft_to = request->draft_to,
                             .tokens = link_tokens(work->request),
                             .token_first = request->token_first};

    model_compute(&work->memory, &step);
}

static void serve(rank_work *work, link_reply *out)
{
    const link_request *request = &work->request->request;

    *out = (link_reply){.status = KVARVE_OK};
    work->err = (kvarve_error){.status = KVARVE_OK};
    link_tables(work->request, work->of->shape->group_count, work->tables);
    switch ((link_kind)request->kind) {
    case LINK_COMPUTE:
        serve_compute(work);
        break;
    case LINK_READ:
        out->value = model_read(&work->memory, work->tables, request->to, request->draft_to);
        break;
    case LINK_PUT:
        out->status = serve_put(work);
        break;
    case LINK_RESTORE:
        out->status = serve_restore(work);
        break;
    case LINK_BREAK:
        serve_break(work);
        break;
    case LINK_END:
        out->value = memory_gaps_are_whole(&work->memory);
        break;
    }
    memcpy(out->text, work->err.text, sizeof out->text);
}

void *rank_run(void *argument)
{
    const standin_rank *of = argument;
    rank_work work = {.of = of};
    link_reply reply = {.status = KVARVE_OK};
    bool goes_on;

    work.request = standin_allocate(1, sizeof *work.request);
    goes_on = work.request != NULL && memory_init(&work.memory, of->shape, of->rank, of->seed);
    if (!goes_on) {
        reply.status = KVARVE_NO_MEMORY;
    } else if (of->handles->space != NULL) {
        reply.status = memory_register(&work.memory, of->handles->space, &work.err);
        memcpy(reply.text, work.err.text, sizeof reply.text);
    }
    /* The first message says that the rank is there. */
    goes_on = link_send_reply(of->link, &reply) && goes_on;
    while (goes_on && link_take_request(of->link, work.request)) {
        serve(&work, &reply);
        goes_on = link_send_reply(of->link, &reply) && work.request->request.kind != LINK_END;
    }
    memory_deinit(&work.memory);
    standin_release(work.request);
    return NULL;
}
