/*
 * store.h - the rules: what is stored, published, found, kept and dropped. A state machine without
 * system calls.
 *
 * Requests and completed jobs go in, jobs and events come out (docs/design/0001). Public structs of
 * include/kvarve are used as they are; what they promise is written there and not repeated here.
 *
 * Threads    Every call, and store_poll, is made under one lock of the caller's. Nothing here
 * waits, except store_open, which reads the folder and is called before anything else runs.
 * Ownership  Handles given out live until their release; store_close needs all of them released.
 * Failure    A failed sync or commit makes the store failed: puts are refused, verified reads go
 * on.
 */
#ifndef KVARVE_STORE_STORE_H
#define KVARVE_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "env/env.h"
#include "hash/hash.h"
#include "kvarve/admin.h"
#include "kvarve/checkpoint.h"
#include "kvarve/layout.h"
#include "kvarve/prefix.h"
#include "kvarve/store.h"

typedef struct store_machine store_machine;
typedef struct store_namespace
    store_namespace; /* what kvarve_namespace_open names: one space, two with draft groups */
typedef struct store_put store_put;
typedef struct store_lease store_lease;

/* Where events go; called under the lock, must not call back. */
typedef struct store_sink {
    void *context;
    void (*event)(void *context, const kvarve_event *event);
} store_sink;

/* A flag of the options beside KVARVE_OPEN_...: the arena is memory that other processes can map.
 * Public calls refuse it. */
#define STORE_OPEN_SHARED UINT32_C(0x80000000)

/*
 * Open the folder. The options are complete (no zero means default, ranges checked). With
 * KVARVE_OPEN_REBUILD the index is made anew from the segments and every page is checked by
 * store_poll afterwards: store_is_opening until then.
 */
KVARVE_NODISCARD kvarve_status store_open(const kvarve_env *env, const char *directory,
                                          const kvarve_store_options *options,
                                          const store_sink *sink, store_machine **out,
                                          kvarve_error *err);

bool store_is_opening(const store_machine *store);

/* The arena as it is mapped here, its head included: addresses that the store gives lie in it.
 * *out_fd: the memory behind it, -1 without STORE_OPEN_SHARED and in the simulator. Any may be
 * NULL. */
void store_arena(const store_machine *store, const void **out_base, uint64_t *out_size,
                 int *out_fd);
/* Write into the arena's head whose it is, and which life of the server has it (1 or more); before
 * anybody else maps it. */
void store_own_arena(store_machine *store, uint64_t epoch);

/* Take completions and timers. True when something happened: call again before waiting. */
bool store_poll(store_machine *store);

/* When store_poll must be called at the latest, without a completion: monotonic ns, or
 * KVARVE_NEVER. */
uint64_t store_next_deadline(store_machine *store);
/* No deadline is earlier than this: when it falls below what store_next_deadline said, whoever
 * sleeps on that must wake up. */
uint64_t store_soonest_deadline(const store_machine *store);

/* Begin to end: running puts that are READY are brought to flash, others aborted, recency is
 * written. Poll until store_is_idle. */
void store_shut_down(store_machine *store);
bool store_is_idle(const store_machine *store);

/* Free everything. Idle, or its env is dead (simulated power cut): then jobs are never done and
 * nothing is flushed. NULL is a no-op. */
void store_close(store_machine *store);

/* True once a sync or commit has failed. */
bool store_is_failed(const store_machine *store);

/* --- namespaces --- */

KVARVE_NODISCARD kvarve_status store_namespace_open(store_machine *store,
                                                    const kvarve_namespace_options *options,
                                                    store_namespace **out, kvarve_error *err);
void store_namespace_release(store_namespace *name);
const char *store_namespace_text(const store_namespace *name);
uint32_t store_namespace_ranks(const store_namespace *name);
uint32_t store_namespace_groups(const store_namespace *name);
const kvarve_group *store_namespace_group(const store_namespace *name, uint32_t group);
bool store_namespace_is_exact(const store_namespace *name);

/* --- puts --- */

KVARVE_NODISCARD kvarve_status store_put_begin(store_namespace *name, const kvarve_prefix *prefix,
                                               const kvarve_put_options *options, store_put **out,
                                               kvarve_error *err);
uint32_t store_put_state(const store_put *put);
uint32_t store_put_refusal(const store_put *put);
/* An open put whose ranks have all acked and whose pages are not sealed yet: it can not be extended
 * or closed now. */
bool store_put_is_settling(const store_put *put);
KVARVE_NODISCARD kvarve_status store_put_id(const store_put *put, uint8_t out_id[32],
                                            kvarve_error *err);
KVARVE_NODISCARD kvarve_status store_put_plan(store_put *put, uint32_t rank,
                                              kvarve_page_plan *out_pages, size_t max,
                                              size_t *out_count, kvarve_error *err);

/* Where the listed pages of a window group begin, whichever rank copies them: all of the window,
 * once the boundary is known. UINT64_MAX: none is listed. */
uint64_t store_put_first_token(const store_put *put, uint32_t group);

/* A page that a rank is to fill, for code that copies outside the lock. */
typedef struct store_target {
    void *page; /* the store's; NULL: known already, nothing to copy */
    void *address;
    uint32_t size; /* of the page */
    uint32_t group;
    uint64_t position;
    uint64_t first_token;
    uint32_t tokens;
    bool has_expected; /* exact: the digest it was announced with */
    page_digest expected;
} store_target;

/*
 * Look one page of `rank` up and, when it is to be copied, keep its slot from being given away
 * until store_put_copy_end. KVARVE_INVALID: no such page; KVARVE_BUSY: it waits for another put;
 * KVARVE_MISS: the put is over.
 */
KVARVE_NODISCARD kvarve_status store_put_copy_begin(store_put *put, uint32_t rank, uint32_t group,
                                                    uint64_t position, store_target *out,
                                                    kvarve_error *err);
/* The copy is done; digest NULL: it failed or none was taken. */
void store_put_copy_end(store_put *put, const store_target *target, const page_digest *digest);

KVARVE_NODISCARD kvarve_status store_put_ack(store_put *put, uint32_t rank,
                                             const kvarve_page_digest *digests, size_t count,
                                             kvarve_error *err);
KVARVE_NODISCARD kvarve_status store_put_fail(store_put *put, uint32_t rank, kvarve_error *err);
KVARVE_NODISCARD kvarve_status store_put_extend(store_put *put, const kvarve_prefix *prefix,
                                                uint64_t tokens, const kvarve_page_digest *digests,
                                                size_t count, kvarve_error *err);
KVARVE_NODISCARD kvarve_status store_put_close(store_put *put, const kvarve_prefix *prefix,
                                               const kvarve_put_options *options,
                                               kvarve_error *err);
void store_put_abort(store_put *put, uint32_t refusal);
void store_put_release(store_put *put);

/* --- find and lease --- */

/* Either prefix or points. */
typedef struct store_query {
    const kvarve_prefix *prefix;
    const kvarve_prefix_point *points;
    size_t point_count;
} store_query;

/* Where kvarve_find's answers go. */
typedef struct store_answer {
    kvarve_boundary *boundaries; /* room for `max` */
    size_t max;
    size_t *count;       /* or NULL */
    store_lease **lease; /* NULL where the options ask for none */
    kvarve_miss *miss;   /* or NULL */
} store_answer;

KVARVE_NODISCARD kvarve_status store_find(store_namespace *name, const store_query *query,
                                          const kvarve_find_options *options,
                                          const store_answer *out, kvarve_error *err);
KVARVE_NODISCARD kvarve_status store_find_all(store_namespace *name, const kvarve_prefix *prefix,
                                              const kvarve_find_options *options, uint8_t *bitmap,
                                              size_t bitmap_bytes, kvarve_error *err);

typedef enum store_lease_state {
    LEASE_SOFT,
    LEASE_LOADING,
    LEASE_LOADED,
    LEASE_FAILED,
} store_lease_state;

void store_lease_boundary(const store_lease *lease, kvarve_boundary *out);
KVARVE_NODISCARD kvarve_status store_lease_load(store_lease *lease, uint32_t timeout_ms,
                                                kvarve_error *err);
store_lease_state store_lease_status(const store_lease *lease, kvarve_miss *out_miss);
KVARVE_NODISCARD kvarve_status store_lease_extent(store_lease *lease, uint32_t rank, uint32_t group,
                                                  uint64_t *out_first, uint64_t *out_pages,
                                                  uint64_t *out_bytes, kvarve_error *err);

/* A page to read outside the lock, pinned in the arena until store_lease_page_end. */
typedef struct store_source {
    void *page;
    const void *address;
    page_digest digest; /* what the bytes must have */
    uint32_t size;
    uint32_t group;
    uint64_t position;
    uint64_t first_token;
    uint32_t tokens;
    bool is_verified; /* its bytes were checked since they came into the arena */
    uint32_t slot;    /* the store's: what is pinned */
} store_source;

/*
 * One page of `rank`. KVARVE_BUSY: it is on its way from flash (a read was submitted if there was
 * room); ask again after a poll. KVARVE_MISS: it can not be had (damaged, deadline);
 * KVARVE_INVALID: no such page.
 */
KVARVE_NODISCARD kvarve_status store_lease_page_begin(store_lease *lease, uint32_t rank,
                                                      uint32_t group, uint64_t position,
                                                      store_source *out, kvarve_error *err);
/* Done with it. is_right false: its digest did not match: the page is marked, its checkpoints are
 * not found any more. */
void store_lease_page_end(store_lease *lease, const store_source *source, bool was_verified,
                          bool is_right);

/* Submit reads of up to `count` pages from `position` on, as far as there is room: a hint. */
void store_lease_read_ahead(store_lease *lease, uint32_t rank, uint32_t group, uint64_t position,
                            uint64_t count);

/*
 * A read into the caller's own memory, past the arena, verified by the jobs that read. The memory
 * is the kernel's until `done`, which comes once, from a poll.
 */
typedef struct store_direct_read {
    void *bytes;                                /* 4096-aligned */
    size_t size;                                /* room there */
    void (*done)(void *context, bool is_right); /* false: as store_lease_page_end says */
    void *context;
    /* ---- */
    uint64_t pages; /* out: how many are read; 0: nothing was submitted */
    size_t taken;   /* out: their bytes */
} store_direct_read;

/*
 * Submit reads of pages from `position` on, back to back into read->bytes, as far as they are on
 * flash alone, fill whole blocks of 4096 bytes and there is room; at most 32 MiB, or one page.
 * None: store_lease_page_begin says what the first one is. `read` is copied.
 */
KVARVE_NODISCARD kvarve_status store_lease_read_direct(store_lease *lease, uint32_t rank,
                                                       uint32_t group, uint64_t position,
                                                       store_direct_read *read, kvarve_error *err);

void store_lease_release(store_lease *lease);

/* --- administration --- */

void store_statistics(const store_machine *store, kvarve_statistics *out);
/* Visit checkpoints, most recently used first. */
typedef bool (*store_visit)(void *context, const kvarve_checkpoint_info *info);
void store_each(store_machine *store, store_visit visit, void *context);
/* The same without the first `from`, which are passed over unseen. */
void store_each_from(store_machine *store, uint64_t from, store_visit visit, void *context);
KVARVE_NODISCARD kvarve_status store_drop(store_machine *store, const uint8_t id[32],
                                          kvarve_error *err);

/* True when every drop is durable (or the store failed). */
bool store_is_settled(const store_machine *store);

/* The identity document of a namespace, borrowed until the next call; NULL: not known. */
const char *store_document(const store_machine *store, const char *namespace_text);

/* Read and check every page (scrub), a few at a time; store_poll drives it. One at a time:
 * KVARVE_BUSY. */
KVARVE_NODISCARD kvarve_status store_verify_begin(store_machine *store, kvarve_error *err);
/* Progress; true when it is over. */
bool store_verify_progress(const store_machine *store, kvarve_verify_result *out);

/* Give free space back to the file system. KVARVE_BUSY: running. */
KVARVE_NODISCARD kvarve_status store_trim_begin(store_machine *store, kvarve_error *err);
bool store_trim_progress(const store_machine *store, uint64_t *out_bytes,
                         kvarve_status *out_status);

#endif
