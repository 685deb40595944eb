/*
 * test_store_crash_faults.c - calls of the disk fail while a store works.
 *
 * Goal    One failed call, or all calls from one on: every answer is a status, a refusal or a miss,
 *         never wrong bytes, never a crash; descriptors, mappings and memory come back; and what
 *         was acknowledged durable is there after the process was killed or the power was cut.
 *         A full disk refuses the put and keeps what is stored, and evictions still commit.
 * Method  The scenarios of store_scenario.c once for every (fault, step of the matching calls,
 *         seed), until the step is not reached any more. Every second one ends with a kill of the
 *         process, the others with a power cut.
 * Faults  A failed sync (the power is cut after it: what it lost is seen until then, and nobody can
 *         tell), EIO, ENOSPC, EDQUOT, EINTR, EMFILE, short reads and writes, torn writes, slow
 * calls past every deadline; a fault and then a power cut. A disk that flips bits in what it reads
 * is held to right bytes or a miss; that nothing is lost is asked of it for pages alone, since
 *         SQLite takes a flipped bit in its log for the log's end. A disk that lies about a sync
 *         (LOST_SYNC) and then loses power may lose anything: it is held to right bytes or a miss,
 *         and to a store that opens or says that it is damaged, and rebuilds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "crash/crash_effort.h"
#include "crash/store_scenario.h"

#define FOR_EVER  (UINT64_C(1) << 40)
#define FAR_NS    (100 * KVARVE_NS_PER_S)
#define PLANS_MIN 10000u

#define OPS_SYNC  (WORLD_OP_SYNC | WORLD_OP_SYNC_DIRECTORY)
#define OPS_KNOWN ((1u << 15) - 1)

typedef struct fault_kind {
    const char *name;
    world_fault fault;
    int error;
    uint32_t ops;
    uint64_t count;
    const char *path;
    uint32_t hits_min;
    bool keeps_nothing; /* durability is not promised on such a disk */
} fault_kind;

static const fault_kind kinds[] = {
    {"EIO", WORLD_FAULT_ERROR, EIO, ~OPS_SYNC &OPS_KNOWN, 1, NULL, 500, false},
    {"failed sync", WORLD_FAULT_ERROR, EIO, OPS_SYNC, 1, NULL, 100, false},
    {"EIO for ever", WORLD_FAULT_ERROR, EIO, WORLD_OP_ALL, FOR_EVER, NULL, 500, false},
    {"ENOSPC", WORLD_FAULT_ERROR, ENOSPC,
     WORLD_OP_OPEN | WORLD_OP_WRITE | WORLD_OP_ALLOCATE | WORLD_OP_MAKE_DIRECTORY | WORLD_OP_RENAME,
     1, NULL, 100, false},
    {"ENOSPC for ever", WORLD_FAULT_ERROR, ENOSPC,
     WORLD_OP_WRITE | WORLD_OP_ALLOCATE | WORLD_OP_MAKE_DIRECTORY, FOR_EVER, NULL, 100, false},
    {"EDQUOT", WORLD_FAULT_ERROR, EDQUOT, WORLD_OP_WRITE | WORLD_OP_ALLOCATE, 1, NULL, 100, false},
    {"EINTR", WORLD_FAULT_ERROR, EINTR, WORLD_OP_READ | WORLD_OP_WRITE | WORLD_OP_OPEN, 1, NULL,
     100, false},
    {"EMFILE", WORLD_FAULT_ERROR, EMFILE, WORLD_OP_OPEN, 1, NULL, 50, false},
    {"short", WORLD_FAULT_SHORT, 0, WORLD_OP_READ | WORLD_OP_WRITE, 1, NULL, 100, false},
    {"torn, EIO", WORLD_FAULT_TORN, EIO, WORLD_OP_WRITE, 1, NULL, 100, false},
    {"torn, ENOSPC", WORLD_FAULT_TORN, ENOSPC, WORLD_OP_WRITE, 1, NULL, 100, false},
    {"slow", WORLD_FAULT_SLOW, 0, WORLD_OP_ALL, 1, NULL, 500, false},
    {"flipped page", WORLD_FAULT_BIT_FLIP, 0, WORLD_OP_READ, 1, ".seg", 20, false},
    {"flipped bit", WORLD_FAULT_BIT_FLIP, 0, WORLD_OP_READ, 1, NULL, 100, true},
};

typedef struct tally {
    uint64_t plans;
    uint64_t hits;
    uint64_t refused;
    uint64_t failed;
} tally;

static uint64_t plans_in_all;

static void report_broken(const stage *at, const char *broken, const char *kind,
                          const world_plan *plan, tally *count)
{
    if (broken == NULL || count->failed++ > 4) {
        return;
    }
    (void)printf("%s: %s: %s at %llu, cut at %lld, seed %llu\n", at->of->name, broken, kind,
                 (unsigned long long)plan->fault_step, (long long)plan->cut_change,
                 (unsigned long long)plan->seed);
    if (crash_ends_at_first()) {
        fail();
    }
}

/* Without a promise of durability: it opens, or says that it is damaged and rebuilds; what it shows
 * is right. */
static const char *check_untrusted(stage *at, model *known)
{
    session open;
    model_limits limits = at->of->limits;
    const char *broken = NULL;
    kvarve_status status;

    for (size_t i = 0; i < known->count; i++) {
        known->states[i] = known->was_put[i] ? ITEM_PERHAPS : ITEM_ABSENT;
    }
    status = session_open(&open, at->world, MODEL_FOLDER, &limits, NULL);
    if (status != KVARVE_OK) {
        if (status != KVARVE_CORRUPT) {
            return "it neither opens nor says that it is damaged";
        }
        limits.flags |= KVARVE_OPEN_REBUILD;
        status = session_open(&open, at->world, MODEL_FOLDER, &limits, NULL);
        if (status == KVARVE_MISS) { /* not a file of it but its lock reached the disk */
            return NULL;
        }
        if (status != KVARVE_OK) {
            return "it does not rebuild";
        }
    }
    for (size_t i = 0; i < known->count && broken == NULL; i++) {
        bool is_found = false;

        if (item_read(&open, &known->items[i], i % 2 == 0, &is_found) == READ_WRONG) {
            broken = "wrong bytes (P1)";
        }
    }
    if (broken == NULL && item_put(&open, &at->of->items[PROBE]).state == KVARVE_PUT_ABORTED) {
        broken = "nothing can be put";
    }
    session_close(&open);
    return broken;
}

/* What a failed sync lost is seen until the host is restarted, and no process can tell. */
static bool may_only_kill(const fault_kind *kind)
{
    return kind->fault != WORLD_FAULT_ERROR ||
           (kind->ops != WORLD_OP_ALL && (kind->ops & OPS_SYNC) == 0);
}

/* A disk that reads wrongly while its index is rebuilt from it leaves out what it does not see. */
static bool keeps_nothing(const stage *at, const fault_kind *kind)
{
    return kind->keeps_nothing ||
           (kind->fault == WORLD_FAULT_BIT_FLIP && at->of->steps[0].kind == STEP_REBUILD);
}

/* One plan. Even seeds kill the process, odd ones cut the power. What came of the plan. */
static world_report run_fault(stage *at, const fault_kind *kind, const world_plan *plan,
                              tally *count)
{
    const world_plan quiet = {
        .fault_step = WORLD_NEVER, .cut_change = WORLD_NEVER, .seed = plan->seed};
    static run_result result;
    world_report report;

    stage_run(at, plan, false, &result);
    report = world_observe(at->world);
    if (plan->seed % 2 == 0 && !report.is_cut && (may_only_kill(kind))) {
        world_kill(at->world);
        world_set_plan(at->world, &quiet);
    } else {
        world_restart(at->world, &quiet);
    }
    if (result.broken == NULL) {
        result.broken = keeps_nothing(at, kind)
                            ? check_untrusted(at, &result.known)
                            : stage_check(at, &result.known, plan->seed, plan->seed % 5 == 0);
    }
    report_broken(at, result.broken, kind->name, plan, count);
    count->plans++;
    count->hits += report.fault_hit;
    count->refused += result.refused;
    return report;
}

static world_plan plan_of(const fault_kind *kind, uint64_t step, uint64_t seed)
{
    return (world_plan){.fault = kind->fault,
                        .fault_errno = kind->error,
                        .fault_ops = kind->ops,
                        .fault_path = kind->path,
                        .fault_count = kind->count,
                        .slow_ns = FAR_NS,
                        .fault_step = step,
                        .cut_change = WORLD_NEVER,
                        .seed = step * 64 + seed};
}

static uint64_t scenario_number(const stage *at)
{
    return (uint64_t)(at->of - scenarios);
}

/* Each step once an effort: the process is killed after one, the power cut after the next, and in
 * the next scenario the other way round. */
static void sweep_kind(stage *at, const fault_kind *kind, tally *count)
{
    bool is_reached = true;

    for (uint64_t step = (uint64_t)(kind - kinds) % crash_stride(); is_reached;
         step += crash_stride()) {
        for (uint64_t seed = 0; seed < crash_effort(); seed++) {
            const uint64_t which = seed + (step + scenario_number(at)) % 2;
            const world_plan plan = plan_of(kind, step, which);

            is_reached = run_fault(at, kind, &plan, count).fault_reached;
        }
    }
}

static void test_store_faults__each_fault_at_every_call(void **state)
{
    tally counts[sizeof kinds / sizeof *kinds] = {0};
    tally all = {0};

    (void)state;
    for (size_t i = 0; i < scenario_count; i++) {
        stage at;

        stage_begin(&at, &scenarios[i]);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            sweep_kind(&at, &kinds[k], &counts[k]);
        }
        stage_end(&at);
    }
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        (void)printf("%s: %llu plans, %llu hits, %llu puts refused\n", kinds[k].name,
                     (unsigned long long)counts[k].plans, (unsigned long long)counts[k].hits,
                     (unsigned long long)counts[k].refused);
        all.plans += counts[k].plans;
        all.failed += counts[k].failed;
    }
    (void)printf("%llu plans\n", (unsigned long long)all.plans);
    plans_in_all += all.plans;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        assert_true(counts[k].hits >= kinds[k].hits_min / crash_stride());
    }
    assert_true(all.plans >= PLANS_MIN / crash_stride());
    assert_int_equal(all.failed, 0);
    assert_int_equal(kvarve_allocated_blocks(), 0);
}

/* KVARVE_CRASH_PLAN="scenario kind step seed": that plan alone. */
static void test_store_faults__one_plan(void **state)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread. */
    const char *text = getenv("KVARVE_CRASH_PLAN");
    char *rest = NULL;
    const fault_kind *kind;
    world_plan plan;
    tally count = {0};
    size_t number;
    uint64_t step;
    stage at;

    (void)state;
    if (text == NULL) {
        skip();
    }
    number = strtoul(text, &rest, 10);
    kind = &kinds[strtoul(rest, &rest, 10) % (sizeof kinds / sizeof *kinds)];
    step = strtoull(rest, &rest, 10);
    plan = plan_of(kind, step, 0);
    plan.seed = strtoull(rest, &rest, 10);
    assert_true(number < scenario_count);
    stage_begin(&at, &scenarios[number]);
    (void)run_fault(&at, kind, &plan, &count);
    stage_end(&at);
    assert_int_equal(count.failed, 0);
}

/* A fault, and a power cut at some changes after it. False: the step was not reached. */
static bool sweep_cuts_after(stage *at, const fault_kind *kind, uint64_t step, tally *count)
{
    bool is_reached = true;
    bool is_cut = true;

    for (uint64_t cut = step % 7; is_cut; cut += 7) {
        world_plan plan = plan_of(kind, step, 2 * cut + 1);
        world_report report;

        plan.cut_change = cut;
        report = run_fault(at, kind, &plan, count);
        is_cut = report.is_cut;
        is_reached = report.fault_reached || is_cut;
    }
    return is_reached;
}

static void test_store_faults__a_fault_and_then_the_power(void **state)
{
    static const fault_kind pairs[] = {
        {"EIO and a cut", WORLD_FAULT_ERROR, EIO,
         WORLD_OP_WRITE | WORLD_OP_SYNC | WORLD_OP_TRUNCATE | WORLD_OP_SYNC_DIRECTORY, 1, NULL, 0,
         false},
        {"ENOSPC and a cut", WORLD_FAULT_ERROR, ENOSPC, WORLD_OP_WRITE | WORLD_OP_ALLOCATE, 1, NULL,
         0, false},
        {"a lost sync and a cut", WORLD_FAULT_LOST_SYNC, 0, WORLD_OP_SYNC | WORLD_OP_SYNC_DIRECTORY,
         1, NULL, 0, true},
        {"lost syncs and a cut", WORLD_FAULT_LOST_SYNC, 0, WORLD_OP_SYNC | WORLD_OP_SYNC_DIRECTORY,
         FOR_EVER, NULL, 0, true},
    };

    (void)state;
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
        tally all = {0};

        for (size_t i = 0; i < scenario_count; i++) {
            stage at;

            stage_begin(&at, &scenarios[i]);
            for (uint64_t step = 0; sweep_cuts_after(&at, &pairs[k], step, &all);
                 step += 3 * crash_stride()) {
            }
            stage_end(&at);
        }
        (void)printf("%s: %llu plans, %llu hits\n", pairs[k].name, (unsigned long long)all.plans,
                     (unsigned long long)all.hits);
        plans_in_all += all.plans;
        assert_true(all.hits > 50 / crash_stride());
        assert_int_equal(all.failed, 0);
    }
    (void)printf("%llu plans in all\n", (unsigned long long)plans_in_all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_faults__each_fault_at_every_call),
        cmocka_unit_test(test_store_faults__a_fault_and_then_the_power),
        cmocka_unit_test(test_store_faults__one_plan),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
