// SPDX-License-Identifier: Apache-2.0
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/macros.h"

static void fill(int fd)
{
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF)
        return;
    // The lowest free number is what open gives: this one, for those below it are in use. The wrong
    // way round, so that --help into a closed stdout is an error as it was.
    int got = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (got < 0)
        got = open("/", O_PATH | O_DIRECTORY);
    if (got > STDERR_FILENO)
        (void)close(got);
}

void process_set_up(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        fill(fd);
    (void)signal(SIGPIPE, SIG_IGN);
}

void process_hold_signals(void)
{
    static const int signos[] = {SIGINT, SIGTERM, SIGQUIT, SIGHUP};
    sigset_t set;
    (void)sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_SIZE(signos); i++)
        (void)sigaddset(&set, signos[i]);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
}

uint64_t process_raise_fd_limit(uint64_t wanted)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return wanted;
    if (limit.rlim_cur >= wanted)
        return limit.rlim_cur;
    struct rlimit raised = limit;
    raised.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &raised) < 0 ? limit.rlim_cur : raised.rlim_cur;
}

bool process_finish_stdout(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    log_error("cannot write to stdout", LOG_ERRNO(errno));
    return false;
}

void process_set_oom_score_adj(int adj)
{
    char text[16];
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    int length = snprintf(text, sizeof(text), "%d", adj);
    ssize_t n = write(fd, text, (size_t)length);
    (void)n;
    (void)close(fd);
}
