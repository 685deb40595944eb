/*
 * memory_posix.c - large memory of the real machine: private pages or a sealed memfd, mapped once.
 *
 * Invariants:
 * M1  The size never changes after create: the memfd is sealed against it, so no peer can make an
 *     access fail by shrinking the file.
 * M2  populate looks at the headroom before it takes anything: the kernel does not refuse, it
 *     kills.
 *
 * A first touch page by page costs 11-14 us a page on virtual machines, populated at once about
 * 1 us; so nobody should meet an unpopulated page on the hot path. Direct reads into 4 KiB pages of
 * a virtual machine reached less than half of what they reach into huge pages (1.4 against 3.2
 * GB/s); huge pages are allowed for private memory almost everywhere, for shared memory rarely.
 *
 * Threads: stateless; any thread.
 */
#include "env/env_posix.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/checked.h"
#include "env/headroom_private.h"

#define PAGE_SIZE         4096
#define HUGE_PAGE_SIZE    ((size_t)2 << 20)
#define TEXT_MAX          8192 /* bytes of a file of the kernel that are looked at, NUL included */
#define INTERRUPTIONS_MAX 100

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* The first TEXT_MAX - 1 bytes of a small file of the kernel; NULL when it cannot be read. */
static const char *read_text(const char *path, char text[TEXT_MAX])
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t size = 0;
    ssize_t got = 1;

    if (fd < 0) {
        return NULL;
    }
    while (got > 0 && size < TEXT_MAX - 1) {
        got = read(fd, text + size, TEXT_MAX - 1 - size);
        size += got > 0 ? (size_t)got : 0;
    }
    (void)close(fd);
    text[size] = '\0';
    return got < 0 ? NULL : text;
}

static const char *read_group_text(const headroom_files *files, const char *group, const char *name,
                                   char text[TEXT_MAX])
{
    char path[TEXT_MAX];
    const int length = snprintf(path, sizeof path, "%s%s/%s", files->mount, group, name);

    if (length < 0 || (size_t)length >= sizeof path) {
        return NULL;
    }
    return read_text(path, text);
}

/* The least that this group and the ones above it have left. */
static uint64_t group_headroom(const headroom_files *files)
{
    char cgroup[TEXT_MAX];
    char group[TEXT_MAX / 4];
    uint64_t least = HEADROOM_UNLIMITED;

    if (read_text("/proc/self/cgroup", cgroup) == NULL ||
        !headroom_group_path(cgroup, files, group, sizeof group)) {
        return HEADROOM_UNLIMITED;
    }
    do {
        char limit[TEXT_MAX];
        char usage[TEXT_MAX];
        char stat[TEXT_MAX];

        least = kvarve_min_u64(least,
                               headroom_of_group(read_group_text(files, group, files->limit, limit),
                                                 read_group_text(files, group, files->usage, usage),
                                                 read_group_text(files, group, files->stat, stat),
                                                 files->cache_field));
    } while (headroom_parent_path(group));
    return least;
}

static uint64_t machine_headroom(void)
{
    char meminfo[TEXT_MAX];
    uint64_t bytes;

    if (headroom_of_machine(read_text("/proc/meminfo", meminfo), &bytes)) {
        return bytes;
    }
    /* No /proc: count what is entirely free, which is less. */
    return (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t posix_headroom(kvarve_memory *memory)
{
    const uint64_t group =
        kvarve_min_u64(group_headroom(&headroom_files_v1), group_headroom(&headroom_files_v2));

    (void)memory;
    return headroom_allowed(machine_headroom(), group);
}

/* A sealed memfd of `size` bytes: >= 0 or -errno. */
static int open_sealed(const char *name, size_t size)
{
    const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int rc;

    if (fd < 0) {
        return -errno;
    }
    if (ftruncate(fd, (off_t)size) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
        return fd;
    }
    rc = -errno;
    (void)close(fd);
    return rc;
}

static bool ask_for_huge_pages(void *base, size_t size, memory_sharing sharing)
{
    char text[TEXT_MAX];
    const char *enabled =
        read_text(sharing == MEMORY_SHARED ? "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
                                           : "/sys/kernel/mm/transparent_hugepage/enabled",
                  text);

    return headroom_huge_is_allowed(enabled) && madvise(base, size, MADV_HUGEPAGE) == 0;
}

/* Private pages that start where a huge page may, or MAP_FAILED. */
static void *map_private(size_t size)
{
    const size_t room = size + HUGE_PAGE_SIZE;
    char *start = size > SIZE_MAX - HUGE_PAGE_SIZE
                      ? MAP_FAILED
                      : mmap(NULL, room, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t before;

    if (start == MAP_FAILED) {
        return MAP_FAILED;
    }
    before = (HUGE_PAGE_SIZE - (uintptr_t)start % HUGE_PAGE_SIZE) % HUGE_PAGE_SIZE;
    if (before > 0) {
        (void)munmap(start, before);
    }
    (void)munmap(start + before + size, HUGE_PAGE_SIZE - before);
    return start + before;
}

static int posix_create(kvarve_memory *memory, memory_sharing sharing, const char *name,
                        size_t size, kvarve_mapping *out)
{
    void *base;
    int fd = -1;
    int rc;

    (void)memory;
    if (size == 0 || size % PAGE_SIZE != 0) {
        return -EINVAL;
    }
    if (sharing == MEMORY_SHARED) {
        fd = open_sealed(name, size);
        if (fd < 0) {
            return fd;
        }
    }
    base = fd < 0 ? map_private(size) : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    *out = (kvarve_mapping){.base = base == MAP_FAILED ? NULL : base, .size = size, .fd = fd};
    /* A forked child must neither see nor hold this memory; without that promise there is no
     * mapping. */
    if (base == MAP_FAILED || madvise(base, size, MADV_DONTFORK) < 0) {
        rc = -errno;
        memory->destroy(memory, out);
        return rc;
    }
    out->is_huge = ask_for_huge_pages(base, size, sharing);
    return 0;
}

/* For kernels that cannot populate: allocate what is shared, so that lack of memory is an answer,
 * then touch each page. */
static int populate_by_touch(const kvarve_mapping *mapping, size_t offset, size_t size)
{
    unsigned char *base = (unsigned char *)mapping->base + offset;

    if (mapping->fd >= 0 && fallocate(mapping->fd, 0, (off_t)offset, (off_t)size) < 0) {
        return errno == ENOSPC ? -ENOMEM : -errno;
    }
    for (size_t at = 0; at < size; at += PAGE_SIZE) {
        /* A write that changes nothing, also when somebody else is writing there. */
        (void)__atomic_fetch_or(base + at, 0, __ATOMIC_RELAXED);
    }
    return 0;
}

static int posix_populate(kvarve_memory *memory, const kvarve_mapping *mapping, size_t offset,
                          size_t size)
{
    int rc = -EINTR;

    KVARVE_ASSERT(offset % PAGE_SIZE == 0 && size % PAGE_SIZE == 0);
    KVARVE_ASSERT(offset <= mapping->size && size <= mapping->size - offset);
    if (size == 0) {
        return 0;
    }
    if (size > posix_headroom(memory)) { /* M2 */
        return -ENOMEM;
    }
    for (int i = 0; i <= INTERRUPTIONS_MAX && rc == -EINTR; i++) {
        rc = madvise((char *)mapping->base + offset, size, MADV_POPULATE_WRITE) < 0 ? -errno : 0;
    }
    if (rc == -EINVAL) {
        return populate_by_touch(mapping, offset, size);
    }
    return rc == -EFAULT ? -ENOMEM : rc; /* EFAULT: the file behind could not be filled */
}

static void posix_destroy(kvarve_memory *memory, kvarve_mapping *mapping)
{
    (void)memory;
    if (mapping->base != NULL) {
        (void)munmap(mapping->base, mapping->size);
    }
    if (mapping->fd >= 0) {
        (void)close(mapping->fd);
    }
    *mapping = (kvarve_mapping){.fd = -1};
}

kvarve_memory *memory_posix(void)
{
    static kvarve_memory posix_memory = {
        .create = posix_create,
        .populate = posix_populate,
        .destroy = posix_destroy,
        .headroom = posix_headroom,
    };

    return &posix_memory;
}
