/*
 * test_index_damage.c - databases that are damaged, foreign or of a newer version: each is refused
 * with its status, none is changed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "unit/index/index_fixture.h"

static void test_index__newer_version_is_refused(void **state)
{
    fixture *f = *state;
    const uint8_t version[4] = {0, 0, 0, 7};

    open_index(f);
    empty_log(f);
    close_index(f);
    assert_int_equal(world_overwrite(f->world, KIT_DATABASE, 60, version, sizeof version), 0);
    world_set_plan(f->world, NULL);
    assert_int_equal(kit_open(world_env(f->world), false, &f->index, &f->err), KVARVE_UNSUPPORTED);
    assert_non_null(strstr(f->err.text, "version 7"));
    assert_non_null(strstr(f->err.text, "version 1"));
    assert_int_equal(world_observe(f->world).changes, 0);
}

/* Make index.db from a database that SQL text builds, and an empty log. */
static void put_database(fixture *f, const char *sql)
{
    sqlite3 *database = NULL;
    sqlite3_int64 size = 0;
    unsigned char *image;

    assert_int_equal(sqlite3_open(":memory:", &database), SQLITE_OK);
    assert_int_equal(sqlite3_exec(database, sql, NULL, NULL, NULL), SQLITE_OK);
    image = sqlite3_serialize(database, "main", &size, 0);
    assert_non_null(image);
    assert_int_equal(world_put_file(f->world, KIT_DATABASE, image, (size_t)size), 0);
    assert_int_equal(world_put_file(f->world, KIT_LOG, "", 0), 0);
    sqlite3_free(image);
    assert_int_equal(sqlite3_close(database), SQLITE_OK);
}

#define OUR_SCHEMA                                                                                 \
    "CREATE TABLE batch(sequence INTEGER PRIMARY KEY, body BLOB NOT NULL);"                        \
    "CREATE TABLE dropped(sequence INTEGER NOT NULL, checkpoint INTEGER NOT NULL, PRIMARY "        \
    "KEY(sequence, checkpoint)) WITHOUT ROWID;"                                                    \
    "CREATE TABLE recency(checkpoint INTEGER PRIMARY KEY, used INTEGER NOT NULL);"                 \
    "PRAGMA application_id=0x6b766172; PRAGMA user_version=1;"

static void test_index__foreign_database_is_refused_untouched(void **state)
{
    static const char *const foreign[] = {
        "CREATE TABLE note(text)",
        "CREATE TABLE note(text); PRAGMA application_id=77",
        "PRAGMA user_version=3",
        "CREATE TABLE batch(sequence INTEGER PRIMARY KEY, body BLOB NOT NULL);"
        "PRAGMA application_id=0x6b766172; PRAGMA user_version=1",
        OUR_SCHEMA "CREATE TABLE note(text)",
        OUR_SCHEMA "CREATE TRIGGER t AFTER INSERT ON batch BEGIN DELETE FROM recency; END",
        OUR_SCHEMA "PRAGMA user_version=0",
    };
    fixture *f = *state;

    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        put_database(f, foreign[i]);
        world_set_plan(f->world, NULL);
        assert_int_equal(kit_open(world_env(f->world), false, &f->index, &f->err), KVARVE_CORRUPT);
        assert_int_equal(f->err.status, KVARVE_CORRUPT);
        assert_int_equal(world_observe(f->world).changes, 0);
    }
    put_database(f, OUR_SCHEMA); /* the control: this one is ours */
    open_index(f);
    assert_content(f);
}

static void test_index__rows_that_we_never_write_are_corrupt(void **state)
{
    static const char *const rows[] = {
        "INSERT INTO batch VALUES(-1, x'01')",
        "INSERT INTO batch VALUES(0, x'01')",
        "INSERT INTO batch VALUES(1, 'text')",
        "INSERT INTO batch VALUES(1, 7)",
        "INSERT INTO batch VALUES(1, x'')",
        "INSERT INTO batch VALUES(1, zeroblob(1048577))",
        "INSERT INTO batch VALUES(1, zeroblob(3000000))",
        "INSERT INTO dropped VALUES(1, -5)",
        "INSERT INTO dropped VALUES(1, 'text')",
        "INSERT INTO recency VALUES(-1, 5)",
        "INSERT INTO recency VALUES(1, -5)",
        "INSERT INTO recency VALUES(1, 'text')",
    };
    fixture *f = *state;
    char sql[1024];
    kit_content content;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        (void)snprintf(sql, sizeof sql, OUR_SCHEMA "%s", rows[i]);
        put_database(f, sql);
        open_index(f);
        assert_int_equal(kit_load(f->index, &content, &f->err), KVARVE_CORRUPT);
        close_index(f);
        assert_int_equal(index_remove(world_env(f->world), KIT_DIRECTORY, &f->err), KVARVE_OK);
    }
}

static kvarve_status accept_batch(void *context, uint64_t sequence, const void *body, size_t size,
                                  kvarve_error *err)
{
    (void)context;
    (void)sequence;
    (void)body;
    (void)size;
    (void)err;
    return KVARVE_OK;
}

static kvarve_status load_anything(kvarve_index *index, kvarve_error *err)
{
    kit_content content = {.last_sequence = 0};
    const index_visitor visitor = {.context = &content,
                                   .batch = accept_batch,
                                   .dropped = kit_see_dropped,
                                   .recency = kit_see_recency};

    return index_load(index, &visitor, err);
}

/* A damaged tree may hold its rows in another order than their keys'. */
static void test_index__rows_out_of_order_are_corrupt(void **state)
{
    /* The first row is the last cell of its page: size, sequence, 3 bytes of head, 3 of body. */
    const uint64_t sequence_offset = 2 * (uint64_t)INDEX_PAGE_BYTES - 7;
    const uint8_t sequence = 9;
    fixture *f = *state;
    uint8_t before = 0;

    put_database(f, OUR_SCHEMA "INSERT INTO batch VALUES(5, x'010203'), (6, x'010203')");
    assert_int_equal(world_read(f->world, KIT_DATABASE, sequence_offset, &before, 1), 0);
    assert_int_equal(before, 5);
    assert_int_equal(world_overwrite(f->world, KIT_DATABASE, sequence_offset, &sequence, 1), 0);
    open_index(f);
    assert_int_equal(load_anything(f->index, &f->err), KVARVE_CORRUPT);
}

static void test_index__no_database_is_corrupt(void **state)
{
    fixture *f = *state;
    uint8_t garbage[9000];

    memset(garbage, 0x5a, sizeof garbage);
    assert_int_equal(world_put_file(f->world, KIT_DATABASE, garbage, sizeof garbage), 0);
    assert_int_equal(kit_open(world_env(f->world), false, &f->index, &f->err), KVARVE_CORRUPT);
    assert_int_equal(kit_open(world_env(f->world), true, &f->index, &f->err), KVARVE_CORRUPT);
}

static void test_index__truncated_database_is_corrupt(void **state)
{
    fixture *f = *state;
    kit_content content;
    kvarve_status status;
    uint64_t size = 0;

    open_index(f);
    add_some(f);
    empty_log(f);
    close_index(f);
    assert_int_equal(world_size(f->world, KIT_DATABASE, &size), 0);
    assert_int_equal(world_truncate(f->world, KIT_DATABASE, size - INDEX_PAGE_BYTES), 0);
    status = kit_open(world_env(f->world), false, &f->index, &f->err);
    if (status == KVARVE_OK) {
        status = kit_load(f->index, &content, &f->err);
        assert_int_equal(index_verify(f->index, NULL), KVARVE_CORRUPT);
    }
    assert_int_equal(status, KVARVE_CORRUPT);
}

/* Open, load and check with one bit flipped. */
static kvarve_status read_flipped(fixture *f, uint64_t offset)
{
    kit_content content;
    kvarve_status status;

    assert_int_equal(world_flip(f->world, KIT_DATABASE, offset, 0x40), 0);
    status = kit_open(world_env(f->world), true, &f->index, &f->err);
    if (status == KVARVE_OK) {
        status = kit_load(f->index, &content, &f->err);
        if (status == KVARVE_OK) {
            status = index_verify(f->index, &f->err);
        }
        close_index(f);
    }
    assert_int_equal(world_flip(f->world, KIT_DATABASE, offset, 0x40), 0);
    return status;
}

/* Without its log the database says what was true at the last checkpoint. */
static void test_index__a_database_without_its_log_is_refused_untouched(void **state)
{
    fixture *f = *state;

    open_index(f);
    add_some(f);
    index_set_limits(f->index, 1, UINT64_C(1) << 20);
    do_step(f, (kit_step){.recency_checkpoint = 8, .used = 3}); /* and a checkpoint after it */
    index_set_limits(f->index, INDEX_CHECKPOINT_FRAMES, UINT64_C(1) << 20);
    do_step(f, (kit_step){.add = 9, .add_size = 100});
    close_index(f);
    assert_int_equal(world_remove(f->world, KIT_LOG), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kit_open(world_env(f->world), i == 0, &f->index, &f->err), KVARVE_CORRUPT);
        assert_non_null(strstr(f->err.text, "kvarve rebuild"));
        assert_false(world_exists(f->world, KIT_LOG));
    }
    assert_int_equal(world_put_file(f->world, KIT_LOG, "", 0), 0); /* as a checkpoint leaves it */
    assert_int_equal(kit_open(world_env(f->world), false, &f->index, &f->err), KVARVE_OK);
    close_index(f);
}

/* Another content of a body may be read, for the body's own digest to find. Every byte in turn:
 * tests/crash/test_store_damage.c. */
static void test_index__flipped_bytes_never_crash(void **state)
{
    fixture *f = *state;
    uint64_t size = 0;
    unsigned corrupt = 0;

    open_index(f);
    add_some(f);
    empty_log(f);
    close_index(f);
    assert_int_equal(world_size(f->world, KIT_DATABASE, &size), 0);
    for (uint64_t offset = 0; offset < size; offset += 1 + offset % 61) {
        corrupt += read_flipped(f, offset) == KVARVE_CORRUPT;
    }
    assert_true(corrupt > 20);
    open_index(f);
    assert_content(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_index__newer_version_is_refused),
        WORLD_TEST(test_index__foreign_database_is_refused_untouched),
        WORLD_TEST(test_index__rows_that_we_never_write_are_corrupt),
        WORLD_TEST(test_index__rows_out_of_order_are_corrupt),
        WORLD_TEST(test_index__no_database_is_corrupt),
        WORLD_TEST(test_index__truncated_database_is_corrupt),
        WORLD_TEST(test_index__a_database_without_its_log_is_refused_untouched),
        WORLD_TEST(test_index__flipped_bytes_never_crash),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
