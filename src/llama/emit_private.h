/* emit_private.h - what emit.c (one emission), emit_search.c (where it comes from) and emit_write.c
 * (the file) share. */
#ifndef KVARVE_LLAMA_EMIT_PRIVATE_H
#define KVARVE_LLAMA_EMIT_PRIVATE_H

#include "llama/emit.h"
#include "llama/pages.h"

#define EMIT_SHORTER_MAX 64

/* A namespace that could serve, and what was found in it. */
typedef struct emit_source {
    kvarve_namespace *space;
    llama_layout *layout[LLAMA_PARTS]; /* owned; none for whole files */
    llama_groups groups;
    bool is_whole;
    kvarve_lease *lease;
    kvarve_boundary boundaries[EMIT_SHORTER_MAX]; /* longest first; [0] is leased */
    size_t boundary_count;
} emit_source;

typedef struct emit_run {
    kvarve_store *store;
    const llama_identity *identity;
    const llama_emit_options *options;
    kvarve_prefix *prefix;
    llama_emit_result *result;
    emit_source source;
} emit_run;

/* Find the source with the longest boundary. KVARVE_MISS: result->miss says why there is none. */
KVARVE_NODISCARD kvarve_status emit_search(emit_run *emission, kvarve_error *err);
/* Find again in the source that is known, after a page turned out to be damaged. */
KVARVE_NODISCARD kvarve_status emit_search_again(emit_run *emission, kvarve_error *err);
void emit_source_clear(emit_source *source);

/* Find options of an emission. */
kvarve_find_options emit_find_options(const emit_run *emission);

/* Write the source's boundary into `fd`. KVARVE_MISS: a page is damaged. */
KVARVE_NODISCARD kvarve_status emit_write(emit_run *emission, kvarve_fd fd, kvarve_error *err);

#endif
