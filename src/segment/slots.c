/*
 * slots.c - which slots are free, and which of them to give out.
 *
 * The slots of a class are cut into chunks of at most 4096. Each chunk knows how many of its slots
 * are free and how long its longest free run is; a change makes the latter stale, and the next
 * reserve looks through its 64 words again. So a reserve reads one small entry a chunk (250 for
 * 10^6 slots) and the words of one or two chunks.
 *
 * Choice (deterministic)
 *   1. the chunk whose longest run is the shortest that takes all; in it the shortest such run;
 *   2. else, in one file if one has room: runs more than half as long as the longest, again and
 *      again, the rest as in 1;
 *   3. else the same over all files.
 * Ties go to the lowest file and slot, so that high files run empty and trim can remove them.
 *
 * Invariants
 *   I1  A bit is clear in `taken` exactly when its slot counts in `free` of chunk, file and class.
 *       A hollow slot is set in `taken`, so that it is never given out.
 *   I2  A reserve takes all that was asked for, or nothing: the counts say before the first bit is
 *       set that there is enough.
 *
 * Threads: one at a time. Nothing allocates.
 */
#include "segment/segment_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"

/* Chunks [from, to) of a class. */
typedef struct chunk_range {
    slot_chunk *from;
    slot_chunk *to;
} chunk_range;

static const uint64_t *chunk_words(const slot_chunk *chunk)
{
    return chunk->file->taken + chunk->at / BITMAP_BITS;
}

/* The longest run of set bits in one word. */
static uint32_t longest_in_word(uint64_t word)
{
    uint32_t length = 0;

    for (; word != 0; length++) {
        word &= word >> 1; /* Each turn takes the last bit off every run. */
    }
    return length;
}

/* The longest run of clear bits among the first `count`. */
static uint32_t longest_clear_run(const uint64_t *words, uint32_t count)
{
    uint32_t longest = 0;
    uint32_t run = 0; /* that reaches the end of the words seen so far */

    for (uint32_t at = 0; at < count; at += BITMAP_BITS) {
        const uint32_t bits = count - at < BITMAP_BITS ? count - at : BITMAP_BITS;
        uint64_t clear = ~words[at / BITMAP_BITS];

        if (bits < BITMAP_BITS) {
            clear &= (UINT64_C(1) << bits) - 1;
        }
        if (clear == UINT64_MAX) {
            run += BITMAP_BITS;
        } else {
            const uint32_t joined = run + (uint32_t)__builtin_ctzll(~clear);
            const uint32_t inside = longest_in_word(clear);

            longest = joined > longest ? joined : longest;
            longest = inside > longest ? inside : longest;
            run = (uint32_t)__builtin_clzll(~clear);
        }
    }
    return run > longest ? run : longest;
}

static void refresh(slot_chunk *chunk)
{
    if (chunk->is_stale) {
        chunk->longest = chunk->free == 0 ? 0 : longest_clear_run(chunk_words(chunk), chunk->count);
        chunk->is_stale = false;
    }
}

void slots_mark(segment_file *file, uint32_t at, uint32_t count, bool is_taken)
{
    slot_class *class = file->class;

    bitmap_fill(file->taken, at, count, is_taken);
    while (count > 0) {
        slot_chunk *chunk = &class->chunks[file->first_chunk + at / CHUNK_SLOTS];
        const uint32_t left = chunk->at + chunk->count - at;
        const uint32_t step = count < left ? count : left;

        chunk->free += is_taken ? -step : step;
        chunk->is_stale = true;
        file->slots_free += is_taken ? -step : step;
        class->free += is_taken ? -(uint64_t)step : step;
        at += step;
        count -= step;
    }
}

void slots_insert(segment_file *file)
{
    slot_class *class = file->class;
    uint32_t at = 0;

    KVARVE_ASSERT(class->chunk_count + file->chunk_count <= class->chunk_capacity);
    while (at < class->chunk_count && class->chunks[at].file->head.number < file->head.number) {
        at += class->chunks[at].file->chunk_count;
    }
    memmove(class->chunks + at + file->chunk_count, class->chunks + at,
            (class->chunk_count - at) * sizeof *class->chunks);
    class->chunk_count += file->chunk_count;
    for (uint32_t i = 0; i < file->chunk_count; i++) {
        const uint32_t first = i * CHUNK_SLOTS;
        const uint32_t left = file->head.slot_count - first;
        const uint32_t count = left < CHUNK_SLOTS ? left : CHUNK_SLOTS;

        class->chunks[at + i] = (slot_chunk){
            .file = file, .at = first, .count = count, .free = count, .longest = count};
    }
    file->first_chunk = at;
    for (at += file->chunk_count; at < class->chunk_count; at++) {
        slot_chunk *chunk = &class->chunks[at];

        chunk->file->first_chunk = at - chunk->at / CHUNK_SLOTS;
    }
    class->free += file->head.slot_count;
    file->slots_free = file->head.slot_count;
}

void slots_remove(segment_file *file)
{
    slot_class *class = file->class;
    const uint32_t end = file->first_chunk + file->chunk_count;

    class->free -= file->slots_free;
    memmove(class->chunks + file->first_chunk, class->chunks + end,
            (class->chunk_count - end) * sizeof *class->chunks);
    class->chunk_count -= file->chunk_count;
    for (uint32_t at = file->first_chunk; at < class->chunk_count; at++) {
        slot_chunk *chunk = &class->chunks[at];

        chunk->file->first_chunk = at - chunk->at / CHUNK_SLOTS;
    }
}

/* The chunk of the range with the shortest longest run of at least `count`, or NULL. */
static slot_chunk *tightest(chunk_range range, size_t count)
{
    slot_chunk *best = NULL;

    for (slot_chunk *chunk = range.from; chunk < range.to; chunk++) {
        if (chunk->free < count) {
            continue;
        }
        refresh(chunk);
        if (chunk->longest == count) {
            return chunk;
        }
        if (chunk->longest > count && (best == NULL || chunk->longest < best->longest)) {
            best = chunk;
        }
    }
    return best;
}

/* The chunk with the longest run, of those whose file has `file_free` slots or more. NULL: none. */
static slot_chunk *roomiest(chunk_range range, size_t file_free)
{
    slot_chunk *best = NULL;

    for (slot_chunk *chunk = range.from; chunk < range.to; chunk++) {
        if (chunk->free == 0) {
            continue;
        }
        refresh(chunk);
        if ((best == NULL || chunk->longest > best->longest) &&
            chunk->file->slots_free >= file_free) {
            best = chunk;
        }
    }
    return best;
}

/* Give out the first `count` slots from `at` in the chunk; returns the end of what was filled. */
static page_place *give(slot_chunk *chunk, uint32_t at, uint32_t count, page_place *out)
{
    segment_file *file = chunk->file;

    for (uint32_t i = 0; i < count; i++) {
        *out++ = (page_place){.segment = file->head.number, .slot = chunk->at + at + i};
    }
    slots_mark(file, chunk->at + at, count, true);
    return out;
}

/* The shortest run of the chunk that takes `count`; there is one. */
static page_place *give_tightest_run(slot_chunk *chunk, uint32_t count, page_place *out)
{
    const uint64_t *words = chunk_words(chunk);
    bitmap_run run = {0, 0};
    bitmap_run best = {0, UINT32_MAX};

    while (best.count != count &&
           bitmap_next_run(words, NULL, run.at + run.count, chunk->count, &run)) {
        if (run.count >= count && run.count < best.count) {
            best = run;
        }
    }
    KVARVE_ASSERT(best.count != UINT32_MAX);
    return give(chunk, best.at, count, out);
}

/* The runs of the chunk that are `least` slots or longer, as long as they are wanted whole. */
static page_place *give_long_runs(slot_chunk *chunk, uint32_t least, page_place *out,
                                  const page_place *end)
{
    const uint64_t *words = chunk_words(chunk);
    bitmap_run run = {0, 0};

    while (bitmap_next_run(words, NULL, run.at + run.count, chunk->count, &run)) {
        if (run.count > (size_t)(end - out)) {
            continue;
        }
        if (run.count >= least) {
            out = give(chunk, run.at, run.count, out);
        }
    }
    return out;
}

/* One sweep over the range for runs of `least` slots or more, while so many are wanted. */
static page_place *sweep(chunk_range range, uint32_t least, page_place *out, const page_place *end)
{
    for (slot_chunk *chunk = range.from; chunk < range.to; chunk++) {
        if ((size_t)(end - out) < least) {
            break;
        }
        refresh(chunk);
        if (chunk->longest >= least) {
            out = give_long_runs(chunk, least, out, end);
        }
    }
    return out;
}

/*
 * Fill out[count] from the range, which has that many free slots. While no run takes all that is
 * left, a sweep takes the runs that are more than half as long as the longest; so there are at most
 * 13 sweeps, however small the pieces are.
 */
static void give_pieces(chunk_range range, size_t count, page_place *out)
{
    const page_place *end = out + count;

    while (out < end) {
        slot_chunk *chunk = tightest(range, (size_t)(end - out));

        if (chunk != NULL) {
            out = give_tightest_run(chunk, (uint32_t)(end - out), out);
        } else {
            chunk = roomiest(range, 0);
            KVARVE_ASSERT(chunk != NULL); /* I2 */
            out = sweep(range, chunk->longest / 2 + 1, out, end);
        }
    }
}

static int compare_places(const void *a, const void *b)
{
    const page_place *x = a;
    const page_place *y = b;

    if (x->segment != y->segment) {
        return x->segment < y->segment ? -1 : 1;
    }
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

static slot_class *find_class(const segment_set *set, uint32_t slot_bytes)
{
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &set->classes) {
        slot_class *class = KVARVE_LIST_ITEM(link, slot_class, link);

        if (class->slot_bytes == slot_bytes) {
            return class;
        }
    }
    return NULL;
}

kvarve_status segment_reserve(segment_set *set, uint32_t slot_bytes, size_t count, page_place *out)
{
    slot_class *class = find_class(set, slot_bytes);
    chunk_range all;
    slot_chunk *chunk;

    KVARVE_ASSERT(slot_bytes > 0 && slot_bytes % BATCH_BLOCK == 0);
    if (count == 0) {
        return KVARVE_OK;
    }
    if (class == NULL || class->free < count) {
        return KVARVE_BUSY;
    }
    all = (chunk_range){class->chunks, class->chunks + class->chunk_count};
    chunk = tightest(all, count);
    if (chunk != NULL) {
        (void)give_tightest_run(chunk, (uint32_t)count, out);
        return KVARVE_OK;
    }
    chunk = roomiest(all, count);
    if (chunk != NULL) {
        slot_chunk *first = class->chunks + chunk->file->first_chunk;

        give_pieces((chunk_range){first, first + chunk->file->chunk_count}, count, out);
    } else {
        give_pieces(all, count, out);
    }
    qsort(out, count, sizeof *out, compare_places);
    return KVARVE_OK;
}

bool segment_take(segment_set *set, page_place place)
{
    segment_file *file = segment_find(set, place.segment);

    KVARVE_ASSERT(file != NULL && place.slot < file->head.slot_count);
    if (bitmap_get(file->hollow, place.slot)) { /* so it was thought: there is a page */
        bitmap_fill(file->hollow, place.slot, 1, false);
        file->slots_hollow--;
        return true;
    }
    if (bitmap_get(file->taken, place.slot)) {
        return false;
    }
    slots_mark(file, place.slot, 1, true);
    return true;
}

void segment_free(segment_set *set, page_place place)
{
    segment_file *file = segment_find(set, place.segment);

    KVARVE_ASSERT(file != NULL && place.slot < file->head.slot_count);
    KVARVE_ASSERT(bitmap_get(file->taken, place.slot) && !bitmap_get(file->hollow, place.slot));
    slots_mark(file, place.slot, 1, false);
}

uint64_t segment_free_slots(const segment_set *set, uint32_t slot_bytes)
{
    const slot_class *class = find_class(set, slot_bytes);

    return class == NULL ? 0 : class->free;
}
