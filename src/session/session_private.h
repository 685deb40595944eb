/*
 * session_private.h - what the files of src/session share: a session, its handles, and what
 * several sessions hold together.
 *
 *   session -> handle (table, by number) -> space
 *                                        -> shared_put, shared_lease: one of the store's, with one
 *                                           handle or more, of one session or several
 *
 * Counting  A shared put or lease is released in the store when its last handle ends. A handle's
 * pins end before it does.
 */
#ifndef KVARVE_SESSION_SESSION_PRIVATE_H
#define KVARVE_SESSION_SESSION_PRIVATE_H

#include "base/list.h"
#include "base/table.h"
#include "format/arena_file.h"
#include "protocol/protocol.h"
#include "session/session.h"

#define TOKEN_SIZE sizeof(((wire_exported *)0)->token)
#define EVERY_RANK UINT32_MAX /* handle.rank of whoever began it */

typedef enum handle_kind {
    HANDLE_SPACE,
    HANDLE_PUT,
    HANDLE_LEASE,
} handle_kind;

/* A put or lease of the store's, held by one handle or more. */
typedef struct shared_object {
    kvarve_table_link by_token; /* host.tokens, once it is exported */
    kvarve_list handles;
    handle_kind kind; /* PUT or LEASE */
    store_put *put;
    store_lease *lease;
    store_namespace *name; /* the store's; lives as long as put or lease */
    uint32_t uid;          /* whose processes may attach */
    bool is_exported;
    uint8_t token[TOKEN_SIZE];
} shared_object;

/* The store's number for a put or lease that wants events; what its client calls it. */
typedef struct session_cookie {
    kvarve_table_link link; /* host.cookies */
    uint64_t number;        /* the store's; 0: no events are wanted, and it is in no table */
    uint64_t cookie;        /* the client's */
    session *of;
} session_cookie;

typedef struct session_handle {
    kvarve_table_link link; /* session.handles */
    kvarve_link in_session; /* session.in_order */
    kvarve_link in_shared;  /* shared->handles */
    session *of;
    uint64_t number;
    handle_kind kind;
    uint32_t rank; /* whose pages it may touch, or EVERY_RANK */
    store_namespace *name;
    shared_object *shared; /* of a put or lease */
    session_cookie cookie;
    bool is_acked;         /* its one rank has acked */
    bool is_exposed;       /* a lease: addresses of its pages were told */
    kvarve_list pins;      /* a put: put_pin; a lease: page_pin */
    kvarve_table by_place; /* a put's pins; made with the first */
    bool has_by_place;
} session_handle;

/* A slot that a rank of this handle may be copying into. */
typedef struct put_pin {
    kvarve_table_link link; /* handle.by_place */
    kvarve_link in_handle;
    store_target target;
    uint32_t rank;
} put_pin;

/* A page that a client is reading. */
typedef struct page_pin {
    kvarve_table_link link; /* session.page_pins */
    kvarve_link in_handle;
    uint64_t number;
    session_handle *handle;
    store_source source;
} page_pin;

/* A message to be sent. */
typedef struct queued_message {
    kvarve_link link;
    size_t size;
    bool has_arena;
    uint8_t bytes[];
} queued_message;

/*
 * One attempt to answer a request that may have to wait. KVARVE_OK: answered. KVARVE_BUSY: not yet,
 * or, when is_last, what it is answered with; others: the answer is that error.
 */
typedef kvarve_status (*session_attempt)(session *at, const wire_message *request, bool is_last,
                                         kvarve_error *err);

typedef struct parked_request {
    kvarve_link link;
    uint64_t deadline_ns;
    session_attempt attempt;
    wire_message request; /* its fields; without items */
} parked_request;

struct session_host {
    store_machine *store;
    const kvarve_env *env;
    uint64_t epoch;
    uint64_t started_ns;
    uint32_t io_timeout_ms;
    uint32_t pid;
    char version[32];
    session_limits limits;
    kvarve_list sessions;
    kvarve_table cookies;
    kvarve_table tokens;
    uint64_t next_cookie;
    const uint8_t *arena;
    uint64_t arena_bytes;
    page_digest fingerprint;
    store_uuid uuid;
    uint8_t scratch[WIRE_MESSAGE_MAX]; /* the reply whose items are being put in place */
};

struct session {
    kvarve_link link; /* host.sessions */
    session_host *host;
    session_peer peer;
    const uint8_t *letter;
    uint64_t letter_bytes; /* lent */
    uint64_t letter_used;  /* of them, as HELLO said */
    bool has_letter;
    bool is_greeted;
    bool is_gone;
    bool is_broken; /* it can not be told all that it must know: the connection is to be closed */
    uint64_t next_number;
    kvarve_table handles;
    kvarve_list in_order; /* handles */
    kvarve_table page_pins;
    uint32_t counts[HANDLE_LEASE + 1];
    uint32_t put_pin_count;
    uint32_t page_pin_count;
    kvarve_list parked;
    uint32_t parked_count;
    kvarve_list queue;
    uint64_t queued_bytes;
};

/* --- reply.c --- */

/* Put an item of the reply that is being made in its place; then session_reply without items.
 * False: it has no form, and session_reply would fail. */
KVARVE_NODISCARD kvarve_status reply_item(session *at, wire_type type, uint32_t index,
                                          const void *item, kvarve_error *err);
/* Queue a message; one that can not be queued breaks the connection. */
void session_reply(session *at, const wire_message *message);
void session_reply_error(session *at, uint64_t id, kvarve_status status, const kvarve_error *err);
void session_reply_done(session *at, uint64_t id);
void reply_drop_all(session *at);

/* --- letter.c: what lies in the letter; nothing of it is believed --- */

/* Where `range` is. KVARVE_INVALID: not all of it in the letter. */
KVARVE_NODISCARD kvarve_status letter_find(const session *at, wire_letter range,
                                           const uint8_t **out, kvarve_error *err);
/* A copy, with a NUL behind it; empty: *out is NULL. KVARVE_INVALID: a NUL in it. The caller
 * releases it. */
KVARVE_NODISCARD kvarve_status letter_text(const session *at, wire_letter range, char **out,
                                           kvarve_error *err);
/* A prefix over the letter's bytes, for this call; ended by prefix_return. */
KVARVE_NODISCARD kvarve_status letter_prefix(const session *at, const wire_prefix *image,
                                             kvarve_prefix **out, kvarve_error *err);
/* Copies; empty: NULL. The caller releases them. */
KVARVE_NODISCARD kvarve_status letter_digests(const session *at, wire_letter range,
                                              kvarve_page_digest **out, size_t *out_count,
                                              kvarve_error *err);
KVARVE_NODISCARD kvarve_status letter_numbers(const session *at, wire_letter range, size_t wanted,
                                              uint64_t **out, kvarve_error *err);
KVARVE_NODISCARD kvarve_status letter_points(const session *at, wire_letter range,
                                             kvarve_prefix_point **out, size_t *out_count,
                                             kvarve_error *err);

/* --- handle.c --- */

/* A handle that is in no table yet. KVARVE_NO_SPACE: the session has as many as it may. */
KVARVE_NODISCARD kvarve_status handle_make(session *at, handle_kind kind, uint64_t cookie,
                                           session_handle **out, kvarve_error *err);
/* The same, with a shared object around nothing yet. */
KVARVE_NODISCARD kvarve_status handle_make_shared(session *at, handle_kind kind, uint64_t cookie,
                                                  session_handle **out, kvarve_error *err);
/* Undo handle_make; no store object is behind it. */
void handle_discard(session_handle *handle);
/* It stands for something now: give it its number. */
void handle_add(session_handle *handle);
/* KVARVE_INVALID: this session has none of this kind and number. */
KVARVE_NODISCARD kvarve_status handle_find(const session *at, handle_kind kind, uint64_t number,
                                           session_handle **out, kvarve_error *err);
/* The same, and that it may act for `rank`. */
KVARVE_NODISCARD kvarve_status handle_find_rank(const session *at, handle_kind kind,
                                                uint64_t number, uint32_t rank,
                                                session_handle **out, kvarve_error *err);
/* The same, of whoever began it. */
KVARVE_NODISCARD kvarve_status handle_find_owner(const session *at, handle_kind kind,
                                                 uint64_t number, session_handle **out,
                                                 kvarve_error *err);
/* May it act for this rank? Whoever began it may for all that nobody attached as. */
bool handle_has_rank(const session_handle *handle, uint32_t rank);
/* Its client touches none of its pages any more: give all back. */
void handle_end(session_handle *handle);
/* Its client is not heard of any more, and may be touching its pages: let go of all that it can not
 * be touching. */
void handle_leave(session_handle *handle);

/* --- put_plan.c --- */

kvarve_status take_put_plan(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_put_first_tokens(session *at, const wire_message *request, kvarve_error *err);
/* The rank of a put copies no more (EVERY_RANK: none does). The store has been told before. */
void put_pins_end(session_handle *handle, uint32_t rank);
bool put_pins_have(const session_handle *handle, uint32_t rank);

/* --- parked.c --- */

/* Answer now, or later. timeout_ms 0: now. */
KVARVE_NODISCARD kvarve_status parked_try(session *at, const wire_message *request,
                                          session_attempt attempt, uint32_t timeout_ms,
                                          kvarve_error *err);
void parked_poll(session *at);
void parked_drop_all(session *at);

/* --- the requests, by file; KVARVE_OK: it was answered, or parked --- */

typedef kvarve_status (*session_take_one)(session *at, const wire_message *request,
                                          kvarve_error *err);

/* space.c */
kvarve_status take_hello(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_namespace_open(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_namespace_release(session *at, const wire_message *request, kvarve_error *err);
/* put.c */
kvarve_status take_put_begin(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_put_wait(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_put_ack(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_put_fail(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_put_extend(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_put_close(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_put_abort(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_put_release(session *at, const wire_message *request, kvarve_error *err);
wire_put_status put_status_of(const store_put *put);
/* find.c */
kvarve_status take_find(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_find_points(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_find_all(session *at, const wire_message *request, kvarve_error *err);
wire_boundary boundary_of(const kvarve_boundary *boundary);
wire_miss miss_of(const kvarve_miss *miss);
/* lease.c */
kvarve_status take_lease_load(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_lease_wait(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_lease_extent(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_lease_pages(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_page_begin(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_page_end(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_read_ahead(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_lease_release(session *at, const wire_message *request, kvarve_error *err);
void page_pins_end(session_handle *handle);
/* attach.c */
kvarve_status take_export(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_attach(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_fence(session *at, const wire_message *request, kvarve_error *err);
/* admin.c */
kvarve_status take_statistics(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_list(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_drop(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_verify(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_trim(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_document(session *at, const wire_message *request, kvarve_error *err);
kvarve_status take_status(session *at, const wire_message *request, kvarve_error *err);

/* --- host.c --- */

/* Gone sessions of this user. */
uint32_t host_quarantined(const session_host *host, uint32_t uid);
uint64_t host_now(const session_host *host);
/* KVARVE_NEVER for KVARVE_NO_TIMEOUT. */
uint64_t host_deadline(const session_host *host, uint32_t timeout_ms);
void host_add_cookie(session_cookie *cookie, session *of, uint64_t wanted);
void host_remove_cookie(session_cookie *cookie);
uint64_t host_offset(const session_host *host, const void *address);
void host_add_token(session_host *host, shared_object *shared);
void host_remove_token(session_host *host, shared_object *shared);
shared_object *host_find_token(const session_host *host, const uint8_t token[TOKEN_SIZE]);

#endif
