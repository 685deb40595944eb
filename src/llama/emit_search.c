/*
 * emit_search.c - where the longest boundary of a token list is stored.
 *
 * A slot file's layout belongs to the identity, and whoever emits has no slot file. So the kept
 * identity documents are read: one that agrees in everything else tells the layout. Normally there
 * is exactly one.
 *
 * Invariants
 *   I1  A namespace is opened with documents made from our own identity, never with a kept one:
 *       what is found was stored under exactly our identity.
 *   I2  Which of two layouts is meant is never guessed.
 *
 * Threads: one. Ownership: a source is cleared by its emission.
 */
#include "llama/emit_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "env/io_all.h"

#define NAMESPACE_HEAD  "recurrent-sha256-v1:"
#define DOCUMENT_SUFFIX ".json"
#define HEX_LENGTH      64
#define FOUND_MAX       65536 /* as many namespaces as a store has */

typedef struct kept_list {
    char names[FOUND_MAX][HEX_LENGTH + 1];
    size_t count;
} kept_list;

typedef struct kept_documents {
    llama_found found[FOUND_MAX];
    size_t count;
} kept_documents;

/* ---- Kept documents ---- */

static bool visit_name(void *context, const char *name)
{
    kept_list *list = context;

    if (strlen(name) == HEX_LENGTH + sizeof(DOCUMENT_SUFFIX) - 1 &&
        strcmp(name + HEX_LENGTH, DOCUMENT_SUFFIX) == 0 && list->count < FOUND_MAX) {
        memcpy(list->names[list->count], name, HEX_LENGTH);
        list->names[list->count++][HEX_LENGTH] = '\0';
    }
    return list->count < FOUND_MAX;
}

/* One document of the store; *out NULL: it is not known there. */
static kvarve_status load_document(kvarve_store *store, const char *hex, char **out,
                                   kvarve_error *err)
{
    char text[sizeof(NAMESPACE_HEAD) + HEX_LENGTH];
    size_t size = 0;
    char *document = NULL;

    (void)snprintf(text, sizeof(text), "%s%s", NAMESPACE_HEAD, hex);
    *out = NULL;
    kvarve_status status = kvarve_namespace_document(store, text, NULL, 0, &size, err);
    if (status == KVARVE_NO_SPACE) {
        document = kvarve_allocate(size);
        if (document == NULL) {
            return kvarve_fail(err, KVARVE_NO_MEMORY, "an identity document of %zu bytes", size);
        }
        status = kvarve_namespace_document(store, text, document, size, &size, err);
    }
    if (status != KVARVE_OK) {
        kvarve_release(document);
        return status == KVARVE_MISS ? KVARVE_OK : status;
    }
    *out = document;
    return KVARVE_OK;
}

static kvarve_status load_documents(const emit_run *emission, kept_documents *out,
                                    kvarve_error *err)
{
    kvarve_io *io = emission->options->io;
    char path[KVARVE_PATH_MAX];
    kept_list *list = kvarve_allocate(sizeof(*list));
    kvarve_status status = KVARVE_OK;

    if (list == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "kept documents");
    }
    if (io_join_path(path, sizeof(path), emission->options->store_path, "namespaces") == 0) {
        (void)io->ops->list(io, path, visit_name, list); /* none yet: nothing is stored */
    }
    for (size_t i = 0; i < list->count && status == KVARVE_OK; i++) {
        char *document = NULL;
        status = load_document(emission->store, list->names[i], &document, err);
        if (status == KVARVE_OK && document != NULL) {
            status =
                llama_identity_compare(emission->identity, document, &out->found[out->count], err);
            out->count += status == KVARVE_OK;
        }
        kvarve_release(document);
    }
    kvarve_release(list);
    return status;
}

/* ---- One source ---- */

void emit_source_clear(emit_source *source)
{
    kvarve_lease_release(&source->lease);
    kvarve_namespace_release(&source->space);
    for (int part = 0; part < LLAMA_PARTS; part++) {
        llama_layout_free(source->layout[part]);
    }
    *source = (emit_source){0};
}

kvarve_find_options emit_find_options(const emit_run *emission)
{
    const llama_emit_options *options = emission->options;
    const uint64_t length = kvarve_prefix_length(emission->prefix);
    kvarve_find_options find = KVARVE_FIND_OPTIONS_INIT;

    find.min_tokens = options->min_tokens;
    find.max_tokens = options->max_tokens != 0 ? options->max_tokens : length - 1;
    find.lease = KVARVE_LEASE_SOFT;
    find.timeout_ms = options->timeout_ms;
    find.flags = options->needs_draft ? KVARVE_FIND_NEED_OPTIONAL : 0;
    return find;
}

static kvarve_status find_in(emit_run *emission, emit_source *source, kvarve_miss *miss,
                             kvarve_error *err)
{
    const kvarve_find_options find = emit_find_options(emission);

    return kvarve_find(source->space, emission->prefix, &find, source->boundaries, EMIT_SHORTER_MAX,
                       &source->boundary_count, &source->lease, miss, err);
}

kvarve_status emit_search_again(emit_run *emission, kvarve_error *err)
{
    kvarve_lease_release(&emission->source.lease);
    return find_in(emission, &emission->source, &emission->result->miss, err);
}

/* The draft layout that is kept for this main layout; NULL: none. */
static const llama_layout *draft_of(const kept_documents *kept, const llama_layout *main)
{
    for (size_t i = 0; i < kept->count; i++) {
        const llama_found *found = &kept->found[i];
        if (found->is_draft && found->fit >= LLAMA_FIT_NUMERICS &&
            llama_layout_is_equal(found->layout, main)) {
            return found->draft;
        }
    }
    return NULL;
}

/* A copy, by way of its text. */
static kvarve_status copy_layout(const llama_layout *layout, llama_layout **out, kvarve_error *err)
{
    size_t size = 0;
    char *text = kvarve_allocate(LLAMA_LAYOUT_TEXT_MAX);

    if (text == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "a layout");
    }
    kvarve_status status = llama_layout_encode(layout, text, LLAMA_LAYOUT_TEXT_MAX, &size, err);
    if (status == KVARVE_OK) {
        status = llama_layout_decode(text, size, out, err);
    }
    kvarve_release(text);
    return status;
}

/* Open the namespace of our identity with the layout that `found` tells. (I1) */
static kvarve_status open_source(const emit_run *emission, const kept_documents *kept,
                                 const llama_found *found, emit_source *out, kvarve_error *err)
{
    llama_documents documents = {0};
    const llama_layout *draft = found->is_whole ? NULL : draft_of(kept, found->layout);
    kvarve_status status;

    out->is_whole = found->is_whole;
    if (found->is_whole) {
        llama_groups_whole(&out->groups);
        status = llama_identity_whole(emission->identity, &documents, err);
    } else {
        status =
            llama_identity_documents(emission->identity, found->layout, draft, &documents, err);
        if (status == KVARVE_OK) {
            status = llama_groups_of(found->layout, draft, &out->groups, err);
        }
        if (status == KVARVE_OK) {
            status = copy_layout(found->layout, &out->layout[LLAMA_MAIN], err);
        }
        if (status == KVARVE_OK && draft != NULL) {
            status = copy_layout(draft, &out->layout[LLAMA_DRAFT], err);
        }
    }
    if (status == KVARVE_OK) {
        status = llama_namespace_open(emission->store, &documents, &out->groups,
                                      emission->options->salt, &out->space, err);
    }
    llama_documents_free(&documents);
    return status;
}

/* ---- All sources ---- */

static bool is_same_shape(const llama_found *a, const llama_found *b)
{
    return a->is_whole == b->is_whole &&
           (a->is_whole || llama_layout_is_equal(a->layout, b->layout));
}

/* Whether a source like kept->found[index] was tried before. */
static bool was_tried(const kept_documents *kept, size_t index, llama_fit least)
{
    for (size_t i = 0; i < index; i++) {
        const llama_found *found = &kept->found[i];
        if (!found->is_draft && found->fit >= least && is_same_shape(found, &kept->found[index])) {
            return true;
        }
    }
    return false;
}

/* The more telling of two misses: the one that came closer. */
static void keep_miss(kvarve_miss *kept, const kvarve_miss *other)
{
    const uint64_t kept_tokens =
        kept->nearest_tokens > kept->common_tokens ? kept->nearest_tokens : kept->common_tokens;
    const uint64_t other_tokens =
        other->nearest_tokens > other->common_tokens ? other->nearest_tokens : other->common_tokens;

    if (kept->reason == KVARVE_MISS_NOT || other_tokens > kept_tokens) {
        *kept = *other;
    }
}

/* Take a source that hit: the longer one stays. */
static kvarve_status take_source(emit_run *emission, emit_source *hit, kvarve_error *err)
{
    emit_source *best = &emission->source;

    if (best->space != NULL && !best->is_whole && !hit->is_whole &&
        llama_identity_flash(emission->identity) == LLAMA_FLASH_UNKNOWN) { /* I2 */
        emit_source_clear(hit);
        return kvarve_fail(err, KVARVE_UNSUPPORTED,
                           "state of two layouts is stored; say which one the server takes with "
                           "--flash-attn on or off");
    }
    if (best->space == NULL || hit->boundaries[0].tokens > best->boundaries[0].tokens ||
        (hit->boundaries[0].tokens == best->boundaries[0].tokens && best->is_whole)) {
        emit_source_clear(best);
        *best = *hit;
    } else {
        emit_source_clear(hit);
    }
    return KVARVE_OK;
}

static kvarve_status try_one(emit_run *emission, const kept_documents *kept, size_t index,
                             kvarve_error *err)
{
    emit_source source = {0};
    kvarve_miss miss = {0};
    kvarve_error refused = {0};
    kvarve_status status = open_source(emission, kept, &kept->found[index], &source, &refused);

    if (status == KVARVE_INVALID) {
        /* Only with a foreign identity: its layout contradicts ours, which says where it differs.
         */
        const char *field =
            llama_identity_difference(emission->identity, kept->found[index].layout);
        miss.reason = KVARVE_MISS_NAMESPACE;
        (void)snprintf(miss.field, sizeof(miss.field), "%s", field != NULL ? field : "layout");
        status = KVARVE_MISS;
    } else if (status == KVARVE_OK) {
        status = find_in(emission, &source, &miss, &refused);
    }
    if (status == KVARVE_OK) {
        return take_source(emission, &source, err);
    }
    emit_source_clear(&source);
    if (status == KVARVE_MISS) {
        keep_miss(&emission->result->miss, &miss);
        return KVARVE_OK;
    }
    return kvarve_fail(err, status, "%s", refused.text);
}

static kvarve_status try_all(emit_run *emission, const kept_documents *kept, llama_fit least,
                             kvarve_error *err)
{
    kvarve_status status = KVARVE_OK;

    for (size_t i = 0; i < kept->count && status == KVARVE_OK; i++) {
        const llama_found *found = &kept->found[i];
        if (!found->is_draft && found->fit >= least && !was_tried(kept, i, least)) {
            status = try_one(emission, kept, i, err);
        }
    }
    return status;
}

kvarve_status emit_search(emit_run *emission, kvarve_error *err)
{
    kept_documents *kept = kvarve_allocate(sizeof(*kept));

    if (kept == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "kept documents");
    }
    kvarve_status status = load_documents(emission, kept, err);
    if (status == KVARVE_OK) {
        status = try_all(emission, kept, LLAMA_FIT_NUMERICS, err);
    }
    if (status == KVARVE_OK && emission->source.space == NULL &&
        emission->result->miss.reason == KVARVE_MISS_NOT) {
        /* Nothing of this identity: what another one has tells the field that differs. */
        status = try_all(emission, kept, LLAMA_FIT_OTHER, err);
    }
    for (size_t i = 0; i < kept->count; i++) {
        llama_found_clear(&kept->found[i]);
    }
    kvarve_release(kept);
    if (status != KVARVE_OK || emission->source.space != NULL) {
        return status;
    }
    if (emission->result->miss.reason == KVARVE_MISS_NOT) {
        emission->result->miss.reason = KVARVE_MISS_EMPTY;
    }
    return KVARVE_MISS;
}
