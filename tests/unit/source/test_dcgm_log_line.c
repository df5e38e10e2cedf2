// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "source/dcgm_log.h"
#include "source/dcgm_log_line.h"

// Rows of dcgm-exporter's own test of its stdout capture (internal/pkg/stdout) come first.
static const struct {
    const char *line, *level, *text;
} good[] = {
    {"2024-02-07 18:01:05.641 INFO  [517155:517155] Linux 4.15.0-180-generic #189-Ubuntu SMP",
     "INFO", "Linux 4.15.0-180-generic #189-Ubuntu SMP"},
    {"2024-02-29 00:00:00.000 ERROR [1:2]\t[[Core]]  two\t words \r", "ERROR",
     "[[Core]] two words"},
    {"  2024-12-31 23:59:59.999 VERB [1:1] x", "VERB", "x"},
};

static const char *const bad[] = {
    "hello from dcgm",
    "2024-02-07 18:01:05.641",
    "2024-02-07 18:01:05.641 INFO",
    "2024-02-07 18:01:05.641 INFO [1:1]",
    "2024-02-07 18:01:05.641 INFO [1:1]   ",
    "2024-02-07T18:01:05.641 INFO [1:1] x",
    "2024-02-07 18:01:05 INFO [1:1] x",
    "2024-13-07 18:01:05.641 INFO [1:1] x",
    "2024-00-07 18:01:05.641 INFO [1:1] x",
    "2024-02-32 18:01:05.641 INFO [1:1] x",
    "2024-02-07 24:01:05.641 INFO [1:1] x",
    "2024-02-07 18:60:05.641 INFO [1:1] x",
    "2024-02-07 18:01:60.641 INFO [1:1] x",
    "24-02-07 18:01:05.641 INFO [1:1] x",
    "",
    "     ",
};

static void lines_of_dcgm_are_taken_apart(void **state)
{
    char scratch[256];
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        struct dcgm_log_line line;
        assert_true(dcgm_log_line_parse(sv_from(good[i].line), scratch, &line));
        assert_true(sv_equals(line.level, sv_from(good[i].level)));
        assert_true(sv_equals(line.text, sv_from(good[i].text)));
    }
}

static void other_lines_are_left_alone(void **state)
{
    char scratch[256];
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct dcgm_log_line line;
        if (dcgm_log_line_parse(sv_from(bad[i]), scratch, &line))
            fail_msg("taken: %s", bad[i]);
    }
}

static void a_line_cut_anywhere_is_read_no_further(void **state)
{
    struct sv whole = sv_from(good[0].line);
    for (size_t len = 0; len <= whole.len; len++) {
        char *copy = malloc(len + 1), *scratch = malloc(len + 1);
        struct dcgm_log_line line;
        assert_non_null(copy);
        assert_non_null(scratch);
        memcpy(copy, whole.ptr, len);
        (void)dcgm_log_line_parse((struct sv){copy, len}, scratch, &line);
        free(copy);
        free(scratch);
    }
}

static void levels_are_those_of_dcgm(void **state)
{
    static const char *const levels[] = {"NONE", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "VERB"};
    for (size_t i = 0; i < ARRAY_SIZE(levels); i++)
        assert_true(dcgm_log_is_level(levels[i]));
    assert_false(dcgm_log_is_level("info"));
    assert_false(dcgm_log_is_level(""));
    assert_false(dcgm_log_is_level("INFO "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_dcgm_are_taken_apart),
        cmocka_unit_test(other_lines_are_left_alone),
        cmocka_unit_test(a_line_cut_anywhere_is_read_no_further),
        cmocka_unit_test(levels_are_those_of_dcgm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
