/* test_config.c - what a daemon is told, from files and flags, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "daemon/config.h"

static daemon_config config;

static int begin(void **state)
{
    (void)state;
    config_begin(&config);
    return 0;
}

static kvarve_status read_text(const char *text, kvarve_error *err)
{
    return config_read_text(&config, text, "kvarve.conf", err);
}

static void refused(const char *text, const char *says)
{
    kvarve_error err = {0};

    config_begin(&config);
    assert_int_equal(read_text(text, &err), KVARVE_INVALID);
    if (strstr(err.text, says) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", err.text, says);
    }
}

static void test_config__a_file_is_read(void **state)
{
    kvarve_error err = {0};

    (void)state;
    assert_int_equal(read_text("# ours\n"
                               "[serve]\n"
                               "store = /var/lib/kvarve\n"
                               "socket=/run/k.sock ; here\n"
                               "arena = 2G\nflash-max = 65536K\n\n"
                               "socket-mode = 0660\nbuffered = yes\nlog-level = debug\n"
                               "allow-user = one\nallow-user = 1000\n"
                               "metrics-port = 0",
                               &err),
                     KVARVE_OK);
    assert_string_equal(config.store, "/var/lib/kvarve");
    assert_string_equal(config.socket, "/run/k.sock");
    assert_int_equal(config.arena_bytes, CONFIG_GIB(2));
    assert_int_equal(config.flash_bytes_max, CONFIG_MIB(64));
    assert_int_equal(config.socket_mode, 0660);
    assert_int_equal(config.is_buffered, 1);
    assert_int_equal(config.log_level, LOG_LEVEL_DEBUG);
    assert_int_equal(config.users.count, 2);
    assert_string_equal(config.users.text[1], "1000");
    assert_int_equal(config.metrics_port, 0);
}

static void test_config__what_is_not_said_has_its_default(void **state)
{
    kvarve_store_options options;

    (void)state;
    assert_int_equal(config.metrics_port, CONFIG_OFF);
    assert_int_equal(config.log_level, LOG_LEVEL_INFO);
    assert_int_equal(config.users.count, 0);
    config_store_options(&config, &options);
    assert_int_equal(options.struct_size, sizeof options);
    assert_int_equal(options.arena_bytes, CONFIG_MIB(256));
    assert_int_equal(options.segment_bytes, CONFIG_MIB(64));
    assert_int_equal(options.checkpoints_max, 4194304);
    assert_int_equal(options.pool_threads, 4);
    assert_int_equal(options.io_timeout_ms, 30000);
    assert_int_equal(options.flags, 0);
}

static void test_config__a_bad_value_names_file_line_and_range(void **state)
{
    (void)state;
    refused("\n\narena = 5\n",
            "kvarve.conf:3: arena \"5\": it is a size (as 64M or 2G), 1M .. 16T");
    refused("arena = 1X", "kvarve.conf:1: arena \"1X\"");
    refused("arena = 99999999999999999999", "1M .. 16T");
    refused("arena = 99999999999999T", "1M .. 16T");
    refused("arena = -1", "1M .. 16T");
    refused("pool-threads = 65", "1 .. 64");
    refused("pool-threads = 4K", "1 .. 64");
    refused("pool-threads = ", "1 .. 64");
    refused("socket-mode = 1000", "octal, 0 .. 777");
    refused("socket-mode = 8", "octal, 0 .. 777");
    refused("log-level = loud", "error, warning, info or debug");
    refused("buffered = maybe", "yes or no");
    refused("metrics-port = 65536", "0 .. 65535");
    refused("store =", "store of 0 characters");
}

static void test_config__what_is_not_known_is_refused(void **state)
{
    (void)state;
    refused("[serve]\nnonsense = 1\n", "kvarve.conf:2: there is no option \"nonsense\"");
    refused("[other]\nstore = a\n", "kvarve.conf:2: there is no section [other]");
    refused("store = a\njust words\n", "kvarve.conf:2: it is no \"name = value\"");
    refused("store = a\nsocket = b\nstore = c\n", "kvarve.conf:3: store is given twice");
}

static void test_config__long_values_and_lines_are_refused(void **state)
{
    char text[1024];

    (void)state;
    (void)snprintf(text, sizeof text, "socket = %0108d\n", 1);
    refused(text, "socket of 108 characters: it has 1 .. 107");
    (void)snprintf(text, sizeof text, "socket = s\n# %0300d\n", 1);
    refused(text, "kvarve.conf:2: the line has");
    (void)snprintf(text, sizeof text, "allow-user = %064d\n", 1);
    refused(text, "allow-user of 64 characters");
}

static void test_config__a_list_has_an_end(void **state)
{
    kvarve_error err = {0};

    (void)state;
    for (unsigned i = 0; i < CONFIG_NAMES_MAX; i++) {
        assert_int_equal(config_set(&config, "allow-group", "g", "--allow-group", &err), KVARVE_OK);
    }
    assert_int_equal(config_set(&config, "allow-group", "g", "--allow-group", &err),
                     KVARVE_INVALID);
    assert_non_null(strstr(err.text, "more than 16 times"));
}

static void test_config__flags_overrule_the_file(void **state)
{
    kvarve_error err = {0};

    (void)state;
    assert_int_equal(read_text("arena = 8M\nwait = 7\nallow-user = a\nallow-user = b\n", &err),
                     KVARVE_OK);
    config_begin_flags(&config);
    assert_int_equal(config_set(&config, "arena", "16M", "--arena", &err), KVARVE_OK);
    assert_int_equal(config_set(&config, "allow-user", "c", "--allow-user", &err), KVARVE_OK);
    assert_int_equal(config_set(&config, "allow-user", "d", "--allow-user", &err), KVARVE_OK);
    assert_int_equal(config_set(&config, "arena", "9M", "--arena", &err), KVARVE_INVALID);
    assert_string_equal(err.text, "--arena: arena is given twice");
    assert_int_equal(config.arena_bytes, CONFIG_MIB(16));
    assert_int_equal(config.wait_ms, 7);
    assert_int_equal(config.users.count, 2);
    assert_string_equal(config.users.text[0], "c");
}

static void test_config__a_file_that_is_not_there_is_named(void **state)
{
    kvarve_error err = {0};

    (void)state;
    assert_int_equal(config_read(&config, "no/such/file.conf", &err), KVARVE_INVALID);
    assert_non_null(strstr(err.text, "no/such/file.conf"));
    assert_int_not_equal(config_read(&config, "tests", &err), KVARVE_OK); /* a folder */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_config__a_file_is_read, begin),
        cmocka_unit_test_setup(test_config__what_is_not_said_has_its_default, begin),
        cmocka_unit_test_setup(test_config__a_bad_value_names_file_line_and_range, begin),
        cmocka_unit_test_setup(test_config__what_is_not_known_is_refused, begin),
        cmocka_unit_test_setup(test_config__long_values_and_lines_are_refused, begin),
        cmocka_unit_test_setup(test_config__a_list_has_an_end, begin),
        cmocka_unit_test_setup(test_config__flags_overrule_the_file, begin),
        cmocka_unit_test_setup(test_config__a_file_that_is_not_there_is_named, begin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
