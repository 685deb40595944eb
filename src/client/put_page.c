/*
 * put_page.c - what a rank of a put is to copy, and the copies, through the client door.
 *
 * A rank's plan is asked for once a round, and kept until its ack: begin and end of a copy need no
 * message then. Digests that copies took go with the ack.
 *
 * Invariants
 *   I1  A plan has no address that client_address did not find in the arena.
 *   I2  An ack is sent only when every page of the plan that is to be copied was told to the caller
 *       or copied here: the daemon takes all that it planned for filled.
 *
 * Threads: under the client's lock.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"
#include "client/client_private.h"

#define PAGES_MAX  (UINT64_C(1) << 22) /* of one put */
#define TRIES      8u                  /* for a plan that changes while it is read in parts */
#define LOOK_EVERY (20 * KVARVE_NS_PER_MS)

static kvarve_status check_rank(const client_put *put, uint32_t rank, kvarve_error *err)
{
    const uint32_t ranks = put->space->layout.ranks;

    if (rank >= ranks) {
        return kvarve_fail(err, KVARVE_INVALID, "put: rank %u: 0 .. %u", rank, ranks - 1);
    }
    return KVARVE_OK;
}

void client_plan_forget(client_plan *plan)
{
    kvarve_release(plan->pages);
    *plan = (client_plan){0};
}

/* --- asking for it --- */

/* A plan that is being read, in parts. */
typedef struct plan_reader {
    const client_put *put;
    client_plan plan;
    uint64_t total;
} plan_reader;

static bool take_page(const client_put *put, const wire_plan_entry *from, client_page *out)
{
    *out = (client_page){.plan = {.group = from->group,
                                  .action = from->action,
                                  .position = from->position,
                                  .first_token = from->first_token,
                                  .tokens = from->tokens,
                                  .size = from->size},
                         .has_expected = from->has_expected != 0};
    memcpy(out->expected.bytes, from->expected, sizeof out->expected.bytes);
    if (from->group >= put->space->layout.group_count) {
        return false;
    }
    if (from->action != KVARVE_PAGE_COPY) {
        return true;
    }
    out->plan.address = client_address(put->arena, from->offset, from->size); /* I1 */
    return out->plan.address != NULL && from->size > 0;
}

static bool read_part(void *context, const wire_message *reply)
{
    plan_reader *reader = context;
    const uint64_t total = reply->as.put_planned.total;
    client_page *larger;

    if (total > PAGES_MAX || reader->plan.count + reply->count > total ||
        (reply->count == 0 && reader->plan.count < total)) {
        return false;
    }
    reader->total = total;
    if (reply->count == 0) {
        return true;
    }
    larger =
        kvarve_reallocate(reader->plan.pages, (reader->plan.count + reply->count) * sizeof *larger);
    if (larger == NULL) {
        return false;
    }
    reader->plan.pages = larger;
    for (uint32_t i = 0; i < reply->count; i++) {
        wire_plan_entry entry;

        wire_item(reply, i, &entry);
        if (!take_page(reader->put, &entry, &larger[reader->plan.count])) {
            return false;
        }
        reader->plan.count++;
    }
    return true;
}

static int compare_pages(const void *a, const void *b)
{
    const client_page *x = a;
    const client_page *y = b;

    if (x->plan.group != y->plan.group) {
        return x->plan.group < y->plan.group ? -1 : 1;
    }
    return (x->plan.position > y->plan.position) - (x->plan.position < y->plan.position);
}

static client_page *find_page(client_plan *plan, uint32_t group, uint64_t position)
{
    client_page wanted = {.plan = {.group = group, .position = position}};
    client_page *found;

    /* Callers go through pages in order. */
    if (plan->cursor < plan->count && compare_pages(&plan->pages[plan->cursor], &wanted) == 0) {
        return &plan->pages[plan->cursor++];
    }
    found = plan->count == 0
                ? NULL
                : bsearch(&wanted, plan->pages, plan->count, sizeof wanted, compare_pages);
    if (found != NULL) {
        plan->cursor = (size_t)(found - plan->pages) + 1;
    }
    return found;
}

/* What was done by the plan before is done. */
static void keep_done(client_plan *before, client_plan *now)
{
    for (size_t i = 0; i < before->count; i++) {
        const client_page *old = &before->pages[i];
        client_page *page = find_page(now, old->plan.group, old->plan.position);

        if (page != NULL && page->plan.action == KVARVE_PAGE_COPY &&
            page->plan.address == old->plan.address) {
            page->is_told = old->is_told;
            page->is_filled = old->is_filled;
            page->digest = old->digest;
        }
    }
}

static kvarve_status read_plan(client_put *put, uint32_t rank, plan_reader *reader,
                               kvarve_error *err)
{
    kvarve_status status = KVARVE_OK;
    uint64_t first_total = 0;

    do {
        client_exchange what = {
            .request.type = WIRE_PUT_PLAN, .read = read_part, .context = reader};

        what.request.as.put_plan = (wire_put_plan){
            .put = put->id, .rank = rank, .max = UINT32_MAX, .from = reader->plan.count};
        first_total = reader->total;
        status = client_ask(put->at, &what, err);
        if (status == KVARVE_OK && first_total != 0 && first_total != reader->total) {
            return KVARVE_BUSY; /* another one by now */
        }
    } while (status == KVARVE_OK && reader->plan.count < reader->total);
    return status;
}

static kvarve_status fetch_plan(client_put *put, uint32_t rank, kvarve_error *err)
{
    plan_reader reader = {.put = put};
    kvarve_status status = KVARVE_BUSY;

    for (uint32_t i = 0; i < TRIES && status == KVARVE_BUSY; i++) {
        client_plan_forget(&reader.plan);
        reader = (plan_reader){.put = put};
        status = read_plan(put, rank, &reader, err);
        if (status == KVARVE_BUSY && reader.total == 0) {
            break; /* it waits for room */
        }
    }
    if (status != KVARVE_OK) {
        client_plan_forget(&reader.plan);
        return status;
    }
    if (reader.plan.count > 0) {
        qsort(reader.plan.pages, reader.plan.count, sizeof *reader.plan.pages, compare_pages);
    }
    keep_done(&put->plans[rank], &reader.plan);
    client_plan_forget(&put->plans[rank]);
    put->plans[rank] = reader.plan;
    put->plans[rank].is_known = true;
    put->plans[rank].cursor = 0;
    put->has_first_tokens = false;
    return KVARVE_OK;
}

/* A call without room asks; one with room is answered from what was asked last, so that both say
 * the same. */
kvarve_status client_put_plan(door_put *base, uint32_t rank, kvarve_page_plan *out_pages,
                              size_t max, size_t *out_count, kvarve_error *err)
{
    client_put *put = client_put_of(base);
    client_plan *plan;
    kvarve_status status = check_rank(put, rank, err);

    if (status != KVARVE_OK) {
        return status;
    }
    plan = &put->plans[rank];
    if (out_pages == NULL || !plan->is_known) {
        status = fetch_plan(put, rank, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    for (size_t i = 0; i < plan->count && i < max && out_pages != NULL; i++) {
        out_pages[i] = plan->pages[i].plan;
        plan->pages[i].is_told = true;
    }
    *out_count = plan->count;
    return KVARVE_OK;
}

static bool read_first_tokens(void *context, const wire_message *reply)
{
    client_put *put = context;

    if (reply->count != put->space->layout.group_count) {
        return false;
    }
    for (uint32_t i = 0; i < reply->count; i++) {
        wire_number number;

        wire_item(reply, i, &number);
        put->first_tokens[i] = number.value;
    }
    return true;
}

uint64_t client_put_first_token(const door_put *base, uint32_t group)
{
    client_put *put = client_const_put_of(base)->self;
    client_exchange what = {
        .request.type = WIRE_PUT_FIRST_TOKENS, .read = read_first_tokens, .context = put};

    if (!put->has_first_tokens) {
        what.request.as.put_first_tokens.put = put->id;
        if (client_ask(put->at, &what, NULL) != KVARVE_OK) {
            return UINT64_MAX;
        }
        put->has_first_tokens = true;
    }
    return put->first_tokens[group];
}

/* --- one page --- */

static kvarve_status no_page(uint32_t rank, uint32_t group, uint64_t position, kvarve_error *err)
{
    return kvarve_fail(err, KVARVE_INVALID, "put: rank %u group %u has no page %llu", rank, group,
                       (unsigned long long)position);
}

/* Bytes of a state that stand in this part; 0: it has no such part. */
static uint64_t part_size(const client_put *put, uint32_t rank, uint32_t group, uint64_t position)
{
    const kvarve_group *description = &put->space->layout.groups[group];
    const bool is_replicated = (description->flags & KVARVE_GROUP_REPLICATED) != 0;
    const uint64_t page = description->page_bytes;
    uint64_t size = page;

    if ((description->flags & KVARVE_GROUP_VARIABLE) != 0) {
        size =
            put->sizes == NULL
                ? 0
                : put->sizes[(is_replicated ? 0 : (uint64_t)rank) * put->space->layout.group_count +
                             group];
    }
    return position < kvarve_divide_up(size, page) ? kvarve_min_u64(size - position * page, page)
                                                   : 0;
}

/* Does the put have this page of tokens, of whichever rank? */
static bool has_tokens_page(const client_put *put, const kvarve_group *description,
                            uint64_t position)
{
    const uint64_t span = description->span_tokens;

    if (position >= kvarve_divide_up(put->tokens, span)) {
        return false;
    }
    /* A page before the window is none of it. */
    return description->page_class != KVARVE_CLASS_WINDOW ||
           put->status.state >= KVARVE_PUT_READY || put->tokens <= description->window_tokens ||
           (position + 1) * span > put->tokens - description->window_tokens;
}

/* A page that the plan does not list: one of the stored history, or another rank's. */
static kvarve_status describe_known(const client_put *put, uint32_t rank, uint32_t group,
                                    uint64_t position, store_target *out, kvarve_error *err)
{
    const kvarve_group *description = &put->space->layout.groups[group];
    const bool is_tokens = description->page_class <= KVARVE_CLASS_WINDOW;
    const bool is_left_out = ((description->flags & KVARVE_GROUP_OPTIONAL) != 0 &&
                              (put->flags & KVARVE_PUT_NO_OPTIONAL) != 0) ||
                             (put->is_open && description->page_class != KVARVE_CLASS_PREFIX);
    const uint64_t span = description->span_tokens;
    uint64_t tokens = 0;
    uint64_t size = 0;

    if (!is_left_out && !is_tokens) {
        size = part_size(put, rank, group, position);
    } else if (!is_left_out && has_tokens_page(put, description, position)) {
        tokens = kvarve_min_u64(put->tokens - position * span, span);
        size = (description->flags & KVARVE_GROUP_ROWS) != 0
                   ? tokens * (description->page_bytes / span)
                   : description->page_bytes;
    }
    if (size == 0) {
        return no_page(rank, group, position, err);
    }
    *out = (store_target){.group = group,
                          .position = position,
                          .size = (uint32_t)size,
                          .first_token = position * span,
                          .tokens = (uint32_t)tokens};
    return KVARVE_OK;
}

static void describe_page(client_plan *plan, const client_page *page, store_target *out)
{
    *out = (store_target){.group = page->plan.group,
                          .position = page->plan.position,
                          .size = page->plan.size,
                          .first_token = page->plan.first_token,
                          .tokens = page->plan.tokens};
    if (page->plan.action == KVARVE_PAGE_COPY) {
        out->page = plan; /* for the end: whose it is */
        out->address = page->plan.address;
        out->has_expected = page->has_expected;
        out->expected = page->expected;
    }
}

/* The put may have been given up meanwhile: look, but not for every page. */
static void look_now_and_then(client_put *put)
{
    if (put->at->is_still || client_now(put->at) - put->asked_ns > LOOK_EVERY) {
        client_put_look(put);
    }
}

kvarve_status client_put_copy_begin(door_put *base, uint32_t rank, uint32_t group,
                                    uint64_t position, store_target *out, kvarve_error *err)
{
    client_put *put = client_put_of(base);
    const client_page *page;
    kvarve_status status = check_rank(put, rank, err);

    if (status != KVARVE_OK) {
        return status;
    }
    look_now_and_then(put);
    if (put->at->is_broken) {
        return client_gone(put->at, err);
    }
    if (put->status.state == KVARVE_PUT_ABORTED) {
        return KVARVE_MISS;
    }
    if (group >= put->space->layout.group_count) {
        return kvarve_fail(err, KVARVE_INVALID, "put: group %u: 0 .. %u", group,
                           put->space->layout.group_count - 1);
    }
    if (put->status.state >= KVARVE_PUT_READY) {
        return describe_known(put, rank, group, position, out, err);
    }
    if (put->status.state == KVARVE_PUT_WAITING) {
        client_put_look(put);
        if (put->status.state == KVARVE_PUT_WAITING) {
            return KVARVE_BUSY;
        }
    }
    if (!put->plans[rank].is_known) {
        status = fetch_plan(put, rank, err);
        if (status != KVARVE_OK) {
            return status;
        }
    }
    page = find_page(&put->plans[rank], group, position);
    if (page == NULL) {
        return describe_known(put, rank, group, position, out, err);
    }
    describe_page(&put->plans[rank], page, out);
    return KVARVE_OK;
}

void client_put_copy_end(door_put *base, const store_target *target, const page_digest *digest)
{
    client_page *page;

    (void)base;
    if (target->page == NULL) {
        return;
    }
    page = find_page(target->page, target->group, target->position);
    if (page == NULL || page->plan.address != target->address) {
        return; /* the round is over */
    }
    page->is_filled = digest != NULL;
    if (digest != NULL) {
        page->digest = *digest;
    } else {
        page->is_told = false; /* the offer is taken back */
    }
}

/* --- ack --- */

/* I2 */
static bool is_complete(const client_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        const client_page *page = &plan->pages[i];

        if (page->plan.action == KVARVE_PAGE_COPY && !page->is_told && !page->is_filled) {
            return false;
        }
    }
    return true;
}

static size_t count_filled(const client_plan *plan)
{
    size_t count = 0;

    for (size_t i = 0; i < plan->count; i++) {
        count += plan->pages[i].is_filled;
    }
    return count;
}

/* The caller's digests, but of pages that were copied here, and those of these. */
static kvarve_status gather_digests(client_put *put, uint32_t rank,
                                    const kvarve_page_digest *digests, size_t count,
                                    wire_letter *out, kvarve_error *err)
{
    client_plan *plan = &put->plans[rank];
    const size_t filled = count_filled(plan);
    kvarve_page_digest *all;
    size_t used = 0;
    kvarve_status status;

    if (filled == 0) {
        return client_put_digests(put->at, digests, count, out, err);
    }
    all = kvarve_allocate_array(count + filled, sizeof *all);
    if (all == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "put: %zu digests", count + filled);
    }
    for (size_t i = 0; i < count; i++) {
        const client_page *page = find_page(plan, digests[i].group, digests[i].position);

        if (page == NULL || !page->is_filled) {
            all[used++] = digests[i];
        }
    }
    for (size_t i = 0; i < plan->count; i++) {
        const client_page *page = &plan->pages[i];

        if (page->is_filled) {
            all[used] = (kvarve_page_digest){
                .rank = rank, .group = page->plan.group, .position = page->plan.position};
            memcpy(all[used++].digest, page->digest.bytes, sizeof page->digest.bytes);
        }
    }
    status = client_put_digests(put->at, all, used, out, err);
    kvarve_release(all);
    return status;
}

kvarve_status client_put_ack(door_put *base, uint32_t rank, const kvarve_page_digest *digests,
                             size_t count, kvarve_error *err)
{
    client_put *put = client_put_of(base);
    client *at = put->at;
    client_exchange what = {.request.type = WIRE_PUT_ACK};
    wire_put_ack *request = &what.request.as.put_ack;
    kvarve_status status = check_rank(put, rank, err);

    if (status != KVARVE_OK) {
        return status;
    }
    if (!is_complete(&put->plans[rank])) {
        client_put_look(put);
        if (put->status.state == KVARVE_PUT_STAGED) {
            return KVARVE_OK; /* the rank is to hand over the rest, and ack again */
        }
    }
    *request = (wire_put_ack){.put = put->id, .rank = rank};
    status = gather_digests(put, rank, digests, count, &request->digests, err);
    if (status != KVARVE_OK) {
        return status;
    }
    if (at->is_polling) {
        client_plan_forget(&put->plans[rank]);
        client_notify(at, &what.request, request->digests);
        return KVARVE_OK;
    }
    status = client_ask(at, &what, err);
    client_letter_give(&at->letter, request->digests);
    if (status == KVARVE_OK || status == KVARVE_MISS) {
        client_plan_forget(&put->plans[rank]);
    }
    if (status == KVARVE_OK) {
        client_put_take_status(put, &what.reply.as.put_state.status);
    }
    return status;
}
