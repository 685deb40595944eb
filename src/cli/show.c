/*
 * show.c - the subcommand `kvarve show`: everything of one checkpoint.
 *
 * Threads    One.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/cli.h"
#include "cli/listing_private.h"
#include "hash/hash.h"

static const cli_usage usage = {
    .synopsis = "show ID --store DIR [--json]",
    .about =
        "Show one checkpoint: what it grew from, up to the root; what only it holds; its\n"
        "state; and the identity document of its namespace: the model, engine and layout that\n"
        "its bytes fit. ID may be shortened to the digits that tell it apart. Nothing in the\n"
        "store is changed.",
    .below = "Example:\n"
             "  kvarve show 3f2a9c --store /var/lib/kvarve\n\n"
             "With --json one object: that of `kvarve ls`, and \"lineage\", \"children\",\n"
             "\"draft\" and \"identity\" (docs/cli.md).\n\n"
             "Exit codes: 0 done, 2 no id, or several begin so, 3 no such checkpoint or store, 4\n"
             "in use (the pid is named), 5 damaged (kvarve rebuild), 6 of a newer version.",
    .positional_min = 1,
    .positional_max = 1,
};

typedef struct shown {
    const cli_listing *listing;
    const kvarve_checkpoint_info *info;
    const kvarve_checkpoint_info *draft; /* its draft half; NULL: none */
    size_t children;                     /* that grew from it */
    char *document;                      /* NULL: not known */
} shown;

static bool is_same_id(const uint8_t a[32], const uint8_t b[32])
{
    return memcmp(a, b, 32) == 0;
}

/* The draft half came with the same put: same boundary, kind and time. */
static bool is_draft_of(const kvarve_checkpoint_info *draft, const kvarve_checkpoint_info *base)
{
    return draft->is_draft != 0 && base->is_draft == 0 && draft->tokens == base->tokens &&
           draft->kind == base->kind && draft->created_s == base->created_s;
}

static void look_around(shown *what)
{
    for (size_t i = 0; i < what->listing->count; i++) {
        const kvarve_checkpoint_info *other = &what->listing->items[i];

        if (is_same_id(other->parent_id, what->info->id)) {
            what->children++;
        }
        if (is_draft_of(other, what->info)) {
            what->draft = other;
        }
    }
}

/* What it grew from. The chain has no circle: a parent has fewer tokens. */
static const kvarve_checkpoint_info *parent_of(const shown *what,
                                               const kvarve_checkpoint_info *info)
{
    const kvarve_checkpoint_info *parent =
        cli_id_is_set(info->parent_id) ? cli_listing_at(what->listing, info->parent_id) : NULL;

    return parent != NULL && parent->tokens < info->tokens ? parent : NULL;
}

static int print_json(const shown *what)
{
    json_t *object = cli_checkpoint_json(what->info);
    json_t *lineage = json_array();
    const kvarve_checkpoint_info *at = parent_of(what, what->info);

    for (; at != NULL; at = parent_of(what, at)) {
        (void)json_array_append_new(
            lineage, json_pack("{s:o,s:I,s:s,s:I,s:I}", "id", cli_json_hex(at->id, 32), "tokens",
                               (json_int_t)at->tokens, "kind", cli_kind_text(at->kind), "bytes",
                               (json_int_t)at->bytes, "bytes_own", (json_int_t)at->bytes_own));
    }
    (void)json_object_set_new(object, "lineage", lineage);
    (void)json_object_set_new(object, "children", json_integer((json_int_t)what->children));
    (void)json_object_set_new(object, "draft",
                              what->draft == NULL ? json_null() : cli_checkpoint_json(what->draft));
    (void)json_object_set_new(object, "identity",
                              what->document == NULL ? json_null()
                                                     : json_loads(what->document, 0, NULL));
    return cli_json_print(object);
}

static void print_lineage(const shown *what)
{
    const kvarve_checkpoint_info *at = parent_of(what, what->info);

    (void)printf("\nlineage, up to the root:\n");
    cli_print_head();
    cli_print_row(what->info);
    for (; at != NULL; at = parent_of(what, at)) {
        cli_print_row(at);
    }
}

static void print_identity(const shown *what)
{
    json_t *document = what->document == NULL ? NULL : json_loads(what->document, 0, NULL);

    (void)printf("\nidentity document of its namespace:\n");
    if (document == NULL) {
        (void)printf("not known: its file is missing or damaged; the next put writes it again\n");
        return;
    }
    (void)json_dumpf(document, stdout, JSON_INDENT(2) | JSON_SORT_KEYS);
    (void)putchar('\n');
    json_decref(document);
}

static void print_size(const char *name, uint64_t bytes, const char *note)
{
    char text[CLI_SIZE_TEXT];

    (void)printf("%-12s %s (%" PRIu64 " bytes)%s\n", name, cli_size_text(bytes, text), bytes, note);
}

static void print_text(const shown *what)
{
    const kvarve_checkpoint_info *info = what->info;
    char id[CLI_ID_TEXT];
    char age[CLI_AGE_TEXT];

    hex_encode(id, info->id, sizeof(info->id));
    (void)printf("%-12s %s\n%-12s %s\n%-12s %" PRIu64 ", end of %s%s\n", "id", id, "namespace",
                 info->namespace_text, "tokens", info->tokens, cli_kind_text(info->kind),
                 info->is_draft != 0 ? " (the draft half of another checkpoint)" : "");
    (void)printf("%-12s %s%s\n", "state", cli_checkpoint_state(info),
                 info->is_damaged != 0 ? ": it is not found until a put repairs it" : "");
    print_size("size", info->bytes, "");
    print_size("own", info->bytes_own, ", in pages that no other checkpoint has");
    print_size("in RAM", info->bytes_in_ram, "");
    (void)printf("%-12s %" PRIu32 "\n%-12s %s ago\n", "pages", info->pages, "stored",
                 cli_age_text(info->created_s, age));
    (void)printf("%-12s %zu checkpoint%s grew from it; %" PRIu32 " lease%s held\n", "use",
                 what->children, what->children == 1 ? "" : "s", info->leases,
                 info->leases == 1 ? " is" : "s are");
    if (what->draft != NULL) {
        hex_encode(id, what->draft->id, sizeof(what->draft->id));
        (void)printf("%-12s %s, valid for %" PRIu64 " tokens, %s\n", "draft half", id,
                     what->draft->draft_tokens, cli_checkpoint_state(what->draft));
    } else if (info->is_draft == 0) {
        (void)printf("%-12s none\n", "draft half");
    }
    print_lineage(what);
    print_identity(what);
}

static int show_one(const cli_common *common, const char *id, kvarve_store *store)
{
    cli_listing listing;
    shown what = {.listing = &listing};
    int code = cli_listing_read(store, common->is_json, &listing);

    if (code == CLI_OK) {
        code = cli_listing_find(&listing, id, common->is_json, &what.info);
    }
    if (code == CLI_OK) {
        look_around(&what);
        what.document = cli_namespace_document(store, what.info->namespace_text);
        if (common->is_json) {
            code = print_json(&what);
        } else {
            print_text(&what);
        }
        kvarve_release(what.document);
    }
    cli_listing_free(&listing);
    return code;
}

int cli_show(int argument_count, char **arguments)
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
    code = cli_store_open(&common, KVARVE_OPEN_READ_ONLY | KVARVE_OPEN_EXISTING, 0, &store);
    if (code == CLI_OK) {
        code = show_one(&common, ids[0], store);
        kvarve_close(store);
    }
    return code;
}
