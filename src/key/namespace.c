/*
 * namespace.c - canonical JSON, and the namespace of an identity document.
 *
 * The canonical form is what Python's json.dumps(sort_keys=True, separators=(",", ":")) writes.
 * jansson differs from it in two places, which are mended in its output: hex digits of \u escapes
 * are upper-case there, and DEL is not escaped. Numbers with a fraction or an exponent are refused,
 * since their text has more than one form; so are integers beyond 64 bits, lone surrogates and NUL,
 * which jansson can not hold.
 *
 * Invariant: documents that are equal as JSON values have one canonical form.
 * Threads: any. Ownership: jansson's memory is its own and is gone when a call returns.
 */
#include "key/key.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include <jansson.h>

#include "base/alloc.h"
#include "base/fail.h"

#define NAMESPACE_HEAD "recurrent-sha256-v1:"
#define DEL            '\x7f'

static_assert(sizeof NAMESPACE_HEAD - 1 + 64 + 1 <= NAMESPACE_TEXT_SIZE, "a namespace fits");

/*
 * Where a number with a fraction or an exponent stands in valid JSON, or NULL. Outside of strings a
 * point is in such a number only, and so is an E behind a digit ("true" and "false" have theirs
 * behind letters).
 */
static const char *find_real(const char *json)
{
    bool in_string = false;

    for (const char *at = json; *at != '\0'; at++) {
        if (in_string && *at == '\\') {
            at++;
        } else if (*at == '"') {
            in_string = !in_string;
        } else if (!in_string && *at == '.') {
            return at;
        } else if (!in_string && (*at == 'e' || *at == 'E') && at[-1] >= '0' && at[-1] <= '9') {
            return at;
        }
    }
    return NULL;
}

static kvarve_status parse(const char *json, json_t **out_value, kvarve_error *err)
{
    json_error_t error;
    json_t *value = json_loads(json, JSON_REJECT_DUPLICATES, &error);
    const char *real;

    if (value == NULL && json_error_code(&error) == json_error_out_of_memory) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "read a JSON document");
    }
    if (value == NULL) {
        /* jansson's text quotes the document, which may be private; the place says enough. */
        return kvarve_fail(err, KVARVE_INVALID, "JSON document: error at line %d column %d",
                           error.line, error.column);
    }
    real = find_real(json);
    if (real != NULL) {
        json_decref(value);
        return kvarve_fail(err, KVARVE_INVALID,
                           "JSON document: byte %zu is in a number that is no integer",
                           (size_t)(real - json));
    }
    *out_value = value;
    return KVARVE_OK;
}

static void lower_digits(char *digits, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (digits[i] >= 'A' && digits[i] <= 'F') {
            digits[i] = (char)(digits[i] - 'A' + 'a');
        }
    }
}

/* Lower the hex digits of \u escapes of jansson's output, in place. Returns how many DEL it has. */
static size_t mend_escapes(char *text)
{
    size_t count = 0;

    for (char *at = text; *at != '\0'; at++) {
        if (*at == DEL) {
            count++;
        } else if (*at == '\\') {
            at++;
            lower_digits(at + 1, *at == 'u' ? 4 : 0);
        }
    }
    return count;
}

/* A copy of `text` with each of its `count` DEL escaped; NULL without memory. */
static char *escape_del(const char *text, size_t count)
{
    static const char escape[] = "\\u007f";
    char *copy = kvarve_allocate(strlen(text) + count * (sizeof escape - 2) + 1);
    char *to = copy;

    for (const char *at = text; copy != NULL && *at != '\0'; at++) {
        if (*at == DEL) {
            memcpy(to, escape, sizeof escape - 1);
            to += sizeof escape - 1;
        } else {
            *to++ = *at;
        }
    }
    return copy;
}

/* The canonical form of `value`; kvarve_release. NULL without memory. */
static char *dump(const json_t *value)
{
    const size_t flags = JSON_SORT_KEYS | JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY;
    const size_t size = json_dumpb(value, NULL, 0, flags);
    char *text = size == 0 ? NULL : kvarve_allocate(size + 1);
    size_t count;
    char *escaped;

    /* Sorting allocates in each pass; a pass that could not writes less. */
    if (text == NULL || json_dumpb(value, text, size, flags) != size) {
        kvarve_release(text);
        return NULL;
    }
    count = mend_escapes(text);
    if (count == 0) {
        return text;
    }
    escaped = escape_del(text, count);
    kvarve_release(text);
    return escaped;
}

kvarve_status canonical_json(const char *json, char **out_text, kvarve_error *err)
{
    json_t *value = NULL;
    kvarve_status status;
    char *text;

    if (json == NULL || out_text == NULL) {
        return kvarve_fail(err, KVARVE_INVALID, "canonical JSON: no document or no place for it");
    }
    status = parse(json, &value, err);
    if (status != KVARVE_OK) {
        return status;
    }
    text = dump(value);
    json_decref(value);
    if (text == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "canonical JSON");
    }
    *out_text = text;
    return KVARVE_OK;
}

/* The canonical form of a salt, a JSON string. */
static kvarve_status canonical_salt(const char *salt, char **out_text, kvarve_error *err)
{
    json_t *value = json_string(salt);
    char *text;

    if (value == NULL) {
        /* Memory apart, which a few bytes do not lack, this is the only reason. */
        return kvarve_fail(err, KVARVE_INVALID, "namespace: the salt is no UTF-8");
    }
    text = dump(value);
    json_decref(value);
    if (text == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "namespace: the salt");
    }
    *out_text = text;
    return KVARVE_OK;
}

static kvarve_status check_inputs(const namespace_key *out, const char *identity_json,
                                  const char *salt, kvarve_error *err)
{
    if (out == NULL || identity_json == NULL || salt == NULL) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "namespace: no document, no salt or no place for it");
    }
    if (strnlen(identity_json, NAMESPACE_IDENTITY_MAX + 1) > NAMESPACE_IDENTITY_MAX) {
        return kvarve_fail(err, KVARVE_INVALID, "namespace: the identity document is over %d bytes",
                           NAMESPACE_IDENTITY_MAX);
    }
    if (strnlen(salt, NAMESPACE_SALT_MAX + 1) > NAMESPACE_SALT_MAX) {
        return kvarve_fail(err, KVARVE_INVALID, "namespace: the salt is over %d bytes",
                           NAMESPACE_SALT_MAX);
    }
    return KVARVE_OK;
}

static void add(sha256_state *state, const char *text)
{
    sha256_update(state, text, strlen(text));
}

kvarve_status namespace_key_init(namespace_key *out, const char *identity_json, const char *salt,
                                 kvarve_error *err)
{
    char *identity = NULL;
    char *salt_text = NULL;
    uint8_t digest[SHA256_SIZE];
    sha256_state state;
    kvarve_status status = check_inputs(out, identity_json, salt, err);

    if (status == KVARVE_OK) {
        status = canonical_json(identity_json, &identity, err);
    }
    if (identity != NULL && identity[0] != '{') {
        status =
            kvarve_fail(err, KVARVE_INVALID, "namespace: the identity document is no JSON object");
    }
    if (status == KVARVE_OK) {
        status = canonical_salt(salt, &salt_text, err);
    }
    if (identity != NULL && salt_text != NULL) { /* All went well. */
        sha256_init(&state);
        add(&state, "{\"cache_salt\":");
        add(&state, salt_text);
        add(&state, ",\"identity\":");
        add(&state, identity);
        add(&state, ",\"schema_version\":1}");
        sha256_final(&state, digest);
        memcpy(out->text, NAMESPACE_HEAD, sizeof NAMESPACE_HEAD);
        hex_encode(out->text + sizeof NAMESPACE_HEAD - 1, digest, sizeof digest);
    }
    kvarve_release(salt_text);
    kvarve_release(identity);
    return status;
}
