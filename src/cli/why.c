/*
 * why.c - the subcommand `kvarve why`: why given tokens hit or miss.
 *
 * A namespace is known here by the identity document that is kept beside the store. Opened again
 * from it, it gets the same name, unless it was salted with another text than --salt: then it can
 * not be asked, and that is said.
 *
 * Invariants
 *   I1  A namespace is asked only where its name comes out the same.
 *   I2  The salt is not printed.
 *
 * Threads    One.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/cli.h"
#include "cli/listing_private.h"
#include "cli/tokens.h"
#include "env/env_posix.h"
#include "kvarve/checkpoint.h"

#define BOUNDARIES_MAX 8u /* that are shown */

static const cli_usage usage = {
    .synopsis = "why --store DIR --tokens-file FILE [--namespace PREFIX] [--salt TEXT] [--json]",
    .about = "Explain what a store has for these tokens, namespace by namespace: the boundaries\n"
             "that can be restored, longest first, and why there is none, or none longer. Nothing\n"
             "is changed. Namespaces with a salt are asked when --salt has it.",
    .below =
        "Example:\n"
        "  kvarve why --store /var/lib/kvarve --tokens-file turn-4.json\n\n"
        "A file's tokens are written as for `kvarve llama emit`. Damaged pages are found when\n"
        "they are read: `kvarve verify` reads them all.\n\n"
        "With --json one object: {\"store\", \"tokens\", \"longest\", \"namespaces\": [...]}\n"
        "(docs/cli.md).\n\n"
        "Exit codes: 0 a boundary was found, 2 no tokens or a wrong option, 3 none was found,\n"
        "or no store, 4 in use (the pid is named), 5 damaged (kvarve rebuild), 6 of a newer\n"
        "version.",
};

typedef struct question {
    cli_common common;
    const char *prefix; /* of namespaces */
    const char *salt;   /* NULL: none */
    uint64_t min_tokens;
    uint64_t max_tokens;
    kvarve_store *store;
    kvarve_prefix *tokens;
    cli_listing listing;
    json_t *answers;  /* one a namespace */
    uint64_t longest; /* boundary found anywhere */
} question;

/* ---- A namespace from its document ---- */

/* A namespace's options, with what they point to. */
typedef struct reopening {
    kvarve_namespace_options options;
    kvarve_group groups[KVARVE_GROUPS_MAX];
    json_t *document;
    char *identity; /* json_dumps' */
    char *numerics;
} reopening;

static void free_reopening(reopening *again)
{
    json_decref(again->document);
    kvarve_release(again->identity);
    kvarve_release(again->numerics);
}

/* A member that is a number below 2^32; false when it is not. */
static bool read_number(const json_t *object, const char *name, uint32_t *out)
{
    const json_t *value = json_object_get(object, name);

    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > UINT32_MAX) {
        return false;
    }
    *out = (uint32_t)json_integer_value(value);
    return true;
}

static bool read_group(const json_t *object, kvarve_group *out)
{
    static const char *const classes[] = {"prefix", "window", "endpoint", "auxiliary"};
    const char *text = json_string_value(json_object_get(object, "class"));

    for (uint32_t i = 0; text != NULL && i < sizeof(classes) / sizeof(classes[0]); i++) {
        if (strcmp(classes[i], text) == 0) {
            out->page_class = i;
            return read_number(object, "flags", &out->flags) &&
                   read_number(object, "span", &out->span_tokens) &&
                   read_number(object, "window", &out->window_tokens) &&
                   read_number(object, "bytes", &out->page_bytes);
        }
    }
    return false;
}

static bool read_layout(const json_t *layout, reopening *out)
{
    const json_t *groups = json_object_get(layout, "groups");
    const size_t count = json_array_size(groups);
    uint32_t is_exact = 0;

    if (count == 0 || count > KVARVE_GROUPS_MAX ||
        !read_number(layout, "ranks", &out->options.rank_count) ||
        !read_number(layout, "exact", &is_exact)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!read_group(json_array_get(groups, i), &out->groups[i])) {
            return false;
        }
    }
    out->options.groups = out->groups;
    out->options.group_count = (uint32_t)count;
    out->options.flags = is_exact != 0 ? KVARVE_NAMESPACE_EXACT : 0;
    return true;
}

/* A JSON text of one's own; NULL: no memory. */
static char *dump(const json_t *value)
{
    const size_t flags = JSON_COMPACT | JSON_SORT_KEYS | JSON_ENSURE_ASCII;
    const size_t size = json_dumpb(value, NULL, 0, flags);
    char *text = size == 0 ? NULL : kvarve_allocate(size + 1);

    if (text != NULL) {
        (void)json_dumpb(value, text, size, flags);
    }
    return text;
}

/* Take a document apart into what kvarve_namespace_open put together. */
static bool read_document(const char *text, reopening *out)
{
    json_t *identity;

    out->options = (kvarve_namespace_options)KVARVE_NAMESPACE_OPTIONS_INIT;
    out->document = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(out->document) ||
        !read_layout(json_object_get(out->document, "kvarve"), out)) {
        return false;
    }
    identity = json_copy(out->document);
    (void)json_object_del(identity, "kvarve");
    (void)json_object_del(identity, "numerics");
    out->identity = dump(identity);
    out->numerics = dump(json_object_get(out->document, "numerics"));
    json_decref(identity);
    out->options.identity_json = out->identity;
    out->options.numerics_json = out->numerics;
    return out->identity != NULL && out->numerics != NULL;
}

/* ---- One namespace ---- */

/* What one namespace says. */
typedef struct answer {
    const char *namespace_text;
    const char *obstacle; /* why it could not be asked; NULL: it was */
    json_t *identity;     /* borrowed; NULL: not known */
    kvarve_boundary boundaries[BOUNDARIES_MAX];
    size_t count; /* 0: a miss */
    kvarve_miss miss;
    size_t stored; /* checkpoints in it */
    size_t longer; /* of them those with more tokens than the longest boundary found */
} answer;

static void count_stored(const question *ask, answer *out)
{
    const uint64_t found = out->count > 0 ? out->boundaries[0].tokens : 0;

    for (size_t i = 0; i < ask->listing.count; i++) {
        const kvarve_checkpoint_info *info = &ask->listing.items[i];

        if (strcmp(info->namespace_text, out->namespace_text) == 0) {
            out->stored++;
            out->longer += info->tokens > found;
        }
    }
}

static int look(const question *ask, kvarve_namespace *space, answer *out)
{
    kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
    kvarve_error err = {0};
    kvarve_status status;

    if (strcmp(kvarve_namespace_text(space), out->namespace_text) != 0) { /* I1 */
        out->obstacle = ask->salt == NULL ? "it has a salt: give it with --salt"
                                          : "it has no salt, or another one than --salt";
        return CLI_OK;
    }
    options.min_tokens = ask->min_tokens;
    options.max_tokens = ask->max_tokens;
    status = kvarve_find(space, ask->tokens, &options, out->boundaries, BOUNDARIES_MAX, &out->count,
                         NULL, &out->miss, &err);
    return status == KVARVE_OK || status == KVARVE_MISS
               ? CLI_OK
               : cli_fail(ask->common.is_json, status, &err);
}

static int ask_namespace(const question *ask, reopening *again, answer *out)
{
    char *text = cli_namespace_document(ask->store, out->namespace_text);
    kvarve_namespace *space = NULL;
    kvarve_error err = {0};
    kvarve_status status;
    int code;

    if (text == NULL) {
        out->obstacle = "its identity document is missing or damaged; the next put writes it again";
        return CLI_OK;
    }
    if (!read_document(text, again)) {
        kvarve_release(text);
        out->obstacle = "its identity document is not one that this version can read";
        return CLI_OK;
    }
    kvarve_release(text);
    out->identity = again->document;
    again->options.salt = ask->salt;
    status = kvarve_namespace_open(ask->store, &again->options, &space, &err);
    if (status != KVARVE_OK) {
        return cli_fail(ask->common.is_json, status, &err);
    }
    code = look(ask, space, out);
    kvarve_namespace_release(&space);
    return code;
}

/* ---- Printing ---- */

static json_t *boundary_json(const kvarve_boundary *found)
{
    const bool is_derived = (found->flags & KVARVE_BOUNDARY_DERIVED) != 0;

    return json_pack("{s:I,s:s,s:b,s:o,s:I,s:s}", "tokens", (json_int_t)found->tokens, "kind",
                     cli_kind_text(found->kind), "is_derived", is_derived, "id",
                     is_derived ? json_null() : cli_json_hex(found->id, sizeof(found->id)), "bytes",
                     (json_int_t)found->bytes, "state", cli_state_text(found->state));
}

static json_t *answer_json(const answer *found)
{
    json_t *boundaries = json_array();
    const bool is_miss = found->obstacle == NULL && found->count == 0;

    for (size_t i = 0; i < found->count; i++) {
        (void)json_array_append_new(boundaries, boundary_json(&found->boundaries[i]));
    }
    return json_pack("{s:s,s:O?,s:I,s:I,s:s?,s:o,s:s?,s:I,s:I,s:s}", "namespace",
                     found->namespace_text, "identity", found->identity, "checkpoints",
                     (json_int_t)found->stored, "longer", (json_int_t)found->longer, "obstacle",
                     found->obstacle, "boundaries", boundaries, "reason",
                     is_miss ? kvarve_miss_text(found->miss.reason) : NULL, "common_tokens",
                     (json_int_t)(is_miss ? found->miss.common_tokens : 0), "nearest_tokens",
                     (json_int_t)(is_miss ? found->miss.nearest_tokens : 0), "field",
                     is_miss ? found->miss.field : "");
}

static void print_miss(const question *ask, const answer *found)
{
    const kvarve_miss *miss = &found->miss;

    (void)printf("  a miss: %s\n", kvarve_miss_text(miss->reason));
    if (miss->common_tokens > 0) {
        (void)printf("  the longest stored boundary that these tokens begin with has %" PRIu64
                     " tokens\n",
                     miss->common_tokens);
    }
    switch (miss->reason) {
    case KVARVE_MISS_LIMITS:
        (void)printf("  the longest boundary of these tokens has %" PRIu64
                     "; --min-tokens is %" PRIu64 ", --max-tokens %" PRIu64 "\n",
                     miss->nearest_tokens, ask->min_tokens, ask->max_tokens);
        break;
    case KVARVE_MISS_NUMERICS:
    case KVARVE_MISS_NAMESPACE:
        (void)printf("  another namespace has %" PRIu64
                     " of these tokens; the first field that differs is \"%s\"\n",
                     miss->nearest_tokens, miss->field);
        break;
    case KVARVE_MISS_DAMAGED:
        (void)printf("  the damaged page is of group %" PRIu32 "\n", miss->group);
        break;
    case KVARVE_MISS_TOKENS:
        (void)printf("  none of its %zu checkpoints begins as these tokens do\n", found->stored);
        break;
    default:
        break;
    }
}

static void print_hit(const question *ask, const answer *found)
{
    const uint64_t length = kvarve_prefix_length(ask->tokens);
    const uint64_t longest = found->boundaries[0].tokens;

    for (size_t i = 0; i < found->count; i++) {
        const kvarve_boundary *boundary = &found->boundaries[i];
        char size[CLI_SIZE_TEXT];

        (void)printf("  %s %" PRIu64 " tokens, %s, %s, %s\n",
                     i == 0 ? "a hit: " : "also:  ", boundary->tokens,
                     (boundary->flags & KVARVE_BOUNDARY_DERIVED) != 0
                         ? "a page's end"
                         : cli_kind_text(boundary->kind),
                     cli_size_text(boundary->bytes, size), cli_state_text(boundary->state));
    }
    if (longest == length) {
        (void)printf("  no longer one is possible: these are all tokens\n");
    } else if (ask->max_tokens != 0 && longest == ask->max_tokens) {
        (void)printf("  no longer one is asked for: --max-tokens is %" PRIu64 "\n",
                     ask->max_tokens);
    } else if (found->longer == 0) {
        (void)printf("  none longer: nothing longer is stored in this namespace\n");
    } else {
        (void)printf(
            "  none longer: %zu of this namespace have more tokens, but other ones, or more "
            "than these %" PRIu64 "\n",
            found->longer, length);
    }
}

static void print_answer(const question *ask, const answer *found)
{
    (void)printf("namespace %.*s (%zu checkpoint%s)\n", CLI_NAMESPACE_SHORT,
                 cli_namespace_digits(found->namespace_text), found->stored,
                 found->stored == 1 ? "" : "s");
    if (found->obstacle != NULL) {
        (void)printf("  not asked: %s\n", found->obstacle);
    } else if (found->count == 0) {
        print_miss(ask, found);
    } else {
        print_hit(ask, found);
    }
}

/* ---- All namespaces ---- */

static int explain_namespace(question *ask, const char *namespace_text)
{
    reopening *again = kvarve_allocate(sizeof(*again));
    answer found = {.namespace_text = namespace_text};
    int code = again == NULL ? cli_fail_text(ask->common.is_json, CLI_NO_SPACE, "no memory")
                             : ask_namespace(ask, again, &found);

    if (code == CLI_OK) {
        count_stored(ask, &found);
        if (found.count > 0 && found.boundaries[0].tokens > ask->longest) {
            ask->longest = found.boundaries[0].tokens;
        }
        if (ask->common.is_json) {
            (void)json_array_append_new(ask->answers, answer_json(&found));
        } else {
            print_answer(ask, &found);
        }
    }
    if (again != NULL) {
        free_reopening(again);
    }
    kvarve_release(again);
    return code;
}

/* Whether an item before this one is of the same namespace. */
static bool is_seen(const cli_listing *listing, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (listing->items[i].is_draft == 0 &&
            strcmp(listing->items[i].namespace_text, listing->items[index].namespace_text) == 0) {
            return true;
        }
    }
    return false;
}

static int explain_all(question *ask)
{
    size_t asked = 0;
    int code = cli_listing_read(ask->store, ask->common.is_json, &ask->listing);

    for (size_t i = 0; i < ask->listing.count && code == CLI_OK; i++) {
        const kvarve_checkpoint_info *info = &ask->listing.items[i];

        if (info->is_draft == 0 && cli_namespace_matches(info->namespace_text, ask->prefix) &&
            !is_seen(&ask->listing, i)) {
            asked++;
            code = explain_namespace(ask, info->namespace_text);
        }
    }
    if (code != CLI_OK) {
        return code;
    }
    if (ask->common.is_json) {
        code = cli_json_print(json_pack("{s:s,s:I,s:I,s:O}", "store", ask->common.store, "tokens",
                                        (json_int_t)kvarve_prefix_length(ask->tokens), "longest",
                                        (json_int_t)ask->longest, "namespaces", ask->answers));
    } else if (asked == 0) {
        (void)printf("nothing is stored%s%s\n",
                     ask->prefix[0] == '\0' ? "" : " in a namespace that begins with ",
                     ask->prefix);
    }
    return code == CLI_OK && ask->longest == 0 ? CLI_MISS : code;
}

static int read_prefix(question *ask, const char *path)
{
    uint32_t *tokens = NULL;
    size_t count = 0;
    kvarve_error err = {0};
    kvarve_status status = tokens_load(io_posix(), path, &tokens, &count, &err);

    if (status == KVARVE_OK) {
        status = kvarve_prefix_create(&ask->tokens, &err);
    }
    if (status == KVARVE_OK) {
        status = kvarve_prefix_append(ask->tokens, tokens, count, &err);
    }
    kvarve_release(tokens);
    return status == KVARVE_OK ? CLI_OK : cli_fail(ask->common.is_json, status, &err);
}

int cli_why(int argument_count, char **arguments)
{
    question ask = {.common = CLI_COMMON_INIT, .prefix = ""};
    const char *path = NULL;
    const cli_option options[] = {
        CLI_COMMON_OPTIONS(&ask.common),
        {.name = "tokens-file",
         .value = "FILE",
         .kind = CLI_TEXT,
         .target = &path,
         .is_required = true,
         .help = "The tokens, as for `kvarve llama emit`."},
        {.name = "namespace",
         .value = "PREFIX",
         .kind = CLI_TEXT,
         .target = &ask.prefix,
         .help = "Only namespaces that begin with these digits."},
        {.name = "salt",
         .value = "TEXT",
         .kind = CLI_TEXT,
         .target = &ask.salt,
         .help = "The salt of the namespaces that are asked. Default: none."},
        {.name = "min-tokens",
         .value = "N",
         .kind = CLI_COUNT,
         .target = &ask.min_tokens,
         .help = "Shortest boundary of use. Default: 1."},
        {.name = "max-tokens",
         .value = "N",
         .kind = CLI_COUNT,
         .target = &ask.max_tokens,
         .help = "Longest boundary of use; `llama emit` takes one less than there are tokens. "
                 "Default: all."},
        {0},
    };
    char **positional = NULL;
    size_t count = 0;
    int code = CLI_OK;

    if (!cli_parse(&usage, options, argument_count, arguments, &positional, &count, &code)) {
        return code;
    }
    code = read_prefix(&ask, path);
    if (code == CLI_OK) {
        ask.answers = json_array();
        code = cli_store_open(&ask.common, KVARVE_OPEN_READ_ONLY | KVARVE_OPEN_EXISTING, 0,
                              &ask.store);
    }
    if (code == CLI_OK) {
        code = explain_all(&ask);
        kvarve_close(ask.store);
    }
    cli_listing_free(&ask.listing);
    json_decref(ask.answers);
    kvarve_prefix_free(ask.tokens);
    return code;
}
