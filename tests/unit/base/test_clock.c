// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/macros.h"

static void waits_double_up_to_the_most(void **state)
{
    (void)state;
    static const struct {
        unsigned attempt;
        uint64_t least_ns, most_ns, wait_ns;
    } cases[] = {
        {0, 1, 60, 1},  {1, 1, 60, 2},   {5, 1, 60, 32},  {6, 1, 60, 60},
        {7, 1, 60, 60}, {0, 15, 10, 10}, {3, 0, 60, 0},   {UINT32_MAX, 1, 60, 60},
        {2, 9, 36, 36}, {2, 9, 35, 35},  {0, 60, 60, 60}, {UINT32_MAX, 1, UINT64_MAX, UINT64_MAX},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_true(clock_backoff_ns(cases[i].attempt, cases[i].least_ns, cases[i].most_ns) ==
                    cases[i].wait_ns);
}

static void jitter_takes_each_value_up_to_the_most(void **state)
{
    (void)state;
    unsigned seen[4] = {0};
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t t = clock_jitter_ns(3);
        assert_true(t <= 3);
        seen[t]++;
    }
    for (size_t i = 0; i < ARRAY_SIZE(seen); i++)
        assert_true(seen[i] > 0); // one that is missing: 1 in 10^124
    assert_int_equal(clock_jitter_ns(0), 0);
    (void)clock_jitter_ns(UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_double_up_to_the_most),
        cmocka_unit_test(jitter_takes_each_value_up_to_the_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
