/*
 * paged.c - a paged engine: memory in blocks, a list of block ids for each sequence, several ranks.
 *
 * Each rank registers its memory once: for each layer of each group a base address, the distance of
 * two blocks, and how a block is made of rows. After that a checkpoint is named by block ids alone:
 * kvarve gathers the rows from wherever the blocks lie, and scatters them into other blocks later.
 * The copies run in kvarve's threads; the engine waits in its event loop, on a descriptor.
 *
 * Two ranks (as tensor parallel workers have), each driven by a thread of its own; two groups:
 * attention with K and V in blocks of 16 tokens, stored in pages of 32; and a recurrent state of
 * one block.
 *
 * usage: paged STORE-FOLDER
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvarve/admin.h"
#include "kvarve/checkpoint.h"

#define RANKS        2u
#define LAYERS       3u
#define BLOCK_TOKENS 16u
#define SPAN         32u  /* tokens a page: two blocks */
#define ROW_BYTES    128u /* of K, or of V, of one token in one layer */
#define BLOCKS       64u  /* of the pool */
#define STATE_BYTES  6000u
#define TOKENS       250u

enum { GROUP_ATTENTION = 0, GROUP_STATE = 1, GROUP_COUNT = 2 };
enum { RUNS = 2 }; /* K and V */

#define BLOCK_BYTES     (RUNS * BLOCK_TOKENS * ROW_BYTES)
#define SEQUENCE_BLOCKS ((TOKENS + BLOCK_TOKENS - 1) / BLOCK_TOKENS)

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

/* --- the engine's memory --- */

/* One rank's pool: layer after layer, block after block; K rows, then V rows in a block. */
typedef struct rank_memory {
    uint8_t attention[LAYERS][BLOCKS][BLOCK_BYTES];
    uint8_t state[BLOCKS][STATE_BYTES];
} rank_memory;

static rank_memory memory[RANKS];

/* A sequence: which blocks its tokens are in, on every rank alike. */
typedef struct sequence {
    uint32_t blocks[SEQUENCE_BLOCKS];
    uint32_t state_block;
} sequence;

static uint8_t row_value(uint32_t rank, uint32_t layer, uint32_t run, uint32_t token, uint32_t i)
{
    return (uint8_t)(token * 37u + layer * 11u + run * 5u + rank * 101u + i);
}

static uint8_t *row_of(const sequence *of, uint32_t rank, uint32_t layer, uint32_t run,
                       uint32_t token)
{
    uint8_t *block = memory[rank].attention[layer][of->blocks[token / BLOCK_TOKENS]];

    return block + ((size_t)run * BLOCK_TOKENS + token % BLOCK_TOKENS) * ROW_BYTES;
}

/* Fill one token's row, or say whether it is as it was filled. */
static int visit_row(uint8_t *row, uint32_t rank, uint32_t at, uint32_t token, int fills)
{
    int differing = 0;

    for (uint32_t i = 0; i < ROW_BYTES; i++) {
        const uint8_t value = row_value(rank, at / RUNS, at % RUNS, token, i);

        row[i] = fills ? value : row[i];
        differing += row[i] != value;
    }
    return differing == 0;
}

/* All of a sequence's state on one rank. */
static int visit_state(const sequence *of, uint32_t rank, int fills)
{
    uint8_t *state = memory[rank].state[of->state_block];
    int is_right = 1;

    for (uint32_t token = 0; token < TOKENS; token++) {
        for (uint32_t at = 0; at < LAYERS * RUNS; at++) {
            is_right &=
                visit_row(row_of(of, rank, at / RUNS, at % RUNS, token), rank, at, token, fills);
        }
    }
    for (uint32_t i = 0; i < STATE_BYTES; i++) {
        const uint8_t value = (uint8_t)(i * 13u + rank);

        state[i] = fills ? value : state[i];
        is_right &= state[i] == value;
    }
    return is_right;
}

static void compute(const sequence *of, uint32_t rank)
{
    (void)visit_state(of, rank, 1);
}

static int is_right(const sequence *of, uint32_t rank)
{
    return visit_state(of, rank, 0);
}

/* --- the layout --- */

static kvarve_namespace *open_namespace(kvarve_store *store)
{
    static const kvarve_group groups[GROUP_COUNT] = {
        [GROUP_ATTENTION] = {.page_class = KVARVE_CLASS_PREFIX,
                             .flags = KVARVE_GROUP_ROWS,
                             .span_tokens = SPAN,
                             .page_bytes = SPAN * LAYERS * RUNS * ROW_BYTES},
        [GROUP_STATE] = {.page_class = KVARVE_CLASS_ENDPOINT, .page_bytes = STATE_BYTES},
    };
    kvarve_namespace_options options = KVARVE_NAMESPACE_OPTIONS_INIT;
    kvarve_namespace *space = NULL;

    options.identity_json = "{\"engine\":\"toy-paged\",\"weights\":\"sha256:c0de\",\"tp\":2}";
    options.groups = groups;
    options.group_count = GROUP_COUNT;
    options.rank_count = RANKS;
    must(kvarve_namespace_open(store, &options, &space, &error), "open namespace");
    return space;
}

static void register_rank(kvarve_namespace *space, uint32_t rank)
{
    static const uint32_t block_tokens[GROUP_COUNT] = {BLOCK_TOKENS, 1};
    kvarve_region regions[LAYERS + 1] = {0};

    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        regions[layer] = (kvarve_region){.group = GROUP_ATTENTION,
                                         .base = memory[rank].attention[layer],
                                         .block_stride = sizeof memory[rank].attention[layer][0],
                                         .row_bytes = ROW_BYTES,
                                         .run_count = RUNS,
                                         .block_count = BLOCKS};
    }
    regions[LAYERS] = (kvarve_region){.group = GROUP_STATE,
                                      .base = memory[rank].state,
                                      .block_stride = STATE_BYTES,
                                      .row_bytes = STATE_BYTES,
                                      .run_count = 1,
                                      .block_count = BLOCKS};
    must(kvarve_regions_register(space, rank, regions, LAYERS + 1, block_tokens, &error),
         "register regions");
}

/* --- ranks in threads --- */

typedef struct rank_task {
    kvarve_put *put;     /* store from here, or */
    kvarve_lease *lease; /* restore to here */
    const sequence *of;
    uint32_t rank;
    kvarve_status status;
} rank_task;

static void *run_rank(void *argument)
{
    rank_task *task = argument;
    const uint32_t *const blocks[GROUP_COUNT] = {task->of->blocks, &task->of->state_block};
    const size_t counts[GROUP_COUNT] = {SEQUENCE_BLOCKS, 1};

    /* Both only submit: the copies run in kvarve's threads, and end with an event. */
    task->status = task->put != NULL
                       ? kvarve_put_copy(task->put, task->rank, blocks, counts, 0, NULL)
                       : kvarve_lease_copy(task->lease, task->rank, blocks, counts, 0, NULL);
    return NULL;
}

static void run_all_ranks(kvarve_put *put, kvarve_lease *lease, const sequence *of)
{
    pthread_t threads[RANKS];
    rank_task tasks[RANKS];

    for (uint32_t rank = 0; rank < RANKS; rank++) {
        tasks[rank] = (rank_task){.put = put, .lease = lease, .of = of, .rank = rank};
        if (pthread_create(&threads[rank], NULL, run_rank, &tasks[rank]) != 0) {
            fprintf(stderr, "no thread\n");
            give_up();
        }
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        pthread_join(threads[rank], NULL);
        must(tasks[rank].status, "copy of a rank");
    }
}

/* What says that it will not come to what is waited for. */
static void check_event(const kvarve_event *event)
{
    if (event->kind == KVARVE_EVENT_ABORTED) {
        fprintf(stderr, "not stored: %s\n", kvarve_refusal_text(event->reason));
        give_up();
    }
    if (event->kind == KVARVE_EVENT_LOAD_FAILED || event->status != KVARVE_OK) {
        fprintf(stderr, "not restored: %s\n", kvarve_miss_text(event->reason));
        give_up();
    }
}

/* The event loop: take events until `count` of this kind and cookie came. */
static void wait_for(kvarve_store *store, uint64_t cookie, uint32_t kind, uint32_t count)
{
    struct pollfd one = {.fd = kvarve_event_fd(store), .events = POLLIN};
    kvarve_event event;

    while (count > 0) {
        if (kvarve_next_event(store, &event) == KVARVE_OK) {
            check_event(&event);
            count -= event.kind == kind && event.cookie == cookie;
        } else if (poll(&one, 1, 30000) != 1) {
            fprintf(stderr, "no event in 30 s\n");
            give_up();
        }
    }
}

/* --- store and restore --- */

static void store_sequence(kvarve_store *store, kvarve_namespace *space,
                           const kvarve_prefix *prefix, const sequence *of)
{
    kvarve_put_options options = KVARVE_PUT_OPTIONS_INIT;
    kvarve_put *put = NULL;

    options.tokens = TOKENS;
    options.kind = KVARVE_KIND_PROMPT;
    options.cookie = 1;
    must(kvarve_put_begin(space, prefix, &options, &put, &error), "begin put");
    if (kvarve_put_status(put) == KVARVE_PUT_WAITING) {
        wait_for(store, 1, KVARVE_EVENT_STAGED, 1);
    }
    if (kvarve_put_status(put) == KVARVE_PUT_STAGED) {
        run_all_ranks(put, NULL, of);
        /* From SOURCE_RELEASED on the engine may use a rank's blocks for something else. */
        wait_for(store, 1, KVARVE_EVENT_SOURCE_RELEASED, RANKS);
    }
    wait_for(store, 1, KVARVE_EVENT_DURABLE, 1);
    printf("%u tokens of %u ranks: %s\n", TOKENS, RANKS,
           kvarve_put_status(put) == KVARVE_PUT_PRESENT ? "stored already" : "stored");
    kvarve_put_release(&put);
}

static void restore_sequence(kvarve_store *store, kvarve_namespace *space,
                             const kvarve_prefix *prefix, const sequence *to)
{
    kvarve_find_options options = KVARVE_FIND_OPTIONS_INIT;
    kvarve_boundary found;
    kvarve_lease *lease = NULL;
    kvarve_miss miss;

    options.lease = KVARVE_LEASE_LOAD;
    options.cookie = 2;
    must(kvarve_find(space, prefix, &options, &found, 1, NULL, &lease, &miss, &error), "find");
    wait_for(store, 2, KVARVE_EVENT_LOADED, 1);
    run_all_ranks(NULL, lease, to);
    wait_for(store, 2, KVARVE_EVENT_COPIED, RANKS);
    kvarve_lease_release(&lease);
    printf("%llu tokens restored into other blocks\n", (unsigned long long)found.tokens);
}

static kvarve_prefix *make_prefix(void)
{
    uint32_t tokens[TOKENS];
    kvarve_prefix *prefix = NULL;

    for (uint32_t i = 0; i < TOKENS; i++) {
        tokens[i] = i * i % 5000u;
    }
    must(kvarve_prefix_create(&prefix, &error), "make prefix");
    must(kvarve_prefix_append(prefix, tokens, TOKENS, &error), "append tokens");
    return prefix;
}

int main(int argc, char **argv)
{
    kvarve_store_options options = KVARVE_STORE_OPTIONS_INIT;
    kvarve_store *store = NULL;
    kvarve_namespace *space;
    kvarve_prefix *prefix;
    sequence first;
    sequence second;

    if (argc != 2) {
        fprintf(stderr, "usage: %s STORE-FOLDER\n", argv[0]);
        return 2;
    }
    for (uint32_t i = 0; i < SEQUENCE_BLOCKS; i++) { /* scattered over the pool, each another way */
        first.blocks[i] = i * 5 % BLOCKS;
        second.blocks[i] = (i * 3 + 7) % BLOCKS;
    }
    first.state_block = 9;
    second.state_block = 40;
    options.arena_bytes = UINT64_C(16) << 20;
    options.flash_bytes_max = UINT64_C(256) << 20;
    must(kvarve_open(argv[1], &options, &store, &error), "open store");
    space = open_namespace(store);
    prefix = make_prefix();
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        register_rank(space, rank);
        compute(&first, rank);
    }
    store_sequence(store, space, prefix, &first);
    memset(memory, 0, sizeof memory); /* the blocks are somebody else's by now */
    restore_sequence(store, space, prefix, &second);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (!is_right(&second, rank)) {
            fprintf(stderr, "rank %u differs\n", rank);
            return 1;
        }
    }
    printf("every byte of every rank is as it was\n");
    kvarve_prefix_free(prefix);
    kvarve_namespace_release(&space);
    kvarve_close(store);
    return 0;
}
