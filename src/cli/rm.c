/*
 * rm.c - the subcommand `kvarve rm`: drop checkpoints.
 *
 * Invariants
 *   I1  Every id is looked up before the first is dropped: a wrong one drops nothing.
 *
 * Threads    One.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/cli.h"
#include "cli/listing_private.h"
#include "hash/hash.h"

#define DIGITS_MIN 4u /* a slip of the finger should name nothing */

static const cli_usage usage = {
    .synopsis = "rm ID... --store DIR [--json]",
    .about = "Drop checkpoints, each with its draft half. Pages that others share stay. ID may be\n"
             "shortened to the digits that tell it apart, four at least. If one is wrong, none is\n"
             "dropped. The space is used again by later puts; `kvarve gc` gives it back to the\n"
             "disk.",
    .below = "Example:\n"
             "  kvarve rm 3f2a9c 77d01b --store /var/lib/kvarve\n\n"
             "With --json one object: {\"dropped\": [id...], \"bytes\": N}, the bytes that only\n"
             "they had.\n\n"
             "Exit codes: 0 dropped, durably; 2 no id, or several begin so; 3 no such checkpoint\n"
             "or store; 4 it is being restored, or the store is in use (the pid is named); 5\n"
             "damaged (kvarve rebuild); 6 of a newer version.",
    .positional_min = 1,
    .positional_max = SIZE_MAX,
};

static int find_all(const cli_common *common, const cli_listing *listing, char **ids, size_t count,
                    const kvarve_checkpoint_info **out)
{
    int code = CLI_OK;

    for (size_t i = 0; i < count && code == CLI_OK; i++) {
        code = strlen(ids[i]) < DIGITS_MIN
                   ? cli_fail_text(common->is_json, CLI_USAGE, "\"%s\": %u digits at least", ids[i],
                                   DIGITS_MIN)
                   : cli_listing_find(listing, ids[i], common->is_json, &out[i]);
    }
    return code;
}

/* Drop them. One that is gone already went with its other half, or was named twice. */
static int drop_all(const cli_common *common, kvarve_store *store,
                    const kvarve_checkpoint_info **found, size_t count)
{
    json_t *dropped = json_array();
    uint64_t bytes = 0;
    char size[CLI_SIZE_TEXT];
    int code = CLI_OK;

    for (size_t i = 0; i < count && code == CLI_OK; i++) {
        char id[CLI_ID_TEXT];
        kvarve_error err = {0};
        const kvarve_status status = kvarve_drop(store, found[i]->id, &err);

        hex_encode(id, found[i]->id, sizeof(found[i]->id));
        if (status == KVARVE_OK) {
            bytes += found[i]->bytes_own;
            (void)json_array_append_new(dropped, json_string(id));
        } else if (status == KVARVE_BUSY) {
            code = cli_fail_text(common->is_json, CLI_BUSY, "%s is being restored", id);
        } else if (status != KVARVE_MISS) {
            code = cli_fail(common->is_json, status, &err);
        }
    }
    if (code == CLI_OK && common->is_json) {
        return cli_json_print(
            json_pack("{s:o,s:I}", "dropped", dropped, "bytes", (json_int_t)bytes));
    }
    if (!common->is_json) {
        (void)printf("dropped %zu checkpoint%s, which alone had %s\n", json_array_size(dropped),
                     json_array_size(dropped) == 1 ? "" : "s", cli_size_text(bytes, size));
    }
    json_decref(dropped);
    return code;
}

static int remove_ids(const cli_common *common, kvarve_store *store, char **ids, size_t count)
{
    const kvarve_checkpoint_info **found =
        (const kvarve_checkpoint_info **)kvarve_allocate_array(count, sizeof(*found));
    cli_listing listing = {0};
    int code;

    if (found == NULL) {
        return cli_fail_text(common->is_json, CLI_NO_SPACE, "no memory");
    }
    code = cli_listing_read(store, common->is_json, &listing);
    if (code == CLI_OK) {
        code = find_all(common, &listing, ids, count, found);
    }
    if (code == CLI_OK) { /* I1 */
        code = drop_all(common, store, found, count);
    }
    cli_listing_free(&listing);
    kvarve_release((void *)found);
    return code;
}

int cli_rm(int argument_count, char **arguments)
{
    cli_common common = CLI_COMMON_INIT;
    const cli_option options[] = {CLI_COMMON_OPTIONS(&common), {0}};
    char **ids = NULL;
    size_t count = 0;
    kvarve_store *store = NULL;
    int code = CLI_OK;

    if (!cli_parse(&usage, options, argument_count, arguments, &ids, &count, &code)) {
        return code;
    }
    code = cli_store_open(&common, KVARVE_OPEN_EXISTING, 0, &store);
    if (code == CLI_OK) {
        code = remove_ids(&common, store, ids, count);
        kvarve_close(store);
    }
    return code;
}
