/*
 * listing_private.h - a store's checkpoints, as the subcommands that show them need them.
 *
 * Threads    One.
 * Ownership  cli_listing_read allocates, cli_listing_free ends it; items point into it.
 */
#ifndef KVARVE_CLI_LISTING_PRIVATE_H
#define KVARVE_CLI_LISTING_PRIVATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarve/admin.h"

#define CLI_ID_SHORT        12 /* hex digits of an id that people are shown */
#define CLI_NAMESPACE_SHORT 8  /* the same of a namespace */
#define CLI_ID_TEXT         65
#define CLI_AGE_TEXT        24

/* All checkpoints, most recently used first. */
typedef struct cli_listing {
    kvarve_checkpoint_info *items;
    size_t count;
    size_t room;
    bool is_short; /* memory ran out */
} cli_listing;

/* CLI_OK, or an exit code after a message. Free it in either case. */
int cli_listing_read(kvarve_store *store, bool is_json, cli_listing *out);
void cli_listing_free(cli_listing *listing);

/*
 * The one checkpoint whose id begins with these hex digits. CLI_OK; CLI_USAGE: no hex digits, or
 * several begin so; CLI_MISS: none does.
 */
int cli_listing_find(const cli_listing *listing, const char *text, bool is_json,
                     const kvarve_checkpoint_info **out);

/* The one with this id; NULL: none. */
const kvarve_checkpoint_info *cli_listing_at(const cli_listing *listing, const uint8_t id[32]);

/* Whether an id (or parent) is there at all: it is not zero. */
bool cli_id_is_set(const uint8_t id[32]);

/* The hex digits of a namespace's text, behind "recurrent-sha256-v1:". */
const char *cli_namespace_digits(const char *namespace_text);

/* Whether a namespace's text, or its digits alone, begins with `prefix`. */
bool cli_namespace_matches(const char *namespace_text, const char *prefix);

/* All of it, for programs. NULL: no memory. */
json_t *cli_checkpoint_json(const kvarve_checkpoint_info *info);

/* Its state for people: "damaged", else as cli_state_text. Its kind: "draft" for a draft half. */
const char *cli_checkpoint_state(const kvarve_checkpoint_info *info);
const char *cli_checkpoint_kind(const kvarve_checkpoint_info *info);

/* How long ago: "12 s", "3 min", "5 h", "9 d". Returns `out`. */
const char *cli_age_text(int64_t created_s, char out[CLI_AGE_TEXT]);

/* The identity document of a namespace; kvarve_release. NULL: not known, or no memory. */
char *cli_namespace_document(kvarve_store *store, const char *namespace_text);

/* The table of ls, its head first. */
void cli_print_head(void);
void cli_print_row(const kvarve_checkpoint_info *info);

#endif
