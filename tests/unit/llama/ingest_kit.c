/* ingest_kit.c - see ingest_kit.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "env/env_posix.h"
#include "env/io_all.h"
#include "unit/llama/ingest_kit.h"

/* A GGUF file that says its architecture and has no tensors. */
static const uint8_t gguf[] = {'G', 'G', 'U', 'F', 3,   0,   0,   0,   0,   0,   0,   0,   0,   0,
                               0,   0,   1,   0,   0,   0,   0,   0,   0,   0,   20,  0,   0,   0,
                               0,   0,   0,   0,   'g', 'e', 'n', 'e', 'r', 'a', 'l', '.', 'a', 'r',
                               'c', 'h', 'i', 't', 'e', 'c', 't', 'u', 'r', 'e', 8,   0,   0,   0,
                               5,   0,   0,   0,   0,   0,   0,   0,   'l', 'l', 'a', 'm', 'a'};

void kit_write(const char *path, const void *bytes, size_t size)
{
    kvarve_io *io = io_posix();
    kvarve_fd fd = -1;

    assert_int_equal(io->ops->open(io, path, KVARVE_OPEN_CREATE | KVARVE_OPEN_TRUNCATE, 0600, &fd),
                     0);
    assert_int_equal(io_write_all(io, fd, bytes, size, 0), 0);
    io->ops->close(io, fd);
}

bool kit_exists(const char *path)
{
    kvarve_file_stat stat;
    return io_posix()->ops->stat(io_posix(), path, &stat) == 0;
}

void kit_begin(ingest_kit *kit)
{
    char draft[KVARVE_PATH_MAX];

    *kit = (ingest_kit){0};
    scratch_make(kit->folder);
    (void)snprintf(kit->store_path, sizeof(kit->store_path), "%s/store", kit->folder);
    (void)snprintf(kit->slot_path, sizeof(kit->slot_path), "%s/in.slot", kit->folder);
    (void)snprintf(kit->output_path, sizeof(kit->output_path), "%s/out.slot", kit->folder);
    llama_facts_init(&kit->facts);
    (void)snprintf(kit->facts.model, sizeof(kit->facts.model), "%s/model.gguf", kit->folder);
    (void)snprintf(draft, sizeof(draft), "%s/draft.gguf", kit->folder);
    kit_write(kit->facts.model, gguf, sizeof(gguf));
    kit_write(draft, gguf, sizeof(gguf) - 1);
    (void)snprintf(kit->facts.kv_type_k, sizeof(kit->facts.kv_type_k), "f16");
    (void)snprintf(kit->facts.kv_type_v, sizeof(kit->facts.kv_type_v), "f16");
    (void)snprintf(kit->facts.draft_type_k, sizeof(kit->facts.draft_type_k), "f16");
    (void)snprintf(kit->facts.draft_type_v, sizeof(kit->facts.draft_type_v), "f16");
    (void)snprintf(kit->facts.build, sizeof(kit->facts.build), "b1");
    (void)snprintf(kit->facts.backend, sizeof(kit->facts.backend), "cpu");
    kit->options.prompt_at = LLAMA_NO_LIMIT;
    kit->options.user_at = LLAMA_NO_LIMIT;
    kit->emit.io = io_posix();
    kit->emit.store_path = kit->store_path;
    kit->emit.output = kit->output_path;
    kit->emit.stream_count = 1;
    kit->emit.checkpoints = LLAMA_EMIT_CHECKPOINTS_MAX;
    kit->emit.timeout_ms = 60000;
}

void kit_open(ingest_kit *kit, uint64_t arena_bytes, uint64_t cap_bytes)
{
    kvarve_store_options options = KVARVE_STORE_OPTIONS_INIT;

    options.arena_bytes = arena_bytes;
    options.flash_bytes_max = cap_bytes != 0 ? cap_bytes : UINT64_C(1) << 30;
    options.segment_bytes = UINT64_C(4) << 20;
    if (kvarve_open(kit->store_path, &options, &kit->store, &kit->err) != KVARVE_OK) {
        fail_msg("open: %s", kit->err.text);
    }
}

void kit_close(ingest_kit *kit)
{
    kvarve_close(kit->store);
    kit->store = NULL;
}

void kit_end(ingest_kit *kit)
{
    kit_close(kit);
    scratch_remove(kit->folder);
}

static llama_identity *make_identity(ingest_kit *kit)
{
    const model_digest_options digests = {.io = io_posix()};
    llama_identity *identity = NULL;

    if (llama_identity_create(&kit->facts, &digests, &identity, &kit->err) != KVARVE_OK) {
        fail_msg("identity: %s", kit->err.text);
    }
    return identity;
}

static void name_type(unsigned type, char *out, size_t size)
{
    static const struct {
        unsigned type;
        const char *name;
    } names[] = {{0, "f32"}, {1, "f16"}, {2, "q4_0"}, {8, "q8_0"}, {30, "bf16"}};

    (void)snprintf(out, size, "ggml-%u", type);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (names[i].type == type) {
            (void)snprintf(out, size, "%s", names[i].name);
        }
    }
}

/* KV types by a layout's text: "row TYPE ELEMENT BYTES REPEAT", K before V. */
static void fit_types(const llama_layout *layout, char *key, char *value, size_t size)
{
    char *text = kvarve_allocate(LLAMA_LAYOUT_TEXT_MAX);
    size_t length = 0;
    unsigned extended = 0;
    unsigned transposed = 0;
    unsigned layers = 0;
    unsigned seen = 0;

    assert_int_equal(llama_layout_encode(layout, text, LLAMA_LAYOUT_TEXT_MAX, &length, NULL),
                     KVARVE_OK);
    char *at = strstr(text, "prefix ");
    at = at != NULL ? at : strstr(text, "window ");
    if (at != NULL && sscanf(at + 7, "%u %u %u", &extended, &transposed, &layers) == 3) {
        for (at = strstr(at, "row "); at != NULL && seen < 2 * layers;
             at = strstr(at + 1, "row ")) {
            unsigned type = 0;
            unsigned element = 0;
            unsigned long long bytes = 0;
            unsigned repeat = 0;
            assert_int_equal(sscanf(at, "row %u %u %llu %u", &type, &element, &bytes, &repeat), 4);
            if (seen == 0) {
                name_type(type, key, size);
            }
            if (seen <= layers && seen + repeat > layers) {
                name_type(type, value, size);
            }
            seen += repeat;
        }
    }
    kvarve_release(text);
}

void kit_fit_facts(ingest_kit *kit, const llama_slot *slot)
{
    const llama_layout *main = llama_slot_layout(slot, LLAMA_MAIN);
    const llama_layout *draft = llama_slot_layout(slot, LLAMA_DRAFT);

    if (main != NULL) {
        fit_types(main, kit->facts.kv_type_k, kit->facts.kv_type_v, sizeof(kit->facts.kv_type_k));
    }
    if (draft != NULL) {
        fit_types(draft, kit->facts.draft_type_k, kit->facts.draft_type_v,
                  sizeof(kit->facts.draft_type_k));
        (void)snprintf(kit->facts.draft_type, sizeof(kit->facts.draft_type), "draft-simple");
        (void)snprintf(kit->facts.draft_model, sizeof(kit->facts.draft_model), "%s/draft.gguf",
                       kit->folder);
    }
}

kvarve_status kit_put(ingest_kit *kit, const kit_bytes *file, bool fits)
{
    llama_ingest *ingest = NULL;
    llama_identity *identity = NULL;

    if (fits) {
        kit_bytes copy = *file;
        const llama_input input = kit_input(&copy);
        llama_slot *slot = NULL;
        if (llama_slot_open(&input, &slot, NULL) == KVARVE_OK) {
            kit_fit_facts(kit, slot);
        }
        llama_slot_close(slot);
    }
    kit_write(kit->slot_path, file->bytes, file->size);
    kvarve_status status = llama_ingest_open(io_posix(), kit->slot_path, &ingest, &kit->err);
    if (status == KVARVE_OK) {
        identity = make_identity(kit);
        status = llama_ingest_prepare(ingest, &kit->options, &kit->err);
    }
    if (status == KVARVE_OK) {
        status =
            llama_ingest_store(ingest, kit->store, identity, NULL, 60000, &kit->stored, &kit->err);
    }
    llama_identity_free(identity);
    llama_ingest_close(ingest);
    return status;
}

kvarve_status kit_emit(ingest_kit *kit, const uint32_t *tokens, uint64_t count, kit_bytes *out)
{
    llama_identity *identity = make_identity(kit);
    const kvarve_status status =
        llama_emit(kit->store, identity, tokens, count, &kit->emit, &kit->emitted, &kit->err);

    llama_identity_free(identity);
    *out = (kit_bytes){0};
    if (status == KVARVE_OK) {
        *out = kit_load(kit->output_path);
    }
    return status;
}

uint32_t *kit_tokens(const kit_bytes *file, uint64_t *out_count)
{
    kit_bytes copy = *file;
    const llama_input input = kit_input(&copy);
    llama_slot *slot = NULL;

    assert_int_equal(llama_slot_open(&input, &slot, NULL), KVARVE_OK);
    *out_count = llama_slot_tokens(slot);
    uint32_t *tokens = kvarve_allocate_array((size_t)*out_count + 1, sizeof(*tokens));
    assert_int_equal(llama_slot_read_tokens(slot, 0, (size_t)*out_count, tokens, NULL), KVARVE_OK);
    llama_slot_close(slot);
    return tokens;
}

kvarve_statistics kit_statistics(ingest_kit *kit)
{
    kvarve_statistics statistics = KVARVE_STATISTICS_INIT;

    assert_int_equal(kvarve_statistics_get(kit->store, &statistics, &kit->err), KVARVE_OK);
    return statistics;
}
