/* commit_private.h - what commit.c and commit_build.c share. */
#ifndef KVARVE_STORE_COMMIT_PRIVATE_H
#define KVARVE_STORE_COMMIT_PRIVATE_H

#include "store/put_private.h"

#define COMMIT_RECORDS_AIM 32u   /* no more puts are taken once there are so many */
#define COMMIT_RECORDS_MAX 4096u /* more than any put needs */

/* One record under construction: arrays that grow together with what they came from. */
typedef struct new_record {
    batch batch;
    uint8_t (*namespaces)[32];
    store_page **pages;
    store_span **spans;
    store_checkpoint **checkpoints;
    size_t page_room;
    size_t span_room;
    size_t checkpoint_room;
    size_t reference_room;
    size_t cost;
    batch_row *row;
    void *memory; /* of bytes */
    uint8_t *bytes;
    size_t used;
    uint32_t blocks;
    segment_request request;
} new_record;

/* The next numbers to be given. */
typedef struct record_numbers {
    uint64_t sequence;
    uint64_t page;
    uint64_t span;
    uint64_t checkpoint;
} record_numbers;

typedef struct document_job {
    kvarve_job job;
    store_commit *commit;
    int result;
} document_job;

typedef struct reserve_job {
    kvarve_job job;
    store_commit *commit;
} reserve_job;

struct store_commit {
    store_machine *store;
    uint64_t generation;
    kvarve_list puts;
    kvarve_list dead_rows; /* batch_row.link */
    record_numbers before; /* where its numbers begin */
    new_record *records;
    size_t record_room;
    uint32_t record_count;
    uint32_t headers_pending;
    uint32_t *files; /* to sync */
    size_t file_count;
    size_t file_room;
    segment_request sync_request;
    index_batch *batches; /* one a record */
    index_drop *drops;
    size_t drop_count;
    uint64_t *dead_recency;
    size_t dead_recency_count;
    uint64_t *dead_batches;
    index_recency *recency;
    size_t recency_count;
    index_transaction transaction;
    document_job documents;
    reserve_job reserve;
    bool has_used_reserve;
    uint64_t log_before;
    uint8_t refusal; /* why it failed */
};

/* commit_build.c: false: no memory, or too much for one commit. */
bool build_add_put(store_commit *commit, store_put *put);
/* Durable drops that no record carries yet ride in the last one (a record whose commit does not
 * finish must not tell a rebuild of others); without any, in one of their own, where a
 * caller's drop wants that. */
bool build_add_drops(store_commit *commit, bool may_open);
bool build_encode(store_commit *commit, new_record *record);
/* KVARVE_BUSY: a file for headers is being made; KVARVE_IO: that failed. */
kvarve_status build_place(store_commit *commit, new_record *record);

#endif
