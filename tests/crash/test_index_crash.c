/*
 * test_index_crash.c - the index while the disk misbehaves.
 *
 * Goal    Transactions that were acknowledged are there after a power cut at any change, whole and
 * in order; one that was not is whole or absent; one that was answered NO_SPACE is absent. The
 *         recovery may itself be cut, and what it shows once stays.
 * Method  A fixed scenario of ten transactions with checkpoints between them (small limits) runs
 *         once for every (fault, fault step, cut, seed). Steps are enumerated: a loop ends when the
 *         scenario does not come to the step any more.
 * Faults  Power cut (sectors, sizes and names old, new or garbage); EIO, ENOSPC, EDQUOT and EINTR
 * at every call; short and torn writes; a failed sync. Not here: lost syncs and flipped bits,
 *         against which SQLite has no means (the bodies carry digests of their own).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "unit/index/index_kit.h"

#define SEEDS        UINT64_C(3)
#define STEP_COUNT   (sizeof scenario / sizeof scenario[0])
#define SMALL_FRAMES 9u
#define SMALL_LOG    (UINT64_C(20) * INDEX_FRAME_BYTES)

static const kit_step scenario[] = {
    {.add = 1, .add_size = 400},
    {.add = 2, .add_size = 6000, .recency_checkpoint = 1, .used = 10},
    {.add = 3, .add_size = 3000, .drop_checkpoint = 1, .drop_sequence = 1},
    {.add = 4, .add_size = 8000},
    {.dead = 1, .recency_checkpoint = 2, .used = 12, .dead_recency = 1},
    {.add = 5, .add_size = 2000, .drop_checkpoint = 5, .drop_sequence = 3},
    {.add = 6, .add_size = 7900, .dead = 2},
    {.recency_checkpoint = 2, .used = 13},
    {.add = 7, .add_size = 100, .drop_checkpoint = 6, .drop_sequence = 3, .dead = 3},
    {.add = 9, .add_size = 5000, .recency_checkpoint = 9, .used = 1},
};

/* What a run left: the sure content, and the one that it may also be. */
typedef struct run_outcome {
    kit_content sure;
    kit_content perhaps;
    bool is_opened;
    uint64_t checkpoints;
    uint64_t refused;
} run_outcome;

typedef struct sweep_tally {
    uint64_t plans;
    uint64_t failed;
    uint64_t hits;
    uint64_t checkpoints;
    uint64_t refused;
} sweep_tally;

static void run_steps(sim_world *world, kvarve_index *index, run_outcome *out)
{
    index_counters counters;

    for (size_t i = 0; i < STEP_COUNT; i++) {
        const kvarve_status status = kit_run_step(world, index, &scenario[i], NULL);

        kit_apply(&out->perhaps, &scenario[i]);
        if (world_observe(world).is_cut) {
            return; /* its answer does not count */
        }
        if (status == KVARVE_OK) {
            kit_apply(&out->sure, &scenario[i]);
        } else if (status == KVARVE_NO_SPACE && !index_is_failed(index)) {
            out->refused++;
        } else {
            return;
        }
        out->perhaps = out->sure;
    }
    index_count(index, &counters);
    out->checkpoints = counters.checkpoints;
}

static void run_scenario(sim_world *world, run_outcome *out)
{
    kvarve_index *index = NULL;

    memset(out, 0, sizeof *out);
    if (kit_open(world_env(world), false, &index, NULL) != KVARVE_OK) {
        return;
    }
    out->is_opened = true;
    index_set_limits(index, SMALL_FRAMES, SMALL_LOG);
    run_steps(world, index, out);
    index_close(index);
}

/* Open, load, close. NULL, or what is wrong. */
static const char *read_back(sim_world *world, kit_content *out)
{
    kvarve_index *index = NULL;
    const char *broken = NULL;

    memset(out, 0, sizeof *out);
    if (kit_open(world_env(world), false, &index, NULL) != KVARVE_OK) {
        return "it does not open";
    }
    if (kit_load(index, out, NULL) != KVARVE_OK) {
        broken = "it does not load";
    } else if (index_verify(index, NULL) != KVARVE_OK) {
        broken = "it is damaged";
    }
    index_close(index);
    return broken;
}

/* After the power is back: one of the two contents, and from then on always that one. */
static const char *check_recovery(sim_world *world, const run_outcome *before, uint64_t seed)
{
    const world_plan quiet = {
        .fault_step = WORLD_NEVER, .cut_change = WORLD_NEVER, .seed = seed + 100};
    kvarve_index *index = NULL;
    kit_content first;
    kit_content second;
    const char *broken = read_back(world, &first);

    if (broken != NULL) {
        return broken;
    }
    if (!kit_is_same(&first, &before->sure) && !kit_is_same(&first, &before->perhaps)) {
        return "its content is neither before nor after the last transaction";
    }
    world_set_plan(world, &quiet);
    world_restart(world, &quiet);
    broken = read_back(world, &second);
    if (broken != NULL || !kit_is_same(&first, &second)) {
        return broken != NULL ? broken : "a second power cut changed its content";
    }
    if (kit_open(world_env(world), false, &index, NULL) != KVARVE_OK) {
        return "it does not open a third time";
    }
    if (kit_run_step(world, index, &(kit_step){.add = 60, .add_size = 5000}, NULL) != KVARVE_OK) {
        broken = "it takes no transaction";
    }
    index_close(index);
    return broken;
}

/* Run the scenario under `plan`, then lose the power (or only the process), then recover. */
static void check_plan(const world_plan *plan, bool is_power_lost, sweep_tally *tally,
                       world_report *out_report)
{
    sim_world *world = kit_world();
    const world_plan quiet = {
        .fault_step = WORLD_NEVER, .cut_change = WORLD_NEVER, .seed = plan->seed};
    static run_outcome outcome;
    const char *broken;

    world_set_plan(world, plan);
    run_scenario(world, &outcome);
    *out_report = world_observe(world);
    if (world_open_descriptors(world) != 0) {
        broken = "a descriptor was left open";
    } else {
        if (is_power_lost) {
            world_restart(world, &quiet);
        } else {
            world_kill(world);
            world_set_plan(world, &quiet);
        }
        broken = check_recovery(world, &outcome, plan->seed);
    }
    world_destroy(world);
    tally->plans++;
    tally->hits += out_report->fault_hit || out_report->is_cut;
    tally->checkpoints += outcome.checkpoints;
    tally->refused += outcome.refused;
    if (broken != NULL) {
        tally->failed++;
        (void)printf("%s: fault %d errno %d ops %x at %llu, cut at %llu, seed %llu, power %d\n",
                     broken, (int)plan->fault, plan->fault_errno, plan->fault_ops,
                     (unsigned long long)plan->fault_step, (unsigned long long)plan->cut_change,
                     (unsigned long long)plan->seed, is_power_lost);
    }
}

static void test_index_crash__power_cut_at_every_change(void **state)
{
    sweep_tally tally = {0};
    world_report report = {.is_cut = true};

    (void)state;
    for (uint64_t cut = 0; report.is_cut; cut++) {
        for (uint64_t seed = 0; seed < 2 * SEEDS; seed++) {
            const world_plan plan = {
                .fault_step = WORLD_NEVER, .cut_change = cut, .seed = cut * 64 + seed};

            check_plan(&plan, true, &tally, &report);
        }
    }
    (void)printf("%llu plans\n", (unsigned long long)tally.plans);
    assert_true(tally.hits > 50);
    assert_true(tally.checkpoints > 0);
    assert_int_equal(tally.failed, 0);
}

/* Cut the scenario at `cut`, the recovery at `again`, then recover. */
static const char *check_two_cuts(uint64_t cut, uint64_t again, bool *out_first, bool *out_second)
{
    const world_plan first = {
        .fault_step = WORLD_NEVER, .cut_change = cut, .seed = cut * 31 + again};
    const world_plan second = {
        .fault_step = WORLD_NEVER, .cut_change = again, .seed = cut * 37 + again};
    static run_outcome outcome;
    sim_world *world = kit_world();
    kit_content content;
    const char *broken;

    world_set_plan(world, &first);
    run_scenario(world, &outcome);
    *out_first = world_observe(world).is_cut;
    world_restart(world, &second);
    (void)read_back(world, &content);
    *out_second = world_observe(world).is_cut;
    world_restart(world, NULL);
    broken = check_recovery(world, &outcome, again);
    world_destroy(world);
    return broken;
}

/* Every second cut after the first one at `cut`; false when the scenario ended before that. */
static bool sweep_second_cuts(uint64_t cut, uint64_t *cuts)
{
    bool is_first_cut = true;
    bool is_second_cut = true;

    for (uint64_t again = 0; is_second_cut; again++) {
        const char *broken = check_two_cuts(cut, again, &is_first_cut, &is_second_cut);

        *cuts += is_second_cut;
        if (broken != NULL) {
            fail_msg("%s: cut at %llu, again at %llu", broken, (unsigned long long)cut,
                     (unsigned long long)again);
        }
    }
    return is_first_cut;
}

static void test_index_crash__recovery_is_cut_too(void **state)
{
    uint64_t cuts = 0;

    (void)state;
    for (uint64_t cut = 0; sweep_second_cuts(cut, &cuts); cut += 3) {
    }
    (void)printf("%llu cut twice\n", (unsigned long long)cuts);
    assert_true(cuts > 50);
}

static void sweep_fault(world_fault fault, int error, uint32_t ops, sweep_tally *tally)
{
    world_report report = {.fault_reached = true};

    for (uint64_t step = 0; report.fault_reached; step++) {
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            const world_plan plan = {.fault = fault,
                                     .fault_errno = error,
                                     .fault_ops = ops,
                                     .fault_step = step,
                                     .cut_change = WORLD_NEVER,
                                     .seed = step * 64 + seed};

            check_plan(&plan, seed > 0, tally, &report);
        }
    }
}

static void test_index_crash__each_fault_at_every_step(void **state)
{
    static const struct {
        const char *name;
        world_fault fault;
        int error;
        uint32_t ops;
    } kinds[] = {
        {"EIO", WORLD_FAULT_ERROR, EIO, WORLD_OP_ALL},
        {"ENOSPC", WORLD_FAULT_ERROR, ENOSPC, WORLD_OP_ALL},
        {"EDQUOT", WORLD_FAULT_ERROR, EDQUOT, WORLD_OP_WRITE},
        {"EINTR", WORLD_FAULT_ERROR, EINTR, WORLD_OP_ALL},
        {"short", WORLD_FAULT_SHORT, 0, WORLD_OP_READ | WORLD_OP_WRITE},
        {"torn, EIO", WORLD_FAULT_TORN, EIO, WORLD_OP_WRITE},
        {"torn, ENOSPC", WORLD_FAULT_TORN, ENOSPC, WORLD_OP_WRITE},
        {"slow", WORLD_FAULT_SLOW, 0, WORLD_OP_WRITE},
    };

    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        sweep_tally tally = {0};

        sweep_fault(kinds[i].fault, kinds[i].error, kinds[i].ops, &tally);
        (void)printf("%s: %llu plans, %llu hits, %llu transactions refused\n", kinds[i].name,
                     (unsigned long long)tally.plans, (unsigned long long)tally.hits,
                     (unsigned long long)tally.refused);
        assert_true(tally.hits > 20);
        assert_int_equal(tally.failed, 0);
    }
}

/* One fault, and a power cut at each change (of a few) until the scenario ends first. */
static bool sweep_cuts_after(int error, uint64_t step, sweep_tally *tally)
{
    world_report report = {.is_cut = true};

    for (uint64_t cut = 0; report.is_cut; cut += 5) {
        const world_plan plan = {.fault_errno = error,
                                 .fault_ops = WORLD_OP_WRITE | WORLD_OP_SYNC | WORLD_OP_TRUNCATE |
                                              WORLD_OP_SYNC_DIRECTORY,
                                 .fault_step = step,
                                 .cut_change = cut,
                                 .seed = step * 64 + cut};

        check_plan(&plan, true, tally, &report);
    }
    return report.fault_reached;
}

static void test_index_crash__fault_then_power_cut(void **state)
{
    static const int errors[] = {EIO, ENOSPC};
    sweep_tally tally = {0};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        for (uint64_t step = 0; sweep_cuts_after(errors[i], step, &tally); step += 4) {
        }
    }
    (void)printf("%llu plans, %llu transactions refused\n", (unsigned long long)tally.plans,
                 (unsigned long long)tally.refused);
    assert_true(tally.refused > 0);
    assert_int_equal(tally.failed, 0);
}

/* True when the old content was gone. */
static bool remove_and_cut(uint64_t cut, uint64_t seed, bool *out_is_cut)
{
    const world_plan plan = {.fault_step = WORLD_NEVER, .cut_change = cut, .seed = seed};
    const kit_content none = {.last_sequence = 0};
    static run_outcome outcome;
    sim_world *world = kit_world();
    kit_content content;
    kvarve_status status;
    const char *broken;

    run_scenario(world, &outcome);
    world_set_plan(world, &plan);
    status = index_remove(world_env(world), KIT_DIRECTORY, NULL);
    *out_is_cut = world_observe(world).is_cut;
    assert_int_equal(status == KVARVE_OK, !*out_is_cut);
    world_restart(world, NULL);
    broken = read_back(world, &content);
    world_destroy(world);
    if (broken != NULL) {
        fail_msg("%s: cut at %llu, seed %llu", broken, (unsigned long long)cut,
                 (unsigned long long)seed);
    }
    assert_true(kit_is_same(&content, &none) || kit_is_same(&content, &outcome.sure));
    return kit_is_same(&content, &none);
}

/* index_remove, cut anywhere: the old content or none, never an older one. */
static void test_index_crash__remove_is_all_or_nothing(void **state)
{
    bool is_cut = true;
    unsigned gone = 0;

    (void)state;
    for (uint64_t cut = 0; is_cut; cut++) {
        for (uint64_t seed = 0; seed < 16; seed++) {
            gone += remove_and_cut(cut, seed, &is_cut);
        }
    }
    assert_true(gone > 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_index_crash__power_cut_at_every_change),
        cmocka_unit_test(test_index_crash__recovery_is_cut_too),
        cmocka_unit_test(test_index_crash__each_fault_at_every_step),
        cmocka_unit_test(test_index_crash__fault_then_power_cut),
        cmocka_unit_test(test_index_crash__remove_is_all_or_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
