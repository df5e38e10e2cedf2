// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "burn/shape.h"

#define S NS_PER_S

static struct burn_shape shape(const char *text)
{
    struct burn_shape s = {0};
    struct error err = ERROR_INIT;
    if (burn_shape_parse(sv_from(text), &s, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    return s;
}

static void duty_and_integral_are_those_of_the_formula(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t t_ns, busy_ns;
        uint32_t duty_ppm;
    } cases[] = {
        {"constant", 0, 0, 1000000},
        {"constant", 90 * S, 90 * S, 1000000},
        {"constant:high=0.25", 8 * S, 2 * S, 250000},
        {"constant:high=0", 8 * S, 0, 0},
        {"square:on=20s,off=20s", 0, 0, 1000000},
        {"square:on=20s,off=20s", 20 * S - 1, 20 * S - 1, 1000000},
        {"square:on=20s,off=20s", 20 * S, 20 * S, 0},
        {"square:on=20s,off=20s", 40 * S - 1, 20 * S, 0},
        {"square:on=20s,off=20s", 40 * S, 20 * S, 1000000},
        {"square:on=20s,off=20s", 400 * S, 200 * S, 1000000},
        {"square:on=20s,off=20s", 31536000 * S + 1, 15768000 * S + 1, 1000000},
        {"square:on=1s,off=3s,high=0.75,low=25%", 5 * S, 2250000000, 250000},
        {"sine:period=60s", 0, 0, 0},
        {"sine:period=60s", 15 * S, 2725351707, 500000},
        {"sine:period=60s", 30 * S, 15 * S, 1000000},
        {"sine:period=60s", 60 * S, 30 * S, 0},
        {"sine:period=60s", 6000 * S, 3000 * S, 0},
        {"sine:period=60s,low=0.2,high=0.6", 30 * S, 12 * S, 600000},
        {"ramp:period=60s", 0, 0, 0},
        {"ramp:period=60s", 30 * S, 7500000000, 500000},
        {"ramp:period=60s", 60 * S, 30 * S, 0},
        {"ramp:period=10s,low=0.5", 9 * S, 4500000000 + 2025000000, 950000},
        {"steps:every=10s,levels=0/0.5/1", 9 * S, 0, 0},
        {"steps:every=10s,levels=0/0.5/1", 10 * S, 0, 500000},
        {"steps:every=10s,levels=0/0.5/1", 25 * S, 10 * S, 1000000},
        {"steps:every=10s,levels=0/0.5/1", 3005 * S, 1500 * S, 0},
        {"steps:every=10s,levels=0.7", 3005 * S, 2103500000000, 700000},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct burn_shape s = shape(cases[i].text);
        uint64_t slack = s.kind == BURN_SINE ? 1000 : 0;
        uint64_t busy_ns = burn_shape_busy_ns(&s, cases[i].t_ns);
        if (burn_shape_duty_ppm(&s, cases[i].t_ns) != cases[i].duty_ppm ||
            busy_ns + slack < cases[i].busy_ns || busy_ns > cases[i].busy_ns + slack)
            fail_msg("%s at %llu: duty %u busy %llu", cases[i].text,
                     (unsigned long long)cases[i].t_ns, burn_shape_duty_ppm(&s, cases[i].t_ns),
                     (unsigned long long)busy_ns);
    }
}

static void the_integral_is_the_sum_of_the_duty(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "square:on=70ms,off=130ms,high=0.9,low=0.1",
        "sine:period=3s,low=0.05",
        "ramp:period=1.7s,high=0.9",
        "steps:every=0.3,levels=0.1/0.9/0.4",
        "random:every=250ms,seed=7",
    };
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct burn_shape s = shape(texts[i]);
        double sum = 0;
        for (uint64_t ms = 0; ms < 10000; ms++)
            for (uint64_t tenth = 0; tenth < 10; tenth++)
                sum += burn_shape_duty_ppm(&s, ms * NS_PER_MS + tenth * 100000 + 50000) * 0.1;
        double busy = (double)burn_shape_busy_ns(&s, 10 * S);
        assert_true(busy > sum - 100000 && busy < sum + 100000);
    }
}

static void edges_are_where_the_duty_jumps_or_a_period_ends(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t t_ns, edge_ns;
    } cases[] = {
        {"constant", 5 * S, UINT64_MAX},
        {"square:on=20s,off=10s", 0, 20 * S},
        {"square:on=20s,off=10s", 20 * S - 1, 20 * S},
        {"square:on=20s,off=10s", 20 * S, 30 * S},
        {"square:on=20s,off=10s", 30 * S, 50 * S},
        {"sine:period=60s", 61 * S, 120 * S},
        {"ramp:period=60s", 59 * S, 60 * S},
        {"steps:every=10s,levels=0/1", 10 * S, 20 * S},
        {"random:every=10s,seed=1", 19 * S, 20 * S},
        {"random:every=10s,seed=1", UINT64_MAX - 1, UINT64_MAX},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct burn_shape s = shape(cases[i].text);
        assert_int_equal(burn_shape_edge_ns(&s, cases[i].t_ns), cases[i].edge_ns);
    }
}

static void a_random_shape_is_its_seed_s(void **state)
{
    (void)state;
    struct burn_shape a = shape("random:every=1s,seed=1,low=0.25,high=0.75");
    struct burn_shape b = shape("random:every=1s,seed=2,low=0.25,high=0.75");
    uint64_t differ = 0, round = (uint64_t)BURN_RANDOM_STEPS * S;
    for (uint64_t t = 0; t < 1000; t++) {
        uint32_t level = burn_shape_duty_ppm(&a, t * S);
        assert_in_range(level, 250000, 750000);
        assert_int_equal(level, burn_shape_duty_ppm(&a, t * S + S - 1));
        assert_int_equal(level, burn_shape_duty_ppm(&a, t * S + round));
        differ += level != burn_shape_duty_ppm(&b, t * S);
    }
    assert_true(differ > 990);
    assert_in_range(burn_shape_busy_ns(&a, round), round / 100 * 49, round / 100 * 51);
    assert_in_range(burn_shape_busy_ns(&a, 3 * round) - 3 * burn_shape_busy_ns(&a, round), 0, 2);
}

static void a_period_is_what_starts_anew(void **state)
{
    (void)state;
    struct burn_shape s = shape("steps:every=10s,levels=0/0.5/1");
    assert_int_equal(burn_shape_period_ns(&s), 30 * S);
    s = shape("square:on=20s,off=10s");
    assert_int_equal(burn_shape_period_ns(&s), 30 * S);
    s = shape("constant");
    assert_int_equal(burn_shape_period_ns(&s), 0);
}

static void on_is_above_low(void **state)
{
    (void)state;
    struct burn_shape s = shape("square:on=1,off=1,low=0.5");
    assert_true(burn_shape_is_on(&s, 0));
    assert_false(burn_shape_is_on(&s, S));
    s = shape("constant");
    assert_true(burn_shape_is_on(&s, 0));
    s = shape("constant:high=0");
    assert_false(burn_shape_is_on(&s, 0));
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "unknown shape ''"},
        {"squar:on=1,off=1", "unknown shape 'squar' (did you mean 'square'?)"},
        {"square", "shape square needs on: expected square:on=LENGTH,off=LENGTH"},
        {"square:on=1", "shape square needs off"},
        {"square:on=1,off=1,on=2", "on is given twice"},
        {"square:on=1,oof=1", "no key 'oof' (did you mean 'off'?)"},
        {"square:on=1,off=1,seed=4", "no key 'seed'"},
        {"square:on=,off=1", "on: expected a length"},
        {"square:on=0,off=1", "on: expected a length from 1ms"},
        {"square:on=745h,off=1", "on: expected a length"},
        {"square:on=-1s,off=1", "on: expected a length"},
        {"square:on=1e99,off=1", "on: expected a length"},
        {"square:on=1x,off=1", "found '1x'"},
        {"square:on=1,off=1,high=1.01", "high: expected a share from 0 to 1"},
        {"square:on=1,off=1,high=101%", "high: expected a share"},
        {"square:on=1,off=1,high=0.2,low=0.2", "low (0.2) must be below high (0.2)"},
        {"sine:period=nan", "period: expected a length"},
        {"steps:every=1", "needs levels"},
        {"steps:every=1,levels=", "levels: expected 1 to 64 shares"},
        {"steps:every=1,levels=0/", "levels: expected"},
        {"steps:every=1,levels=0//1", "levels: expected"},
        {"random:every=1,seed=x", "seed: expected a whole number, found 'x'"},
        {"random:every=1,seed=18446744073709551616", "seed: expected a whole number"},
        {"constant:low=0", "no key 'low'"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct burn_shape s = {.period_ns = 77};
        struct error err = ERROR_INIT;
        assert_int_equal(burn_shape_parse(sv_from(cases[i].text), &s, &err), -EINVAL);
        if (!strstr(err.text, cases[i].says))
            fail_msg("'%s' says: %s", cases[i].text, err.text);
        assert_int_equal(s.period_ns, 77);
    }
}

static void there_are_at_most_64_levels(void **state)
{
    (void)state;
    char text[512] = "steps:every=1s,levels=0";
    struct burn_shape s;
    for (int i = 1; i < BURN_LEVELS_MAX; i++)
        memcpy(text + strlen(text), "/1", 3);
    assert_int_equal(shape(text).level_count, BURN_LEVELS_MAX);
    memcpy(text + strlen(text), "/1", 3);
    assert_int_equal(burn_shape_parse(sv_from(text), &s, NULL), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(duty_and_integral_are_those_of_the_formula),
        cmocka_unit_test(the_integral_is_the_sum_of_the_duty),
        cmocka_unit_test(edges_are_where_the_duty_jumps_or_a_period_ends),
        cmocka_unit_test(a_random_shape_is_its_seed_s),
        cmocka_unit_test(a_period_is_what_starts_anew),
        cmocka_unit_test(on_is_above_low),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(there_are_at_most_64_levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
