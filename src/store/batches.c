/*
 * batches.c - living batch records, tombstones of dropped checkpoints, and space that waits to be
 * free.
 *
 * Invariants
 *   I1  batch_row.live counts the places of pages, spans, checkpoints and carried tombstones that
 * its record holds; at 0 the row moves to store.dead_batches. I2  Space on flash is given back
 * through limbo: never before the transaction that freed it is durable.
 *
 * Threads: under the store's lock.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "store/store_private.h"

/* The caller's pointer is of another type than void *: its bytes are read and written, as writing
 * it through a void ** would let the compiler take it for unchanged. */
bool catalog_grow(void *array_pointer, size_t *room, size_t count, size_t size)
{
    const size_t wanted = *room == 0 ? 64 : *room * 2;
    void *array;

    if (count < *room) {
        return true;
    }
    memcpy(&array, array_pointer, sizeof array);
    array = kvarve_reallocate(array, wanted * size);
    if (array == NULL) {
        return false;
    }
    memcpy(array_pointer, &array, sizeof array);
    *room = wanted;
    return true;
}

batch_row *catalog_add_batch(store_machine *store, uint64_t sequence, header_place place)
{
    batch_row *made = kvarve_allocate(sizeof *made);

    if (made == NULL) {
        return NULL;
    }
    made->sequence = sequence;
    made->place = place;
    kvarve_list_init(&made->tombstones);
    kvarve_list_append(&store->batches, &made->link);
    return made;
}

tombstone *catalog_add_tombstone(store_machine *store, uint64_t checkpoint, batch_row *of)
{
    tombstone *made = kvarve_allocate(sizeof *made);

    if (made == NULL) {
        return NULL;
    }
    made->checkpoint = checkpoint;
    made->generation = store->generation;
    made->of = of;
    kvarve_list_append(&of->tombstones, &made->link);
    kvarve_list_append(&store->tombstones_pending, &made->pending_link);
    return made;
}

void tombstone_set_carrier(tombstone *grave, batch_row *carrier)
{
    KVARVE_ASSERT(grave->carrier == NULL);
    kvarve_list_remove(&grave->pending_link);
    grave->carrier = carrier;
    carrier->live++;
}

bool tombstone_is_due(const store_machine *store, const tombstone *grave)
{
    return grave->generation <= store->generation_done;
}

/* Its carrier has one live item less, and goes to `freed` when that was its last. */
static void free_tombstone(tombstone *gone, kvarve_list *freed)
{
    kvarve_list_remove(&gone->pending_link);
    if (gone->carrier != NULL && --gone->carrier->live == 0) {
        kvarve_list_remove(&gone->carrier->link);
        kvarve_list_append(freed, &gone->carrier->link);
    }
    kvarve_release(gone);
}

/* What is to be released next: rows whose tombstones' carriers lose an item; a work list instead of
 * recursion. */
void batch_release(store_machine *store, batch_row *row)
{
    kvarve_list freed;
    kvarve_link *link;

    KVARVE_ASSERT(row->live > 0);
    if (--row->live > 0) {
        return;
    }
    kvarve_list_init(&freed);
    kvarve_list_remove(&row->link);
    kvarve_list_append(&freed, &row->link);
    while ((link = kvarve_list_take_first(&freed)) != NULL) {
        kvarve_link *grave;

        row = KVARVE_LIST_ITEM(link, batch_row, link);
        kvarve_list_append(&store->dead_batches, &row->link);
        while ((grave = kvarve_list_take_first(&row->tombstones)) != NULL) {
            free_tombstone(KVARVE_LIST_ITEM(grave, tombstone, link), &freed);
        }
    }
}

/* --- limbo --- */

void limbo_add_place(store_machine *store, page_place place, bool was_recorded)
{
    if (!was_recorded) {
        segment_free(store->segments, place);
        return;
    }
    if (!catalog_grow(&store->limbo, &store->limbo_room, store->limbo_count, sizeof(limbo_place))) {
        return; /* lost until the store is opened again */
    }
    store->limbo[store->limbo_count++] =
        (limbo_place){.place = place, .generation = store->generation};
}

void limbo_add_header(store_machine *store, header_place place)
{
    if (place.segment == 0 || !catalog_grow(&store->limbo_headers, &store->limbo_header_room,
                                            store->limbo_header_count, sizeof(limbo_header))) {
        return;
    }
    store->limbo_headers[store->limbo_header_count++] =
        (limbo_header){.place = place, .generation = store->generation};
}

void limbo_settle(store_machine *store)
{
    size_t kept = 0;

    for (size_t i = 0; i < store->limbo_count; i++) {
        if (store->limbo[i].generation <= store->generation_done) {
            segment_free(store->segments, store->limbo[i].place);
        } else {
            store->limbo[kept++] = store->limbo[i];
        }
    }
    store->limbo_count = kept;
    kept = 0;
    for (size_t i = 0; i < store->limbo_header_count; i++) {
        if (store->limbo_headers[i].generation <= store->generation_done) {
            segment_free_header(store->segments, store->limbo_headers[i].place);
        } else {
            store->limbo_headers[kept++] = store->limbo_headers[i];
        }
    }
    store->limbo_header_count = kept;
}
