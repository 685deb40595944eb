/*
 * pages.c - the groups of llama.cpp namespaces.
 *
 * Invariant: groups follow from the layouts alone, so that whoever knows the identity document
 * opens the same namespace. Threads: any.
 */
#include "llama/pages.h"

#include <inttypes.h>

#include "base/fail.h"

static uint32_t add_group(llama_groups *groups, kvarve_group group)
{
    groups->group[groups->count] = group;
    return groups->count++;
}

static kvarve_status add_part(llama_groups *groups, const llama_layout *layout, llama_part part,
                              uint32_t flags, kvarve_error *err)
{
    const uint64_t token_bytes = llama_layout_token_bytes(layout);

    groups->token_bytes[part] = token_bytes;
    if (token_bytes > LLAMA_PAGE_BYTES_MAX / LLAMA_SPAN) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED,
                           "a page of %u tokens would have %" PRIu64 " bytes, more than %" PRIu64,
                           LLAMA_SPAN, token_bytes * LLAMA_SPAN, LLAMA_PAGE_BYTES_MAX);
    }
    if (token_bytes > 0) {
        groups->prefix[part] =
            add_group(groups, (kvarve_group){
                                  .page_class = KVARVE_CLASS_PREFIX,
                                  .flags = KVARVE_GROUP_ROWS | flags,
                                  .span_tokens = LLAMA_SPAN,
                                  .page_bytes = (uint32_t)token_bytes * LLAMA_SPAN,
                              });
    }
    if (llama_layout_has_endpoint(layout)) {
        groups->endpoint[part] = add_group(groups, (kvarve_group){
                                                       .page_class = KVARVE_CLASS_ENDPOINT,
                                                       .flags = KVARVE_GROUP_VARIABLE | flags,
                                                       .page_bytes = LLAMA_PART_BYTES,
                                                   });
    }
    return KVARVE_OK;
}

static void clear_groups(llama_groups *groups)
{
    *groups = (llama_groups){0};
    for (int part = 0; part < LLAMA_PARTS; part++) {
        groups->prefix[part] = LLAMA_GROUP_NONE;
        groups->endpoint[part] = LLAMA_GROUP_NONE;
    }
}

kvarve_status llama_groups_of(const llama_layout *main, const llama_layout *draft,
                              llama_groups *out, kvarve_error *err)
{
    clear_groups(out);
    const kvarve_status status = add_part(out, main, LLAMA_MAIN, 0, err);
    if (status != KVARVE_OK || draft == NULL) {
        return status;
    }
    return add_part(out, draft, LLAMA_DRAFT, KVARVE_GROUP_OPTIONAL, err);
}

void llama_groups_whole(llama_groups *out)
{
    clear_groups(out);
    out->endpoint[LLAMA_MAIN] = add_group(out, (kvarve_group){
                                                   .page_class = KVARVE_CLASS_ENDPOINT,
                                                   .flags = KVARVE_GROUP_VARIABLE,
                                                   .page_bytes = (uint32_t)LLAMA_WHOLE_PIECE,
                                               });
}

kvarve_status llama_namespace_open(kvarve_store *store, const llama_documents *documents,
                                   const llama_groups *groups, const char *salt,
                                   kvarve_namespace **out, kvarve_error *err)
{
    kvarve_namespace_options options = KVARVE_NAMESPACE_OPTIONS_INIT;

    options.identity_json = documents->identity;
    options.numerics_json = documents->numerics;
    options.draft_identity_json = documents->draft;
    options.salt = salt;
    options.groups = groups->group;
    options.group_count = groups->count;
    options.flags = KVARVE_NAMESPACE_EXACT;
    return kvarve_namespace_open(store, &options, out, err);
}
