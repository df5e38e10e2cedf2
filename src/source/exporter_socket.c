// SPDX-License-Identifier: Apache-2.0
#include "source/exporter_socket.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

void exporter_socket_init(struct exporter_socket *x, int fd, struct frame_call_page *page)
{
    *x = (struct exporter_socket){
        .fd = fd,
        .page = page,
        .frame = BUF_INIT(LIMIT_FRAME_BYTES + sizeof(struct frame_header)),
    };
    output_init(&x->output, fd);
    frame_reader_init(&x->reader);
}

void exporter_socket_deinit(struct exporter_socket *x)
{
    frame_reader_deinit(&x->reader);
    output_deinit(&x->output);
    buf_deinit(&x->frame);
}

// --- the loop ---

bool exporter_socket_turn(struct exporter_socket *x)
{
    if (!x->end)
        __atomic_store_n(&x->page->turns, ++x->turns, __ATOMIC_RELAXED);
    return !x->end;
}

static bool read_some(struct exporter_socket *x)
{
    char *space;
    size_t room;
    if (frame_reader_space(&x->reader, &space, &room) < 0) {
        exporter_socket_end_without_memory(x);
        return false;
    }
    ssize_t n = read(x->fd, space, room);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return false;
    if (n <= 0) {
        x->end = 1;
        return false;
    }
    frame_reader_commit(&x->reader, (size_t)n);
    return true;
}

static int ms_until(uint64_t due_ns)
{
    uint64_t now_ns = clock_mono_ns();
    return due_ns <= now_ns ? 0 : (int)((due_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS);
}

bool exporter_socket_wait(struct exporter_socket *x, uint64_t due_ns)
{
    struct pollfd p = {.fd = x->fd, .events = POLLIN};
    if (x->end)
        return false;
    if (output_is_pending(&x->output))
        p.events |= POLLOUT;
    if (poll(&p, 1, ms_until(due_ns)) <= 0)
        return false;
    if (p.revents & POLLOUT)
        exporter_socket_check(x, output_flush(&x->output));
    return (p.revents & (POLLIN | POLLHUP | POLLERR)) && read_some(x);
}

bool exporter_socket_next(struct exporter_socket *x, struct frame *out)
{
    const char *what = "";
    int rc = x->end ? 0 : frame_reader_next(&x->reader, out, &what);
    if (rc < 0) {
        log_error("exporter speaks another protocol", LOG_STR("what", what));
        x->end = 2;
    }
    return rc > 0;
}

void exporter_socket_check(struct exporter_socket *x, int rc)
{
    if (rc == -ENOMEM)
        log_error("out of memory", LOG_LIMIT("memory"));
    else if (rc < 0)
        x->end = 1; // the exporter is gone
}

void exporter_socket_end_without_memory(struct exporter_socket *x)
{
    log_error("out of memory");
    x->end = 2;
}

// --- telling ---

void exporter_socket_send(struct exporter_socket *x, enum frame_type type, const struct buf *frame)
{
    exporter_socket_check(x, output_send(&x->output, type, frame));
}

void exporter_socket_send_payload(struct exporter_socket *x, enum frame_type type,
                                  const void *payload, size_t bytes)
{
    buf_reset(&x->frame);
    size_t start = frame_begin(&x->frame, type);
    buf_add(&x->frame, payload, bytes);
    frame_end(&x->frame, start);
    exporter_socket_send(x, type, &x->frame);
}

void exporter_socket_send_hello(struct exporter_socket *x, enum frame_source source)
{
    struct frame_hello hello = {.protocol = FRAME_PROTOCOL, .source = source, .pid = getpid()};
    exporter_socket_send_payload(x, FRAME_HELLO, &hello, sizeof(hello));
}

void exporter_socket_send_state(struct exporter_socket *x, const struct frame_state *state)
{
    if (x->told && memcmp(state, &x->state, sizeof(*state)) == 0)
        return;
    x->state = *state;
    x->told = true;
    exporter_socket_send_payload(x, FRAME_STATE, state, sizeof(*state));
}

bool exporter_socket_has_dropped(struct exporter_socket *x)
{
    uint64_t dropped = output_get_dropped(&x->output);
    if (dropped == x->dropped)
        return false;
    log_warn("exporter reads too slowly, frames dropped", LOG_U64("frames", dropped - x->dropped),
             LOG_LIMIT("dropped"));
    x->dropped = dropped;
    return true;
}
