/*
 * test_store_crash.c - the power goes while a store works, at every change of the disk.
 *
 * Goal    After a cut: every checkpoint that was acknowledged durable and not dropped is found and
 *         restores byte for byte (P1, P2, P4, D1, D3); what was in flight is there whole or not at
 *         all; no page or slot is held that no checkpoint names (D2); a new put works; what was
 *         seen once stays, also when the recovery is cut itself, at each of its changes. Known
 *         content writes nothing (P3, D4).
 * Method  The scenarios of store_scenario.c, public calls over real SQLite, once for every (change,
 *         seed). Loops end when the scenario does not come to the change any more; a scenario with
 *         fewer changes than its checked-in count fails.
 * Faults  At the cut each unsynced sector is old, new or garbage, each unsynced size and name old
 *         or new, by seed; what was synced stays. Disks that lie about syncs: see
 *         test_store_crash_faults.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "crash/crash_effort.h"
#include "crash/store_scenario.h"

#define SEEDS       UINT64_C(5)
#define SEEDS_AGAIN UINT64_C(1)
#define PLANS_MIN   4000u

typedef struct tally {
    uint64_t plans;
    uint64_t cuts;
    uint64_t failed;
} tally;

static uint64_t plans_in_all;

static void report_broken(const scenario *of, const char *broken, const world_plan *plan,
                          uint64_t again, tally *count)
{
    if (broken == NULL || count->failed++ > 4) {
        return;
    }
    (void)printf("%s: %s: cut at %llu, seed %llu, cut again at %lld\n", of->name, broken,
                 (unsigned long long)plan->cut_change, (unsigned long long)plan->seed,
                 (long long)again);
    if (crash_ends_at_first()) {
        fail();
    }
}

/* False when the scenario ended before the cut. */
static bool cut_once(stage *at, uint64_t change, uint64_t seed, tally *count)
{
    const world_plan plan = {
        .fault_step = WORLD_NEVER, .cut_change = change, .seed = change * 64 + seed};
    static run_result result;
    bool is_cut;

    stage_run(at, &plan, false, &result);
    is_cut = world_observe(at->world).is_cut;
    world_restart(at->world, NULL);
    if (result.broken == NULL) {
        result.broken = stage_check(at, &result.known, plan.seed, seed % 3 == 0);
    }
    report_broken(at->of, result.broken, &plan, (uint64_t)-1, count);
    count->plans++;
    count->cuts += is_cut;
    return is_cut;
}

static void sweep_cuts(const scenario *of, tally *count)
{
    stage at;
    bool is_cut = true;

    stage_begin(&at, of);
    for (uint64_t change = (uint64_t)(of - scenarios) % crash_stride(); is_cut;
         change += crash_stride()) {
        for (uint64_t seed = 0; seed < SEEDS * crash_effort(); seed++) {
            is_cut = cut_once(&at, change, seed, count);
        }
    }
    stage_end(&at);
}

static void test_store_crash__power_cut_at_every_change(void **state)
{
    tally all = {0};

    (void)state;
    for (size_t i = 0; i < scenario_count; i++) {
        sweep_cuts(&scenarios[i], &all);
    }
    (void)printf("%llu plans, %llu of them cut\n", (unsigned long long)all.plans,
                 (unsigned long long)all.cuts);
    plans_in_all += all.plans;
    assert_true(all.plans >= PLANS_MIN / crash_stride());
    assert_int_equal(all.failed, 0);
    assert_int_equal(kvarve_allocated_blocks(), 0);
}

/* The recovery after a cut, itself cut at `again`. False when it ended before that. */
static bool cut_twice(stage *at, const world_plan *first, uint64_t again, bool *out_is_first,
                      tally *count)
{
    const world_plan second = {
        .fault_step = WORLD_NEVER, .cut_change = again, .seed = first->seed * 37 + again};
    static run_result result;
    const char *during;
    bool is_cut;

    stage_run(at, first, false, &result);
    *out_is_first = world_observe(at->world).is_cut;
    world_restart(at->world, &second);
    during = stage_recover(at);
    is_cut = world_observe(at->world).is_cut;
    world_restart(at->world, NULL);
    stage_expect_probe(at, &result.known);
    result.broken = result.broken == NULL ? during : result.broken;
    if (result.broken == NULL) {
        result.broken = stage_check(at, &result.known, second.seed, again % 4 == 0);
    }
    report_broken(at->of, result.broken, first, again, count);
    count->plans++;
    count->cuts += is_cut;
    return is_cut;
}

static bool sweep_second_cuts(stage *at, uint64_t change, uint64_t seed, tally *count)
{
    const world_plan first = {
        .fault_step = WORLD_NEVER, .cut_change = change, .seed = change * 31 + seed};
    bool is_first = true;
    bool is_cut = true;

    for (uint64_t again = change % crash_stride(); is_cut; again += crash_stride()) {
        is_cut = cut_twice(at, &first, again, &is_first, count);
    }
    return is_first;
}

static void test_store_crash__recovery_is_cut_too(void **state)
{
    tally all = {0};

    (void)state;
    for (size_t i = 0; i < scenario_count; i++) {
        stage at;
        bool is_first = true;

        stage_begin(&at, &scenarios[i]);
        for (uint64_t change = i % 7; is_first; change += 7) {
            for (uint64_t seed = 0; seed < SEEDS_AGAIN * crash_effort(); seed++) {
                is_first = sweep_second_cuts(&at, change, seed, &all);
            }
        }
        stage_end(&at);
    }
    (void)printf("%llu plans, %llu of them cut twice\n", (unsigned long long)all.plans,
                 (unsigned long long)all.cuts);
    plans_in_all += all.plans;
    (void)printf("%llu plans in all\n", (unsigned long long)plans_in_all);
    assert_true(all.plans >= PLANS_MIN / crash_stride());
    assert_int_equal(all.failed, 0);
    assert_int_equal(kvarve_allocated_blocks(), 0);
}

/* KVARVE_CRASH_PLAN="scenario change seed again", as a broken plan is printed: that one alone. */
static void test_store_crash__one_plan(void **state)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread. */
    const char *text = getenv("KVARVE_CRASH_PLAN");
    char *rest = NULL;
    size_t number;
    world_plan plan = {.fault_step = WORLD_NEVER};
    tally count = {0};
    bool is_first = false;
    stage at;

    (void)state;
    if (text == NULL) {
        skip();
    }
    number = strtoul(text, &rest, 10);
    plan.cut_change = strtoull(rest, &rest, 10);
    plan.seed = strtoull(rest, &rest, 10);
    assert_true(number < scenario_count);
    stage_begin(&at, &scenarios[number]);
    (void)cut_twice(&at, &plan, strtoull(rest, &rest, 10), &is_first, &count);
    stage_end(&at);
    assert_int_equal(count.failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_crash__power_cut_at_every_change),
        cmocka_unit_test(test_store_crash__recovery_is_cut_too),
        cmocka_unit_test(test_store_crash__one_plan),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
