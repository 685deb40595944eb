/* test_http.c - GET over a Unix socket: answers, limits, peers that go away. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "http/http.h"
#include "support/http_server.h"
#include "support/scratch.h"

static const http_script script[] = {
    {"/props", 200, "{\"a\":1}"},
    {"/none", 200, ""},
    {"/busy", 503, "loading"},
    {"/closed", 0, NULL},
};

typedef struct http_fixture {
    char folder[SCRATCH_PATH_MAX];
    char path[SCRATCH_PATH_MAX + 16];
    http_server *server;
} http_fixture;

static int begin(void **state)
{
    static http_fixture fixture;

    scratch_make(fixture.folder);
    (void)snprintf(fixture.path, sizeof(fixture.path), "%s/s.sock", fixture.folder);
    fixture.server = http_server_start(fixture.path, script, sizeof(script) / sizeof(script[0]));
    *state = &fixture;
    return 0;
}

static int end(void **state)
{
    http_fixture *fixture = *state;

    http_server_stop(fixture->server);
    scratch_remove(fixture->folder);
    return 0;
}

static kvarve_status get(http_fixture *fixture, const char *path, size_t body_max, http_answer *out,
                         kvarve_error *err)
{
    const http_request request = {
        .address = fixture->path, .path = path, .timeout_ms = 20000, .body_max = body_max};

    return http_get(&request, out, err);
}

static void test_http__answers_are_handed_over_whatever_their_code(void **state)
{
    http_answer answer = {0};

    assert_int_equal(get(*state, "/props", 100, &answer, NULL), KVARVE_OK);
    assert_int_equal(answer.code, 200);
    assert_string_equal(answer.body, "{\"a\":1}");
    assert_int_equal(answer.size, 7);
    kvarve_release(answer.body);
    assert_int_equal(get(*state, "/none", 100, &answer, NULL), KVARVE_OK);
    assert_string_equal(answer.body, "");
    kvarve_release(answer.body);
    assert_int_equal(get(*state, "/busy", 100, &answer, NULL), KVARVE_OK);
    assert_int_equal(answer.code, 503);
    kvarve_release(answer.body);
    assert_int_equal(get(*state, "/other", 100, &answer, NULL), KVARVE_OK);
    assert_int_equal(answer.code, 404);
    kvarve_release(answer.body);
}

static void test_http__a_body_beyond_the_limit_is_refused(void **state)
{
    http_answer answer = {0};
    kvarve_error err = {0};

    assert_int_equal(get(*state, "/props", 7, &answer, NULL), KVARVE_OK);
    kvarve_release(answer.body);
    answer.body = NULL;
    assert_int_equal(get(*state, "/props", 6, &answer, &err), KVARVE_NO_SPACE);
    assert_null(answer.body);
}

static void test_http__nobody_there_is_unavailable(void **state)
{
    const http_request nobody = {
        .address = "no/such.sock", .path = "/", .timeout_ms = 1000, .body_max = 10};
    const http_request odd = {
        .address = "http://", .path = "/", .timeout_ms = 1000, .body_max = 10};
    http_answer answer = {0};

    assert_int_equal(http_get(&nobody, &answer, NULL), KVARVE_UNAVAILABLE);
    assert_int_equal(get(*state, "/closed", 100, &answer, NULL), KVARVE_UNAVAILABLE);
    assert_int_not_equal(http_get(&odd, &answer, NULL), KVARVE_OK);
    assert_null(answer.body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_http__answers_are_handed_over_whatever_their_code,
                                        begin, end),
        cmocka_unit_test_setup_teardown(test_http__a_body_beyond_the_limit_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(test_http__nobody_there_is_unavailable, begin, end),
    };

    return cmocka_run_group_tests_name("http.get", tests, NULL, NULL);
}
