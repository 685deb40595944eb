/*
 * make_store.c - a small store for tests of the program, through include/kvarve alone.
 *
 * make_store DIR: two namespaces, "one" and "two" (the second salted with "secret"). In "one" three
 * checkpoints grow from each other, of 64, 128 and 150 tokens (7, 8, 9, ...), the last with a draft
 * half; in "two" there is one of 100 tokens (1000, 1001, ...). Then it prints the ids, a line each.
 * make_store DIR hold: opens it and waits until stdin ends.
 * make_store DIR many: in "one" twenty checkpoints, of 1, 2, ... tokens.
 * make_store DIR large: in "one" sixty checkpoints that share nothing, 1.9 MiB of pages.
 * make_store DIR stage: in "one" begins a put, gets the plan of its pages, and waits as above.
 * make_store DIR vanish: the same, but closes every descriptor before it waits.
 * make_store DIR newer: makes its file `store` one of version 2, rightly sealed.
 */
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "hash/hash.h"
#include "kvarve/admin.h"
#include "kvarve/checkpoint.h"

#define PAGE_BYTES 8192u
#define SPAN       64u
#define TOKENS_MAX 150u
#define GROUPS     3u
#define MANY       20u
#define LARGE      60u

typedef struct maker {
    kvarve_store *store;
    kvarve_namespace *space;
    kvarve_error err;
} maker;

static kvarve_status open_space(maker *work, const char *name, const char *salt)
{
    static const kvarve_group groups[GROUPS] = {
        {.page_class = KVARVE_CLASS_PREFIX, .span_tokens = SPAN, .page_bytes = PAGE_BYTES},
        {.page_class = KVARVE_CLASS_ENDPOINT, .page_bytes = PAGE_BYTES},
        {.page_class = KVARVE_CLASS_ENDPOINT,
         .flags = KVARVE_GROUP_OPTIONAL,
         .page_bytes = PAGE_BYTES},
    };
    kvarve_namespace_options options = KVARVE_NAMESPACE_OPTIONS_INIT;
    char identity[64];

    (void)snprintf(identity, sizeof identity, "{\"model\":\"%s\"}", name);
    options.identity_json = identity;
    options.numerics_json = "{\"build\":\"b1\"}";
    options.draft_identity_json = "{\"drafter\":\"small\"}";
    options.salt = salt;
    options.groups = groups;
    options.group_count = GROUPS;
    return kvarve_namespace_open(work->store, &options, &work->space, &work->err);
}

static kvarve_status fill(maker *work, kvarve_put *put, uint64_t seed)
{
    kvarve_page_plan plan[16];
    size_t count = 0;
    kvarve_status status = kvarve_put_plan(put, 0, plan, 16, &count, &work->err);

    for (size_t i = 0; i < count && status == KVARVE_OK; i++) {
        if (plan[i].action == KVARVE_PAGE_COPY) {
            memset(plan[i].address, (int)(seed + i), plan[i].size);
        }
    }
    return status == KVARVE_OK ? kvarve_put_ack(put, 0, NULL, 0, &work->err) : status;
}

static kvarve_status put_at(maker *work, uint32_t first, uint64_t tokens, uint32_t kind,
                            bool has_draft)
{
    kvarve_put_options options = KVARVE_PUT_OPTIONS_INIT;
    kvarve_prefix *prefix = NULL;
    kvarve_put *put = NULL;
    uint32_t all[TOKENS_MAX];
    kvarve_status status = kvarve_prefix_create(&prefix, &work->err);

    for (uint32_t i = 0; i < TOKENS_MAX; i++) {
        all[i] = first + i;
    }
    options.tokens = tokens;
    options.kind = kind;
    options.draft_tokens = has_draft ? tokens : 0;
    options.flags = has_draft ? 0 : KVARVE_PUT_NO_OPTIONAL;
    if (status == KVARVE_OK) {
        status = kvarve_prefix_append(prefix, all, tokens, &work->err);
    }
    if (status == KVARVE_OK) {
        status = kvarve_put_begin(work->space, prefix, &options, &put, &work->err);
    }
    if (status == KVARVE_OK) {
        status = kvarve_put_wait(put, KVARVE_PUT_STAGED, 30000, &work->err);
    }
    if (status == KVARVE_OK && kvarve_put_status(put) != KVARVE_PUT_PRESENT) {
        status = fill(work, put, tokens);
    }
    if (status == KVARVE_OK) {
        status = kvarve_put_wait(put, KVARVE_PUT_DURABLE, 30000, &work->err);
    }
    kvarve_put_release(&put);
    kvarve_prefix_free(prefix);
    return status;
}

static kvarve_status fill_store(maker *work)
{
    kvarve_status status = open_space(work, "one", NULL);

    if (status == KVARVE_OK) {
        status = put_at(work, 7, 64, KVARVE_KIND_INSTRUCTION, false);
    }
    if (status == KVARVE_OK) {
        status = put_at(work, 7, 128, KVARVE_KIND_PROMPT, false);
    }
    if (status == KVARVE_OK) {
        status = put_at(work, 7, 150, KVARVE_KIND_RESPONSE, true);
    }
    kvarve_namespace_release(&work->space);
    if (status == KVARVE_OK) {
        status = open_space(work, "two", "secret");
    }
    if (status == KVARVE_OK) {
        status = put_at(work, 1000, 100, KVARVE_KIND_PROMPT, false);
    }
    kvarve_namespace_release(&work->space);
    return status;
}

static int print_id(void *context, const kvarve_checkpoint_info *info)
{
    (void)context;
    for (size_t i = 0; i < sizeof info->id; i++) {
        (void)printf("%02x", info->id[i]); /* style: printf, the test reads it */
    }
    (void)printf("\n"); /* style: printf, the test reads it */
    return 1;
}

static kvarve_status fill_many(maker *work)
{
    kvarve_status status = open_space(work, "one", NULL);

    for (uint64_t i = 1; i <= MANY && status == KVARVE_OK; i++) {
        status = put_at(work, 7, i, KVARVE_KIND_PROMPT, false);
    }
    kvarve_namespace_release(&work->space);
    return status;
}

static kvarve_status fill_large(maker *work)
{
    kvarve_status status = open_space(work, "one", NULL);

    for (uint32_t i = 0; i < LARGE && status == KVARVE_OK; i++) {
        status = put_at(work, i * 1000, TOKENS_MAX, KVARVE_KIND_PROMPT, false);
    }
    kvarve_namespace_release(&work->space);
    return status;
}

/* Replace the version and seal the text anew (docs/format/store.md). */
static int make_newer(const char *directory)
{
    static const char head[] = "kvarve-store 2\n";
    char path[1024];
    char text[8192] = {0};
    char hex[33];
    FILE *file;
    char *digest;

    (void)snprintf(path, sizeof path, "%s/store", directory);
    file = fopen(path, "re");
    if (file == NULL || fread(text, 1, sizeof text - 64, file) == 0) {
        return 1;
    }
    (void)fclose(file);
    memcpy(text, head, sizeof head - 1);
    digest = strstr(text, "digest ");
    if (digest == NULL) {
        return 1;
    }
    hex_encode(hex, page_digest_of(text, (size_t)(digest - text)).bytes, 16);
    memcpy(digest + 7, hex, 32);
    file = fopen(path, "we");
    if (file == NULL || fwrite(text, 1, strlen(text), file) == 0) {
        return 1;
    }
    return fclose(file);
}

static kvarve_status hold(void)
{
    (void)printf("open\n"); /* style: printf, the test waits for it */
    (void)fflush(stdout);
    while (getchar() != EOF) {
    }
    return KVARVE_OK;
}

/* Pages that this process may write, for as long as it lives. */
static kvarve_status stage(maker *work, bool vanishes)
{
    kvarve_put_options options = KVARVE_PUT_OPTIONS_INIT;
    kvarve_prefix *prefix = NULL;
    kvarve_put *put = NULL;
    kvarve_page_plan plan[16];
    const uint32_t token = 5000;
    size_t count = 0;
    kvarve_status status = open_space(work, "one", NULL);

    options.tokens = 1;
    options.kind = KVARVE_KIND_PROMPT;
    options.flags = KVARVE_PUT_NO_OPTIONAL;
    if (status == KVARVE_OK) {
        status = kvarve_prefix_create(&prefix, &work->err);
    }
    if (status == KVARVE_OK) {
        status = kvarve_prefix_append(prefix, &token, 1, &work->err);
    }
    if (status == KVARVE_OK) {
        status = kvarve_put_begin(work->space, prefix, &options, &put, &work->err);
    }
    if (status == KVARVE_OK) {
        status = kvarve_put_wait(put, KVARVE_PUT_STAGED, 30000, &work->err);
    }
    if (status == KVARVE_OK) {
        status = kvarve_put_plan(put, 0, plan, 16, &count, &work->err);
    }
    if (status == KVARVE_OK && vanishes) {
        (void)close_range(STDERR_FILENO + 1, UINT_MAX, 0);
    }
    if (status == KVARVE_OK) {
        (void)hold();
    }
    if (vanishes) {
        _exit(status == KVARVE_OK ? 0 : 1); /* there is nobody to say goodbye to */
    }
    kvarve_put_release(&put);
    kvarve_prefix_free(prefix);
    kvarve_namespace_release(&work->space);
    return status;
}

static kvarve_status run(maker *work, const char *what)
{
    kvarve_status status;

    if (strcmp(what, "hold") == 0) {
        return hold();
    }
    if (strcmp(what, "stage") == 0 || strcmp(what, "vanish") == 0) {
        return stage(work, strcmp(what, "vanish") == 0);
    }
    if (strcmp(what, "many") == 0) {
        status = fill_many(work);
    } else if (strcmp(what, "large") == 0) {
        status = fill_large(work);
    } else {
        status = fill_store(work);
    }
    return status == KVARVE_OK ? kvarve_list_checkpoints(work->store, print_id, NULL, &work->err)
                               : status;
}

int main(int count, char **arguments)
{
    kvarve_store_options options = KVARVE_STORE_OPTIONS_INIT;
    const char *what = count > 2 ? arguments[2] : "";
    maker work = {0};
    kvarve_status status;

    if (count < 2) {
        return 2;
    }
    if (strcmp(what, "newer") == 0) {
        return make_newer(arguments[1]);
    }
    options.arena_bytes = UINT64_C(4) << 20;
    options.segment_bytes = UINT64_C(1) << 20;
    status = kvarve_open(arguments[1], &options, &work.store, &work.err);
    if (status == KVARVE_OK) {
        status = run(&work, what);
    }
    kvarve_close(work.store);
    if (status != KVARVE_OK) {
        (void)fprintf(stderr, "make_store: %s\n", work.err.text); /* style: printf, a program */
        return 1;
    }
    return 0;
}
