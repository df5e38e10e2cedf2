// SPDX-License-Identifier: Apache-2.0
// Lines wait in one buffer, their ends in a list beside it. `written` bytes of the first one have
// left. Descriptors that can be waited for (pipes, terminals, sockets) are written when they are
// ready, files at once. The loop makes what it waits for non-blocking; standard output, which
// others may share, becomes again what it was. A new connection begins with a whole line.
#include "agent/event_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/event_output_tcp.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"

#define RETRY_LEAST_NS (100 * NS_PER_MS)
#define RETRY_MOST_NS (30 * NS_PER_S)
#define WRITE_BYTES (256u << 10) // as much as this is not kept for the next turn of the loop

struct line {
    size_t bytes;
    unsigned samples;
};

struct event_output {
    struct loop *loop;
    struct cw_output to;
    int fd; // -1: none now
    bool is_borrowed;
    int flags;               // of a borrowed one, as it came
    bool is_file;            // always ready
    struct loop_fd *ready;   // NULL: a file, or no descriptor
    struct tcp_connect *tcp; // under way
    struct loop_timer *timer;
    unsigned attempt;
    struct buf waiting;
    struct line *lines; // [first .. count)
    size_t first, count, capacity;
    size_t written;   // of the first line
    size_t unwritten; // bytes added since the last attempt to write
    struct event_output_stats stats;
    char error[256];
    void (*drained)(void *user);
    void *drained_user;
};

static void try_write(struct event_output *o);
static int open_place(struct event_output *o, struct error *err);

// --- The queue ---

static bool lines_make_room(struct event_output *o)
{
    if (o->count < o->capacity)
        return true;
    if (o->first > 0) {
        memmove(o->lines, o->lines + o->first, (o->count - o->first) * sizeof(*o->lines));
        o->count -= o->first;
        o->first = 0;
        return true;
    }
    size_t capacity = o->capacity ? 2 * o->capacity : 64;
    struct line *grown = realloc(o->lines, capacity * sizeof(*grown));
    if (!grown)
        return false;
    o->lines = grown;
    o->capacity = capacity;
    return true;
}

static bool is_empty(const struct event_output *o)
{
    return o->first == o->count;
}

static void tell_when_drained(struct event_output *o)
{
    void (*drained)(void *user) = o->drained;
    if (!drained || !is_empty(o))
        return;
    o->drained = NULL;
    drained(o->drained_user);
}

// n more bytes have left.
static void take_note(struct event_output *o, size_t n)
{
    size_t gone = 0;
    o->written += n;
    while (o->first < o->count && o->written >= o->lines[o->first].bytes) {
        const struct line *l = &o->lines[o->first++];
        o->written -= l->bytes;
        gone += l->bytes;
        o->stats.written_events++;
        o->stats.written_samples += l->samples;
    }
    if (o->first == o->count)
        o->first = o->count = 0;
    buf_consume(&o->waiting, gone);
}

const char *event_output_place(const struct event_output *o)
{
    return o->to.where ? o->to.where : "";
}

const char *event_output_kind(const struct event_output *o)
{
    return o->to.kind == CW_OUTPUT_FILE ? "file" : o->to.kind == CW_OUTPUT_TCP ? "tcp" : "stdout";
}

// --- The place ---

static void close_place(struct event_output *o)
{
    loop_fd_free(TAKE_PTR(o->ready));
    tcp_connect_free(TAKE_PTR(o->tcp));
    if (o->is_borrowed && o->fd >= 0 && o->flags >= 0)
        (void)fcntl(o->fd, F_SETFL, o->flags);
    else if (o->fd >= 0)
        (void)close(o->fd);
    o->fd = -1;
    o->written = 0; // the line begins again
}

static void note_failure(struct event_output *o, const char *text)
{
    o->stats.failures++;
    sv_copy(o->error, sizeof(o->error), sv_from(text));
    log_warn("events cannot be written, they wait",
             LOG_STR("to", o->to.where ? o->to.where : "stdout"), LOG_STR("error", text),
             LOG_LIMIT("event output"));
    loop_timer_set(o->timer, clock_backoff_ns(o->attempt, RETRY_LEAST_NS, RETRY_MOST_NS), 0);
    if (o->attempt < 32)
        o->attempt++;
}

static void on_ready(void *user, unsigned events)
{
    (void)events;
    try_write(user);
}

static void on_connected(void *user, int fd, const char *error)
{
    struct event_output *o = user;
    struct tcp_connect *done = TAKE_PTR(o->tcp); // error is its
    if (fd < 0)
        note_failure(o, error);
    tcp_connect_free(done);
    if (fd < 0)
        return;
    o->fd = fd;
    if (loop_fd_new(o->loop, fd, 0, on_ready, o, &o->ready) < 0) {
        close_place(o);
        note_failure(o, "out of memory");
        return;
    }
    try_write(o);
}

static int open_file(struct event_output *o, struct error *err)
{
    int fd = open(o->to.where, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644);
    if (fd < 0)
        return error_set(err, -errno, "%.256s: cannot be opened for writing: %s", o->to.where,
                         strerror(errno));
    o->fd = fd;
    return 0;
}

static int open_place(struct event_output *o, struct error *err)
{
    if (o->to.kind == CW_OUTPUT_TCP)
        return tcp_connect_new(o->loop, o->to.where, on_connected, o, &o->tcp, err);
    if (o->to.kind == CW_OUTPUT_FILE) {
        int r = open_file(o, err);
        if (r < 0)
            return r;
    } else {
        o->fd = STDOUT_FILENO;
        o->is_borrowed = true;
        o->flags = fcntl(o->fd, F_GETFL);
    }
    struct stat st;
    o->is_file = fstat(o->fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode));
    int r = o->is_file ? 0 : loop_fd_new(o->loop, o->fd, 0, on_ready, o, &o->ready);
    if (r == -EPERM) { // as /dev/null: it can't be waited for and needs not
        o->is_file = true;
        r = 0;
    }
    return r;
}

static void reopen(struct event_output *o)
{
    struct error err = ERROR_INIT;
    if (o->fd >= 0 || o->tcp)
        return;
    int r = open_place(o, &err);
    if (r < 0)
        note_failure(o, err.text[0] ? err.text : strerror(-r));
}

// --- Writing ---

static ssize_t write_some(const struct event_output *o)
{
    const char *from = o->waiting.data + o->written;
    size_t bytes = o->waiting.len - o->written;
    if (o->to.kind == CW_OUTPUT_TCP)
        return send(o->fd, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    return write(o->fd, from, bytes);
}

static void try_write(struct event_output *o)
{
    o->unwritten = 0;
    if (is_empty(o) || o->fd < 0) {
        if (o->ready)
            loop_fd_set(o->ready, 0);
        return;
    }
    ssize_t n = write_some(o);
    int failed = n < 0 ? errno : 0;
    if (failed && failed != EAGAIN && failed != EINTR) {
        char text[128];
        (void)snprintf(text, sizeof(text), "%s", strerror(failed));
        o->stats.is_gone = o->is_borrowed && failed == EPIPE;
        close_place(o);
        note_failure(o, text);
        return;
    }
    if (n > 0) {
        take_note(o, (size_t)n);
        o->attempt = 0;
        o->error[0] = '\0';
    }
    bool more = !is_empty(o);
    if (o->ready)
        loop_fd_set(o->ready, more ? LOOP_WRITABLE : 0);
    else if (more)
        loop_timer_set(o->timer, NS_PER_MS, 0);
    tell_when_drained(o);
}

static void on_timer(void *user)
{
    struct event_output *o = user;
    reopen(o);
    if (o->ready)
        loop_fd_set(o->ready, is_empty(o) ? 0 : LOOP_WRITABLE);
    else
        try_write(o);
}

// --- Outside ---

void event_output_add(struct event_output *o, struct sv line, unsigned samples)
{
    o->stats.events++;
    o->stats.samples += samples;
    bool was_empty = is_empty(o);
    if (!lines_make_room(o) || buf_reserve(&o->waiting, line.len + 1) < 0) {
        o->waiting.error = 0; // what is there stays good
        o->stats.lost_events++;
        o->stats.lost_samples += samples;
        log_warn("events are lost, too many wait to be written", LOG_LIMIT("event output full"));
        return;
    }
    buf_add_sv(&o->waiting, line);
    buf_add_char(&o->waiting, '\n');
    o->lines[o->count++] = (struct line){line.len + 1, samples};
    if (o->fd < 0 || o->attempt > 0)
        return;
    if (was_empty)
        loop_timer_set(o->timer, 0, 0); // those of one scrape leave together
    // One turn may bring the pages of a thousand targets.
    o->unwritten += line.len + 1;
    if (o->unwritten >= WRITE_BYTES && !o->drained)
        try_write(o);
}

void event_output_reopen(struct event_output *o)
{
    if (o->to.kind != CW_OUTPUT_FILE)
        return;
    // A line that was begun in the old file is written whole in the new one.
    close_place(o);
    reopen(o);
    loop_timer_set(o->timer, 0, 0);
}

void event_output_drain(struct event_output *o, void (*drained)(void *user), void *user)
{
    o->drained = drained;
    o->drained_user = user;
    tell_when_drained(o);
}

void event_output_get_stats(const struct event_output *o, struct event_output_stats *out)
{
    *out = o->stats;
    out->waiting_bytes = o->waiting.len - o->written;
    out->last_error = o->error;
}

DEFINE_CLEANUP(struct event_output *, event_output_free);

int event_output_new(struct loop *l, const struct cw_output *to, struct event_output **out,
                     struct error *err)
{
    cleanup(event_output_freep) struct event_output *o = calloc(1, sizeof(*o));
    if (!o)
        return -ENOMEM;
    o->loop = l;
    o->fd = -1;
    o->to.kind = to->kind;
    o->waiting = BUF_INIT(LIMIT_EVENT_OUTPUT_BYTES);
    if (to->where && !(o->to.where = sv_dup(sv_from(to->where))))
        return -ENOMEM;
    int r = loop_timer_new(l, on_timer, o, &o->timer);
    if (r == 0)
        r = open_place(o, err);
    if (r < 0)
        return r;
    *out = TAKE_PTR(o);
    return 0;
}

void event_output_free(struct event_output *o)
{
    if (!o)
        return;
    close_place(o);
    loop_timer_free(o->timer);
    buf_deinit(&o->waiting);
    free(o->lines);
    free(o->to.where);
    free(o);
}
