/*
 * batch.h - the batch record: what one group commit adds to the store. Byte table:
 * docs/format/batch.md.
 *
 * The same bytes stand in a header slot of a segment and in one row of the index. A record is
 * self-contained: magic, version, store, sequence, its own place, a digest over all of it.
 * Everything a decoder is given is untrusted: every count, size and reference is checked before
 * use, and nothing is accepted that encode would not have written.
 *
 * Pure; no I/O. Threads: any.
 */
#ifndef KVARVE_FORMAT_BATCH_H
#define KVARVE_FORMAT_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "kvarve/error.h"

#define BATCH_BYTES_MAX      (UINT32_C(1) << 20) /* one record, rounded up to 4096 */
#define BATCH_NAMESPACES_MAX 255u
#define BATCH_ITEMS_MAX      UINT32_C(65536) /* pages, spans, checkpoints, drops: each */
#define BATCH_BLOCK          4096u

#define FORMAT_GROUPS_MAX 64u
#define FORMAT_RANKS_MAX  1024u
#define RANK_ALL          0xffffu /* a replicated page: one copy serves all ranks */

typedef struct store_uuid {
    uint8_t bytes[16];
} store_uuid;

/* Where a page lies: a slot of a segment file. */
typedef struct page_place {
    uint32_t segment; /* number of the segment file, 1 or more */
    uint32_t slot;    /* 0-based */
} page_place;

/* Where a batch record lies: a run of 4 KiB blocks in a segment file's header zone. */
typedef struct header_place {
    uint32_t segment;
    uint32_t block;  /* 1-based: block 0 describes the file */
    uint32_t blocks; /* 1 .. 256: in a record, exactly those that its bytes need */
} header_place;

/* One page as it lies on flash. Its id is batch.first_page + its position. */
typedef struct batch_page {
    uint8_t key[32];    /* semantic key (key/key.h); in an exact namespace the digest is part of the
                           identity beside it */
    uint8_t digest[16]; /* XXH3-128 of the valid bytes */
    page_place place;
    uint32_t size;           /* valid bytes, 1 .. 2^30 */
    uint32_t tokens;         /* the boundary the page ends at */
    uint16_t rank;           /* or RANK_ALL */
    uint16_t part;           /* of an endpoint or auxiliary split over pages; else 0 */
    uint8_t group;           /* index in its namespace's layout */
    uint8_t namespace_index; /* in this batch's namespaces */
    uint8_t is_partial;      /* 1: a last page that holds valid rows only */
    uint8_t is_exact;        /* 1: of an exact namespace: the digest is part of its identity */
} batch_page;

/* One node of the prefix tree: the pages of all prefix groups and ranks that end at `tokens`. Its
 * id is batch.first_span + position. */
typedef struct batch_span {
    uint64_t parent; /* span id below this one's, 0: none */
    uint32_t tokens; /* the end */
    uint8_t namespace_index;
    uint32_t page_count; /* 1 or more */
    uint32_t pages_at;   /* its page ids: batch.references[pages_at ..] */
} batch_span;

/* One complete checkpoint. Its id number is batch.first_checkpoint + position. */
typedef struct batch_checkpoint {
    uint8_t id[32];           /* key/key.h checkpoint_id_of */
    uint8_t token_digest[32]; /* at `tokens` */
    uint64_t bucket;          /* first 8 bytes (LE) of the chain digest before its chunk */
    uint64_t tail_hash;       /* rolling hash of the tokens after that */
    uint64_t span;            /* span id of its last full pages, 0: none */
    uint64_t parent;          /* number of the checkpoint it grew from, 0: none known */
    uint64_t companion;       /* number of the draft checkpoint published with it, 0: none */
    int64_t created_s;        /* wall clock, for people */
    uint32_t tokens;
    uint32_t draft_tokens;
    uint8_t kind;
    uint8_t namespace_index;
    uint32_t page_count; /* own pages: window, partial, endpoint, auxiliary; may be 0 */
    uint32_t pages_at;   /* batch.references[pages_at ..] */
} batch_checkpoint;

typedef struct batch {
    store_uuid store;
    uint64_t sequence; /* store-wide, 1 or more, each used once */
    header_place place;
    uint64_t first_page; /* ids start at 1 */
    uint64_t first_span;
    uint64_t first_checkpoint;
    uint32_t namespace_count;
    uint32_t page_count;
    uint32_t span_count;
    uint32_t checkpoint_count;
    uint32_t drop_count;
    uint32_t reference_count;
    uint8_t (*namespaces)[32]; /* the SHA-256 in their names */
    batch_page *pages;
    batch_span *spans;
    batch_checkpoint *checkpoints;
    uint64_t *drops;      /* numbers of checkpoints dropped, that an older record still names */
    uint64_t *references; /* page ids, of this batch or older ones */
} batch;

/* Bytes that encode will need, not rounded; more than BATCH_BYTES_MAX when it is too large. Where
 * the record and its pages are to lie does not change it, so it can be asked before they have a
 * place; place.blocks is this, divided by BATCH_BLOCK and rounded up. */
uint64_t batch_encoded_size(const batch *record);

/*
 * Encode into out[out_size], zero-filled up to the next multiple of 4096. `record` must be within
 * the limits and its references below the ids that it hands out (asserted), pages_at of each item
 * within the references. Decoding lays the references out anew, in the order of the items. out_size
 * >= batch_encoded_size rounded up. *out_used: the record's own bytes, which are what the index
 * keeps.
 */
void batch_encode(const batch *record, void *out, size_t out_size, size_t *out_used);

/*
 * Decode a record of `size` bytes (it may be followed by padding). On KVARVE_OK the arrays belong
 * to the caller (batch_deinit). KVARVE_MISS: no record starts here (no magic). KVARVE_CORRUPT:
 * digest or content is wrong. KVARVE_UNSUPPORTED: a newer version. KVARVE_NO_MEMORY.
 */
KVARVE_NODISCARD kvarve_status batch_decode(const void *bytes, size_t size, batch *out,
                                            kvarve_error *err);

/* The size a record claims, from its first 64 bytes; 0 when none starts here or the claim is beyond
 * the limits. */
uint32_t batch_claimed_size(const void *first_bytes, size_t size);

/* Free the arrays of a decoded batch and zero it. */
void batch_deinit(batch *record);

#endif
