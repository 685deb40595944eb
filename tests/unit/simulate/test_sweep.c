/*
 * test_sweep.c - replacing a file while the disk misbehaves; also the shape of a crash sweep.
 *
 * Goal    After any single fault and a power cut at any change: the file is the old or a new
 *         version, whole; what was acknowledged is not lost; and one fault without a cut leaves
 *         a retry that works.
 * Method  The scenario runs from a snapshot once for every (fault kind, fault step, cut, seed).
 *         Steps are enumerated, not sampled: the loops end when the scenario no longer reaches
 *         the step.
 * Faults  EIO, ENOSPC, EINTR, short and torn writes; sectors, sizes and names as world.h says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "base/alloc.h"
#include "simulate/world.h"
#include "support/world_files.h"

#define SEEDS    8
#define VERSIONS 3
#define SIZE     1500 /* more than a sector, not a multiple */

typedef struct sweep_state {
    sim_world *world;
    world_snapshot *prepared;
    uint64_t plans;
    uint64_t faults_hit;
} sweep_state;

/* Version v is SIZE + v bytes of '0' + v. */
static kvarve_status put_version(sim_world *world, unsigned version)
{
    char bytes[SIZE + VERSIONS];

    memset(bytes, (int)('0' + version), sizeof bytes);
    return io_replace_file(io_of(world), "d", "d/f", bytes, SIZE + version, 0600, NULL);
}

/* Replace twice, each time trying once more. The last version that was acknowledged. */
static unsigned run_scenario(sim_world *world)
{
    unsigned acknowledged = 0;

    for (unsigned version = 1; version < VERSIONS; version++) {
        for (int i = 0; i < 2 && acknowledged < version; i++) {
            acknowledged = put_version(world, version) == KVARVE_OK ? version : acknowledged;
        }
    }
    return acknowledged;
}

/* The version that is there, whole; fails otherwise. */
static unsigned find_version(sim_world *world)
{
    const uint64_t size = file_size(world, "d/f");
    char bytes[SIZE + VERSIONS];

    assert_true(size >= SIZE && size < SIZE + VERSIONS);
    assert_int_equal(world_read(world, "d/f", 0, bytes, size), 0);
    for (uint64_t at = 0; at < size; at++) {
        assert_int_equal(bytes[at], (char)('0' + (size - SIZE)));
    }
    return (unsigned)(size - SIZE);
}

static world_report run_plan(sweep_state *sweep, const world_plan *plan)
{
    sim_world *world = sweep->world;
    world_report report;
    unsigned acknowledged;

    world_restore(world, sweep->prepared, plan->seed);
    world_set_plan(world, plan);
    acknowledged = run_scenario(world);
    report = world_observe(world);
    if (!report.is_cut) {
        assert_int_equal(acknowledged, VERSIONS - 1); /* one fault, one retry */
    }
    assert_int_equal(world_open_descriptors(world), 0);
    world_restart(world, NULL);
    assert_true(find_version(world) >= acknowledged);
    sweep->plans++;
    sweep->faults_hit += report.fault_hit;
    return report;
}

/* All cuts and seeds for one fault. False when the scenario did not come to it. */
static bool sweep_cuts(sweep_state *sweep, world_plan plan)
{
    bool is_reached = false;
    bool is_cut = true;

    for (plan.cut_change = 0; is_cut; plan.cut_change++) {
        for (plan.seed = 0; plan.seed < SEEDS; plan.seed++) {
            const world_report report = run_plan(sweep, &plan);

            is_reached = is_reached || report.fault_reached;
            is_cut = report.is_cut;
        }
    }
    return is_reached;
}

static void test_sweep__a_replaced_file_is_old_or_new(void **state)
{
    static const struct {
        world_fault fault;
        int error;
    } kinds[] = {
        {WORLD_FAULT_ERROR, EIO}, {WORLD_FAULT_ERROR, ENOSPC}, {WORLD_FAULT_ERROR, EINTR},
        {WORLD_FAULT_SHORT, 0},   {WORLD_FAULT_TORN, 0},
    };
    sweep_state sweep = {.world = world_create(1)};

    (void)state;
    assert_non_null(sweep.world);
    assert_int_equal(io_of(sweep.world)->ops->make_directory(io_of(sweep.world), "d", 0700), 0);
    assert_int_equal(put_version(sweep.world, 0), KVARVE_OK);
    world_flush(sweep.world);
    sweep.prepared = world_take_snapshot(sweep.world);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        world_plan plan = {.fault = kinds[i].fault, .fault_errno = kinds[i].error};
        const uint64_t before = sweep.faults_hit;

        while (sweep_cuts(&sweep, plan)) {
            plan.fault_step++;
        }
        assert_true(sweep.faults_hit > before); /* a sweep that injects nothing proves nothing */
    }
    print_message("%llu plans\n", (unsigned long long)sweep.plans);
    world_release_snapshot(sweep.world, sweep.prepared);
    world_destroy(sweep.world);
    assert_int_equal(kvarve_allocated_blocks(), 0);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_sweep__a_replaced_file_is_old_or_new),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
