/*
 * fuzz_identity.c - identity documents and salts from anybody.
 *
 * Input: a salt up to the first NUL, then a JSON document. What canonical_json takes it must give
 * back unchanged when asked again, in printable ASCII; spelling must not matter to the namespace;
 * nothing may be left allocated.
 *
 * Links: base hash key
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "key/key.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds) {
        abort();
    }
}

static void check_canonical(const char *document, const char *salt)
{
    char *once = NULL;
    char *twice = NULL;
    namespace_key spelled;
    namespace_key canonical;

    if (canonical_json(document, &once, NULL) != KVARVE_OK) {
        return;
    }
    for (const char *at = once; *at != '\0'; at++) {
        require(*at >= ' ' && *at <= '~');
    }
    require(canonical_json(once, &twice, NULL) == KVARVE_OK);
    require(strcmp(once, twice) == 0);
    /* The canonical form may be longer than what a namespace takes; then there is nothing to
     * compare. */
    if (namespace_key_init(&spelled, document, salt, NULL) == KVARVE_OK &&
        namespace_key_init(&canonical, once, salt, NULL) == KVARVE_OK) {
        require(strcmp(spelled.text, canonical.text) == 0);
        require(strlen(spelled.text) == NAMESPACE_TEXT_SIZE - 1);
    }
    kvarve_release(twice);
    kvarve_release(once);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint64_t blocks = kvarve_allocated_blocks();
    char *input = kvarve_allocate(size + 2);
    const char *document;

    require(input != NULL);
    if (size > 0) {
        memcpy(input, data, size);
    }
    document = input + strlen(input) + 1;
    check_canonical(size < strlen(input) + 1 ? input : document, input);
    kvarve_release(input);
    require(kvarve_allocated_blocks() == blocks);
    return 0;
}
