/*
 * headroom.c - see headroom_private.h. Pure text in, numbers out.
 *
 * Invariant: a text that cannot be read never grants more than a text that can: a missing machine
 * figure is reported, a missing group limit leaves the machine's.
 */
#include "env/headroom_private.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"

#define KIB 1024

const headroom_files headroom_files_v1 = {
    .mount = "/sys/fs/cgroup/memory",
    .limit = "memory.limit_in_bytes",
    .usage = "memory.usage_in_bytes",
    .stat = "memory.stat",
    .cache_field = "total_inactive_file",
};

const headroom_files headroom_files_v2 = {
    .mount = "/sys/fs/cgroup",
    .limit = "memory.max",
    .usage = "memory.current",
    .stat = "memory.stat",
    .cache_field = "inactive_file",
};

/* The decimal number after blanks; false when there is none or it is too large. */
static bool parse_number(const char *text, uint64_t *out)
{
    uint64_t value = 0;

    while (*text == ' ' || *text == '\t') {
        text++;
    }
    if (*text < '0' || *text > '9') {
        return false;
    }
    for (; *text >= '0' && *text <= '9'; text++) {
        if (KVARVE_MUL_OVERFLOWS(value, UINT64_C(10), &value) ||
            KVARVE_ADD_OVERFLOWS(value, (uint64_t)(*text - '0'), &value)) {
            return false;
        }
    }
    *out = value;
    return true;
}

static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');

    return end == NULL ? NULL : end + 1;
}

/* The number on the line that starts with `field` and then a blank or a colon. */
static bool find_field(const char *text, const char *field, uint64_t *out)
{
    const size_t size = strlen(field);

    for (const char *line = text; line != NULL; line = next_line(line)) {
        if (strncmp(line, field, size) == 0 && (line[size] == ' ' || line[size] == ':')) {
            return parse_number(line + size + 1, out);
        }
    }
    return false;
}

bool headroom_of_machine(const char *meminfo, uint64_t *out_bytes)
{
    uint64_t kib;

    return meminfo != NULL && find_field(meminfo, "MemAvailable", &kib) &&
           !KVARVE_MUL_OVERFLOWS(kib, (uint64_t)KIB, out_bytes);
}

/* Whether the comma-separated `names`, ended by a colon, have `wanted` among them. */
static bool has_controller(const char *names, const char *wanted)
{
    const size_t size = strlen(wanted);

    for (;;) {
        const size_t length = strcspn(names, ",:\n");

        if (length == size && strncmp(names, wanted, size) == 0) {
            return true;
        }
        if (names[length] != ',') {
            return false;
        }
        names += length + 1;
    }
}

/* The path in a line "number:controllers:path" of the wanted generation, else NULL. */
static const char *path_of_line(const char *line, const headroom_files *files)
{
    const size_t number_size = strcspn(line, ":\n");
    const char *controllers;
    const char *path;

    if (line[number_size] != ':') {
        return NULL;
    }
    controllers = line + number_size + 1;
    path = controllers + strcspn(controllers, ":\n");
    if (*path != ':') {
        return NULL;
    }
    if (files == &headroom_files_v2) {
        return strncmp(line, "0::", 3) == 0 ? path + 1 : NULL;
    }
    return has_controller(controllers, "memory") ? path + 1 : NULL;
}

bool headroom_group_path(const char *cgroup, const headroom_files *files, char *out, size_t size)
{
    for (const char *line = cgroup; line != NULL; line = next_line(line)) {
        const char *path = path_of_line(line, files);
        size_t length;

        if (path == NULL) {
            continue;
        }
        length = strcspn(path, "\n");
        while (length > 0 && path[length - 1] == '/') {
            length--;
        }
        if (length >= size) {
            return false;
        }
        memcpy(out, path, length);
        out[length] = '\0';
        return true;
    }
    return false;
}

bool headroom_parent_path(char *path)
{
    char *slash = strrchr(path, '/');

    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    return true;
}

uint64_t headroom_of_group(const char *limit, const char *usage, const char *stat,
                           const char *cache_field)
{
    uint64_t most;
    uint64_t used;
    uint64_t cache = 0;

    if (limit == NULL || usage == NULL || !parse_number(limit, &most) ||
        !parse_number(usage, &used)) {
        return HEADROOM_UNLIMITED;
    }
    if (stat == NULL || !find_field(stat, cache_field, &cache)) {
        cache = 0;
    }
    used -= kvarve_min_u64(used, cache);
    return used < most ? most - used : 0;
}

uint64_t headroom_allowed(uint64_t machine_bytes, uint64_t group_bytes)
{
    return kvarve_min_u64(machine_bytes, group_bytes) / 10 * 9;
}

bool headroom_huge_is_allowed(const char *enabled)
{
    static const char *const allowed[] = {"[always]", "[within_size]", "[advise]", "[madvise]",
                                          "[force]"};

    for (size_t i = 0; enabled != NULL && i < sizeof allowed / sizeof allowed[0]; i++) {
        if (strstr(enabled, allowed[i]) != NULL) {
            return true;
        }
    }
    return false;
}
