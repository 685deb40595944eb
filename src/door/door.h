/*
 * door.h - what include/kvarve asks of a store, as a table of calls: one for a store in this
 * process (embedded), one for a daemon's (client).
 *
 * src/api checks arguments, copies bytes, takes and checks digests, and waits; through this table
 * it asks where bytes lie and says what became of them. What a call means stands in store/store.h
 * under the same name; here stands what a door adds.
 *
 * Threads    Any. All calls but lock, deadline, enter, is_here and close are made between lock and
 * unlock. `wait` lets go of the lock meanwhile. Jobs (copies) run on `env`'s executor, and their
 * `done` is called under the lock.
 * Ownership  Handles live until their release. What a handle's description points to lives as long.
 */
#ifndef KVARVE_DOOR_DOOR_H
#define KVARVE_DOOR_DOOR_H

#include "store/store.h"

typedef struct door door;

/* Opaque: each door has its own. */
typedef struct door_namespace door_namespace;
typedef struct door_put door_put;
typedef struct door_lease door_lease;

/* What a namespace is, fixed when it is opened. */
typedef struct door_layout {
    const char *text; /* of the namespace */
    const kvarve_group *groups;
    uint32_t group_count;
    uint32_t ranks;
    bool is_exact;
} door_layout;

typedef struct door_ops {
    /* --- the door itself --- */
    void (*close)(
        door *at); /* bounded by the io timeout; in a forked child it forgets the handle */
    /* Handles are left at the close: bring to an end what goes on; until is_idle. */
    void (*shut_down)(door *at);
    bool (*is_idle)(const door *at);
    bool (*is_here)(const door *at); /* false in a forked child */
    /* KVARVE_UNAVAILABLE: it has failed, or the daemon is gone. */
    kvarve_status (*enter)(door *at, kvarve_error *err);
    /* Although enter says UNAVAILABLE, handles can be released and the door closed. */
    bool (*lets_go)(const door *at);
    void (*lock)(door *at);
    void (*unlock)(door *at);
    uint64_t (*deadline)(const door *at, uint32_t timeout_ms);
    /* Until something may have changed; false: the deadline passed first. */
    bool (*wait)(door *at, uint64_t deadline_ns);
    bool (*is_still)(const door *at); /* no thread of its own: nothing changes but by wait */
    const kvarve_env *(*env)(door *at);
    bool (*take_event)(door *at, kvarve_event *out);
    void (*tell)(door *at, const kvarve_event *event);
    int (*event_fd)(const door *at);

    /* --- namespaces --- */
    kvarve_status (*namespace_open)(door *at, const kvarve_namespace_options *options,
                                    door_namespace **out, kvarve_error *err);
    void (*namespace_release)(door_namespace *name);
    const door_layout *(*namespace_layout)(const door_namespace *name);

    /* --- puts --- */
    kvarve_status (*put_begin)(door_namespace *name, const kvarve_prefix *prefix,
                               const kvarve_put_options *options, door_put **out,
                               kvarve_error *err);
    uint32_t (*put_state)(const door_put *put);
    uint32_t (*put_refusal)(const door_put *put);
    bool (*put_is_settling)(const door_put *put);
    kvarve_status (*put_id)(const door_put *put, uint8_t out_id[32], kvarve_error *err);
    kvarve_status (*put_plan)(door_put *put, uint32_t rank, kvarve_page_plan *out_pages, size_t max,
                              size_t *out_count, kvarve_error *err);
    uint64_t (*put_first_token)(const door_put *put, uint32_t group);
    kvarve_status (*put_copy_begin)(door_put *put, uint32_t rank, uint32_t group, uint64_t position,
                                    store_target *out, kvarve_error *err);
    void (*put_copy_end)(door_put *put, const store_target *target, const page_digest *digest);
    kvarve_status (*put_ack)(door_put *put, uint32_t rank, const kvarve_page_digest *digests,
                             size_t count, kvarve_error *err);
    kvarve_status (*put_fail)(door_put *put, uint32_t rank, kvarve_error *err);
    kvarve_status (*put_extend)(door_put *put, const kvarve_prefix *prefix, uint64_t tokens,
                                const kvarve_page_digest *digests, size_t count, kvarve_error *err);
    kvarve_status (*put_close)(door_put *put, const kvarve_prefix *prefix,
                               const kvarve_put_options *options, kvarve_error *err);
    void (*put_abort)(door_put *put, uint32_t refusal);
    void (*put_release)(door_put *put);

    /* --- find and lease --- */
    /* out->lease is not used: the lease comes in *out_lease (NULL: none is wanted). */
    kvarve_status (*find)(door_namespace *name, const store_query *query,
                          const kvarve_find_options *options, const store_answer *out,
                          door_lease **out_lease, kvarve_error *err);
    kvarve_status (*find_all)(door_namespace *name, const kvarve_prefix *prefix,
                              const kvarve_find_options *options, uint8_t *bitmap,
                              size_t bitmap_bytes, kvarve_error *err);
    void (*lease_boundary)(const door_lease *lease, kvarve_boundary *out);
    kvarve_status (*lease_load)(door_lease *lease, uint32_t timeout_ms, kvarve_error *err);
    store_lease_state (*lease_status)(const door_lease *lease, kvarve_miss *out_miss);
    kvarve_status (*lease_extent)(door_lease *lease, uint32_t rank, uint32_t group,
                                  uint64_t *out_first, uint64_t *out_pages, uint64_t *out_bytes,
                                  kvarve_error *err);
    kvarve_status (*lease_page_begin)(door_lease *lease, uint32_t rank, uint32_t group,
                                      uint64_t position, store_source *out, kvarve_error *err);
    void (*lease_page_end)(door_lease *lease, const store_source *source, bool was_verified,
                           bool is_right);
    void (*lease_read_ahead)(door_lease *lease, uint32_t rank, uint32_t group, uint64_t position,
                             uint64_t count);
    /* A door without flash of its own reads nothing: pages go by way of the arena. */
    kvarve_status (*lease_read_direct)(door_lease *lease, uint32_t rank, uint32_t group,
                                       uint64_t position, store_direct_read *read,
                                       kvarve_error *err);
    void (*lease_release)(door_lease *lease);

    /* --- administration --- */
    kvarve_status (*statistics)(door *at, kvarve_statistics *out, kvarve_error *err);
    kvarve_status (*each)(door *at, store_visit visit, void *context, kvarve_error *err);
    kvarve_status (*drop)(door *at, const uint8_t id[32], kvarve_error *err);
    /* Whether every drop is durable; KVARVE_IO: the store has failed. */
    kvarve_status (*drops_are_settled)(door *at, bool *out, kvarve_error *err);
    const char *(*document)(door *at,
                            const char *namespace_text); /* until the next call; or NULL */
    kvarve_status (*verify_begin)(door *at, kvarve_error *err);
    bool (*verify_progress)(door *at, kvarve_verify_result *out);
    kvarve_status (*trim_begin)(door *at, kvarve_error *err);
    bool (*trim_progress)(door *at, uint64_t *out_bytes, kvarve_status *out_status);
} door_ops;

/* Every door starts with this. */
struct door {
    const door_ops *ops;
};

static inline void door_lock(door *at)
{
    at->ops->lock(at);
}

static inline void door_unlock(door *at)
{
    at->ops->unlock(at);
}

static inline bool door_wait(door *at, uint64_t deadline_ns)
{
    return at->ops->wait(at, deadline_ns);
}

static inline uint64_t door_deadline(const door *at, uint32_t timeout_ms)
{
    return at->ops->deadline(at, timeout_ms);
}

static inline bool door_is_here(const door *at)
{
    return at->ops->is_here(at);
}

static inline kvarve_status door_enter(door *at, kvarve_error *err)
{
    return at->ops->enter(at, err);
}

/* For a release, or the close. */
static inline kvarve_status door_enter_to_end(door *at)
{
    const kvarve_status status = at->ops->enter(at, NULL);

    return status == KVARVE_UNAVAILABLE && at->ops->lets_go(at) ? KVARVE_OK : status;
}

static inline bool door_is_still(const door *at)
{
    return at->ops->is_still(at);
}

static inline const kvarve_env *door_env(door *at)
{
    return at->ops->env(at);
}

static inline bool door_take_event(door *at, kvarve_event *out)
{
    return at->ops->take_event(at, out);
}

static inline void door_tell(door *at, const kvarve_event *event)
{
    at->ops->tell(at, event);
}

static inline int door_event_fd(const door *at)
{
    return at->ops->event_fd(at);
}

#endif
