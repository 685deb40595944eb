/*
 * admin.h - look into a store and take care of it: statistics, listing, verify, drop, trim,
 * identity documents.
 *
 * Threads, ownership, errors: as store.h.
 */
#ifndef KVARVE_ADMIN_H
#define KVARVE_ADMIN_H

#include <stddef.h>
#include <stdint.h>

#include "kvarve/checkpoint.h"
#include "kvarve/error.h"
#include "kvarve/store.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One row per statistic: field, unit, sentence. Append only: the order is part of the ABI. */
#define KVARVE_STATISTIC_TABLE(ROW)                                                                \
    ROW(checkpoints, "count", "Checkpoints that can be found.")                                    \
    ROW(spans, "count", "Nodes of the prefix tree.")                                               \
    ROW(pages, "count", "Pages known.")                                                            \
    ROW(pages_damaged, "count", "Pages marked damaged until a put writes them again.")             \
    ROW(namespaces, "count", "Namespaces with checkpoints or open handles.")                       \
    ROW(batches, "count", "Living batch records.")                                                 \
    ROW(puts, "count", "Puts begun since open.")                                                   \
    ROW(puts_present, "count", "Puts of known content.")                                           \
    ROW(puts_durable, "count", "Puts made durable.")                                               \
    ROW(puts_aborted, "count", "Puts aborted or refused.")                                         \
    ROW(puts_open, "count", "Puts in flight now.")                                                 \
    ROW(leases_open, "count", "Leases held now.")                                                  \
    ROW(finds, "count", "Finds since open.")                                                       \
    ROW(hits, "count", "Finds that found a boundary.")                                             \
    ROW(evictions, "count", "Checkpoints dropped for room.")                                       \
    ROW(exact_variants, "count",                                                                   \
        "Pages stored under tokens that had another page already (exact namespaces).")             \
    ROW(payload_bytes_written, "bytes",                                                            \
        "Page bytes written to segments since open, rounded to 4096 a page.")                      \
    ROW(header_bytes_written, "bytes", "Batch record bytes written to segments since open.")       \
    ROW(index_log_bytes_written, "bytes", "Bytes written to the index's log since open.")          \
    ROW(index_database_bytes_written, "bytes",                                                     \
        "Bytes written to the index's database file since open.")                                  \
    ROW(recency_commits, "count", "Index transactions that held recency alone.")                   \
    ROW(recency_bytes_written, "bytes",                                                            \
        "Index bytes those transactions wrote, counted in the log's bytes too.")                   \
    ROW(bytes_read, "bytes", "Page bytes read from segments since open.")                          \
    ROW(syncs, "count", "Segment file syncs since open.")                                          \
    ROW(segment_files, "count", "Segment files.")                                                  \
    ROW(segment_bytes, "bytes", "What the segment files take on disk.")                            \
    ROW(payload_bytes_taken, "bytes", "Slots that hold a page.")                                   \
    ROW(index_database_bytes, "bytes", "Size of the index's database file.")                       \
    ROW(index_log_bytes, "bytes", "Size of the index's log.")                                      \
    ROW(flash_bytes_max, "bytes", "The cap.")                                                      \
    ROW(arena_bytes, "bytes", "Size of the arena.")                                                \
    ROW(arena_bytes_populated, "bytes", "Of it really allocated by now.")                          \
    ROW(arena_bytes_used, "bytes", "Of it in use.")                                                \
    ROW(arena_is_huge, "flag", "1: the arena has huge pages.")                                     \
    ROW(io_is_direct, "flag", "1: segments are read and written past the page cache.")             \
    ROW(is_failed, "flag", "1: a sync or commit failed; writes are refused.")                      \
    ROW(damaged_files, "count", "Segment files left alone because their first block is damaged.")

typedef struct kvarve_statistics {
    size_t struct_size; /* in: sizeof(kvarve_statistics) of the caller */
#define KVARVE_STATISTIC_FIELD(field, unit, text) uint64_t field;
    KVARVE_STATISTIC_TABLE(KVARVE_STATISTIC_FIELD)
#undef KVARVE_STATISTIC_FIELD
    uint64_t misses[32];   /* finds and loads by kvarve_miss_reason */
    uint64_t refusals[32]; /* puts by kvarve_refusal */
} kvarve_statistics;

#define KVARVE_STATISTICS_INIT {.struct_size = sizeof(kvarve_statistics)}

/* Everything that is counted. */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_statistics_get(kvarve_store *store,
                                                                kvarve_statistics *out,
                                                                kvarve_error *err);

/* One checkpoint, as a person would ask about it. */
typedef struct kvarve_checkpoint_info {
    uint8_t id[32];
    uint8_t parent_id[32]; /* the checkpoint it grew from; zero: none known */
    char namespace_text[96];
    uint64_t tokens;
    uint64_t draft_tokens;
    uint64_t bytes;     /* of all its pages */
    uint64_t bytes_own; /* of pages that no other checkpoint names: what dropping it gives back */
    uint64_t bytes_in_ram;
    int64_t created_s; /* wall clock */
    uint64_t used;     /* rank in recency: larger is later */
    uint32_t kind;     /* kvarve_kind */
    uint32_t state;    /* kvarve_put_state: READY or DURABLE */
    uint32_t pages;
    uint32_t leases;     /* held now */
    uint32_t is_damaged; /* 1: it is not found until a put repairs it */
    uint32_t is_draft;   /* 1: the draft half of another one */
} kvarve_checkpoint_info;

/* Called for each checkpoint; false ends the listing. Must not call into the store. */
typedef int (*kvarve_checkpoint_visit)(void *context, const kvarve_checkpoint_info *info);

/* Visit all checkpoints, most recently used first. Blocks the store for its length. */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_list_checkpoints(kvarve_store *store,
                                                                  kvarve_checkpoint_visit visit,
                                                                  void *context, kvarve_error *err);

/* Drop one checkpoint, with its draft half. Durable when it returns. Blocks. KVARVE_MISS: no such
 * id; KVARVE_BUSY: it is leased. */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_drop(kvarve_store *store, const uint8_t id[32],
                                                      kvarve_error *err);

typedef struct kvarve_verify_result {
    uint64_t pages_checked;
    uint64_t pages_total;
    uint64_t bytes_checked;
    uint64_t pages_damaged; /* found now; their checkpoints are not found any more until repaired */
    uint64_t checkpoints_lost;
    uint32_t is_index_damaged;
    uint32_t reserved;
} kvarve_verify_result;

/* Called now and then while verify, rebuild or trim run. */
typedef void (*kvarve_progress)(void *context, uint64_t done, uint64_t total);

/* Read every page and check it, and check the index. Blocks. KVARVE_CORRUPT when damage was found;
 * *out_result says how much. */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_verify(kvarve_store *store,
                                                        kvarve_progress progress, void *context,
                                                        kvarve_verify_result *out_result,
                                                        kvarve_error *err);

/* Give unused space back to the file system. Blocks. *out_bytes: how much. */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_trim(kvarve_store *store, uint64_t *out_bytes,
                                                      kvarve_error *err);

/*
 * The identity document of a namespace, as kept beside the store (canonical JSON, without the
 * salt): written to out[size], NUL included; KVARVE_MISS: not known here; KVARVE_NO_SPACE:
 * *out_size tells what is needed.
 */
KVARVE_API KVARVE_NODISCARD kvarve_status kvarve_namespace_document(kvarve_store *store,
                                                                    const char *namespace_text,
                                                                    char *out, size_t size,
                                                                    size_t *out_size,
                                                                    kvarve_error *err);

#ifdef __cplusplus
}
#endif

#endif
