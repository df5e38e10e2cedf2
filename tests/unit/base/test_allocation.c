// SPDX-License-Identifier: Apache-2.0
// Each allocation of a run of work fails once; every run must say -ENOMEM, leak nothing and leave
// its objects usable.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../allocation_sweep.h"
#include "base/buf.h"
#include "base/map.h"
#include "base/option.h"

struct values {
    char *text;
    struct option_list list;
    int64_t number;
};

static const struct option_row rows[] = {
    {"text", "t", "TEXT", OPTION_STRING, offsetof(struct values, text), (size_t)-1, "initial", 0, 0,
     "", "", false},
    {"list", "l", "LIST", OPTION_LIST, offsetof(struct values, list), (size_t)-1, NULL, 0, 0, "",
     "", false},
};
static const struct option_table table = {"test", "", rows, ARRAY_SIZE(rows)};

static void use_buf(void)
{
    struct buf b = BUF_INIT(1 << 20);
    size_t whole = 0;
    for (unsigned i = 0; i < 3000 && !b.error; i++) {
        whole = b.len;
        buf_add_u64(&b, i);
    }
    assert_int_equal(b.error, allocation_failed ? -ENOMEM : 0);
    if (allocation_failed) {
        assert_int_equal(b.len, whole); // nothing half appended
        buf_reset(&b);
    }
    allocation_until_failure = 0;
    buf_add_str(&b, "usable");
    assert_int_equal(b.error, 0);
    buf_deinit(&b);
}

static void use_map(void)
{
    struct map m = MAP_INIT(1000);
    char key[] = "k00";
    int r = 0;
    unsigned added = 0;
    for (unsigned i = 0; i < 60 && r == 0; i++) {
        key[1] = (char)('0' + i / 10);
        key[2] = (char)('0' + i % 10);
        r = map_put(&m, sv_from(key), key, NULL);
        added += r == 0;
    }
    assert_int_equal(r, allocation_failed ? -ENOMEM : 0);
    assert_int_equal(m.count, added);
    assert_null(allocation_failed ? map_find(&m, sv_from(key)) : NULL);
    allocation_until_failure = 0;
    assert_int_equal(map_put(&m, SV("usable"), key, NULL), 0);
    assert_ptr_equal(map_find(&m, SV("usable")), key);
    map_deinit(&m);
}

static void use_option(void)
{
    static char *argv[] = {"test", "-t", "x", "-l=a,b", "-t", "y", "-l", "c"};
    struct values v = {0};
    struct error err = ERROR_INIT;
    int r = option_parse(&table, ARRAY_SIZE(argv), argv, NULL, &v, NULL, &err);
    assert_int_equal(r, allocation_failed ? -ENOMEM : 0);
    if (allocation_failed)
        assert_string_equal(err.text, "out of memory");
    assert_int_equal(v.list.count, allocation_failed ? 0 : 3);
    option_deinit(&table, &v);
}

static void buf_survives_each_failed_allocation(void **state)
{
    assert_int_equal(allocation_sweep(use_buf), 7); // 256 B doubled to 16 KiB
}

static void map_survives_each_failed_allocation(void **state)
{
    assert_int_equal(allocation_sweep(use_map), 60 + 4); // keys, and tables of 16 to 128 slots
}

static void option_survives_each_failed_allocation(void **state)
{
    assert_int_equal(allocation_sweep(use_option),
                     2 + 3 * 2); // two texts; three items and the array for each
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buf_survives_each_failed_allocation),
        cmocka_unit_test(map_survives_each_failed_allocation),
        cmocka_unit_test(option_survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
