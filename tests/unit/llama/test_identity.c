/*
 * test_identity.c - facts as documents, kept documents compared, digests and architectures of
 * model files.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "env/env_posix.h"
#include "llama/pages.h"
#include "unit/llama/ingest_kit.h"

static int begin(void **state)
{
    static ingest_kit kit;

    kit_begin(&kit);
    *state = &kit;
    return 0;
}

static int end(void **state)
{
    kit_end(*state);
    return 0;
}

static kvarve_status create(ingest_kit *kit, llama_identity **out)
{
    const model_digest_options digests = {.io = io_posix()};

    return llama_identity_create(&kit->facts, &digests, out, &kit->err);
}

static llama_layout *layout_of(const char *sample)
{
    kit_bytes file = kit_load(sample);
    const llama_input input = kit_input(&file);
    char *text = kvarve_allocate(LLAMA_LAYOUT_TEXT_MAX);
    llama_slot *slot = NULL;
    llama_layout *layout = NULL;
    size_t size = 0;

    assert_int_equal(llama_slot_open(&input, &slot, NULL), KVARVE_OK);
    assert_int_equal(llama_layout_encode(llama_slot_layout(slot, LLAMA_MAIN), text,
                                         LLAMA_LAYOUT_TEXT_MAX, &size, NULL),
                     KVARVE_OK);
    assert_int_equal(llama_layout_decode(text, size, &layout, NULL), KVARVE_OK);
    llama_slot_close(slot);
    kvarve_release(text);
    kit_free(&file);
    return layout;
}

/* ---- Facts ---- */

static void check_unknown(ingest_kit *kit, char *field, const char *option)
{
    llama_identity *identity = NULL;
    char kept[KVARVE_PATH_MAX];

    (void)snprintf(kept, sizeof(kept), "%s", field);
    field[0] = '\0';
    assert_int_equal(create(kit, &identity), KVARVE_UNSUPPORTED);
    assert_null(identity);
    assert_non_null(strstr(kit->err.text, option));
    memcpy(field, kept, strlen(kept) + 1);
}

static void test_identity__unknown_fields_are_refused_by_name(void **state)
{
    ingest_kit *kit = *state;

    check_unknown(kit, kit->facts.model, "--model");
    check_unknown(kit, kit->facts.kv_type_k, "--kv-type-k");
    check_unknown(kit, kit->facts.kv_type_v, "--kv-type-v");
    check_unknown(kit, kit->facts.rope, "--rope");
    check_unknown(kit, kit->facts.build, "--numerics");
    check_unknown(kit, kit->facts.backend, "--numerics");
    check_unknown(kit, kit->facts.draft_type, "--draft-type");
    (void)snprintf(kit->facts.draft_type, sizeof(kit->facts.draft_type), "draft-mtp");
    check_unknown(kit, kit->facts.draft_type_k, "--draft-kv-type-k");
    check_unknown(kit, kit->facts.draft_type_v, "--draft-kv-type-v");
}

static void test_identity__each_fact_changes_the_document(void **state)
{
    ingest_kit *kit = *state;
    llama_layout *layout = layout_of("tests/llama/samples/llama.slot");
    const llama_facts right = kit->facts;
    char *first = NULL;

    for (int change = 0; change < 8; change++) {
        llama_documents documents = {0};
        llama_identity *identity = NULL;
        kit->facts = right;
        switch (change) {
        case 1:
            (void)snprintf(kit->facts.model, sizeof(kit->facts.model), "%s/draft.gguf",
                           kit->folder);
            kit_write(kit->facts.model, "x", 0);
            {
                kit_bytes other = kit_load(right.model);
                kit_append(&other, "tail", 4);
                kit_write(kit->facts.model, other.bytes, other.size);
                kit_free(&other);
            }
            break;
        case 2:
            (void)snprintf(kit->facts.rope, sizeof(kit->facts.rope), "rope-scale=2");
            break;
        case 3:
            assert_int_equal(llama_adapter_parse(right.model, kit->facts.adapters,
                                                 &kit->facts.adapter_count, NULL),
                             KVARVE_OK);
            break;
        case 4:
            assert_int_equal(llama_adapter_parse(right.model, kit->facts.vectors,
                                                 &kit->facts.vector_count, NULL),
                             KVARVE_OK);
            break;
        case 5:
            (void)snprintf(kit->facts.overrides, sizeof(kit->facts.overrides), "a=int:1");
            break;
        case 6:
            assert_int_equal(llama_adapter_parse(right.model, kit->facts.adapters,
                                                 &kit->facts.adapter_count, NULL),
                             KVARVE_OK);
            (void)snprintf(kit->facts.adapters[0].scale, sizeof(kit->facts.adapters[0].scale),
                           "0.5");
            break;
        case 7:
            kit->facts.stream_count = 9; /* no part of the identity */
            break;
        default:
            break;
        }
        if (create(kit, &identity) != KVARVE_OK) {
            fail_msg("%d: %s", change, kit->err.text);
        }
        assert_int_equal(llama_identity_documents(identity, layout, NULL, &documents, NULL),
                         KVARVE_OK);
        if (change == 0) {
            first = kvarve_duplicate(documents.identity);
        } else if (change == 7) {
            assert_string_equal(first, documents.identity);
        } else {
            assert_string_not_equal(first, documents.identity);
        }
        llama_documents_free(&documents);
        llama_identity_free(identity);
    }
    kvarve_release(first);
    llama_layout_free(layout);
}

static void test_identity__a_layout_that_contradicts_is_refused(void **state)
{
    ingest_kit *kit = *state;
    llama_layout *layout = layout_of("tests/llama/samples/llama-q8-keys-fa-off.slot");
    llama_documents documents = {0};
    llama_identity *identity = NULL;

    assert_int_equal(create(kit, &identity), KVARVE_OK);
    assert_int_equal(llama_identity_documents(identity, layout, NULL, &documents, &kit->err),
                     KVARVE_INVALID);
    assert_non_null(strstr(kit->err.text, "K q8_0"));
    assert_string_equal(llama_identity_difference(identity, layout), "kv_type_k");
    llama_identity_free(identity);

    (void)snprintf(kit->facts.kv_type_k, sizeof(kit->facts.kv_type_k), "q8_0");
    kit->facts.flash = LLAMA_FLASH_ON;
    assert_int_equal(create(kit, &identity), KVARVE_OK);
    assert_int_equal(llama_identity_documents(identity, layout, NULL, &documents, &kit->err),
                     KVARVE_INVALID);
    assert_non_null(strstr(kit->err.text, "flash attention off"));
    llama_identity_free(identity);

    kit->facts.flash = LLAMA_FLASH_OFF;
    assert_int_equal(create(kit, &identity), KVARVE_OK);
    assert_null(llama_identity_difference(identity, layout));
    assert_int_equal(llama_identity_documents(identity, layout, layout, &documents, &kit->err),
                     KVARVE_UNSUPPORTED);
    assert_non_null(strstr(kit->err.text, "drafter"));
    llama_identity_free(identity);
    llama_layout_free(layout);
}

static void test_identity__foreign_documents_are_foreign(void **state)
{
    static const char *const texts[] = {"",
                                        "{",
                                        "[]",
                                        "{\"engine\":\"vllm\"}",
                                        "{\"engine\":\"llama.cpp\"}",
                                        "{\"engine\":\"llama.cpp\",\"layout\":\"nonsense\"}",
                                        "{\"engine\":\"llama.cpp\",\"layout\":7,\"draft\":[]}"};
    ingest_kit *kit = *state;
    llama_identity *identity = NULL;

    assert_int_equal(create(kit, &identity), KVARVE_OK);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        llama_found found;
        assert_int_equal(llama_identity_compare(identity, texts[i], &found, NULL), KVARVE_OK);
        assert_int_equal(found.fit, LLAMA_FIT_FOREIGN);
        llama_found_clear(&found);
    }
    llama_identity_free(identity);
}

static void test_adapter__file_and_scale(void **state)
{
    llama_adapter list[LLAMA_ADAPTERS_MAX];
    uint32_t count = 0;

    (void)state;
    assert_int_equal(llama_adapter_parse("a.gguf", list, &count, NULL), KVARVE_OK);
    assert_string_equal(list[0].scale, "1");
    assert_int_equal(llama_adapter_parse("dir/b.gguf:0.50", list, &count, NULL), KVARVE_OK);
    assert_string_equal(list[1].path, "dir/b.gguf");
    assert_string_equal(list[1].scale, "0.5");
    assert_int_equal(llama_adapter_parse("b.gguf:x", list, &count, NULL), KVARVE_INVALID);
    assert_int_equal(llama_adapter_parse("b.gguf:nan", list, &count, NULL), KVARVE_INVALID);
    assert_int_equal(llama_adapter_parse(":1", list, &count, NULL), KVARVE_INVALID);
    assert_int_equal(count, 2);
    while (count < LLAMA_ADAPTERS_MAX) {
        assert_int_equal(llama_adapter_parse("a", list, &count, NULL), KVARVE_OK);
    }
    assert_int_equal(llama_adapter_parse("a", list, &count, NULL), KVARVE_INVALID);
}

/* ---- Model files ---- */

static void test_model__digest_is_of_the_content(void **state)
{
    ingest_kit *kit = *state;
    const model_digest_options options = {.io = io_posix()};
    char path[KVARVE_PATH_MAX];
    char digest[MODEL_DIGEST_TEXT];

    (void)snprintf(path, sizeof(path), "%s/abc", kit->folder);
    kit_write(path, "abc", 3);
    assert_int_equal(model_digest(&options, path, digest, NULL), KVARVE_OK);
    assert_string_equal(digest,
                        "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    (void)snprintf(path, sizeof(path), "%s/none", kit->folder);
    assert_int_equal(model_digest(&options, path, digest, NULL), KVARVE_MISS);
    assert_int_equal(model_digest(&options, kit->folder, digest, NULL), KVARVE_INVALID);
}

static void test_model__parts_are_all_read(void **state)
{
    ingest_kit *kit = *state;
    const model_digest_options options = {.io = io_posix()};
    char first[KVARVE_PATH_MAX];
    char second[KVARVE_PATH_MAX];
    char before[MODEL_DIGEST_TEXT];
    char after[MODEL_DIGEST_TEXT];
    uint32_t count = 0;

    (void)snprintf(first, sizeof(first), "%s/m-00001-of-00002.gguf", kit->folder);
    kit_write(first, "abc", 3);
    assert_int_equal(model_digest(&options, first, before, NULL), KVARVE_MISS);
    assert_int_equal(model_part_path(first, 2, second, sizeof(second), &count), 0);
    assert_int_equal(count, 2);
    kit_write(second, "def", 3);
    assert_int_equal(model_digest(&options, first, before, NULL), KVARVE_OK);
    assert_int_equal(strncmp(before, "sha256-parts-2:", 15), 0);
    assert_int_equal(model_digest(&options, second, after, NULL), KVARVE_INVALID);
    kit_write(second, "deg", 3);
    assert_int_equal(model_digest(&options, first, after, NULL), KVARVE_OK);
    assert_string_not_equal(before, after);
}

static void test_model__cache_answers_only_for_the_same_file(void **state)
{
    ingest_kit *kit = *state;
    kvarve_file_stat stat;
    char path[KVARVE_PATH_MAX];
    char cache[KVARVE_PATH_MAX];
    char line[512];
    char digest[MODEL_DIGEST_TEXT];

    (void)snprintf(path, sizeof(path), "%s/abc", kit->folder);
    (void)snprintf(cache, sizeof(cache), "%s/cache", kit->folder);
    kit_write(path, "abc", 3);
    assert_int_equal(io_posix()->ops->stat(io_posix(), path, &stat), 0);
    const model_digest_options options = {.io = io_posix(), .cache = cache};

    /* A line for this very file is believed, which shows that it is read. */
    (void)snprintf(line, sizeof(line),
                   "garbage\n%llu %llu 3 %lld %lld "
                   "00000000000000000000000000000000000000000000000000000000000000ff\n",
                   (unsigned long long)stat.device, (unsigned long long)stat.inode,
                   (long long)stat.mtime_ns, (long long)stat.ctime_ns);
    kit_write(cache, line, strlen(line));
    assert_int_equal(model_digest(&options, path, digest, NULL), KVARVE_OK);
    assert_non_null(strstr(digest, "00ff"));
    /* One of another time is not. */
    (void)snprintf(line, sizeof(line),
                   "%llu %llu 3 %lld %lld "
                   "00000000000000000000000000000000000000000000000000000000000000ff\n",
                   (unsigned long long)stat.device, (unsigned long long)stat.inode,
                   (long long)stat.mtime_ns + 1, (long long)stat.ctime_ns);
    kit_write(cache, line, strlen(line));
    assert_int_equal(model_digest(&options, path, digest, NULL), KVARVE_OK);
    assert_non_null(strstr(digest, "ba7816bf"));
    /* Nor is one that is cut off. */
    kit_write(cache, line, strlen(line) - 3);
    assert_int_equal(model_digest(&options, path, digest, NULL), KVARVE_OK);
    assert_non_null(strstr(digest, "ba7816bf"));
}

static void test_model__architecture_is_read_from_the_head(void **state)
{
    ingest_kit *kit = *state;
    char architecture[MODEL_ARCHITECTURE_TEXT];
    kit_bytes file = kit_load(kit->facts.model);

    assert_int_equal(model_architecture(io_posix(), kit->facts.model, architecture, NULL),
                     KVARVE_OK);
    assert_string_equal(architecture, "llama");
    for (size_t size = 0; size < file.size; size++) {
        kit_write(kit->slot_path, file.bytes, size);
        assert_int_not_equal(model_architecture(io_posix(), kit->slot_path, architecture, NULL),
                             KVARVE_OK);
    }
    /* Lengths and counts of any size. */
    for (size_t at = 16; at + 8 <= file.size; at++) {
        kit_bytes copy = {0};
        kit_append(&copy, file.bytes, file.size);
        memset(copy.bytes + at, 0xff, 8);
        kit_write(kit->slot_path, copy.bytes, copy.size);
        const kvarve_status status =
            model_architecture(io_posix(), kit->slot_path, architecture, NULL);
        assert_true(status == KVARVE_CORRUPT || status == KVARVE_OK);
        kit_free(&copy);
    }
    file.bytes[4] = 9;
    kit_write(kit->slot_path, file.bytes, file.size);
    assert_int_equal(model_architecture(io_posix(), kit->slot_path, architecture, &kit->err),
                     KVARVE_UNSUPPORTED);
    assert_non_null(strstr(kit->err.text, "version 9"));
    kit_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_identity__unknown_fields_are_refused_by_name, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_identity__each_fact_changes_the_document, begin, end),
        cmocka_unit_test_setup_teardown(test_identity__a_layout_that_contradicts_is_refused, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_identity__foreign_documents_are_foreign, begin, end),
        cmocka_unit_test(test_adapter__file_and_scale),
        cmocka_unit_test_setup_teardown(test_model__digest_is_of_the_content, begin, end),
        cmocka_unit_test_setup_teardown(test_model__parts_are_all_read, begin, end),
        cmocka_unit_test_setup_teardown(test_model__cache_answers_only_for_the_same_file, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_model__architecture_is_read_from_the_head, begin, end),
    };

    return cmocka_run_group_tests_name("llama.identity", tests, NULL, NULL);
}
