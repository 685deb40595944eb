/* test_health.c - what HTTP answers: figures, health, a loop that does not answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "daemon/health.h"
#include "daemon/metrics.h"
#include "env/thread.h"
#include "http/http.h"

#define LONG_MS 60000u

/* One GET on a thread of its own, since the loop, here the test, must answer meanwhile. */
typedef struct getting {
    kvarve_thread thread;
    char address[64];
    const char *path;
    http_answer answer;
    kvarve_status status;
} getting;

static void run(void *context)
{
    getting *get = context;
    const http_request request = {
        .address = get->address, .path = get->path, .timeout_ms = LONG_MS, .body_max = 1 << 20};

    get->status = http_get(&request, &get->answer, NULL);
}

static daemon_health *start(void)
{
    daemon_health *health = NULL;

    assert_int_equal(health_start(0, &health, NULL), KVARVE_OK);
    return health;
}

static void begin_get(getting *get, const daemon_health *health, const char *path)
{
    *get = (getting){.path = path};
    (void)snprintf(get->address, sizeof get->address, "http://127.0.0.1:%u", health_port(health));
    assert_int_equal(thread_start(&get->thread, run, get), 0);
}

static void end_get(getting *get, long code, const char *body)
{
    thread_join(&get->thread);
    assert_int_equal(get->status, KVARVE_OK);
    assert_int_equal(get->answer.code, code);
    assert_string_equal(get->answer.body, body);
    kvarve_release(get->answer.body);
}

static void test_health__a_request_wakes_the_loop_and_gets_what_it_publishes(void **state)
{
    daemon_health *health = start();
    getting get;

    (void)state;
    begin_get(&get, health, "/metrics");
    assert_true(event_wait(health_descriptor(health), LONG_MS));
    health_publish(health, "figures 1\n", 10, NULL);
    end_get(&get, 200, "figures 1\n");
    assert_false(event_wait(health_descriptor(health), 0));

    begin_get(&get, health, "/healthz");
    assert_true(event_wait(health_descriptor(health), LONG_MS));
    health_publish(health, "", 0, NULL);
    end_get(&get, 200, "ok\n");

    begin_get(&get, health, "/healthz");
    assert_true(event_wait(health_descriptor(health), LONG_MS));
    health_publish(health, "", 0, "the store failed");
    end_get(&get, 503, "the store failed\n");
    health_stop(health);
}

static void test_health__a_loop_that_does_not_answer_is_not_well(void **state)
{
    daemon_health *health = start();
    getting get;

    (void)state;
    begin_get(&get, health, "/healthz");
    end_get(&get, 503, "the daemon does not answer\n");
    health_stop(health);
}

static void test_health__other_paths_are_not_there_and_wake_nobody(void **state)
{
    daemon_health *health = start();
    getting get;

    (void)state;
    begin_get(&get, health, "/store");
    end_get(&get, 404, "");
    assert_false(event_wait(health_descriptor(health), 0));
    health_stop(health);
}

static void test_health__a_port_that_is_taken_is_refused(void **state)
{
    daemon_health *health = start();
    daemon_health *other = NULL;
    kvarve_error err = {0};

    (void)state;
    assert_int_equal(health_start(health_port(health), &other, &err), KVARVE_UNAVAILABLE);
    assert_non_null(strstr(err.text, "127.0.0.1"));
    health_stop(health);
}

static void test_metrics__every_figure_is_there_with_its_type(void **state)
{
    char *text = kvarve_allocate(METRICS_ROOM);
    kvarve_statistics store = KVARVE_STATISTICS_INIT;
    daemon_figures figures = {.clients = 3};

    (void)state;
    assert_non_null(text);
    memset(&store.checkpoints, 0xff, sizeof store - offsetof(kvarve_statistics, checkpoints));
    store.misses[KVARVE_MISS_TOKENS] = 12;
    store.refusals[KVARVE_REFUSED_NO_ROOM_RAM] = 13;
    const size_t size = metrics_write(&store, &figures, text);
    assert_int_equal(size, strlen(text));
#define HAS_STATISTIC(field, unit, sentence)                                                       \
    assert_non_null(strstr(text, "\nkvarve_" #field));                                             \
    assert_non_null(strstr(text, sentence));
    KVARVE_STATISTIC_TABLE(HAS_STATISTIC)
#undef HAS_STATISTIC
    assert_non_null(strstr(text, "# TYPE kvarve_puts_total counter\nkvarve_puts_total 1844674407"));
    assert_non_null(strstr(text, "# TYPE kvarve_checkpoints gauge\nkvarve_checkpoints 184467440"));
    assert_non_null(strstr(text, "\nkvarve_misses_total{reason=\"tokens\"} 12\n"));
    assert_non_null(strstr(text, "\nkvarve_refusals_total{reason=\"no_room_ram\"} 13\n"));
    assert_non_null(strstr(text, "\nkvarve_daemon_clients 3\n"));
    kvarve_release(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_health__a_request_wakes_the_loop_and_gets_what_it_publishes),
        cmocka_unit_test(test_health__a_loop_that_does_not_answer_is_not_well),
        cmocka_unit_test(test_health__other_paths_are_not_there_and_wake_nobody),
        cmocka_unit_test(test_health__a_port_that_is_taken_is_refused),
        cmocka_unit_test(test_metrics__every_figure_is_there_with_its_type),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
