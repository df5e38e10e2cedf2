// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "codec/base64.h"

// RFC 4648, section 10, and what is no base64 of section 4.
static const struct {
    const char *in, *out; // out NULL: refused
} cases[] = {
    {"", ""},
    {"Zg==", "f"},
    {"Zm8=", "fo"},
    {"Zm9v", "foo"},
    {"Zm9vYg==", "foob"},
    {"Zm9vYmE=", "fooba"},
    {"Zm9vYmFy", "foobar"},
    {"++//", "\xfb\xef\xff"},
    {"Zg=", NULL},
    {"Zg", NULL},
    {"Zg===", NULL},
    {"Z===", NULL},
    {"Zm9v\n", NULL},
    {"Pz8_", NULL},
    {"=Zm9", NULL},
    {"Z=9v", NULL},
};

static void base64_is_read_strictly(void **state)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char out[16];
        size_t length = 99;
        int r = base64_decode(sv_from(cases[i].in), out, sizeof(out), &length);
        assert_int_equal(r, cases[i].out ? 0 : -EINVAL);
        if (cases[i].out) {
            assert_int_equal(length, strlen(cases[i].out));
            assert_memory_equal(out, cases[i].out, length);
        }
    }
}

static void what_does_not_fit_is_refused(void **state)
{
    char out[6];
    size_t length;
    assert_int_equal(base64_decode(SV("Zm9vYmFy"), out, 6, &length), 0);
    assert_int_equal(base64_decode(SV("Zm9vYmFy"), out, 5, &length), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base64_is_read_strictly),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
