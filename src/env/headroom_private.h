/*
 * headroom_private.h - how much memory may be taken, from the texts in which the kernel says so.
 *
 * Pure: memory_posix.c reads the files, tests write the texts. Texts are NUL-terminated; NULL means
 * that the file is not there. Threads: any.
 */
#ifndef KVARVE_ENV_HEADROOM_PRIVATE_H
#define KVARVE_ENV_HEADROOM_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEADROOM_UNLIMITED UINT64_MAX

/* Where the kernel keeps the files of one generation of control groups. */
typedef struct headroom_files {
    const char *mount; /* of the memory controller */
    const char *limit; /* names of files in a group's folder */
    const char *usage;
    const char *stat;
    const char *cache_field; /* in `stat`: bytes of file cache that go away by themselves */
} headroom_files;

extern const headroom_files headroom_files_v1;
extern const headroom_files headroom_files_v2;

/* MemAvailable of /proc/meminfo in bytes; false when the text does not say. */
bool headroom_of_machine(const char *meminfo, uint64_t *out_bytes);

/*
 * The folder of this process's group below the mount, from /proc/self/cgroup, without a slash at
 * its end
 * ("" is the root). False when the process is in no group of that generation or the path does not
 * fit.
 */
bool headroom_group_path(const char *cgroup, const headroom_files *files, char *out, size_t size);

/* Cut the last name off `path`; false when it was the root already. */
bool headroom_parent_path(char *path);

/*
 * What one group has left: limit - usage + file cache that can be dropped, at most the limit;
 * HEADROOM_UNLIMITED when there is no limit ("max", or no such file).
 */
uint64_t headroom_of_group(const char *limit, const char *usage, const char *stat,
                           const char *cache_field);

/* 90 % of the smaller one. */
uint64_t headroom_allowed(uint64_t machine_bytes, uint64_t group_bytes);

/* What enabled or shmem_enabled in /sys/kernel/mm/transparent_hugepage has in brackets lets a
 * mapping ask for huge pages. */
bool headroom_huge_is_allowed(const char *enabled);

#endif
