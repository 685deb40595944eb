/*
 * document.h - identity documents: what a namespace is made of, as canonical JSON. Pure.
 */
#ifndef KVARVE_KEY_DOCUMENT_H
#define KVARVE_KEY_DOCUMENT_H

#include <stddef.h>
#include <stdint.h>

#include "key/key.h"

/* What document_build puts together. All strings are borrowed for the call. */
typedef struct document_parts {
    const char *identity_json; /* an object without a member "kvarve" or "numerics" */
    const char *numerics_json; /* an object, or NULL */
    const char *draft_json;    /* a companion's draft identity, or NULL */
    const char *layout_json;   /* kvarve's own: exact, groups, ranks */
    const char *salt;          /* or NULL */
} document_parts;

typedef struct document {
    char *text;          /* canonical JSON, without the salt; kvarve_release */
    namespace_key name;  /* of text and salt */
    uint8_t digest[32];  /* the one in name */
    uint8_t meaning[32]; /* of everything but numerics, and of the salt: equal for namespaces that
                            differ in last bits only */
    uint8_t salt_digest[32];
} document;

/*
 * identity's members, "draft" where given, "kvarve": layout, "numerics": numerics. KVARVE_INVALID
 * says which part is wrong.
 */
KVARVE_NODISCARD kvarve_status document_build(const document_parts *parts, document *out,
                                              kvarve_error *err);

/*
 * The file kept beside the store: {"document":..., "meaning":hex, "namespace":text,
 * "salt_digest":hex}. kvarve_release. document_parse checks the form and gives text, name, digests
 * back; KVARVE_CORRUPT.
 */
KVARVE_NODISCARD kvarve_status document_file_build(const document *made, char **out_text,
                                                   kvarve_error *err);
KVARVE_NODISCARD kvarve_status document_file_parse(const char *text, size_t size, document *out,
                                                   kvarve_error *err);

/* The first member (by name, "a.b" for nested ones) in which two canonical documents differ, one
 * of "numerics" only if all others are equal; "" when equal. */
void document_difference(const char *a, const char *b, char *out, size_t out_size);

#endif
