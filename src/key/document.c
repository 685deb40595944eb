/*
 * document.c - identity documents: put together, kept as a file, compared.
 *
 * The parts are made canonical one by one, joined as text and made canonical once more; so the
 * rules of canonical JSON (key.h) are applied by one function only. The file is canonical too, and
 * is read back as strictly: it must be what document_file_build writes, byte for byte.
 *
 * Invariants
 *   I1  text holds the members of the identity, "kvarve", "numerics" and, for a companion, "draft";
 *       a caller can not name a member so itself. Equal parts give equal text.
 *   I2  The salt is in no text, only in name and in salt_digest.
 *   I3  meaning does not depend on numerics.
 *
 * Threads: any. Ownership: jansson's memory is its own and is gone when a call returns.
 * Absent: a check of name against the text of a file, which needs the salt. Whoever knows which
 * namespace the file should be about compares it.
 */
#include "key/document.h"

#include <string.h>

#include <jansson.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/fail.h"

#define SALT_HEAD    "kvarve-salt-v1" /* each with its NUL, which ends it */
#define MEANING_HEAD "kvarve-meaning-v1"

#define LAYOUT_MEMBER   "kvarve"
#define NUMERICS_MEMBER "numerics"
#define DRAFT_MEMBER    "draft"

#define FILE_HEAD    "{\"document\":"
#define FILE_MEANING ",\"meaning\":\""
#define FILE_NAME    "\",\"namespace\":\""
#define FILE_SALT    "\",\"salt_digest\":\""
#define FILE_TAIL    "\"}\n"
#define LENGTH(text) (sizeof(text) - 1)
#define HEX_LENGTH   ((size_t)2 * SHA256_SIZE)
#define NAME_LENGTH  ((size_t)NAMESPACE_TEXT_SIZE - 1)
#define FILE_END_SIZE                                                                              \
    (LENGTH(FILE_MEANING) + HEX_LENGTH + LENGTH(FILE_NAME) + NAME_LENGTH + LENGTH(FILE_SALT) +     \
     HEX_LENGTH + LENGTH(FILE_TAIL))

/* Join `count` texts into one; kvarve_release. NULL: no memory. */
static char *join(const char *const *texts, size_t count)
{
    size_t size = 1;
    char *joined;
    char *to;

    for (size_t i = 0; i < count; i++) {
        size += strlen(texts[i]);
    }
    joined = kvarve_allocate(size);
    to = joined;
    for (size_t i = 0; joined != NULL && i < count; i++) {
        const size_t length = strlen(texts[i]);

        memcpy(to, texts[i], length);
        to += length;
    }
    return joined;
}

/* --- digests --- */

static void digest_salt(const char *salt, uint8_t out[SHA256_SIZE])
{
    sha256_state state;

    sha256_init(&state);
    sha256_update(&state, SALT_HEAD, sizeof SALT_HEAD);
    sha256_update(&state, salt, strlen(salt));
    sha256_final(&state, out);
}

/* jansson's text of `value`, which canonical_json then mends; kvarve_release. NULL: no memory. */
static char *dump(const json_t *value)
{
    const size_t flags = JSON_SORT_KEYS | JSON_COMPACT | JSON_ENSURE_ASCII;
    const size_t size = json_dumpb(value, NULL, 0, flags);
    char *text = size == 0 ? NULL : kvarve_allocate(size + 1);

    if (text != NULL && json_dumpb(value, text, size, flags) != size) {
        kvarve_release(text);
        text = NULL;
    }
    return text;
}

/* The canonical text of a document without its numerics. */
static kvarve_status without_numerics(const char *text, char **out_text, kvarve_error *err)
{
    json_t *value = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    kvarve_status status;
    char *rest;

    if (value == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "identity document: read it again");
    }
    (void)json_object_del(value, NUMERICS_MEMBER);
    rest = dump(value);
    json_decref(value);
    if (rest == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "identity document without numerics");
    }
    status = canonical_json(rest, out_text, err);
    kvarve_release(rest);
    return status;
}

static kvarve_status digest_meaning(const char *text, const uint8_t salt_digest[SHA256_SIZE],
                                    uint8_t out[SHA256_SIZE], kvarve_error *err)
{
    char *rest = NULL;
    sha256_state state;
    const kvarve_status status = without_numerics(text, &rest, err);

    if (rest == NULL) {
        return status;
    }
    sha256_init(&state);
    sha256_update(&state, MEANING_HEAD, sizeof MEANING_HEAD);
    sha256_update(&state, rest, strlen(rest) + 1); /* its NUL keeps it apart from what follows */
    sha256_update(&state, salt_digest, SHA256_SIZE);
    sha256_final(&state, out);
    kvarve_release(rest);
    return KVARVE_OK;
}

/* --- build --- */

typedef struct canonical_parts {
    char *identity;
    char *numerics;
    char *draft; /* NULL: none */
    char *layout;
} canonical_parts;

static void release_parts(canonical_parts *parts)
{
    kvarve_release(parts->identity);
    kvarve_release(parts->numerics);
    kvarve_release(parts->draft);
    kvarve_release(parts->layout);
}

/* The canonical form of one part, an object. `what` names it in messages. */
static kvarve_status canonical_part(const char *json, const char *what, char **out_text,
                                    kvarve_error *err)
{
    kvarve_error cause = {0};
    kvarve_status status;
    char *text = NULL;

    if (json == NULL) {
        return kvarve_fail(err, KVARVE_INVALID, "namespace: no %s", what);
    }
    if (strnlen(json, NAMESPACE_IDENTITY_MAX + 1) > NAMESPACE_IDENTITY_MAX) {
        return kvarve_fail(err, KVARVE_INVALID, "namespace: %s is over %d bytes", what,
                           NAMESPACE_IDENTITY_MAX);
    }
    status = canonical_json(json, &text, &cause);
    if (status != KVARVE_OK) {
        return kvarve_fail(err, status, "namespace: %s: %s", what, cause.text);
    }
    if (text[0] != '{') {
        kvarve_release(text);
        return kvarve_fail(err, KVARVE_INVALID, "namespace: %s is no JSON object", what);
    }
    *out_text = text;
    return KVARVE_OK;
}

/* I1: the members that are put beside those of the identity are not in it already. */
static kvarve_status check_members(const char *identity, kvarve_error *err)
{
    static const char *const reserved[] = {LAYOUT_MEMBER, NUMERICS_MEMBER, DRAFT_MEMBER};
    json_t *value = json_loads(identity, 0, NULL);
    const char *found = NULL;

    if (value == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "namespace: identity_json");
    }
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved && found == NULL; i++) {
        if (json_object_get(value, reserved[i]) != NULL) {
            found = reserved[i];
        }
    }
    json_decref(value);
    if (found != NULL) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "namespace: identity_json has a member \"%s\", a name that is taken",
                           found);
    }
    return KVARVE_OK;
}

static kvarve_status read_parts(const document_parts *parts, canonical_parts *out,
                                kvarve_error *err)
{
    const char *numerics = parts->numerics_json == NULL ? "{}" : parts->numerics_json;
    kvarve_status status =
        canonical_part(parts->identity_json, "identity_json", &out->identity, err);

    if (status == KVARVE_OK) {
        status = check_members(out->identity, err);
    }
    if (status == KVARVE_OK) {
        status = canonical_part(numerics, "numerics_json", &out->numerics, err);
    }
    if (status == KVARVE_OK && parts->draft_json != NULL) {
        status = canonical_part(parts->draft_json, "draft_identity_json", &out->draft, err);
    }
    if (status == KVARVE_OK) {
        status = canonical_part(parts->layout_json, "layout", &out->layout, err);
    }
    return status;
}

static kvarve_status join_parts(const canonical_parts *parts, char **out_text, kvarve_error *err)
{
    const bool is_empty = strcmp(parts->identity, "{}") == 0;
    const bool has_draft = parts->draft != NULL;
    const char *const texts[] = {
        "{\"" LAYOUT_MEMBER "\":",
        parts->layout,
        ",\"" NUMERICS_MEMBER "\":",
        parts->numerics,
        has_draft ? ",\"" DRAFT_MEMBER "\":" : "",
        has_draft ? parts->draft : "",
        is_empty ? "" : ",",
        parts->identity + 1, /* its members, and the brace that ends everything */
    };
    char *joined = join(texts, sizeof texts / sizeof *texts);
    kvarve_status status;

    if (joined == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "namespace: its document");
    }
    status = canonical_json(joined, out_text, err);
    kvarve_release(joined);
    return status;
}

static void copy_digest(document *made)
{
    /* A namespace's text ends with the digest. */
    const char *digits = made->name.text + NAME_LENGTH - HEX_LENGTH;
    const bool is_hex = hex_decode(made->digest, sizeof made->digest, digits);

    KVARVE_ASSERT(is_hex);
}

kvarve_status document_build(const document_parts *parts, document *out, kvarve_error *err)
{
    const char *salt = parts->salt == NULL ? "" : parts->salt;
    canonical_parts canonical = {0};
    document made = {0};
    kvarve_status status = read_parts(parts, &canonical, err);

    if (status == KVARVE_OK) {
        status = join_parts(&canonical, &made.text, err);
    }
    if (status == KVARVE_OK) {
        status = namespace_key_init(&made.name, made.text, salt, err);
    }
    if (status == KVARVE_OK) {
        copy_digest(&made);
        digest_salt(salt, made.salt_digest);
        status = digest_meaning(made.text, made.salt_digest, made.meaning, err);
    }
    release_parts(&canonical);
    if (status != KVARVE_OK) {
        kvarve_release(made.text);
        return status;
    }
    *out = made;
    return KVARVE_OK;
}

/* --- the file --- */

kvarve_status document_file_build(const document *made, char **out_text, kvarve_error *err)
{
    char meaning[HEX_LENGTH + 1];
    char salt_digest[HEX_LENGTH + 1];
    const char *const texts[] = {FILE_HEAD,       made->text, FILE_MEANING, meaning,  FILE_NAME,
                                 made->name.text, FILE_SALT,  salt_digest,  FILE_TAIL};
    char *text;

    hex_encode(meaning, made->meaning, SHA256_SIZE);
    hex_encode(salt_digest, made->salt_digest, SHA256_SIZE);
    text = join(texts, sizeof texts / sizeof *texts);
    if (text == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "file of an identity document");
    }
    *out_text = text;
    return KVARVE_OK;
}

/* Go past `wanted` if the text at *at goes on with it. */
static bool skip(const char **at, const char *wanted)
{
    const size_t length = strlen(wanted);

    if (strncmp(*at, wanted, length) != 0) {
        return false;
    }
    *at += length;
    return true;
}

static bool take_hex(const char **at, uint8_t out[SHA256_SIZE])
{
    if (!hex_decode(out, SHA256_SIZE, *at)) {
        return false;
    }
    *at += HEX_LENGTH;
    return true;
}

/* What follows the document in the file; `end` is FILE_END_SIZE bytes and a NUL. */
static bool parse_end(const char *end, document *out)
{
    const char *name;

    if (!skip(&end, FILE_MEANING) || !take_hex(&end, out->meaning) || !skip(&end, FILE_NAME)) {
        return false;
    }
    name = end;
    if (!skip(&end, "recurrent-sha256-v1:") || !take_hex(&end, out->digest)) {
        return false;
    }
    memcpy(out->name.text, name, NAME_LENGTH);
    return skip(&end, FILE_SALT) && take_hex(&end, out->salt_digest) && skip(&end, FILE_TAIL);
}

static bool has_own_members(const char *text)
{
    json_t *value = json_loads(text, 0, NULL);
    const bool has = json_is_object(json_object_get(value, LAYOUT_MEMBER)) &&
                     json_is_object(json_object_get(value, NUMERICS_MEMBER));

    json_decref(value);
    return has;
}

static kvarve_status corrupt(const char *what, kvarve_error *err)
{
    return kvarve_fail(err, KVARVE_CORRUPT, "file of an identity document: %s", what);
}

/* The text is a document: canonical, an object, with the members that every document has. */
static kvarve_status check_text(const char *text, kvarve_error *err)
{
    char *canonical = NULL;
    kvarve_status status = canonical_json(text, &canonical, NULL);

    if (status == KVARVE_NO_MEMORY) {
        return kvarve_fail(err, status, "read an identity document");
    }
    if (status != KVARVE_OK || text[0] != '{' || strcmp(text, canonical) != 0 ||
        !has_own_members(text)) {
        status = corrupt("the document is not canonical", err);
    }
    kvarve_release(canonical);
    return status;
}

static kvarve_status check_meaning(const document *read, kvarve_error *err)
{
    uint8_t meaning[SHA256_SIZE];
    const kvarve_status status = digest_meaning(read->text, read->salt_digest, meaning, err);

    if (status == KVARVE_OK && memcmp(meaning, read->meaning, sizeof meaning) != 0) {
        return corrupt("the document is not the one that its digest is of", err);
    }
    return status;
}

kvarve_status document_file_parse(const char *text, size_t size, document *out, kvarve_error *err)
{
    document made = {0};
    size_t length;
    kvarve_status status;
    char *copy;

    if (size <= LENGTH(FILE_HEAD) + FILE_END_SIZE ||
        size > LENGTH(FILE_HEAD) + NAMESPACE_IDENTITY_MAX + FILE_END_SIZE ||
        memchr(text, '\0', size) != NULL || memcmp(text, FILE_HEAD, LENGTH(FILE_HEAD)) != 0) {
        return corrupt("its size or its begin is wrong", err);
    }
    copy = kvarve_allocate(size + 1);
    length = size - LENGTH(FILE_HEAD) - FILE_END_SIZE;
    made.text = kvarve_allocate(length + 1);
    if (copy == NULL || made.text == NULL) {
        kvarve_release(copy);
        kvarve_release(made.text);
        return kvarve_fail(err, KVARVE_NO_MEMORY, "file of an identity document");
    }
    memcpy(copy, text, size);
    memcpy(made.text, copy + LENGTH(FILE_HEAD), length);
    status = parse_end(copy + LENGTH(FILE_HEAD) + length, &made) ? check_text(made.text, err)
                                                                 : corrupt("its end is wrong", err);
    kvarve_release(copy);
    if (status == KVARVE_OK) {
        status = check_meaning(&made, err);
    }
    if (status != KVARVE_OK) {
        kvarve_release(made.text);
        return status;
    }
    *out = made;
    return KVARVE_OK;
}

/* --- difference --- */

/* Add "." and `name` to a path, as far as they fit and at no place inside a character. False: cut.
 */
static bool extend_path(char *path, size_t size, const char *name)
{
    const size_t used = strlen(path);
    const size_t dot = used == 0 ? 0 : 1;
    const size_t room = size - 1 - used;
    size_t length = strlen(name);
    bool is_whole = true;

    if (room < dot) {
        return false;
    }
    if (length > room - dot) {
        is_whole = false;
        length = room - dot;
        while (length > 0 && ((unsigned char)name[length] & 0xc0u) == 0x80u) {
            length--; /* a UTF-8 continuation byte would be the first one left out */
        }
    }
    memcpy(path + used, ".", dot);
    memcpy(path + used + dot, name, length);
    path[used + dot + length] = '\0';
    return is_whole;
}

/* The smallest name, in sorted order, that is in `a` and is missing or different in `b`; or
 * `best`. */
static const char *smallest_difference(json_t *a, json_t *b, const char *best)
{
    const char *name;
    json_t *value;

    json_object_foreach(a, name, value)
    {
        if ((best == NULL || strcmp(name, best) < 0) &&
            !json_equal(value, json_object_get(b, name))) {
            best = name;
        }
    }
    return best;
}

static void walk_difference(json_t *a, json_t *b, char *out, size_t out_size)
{
    while (json_is_object(a) && json_is_object(b)) {
        const char *name = smallest_difference(a, b, NULL);

        name = smallest_difference(b, a, name);
        if (name == NULL || !extend_path(out, out_size, name)) {
            return;
        }
        a = json_object_get(a, name);
        b = json_object_get(b, name);
    }
}

/* Leaves "numerics" out: it changes last bits only, and is named when nothing else differs. */
static void difference_of_meaning(json_t *left, json_t *right, char *out, size_t out_size)
{
    json_t *left_meaning = json_copy(left);
    json_t *right_meaning = json_copy(right);

    (void)json_object_del(left_meaning, "numerics");
    (void)json_object_del(right_meaning, "numerics");
    if (left_meaning != NULL && right_meaning != NULL) {
        walk_difference(left_meaning, right_meaning, out, out_size);
    }
    json_decref(left_meaning);
    json_decref(right_meaning);
}

void document_difference(const char *a, const char *b, char *out, size_t out_size)
{
    json_t *left;
    json_t *right;

    KVARVE_ASSERT(out_size > 0);
    out[0] = '\0';
    if (strcmp(a, b) == 0) {
        return;
    }
    left = json_loads(a, 0, NULL);
    right = json_loads(b, 0, NULL);
    difference_of_meaning(left, right, out, out_size);
    if (out[0] == '\0') {
        walk_difference(left, right, out, out_size);
    }
    json_decref(left);
    json_decref(right);
}
