/*
 * link.c - a client's connection: requests go out, answers find who waits for them.
 *
 * Invariants
 *   I1  Each request is in `pending` from before it is sent until its answer, or the break of the
 *       connection, is taken; its take is called once.
 *   I2  One thread receives, for all: the others that wait sleep on the condition, and one of them
 *       takes over when it stops. It does so without the mutex.
 *   I3  A message that no daemon sends breaks the connection; nothing of it is used.
 *   I4  While jobs' ends are taken (is_polling) nothing waits: the mutex stays taken.
 *   I5  After the break nothing is sent, received, or waited for, but jobs of ours.
 *
 * Threads: under the client's lock. A thread that asks or waits lets go of it meanwhile, so what
 * its caller knew before may have changed.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"
#include "client/client_private.h"
#include "env/socket.h"

#define NOTICES_MAX   1024u
#define PARKED_MAX    128u
#define LOOK_AGAIN_MS 20u

static _Thread_local bool has_waited;

bool client_has_waited(void)
{
    return has_waited;
}

uint64_t client_now(const client *at)
{
    return at->env.clock->monotonic_ns(at->env.clock);
}

uint64_t client_deadline(const door *base, uint32_t timeout_ms)
{
    return timeout_ms == KVARVE_NO_TIMEOUT
               ? KVARVE_NEVER
               : client_now(const_client_of(base)) + timeout_ms * KVARVE_NS_PER_MS;
}

void client_changed(client *at)
{
    if (at->waiters > 0) {
        condition_signal_all(&at->changed);
    }
    if (at->is_receiving && at->waker >= 0) {
        event_set(at->waker);
    }
}

/* --- the break --- */

kvarve_status client_gone(const client *at, kvarve_error *err)
{
    return kvarve_fail(err, KVARVE_UNAVAILABLE, "%s", at->failure);
}

void client_break(client *at, const char *format, ...)
{
    kvarve_link *link;
    va_list arguments;

    if (at->is_broken) {
        return;
    }
    va_start(arguments, format);
    (void)vsnprintf(at->failure, sizeof at->failure, format, arguments);
    va_end(arguments);
    at->is_broken = true;
    while ((link = kvarve_list_take_first(&at->pending)) != NULL) {
        client_pending *pending = KVARVE_LIST_ITEM(link, client_pending, link);

        table_remove(&at->by_id, &pending->by_id);
        (void)pending->take(at, pending, NULL); /* I1 */
    }
    if (at->event_fd >= 0) {
        event_set(at->event_fd);
    }
    client_changed(at);
}

static void break_by(client *at, int64_t rc, const char *what)
{
    if (rc == -ECONNRESET || rc == -EPIPE) {
        client_break(at, "the daemon is gone");
    } else {
        client_break(at, "the connection to the daemon: %s: error %d", what, (int)-rc);
    }
}

/* --- sending --- */

static void add_pending(client *at, client_pending *pending)
{
    kvarve_list_init(&pending->link);
    kvarve_list_append(&at->pending, &pending->link);
    table_add(&at->by_id, &pending->by_id, table_mix(pending->id));
}

static void remove_pending(client *at, client_pending *pending)
{
    kvarve_list_remove(&pending->link);
    table_remove(&at->by_id, &pending->by_id);
}

static client_pending *find_pending(const client *at, uint64_t id)
{
    kvarve_table_link *link = table_first(&at->by_id, table_mix(id));

    while (link != NULL && KVARVE_TABLE_ITEM(link, client_pending, by_id)->id != id) {
        link = table_next(link);
    }
    return link == NULL ? NULL : KVARVE_TABLE_ITEM(link, client_pending, by_id);
}

kvarve_status client_send(client *at, client_pending *pending, wire_message *request,
                          kvarve_error *err)
{
    client_transport *transport = at->transport;
    const kvarve_mapping *letter = request->type == WIRE_HELLO ? &at->letter.mapping : NULL;
    size_t size = 0;
    kvarve_status status;
    int rc;

    if (at->is_broken) {
        return client_gone(at, err);
    }
    request->id = ++at->next_id;
    status = wire_encode(request, at->out, sizeof at->out, &size, err);
    if (status != KVARVE_OK) {
        return status;
    }
    pending->id = request->id;
    pending->reply = wire_type_reply(request->type);
    rc = transport->send(transport, at->out, size, letter,
                         client_deadline(&at->base, at->io_timeout_ms));
    if (rc < 0) {
        break_by(at, rc, "send");
        return client_gone(at, err);
    }
    add_pending(at, pending);
    return KVARVE_OK;
}

/* --- receiving --- */

/* A whole message: to whom it is meant. */
static void dispatch(client *at, size_t size)
{
    wire_message message;
    client_pending *pending;
    kvarve_error err;

    if (wire_decode(at->in, size, &message, &err) != KVARVE_OK) {
        client_break(at, "the daemon's message is none: %.150s", err.text);
        return;
    }
    if (message.type == WIRE_EVENT) {
        const wire_event *event = &message.as.event;

        client_take_event_in(at, &(kvarve_event){.kind = event->kind,
                                                 .rank = event->rank,
                                                 .status = event->status,
                                                 .reason = event->reason,
                                                 .cookie = event->cookie});
        return;
    }
    if (message.type == WIRE_ERROR && message.id == 0) {
        client_break(at, "the daemon ended the connection: %.150s", message.as.error.text);
        return;
    }
    pending = find_pending(at, message.id);
    if (pending == NULL || (message.type != WIRE_ERROR && message.type != pending->reply)) {
        client_break(at, "the daemon answers what nobody asked"); /* I3 */
        return;
    }
    remove_pending(at, pending);
    if (!pending->take(at, pending, &message)) {
        client_break(at, "the daemon's %s makes no sense", wire_type_name(message.type));
    }
}

/* A message, without letting go of the mutex. As client_transport.receive. */
static int64_t receive_at_once(client *at, uint64_t deadline_ns)
{
    int64_t size;

    at->is_polling = at->is_still; /* jobs may come to their end in there (I4) */
    size = at->transport->receive(at->transport, at->in, sizeof at->in, deadline_ns);
    at->is_polling = false;
    if (size > 0) {
        dispatch(at, (size_t)size);
    } else if (size < 0 && size != -ETIMEDOUT) {
        break_by(at, size, "receive");
    }
    return size;
}

void client_drain(client *at)
{
    if (at->is_receiving) {
        return; /* whoever does takes it all */
    }
    while (!at->is_broken && receive_at_once(at, 0) > 0) {
    }
}

/* Without the mutex: a message, or -ETIMEDOUT, also when there is something else to look at. */
static int64_t receive_or_wake(client *at, uint64_t deadline_ns)
{
    poller_event events[2];
    const int count = poller_wait(at->poller, events, 2, deadline_ns);
    bool can_receive = false;

    for (int i = 0; i < count; i++) {
        if (events[i].context == &at->waker) {
            event_clear(at->waker);
        } else {
            can_receive = true;
        }
    }
    return count < 0      ? count
           : !can_receive ? -ETIMEDOUT
                          : at->transport->receive(at->transport, at->in, sizeof at->in, 0);
}

/* As the one that receives (I2). */
static void receive_for_all(client *at, uint64_t deadline_ns)
{
    int64_t size;

    at->is_receiving = true;
    client_contain_mutex(false);
    mutex_unlock(&at->mutex);
    size = receive_or_wake(at, deadline_ns);
    mutex_lock(&at->mutex);
    client_contain_mutex(true);
    at->turn++;
    at->is_receiving = false;
    client_contain_check(at);
    if (at->is_broken) {
        return; /* I5 */
    }
    if (size > 0) {
        dispatch(at, (size_t)size);
        client_drain(at);
    } else if (size < 0 && size != -ETIMEDOUT) {
        break_by(at, size, "receive");
    }
    client_changed(at); /* also: somebody may take over */
}

static void sleep_until_changed(client *at, uint64_t deadline_ns)
{
    at->waiters++;
    condition_wait(&at->changed, &at->mutex, deadline_ns);
    at->waiters--;
    at->turn++;
    client_contain_check(at);
}

/* Until something may have changed. False: the deadline passed, or nothing is left to happen. */
static bool await(client *at, uint64_t deadline_ns)
{
    KVARVE_ASSERT(!at->is_polling); /* I4 */
    if (client_now(at) >= deadline_ns) {
        return false;
    }
    if (at->is_still) {
        at->turn++;
        return !at->is_broken && receive_at_once(at, deadline_ns) != -ETIMEDOUT;
    }
    if (at->is_receiving || at->is_broken) {
        sleep_until_changed(at, deadline_ns);
    } else {
        receive_for_all(at, deadline_ns);
    }
    return true;
}

/* --- asking --- */

kvarve_status client_error_of(const wire_message *answer, kvarve_error *err)
{
    const wire_error *error = &answer->as.error;
    const kvarve_status status = (kvarve_status)error->status;

    if (status == KVARVE_MISS || status == KVARVE_BUSY) {
        return status;
    }
    (void)kvarve_fail(err, status, "%s", error->text);
    if (err != NULL) {
        err->os_errno = (int)error->os_errno;
    }
    return status;
}

static bool take_exchange(client *at, client_pending *pending, const wire_message *answer)
{
    client_exchange *what = (client_exchange *)(void *)pending;

    what->is_answered = true;
    if (answer == NULL) {
        what->status = client_gone(at, what->err);
        return true;
    }
    if (answer->type == WIRE_ERROR) {
        what->status = client_error_of(answer, what->err);
        return true;
    }
    what->reply = *answer;
    what->reply.bytes = NULL;
    if (what->read == NULL || what->read(what->context, answer)) {
        what->status = KVARVE_OK;
        return true;
    }
    what->status = kvarve_fail(what->err, KVARVE_UNAVAILABLE, "the daemon's %s makes no sense",
                               wire_type_name(answer->type));
    return false;
}

/* --- notices: nobody waits for the answer --- */

void client_notice_end(client *at, client_pending *pending)
{
    client_notice *notice = (client_notice *)(void *)pending;

    client_letter_give(&at->letter, notice->range);
    notice->next_spare = at->spare;
    at->spare = notice;
    at->notices--;
}

static bool take_notice(client *at, client_pending *pending, const wire_message *answer)
{
    (void)answer;
    client_notice_end(at, pending);
    return true;
}

static client_notice *take_spare(client *at)
{
    client_notice *notice = at->spare;

    if (notice == NULL) {
        return kvarve_allocate(sizeof *notice);
    }
    at->spare = notice->next_spare;
    return notice;
}

static void notify(client *at, wire_message *request, const client_notice *what)
{
    client_notice *notice = at->is_broken ? NULL : take_spare(at);

    if (notice == NULL) {
        client_letter_give(&at->letter, what->range);
        if (!at->is_broken) {
            client_break(at, "no memory for a message to the daemon");
        }
        return;
    }
    *notice = *what;
    at->notices++;
    if (client_send(at, &notice->pending, request, NULL) != KVARVE_OK) {
        (void)notice->pending.take(at, &notice->pending, NULL);
        return;
    }
    if (at->notices > NOTICES_MAX && !at->is_polling) {
        client_drain(at);
    }
}

void client_notify(client *at, wire_message *request, wire_letter range)
{
    notify(at, request, &(client_notice){.pending.take = take_notice, .range = range});
}

void client_notify_for(client *at, wire_message *request, client_take take, uint64_t subject)
{
    notify(at, request, &(client_notice){.pending.take = take, .subject = subject});
}

/* Its time is over: the answer, when it comes, is somebody else's. */
static void abandon(client *at, client_exchange *what)
{
    client_notice *notice = take_spare(at);

    if (notice == NULL) {
        client_break(at, "no memory for a message to the daemon");
        return;
    }
    remove_pending(at, &what->pending);
    *notice = (client_notice){.pending = what->pending, .subject = what->subject};
    notice->pending.take = what->late == NULL ? take_notice : what->late;
    at->notices++;
    add_pending(at, &notice->pending);
    what->is_answered = true;
    what->is_abandoned = true;
    what->status = KVARVE_BUSY;
}

kvarve_status client_ask(client *at, client_exchange *what, kvarve_error *err)
{
    const uint64_t deadline = client_now(at) + (uint64_t)at->io_timeout_ms * KVARVE_NS_PER_MS +
                              (what->is_parked ? (uint64_t)what->wait_ms * KVARVE_NS_PER_MS : 0);
    kvarve_status status;

    what->pending.take = take_exchange;
    what->is_answered = false;
    what->err = err;
    status = client_send(at, &what->pending, &what->request, err);
    if (status != KVARVE_OK) {
        return status;
    }
    while (!what->is_answered) {
        if (await(at, deadline) || what->is_answered) {
            continue;
        }
        if (what->is_parked) {
            abandon(at, what);
        } else {
            client_break(at, "the daemon does not answer"); /* and so is this one (I1) */
        }
    }
    return what->status;
}

/* --- the lock, and waiting --- */

bool client_poll_jobs(client *at)
{
    bool is_any;

    at->is_polling = true; /* I4 */
    is_any = at->env.executor->poll(at->env.executor);
    at->is_polling = false;
    return is_any;
}

void client_watch_add(client *at, client_watch *watch)
{
    if (watch->link.next == NULL) {
        kvarve_list_init(&watch->link);
    }
    kvarve_list_remove(&watch->link);
    kvarve_list_append(&at->watched, &watch->link);
}

void client_lock(door *base)
{
    client *at = client_of(base);

    mutex_lock(&at->mutex);
    at->turn++;
    has_waited = false;
    client_contain_begin(at, false);
}

void client_unlock(door *base)
{
    client *at = client_of(base);

    if (at->is_still && !at->is_polling) {
        client_drain(at); /* events, which nobody else receives */
    }
    client_contain_end();
    mutex_unlock(&at->mutex);
}

bool client_may_park(client *at)
{
    if (at->parked >= PARKED_MAX) {
        at->is_crowded = true;
    }
    return at->parked < PARKED_MAX;
}

/* A daemon that is alive but does nothing any more is noticed by asking it, now and then; and where
 * nothing could be parked, asking is all there is. */
static uint64_t soon(client *at, uint64_t deadline_ns)
{
    const uint32_t timeout_ms = at->is_crowded ? LOOK_AGAIN_MS : at->io_timeout_ms;

    at->is_crowded = false;
    return kvarve_min_u64(deadline_ns, client_deadline(&at->base, timeout_ms));
}

bool client_wait(door *base, uint64_t deadline_ns)
{
    client *at = client_of(base);
    uint64_t until;
    kvarve_link *link;

    if (client_now(at) >= deadline_ns) {
        has_waited = false;
        return false;
    }
    while (!at->is_broken && (link = kvarve_list_take_first(&at->watched)) != NULL) {
        client_watch *watch = KVARVE_LIST_ITEM(link, client_watch, link);

        watch->park(at, watch);
    }
    until = soon(at, deadline_ns);
    has_waited = true;
    if (at->is_still && at->is_broken) {
        return client_poll_jobs(at); /* nothing else goes on (I5) */
    }
    if (!await(at, until)) {
        has_waited = false;
        return false;
    }
    has_waited = client_now(at) < until; /* else whoever wants to know asks */
    return true;
}
