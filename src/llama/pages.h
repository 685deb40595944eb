/*
 * pages.h - how canonical llama.cpp state lies in a namespace of the store: its groups.
 *
 *   main prefix      one page each LLAMA_SPAN tokens, rows      where the layout has pages
 *   main endpoint    any size, in parts of LLAMA_PART_BYTES     where the layout has endpoints
 *   draft prefix     as above, optional                         where there is a drafter
 *   draft endpoint   as above, optional
 *
 * A file that is stored whole is one group: an endpoint of any size at its token count, in parts of
 * LLAMA_WHOLE_PIECE bytes.
 *
 * Threads: any. Pure.
 */
#ifndef KVARVE_LLAMA_PAGES_H
#define KVARVE_LLAMA_PAGES_H

#include "kvarve/checkpoint.h"
#include "llama/codec.h"
#include "llama/identity.h"

#define LLAMA_SPAN       64u
#define LLAMA_PART_BYTES UINT32_C(1048576)
#define LLAMA_GROUP_NONE UINT32_MAX
/* Bytes that are read or written at a time: pages of one step, parts of endpoints. */
#define LLAMA_STEP_BYTES UINT64_C(16777216)

/* The groups of a namespace, and which is which (LLAMA_GROUP_NONE: there is none). */
typedef struct llama_groups {
    kvarve_group group[4];
    uint32_t count;
    uint32_t prefix[LLAMA_PARTS];
    uint32_t endpoint[LLAMA_PARTS];
    uint64_t token_bytes[LLAMA_PARTS];
} llama_groups;

/* KVARVE_UNSUPPORTED: a page or an endpoint would be larger than the store takes. */
KVARVE_NODISCARD kvarve_status llama_groups_of(const llama_layout *main, const llama_layout *draft,
                                               llama_groups *out, kvarve_error *err);
/* The group of files that are stored whole, of at most KVARVE_PARTS_MAX * LLAMA_PART_BYTES. */
void llama_groups_whole(llama_groups *out);

/* Open the namespace of these documents and groups: exact. */
KVARVE_NODISCARD kvarve_status llama_namespace_open(kvarve_store *store,
                                                    const llama_documents *documents,
                                                    const llama_groups *groups, const char *salt,
                                                    kvarve_namespace **out, kvarve_error *err);

#endif
