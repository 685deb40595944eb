/*
 * model_digest.c - digests of model files, and their cache.
 *
 * The cache is a text file, one line a digest: "DEVICE INODE SIZE MTIME_NS CTIME_NS SHA256". It is
 * replaced as a whole.
 *
 * Invariants
 *   I1  A digest is cached only for a file that did not change while it was read, and whose ctime
 *       is some seconds old: a file that is still being written may keep its times.
 *   I2  A line of the cache that is not of this form is dropped, never guessed at.
 *
 * Threads    Any. Ownership: everything is given back before the answer.
 */
#include "llama/model_digest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "env/env_posix.h"
#include "env/io_all.h"
#include "hash/hash.h"

#define READ_BYTES       ((size_t)1 << 20)
#define CACHE_BYTES_MAX  ((size_t)1 << 18)
#define CACHE_LINES_KEPT 512
#define CACHE_LINE_MAX   200
#define SETTLED_SECONDS  3
#define PART_SUFFIX      "-00001-of-"

/* ---- Parts ---- */

static bool read_digits(const char *text, size_t count, uint32_t *out)
{
    uint32_t value = 0;
    for (size_t i = 0; i < count; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
        value = value * 10 + (uint32_t)(text[i] - '0');
    }
    *out = value;
    return true;
}

/* Where "-NNNNN-of-NNNNN.gguf" begins at the end of `path`; NULL: it does not end so. */
static const char *find_part_suffix(const char *path, uint32_t *out_part, uint32_t *out_count)
{
    static const size_t suffix = sizeof("-00001-of-00002.gguf") - 1;
    const size_t length = strlen(path);

    if (length <= suffix) {
        return NULL;
    }
    const char *at = path + length - suffix;
    if (at[0] != '-' || !read_digits(at + 1, 5, out_part) || memcmp(at + 6, "-of-", 4) != 0 ||
        !read_digits(at + 10, 5, out_count) || strcmp(at + 15, ".gguf") != 0) {
        return NULL;
    }
    return at;
}

int model_part_path(const char *path, uint32_t part, char *out, size_t size, uint32_t *out_count)
{
    uint32_t own = 0;
    uint32_t count = 0;
    const char *at = find_part_suffix(path, &own, &count);

    if (at == NULL || part == 0 || part > count) {
        return -EINVAL;
    }
    const int length = snprintf(out, size, "%.*s-%05" PRIu32 "-of-%05" PRIu32 ".gguf",
                                (int)(at - path), path, part, count);
    if (length < 0 || (size_t)length >= size) {
        return -ENAMETOOLONG;
    }
    *out_count = count;
    return 0;
}

/* ---- The cache ---- */

/* What says that a file is the same: the line without the digest. */
static void describe(const kvarve_file_stat *stat, char out[CACHE_LINE_MAX])
{
    (void)snprintf(out, CACHE_LINE_MAX,
                   "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 " ", stat->device,
                   stat->inode, stat->size, stat->mtime_ns, stat->ctime_ns);
}

static char *cache_load(const model_digest_options *options)
{
    char *text = NULL;
    size_t size = 0;

    if (options->cache == NULL) {
        return NULL;
    }
    const kvarve_status status =
        io_read_file(options->io, options->cache, CACHE_BYTES_MAX, &text, &size, NULL);
    return status == KVARVE_OK ? text : NULL;
}

static bool cache_find(const char *cache, const kvarve_file_stat *stat, uint8_t out[SHA256_SIZE])
{
    char key[CACHE_LINE_MAX];

    describe(stat, key);
    for (const char *line = cache; line != NULL && *line != '\0';) {
        const size_t length = strcspn(line, "\n");
        if (strncmp(line, key, strlen(key)) == 0 && length == strlen(key) + 64 &&
            hex_decode(out, SHA256_SIZE, line + strlen(key))) {
            return true;
        }
        line += length;
        line += *line == '\n';
    }
    return false;
}

/* Make the folders of `path`; that it failed is seen when the file is written. */
static void make_folders(kvarve_io *io, const char *path)
{
    char folder[KVARVE_PATH_MAX];

    for (size_t i = 1; path[i] != '\0' && i < sizeof(folder); i++) {
        if (path[i] == '/') {
            memcpy(folder, path, i);
            folder[i] = '\0';
            (void)io->ops->make_directory(io, folder, 0700);
        }
    }
}

/* Put a line in front of those that were there; the oldest go. Failure costs time only. */
static void cache_add(const model_digest_options *options, const char *old,
                      const kvarve_file_stat *stat, const uint8_t digest[SHA256_SIZE])
{
    char folder[KVARVE_PATH_MAX];
    char *text = kvarve_allocate(CACHE_BYTES_MAX);
    size_t used = 0;
    const char *slash = strrchr(options->cache, '/');

    if (text == NULL) {
        return;
    }
    describe(stat, text);
    used = strlen(text);
    hex_encode(text + used, digest, SHA256_SIZE);
    used += (size_t)2 * SHA256_SIZE;
    text[used++] = '\n';
    for (size_t lines = 1; lines < CACHE_LINES_KEPT && old != NULL && *old != '\0'; lines++) {
        const size_t length = strcspn(old, "\n");
        if (length < CACHE_LINE_MAX && used + length + 1 < CACHE_BYTES_MAX) {
            memcpy(text + used, old, length);
            used += length;
            text[used++] = '\n';
        }
        old += length;
        old += *old == '\n';
    }
    size_t folder_length = slash == NULL ? 0 : (size_t)(slash - options->cache);
    if (folder_length >= sizeof(folder)) {
        kvarve_release(text);
        return;
    }
    if (folder_length > 0) {
        memcpy(folder, options->cache, folder_length);
    } else {
        folder[folder_length++] = slash == NULL ? '.' : '/';
    }
    folder[folder_length] = '\0';
    make_folders(options->io, options->cache);
    const kvarve_status status =
        io_replace_file(options->io, folder, options->cache, text, used, 0600, NULL);
    (void)status;
    kvarve_release(text);
}

/* ---- One file ---- */

static kvarve_status hash_file(const model_digest_options *options, kvarve_fd fd, const char *path,
                               uint64_t size, uint8_t out[SHA256_SIZE], kvarve_error *err)
{
    sha256_state state;
    uint8_t *bytes = kvarve_allocate(READ_BYTES);

    if (bytes == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "digest of %s", path);
    }
    sha256_init(&state);
    int rc = 0;
    for (uint64_t at = 0; at < size && rc == 0;) {
        const size_t many = size - at < READ_BYTES ? (size_t)(size - at) : READ_BYTES;
        rc = io_read_all(options->io, fd, bytes, many, at);
        if (rc == 0) {
            sha256_update(&state, bytes, many);
        }
        at += many;
        if (options->progress != NULL) {
            options->progress(options->progress_context, at, size);
        }
    }
    kvarve_release(bytes);
    if (rc != 0) {
        return kvarve_fail_io(err, rc, "read %s", path);
    }
    sha256_final(&state, out);
    return KVARVE_OK;
}

static bool is_same_file(const kvarve_file_stat *a, const kvarve_file_stat *b)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}

static kvarve_status digest_open_file(const model_digest_options *options, kvarve_fd fd,
                                      const char *path, uint8_t out[SHA256_SIZE], kvarve_error *err)
{
    kvarve_file_stat before;
    kvarve_file_stat after;
    kvarve_clock *clock = clock_posix();
    int rc = options->io->ops->stat_fd(options->io, fd, &before);

    if (rc < 0) {
        return kvarve_fail_io(err, rc, "look at %s", path);
    }
    if (before.kind != KVARVE_FILE_REGULAR) {
        return kvarve_fail(err, KVARVE_INVALID, "model: %s is no regular file", path);
    }
    char *cache = cache_load(options);
    kvarve_status status = KVARVE_OK;
    if (!cache_find(cache, &before, out)) {
        status = hash_file(options, fd, path, before.size, out, err);
        rc = options->io->ops->stat_fd(options->io, fd, &after);
        if (status == KVARVE_OK && (rc < 0 || !is_same_file(&before, &after))) {
            status = kvarve_fail(err, KVARVE_IO, "model: %s changed while it was read", path);
        }
        if (status == KVARVE_OK && options->cache != NULL &&
            clock->wall_s(clock) - after.ctime_ns / 1000000000 >= SETTLED_SECONDS) { /* I1 */
            cache_add(options, cache, &after, out);
        }
    }
    kvarve_release(cache);
    return status;
}

static kvarve_status digest_file(const model_digest_options *options, const char *path,
                                 uint8_t out[SHA256_SIZE], kvarve_error *err)
{
    kvarve_fd fd;
    const int rc = options->io->ops->open(options->io, path, KVARVE_OPEN_READ, 0, &fd);

    if (rc < 0) {
        return rc == -ENOENT ? kvarve_fail(err, KVARVE_MISS, "model: there is no file %s", path)
                             : kvarve_fail_io(err, rc, "open %s", path);
    }
    const kvarve_status status = digest_open_file(options, fd, path, out, err);
    options->io->ops->close(options->io, fd);
    return status;
}

static kvarve_status digest_parts(const model_digest_options *options, const char *path,
                                  uint32_t count, char out[MODEL_DIGEST_TEXT], kvarve_error *err)
{
    sha256_state all;
    uint8_t digest[SHA256_SIZE];
    char part_path[KVARVE_PATH_MAX];
    uint32_t parts = 0;
    kvarve_status status = KVARVE_OK;

    sha256_init(&all);
    for (uint32_t part = 1; part <= count && status == KVARVE_OK; part++) {
        const int rc = model_part_path(path, part, part_path, sizeof(part_path), &parts);
        status = rc == 0 ? digest_file(options, part_path, digest, err)
                         : kvarve_fail_io(err, rc, "part %" PRIu32 " of %s", part, path);
        sha256_update(&all, digest, sizeof(digest));
    }
    if (status != KVARVE_OK) {
        return status;
    }
    sha256_final(&all, digest);
    const int length = snprintf(out, MODEL_DIGEST_TEXT, "sha256-parts-%" PRIu32 ":", count);
    hex_encode(out + length, digest, sizeof(digest));
    return KVARVE_OK;
}

kvarve_status model_digest(const model_digest_options *options, const char *path,
                           char out[MODEL_DIGEST_TEXT], kvarve_error *err)
{
    static const char head[] = "sha256:";
    uint8_t digest[SHA256_SIZE];
    uint32_t part = 0;
    uint32_t count = 0;

    if (find_part_suffix(path, &part, &count) != NULL && count > 1) {
        if (part != 1 || count > MODEL_PARTS_MAX) {
            return kvarve_fail(err, KVARVE_INVALID, "model: %s: name the first of at most %d parts",
                               path, MODEL_PARTS_MAX);
        }
        return digest_parts(options, path, count, out, err);
    }
    const kvarve_status status = digest_file(options, path, digest, err);
    if (status == KVARVE_OK) {
        memcpy(out, head, sizeof(head) - 1);
        hex_encode(out + sizeof(head) - 1, digest, sizeof(digest));
    }
    return status;
}
