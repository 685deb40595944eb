/*
 * store_flight.c - see store_flight.h.
 *
 * Nothing is asserted: a call may fail at any time, as the plan of a sweep has it, and what came of
 * it is told by the put's state.
 */
#include "crash/store_flight.h"

#include "crash/store_model_private.h"
#include "crash/store_paged.h"

#define ROUNDS_MAX 32u /* a page is handed from put to put at most once a round */
#define A_WHILE_MS 50u

static bool is_over(const flight *of)
{
    return kvarve_put_status(of->put) >= KVARVE_PUT_DURABLE;
}

static uint32_t rank_count(const flight *of)
{
    return model_shapes[of->item->layout].rank_count;
}

kvarve_status flight_begin(session *open, flight *of, const model_item *item, bool is_open)
{
    of->put = NULL;
    of->item = item;
    of->is_submitted = false;
    return item_begin(open, item, is_open, 0, &of->put, NULL);
}

static void fill_rank(flight *of, uint32_t rank)
{
    size_t asked = 0;

    if (item_fill_rank(of->item, of->put, rank, &asked) == KVARVE_OK && !is_over(of)) {
        (void)!kvarve_put_ack(of->put, rank, NULL, 0, NULL); /* a second one may be refused: well */
    }
}

void flight_fill(flight *of, uint32_t ranks)
{
    const uint32_t end = ranks == 0 ? rank_count(of) : ranks;

    for (uint32_t rank = 0; rank < end && of->put != NULL && !is_over(of); rank++) {
        fill_rank(of, rank);
    }
}

void flight_submit(flight *of)
{
    of->is_submitted = true;
    for (uint32_t rank = 0; rank < rank_count(of) && of->put != NULL && !is_over(of); rank++) {
        if (paged_put(of->item, of->put, rank, of->lane) != KVARVE_OK) {
            return; /* it waits for room, say: flight_settle does it in place */
        }
    }
}

/* Wait for the pages before, so that it can be extended or closed. */
static kvarve_status wait_until_sealed(flight *of, kvarve_status status)
{
    return status == KVARVE_BUSY
               ? kvarve_put_wait(of->put, KVARVE_PUT_STAGED, KVARVE_NO_TIMEOUT, NULL)
               : status;
}

kvarve_status flight_extend(flight *of, uint32_t tokens)
{
    static put_kit kit;
    kvarve_prefix *prefix = NULL;
    kvarve_status status = of->put == NULL ? KVARVE_MISS : item_prefix(of->item, &prefix);

    if (status != KVARVE_OK) {
        return status;
    }
    item_options(of->item, &kit);
    status = kvarve_put_extend(of->put, prefix, tokens, kit.options.digests,
                               kit.options.digest_count, NULL);
    if (status == KVARVE_BUSY && wait_until_sealed(of, status) == KVARVE_OK) {
        status = kvarve_put_extend(of->put, prefix, tokens, kit.options.digests,
                                   kit.options.digest_count, NULL);
    }
    kvarve_prefix_free(prefix);
    if (status == KVARVE_OK) {
        flight_fill(of, 0);
    }
    return status;
}

kvarve_status flight_close(flight *of, const model_item *item)
{
    static put_kit kit;
    kvarve_prefix *prefix = NULL;
    kvarve_status status = of->put == NULL ? KVARVE_MISS : item_prefix(item, &prefix);

    if (status != KVARVE_OK) {
        return status;
    }
    of->item = item;
    item_options(item, &kit);
    status = kvarve_put_close(of->put, prefix, &kit.options, NULL);
    if (status == KVARVE_BUSY && wait_until_sealed(of, status) == KVARVE_OK) {
        status = kvarve_put_close(of->put, prefix, &kit.options, NULL);
    }
    kvarve_prefix_free(prefix);
    return status;
}

static put_outcome outcome_of(const flight *of, kvarve_status status)
{
    return (put_outcome){.status = status,
                         .state = kvarve_put_status(of->put),
                         .refusal = kvarve_put_refusal(of->put)};
}

void flight_wait_ready(flight *of)
{
    if (of->put != NULL) {
        (void)!kvarve_put_wait(of->put, KVARVE_PUT_READY, A_WHILE_MS, NULL);
    }
}

put_outcome flight_settle(flight *of)
{
    put_outcome out = {.status = KVARVE_MISS, .state = KVARVE_PUT_ABORTED};

    if (of->put == NULL) {
        return out;
    }
    out.status = of->is_submitted ? kvarve_put_wait(of->put, KVARVE_PUT_DURABLE, A_WHILE_MS, NULL)
                                  : KVARVE_BUSY;
    for (uint32_t round = 0; round < ROUNDS_MAX && out.status == KVARVE_BUSY; round++) {
        flight_fill(of, 0);
        out.status = kvarve_put_wait(of->put, KVARVE_PUT_DURABLE, A_WHILE_MS, NULL);
    }
    out = outcome_of(of, out.status);
    flight_release(of);
    return out;
}

put_outcome flight_stop(flight *of, flight_end how)
{
    put_outcome out = {.status = KVARVE_MISS, .state = KVARVE_PUT_ABORTED};

    if (of->put == NULL) {
        return out;
    }
    if (how == FLIGHT_ABORT) {
        kvarve_put_abort(of->put);
    } else if (how == FLIGHT_FAIL) {
        (void)!kvarve_put_fail(of->put, rank_count(of) - 1, NULL);
    }
    out = outcome_of(of, KVARVE_OK);
    flight_release(of);
    return out;
}

void flight_release(flight *of)
{
    if (of->put != NULL) {
        kvarve_put_release(&of->put);
    }
}
