/*
 * model_digest.h - which weights a model file holds: a digest of its content, and its architecture.
 *
 * Digests are SHA-256 over the whole content, because they stand in identities. They are cached by
 * device, inode, size, mtime and ctime, so that a model of 20 GB is read once.
 *
 * Threads    Any; two processes that write one cache at once may lose entries, never falsify them.
 * Ownership  Results are copied out.
 */
#ifndef KVARVE_LLAMA_MODEL_DIGEST_H
#define KVARVE_LLAMA_MODEL_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#include "env/io.h"
#include "kvarve/admin.h"
#include "kvarve/error.h"

#define MODEL_DIGEST_TEXT       96 /* bytes of a digest as text, NUL included */
#define MODEL_ARCHITECTURE_TEXT 64
#define MODEL_PARTS_MAX         1024

typedef struct model_digest_options {
    kvarve_io *io;
    const char *cache;        /* file of known digests, made when absent; NULL: none */
    kvarve_progress progress; /* in bytes; NULL: none */
    void *progress_context;
} model_digest_options;

/*
 * Write "sha256:" and 64 hex digits: of the file's content, or for the first of several parts
 * (NAME-00001-of-0000N.gguf) "sha256-parts-N:" and the digest over the parts' digests.
 *
 * KVARVE_MISS: no such file; KVARVE_INVALID: no regular file, or a part other than the first;
 * KVARVE_IO. A cache that cannot be read or written costs time only.
 */
KVARVE_NODISCARD kvarve_status model_digest(const model_digest_options *options, const char *path,
                                            char out[MODEL_DIGEST_TEXT], kvarve_error *err);

/*
 * general.architecture of a GGUF file. KVARVE_UNSUPPORTED: no GGUF, or another version of it than 2
 * and 3; KVARVE_CORRUPT: its head is damaged or names no architecture.
 */
KVARVE_NODISCARD kvarve_status model_architecture(kvarve_io *io, const char *path,
                                                  char out[MODEL_ARCHITECTURE_TEXT],
                                                  kvarve_error *err);

/*
 * The path of part `part` (1 ..) of a model whose first part is `path`; -EINVAL when the name has
 * no such form, -ENAMETOOLONG. *out_count: how many parts there are.
 */
int model_part_path(const char *path, uint32_t part, char *out, size_t size, uint32_t *out_count);

#endif
