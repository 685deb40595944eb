/*
 * store_file.c - the text of the file `store`.
 *
 * Invariants
 *   I1  One store_file has one text: what decodes encodes to the same bytes. Decoding reads the
 *       fields, encodes them and compares, so there is one description of the text and no second
 *       one to disagree with it.
 *   I2  The first line (name and version) and the last (digest of the lines before) are the same in
 *       every version, so a newer file is told from a damaged one.
 *
 * Threads: any; nothing allocates.
 */
#include "format/store_file.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/fail.h"
#include "hash/hash.h"

#define DIGEST_LINE_SIZE (sizeof "digest \n" - 1 + 32)
#define UUID_TEXT_SIZE   33

static_assert(64 + STORE_FORMERS_MAX * 40 + 128 < STORE_FILE_SIZE_MAX, "the longest text fits");

/* A text that is being written. */
typedef struct writer {
    char *text;
    size_t size;
} writer;

__attribute__((format(printf, 2, 3))) static void add(writer *to, const char *format, ...)
{
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(to->text + to->size, STORE_FILE_SIZE_MAX - to->size, format, args);
    va_end(args);
    KVARVE_ASSERT(length >= 0 && (size_t)length < STORE_FILE_SIZE_MAX - to->size);
    to->size += (size_t)length;
}

static void add_uuid(writer *to, const char *name, const store_uuid *uuid)
{
    char text[UUID_TEXT_SIZE];

    hex_encode(text, uuid->bytes, sizeof uuid->bytes);
    add(to, "%s %s\n", name, text);
}

size_t store_file_encode(const store_file *file, char *out)
{
    writer to = {.text = out};
    page_digest digest;
    char digest_text[UUID_TEXT_SIZE];

    KVARVE_ASSERT(file->former_count <= STORE_FORMERS_MAX);

    add(&to, "kvarve-store %" PRIu32 "\n", file->format);
    add_uuid(&to, "uuid", &file->uuid);
    add(&to, "lock-inode %" PRIu64 "\n", file->lock_inode);
    for (uint32_t i = 0; i < file->former_count; i++) {
        add_uuid(&to, "former", &file->formers[i]);
    }
    digest = page_digest_of(out, to.size);
    hex_encode(digest_text, digest.bytes, sizeof digest.bytes);
    add(&to, "digest %s\n", digest_text);
    return to.size;
}

/* A text that is being read; `left` bytes of it. */
typedef struct cursor {
    const char *at;
    size_t left;
} cursor;

/* Go past `word` if it comes next. */
static bool skip(cursor *in, const char *word)
{
    const size_t size = strlen(word);

    if (in->left < size || memcmp(in->at, word, size) != 0) {
        return false;
    }
    in->at += size;
    in->left -= size;
    return true;
}

static bool read_number(cursor *in, uint64_t max, uint64_t *out)
{
    uint64_t value = 0;
    size_t digits = 0;

    for (; digits < in->left && in->at[digits] >= '0' && in->at[digits] <= '9'; digits++) {
        const uint64_t digit = (uint64_t)(in->at[digits] - '0');

        if (value > (max - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    in->at += digits;
    in->left -= digits;
    *out = value;
    return digits > 0;
}

/* `name`, a space, a number, the end of the line. */
static bool read_number_line(cursor *in, const char *name, uint64_t max, uint64_t *out)
{
    return skip(in, name) && skip(in, " ") && read_number(in, max, out) && skip(in, "\n");
}

static bool read_uuid_line(cursor *in, const char *name, store_uuid *out)
{
    if (!skip(in, name) || !skip(in, " ") || in->left < 32 ||
        !hex_decode(out->bytes, sizeof out->bytes, in->at)) {
        return false;
    }
    in->at += 32;
    in->left -= 32;
    return skip(in, "\n");
}

/* The last line is the digest of all before it. */
static bool digest_holds(const char *text, size_t size)
{
    char line[DIGEST_LINE_SIZE + 1];
    char hex[UUID_TEXT_SIZE];
    page_digest digest;

    if (size < DIGEST_LINE_SIZE) {
        return false;
    }
    digest = page_digest_of(text, size - DIGEST_LINE_SIZE);
    hex_encode(hex, digest.bytes, sizeof digest.bytes);
    (void)snprintf(line, sizeof line, "digest %s\n", hex);
    return memcmp(line, text + size - DIGEST_LINE_SIZE, DIGEST_LINE_SIZE) == 0;
}

/* The lines of this version after the first. */
static bool read_fields(cursor *in, store_file *out)
{
    if (!read_uuid_line(in, "uuid", &out->uuid) ||
        !read_number_line(in, "lock-inode", UINT64_MAX, &out->lock_inode)) {
        return false;
    }
    while (out->former_count < STORE_FORMERS_MAX &&
           read_uuid_line(in, "former", &out->formers[out->former_count])) {
        out->former_count++;
    }
    return true; /* What follows is judged by writing it again. */
}

static bool is_its_text(const store_file *file, const char *text, size_t size)
{
    char again[STORE_FILE_SIZE_MAX];

    return store_file_encode(file, again) == size && memcmp(again, text, size) == 0;
}

kvarve_status store_file_decode(const char *text, size_t size, store_file *out, kvarve_error *err)
{
    cursor in = {.at = text, .left = size};
    store_file file = {0};
    uint64_t format = 0;

    if (size > STORE_FILE_SIZE_MAX || !digest_holds(text, size)) {
        return kvarve_fail(err, KVARVE_CORRUPT, "store file: the digest is wrong");
    }
    if (!read_number_line(&in, "kvarve-store", UINT32_MAX, &format) || format == 0) {
        return kvarve_fail(err, KVARVE_CORRUPT, "store file: the first line is malformed");
    }
    if (format > STORE_FORMAT) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED,
                           "store file: format %" PRIu64 ", known up to %u", format, STORE_FORMAT);
    }
    file.format = (uint32_t)format;
    if (!read_fields(&in, &file) || !is_its_text(&file, text, size)) { /* I1 */
        return kvarve_fail(err, KVARVE_CORRUPT, "store file: a line is malformed");
    }
    *out = file;
    return KVARVE_OK;
}
