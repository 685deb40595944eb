/*
 * test_codec_memory.c - slot files of several GiB that exist nowhere, within the codec's memory.
 *
 * Rows of such a file are zeros; its heads, tokens and cells are made when they are read. What the
 * codec holds is looked at in every read, so that no moment is missed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/alloc.h"
#include "unit/llama/codec_kit.h"

/* One stretch of the file: bytes in memory; without bytes cells, or zeros. */
typedef struct stretch {
    uint64_t start;
    uint64_t size;
    const uint8_t *bytes;
    bool is_cells;
} file_stretch;

#define STRETCHES_MAX 1024

typedef struct sparse_file {
    file_stretch stretches[STRETCHES_MAX];
    uint32_t count;
    uint64_t size;
    kit_bytes heads; /* reserved once: pointers into it stay */
    uint64_t most;   /* bytes that were allocated at any read */
    uint64_t base;   /* before the codec was opened */
} sparse_file;

static void add_stretch(sparse_file *file, uint64_t size, const uint8_t *bytes, bool is_cells)
{
    assert_true(file->count < STRETCHES_MAX);
    file->stretches[file->count++] = (file_stretch){file->size, size, bytes, is_cells};
    file->size += size;
}

static void add_words(sparse_file *file, const uint32_t *words, uint32_t count)
{
    size_t at = file->heads.size;

    assert_true(at + count * sizeof(*words) <= file->heads.room);
    kit_append(&file->heads, words, count * sizeof(*words));
    add_stretch(file, count * sizeof(*words), file->heads.bytes + at, false);
}

static void add_row(sparse_file *file, uint32_t second, uint32_t third, uint64_t size)
{
    add_words(file, (uint32_t[]){1, second, third}, 3);
    add_stretch(file, size, NULL, false);
}

/* Cells of twelve bytes, made from their place. */
static void make_cells(uint8_t *out, size_t size, uint64_t offset)
{
    for (size_t i = 0; i < size; i++) {
        uint64_t at = offset + i;
        uint32_t word = at % 12 < 4 ? (uint32_t)(at / 12) : at % 12 < 8 ? 1 : 0;

        out[i] = (uint8_t)(word >> (8 * (at % 4)));
    }
}

static void read_stretch(const file_stretch *stretch, uint8_t *out, size_t size, uint64_t offset)
{
    if (stretch->bytes != NULL) {
        memcpy(out, stretch->bytes + offset, size);
    } else if (stretch->is_cells) {
        make_cells(out, size, offset);
    } else {
        memset(out, 0, size);
    }
}

static int read_sparse(void *context, void *bytes, size_t size, uint64_t offset)
{
    sparse_file *file = context;
    uint8_t *out = bytes;
    uint64_t held = kvarve_allocated_bytes() - file->base;

    file->most = held > file->most ? held : file->most;
    for (uint32_t i = 0; i < file->count && size > 0; i++) {
        const file_stretch *stretch = &file->stretches[i];
        uint64_t left = stretch->start + stretch->size - offset;
        size_t many = left < size ? (size_t)left : size;

        if (offset < stretch->start || offset >= stretch->start + stretch->size) {
            continue;
        }
        read_stretch(stretch, out, many, offset - stretch->start);
        out += many;
        offset += many;
        size -= many;
    }
    return size == 0 ? 0 : -1;
}

/* `layers` attention layers of `row` bytes a token; V transposed in elements of two bytes or not.
 */
static sparse_file *make_file(uint32_t tokens, uint32_t layers, uint32_t row, bool is_transposed)
{
    sparse_file *file = kvarve_allocate(sizeof(*file));
    uint8_t room[16384] = {0};

    assert_non_null(file);
    kit_append(&file->heads, room, sizeof(room));
    file->heads.size = 0;
    add_words(file, (uint32_t[]){0x67677371, 4, tokens + 4, UINT32_MAX, 1, tokens}, 6);
    add_stretch(file, (uint64_t)tokens * 4, NULL, false);
    add_words(file, (uint32_t[]){0, 1, tokens}, 3);
    add_stretch(file, (uint64_t)tokens * 12, NULL, true);
    add_words(file, (uint32_t[]){is_transposed, layers, 0, 0}, 4);
    for (uint32_t i = 0; i < layers; i++) {
        add_row(file, row, 0, (uint64_t)tokens * row);
    }
    for (uint32_t i = 0; i < layers; i++) {
        if (is_transposed) {
            add_row(file, 2, row / 2, (uint64_t)tokens * row);
        } else {
            add_row(file, row, 0, (uint64_t)tokens * row);
        }
    }
    return file;
}

/* `layers` recurrent layers of `bytes`, and as many checkpoints as `checkpoints`. */
static void add_recurrent(sparse_file *file, uint32_t tokens, uint32_t layers, uint32_t bytes)
{
    add_words(file, (uint32_t[]){1, tokens - 1, 0, 0, layers}, 5);
    for (uint32_t i = 0; i < 2 * layers; i++) {
        add_words(file, (uint32_t[]){0, bytes, 0}, 3);
        add_stretch(file, bytes, NULL, false);
    }
}

static void add_checkpoints(sparse_file *file, uint32_t count, uint32_t layers, uint32_t bytes)
{
    uint64_t size = 8 + 20 + 2 * (uint64_t)layers * (12 + bytes);

    add_words(file, (uint32_t[]){0x504b4353, 1, count}, 3);
    for (uint32_t i = 1; i <= count; i++) {
        add_words(
            file,
            (uint32_t[]){i, 0, i - 1, i - 1, (uint32_t)size, (uint32_t)(size >> 32), 0xaf143cd8, 0},
            8);
        add_recurrent(file, i, layers, bytes);
        add_words(file, (uint32_t[]){0, 0, 0, 0}, 4);
    }
}

static void free_file(sparse_file *file)
{
    kit_free(&file->heads);
    kvarve_release(file);
}

/* Parses and verifies it in spans of 256; what was held stays below the limit. */
static void verify(sparse_file *file, uint64_t wanted_size, kvarve_status wanted)
{
    llama_input input = {.context = file, .read = read_sparse, .size = file->size};
    llama_slot *slot = NULL;
    kvarve_error err = {0};

    assert_true(file->size >= wanted_size);
    file->base = kvarve_allocated_bytes();
    if (llama_slot_open(&input, &slot, &err) != KVARVE_OK ||
        llama_slot_verify(slot, 256, NULL, &err) != wanted) {
        fail_msg("%s", err.text);
    }
    llama_slot_close(slot);
    print_message("%llu bytes in the file, %llu held\n", (unsigned long long)file->size,
                  (unsigned long long)file->most);
    assert_true(file->most > 0 && file->most <= LLAMA_MEMORY_MAX);
    assert_int_equal(kvarve_allocated_bytes(), file->base);
}

#define GIB (UINT64_C(1) << 30)

static void test_codec__a_file_of_gibibytes_is_verified_within_its_memory(void **state)
{
    sparse_file *file = make_file(65536, 16, 1024, false);

    (void)state;
    verify(file, 2 * GIB, KVARVE_OK);
    free_file(file);
}

static void test_codec__a_transposed_file_is_verified_within_its_memory(void **state)
{
    sparse_file *file = make_file(65536, 4, 512, true);

    (void)state;
    verify(file, GIB / 4, KVARVE_OK);
    free_file(file);
}

static void test_codec__large_pages_are_verified_within_their_memory(void **state)
{
    /* 128 KiB a token: a page of 256 tokens has the most bytes that a page may have. */
    sparse_file *file = make_file(2048, 8, 8192, false);

    (void)state;
    verify(file, GIB / 4, KVARVE_OK);
    free_file(file);
}

static void test_codec__pages_beyond_the_limit_are_stored_whole(void **state)
{
    sparse_file *file = make_file(2048, 16, 8192, false);

    (void)state;
    verify(file, GIB / 2, KVARVE_UNSUPPORTED);
    free_file(file);
}

static void test_codec__endpoints_are_verified_within_their_memory(void **state)
{
    /* Five of 157 MB each, as a model of 27 billion parameters has them. */
    sparse_file *file = make_file(64, 1, 1024, false);

    (void)state;
    add_recurrent(file, 64, 48, 1638400);
    add_checkpoints(file, 4, 48, 1638400);
    verify(file, GIB / 2, KVARVE_OK);
    free_file(file);
}

static void test_codec__many_tokens_are_verified_within_their_memory(void **state)
{
    sparse_file *file = make_file(1U << 22, 1, 4, false);

    (void)state;
    verify(file, GIB / 16, KVARVE_OK);
    free_file(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codec__a_file_of_gibibytes_is_verified_within_its_memory),
        cmocka_unit_test(test_codec__a_transposed_file_is_verified_within_its_memory),
        cmocka_unit_test(test_codec__large_pages_are_verified_within_their_memory),
        cmocka_unit_test(test_codec__pages_beyond_the_limit_are_stored_whole),
        cmocka_unit_test(test_codec__endpoints_are_verified_within_their_memory),
        cmocka_unit_test(test_codec__many_tokens_are_verified_within_their_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
