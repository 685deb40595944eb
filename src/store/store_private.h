/*
 * store_private.h - what the files of src/store share: the objects of the catalog and who counts
 * them.
 *
 * Objects
 *   space       one namespace: its checkpoints, and its layout once a caller has opened it
 *   page        immutable bytes under a key: on flash, in the arena, or being copied
 *   span        node of a space's prefix tree: the pages of all prefix groups and ranks that end at
 * one token count checkpoint  one boundary: its last span and its own pages batch_row   a living
 * batch record: a row of the index and a header slot tombstone   a dropped checkpoint whose batch
 * still lives
 *
 * Counting
 *   references  of a page: spans and checkpoints that name it; of a span: children and checkpoints.
 * What has references is (or is about to be) named on flash. holds       of a page or span: puts
 * and leases that need it. An object without references and holds is freed. batch_row.live: places
 * of pages, aliases, spans, checkpoints and carried tombstones recorded there. At 0 the row is
 * deleted with the next transaction, and its header slot freed after that.
 *
 * Space on flash is given back through limbo (commit.c): never before the transaction that freed it
 * is durable.
 */
#ifndef KVARVE_STORE_STORE_PRIVATE_H
#define KVARVE_STORE_STORE_PRIVATE_H

#include "arena/arena.h"
#include "base/list.h"
#include "base/table.h"
#include "format/batch.h"
#include "index/index.h"
#include "key/document.h"
#include "key/key.h"
#include "segment/segment.h"
#include "store/store.h"

typedef struct store_space store_space;
typedef struct store_page store_page;
typedef struct store_span store_span;
typedef struct store_checkpoint store_checkpoint;
typedef struct batch_row batch_row;
typedef struct tombstone tombstone;
typedef struct put_page put_page;

struct batch_row {
    kvarve_link link; /* store.batches, store.dead_batches, store.unwiped or store.wiping */
    uint64_t sequence;
    header_place place;
    uint32_t live;
    kvarve_list tombstones; /* of checkpoints that were recorded here */
};

struct tombstone {
    kvarve_link link;         /* of->tombstones */
    kvarve_link pending_link; /* store.tombstones_pending while no record carries it */
    uint64_t checkpoint;
    uint64_t generation; /* transaction that drops it; a record says so only after that */
    batch_row *of;
    batch_row *carrier; /* NULL: none yet */
    bool is_in_commit;
};

struct store_space {
    kvarve_table_link link; /* store.spaces by digest */
    store_machine *store;
    uint8_t digest[32];
    namespace_key name;
    char *document;      /* as kept beside the store; NULL: not known */
    uint8_t meaning[32]; /* digest of the document without numerics, with the salt's digest */
    uint8_t salt_digest[32];
    bool has_layout;
    bool is_exact;
    bool is_document_kept; /* the file exists durably */
    bool is_all_prefix;
    uint32_t rank_count;
    uint32_t group_count;
    kvarve_group groups[KVARVE_GROUPS_MAX];
    uint64_t derived_span; /* all_prefix: every multiple of it is a page end of every group; 0: too
                              large */
    uint32_t handles;
    uint64_t checkpoint_count;
};

struct store_namespace {
    store_machine *store;
    uint32_t references;    /* the caller's, puts and leases */
    store_space *spaces[2]; /* [1]: the companion with the optional groups, or NULL */
    uint32_t group_count;
    kvarve_group groups[KVARVE_GROUPS_MAX];  /* as the caller numbers them */
    uint8_t space_of[KVARVE_GROUPS_MAX];     /* caller's group -> spaces[] */
    uint8_t local_of[KVARVE_GROUPS_MAX];     /* caller's group -> group of that space */
    uint8_t public_of[2][KVARVE_GROUPS_MAX]; /* and back */
};

typedef enum page_state {
    PAGE_COPYING, /* owner's ranks fill its slot */
    PAGE_HASHING, /* filled; its digest is being taken */
    PAGE_SEALED,  /* digest known */
} page_state;

typedef enum page_flash {
    FLASH_NONE, /* no bytes there (its place may be reserved) */
    FLASH_WRITING,
    FLASH_WRITTEN, /* a commit that syncs its file makes it count */
} page_flash;

struct store_page {
    kvarve_table_link link; /* store.pages by key and rank */
    store_space *space;
    page_key key;
    page_digest digest;
    page_place place; /* segment 0: none */
    uint32_t size;
    uint32_t tokens;
    uint16_t rank; /* or RANK_ALL */
    uint16_t part;
    uint8_t group; /* local */
    uint8_t state; /* page_state */
    uint8_t flash; /* page_flash */
    bool is_partial;
    bool has_digest;
    bool is_verified; /* the arena's bytes were checked, or digested there */
    bool is_damaged;
    bool is_loading;        /* a read into its slot is in flight */
    bool is_place_recorded; /* some record names its place: it is free only after a transaction */
    uint64_t id;            /* in its newest record; 0: none */
    batch_row *batch;       /* that record's batch; NULL: a commit has to record it */
    batch_row *pending_row; /* of a commit in flight */
    batch_row *aliases[2];  /* older records of the same page that references may name */
    uint32_t references;
    uint32_t holds;
    uint32_t io_count;    /* reads, writes and hashes in flight on its slot or place */
    arena_slot slot;      /* ARENA_NONE: not in RAM */
    kvarve_link lru;      /* store.resident while it may be evicted from RAM */
    store_put *owner;     /* PAGE_COPYING, PAGE_HASHING: whose ranks copy it */
    kvarve_list watchers; /* put_page.watch, oldest first */
    kvarve_list loaders;  /* lease_page.watch: leases that wait for its read */
};

struct store_span {
    kvarve_table_link link; /* store.spans by space and first page key */
    store_space *space;
    store_span *parent;
    uint64_t id;
    batch_row *batch;       /* NULL: a commit has to record it */
    batch_row *pending_row; /* of a commit in flight */
    uint32_t tokens;
    uint32_t references;
    uint32_t holds;
    uint32_t depth; /* spans below it: 1 for a root */
    uint64_t bytes; /* of its pages and all below */
    uint32_t page_count;
    store_page *pages[];
};

struct store_checkpoint {
    kvarve_table_link id_link;     /* store.by_id */
    kvarve_table_link digest_link; /* store.by_digest: space and token digest */
    kvarve_link bucket_link;       /* chunk_bucket.checkpoints */
    kvarve_link lru;               /* store.recency: least recently used first */
    store_space *space;
    struct chunk_bucket *bucket;
    page_key id;
    uint8_t token_digest[32];
    uint64_t tail_hash;
    uint64_t number;
    batch_row *batch; /* NULL: not durable */
    store_span *span;
    uint64_t parent;             /* number, 0: none */
    store_checkpoint *companion; /* both name each other */
    int64_t created_s;
    uint64_t used; /* store.use_clock at its last use */
    uint32_t tokens;
    uint32_t draft_tokens;
    uint32_t leases;
    uint8_t kind;
    bool is_companion; /* the draft half */
    bool is_recency_dirty;
    bool is_queued; /* its put waits for a commit: not to be dropped */
    uint32_t page_count;
    store_page *pages[];
};

/* All checkpoints of a space whose last chunk starts after the same tokens. */
typedef struct chunk_bucket {
    kvarve_table_link link; /* store.buckets by space and chain digest */
    store_space *space;
    uint64_t chain; /* first 8 bytes of the chain digest before the chunk */
    kvarve_list checkpoints;
    uint32_t count;
    uint32_t *
        filter; /* fingerprints of (length, tail hash), open addressing; NULL while there are few */
    uint32_t filter_size; /* a power of two */
    uint32_t filter_used;
    uint64_t
        lengths[64]; /* bit n: some checkpoint had n + 1 tokens in this chunk; may say too much */
} chunk_bucket;

/* --- puts --- */

struct put_page {
    store_page *page;
    store_put *put;
    kvarve_link watch; /* page.watchers while the page is not sealed and written */
    uint64_t position;
    uint64_t first_token;
    uint32_t tokens; /* in this page */
    uint32_t end;    /* boundary it ends at */
    uint32_t copier; /* rank that copies it */
    uint8_t space_index;
    bool is_span;   /* belongs to the tree; else the checkpoint's own */
    bool is_sealed; /* counted as such by its put */
    bool is_written;
    bool is_to_repair; /* its page is damaged, and is claimed when no I/O is in flight on it */
    bool is_new_room;  /* slot and place were reserved in this attempt */
    bool is_offered;   /* COPY: its rank was told its address, or its bytes were copied: an ack can
                          mean it */
    bool is_exposed;   /* its rank was told its slot's address, and may be writing there */
};

typedef struct put_part {
    store_space *space;           /* NULL: not part of this put */
    store_span *chain;            /* longest stored span, held; NULL: none */
    store_checkpoint *checkpoint; /* published by this put, or found PRESENT; held by is_queued */
    bool is_present;
    store_checkpoint *held; /* the present one, leased until the put ends */
} put_part;

typedef struct orphan_slot {
    kvarve_link link;
    arena_slot slot;
    uint32_t copier; /* the rank that may write into it */
    bool is_exposed; /* until that rank says so, or the caller lets go of the put */
} orphan_slot;

typedef struct rank_state {
    uint32_t unsealed; /* pages it copies that are not sealed */
    bool is_acked;
    bool is_told; /* SOURCE_RELEASED was sent */
} rank_state;

struct store_put {
    kvarve_link link;  /* store.puts, oldest first */
    kvarve_link queue; /* store.waiting_room, store.commit_queue or a commit's list */
    store_machine *store;
    store_namespace *name;
    uint64_t number; /* age: lower is older */
    uint64_t cookie;
    uint64_t deadline_ns;
    uint8_t state; /* kvarve_put_state */
    uint8_t refusal;
    bool is_open;      /* an open put that was not closed yet */
    bool is_released;  /* the caller has let go */
    bool has_told_end; /* DURABLE or ABORTED was sent */
    bool drops_on_wait;
    uint8_t kind;
    uint32_t acked_count;
    uint32_t copies; /* copies outside the lock that run now */
    uint64_t tokens; /* boundary; for an open put what is staged so far */
    uint64_t draft_tokens;
    uint8_t token_digest[32];
    uint8_t chain_digest[32]; /* before the boundary's chunk */
    uint64_t tail_hash;
    bool has_parent;
    page_key parent_id;
    put_part parts[2];
    put_page **pages;
    size_t page_count;
    size_t page_room;
    size_t unsealed;
    size_t unwritten;
    size_t repairs; /* put_page.is_to_repair */
    rank_state *ranks;
    uint32_t walking;            /* a loop over pages runs: an abort lets go of them afterwards */
    store_checkpoint *awaited;   /* an equal one in flight: PRESENT when that is durable; leased */
    uint64_t *sizes;             /* of variable groups: [rank * group_count + group], or NULL */
    kvarve_page_digest *digests; /* exact: sorted by rank, group, position */
    size_t digest_count;
    kvarve_list orphans; /* orphan_slot: given back when no copy runs */
    bool is_in_commit;
    bool has_id;
    page_key id;   /* of the checkpoint, once it is published or found */
    size_t cursor; /* where the last page was looked up */
};

/* --- the store --- */

typedef struct store_commit store_commit;
typedef struct verify_run verify_run;

typedef struct limbo_place {
    page_place place;
    uint64_t generation; /* transaction that must be durable first */
} limbo_place;

typedef struct limbo_header {
    header_place place;
    uint64_t generation;
} limbo_header;

struct store_machine {
    kvarve_env env;
    store_sink sink;
    kvarve_store_options options;
    char directory[KVARVE_PATH_MAX];
    store_uuid uuid;
    kvarve_fd lock_fd;
    bool is_read_only;
    bool is_failed;
    bool is_shutting_down;
    bool is_opening; /* rebuild: pages are being checked */

    segment_set *segments;
    kvarve_index *index;
    kvarve_arena *arena;

    kvarve_table spaces;
    kvarve_table pages;
    kvarve_table spans;
    kvarve_table buckets;
    kvarve_table by_id;
    kvarve_table by_digest;
    kvarve_list recency;  /* checkpoint.lru */
    kvarve_list resident; /* page.lru */
    kvarve_list batches;
    kvarve_list dead_batches;
    kvarve_list unwiped; /* batch_row.link: records that are to be overwritten */
    kvarve_list wiping;  /* that are being */
    kvarve_list tombstones_pending;
    uint64_t damaged_pages;
    uint64_t soonest_deadline_ns; /* no put or load has an earlier one */
    bool has_repaired;            /* a put wrote a damaged page again, or is about to */

    uint32_t record_room; /* bytes of one record; tests make it small */
    uint64_t next_sequence;
    uint64_t next_page;
    uint64_t next_span;
    uint64_t next_commit_checkpoint; /* numbers are given when a record is built */
    uint64_t next_put;
    uint64_t epoch; /* epoch.c: numbers of this life begin there */
    uint32_t epoch_slot;
    bool is_epoch_kept; /* durable */
    uint64_t use_clock;

    kvarve_list puts;
    kvarve_list unflushed; /* page.lru: sealed pages that are to be written */
    uint64_t unflushed_bytes;
    bool is_giving_room;
    size_t hashing;           /* digest jobs in flight */
    size_t writing;           /* requests of put_flush in flight */
    kvarve_list waiting_room; /* puts that wait for space, oldest first */
    kvarve_list commit_queue; /* puts whose pages are written */
    kvarve_list leases;
    size_t put_count;
    size_t lease_count;

    store_commit *commit;     /* the one in flight, or NULL */
    uint64_t generation;      /* of the next transaction */
    uint64_t generation_done; /* all up to this one are durable */
    limbo_place *limbo;
    size_t limbo_count;
    size_t limbo_room;
    limbo_header *limbo_headers;
    size_t limbo_header_count;
    size_t limbo_header_room;
    index_drop *drops; /* for the next transaction */
    size_t drop_count;
    size_t drop_room;
    uint64_t *dead_recency;
    size_t dead_recency_count;
    size_t dead_recency_room;
    uint64_t recency_written_ns;
    size_t recency_dirty;
    uint64_t recency_log_mark;

    bool is_growing; /* a segment file is being made */
    bool
        is_growth_blocked; /* the disk had no room: evict until something was freed; or it failed */
    kvarve_status growth_status; /* of the growth that did not work: NO_SPACE, or it failed */
    uint64_t growth_retry_ns;
    bool is_over_cap; /* at open more was stored than the cap says, and still is */
    uint64_t shrink_retry_ns;
    uint64_t shrunk_from;     /* bytes on flash before the last eviction for that; 0: none yet */
    bool has_trimmed_in_vain; /* nothing was dropped since the last trim */
    bool wants_drop_record;   /* a caller's drop is to stand in a record */
    bool wants_transaction;   /* drops should become durable without a put */
    bool wants_commit;        /* commit_start was called, or a commit has ended */
    bool is_starting_commit;  /* commit_start runs, and will look at wants_commit again */
    bool is_commit_blocked;   /* the last transaction had no room: what was evicted is not free */
    uint64_t commit_retry_ns;
    segment_request grow_request;
    bool has_reserve; /* the reserve file stands */
    bool is_rebuilt;  /* the new index is complete and checked; its mark is to go */
    kvarve_job rebuild_job;

    segment_request trim_request;
    bool is_trimming;
    uint64_t trimmed_bytes;
    kvarve_status trim_status;
    verify_run *verify;

    uint64_t read_bytes; /* for expected times: bytes and time of finished loads */
    uint64_t read_ns;
    uint64_t counted_index_bytes;
    kvarve_statistics statistics;
    uint64_t *tail_scratch; /* 4097 rolling hashes, for find */
};

/* store.c */
uint64_t store_now(const store_machine *store);
void store_emit(store_machine *store, uint32_t kind, uint64_t cookie, uint32_t rank,
                kvarve_status status, uint32_t reason);
void store_fail(store_machine *store);
uint64_t deadline_after(store_machine *store, uint32_t timeout_ms);

/* catalog.c: objects and their counts. Nothing here submits work. */
kvarve_status catalog_init(store_machine *store, kvarve_error *err);
void catalog_deinit(store_machine *store);
store_space *catalog_space(store_machine *store,
                           const uint8_t digest[32]); /* found or made; NULL: no memory */
store_space *catalog_find_space(const store_machine *store, const uint8_t digest[32]);
store_page *catalog_find_page(const store_space *space, const page_key *key, uint16_t rank,
                              const page_digest *exact);
/* Fetch what looking it up is going to touch: far ahead, and once more when it is near. */
void catalog_prefetch_page(const store_machine *store, const page_key *key, uint16_t rank,
                           bool is_near);
store_page *
catalog_add_page(store_space *space, const page_key *key,
                 uint16_t rank); /* state and rest are the caller's to set; NULL: no memory */
store_span *
catalog_find_span(const store_space *space, const page_key *first_key,
                  const store_span *last); /* newest first; last: the one before, or NULL */
/* Make a span of held or referenced pages under `parent`. NULL: no memory. */
store_span *catalog_add_span(store_space *space, store_span *parent, uint32_t tokens,
                             store_page *const *pages, uint32_t count);
/* Make a checkpoint and enter it in every table. NULL: no memory. */
typedef struct checkpoint_facts {
    store_space *space;
    page_key id;
    uint8_t token_digest[32];
    uint64_t chain; /* first 8 bytes of the chain digest before its chunk */
    uint64_t tail_hash;
    uint64_t number; /* 0: the next one */
    store_span *span;
    uint64_t parent;
    int64_t created_s;
    uint32_t tokens;
    uint32_t draft_tokens;
    uint8_t kind;
    store_page *const *pages;
    uint32_t page_count;
} checkpoint_facts;
store_checkpoint *catalog_add_checkpoint(store_machine *store, const checkpoint_facts *facts);
void catalog_prefetch_checkpoint(const store_space *space, const uint8_t id[32],
                                 const uint8_t token_digest[32]);
store_checkpoint *catalog_first_at(const store_space *space,
                                   const uint8_t token_digest[32]); /* newest first */
store_checkpoint *catalog_next_at(const store_checkpoint *at);
store_checkpoint *catalog_by_id(const store_machine *store, const uint8_t id[32]);
chunk_bucket *catalog_bucket(const store_space *space, uint64_t chain);
/* Could a checkpoint of this length within its chunk (1 .. 4096) and tail hash be in the bucket?
 * Never a false no. */
bool bucket_may_hold(const chunk_bucket *bucket, uint32_t length, uint64_t tail_hash);
void catalog_touch(store_checkpoint *checkpoint);

void page_hold(store_page *page);
void page_unhold(store_page *page); /* may free it */
void span_hold(store_span *span);
void span_unhold(store_span *span);
void page_mark_damaged(store_page *page);
void page_clear_damaged(store_page *page);
bool checkpoint_is_damaged(const store_checkpoint *checkpoint, uint32_t *out_group);
bool span_is_damaged(const store_span *span, uint32_t *out_group);
uint64_t checkpoint_bytes(const store_checkpoint *checkpoint);

/* Take a checkpoint and its companion out of every table; what nothing else needs goes, its places
 * into limbo. */
void catalog_drop(store_machine *store, store_checkpoint *checkpoint);

/* One lease less. The last one takes a checkpoint along whose put was taken back meanwhile. */
void checkpoint_unlease(store_machine *store, store_checkpoint *checkpoint);

/* A record of this object stands in `row` from now on (NULL: in none); counts are moved. */
void page_set_batch(store_page *page, batch_row *row);
void span_set_batch(store_span *span, batch_row *row);
void checkpoint_set_batch(store_checkpoint *checkpoint, batch_row *row);
/* batches.c */
/* Room for one more in the array of items of `size` that the pointer at `array_pointer` points to.
 * False: no memory. */
bool catalog_grow(void *array_pointer, size_t *room, size_t count, size_t size);
batch_row *catalog_add_batch(store_machine *store, uint64_t sequence, header_place place);
void batch_release(store_machine *store, batch_row *row); /* one live item less */
tombstone *catalog_add_tombstone(store_machine *store, uint64_t checkpoint, batch_row *of);
void tombstone_set_carrier(tombstone *grave, batch_row *carrier);
/* Its drop is durable in the index, so that a record may say it. */
bool tombstone_is_due(const store_machine *store, const tombstone *grave);

/* Put a free place aside until the next transaction is durable (at once when it was never
 * recorded). */
void limbo_add_place(store_machine *store, page_place place, bool was_recorded);
void limbo_add_header(store_machine *store, header_place place);
void limbo_settle(store_machine *store);

/* load.c: records -> catalog */
typedef struct catalog_loader catalog_loader;
catalog_loader *loader_create(store_machine *store);
void loader_destroy(catalog_loader *loader);
/* A hint: tables for records of so many bytes are made at once, not doubled on the way. */
void loader_expect(catalog_loader *loader, uint64_t bytes);
kvarve_status loader_add(catalog_loader *loader, const batch *from, kvarve_error *err);
kvarve_status loader_drop(catalog_loader *loader, uint64_t checkpoint);
void loader_recency(catalog_loader *loader, uint64_t checkpoint, uint64_t used);
/* Every batch was added: drop what is dropped, incomplete or unreferenced; take places; order
 * recency. */
kvarve_status loader_finish(catalog_loader *loader, kvarve_error *err);

/* recover.c */
kvarve_status recover_open(store_machine *store, kvarve_error *err);
void recover_close(store_machine *store);

/* epoch.c: numbers that are later than those of any record before. */
kvarve_status epoch_begin(store_machine *store, kvarve_error *err);
int epoch_keep(const store_machine *store); /* blocks; 0 or -errno */
/* The lock file has content that we never wrote. */
bool epoch_is_foreign(const store_machine *store);

/* rebuild_mark.c: a rebuild that was cut short begins anew. */
kvarve_status rebuild_mark_find(store_machine *store,
                                kvarve_error *err); /* sets the flag REBUILD */
kvarve_status rebuild_mark_set(store_machine *store, kvarve_error *err);
void rebuild_mark_settle(store_machine *store); /* its end, when its drops are durable */

/* space.c */
void space_release(store_space *space);

/* put.c */
void put_settle_all(store_machine *store); /* deadlines */
void put_page_changed(store_page *page);   /* sealed, written or lost: tell its watchers */
void put_give_room(store_machine *store);  /* waiting puts try again */
void put_became_durable(store_put *put);
void put_fail_commit(store_put *put, uint32_t refusal);
void put_settle_awaited(
    store_machine *store); /* after a commit: puts that wait for an equal checkpoint */

/* put_repair.c: damaged pages that no read holds any more are claimed; true: some were, and want
 * room. */
bool put_settle_repairs(store_machine *store);

/* find.c */
store_checkpoint *find_longest(const store_space *space, const kvarve_prefix *prefix, uint64_t max);

/* room.c: arena and flash space, eviction */
typedef enum room_answer {
    ROOM_YES,
    ROOM_WAIT,
    ROOM_NEVER,
    ROOM_FAILED /* growing failed, and not for want of room: nothing is evicted for it */
} room_answer;
bool room_has_failed(
    const store_machine *store);           /* growing has, lately, but not for want of room */
bool room_evict_ram(store_machine *store); /* one page out of the arena; false: nothing to evict */
void room_drop_resident(store_page *page); /* out of the arena, if nobody needs it there */
void room_page_resident(store_page *page); /* its evictability may have changed */
void page_drop_slot(store_page *page);
room_answer room_on_flash(store_machine *store, uint32_t slot_bytes, size_t count, page_place *out);
/* Drop checkpoints until a record's header blocks are to be freed by the next transaction; false:
 * none may go. */
bool room_evict_record(store_machine *store);
bool room_could_hold(const store_machine *store, uint64_t bytes); /* ever, of one put's pages */
/* Submit more slots, or with slot_bytes 0 a file of headers that has a run of `count` blocks;
 * false: no room. */
bool room_grow(store_machine *store, uint32_t slot_bytes, size_t count);
bool room_trim(store_machine *store); /* submit; false: no memory */
void room_limit_checkpoints(store_machine *store);
/* Opened with a smaller cap than before: one step on the way down to it. */
void room_shrink(store_machine *store);
uint64_t room_flash_used(const store_machine *store);
/* The size of new segment files; some may be half as large. Each costs a descriptor, so 256 of
 * them fill any cap; and a cap is shared by a few slot sizes, so one has at most a sixteenth. */
uint64_t room_file_bytes(uint64_t wanted, uint64_t flash_bytes_max);
uint64_t room_log_bytes_max(const store_machine *store); /* cap of the index's log */

/* wipe.c: the rows of store.unwiped have left the index durably: overwrite their records, then free
 * their blocks and them. */
void wipe_start(store_machine *store);
bool wipe_is_due(const store_machine *store); /* some of them are still to be, or being */

/* commit.c */
void commit_start(store_machine *store); /* if there is work and none runs */
bool commit_is_idle(const store_machine *store);

/* lease.c */
void lease_page_loaded(store_page *page, bool is_good);
/* Deadlines, and loads that may go on. True: reads could not be submitted, and left room to those
 * who wait for it. */
bool lease_settle_all(store_machine *store);
uint64_t lease_next_deadline(const store_machine *store);

/* verify.c */
void verify_poll(store_machine *store);
void verify_abandon(store_machine *store); /* at close */

#endif
