/*
 * sections.c - an engine that serialises its own state and hands over whole sections of bytes.
 *
 * The toy engine has two kinds of state, as a hybrid model has:
 *   - rows: 96 bytes for each token, which never change once the token was read (attention);
 *   - one state of 20,000 bytes that each token changes (recurrent layers).
 * After a prompt it stores both. A "new process" opens the store again, finds the longest stored
 * boundary of its own tokens, reads both back and goes on from there.
 *
 * usage: sections STORE-FOLDER
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvarve/admin.h"
#include "kvarve/checkpoint.h"

#define PROMPT_TOKENS 1000u
#define MORE_TOKENS   1200u /* the next turn: the prompt and 200 tokens more */
#define ROW_BYTES     96u
#define STATE_BYTES   20000u

/* Groups of the layout, in order. */
enum { GROUP_ROWS = 0, GROUP_STATE = 1, GROUP_COUNT = 2 };

/* --- the toy engine --- */

typedef struct toy_engine {
    uint32_t tokens_read;
    uint8_t rows[MORE_TOKENS * ROW_BYTES];
    uint8_t state[STATE_BYTES];
} toy_engine;

static void engine_read_token(toy_engine *engine, uint32_t token)
{
    uint8_t *row = engine->rows + (size_t)engine->tokens_read * ROW_BYTES;

    for (uint32_t i = 0; i < ROW_BYTES; i++) {
        row[i] = (uint8_t)(token * 31u + i * 7u);
    }
    for (uint32_t i = 0; i < STATE_BYTES; i++) {
        engine->state[i] = (uint8_t)(engine->state[i] * 3u + token + i);
    }
    engine->tokens_read++;
}

static uint32_t token_at(uint32_t position)
{
    return position * 7919u % 32000u;
}

/* --- kvarve --- */

static kvarve_error error;

static void give_up(void)
{
    (void)fflush(NULL);
    _Exit(1);
}

/* Every call returns a status; a text for people comes with it. */
static void must(kvarve_status status, const char *what)
{
    if (status != KVARVE_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, kvarve_status_text(status), error.text);
        give_up();
    }
}

static kvarve_namespace *open_namespace(kvarve_store *store)
{
    /* Pages of 64 tokens for the rows. ROWS: a last page of 10 tokens is 960 bytes, not 6144. */
    static const kvarve_group groups[GROUP_COUNT] = {
        [GROUP_ROWS] = {.page_class = KVARVE_CLASS_PREFIX,
                        .flags = KVARVE_GROUP_ROWS,
                        .span_tokens = 64,
                        .page_bytes = 64 * ROW_BYTES},
        [GROUP_STATE] = {.page_class = KVARVE_CLASS_ENDPOINT, .page_bytes = STATE_BYTES},
    };
    kvarve_namespace_options options = KVARVE_NAMESPACE_OPTIONS_INIT;
    kvarve_namespace *space = NULL;

    /* Whatever decides what the bytes mean belongs in here: other weights, other namespace. */
    options.identity_json = "{\"engine\":\"toy\",\"weights\":\"sha256:4f1c\",\"kv_type\":\"u8\"}";
    options.numerics_json = "{\"build\":\"1.0\"}";
    options.groups = groups;
    options.group_count = GROUP_COUNT;
    must(kvarve_namespace_open(store, &options, &space, &error), "open namespace");
    return space;
}

/* Tokens go in once; digests of all prefixes come out. */
static kvarve_prefix *make_prefix(uint32_t count)
{
    kvarve_prefix *prefix = NULL;

    must(kvarve_prefix_create(&prefix, &error), "make prefix");
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t token = token_at(i);

        must(kvarve_prefix_append(prefix, &token, 1, &error), "append token");
    }
    return prefix;
}

static void store_checkpoint(kvarve_namespace *space, const kvarve_prefix *prefix,
                             const toy_engine *engine)
{
    kvarve_put_options options = KVARVE_PUT_OPTIONS_INIT;
    kvarve_put *put = NULL;

    options.tokens = engine->tokens_read;
    options.kind = KVARVE_KIND_PROMPT;
    must(kvarve_put_begin(space, prefix, &options, &put, &error), "begin put");
    if (kvarve_put_status(put) == KVARVE_PUT_PRESENT) {
        printf("stored already: nothing is written\n");
        kvarve_put_release(&put);
        return;
    }
    /* Whole sections: what is known already is skipped, the rest is copied and digested. */
    must(kvarve_put_write(put, 0, GROUP_ROWS, 0, engine->rows,
                          (size_t)engine->tokens_read * ROW_BYTES, &error),
         "write rows");
    must(kvarve_put_write(put, 0, GROUP_STATE, 0, engine->state, STATE_BYTES, &error),
         "write state");
    must(kvarve_put_ack(put, 0, NULL, 0, &error), "ack");
    /* The engine could go on computing here, and wait later. DURABLE survives loss of power. */
    must(kvarve_put_wait(put, KVARVE_PUT_DURABLE, 30000, &error), "wait until durable");
    printf("stored %u tokens\n", engine->tokens_read);
    kvarve_put_release(&put);
}

/* The longest stored boundary, or nothing: a miss is an answer, not an error. */
static void restore(kvarve_namespace *space, const kvarve_prefix *prefix, toy_engine *engine)
{
    kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
    kvarve_boundary found = {0};
    kvarve_lease *lease = NULL;
    kvarve_miss miss;
    kvarve_status status;

    /* The last token is computed again for its logits, so no state may cover it. */
    options.max_tokens = kvarve_prefix_length(prefix) - 1;
    options.lease = KVARVE_LEASE_SOFT;
    status = kvarve_find(space, prefix, &options, &found, 1, NULL, &lease, &miss, &error);
    if (status == KVARVE_MISS) {
        printf("nothing to restore: %s\n", kvarve_miss_text(miss.reason));
        return;
    }
    must(status, "find");
    /* All or nothing: each byte is verified while it is copied. */
    must(kvarve_lease_read(lease, 0, GROUP_ROWS, 0, engine->rows, (size_t)found.tokens * ROW_BYTES,
                           &error),
         "read rows");
    must(kvarve_lease_read(lease, 0, GROUP_STATE, 0, engine->state, STATE_BYTES, &error),
         "read state");
    kvarve_lease_release(&lease);
    engine->tokens_read = (uint32_t)found.tokens;
    printf("restored %u tokens\n", engine->tokens_read);
}

int main(int argc, char **argv)
{
    static toy_engine first;
    static toy_engine second;
    static toy_engine reference;
    kvarve_store_options options = KVARVE_STORE_OPTIONS_INIT;
    kvarve_store *store = NULL;
    kvarve_namespace *space;
    kvarve_prefix *prefix;

    if (argc != 2) {
        fprintf(stderr, "usage: %s STORE-FOLDER\n", argv[0]);
        return 2;
    }
    options.arena_bytes = UINT64_C(16) << 20;
    options.flash_bytes_max = UINT64_C(256) << 20;

    /* One process reads a prompt and stores what it has computed. */
    must(kvarve_open(argv[1], &options, &store, &error), "open store");
    space = open_namespace(store);
    prefix = make_prefix(PROMPT_TOKENS);
    while (first.tokens_read < PROMPT_TOKENS) {
        engine_read_token(&first, token_at(first.tokens_read));
    }
    store_checkpoint(space, prefix, &first);
    kvarve_prefix_free(prefix);
    kvarve_namespace_release(&space);
    kvarve_close(store);

    /* Another one, later, has the next turn: it restores and reads the new tokens only. */
    must(kvarve_open(argv[1], &options, &store, &error), "open store again");
    space = open_namespace(store);
    prefix = make_prefix(MORE_TOKENS);
    restore(space, prefix, &second);
    printf("tokens left to read: %u of %u\n", MORE_TOKENS - second.tokens_read, MORE_TOKENS);
    while (second.tokens_read < MORE_TOKENS) {
        engine_read_token(&second, token_at(second.tokens_read));
    }
    kvarve_prefix_free(prefix);
    kvarve_namespace_release(&space);
    kvarve_close(store);

    /* The same without kvarve. */
    while (reference.tokens_read < MORE_TOKENS) {
        engine_read_token(&reference, token_at(reference.tokens_read));
    }
    if (memcmp(&second, &reference, sizeof second) != 0) {
        fprintf(stderr, "the restored engine differs\n");
        return 1;
    }
    printf("equal to an engine that was never interrupted\n");
    return 0;
}
