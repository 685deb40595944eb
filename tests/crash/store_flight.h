/*
 * store_flight.h - puts of items, one step at a time, so that several are in flight at once.
 *
 * A flight is begun, or opened and extended and closed; ranks hand over what they are asked for
 * now; and it is waited for, given up or let go of at any time.
 *
 * Threads    One.
 * Ownership  A flight is plain data; flight_release ends what it holds.
 */
#ifndef KVARVE_TESTS_STORE_FLIGHT_H
#define KVARVE_TESTS_STORE_FLIGHT_H

#include "crash/store_model.h"

typedef struct flight {
    kvarve_put *put; /* NULL: free */
    const model_item *item;
    uint32_t lane;     /* LAYOUT_PAGED: its blocks; no other flight's */
    bool is_submitted; /* its copies run, or have run, by themselves */
} flight;

/* Begin it; `is_open`: an open put, nothing is staged yet. */
KVARVE_NODISCARD kvarve_status flight_begin(session *open, flight *of, const model_item *item,
                                            bool is_open);

/* The full pages up to `tokens`: stage, hand over, acknowledge. */
KVARVE_NODISCARD kvarve_status flight_extend(flight *of, uint32_t tokens);

/* The boundary is that of `item`, which begins with the tokens that are staged. */
KVARVE_NODISCARD kvarve_status flight_close(flight *of, const model_item *item);

/* Ranks 0 .. ranks - 1 (0: all) hand over what they are asked for now, and acknowledge. Nothing is
 * waited for. */
void flight_fill(flight *of, uint32_t ranks);

/* The same from registered regions: submitted, and not waited for. */
void flight_submit(flight *of);

/* Wait until it is found, or until nothing moves any more. */
void flight_wait_ready(flight *of);

/* Hand over whatever is asked for until it is over, or until nothing moves any more; then let go.
 */
put_outcome flight_settle(flight *of);

typedef enum flight_end {
    FLIGHT_ABORT, /* the caller gives up */
    FLIGHT_FAIL,  /* its last rank can not deliver */
    FLIGHT_LEAVE, /* the handle is released, and nothing said */
} flight_end;

/* End it before its time. */
put_outcome flight_stop(flight *of, flight_end how);

/* Let go, whatever it is. Harmless when it is free. */
void flight_release(flight *of);

#endif
