/*
 * store.h - open and close a store; its events.
 *
 * Calling sequence
 *     kvarve_open -> kvarve_namespace_open (layout.h) -> puts, finds, leases (checkpoint.h) ->
 * kvarve_close
 *
 * Threads    A kvarve_store may be used by many threads at once. Calls that say "blocks" wait at
 * most for the time that they are given; every other call returns without waiting for a disk.
 * Ownership  Out parameters are untouched unless the call returns KVARVE_OK. What is passed in is
 * borrowed for the length of the call. Namespaces, puts and leases are released before
 * kvarve_close; for one that is not, see there. Errors     Each call lists the statuses a caller is
 * expected to act on. Any call may also return KVARVE_INVALID (also in a forked child: handles
 * belong to the process that opened them), KVARVE_NO_MEMORY, KVARVE_IO, and KVARVE_UNAVAILABLE
 * after a failure inside kvarve: the engine then goes on as if nothing were stored (error.h).
 * Version    The ABI is at version 0: it may still change between releases. kvarve_abi_version
 * tells.
 */
#ifndef KVARVE_STORE_H
#define KVARVE_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "kvarve/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVARVE_ABI_VERSION 0

/* The KVARVE_ABI_VERSION the library was built with. */
KVARVE_API uint32_t kvarve_abi_version(void);

/* An open store. Opaque. */
typedef struct kvarve_store kvarve_store;

/*
 * Options grow at the end; struct_size tells the library which fields the caller was compiled with.
 * Start from KVARVE_STORE_OPTIONS_INIT. In every size 0 means the default.
 */
typedef struct kvarve_store_options {
    size_t struct_size;
    uint64_t
        arena_bytes; /* RAM for pages, 1 MiB or more; default 256 MiB. Really allocated at open. */
    uint64_t flash_bytes_max; /* cap of segments, index and log; default a tenth of the disk. A
                                 tenth of the disk stays free. */
    uint64_t segment_bytes; /* wanted size of one segment file, 1 MiB .. 64 GiB; default 64 MiB. By
                               the cap and for large pages it differs: docs/operations.md */
    uint64_t checkpoints_max; /* default 4,194,304 */
    uint32_t pool_threads;    /* threads for disk and copies, 1 .. 64; default 4 */
    uint32_t wait_ms; /* how long to wait for a store that another process has open; default 0 */
    uint32_t io_timeout_ms; /* deadline of one load or put without one of its own; default 30,000 */
    uint32_t flags;         /* KVARVE_OPEN_... */
} kvarve_store_options;

#define KVARVE_OPEN_EXISTING 1u /* KVARVE_MISS when there is no store, instead of making one */
#define KVARVE_OPEN_READ_ONLY                                                                      \
    2u /* change nothing: puts are refused, recency is not kept; implies EXISTING */
#define KVARVE_OPEN_REBUILD                                                                        \
    4u /* throw the index away and make it anew from the segments; implies EXISTING */
#define KVARVE_OPEN_BUFFERED 8u /* do not try direct I/O */

#define KVARVE_STORE_OPTIONS_INIT {.struct_size = sizeof(kvarve_store_options)}

/*
 * Open the store in the folder `endpoint`, made if absent (mode 0700); its parent must exist. A
 * folder that holds other people's files only becomes a store beside them (their names must not be
 * ours: store, lock, reserve, rebuild, index.db*, segments, namespaces); they are not touched. One
 * that holds a part of a store, but not its file `store`, is refused. The store runs inside this
 * process, on one thread of its own and options->pool_threads more, all signals blocked.
 *
 * "unix:PATH" is the socket of a daemon, which has the store. Sizes, flags but EXISTING, and the
 * folder are settled where the daemon is started; wait_ms waits for one to listen. The process has
 * pool_threads to copy with. KVARVE_UNAVAILABLE: none listens there; later also: it is gone, and
 * so are puts and leases: release them and close.
 *
 * Blocks    until the index is read: about 2 us a checkpoint.
 * options   NULL: all defaults.
 *
 * KVARVE_BUSY: another process has it open (err says which pid); KVARVE_NO_MEMORY: the arena does
 * not fit (err has the numbers); KVARVE_NO_SPACE; KVARVE_CORRUPT: index or store file is damaged or
 * lost (`kvarve rebuild`; err says when there is nothing to rebuild from); KVARVE_UNSUPPORTED:
 * written by a newer version; KVARVE_INVALID: the path is a file, or an option is out of range.
 */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_open(const char *endpoint,
                                                      const kvarve_store_options *options,
                                                      kvarve_store **out_store, kvarve_error *err);

/*
 * Finish or abort what is in flight, write recency, release the store. Blocks for at most the io
 * timeout. NULL is a no-op. In a forked child it only forgets the handle.
 *
 * Namespaces, puts and leases that are left stay valid for their release alone, which does what it
 * always does; every other call on them, or on the store, is KVARVE_UNAVAILABLE. Puts that were not
 * READY are aborted, READY ones become durable, loads fail. Addresses that a plan or
 * kvarve_lease_pages gave stay mapped until their put or lease is released. The release of the last
 * one gives memory, threads and the folder back; until then the folder is in use by this process.
 */
KVARVE_API void kvarve_close(kvarve_store *store);

/* --- events: the completions of submitted calls --- */

typedef enum kvarve_event_kind {
    KVARVE_EVENT_NONE = 0,
    KVARVE_EVENT_COPY_REQUESTED =
        1, /* put: a WAIT page of `rank` became COPY: ask for the plan again */
    KVARVE_EVENT_SOURCE_RELEASED = 2, /* put: `rank`'s sources may be reused */
    KVARVE_EVENT_READY = 3,           /* put: the checkpoint is found from now on */
    KVARVE_EVENT_DURABLE = 4,         /* put: it survives loss of power; the put is over */
    KVARVE_EVENT_ABORTED = 5,         /* put: `reason` (kvarve_refusal); the put is over */
    KVARVE_EVENT_LOADED = 6,          /* lease: every page is in RAM */
    KVARVE_EVENT_LOAD_FAILED = 7, /* lease: `reason` (kvarve_miss_reason); nothing was handed out */
    KVARVE_EVENT_COPIED = 8,      /* lease: kvarve_lease_copy of `rank` is done */
    KVARVE_EVENT_STAGED = 9,      /* put: room was found, the plan can be asked for */
} kvarve_event_kind;

typedef struct kvarve_event {
    uint32_t kind;   /* kvarve_event_kind */
    uint32_t rank;   /* where the kind says so */
    uint32_t status; /* kvarve_status */
    uint32_t reason; /* where the kind says so */
    uint64_t cookie; /* of the put or lease */
} kvarve_event;

/* A descriptor that is readable while there are events, for poll and epoll. Owned by the store. -1
 * in a forked child. */
KVARVE_API int kvarve_event_fd(const kvarve_store *store);

/*
 * The next event, oldest first; KVARVE_MISS when there is none now; KVARVE_UNAVAILABLE: the store
 * failed, and no more will come. Each put or lease that was
 * given a cookie other than 0 reports here, and ends with exactly one of DURABLE, ABORTED (puts),
 * LOADED, LOAD_FAILED (each load).
 */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_next_event(kvarve_store *store,
                                                            kvarve_event *out_event);

#ifdef __cplusplus
}
#endif

#endif
