/*
 * hex.c - lower-case hexadecimal text.
 *
 * Invariant: for each byte string there is exactly one text that hex_decode takes, the one that
 * hex_encode writes; so text can be compared in place of bytes. Pure.
 */
#include "hash/hash.h"

void hex_encode(char *out, const void *bytes, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *from = bytes;

    for (size_t i = 0; i < size; i++) {
        out[2 * i] = digits[from[i] >> 4];
        out[2 * i + 1] = digits[from[i] & 15];
    }
    out[2 * size] = '\0';
}

/* 0 to 15, or -1 for anything that is no lower-case digit; a NUL is none, so no text is read past
 * its end. */
static int digit_value(char digit)
{
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

bool hex_decode(void *out, size_t size, const char *text)
{
    uint8_t *to = out;

    for (size_t i = 0; i < size; i++) {
        const int high = digit_value(text[2 * i]);
        const int low = high < 0 ? -1 : digit_value(text[2 * i + 1]);

        if (low < 0) {
            return false;
        }
        to[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}
