/*
 * model_ways.c - the ways in and out of a store that a random run draws from: registered regions,
 * writes, open puts, many puts at once.
 *
 * Regions are those of the layout PLAIN, one layer a group: a block of the prefix group is half a
 * page, so that a page's bytes are those of its blocks one after the other. Block ids are permuted,
 * and each put in flight has a lane of blocks to itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/alloc.h"
#include "model/model_run.h"

#define LANES       (STAGED_MAX + 2u)
#define LANE_BACK   (STAGED_MAX + 1u) /* what is restored comes here */
#define LANE_BLOCKS 16u
#define BLOCKS      (LANES * LANE_BLOCKS)
#define BLOCK_ROWS  8u
#define ROW_BYTES   96u
#define STATE_BYTES 9001u
#define GROUPS      2u
#define MANY_MAX    5u
#define BYTES_MAX   (UINT32_C(1) << 16) /* of one group of an entry */

static uint8_t rows[BLOCKS][BLOCK_ROWS * ROW_BYTES];
static uint8_t states[BLOCKS][STATE_BYTES];

void model_register(run *at)
{
    const uint32_t block_tokens[GROUPS] = {BLOCK_ROWS, 1};
    const kvarve_region regions[GROUPS] = {
        {.group = 0,
         .base = rows,
         .block_stride = sizeof rows[0],
         .row_bytes = ROW_BYTES,
         .run_count = 1,
         .block_count = BLOCKS},
        {.group = 1,
         .base = states,
         .block_stride = STATE_BYTES,
         .row_bytes = STATE_BYTES,
         .run_count = 1,
         .block_count = BLOCKS},
    };

    assert_ok(kvarve_regions_register(at->engines[PLAIN].space, 0, regions, GROUPS, block_tokens,
                                      &model_error));
}

static uint32_t block_of(uint32_t lane, uint64_t n)
{
    return lane * LANE_BLOCKS + (uint32_t)(n * 5 + 1 + lane) % LANE_BLOCKS;
}

/* The blocks of an entry in a lane, and the caller's lists of them. */
typedef struct block_lists {
    uint32_t ids[LANE_BLOCKS];
    uint32_t state;
    const uint32_t *of_group[GROUPS];
    size_t counts[GROUPS];
} block_lists;

static void list_blocks(const engine_state *state, uint32_t lane, block_lists *out)
{
    out->counts[0] = (size_t)(state->tokens + BLOCK_ROWS - 1) / BLOCK_ROWS;
    out->counts[1] = 1;
    out->of_group[0] = out->ids;
    out->of_group[1] = &out->state;
    for (size_t n = 0; n < out->counts[0]; n++) {
        out->ids[n] = block_of(lane, n);
    }
    out->state = block_of(lane, 0);
}

/* Does every row that a page has stand where its blocks are? Or, to_blocks: put it there. */
static bool move_page(const engine *machine, const engine_state *state, uint32_t lane,
                      uint64_t position, bool to_blocks)
{
    static uint8_t page[ENGINE_PAGE_MAX];
    const size_t size = engine_page_size(machine, state, 0, 0, position);
    const uint64_t first_row = position * machine->layout->groups[0].span_tokens;
    bool is_right = true;

    engine_fill(machine, state, 0, 0, position, page);
    for (size_t i = 0; i < size / ROW_BYTES; i++) {
        uint8_t *row = rows[block_of(lane, (first_row + i) / BLOCK_ROWS)] +
                       (first_row + i) % BLOCK_ROWS * ROW_BYTES;

        if (to_blocks) {
            memcpy(row, page + i * ROW_BYTES, ROW_BYTES);
        } else {
            is_right = is_right && memcmp(row, page + i * ROW_BYTES, ROW_BYTES) == 0;
        }
    }
    return is_right;
}

static bool move_all(const engine *machine, const engine_state *state, uint32_t lane,
                     bool to_blocks)
{
    uint64_t first = 0;
    const uint64_t count = engine_extent(machine, state, 0, &first);
    uint8_t *whole = states[block_of(lane, 0)];
    bool is_right = true;

    for (uint64_t i = 0; i < count; i++) {
        is_right = move_page(machine, state, lane, first + i, to_blocks) && is_right;
    }
    if (to_blocks) {
        engine_fill(machine, state, 0, 1, 0, whole);
        return true;
    }
    return is_right && engine_is_right(machine, state, 0, 1, 0, whole, STATE_BYTES);
}

void model_draw_way(run *at, staged_put *one)
{
    one->way = (put_way)model_draw(at, one->what.layout == PLAIN ? 3 : 2);
    one->is_open = false;
}

static kvarve_status copy_from_regions(run *at, staged_put *one)
{
    const engine *machine = &at->engines[PLAIN];
    block_lists blocks;
    kvarve_status status;

    (void)move_all(machine, &one->what.state, one->lane, true);
    list_blocks(&one->what.state, one->lane, &blocks);
    status = kvarve_put_copy(one->put, 0, blocks.of_group, blocks.counts, 0, &model_error);
    memset(&blocks, 0, sizeof blocks); /* the lists are read during the call alone */
    at->copied += status == KVARVE_OK;
    return status;
}

kvarve_status model_hand_over(run *at, staged_put *one, uint32_t rank)
{
    const engine *machine = &at->engines[one->what.layout];
    kvarve_status status;

    if (one->way == WAY_REGIONS) {
        return kvarve_put_status(one->put) < KVARVE_PUT_READY ? copy_from_regions(at, one)
                                                              : KVARVE_OK;
    }
    status = one->way == WAY_WRITE
                 ? engine_put_write(machine, one->put, &one->what.state, rank, &model_error)
                 : engine_put_fill(machine, one->put, &one->what.state, rank, NULL, &model_error);
    if (status == KVARVE_OK) {
        (void)!kvarve_put_ack(one->put, rank, NULL, 0, NULL); /* a second one may be wrong */
    }
    return status;
}

/* --- open puts --- */

/* What is staged is full pages, valid to their end. */
static engine_state state_of_stage(const staged_put *one, uint64_t tokens)
{
    engine_state stage = one->what.state;

    stage.tokens = tokens;
    stage.draft_tokens = tokens;
    return stage;
}

void model_begin_open(run *at, staged_put *one)
{
    const engine_state nothing = state_of_stage(one, 0);

    one->is_open = true;
    one->staged_tokens = 0;
    assert_ok(
        engine_put_begin(&at->engines[one->what.layout], &nothing, NULL, &one->put, &model_error));
}

static void fill_stage(run *at, staged_put *one)
{
    const engine *machine = &at->engines[one->what.layout];
    const engine_state stage = state_of_stage(one, one->staged_tokens);
    kvarve_status status = KVARVE_OK;

    for (uint32_t rank = 0; rank < machine->layout->ranks && status == KVARVE_OK; rank++) {
        status = engine_put_fill(machine, one->put, &stage, rank, NULL, &model_error);
        if (status == KVARVE_OK) {
            (void)!kvarve_put_ack(one->put, rank, NULL, 0, NULL);
        }
    }
    assert_true(status == KVARVE_OK || status == KVARVE_MISS || status == KVARVE_BUSY);
}

void model_advance_open(run *at, staged_put *one)
{
    const engine *machine = &at->engines[one->what.layout];
    const uint64_t further = one->staged_tokens + 1 + model_draw(at, 40);
    kvarve_status status;

    fill_stage(at, one);
    if (further > one->what.state.tokens || model_draw(at, 3) == 0) {
        status = engine_put_close(machine, one->put, &one->what.state, &model_error);
        one->is_open = status != KVARVE_OK;
        at->closed += status == KVARVE_OK;
    } else {
        const engine_state stage = state_of_stage(one, further);

        status = engine_put_extend(machine, one->put, &stage, &model_error);
        one->staged_tokens = status == KVARVE_OK ? further : one->staged_tokens;
    }
    if (status == KVARVE_BUSY) { /* what was acked goes its way meanwhile */
        (void)!kvarve_put_wait(one->put, KVARVE_PUT_STAGED, 10, NULL);
        return;
    }
    assert_true(status == KVARVE_OK || status == KVARVE_MISS);
}

void model_give_up(run *at, staged_put *one)
{
    const uint32_t ranks = at->engines[one->what.layout].layout->ranks;

    at->given_up++;
    if (model_draw(at, 2) == 0) {
        kvarve_put_abort(one->put);
    } else {
        assert_ok(kvarve_put_fail(one->put, model_draw(at, ranks), &model_error));
    }
}

/* --- many at once --- */

typedef struct bulk {
    entry what;
    kvarve_prefix *prefix;
    kvarve_put_options options;
    kvarve_section sections[ENGINE_GROUPS_MAX];
    uint8_t *bytes[ENGINE_GROUPS_MAX];
    size_t count;
} bulk;

/* Layouts without digests and sizes, of one rank. */
static void make_bulk(run *at, bulk *out, uint32_t layout, kvarve_bulk_item *item)
{
    const engine *machine = &at->engines[layout];

    out->what = model_draw_entry(at);
    out->what.layout = layout;
    out->what.state.variant = 0;
    out->what.state.draft_tokens = layout == 2 ? out->what.state.tokens : 0;
    out->prefix = model_prefix(out->what.tokens, TOKENS_MAX);
    out->what.state.prefix = out->prefix;
    out->options = (kvarve_put_options)KVARVE_PUT_OPTIONS_INIT;
    out->options.tokens = out->what.state.tokens;
    out->options.draft_tokens = out->what.state.draft_tokens;
    out->options.kind = out->what.state.kind;
    out->count = 0;
    for (uint32_t group = 0; group < machine->layout->group_count; group++) {
        kvarve_section *section = &out->sections[out->count];
        uint64_t first = 0;
        const uint64_t pages = engine_extent(machine, &out->what.state, group, &first);

        *section = (kvarve_section){.group = group, .position = first};
        out->bytes[group] = kvarve_allocate(BYTES_MAX);
        assert_non_null(out->bytes[group]);
        for (uint64_t i = 0; i < pages; i++) {
            engine_fill(machine, &out->what.state, 0, group, first + i,
                        out->bytes[group] + section->size);
            section->size += engine_page_size(machine, &out->what.state, 0, group, first + i);
        }
        section->bytes = out->bytes[group];
        out->count += pages > 0;
    }
    *item = (kvarve_bulk_item){.prefix = out->prefix,
                               .options = &out->options,
                               .sections = out->sections,
                               .section_count = out->count};
}

/* It has no handle: the same again is known content, and says its id. */
static void learn_bulk(run *at, const bulk *one)
{
    kvarve_put *again = NULL;

    assert_ok(engine_put_begin(&at->engines[one->what.layout], &one->what.state, NULL, &again,
                               &model_error));
    assert_int_equal(kvarve_put_status(again), KVARVE_PUT_PRESENT);
    model_learn_put(at, again, &one->what);
    kvarve_put_release(&again);
}

void model_put_many(run *at)
{
    static const uint32_t of_layout[] = {PLAIN, 2, DENSE};
    const uint32_t layout = of_layout[model_draw(at, 3)];
    const uint32_t count = 1 + model_draw(at, MANY_MAX);
    const bool is_alone = model_draw(at, 2) == 0;
    static bulk all[MANY_MAX];
    kvarve_bulk_item items[MANY_MAX];
    kvarve_status status;

    if (is_alone) {
        model_end_all_staged(at);
    }
    for (uint32_t i = 0; i < count; i++) {
        make_bulk(at, &all[i], layout, &items[i]);
    }
    status = kvarve_put_many(at->engines[layout].space, items, count, &model_error);
    at->puts += count;
    at->many += count;
    assert_true(status == KVARVE_OK || (status == KVARVE_BUSY && !is_alone)); /* no room just now */
    for (uint32_t i = 0; i < count; i++) {
        const bool is_kept =
            items[i].out_state == KVARVE_PUT_DURABLE || items[i].out_state == KVARVE_PUT_PRESENT;

        assert_true(is_kept || !is_alone); /* else a staged put has its pages, or the room */
        if (is_kept) {
            learn_bulk(at, &all[i]);
            at->many_kept++;
        }
        kvarve_prefix_free(all[i].prefix);
        for (uint32_t group = 0; group < at->engines[layout].layout->group_count; group++) {
            kvarve_release(all[i].bytes[group]);
        }
    }
}

/* --- back --- */

void model_copy_back(run *at, kvarve_lease *lease, const entry *known, const engine_state *state)
{
    block_lists blocks;

    if (known->layout != PLAIN) {
        return;
    }
    list_blocks(state, LANE_BACK, &blocks);
    memset(rows[LANE_BACK * LANE_BLOCKS], 0, sizeof rows[0] * LANE_BLOCKS);
    memset(states[LANE_BACK * LANE_BLOCKS], 0, sizeof states[0] * LANE_BLOCKS);
    assert_ok(kvarve_lease_copy(lease, 0, blocks.of_group, blocks.counts, 0, &model_error));
    memset(&blocks, 0, sizeof blocks);
    assert_ok(kvarve_lease_copy_wait(lease, 0, 10000, &model_error));
    assert_true(move_all(&at->engines[PLAIN], state, LANE_BACK, false));
    at->copied_back++;
}
