/*
 * text.c - texts in messages: UTF-8 without control characters.
 *
 * A text may come from anybody and ends in somebody's log or terminal.
 *
 * Threads: any.
 */
#include <string.h>

#include "protocol/schema_private.h"

static bool is_tail(uint8_t byte)
{
    return (byte & 0xc0) == 0x80;
}

/* Bytes that a character with this first byte has; 0: none begins so. */
static size_t claimed_length(uint8_t first)
{
    if (first < 0x80) {
        return first >= 0x20 && first != 0x7f ? 1 : 0;
    }
    if (first < 0xc2 || first > 0xf4) {
        return 0;
    }
    return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* Length of the character at the start of bytes[left]; 0: it is none. */
static size_t character_length(const uint8_t *bytes, size_t left)
{
    const size_t length = claimed_length(bytes[0]);

    if (length == 0 || length > left) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if (!is_tail(bytes[i])) {
            return 0;
        }
    }
    /* Longer than needed, a surrogate, beyond the last one; or a control character of two bytes. */
    if ((bytes[0] == 0xe0 && bytes[1] < 0xa0) || (bytes[0] == 0xed && bytes[1] > 0x9f) ||
        (bytes[0] == 0xf0 && bytes[1] < 0x90) || (bytes[0] == 0xf4 && bytes[1] > 0x8f) ||
        (bytes[0] == 0xc2 && bytes[1] < 0xa0)) {
        return 0;
    }
    return length;
}

bool wire_text_is_right(const char *text, size_t length)
{
    const uint8_t *bytes = (const uint8_t *)text;

    while (length > 0) {
        const size_t step = character_length(bytes, length);

        if (step == 0) {
            return false;
        }
        bytes += step;
        length -= step;
    }
    return true;
}

void wire_text_set(char *out, size_t size, const char *text)
{
    const uint8_t *bytes = (const uint8_t *)text;
    size_t left = text == NULL ? 0 : strlen(text);
    size_t used = 0;

    while (left > 0) {
        const size_t length = character_length(bytes, left);
        const size_t step = length == 0 ? 1 : length;

        if (used + step >= size) {
            break;
        }
        if (length == 0) {
            out[used] = '?';
        } else {
            memcpy(out + used, bytes, length);
        }
        used += step;
        bytes += step;
        left -= step;
    }
    memset(out + used, 0, size - used);
}
