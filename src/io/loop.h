// SPDX-License-Identifier: Apache-2.0
// The event loop (libuv) behind opaque watches. Every _free is synchronous to the caller: no
// callback comes after it, also when called from inside the watch's own callback. All functions
// belong to the loop's thread. A NULL watch may be freed. Errors are negative errno.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"

struct loop;
int must_use loop_new(struct loop **out);
void loop_free(struct loop *l); // every watch must be freed before
int loop_run(struct loop *l);   // until loop_stop; returns its status
void loop_stop(struct loop *l, int status);
uint64_t loop_now_ns(const struct loop *l); // CLOCK_MONOTONIC at the start of this turn

// Timers
struct loop_timer;
int must_use loop_timer_new(struct loop *l, void (*fired)(void *user), void *user,
                            struct loop_timer **out);
// First after delay_ns (rounded up to ms), then every repeat_ns (0: once). Re-arming replaces.
// Delay 0 is the next turn of the loop; set by a timer it lets descriptors have their turn first.
void loop_timer_set(struct loop_timer *t, uint64_t delay_ns, uint64_t repeat_ns);
// At each multiple of period_ns on CLOCK_MONOTONIC: timers whose periods divide each other share
// their wake-ups. For work that has no moment of its own.
void loop_timer_every(struct loop_timer *t, uint64_t period_ns);
void loop_timer_stop(struct loop_timer *t);
void loop_timer_free(struct loop_timer *t);

// Descriptors (borrowed; must stay open until the watch is freed)
#define LOOP_READABLE 1u
#define LOOP_WRITABLE 2u
struct loop_fd;
// ready gets LOOP_* bits; a broken descriptor is reported as both.
int must_use loop_fd_new(struct loop *l, int fd, unsigned events,
                         void (*ready)(void *user, unsigned events), void *user,
                         struct loop_fd **out);
void loop_fd_set(struct loop_fd *w, unsigned events); // 0: pause
void loop_fd_free(struct loop_fd *w);

// Signals
struct loop_signal;
int must_use loop_signal_new(struct loop *l, int signo, void (*caught)(void *user, int signo),
                             void *user, struct loop_signal **out);
void loop_signal_free(struct loop_signal *w);

// A directory: changed is called with the name inside it that was created, written, removed or
// renamed (NULL: unknown).
struct loop_path;
int must_use loop_path_new(struct loop *l, const char *directory,
                           void (*changed)(void *user, const char *name), void *user,
                           struct loop_path **out);
void loop_path_free(struct loop_path *w);

// A child process. fds[i] becomes the child's descriptor i; -1 there means /dev/null for 0..2 and
// closed above. No other descriptor is inherited.
#define LOOP_PROCESS_FDS_MAX 16 // more: -EINVAL
struct loop_process_config {
    const char *path;
    char *const *argv; // NULL-ended
    char *const *env;  // NULL-ended, or NULL: ours
    const int *fds;
    size_t fd_count;
};
struct loop_process;
int must_use loop_process_new(struct loop *l, const struct loop_process_config *config,
                              void (*ended)(void *user, int exit_status, int term_signal),
                              void *user, struct loop_process **out);
pid_t loop_process_pid(const struct loop_process *p);
int loop_process_kill(struct loop_process *p, int signo);
// Forgets the child without waiting; it is still reaped when it ends.
void loop_process_free(struct loop_process *p);

// Work for the pool: work runs on another thread and must touch only what user owns; done runs on
// the loop, always exactly once. Two pool threads. 0, -ENOMEM, -EBUSY (LOOP_JOBS_MAX queued),
// -EAGAIN (the threads cannot be made now).
#define LOOP_JOBS_MAX 64
int must_use loop_job_start(struct loop *l, void (*work)(void *user), void (*done)(void *user),
                            void *user);
