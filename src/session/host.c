/*
 * host.c - what all sessions on one store share: who wants which events, what was exported, and
 * where the arena lies.
 *
 * Invariants
 *   I1  A cookie that the store is given is a number of the host's; clients' cookies never meet.
 *   I2  A token is random and as long as a key: who has it was given it. It ends with what it
 * names.
 *
 * Threads: the daemon's one.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/fail.h"
#include "session/session_private.h"

uint64_t host_now(const session_host *host)
{
    return host->env->clock->monotonic_ns(host->env->clock);
}

uint64_t host_deadline(const session_host *host, uint32_t timeout_ms)
{
    return timeout_ms == KVARVE_NO_TIMEOUT ? KVARVE_NEVER
                                           : host_now(host) + timeout_ms * KVARVE_NS_PER_MS;
}

static void set_limits(session_limits *to, const session_limits *given)
{
    *to = *given;
    to->handles = to->handles == 0 ? 4096 : to->handles;
    to->pages = to->pages == 0 ? 4096 : to->pages;
    to->parked = to->parked == 0 ? 256 : to->parked;
    to->backlog_bytes = to->backlog_bytes == 0 ? UINT64_C(4) << 20 : to->backlog_bytes;
    to->quarantined = to->quarantined == 0 ? 64 : to->quarantined;
}

/* The arena's head, which the store has written: what a client compares its mapping with. */
static kvarve_status learn_arena(session_host *host, kvarve_error *err)
{
    const void *base = NULL;
    arena_head head;
    kvarve_status status;

    store_own_arena(host->store, host->epoch);
    store_arena(host->store, &base, &host->arena_bytes, NULL);
    host->arena = base;
    status = arena_head_decode(host->arena, &head, err);
    if (status == KVARVE_OK) {
        host->uuid = head.store;
        host->fingerprint = page_digest_of(host->arena, ARENA_HEAD_SIZE);
    }
    return status;
}

kvarve_status session_host_create(const session_host_options *options, session_host **out,
                                  kvarve_error *err)
{
    session_host *host = kvarve_allocate(sizeof *host);
    kvarve_status status;

    if (host == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "the sessions' host");
    }
    host->store = options->store;
    host->env = options->env;
    host->epoch = options->epoch;
    host->io_timeout_ms = options->io_timeout_ms;
    host->pid = options->pid == 0 ? 1 : options->pid;
    wire_text_set(host->version, sizeof host->version,
                  options->version == NULL ? "unknown" : options->version);
    host->started_ns = host_now(host);
    set_limits(&host->limits, &options->limits);
    kvarve_list_init(&host->sessions);
    status = table_init(&host->cookies) && table_init(&host->tokens)
                 ? learn_arena(host, err)
                 : kvarve_fail(err, KVARVE_NO_MEMORY, "the sessions' tables");
    if (status != KVARVE_OK) {
        session_host_destroy(host);
        return status;
    }
    *out = host;
    return KVARVE_OK;
}

void session_host_destroy(session_host *host)
{
    if (host == NULL) {
        return;
    }
    KVARVE_ASSERT(kvarve_list_is_empty(&host->sessions));
    table_deinit(&host->cookies);
    table_deinit(&host->tokens);
    kvarve_release(host);
}

uint32_t host_quarantined(const session_host *host, uint32_t uid)
{
    kvarve_link *link;
    uint32_t count = 0;

    KVARVE_LIST_FOREACH (link, &host->sessions) {
        const session *at = KVARVE_LIST_ITEM(link, session, link);

        count += at->is_gone && at->peer.uid == uid;
    }
    return count;
}

uint64_t host_offset(const session_host *host, const void *address)
{
    return (uint64_t)((const uint8_t *)address - host->arena);
}

/* --- events --- */

void host_add_cookie(session_cookie *cookie, session *of, uint64_t wanted)
{
    session_host *host = of->host;

    cookie->cookie = wanted;
    cookie->of = of;
    cookie->number = wanted == 0 ? 0 : ++host->next_cookie; /* I1 */
    if (wanted != 0) {
        table_add(&host->cookies, &cookie->link, table_mix(cookie->number));
    }
}

void host_remove_cookie(session_cookie *cookie)
{
    if (cookie->number != 0) {
        table_remove(&cookie->of->host->cookies, &cookie->link);
        cookie->number = 0;
    }
}

static session_cookie *find_cookie(const session_host *host, uint64_t number)
{
    kvarve_table_link *link = table_first(&host->cookies, table_mix(number));

    while (link != NULL && KVARVE_TABLE_ITEM(link, session_cookie, link)->number != number) {
        link = table_next(link);
    }
    return link == NULL ? NULL : KVARVE_TABLE_ITEM(link, session_cookie, link);
}

void session_host_event(session_host *host, const kvarve_event *event)
{
    const session_cookie *found = event->cookie == 0 ? NULL : find_cookie(host, event->cookie);
    wire_message message = {.type = WIRE_EVENT};

    if (found == NULL || found->of->is_gone) {
        return;
    }
    message.as.event = (wire_event){.kind = event->kind,
                                    .rank = event->rank,
                                    .status = event->status,
                                    .reason = event->reason,
                                    .cookie = found->cookie};
    session_reply(found->of, &message);
}

/* --- tokens --- */

static uint64_t token_hash(const uint8_t token[TOKEN_SIZE])
{
    uint64_t hash;

    memcpy(&hash, token, sizeof hash);
    return hash;
}

void host_add_token(session_host *host, shared_object *shared)
{
    shared->is_exported = true;
    table_add(&host->tokens, &shared->by_token, token_hash(shared->token));
}

void host_remove_token(session_host *host, shared_object *shared)
{
    if (shared->is_exported) {
        shared->is_exported = false;
        table_remove(&host->tokens, &shared->by_token);
    }
}

shared_object *host_find_token(const session_host *host, const uint8_t token[TOKEN_SIZE])
{
    kvarve_table_link *link = table_first(&host->tokens, token_hash(token));

    while (link != NULL && memcmp(KVARVE_TABLE_ITEM(link, shared_object, by_token)->token, token,
                                  TOKEN_SIZE) != 0) {
        link = table_next(link);
    }
    return link == NULL ? NULL : KVARVE_TABLE_ITEM(link, shared_object, by_token);
}
