/* find_private.h - what find.c and lease.c share. */
#ifndef KVARVE_STORE_FIND_PRIVATE_H
#define KVARVE_STORE_FIND_PRIVATE_H

#include "store/put_private.h"

/* A usable boundary: a stored checkpoint, or a derived one (a span). */
typedef struct find_hit {
    uint64_t tokens;
    uint32_t kind;
    store_checkpoint *checkpoint; /* NULL: derived */
    store_checkpoint *companion;  /* the draft half, or NULL */
    store_span *span;             /* derived: the last one */
} find_hit;

/* The digest of the first `tokens` tokens, if the query can tell. */
bool query_digest(const store_query *query, uint64_t tokens, uint8_t out[KVARVE_DIGEST_SIZE]);

void find_describe(const store_machine *store, const find_hit *hit, kvarve_boundary *out);

/* lease.c: a lease on a hit; with KVARVE_LEASE_LOAD its load is submitted. */
kvarve_status lease_create(store_namespace *name, const find_hit *hit,
                           const kvarve_find_options *options, store_lease **out,
                           kvarve_error *err);

#endif
