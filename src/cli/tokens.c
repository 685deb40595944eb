/*
 * tokens.c - parser of token lists.
 *
 * Grammar: separators* ( list | "[" separators* list? "]" separators* ), list = number
 * (separators+ number)*, separators whitespace and commas. In brackets numbers are separated by
 * exactly one comma, as JSON wants it.
 *
 * Invariant: no number is cut off or wrapped: each is below KVARVE_TOKEN_LIMIT or refused.
 * Threads: any. Ownership: the list grows here and is handed over at the end.
 */
#include "cli/tokens.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "env/io_all.h"

#define FIRST_ROOM ((size_t)4096)

typedef struct parser {
    const char *text;
    size_t size;
    size_t at;
    size_t line;       /* from 1 */
    size_t line_start; /* where the line begins */
    uint32_t *tokens;
    size_t count;
    size_t room;
    bool is_array;
    kvarve_error *err;
} parser;

static kvarve_status wrong(const parser *from, const char *what)
{
    return kvarve_fail(from->err, KVARVE_INVALID, "tokens: line %zu, column %zu: %s", from->line,
                       from->at - from->line_start + 1, what);
}

static bool is_space(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

/* Pass over whitespace, and over commas too where they are only separators. */
static size_t skip_separators(parser *from, bool with_commas)
{
    size_t commas = 0;
    while (from->at < from->size) {
        const char byte = from->text[from->at];
        if (!is_space(byte) && !(with_commas && byte == ',')) {
            break;
        }
        commas += byte == ',';
        from->at++;
        if (byte == '\n') {
            from->line++;
            from->line_start = from->at;
        }
    }
    return commas;
}

static kvarve_status add_token(parser *from, uint32_t token)
{
    if (from->count == KVARVE_PREFIX_TOKENS_MAX) {
        return wrong(from, "more than 16777216 tokens");
    }
    if (from->count == from->room) {
        const size_t room = from->room == 0 ? FIRST_ROOM : from->room * 2;
        uint32_t *tokens = kvarve_reallocate(from->tokens, room * sizeof(*tokens));
        if (tokens == NULL) {
            return kvarve_fail(from->err, KVARVE_NO_MEMORY, "tokens: room for %zu", room);
        }
        from->tokens = tokens;
        from->room = room;
    }
    from->tokens[from->count++] = token;
    return KVARVE_OK;
}

static kvarve_status take_number(parser *from)
{
    const size_t begin = from->at;
    uint64_t value = 0;

    while (from->at < from->size && from->text[from->at] >= '0' && from->text[from->at] <= '9') {
        value = value * 10 + (uint64_t)(from->text[from->at] - '0');
        if (value >= KVARVE_TOKEN_LIMIT) {
            from->at = begin;
            return wrong(from, "a token id of 2147483648 or more");
        }
        from->at++;
    }
    if (from->at == begin) {
        return wrong(from, from->text[begin] == '-' ? "a negative token id" : "no token id");
    }
    const char next = (char)(from->at < from->size ? from->text[from->at] : ' ');
    if (!is_space(next) && next != ',' && !(from->is_array && next == ']')) {
        return wrong(from, "a token id with something behind it");
    }
    return add_token(from, (uint32_t)value);
}

static kvarve_status take_list(parser *from)
{
    kvarve_status status = KVARVE_OK;

    (void)skip_separators(from, true);
    while (from->at < from->size && status == KVARVE_OK) {
        status = take_number(from);
        (void)skip_separators(from, true);
    }
    return status;
}

static kvarve_status take_array(parser *from)
{
    kvarve_status status = KVARVE_OK;
    bool has_more = true;

    from->at++;
    (void)skip_separators(from, false);
    if (from->at < from->size && from->text[from->at] == ']') {
        return wrong(from, "an empty array");
    }
    while (has_more && status == KVARVE_OK) {
        (void)skip_separators(from, false);
        if (from->at == from->size) {
            return wrong(from, "the array does not end");
        }
        status = take_number(from);
        (void)skip_separators(from, false);
        has_more = from->at < from->size && from->text[from->at] == ',';
        from->at += has_more;
    }
    if (status != KVARVE_OK) {
        return status;
    }
    if (from->at == from->size || from->text[from->at] != ']') {
        return wrong(from, from->at == from->size ? "the array does not end" : "no comma");
    }
    from->at++;
    (void)skip_separators(from, false);
    return from->at == from->size ? KVARVE_OK : wrong(from, "something behind the array");
}

kvarve_status tokens_parse(const char *text, size_t size, uint32_t **out, size_t *out_count,
                           kvarve_error *err)
{
    parser from = {.text = text, .size = size, .line = 1, .err = err};

    (void)skip_separators(&from, false);
    from.is_array = from.at < size && text[from.at] == '[';
    kvarve_status status = from.is_array ? take_array(&from) : take_list(&from);
    if (status == KVARVE_OK && from.count == 0) {
        status = wrong(&from, "no token");
    }
    if (status != KVARVE_OK) {
        kvarve_release(from.tokens);
        return status;
    }
    *out = from.tokens;
    *out_count = from.count;
    return KVARVE_OK;
}

kvarve_status tokens_load(kvarve_io *io, const char *path, uint32_t **out, size_t *out_count,
                          kvarve_error *err)
{
    char *text = NULL;
    size_t size = 0;
    kvarve_status status = io_read_file(io, path, TOKENS_TEXT_MAX, &text, &size, err);

    if (status == KVARVE_MISS) {
        return kvarve_fail(err, KVARVE_INVALID, "tokens: there is no file %s", path);
    }
    if (status == KVARVE_OK) {
        status = tokens_parse(text, size, out, out_count, err);
    }
    kvarve_release(text);
    return status;
}
