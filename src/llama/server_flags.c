/*
 * server_flags.c - what a llama-server's command line and environment say about its state.
 *
 * Options that change neither meaning nor form of the state are passed over. The environment comes
 * first, the command line wins; of an option that is given twice the last one counts, lists add up.
 *
 * Invariants
 *   I1  A server whose state depends on more than its tokens is refused with the reason.
 *   I2  Defaults are those that llama-server documents: f16 for K and V, one unified cache when
 *       the number of slots is not given.
 *
 * Threads: any. Pure.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "llama/server_private.h"

/* What was found, as the command line spells it; NULL: not given. */
typedef struct flag_values {
    const char *context_shift; /* "0" or "1" */
    const char *cache_reuse;
    const char *group_attention;
    const char *lora_init;
    const char *projector;
    const char *models;
    const char *type_k;
    const char *type_v;
    const char *draft_type_k;
    const char *draft_type_v;
    const char *draft_model;
    const char *draft_repository;
    const char *draft_types;
    const char *preset; /* it chooses models and a drafter by itself */
    const char *flash;
    const char *parallel;
    const char *unified;
    const char *unified_slot;
    const char *rope[9];
} flag_values;

typedef enum flag_kind {
    FLAG_VALUE, /* takes the next word */
    FLAG_ON,    /* stands for "1" */
    FLAG_OFF,   /* stands for "0" */
    FLAG_LORA,
    FLAG_VECTOR,
    FLAG_LAYERS, /* takes two words */
    FLAG_OVERRIDE,
} flag_kind;

typedef struct flag {
    const char *names;       /* separated by spaces */
    const char *environment; /* or NULL */
    flag_kind kind;
    size_t offset; /* in flag_values */
} flag;

#define AT(member) offsetof(flag_values, member)

/* The order of the rope options is the order in the identity's text. */
static const char *const rope_names[] = {"rope-scaling",     "rope-scale",     "rope-freq-base",
                                         "rope-freq-scale",  "yarn-orig-ctx",  "yarn-ext-factor",
                                         "yarn-attn-factor", "yarn-beta-slow", "yarn-beta-fast"};

static const flag flags[] = {
    {"--context-shift", "LLAMA_ARG_CONTEXT_SHIFT", FLAG_ON, AT(context_shift)},
    {"--no-context-shift", NULL, FLAG_OFF, AT(context_shift)},
    {"--cache-reuse", "LLAMA_ARG_CACHE_REUSE", FLAG_VALUE, AT(cache_reuse)},
    {"--grp-attn-n -gan", "LLAMA_ARG_GRP_ATTN_N", FLAG_VALUE, AT(group_attention)},
    {"--lora-init-without-apply", NULL, FLAG_ON, AT(lora_init)},
    {"--mmproj -mm", "LLAMA_ARG_MMPROJ", FLAG_VALUE, AT(projector)},
    {"--mmproj-url -mmu", "LLAMA_ARG_MMPROJ_URL", FLAG_VALUE, AT(projector)},
    {"--models-dir", "LLAMA_ARG_MODELS_DIR", FLAG_VALUE, AT(models)},
    {"--models-preset", "LLAMA_ARG_MODELS_PRESET", FLAG_VALUE, AT(models)},
    {"--cache-type-k -ctk", "LLAMA_ARG_CACHE_TYPE_K", FLAG_VALUE, AT(type_k)},
    {"--cache-type-v -ctv", "LLAMA_ARG_CACHE_TYPE_V", FLAG_VALUE, AT(type_v)},
    {"--cache-type-k-draft --spec-draft-type-k -ctkd", "LLAMA_ARG_SPEC_DRAFT_TYPE_K", FLAG_VALUE,
     AT(draft_type_k)},
    {"--cache-type-v-draft --spec-draft-type-v -ctvd", "LLAMA_ARG_SPEC_DRAFT_TYPE_V", FLAG_VALUE,
     AT(draft_type_v)},
    {"--model-draft --spec-draft-model -md", "LLAMA_ARG_SPEC_DRAFT_MODEL", FLAG_VALUE,
     AT(draft_model)},
    {"--hf-repo-draft --spec-draft-hf -hfd -hfrd", "LLAMA_ARG_SPEC_DRAFT_HF_REPO", FLAG_VALUE,
     AT(draft_repository)},
    {"--spec-type", "LLAMA_ARG_SPEC_TYPE", FLAG_VALUE, AT(draft_types)},
    {"--spec-default --fim-qwen-7b-spec --fim-qwen-14b-spec", NULL, FLAG_ON, AT(preset)},
    {"--flash-attn -fa", "LLAMA_ARG_FLASH_ATTN", FLAG_VALUE, AT(flash)},
    {"--parallel -np", "LLAMA_ARG_N_PARALLEL", FLAG_VALUE, AT(parallel)},
    {"--kv-unified -kvu", "LLAMA_ARG_KV_UNIFIED", FLAG_ON, AT(unified)},
    {"--no-kv-unified -no-kvu", NULL, FLAG_OFF, AT(unified)},
    {"--kv-unified-per-slot", "LLAMA_ARG_KV_UNIFIED_PER_SLOT", FLAG_VALUE, AT(unified_slot)},
    {"--rope-scaling", "LLAMA_ARG_ROPE_SCALING_TYPE", FLAG_VALUE, AT(rope[0])},
    {"--rope-scale", "LLAMA_ARG_ROPE_SCALE", FLAG_VALUE, AT(rope[1])},
    {"--rope-freq-base", "LLAMA_ARG_ROPE_FREQ_BASE", FLAG_VALUE, AT(rope[2])},
    {"--rope-freq-scale", "LLAMA_ARG_ROPE_FREQ_SCALE", FLAG_VALUE, AT(rope[3])},
    {"--yarn-orig-ctx", "LLAMA_ARG_YARN_ORIG_CTX", FLAG_VALUE, AT(rope[4])},
    {"--yarn-ext-factor", "LLAMA_ARG_YARN_EXT_FACTOR", FLAG_VALUE, AT(rope[5])},
    {"--yarn-attn-factor", "LLAMA_ARG_YARN_ATTN_FACTOR", FLAG_VALUE, AT(rope[6])},
    {"--yarn-beta-slow", "LLAMA_ARG_YARN_BETA_SLOW", FLAG_VALUE, AT(rope[7])},
    {"--yarn-beta-fast", "LLAMA_ARG_YARN_BETA_FAST", FLAG_VALUE, AT(rope[8])},
    {"--lora --lora-scaled", NULL, FLAG_LORA, 0},
    {"--control-vector --control-vector-scaled", NULL, FLAG_VECTOR, 0},
    {"--control-vector-layer-range", NULL, FLAG_LAYERS, 0},
    {"--override-kv", NULL, FLAG_OVERRIDE, 0},
};

#define FLAG_COUNT (sizeof(flags) / sizeof(flags[0]))

static bool has_word(const char *names, const char *word)
{
    const size_t length = strlen(word);

    for (const char *at = names; *at != '\0';) {
        const size_t own = strcspn(at, " ");
        if (own == length && memcmp(at, word, own) == 0) {
            return true;
        }
        at += own;
        at += *at == ' ';
    }
    return false;
}

static const flag *find_flag(const char *word)
{
    for (size_t i = 0; i < FLAG_COUNT && word[0] == '-'; i++) {
        if (has_word(flags[i].names, word)) {
            return &flags[i];
        }
    }
    return NULL;
}

static const char **value_at(flag_values *values, const flag *of)
{
    return (const char **)(void *)((char *)values + of->offset);
}

/* ---- Reading ---- */

/* "FILE[:SCALE],FILE..." */
static kvarve_status add_adapters(const char *text, llama_adapter *list, uint32_t *count,
                                  kvarve_error *err)
{
    char one[KVARVE_PATH_MAX];
    kvarve_status status = KVARVE_OK;

    while (*text != '\0' && status == KVARVE_OK) {
        const size_t length = strcspn(text, ",");
        if (length >= sizeof(one)) {
            return kvarve_fail(err, KVARVE_UNSUPPORTED,
                               "the server has an adapter with a name of "
                               "%zu bytes",
                               length);
        }
        memcpy(one, text, length);
        one[length] = '\0';
        status = llama_adapter_parse(one, list, count, err);
        text += length;
        text += *text == ',';
    }
    return status;
}

static kvarve_status add_override(llama_facts *facts, const char *text, kvarve_error *err)
{
    const bool is_first = strcmp(facts->overrides, "none") == 0;
    size_t used = is_first ? 0 : strlen(facts->overrides);
    const size_t length = strlen(text);

    if (used + length + 2 > sizeof(facts->overrides)) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED, "the server's --override-kv is too long");
    }
    if (!is_first) {
        facts->overrides[used++] = ',';
    }
    memcpy(facts->overrides + used, text, length + 1);
    return KVARVE_OK;
}

/* One option of the command line at arguments->word[*at]; *at moves over its values. */
static kvarve_status read_flag(const server_words *arguments, size_t *at, const flag *of,
                               flag_values *values, llama_facts *facts, kvarve_error *err)
{
    const char *name = arguments->word[*at];

    if (of->kind == FLAG_ON || of->kind == FLAG_OFF) {
        *value_at(values, of) = of->kind == FLAG_ON ? "1" : "0";
        return KVARVE_OK;
    }
    const size_t wanted = of->kind == FLAG_LAYERS ? 2 : 1;
    if (arguments->count - *at <= wanted) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED, "the server's %s has no value", name);
    }
    const char *value = arguments->word[++*at];
    switch (of->kind) {
    case FLAG_LORA:
        return add_adapters(value, facts->adapters, &facts->adapter_count, err);
    case FLAG_VECTOR:
        return add_adapters(value, facts->vectors, &facts->vector_count, err);
    case FLAG_OVERRIDE:
        return add_override(facts, value, err);
    case FLAG_LAYERS:
        (void)snprintf(facts->vector_layers, sizeof(facts->vector_layers), "%.20s..%.20s", value,
                       arguments->word[++*at]);
        return KVARVE_OK;
    case FLAG_VALUE:
    case FLAG_ON:
    case FLAG_OFF:
        *value_at(values, of) = value;
        return KVARVE_OK;
    }
    return KVARVE_OK;
}

/* -fa takes a value in newer servers and none in older ones. */
static bool is_bare_flash(const server_words *arguments, size_t at, const flag *of)
{
    const char *next = at + 1 < arguments->count ? arguments->word[at + 1] : "-";
    return of->offset == AT(flash) && strcmp(next, "on") != 0 && strcmp(next, "off") != 0 &&
           strcmp(next, "auto") != 0;
}

static kvarve_status read_arguments(const server_words *arguments, flag_values *values,
                                    llama_facts *facts, kvarve_error *err)
{
    kvarve_status status = KVARVE_OK;

    for (size_t i = 0; i < arguments->count && status == KVARVE_OK; i++) {
        const flag *of = find_flag(arguments->word[i]);
        if (of == NULL) {
            continue;
        }
        if (is_bare_flash(arguments, i, of)) {
            values->flash = "on";
            continue;
        }
        status = read_flag(arguments, &i, of, values, facts, err);
    }
    return status;
}

static bool is_true(const char *text)
{
    return strcmp(text, "1") == 0 || strcmp(text, "on") == 0 || strcmp(text, "true") == 0 ||
           strcmp(text, "enabled") == 0 || strcmp(text, "yes") == 0;
}

/* The option that a variable of the environment stands for; NULL: none. */
static const flag *find_variable(const char *word, size_t length)
{
    for (size_t i = 0; i < FLAG_COUNT; i++) {
        const char *name = flags[i].environment;
        if (name != NULL && strlen(name) == length && memcmp(name, word, length) == 0) {
            return &flags[i];
        }
    }
    return NULL;
}

static void read_environment(const server_words *environment, flag_values *values)
{
    for (size_t i = 0; i < environment->count; i++) {
        const char *word = environment->word[i];
        const char *equals = strchr(word, '=');
        const flag *of = equals == NULL ? NULL : find_variable(word, (size_t)(equals - word));
        if (of == NULL) {
            continue;
        }
        const char *value = equals + 1;
        if (of->kind == FLAG_ON) {
            value = is_true(value) ? "1" : "0";
        }
        *value_at(values, of) = value;
    }
}

/* ---- What it means ---- */

static bool is_more_than(const char *text, long limit)
{
    return text != NULL && strtol(text, NULL, 10) > limit;
}

static kvarve_status refuse(const flag_values *values, kvarve_error *err) /* I1 */
{
    const char *reason = NULL;

    if (values->context_shift != NULL && values->context_shift[0] == '1') {
        reason = "--context-shift moves rows: they no longer follow from the tokens";
    } else if (is_more_than(values->cache_reuse, 0)) {
        reason = "--cache-reuse shifts rows: they no longer follow from the tokens";
    } else if (is_more_than(values->group_attention, 1)) {
        reason = "self-extend (--grp-attn-n) changes positions";
    } else if (values->lora_init != NULL) {
        reason = "--lora-init-without-apply: adapter scales differ from request to request";
    } else if (values->projector != NULL) {
        reason = "--mmproj: tokens of media do not say what they stand for";
    } else if (values->models != NULL) {
        reason = "it is a router of several models; ask the server of one";
    }
    return reason == NULL
               ? KVARVE_OK
               : kvarve_fail(err, KVARVE_UNSUPPORTED, "the server is refused: %s", reason);
}

/* Numbers in one spelling. */
static void canonical_number(const char *text, char *out, size_t size)
{
    char *end = NULL;
    const double value = strtod(text, &end);

    if (end != text && *end == '\0') {
        (void)snprintf(out, size, "%.9g", value);
    } else {
        (void)snprintf(out, size, "%s", text);
    }
}

static void set_rope(const flag_values *values, llama_facts *facts)
{
    size_t used = 0;

    for (size_t i = 0; i < sizeof(rope_names) / sizeof(rope_names[0]); i++) {
        char number[32];
        if (values->rope[i] == NULL) {
            continue;
        }
        canonical_number(values->rope[i], number, sizeof(number));
        const int length = snprintf(facts->rope + used, sizeof(facts->rope) - used, "%s%s=%s",
                                    used > 0 ? "," : "", rope_names[i], number);
        used += length > 0 ? (size_t)length : 0; /* nine names and numbers fit */
    }
}

static kvarve_status set_text(char *to, size_t size, const char *from, const char *missing,
                              kvarve_error *err)
{
    const char *text = from != NULL ? from : missing;

    if (strlen(text) >= size) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED, "the server's \"%.60s...\" is too long", text);
    }
    memcpy(to, text, strlen(text) + 1);
    return KVARVE_OK;
}

/* Add one speculative type to the drafter's, if it keeps a context: "draft-...". */
static void add_draft_type(llama_facts *facts, const char *type, size_t length)
{
    size_t used = strlen(facts->draft_type);

    if (strncmp(type, "draft", 5) != 0 || used + length + 2 > sizeof(facts->draft_type)) {
        return;
    }
    if (used > 0) {
        facts->draft_type[used++] = ',';
    }
    memcpy(facts->draft_type + used, type, length);
    facts->draft_type[used + length] = '\0';
}

static void set_draft_type(const flag_values *values, llama_facts *facts)
{
    const char *types = values->draft_types != NULL ? values->draft_types : "none";

    facts->draft_type[0] = '\0';
    while (*types != '\0') {
        const size_t length = strcspn(types, ",");
        add_draft_type(facts, types, length);
        types += length;
        types += *types == ',';
    }
    if (facts->draft_type[0] == '\0' && values->preset == NULL) {
        memcpy(facts->draft_type, "none", sizeof("none"));
    }
}

/* Streams of the cache: one when it is unified, as it is when the slots are not counted. (I2) */
static uint32_t streams_of(const flag_values *values)
{
    const long slots = values->parallel == NULL ? -1 : strtol(values->parallel, NULL, 10);
    const bool is_unified = values->unified_slot != NULL ||
                            (values->unified != NULL ? values->unified[0] == '1' : slots < 0);

    return slots <= 1 || is_unified ? 1 : (uint32_t)slots;
}

kvarve_status server_flags_read(const server_words *arguments, const server_words *environment,
                                llama_facts *facts, kvarve_error *err)
{
    flag_values values = {0};

    read_environment(environment, &values);
    kvarve_status status = read_arguments(arguments, &values, facts, err);
    if (status == KVARVE_OK) {
        status = refuse(&values, err);
    }
    if (status == KVARVE_OK) {
        status = set_text(facts->kv_type_k, sizeof(facts->kv_type_k), values.type_k, "f16", err);
    }
    if (status == KVARVE_OK) {
        status = set_text(facts->kv_type_v, sizeof(facts->kv_type_v), values.type_v, "f16", err);
    }
    if (status == KVARVE_OK) {
        status = set_text(facts->draft_type_k, sizeof(facts->draft_type_k), values.draft_type_k,
                          "f16", err);
    }
    if (status == KVARVE_OK) {
        status = set_text(facts->draft_type_v, sizeof(facts->draft_type_v), values.draft_type_v,
                          "f16", err);
    }
    if (status == KVARVE_OK) {
        status =
            set_text(facts->draft_model, sizeof(facts->draft_model), values.draft_model, "", err);
    }
    if (status == KVARVE_OK && values.draft_repository != NULL && values.draft_model == NULL) {
        (void)snprintf(facts->draft_model, sizeof(facts->draft_model), "?");
    }
    if (status != KVARVE_OK) {
        return status;
    }
    set_rope(&values, facts);
    set_draft_type(&values, facts);
    if (values.flash != NULL) {
        facts->flash = strcmp(values.flash, "off") == 0  ? LLAMA_FLASH_OFF
                       : strcmp(values.flash, "on") == 0 ? LLAMA_FLASH_ON
                                                         : LLAMA_FLASH_UNKNOWN;
    }
    facts->stream_count = streams_of(&values);
    return KVARVE_OK;
}
