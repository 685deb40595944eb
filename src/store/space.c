/*
 * space.c - what a caller's namespace is: validated groups, an identity document, and one space of
 * the catalog, or two where there are draft groups.
 *
 * The optional groups make a companion space: their document is that of the base with the draft
 * identity in it and their own layout, so that another drafter loses them alone.
 *
 * Invariants
 *   I1  The layout and exactness are part of the document, hence of the digest: a space that comes
 *       from records has the layout of whoever opens it later under that digest.
 *   I2  The two spaces' groups together are the caller's, each once, in the caller's order.
 *   I3  Spaces stay until the store is closed: pages and records name them. SPACES_MAX bounds them.
 *
 * Threads: under the store's lock. Ownership: a namespace is freed by its last release; a space
 * only counts those that name it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/fail.h"
#include "store/store_private.h"

#define SPACES_MAX       65536u
#define DERIVED_SPAN_MAX (UINT64_C(1) << 24) /* tokens: the longest prefix */
#define LAYOUT_GROUP_MAX 128u /* characters of one group in a layout's text, more than can be */
#define ALL_FLAGS                                                                                  \
    (KVARVE_GROUP_REPLICATED | KVARVE_GROUP_ROWS | KVARVE_GROUP_DRAFT_ROWS |                       \
     KVARVE_GROUP_VARIABLE | KVARVE_GROUP_OPTIONAL)

static bool is_optional(const kvarve_group *group)
{
    return (group->flags & KVARVE_GROUP_OPTIONAL) != 0;
}

static bool has_tokens(const kvarve_group *group)
{
    return group->page_class == KVARVE_CLASS_PREFIX || group->page_class == KVARVE_CLASS_WINDOW;
}

/* --- validation --- */

/* Answer for one number of one group. */
static kvarve_status check_field(uint32_t group, const char *field, uint32_t value, uint32_t min,
                                 uint32_t max, kvarve_error *err)
{
    if (value >= min && value <= max) {
        return KVARVE_OK;
    }
    return kvarve_fail(err, KVARVE_INVALID, "namespace: group %u: %s is %u, not in %u .. %u", group,
                       field, value, min, max);
}

static kvarve_status check_flags(uint32_t number, const kvarve_group *group, kvarve_error *err)
{
    static const struct {
        uint32_t flag;
        const char *name;
    } of_tokens[] = {
        {KVARVE_GROUP_ROWS, "ROWS"},
        {KVARVE_GROUP_DRAFT_ROWS, "DRAFT_ROWS"},
    };

    if ((group->flags & ~ALL_FLAGS) != 0) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "namespace: group %u: flags is 0x%x, only bits of 0x%x are known",
                           number, group->flags, ALL_FLAGS);
    }
    for (size_t i = 0; i < sizeof of_tokens / sizeof *of_tokens; i++) {
        if ((group->flags & of_tokens[i].flag) != 0 && !has_tokens(group)) {
            return kvarve_fail(err, KVARVE_INVALID,
                               "namespace: group %u: flags has %s, which is for prefix and window",
                               number, of_tokens[i].name);
        }
    }
    if ((group->flags & KVARVE_GROUP_VARIABLE) != 0 && has_tokens(group)) {
        return kvarve_fail(
            err, KVARVE_INVALID,
            "namespace: group %u: flags has VARIABLE, which is for endpoint and auxiliary", number);
    }
    return KVARVE_OK;
}

static kvarve_status check_sizes(uint32_t number, const kvarve_group *group, kvarve_error *err)
{
    const bool is_window = group->page_class == KVARVE_CLASS_WINDOW;
    const uint32_t span_min = has_tokens(group) ? 1 : 0;
    const uint32_t span_max = has_tokens(group) ? KVARVE_SPAN_MAX : 0;
    kvarve_status status =
        check_field(number, "span_tokens", group->span_tokens, span_min, span_max, err);

    if (status == KVARVE_OK) {
        status = check_field(number, "window_tokens", group->window_tokens, is_window ? 1 : 0,
                             is_window ? UINT32_MAX : 0, err);
    }
    if (status == KVARVE_OK) {
        status =
            check_field(number, "page_bytes", group->page_bytes, 1, KVARVE_PAGE_BYTES_MAX, err);
    }
    if (status == KVARVE_OK && (group->flags & KVARVE_GROUP_ROWS) != 0 &&
        group->page_bytes % group->span_tokens != 0) {
        status = kvarve_fail(err, KVARVE_INVALID,
                             "namespace: group %u: page_bytes is %u, not a multiple of its %u "
                             "span_tokens, as ROWS needs",
                             number, group->page_bytes, group->span_tokens);
    }
    return status;
}

static kvarve_status check_group(uint32_t number, const kvarve_group *group, kvarve_error *err)
{
    kvarve_status status =
        check_field(number, "page_class", group->page_class, 0, KVARVE_CLASS_AUXILIARY, err);

    if (status == KVARVE_OK) {
        status = check_flags(number, group, err);
    }
    if (status == KVARVE_OK) {
        status = check_sizes(number, group, err);
    }
    for (uint32_t i = 0; i < 3 && status == KVARVE_OK; i++) {
        status = check_field(number, "reserved", group->reserved[i], 0, 0, err);
    }
    return status;
}

/* What concerns several groups: one auxiliary a space, a group that is always there, the drafter.
 */
static kvarve_status check_together(const kvarve_namespace_options *options, kvarve_error *err)
{
    uint32_t auxiliary[2] = {0, 0};
    uint32_t optional_count = 0;

    for (uint32_t i = 0; i < options->group_count; i++) {
        const kvarve_group *group = &options->groups[i];
        const bool is_draft = is_optional(group);

        optional_count += is_draft;
        if (group->page_class == KVARVE_CLASS_AUXILIARY && ++auxiliary[is_draft] > 1) {
            return kvarve_fail(err, KVARVE_INVALID,
                               "namespace: group %u: page_class is auxiliary, of which there may "
                               "be one OPTIONAL and one other",
                               i);
        }
    }
    if (optional_count == options->group_count) {
        return kvarve_fail(err, KVARVE_INVALID, "namespace: all %u groups are OPTIONAL",
                           optional_count);
    }
    if (optional_count > 0 && options->draft_identity_json == NULL) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "namespace: %u groups are OPTIONAL and draft_identity_json is NULL",
                           optional_count);
    }
    if (optional_count == 0 && options->draft_identity_json != NULL) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "namespace: draft_identity_json is given and no group is OPTIONAL");
    }
    return KVARVE_OK;
}

static kvarve_status check_counts(const kvarve_namespace_options *options, kvarve_error *err)
{
    if (options->struct_size != sizeof *options) {
        return kvarve_fail(err, KVARVE_INVALID, "namespace: struct_size is %zu, not %zu",
                           options->struct_size, sizeof *options);
    }
    if ((options->flags & ~KVARVE_NAMESPACE_EXACT) != 0) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "namespace: flags is 0x%x, only bits of 0x%x are known", options->flags,
                           KVARVE_NAMESPACE_EXACT);
    }
    if (options->rank_count == 0 || options->rank_count > KVARVE_RANKS_MAX) {
        return kvarve_fail(err, KVARVE_INVALID, "namespace: rank_count is %u, not in 1 .. %u",
                           options->rank_count, KVARVE_RANKS_MAX);
    }
    if (options->groups == NULL || options->group_count == 0 ||
        options->group_count > KVARVE_GROUPS_MAX) {
        return kvarve_fail(err, KVARVE_INVALID, "namespace: %u groups%s, not in 1 .. %u",
                           options->group_count, options->groups == NULL ? " at NULL" : "",
                           KVARVE_GROUPS_MAX);
    }
    return KVARVE_OK;
}

static kvarve_status check_options(const kvarve_namespace_options *options, kvarve_error *err)
{
    kvarve_status status = check_counts(options, err);

    for (uint32_t i = 0; status == KVARVE_OK && i < options->group_count; i++) {
        status = check_group(i, &options->groups[i], err);
    }
    return status == KVARVE_OK ? check_together(options, err) : status;
}

/* --- the layout of one space --- */

typedef struct layout {
    kvarve_group groups[KVARVE_GROUPS_MAX]; /* flags without OPTIONAL */
    uint32_t group_count;
    uint32_t rank_count;
    bool is_exact;
    size_t text_length;
    char text[KVARVE_GROUPS_MAX * LAYOUT_GROUP_MAX + LAYOUT_GROUP_MAX];
} layout;

static const char *class_text(uint32_t number)
{
    static const char *const texts[] = {"prefix", "window", "endpoint", "auxiliary"};

    return texts[number];
}

/* Add to the layout's text, which has room for all that is possible. */
__attribute__((format(printf, 2, 3))) static void append(layout *to, const char *format, ...)
{
    const size_t room = sizeof to->text - to->text_length;
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(to->text + to->text_length, room, format, arguments);
    va_end(arguments);
    KVARVE_ASSERT(length >= 0 && (size_t)length < room);
    to->text_length += (size_t)length;
}

/* Part of every document, hence of every name: what is written here for a layout never changes. */
static void write_layout(layout *to)
{
    append(to, "{\"exact\":%d,\"groups\":[", to->is_exact ? 1 : 0);
    for (uint32_t i = 0; i < to->group_count; i++) {
        const kvarve_group *group = &to->groups[i];

        append(to, "%s{\"bytes\":%u,\"class\":\"%s\",\"flags\":%u,\"span\":%u,\"window\":%u}",
               i == 0 ? "" : ",", group->page_bytes, class_text(group->page_class), group->flags,
               group->span_tokens, group->window_tokens);
    }
    append(to, "],\"ranks\":%u,\"version\":1}", to->rank_count);
}

/* Number the caller's groups of one space, and describe them. (I2) */
static void make_layout(store_namespace *name, uint8_t index,
                        const kvarve_namespace_options *options, layout *out)
{
    out->rank_count = options->rank_count;
    out->is_exact = (options->flags & KVARVE_NAMESPACE_EXACT) != 0;
    for (uint32_t i = 0; i < options->group_count; i++) {
        if (is_optional(&options->groups[i]) != (index == 1)) {
            continue;
        }
        out->groups[out->group_count] = options->groups[i];
        out->groups[out->group_count].flags &= ~KVARVE_GROUP_OPTIONAL;
        name->space_of[i] = index;
        name->local_of[i] = (uint8_t)out->group_count;
        name->public_of[index][out->group_count] = (uint8_t)i;
        out->group_count++;
    }
    write_layout(out);
}

static uint64_t greatest_common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        const uint64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

/* Every how many tokens all groups have a page end, where all of them are prefix groups; else 0. */
static uint64_t derived_span(const layout *of)
{
    uint64_t every = 1;

    for (uint32_t i = 0; i < of->group_count; i++) {
        const uint64_t next = of->groups[i].span_tokens;

        if (of->groups[i].page_class != KVARVE_CLASS_PREFIX) {
            return 0;
        }
        every = every / greatest_common_divisor(every, next) * next;
        if (every > DERIVED_SPAN_MAX) {
            return 0;
        }
    }
    return every;
}

static bool is_all_prefix(const layout *of)
{
    for (uint32_t i = 0; i < of->group_count; i++) {
        if (of->groups[i].page_class != KVARVE_CLASS_PREFIX) {
            return false;
        }
    }
    return true;
}

/* --- spaces --- */

/* One space of a namespace that is being opened. */
typedef struct opening {
    layout layout;
    document document;
} opening;

/* The document of a space: where its file was damaged or not there, the next commit of a put writes
 * it. */
static void set_document(store_space *space, document *made)
{
    if (space->document != NULL && strcmp(space->document, made->text) == 0) {
        return;
    }
    kvarve_release(space->document);
    space->document = made->text;
    made->text = NULL;
    space->is_document_kept = false;
}

/*
 * Give a space its document, whose text it may take, and its layout. Once: from then on a commit's
 * job may be reading them. (I1)
 */
static void describe_space(store_space *space, opening *from)
{
    const layout *described = &from->layout;
    document *made = &from->document;

    if (space->has_layout) {
        return;
    }
    set_document(space, made);
    space->name = made->name;
    memcpy(space->meaning, made->meaning, sizeof space->meaning);
    memcpy(space->salt_digest, made->salt_digest, sizeof space->salt_digest);
    space->is_exact = described->is_exact;
    space->rank_count = described->rank_count;
    space->group_count = described->group_count;
    memcpy(space->groups, described->groups, sizeof space->groups);
    space->is_all_prefix = is_all_prefix(described);
    space->derived_span = derived_span(described);
    space->has_layout = true;
}

/* Find or make the `count` spaces of a namespace. On failure nothing names them. */
static kvarve_status enter_spaces(store_namespace *name, opening *openings, size_t count,
                                  kvarve_error *err)
{
    store_machine *store = name->store;
    store_space *spaces[2] = {NULL, NULL};
    size_t missing = 0;

    for (size_t i = 0; i < count; i++) {
        missing += catalog_find_space(store, openings[i].document.digest) == NULL;
    }
    if (missing > 0 && store->spaces.count + missing > SPACES_MAX) { /* I3 */
        return kvarve_fail(err, KVARVE_NO_SPACE, "namespace: %zu are known, at most %u can be",
                           store->spaces.count, SPACES_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        spaces[i] = catalog_space(store, openings[i].document.digest);
        if (spaces[i] == NULL) {
            return kvarve_fail(err, KVARVE_NO_MEMORY, "namespace");
        }
    }
    for (size_t i = 0; i < count; i++) {
        describe_space(spaces[i], &openings[i]);
        spaces[i]->handles++;
        name->spaces[i] = spaces[i];
    }
    return KVARVE_OK;
}

void space_release(store_space *space)
{
    KVARVE_ASSERT(space->handles > 0);
    space->handles--; /* I3 */
}

/* --- namespaces --- */

static kvarve_status build_document(const kvarve_namespace_options *options, bool is_draft,
                                    opening *out, kvarve_error *err)
{
    const document_parts parts = {
        .identity_json = options->identity_json,
        .numerics_json = options->numerics_json,
        .draft_json = is_draft ? options->draft_identity_json : NULL,
        .layout_json = out->layout.text,
        .salt = options->salt,
    };

    return document_build(&parts, &out->document, err);
}

static kvarve_status open_spaces(store_namespace *name, const kvarve_namespace_options *options,
                                 opening openings[2], kvarve_error *err)
{
    const size_t count = options->draft_identity_json == NULL ? 1 : 2;
    kvarve_status status = KVARVE_OK;

    for (size_t i = 0; i < count && status == KVARVE_OK; i++) {
        make_layout(name, (uint8_t)i, options, &openings[i].layout);
        status = build_document(options, i == 1, &openings[i], err);
    }
    if (status == KVARVE_OK) {
        status = enter_spaces(name, openings, count, err);
    }
    for (size_t i = 0; i < 2; i++) {
        kvarve_release(openings[i].document.text);
    }
    return status;
}

kvarve_status store_namespace_open(store_machine *store, const kvarve_namespace_options *options,
                                   store_namespace **out, kvarve_error *err)
{
    kvarve_status status = check_options(options, err);
    store_namespace *name;
    opening *openings;

    if (status != KVARVE_OK) {
        return status;
    }
    name = kvarve_allocate(sizeof *name);
    openings = kvarve_allocate_array(2, sizeof *openings);
    if (name == NULL || openings == NULL) {
        status = kvarve_fail(err, KVARVE_NO_MEMORY, "namespace");
    } else {
        name->store = store;
        name->references = 1;
        name->group_count = options->group_count;
        memcpy(name->groups, options->groups, options->group_count * sizeof *options->groups);
        status = open_spaces(name, options, openings, err);
    }
    kvarve_release(openings);
    if (status != KVARVE_OK) {
        kvarve_release(name);
        return status;
    }
    *out = name;
    return KVARVE_OK;
}

void store_namespace_release(store_namespace *name)
{
    if (name == NULL) {
        return;
    }
    KVARVE_ASSERT(name->references > 0);
    if (--name->references > 0) {
        return;
    }
    for (size_t i = 0; i < 2; i++) {
        if (name->spaces[i] != NULL) {
            space_release(name->spaces[i]);
        }
    }
    kvarve_release(name);
}

const char *store_namespace_text(const store_namespace *name)
{
    return name->spaces[0]->name.text;
}

uint32_t store_namespace_ranks(const store_namespace *name)
{
    return name->spaces[0]->rank_count;
}

uint32_t store_namespace_groups(const store_namespace *name)
{
    return name->group_count;
}

const kvarve_group *store_namespace_group(const store_namespace *name, uint32_t group)
{
    KVARVE_ASSERT(group < name->group_count);
    return &name->groups[group];
}

bool store_namespace_is_exact(const store_namespace *name)
{
    return name->spaces[0]->is_exact;
}
