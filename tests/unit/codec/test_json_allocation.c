// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../allocation_sweep.h"
#include "codec/json.h"

static void use_json(void)
{
    // One key fills jansson's first buffer to the last byte.
    static const char text[] = "{\"a\": [1, 2.5, {\"b\": \"two\"}], \"SecretAccessKey\": \"s\"}";
    struct json_document *d = NULL;
    struct error err = ERROR_INIT;
    int r = json_parse(SV(text), "f", &d, &err);
    assert_int_equal(r, allocation_failed ? -ENOMEM : 0);
    if (r < 0) {
        assert_null(d);
        assert_string_equal(err.text, "out of memory");
        return;
    }
    assert_int_equal(json_root(d)->count, 2);
    assert_non_null(json_find(json_root(d), "SecretAccessKey"));
    json_document_free(d);
}

static void json_survives_each_failed_allocation(void **state)
{
    assert_true(allocation_sweep(use_json) > 15); // jansson's own are among them
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
