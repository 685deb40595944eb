/*
 * admin.c - what a person asks a store: how much there is, what there is, and let go of it.
 *
 * Invariants
 *   I1  Looking changes nothing: neither statistics nor a listing touches recency.
 *   I2  A base goes with its draft half, and a draft half goes alone.
 *
 * Threads: under the store's lock. A listing holds it for its whole length.
 */
#include "store/admin_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/fail.h"

static_assert(NAMESPACE_TEXT_SIZE <= sizeof((kvarve_checkpoint_info){0}.namespace_text),
              "a namespace's text fits");

/* --- statistics --- */

static uint64_t count_links(const kvarve_list *list)
{
    kvarve_link *link;
    uint64_t count = 0;

    KVARVE_LIST_FOREACH (link, list) {
        count++;
    }
    return count;
}

static uint64_t count_namespaces(const store_machine *store)
{
    uint64_t count = 0;

    for (size_t i = 0; i < store->spaces.bucket_count; i++) {
        for (kvarve_table_link *link = store->spaces.buckets[i]; link != NULL; link = link->next) {
            const store_space *space = KVARVE_TABLE_ITEM(link, store_space, link);

            count += space->checkpoint_count > 0 || space->handles > 0;
        }
    }
    return count;
}

/* A put that is over is listed until its caller lets go of it. */
static uint64_t count_open_puts(const store_machine *store)
{
    kvarve_link *link;
    uint64_t count = 0;

    KVARVE_LIST_FOREACH (link, &store->puts) {
        const store_put *put = KVARVE_LIST_ITEM(link, const store_put, link);

        count += put->state != KVARVE_PUT_ABORTED && put->state != KVARVE_PUT_DURABLE &&
                 put->state != KVARVE_PUT_PRESENT;
    }
    return count;
}

static void count_objects(const store_machine *store, kvarve_statistics *out)
{
    out->checkpoints = store->by_id.count;
    out->spans = store->spans.count;
    out->pages = store->pages.count;
    out->pages_damaged = store->damaged_pages;
    out->namespaces = count_namespaces(store);
    out->batches = count_links(&store->batches);
    out->puts_open = count_open_puts(store);
    out->leases_open = store->lease_count;
    out->is_failed = store_is_failed(store);
}

static void count_flash(const store_machine *store, kvarve_statistics *out)
{
    segment_counters segments;
    index_counters index = {0};

    segment_count(store->segments, &segments);
    if (store->index != NULL) {
        index_count(store->index, &index);
    }
    out->payload_bytes_written = segments.payload_bytes_written;
    out->header_bytes_written = segments.header_bytes_written;
    out->index_log_bytes_written = index.log_bytes_written;
    out->index_database_bytes_written = index.database_bytes_written;
    out->bytes_read = segments.bytes_read;
    out->syncs = segments.sync_count;
    out->segment_files = segments.file_count;
    out->segment_bytes = segments.file_bytes;
    out->payload_bytes_taken = segments.slot_bytes_taken;
    out->index_database_bytes = index.database_bytes;
    out->index_log_bytes = index.log_bytes;
    out->flash_bytes_max = store->options.flash_bytes_max;
    out->io_is_direct = segments.is_direct;
    out->damaged_files = segments.damaged_files;
}

static void count_arena(const store_machine *store, kvarve_statistics *out)
{
    arena_counters arena;

    arena_count(store->arena, &arena);
    out->arena_bytes = arena.bytes;
    out->arena_bytes_populated = arena.populated_bytes;
    out->arena_bytes_used = arena.used_bytes;
    out->arena_is_huge = arena.is_huge;
}

void store_statistics(const store_machine *store, kvarve_statistics *out)
{
    *out = store->statistics;
    out->struct_size = sizeof *out;
    count_objects(store, out);
    count_flash(store, out);
    count_arena(store, out);
}

/* --- listing --- */

/* Checkpoints by number, to name parents. */
typedef struct numbering {
    const store_checkpoint **sorted; /* NULL: no memory, or none: parents are not named */
    size_t count;
} numbering;

static int compare_numbers(const void *a, const void *b)
{
    const uint64_t x = (*(const store_checkpoint *const *)a)->number;
    const uint64_t y = (*(const store_checkpoint *const *)b)->number;

    return (x > y) - (x < y);
}

static numbering number_checkpoints(const store_machine *store)
{
    numbering made = {0};
    kvarve_link *link;

    if (store->by_id.count > 0) {
        made.sorted = kvarve_allocate_array(store->by_id.count, sizeof(store_checkpoint *));
    }
    if (made.sorted == NULL) {
        return made;
    }
    KVARVE_LIST_FOREACH (link, &store->recency) {
        KVARVE_ASSERT(made.count < store->by_id.count);
        made.sorted[made.count++] = KVARVE_LIST_ITEM(link, const store_checkpoint, lru);
    }
    qsort(made.sorted, made.count, sizeof *made.sorted, compare_numbers);
    return made;
}

static const store_checkpoint *find_number(const numbering *numbers, uint64_t number)
{
    size_t low = 0;
    size_t high = numbers->count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (numbers->sorted[middle]->number < number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < numbers->count && numbers->sorted[low]->number == number ? numbers->sorted[low]
                                                                          : NULL;
}

/* Add what these pages say; only a page that is named once, and by what only the checkpoint names,
 * is its own. */
static void add_pages(store_page *const *pages, uint32_t count, bool is_own,
                      kvarve_checkpoint_info *info)
{
    info->pages += count;
    for (uint32_t i = 0; i < count; i++) {
        const store_page *page = pages[i];

        info->bytes_own += is_own && page->references == 1 ? page->size : 0;
        info->bytes_in_ram += page->slot != ARENA_NONE ? page->size : 0;
    }
}

static void describe(const store_checkpoint *checkpoint, const numbering *numbers,
                     kvarve_checkpoint_info *out)
{
    const store_checkpoint *parent =
        checkpoint->parent == 0 ? NULL : find_number(numbers, checkpoint->parent);
    bool is_own = true;
    uint32_t group = 0;

    *out = (kvarve_checkpoint_info){
        .tokens = checkpoint->tokens,
        .draft_tokens = checkpoint->draft_tokens,
        .bytes = checkpoint_bytes(checkpoint),
        .created_s = checkpoint->created_s,
        .used = checkpoint->used,
        .kind = checkpoint->kind,
        .state = checkpoint->batch == NULL ? KVARVE_PUT_READY : KVARVE_PUT_DURABLE,
        .leases = checkpoint->leases,
        .is_damaged = checkpoint_is_damaged(checkpoint, &group),
        .is_draft = checkpoint->is_companion,
    };
    memcpy(out->id, checkpoint->id.bytes, sizeof out->id);
    memcpy(out->namespace_text, checkpoint->space->name.text, NAMESPACE_TEXT_SIZE);
    if (parent != NULL) {
        memcpy(out->parent_id, parent->id.bytes, sizeof out->parent_id);
    }
    add_pages(checkpoint->pages, checkpoint->page_count, true, out);
    for (const store_span *at = checkpoint->span; at != NULL; at = at->parent) {
        is_own = is_own && at->references == 1;
        add_pages(at->pages, at->page_count, is_own, out);
    }
}

void store_each(store_machine *store, store_visit visit, void *context)
{
    store_each_from(store, 0, visit, context);
}

void store_each_from(store_machine *store, uint64_t from, store_visit visit, void *context)
{
    const numbering numbers = number_checkpoints(store);
    kvarve_link *link = store->recency.previous;
    kvarve_checkpoint_info info;

    for (; from > 0 && link != &store->recency; from--) {
        link = link->previous;
    }
    for (; link != &store->recency; link = link->previous) {
        describe(KVARVE_LIST_ITEM(link, const store_checkpoint, lru), &numbers, &info);
        if (!visit(context, &info)) {
            break;
        }
    }
    kvarve_release(numbers.sorted);
}

/* --- drop --- */

bool checkpoint_may_go(const store_checkpoint *checkpoint)
{
    const store_checkpoint *companion = checkpoint->is_companion ? NULL : checkpoint->companion;

    return checkpoint->leases == 0 && !checkpoint->is_queued &&
           (companion == NULL || (companion->leases == 0 && !companion->is_queued));
}

bool checkpoint_let_go(store_machine *store, store_checkpoint *checkpoint)
{
    store_checkpoint *base = checkpoint->is_companion ? checkpoint->companion : NULL;
    const size_t before = store->by_id.count;
    const size_t going = checkpoint->companion != NULL && !checkpoint->is_companion ? 2 : 1;

    KVARVE_ASSERT(checkpoint_may_go(checkpoint));
    if (base != NULL) { /* I2: it must not go along */
        base->companion = NULL;
        checkpoint->companion = NULL;
    }
    catalog_drop(store, checkpoint);
    if (before - store->by_id.count == going) {
        return true;
    }
    if (base != NULL) {
        base->companion = checkpoint;
        checkpoint->companion = base;
    }
    return false;
}

kvarve_status store_drop(store_machine *store, const uint8_t id[32], kvarve_error *err)
{
    store_checkpoint *found;
    bool is_gone;

    if (store->is_read_only) {
        return kvarve_fail(err, KVARVE_INVALID, "drop: the store is open for reading only");
    }
    if (store_is_failed(store)) {
        return kvarve_fail(err, KVARVE_UNAVAILABLE, "drop: an earlier sync or commit failed");
    }
    found = catalog_by_id(store, id);
    if (found == NULL) {
        return KVARVE_MISS;
    }
    if (!checkpoint_may_go(found)) {
        return KVARVE_BUSY;
    }
    is_gone = checkpoint_let_go(store, found);
    store->wants_transaction = true;
    store->wants_drop_record = true;
    store->has_trimmed_in_vain = false;
    commit_start(store);
    return is_gone ? KVARVE_OK : kvarve_fail(err, KVARVE_NO_MEMORY, "drop: note that it is gone");
}

/* --- trim --- */

kvarve_status store_trim_begin(store_machine *store, kvarve_error *err)
{
    if (store->is_read_only) {
        return kvarve_fail(err, KVARVE_INVALID, "trim: the store is open for reading only");
    }
    if (store_is_failed(store)) {
        return kvarve_fail(err, KVARVE_UNAVAILABLE, "trim: an earlier sync or commit failed");
    }
    if (store->is_trimming || store->is_growing) {
        return KVARVE_BUSY;
    }
    return room_trim(store) ? KVARVE_OK : kvarve_fail(err, KVARVE_NO_MEMORY, "trim");
}

bool store_trim_progress(const store_machine *store, uint64_t *out_bytes, kvarve_status *out_status)
{
    *out_bytes = store->is_trimming ? 0 : store->trimmed_bytes;
    *out_status = store->is_trimming ? KVARVE_BUSY : store->trim_status;
    return !store->is_trimming;
}
