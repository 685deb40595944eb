/*
 * model_architecture.c - general.architecture of a GGUF file, and nothing else of it.
 *
 * A GGUF file begins: "GGUF", u32 version, u64 tensors, u64 members; a member is a string (its
 * key), u32 type, the value. A string is u64 length and bytes; an array u32 type, u64 count and the
 * elements. The architecture is usually the first member.
 *
 * Invariant: no number of the file is used before it was compared with what is there.
 * Threads: any. Ownership: nothing outlives the call.
 */
#include "llama/model_digest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "env/io_all.h"

#define GGUF_MEMBERS_MAX 65536
#define GGUF_STRING      8
#define GGUF_ARRAY       9
#define GGUF_KEY_MAX     256

typedef struct gguf_reader {
    kvarve_io *io;
    kvarve_fd fd;
    const char *path;
    uint64_t at;
    uint64_t size;
    kvarve_error *err;
} gguf_reader;

static kvarve_status take(gguf_reader *reader, void *out, size_t size)
{
    if (size > reader->size - reader->at) {
        return kvarve_fail(reader->err, KVARVE_CORRUPT, "model: the head of %s is cut off",
                           reader->path);
    }
    const int rc = io_read_all(reader->io, reader->fd, out, size, reader->at);
    if (rc < 0) {
        return kvarve_fail_io(reader->err, rc, "read %s", reader->path);
    }
    reader->at += size;
    return KVARVE_OK;
}

/* A little-endian number of `size` bytes. */
static kvarve_status take_number(gguf_reader *reader, size_t size, uint64_t *out)
{
    uint8_t bytes[8] = {0};
    const kvarve_status status = take(reader, bytes, size);

    *out = 0;
    for (size_t i = 0; i < size; i++) {
        *out |= (uint64_t)bytes[i] << (8 * i);
    }
    return status;
}

static kvarve_status skip(gguf_reader *reader, uint64_t count, uint64_t each)
{
    if (each != 0 && count > (reader->size - reader->at) / each) {
        return kvarve_fail(reader->err, KVARVE_CORRUPT, "model: the head of %s is cut off",
                           reader->path);
    }
    reader->at += count * each;
    return KVARVE_OK;
}

/* Bytes of a plain value; 0: it is a string, an array or unknown. */
static uint64_t type_size(uint64_t type)
{
    static const uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof(sizes) ? sizes[type] : 0;
}

static kvarve_status skip_strings(gguf_reader *reader, uint64_t count)
{
    kvarve_status status = KVARVE_OK;
    for (uint64_t i = 0; i < count && status == KVARVE_OK; i++) {
        uint64_t length = 0;
        status = take_number(reader, 8, &length);
        if (status == KVARVE_OK) {
            status = skip(reader, length, 1);
        }
    }
    return status;
}

static kvarve_status skip_value(gguf_reader *reader, uint64_t type)
{
    uint64_t count = 1;
    kvarve_status status = KVARVE_OK;

    if (type == GGUF_ARRAY) {
        status = take_number(reader, 4, &type);
        if (status == KVARVE_OK) {
            status = take_number(reader, 8, &count);
        }
    }
    if (status != KVARVE_OK) {
        return status;
    }
    if (type == GGUF_STRING) {
        return skip_strings(reader, count);
    }
    if (type_size(type) == 0) {
        return kvarve_fail(reader->err, KVARVE_CORRUPT, "model: %s has a value of type %" PRIu64,
                           reader->path, type);
    }
    return skip(reader, count, type_size(type));
}

/* A string of less than `size` bytes; longer ones are skipped and read as "". */
static kvarve_status take_string(gguf_reader *reader, char *out, size_t size)
{
    uint64_t length = 0;
    kvarve_status status = take_number(reader, 8, &length);

    out[0] = '\0';
    if (status != KVARVE_OK || length >= size) {
        return status == KVARVE_OK ? skip(reader, length, 1) : status;
    }
    status = take(reader, out, (size_t)length);
    out[length] = '\0';
    return status;
}

static kvarve_status take_head(gguf_reader *reader, uint64_t *out_members)
{
    char magic[4] = {0};
    uint64_t version = 0;
    uint64_t tensors = 0;
    kvarve_status status = take(reader, magic, sizeof(magic));

    if (status == KVARVE_OK && memcmp(magic, "GGUF", 4) != 0) {
        return kvarve_fail(reader->err, KVARVE_UNSUPPORTED, "model: %s is no GGUF file",
                           reader->path);
    }
    if (status == KVARVE_OK) {
        status = take_number(reader, 4, &version);
    }
    if (status == KVARVE_OK && version != 2 && version != 3) {
        return kvarve_fail(reader->err, KVARVE_UNSUPPORTED,
                           "model: %s is GGUF version %" PRIu64 "; 2 and 3 are known", reader->path,
                           version);
    }
    if (status == KVARVE_OK) {
        status = take_number(reader, 8, &tensors);
    }
    return status == KVARVE_OK ? take_number(reader, 8, out_members) : status;
}

static bool is_plain_name(const char *text)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    return text[0] != '\0' && text[strspn(text, allowed)] == '\0';
}

static kvarve_status find_architecture(gguf_reader *reader, char out[MODEL_ARCHITECTURE_TEXT])
{
    char key[GGUF_KEY_MAX];
    uint64_t members = 0;
    kvarve_status status = take_head(reader, &members);

    for (uint64_t i = 0; i < members && i < GGUF_MEMBERS_MAX && status == KVARVE_OK; i++) {
        uint64_t type = 0;
        status = take_string(reader, key, sizeof(key));
        if (status == KVARVE_OK) {
            status = take_number(reader, 4, &type);
        }
        if (status != KVARVE_OK) {
            break;
        }
        if (strcmp(key, "general.architecture") != 0 || type != GGUF_STRING) {
            status = skip_value(reader, type);
            continue;
        }
        status = take_string(reader, out, MODEL_ARCHITECTURE_TEXT);
        if (status == KVARVE_OK && is_plain_name(out)) {
            return KVARVE_OK;
        }
        break;
    }
    return status != KVARVE_OK ? status
                               : kvarve_fail(reader->err, KVARVE_CORRUPT,
                                             "model: %s names no architecture", reader->path);
}

kvarve_status model_architecture(kvarve_io *io, const char *path, char out[MODEL_ARCHITECTURE_TEXT],
                                 kvarve_error *err)
{
    gguf_reader reader = {.io = io, .path = path, .err = err};
    kvarve_file_stat stat;
    int rc = io->ops->open(io, path, KVARVE_OPEN_READ, 0, &reader.fd);

    if (rc < 0) {
        return rc == -ENOENT ? kvarve_fail(err, KVARVE_MISS, "model: there is no file %s", path)
                             : kvarve_fail_io(err, rc, "open %s", path);
    }
    rc = io->ops->stat_fd(io, reader.fd, &stat);
    reader.size = rc < 0 ? 0 : stat.size;
    const kvarve_status status =
        rc < 0 ? kvarve_fail_io(err, rc, "look at %s", path) : find_architecture(&reader, out);
    io->ops->close(io, reader.fd);
    return status;
}
