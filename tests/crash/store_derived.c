/*
 * store_derived.c - the oracle's look at boundaries that no checkpoint is: page ends of
 * LAYOUT_DENSE, whichever checkpoint stored them.
 *
 * Invariant
 *   I1  A page end is a boundary as long as a checkpoint that is found has those tokens, and no
 *       longer: what the store keeps beyond that would be space that nothing names (D2).
 */
#include "crash/store_model_private.h"

#include <stdio.h>

static kvarve_status find_derived(session *open, const model_item *item, uint32_t lease_mode,
                                  kvarve_boundary *out, kvarve_lease **out_lease)
{
    kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
    kvarve_prefix *prefix = NULL;
    size_t count = 0;
    kvarve_status status = session_name(open, item->layout);

    if (status == KVARVE_OK) {
        status = item_prefix(item, &prefix);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    options.min_tokens = item->tokens;
    options.kinds = 1u << KVARVE_KIND_INSTRUCTION; /* no item of this layout is one */
    options.lease = lease_mode;
    status = kvarve_find(open->names[item->layout], prefix, &options, out, 1, &count, out_lease,
                         NULL, NULL);
    kvarve_prefix_free(prefix);
    return status;
}

read_answer item_read_derived(session *open, const model_item *item, uint32_t end, bool is_loaded,
                              bool *out_is_found)
{
    model_item boundary = *item;
    kvarve_boundary found = {0};
    kvarve_lease *lease = NULL;
    read_answer answer;

    boundary.tokens = end;
    *out_is_found = find_derived(open, &boundary, is_loaded ? KVARVE_LEASE_LOAD : KVARVE_LEASE_SOFT,
                                 &found, &lease) == KVARVE_OK;
    if (!*out_is_found) {
        return READ_MISS;
    }
    if (found.tokens != end || (found.flags & KVARVE_BOUNDARY_DERIVED) == 0) {
        answer = READ_WRONG;
    } else if (is_loaded && kvarve_lease_wait(lease, KVARVE_NO_TIMEOUT, NULL, NULL) != KVARVE_OK) {
        answer = READ_MISS;
    } else {
        answer = lease_compare(open, &boundary, lease);
    }
    kvarve_lease_release(&lease);
    return answer;
}

static bool is_expected(const model *known, const model_view *seen, size_t at, uint32_t end)
{
    for (size_t i = 0; i < known->count; i++) {
        if (seen->is_found[i] && known->items[i].layout == LAYOUT_DENSE &&
            item_has_same_start(&known->items[i], &known->items[at], end)) {
            return true;
        }
    }
    return false;
}

static const char *check_end(session *open, const model *known, const model_view *seen, size_t at,
                             uint32_t end)
{
    static char text[96]; /* one test thread */
    bool is_found = false;
    const read_answer answer = item_read_derived(
        open, &known->items[at], end, (at + end / MODEL_DERIVED_SPAN) % 2 == 0, &is_found);
    const char *broken = NULL;

    if (answer == READ_WRONG) {
        broken = "wrong bytes (P1)";
    } else if (is_found != is_expected(known, seen, at, end)) {
        broken = is_found ? "a page end is found that nothing has (D2)"
                          : "a page end of a found checkpoint is no boundary (P4)";
    } else if (is_found && answer == READ_MISS) {
        broken = "a page end is found, but not readable (P2, D1)";
    }
    if (broken == NULL) {
        return NULL;
    }
    (void)snprintf(text, sizeof text, "item %zu at %u: %s", at, end, broken);
    return text;
}

const char *model_check_derived(session *open, const model *known, const model_view *seen)
{
    const char *broken = NULL;

    for (size_t i = 0; i < known->count && broken == NULL; i++) {
        if (known->items[i].layout != LAYOUT_DENSE) {
            continue;
        }
        for (uint32_t end = MODEL_DERIVED_SPAN; end <= known->items[i].tokens && broken == NULL;
             end += MODEL_DERIVED_SPAN) {
            broken = check_end(open, known, seen, i, end);
        }
    }
    return broken;
}
