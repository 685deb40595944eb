/*
 * table.c - see table.h. Chains in an array of buckets.
 *
 * Invariant: bucket_count is a power of two, and every item is in the chain of its hash's low bits.
 */
#include "base/table.h"

#include "base/alloc.h"
#include "base/assert.h"

#define BUCKETS_FIRST 64

bool table_init(kvarve_table *table)
{
    table->buckets = kvarve_allocate_array(BUCKETS_FIRST, sizeof(kvarve_table_link *));
    table->bucket_count = table->buckets == NULL ? 0 : BUCKETS_FIRST;
    table->count = 0;
    return table->buckets != NULL;
}

void table_deinit(kvarve_table *table)
{
    kvarve_release(table->buckets);
    *table = (kvarve_table){0};
}

static kvarve_table_link **bucket_of(const kvarve_table *table, uint64_t hash)
{
    return &table->buckets[hash & (table->bucket_count - 1)];
}

static bool grow_to(kvarve_table *table, size_t bucket_count)
{
    kvarve_table larger = {.bucket_count = bucket_count};

    larger.buckets = kvarve_allocate_array(bucket_count, sizeof(kvarve_table_link *));
    if (larger.buckets == NULL) {
        return false;
    }
    for (size_t i = 0; i < table->bucket_count; i++) {
        kvarve_table_link *reversed = NULL;

        /* Reversing twice keeps the order of equal hashes: newest first. */
        while (table->buckets[i] != NULL) {
            kvarve_table_link *link = table->buckets[i];

            table->buckets[i] = link->next;
            link->next = reversed;
            reversed = link;
        }
        while (reversed != NULL) {
            kvarve_table_link *link = reversed;
            kvarve_table_link **bucket = bucket_of(&larger, link->hash);

            reversed = link->next;
            link->next = *bucket;
            *bucket = link;
        }
    }
    kvarve_release(table->buckets);
    table->buckets = larger.buckets;
    table->bucket_count = bucket_count;
    return true;
}

bool table_reserve(kvarve_table *table, size_t more)
{
    size_t wanted = table->bucket_count;

    while (wanted < table->count + more) {
        wanted *= 2;
    }
    return wanted == table->bucket_count || grow_to(table, wanted);
}

void table_add(kvarve_table *table, kvarve_table_link *link, uint64_t hash)
{
    kvarve_table_link **bucket;

    (void)!table_reserve(table, 1); /* longer chains are slower, not wrong */
    bucket = bucket_of(table, hash);
    link->hash = hash;
    link->next = *bucket;
    *bucket = link;
    table->count++;
}

void table_remove(kvarve_table *table, kvarve_table_link *link)
{
    kvarve_table_link **at = bucket_of(table, link->hash);

    while (*at != link) {
        KVARVE_ASSERT(*at != NULL);
        at = &(*at)->next;
    }
    *at = link->next;
    link->next = NULL;
    table->count--;
}

static kvarve_table_link *same_hash(kvarve_table_link *link, uint64_t hash)
{
    while (link != NULL && link->hash != hash) {
        link = link->next;
    }
    return link;
}

kvarve_table_link *table_first(const kvarve_table *table, uint64_t hash)
{
    return same_hash(*bucket_of(table, hash), hash);
}

kvarve_table_link *table_next(const kvarve_table_link *link)
{
    return same_hash(link->next, link->hash);
}
