// SPDX-License-Identifier: Apache-2.0
// Each allocation of the counters file, a device selection and a frame reader fails once: -ENOMEM,
// nothing leaked (the sanitizers look), nothing half done.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../allocation_sweep.h"
#include "exporter/counters.h"
#include "gpu/frame.h"
#include "gpu/selection.h"

static void parse_counters(void)
{
    struct counter_list l = {0};
    struct error err = ERROR_INIT;
    int rc =
        counters_parse(SV("dcgm_gpu_temp,gauge,a\ndcgm_fb_used,gauge,b\ndcgm_gpu_temp,gauge,c\n"
                          "DCGM_FI_DRIVER_VERSION,label,d\n"),
                       "c.csv", &l, &err);
    assert_int_equal(rc, allocation_failed ? -ENOMEM : 0);
    assert_int_equal(l.count, allocation_failed ? 0 : 3);
    if (allocation_failed)
        assert_string_equal(err.text, "out of memory");
    counter_list_deinit(&l);
}

static void add_counter(void)
{
    struct counter_list l = {0};
    struct error err = ERROR_INIT;
    const struct counter_row row = {SV("dcgm_gpu_temp"), SV("gauge"), SV("a"), "c.yaml", 1};
    int rc = counters_add(&l, &row, &err);
    assert_int_equal(rc, allocation_failed ? -ENOMEM : 0);
    assert_int_equal(l.count, !allocation_failed);
    counter_list_deinit(&l);
}

static void parse_selection(void)
{
    struct selection s = {0};
    struct error err = ERROR_INIT;
    int rc = selection_parse(SV("g:0-40+i:3"), &s, &err);
    assert_int_equal(rc, allocation_failed ? -ENOMEM : 0);
    assert_int_equal(s.gpu_count, allocation_failed ? 0 : 41);
    selection_deinit(&s);
}

static void read_frame(void)
{
    struct frame_reader r;
    char *space;
    size_t room;
    frame_reader_init(&r);
    int rc = frame_reader_space(&r, &space, &room);
    assert_int_equal(rc, allocation_failed ? -ENOMEM : 0);
    frame_reader_deinit(&r);
}

static void a_failed_allocation_is_told_and_leaves_nothing(void **state)
{
    (void)state;
    assert_int_equal(allocation_sweep(parse_counters),
                     3 * 3 + 3); // three texts a row; room for 1, 2, 4
    assert_int_equal(allocation_sweep(add_counter), 3 + 1);
    assert_int_equal(allocation_sweep(parse_selection), 3 + 1); // 16, 32, 64; 16
    assert_int_equal(allocation_sweep(read_frame), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_allocation_is_told_and_leaves_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
