// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int saved_stderr = -1;
static int pipe_ends[2];

static int capture(void **state)
{
    saved_stderr = dup(STDERR_FILENO);
    if (pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return -1;
    return dup2(pipe_ends[1], STDERR_FILENO) < 0;
}

static int release(void **state)
{
    (void)dup2(saved_stderr, STDERR_FILENO);
    (void)close(saved_stderr);
    (void)close(pipe_ends[0]);
    (void)close(pipe_ends[1]);
    log_setup(LOG_FORMAT_TEXT, LOG_LEVEL_INFO);
    return 0;
}

// What was written since the last call, at most one read's worth.
static const char *written(void)
{
    static char bytes[16384];
    ssize_t n = read(pipe_ends[0], bytes, sizeof(bytes) - 1);
    bytes[n > 0 ? n : 0] = '\0';
    return bytes;
}

static const char *behind_time(const char *line)
{
    const char *at = strstr(line, "level");
    return at ? at : "";
}

static void text_lines_are_logfmt(void **state)
{
    log_setup(LOG_FORMAT_TEXT, LOG_LEVEL_DEBUG);
    log_info("two words", LOG_STR("s", "plain"), LOG_STR("quoted", "a b=\"c\"\n\x01"),
             LOG_I64("i", -5), LOG_U64("u", UINT64_MAX), LOG_F64("f", 0.5), LOG_BOOL("b", true),
             LOG_SV("v", SV("")), LOG_ERRNO(-ENOENT));
    const char *line = written();
    assert_string_equal(
        behind_time(line),
        "level=INFO msg=\"two words\" s=plain quoted=\"a b=\\\"c\\\"\\n\\x01\" i=-5 "
        "u=18446744073709551615 f=0.5 b=true v=\"\" error=\"No such file or directory\"\n");
}

static void the_time_is_rfc_3339_with_milliseconds(void **state)
{
    log_setup(LOG_FORMAT_TEXT, LOG_LEVEL_DEBUG);
    (void)setenv("TZ", "XXX-5:30", 1);
    tzset();
    log_info("x");
    const char *line = written();
    struct tm tm = {0};
    const char *rest = strptime(line, "time=%Y-%m-%dT%H:%M:%S", &tm);
    assert_non_null(rest);
    assert_int_equal(rest[0], '.');
    assert_int_equal(strspn(rest + 1, "0123456789"), 3);
    assert_memory_equal(rest + 4, "+05:30 level=INFO msg=x\n", 24);
    (void)setenv("TZ", "UTC", 1);
    tzset();
    log_info("x");
    line = written();
    assert_non_null(strstr(line, "Z level="));
}

static void json_lines_are_objects(void **state)
{
    log_setup(LOG_FORMAT_JSON, LOG_LEVEL_DEBUG);
    log_warn("a phrase", LOG_STR("s", "q\"\\\n\x01\x7f\xff"), LOG_I64("i", -5), LOG_F64("f", NAN),
             LOG_BOOL("b", false));
    const char *line = written();
    assert_memory_equal(line, "{\"time\":\"20", 11);
    assert_string_equal(behind_time(line),
                        "level\":\"WARN\",\"msg\":\"a phrase\",\"s\":\"q\\\"\\\\\\n\\u0001"
                        "\\u007f\xef\xbf\xbd\",\"i\":-5,\"f\":\"nan\",\"b\":false}\n");
}

static void lines_below_the_level_are_not_written(void **state)
{
    log_setup(LOG_FORMAT_TEXT, LOG_LEVEL_WARN);
    log_debug("no");
    log_info("no");
    assert_string_equal(written(), "");
    log_error("yes");
    assert_string_equal(behind_time(written()), "level=ERROR msg=yes\n");
}

static void repeats_are_written_once_a_minute(void **state)
{
    log_setup(LOG_FORMAT_TEXT, LOG_LEVEL_DEBUG);
    for (unsigned i = 0; i < 5; i++)
        log_warn("again", LOG_LIMIT("gpu0"), LOG_U64("i", i));
    log_warn("again", LOG_LIMIT("gpu1"), LOG_U64("i", 9));
    const char *lines = written();
    assert_non_null(strstr(lines, "i=0\n"));
    assert_null(strstr(lines, "i=1"));
    assert_null(strstr(lines, "i=4"));
    assert_non_null(strstr(lines, "i=9\n"));
}

static void too_long_lines_are_cut_but_well_formed(void **state)
{
    static char huge[100000];
    memset(huge, 'x', sizeof(huge) - 1);
    log_setup(LOG_FORMAT_JSON, LOG_LEVEL_DEBUG);
    log_info("long", LOG_STR("a", huge), LOG_STR("b", huge), LOG_STR("c", huge), LOG_STR("d", huge),
             LOG_STR("e", huge), LOG_I64("end", 1));
    const char *line = written();
    size_t len = strlen(line);
    assert_true(len <= 4096);
    assert_string_equal(line + len - 10, ",\"end\":1}\n");
    assert_non_null(strstr(line, "xxx...\",\"b\":\"xxx"));
    assert_null(strstr(line, "\"e\":"));
}

static void errno_survives_a_line(void **state)
{
    log_setup(LOG_FORMAT_TEXT, LOG_LEVEL_DEBUG);
    errno = ENOSPC;
    log_info("x");
    assert_int_equal(errno, ENOSPC);
    (void)written();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(text_lines_are_logfmt, capture, release),
        cmocka_unit_test_setup_teardown(the_time_is_rfc_3339_with_milliseconds, capture, release),
        cmocka_unit_test_setup_teardown(json_lines_are_objects, capture, release),
        cmocka_unit_test_setup_teardown(lines_below_the_level_are_not_written, capture, release),
        cmocka_unit_test_setup_teardown(repeats_are_written_once_a_minute, capture, release),
        cmocka_unit_test_setup_teardown(too_long_lines_are_cut_but_well_formed, capture, release),
        cmocka_unit_test_setup_teardown(errno_survives_a_line, capture, release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
