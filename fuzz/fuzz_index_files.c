/*
 * fuzz_index_files.c - opening, loading and writing an index whose files are damaged or anything.
 *
 * The first byte chooses. 0: the rest are edits (offset in three bytes, value in one) of a good
 * database, then of its log. Else: the rest is the database and the log, cut at the first byte's
 * share. Nothing may crash or leak, rows come in order, and only statuses of damage are answered.
 *
 * Links: base env simulate index
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "index/index_private.h"
#include "simulate/world.h"

#define DIRECTORY  "store"
#define DATABASE   DIRECTORY "/index.db"
#define LOG        DIRECTORY "/index.db-wal"
#define ROWS       24u
#define EDIT_BYTES 4u

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static sim_world *host;
static world_snapshot *prepared;

static void require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

static void ignore_done(index_transaction *transaction, void *context)
{
    (void)transaction;
    (void)context;
}

/* One transaction of everything that a transaction can do. */
static kvarve_status write_row(kvarve_index *index, uint64_t sequence)
{
    static const uint8_t body[6000] = {1, 2, 3};
    const index_batch batch = {
        .sequence = sequence, .body = body, .size = 1 + sequence * 251 % sizeof body};
    const index_drop drop = {.checkpoint = sequence, .sequence = sequence};
    const index_recency recency = {.checkpoint = sequence, .used = sequence};
    const uint64_t dead = sequence > 8 ? sequence - 7 : 1000;
    index_transaction transaction = {
        .batches = &batch,
        .batch_count = 1,
        .dead_batches = &dead,
        .dead_batch_count = 1,
        .drops = &drop,
        .drop_count = 1,
        .recency = &recency,
        .recency_count = 1,
        .done = ignore_done,
    };

    index_submit(index, &transaction);
    world_poll_all(host);
    return transaction.status;
}

static kvarve_status open_index(kvarve_index **out)
{
    const index_options options = {.log_bytes_max = UINT64_C(1) << 20};

    return index_open(world_env(host), DIRECTORY, &options, out, NULL);
}

/* A host with a good index: some rows in the database, some in the log. */
static void prepare(void)
{
    const kvarve_env *env;
    kvarve_index *index = NULL;

    host = world_create(1);
    env = world_env(host);
    require(env->io->ops->make_directory(env->io, DIRECTORY, 0700) == 0);
    require(open_index(&index) == KVARVE_OK);
    index_set_limits(index, 12, UINT64_C(24) * INDEX_FRAME_BYTES); /* several checkpoints */
    for (uint64_t i = 1; i <= ROWS; i++) {
        require(write_row(index, i) == KVARVE_OK);
    }
    index_close(index);
    world_flush(host);
    prepared = world_take_snapshot(host);
}

static void edit_files(const uint8_t *bytes, size_t size)
{
    uint64_t database_size = 0;
    uint64_t log_size = 0;

    require(world_size(host, DATABASE, &database_size) == 0);
    require(world_size(host, LOG, &log_size) == 0);
    for (size_t at = 0; at + EDIT_BYTES <= size; at += EDIT_BYTES) {
        uint64_t offset = bytes[at] | (uint64_t)bytes[at + 1] << 8 | (uint64_t)bytes[at + 2] << 16;

        offset %= database_size + log_size;
        if (offset < database_size) {
            require(world_overwrite(host, DATABASE, offset, &bytes[at + 3], 1) == 0);
        } else {
            require(world_overwrite(host, LOG, offset - database_size, &bytes[at + 3], 1) == 0);
        }
    }
}

static void replace_files(uint8_t share, const uint8_t *bytes, size_t size)
{
    const size_t database_size = size * share / UINT8_MAX;

    require(world_put_file(host, DATABASE, bytes, database_size) == 0);
    require(world_put_file(host, LOG, bytes + database_size, size - database_size) == 0);
}

static kvarve_status see_batch(void *context, uint64_t sequence, const void *body, size_t size,
                               kvarve_error *err)
{
    uint64_t *last = context;
    volatile uint8_t sum = 0;

    (void)err;
    require(sequence > *last && sequence <= INT64_MAX);
    require(size > 0 && size <= UINT32_C(1) << 20);
    *last = sequence;
    for (size_t i = 0; i < size; i++) {
        sum = (uint8_t)(sum ^ ((const uint8_t *)body)[i]); /* every byte can be read */
    }
    return KVARVE_OK;
}

static kvarve_status see_dropped(void *context, uint64_t checkpoint, kvarve_error *err)
{
    (void)context;
    (void)err;
    require(checkpoint > 0);
    return KVARVE_OK;
}

static kvarve_status see_recency(void *context, uint64_t checkpoint, uint64_t used,
                                 kvarve_error *err)
{
    (void)context;
    (void)err;
    require(checkpoint > 0 && used <= INT64_MAX);
    return KVARVE_OK;
}

static void use_index(kvarve_index *index)
{
    uint64_t last = 0;
    const index_visitor visitor = {
        .context = &last, .batch = see_batch, .dropped = see_dropped, .recency = see_recency};
    const kvarve_status loaded = index_load(index, &visitor, NULL);
    kvarve_status written;

    require(loaded == KVARVE_OK || loaded == KVARVE_CORRUPT);
    (void)!index_verify(index, NULL); /* any answer, but no crash */
    written = write_row(index, last < INT64_MAX ? last + 1 : 1);
    require(written != KVARVE_OK || !index_is_failed(index));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    kvarve_index *index = NULL;
    kvarve_status status;

    if (host == NULL) {
        prepare();
    }
    if (size == 0) {
        return 0;
    }
    world_restore(host, prepared, 1);
    if (bytes[0] == 0) {
        edit_files(bytes + 1, size - 1);
    } else {
        replace_files(bytes[0], bytes + 1, size - 1);
    }
    status = open_index(&index);
    if (status == KVARVE_OK) {
        use_index(index);
        index_close(index);
    }
    require(status == KVARVE_OK || status == KVARVE_CORRUPT || status == KVARVE_UNSUPPORTED ||
            status == KVARVE_IO);
    require(world_open_descriptors(host) == 0);
    return 0;
}
