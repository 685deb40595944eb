/*
 * store_file.h - the store's own small file (`store`), which makes a folder a store: identity and
 * versions. Text, so that a person can read it: lines `name value`, the last one a digest of those
 * before. docs/format/store.md. Pure.
 */
#ifndef KVARVE_FORMAT_STORE_FILE_H
#define KVARVE_FORMAT_STORE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "format/batch.h"
#include "kvarve/error.h"

#define STORE_FILE_SIZE_MAX 4096u
#define STORE_FORMERS_MAX   16u
#define STORE_FORMAT        1u /* version of everything in the folder */

typedef struct store_file {
    uint32_t format;     /* version it was written with */
    store_uuid uuid;     /* of this folder */
    uint64_t lock_inode; /* inode of its lock file: a copied folder has another, and becomes a store
                            of its own */
    uint32_t former_count;
    store_uuid formers[STORE_FORMERS_MAX]; /* uuids this folder had before it was copied; their
                                              records are its too */
} store_file;

/* Write the text into out[STORE_FILE_SIZE_MAX]; returns its length. */
size_t store_file_encode(const store_file *file, char *out);

/* KVARVE_CORRUPT, or KVARVE_UNSUPPORTED for a newer format, naming both versions. */
KVARVE_NODISCARD kvarve_status store_file_decode(const char *text, size_t size, store_file *out,
                                                 kvarve_error *err);

#endif
