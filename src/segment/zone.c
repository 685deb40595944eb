/*
 * zone.c - header zones: which of their blocks are free, and what records stand in them.
 *
 * A run is taken from the lowest block that has room. A file remembers a bound on its longest free
 * run, which a search in vain lowers and a free resets, so that full zones are skipped.
 *
 * Invariants
 *   I1  Block 0 is taken for ever: it describes the file.
 *   I2  A scan looks at every block, also inside a record that it has shown: a run that is used
 *       again by a shorter record leaves the rest of the older one, and whole records may stand
 *       there. Whether one is valid is the caller's to find out.
 *
 * Threads: one at a time. The scan blocks and owns a buffer while it runs.
 */
#include "segment/segment_private.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"
#include "env/io_all.h"

#define BLOCKS_MAX   (BATCH_BYTES_MAX / BATCH_BLOCK) /* of one record */
#define READ_BLOCKS  256u                            /* read at once: 1 MiB */
#define BUFFER_BYTES ((size_t)(BLOCKS_MAX + READ_BLOCKS) * BATCH_BLOCK)

/* Take `blocks` blocks of the file: the first one, or 0 when no run is long enough. */
static uint32_t take_run(segment_file *file, uint32_t blocks)
{
    bitmap_run run = {0, 0};

    if (file->is_leaving || blocks > file->blocks_run_max) {
        return 0;
    }
    while (bitmap_next_run(file->blocks_taken, NULL, run.at + run.count, file->head.header_blocks,
                           &run)) {
        if (run.count >= blocks) {
            bitmap_fill(file->blocks_taken, run.at, blocks, true);
            file->blocks_free -= blocks;
            return run.at;
        }
    }
    file->blocks_run_max = blocks - 1;
    return 0;
}

/* The first file that has room, of those with slots or of those without. */
static segment_file *take_anywhere(segment_set *set, bool has_slots, uint32_t blocks,
                                   uint32_t *out_block)
{
    for (uint32_t i = 0; i < set->file_count; i++) {
        segment_file *file = set->files[i];

        if ((file->head.slot_count > 0) != has_slots) {
            continue;
        }
        *out_block = take_run(file, blocks);
        if (*out_block != 0) {
            return file;
        }
    }
    return NULL;
}

kvarve_status segment_reserve_header(segment_set *set, uint32_t preferred, uint32_t blocks,
                                     header_place *out)
{
    segment_file *file = preferred == 0 ? NULL : segment_find(set, preferred);
    uint32_t block = 0;

    KVARVE_ASSERT(blocks >= 1 && blocks <= BLOCKS_MAX);
    if (file != NULL) {
        block = take_run(file, blocks);
    }
    if (block == 0) { /* Files of headers only come first: zones of others are for their pages. */
        file = take_anywhere(set, false, blocks, &block);
    }
    if (block == 0) {
        file = take_anywhere(set, true, blocks, &block);
    }
    if (block == 0) {
        return KVARVE_BUSY;
    }
    *out = (header_place){.segment = file->head.number, .block = block, .blocks = blocks};
    return KVARVE_OK;
}

bool segment_header_is_valid(const segment_set *set, header_place place)
{
    const segment_file *file = segment_find(set, place.segment);

    return file != NULL && place.block >= 1 && place.blocks >= 1 && place.blocks <= BLOCKS_MAX &&
           (uint64_t)place.block + place.blocks <= file->head.header_blocks;
}

bool segment_take_header(segment_set *set, header_place place)
{
    segment_file *file = segment_find(set, place.segment);
    const uint32_t end = place.block + place.blocks;

    KVARVE_ASSERT(segment_header_is_valid(set, place));
    if (bitmap_next(file->blocks_taken, NULL, 0, place.block, end) != end) {
        return false;
    }
    bitmap_fill(file->blocks_taken, place.block, place.blocks, true);
    file->blocks_free -= place.blocks;
    return true;
}

void segment_free_header(segment_set *set, header_place place)
{
    segment_file *file = segment_find(set, place.segment);
    const uint32_t end = place.block + place.blocks;

    KVARVE_ASSERT(segment_header_is_valid(set, place));
    KVARVE_ASSERT(bitmap_next(file->blocks_taken, NULL, UINT64_MAX, place.block, end) == end);
    bitmap_fill(file->blocks_taken, place.block, place.blocks, false);
    file->blocks_free += place.blocks;
    file->blocks_run_max = file->blocks_free;
}

/* --- scan --- */

/* A window over one file's zone: blocks [first, first + count) are in the buffer. */
typedef struct zone_window {
    const segment_file *file;
    uint8_t *buffer;
    uint32_t first;
    uint32_t count;
    bool is_damaged; /* some block could not be read, and is zero */
} zone_window;

/* Read blocks one by one where they can not be read at once; what can not be read is zero. */
static void read_blocks_apart(kvarve_io *io, zone_window *window, uint32_t block, uint32_t blocks,
                              uint8_t *out)
{
    window->is_damaged = true;
    for (uint32_t i = 0; i < blocks; i++, out += BATCH_BLOCK) {
        const uint64_t offset = (uint64_t)(block + i) * BATCH_BLOCK;

        if (io_read_all(io, window->file->fd, out, BATCH_BLOCK, offset) < 0) {
            memset(out, 0, BATCH_BLOCK);
        }
    }
}

/* Move on so that block `at` is the first one, and fill the window up. */
static void window_move(segment_set *set, zone_window *window, uint32_t at)
{
    kvarve_io *io = set->env->io;
    const uint32_t gone = at - window->first;
    uint8_t *out;
    uint32_t next;
    uint32_t left;
    uint32_t blocks;

    window->first = at;
    window->count -= gone;
    memmove(window->buffer, window->buffer + (size_t)gone * BATCH_BLOCK,
            (size_t)window->count * BATCH_BLOCK);
    out = window->buffer + (size_t)window->count * BATCH_BLOCK;
    next = window->first + window->count;
    left = window->file->head.header_blocks - next;
    blocks = left < READ_BLOCKS ? left : READ_BLOCKS;
    if (io_read_all(io, window->file->fd, out, (size_t)blocks * BATCH_BLOCK,
                    (uint64_t)next * BATCH_BLOCK) < 0) {
        read_blocks_apart(io, window, next, blocks, out);
    }
    set->counters.bytes_read += (uint64_t)blocks * BATCH_BLOCK;
    window->count += blocks;
}

static kvarve_status scan_zone(segment_set *set, const segment_file *file, uint8_t *buffer,
                               segment_record_visit visit, void *context)
{
    const uint32_t end = file->head.header_blocks;
    zone_window window = {.file = file, .buffer = buffer, .first = 1};
    kvarve_status status = KVARVE_OK;

    for (uint32_t block = 1; block < end && status == KVARVE_OK; block++) {
        const uint8_t *at;
        uint32_t size;

        while (window.first + window.count < end &&
               window.first + window.count < block + BLOCKS_MAX) {
            window_move(set, &window, block);
        }
        at = buffer + (size_t)(block - window.first) * BATCH_BLOCK;
        size = (uint32_t)kvarve_round_up(batch_claimed_size(at, BATCH_BLOCK), BATCH_BLOCK);
        if (size > 0 && size / BATCH_BLOCK <= end - block) {
            const header_place place = {
                .segment = file->head.number, .block = block, .blocks = size / BATCH_BLOCK};

            status = visit(context, place, at, size);
        }
    }
    set->counters.damaged_files += window.is_damaged;
    return status;
}

kvarve_status segment_scan(segment_set *set, segment_record_visit visit, void *context,
                           kvarve_error *err)
{
    void *memory = NULL;
    uint8_t *buffer = segment_allocate_aligned(BUFFER_BYTES, &memory);
    kvarve_status status = KVARVE_OK;

    if (buffer == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "memory to scan %s", set->directory);
    }
    for (uint32_t i = 0; i < set->file_count && status == KVARVE_OK; i++) {
        status = scan_zone(set, set->files[i], buffer, visit, context);
    }
    kvarve_release(memory);
    return status;
}
