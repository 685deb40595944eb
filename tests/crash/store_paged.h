/*
 * store_paged.h - the memory of a paged engine for LAYOUT_PAGED: items are put from registered
 * regions and come back into them (kvarve_put_copy, kvarve_lease_copy).
 *
 * Where a byte of a page lies is said here by docs/format/pages.md section 2 alone, not by the
 * library's own walk: the two must agree. An item uses blocks of its lane, in an order of its own.
 *
 * Threads    One.
 * Ownership  The memory is this file's, for the whole process.
 */
#ifndef KVARVE_TESTS_STORE_PAGED_H
#define KVARVE_TESTS_STORE_PAGED_H

#include "crash/store_model.h"

#define PAGED_LANES   4u
#define PAGED_LANE_IN 3u /* what comes back is copied into this one */

/* Register the regions of every rank. */
KVARVE_NODISCARD kvarve_status paged_register(kvarve_namespace *space);

/* Fill the blocks of `lane` with one rank's state of the item, and submit their copy. */
KVARVE_NODISCARD kvarve_status paged_put(const model_item *item, kvarve_put *put, uint32_t rank,
                                         uint32_t lane);

/* Copy every rank of a loaded lease into blocks and compare. */
read_answer paged_restore(const model_item *item, kvarve_lease *lease);

#endif
