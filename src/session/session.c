/*
 * session.c - the life of a session: opened, greeted, gone, dead; and which request goes where.
 *
 * Invariants
 *   I1  Nothing but HELLO is taken before HELLO, and HELLO once.
 *   I2  A request that was understood is answered exactly once, now or later; so no client waits
 *       for ever but for a connection that ends.
 *
 * Threads: the daemon's one.
 */
#include "session/session.h"

#include <inttypes.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/fail.h"
#include "session/session_private.h"

/* Where a range of no bytes lies, when no letter came. */
static const uint8_t no_letter[WIRE_LETTER_ALIGN] __attribute__((aligned(WIRE_LETTER_ALIGN)));

kvarve_status session_open(session_host *host, const session_peer *peer, session **out,
                           kvarve_error *err)
{
    const uint32_t quarantined = host_quarantined(host, peer->uid);
    session *made;

    if (quarantined >= host->limits.quarantined) {
        return kvarve_fail(err, KVARVE_BUSY,
                           "client %" PRId64 ": user %u has %u clients whose connection is closed "
                           "and which still run, at most %u",
                           peer->pid, peer->uid, quarantined, host->limits.quarantined);
    }
    made = kvarve_allocate(sizeof *made);
    if (made == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "client %" PRId64 ": its session", peer->pid);
    }
    if (!table_init(&made->handles) || !table_init(&made->page_pins)) {
        table_deinit(&made->handles);
        kvarve_release(made);
        return kvarve_fail(err, KVARVE_NO_MEMORY, "client %" PRId64 ": its tables", peer->pid);
    }
    made->host = host;
    made->peer = *peer;
    made->letter = no_letter;
    kvarve_list_init(&made->in_order);
    kvarve_list_init(&made->parked);
    kvarve_list_init(&made->queue);
    kvarve_list_append(&host->sessions, &made->link);
    *out = made;
    return KVARVE_OK;
}

void session_lend_letter(session *at, const void *letter, uint64_t size)
{
    KVARVE_ASSERT(!at->has_letter && !at->is_greeted);
    at->has_letter = true;
    at->letter = letter;
    at->letter_bytes = size;
}

/* --- requests --- */

static session_take_one function_of(uint32_t type)
{
    static const session_take_one functions[] = {
        [WIRE_NAMESPACE_OPEN] = take_namespace_open,
        [WIRE_NAMESPACE_RELEASE] = take_namespace_release,
        [WIRE_PUT_BEGIN] = take_put_begin,
        [WIRE_PUT_WAIT] = take_put_wait,
        [WIRE_PUT_PLAN] = take_put_plan,
        [WIRE_PUT_FIRST_TOKENS] = take_put_first_tokens,
        [WIRE_PUT_ACK] = take_put_ack,
        [WIRE_PUT_FAIL] = take_put_fail,
        [WIRE_PUT_EXTEND] = take_put_extend,
        [WIRE_PUT_CLOSE] = take_put_close,
        [WIRE_PUT_ABORT] = take_put_abort,
        [WIRE_PUT_RELEASE] = take_put_release,
        [WIRE_FIND] = take_find,
        [WIRE_FIND_POINTS] = take_find_points,
        [WIRE_FIND_ALL] = take_find_all,
        [WIRE_LEASE_LOAD] = take_lease_load,
        [WIRE_LEASE_WAIT] = take_lease_wait,
        [WIRE_LEASE_EXTENT] = take_lease_extent,
        [WIRE_LEASE_PAGES] = take_lease_pages,
        [WIRE_PAGE_BEGIN] = take_page_begin,
        [WIRE_PAGE_END] = take_page_end,
        [WIRE_READ_AHEAD] = take_read_ahead,
        [WIRE_LEASE_RELEASE] = take_lease_release,
        [WIRE_EXPORT] = take_export,
        [WIRE_ATTACH] = take_attach,
        [WIRE_FENCE] = take_fence,
        [WIRE_STATISTICS] = take_statistics,
        [WIRE_LIST] = take_list,
        [WIRE_DROP] = take_drop,
        [WIRE_VERIFY] = take_verify,
        [WIRE_TRIM] = take_trim,
        [WIRE_DOCUMENT] = take_document,
        [WIRE_STATUS] = take_status,
    };

    return type < sizeof functions / sizeof functions[0] ? functions[type] : NULL;
}

/* The connection is over: say why. */
static kvarve_status refuse(session *at, kvarve_status status, kvarve_error *err)
{
    session_reply_error(at, 0, status, err);
    return KVARVE_INVALID;
}

/* A message that can not be decoded: an answer to whoever asked, where that is known. */
static kvarve_status answer_garbage(session *at, const void *bytes, size_t size,
                                    kvarve_status status, kvarve_error *err)
{
    wire_head head;
    const bool has_head = wire_decode_head(bytes, size, &head, NULL) == KVARVE_OK;
    const bool is_known = has_head && wire_type_name(head.type) != NULL;

    if (!has_head || head.size != size || head.id == 0 || !at->is_greeted ||
        (is_known && wire_type_role(head.type) != WIRE_ROLE_REQUEST) || head.type == WIRE_HELLO) {
        return refuse(at, status, err);
    }
    session_reply_error(at, head.id, status, err);
    return KVARVE_OK;
}

static kvarve_status greet(session *at, const wire_message *request, kvarve_error *err)
{
    kvarve_status status;

    if (request->type != WIRE_HELLO || at->is_greeted) { /* I1 */
        status = kvarve_fail(err, KVARVE_INVALID, "%s %s HELLO", wire_type_name(request->type),
                             at->is_greeted ? "after" : "before");
    } else {
        status = take_hello(at, request, err);
    }
    return status == KVARVE_OK ? KVARVE_OK : refuse(at, status, err);
}

static kvarve_status take(session *at, const wire_message *request, kvarve_error *err)
{
    const session_take_one function = function_of(request->type);
    kvarve_error why = {0};
    kvarve_status status;

    if (!at->is_greeted || request->type == WIRE_HELLO) {
        return greet(at, request, err);
    }
    if (wire_type_role(request->type) != WIRE_ROLE_REQUEST) {
        status =
            kvarve_fail(err, KVARVE_INVALID, "%s is no request", wire_type_name(request->type));
        return refuse(at, status, err);
    }
    status = function == NULL ? kvarve_fail(&why, KVARVE_UNSUPPORTED, "%s is not served",
                                            wire_type_name(request->type))
                              : function(at, request, &why);
    if (status != KVARVE_OK) {
        session_reply_error(at, request->id, status, &why);
    }
    return KVARVE_OK;
}

kvarve_status session_take(session *at, const void *bytes, size_t size, kvarve_error *err)
{
    wire_message request;
    kvarve_error why = {0};
    kvarve_status status;

    if (at->is_gone) {
        return kvarve_fail(err, KVARVE_INVALID, "a message after the end of its connection");
    }
    status = wire_decode(bytes, size, &request, &why);
    status = status == KVARVE_OK ? take(at, &request, &why)
                                 : answer_garbage(at, bytes, size, status, &why);
    if (status == KVARVE_OK && at->is_broken) {
        status =
            kvarve_fail(&why, KVARVE_INVALID,
                        "%" PRIu64 " bytes of replies are not taken, at most %" PRIu64 " are kept",
                        at->queued_bytes, at->host->limits.backlog_bytes);
    }
    return status == KVARVE_OK ? KVARVE_OK : kvarve_fail(err, KVARVE_INVALID, "%s", why.text);
}

bool session_poll(session *at)
{
    if (!at->is_gone) {
        parked_poll(at);
    }
    return !kvarve_list_is_empty(&at->queue);
}

bool session_is_broken(const session *at)
{
    return at->is_broken;
}

/* --- the end --- */

bool session_gone(session *at)
{
    kvarve_link *link = at->in_order.next;

    at->is_gone = true;
    parked_drop_all(at);
    reply_drop_all(at);
    while (link != &at->in_order) {
        session_handle *handle = KVARVE_LIST_ITEM(link, session_handle, in_session);

        link = link->next;
        handle_leave(handle);
    }
    return kvarve_list_is_empty(&at->in_order);
}

void session_destroy(session *at)
{
    if (at == NULL) {
        return;
    }
    at->is_gone = true;
    while (!kvarve_list_is_empty(&at->in_order)) {
        handle_end(KVARVE_LIST_ITEM(at->in_order.next, session_handle, in_session));
    }
    parked_drop_all(at);
    reply_drop_all(at);
    kvarve_list_remove(&at->link);
    table_deinit(&at->handles);
    table_deinit(&at->page_pins);
    kvarve_release(at);
}

void session_count(const session *at, session_counters *out)
{
    *out = (session_counters){.namespaces = at->counts[HANDLE_SPACE],
                              .puts = at->counts[HANDLE_PUT],
                              .leases = at->counts[HANDLE_LEASE],
                              .pinned_slots = at->put_pin_count + at->page_pin_count,
                              .parked = at->parked_count,
                              .is_greeted = at->is_greeted,
                              .is_gone = at->is_gone};
}
