/*
 * alloc.c - see alloc.h. A thin layer over the C library with counters.
 *
 * Invariant: every block carries its size in front, so that accounting is exact.
 */
#include "base/alloc.h"

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"

#define HEAD alignof(max_align_t)

static atomic_uint_fast64_t bytes_in_use;
static atomic_uint_fast64_t blocks_in_use;
static _Atomic(kvarve_allocate_hook) hook_function;
static void *hook_context;
static atomic_uint_fast64_t hook_number;

static_assert(HEAD >= sizeof(size_t), "the head holds the size");

void kvarve_allocate_set_hook(kvarve_allocate_hook hook, void *context)
{
    hook_context = context;
    atomic_store(&hook_number, 0);
    atomic_store(&hook_function, hook);
}

static int may_allocate(void)
{
    const kvarve_allocate_hook hook = atomic_load_explicit(&hook_function, memory_order_acquire);

    return hook == NULL || hook(hook_context, atomic_fetch_add(&hook_number, 1));
}

void *kvarve_reallocate(void *memory, size_t size)
{
    char *old = memory == NULL ? NULL : (char *)memory - HEAD;
    size_t old_size = 0;
    size_t total;
    char *block;

    KVARVE_ASSERT(size > 0);
    if (old != NULL) {
        memcpy(&old_size, old, sizeof old_size);
    }
    if (KVARVE_ADD_OVERFLOWS(size, HEAD, &total) || !may_allocate()) {
        return NULL;
    }
    block = realloc(old, total);
    if (block == NULL) {
        return NULL;
    }
    memcpy(block, &size, sizeof size);
    atomic_fetch_add(&bytes_in_use, size);
    atomic_fetch_sub(&bytes_in_use, old_size);
    if (old == NULL) {
        atomic_fetch_add(&blocks_in_use, 1);
    }
    return block + HEAD;
}

void *kvarve_allocate(size_t size)
{
    size_t total;
    char *block;

    KVARVE_ASSERT(size > 0);
    if (KVARVE_ADD_OVERFLOWS(size, HEAD, &total) || !may_allocate()) {
        return NULL;
    }
    block = calloc(1, total);
    if (block == NULL) {
        return NULL;
    }
    memcpy(block, &size, sizeof size);
    atomic_fetch_add(&bytes_in_use, size);
    atomic_fetch_add(&blocks_in_use, 1);
    return block + HEAD;
}

void *kvarve_allocate_array(size_t count, size_t size)
{
    size_t total;

    if (KVARVE_MUL_OVERFLOWS(count, size, &total)) {
        return NULL;
    }
    return kvarve_allocate(total);
}

char *kvarve_duplicate(const char *text)
{
    const size_t size = strlen(text) + 1;
    char *copy = kvarve_allocate(size);

    if (copy != NULL) {
        memcpy(copy, text, size);
    }
    return copy;
}

void kvarve_release(void *memory)
{
    size_t size;
    char *block;

    if (memory == NULL) {
        return;
    }
    block = (char *)memory - HEAD;
    memcpy(&size, block, sizeof size);
    atomic_fetch_sub(&bytes_in_use, size);
    atomic_fetch_sub(&blocks_in_use, 1);
    free(block);
}

uint64_t kvarve_allocated_bytes(void)
{
    return atomic_load(&bytes_in_use);
}

uint64_t kvarve_allocated_blocks(void)
{
    return atomic_load(&blocks_in_use);
}
