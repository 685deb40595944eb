/*
 * reply.c - messages to a client: encoded, and queued until the connection takes them.
 *
 * Invariants
 *   I1  The queue is bounded. A client that does not take its replies loses its connection, not
 *       the daemon its memory.
 *   I2  A message that is lost breaks the connection: a client would wait for it for ever.
 *   I3  The host's scratch holds at most one reply whose items are being put in place. A call into
 *       the store between them may send events, to anybody: those are encoded elsewhere.
 *
 * Threads: the daemon's one.
 */
#include <string.h>

#include "base/alloc.h"
#include "session/session_private.h"

#define SMALL_MAX 1024u /* bytes of any message without items */

static void enqueue(session *at, const uint8_t *bytes, size_t size, bool has_arena)
{
    queued_message *message = NULL;

    if (at->is_gone || at->is_broken) {
        return;
    }
    if (at->queued_bytes + size <= at->host->limits.backlog_bytes) { /* I1 */
        message = kvarve_allocate(sizeof *message + size);
    }
    if (message == NULL) {
        at->is_broken = true; /* I2 */
        return;
    }
    message->size = size;
    message->has_arena = has_arena;
    memcpy(message->bytes, bytes, size);
    kvarve_list_append(&at->queue, &message->link);
    at->queued_bytes += size;
}

kvarve_status reply_item(session *at, wire_type type, uint32_t index, const void *item,
                         kvarve_error *err)
{
    return wire_encode_item(type, index, item, at->host->scratch, sizeof at->host->scratch, err);
}

static kvarve_status encode(session *at, const wire_message *message, kvarve_error *err)
{
    session_host *host = at->host;
    uint8_t small[SMALL_MAX];
    const bool is_small = message->count == 0; /* I3 */
    uint8_t *out = is_small ? small : host->scratch;
    size_t size = 0;
    const kvarve_status status =
        wire_encode(message, out, is_small ? sizeof small : sizeof host->scratch, &size, err);

    if (status == KVARVE_OK) {
        enqueue(at, out, size, message->type == WIRE_WELCOME);
    }
    return status;
}

void session_reply_error(session *at, uint64_t id, kvarve_status status, const kvarve_error *err)
{
    wire_message message = {.type = WIRE_ERROR, .id = id};

    message.as.error.status = status;
    if (err != NULL && err->text[0] != 0) {
        message.as.error.os_errno = err->os_errno > 0 ? (uint32_t)err->os_errno : 0;
        wire_text_set(message.as.error.text, sizeof message.as.error.text, err->text);
    }
    at->is_broken = encode(at, &message, NULL) != KVARVE_OK || at->is_broken; /* I2 */
}

void session_reply(session *at, const wire_message *message)
{
    kvarve_error err = {0};

    if (encode(at, message, &err) != KVARVE_OK) {
        session_reply_error(at, message->id, KVARVE_UNAVAILABLE, &err);
    }
}

void session_reply_done(session *at, uint64_t id)
{
    const wire_message message = {.type = WIRE_DONE, .id = id};

    session_reply(at, &message);
}

bool session_next(const session *at, const void **out_bytes, size_t *out_size, bool *out_arena)
{
    const queued_message *first;

    if (kvarve_list_is_empty(&at->queue)) {
        return false;
    }
    first = KVARVE_LIST_ITEM(at->queue.next, queued_message, link);
    *out_bytes = first->bytes;
    *out_size = first->size;
    *out_arena = first->has_arena;
    return true;
}

void session_sent(session *at)
{
    kvarve_link *link = kvarve_list_take_first(&at->queue);

    if (link != NULL) {
        queued_message *message = KVARVE_LIST_ITEM(link, queued_message, link);

        at->queued_bytes -= message->size;
        kvarve_release(message);
    }
}

void reply_drop_all(session *at)
{
    while (!kvarve_list_is_empty(&at->queue)) {
        session_sent(at);
    }
}
