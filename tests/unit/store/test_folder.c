/*
 * test_folder.c - which folders are a store, which become one, and which are refused.
 *
 * A store in the simulated host, whose files are taken away or put in from outside.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/store/store_kit.h"

static void begin_closed(fixture *f)
{
    begin_test(f, &engine_plain);
    const engine_state here = state_at(f, 100);

    assert_int_equal(put(f, &here), KVARVE_PUT_DURABLE);
    close_store(f);
}

static void take_away(fixture *f, const char *path)
{
    assert_int_equal(world_remove(f->world, path), 0);
}

typedef struct removal {
    fixture *f;
    const char *what;
    char path[256];
} removal;

static bool find_file(void *context, const char *path, uint64_t size)
{
    removal *gone = context;

    (void)size;
    if (strstr(path, gone->what) == NULL || strlen(path) >= sizeof gone->path) {
        return true;
    }
    memcpy(gone->path, path, strlen(path) + 1);
    return false;
}

/* All files with `what` in their paths. */
static void take_all_away(fixture *f, const char *what)
{
    removal gone = {.f = f, .what = what};

    do {
        gone.path[0] = '\0';
        world_list_files(f->world, find_file, &gone);
        if (gone.path[0] != '\0') {
            take_away(f, gone.path);
        }
    } while (gone.path[0] != '\0');
}

static void assert_refused(fixture *f, kvarve_status status, const char *text)
{
    assert_int_equal(try_open(f), status);
    if (strstr(err.text, text) == NULL) {
        fail_msg("%s: nothing of `%s`", err.text, text);
    }
}

static void
test_open__without_store_file_and_index_is_refused_while_segments_are_there(void **state)
{
    fixture f;

    (void)state;
    begin_closed(&f);
    const engine_state here = state_at(&f, 100);

    take_away(&f, "store/store");
    take_all_away(&f, "index.db");
    take_all_away(&f, "namespaces/");
    take_away(&f, "store/reserve");
    assert_refused(&f, KVARVE_CORRUPT, "kvarve rebuild");
    f.options.flags = KVARVE_OPEN_READ_ONLY;
    assert_refused(&f, KVARVE_CORRUPT, "kvarve rebuild");
    assert_false(world_exists(f.world, "store/store"));
    f.options.flags = KVARVE_OPEN_REBUILD;
    open_store(&f, &engine_plain);
    assert_ok(engine_restore(&f.at, &here, true, &err));
    end_test(&f);
}

/* What a checkpoint of the index has brought into index.db is not all that was stored. */
static void test_open__with_an_index_that_lost_its_log_is_refused(void **state)
{
    fixture f;

    (void)state;
    begin_test(&f, &engine_plain);
    for (uint64_t tokens = 100; tokens < 180; tokens++) {
        const engine_state here = state_at(&f, tokens);

        assert_int_equal(put(&f, &here), KVARVE_PUT_DURABLE);
    }
    assert_true(statistics(&f).index_database_bytes_written > 0);
    close_store(&f);
    take_away(&f, "store/index.db-wal");
    assert_refused(&f, KVARVE_CORRUPT, "kvarve rebuild");
    f.options.flags = KVARVE_OPEN_READ_ONLY;
    assert_refused(&f, KVARVE_CORRUPT, "kvarve rebuild");
    f.options.flags = KVARVE_OPEN_REBUILD;
    open_store(&f, &engine_plain);
    for (uint64_t tokens = 100; tokens < 180; tokens++) {
        const engine_state here = state_at(&f, tokens);

        assert_ok(engine_restore(&f.at, &here, false, &err));
    }
    end_test(&f);
}

/* Nothing is left that a rebuild could bring back; but somebody's store was here. */
static void test_open__what_is_left_of_a_store_is_named(void **state)
{
    static const char *const left[] = {"namespaces", "index.db", "index.db-wal", "reserve"};

    (void)state;
    for (size_t i = 0; i < sizeof left / sizeof left[0]; i++) {
        fixture f;

        begin_closed(&f);
        take_away(&f, "store/store");
        take_all_away(&f, ".seg");
        for (size_t k = 0; k < i; k++) {
            take_all_away(&f, left[k]);
        }
        if (strcmp(left[i], "index.db-wal") == 0) { /* it went with index.db */
            assert_int_equal(world_put_file(f.world, "store/index.db-wal", "x", 1), 0);
        }
        assert_refused(&f, KVARVE_CORRUPT, left[i]);
        assert_refused(&f, KVARVE_CORRUPT, "empty the folder");
        f.options.flags = KVARVE_OPEN_REBUILD;
        open_store(&f, &engine_plain);
        assert_int_equal(statistics(&f).checkpoints, 0);
        end_test(&f);
    }
}

/* It says that a store was here. */
static void test_open__a_damaged_store_file_alone_is_rebuilt_to_an_empty_store(void **state)
{
    fixture f;

    (void)state;
    begin_closed(&f);
    take_all_away(&f, "store/");
    assert_int_equal(world_put_file(f.world, "store/store", "kvarve-store 1\n", 15), 0);
    assert_refused(&f, KVARVE_CORRUPT, "store file");
    f.options.flags = KVARVE_OPEN_REBUILD;
    open_store(&f, &engine_plain);
    assert_int_equal(statistics(&f).checkpoints, 0);
    end_test(&f);
}

/* The first open was cut short: what it left is no store. */
static void test_open__a_lock_alone_is_no_store(void **state)
{
    fixture f;

    (void)state;
    begin_closed(&f);
    take_away(&f, "store/store");
    take_all_away(&f, ".seg");
    take_all_away(&f, "index.db");
    take_all_away(&f, "namespaces/");
    take_away(&f, "store/reserve");
    open_store(&f, &engine_plain);
    assert_int_equal(statistics(&f).checkpoints, 0);
    end_test(&f);
}

static void test_open__files_of_others_stay_beside_a_new_store(void **state)
{
    static const char note[] = "mine";
    char bytes[sizeof note] = "";
    fixture f;

    (void)state;
    begin_test(&f, &engine_plain);
    close_store(&f);
    take_all_away(&f, "store/");
    assert_int_equal(world_put_file(f.world, "store/note", note, sizeof note), 0);
    f.options.flags = KVARVE_OPEN_EXISTING;
    assert_refused(&f, KVARVE_MISS, "there is none");
    f.options.flags = KVARVE_OPEN_REBUILD;
    assert_refused(&f, KVARVE_MISS, "there is none");
    assert_false(world_exists(f.world, "store/store"));
    f.options.flags = 0;
    open_store(&f, &engine_plain);
    const engine_state here = state_at(&f, 100);

    assert_int_equal(put(&f, &here), KVARVE_PUT_DURABLE);
    assert_int_equal(world_read(f.world, "store/note", 0, bytes, sizeof bytes), 0);
    assert_string_equal(bytes, note);
    end_test(&f);
}

static bool count_file(void *context, const char *path, uint64_t size)
{
    (void)path;
    (void)size;
    ++*(size_t *)context;
    return true;
}

static size_t count_files(const fixture *f)
{
    size_t count = 0;

    world_list_files(f->world, count_file, &count);
    return count;
}

/* Also not the lock, which whoever makes a store there makes first. */
static void test_open__nothing_is_left_in_a_folder_that_is_no_store(void **state)
{
    static const uint32_t flags[] = {KVARVE_OPEN_EXISTING, KVARVE_OPEN_READ_ONLY,
                                     KVARVE_OPEN_READ_ONLY | KVARVE_OPEN_EXISTING,
                                     KVARVE_OPEN_REBUILD};
    fixture f;

    (void)state;
    begin_test(&f, &engine_plain);
    close_store(&f);
    take_all_away(&f, "store/");
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        f.options.flags = flags[i];
        assert_refused(&f, KVARVE_MISS, "there is none");
        assert_int_equal(count_files(&f), 0);
    }
    assert_int_equal(world_put_file(f.world, "store/reserve", "x", 1), 0);
    f.options.flags = KVARVE_OPEN_READ_ONLY;
    assert_refused(&f, KVARVE_CORRUPT, "reserve");
    assert_int_equal(count_files(&f), 1);
    end_world(&f);
}

/* People remove lock files. */
static void test_open__a_store_without_its_lock_file_is_one(void **state)
{
    fixture f;

    (void)state;
    begin_closed(&f);
    const engine_state here = state_at(&f, 100);

    take_away(&f, "store/lock");
    f.options.flags = KVARVE_OPEN_READ_ONLY;
    open_store(&f, &engine_plain);
    assert_true(world_exists(f.world, "store/lock"));
    assert_ok(engine_restore(&f.at, &here, false, &err));
    end_test(&f);
}

/* Its first commit would write into it. */
static void test_open__a_lock_file_of_another_application_is_refused(void **state)
{
    fixture f;

    (void)state;
    begin_test(&f, &engine_plain);
    close_store(&f);
    take_all_away(&f, "store/");
    assert_int_equal(world_put_file(f.world, "store/lock", "4711\n", 5), 0);
    assert_refused(&f, KVARVE_CORRUPT, "another application");
    end_world(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_open__without_store_file_and_index_is_refused_while_segments_are_there),
        cmocka_unit_test(test_open__with_an_index_that_lost_its_log_is_refused),
        cmocka_unit_test(test_open__what_is_left_of_a_store_is_named),
        cmocka_unit_test(test_open__a_damaged_store_file_alone_is_rebuilt_to_an_empty_store),
        cmocka_unit_test(test_open__a_lock_alone_is_no_store),
        cmocka_unit_test(test_open__files_of_others_stay_beside_a_new_store),
        cmocka_unit_test(test_open__nothing_is_left_in_a_folder_that_is_no_store),
        cmocka_unit_test(test_open__a_store_without_its_lock_file_is_one),
        cmocka_unit_test(test_open__a_lock_file_of_another_application_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
