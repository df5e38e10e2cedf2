// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../allocation_sweep.h"
#include "codec/gzip.h"
#include "codec/yaml.h"

static void use_yaml(void)
{
    static const char text[] = "a: &x [1, {b: 'two'}]\nc: *x\nd: |\n  text\ne: &y 5\n";
    struct yaml_document *d = NULL;
    struct error err = ERROR_INIT;
    int r = yaml_parse(SV(text), "f", &d, &err);
    assert_int_equal(r, allocation_failed ? -ENOMEM : 0);
    if (r < 0) {
        assert_null(d);
        assert_string_equal(err.text, "out of memory");
        return;
    }
    assert_int_equal(yaml_root(d)->count, 4);
    yaml_document_free(d);
}

static void use_gzip(void)
{
    char *data = NULL;
    size_t bytes = 0;
    int r = gzip_compress(SV("some text some text some text"), &data, &bytes);
    // The last allocation only gives back what is too much.
    assert_true(r == 0 || (r == -ENOMEM && allocation_failed && !data));
    free(data);
}

static void yaml_survives_each_failed_allocation(void **state)
{
    assert_true(allocation_sweep(use_yaml) > 20); // libyaml's own are among them
}

static void gzip_survives_each_failed_allocation(void **state)
{
    assert_int_equal(allocation_sweep(use_gzip), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(yaml_survives_each_failed_allocation),
        cmocka_unit_test(gzip_survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
