/*
 * segment_private.h - the state behind segment.h, and what its files ask of each other.
 *
 *   segment.c     opens and closes; looks up, takes, counts
 *   slots.c       which slots are free: finds runs for a reserve
 *   zone.c        the same for header blocks; scans the zones of a rebuild
 *   operation.c   a request under way: its jobs, its end
 *   transfer.c    requests that write and read
 *   sync.c        requests that sync
 *   grow.c        requests that make a file
 *   refill.c      requests that take hollow slots back, on behalf of grow
 *   trim.c        requests that give space back
 *
 * Threads  All state is the store's, under its lock. `run` of a job, on a thread of the executor,
 *          touches its own job, the set's env and directory, and the descriptor and head of its
 *          file, which do not change while the file has jobs.
 */
#ifndef KVARVE_SEGMENT_SEGMENT_PRIVATE_H
#define KVARVE_SEGMENT_SEGMENT_PRIVATE_H

#include "base/list.h"
#include "segment/bitmap_private.h"
#include "segment/segment.h"

#define SEGMENT_MAGIC       UINT32_C(0x6b765347)
#define SEGMENT_FILE_MODE   0600u
#define SEGMENT_FOLDER_MODE 0700u
#define TEMPORARY_SUFFIX    ".new"
#define HEADER_BLOCKS_LEAST 8u
#define HEADER_FILE_BLOCKS  4097u
#define CHUNK_SLOTS         4096u
#define INTERRUPTIONS_MAX   100

/* The slots of one size, over all files. */
typedef struct slot_class {
    kvarve_link link; /* segment_set.classes */
    uint32_t slot_bytes;
    uint64_t free;             /* slots */
    struct slot_chunk *chunks; /* of all files, by file number and slot */
    uint32_t chunk_count;
    uint32_t chunk_capacity;
    uint32_t chunks_pending; /* room promised to files that are being made */
} slot_class;

typedef struct segment_file {
    segment_head head;
    kvarve_fd fd;
    uint32_t jobs;   /* in flight on it */
    bool is_leaving; /* trim is removing it: no new use of any kind */

    slot_class *class; /* NULL: headers only */
    uint32_t first_chunk;
    uint32_t chunk_count;
    uint32_t slots_free;
    uint32_t slots_busy;   /* nobody's, with space, but a job punches or fills them */
    uint32_t slots_hollow; /* nobody's and without space on the disk */
    uint64_t *taken;       /* bits of slots that are not free: busy and hollow ones too */
    uint64_t *hollow;      /* bits of hollow slots on which no job works */
    uint64_t bytes_told;   /* what the file system said at open that the file takes, while it is
                              not proven that hollow slots take nothing; 0: it is */
    uint32_t punches;      /* jobs of trims on it */
    bool has_punch_failed; /* one of those */

    uint32_t blocks_free;
    uint32_t blocks_run_max; /* no free run of header blocks is longer than this */
    uint64_t *blocks_taken;

    bool is_syncing;
    kvarve_list syncs_waiting; /* sync jobs: at most one sync of a file runs at a time */
    uint64_t words[];          /* the bits */
} segment_file;

/* At most CHUNK_SLOTS neighbouring slots of a file. Reserved runs lie within a chunk, so each
 * chunk's longest run is known without its neighbours. */
typedef struct slot_chunk {
    segment_file *file;
    uint32_t at; /* its first slot, a multiple of CHUNK_SLOTS */
    uint32_t count;
    uint32_t free;
    uint32_t longest; /* run of free slots, unless stale */
    bool is_stale;
} slot_chunk;

struct segment_set {
    uint32_t magic;
    const kvarve_env *env;
    char *directory;
    store_uuid store;
    uint64_t file_bytes;
    bool use_direct; /* still asked for with new files */
    bool is_read_only;
    bool is_failed;
    bool cannot_punch; /* the file system said so */

    segment_file **files; /* by number */
    uint32_t file_count;
    uint32_t file_capacity;
    uint32_t files_pending;
    uint32_t next_number;
    kvarve_list classes;
    size_t operations;         /* requests under way */
    segment_counters counters; /* the part that only grows; the rest is computed */
};

/* --- segment.c --- */

/* "DIRECTORY/SLOTBYTES-NUMBER.seg" and `suffix`. Its length was checked at open. */
void segment_path(const segment_set *set, const segment_head *head, const char *suffix,
                  char out[KVARVE_PATH_MAX]);

/* A usable file by number, or NULL. */
segment_file *segment_find(const segment_set *set, uint32_t number);

/* What the file takes on the disk: never less, and more only until a trim has proven it. */
uint64_t segment_file_bytes(const segment_file *file);

/* A file without descriptor, on no list, all free. NULL: no memory. */
segment_file *segment_file_create(const segment_head *head);

/* Make room for one more file like this and keep it promised; false: no memory. */
bool segment_promise(segment_set *set, segment_file *file);
/* Take the promise back, or use it. */
void segment_break_promise(segment_set *set, segment_file *file);
void segment_insert(segment_set *set, segment_file *file);
/* Take a file out and free it; its descriptor is closed. */
void segment_remove(segment_set *set, segment_file *file);

/* `size` bytes aligned for direct I/O; *out_memory is what to release. NULL: no memory. */
void *segment_allocate_aligned(size_t size, void **out_memory);

static inline uint64_t segment_slot_offset(const segment_head *head, uint32_t slot)
{
    return (uint64_t)head->header_blocks * BATCH_BLOCK + (uint64_t)slot * head->slot_bytes;
}

/* --- slots.c --- */

/* Chunks of a file in its class; the class has room. */
void slots_insert(segment_file *file);
void slots_remove(segment_file *file);
/* Count slots in or out that were found clear or set in `taken`. */
void slots_mark(segment_file *file, uint32_t at, uint32_t count, bool is_taken);

/* --- refill.c --- */

/* There are hollow slots of the class on which no job works. */
bool refill_is_possible(const segment_set *set, uint32_t slot_bytes);
/* Take hollow slots of the class back, longest runs first, as many as bytes_max allows. It is
 * possible, and bytes_max is a slot or more. */
kvarve_status refill_submit(segment_set *set, uint32_t slot_bytes, uint64_t bytes_max,
                            segment_request *request, kvarve_error *err);

/* --- operation.c --- */

/* A request under way. It stands first in one allocation with its jobs. */
typedef struct segment_operation {
    segment_set *set;
    segment_request *request;
    size_t jobs_left;
    /* Called when all jobs are done, to make up request->status; before it is freed. May be NULL.
     */
    void (*conclude)(struct segment_operation *operation);
} segment_operation;

typedef struct segment_job {
    kvarve_job base;
    segment_operation *operation;
    segment_file *file; /* NULL: none is held */
    int result;         /* 0 or -errno, set by run */
} segment_job;

/* Refuse what may not be done: read only, failed. */
kvarve_status segment_check_writable(const segment_set *set, kvarve_error *err);

/* `size` bytes that begin with an operation; NULL: no memory. */
void *operation_create(segment_set *set, segment_request *request, size_t size,
                       void (*conclude)(segment_operation *operation));
/* Set a job up; with a file, the file is held until the job's end. */
void operation_add_job(segment_operation *operation, segment_job *job, segment_file *file,
                       kvarve_lane lane, void (*run)(kvarve_job *job),
                       void (*done)(kvarve_job *job));
void operation_submit(segment_job *job);
/* In `done`: let go of the file; with the last job, end the request. The job is gone then. */
void operation_end_job(segment_job *job);
/* End a request that needs no work, by way of the executor. */
kvarve_status operation_submit_nothing(segment_set *set, segment_request *request,
                                       kvarve_status status, const char *text, kvarve_error *err);
/* Keep the first failure. */
void operation_fail(segment_operation *operation, int result, const char *what,
                    const segment_head *head);

#endif
