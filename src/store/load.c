/*
 * load.c - from batch records to the catalog, at open and at rebuild.
 *
 * Records come by rising sequence. References are resolved by id; what can not be resolved is left
 * out, and with it all that needs it, so that a checkpoint is either whole or not there (P2). A
 * record whose ids overlap those of an earlier one is refused: it would make references ambiguous.
 *
 * Threads: under the store's lock or before it is shared.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"
#include "store/store_private.h"

#define PREFETCH_FAR  16u /* pages ahead of the one that is being entered in the tables */
#define PREFETCH_NEAR 8u
#define RECORD_BYTES  176u /* of a checkpoint with one page of its own */

typedef struct loaded_batch {
    batch_row *row;
    uint64_t first_page;
    uint64_t first_span;
    uint64_t first_checkpoint;
    uint32_t page_count;
    uint32_t span_count;
    uint32_t checkpoint_count;
    uint32_t carried_count;
    store_page **pages; /* NULL entries: left out */
    store_span **spans;
    store_checkpoint **checkpoints;
    uint64_t *companions; /* numbers, by checkpoint */
    uint64_t *carried;    /* numbers of dropped checkpoints that this record carries */
} loaded_batch;

struct catalog_loader {
    store_machine *store;
    loaded_batch *batches;
    size_t count;
    size_t room;
    uint64_t *dropped; /* sorted in finish */
    size_t dropped_count;
    size_t dropped_room;
};

catalog_loader *loader_create(store_machine *store)
{
    catalog_loader *loader = kvarve_allocate(sizeof *loader);

    if (loader != NULL) {
        loader->store = store;
    }
    return loader;
}

static void release_loaded(loaded_batch *loaded)
{
    kvarve_release(loaded->pages);
    kvarve_release(loaded->spans);
    kvarve_release(loaded->checkpoints);
    kvarve_release(loaded->companions);
    kvarve_release(loaded->carried);
}

void loader_destroy(catalog_loader *loader)
{
    if (loader == NULL) {
        return;
    }
    for (size_t i = 0; i < loader->count; i++) {
        release_loaded(&loader->batches[i]);
    }
    kvarve_release(loader->batches);
    kvarve_release(loader->dropped);
    kvarve_release(loader);
}

void loader_expect(catalog_loader *loader, uint64_t bytes)
{
    store_machine *store = loader->store;
    const size_t count = kvarve_min_u64(bytes / RECORD_BYTES, store->options.checkpoints_max);

    (void)!table_reserve(&store->pages, count); /* without memory they grow as they can */
    (void)!table_reserve(&store->by_id, count);
    (void)!table_reserve(&store->by_digest, count);
}

/* --- ids -> objects --- */

typedef enum id_kind { ID_PAGE, ID_SPAN, ID_CHECKPOINT } id_kind;

static uint64_t first_of(const loaded_batch *loaded, id_kind kind)
{
    return kind == ID_PAGE   ? loaded->first_page
           : kind == ID_SPAN ? loaded->first_span
                             : loaded->first_checkpoint;
}

static uint32_t count_of(const loaded_batch *loaded, id_kind kind)
{
    return kind == ID_PAGE   ? loaded->page_count
           : kind == ID_SPAN ? loaded->span_count
                             : loaded->checkpoint_count;
}

/* The batch that hands out `id`, and the id's place in it; NULL: none that is loaded. */
static loaded_batch *find_id(const catalog_loader *loader, id_kind kind, uint64_t id,
                             size_t *out_at)
{
    size_t low = 0;
    size_t high = loader->count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (first_of(&loader->batches[middle], kind) <= id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    /* Batches without ids of this kind share a first id with their neighbour. */
    while (low > 0) {
        loaded_batch *loaded = &loader->batches[--low];
        const uint64_t first = first_of(loaded, kind);

        if (count_of(loaded, kind) > 0) {
            *out_at = (size_t)(id - first);
            return id - first < count_of(loaded, kind) ? loaded : NULL;
        }
    }
    return NULL;
}

static store_page *page_by_id(const catalog_loader *loader, uint64_t id)
{
    size_t at = 0;
    const loaded_batch *loaded = find_id(loader, ID_PAGE, id, &at);

    return loaded == NULL ? NULL : loaded->pages[at];
}

static store_span *span_by_id(const catalog_loader *loader, uint64_t id)
{
    size_t at = 0;
    const loaded_batch *loaded = find_id(loader, ID_SPAN, id, &at);

    return loaded == NULL ? NULL : loaded->spans[at];
}

/* --- one batch --- */

static kvarve_status no_memory(kvarve_error *err)
{
    return kvarve_fail(err, KVARVE_NO_MEMORY, "tables of the index");
}

/* Ids must go on where the batches before ended. */
static bool ids_are_new(const catalog_loader *loader, const batch *from)
{
    const loaded_batch *last;

    if (loader->count == 0) {
        return true;
    }
    last = &loader->batches[loader->count - 1];
    return from->sequence > last->row->sequence &&
           from->first_page >= last->first_page + last->page_count &&
           from->first_span >= last->first_span + last->span_count &&
           from->first_checkpoint >= last->first_checkpoint + last->checkpoint_count;
}

static kvarve_status allocate_loaded(loaded_batch *loaded, const batch *from, kvarve_error *err)
{
    loaded->first_page = from->first_page;
    loaded->first_span = from->first_span;
    loaded->first_checkpoint = from->first_checkpoint;
    loaded->pages = kvarve_allocate_array(from->page_count + 1u, sizeof(store_page *));
    loaded->spans = kvarve_allocate_array(from->span_count + 1u, sizeof(store_span *));
    loaded->checkpoints =
        kvarve_allocate_array(from->checkpoint_count + 1u, sizeof(store_checkpoint *));
    loaded->companions = kvarve_allocate_array(from->checkpoint_count + 1u, sizeof(uint64_t));
    loaded->carried = kvarve_allocate_array(from->drop_count + 1u, sizeof(uint64_t));
    if (loaded->pages == NULL || loaded->spans == NULL || loaded->checkpoints == NULL ||
        loaded->companions == NULL || loaded->carried == NULL) {
        return no_memory(err);
    }
    loaded->page_count = from->page_count;
    loaded->span_count = from->span_count;
    loaded->checkpoint_count = from->checkpoint_count;
    loaded->carried_count = from->drop_count;
    if (from->drop_count > 0) {
        memcpy(loaded->carried, from->drops, from->drop_count * sizeof(uint64_t));
    }
    return KVARVE_OK;
}

static kvarve_status load_page(catalog_loader *loader, loaded_batch *loaded, const batch *from,
                               uint32_t at, store_space *const *spaces)
{
    const batch_page *record = &from->pages[at];
    store_space *space = spaces[record->namespace_index];
    page_key key;
    page_digest digest;
    store_page *page;

    memcpy(key.bytes, record->key, sizeof key.bytes);
    memcpy(digest.bytes, record->digest, sizeof digest.bytes);
    if (record->is_exact) {
        space->is_exact = true;
    }
    page = catalog_find_page(space, &key, record->rank, record->is_exact ? &digest : NULL);
    if (page == NULL) {
        page = catalog_add_page(space, &key, record->rank);
    }
    if (page == NULL) {
        return KVARVE_NO_MEMORY;
    }
    page->digest = digest;
    page->has_digest = true;
    page->place = record->place;
    page->size = record->size;
    page->tokens = record->tokens;
    page->part = record->part;
    page->group = record->group;
    page->is_partial = record->is_partial != 0;
    page->state = PAGE_SEALED;
    page->flash = FLASH_WRITTEN;
    page->is_place_recorded = true;
    page->id = from->first_page + at;
    page_hold(page); /* the loader's, until finish */
    page_set_batch(page, loaded->row);
    loaded->pages[at] = page;
    (void)loader;
    return KVARVE_OK;
}

/* Resolve page ids into `out`; false when one is not there. */
static bool resolve_pages(const catalog_loader *loader, const batch *from, uint32_t at,
                          uint32_t count, store_page **out)
{
    for (uint32_t i = 0; i < count; i++) {
        out[i] = page_by_id(loader, from->references[at + i]);
        if (out[i] == NULL) {
            return false;
        }
    }
    return true;
}

static kvarve_status load_span(catalog_loader *loader, loaded_batch *loaded, const batch *from,
                               uint32_t at, store_space *const *spaces, store_page **scratch)
{
    const batch_span *record = &from->spans[at];
    store_span *parent = record->parent == 0 ? NULL : span_by_id(loader, record->parent);
    store_span *made;

    if ((record->parent != 0 && parent == NULL) ||
        !resolve_pages(loader, from, record->pages_at, record->page_count, scratch)) {
        return KVARVE_OK; /* left out */
    }
    made = catalog_add_span(spaces[record->namespace_index], parent, record->tokens, scratch,
                            record->page_count);
    if (made == NULL) {
        return KVARVE_NO_MEMORY;
    }
    made->id = from->first_span + at;
    span_hold(made); /* until finish */
    span_set_batch(made, loaded->row);
    loaded->spans[at] = made;
    return KVARVE_OK;
}

static kvarve_status load_checkpoint(catalog_loader *loader, loaded_batch *loaded,
                                     const batch *from, uint32_t at, store_space *const *spaces,
                                     store_page **scratch)
{
    const batch_checkpoint *record = &from->checkpoints[at];
    store_span *last = record->span == 0 ? NULL : span_by_id(loader, record->span);
    checkpoint_facts facts = {
        .space = spaces[record->namespace_index],
        .chain = record->bucket,
        .tail_hash = record->tail_hash,
        .number = from->first_checkpoint + at,
        .span = last,
        .parent = record->parent,
        .created_s = record->created_s,
        .tokens = record->tokens,
        .draft_tokens = record->draft_tokens,
        .kind = record->kind,
        .pages = scratch,
        .page_count = record->page_count,
    };
    store_checkpoint *made;

    loaded->companions[at] = record->companion;
    if ((record->span != 0 && last == NULL) ||
        !resolve_pages(loader, from, record->pages_at, record->page_count, scratch)) {
        return KVARVE_OK; /* left out */
    }
    memcpy(facts.id.bytes, record->id, sizeof facts.id.bytes);
    memcpy(facts.token_digest, record->token_digest, sizeof facts.token_digest);
    made = catalog_add_checkpoint(loader->store, &facts);
    if (made == NULL) {
        return KVARVE_NO_MEMORY;
    }
    checkpoint_set_batch(made, loaded->row);
    loaded->checkpoints[at] = made;
    return KVARVE_OK;
}

static uint32_t most_pages(const batch *from)
{
    uint32_t most = 1;

    for (uint32_t i = 0; i < from->span_count; i++) {
        most = from->spans[i].page_count > most ? from->spans[i].page_count : most;
    }
    for (uint32_t i = 0; i < from->checkpoint_count; i++) {
        most = from->checkpoints[i].page_count > most ? from->checkpoints[i].page_count : most;
    }
    return most;
}

static void prefetch_page(const catalog_loader *loader, const batch *from, uint32_t at,
                          bool is_near)
{
    page_key key;

    if (at < from->page_count) {
        memcpy(key.bytes, from->pages[at].key, sizeof key.bytes);
        catalog_prefetch_page(loader->store, &key, from->pages[at].rank, is_near);
    }
}

static void prefetch_checkpoint(const batch *from, uint32_t at, store_space *const *spaces)
{
    if (at < from->checkpoint_count) {
        const batch_checkpoint *record = &from->checkpoints[at];

        catalog_prefetch_checkpoint(spaces[record->namespace_index], record->id,
                                    record->token_digest);
    }
}

static kvarve_status load_items(catalog_loader *loader, loaded_batch *loaded, const batch *from,
                                store_space **spaces, store_page **scratch)
{
    kvarve_status status = KVARVE_OK;

    for (uint32_t i = 0; i < from->namespace_count && status == KVARVE_OK; i++) {
        spaces[i] = catalog_space(loader->store, from->namespaces[i]);
        status = spaces[i] == NULL ? KVARVE_NO_MEMORY : KVARVE_OK;
    }
    for (uint32_t i = 0; i < from->page_count && status == KVARVE_OK; i++) {
        prefetch_page(loader, from, i + PREFETCH_FAR, false);
        prefetch_page(loader, from, i + PREFETCH_NEAR, true);
        status = load_page(loader, loaded, from, i, spaces);
    }
    for (uint32_t i = 0; i < from->span_count && status == KVARVE_OK; i++) {
        status = load_span(loader, loaded, from, i, spaces, scratch);
    }
    for (uint32_t i = 0; i < from->checkpoint_count && status == KVARVE_OK; i++) {
        prefetch_checkpoint(from, i + PREFETCH_NEAR, spaces);
        status = load_checkpoint(loader, loaded, from, i, spaces, scratch);
    }
    return status;
}

static void count_ids(store_machine *store, const batch *from)
{
    const uint64_t page = from->first_page + from->page_count;
    const uint64_t span = from->first_span + from->span_count;
    const uint64_t checkpoint = from->first_checkpoint + from->checkpoint_count;

    store->next_sequence = kvarve_max_u64(store->next_sequence, from->sequence + 1);
    store->next_page = kvarve_max_u64(store->next_page, page);
    store->next_span = kvarve_max_u64(store->next_span, span);
    store->next_commit_checkpoint = kvarve_max_u64(store->next_commit_checkpoint, checkpoint);
}

kvarve_status loader_add(catalog_loader *loader, const batch *from, kvarve_error *err)
{
    store_space *spaces[BATCH_NAMESPACES_MAX];
    loaded_batch *loaded;
    store_page **scratch;
    kvarve_status status;

    if (!ids_are_new(loader, from)) {
        return kvarve_fail(err, KVARVE_CORRUPT, "batch %llu overlaps the ids of an earlier one",
                           (unsigned long long)from->sequence);
    }
    if (loader->count == loader->room) {
        const size_t room = loader->room == 0 ? 256 : 2 * loader->room;
        loaded_batch *larger = kvarve_reallocate(loader->batches, room * sizeof *larger);

        if (larger == NULL) {
            return no_memory(err);
        }
        loader->batches = larger;
        loader->room = room;
    }
    loaded = &loader->batches[loader->count];
    memset(loaded, 0, sizeof *loaded);
    loaded->row = catalog_add_batch(loader->store, from->sequence, from->place);
    scratch = kvarve_allocate_array(most_pages(from), sizeof(store_page *));
    status = loaded->row == NULL || scratch == NULL ? no_memory(err)
                                                    : allocate_loaded(loaded, from, err);
    if (loaded->row != NULL) {
        loaded->row->live++; /* the loader's, until finish */
        loader->count++;
    } else {
        release_loaded(loaded);
    }
    if (status == KVARVE_OK) {
        count_ids(loader->store, from);
        status = load_items(loader, loaded, from, spaces, scratch);
        status = status == KVARVE_OK ? status : no_memory(err);
    }
    kvarve_release(scratch);
    return status;
}

kvarve_status loader_drop(catalog_loader *loader, uint64_t checkpoint)
{
    if (loader->dropped_count == loader->dropped_room) {
        const size_t room = loader->dropped_room == 0 ? 256 : 2 * loader->dropped_room;
        uint64_t *larger = kvarve_reallocate(loader->dropped, room * sizeof *larger);

        if (larger == NULL) {
            return KVARVE_NO_MEMORY;
        }
        loader->dropped = larger;
        loader->dropped_room = room;
    }
    loader->dropped[loader->dropped_count++] = checkpoint;
    return KVARVE_OK;
}

void loader_recency(catalog_loader *loader, uint64_t checkpoint, uint64_t used)
{
    size_t at = 0;
    const loaded_batch *loaded = find_id(loader, ID_CHECKPOINT, checkpoint, &at);

    if (loaded != NULL && loaded->checkpoints[at] != NULL) {
        loaded->checkpoints[at]->used = used;
    }
}

/* --- finish --- */

/* Take a checkpoint out again, with what only it needed; its row is told by a tombstone when it is
 * a real drop. False: no memory to note that. */
static bool remove_loaded(catalog_loader *loader, loaded_batch *loaded, size_t at)
{
    store_checkpoint *gone = loaded->checkpoints[at];
    const uint64_t before = loader->store->by_id.count;

    if (gone == NULL) {
        return true;
    }
    loaded->checkpoints[at] = NULL;
    gone->companion = NULL;
    /* catalog_drop notes the drop for the next transaction; here it is on flash already. */
    catalog_drop(loader->store, gone);
    return loader->store->by_id.count < before;
}

static int compare_numbers(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Carried drops count as drops too (rebuild has no others). */
static kvarve_status drop_carried(catalog_loader *loader, const loaded_batch *from,
                                  kvarve_error *err)
{
    kvarve_status status = KVARVE_OK;

    for (uint32_t k = 0; k < from->carried_count && status == KVARVE_OK; k++) {
        status = loader_drop(loader, from->carried[k]);
    }
    return status == KVARVE_OK ? KVARVE_OK : no_memory(err);
}

static kvarve_status finish_drops(catalog_loader *loader, kvarve_error *err)
{
    store_machine *store = loader->store;
    kvarve_link *link;
    kvarve_status status = KVARVE_OK;

    for (size_t i = 0; i < loader->count && status == KVARVE_OK; i++) {
        status = drop_carried(loader, &loader->batches[i], err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    if (loader->dropped_count > 0) {
        qsort(loader->dropped, loader->dropped_count, sizeof(uint64_t), compare_numbers);
    }
    for (size_t i = 0; i < loader->dropped_count; i++) {
        size_t at = 0;
        loaded_batch *loaded = find_id(loader, ID_CHECKPOINT, loader->dropped[i], &at);

        if (loaded == NULL || (i > 0 && loader->dropped[i] == loader->dropped[i - 1])) {
            continue;
        }
        if (!remove_loaded(loader, loaded, at)) {
            return no_memory(err);
        }
    }
    KVARVE_LIST_FOREACH (link, &store->tombstones_pending) {
        KVARVE_LIST_ITEM(link, tombstone, pending_link)->generation = 0;
    }
    /* What remove_loaded noted is known on flash: only the tombstones stay. */
    store->drop_count = 0;
    store->dead_recency_count = 0;
    return KVARVE_OK;
}

static tombstone *find_tombstone(const loaded_batch *loaded, uint64_t number)
{
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &loaded->row->tombstones) {
        tombstone *found = KVARVE_LIST_ITEM(link, tombstone, link);

        if (found->checkpoint == number) {
            return found;
        }
    }
    return NULL;
}

/* The drop of this checkpoint stands in `carrier`'s record; where its batch still lives, its
 * tombstone is told. */
static void carry(const catalog_loader *loader, uint64_t checkpoint, batch_row *carrier)
{
    size_t at = 0;
    const loaded_batch *loaded = find_id(loader, ID_CHECKPOINT, checkpoint, &at);
    tombstone *grave = loaded == NULL ? NULL : find_tombstone(loaded, checkpoint);

    if (grave != NULL && grave->carrier == NULL) {
        tombstone_set_carrier(grave, carrier);
    }
}

static void finish_carriers(catalog_loader *loader)
{
    for (size_t i = 0; i < loader->count; i++) {
        const loaded_batch *carrier = &loader->batches[i];

        for (uint32_t k = 0; k < carrier->carried_count; k++) {
            carry(loader, carrier->carried[k], carrier->row);
        }
    }
}

/* Checkpoint `here` and the one that its record names as its companion, if both are there. */
static void pair(const catalog_loader *loader, store_checkpoint *here, uint64_t companion)
{
    size_t at = 0;
    const loaded_batch *loaded =
        here == NULL || companion == 0 ? NULL : find_id(loader, ID_CHECKPOINT, companion, &at);
    store_checkpoint *other = loaded == NULL ? NULL : loaded->checkpoints[at];

    if (other != NULL && other->companion == NULL && here->companion == NULL) {
        here->companion = other;
        other->companion = here;
        here->is_companion = here->number > other->number;
        other->is_companion = !here->is_companion;
    }
}

static void pair_companions(catalog_loader *loader)
{
    for (size_t i = 0; i < loader->count; i++) {
        const loaded_batch *loaded = &loader->batches[i];

        for (uint32_t k = 0; k < loaded->checkpoint_count; k++) {
            pair(loader, loaded->checkpoints[k], loaded->companions[k]);
        }
    }
}

/* The place of a page, if this is its newest record and somebody names the page; else it is freed
 * afterwards. */
static void take_place(store_machine *store, store_page *page, uint64_t id)
{
    if (page == NULL || page->id != id || page->references == 0) {
        return;
    }
    if (!segment_place_is_valid(store->segments, page->place, page->size) ||
        !segment_take(store->segments, page->place)) {
        page->place = (page_place){0};
        page->flash = FLASH_NONE;
        page_mark_damaged(page);
    }
}

/* The newest record has the place; of two pages that claim one place the newer has it. */
static void take_places(catalog_loader *loader)
{
    store_machine *store = loader->store;

    for (size_t i = loader->count; i-- > 0;) {
        const loaded_batch *loaded = &loader->batches[i];

        if (!segment_header_is_valid(store->segments, loaded->row->place) ||
            !segment_take_header(store->segments, loaded->row->place)) {
            loaded->row->place.segment = 0;
        }
        for (uint32_t k = 0; k < loaded->page_count; k++) {
            take_place(store, loaded->pages[k], loaded->first_page + k);
        }
    }
}

static void release_spans(const loaded_batch *loaded)
{
    for (uint32_t k = loaded->span_count; k-- > 0;) {
        if (loaded->spans[k] != NULL) {
            span_unhold(loaded->spans[k]);
            loaded->spans[k] = NULL;
        }
    }
}

static void release_pages(const loaded_batch *loaded)
{
    for (uint32_t k = 0; k < loaded->page_count; k++) {
        store_page *page = loaded->pages[k];

        if (page == NULL) {
            continue;
        }
        if (page->references == 0) {
            page->place = (page_place){0}; /* never taken: nothing to give back */
            page_set_batch(page, NULL);
        }
        page_unhold(page);
    }
}

static void release_loader_counts(catalog_loader *loader)
{
    for (size_t i = loader->count; i-- > 0;) {
        release_spans(&loader->batches[i]);
    }
    take_places(loader);
    for (size_t i = 0; i < loader->count; i++) {
        release_pages(&loader->batches[i]);
        batch_release(loader->store, loader->batches[i].row);
    }
}

/* What recency is sorted by, beside the checkpoint: comparing reads no other memory. */
typedef struct recency_entry {
    uint64_t used;
    uint64_t number;
    store_checkpoint *checkpoint;
} recency_entry;

static int compare_used(const void *a, const void *b)
{
    const recency_entry *x = a;
    const recency_entry *y = b;

    if (x->used != y->used) {
        return x->used < y->used ? -1 : 1;
    }
    return (x->number > y->number) - (x->number < y->number);
}

static kvarve_status order_recency(catalog_loader *loader, kvarve_error *err)
{
    store_machine *store = loader->store;
    const size_t count = store->by_id.count;
    recency_entry *all;
    size_t at = 0;
    kvarve_link *link;

    if (count == 0) {
        return KVARVE_OK;
    }
    all = kvarve_allocate_array(count, sizeof *all);
    if (all == NULL) {
        return no_memory(err);
    }
    while ((link = kvarve_list_take_first(&store->recency)) != NULL) {
        store_checkpoint *checkpoint = KVARVE_LIST_ITEM(link, store_checkpoint, lru);

        KVARVE_ASSERT(at < count);
        all[at++] = (recency_entry){
            .used = checkpoint->used, .number = checkpoint->number, .checkpoint = checkpoint};
    }
    qsort(all, at, sizeof *all, compare_used);
    for (size_t i = 0; i < at; i++) {
        kvarve_list_append(&store->recency, &all[i].checkpoint->lru);
    }
    kvarve_release(all);
    return KVARVE_OK;
}

kvarve_status loader_finish(catalog_loader *loader, kvarve_error *err)
{
    kvarve_status status = finish_drops(loader, err);

    if (status != KVARVE_OK) {
        return status;
    }
    finish_carriers(loader);
    pair_companions(loader);
    release_loader_counts(loader);
    return order_recency(loader, err);
}
