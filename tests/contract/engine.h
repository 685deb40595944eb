/*
 * engine.h - an engine that does not exist: for any layout it knows every byte of every page.
 *
 * Bytes follow from the tokens up to a page's end, its group, rank and position, and a variant that
 * stands for "computed once more, to other last bits". So whatever comes back from a store can be
 * told right or wrong without keeping it.
 *
 * Threads    Different ranks of one put or lease may be used from different threads. Nothing here
 *            asserts: a test does.
 * Ownership  An engine and a state are plain data; both borrow what they point to.
 */
#ifndef KVARVE_TESTS_CONTRACT_ENGINE_H
#define KVARVE_TESTS_CONTRACT_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarve/checkpoint.h"
#include "kvarve/layout.h"

#define ENGINE_GROUPS_MAX 8u
#define ENGINE_PAGE_MAX   ((size_t)1 << 20) /* bytes of a page */

typedef struct engine_layout {
    const char *identity;
    const char *numerics; /* NULL: none */
    const char *drafter;  /* NULL: none */
    const char *salt;
    bool is_exact;
    uint32_t ranks;
    uint32_t group_count;
    kvarve_group groups[ENGINE_GROUPS_MAX];
} engine_layout;

/* The layouts that the suites run over; engine_layouts has all of them. */
extern const engine_layout engine_plain;   /* attention with rows and an endpoint, one rank */
extern const engine_layout engine_hybrid;  /* all four classes, replicated, variable; 4 ranks */
extern const engine_layout engine_exact;   /* as hybrid, exact, 2 ranks */
extern const engine_layout engine_drafted; /* with optional groups, 2 ranks */
extern const engine_layout engine_rows;    /* draft rows in prefix and window pages */
extern const engine_layout engine_dense;   /* prefix groups of two spans only: derived boundaries */
extern const engine_layout *const engine_layouts[];
extern const size_t engine_layout_count;

/* The state of an engine at one boundary. */
typedef struct engine_state {
    const kvarve_prefix *prefix;
    uint64_t tokens;
    uint64_t draft_tokens;
    uint32_t kind;
    uint32_t variant;
    bool has_no_optional;
} engine_state;

typedef struct engine {
    const engine_layout *layout;
    kvarve_namespace *space;
} engine;

/* Open the namespace of a layout. */
KVARVE_NODISCARD kvarve_status engine_open(engine *out, kvarve_store *store,
                                           const engine_layout *layout, kvarve_error *err);
void engine_close(engine *at);

/* The pages of one group of a state, by the definition of its class: positions from *out_first. */
uint64_t engine_extent(const engine *at, const engine_state *state, uint32_t group,
                       uint64_t *out_first);
/* Bytes of one page. */
size_t engine_page_size(const engine *at, const engine_state *state, uint32_t rank, uint32_t group,
                        uint64_t position);
/* All pages of all ranks, a replicated one once, and their bytes; the optional groups' apart. */
typedef struct engine_total {
    uint64_t pages;
    uint64_t bytes;
    uint64_t draft_pages;
    uint64_t draft_bytes;
} engine_total;
engine_total engine_count(const engine *at, const engine_state *state);

/* Its bytes. */
void engine_fill(const engine *at, const engine_state *state, uint32_t rank, uint32_t group,
                 uint64_t position, void *bytes);
bool engine_is_right(const engine *at, const engine_state *state, uint32_t rank, uint32_t group,
                     uint64_t position, const void *bytes, size_t size);

/* --- puts --- */

typedef struct engine_begin {
    uint64_t cookie;
    uint32_t timeout_ms;
    uint32_t flags;
} engine_begin;

/* kvarve_put_begin with all that the layout asks for (digests, sizes). `more` may be NULL. */
KVARVE_NODISCARD kvarve_status engine_put_begin(const engine *at, const engine_state *state,
                                                const engine_begin *more, kvarve_put **out,
                                                kvarve_error *err);
/* kvarve_put_extend and kvarve_put_close likewise. */
KVARVE_NODISCARD kvarve_status engine_put_extend(const engine *at, kvarve_put *put,
                                                 const engine_state *state, kvarve_error *err);
KVARVE_NODISCARD kvarve_status engine_put_close(const engine *at, kvarve_put *put,
                                                const engine_state *state, kvarve_error *err);

/* What one rank was asked for. */
typedef struct engine_work {
    uint64_t copied;
    uint64_t have;
    uint64_t waiting;
} engine_work;

/* Fill the rank's COPY pages where they lie. *out may be NULL. Does not ack. */
KVARVE_NODISCARD kvarve_status engine_put_fill(const engine *at, kvarve_put *put,
                                               const engine_state *state, uint32_t rank,
                                               engine_work *out, kvarve_error *err);
/* Hand the rank's pages over with kvarve_put_write, each group in one piece. Does not ack. */
KVARVE_NODISCARD kvarve_status engine_put_write(const engine *at, kvarve_put *put,
                                                const engine_state *state, uint32_t rank,
                                                kvarve_error *err);
/* Fill and ack all ranks. *out (may be NULL): the sum. */
KVARVE_NODISCARD kvarve_status engine_put_ranks(const engine *at, kvarve_put *put,
                                                const engine_state *state, engine_work *out,
                                                kvarve_error *err);
/* Begin, fill, ack, wait until durable, release. *out_state: how it ended. */
KVARVE_NODISCARD kvarve_status engine_put(const engine *at, const engine_state *state,
                                          uint32_t *out_state, kvarve_error *err);

/* --- leases --- */

/* Read all that a lease has with kvarve_lease_read and compare. KVARVE_CORRUPT: wrong bytes, which
 * must never be. has_draft: the optional groups too. */
KVARVE_NODISCARD kvarve_status engine_read(const engine *at, kvarve_lease *lease,
                                           const engine_state *state, bool has_draft,
                                           kvarve_error *err);
/* The same through kvarve_lease_pages; the lease is loaded. */
KVARVE_NODISCARD kvarve_status engine_view(const engine *at, kvarve_lease *lease,
                                           const engine_state *state, bool has_draft,
                                           kvarve_error *err);
/* Find exactly this boundary of this kind and take a lease of `mode`. */
KVARVE_NODISCARD kvarve_status engine_find(const engine *at, const engine_state *state,
                                           uint32_t mode, kvarve_boundary *out,
                                           kvarve_lease **out_lease, kvarve_miss *out_miss,
                                           kvarve_error *err);
/* Find, read, compare, release. */
KVARVE_NODISCARD kvarve_status engine_restore(const engine *at, const engine_state *state,
                                              bool is_loaded, kvarve_error *err);

/* A prefix of `count` tokens drawn from `seed`; token i of equal seeds is equal. */
kvarve_prefix *engine_prefix(uint64_t seed, uint64_t count);

#endif
