/*
 * segment.c - the set of segment files: open and close, look up, count.
 *
 * Invariants
 *   I1  A final name never refers to a file without a whole, durable first block: files are made
 *       under a temporary name (grow.c). So a temporary name is a left-over of a crash and goes at
 *       open, and a bad first block under a final name is damage and is never touched.
 *   I2  Before a file is used, its name is durable: open syncs the directory, because whoever made
 *       the name may have died before it did.
 *   I3  No number is used twice while the set is open: the next one is above every name seen,
 *       damaged and temporary ones included.
 *   I4  What a file takes is never counted too low. At open nobody remembers which slots were
 *       punched. Where the file system says that a slot or more is missing, every slot counts as
 *       hollow until it is taken, and the file system's word stands as a lower bound until a trim
 *       has punched what is hollow once more.
 *
 * Threads: one at a time; open blocks. Ownership: the set owns its files and their descriptors.
 */
#include "segment/segment.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/fail.h"
#include "env/io_all.h"
#include "segment/segment_private.h"

/* What a file's name says. */
typedef struct file_name {
    uint32_t number;
    uint32_t slot_bytes;
    bool is_temporary;
} file_name;

typedef struct name_list {
    file_name *names;
    size_t count;
    size_t capacity;
    bool is_short; /* of memory */
} name_list;

static bool read_decimal(const char **text, uint32_t *out)
{
    const char *at = *text;
    uint64_t value = 0;

    if (at[0] == '0' && at[1] >= '0' && at[1] <= '9') {
        return false;
    }
    while (*at >= '0' && *at <= '9' && value <= UINT32_MAX) {
        value = value * 10 + (uint64_t)(*at++ - '0');
    }
    if (at == *text || value > UINT32_MAX) {
        return false;
    }
    *text = at;
    *out = (uint32_t)value;
    return true;
}

/* Exactly the names that segment_path makes. */
static bool parse_name(const char *text, file_name *out)
{
    if (!read_decimal(&text, &out->slot_bytes) || *text != '-') {
        return false;
    }
    text++;
    if (!read_decimal(&text, &out->number) || strncmp(text, ".seg", 4) != 0) {
        return false;
    }
    text += 4;
    out->is_temporary = strcmp(text, TEMPORARY_SUFFIX) == 0;
    return (*text == '\0' || out->is_temporary) && out->number > 0 &&
           out->slot_bytes % BATCH_BLOCK == 0 && out->slot_bytes <= SEGMENT_SLOT_BYTES_MAX;
}

static bool visit_name(void *context, const char *name)
{
    name_list *list = context;
    file_name parsed;

    if (!parse_name(name, &parsed)) {
        return true;
    }
    if (list->count == list->capacity) {
        const size_t capacity = 2 * list->capacity + 16;
        file_name *names = kvarve_reallocate(list->names, capacity * sizeof *names);

        if (names == NULL) {
            list->is_short = true;
            return false;
        }
        list->names = names;
        list->capacity = capacity;
    }
    list->names[list->count++] = parsed;
    return true;
}

static int compare_names(const void *a, const void *b)
{
    const file_name *x = a;
    const file_name *y = b;

    if (x->number != y->number) {
        return x->number < y->number ? -1 : 1;
    }
    return x->slot_bytes < y->slot_bytes ? -1 : x->slot_bytes > y->slot_bytes;
}

void segment_path(const segment_set *set, const segment_head *head, const char *suffix,
                  char out[KVARVE_PATH_MAX])
{
    const int length = snprintf(out, KVARVE_PATH_MAX, "%s/%" PRIu32 "-%" PRIu32 ".seg%s",
                                set->directory, head->slot_bytes, head->number, suffix);

    KVARVE_ASSERT(length > 0 && length < KVARVE_PATH_MAX);
}

void *segment_allocate_aligned(size_t size, void **out_memory)
{
    char *memory = kvarve_allocate(size + KVARVE_IO_ALIGNMENT);
    uintptr_t rest;

    if (memory == NULL) {
        return NULL;
    }
    rest = (uintptr_t)memory % KVARVE_IO_ALIGNMENT;
    *out_memory = memory;
    return memory + (rest == 0 ? 0 : KVARVE_IO_ALIGNMENT - rest);
}

/* --- files in RAM --- */

/* The index of the first file with this number or a higher one. */
static uint32_t position_of(const segment_set *set, uint32_t number)
{
    uint32_t low = 0;
    uint32_t high = set->file_count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (set->files[middle]->head.number < number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

segment_file *segment_find(const segment_set *set, uint32_t number)
{
    const uint32_t at = position_of(set, number);
    segment_file *file = at < set->file_count ? set->files[at] : NULL;

    return file != NULL && file->head.number == number && !file->is_leaving ? file : NULL;
}

segment_file *segment_file_create(const segment_head *head)
{
    const size_t slot_words = bitmap_words(head->slot_count);
    const size_t block_words = bitmap_words(head->header_blocks);
    segment_file *file =
        kvarve_allocate(sizeof *file + (2 * slot_words + block_words) * sizeof(uint64_t));

    if (file == NULL) {
        return NULL;
    }
    file->head = *head;
    file->fd = -1;
    file->chunk_count = (uint32_t)kvarve_divide_up(head->slot_count, CHUNK_SLOTS);
    file->taken = file->words;
    file->hollow = file->words + slot_words;
    file->blocks_taken = file->words + 2 * slot_words;
    bitmap_fill(file->blocks_taken, 0, 1, true); /* Block 0 describes the file. */
    file->blocks_free = head->header_blocks - 1;
    file->blocks_run_max = file->blocks_free;
    kvarve_list_init(&file->syncs_waiting);
    return file;
}

/* The class of this slot size, made if there is none. NULL: no memory. */
static slot_class *have_class(segment_set *set, uint32_t slot_bytes)
{
    slot_class *class;
    kvarve_link *link;

    KVARVE_LIST_FOREACH (link, &set->classes) {
        class = KVARVE_LIST_ITEM(link, slot_class, link);
        if (class->slot_bytes == slot_bytes) {
            return class;
        }
    }
    class = kvarve_allocate(sizeof *class);
    if (class != NULL) {
        class->slot_bytes = slot_bytes;
        kvarve_list_append(&set->classes, &class->link);
    }
    return class;
}

static bool have_chunks(slot_class *class, uint32_t more)
{
    const uint32_t needed = class->chunk_count + class->chunks_pending + more;
    slot_chunk *chunks;

    if (needed <= class->chunk_capacity) {
        return true;
    }
    chunks = kvarve_reallocate(class->chunks, 2 * (size_t)needed * sizeof *chunks);
    if (chunks == NULL) {
        return false;
    }
    class->chunks = chunks;
    class->chunk_capacity = 2 * needed;
    return true;
}

bool segment_promise(segment_set *set, segment_file *file)
{
    const uint32_t needed = set->file_count + set->files_pending + 1;

    if (needed > set->file_capacity) {
        segment_file **files =
            kvarve_reallocate(set->files, 2 * (size_t)needed * sizeof(segment_file *));

        if (files == NULL) {
            return false;
        }
        set->files = files;
        set->file_capacity = 2 * needed;
    }
    if (file->head.slot_bytes > 0) {
        file->class = have_class(set, file->head.slot_bytes);
        if (file->class == NULL || !have_chunks(file->class, file->chunk_count)) {
            return false;
        }
        file->class->chunks_pending += file->chunk_count;
    }
    set->files_pending++;
    return true;
}

void segment_break_promise(segment_set *set, segment_file *file)
{
    set->files_pending--;
    if (file->class != NULL) {
        file->class->chunks_pending -= file->chunk_count;
    }
}

void segment_insert(segment_set *set, segment_file *file)
{
    const uint32_t at = position_of(set, file->head.number);

    segment_break_promise(set, file);
    KVARVE_ASSERT(set->file_count < set->file_capacity);
    memmove(set->files + at + 1, set->files + at, (set->file_count - at) * sizeof *set->files);
    set->files[at] = file;
    set->file_count++;
    if (file->class != NULL) {
        slots_insert(file);
    }
}

void segment_remove(segment_set *set, segment_file *file)
{
    const uint32_t at = position_of(set, file->head.number);

    KVARVE_ASSERT(set->files[at] == file);
    if (file->class != NULL) {
        slots_remove(file);
    }
    set->file_count--;
    memmove(set->files + at, set->files + at + 1, (set->file_count - at) * sizeof *set->files);
    kvarve_release(file);
}

/* --- open --- */

static bool is_own_store(const segment_options *options, const store_uuid *store)
{
    if (memcmp(store, &options->store, sizeof *store) == 0) {
        return true;
    }
    for (uint32_t i = 0; i < options->former_count; i++) {
        if (memcmp(store, &options->formers[i], sizeof *store) == 0) {
            return true;
        }
    }
    return false;
}

/* Open the file and read its first block; direct if that can be had, else nothing is direct from
 * then on. 0 or -errno; -ENODATA when it is shorter than a block. */
static int read_first_block(segment_set *set, const char *path, uint8_t *block, kvarve_fd *out_fd)
{
    kvarve_io *io = set->env->io;
    const uint32_t flags = set->is_read_only ? KVARVE_OPEN_READ : 0;
    int rc = -EINVAL;

    for (int attempt = 0; attempt < 2 && rc == -EINVAL; attempt++) {
        kvarve_fd fd = -1;

        rc = io->ops->open(io, path, flags | (set->use_direct ? KVARVE_OPEN_DIRECT : 0), 0, &fd);
        if (rc == 0) {
            rc = io_read_all(io, fd, block, SEGMENT_HEAD_SIZE, 0);
        }
        if (rc == 0) {
            *out_fd = fd;
        } else if (fd >= 0) {
            io->ops->close(io, fd);
        }
        if (rc == -EINVAL && !set->use_direct) {
            break;
        }
        if (rc == -EINVAL) {
            set->use_direct = false;
        }
    }
    return rc;
}

/* Whether the block is that of the file of this name. UNSUPPORTED ends the opening of the store. */
static kvarve_status check_head(const segment_set *set, const segment_options *options,
                                const uint8_t *block, const file_name *name, segment_head *out)
{
    const kvarve_status status = segment_head_decode(block, out, NULL);

    if (status != KVARVE_OK) {
        return status;
    }
    if (out->number != name->number || out->slot_bytes != name->slot_bytes ||
        !is_own_store(options, &out->store) || segment_find(set, out->number) != NULL) {
        return KVARVE_CORRUPT;
    }
    return KVARVE_OK;
}

/* I4 */
static void learn_hollow(segment_file *file, uint64_t allocated_bytes)
{
    const segment_head *head = &file->head;

    if (head->slot_count == 0 || allocated_bytes + head->slot_bytes > segment_file_size(head)) {
        return;
    }
    slots_mark(file, 0, head->slot_count, true);
    bitmap_fill(file->hollow, 0, head->slot_count, true);
    file->slots_hollow = head->slot_count;
    file->bytes_told = allocated_bytes;
}

/* Add the file to the set; takes the descriptor over when it succeeds. */
static bool add_file(segment_set *set, const segment_head *head, kvarve_fd fd,
                     uint64_t allocated_bytes)
{
    segment_file *file = segment_file_create(head);

    if (file == NULL || !segment_promise(set, file)) {
        kvarve_release(file);
        return false;
    }
    file->fd = fd;
    segment_insert(set, file);
    learn_hollow(file, allocated_bytes);
    return true;
}

static kvarve_status open_file(segment_set *set, const segment_options *options,
                               const file_name *name, uint8_t *block, kvarve_error *err)
{
    const segment_head named = {.number = name->number, .slot_bytes = name->slot_bytes};
    kvarve_status status;
    kvarve_file_stat stat;
    segment_head head;
    char path[KVARVE_PATH_MAX];
    kvarve_fd fd = -1;
    int rc;

    segment_path(set, &named, "", path);
    rc = read_first_block(set, path, block, &fd);
    if (rc == -ENODATA) {
        set->counters.damaged_files++;
        return KVARVE_OK;
    }
    if (rc < 0) {
        return kvarve_fail_io(err, rc, "read the first block of %s", path);
    }
    status = check_head(set, options, block, name, &head);
    if (status == KVARVE_OK) {
        rc = set->env->io->ops->stat_fd(set->env->io, fd, &stat);
        status = rc < 0 ? kvarve_fail_io(err, rc, "look at %s", path) : KVARVE_OK;
    }
    if (status == KVARVE_OK && !add_file(set, &head, fd, stat.allocated_bytes)) {
        status = kvarve_fail(err, KVARVE_NO_MEMORY, "memory for the slots of %s", path);
    }
    if (status != KVARVE_OK) {
        set->env->io->ops->close(set->env->io, fd);
    }
    if (status == KVARVE_CORRUPT) {
        set->counters.damaged_files++;
        return KVARVE_OK;
    }
    if (status == KVARVE_UNSUPPORTED) {
        return kvarve_fail(err, status, "%s was written by a newer version", path);
    }
    return status;
}

/* Remove what a crash left of a file that was being made (I1). */
static kvarve_status remove_temporary(segment_set *set, const file_name *name, kvarve_error *err)
{
    const segment_head named = {.number = name->number, .slot_bytes = name->slot_bytes};
    char path[KVARVE_PATH_MAX];
    int rc;

    if (set->is_read_only) {
        return KVARVE_OK;
    }
    segment_path(set, &named, TEMPORARY_SUFFIX, path);
    rc = set->env->io->ops->unlink(set->env->io, path);
    return rc < 0 ? kvarve_fail_io(err, rc, "remove %s", path) : KVARVE_OK;
}

static kvarve_status open_names(segment_set *set, const segment_options *options,
                                const name_list *list, kvarve_error *err)
{
    kvarve_status status = KVARVE_OK;
    void *memory = NULL;
    uint8_t *block = segment_allocate_aligned(SEGMENT_HEAD_SIZE, &memory);

    if (block == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "memory to read %s", set->directory);
    }
    for (size_t i = 0; i < list->count && status == KVARVE_OK; i++) {
        const file_name *name = &list->names[i];

        set->next_number = name->number == UINT32_MAX ? 0 : name->number + 1; /* I3 */
        status = name->is_temporary ? remove_temporary(set, name, err)
                                    : open_file(set, options, name, block, err);
    }
    kvarve_release(memory);
    return status;
}

static kvarve_status open_files(segment_set *set, const segment_options *options, kvarve_error *err)
{
    kvarve_io *io = set->env->io;
    name_list list = {0};
    kvarve_status status;
    const int rc = io->ops->list(io, set->directory, visit_name, &list);

    if (rc == -ENOENT && set->is_read_only) {
        status = KVARVE_OK;
    } else if (rc < 0) {
        status = kvarve_fail_io(err, rc, "list %s", set->directory);
    } else if (list.is_short) {
        status = kvarve_fail(err, KVARVE_NO_MEMORY, "memory to list %s", set->directory);
    } else {
        if (list.count > 1) {
            qsort(list.names, list.count, sizeof *list.names, compare_names);
        }
        status = open_names(set, options, &list, err);
    }
    kvarve_release(list.names);
    return status;
}

/* The directory that `path` lies in, into out[KVARVE_PATH_MAX]; `path` is shorter than that. */
static void parent_of(const char *path, char *out)
{
    size_t size = strlen(path);

    while (size > 1 && path[size - 1] == '/') {
        size--;
    }
    while (size > 0 && path[size - 1] != '/') {
        size--;
    }
    while (size > 1 && path[size - 1] == '/') {
        size--;
    }
    memcpy(out, size == 0 ? "." : path, size == 0 ? 1 : size);
    out[size == 0 ? 1 : size] = '\0';
}

/* The directory is there, and its name is durable. */
static kvarve_status have_directory(segment_set *set, kvarve_error *err)
{
    kvarve_io *io = set->env->io;
    char parent[KVARVE_PATH_MAX];
    int rc = io->ops->make_directory(io, set->directory, SEGMENT_FOLDER_MODE);

    if (rc < 0 && rc != -EEXIST) {
        return kvarve_fail_io(err, rc, "make %s", set->directory);
    }
    parent_of(set->directory, parent);
    rc = io->ops->sync_directory(io, parent);
    return rc < 0 ? kvarve_fail_io(err, rc, "sync %s", parent) : KVARVE_OK;
}

static kvarve_status open_set(segment_set *set, const segment_options *options, kvarve_error *err)
{
    kvarve_io *io = set->env->io;
    kvarve_status status = set->is_read_only ? KVARVE_OK : have_directory(set, err);
    int rc;

    if (status == KVARVE_OK) {
        status = open_files(set, options, err);
    }
    if (status != KVARVE_OK || set->is_read_only) {
        return status;
    }
    rc = io->ops->sync_directory(io, set->directory); /* I2 */
    return rc < 0 ? kvarve_fail_io(err, rc, "sync %s", set->directory) : KVARVE_OK;
}

kvarve_status segment_open(const kvarve_env *env, const char *directory,
                           const segment_options *options, segment_set **out, kvarve_error *err)
{
    segment_set *set;
    kvarve_status status;

    if (strlen(directory) + sizeof "/1073741824-4294967295.seg" TEMPORARY_SUFFIX >
        KVARVE_PATH_MAX) {
        return kvarve_fail(err, KVARVE_INVALID, "path of the segment files is too long");
    }
    set = kvarve_allocate(sizeof *set);
    if (set != NULL) {
        set->directory = kvarve_duplicate(directory);
    }
    if (set == NULL || set->directory == NULL) {
        kvarve_release(set);
        return kvarve_fail(err, KVARVE_NO_MEMORY, "memory to open %s", directory);
    }
    set->magic = SEGMENT_MAGIC;
    set->env = env;
    set->store = options->store;
    set->file_bytes = options->file_bytes;
    set->use_direct = options->use_direct;
    set->is_read_only = options->is_read_only;
    set->next_number = 1;
    kvarve_list_init(&set->classes);

    status = open_set(set, options, err);
    if (status != KVARVE_OK) {
        segment_close(set);
        return status;
    }
    *out = set;
    return KVARVE_OK;
}

void segment_close(segment_set *set)
{
    kvarve_link *link;

    if (set == NULL) {
        return;
    }
    KVARVE_ASSERT(set->magic == SEGMENT_MAGIC && set->operations == 0);
    KVARVE_ASSERT(set->files_pending == 0);
    set->magic = 0;
    for (uint32_t i = 0; i < set->file_count; i++) {
        set->env->io->ops->close(set->env->io, set->files[i]->fd);
        kvarve_release(set->files[i]);
    }
    kvarve_release(set->files);
    while ((link = kvarve_list_take_first(&set->classes)) != NULL) {
        slot_class *class = KVARVE_LIST_ITEM(link, slot_class, link);

        kvarve_release(class->chunks);
        kvarve_release(class);
    }
    kvarve_release(set->directory);
    kvarve_release(set);
}

/* --- look --- */

void segment_each(const segment_set *set, segment_visit visit, void *context)
{
    for (uint32_t i = 0; i < set->file_count; i++) {
        if (!set->files[i]->is_leaving) {
            visit(context, &set->files[i]->head);
        }
    }
}

bool segment_place_is_valid(const segment_set *set, page_place place, uint32_t size)
{
    const segment_file *file = segment_find(set, place.segment);

    return file != NULL && place.slot < file->head.slot_count && size > 0 &&
           size <= file->head.slot_bytes;
}

uint32_t segment_slot_bytes_of(const segment_set *set, page_place place)
{
    const segment_file *file = segment_find(set, place.segment);

    return file == NULL ? 0 : file->head.slot_bytes;
}

uint32_t segment_slot_bytes(uint64_t page_bytes)
{
    KVARVE_ASSERT(page_bytes > 0 && page_bytes <= SEGMENT_SLOT_BYTES_MAX);
    return (uint32_t)kvarve_round_up(page_bytes, BATCH_BLOCK);
}

uint64_t segment_file_bytes(const segment_file *file)
{
    const segment_head *head = &file->head;
    const uint64_t known =
        segment_file_size(head) - (uint64_t)file->slots_hollow * head->slot_bytes;

    return kvarve_max_u64(known, file->bytes_told);
}

uint64_t segment_hollow_slots(const segment_set *set, uint32_t slot_bytes)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < set->file_count; i++) {
        const segment_file *file = set->files[i];

        count += file->head.slot_bytes == slot_bytes && !file->is_leaving ? file->slots_hollow : 0;
    }
    return count;
}

void segment_set_file_bytes(segment_set *set, uint64_t file_bytes)
{
    set->file_bytes = file_bytes;
}

void segment_count(const segment_set *set, segment_counters *out)
{
    *out = set->counters;
    out->is_direct = set->use_direct;
    out->file_count = set->file_count;
    for (uint32_t i = 0; i < set->file_count; i++) {
        const segment_file *file = set->files[i];
        const uint64_t slots_free = (uint64_t)file->slots_free + file->slots_busy;
        const uint64_t slots_taken = file->head.slot_count - slots_free - file->slots_hollow;
        const uint32_t blocks_taken = file->head.header_blocks - 1 - file->blocks_free;

        out->file_bytes += segment_file_bytes(file);
        out->slot_bytes_free += slots_free * file->head.slot_bytes;
        out->slot_bytes_taken += slots_taken * file->head.slot_bytes;
        out->slot_bytes_hollow += (uint64_t)file->slots_hollow * file->head.slot_bytes;
        out->header_bytes_taken += (uint64_t)blocks_taken * BATCH_BLOCK;
    }
}

bool segment_is_failed(const segment_set *set)
{
    return set->is_failed;
}
