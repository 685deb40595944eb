/*
 * steps.h - what the suites do again and again, as one line each. Include after cmocka.h.
 *
 * A call that answers anything but KVARVE_OK where it may not fails the test with its text.
 */
#ifndef KVARVE_TESTS_CONTRACT_STEPS_H
#define KVARVE_TESTS_CONTRACT_STEPS_H

#include "contract/door.h"
#include "contract/engine.h"

static kvarve_error err;

static inline void expect_ok(kvarve_status status, const char *call, const char *file, int line)
{
    if (status != KVARVE_OK) {
        print_error("%s: %s: %s\n", call, kvarve_status_text(status), err.text);
        _fail(file, line);
    }
}

/* NOLINTNEXTLINE(readability-identifier-naming): it reads as those of cmocka. */
#define assert_ok(call) expect_ok((call), #call, __FILE__, __LINE__)

static inline engine open_engine(door *at, const engine_layout *layout)
{
    engine made = {0};

    assert_ok(engine_open(&made, at->store, layout, &err));
    return made;
}

/* Begin, and wait until there is room. */
static inline kvarve_put *begin(const engine *at, const engine_state *state,
                                const engine_begin *more)
{
    kvarve_put *made = NULL;

    assert_ok(engine_put_begin(at, state, more, &made, &err));
    if (kvarve_put_status(made) == KVARVE_PUT_WAITING) {
        assert_ok(kvarve_put_wait(made, KVARVE_PUT_STAGED, 10000, &err));
    }
    return made;
}

static inline uint32_t put(const engine *at, const engine_state *state)
{
    uint32_t ended = 0;

    assert_ok(engine_put(at, state, &ended, &err));
    return ended;
}

/* The same once more: PRESENT, and not a byte is written. */
static inline void assert_costs_nothing(door *at, const engine *machine, const engine_state *here)
{
    const kvarve_statistics before = door_statistics(at);
    kvarve_statistics after;

    assert_int_equal(put(machine, here), KVARVE_PUT_PRESENT);
    after = door_statistics(at);
    assert_int_equal(after.payload_bytes_written, before.payload_bytes_written);
    assert_int_equal(after.header_bytes_written, before.header_bytes_written);
    assert_int_equal(after.index_log_bytes_written, before.index_log_bytes_written);
    assert_int_equal(after.index_database_bytes_written, before.index_database_bytes_written);
    assert_int_equal(after.puts_present, before.puts_present + 1);
    assert_int_equal(after.checkpoints, before.checkpoints);
}

#endif
