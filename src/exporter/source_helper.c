// SPDX-License-Identifier: Apache-2.0
// How it works: the child gets one end of a socketpair as fd 3 and a sealed memfd as fd 4; frames
// are read until the socket is empty or LIMIT_FRAME_TURN_BYTES are in. The call page is written by
// the child at any moment: it is mapped read-only, read with atomic loads and believed in nothing
// but "this call has been running since"; the seals keep the child from shrinking it under us.
// Invariants: after source_helper_kill the socket is closed and the page unmapped; `process` is
// NULL once reaped; while `busy` (an event of ours is on the stack) a free is put off to the end of
// that event.
#include "exporter/source_helper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/num.h"

struct source_helper {
    const struct source_helper_events *events;
    void *user;
    struct loop_process *process;
    int fd; // our end, -1 closed
    struct loop_fd *watch;
    const struct frame_call_page *page;
    struct frame_reader reader;
    struct buf out; // what is being written: a WATCH or controls
    size_t out_sent;
    bool out_is_control;
    struct buf next;       // the WATCH after it
    struct buf controls;   // CONTROL frames, after that
    uint64_t out_since_ns; // when out began to wait
    uint64_t started_ns;
    uint64_t closed_ns; // when the child closed its end, 0 not
    uint64_t kmsg_seq;  // from the page, when it was unmapped
    uint64_t window_ns; // start of the second that is counted
    uint64_t window_frames, window_bytes;
    bool hello, killed, busy, freed;
};

// --- Life ---

static void close_channel(struct source_helper *h)
{
    loop_fd_free(TAKE_PTR(h->watch));
    if (h->fd >= 0)
        (void)close(TAKE_FD(h->fd));
    h->kmsg_seq = source_helper_kmsg_seq(h);
    if (h->page)
        (void)munmap((void *)TAKE_PTR(h->page), FRAME_CALL_PAGE_BYTES);
}

static void destroy(struct source_helper *h)
{
    close_channel(h);
    loop_process_free(h->process);
    frame_reader_deinit(&h->reader);
    buf_deinit(&h->out);
    buf_deinit(&h->next);
    buf_deinit(&h->controls);
    free(h);
}

void source_helper_free(struct source_helper *h)
{
    if (!h)
        return;
    source_helper_kill(h);
    if (h->busy)
        h->freed = true;
    else
        destroy(h);
}

void source_helper_kill(struct source_helper *h)
{
    if (h->process && !h->killed)
        (void)loop_process_kill(h->process, SIGKILL);
    h->killed = true;
    close_channel(h);
}

// Ends an event: true when the owner freed the helper meanwhile, which is then gone.
static bool leave(struct source_helper *h)
{
    h->busy = false;
    if (!h->freed)
        return false;
    destroy(h);
    return true;
}

void source_helper_await(const struct source_helper *h, int wait_ms)
{
    if (!h->process)
        return;
    cleanup(fd_closep) int pidfd = (int)syscall(SYS_pidfd_open, loop_process_pid(h->process), 0);
    if (pidfd < 0)
        return; // Linux before 5.3
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    (void)poll(&p, 1, wait_ms);
}

pid_t source_helper_pid(const struct source_helper *h)
{
    return h->process ? loop_process_pid(h->process) : 0;
}

// --- Frames ---

static void break_off(struct source_helper *h, const char *what)
{
    loop_fd_free(TAKE_PTR(h->watch));
    h->events->broken(h->user, what);
}

// False when the frame may not stand here.
static bool take_hello(struct source_helper *h, const struct frame *f)
{
    if (h->hello || f->as.hello->protocol != FRAME_PROTOCOL)
        return false;
    h->hello = true;
    return true;
}

static const char *take_frame(struct source_helper *h, const struct frame *f)
{
    if (++h->window_frames > LIMIT_FRAMES_PER_S)
        return "too many frames";
    switch (f->type) {
    case FRAME_HELLO:
        return take_hello(h, f) ? NULL : "hello out of place";
    case FRAME_STATE:
    case FRAME_ENTITIES:
    case FRAME_SAMPLE:
    case FRAME_EVENTS:
    case FRAME_HEALTH:
    case FRAME_PEERS:
    case FRAME_CONTROL_DONE:
    case FRAME_USAGE:
        if (!h->hello)
            return "no hello";
        h->events->frame(h->user, f);
        return NULL;
    case FRAME_WATCH:
    case FRAME_CONTROL:
    case FRAME_TYPE_END:
        break;
    }
    return "frame of a type that a source never sends";
}

// The owner may kill the helper in each frame: then the rest is left alone.
static void take_frames(struct source_helper *h)
{
    const char *what = NULL;
    struct frame f;
    int r = 1;
    while (!h->killed && !what && (r = frame_reader_next(&h->reader, &f, &what)) == 1)
        what = take_frame(h, &f);
    if (!h->killed && (r < 0 || what))
        break_off(h, what ? what : "out of memory");
}

static void note_volume(struct source_helper *h, size_t bytes)
{
    uint64_t now_ns = clock_mono_ns();
    if (now_ns - h->window_ns >= NS_PER_S) {
        h->window_ns = now_ns;
        h->window_frames = h->window_bytes = 0;
    }
    h->window_bytes += bytes;
}

// Bytes read; 0 nothing there (or the child closed, see closed_ns). *out_more: the socket may hold
// more.
static size_t read_some(struct source_helper *h, bool *out_more)
{
    char *space;
    size_t room;
    *out_more = false;
    if (frame_reader_space(&h->reader, &space, &room) < 0) {
        break_off(h, "out of memory");
        return 0;
    }
    ssize_t n;
    do
        n = recv(h->fd, space, room, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        frame_reader_commit(&h->reader, (size_t)n);
        note_volume(h, (size_t)n);
        *out_more = (size_t)n == room;
        return (size_t)n;
    }
    if (n == 0 || errno != EAGAIN) {
        h->closed_ns = clock_mono_ns();
        loop_fd_free(TAKE_PTR(h->watch));
    }
    return 0;
}

// to_end: the child is gone, so its end of the stream has to be found as well.
static void read_frames(struct source_helper *h, bool to_end)
{
    size_t total = 0;
    bool more = true;
    while (h->watch && (more || to_end) && total < LIMIT_FRAME_TURN_BYTES) {
        size_t n = read_some(h, &more);
        if (n == 0)
            return;
        total += n;
        if (h->window_bytes > LIMIT_FRAME_BYTES_PER_S) {
            break_off(h, "too many bytes");
            return;
        }
        take_frames(h);
    }
}

// --- WATCH, CONTROL ---

static bool is_sending(const struct source_helper *h)
{
    return h->out_sent < h->out.len;
}

// What waits takes the place of what was written.
static void take_next(struct source_helper *h)
{
    h->out_is_control = h->next.len == 0;
    struct buf *waiting = h->out_is_control ? &h->controls : &h->next;
    struct buf done = h->out;
    h->out = *waiting;
    *waiting = done;
    buf_reset(waiting);
    h->out_sent = 0;
    h->out_since_ns = clock_mono_ns();
}

static void send_out(struct source_helper *h)
{
    while (h->watch && is_sending(h)) {
        ssize_t n = send(h->fd, h->out.data + h->out_sent, h->out.len - h->out_sent,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break; // full, or the child is going: its end will be told
        h->out_sent += (size_t)n;
        if (!is_sending(h))
            take_next(h);
    }
    if (h->watch)
        loop_fd_set(h->watch, is_sending(h) ? LOOP_READABLE | LOOP_WRITABLE : LOOP_READABLE);
}

int source_helper_send_watch(struct source_helper *h, struct sv frame)
{
    bool begun = is_sending(h) && (h->out_sent > 0 || h->out_is_control);
    struct buf *b = begun ? &h->next : &h->out;
    struct buf fresh = BUF_INIT(b->max);
    buf_add_sv(&fresh, frame);
    if (fresh.error) {
        int r = fresh.error;
        buf_deinit(&fresh);
        return r;
    }
    if (!is_sending(h))
        h->out_since_ns = clock_mono_ns();
    buf_deinit(b);
    *b = fresh;
    if (!begun) {
        h->out_sent = 0;
        h->out_is_control = false;
    }
    send_out(h);
    return 0;
}

int source_helper_send_control(struct source_helper *h, struct sv frame)
{
    if (h->controls.len + frame.len > SOURCE_CONTROLS * frame.len)
        return -EBUSY;
    buf_add_sv(&h->controls, frame);
    if (h->controls.error)
        return h->controls.error;
    if (!is_sending(h))
        take_next(h);
    send_out(h);
    return 0;
}

// --- Events ---

static void on_ready(void *user, unsigned events)
{
    struct source_helper *h = user;
    h->busy = true;
    if (events & LOOP_WRITABLE)
        send_out(h);
    if (events & LOOP_READABLE)
        read_frames(h, false);
    (void)leave(h);
}

static void on_ended(void *user, int exit_status, int term_signal)
{
    struct source_helper *h = user;
    h->busy = true;
    if (!h->killed)
        read_frames(h, true); // what it said before it went
    loop_process_free(TAKE_PTR(h->process));
    if (!h->freed)
        h->events->ended(h->user, exit_status, term_signal);
    (void)leave(h);
}

// --- Watching over ---

uint32_t source_helper_calls(const struct source_helper *h)
{
    return h->page ? __atomic_load_n(&h->page->calls, __ATOMIC_RELAXED) : 0;
}

uint32_t source_helper_turns(const struct source_helper *h)
{
    return h->page ? __atomic_load_n(&h->page->turns, __ATOMIC_RELAXED) : 0;
}

uint64_t source_helper_kmsg_seq(const struct source_helper *h)
{
    return h->page ? __atomic_load_n(&h->page->kmsg_seq, __ATOMIC_RELAXED) : h->kmsg_seq;
}

static uint64_t entered_ns(const struct source_helper *h)
{
    return h->page ? __atomic_load_n(&h->page->entered_ns, __ATOMIC_ACQUIRE) : 0;
}

// What is read between two equal stamps belongs to one and the same call.
static bool read_call(const struct source_helper *h, uint64_t stamp_ns, struct source_call *out)
{
    uint32_t index = __atomic_load_n(&h->page->index, __ATOMIC_RELAXED);
    char name[sizeof(out->name)] = "";
    for (size_t i = 0; i + 1 < sizeof(name); i++) {
        char c = __atomic_load_n(&h->page->call[i], __ATOMIC_RELAXED);
        if (c == '\0')
            break;
        name[i] = c > ' ' && c < 0x7f ? c : '?';
    }
    if (entered_ns(h) != stamp_ns)
        return false;
    out->index = index;
    memcpy(out->name, name, sizeof(name));
    return true;
}

bool source_helper_call(const struct source_helper *h, struct source_call *out)
{
    uint64_t stamp_ns = entered_ns(h);
    return stamp_ns != 0 && read_call(h, stamp_ns, out);
}

// Time that passed since then and was watched.
static uint64_t watched_since(uint64_t then_ns, const struct source_deadlines *d, uint64_t now_ns)
{
    uint64_t from_ns = then_ns > d->watched_ns ? then_ns : d->watched_ns;
    return now_ns > from_ns ? now_ns - from_ns : 0;
}

static bool call_is_stuck(const struct source_helper *h, uint64_t now_ns,
                          const struct source_deadlines *d, struct source_call *out)
{
    uint64_t stamp_ns = entered_ns(h);
    return stamp_ns != 0 && watched_since(stamp_ns, d, now_ns) >= d->call_ns &&
           read_call(h, stamp_ns, out);
}

enum source_trouble source_helper_check(const struct source_helper *h, uint64_t now_ns,
                                        const struct source_deadlines *deadlines,
                                        struct source_call *out_call)
{
    *out_call = (struct source_call){.index = UINT32_MAX};
    if (h->killed)
        return SOURCE_TROUBLE_NONE;
    if (call_is_stuck(h, now_ns, deadlines, out_call))
        return SOURCE_TROUBLE_CALL;
    if (h->closed_ns && watched_since(h->closed_ns, deadlines, now_ns) > deadlines->closed_ns)
        return SOURCE_TROUBLE_CLOSED;
    if (h->closed_ns || entered_ns(h) != 0)
        return SOURCE_TROUBLE_NONE;
    if (!h->hello && watched_since(h->started_ns, deadlines, now_ns) > deadlines->hello_ns)
        return SOURCE_TROUBLE_NO_HELLO;
    if (is_sending(h) && watched_since(h->out_since_ns, deadlines, now_ns) > deadlines->call_ns)
        return SOURCE_TROUBLE_NOT_READING;
    return SOURCE_TROUBLE_NONE;
}

// proc(5), /proc/pid/stat: "pid (name) state ...". T: stopped, t: traced.
bool source_helper_is_stopped(const struct source_helper *h)
{
    char path[32 + NUM_U64_BYTES], text[512];
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)source_helper_pid(h));
    cleanup(fd_closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return false;
    text[n] = '\0';
    const char *end = strrchr(text, ')');
    return end && end[1] == ' ' && (end[2] == 'T' || end[2] == 't');
}

// --- Start ---

static int make_page(struct source_helper *h, int *out_fd)
{
    cleanup(fd_closep) int fd = memfd_create("podgpu-calls", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, FRAME_CALL_PAGE_BYTES) < 0)
        return -errno;
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return -errno;
    void *page = mmap(NULL, FRAME_CALL_PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        return -errno;
    h->page = page;
    *out_fd = TAKE_FD(fd);
    return 0;
}

static int spawn(struct loop *l, struct source_helper *h, char *const *argv)
{
    cleanup(fd_closep) int page_fd = -1;
    int r = make_page(h, &page_fd);
    if (r < 0)
        return r;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    h->fd = pair[0];
    cleanup(fd_closep) int theirs = pair[1];
    r = loop_fd_new(l, h->fd, LOOP_READABLE, on_ready, h, &h->watch);
    if (r < 0)
        return r;
    // What a vendor library prints goes where our log goes.
    const int fds[] = {-1, STDERR_FILENO, STDERR_FILENO, theirs, page_fd};
    const struct loop_process_config config = {
        .path = argv[0],
        .argv = argv,
        .fds = fds,
        .fd_count = ARRAY_SIZE(fds),
    };
    return loop_process_new(l, &config, on_ended, h, &h->process);
}

int source_helper_new(struct loop *l, const struct source_helper_config *config,
                      struct source_helper **out, struct error *err)
{
    struct source_helper *h = calloc(1, sizeof(*h));
    if (!h)
        return error_set(err, -ENOMEM, "out of memory");
    h->events = config->events;
    h->user = config->user;
    h->fd = -1;
    h->out = h->next = h->controls = BUF_INIT(LIMIT_FRAME_BYTES);
    h->started_ns = clock_mono_ns();
    frame_reader_init(&h->reader);
    int r = spawn(l, h, config->argv);
    if (r < 0) {
        destroy(h);
        if (r == -ENOENT && access(config->argv[0], X_OK) == 0)
            return error_set(err, r, "%s cannot be started: there is no %s", config->argv[0],
                             access("/dev/null", F_OK) < 0 ? "/dev/null" : "loader for it");
        return error_set(err, r, "%s cannot be started: %s", config->argv[0], strerror(-r));
    }
    *out = h;
    return 0;
}
