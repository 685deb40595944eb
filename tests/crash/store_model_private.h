/*
 * store_model_private.h - what the files of the oracle share: namespaces, prefixes and options of
 * items.
 */
#ifndef KVARVE_TESTS_STORE_MODEL_PRIVATE_H
#define KVARVE_TESTS_STORE_MODEL_PRIVATE_H

#include "crash/store_items.h"

/* Options of a put, with what they borrow. */
typedef struct put_kit {
    kvarve_put_options options;
    kvarve_page_digest digests[PAGES_MAX];
    uint64_t sizes[2 * GROUPS_MAX];
    uint8_t page[PAGE_MAX];
} put_kit;

/* Open the namespace of a layout, once a session. */
KVARVE_NODISCARD kvarve_status session_name(session *open, uint32_t layout);
KVARVE_NODISCARD kvarve_status item_prefix(const model_item *item, kvarve_prefix **out);
void item_options(const model_item *item, put_kit *kit);

/* Begin a put of it; `is_open`: an open one, of the same tokens in the end. */
KVARVE_NODISCARD kvarve_status item_begin(session *open, const model_item *item, bool is_open,
                                          uint32_t timeout_ms, kvarve_put **out, kvarve_error *err);

/* Fill in place what the store asks of one rank. *out_asked: how many pages that were. */
KVARVE_NODISCARD kvarve_status item_fill_rank(const model_item *item, kvarve_put *put,
                                              uint32_t rank, size_t *out_asked);

/* Compare the boundaries that no checkpoint is (derived ones) with what the found items have. NULL,
 * or what is wrong. */
const char *model_check_derived(session *open, const model *known, const model_view *seen);

#endif
