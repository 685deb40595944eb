/*
 * file.c - see file_private.h.
 *
 * Invariants:
 * F1  Where the seen and the durable block differ, the block is in `dirty`.
 * F2  Seen bytes from seen_size on are zero.
 * F3  What is not durable yet is marked: written (may become old, new or garbage), punched (old or
 *     zero), allocated (there or not). A block in `dirty` without marks falls back to what is
 *     durable.
 *
 * A truncation needs no mark: when the size does not fall back to the durable one, everything from
 * low_size on was cut off in between.
 */
#include "simulate/file_private.h"

#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "simulate/world.h"

#define SECTORS        (IMAGE_BLOCK / WORLD_SECTOR)
#define ALL_SECTORS    0xff
#define DIRTY_CAPACITY 16

/* How the unsynced sectors of one file fare in one power cut. */
typedef enum sim_mood {
    MOOD_MIXED,
    MOOD_NEW,
    MOOD_OLD,
    MOOD_TORN, /* new, but for a few */
} sim_mood;

sim_file *file_create(sim_pool *pool, uint64_t inode, kvarve_file_kind kind, uint32_t mode)
{
    sim_file *file = pool_take_zeroed(pool, sizeof *file);

    file->inode = inode;
    file->kind = kind;
    file->mode = mode;
    return file;
}

static void drop_path(sim_pool *pool, sim_file *file)
{
    if (file->path != NULL) {
        pool_give(pool, file->path, strlen(file->path) + 1);
    }
}

void file_set_path(sim_pool *pool, sim_file *file, const char *path)
{
    const size_t size = strlen(path) + 1;

    drop_path(pool, file);
    file->path = memcpy(pool_take(pool, size), path, size);
}

static void drop_dirty_table(sim_pool *pool, sim_file *file)
{
    const size_t capacity = file->dirty_capacity;

    pool_give(pool, file->dirty, capacity * sizeof *file->dirty);
    pool_give(pool, file->slots, 2 * capacity * sizeof *file->slots);
}

void file_destroy(sim_pool *pool, sim_file *file)
{
    image_deinit(pool, &file->seen);
    image_deinit(pool, &file->durable);
    drop_dirty_table(pool, file);
    drop_path(pool, file);
    pool_give(pool, file, sizeof *file);
}

/* The slot of block `index`: where it is, or the free one where it would go. */
static uint32_t find_slot(const sim_file *file, uint64_t index)
{
    const uint32_t mask = 2 * file->dirty_capacity - 1;
    uint32_t slot = (uint32_t)((index * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & mask;

    while (file->slots[slot] != 0 && file->dirty[file->slots[slot] - 1].index != index) {
        slot = (slot + 1) & mask;
    }
    return slot;
}

static void place_dirty(sim_file *file, uint32_t number)
{
    sim_dirty *entry = &file->dirty[number];

    entry->slot = find_slot(file, entry->index);
    file->slots[entry->slot] = number + 1;
}

static void grow_dirty_table(sim_pool *pool, sim_file *file)
{
    const uint32_t capacity = file->dirty_capacity == 0 ? DIRTY_CAPACITY : 2 * file->dirty_capacity;
    sim_dirty *dirty = pool_take(pool, capacity * sizeof *dirty);

    if (file->dirty_count > 0) {
        memcpy(dirty, file->dirty, file->dirty_count * sizeof *dirty);
    }
    drop_dirty_table(pool, file);
    file->dirty = dirty;
    file->dirty_capacity = capacity;
    file->slots = pool_take_zeroed(pool, 2 * (size_t)capacity * sizeof *file->slots);
    for (uint32_t i = 0; i < file->dirty_count; i++) {
        place_dirty(file, i);
    }
}

/* The entry of block `index`, made if it is not there. Borrowed until the next call. */
static sim_dirty *mark(sim_pool *pool, sim_file *file, uint64_t index)
{
    uint32_t number;

    if (file->dirty_capacity > 0) {
        number = file->slots[find_slot(file, index)];
        if (number != 0) {
            return &file->dirty[number - 1];
        }
    }
    if (file->dirty_count == file->dirty_capacity) {
        grow_dirty_table(pool, file);
    }
    number = file->dirty_count++;
    file->dirty[number] = (sim_dirty){.index = index};
    place_dirty(file, number);
    return &file->dirty[number];
}

/* Forget all entries but those that `keeps` names, in place. */
static void sweep_dirty(sim_file *file, bool (*keeps)(const sim_dirty *entry))
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < file->dirty_count; i++) {
        file->slots[file->dirty[i].slot] = 0;
    }
    for (uint32_t i = 0; i < file->dirty_count; i++) {
        if (keeps(&file->dirty[i])) {
            file->dirty[kept] = file->dirty[i];
            place_dirty(file, kept++);
        }
    }
    file->dirty_count = kept;
}

static bool keeps_nothing(const sim_dirty *entry)
{
    (void)entry;
    return false;
}

static bool keeps_dropped(const sim_dirty *entry)
{
    return entry->dropped != 0;
}

/* Sectors of a block that [begin, end) of it touches, and those that it covers whole. */
static uint8_t touched_sectors(size_t begin, size_t end)
{
    const unsigned first = (unsigned)(begin / WORLD_SECTOR);
    const unsigned last = (unsigned)((end - 1) / WORLD_SECTOR);

    return (uint8_t)((ALL_SECTORS << first) & (ALL_SECTORS >> (SECTORS - 1 - last)));
}

static uint8_t covered_sectors(size_t begin, size_t end)
{
    const size_t first = (begin + WORLD_SECTOR - 1) / WORLD_SECTOR;
    const size_t last = end / WORLD_SECTOR;

    return first < last ? touched_sectors(first * WORLD_SECTOR, last * WORLD_SECTOR) : 0;
}

static void set_size(sim_file *file, uint64_t size)
{
    file->seen_size = size;
    file->low_size = kvarve_min_u64(file->low_size, size);
    file->size_is_dirty = true;
}

/* A place in the caller's parts. */
typedef struct part_cursor {
    const struct iovec *part;
    size_t at;
} part_cursor;

typedef enum move_direction {
    TO_PARTS,
    FROM_PARTS,
    ZEROS_TO_PARTS,
} move_direction;

/* Move `size` bytes, 1 or more, between the parts' memory and `bytes`; where `bytes` then goes on.
 */
static uint8_t *move_step(uint8_t *here, uint8_t *bytes, size_t size, move_direction direction)
{
    switch (direction) {
    case FROM_PARTS:
        memcpy(bytes, here, size);
        return bytes + size;
    case TO_PARTS:
        memcpy(here, bytes, size);
        return bytes + size;
    case ZEROS_TO_PARTS:
        memset(here, 0, size);
        return NULL;
    }
    KVARVE_UNREACHABLE();
}

static void move(part_cursor *cursor, uint8_t *bytes, size_t size, move_direction direction)
{
    while (size > 0) {
        const size_t left = cursor->part->iov_len - cursor->at;
        const size_t step = (size_t)kvarve_min_u64(left, size);

        if (step > 0) { /* an empty part may be NULL */
            bytes =
                move_step((uint8_t *)cursor->part->iov_base + cursor->at, bytes, step, direction);
        }
        cursor->at += step;
        size -= step;
        if (step == left) {
            cursor->part++;
            cursor->at = 0;
        }
    }
}

uint64_t file_read(const sim_file *file, const struct iovec *parts, uint64_t size, uint64_t offset)
{
    part_cursor cursor = {.part = parts};
    uint64_t done = 0;

    if (offset >= file->seen_size) {
        return 0;
    }
    size = kvarve_min_u64(size, file->seen_size - offset);
    while (done < size) {
        const size_t begin = (size_t)((offset + done) % IMAGE_BLOCK);
        const size_t step = (size_t)kvarve_min_u64(IMAGE_BLOCK - begin, size - done);
        sim_block *block = image_block(&file->seen, (offset + done) / IMAGE_BLOCK);

        if (block == NULL) {
            move(&cursor, NULL, step, ZEROS_TO_PARTS);
        } else {
            move(&cursor, block->bytes + begin, step, TO_PARTS);
        }
        done += step;
    }
    return done;
}

uint64_t file_write(sim_pool *pool, sim_space *space, sim_file *file, const struct iovec *parts,
                    uint64_t size, uint64_t offset)
{
    part_cursor cursor = {.part = parts};
    uint64_t done = 0;

    while (done < size) {
        const uint64_t index = (offset + done) / IMAGE_BLOCK;
        const size_t begin = (size_t)((offset + done) % IMAGE_BLOCK);
        const size_t step = (size_t)kvarve_min_u64(IMAGE_BLOCK - begin, size - done);
        const bool is_new = image_block(&file->seen, index) == NULL;
        uint8_t *bytes;

        if (is_new && space->used >= space->capacity) {
            break;
        }
        bytes = image_edit(pool, &file->seen, index, step < IMAGE_BLOCK);
        move(&cursor, bytes + begin, step, FROM_PARTS);
        mark(pool, file, index)->written |= touched_sectors(begin, begin + step);
        space->used += is_new;
        done += step;
    }
    if (done > 0 && offset + done > file->seen_size) {
        set_size(file, offset + done);
    }
    return done;
}

void file_truncate(sim_pool *pool, sim_space *space, sim_file *file, uint64_t size)
{
    const uint64_t before = file->seen.block_count;

    if (size < file->seen_size) {
        for (uint64_t index = image_next_block(&file->seen, size / IMAGE_BLOCK);
             index != UINT64_MAX; index = image_next_block(&file->seen, index + 1)) {
            sim_dirty *entry = mark(pool, file, index); /* F1 */
            const uint64_t start = index * IMAGE_BLOCK;
            const size_t kept = size > start ? (size_t)(size - start) : 0;

            entry->written &= (uint8_t)~covered_sectors(kept, IMAGE_BLOCK);
        }
        image_cut(pool, &file->seen, size);
        space->used -= before - file->seen.block_count;
    }
    if (size != file->seen_size) {
        set_size(file, size);
    }
}

bool file_allocate(sim_pool *pool, sim_space *space, sim_file *file, uint64_t offset, uint64_t size)
{
    const uint64_t first = offset / IMAGE_BLOCK;
    const uint64_t end = kvarve_divide_up(offset + size, IMAGE_BLOCK);
    sim_block *zeros = NULL; /* one block of zeros for all of them, until somebody writes */
    uint64_t missing = 0;

    for (uint64_t index = first; index < end; index++) {
        missing += image_block(&file->seen, index) == NULL;
    }
    if (missing > space->capacity - kvarve_min_u64(space->used, space->capacity)) {
        return false;
    }
    for (uint64_t index = first; index < end; index++) {
        if (image_block(&file->seen, index) != NULL) {
            continue;
        }
        if (zeros == NULL) {
            (void)image_edit(pool, &file->seen, index, true);
            zeros = image_block(&file->seen, index);
        } else {
            image_share(pool, &file->seen, index, zeros);
        }
        mark(pool, file, index)->is_allocated = true;
    }
    space->used += missing;
    if (offset + size > file->seen_size) {
        set_size(file, offset + size);
    }
    return true;
}

void file_punch(sim_pool *pool, sim_space *space, sim_file *file, uint64_t offset, uint64_t size)
{
    const uint64_t before = file->seen.block_count;
    const uint64_t end = offset + size;

    for (uint64_t index = image_next_block(&file->seen, offset / IMAGE_BLOCK);
         index != UINT64_MAX && index * IMAGE_BLOCK < end;
         index = image_next_block(&file->seen, index + 1)) {
        const uint64_t start = index * IMAGE_BLOCK;
        const size_t from = offset > start ? (size_t)(offset - start) : 0;
        const size_t to = (size_t)kvarve_min_u64(end - start, IMAGE_BLOCK);
        const uint8_t whole = covered_sectors(from, to);
        sim_dirty *entry = mark(pool, file, index);

        if (to - from == IMAGE_BLOCK) {
            image_share(pool, &file->seen, index, NULL);
        } else {
            memset(image_edit(pool, &file->seen, index, true) + from, 0, to - from);
        }
        entry->written |= touched_sectors(from, to); /* the ends are zeroed by writing */
        entry->written &= (uint8_t)~whole;
        entry->punched |= whole;
    }
    space->used -= before - file->seen.block_count;
}

/* Bytes of sector `sector` of a block, NULL (zeros) for a hole. */
static const uint8_t *sector_of(const sim_block *block, unsigned sector)
{
    return block == NULL ? NULL : block->bytes + (size_t)sector * WORLD_SECTOR;
}

static void put_sector(uint8_t *block, unsigned sector, const uint8_t *bytes)
{
    uint8_t *here = block + (size_t)sector * WORLD_SECTOR;

    if (bytes == NULL) {
        memset(here, 0, WORLD_SECTOR);
    } else {
        memcpy(here, bytes, WORLD_SECTOR);
    }
}

/* Make the marked sectors durable and leave the dropped ones behind. */
static void sync_sectors(sim_pool *pool, sim_file *file, sim_dirty *entry)
{
    const uint8_t fresh = entry->written | entry->punched;
    const sim_block *seen = image_block(&file->seen, entry->index);
    uint8_t *durable;

    for (unsigned sector = 0; sector < SECTORS; sector++) {
        if ((fresh >> sector & 1) != 0) {
            durable = image_edit(pool, &file->durable, entry->index, true);
            put_sector(durable, sector, sector_of(seen, sector));
        }
    }
    entry->dropped &= (uint8_t)~fresh;
}

void file_sync(sim_pool *pool, sim_file *file)
{
    if (file->size_is_dirty) {
        image_cut(pool, &file->durable, file->low_size);
        file->durable_size = file->seen_size;
    }
    for (uint32_t i = 0; i < file->dirty_count; i++) {
        sim_dirty *entry = &file->dirty[i];

        if ((entry->dropped & (uint8_t)~(entry->written | entry->punched)) == 0) {
            image_share(pool, &file->durable, entry->index, image_block(&file->seen, entry->index));
            entry->dropped = 0;
        } else {
            sync_sectors(pool, file, entry);
        }
        entry->written = 0;
        entry->punched = 0;
        entry->is_allocated = false;
    }
    sweep_dirty(file, keeps_dropped);
    file->size_is_dirty = false;
    file->low_size = file->seen_size;
}

void file_drop(sim_file *file)
{
    for (uint32_t i = 0; i < file->dirty_count; i++) {
        file->dirty[i].dropped = ALL_SECTORS;
        file->dirty[i].written = 0;
        file->dirty[i].punched = 0;
        file->dirty[i].is_allocated = false;
    }
    file->size_is_dirty = false;
    file->low_size = file->seen_size;
}

static sim_mood draw_mood(uint64_t *random)
{
    static const sim_mood moods[] = {MOOD_MIXED, MOOD_MIXED, MOOD_MIXED, MOOD_MIXED,
                                     MOOD_NEW,   MOOD_NEW,   MOOD_OLD,   MOOD_TORN};

    return moods[world_next_random(random) % 8];
}

typedef enum fate {
    FATE_OLD,
    FATE_NEW,
    FATE_GARBAGE,
} fate;

static fate draw_fate(sim_mood mood, uint64_t *random)
{
    const uint64_t dice = world_next_random(random);

    switch (mood) {
    case MOOD_NEW:
        return FATE_NEW;
    case MOOD_OLD:
        return FATE_OLD;
    case MOOD_TORN:
        if (dice % 8 != 0) {
            return FATE_NEW;
        }
        return dice / 8 % 2 == 0 ? FATE_OLD : FATE_GARBAGE;
    case MOOD_MIXED:
        return (fate)(dice % 3);
    }
    KVARVE_UNREACHABLE();
}

static void put_garbage(uint8_t *block, unsigned sector, uint64_t *random)
{
    uint64_t words[WORLD_SECTOR / sizeof(uint64_t)];

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        words[i] = world_next_random(random);
    }
    memcpy(block + (size_t)sector * WORLD_SECTOR, words, sizeof words);
}

static void settle_sector(sim_pool *pool, sim_file *file, const sim_dirty *entry, unsigned sector,
                          sim_mood mood, uint64_t *random)
{
    const bool is_punched = (entry->punched >> sector & 1) != 0;
    const bool is_written = (entry->written >> sector & 1) != 0;
    const fate punch = is_punched ? draw_fate(mood, random) : FATE_OLD;
    const fate write = is_written ? draw_fate(mood, random) : FATE_OLD;
    uint8_t *durable;

    if (punch == FATE_OLD && write == FATE_OLD) {
        return;
    }
    durable = image_edit(pool, &file->durable, entry->index, true);
    if (punch != FATE_OLD) { /* a hole is zeros or it is not there; there is no garbage in it */
        put_sector(durable, sector, NULL);
    }
    if (write == FATE_NEW) {
        put_sector(durable, sector, sector_of(image_block(&file->seen, entry->index), sector));
    } else if (write == FATE_GARBAGE) {
        put_garbage(durable, sector, random);
    }
}

static void settle_block(sim_pool *pool, sim_file *file, const sim_dirty *entry, sim_mood mood,
                         uint64_t *random)
{
    const uint8_t marked = entry->written | entry->punched;

    if (mood == MOOD_NEW && marked == ALL_SECTORS) {
        image_share(pool, &file->durable, entry->index, image_block(&file->seen, entry->index));
        return;
    }
    for (unsigned sector = 0; marked != 0 && sector < SECTORS; sector++) {
        settle_sector(pool, file, entry, sector, mood, random);
    }
    if (marked == 0 && entry->is_allocated && draw_fate(mood, random) == FATE_NEW) {
        /* Never written, so zeros; only the space that it takes can be told. */
        image_share(pool, &file->durable, entry->index, image_block(&file->seen, entry->index));
    }
}

/* The size after the cut, and with it whether a truncation in between took place. */
static void settle_size(sim_pool *pool, sim_file *file, sim_mood mood, uint64_t *random)
{
    const uint64_t dice = mood == MOOD_MIXED ? world_next_random(random) % 3 : 0;

    if (!file->size_is_dirty || mood == MOOD_OLD || dice == 1) {
        return;
    }
    image_cut(pool, &file->durable, file->low_size);
    file->durable_size = dice == 2 ? file->low_size : file->seen_size;
}

void file_settle(sim_pool *pool, sim_file *file, uint64_t *random)
{
    const sim_mood mood = draw_mood(random);

    settle_size(pool, file, mood, random);
    for (uint32_t i = 0; i < file->dirty_count; i++) {
        settle_block(pool, file, &file->dirty[i], mood, random);
    }
    image_cut(pool, &file->durable, file->durable_size);
    for (uint32_t i = 0; i < file->dirty_count; i++) {
        const uint64_t index = file->dirty[i].index;

        image_share(pool, &file->seen, index, image_block(&file->durable, index));
    }
    image_cut(pool, &file->seen, file->durable_size);
    sweep_dirty(file, keeps_nothing);
    file->seen_size = file->durable_size;
    file->low_size = file->durable_size;
    file->size_is_dirty = false;
}
