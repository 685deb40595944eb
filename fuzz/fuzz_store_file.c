/*
 * fuzz_store_file.c - texts of the file `store` from anybody: what decodes encodes to the same
 * text. An odd first byte has the digest line written behind the text.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "format/store_file.h"
#include "hash/hash.h"

#define DIGEST_LINE_SIZE 40

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char text[2 * STORE_FILE_SIZE_MAX];
    char again[STORE_FILE_SIZE_MAX];
    char hex[33];
    store_file file;

    if (size < 1 || size > sizeof text - DIGEST_LINE_SIZE - 1) {
        return 0;
    }
    memcpy(text, bytes + 1, size - 1);
    if ((bytes[0] & 1) != 0) {
        const page_digest digest = page_digest_of(text, size - 1);

        hex_encode(hex, digest.bytes, sizeof digest.bytes);
        size += (size_t)snprintf(text + size - 1, DIGEST_LINE_SIZE + 1, "digest %s\n", hex);
    }
    if (store_file_decode(text, size - 1, &file, NULL) == KVARVE_OK) {
        KVARVE_ASSERT(store_file_encode(&file, again) == size - 1);
        KVARVE_ASSERT(memcmp(text, again, size - 1) == 0);
    }
    return 0;
}
