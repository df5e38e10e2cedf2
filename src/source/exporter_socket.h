// SPDX-License-Identifier: Apache-2.0
// A helper's end of the socket to the exporter: what every source tells and is told in the same
// way, and when its loop ends. Other threads may send through output; all else is the loop's.
#pragma once

#include "source/output.h"

struct exporter_socket {
    int fd;
    struct frame_call_page *page; // its turns
    struct output output;
    struct frame_reader reader;
    struct frame_state state; // as sent last
    bool told;                // a state has been sent
    struct buf frame;         // being made
    uint32_t turns;
    uint64_t dropped; // frames, as logged last
    int end;          // exit status + 1 once the loop is to end
};

// Borrows both, of which fd is a stream socket.
void exporter_socket_init(struct exporter_socket *x, int fd, struct frame_call_page *page);
void exporter_socket_deinit(struct exporter_socket *x);

// The loop begins a turn, once a second at least: the exporter looks at the count of them. False
// when it is to end.
bool exporter_socket_turn(struct exporter_socket *x);
// Waits until a time (CLOCK_MONOTONIC) at the longest and sends what waits. True when frames may
// have come.
bool exporter_socket_wait(struct exporter_socket *x, uint64_t due_ns);
// The next frame that has come, borrowed until the next call; false without one.
bool exporter_socket_next(struct exporter_socket *x, struct frame *out);

// What another function that sends has returned: the loop ends with 0 when the exporter is gone.
void exporter_socket_check(struct exporter_socket *x, int rc);
// The loop ends with 1.
void exporter_socket_end_without_memory(struct exporter_socket *x);

void exporter_socket_send_hello(struct exporter_socket *x, enum frame_source source);
// Nothing is sent when it is the state sent last.
void exporter_socket_send_state(struct exporter_socket *x, const struct frame_state *state);
// A whole frame, header included.
void exporter_socket_send(struct exporter_socket *x, enum frame_type type, const struct buf *frame);
// A frame of which the payload is one piece.
void exporter_socket_send_payload(struct exporter_socket *x, enum frame_type type,
                                  const void *payload, size_t bytes);
// Whether frames were dropped since it was asked last: what is sent once is to be sent again.
bool exporter_socket_has_dropped(struct exporter_socket *x);
