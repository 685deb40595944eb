/*
 * epoch.c - which life of the store this is, so that later records have later numbers.
 *
 * A record whose commit never finished stays in its header zone, unknown to the index. A rebuild
 * finds it, and must not take it for a later one than those that were committed after it: it would
 * void their ids and places. So:
 *   I1  All sequences and ids of an epoch are at least epoch * EPOCH_IDS, and those of every
 * earlier record, committed or not, are below. I2  An epoch is durable before the first record of
 * its life is written. A life that writes none uses none up: known content writes nothing, also
 * after a restart. I3  When the file is lost (people remove lock files), a random distance takes
 * its place.
 *
 * DIR/lock holds it, in two slots of 24 bytes at 0 and 4096, written in turn, so that a torn write
 * leaves the other: a magic number, the epoch, and its complement, little-endian.
 *
 * Threads: epoch_begin blocks, at open; epoch_keep runs in the job before the records.
 */
#include <assert.h>
#include <errno.h>

#include "base/checked.h"
#include "base/fail.h"
#include "env/io_all.h"
#include "store/store_private.h"

#define EPOCH_MAGIC   UINT64_C(0x68636f7065766b01)
#define EPOCH_IDS     (UINT64_C(1) << 24)
#define EPOCH_MAX     (UINT64_C(1) << 38) /* numbers stay below 2^63 */
#define EPOCH_STEP    2u /* a commit that never finished is shorter than one epoch's ids */
#define LOST_EPOCHS   (UINT64_C(1) << 16)
#define SLOT_DISTANCE 4096u

typedef struct epoch_slot {
    uint64_t magic;
    uint64_t epoch;
    uint64_t complement;
} epoch_slot;

static_assert(sizeof(epoch_slot) == 24, "as on the disk");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "as on the disk");

/* The epoch in slot `which`; 0: none. */
static int read_slot(const store_machine *store, uint32_t which, uint64_t *out)
{
    epoch_slot slot = {0};
    const int rc = io_read_all(store->env.io, store->lock_fd, &slot, sizeof slot,
                               (uint64_t)which * SLOT_DISTANCE);
    const bool is_good = rc == 0 && slot.magic == EPOCH_MAGIC && slot.epoch == ~slot.complement &&
                         slot.epoch < EPOCH_MAX;

    *out = is_good ? slot.epoch : 0;
    return rc == -ENODATA ? 0 : rc;
}

/* Content may be torn, sizes are ours: no slot, one or two. */
bool epoch_is_foreign(const store_machine *store)
{
    kvarve_io *io = store->env.io;
    kvarve_file_stat stat;

    return io->ops->stat_fd(io, store->lock_fd, &stat) == 0 && stat.size != 0 &&
           stat.size != sizeof(epoch_slot) && stat.size != SLOT_DISTANCE + sizeof(epoch_slot);
}

static kvarve_status draw_lost(store_machine *store, uint64_t *out, kvarve_error *err)
{
    const int rc = store->env.random->fill(store->env.random, out, sizeof *out);

    *out %= LOST_EPOCHS;
    return rc == 0 ? KVARVE_OK
                   : kvarve_fail_io(err, rc, "draw a number for store %s", store->directory);
}

kvarve_status epoch_begin(store_machine *store, kvarve_error *err)
{
    uint64_t *const next[] = {&store->next_sequence, &store->next_page, &store->next_span,
                              &store->next_commit_checkpoint};
    uint64_t slots[2] = {0, 0};
    uint64_t lost = 0;
    uint64_t epoch;
    int rc = read_slot(store, 0, &slots[0]);

    rc = rc == 0 ? read_slot(store, 1, &slots[1]) : rc;
    if (rc != 0) {
        return kvarve_fail_io(err, rc, "read the lock of store %s", store->directory);
    }
    epoch = kvarve_max_u64(slots[0], slots[1]);
    if (epoch == 0 && store->next_sequence > 1) { /* I3 */
        const kvarve_status status = draw_lost(store, &lost, err);

        if (status != KVARVE_OK) {
            return status;
        }
    }
    for (size_t i = 0; i < sizeof next / sizeof *next; i++) {
        epoch = kvarve_max_u64(epoch, *next[i] / EPOCH_IDS);
    }
    store->epoch = epoch + lost + EPOCH_STEP;
    store->epoch_slot = slots[0] > slots[1] ? 1 : 0;
    for (size_t i = 0; i < sizeof next / sizeof *next; i++) {
        *next[i] = kvarve_max_u64(*next[i], store->epoch * EPOCH_IDS); /* I1 */
    }
    return KVARVE_OK;
}

int epoch_keep(const store_machine *store)
{
    const epoch_slot slot = {
        .magic = EPOCH_MAGIC, .epoch = store->epoch, .complement = ~store->epoch};
    kvarve_io *io = store->env.io;
    const int rc = io_write_all(io, store->lock_fd, &slot, sizeof slot,
                                (uint64_t)store->epoch_slot * SLOT_DISTANCE);

    return rc == 0 ? io->ops->sync(io, store->lock_fd) : rc;
}
