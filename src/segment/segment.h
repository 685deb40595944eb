/*
 * segment.h - pages on flash: which slots are taken, and the jobs that write, read, sync and punch
 * them.
 *
 * Files    DIR/SLOTBYTES-NUMBER.seg (docs/format/segment.md): a header zone of 4 KiB blocks, then
 *          slots of one size. A file is preallocated when it is made and its name synced before it
 *          counts.
 * State    Which slots and header blocks are taken is known in RAM only; at open nothing is taken
 *          and the caller takes what its catalog names. This folder knows neither pages' keys nor
 *          who needs them.
 * Hollow   A slot that a trim has punched takes no space and is not free: segment_grow gives it
 *          its space again first. So what files really take is known, and space of one class can
 *          become another's without moving a page.
 * Threads  One caller at a time (the store's lock). I/O runs as jobs of the env's executor; a
 *          request is owned by the caller and belongs to this folder from submit until its `done`,
 *          which is called from executor poll, never from inside a submit.
 * Failure  A failed sync is final: the set turns failed (segment_is_failed) and accepts no more
 *          writes and syncs (KVARVE_IO at once); reads go on.
 */
#ifndef KVARVE_SEGMENT_SEGMENT_H
#define KVARVE_SEGMENT_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "env/env.h"
#include "format/batch.h"
#include "format/segment_file.h"
#include "hash/hash.h"
#include "kvarve/error.h"

typedef struct segment_set segment_set;

typedef struct segment_options {
    store_uuid store;          /* of new files */
    const store_uuid *formers; /* files of these are accepted too; borrowed for the call */
    uint32_t former_count;
    uint64_t file_bytes; /* wanted size of a new file, 1 MiB .. 64 GiB; at least 8 slots whatever it
                            says */
    bool use_direct;     /* try direct I/O; buffered where the probe fails */
    bool is_read_only;   /* make and change nothing */
} segment_options;

/*
 * Open the files in `directory` (made and synced if absent). Blocks: called at open, before the
 * jobs start. A file whose first block is damaged is left alone and counted
 * (segment_counters.damaged_files); its slots are never used.
 */
KVARVE_NODISCARD kvarve_status segment_open(const kvarve_env *env, const char *directory,
                                            const segment_options *options, segment_set **out,
                                            kvarve_error *err);

/* Close all files. No request may be in flight. NULL is a no-op. */
void segment_close(segment_set *set);

/* Visit the description of each usable file (slots, header blocks), by number. */
typedef void (*segment_visit)(void *context, const segment_head *head);
void segment_each(const segment_set *set, segment_visit visit, void *context);

/*
 * Read every batch record in the header zones, in no order (rebuild). Blocks. `visit` gets the raw
 * bytes of a run that starts with the magic and whose claimed size fits; the caller decodes. A zone
 * that cannot be read is counted and skipped.
 */
typedef kvarve_status (*segment_record_visit)(void *context, header_place place, const void *bytes,
                                              size_t size);
KVARVE_NODISCARD kvarve_status segment_scan(segment_set *set, segment_record_visit visit,
                                            void *context, kvarve_error *err);

/* True when the place exists in a usable file and `size` fits the slot. For checking what comes
 * from disk. */
bool segment_place_is_valid(const segment_set *set, page_place place, uint32_t size);
bool segment_header_is_valid(const segment_set *set, header_place place);

/* Bytes of a slot of this place's file; 0: no such file. */
uint32_t segment_slot_bytes_of(const segment_set *set, page_place place);

/* Mark as taken what the catalog names. False when it was taken already. The place is valid. */
bool segment_take(segment_set *set, page_place place);
bool segment_take_header(segment_set *set, header_place place);

/* The slot size for pages of `page_bytes`: rounded up to 4096. */
uint32_t segment_slot_bytes(uint64_t page_bytes);

/*
 * Reserve `count` slots of `slot_bytes`, as few runs of neighbours as can be: KVARVE_OK fills
 * out[count], ordered by file and slot. KVARVE_BUSY: not enough free slots; nothing is reserved;
 * grow first.
 */
KVARVE_NODISCARD kvarve_status segment_reserve(segment_set *set, uint32_t slot_bytes, size_t count,
                                               page_place *out);

/* Reserve a run of header blocks, in file `preferred` (0: any) if it has room. KVARVE_BUSY: grow
 * with slot_bytes 0. */
KVARVE_NODISCARD kvarve_status segment_reserve_header(segment_set *set, uint32_t preferred,
                                                      uint32_t blocks, header_place *out);

/* Give back. No I/O may be in flight on it, and the transaction that freed it is durable: the
 * caller's duty. */
void segment_free(segment_set *set, page_place place);
void segment_free_header(segment_set *set, header_place place);

/* Free slots of this class, over all files; hollow ones are not. */
uint64_t segment_free_slots(const segment_set *set, uint32_t slot_bytes);

/* Slots of this class that have no space on the disk, and that segment_grow would take back. */
uint64_t segment_hollow_slots(const segment_set *set, uint32_t slot_bytes);

/* The wanted size of a new file, from now on; as segment_options.file_bytes. */
void segment_set_file_bytes(segment_set *set, uint64_t file_bytes);

/* --- requests --- */

typedef struct segment_request segment_request;
typedef void (*segment_done)(segment_request *request, void *context);

typedef struct segment_part {
    page_place place;
    void *bytes;   /* 4096-aligned; written or filled up to size rounded up to 4096 */
    uint32_t size; /* valid bytes */
    int result;    /* out: 0 or -errno, of this part; -EBADMSG: other bytes than `digest` names */
    /* Of a read: NULL, or what the valid bytes must have, checked by the job that reads them. */
    const page_digest *digest;
    void *context; /* the caller's; travels with the part when the parts are reordered */
} segment_part;

/* The caller fills what stands above the line, submits, and gets `done` once. */
struct segment_request {
    segment_part *parts; /* borrowed until done; reordered by place */
    size_t part_count;
    segment_done done;
    void *context;
    /* ---- */
    kvarve_status status; /* out: KVARVE_OK, or that of the first part that failed */
    kvarve_error error;   /* out: its text */
    void *private_state;
};

/*
 * Write or read the parts. Neighbouring slots whose bytes fill them go in one call; the work is
 * split into jobs of at most 4 MiB (one slot if larger) that run in the pool at once.
 * KVARVE_NO_MEMORY at once (done is then not called).
 */
KVARVE_NODISCARD kvarve_status segment_write(segment_set *set, segment_request *request,
                                             kvarve_error *err);
KVARVE_NODISCARD kvarve_status segment_read(segment_set *set, segment_request *request,
                                            kvarve_error *err);

/* Write an encoded record (blocks * 4096 bytes, aligned, borrowed until done) to its place.
 * request->parts is unused. */
KVARVE_NODISCARD kvarve_status segment_write_header(segment_set *set, header_place place,
                                                    const void *bytes, segment_request *request,
                                                    kvarve_error *err);

/* Sync each of these files once (in the WRITE lane, side by side). `files` is borrowed for the
 * call. */
KVARVE_NODISCARD kvarve_status segment_sync(segment_set *set, const uint32_t *files, size_t count,
                                            segment_request *request, kvarve_error *err);

/*
 * More free slots of this class, for at most bytes_max bytes of the disk. When there are hollow
 * slots, as many of those as bytes_max allows get their space again, longest runs first, which may
 * be fewer than are wanted: ask again. When there are none, one more file is made (slot_bytes 0:
 * for headers only), preallocated and durable. On done with KVARVE_OK they are free for use;
 * KVARVE_NO_SPACE: the disk or bytes_max is too small. Of a file that failed nothing is left
 * behind; hollow slots that got their space before another failed are free.
 */
KVARVE_NODISCARD kvarve_status segment_grow(segment_set *set, uint32_t slot_bytes,
                                            uint64_t bytes_max, segment_request *request,
                                            kvarve_error *err);

/*
 * Give free space back to the file system: punch holes where slots are free, remove files without a
 * taken slot or header block. *out_bytes counts what went, when done.
 */
KVARVE_NODISCARD kvarve_status segment_trim(segment_set *set, uint64_t *out_bytes,
                                            segment_request *request, kvarve_error *err);

typedef struct segment_counters {
    uint64_t file_count;
    uint64_t file_bytes; /* what all files take on the disk: their sizes without hollow slots */
    uint64_t slot_bytes_taken;
    uint64_t slot_bytes_free;
    uint64_t slot_bytes_hollow;
    uint64_t header_bytes_taken;
    uint64_t payload_bytes_written; /* valid bytes, rounded to 4096, since open */
    uint64_t header_bytes_written;
    uint64_t bytes_read;
    uint64_t sync_count;
    uint64_t damaged_files;
    bool is_direct;
} segment_counters;

void segment_count(const segment_set *set, segment_counters *out);

/* A sync has failed since open: no writes any more. */
bool segment_is_failed(const segment_set *set);

#endif
