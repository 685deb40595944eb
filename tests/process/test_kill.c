/*
 * test_kill.c - kill -9 in the middle of work loses nothing that was acknowledged (P4).
 *
 * Each round a child opens the store, puts, replays, restores and drops, and writes a line to a
 * pipe before each drop and after each call that ended. The parent lets it go on for a random
 * number of lines and a random moment more, kills it, opens the store itself and compares all that
 * was acknowledged in this and every earlier round byte for byte.
 *
 * What it is not: loss of power. The page cache survives the process; the crash tests in the
 * simulated host stand for that.
 *
 * KVARVE_ROUNDS makes it longer, KVARVE_SEED another one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "contract/engine.h"
#include "kvarve/admin.h"
#include "simulate/world.h"
#include "support/scratch.h"

#define ROUNDS       20u
#define LINES_MAX    12u /* of one round, before it is killed */
#define LATE_MS_MAX  15u
#define CHECKS_MAX   65536u
#define CONVERSATION 8u /* puts of one conversation */

static const engine_layout *const layouts[] = {&engine_plain, &engine_hybrid, &engine_exact};
#define LAYOUTS 3u

/* What a line says; pipes write so few bytes at once or not at all. */
typedef enum line_kind { LINE_STORED = 1, LINE_DROPPING = 2, LINE_DROPPED = 3 } line_kind;

typedef struct line {
    uint32_t kind;
    uint32_t round;
    uint32_t item;
} line;

typedef enum item_state { ITEM_NONE, ITEM_SURE, ITEM_PERHAPS, ITEM_GONE } item_state;

typedef struct known_item {
    uint32_t round;
    uint32_t item;
    item_state state;
} known_item;

/* Everything about an item follows from its round and number. */
static const engine_layout *layout_of(uint32_t item)
{
    return layouts[item / CONVERSATION % LAYOUTS];
}

static engine_state state_of(uint32_t round, uint32_t item, kvarve_prefix **out_prefix)
{
    const uint64_t tokens = 20 + 37 * (uint64_t)(item % CONVERSATION);

    *out_prefix = engine_prefix(round * 1000u + item / CONVERSATION, tokens);
    return (engine_state){.prefix = *out_prefix, .tokens = tokens, .kind = item % 3};
}

typedef struct session {
    kvarve_store *store;
    engine engines[LAYOUTS];
} session;

static kvarve_status open_session(session *out, const char *folder, kvarve_error *err)
{
    kvarve_store_options options = KVARVE_STORE_OPTIONS_INIT;
    kvarve_status status;

    options.arena_bytes = UINT64_C(4) << 20;
    options.flash_bytes_max = UINT64_C(1) << 30;
    options.segment_bytes = UINT64_C(1) << 20;
    options.pool_threads = 2;
    status = kvarve_open(folder, &options, &out->store, err);
    for (uint32_t i = 0; i < LAYOUTS && status == KVARVE_OK; i++) {
        status = engine_open(&out->engines[i], out->store, layouts[i], err);
    }
    return status;
}

static void close_session(session *at)
{
    for (uint32_t i = 0; i < LAYOUTS; i++) {
        engine_close(&at->engines[i]);
    }
    kvarve_close(at->store);
}

static const engine *engine_of(const session *at, uint32_t item)
{
    return &at->engines[item / CONVERSATION % LAYOUTS];
}

/* --- the child --- */

static void say(int pipe, uint32_t kind, uint32_t round, uint32_t item)
{
    const line out = {.kind = kind, .round = round, .item = item};

    if (write(pipe, &out, sizeof out) != (ssize_t)sizeof out) {
        _exit(3);
    }
}

static void drop_item(const session *at, uint32_t round, uint32_t item, int pipe)
{
    kvarve_prefix *prefix;
    const engine_state state = state_of(round, item, &prefix);
    kvarve_boundary found;

    if (engine_find(engine_of(at, item), &state, KVARVE_LEASE_NONE, &found, NULL, NULL, NULL) !=
        KVARVE_OK) {
        _exit(4);
    }
    say(pipe, LINE_DROPPING, round, item);
    if (kvarve_drop(at->store, found.id, NULL) != KVARVE_OK) {
        _exit(5);
    }
    say(pipe, LINE_DROPPED, round, item);
    kvarve_prefix_free(prefix);
}

/* Never returns by itself: it is killed. */
static void work(const char *folder, uint32_t round, int pipe)
{
    session at = {0};

    if (open_session(&at, folder, NULL) != KVARVE_OK) {
        _exit(1);
    }
    for (uint32_t item = 0;; item++) {
        kvarve_prefix *prefix;
        const engine_state state = state_of(round, item, &prefix);

        if (engine_put(engine_of(&at, item), &state, NULL, NULL) != KVARVE_OK) {
            _exit(2);
        }
        say(pipe, LINE_STORED, round, item);
        if (item % 3 == 0 &&
            engine_restore(engine_of(&at, item), &state, item % 2 == 0, NULL) != KVARVE_OK) {
            _exit(6);
        }
        kvarve_prefix_free(prefix);
        if (item % 5 == 4) {
            drop_item(&at, round, item - 2, pipe);
        }
    }
}

/* --- the parent --- */

static known_item *find_known(known_item *known, size_t *count, const line *about)
{
    for (size_t i = *count; i-- > 0;) {
        if (known[i].round == about->round && known[i].item == about->item) {
            return &known[i];
        }
    }
    assert_true(*count < CHECKS_MAX);
    known[*count] = (known_item){.round = about->round, .item = about->item};
    return &known[(*count)++];
}

/* Read lines until there are `count`, or the pipe ends. */
static size_t take_lines(int pipe, size_t count, known_item *known, size_t *known_count)
{
    size_t taken = 0;
    line got;

    while (taken < count && read(pipe, &got, sizeof got) == (ssize_t)sizeof got) {
        find_known(known, known_count, &got)->state = got.kind == LINE_STORED     ? ITEM_SURE
                                                      : got.kind == LINE_DROPPING ? ITEM_PERHAPS
                                                                                  : ITEM_GONE;
        taken++;
    }
    return taken;
}

static void kill_at_random(pid_t child, int pipe, uint64_t *random, known_item *known,
                           size_t *known_count)
{
    const size_t lines = world_next_random(random) % LINES_MAX; /* 0: perhaps while it opens */
    int status = 0;

    if (take_lines(pipe, lines, known, known_count) < lines) {
        (void)waitpid(child, &status, 0);
        fail_msg("the child ended by itself: %d", status);
    }
    (void)poll(NULL, 0, (int)(world_next_random(random) % LATE_MS_MAX));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    (void)take_lines(pipe, SIZE_MAX, known, known_count); /* what it said last */
}

static void check_item(const session *at, const known_item *one)
{
    kvarve_prefix *prefix;
    const engine_state state = state_of(one->round, one->item, &prefix);
    kvarve_error err = {0};
    const kvarve_status status =
        engine_restore(engine_of(at, one->item), &state, one->item % 4 == 0, &err);
    const bool is_well = one->state == ITEM_SURE   ? status == KVARVE_OK
                         : one->state == ITEM_GONE ? status == KVARVE_MISS
                                                   : status == KVARVE_OK || status == KVARVE_MISS;

    if (!is_well) {
        fail_msg("round %u item %u (%s), state %d: %s: %s", one->round, one->item,
                 layout_of(one->item)->identity, (int)one->state, kvarve_status_text(status),
                 err.text);
    }
    kvarve_prefix_free(prefix);
}

/* All of the last round, and one in `sparing` of those before. */
static void check_store(const char *folder, const known_item *known, size_t known_count,
                        uint32_t round, uint32_t sparing)
{
    session at = {0};
    kvarve_error err = {0};
    kvarve_verify_result result = {0};

    if (open_session(&at, folder, &err) != KVARVE_OK) {
        fail_msg("open after a kill: %s", err.text);
    }
    for (size_t i = 0; i < known_count; i++) {
        if (known[i].round == round || i % sparing == round % sparing) {
            check_item(&at, &known[i]);
        }
    }
    if (kvarve_verify(at.store, NULL, NULL, &result, &err) != KVARVE_OK) {
        fail_msg("verify after a kill: %s", err.text);
    }
    close_session(&at);
}

/* NOLINTBEGIN(concurrency-mt-unsafe): one thread at that time */
static uint64_t from_environment(const char *name, uint64_t standard)
{
    const char *text = getenv(name);

    return text == NULL ? standard : strtoull(text, NULL, 10);
}
/* NOLINTEND(concurrency-mt-unsafe) */

static void test_kill__nothing_acknowledged_is_lost(void **state)
{
    const uint64_t rounds = from_environment("KVARVE_ROUNDS", ROUNDS);
    uint64_t random = from_environment("KVARVE_SEED", 1);
    known_item *known = kvarve_allocate_array(CHECKS_MAX, sizeof *known);
    size_t known_count = 0;
    char scratch[SCRATCH_PATH_MAX];
    char folder[SCRATCH_PATH_MAX + 8];

    (void)state;
    assert_non_null(known);
    scratch_make(scratch);
    (void)snprintf(folder, sizeof folder, "%s/store", scratch);
    for (uint32_t round = 0; round < rounds; round++) {
        int pipes[2];
        pid_t child;

        assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
        child = fork();
        if (child == 0) {
            close(pipes[0]);
            work(folder, round, pipes[1]);
        }
        assert_true(child > 0);
        close(pipes[1]);
        kill_at_random(child, pipes[0], &random, known, &known_count);
        close(pipes[0]);
        check_store(folder, known, known_count, round, round + 1 == rounds ? 1 : 4);
    }
    print_message("%llu kills, %zu checkpoints looked at again\n", (unsigned long long)rounds,
                  known_count);
    kvarve_release(known);
    scratch_remove(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill__nothing_acknowledged_is_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
