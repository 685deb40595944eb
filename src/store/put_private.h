/* put_private.h - what put.c, put_list.c and put_page.c share. */
#ifndef KVARVE_STORE_PUT_PRIVATE_H
#define KVARVE_STORE_PUT_PRIVATE_H

#include "store/store_private.h"

/* put_digests.c */
kvarve_status put_set_digests(store_put *put, const kvarve_page_digest *digests, size_t count,
                              kvarve_error *err);
/* KVARVE_INVALID: this page was named twice. */
kvarve_status put_fail_twice(const kvarve_page_digest *digest, kvarve_error *err);
const page_digest *put_find_digest(const store_put *put, uint32_t rank, uint32_t group,
                                   uint64_t position);
/* put_list.c */
/* List the pages of one space for ends in (from, boundary]; on failure what was listed stays for
 * the abort. */
kvarve_status put_list_pages(store_put *put, uint8_t space_index, const kvarve_prefix *prefix,
                             uint64_t from, uint64_t boundary, bool has_own, kvarve_error *err);
/* A stored, undamaged checkpoint with the put's tokens, kind, draft length and (exact) bytes; or
 * NULL. */
store_checkpoint *put_find_present(const store_put *put, uint8_t space_index);

/* put_repair.c: damaged pages are copied and written again */
void put_claim_page(store_put *put, store_page *page);    /* a new one: this put copies it */
void put_claim_damaged(store_put *put, store_page *page); /* no I/O is in flight on it */
/* The page is damaged, and can not be claimed now: the put does not end before it was. */
void put_await_repair(put_page *item);
bool put_has_damaged(store_put *put); /* true: it waits for repairs of its own pages from now on */
/* A stored page that it needs, but does not list, has turned out to be damaged. */
bool put_is_spoilt(const store_put *put);

/* put_page.c: the life of a page from COPY to flash */
void put_watch(put_page *item);   /* count and follow a page that was just listed */
void put_unwatch(put_page *item); /* stop following it */
/* The bytes in `page`'s slot are complete; `digest` NULL: take it in the pool. */
void page_filled(store_page *page, const page_digest *digest);
/* Submit the writes of sealed pages that wait for them. */
void put_flush(store_machine *store);
/* The put's claim on a page it was copying ends: the oldest other put takes over, or the page goes.
 */
void put_abandon_page(put_page *item);

/* put.c */
bool put_is_over(const store_put *put);
void put_emit(store_put *put, uint32_t kind, uint32_t rank, kvarve_status status);
void put_end(store_put *put, uint8_t state,
             uint8_t refusal); /* may free it, if the caller let go */
/* As store_put_abort, but others that wait for room are not looked at: the caller does that, when
 * it has no put in its hands. */
void put_abort(store_put *put, uint32_t refusal);
void put_withdraw(store_put *put); /* take a published checkpoint back whose bytes were lost */

/* commit_build.c: does what the put adds fit into records? A checkpoint stands in one. */
bool put_could_be_recorded(const store_put *put);

/* put_room.c */
void put_stage(store_put *put); /* reserve room for what was listed, now or later */

/* put_publish.c */
void put_publish(store_put *put);
void put_settle_present(store_put *put); /* known content: PRESENT, once that is durable */

/* put.c: steps */
void put_copies_ended(store_put *put);                /* one copy outside the lock less */
void put_rank_is_done(store_put *put, uint32_t rank); /* it writes into no slot any more */
/* Published, but its put was taken back while somebody leased it: nobody records it. */
bool checkpoint_is_lost(const store_checkpoint *checkpoint);
/* A page of this recorded checkpoint was written again, without a record of it that counts yet:
 * there is something left to do, or to wait for. */
bool checkpoint_has_repair(const store_checkpoint *checkpoint);
bool span_is_unsettled(const store_span *span); /* the same of a span and those before it */
void put_walk_ended(store_put *put);            /* a loop over its pages is over */
void put_take_over(put_page *item); /* its put owns the page now: find room, ask the rank to copy */
void put_advance(store_put *put);   /* publish, queue, as far as it can go now */

/* A page end by layout (put_list.c), also for find. */
uint64_t space_last_end(const store_space *space, uint64_t at);
uint64_t space_next_end(const store_space *space, uint64_t at);
uint32_t space_naming_group(const store_space *space, uint64_t end);
/* The span has the pages of all prefix groups that end there. One under a boundary that names its
 * draft rows has not, and nothing grows from it. */
bool span_is_whole(const store_span *span);
store_span *span_find_whole(const store_space *space, const page_key *first_key); /* newest */
/* A page of the tree that is its checkpoint's own after all, since the boundary names its draft
 * rows. */
bool put_page_is_variant(const put_page *item);
/* Staged for the tree before the boundary was known; the boundary has a page of its own instead. */
bool put_page_is_replaced(const put_page *item);

#endif
