// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

#include <errno.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void setting_returns_the_code(void **state)
{
    struct error err = ERROR_INIT;
    assert_int_equal(error_set(&err, -EINVAL, "bad %d", 7), -EINVAL);
    assert_int_equal(err.code, -EINVAL);
    assert_string_equal(err.text, "bad 7");
    assert_int_equal(error_set(NULL, -ENOENT, "x"), -ENOENT);
    assert_int_equal(error_set_at(NULL, -ENOENT, "f", 1, 2, "x"), -ENOENT);
}

static void text_has_what_is_known_of_the_position(void **state)
{
    struct error err = ERROR_INIT;
    char out[900];
    (void)error_set(&err, -1, "bad");
    assert_string_equal(error_text(&err, out, sizeof(out)), "bad");
    (void)error_set_at(&err, -1, "a.yaml", 3, 9, "bad");
    assert_string_equal(error_text(&err, out, sizeof(out)), "a.yaml:3:9: bad");
    (void)error_set_at(&err, -1, "a.yaml", 3, 0, "bad");
    assert_string_equal(error_text(&err, out, sizeof(out)), "a.yaml:3: bad");
    (void)error_set_at(&err, -1, "a.yaml", 0, 0, "bad");
    assert_string_equal(error_text(&err, out, sizeof(out)), "a.yaml: bad");
    (void)error_set_at(&err, -1, NULL, 3, 9, "bad");
    assert_string_equal(error_text(&err, out, sizeof(out)), "3:9: bad");
    // Setting it anew forgets the old position.
    (void)error_set(&err, -1, "other");
    assert_string_equal(error_text(&err, out, sizeof(out)), "other");
}

static void text_is_bounded_and_one_line(void **state)
{
    struct error err = ERROR_INIT;
    char huge[2000];
    memset(huge, 'x', sizeof(huge) - 1);
    huge[sizeof(huge) - 1] = '\0';
    (void)error_set_at(&err, -1, huge, 1, 1, "%s", huge);
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
    assert_int_equal(strlen(err.file), sizeof(err.file) - 1);
    (void)error_set(&err, -1, "a\nb\x1b[0m");
    assert_string_equal(err.text, "a b [0m");
    char small[8];
    (void)error_set_at(&err, -1, "file.csv", 1, 1, "text");
    assert_string_equal(error_text(&err, small, sizeof(small)), "file.cs");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(setting_returns_the_code),
        cmocka_unit_test(text_has_what_is_known_of_the_position),
        cmocka_unit_test(text_is_bounded_and_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
