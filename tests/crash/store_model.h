/*
 * store_model.h - a store in the simulated host, and a table of what it must hold: the oracle of
 * the crash tests.
 *
 * What is put are *items*: a layout, a conversation, a boundary, a kind and a variant. Every byte
 * of an item is a function of these, so what is restored can be told from anything else that was
 * ever stored. A *session* is one open store; a *model* says of each item what is known.
 *
 * Threads    One.
 * Ownership  session_open makes, session_close ends; a model is plain data.
 */
#ifndef KVARVE_TESTS_STORE_MODEL_H
#define KVARVE_TESTS_STORE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarve/admin.h"
#include "kvarve/checkpoint.h"
#include "simulate/world.h"

#define MODEL_FOLDER    "/s"
#define MODEL_ITEMS_MAX 24u

#define MODEL_DERIVED_SPAN 16u /* LAYOUT_DENSE: all its groups have a page end at its multiples */

typedef enum model_layout {
    LAYOUT_PLAIN, /* attention and an endpoint, one rank */
    LAYOUT_EXACT, /* the same, exact, two ranks */
    LAYOUT_MIXED, /* all classes, replicated and variable groups, two ranks, and a drafter's group
                   */
    LAYOUT_LARGE, /* pages of 64 KiB, for a small cap */
    LAYOUT_PAGED, /* two ranks whose memory is registered: store_paged.h */
    LAYOUT_DENSE, /* prefix groups of two spans only: its page ends are boundaries, too */
    LAYOUT_COUNT
} model_layout;

typedef struct model_item {
    uint8_t layout;
    uint8_t conversation; /* 1 goes on from the first 32 tokens of 0; all others have nothing in
                             common */
    uint8_t kind;
    uint8_t variant; /* other bytes for the same tokens */
    uint32_t tokens;
    uint32_t
        first_tokens; /* of these the bytes are those of first_variant: another put was first */
    uint8_t first_variant;
    bool has_no_draft; /* LAYOUT_MIXED: without the drafter's group */
} model_item;

typedef enum item_state {
    ITEM_ABSENT,  /* never stored, or dropped for good: must not be found */
    ITEM_PERHAPS, /* found whole and right, or not at all */
    ITEM_SURE,    /* acknowledged durable: must be found */
} item_state;

typedef struct model {
    const model_item *items;
    size_t count;
    uint8_t states[MODEL_ITEMS_MAX];  /* item_state */
    bool was_put[MODEL_ITEMS_MAX];    /* tried at least once: a rebuild may bring it back */
    bool is_buried[MODEL_ITEMS_MAX];  /* dropped, and a later record says so: not even a rebuild */
    bool is_dropped[MODEL_ITEMS_MAX]; /* durably */
} model;

typedef struct session {
    sim_world *world;
    kvarve_store *store;
    kvarve_namespace *names[LAYOUT_COUNT];
} session;

typedef struct model_limits {
    uint64_t flash_bytes_max; /* 0: much */
    uint64_t arena_bytes;     /* 0: the least */
    uint32_t flags;           /* KVARVE_OPEN_... */
    uint32_t io_timeout_ms;   /* 0: the default */
} model_limits;

/* Open the store in `folder`, and the namespaces of all layouts. */
KVARVE_NODISCARD kvarve_status session_open(session *out, sim_world *world, const char *folder,
                                            const model_limits *limits, kvarve_error *err);
/* Harmless when it is not open. */
void session_close(session *open);

void model_init(model *out, const model_item *items, size_t count);

/* --- one item --- */

/* How a put ended. */
typedef struct put_outcome {
    kvarve_status status; /* of the first call that was not KVARVE_OK */
    uint32_t state;       /* kvarve_put_state */
    uint32_t refusal;
} put_outcome;

/* Begin, fill in place, acknowledge, wait until it is durable or refused. */
put_outcome item_put(session *open, const model_item *item);

/* The same for several items of LAYOUT_PLAIN in one kvarve_put_many. */
KVARVE_NODISCARD kvarve_status items_put_many(session *open, const model_item *items, size_t count,
                                              put_outcome *out);

/* Begin and fill, but do not acknowledge. *out_put is the caller's to release. */
KVARVE_NODISCARD kvarve_status item_stage(session *open, const model_item *item,
                                          uint32_t timeout_ms, kvarve_put **out_put,
                                          kvarve_error *err);

/* KVARVE_OK: found, *out_lease (may be NULL) has it. KVARVE_MISS: not found. */
KVARVE_NODISCARD kvarve_status item_find(session *open, const model_item *item, uint32_t lease_mode,
                                         kvarve_boundary *out, kvarve_lease **out_lease,
                                         kvarve_miss *out_miss);

typedef enum read_answer {
    READ_RIGHT,
    READ_MISS,  /* not found, or found and not readable */
    READ_WRONG, /* bytes that were never stored there: must never be */
} read_answer;

/* Read every group of every rank of a lease and compare. */
read_answer lease_compare(session *open, const model_item *item, kvarve_lease *lease);

/* Find, (load), read, compare. `is_loaded`: by way of the arena. */
read_answer item_read(session *open, const model_item *item, bool is_loaded, bool *out_is_found);

/* The same for the boundary at `end` of its tokens that no checkpoint is. */
read_answer item_read_derived(session *open, const model_item *item, uint32_t end, bool is_loaded,
                              bool *out_is_found);

/* LAYOUT_PAGED: find, load, copy into the registered regions, compare. */
read_answer item_restore_paged(session *open, const model_item *item, bool *out_is_found);

KVARVE_NODISCARD kvarve_status item_drop(session *open, const model_item *item);

/* --- the whole --- */

/* What a look at all items found. */
typedef struct model_view {
    bool is_found[MODEL_ITEMS_MAX];
    size_t found;
} model_view;

/*
 * Look for every item. NULL: all is as the model says, every found item restores byte for byte, and
 * the store holds the pages of these and nothing else (D2). Else what is wrong.
 *
 * is_rebuilt  dropped items may be back, if no later record says that they were dropped
 */
const char *model_check(session *open, const model *known, bool is_rebuilt, model_view *out);

/* What the store shows now is what is known from now on. */
void model_learn(model *known, const model_view *seen);

#endif
