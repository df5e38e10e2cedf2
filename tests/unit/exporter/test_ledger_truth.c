// SPDX-License-Identifier: Apache-2.0
// Busy time against what the simulated node knows to be true, with a driver that cuts percents to
// whole ones, tells late, loses entries and answers NOT_FOUND: over any five minutes, at scrape
// intervals of 1, 15 and 60 s, the growth of a counter is wrong by 1 % of it or of the time at
// most. Energy is the contract's formula to the last microjoule.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "truth_run.h"

#define WINDOW_S 300
#define WINDOW_US (WINDOW_S * 1e6)

struct truth_case {
    const char *name, *scenario;
    const char *const *verbs;
    size_t series; // devices and containers with busy time
};

static double worst_of(const struct truth_series *s, size_t interval_s, size_t *out_at)
{
    double worst = 0;
    for (size_t a = 0; a + WINDOW_S <= RUN_S; a += interval_s) {
        double told = (double)(s->told_us[a + WINDOW_S] - s->told_us[a]);
        double due = s->true_us[a + WINDOW_S] - s->true_us[a];
        if (fabs(told - due) <= worst)
            continue;
        worst = fabs(told - due);
        *out_at = a;
    }
    return worst;
}

static void check_series(const struct truth_case *c, const struct truth_series *s)
{
    static const size_t intervals[] = {1, 15, 60};
    for (size_t i = 0; i < ARRAY_SIZE(intervals); i++) {
        size_t at = 0;
        double worst = worst_of(s, intervals[i], &at);
        double due = s->true_us[at + WINDOW_S] - s->true_us[at];
        double most = 0.01 * (due > WINDOW_US ? due : WINDOW_US);
        if (i == 0)
            print_message("  %-40s %7.2f s true, worst error %6.3f s = %.2f %% of the time\n",
                          s->what, due / 1e6, worst / 1e6, worst / WINDOW_US * 100);
        if (worst > most)
            fail_msg("%s, %s, scraped each %zu s: wrong by %.3f s of %.3f s from second %zu on",
                     c->name, s->what, intervals[i], worst / 1e6, due / 1e6, at);
    }
}

// What had no busy time when the run began has none at its end.
static void check_absent(const struct truth_run *r)
{
    const struct ledger *l = r->ledger;
    size_t count = 0;
    for (size_t i = 0; i < ledger_device_count(l); i++)
        count += ledger_device_at(l, i)->has_busy;
    for (size_t i = 0; i < ledger_account_count(l); i++)
        count += ledger_account_at(l, i)->has_busy;
    assert_int_equal(count, r->series_count);
}

static struct truth_run run;

static int end_run(void **state)
{
    (void)state;
    truth_run_end(&run);
    return 0;
}

static void run_case(void **state)
{
    const struct truth_case *c = *state;
    truth_run_start(&run, c->scenario, c->verbs);
    truth_run_go(&run);
    for (size_t i = 0; i < run.series_count; i++)
        check_series(c, &run.series[i]);
    assert_int_equal(run.series_count, c->series);
    check_absent(&run);
    print_message("  energy: %lu checked, %lu not\n", (unsigned long)run.energies_checked,
                  (unsigned long)run.energies_skipped);
    assert_true(run.energies_checked > 100);
}

// The pods of shared-8 that are not there.
#define NO_8 "pods end render-w2z4q"
#define NO_7 NO_8, "pods end tune-5f4d3c2b9-m6x8j"
#define NO_6 NO_7, "pods end probe-t5r9c"
#define NO_5 NO_6, "pods end nightly-29412345-k7b3n"
#define NO_4 NO_5, "pods end index-h8v2z"
#define NO_3 NO_4, "pods end embed-6b9f8d7c5-q4w7m"
// More than the GPU has: at most times they overlap.
#define CROWD                                                                                      \
    "set gpu0.load=0.9", "set process.7501.load=square:on=20s,off=20s,high=0.8",                   \
        "set process.7502.load=bursts:every=1s,width=200ms,pulses=2,high=0.9",                     \
        "set process.7503.load=0.6"
#define VERBS(...) ((const char *const[]){__VA_ARGS__, NULL})

static const struct truth_case cases[] = {
    {"exclusive", "wave", NULL, 4},
    {"exclusive, samples 0.5 s late", "wave",
     VERBS("set gpu0.samples_lag_ms=500", "set gpu1.samples_lag_ms=500"), 4},
    {"exclusive, samples 1 s late", "wave",
     VERBS("set gpu0.samples_lag_ms=1000", "set gpu1.samples_lag_ms=1000"), 4},
    {"exclusive, every 10th lost", "wave",
     VERBS("set gpu0.samples_lost=10", "set gpu1.samples_lost=10"), 4},
    {"exclusive, every 30th lost", "wave",
     VERBS("set gpu0.samples_lost=30", "set gpu1.samples_lost=30"), 4},
    {"2 sharers", "shared-8", VERBS(NO_3), 3},
    {"3 sharers", "shared-8", VERBS(NO_4), 4},
    {"4 sharers", "shared-8", VERBS(NO_5), 5},
    {"5 sharers", "shared-8", VERBS(NO_6), 6},
    {"6 sharers", "shared-8", VERBS(NO_7), 7},
    {"7 sharers", "shared-8", VERBS(NO_8), 8},
    {"8 sharers", "shared-8", NULL, 9},
    {"8 sharers, more than the GPU has", "shared-8", VERBS(CROWD), 9},
    {"8 sharers, samples 1 s late", "shared-8", VERBS("set gpu0.samples_lag_ms=1000"), 9},
    {"8 sharers, shares 0.5 s late", "shared-8", VERBS("set driver.process_lag_ms=500"), 9},
    {"8 sharers, shares 1 s late", "shared-8", VERBS("set driver.process_lag_ms=1000"), 9},
    {"8 sharers, both 1 s late", "shared-8",
     VERBS("set gpu0.samples_lag_ms=1000", "set driver.process_lag_ms=1000"), 9},
    {"8 sharers, every 10th lost", "shared-8", VERBS("set gpu0.samples_lost=10"), 9},
    {"8 sharers, every 30th lost", "shared-8", VERBS("set gpu0.samples_lost=30"), 9},
    {"8 sharers, samples 0.5 s and shares 1 s late, every 10th lost", "shared-8",
     VERBS("set gpu0.samples_lag_ms=500", "set driver.process_lag_ms=1000",
           "set gpu0.samples_lost=10"),
     9},
    {"2 sharers, more than the GPU has, both 1 s late, every 10th lost", "shared-8",
     VERBS(NO_3, "set gpu0.load=0.7", "set process.7501.load=0.5",
           "set process.7502.load=square:on=5s,off=5s,high=0.6", "set gpu0.samples_lag_ms=1000",
           "set driver.process_lag_ms=1000", "set gpu0.samples_lost=10"),
     3},
    {"MPS, clients listed", "mps", NULL, 4},
    {"undeclared", "undeclared", NULL, 5},
    {"MIG with GPM", "mig-gpm", NULL, 12},
    // Nobody knows whose it is: the GPU alone has busy time.
    {"MPS, the server alone is listed", "mps-hidden", NULL, 1},
    // Of the A100 that is cut nobody knows anything.
    {"MIG without GPM", "mig-a100", NULL, 2},
};

int main(void)
{
    struct CMUnitTest tests[ARRAY_SIZE(cases)] = {0};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        tests[i] = (struct CMUnitTest){.name = cases[i].name,
                                       .test_func = run_case,
                                       .teardown_func = end_run,
                                       .initial_state = (void *)&cases[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
