// SPDX-License-Identifier: Apache-2.0
// Frames on their way to the exporter. Never blocks: what the socket does not take at once waits in
// a bounded queue, from which the oldest samples are dropped first; the last of each frame that
// tells the whole (state, entities, health, peers) is never dropped. Of USAGE frames, which follow
// on each other, the newest is dropped first, and it is told. Two threads may send; each frame goes
// out whole.
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "gpu/frame.h"

#define OUTPUT_FRAMES_MAX 64
#define OUTPUT_BYTES_MAX (2u * LIMIT_FRAME_BYTES)

struct output_frame {
    char *bytes;
    size_t len;
    enum frame_type type;
};

struct output {
    int fd;               // stream socket, borrowed
    pthread_mutex_t lock; // of all below
    struct output_frame queue[OUTPUT_FRAMES_MAX];
    unsigned count;
    size_t bytes;     // in the queue
    size_t sent;      // of the first
    uint64_t dropped; // frames
    bool usage_lost;  // since it was asked last
    int failed;       // negative errno once the peer is gone
};

void output_init(struct output *o, int fd);
void output_deinit(struct output *o);
// Sends one frame (a whole one, header included). A buffer that has failed counts as dropped.
// 0, or the negative errno after which nothing is sent any more (-EPIPE, -ECONNRESET).
int output_send(struct output *o, enum frame_type type, const struct buf *frame);
// Sends what waits, as far as it goes: when poll says POLLOUT. As output_send.
int output_flush(struct output *o);
bool output_is_pending(struct output *o);
uint64_t output_get_dropped(struct output *o);
// Whether a USAGE frame was dropped since it was asked last: the next does not follow on what the
// exporter will have.
bool output_take_usage_lost(struct output *o);
