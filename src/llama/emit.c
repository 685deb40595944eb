/*
 * emit.c - one emission: search, write beside the output, rename.
 *
 * Invariants
 *   I1  The output is the whole new file or what was there before; a miss leaves no file behind.
 *   I2  A damaged page costs the boundary, not the emission: the next shorter one is tried.
 *
 * Threads: one.
 */
#include "llama/emit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "env/io_all.h"
#include "env/thread.h"
#include "llama/emit_private.h"

#define ATTEMPTS_MAX 5

static kvarve_status temporary_name(const char *output, char *out, size_t size, kvarve_error *err)
{
    const int length = snprintf(out, size, "%s.%" PRId64 ".tmp", output, process_id());

    return length > 0 && (size_t)length < size
               ? KVARVE_OK
               : kvarve_fail(err, KVARVE_INVALID, "the name %.100s... is too long", output);
}

static void fill_result(const emit_run *emission)
{
    const kvarve_boundary *boundary = &emission->source.boundaries[0];
    llama_emit_result *result = emission->result;

    result->tokens = boundary->tokens;
    result->kind = boundary->kind;
    result->is_derived = (boundary->flags & KVARVE_BOUNDARY_DERIVED) != 0;
    result->is_whole = emission->source.is_whole;
    memcpy(result->id, boundary->id, sizeof(result->id));
}

/* Find again, and begin the file again. */
static kvarve_status begin_again(emit_run *emission, kvarve_fd fd, kvarve_error *err)
{
    kvarve_io *io = emission->options->io;
    const kvarve_status status = emit_search_again(emission, err);

    if (status != KVARVE_OK) {
        return status;
    }
    const int rc = io->ops->truncate(io, fd, 0);
    return rc < 0 ? kvarve_fail_io(err, rc, "begin the slot file again") : KVARVE_OK;
}

/* Write until a boundary is whole. (I2) */
static kvarve_status write_some_boundary(emit_run *emission, kvarve_fd fd, kvarve_error *err)
{
    kvarve_status status = emit_write(emission, fd, err);

    for (int attempt = 1; attempt < ATTEMPTS_MAX && status == KVARVE_MISS; attempt++) {
        status = begin_again(emission, fd, err);
        if (status != KVARVE_OK) {
            return status;
        }
        status = emit_write(emission, fd, err);
    }
    if (status == KVARVE_MISS) {
        emission->result->miss.reason = KVARVE_MISS_DAMAGED;
    }
    return status;
}

static kvarve_status write_file(emit_run *emission, kvarve_error *err)
{
    kvarve_io *io = emission->options->io;
    const char *output = emission->options->output;
    char temporary[KVARVE_PATH_MAX];
    kvarve_fd fd;
    kvarve_status status = temporary_name(output, temporary, sizeof(temporary), err);

    if (status != KVARVE_OK) {
        return status;
    }
    int rc = io->ops->open(io, temporary, KVARVE_OPEN_CREATE | KVARVE_OPEN_TRUNCATE, 0600, &fd);
    if (rc < 0) {
        return kvarve_fail_io(err, rc, "make %s", temporary);
    }
    status = write_some_boundary(emission, fd, err);
    io->ops->close(io, fd);
    if (status == KVARVE_OK) {
        rc = io->ops->rename(io, temporary, output);
        status = rc < 0 ? kvarve_fail_io(err, rc, "rename %s to %s", temporary, output) : KVARVE_OK;
    }
    if (status != KVARVE_OK) {
        (void)io->ops->unlink(io, temporary); /* I1 */
    }
    return status;
}

static kvarve_status check_arguments(uint64_t token_count, const llama_emit_options *options,
                                     kvarve_error *err)
{
    if (token_count < 2 && options->max_tokens == 0) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "%" PRIu64 " tokens: at least two are needed, the last is read again",
                           token_count);
    }
    if (options->max_tokens > token_count) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "a boundary of at most %" PRIu64 " tokens: there are %" PRIu64,
                           options->max_tokens, token_count);
    }
    if (options->stream_count == 0 || options->stream_index >= options->stream_count) {
        return kvarve_fail(err, KVARVE_INVALID, "slot %" PRIu32 ": the server has %" PRIu32,
                           options->stream_index, options->stream_count);
    }
    return KVARVE_OK;
}

kvarve_status llama_emit(kvarve_store *store, const llama_identity *identity,
                         const uint32_t *tokens, uint64_t token_count,
                         const llama_emit_options *options, llama_emit_result *out,
                         kvarve_error *err)
{
    emit_run emission = {.store = store, .identity = identity, .options = options, .result = out};
    kvarve_status status = check_arguments(token_count, options, err);

    *out = (llama_emit_result){0};
    if (status == KVARVE_OK) {
        status = kvarve_prefix_create(&emission.prefix, err);
    }
    if (status == KVARVE_OK) {
        status = kvarve_prefix_append(emission.prefix, tokens, (size_t)token_count, err);
    }
    if (status == KVARVE_OK) {
        status = emit_search(&emission, err);
    }
    if (status == KVARVE_OK) {
        status = write_file(&emission, err);
    }
    if (status == KVARVE_OK) {
        fill_result(&emission);
    }
    emit_source_clear(&emission.source);
    kvarve_prefix_free(emission.prefix);
    return status;
}
