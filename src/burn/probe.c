// SPDX-License-Identifier: Apache-2.0
#include "burn/probe.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROBE_SECONDS 60 // a driver that has to be woken takes some seconds a GPU

pid_t burn_fork(int (*work)(void *user), void *user)
{
    pid_t parent = getpid();
    sigset_t all, before;
    sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    if (pid != 0) {
        int error = errno;
        (void)sigprocmask(SIG_SETMASK, &before, NULL);
        return pid < 0 ? -error : pid;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) // it ended before it could be told
        _exit(BURN_DRIVER_ERROR);
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGCHLD, SIG_DFL);
    (void)close_range(STDERR_FILENO + 1, ~0u, 0);
    sigemptyset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    _exit(work(user));
}

void burn_kill(pid_t pid, uint64_t until_ns)
{
    static const struct timespec nap = {.tv_nsec = NS_PER_MS};
    (void)kill(pid, SIGKILL);
    while (waitpid(pid, NULL, WNOHANG) == 0 && clock_mono_ns() < until_ns)
        (void)nanosleep(&nap, NULL);
}

struct probe { // shared with the child
    const struct burn_options *o;
    struct burn_gpus gpus;
    struct error err;
};

static int ask(void *user)
{
    struct probe *p = user;
    enum burn_result r = burn_load_list(p->o, p->gpus.uuids, &p->gpus.count, &p->err);
    if (fflush(stdout) != 0 && r == BURN_CLEAN) {
        (void)error_set(&p->err, -errno, "cannot write to stdout");
        r = BURN_DRIVER_ERROR;
    }
    return (int)r;
}

// Until the child ends, we are asked to, or time is up. Returns its wait status, -1 when it had to
// be killed.
static int await(pid_t pid, const sigset_t *signals, bool *out_stopped)
{
    uint64_t end_ns = clock_mono_ns() + PROBE_SECONDS * NS_PER_S, now_ns;
    int status = 0;
    while ((now_ns = clock_mono_ns()) < end_ns && !*out_stopped) {
        struct timespec left = {.tv_sec = (time_t)((end_ns - now_ns) / NS_PER_S), .tv_nsec = 1};
        if (waitpid(pid, &status, WNOHANG) == pid)
            return status;
        int signo = sigtimedwait(signals, NULL, &left);
        *out_stopped = signo == SIGTERM || signo == SIGINT;
    }
    burn_kill(pid, clock_mono_ns() + BURN_REAP_NS);
    return -1;
}

static enum burn_result run_probe(struct probe *p, bool *out_stopped)
{
    sigset_t signals, before;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &signals, &before);
    enum burn_result result = BURN_DRIVER_ERROR;
    pid_t pid = burn_fork(ask, p);
    int status = pid < 0 ? -1 : await(pid, &signals, out_stopped);
    if (pid < 0)
        (void)error_set(&p->err, (int)pid, "cannot make a process");
    else if (*out_stopped)
        result = BURN_CLEAN;
    else if (status == -1)
        (void)error_set(&p->err, -ETIMEDOUT, "the driver did not answer within %d s",
                        PROBE_SECONDS);
    else if (WIFEXITED(status))
        result = (enum burn_result)WEXITSTATUS(status);
    else
        (void)error_set(&p->err, -EIO, "the driver ended our process with signal %d",
                        WTERMSIG(status));
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return result;
}

enum burn_result burn_probe(const struct burn_options *o, struct burn_gpus *out, bool *out_stopped,
                            struct error *err)
{
    struct probe *p =
        mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        (void)error_set(err, -errno, "out of memory");
        return BURN_DRIVER_ERROR;
    }
    p->o = o;
    enum burn_result r = run_probe(p, out_stopped);
    *out = p->gpus;
    *err = p->err;
    if (out->count > BURN_GPUS_MAX)
        out->count = BURN_GPUS_MAX;
    if (r == BURN_CLEAN && !*out_stopped && out->count == 0) {
        (void)error_set(err, -ENODEV, "the driver shows no GPU");
        r = BURN_NO_GPU;
    }
    (void)munmap(p, sizeof(*p));
    return r;
}
