/*
 * clients.c - the daemon's clients: a socket, a process and a session each.
 *
 *     accepted -> served -> gone (socket closed, process alive) -> ended
 *                    \__________ process gone ____________________/
 *
 * Invariants
 *   C1  A session is destroyed when its process is known to be gone (pidfd), when it says itself
 *       that nothing needs that proof, or when the daemon ends; never because a socket closed.
 *   C2  Whatever a client sends or does not take costs itself alone: its session says when it is
 *       too much, and it is closed with an ERROR.
 *   C3  A client is freed by clients_sweep only: events of the same wait may still name it.
 *
 * Threads: the loop's. Ownership: a client owns its descriptors, its letter and its session.
 */
#include "daemon/daemon_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fail.h"
#include "env/service.h"
#include "env/thread.h"
#include "protocol/protocol.h"

#define ACCEPTS_MAX  32u   /* in a row, before others have their turn */
#define MESSAGES_MAX 64u   /* the same, of one client */
#define LAST_MAX     4096u /* messages that are still read of a process that is gone */
#define DISCARDS_MAX 1024u /* more than a socket holds */

struct daemon_client {
    kvarve_link link; /* in clients, then in ended */
    session *session; /* NULL: ended */
    int socket;       /* -1: gone */
    int process;
    socket_peer peer;
    daemon_source socket_source;
    daemon_source process_source;
    kvarve_mapping letter;
    bool has_spoken; /* a message was taken: a letter comes with the first one */
    bool wants_write;
};

static uint8_t message[WIRE_MESSAGE_MAX]; /* the one that is being read */

static const daemon_client *client_of(const kvarve_link *link)
{
    return (const daemon_client *)(const void *)((const char *)link -
                                                 offsetof(daemon_client, link));
}

static void say(const daemon_state *at, log_level level, const char *event, const socket_peer *peer,
                const char *why)
{
    log_line line;

    log_begin(&line, &at->log, level, "client", event);
    log_number(&line, "pid", (uint64_t)peer->pid);
    log_number(&line, "uid", peer->uid);
    if (why != NULL) {
        log_text(&line, "why", why);
    }
    log_end(&line);
}

/* --- the end --- */

/* Messages left unread at the close would cost the peer what was sent to it last. */
static void close_politely(int fd)
{
    int passed = -1;
    int64_t size = 1;

    socket_stop_receiving(fd);
    for (unsigned i = 0; i < DISCARDS_MAX && (size > 0 || size == -EMSGSIZE); i++) {
        size = socket_receive(fd, message, sizeof message, &passed);
        socket_close(passed);
    }
    socket_close(fd);
}

static void close_socket(daemon_state *at, daemon_client *client)
{
    if (client->socket >= 0) {
        poller_remove(at->poller, client->socket);
        close_politely(client->socket);
        client->socket = -1;
        at->client_count--;
    }
}

/* Everything but its memory is given back. */
static void end(daemon_state *at, daemon_client *client)
{
    if (client->session == NULL) {
        return;
    }
    close_socket(at, client);
    poller_remove(at->poller, client->process);
    socket_close(client->process);
    session_destroy(client->session);
    client->session = NULL;
    memory_unmap_foreign(&client->letter); /* nobody reads it any more */
    kvarve_list_remove(&client->link);
    kvarve_list_append(&at->ended, &client->link); /* C3 */
}

/* Its socket is closed; what its process may still be using stays (C1). */
static void leave(daemon_state *at, daemon_client *client)
{
    close_socket(at, client);
    if (session_gone(client->session)) {
        say(at, LOG_LEVEL_INFO, "gone", &client->peer, NULL);
        end(at, client);
    } else {
        say(at, LOG_LEVEL_INFO, "quarantined", &client->peer, NULL);
    }
}

void clients_sweep(daemon_state *at)
{
    while (!kvarve_list_is_empty(&at->ended)) {
        kvarve_link *link = kvarve_list_take_first(&at->ended);

        kvarve_release(KVARVE_LIST_ITEM(link, daemon_client, link));
    }
}

void clients_end(daemon_state *at)
{
    while (!kvarve_list_is_empty(&at->clients)) {
        end(at, KVARVE_LIST_ITEM(at->clients.next, daemon_client, link));
    }
    clients_sweep(at);
}

/* --- messages --- */

/* Send what is queued, as far as it is taken. False: the connection is broken. */
static bool flush(daemon_state *at, daemon_client *client)
{
    const void *bytes = NULL;
    size_t size = 0;
    bool has_arena = false;
    int rc = 0;

    while (rc == 0 && session_next(client->session, &bytes, &size, &has_arena)) {
        rc = socket_send(client->socket, bytes, size, has_arena ? at->arena_fd : -1);
        if (rc == 0) {
            session_sent(client->session);
        }
    }
    const bool is_full = rc == -EAGAIN || rc == -EINTR;
    if (is_full != client->wants_write) {
        client->wants_write = is_full;
        rc = poller_set(at->poller, client->socket, &client->socket_source, is_full, true);
        return rc == 0;
    }
    return rc == 0 || is_full;
}

/* The memory that came with the first message is the letter; what can not be mapped is not lent,
 * and the session refuses a HELLO that names it. */
static void take_letter(daemon_client *client, int passed)
{
    const int64_t size = client->has_spoken ? -EEXIST : memory_foreign_size(passed);

    if (size > 0 && (uint64_t)size <= WIRE_LETTER_MAX &&
        memory_map_foreign(passed, (size_t)size, false, &client->letter) == 0) {
        session_lend_letter(client->session, client->letter.base, client->letter.size);
    }
    socket_close(passed);
}

/* C2: it is told why, and closed. */
static void drop(daemon_state *at, daemon_client *client, const char *why)
{
    at->dropped++;
    say(at, LOG_LEVEL_WARNING, "dropped", &client->peer, why);
    (void)flush(at, client);
    leave(at, client);
}

/* Send what there is to send; what can not be served any more is closed. */
static void answer(daemon_state *at, daemon_client *client)
{
    if (session_is_broken(client->session)) {
        drop(at, client, "it does not take its replies");
    } else if (!flush(at, client)) {
        leave(at, client);
    }
}

/* One message. False: nothing is to be read any more for now, or the client is closed. */
static bool read_one(daemon_state *at, daemon_client *client)
{
    kvarve_error err = {0};
    int passed = -1;
    const int64_t size = socket_receive(client->socket, message, sizeof message, &passed);

    if (size == -EAGAIN || size == -EINTR) {
        return false;
    }
    if (size == -EMSGSIZE) {
        drop(at, client, "a message of more than 64 KiB");
        return false;
    }
    if (size <= 0) {
        socket_close(passed);
        leave(at, client);
        return false;
    }
    if (passed >= 0) {
        take_letter(client, passed);
    }
    client->has_spoken = true;
    if (session_take(client->session, message, (size_t)size, &err) != KVARVE_OK) {
        drop(at, client, err.text);
        return false;
    }
    return true;
}

void client_ready(daemon_state *at, daemon_client *client, bool can_read, bool can_write)
{
    if (client->session == NULL || client->socket < 0) {
        return; /* C3: ended or gone in this same wait */
    }
    for (unsigned i = 0; can_read && i < MESSAGES_MAX && read_one(at, client); i++) {
    }
    if ((can_read || can_write) && client->session != NULL && client->socket >= 0) {
        answer(at, client);
    }
}

void client_died(daemon_state *at, daemon_client *client)
{
    if (client->session == NULL) {
        return;
    }
    /* What it said before its end counts: a rank may ack and go. */
    for (unsigned i = 0; i < LAST_MAX && client->session != NULL && client->socket >= 0; i++) {
        if (!read_one(at, client)) {
            break;
        }
    }
    if (client->session != NULL) {
        say(at, LOG_LEVEL_INFO, "died", &client->peer, NULL);
        end(at, client);
    }
}

void clients_poll(daemon_state *at)
{
    kvarve_link *link = at->clients.next;

    while (link != &at->clients) {
        daemon_client *client = KVARVE_LIST_ITEM(link, daemon_client, link);

        link = link->next;
        (void)session_poll(client->session);
        if (client->socket >= 0 && (!client->wants_write || session_is_broken(client->session))) {
            answer(at, client);
        }
    }
}

uint64_t clients_deadline(const daemon_state *at)
{
    const kvarve_link *link;
    uint64_t soonest = KVARVE_NEVER;

    KVARVE_LIST_FOREACH (link, &at->clients) {
        soonest = kvarve_min_u64(soonest, session_deadline(client_of(link)->session));
    }
    return soonest;
}

void clients_count(const daemon_state *at, daemon_figures *out)
{
    const kvarve_link *link;

    out->clients = at->client_count;
    out->accepted = at->accepted;
    out->refused = at->refused;
    out->dropped = at->dropped;
    KVARVE_LIST_FOREACH (link, &at->clients) {
        session_counters one = {0};

        session_count(client_of(link)->session, &one);
        out->quarantined += one.is_gone ? 1 : 0;
        out->parked += one.parked;
        out->namespaces += one.namespaces;
        out->puts += one.puts;
        out->leases += one.leases;
        out->pinned_slots += one.pinned_slots;
    }
}

/* --- the beginning --- */

static bool is_allowed(const daemon_state *at, int fd, const socket_peer *peer)
{
    const daemon_guests *guests = &at->guests;

    if (peer->uid == at->user) {
        return true;
    }
    for (size_t i = 0; i < guests->user_count; i++) {
        if (peer->uid == guests->users[i]) {
            return true;
        }
    }
    for (size_t i = 0; i < guests->group_count; i++) {
        if (socket_is_of_group(fd, guests->groups[i])) {
            return true;
        }
    }
    return false;
}

/* Tell it why, as far as it is taken, and close. */
static void turn_away(daemon_state *at, int fd, const socket_peer *peer, const kvarve_error *why)
{
    wire_message refusal = {.type = WIRE_ERROR};
    uint8_t bytes[512];
    size_t size = 0;

    at->refused++;
    say(at, LOG_LEVEL_WARNING, "refused", peer, why->text);
    refusal.as.error.status = (uint32_t)why->status;
    wire_text_set(refusal.as.error.text, sizeof refusal.as.error.text, why->text);
    if (wire_encode(&refusal, bytes, sizeof bytes, &size, NULL) == KVARVE_OK) {
        (void)socket_send(fd, bytes, size, -1);
    }
    close_politely(fd);
}

static kvarve_status admit(daemon_state *at, int fd, const socket_peer *peer, session **out,
                           kvarve_error *err)
{
    const session_peer who = {.pid = peer->pid, .started_at = peer->started_at, .uid = peer->uid};

    if (!is_allowed(at, fd, peer)) {
        return kvarve_fail(err, KVARVE_INVALID, "user %u is not allowed here", peer->uid);
    }
    if (at->client_count >= at->config.clients_max) {
        return kvarve_fail(err, KVARVE_BUSY, "%u clients are connected already", at->client_count);
    }
    return session_open(at->host, &who, out, err);
}

static bool watch(daemon_state *at, daemon_client *client)
{
    if (poller_set(at->poller, client->socket, &client->socket_source, false, false) < 0) {
        return false;
    }
    if (poller_set(at->poller, client->process, &client->process_source, false, false) < 0) {
        poller_remove(at->poller, client->socket);
        return false;
    }
    return true;
}

static kvarve_status begin(daemon_state *at, daemon_client *client, kvarve_error *err)
{
    kvarve_status status = admit(at, client->socket, &client->peer, &client->session, err);

    if (status == KVARVE_OK && !watch(at, client)) {
        session_destroy(client->session);
        status = kvarve_fail(err, KVARVE_NO_MEMORY, "no room to wait for a client");
    }
    return status;
}

/* fd and peer->process_fd are the client's from now on, or closed. */
static void take(daemon_state *at, int fd, const socket_peer *peer)
{
    daemon_client *client = kvarve_allocate(sizeof *client);
    kvarve_error err = {.status = KVARVE_NO_MEMORY, .text = "no memory for a client"};
    kvarve_status status = KVARVE_NO_MEMORY;

    if (client != NULL) {
        client->socket = fd;
        client->process = peer->process_fd;
        client->peer = *peer;
        client->letter.fd = -1;
        client->socket_source = (daemon_source){.kind = SOURCE_SOCKET, .client = client};
        client->process_source = (daemon_source){.kind = SOURCE_PROCESS, .client = client};
        status = begin(at, client, &err);
    }
    if (status != KVARVE_OK) {
        turn_away(at, fd, peer, &err);
        socket_close(peer->process_fd);
        kvarve_release(client);
        return;
    }
    kvarve_list_append(&at->clients, &client->link);
    at->client_count++;
    at->accepted++;
    say(at, LOG_LEVEL_INFO, "connected", peer, NULL);
}

/* No descriptor is free, and the listener stays readable: let go of the spare one to take the
 * connection, close it, and so be heard. */
static void shed(daemon_state *at)
{
    const socket_peer nobody = {0};
    const kvarve_error err = {.status = KVARVE_BUSY, .text = "the daemon has no descriptors left"};
    int fd;

    if (at->spare >= 0) {
        event_close(at->spare);
    }
    fd = socket_accept(at->listener);
    if (fd >= 0) {
        turn_away(at, fd, &nobody, &err);
    }
    at->spare = event_open();
}

void clients_accept(daemon_state *at)
{
    for (unsigned i = 0; i < ACCEPTS_MAX && at->listener >= 0; i++) {
        const int fd = socket_accept(at->listener);
        socket_peer peer;

        if (fd == -EMFILE || fd == -ENFILE) {
            shed(at);
            return;
        }
        if (fd == -ECONNABORTED || fd == -EINTR) {
            continue;
        }
        if (fd < 0) {
            return;
        }
        if (socket_identify(fd, &peer) < 0) {
            socket_close(fd); /* its process is gone already, or it can not be watched */
            continue;
        }
        take(at, fd, &peer);
    }
}
