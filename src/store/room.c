/*
 * room.c - room in the arena and on flash, and what goes to make some.
 *
 * Invariants
 *   I1  A page leaves the arena only when its bytes are on flash and nobody copies, pins or hashes
 * them. I2  Checkpoints go whole, least recently used first; what is leased or waits for its commit
 * stays. I3  Flash stays under the cap: segments grow only when it fits, and leave the index a
 * share to grow into, and records of full files another. I4  Evictions come in rounds: after one,
 * its transaction is waited for before more is dropped. I5  Free space of other slot sizes is
 * trimmed before more is dropped, as soon as that is enough. I6  Only a full disk or cap gets
 * something evicted, never a disk that fails.
 *
 * Threads: under the store's lock.
 */
#include "store/store_private.h"

#include "base/assert.h"
#include "base/checked.h"

#define ROUND_VICTIMS_MAX  4096u
#define GROWTH_RETRY_NS    (10 * KVARVE_NS_PER_S)
#define ZONE_BYTES         (UINT64_C(16) * BATCH_BLOCK) /* of a small file's header zone */
#define ZONE_SHARE         (BATCH_BLOCK / 4)            /* of a zone, a slot */
#define HEADER_BYTES_LEAST (UINT64_C(64) * BATCH_BLOCK)
#define HEADER_BYTES_MOST  (UINT64_C(16) << 20)

/* --- arena --- */

static bool is_evictable(const store_page *page)
{
    return page->slot != ARENA_NONE && page->state == PAGE_SEALED && page->flash == FLASH_WRITTEN &&
           page->io_count == 0 && !page->is_loading &&
           arena_pins(page->space->store->arena, page->slot) == 0;
}

void room_page_resident(store_page *page)
{
    if (page->flash != FLASH_WRITTEN) {
        return; /* its link may serve store.unflushed */
    }
    kvarve_list_remove(&page->lru);
    if (is_evictable(page)) {
        kvarve_list_append(&page->space->store->resident, &page->lru);
    }
}

void page_drop_slot(store_page *page)
{
    if (page->slot == ARENA_NONE) {
        return;
    }
    (void)arena_drop(page->space->store->arena, page->slot);
    page->slot = ARENA_NONE;
    page->is_verified = false;
    if (page->flash == FLASH_WRITTEN) {
        kvarve_list_remove(&page->lru);
    }
}

void room_drop_resident(store_page *page)
{
    if (is_evictable(page)) {
        page_drop_slot(page);
    }
}

bool room_evict_ram(store_machine *store)
{
    arena_counters arena;
    kvarve_link *link;

    arena_count(store->arena, &arena);
    if (arena.is_populating) {
        return false; /* room is on its way */
    }
    link = kvarve_list_take_first(&store->resident);
    if (link == NULL) {
        return false;
    }
    page_drop_slot(KVARVE_LIST_ITEM(link, store_page, lru));
    return true;
}

/* --- flash --- */

uint64_t room_flash_used(const store_machine *store)
{
    segment_counters segments;
    index_counters index = {0};

    segment_count(store->segments, &segments);
    if (store->index != NULL) {
        index_count(store->index, &index);
    }
    return segments.file_bytes + index.database_bytes + index.log_bytes;
}

uint64_t room_log_bytes_max(const store_machine *store)
{
    return kvarve_max_u64(UINT64_C(1) << 20,
                          kvarve_min_u64(UINT64_C(32) << 20, store->options.flash_bytes_max / 8));
}

static void block_growth(store_machine *store, kvarve_status status)
{
    store->is_growth_blocked = true;
    store->growth_status = status;
    store->growth_retry_ns = store_now(store) + GROWTH_RETRY_NS;
}

static void grow_done(segment_request *request, void *context)
{
    store_machine *store = context;

    store->is_growing = false;
    if (request->status != KVARVE_OK) {
        block_growth(store, request->status);
    }
    put_give_room(store);
    commit_start(store);
}

uint64_t room_file_bytes(uint64_t wanted, uint64_t flash_bytes_max)
{
    const uint64_t most = kvarve_max_u64(flash_bytes_max / 16, HEADER_BYTES_LEAST);

    return kvarve_max_u64(kvarve_min_u64(wanted, most), flash_bytes_max / 256);
}

/* Wanted size of one more file of headers. */
static uint64_t header_file_bytes(const store_machine *store)
{
    return kvarve_min_u64(kvarve_max_u64(store->options.flash_bytes_max / 64, HEADER_BYTES_LEAST),
                          HEADER_BYTES_MOST);
}

/* What the index takes or may come to take, its log first of all: not the segments' to take (I3).
 * Of a very small cap a quarter has to do. */
static uint64_t index_share(const store_machine *store)
{
    const uint64_t cap = store->options.flash_bytes_max;
    const uint64_t log_most = kvarve_min_u64(room_log_bytes_max(store), cap / 4);
    index_counters index = {0};

    if (store->index != NULL) {
        index_count(store->index, &index);
    }
    return kvarve_max_u64(log_most, index.log_bytes) + index.database_bytes + cap / 64;
}

/* Bytes by which segments may still grow for pages (I3); headers may have a bit more. */
static uint64_t bytes_left(const store_machine *store, bool is_for_headers)
{
    const uint64_t cap = store->options.flash_bytes_max;
    segment_counters segments;
    uint64_t used;

    segment_count(store->segments, &segments);
    used =
        segments.file_bytes + index_share(store) + (is_for_headers ? 0 : header_file_bytes(store));
    return used < cap ? cap - used : 0;
}

bool room_could_hold(const store_machine *store, uint64_t bytes)
{
    const uint64_t kept = index_share(store) + header_file_bytes(store) + ZONE_BYTES;

    return kept + bytes <= store->options.flash_bytes_max;
}

static bool is_growth_blocked(const store_machine *store)
{
    return store->is_growth_blocked && store_now(store) < store->growth_retry_ns;
}

bool room_has_failed(const store_machine *store)
{
    return is_growth_blocked(store) && store->growth_status != KVARVE_NO_SPACE;
}

/* What `count` more slots take: hollow ones their own bytes, others a file that is not tiny. */
static uint64_t growth_bytes(const store_machine *store, uint32_t slot_bytes, uint64_t count)
{
    const uint64_t hollow = segment_hollow_slots(store->segments, slot_bytes);
    const uint64_t refilled = kvarve_min_u64(hollow, count);
    const uint64_t in_file = (count - refilled) * (slot_bytes + ZONE_SHARE) + ZONE_BYTES;

    if (refilled == count) {
        return count * slot_bytes;
    }
    return refilled * slot_bytes + kvarve_max_u64(in_file, store->options.segment_bytes / 2);
}

/* Submit more slots of this class, or a file of headers with a run of `count` blocks. False: it
 * would not fit, or the disk was full lately. */
bool room_grow(store_machine *store, uint32_t slot_bytes, size_t count)
{
    const bool is_for_headers = slot_bytes == 0;
    const uint64_t left = bytes_left(store, is_for_headers);
    uint64_t wanted = store->options.segment_bytes;
    uint64_t least;
    kvarve_status status;

    if (is_growth_blocked(store)) {
        return false;
    }
    if (store->is_growing) {
        return true;
    }
    if (is_for_headers) {
        least = kvarve_max_u64((uint64_t)(count + 1) * BATCH_BLOCK, header_file_bytes(store) / 4);
        wanted = kvarve_max_u64(header_file_bytes(store), least);
    } else { /* A put should not be cut into many files, where the cap allows. */
        least = growth_bytes(store, slot_bytes, 1);
        wanted = kvarve_max_u64(wanted, growth_bytes(store, slot_bytes, count));
    }
    if (left < least) {
        return false; /* I3 */
    }
    store->is_growth_blocked = false;
    store->is_growing = true;
    store->grow_request = (segment_request){.done = grow_done, .context = store};
    status = segment_grow(store->segments, slot_bytes, kvarve_min_u64(left, wanted),
                          &store->grow_request, NULL);
    if (status != KVARVE_OK) {
        store->is_growing = false;
        block_growth(store, status);
        return false;
    }
    return true;
}

static bool is_victim(const store_checkpoint *candidate)
{
    const store_checkpoint *companion = candidate->companion;

    return candidate->leases == 0 && !candidate->is_queued && candidate->batch != NULL &&
           (companion == NULL || (companion->leases == 0 && !companion->is_queued));
}

/* The least recently used checkpoint that may go; or NULL. */
static store_checkpoint *next_victim(const store_machine *store)
{
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &store->recency) {
        store_checkpoint *candidate = KVARVE_LIST_ITEM(link, store_checkpoint, lru);

        if (is_victim(candidate)) {
            return candidate;
        }
    }
    return NULL;
}

/* Drop the least recently used checkpoint. False: none may go, or no memory to note it. */
static bool evict_one(store_machine *store)
{
    store_checkpoint *victim = next_victim(store);
    const uint64_t before = store->by_id.count;

    if (victim != NULL) {
        catalog_drop(store, victim);
    }
    if (store->by_id.count == before) {
        return false;
    }
    store->statistics.evictions++;
    return true;
}

/* Slots of this class that the next transaction will free. */
static uint64_t slots_in_limbo(const store_machine *store, uint32_t slot_bytes, size_t from)
{
    uint64_t count = 0;

    for (size_t i = from; i < store->limbo_count; i++) {
        count += segment_slot_bytes_of(store->segments, store->limbo[i].place) == slot_bytes;
    }
    return count;
}

static bool is_transaction_due(const store_machine *store)
{
    return store->commit != NULL || store->limbo_count > 0 ||
           !kvarve_list_is_empty(&store->dead_batches);
}

static void trim_done(segment_request *request, void *context)
{
    store_machine *store = context;

    store->is_trimming = false;
    store->trim_status = request->status;
    store->has_trimmed_in_vain = store->trimmed_bytes == 0; /* until something is dropped again */
    if (request->status == KVARVE_OK && store->trimmed_bytes > 0) {
        store->is_growth_blocked = false;
    }
    put_give_room(store);
    commit_start(store);
}

bool room_trim(store_machine *store)
{
    if (store->is_trimming) {
        return true;
    }
    store->is_trimming = true;
    store->trimmed_bytes = 0;
    store->trim_request = (segment_request){.done = trim_done, .context = store};
    if (segment_trim(store->segments, &store->trimmed_bytes, &store->trim_request, NULL) !=
        KVARVE_OK) {
        store->is_trimming = false;
        store->trim_status = KVARVE_NO_MEMORY;
        return false;
    }
    return true;
}

/* What a trim is good for. */
typedef struct conversion {
    uint64_t free_bytes;    /* it could make holes of, in other classes */
    uint64_t missing_bytes; /* for this class even so */
} conversion;

static conversion weigh_trim(const store_machine *store, uint32_t slot_bytes, uint64_t missing)
{
    const uint64_t own = segment_free_slots(store->segments, slot_bytes) * slot_bytes;
    const uint64_t left = is_growth_blocked(store) ? 0 : bytes_left(store, false);
    const uint64_t needed = growth_bytes(store, slot_bytes, missing);
    segment_counters segments;
    conversion result = {0};

    segment_count(store->segments, &segments);
    result.free_bytes = segments.slot_bytes_free - own;
    if (left + result.free_bytes < needed) {
        result.missing_bytes = needed - left - result.free_bytes;
    }
    return result;
}

/* Submit a trim if it gives `missing` slots (I5). */
static bool trim_others(store_machine *store, uint32_t slot_bytes, uint64_t missing)
{
    const conversion gain = weigh_trim(store, slot_bytes, missing);

    return !store->has_trimmed_in_vain && gain.free_bytes > 0 && gain.missing_bytes == 0 &&
           room_trim(store);
}

/* One round of evictions: until `missing` slots are freed, or bytes of other classes that a trim
 * makes as good (I5); twice those while slots of this class are freed too, which cost no trim.
 * True: something was dropped. */
static bool evict_round(store_machine *store, uint32_t slot_bytes, uint64_t missing)
{
    const uint64_t missing_bytes = weigh_trim(store, slot_bytes, missing).missing_bytes;
    size_t counted_to = store->limbo_count;
    uint64_t freed = 0;
    uint64_t freed_bytes = 0;
    bool has_dropped = false;

    for (uint32_t victims = 0; victims < ROUND_VICTIMS_MAX && freed < missing; victims++) {
        if (!evict_one(store)) {
            break;
        }
        has_dropped = true;
        freed += slots_in_limbo(store, slot_bytes, counted_to);
        for (; counted_to < store->limbo_count; counted_to++) {
            freed_bytes += segment_slot_bytes_of(store->segments, store->limbo[counted_to].place);
        }
        if (freed_bytes - freed * slot_bytes >= missing_bytes * (freed == 0 ? 1 : 2)) {
            break;
        }
    }
    return has_dropped;
}

/* The disk is too full even for the transaction that would free what was evicted; trying again at
 * once would turn in circles. */
static bool is_commit_blocked(const store_machine *store)
{
    return store->is_commit_blocked && store_now(store) < store->commit_retry_ns;
}

static size_t count_dead_batches(const store_machine *store)
{
    size_t count = 0;
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &store->dead_batches) {
        count++;
    }
    return count;
}

bool room_evict_record(store_machine *store)
{
    const size_t before = count_dead_batches(store);
    bool has_dropped = false;

    if (is_commit_blocked(store)) {
        return false;
    }
    for (uint32_t victims = 0;
         victims < ROUND_VICTIMS_MAX && count_dead_batches(store) == before && evict_one(store);
         victims++) {
        has_dropped = true;
    }
    return has_dropped;
}

static bool has_victim(const store_machine *store)
{
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &store->recency) {
        if (is_victim(KVARVE_LIST_ITEM(link, store_checkpoint, lru))) {
            return true;
        }
    }
    return false;
}

/* Others may free room by themselves: puts and jobs in flight. */
static bool is_anything_moving(const store_machine *store)
{
    return store->commit != NULL || store->is_growing || store->is_trimming || store->hashing > 0 ||
           !kvarve_list_is_empty(&store->commit_queue) ||
           store->env.executor->pending(store->env.executor) > 0;
}

room_answer room_on_flash(store_machine *store, uint32_t slot_bytes, size_t count, page_place *out)
{
    uint64_t have;
    uint64_t missing;

    if (!room_could_hold(store, (uint64_t)slot_bytes * count)) {
        return ROOM_NEVER;
    }
    if (segment_reserve(store->segments, slot_bytes, count, out) == KVARVE_OK) {
        return ROOM_YES;
    }
    if (store->is_growing || store->is_trimming) {
        return ROOM_WAIT;
    }
    if (room_grow(store, slot_bytes, count)) {
        return ROOM_WAIT;
    }
    if (room_has_failed(store)) { /* I6 */
        return ROOM_FAILED;
    }
    if (is_commit_blocked(store)) {
        return is_anything_moving(store) ? ROOM_WAIT : ROOM_NEVER;
    }
    if (is_transaction_due(store)) { /* I4 */
        store->wants_transaction = true;
        return ROOM_WAIT;
    }
    have = segment_free_slots(store->segments, slot_bytes);
    missing = have < count ? count - have : 1;
    if (trim_others(store, slot_bytes, missing)) {
        return ROOM_WAIT;
    }
    if (has_victim(store) && evict_round(store, slot_bytes, missing)) {
        store->wants_transaction = true;
        store->has_trimmed_in_vain = false;
        return ROOM_WAIT;
    }
    if (!store->has_trimmed_in_vain && room_trim(store)) {
        return ROOM_WAIT;
    }
    return is_anything_moving(store) ? ROOM_WAIT : ROOM_NEVER;
}

/* Bytes by which the segments are over what the cap leaves them. The index does not shrink: where
 * it takes more than half of the cap, the other half is theirs. */
static uint64_t bytes_over(const store_machine *store)
{
    const uint64_t cap = store->options.flash_bytes_max;
    const uint64_t used = room_flash_used(store);
    segment_counters segments;
    uint64_t most;

    segment_count(store->segments, &segments);
    most = kvarve_max_u64(cap - kvarve_min_u64(used - segments.file_bytes, cap), cap / 2);
    return used > cap && segments.file_bytes > most ? segments.file_bytes - most : 0;
}

/* Drop checkpoints until the next transaction frees so many bytes. False: none may go. */
static bool evict_bytes(store_machine *store, uint64_t bytes)
{
    uint64_t freed = 0;
    bool has_dropped = false;

    for (uint32_t victims = 0; victims < ROUND_VICTIMS_MAX && freed < bytes; victims++) {
        const size_t from = store->limbo_count;

        if (!evict_one(store)) {
            break;
        }
        has_dropped = true;
        for (size_t i = from; i < store->limbo_count; i++) {
            freed += segment_slot_bytes_of(store->segments, store->limbo[i].place);
        }
    }
    return has_dropped;
}

/* Everything that is free has been given back, and that was not enough. */
static void shrink_more(store_machine *store, uint64_t over)
{
    const uint64_t used = room_flash_used(store);

    if (store->shrunk_from != 0 && used >= store->shrunk_from) {
        store->is_over_cap = false; /* the file system takes nothing back: puts use it again */
    } else if (evict_bytes(store, over)) {
        store->shrunk_from = used;
        store->wants_transaction = true;
        store->has_trimmed_in_vain = false;
    } else { /* all that is left is in use */
        store->shrink_retry_ns = store_now(store) + GROWTH_RETRY_NS;
    }
}

void room_shrink(store_machine *store)
{
    const uint64_t over = store->is_over_cap ? bytes_over(store) : 0;

    if (over == 0 || store->is_failed || store->is_opening || store->is_shutting_down) {
        store->is_over_cap = store->is_over_cap && over > 0;
        return;
    }
    if (store->commit != NULL || store->is_growing || store->is_trimming ||
        is_commit_blocked(store) || wipe_is_due(store)) {
        return; /* their end comes here again */
    }
    if (is_transaction_due(store)) { /* I4 */
        store->wants_transaction = true;
        return;
    }
    if (!store->has_trimmed_in_vain && room_trim(store)) {
        return;
    }
    if (store_now(store) >= store->shrink_retry_ns) {
        shrink_more(store, over);
    }
}

void room_limit_checkpoints(store_machine *store)
{
    while (store->by_id.count > store->options.checkpoints_max && evict_one(store)) {
        store->wants_transaction = true;
    }
}
