// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../allocation_sweep.h"
#include "burn/options.h"

static void read_a_line(void)
{
    char *argv[] = {"podgpu-burn", "-m50%", "-i1",         "-tc", "--on", "1",
                    "--off",       "2",     "--listen=:0", "20",  NULL};
    struct burn_options o, empty = {0};
    struct error err = ERROR_INIT;
    int r = burn_options_parse(ARRAY_SIZE(argv) - 1, argv, NULL, &o, &err);
    if (r == 0) {
        assert_int_equal(o.memory_percent, 50);
        burn_options_deinit(&o);
    } else {
        assert_int_equal(r, -ENOMEM);
        assert_string_equal(err.text, "out of memory");
    }
    assert_memory_equal(&o, &empty, sizeof(o));
}

static void a_failed_allocation_is_out_of_memory_and_leaves_nothing(void **state)
{
    (void)state;
    assert_in_range(allocation_sweep(read_a_line), 15, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_allocation_is_out_of_memory_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
