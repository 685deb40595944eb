/*
 * wipe.c - records of dead batches are wiped, so that no rebuild takes them for living ones.
 *
 * A rebuild knows nothing but the records that it finds in the header zones. One whose row has left
 * the index stood there until its blocks were used again, and brought back what was dropped with
 * it, as long as the pages were still there. So: I1  The first block of a dead record is
 * overwritten before its blocks are free. Its row has left the index durably then, so a crash at
 * any point leaves a record that is whole and unknown, or none. I2  The wipe is not synced: the
 * next commit in that file does. A power cut before it brings the record back, and only a rebuild
 * would see it.
 *
 * Threads: under the store's lock; the write is a job.
 */
#include <stdalign.h>

#include "base/alloc.h"
#include "store/store_private.h"

typedef struct wipe {
    segment_request request;
    store_machine *store;
    batch_row *row; /* in store.wiping */
} wipe;

static alignas(KVARVE_IO_ALIGNMENT) const uint8_t nothing[BATCH_BLOCK];

static void free_row(store_machine *store, batch_row *row)
{
    segment_free_header(store->segments, row->place);
    kvarve_list_remove(&row->link);
    kvarve_release(row);
}

/* A wipe that failed has had its chance: the blocks are used again some time. */
static void wipe_done(segment_request *request, void *context)
{
    wipe *own = context;
    store_machine *store = own->store;

    (void)request;
    free_row(store, own->row);
    kvarve_release(own);
    store->wants_commit = true; /* one may wait for these blocks */
}

bool wipe_is_due(const store_machine *store)
{
    return !kvarve_list_is_empty(&store->unwiped) || !kvarve_list_is_empty(&store->wiping);
}

/* KVARVE_NO_MEMORY: later. */
static kvarve_status submit_wipe(store_machine *store, batch_row *row)
{
    const header_place first = {
        .segment = row->place.segment, .block = row->place.block, .blocks = 1};
    wipe *own = kvarve_allocate(sizeof *own);
    kvarve_status status;

    if (own == NULL) {
        return KVARVE_NO_MEMORY;
    }
    own->store = store;
    own->row = row;
    own->request = (segment_request){.done = wipe_done, .context = own};
    status = segment_write_header(store->segments, first, nothing, &own->request, NULL);
    if (status != KVARVE_OK) {
        kvarve_release(own);
    }
    return status;
}

void wipe_start(store_machine *store)
{
    while (!kvarve_list_is_empty(&store->unwiped)) {
        batch_row *row = KVARVE_LIST_ITEM(store->unwiped.next, batch_row, link);
        const kvarve_status status = submit_wipe(store, row);

        if (status == KVARVE_NO_MEMORY) {
            return; /* store_poll comes again */
        }
        kvarve_list_remove(&row->link);
        kvarve_list_append(&store->wiping, &row->link);
        if (status != KVARVE_OK) { /* nothing is written any more */
            free_row(store, row);
        }
    }
}
