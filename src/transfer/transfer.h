/*
 * transfer.h - an engine's regions <-> pages: gather, digest, verify, scatter.
 *
 * An engine registers memory, not pages: for each group a region per layer, cut into blocks, and a
 * sequence owns a list of block ids. A page is the canonical form of some tokens of it:
 *
 *   with rows     for each layer in order, for each of its runs (K, then V; or a head's), the rows
 *                 of the page's tokens in order. Any tokens of the sequence can be a page; a last
 *                 page of T tokens holds T rows of each run, and nothing else.
 *
 *   opaque        for each block of the page in order, for each layer its block_bytes. A page is
 *                 whole blocks; a last page takes the whole of the block that it ends in.
 *
 * Two engines whose regions lie differently but hold the same rows give the same page.
 *
 * Endpoint and auxiliary groups are opaque ones with block_tokens = span = 1: a page is one block.
 *
 * Threads    any; regions and pages are the caller's, who keeps others from writing to them during
 * a call. Pure copying: no lock, no allocation. Errors     everything from outside (geometry, ids,
 * sizes) is checked before the first byte is touched: KVARVE_INVALID, with the group and the range
 * in the text. Memory that is not the host's: KVARVE_UNSUPPORTED.
 */
#ifndef KVARVE_TRANSFER_TRANSFER_H
#define KVARVE_TRANSFER_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "env/executor.h"
#include "hash/hash.h"
#include "kvarve/error.h"

#define TRANSFER_PAGE_MAX    (UINT32_C(1) << 30) /* bytes of a page */
#define TRANSFER_LAYERS_MAX  4096u
#define TRANSFER_RUNS_MAX    65536u
#define TRANSFER_DEVICE_HOST 0u

/*
 * The memory of one layer of a group. Row t of run r of block b begins at
 * base + b * block_stride + r * run_stride + t * row_stride, in any nesting: no two rows may lie
 * over each other. An opaque layer has no runs and rows: their fields are 0. A stride of what is
 * there once is not looked at. Layers of a group must not lie over each other either; that is not
 * checked.
 */
typedef struct transfer_region {
    void *base;            /* borrowed */
    uint64_t size;         /* bytes from base on that are the region's: nothing beyond is touched */
    uint64_t block_stride; /* from one block to the next */
    uint64_t block_bytes;  /* opaque: used bytes of a block; with rows: not looked at */
    uint64_t run_stride;   /* may be larger than a block (all K, then all V) */
    uint64_t row_stride;   /* from one token to the next */
    uint32_t run_count;
    uint32_t row_bytes; /* of one token in one run */
    uint32_t device;    /* TRANSFER_DEVICE_HOST */
} transfer_region;

/* A group as one rank holds it. All layers are opaque or all have rows. */
typedef struct transfer_group {
    const transfer_region *layers; /* borrowed */
    uint32_t layer_count;
    uint32_t group;        /* its index, for texts */
    uint32_t block_count;  /* block ids are below this */
    uint32_t block_tokens; /* tokens of a block */
    uint32_t span; /* tokens of a full page: whole blocks; with rows also a whole part of a block */
} transfer_group;

/* Which tokens of which sequence. */
typedef struct transfer_page {
    const uint32_t *block_ids; /* of the sequence from its first token on, each once; borrowed */
    size_t block_count;
    uint32_t first_token; /* counted from the first token of block_ids[0] */
    uint32_t tokens;      /* 1 .. span */
} transfer_page;

/* Whether this geometry can be used at all: once for each rank that attaches. */
KVARVE_NODISCARD kvarve_status transfer_check_group(const transfer_group *group, kvarve_error *err);

/* Whether this page is there: its blocks' ids and its tokens. For looking at all pages of a request
 * before the first is copied. The group has been checked. */
KVARVE_NODISCARD kvarve_status transfer_check_page(const transfer_group *group,
                                                   const transfer_page *page, kvarve_error *err);

/* Bytes of a page of `tokens` (1 .. span) of a checked group; at most TRANSFER_PAGE_MAX. */
uint32_t transfer_page_bytes(const transfer_group *group, uint32_t tokens);

/* Region -> page. `size` must be the page's bytes. The digest is that of what arrived at `out`. */
KVARVE_NODISCARD kvarve_status transfer_gather(const transfer_group *group,
                                               const transfer_page *page, void *out, size_t size,
                                               page_digest *out_digest, kvarve_error *err);

/*
 * Page -> region, verified while it is copied. KVARVE_CORRUPT: what arrived in the region is not
 * what `expected` is the digest of. The blocks have been written by then, and the engine must not
 * use them: the result, not the arrival of bytes, is what makes them good.
 */
KVARVE_NODISCARD kvarve_status transfer_scatter_verified(const transfer_group *group,
                                                         const transfer_page *page,
                                                         const void *bytes, size_t size,
                                                         const page_digest *expected,
                                                         kvarve_error *err);

/* Pages that are one piece on both sides. No overlap of `to` and `from`. */
page_digest transfer_copy_in(void *to, const void *from, size_t size);
/* False: what arrived at `to` is not what `expected` is the digest of, and must not be used. */
KVARVE_NODISCARD bool transfer_copy_out(void *to, const void *from, size_t size,
                                        const page_digest *expected);
KVARVE_NODISCARD bool transfer_verify(const void *bytes, size_t size, const page_digest *expected);
page_digest transfer_digest(const void *bytes, size_t size);

/*
 * The same as a job of the COPY lane. Fill the fields that the work names, set `done` by
 * transfer_job_init, submit &job->base; in `done`, and after it, `status` is what the call would
 * have returned (false is KVARVE_CORRUPT) and `err` has its text. Everything pointed to stays the
 * caller's and must live, unchanged, until then.
 */
typedef enum transfer_work {
    TRANSFER_GATHER,   /* group, page: -> to;   digest is the result */
    TRANSFER_SCATTER,  /* group, page: <- from; digest is what is expected */
    TRANSFER_COPY_IN,  /* from -> to;           digest is the result */
    TRANSFER_COPY_OUT, /* from -> to;           digest is what is expected */
    TRANSFER_VERIFY,   /* from;                 digest is what is expected */
    TRANSFER_DIGEST,   /* from;                 digest is the result */
} transfer_work;

typedef struct transfer_job {
    kvarve_job base; /* first */
    transfer_work work;
    const transfer_group *group;
    transfer_page page;
    void *to;
    const void *from;
    size_t size;
    page_digest digest;
    kvarve_status status;
    kvarve_error err;
} transfer_job;

/* Zero the job and make it one of this work. `done` gets &job->base. */
void transfer_job_init(transfer_job *job, transfer_work work, void (*done)(kvarve_job *base));

#endif
