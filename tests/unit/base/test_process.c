// SPDX-License-Identifier: Apache-2.0
#include "base/process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

// The exit status of f in a child.
static int in_child(int (*f)(void))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(f());
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 200 + WTERMSIG(status);
}

// The mask of closed descriptors that are taken afterwards and give an error when used.
static int close_and_fill(unsigned mask)
{
    for (int fd = 0; fd < 3; fd++) {
        if (mask & 1u << fd)
            (void)close(fd);
    }
    process_set_up();
    int next = open("/dev/null", O_RDONLY);
    if (next < 3)
        return 100;
    int good = 0;
    char byte = 'x';
    for (int fd = 0; fd < 3; fd++) {
        if (!(mask & 1u << fd))
            continue;
        ssize_t n = fd == 0 ? read(fd, &byte, 1) : write(fd, &byte, 1);
        good |= (n < 0) << fd;
    }
    return good;
}

static int without_stdin(void)
{
    return close_and_fill(1);
}

static int without_stderr(void)
{
    return close_and_fill(4);
}

static int without_all(void)
{
    return close_and_fill(7);
}

static void closed_standard_descriptors_are_taken(void **state)
{
    assert_int_equal(in_child(without_stdin), 1);
    assert_int_equal(in_child(without_stderr), 4);
    assert_int_equal(in_child(without_all), 7);
}

static int write_to_nobody(void)
{
    int ends[2];
    process_set_up();
    if (pipe(ends) < 0)
        return 100;
    (void)close(ends[0]);
    return write(ends[1], "x", 1) < 0 ? 0 : 1;
}

static void a_reader_that_went_away_is_an_error_and_no_signal(void **state)
{
    assert_int_equal(in_child(write_to_nobody), 0);
}

static int raise_limit(void)
{
    struct rlimit limit = {40, 100};
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 90;
    if (process_raise_fd_limit(30) != 40 || process_raise_fd_limit(80) != 80)
        return 91;
    if (process_raise_fd_limit(1000) != 100 || process_raise_fd_limit(50) != 100)
        return 92;
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == 100 ? 0 : 93;
}

static void the_descriptor_limit_goes_up_to_the_hard_one_and_never_down(void **state)
{
    assert_int_equal(in_child(raise_limit), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_standard_descriptors_are_taken),
        cmocka_unit_test(a_reader_that_went_away_is_an_error_and_no_signal),
        cmocka_unit_test(the_descriptor_limit_goes_up_to_the_hard_one_and_never_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
