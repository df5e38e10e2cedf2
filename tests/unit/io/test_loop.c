// SPDX-License-Identifier: Apache-2.0
#include "io/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"

#define GIVE_UP_NS (20 * NS_PER_S)

// One loop, a watchdog that fails the test, and what the watches below count.
struct fixture {
    struct loop *loop;
    struct loop_timer *watchdog;
    struct loop_timer *timer;
    struct loop_fd *fd_watch;
    struct loop_signal *signal_watch;
    struct loop_path *path_watch;
    struct loop_process *process;
    int pipe[2];
    int calls;
    int status, signal;
    uint64_t first_ns, last_ns;
    char name[64];
};

static void watchdog_fired(void *user)
{
    struct fixture *f = user;
    loop_stop(f->loop, -ETIMEDOUT);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    f->pipe[0] = f->pipe[1] = -1;
    if (loop_new(&f->loop) < 0 || loop_timer_new(f->loop, watchdog_fired, f, &f->watchdog) < 0)
        return -1;
    loop_timer_set(f->watchdog, GIVE_UP_NS, 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    loop_timer_free(f->timer);
    loop_fd_free(f->fd_watch);
    loop_signal_free(f->signal_watch);
    loop_path_free(f->path_watch);
    loop_process_free(f->process);
    loop_timer_free(f->watchdog);
    loop_free(f->loop);
    fd_closep(&f->pipe[0]);
    fd_closep(&f->pipe[1]);
    free(f);
    return 0;
}

// --- Timers ---

static void stop_at_third(void *user)
{
    struct fixture *f = user;
    f->last_ns = clock_mono_ns();
    if (++f->calls == 3)
        loop_stop(f->loop, 7);
}

static void timer_repeats_without_drift_and_never_early(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(loop_timer_new(f->loop, stop_at_third, f, &f->timer), 0);
    uint64_t start_ns = clock_mono_ns();
    loop_timer_set(f->timer, 20 * NS_PER_MS, 30 * NS_PER_MS);
    assert_int_equal(loop_run(f->loop), 7);
    assert_int_equal(f->calls, 3);
    assert_true(f->last_ns - start_ns >= 80 * NS_PER_MS);
}

static void timer_of_a_period_fires_at_its_multiples(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(loop_timer_new(f->loop, stop_at_third, f, &f->timer), 0);
    uint64_t start_ns = clock_mono_ns();
    loop_timer_every(f->timer, 40 * NS_PER_MS);
    assert_int_equal(loop_run(f->loop), 7);
    uint64_t third_ns = (start_ns / (40 * NS_PER_MS) + 3) * 40 * NS_PER_MS;
    assert_true(f->last_ns >= third_ns);
}

static void stop(void *user)
{
    struct fixture *f = user;
    f->calls++;
    loop_stop(f->loop, 0);
}

static void set_itself_anew(void *user)
{
    struct fixture *f = user;
    loop_timer_set(f->timer, 0, 0);
}

static void stop_when_readable(void *user, unsigned events)
{
    (void)events;
    stop(user);
}

static void timer_without_delay_leaves_descriptors_their_turn(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(pipe2(f->pipe, O_CLOEXEC | O_NONBLOCK), 0);
    assert_int_equal(write(f->pipe[1], "x", 1), 1);
    assert_int_equal(
        loop_fd_new(f->loop, f->pipe[0], LOOP_READABLE, stop_when_readable, f, &f->fd_watch), 0);
    assert_int_equal(loop_timer_new(f->loop, set_itself_anew, f, &f->timer), 0);
    loop_timer_set(f->timer, 0, 0);
    assert_int_equal(loop_run(f->loop), 0);
    assert_int_equal(f->calls, 1);
}

#define BUSY_TIMERS 8

static void work_longer_than_the_period(void *user)
{
    (void)user;
    uint64_t until_ns = clock_mono_ns() + NS_PER_MS;
    while (clock_mono_ns() < until_ns)
        ;
}

static void timers_that_are_always_due_leave_descriptors_their_turn(void **state)
{
    struct fixture *f = *state;
    struct loop_timer *busy[BUSY_TIMERS] = {NULL};
    assert_int_equal(pipe2(f->pipe, O_CLOEXEC | O_NONBLOCK), 0);
    assert_int_equal(write(f->pipe[1], "x", 1), 1);
    assert_int_equal(
        loop_fd_new(f->loop, f->pipe[0], LOOP_READABLE, stop_when_readable, f, &f->fd_watch), 0);
    for (size_t i = 0; i < BUSY_TIMERS; i++) {
        assert_int_equal(loop_timer_new(f->loop, work_longer_than_the_period, f, &busy[i]), 0);
        loop_timer_set(busy[i], NS_PER_MS, NS_PER_MS);
    }
    work_longer_than_the_period(NULL); // the first turn begins with all of them due
    assert_int_equal(loop_run(f->loop), 0);
    assert_int_equal(f->calls, 1);
    for (size_t i = 0; i < BUSY_TIMERS; i++)
        loop_timer_free(busy[i]);
}

static void must_not_be_called(void *user)
{
    fail_msg("called after it was stopped (%p)", user);
}

static void stopped_timer_does_not_fire(void **state)
{
    struct fixture *f = *state;
    struct loop_timer *stopped, *replaced;
    assert_int_equal(loop_timer_new(f->loop, must_not_be_called, f, &stopped), 0);
    loop_timer_set(stopped, NS_PER_MS, NS_PER_MS);
    loop_timer_stop(stopped);
    assert_int_equal(loop_timer_new(f->loop, must_not_be_called, f, &replaced), 0);
    loop_timer_set(replaced, NS_PER_MS, 0);
    loop_timer_set(replaced, 3600 * NS_PER_S, 0);
    assert_int_equal(loop_timer_new(f->loop, stop, f, &f->timer), 0);
    loop_timer_set(f->timer, 30 * NS_PER_MS, 0);
    assert_int_equal(loop_run(f->loop), 0);
    loop_timer_free(stopped);
    loop_timer_free(replaced);
}

static void free_itself(void *user)
{
    struct fixture *f = user;
    f->calls++;
    loop_timer_free(TAKE_PTR(f->timer));
}

static void timer_may_free_itself_in_its_callback(void **state)
{
    struct fixture *f = *state;
    struct loop_timer *end;
    assert_int_equal(loop_timer_new(f->loop, free_itself, f, &f->timer), 0);
    loop_timer_set(f->timer, NS_PER_MS, NS_PER_MS);
    assert_int_equal(loop_timer_new(f->loop, stop, f, &end), 0);
    loop_timer_set(end, 20 * NS_PER_MS, 0);
    assert_int_equal(loop_run(f->loop), 0);
    assert_int_equal(f->calls, 2);
    loop_timer_free(end);
}

static void free_the_other(void *user)
{
    struct loop_timer **both = user;
    loop_timer_free(TAKE_PTR(both[0]));
    loop_timer_free(TAKE_PTR(both[1]));
}

static void freed_timer_that_is_due_stays_silent(void **state)
{
    struct fixture *f = *state;
    // Both are due in the same turn; whichever comes first frees both.
    struct loop_timer *both[2];
    assert_int_equal(loop_timer_new(f->loop, free_the_other, both, &both[0]), 0);
    assert_int_equal(loop_timer_new(f->loop, free_the_other, both, &both[1]), 0);
    loop_timer_set(both[0], NS_PER_MS, NS_PER_MS);
    loop_timer_set(both[1], NS_PER_MS, NS_PER_MS);
    assert_int_equal(loop_timer_new(f->loop, stop, f, &f->timer), 0);
    loop_timer_set(f->timer, 20 * NS_PER_MS, 0);
    assert_int_equal(loop_run(f->loop), 0);
    assert_null(both[0]);
}

static void timer_counts_from_the_call_not_from_a_stale_turn(void **state)
{
    struct fixture *f = *state;
    // The loop's own idea of now is 60 ms old when the timer is set.
    nanosleep(&(struct timespec){.tv_nsec = 60000000}, NULL);
    assert_int_equal(loop_timer_new(f->loop, stop_at_third, f, &f->timer), 0);
    uint64_t start_ns = clock_mono_ns();
    f->calls = 2;
    loop_timer_set(f->timer, 40 * NS_PER_MS, 0);
    assert_int_equal(loop_run(f->loop), 7);
    assert_true(f->last_ns - start_ns >= 40 * NS_PER_MS);
}

static void now_at_fire(void *user)
{
    struct fixture *f = user;
    f->first_ns = loop_now_ns(f->loop);
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    f->last_ns = loop_now_ns(f->loop);
    loop_stop(f->loop, 0);
}

static void now_stands_still_within_a_callback(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(loop_timer_new(f->loop, now_at_fire, f, &f->timer), 0);
    uint64_t before_ns = clock_mono_ns();
    loop_timer_set(f->timer, NS_PER_MS, 0);
    assert_int_equal(loop_run(f->loop), 0);
    assert_true(f->first_ns >= before_ns + NS_PER_MS);
    assert_int_equal(f->first_ns, f->last_ns);
}

static void stop_before_run_is_remembered(void **state)
{
    struct fixture *f = *state;
    loop_stop(f->loop, 3);
    assert_int_equal(loop_run(f->loop), 3);
}

// --- Descriptors ---

static void take_byte(void *user, unsigned events)
{
    struct fixture *f = user;
    char c;
    assert_int_equal(events, LOOP_READABLE);
    assert_int_equal(read(f->pipe[0], &c, 1), 1);
    f->name[f->calls++] = c;
    if (c == '.')
        loop_stop(f->loop, 0);
}

static void readable_descriptor_is_reported_until_drained(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(pipe2(f->pipe, O_CLOEXEC), 0);
    assert_int_equal(loop_fd_new(f->loop, f->pipe[0], LOOP_READABLE, take_byte, f, &f->fd_watch),
                     0);
    assert_int_equal(write(f->pipe[1], "abc.", 4), 4);
    assert_int_equal(loop_run(f->loop), 0);
    assert_string_equal(f->name, "abc.");
}

static void fd_must_not_be_ready(void *user, unsigned events)
{
    fail_msg("a paused or freed descriptor was reported (%p, %u)", user, events);
}

static void paused_descriptor_is_not_reported(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(pipe2(f->pipe, O_CLOEXEC), 0);
    assert_int_equal(
        loop_fd_new(f->loop, f->pipe[0], LOOP_READABLE, fd_must_not_be_ready, f, &f->fd_watch), 0);
    loop_fd_set(f->fd_watch, 0);
    assert_int_equal(write(f->pipe[1], "a", 1), 1);
    assert_int_equal(loop_timer_new(f->loop, stop, f, &f->timer), 0);
    loop_timer_set(f->timer, 20 * NS_PER_MS, 0);
    assert_int_equal(loop_run(f->loop), 0);
}

static void note_events(void *user, unsigned events)
{
    struct fixture *f = user;
    f->status = (int)events;
    if (++f->calls == 2) // a broken descriptor goes on being reported
        loop_stop(f->loop, 0);
}

static void broken_descriptor_is_reported_as_both(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(pipe2(f->pipe, O_CLOEXEC), 0);
    assert_int_equal(close(f->pipe[0]), 0);
    f->pipe[0] = -1;
    assert_int_equal(loop_fd_new(f->loop, f->pipe[1], LOOP_WRITABLE, note_events, f, &f->fd_watch),
                     0);
    assert_int_equal(loop_run(f->loop), 0);
    assert_int_equal(f->status, LOOP_READABLE | LOOP_WRITABLE);
}

static void free_fd_watch(void *user, unsigned events)
{
    struct fixture *f = user;
    (void)events;
    f->calls++;
    loop_fd_free(TAKE_PTR(f->fd_watch));
    loop_stop(f->loop, 0);
}

static void descriptor_watch_may_free_itself_and_its_number_be_used_again(void **state)
{
    struct fixture *f = *state;
    for (int round = 0; round < 3; round++) {
        assert_int_equal(pipe2(f->pipe, O_CLOEXEC), 0);
        assert_int_equal(
            loop_fd_new(f->loop, f->pipe[0], LOOP_READABLE, free_fd_watch, f, &f->fd_watch), 0);
        assert_int_equal(write(f->pipe[1], "a", 1), 1);
        assert_int_equal(loop_run(f->loop), 0);
        assert_int_equal(f->calls, round + 1);
        fd_closep(&f->pipe[0]);
        fd_closep(&f->pipe[1]);
    }
    f->pipe[0] = f->pipe[1] = -1;
}

static void closed_descriptor_is_refused(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(pipe2(f->pipe, O_CLOEXEC), 0);
    int fd = f->pipe[0];
    close(TAKE_FD(f->pipe[0]));
    assert_int_equal(loop_fd_new(f->loop, fd, LOOP_READABLE, fd_must_not_be_ready, f, &f->fd_watch),
                     -EBADF);
}

// --- Signals ---

static void note_signal(void *user, int signo)
{
    struct fixture *f = user;
    f->signal = signo;
    loop_stop(f->loop, 0);
}

static void signal_reaches_the_loop(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(loop_signal_new(f->loop, SIGUSR1, note_signal, f, &f->signal_watch), 0);
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    assert_int_equal(loop_run(f->loop), 0);
    assert_int_equal(f->signal, SIGUSR1);
}

static void uncatchable_signal_is_refused(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(loop_signal_new(f->loop, SIGKILL, note_signal, f, &f->signal_watch), -EINVAL);
}

// --- Directories ---

static void note_name(void *user, const char *name)
{
    struct fixture *f = user;
    if (!name)
        return;
    snprintf(f->name, sizeof(f->name), "%s", name);
    if (strcmp(name, "wanted") == 0)
        loop_stop(f->loop, 0);
}

static void file_created_in_a_directory_is_named(void **state)
{
    struct fixture *f = *state;
    char directory[] = "/tmp/podgpu-loop-XXXXXX";
    char path[64];
    assert_non_null(mkdtemp(directory));
    assert_int_equal(loop_path_new(f->loop, directory, note_name, f, &f->path_watch), 0);
    snprintf(path, sizeof(path), "%s/wanted", directory);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    int status = loop_run(f->loop);
    unlink(path);
    rmdir(directory);
    assert_int_equal(status, 0);
    assert_string_equal(f->name, "wanted");
}

static void note_null(void *user, const char *name)
{
    struct fixture *f = user;
    assert_null(name);
    loop_stop(f->loop, 0);
}

static void removed_directory_is_reported_without_a_name(void **state)
{
    struct fixture *f = *state;
    char directory[] = "/tmp/podgpu-loop-XXXXXX";
    assert_non_null(mkdtemp(directory));
    assert_int_equal(loop_path_new(f->loop, directory, note_null, f, &f->path_watch), 0);
    assert_int_equal(rmdir(directory), 0);
    assert_int_equal(loop_run(f->loop), 0);
}

static void missing_directory_is_refused(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(loop_path_new(f->loop, "/nonexistent/podgpu", note_name, f, &f->path_watch),
                     -ENOENT);
}

// --- Child processes ---

static void note_end(void *user, int exit_status, int term_signal)
{
    struct fixture *f = user;
    f->status = exit_status;
    f->signal = term_signal;
    loop_stop(f->loop, 0);
}

static int spawn_shell(struct fixture *f, const char *script, const int *fds, size_t fd_count)
{
    char *argv[] = {"sh", "-c", (char *)script, NULL};
    const struct loop_process_config config = {
        .path = "/bin/sh", .argv = argv, .fds = fds, .fd_count = fd_count};
    return loop_process_new(f->loop, &config, note_end, f, &f->process);
}

static void exit_status_of_a_child_is_reported(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(spawn_shell(f, "exit 42", NULL, 0), 0);
    assert_true(loop_process_pid(f->process) > 0);
    assert_int_equal(loop_run(f->loop), 0);
    assert_int_equal(f->status, 42);
    assert_int_equal(f->signal, 0);
    assert_int_equal(loop_process_kill(f->process, SIGKILL), -ESRCH);
}

static void killed_child_reports_its_signal(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(spawn_shell(f, "exec sleep 1000", NULL, 0), 0);
    assert_int_equal(loop_process_kill(f->process, SIGKILL), 0);
    assert_int_equal(loop_run(f->loop), 0);
    assert_int_equal(f->signal, SIGKILL);
}

static size_t run_and_read(struct fixture *f, const char *script, char *out, size_t out_bytes)
{
    assert_int_equal(pipe2(f->pipe, O_CLOEXEC), 0);
    const int fds[] = {-1, f->pipe[1], 2, -1, f->pipe[1]};
    assert_int_equal(spawn_shell(f, script, fds, ARRAY_SIZE(fds)), 0);
    assert_int_equal(loop_run(f->loop), 0);
    close(TAKE_FD(f->pipe[1]));
    ssize_t n = read(f->pipe[0], out, out_bytes - 1);
    assert_true(n >= 0);
    out[n] = '\0';
    return (size_t)n;
}

static void child_gets_the_named_descriptors_and_no_other(void **state)
{
    struct fixture *f = *state;
    char text[256];
    // An inheritable stray, as a careless parent leaves it.
    int stray = open("/dev/null", O_RDONLY);
    assert_true(stray >= 3);
    run_and_read(f,
                 "for i in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do "
                 "[ -e /proc/$$/fd/$i ] && printf '%s ' $i; done; readlink /proc/$$/fd/0",
                 text, sizeof(text));
    close(stray);
    assert_string_equal(text, "0 1 2 4 /dev/null\n");
}

static void pool_size_does_not_leak_into_children(void **state)
{
    struct fixture *f = *state;
    char text[256];
    run_and_read(f, "printf '%s' \"${UV_THREADPOOL_SIZE-unset}\"", text, sizeof(text));
    assert_string_equal(text, "unset");
}

static void missing_program_is_an_error(void **state)
{
    struct fixture *f = *state;
    char *argv[] = {"x", NULL};
    const struct loop_process_config config = {.path = "/nonexistent/podgpu", .argv = argv};
    assert_int_equal(loop_process_new(f->loop, &config, note_end, f, &f->process), -ENOENT);
}

static void end_must_not_be_reported(void *user, int exit_status, int term_signal)
{
    fail_msg("a forgotten child was reported (%p, %d, %d)", user, exit_status, term_signal);
}

static void reaped_or_again(void *user)
{
    struct fixture *f = user;
    if (kill((pid_t)f->status, 0) < 0 && errno == ESRCH)
        loop_stop(f->loop, 0);
}

static void forgotten_child_is_still_reaped(void **state)
{
    struct fixture *f = *state;
    char *argv[] = {"sh", "-c", "exit 0", NULL};
    const struct loop_process_config config = {.path = "/bin/sh", .argv = argv};
    struct loop_process *p;
    assert_int_equal(loop_process_new(f->loop, &config, end_must_not_be_reported, f, &p), 0);
    f->status = loop_process_pid(p);
    loop_process_free(p);
    assert_int_equal(loop_timer_new(f->loop, reaped_or_again, f, &f->timer), 0);
    loop_timer_set(f->timer, NS_PER_MS, 5 * NS_PER_MS);
    assert_int_equal(loop_run(f->loop), 0);
}

static void loop_ends_beside_a_forgotten_child_that_runs(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(spawn_shell(f, "exec sleep 1000", NULL, 0), 0);
    pid_t pid = loop_process_pid(f->process);
    loop_process_free(TAKE_PTR(f->process));
    loop_timer_free(TAKE_PTR(f->watchdog));
    loop_free(TAKE_PTR(f->loop));
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(loop_new(&f->loop), 0);
}

// --- Jobs ---

struct jobs {
    struct fixture *fixture;
    atomic_int running, most_running, worked;
    atomic_bool may_go;
    int done;
    int want;
};

static void job_work(void *user)
{
    struct jobs *j = user;
    int now = atomic_fetch_add(&j->running, 1) + 1;
    int most = atomic_load(&j->most_running);
    while (now > most && !atomic_compare_exchange_weak(&j->most_running, &most, now))
        ;
    while (!atomic_load(&j->may_go))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    atomic_fetch_sub(&j->running, 1);
    atomic_fetch_add(&j->worked, 1);
}

static void job_done(void *user)
{
    struct jobs *j = user;
    if (++j->done == j->want)
        loop_stop(j->fixture->loop, 0);
}

static void let_go(void *user)
{
    struct jobs *j = user;
    if (atomic_load(&j->running) == 2)
        atomic_store(&j->may_go, true);
}

static void two_jobs_run_at_once_and_the_65th_waiting_is_refused(void **state)
{
    struct fixture *f = *state;
    struct jobs j = {.fixture = f, .want = LOOP_JOBS_MAX};
    for (int i = 0; i < LOOP_JOBS_MAX; i++)
        assert_int_equal(loop_job_start(f->loop, job_work, job_done, &j), 0);
    assert_int_equal(loop_job_start(f->loop, job_work, job_done, &j), -EBUSY);
    assert_int_equal(loop_timer_new(f->loop, let_go, &j, &f->timer), 0);
    loop_timer_set(f->timer, NS_PER_MS, NS_PER_MS);
    assert_int_equal(loop_run(f->loop), 0);
    assert_int_equal(j.done, LOOP_JOBS_MAX);
    assert_int_equal(atomic_load(&j.worked), LOOP_JOBS_MAX);
    assert_int_equal(atomic_load(&j.most_running), 2);
    assert_null(getenv("UV_THREADPOOL_SIZE"));
}

static void freeing_the_loop_finishes_the_jobs(void **state)
{
    struct fixture *f = *state;
    struct jobs j = {.fixture = f, .want = -1, .may_go = true};
    for (int i = 0; i < 5; i++)
        assert_int_equal(loop_job_start(f->loop, job_work, job_done, &j), 0);
    loop_timer_free(TAKE_PTR(f->watchdog));
    loop_free(TAKE_PTR(f->loop));
    assert_int_equal(j.done, 5);
    assert_int_equal(loop_new(&f->loop), 0);
}

static void null_watches_may_be_freed(void **state)
{
    (void)state;
    loop_timer_free(NULL);
    loop_fd_free(NULL);
    loop_signal_free(NULL);
    loop_path_free(NULL);
    loop_process_free(NULL);
    loop_free(NULL);
}

// Kernels before 5.11 cannot mark a range of descriptors; the other way is taken.
static int forbid_close_range(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {ARRAY_SIZE(code), code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        return -errno;
    return close_range(100, 100, 0) < 0 && errno == ENOSYS ? 0 : -EINVAL;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static void without_threads_a_job_is_refused_and_nothing_ends(void **state)
{
    struct fixture *f = *state;
    pid_t pid = fork(); // the pool of this process may be up already
    assert_true(pid >= 0);
    if (pid == 0) {
        pthread_attr_t attr;
        struct jobs j = {.fixture = f, .may_go = true};
        (void)pthread_attr_init(&attr);
        (void)pthread_attr_setstacksize(&attr, (size_t)1 << 46); // more than there is room for
        (void)pthread_setattr_default_np(&attr);
        _exit(loop_job_start(f->loop, job_work, job_done, &j) < 0 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest old_kernel_tests[] = {
        CASE(child_gets_the_named_descriptors_and_no_other)};
    if (argc == 2 && strcmp(argv[1], "--old-kernel") == 0)
        return forbid_close_range() < 0
                   ? 77
                   : cmocka_run_group_tests_name("loop, old kernel", old_kernel_tests, NULL, NULL);
    const struct CMUnitTest tests[] = {
        CASE(without_threads_a_job_is_refused_and_nothing_ends), // before any job
        CASE(timer_repeats_without_drift_and_never_early),
        CASE(timer_of_a_period_fires_at_its_multiples),
        CASE(timer_without_delay_leaves_descriptors_their_turn),
        CASE(timers_that_are_always_due_leave_descriptors_their_turn),
        CASE(stopped_timer_does_not_fire),
        CASE(timer_may_free_itself_in_its_callback),
        CASE(freed_timer_that_is_due_stays_silent),
        CASE(timer_counts_from_the_call_not_from_a_stale_turn),
        CASE(now_stands_still_within_a_callback),
        CASE(stop_before_run_is_remembered),
        CASE(readable_descriptor_is_reported_until_drained),
        CASE(paused_descriptor_is_not_reported),
        CASE(broken_descriptor_is_reported_as_both),
        CASE(descriptor_watch_may_free_itself_and_its_number_be_used_again),
        CASE(closed_descriptor_is_refused),
        CASE(signal_reaches_the_loop),
        CASE(uncatchable_signal_is_refused),
        CASE(file_created_in_a_directory_is_named),
        CASE(removed_directory_is_reported_without_a_name),
        CASE(missing_directory_is_refused),
        CASE(exit_status_of_a_child_is_reported),
        CASE(killed_child_reports_its_signal),
        CASE(child_gets_the_named_descriptors_and_no_other),
        CASE(two_jobs_run_at_once_and_the_65th_waiting_is_refused),
        CASE(pool_size_does_not_leak_into_children),
        CASE(missing_program_is_an_error),
        CASE(forgotten_child_is_still_reaped),
        CASE(loop_ends_beside_a_forgotten_child_that_runs),
        CASE(freeing_the_loop_finishes_the_jobs),
        cmocka_unit_test(null_watches_may_be_freed),
    };
    return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
