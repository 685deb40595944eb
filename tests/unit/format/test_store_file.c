/*
 * test_store_file.c - the text of the file `store`: one text for one store, everything else is
 * refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "format/store_file.h"
#include "hash/hash.h"

static store_file sample_file(uint32_t former_count)
{
    store_file file = {.format = STORE_FORMAT,
                       .uuid = {{0x9f, 0x86, 0xd0, 0x81}},
                       .lock_inode = UINT64_MAX,
                       .former_count = former_count};

    for (uint32_t i = 0; i < former_count; i++) {
        memset(file.formers[i].bytes, (int)(0xf0 + i), 16);
    }
    return file;
}

/* Decode `lines` with a right digest line after them. */
static kvarve_status decode_lines(const char *lines, kvarve_error *err)
{
    char text[2 * STORE_FILE_SIZE_MAX];
    char hex[33];
    const page_digest digest = page_digest_of(lines, strlen(lines));
    store_file out;
    int size;

    hex_encode(hex, digest.bytes, sizeof digest.bytes);
    size = snprintf(text, sizeof text, "%sdigest %s\n", lines, hex);
    return store_file_decode(text, (size_t)size, &out, err);
}

static void test_store_file__comes_back(void **unused)
{
    (void)unused;
    for (uint32_t formers = 0; formers <= STORE_FORMERS_MAX; formers++) {
        const store_file file = sample_file(formers);
        char text[STORE_FILE_SIZE_MAX];
        store_file out;
        const size_t size = store_file_encode(&file, text);

        assert_int_equal(store_file_decode(text, size, &out, NULL), KVARVE_OK);
        assert_int_equal(out.format, file.format);
        assert_memory_equal(&out.uuid, &file.uuid, sizeof out.uuid);
        assert_true(out.lock_inode == file.lock_inode);
        assert_int_equal(out.former_count, formers);
        assert_memory_equal(out.formers, file.formers, formers * sizeof file.formers[0]);
    }
}

static void test_store_file__every_flipped_byte_is_refused(void **unused)
{
    const store_file file = sample_file(2);
    char text[STORE_FILE_SIZE_MAX];
    const size_t size = store_file_encode(&file, text);
    store_file out;

    (void)unused;
    for (size_t i = 0; i < size; i++) {
        for (int bit = 0; bit < 8; bit++) {
            text[i] = (char)(text[i] ^ (1 << bit));
            assert_int_equal(store_file_decode(text, size, &out, NULL), KVARVE_CORRUPT);
            text[i] = (char)(text[i] ^ (1 << bit));
        }
    }
    for (size_t cut = 0; cut < size; cut++) {
        assert_int_equal(store_file_decode(text, cut, &out, NULL), KVARVE_CORRUPT);
    }
}

#define UUID "9f86d081884c7d659a2feaa0c55ad015"

static void test_store_file__other_texts_are_refused(void **unused)
{
    static const char *const wrong[] = {
        "",
        "kvarve-store 1\n",
        "kvarve-store 0\nuuid " UUID "\nlock-inode 1\n",
        "kvarve-store 01\nuuid " UUID "\nlock-inode 1\n",
        "kvarve-store 1\nuuid " UUID "\n",
        "kvarve-store 1\nuuid " UUID "\nlock-inode 1",
        "kvarve-store 1\nuuid " UUID "\nlock-inode 01\n",
        "kvarve-store 1\nuuid " UUID "\nlock-inode -1\n",
        "kvarve-store 1\nuuid " UUID "\nlock-inode \n",
        "kvarve-store 1\nuuid " UUID "\nlock-inode 18446744073709551616\n",
        "kvarve-store 1\nuuid " UUID "0\nlock-inode 1\n",
        "kvarve-store 1\nuuid  " UUID "\nlock-inode 1\n",
        "kvarve-store 1\nuuid 9F86d081884c7d659a2feaa0c55ad015\nlock-inode 1\n",
        "kvarve-store 1\nlock-inode 1\nuuid " UUID "\n",
        "kvarve-store 1\nuuid " UUID "\nlock-inode 1\nother 1\n",
        "kvarve-store 1\nuuid " UUID "\nlock-inode 1\n\n",
        "kvarve-store 1\r\nuuid " UUID "\nlock-inode 1\n",
        " kvarve-store 1\nuuid " UUID "\nlock-inode 1\n",
        "kvarve-store 1\nuuid " UUID "\nlock-inode 1\nformer " UUID "\nlock-inode 1\n",
    };

    (void)unused;
    assert_int_equal(decode_lines("kvarve-store 1\nuuid " UUID "\nlock-inode 1\n", NULL),
                     KVARVE_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(decode_lines(wrong[i], NULL), KVARVE_CORRUPT);
    }
}

static void test_store_file__a_seventeenth_former_is_refused(void **unused)
{
    char lines[STORE_FILE_SIZE_MAX] = "kvarve-store 1\nuuid " UUID "\nlock-inode 1\n";
    size_t size = strlen(lines);

    (void)unused;
    for (int i = 0; i <= (int)STORE_FORMERS_MAX; i++) {
        assert_int_equal(decode_lines(lines, NULL), KVARVE_OK);
        size += (size_t)snprintf(lines + size, sizeof lines - size, "former " UUID "\n");
    }
    assert_int_equal(decode_lines(lines, NULL), KVARVE_CORRUPT);
}

static void test_store_file__a_newer_format_is_named_as_such(void **unused)
{
    kvarve_error err;

    (void)unused;
    assert_int_equal(decode_lines("kvarve-store 2\nsomething new\n", &err), KVARVE_UNSUPPORTED);
    assert_string_equal(err.text, "store file: format 2, known up to 1");
}

static void test_store_file__format_1_is_this_text(void **unused)
{
    const store_file file = {.format = 1, .lock_inode = 1835011, .former_count = 1};
    char text[STORE_FILE_SIZE_MAX];
    const size_t size = store_file_encode(&file, text);

    (void)unused;
    text[size] = '\0';
    assert_string_equal(text, "kvarve-store 1\n"
                              "uuid 00000000000000000000000000000000\n"
                              "lock-inode 1835011\n"
                              "former 00000000000000000000000000000000\n"
                              "digest 7f9b6fc359bf5d393d5d3845104a77a0\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_file__comes_back),
        cmocka_unit_test(test_store_file__every_flipped_byte_is_refused),
        cmocka_unit_test(test_store_file__other_texts_are_refused),
        cmocka_unit_test(test_store_file__a_seventeenth_former_is_refused),
        cmocka_unit_test(test_store_file__a_newer_format_is_named_as_such),
        cmocka_unit_test(test_store_file__format_1_is_this_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
