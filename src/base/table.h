/*
 * table.h - a hash table threaded through its items.
 *
 * An item embeds a kvarve_table_link and is found by its 64-bit hash; the caller compares what the
 * hash stands for. Items with equal hashes are met newest first. The table grows by doubling; it
 * never shrinks.
 */
#ifndef KVARVE_BASE_TABLE_H
#define KVARVE_BASE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kvarve_table_link {
    struct kvarve_table_link *next;
    uint64_t hash;
} kvarve_table_link;

typedef struct kvarve_table {
    kvarve_table_link **buckets; /* a power of two of them */
    size_t bucket_count;
    size_t count;
} kvarve_table;

/* The item of type `type` whose member `member` is *link. */
#define KVARVE_TABLE_ITEM(link, type, member)                                                      \
    ((type *)(void *)((char *)(link) - offsetof(type, member)))

/* An empty table. False: no memory. */
__attribute__((warn_unused_result)) bool table_init(kvarve_table *table);
void table_deinit(kvarve_table *table);

/* Make room for `more` items, so that as many table_add can not fail. False: no memory, nothing
 * changed. */
__attribute__((warn_unused_result)) bool table_reserve(kvarve_table *table, size_t more);

/* Add `link`, which is in no table. When the table can not grow for lack of memory its chains get
 * longer: it never fails. */
void table_add(kvarve_table *table, kvarve_table_link *link, uint64_t hash);

/* Take `link` out; it is in the table. */
void table_remove(kvarve_table *table, kvarve_table_link *link);

/* The first item with this hash, and the next one after `link` with the same hash; NULL: no more.
 */
kvarve_table_link *table_first(const kvarve_table *table, uint64_t hash);
kvarve_table_link *table_next(const kvarve_table_link *link);

/*
 * Fetch what table_first and table_add of `hash` are going to touch, which is where a large table's
 * time goes: first the bucket, and some items later, when that has come, the head of its chain.
 */
static inline void table_prefetch_bucket(const kvarve_table *table, uint64_t hash)
{
    __builtin_prefetch(&table->buckets[hash & (table->bucket_count - 1)], 1);
}

static inline void table_prefetch_chain(const kvarve_table *table, uint64_t hash)
{
    __builtin_prefetch(table->buckets[hash & (table->bucket_count - 1)]);
}

/* Spread the bits of `value` over all 64 (splitmix64's finish). */
static inline uint64_t table_mix(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

#endif
