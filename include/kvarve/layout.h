/*
 * layout.h - what a checkpoint of an engine consists of: namespace, ranks, groups, and where its
 * memory lies.
 *
 * A namespace stands for everything that makes bytes interchangeable: model weights, engine,
 * layout, parallel geometry, precision, tenant salt. It is named by a digest of a JSON document
 * that is kept beside the store, salt excepted.
 *
 * Threads    As store.h.
 * Ownership  kvarve_namespace_open gives a handle that kvarve_namespace_release ends; puts and
 * leases keep it alive.
 */
#ifndef KVARVE_LAYOUT_H
#define KVARVE_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "kvarve/error.h"
#include "kvarve/store.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVARVE_GROUPS_MAX     64u
#define KVARVE_RANKS_MAX      1024u
#define KVARVE_PAGE_BYTES_MAX (UINT32_C(1) << 30)
#define KVARVE_SPAN_MAX       65536u
#define KVARVE_PARTS_MAX      4096u /* pages of one endpoint or auxiliary */

typedef enum kvarve_class {
    KVARVE_CLASS_PREFIX = 0,   /* attention: pages from the first token on */
    KVARVE_CLASS_WINDOW = 1,   /* sliding window: pages that touch the last window_tokens */
    KVARVE_CLASS_ENDPOINT = 2, /* recurrent: the state at exactly N */
    KVARVE_CLASS_AUXILIARY =
        3, /* as endpoint, and tied to kind and draft-prefix length; at most one a layout */
} kvarve_class;

#define KVARVE_GROUP_REPLICATED 1u /* every rank has the same bytes: one page serves all */
#define KVARVE_GROUP_ROWS                                                                          \
    2u /* a page of T tokens holds T * page_bytes / span_tokens bytes: a partial last page is      \
          stored short */
#define KVARVE_GROUP_DRAFT_ROWS                                                                    \
    4u /* prefix, window: pages carry the drafter's rows too; their last page names how many are   \
          valid, so a put's draft_tokens reach at least to the start of that page */
#define KVARVE_GROUP_VARIABLE                                                                      \
    8u /* endpoint, auxiliary: any size, given at each put, split into parts of at most page_bytes \
        */
#define KVARVE_GROUP_OPTIONAL                                                                      \
    16u /* draft group: has an identity of its own (draft_identity); see kvarve_namespace_options  \
         */

/* One group of pages. All fields not named for a class are 0. */
typedef struct kvarve_group {
    uint32_t page_class;  /* kvarve_class */
    uint32_t flags;       /* KVARVE_GROUP_... */
    uint32_t span_tokens; /* prefix, window: tokens a page, 1 .. KVARVE_SPAN_MAX, over all ranks */
    uint32_t window_tokens; /* window: W, 1 or more */
    uint32_t page_bytes;    /* bytes a full page, of one rank; 1 .. KVARVE_PAGE_BYTES_MAX */
    uint32_t reserved[3];   /* 0 */
} kvarve_group;

typedef struct kvarve_namespace kvarve_namespace;

typedef struct kvarve_namespace_options {
    size_t struct_size;
    /* A JSON object with what decides the meaning of the bytes: weights digest, engine, layout,
     * parallel geometry, KV types. No request ids, addresses, pool sizes, paths. Integers, strings,
     * booleans, null, arrays, objects; no reals. */
    const char *identity_json;
    /* A JSON object with what changes only last bits: build, backend, CPU variant. NULL: {}. A miss
     * that is due to this alone says so. */
    const char *numerics_json;
    /* Tenant salt, UTF-8; NULL: "". Never stored or logged. */
    const char *salt;
    /* Identity of the drafter; needed when a group is OPTIONAL, else NULL. Changing it loses the
     * optional groups alone. */
    const char *draft_identity_json;
    const kvarve_group *groups;
    uint32_t group_count; /* 1 .. KVARVE_GROUPS_MAX */
    uint32_t rank_count;  /* 1 .. KVARVE_RANKS_MAX */
    uint32_t flags;       /* KVARVE_NAMESPACE_... */
} kvarve_namespace_options;

/*
 * Exact: callers give the pages' byte digests with every put, and a digest is part of a page's
 * identity: a restore is bit for bit what that very put stored, also where equal tokens were
 * computed to different last bits.
 */
#define KVARVE_NAMESPACE_EXACT 1u

#define KVARVE_NAMESPACE_OPTIONS_INIT                                                              \
    {.struct_size = sizeof(kvarve_namespace_options), .rank_count = 1}

/*
 * Name a namespace and its layout. Nothing is written before the first put.
 *
 * KVARVE_INVALID says which group and field is out of range, or where the JSON is wrong.
 * KVARVE_NO_SPACE: over 65,536 namespaces.
 */
KVARVE_API KVARVE_NODISCARD kvarve_status
kvarve_namespace_open(kvarve_store *store, const kvarve_namespace_options *options,
                      kvarve_namespace **out_namespace, kvarve_error *err);

/* End the handle and set it to NULL. */
KVARVE_API void kvarve_namespace_release(kvarve_namespace **space);

/* Its text, "recurrent-sha256-v1:" and 64 hex digits; borrowed until release. */
KVARVE_API const char *kvarve_namespace_text(const kvarve_namespace *space);

/*
 * --- memory of a paged engine ---
 *
 * One layer of one group of one rank: block b's bytes start at base + b * block_stride and are
 * run_count runs (K, V, ...) of row_bytes for each of the group's block_tokens rows, run after run.
 * Without rows (opaque blocks) run_count is 1 and row_bytes * block_tokens is the block's length.
 * In a page the order is: layer by layer, run by run, row by row (docs/format/pages.md).
 */
typedef struct kvarve_region {
    uint32_t group;
    uint32_t device; /* 0: host memory; others: KVARVE_UNSUPPORTED in this version */
    void *base;      /* borrowed until the namespace is released or regions are registered anew */
    uint64_t block_stride;
    uint64_t row_bytes;
    uint32_t run_count;
    uint32_t block_count; /* block ids are below this */
} kvarve_region;

/*
 * Say where `rank`'s blocks lie. Per group all regions together must make its page_bytes:
 * span_tokens * sum(run_count * row_bytes). Replaces what was registered for the rank; no
 * kvarve_put_copy or kvarve_lease_copy of it may be running then.
 *
 * block_tokens  tokens a block, by group (group_count entries): a multiple or a divisor of
 * span_tokens for prefix and window groups; endpoint and auxiliary groups: 1 (a block is the
 * state).
 *
 * KVARVE_INVALID names the group and what does not fit.
 */
KVARVE_API KVARVE_NODISCARD kvarve_status
kvarve_regions_register(kvarve_namespace *space, uint32_t rank, const kvarve_region *regions,
                        size_t region_count, const uint32_t *block_tokens, kvarve_error *err);

#ifdef __cplusplus
}
#endif

#endif
