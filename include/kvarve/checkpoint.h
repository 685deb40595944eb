/*
 * checkpoint.h - store complete checkpoints (put), find and restore them (find, lease).
 *
 * A checkpoint is the whole state of all ranks at one token boundary. It is found only when every
 * page of every group of every rank is there, and it is restored whole and verified, or not at all.
 *
 * Calling sequence
 *     store    kvarve_put_begin -> per rank: kvarve_put_write* | kvarve_put_plan, copy |
 * kvarve_put_copy; kvarve_put_ack
 *              -> kvarve_put_wait or events -> kvarve_put_release
 *     restore  kvarve_find -> kvarve_lease_load -> kvarve_lease_wait or events -> per rank:
 * kvarve_lease_read* | kvarve_lease_pages | kvarve_lease_copy -> kvarve_lease_release
 *              (kvarve_lease_read and kvarve_lease_read_direct need no load)
 *
 * Threads    Ranks may be filled and read by different threads. One rank of a put or lease is used
 * by one thread at a time. Ownership  kvarve_put_begin and kvarve_find give handles that
 * kvarve_put_release and kvarve_lease_release end and set to NULL. Errors     As store.h. A miss is
 * never an error: it is KVARVE_MISS with a reason.
 */
#ifndef KVARVE_CHECKPOINT_H
#define KVARVE_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "kvarve/error.h"
#include "kvarve/layout.h"
#include "kvarve/prefix.h"
#include "kvarve/store.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVARVE_PAGE_DIGEST_SIZE 16 /* XXH3-128, canonical form */
#define KVARVE_RANK_ALL         UINT32_MAX
#define KVARVE_NO_TIMEOUT       UINT32_MAX

typedef enum kvarve_kind {
    KVARVE_KIND_INSTRUCTION = 0, /* end of instructions that conversations share */
    KVARVE_KIND_PROMPT = 1,      /* end of the rendered prompt */
    KVARVE_KIND_RESPONSE = 2,    /* last committed token of the answer */
} kvarve_kind;

/* Why a put was not kept. Append only. */
#define KVARVE_REFUSAL_TABLE(ROW)                                                                  \
    ROW(KVARVE_REFUSED_NOT, "not refused")                                                         \
    ROW(KVARVE_REFUSED_NO_ROOM_FLASH, "no room on flash, also after eviction")                     \
    ROW(KVARVE_REFUSED_NO_ROOM_RAM, "no room in the arena before the deadline")                    \
    ROW(KVARVE_REFUSED_TOO_LARGE, "it can never fit the arena or the cap")                         \
    ROW(KVARVE_REFUSED_LIMIT, "too many puts, checkpoints or pages")                               \
    ROW(KVARVE_REFUSED_READ_ONLY, "the store is open for reading only")                            \
    ROW(KVARVE_REFUSED_FAILED,                                                                     \
        "an earlier sync or commit failed: no writes until it is opened again")                    \
    ROW(KVARVE_REFUSED_RANK_FAILED, "a rank said that it failed")                                  \
    ROW(KVARVE_REFUSED_DEADLINE, "the deadline passed")                                            \
    ROW(KVARVE_REFUSED_IO, "a write failed, or a stored page that it needs is damaged")            \
    ROW(KVARVE_REFUSED_CALLER, "the caller aborted it")                                            \
    ROW(KVARVE_REFUSED_WAIT, "another put is copying a page, and the caller does not wait")        \
    ROW(KVARVE_REFUSED_CLOSED, "the store was closed")

typedef enum kvarve_refusal {
#define KVARVE_REFUSAL_ENUM(name, text) name,
    KVARVE_REFUSAL_TABLE(KVARVE_REFUSAL_ENUM)
#undef KVARVE_REFUSAL_ENUM
} kvarve_refusal;

/* Why there was no hit. Append only. */
#define KVARVE_MISS_TABLE(ROW)                                                                     \
    ROW(KVARVE_MISS_NOT, "a hit")                                                                  \
    ROW(KVARVE_MISS_EMPTY, "nothing is stored in this namespace")                                  \
    ROW(KVARVE_MISS_TOKENS, "no stored boundary is a prefix of these tokens")                      \
    ROW(KVARVE_MISS_LIMITS,                                                                        \
        "boundaries are stored, but none between min and max, of that multiple or kind")           \
    ROW(KVARVE_MISS_NUMERICS, "stored by another build, backend or CPU variant")                   \
    ROW(KVARVE_MISS_NAMESPACE, "stored under another identity")                                    \
    ROW(KVARVE_MISS_DAMAGED, "a page is damaged; the next put repairs it")                         \
    ROW(KVARVE_MISS_DRAFT, "the draft groups of this boundary are not stored")                     \
    ROW(KVARVE_MISS_NO_ROOM, "no room in the arena before the deadline")                           \
    ROW(KVARVE_MISS_DEADLINE, "the deadline passed")                                               \
    ROW(KVARVE_MISS_IO, "a read failed")                                                           \
    ROW(KVARVE_MISS_CLOSED, "the store was closed")

typedef enum kvarve_miss_reason {
#define KVARVE_MISS_ENUM(name, text) name,
    KVARVE_MISS_TABLE(KVARVE_MISS_ENUM)
#undef KVARVE_MISS_ENUM
} kvarve_miss_reason;

/* Static texts, never NULL. */
KVARVE_API const char *kvarve_refusal_text(uint32_t reason);
KVARVE_API const char *kvarve_miss_text(uint32_t reason);

/* One page's bytes, named; digests for exact namespaces and for acks. */
typedef struct kvarve_page_digest {
    uint32_t rank; /* KVARVE_RANK_ALL for replicated groups */
    uint32_t group;
    uint64_t
        position; /* prefix, window: page index (first token / span); endpoint, auxiliary: part */
    uint8_t digest[KVARVE_PAGE_DIGEST_SIZE];
} kvarve_page_digest;

/* --- put --- */

typedef struct kvarve_put kvarve_put;

typedef enum kvarve_put_state {
    KVARVE_PUT_WAITING = 0, /* for room; nothing can be copied yet */
    KVARVE_PUT_STAGED = 1,  /* ranks copy and ack */
    KVARVE_PUT_READY = 2,   /* found from now on, in RAM */
    KVARVE_PUT_DURABLE = 3, /* survives loss of power: over */
    KVARVE_PUT_ABORTED = 4, /* over; kvarve_put_refusal says why */
    KVARVE_PUT_PRESENT = 5, /* known content: nothing is reserved, copied or written: over */
} kvarve_put_state;

typedef struct kvarve_put_options {
    size_t struct_size;
    uint64_t tokens; /* the boundary N, 1 .. prefix length. 0: an open put, see kvarve_put_extend */
    uint64_t draft_tokens; /* leading tokens for which the drafter's state is valid, 0 .. tokens */
    uint32_t kind;         /* kvarve_kind */
    uint32_t timeout_ms;   /* until durable; 0: the store's io timeout */
    uint32_t flags;        /* KVARVE_PUT_... */
    uint32_t digest_count;
    const kvarve_page_digest
        *digests; /* exact namespaces: one for every page of the checkpoint, in any order; a page
                    that is named twice, or is none of its pages, is refused */
    const uint64_t *sizes; /* VARIABLE groups: bytes of each rank's state: [rank * group_count +
                              group]; other entries are ignored; NULL without such groups */
    uint64_t cookie;       /* for events; 0: none are wanted */
} kvarve_put_options;

#define KVARVE_PUT_OPTIONS_INIT {.struct_size = sizeof(kvarve_put_options)}

#define KVARVE_PUT_DROP_ON_WAIT                                                                    \
    1u /* the source can not be held: REFUSED_WAIT instead of waiting for another put's copy */
#define KVARVE_PUT_NO_OPTIONAL 2u /* the optional (draft) groups are not part of this put */

/*
 * Begin to store the state at options->tokens of `prefix`.
 *
 * Decides at once: *out_put is PRESENT (or will be, when an equal one is in flight), STAGED,
 * WAITING for room, or ABORTED with a refusal. In every case the caller releases it.
 *
 * KVARVE_INVALID: a boundary, kind, digest or size that does not fit the layout.
 */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_put_begin(kvarve_namespace *space,
                                                           const kvarve_prefix *prefix,
                                                           const kvarve_put_options *options,
                                                           kvarve_put **out_put, kvarve_error *err);

/* Where it stands now (kvarve_put_state), and why it was refused (kvarve_refusal). */
KVARVE_API uint32_t kvarve_put_status(const kvarve_put *put);
KVARVE_API uint32_t kvarve_put_refusal(const kvarve_put *put);

/* The checkpoint's id, 32 bytes; valid once it is READY, DURABLE or PRESENT. */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_put_id(const kvarve_put *put, uint8_t out_id[32],
                                                        kvarve_error *err);

/*
 * Wait until it is `state` (STAGED, READY or DURABLE; a PRESENT put is all of them) or over. Blocks
 * for at most timeout_ms. KVARVE_BUSY: not yet; KVARVE_MISS: aborted (kvarve_put_refusal).
 */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_put_wait(kvarve_put *put, uint32_t state,
                                                          uint32_t timeout_ms, kvarve_error *err);

typedef enum kvarve_page_action {
    KVARVE_PAGE_COPY = 0, /* the rank must fill `address` */
    KVARVE_PAGE_HAVE = 1, /* stored already: nothing to do */
    KVARVE_PAGE_WAIT = 2, /* another put is copying it: it will become HAVE, or COPY (event) */
} kvarve_page_action;

typedef struct kvarve_page_plan {
    uint32_t group;
    uint32_t action; /* kvarve_page_action */
    uint64_t position;
    uint64_t first_token; /* tokens [first_token, first_token + tokens) for prefix and window */
    uint32_t tokens;
    uint32_t size; /* bytes to fill */
    void *address; /* COPY: 4096-aligned, writable until the ack; else NULL */
} kvarve_page_plan;

/*
 * What `rank` has to do. Fills at most `max` entries, ordered by group and position; *out_count is
 * how many there are. KVARVE_BUSY while the put waits for room.
 */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_put_plan(kvarve_put *put, uint32_t rank,
                                                          kvarve_page_plan *out_pages, size_t max,
                                                          size_t *out_count, kvarve_error *err);

/*
 * Hand over bytes of one page or several neighbouring ones: copied to where they are missing,
 * skipped where they are known.
 *
 * position  first page (prefix, window) or first byte / page_bytes part (endpoint, auxiliary)
 * bytes     whole pages, back to back; the last may be the partial last page
 *
 * A page of a replicated group is taken from the one rank whose plan has it, and skipped from the
 * others: each rank may hand over all that it has, and no rank's may be left out.
 *
 * KVARVE_INVALID when the range does not end at a page's end; KVARVE_CORRUPT in an exact namespace
 * when bytes do not match the digest they were announced with.
 */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_put_write(kvarve_put *put, uint32_t rank,
                                                           uint32_t group, uint64_t position,
                                                           const void *bytes, size_t size,
                                                           kvarve_error *err);

/*
 * Copy all of `rank`'s missing pages from its registered regions and acknowledge them.
 *
 * blocks, block_counts  by group: the block ids that hold the tokens from the group's first page on
 * (prefix: from token 0; window: from the first page of the window; endpoint, auxiliary: one block)
 * ready_event           0 (device events come with other devices)
 *
 * KVARVE_BUSY while the put waits for room: wait for STAGED first.
 * Submitted: the sources stay untouched until SOURCE_RELEASED, or until kvarve_put_wait(READY)
 * returns. The lists of ids are the caller's again when the call is back.
 */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_put_copy(kvarve_put *put, uint32_t rank,
                                                          const uint32_t *const *blocks,
                                                          const size_t *block_counts,
                                                          uint64_t ready_event, kvarve_error *err);

/*
 * `rank` has filled its COPY pages. digests may be NULL: the pool takes them; no page is named
 * twice. Pages that WAIT when a rank acks are followed until they are settled; if one becomes COPY
 * the rank is asked again (COPY_REQUESTED) and acks again. KVARVE_INVALID: unknown rank, or a
 * second ack with nothing asked.
 */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_put_ack(kvarve_put *put, uint32_t rank,
                                                         const kvarve_page_digest *digests,
                                                         size_t digest_count, kvarve_error *err);

/* `rank` can not deliver: the put is aborted (REFUSED_RANK_FAILED), its waiters take over. */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_put_fail(kvarve_put *put, uint32_t rank,
                                                          kvarve_error *err);

/*
 * Open puts: stage the full pages of prefix groups up to `tokens` of the prefix, before the
 * boundary is known. Ranks write or copy and ack as usual; an acked page goes to flash and leaves
 * the arena, so that a state of any size passes through a small arena. The prefix may have grown
 * since begin, at its end only.
 *
 * KVARVE_BUSY: the last extension is not acked by every rank yet, or there is no room before those
 * pages are on flash: wait (STAGED), then go on.
 */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_put_extend(kvarve_put *put,
                                                            const kvarve_prefix *prefix,
                                                            uint64_t tokens,
                                                            const kvarve_page_digest *digests,
                                                            size_t digest_count, kvarve_error *err);

/* Close an open put at a boundary: stages what is missing. options->tokens, kind, draft_tokens,
 * digests (of what is new) and sizes count. */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_put_close(kvarve_put *put,
                                                           const kvarve_prefix *prefix,
                                                           const kvarve_put_options *options,
                                                           kvarve_error *err);

/*
 * Give up. What others wait for is handed to them. Its room on flash is free at once, and so is its
 * room in the arena, but for pages whose address a plan gave to a rank that has neither acked nor
 * failed since: that rank may be writing there. Those are free when it acks or fails (KVARVE_MISS),
 * or when the put is released, which says that no rank writes any more.
 */
KVARVE_API void kvarve_put_abort(kvarve_put *put);

/* End the handle and set it to NULL; a put that is not READY is aborted. NULL is a no-op. */
KVARVE_API void kvarve_put_release(kvarve_put **put);

#define KVARVE_BULK_MAX 4096u /* items of one kvarve_put_many */

/* Bytes of neighbouring pages, as in kvarve_put_write. */
typedef struct kvarve_section {
    uint32_t rank;
    uint32_t group;
    uint64_t position;
    const void *bytes;
    size_t size;
} kvarve_section;

/* One put of many. */
typedef struct kvarve_bulk_item {
    const kvarve_prefix *prefix;
    const kvarve_put_options *options; /* not an open put; the cookie is 0 */
    const kvarve_section *sections;
    size_t section_count;
    uint32_t out_state;   /* kvarve_put_state: DURABLE, PRESENT or ABORTED */
    uint32_t out_refusal; /* kvarve_refusal */
} kvarve_bulk_item;

/*
 * Store many checkpoints; as many as come together share one batch of writes, one sync a file and
 * one transaction. Blocks until each is durable, present or refused: out_state and out_refusal of
 * every item say which. On anything but KVARVE_OK the call stopped at the first item with a bad
 * argument; items before it were stored.
 */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_put_many(kvarve_namespace *space,
                                                          kvarve_bulk_item *items, size_t count,
                                                          kvarve_error *err);

/* --- find --- */

typedef enum kvarve_tier {
    KVARVE_TIER_RAM = 0,   /* every page is in the arena */
    KVARVE_TIER_FLASH = 1, /* some must be read */
} kvarve_tier;

typedef struct kvarve_boundary {
    uint64_t tokens;
    uint64_t bytes;         /* of all its pages */
    uint64_t bytes_to_read; /* of those not in RAM */
    uint64_t expected_ns;   /* time to load, from what reads took lately; 0 in RAM */
    uint64_t draft_tokens;
    uint32_t kind;  /* kvarve_kind; a derived boundary says KVARVE_KIND_INSTRUCTION */
    uint32_t tier;  /* kvarve_tier */
    uint32_t state; /* kvarve_put_state: DURABLE, or READY while any of it is not recorded, also a
                       repair or the draft half */
    uint32_t flags; /* KVARVE_BOUNDARY_... */
    uint8_t id[32]; /* of the checkpoint; zero for a derived boundary */
} kvarve_boundary;

#define KVARVE_BOUNDARY_DERIVED                                                                    \
    1u /* a page end of a layout of prefix groups only, whichever checkpoint stored it */
#define KVARVE_BOUNDARY_DRAFT 2u /* the optional groups are there too */

typedef enum kvarve_lease_mode {
    KVARVE_LEASE_NONE = 0, /* ask only */
    KVARVE_LEASE_SOFT = 1, /* rows and pages stay; no RAM yet */
    KVARVE_LEASE_LOAD = 2, /* as SOFT, and the load is submitted */
} kvarve_lease_mode;

typedef struct kvarve_find_options {
    size_t struct_size;
    uint64_t min_tokens; /* shortest boundary of use; 0: 1 */
    uint64_t max_tokens; /* longest; 0: the prefix's length. A caller that recomputes its last token
                            says tokens - 1 */
    uint64_t multiple_of; /* boundaries must be multiples of it; 0: any */
    uint32_t kinds; /* bit 1 << kvarve_kind; 0: all. Derived boundaries count as instruction */
    uint32_t preferred_kind; /* at one length this kind first, else the newest */
    uint32_t lease;          /* kvarve_lease_mode */
    uint32_t flags;          /* KVARVE_FIND_... */
    uint32_t timeout_ms;     /* of the load; 0: the store's io timeout */
    uint32_t reserved;
    uint64_t cookie; /* of the lease's events; 0: none are wanted */
} kvarve_find_options;

#define KVARVE_FIND_OPTIONS_INIT                                                                   \
    {.struct_size = sizeof(kvarve_find_options), .preferred_kind = KVARVE_KIND_RESPONSE}

#define KVARVE_FIND_NEED_OPTIONAL 1u /* only boundaries with their optional groups */
#define KVARVE_FIND_NO_DERIVED    2u /* stored checkpoints only */

typedef struct kvarve_miss {
    uint32_t reason;        /* kvarve_miss_reason */
    uint32_t group;         /* where a page is meant: KVARVE_MISS_DAMAGED */
    uint64_t common_tokens; /* longest common prefix known with anything stored here, in whole pages
                               or boundaries */
    uint64_t nearest_tokens; /* LIMITS, NUMERICS, NAMESPACE: the longest boundary that would have
                                served */
    char field[64]; /* NUMERICS, NAMESPACE: the first member of the identity that differs */
} kvarve_miss;

typedef struct kvarve_lease kvarve_lease;

/*
 * The boundaries of these tokens that can be restored, longest first, and a lease on the longest.
 *
 * out_boundaries  May be NULL with max 0. *out_count: how many were written.
 * out_lease       NULL with KVARVE_LEASE_NONE.
 * out_miss        May be NULL.
 *
 * KVARVE_MISS: none; *out_miss says why.
 */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_find(kvarve_namespace *space,
                                                      const kvarve_prefix *prefix,
                                                      const kvarve_find_options *options,
                                                      kvarve_boundary *out_boundaries, size_t max,
                                                      size_t *out_count, kvarve_lease **out_lease,
                                                      kvarve_miss *out_miss, kvarve_error *err);

/* A token digest of a prefix, for a caller that keeps no tokens. */
typedef struct kvarve_prefix_point {
    uint64_t tokens;
    uint8_t digest[KVARVE_DIGEST_SIZE];
} kvarve_prefix_point;

/* As kvarve_find, by digests: only boundaries at these lengths (rising, at most 65,536) are looked
 * for. */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_find_points(
    kvarve_namespace *space, const kvarve_prefix_point *points, size_t point_count,
    const kvarve_find_options *options, kvarve_boundary *out_boundaries, size_t max,
    size_t *out_count, kvarve_lease **out_lease, kvarve_miss *out_miss, kvarve_error *err);

/*
 * Set bit n of bitmap (byte n / 8, bit n % 8) for each length n that can be restored and clear the
 * others. The bitmap has bits for 0 .. prefix length. KVARVE_INVALID when it is too small. options
 * as kvarve_find; lease is ignored.
 */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_find_all(kvarve_namespace *space,
                                                          const kvarve_prefix *prefix,
                                                          const kvarve_find_options *options,
                                                          uint8_t *bitmap, size_t bitmap_bytes,
                                                          kvarve_error *err);

/* --- lease --- */

/* What is leased. */
KVARVE_API void kvarve_lease_boundary(const kvarve_lease *lease, kvarve_boundary *out_boundary);

/* Submit the load of all its pages into the arena. Ends with the event LOADED or LOAD_FAILED.
 * KVARVE_INVALID: asked before. */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_lease_load(kvarve_lease *lease,
                                                            uint32_t timeout_ms, kvarve_error *err);

/*
 * Wait for the load. Blocks for at most timeout_ms. KVARVE_BUSY: not yet; KVARVE_MISS: it failed,
 * *out_miss (may be NULL) says why; the caller finds again, and gets the next shorter boundary.
 */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_lease_wait(kvarve_lease *lease,
                                                            uint32_t timeout_ms,
                                                            kvarve_miss *out_miss,
                                                            kvarve_error *err);

typedef struct kvarve_page_view {
    uint32_t group;
    uint32_t tokens;
    uint64_t position;
    uint64_t first_token;
    const void
        *address; /* verified bytes in the arena, valid until the lease is released; read only */
    uint32_t size;
    uint32_t reserved;
} kvarve_page_view;

/*
 * `rank`'s pages in place: each is verified against its digest, then its address is given. The
 * lease must be loaded. Blocks for the digests. KVARVE_MISS: a page is damaged; nothing is handed
 * out.
 */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_lease_pages(kvarve_lease *lease, uint32_t rank,
                                                             kvarve_page_view *out_pages,
                                                             size_t max, size_t *out_count,
                                                             kvarve_error *err);

/*
 * Copy pages of one group into `bytes`, back to back from page `position` on, verified while they
 * are copied. A lease that was not loaded reads from flash, a few pages at a time, whatever the
 * size of the arena. Blocks.
 *
 * size  ends at a page's end. On anything but KVARVE_OK `bytes` holds nothing of use.
 */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_lease_read(kvarve_lease *lease, uint32_t rank,
                                                            uint32_t group, uint64_t position,
                                                            void *bytes, size_t size,
                                                            kvarve_error *err);

/*
 * As kvarve_lease_read, but pages that are on flash alone and a multiple of 4096 bytes long are
 * read straight into `bytes`, past the arena, and verified there: the fastest way from flash to
 * memory of the caller's, which is best backed by huge pages. `bytes` starts at a multiple of 4096.
 * Blocks.
 *
 * KVARVE_BUSY  the disk did not answer within io_timeout_ms. The kernel still writes `bytes`: the
 *              memory must stay there until kvarve_lease_copy_wait of this rank says KVARVE_MISS or
 *              the COPIED event came, also if the lease is released before.
 */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_lease_read_direct(kvarve_lease *lease,
                                                                   uint32_t rank, uint32_t group,
                                                                   uint64_t position, void *bytes,
                                                                   size_t size, kvarve_error *err);

/* Bytes of one group's pages of `rank`, and how many pages; positions run from *out_first. */
KVARVE_API KVARVE_NODISCARD kvarve_status
kvarve_lease_extent(const kvarve_lease *lease, uint32_t rank, uint32_t group, uint64_t *out_first,
                    uint64_t *out_pages, uint64_t *out_bytes, kvarve_error *err);

/*
 * Copy all of `rank`'s pages into its registered regions, verified while copying; blocks as in
 * kvarve_put_copy. Submitted; ends with COPIED (status KVARVE_OK, or KVARVE_MISS: damaged, and what
 * the blocks hold is of no use). The lease must be loaded.
 */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_lease_copy(kvarve_lease *lease, uint32_t rank,
                                                            const uint32_t *const *blocks,
                                                            const size_t *block_counts,
                                                            uint64_t ready_event,
                                                            kvarve_error *err);

/* Wait for `rank`'s copy, or late direct reads. Blocks. KVARVE_BUSY, KVARVE_MISS as above. */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_lease_copy_wait(kvarve_lease *lease, uint32_t rank,
                                                                 uint32_t timeout_ms,
                                                                 kvarve_error *err);

/* End the lease and set it to NULL: at once, or when running copies have drained. NULL is a no-op.
 */
KVARVE_API void kvarve_lease_release(kvarve_lease **lease);

#ifdef __cplusplus
}
#endif

#endif
