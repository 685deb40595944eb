/*
 * fuzz_token_file.c - lists of token ids from anybody: what is read prints to a list that reads the
 * same.
 *
 * Links: base env
 * Sources: src/cli/tokens.c
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "cli/tokens.h"

#define DIGITS_MAX 11 /* of a token, with its comma */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check_again(const uint32_t *tokens, size_t count)
{
    char *text = kvarve_allocate(count * DIGITS_MAX + 1);
    uint32_t *again = NULL;
    size_t again_count = 0;
    size_t length = 0;

    KVARVE_ASSERT(text != NULL);
    for (size_t i = 0; i < count; i++) {
        KVARVE_ASSERT(tokens[i] < KVARVE_TOKEN_LIMIT);
        length +=
            (size_t)snprintf(text + length, DIGITS_MAX + 1, "%s%u", i == 0 ? "" : ",", tokens[i]);
    }
    KVARVE_ASSERT(tokens_parse(text, length, &again, &again_count, NULL) == KVARVE_OK);
    KVARVE_ASSERT(again_count == count);
    KVARVE_ASSERT(memcmp(again, tokens, count * sizeof *again) == 0);
    kvarve_release(again);
    kvarve_release(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    uint32_t *tokens = NULL;
    size_t count = 0;
    kvarve_error err = {0};
    /* A copy without a NUL behind it: reading past the end is found. */
    char *text = kvarve_allocate(size + (size == 0));

    KVARVE_ASSERT(text != NULL);
    if (size > 0) {
        memcpy(text, bytes, size);
    }
    if (tokens_parse(text, size, &tokens, &count, &err) == KVARVE_OK) {
        KVARVE_ASSERT(count > 0 && count <= KVARVE_PREFIX_TOKENS_MAX);
        check_again(tokens, count);
        kvarve_release(tokens);
    } else {
        KVARVE_ASSERT(err.status == KVARVE_INVALID && err.text[0] != '\0');
    }
    kvarve_release(text);
    return 0;
}
