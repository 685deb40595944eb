/*
 * identity.c - facts about a server as identity documents, and the comparison with kept ones.
 *
 * Invariants
 *   I1  What is not known is refused, never guessed: a document holds every field.
 *   I2  Two documents differ in "layout" and the KV types only if their slot files do; so a kept
 *       document that is equal in everything else tells the layout to somebody without slot file.
 *
 * Threads    Any. Ownership: as the header says; JSON values are counted by jansson.
 */
#include "llama/identity.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "llama/codec_private.h"

#define ENGINE     "llama.cpp"
#define STATE_TEXT "ggsq 4, SCKP 1, SDFT 1"
#define CODEC      1
#define NO_KV      "none"  /* the KV type of a model without attention */
#define DRAFT_IN   "model" /* the drafter is part of the model */
#define SCALE_MAX  1e6

struct llama_identity {
    json_t *meaning; /* all but layout and KV types */
    json_t *draft;   /* the same of the drafter; NULL: there is none */
    json_t *numerics;
    char kv_type_k[16];
    char kv_type_v[16];
    char draft_type_k[16];
    char draft_type_v[16];
    llama_flash flash;
};

/* ---- Facts ---- */

static void copy_text(char *to, size_t size, const char *from)
{
    (void)snprintf(to, size, "%s", from);
}

void llama_facts_init(llama_facts *facts)
{
    *facts = (llama_facts){0};
    copy_text(facts->rope, sizeof(facts->rope), "model");
    copy_text(facts->vector_layers, sizeof(facts->vector_layers), "all");
    copy_text(facts->overrides, sizeof(facts->overrides), "none");
    copy_text(facts->draft_type, sizeof(facts->draft_type), "none");
}

kvarve_status llama_adapter_parse(const char *text, llama_adapter *list, uint32_t *count,
                                  kvarve_error *err)
{
    const char *colon = strrchr(text, ':');
    const size_t length = colon == NULL ? strlen(text) : (size_t)(colon - text);
    double scale = 1.0;

    if (colon != NULL) {
        char *end = NULL;
        scale = strtod(colon + 1, &end);
        if (end == colon + 1 || *end != '\0' || !(fabs(scale) <= SCALE_MAX)) {
            return kvarve_fail(err, KVARVE_INVALID, "adapter \"%.100s\": no scale behind its colon",
                               text);
        }
    }
    if (length == 0 || length >= sizeof(list->path)) {
        return kvarve_fail(err, KVARVE_INVALID, "adapter \"%.100s\": no file name", text);
    }
    if (*count == LLAMA_ADAPTERS_MAX) {
        return kvarve_fail(err, KVARVE_INVALID, "more than %d adapters", LLAMA_ADAPTERS_MAX);
    }
    llama_adapter *adapter = &list[(*count)++];
    memcpy(adapter->path, text, length);
    adapter->path[length] = '\0';
    (void)snprintf(adapter->scale, sizeof(adapter->scale), "%.9g", scale);
    return KVARVE_OK;
}

/* ---- Making ---- */

static kvarve_status check_known(const char *value, const char *field, const char *option,
                                 kvarve_error *err)
{
    return value[0] != '\0'
               ? KVARVE_OK
               : kvarve_fail(err, KVARVE_UNSUPPORTED,
                             "identity: %s is not known; say it with %s, or --server to ask the "
                             "running server",
                             field, option);
}

static kvarve_status check_facts(const llama_facts *facts, kvarve_error *err)
{
    const struct {
        const char *value;
        const char *field;
        const char *option;
    } needed[] = {
        {facts->model, "the model", "--model FILE"},
        {facts->kv_type_k, "the type of K", "--kv-type-k TYPE"},
        {facts->kv_type_v, "the type of V", "--kv-type-v TYPE"},
        {facts->rope, "rope", "--rope TEXT"},
        {facts->build, "the build (numerics class)", "--numerics \"BUILD BACKEND\""},
        {facts->backend, "the backend (numerics class)", "--numerics \"BUILD BACKEND\""},
        {facts->draft_type, "the kind of drafter", "--draft-type TYPE"},
    };
    kvarve_status status = KVARVE_OK;

    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]) && status == KVARVE_OK; i++) {
        status = check_known(needed[i].value, needed[i].field, needed[i].option, err);
    }
    if (status == KVARVE_OK && strcmp(facts->draft_type, "none") != 0) {
        status =
            check_known(facts->draft_type_k, "the drafter's type of K", "--draft-kv-type-k", err);
        if (status == KVARVE_OK) {
            status = check_known(facts->draft_type_v, "the drafter's type of V",
                                 "--draft-kv-type-v", err);
        }
    }
    return status;
}

static kvarve_status no_memory(kvarve_error *err)
{
    return kvarve_fail(err, KVARVE_NO_MEMORY,
                       "identity: its document (or a text that is no UTF-8)");
}

/* Adapters as [{"digest", "scale"}], in their order. NULL: see *out_status. */
static json_t *make_adapters(const llama_adapter *list, uint32_t count,
                             const model_digest_options *digests, kvarve_status *out_status,
                             kvarve_error *err)
{
    char digest[MODEL_DIGEST_TEXT] = "";
    json_t *array = json_array();

    *out_status = array == NULL ? no_memory(err) : KVARVE_OK;
    for (uint32_t i = 0; i < count && *out_status == KVARVE_OK; i++) {
        *out_status = model_digest(digests, list[i].path, digest, err);
        if (*out_status == KVARVE_OK &&
            json_array_append_new(
                array, json_pack("{s:s,s:s}", "digest", digest, "scale", list[i].scale)) != 0) {
            *out_status = no_memory(err);
        }
    }
    if (*out_status != KVARVE_OK) {
        json_decref(array);
        return NULL;
    }
    return array;
}

static kvarve_status make_meaning(const llama_facts *facts, const model_digest_options *digests,
                                  llama_identity *identity, kvarve_error *err)
{
    char model[MODEL_DIGEST_TEXT] = "";
    char architecture[MODEL_ARCHITECTURE_TEXT] = "";
    kvarve_status status = model_architecture(digests->io, facts->model, architecture, err);

    if (status == KVARVE_OK) {
        status = model_digest(digests, facts->model, model, err);
    }
    json_t *adapters = NULL;
    json_t *vectors = NULL;
    if (status == KVARVE_OK) {
        adapters = make_adapters(facts->adapters, facts->adapter_count, digests, &status, err);
    }
    if (status == KVARVE_OK) {
        vectors = make_adapters(facts->vectors, facts->vector_count, digests, &status, err);
    }
    if (status != KVARVE_OK) {
        json_decref(adapters);
        return status;
    }
    /* Takes over both arrays, also when it fails. */
    identity->meaning = json_pack(
        "{s:s,s:s,s:i,s:s,s:s,s:s,s:o,s:o,s:s,s:s}", "engine", ENGINE, "state", STATE_TEXT, "codec",
        CODEC, "architecture", architecture, "model", model, "rope", facts->rope, "adapters",
        adapters, "control_vectors", vectors, "control_layers",
        facts->vector_count > 0 ? facts->vector_layers : "all", "overrides", facts->overrides);
    return identity->meaning == NULL ? no_memory(err) : KVARVE_OK;
}

static kvarve_status make_draft(const llama_facts *facts, const model_digest_options *digests,
                                llama_identity *identity, kvarve_error *err)
{
    char model[MODEL_DIGEST_TEXT] = DRAFT_IN;

    if (strcmp(facts->draft_type, "none") == 0) {
        return KVARVE_OK;
    }
    if (facts->draft_model[0] != '\0') {
        const kvarve_status status = model_digest(digests, facts->draft_model, model, err);
        if (status != KVARVE_OK) {
            return status;
        }
    }
    identity->draft = json_pack("{s:s,s:s}", "model", model, "type", facts->draft_type);
    return identity->draft == NULL ? no_memory(err) : KVARVE_OK;
}

kvarve_status llama_identity_create(const llama_facts *facts, const model_digest_options *digests,
                                    llama_identity **out, kvarve_error *err)
{
    kvarve_status status = check_facts(facts, err); /* I1 */

    if (status != KVARVE_OK) {
        return status;
    }
    llama_identity *identity = kvarve_allocate(sizeof(*identity));
    if (identity == NULL) {
        return no_memory(err);
    }
    copy_text(identity->kv_type_k, sizeof(identity->kv_type_k), facts->kv_type_k);
    copy_text(identity->kv_type_v, sizeof(identity->kv_type_v), facts->kv_type_v);
    copy_text(identity->draft_type_k, sizeof(identity->draft_type_k), facts->draft_type_k);
    copy_text(identity->draft_type_v, sizeof(identity->draft_type_v), facts->draft_type_v);
    identity->flash = facts->flash;
    identity->numerics = json_pack("{s:s,s:s}", "build", facts->build, "backend", facts->backend);
    status = identity->numerics == NULL ? no_memory(err) : KVARVE_OK;
    if (status == KVARVE_OK) {
        status = make_meaning(facts, digests, identity, err);
    }
    if (status == KVARVE_OK) {
        status = make_draft(facts, digests, identity, err);
    }
    if (status != KVARVE_OK) {
        llama_identity_free(identity);
        return status;
    }
    *out = identity;
    return KVARVE_OK;
}

void llama_identity_free(llama_identity *identity)
{
    if (identity == NULL) {
        return;
    }
    json_decref(identity->meaning);
    json_decref(identity->draft);
    json_decref(identity->numerics);
    kvarve_release(identity);
}

bool llama_identity_has_draft(const llama_identity *identity)
{
    return identity->draft != NULL;
}

llama_flash llama_identity_flash(const llama_identity *identity)
{
    return identity->flash;
}

const char *llama_identity_architecture(const llama_identity *identity)
{
    return json_string_value(json_object_get(identity->meaning, "architecture"));
}

/* ---- What a layout says ---- */

/* As llama-server names it; "ggml-N" for types that it does not offer for a cache. */
typedef struct type_text {
    char text[16];
} type_text;

static type_text type_name(uint32_t type)
{
    static const struct {
        uint32_t type;
        const char *name;
    } names[] = {{0, "f32"},  {1, "f16"},  {2, "q4_0"},    {3, "q4_1"}, {6, "q5_0"},
                 {7, "q5_1"}, {8, "q8_0"}, {20, "iq4_nl"}, {30, "bf16"}};
    type_text out;

    (void)snprintf(out.text, sizeof(out.text), "ggml-%" PRIu32, type);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (names[i].type == type) {
            copy_text(out.text, sizeof(out.text), names[i].name);
        }
    }
    return out;
}

/* Its attention part, of which all have one shape; NULL: it has none. */
static const llama_attention *attention_of(const llama_layout *layout)
{
    if (layout->prefix.is_present && layout->prefix.layer_count > 0) {
        return &layout->prefix;
    }
    return layout->window.is_present && layout->window.layer_count > 0 ? &layout->window : NULL;
}

static type_text key_type(const llama_layout *layout)
{
    const llama_attention *attention = attention_of(layout);
    return attention == NULL ? (type_text){NO_KV} : type_name(attention->rows[0].type);
}

static type_text value_type(const llama_layout *layout)
{
    const llama_attention *attention = attention_of(layout);
    return attention == NULL ? (type_text){NO_KV}
                             : type_name(attention->rows[attention->layer_count].type);
}

static bool is_type(const char *of_layout, const char *of_identity)
{
    return strcmp(of_layout, NO_KV) == 0 || strcmp(of_layout, of_identity) == 0;
}

static bool is_flash(const llama_layout *layout, llama_flash flash)
{
    const llama_attention *attention = attention_of(layout);
    return attention == NULL || flash == LLAMA_FLASH_UNKNOWN ||
           attention->is_transposed == (flash == LLAMA_FLASH_OFF);
}

const char *llama_identity_difference(const llama_identity *identity, const llama_layout *main)
{
    if (!is_type(key_type(main).text, identity->kv_type_k)) {
        return "kv_type_k";
    }
    if (!is_type(value_type(main).text, identity->kv_type_v)) {
        return "kv_type_v";
    }
    return is_flash(main, identity->flash) ? NULL : "flash attention";
}

static kvarve_status check_layout(const llama_identity *identity, const llama_layout *main,
                                  const llama_layout *draft, kvarve_error *err)
{
    if (!is_type(key_type(main).text, identity->kv_type_k) ||
        !is_type(value_type(main).text, identity->kv_type_v)) {
        return kvarve_fail(
            err, KVARVE_INVALID, "the slot file has K %s and V %s, the identity says %s and %s",
            key_type(main).text, value_type(main).text, identity->kv_type_k, identity->kv_type_v);
    }
    if (!is_flash(main, identity->flash)) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "the slot file was written with flash attention %s, the identity says "
                           "the other",
                           identity->flash == LLAMA_FLASH_OFF ? "on" : "off");
    }
    if (draft == NULL) {
        return KVARVE_OK;
    }
    if (identity->draft == NULL) {
        return kvarve_fail(err, KVARVE_UNSUPPORTED,
                           "identity: the slot file has draft state, but no drafter is known; say "
                           "it with --draft-type and --draft-model, or --server");
    }
    if (!is_type(key_type(draft).text, identity->draft_type_k) ||
        !is_type(value_type(draft).text, identity->draft_type_v)) {
        return kvarve_fail(err, KVARVE_INVALID,
                           "the draft state has K %s and V %s, the identity says %s and %s",
                           key_type(draft).text, value_type(draft).text, identity->draft_type_k,
                           identity->draft_type_v);
    }
    return KVARVE_OK;
}

/* ---- Documents ---- */

/* As text; NULL: no memory, or `object` is NULL. */
static char *dump(const json_t *object)
{
    const size_t flags = JSON_COMPACT | JSON_SORT_KEYS;
    const size_t size = object == NULL ? 0 : json_dumpb(object, NULL, 0, flags);
    char *text = size == 0 ? NULL : kvarve_allocate(size + 1);

    if (text != NULL && json_dumpb(object, text, size, flags) != size) {
        kvarve_release(text);
        return NULL;
    }
    return text;
}

/* Members for a layout on top of those of `base`. */
static char *dump_with_layout(json_t *base, const llama_layout *layout)
{
    size_t size = 0;
    char *text = kvarve_allocate(LLAMA_LAYOUT_TEXT_MAX);
    json_t *object = json_copy(base);
    char *result = NULL;

    if (text != NULL && object != NULL &&
        llama_layout_encode(layout, text, LLAMA_LAYOUT_TEXT_MAX, &size, NULL) == KVARVE_OK &&
        json_object_set_new(object, "kv_type_k", json_string(key_type(layout).text)) == 0 &&
        json_object_set_new(object, "kv_type_v", json_string(value_type(layout).text)) == 0 &&
        json_object_set_new(object, "layout", json_stringn(text, size)) == 0) {
        result = dump(object);
    }
    json_decref(object);
    kvarve_release(text);
    return result;
}

kvarve_status llama_identity_documents(const llama_identity *identity, const llama_layout *main,
                                       const llama_layout *draft, llama_documents *out,
                                       kvarve_error *err)
{
    llama_documents made = {0};
    const kvarve_status status = check_layout(identity, main, draft, err);

    if (status != KVARVE_OK) {
        return status;
    }
    made.identity = dump_with_layout(identity->meaning, main);
    made.numerics = dump(identity->numerics);
    made.draft = draft == NULL ? NULL : dump_with_layout(identity->draft, draft);
    if (made.identity == NULL || made.numerics == NULL || (draft != NULL && made.draft == NULL)) {
        llama_documents_free(&made);
        return no_memory(err);
    }
    *out = made;
    return KVARVE_OK;
}

kvarve_status llama_identity_whole(const llama_identity *identity, llama_documents *out,
                                   kvarve_error *err)
{
    llama_documents made = {0};
    json_t *object = json_copy(identity->meaning);

    if (object != NULL &&
        json_object_set_new(object, "kv_type_k", json_string(identity->kv_type_k)) == 0 &&
        json_object_set_new(object, "kv_type_v", json_string(identity->kv_type_v)) == 0 &&
        json_object_set_new(object, "whole", json_integer((json_int_t)LLAMA_WHOLE_PIECE)) == 0 &&
        (identity->draft == NULL || json_object_set(object, "drafter", identity->draft) == 0)) {
        made.identity = dump(object);
    }
    json_decref(object);
    made.numerics = dump(identity->numerics);
    if (made.identity == NULL || made.numerics == NULL) {
        llama_documents_free(&made);
        return no_memory(err);
    }
    *out = made;
    return KVARVE_OK;
}

void llama_documents_free(llama_documents *documents)
{
    kvarve_release(documents->identity);
    kvarve_release(documents->numerics);
    kvarve_release(documents->draft);
    *documents = (llama_documents){0};
}

/* ---- Kept documents ---- */

/* Whether `found` has each member of `wanted`, with its value. */
static bool has_members(json_t *found, json_t *wanted)
{
    const char *key = NULL;
    json_t *value = NULL;

    json_object_foreach(wanted, key, value)
    {
        if (!json_equal(json_object_get(found, key), value)) {
            return false;
        }
    }
    return true;
}

static bool is_text(json_t *object, const char *key, const char *wanted)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL && strcmp(text, wanted) == 0;
}

static bool is_type_member(json_t *object, const char *key, const char *wanted)
{
    return is_text(object, key, NO_KV) || is_text(object, key, wanted);
}

static llama_layout *member_layout(json_t *object)
{
    llama_layout *layout = NULL;
    const json_t *member = json_object_get(object, "layout");
    const char *text = json_string_value(member);

    if (text == NULL ||
        llama_layout_decode(text, json_string_length(member), &layout, NULL) != KVARVE_OK) {
        return NULL;
    }
    return layout;
}

static bool fits_draft(const llama_identity *identity, json_t *draft)
{
    return identity->draft != NULL && has_members(draft, identity->draft) &&
           is_type_member(draft, "kv_type_k", identity->draft_type_k) &&
           is_type_member(draft, "kv_type_v", identity->draft_type_v);
}

static bool fits_whole(const llama_identity *identity, json_t *root)
{
    json_t *drafter = json_object_get(root, "drafter");
    return drafter == NULL ? identity->draft == NULL
                           : identity->draft != NULL && json_equal(drafter, identity->draft);
}

static llama_fit fit_of(const llama_identity *identity, json_t *root, const llama_found *found)
{
    json_t *draft = json_object_get(root, "draft");

    if (!has_members(root, identity->meaning) ||
        !is_type_member(root, "kv_type_k", identity->kv_type_k) ||
        !is_type_member(root, "kv_type_v", identity->kv_type_v) ||
        (draft != NULL && !fits_draft(identity, draft)) ||
        (found->is_whole && !fits_whole(identity, root))) {
        return LLAMA_FIT_OTHER;
    }
    if (found->layout != NULL && !is_flash(found->layout, identity->flash)) {
        return LLAMA_FIT_OTHER;
    }
    return json_equal(json_object_get(root, "numerics"), identity->numerics) ? LLAMA_FIT_SAME
                                                                             : LLAMA_FIT_NUMERICS;
}

void llama_found_clear(llama_found *found)
{
    llama_layout_free(found->layout);
    llama_layout_free(found->draft);
    *found = (llama_found){0};
}

kvarve_status llama_identity_compare(const llama_identity *identity, const char *document,
                                     llama_found *out, kvarve_error *err)
{
    json_t *root = json_loads(document, JSON_REJECT_DUPLICATES, NULL);

    (void)err;
    *out = (llama_found){.fit = LLAMA_FIT_FOREIGN};
    if (root == NULL || !is_text(root, "engine", ENGINE)) {
        json_decref(root);
        return KVARVE_OK;
    }
    json_t *draft = json_object_get(root, "draft");
    out->is_draft = draft != NULL;
    out->is_whole = json_object_get(root, "whole") != NULL;
    out->layout = member_layout(root);
    out->draft = member_layout(draft);
    if ((out->layout != NULL || out->is_whole) && (out->draft != NULL) == out->is_draft) {
        out->fit = fit_of(identity, root, out);
    }
    json_decref(root);
    return KVARVE_OK;
}
