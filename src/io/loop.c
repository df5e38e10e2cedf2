// SPDX-License-Identifier: Apache-2.0
// How it works: every watch embeds its libuv handle. Freeing a watch clears `live` (so that no
// callback reaches the caller any more) and asks libuv to close the handle; the memory goes when
// libuv says it is done with it, at the end of that turn or in loop_free, which runs the loop until
// nothing is left. Invariant: a callback is given to the user only while the watch is live, and a
// watch is never touched after the user's callback without asking again.
#include "io/loop.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/num.h"

#define POOL_THREADS 2
#define POOL_THREADS_TEXT "2"

#define TIMERS_TURN_MS 20 // then descriptors are looked at

struct loop {
    uv_loop_t uv;
    uv_timer_t keep_alive; // never due: without watches the loop waits for loop_stop all the same
    uint64_t now_ns;       // 0: to be read anew
    unsigned jobs;         // queued or running
    int status;
    bool stopped;
    bool in_timer; // a timer's callback is running
};

// What all watches start with.
struct watch {
    struct loop *loop;
    void *user;
    bool live; // not freed by its owner
};

// --- The loop ---

static void keep_alive_fired(uv_timer_t *t)
{
    (void)t;
}

// libuv ends the process when it cannot have the pipes of its signals: asked for first, and given
// back.
static int check_descriptors(void)
{
    int pipes[4][2], count = 0, r = 0;
    while (r == 0 && count < (int)ARRAY_SIZE(pipes)) {
        r = pipe2(pipes[count], O_CLOEXEC) < 0 ? -errno : 0;
        count += r == 0;
    }
    while (count-- > 0) {
        (void)close(pipes[count][0]);
        (void)close(pipes[count][1]);
    }
    return r;
}

int loop_new(struct loop **out)
{
    struct loop *l = calloc(1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    int r = check_descriptors();
    if (r == 0)
        r = uv_loop_init(&l->uv);
    if (r < 0) {
        free(l);
        return r;
    }
    (void)uv_timer_init(&l->uv, &l->keep_alive);
    (void)uv_timer_start(&l->keep_alive, keep_alive_fired, UINT64_MAX / 4, 0);
    *out = l;
    return 0;
}

static void process_closed(uv_handle_t *h);

static void close_leftover(uv_handle_t *h, void *user)
{
    (void)user;
    if (uv_is_closing(h))
        return;
    // Beside the keep-alive timer, only children that were let go and still run: their watch has no
    // owner.
    uv_close(h, h->type == UV_PROCESS ? process_closed : NULL);
}

void loop_free(struct loop *l)
{
    if (!l)
        return;
    while (l->jobs > 0)
        (void)uv_run(&l->uv, UV_RUN_ONCE);
    uv_walk(&l->uv, close_leftover, NULL);
    while (uv_loop_close(&l->uv) == UV_EBUSY)
        (void)uv_run(&l->uv, UV_RUN_ONCE);
    free(l);
}

int loop_run(struct loop *l)
{
    while (!l->stopped)
        (void)uv_run(&l->uv, UV_RUN_DEFAULT);
    l->stopped = false;
    return l->status;
}

void loop_stop(struct loop *l, int status)
{
    l->status = status;
    l->stopped = true;
    uv_stop(&l->uv);
}

uint64_t loop_now_ns(const struct loop *l)
{
    return l->now_ns ? l->now_ns : uv_hrtime();
}

// Each callback starts with a fresh time, which then stands still until it returns.
static bool turn_begin(struct watch *w)
{
    if (!w->live)
        return false;
    w->loop->now_ns = uv_hrtime();
    return true;
}

static void turn_end(struct loop *l)
{
    l->now_ns = 0;
}

// --- Timers ---

struct loop_timer {
    uv_timer_t uv;
    struct watch watch;
    void (*fired)(void *user);
    uint64_t due_ns; // absolute, so that a repeating timer does not drift
    uint64_t repeat_ns;
};

static void timer_fired(uv_timer_t *h);

// libuv runs all timers that are due before it looks at descriptors again, by a time that stands
// still meanwhile, as long as nobody moves it: so it is not moved here (what is due is absolute),
// and a timer that sets itself anew has to wait for the next millisecond.
static void timer_arm_in(struct loop_timer *t, uint64_t wait_ms)
{
    uint64_t least_ms = t->watch.loop->in_timer ? 1 : 0;
    (void)uv_timer_start(&t->uv, timer_fired, wait_ms > least_ms ? wait_ms : least_ms, 0);
}

static void timer_arm(struct loop_timer *t)
{
    uint64_t due_ms = t->due_ns / NS_PER_MS + (t->due_ns % NS_PER_MS != 0);
    uint64_t now_ms = uv_now(&t->watch.loop->uv);
    timer_arm_in(t, due_ms > now_ms ? due_ms - now_ms : 0);
}

// Thousands of timers that are due let descriptors and signals have their turn in between.
static bool timer_gives_way(struct loop_timer *t)
{
    uint64_t began_ms = uv_now(&t->watch.loop->uv);
    if (uv_hrtime() / NS_PER_MS <= began_ms + TIMERS_TURN_MS)
        return false;
    (void)uv_timer_start(&t->uv, timer_fired, 1, 0);
    return true;
}

static void timer_fired(uv_timer_t *h)
{
    struct loop_timer *t = container_of(h, struct loop_timer, uv);
    struct loop *l = t->watch.loop;
    if (timer_gives_way(t) || !turn_begin(&t->watch))
        return;
    l->in_timer = true;
    if (t->repeat_ns) {
        // Ticks that were missed altogether are left out.
        uint64_t late_ns = l->now_ns > t->due_ns ? l->now_ns - t->due_ns : 0;
        t->due_ns += (late_ns / t->repeat_ns + 1) * t->repeat_ns;
        timer_arm(t);
    }
    t->fired(t->watch.user);
    l->in_timer = false;
    turn_end(l);
}

int loop_timer_new(struct loop *l, void (*fired)(void *user), void *user, struct loop_timer **out)
{
    struct loop_timer *t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    (void)uv_timer_init(&l->uv, &t->uv);
    t->watch = (struct watch){l, user, true};
    t->fired = fired;
    *out = t;
    return 0;
}

void loop_timer_set(struct loop_timer *t, uint64_t delay_ns, uint64_t repeat_ns)
{
    uint64_t now_ns = uv_hrtime();
    t->due_ns = delay_ns > UINT64_MAX / 2 - now_ns ? UINT64_MAX / 2 : now_ns + delay_ns;
    t->repeat_ns = repeat_ns;
    if (delay_ns == 0)
        timer_arm_in(t, 0);
    else
        timer_arm(t);
}

void loop_timer_every(struct loop_timer *t, uint64_t period_ns)
{
    t->due_ns = (uv_hrtime() / period_ns + 1) * period_ns;
    t->repeat_ns = period_ns;
    timer_arm(t);
}

void loop_timer_stop(struct loop_timer *t)
{
    (void)uv_timer_stop(&t->uv);
    t->repeat_ns = 0;
}

static void timer_closed(uv_handle_t *h)
{
    free(container_of((uv_timer_t *)h, struct loop_timer, uv));
}

void loop_timer_free(struct loop_timer *t)
{
    if (!t)
        return;
    t->watch.live = false;
    t->repeat_ns = 0;
    uv_close((uv_handle_t *)&t->uv, timer_closed);
}

// --- Descriptors ---

struct loop_fd {
    uv_poll_t uv;
    struct watch watch;
    void (*ready)(void *user, unsigned events);
    unsigned events;
};

static void fd_ready(uv_poll_t *h, int status, int events)
{
    struct loop_fd *w = container_of(h, struct loop_fd, uv);
    struct loop *l = w->watch.loop;
    if (!turn_begin(&w->watch))
        return;
    unsigned bits =
        (events & UV_READABLE ? LOOP_READABLE : 0) | (events & UV_WRITABLE ? LOOP_WRITABLE : 0);
    if (status < 0) {
        // libuv stops a poll handle at the first error; the watch goes on, as for any other state
        // of the descriptor.
        bits = LOOP_READABLE | LOOP_WRITABLE;
        (void)uv_poll_start(&w->uv, (int)w->events, fd_ready);
    }
    w->ready(w->watch.user, bits);
    turn_end(l);
}

static void fd_closed(uv_handle_t *h)
{
    free(container_of((uv_poll_t *)h, struct loop_fd, uv));
}

static int poll_bits(unsigned events)
{
    return (events & LOOP_READABLE ? UV_READABLE : 0) | (events & LOOP_WRITABLE ? UV_WRITABLE : 0);
}

int loop_fd_new(struct loop *l, int fd, unsigned events, void (*ready)(void *user, unsigned events),
                void *user, struct loop_fd **out)
{
    struct loop_fd *w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    int r = uv_poll_init(&l->uv, &w->uv, fd);
    if (r < 0) {
        free(w);
        return r;
    }
    w->watch = (struct watch){l, user, true};
    w->ready = ready;
    loop_fd_set(w, events);
    *out = w;
    return 0;
}

void loop_fd_set(struct loop_fd *w, unsigned events)
{
    if (events == w->events)
        return;
    w->events = events;
    if (events)
        (void)uv_poll_start(&w->uv, poll_bits(events), fd_ready);
    else
        (void)uv_poll_stop(&w->uv);
}

void loop_fd_free(struct loop_fd *w)
{
    if (!w)
        return;
    w->watch.live = false;
    uv_close((uv_handle_t *)&w->uv, fd_closed);
}

// --- Signals ---

struct loop_signal {
    uv_signal_t uv;
    struct watch watch;
    void (*caught)(void *user, int signo);
};

static void signal_caught(uv_signal_t *h, int signo)
{
    struct loop_signal *w = container_of(h, struct loop_signal, uv);
    struct loop *l = w->watch.loop;
    if (!turn_begin(&w->watch))
        return;
    w->caught(w->watch.user, signo);
    turn_end(l);
}

static void signal_closed(uv_handle_t *h)
{
    free(container_of((uv_signal_t *)h, struct loop_signal, uv));
}

int loop_signal_new(struct loop *l, int signo, void (*caught)(void *user, int signo), void *user,
                    struct loop_signal **out)
{
    struct loop_signal *w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    int r = uv_signal_init(&l->uv, &w->uv);
    if (r < 0) {
        free(w);
        return r;
    }
    w->watch = (struct watch){l, user, true};
    w->caught = caught;
    r = uv_signal_start(&w->uv, signal_caught, signo);
    if (r < 0) {
        loop_signal_free(w);
        return r;
    }
    *out = w;
    return 0;
}

void loop_signal_free(struct loop_signal *w)
{
    if (!w)
        return;
    w->watch.live = false;
    uv_close((uv_handle_t *)&w->uv, signal_closed);
}

// --- Directories ---

struct loop_path {
    uv_fs_event_t uv;
    struct watch watch;
    void (*changed)(void *user, const char *name);
    char *directory_name; // last part of the path
};

static void path_changed(uv_fs_event_t *h, const char *name, int events, int status)
{
    struct loop_path *w = container_of(h, struct loop_path, uv);
    struct loop *l = w->watch.loop;
    (void)events;
    if (!turn_begin(&w->watch))
        return;
    // For what happens to the directory itself libuv gives its own name, which says nothing about
    // what is inside.
    if (status < 0 || (name && strcmp(name, w->directory_name) == 0))
        name = NULL;
    w->changed(w->watch.user, name);
    turn_end(l);
}

static void path_closed(uv_handle_t *h)
{
    struct loop_path *w = container_of((uv_fs_event_t *)h, struct loop_path, uv);
    free(w->directory_name);
    free(w);
}

int loop_path_new(struct loop *l, const char *directory,
                  void (*changed)(void *user, const char *name), void *user, struct loop_path **out)
{
    struct loop_path *w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    const char *slash = strrchr(directory, '/');
    w->directory_name = strdup(slash ? slash + 1 : directory);
    if (!w->directory_name) {
        free(w);
        return -ENOMEM;
    }
    (void)uv_fs_event_init(&l->uv, &w->uv);
    w->watch = (struct watch){l, user, true};
    w->changed = changed;
    int r = uv_fs_event_start(&w->uv, path_changed, directory, 0);
    if (r < 0) {
        loop_path_free(w);
        return r;
    }
    *out = w;
    return 0;
}

void loop_path_free(struct loop_path *w)
{
    if (!w)
        return;
    w->watch.live = false;
    uv_close((uv_handle_t *)&w->uv, path_closed);
}

// --- Child processes ---

struct loop_process {
    uv_process_t uv;
    struct watch watch;
    void (*ended)(void *user, int exit_status, int term_signal);
    pid_t pid;
    bool is_over;
};

static void process_closed(uv_handle_t *h)
{
    free(container_of((uv_process_t *)h, struct loop_process, uv));
}

static void process_ended(uv_process_t *h, int64_t exit_status, int term_signal)
{
    struct loop_process *p = container_of(h, struct loop_process, uv);
    struct loop *l = p->watch.loop;
    p->is_over = true;
    if (!turn_begin(&p->watch)) {
        uv_close((uv_handle_t *)h, process_closed);
        return;
    }
    p->ended(p->watch.user, (int)exit_status, term_signal);
    turn_end(l);
}

// Without close_range(CLOSE_RANGE_CLOEXEC), Linux 5.11: one by one.
static void mark_descriptors_one_by_one(void)
{
    DIR *d = opendir("/proc/self/fd");
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));) {
        uint64_t fd;
        if (num_parse_u64(sv_from(e->d_name), 3, INT32_MAX, &fd) < 0)
            continue;
        int flags = fcntl((int)fd, F_GETFD);
        if (flags >= 0 && !(flags & FD_CLOEXEC))
            (void)fcntl((int)fd, F_SETFD, flags | FD_CLOEXEC);
    }
    closedir(d);
}

// Nothing of ours is meant to outlive an exec but what a child is given by name. Descriptors that
// came to us from outside (a listening socket of systemd's, a leak of a parent) do not carry the
// flag yet.
static void mark_descriptors_close_on_exec(void)
{
#ifdef CLOSE_RANGE_CLOEXEC
    if (close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) == 0)
        return;
#endif
    mark_descriptors_one_by_one();
}

int loop_process_new(struct loop *l, const struct loop_process_config *config,
                     void (*ended)(void *user, int exit_status, int term_signal), void *user,
                     struct loop_process **out)
{
    if (config->fd_count > LOOP_PROCESS_FDS_MAX)
        return -EINVAL;
    uv_stdio_container_t stdio[LOOP_PROCESS_FDS_MAX];
    for (size_t i = 0; i < config->fd_count; i++) {
        stdio[i].flags = config->fds[i] < 0 ? UV_IGNORE : UV_INHERIT_FD;
        stdio[i].data.fd = config->fds[i];
    }
    struct loop_process *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->watch = (struct watch){l, user, true};
    p->ended = ended;
    const uv_process_options_t options = {
        .exit_cb = process_ended,
        .file = config->path,
        .args = (char **)config->argv,
        .env = (char **)config->env,
        .stdio = stdio,
        .stdio_count = (int)config->fd_count,
    };
    mark_descriptors_close_on_exec();
    int r = uv_spawn(&l->uv, &p->uv, &options);
    if (r < 0) {
        p->watch.live = false;
        uv_close((uv_handle_t *)&p->uv, process_closed);
        return r;
    }
    p->pid = p->uv.pid;
    *out = p;
    return 0;
}

pid_t loop_process_pid(const struct loop_process *p)
{
    return p->pid;
}

int loop_process_kill(struct loop_process *p, int signo)
{
    // Its number may belong to somebody else by now.
    return p->is_over ? -ESRCH : uv_process_kill(&p->uv, signo);
}

void loop_process_free(struct loop_process *p)
{
    if (!p)
        return;
    p->watch.live = false;
    if (p->is_over)
        uv_close((uv_handle_t *)&p->uv, process_closed);
    // Else the handle stays until the child ends: libuv reaps only children it has a handle for.
}

// --- Jobs ---

struct job {
    uv_work_t uv;
    struct loop *loop;
    void (*work)(void *user);
    void (*done)(void *user);
    void *user;
};

static void job_work(uv_work_t *w)
{
    struct job *j = container_of(w, struct job, uv);
    j->work(j->user);
}

static void job_done(uv_work_t *w, int status)
{
    struct job *j = container_of(w, struct job, uv);
    struct loop *l = j->loop;
    (void)status; // never cancelled
    l->jobs--;
    l->now_ns = uv_hrtime();
    void (*done)(void *user) = j->done;
    void *user = j->user;
    free(j);
    done(user);
    turn_end(l);
}

static void *wait_for_turn(void *user)
{
    pthread_mutex_t *turn = user;
    (void)pthread_mutex_lock(turn);
    (void)pthread_mutex_unlock(turn);
    return NULL;
}

// libuv ends the process when the threads of its pool cannot be made (a cgroup's limit on tasks, no
// memory for stacks). So they are made once for trial. 0 or negative errno.
static int try_threads(void)
{
    pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
    pthread_t threads[POOL_THREADS];
    size_t made = 0;
    int r = 0;
    (void)pthread_mutex_lock(&turn);
    for (; made < POOL_THREADS && r == 0; made += r == 0)
        r = -pthread_create(&threads[made], NULL, wait_for_turn, &turn);
    (void)pthread_mutex_unlock(&turn);
    while (made > 0)
        (void)pthread_join(threads[--made], NULL);
    return r;
}

// libuv takes the size of its pool from the environment when the first job is queued. Children must
// not see it, and an outside value must not change ours.
static int queue_first_job(struct loop *l, struct job *j)
{
    int r = try_threads();
    if (r < 0)
        return r;
    char *outside = getenv("UV_THREADPOOL_SIZE");
    char *saved = outside ? strdup(outside) : NULL;
    if (outside && !saved)
        return -ENOMEM;
    if (setenv("UV_THREADPOOL_SIZE", POOL_THREADS_TEXT, 1) < 0) {
        free(saved);
        return -ENOMEM;
    }
    r = uv_queue_work(&l->uv, &j->uv, job_work, job_done);
    if (saved)
        (void)setenv("UV_THREADPOOL_SIZE", saved, 1);
    else
        (void)unsetenv("UV_THREADPOOL_SIZE");
    free(saved);
    return r;
}

int loop_job_start(struct loop *l, void (*work)(void *user), void (*done)(void *user), void *user)
{
    static bool pool_is_up;
    if (l->jobs >= LOOP_JOBS_MAX)
        return -EBUSY;
    struct job *j = calloc(1, sizeof(*j));
    if (!j)
        return -ENOMEM;
    *j = (struct job){.loop = l, .work = work, .done = done, .user = user};
    int r = pool_is_up ? uv_queue_work(&l->uv, &j->uv, job_work, job_done) : queue_first_job(l, j);
    if (r < 0) {
        free(j);
        return r;
    }
    pool_is_up = true;
    l->jobs++;
    return 0;
}
