// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "exporter/source_blame.h"

#define NONE UINT32_MAX

static struct source_blame blame;

static int setup(void **state)
{
    blame = (struct source_blame){0};
    return 0;
}

static enum source_verdict note(const char *call, uint32_t index)
{
    return source_blame_note(&blame, call, index, NS_PER_S);
}

static void assert_avoided(uint32_t count, const char *const *texts)
{
    char text[SOURCE_BLAME_TEXT];
    assert_int_equal(source_blame_avoided(&blame), count);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(source_blame_text(&blame, i, text));
        assert_string_equal(text, texts[i]);
    }
    assert_false(source_blame_text(&blame, count, text));
}

static void once_is_chance_twice_is_avoided_on_that_gpu(void **state)
{
    assert_int_equal(note("nvmlA", 3), SOURCE_VERDICT_NONE);
    assert_int_equal(note("nvmlA", 2), SOURCE_VERDICT_NONE);
    assert_int_equal(note("nvmlB", 3), SOURCE_VERDICT_NONE);
    assert_avoided(0, NULL);
    assert_int_equal(note("nvmlA", 3), SOURCE_VERDICT_AVOID);
    assert_avoided(1, (const char *const[]){"nvmlA@3"});
}

static void on_two_gpus_it_is_the_function(void **state)
{
    for (uint32_t i = 0; i < 2; i++)
        (void)note("nvmlA", 3);
    assert_int_equal(note("nvmlA", 5), SOURCE_VERDICT_NONE);
    assert_int_equal(note("nvmlA", 5), SOURCE_VERDICT_AVOID);
    assert_avoided(2, (const char *const[]){"nvmlA@3", "nvmlA"});
}

static void two_functions_on_one_gpu_are_the_gpu(void **state)
{
    for (uint32_t i = 0; i < 2; i++)
        (void)note("nvmlA", 3);
    assert_int_equal(note("nvmlB", 3), SOURCE_VERDICT_NONE);
    assert_int_equal(note("nvmlB", 3), SOURCE_VERDICT_SKIP_GPU);
    assert_avoided(1, (const char *const[]){"nvmlA@3"});
}

static void without_some_nothing_goes(void **state)
{
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(note("nvmlInitWithFlags", NONE), SOURCE_VERDICT_NONE);
    assert_int_equal(note("nvmlDeviceGetHandleByIndex", 1), SOURCE_VERDICT_NONE);
    assert_int_equal(note("nvmlDeviceGetHandleByIndex", 1), SOURCE_VERDICT_SKIP_GPU);
    assert_avoided(0, NULL);
}

static void one_that_asks_no_gpu_is_avoided_everywhere(void **state)
{
    (void)note("nvmlEventSetWait_v2", NONE);
    assert_int_equal(note("nvmlEventSetWait_v2", NONE), SOURCE_VERDICT_AVOID);
    assert_int_equal(note("nvmlEventSetWait_v2", NONE), SOURCE_VERDICT_NONE); // it is already
    assert_avoided(1, (const char *const[]){"nvmlEventSetWait_v2"});
}

static void an_hour_later_it_is_forgotten(void **state)
{
    for (uint32_t i = 0; i < 2; i++)
        (void)note("nvmlA", 3);
    source_blame_expire(&blame, NS_PER_S + SOURCE_BLAME_NS - 1);
    assert_int_equal(source_blame_avoided(&blame), 1);
    source_blame_expire(&blame, NS_PER_S + SOURCE_BLAME_NS);
    assert_int_equal(source_blame_avoided(&blame), 0);
    assert_int_equal(source_blame_note(&blame, "nvmlA", 3, 9 * SOURCE_BLAME_NS),
                     SOURCE_VERDICT_NONE);
}

static void the_list_has_an_end(void **state)
{
    char name[32];
    for (uint32_t i = 0; i < 3 * SOURCE_BLAME_MAX; i++) {
        (void)snprintf(name, sizeof(name), "nvml%u", i);
        (void)note(name, NONE);
        assert_int_equal(note(name, NONE), SOURCE_VERDICT_AVOID);
    }
    assert_int_equal(source_blame_avoided(&blame), SOURCE_BLAME_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(once_is_chance_twice_is_avoided_on_that_gpu, setup),
        cmocka_unit_test_setup(on_two_gpus_it_is_the_function, setup),
        cmocka_unit_test_setup(two_functions_on_one_gpu_are_the_gpu, setup),
        cmocka_unit_test_setup(without_some_nothing_goes, setup),
        cmocka_unit_test_setup(one_that_asks_no_gpu_is_avoided_everywhere, setup),
        cmocka_unit_test_setup(an_hour_later_it_is_forgotten, setup),
        cmocka_unit_test_setup(the_list_has_an_end, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
