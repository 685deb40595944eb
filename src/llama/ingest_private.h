/* ingest_private.h - what ingest.c (reading, digests) and ingest_put.c (the store) share. */
#ifndef KVARVE_LLAMA_INGEST_PRIVATE_H
#define KVARVE_LLAMA_INGEST_PRIVATE_H

#include "hash/hash.h"
#include "llama/ingest.h"
#include "llama/pages.h"

/* One boundary that is to be stored. */
typedef struct ingest_boundary {
    uint64_t tokens;
    uint32_t kind;
    uint32_t index;                       /* of its endpoint: LLAMA_RESPONSE or a checkpoint */
    bool has_draft;                       /* the draft groups are part of it */
    page_digest last_page[LLAMA_PARTS];   /* of the partial last page, if there is one */
    page_digest *parts[LLAMA_PARTS];      /* owned: digests of its endpoint's parts */
    uint64_t endpoint_bytes[LLAMA_PARTS]; /* 0: none */
} ingest_boundary;

struct llama_ingest {
    kvarve_io *io;
    kvarve_fd fd;
    uint64_t size;
    llama_slot *slot;
    const char *whole_reason; /* NULL: it is cut up */
    char whole_text[KVARVE_ERROR_TEXT_MAX];
    llama_groups groups;
    ingest_boundary boundaries[LLAMA_BOUNDARIES_MAX];
    uint32_t boundary_count;
    page_digest *pages[LLAMA_PARTS]; /* owned: of the full pages, in order */
    uint64_t page_count;             /* full pages of the file */
    uint8_t *step;                   /* owned: bytes on their way, step_size of them */
    size_t step_size;
    llama_ingest_options options;
    uint64_t done; /* for progress */
    /* While an endpoint passes by: digest of the part that is not complete yet. Borrowed from the
     * stack, because it is aligned more than memory that is allocated. */
    page_digest_state *part_state;
};

uint64_t ingest_part_count(const llama_ingest *ingest, const ingest_boundary *boundary,
                           llama_part part);
/* Read `count` pages from `first_page` on into the step; the last may be partial, up to `end`. */
kvarve_status ingest_read_pages(llama_ingest *ingest, llama_part part, uint64_t first_page,
                                uint64_t count, uint64_t end, kvarve_error *err);
/* Read bytes of a boundary's endpoint, or of the file that is stored whole, into the step. */
kvarve_status ingest_read_endpoint(llama_ingest *ingest, const ingest_boundary *boundary,
                                   llama_part part, uint64_t offset, size_t size,
                                   kvarve_error *err);

#endif
