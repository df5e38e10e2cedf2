// SPDX-License-Identifier: Apache-2.0
#include "metrics/parse.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../allocation_sweep.h"
#include "base/buf.h"

#define FAMILIES 200

static struct buf page = BUF_INIT(1u << 20);

static void read_page(void)
{
    struct parser p;
    struct parse_sample s;
    struct error err = ERROR_INIT;
    unsigned samples = 0;
    int r;
    parser_init(&p, buf_sv(&page), PARSE_PROMETHEUS);
    while ((r = parser_next(&p, &s, &err)) > 0)
        samples++;
    if (allocation_failed) {
        assert_int_equal(r, -ENOMEM);
        assert_string_equal(err.text, "out of memory");
        r = parser_next(&p, &s, NULL); // the failed line is still to be read
        assert_int_equal(r, 1);
        assert_int_equal(s.type, PARSE_TYPE_GAUGE);
    } else {
        assert_int_equal(r, 0);
        assert_int_equal(samples, 5 * FAMILIES);
    }
    parser_deinit(&p);
}

static void memory_is_taken_for_families_alone_and_may_fail(void **state)
{
    for (unsigned i = 0; i < FAMILIES; i++) {
        buf_add_fmt(&page, "# TYPE m%u gauge\n", i);
        for (unsigned n = 0; n < 5; n++)
            buf_add_fmt(&page, "m%u{n=\"%u\",e=\"\\n\"} 0.1\n", i, n);
    }
    assert_int_equal(page.error, 0);
    // Table and array, for 64, 128 and 256 families.
    assert_int_equal(allocation_sweep(read_page), 6);
    buf_deinit(&page);
}

static void labels_with_escapes_need_memory_that_may_fail(void **state)
{
    struct buf scratch = BUF_INIT(1000);
    struct sv rest = SV("a=\"\\n\""), name, value;
    allocation_until_failure = 1;
    assert_int_equal(parse_next_label(&rest, &scratch, &name, &value), -ENOMEM);
    assert_int_equal(parse_unescape(SV("x"), &scratch, &value), 0);
    allocation_until_failure = 1;
    assert_int_equal(parse_unescape(SV("\\n"), &scratch, &value), -ENOMEM);
    allocation_until_failure = 0;
    assert_int_equal(parse_unescape(SV("\\n"), &scratch, &value), 0);
    assert_true(sv_equals(value, SV("\n")));
    buf_deinit(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_taken_for_families_alone_and_may_fail),
        cmocka_unit_test(labels_with_escapes_need_memory_that_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
