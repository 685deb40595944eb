/*
 * in_place.c - an engine that writes straight into kvarve's memory, and reads from it.
 *
 * Instead of handing bytes over, it asks where they are to go: kvarve_put_plan gives an address for
 * each page that is missing, and the engine puts its bytes there, from as many threads as it likes.
 * It acknowledges without digests, so kvarve's threads take them while the engine computes on. To
 * restore, kvarve_lease_pages gives the addresses of verified pages, which stay until the release:
 * nothing is copied that the engine does not copy itself.
 *
 * usage: in_place STORE-FOLDER
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvarve/admin.h"
#include "kvarve/checkpoint.h"

#define SPAN       32u   /* tokens a page */
#define PAGE_BYTES 8192u /* of one page of one layer group */
#define TOKENS     500u
#define PAGES_MAX  64u

/* A model with a sliding window: one group keeps all tokens, the other the last 100. */
enum { GROUP_ALL = 0, GROUP_WINDOW = 1, GROUP_COUNT = 2 };

static kvarve_error error;

static void give_up(void)
{
    (void)fflush(NULL);
    _Exit(1);
}

static void must(kvarve_status status, const char *what)
{
    if (status != KVARVE_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, kvarve_status_text(status), error.text);
        give_up();
    }
}

/* What the engine would compute for one page: a function of group and tokens. */
static void compute_page(uint32_t group, uint64_t first_token, uint32_t tokens, uint8_t *out,
                         uint32_t size)
{
    for (uint32_t i = 0; i < size; i++) {
        out[i] = (uint8_t)((uint32_t)first_token * 131u + i * (group + 3u) + i / 256u + tokens);
    }
}

static kvarve_namespace *open_namespace(kvarve_store *store)
{
    static const kvarve_group groups[GROUP_COUNT] = {
        [GROUP_ALL] = {.page_class = KVARVE_CLASS_PREFIX,
                       .span_tokens = SPAN,
                       .page_bytes = PAGE_BYTES},
        [GROUP_WINDOW] = {.page_class = KVARVE_CLASS_WINDOW,
                          .span_tokens = SPAN,
                          .window_tokens = 100,
                          .page_bytes = PAGE_BYTES},
    };
    kvarve_namespace_options options = KVARVE_NAMESPACE_OPTIONS_INIT;
    kvarve_namespace *space = NULL;

    options.identity_json =
        "{\"engine\":\"toy\",\"weights\":\"sha256:91aa\",\"attention\":\"swa\"}";
    options.groups = groups;
    options.group_count = GROUP_COUNT;
    must(kvarve_namespace_open(store, &options, &space, &error), "open namespace");
    return space;
}

static kvarve_prefix *make_prefix(uint32_t count)
{
    uint32_t tokens[TOKENS];
    kvarve_prefix *prefix = NULL;

    for (uint32_t i = 0; i < count; i++) {
        tokens[i] = 17u + i % 1000u;
    }
    must(kvarve_prefix_create(&prefix, &error), "make prefix");
    must(kvarve_prefix_append(prefix, tokens, count, &error), "append tokens");
    return prefix;
}

/* Store the state at `tokens`. How many pages had to be written says what was new. */
static void store_checkpoint(kvarve_namespace *space, const kvarve_prefix *prefix, uint64_t tokens)
{
    kvarve_put_options options = KVARVE_PUT_OPTIONS_INIT;
    kvarve_page_plan plan[PAGES_MAX];
    kvarve_put *put = NULL;
    size_t count = 0;
    size_t copied = 0;

    options.tokens = tokens;
    options.kind = KVARVE_KIND_RESPONSE;
    must(kvarve_put_begin(space, prefix, &options, &put, &error), "begin put");
    must(kvarve_put_wait(put, KVARVE_PUT_STAGED, 30000, &error), "wait for room");
    must(kvarve_put_plan(put, 0, plan, PAGES_MAX, &count, &error), "ask for the plan");
    for (size_t i = 0; i < count; i++) {
        if (plan[i].action == KVARVE_PAGE_COPY) {
            compute_page(plan[i].group, plan[i].first_token, plan[i].tokens, plan[i].address,
                         plan[i].size);
            copied++;
        } /* HAVE: stored already. WAIT: another put is at it; kvarve follows it. */
    }
    if (kvarve_put_status(put) == KVARVE_PUT_STAGED) {
        /* No digests: they are taken in kvarve's threads. After the ack the pages are not ours. */
        must(kvarve_put_ack(put, 0, NULL, 0, &error), "ack");
    }
    must(kvarve_put_wait(put, KVARVE_PUT_DURABLE, 30000, &error), "wait until durable");
    printf("%llu tokens: %zu pages written\n", (unsigned long long)tokens, copied);
    kvarve_put_release(&put);
}

/* Use the longest stored state in place. Returns its length. */
static uint64_t use_checkpoint(kvarve_namespace *space, const kvarve_prefix *prefix)
{
    kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
    kvarve_page_view views[PAGES_MAX];
    static uint8_t expected[PAGE_BYTES];
    kvarve_boundary found;
    kvarve_lease *lease = NULL;
    kvarve_miss miss;
    size_t count = 0;

    options.lease = KVARVE_LEASE_LOAD; /* the reads start now, in the same call */
    must(kvarve_find(space, prefix, &options, &found, 1, NULL, &lease, &miss, &error), "find");
    must(kvarve_lease_wait(lease, 30000, &miss, &error), "load");
    must(kvarve_lease_pages(lease, 0, views, PAGES_MAX, &count, &error), "pages in place");
    for (size_t i = 0; i < count; i++) {
        compute_page(views[i].group, views[i].first_token, views[i].tokens, expected,
                     views[i].size);
        if (memcmp(views[i].address, expected, views[i].size) != 0) {
            fprintf(stderr, "group %u page %llu differs\n", views[i].group,
                    (unsigned long long)views[i].position);
            give_up();
        }
    }
    printf("%llu tokens restored: %zu pages read in place\n", (unsigned long long)found.tokens,
           count);
    kvarve_lease_release(&lease); /* from here on the addresses are nobody's */
    return found.tokens;
}

int main(int argc, char **argv)
{
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
    must(kvarve_open(argv[1], &options, &store, &error), "open store");
    space = open_namespace(store);
    prefix = make_prefix(TOKENS);
    store_checkpoint(space, prefix, 320);
    store_checkpoint(space, prefix, 450); /* shares ten pages with the first */
    if (use_checkpoint(space, prefix) != 450) {
        fprintf(stderr, "the longest boundary was not found\n");
        return 1;
    }
    kvarve_prefix_free(prefix);
    kvarve_namespace_release(&space);
    kvarve_close(store);
    return 0;
}
