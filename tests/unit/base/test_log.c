// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
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
             LOG_I64("i", -5), LOG_U64("u", UINT64_MAX), LOG_BOOL("b", true), LOG_SV("v", SV("")),
             LOG_ERRNO(-ENOENT));
    const char *line = written();
    assert_string_equal(
        behind_time(line),
        "level=INFO msg=\"two words\" s=plain quoted=\"a b=\\\"c\\\"\\n\\x01\" i=-5 "
        "u=18446744073709551615 b=true v=\"\" error=\"No such file or directory\"\n");
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
    log_warn("a phrase", LOG_STR("s", "q\"\\\n\x01\x7f\xff"), LOG_I64("i", -5),
             LOG_BOOL("b", false));
    const char *line = written();
    assert_memory_equal(line, "{\"time\":\"20", 11);
    assert_string_equal(behind_time(line),
                        "level\":\"WARN\",\"msg\":\"a phrase\",\"s\":\"q\\\"\\\\\\n\\u0001"
                        "\\u007f\xef\xbf\xbd\",\"i\":-5,\"b\":false}\n");
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

static size_t lines_of(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static void a_phrase_is_written_so_often_and_no_more(void **state)
{
    log_setup(LOG_FORMAT_TEXT, LOG_LEVEL_DEBUG);
    size_t lines = 0;
    for (unsigned i = 0; i < 1000; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "k%u", i);
        if (i % 2)
            log_warn("flood", LOG_U64("i", i));
        else
            log_warn("flood", LOG_LIMIT(key)); // another key each time does not help
        lines += lines_of(written());
    }
    assert_int_equal(lines, 200);
    log_warn("another phrase");
    assert_int_equal(lines_of(written()), 1);
    for (unsigned i = 0; i < 300; i++) {
        log_debug("asked for");
        lines += lines_of(written());
    }
    assert_int_equal(lines, 500);
}

static void nobody_waits_for_a_reader_that_does_not_read(void **state)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0); // writes to it would block
    assert_true(fcntl(ends[1], F_SETPIPE_SZ, 4096) > 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    log_setup(LOG_FORMAT_TEXT, LOG_LEVEL_DEBUG);
    for (unsigned i = 0; i < 500; i++)
        log_debug("line", LOG_U64("i", i));
    // Others share the description: it stays as it was.
    assert_int_equal(fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK, 0);
    char text[8192];
    ssize_t n = read(ends[0], text, sizeof(text) - 1);
    assert_true(n > 0 && text[n - 1] == '\n');
    text[n] = '\0';
    size_t taken = lines_of(text);
    assert_in_range(taken, 1, 499);
    log_debug("again");
    n = read(ends[0], text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    char expected[64];
    (void)snprintf(expected, sizeof(expected), "level=DEBUG msg=again unwritten=%zu\n",
                   500 - taken);
    assert_string_equal(behind_time(text), expected);
    log_debug("told");
    n = read(ends[0], text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    assert_string_equal(behind_time(text), "level=DEBUG msg=told\n");
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void a_socket_that_takes_no_more_holds_nobody_up(void **state)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    log_setup(LOG_FORMAT_TEXT, LOG_LEVEL_DEBUG);
    for (unsigned i = 0; i < 10000; i++)
        log_debug("line", LOG_U64("i", i));
    (void)close(ends[0]);
    log_debug("nobody is there"); // no SIGPIPE
    (void)close(ends[1]);
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
        cmocka_unit_test_setup_teardown(a_phrase_is_written_so_often_and_no_more, capture, release),
        cmocka_unit_test_setup_teardown(nobody_waits_for_a_reader_that_does_not_read, capture,
                                        release),
        cmocka_unit_test_setup_teardown(a_socket_that_takes_no_more_holds_nobody_up, capture,
                                        release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
