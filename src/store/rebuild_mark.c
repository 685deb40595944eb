/*
 * rebuild_mark.c - the file DIR/rebuild: a rebuild of the index has begun and has not ended.
 *
 * Between the removal of the old index and the durable end of the new one the folder's index says
 * too little. Were the power to go there, an open that trusts it would take the space of
 * checkpoints it does not know. So:
 *   I1  The mark is durable before the old index goes.
 *   I2  It goes only when the new index, without what did not verify, is durable.
 *   I3  An open that finds it rebuilds again, or, for reading only, is refused.
 *
 * Threads: rebuild_mark_find and rebuild_mark_set block, at open; the rest under the store's lock,
 * the removal as a job.
 */
#include <errno.h>

#include "base/fail.h"
#include "env/io_all.h"
#include "store/store_private.h"

static int mark_path(const store_machine *store, char out[KVARVE_PATH_MAX])
{
    return io_join_path(out, KVARVE_PATH_MAX, store->directory, "rebuild");
}

kvarve_status rebuild_mark_find(store_machine *store, kvarve_error *err)
{
    kvarve_io *io = store->env.io;
    char path[KVARVE_PATH_MAX];
    kvarve_file_stat stat;
    int rc = mark_path(store, path);

    rc = rc == 0 ? io->ops->stat(io, path, &stat) : rc;
    if (rc == -ENOENT) {
        return KVARVE_OK;
    }
    if (rc != 0) {
        return kvarve_fail_io(err, rc, "look for a rebuild of store %s", store->directory);
    }
    if (store->is_read_only) {
        return kvarve_fail(err, KVARVE_CORRUPT,
                           "open store %s: a rebuild of its index did not end (kvarve rebuild)",
                           store->directory);
    }
    store->options.flags |= KVARVE_OPEN_REBUILD; /* I3 */
    return KVARVE_OK;
}

kvarve_status rebuild_mark_set(store_machine *store, kvarve_error *err)
{
    kvarve_io *io = store->env.io;
    char path[KVARVE_PATH_MAX];
    kvarve_fd fd = -1;
    int rc = mark_path(store, path);

    rc = rc == 0 ? io->ops->open(io, path, KVARVE_OPEN_CREATE, 0600, &fd) : rc;
    if (rc == 0) {
        io->ops->close(io, fd);
        rc = io->ops->sync_directory(io, store->directory); /* I1 */
    }
    return rc == 0 ? KVARVE_OK : kvarve_fail_io(err, rc, "begin a rebuild of %s", store->directory);
}

/* Where this fails the next open rebuilds once more. */
static void run_removal(kvarve_job *job)
{
    const store_machine *store = KVARVE_LIST_ITEM(job, store_machine, rebuild_job);
    char path[KVARVE_PATH_MAX];

    if (mark_path(store, path) == 0 && store->env.io->ops->unlink(store->env.io, path) == 0) {
        (void)store->env.io->ops->sync_directory(store->env.io, store->directory);
    }
}

static void removal_done(kvarve_job *job)
{
    KVARVE_LIST_ITEM(job, store_machine, rebuild_job)->is_opening = false;
}

/* What did not verify was dropped, and its records are still being wiped or written. Each of these
 * ends by itself, also when it fails. */
static bool has_drops_to_tell(const store_machine *store)
{
    return !store->is_failed &&
           (wipe_is_due(store) ||
            (store->wants_drop_record && !kvarve_list_is_empty(&store->tombstones_pending)));
}

void rebuild_mark_settle(store_machine *store)
{
    if (!store->is_rebuilt || store->commit != NULL || has_drops_to_tell(store)) {
        return;
    }
    store->is_rebuilt = false;
    if (!store_is_settled(store) || store->is_failed) { /* I2 */
        store->is_opening = false;
        return;
    }
    store->rebuild_job =
        (kvarve_job){.lane = KVARVE_LANE_WRITE, .run = run_removal, .done = removal_done};
    store->env.executor->submit(store->env.executor, &store->rebuild_job);
}
