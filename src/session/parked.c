/*
 * parked.c - requests that can not be answered yet.
 *
 * A request is tried when it comes and at every poll, until it is answered or its deadline passes;
 * then it is tried once more and answered with how things stand. What it is about is looked up
 * anew at every attempt: it may have been released.
 *
 * Threads: the daemon's one.
 */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/fail.h"
#include "session/session_private.h"

kvarve_status parked_try(session *at, const wire_message *request, session_attempt attempt,
                         uint32_t timeout_ms, kvarve_error *err)
{
    const bool is_last = timeout_ms == 0;
    const kvarve_status status = attempt(at, request, is_last, err);
    parked_request *parked;

    if (status != KVARVE_BUSY || is_last) {
        return status;
    }
    if (at->parked_count >= at->host->limits.parked) {
        return kvarve_fail(err, KVARVE_NO_SPACE, "%u requests wait already, at most %u",
                           at->parked_count, at->host->limits.parked);
    }
    parked = kvarve_allocate(sizeof *parked);
    if (parked == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "a request that waits");
    }
    parked->request = *request;
    parked->request.bytes = NULL; /* the message is not kept */
    parked->attempt = attempt;
    parked->deadline_ns = host_deadline(at->host, timeout_ms);
    kvarve_list_append(&at->parked, &parked->link);
    at->parked_count++;
    return KVARVE_OK;
}

static void end(session *at, parked_request *parked)
{
    kvarve_list_remove(&parked->link);
    at->parked_count--;
    kvarve_release(parked);
}

void parked_poll(session *at)
{
    const uint64_t now = host_now(at->host);
    kvarve_link *link = at->parked.next;

    while (link != &at->parked) {
        parked_request *parked = KVARVE_LIST_ITEM(link, parked_request, link);
        const bool is_last = parked->deadline_ns <= now;
        kvarve_error err = {0};
        const kvarve_status status = parked->attempt(at, &parked->request, is_last, &err);

        link = link->next;
        if (status == KVARVE_BUSY && !is_last) {
            continue;
        }
        if (status != KVARVE_OK) {
            session_reply_error(at, parked->request.id, status, &err);
        }
        end(at, parked);
    }
}

void parked_drop_all(session *at)
{
    while (!kvarve_list_is_empty(&at->parked)) {
        end(at, KVARVE_LIST_ITEM(at->parked.next, parked_request, link));
    }
}

uint64_t session_deadline(const session *at)
{
    uint64_t next = KVARVE_NEVER;
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &at->parked) {
        next = kvarve_min_u64(next, KVARVE_LIST_ITEM(link, parked_request, link)->deadline_ns);
    }
    return next;
}
