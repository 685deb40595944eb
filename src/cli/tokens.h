/*
 * tokens.h - token ids from a file's text: decimal numbers between whitespace and commas, or one
 * JSON array of them.
 *
 * Threads: any. Ownership: the list is the caller's (kvarve_release).
 */
#ifndef KVARVE_CLI_TOKENS_H
#define KVARVE_CLI_TOKENS_H

#include <stddef.h>
#include <stdint.h>

#include "env/io.h"
#include "kvarve/error.h"
#include "kvarve/prefix.h"

/* Bytes of a file of token ids: ten digits and a separator each. */
#define TOKENS_TEXT_MAX ((size_t)KVARVE_PREFIX_TOKENS_MAX * 12)

/*
 * Parse `size` bytes. KVARVE_INVALID names line and column: an id of KVARVE_TOKEN_LIMIT or more,
 * over KVARVE_PREFIX_TOKENS_MAX of them, anything that is no number, none at all.
 */
KVARVE_NODISCARD kvarve_status tokens_parse(const char *text, size_t size, uint32_t **out,
                                            size_t *out_count, kvarve_error *err);

/* The same from a file; "-" is no name for stdin. KVARVE_INVALID also when it is not there. */
KVARVE_NODISCARD kvarve_status tokens_load(kvarve_io *io, const char *path, uint32_t **out,
                                           size_t *out_count, kvarve_error *err);

#endif
