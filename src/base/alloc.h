/*
 * alloc.h - where every byte of heap memory comes from.
 *
 * One process-wide allocator with accounting, replaceable by tests that fail the
 * k-th allocation. Threads: all calls are thread-safe. A failed allocation returns NULL and
 * changes nothing; callers answer KVARVE_NO_MEMORY.
 */
#ifndef KVARVE_BASE_ALLOC_H
#define KVARVE_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

/* `size` zeroed bytes, aligned for any type; NULL when there is no memory. size > 0. */
__attribute__((warn_unused_result)) void *kvarve_allocate(size_t size);

/* count * size zeroed bytes; NULL also when the product overflows. */
__attribute__((warn_unused_result)) void *kvarve_allocate_array(size_t count, size_t size);

/* Grow or shrink `memory` (NULL: allocate). New bytes are not zeroed. On NULL the old memory stays.
 */
__attribute__((warn_unused_result)) void *kvarve_reallocate(void *memory, size_t size);

/* A copy of the NUL-terminated `text`. */
__attribute__((warn_unused_result)) char *kvarve_duplicate(const char *text);

/* Give memory back; NULL is a no-op. */
void kvarve_release(void *memory);

/* Bytes and blocks now in use, over all threads: for accounting and leak checks in tests. */
uint64_t kvarve_allocated_bytes(void);
uint64_t kvarve_allocated_blocks(void);

/*
 * Test hook: called before each allocation with its 0-based number since the hook was set;
 * false makes that allocation fail. NULL takes the hook away. Not for production code.
 */
typedef int (*kvarve_allocate_hook)(void *context, uint64_t number);
void kvarve_allocate_set_hook(kvarve_allocate_hook hook, void *context);

#endif
