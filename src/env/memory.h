/*
 * memory.h - large memory: made once, really allocated, mapped, never given back in between.
 *
 * Threads: any. Real: private pages, or a memfd sealed against resize; huge pages where allowed,
 * MADV_DONTFORK. Simulated: ordinary memory.
 */
#ifndef KVARVE_ENV_MEMORY_H
#define KVARVE_ENV_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kvarve_memory kvarve_memory;

/* Who maps it. Machines grant huge pages to private memory more often than to shared one. */
typedef enum memory_sharing {
    MEMORY_PRIVATE, /* this process alone */
    MEMORY_SHARED,  /* whoever is given the descriptor, too */
} memory_sharing;

typedef struct kvarve_mapping {
    void *base; /* page aligned */
    size_t size;
    int fd;       /* the memfd behind shared memory, or -1 */
    bool is_huge; /* huge pages were granted */
} kvarve_mapping;

struct kvarve_memory {
    /*
     * Make `size` bytes (a multiple of 4096) of memory and map it for reading and writing. Nothing
     * is allocated yet. `name` is what /proc shows of shared memory. -ENOMEM and other -errno.
     */
    int (*create)(kvarve_memory *memory, memory_sharing sharing, const char *name, size_t size,
                  kvarve_mapping *out);
    /*
     * Really allocate [offset, offset + size): -ENOMEM, with nothing done, when that would take
     * more than 90 % of the smaller of the machine's free memory and the cgroup's headroom.
     */
    int (*populate)(kvarve_memory *memory, const kvarve_mapping *mapping, size_t offset,
                    size_t size);
    void (*destroy)(kvarve_memory *memory,
                    kvarve_mapping *mapping); /* unmap and close; clears *mapping */
    /* Bytes that could be populated now without breaking the 90 % rule. */
    uint64_t (*headroom)(kvarve_memory *memory);
};

#endif
