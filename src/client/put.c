/*
 * put.c - puts through the client door, but for their pages (put_page.c).
 *
 * Where a put stands is asked of the daemon when a call wants to know it, unless the answer is no
 * older than the lock. Who waits for it has a PUT_WAIT parked there for the next state, and is
 * woken by its answer.
 *
 * Threads: under the client's lock. Ownership: a released put stays until what it has parked is
 * answered.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/fail.h"
#include "client/client_private.h"

/* --- where it stands --- */

void client_put_take_status(client_put *put, const wire_put_status *status)
{
    const bool was_over = client_put_is_over(put);

    if (!was_over) {
        put->status = *status;
    } else if (status->has_id != 0 && put->status.has_id == 0) {
        put->status.has_id = 1;
        memcpy(put->status.id, status->id, sizeof put->status.id);
    }
    put->turn = put->at->turn;
    put->asked_ns = client_now(put->at);
    client_changed(put->at);
    if (put->at->is_shutting_down && !put->is_released && !client_put_is_over(put)) {
        client_watch_add(put->at, &put->watch);
    }
}

/* The state that a wait is to be parked for: the next one. */
static uint32_t target_of(const client_put *put)
{
    if (put->status.state == KVARVE_PUT_WAITING || put->status.is_settling != 0) {
        return KVARVE_PUT_STAGED;
    }
    return put->status.state == KVARVE_PUT_STAGED ? KVARVE_PUT_READY : KVARVE_PUT_DURABLE;
}

static void free_put(client_put *put)
{
    kvarve_release(put->sizes);
    kvarve_release(put);
}

/* A wait without an end is answered when this is so, and not before. */
static bool is_reached(const wire_put_status *status, uint32_t target)
{
    return status->refusal != KVARVE_REFUSED_NOT ||
           (status->state >= target && (target != KVARVE_PUT_STAGED || status->is_settling == 0));
}

static bool take_wait(client *at, client_pending *pending, const wire_message *answer)
{
    client_put_wait *wait = (client_put_wait *)(void *)pending;
    client_put *put = wait->put;
    const uint32_t target = KVARVE_PUT_STAGED + (uint32_t)(wait - put->waits);

    at->parked--;
    wait->is_out = false;
    put->answers--;
    if (put->is_released) {
        if (put->answers == 0) {
            free_put(put);
        }
        return true;
    }
    if (answer != NULL && answer->type == WIRE_PUT_STATE) {
        client_put_take_status(put, &answer->as.put_state.status);
        return is_reached(&answer->as.put_state.status, target);
    }
    return true;
}

/* As client_watch.park. */
static void park(client *at, client_watch *watch)
{
    client_put *put = KVARVE_LIST_ITEM(watch, client_put, watch);
    const uint32_t target = target_of(put);
    client_put_wait *wait = &put->waits[target - KVARVE_PUT_STAGED];
    wire_message request = {.type = WIRE_PUT_WAIT};

    if (client_put_is_over(put) || wait->is_out || !client_may_park(at)) {
        return;
    }
    request.as.put_wait =
        (wire_put_wait){.put = put->id, .state = target, .timeout_ms = KVARVE_NO_TIMEOUT};
    wait->pending.take = take_wait;
    wait->put = put;
    if (client_send(at, &wait->pending, &request, NULL) == KVARVE_OK) {
        wait->is_out = true;
        put->answers++;
        at->parked++;
    }
}

static bool is_parked(const client_put *put)
{
    return put->waits[target_of(put) - KVARVE_PUT_STAGED].is_out;
}

static void ask_state(client_put *put)
{
    client_exchange what = {.request.type = WIRE_PUT_WAIT};

    what.request.as.put_wait = (wire_put_wait){.put = put->id, .state = KVARVE_PUT_DURABLE};
    if (client_ask(put->at, &what, NULL) == KVARVE_OK) {
        client_put_take_status(put, &what.reply.as.put_state.status);
    }
}

void client_put_look(client_put *put)
{
    client *at = put->at;

    if (client_put_is_over(put)) {
        return;
    }
    if (!at->is_broken && !at->is_polling && put->turn != at->turn &&
        !(client_has_waited() && is_parked(put))) {
        ask_state(put);
    }
    if (at->is_broken && !client_put_is_over(put)) { /* nobody knows what became of it */
        put->status.state = KVARVE_PUT_ABORTED;
        put->status.refusal = KVARVE_REFUSED_FAILED;
        put->status.is_settling = 0;
        return;
    }
    if (!client_put_is_over(put)) {
        client_watch_add(at, &put->watch);
    }
}

uint32_t client_put_state(const door_put *base)
{
    client_put *put = client_const_put_of(base)->self;

    client_put_look(put);
    return put->status.state;
}

uint32_t client_put_refusal(const door_put *base)
{
    client_put *put = client_const_put_of(base)->self;

    client_put_look(put);
    return put->status.refusal;
}

bool client_put_is_settling(const door_put *base)
{
    client_put *put = client_const_put_of(base)->self;

    client_put_look(put);
    return put->status.is_settling != 0;
}

kvarve_status client_put_id(const door_put *base, uint8_t out_id[32], kvarve_error *err)
{
    client_put *put = client_const_put_of(base)->self;

    if (put->status.has_id == 0) {
        client_put_look(put);
    }
    if (put->status.has_id == 0) {
        return put->at->is_broken
                   ? client_gone(put->at, err)
                   : kvarve_fail(err, KVARVE_INVALID, "put: it has no id before it is ready");
    }
    memcpy(out_id, put->status.id, 32);
    return KVARVE_OK;
}

/* --- arguments --- */

/* What begin and close lay into the letter. */
typedef struct put_letter {
    wire_prefix prefix;
    wire_put_options options;
    client_letter_image *image;
} put_letter;

static void give_letter(client *at, const put_letter *given)
{
    client_letter_done(given->image);
    client_letter_give(&at->letter, given->options.digests);
    client_letter_give(&at->letter, given->options.sizes);
}

static size_t size_count(const client_namespace *space)
{
    return (size_t)space->layout.ranks * space->layout.group_count;
}

static kvarve_status put_sizes(const client_namespace *space, const uint64_t *sizes,
                               wire_letter *out, kvarve_error *err)
{
    const size_t count = sizes == NULL ? 0 : size_count(space);
    kvarve_status status =
        client_letter_take(&space->at->letter, count * WIRE_RECORD_SIZE_NUMBER, out, err);

    for (size_t i = 0; i < count && status == KVARVE_OK; i++) {
        const wire_number number = {.value = sizes[i]};

        status = wire_record_encode(
            WIRE_RECORD_NUMBER, &number,
            client_letter_bytes(&space->at->letter, *out) + i * WIRE_RECORD_SIZE_NUMBER, err);
    }
    return status;
}

/* On failure nothing is left there. */
static kvarve_status write_letter(const client_namespace *space, const kvarve_prefix *prefix,
                                  const kvarve_put_options *options, put_letter *out,
                                  kvarve_error *err)
{
    client *at = space->at;
    kvarve_status status;

    *out = (put_letter){.options = {.tokens = options->tokens,
                                    .draft_tokens = options->draft_tokens,
                                    .cookie = options->cookie,
                                    .kind = options->kind,
                                    .timeout_ms = options->timeout_ms,
                                    .flags = options->flags}};
    status = client_letter_prefix(&at->letter, prefix, &out->prefix, &out->image, err);
    if (status == KVARVE_OK) {
        status = client_put_digests(at, options->digests, options->digest_count,
                                    &out->options.digests, err);
    }
    if (status == KVARVE_OK) {
        status = put_sizes(space, options->sizes, &out->options.sizes, err);
    }
    if (status != KVARVE_OK) {
        give_letter(at, out);
    }
    return status;
}

/* --- begin --- */

/* A copy of what the caller says of VARIABLE groups; of nothing: NULL. */
static bool keep_sizes(client_put *put, const uint64_t *sizes)
{
    const size_t count = size_count(put->space);
    uint64_t *copy = sizes == NULL ? NULL : kvarve_allocate_array(count, sizeof *copy);

    if (sizes != NULL && copy == NULL) {
        return false;
    }
    if (copy != NULL) {
        memcpy(copy, sizes, count * sizeof *copy);
    }
    kvarve_release(put->sizes);
    put->sizes = copy;
    return true;
}

static client_put *make_put(client_namespace *space, const kvarve_put_options *options)
{
    client_put *put =
        kvarve_allocate(sizeof *put + (size_t)space->layout.ranks * sizeof put->plans[0]);

    if (put == NULL) {
        return NULL;
    }
    put->self = put;
    put->at = space->at;
    put->space = space;
    put->tokens = options->tokens;
    put->is_open = options->tokens == 0;
    put->flags = options->flags;
    put->watch.park = park;
    kvarve_list_init(&put->watch.link);
    kvarve_list_init(&put->link);
    if (!keep_sizes(put, options->sizes)) {
        free_put(put);
        return NULL;
    }
    return put;
}

kvarve_status client_put_begin(door_namespace *name, const kvarve_prefix *prefix,
                               const kvarve_put_options *options, door_put **out, kvarve_error *err)
{
    client_namespace *space = client_namespace_of(name);
    client *at = space->at;
    client_exchange what = {.request.type = WIRE_PUT_BEGIN};
    client_put *put = make_put(space, options);
    put_letter letter;
    kvarve_status status;

    if (put == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "put: its state");
    }
    status = write_letter(space, prefix, options, &letter, err);
    if (status == KVARVE_OK) {
        what.request.as.put_begin = (wire_put_begin){
            .space = space->id, .prefix = letter.prefix, .options = letter.options};
        status = client_ask(at, &what, err);
        give_letter(at, &letter);
    }
    if (status != KVARVE_OK) {
        free_put(put);
        return status;
    }
    put->id = what.reply.as.put_begun.put;
    put->arena = client_hold_arena(at);
    kvarve_list_append(&at->puts, &put->link);
    client_put_take_status(put, &what.reply.as.put_begun.status);
    *out = (door_put *)(void *)put;
    return KVARVE_OK;
}

/* --- open puts --- */

void client_put_forget_plans(client_put *put)
{
    for (uint32_t rank = 0; rank < put->space->layout.ranks; rank++) {
        client_plan_forget(&put->plans[rank]);
    }
    put->has_first_tokens = false;
}

kvarve_status client_put_extend(door_put *base, const kvarve_prefix *prefix, uint64_t tokens,
                                const kvarve_page_digest *digests, size_t count, kvarve_error *err)
{
    client_put *put = client_put_of(base);
    client *at = put->at;
    client_exchange what = {.request.type = WIRE_PUT_EXTEND};
    wire_put_extend *request = &what.request.as.put_extend;
    client_letter_image *image = NULL;
    kvarve_status status;

    *request = (wire_put_extend){.put = put->id, .tokens = tokens};
    status = client_letter_prefix(&at->letter, prefix, &request->prefix, &image, err);
    if (status == KVARVE_OK) {
        status = client_put_digests(at, digests, count, &request->digests, err);
        if (status == KVARVE_OK) {
            status = client_ask(at, &what, err);
            client_letter_give(&at->letter, request->digests);
        }
        client_letter_done(image);
    }
    if (status == KVARVE_OK) {
        put->tokens = tokens;
        client_put_forget_plans(put);
        client_put_take_status(put, &what.reply.as.put_state.status);
    } else {
        client_watch_add(at, &put->watch);
    }
    return status;
}

kvarve_status client_put_close(door_put *base, const kvarve_prefix *prefix,
                               const kvarve_put_options *options, kvarve_error *err)
{
    client_put *put = client_put_of(base);
    client *at = put->at;
    client_exchange what = {.request.type = WIRE_PUT_CLOSE};
    put_letter letter;
    kvarve_status status = write_letter(put->space, prefix, options, &letter, err);

    if (status != KVARVE_OK) {
        return status;
    }
    what.request.as.put_close =
        (wire_put_close){.put = put->id, .prefix = letter.prefix, .options = letter.options};
    status = client_ask(at, &what, err);
    give_letter(at, &letter);
    if (status != KVARVE_OK) {
        return status;
    }
    put->tokens = options->tokens;
    put->is_open = false;
    (void)!keep_sizes(put, options->sizes); /* without memory: states of any size have no parts */
    client_put_forget_plans(put);
    client_put_take_status(put, &what.reply.as.put_state.status);
    return KVARVE_OK;
}

/* --- the end --- */

kvarve_status client_put_fail(door_put *base, uint32_t rank, kvarve_error *err)
{
    client_put *put = client_put_of(base);
    client_exchange what = {.request.type = WIRE_PUT_FAIL};
    kvarve_status status;

    what.request.as.put_fail = (wire_put_fail){.put = put->id, .rank = rank};
    if (put->at->is_polling) {
        client_plan_forget(&put->plans[rank]);
        client_notify(put->at, &what.request, (wire_letter){0});
        return KVARVE_OK;
    }
    status = client_ask(put->at, &what, err);
    if (status == KVARVE_OK) {
        client_plan_forget(&put->plans[rank]);
        client_put_take_status(put, &what.reply.as.put_state.status);
    }
    return status;
}

void client_put_abort(door_put *base, uint32_t refusal)
{
    client_put *put = client_put_of(base);
    client_exchange what = {.request.type = WIRE_PUT_ABORT};

    if (client_put_is_over(put)) {
        return;
    }
    what.request.as.put_abort = (wire_put_abort){.put = put->id, .refusal = refusal};
    if (put->at->is_polling) {
        client_notify(put->at, &what.request, (wire_letter){0});
    } else if (client_ask(put->at, &what, NULL) == KVARVE_OK) {
        client_put_take_status(put, &what.reply.as.put_state.status);
    }
}

void client_put_release(door_put *base)
{
    client_put *put = client_put_of(base);
    client *at = put->at;
    wire_message request = {.type = WIRE_PUT_RELEASE, .as.put_release = {.put = put->id}};

    client_put_forget_plans(put);
    kvarve_list_remove(&put->watch.link);
    kvarve_list_remove(&put->link);
    put->is_released = true;
    client_let_arena(at, put->arena);
    put->answers++; /* this call's: a break would free it */
    client_notify(at, &request, (wire_letter){0});
    put->answers--;
    if (put->answers == 0) {
        free_put(put);
    }
}

void client_put_abort_all(client *at)
{
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &at->puts) {
        client_put *put = KVARVE_LIST_ITEM(link, client_put, link);
        wire_message request = {.type = WIRE_PUT_ABORT};

        if (client_put_is_over(put)) {
            continue;
        }
        if (put->status.state < KVARVE_PUT_READY) {
            request.as.put_abort =
                (wire_put_abort){.put = put->id, .refusal = KVARVE_REFUSED_CLOSED};
            client_notify(at, &request, (wire_letter){0});
        }
        client_watch_add(at, &put->watch);
    }
}

bool client_puts_are_over(const client *at)
{
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &at->puts) {
        const client_put *put = KVARVE_LIST_ITEM(link, client_put, link);

        if (!client_put_is_over(put) && put->status.refusal == KVARVE_REFUSED_NOT) {
            return false;
        }
    }
    return true;
}
