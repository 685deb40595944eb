/*
 * find.c - which stored boundaries are prefixes of these tokens, and why there is none.
 *
 * Stored checkpoints: per 4096-token chunk, from the last one down, a bucket of all checkpoints
 * that share what lies before it; its filter says which lengths can match by the rolling tail hash;
 * the token digest confirms. Derived boundaries: the longest stored span by halving. Both lists are
 * merged, longest first.
 *
 * Cost: one pass over the tokens of each chunk that has a bucket, one digest a candidate;
 * independent of how many checkpoints are stored.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"
#include "store/find_private.h"

#define OTHER_SPACES_MAX 64u /* spaces looked at for a better miss reason */

typedef bool (*match_visit)(void *context, store_checkpoint *found);

/* --- stored checkpoints --- */

static uint64_t chain_at(const kvarve_prefix *prefix, uint64_t chunk)
{
    uint8_t digest[KVARVE_DIGEST_SIZE];
    uint64_t value;

    prefix_chunk_digest(prefix, chunk, digest);
    memcpy(&value, digest, sizeof value);
    return value;
}

/* Visit all checkpoints at the first `tokens` tokens; false: stop. */
static bool visit_at(const store_space *space, const kvarve_prefix *prefix, uint64_t tokens,
                     match_visit visit, void *context)
{
    uint8_t digest[KVARVE_DIGEST_SIZE];
    store_checkpoint *found;

    if (kvarve_prefix_digest(prefix, tokens, digest, NULL) != KVARVE_OK) {
        return true;
    }
    for (found = catalog_first_at(space, digest); found != NULL; found = catalog_next_at(found)) {
        if (!visit(context, found)) {
            return false;
        }
    }
    return true;
}

/* The longest length at or below `length` that some checkpoint of the bucket has; 0: none. */
static uint32_t next_length(const chunk_bucket *bucket, uint32_t length)
{
    while (length > 0) {
        const uint32_t bit = length - 1;
        const uint64_t below = bucket->lengths[bit / 64] << (63 - bit % 64);

        if (below != 0) {
            return length - (uint32_t)__builtin_clzll(below);
        }
        length = bit / 64 * 64;
    }
    return 0;
}

static bool visit_chunk(const store_space *space, const kvarve_prefix *prefix, uint64_t chunk,
                        uint64_t max, match_visit visit, void *context)
{
    const chunk_bucket *bucket = catalog_bucket(space, chain_at(prefix, chunk));
    const uint64_t start = chunk * KEY_CHUNK_TOKENS;
    uint64_t *hashes = space->store->tail_scratch;
    uint32_t length;

    if (bucket == NULL) {
        return true;
    }
    length = next_length(bucket, (uint32_t)kvarve_min_u64(max - start, KEY_CHUNK_TOKENS));
    tail_hash_run(kvarve_prefix_tokens(prefix) + start, length, hashes);
    for (; length > 0; length = next_length(bucket, length - 1)) {
        if (bucket_may_hold(bucket, length, hashes[length]) &&
            !visit_at(space, prefix, start + length, visit, context)) {
            return false;
        }
    }
    return true;
}

/* Visit the stored checkpoints of up to `max` tokens that are prefixes, longest first. */
static void visit_prefixes(const store_space *space, const kvarve_prefix *prefix, uint64_t max,
                           match_visit visit, void *context)
{
    if (max == 0 || space->checkpoint_count == 0) {
        return;
    }
    for (uint64_t chunk = (max - 1) / KEY_CHUNK_TOKENS + 1; chunk-- > 0;) {
        if (!visit_chunk(space, prefix, chunk, max, visit, context)) {
            return;
        }
    }
}

static bool take_first(void *context, store_checkpoint *found)
{
    store_checkpoint **out = context;

    if (found->is_companion) {
        return true;
    }
    *out = found;
    return false;
}

store_checkpoint *find_longest(const store_space *space, const kvarve_prefix *prefix, uint64_t max)
{
    store_checkpoint *found = NULL;

    visit_prefixes(space, prefix, max, take_first, (void *)&found);
    return found;
}

/* --- derived boundaries --- */

static store_span *span_at(const store_space *space, const store_query *query, uint64_t end)
{
    const page_discriminator what = {.class = PAGE_PREFIX, .group = space_naming_group(space, end)};
    uint8_t digest[KVARVE_DIGEST_SIZE];
    page_key key;

    if (!query_digest(query, end, digest)) {
        return NULL;
    }
    key = page_key_of(&space->name, digest, end, &what);
    return span_find_whole(space, &key);
}

/* The longest stored span that ends at a multiple of derived_span up to `max`. */
static store_span *longest_span(const store_space *space, const store_query *query, uint64_t max)
{
    const uint64_t step = space->derived_span;
    uint64_t low = 0;
    uint64_t high = step == 0 ? 1 : max / step + 1;
    store_span *found = NULL;

    if (step == 0 || query->prefix == NULL) {
        return NULL;
    }
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        store_span *here = span_at(space, query, middle * step);

        if (here != NULL) {
            found = here;
            low = middle;
        } else {
            high = middle;
        }
    }
    return found;
}

bool query_digest(const store_query *query, uint64_t tokens, uint8_t out[KVARVE_DIGEST_SIZE])
{
    size_t low = 0;
    size_t high = query->point_count;

    if (query->prefix != NULL) {
        return kvarve_prefix_digest(query->prefix, tokens, out, NULL) == KVARVE_OK;
    }
    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (query->points[middle].tokens < tokens) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == query->point_count || query->points[low].tokens != tokens) {
        return false;
    }
    memcpy(out, query->points[low].digest, KVARVE_DIGEST_SIZE);
    return true;
}

/* --- the list --- */

typedef struct find_search {
    store_namespace *name;
    const store_query *query;
    const kvarve_find_options *options;
    uint64_t min;
    uint64_t max;
    find_hit *hits; /* longest first */
    size_t hit_count;
    size_t hit_max;
    uint64_t seen;    /* longest boundary seen, usable or not */
    uint64_t refused; /* longest one that only min, max, multiple or kind kept out */
    bool has_damaged;
    uint32_t damaged_group;
    bool has_lacking_draft;
} find_search;

static bool is_wanted_length(const find_search *search, uint64_t tokens)
{
    return tokens >= search->min && tokens <= search->max &&
           (search->options->multiple_of <= 1 || tokens % search->options->multiple_of == 0);
}

static bool is_wanted_kind(const find_search *search, uint32_t kind)
{
    return search->options->kinds == 0 || (search->options->kinds >> kind & 1) != 0;
}

/* Where it goes: longest first; at one length the preferred kind, then the newest. */
static bool goes_before(const find_search *search, const find_hit *a, const find_hit *b)
{
    const uint32_t preferred = search->options->preferred_kind;

    if (a->tokens != b->tokens) {
        return a->tokens > b->tokens;
    }
    if ((a->kind == preferred) != (b->kind == preferred)) {
        return a->kind == preferred;
    }
    if ((a->checkpoint != NULL) != (b->checkpoint != NULL)) {
        return a->checkpoint != NULL;
    }
    return a->checkpoint != NULL && a->checkpoint->used > b->checkpoint->used;
}

static void add_hit(find_search *search, const find_hit *hit)
{
    size_t at = search->hit_count;

    while (at > 0 && goes_before(search, hit, &search->hits[at - 1])) {
        at--;
    }
    if (at >= search->hit_max) {
        return;
    }
    if (search->hit_count == search->hit_max) {
        search->hit_count--;
    }
    memmove(&search->hits[at + 1], &search->hits[at], (search->hit_count - at) * sizeof(find_hit));
    search->hits[at] = *hit;
    search->hit_count++;
}

static bool consider(void *context, store_checkpoint *found)
{
    find_search *search = context;
    find_hit hit = {.tokens = found->tokens, .kind = found->kind, .checkpoint = found};
    const bool needs_draft = (search->options->flags & KVARVE_FIND_NEED_OPTIONAL) != 0;
    uint32_t group = 0;

    search->seen = kvarve_max_u64(search->seen, found->tokens);
    if (!is_wanted_length(search, found->tokens) || !is_wanted_kind(search, found->kind)) {
        search->refused = kvarve_max_u64(search->refused, found->tokens);
        return true;
    }
    if (checkpoint_is_damaged(found, &group)) {
        search->has_damaged = true;
        search->damaged_group = group;
        return true;
    }
    if (search->name->spaces[1] != NULL && found->companion != NULL &&
        found->companion->space == search->name->spaces[1] &&
        !checkpoint_is_damaged(found->companion, &group)) {
        hit.companion = found->companion;
    }
    if (needs_draft && hit.companion == NULL) {
        search->has_lacking_draft = true;
        return true;
    }
    add_hit(search, &hit);
    /* Go on while there is room, or another one of this length may be preferred. */
    return search->hit_count < search->hit_max ||
           search->hits[search->hit_count - 1].tokens == found->tokens;
}

/* All checkpoints at one point; false: stop. */
static bool consider_point(find_search *search, const kvarve_prefix_point *point)
{
    store_checkpoint *found = catalog_first_at(search->name->spaces[0], point->digest);

    for (; found != NULL; found = catalog_next_at(found)) {
        if (found->tokens == point->tokens && !consider(search, found)) {
            return false;
        }
    }
    return true;
}

static void consider_points(find_search *search)
{
    size_t left = search->query->point_count;

    while (left > 0 && consider_point(search, &search->query->points[left - 1])) {
        left--;
    }
}

/* Points: only their lengths are looked for. */
static bool is_asked_for(const store_query *query, uint64_t tokens)
{
    uint8_t digest[KVARVE_DIGEST_SIZE];

    return query->prefix != NULL || query_digest(query, tokens, digest);
}

static void consider_span(find_search *search, store_span *at)
{
    uint32_t group = 0;

    while (at != NULL && span_is_damaged(at, &group)) {
        search->has_damaged = true;
        search->damaged_group = group;
        at = at->parent;
    }
    for (; at != NULL; at = at->parent) {
        const find_hit hit = {.tokens = at->tokens, .kind = KVARVE_KIND_INSTRUCTION, .span = at};

        if (at->tokens % search->name->spaces[0]->derived_span != 0 ||
            !is_asked_for(search->query, at->tokens)) {
            continue;
        }
        search->seen = kvarve_max_u64(search->seen, at->tokens);
        if (!is_wanted_length(search, at->tokens)) {
            search->refused = kvarve_max_u64(search->refused, at->tokens);
            continue;
        }
        if (at->tokens < search->min || (search->hit_count == search->hit_max &&
                                         search->hits[search->hit_count - 1].tokens > at->tokens)) {
            return;
        }
        add_hit(search, &hit);
    }
}

/* Do the options leave derived boundaries in, and does the space have any? */
static bool wants_derived(const find_search *search)
{
    return (search->options->flags & (KVARVE_FIND_NO_DERIVED | KVARVE_FIND_NEED_OPTIONAL)) == 0 &&
           is_wanted_kind(search, KVARVE_KIND_INSTRUCTION) &&
           search->name->spaces[0]->derived_span != 0;
}

/* The span at the longest wanted point that has one. */
static store_span *longest_span_at_points(const find_search *search)
{
    const store_space *space = search->name->spaces[0];
    store_span *found = NULL;

    for (size_t i = search->query->point_count; i-- > 0 && found == NULL;) {
        const uint64_t end = search->query->points[i].tokens;

        if (end % space->derived_span == 0 && is_wanted_length(search, end)) {
            found = span_at(space, search->query, end);
        }
    }
    return found;
}

static void consider_derived(find_search *search)
{
    const store_space *space = search->name->spaces[0];

    if (wants_derived(search)) {
        consider_span(search, search->query->prefix != NULL
                                  ? longest_span(space, search->query, search->max)
                                  : longest_span_at_points(search));
    }
}

static uint64_t query_length(const store_query *query)
{
    if (query->prefix != NULL) {
        return kvarve_prefix_length(query->prefix);
    }
    return query->point_count == 0 ? 0 : query->points[query->point_count - 1].tokens;
}

static void run_search(find_search *search)
{
    const uint64_t length = query_length(search->query);

    search->min = kvarve_max_u64(search->options->min_tokens, 1);
    search->max = search->options->max_tokens == 0
                      ? length
                      : kvarve_min_u64(search->options->max_tokens, length);
    if (search->query->prefix != NULL) {
        visit_prefixes(search->name->spaces[0], search->query->prefix, search->max, consider,
                       search);
    } else {
        consider_points(search);
    }
    consider_derived(search);
}

/* --- misses --- */

static bool take_longest(void *context, store_checkpoint *found)
{
    uint64_t *out = context;

    *out = kvarve_max_u64(*out, found->tokens);
    return false;
}

/* P8: nothing of another tenant is told. */
static bool may_be_told(const store_space *here, const store_space *other)
{
    return other != here && other->document != NULL && here->document != NULL &&
           memcmp(other->salt_digest, here->salt_digest, 32) == 0;
}

/* The boundary of these tokens in another space, if it is a better reason for the miss. True: it
 * is the best one there can be, as only numerics differ. */
static bool look_in_space(const find_search *search, const store_space *other, kvarve_miss *miss)
{
    const store_space *here = search->name->spaces[0];
    const bool is_near = memcmp(other->meaning, here->meaning, 32) == 0;
    uint64_t longest = 0;

    visit_prefixes(other, search->query->prefix, search->max, take_longest, &longest);
    if (longest < search->min || longest == 0 || (longest <= miss->nearest_tokens && !is_near)) {
        return false;
    }
    miss->nearest_tokens = longest;
    miss->reason = is_near ? KVARVE_MISS_NUMERICS : KVARVE_MISS_NAMESPACE;
    document_difference(here->document, other->document, miss->field, sizeof miss->field);
    return is_near;
}

/* The longest boundary of these tokens in another space of the same tenant. */
static void look_elsewhere(const find_search *search, kvarve_miss *miss)
{
    const store_space *here = search->name->spaces[0];
    const store_machine *store = here->store;
    bool is_settled = false;
    uint32_t looked = 0;

    for (size_t i = 0; i < store->spaces.bucket_count && !is_settled; i++) {
        kvarve_table_link *link = store->spaces.buckets[i];

        for (; link != NULL && looked < OTHER_SPACES_MAX && !is_settled; link = link->next) {
            const store_space *other = KVARVE_TABLE_ITEM(link, store_space, link);
            const bool may_tell = may_be_told(here, other);

            is_settled = may_tell && look_in_space(search, other, miss);
            looked += may_tell;
        }
    }
}

/* How many leading tokens stand in whole pages stored here, whichever checkpoint they belong to. */
static uint64_t common_pages(const store_space *space, const store_query *query)
{
    uint64_t low = 0;
    uint64_t high = kvarve_prefix_length(query->prefix) + 1;

    for (;;) { /* a stored span implies those before it, so halve */
        uint64_t middle = space_last_end(space, low + (high - low) / 2);

        if (middle <= low) {
            middle = space_next_end(space, low);
        }
        if (middle >= high) {
            return low;
        }
        if (span_at(space, query, middle) != NULL) {
            low = middle;
        } else {
            high = middle;
        }
    }
}

static void explain(const find_search *search, kvarve_miss *miss)
{
    const store_space *space = search->name->spaces[0];

    *miss = (kvarve_miss){.common_tokens = search->seen};
    if (search->query->prefix != NULL && space->checkpoint_count > 0) {
        miss->common_tokens = kvarve_max_u64(search->seen, common_pages(space, search->query));
    }
    if (search->has_damaged) {
        miss->reason = KVARVE_MISS_DAMAGED;
        miss->group = search->name->public_of[0][search->damaged_group];
        return;
    }
    if (search->has_lacking_draft) {
        miss->reason = KVARVE_MISS_DRAFT;
        return;
    }
    if (search->query->prefix != NULL) {
        look_elsewhere(search, miss);
    }
    if (miss->reason != KVARVE_MISS_NOT) {
        return;
    }
    if (search->refused > 0) {
        miss->reason = KVARVE_MISS_LIMITS;
        miss->nearest_tokens = search->refused;
        return;
    }
    if (search->query->prefix != NULL && search->max < query_length(search->query)) {
        uint64_t beyond = 0;

        visit_prefixes(space, search->query->prefix, query_length(search->query), take_longest,
                       &beyond);
        if (beyond > 0) {
            miss->reason = KVARVE_MISS_LIMITS;
            miss->nearest_tokens = beyond;
            return;
        }
    }
    miss->reason = space->checkpoint_count == 0 ? KVARVE_MISS_EMPTY : KVARVE_MISS_TOKENS;
}

/* --- boundaries --- */

static void add_page_bytes(const store_page *page, kvarve_boundary *out)
{
    out->bytes += page->size;
    out->bytes_to_read += page->slot == ARENA_NONE ? page->size : 0;
}

static void add_checkpoint_bytes(const store_checkpoint *checkpoint, const store_span *last,
                                 kvarve_boundary *out)
{
    for (; last != NULL; last = last->parent) {
        for (uint32_t i = 0; i < last->page_count; i++) {
            add_page_bytes(last->pages[i], out);
        }
    }
    for (uint32_t i = 0; checkpoint != NULL && i < checkpoint->page_count; i++) {
        add_page_bytes(checkpoint->pages[i], out);
    }
}

static bool is_recorded(const store_checkpoint *checkpoint)
{
    return checkpoint->batch != NULL && !checkpoint_has_repair(checkpoint);
}

/* Is all of it recorded? A span is recorded after those before it. */
static bool is_durable(const find_hit *hit)
{
    if (hit->checkpoint != NULL) {
        return is_recorded(hit->checkpoint) &&
               (hit->companion == NULL || is_recorded(hit->companion));
    }
    return hit->span->batch != NULL &&
           !(hit->span->space->store->has_repaired && span_is_unsettled(hit->span));
}

void find_describe(const store_machine *store, const find_hit *hit, kvarve_boundary *out)
{
    *out = (kvarve_boundary){.tokens = hit->tokens, .kind = hit->kind};
    add_checkpoint_bytes(hit->checkpoint,
                         hit->checkpoint != NULL ? hit->checkpoint->span : hit->span, out);
    out->state = is_durable(hit) ? KVARVE_PUT_DURABLE : KVARVE_PUT_READY;
    if (hit->checkpoint != NULL) {
        out->draft_tokens = hit->checkpoint->draft_tokens;
        memcpy(out->id, hit->checkpoint->id.bytes, sizeof out->id);
    } else {
        out->flags |= KVARVE_BOUNDARY_DERIVED;
        out->draft_tokens = hit->tokens;
    }
    if (hit->companion != NULL) {
        out->flags |= KVARVE_BOUNDARY_DRAFT;
        add_checkpoint_bytes(hit->companion, hit->companion->span, out);
    }
    out->tier = out->bytes_to_read == 0 ? KVARVE_TIER_RAM : KVARVE_TIER_FLASH;
    if (out->bytes_to_read > 0 && store->read_bytes > 0) {
        out->expected_ns = (uint64_t)((double)out->bytes_to_read * (double)store->read_ns /
                                      (double)store->read_bytes);
    }
}

static kvarve_status check_options(const store_query *query, const kvarve_find_options *options,
                                   kvarve_error *err)
{
    const uint32_t kinds_all = (1u << CHECKPOINT_KIND_COUNT) - 1;

    if ((options->kinds & ~kinds_all) != 0) {
        return kvarve_fail(err, KVARVE_INVALID, "find: kinds %#x: bits 0 .. 2", options->kinds);
    }
    if (options->lease > KVARVE_LEASE_LOAD) {
        return kvarve_fail(err, KVARVE_INVALID, "find: lease %u: 0 .. 2", options->lease);
    }
    for (size_t i = 1; i < query->point_count; i++) {
        if (query->points[i].tokens <= query->points[i - 1].tokens) {
            return kvarve_fail(err, KVARVE_INVALID, "find: lengths must rise, point %zu does not",
                               i);
        }
    }
    return KVARVE_OK;
}

static kvarve_status answer(find_search *search, const store_answer *out, kvarve_error *err)
{
    store_machine *store = search->name->store;
    kvarve_status status = KVARVE_OK;

    if (search->options->lease != KVARVE_LEASE_NONE) {
        status = lease_create(search->name, &search->hits[0], search->options, out->lease, err);
    }
    if (status != KVARVE_OK) {
        return status;
    }
    if (search->hits[0].checkpoint != NULL) {
        catalog_touch(search->hits[0].checkpoint);
    }
    if (search->hits[0].companion != NULL) {
        catalog_touch(search->hits[0].companion);
    }
    for (size_t i = 0; i < search->hit_count && i < out->max; i++) {
        find_describe(store, &search->hits[i], &out->boundaries[i]);
    }
    if (out->count != NULL) {
        *out->count = search->hit_count < out->max ? search->hit_count : out->max;
    }
    store->statistics.hits++;
    return KVARVE_OK;
}

kvarve_status store_find(store_namespace *name, const store_query *query,
                         const kvarve_find_options *options, const store_answer *out,
                         kvarve_error *err)
{
    find_hit few[8];
    find_search search = {.name = name,
                          .query = query,
                          .options = options,
                          .hits = few,
                          .hit_max = out->max == 0 ? 1 : out->max};
    kvarve_status status = check_options(query, options, err);
    kvarve_miss miss;

    if (status != KVARVE_OK) {
        return status;
    }
    if (search.hit_max >= sizeof few / sizeof few[0]) {
        search.hits = kvarve_allocate_array(search.hit_max + 1, sizeof(find_hit));
        if (search.hits == NULL) {
            return kvarve_fail(err, KVARVE_NO_MEMORY, "find: %zu boundaries", out->max);
        }
    }
    name->store->statistics.finds++;
    run_search(&search);
    if (search.hit_count > 0) {
        status = answer(&search, out, err);
    } else {
        explain(&search, &miss);
        name->store->statistics.misses[miss.reason]++;
        if (out->miss != NULL) {
            *out->miss = miss;
        }
        status = KVARVE_MISS;
    }
    if (search.hits != few) {
        kvarve_release(search.hits);
    }
    return status;
}

/* --- find_all --- */

typedef struct bitmap_search {
    find_search search;
    uint8_t *bitmap;
} bitmap_search;

static void set_bit(uint8_t *bitmap, uint64_t at)
{
    bitmap[at / 8] = (uint8_t)(bitmap[at / 8] | 1u << (at % 8));
}

static bool mark(void *context, store_checkpoint *found)
{
    bitmap_search *all = context;

    all->search.hit_count = 0;
    (void)consider(&all->search, found);
    if (all->search.hit_count > 0) {
        set_bit(all->bitmap, found->tokens);
    }
    return true;
}

/* The derived boundaries that the options want. */
static void mark_derived(bitmap_search *all)
{
    const find_search *search = &all->search;
    const store_space *space = search->name->spaces[0];
    store_span *at = longest_span(space, search->query, search->max);
    uint32_t group = 0;

    while (at != NULL && span_is_damaged(at, &group)) {
        at = at->parent;
    }
    for (; at != NULL; at = at->parent) {
        if (at->tokens % space->derived_span == 0 && is_wanted_length(search, at->tokens)) {
            set_bit(all->bitmap, at->tokens);
        }
    }
}

kvarve_status store_find_all(store_namespace *name, const kvarve_prefix *prefix,
                             const kvarve_find_options *options, uint8_t *bitmap,
                             size_t bitmap_bytes, kvarve_error *err)
{
    const uint64_t length = kvarve_prefix_length(prefix);
    const store_query query = {.prefix = prefix};
    find_hit one[2];
    bitmap_search all = {.search = {.name = name,
                                    .query = &query,
                                    .options = options,
                                    .hits = one,
                                    .hit_max = 1,
                                    .min = kvarve_max_u64(options->min_tokens, 1),
                                    .max = options->max_tokens == 0
                                               ? length
                                               : kvarve_min_u64(options->max_tokens, length)},
                         .bitmap = bitmap};
    kvarve_status status = check_options(&query, options, err);

    if (status != KVARVE_OK) {
        return status;
    }
    if (bitmap_bytes < length / 8 + 1) {
        return kvarve_fail(err, KVARVE_INVALID, "find_all: a bitmap of %zu bytes, %llu are needed",
                           bitmap_bytes, (unsigned long long)length / 8 + 1);
    }
    memset(bitmap, 0, bitmap_bytes);
    visit_prefixes(name->spaces[0], prefix, all.search.max, mark, &all);
    if (wants_derived(&all.search)) {
        mark_derived(&all);
    }
    return KVARVE_OK;
}
