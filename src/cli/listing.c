/*
 * listing.c - a store's checkpoints for the subcommands that show them: read, found by the first
 * digits of an id, printed.
 *
 * The listing is copied, since the store must not be called while it lists.
 *
 * Threads    One.
 */
#include "cli/listing_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/cli.h"
#include "env/env_posix.h"
#include "hash/hash.h"

#define ITEMS_FIRST 64u
#define ID_SIZE     32u

#define MINUTE INT64_C(60) /* ages are in seconds */
#define HOUR   (60 * MINUTE)
#define DAY    (24 * HOUR)

static int add_item(void *context, const kvarve_checkpoint_info *info)
{
    cli_listing *listing = context;

    if (listing->count == listing->room) {
        const size_t room = listing->room == 0 ? ITEMS_FIRST : 2 * listing->room;
        void *larger = kvarve_reallocate(listing->items, room * sizeof(*listing->items));

        if (larger == NULL) {
            listing->is_short = true;
            return 0;
        }
        listing->items = larger;
        listing->room = room;
    }
    listing->items[listing->count++] = *info;
    return 1;
}

int cli_listing_read(kvarve_store *store, bool is_json, cli_listing *out)
{
    kvarve_error err = {0};
    kvarve_status status;

    *out = (cli_listing){0};
    status = kvarve_list_checkpoints(store, add_item, out, &err);
    if (status != KVARVE_OK) {
        return cli_fail(is_json, status, &err);
    }
    return out->is_short ? cli_fail_text(is_json, CLI_NO_SPACE, "no memory for %zu checkpoints",
                                         2 * out->count)
                         : CLI_OK;
}

void cli_listing_free(cli_listing *listing)
{
    kvarve_release(listing->items);
    *listing = (cli_listing){0};
}

int cli_listing_find(const cli_listing *listing, const char *text, bool is_json,
                     const kvarve_checkpoint_info **out)
{
    const size_t length = strlen(text);
    const kvarve_checkpoint_info *found = NULL;
    size_t matches = 0;

    if (length == 0 || length >= CLI_ID_TEXT || strspn(text, "0123456789abcdef") != length) {
        return cli_fail_text(is_json, CLI_USAGE,
                             "\"%s\" is no id: 1 to 64 of the digits 0-9 and a-f", text);
    }
    for (size_t i = 0; i < listing->count; i++) {
        char id[CLI_ID_TEXT];

        hex_encode(id, listing->items[i].id, ID_SIZE);
        if (strncmp(id, text, length) == 0) {
            found = &listing->items[i];
            matches++;
        }
    }
    if (matches == 0) {
        return cli_fail_text(is_json, CLI_MISS, "there is no checkpoint %s (kvarve ls)", text);
    }
    if (matches > 1) {
        return cli_fail_text(is_json, CLI_USAGE, "%zu checkpoints begin with %s: give more digits",
                             matches, text);
    }
    *out = found;
    return CLI_OK;
}

const kvarve_checkpoint_info *cli_listing_at(const cli_listing *listing, const uint8_t id[32])
{
    for (size_t i = 0; i < listing->count; i++) {
        if (memcmp(listing->items[i].id, id, ID_SIZE) == 0) {
            return &listing->items[i];
        }
    }
    return NULL;
}

bool cli_id_is_set(const uint8_t id[32])
{
    static const uint8_t none[ID_SIZE];

    return memcmp(id, none, ID_SIZE) != 0;
}

const char *cli_namespace_digits(const char *namespace_text)
{
    const char *colon = strchr(namespace_text, ':');

    return colon == NULL ? namespace_text : colon + 1;
}

bool cli_namespace_matches(const char *namespace_text, const char *prefix)
{
    const size_t length = strlen(prefix);

    return strncmp(namespace_text, prefix, length) == 0 ||
           strncmp(cli_namespace_digits(namespace_text), prefix, length) == 0;
}

json_t *cli_checkpoint_json(const kvarve_checkpoint_info *info)
{
    return json_pack("{s:o,s:s,s:I,s:I,s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b,s:b,s:o*}", "id",
                     cli_json_hex(info->id, ID_SIZE), "namespace", info->namespace_text, "tokens",
                     (json_int_t)info->tokens, "draft_tokens", (json_int_t)info->draft_tokens,
                     "kind", cli_kind_text(info->kind), "state", cli_state_text(info->state),
                     "bytes", (json_int_t)info->bytes, "bytes_own", (json_int_t)info->bytes_own,
                     "bytes_in_ram", (json_int_t)info->bytes_in_ram, "pages",
                     (json_int_t)info->pages, "created", (json_int_t)info->created_s, "used",
                     (json_int_t)info->used, "leases", (json_int_t)info->leases, "is_damaged",
                     info->is_damaged != 0, "is_draft", info->is_draft != 0, "parent",
                     cli_id_is_set(info->parent_id) ? cli_json_hex(info->parent_id, ID_SIZE)
                                                    : json_null());
}

const char *cli_checkpoint_state(const kvarve_checkpoint_info *info)
{
    return info->is_damaged != 0 ? "damaged" : cli_state_text(info->state);
}

const char *cli_checkpoint_kind(const kvarve_checkpoint_info *info)
{
    return info->is_draft != 0 ? "draft" : cli_kind_text(info->kind);
}

const char *cli_age_text(int64_t created_s, char out[CLI_AGE_TEXT])
{
    kvarve_clock *clock = clock_posix();
    const int64_t age = clock->wall_s(clock) - created_s;

    if (created_s == 0) {
        (void)snprintf(out, CLI_AGE_TEXT, "-");
    } else if (age < 2 * MINUTE) {
        (void)snprintf(out, CLI_AGE_TEXT, "%" PRId64 " s", age < 0 ? 0 : age);
    } else if (age < 2 * HOUR) {
        (void)snprintf(out, CLI_AGE_TEXT, "%" PRId64 " min", age / MINUTE);
    } else if (age < 2 * DAY) {
        (void)snprintf(out, CLI_AGE_TEXT, "%" PRId64 " h", age / HOUR);
    } else {
        (void)snprintf(out, CLI_AGE_TEXT, "%" PRId64 " d", age / DAY);
    }
    return out;
}

char *cli_namespace_document(kvarve_store *store, const char *namespace_text)
{
    size_t size = 0;
    char *text;

    if (kvarve_namespace_document(store, namespace_text, NULL, 0, &size, NULL) != KVARVE_NO_SPACE) {
        return NULL;
    }
    text = kvarve_allocate(size);
    if (text != NULL &&
        kvarve_namespace_document(store, namespace_text, text, size, &size, NULL) != KVARVE_OK) {
        kvarve_release(text);
        text = NULL;
    }
    return text;
}

void cli_print_head(void)
{
    (void)printf("%-*s  %-*s  %9s  %-11s  %10s  %10s  %-8s  %7s  %s\n", CLI_ID_SHORT, "ID",
                 CLI_NAMESPACE_SHORT + 1, "NAMESPACE", "TOKENS", "KIND", "SIZE", "OWN", "STATE",
                 "AGE", "RAM");
}

static const char *ram_text(const kvarve_checkpoint_info *info)
{
    if (info->bytes_in_ram == 0) {
        return "no";
    }
    return info->bytes_in_ram < info->bytes ? "part" : "yes";
}

void cli_print_row(const kvarve_checkpoint_info *info)
{
    char id[CLI_ID_TEXT];
    char size[CLI_SIZE_TEXT];
    char own[CLI_SIZE_TEXT];
    char age[CLI_AGE_TEXT];

    hex_encode(id, info->id, ID_SIZE);
    (void)printf("%.*s  %-*.*s  %9" PRIu64 "  %-11s  %10s  %10s  %-8s  %7s  %s\n", CLI_ID_SHORT, id,
                 CLI_NAMESPACE_SHORT + 1, CLI_NAMESPACE_SHORT,
                 cli_namespace_digits(info->namespace_text), info->tokens,
                 cli_checkpoint_kind(info), cli_size_text(info->bytes, size),
                 cli_size_text(info->bytes_own, own), cli_checkpoint_state(info),
                 cli_age_text(info->created_s, age), ram_text(info));
}
