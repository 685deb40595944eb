/*
 * api_private.h - the handles of include/kvarve and what every call does first.
 *
 * A handle knows what it is (magic), which store it belongs to, and that store which process it was
 * opened in.
 */
#ifndef KVARVE_API_API_PRIVATE_H
#define KVARVE_API_API_PRIVATE_H

#include <stdatomic.h>

#include "door/door.h"
#include "embedded/embedded.h"
#include "kvarve/admin.h"
#include "kvarve/checkpoint.h"
#include "kvarve/layout.h"
#include "kvarve/store.h"
#include "transfer/transfer.h"

#define STORE_MAGIC     UINT32_C(0x6b766172)
#define NAMESPACE_MAGIC UINT32_C(0x6b766e73)
#define PUT_MAGIC       UINT32_C(0x6b767075)
#define LEASE_MAGIC     UINT32_C(0x6b766c65)

struct kvarve_store {
    uint32_t magic;
    door *door;
    atomic_bool is_closed; /* kvarve_close was called; handles are left */
    uint32_t namespaces;   /* alive, for their own sake or for a put's or lease's; under the lock */
    uint32_t io_timeout_ms;
    uint64_t read_ahead_bytes; /* of one reader: what it asks for before it needs it */
};

/* One rank's registered memory. */
typedef struct rank_regions {
    transfer_region *layers; /* of all groups, group after group */
    transfer_group *groups;  /* by group; layer_count 0: none */
} rank_regions;

struct kvarve_namespace {
    uint32_t magic;
    uint32_t references; /* the caller's, puts and leases; under the store's lock */
    kvarve_store *store;
    door_namespace *name;
    rank_regions *ranks; /* by rank */
};

/* The calls of its door, and what it is. */
static inline const door_ops *ops_of(const kvarve_namespace *space)
{
    return space->store->door->ops;
}

static inline const door_layout *layout_of(const kvarve_namespace *space)
{
    return ops_of(space)->namespace_layout(space->name);
}

typedef struct copy_run copy_run;

struct kvarve_put {
    uint32_t magic;
    kvarve_namespace *space;
    door_put *put;
    uint32_t runs; /* kvarve_put_copy under way */
};

/* What became of what writes a rank's memory: its kvarve_lease_copy, or a direct read. */
typedef enum copy_state { COPY_NONE, COPY_RUNNING, COPY_GOOD, COPY_BAD } copy_state;

typedef struct rank_copy {
    copy_state state;
    uint32_t reads;  /* direct ones in flight */
    bool is_late;    /* nobody waits for them any more: their end is an event */
    bool has_failed; /* one of them */
} rank_copy;

struct kvarve_lease {
    uint32_t magic;
    kvarve_namespace *space;
    door_lease *lease;
    uint64_t cookie;
    uint32_t runs;  /* copies under way */
    uint32_t reads; /* direct reads under way, of all ranks */
    bool is_released;
    rank_copy *copies; /* by rank */
};

/* Is this an open handle of this process? KVARVE_INVALID, saying what `call` was given;
 * KVARVE_UNAVAILABLE: its store was closed, or has failed. */
KVARVE_NODISCARD kvarve_status check_store(const kvarve_store *store, const char *call,
                                           kvarve_error *err);
KVARVE_NODISCARD kvarve_status check_namespace(const kvarve_namespace *space, const char *call,
                                               kvarve_error *err);
KVARVE_NODISCARD kvarve_status check_put(const kvarve_put *put, const char *call,
                                         kvarve_error *err);
KVARVE_NODISCARD kvarve_status check_lease(const kvarve_lease *lease, const char *call,
                                           kvarve_error *err);
/* Of a handle that is about to be released, of this namespace: also a closed store lets it go. */
KVARVE_NODISCARD kvarve_status check_release(const kvarve_namespace *space, const char *call);
KVARVE_NODISCARD kvarve_status check_pointer(const void *pointer, const char *call,
                                             const char *name, kvarve_error *err);

/* A wait ended in a miss, or in nothing: is that because its store is not there any more? Then
 * KVARVE_UNAVAILABLE, else `status`. Without the lock. */
KVARVE_NODISCARD kvarve_status unless_gone(kvarve_store *store, kvarve_status status,
                                           kvarve_error *err);

KVARVE_NODISCARD kvarve_status lease_check_rank(const kvarve_lease *lease, uint32_t rank,
                                                kvarve_error *err);
/* Where a read of pages is, and the room that is left for them. */
typedef struct lease_reader {
    kvarve_lease *lease;
    uint32_t rank;
    uint32_t group;
    uint64_t position;
    char *bytes;
    size_t size;
} lease_reader;

/* The next page by way of the arena, verified while it is copied; goes on behind it. */
KVARVE_NODISCARD kvarve_status lease_copy_page(lease_reader *at, kvarve_error *err);

/* Under the store's lock: it was closed, and its last handle has just gone. Then whoever let that
 * one go ends the store, without the lock. */
bool store_is_left(const kvarve_store *store);
void store_end(kvarve_store *store);

/* Under the store's lock. */
void namespace_unreference(kvarve_namespace *space);
/* Free a released lease; its store lease was released. */
void lease_free(kvarve_lease *lease);

/* The caller's block ids of each group, copied: its arrays are read during its call alone. `ids` is
 * the caller's to release. */
typedef struct block_lists {
    uint32_t *ids;
    const uint32_t *of_group[KVARVE_GROUPS_MAX]; /* into ids; NULL: none were given */
    size_t counts[KVARVE_GROUPS_MAX];
} block_lists;
KVARVE_NODISCARD kvarve_status blocks_keep(const kvarve_namespace *space,
                                           const uint32_t *const *blocks,
                                           const size_t *block_counts, block_lists *out,
                                           kvarve_error *err);

/* Copy options of a caller compiled with another size into `out`, whose size is `size`; false:
 * struct_size is not plausible. */
bool take_options(void *out, size_t size, const void *given, size_t given_size);

#endif
