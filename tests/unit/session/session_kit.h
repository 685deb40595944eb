/*
 * session_kit.h - a daemon without sockets: a store in the simulated host, a session host, and
 * clients that send what they would send over a connection.
 *
 * Include after cmocka.h. Whatever a client is answered that was not asked for fails the test.
 */
#ifndef KVARVE_TESTS_SESSION_KIT_H
#define KVARVE_TESTS_SESSION_KIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/protocol.h"
#include "session/session.h"
#include "simulate/world.h"

#define KIT_LETTER_BYTES ((size_t)1 << 20)
#define KIT_CLIENTS_MAX  8u
#define KIT_EVENTS_MAX   64u
#define KIT_TOKENS       40u
#define KIT_SPAN         4u    /* tokens a page of group 0 */
#define KIT_PAGE_BYTES   5000u /* of group 0; group 1, an endpoint, has as many */
#define KIT_WAIT_MS      1000u
#define KIT_MS           UINT64_C(1000000)

typedef struct session_kit session_kit;

typedef struct kit_client {
    session_kit *kit;
    session *session;
    uint8_t *letter; /* aligned */
    size_t letter_used;
    uint64_t id;      /* of the last request */
    uint64_t space;   /* its namespace */
    bool is_closed;   /* the session wants its connection closed */
    kvarve_error err; /* why */
    wire_message reply;
    uint8_t bytes[WIRE_MESSAGE_MAX]; /* of the reply */
    wire_event events[KIT_EVENTS_MAX];
    uint32_t event_count;
} kit_client;

struct session_kit {
    sim_world *world;
    store_machine *store;
    session_host *host;
    uint8_t *arena;
    uint32_t ranks;
    bool is_exact;
    kvarve_prefix *prefix;
    session_limits limits;
    uint32_t arena_mib; /* 0: 4 */
    uint32_t uid;       /* of clients that connect from now on */
    uint64_t blocks;    /* allocated before */
    kit_client *clients[KIT_CLIENTS_MAX];
};

/* Ranks, exactness and limits are set before. */
void kit_begin(session_kit *kit);
/* All clients die; then the store must hold nothing of them, and closes. */
void kit_end(session_kit *kit);
kvarve_statistics kit_statistics(const session_kit *kit);
/* Until nothing happens any more: the store and all sessions. */
void kit_run(session_kit *kit);
void kit_advance(session_kit *kit, uint64_t milliseconds);

/* A client that has said hello and has opened the namespace. */
kit_client *kit_connect(session_kit *kit);
/* One that has said nothing. */
kit_client *kit_connect_silent(session_kit *kit);
/* Its process is gone. */
void kit_die(kit_client *client);
session_counters kit_count(const kit_client *client);

/* --- the letter --- */

wire_letter kit_lay(kit_client *client, const void *bytes, size_t size);
wire_prefix kit_lay_prefix(kit_client *client, const kvarve_prefix *prefix);
/* Digests of a rank's pages (EVERY: of all ranks) up to `tokens`. */
wire_letter kit_lay_digests(kit_client *client, uint32_t rank, uint64_t tokens, uint8_t variant);
#define KIT_EVERY_RANK UINT32_MAX

/* --- requests --- */

/* Send, whatever comes. The message gets the next id. */
void kit_send(kit_client *client, wire_message *request);
/* Is there a reply to the last request? It is in client->reply then; events go to client->events.
 */
bool kit_has_reply(kit_client *client);
/* Send, and be answered with this type at once. */
void kit_ask(kit_client *client, wire_message *request, wire_type answer);
/* Send, and be refused so. */
void kit_refused(kit_client *client, wire_message *request, kvarve_status status);
/* The request that was sent last is answered now. */
void kit_answered(kit_client *client, wire_type answer);
void kit_answered_error(kit_client *client, kvarve_status status);
bool kit_has_event(const kit_client *client, uint32_t kind, uint64_t cookie);

/* --- puts --- */

wire_message kit_put_begin(kit_client *client, uint64_t tokens);
/* Begin, and run until there is room for it; its number. */
uint64_t kit_begin_put(kit_client *client, uint64_t tokens);
/* Ask for the plan and write the COPY pages; how many. */
uint32_t kit_fill(kit_client *client, uint64_t put, uint32_t rank);
void kit_ack(kit_client *client, uint64_t put, uint32_t rank);
uint32_t kit_put_state(kit_client *client, uint64_t put);
/* Until it is in this state or over; the state. */
uint32_t kit_put_wait(kit_client *client, uint64_t put, uint32_t state);
void kit_release_put(kit_client *client, uint64_t put);
/* All of it, all ranks: durable, and released. */
void kit_store(kit_client *client, uint64_t tokens);

/* --- leases --- */

/* A lease on exactly this boundary. */
uint64_t kit_lease(kit_client *client, uint64_t tokens, uint32_t mode);
uint64_t kit_export(kit_client *client, wire_handle_kind kind, uint64_t handle, uint8_t token[32]);
/* Its number here. */
uint64_t kit_attach(kit_client *client, const uint8_t token[32], uint32_t rank);
/* The bytes at this place are that page's. */
bool kit_is_right(const session_kit *kit, const wire_page_entry *page, uint32_t rank);

#endif
