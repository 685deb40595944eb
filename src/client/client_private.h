/*
 * client_private.h - a client's fields and what its files ask of each other.
 *
 *   link.c     messages: send, receive for all, wait
 *   contain.c  failed assertions
 *   client.c   the door itself: open and close, events
 *   handles.c  namespaces, and what puts and leases have in common
 *   put.c      puts
 *   put_page.c a rank's plan of a put, and copying by it
 *   find.c     find
 *   lease.c    leases
 *   admin.c    administration
 */
#ifndef KVARVE_CLIENT_CLIENT_PRIVATE_H
#define KVARVE_CLIENT_CLIENT_PRIVATE_H

#include <stdatomic.h>

#include "base/list.h"
#include "base/table.h"
#include "client/client.h"
#include "client/letter_private.h"
#include "env/env_posix.h"
#include "env/thread.h"
#include "protocol/protocol.h"

typedef struct client client;

/* --- requests that are not answered yet --- */

typedef struct client_pending client_pending;

/*
 * Its answer has come: the reply that is meant for it, an ERROR, or NULL: none will, the connection
 * is broken. Called under the lock on whichever thread receives; may send, but not wait. False: no
 * daemon answers so. From here on `pending` is its owner's again.
 */
typedef bool (*client_take)(client *at, client_pending *pending, const wire_message *answer);

struct client_pending {
    kvarve_link link;        /* in client.pending */
    kvarve_table_link by_id; /* in client.by_id */
    uint64_t id;
    uint32_t reply; /* wire_type of the answer besides ERROR */
    client_take take;
};

/* A request and its answer, for somebody who waits. */
typedef struct client_exchange {
    client_pending pending; /* first */
    wire_message request;   /* but its id */
    wire_message reply;     /* its fields; items are gone, see read */
    /* Takes what the reply has in items. False: it is not right. */
    bool (*read)(void *context, const wire_message *reply);
    void *context;
    /* Takes the answer (of a client_notice) when nobody waits any more; NULL: nobody does. */
    client_take late;
    uint64_t subject; /* for late */
    bool is_parked;   /* the daemon may take wait_ms to answer, and longer is no failure */
    uint32_t wait_ms;
    /* ---- */
    bool is_answered;
    bool is_abandoned; /* its time was over */
    kvarve_status status;
    kvarve_error *err;
} client_exchange;

/* A request whose answer nobody waits for. */
typedef struct client_notice {
    client_pending pending; /* first */
    wire_letter range;      /* given back with the answer */
    uint64_t subject;       /* an exchange's that was left alone */
    struct client_notice *next_spare;
} client_notice;

/* --- what may change while somebody waits --- */

typedef struct client_watch client_watch;

struct client_watch {
    kvarve_link link; /* in client.watched, from the time that somebody asked */
    /* Make sure that a request is out whose answer comes with the next change. */
    void (*park)(client *at, client_watch *watch);
};

/* --- the client --- */

/* The mapped pages of one life of the daemon; stays while puts and leases of it do. */
typedef struct client_arena {
    kvarve_mapping mapping;
    uint32_t references; /* the client's, puts, leases */
} client_arena;

struct client {
    door base; /* first */
    client_transport *transport;
    bool is_still;    /* a transport without a descriptor: one thread, nothing by itself */
    env_posix *posix; /* NULL: a world of the caller's */
    kvarve_env env;
    kvarve_mutex mutex;
    kvarve_condition changed;
    uint64_t epoch; /* of the fork guard */
    uint32_t io_timeout_ms;
    uint32_t waiters;  /* on the condition */
    bool is_receiving; /* a thread receives, without the mutex */
    bool is_polling;   /* jobs' ends are being taken: nothing may wait */
    bool is_shutting_down;
    uint64_t turn; /* counts how often the mutex was taken: what is older may have changed */

    bool is_broken;
    atomic_bool is_failed; /* by an assertion of ours: broken, and not touched again (contain.c) */
    char failure[KVARVE_ERROR_TEXT_MAX]; /* why */
    uint64_t daemon_epoch;
    client_arena *arena; /* NULL: none */

    uint64_t next_id;
    kvarve_list pending;
    kvarve_table by_id;
    uint32_t notices; /* out */
    uint32_t reports; /* of damaged pages, that are not through yet */
    client_notice *spare;
    kvarve_list watched;
    uint32_t parked; /* waits that are out */
    bool is_crowded; /* one more was wanted than may be: look again soon instead */

    kvarve_list puts; /* all, also released ones that wait for an answer */
    kvarve_list leases;
    client_letter letter;

    int waker;        /* an event descriptor: whoever receives is to look up. -1: none */
    int poller;       /* of transport and waker */
    int event_poller; /* what the caller polls: transport and event_fd */
    int event_fd;
    kvarve_event *events;
    uint32_t event_room; /* a power of two */
    uint32_t event_first;
    uint32_t event_count;

    char *document; /* of the last call */
    client_watch verify_watch;
    client_pending verify_pending;
    bool is_verify_out;
    wire_verified verified;
    client_watch trim_watch;
    client_pending trim_pending;
    bool is_trim_out;
    wire_trimmed trimmed;

    uint8_t out[WIRE_MESSAGE_MAX];
    uint8_t in[WIRE_MESSAGE_MAX]; /* of the thread that receives */
};

static inline client *client_of(door *at)
{
    return (client *)(void *)at; /* its first member */
}

static inline const client *const_client_of(const door *at)
{
    return (const client *)(const void *)at;
}

/* --- link.c --- */

/* The connection is of no use any more: everything that waits learns it. */
__attribute__((format(printf, 2, 3))) void client_break(client *at, const char *format, ...);
/* KVARVE_UNAVAILABLE, with what broke it. */
KVARVE_NODISCARD kvarve_status client_gone(const client *at, kvarve_error *err);

/* Something changed that others may wait for. */
void client_changed(client *at);

/* Send a request; `pending` is the connection's until its take. On failure it is not. */
KVARVE_NODISCARD kvarve_status client_send(client *at, client_pending *pending,
                                           wire_message *request, kvarve_error *err);
/* Send it, and forget it but for the range of the letter that it names. */
void client_notify(client *at, wire_message *request, wire_letter range);
/* Send it; `take` gets the answer of a client_notice with this subject, and ends it. */
void client_notify_for(client *at, wire_message *request, client_take take, uint64_t subject);
/* Send it and wait for the answer, without the lock. KVARVE_BUSY also: a parked one's time is over.
 */
KVARVE_NODISCARD kvarve_status client_ask(client *at, client_exchange *what, kvarve_error *err);
/* In a `late`: the end of the notice. */
void client_notice_end(client *at, client_pending *pending);
/* Take what has come, without waiting. */
void client_drain(client *at);
/* An ERROR as a status; no text for answers that carry none. */
kvarve_status client_error_of(const wire_message *answer, kvarve_error *err);

/* Take the ends of jobs that have run. False: there were none. */
bool client_poll_jobs(client *at);

/* May one more wait be parked? The daemon has room for so many, and other requests need some. */
bool client_may_park(client *at);
/* Somebody waits for a change of this. */
void client_watch_add(client *at, client_watch *watch);
/* Since it took the lock, this thread has waited: what is parked says more than asking again. */
bool client_has_waited(void);

void client_lock(door *base);
void client_unlock(door *base);
bool client_wait(door *base, uint64_t deadline_ns);
uint64_t client_deadline(const door *base, uint32_t timeout_ms);
uint64_t client_now(const client *at);

/* --- contain.c --- */

/* This thread has the mutex: from here to the end a failed assertion fails the client. */
void client_contain_begin(client *at, bool is_worker);
void client_contain_end(void);
/* It lets go of the mutex, or has it again. */
void client_contain_mutex(bool is_held);
/* With the mutex: if the client has failed, leave the call. */
void client_contain_check(client *at);
/* Fail it from a thread that has not entered: the handler of its pool. */
void client_contain_fail(client *at, const char *text);
/* Of a failed one: until no job touches a caller's memory. */
void client_wait_quiet(client *at);

/* --- client.c --- */

void client_take_event_in(client *at, const kvarve_event *event);
/* The address of [offset, offset + size) of the arena; NULL: there is no such place. */
void *client_address(const client_arena *arena, uint64_t offset, uint64_t size);
client_arena *client_hold_arena(client *at);
void client_let_arena(client *at, client_arena *arena);

/* --- handles.c --- */

typedef struct client_namespace {
    client *at;
    uint64_t id;
    char text[96];
    kvarve_group groups[KVARVE_GROUPS_MAX];
    door_layout layout;
} client_namespace;

static inline client_namespace *client_namespace_of(door_namespace *name)
{
    return (client_namespace *)(void *)name;
}

kvarve_status client_namespace_open(door *at, const kvarve_namespace_options *options,
                                    door_namespace **out, kvarve_error *err);
void client_namespace_release(door_namespace *name);
const door_layout *client_namespace_layout(const door_namespace *name);

/* kvarve_page_digest records into the letter. */
KVARVE_NODISCARD kvarve_status client_put_digests(client *at, const kvarve_page_digest *digests,
                                                  size_t count, wire_letter *out,
                                                  kvarve_error *err);
void client_boundary_of(const wire_boundary *from, kvarve_boundary *out);
void client_miss_of(const wire_miss *from, kvarve_miss *out);

/* --- put.c --- */

/* One page of a rank's plan. */
typedef struct client_page {
    kvarve_page_plan plan;
    page_digest expected;
    page_digest digest; /* is_filled: of what was copied */
    bool has_expected;
    bool is_told;   /* its address was given away: an ack means it */
    bool is_filled; /* by a copy of ours */
} client_page;

typedef struct client_plan {
    client_page *pages; /* by group and position */
    size_t count;
    size_t cursor;
    bool is_known;
} client_plan;

typedef struct client_put client_put;

/* A parked PUT_WAIT: until the put is `state`. */
typedef struct client_put_wait {
    client_pending pending; /* first */
    client_put *put;
    bool is_out;
} client_put_wait;

#define PUT_TARGETS 3u /* STAGED, READY, DURABLE */

struct client_put {
    client_put *self; /* for calls that get it const */
    client *at;
    const client_namespace *space;
    kvarve_link link; /* in client.puts */
    client_watch watch;
    client_put_wait waits[PUT_TARGETS];
    client_arena *arena;
    uint64_t id;
    wire_put_status status;
    uint64_t turn;     /* when that was said */
    uint64_t asked_ns; /* likewise */
    uint32_t answers;  /* that are still to come */
    bool is_released;
    bool is_open;    /* its boundary is not known yet */
    uint64_t tokens; /* of the boundary; of an open put as far as it was extended */
    uint32_t flags;
    uint64_t *sizes; /* [rank * groups + group] of VARIABLE groups; NULL: none */
    bool has_first_tokens;
    uint64_t first_tokens[KVARVE_GROUPS_MAX];
    client_plan plans[]; /* by rank */
};

static inline client_put *client_put_of(door_put *put)
{
    return (client_put *)(void *)put;
}

static inline const client_put *client_const_put_of(const door_put *put)
{
    return (const client_put *)(const void *)put;
}

static inline bool client_put_is_over(const client_put *put)
{
    return put->status.state == KVARVE_PUT_DURABLE || put->status.state == KVARVE_PUT_ABORTED ||
           put->status.state == KVARVE_PUT_PRESENT;
}

/* Know where it stands, as far as that is not known already. */
void client_put_look(client_put *put);
void client_put_take_status(client_put *put, const wire_put_status *status);
/* What was planned is not so any more. */
void client_put_forget_plans(client_put *put);
void client_put_abort_all(client *at); /* that are not READY: the door is closed */
bool client_puts_are_over(const client *at);

kvarve_status client_put_begin(door_namespace *name, const kvarve_prefix *prefix,
                               const kvarve_put_options *options, door_put **out,
                               kvarve_error *err);
uint32_t client_put_state(const door_put *base);
uint32_t client_put_refusal(const door_put *base);
bool client_put_is_settling(const door_put *base);
kvarve_status client_put_id(const door_put *base, uint8_t out_id[32], kvarve_error *err);
kvarve_status client_put_extend(door_put *base, const kvarve_prefix *prefix, uint64_t tokens,
                                const kvarve_page_digest *digests, size_t count, kvarve_error *err);
kvarve_status client_put_close(door_put *base, const kvarve_prefix *prefix,
                               const kvarve_put_options *options, kvarve_error *err);
kvarve_status client_put_fail(door_put *base, uint32_t rank, kvarve_error *err);
void client_put_abort(door_put *base, uint32_t refusal);
void client_put_release(door_put *base);

/* --- put_page.c --- */

kvarve_status client_put_plan(door_put *base, uint32_t rank, kvarve_page_plan *out_pages,
                              size_t max, size_t *out_count, kvarve_error *err);
uint64_t client_put_first_token(const door_put *base, uint32_t group);
kvarve_status client_put_copy_begin(door_put *base, uint32_t rank, uint32_t group,
                                    uint64_t position, store_target *out, kvarve_error *err);
void client_put_copy_end(door_put *base, const store_target *target, const page_digest *digest);
kvarve_status client_put_ack(door_put *base, uint32_t rank, const kvarve_page_digest *digests,
                             size_t count, kvarve_error *err);
void client_plan_forget(client_plan *plan);

/* --- find.c, lease.c --- */

/* The pages of one rank of a loaded lease. */
typedef struct client_lease_rank {
    struct client_lease_page *pages; /* by group and position */
    size_t count;
    size_t cursor;
    bool is_known;
} client_lease_rank;

typedef struct client_lease_page {
    store_source source; /* with its address */
} client_lease_page;

typedef struct client_lease {
    struct client_lease *self; /* for calls that get it const */
    client *at;
    const client_namespace *space;
    kvarve_link link; /* in client.leases */
    client_watch watch;
    client_pending pending; /* a parked LEASE_WAIT */
    bool is_out;
    client_arena *arena;
    uint64_t id;
    kvarve_boundary boundary;
    store_lease_state state;
    kvarve_miss miss;
    uint64_t turn; /* when that was said */
    uint32_t answers;
    bool is_released;
    uint64_t *pins; /* of pages in use of a lease that is not loaded; 0: free */
    uint32_t pin_room;
    client_lease_rank ranks[];
} client_lease;

static inline client_lease *client_lease_of(door_lease *lease)
{
    return (client_lease *)(void *)lease;
}

static inline const client_lease *client_const_lease_of(const door_lease *lease)
{
    return (const client_lease *)(const void *)lease;
}

/* A lease on what was found. NULL: no memory. */
client_lease *client_lease_make(client_namespace *space);
void client_lease_begin(client_lease *lease, const wire_found *found, uint32_t mode);
void client_lease_drop(client_lease *lease);

kvarve_status client_find(door_namespace *name, const store_query *query,
                          const kvarve_find_options *options, const store_answer *out,
                          door_lease **out_lease, kvarve_error *err);
kvarve_status client_find_all(door_namespace *name, const kvarve_prefix *prefix,
                              const kvarve_find_options *options, uint8_t *bitmap,
                              size_t bitmap_bytes, kvarve_error *err);
void client_lease_boundary(const door_lease *base, kvarve_boundary *out);
kvarve_status client_lease_load(door_lease *base, uint32_t timeout_ms, kvarve_error *err);
store_lease_state client_lease_status(const door_lease *base, kvarve_miss *out_miss);
kvarve_status client_lease_extent(door_lease *base, uint32_t rank, uint32_t group,
                                  uint64_t *out_first, uint64_t *out_pages, uint64_t *out_bytes,
                                  kvarve_error *err);
kvarve_status client_lease_page_begin(door_lease *base, uint32_t rank, uint32_t group,
                                      uint64_t position, store_source *out, kvarve_error *err);
void client_lease_page_end(door_lease *base, const store_source *source, bool was_verified,
                           bool is_right);
void client_lease_read_ahead(door_lease *base, uint32_t rank, uint32_t group, uint64_t position,
                             uint64_t count);
kvarve_status client_lease_read_direct(door_lease *base, uint32_t rank, uint32_t group,
                                       uint64_t position, store_direct_read *read,
                                       kvarve_error *err);
void client_lease_release(door_lease *base);

/* --- admin.c --- */

void client_admin_init(client *at);
kvarve_status client_statistics(door *at, kvarve_statistics *out, kvarve_error *err);
kvarve_status client_each(door *at, store_visit visit, void *context, kvarve_error *err);
kvarve_status client_drop(door *at, const uint8_t id[32], kvarve_error *err);
kvarve_status client_drops_are_settled(door *at, bool *out, kvarve_error *err);
const char *client_document(door *base, const char *namespace_text);
kvarve_status client_verify_begin(door *base, kvarve_error *err);
bool client_verify_progress(door *base, kvarve_verify_result *out);
kvarve_status client_trim_begin(door *base, kvarve_error *err);
bool client_trim_progress(door *base, uint64_t *out_bytes, kvarve_status *out_status);

#endif
