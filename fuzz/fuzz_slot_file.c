/*
 * fuzz_slot_file.c - slot files from anybody: parsing never reads outside; what is verified is
 * written again for another stream and sequence, and that file is verified too.
 *
 * An input that begins like a layout's text is decoded as one.
 * Links: base llama
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "llama/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* The pages of an input are as large as the input, at most; larger files are not written again. */
#define BYTES_MAX (UINT64_C(1) << 20)

typedef struct memory_file {
    uint8_t *bytes;
    uint64_t size;
} memory_file;

static int read_memory(void *context, void *bytes, size_t size, uint64_t offset)
{
    const memory_file *file = context;

    KVARVE_ASSERT(offset <= file->size && size <= file->size - offset);
    memcpy(bytes, file->bytes + offset, size);
    return 0;
}

static int write_memory(void *context, const void *bytes, size_t size, uint64_t offset)
{
    memory_file *file = context;

    if (offset > file->size || size > file->size - offset) {
        return -EFBIG;
    }
    memcpy(file->bytes + offset, bytes, size);
    return 0;
}

static void copy_pages(llama_slot *slot, llama_writer *writer, llama_part part, uint8_t *room)
{
    const llama_layout *layout = llama_slot_layout(slot, part);
    llama_page page = {.count = (uint32_t)llama_slot_tokens(slot), .bytes = room};

    if (layout == NULL || llama_layout_token_bytes(layout) == 0) {
        return;
    }
    KVARVE_ASSERT(llama_slot_read_pages(slot, part, &page, 1, NULL) == KVARVE_OK);
    KVARVE_ASSERT(llama_writer_pages(writer, part, &page, 1, NULL) == KVARVE_OK);
}

static void copy_endpoint(llama_slot *slot, llama_writer *writer, llama_endpoint_name name,
                          uint8_t *room)
{
    llama_endpoint endpoint;
    size_t size;

    if (!llama_slot_endpoint(slot, name.index, name.part, &endpoint)) {
        return;
    }
    size = (size_t)llama_endpoint_size(&endpoint);
    KVARVE_ASSERT(llama_slot_read_endpoint(slot, name, 0, size, room, NULL) == KVARVE_OK);
    KVARVE_ASSERT(llama_writer_endpoint(writer, name, room, size, 0, NULL) == KVARVE_OK);
}

static void copy_all(llama_slot *slot, llama_writer *writer, uint8_t *room)
{
    for (int part = 0; part < LLAMA_PARTS; part++) {
        llama_endpoint_name name = {LLAMA_RESPONSE, (llama_part)part};

        copy_pages(slot, writer, name.part, room);
        copy_endpoint(slot, writer, name, room);
        for (name.index = 0; name.index < llama_slot_checkpoints(slot); name.index++) {
            copy_endpoint(slot, writer, name, room);
        }
    }
    KVARVE_ASSERT(llama_writer_finish(writer, NULL) == KVARVE_OK);
}

/* The plan of the same file in stream 1 of 2, as sequence 9. `tokens` and `items` have room. */
static llama_plan make_plan(llama_slot *slot, uint32_t *tokens, llama_plan_checkpoint *items)
{
    llama_plan plan = {.tokens = tokens,
                       .token_count = llama_slot_tokens(slot),
                       .checkpoints = items,
                       .checkpoint_count = llama_slot_checkpoints(slot),
                       .stream_count = 2,
                       .stream_index = 1,
                       .sequence = 9};

    KVARVE_ASSERT(llama_slot_read_tokens(slot, 0, (size_t)plan.token_count, tokens, NULL) ==
                  KVARVE_OK);
    for (int part = 0; part < LLAMA_PARTS; part++) {
        plan.layout[part] = llama_slot_layout(slot, (llama_part)part);
        (void)llama_slot_endpoint(slot, LLAMA_RESPONSE, (llama_part)part, &plan.endpoint[part]);
    }
    for (uint32_t i = 0; i < plan.checkpoint_count; i++) {
        (void)llama_slot_endpoint(slot, i, LLAMA_MAIN, &items[i].main);
        (void)llama_slot_endpoint(slot, i, LLAMA_DRAFT, &items[i].draft);
    }
    return plan;
}

static kvarve_status verify(const memory_file *file)
{
    memory_file copy = *file;
    llama_input input = {.context = &copy, .read = read_memory, .size = copy.size};
    llama_slot *slot;
    kvarve_status status = llama_slot_open(&input, &slot, NULL);

    if (status == KVARVE_OK) {
        status = llama_slot_verify(slot, 64, NULL, NULL);
        llama_slot_close(slot);
    }
    return status;
}

/* Another stream adds a word for each of at most two parts in every state, no more. */
static void write_again(llama_slot *slot)
{
    uint64_t room = llama_slot_size(slot) + 4096 + 64 * (uint64_t)llama_slot_checkpoints(slot);
    memory_file file = {.bytes = kvarve_allocate((size_t)room), .size = room};
    uint8_t *piece = kvarve_allocate((size_t)room);
    uint32_t *tokens = kvarve_allocate_array((size_t)llama_slot_tokens(slot), sizeof(*tokens));
    llama_plan_checkpoint *items =
        kvarve_allocate_array((size_t)llama_slot_checkpoints(slot) + 1, sizeof(*items));
    llama_output output = {.context = &file, .write = write_memory};
    llama_writer *writer;
    llama_plan plan;

    KVARVE_ASSERT(file.bytes != NULL && piece != NULL && tokens != NULL && items != NULL);
    plan = make_plan(slot, tokens, items);
    KVARVE_ASSERT(llama_writer_open(&plan, &output, &writer, NULL) == KVARVE_OK);
    copy_all(slot, writer, piece);
    file.size = llama_writer_size(writer);
    llama_writer_close(writer);
    KVARVE_ASSERT(verify(&file) == KVARVE_OK);
    kvarve_release(items);
    kvarve_release(tokens);
    kvarve_release(piece);
    kvarve_release(file.bytes);
}

static void try_slot(uint8_t *bytes, size_t size)
{
    memory_file file = {.bytes = bytes, .size = size};
    llama_input input = {.context = &file, .read = read_memory, .size = size};
    llama_slot *slot;

    if (llama_slot_open(&input, &slot, NULL) != KVARVE_OK) {
        return;
    }
    if (llama_slot_verify(slot, 64, NULL, NULL) == KVARVE_OK && size <= BYTES_MAX) {
        write_again(slot);
    }
    llama_slot_close(slot);
}

static void try_layout(const uint8_t *bytes, size_t size)
{
    char *text;
    size_t length;
    llama_layout *layout;

    if (llama_layout_decode((const char *)bytes, size, &layout, NULL) != KVARVE_OK) {
        return;
    }
    text = kvarve_allocate(size + 1);
    KVARVE_ASSERT(text != NULL);
    KVARVE_ASSERT(llama_layout_encode(layout, text, size + 1, &length, NULL) == KVARVE_OK);
    KVARVE_ASSERT(length == size && memcmp(text, bytes, size) == 0);
    kvarve_release(text);
    llama_layout_free(layout);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    uint8_t *copy;

    if (size == 0) {
        return 0;
    }
    /* A copy of its exact size, so that the sanitizer sees a byte too many. */
    copy = kvarve_allocate(size);
    if (copy == NULL) {
        return 0;
    }
    memcpy(copy, bytes, size);
    if (copy[0] == 'l') {
        try_layout(copy, size);
    } else {
        try_slot(copy, size);
    }
    kvarve_release(copy);
    return 0;
}
